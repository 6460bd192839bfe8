"""The stages in their order. A finished stage is read from the run folder, not run again."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from autonovel.chance import seeded
from autonovel.checks import check
from autonovel.data.images import ImageSet, Truth
from autonovel.data.loader import DeviceImages, Images, put_on
from autonovel.data.reading.problems import PROBLEM_FIELDS, Problem, as_rows
from autonovel.engine import Epoch, not_captured, train
from autonovel.errors import InputError
from autonovel.machine.device import Mode
from autonovel.maths.estimate import ClassEstimate
from autonovel.methods import Method, losses_of
from autonovel.methods.joint import joint_method
from autonovel.methods.pretrain import Prototypical, Rotation
from autonovel.methods.supervised import KnownClasses
from autonovel.models.consensus import Consensus
from autonovel.models.net import Net, build
from autonovel.predict import Answers, answer, answer_together
from autonovel.probes import estimate_from, plan_probes
from autonovel.progress import Reporter
from autonovel.recipes import Facts, fit_to_data
from autonovel.runs.answers import PREDICTION_FIELDS
from autonovel.runs.folder import Run, versions
from autonovel.runs.weights import StageCheckpoint
from autonovel.scoring import score
from autonovel.settings import Recipe, from_dict

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
    """

    data: ImageSet
    recipe: Recipe
    n_new: int | None
    seed: int = 0
    mode: Mode = field(default_factory=Mode.of)
    reporter: Reporter = field(default_factory=Reporter)
    problems: Sequence[Problem] = ()

    def __post_init__(self) -> None:
        facts = Facts(
            images=len(self.data),
            known_classes=self.data.n_known,
            new_classes=self.n_new,
            side=self.data.images.shape[1],
            channels=self.data.channels,
            gpu=self.mode.device.type == "cuda",
        )
        self.recipe, notes = fit_to_data(self.recipe, facts)
        for note in notes:
            self.reporter.message(note)
        check(self.data, self.recipe, self.n_new)
        self._rehearse()

    def run(
        self, run: Run, *, truth: Truth | None = None, start_from: Run | None = None, until: str | None = None
    ) -> Run:
        """Do what is not done yet, and score it if there is a truth.

        Args:
            run: the folder.
            truth: the true classes, for scoring alone.
            start_from: another run whose first stages serve for this one too, if data and settings of them are the same.
            until: stop after this stage ('pretrain', 'estimate', 'supervised'); the folder then serves as
                ``start_from`` or is gone on with later.
        """
        if truth is not None and len(truth.labels) != len(self.data):
            raise InputError(f"The truth has {len(truth.labels)} labels for {len(self.data)} images; give one each.")
        with run.claim(self._config()):
            if run.finished:
                self.reporter.message(
                    f"{run.path} is finished already; delete the folder or choose another one to run again."
                )
                return run
            run.write_rows("problems.csv", PROBLEM_FIELDS, as_rows(self.problems))
            if start_from is not None:
                self.mode.world.from_first(lambda: self._take_over(start_from, run))
            self._work(run, truth, until)
        return run

    def _work(self, run: Run, truth: Truth | None, until: str | None) -> None:
        started = time.perf_counter()
        images = put_on(self.mode.device, self.data, size=self.recipe.model.size)
        if not isinstance(images, DeviceImages):
            self.reporter.message("The images do not fit into the free memory and are streamed from disk.")
        unlabelled = np.flatnonzero(~self.data.is_labelled)
        net = self._empty_net().to(self.mode.device)
        sample = np.linspace(0, len(self.data) - 1, min(len(self.data), STATISTICS_FROM)).astype(np.int64)
        with not_captured(self.mode):
            net.set_statistics(images.chunks(sample))
        seconds: dict[str, float] = {}

        pretrain = self._pretrain()
        if pretrain is not None:
            seconds["pretrain"] = self._do_stage("pretrain", pretrain, net, images, run)
        if until == "pretrain":
            return
        estimate = None
        if self.n_new is None:
            estimate = self._estimate(run, net, images, seconds)
        if until == "estimate":
            return
        baseline = None
        if self.data.n_known:
            seconds["supervised"] = self._do_stage(
                "supervised", KnownClasses(self.recipe, self.data.n_known), net, images, run
            )
            if truth is not None:
                baseline = answer_together(net, images, self.mode, unlabelled).features
        if until == "supervised":
            return
        n_new = self.n_new if estimate is None else estimate.n_new
        assert n_new is not None
        if n_new < 2:
            raise InputError(
                "The pile looks like a single new class; to sort it all the same, give --n-new 2 or more, and another --out."
            )
        joint = joint_method(self.recipe, self.data.n_known, n_new)
        seconds["joint"] = self._do_stage("joint", joint, net, images, run)
        whole = self._together(net, n_new, images, run, seconds)
        found = answer_together(whole, images, self.mode, unlabelled)
        summary = self._summary(found, n_new, estimate) | {
            "seconds": seconds | {"total": time.perf_counter() - started}
        }
        if truth is not None:
            with not_captured(self.mode):
                summary |= score(self.data, truth, found, baseline, whole, self.recipe, self.mode, self.seed)
        self._write(run, found, summary)

    def _pretrain(self) -> Method | None:
        kinds: dict[str, Callable[..., Method]] = {"rotation": Rotation, "prototypical": Prototypical}
        settings = self.recipe.pretrain
        return kinds[settings.method](settings) if settings.method != "none" else None

    def _methods(self, n_new: int) -> list[tuple[str, Method]]:
        """The stages of a network in their order, with what each learns."""
        known = self.data.n_known
        stages = [
            ("pretrain", self._pretrain()),
            ("supervised", KnownClasses(self.recipe, known) if known else None),
            ("joint", joint_method(self.recipe, known, n_new)),
        ]
        return [(stage, method) for stage, method in stages if method is not None]

    def _together(self, net: Net, n_new: int, images: Images, run: Run, seconds: dict[str, float]) -> Net | Consensus:
        """The network, or it and the further ones that the recipe asks for as one."""
        if self.recipe.model.networks == 1:
            return net
        further = range(2, self.recipe.model.networks + 1)
        others = [self._another(number, net, n_new, images, run, seconds) for number in further]
        unlabelled = np.flatnonzero(~self.data.is_labelled)
        sample = unlabelled[:: -(-len(unlabelled) // MATCHED_BY)]
        with not_captured(self.mode):
            whole = Consensus.of([net, *others], images.chunks(sample), self.mode.precision_for(images.side))
        # several processes must agree, although a GPU may round a close decision either way
        whole.places.copy_(self.mode.world.from_first(whole.places.cpu))
        run.write_tensors("consensus.safetensors", {"places": whole.places})
        return whole

    def _another(self, number: int, first: Net, n_new: int, images: Images, run: Run, seconds: dict[str, float]) -> Net:
        """Train a further network through all stages, from first weights of its own."""
        net = self._empty_net(number).to(self.mode.device)
        net.mean.copy_(first.mean)
        net.std.copy_(first.std)
        for stage, method in self._methods(n_new):
            seconds[stage] += self._do_stage(_numbered(stage, number), method, net, images, run)
        return net

    def _do_stage(self, stage: str, method: Method, net: Net, images: Images, run: Run) -> float:
        """Train a stage, or read what it left; returns its seconds."""
        if "pretext" in net.heads:
            del net.heads["pretext"]
        with seeded(self.seed, stage):
            method.prepare(net)
        net.to(self.mode.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        file = f"{stage}.safetensors"
        if run.has(file):
            state, metadata = run.read_tensors(file)
            net.load_state_dict(state)
            return float(metadata["seconds"])
        if isinstance(method, Prototypical):
            # what a class looks like is learned later from classes that this stage does not see
            images = images.relabelled(plan_probes(self.data, self.recipe, self.seed).train_labels)
        checkpoint = StageCheckpoint(run, stage)
        kept = checkpoint.load()
        done = 0 if kept is None else kept[1]
        run.forget_metrics(stage, done)
        before = sum(m["seconds"] for m in run.metrics if m["stage"] == stage)
        started = time.perf_counter()
        self.reporter.start(stage, method.settings.epochs, done)

        def on_epoch(epoch: Epoch) -> None:
            entry = {"stage": stage, "epoch": epoch.number, "lr": epoch.lr, "seconds": round(epoch.seconds, 4)}
            run.append_metrics(entry | {"losses": epoch.losses})
            self.reporter.epoch(epoch.number, epoch.losses, epoch.seconds)

        try:
            train(
                net,
                method,
                images,
                self.mode,
                key=(self.seed, stage),
                checkpoint=checkpoint,
                on_epoch=on_epoch,
                on_message=self.reporter.message,
            )
        finally:
            self.reporter.finish()
        if "new" in net.heads:
            # the head with the lowest loss in the last epoch answers; with one head there is no choice
            last = [m for m in run.metrics if m["stage"] == stage][-1]["losses"]
            net.answering_head.fill_(int(np.argmin(last.get("new", 0.0))))
        seconds = before + time.perf_counter() - started
        run.write_tensors(file, net.state_dict(), {"seconds": str(seconds)})
        checkpoint.clear()
        return float(seconds)

    def _estimate(self, run: Run, net: Net, images: Images, seconds: dict[str, float]) -> ClassEstimate:
        """The number of new classes, from features that have not seen the probe classes."""
        if run.has("estimate.json"):
            known, seconds["estimate"] = read_estimate(run)
            return known
        spent = 0.0
        plan = plan_probes(self.data, self.recipe, self.seed)
        source = net
        if plan.trains:
            source = self._empty_net().to(self.mode.device)
            source.load_state_dict({k: v for k, v in net.state_dict().items() if not k.startswith("heads.")})
            method = KnownClasses(self.recipe, plan.n_train)
            spent = self._do_stage("supervised-probe", method, source, images.relabelled(plan.train_labels), run)
        started = time.perf_counter()
        places = np.concatenate([plan.probe_places, np.flatnonzero(~self.data.is_labelled)])
        features = answer_together(source, images, self.mode, places).features
        with not_captured(self.mode):
            found = estimate_from(features, plan, self.data, self.recipe.estimate, self.seed, self.mode.device)
        # several processes must agree, although a GPU may round a close decision either way
        estimate = self.mode.world.from_first(lambda: found)
        seconds["estimate"] = spent + time.perf_counter() - started
        run.write_json("estimate.json", _plain(asdict(estimate)) | {"seconds": seconds["estimate"]})
        low, high = estimate.interval
        self.reporter.message(f"estimate ({estimate.method}): {estimate.n_new} new classes, between {low} and {high}")
        return estimate

    def _empty_net(self, number: int = 1) -> Net:
        size = self.recipe.model.size or self.data.images.shape[1]
        with seeded(self.seed, _numbered("backbone", number)):
            return build(self.recipe.model, channels=self.data.channels, size=size)

    def _rehearse(self) -> None:
        """One step of every stage on a few images, so that settings that do not fit fail now and not after hours."""
        few = np.concatenate([np.flatnonzero(self.data.is_labelled)[:3], np.flatnonzero(~self.data.is_labelled)[:3]])
        images = DeviceImages(self.data.subset(few), torch.device("cpu"), size=self.recipe.model.size)
        net = self._empty_net()
        for stage, method in self._methods(self.n_new or 2):
            with seeded(self.seed, stage):
                method.prepare(net)
            net.freeze(method.settings.train_from)
            order = method.order(torch.from_numpy(self.data.labels), self.seed, stage, 0)
            self.mode.world.share_of(order.shape[1])
            if not isinstance(method, Prototypical):  # whose batches are episodes; its order was made just now
                losses_of(method, net, images.batch(torch.arange(len(few))), torch.tensor(0), torch.tensor(1.0))

    def _config(self) -> dict[str, Any]:
        data = self.data
        return {
            "run": {
                "recipe": self.recipe.to_dict(),
                "n_new": "auto" if self.n_new is None else self.n_new,
                "seed": self.seed,
                "data": {
                    "images": len(data),
                    "shape": list(data.images.shape[1:]),
                    "class_names": list(data.class_names),
                    "fingerprint": _fingerprint(data, np.arange(len(data))),
                    "pixels": _fingerprint(data, np.arange(len(data)), labels=False),
                    "labelled": _fingerprint(data, np.flatnonzero(data.is_labelled)),
                },
            },
            "versions": versions(),
        }

    def _take_over(self, source: Run, run: Run) -> None:
        """Copy the finished first stages of another run that has the same settings and the same data for them.

        Rotation looks at all images and no label; the other first stages look at the labelled images alone.
        """
        mine, theirs = self._config()["run"], source.config["run"]
        other = from_dict(Recipe, theirs["recipe"])
        alike = {part: mine["data"][part] == theirs["data"].get(part) for part in ("pixels", "labelled")}
        method = self.recipe.pretrain.method
        first, which = ("pixels", "images") if method == "rotation" else ("labelled", "labelled images")
        if not alike[first]:
            raise InputError(f"The run in {source.path} has other {which}; its first stages cannot be used here.")
        same = method != "prototypical" or np.array_equal(
            plan_probes(self.data, self.recipe, self.seed).train_labels,
            plan_probes(self.data, other, theirs["seed"]).train_labels,
        )
        for stage, settings, data in (
            ("pretrain", ("model", "pretrain"), first),
            ("supervised", ("supervised",), "labelled"),
        ):
            same = same and alike[data] and all(getattr(self.recipe, name) == getattr(other, name) for name in settings)
            if stage == "supervised" and self.recipe.model.head == "cosine":  # its scores have the temperature in them
                same = same and self.recipe.joint.swap.temperature == other.joint.swap.temperature
            for number in range(1, self.recipe.model.networks + 1):
                file = f"{_numbered(stage, number)}.safetensors"
                if same and source.has(file) and not (run.path / file).exists():
                    shutil.copyfile(source.path / file, run.path / f".{file}.part")
                    (run.path / f".{file}.part").replace(run.path / file)

    def _summary(self, found: Answers, n_new: int, estimate: ClassEstimate | None) -> dict[str, Any]:
        assert found.new is not None
        known = int(self.data.is_labelled.sum())
        return {
            "n_known": self.data.n_known,
            "n_new": n_new,
            "n_new_estimated": None if estimate is None else estimate.n_new,
            "n_new_interval": None if estimate is None else list(estimate.interval),
            "images": {"known": known, "unlabelled": len(self.data) - known},
            "cluster_sizes": np.bincount(found.new.argmax(1).numpy(), minlength=n_new).tolist(),
            "device": describe_device(self.mode, self.recipe.model.size or self.data.images.shape[1]),
            "seed": self.seed,
            "recipe": self.recipe.name,
            "preset": self.recipe.preset,
        }

    def _write(self, run: Run, found: Answers, summary: dict[str, Any]) -> None:
        assert found.new is not None
        chance, cluster = found.new.max(1)
        ids = [self.data.ids[i] for i in np.flatnonzero(~self.data.is_labelled).tolist()]
        rows = [
            (name, c, f"new {c}", f"{p:.4f}", 0)
            for name, c, p in zip(ids, cluster.tolist(), chance.tolist(), strict=True)
        ]
        run.write_rows("predictions.csv", PREDICTION_FIELDS, rows)
        run.write_array("features.npy", found.features.numpy().astype(np.float16))
        if not run.has("names.json"):
            run.write_json("names.json", {})
        run.write_json("summary.json", _plain(summary))  # last: its presence says that all is there


def read_estimate(run: Run) -> tuple[ClassEstimate, float]:
    """What estimate.json holds: the estimate, and how many seconds it took."""
    found = run.read_json("estimate.json")
    seconds = float(found.pop("seconds", 0.0))  # folders of earlier versions do not say
    return ClassEstimate(**found), seconds


def restore(run: Run, mode: Mode) -> tuple[Net | Consensus, Recipe]:
    """The trained network of a finished run, or its networks as one."""
    settings = run.config["run"]
    recipe = from_dict(Recipe, settings["recipe"])
    height, _, channels = settings["data"]["shape"]
    n_known, n_new = len(settings["data"]["class_names"]), run.summary["n_new"]
    nets = []
    for number in range(1, recipe.model.networks + 1):
        net = build(recipe.model, channels=channels, size=recipe.model.size or height)
        if n_known:
            KnownClasses(recipe, n_known).prepare(net)
        joint_method(recipe, n_known, n_new).prepare(net)
        net.load_state_dict(run.read_tensors(f"{_numbered('joint', number)}.safetensors")[0])
        nets.append(net)
    whole: Net | Consensus = nets[0]
    if len(nets) > 1:
        whole = Consensus(nets, run.read_tensors("consensus.safetensors")[0]["places"])
    return whole.to(mode.device, memory_format=torch.channels_last).eval(), recipe  # type: ignore[call-overload]


def look_at(net: Net | Consensus, recipe: Recipe, images: ImageSet, mode: Mode) -> Answers:
    """The network's answers for images of any size."""
    return answer(net, put_on(mode.device, images, size=recipe.model.size).chunks(), mode)


def describe_device(mode: Mode, side: int) -> str:
    """The device in words, for images with this side."""
    many = f"{mode.world.size} processes, each " if mode.world.several else ""
    if mode.device.type == "cuda":
        return f"{many}cuda: {torch.cuda.get_device_name(mode.device)}"
    precision = str(mode.precision_for(side)).removeprefix("torch.")
    return f"{many}cpu: {torch.get_num_threads()} threads, {precision}"


def _fingerprint(data: ImageSet, places: npt.NDArray[np.int64], *, labels: bool = True) -> str:
    """A short text that differs where the shape, (some of) the pixels or the labels at these places differ."""
    sample = places[np.linspace(0, len(places) - 1, min(len(places), 2000)).astype(np.int64)]
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((len(places), *data.images.shape[1:])).encode())
    digest.update(np.ascontiguousarray(data.images[sample]).tobytes())
    if labels:
        digest.update(repr(data.class_names).encode())
        digest.update(np.ascontiguousarray(data.labels[places]).tobytes())
    return digest.hexdigest()


def _numbered(name: str, number: int) -> str:
    """The name of a stage for the first, second, ... network: 'joint', 'joint-2', ..."""
    return name if number == 1 else f"{name}-{number}"


def _plain(value: Any) -> Any:
    """NaN, which JSON does not have, as null."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and value != value else value
