"""Task x variant x seed -> a row: discoveries whose answer is known, trained, scored and written down.

    python lab/compare.py demo neighbours --root DATA --seeds 0 1 2               studies of lab/tasks.py
    python lab/compare.py --tasks "digits mixed=0.3" --recipe digits:fast --variants "" "joint.epochs=40" --seeds 0 1 2
    python lab/compare.py --tasks "photos/tiny hide=10 left=10" "photos/tiny hide=10 left=10 uneven" --draws 20

A variant is a text of FIELD=VALUE; an empty one is the recipe as it is. With --draws N each task is N tasks: other classes are
hidden, other images mixed in. A table by kind of task closes the work: mean and worst over draws and seeds.

Stages that rows have in common are trained once, in WORK/starts. Several processes may work in the same folder at once, on
other rows: who needs a first stage that another one trains waits for it. The same command again continues: rows that are in
the results are left out, what was begun is taken up, and a row that fails leaves the others alone. A row that is the same run
as another (same images, recipe, number and seeds) is not trained again: it gets the same figures.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pages import ROOT, ROWS, Row, read_rows, spread, table
from tasks import STUDIES, make_task

from autonovel.api.discover import discover
from autonovel.base.errors import InputError, TrainingError
from autonovel.base.screen import say
from autonovel.discovery.prepare import facts_of
from autonovel.discovery.resume import config_of
from autonovel.machine.device import Mode
from autonovel.machine.jobs import side_by_side
from autonovel.machine.progress import Reporter
from autonovel.runs.files import lock
from autonovel.settings.recipes import get_recipe, with_fields
from autonovel.settings.resolve import Asked, resolve
from autonovel.tuning.starts import Starts, digest

LONG = ("confusion", "confusion_classes", "matched", "reliability", "question")
"""Of a summary, what takes many lines."""


@dataclass(frozen=True)
class Cell:
    """What a row is about.

    Attributes:
        study: to which it belongs; empty for one of the command line.
        name: of the row in it.
        task: in words.
        recipe: name and preset, joined by a colon.
        fields: of the recipe, and what they are set to.
        seed: of the run.
    """

    study: str
    name: str
    task: str
    recipe: str
    fields: Mapping[str, Any]
    seed: int

    def __str__(self) -> str:
        return " ".join(filter(None, (self.study, self.name, f"on {self.task}", f"seed {self.seed}")))


class Log(Reporter):
    """A line for each stage and every so many epochs, with the name of the row."""

    def __init__(self, name: str, every: int) -> None:
        self.name, self.every, self.stage = name, every, ""

    def message(self, text: str) -> None:
        tell(f"{self.name}: {text}")

    def start(self, stage: str, epochs: int, done: int) -> None:
        self.stage = stage
        self.message(f"{stage} starts, {epochs} epochs")

    def epoch(self, number: int, losses: Mapping[str, Any], seconds: float) -> None:
        if (number + 1) % self.every == 0:
            self.message(f"{self.stage} {number + 1}: {json.dumps(losses)} {seconds:.2f} s")


def tell(text: str) -> None:
    """A line with the time, at once."""
    say(f"{time.strftime('%H:%M:%S')} {text}")


class Lab:
    """The rows of one command."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.mode = args, Mode.of(args.device)
        self._writing = threading.Lock()

    def row(self, cell: Cell) -> Row:
        """What the results have of it, or what comes out now."""
        args, began = self.args, time.perf_counter()
        data, truth = make_task(cell.task, args.root, unverified=args.unverified)
        recipe = with_fields(get_recipe(*cell.recipe.split(":")), {**cell.fields, **values_of(args.set)})
        n_true = len(truth.class_names) - data.n_known
        n_new = {"true": n_true, "auto": None}.get(args.number, args.number)
        resolved = resolve(Asked.of(recipe), facts_of(data, n_new, self.mode)).recipe
        first = cell.seed if args.start_seed is None else args.start_seed
        key = digest([config_of(data, resolved, n_new, cell.seed)["run"], first])
        about: Row = {"benchmark": cell.task.split()[0], "task": cell.task, "table": cell.study, "row": cell.name}
        about |= {"changed": [f"{name}={value}" for name, value in cell.fields.items()]}
        about |= {"key": key, "n_true": n_true}
        for line in read_rows(args.results):
            if line.get("key") == key and line.get("commit") == args.commit:
                if (line["table"], line["row"], line["task"]) == (cell.study, cell.name, cell.task):
                    tell(f"{cell}: in {args.results} already")
                    return line
                return self._write(line | about | {"same_run_as": f"{line['table']} {line['row']}".strip()})
        start = Starts(args.work / "starts", first, self.mode, Log(f"{cell}", args.every)).before(
            data, resolved, estimated=n_new is None
        )
        run = discover(
            data, out=args.work / key, n_new="auto" if n_new is None else n_new, recipe=recipe, seed=cell.seed,
            device=args.device, truth=truth, start_from=start and start.path, cache=args.cache, report=False,
            reporter=Log(f"{cell}", args.every),
        )  # fmt: skip
        found = {name: value for name, value in run.summary.items() if name not in LONG}
        if not args.keep:
            shutil.rmtree(run.path)
        took = round(time.perf_counter() - began, 1)
        made = {"commit": args.commit, "date": str(date.today()), "wall_seconds": took, "first_stages_seed": first}
        return self._write(about | made | found)

    def _write(self, row: Row) -> Row:
        """Add it to the results; runs side by side, in threads or processes, may do so."""
        self.args.results.parent.mkdir(parents=True, exist_ok=True)
        with self._writing, self.args.results.open("a", encoding="utf-8") as lines:
            lock(lines, wait=True)
            lines.write(json.dumps(row) + "\n")
        acc = f"ACC {row['acc_new']:.4f}" if "acc_new" in row else "no new images to score"
        tell(f"RESULT {row['table']} {row['row'] or 'as it is'} on {row['task']}, seed {row['seed']}: {acc}")
        return row


