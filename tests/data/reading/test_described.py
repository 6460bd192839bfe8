"""A folder of features: what is written is what is read, and what is not whole is not taken."""

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from autonovel.base.errors import InputError
from autonovel.data.reading import described
from autonovel.data.reading.described import Described, Made, Rows, WrittenShard, as_file, finish, read_part, write_file
from autonovel.data.reading.embedded import read_embedded
from autonovel.data.reading.problems import Problem

MADE = Made("digest of weights", "small", 64, 64, 3, 5)


def rows_of(n: int, first: int) -> Rows:
    numbers = range(first, first + n)
    features = np.random.default_rng(first).normal(size=(n, MADE.width)).astype(np.float16)
    return Rows(
        np.array([f"s.tar/{i}.png" for i in numbers], object),
        np.array(["s.tar"] * n, object),
        np.array([f"{i}.png" for i in numbers], object),
        np.array([None if i % 2 else "cät" for i in numbers], object),
        np.array([bytes([i % 256]) * 22 for i in numbers], object),
        features,
    )


def written(folder: Path, *shards: Rows) -> Described:
    folder.mkdir(exist_ok=True)
    parts: list[WrittenShard] = []
    for number, rows in enumerate(shards):
        problems = [Problem(f"s{number}.tar/bad.png", "truncated")]
        write_file(folder, number, as_file(MADE, f"s{number}.tar", f"stamp {number}", rows, problems))
        part = read_part(folder, number, MADE)
        assert part is not None
        assert (part.stamp, part.problems) == (f"stamp {number}", problems)
        parts.append(part)
    return finish(folder, MADE, parts)


def test_what_is_written_is_read_batch_by_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(described, "AT_ONCE", 4)
    given = [rows_of(11, 0), rows_of(0, 11), rows_of(3, 11)]
    found = written(tmp_path, *given)
    assert (found.width, found.n_rows, [shard.rows for shard in found.shards]) == (5, 14, [11, 0, 3])
    batches = list(found.parts())
    assert max(map(len, batches)) == 4
    for name in (field.name for field in fields(Rows)):
        whole = np.concatenate([getattr(rows, name) for rows in given])
        np.testing.assert_array_equal(np.concatenate([getattr(batch, name) for batch in batches]), whole)
    assert batches[0].features.dtype == np.float16
    [last] = found.parts(found.shards[2:])
    assert last.images.tolist() == given[2].images.tolist()
    problems = (tmp_path / "problems.csv").read_text().splitlines()
    assert problems == ["path,reason,left_out", *(f"s{i}.tar/bad.png,truncated,yes" for i in range(3))]


@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_a_file_that_is_not_as_it_was_written_is_refused_by_name(tmp_path: Path, harm: str) -> None:
    found = written(tmp_path, rows_of(50, 0), rows_of(50, 50))
    file = tmp_path / "part-00001.parquet"
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.unlink() if harm == "gone" else file.write_bytes(content[:-9] if harm == "cut" else content)
    rows = found.parts()
    assert len(next(rows)) == 50
    with pytest.raises(InputError, match=r"part-00001\.parquet is damaged"):
        next(rows)


def test_what_something_else_made_or_what_is_cut_off_counts_as_missing(tmp_path: Path) -> None:
    write_file(tmp_path, 0, as_file(MADE, "s.tar", "stamp", rows_of(4, 0)))
    assert read_part(tmp_path, 0, MADE) is not None
    assert read_part(tmp_path, 0, replace(MADE, size=32)) is None
    assert read_part(tmp_path, 1, MADE) is None
    file = tmp_path / "part-00000.parquet"
    file.write_bytes(file.read_bytes()[:-1])
    assert read_part(tmp_path, 0, MADE) is None


def test_an_unfinished_folder_and_another_format_are_refused(tmp_path: Path) -> None:
    write_file(tmp_path, 0, as_file(MADE, "s.tar", "stamp", rows_of(4, 0)))
    with pytest.raises(InputError, match="no finished features"):
        Described(tmp_path)
    written(tmp_path, rows_of(4, 0))
    index = tmp_path / "features.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "format": 99}))
    with pytest.raises(InputError, match="another format"):
        Described(tmp_path)
    index.write_text("{")
    with pytest.raises(InputError, match=r"features\.json is damaged"):
        Described(tmp_path)


def test_folders_are_read_as_features_and_two_must_be_of_one_network(tmp_path: Path) -> None:
    rows = [rows_of(6, 0), rows_of(7, 6), rows_of(8, 13)]
    known, pile = written(tmp_path / "known", rows[0]), written(tmp_path / "pile", *rows[1:])
    found = read_embedded(known.folder, str(pile.folder))
    np.testing.assert_array_equal(found.features, np.concatenate([r.features for r in rows]).astype(np.float32))
    assert found.names.class_names == ("cät",)
    assert found.names.labels.tolist() == [0, -1, 0, -1, 0, -1] + [-1] * 15  # no label of the pile is used
    assert found.names.ids[-1] == "s.tar/20.png"
    finish(tmp_path / "pile", replace(MADE, size=32), [])
    with pytest.raises(InputError, match="small at 64 pixels.* small at 32 pixels.*describe both with the same"):
        read_embedded(known.folder, pile.folder)


def test_rows_that_rotted_before_the_index_was_written_again_are_not_taken(tmp_path: Path) -> None:
    whole = written(tmp_path, rows_of(200, 0))
    features = next(whole.parts()).features.tobytes()
    file = tmp_path / whole.shards[0].file
    content = file.read_bytes()
    at = content.index(features[100:200])
    file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    part = read_part(tmp_path, 0, MADE)
    assert part is not None
    with pytest.raises(InputError, match=r"part-00000.parquet is damaged .*run describe again"):
        list(finish(tmp_path, MADE, [part]).parts())


@pytest.mark.parametrize(
    ("part", "value"),
    [("rows", "3"), ("file", "../x.parquet"), ("source", None), ("width", [5]), ("width", -1), ("network", 0)],
)
def test_an_index_with_what_describe_never_writes_is_refused(tmp_path: Path, part: str, value: object) -> None:
    written(tmp_path, rows_of(3, 0))
    index = json.loads((tmp_path / "features.json").read_text())
    (index["made"] if part in index["made"] else index["shards"][0])[part] = value
    (tmp_path / "features.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"features.json is damaged"):
        Described(tmp_path)
