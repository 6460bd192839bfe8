"""Contact sheets: every image is where it is said to be, and small ones are sharp."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from autonovel.api.run import Run, load
from autonovel.base.errors import InputError
from autonovel.data.reading.survey import LOOKED_AT
from autonovel.runs import thumbnails
from autonovel.runs.thumbnails import SIDE, write_thumbnails
from tests.runs.made import make_run


def grey(n: int, side: int = 8) -> np.ndarray:
    """Images of one shade each."""
    return np.broadcast_to((np.arange(n) * 7 % 256).astype(np.uint8)[:, None, None, None], (n, side, side, 1))


def test_images_are_read_in_the_size_that_a_thumbnail_has() -> None:
    assert LOOKED_AT == SIDE


def test_every_image_is_where_it_is_said_to_be(tmp_path: Path) -> None:
    groups = [row % 3 for row in range(596)]
    run = make_run(tmp_path / "run", groups)
    run.write_thumbnails(grey(600))
    found = load(run.path).thumbnails
    assert found is not None
    assert (found.count, found.side, found.cells, found.sheets) == (600, 64, 256, 3)
    places = {found.place(row) for row in range(600)}
    assert len(places) == 600
    for row in range(0, 600, 7):
        assert np.abs(np.asarray(found.image(row)).astype(int) - row * 7 % 256).max() <= 3
    # images of one cluster lie together: 199 of them are on two sheets, not on three
    members = run.unlabelled[run.clusters[0].members]
    assert len({found.place(row)[0] for row in members}) <= 2
    assert found.sheet(0)[:2] == b"\xff\xd8"
    with pytest.raises(InputError, match="There is no sheet 3"):
        found.sheet(3)
    with pytest.raises(InputError, match="Image 600 of .* has no thumbnail"):
        found.place(600)


@pytest.mark.parametrize(
    ("shape", "size"), [((8, 8), (64, 64)), ((28, 28), (56, 56)), ((32, 20), (40, 64)), ((200, 100), (32, 64))]
)
def test_small_images_are_enlarged_without_blur_and_large_ones_reduced(
    shape: tuple[int, int], size: tuple[int, int]
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    fitted = thumbnails._fitted(Image.fromarray(pixels))
    assert fitted.size == size
    if max(shape) <= 64:
        factor = size[1] // shape[0]
        assert np.array_equal(np.asarray(fitted), pixels.repeat(factor, 0).repeat(factor, 1))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_any_number_of_channels(tmp_path: Path, channels: int) -> None:
    run = Run(tmp_path / "run")
    write_thumbnails(run, np.full((5, 8, 8, channels), 200, dtype=np.uint8))
    found = thumbnails.read_thumbnails(run)
    assert found is not None
    assert found.image(4).mode == ("RGB" if channels >= 3 else "L")
    assert found.rows.tolist() == list(range(5))


def test_of_too_many_images_small_classes_are_there_whole(tmp_path: Path) -> None:
    groups = [0] * 900 + [1] * 60 + [2] * 10
    run = make_run(tmp_path / "run", groups, labelled=30)
    write_thumbnails(run, grey(1000), at_most=200)
    found = run.thumbnails
    assert found is not None
    assert found.count <= 200
    has = np.array([found.has(row) for row in range(1000)])
    unlabelled = has[30:]
    assert has[:30].all()
    assert unlabelled[960:].all()
    assert unlabelled[900:960].all()
    kept = np.flatnonzero(unlabelled[:900])
    assert len(kept) == 100
    assert np.diff(kept).max() <= 10  # evenly spaced


def test_images_are_read_sheet_by_sheet(tmp_path: Path) -> None:
    class Pile:
        """As much of an array as is needed, which counts what is asked of it."""

        most = 0

        def __len__(self) -> int:
            return 2000

        def __getitem__(self, rows: np.ndarray) -> np.ndarray:
            self.most = max(self.most, len(rows))
            return np.zeros((len(rows), 16, 16, 3), dtype=np.uint8)

    pile = Pile()
    write_thumbnails(Run(tmp_path / "run"), pile)  # type: ignore[arg-type]
    assert pile.most == 256


def test_no_images_and_a_run_cut_off_while_writing(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    write_thumbnails(run, np.zeros((0, 8, 8, 1), dtype=np.uint8))
    assert run.thumbnails is not None
    assert run.thumbnails.count == 0
    run.remove(thumbnails.INDEX)
    assert load_thumbnails(run) is None


def load_thumbnails(run: Run) -> object:
    return Run(run.path).thumbnails
