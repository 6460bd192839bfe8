"""docs/paper.md and the command that writes it; what `autonovel reproduce` shows without measuring anything."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autonovel as an
from autonovel.data.images import ImageSet, Truth
from autonovel.paper.earlier import EARLIER
from autonovel.paper.measured import Results, read
from autonovel.paper.rendering import Page, of_paper, whole_page
from autonovel.paper.tables import CURVES, TABLES
from autonovel.settings.recipes import get_recipe, with_fields
from tests.small_data import class_images

ROOT = Path(__file__).parents[2]


def reproduce(*words, cwd=ROOT):
    command = [sys.executable, "-m", "autonovel", "reproduce", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_the_page_is_current():
    page = whole_page(Page(Results(read(ROOT / "lab" / "rows", EARLIER))))
    assert (ROOT / "docs" / "paper.md").read_text(encoding="utf-8") == page, (
        "run: autonovel reproduce --show md --to docs/paper.md"
    )


def test_the_readme_has_the_headline():
    page, table, text = (
        Page(Results(read(ROOT / "lab" / "rows", EARLIER))),
        TABLES["comparison"],
        (ROOT / "README.md").read_text(),
    )
    rows = {
        row: [table.cell(row, column) for column in ("cifar10", "cifar100")] for row in ("incremental", "kmeans-ss")
    }
    ours, kmeans = ([f"{page.shown(table, cell).mean:.1f}" for cell in cells] for cells in rows.values())
    assert f"The paper's method: {' and '.join(ours)} on CIFAR" in text
    assert all(
        f" | {found} | {of_paper(cell.paper, '%')} |" in text
        for found, cell in zip(kmeans, rows["incremental"], strict=True)
    )


def test_the_command_writes_the_page(tmp_path):
    done = reproduce("--show", "md", "--to", tmp_path / "paper.md")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "paper.md").read_text() == (ROOT / "docs" / "paper.md").read_text()


def test_without_a_name_every_table_is_listed_with_what_is_missing(tmp_path):
    done = reproduce(cwd=tmp_path)
    assert done.returncode == 0
    assert all(f"\n{name} " in done.stdout for name in (*TABLES, *CURVES))
    assert not list(tmp_path.iterdir())


def test_one_table_in_json_has_its_cells():
    done = reproduce("table2", "--show", "json")
    records = json.loads(done.stdout)
    assert {record["table"] for record in records} == {"ablation"}
    full = next(r for r in records if (r["row"], r["column"]) == ("full", "cifar10"))
    assert (full["paper"], full["runs"], full["state"]) == (90.4, 3, "done")
    assert full["ours"] == pytest.approx(91.1, abs=0.1)


def test_pictures_are_drawn_of_what_there_is(tmp_path):
    done = reproduce("figure-k", "ablation", "--show", "png", "--to", tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ablation.png", "figure-k.png"]


@pytest.mark.long
def test_figures_are_drawn_of_any_run(tmp_path):
    classes = np.tile(np.arange(4), 12)
    images = ImageSet.from_arrays(class_images(classes, 16, n_classes=4), np.where(classes < 2, classes, -1))
    tiny = {
        "model.backbone": "small",
        "model.width": 2,
        "pretrain.method": "none",
        "supervised.epochs": 1,
        "joint.epochs": 2,
    }
    recipe = with_fields(get_recipe("cifar10", "fast"), tiny)
    truth = Truth(classes, tuple("abcd"))
    out = tmp_path / "run"
    an.discover(images, n_new=2, truth=truth, recipe=recipe, out=out, keep=(0, 2), device="cpu", report=False)
    done = reproduce("--run", tmp_path / "run", "--to", tmp_path / "figures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    drawn = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert drawn == ["confusion.png", "epochs.png", "losses.png", "tsne.png"]
    done = reproduce("--run", tmp_path / "run", "--data", "digits-split", cwd=tmp_path)
    assert done.returncode == 2
    assert "is about other images: it has 24 unlabelled ones, and these are 705" in done.stderr
    assert reproduce("--run", tmp_path / "nothing").returncode == 2


def test_a_list_has_a_command_for_every_run():
    done = reproduce("ablation", "--columns", "cifar10", "--seeds", 2, "--list")
    lines = done.stdout.splitlines()
    assert len(lines) == 12
    assert lines[0].startswith("autonovel reproduce ablation --cell ablation.no-mse.cifar10.s0 ")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["ablatio"], "The paper has no table or figure 'ablatio' here (did you mean ablation?)"),
        (["ablation", "--columns", "cifar1"], "--columns cifar1: no table here has that"),
        (["ablation", "--rows", "fulll"], "--rows fulll: no table here has that (did you mean full?)"),
        (["ablation", "--seeds", "0"], "--seeds is 0; it must be at least 1."),
        (
            ["ablation", "--cell", "ablation.full"],
            "--cell ablation.full: there is no such run; --list prints all of them.",
        ),
        (["ablation", "--device", "gpu"], "gpu"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(words, part, tmp_path):
    done = reproduce(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert part in done.stderr
    assert not list(tmp_path.iterdir())
