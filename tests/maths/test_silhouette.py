"""The silhouette against scikit-learn's, in one piece, in chunks, for many clusterings and by sample."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_samples as sklearn_samples
from sklearn.metrics import silhouette_score

from autonovel.base.errors import InputError
from autonovel.maths.silhouette import silhouette, silhouette_samples


def random_clusterings(n: int = 90, dim: int = 4, sizes: tuple[int, ...] = (2, 3, 7, 40), seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, dim, generator=generator)
    labels = torch.stack([torch.randint(k, (n,), generator=generator) for k in sizes])
    labels[:, :2] = torch.tensor([0, 1])
    return points, labels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_point_as_in_scikit_learn(dtype: torch.dtype) -> None:
    points, labels = random_clusterings()
    ours = silhouette_samples(points.to(dtype) + 20, labels)
    for row, clustering in zip(ours, labels, strict=True):
        theirs = sklearn_samples(points.double().numpy() + 20, clustering.numpy())
        np.testing.assert_allclose(row.numpy(), theirs, atol=1e-5 if dtype == torch.float32 else 1e-9)


def test_blocks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    points, labels = random_clusterings(200)
    whole = silhouette_samples(points, labels)
    monkeypatch.setattr("autonovel.maths.silhouette._CPU_EDGE", 23)
    monkeypatch.setattr("autonovel.maths.silhouette._MAX_SUMS", 500)
    torch.testing.assert_close(silhouette_samples(points, labels), whole, rtol=0, atol=1e-5)


def test_one_clustering_or_many() -> None:
    points, labels = random_clusterings()
    many = silhouette(points, labels)
    assert many.standard_error.eq(0).all()
    for i, row in enumerate(labels):
        one = silhouette(points, row)
        assert one.score.shape == (1,)
        assert one.score[0].item() == pytest.approx(many.score[i].item(), abs=1e-6)
        assert one.score[0].item() == pytest.approx(silhouette_score(points.numpy(), row.numpy()), abs=1e-5)


def test_labels_may_have_gaps_and_any_names() -> None:
    points, labels = random_clusterings()
    assert silhouette(points, labels * 17 - 5).score.equal(silhouette(points, labels).score)


def test_a_sample_is_exact_for_its_points_and_honest_about_the_rest() -> None:
    points, labels = random_clusterings(400, 3, (3, 5))
    rows = torch.tensor([5, 399, 7])
    exact = silhouette_samples(points, labels)
    torch.testing.assert_close(silhouette_samples(points, labels, rows=rows), exact[:, rows], rtol=0, atol=1e-6)
    errors = []
    for seed in range(40):
        drawn = silhouette(points, labels, sample=80, seed=seed)
        errors.append(((drawn.score - exact.mean(1)) / drawn.standard_error).abs())
    share_within_two = (torch.stack(errors) < 2).double().mean().item()
    assert 0.85 < share_within_two <= 1
    assert silhouette(points, labels, sample=400).standard_error.eq(0).all()


def test_points_alone_or_together() -> None:
    points = torch.tensor([[0.0], [1.0], [10.0]])
    assert silhouette_samples(points, torch.tensor([0, 0, 1]))[0].tolist() == pytest.approx([0.9, 8 / 9, 0])
    assert math.isnan(silhouette(points, torch.zeros(3, dtype=torch.int64)).score.item())
    same = torch.zeros(4, 2)
    assert silhouette(same, torch.tensor([0, 0, 1, 1])).score.item() == 0
    twins = torch.tensor([[0.0, 0], [0, 0], [3, 4], [3, 4]], dtype=torch.float64)
    assert silhouette(twins, torch.tensor([0, 0, 1, 1])).score.item() == pytest.approx(1, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 40), st.integers(2, 6))
def test_small_integer_points_as_in_scikit_learn(seed: int, n: int, k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randint(-2, 3, (n, 2), generator=generator).double()
    labels = torch.randint(min(k, n - 1), (n,), generator=generator)
    labels[:2] = torch.tensor([0, 1])
    value = silhouette(points, labels).score.item()
    assert -1 <= value <= 1
    if len(torch.unique(labels)) < n:
        # scikit-learn counts 0/0 as 0 too; distances here are integers under a root, so only rounding differs.
        assert value == pytest.approx(silhouette_score(points.numpy(), labels.numpy()), abs=1e-6)


def test_refused_with_a_sentence() -> None:
    points, labels = random_clusterings()
    with pytest.raises(InputError, match="integers"):
        silhouette(points, labels.float())
    with pytest.raises(InputError, match="one for each of the 90"):
        silhouette(points, labels[:, :50])
    with pytest.raises(InputError, match="at least 2"):
        silhouette(points, labels, sample=1)
    points[3, 1] = math.nan
    with pytest.raises(InputError, match="row 3"):
        silhouette(points, labels)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_gpu_gives_the_result_of_the_cpu() -> None:
    points, labels = random_clusterings(20_000, 32)
    cpu = silhouette(points, labels, sample=500)
    gpu = silhouette(points.cuda(), labels.cuda(), sample=500)
    torch.testing.assert_close(cpu.score, gpu.score, rtol=0, atol=1e-5)
