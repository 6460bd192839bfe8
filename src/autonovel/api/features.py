"""Discovery on features that somebody has computed already: nothing asks for images then."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np
import torch

from autonovel.answers.census import PileKind
from autonovel.answers.further import Classes
from autonovel.answers.judge import Judge, Judged, read_judged, write_judged
from autonovel.answers.space import answer_from_features
from autonovel.answers.table import AnswerTable
from autonovel.base.errors import InputError
from autonovel.data.reading.embedded import Embedded, read_embedded
from autonovel.discovery.finish import finished_already, number_found, write_estimate, write_outcome
from autonovel.machine.progress import Reporter
from autonovel.models.net import Scores
from autonovel.runs.folder import Folder, versions
from autonovel.runs.summary import holds_known

STAGE = "features"


def discover_features(
    run: Folder, given: Embedded, n_new: int | None, pile: str | None, seed: int, reporter: Reporter
) -> None:
    """Group features, and write what a run leaves."""
    kind: PileKind = "auto" if pile is None else pile  # type: ignore[assignment]  # another word is refused with a sentence
    names, started = given.names, time.perf_counter()
    digest = hashlib.blake2b(given.features.tobytes() + names.labels.tobytes(), digest_size=16).hexdigest()
    data = {"images": len(names), "shape": [given.features.shape[1]], "class_names": list(names.class_names)}
    recipe = {"name": "features", "method": "features", "pile": kind}
    about = {"recipe": recipe, "n_new": n_new, "seed": seed, "data": data | {"fingerprint": digest, "features": True}}
    with run.claim({"run": about, "versions": versions()}):
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
        found = n_new if estimate is None else estimate.n_new
        if estimate is not None:
            write_estimate(run, estimate, 0.0)
        write_judged(run, STAGE, judged)
        judged.judge.write(run)
        run.write_features("features-labelled.npy", known.numpy())
        sizes = np.bincount(judged.answers.place, minlength=judged.answers.joint.shape[1]).tolist()
        summary = {
            "n_known": names.n_known,
            "images": {"labelled": len(known), "unlabelled": len(free)},
            "cluster_sizes": sizes[names.n_known :],
            "known_sizes": sizes[: names.n_known],
            "unlike": int(judged.answers.unlike.sum()),
            "device": "cpu",
            "seed": seed,
            "method": "features",
            "recipe": "features",
            "preset": "paper",
            "answering_stage": STAGE,
            "how_sure": judged.facts,
        }
        spent = time.perf_counter() - started
        summary |= number_found(found, estimate) | {"seconds": {STAGE: spent, "total": spent}}
        write_outcome(run, names, free, judged.answers, summary, pictures=False)


def is_of_features(run: Folder) -> bool:
    """Whether a run was made from features, without images."""
    return bool(run.config["run"]["data"].get("features"))


def predict_features(run: Folder, given: Any, *, pile: str | None = None) -> AnswerTable:
    """The classes of further rows of features, with a person's names and corrections."""
    further = read_embedded(None, given)
    width = run.config["run"]["data"]["shape"][0]
    if further.features.shape[1] != width:
        raise InputError(f"There are {further.features.shape[1]} features in a row; the run has {width}.")
    mixed = holds_known(run.summary) if pile is None else pile == "mixed"
    classes = Classes(run, Judge.read(run), mixed, torch.device("cpu"))
    judged = read_judged(run, STAGE)
    assert judged is not None
    scores = scores_of(judged, torch.from_numpy(further.features), len(run.machine.known))
    [said] = classes.judged([scores])
    return classes.named(list(further.names.ids), said)


def scores_of(judged: Judged, features: torch.Tensor, n_known: int) -> Scores:
    """What the nearest centres say of features, as a network would."""
    assert judged.judge.space is not None
    joint = judged.sharpness * judged.judge.space.transform(features) @ judged.judge.centres.T
    return Scores(features, joint, joint[:, n_known:])
