"""Features that are computed once: what is found again, by whom, and what damaged or old files do."""

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from autonovel.base.errors import InputError
from autonovel.data.augment import to_float
from autonovel.models import feature_files, feature_store
from autonovel.models.backbones import Backbone, build_backbone
from autonovel.models.feature_store import stream_features
from autonovel.models.foreign import Pretrained
from autonovel.models.layers import Conv2d
from autonovel.models.views import BatchNorm, GlobalAverage
from autonovel.settings.recipe import Model

CPU = torch.device("cpu")


class Counting(nn.Module):
    """Counts the images that pass: over all copies, as the store computes with one."""

    images = 0
    counting = threading.Lock()  # several threads pass images at once, and adding to a number is two operations

    def forward(self, x: Tensor) -> Tensor:
        with Counting.counting:
            Counting.images += len(x)
        return x


@pytest.fixture(autouse=True)
def no_images_yet() -> Iterator[None]:
    Counting.images = 0
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def tiny(identity: str = "tiny 1", weights: int = 0) -> Backbone:
    torch.manual_seed(weights)
    blocks = Pretrained(Counting(), Conv2d(3, 5, 3, 2, 1), BatchNorm(5), GlobalAverage())
    return Backbone(blocks, 5, ((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)), 0, True, identity)


def pictures(n: int, side: int = 8, seed: int = 0, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, channels), dtype=np.uint8)


def features_of(backbone: Backbone, images: Any, **options: Any) -> np.ndarray:
    """All parts as one array, which has its shape even where there is no part."""
    return np.concatenate(
        [np.empty((0, backbone.n_features), np.float32), *stream_features(backbone, images, **options)]
    )


def expected(backbone: Backbone, images: np.ndarray) -> np.ndarray:
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in backbone.statistics)
    with torch.no_grad():
        return backbone.blocks.eval()((to_float(torch.from_numpy(images)) - mean) / std).numpy()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("channels", [1, 3])
def test_features_are_those_of_the_backbone(channels: int, threads: int) -> None:
    torch.set_num_threads(threads)
    backbone, images = tiny(), pictures(11, channels=channels)
    found = features_of(backbone, images, device=CPU)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected(backbone, images), atol=1e-5)
    assert backbone.blocks[0].images == 22  # one pass each for the two of us


class Narrow(nn.Module):
    """Stands for a GPU that has room for a few images at a time."""

    room = 0

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > Narrow.room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return x


@pytest.mark.parametrize("room", [1, 3, 7])
def test_where_there_is_no_room_for_a_batch_the_features_are_computed_in_parts(room: int, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    backbone, images = tiny(), pictures(11)
    wanted = features_of(backbone, images, device=CPU)
    backbone.blocks.insert(0, Narrow())
    Narrow.room = room
    np.testing.assert_allclose(features_of(backbone, images, device=CPU, cache=tmp_path), wanted, atol=1e-6)
    Narrow.room = 0
    with pytest.raises(torch.OutOfMemoryError):
        features_of(backbone, images[:3], device=CPU)


def test_the_backbone_is_left_alone() -> None:
    backbone = build_backbone(Model(backbone="efficientnet-lite0"), channels=3, size=32, weights=False)
    backbone = Backbone(backbone.blocks, 1280, backbone.statistics, 224, True, "random")
    before = {name: value.clone() for name, value in backbone.blocks.state_dict().items()}
    backbone.blocks.train()
    for precision in (torch.float32, torch.bfloat16):
        assert features_of(backbone, pictures(3, 32), device=CPU, precision=precision).shape == (3, 1280)
    after = backbone.blocks.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) and before[name].dtype == after[name].dtype for name in before)
    assert backbone.blocks.training
    assert all(p.requires_grad for p in backbone.blocks.parameters())


