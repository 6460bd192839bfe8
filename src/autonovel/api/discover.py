"""Whole jobs: discover new classes, count them, or sort images that nothing is known about."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from autonovel.api.describe import describe_both
from autonovel.api.features import discover_features, estimate_features, features_of
from autonovel.api.large import Large
from autonovel.api.run import Path_, Run, load, open_run
from autonovel.base.errors import InputError, listed, option
from autonovel.data.images import ImageSet, Truth
from autonovel.data.reading.inputs import Input, open_input
from autonovel.data.reading.problems import Problem
from autonovel.discovery.arguments import check_arguments
from autonovel.discovery.finish import finished_already, read_estimate
from autonovel.discovery.next_round import asked_again, next_round, refuse_to_fetch
from autonovel.discovery.prepare import Job, facts_of, prepare
from autonovel.discovery.trackers import check_tracker
from autonovel.machine.cache_folder import user_cache
from autonovel.machine.device import Mode
from autonovel.machine.processes import ALONE, World
from autonovel.machine.progress import Reporter, make_reporter
from autonovel.maths.count.result import ClassEstimate
from autonovel.report.html import draw_report
from autonovel.report.plots import draw_estimate
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.settings.resolve import Asked, Facts, Resolved, packaged_network, resolve

RUNS = Path("runs")
"""Where runs are kept for which nobody names a folder."""


def discover(
    labelled: Any = None,
    unlabelled: Any = None,
    *,
    out: Path_ | None = None,
    continue_from: Path_ | Run | None = None,
    n_new: int | str = "auto",
    pile: str | None = None,
    method: str | None = None,
    backbone: str | None = None,
    recipe: str | Recipe | Asked | None = None,
    preset: str | None = None,
    incremental: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    features: bool = False,
    engine: str | None = None,
    address: str | None = None,
    seed: int = 0,
    device: str = "auto",
    truth: Truth | None = None,
    start_from: Path_ | None = None,
    keep: Sequence[int] = (),
    cache: Path_ | None = None,
    log: str | None = None,
    report: bool = True,
    verbose: bool = True,
    reporter: Reporter | None = None,
    world: World = ALONE,
) -> Run:
    """Discover the new classes among unlabelled images.

    Args:
        labelled: images of the known classes: a folder with one sub-folder per class, a CSV or Parquet table (path, label),
            (images, labels) arrays, an ImageSet, a Hugging Face or torch dataset. None clusters without any labels.
        unlabelled: the images to sort, in any of these forms without labels. Left out, ``labelled`` is one pile in which
            some images have no label (or -1).
        out: the run folder. The same call with the same folder continues where it stopped. Left out, it is the next free one
            of runs/discover, runs/discover-2, ...; or the one of these that has the answer to the same question already.
        continue_from: a finished run whose clusters a person has named: the next round, in which these are known classes
            and everything else is sorted again, together with ``unlabelled``, further images, if there are any. Here
            ``labelled`` is left out; for a run on arrays it is all of its images again, in the same order.
        n_new: how many new classes there are; 'auto' estimates it.
        pile: what the unlabelled images may hold: 'new' classes alone, 'mixed' (known classes too), or 'auto', decided from
            the images, as it is for images without a ``truth`` when left out, unless a Recipe says otherwise.
        method: the whole method, such as 'features'; ``autonovel discover --help-all`` lists them. As the recipe says when
            left out, like the next.
        backbone: the network, such as 'resnet18' or 'timm:NAME'; ``autonovel backbones`` lists those that are installed.
        recipe: a name (see ``autonovel recipes``) or a :class:`~autonovel.settings.recipe.Recipe`. Left out, it is
            'folder', or that of the run to continue from.
        preset: paper, reference or fast; paper, or that of the run to continue from, when left out.
        incremental: train a joint head for known and new classes; as the recipe says when left out.
        settings: other fields of the recipe by name: ``{"joint.epochs": 50}``; ``autonovel recipes NAME`` shows all.
        features: what is given are features that you have computed, (n, d) for n images, and not images: arrays, .npy
            files, Parquet tables with the columns ``features`` and, where there are any, ``image`` and ``label``, or folders
            that :func:`autonovel.describe` has finished.
        engine: 'local' or 'ray' describes the images first, shard by shard, into a folder beside the run's.
        address: of a Ray cluster; without one, Ray starts on this machine.
        seed: everything random depends on it.
        device: cpu, cuda or auto.
        truth: the true classes, for scoring alone.
        start_from: a finished run on the same images: its first stages are taken over, as far as their settings are the same.
        keep: after how many epochs of the last stage features and clusters of the pile are kept, for figures.
        cache: folder for decoded images and features; the user's cache folder when left out.
        log: 'tensorboard', 'mlflow' or 'wandb': write the losses for it too; on this machine, unless you have logged in to
            its server or named one.
        report: write clusters.png and report.html at the end.
        verbose: show progress; False is silent.
        reporter: sees the progress, in place of what ``verbose`` shows.
        world: the processes that work on this together, from :func:`autonovel.machine.processes.join`.

    Returns:
        The finished run.
    """
    check_arguments(out=out or _free_folders()[-1], device=device, n_new=n_new, seed=seed)
    check_tracker(log, trains=not features and engine is None)
    seed = int(seed)  # one out of an array is another type, which no JSON file can hold
    mode = Mode.of(device, world)
    shown = reporter if reporter is not None else make_reporter(verbose)
    if engine is not None:
        out = out or _free_folders()[-1]
        labelled, unlabelled = describe_both(
            labelled,
            unlabelled,
            out,
            asked_for(recipe or "folder", preset or "paper"),
            engine,
            address,
            device,
            shown,
            backbone,
        )
        features = True
    if features:
        idle: dict[str, Any] = {"method": method, "backbone": engine is None and backbone, "incremental": incremental}
        idle |= {"settings": settings, "start_from": start_from, "keep": tuple(keep)}
        if vain := [name for name, value in idle.items() if value]:
            raise InputError(f"{listed(vain)} can do nothing here: features are grouped as they are; leave that out.")
        return _discover_features(labelled, unlabelled, out, n_new, pile, seed, report, shown)
    remarks: dict[str, Any] = {}
    if continue_from is not None:
        before = continue_from if isinstance(continue_from, Run) else load(continue_from)
        if before.parts is not None:
            return _next_of_features(before, labelled, unlabelled, out, n_new, pile, seed, report, shown)
        given, taken = _next_round(before, labelled, unlabelled, out, shown)
        remarks["continued_from"] = {"run": str(before.path.resolve()), "taken": taken}
        if recipe is None:
            recipe = asked_again(before, preset)
            if backbone is None and "model.backbone" not in (settings or {}):
                refuse_to_fetch(recipe)
    else:
        given = given_of(labelled, unlabelled)
    named = {"pile": pile, "method": method, "model.backbone": backbone, "incremental": incremental}
    asked = asked_for(recipe or "folder", preset or "paper").with_values(
        {name: value for name, value in named.items() if value is not None} | {**(settings or {})}
    )
    # a Recipe says everything, and a next round is asked for as the one before
    if truth is None and continue_from is None and not isinstance(recipe, Recipe):
        asked = asked.on_own_images()
        if labelled is not None and "pile" not in asked.values and asked.get().learns_apart:
            shown.message(
                "Known classes are not looked for in the pile: this recipe does not learn known and new classes together "
                f"({option('incremental')} does)."
            )
    number = None if n_new == "auto" else int(n_new)
    question = _question(given, asked, number, seed, mode)
    if question:
        remarks["question"] = question
    if out is None:
        out = world.from_first(lambda: _folder_for(question))
        shown.message(f"the run is kept in {out}")
    run = open_run(out, world)
    if question and run.finished and run.summary.get("question") == question:
        shown.message(finished_already(run))
    else:
        job = replace(_job(given, asked, number, seed, mode, cache, shown, remarks), keep=tuple(keep), log=log)
        source = None if start_from is None else world.from_first(lambda: load(start_from))
        job.run(run, truth=truth, start_from=source)
    if world.first and report:
        draw(Run(out), shown)
    return run


def estimate(
    labelled: Any,
    unlabelled: Any = None,
    *,
    out: Path_,
    recipe: str | Recipe | Asked = "folder",
    preset: str = "paper",
    features: bool = False,
    engine: str | None = None,
    address: str | None = None,
    seed: int = 0,
    device: str = "auto",
    cache: Path_ | None = None,
    verbose: bool = True,
    reporter: Reporter | None = None,
    world: World = ALONE,
) -> ClassEstimate:
    """How many new classes are there? The first stages of :func:`discover`, which can continue in the same folder."""
    check_arguments(out=out, device=device, seed=seed)
    seed = int(seed)
    asked = asked_for(recipe, preset)
    shown = reporter if reporter is not None else make_reporter(verbose)
    if engine is not None:
        labelled, unlabelled = describe_both(labelled, unlabelled, out, asked, engine, address, device, shown)
    if features or engine is not None:
        number = estimate_features(Run(out), features_of(labelled, unlabelled), asked.get().pile, seed, shown)
        draw_number(Run(out))
        return number
    job = _job(given_of(labelled, unlabelled), asked, None, seed, Mode.of(device, world), cache, shown)
    run = job.run(open_run(out, world), until="estimate")
    if world.first:
        draw_number(Run(out))
    return read_estimate(run)[0]


def cluster(images: Any, k: int | str = "auto", *, recipe: str | Recipe | Asked = "folder", **options: Any) -> Run:
    """Sort images into k clusters without any labels: :func:`discover` with nothing known."""
    return discover(None, images, n_new=k, recipe=recipe, **options)


def given_of(labelled: Any, unlabelled: Any, *, to_sort: bool = True) -> ImageSet | Input:
    """The images: as they are where they were read before, otherwise opened and listed."""
    if isinstance(labelled, ImageSet | Input) and unlabelled is None:
        return labelled
    return (
        unlabelled
        if isinstance(unlabelled, Input) and labelled is None
        else open_input(labelled, unlabelled, to_sort=to_sort)
    )


def _discover_features(
    labelled: Any,
    unlabelled: Any,
    out: Path_ | None,
    n_new: int | str,
    pile: str | None,
    seed: int,
    report: bool,
    reporter: Reporter,
) -> Run:
    given = features_of(labelled, unlabelled)
    run = Run(out if out is not None else _free_folders()[-1])
    if out is None:
        reporter.message(f"the run is kept in {run.path}")
    discover_features(run, given, None if n_new == "auto" else int(n_new), pile, seed, reporter)
    if report:
        draw(run, reporter)
    return run


def _next_of_features(
    before: Run,
    labelled: Any,
    unlabelled: Any,
    out: Path_ | None,
    n_new: int | str,
    pile: str | None,
    seed: int,
    report: bool,
    reporter: Reporter,
) -> Run:
    """The next round of a large run, which keeps features and goes on with these."""
    if labelled is not None or unlabelled is not None:
        raise InputError(f"The run in {before.path} holds features; a next round of it takes no further images.")
    if out is not None and Path(out).resolve() == before.path.resolve():
        raise InputError(f"{before.path} is the run to continue from; give another folder as {option('out')}.")
    given, taken = Large.next(before)
    reporter.message(taken)
    return _discover_features(given, None, out, n_new, pile, seed, report, reporter)


def _free_folders() -> list[Path]:
    """runs/discover, runs/discover-2, ... as far as they are there, and the first that is not."""
    numbered = (RUNS / ("discover" if number == 1 else f"discover-{number}") for number in count(1))
    folders = []
    for folder in numbered:
        folders.append(folder)
        if not folder.exists():
            break
    return folders


def _folder_for(question: str) -> Path:
    """The folder where nobody names one: that of a run which has answered the same question, otherwise a new one."""
    *taken, free = _free_folders()
    answered = (folder for folder in taken if question and _answer_in(folder) == question)
    return next(answered, free)


def _answer_in(folder: Path) -> str:
    """The question that a run has answered; empty where there is none."""
    run = Run(folder)
    try:
        return str(run.summary.get("question", "")) if run.finished else ""
    except InputError:  # a folder that something has happened to
        return ""


def asked_for(recipe: str | Recipe | Asked, preset: str) -> Asked:
    """What is asked for: a recipe by its name, one of one's own, or what the command line made of flags."""
    if isinstance(recipe, Asked):
        return recipe
    return Asked.of(get_recipe(recipe, preset) if isinstance(recipe, str) else recipe)


