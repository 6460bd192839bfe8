"""What the report warns of."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from autonovel.api.run import Run, load
from autonovel.report.clusters import Shown, pick, shown_clusters
from autonovel.report.findings import alike_pairs, count_duplicates, find, nearest_known, separation


def made(rows: np.ndarray, number: int = 0, *, sure: float = 0.9) -> Shown:
    close = np.zeros(rows.max(initial=0) + 1, "f4")
    close[rows] = np.linspace(1, 0.1, len(rows))
    return Shown(
        number=number,
        name=f"new {number}",
        kind="new",
        named=False,
        members=np.sort(rows),
        colour="#000000",
        sure=np.full(len(close), sure, "f4"),
        typical=close.__getitem__,
    )


def heaps(sizes: list[int], apart: float, dimensions: int = 16) -> tuple[np.ndarray, list[Shown]]:
    rng = np.random.default_rng(0)
    centres = np.zeros((len(sizes), dimensions))
    centres[np.arange(len(sizes)), np.arange(len(sizes))] = apart
    features = np.concatenate([rng.normal(size=(n, dimensions)) + c for n, c in zip(sizes, centres, strict=True)])
    ends = np.cumsum([0, *sizes])
    clusters = [made(np.arange(a, b), k) for k, (a, b) in enumerate(pairwise(ends))]
    return features.astype("f4"), clusters


def test_one_heap_cut_in_two_looks_like_one_class_and_two_heaps_do_not() -> None:
    rng = np.random.default_rng(1)
    heap = rng.normal(size=(1000, 24)).astype("f4")
    left = heap[:, 0] < 0
    assert separation(heap[left], heap[~left]) < 3
    assert separation(heap[left], heap[~left] + np.float32(8)) > 3
    features, clusters = heaps([300, 200, 300], apart=8)
    assert alike_pairs(features, clusters) == []
    features, clusters = heaps([300, 200, 300], apart=0.5)
    assert {(a, b) for _, a, b in alike_pairs(features, clusters)} == {(0, 1), (0, 2), (1, 2)}


def test_separation_does_not_trust_the_points_that_set_the_line() -> None:
    rng = np.random.default_rng(2)
    same = [rng.normal(size=(60, 500)).astype("f4") for _ in range(2)]  # far fewer points than dimensions
    assert abs(separation(*same)) < 1
    line = same[0].mean(0) - same[1].mean(0)
    assert (same[0] @ line).mean() - (same[1] @ line).mean() > 3 * (same[0] @ line).std()  # as a naive measure would


@pytest.mark.parametrize("points", [np.zeros((0, 3), "f4"), np.zeros((3, 3), "f4")])
def test_too_few_points_look_like_nothing(points: np.ndarray) -> None:
    assert separation(points, points) == np.inf


def test_copies_are_counted() -> None:
    features, clusters = heaps([200, 200], apart=8)
    assert count_duplicates(features, clusters) == (0, 400)
    features[:50] = features[50:100]
    assert count_duplicates(features, clusters) == (100, 400)


def texts(run: Run) -> str:
    return "\n".join(finding.text for finding in find(run, shown_clusters(run)))


def test_sizes_that_are_suspicious(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes(*counts: int) -> str:
        found = [made(np.arange(n) % 100, k) for k, n in enumerate(counts)]
        return "\n".join(finding.text for finding in find(run, found))

    assert "All 3 clusters have about 50 images" in sizes(50, 50, 50)
    assert "Both clusters have about 50 images" in sizes(50, 50)
    assert "makes clusters even" not in sizes(50, 55, 60)
    assert "“new 1” is tiny" in sizes(50, 2, 60)
    assert "“new 1” collapsed: no image is in it" in sizes(50, 0, 60)
    assert "“new 0” holds 91% of the images" in sizes(900, 90)
    assert "makes clusters even" not in sizes(50)


def test_doubt_and_files_left_out(run: Run) -> None:
    assert "left out" not in texts(run)
    (run.path / "problems.csv").write_text(
        "path,reason,left_out\na<b>.png,truncated,yes\nb.png,truncated,yes\nc.png,the same picture as a.png,no\n"
    )
    assert "2 files were left out: 2 × truncated. See problems.csv." in texts(run)
    assert "has a remark on one file" in texts(run)
    assert "unsure" not in texts(run)
    answers = [p._replace(probability=0.3) if p.cluster == 2 else p for p in run.predictions]
    run.write_predictions(answers)
    assert "The machine is unsure of “new 2” (mean confidence under" in texts(load(run.path))
    run.write_rows("unlike.csv", ("image",), [(run.machine.images[3],)])
    assert "One image resembles none of the classes; look at it first (unlike.csv)." in texts(load(run.path))


def test_nearest_known_classes(run: Run) -> None:
    clusters = shown_clusters(run)
    rows = run.unlabelled
    assert len(rows)
    labels = np.array([record.label for record in run.images if record.label is not None])
    known = np.asarray(run.labelled_features, dtype="f8")
    centres = {name: known[labels == name].mean(0) for name in set(labels)}
    ours = {c.number: np.asarray(run.features, dtype="f8")[c.rows].mean(0) for c in clusters}
    middle = np.mean([*centres.values(), *ours.values()], axis=0)
    for cluster, found in zip(clusters, nearest_known(run, clusters), strict=True):
        own = ours[cluster.number] - middle
        similarity = {
            name: own @ (c - middle) / np.linalg.norm(own) / np.linalg.norm(c - middle) for name, c in centres.items()
        }
        assert found[0].name == max(similarity, key=lambda name: similarity[name])
        assert found[0].similarity == pytest.approx(similarity[found[0].name], abs=1e-3)


def test_without_features_of_known_images_there_is_no_nearest_class(run: Run) -> None:
    for name in ("checksums.sha256", "features-labelled.npy"):
        (run.path / name).unlink()
    assert nearest_known(run, shown_clusters(run)) == [[]] * 5


def test_picks_hold_no_image_twice() -> None:
    cluster = made(np.arange(10))
    usable = np.ones(10, dtype=bool)
    usable[0] = False
    picks = pick(cluster, usable, 4, 3)
    assert picks.typical == [1, 2, 3, 4]
    assert len({*picks.typical, *picks.doubtful, *picks.odd}) == 4 + 3 + 2
    assert pick(made(np.arange(0)), usable, 4, 3).typical == []


def test_orders(run: Run, tmp_path: Path) -> None:
    for cluster in shown_clusters(run):
        assert cluster.ordered("odd").tolist() == cluster.ordered("typical").tolist()[::-1]
        assert cluster.confidence == pytest.approx(float(run.machine.probability[cluster.rows].mean()))
