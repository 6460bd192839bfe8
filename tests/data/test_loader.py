"""The order of an epoch, batches, resizing."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from autonovel.data.images import ImageSet
from autonovel.data.loader import DeviceImages, host_generator, mixed, resize, shuffled
from autonovel.errors import InputError


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
    with pytest.raises(InputError, match=r"--joint\.known-per-batch must lie between 1 and 7"):
        mixed(torch.arange(20), torch.arange(20), 8, share, 0)


def test_generators_depend_on_the_key_alone() -> None:
    first, again, other = (torch.rand(3, generator=host_generator(*key)) for key in [(0, "a"), (0, "a"), (0, "b")])
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_batches_hold_the_images_at_their_places() -> None:
    images = np.random.default_rng(0).integers(0, 256, (9, 6, 5, 3), dtype=np.uint8)
    data = ImageSet.from_arrays(images, [0, 1, -1] * 3)
    batch = DeviceImages.of(data, torch.device("cpu")).batch(torch.tensor([4, 2, 2]))
    np.testing.assert_array_equal(batch.images.numpy(), images[[4, 2, 2]])
    assert batch.labels.tolist() == [1, -1, -1]
    assert batch.index.tolist() == [4, 2, 2]
    # a view into a larger array, as slices of memory maps are
    assert len(DeviceImages(images[::2], data.labels[::2], torch.device("cpu"))) == 5


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
    white = torch.full((2, 6, 9, 3), 255, dtype=torch.uint8)
    assert bool((resize(white, 13) == 255).all())


def test_resizing_in_chunks_gives_the_same_as_one_by_one() -> None:
    images = torch.randint(0, 256, (4097, 3, 3, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    together = resize(images, 5)
    assert torch.equal(together[4095:], resize(images[4095:], 5))
    assert len(together) == 4097
