"""Every hostile file is left out with the right reason, every odd but usable one is used, and nothing crashes."""

import csv
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from autonovel.api.run import Run
from autonovel.base.errors import InputError
from autonovel.data.reading.decode import Form, UnusableImageError, decode
from autonovel.data.reading.inputs import load_images
from autonovel.data.reading.problems import PROBLEM_FIELDS, Problem, as_rows
from autonovel.data.reading.workers import PixelFile, decode_files
from tests.hostile import UNUSABLE_CONTENT, UNUSABLE_ENTRIES, USABLE, encoded, picture


def write_good(folder, count, seed=0):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"good{number:03d}.png").write_bytes(encoded("PNG", picture(20, 20, seed=seed * 1000 + number)))


@pytest.fixture
def piles(tmp_path):
    write_good(tmp_path / "labelled" / "a", 6, seed=1)
    write_good(tmp_path / "labelled" / "b", 6, seed=2)
    write_good(tmp_path / "unlabelled", 6, seed=3)
    return tmp_path


def load(piles, **settings):
    return load_images(piles / "labelled", piles / "unlabelled", size=16, channels=3, **settings)


def test_the_corpus_is_large():
    assert len(UNUSABLE_CONTENT) + len(UNUSABLE_ENTRIES) >= 50
    assert len(USABLE) >= 30


@pytest.mark.parametrize("side", ["unlabelled", "labelled/a"])
@pytest.mark.parametrize("name", UNUSABLE_CONTENT)
def test_unusable_content(piles, name, side):
    make, reason = UNUSABLE_CONTENT[name]
    (piles / side / name).write_bytes(make())
    loaded = load(piles)
    assert len(loaded.images) == 18
    [problem] = loaded.problems
    assert problem.path.endswith(name)
    assert problem.left_out
    assert problem.counts
    assert reason in problem.reason, problem.reason
    assert any("1 file left out" in note for note in loaded.notes)


@pytest.mark.skipif(sys.platform == "win32", reason="no such entries there")
@pytest.mark.parametrize("name", UNUSABLE_ENTRIES)
def test_unusable_entries(piles, name):
    make, reason = UNUSABLE_ENTRIES[name]
    make(piles / "unlabelled" / name)
    loaded = load(piles)
    assert len(loaded.images) == 18
    [problem] = loaded.problems
    assert problem.path.endswith(name)
    assert reason in problem.reason


@pytest.mark.parametrize("name", USABLE)
def test_usable_content(piles, name):
    (piles / "unlabelled" / name).write_bytes(USABLE[name]())
    loaded = load(piles)
    assert loaded.problems == []
    assert len(loaded.images) == 19
    assert any(identifier.endswith(name) for identifier in loaded.images.ids)
    assert load_images(piles / "labelled", piles / "unlabelled", size=16, channels=1).images.channels == 1


def test_heic_is_read_where_its_library_is_and_otherwise_says_how_to_get_it(piles, monkeypatch):
    start = b"\0\0\0\x18ftypheic\0\0\0\0"
    (piles / "unlabelled" / "photo.heic").write_bytes(start + b"\0" * 100)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    [problem] = load(piles).problems
    assert 'needs pillow-heif (pip install pillow-heif, or "autonovel[heic]")' in problem.reason
    monkeypatch.delitem(sys.modules, "pillow_heif")
    heif = pytest.importorskip("pillow_heif")
    heif.from_pillow(picture()).save(piles / "unlabelled" / "photo.heic", quality=90)
    loaded = load(piles)
    assert loaded.problems == []
    assert any(identifier.endswith("photo.heic") for identifier in loaded.images.ids)


def test_file_that_cannot_be_opened(piles, monkeypatch):
    target = piles / "unlabelled" / "secret.jpg"
    target.write_bytes(encoded("JPEG"))
    target.chmod(0)
    if os.access(target, os.R_OK):  # the superuser may read everything
        plain = os.open

        def guarded(path, *rest, **more):
            if str(path).endswith("secret.jpg"):
                raise PermissionError(13, "Permission denied")
            return plain(path, *rest, **more)

        monkeypatch.setattr(os, "open", guarded)
    [problem] = load(piles).problems
    assert problem.reason == "cannot be read (Permission denied)"


