"""Discovery on features that somebody has computed already: nothing asks for images then."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from autonovel.answers.census import PileKind, take_census
from autonovel.answers.further import Classes
from autonovel.answers.judge import Judge, read_judged, write_judged
from autonovel.answers.network import restore
from autonovel.answers.sampled import scores_of
from autonovel.answers.space import answer_from_features
from autonovel.answers.table import AnswerTable, nowhere, writer_to
from autonovel.api.large import (
    LARGE,
    STAGE,
    Large,
    axes_of,
    discover_large,
    estimate_large,
    placed_in,
    summary_of,
)
from autonovel.base.errors import InputError
from autonovel.data.reading.described import Described, is_described
from autonovel.data.reading.embedded import Embedded, read_embedded
from autonovel.discovery.finish import finished_already, number_found, read_estimate, write_estimate, write_outcome
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter
from autonovel.maths.count.result import ClassEstimate
from autonovel.models.backbones import digest
from autonovel.models.net import Net, Scores
from autonovel.runs.folder import Folder, versions
from autonovel.runs.summary import holds_known


def features_of(labelled: Any, unlabelled: Any = None) -> Embedded | Large:
    """The features that were given: in memory, unless they are of a large pile that was described."""
    if isinstance(labelled, Embedded | Large):
        return labelled
    if is_described(pile := labelled if unlabelled is None else unlabelled):
        large = Described(pile)
        if large.n_rows > LARGE:
            return Large.of(labelled, large, together=unlabelled is None)
    return read_embedded(labelled, unlabelled)


def discover_features(
    run: Folder, given: Embedded | Large, n_new: int | None, pile: str | None, seed: int, reporter: Reporter
) -> None:
    """Group features, and write what a run leaves."""
    kind: PileKind = "auto" if pile is None else pile  # type: ignore[assignment]  # another word is refused with a sentence
    if isinstance(given, Large):
        with run.claim({"run": _about_large(given, n_new, kind, seed), "versions": versions()}):
            if run.finished:
                reporter.message(finished_already(run))
            else:
                discover_large(run, given, n_new, kind, seed, reporter)
        return
    names, started = given.names, time.perf_counter()
    if names.is_labelled.all():
        raise InputError("There are no unlabelled rows to discover classes in; give some beside the labelled ones.")
    with run.claim({"run": _about(given, n_new, pile, seed), "versions": versions()}):
        if run.finished:
            reporter.message(finished_already(run))
            return
        rows = torch.from_numpy(given.features)
        known, free = rows[names.is_labelled], rows[~names.is_labelled]
        labels = torch.from_numpy(names.labels[names.is_labelled])
        census, judged = answer_from_features(
            known,
            labels,
            free,
            n_new,
            pile_kind=kind,
            check_number=len(free) <= 10_000,
            seed=seed,
        )
        for note in judged.notes:
            reporter.message(note)
        estimate = census.estimate if n_new is None else None
        number = n_new if estimate is None else estimate.n_new
        if estimate is not None:
            write_estimate(run, estimate, 0.0)
        write_judged(run, STAGE, judged)
        judged.judge.write(run)
        run.write_features("features-labelled.npy", known.numpy())
        sizes = np.bincount(judged.answers.place, minlength=judged.answers.joint.shape[1])
        images = len(known), len(free)
        summary = summary_of(names.n_known, images, sizes, int(judged.answers.unlike.sum()), seed, judged.facts)
        spent = time.perf_counter() - started
        summary |= number_found(number, estimate) | {"seconds": {STAGE: spent, "total": spent}}
        write_outcome(run, names, free, judged.answers, summary, pictures=False)


def _about(given: Embedded, n_new: int | None, pile: str | None, seed: int) -> dict[str, Any]:
    """What tells one run of features from another."""
    names = given.names
    digest = hashlib.blake2b(given.features.tobytes() + names.labels.tobytes(), digest_size=16).hexdigest()
    data = {"images": len(names), "shape": [given.features.shape[1]], "class_names": list(names.class_names)}
    if given.made is not None:
        data["made"] = asdict(given.made)
    recipe = {"name": "features", "method": "features", "pile": "auto" if pile is None else pile}
    return {"recipe": recipe, "n_new": n_new, "seed": seed, "data": data | {"fingerprint": digest, "features": True}}


def _about_large(given: Large, n_new: int | None, kind: PileKind, seed: int) -> dict[str, Any]:
    recipe = {"name": "features", "method": "features", "pile": kind}
    return {"recipe": recipe, "n_new": n_new, "seed": seed, "data": given.about}


def is_of_features(run: Folder) -> bool:
    """Whether a run was made from features, without images."""
    return bool(run.config["run"]["data"].get("features"))


def estimate_features(
    run: Folder, given: Embedded | Large, pile: str | None, seed: int, reporter: Reporter
) -> ClassEstimate:
    """How many new classes there are in features; discover goes on in the same folder."""
    kind: PileKind = "auto" if pile is None else pile  # type: ignore[assignment]
    if isinstance(given, Large):
        with run.claim({"run": _about_large(given, None, kind, seed), "versions": versions()}):
            if not run.has("estimate.json"):
                estimate_large(run, given, kind, seed, reporter)
            return read_estimate(run)[0]
    with run.claim({"run": _about(given, None, pile, seed), "versions": versions()}):
        if not run.has("estimate.json"):
            started = time.perf_counter()
            rows, names = torch.from_numpy(given.features), given.names
            labels = torch.from_numpy(names.labels[names.is_labelled])
            census = take_census(rows[names.is_labelled], labels, rows[~names.is_labelled], kind=kind, seed=seed)
            estimate = census.counted(100, seed).estimate
            assert estimate is not None
            write_estimate(run, estimate, time.perf_counter() - started)
        return read_estimate(run)[0]


def predict_features(
    run: Folder,
    given: Any,
    *,
    pile: str | None = None,
    to: str | os.PathLike[str] | None = None,
) -> AnswerTable:
    """The classes of further rows of features, with a person's names and corrections; those of a folder part by part."""
    writer = None if to is None else writer_to(Path(to))
    mixed = holds_known(run.summary) if pile is None else pile == "mixed"
    classes = Classes(run, Judge.read(run), mixed, torch.device("cpu"))
    scores, width, made = _scores_for(run)
    parts: Iterable[tuple[list[str], npt.NDArray[Any]]]
    if is_described(given):
        described = Described(given)
        if made is not None and described.made.network != made:
            raise InputError(
                f"The features in {described.folder} are of {described.made.backbone}, with other weights than those of the run; "
                "describe the images with the run's own network."
            )
        there, parts = described.width, ((rows.images.tolist(), rows.features) for rows in described.parts())
    else:
        further = read_embedded(None, given)
        there, parts = further.features.shape[1], [(list(further.names.ids), further.features)]
    if there != width:
        raise InputError(f"There are {there} features in a row; the run has {width}.")
    table = AnswerTable()
    with writer or nullcontext(nowhere) as write:
        for ids, features in parts:
            [said] = classes.judged([scores(torch.from_numpy(features.astype(np.float32)))])
            answers = classes.named(ids, said)
            write(answers)
            table.add(answers)
    return table


def _scores_for(run: Folder) -> tuple[Callable[[torch.Tensor], Scores], int, str | None]:
    """What a run says of features, how many it wants, and which network makes them, where it knows."""
    if is_of_features(run):
        judged, data = read_judged(run, STAGE), run.config["run"]["data"]
        assert judged is not None
        n_known, axes = len(run.machine.known), axes_of(run)
        width = len(axes[0].mean) if axes else data["shape"][0]
        made = (data.get("made") or {}).get("network")
        return lambda z: scores_of(judged, placed_in(axes, z), n_known), width, made
    net = restore(run, Mode.of("cpu")).net
    if not isinstance(net, Net) or not net.identity:
        raise InputError(f"The network of {run.path} was trained on its images; give further images, not features.")
    return lambda z: _said(net, z), net.n_features, digest(net.backbone)


@torch.no_grad()
def _said(net: Net, z: torch.Tensor) -> Scores:
    joint, new = net.scores(z)
    return Scores(z, joint[0], None if new is None else new[0])
