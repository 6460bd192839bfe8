"""Reading a run folder: its values, its table, its edits, without torch."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autonovel.api.run import Run, load
from autonovel.api.show import as_html
from autonovel.base.errors import InputError, TrainingError
from autonovel.runs.files import FORMAT
from autonovel.runs.verbs import VERBS
from tests.runs.made import SUMMARY, make_run

GROUPS = [0, 0, 1, -1, 2, 2, 2, -2, 1, 0]


def test_a_run_is_read_with_real_types(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", GROUPS)
    assert run.finished
    assert run.classes == ("cat", "dog", "new 0", "new 1", "new 2")
    assert run.labels.tolist() == [2, 2, 3, 0, 4, 4, 4, 1, 3, 2]
    assert run.labels.dtype == np.int64
    assert run.predictions[0] == ("4.png", 0, "new 0", 0.5, False, False)
    assert run.predictions[3] == ("7.png", None, "cat", 0.65, True, False)
    assert [type(part) for part in run.predictions[4]] == [str, int, str, float, bool, bool]
    assert run.images[1][:4] == ("1.png", "/photos/1.png", "1.png", "dog")
    assert run.images[4].label is None
    assert run.unlabelled.tolist() == list(range(4, 14))
    assert [(c.number, c.name, c.kind, c.members.tolist()) for c in run.clusters] == [
        (0, "new 0", "new", [0, 1, 9]),
        (1, "new 1", "new", [2, 8]),
        (2, "new 2", "new", [4, 5, 6]),
        (-1, "cat", "known", [3]),
        (-2, "dog", "known", [7]),
    ]
    assert run.names == {}
    assert run.edits == []
    assert not run.unlike.any()
    assert run.labelled_features is None
    assert run.probabilities is None
    assert run.thumbnails is None


def test_what_may_be_there_is_read(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", GROUPS)
    run.write_rows("unlike.csv", ["image"], [["6.png"], ["9.png"]])
    run.write_array("probabilities.npy", np.ones((10, 5), dtype=np.float16))
    run.write_array("features-labelled.npy", np.ones((4, 6), dtype=np.float16))
    assert np.flatnonzero(run.unlike).tolist() == [2, 5]
    assert run.probabilities is not None
    assert run.probabilities.shape == (10, 5)
    assert run.labelled_features is not None
    assert run.labelled_features.shape == (4, 6)


def test_a_run_without_known_classes_and_with_an_empty_cluster(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0, 2, 2], known=(), labelled=0)
    assert run.classes == ("new 0", "new 1", "new 2")
    assert run.labels.tolist() == [0, 2, 2]
    assert run.clusters[1].members.tolist() == []


def test_odd_ids_come_back_as_they_were(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0, 1])
    odd = ['a "quoted", one.png', "two\nlines.png"]
    run.write_predictions(p._replace(image=image) for p, image in zip(run.predictions, odd, strict=True))
    assert [p.image for p in load(run.path).predictions] == odd


def test_reading_a_run_does_not_import_torch(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", GROUPS)
    run.write_thumbnails(np.zeros((14, 8, 8, 1), dtype=np.uint8))
    code = """
import sys
import autonovel as an
run = an.load(sys.argv[1])
run.labels, run.predictions, run.images, run.clusters, run.typicality, run.neighbours(0), run.metrics, run.unlike
run.thumbnails.image(0)
run.name(0, "heron").merge(0, 1).split(0, 2).move([0], "cat").mark(2, "dog").undo().redo()
run.map, run.show()
heavy = {"torch", "autonovel.training.engine", "autonovel.methods", "autonovel.machine.processes"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code, run.path], check=True)
    code = "import sys, autonovel as an; an.load(sys.argv[1]).labels; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, run.path], check=True)


@pytest.mark.parametrize(
    ("number", "way_out"), [(FORMAT + 1, "install a newer one"), (FORMAT - 1, "run it again, or ")]
)
def test_another_format_is_refused(tmp_path: Path, number: int, way_out: str) -> None:
    run = make_run(tmp_path / "run", [0, 1])
    config = run.config
    run.write_json("config.json", {**config, "format": number})
    with pytest.raises(InputError, match=f"has format {number}, .* reads format {FORMAT}; {way_out}"):
        load(run.path)
    with pytest.raises(InputError, match=f"has format {number}"), Run(run.path).claim(config):
        pass


