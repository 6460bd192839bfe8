"""What a run has come to, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autonovel.base.errors import kind_found

if TYPE_CHECKING:
    from autonovel.runs.folder import Folder


def headline(run: Folder) -> str:
    """How many of the unlabelled images are new, in how many classes, after a person's edits.

    For example: 904 of the 1,800 images are new, in 11 classes; 896 belong to classes you know.
    """
    new = [len(cluster.members) for cluster in run.clusters if cluster.kind == "new"]
    known = sum(len(cluster.members) for cluster in run.clusters if cluster.kind == "known")
    images = len(run.machine.images)
    nothing = images - sum(new) - known
    classes = f"{len(new):,} {'class' if len(new) == 1 else 'classes'}"
    if not run.state.known and not known:
        said = f"{_images(sum(new))} in {len(new):,} {kind_found(0, len(new))}"
    elif sum(new) == images:
        said = f"all {_images(images)} are new, in {classes}"
    else:
        said = f"{sum(new):,} of the {_images(images)} {'is' if sum(new) == 1 else 'are'} new, in {classes}"
    if known:
        said += f"; {known:,} {'belongs' if known == 1 else 'belong'} to classes you know"
    return f"{said}; {nothing:,} {'is' if nothing == 1 else 'are'} in no class" if nothing else said


def _images(count: int) -> str:
    return f"{count:,} {'image' if count == 1 else 'images'}"


def how_sampled(n_known: int, facts: dict[str, Any], images: int) -> list[str]:
    """How a pile was looked at that was too large to be looked at as a whole, in sentences."""
    said = (
        f"Classes were learned from {facts['rows']:,} of the {images:,} images; what a second sample teaches gives the same "
        f"class to {facts['agreement']:.1%}"
    )
    numbers = facts["numbers"]
    if len(set(numbers)) > 1:
        said += f", and they count {numbers[0]} and {numbers[1]} {kind_found(n_known)}"
    sentences = [said + "."]
    if facts["rare"]:
        several = "1 class" if facts["rare"] == 1 else f"{facts['rare']} classes"
        sentences.append(f"A look at more images found {several} that the sample misses.")
    return sentences
