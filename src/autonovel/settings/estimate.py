"""How the number of new classes is estimated: the settings of every method for it. What a class says is when to use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from autonovel.settings.fields import Range, family


@dataclass(frozen=True)
class Estimate:
    """How the number of new classes is estimated, where it is not given."""

    HIDES: ClassVar[tuple[str, ...]] = ()

    method: ClassVar[Literal["calibrated", "paper", "silhouette", "judges"]]
    """The method. Each has settings of its own."""

    max_new: Annotated[int, Range(2)] = 100
    """The largest number to consider."""
    probe_share: Annotated[float, Range(0, 1)] = 0.25
    """Share of the known classes that training leaves out, to learn from them what a class looks like. Where the number is given
    none is."""
    probe_families: tuple[str, ...] = ()
    """Families of known classes to leave out, where class names have the form FAMILY/NAME. When left empty, random families, or
    single classes where there are no families or only large ones."""


@dataclass(frozen=True)
class CalibratedSettings(Estimate):
    """A tree cut where a cut is right for known classes that training has not seen."""

    method = "calibrated"

    coverage: Annotated[float, Range(0.01, 0.99)] = 0.8
    """How often the interval should hold the true number."""
    size_range: Annotated[tuple[int, int] | None, Range(1, rising=True)] = None
    """Smallest and largest class size in the pile, where they are known; otherwise it is read off the pile."""


@dataclass(frozen=True)
class PaperSettings(Estimate):
    """The paper's Algorithm 1."""

    method = "paper"

    reading: Literal["text", "code"] = "text"
    """Algorithm 1 as the paper's text says, or as the authors' code does it."""
    anchor_share: Annotated[float, Range(0, 1)] = 0.8
    """Share of the probe classes that are anchors; the others check the clustering."""
    outlier_threshold: Annotated[float, Range(0, 1)] = 0.01
    """Clusters with fewer unlabelled points than this share of the largest are not counted."""


@dataclass(frozen=True)
class SilhouetteSettings(Estimate):
    """The number whose k-means separates clusters best: needs no known classes."""

    HIDES = ("probe_share", "probe_families")
    method = "silhouette"


@dataclass(frozen=True)
class JudgesSettings(Estimate):
    """Silhouette, graph and tree, of which the middle one decides."""

    HIDES = ("probe_families",)
    method = "judges"


ESTIMATES = family(Estimate, "method", CalibratedSettings, PaperSettings, SilhouetteSettings, JudgesSettings)
"""What ``--estimate.method`` takes."""
