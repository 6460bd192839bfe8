"""How many new classes are there among the unlabelled points?

Three answers. `paper` is Algorithm 1: anchored k-means over probe classes (known classes that training has not seen)
and unlabelled points, swept over the number of new classes; two indices choose. `calibrated` cuts a tree over the
unlabelled points where a cut gives the right answer on probe classes. `silhouette` needs no labels at all.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from autonovel.errors import AutonovelWarning, InputError
from autonovel.machine.processes import Jobs, current
from autonovel.maths.calibrate import Calibration, KnownProblem, Portrait, draw_problem, portray
from autonovel.maths.kmeans import check_features, kmeans
from autonovel.maths.metrics import cluster_accuracy
from autonovel.maths.silhouette import silhouette
from autonovel.maths.sweep import Sweep
from autonovel.settings import Estimate

Method: TypeAlias = Literal["calibrated", "paper", "silhouette"]
Features: TypeAlias = Tensor | ArrayLike


@dataclass(frozen=True)
class ClassEstimate:
    """An estimate with what it rests on."""

    n_new: int
    """Number of new classes."""
    interval: tuple[int, int]
    """`calibrated`: a range that is to hold the true number with the probability asked for, by the errors made on known
    classes. `paper` and `silhouette`: the range of the answers over the splits."""
    curve: dict[str, list[float]]
    """What was looked at, as lists of one length, ready to draw. `paper` and `silhouette`: `k`, `accuracy` (of the
    validation probes; absent for `silhouette`) and `silhouette`, means over the splits, NaN where not looked at.
    `calibrated`: `k`, the `height` at which the tree falls apart into k clusters, and the `threshold` of the cut."""
    method: Method
    """The estimator that answered, which is `silhouette` where there were too few probe classes."""
    answers: list[int] = field(default_factory=list)
    """The answer of each split; `calibrated`: with each group of known classes left out in turn."""


def estimate_classes(
    probe_features: Features,
    probe_labels: Features,
    unlabelled_features: Features,
    *,
    max_new: int = 100,
    method: Method = "calibrated",
    settings: Estimate | None = None,
    seed: int = 0,
    probe_groups: Features | None = None,
) -> ClassEstimate:
    """Estimate the number of classes among `unlabelled_features` (n, d).

    `probe_features` (p, d) with `probe_labels` (p,) are points of known classes that did not train the features.
    `probe_groups` (p,) may say which family each probe point belongs to (the alphabet of a character, say): each
    family is then a probe set of its own. Without it, probe sets are drawn from the classes at random.

    >>> generator = torch.Generator().manual_seed(0)
    >>> centres = 9 * torch.randn(13, 8, generator=generator)
    >>> classes = torch.arange(13).repeat_interleave(30)
    >>> points = centres[classes] + torch.randn(13 * 30, 8, generator=generator)
    >>> known = classes < 8
    >>> estimate_classes(points[known], classes[known], points[~known], max_new=20, method="silhouette").n_new
    5
    """
    settings = Estimate() if settings is None else settings
    pile = _as_features(unlabelled_features, "Unlabelled features")
    if method not in ("calibrated", "paper", "silhouette"):
        raise InputError(f"There is no estimator {method!r}; choose calibrated, paper or silhouette.")
    if max_new < 2:
        raise InputError(f"The largest number of new classes to consider must be at least 2, not {max_new}.")
    if len(pile) < 3:
        raise InputError(f"{len(pile)} unlabelled points are too few to look for classes; give at least 3.")
    if method == "silhouette":
        return _by_silhouette(pile, max_new, settings, seed)
    probes = probe_sets(probe_features, probe_labels, probe_groups, pile)
    usable = [probe for probe in probes if probe.n_classes >= MIN_PROBE_CLASSES]
    if not usable:
        most = max((probe.n_classes for probe in probes), default=0)
        warnings.warn(
            f"{most} probe classes are too few to estimate the number of new classes with, so the silhouette alone "
            f"decides; hold at least {MIN_PROBE_CLASSES} known classes out of training.",
            AutonovelWarning,
            stacklevel=2,
        )
        return _by_silhouette(pile, max_new, settings, seed)
    if method == "paper":
        return _by_paper(usable, pile, max_new, settings, seed)
    return _by_calibration(usable, pile, max_new, settings, seed, grouped=probe_groups is not None)


MIN_PROBE_CLASSES = 4
"""Two anchors and two classes to check them with."""


@dataclass(frozen=True)
class ProbeSet:
    """Points of one family of known classes."""

    features: Tensor
    labels: Tensor
    """int64, 0 .. n_classes - 1"""
    n_classes: int


# ---------------------------------------------------------------------------------------------- Algorithm 1


def _by_paper(probes: list[ProbeSet], pile: Tensor, max_new: int, settings: Estimate, seed: int) -> ClassEstimate:
    """Algorithm 1 once for each split; families of probes take turns."""
    generator = torch.Generator().manual_seed(seed)
    ks = range(max_new + 1)
    answers: list[int] = []
    seen: dict[str, list[list[float]]] = {name: [[] for _ in ks] for name in INDICES}
    jobs = Jobs[tuple[int, dict[str, dict[int, float]]]](current())
    for i in range(max(settings.splits, len(probes))):
        jobs.do(_PaperSplit(probes[i % len(probes)], pile, settings, generator, seed + i).answer, max_new)
    for answer, indices in jobs.results():
        answers.append(answer)
        for name, by_k in indices.items():
            for k, value in by_k.items():
                seen[name][k].append(value)
    n_new = max(1, _round(sum(answers) / len(answers), settings.rounding))
    curve = {"k": [float(k) for k in ks]}
    for name, values in seen.items():
        curve[name] = [float(np.nanmean(v)) if v and not np.isnan(v).all() else math.nan for v in values]
    return ClassEstimate(n_new, _interval(answers, n_new, settings.coverage), curve, "paper", answers)


@dataclass(frozen=True)
class _Look:
    """What one number of new classes gave."""

    labels: Tensor
    """Clusters of the free points, int32 on the CPU: validation probes first, then the unlabelled."""
    accuracy: float
    silhouette: float


class _PaperSplit:
    """Anchors, validation probes and unlabelled points, ready for the sweep."""

    def __init__(
        self, probe: ProbeSet, pile: Tensor, settings: Estimate, generator: torch.Generator, seed: int
    ) -> None:
        self.settings, self.seed = settings, seed
        self.n_probe_classes = probe.n_classes
        self.n_anchors = min(max(2, round(settings.anchor_share * probe.n_classes)), probe.n_classes - 2)
        # Classes in random order; the first ones become the anchors 0 .. n_anchors - 1.
        order = torch.randperm(probe.n_classes, generator=generator).to(probe.labels.device)
        labels = torch.argsort(order)[probe.labels]
        held = labels < self.n_anchors
        self.validation = labels[~held].cpu().numpy()
        self.free = torch.cat([probe.features[~held], pile])
        self.points = torch.cat([probe.features[held], self.free])
        self.anchors = torch.cat([labels[held], labels.new_full((len(self.free),), -1)])
        self.first_free = int(held.sum())

    def answer(self, max_new: int) -> tuple[int, dict[str, dict[int, float]]]:
        """The number of new classes, and by name both indices at each number that was looked at."""
        looks = self.sweep(max_new)
        return self.count(looks), {name: {k: getattr(look, name) for k, look in looks.items()} for name in INDICES}

    def sweep(self, max_new: int) -> dict[int, _Look]:
        """Both indices for each number of new classes that is looked at."""
        base = self.n_probe_classes
        largest = min(max_new, len(self.free) + self.n_anchors - base)
        sweep = Sweep(self.points, anchors=self.anchors, restarts=self.settings.restarts, seed=self.seed)
        looks: dict[int, _Look] = {}
        for numbers in _passes(largest, self.settings, looks):
            runs = sweep.fresh if self.settings.sweep == "exhaustive" else sweep.chain
            ran = runs([base + k for k in numbers])
            looks.update(self._look({k - base: result.labels for k, result in ran}))
        return looks

    def _look(self, labels: dict[int, Tensor]) -> dict[int, _Look]:
        """Score several clusterings together: their silhouettes share the distances."""
        free = torch.stack([row[self.first_free :] for row in labels.values()])
        skip = 0 if self.settings.silhouette_over == "free" else len(self.validation)
        scores = silhouette(self.free[skip:], free[:, skip:], sample=self.settings.silhouette_sample, seed=self.seed)
        out = {}
        for k, row, score in zip(labels, free.cpu(), scores.score.tolist(), strict=True):
            accuracy = cluster_accuracy(self.validation, row[: len(self.validation)].numpy())
            out[k] = _Look(row.int(), accuracy, score)
        return out

    def count(self, looks: dict[int, _Look]) -> int:
        """The number of clusters that the unlabelled points really use at the mean of the two optima."""
        best = [_argmax({k: getattr(v, name) for k, v in looks.items()}, self.settings.ties) for name in INDICES]
        k = _round(sum(best) / 2, self.settings.rounding)
        if k in looks and not self.settings.rerun:
            labels = looks[k].labels
        else:  # a second opinion, from another seed; or a first one, where a coarse sweep has left this number out
            clusters = self.n_probe_classes + k
            again = kmeans(
                self.points, clusters, anchors=self.anchors, restarts=self.settings.restarts, seed=self.seed + 1
            )
            labels = again.labels[self.first_free :].cpu()
        mass = torch.bincount(labels[len(self.validation) :].long(), minlength=self.n_anchors)
        if not self.settings.count_anchor_clusters:
            mass = mass[self.n_anchors :]
        largest = int(mass.max()) if len(mass) else 0
        return int((mass >= max(1.0, self.settings.outlier_threshold * largest)).sum())


INDICES = ("accuracy", "silhouette")
"""The two indices of Algorithm 1, by the names they have in the curve."""


# ---------------------------------------------------------------------------------------------- silhouette alone


def _by_silhouette(pile: Tensor, max_new: int, settings: Estimate, seed: int) -> ClassEstimate:
    """The number with the best silhouette of plain k-means; random halves of the points give the interval."""
    scores = _silhouette_curve(pile, max_new, settings, seed)
    n_new = _argmax(scores, settings.ties)
    answers = []
    if len(pile) >= 8:
        generator = torch.Generator().manual_seed(seed)
        jobs = Jobs[dict[int, float]](current())
        for i in range(settings.splits):
            half = torch.randperm(len(pile), generator=generator)[: len(pile) // 2].to(pile.device)
            jobs.do(_silhouette_curve, pile[half], max_new, settings, seed + 1 + i)
        answers = [_argmax(curve, settings.ties) for curve in jobs.results()]
    ks = range(2, max_new + 1)
    curve = {"k": [float(k) for k in ks], "silhouette": [scores.get(k, math.nan) for k in ks]}
    return ClassEstimate(n_new, _interval(answers or [n_new], n_new, settings.coverage), curve, "silhouette", answers)


def _silhouette_curve(pile: Tensor, max_new: int, settings: Estimate, seed: int) -> dict[int, float]:
    sweep = Sweep(pile, restarts=settings.restarts, seed=seed)
    scores: dict[int, float] = {}
    largest = min(max_new, len(pile) - 1)
    for numbers in _passes(largest, settings, scores, smallest=2):
        runs = dict((sweep.fresh if settings.sweep == "exhaustive" else sweep.chain)(numbers))
        labels = torch.stack([result.labels for result in runs.values()])
        found = silhouette(pile, labels, sample=settings.silhouette_sample, seed=seed)
        scores.update(zip(runs, found.score.tolist(), strict=True))
    return scores


# ---------------------------------------------------------------------------------------------- calibrated


def calibrate(
    probes: Sequence[ProbeSet],
    *,
    settings: Estimate | None = None,
    seed: int = 0,
    grouped: bool = True,
    ratio: float = 1.0,
) -> Calibration:
    """Learn from resampled groups of probe classes how to count classes; serves any number of piles.

    With `grouped` each probe set is a group; otherwise groups of classes are drawn at random from each set. `ratio` is
    the number of points behind each one in a tree; see `portray`.
    """
    settings = Estimate() if settings is None else settings
    generator = torch.Generator().manual_seed(seed)
    n_classes = max(probe.n_classes for probe in probes)
    largest = max(2.0, min(_class_size(probes), ratio * settings.tree_points / n_classes))
    if settings.size_range is not None:
        low, high = settings.size_range
        shrink = min(1.0, largest / high)
        sizes, typical, spread = (low * shrink, high * shrink), shrink * (low + high) / 2, 0.0
    elif settings.class_size == "probes":
        sizes, typical, spread = (largest, largest), largest, 0.0
    else:
        sizes, typical, spread = (min(4.0 * ratio, largest), largest), largest, settings.size_spread
    jobs = Jobs[KnownProblem](current())
    n_draws = max(settings.probe_draws, 6 * len(probes))
    for draw in range(n_draws):
        which = draw % len(probes)
        probe = probes[which]
        wanted, unevenness = _draw_sizes(sizes, settings, generator)
        n = probe.n_classes
        if not grouped:  # a random half to all of the classes; halves count as groups of their own
            n = int(torch.randint(max(3, n // 2), n + 1, (), generator=generator))
            which = draw
        classes = torch.randperm(probe.n_classes, generator=generator)[:n]
        points = draw_problem(probe.features, probe.labels, classes, wanted, unevenness, generator)
        jobs.do(_known_problem, which, n, points, settings, seed, ratio)
    return Calibration(jobs.results(), typical_size=typical / ratio, size_spread=spread, ratio=ratio, disjoint=grouped)


def _class_size(probes: Sequence[ProbeSet]) -> float:
    """Points in a probe class, the median."""
    counts = torch.cat([torch.bincount(probe.labels.cpu(), minlength=probe.n_classes) for probe in probes])
    return counts.double().median().item()


def _draw_sizes(sizes: tuple[float, float], settings: Estimate, generator: torch.Generator) -> tuple[float, float]:
    """Mean class size and its relative half-range for one resampled problem."""
    low, high = sizes
    if settings.size_range is not None:
        return (low + high) / 2, (high - low) / (high + low)
    a, b = torch.rand(2, generator=generator).tolist()
    if settings.class_size == "probes":
        return high, 0.0
    # Beyond the largest, cut off there, so that the full size, which is the likeliest, is well represented.
    return min(high, math.exp(math.log(low) + a * (math.log(2 * high) - math.log(low)))), 0.8 * b


def _known_problem(
    group: int, n_classes: int, points: Tensor, settings: Estimate, seed: int, ratio: float
) -> KnownProblem:
    return KnownProblem(group, n_classes, _portray(points, settings, seed, ratio))


def _portray(points: Tensor, settings: Estimate, seed: int, ratio: float) -> Portrait:
    return portray(points, components=settings.components, normalise=settings.normalise, ratio=ratio, seed=seed)


def count_classes(
    calibration: Calibration, pile: Tensor, *, max_new: int = 100, settings: Estimate | None = None, seed: int = 0
) -> ClassEstimate:
    """Apply a calibration to the points of a pile (n, d)."""
    settings = Estimate() if settings is None else settings
    generator = torch.Generator().manual_seed(seed)
    ratio = calibration.ratio
    keep = min(len(pile), round(ratio * settings.tree_points))
    portraits = [_portray(_sample(pile, keep, generator), settings, seed, ratio)]
    # Classes larger than any probe class: fewer points of each make the pile comparable, their number stays.
    limit, least = calibration.typical + 0.2, round(8 * max_new * ratio)
    while calibration.log_size(portraits[0]) > limit and keep > least and calibration.spread > 0:
        keep = max(least, keep // 2)
        portraits = [_portray(_sample(pile, keep, generator), settings, seed, ratio)]
    if keep < len(pile):
        more = (_sample(pile, keep, generator) for _ in range(settings.splits - 1))
        portraits += [_portray(sample, settings, seed, ratio) for sample in more]
    n_new = int(np.median([min(max_new, calibration.count(portrait)) for portrait in portraits]))
    first = portraits[0]
    low, high = calibration.interval(n_new, first, settings.coverage)
    answers = [min(max_new, part.count(first)) for part in calibration.parts.values()]
    ks = range(1, min(max_new, first.n - 1) + 1)
    curve = {
        "k": [float(k) for k in ks],
        "height": [math.exp(first.cut(k)) for k in ks],
        "threshold": [math.exp(calibration.threshold(first))] * len(ks),
    }
    return ClassEstimate(n_new, (max(1, low), min(max_new, high)), curve, "calibrated", answers)


def _sample(pile: Tensor, keep: int, generator: torch.Generator) -> Tensor:
    if keep >= len(pile):
        return pile
    return pile[torch.randperm(len(pile), generator=generator)[:keep].to(pile.device)]


def _by_calibration(
    probes: list[ProbeSet], pile: Tensor, max_new: int, settings: Estimate, seed: int, *, grouped: bool
) -> ClassEstimate:
    # Points of a pile too large for one tree are put together, as long as a probe class is still more than a few.
    ratio = max(1.0, min(len(pile) / settings.tree_points, _class_size(probes) / MIN_TREE_CLASS))
    calibration = calibrate(probes, settings=settings, seed=seed, grouped=grouped and len(probes) > 1, ratio=ratio)
    return count_classes(calibration, pile, max_new=max_new, settings=settings, seed=seed)


MIN_TREE_CLASS = 8
"""Points that a class should have in a tree; fewer do not show its size."""


# ---------------------------------------------------------------------------------------------- shared


def _passes(
    largest: int, settings: Estimate, seen: "dict[int, _Look] | dict[int, float]", smallest: int = 0
) -> Iterator[list[int]]:
    """The numbers to look at: all of them, or a coarse grid and then, once it is scored, what lies around its best."""
    everything = range(smallest, largest + 1)
    if settings.sweep == "exhaustive" or len(everything) <= settings.coarse_step:
        yield list(everything)
        return
    yield sorted({*everything[:: settings.coarse_step], largest})
    near = set()
    for name in INDICES:
        best = _argmax({k: getattr(v, name) if isinstance(v, _Look) else v for k, v in seen.items()}, settings.ties)
        near |= set(range(best - settings.coarse_step + 1, best + settings.coarse_step))
    fine = sorted((near & set(everything)) - set(seen))
    if fine:
        yield fine


def _argmax(scores: dict[int, float], ties: str) -> int:
    """The number with the highest score; NaN never wins unless there is nothing else."""
    finite = {k: v for k, v in scores.items() if not math.isnan(v)} or dict.fromkeys(scores, 0.0)
    # Scores a rounding error apart are equal.
    best = [k for k, v in finite.items() if v >= max(finite.values()) - 1e-9]
    return max(best) if ties == "largest" else min(best)


def _round(value: float, rounding: str) -> int:
    return math.ceil(value - 1e-9) if rounding == "ceil" else math.floor(value + 0.5)


def _interval(answers: Sequence[int], n_new: int, coverage: float) -> tuple[int, int]:
    """Quantiles of the answers, rounded outwards and widened to hold the estimate."""
    tail = (1 - coverage) / 2
    low, high = np.quantile(np.asarray(answers, dtype=np.float64), [tail, 1 - tail])
    return min(n_new, math.floor(low)), max(n_new, math.ceil(high))


def _as_features(values: Features, name: str) -> Tensor:
    """A checked float tensor (n, d) of numbers in any form."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    tensor = tensor.detach()
    if not tensor.is_floating_point() and tensor.dtype != torch.bool and not tensor.is_complex():
        tensor = tensor.float()
    check_features(tensor, name)
    return tensor


