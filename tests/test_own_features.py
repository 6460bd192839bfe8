"""Discovery on features that a person has computed: no image is asked for."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import autonovel as an
from autonovel.base.errors import InputError
from autonovel.data.reading.embedded import read_embedded
from autonovel.maths.metrics import cluster_accuracy

KNOWN, NEW, EACH, WIDTH = 6, 4, 30, 24


def features() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of ten classes that are easy to tell, the labels of six of them, and the truth."""
    chance = np.random.default_rng(0)
    truth = np.repeat(np.arange(KNOWN + NEW), EACH)
    X = chance.normal(size=(KNOWN + NEW, WIDTH))[truth] * 3 + chance.normal(size=(len(truth), WIDTH))
    labels = np.where(truth < KNOWN, truth, -1)
    labels[::5] = -1  # some of known classes are in the pile too
    return X.astype(np.float32), labels, truth


def test_a_run_of_features_is_a_run(tmp_path: Path) -> None:
    X, y, truth = features()
    run = an.discover((X[y >= 0], y[y >= 0]), X[y < 0], features=True, out=tmp_path / "run", verbose=False)
    assert run.summary["n_new"] == NEW
    pile = truth[y < 0]
    assert cluster_accuracy(pile, run.labels) > 0.97
    assert run.headline.endswith("belong to classes you know")
    assert (run.path / "report.html").exists()
    again = an.discover((X[y >= 0], y[y >= 0]), X[y < 0], features=True, out=tmp_path / "run", verbose=False)
    assert again.labels.tolist() == run.labels.tolist()
    first = next(c for c in run.clusters if c.kind == "new")
    run.name(first.number, "heron")
    said = run.predict(X[truth == pile[first.members[0]]])
    assert [answer.name for answer in said].count("heron") >= 0.95 * len(said)
    with pytest.raises(InputError, match="There are 3 features in a row; the run has 24"):
        run.predict(X[:, :3])


@pytest.mark.parametrize("labels", ["numbers", "texts with None", "nothing"])
def test_the_estimator_takes_features(labels: str) -> None:
    X, y, truth = features()
    given = {
        "numbers": y,
        "texts with None": np.array([None if c < 0 else f"class {c}" for c in y], dtype=object),
        "nothing": None,
    }[labels]
    model = an.AutoNovel(n_new=NEW if given is not None else KNOWN + NEW).fit(X, given)
    assert model.n_new_ == len(model.classes_) - (0 if given is None else KNOWN)
    assert cluster_accuracy(truth, np.unique(model.labels_, return_inverse=True)[1]) > 0.97
    assert (model.predict(X) == model.labels_).mean() > 0.95
    assert model.predict_proba(X).shape == (len(X), KNOWN + NEW)
    assert model.transform(X).shape == X.shape


def test_files_of_features_on_the_command_line(tmp_path: Path) -> None:
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    X, y, _ = features()
    names = [f"photo {row}.jpg" for row in range(len(X))]
    for part, rows in (("known", y >= 0), ("pile", y < 0)):
        columns = {"image": np.array(names)[rows], "features": list(X[rows]), "label": [f"c{c}" for c in y[rows]]}
        parquet.write_table(pyarrow.table(columns), tmp_path / f"{part}.parquet")
        np.save(tmp_path / f"{part}.npy", X[rows])
    (tmp_path / "labels.txt").write_text("".join(f"c{c}\n" for c in y[y >= 0]))

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "autonovel", "discover", "--features", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)

    table = call("known.parquet", "pile.parquet", "--out", "a", "--json")
    assert table.returncode == 0, table.stderr
    assert json.loads(table.stdout)["n_new"] == NEW
    assert an.load(tmp_path / "a").predictions[0].image == names[int(np.flatnonzero(y < 0)[0])]
    arrays = call("known.npy", "pile.npy", "--labels", "labels.txt", "--out", "b", "--json")
    assert arrays.returncode == 0, arrays.stderr
    assert an.load(tmp_path / "b").labels.tolist() == an.load(tmp_path / "a").labels.tolist()
    for words, part in (
        (("known.npy", "nowhere.npy"), "There is no file 'nowhere.npy'"),
        (("labels.txt", "pile.npy"), "is no table of features"),
        (("known.npy", "pile.npy", "--data", "cifar10"), "goes with features alone"),
    ):
        refused = call(*words, "--out", "c")
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1), refused.stderr
        assert part in refused.stderr
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("how", ["list", "fixed", "chunks", "ragged", "null", "double", "large"])
def test_features_of_a_table_are_numbers_whatever_their_lists_are(tmp_path: Path, how: str) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    given = [list(map(float, row)) for row in rows]
    if how == "ragged":
        given[2] = [1.0]
    elif how == "null":
        given[1][1] = None  # type: ignore[call-overload]
    kinds = {"fixed": pa.list_(pa.float32(), 3), "double": pa.list_(pa.float64()), "large": pa.large_list(pa.float32())}
    column = pa.array(given, kinds.get(how, pa.list_(pa.float32())))
    table = pa.table({"features": column, "label": ["a", "a", "b", "b"]})
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=2 if how == "chunks" else 10)
    if how in ("ragged", "null"):
        with pytest.raises(InputError, match="features"):
            read_embedded(tmp_path / "t.parquet")
    else:
        assert np.array_equal(read_embedded(tmp_path / "t.parquet").features, rows)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda known, pile: known.__setitem__((5, 2), np.nan),
            r"labelled features hold NaN, infinity .*first in row 5",
        ),
        (lambda known, pile: pile.__setitem__((7, 0), np.inf), r"unlabelled features hold NaN, infinity .*in row 7"),
        (lambda known, pile: pile.__setitem__((3, 1), 1e30), r"unlabelled features .* above 1e\+15 .*row 3"),
        (lambda known, pile: pile.fill(2), "All 40 unlabelled rows of features are the same"),
        (lambda known, pile: known.fill(2), "All 40 labelled rows of features are the same"),
    ],
)
def test_features_that_tell_nothing_are_refused(spoil: Callable[[np.ndarray, np.ndarray], None], said: str) -> None:
    known, pile = np.random.default_rng(0).normal(size=(2, 40, 6)).astype(np.float32)
    spoil(known, pile)
    with pytest.raises(InputError, match=said):
        read_embedded((known, np.repeat([0, 1], 20)), pile)
