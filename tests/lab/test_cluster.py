"""The simulation of a cluster, at its smallest, against what paper says."""

import cluster
import pytest

from tests.lab.conftest import Script


@pytest.mark.parametrize("which", cluster.CLUSTERS, ids=lambda c: c.name)
def test_without_failures_it_takes_what_paper_says_and_with_them_longer(which: cluster.Cluster) -> None:
    cost, images = cluster.MEASURED, 2e7
    paper, slowest = cluster.on_paper(which, cost, images)
    smooth, rough = (
        cluster.simulate(which, cost, images=images, shard=1000, failures=failures) for failures in (0.0, 20.0)
    )
    assert paper <= smooth.describe <= 1.3 * paper
    assert smooth.lost == 0
    assert rough.lost > 0
    assert rough.describe > smooth.describe
    assert rough.read == pytest.approx(smooth.read + rough.lost * 1000 * cost.bytes)
    assert max(smooth.busy, key=lambda name: smooth.busy[name]) == slowest


def test_every_shard_is_described_however_often_workers_fail() -> None:
    which = cluster.CLUSTERS[1]
    found = cluster.simulate(which, cluster.MEASURED, images=1e5, shard=100, failures=1500.0)
    assert found.lost > 300  # of a thousand shards
    assert found.written == pytest.approx(1e5 * (2 * cluster.MEASURED.width + 200))


def test_the_script_prints_both_clusters(script: Script) -> None:
    said = script("cluster.py", "--images", "1e6", "--failures", "0")
    assert [name for name in ("8 machines of 8 GPUs", "1,000 cores") if name in said.stdout] == [
        c.name for c in cluster.CLUSTERS
    ]
