"""The verbs of the command line: their options, the public function each calls, and what it prints.

Imports torch only inside a verb.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from autonovel.errors import InputError
from autonovel.machine.launch import launched
from autonovel.recipes import PRESETS, describe_recipes, get_recipe
from autonovel.settings import Recipe

T = TypeVar("T")
Preset = Literal["paper", "reference", "fast"]


@dataclass(frozen=True)
class Common:
    """Options of every verb that runs the method."""

    preset: Preset = "paper"
    """paper follows the text of the paper, reference what its authors ran, fast is nearly as good in less time."""
    seed: int = 0
    """Everything random depends on it."""
    device: str = "auto"
    """cpu, cuda or auto."""
    json: bool = False
    """Print the summary as JSON."""


@dataclass(frozen=True)
class Demo(Common):
    """Discover the digits 5-9 among scikit-learn's embedded images, knowing 0-4. No download, a minute or two on a CPU."""

    out: Path = Path("runs/demo")
    """The run folder."""
    recipe: str = "digits"
    """The recipe to start from; every field of it is a flag below."""


@dataclass(frozen=True)
class Reader(Common):
    """Options of every verb that reads images."""

    data: str = ""
    """A benchmark instead of files of your own, for example cifar10 (autonovel data lists them)."""
    root: Path = Path("data")
    """The folder with the benchmark's files."""
    unverified: bool = False
    """Use data files whose checksum differs from the published one."""
    cache: Path | None = None
    """Folder for decoded images; the user's cache folder when left out."""


@dataclass(frozen=True)
class Source(Reader):
    """Options of every verb that reads labelled and unlabelled images."""

    labelled: Annotated[Path | None, tyro.conf.Positional] = None
    """Images of the known classes: a folder with one sub-folder per class, or a CSV or Parquet table (path,label)."""
    unlabelled: Annotated[Path | None, tyro.conf.Positional] = None
    """The images to sort: a folder or a table. Left out, LABELLED is a table in which some labels are empty."""
    recipe: str = ""
    """The recipe to start from; folder, or the benchmark's own, when left out. Every field of it is a flag below."""


@dataclass(frozen=True)
class Discover(Source):
    """Discover the new classes among unlabelled images."""

    out: Path = Path("runs/discover")
    """The run folder. The same command with the same folder goes on where it stopped."""
    n_new: int | Literal["auto", "true"] = "auto"
    """How many new classes to look for; auto estimates it, true takes the benchmark's own number."""
    start_from: Path | None = None
    """A run whose first stages are used again where data and settings are the same."""


@dataclass(frozen=True)
class EstimateClasses(Source):
    """Estimate how many new classes there are among unlabelled images."""

    out: Path = Path("runs/estimate")
    """The run folder; discover can go on from it."""


@dataclass(frozen=True)
class Cluster(Reader):
    """Sort images into K clusters without any labels."""

    images: Annotated[Path | None, tyro.conf.Positional] = None
    """A folder or a table of images."""
    k: int = 10
    """How many clusters."""
    out: Path = Path("runs/cluster")
    """The run folder."""
    recipe: str = "cluster"
    """The recipe to start from; every field of it is a flag below."""


@dataclass(frozen=True)
class Data:
    """Verify the files of a benchmark, or download them."""

    name: Annotated[str, tyro.conf.Positional] = ""
    """The benchmark; all are listed when left out."""
    root: Path = Path("data")
    """The folder with the files."""


@dataclass(frozen=True)
class Recipes:
    """List the recipes, or show every field of one."""

    name: Annotated[str, tyro.conf.Positional] = ""
    """The recipe to show."""
    preset: Preset = "paper"
    """Which preset of it."""


@dataclass(frozen=True)
class Doctor:
    """Check this machine: versions, devices, memory, and that one step of training works."""


