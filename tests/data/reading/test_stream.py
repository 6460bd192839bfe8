"""Files decoded part by part while others are in use."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from autonovel.data.reading import stream, workers
from autonovel.data.reading.decode import Form
from autonovel.data.reading.stream import stream_files

FORM = Form(8, 3)


def write(folder: Path, count: int) -> tuple[list[str], np.ndarray]:
    """Every seventh file is no image."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), np.uint8)
    paths = [folder / f"{i:04d}.png" for i in range(count)]
    for i, path in enumerate(paths):
        if i % 7 == 3:
            path.write_text("not an image")
        else:
            Image.fromarray(pixels[i]).save(path)
    return [str(path) for path in paths], pixels


@pytest.mark.parametrize(("few", "n_workers"), [(10**6, 2), (0, 1), (0, 3)])
@pytest.mark.parametrize("count", [0, 1, 5, 16, 61])
def test_every_file_comes_once_and_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, n_workers: int, count: int
) -> None:
    monkeypatch.setattr(workers, "FEW", few)
    monkeypatch.setattr(stream, "AT_ONCE", 5)  # the rows of the circle are used several times
    paths, pixels = write(tmp_path, count)
    parts = list(stream_files(paths, FORM, workers=n_workers))
    reasons = [reason for part in parts for reason in part.reasons]
    assert [bool(reason) for reason in reasons] == [i % 7 == 3 for i in range(count)]
    usable = np.array([not reason for reason in reasons], dtype=bool)
    found = np.concatenate([np.empty((0, 8, 8, 3), np.uint8), *(part.pixels for part in parts)])
    assert np.array_equal(found, pixels[usable])
    assert all(len(part.reasons) <= 5 for part in parts)


def test_parts_are_smaller_where_images_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PART_BYTES", 3 * FORM.n_bytes)
    paths, _ = write(tmp_path, 7)
    assert [len(part.reasons) for part in stream_files(paths, FORM)] == [3, 3, 1]


def test_leaving_early_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "FEW", 0)
    monkeypatch.setattr(stream, "AT_ONCE", 4)
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    (tmp_path / "files").mkdir()
    paths, _ = write(tmp_path / "files", 40)
    parts = stream_files(paths, FORM, workers=2)
    next(parts)
    assert list(place.iterdir())
    parts.close()  # type: ignore[attr-defined]
    assert not list(place.iterdir())
