"""One discovery, decided and tried on a few images before the long work begins."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autonovel.base.chance import seeded
from autonovel.base.errors import InputError, kind_found, option
from autonovel.data.images import ImageSet, Truth
from autonovel.data.loader import DeviceImages
from autonovel.data.reading.problems import PROBLEM_FIELDS, Problem, as_rows
from autonovel.discovery.finish import finished_already
from autonovel.discovery.plan import Stage, plan
from autonovel.discovery.resume import config_of, take_over
from autonovel.machine.device import Mode
from autonovel.machine.disk import check_room
from autonovel.machine.memory import check_memory, kept_for_gradients
from autonovel.machine.progress import Reporter
from autonovel.maths.mirror import look_mirrored
from autonovel.methods.base import Task, losses_of
from autonovel.models.net import Net, build
from autonovel.runs.folder import Run
from autonovel.runs.thumbnails import AT_MOST
from autonovel.runs.weights import numbered
from autonovel.settings.fields import check, left_open
from autonovel.settings.recipe import KEEP_LAYOUT, Recipe
from autonovel.settings.resolve import Asked, Facts, Resolved, packaged_network, resolve

PICTURE_BYTES, ROW_BYTES = 1500, 300
"""Of a thumbnail, and of the lines about an image in the tables of a run."""
MIRRORED = 3000
"""Labelled images that decide whether views are mirrored."""


@dataclass(frozen=True)
class Job:
    """One discovery that is to be done: :func:`prepare` makes it.

    Attributes:
        data: all images, labelled and not.
        recipe: every setting; nothing in it is left open.
        n_new: how many new classes to look for; None estimates it.
        seed: everything random depends on it.
        mode: device and precision.
        reporter: sees the progress.
        resolved: the recipe before it was seen whether to mirror images, and what it comes from.
        cache: where features of a pre-trained network are kept; None keeps none.
        remarks: what else the summary should say.
        problems: files that were left out or are remarkable; listed in the folder before any work.
        keep: after how many epochs of the last stage that trains features and clusters of the pile are kept.
        log: the tracker that gets the losses, too.
        on_disk: bytes that the folder will take, about.
    """

    data: ImageSet
    recipe: Recipe
    n_new: int | None
    seed: int
    mode: Mode
    reporter: Reporter
    resolved: Resolved
    cache: Path | None = None
    remarks: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    keep: tuple[int, ...] = ()
    log: str | None = None
    on_disk: int = 0

    @property
    def stages(self) -> list[Stage]:
        """The plan."""
        return plan(self.recipe, self.data.n_known)

    def task(self, n_new: int | None, recipe: Recipe | None = None) -> Task:
        """The task of a method that looks for this many new classes, with this recipe or another one."""
        return Task(recipe or self.recipe, self.data.n_known, n_new or 0, len(self.data), self.data.families)

    def new_net(self, number: int = 1) -> Net:
        """The first, second, ... network with its first weights and without heads."""
        size = self.recipe.model.size or self.data.images.shape[1]
        with seeded(self.seed, numbered("backbone", number)):
            return build(self.recipe.model, channels=self.data.channels, size=size)

    def run(
        self, run: Run, *, truth: Truth | None = None, start_from: Run | None = None, until: str | None = None
    ) -> Run:
        """Do what is not done yet, and score it if there is a truth.

        Args:
            run: the folder.
            truth: the true classes, for scoring alone.
            start_from: another run whose first stages serve for this one too, if data and settings of them are the same.
            until: stop after this stage of the plan ('pretrain', 'estimate', 'supervised'); the folder then serves as
                ``start_from``, or the same call without ``until`` continues in it.
        """
        from autonovel.discovery.run_stages import run_stages

        if truth is not None and len(truth.labels) != len(self.data):
            raise InputError(f"The truth has {len(truth.labels)} labels for {len(self.data)} images; give one each.")
        if not run.finished:
            there = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file()) if run.exists else 0
            instead = f"make room there, or give another folder as {option('out')}"
            check_room(run.path, self.on_disk - there, "The run takes", instead)
        config = config_of(self.data, self.recipe, self.n_new, self.seed)
        # stages that took hours serve another run (start_from), whatever the input turns out to be
        trained = [f"{stage.name}.safetensors" for stage in self.stages]
        with run.claim(config | {"asked": self.resolved.asked.to_dict()}, trained):
            if run.finished:
                self.reporter.message(finished_already(run))
                return run
            run.write_rows("problems.csv", PROBLEM_FIELDS, as_rows(self.problems))
            if start_from is not None:
                found = self.mode.world.from_first(
                    lambda: take_over(start_from, run, self.stages, self.data, self.recipe, config)
                )
                if not found:
                    self.reporter.message(f"No stage of {start_from.path} can be used: their settings differ.")
            run_stages(self, run, truth, until)
        return run


def prepare(
    data: ImageSet,
    recipe: Recipe | Resolved,
    n_new: int | None,
    seed: int = 0,
    mode: Mode | None = None,
    reporter: Reporter | None = None,
    *,
    cache: Path | None = None,
    remarks: Mapping[str, Any] | None = None,
    problems: Sequence[Problem] = (),
    keep: tuple[int, ...] = (),
) -> Job:
    """Decide what is left, refuse what cannot work, and try every stage on a few images.

    Args:
        recipe: every setting; resolved for these images here, unless that was done before they were decoded.

    The other arguments are those of :class:`Job`.
    """
    mode, reporter = mode or Mode.of(), reporter or Reporter()
    check_images(data, n_new)
    if isinstance(recipe, Recipe):
        recipe = resolve(Asked.of(recipe), facts_of(data, n_new, mode))
        for note in recipe.notes:
            reporter.message(note)
    job = Job(data, recipe.recipe, n_new, seed, mode, reporter, recipe, cache, remarks or {}, problems, keep)
    job = replace(job, recipe=_with_mirrors(job))
    check_settings(data, job.recipe)
    job = replace(job, on_disk=_rehearse(job))
    check_distinct(data, n_new)  # last, because it looks at the pixels
    return job


def facts_of(data: ImageSet, n_new: int | None, mode: Mode) -> Facts:
    """What a recipe may want to know about these images and this machine."""
    side, gpu = data.images.shape[1], mode.device.type == "cuda"
    return Facts(len(data), data.n_known, n_new, side, data.channels, gpu, packaged_network())


def _with_mirrors(job: Job) -> Recipe:
    """The recipe with views mirrored or not, as the labelled images say where that is left to them."""
    recipe, data = job.recipe, job.data
    methods = [stage.method for stage in job.stages if stage.method is not None]
    trains = any(method(job.task(job.n_new)).settings.epochs for method in methods)
    if recipe.mirror != "auto":
        return recipe
    if data.n_known < 2 or not trains:
        return replace(recipe, mirror="yes")
    labelled = np.flatnonzero(data.is_labelled)
    few = labelled[np.linspace(0, len(labelled) - 1, min(len(labelled), MIRRORED)).astype(np.int64)]
    mirrored = look_mirrored(torch.from_numpy(data.images[few]), torch.from_numpy(data.labels[few]))
    job.reporter.message(f"{mirrored.sentence()} ({option('mirror')})")
    return replace(recipe, mirror="no" if mirrored.harmful else "yes")


def _rehearse(job: Job) -> int:
    """One step of every stage on a few images, so that settings that do not fit fail now and not after hours.

    Returns:
        Bytes that the run will take on the disk, about.
    """
    data, size = job.data, job.recipe.model.size
    files = 0
    labelled, unlabelled = np.flatnonzero(data.is_labelled), np.flatnonzero(~data.is_labelled)
    few = torch.from_numpy(np.concatenate([labelled[:3], unlabelled[:3]]))
    net = job.new_net()
    for stage in job.stages:
        if stage.method is None:
            continue
        method = stage.method(job.task(job.n_new or 2))
        method.check((size, size, data.channels) if size else data.images.shape[1:])
        with seeded(job.seed, stage.name):
            method.prepare(net)
        files += _bytes_of(net)
        if not method.settings.epochs:
            continue
        net.freeze(method.settings.train_from)
        order = method.order(torch.from_numpy(data.labels), job.seed, stage.name, 0)
        index = order[0] if method.whole_batches else few
        part = DeviceImages(data.subset(index.numpy()), torch.device("cpu"), size=size)
        with kept_for_gradients() as kept:
            losses_of(method, net, part.batch(torch.arange(len(index))), torch.tensor(0), torch.tensor(1.0))
        for weight in net.parameters():
            kept.pop(weight.untyped_storage().data_ptr(), None)
        _check_step(job, stage.name, net, sum(kept.values()) * order.shape[1] / len(index))
    features = len(data) * net.n_features
    check_memory(
        16 * features,  # of four bytes, and copies of them
        f"Features of {len(data):,} images take",
        f"describe the images first, shard by shard ({option('engine', 'local')}), or give fewer",
    )
    states = 2 * 3 * _bytes_of(net)  # the old and the new one, each with what the optimiser keeps
    pictures = min(len(data), AT_MOST) * PICTURE_BYTES + len(data) * ROW_BYTES
    return job.recipe.model.networks * files + states + 2 * features + pictures


def _bytes_of(net: Net) -> int:
    return sum(weights.nbytes for weights in net.state_dict().values())


def _check_step(job: Job, stage: str, net: Net, kept: float) -> None:
    """Refuse a step that does not fit into the memory of this machine; a GPU says so itself, at the first step."""
    if job.mode.device.type != "cpu":
        return
    kept *= job.mode.precision_for(net.size).itemsize / 4 / job.mode.world.size
    smaller = f"choose smaller batches ({option(f'{stage}.batch')}), smaller images or a narrower network"
    # the weights, their gradients, what the optimiser keeps of them, and the last good state
    check_memory(kept + 5 * _bytes_of(net), f"A step of {stage} takes", smaller, job.mode.world.local_size)


# ---- What cannot work, each case with one sentence


def check_images(data: ImageSet, n_new: int | None) -> None:
    """Refuse images in which ``n_new`` new classes (None: a number to be estimated) cannot be discovered."""
    unlabelled = int((~data.is_labelled).sum())
    if n_new is not None and n_new < 2:
        raise InputError(
            f"{_flag(data)} is {n_new}; there must be at least 2 {kind_found(data.n_known)} to tell apart."
        )
    if not unlabelled:
        raise InputError("There are no unlabelled images to discover classes in; give some beside the labelled ones.")
    if n_new is None and unlabelled < 3:
        raise InputError(
            f"There are {unlabelled} unlabelled images, too few to estimate the number of classes; give {_flag(data)}."
        )
    if n_new is not None and unlabelled < n_new:
        raise InputError(
            f"There are {unlabelled} unlabelled images, fewer than the {n_new} {kind_found(data.n_known)} to find; "
            f"give {_flag(data)} {unlabelled} or less, or more images."
        )
    if data.n_known == 1:
        raise InputError("Only one class is known; label images of at least two classes.")
    missing = [name for i, name in enumerate(data.class_names) if not (data.labels == i).any()]
    if missing:
        raise InputError(f"The known class '{missing[0]}' has no image; leave it out or add images of it.")


def check_settings(data: ImageSet, recipe: Recipe) -> None:
    """Refuse settings that cannot work, or not with these images."""
    check(recipe)
    if recipe.model.backbone in KEEP_LAYOUT and data.images.shape[1] != data.images.shape[2] and not recipe.model.size:
        raise InputError(f"The {recipe.model.backbone} network needs square images; set {option('model.size')}.")
    if still := list(left_open(recipe)):
        raise InputError(f"{option(still[0])} is left open; resolve the recipe for the images first.")


def check_distinct(data: ImageSet, n_new: int | None) -> None:
    """Refuse a pile that, but for copies, has fewer images than there are classes to find."""
    if n_new is None:
        return
    unlabelled, distinct = int((~data.is_labelled).sum()), _count_distinct(data, n_new)
    if distinct < 2:
        raise InputError(f"All {unlabelled} unlabelled images are the same; give images that differ.")
    if distinct < n_new:
        raise InputError(
            f"Only {distinct} of the {unlabelled} unlabelled images differ, fewer than the {n_new} "
            f"{kind_found(data.n_known)} to find; give {_flag(data)} {distinct} or less, or more images."
        )


def _count_distinct(data: ImageSet, enough: int) -> int:
    """How many different images are unlabelled; as soon as there are enough, no more are looked at."""
    seen: set[bytes] = set()
    for row in np.flatnonzero(~data.is_labelled):
        seen.add(hashlib.blake2b(data.images[row].tobytes()).digest())
        if len(seen) == enough:
            break
    return len(seen)


def _flag(data: ImageSet) -> str:
    """What the number of classes is called on the command line."""
    return option("n_new" if data.n_known else "k")