def test_no_run_an_unfinished_one_and_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no run in"):
        load(tmp_path)
    run = make_run(tmp_path / "run", [0, 1])
    (run.path / "summary.json").unlink()
    for look in (lambda: run.summary, lambda: run.labels, lambda: run.name(0, "heron")):
        with pytest.raises(InputError, match="is not finished; run the same command again"):
            look()
    run.write_json("summary.json", SUMMARY | {"n_new": 1, "n_known": 2})
    for text, why in [
        ("image,cluster\na,0\n", "its header is 'image,cluster'"),
        ("image,cluster,name,probability,known\na,0,new 0,0.5\n", "damaged"),
        ("image,cluster,name,probability,known\na,0,new 0,0.5,0\nb,1\n", "damaged"),
        ("image,cluster,name,probability,known\na,,,0.5,0\n", "neither a cluster nor a known class"),
        ("image,cluster,name,probability,known\na,,owl,0.5,1\n", "damaged .'owl'"),
        ("image,cluster,name,probability,known\na,x,new,0.5,0\n", "damaged"),
    ]:
        (run.path / "predictions.csv").write_text(text)
        with pytest.raises(InputError, match=why):
            load(run.path).labels  # noqa: B018
    (run.path / "predictions.csv").unlink()
    with pytest.raises(InputError, match=r"predictions.csv is damaged \(it is missing\)"):
        load(run.path).labels  # noqa: B018


def test_a_new_folder_carries_its_format(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    with run.claim({"run": {"seed": 0}}):
        assert run.config == {"format": FORMAT, "run": {"seed": 0}}


def refuse(run: Run, *made: str, keep: tuple[str, ...] = ()) -> None:
    """Claim the folder, write files of these names there, and find the input unusable."""

    def work() -> None:
        with run.claim({"run": {"seed": 0}}, keep=keep):
            for name in made:
                run.write_json(name, {})
            raise InputError("a single class")

    with pytest.raises(InputError, match="single"):
        work()


def test_a_run_that_is_refused_leaves_nothing_but_stages_that_serve_again(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    refuse(run)
    refuse(run, "estimate.json", "supervised-probe.safetensors", keep=("supervised.safetensors",))
    assert not run.path.exists()
    refuse(run, "estimate.json", "pretrain.safetensors", keep=("pretrain.safetensors",))
    assert run.has("pretrain.safetensors")
    run.remove("pretrain.safetensors")
    refuse(run)  # what was there before stays
    assert run.has("estimate.json")
    shutil.rmtree(run.path / "state")  # as when a run is finished
    refuse(run)
    assert run.has("estimate.json")
    (tmp_path / "mine" / "state").mkdir(parents=True)
    (tmp_path / "mine" / "state" / "of my own").touch()
    refuse(Run(tmp_path / "mine"))
    assert (tmp_path / "mine" / "state" / "of my own").exists()


def test_a_refused_process_leaves_the_folder_of_another_alone(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    with run.claim({"run": {"seed": 0}}):
        run.remove("config.json")  # as if the other had not written it yet
        refused = Run(run.path)
        with pytest.raises(InputError, match="Another process"), refused.claim({"run": {"seed": 0}}):
            pass
        assert run.path.exists()


def test_two_processes_in_one_folder_are_noticed(tmp_path: Path) -> None:
    run, config = Run(tmp_path / "run"), {"run": {}}
    with (
        run.claim(config),
        pytest.raises(InputError, match="Another process is working in"),
        Run(run.path).claim(config),
    ):
        pass


@pytest.mark.parametrize("reason", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP])
def test_a_folder_on_a_disk_without_locks_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr("fcntl.flock", flock)
    run = Run(tmp_path / "empty")
    with run.claim({"run": {}}):
        assert run.exists
    edited = make_run(tmp_path / "run", [0, 1]).name(0, "heron")
    assert edited.names == {0: "heron"}


def test_a_run_on_other_images_is_refused_in_words_and_not_by_checksums(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0, 1])
    config = run.read_json("config.json")
    data = {"class_names": ["a"], "fingerprint": "0" * 32, "pixels": "1" * 32, "labelled": "2" * 32}
    run.write_json("config.json", config | {"run": config["run"] | {"data": data}})
    mine = {"run": config["run"] | {"data": data | {"fingerprint": "3" * 32, "labelled": "4" * 32}}}
    said = r"another run \(images or their labels differ; labelled images differ\); choose another out or the same settings"
    with pytest.raises(InputError, match=said), Run(run.path).claim(mine):
        pass


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0, 1])
    before = (run.path / "predictions.csv").read_bytes()

    def rows():
        yield ("a", 0)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        run.write_rows("predictions.csv", ("image", "cluster"), rows())
    assert (run.path / "predictions.csv").read_bytes() == before
    assert not [entry for entry in run.path.iterdir() if entry.name.endswith(".part")]
    with pytest.raises(
        TrainingError, match="cannot be written .*make room for it or allow writing, and give the same command again"
    ):
        run.write_json("config.json/x", {})


