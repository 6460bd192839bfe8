"""A run folder of which a file is cut off, gone, or of another run: every reader says which one in a sentence."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autonovel.answers.judge import FILE as JUDGE
from autonovel.answers.judge import Judge
from autonovel.api.run import Run, load
from autonovel.base.errors import InputError
from autonovel.report.html import write_report
from autonovel.report.plots import draw_clusters
from autonovel.report.session import Session
from autonovel.runs import checksums
from autonovel.runs.files import FORMAT
from tests.report.made import digits_run


def shorter(content: bytes) -> bytes:
    """The same array with half of the rows."""
    rows, buffer = np.load(io.BytesIO(content)), io.BytesIO()
    np.save(buffer, rows[: len(rows) // 2])
    return buffer.getvalue()


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda content: None,
    "empty": lambda content: b"",
    "cut off": lambda content: content[: len(content) // 2],
    "something else": lambda content: b"\xff\x00 something else",
}
READERS: tuple[Callable[[Run], object], ...] = (
    lambda run: run.clusters,
    lambda run: run.predictions,
    lambda run: run.typicality,
    lambda run: run.map.sum(),
    lambda run: run.thumbnails and run.thumbnails.image(int(run.thumbnails.rows[0])),
    lambda run: run.unlabelled,
    lambda run: run.neighbours(3),
    lambda run: Session(run).state(),
    lambda run: Session(run).map(),
    lambda run: Session(run).image(3),
    lambda run: run.split(0),
    write_report,
    draw_clusters,
    Judge.read,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = digits_run(tmp_path_factory.mktemp("whole") / "run", n=40)
    with run.whole(JUDGE) as path, path.open("wb") as file:
        np.savez(file, centres=np.zeros((2, 2), np.float32), numbers=np.zeros(3))
    run.remove(checksums.FILE)  # by which any change would be seen
    return run.path


def refusals(whole: Path, folder: Path, file: str, content: bytes | None) -> set[str]:
    """What is said by those that read the file; nobody may end otherwise than with an answer or a sentence."""
    said = set()
    for number, read in enumerate(READERS):
        run = Path(shutil.copytree(whole, folder / str(number)))
        (run / file).unlink()
        if content is not None:
            (run / file).write_bytes(content)
        try:
            read(load(run))
        except InputError as error:
            said.add(str(error))
    return said


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize(
    "file",
    [
        *("config.json", "summary.json", "predictions.csv", "images.csv", "features.npy", "map.npy", JUDGE),
        *("thumbnails/index.json", "thumbnails/order.npy", "thumbnails/00000.jpg"),
    ],
)
def test_a_damaged_file_is_named(whole: Path, tmp_path: Path, file: str, how: str) -> None:
    said = refusals(whole, tmp_path, file, DAMAGE[how]((whole / file).read_bytes()))
    if how == "gone" and file in ("images.csv", "map.npy", "thumbnails/index.json", "summary.json", JUDGE):
        return  # which a run may lack
    assert said
    assert all(file in sentence for sentence in said), said


@pytest.mark.parametrize("file", ["features.npy", "map.npy", "thumbnails/order.npy"])
def test_an_array_of_another_run_is_named(whole: Path, tmp_path: Path, file: str) -> None:
    said = refusals(whole, tmp_path, file, shorter((whole / file).read_bytes()))
    assert said
    assert all(file in sentence and "rows" in sentence for sentence in said), said


def test_labelled_features_of_another_network_are_named(whole: Path, tmp_path: Path) -> None:
    run = load(shutil.copytree(whole, tmp_path / "run"))
    np.save(run.path / "features-labelled.npy", run.features[:, 1:])
    with pytest.raises(InputError, match="features-labelled.npy is damaged"):
        _ = load(run.path).labelled_features


def test_a_list_of_other_images_is_named(whole: Path, tmp_path: Path) -> None:
    lines = (whole / "images.csv").read_bytes().splitlines(keepends=True)
    said = refusals(whole, tmp_path, "images.csv", b"".join(lines[: len(lines) // 2]))
    assert said
    assert any("images.csv is damaged" in sentence for sentence in said)
    # which of two files that do not fit is the wrong one, only its reader knows
    assert all("images.csv is damaged" in sentence or "imagenet.npy is damaged" in sentence for sentence in said), said


@pytest.mark.parametrize("content", [b"{}", b'{"n_new": null}', b'{"n_new": "many"}'])
def test_a_summary_that_says_no_number_is_named(whole: Path, tmp_path: Path, content: bytes) -> None:
    said = refusals(whole, tmp_path, "summary.json", content)
    assert said
    assert all("summary.json is damaged" in sentence for sentence in said), said


@pytest.mark.parametrize("said", ["{}", '{"data": null}', '{"data": {"class_names": 3}}'])
def test_a_config_that_names_no_classes_is_named(whole: Path, tmp_path: Path, said: str) -> None:
    content = f'{{"format": {FORMAT}, "run": {said}}}'.encode()
    said_of_it = refusals(whole, tmp_path, "config.json", content)
    assert said_of_it
    assert all("config.json is damaged" in sentence for sentence in said_of_it), said_of_it


def test_versions_that_are_none_are_named(whole: Path, tmp_path: Path) -> None:
    forged = json.loads((whole / "config.json").read_text()) | {"versions": ["torch"]}
    said = refusals(whole, tmp_path, "config.json", json.dumps(forged).encode())
    assert said
    assert all("config.json is damaged" in sentence for sentence in said), said
