"""The device by its name: which one it is, or why there is none."""

import pytest
import torch

from autonovel.base.errors import InputError
from autonovel.machine.device import Mode


@pytest.mark.parametrize("name", ["cuda:2", "cuda:11"])
def test_a_gpu_that_is_not_there_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert Mode.of("cuda:1").device == torch.device("cuda", 1)
    with pytest.raises(InputError, match=f"There is no device '{name}': torch can use cuda:0 and cuda:1 here."):
        Mode.of(name)


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", ""])
def test_names_that_no_device_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(InputError, match=f"There is no device '{name}'; choose cpu, cuda, cuda:N or auto."):
        Mode.of(name)
