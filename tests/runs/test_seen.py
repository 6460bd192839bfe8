"""Images that a run has seen are known by their pixels."""

from pathlib import Path

import numpy as np
import pytest

from autonovel.base.errors import InputError
from autonovel.runs.seen import KnownPixels, write_seen
from tests.runs.made import make_run


@pytest.mark.parametrize("shape", [(8, 8, 1), (5, 7, 3), (64, 64, 3)])
def test_the_same_pixels_are_found_again_and_others_are_not(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    run = make_run(tmp_path / "run", [0, 0, 1, 1, 2, 2], labelled=4)
    images = np.random.default_rng(0).integers(0, 256, (10, *shape), dtype=np.uint8)
    images[7] = images[2]  # an unlabelled copy of a labelled image
    images[9] = images[5]
    assert KnownPixels(run).rows(images) == {}  # of a run that kept nothing
    write_seen(run, images)
    others = images[::-1].copy()
    others[3:5, 0, 0, 0] ^= 1  # what are places 6 and 5 of the run
    expected = {0: 5, 1: 8, 2: 2, 5: 4, 6: 3, 7: 2, 8: 1, 9: 0}
    assert KnownPixels(run).rows(others) == expected
    assert KnownPixels(run).rows(others[:0]) == {}
    assert KnownPixels(run).rows(np.asfortranarray(others)) == expected
    assert KnownPixels(run).rows(others[:, :4]) == {}  # of another size


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00\xff\xff{", np.zeros(4), np.zeros((6, 3), np.uint64)])
def test_marks_that_no_run_writes_are_named(tmp_path: Path, content: bytes | np.ndarray) -> None:
    run = make_run(tmp_path / "run", [0, 0, 1, 1, 2, 2], labelled=4)
    path = run.path / "seen.npy"
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content)
    with pytest.raises(InputError, match="seen.npy is damaged"):
        KnownPixels(run)


def test_a_change_where_the_quick_mark_does_not_look_is_seen(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0, 0], labelled=0)
    images = np.zeros((2, 64, 64, 3), dtype=np.uint8)
    images[1, 3, 3, 1] = 1
    write_seen(run, images)
    changed = images.copy()
    changed[:, 9, 9, 2] = 1
    assert KnownPixels(run).rows(images) == {0: 0, 1: 1}
    assert KnownPixels(run).rows(changed) == {}
