"""What identifies a run: its recipe, its data, its seed; and what two runs have in common."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from autonovel.base.errors import InputError, option
from autonovel.data.images import ImageSet
from autonovel.discovery.plan import Stage, before_estimate
from autonovel.discovery.probes import plan_probes
from autonovel.runs.files import FORMAT
from autonovel.runs.folder import Run, versions
from autonovel.runs.weights import numbered
from autonovel.settings.fields import from_dict
from autonovel.settings.recipe import Recipe

_SEEN = {"images": ("pixels", "images"), "labels": ("labelled", "labelled images"), "both": ("fingerprint", "images")}
"""By what a method sees: the fingerprint that tells such data apart, and what to call the data."""


def config_of(data: ImageSet, recipe: Recipe, n_new: int | None, seed: int) -> dict[str, Any]:
    """The content of config.json."""
    everything = np.arange(len(data))
    return {
        "format": FORMAT,
        "run": {
            "recipe": recipe.to_dict(),
            "n_new": "auto" if n_new is None else n_new,
            "seed": seed,
            "data": {
                "images": len(data),
                "shape": list(data.images.shape[1:]),
                "class_names": list(data.class_names),
                "fingerprint": _fingerprint(data, everything),
                "pixels": _fingerprint(data, everything, labels=False),
                "labelled": _fingerprint(data, np.flatnonzero(data.is_labelled)),
            },
        },
        "versions": versions(),
    }


def has_pixels_of(data: ImageSet, run: Run) -> bool:
    """Whether these are the images of a run, in the same order and size, whatever their labels."""
    kept = run.config["run"]["data"].get("pixels")
    return bool(_fingerprint(data, np.arange(len(data)), labels=False) == kept)


def take_over(
    source: Run, run: Run, stages: Sequence[Stage], data: ImageSet, recipe: Recipe, config: dict[str, Any]
) -> bool:
    """Copy the finished first stages of another run that has the same settings and the same data for them; is there one?

    A stage can be used by another run that has the data which the stage saw: all images, or only the labelled ones.
    """
    mine, theirs = config["run"], source.config["run"]
    other = from_dict(Recipe, theirs["recipe"])
    first = [stage for stage in stages if stage.method is not None and not stage.method.needs_number]
    if not first:
        raise InputError(f"{option('start_from')} has no effect here: no stage is trained first; leave it out.")
    found = False
    same = replace(recipe.model, temperature=other.model.temperature) == other.model
    for position, stage in enumerate(first):
        assert stage.method is not None
        fingerprint, called = _SEEN[stage.method.sees]
        alike = mine["data"][fingerprint] == theirs["data"].get(fingerprint)
        if position == 0 and not alike:
            raise InputError(f"The run in {source.path} has other {called}; its first stages cannot be used here.")
        same = same and alike and getattr(recipe, stage.name) == getattr(other, stage.name)
        if stage.method.sees != "images":  # it has trained a head of classes, whose scores have the temperature in them
            same = same and recipe.model.temperature == other.model.temperature
            if stage in before_estimate(stages):  # it has not seen the probe classes, if the number was to be estimated
                same = same and np.array_equal(_seen(data, recipe, mine), _seen(data, other, theirs))
        for number in range(1, recipe.model.networks + 1):
            file = f"{numbered(stage.name, number)}.safetensors"
            found = found or (same and source.has(file))
            if same and source.has(file) and not (run.path / file).exists():
                shutil.copyfile(source.path / file, run.path / f".{file}.part")
                (run.path / f".{file}.part").replace(run.path / file)
    return found


def _seen(data: ImageSet, recipe: Recipe, config: dict[str, Any]) -> npt.NDArray[np.int64]:
    """The labels that stages before the estimate see."""
    if config["n_new"] != "auto":
        return data.labels
    return plan_probes(data, recipe.estimate, config["seed"], "labels").train_labels


def _fingerprint(data: ImageSet, index: npt.NDArray[np.int64], *, labels: bool = True) -> str:
    """A short text that differs where the shape, (some of) the pixels or the labels of these images differ."""
    sample = index[np.linspace(0, len(index) - 1, min(len(index), 2000)).astype(np.int64)]
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((len(index), *data.images.shape[1:])).encode())
    digest.update(np.ascontiguousarray(data.images[sample]).tobytes())
    if labels:
        digest.update(repr(data.class_names).encode())
        digest.update(np.ascontiguousarray(data.labels[index]).tobytes())
    return digest.hexdigest()