def test_everything_at_once_with_worker_processes(tmp_path):
    """The whole corpus in one pile among good images, decoded by two processes."""
    write_good(tmp_path / "labelled" / "a", 250, seed=1)
    write_good(tmp_path / "labelled" / "b", 250, seed=2)
    write_good(tmp_path / "unlabelled", 300, seed=3)
    for name, (make, _) in UNUSABLE_CONTENT.items():
        (tmp_path / "unlabelled" / f"x_{name}").write_bytes(make())
    calls = []
    loaded = load(tmp_path, workers=2, progress=lambda done, total: calls.append((done, total)))
    assert len(loaded.images) == 800
    assert len(loaded.problems) == len(UNUSABLE_CONTENT)
    for problem in loaded.problems:
        name = os.path.basename(problem.path).removeprefix("x_")
        assert UNUSABLE_CONTENT[name][1] in problem.reason
    assert calls[-1][0] == calls[-1][1]
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_more_than_a_tenth_unusable_stops(piles):
    for number in range(3):
        (piles / "unlabelled" / f"bad{number}.jpg").write_bytes(b"bad")
    with pytest.raises(InputError, match=r"3 of 21 images cannot be used \(3 not an image\).*bad0\.jpg"):
        load(piles)


def test_exactly_a_tenth_goes_on(piles):
    for number in range(2):
        (piles / "unlabelled" / f"bad{number}.jpg").write_bytes(b"bad")
    assert len(load(piles).problems) == 2


def test_nothing_left_stops(tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"bad")
    with pytest.raises(InputError, match="no usable images"):
        load_images(None, tmp_path)
    with pytest.raises(InputError, match="no usable images"):
        load_images(None, tmp_path, size=16, channels=3)


