"""Tar, Parquet and lists of files: every image once, every fault listed, none of them fatal."""

import io
import json
import os
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from autonovel.base.errors import InputError
from autonovel.data.reading import shards
from autonovel.data.reading.inputs import open_input
from autonovel.data.reading.problems import Problem
from autonovel.data.reading.shards import Entry, ShardToRead, list_shards, read_shard, shards_of


def picture(number: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (20, 20, 3), np.uint8)).save(content, "PNG")
    return content.getvalue()


def write_tar(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def samples(numbers: range, label: str = "cls") -> list[tuple[str, bytes]]:
    members = []
    for i in numbers:
        text = f"kind {i % 2}" if label == "cls" else json.dumps({"caption": "x", "label": f"kind {i % 2}"})
        # what says the class may come before the picture or after it
        members += random.Random(i).sample([(f"a/{i:03d}.png", picture(i)), (f"a/{i:03d}.{label}", text.encode())], 2)
    return members


def read(shard: ShardToRead) -> tuple[list[Entry], list[Problem]]:
    found = list(read_shard(shard))
    return [f for f in found if isinstance(f, Entry)], [f for f in found if isinstance(f, Problem)]


@pytest.mark.parametrize("label", ["cls", "json"])
def test_braces_and_stars_name_tar_shards_with_their_classes(tmp_path: Path, label: str) -> None:
    for number in range(12):
        write_tar(tmp_path / f"s-{number:02d}.tar", samples(range(5 * number, 5 * number + 5), label))
    named = list_shards(f"{tmp_path}/s-{{00..11}}.tar")
    assert named == list_shards(f"{tmp_path}/s-*.tar") == list_shards(tmp_path)
    entries, problems = map(list, zip(*map(read, named), strict=True))
    found = [entry for some in entries for entry in some]
    assert not any(problems)
    assert [entry.content for entry in found] == [picture(i) for i in range(60)]
    assert [entry.label for entry in found] == [f"kind {i % 2}" for i in range(60)]
    assert len({entry.image for entry in found}) == 60
    assert (found[7].source, found[7].place) == (f"{tmp_path}/s-01.tar", "a/007.png")


def test_a_tar_cut_anywhere_gives_whole_images_in_order_and_says_that_it_is_cut(tmp_path: Path) -> None:
    content = write_tar(tmp_path / "whole.tar", samples(range(6))).read_bytes()
    sizes = random.Random(0).sample(range(len(content.rstrip(b"\0"))), 40)
    before = -1
    for size in [0, 1, 512, *sorted(sizes)]:
        cut = tmp_path / "cut.tar"
        cut.write_bytes(content[:size])
        entries, problems = read(ShardToRead("tar", str(cut), "x"))
        assert [entry.content for entry in entries] == [picture(i) for i in range(len(entries))]
        assert len(problems) == 1, size
        assert "cut off or damaged" in problems[0].reason
        assert len(entries) >= before
        before = len(entries)
    assert before >= 4


def test_a_member_too_large_for_an_image_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MOST_BYTES", 2**20)
    tar = write_tar(tmp_path / "s.tar", [("a.png", bytes(2**20 + 1)), ("b.png", picture(1))])
    entries, problems = read(ShardToRead("tar", str(tar), "x"))
    assert [entry.place for entry in entries] == ["b.png"]
    assert [(problem.path[-5:], problem.reason) for problem in problems] == [("a.png", "larger than 1 MiB")]


def test_a_second_member_of_one_name_and_a_missing_shard_are_reported(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "s-0.tar", [("a.png", picture(0)), ("b.png", picture(1)), ("a.png", picture(2))])
    entries, problems = read(ShardToRead("tar", str(tar), "x"))
    assert [entry.place for entry in entries] == ["a.png", "b.png"]
    assert problems[0].reason == "a second member of this name"
    named = list_shards(f"{tmp_path}/s-{{0..1}}.tar")
    assert [problem.reason for problem in read(named[1])[1]] == ["no such shard"]


@pytest.mark.parametrize("form", ["struct", "bytes", "path"])
def test_parquet_with_images_or_paths_and_names_of_classes(tmp_path: Path, form: str) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for i in range(5):
        (tmp_path / f"{i}.png").write_bytes(picture(i))
    cells = {
        "struct": [
            {"bytes": picture(i), "path": None} if i % 2 else {"bytes": None, "path": f"{i}.png"} for i in range(5)
        ],
        "bytes": [picture(i) for i in range(5)],
        "path": [f"{i}.png" for i in range(5)],
    }[form]
    about = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    table = pa.table({"image": [*cells, None], "label": [0, 1, 0, 1, None, 0]})
    parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(about)}), tmp_path / "x.parquet")
    [shard] = list_shards(tmp_path / "x.parquet")
    entries, problems = read(shard)
    assert [entry.content for entry in entries] == [picture(i) for i in range(5)]
    assert [entry.label for entry in entries] == ["cat", "dog", "cat", "dog", None]
    assert [entry.place for entry in entries] == list("01234")
    assert [problem.reason for problem in problems] == ["no image"]
    content = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(content[:-40])
    entries, problems = read(shard)
    assert not entries
    assert "cut off or damaged" in problems[0].reason