def test_the_map_is_made_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [0] * 20 + [1] * 20 + [2] * 20)
    first = np.array(run.map)
    assert first.shape == (60, 2)
    assert first.dtype == np.float32
    assert run.has("map.npy")
    run.write_array("map.npy", first + 1)
    np.testing.assert_array_equal(run.map, first + 1)
    centres = np.stack([first[run.labels == label].mean(0) for label in (2, 3, 4)])
    nearest = np.linalg.norm(first[:, None] - centres, axis=2).argmin(1)
    assert nearest.tolist() == (run.labels - 2).tolist()


def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", GROUPS).name(1, "heron")
    table = run.to_pandas()
    assert table.columns.tolist() == ["image", "cluster", "name", "probability", "known", "unlike"]
    assert table["cluster"].isna().tolist() == [p.known for p in run.predictions]
    assert table[table["name"] == "heron"]["image"].tolist() == ["6.png", "12.png"]
    assert "<td>&lt;b&gt;</td>" in as_html(run.name(0, "<b>"))
    run.show()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["cluster", "name", "kind", "images", "mean", "probability"]
    assert lines[2].split() == ["1", "heron", "new", "2", "0.75"]


def test_a_run_says_what_it_has_come_to(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", GROUPS)
    assert run.headline == "8 of the 10 images are new, in 3 classes; 2 belong to classes you know"
    assert repr(run) == f"Run('{run.path}': {run.headline})"
    run.mark(1, "not a class").mark(0, "cat")
    assert run.headline == "3 of the 10 images are new, in 1 class; 5 belong to classes you know; 2 are in no class"
    assert make_run(tmp_path / "new", [0, 1, 1]).headline == "all 3 images are new, in 3 classes"
    assert make_run(tmp_path / "none", [0, 1, 2], known=(), labelled=0).headline == "3 images in 3 clusters"
    assert repr(Run(tmp_path / "nowhere")) == f"Run('{tmp_path / 'nowhere'}': empty)"
    assert "empty" in Run(tmp_path / "nowhere")._repr_html_()


def test_a_person_is_shown_her_own_verbs(tmp_path: Path) -> None:
    listed = dir(make_run(tmp_path / "run", GROUPS))
    assert {*VERBS, "predict", "export", "report"} <= set(listed)
    assert not {"write_json", "claim", "append_metrics", "_keep", "read_tensors"} & set(listed)


def test_opening_a_large_run_calls_few_functions_for_each_image(tmp_path: Path) -> None:
    n, calls = 20_000, [0]
    make_run(tmp_path / "run", np.random.default_rng(0).integers(-2, 40, n).tolist(), n_new=40)

    def count(frame: object, event: str, argument: object) -> None:
        calls[0] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        run = load(tmp_path / "run")
        found = len(run.predictions), len(run.images), len(run.clusters), len(run.labels)
    finally:
        sys.setprofile(None)
    assert found == (n, n + 4, 42, n)
    assert calls[0] < 5 * n  # the two tables have a row for each, so at least two


def test_what_is_kept_follows_the_files(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", GROUPS)
    before = run.typicality
    assert run.typicality is before
    load(run.path).move([0], 1)  # by somebody else
    assert run.labels[0] == 3
    assert run.typicality.tolist() != before.tolist()
    make_run(tmp_path / "run", [*GROUPS, 1])
    for name in ("edits.jsonl", "edits.json", "names.json"):
        run.remove(name)
    assert len(run.labels) == len(run.predictions) == len(run.unlabelled) == len(run.unlike) == 11
    run.remove("features.npy")
    with pytest.raises(InputError, match=r"features.npy is damaged \(it is missing\)"):
        run.split(0)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", b"[1, 2]", r"config.json is not of a run; give the folder of one\.$"),
        ("config.json", b'{"model_type": "vit"}', r"config.json is not of a run; give the folder of one\.$"),
        ("config.json", b'{"run": 3}', r"config.json is not of a run; give the folder of one\.$"),
        ("config.json", b"{", r"config.json is damaged \(.*\); put back a copy of it, or run again\.$"),
        ("features.npy", b"", r"features.npy is damaged \(.*\); put back a copy of it, or run again\.$"),
        ("features.npy", b"no array", r"features.npy is damaged \(.*\); put back a copy of it, or run again\.$"),
    ],
)
def test_what_is_no_run_or_no_longer_one_is_refused_with_what_to_do(
    file: str, content: bytes, said: str, tmp_path: Path
) -> None:
    path = make_run(tmp_path / "run", GROUPS).path
    (path / file).write_bytes(content)
    with pytest.raises(InputError, match=said):
        _ = load(path).features
