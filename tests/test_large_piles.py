"""A pile that is too large to be looked at as a whole: a run on described features, and everything that is done with one."""

import csv
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import autonovel as an
from autonovel.answers import sampled
from autonovel.api import features as api_features
from autonovel.base.errors import InputError
from autonovel.data.reading.described import Described, Made, Rows, as_file, finish, read_part, write_file
from autonovel.maths.metrics import cluster_accuracy
from autonovel.report.session import Session

pytest.importorskip("pyarrow")

KNOWN, NEW, EACH, RARE, WIDTH, SHARD = 5, 4, 220, 24, 24, 300
CLASSES = KNOWN + NEW + 1


def drawn(classes: np.ndarray, seed: int) -> np.ndarray:
    middles = np.random.default_rng(0).normal(size=(CLASSES, WIDTH)) * 2
    return (middles[classes] + np.random.default_rng(seed).normal(size=(len(classes), WIDTH))).astype(np.float16)


def described(folder: Path, classes: np.ndarray, labelled: bool, *, pictures: bool = False) -> Described:
    """A folder of features as describe leaves it, of images in tar shards."""
    folder.mkdir()
    made, parts, features = Made("digest", "small", 8, 8, 3, WIDTH), [], drawn(classes, 7 if labelled else 8)
    for number, start in enumerate(range(0, len(classes), SHARD)):
        here = range(start, min(start + SHARD, len(classes)))
        tar = f"{folder}-{number}.tar"
        names = [f"{row:06d}.png" for row in here]
        if pictures:
            with tarfile.open(tar, "w") as file:
                for row, name in zip(here, names, strict=True):
                    Image.new("RGB", (8, 8), (int(classes[row]) * 20, 0, 0)).save(content := io.BytesIO(), "PNG")
                    member = tarfile.TarInfo(name)
                    member.size = len(content.getvalue())
                    file.addfile(member, io.BytesIO(content.getvalue()))
        columns = [[f"{tar}/{name}" for name in names], [tar] * len(names), names]
        columns += [[f"class {classes[row]}" if labelled else None for row in here], [b"0" * 22] * len(names)]
        rows = Rows(*(np.array(column, dtype=object) for column in columns), features[start : here.stop])
        write_file(folder, number, as_file(made, tar, "stamp", rows))
        part = read_part(folder, number, made)
        assert part is not None
        parts.append(part)
    return finish(folder, made, parts)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[an.Run, np.ndarray, Path]:
    """A run on a pile with two known classes, four new ones and a rare one, its truth, and the folder of everything."""
    folder = tmp_path_factory.mktemp("large")
    sizes = [EACH // 2] * 2 + [0] * (KNOWN - 2) + [EACH] * NEW + [RARE]
    truth = np.random.default_rng(1).permutation(np.repeat(np.arange(CLASSES), sizes))
    described(folder / "known", np.repeat(np.arange(KNOWN), 40), True)
    described(folder / "pile", truth, False, pictures=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api_features, "LARGE", 500)
        patch.setattr("autonovel.api.large.SAMPLE", 350)
        run = an.discover(folder / "known", folder / "pile", features=True, out=folder / "run", seed=1, verbose=False)
    return run, truth, folder


def test_every_image_has_an_answer_and_the_rare_class_is_there(large: tuple[an.Run, np.ndarray, Path]) -> None:
    run, truth, folder = large
    assert len(run.predictions) == len(truth)
    assert cluster_accuracy(truth, run.labels) > 0.97
    rare = run.labels[truth == CLASSES - 1]
    assert (run.labels == np.bincount(rare).argmax()).sum() == pytest.approx(RARE, abs=3)
    said = run.summary["sampled"]
    assert said["rows"] == 350
    assert said["agreement"] > 0.9
    names = np.array([row.name for row in run.predictions])
    assert (names[truth == 0] == "class 0").mean() > 0.9
    assert (names[truth == 1] == "class 1").mean() > 0.9
    ids = [row.image for row in run.predictions]
    assert ids == [image for part in Described(folder / "pile").parts() for image in part.images.tolist()]
    with (run.path / "predictions.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["image"] for row in table] == ids
    shards = [len(rows) for rows in (truth[start : start + SHARD] for start in range(0, len(truth), SHARD))]
    from pyarrow import parquet

    found = sorted((run.path / "predictions").iterdir())
    assert [parquet.read_metadata(file).num_rows for file in found] == shards
    assert not list(an.load(run.path).edits)


def test_a_small_pile_has_the_answers_of_today(tmp_path: Path) -> None:
    truth = np.repeat(np.arange(CLASSES), 20)
    described(tmp_path / "known", np.repeat(np.arange(KNOWN), 20), True)
    pile = described(tmp_path / "pile", truth, False)
    run = an.discover(
        tmp_path / "known", tmp_path / "pile", features=True, out=tmp_path / "a", verbose=False, report=False
    )
    arrays = drawn(np.repeat(np.arange(KNOWN), 20), 7), np.repeat(np.arange(KNOWN), 20)
    plain = an.discover(arrays, drawn(truth, 8), features=True, out=tmp_path / "b", verbose=False, report=False)
    assert run.parts is None
    assert run.labels.tolist() == plain.labels.tolist()
    assert [a.probability for a in run.predictions] == [a.probability for a in plain.predictions]
    assert pile.n_rows == len(run.predictions)


def test_what_a_person_does_with_it(large: tuple[an.Run, np.ndarray, Path], tmp_path: Path) -> None:
    run, truth, folder = large
    new = [cluster for cluster in run.clusters if cluster.kind == "new"]
    first, second = new[0], new[1]
    image = run.predictions[int(first.members[0])].image
    run.name(first.number, "heron")
    run.move([image.rpartition("/")[2]], second.number)
    run.move([run.predictions[int(first.members[1])].image], second.number)
    assert (run.labels[first.members[:2]] == run.classes.index(second.name)).all()
    run.undo().undo()
    before = run.labels.copy()
    run.split(second.number, 2)
    parts = np.unique(run.labels[second.members])
    assert len(parts) == 2
    further = run.predict(drawn(truth, 8)[second.members].astype(np.float32))
    assert len({answer.cluster for answer in further}) == 2
    run.undo()
    assert (run.labels == before).all()
    run.merge(first.number, second.number)
    assert len(run.clusters) == len(new) - 1 + sum(c.kind == "known" for c in run.clusters)
    run.undo()
    again = run.predict(drawn(truth, 8).astype(np.float32))
    assert [a.name for a in again] == [a.name for a in run.predictions]
    run.export(tmp_path / "labels.csv", format="csv")
    with (tmp_path / "labels.csv").open() as file:
        assert [row["name"] for row in csv.DictReader(file)] == [a.name for a in run.predictions]
    run.undo()
    command = [sys.executable, "-m", "autonovel", "show", str(run.path), "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert json.loads(shown.stdout)["sampled"]["agreement"] > 0.9


def test_the_page_reads_pictures_from_the_shards(large: tuple[an.Run, np.ndarray, Path]) -> None:
    run, truth, _ = large
    session = Session(an.load(run.path))
    state = session.state()
    assert state["images"] == len(truth)
    assert sum(card["size"] for card in state["clusters"]) == len(truth)
    assert state["sheets"]["count"] == 0
    for row in (0, 301, len(truth) - 1):
        with Image.open(io.BytesIO(session.picture(row))) as picture:
            assert abs(picture.getpixel((4, 4))[0] - truth[row] * 20) < 8
    card = state["clusters"][0]
    listed = session.images_of(card["number"], "typical")
    assert listed["rows"][: len(card["typical"])] == card["typical"]
    assert session.images_of(card["number"], "file")["rows"] == sorted(listed["rows"])
    known = session.image(301)
    assert known["name"].endswith("000301.png")
    alike = truth[[other["row"] for other in known["neighbours"]]]
    assert (alike == truth[301]).mean() > 0.8
    found = session.search("0301.PNG")
    assert (found["total"], found["rows"]) == (1, [301])
    assert found["names"] == [known["name"]]
    lines = list(csv.reader(io.StringIO("".join(session.table()))))
    assert len(lines) == len(truth) + 1
    assert len(session.map()) == 4 + 16 * len(truth)
    assert "data:image/jpeg" in (run.path / "report.html").read_text()


def test_the_same_command_again_does_nothing_and_others_are_refused(large: tuple[an.Run, np.ndarray, Path]) -> None:
    run, _, folder = large
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api_features, "LARGE", 500)
        given = folder / "known", folder / "pile"
        again = an.discover(*given, features=True, out=run.path, seed=1, verbose=False)
        assert again.summary == run.summary
        with pytest.raises(InputError, match="holds another run"):
            an.discover(*given, features=True, out=run.path, seed=2, verbose=False)


def test_estimate_counts_in_the_samples_and_discover_goes_on_in_its_folder(
    large: tuple[an.Run, np.ndarray, Path], tmp_path: Path
) -> None:
    run, _, folder = large
    given = folder / "known", folder / "pile"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api_features, "LARGE", 500)
        patch.setattr("autonovel.api.large.SAMPLE", 350)
        whole = an.estimate(*given, features=True, out=tmp_path / "run", seed=1, verbose=False)
        with pytest.raises(InputError, match="holds another run"):
            an.discover(*given, features=True, out=tmp_path / "run", seed=2, verbose=False)
        again = an.discover(*given, features=True, out=tmp_path / "run", seed=1, verbose=False, report=False)
    assert whole.interval is not None
    assert whole.interval[0] <= NEW + 1 <= whole.interval[1]
    said = again.summary["sampled"]
    assert whole.n_new == max(said["numbers"])
    assert again.summary["n_new"] == again.summary["n_new_estimated"] == whole.n_new + said["rare"]
    assert again.labels.tolist() == run.labels.tolist()


@pytest.mark.parametrize("most", [7, 40, 1000])
def test_an_even_share_takes_as_many_of_each_class(most: int) -> None:
    import torch

    labels = torch.from_numpy(np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [5, 20, 100])))
    rows = sampled.even_share(labels, most)
    sizes = np.bincount(labels[rows].numpy(), minlength=3)
    assert len(rows) <= most
    assert sizes.max() - sizes.min() <= 1 or sizes[0] == 5