def test_shards_are_images_like_those_of_a_folder(tmp_path: Path) -> None:
    """What discover reads of shards is what it reads of the same files in folders, faults included."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for number in range(2):
        write_tar(tmp_path / f"known-{number}.tar", samples(range(8 * number, 8 * number + 8)))
    pile = [picture(i) for i in range(100, 140)]
    pile[7] = pile[7][:-60]
    cells = [{"bytes": content, "path": None} for content in pile]
    parquet.write_table(pa.table({"image": cells}), tmp_path / "pile.parquet", row_group_size=16)
    for i in range(16):
        (tmp_path / "known" / f"kind {i % 2}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "known" / f"kind {i % 2}" / f"{i:03d}.png").write_bytes(picture(i))
    (tmp_path / "pile").mkdir()
    for i, content in enumerate(pile):
        (tmp_path / "pile" / f"{i:03d}.png").write_bytes(content)
    whole = open_input(f"{tmp_path}/known-{{0,1}}.tar", tmp_path / "pile.parquet").load(cache=tmp_path / "cache")
    files = open_input(tmp_path / "known", tmp_path / "pile").load()
    assert whole.images.class_names == files.images.class_names == ("kind 0", "kind 1")
    for found in (whole, files):
        assert [problem.reason for problem in found.problems] == ["truncated"]
        assert len(found.images) == 55
    order = [int(source.relative.partition("/")[2][:3]) for source in files.images.sources[:16]]
    assert np.array_equal(whole.images.images[:16][order], files.images.images[:16])
    assert np.array_equal(whole.images.labels[:16][order], files.images.labels[:16])
    assert np.array_equal(whole.images.images[16:], files.images.images[16:])
    again = open_input(f"{tmp_path}/known-{{0,1}}.tar", tmp_path / "pile.parquet").load(cache=tmp_path / "cache")
    assert any("taken from" in note for note in again.notes)


def test_files_are_shards_of_some_hundred_that_change_with_them(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(picture(i))
    [before], [again] = shards_of(tmp_path)[0], shards_of(tmp_path)[0]
    assert before == again
    assert [entry.content for entry in read(before)[0]] == [picture(i) for i in range(3)]
    (tmp_path / "1.png").write_bytes(picture(9))
    assert shards_of(tmp_path)[0][0].stamp != before.stamp


def test_a_store_whose_package_is_missing_is_said_with_its_name(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['s3fs'] = sys.modules['fsspec'] = None\n"
        "from autonovel.data.reading.shards import list_shards\n"
        "list_shards('s3://bucket/s-{0..3}.tar')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "Reading s3:// needs other packages: pip install fsspec s3fs." in done.stderr
    with pytest.raises(InputError, match="There are no shards"):
        list_shards(tmp_path / "*.tar")


def test_a_few_kilobytes_that_stand_for_gigabytes_are_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(shards, "_HELD", 2**16)
    for dictionary in (True, False):
        table = pa.table({"image": pa.array([bytes(2**20)] * 40, pa.binary())})
        parquet.write_table(table, tmp_path / "x.parquet", compression="zstd", use_dictionary=dictionary)
        entries, problems = read(list_shards(tmp_path / "x.parquet")[0])
        assert not entries
        assert "MiB, as no images do" in problems[0].reason
    noise = np.random.default_rng(0).bytes(2**17)
    parquet.write_table(pa.table({"image": [noise, noise]}), tmp_path / "y.parquet")
    with parquet.ParquetFile(tmp_path / "y.parquet") as file:
        assert shards.rows_at_once(file.metadata, ["image"]) == 1  # either may be as large as both
    monkeypatch.setattr(shards, "MOST_BYTES", 1000)
    assert [p.reason for p in read(list_shards(tmp_path / "y.parquet")[0])[1]] == ["larger than 0 MiB"] * 2


def test_what_a_tar_says_of_one_sample_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MOST_BYTES", 3000)
    members = [(f"a.{kind}", picture(0)) for kind in ("png", "jpg", "webp")]
    entries, problems = read(list_shards(write_tar(tmp_path / "x.tar", [*members, ("a.json", b"[" * 200_000)]))[0])
    assert [entry.place for entry in entries] == ["a.png", "a.jpg"]
    assert [(problem.path, entries[0].label) for problem in problems] == [(f"{tmp_path}/x.tar/a.webp", None)]


def test_a_pipe_in_place_of_a_picture_ends(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    os.mkfifo(tmp_path / "pipe.png")
    parquet.write_table(pa.table({"image": ["pipe.png", "/dev/zero"]}), tmp_path / "x.parquet")
    assert [p.reason for p in read(list_shards(tmp_path / "x.parquet")[0])[1]] == ["not a file"] * 2
