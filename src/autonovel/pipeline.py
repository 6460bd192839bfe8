"""Walks the plan of a run. A finished stage is read from the run folder, not run again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.chance import seeded
from autonovel.checks import check
from autonovel.data.images import NO_SOURCE, ImageSet, Truth
from autonovel.data.loader import DeviceImages, Images, put_on
from autonovel.data.reading.problems import PROBLEM_FIELDS, Problem, as_rows
from autonovel.engine import Epoch, train
from autonovel.errors import InputError, option
from autonovel.identity import config_of, take_over
from autonovel.machine.capture import not_captured
from autonovel.machine.device import Mode
from autonovel.maths.estimate import ClassEstimate
from autonovel.maths.known_space import components
from autonovel.maths.mixed import find_old
from autonovel.methods.base import Losses, Method, PileAnswer, Task, losses_of
from autonovel.models.consensus import Consensus
from autonovel.models.net import Net, build
from autonovel.probes import estimate_from, plan_probes
from autonovel.progress import Reporter
from autonovel.runs.answers import ImageRecord, Prediction
from autonovel.runs.folder import Run
from autonovel.runs.weights import StageCheckpoint
from autonovel.scoring import score
from autonovel.settings import Recipe
from autonovel.settle import Facts, is_pretrained, packaged_network, settle
from autonovel.stages import ESTIMATE, Stage, before_estimate, numbered, plan, seen_before_estimate
from autonovel.trained import Answers, Trained, answer_together
from autonovel.verdict import Verdict, judge_pile, read_pile_answer, write_pile_answer

STATISTICS_FROM = 20_000
"""Images whose pixels give the mean and standard deviation that inputs are normalised by."""

MATCHED_BY = 20_000
"""Images by which the clusters of several networks are matched."""


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
    """

    data: ImageSet
    recipe: Recipe
    n_new: int | None
    seed: int = 0
    mode: Mode = field(default_factory=Mode.of)
    reporter: Reporter = field(default_factory=Reporter)
    problems: Sequence[Problem] = ()
    cache: Path | None = None

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
        for note in notes:
            self.reporter.message(note)
        check(self.data, self.recipe, self.n_new)
        self.stages = plan(self.recipe, self.data.n_known)
        self._rehearse()

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
        with run.claim(config, {"recipe": Recipe().to_dict()}):
            if run.finished:
                self.reporter.message(
                    f"{run.path} is finished already; delete the folder or choose another one to run again."
                )
                return run
            run.write_rows("problems.csv", PROBLEM_FIELDS, as_rows(self.problems))
            if start_from is not None:
                self.mode.world.from_first(
                    lambda: take_over(start_from, run, self.stages, self.data, self.recipe, config)
                )
            _Walk(self, run, truth).go(until)
        return run

    def new_net(self, number: int = 1) -> Net:
        """The first, second, ... network with its first weights and without heads."""
        size = self.recipe.model.size or self.data.images.shape[1]
        with seeded(self.seed, numbered("backbone", number)):
            return build(self.recipe.model, channels=self.data.channels, size=size)

    def _rehearse(self) -> None:
        """One step of every stage on a few images, so that settings that do not fit fail now and not after hours."""
        labelled, unlabelled = np.flatnonzero(self.data.is_labelled), np.flatnonzero(~self.data.is_labelled)
        few = torch.from_numpy(np.concatenate([labelled[:3], unlabelled[:3]]))
        net = self.new_net()
        for stage in self.stages:
            if stage.method is None:
                continue
            method = stage.method(Task(self.recipe, self.data.n_known, self.n_new or 2, len(self.data)))
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