def values_of(words: Sequence[str]) -> dict[str, Any]:
    """FIELD=VALUE ... as the fields of a recipe.

    >>> values_of(["joint.epochs=3", "pretrain.augment.area=(0.5, 1)", "joint.pairs=soft"])
    {'joint.epochs': 3, 'pretrain.augment.area': (0.5, 1), 'joint.pairs': 'soft'}
    """
    return {name: _value(text) for name, _, text in (word.partition("=") for word in words)}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def cells_of(args: argparse.Namespace) -> list[Cell]:
    """All rows that the command asks for, seed after seed, so that the first is whole before the second begins."""
    wanted: list[tuple[str, str, str, str, Mapping[str, Any]]] = []
    for name in args.studies:
        study = STUDIES[name]
        rows = [(row, fields) for row, fields in study.rows.items() if not args.only or row in args.only]
        wanted += [(name, row, task, study.recipe, f) for task in args.tasks or study.tasks for row, f in rows]
    if not args.studies:
        for task, variant in itertools.product(args.tasks, args.variants):
            fields = values_of(re.findall(r"[\w.+]+=(?:\([^)]*\)|\S+)", variant))
            wanted.append(("", variant, task, args.recipe, fields))
    draws = [""] if args.draws is None else [f" draw={draw}" for draw in range(args.draws)]
    return [
        Cell(
            study,
            row,
            task + draw,
            recipe if args.preset is None else f"{recipe.split(':')[0]}:{args.preset}",
            fields,
            s,
        )
        for s, draw in itertools.product(args.seeds, draws)
        for study, row, task, recipe, fields in wanted
    ]