def _question(given: ImageSet | Input, asked: Asked, n_new: int | None, seed: int, mode: Mode) -> str:
    """The same text for the same question about the same, unchanged files; empty where only reading them would show that."""
    files = "" if isinstance(given, ImageSet) else given.fingerprint
    whole = (asked.get().to_dict(), n_new, seed, mode.device.type, packaged_network(), files)
    return mode.world.from_first(lambda: hashlib.sha256(repr(whole).encode()).hexdigest()[:32] if files else "")


def _next_round(
    before: Run, images: Any, more: Any, out: Path_ | None, reporter: Reporter
) -> tuple[ImageSet | Input, str]:
    """The images of a run as a person left them, and a sentence about what was taken, which is reported too."""
    if out is not None and Path(out).resolve() == before.path.resolve():
        raise InputError(f"{before.path} is the run to continue from; give another folder as {option('out')}.")
    taken = next_round(before, more, images=images)
    reporter.message(taken.sentence)
    return taken.given, taken.sentence


def _job(
    given: ImageSet | Input,
    asked: Asked,
    n_new: int | None,
    seed: int,
    mode: Mode,
    cache: Path_ | None,
    reporter: Reporter,
    remarks: dict[str, Any] | None = None,
) -> Job:
    """The images, read once, and what is to be done with them."""
    folder = Path(cache) if cache is not None else user_cache()
    data, resolved, problems = read_images(given, asked, n_new, mode, folder, reporter)
    return prepare(
        data,
        resolved,
        n_new,
        seed,
        mode,
        reporter,
        cache=folder / "features",
        remarks=remarks,
        problems=problems,
    )


