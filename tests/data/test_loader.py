"""The order of an epoch, batches, resizing."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from autonovel.base.errors import InputError
from autonovel.data import loader
from autonovel.data.images import ImageSet
from autonovel.data.loader import (
    DeviceImages,
    StreamedImages,
    host_generator,
    mixed,
    put_on,
    resize,
    shuffled,
)
from autonovel.data.reading.decode import Form, to_pixels
from autonovel.machine import memory
from autonovel.machine.memory import free_memory

CPU = torch.device("cpu")


@settings(max_examples=80, deadline=None)
@given(n=st.integers(1, 60), batch=st.integers(1, 70), epoch=st.integers(0, 5))
def test_a_pass_visits_every_image_once_and_fills_the_last_batch(n: int, batch: int, epoch: int) -> None:
    index = torch.arange(n) * 3 + 5
    order = shuffled(index, batch, 0, "joint", epoch)
    size = min(batch, n)
    steps = -(-n // size)
    assert order.shape == (steps, size)
    visited = order.flatten()
    assert sorted(visited[:n].tolist()) == index.tolist()
    assert visited[n:].tolist() == visited[: steps * size - n].tolist()  # filled from the start of the pass
    for row in order:
        assert len(set(row.tolist())) == size  # no image twice in a batch
    assert torch.equal(shuffled(index, batch, 0, "joint", epoch), order)


def test_passes_differ_by_key_and_are_shuffled() -> None:
    index = torch.arange(1000)
    orders = [shuffled(index, 100, 0, "joint", epoch).flatten() for epoch in range(4)]
    assert not torch.equal(orders[0], orders[1])
    for order in orders:
        assert abs(np.corrcoef(order.numpy(), np.arange(1000))[0, 1]) < 0.2
    state = torch.random.get_rng_state()
    shuffled(index, 100, 1)
    assert torch.equal(torch.random.get_rng_state(), state)  # torch's own randomness is left alone


@settings(max_examples=60, deadline=None)
@given(n_known=st.integers(1, 40), n_new=st.integers(1, 40), batch=st.integers(2, 20), data=st.data())
def test_mixed_batches_have_a_fixed_share(n_known: int, n_new: int, batch: int, data: st.DataObject) -> None:
    share = data.draw(st.integers(1, min(batch - 1, n_known)))
    known, new = torch.arange(n_known), 1000 + torch.arange(n_new)
    order = mixed(known, new, batch, share, 0, "joint", 1)
    steps = -(-n_known // share)
    assert order.shape == (steps, batch)
    assert bool((order[:, :share] < 1000).all())
    assert bool((order[:, share:] >= 1000).all())
    assert sorted(order[:, :share].flatten()[:n_known].tolist()) == known.tolist()
    # new images come in whole passes: no one is seen twice more often than another
    counts = np.bincount(order[:, share:].flatten().numpy() - 1000, minlength=n_new)
    assert counts.max() - counts.min() <= 1
    assert torch.equal(mixed(known, new, batch, share, 0, "joint", 1), order)


@pytest.mark.parametrize("share", [0, -1, 8, 9])
def test_impossible_shares_are_refused(share: int) -> None:
    with pytest.raises(
        InputError, match=rf"known_per_batch is {share}; it must lie between 1 and 7, the batch less one\."
    ):
        mixed(torch.arange(20), torch.arange(20), 8, share, 0)


def test_generators_depend_on_the_key_alone() -> None:
    first, again, other = (torch.rand(3, generator=host_generator(*key)) for key in [(0, "a"), (0, "a"), (0, "b")])
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def small_set(n: int = 9, height: int = 6, width: int = 5) -> ImageSet:
    images = np.random.default_rng(0).integers(0, 256, (n, height, width, 3), dtype=np.uint8)
    return ImageSet.from_arrays(images, np.resize([0, 1, -1], n))


def test_batches_hold_the_images_at_their_places() -> None:
    data = small_set()
    batch = DeviceImages(data, CPU).batch(torch.tensor([4, 2, 2]))
    np.testing.assert_array_equal(batch.images.numpy(), data.images[[4, 2, 2]])
    assert batch.labels.tolist() == [1, -1, -1]
    assert batch.index.tolist() == [4, 2, 2]
    # every second image, as slices of memory maps are
    every_second = ImageSet(data.images[::2], data.labels[::2].copy(), data.ids[::2], data.class_names)
    assert torch.equal(DeviceImages(every_second, CPU).images, torch.from_numpy(data.images[::2].copy()))


@pytest.mark.parametrize("size", [0, 4])
def test_streamed_images_are_the_same_as_those_in_memory(size: int) -> None:
    data = small_set(23)
    whole, streamed = DeviceImages(data, CPU, size=size), StreamedImages(data, CPU, size=size)
    streamed.reserve(4)
    for epoch in range(3):
        order = shuffled(torch.arange(23), 4, 0, epoch)
        streamed.begin(order)
        for row in order:
            streamed.fetch()
            for found, expected in zip(streamed.batch(row), whole.batch(row), strict=True):
                assert torch.equal(found, expected)
    for places in (None, np.array([22, 0, 7]), np.array([], dtype=np.int64)):
        parts = [list(images.chunks(places, size=5)) for images in (whole, streamed)]
        assert all(len(part) <= 5 for side in parts for part in side)
        if places is None or len(places):
            assert torch.equal(torch.cat(parts[0]), torch.cat(parts[1]))


@pytest.mark.parametrize("kind", [DeviceImages, StreamedImages])
def test_other_labels_for_the_same_images(kind: type[DeviceImages] | type[StreamedImages]) -> None:
    data = small_set()
    images = kind(data, CPU)
    other = images.relabelled(np.full(9, -1))
    assert other.labels.tolist() == [-1] * 9
    assert images.labels.tolist() == data.labels.tolist()
    assert torch.equal(torch.cat(list(other.chunks())), torch.cat(list(images.chunks())))


def test_a_file_that_cannot_be_read_stops_the_step_and_not_the_reader_alone() -> None:
    data = small_set()
    images = StreamedImages(data, CPU)
    images.reserve(2)
    images.begin(torch.tensor([[0, 1], [5, 99]]))  # there is no image 99
    images.fetch()
    with pytest.raises(IndexError):
        images.fetch()


@pytest.mark.parametrize("fetched", [0, 3])
def test_an_epoch_that_is_ended_early_leaves_no_reader_behind(fetched: int) -> None:
    before = set(threading.enumerate())
    images = StreamedImages(small_set(), CPU)
    images.reserve(1)
    images.begin(torch.arange(9).repeat(100).view(-1, 1))  # many more than are read ahead
    (reader,) = set(threading.enumerate()) - before
    for _ in range(fetched):
        images.fetch()
    images.end()
    reader.join(10)
    assert not reader.is_alive()


def test_a_step_that_waits_while_its_epoch_is_ended_does_not_wait_for_ever() -> None:
    """The next batch is fetched in a thread beside the step that fails."""
    images = StreamedImages(small_set(), CPU)
    images.reserve(1)
    images.begin(torch.arange(9).view(-1, 1))
    images.end()
    with pytest.raises(RuntimeError, match="ended"):  # noqa: PT012  # how many batches were there already is up to the thread
        for _ in range(9):
            images.fetch()


def test_images_are_streamed_where_they_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_set()
    assert isinstance(put_on(CPU, data), DeviceImages)
    assert free_memory(CPU) > 0
    monkeypatch.setattr(loader, "free_memory", lambda device: 2 * data.images.nbytes)
    assert isinstance(put_on(CPU, data), DeviceImages)
    assert isinstance(put_on(CPU, data, size=16), StreamedImages)  # larger once resized
    monkeypatch.setattr(loader, "free_memory", lambda device: data.images.nbytes)
    assert isinstance(put_on(CPU, data), StreamedImages)


@pytest.mark.parametrize(("channels", "size"), [(1, 16), (3, 16), (3, 5), (1, 1), (3, 33)])
def test_resizing_agrees_with_pillow(channels: int, size: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 12, 12, channels), dtype=np.uint8)
    found = resize(torch.from_numpy(images), size).numpy()
    assert found.shape == (4, size, size, channels)
    assert found.dtype == np.uint8
    for image, result in zip(images, found, strict=True):
        picture = Image.fromarray(image.squeeze()).resize((size, size), Image.Resampling.BILINEAR)
        away = np.abs(np.asarray(picture).reshape(result.shape).astype(int) - result)
        assert away.max() <= 2
        assert away.mean() < 0.6


def test_resizing_leaves_fitting_images_alone_and_makes_others_square() -> None:
    images = torch.randint(0, 256, (3, 8, 8, 1), dtype=torch.uint8)
    assert resize(images, 0) is images
    assert resize(images, 8) is images
    assert resize(torch.zeros(2, 6, 9, 3, dtype=torch.uint8), 7).shape == (2, 7, 7, 3)
    assert resize(torch.zeros(0, 6, 9, 3, dtype=torch.uint8), 7).shape == (0, 7, 7, 3)
    white = torch.full((2, 6, 9, 3), 255, dtype=torch.uint8)
    assert bool((resize(white, 13) == 255).all())


@pytest.mark.parametrize(("side", "size", "levels"), [(160, 64, 1), (64, 96, 1), (640, 64, 8)])
def test_a_file_is_resized_as_images_in_memory_are(side: int, size: int, levels: int) -> None:
    waves = np.sin(np.arange(side)[:, None] / 7) + np.cos(np.arange(side)[None] / 11)
    pixels = np.repeat(((waves + 2) * 63).astype(np.uint8)[..., None], 3, 2)
    pixels[side // 3 :, side // 2 :, 1] //= 3
    read = np.asarray(to_pixels(Image.fromarray(pixels), Form(size, 3)))
    here = resize(torch.from_numpy(pixels)[None], size)[0].numpy()
    assert np.abs(read.astype(int) - here.astype(int)).max() <= levels


def test_resizing_in_chunks_gives_the_same_as_one_by_one() -> None:
    images = torch.randint(0, 256, (4097, 3, 3, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    together = resize(images, 5)
    assert torch.equal(together[4095:], resize(images[4095:], 5))
    assert len(together) == 4097


@pytest.mark.parametrize("generation", [1, 2])
def test_memory_that_a_container_may_not_use_is_not_free(
    generation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path if generation == 2 else tmp_path / "memory"
    folder.mkdir(exist_ok=True)
    limit, used = (
        ("memory.max", "memory.current") if generation == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    (folder / limit).write_text("1000000\n")
    (folder / used).write_text("700000\n")
    # of what is used, a part is copies of files, which the system gives up when memory is wanted
    prefix = "" if generation == 2 else "total_"
    (folder / "memory.stat").write_text(f"anon 400000\n{prefix}inactive_file 200000\n")
    assert memory._free_in_container(tmp_path) == 500_000
    (folder / limit).write_text("max\n")
    assert memory._free_in_container(tmp_path) > 2**60
    assert memory._free_in_container(tmp_path / "nothing") > 2**60
    monkeypatch.setattr(memory, "_free_in_container", lambda: 500_000)
    assert free_memory(CPU) == 500_000
