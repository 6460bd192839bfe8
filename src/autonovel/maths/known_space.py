"""What the known classes teach about features: a space in which a class is round, and neighbours that agree.

Features of a network spread in some directions for reasons that have nothing to do with the class (light, pose, background).
How images of one known class differ shows those directions; the space here shrinks them. Groups in it are found on points that
were moved towards their nearest neighbours, which closes the gaps inside a class more than those between classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from autonovel.base.errors import InputError
from autonovel.maths.kmeans import kmeans
from autonovel.maths.points import check_features

COMPONENTS = 128
EXACT, ROUNDS, SPARE = 1024, 6, 32
"""Of principal axes: features and images up to which they are exact; beyond, rounds of multiplication and directions more than
are wanted, which make the last ones right."""
SHRINK = 0.5
NEIGHBOURS = 5
PASSES = 2
# Floats of one block of similarities.
_BLOCK = 1 << 24


def unit(points: Tensor) -> Tensor:
    """Rows scaled to length 1; rows of zeros stay zeros."""
    length: Tensor = points.norm(dim=1, keepdim=True)
    return points / length.clamp(min=1e-12)


@dataclass(frozen=True)
class Space:
    """An affine map of unit-length features, followed by unit length: all that is needed to place a new image."""

    mean: Tensor
    """(d,)"""
    matrix: Tensor
    """(d, components)"""

    def transform(self, features: Tensor) -> Tensor:
        """(n, d) features of the network to (n, components) points of length 1."""
        return unit((unit(features.to(self.mean)) - self.mean) @ self.matrix)


def number_of_classes(labels: Tensor) -> int:
    """How many classes `labels` (n,) number from 0; none where there are no labels."""
    return int(labels.max()) + 1 if len(labels) else 0


def principal_axes(features: Tensor, components: int = COMPONENTS) -> Space:
    """Mean and directions of largest variance of unit-length `features` (n, d), as a space that only turns and cuts.

    Of many features of many images the directions are found by rounds of multiplication, in a twentieth of the time; what they
    hold of the variance is the same to a thousandth.
    """
    check_features(features)
    x = unit(features.float())
    mean = x.mean(0)
    x = x - mean
    count = min(components, *x.shape)
    if min(x.shape) > EXACT:
        axes = _directions(x, count)
    elif len(x) < x.shape[1]:
        # in float32 the direction without variance, which centring leaves, would be noise that is blown up
        x = x.double()
        values, vectors = torch.linalg.eigh(x @ x.T)
        axes = x.T @ vectors[:, -count:] / values[-count:].clamp(min=1e-12).sqrt()
    else:
        axes = torch.linalg.eigh((x.T @ x).double()).eigenvectors[:, -count:]
    return Space(mean, axes.float())


class Sums:
    """Number, sum and products of unit-length features that come part by part: their axes are those of all of them together.

    Sums of several parts of a pile add up, wherever they were made.
    """

    def __init__(self, width: int) -> None:
        self.count = 0
        self.total = torch.zeros(width, dtype=torch.float64)
        self.products = torch.zeros(width, width, dtype=torch.float64)

    def add(self, features: Tensor) -> None:
        """Count these features (n, d) too."""
        x = unit(features.float())
        self.count += len(x)
        self.total += x.sum(0, dtype=torch.float64)
        self.products += (x.T @ x).double()

    def __iadd__(self, other: Sums) -> Sums:
        self.count += other.count
        self.total += other.total
        self.products += other.products
        return self

    def axes(self, components: int = COMPONENTS) -> Space:
        """Mean and directions of largest variance, as :func:`principal_axes` has them; exact for any number of features."""
        mean = self.total / self.count
        scatter = self.products - self.count * torch.outer(mean, mean)
        count = min(components, self.count, len(mean))
        return Space(mean.float(), torch.linalg.eigh(scatter).eigenvectors[:, -count:].float())


def _directions(x: Tensor, count: int) -> Tensor:
    """(d, count): directions of largest variance of centred `x` (n, d), by subspace iteration (Halko et al., 2011)."""
    start = torch.randn(x.shape[1], count + SPARE, generator=torch.Generator().manual_seed(0))
    axes = torch.linalg.qr(start.to(x)).Q
    for _ in range(ROUNDS):
        axes = torch.linalg.qr(x.T @ (x @ axes)).Q
    placed = (x @ axes).double()
    vectors = torch.linalg.eigh(placed.T @ placed).eigenvectors[:, -count:]
    directions: Tensor = axes @ vectors.float()
    return directions


def components(*parts: Tensor) -> list[Tensor]:
    """Each of `parts` (n_i, d), features of length 1, in the principal axes of all of them together."""
    axes = principal_axes(torch.cat(parts))
    return [(unit(part.float()) - axes.mean) @ axes.matrix for part in parts]


def within_scatter(points: Tensor, groups: Tensor) -> Tensor:
    """Mean over all points of the outer product of (point - mean of its group); points of group -1 are left out."""
    points, groups = points[groups >= 0].double(), groups[groups >= 0]
    size = int(groups.max()) + 1
    sums = points.new_zeros(size, points.shape[1]).index_add_(0, groups, points)
    counts = torch.bincount(groups, minlength=size).clamp(min=1)
    rest = points - (sums / counts[:, None])[groups]
    return rest.T @ rest / len(rest)


def whitening(points: Tensor, groups: Tensor, shrink: float = SHRINK) -> Tensor:
    """The symmetric matrix (d, d) that makes the scatter within `groups` round.

    The scatter is first mixed with a round one of the same size: few classes show only some of the directions in which the
    images of a class differ, and whitening with what they show alone would blow up the others.
    """
    scatter = within_scatter(points, groups)
    size = len(scatter)
    round_one = torch.eye(size, dtype=torch.float64, device=points.device) * scatter.trace() / size
    values, vectors = torch.linalg.eigh((1 - shrink) * scatter + shrink * round_one)
    smallest = 1e-9 * values[-1].clamp(min=1e-12)
    matrix: Tensor = (vectors * values.clamp(min=smallest).rsqrt()) @ vectors.T
    return matrix.float()


def smooth(points: Tensor, neighbours: int = NEIGHBOURS, passes: int = PASSES) -> Tensor:
    """`points` (n, d) of length 1, each moved `passes` times to the mean of its neighbours and itself; length 1 again.

    Two points are neighbours where either is among the `neighbours` nearest of the other; a link counts less the more links
    its ends have, so that a point in the middle of everything does not draw all others to itself.
    """
    n = len(points)
    count = min(neighbours, n // 4)
    if count < 1:
        return points
    near = nearest(points, count)
    index = torch.arange(n, device=points.device)
    rows = torch.cat([index, index.repeat_interleave(count), near.flatten()])
    cols = torch.cat([index, near.flatten(), index.repeat_interleave(count)])
    pairs = torch.unique(rows * n + cols)  # one number for each pair: unique over columns is ten times slower
    rows, cols = pairs // n, pairs % n  # in the order of the rows
    links = torch.bincount(rows, minlength=n)
    weight = links.to(points).rsqrt()
    weight = weight[rows] * weight[cols]
    starts = links.cumsum(0) - links
    for _ in range(passes):
        points = embedding_bag(cols, points, starts, mode="sum", per_sample_weights=weight)
    return unit(points)


def nearest(points: Tensor, count: int, among: Tensor | None = None) -> Tensor:
    """int64 (n, count): the rows of `among` most similar to each point; without `among` the other points."""
    others = points if among is None else among
    step = max(1, _BLOCK // len(others))
    blocks = []
    for begin in range(0, len(points), step):
        block = points[begin : begin + step] @ others.T
        if among is None:
            own = torch.arange(len(block), device=points.device)
            block[own, begin + own] = -torch.inf
        blocks.append(block.topk(count, dim=1).indices)
    return torch.cat(blocks)


def find_groups(points: Tensor, k: int, *, plain: bool = False, restarts: int = 10, seed: int = 0) -> Tensor:
    """int64 (n,): `k` groups of `points` (n, d) of length 1, by k-means on the smoothed points, or as they are if `plain`.

    None of them is empty: smoothing may make one point of two neighbours, which then must go apart all the same.
    """
    if not 1 <= k <= len(points):
        raise InputError(f"{len(points)} images cannot be put into {k} groups; ask for 1 to {len(points)}.")
    groups = kmeans(points if plain else smooth(points), k, restarts=restarts, seed=seed).labels
    return without_empty(points, groups, k)


def without_empty(points: Tensor, groups: Tensor, k: int) -> Tensor:
    """`groups` (n,) of `points` (n, d), of which each empty one takes the point that fits its own group least.

    A group that has a single point keeps it; there must be `k` points or more.
    """
    groups = groups.clone()
    for empty in (torch.bincount(groups, minlength=k) == 0).nonzero()[:, 0].tolist():
        fits = (unit(points) * group_means(points, groups, k)[groups]).sum(1)
        alone = torch.bincount(groups, minlength=k)[groups] == 1
        groups[torch.where(alone, torch.inf, fits).argmin()] = empty
    return groups


def some_of_each(labels: Tensor, most: Tensor, generator: torch.Generator) -> Tensor:
    """bool (n,): of every class of `labels` (n,), at most so many drawn at random: `most` (classes,)."""
    keep = torch.zeros_like(labels, dtype=torch.bool)
    for label, count in enumerate(most.tolist()):
        members = (labels == label).nonzero()[:, 0]
        keep[members[torch.randperm(len(members), generator=generator).to(labels.device)[:count]]] = True
    return keep


def group_means(points: Tensor, groups: Tensor, k: int) -> Tensor:
    """(k, d): the direction of each group, of length 1; zeros where a group is empty."""
    return unit(points.new_zeros(k, points.shape[1]).index_add_(0, groups, points))
