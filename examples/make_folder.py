"""Make a folder of photographs-to-be: JPEG files of mixed sizes, five known classes and a pile of four new ones.

    python examples/make_folder.py photos
    autonovel discover photos/labelled photos/unlabelled --n-new 4 --out runs/photos

The pictures are drawn, so nothing is downloaded: shapes and textures in random colours, sizes, places and light. The
true classes of the pile are written to photos/truth.csv, for you to look at; no command reads it.
"""

import argparse
import csv
import math
import random
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

KNOWN = ("circles", "squares", "triangles", "stripes", "checks")
NEW = ("stars", "rings", "crosses", "waves")


def polygon(centre: tuple[float, float], radius: float, corners: int, turn: float, inner: float = 1.0) -> list:
    """Corners of a regular polygon; with ``inner`` below 1 every second corner lies inside, which makes a star."""
    return [
        (
            centre[0] + radius * (inner if i % 2 else 1.0) * math.cos(turn + 2 * math.pi * i / corners),
            centre[1] + radius * (inner if i % 2 else 1.0) * math.sin(turn + 2 * math.pi * i / corners),
        )
        for i in range(corners)
    ]


def draw_shape(draw: ImageDraw.ImageDraw, kind: str, centre: tuple, radius: float, colour: tuple, turn: float) -> None:
    x, y = centre
    box = (x - radius, y - radius, x + radius, y + radius)
    if kind == "circles":
        draw.ellipse(box, fill=colour)
    elif kind == "rings":
        draw.ellipse(box, outline=colour, width=max(2, int(radius * 0.3)))
    elif kind == "squares":
        draw.polygon(polygon(centre, radius * 1.2, 4, turn), fill=colour)
    elif kind == "triangles":
        draw.polygon(polygon(centre, radius * 1.2, 3, turn), fill=colour)
    elif kind == "stars":
        draw.polygon(polygon(centre, radius * 1.3, 10, turn, inner=0.4), fill=colour)
    elif kind == "crosses":
        for arm in (0, math.pi / 2):
            dx, dy = 1.2 * radius * math.cos(turn + arm), 1.2 * radius * math.sin(turn + arm)
            draw.line((x - dx, y - dy, x + dx, y + dy), fill=colour, width=max(2, int(radius * 0.5)))


def texture(kind: str, width: int, height: int, rng: random.Random, ground: np.ndarray, ink: np.ndarray) -> np.ndarray:
    y, x = np.mgrid[:height, :width] / max(width, height)
    angle, frequency, phase = rng.uniform(0, math.pi), rng.uniform(5, 9), rng.uniform(0, 2 * math.pi)
    along, across = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
    if kind == "stripes":
        pattern = np.sin(2 * math.pi * frequency * along + phase) > 0
    elif kind == "checks":
        pattern = (np.sin(2 * math.pi * frequency * along) > 0) ^ (np.sin(2 * math.pi * frequency * across) > 0)
    else:  # waves
        pattern = np.sin(2 * math.pi * (frequency * along + 0.35 * np.sin(2 * math.pi * 3 * across)) + phase) > 0
    return np.where(pattern[..., None], ink, ground)


def make_picture(kind: str, rng: random.Random) -> Image.Image:
    """One picture of a class, with a size, colours, places and light of its own."""
    width, height = rng.randint(90, 260), rng.randint(90, 260)
    ground = np.array([rng.randint(120, 255) for _ in range(3)], float)
    ink = np.array([rng.randint(0, 110) for _ in range(3)], float)
    if kind in ("stripes", "checks", "waves"):
        pixels = texture(kind, width, height, rng, ground, ink)
    else:
        image = Image.new("RGB", (width, height), tuple(int(v) for v in ground))
        draw = ImageDraw.Draw(image)
        side = min(width, height)
        placed: list[tuple[float, float]] = []
        for _ in range(30):  # places that do not overlap, as many as fit of up to four
            centre = width / 2 + rng.uniform(-0.3, 0.3) * side, height / 2 + rng.uniform(-0.3, 0.3) * side
            if len(placed) < 4 and all(math.dist(centre, other) > 0.4 * side for other in placed):
                placed.append(centre)
                radius, turn = rng.uniform(0.13, 0.18) * side, rng.uniform(0, 2 * math.pi)
                draw_shape(draw, kind, centre, radius, tuple(map(int, ink)), turn)
        pixels = np.asarray(image, dtype=float)
    noise = np.random.default_rng(rng.randrange(2**32))
    light = np.linspace(rng.uniform(0.75, 1.1), rng.uniform(0.75, 1.1), width)[None, :, None]
    pixels = (pixels * light + noise.normal(0, 6, pixels.shape)).clip(0, 255).astype(np.uint8)
    return Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(rng.uniform(0, 0.8)))


def make_folder(folder: Path, per_class: int = 60, seed: int = 0) -> None:
    """Write ``labelled/CLASS/*.jpg``, ``unlabelled/*.jpg`` and ``truth.csv``."""
    rng = random.Random(seed)
    for kind in KNOWN:
        (folder / "labelled" / kind).mkdir(parents=True, exist_ok=True)
        for number in range(per_class):
            path = folder / "labelled" / kind / f"{number:04d}.jpg"
            make_picture(kind, rng).save(path, quality=rng.randint(75, 95))
    (folder / "unlabelled").mkdir(parents=True, exist_ok=True)
    pile = [kind for kind in NEW for _ in range(per_class)]
    rng.shuffle(pile)
    with (folder / "truth.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        for number, kind in enumerate(pile):
            name = f"unlabelled/IMG_{number:05d}.jpg"
            make_picture(kind, rng).save(folder / name, quality=rng.randint(75, 95))
            writer.writerow([name, kind])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to put the pictures")
    parser.add_argument("--per-class", type=int, default=60, help="pictures of each class")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    make_folder(options.folder, options.per_class, options.seed)
    print(f"{options.folder}: {len(KNOWN)} known classes in labelled/, {len(NEW)} new ones mixed in unlabelled/")


if __name__ == "__main__":
    main()