def test_stray_files_do_not_count(piles):
    for number in range(30):
        (piles / "unlabelled" / f"notes{number}.txt").write_text("about the picture")
    (piles / "unlabelled" / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (piles / "unlabelled" / "Thumbs.db").write_bytes(b"\xd0\xcf")
    loaded = load(piles)
    assert len(loaded.problems) == 30
    assert not any(problem.counts for problem in loaded.problems)


def test_a_decoder_that_crashes_takes_one_file_with_it(tmp_path, monkeypatch):
    """A worker that dies on a file is started again, and the other files of its batch are decoded."""
    from autonovel.data.reading import workers

    write_good(tmp_path, 20)
    paths = sorted(map(str, tmp_path.iterdir()))
    source_folder = str(Path(workers.__file__).parents[3])
    source = (
        f"import os, sys; sys.path.insert(0, {source_folder!r}); from autonovel.data.reading import workers\n"
        "plain = workers.read_content\n"
        "workers.read_content = lambda path: os._exit(11) if 'good007' in path else plain(path)\n"
        "workers.serve()"
    )
    popen = workers.subprocess.Popen
    monkeypatch.setattr(workers.subprocess, "Popen", lambda a, **more: popen([*a[:3], source, a[4]], **more))
    monkeypatch.setattr(workers, "FEW", 0)
    pixel_file = tmp_path / "pixels"
    pixel_file.write_bytes(b"\0" * 20 * 16 * 16 * 3)
    outcomes = decode_files(paths, range(20), PixelFile(pixel_file, Form(16, 3)), workers=2)
    assert [v.reason for v in outcomes] == ["crashed the decoder" if i == 7 else "" for i in range(20)]
    rows = np.fromfile(pixel_file, np.uint8).reshape(20, 16, 16, 3)
    for i in (0, 6, 8, 19):
        np.testing.assert_array_equal(rows[i], decode(Path(paths[i]).read_bytes(), Form(16, 3)))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is always full")
@pytest.mark.parametrize("few", [0, 100])
def test_a_full_disk_is_no_fault_of_the_images(tmp_path, monkeypatch, few):
    from autonovel.data.reading import workers

    write_good(tmp_path / "p", 20)
    paths = sorted(str(path) for path in (tmp_path / "p").iterdir())
    monkeypatch.setattr(workers, "FEW", few)
    with pytest.raises(OSError, match="No space left"):
        decode_files(paths, range(20), PixelFile(Path("/dev/full"), Form(16, 3)), workers=2)


# ---- what the pixels are ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_orientation_is_followed(orientation, kind):
    upright = np.zeros((32, 32, 3), np.uint8)
    upright[:16, :16] = (255, 0, 0)
    upright[:16, 16:] = (0, 255, 0)
    undo = {1: None, 2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}[orientation]  # the camera's turn, reversed
    stored = Image.fromarray(upright)
    if undo is not None:
        stored = stored.transpose(undo)
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = decode(encoded(kind, stored, exif=exif, **({"quality": 95} if kind != "PNG" else {})), Form(32, 3))
    assert np.abs(pixels[4:12, 4:12].astype(int) - [255, 0, 0]).max() < 12
    assert np.abs(pixels[4:12, 20:28].astype(int) - [0, 255, 0]).max() < 12


def test_shorter_side_and_centre_crop():
    wide = np.zeros((20, 40, 3), np.uint8)
    wide[:, 10:30] = 200
    assert (decode(encoded("PNG", Image.fromarray(wide)), Form(20, 3)) == 200).all()


def test_very_long_images_are_squeezed_whole():
    long = np.zeros((10, 100), np.uint8)
    long[:, :50] = 255
    pixels = decode(encoded("PNG", Image.fromarray(long)), Form(10, 1))[..., 0]
    assert (pixels[:, :4] == 255).all()
    assert (pixels[:, 6:] == 0).all()


def test_transparent_becomes_white():
    clear = Image.new("RGBA", (16, 16), (10, 20, 30, 0))
    assert (decode(encoded("PNG", clear), Form(16, 3)) == 255).all()
    keyed = Image.new("RGB", (16, 16), (10, 20, 30))
    assert (decode(encoded("PNG", keyed, transparency=(10, 20, 30)), Form(16, 1)) == 255).all()


def test_sixteen_bits_keep_their_range():
    values = np.array([[0, 65535], [32768, 257]], np.uint16).repeat(8, 0).repeat(8, 1)
    pixels = decode(encoded("PNG", Image.fromarray(values)), Form(16, 1))[..., 0]
    assert (pixels[0, 0], pixels[0, -1], pixels[-1, 0], pixels[-1, -1]) == (0, 255, 128, 1)


def test_first_frame_is_taken():
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "lime", "blue")]
    for kind in ("GIF", "TIFF", "WEBP"):
        content = encoded(
            kind, frames[0], save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
        )
        assert decode(content, Form(16, 3))[8, 8].tolist() == [255, 0, 0]


def test_pictures_of_the_right_size_stay_exactly_as_they_are():
    image = picture(32, 32)
    np.testing.assert_array_equal(decode(encoded("PNG", image), Form(32, 3)), np.asarray(image))


def test_programs_are_never_started(tmp_path, monkeypatch):
    """An EPS file would start Ghostscript; it is not even opened as such."""
    import subprocess

    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("a program was started"))
    with pytest.raises(UnusableImageError, match="PostScript"):
        decode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n", Form(16, 3))


def test_problems_csv(tmp_path):
    problems = [
        Problem('odd, "name"\n.jpg', "empty file"),
        Problem("ü.png", "the same picture as é.png", left_out=False),
    ]
    Run(tmp_path).write_rows("problems.csv", PROBLEM_FIELDS, as_rows(problems))
    with open(tmp_path / "problems.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["path", "reason", "left_out"],
        ['odd, "name"\n.jpg', "empty file", "yes"],
        ["ü.png", "the same picture as é.png", "no"],
    ]


@pytest.mark.parametrize(("kind", "usable"), [("WEBP", False), ("AVIF", False), ("PNG", True)])
def test_formats_that_take_much_memory_may_have_fewer_pixels(
    monkeypatch: pytest.MonkeyPatch, kind: str, usable: bool
) -> None:
    monkeypatch.setattr("autonovel.data.reading.decode.MOST_IN_MEMORY", 40 * 32 - 1)
    with nullcontext() if usable else pytest.raises(UnusableImageError, match=r"too many pixels \(40 x 32\)"):
        decode(encoded(kind, picture()), Form(16, 3))
