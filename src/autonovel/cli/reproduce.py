"""``autonovel reproduce``."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autonovel.base.errors import InputError, TrainingError, option
from autonovel.base.screen import say
from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional
from autonovel.cli.tune import Axis, axis
from autonovel.machine.device_name import check_device_name

if TYPE_CHECKING:  # reading the measurements takes modules that --help does without
    from autonovel.paper.cells import Table
    from autonovel.paper.planned import Wanted
    from autonovel.paper.rendering import Page


@dataclass(frozen=True)
class Reproduce(Verb):
    """The paper's tables and figures, our numbers beside its: without a name, what is measured and what is missing; with names
    (ablation, table3, figure-k ...), measure what is missing and show it. The same command continues where it stopped."""

    names: Positional[tuple[str, ...]] = ()
    """Tables and figures, in the order in which they are worked on."""
    root: Path = Path("data")
    """The folder with the data."""
    out: Path = Path("runs/paper")
    """The folder of the runs and of the stages that they share."""
    results: Path | None = None
    """The folder of the lines that say what came out; lab/rows where there is one, otherwise OUT/rows."""
    scale: Literal["paper", "fast", "small"] = "paper"
    """paper: the paper's schedules. fast: a quarter of the time. small: digits in place of CIFAR-10, minutes on a CPU; it shows
    that the machinery works, not that the paper is right."""
    rows: tuple[str, ...] = ()
    """Only these rows."""
    columns: tuple[str, ...] = ()
    """Only these columns."""
    data: tuple[str, ...] = ()
    """Only runs on these data, whatever row or column they are in."""
    seeds: int = 3
    """Seeds of the last stage; the first stages are shared."""
    start_seed: int = 0
    """The seed of the stages that runs share."""
    budget: float | None = None
    """Stop after so many minutes, at the end of an epoch; the same command goes on."""
    together: int = 1
    """Runs at the same time; more than one pays for OmniGlot on a GPU."""
    cell: str = ""
    """Only the run of this name, as --list prints them."""
    list_: bool = False
    """Print a command for each run that is wanted, for a queue of jobs."""
    show: Literal["md", "latex", "csv", "json", "png"] | None = None
    """Measure nothing, only show what there is."""
    to: Path | None = None
    """Write that to a file instead."""
    run: Path | None = None
    """Draw the figures of this run instead, whatever made it: losses, a map of its images, its confusion if it was scored, and
    maps after the epochs that discover --keep named; with the name of its --data, accuracy and pair labels after them."""
    check: bool = False
    """Make the smallest run once more in a folder of its own: the same bits on this machine, or it is said what differs."""
    try_: tuple[Axis, ...] = ()
    """Settings of every run that has them, as joint.epochs=1, to try the machinery; what comes out stays in OUT/rows."""
    device: str = "auto"
    """Where to compute: cpu, cuda, cuda:N or auto."""
    unverified: bool = False
    """Use data even where their checksum differs from the published one."""

    @property
    def rows_folder(self) -> Path:
        """Where the lines are."""
        own = Path("lab/rows")
        return self.results or (own if own.is_dir() and not self.try_ else self.out / "rows")

    def do(self) -> None:
        """Show or measure."""
        from autonovel.paper.planned import find_tables, wanted
        from autonovel.paper.tables import PICTURES

        for flag, value, least in (
            ("seeds", self.seeds, 1),
            ("together", self.together, 1),
            ("budget", self.budget, 0),
        ):
            if value is not None and value < least:
                raise InputError(f"{option(flag)} is {value}; it must be at least {least}.")
        check_device_name(self.device)
        if self.run is not None:
            self._draw_run(self.run)
            return
        pictures = [name for name in self.names if name in PICTURES]
        names = [name for name in self.names if name not in PICTURES]
        tables = find_tables(names) if names or not pictures else []
        jobs = wanted(tables, self.scale, self.seeds, self.rows, self.columns, self.data)
        if self.cell:
            jobs = [job for job in jobs if job.name == self.cell]
            if not jobs:
                raise InputError(
                    f"{option('cell')} {self.cell}: there is no such run; {option('list')} prints all of them."
                )
        if self.list_:
            for job in jobs:
                say(self._command(job))
        elif self.show or not (self.names or self.cell):
            self._show(tables, pictures)
        else:
            self._measure(tables, jobs, pictures)

    def _draw_run(self, run: Path) -> None:
        from autonovel.paper.drawing import draw_run
        from autonovel.runs.folder import Folder

        opened = Folder.open(run)
        if not opened.finished:
            raise InputError(f"The run in {run} is not finished; the command that began it continues it.")
        folder, drawn = self.to or run / "figures", []
        if list(run.glob("kept-*.safetensors")):
            from autonovel.data.benchmarks.splits import load_benchmark
            from autonovel.paper.pictures import draw_kept

            scored = load_benchmark(self.data[0], self.root, unverified=self.unverified) if self.data else None
            drawn = draw_kept(opened, folder, scored)
        say("\n".join(map(str, [*draw_run(opened, folder), *drawn])))

    def page(self) -> Page:
        """What there is."""
        from autonovel.paper.earlier import EARLIER
        from autonovel.paper.measured import Results, read
        from autonovel.paper.rendering import Page

        scales = ("small",) if self.scale == "small" else ("paper", "fast")
        return Page(Results(read(self.rows_folder, EARLIER) if self.rows_folder.is_dir() else []), scales)

    def _show(self, tables: list[Table], pictures: list[str]) -> None:
        from autonovel.paper.rendering import rendered, whole_page
        from autonovel.paper.tables import PICTURES

        page = self.page()
        if self.show == "png":
            from autonovel.paper.drawing import draw_tables, draw_told

            folder = self.to or self.out / "figures"
            drawn = draw_tables(page, tables, folder)
            drawn += [file for name in pictures or PICTURES if (file := draw_told(page, name, folder)) is not None]
            say("\n".join(map(str, drawn)))
            return
        if self.show is not None:
            text = whole_page(page) if not self.names and self.show == "md" else rendered(page, tables, self.show)
        else:
            text = self._overview(page, tables)
        if self.to is None:
            say(text)
        else:
            self.to.write_text(text.rstrip("\n") + "\n", encoding="utf-8")

    def _there(self, page: Page, job: Wanted) -> bool:
        """Whether the lines have this run, whatever commit made it."""
        runs = page.results.runs(job.plan, self.scale)
        return any(run.seed == job.seed and all(score in run.scores for score in job.scores) for run in runs)

    def _overview(self, page: Page, tables: list[Table]) -> str:
        from autonovel.paper.minutes import minutes
        from autonovel.paper.planned import wanted
        from autonovel.paper.tables import PICTURES

        lines = [f"{'':<18}{'measured':>10}{'missing':>9}{'failed':>8}{'quoted':>8}"]
        for table in tables:
            counted = page.counted(table)
            figures = f"{counted['done']:>10}{counted['missing']:>9}{counted['failed']:>8}{counted['quoted']:>8}"
            lines.append(f"{table.name:<18}{figures}  {table.title}")
        left = [
            job
            for job in wanted(tables, self.scale, self.seeds, self.rows, self.columns, self.data)
            if not self._there(page, job)
        ]
        lines += ["", *(f"{name:<22}{title}" for name, (title, _) in PICTURES.items())]
        here = [job for job in left if not job.plan.data.startswith("imagenet")]
        time = f"{minutes(here, self.scale):,.0f} minutes of an H200"
        lines += ["", f"To go with {self.seeds} seeds on scale {self.scale}: {len(here)} runs, about {time}, and "
                      f"{len(left) - len(here)} on ImageNet."]  # fmt: skip
        lines += ["", f"Measured: {self.rows_folder}. autonovel reproduce NAME --root DATA measures what is missing."]
        return "\n".join(lines)

    def _measure(self, tables: list[Table], jobs: list[Wanted], pictures: list[str]) -> None:
        from autonovel.machine.progress import make_reporter
        from autonovel.paper.rendering import rendered
        from autonovel.paper.work import Work

        tried = {name: values[0] for name, values in map(axis, self.try_)}
        deadline = float("inf") if self.budget is None else time.monotonic() + 60 * self.budget
        work = Work(self.out, self.rows_folder, self.root, self.scale, self.device, self.start_seed, deadline,
                    make_reporter(), self.unverified, shlex.join(["autonovel", *sys.argv[1:]]), tried)  # fmt: skip
        if self.check:
            same, told = work.check(next(job for job in jobs if not (job.counts_alone or job.plan.until)))
            say(told)
            if not same:
                raise TrainingError("The run came out differently.")
            return
        through = work.go(jobs, self.page().results, self.together)
        drawn = [work.draw(name, self.out / "figures", self.page().results) for name in pictures] if through else []
        say("\n".join([rendered(self.page(), tables, "md"), *(str(file) for file in drawn if file is not None)]))
        for data, why in work.absent.items():
            say(f"Left out for want of {data}: {why}")
        if not through:
            say(f"Stopped after {self.budget:g} minutes; the same command goes on.")
        if work.failed:
            raise TrainingError(f"{len(work.failed)} of the runs failed: {'; '.join(work.failed)}")

    def _command(self, job: Wanted) -> str:
        words = ["autonovel", "reproduce", job.name.split(".")[0], "--cell", job.name, "--scale", self.scale]
        words += ["--seeds", str(self.seeds), "--root", str(self.root), "--out", str(self.out)]
        return shlex.join(words)
