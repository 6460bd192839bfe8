"""One discovery: everything is decided and tried on a few images before the long work begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autonovel.chance import seeded
from autonovel.checks import check
from autonovel.data.images import ImageSet, Truth
from autonovel.data.loader import DeviceImages
from autonovel.data.reading.problems import PROBLEM_FIELDS, Problem, as_rows
from autonovel.errors import InputError, option
from autonovel.identity import config_of, take_over
from autonovel.machine.device import Mode
from autonovel.maths.mirror import look_mirrored
from autonovel.methods.base import losses_of
from autonovel.outcome import finished_already
from autonovel.progress import Reporter
from autonovel.runs.folder import Run
from autonovel.settings import Recipe
from autonovel.settle import Facts, packaged_network, settle, without_mirrors
from autonovel.stages import plan
from autonovel.walk import Job, Walk

MIRRORED = 3000
"""Labelled images that decide whether views are mirrored."""


@dataclass
class Pipeline:
    """One discovery: from images to a finished run folder.

    Attributes:
        data: all images, labelled and not.
        recipe: every setting.
        n_new: how many new classes to look for; None estimates it.
        seed: everything random depends on it.
        mode: device and precision.
        reporter: sees the progress.
        problems: files that were left out or are remarkable; listed in the folder before any work.
        cache: where features of a pre-trained network are kept; None keeps none.
        remarks: what else the summary should say.
        shorter: a recipe that takes less time, and what to type for it; said together with the time that this one takes.
    """

    data: ImageSet
    recipe: Recipe
    n_new: int | None
    seed: int = 0
    mode: Mode = field(default_factory=Mode.of)
    reporter: Reporter = field(default_factory=Reporter)
    problems: Sequence[Problem] = ()
    cache: Path | None = None
    remarks: dict[str, Any] = field(default_factory=dict)
    shorter: tuple[str, Recipe] | None = None

    def __post_init__(self) -> None:
        facts = Facts(
            images=len(self.data),
            known_classes=self.data.n_known,
            new_classes=self.n_new,
            side=self.data.images.shape[1],
            channels=self.data.channels,
            gpu=self.mode.device.type == "cuda",
            packaged=packaged_network(),
        )
        self.recipe, notes = settle(self.recipe, facts)
        if self.shorter is not None:
            self.shorter = (self.shorter[0], settle(self.shorter[1], facts)[0])
        for note in notes:
            self.reporter.message(note)
        self._choose_mirror()
        check(self.data, self.recipe, self.n_new)
        self._rehearse()

    @property
    def _job(self) -> Job:
        stages = plan(self.recipe, self.data.n_known)
        return Job(
            data=self.data,
            recipe=self.recipe,
            stages=stages,
            n_new=self.n_new,
            seed=self.seed,
            mode=self.mode,
            reporter=self.reporter,
            cache=self.cache,
            remarks=self.remarks,
            shorter=self.shorter,
        )

    def _choose_mirror(self) -> None:
        """Switch mirrored views off where the labelled images say so."""
        labelled = np.flatnonzero(self.data.is_labelled)
        if self.recipe.mirror != "auto" or self.data.n_known < 2 or not self._job.trains:
            return
        if self.recipe == without_mirrors(self.recipe):  # nothing to switch off
            return
        few = labelled[np.linspace(0, len(labelled) - 1, min(len(labelled), MIRRORED)).astype(np.int64)]
        found = look_mirrored(torch.from_numpy(self.data.images[few]), torch.from_numpy(self.data.labels[few]))
        if found.harmful:
            self.recipe = without_mirrors(self.recipe)
        self.reporter.message(f"{found.sentence()} ({option('mirror')})")

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
        if truth is not None and len(truth.labels) != len(self.data):
            raise InputError(f"The truth has {len(truth.labels)} labels for {len(self.data)} images; give one each.")
        job, config = self._job, config_of(self.data, self.recipe, self.n_new, self.seed)
        with run.claim(config, {"recipe": Recipe().to_dict()}):
            if run.finished:
                self.reporter.message(finished_already(run))
                return run
            run.write_rows("problems.csv", PROBLEM_FIELDS, as_rows(self.problems))
            if start_from is not None:
                self.mode.world.from_first(
                    lambda: take_over(start_from, run, job.stages, self.data, self.recipe, config)
                )
            Walk(job, run, truth).go(until)
        return run

    def _rehearse(self) -> None:
        """One step of every stage on a few images, so that settings that do not fit fail now and not after hours."""
        labelled, unlabelled = np.flatnonzero(self.data.is_labelled), np.flatnonzero(~self.data.is_labelled)
        few = torch.from_numpy(np.concatenate([labelled[:3], unlabelled[:3]]))
        job = self._job
        net = job.new_net()
        for stage in job.stages:
            if stage.method is None:
                continue
            method = stage.method(job.task(self.n_new or 2))
            size = self.recipe.model.size
            method.check((size, size, self.data.channels) if size else self.data.images.shape[1:])
            with seeded(self.seed, stage.name):
                method.prepare(net)
            if not method.settings.epochs:
                continue
            net.freeze(method.settings.train_from)
            order = method.order(torch.from_numpy(self.data.labels), self.seed, stage.name, 0)
            self.mode.world.share_of(order.shape[1])
            index = order[0] if method.whole_batches else few
            part = DeviceImages(self.data.subset(index.numpy()), torch.device("cpu"), size=self.recipe.model.size)
            losses_of(method, net, part.batch(torch.arange(len(index))), torch.tensor(0), torch.tensor(1.0))
