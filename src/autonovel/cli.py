"""The command line: parses, calls a public function, prints. Imports torch only where a verb needs it."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from autonovel.errors import AutonovelWarning, InputError, TrainingError
from autonovel.recipes import PRESETS, Recipe, describe_recipes, get_recipe

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
    """Discover the digits 5-9 among scikit-learn's embedded images, knowing 0-4. No download, a minute on a CPU."""

    out: Path = Path("runs/demo")
    """The run folder."""
    recipe: str = "digits"
    """The recipe to start from; every field of it is a flag below."""


@dataclass(frozen=True)
class Discover(Common):
    """Discover the new classes of a benchmark with the paper's split."""

    out: Path = Path("runs/discover")
    """The run folder. The same command with the same folder goes on where it stopped."""
    data: str = ""
    """The benchmark, for example cifar10."""
    root: Path = Path("data")
    """The folder with the benchmark's files."""
    n_new: int = 0
    """How many new classes to look for; 0 takes the benchmark's true number."""
    recipe: str = ""
    """The recipe to start from; the benchmark's own when left out. Every field of it is a flag below."""
    start_from: Path | None = None
    """A run whose first stages are used again where data and settings are the same."""
    unverified: bool = False
    """Use data files whose checksum differs from the published one."""


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
    from autonovel.data.benchmarks import load_benchmark
    from autonovel.progress import reporter
    from autonovel.report.plots import draw_clusters

    images, truth = load_benchmark("digits", None)
    run = discover(
        images,
        out=options.out,
        n_new=len(truth.class_names) - images.n_known,
        recipe=recipe,
        seed=options.seed,
        device=options.device,
        truth=truth,
        reporter=reporter(),
    )
    picture = draw_clusters(run, images, truth)
    _print_result(run.summary, options.json)
    if not options.json:
        print(f"The clusters as a picture: {picture}")
        print(f"Everything else: {options.out}")


def run_discover(options: Discover, recipe: Recipe) -> None:
    """``autonovel discover``."""
    from autonovel.api import discover
    from autonovel.data.benchmarks import load_benchmark
    from autonovel.progress import reporter

    images, truth = load_benchmark(options.data, options.root, unverified=options.unverified)
    run = discover(
        images,
        out=options.out,
        n_new=options.n_new or len(truth.class_names) - images.n_known,
        recipe=recipe,
        seed=options.seed,
        device=options.device,
        truth=truth,
        start_from=options.start_from,
        reporter=reporter(),
    )
    _print_result(run.summary, options.json)
    if not options.json:
        print(f"Everything else: {options.out}")


def run_recipes(options: Recipes) -> None:
    """``autonovel recipes``."""
    if options.name:
        for name, value in _flat(get_recipe(options.name, options.preset)):
            print(f"--{name.replace('_', '-')} {value}")
        return
    for name, text in describe_recipes().items():
        print(f"{name:<10} {text}")
    print(f"Presets: {', '.join(PRESETS)}. All fields of one: autonovel recipes NAME")


def run_doctor(options: Doctor) -> None:
    """``autonovel doctor``."""
    from autonovel.doctor import examine

    for finding in examine():
        print(finding)


_SHORT = {"--incremental": "--joint.incremental", "--no-incremental": "--joint.no-incremental"}
"""Flags that stand for a field of the recipe."""

