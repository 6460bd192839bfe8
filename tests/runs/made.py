"""Run folders made by hand, without training."""

from pathlib import Path

import numpy as np

from autonovel.api.run import Run, load
from autonovel.runs.answers import Answer, ImageRecord
from autonovel.runs.files import FORMAT

KNOWN = ("cat", "dog")
SUMMARY = {
    "images": {"labelled": 4, "unlabelled": 8},
    "seconds": {"joint": 3.0, "total": 4.0},
    "device": "cpu",
    "seed": 0,
    "recipe": "folder",
    "preset": "paper",
}
"""What every summary says, beside the numbers of classes."""


def make_run(
    path: Path, groups: list[int], *, n_new: int = 3, known: tuple[str, ...] = KNOWN, labelled: int = 4
) -> Run:
    """A finished run: the cluster of each unlabelled image, -1 - k where the answer is the known class k.

    The labelled images come first, one of each known class in turn. Features of a group lie together.
    """
    run = Run(path)
    chance = np.random.default_rng(0)
    total = labelled + len(groups)
    data = {"images": total, "shape": [8, 8, 1], "class_names": list(known)}
    run.write_json("config.json", {"format": FORMAT, "run": {"seed": 0, "recipe": {}, "data": data}})
    labels = [known[i % len(known)] if known else None for i in range(labelled)] + [None] * len(groups)
    run.write_images(ImageRecord(f"{i}.png", f"/photos/{i}.png", f"{i}.png", label) for i, label in enumerate(labels))
    run.write_predictions(
        Answer(
            f"{labelled + row}.png",
            None if group < 0 else group,
            known[-1 - group] if group < 0 else f"new {group}",
            0.5 + 0.5 * row / len(groups),
            group < 0,
        )
        for row, group in enumerate(groups)
    )
    centres = chance.normal(size=(n_new + len(known), 6)) * 10
    features = centres[np.array(groups, dtype=np.int64)] + chance.normal(size=(len(groups), 6))
    run.write_array("features.npy", features.astype(np.float16))
    run.write_json("summary.json", SUMMARY | {"n_new": n_new, "n_known": len(known)})
    return load(path)
