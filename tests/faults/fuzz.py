"""Files of a run and of the caches, damaged in every way; whoever reads them is right or says a sentence."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.harness import Harness
from tests.faults.world import TINY, Outcome, results

READERS: dict[str, tuple[str, ...]] = {
    "verify": ("verify", "run"),
    "show": ("show", "run"),
    "name": ("name", "run", "1", "stork"),
    "regroup": ("regroup", "run", "--n-new", "3"),
    "report": ("report", "run"),
    "predict": ("predict", "run", "more", "--to", "found.csv"),
    "export csv": ("export", "run", "--to", "labels.csv", "--format", "csv", "--all"),
    "export folders": ("export", "run", "--to", "sorted"),
    "export safetensors": ("export", "run", "--to", "model", "--format", "safetensors"),
    "next round": ("discover", "--from", "run", "more", "--out", "new", "--n-new", "2", *TINY),
    "finished": ("discover", "known", "pile", "--out", "run", "--n-new", "2", *TINY),
}
MADE = {
    "name": ("run/edits.jsonl",),
    "regroup": ("run/edits.jsonl",),
    "predict": ("found.csv",),
    "export csv": ("labels.csv",),
    "export folders": ("sorted",),
    "export safetensors": ("model",),
    "next round": ("new",),
    "features": ("new",),
}
"""What these leave behind that must be right when they say that all went well."""

FEATURES = {"features": ("discover", "--features", "described known", "described", "--out", "new", "--n-new", "2")}
"""The same of a folder of features."""

DRAWN = ("report.html", "clusters.png")
"""Files that nobody reads back."""

CACHE_COMMAND = ("discover", "known", "pile", "--out", "new", "--n-new", "2", *TINY)


class Verdict(NamedTuple):
    """What came of a damaged file: its kind, and ``right``, ``sentence``, or what must not be."""

    kind: str
    what: str
    detail: str = ""


def flip(content: bytes, chance: random.Random) -> bytes:
    """A bit has turned."""
    rotted = bytearray(content or b"\0")
    rotted[chance.randrange(len(rotted))] ^= 1 << chance.randrange(8)
    return bytes(rotted)


def cut(content: bytes, chance: random.Random) -> bytes:
    """The end is gone."""
    return content[: chance.randrange(len(content) + 1)]


def zeros(content: bytes, chance: random.Random) -> bytes:
    """A block that the disk has lost."""
    start = chance.randrange(len(content) + 1)
    size = chance.choice((1, 16, 512, 4096))
    return content[:start] + bytes(min(size, len(content) - start)) + content[start + size :]


def swap(content: bytes, chance: random.Random) -> bytes:
    """Two parts in each other's place."""
    a, b = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    return content[b:] + content[a:b] + content[:a]


def nothing(content: bytes, chance: random.Random) -> bytes:
    """Empty, or nonsense."""
    return chance.choice((b"", b"\n", b"null", b"[]", b"{}", b"[" * 100_000, chance.randbytes(100)))


def retyped(content: bytes, chance: random.Random) -> bytes:
    """A value of another type, or far too large, in JSON."""
    try:
        lines = [json.loads(line) for line in ([content] if content.lstrip()[:1] == b"{" else content.splitlines())]
    except ValueError:
        return flip(content, chance)
    value: Any = chance.choice(lines) if lines else {}
    for _ in range(4):
        if isinstance(value, dict) and value:
            key = chance.choice(sorted(value))
        elif isinstance(value, list) and value:
            key = chance.randrange(len(value))
        else:
            break
        if not isinstance(value[key], dict | list) or not value[key] or chance.random() < 0.3:
            odd = (None, True, -1, 10**9, 1e308, "", "x", [], {}, [[[]]], "\ud800", "../../x", 2**70, float("nan"))
            value[key] = chance.choice(odd)
            break
        value = value[key]
    return b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"


def recelled(content: bytes, chance: random.Random) -> bytes:
    """Another cell in a table."""
    try:
        rows = list(csv.reader(io.StringIO(content.decode())))
    except (ValueError, csv.Error):
        return flip(content, chance)
    if rows and (row := chance.choice(rows)):
        odd = ("", "nan", "inf", "-1", "999999999", "1e9", "x", "\0", "=1+1", "/etc/passwd", "../x", "\u202e")
        row[chance.randrange(len(row))] = chance.choice(odd)
    if rows and chance.random() < 0.3:
        rows.pop(chance.randrange(len(rows)))
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def reheaded(content: bytes, chance: random.Random) -> bytes:
    """Another head of a .npy file."""
    if not content.startswith(b"\x93NUMPY"):
        return flip(content, chance)
    head = chance.choice(
        (
            "{'descr': '<f2', 'fortran_order': False, 'shape': (99999999999, 9999999), }",
            "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
            "{'descr': '<f8', 'fortran_order': 7, 'shape': 3, }",
            "{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2, 2), }",
            "{'descr': '<i8', 'fortran_order': False, 'shape': (), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4), }",
            "(" * 500,
            "{'descr'",
        )
    ).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + content[128:]


def remarked(content: bytes, chance: random.Random) -> bytes:
    """Other metadata, other tensors or none in a .safetensors file."""
    from safetensors.numpy import load, save

    try:
        length = struct.unpack("<Q", content[:8])[0]
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
        tensors = load(content)
    except Exception:
        return flip(content, chance)
    metadata.pop("digest", None)
    if tensors and chance.random() < 0.5:
        name = chance.choice(sorted(tensors))
        tensors.pop(name) if chance.random() < 0.5 else tensors.update({name: tensors[name].reshape(-1)[:1]})
    if chance.random() < 0.2:
        tensors = {}
    if metadata:
        key = chance.choice(sorted(metadata))
        metadata[key] = chance.choice(
            ("", "x", "{}", "[]", "null", "-1", "nan", '{"model": 3}', retyped(metadata[key].encode(), chance).decode())
        )
    return save(tensors, metadata)


