"""One discovery: everything is decided and tried on a few images before the long work begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from autonovel.base.chance import seeded
from autonovel.base.errors import InputError, option
from autonovel.data.images import Truth
from autonovel.data.loader import DeviceImages
from autonovel.data.reading.problems import PROBLEM_FIELDS, Problem, as_rows
from autonovel.discovery.checks import check_distinct, check_images, check_settings
from autonovel.discovery.finish import finished_already
from autonovel.discovery.job import Job
from autonovel.discovery.resume import config_of, take_over
from autonovel.discovery.run_stages import Walk
from autonovel.maths.mirror import look_mirrored
from autonovel.methods.base import losses_of
from autonovel.runs.folder import Run
from autonovel.settings.recipe import Recipe
from autonovel.settings.resolve import Facts, packaged_network, settle, without_mirrors

MIRRORED = 3000
"""Labelled images that decide whether views are mirrored."""


@dataclass
class Pipeline(Job):
    """One discovery, from images to a finished run folder: a job that is decided, checked and rehearsed when it is made.

    Attributes:
        problems: files that were left out or are remarkable; listed in the folder before any work.
    """

    problems: Sequence[Problem] = ()

    def __post_init__(self) -> None:
        check_images(self.data, self.n_new)
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
        check_settings(self.data, self.recipe)
        self._rehearse()
        check_distinct(self.data, self.n_new)  # last, because it looks at the pixels

    def _choose_mirror(self) -> None:
        """Switch mirrored views off where the labelled images say so."""
        labelled = np.flatnonzero(self.data.is_labelled)
        if self.recipe.mirror != "auto" or self.data.n_known < 2 or not self.trains:
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
        config = config_of(self.data, self.recipe, self.n_new, self.seed)
        # stages that took hours serve another run (start_from), whatever the input turns out to be
        trained = [f"{stage.name}.safetensors" for stage in self.stages]
        with run.claim(config, {"recipe": Recipe().to_dict()}, trained):
            if run.finished:
                self.reporter.message(finished_already(run))
                return run
            run.write_rows("problems.csv", PROBLEM_FIELDS, as_rows(self.problems))
            if start_from is not None:
                self.mode.world.from_first(
                    lambda: take_over(start_from, run, self.stages, self.data, self.recipe, config)
                )
            Walk(self, run, truth).go(until)
        return run

    def _rehearse(self) -> None:
        """One step of every stage on a few images, so that settings that do not fit fail now and not after hours."""
        labelled, unlabelled = np.flatnonzero(self.data.is_labelled), np.flatnonzero(~self.data.is_labelled)
        few = torch.from_numpy(np.concatenate([labelled[:3], unlabelled[:3]]))
        net = self.new_net()
        for stage in self.stages:
            if stage.method is None:
                continue
            method = stage.method(self.task(self.n_new or 2))
            size = self.recipe.model.size
            method.check((size, size, self.data.channels) if size else self.data.images.shape[1:])
            with seeded(self.seed, stage.name):
                method.prepare(net)
            if not method.settings.epochs:
                continue
            net.freeze(method.settings.train_from)
            order = method.order(torch.from_numpy(self.data.labels), self.seed, stage.name, 0)
            index = order[0] if method.whole_batches else few
            part = DeviceImages(self.data.subset(index.numpy()), torch.device("cpu"), size=self.recipe.model.size)
            losses_of(method, net, part.batch(torch.arange(len(index))), torch.tensor(0), torch.tensor(1.0))
