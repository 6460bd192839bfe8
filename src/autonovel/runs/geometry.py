"""Where images lie among each other, from their features alone: typicality, neighbours, a map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

CHUNK = 16_384
MAP_EXACT = 3_000
"""t-SNE lays out this many images in some seconds; of more, some are laid out and the rest placed among them."""

LANDMARKS = 2_000
COMPONENTS = 50
EXACT, ROUNDS, SPARE = 1024, 6, 14
"""Features up to which directions are exact; of more, rounds of multiplication, and directions more than are wanted."""


def typicality(features: npt.NDArray[np.floating], group: npt.NDArray[np.int64]) -> Floats:
    """How close every image is to the centre of its group: 1 for the closest, a half at the usual distance beyond it."""
    typical = np.ones(len(group), dtype=np.float32)
    order = np.argsort(group, kind="stable")
    starts = np.unique(group[order], return_index=True)[1]
    for members in np.split(order, starts[1:]) if len(order) else []:
        points = np.asarray(features[members], dtype=np.float32)
        distance = np.linalg.norm(points - points.mean(0), axis=1)
        usual = float(np.median(distance))
        typical[members] = 1 / (1 + (distance - distance.min()) / usual) if usual > 0 else 1 / (1 + distance)
    return typical


def neighbours(features: npt.NDArray[np.floating], row: int, k: int) -> npt.NDArray[np.int64]:
    """The k rows nearest to this one, itself left out, the nearest first."""
    point = np.asarray(features[row], dtype=np.float32)
    parts = [
        np.square(np.asarray(features[start : start + CHUNK], dtype=np.float32) - point).sum(1)
        for start in range(0, len(features), CHUNK)
    ]
    distance = np.concatenate(parts)
    distance[row] = np.inf
    k = max(0, min(k, len(distance) - 1))
    nearest = np.argpartition(distance, k - 1)[:k] if k else np.zeros(0, dtype=np.int64)
    return nearest[np.lexsort((nearest, distance[nearest]))]


def nearest_middles(
    features: npt.NDArray[np.floating], rows: npt.NDArray[np.int64], groups: Sequence[npt.NDArray[np.int64]]
) -> npt.NDArray[np.int64]:
    """For each of these rows, the place of the group of rows whose middle is nearest."""
    middles = np.stack([np.asarray(features[members], dtype=np.float32).mean(0) for members in groups])
    parts = [np.asarray(features[rows[i : i + CHUNK]], dtype=np.float32) for i in range(0, len(rows), CHUNK)]
    nearest = [np.stack([np.square(part - middle).sum(1) for middle in middles]).argmin(0) for part in parts]
    return np.concatenate(nearest) if nearest else np.zeros(0, dtype=np.int64)


def reduced(features: npt.NDArray[np.floating], components: int = COMPONENTS) -> Floats:
    """Features in the directions in which they differ most (PCA); read in parts, so they may be mapped from a file."""
    n, width = features.shape

    def parts() -> Iterator[npt.NDArray[np.float64]]:
        for start in range(0, n, CHUNK):
            yield np.asarray(features[start : start + CHUNK], dtype=np.float64)

    mean = sum((part.sum(0) for part in parts()), np.zeros(width)) / max(n, 1)

    def centred() -> Iterator[Floats]:
        return ((part - mean).astype(np.float32) for part in parts())

    # of many features, those of a few mixtures of them, which rounds of multiplication make the right ones
    few = components + SPARE
    mixed = np.eye(width) if width <= EXACT else np.random.default_rng(0).normal(size=(width, few))
    for _ in range(ROUNDS if width > EXACT else 0):
        axes = mixed.astype(np.float32)
        mixed = np.linalg.qr(sum((part.T @ (part @ axes) for part in centred()), np.zeros((width, few))))[0]
    scatter = np.zeros((mixed.shape[1], mixed.shape[1]))
    for part in centred():
        placed = part @ mixed.astype(np.float32) if width > EXACT else part
        scatter += placed.T @ placed
    _, directions = np.linalg.eigh(scatter)
    directions = mixed @ directions[:, ::-1][:, : min(components, width)]
    # the sign of a direction is arbitrary: let its largest entry be positive, so that a map is not mirrored by chance
    directions = directions * np.sign(directions[np.abs(directions).argmax(0), np.arange(directions.shape[1])] + 1e-30)
    parts_reduced = [((part - mean) @ directions).astype(np.float32) for part in parts()]
    return np.concatenate(parts_reduced) if parts_reduced else np.zeros((0, directions.shape[1]), dtype=np.float32)


def draw_map(features: npt.NDArray[np.floating], *, exact: int = MAP_EXACT, landmarks: int = LANDMARKS) -> Floats:
    """(n, 2) places on which similar images lie together, within -1 and 1; the same features give the same map.

    t-SNE of up to ``exact`` images. Of more, ``landmarks`` evenly spaced ones are laid out, and each of the others lies among
    the three of them that are nearest to it.
    """
    points = reduced(features)
    if len(points) < 5 or points.shape[1] < 2 or not points.any():  # nothing for t-SNE to do
        places = np.zeros((len(points), 2), dtype=np.float32)
        places[:, : min(2, points.shape[1])] = points[:, :2]
        return _scaled(places)
    chosen = np.linspace(0, len(points) - 1, len(points) if len(points) <= exact else landmarks).astype(np.int64)
    laid_out = _tsne(points[chosen])
    return _scaled(laid_out if len(chosen) == len(points) else _placed(points, points[chosen], laid_out))


def _tsne(points: Floats) -> Floats:
    from sklearn.manifold import TSNE

    # half of the usual steps, and coarser: neighbours stay neighbours as often, in two fifths of the time
    rough: dict[str, Any] = {"max_iter": 500, "angle": 0.7}
    model = TSNE(perplexity=min(30.0, (len(points) - 1) / 3), init="pca", random_state=0, **rough)
    return np.asarray(model.fit_transform(points), dtype=np.float32)


def _placed(points: Floats, landmarks: Floats, laid_out: Floats) -> Floats:
    """Each point between its three nearest landmarks, closer to the nearer ones; a landmark at its own place."""
    places = np.empty((len(points), 2), dtype=np.float32)
    squares = np.square(landmarks).sum(1)
    for start in range(0, len(points), CHUNK // 4):
        part = points[start : start + CHUNK // 4]
        distance = squares - 2 * part @ landmarks.T + np.square(part).sum(1)[:, None]
        nearest = np.argpartition(distance, 2, axis=1)[:, :3]
        near = np.take_along_axis(distance, nearest, 1)
        weight = 1 / np.maximum(near, 1e-6 * (1 + squares.max(initial=0)))
        weight /= weight.sum(1, keepdims=True)
        places[start : start + len(part)] = (laid_out[nearest] * weight[..., None]).sum(1)
    return places


def _scaled(places: Floats) -> Floats:
    if not len(places):
        return places
    places = places - (places.max(0) + places.min(0)) / 2
    return np.asarray(places / max(float(np.abs(places).max()), 1e-12), dtype=np.float32)
