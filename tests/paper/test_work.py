"""Cells are measured on the smallest scale with single epochs: what is missing, within a budget, after a kill, or not at all."""

import json
import math
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from autonovel.data.benchmarks import splits
from autonovel.discovery.prepare import prepare
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter
from autonovel.methods.paired import used
from autonovel.paper import pictures
from autonovel.paper.measured import FILE, Results, read
from autonovel.paper.pictures import compare_rule, kept_after
from autonovel.paper.planned import find_tables, recipe_of, wanted
from autonovel.paper.tables import PICTURES
from autonovel.paper.work import Work
from autonovel.runs.folder import Folder

TRIED = {
    **{"pretrain.epochs": 1, "supervised.epochs": 1, "joint.epochs": 1, "similarity.epochs": 1, "kcl.epochs": 1},
    **{"mcl.epochs": 1, "dtc.epochs": 2, "dtc.fit_epochs": 1, "model.backbone": "small", "model.width": 2},
    **{"similarity.batch": 20},
}


class Heard(Reporter):
    """Keeps what is said, and may end the work after some epochs."""

    def __init__(self, epochs=math.inf):
        self.said, self.left, self.epochs = [], epochs, []

    def message(self, text):
        self.said.append(text)

    def start(self, stage, epochs, done):
        self.stage = stage

    def epoch(self, number, losses, seconds):
        self.epochs.append(self.stage)
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def work(folder, reporter=None, **more):
    more = {"device": "cpu", "tried": TRIED, **more}
    return Work(
        folder, folder / "rows", folder / "no-data", more.pop("scale", "small"), reporter=reporter or Heard(), **more
    )


def results(folder):
    return Results(read(folder / "rows") if (folder / "rows").exists() else [])


def lines(folder):
    return [json.loads(line) for line in (folder / "rows" / FILE).read_text().splitlines()]


def jobs(*names, rows=(), columns=(), scale="small", seeds=1):
    return wanted(find_tables(names), scale, seeds, rows, columns)


def test_runs_share_their_first_stages_and_are_not_made_twice(tmp_path):
    heard = Heard()
    own = jobs("ablation", rows=["full", "no-mse", "incremental"])
    assert work(tmp_path, heard).go(own, results(tmp_path))
    assert sorted(heard.epochs) == ["joint"] * 3 + ["pretrain", "supervised"]
    found = lines(tmp_path)
    assert [line["scale"] for line in found] == ["small"] * 3
    assert len({line["key"] for line in found}) == 3
    assert all(0 < line["scores"]["acc_new"] <= 1 and line["seconds"]["joint"] > 0 for line in found)
    assert {"test.separate.old", "n_new_used", "confusion", "classes.labelled"} <= found[0]["scores"].keys()
    assert found[0]["where"]["device"].startswith("cpu")
    assert "torch" in found[0]["where"]
    again = Heard()
    assert work(tmp_path, again).go(own, results(tmp_path))
    assert again.epochs == []
    assert lines(tmp_path) == found


def test_the_compared_methods_are_measured_in_the_same_frame(tmp_path):
    heard = Heard()
    mine = work(tmp_path, heard)
    assert mine.go(
        jobs("incremental", "comparison", rows=["kcl-ss", "mcl-ss", "dtc-ss", "kmeans-ss"]), results(tmp_path)
    )
    assert mine.failed == []
    assert sorted(heard.epochs) == ["dtc", "dtc", "kcl", "mcl", "pretrain", "similarity", "supervised"]
    assert len(lines(tmp_path)) == 4  # one run of each method serves both tables


def test_no_epoch_begins_after_the_budget_and_the_next_call_goes_on(tmp_path):
    own = jobs("ablation", rows=["full"])
    first, second = Heard(), Heard()
    assert not work(tmp_path, first, deadline=time.monotonic() - 1).go(own, results(tmp_path))
    assert first.epochs == []
    assert not (tmp_path / "rows").exists()

    class OneEpoch(Heard):
        def epoch(self, number, losses, seconds):
            super().epoch(number, losses, seconds)
            self.work.watched._deadline = 0  # the budget is spent during this epoch

    spent = OneEpoch()
    spent.work = work(tmp_path, spent)
    assert not spent.work.go(own, results(tmp_path))
    assert len(spent.epochs) == 1
    assert work(tmp_path, second).go(own, results(tmp_path))
    assert spent.epochs + second.epochs == ["pretrain", "supervised", "joint"]


