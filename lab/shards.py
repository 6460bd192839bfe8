"""Images of generated classes as tar shards, Parquet or folders: ``python lab/shards.py OUT --images 20000 --form tar``."""

from __future__ import annotations

import argparse
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIDE = 64
PER_SHARD = 1000


def draw(kind: int, number: int) -> bytes:
    """One JPEG of a class: a shape, a colour and a ground of its own, each varied."""
    look, chance = np.random.default_rng(kind), np.random.default_rng((kind, number))
    ground, ink = look.integers(0, 256, (2, 3))
    sides, turn = 3 + kind % 5, look.uniform(0, 90)
    image = Image.fromarray(np.uint8(np.clip(ground + chance.normal(0, 25, (SIDE, SIDE, 3)), 0, 255)))
    x, y, r = *chance.uniform(26, 38, 2), chance.uniform(12, 24)
    colour = tuple(int(c) for c in np.clip(ink + chance.normal(0, 15, 3), 0, 255))
    ImageDraw.Draw(image).regular_polygon((x, y, r), sides, rotation=turn + chance.normal(0, 12), fill=colour)
    content = io.BytesIO()
    image.save(content, "JPEG", quality=88)
    return content.getvalue()


def images(n: int, classes: range) -> Iterator[tuple[str, str, bytes]]:
    """Name, class and content."""
    for number in range(n):
        kind = classes[number % len(classes)]
        yield f"{number:07d}", f"kind{kind:02d}", draw(kind, number)


def write(out: Path, n: int, form: str, classes: range) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if form == "folder":
        for name, kind, content in images(n, classes):
            (out / kind).mkdir(exist_ok=True)
            (out / kind / f"{name}.jpg").write_bytes(content)
        return
    source = images(n, classes)
    for number, start in enumerate(range(0, n, PER_SHARD)):
        some = [next(source) for _ in range(min(PER_SHARD, n - start))]
        if form == "tar":
            with tarfile.open(out / f"shard-{number:04d}.tar", "w") as tar:
                for name, kind, content in some:
                    for ending, text in (("jpg", content), ("cls", kind.encode())):
                        member = tarfile.TarInfo(f"{name}.{ending}")
                        member.size = len(text)
                        tar.addfile(member, io.BytesIO(text))
        else:
            import pyarrow as pa
            from pyarrow import parquet

            cells = [{"bytes": content, "path": f"{name}.jpg"} for name, _, content in some]
            table = pa.table({"image": cells, "label": [kind for _, kind, _ in some]})
            parquet.write_table(table, out / f"train-{number:05d}.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--form", choices=("tar", "parquet", "folder"), default="tar")
    parser.add_argument("--classes", default="10-20", help="numbers of classes, FIRST-END")
    args = parser.parse_args()
    first, end = map(int, args.classes.split("-"))
    write(args.out, args.images, args.form, range(first, end))


if __name__ == "__main__":
    main()
