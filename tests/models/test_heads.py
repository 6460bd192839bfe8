"""Heads of the compared methods against plain loops and layers."""

import pytest
import torch
from torch.nn import functional as F

from autonovel.models.heads import HeadSpec, make_head


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_head_that_compares_is_a_normalised_hidden_layer_over_both_features_side_by_side():
    head, x = make_head(HeadSpec("alike", 3, 2, hidden=5)), drawn(6, 3)
    with torch.no_grad():
        for number, p in enumerate(head.parameters()):
            p.copy_(drawn(*p.shape, seed=number))
    pairs = torch.stack([torch.cat([a, b]) for a in x for b in x])
    first, second = head.sides.weight.chunk(2)
    hidden = pairs @ torch.cat([first, second], 1).T
    hidden = F.batch_norm(hidden, None, None, head.weight, head.bias, training=True)
    expected = F.linear(hidden.relu(), head.answer.weight, head.answer.bias).view(6, 6, 2)
    torch.testing.assert_close(head(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden", [0, 4])
def test_the_head_of_dtc_gives_students_t_of_the_distances_to_its_centres(hidden):
    head, x = make_head(HeadSpec("student", 3, 4, hidden=hidden)), drawn(6, 3)
    with torch.no_grad():
        head.centres.copy_(drawn(4, 4, seed=1))
    near = 1 / (1 + torch.cdist(head.place(x), head.centres).square())
    torch.testing.assert_close(head(x).softmax(1), near / near.sum(1, keepdim=True))
    head(x).square().sum().backward()
    assert head.centres.grad.abs().sum() > 0
