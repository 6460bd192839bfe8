"""From the output of a network to an answer that a person can trust: a class, a calibrated probability, a warning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.base.errors import InputError
from autonovel.maths.confidence import log_odds, power_for
from autonovel.maths.known_space import Space, group_means, unit
from autonovel.maths.mixed import least_similar
from autonovel.maths.strangers import Strangers
from autonovel.models.net import Scores
from autonovel.runs.files import damaged
from autonovel.runs.folder import Run
from autonovel.runs.weights import fitting

FILE = "judge.npz"
"""Where the judge of a run is kept."""
_STRANGERS = ("centres", "seen", "unseen")
UNLIKE = 0.01
"""Share of held-out images that may be called unlike anything seen."""


@dataclass(frozen=True)
class Answers:
    """The answers for n images.

    Attributes:
        place: int64 (n,), the class: known ones first, then the new ones.
        probability: float32 (n,), that the answer is right.
        joint: float32 (n, n_known + n_new), of every class.
        unlike: bool (n,), unlike anything seen.
    """

    place: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float32]
    joint: npt.NDArray[np.float32]
    unlike: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, joint: Tensor, unlike: Tensor) -> Answers:
        """The most probable class of each image."""
        probability, place = joint.max(1)
        columns = place, probability.float(), joint.float(), unlike
        return cls(*(column.cpu().numpy() for column in columns))


@dataclass(frozen=True)
class Judge:
    """Turns what a network says of an image into an answer: for the pile, further images, the estimator and export.

    Attributes:
        centres: (n_known + n_new, d), the middle of every class among features of length 1, or in the space.
        least: the similarity to the nearest of them below which an image is unlike anything seen.
        power: to which probabilities are raised before they are normalised again.
        doubt: the share of all probability that is then spread evenly over the classes.
        space: in which the classes were found, if not among the features themselves.
        strangers: how similar images of these and of other classes are, where enough classes could tell.
    """

    centres: Tensor
    least: float
    power: float = 1.0
    doubt: float = 0.0
    space: Space | None = None
    strangers: Strangers | None = None

    def answers(self, scores: Scores, *, mixed: bool = True) -> Answers:
        """The answers for images of known or new classes or, where they are not mixed, of new ones alone."""
        return Answers.of(self.probabilities(scores, mixed=mixed), self.unlike(scores.features))

    def probabilities(self, scores: Scores, *, mixed: bool = True) -> Tensor:
        """Calibrated probabilities (n, n_known + n_new); known classes have none where the images are not mixed."""
        n_classes = len(self.centres)
        if mixed or scores.new is None:
            # a network that learned no known classes has outputs for the new ones alone, which are the last
            return self.calibrated(_wide(scores.joint.softmax(1), n_classes))
        n_known = n_classes - scores.new.shape[1]
        likely = self.calibrated(_wide(scores.new.softmax(1), n_classes), n_known)
        likely = torch.cat([torch.zeros_like(likely[:, :n_known]), likely[:, n_known:]], 1)
        return likely / likely.sum(1, keepdim=True)

    def calibrated(self, likely: Tensor, first: int = 0) -> Tensor:
        """Calibrated probabilities (n, k), the doubt of which is spread over the classes from this one on."""
        sharp = likely.clamp(min=1e-12) ** self.power
        even = self.doubt * (torch.arange(likely.shape[1], device=likely.device) >= first) / (likely.shape[1] - first)
        return (1 - self.doubt) * sharp / sharp.sum(1, keepdim=True) + even

    def unlike(self, features: Tensor) -> Tensor:
        """Bool (n,): features (n, d) that lie far from every class."""
        return self.far(unit(features.float()) if self.space is None else self.space.transform(features))

    def far(self, points: Tensor) -> Tensor:
        """Bool (n,): points (n, r) of length 1, beside the centres, that lie far from all of them."""
        return (points @ self.centres.T).amax(1) < self.least

    def to(self, device: torch.device) -> Judge:
        """The same on this device."""
        return Judge.from_tensors({n: v if n == "numbers" else v.to(device) for n, v in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """All of it, to be kept."""
        numbers = torch.tensor([self.least, self.power, self.doubt], dtype=torch.float64)
        space = {} if self.space is None else {"mean": self.space.mean, "matrix": self.space.matrix}
        strangers = {} if self.strangers is None else {name: getattr(self.strangers, name) for name in _STRANGERS}
        return {"centres": self.centres, "numbers": numbers} | space | {f"of_{n}": v for n, v in strangers.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Judge:
        """The judge that these came from."""
        space = Space(tensors["mean"], tensors["matrix"]) if "mean" in tensors else None
        least, power, doubt = tensors["numbers"].tolist()
        strangers = Strangers(*(tensors[f"of_{name}"] for name in _STRANGERS)) if "of_seen" in tensors else None
        return cls(tensors["centres"], least, power, doubt, space, strangers)

    def write(self, run: Run) -> None:
        """Keep it in the run folder."""
        run.write_arrays(FILE, {name: value.cpu().numpy() for name, value in self.tensors().items()})

    @classmethod
    def read(cls, run: Run) -> Judge:
        """The judge of a finished run."""
        if not run.has(FILE):
            raise InputError(
                f"The run in {run.path} was made by an earlier version; run the same command in a new folder."
            )
        try:
            with np.load(run.file(FILE)) as kept:
                return cls.from_tensors({name: torch.from_numpy(kept[name]) for name in kept.files})
        except InputError:
            raise
        except Exception as error:  # numpy reads the head of a file as Python, in which anything can be wrong
            raise damaged(run, FILE, error) from error


class Judged(NamedTuple):
    """What was found in a pile.

    Attributes:
        answers: for every unlabelled image.
        judge: of further images.
        facts: how sure the answers are, as plain values for the summary.
        notes: sentences for a person.
        sharpness: of the similarities by which further images are given to the nearest centre, where the judge has a space.
    """

    answers: Answers
    judge: Judge
    facts: dict[str, Any]
    notes: tuple[str, ...] = ()
    sharpness: float = 1.0


def write_judged(run: Run, stage: str, judged: Judged) -> None:
    """Keep what was found beside the weights of the stage that found it."""
    plain = {"notes": judged.notes, "facts": judged.facts, "sharpness": judged.sharpness}
    answers = {"joint": torch.from_numpy(judged.answers.joint), "unlike": torch.from_numpy(judged.answers.unlike)}
    run.write_tensors(f"{stage}-answer.safetensors", answers | judged.judge.tensors(), {"plain": json.dumps(plain)})


def read_judged(run: Run, stage: str) -> Judged | None:
    """What a stage found, if it wrote that."""
    if not run.has(f"{stage}-answer.safetensors"):
        return None
    tensors, metadata = run.read_tensors(f"{stage}-answer.safetensors")
    with fitting(run, f"{stage}-answer.safetensors"):
        plain, judge = json.loads(metadata["plain"]), Judge.from_tensors(tensors)
        answers = Answers.of(tensors["joint"], tensors["unlike"])
        return Judged(answers, judge, plain["facts"], tuple(plain["notes"]), plain["sharpness"])


def judge_pile(scores: Scores, labelled: Tensor, labels: Tensor, *, mixed: bool) -> Judged:
    """The answers for a pile by what a network says of it.

    Args:
        scores: of the unlabelled images.
        labelled: features (n, d) of the labelled images.
        labels: their classes.
        mixed: whether an answer may be a known class; otherwise the new classes alone are asked.
    """
    assert scores.new is not None
    n_classes = scores.joint.shape[1]
    asked = scores.joint.softmax(1) if mixed else _wide(scores.new.softmax(1), n_classes)
    power, facts = _agreeing_power(asked, scores.features, n_classes - scores.new.shape[1])
    joint = Judge(torch.zeros(n_classes, 0), 0.0, power).probabilities(scores, mixed=mixed)
    place = joint.argmax(1)
    points, known = unit(scores.features.float()), unit(labelled.float())
    centres = group_means(torch.cat([known, points]), torch.cat([labels, place]), n_classes)
    strangers = Strangers.of(torch.cat([known, points]), torch.cat([labels, place]), n_classes)
    judge = Judge(centres, least_of(known, labels, points, place), power, strangers=strangers)
    facts["pile"] = "mixed" if mixed else "new"
    return Judged(Answers.of(joint, judge.far(points)), judge, facts)


def least_of(known: Tensor, labels: Tensor, pile: Tensor, place: Tensor) -> float:
    """The similarity to the nearest class below which an image is unlike anything seen, from points of length 1.

    The lower of what labelled images and the pile show, of which all but a share of :data:`UNLIKE` are more similar.
    """
    return min(_least(points, groups) for points, groups in ((known, labels), (pile, place)) if len(points))


def _wide(likely: Tensor, n_classes: int) -> Tensor:
    """Probabilities (n, k) of the last k classes as those of all of them."""
    return F.pad(likely, (n_classes - likely.shape[1], 0))


def _least(points: Tensor, labels: Tensor) -> float:
    return least_similar(points, labels, rate=UNLIKE) if len(points) > 1 else -1.0


def _agreeing_power(joint: Tensor, features: Tensor, n_known: int) -> tuple[float, dict[str, Any]]:
    """The power under which the mean probability is the share of right answers that two answers show.

    How often k-means on the same features (of length 1) gives an image to the same class needs no labels. Two answers that are
    right equally often, and err independently, agree as often as the square of that; where they share their mistakes, both
    are less often right than it seems.
    """
    from autonovel.maths.kmeans import kmeans
    from autonovel.maths.metrics import cluster_accuracy

    answer = joint.argmax(1)
    new = answer >= n_known
    k = len(answer[new].unique())
    if k < 2 or int(new.sum()) < 2 * k:
        return 1.0, {}
    # of length 1: the length of a feature says how clear an image is, and may differ more than the classes do
    other = kmeans(unit(features[new].float()), k, seed=0).labels
    agreement = cluster_accuracy(answer[new].numpy(), other.cpu().numpy())
    return power_for(log_odds(agreement**0.5), joint[new][:, n_known:]), {"agreement": agreement}
