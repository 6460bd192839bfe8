"""KCL, MCL and DTC as whole methods: each finds clear clusters, resumes to the bit, and answers over all classes if asked to."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import autonovel as an
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet, Truth
from autonovel.machine.progress import Reporter
from autonovel.methods.base import Task
from autonovel.methods.classifier import fit_linear
from autonovel.methods.similarity import Similarity
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe, with_fields
from tests.small_data import class_images

pytestmark = pytest.mark.usefixtures("flags_in_messages")

TINY: dict[str, Any] = {
    **{"model.backbone": "small", "model.width": 8, "mirror": "no", "pretrain.method": "none"},
    **{"supervised.epochs": 10, "supervised.batch": 50, "supervised.train_from": "all"},
}
OWN: dict[str, dict[str, Any]] = {
    "dtc": {"dtc.epochs": 20, "dtc.fit_epochs": 2, "dtc.batch": 50},
    **{
        name: {f"{name}.epochs": 30, f"{name}.batch": 50, f"{name}.train_from": "all", "similarity.epochs": 15,
               "similarity.batch": 48, "similarity.train_from": "all"}
        for name in ("kcl", "mcl")
    },
    "kmeans": {},
}  # fmt: skip


def recipe_for(method: str, **more: Any) -> Recipe:
    values = {"method": method, **TINY, **OWN[method], **more}
    return with_fields(get_recipe("cifar10", "fast"), values)


@pytest.fixture(scope="module")
def data() -> tuple[ImageSet, Truth]:
    """Six classes that differ plainly, three of them known, with a test split."""
    classes, test = np.tile(np.arange(6), 50), np.tile(np.arange(6), 10)
    images = ImageSet.from_arrays(class_images(classes, 16, n_classes=6), np.where(classes < 3, classes, -1))
    names = tuple(map(str, range(6)))
    return replace(images, class_names=names[:3]), Truth(classes, names, class_images(test, 16, 1, n_classes=6), test)


def run(data: tuple[ImageSet, Truth], out: Path, recipe: Recipe, **more: Any) -> Any:
    return an.discover(
        data[0], truth=data[1], out=out, recipe=recipe, device="cpu", report=False, **{"n_new": 3, **more}
    )


@pytest.mark.parametrize(
    ("method", "more", "seed"),
    [
        ("kmeans", {}, 0),
        ("mcl", {}, 0),
        ("mcl", {"mcl.start": "fresh"}, 1),
        ("kcl", {}, 0),
        ("dtc", {"dtc.variant": "pi"}, 0),
        ("dtc", {"dtc.variant": "baseline"}, 1),
        ("dtc", {"dtc.variant": "te"}, 0),
        ("dtc", {"dtc.variant": "tep"}, 1),
    ],
)
def test_clear_clusters_are_found_and_all_classes_answered_for(method, more, seed, data, tmp_path) -> None:
    found = run(data, tmp_path / "run", recipe_for(method, incremental=True, **more), seed=seed)
    assert found.summary["acc_new"] > 0.9
    assert found.summary["answering_stage"] == "classifier"
    assert found.summary["test"]["single"]["all"] > 0.85
    assert len(found.predict(data[0].images[:4])) == 4  # restored from its folder, without the method


def test_learned_pair_labels_are_a_rule_of_joint_training_too(data, tmp_path) -> None:
    similarity = {name: value for name, value in OWN["mcl"].items() if name.startswith("similarity.")}
    joint = {"joint.pairs": "learned", "joint.epochs": 30, "joint.batch": 50, "joint.train_from": "all"}
    found = run(data, tmp_path / "run", with_fields(get_recipe("cifar10", "fast"), {**TINY, **joint, **similarity}))
    # known images in the batch move what the similarity network goes by: two of the new classes may be one to it
    assert found.summary["acc_new"] > 0.6
    assert {entry["stage"] for entry in found.metrics} == {"supervised", "similarity", "joint"}


class Killed(Exception):
    """The process ends here."""


class KilledAfter(Reporter):
    """Ends the work after an epoch of a stage."""

    def __init__(self, stage: str, epoch: int) -> None:
        self._at, self._stage = (stage, epoch), ""

    def start(self, stage: str, epochs: int, done: int) -> None:
        self._stage = stage

    def epoch(self, number: int, losses: Any, seconds: float) -> None:
        if (self._stage, number) == self._at:
            raise Killed


@pytest.mark.parametrize(
    ("method", "more"), [("dtc", {"dtc.variant": "te"}), ("dtc", {"dtc.variant": "tep"}), ("mcl", {})]
)
def test_a_killed_run_ends_with_the_same_bits(method, more, data, tmp_path) -> None:
    short = {"dtc.epochs": 8} if method == "dtc" else {"mcl.epochs": 5, "similarity.epochs": 3}
    recipe = recipe_for(method, **short, **more)
    whole = run(data, tmp_path / "whole", recipe)
    with pytest.raises(Killed):
        run(data, tmp_path / "killed", recipe, reporter=KilledAfter(method, 3))
    again = run(data, tmp_path / "killed", recipe)
    states = [one.read_tensors(f"{method}.safetensors")[0] for one in (whole, again)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_with_a_hundred_outputs_no_more_than_the_images_need_are_used(data, tmp_path) -> None:
    found = run(data, tmp_path / "run", recipe_for("mcl"), n_new=100)
    sizes = found.summary["cluster_sizes"]
    assert len(sizes) == 100
    assert sum(size >= 1.5 for size in sizes) < 30  # 150 images


def test_the_number_may_be_estimated_first(data, tmp_path) -> None:
    found = run(data, tmp_path / "run", recipe_for("dtc", **{"estimate.method": "silhouette"}), n_new="auto")
    assert found.summary["n_new_estimated"] == len(found.summary["cluster_sizes"])


def test_without_known_classes_there_is_nothing_to_learn_similarity_from(data, tmp_path) -> None:
    with pytest.raises(InputError, match="Which images are alike is learned from known classes, and there are none"):
        an.cluster(data[0].images, 3, recipe=recipe_for("mcl"), out=tmp_path / "run", device="cpu")


def order_of(labels: list[int], **more: Any) -> Callable[..., torch.Tensor]:
    task = Task(recipe_for("mcl", **{f"similarity.{name}": value for name, value in more.items()}), 3)
    return lambda *key: Similarity(task).order(torch.tensor(labels), *key)


def test_batches_of_pairs_have_equally_many_images_of_each_class() -> None:
    labels = [0] * 40 + [1] * 9 + [2] * 30 + [-1] * 20
    order = order_of(labels, batch=12, ways=2)(0, "similarity", 0)
    assert order.shape == (79 // 12, 12)
    for row in torch.tensor(labels)[order]:
        classes, counts = row.unique(return_counts=True)
        assert counts.tolist() == [6, 6]
        assert (classes >= 0).all()
    assert all(len(row.unique()) == 12 for row in order)


def test_a_class_with_few_images_fills_its_part_of_a_batch_by_repeating_them() -> None:
    labels = [0] * 40 + [1] * 2
    row = order_of(labels, batch=12, ways=2)(0, "similarity", 0)[0]
    assert (torch.tensor(labels)[row] == 1).sum() == 6


def test_a_batch_that_cannot_hold_two_of_each_class_is_refused() -> None:
    with pytest.raises(InputError, match=r"--similarity.batch 4 holds fewer than two images of each of 3 classes"):
        order_of([0, 0, 1, 1, 2, 2], batch=4)(0)


def test_the_linear_classifier_learns_what_is_separable_wherever_the_features_lie() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(30)
    features = 100 + 20 * torch.nn.functional.one_hot(labels, 6) + torch.randn(120, 6, generator=generator)
    weight, bias = fit_linear(features, labels, 4, seed=0)
    assert ((features @ weight.T + bias).argmax(1) == labels).all()
