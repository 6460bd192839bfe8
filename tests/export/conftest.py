"""Runs to export: one made by hand of real files, and two that were trained."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import autonovel as an
from autonovel.api.run import Run, load
from autonovel.settings.joint import PairsSettings
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.recipes import get_recipe
from tests.report.made import digits_run


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run and, beside it, the files it was made of."""
    folder = tmp_path_factory.mktemp("made")
    digits_run(folder / "run", n=40, sources=folder / "photos")
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Run:
    """The run by hand, to be edited and exported; its files are those of every test."""
    return load(shutil.copytree(made / "run", tmp_path / "run"))


@pytest.fixture
def own(run: Run, made: Path, tmp_path: Path) -> Run:
    """The same with files of its own, which may be moved or deleted."""
    photos = shutil.copytree(made / "photos", tmp_path / "photos")
    run.write_images([r._replace(source=str(photos / Path(r.source).name)) for r in run.images])
    return load(run.path)


def edit(run: Run) -> Run:
    """What a person might do: a name, a merge, a mark of each kind and a move. Cluster 0 is left as it is."""
    run.name(1, "grey heron").merge(1, 2).mark(3, "not a class").mark(4, run.machine.known[1])
    return run.move([int(np.flatnonzero(run.state.group == 0)[0])], 1) if (run.state.group == 0).any() else run


def tiny(networks: int, objective: str) -> Recipe:
    """A recipe that takes a second."""
    base = get_recipe("digits", "fast")
    stage = {"epochs": 1, "batch": 64}
    return replace(
        base,
        model=Model(
            backbone="small", width=4, head="linear" if objective == "pairs" else "cosine", size=16, networks=networks
        ),
        supervised=replace(base.supervised, **stage),
        joint=PairsSettings(**stage)
        if objective == "pairs"
        else replace(base.joint, heads=2, hidden=8, projection=8, regroups=0, **stage),
    )


def _train(out: Path, made: Path, networks: int, objective: str) -> Path:
    from autonovel.data.images import ImageSet

    digits = load(made / "run").images
    pixels = np.stack([pixels_of(record.source) for record in digits])
    images = ImageSet.from_arrays(pixels, [record.label or "" for record in digits])
    an.discover(images, out=out, n_new=5, recipe=tiny(networks, objective), device="cpu", report=False)
    return out


def pixels_of(source: str) -> np.ndarray:
    """The digit in a file, as it was before it was enlarged."""
    from PIL import Image

    return np.asarray(Image.open(source).resize((8, 8), Image.Resampling.BOX))


@pytest.fixture(scope="session")
def single(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run of one network."""
    return _train(tmp_path_factory.mktemp("single") / "run", made, 1, "pairs")


@pytest.fixture(scope="session")
def pair(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run of two networks that answer as one."""
    return _train(tmp_path_factory.mktemp("pair") / "run", made, 2, "swap")


@pytest.fixture
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """A copy, to be edited, of the trained run that the test names."""
    return load(shutil.copytree(request.getfixturevalue(request.param), tmp_path / "run"))
