"""A finished run on the command line: its table, and what a person changes about it."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from autonovel.api.run import load
from tests.cli.conftest import Call


def test_the_result_is_shown_with_names(finished: Path, call: Call) -> None:
    before = call("show", finished)
    assert before.returncode == 0, before.stderr
    sizes = load(finished).summary["cluster_sizes"]
    assert f"{len(sizes)} new classes among {sum(sizes)} unlabelled images" in before.stdout
    assert call("name", finished, 1, "[grey] heron").returncode == 0
    after = call("show", finished).stdout
    assert "[grey] heron" in after
    assert "[grey] heron" not in before.stdout
    assert str(finished / "predictions.csv") in after
    assert "clusters.png" not in after  # which this folder does not have
    assert f"autonovel browse {finished}" in after
    assert after.splitlines()[-1] == f"Give one a name:               autonovel name {finished} 0 NAME"
    (finished / "clusters.png").touch()
    assert str(finished / "clusters.png") in call("show", finished).stdout
    assert json.loads(call("show", finished, "--json").stdout) == load(finished).summary


def test_what_to_do_next_can_be_typed_as_it_is_shown(finished: Path, call: Call) -> None:
    spaced = finished.rename(finished.with_name("my run"))
    _, _, command = call("show", spaced).stdout.splitlines()[-1].partition("autonovel ")
    assert call(*shlex.split(command.replace("NAME", "egret"))).returncode == 0
    assert "egret" in load(spaced).names.values()


def test_every_edit_says_what_it_changed(finished: Path, call: Call) -> None:
    sizes = [len(cluster.members) for cluster in load(finished).clusters]
    named = call("name", finished, 1, "egret")
    assert named.stdout == f"cluster 1: egret, {sizes[1]} images (before: new 1, {sizes[1]} images)\n"
    assert call("name", finished, 1, "egret").stdout == "Nothing has changed.\n"
    merged = call("merge", finished, 1, 2).stdout.splitlines()
    assert merged == [
        f"cluster 1: egret, {sizes[1] + sizes[2]} images (before: egret, {sizes[1]} images)",
        f"cluster 2: no longer there (before: new 2, {sizes[2]} images)",
    ]
    assert call("undo", finished).stdout.splitlines() == [
        f"cluster 1: egret, {sizes[1]} images (before: egret, {sizes[1] + sizes[2]} images)",
        f"cluster 2: new 2, {sizes[2]} images",
    ]
    assert call("redo", finished).stdout.splitlines() == merged
    call("split", finished, 1, 3)
    assert len(load(finished).clusters) == len(sizes) + 1
    marked = call("mark", finished, 1, "not a class")
    assert "cluster 1: egret, not a class, " in marked.stdout
    shown = call("show", finished).stdout
    assert "egret (not a class)" in shown
    assert "The scores are those of the clusters as they were found" in shown


def test_what_looks_like_one_class_is_shown_merged_and_undone(finished: Path, call: Call) -> None:
    run = load(finished)
    k = len(run.summary["cluster_sizes"])
    full = sum(size > 0 for size in run.summary["cluster_sizes"])
    order = [[1, 2, 0.4], *([0, other, 0.0] for other in range(1, k) if other != 2)]
    run.write_json("merging.json", {"order": order, "n_new": full - 1, "mixed": []})
    run.write_json("summary.json", {**run.summary, "n_new_by_heads": full - 1})
    shown = call("show", finished).stdout
    assert f"tells only about {full - 1} new classes apart: clusters 1 and 2 look like one class" in shown
    assert f"autonovel merge {finished} --suggested" in shown
    merged = call("merge", finished, "--suggested")
    assert merged.returncode == 0, merged.stderr
    assert "cluster 2: no longer there" in merged.stdout
    assert "--suggested" not in call("show", finished).stdout
    call("undo", finished)
    assert load(finished).suggested == [[1, 2]]
    run.write_json("summary.json", {**run.summary, "n_new_by_heads": 2 * k})
    run.write_json("merging.json", {"order": order, "n_new": 2 * k, "mixed": [1]})
    assert f"tells about {2 * k} new classes apart, more than there are clusters" in call("show", finished).stdout


def test_images_move_and_clusters_are_regrouped(finished: Path, call: Call) -> None:
    run = load(finished)
    image = run.predictions[int(run.clusters[1].members[0])].image
    moved = call("move", finished, 2, image)
    assert moved.returncode == 0, moved.stderr
    assert len(moved.stdout.splitlines()) == 2
    assert next(p.cluster for p in load(finished).predictions if p.image == image) == 2
    made = call("move", finished, "new", image)
    assert made.returncode == 0, made.stderr
    assert load(finished).clusters[-1].members.tolist() == [[p.image for p in run.predictions].index(image)]
    dissolved = call("dissolve", finished, 0).stdout.splitlines()
    assert dissolved[0].startswith("cluster 0: no longer there (before: new 0, ")
    assert call("undo", finished).returncode == 0
    regrouped = call("regroup", finished, "--n-new", 2)
    assert regrouped.returncode == 0, regrouped.stderr
    assert sum(cluster.kind == "new" for cluster in load(finished).clusters) == 2


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["name", 99, "heron"], "99"),
        (["name", 0, ""], "name"),
        (["merge", 0], "Name two clusters or more to merge"),
        (["merge", 0, 1, "--suggested"], "--suggested"),
        (["merge", "--suggested"], "name the clusters to merge"),
        (["merge", 0, 0], "0"),
        (["split", 0, 1], "1"),
        (["move", 0, "nowhere.jpg"], "nowhere.jpg"),
        (["mark", 0, "nonsense"], "nonsense"),
        (["undo"], "undo"),
        (["regroup"], "--n-new is missing"),
    ],
)
def test_an_edit_that_makes_no_sense_is_one_sentence(
    words: list[object], part: str, finished: Path, call: Call
) -> None:
    verb, *rest = words
    result = call(verb, finished, *rest)
    assert result.returncode == 2
    assert result.stdout == ""
    assert part in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert load(finished).edits == []


def test_edits_do_not_wait_for_torch(finished: Path) -> None:
    code = (
        "import sys; from autonovel.cli.main import main\n"
        f"main(['name', {str(finished)!r}, '0', 'heron']); main(['show', {str(finished)!r}])\n"
        "print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines()[-1] == "False", result.stderr
