"""A folder in which tests build layouts of pictures."""

import os
from pathlib import Path

import pytest

from autonovel.base.errors import InputError
from autonovel.data.reading.inputs import load_images
from tests.hostile import encoded, picture


class Place:
    """A folder to build a layout in; every picture written is a new one unless asked otherwise."""

    def __init__(self, root: Path) -> None:
        self.root, self.number = root, 0

    def add(self, name: str | bytes, seed: int | None = None) -> Path:
        self.number += 1
        path = Path(os.fsdecode(os.path.join(os.fsencode(self.root), os.fsencode(name))))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded("PNG", picture(16, 16, seed=self.number if seed is None else seed)))
        return path

    def write(self, name: str, content: bytes) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_bytes(content)

    def usual(self, per_class: int = 4, unlabelled: int = 12) -> None:
        for number in range(per_class):
            self.add(f"known/a/{number}.png")
            self.add(f"known/b/{number}.png")
        for number in range(unlabelled):
            self.add(f"pile/{number:02d}.png")

    def load(self, labelled="known", unlabelled="pile", **settings):
        paths = [None if name is None else self.root / name for name in (labelled, unlabelled)]
        return load_images(*paths, size=16, channels=3, **settings)

    def refuses(self, sentence: str, labelled="known", unlabelled="pile") -> None:
        with pytest.raises(InputError, match=sentence) as refused:
            self.load(labelled, unlabelled)
        assert "\n" not in str(refused.value)
        assert str(refused.value).endswith(".")
