"""From the output of a network to an answer that a person can trust: a class, a calibrated probability, a warning."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.answers.network import Answers
from autonovel.base.errors import InputError
from autonovel.maths.confidence import log_odds, power_for
from autonovel.maths.known_space import group_means, unit
from autonovel.maths.mixed import least_similar
from autonovel.methods.base import PileAnswer
from autonovel.runs.files import damaged
from autonovel.runs.folder import Run

FILE = "judge.npz"
"""Where the judge of a run is kept."""
UNLIKE = 0.01
"""Share of held-out images that may be called unlike anything seen."""


@dataclass(frozen=True)
class Verdict:
    """The answers for some images.

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


@dataclass(frozen=True)
class Judge:
    """Turns the probabilities of a network into an answer for any image.

    Attributes:
        centres: (n_known + n_new, d), the middle of every class among features of length 1.
        least: the similarity to the nearest of them below which an image is unlike anything seen.
        power: to which probabilities are raised before they are normalised again.
        doubt: the share of all probability that is then spread evenly over the classes.
    """

    centres: Tensor
    least: float
    power: float = 1.0
    doubt: float = 0.0

    def verdict(self, answers: Answers) -> Verdict:
        """The answers for images that may be of known or new classes."""
        joint = self.calibrated(answers.joint)
        probability, place = joint.max(1)
        return Verdict(place.numpy(), probability.numpy(), joint.numpy(), self.unlike(answers.features).numpy())

    def calibrated(self, joint: Tensor) -> Tensor:
        """Calibrated probabilities (n, k)."""
        sharp = joint.clamp(min=1e-12) ** self.power
        return (1 - self.doubt) * sharp / sharp.sum(1, keepdim=True) + self.doubt / joint.shape[1]

    def unlike(self, features: Tensor) -> Tensor:
        """Bool (n,): features (n, d) that lie far from every class."""
        return (unit(features.float()) @ self.centres.T).amax(1) < self.least

    def write(self, run: Run) -> None:
        """Keep it in the run folder."""
        numbers = np.array([self.least, self.power, self.doubt])
        with run.whole(FILE) as path, path.open("wb") as file:
            np.savez(file, centres=self.centres.numpy(), numbers=numbers)

    @classmethod
    def read(cls, run: Run) -> Judge:
        """The judge of a finished run."""
        if not run.has(FILE):
            raise InputError(
                f"The run in {run.path} was made by an earlier version; run the same command in a new folder."
            )
        try:
            with np.load(run.path / FILE) as kept:
                return cls(torch.from_numpy(kept["centres"]), *kept["numbers"].tolist())
        except (OSError, ValueError, KeyError, EOFError, TypeError, BadZipFile) as error:
            raise damaged(run, FILE, error) from error


def write_pile_answer(run: Run, stage: str, answer: PileAnswer) -> None:
    """Keep what a method says of the pile beside the weights of its stage."""
    plain = {"notes": answer.notes, "facts": answer.facts, "doubt": answer.doubt}
    tensors = {"joint": answer.joint, "unlike": answer.unlike}
    run.write_tensors(f"{stage}-answer.safetensors", tensors, {"plain": json.dumps(plain)})


def read_pile_answer(run: Run, stage: str) -> PileAnswer | None:
    """What a method said of the pile, if it said anything."""
    if not run.has(f"{stage}-answer.safetensors"):
        return None
    tensors, metadata = run.read_tensors(f"{stage}-answer.safetensors")
    plain = json.loads(metadata["plain"])
    return PileAnswer(tensors["joint"], tensors["unlike"], tuple(plain["notes"]), plain["facts"], plain["doubt"])


def judge_pile(
    answers: Answers, given: PileAnswer | None, labelled: Tensor, labels: Tensor, *, mixed: bool
) -> tuple[Verdict, Judge, dict[str, Any]]:
    """The answers for the pile, the judge of further images, and facts about both for the summary.

    Args:
        answers: what the network says of the unlabelled images.
        given: what the method says of them, where it knows more.
        labelled: features (n, d) of the labelled images.
        labels: their classes.
        mixed: whether an answer may be a known class; otherwise the new classes alone are asked.
    """
    n_known = answers.joint.shape[1] - _n_new(answers)
    power = 1.0
    facts: dict[str, Any] = {}
    if given is None:
        asked = answers.joint.clone() if mixed else torch.zeros_like(answers.joint)
        if not mixed:
            assert answers.new is not None
            asked[:, n_known:] = answers.new
        power, facts = _agreeing_power(asked, answers.features, n_known)
        facts["pile"] = "mixed" if mixed else "new"
    joint = given.joint if given is not None else Judge(answers.features[:0], 0.0, power).calibrated(asked)
    if not mixed and given is None:
        joint[:, :n_known] = 0.0
        joint = joint / joint.sum(1, keepdim=True)
    probability, place = joint.max(1)
    points = unit(torch.cat([labelled, answers.features]).float())
    centres = group_means(points, torch.cat([labels, place]), answers.joint.shape[1])
    least = min(_least(points[: len(labelled)], labels), _least(points[len(labelled) :], place))
    judge = Judge(centres, least, power, 0.0 if given is None else given.doubt)
    unlike = given.unlike if given is not None else judge.unlike(answers.features)
    verdict = Verdict(place.numpy(), probability.float().numpy(), joint.float().numpy(), unlike.numpy())
    return verdict, judge, facts if given is None else given.facts


def _n_new(answers: Answers) -> int:
    assert answers.new is not None
    return answers.new.shape[1]


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