def read_images(
    given: ImageSet | Input,
    asked: Asked,
    n_new: int | None,
    mode: Mode,
    folder: Path,
    reporter: Reporter,
    *,
    least: int = 2,
) -> tuple[ImageSet, Resolved, list[Problem]]:
    """The images, the recipe resolved for them before they were decoded, and files with problems."""
    if isinstance(given, ImageSet):
        resolved = resolve(asked, facts_of(given, n_new, mode))
        data, problems, notes = given, list[Problem](), resolved.notes
    else:
        seen = given.survey
        total, gpu = seen.n_labelled + seen.n_unlabelled, mode.device.type == "cuda"
        facts = Facts(total, len(seen.classes), n_new, seen.size, seen.channels, gpu, packaged_network())
        resolved = resolve(asked, facts)
        size = seen.kept_size(asked.get().model.size, resolved.recipe.model.size)
        with mode.world.local_first():
            loaded = given.load(size=size, cache=folder, progress=reporter.counter("reading images"), least=least)
        data, problems, notes = loaded.images, loaded.problems, (*resolved.notes, *loaded.notes)
    for note in notes:
        reporter.message(note)
    return data, resolved, problems


def draw(run: Run, reporter: Reporter) -> None:
    """Draw the pictures and write the report that are not there yet."""
    draw_number(run)
    if run.finished and not run.has("report.html"):
        reporter.message("drawing clusters.png and report.html")
        draw_report(run)


def draw_number(run: Run) -> None:
    """Draw how the number of classes was found, where that is to be drawn and is not yet."""
    if run.has("estimate.json") and not run.has("estimate.png"):
        draw_estimate(run)
