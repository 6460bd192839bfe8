"""The Python interface: one function for each whole job."""

from __future__ import annotations

import os
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

from autonovel.data.images import ImageSet, Truth
from autonovel.data.reading.inputs import open_input
from autonovel.errors import InputError
from autonovel.machine.cache_folder import user_cache
from autonovel.machine.device import Mode
from autonovel.machine.processes import ALONE, World
from autonovel.maths.estimate import ClassEstimate
from autonovel.pipeline import Pipeline, read_estimate
from autonovel.progress import Reporter, make_reporter
from autonovel.recipes import get_recipe, side_for
from autonovel.report.plots import draw_estimate
from autonovel.runs.folder import Run, load
from autonovel.runs.shared import open_run
from autonovel.settings import Recipe

Path_ = str | os.PathLike[str]


def discover(
    labelled: Any,
    unlabelled: Any = None,
    *,
    out: Path_,
    n_new: int | str = "auto",
    recipe: str | Recipe = "folder",
    preset: str = "paper",
    incremental: bool | None = None,
    seed: int = 0,
    device: str = "auto",
    truth: Truth | None = None,
    start_from: Path_ | None = None,
    cache: Path_ | None = None,
    verbose: bool = False,
    reporter: Reporter | None = None,
    world: World = ALONE,
) -> Run:
    """Discover the new classes among unlabelled images.

    Args:
        labelled: images of the known classes: a folder with one sub-folder per class, a CSV or Parquet table (path, label),
            (images, labels) arrays, an ImageSet, a Hugging Face or torch dataset. None clusters without any labels.
        unlabelled: the images to sort, in any of these forms without labels. Left out, ``labelled`` is one pile in which
            some images have no label (or -1).
        out: the run folder. The same call with the same folder continues where it stopped.
        n_new: how many new classes there are; 'auto' estimates it.
        recipe: a name (see ``autonovel recipes``) or a :class:`~autonovel.settings.Recipe`.
        preset: paper, reference or fast.
        incremental: train a joint head for known and new classes; as the recipe says when left out.
        seed: everything random depends on it.
        device: cpu, cuda or auto.
        truth: the true classes, for scoring alone.
        start_from: a run whose first stages are used again where their settings and the data are the same.
        cache: folder for decoded images; the user's cache folder when left out.
        verbose: show progress.
        reporter: sees the progress, in place of what ``verbose`` shows.
        world: the processes that work on this together, from :func:`autonovel.machine.processes.join`.

    Returns:
        The finished run.
    """
    pipeline = _prepare(
        labelled,
        unlabelled,
        n_new,
        recipe,
        preset,
        incremental,
        seed,
        device,
        cache,
        _reporter(reporter, verbose),
        world,
    )
    source = None if start_from is None else world.from_first(lambda: load(start_from))
    run = pipeline.run(open_run(out, world), truth=truth, start_from=source)
    if world.first:
        _draw(Run(out))
    return run


def estimate(
    labelled: Any,
    unlabelled: Any = None,
    *,
    out: Path_,
    recipe: str | Recipe = "folder",
    preset: str = "paper",
    seed: int = 0,
    device: str = "auto",
    cache: Path_ | None = None,
    verbose: bool = False,
    reporter: Reporter | None = None,
    world: World = ALONE,
) -> ClassEstimate:
    """How many new classes are there? The first stages of :func:`discover`, which can go on from the same folder."""
    pipeline = _prepare(
        labelled, unlabelled, "auto", recipe, preset, None, seed, device, cache, _reporter(reporter, verbose), world
    )
    run = pipeline.run(open_run(out, world), until="estimate")
    if world.first:
        _draw(Run(out))
    return read_estimate(run)[0]


def _reporter(given: Reporter | None, verbose: bool) -> Reporter:
    return given if given is not None else make_reporter() if verbose else Reporter()


def _draw(run: Run) -> None:
    """The picture of an estimate, where there is one and no picture of it yet."""
    if run.has("estimate.json") and not run.has("estimate.png"):
        draw_estimate(run)


def cluster(images: Any, k: int, *, out: Path_, recipe: str | Recipe = "cluster", **options: Any) -> Run:
    """Sort images into k clusters without any labels: :func:`discover` with nothing known."""
    return discover(None, images, out=out, n_new=k, recipe=recipe, **options)


def _prepare(
    labelled: Any,
    unlabelled: Any,
    n_new: int | str,
    recipe: str | Recipe,
    preset: str,
    incremental: bool | None,
    seed: int,
    device: str,
    cache: Path_ | None,
    reporter: Reporter,
    world: World,
) -> Pipeline:
    if not (n_new == "auto" or (isinstance(n_new, Integral) and not isinstance(n_new, bool))):
        raise InputError(f"n_new is {n_new!r}; give a whole number or 'auto'.")
    settings = get_recipe(recipe, preset) if isinstance(recipe, str) else recipe
    if incremental is not None:
        settings = replace(settings, joint=replace(settings.joint, incremental=incremental))
    mode = Mode.of(device, world)
    if isinstance(labelled, ImageSet) and unlabelled is None:
        data, problems = labelled, []
    else:
        given = open_input(labelled, unlabelled)
        size, why = side_for(settings, given.survey.size, mode.device.type == "cuda")
        if why:
            reporter.message(why)
        with mode.world.local_first():
            loaded = given.load(
                size=size,
                cache=Path(cache) if cache is not None else user_cache(),
                progress=reporter.counter("reading images"),
            )
        data, problems = loaded.images, loaded.problems
        for note in loaded.notes:
            reporter.message(note)
    return Pipeline(data, settings, None if n_new == "auto" else int(n_new), seed, mode, reporter, problems)
