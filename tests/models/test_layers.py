"""Convolutions keep all of what they were built with, in every precision and with gradients taken in parts."""

from collections.abc import Iterator

import pytest
import torch

from autonovel.models.layers import Conv2d


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "groups"),
    [(3, 1, 1, 1, 1), (3, 2, 2, 2, 1), (3, 1, 1, 1, 4), (5, 2, 2, 1, 2), (3, (2, 1), (0, 2), (1, 2), 4)],
)
def test_dilation_and_groups_are_kept(
    kernel: int, stride: int, padding: int, dilation: int, groups: int, dtype: torch.dtype, count: int, threads: None
) -> None:
    torch.set_num_threads(count)
    torch.manual_seed(0)
    ours = Conv2d(4, 8, kernel, stride, padding, dilation, groups)
    plain = torch.nn.Conv2d(4, 8, kernel, stride, padding, dilation, groups)
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(5, 4, 9, 9)
    results = []
    for layer, kind in ((ours, dtype), (plain, torch.float32)):
        given = x.clone().requires_grad_()
        y = layer(given.to(kind))
        assert y.dtype == kind
        (y.float() * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
        results.append([y.detach().float(), given.grad, layer.weight.grad, layer.bias.grad])
    close = 1e-4 if dtype == torch.float32 else 0.03
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=close, atol=close * float(expected.abs().max()))


@pytest.mark.parametrize("count", [1, 2])
def test_an_image_of_one_pixel_gives_whole_gradients_in_bfloat16(count: int, threads: None) -> None:
    """Most of the kernel meets nothing but padding there; its gradient is zero, and must not be what lay in memory."""
    torch.set_num_threads(count)
    for _ in range(5):
        torch.full((64, 32, 3, 3), torch.nan)  # memory that a gradient which is not set would find again
        layer = Conv2d(32, 64, 3, 2, 1, bias=False)
        layer(torch.randn(8, 32, 1, 1).bfloat16()).float().sum().backward()
        gradient = layer.weight.grad
        assert gradient.isfinite().all()
        gradient[:, :, 1, 1] = 0
        assert not gradient.any()