def run_demo(options: Demo, recipe: Recipe) -> None:
    """``autonovel demo``."""
    from autonovel.api import discover
    from autonovel.data.benchmarks.splits import load_benchmark
    from autonovel.report.plots import draw_clusters
    from autonovel.runs.folder import load

    images, truth = load_benchmark("digits", None)
    n_new = len(truth.class_names) - images.n_known
    run = discover(
        images,
        n_new=n_new,
        truth=truth,
        **_passed_on(options, recipe),
    )
    picture = draw_clusters(load(options.out), images, truth) if launched().first else None
    _print_result(run.summary, options)
    if not options.json:
        print(f"The clusters as a picture: {picture}")


def run_discover(options: Discover, recipe: Recipe) -> None:
    """``autonovel discover``."""
    api, (labelled, unlabelled, truth) = _load_api_while(lambda: _images(options))
    n_new: int | str = options.n_new
    if n_new == "true":
        if truth is None:
            raise InputError("--n-new true is for benchmarks; give the number of new classes, or auto.")
        n_new = len(truth.class_names) - labelled.n_known
    run = api.discover(
        labelled,
        unlabelled,
        n_new=n_new,
        truth=truth,
        start_from=options.start_from,
        cache=options.cache,
        **_passed_on(options, recipe),
    )
    _print_result(run.summary, options)


def run_estimate(options: EstimateClasses, recipe: Recipe) -> None:
    """``autonovel estimate``."""
    from dataclasses import asdict

    api, (labelled, unlabelled, truth) = _load_api_while(lambda: _images(options))
    found = api.estimate(
        labelled,
        unlabelled,
        cache=options.cache,
        **_passed_on(options, recipe),
    )
    if options.json:
        print(json.dumps(asdict(found)))
        return
    print(found)
    if truth is not None:
        print(f"The truth is {len(truth.class_names) - labelled.n_known}.")
    print(f"The curve: {options.out / 'estimate.png'} (numbers: estimate.json)")


def run_cluster(options: Cluster, recipe: Recipe) -> None:
    """``autonovel cluster``."""
    api, (images, truth) = _load_api_while(lambda: _pile(options))
    run = api.cluster(
        images,
        options.k,
        truth=truth,
        cache=options.cache,
        **_passed_on(options, recipe),
    )
    _print_result(run.summary, options)


def run_data(options: Data) -> None:
    """``autonovel data``."""
    from autonovel.data.benchmarks.splits import BENCHMARKS, fetch_benchmark
    from autonovel.progress import make_reporter

    if options.name:
        print(fetch_benchmark(options.name, options.root, progress=make_reporter().counter("bytes downloaded")))
        return
    for name, text in BENCHMARKS.items():
        print(f"{name:<14} {text}")


def _passed_on(options: Any, recipe: Recipe) -> dict[str, Any]:
    """What every verb that runs the method hands to the public function."""
    from autonovel.machine.processes import join
    from autonovel.progress import make_reporter

    return {
        "out": options.out,
        "recipe": recipe,
        "seed": options.seed,
        "device": options.device,
        "reporter": make_reporter(),
        "world": join(options.device),
    }


def _load_api_while(work: Callable[[], T]) -> tuple[Any, T]:
    """``autonovel.api``, and with it torch, and what the work, done in a thread meanwhile, gives.

    Reading a benchmark takes a third of the time that importing torch does, most of it outside of Python.
    """
    import autonovel.data.benchmarks.splits  # noqa: F401  (not in the thread: two imports that need each other could meet)

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(work)
        gc.disable()  # what is imported stays, and looking through it again and again takes a tenth of the time
        try:
            import autonovel.api as api
        finally:
            gc.freeze()
            gc.enable()
        return api, done.result()


def _images(options: Source) -> tuple[Any, Any, Any]:
    """Labelled images, unlabelled images and, for a benchmark, the truth."""
    from autonovel.data.benchmarks.splits import load_benchmark

    if options.data and options.labelled:
        raise InputError("Give either folders or a benchmark (--data), not both.")
    if options.data:
        images, truth = load_benchmark(options.data, options.root, unverified=options.unverified)
        return images, None, truth
    if options.labelled is None:
        raise InputError("Give a folder of labelled and one of unlabelled images, or a benchmark with --data.")
    return options.labelled, options.unlabelled, None


