"""What a run will need of memory and disk is said before it begins."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import autonovel as an
from autonovel.api import describe as describing
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet
from autonovel.discovery.prepare import prepare
from autonovel.machine.device import Mode
from autonovel.machine.memory import kept_for_gradients
from autonovel.machine.progress import Reporter
from autonovel.settings.recipes import get_recipe, with_fields

LABELS = np.repeat([0, 1], 15)
FEW = {"method": "kmeans", "model.backbone": "small", "model.width": 8, "pretrain.method": "none", "model.size": 16}
SMALL = FEW | {"method": "autonovel", "model.networks": 2, "supervised.epochs": 1, "joint.epochs": 1}


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (60, 16, 16, 3), dtype=np.uint8)


def discover(images: np.ndarray, out: Path, **more: object) -> an.Run:
    recipe = with_fields(get_recipe("digits", "fast"), more or SMALL)
    return an.discover((images[:30], LABELS), images[30:], n_new=2, out=out, recipe=recipe, device="cpu", report=False)


def free(monkeypatch: pytest.MonkeyPatch, memory: float = 1e12, disk: float = 1e12) -> None:
    monkeypatch.setattr("autonovel.machine.memory.free_memory", lambda _: memory)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=disk))


def test_what_is_kept_for_gradients_is_counted_once() -> None:
    x = torch.zeros(100, 10, requires_grad=True)
    with kept_for_gradients() as kept:
        y = x.exp()  # keeps its result, which the next ones keep too
        (y.sigmoid() * y).sum()
    assert sum(kept.values()) == 2 * 4000


def test_a_step_that_does_not_fit_into_memory_is_refused_before_any_work(
    images: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, memory=3e6)
    with pytest.raises(
        InputError, match=r"A step of joint takes about .* MB of memory and 3\.0 MB are free; choose sm"
    ):
        discover(images, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_features_that_do_not_fit_into_memory_are_refused(
    images: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, memory=1e5)
    with pytest.raises(
        InputError, match=r"Features of 60 images take about .*; describe the images first, shard by sh"
    ):
        discover(images, tmp_path / "run", **FEW, **{"supervised.epochs": 0})


def test_a_run_that_does_not_fit_on_the_disk_is_refused_and_the_estimate_is_about_right(
    images: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ImageSet(images, np.array([*LABELS, *[-1] * 30]), tuple(map(str, range(60))), ("a", "b"))
    job = prepare(data, with_fields(get_recipe("digits", "fast"), SMALL), 2, mode=Mode.of("cpu"))
    taken = sum(path.stat().st_size for path in discover(images, tmp_path / "whole").path.rglob("*") if path.is_file())
    assert taken < job.on_disk < 5 * taken  # the states of training go at its end
    free(monkeypatch, disk=1000)
    with pytest.raises(
        InputError, match=r"The run takes .* and .*run has room for 0\.0 MB; make room there, or give another"
    ):
        discover(images, tmp_path / "run")
    discover(images, tmp_path / "whole")  # is there already


def test_fewer_workers_describe_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Told(Reporter):
        def message(self, text: str) -> None:
            said.append(text)

    monkeypatch.setattr(describing, "free_memory", lambda _: 3 * describing._WORKER_BYTES + 1)
    assert describing._workers(8, 2, Told()) == describing._workers(2, 8, Told()) == 3
    assert said == []
    assert describing._workers(8, 8, Told()) == 3
    monkeypatch.setattr(describing, "free_memory", lambda _: 1)
    assert describing._workers(8, 8, Told()) == 1
    assert said == ["There is memory for 3 workers in place of 8.", "There is memory for 1 worker in place of 8."]
