"""What an estimate of the number of classes says."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from autonovel.base.errors import kind_found

Estimator: TypeAlias = Literal["judges", "calibrated", "paper", "silhouette"]


@dataclass(frozen=True)
class ClassEstimate:
    """An estimate with what it rests on."""

    n_new: int
    """Number of new classes, or of clusters where nothing is known."""
    interval: tuple[int, int] | None
    """`calibrated`: a range meant to hold the true number with the probability asked for, judging by the errors made on known
    classes; None with fewer than 8 probe classes that form no families. `judges`: from below the smallest to above the largest
    answer, by as much as they erred on photographs. `paper`: the range of the answers over the splits. None for `silhouette`."""
    curve: dict[str, list[float]]
    """What was looked at, as lists of one length, ready to draw. `judges`: `k`, `silhouette` and `gap` (how far the eigenvalues
    of a graph of neighbours fall behind the k-th). `paper` and `silhouette`: `k`, `accuracy` (of the validation probes; absent
    for `silhouette`) and `silhouette`, means over the splits, NaN where not looked at. `calibrated`: `k`, the `height` at which
    the tree falls apart into k clusters, the `threshold` of the cut, and, where the size of the classes is read off the pile, the
    `belief` in each number, relative to the likeliest."""
    method: Estimator
    """The estimator that answered, which is `silhouette` where there were too few probe classes."""
    answers: list[int] = field(default_factory=list)
    """The answer of each split; `calibrated`: with each group of known classes left out in turn; `judges`: of the silhouette,
    of the graph and, where at least 4 classes are known, of the tree."""
    note: str = ""
    """One sentence on what the interval is worth, or why there is none; empty where there is nothing to say."""
    second: int | None = None
    """The runner-up: the number at the second peak of the curve (`belief`, the silhouette, or the sum of the indices), if it
    has one."""
    known: bool = True
    """Whether any class was known; where none was, there is nothing that the clusters could be new beside."""

    def __str__(self) -> str:
        between = "" if self.interval is None else ", between {} and {}".format(*self.interval)
        return f"{self.n_new} {kind_found(self.known, self.n_new)}{between}" + (f". {self.note}" if self.note else "")