def _pile(options: Cluster) -> tuple[Any, Any]:
    """The images without labels and, for a benchmark, the truth."""
    from autonovel.data.benchmarks.splits import load_benchmark

    if options.data and options.images is not None:
        raise InputError("Give either a folder (or table) of images or a benchmark (--data), not both.")
    if options.data:
        return load_benchmark(options.data, options.root, unverified=options.unverified)
    if options.images is None:
        raise InputError("Give a folder or a table of images, or a benchmark with --data.")
    return options.images, None


def run_recipes(options: Recipes) -> None:
    """``autonovel recipes``."""
    if options.name:
        for name, value in _flat(get_recipe(options.name, options.preset)):
            print(_as_flag(name, value))
        return
    for name, text in describe_recipes().items():
        print(f"{name:<10} {text}")
    print(f"Presets: {', '.join(PRESETS)}. All fields of one: autonovel recipes NAME")


def _as_flag(name: str, value: Any) -> str:
    """A field of a recipe as it is typed."""
    part, _, last = name.replace("_", "-").rpartition(".")
    if name == "name":
        return f"--recipe {value}"
    if isinstance(value, bool):
        return f"--{part}.{'' if value else 'no-'}{last}"
    values = value if isinstance(value, tuple) else (value,)
    return " ".join([f"--{name.replace('_', '-')}", *map(str, values)])


def run_doctor(options: Doctor) -> None:
    """``autonovel doctor``."""
    from autonovel.cli.doctor import examine

    for finding in examine():
        print(finding)


def _print_result(summary: dict[str, Any], options: Any) -> None:
    if options.json:
        print(json.dumps(summary))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{summary['n_new']} new classes among {summary['images']['unlabelled']:,} unlabelled images")
    matched = summary.get("matched")
    for column in ("cluster", "images") if matched is None else ("cluster", "images", "matched class", "right"):
        table.add_column(column, justify="left" if column == "matched class" else "right")
    for cluster, size in enumerate(summary["cluster_sizes"]):
        row = [str(cluster), f"{size:,}"]
        if matched is not None:
            name, hits = matched.get(str(cluster), ("", 0))
            row += [name, f"{hits / size:.1%}" if name and size else ""]
        table.add_row(*row)
    console = Console(width=100 if not sys.stdout.isatty() else None)
    console.print(table)
    if summary.get("n_new_interval"):
        low, high = summary["n_new_interval"]
        print(f"The number of new classes was estimated: {summary['n_new']}, between {low} and {high}")
    if "acc_new" in summary:
        print(f"ACC {summary['acc_new']:.1%}   NMI {summary['nmi_new']:.3f}   ARI {summary['ari_new']:.3f}")
        for name, value in summary.get("kmeans", {}).items():
            print(f"k-means on {name.replace('_', ' ')}: ACC {value:.1%}")
        for rule, parts in summary.get("test", {}).items():
            shown = [f"{part} {value:.1%}" for part, value in parts.items() if value is not None]
            print(f"test split, {rule} matching: {'  '.join(shown)}")
    total = sum(seconds for stage, seconds in summary["seconds"].items() if stage != "total")
    print(
        f"{total:.0f} s of training on {summary['device']}, seed {summary['seed']}, "
        f"recipe {summary['recipe']} ({summary['preset']})"
    )
    print(f"Everything else: {options.out}")


def _flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for f in fields(value):
        own, name = getattr(value, f.name), f"{prefix}{f.name}"
        rows += _flat(own, f"{name}.") if is_dataclass(own) else [(name, own)]
    return rows


Verb = tuple[type[Any], Callable[..., None]]
VERBS: dict[str, Verb] = {
    "demo": (Demo, run_demo),
    "discover": (Discover, run_discover),
    "estimate": (EstimateClasses, run_estimate),
    "cluster": (Cluster, run_cluster),
    "data": (Data, run_data),
    "recipes": (Recipes, run_recipes),
    "doctor": (Doctor, run_doctor),
}