PLAIN: tuple[Callable[[bytes, random.Random], bytes], ...] = (flip, flip, cut, zeros, swap, nothing)
BY_KIND: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".json": retyped, ".jsonl": retyped, ".csv": recelled, ".npy": reheaded, ".safetensors": remarked,
}  # fmt: skip


def damaged(harness: Harness, chance: random.Random, number: int) -> Verdict:
    """Of every eight files one is of the cache, one of a folder of features, and of runs half are forged."""
    if number % 8 in (0, 4):
        return (once_in_cache if number % 8 == 0 else once_in_features)(harness, chance)
    return once(harness, chance, forged=number % 2 == 1)


def once(harness: Harness, chance: random.Random, *, forged: bool) -> Verdict:
    """Damage one file of a run and have one command read it.

    A rotted run must never give another answer. One that is forged, whose author left the checksums out, may say what it
    likes, but nothing of Python's, and it must come to an end.
    """
    folder = harness.fresh()
    run = folder / "run"
    _edited(run, folder / "named")
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != "lock")
    reader = chance.choice(sorted(READERS))
    wanted = harness.remembered(reader, lambda: _told(harness, folder, reader))
    folder = harness.fresh()
    _edited(run, folder / "named")
    if forged:
        (run / "checksums.sha256").unlink()
        (run / "edits.json").unlink(missing_ok=True)
    file = chance.choice([path for path in files if path.exists() and path.name not in DRAWN])
    return _read_damaged(harness, folder, file, reader, None if forged else wanted[1], chance)


def once_in_features(harness: Harness, chance: random.Random) -> Verdict:
    """Damage one file of a folder of features and have it read: never another answer."""
    wanted = harness.remembered("features", lambda: _told(harness, harness.fresh(), "features"))
    folder = harness.fresh()
    files = sorted(file for name in ("described", "described known") for file in (folder / name).iterdir())
    return _read_damaged(harness, folder, chance.choice(files), "features", wanted[1], chance)


def _read_damaged(
    harness: Harness, folder: Path, file: Path, reader: str, wanted: Any, chance: random.Random
) -> Verdict:
    """What comes of a file that is damaged and read; it must not be other than ``wanted``, unless that is None."""
    kind = file.suffix or file.name
    if chance.random() < 0.04:
        file.unlink()
        how, make = chance.choice(
            (
                ("gone", lambda: None),
                ("a folder", file.mkdir),
                ("a pipe", lambda: os.mkfifo(file)),
                ("a link", lambda: file.symlink_to("/etc/hostname")),
            )
        )
        make()
    else:
        damage = chance.choice((*PLAIN, *([BY_KIND[file.suffix]] * 4 if file.suffix in BY_KIND else [])))
        how, before = damage.__name__, file.read_bytes()
        file.write_bytes(damage(before, chance))
    detail = f"{file.relative_to(folder)} ({how}) read by {reader}"
    try:
        done, found = _told(harness, folder, reader)
    except TimeoutError as error:
        return Verdict(kind, "hang", f"{detail}: {error}")
    if "Traceback" in done.said or done.status not in (0, 1, 2):
        return Verdict(kind, "traceback", f"{detail}: {done.status} {done.said[-600:]}")
    if done.status != 0:
        return Verdict(kind, "sentence" if _says(done) else "no sentence", f"{detail}: {done.said[-300:]}")
    if wanted is not None and found != wanted:
        return Verdict(kind, "silent wrong", f"{detail}: {done.said[-300:]}")
    return Verdict(kind, "right", detail)


def once_in_cache(harness: Harness, chance: random.Random) -> Verdict:
    """Damage a file of the user's cache: the result is the same."""
    wanted = harness.remembered("cache", lambda: (harness.expected("discover")[1], harness.expected("discover")[0]))
    folder = harness.fresh()
    harness.zygote.run(list(CACHE_COMMAND), folder)
    shutil.rmtree(folder / "new")
    files = sorted(path for path in (harness.scratch / "cache").rglob("*") if path.is_file())
    file = chance.choice(files)
    damage = chance.choice(PLAIN)
    file.write_bytes(damage(file.read_bytes(), chance))
    detail = f"{file.name} ({damage.__name__}) in the cache"
    done = harness.zygote.run(list(CACHE_COMMAND), folder)
    if done.status != 0 or "Traceback" in done.said:
        return Verdict("cache", "traceback" if "Traceback" in done.said else "refused", f"{detail}: {done.said[-300:]}")
    from tests.faults.harness import comparable
    from tests.faults.world import CASES

    found = comparable("discover", results(folder, CASES["discover"]))
    return Verdict("cache", "right" if found == wanted[1] else "silent wrong", detail)


def _edited(run: Path, named: Path) -> None:
    """The run with two edits: what is damaged may be theirs."""
    for name in ("edits.jsonl", "edits.json", "names.json"):
        shutil.copy(named / name, run / name)


def _told(harness: Harness, folder: Path, reader: str) -> tuple[Outcome, Any]:
    done = harness.zygote.run(list((READERS | FEATURES)[reader]), folder)
    from tests.faults.world import Case

    found = results(folder, Case((), MADE.get(reader, ())))
    said = done.said if reader in ("show", "verify") else ""
    return done, (found, said)


def _says(done: Outcome) -> bool:
    return done.said.strip().endswith(".") and "autonovel: " in done.said
