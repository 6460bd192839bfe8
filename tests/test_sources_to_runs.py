"""From folders, tables and arrays to finished runs; streaming; the number of classes estimated on the way."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import autonovel as an
from autonovel.api.discover import estimate
from autonovel.base.chance import seeded
from autonovel.base.errors import AutonovelWarning, InputError
from autonovel.data.images import ImageSet
from autonovel.data.loader import DeviceImages, StreamedImages, put_on
from autonovel.data.reading.inputs import Input
from autonovel.discovery import score as scoring
from autonovel.discovery.probes import plan_probes
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter
from autonovel.models.net import build
from autonovel.settings.joint import PairsSettings, SwapSettings
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.training.engine import train
from tests.tiny import joint_method, known_classes

pytestmark = pytest.mark.usefixtures("flags_in_messages")


def quick(recipe: Recipe) -> Recipe:
    """The recipe, small and short."""
    pairs = isinstance(recipe.joint, PairsSettings)
    small = recipe.joint if pairs else SwapSettings(heads=2, hidden=16, projection=8)
    return replace(
        recipe,
        method="autonovel",
        model=replace(recipe.model, width=4),
        pretrain=replace(recipe.pretrain, epochs=1, batch=32),
        supervised=replace(recipe.supervised, epochs=2, batch=32),
        joint=replace(small, epochs=2, batch=32),
    )


def striped(n_classes: int, per_class: int, side: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Classes that differ by the direction and width of stripes."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:side, 0:side]
    images, labels = [], []
    for c in range(n_classes):
        angle = np.pi * c / n_classes
        for _ in range(per_class):
            wave = np.sin((np.cos(angle) * x + np.sin(angle) * y) * (0.8 + 0.1 * (c % 3)) + rng.uniform(0, 6))
            images.append(np.clip(127 + 90 * wave + rng.normal(0, 12, wave.shape), 0, 255))
            labels.append(c)
    return np.array(images, dtype=np.uint8), np.array(labels)


def write_folders(root: Path, n_known: int = 3, n_new: int = 2, per_class: int = 12) -> None:
    images, labels = striped(n_known + n_new, per_class, side=40)
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = root / "known" / f"kind {label}" if label < n_known else root / "pile"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[: 30 + i % 10, : 34 + i % 6]).save(folder / f"{i}.png")


def test_a_finished_run_is_recognised_without_reading_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folders(tmp_path)
    recipe = replace(quick(get_recipe("best")), model=Model(backbone="small", width=4, head="cosine", size=16))

    class Heard(Reporter):
        def __init__(self) -> None:
            self.said: list[str] = []

        def message(self, text: str) -> None:
            self.said.append(text)

    def again(**changed: object) -> list[str]:
        heard = Heard()
        options = {"recipe": recipe, "n_new": 2, "device": "cpu", "report": False} | changed
        an.discover(
            tmp_path / "known", tmp_path / "pile", out=tmp_path / "run", cache=tmp_path / "cache", reporter=heard, **options
        )  # fmt: skip
        return heard.said

    again()
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "run").iterdir() if file.is_file()}
    with monkeypatch.context() as only:
        only.setattr(Input, "load", lambda *_, **__: pytest.fail("an image was read"))
        assert again() == [
            f"{tmp_path / 'run'} is finished already; delete the folder or choose another one to run again."
        ]
    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "run").iterdir() if file.is_file()} == before
    with pytest.raises(InputError, match="seed"):
        again(seed=1)
    changed = next((tmp_path / "pile").iterdir())
    pixels = np.asarray(Image.open(changed))
    Image.fromarray(255 - pixels).save(changed)
    with pytest.raises(InputError, match="another|other|differ"):
        again()
    Image.fromarray(pixels).save(changed)  # the same image in a file of another time is worth a look
    assert any("finished already" in text for text in again())


@pytest.mark.parametrize("objective", ["pairs", "swap"])
def test_streamed_images_give_the_same_weights(objective: str, tmp_path: Path) -> None:
    images, labels = striped(4, 20)
    np.save(tmp_path / "images.npy", images[..., None])
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    data = ImageSet(mapped, np.where(labels < 2, labels, -1), tuple(map(str, range(80))), ("a", "b"))
    base = quick(get_recipe("best" if objective == "swap" else "cifar10"))
    recipe = replace(
        base, model=Model(backbone="small", width=4, head="cosine" if objective == "swap" else "linear", size=16)
    )
    mode, states = Mode.of("cpu"), []
    for kind in (DeviceImages, StreamedImages):
        with seeded(0):
            net = build(recipe.model, channels=1, size=16)
            known_classes(recipe, 2).prepare(net)
            method = joint_method(recipe, 2, 2)
            method.prepare(net)
        source = kind(data, mode.device, size=16)
        net.set_statistics(source.chunks())
        train(net, method, source, mode, key=(0, "joint"))
        states.append(net.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(states[0].values(), states[1].values(), strict=True))


def test_images_are_streamed_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = striped(2, 10)
    data = ImageSet.from_arrays(images, np.where(labels, 0, -1))
    assert isinstance(put_on(torch.device("cpu"), data), DeviceImages)
    monkeypatch.setattr("autonovel.data.loader.free_memory", lambda device: images.nbytes)
    assert isinstance(put_on(torch.device("cpu"), data), StreamedImages)


def test_a_folder_of_pictures_of_mixed_sizes(tmp_path: Path) -> None:
    write_folders(tmp_path)
    (tmp_path / "pile" / "broken.png").write_bytes(b"not a picture")
    run = an.discover(
        tmp_path / "known",
        tmp_path / "pile",
        out=tmp_path / "run",
        n_new=2,
        recipe=quick(get_recipe("folder")),
        device="cpu",
        cache=tmp_path / "cache",
    )
    assert run.summary["n_known"] == 3
    assert run.summary["images"] == {"labelled": 36, "unlabelled": 24}
    assert run.config["run"]["data"]["class_names"] == ["kind 0", "kind 1", "kind 2"]
    assert all(Path(row.image).name.endswith(".png") for row in run.predictions)
    with (run.path / "problems.csv").open(newline="") as file:
        problems = list(csv.reader(file))
    assert any("broken.png" in row[0] for row in problems[1:])


def test_problems_are_listed_before_any_training(tmp_path: Path) -> None:
    class Stops(Reporter):
        def start(self, stage: str, epochs: int, done: int) -> None:
            raise KeyboardInterrupt

    write_folders(tmp_path, n_known=6)
    (tmp_path / "pile" / "broken.png").write_bytes(b"not a picture")
    for verb, out in ((an.discover, tmp_path / "discover"), (estimate, tmp_path / "estimate")):
        options = {"recipe": quick(get_recipe("folder")), "device": "cpu", "cache": tmp_path / "cache"}
        with pytest.raises(KeyboardInterrupt):
            verb(tmp_path / "known", tmp_path / "pile", out=out, reporter=Stops(), **options)
        with (out / "problems.csv").open(newline="") as file:
            assert list(csv.reader(file)) == [
                ["path", "reason", "left_out"],
                [str(tmp_path / "pile" / "broken.png"), "not an image", "yes"],
            ]


def test_a_run_inside_its_own_pile_is_not_part_of_it(tmp_path: Path) -> None:
    write_folders(tmp_path, n_known=6)
    piles = tmp_path / "known", tmp_path / "pile"
    options = {"recipe": quick(get_recipe("folder")), "device": "cpu", "cache": tmp_path / "cache"}
    estimate(*piles, out=tmp_path / "pile" / "runs" / "birds", **options)
    assert (tmp_path / "pile" / "runs" / "birds" / "estimate.png").exists()
    run = an.discover(*piles, out=tmp_path / "pile" / "runs" / "birds", **options)
    assert run.summary["images"]["unlabelled"] == 24
    assert an.discover(*piles, out=run.path, **options).summary == run.summary


def test_one_table_with_empty_labels(tmp_path: Path) -> None:
    write_folders(tmp_path)
    with (tmp_path / "all.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        for path in sorted((tmp_path / "known").rglob("*.png")):
            writer.writerow([path.relative_to(tmp_path), path.parent.name])
        for path in sorted((tmp_path / "pile").glob("*.png")):
            writer.writerow([path.relative_to(tmp_path), ""])
    run = an.discover(
        tmp_path / "all.csv",
        out=tmp_path / "run",
        n_new=2,
        recipe=quick(get_recipe("folder")),
        cache=tmp_path / "cache",
    )
    assert run.summary["images"] == {"labelled": 36, "unlabelled": 24}


@pytest.mark.parametrize("name", ["cifar10", "best"])
def test_the_number_of_new_classes_is_estimated_where_it_is_not_given(name: str, tmp_path: Path) -> None:
    images, labels = striped(14, 12)
    data = ImageSet.from_arrays(images, np.where(labels < 10, labels, -1))
    recipe = quick(get_recipe(name))
    recipe = replace(recipe, model=replace(recipe.model, backbone="small", size=16))
    found = estimate(data, out=tmp_path / "run", recipe=recipe, device="cpu")
    assert (found.method, found.interval) == ("calibrated", None)
    assert "There is no interval: it takes 8 known classes" in found.note
    with Image.open(tmp_path / "run" / "estimate.png") as picture:
        assert picture.format == "PNG"
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10  # lines and words, not an empty page
    # discovery goes on from the same folder
    run = an.discover(data, out=tmp_path / "run", recipe=recipe, device="cpu")
    assert run.summary["n_new"] == run.summary["n_new_estimated"] == found.n_new
    assert run.config["run"]["n_new"] == "auto"
    assert (run.path / "supervised-probe.safetensors").exists()
    # and knows what the estimate took, its own training included
    probe_seconds = float(run.read_tensors("supervised-probe.safetensors")[1]["seconds"])
    assert run.summary["seconds"]["estimate"] > probe_seconds


def test_probe_classes_take_no_part_in_the_training_of_their_features() -> None:
    images, labels = striped(14, 6)
    data = ImageSet.from_arrays(images, np.where(labels < 12, labels, -1))
    plan = plan_probes(data, get_recipe("cifar10").estimate, 3, "images")
    assert plan.trains
    probed = set(data.labels[plan.index].tolist())
    assert len(probed) == 4
    assert plan.n_train == 8
    trained = set(data.labels[plan.train_labels >= 0].tolist())
    assert not probed & trained
    assert probed | trained == set(range(12))
    assert sorted(set(plan.train_labels.tolist())) == list(range(-1, 8))


def test_few_known_classes_leave_the_silhouette_and_a_warning(tmp_path: Path) -> None:
    images, labels = striped(6, 12)
    data = ImageSet.from_arrays(images, np.where(labels < 3, labels, -1))
    recipe = quick(get_recipe("best"))
    recipe = replace(recipe, model=replace(recipe.model, backbone="small", size=16))
    with pytest.warns(AutonovelWarning, match="too few to leave some of them out"):
        found = estimate(data, out=tmp_path / "run", recipe=recipe, device="cpu")
    assert found.method == "silhouette"


def test_families_of_classes_are_held_out_together() -> None:
    images, labels = striped(12, 6)
    names = [f"{'Latin' if c < 5 else 'Greek'}/letter{c:02d}" for c in range(12)]
    data = ImageSet.from_arrays(images, labels, class_names=names)
    settings = get_recipe("omniglot").estimate
    plan = plan_probes(data, settings, 0, "labels")
    assert set(data.labels[plan.index].tolist()) == set(range(5))
    assert not plan.trains
    with pytest.raises(InputError, match="No known class belongs to the probe families"):
        plan_probes(replace(data, class_names=tuple(n.replace("Latin", "Thai") for n in names)), settings, 0, "labels")


@pytest.mark.parametrize("seed", range(5))
def test_random_probe_classes_are_whole_families(seed: int) -> None:
    images, labels = striped(24, 4)
    names = [f"family {c // 4}/kind {c:02d}" for c in range(24)]
    data = ImageSet.from_arrays(images, labels, class_names=names)
    plan = plan_probes(data, get_recipe("characters").estimate, seed, "labels")
    probes = np.unique(data.labels[plan.index])
    assert len(probes) in (4, 8)  # a quarter of them are six
    assert all(count == 4 for count in np.unique(probes // 4, return_counts=True)[1])
    assert plan.train_families is not None
    left = np.setdiff1d(np.arange(24), probes)
    assert plan.train_families.tolist() == (left // 4).tolist()


def test_where_a_family_is_most_of_the_classes_probes_are_single_ones() -> None:
    images, labels = striped(16, 4)
    data = ImageSet.from_arrays(images, labels, class_names=[f"{'a' if c else 'b'}/kind {c:02d}" for c in range(16)])
    plan = plan_probes(data, get_recipe("characters").estimate, 0, "labels")
    assert len(np.unique(data.labels[plan.index])) == 4


@pytest.mark.parametrize("sizes", [(2, 8), (3, 3), (3, 4), (1, 5), (9, 2, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_awkward_families_leave_as_many_probes_as_single_classes_would(sizes: tuple[int, ...], seed: int) -> None:
    classes = sum(sizes)
    images, labels = striped(classes, 4)
    family = np.repeat(np.arange(len(sizes)), sizes)
    flat = ImageSet.from_arrays(images, labels, class_names=[f"kind {c:02d}" for c in range(classes)])
    names = tuple(f"{family[c]}/kind {c:02d}" for c in range(classes))
    settings = get_recipe("characters").estimate
    plan, single = (plan_probes(data, settings, seed, "labels") for data in (replace(flat, class_names=names), flat))
    assert len(plan.index) >= len(single.index) > 0
    assert plan.n_train >= 2
    if plan.train_families is not None:
        assert len(plan.train_families) == plan.n_train
        assert len(set(plan.train_families.tolist())) > 1


def test_small_families_of_classes_are_one_probe_set() -> None:
    images, labels = striped(16, 4)
    data = ImageSet.from_arrays(images, labels, class_names=[f"family {c // 2}/kind {c:02d}" for c in range(16)])
    plan = plan_probes(data, get_recipe("best").estimate, 0, None)
    assert len(set(data.labels[plan.index].tolist())) == 4
    assert plan.groups is None


def test_clustering_without_any_label(tmp_path: Path) -> None:
    images, _ = striped(3, 20)
    recipe = quick(get_recipe("cluster"))
    run = an.cluster(images, 3, out=tmp_path / "run", recipe=recipe, device="cpu", cache=tmp_path / "cache")
    assert run.summary["n_known"] == 0
    assert len(run.labels) == 60
    assert not (run.path / "supervised.safetensors").exists()


def test_labels_of_what_is_clustered_are_not_used(tmp_path: Path) -> None:
    images, labels = striped(3, 8)
    data = ImageSet.from_arrays(images, np.where(labels < 2, labels, -1))
    recipe = quick(get_recipe("cluster"))
    run = an.cluster(data, 3, out=tmp_path / "run", recipe=recipe, device="cpu")
    assert run.summary["n_known"] == 0
    assert len(run.labels) == 24


def test_the_test_split_is_seen_in_the_size_of_the_training_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = striped(2, 8, side=72)
    sides = []

    def noted(*arguments: object, **options: object) -> object:
        sides.append((found := put_on(*arguments, **options)).side)
        return found

    monkeypatch.setattr(scoring, "put_on", noted)
    truth = an.Truth(labels, ("a", "b"), images[:4, ..., None], labels[:4])
    recipe = quick(get_recipe("cluster"))
    run = an.cluster(ImageSet.from_arrays(images), 2, out=tmp_path / "run", recipe=recipe, truth=truth, device="cpu")
    assert run.config["run"]["data"]["shape"] == [64, 64, 1]
    assert sides == [64]


def test_the_number_of_new_classes_may_be_any_kind_of_whole_number(tmp_path: Path) -> None:
    images, labels = striped(4, 6)
    recipe = quick(get_recipe("folder"))
    pile = (images[labels < 2], labels[labels < 2]), images[labels >= 2]
    run = an.discover(*pile, out=tmp_path / "run", n_new=np.int64(2), recipe=recipe, device="cpu")
    assert run.config["run"]["n_new"] == 2


def test_n_new_must_be_a_number_or_auto(tmp_path: Path) -> None:
    images, labels = striped(3, 4)
    with pytest.raises(InputError, match="give a whole number or 'auto'"):
        an.discover((images, np.where(labels < 2, labels, -1)), out=tmp_path / "run", n_new="many")