def test_a_second_call_computes_nothing(tmp_path: Path) -> None:
    images = pictures(9)
    first = features_of(tiny(), images, device=CPU, cache=tmp_path)
    assert Counting.images == 9
    again = features_of(tiny(), images[::-1], device=CPU, cache=tmp_path)
    assert Counting.images == 9
    assert np.array_equal(again[::-1], first)
    # some that were there, some that were not, some twice, in parts and as tensors
    more = np.concatenate([images[3:5], pictures(3, seed=1), images[:2]])
    parts = [more[:1], torch.from_numpy(more[1:4]), more[4:]]
    mixed = features_of(tiny(), parts, device=CPU, cache=tmp_path)
    assert Counting.images == 12
    assert np.array_equal(mixed[[0, 1, 5, 6]], first[[3, 4, 0, 1]])
    np.testing.assert_allclose(mixed, expected(tiny(), more), atol=1e-5)


def test_weights_under_another_s_name_spoil_nothing(tmp_path: Path) -> None:
    """A file of weights that has rotted, or that a stranger made, still says the name of the weights it once held."""
    images = pictures(5)
    honest, rotted, shifted = tiny(), tiny(), replace(tiny(), statistics=((0.1, 0.2, 0.3), (0.2, 0.3, 0.4)))
    with torch.no_grad():
        rotted.blocks[1].weight.view(torch.int32)[0, 0, 0, 0] ^= 1 << 30
    for backbone in (rotted, shifted, honest):
        found = features_of(backbone, images, device=CPU, cache=tmp_path)
        np.testing.assert_allclose(found, expected(backbone, images), atol=1e-5)
    assert Counting.images == 6 * len(images)  # each for itself, and once more to know what is right


def test_the_name_of_the_weights_does_not_matter(tmp_path: Path) -> None:
    features_of(tiny("file.safetensors"), pictures(5), device=CPU, cache=tmp_path)
    features_of(tiny("renamed.safetensors"), pictures(5), device=CPU, cache=tmp_path)
    assert Counting.images == 5


def test_without_a_cache_nothing_is_kept() -> None:
    images = pictures(3)
    both = features_of(tiny(), np.concatenate([images, images]), device=CPU)
    assert Counting.images == 6
    assert np.array_equal(both[:3], both[3:])


def test_copies_are_computed_once(tmp_path: Path) -> None:
    images = pictures(3)
    both = features_of(tiny(), np.concatenate([images, images]), device=CPU, cache=tmp_path)
    assert Counting.images == 3
    assert np.array_equal(both[:3], both[3:])


def test_what_makes_features_different(tmp_path: Path) -> None:
    images = pictures(4)
    features_of(tiny(), images, device=CPU, cache=tmp_path)
    calls = [
        lambda: features_of(tiny("tiny 2", weights=1), images, device=CPU, cache=tmp_path),
        lambda: features_of(tiny(), images, device=CPU, cache=tmp_path, precision=torch.bfloat16),
        lambda: features_of(tiny(), pictures(4, side=10), device=CPU, cache=tmp_path),
        lambda: features_of(tiny(), images.reshape(4, 4, 16, 3), device=CPU, cache=tmp_path),  # the same bytes
    ]
    for number, call in enumerate(calls):
        before = Counting.images
        call()
        assert Counting.images == before + 4, number


def test_nothing_to_do(tmp_path: Path) -> None:
    assert features_of(tiny(), pictures(0), device=CPU, cache=tmp_path).shape == (0, 5)
    assert features_of(tiny(), [], device=CPU).shape == (0, 5)
    assert not list(tmp_path.rglob("*.features"))