class _Walk:
    """The stages of one run, in their order, from where the folder stands."""

    def __init__(self, job: Pipeline, run: Run, truth: Truth | None) -> None:
        self.data, self.recipe, self.seed, self.mode = job.data, job.recipe, job.seed, job.mode
        self.stages, self.reporter, self.n_new = job.stages, job.reporter, job.n_new
        self.run, self.truth, self.new_net, self.cache = run, truth, job.new_net, job.cache
        self.given: PileAnswer | None = None
        self.seconds: dict[str, float] = {}
        self.estimate: ClassEstimate | None = None
        self.labelled, self.unlabelled = np.flatnonzero(self.data.is_labelled), np.flatnonzero(~self.data.is_labelled)
        self.images: Images = put_on(
            self.mode.device, self.data, size=self.recipe.model.size, sharers=self.mode.world.local_size
        )
        if not isinstance(self.images, DeviceImages):
            self.reporter.message("The images do not fit into the free memory and are streamed from disk.")

    def go(self, until: str | None) -> None:
        """Walk to the end, or to the end of a stage."""
        started = time.perf_counter()
        self.reporter.plan(self._planned(until))
        net = self._first_net()
        before: Tensor | None = None
        for stage in self.stages:
            if stage.method is None:
                self._estimate(net)
            else:
                if stage.method.needs_number:
                    self._check_number()
                    if self.truth is not None and self.data.n_known:
                        before = self._answers(net, self.unlabelled).features
                self._do(stage, net)
            if until == stage.name:
                return
        whole = self._together(net)
        found = self._answers(whole, self.unlabelled)
        known = self._answers(whole, self.labelled).features if len(self.labelled) else found.features[:0]
        labels = torch.from_numpy(self.data.labels[self.labelled])
        mixed = self._is_mixed(known, labels, found.features)
        verdict, judge, sure = judge_pile(found, self.given, known, labels, mixed=mixed)
        summary = self._summary(verdict) | {"how_sure": sure}
        if self.truth is not None:
            with not_captured(self.mode.device):
                trained = Trained(whole, self.mode, self.recipe.model.size, self.cache)
                summary |= score(self.data, self.truth, verdict.place, verdict.probability, before, trained, self.seed)
        self.run.write_array("features-labelled.npy", known.numpy().astype(np.float16))
        if self.mode.world.first:
            judge.write(self.run)
        self._write(found, verdict, summary | {"seconds": self.seconds | {"total": time.perf_counter() - started}})

    def _is_mixed(self, known: Tensor, labels: Tensor, pile: Tensor) -> bool:
        """Whether an answer may be a known class: as the recipe says, or as the features do; a method may have said so."""
        kind = self.recipe.pile
        if kind != "auto" or self.given is not None or not self.data.n_known:
            return kind != "new" and self.data.n_known > 0
        device = self.mode.device
        known, pile = components(known.to(device), pile.to(device))
        old = find_old(known, labels.to(device), pile, seed=self.seed)
        self.reporter.message(old.sentence())
        return old.mixed

    def _answers(self, net: Net | Consensus, index: npt.NDArray[np.int64]) -> Answers:
        return answer_together(net, self.images, self.mode, index, self.cache)

    def _planned(self, until: str | None) -> list[tuple[str, int]]:
        """What is to be trained, with the epochs of each stage; what the folder has already is not left out."""
        task = Task(self.recipe, self.data.n_known, self.n_new or 0)
        planned: list[tuple[str, int]] = []
        for number in range(1, self.recipe.model.networks + 1):
            for place, stage in enumerate(self.stages):
                if stage.method is not None:
                    planned.append((numbered(stage.name, number), stage.method(task).settings.epochs))
                elif number == 1 and self.n_new is None and self._probes().trains:
                    later = [s for s in self.stages[place:] if s.method is not None and s.method.sees == "labels"]
                    planned += [(f"{s.name}-probe", s.method(task).settings.epochs) for s in later if s.method]
                if until == stage.name:
                    return planned
        return planned

    def _first_net(self) -> Net:
        net = self.new_net().to(self.mode.device)
        sample = np.linspace(0, len(self.data) - 1, min(len(self.data), STATISTICS_FROM)).astype(np.int64)
        with not_captured(self.mode.device):
            net.set_statistics(self.images.chunks(sample))
        return net

    def _check_number(self) -> None:
        if self.n_new is not None and self.n_new < 2:
            raise InputError(
                f"The pile looks like a single new class; to sort it all the same, give {option('n_new')} 2 or more, "
                f"and another {option('out')}."
            )

    def _do(self, stage: Stage, net: Net, number: int = 1) -> None:
        """Train a stage of the first, second, ... network, or read what it left."""
        assert stage.method is not None
        method = stage.method(Task(self.recipe, self.data.n_known, self.n_new or 0, len(self.data)))
        images = self.images
        if method.sees == "labels" and stage in before_estimate(self.stages):
            # what a class looks like is learned later from classes that this stage does not see
            images = images.relabelled(self._probes().train_labels)
        seconds = self._train(numbered(stage.name, number), method, net, images)
        self.seconds[stage.name] = self.seconds.get(stage.name, 0.0) + seconds

    def _train(self, name: str, method: Method, net: Net, images: Images) -> float:
        """Train a network under the name of a stage, or read what it left; returns its seconds."""
        run, mode = self.run, self.mode
        net.drop_head("pretext")  # it served the stage that made it
        with seeded(self.seed, name):
            method.prepare(net)
        net.to(mode.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        file = f"{name}.safetensors"
        if run.has(file):
            state, metadata = run.read_tensors(file)
            net.load_state_dict(state)
            self.given = read_pile_answer(run, name)
            return float(metadata["seconds"])
        checkpoint, look = StageCheckpoint(run, name), _Look(net, images, mode, self.seed, self.cache)
        done = checkpoint.epochs_done
        run.forget_metrics(name, done)
        before = sum(m["seconds"] for m in run.metrics if m["stage"] == name)
        started = time.perf_counter()
        self.reporter.start(name, method.settings.epochs, done)

        def on_epoch(epoch: Epoch) -> None:
            entry = {"stage": name, "epoch": epoch.number, "lr": epoch.lr, "seconds": round(epoch.seconds, 4)}
            run.append_metrics(entry | {"losses": epoch.losses})
            self.reporter.epoch(epoch.number, epoch.losses, epoch.seconds)

        try:
            if method.settings.epochs:
                train(
                    net,
                    method,
                    images,
                    mode,
                    key=(self.seed, name),
                    checkpoint=checkpoint,
                    on_epoch=on_epoch,
                    on_message=self.reporter.message,
                    look=look,
                )
        finally:
            self.reporter.finish()
        last: Losses = next((m["losses"] for m in reversed(run.metrics) if m["stage"] == name), {})
        self.given = method.finish(net, look, last)
        if self.given is not None:
            for note in self.given.notes:
                self.reporter.message(note)
            write_pile_answer(run, name, self.given)
        seconds = before + time.perf_counter() - started
        run.write_tensors(file, net.state_dict(), {"seconds": str(seconds), "net": json.dumps(net.describe())})
        checkpoint.clear()
        return float(seconds)

    def _probes(self) -> Any:
        seen = "frozen" if is_pretrained(self.recipe.model.backbone) else seen_before_estimate(self.stages)
        return plan_probes(self.data, self.recipe.estimate, self.seed, seen)

    def _estimate(self, net: Net) -> None:
        """The number of new classes where it is not given, from features that have not seen the probe classes."""
        if self.n_new is not None:
            return
        if self.run.has("estimate.json"):
            self.estimate, self.seconds["estimate"] = read_estimate(self.run)
            self.n_new = self.estimate.n_new
            return
        probes, spent, source = self._probes(), 0.0, net
        if probes.trains:
            source = self.new_net().to(self.mode.device)
            source.load_state_dict({k: v for k, v in net.state_dict().items() if not k.startswith("heads.")})
            for stage in self.stages[self.stages.index(ESTIMATE) :]:
                if stage.method is not None and stage.method.sees == "labels":
                    method = stage.method(Task(self.recipe, probes.n_train, n_images=len(self.data)))
                    images = self.images.relabelled(probes.train_labels)
                    spent += self._train(f"{stage.name}-probe", method, source, images)
        started = time.perf_counter()
        index = np.concatenate([probes.index, self.unlabelled])
        features = self._answers(source, index).features
        with not_captured(self.mode.device):
            found = estimate_from(
                features, probes, self.data, self.recipe.estimate, self.seed, self.mode, self.recipe.pile
            )
        # several processes must agree, although a GPU may round a close decision either way
        self.estimate = estimate = self.mode.world.from_first(lambda: found)
        self.n_new = estimate.n_new
        self.seconds["estimate"] = spent + time.perf_counter() - started
        self.run.write_json("estimate.json", plain(asdict(estimate)) | {"seconds": self.seconds["estimate"]})
        self.reporter.message(f"estimate: {estimate}")

    def _together(self, net: Net) -> Net | Consensus:
        """The network, or it and the further ones that the recipe asks for as one."""
        if self.recipe.model.networks == 1:
            return net
        nets = [net]
        for number in range(2, self.recipe.model.networks + 1):
            another = self.new_net(number).to(self.mode.device)
            another.mean.copy_(net.mean)
            another.std.copy_(net.std)
            for stage in self.stages:
                if stage.method is not None:
                    self._do(stage, another, number)
            nets.append(another)
        self.given = None  # it is one network's, under that network's numbers
        sample = self.unlabelled[:: -(-len(self.unlabelled) // MATCHED_BY)]
        with not_captured(self.mode.device):
            whole = Consensus.of(nets, self.images.chunks(sample), self.mode.precision_for(self.images.side))
        # several processes must agree, although a GPU may round a close decision either way
        whole.numbering.copy_(self.mode.world.from_first(whole.numbering.cpu))
        self.run.write_tensors("consensus.safetensors", {"numbering": whole.numbering})
        return whole

    def _summary(self, verdict: Verdict) -> dict[str, Any]:
        n_known = self.data.n_known
        sizes = np.bincount(verdict.place, minlength=verdict.joint.shape[1]).tolist()
        labelled, estimate = int(self.data.is_labelled.sum()), self.estimate
        return {
            "n_known": self.data.n_known,
            "n_new": self.n_new,
            "n_new_estimated": None if estimate is None else estimate.n_new,
            "n_new_interval": None if estimate is None or estimate.interval is None else list(estimate.interval),
            "images": {"labelled": labelled, "unlabelled": len(self.data) - labelled},
            "cluster_sizes": sizes[n_known:],
            "known_sizes": sizes[:n_known],
            "unlike": int(verdict.unlike.sum()),
            "device": describe_device(self.mode, self.recipe.model.size or self.data.images.shape[1]),
            "seed": self.seed,
            "method": self.recipe.method,
            "recipe": self.recipe.name,
            "preset": self.recipe.preset,
            "answering_stage": self.stages[-1].name,
        }

    def _write(self, found: Answers, verdict: Verdict, summary: dict[str, Any]) -> None:
        run, data, n_known = self.run, self.data, self.data.n_known
        names = [*data.class_names, *(f"new {c}" for c in range(verdict.joint.shape[1] - n_known))]
        ids = [data.ids[i] for i in self.unlabelled.tolist()]
        rows = zip(ids, verdict.place.tolist(), verdict.probability.tolist(), strict=True)
        run.write_predictions(
            Prediction(image, None if c < n_known else c - n_known, names[c], p, c < n_known) for image, c, p in rows
        )
        run.write_array("probabilities.npy", verdict.joint.astype(np.float16))
        run.write_rows("unlike.csv", ("image",), [(ids[row],) for row in np.flatnonzero(verdict.unlike)])
        run.write_images(_records(data))
        run.write_array("features.npy", found.features.numpy().astype(np.float16))
        run.write_thumbnails(data.images)
        if not run.has("names.json"):
            run.write_json("names.json", {})
        run.write_json("summary.json", plain(summary))  # last: its presence says that all is there


def _records(data: ImageSet) -> Iterator[ImageRecord]:
    for i, image in enumerate(data.ids):
        label = None if data.labels[i] < 0 else data.class_names[data.labels[i]]
        source = data.sources[i] if data.sources else NO_SOURCE
        yield ImageRecord(image, source.absolute, source.relative, label)


class _Look:
    """What a method's hooks may ask of the images, under the network as it is when they ask."""

    def __init__(self, net: Net, images: Images, mode: Mode, seed: int, cache: Path | None) -> None:
        self._net, self._images, self._mode, self.seed, self._cache = net, images, mode, seed, cache

    @property
    def labels(self) -> Tensor:
        """Int64 (n,) on the CPU, -1 where unlabelled."""
        return self._images.labels.cpu()

    def features(self, index: Tensor) -> Tensor:
        """Features (m, d) of these images, in evaluation mode."""
        return answer_together(self._net, self._images, self._mode, index.numpy(), self._cache).features


def read_estimate(run: Run) -> tuple[ClassEstimate, float]:
    """What estimate.json holds: the estimate, and how many seconds it took."""
    found = run.read_json("estimate.json")
    seconds = float(found.pop("seconds", 0.0))  # folders of earlier versions do not say
    return ClassEstimate(**found), seconds


def describe_device(mode: Mode, side: int) -> str:
    """The device in words, for images with this side."""
    many = f"{mode.world.size} processes, each " if mode.world.several else ""
    if mode.device.type == "cuda":
        return f"{many}cuda: {torch.cuda.get_device_name(mode.device)}"
    precision = str(mode.precision_for(side)).removeprefix("torch.")
    return f"{many}cpu: {torch.get_num_threads()} threads, {precision}"


def plain(value: Any) -> Any:
    """NaN, which JSON does not have, as null."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and value != value else value
