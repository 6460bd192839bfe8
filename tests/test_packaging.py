"""What is installed has every file, from a wheel and in a container; the notebook runs from its first cell to its last."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import autonovel

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "examples" / "first_steps.ipynb"


def test_a_wheel_of_what_the_container_gets_has_every_file(tmp_path: Path) -> None:
    copied = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    source = tmp_path / "source"
    source.mkdir()
    for name in copied:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", tmp_path]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, source], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("autonovel/")}
    package = ROOT / "src" / "autonovel"
    files = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert held == {path.relative_to(package.parent).as_posix() for path in files}
    assert {Path(name).suffix for name in held} >= {".html", ".js", ".css", ".svg", ".txt", ".toml", ".json", ".typed"}


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *words], capture_output=True, text=True)


@pytest.mark.long
@pytest.mark.skipif(
    shutil.which("docker") is None or docker("info").returncode != 0, reason="no container engine is running"
)
def test_the_container_has_the_command_and_the_networks() -> None:
    built = docker("build", "--quiet", str(ROOT))
    assert built.returncode == 0, built.stderr
    image = built.stdout.strip()
    assert docker("run", "--rm", image, "--version").stdout == f"autonovel {autonovel.__version__}\n"
    listed = docker("run", "--rm", image, "backbones").stdout
    assert "efficientnet-lite0" in listed
    assert "not installed" not in listed


@pytest.mark.long
def test_the_notebook_runs_and_is_kept_without_outputs(tmp_path: Path) -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    script = "\n".join("".join(cell["source"]) for cell in cells)
    paths = os.pathsep.join([str(NOTEBOOK.parent), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "first-steps" / "photos" / "truth.csv").open(newline="") as file:
        true = {Path(row["path"]).name: row["label"] for row in csv.DictReader(file)}
    pairs = {(path.parent.name, true[path.name]) for path in (tmp_path / "first-steps" / "sorted").glob("*/*.jpg")}
    assert {name for name, _ in pairs} == {label for _, label in pairs} == {"crosses", "rings", "stars", "waves"}
    assert len(pairs) == 4, "a folder holds pictures of two classes"