@pytest.mark.parametrize("epochs", [1, 3])
def test_killed_at_any_time_the_next_call_ends_with_the_same_values_and_keys(epochs, tmp_path):
    own = jobs("ablation", rows=["full"])
    work(tmp_path / "whole").go(own, results(tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        work(tmp_path / "killed", Heard(epochs)).go(own, results(tmp_path / "killed"))
    work(tmp_path / "killed").go(own, results(tmp_path / "killed"))
    whole, killed = lines(tmp_path / "whole"), lines(tmp_path / "killed")
    assert [(line["key"], line["scores"]) for line in whole] == [(line["key"], line["scores"]) for line in killed]


def test_a_line_that_a_kill_cut_off_does_not_spoil_the_next_one(tmp_path):
    own = jobs("ablation", rows=["full"])
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / FILE).write_text('{"about": "[\\"digi')
    work(tmp_path).go(own, results(tmp_path))
    assert len(read(tmp_path / "rows")) == 1


def test_a_run_that_fails_is_a_line_and_leaves_the_others(tmp_path):
    mine = work(tmp_path, tried={**TRIED, "joint.top_k": 10_000})
    assert mine.go(jobs("ablation", rows=["full", "no-bce"]), results(tmp_path))
    found = lines(tmp_path)
    assert [bool(line.get("failed")) for line in found] == [False, True]
    assert "top_k is 10000" in found[1]["failed"]
    assert mine.failed == [f"ablation.full.cifar10.s0: {found[1]['failed']}"]


def test_data_that_are_not_here_leave_the_rest_to_be_measured(tmp_path):
    heard = Heard()
    mine = work(tmp_path, heard, scale="fast")
    assert mine.go(jobs("splits", rows=["cifar10", "svhn"], scale="fast"), results(tmp_path))
    assert set(mine.absent) == {"cifar10", "svhn"}
    assert mine.failed == []
    assert (
        heard.said[0]
        == f"needs cifar10 in {tmp_path / 'no-data'} (autonovel data cifar10 --root {tmp_path / 'no-data'})"
    )


def test_two_runs_of_a_cell_have_the_same_bits(tmp_path):
    same, told = work(tmp_path).check(jobs("ablation", rows=["full"])[0])
    assert same
    assert told.endswith("every weight has the same bits.")


def test_true_labels_of_the_pile_reach_no_weight(tmp_path, monkeypatch):
    own = jobs("ablation", rows=["full"])
    work(tmp_path / "a").go(own, results(tmp_path / "a"))
    load = splits._LOADERS["digits-split"]

    def permuted(*args):
        images, truth = load(*args)
        hidden = np.flatnonzero(~images.is_labelled)
        truth.labels[hidden] = np.roll(truth.labels[hidden], 7)
        return images, truth

    monkeypatch.setitem(splits._LOADERS, "digits-split", permuted)
    work(tmp_path / "b").go(own, results(tmp_path / "b"))
    runs = [next((tmp_path / name / "cells").iterdir()) for name in "ab"]
    assert (runs[0] / "predictions.csv").read_bytes() == (runs[1] / "predictions.csv").read_bytes()
    scores = [lines(tmp_path / name)[0]["scores"]["acc_new"] for name in "ab"]
    assert scores[0] != scores[1]


def test_pictures_are_drawn_from_what_runs_keep(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "POINTS", 100)
    heard = Heard()
    mine = work(tmp_path, heard, tried={**TRIED, "joint.epochs": 3})
    for name in PICTURES:
        file = mine.draw(name, tmp_path / "figures", results(tmp_path))
        assert file == tmp_path / "figures" / f"{name}.png"
        assert file.read_bytes().startswith(b"\x89PNG")
    # with and without the incremental head, and clustering, which shares the first stage: no run is made for a second picture
    assert sorted(heard.epochs) == ["joint"] * 9 + ["pretrain", "supervised"]
    assert sorted(path.name for path in tmp_path.glob("cells/tsne.0*/kept-*")) == [
        f"kept-000{epoch}.safetensors" for epoch in kept_after(3)
    ]


def test_accuracy_and_pair_labels_are_drawn_of_a_run_whose_data_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "POINTS", 100)
    monkeypatch.setattr(pictures, "BATCHES", 2)
    data, truth = splits.load_benchmark("digits-split", None)
    recipe = recipe_of(jobs("ablation", rows=["full"])[0].plan, "small", TRIED)
    run = Folder(tmp_path / "run")
    prepare(data, recipe, 5, 0, Mode.of("cpu"), keep=(0, 1)).run(run)
    drawn = pictures.draw_kept(run, tmp_path, (data, truth))
    assert [file.name for file in drawn] == ["epochs.png", "accuracy.png", "ranking.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in drawn)


def test_a_picture_of_a_run_whose_folder_is_gone_is_drawn_of_a_new_one(tmp_path):
    drawn = []
    for _ in range(2):
        shutil.rmtree(tmp_path / "cells", ignore_errors=True)
        drawn.append(work(tmp_path).draw("confusion-clustering", tmp_path / "figures", results(tmp_path)))
    assert drawn == [tmp_path / "figures" / "confusion-clustering.png"] * 2
    assert len(lines(tmp_path)) == 1


def test_keeping_features_changes_no_bit_of_a_run(tmp_path):
    data, truth = splits.load_benchmark("digits-split", None)
    recipe = recipe_of(jobs("ablation", rows=["full"])[0].plan, "small", {**TRIED, "joint.epochs": 2})
    folders = [Folder(tmp_path / name) for name in ("plain", "keeps")]
    for run, keep in zip(folders, ((), (0, 1, 2)), strict=True):
        prepare(data, recipe, 5, 0, Mode.of("cpu"), keep=keep).run(run)
    states = [run.read_tensors("joint.safetensors")[0] for run in folders]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    kept = [folders[1].read_tensors(f"kept-000{epoch}.safetensors")[0] for epoch in (0, 2)]
    assert not torch.equal(kept[0]["features"], kept[1]["features"])
    np.testing.assert_array_equal(kept[1]["clusters"].numpy(), folders[1].machine.group)


def test_a_rule_that_knows_the_classes_is_always_right():
    classes = torch.arange(3).repeat(100)
    features = torch.nn.functional.one_hot(classes, 8).float()
    assert compare_rule(features, classes, classes, 3, {"joint.pairs": "kmeans-all"}) == (1.0, 1.0)
    precision, recall = compare_rule(features, classes % 2, classes, 3, {"joint.pairs": "kmeans-all"})
    assert (round(precision, 1), recall) == (0.6, 1.0)  # one cluster of two classes, one of one


def test_outputs_with_as_many_images_as_the_mean_are_counted():
    assert used([3, 3, 3]) == 3
    assert used([50, 40, 1, 0, 0]) == 2


def test_the_recipe_for_imagenet_trains_on_folders_as_they_are_published(tmp_path):
    lists = json.loads((Path(splits.__file__).parent / "imagenet_classes.json").read_text())
    for number, name in enumerate(["n00000001", "n00000002", *lists["held_out"]]):
        (tmp_path / "train" / name).mkdir(parents=True)
        for image in range(2 if number < 2 else 1):  # enough for k-means on the pixels to take no time
            colour = tuple(np.random.default_rng([number, image]).integers(0, 255, 3).tolist())
            Image.new("RGB", (40, 30), colour).save(tmp_path / "train" / name / f"{image}.JPEG")
    tried = {"supervised.epochs": 1, "joint.epochs": 1, "model.width": 2, "model.size": 32}
    mine = Work(tmp_path, tmp_path / "rows", tmp_path, "paper", "cpu", unverified=True, tried=tried)
    assert mine.go(jobs("many-classes", rows=["full"], columns=["imagenet"], scale="paper")[:1], results(tmp_path))
    assert mine.failed == []
    assert 0 < lines(tmp_path)[0]["scores"]["acc_new"] <= 1