def test_parts_come_one_by_one() -> None:
    parts = stream_features(tiny(), iter([pictures(3), pictures(300, seed=1)]), device=CPU)
    assert [len(part) for part in parts] == [3, 256, 44]


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images are read ahead and joined to batches of four, two of which are under way."""
    monkeypatch.setitem(feature_store._PACE, "cpu", feature_store._Pace(chunk=64, pixels=4 * 8 * 8, under_way=2))


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("sizes", [[30], [1] * 9, [3, 9, 0, 6, 11], [4, 4], [0]])
def test_parts_are_joined_to_full_batches(sizes: list[int], tmp_path: Path) -> None:
    images = pictures(sum(sizes))
    bounds = np.cumsum(sizes)[:-1]
    parts = np.split(images, bounds)
    found = list(stream_features(tiny(), iter(parts), device=CPU, cache=tmp_path))
    assert {len(part) for part in found[:-1]} <= {4}
    assert Counting.images == len(images)
    np.testing.assert_allclose(np.concatenate(found), expected(tiny(), images), atol=1e-5)
    again = features_of(tiny(), [torch.from_numpy(part) for part in parts], device=CPU, cache=tmp_path)
    assert Counting.images == 2 * len(images)  # the others are those of `expected`
    assert np.array_equal(again, np.concatenate(found))
    plain = list(stream_features(tiny(), iter(parts), device=CPU))
    assert [len(part) for part in plain] == [len(part) for part in found]
    np.testing.assert_allclose(np.concatenate(plain), again, atol=1e-5)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_an_image_that_is_under_way_is_not_computed_again(tmp_path: Path) -> None:
    images = pictures(5)
    many = np.concatenate([images, images[::-1], images])
    found = features_of(tiny(), many, device=CPU, cache=tmp_path)
    assert Counting.images == 5
    assert np.array_equal(found, np.concatenate([found[:5], found[4::-1], found[:5]]))


@pytest.mark.usefixtures("as_on_a_gpu")
def test_parts_of_other_sizes_are_not_joined() -> None:
    parts = [pictures(3), np.repeat(np.repeat(pictures(7), 2, 1), 2, 2), pictures(1)]
    found = list(stream_features(tiny(), iter(parts), device=CPU))
    assert sum(map(len, found)) == 11


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("keeps", [False, True])
def test_no_more_is_read_than_there_is_room_for(tmp_path: Path, keeps: bool) -> None:
    read = []

    def parts() -> Iterator[np.ndarray]:
        for number in range(100):
            read.append(number)
            yield pictures(4, seed=number)

    found = stream_features(tiny(), parts(), device=CPU, cache=tmp_path if keeps else None)
    next(found)
    time.sleep(0.2)
    assert (
        len(read) <= 9
    )  # three handed over, three that have digests, two that have none, and one to be on the safe side
    found.close()  # type: ignore[attr-defined]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_computes_the_features_of_the_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(feature_store._PACE, "cuda", feature_store._Pace(chunk=64, pixels=6 * 8 * 8, under_way=2))
    images = pictures(47)  # a full batch has six, the last is filled up
    on_cpu = features_of(tiny(), images, device=CPU)
    cuda, pixels = torch.device("cuda"), torch.from_numpy(images)
    for parts in ([images[:20], pixels[20:21], images[21:]], [pixels.cuda()]):
        for cache in (None, tmp_path):
            found = features_of(tiny(), parts, device=cuda, cache=cache)
            np.testing.assert_allclose(found, on_cpu, atol=1e-3)


def test_only_pretrained_backbones() -> None:
    with pytest.raises(ValueError, match="pre-trained"):
        features_of(build_backbone(Model(width=4), channels=3, size=8), pictures(1), device=CPU)


# ---- the files


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.features"))


def test_damaged_files_are_as_good_as_absent(tmp_path: Path) -> None:
    images = pictures(5)
    good = features_of(tiny(), images, device=CPU, cache=tmp_path)
    (file,) = files(tmp_path)
    content = file.read_bytes()
    for damaged in (b"", content[:30], content[:-1], content[:-7] + b"\0" * 7, b"x" + content[1:], content + b"\0"):
        for other in files(tmp_path):
            other.unlink()
        file.write_bytes(damaged)
        os.mkfifo(file.with_name("pipe.features"))
        before = Counting.images
        assert np.array_equal(features_of(tiny(), images, device=CPU, cache=tmp_path), good)
        assert Counting.images == before + 5


def test_a_stopped_computation_keeps_what_it_has(tmp_path: Path) -> None:
    def interrupted() -> Iterator[np.ndarray]:
        yield pictures(4)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        features_of(tiny(), interrupted(), device=CPU, cache=tmp_path)
    assert Counting.images == 4
    features_of(tiny(), pictures(4), device=CPU, cache=tmp_path)
    assert Counting.images == 4
    assert not list(tmp_path.rglob("*.part"))


def test_who_leaves_in_the_middle_keeps_what_there_is(tmp_path: Path) -> None:
    found = stream_features(tiny(), iter([pictures(4), pictures(4, seed=1)]), device=CPU, cache=tmp_path)
    next(found)
    found.close()  # type: ignore[attr-defined]
    features_of(tiny(), pictures(4), device=CPU, cache=tmp_path)
    assert Counting.images == 4


def test_a_long_computation_is_kept_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_files, "_FILE_SECONDS", 0.0)
    images = pictures(9)
    good = features_of(tiny(), np.split(images, 3), device=CPU, cache=tmp_path)
    assert len(files(tmp_path)) == 3
    assert np.array_equal(features_of(tiny(), images, device=CPU, cache=tmp_path), good)
    assert Counting.images == 9


def test_rows_that_lie_in_a_file_need_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_files, "_FILE_BYTES", 1)
    store, rows = (
        feature_files.Store(tmp_path, "x", 5),
        np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32),
    )
    digests = [bytes([i]) * feature_files.DIGEST for i in range(40)]
    for first in range(0, 40, 10):
        store.add(digests[first : first + 10], rows[first : first + 10])
        store._writer._writes[-1].result()
    store.add([], rows[:0])
    assert not store._fresh
    for other in (store, feature_files.Store(tmp_path, "x", 5)):
        assert all(np.array_equal(other.get(digest), row) for digest, row in zip(digests, rows, strict=True))
        assert other.get(b"?" * feature_files.DIGEST) is None
    store.close()
    for file in files(tmp_path):  # another process may
        file.unlink()
    assert store.get(digests[3]) is None


@pytest.mark.parametrize("fails", ["write", "complete"])
def test_a_full_disk_keeps_nobody_from_the_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(feature_files._File, fails, full)
    found = features_of(tiny(), np.split(pictures(6), 2), device=CPU, cache=tmp_path)
    np.testing.assert_allclose(found, expected(tiny(), pictures(6)), atol=1e-5)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_what_nobody_uses_for_a_month_is_removed(tmp_path: Path) -> None:
    features_of(tiny(), pictures(2), device=CPU, cache=tmp_path)
    (old,) = files(tmp_path)
    part, other = old.with_name(".x.part"), old.with_name("notes.txt")
    part.touch()
    other.touch()
    weeks_ago = time.time() - 29 * 86400
    for file in (old, part, other):
        os.utime(file, (weeks_ago, weeks_ago))
    features_of(tiny(), pictures(1, seed=1), device=CPU, cache=tmp_path)  # needs nothing of it
    assert old.exists()
    assert not part.exists()
    features_of(tiny(), pictures(2), device=CPU, cache=tmp_path)  # needs it: used today
    assert old.stat().st_mtime > time.time() - 3600
    months_ago = time.time() - 31 * 86400
    os.utime(old, (months_ago, months_ago))
    features_of(tiny(weights=1), pictures(1), device=CPU, cache=tmp_path)
    assert not old.exists()
    assert other.exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cache folder .*file cannot be used .*; give another as cache.$"):
        features_of(tiny(), pictures(1), device=CPU, cache=tmp_path / "file")


def _compute(folder: Path, seed: int) -> None:
    torch.set_num_threads(1)
    for number in range(10):
        features_of(tiny(), pictures(4, seed=seed + number), device=CPU, cache=folder)


def test_two_processes_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=_compute, args=(tmp_path, 5))
    other.start()
    while other.is_alive():
        _compute(tmp_path, 0)
    other.join()
    assert other.exitcode == 0
    Counting.images = 0
    everything = np.concatenate([pictures(4, seed=seed) for seed in range(15)])
    found = features_of(tiny(), everything, device=CPU, cache=tmp_path)
    assert Counting.images == 0  # all of it is there
    np.testing.assert_allclose(found, expected(tiny(), everything), atol=1e-5)
