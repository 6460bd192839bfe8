"""Goes through the plan of a run. A finished stage is read from the run folder, not run again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.answers import kmeans, space
from autonovel.answers.census import Census, take_census
from autonovel.answers.judge import Answers, Judged, judge_pile, read_judged, write_judged
from autonovel.answers.network import Trained, answer_together, said_by_heads, scores_of
from autonovel.base.chance import seeded
from autonovel.base.errors import InputError, kind_found, option
from autonovel.data.images import Truth
from autonovel.data.loader import DeviceImages, Images, put_on
from autonovel.discovery.finish import number_found, read_estimate, summarise, write_estimate, write_outcome
from autonovel.discovery.plan import ESTIMATE, Stage, before_estimate, plan, seen_before_estimate
from autonovel.discovery.prepare import Job
from autonovel.discovery.probes import estimate_from, plan_probes
from autonovel.discovery.score import score
from autonovel.discovery.trackers import tracked
from autonovel.machine.capture import not_captured
from autonovel.machine.processes import World
from autonovel.maths.cluster_graph import about_number
from autonovel.maths.count.result import ClassEstimate
from autonovel.methods.base import Losses, Method, Task
from autonovel.models.consensus import Consensus
from autonovel.models.imagenet import LIKELIEST, has_classifier, likeliest
from autonovel.models.net import Net, Scores
from autonovel.runs import likely
from autonovel.runs.folder import Run
from autonovel.runs.merging import MERGING
from autonovel.runs.weights import StageCheckpoint, fitting, numbered
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import describe_recipes
from autonovel.settings.resolve import is_pretrained, resolve
from autonovel.training.engine import Epoch, train

T = TypeVar("T")

STATISTICS_FROM = 20_000
"""Images whose pixels give the mean and standard deviation that inputs are normalised by."""

CHECKED = 10_000
"""In piles up to this size a number that was given is held against what the images look like; it takes as long again."""

MATCHED_BY = 20_000
"""Images by which the clusters of several networks are matched."""


def run_stages(job: Job, run: Run, truth: Truth | None, until: str | None = None) -> None:
    """Go through the stages of a run from where its folder stands, to the end or to the end of a stage."""
    log = job.log if job.mode.world.first else None
    with tracked(log, run.path, job.recipe.to_dict()) as track:
        _Stages(job, run, truth, track).go(until)


class _Stages:
    """The stages of one run, in their order, from where the folder stands."""

    def __init__(self, job: Job, run: Run, truth: Truth | None, track: Callable[[Mapping[str, Any]], None]) -> None:
        self.job, self.run, self.truth, self.n_new, self.track = job, run, truth, job.n_new, track
        self.data, self.recipe, self.stages = job.data, job.recipe, job.stages
        self.mode, self.reporter = job.mode, job.reporter
        self.seconds: dict[str, float] = {}
        self.estimate: ClassEstimate | None = None
        self.judged: Judged | None = None
        self.features: dict[str, Tensor] = {}
        """Of labelled images and pile, until the network learns on."""
        self.census: Census | None = None
        """Of these features."""
        self.labelled, self.unlabelled = np.flatnonzero(self.data.is_labelled), np.flatnonzero(~self.data.is_labelled)
        self.labels = torch.from_numpy(self.data.labels[self.labelled])
        self.images: Images = put_on(
            self.mode.device, self.data, size=self.recipe.model.size, sharers=self.mode.world.local_size
        )
        if not isinstance(self.images, DeviceImages):
            self.reporter.message("The images do not fit into the free memory and are streamed from disk.")

    def go(self, until: str | None) -> None:
        """Walk to the end, or to the end of a stage."""
        started = time.perf_counter()
        self.reporter.plan(self._planned(until, self.recipe), self._shorter(until))
        for name in ("log", "keep"):
            if getattr(self.job, name) and not self._last_trained:
                self.reporter.message(f"{option(name)} has no effect: nothing is trained here.")
        net = self._first_net()
        before: dict[str, Tensor] = {}
        for stage in self.stages:
            if stage == ESTIMATE:
                self._estimate(net)
            else:
                if stage.needs_number and self.truth is not None and self.data.n_known and not before:
                    learned = "joint" if "joint" in self.seconds else "supervised"
                    before[f"{learned}_features"] = self._pile(net)
                self._do(stage, net)
            if until == stage.name:
                return
            if stage == ESTIMATE:
                self._check_number()  # at once: what is trained before a refusal is trained for nothing
        whole = self._together(net)
        said: Scores | None = None
        if self.judged is None:
            said = self._said(whole)
            self.judged = judge_pile(said, self._known(whole), self.labels, mixed=self._is_mixed(whole))
        answers, judge, sure, *_ = self.judged
        summary = summarise(self.data, self.recipe, self.stages, self.job.seed, self.mode, answers)
        summary |= number_found(self.n_new, self.estimate) | {"how_sure": sure} | dict(self.job.remarks)
        if self.truth is not None:
            with not_captured(self.mode.device):
                trained = Trained(whole, self.mode, self.recipe.model.size, self.job.cache)
                summary |= score(
                    self.data, self.truth, answers.place, answers.probability, before, trained, self.job.seed
                )
        summary |= {} if said is None else self._about_number(whole, said, answers)
        known, pile = self._known(whole), self._pile(whole)
        self.run.write_features("features-labelled.npy", known.numpy())
        judge.write(self.run)
        self._write_likely(known, pile)
        summary["seconds"] = self.seconds | {"total": time.perf_counter() - started}
        write_outcome(self.run, self.data, pile, answers, summary)

    def _write_likely(self, known: Tensor, pile: Tensor) -> None:
        """Keep which classes of ImageNet the images may show, where the network is one of the packaged ones, untrained."""
        backbone = self.recipe.model.backbone
        if any(stage.method for stage in self.stages) or not has_classifier(backbone):
            return
        likeliest_rows = np.empty((len(self.data), LIKELIEST, 2), dtype=np.uint16)
        for rows, features in ((self.labelled, known), (self.unlabelled, pile)):
            likeliest_rows[rows] = likeliest(backbone, features)
        self.run.write_array(likely.FILE, likeliest_rows)

    def _about_number(self, whole: Net | Consensus, scores: Scores, answers: Answers) -> dict[str, Any]:
        """What the heads say about the number of new classes, kept in the folder; the part of it for the summary."""
        method = self.stages[-1].method
        rows = torch.from_numpy(answers.place >= self.data.n_known)
        if method is None or not method.doubts or scores.new is None or not rows.any():
            return {}
        with not_captured(self.mode.device):
            new, over = (
                [head[rows.to(head.device)] for head in said_by_heads(whole, kind, scores.features, self.mode)]
                for kind in ("new", "over")
            )
            numbering = whole.numbering.flatten(0, 1) if isinstance(whole, Consensus) else None
            said = about_number(scores.new[rows].softmax(1).to(self.mode.device), new, over, numbering)
        self.run.write_json(MERGING, said)
        return {"n_new_by_heads": said["n_new"]}

    def _is_mixed(self, net: Net | Consensus) -> bool:
        """Whether an answer may be a known class: as the recipe says or, if it leaves that open, as the features show."""
        if self.recipe.pile != "auto" or not self.data.n_known:
            return self.recipe.pile != "new" and self.data.n_known > 0
        census = self._take_census(net)
        for note in census.notes:
            self.reporter.message(note)
        return census.mixed

    def _take_census(self, net: Net | Consensus) -> Census:
        """What the pile is in the features of this network, asked once until it learns on."""
        if self.census is None:
            known, pile = self._known(net).to(self.mode.device), self._pile(net).to(self.mode.device)
            with not_captured(self.mode.device), self.reporter.working("comparing images"):
                self.census = take_census(known, self.labels, pile, kind=self.recipe.pile, seed=self.job.seed)
        return self.census

    def _forget(self) -> None:
        self.features.clear()
        self.census = None

    def _known(self, net: Net | Consensus) -> Tensor:
        """Features of the labelled images."""
        if "labelled" not in self.features:
            some = self._scores(net, self.labelled).features if len(self.labelled) else self._pile(net)[:0]
            self.features["labelled"] = some
        return self.features["labelled"]

    def _pile(self, net: Net | Consensus) -> Tensor:
        """Features of the unlabelled images."""
        if "pile" not in self.features:
            self.features["pile"] = self._scores(net, self.unlabelled).features
        return self.features["pile"]

    def _said(self, net: Net | Consensus) -> Scores:
        """What the network says of the unlabelled images."""
        if "pile" in self.features and isinstance(net, Net):
            return scores_of(net, self.features["pile"], self.mode)
        said = self._scores(net, self.unlabelled)
        self.features["pile"] = said.features
        return said

    def _scores(self, net: Net | Consensus, index: npt.NDArray[np.int64]) -> Scores:
        what = "looking at the images"
        with self.reporter.working(what):
            return answer_together(net, self.images, self.mode, index, self.job.cache, self.reporter.counter(what))

    def _planned(self, until: str | None, recipe: Recipe) -> list[tuple[str, int]]:
        """The stages that a recipe trains, with their epochs, including those that the folder has already."""
        task = self.job.task(self.n_new, recipe)
        stages = plan(recipe, self.data.n_known)
        planned: list[tuple[str, int]] = []
        for number in range(1, recipe.model.networks + 1):
            for place, stage in enumerate(stages):
                if stage != ESTIMATE:
                    epochs = 0 if stage.method is None else stage.method(task).settings.epochs
                    planned.append((numbered(stage.name, number), epochs))
                elif number == 1 and self.n_new is None and self._probes().trains:
                    later = [s for s in stages[place:] if s.method is not None and s.method.sees == "labels"]
                    planned += [(f"{s.name}-probe", s.method(task).settings.epochs) for s in later if s.method]
                if until == stage.name:
                    return planned
        return planned

    def _shorter(self, until: str | None) -> tuple[str, list[tuple[str, int]]] | None:
        """What to type for a recipe that takes less time, where there is one, and the stages that it trains."""
        asked, facts = self.job.resolved.asked, self.job.resolved.facts
        if asked.values or asked.preset == "fast" or asked.recipe not in describe_recipes():
            return None
        fast = self._planned(until, resolve(asked.in_preset("fast"), facts).recipe)
        return None if fast == self._planned(until, self.recipe) else (option("preset", "fast"), fast)

    def _first_net(self) -> Net:
        net = self.job.new_net().to(self.mode.device)
        sample = np.linspace(0, len(self.data) - 1, min(len(self.data), STATISTICS_FROM)).astype(np.int64)
        with not_captured(self.mode.device):
            net.set_statistics(self.images.chunks(sample))
        return net

    def _check_number(self) -> None:
        if self.n_new is not None and self.n_new < 2:
            what, flag = kind_found(self.data.n_known, 1), "n_new" if self.data.n_known else "k"
            before = self.job.remarks.get("continued_from")
            done = f"name it in {before['run']} and sort further images with autonovel predict; " if before else ""
            raise InputError(
                f"The pile looks like a single {what}; {done}to sort it all the same, give {option(flag)} 2 or more, "
                f"and another {option('out')}."
            )

    def _do(self, stage: Stage, net: Net, number: int = 1) -> None:
        """Train or fill a stage of the first, second, ... network, or read what it left."""
        name = numbered(stage.name, number)
        if stage.method is None:
            self.seconds[stage.name] = self.seconds.get(stage.name, 0.0) + self._fill(name, stage, net)
            return
        task, images = self.job.task(self.n_new), self.images
        if stage in before_estimate(self.stages) and stage.method.sees != "images" and self.n_new is None:
            # the estimate learns what a class looks like from classes that this stage does not see
            probes = self._probes()
            task, images = replace(task, families=probes.train_families), images.relabelled(probes.train_labels)
        method = stage.method(task)
        seconds = self._train(name, method, net, images)
        self.seconds[stage.name] = self.seconds.get(stage.name, 0.0) + seconds

    def _train(self, name: str, method: Method, net: Net, images: Images) -> float:
        """Train a network under the name of a stage, or read what it left; returns its seconds."""
        run, mode = self.run, self.mode
        net.drop_head("pretext")  # it served the stage that made it
        with seeded(self.job.seed, name):
            method.prepare(net)
        net.to(mode.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        file = f"{name}.safetensors"
        if run.has(file):
            self._track(name)
            self._forget()
            state, metadata = run.read_tensors(file)
            with fitting(run, file):
                net.load_state_dict(state)
                return float(metadata["seconds"])
        checkpoint, look = StageCheckpoint(run, name), Features(net, images, self.job)
        done = checkpoint.epochs_done
        run.forget_metrics(name, done)
        self._track(name)
        before = sum(m["seconds"] for m in run.metrics if m["stage"] == name)
        started = time.perf_counter()
        self.reporter.start(name, method.settings.epochs, done)

        def on_epoch(epoch: Epoch) -> None:
            entry = {"stage": name, "epoch": epoch.number, "lr": epoch.lr, "seconds": round(epoch.seconds, 4)}
            entry["losses"] = epoch.losses
            run.append_metrics(entry)
            self.track(entry)
            if name == self._last_trained:
                self._keep(net, epoch.number + 1)
            self.reporter.epoch(epoch.number, epoch.losses, epoch.seconds)

        try:
            if method.settings.epochs:
                if name == self._last_trained and not done:
                    self._keep(net, 0)
                train(
                    net,
                    method,
                    images,
                    mode,
                    key=(self.job.seed, name),
                    checkpoint=checkpoint,
                    on_epoch=on_epoch,
                    on_message=self.reporter.message,
                    on_step=self.reporter.step,
                    look=look,
                )
        finally:
            self.reporter.finish()
        last: Losses = next((m["losses"] for m in reversed(run.metrics) if m["stage"] == name), {})
        method.finish(net, look, last)
        if method.settings.epochs:
            self._forget()
        seconds = before + time.perf_counter() - started
        self._write(name, net, seconds)
        checkpoint.clear()
        return float(seconds)

    def _track(self, name: str) -> None:
        """Hand on the epochs of a stage that are over already."""
        for entry in self.run.metrics:
            if entry["stage"] == name:
                self.track(entry)

    @property
    def _last_trained(self) -> str:
        """The name of the last stage that takes steps."""
        task = self.job.task(self.n_new)
        trained = [s.name for s in self.stages if s.method is not None and s.method(task).settings.epochs]
        return trained[-1] if trained else ""

    def _keep(self, net: Net, epochs: int) -> None:
        """Keep features and clusters of the pile as they are after some epochs, for figures; training goes on unchanged."""
        if epochs in self.job.keep:
            scores = self._scores(net, self.unlabelled)
            clusters = {} if scores.new is None else {"clusters": scores.new.argmax(1)}
            self.run.write_tensors(f"kept-{epochs:04d}.safetensors", {"features": scores.features.half(), **clusters})

    def _write(self, name: str, net: Net, seconds: float) -> None:
        _same_everywhere(net, self.mode.world)
        metadata = {"seconds": str(seconds), "net": json.dumps(net.describe())}
        self.run.write_tensors(f"{name}.safetensors", net.state_dict(), metadata)

    def _fill(self, name: str, stage: Stage, net: Net) -> float:
        """Fill the heads that answer, without a step, or read what was left of that; returns its seconds."""
        run, n_known, n_new = self.run, self.data.n_known, self.n_new or 0
        in_space = stage.fill == "space"
        net.drop_head("pretext")
        (space if in_space else kmeans).add_heads(net, n_known, n_new)
        net.to(self.mode.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if run.has(f"{name}.safetensors"):
            state, metadata = run.read_tensors(f"{name}.safetensors")
            net.load_state_dict(state)
            self.judged = read_judged(run, name)
            return float(metadata["seconds"])
        started = time.perf_counter()
        self.reporter.start(name, 0, 0)
        self.reporter.finish()
        with not_captured(self.mode.device), torch.no_grad():
            if in_space:
                census, given = self._take_census(net), self.job.n_new is not None
                if given and len(self.unlabelled) <= CHECKED:
                    census = census.counted(self.recipe.estimate.max_new, self.job.seed)
                with self.reporter.working("grouping images"):
                    self.judged = space.answer_in_space(census, n_new, trained=not net.identity, seed=self.job.seed)
                space.fill_heads(net, self.judged)
            else:
                kmeans.fill_heads(net, self._known(net), self.labels, self._pile(net), n_new, self.job.seed)
        if self.judged is not None:
            for note in self.judged.notes:
                self.reporter.message(note)
            write_judged(run, name, self.judged)
        seconds = time.perf_counter() - started
        self._write(name, net, seconds)
        return seconds

    def _probes(self) -> Any:
        seen = "frozen" if is_pretrained(self.recipe.model.backbone) else seen_before_estimate(self.stages)
        return plan_probes(self.data, self.recipe.estimate, self.job.seed, seen)

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
            source = self.job.new_net().to(self.mode.device)
            source.load_state_dict({k: v for k, v in net.state_dict().items() if not k.startswith("heads.")})
            for stage in self.stages[self.stages.index(ESTIMATE) :]:
                if stage.method is not None and stage.method.sees == "labels":
                    task = Task(self.recipe, probes.n_train, 0, len(self.data), probes.train_families)
                    method = stage.method(task)
                    images = self.images.relabelled(probes.train_labels)
                    spent += self._train(f"{stage.name}-probe", method, source, images)
        started = time.perf_counter()
        if self.recipe.estimate.method == "judges" and len(probes.index) == len(self.labelled):
            census = self._take_census(source)  # which holds for the answers too, unless the network learns on
            with not_captured(self.mode.device), self.reporter.working("counting classes"):
                counted = census.counted(self.recipe.estimate.max_new, self.job.seed).estimate
        else:
            index = np.concatenate([probes.index, self.unlabelled])
            features = self._scores(source, index).features
            with not_captured(self.mode.device), self.reporter.working("counting classes"):
                counted = estimate_from(features, probes, self.data, self.recipe.estimate, self.job.seed, self.mode)
        assert counted is not None
        # several processes must agree, although a GPU may round a close decision either way
        self.estimate = estimate = self.mode.world.from_first(lambda: counted)
        self.n_new = estimate.n_new
        self.seconds["estimate"] = spent + time.perf_counter() - started
        write_estimate(self.run, estimate, self.seconds["estimate"])
        self.reporter.message(f"estimated: {estimate}")

    def _together(self, net: Net) -> Net | Consensus:
        """The network, or it and the further ones that the recipe asks for as one."""
        if self.recipe.model.networks == 1:
            return net
        nets = [net]
        for number in range(2, self.recipe.model.networks + 1):
            another = self.job.new_net(number).to(self.mode.device)
            another.mean.copy_(net.mean)
            another.std.copy_(net.std)
            self._forget()
            for stage in self.stages:
                if stage != ESTIMATE:
                    self._do(stage, another, number)
            nets.append(another)
        self._forget()
        self.judged = None  # it is one network's, under that network's numbers
        sample = self.unlabelled[:: -(-len(self.unlabelled) // MATCHED_BY)]
        with not_captured(self.mode.device):
            whole = Consensus.of(nets, self.images.chunks(sample), self.mode.precision_for(self.images.side))
        # several processes must agree, although a GPU may round a close decision either way
        whole.numbering.copy_(self.mode.world.from_first(whole.numbering.cpu))
        self.run.write_tensors("consensus.safetensors", {"numbering": whole.numbering})
        return whole


def _same_everywhere(net: Net, world: World) -> None:
    """Have all processes answer with what the first has chosen: close decisions may fall differently on each."""
    if world.several:
        buffers = dict(net.named_buffers())
        for name, value in world.from_first(lambda: {n: b.cpu() for n, b in buffers.items()}).items():
            buffers[name].copy_(value)


class Features:
    """The images as a method's hooks see them: labels, and features of the network as it is at that moment."""

    def __init__(self, net: Net, images: Images, job: Job) -> None:
        self._net, self._images, self._job, self.seed = net, images, job, job.seed

    @property
    def labels(self) -> Tensor:
        """Int64 (n,) on the CPU, -1 where unlabelled."""
        return self._images.labels.cpu()

    def features(self, index: Tensor) -> Tensor:
        """Features (m, d) of these images, in evaluation mode."""
        job, tell = self._job, self._job.reporter.counter("looking at the images")
        return answer_together(self._net, self._images, job.mode, index.numpy(), job.cache, tell).features

    def agreed(self, decide: Callable[[], T]) -> T:
        """What the first process decides, for all of them."""
        return self._job.mode.world.from_first(decide)
