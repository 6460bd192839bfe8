"""The cache of decoded images: right, whole or not there, and never stale."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from autonovel.base.errors import InputError
from autonovel.data.reading import fill, workers
from autonovel.data.reading.inputs import load_images
from autonovel.data.reading.store import HEAD, gather, open_cache, release
from tests.hostile import encoded, picture


@pytest.fixture
def photos(tmp_path):
    for place, name in enumerate(("known/a", "known/b", "pile")):
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(6):
            (folder / f"{number}.jpg").write_bytes(encoded("JPEG", picture(40, 30, seed=100 * place + number)))
    return tmp_path


def load(photos, **settings):
    return load_images(
        photos / "known", photos / "pile", **{"cache": photos / "cache", "size": 16, "channels": 3, **settings}
    )


@pytest.fixture
def decodings(monkeypatch):
    """How many files were decoded."""
    seen = []
    plain = workers.decode_square
    monkeypatch.setattr(
        workers, "decode_square", lambda content, form: seen.append(len(content)) or plain(content, form)
    )
    return seen


def the_file(photos):
    [path] = (photos / "cache").glob("*.images")
    return path


def test_decoded_once(photos, decodings):
    first = load(photos)
    assert len(decodings) == 18
    second = load(photos)
    assert len(decodings) == 18
    np.testing.assert_array_equal(first.images.images, second.images.images)
    assert first.images.ids == second.images.ids
    np.testing.assert_array_equal(first.images.labels, second.images.labels)
    assert isinstance(second.images.images, np.memmap)
    assert list((photos / "cache").glob(".*")) == []


def test_pixels_are_those_of_the_files(photos):
    from autonovel.data.reading.decode import Form, decode

    images = load(photos).images
    for identifier, pixels in zip(images.ids, images.images, strict=True):
        np.testing.assert_array_equal(pixels, decode(Path(identifier).read_bytes(), Form(16, 3)))


def test_workers_give_the_same_pixels(photos, monkeypatch):
    alone = np.array(load(photos).images.images)
    monkeypatch.setattr(workers, "FEW", 0)
    together = load_images(photos / "known", photos / "pile", size=16, channels=3, workers=3)
    np.testing.assert_array_equal(alone, together.images.images)


def test_a_changed_file_is_decoded_again_and_only_that(photos, decodings):
    load(photos)
    decodings.clear()
    changed = photos / "pile" / "3.jpg"
    changed.write_bytes(encoded("JPEG", picture(40, 30, seed=77_777)))
    os.utime(changed, ns=(time.time_ns(), time.time_ns() + 10**9))
    images = load(photos).images
    assert len(decodings) == 1
    fresh = load_images(photos / "known", photos / "pile", size=16, channels=3).images
    np.testing.assert_array_equal(images.images, fresh.images)


def test_added_and_removed_files(photos, decodings):
    load(photos)
    decodings.clear()
    (photos / "pile" / "0.jpg").unlink()
    (photos / "pile" / "new.jpg").write_bytes(encoded("JPEG", picture(seed=88_888)))
    images = load(photos).images
    assert len(decodings) == 1
    assert len(images) == 18
    np.testing.assert_array_equal(
        images.images, load_images(photos / "known", photos / "pile", size=16, channels=3).images.images
    )


def test_files_of_both_sides_are_told_apart(tmp_path, decodings):
    # the same path below both folders, the same size and time: as from an archive of bitmaps
    for side in range(2):
        folder = tmp_path / ("known", "pile")[side]
        for number in range(6):
            file = folder / ("a", "b")[number % 2] / f"{number}.bmp"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(encoded("BMP", picture(16, 16, seed=100 * side + number)))
            os.utime(file, (10**9, 10**9))
    load(tmp_path)
    (tmp_path / "pile" / "more.bmp").write_bytes(encoded("BMP", picture(16, 16, seed=1)))
    again = load(tmp_path).images
    assert len(decodings) == 13
    np.testing.assert_array_equal(again.images, load(tmp_path, cache=None).images.images)


def test_changed_labels_need_no_decoding(photos, decodings):
    table = photos / "table.csv"
    rows = [f"known/{name}/{number}.jpg,{name}" for name in "ab" for number in range(6)] + [
        "pile/1.jpg,",
        "pile/2.jpg,",
    ]
    table.write_text("path,label\n" + "\n".join(rows))
    load_images(table, cache=photos / "cache", size=16, channels=3)
    decodings.clear()
    table.write_text("path,label\n" + "\n".join(rows).replace("b/5.jpg,b", "b/5.jpg,a"))
    images = load_images(table, cache=photos / "cache", size=16, channels=3).images
    assert decodings == []
    assert (images.labels == 0).sum() == 7


def test_other_settings_are_another_cache(photos, decodings):
    load(photos)
    load(photos, size=8)
    load(photos, channels=1)
    load(photos, size=None, channels=None)
    assert len(decodings) == 4 * 18
    decodings.clear()
    assert load(photos, size=None, channels=None).images.images.shape[1:] == (32, 32, 3)
    assert decodings == []


@pytest.mark.parametrize("damage", ["cut", "tail", "index", "pixels", "empty", "rubbish", "longer", "a pipe"])
def test_a_damaged_cache_is_made_again(photos, decodings, damage):
    good = np.array(load(photos).images.images)
    decodings.clear()
    path = the_file(photos)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    elif damage == "tail":
        content[-3] ^= 1
    elif damage == "index":
        content[HEAD + good.nbytes + 10] ^= 1
    elif damage == "pixels":
        content[HEAD + 5] ^= 1
    elif damage == "empty":
        content.clear()
    elif damage == "rubbish":
        content = bytearray(np.random.default_rng(0).bytes(10_000))
    else:
        content += b"x"
    path.unlink()
    if damage == "a pipe":
        os.mkfifo(path)
        os.mkfifo(path.with_name("other.images"))
        os.utime(path.with_name("other.images"), (0, 0))
    else:
        path.write_bytes(content)
    assert open_cache(path) is None
    np.testing.assert_array_equal(load(photos).images.images, good)
    assert len(decodings) == 18


def test_problems_come_back_from_the_cache(photos):
    (photos / "pile" / "bad.jpg").write_bytes(b"bad")
    (photos / "pile" / "copy.jpg").write_bytes((photos / "pile" / "2.jpg").read_bytes())
    first, second = load(photos), load(photos)
    assert first.problems == second.problems
    assert len(first.problems) == 2
    assert len(first.images) == len(second.images) == 19
    np.testing.assert_array_equal(first.images.images, second.images.images)


def test_interrupted_building_leaves_nothing(photos):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(photos, progress=stop)
    assert list((photos / "cache").iterdir()) == []


def test_abandoned_parts_are_removed(photos):
    load(photos)
    part = photos / "cache" / f".{the_file(photos).name}.1.00.part"
    part.write_bytes(b"x")
    os.utime(part, (0, 0))
    (photos / "pile" / "0.jpg").unlink()
    load(photos)
    assert not part.exists()


def test_a_part_that_another_process_just_finished_is_no_fault(photos):
    load(photos)
    part = photos / "cache" / f".{the_file(photos).name}.1.00.part"
    part.symlink_to("gone")  # listed, but no longer there when it is looked at
    (photos / "pile" / "0.jpg").unlink()
    assert len(load(photos).images) == 17


def test_what_nobody_used_for_a_month_makes_room(photos):
    load(photos)
    folder, month = photos / "cache", 31 * 86400
    old, used, others = folder / "old.images", folder / "used.images", folder / "others.images"
    content = the_file(photos).read_bytes()
    old.write_bytes(content)
    used.write_bytes(content)
    others.write_bytes(b"pictures of somebody else")
    for file in (old, used, others):
        os.utime(file, (time.time() - month, time.time() - month))
    assert open_cache(used) is not None
    (photos / "pile" / "0.jpg").unlink()
    load(photos)
    assert not old.exists()
    assert used.exists()
    assert others.exists()


def test_several_processes_at_once(photos):
    """Builders that race each other all get the right images, and one whole file is left."""
    program = (
        "import sys, hashlib; from autonovel.data.reading.inputs import load_images\n"
        "known, pile, cache = (f'{sys.argv[1]}/{name}' for name in ('known', 'pile', 'cache'))\n"
        "images = load_images(known, pile, size=16, channels=3, cache=cache)\n"
        "print(hashlib.md5(images.images.images.tobytes()).hexdigest())"
    )
    racers = [
        subprocess.Popen([sys.executable, "-c", program, str(photos)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = {racer.communicate(timeout=60)[0] for racer in racers}
    assert len(answers) == 1
    assert len(answers.pop()) == 33
    assert [path.suffix for path in (photos / "cache").iterdir()] == [".images"]
    assert open_cache(the_file(photos)) is not None


def test_writing_to_the_images_does_not_reach_the_cache(photos):
    images = load(photos).images.images
    before = np.array(images)
    images[:] = 0
    np.testing.assert_array_equal(load(photos).images.images, before)


def test_without_a_cache_folder_nothing_is_left_behind(photos):
    before = set(os.listdir(fill._private_folder()))
    images = load_images(photos / "known", photos / "pile", size=16, channels=3).images
    assert set(os.listdir(fill._private_folder())) == before
    assert images.images.shape == (18, 16, 16, 3)
    assert images.images.any()


def test_cache_folder_that_cannot_be_used(photos):
    (photos / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot be used .*; give another as cache.$"):
        load_images(photos / "known", photos / "pile", size=16, channels=3, cache=photos / "file" / "cache")


def test_too_little_room(photos, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(InputError, match=r"Decoded images take 0\.0 MB and .* has room for 0\.0 MB; make room"):
        load(photos)
    assert list((photos / "cache").iterdir()) == []


def test_gather_and_release(photos, monkeypatch):
    from autonovel.data.reading import store

    images = load(photos).images.images
    expected = np.array(images)
    monkeypatch.setattr(store, "_HELD_BYTES", 0)
    np.testing.assert_array_equal(gather(images, np.array([3, 3, 0])), expected[[3, 3, 0]])
    release(images)
    np.testing.assert_array_equal(images, expected)
    release(np.zeros(3, np.uint8))


def test_a_script_without_a_main_guard_may_use_workers(photos, tmp_path):
    """The workers are programs of their own: they do not run the user's script again."""
    script = tmp_path / "script.py"
    script.write_text(
        "from autonovel.data.reading import inputs, workers\n"
        "print('started')\n"
        "workers.FEW = 0\n"
        f"data = inputs.load_images({str(photos / 'known')!r}, {str(photos / 'pile')!r}, size=16, workers=2).images\n"
        "print(len(data))\n"
    )
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout.split() == ["started", "18"], run.stderr


def test_a_row_of_pixels_that_has_rotted_is_decoded_again(photos, decodings):
    good = load(photos).images.images.copy()
    path = the_file(photos)
    content = bytearray(path.read_bytes())
    for row in range(18):
        rotted = bytearray(content)
        rotted[HEAD + row * 16 * 16 * 3 + 7] ^= 1
        path.write_bytes(rotted)
        assert open_cache(path) is None
    path.write_bytes(rotted)
    np.testing.assert_array_equal(load(photos).images.images, good)
    assert len(decodings) == 36


def test_content_that_changed_under_the_same_name_size_and_time_is_read_again(photos, decodings):
    file = photos / "pile" / "0.jpg"
    file.write_bytes(encoded("BMP", picture(40, 30, seed=998)))  # all of one size
    before = load(photos).images
    status = file.stat()
    for replaced in (False, True):
        if replaced:
            file.unlink()
        file.write_bytes(encoded("BMP", picture(40, 30, seed=999 + replaced)))
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert (file.stat().st_size, file.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
        count = len(decodings)
        after = load(photos).images
        assert len(decodings) > count
        assert (after.images != before.images).any()
