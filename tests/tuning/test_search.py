"""Whole searches on tiny images: what is shared, resumed, refused and handed on."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import autonovel as an
from autonovel.base.errors import InputError
from autonovel.cli.tune import Tune
from autonovel.data.images import ImageSet
from autonovel.discovery.prepare import Job, prepare
from autonovel.machine.progress import Reporter
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe, with_fields
from autonovel.tuning import result
from autonovel.tuning.search import rungs, to_compare, trials_to_come
from tests.small_data import class_images

pytestmark = pytest.mark.usefixtures("flags_in_messages")

TINY = {
    "model.backbone": "resnet18", "model.width": 4, "model.size": 8, "pretrain.epochs": 1, "pretrain.batch": 32,
    "supervised.epochs": 1, "supervised.batch": 32, "joint.epochs": 1, "joint.batch": 32,
}  # fmt: skip


def recipe() -> Recipe:
    return with_fields(get_recipe("cifar10"), TINY)


def images(n_known: int = 5, per_class: int = 8, pile: int = 6) -> ImageSet:
    labels = np.repeat(np.arange(n_known + 1), per_class)[: n_known * per_class + pile]
    return ImageSet.from_arrays(class_images(labels, 8), np.where(labels < n_known, labels, -1))


class Heard(Reporter):
    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


def rows_of(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]


def search(out: Path, values: dict, data: ImageSet | None = None, **options: object) -> tuple[object, Heard]:
    heard = Heard()
    options = {"recipe": recipe(), "device": "cpu", "splits": 2, "reporter": heard} | options
    return an.tune(data or images(), search=values, out=out, **options), heard


def test_a_search_shares_stages_continues_and_hands_the_best_recipe_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result, "TOO_CLOSE", -1.0)  # so little is learned here that all would go on
    out = tmp_path / "tune"
    tuned, heard = search(out, {"joint.top_k": [1, 3, 5]})
    rows = rows_of(out)
    assert [row["values"]["joint.top_k"] for row in rows[:3]] == [1, 3, 5]
    assert len(rows) == 3 + 2  # the worst was left out after the first split
    assert len({tuple(row["hidden"]) for row in rows}) == 2
    assert sorted(len(c.accuracies) for c in tuned.candidates) == [1, 2, 2]
    assert {c.values["joint.top_k"] for c in tuned.candidates if c.own} == {5}
    # rotation sees no labels and serves all trials, the known classes are learned once for each split
    assert sum("training stage pretrain" in text for text in heard.said) == 1
    assert sum("training stage supervised" in text for text in heard.said) == 2
    assert not list((out / "runs").iterdir())
    assert heard.said[-1].startswith("trial 5 of 5: joint.top_k=")
    best = get_recipe(str(out / "best.json"))
    assert best == tuned.recipe == with_fields(recipe(), tuned.best)
    assert json.loads((out / "tuned.json").read_text())["best"] == tuned.best

    # a line that was cut off is done again; the rest is not
    kept = (out / "trials.jsonl").read_text().splitlines()
    (out / "trials.jsonl").write_text("\n".join(kept[:3]) + "\n" + kept[3][:20])
    again, heard = search(out, {"joint.top_k": [1, 3, 5]})
    assert [c.accuracies for c in again.candidates] == [c.accuracies for c in tuned.candidates]
    assert [row["trial"] for row in rows_of(out)] == [row["trial"] for row in rows]
    assert not any("training stage" in text for text in heard.said)

    run = an.discover(
        images(), n_new=2, recipe=str(out / "best.json"), out=tmp_path / "run", device="cpu", report=False
    )
    assert run.config["run"]["recipe"]["joint"]["top_k"] == tuned.best["joint.top_k"]


def test_a_failing_combination_leaves_the_others_alone(tmp_path: Path) -> None:
    tuned, _ = search(tmp_path / "tune", {"joint.top_k": [3, 500]}, splits=1)
    good, bad = tuned.candidates
    assert good.values["joint.top_k"] == 3
    assert bad.left.startswith("top_k is 500, but features have")
    assert bad.accuracies == ()
    with pytest.raises(InputError, match="top_k is 500"):  # where all fail, as they would in discover
        search(tmp_path / "other", {"joint.top_k": [500]}, splits=1)


def test_other_pre_training_brings_its_schedule_and_pixels_change_the_trials(tmp_path: Path) -> None:
    out, values = tmp_path / "tune", {"pretrain.method": ["rotation", "simclr"]}
    tuned, _ = search(out, values, splits=1, hide=3)
    assert all(len(row["hidden"]) == 3 for row in rows_of(out))
    assert {c.own for c in tuned.candidates} == {True, False}
    # other images, or the pile among the hidden ones, are other trials
    search(out, values, splits=1, hide=3, data=images(per_class=9))
    search(out, values, splits=1, hide=3, n_new=2, with_pile=True)
    assert len({row["trial"] for row in rows_of(out)}) == len(rows_of(out)) == 6


def test_the_truth_about_the_pile_has_no_part_in_it(tmp_path: Path) -> None:
    found = []
    for name, shown in (("with", images()), ("without", images(pile=0))):
        tuned, _ = search(tmp_path / name, {"joint.top_k": [1, 3]}, data=shown, splits=1, hide=2)
        found.append([(c.values, c.accuracies) for c in tuned.candidates])
    assert found[0] == found[1]  # the pile is not looked at, unless asked for


def test_side_by_side_gives_what_one_after_the_other_gives(tmp_path: Path) -> None:
    values = {"joint.top_k": [1, 3]}
    alone, together = (search(tmp_path / str(n), values, together=n, halving=False)[0] for n in (1, 3))
    assert [(c.values, c.accuracies) for c in alone.candidates] == [
        (c.values, c.accuracies) for c in together.candidates
    ]


def test_combinations_that_come_to_the_same_are_tried_once_also_side_by_side(tmp_path: Path) -> None:
    found, _ = search(tmp_path, {"joint.batch": [0, 32]}, recipe=with_fields(recipe(), {"joint.batch": 0}), together=4)
    first, second = found.candidates
    assert first.accuracies == second.accuracies
    rows = rows_of(tmp_path)
    assert len(rows) == 2  # one for each split
    assert all("acc" in row for row in rows)


def test_a_training_that_sees_all_images_is_not_shared(tmp_path: Path) -> None:
    tiny = {name: value for name, value in TINY.items() if not name.startswith("pretrain.")}
    contrast = with_fields(get_recipe("folder"), tiny | {"method": "scratch", "joint.objective": "contrast"})
    _, heard = search(tmp_path, {"joint.lr": [0.1, 0.2]}, recipe=contrast)
    assert len(rows_of(tmp_path)) == 4
    assert not (tmp_path / "starts").exists()
    assert not any("which trials share" in text for text in heard.said)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": 0}, "--splits is 0"),
        ({"seeds": 0}, "--seeds is 0"),
        ({"together": 0}, "--together is 0"),
        ({"trials": 0}, "--trials is 0"),
        ({"with_pile": True}, "--with-pile needs to know how many .* --n-new"),
        (
            {"with_pile": True, "n_new": 2, "data": images(pile=0)},
            "--with-pile keeps the unlabelled images, but there are none",
        ),
        ({"hide": 4}, "two must stay known; give --hide 2 to"),
        ({"data": images(3)}, "3 known classes cannot be tuned on .*; label images of at least four.$"),
        ({"values": {}}, "There is nothing to compare; .* --search"),
        ({"values": {"joint.topk": [1]}}, "no field 'joint.topk'"),
        (
            {"values": {"model.size": ["16", 8]}},
            "--model.size is '16'; give a whole number.",
        ),
        ({"device": "gpu"}, "There is no device 'gpu'"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(options: dict, message: str, tmp_path: Path) -> None:
    options = dict(options)
    with pytest.raises(InputError, match=message):
        search(tmp_path / "tune", options.pop("values", {"joint.top_k": [1]}), **options)
    assert not (tmp_path / "tune").exists()


def test_the_folder_of_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="is the folder of a run; give another folder .* --out"):
        search(tmp_path, {"joint.top_k": [1]})


def test_files_that_are_left_out_are_listed_beside_the_trials(tmp_path: Path) -> None:
    data = images()
    for number, (pixels, label) in enumerate(zip(data.images, data.labels, strict=True)):
        folder = tmp_path / "photos" / (f"known/{label}" if label >= 0 else "pile")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.squeeze()).save(folder / f"{number}.png")
    (tmp_path / "photos/known/0/broken.png").write_bytes(b"no image")
    an.tune(
        tmp_path / "photos/known", tmp_path / "photos/pile", search={"joint.top_k": [1]}, out=tmp_path / "tune",
        recipe=recipe(), device="cpu", splits=1, cache=tmp_path / "cache",
    )  # fmt: skip
    lines = (tmp_path / "tune" / "problems.csv").read_text().splitlines()
    assert lines[0] == "path,reason,left_out"
    assert [line for line in lines if "broken.png" in line and line.endswith("yes")]


def test_stages_that_trials_share_keep_features_where_the_trials_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = []

    def watched(*args: object, **options: object) -> Job:
        caches.append(options["cache"])
        return prepare(*args, **options)

    monkeypatch.setattr("autonovel.tuning.starts.prepare", watched)
    monkeypatch.setattr("autonovel.tuning.search.prepare", watched)
    search(tmp_path / "tune", {"joint.top_k": [1]}, splits=1, cache=tmp_path / "cache")
    assert len(caches) >= 2
    assert set(caches) == {tmp_path / "cache" / "features"}


def test_a_damaged_line_of_an_earlier_search_is_named(tmp_path: Path) -> None:
    for line in ("nonsense", "[1]", '{"acc": 0.5}'):
        (tmp_path / "trials.jsonl").write_text(f"{line}\n")
        with pytest.raises(InputError, match=r"Line 1 of .*trials.jsonl is damaged; correct or delete that line\."):
            search(tmp_path, {"joint.top_k": [1, 3]})


def test_a_field_that_is_given_twice_is_compared_at_all_its_values() -> None:
    assert Tune(search=("joint.top-k=1,3", "joint.lr=0.1", "joint.top-k=3,5")).axes() == {
        "joint.top_k": [1, 3, 5],
        "joint.lr": [0.1],
    }


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("letters")
    with pytest.raises(InputError, match="is not empty and holds no run"):
        search(tmp_path, {"joint.top_k": [1]})


@given(st.integers(1, 40), st.integers(1, 16))
def test_rounds_follow_each_other_and_halve(candidates: int, rounds: int) -> None:
    steps = rungs(rounds, halving=True)
    assert [place for places in steps for place in places] == list(range(rounds))
    assert all(places.stop == min(rounds, max(1, 2 * places.start)) for places in steps)
    assert rungs(rounds, halving=False) == [range(rounds)]
    left, total = candidates, 0
    for place in range(rounds):  # slowly, round by round
        if place in (1, 2, 4, 8, 16):
            left = left if left <= 2 else max(2, -(-left // 2))
        total += left
    assert trials_to_come(candidates, steps) == total


def test_random_combinations_are_some_of_all() -> None:
    axes = {"joint.top_k": [1, 3, 5], "joint.ramp": [1, 2]}
    grid = to_compare(axes, None, 0)
    assert len(grid) == 6
    some = to_compare(axes, 4, 0)
    assert len(some) == 4
    assert [c for c in grid if c in some] == some
    assert to_compare(axes, 4, 0) == some != to_compare(axes, 4, 1)
    assert to_compare(axes, 99, 0) == grid


def test_the_command_is_killed_continues_and_prints_the_table(tmp_path: Path) -> None:
    labels = np.repeat(np.arange(6), 8)
    for number, (label, pixels) in enumerate(zip(labels, class_images(labels, 8), strict=True)):
        folder = tmp_path / ("pile" if label == 5 else f"known/{'abcde'[label]}")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    tiny = {name: value for name, value in TINY.items() if not name.startswith("pretrain.")}
    flags = [word for name, value in tiny.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words = [sys.executable, "-m", "autonovel", "tune", "known", "pile", "--recipe", "cifar10", *flags, "--out", "tune"]
    words += ["--device", "cpu", "--splits", "2", "--no-halving", "--cache", "cache"]
    words += ["--pretrain.method", "none", "--search", "joint.top-k=1", "--search"]
    words += ["supervised.train-from+joint.train-from=layer4,all"]
    surroundings = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, cwd=tmp_path, env=surroundings, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "tune" / "trials.jsonl"
    deadline = time.monotonic() + 300
    while not (log.exists() and log.read_text().count("\n") >= 1 and list(tmp_path.glob("tune/runs/*/config.json"))):
        assert time.monotonic() < deadline  # until the second trial is under way
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert "Interrupted; the same command continues from here." in process.communicate(timeout=300)[1]
    assert process.returncode == 130
    done = rows_of(tmp_path / "tune")
    assert 1 <= len(done) < 4
    result = subprocess.run(words, cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["joint.top_k", "supervised.train_from+joint.train_from", "ACC", "trials", "s/trial"]
    assert len(lines) == 1 + 2 + 1 + 2
    assert "Only 5 classes are known" in lines[3]
    assert lines[-1] == "Use it: autonovel discover LABELLED UNLABELLED --recipe tune/best.json"
    rows = rows_of(tmp_path / "tune")
    assert rows[: len(done)] == done
    assert len({row["trial"] for row in rows}) == len(rows) == 4
    assert replace(get_recipe(str(tmp_path / "tune" / "best.json")), joint=recipe().joint).name == "cifar10"