def test_the_next_round_goes_on_with_names_and_the_features_that_are_there(
    large: tuple[an.Run, np.ndarray, Path], tmp_path: Path
) -> None:
    run, truth, folder = large
    number = next(c.number for c in run.clusters if (truth[c.members] == KNOWN).mean() > 0.9)
    run.name(number, "heron")
    given = drawn(truth, 8).astype(np.float32)
    np.save(tmp_path / "more.npy", given)
    command = [sys.executable, "-m", "autonovel", "discover", "--from", str(run.path), "--out", str(tmp_path / "next")]
    done = subprocess.run([*command, "--no-report", "--json"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "1 cluster is a known class now (heron" in done.stderr
    again = an.load(tmp_path / "next")
    assert "heron" in again.classes[: again.summary["n_known"]]
    rows = np.array([int(answer.image[-10:-4]) for answer in again.predictions])
    assert set(rows) == set(np.flatnonzero(run.labels != run.classes.index("heron")))
    assert cluster_accuracy(truth[rows], again.labels) > 0.95
    command = [sys.executable, "-m", "autonovel", "predict", str(again.path), str(tmp_path / "more.npy"), "--features"]
    said = subprocess.run(
        [*command, "--pile", "mixed", "--to", str(tmp_path / "more.csv")], capture_output=True, text=True, timeout=120
    )
    assert said.returncode == 0, said.stderr
    with (tmp_path / "more.csv").open() as file:
        names = np.array([row["name"] for row in csv.DictReader(file)])
    assert (names[truth == KNOWN] == "heron").mean() > 0.95
    run.undo()
