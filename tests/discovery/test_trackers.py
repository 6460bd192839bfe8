"""What --log writes, read by the tracker's own reader."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

import autonovel as an
from autonovel.base.errors import InputError
from autonovel.cli.main import main
from autonovel.data.benchmarks.splits import load_benchmark
from autonovel.data.images import ImageSet
from autonovel.discovery.prepare import prepare
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter
from autonovel.runs.folder import Run, load
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.settings.resolve import Asked

EVERY_EIGHTH = np.arange(0, 1797, 8)
SMALL = {
    "supervised.epochs": 1,
    "joint.epochs": 2,
    "model.networks": 1,
    "model.size": 8,
    "joint.regroups": 0,
    "joint.heads": 1,
}


def small_recipe() -> Recipe:
    return Asked.of(get_recipe("digits", "fast")).with_values(SMALL).get()


def expected(run: Run) -> dict[str, list[tuple[int, float]]]:
    """What a tracker must hold: name -> (epoch, number), from metrics.jsonl."""
    found: dict[str, list[tuple[int, float]]] = {}
    for entry in run.metrics:
        values: dict[str, Any] = {"lr": entry["lr"], "seconds": entry["seconds"], **entry["losses"]}
        for name, value in values.items():
            number = fmean(value) if isinstance(value, list) else value
            found.setdefault(f"{entry['stage']}/{name}", []).append((entry["epoch"], pytest.approx(number, rel=1e-5)))
    return found


def in_tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_reads_every_epoch_once_also_of_a_run_that_was_continued(tmp_path: Path) -> None:
    data, _ = load_benchmark("digits", None)
    run = Run(tmp_path / "run")
    job = replace(prepare(data.subset(EVERY_EIGHTH), small_recipe(), 5, 0, Mode.of("cpu")), log="tensorboard")
    job.run(run, until="supervised")
    before = in_tensorboard(run.path / "tensorboard")
    assert before == expected(run)
    job.run(run)
    after = in_tensorboard(run.path / "tensorboard")
    assert after == expected(load(run.path))
    assert {len(epochs) for name, epochs in after.items() if name.startswith("joint/")} == {2}
    assert before.items() < after.items()


class Heard(Reporter):
    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


def test_a_tracker_that_gets_nothing_is_said_or_refused(tmp_path: Path) -> None:
    heard = Heard()
    pixels = np.random.default_rng(0).integers(0, 255, (60, 32, 32, 3), dtype=np.uint8)
    data = ImageSet.from_arrays(pixels, np.repeat([0, 1, -1], 20))
    job = replace(prepare(data, get_recipe("folder"), 2, 0, Mode.of("cpu"), heard), log="tensorboard")
    job.run(Run(tmp_path / "run"))
    assert "log has no effect: nothing is trained here." in heard.said
    with pytest.raises(InputError, match=r"^Nothing is trained on features; leave log out\.$"):
        an.discover("known.npy", features=True, out=tmp_path / "other", log="tensorboard")


def test_a_tracker_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = next((name for name in ("mlflow", "wandb") if find_spec(name) is None), None)
    if missing is None:
        pytest.skip("all trackers are installed")
    assert main(["discover", "nowhere", "nothing", "--log", missing, "--out", str(tmp_path / "run")]) == 2
    assert (
        capsys.readouterr().err == f"autonovel: --log {missing} needs {missing}: pip install 'autonovel[{missing}]'.\n"
    )