def by_kind(rows: Sequence[Row]) -> str:
    """A line for each kind of task and variant: mean and worst over draws and seeds."""
    kinds: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        task = " ".join(word for word in row["task"].split() if not word.startswith("draw="))
        kinds.setdefault((row["table"], row["row"], task), []).append(row)
    lines = []
    for (study, name, task), group in kinds.items():

        def of(get: Callable[[Row], float | None], group: Sequence[Row] = group) -> list[float]:
            return [value for row in group if (value := get(row)) is not None]

        acc = of(lambda row: row.get("acc_new"))
        kmeans = of(lambda row: next(iter((row.get("kmeans") or {}).values()), None))
        counted = [row for row in group if row.get("n_new_estimated") is not None]
        off = [abs(row["n_new_estimated"] - row["n_true"]) / row["n_true"] for row in counted]
        ranges = [(row["n_new_interval"], row["n_true"]) for row in counted if row.get("n_new_interval")]
        held = f"{sum(low <= true <= high for (low, high), true in ranges)} of {len(ranges)}" if ranges else "–"
        figures = [f"{100 * min(acc):.1f}" if acc else "–", spread(kmeans), spread(off, 0), held]
        figures.append(spread(of(lambda row: row.get("calibration_error")), 3, 1))
        figures.append(spread(of(lambda row: row["wall_seconds"]), 0, 1))
        what = " ".join(filter(None, (study, name))) or "as it is"
        lines.append([task, what, str(len(group)), spread(acc), *figures])
    head = ["task", "row", "runs", "ACC new", "worst", "k-means", "number off by, %", "interval holds"]
    return table([*head, "calibration error", "seconds"], lines)


def commit() -> str:
    """Of the code, with a mark where it was changed since; empty outside of a repository."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--only", nargs="+", help="of the rows of these studies")
    parser.add_argument("--tasks", nargs="+", default=[], help="in place of studies, or of their tasks")
    parser.add_argument("--recipe", default="folder", metavar="NAME:PRESET", help="with --tasks")
    parser.add_argument("--variants", nargs="+", default=[""], metavar="'FIELD=VALUE ...'", help="with --tasks")
    parser.add_argument("--preset", help="another than that of the study or the recipe")
    parser.add_argument("--draws", type=int, help="so many tasks of each kind")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--start-seed", type=int, help="of the first stages of all seeds; their own when left out")
    parser.add_argument("--number", default="true", help="of new classes: true, auto or a number")
    parser.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", help="of every row, to try a study")
    parser.add_argument("--root", type=Path, help="where the files of benchmarks are")
    parser.add_argument("--unverified", action="store_true", help="accept files other than the published ones")
    parser.add_argument("--work", type=Path, default=Path("runs/lab"))
    parser.add_argument("--results", type=Path, default=ROWS / "studies.jsonl")
    parser.add_argument("--cache", type=Path, help="for features; the user's cache folder when left out")
    parser.add_argument("--keep", action="store_true", help="keep the runs, each in WORK/KEY")
    parser.add_argument("--together", type=int, default=1, help="rows at the same time")
    parser.add_argument("--every", type=int, default=20, help="a line every so many epochs")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--commit", default=commit(), help="of the code; git says it when left out")
    args = parser.parse_args(arguments)
    if strangers := set(args.studies) - STUDIES.keys():
        parser.error(f"there is no study '{min(strangers)}'; choose among {', '.join(STUDIES)}")
    if not args.studies and not args.tasks:
        parser.error(f"name studies ({', '.join(STUDIES)}), or give --tasks")
    if strangers := set(args.only or ()) - {row for name in args.studies for row in STUDIES[name].rows}:
        parser.error(f"there is no row '{min(strangers)}' in {', '.join(args.studies) or '--tasks'}")
    if args.number not in ("true", "auto"):
        if not args.number.isdigit():
            parser.error(f"--number is '{args.number}'; give true, auto or a number")
        args.number = int(args.number)
    lab, failed = Lab(args), list[Cell]()

    def attempt(cell: Cell) -> Row | None:
        try:
            return lab.row(cell)
        except Exception as error:
            failed.append(cell)
            tell(f"FAILED {cell}: {error if isinstance(error, InputError | TrainingError) else traceback.format_exc()}")
            return None

    cells = cells_of(args)
    rows = [row for row in side_by_side([lambda c=cell: attempt(c) for cell in cells], args.together) if row]
    if rows:
        say(by_kind(rows))
    if failed:
        sys.exit(f"{len(failed)} of {len(cells)} rows failed; what went wrong stands above.")


if __name__ == "__main__":
    main()