Verb = tuple[type[Any], Callable[..., None]]
VERBS: dict[str, Verb] = {
    "demo": (Demo, run_demo),
    "discover": (Discover, run_discover),
    "recipes": (Recipes, run_recipes),
    "doctor": (Doctor, run_doctor),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 where the work failed, 2 where the input cannot be used."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0 if words else 2
    if words[0] == "--version":
        import autonovel

        print(f"autonovel {autonovel.__version__}")
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _run_verb(words[0], words[1:])
    except InputError as error:
        return _complain(str(error), 2)
    except TrainingError as error:
        return _complain(str(error), 1)
    except KeyboardInterrupt:
        return _complain("Interrupted. The same command goes on from here.", 130)
    except BrokenPipeError:
        return 1
    return 0


def _run_verb(verb: str, words: list[str]) -> None:
    if verb not in VERBS:
        raise InputError(f"There is no command '{verb}'; choose one of {', '.join(VERBS)}.")
    kind, function = VERBS[verb]
    _plain_warnings()
    words = [_SHORT.get(word, word) for word in words]
    if issubclass(kind, Common):
        recipe = get_recipe(*_look_ahead(words, kind))
        # the parts of the recipe become options beside the verb's own: --joint.epochs, --model.width
        parts = [(f.name, type(getattr(recipe, f.name)), getattr(recipe, f.name)) for f in fields(recipe)]
        parts = [part for part in parts if is_dataclass(part[2])]
        whole = make_dataclass(kind.__name__, parts, bases=(kind,), frozen=True)
        whole.__doc__ = kind.__doc__
        options = _parse(whole, words, verb)
        function(options, replace(recipe, **{name: getattr(options, name) for name, _, _ in parts}))
    else:
        function(_parse(kind, words, verb))


def _look_ahead(words: list[str], kind: type[Common]) -> tuple[str, str]:
    """The recipe and preset among the words: they decide the defaults of all other flags."""

    def value(flag: str, default: str) -> str:
        for i, word in enumerate(words):
            if word == f"--{flag}" and i + 1 < len(words):
                return words[i + 1]
            if word.startswith(f"--{flag}="):
                return word.partition("=")[2]
        return default

    default = "digits" if kind is Demo else ""
    name = value("recipe", default)
    if not name and kind is Discover:
        name = _recipe_of(value("data", ""))
    return name, value("preset", "paper")


def _recipe_of(benchmark: str) -> str:
    """The recipe whose settings belong to a benchmark."""
    family = benchmark.partition(":")[0].partition("-")[0]
    return family if family in describe_recipes() else "best"


def _parse(kind: type[Any], words: list[str], verb: str) -> Any:
    return tyro.cli(kind, args=words, prog=f"autonovel {verb}")


def _overview() -> str:
    lines = ["autonovel: discover the new classes in a pile of unlabelled images", "", "usage: autonovel COMMAND ...", ""]
    lines += [f"  {verb:<10} {(kind.__doc__ or '').splitlines()[0]}" for verb, (kind, _) in VERBS.items()]
    return "\n".join([*lines, "", "autonovel COMMAND --help lists the options of a command."])


def _print_result(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{summary['n_new']} new classes among {summary['images']['unlabelled']:,} unlabelled images")
    for column in ("cluster", "images", "matched class", "right"):
        table.add_column(column, justify="left" if column == "matched class" else "right")
    matched = summary.get("matched", {})
    for cluster, size in enumerate(summary["cluster_sizes"]):
        name, hits = matched.get(str(cluster), ("", 0))
        table.add_row(str(cluster), f"{size:,}", name, f"{hits / size:.1%}" if name and size else "")
    console = Console(width=100 if not sys.stdout.isatty() else None)
    console.print(table)
    if "acc_new" in summary:
        print(f"ACC {summary['acc_new']:.1%}   NMI {summary['nmi_new']:.3f}   ARI {summary['ari_new']:.3f}")
        for name, value in summary.get("kmeans", {}).items():
            print(f"k-means on {name.replace('_', ' ')}: ACC {value:.1%}")
        for rule, parts in summary.get("test", {}).items():
            print(f"test split, {rule} matching: " + "  ".join(f"{part} {value:.1%}" for part, value in parts.items()))
    total = sum(seconds for stage, seconds in summary["seconds"].items() if stage != "total")
    print(f"{total:.0f} s of training on {summary['device']}, seed {summary['seed']}, recipe {summary['recipe']} ({summary['preset']})")


def _flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for f in fields(value):
        own, name = getattr(value, f.name), f"{prefix}{f.name}"
        rows += _flat(own, f"{name}.") if is_dataclass(own) else [(name, own)]
    return rows


def _plain_warnings() -> None:
    """Show our own warnings as one plain sentence."""
    import warnings

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, AutonovelWarning):
            print(f"autonovel: warning: {message}", file=sys.stderr)

    warnings.showwarning = show


def _complain(text: str, status: int) -> int:
    print(f"autonovel: {text}", file=sys.stderr)
    return status


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