def _as_integers(values: Features, name: str, length: int) -> NDArray[np.int64]:
    """Class numbers from 0 without gaps, whatever labels (numbers or words) stood for them."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.shape != (length,):
        raise InputError(f"{name} must be a vector of {length} values, one for each probe point.")
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def probe_sets(features: Features, labels: Features, groups: Features | None, pile: Tensor) -> list[ProbeSet]:
    """The probe points, one set for each family."""
    if np.size(labels if not isinstance(labels, Tensor) else labels.cpu().numpy()) == 0:
        return []
    tensor = _as_features(features, "Probe features").to(pile.device, pile.dtype)
    if tensor.shape[1] != pile.shape[1]:
        raise InputError(f"Probe features have {tensor.shape[1]} dimensions and unlabelled ones {pile.shape[1]}.")
    classes = _as_integers(labels, "Probe labels", len(tensor))
    families = np.zeros(len(tensor), np.int64) if groups is None else _as_integers(groups, "Probe groups", len(tensor))
    sets = []
    for family in range(int(families.max()) + 1):
        members = np.flatnonzero(families == family)
        names, inner = np.unique(classes[members], return_inverse=True)
        index = torch.from_numpy(members).to(pile.device)
        sets.append(ProbeSet(tensor[index], torch.from_numpy(inner).to(pile.device), len(names)))
    return sets
