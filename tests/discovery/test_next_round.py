"""The next round: what a person said about the clusters of a run is what the following run knows."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import autonovel as an
from autonovel.api.run import Run, load
from autonovel.base.errors import InputError
from autonovel.cli.main import main
from autonovel.data.images import ImageSet
from autonovel.data.reading.inputs import Input, open_input
from autonovel.discovery import run_stages as walk
from autonovel.discovery.next_round import asked_again, next_round
from autonovel.machine.progress import Reporter
from autonovel.maths.count.result import ClassEstimate
from autonovel.settings.fields import tidied
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.settings.resolve import Asked, Facts, resolve
from tests.small_data import class_images

KNOWN, NEW, PER_CLASS, SIDE = 2, 4, 10, 16


def quick() -> Recipe:
    recipe = get_recipe("digits", "fast")
    return replace(
        recipe,
        method="kmeans",
        model=replace(recipe.model, networks=1, width=4),
        supervised=replace(recipe.supervised, batch=8),
    )


def write(folder: Path, classes: range, seed: int, per_class: int = PER_CLASS, *, apart: bool) -> Path:
    truth = np.repeat(np.array(classes), per_class)
    for i, (label, image) in enumerate(zip(truth, class_images(truth, SIDE, seed, KNOWN + NEW), strict=True)):
        file = folder / (f"kind {label}" if apart else ".") / f"{label}-{seed}-{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write(tmp_path / "known", range(KNOWN), 0, apart=True)
    write(tmp_path / "pile", range(KNOWN, KNOWN + NEW), 1, apart=False)
    return tmp_path


@pytest.fixture
def first(place: Path) -> Run:
    """A finished run on files that nobody has edited."""
    return an.discover(
        place / "known", place / "pile", out=place / "run", n_new=NEW, recipe=quick(), device="cpu", report=False
    )


@pytest.fixture
def arrays(place: Path) -> tuple[ImageSet, Run]:
    """The same pixels from no files, and a run on them."""
    loaded = open_input(place / "known", place / "pile").load().images
    data = replace(loaded, sources=())
    return data, an.discover(data, out=place / "run", n_new=NEW, recipe=quick(), device="cpu", report=False)


def members(run: Run, number: int) -> list[str]:
    return [run.machine.images[row] for row in run.state.members[number]]


def named_of(images: ImageSet) -> dict[str, str | None]:
    """The class of every image, by id."""
    return {
        image: None if label < 0 else images.class_names[label]
        for image, label in zip(images.ids, images.labels.tolist(), strict=True)
    }


def images_of(given: ImageSet | Input) -> ImageSet:
    return given if isinstance(given, ImageSet) else given.load().images


def edit(run: Run) -> tuple[str, str]:
    """Name two clusters, mark one, move an image from the fourth into a named one and one into a known class."""
    run.name(0, "heron").name(1, "stork").mark(2, "not a class")
    to_heron, to_known = members(run, 3)[:2]
    run.move([to_heron], 0).move([to_known], "kind 1")
    return to_heron, to_known


class Listener(Reporter):
    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


def test_edits_become_labels_and_all_else_is_sorted_again(first: Run, place: Path) -> None:
    clusters = {number: members(first, number) for number in range(NEW)}
    to_heron, to_known = edit(first)
    taken = next_round(first)
    found = images_of(taken.given)
    expected = {record.image: record.label for record in first.images if record.label is not None}
    expected |= dict.fromkeys(clusters[0], "heron") | dict.fromkeys(clusters[1], "stork") | dict.fromkeys(clusters[3])
    expected |= {to_heron: "heron", to_known: "kind 1"}
    assert named_of(found) == expected
    assert found.class_names == ("kind 0", "kind 1", "heron", "stork")
    paths = {record.image: (record.source, record.path) for record in first.images}
    assert all(source[:2] == paths[image] for image, source in zip(found.ids, found.sources, strict=True))
    assert taken.sentence == (
        f"2 clusters are known classes now (heron {len(clusters[0]) + 1}, stork {len(clusters[1])}), "
        f"2 images were moved by hand, {len(clusters[2])} images are left out (1 cluster that is not a class), "
        f"{len(clusters[3]) - 2} images are to be sorted again"
    )


def test_further_images_join_the_pile_once_and_what_was_left_out_does_not_come_back(first: Run, place: Path) -> None:
    edit(first)
    gone = {Path(record.source).name for record in first.images} & {Path(i).name for i in members(first, 2)}
    alone = images_of(next_round(first).given)
    write(place / "pile", range(KNOWN + 1, KNOWN + 2), 7, 5, apart=False)  # the same folder, with five more images
    taken = next_round(first, place / "pile")
    found = images_of(taken.given)
    names = [Path(image).name for image in found.ids]
    assert len(names) == len(set(names)) == len(alone) + 5
    assert gone
    assert not gone & set(names)
    assert named_of(found).items() >= named_of(alone).items()
    assert all(named_of(found)[image] is None for image in found.ids if "-7-" in Path(image).name)
    assert taken.sentence.endswith("to be sorted again, with 5 further ones")


def test_further_images_may_be_arrays_or_read_before(first: Run, place: Path) -> None:
    edit(first)
    alone = images_of(next_round(first).given)
    pixels = class_images(np.array([2, 3, 4]), SIDE, 9, KNOWN + NEW)
    assert len(images_of(next_round(first, pixels).given)) == len(alone) + 3
    write(place / "more", range(KNOWN, KNOWN + 1), 8, 4, apart=False)
    again = open_input(None, place / "pile").load().images
    further = open_input(None, place / "more").load().images
    both = ImageSet(
        np.concatenate([again.images, further.images]),
        np.concatenate([again.labels, further.labels]),
        again.ids + further.ids,
        (),
        again.sources + further.sources,
    )
    assert len(images_of(next_round(first, both).given)) == len(alone) + 4


def test_merged_and_marked_clusters_are_known_without_a_name(first: Run) -> None:
    sizes = {number: len(members(first, number)) for number in range(NEW)}
    first.merge(1, 2).mark(0, "kind 1")
    taken = next_round(first)
    found = images_of(taken.given)
    assert found.class_names == ("kind 0", "kind 1", "new 1")
    assert (found.labels == 2).sum() == sizes[1] + sizes[2]
    assert (found.labels == 1).sum() == PER_CLASS + sizes[0]
    assert (found.labels == -1).sum() == sizes[3]
    assert "2 clusters are known classes now" in taken.sentence


def test_a_merged_cluster_that_was_split_again_or_undone_is_no_class(first: Run) -> None:
    first.merge(1, 2).name(0, "heron").split(1)
    assert images_of(next_round(first).given).class_names == ("kind 0", "kind 1", "heron")
    first.undo().dissolve(1)
    assert images_of(next_round(first).given).class_names == ("kind 0", "kind 1", "heron")
    first.undo()
    assert "new 1" in images_of(next_round(first).given).class_names
    first.undo().undo().name(3, "stork")
    assert images_of(next_round(first).given).class_names == ("kind 0", "kind 1", "stork")


def test_a_merged_cluster_stays_a_class_where_regrouping_keeps_it(first: Run) -> None:
    # features in which clusters 1 and 2 lie close together, whatever the network of the run has learned
    heaps = np.array([[9, 0], [0, 1], [0, 2], [0, -9]])[first.machine.group]
    first.write_array("features.npy", (heaps + np.random.default_rng(0).normal(0, 0.2, heaps.shape)).astype(np.float16))
    first.write_array("features-labelled.npy", np.full((KNOWN * PER_CLASS, 2), 30, np.float16))
    first = load(first.path).mark(0, "not a class").merge(1, 2)
    more, kept = class_images(np.array([2, 3]), SIDE, 9, 6), []
    for k in (2, 9):
        first.regroup(k)
        kept.append(1 in first.edits[-1]["kept"])
        assert ("new 1" in images_of(next_round(first, more).given).class_names) == kept[-1]
        first.undo()
    assert kept == [True, False]


def test_a_whole_second_round(first: Run, place: Path) -> None:
    edit(first)
    write(place / "more", range(KNOWN + 3, KNOWN + 4), 5, apart=False)
    listener = Listener()
    second = an.discover(
        None, place / "more", continue_from=place / "run", out=place / "second", n_new=2, device="cpu", report=False,
        reporter=listener,
    )  # fmt: skip
    assert second.finished
    assert second.classes == ("kind 0", "kind 1", "heron", "stork", "new 0", "new 1")
    assert len(second.machine.images) == len(members(first, 3)) + PER_CLASS
    assert any(said.startswith("2 clusters are known classes now (heron") for said in listener.said)
    continued = second.summary["continued_from"]
    assert continued["run"] == str(first.path.resolve())
    assert continued["taken"] in listener.said
    assert second.config["run"]["recipe"] == first.config["run"]["recipe"]
    second.name(0, "ibis").name(1, "crane")
    with pytest.raises(InputError, match="Every image of .* has a class now"):
        next_round(second)
    third = images_of(next_round(second, class_images(np.array([2, 3]), SIDE, 9, 6)).given)
    assert third.class_names == ("kind 0", "kind 1", "heron", "stork", "ibis", "crane")


def test_arrays_are_given_again(arrays: tuple[ImageSet, Run], place: Path) -> None:
    data, run = arrays
    edit(run)
    with pytest.raises(InputError, match="did not come from files"):
        next_round(run)
    found = next_round(run, images=data).given
    assert isinstance(found, ImageSet)
    kept = [i for i, image in enumerate(data.ids) if image not in set(members(run, 2))]
    assert found.ids == tuple(data.ids[i] for i in kept)
    assert np.array_equal(found.images, data.images[kept])
    assert (found.labels >= 0).sum() == len(kept) - len(members(run, 3))
    assert named_of(images_of(next_round(run, images=data.images).given)) == named_of(found)
    more = class_images(np.array([2, 3]), SIDE, 9, 6)
    second = an.discover(data, more, continue_from=run, out=place / "second", n_new=2, device="cpu", report=False)
    assert len(second.images) == len(found) + 2
    with pytest.raises(InputError, match="are not those of the run"):
        next_round(run, images=data.images[::-1])
    with pytest.raises(InputError, match="had 60 images, but 59 are given"):
        next_round(run, images=data.images[1:])
    with pytest.raises(InputError, match="labelled images come from the run"):
        next_round(run, images=place / "known")


def test_arrays_that_the_run_had_resized_are_recognised(place: Path) -> None:
    truth = np.repeat(np.arange(KNOWN + NEW), PER_CLASS)
    images = class_images(truth, 12, 0, KNOWN + NEW)
    labels = np.where(truth < KNOWN, truth, -1)
    run = an.discover((images, labels), out=place / "run", n_new=NEW, recipe=quick(), device="cpu", report=False)
    run.name(0, "heron")
    assert images_of(next_round(run, images=images).given).class_names == ("0", "1", "heron")


def test_missing_files_are_listed_and_too_many_refused(first: Run) -> None:
    edit(first)
    lost = [Path(record.source) for record in first.images if record.label == "kind 0"]
    lost[0].unlink()
    loaded = next_round(first).given.load()  # type: ignore[union-attr]
    assert [(problem.path, problem.reason) for problem in loaded.problems] == [(str(lost[0]), "no such file")]
    for path in lost[1:]:
        path.unlink()
    with pytest.raises(InputError, match="images cannot be used"):
        next_round(first).given.load()  # type: ignore[union-attr]


def test_there_must_be_something_to_go_on(first: Run, place: Path) -> None:
    with pytest.raises(InputError, match="Nobody has named a cluster"):
        next_round(first, place / "pile")
    first.name(0, "heron")
    with pytest.raises(InputError, match="give another folder as out"):
        an.discover(continue_from=first, out=place / "run")
    (place / "run" / "summary.json").unlink()
    with pytest.raises(InputError, match="is not finished"):
        next_round(load(place / "run"))


def test_a_run_without_known_classes_needs_two_names(place: Path) -> None:
    run = an.cluster(place / "pile", NEW, out=place / "run", recipe=quick(), device="cpu", report=False)
    run.mark(3, "not a class")
    with pytest.raises(InputError, match="no class is known"):
        next_round(run)
    run.name(0, "heron")
    with pytest.raises(InputError, match="only 'heron' is known"):
        next_round(run)
    run.name(1, "stork")
    assert images_of(next_round(run).given).class_names == ("heron", "stork")


def test_what_was_asked_for_is_asked_again(first: Run) -> None:
    assert asked_again(first).get() == tidied(quick())
    assert asked_again(first, "fast") == asked_again(first)
    slow = asked_again(first, "paper").get()
    assert (slow.preset, slow.method, slow.model.networks, slow.model.width) == ("paper", "kmeans", 1, 4)


@pytest.mark.parametrize("width", [16, 7])
def test_what_a_person_gave_stays_also_where_it_is_what_would_have_been_chosen(tmp_path: Path, width: int) -> None:
    rng = np.random.default_rng(0)
    few = ImageSet.from_arrays(rng.integers(0, 255, (24, 16, 16, 1), dtype=np.uint8), np.arange(24) % 4 - 1)
    asked = Asked("folder", "fast", {"method": "kmeans", "model.width": width, "supervised.epochs": 1})
    run = an.discover(few, out=tmp_path / "run", recipe=asked, n_new=2, device="cpu", report=False)
    assert run.config["run"]["recipe"]["model"]["width"] == width
    assert run.config["asked"]["values"]["model.width"] == width
    many = Facts(100_000, 5, 5, 32, 3, gpu=True)
    assert resolve(asked_again(run), many).recipe.model.width == width
    assert resolve(Asked("folder", "fast", {"method": "kmeans"}), many).recipe.model.width == 64


def test_a_pile_of_one_class_is_refused_and_leaves_no_folder(
    first: Run, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(first)
    one = ClassEstimate(1, (1, 1), {"k": [1.0], "silhouette": [0.0]}, "silhouette")
    monkeypatch.setattr(walk, "estimate_from", lambda *_: one)
    command = ["discover", "--from", str(first.path), "--out", str(place / "second"), "--device", "cpu"]
    assert main(command) == 2
    assert "looks like a single new class" in capsys.readouterr().err
    assert not (place / "second").exists()
    assert first.path.exists()


def test_on_the_command_line(first: Run, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = place / "second"
    command = ["discover", "--from", str(place / "run"), str(place / "more"), "--out", str(out), "--n-new", "2"]
    command += ["--device", "cpu", "--no-report", "--seed", "3"]
    assert main(command) == 2
    assert "Nobody has named a cluster" in capsys.readouterr().err
    edit(first)
    assert main(command) == 2
    assert "There is no file or folder" in capsys.readouterr().err
    assert not out.exists()
    write(place / "more", range(KNOWN + 3, KNOWN + 4), 5, apart=False)
    assert main(command) == 0
    assert "2 clusters are known classes now (heron" in capsys.readouterr().err
    second = load(out)
    assert second.classes == ("kind 0", "kind 1", "heron", "stork", "new 0", "new 1")
    assert second.config["run"]["recipe"] == first.config["run"]["recipe"]
    assert second.config["run"]["seed"] == 3
    with (out / "images.csv").open() as table:
        labels = [row["label"] for row in csv.DictReader(table)]
    assert labels.count("heron") == len(members(first, 0))
    assert main(command) == 0  # finished: reports again
    first.name(3, "ibis")
    assert main(command) == 2  # the labels are others now
    assert "another" in capsys.readouterr().err.lower()
    assert main([*command[:5], str(place / "run"), *command[6:]]) == 2
    assert "is the run to continue from" in capsys.readouterr().err
    for wrong in (["--data", "digits"], [str(place / "pile")]):
        assert main([*command, *wrong]) == 2
        assert "With --from the known classes come from that run" in capsys.readouterr().err
    assert main(["discover", "--from", str(place / "nothing"), "--out", str(place / "third")]) == 2
    assert "There is no run in" in capsys.readouterr().err
    assert main(["discover", "--help"]) == 0
    assert "With --from, the clusters that you named" in " ".join(capsys.readouterr().out.split())
    assert main(["discover", "--help-all"]) == 0
    assert "--from PATH" in capsys.readouterr().out
