"""Shared by several commands: the options of those that train, and how they are started."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from autonovel.base.errors import InputError, option
from autonovel.base.screen import say
from autonovel.cli.flags import Given, Positional
from autonovel.discovery.arguments import check_arguments

if TYPE_CHECKING:
    from autonovel.runs.folder import Run
    from autonovel.settings.resolve import Asked

T = TypeVar("T")

A_MOMENT = 0.5
"""Seconds."""
Preset = Literal["paper", "reference", "fast"]
BEGAN = time.time()
"""When the command began, but for the start of Python itself."""


OF_FEATURES = (
    *("labelled", "unlabelled", "features", "out", "pile", "n_new", "seed", "labels", "from_", "report", "json"),
    *("data", "engine", "address", "log"),  # of which each says itself where it does not go with the others
)
"""What may be typed where features are given: nothing else would do anything."""
OF_DESCRIBING = ("recipe", "preset", "model.backbone", "model.size", "device")
"""What may be typed beside these where images are described first."""


@dataclass(frozen=True)
class Verb:
    """A command: its documentation says what it does, its fields are what may be typed after it."""

    MATTER: ClassVar[tuple[str, ...]] = ()
    """The flags that --help shows; all where there are none."""

    def idle(self, path: str) -> str:
        """Why a flag that was typed would have no effect beside the others; empty where it has one."""
        return ""

    def do(self) -> None:
        """Do it."""
        raise NotImplementedError


@dataclass(frozen=True)
class TrainingVerb:
    """A command that trains: every field of the recipe is a flag too."""

    MATTER: ClassVar[tuple[str, ...]] = (
        *("out", "n_new", "k", "pile", "method", "recipe", "preset", "model.backbone"),
        *("data", "root", "seed", "device", "json"),
    )

    out: Path = Path("runs/autonovel")
    """The run folder. The same command with the same folder continues where it stopped."""
    recipe: str = ""
    """The recipe to start from (autonovel recipes lists them), or FILE.json. Every field of it is a flag of its own."""
    preset: Preset = "paper"
    """paper follows the text of the paper, reference its authors' code, fast takes a fraction of the time."""
    seed: int = 0
    """The random seed: the same seed gives the same result."""
    device: str = "auto"
    """Where to compute: cpu, cuda, cuda:N or auto."""
    json: bool = False
    """Print the result as JSON."""

    def idle(self, path: str) -> str:
        """Why a flag that was typed would have no effect beside the others; empty where it has one."""
        return ""

    @property
    def recipe_name(self) -> str:
        """The recipe to start from where none is given."""
        return self.recipe

    def base(self, given: Given) -> Asked:
        """The recipe to which the flags that were typed are added."""
        from autonovel.settings.recipes import get_recipe, is_file
        from autonovel.settings.resolve import Asked

        if is_file(self.recipe_name) and "preset" in given:
            raise InputError(f"The recipe {self.recipe_name} has its preset already; leave {option('preset')} out.")
        return Asked.of(get_recipe(self.recipe_name, self.preset))

    def check(self) -> None:
        """Refuse what cannot work, before an image is read."""
        check_arguments(out=self.out, device=self.device, seed=self.seed)

    def do(self, asked: Asked) -> None:
        """Do it with this recipe."""
        raise NotImplementedError

    def passed_on(self, asked: Asked) -> dict[str, Any]:
        """The arguments that every command that trains passes to the public function."""
        from autonovel.machine.processes import join
        from autonovel.machine.progress import make_reporter

        return {
            "out": self.out,
            "recipe": asked,
            "seed": self.seed,
            "device": self.device,
            "reporter": make_reporter(),
            "world": join(self.device),
        }

    def say_and_draw(self, run: Any, passed: Mapping[str, Any], *, report: bool = True) -> None:
        """Print the answer of a run that these arguments made; then draw the pictures, which may take longer than the answer."""
        from autonovel.api.discover import draw
        from autonovel.api.run import Run
        from autonovel.cli.results import print_files, print_result

        # only the first process surely sees the folder
        made_now = passed["world"].from_first(lambda: (run.path / "summary.json").stat().st_mtime >= BEGAN)
        took = time.time() - BEGAN if made_now else None
        print_result(run, json=self.json, seconds=took, files=False)
        sys.stdout.flush()
        if report and passed["world"].first:
            draw(Run(run.path), passed["reporter"])
        if not self.json:
            print_files(run)


@dataclass(frozen=True)
class ReadingVerb(TrainingVerb):
    """A command that trains on images of the user or of a benchmark."""

    data: str = ""
    """A benchmark in place of your own images, for example cifar10 (autonovel data lists them)."""
    root: Path = Path("data")
    """The folder with the benchmark's files."""
    unverified: bool = False
    """Use a benchmark's files even where their checksum differs from the published one."""
    cache: Path | None = None
    """The folder for decoded images; your cache folder when left out."""

    def idle(self, path: str) -> str:
        """Where a benchmark lies is of no use without one."""
        alone = path in ("root", "unverified") and not self.data
        return f"it belongs to {option('data', 'NAME')}" if alone else super().idle(path)


@dataclass(frozen=True)
class TwoPiles(ReadingVerb):
    """A command that reads labelled and unlabelled images."""

    TO_SORT: ClassVar[bool] = True
    """Whether there must be images to sort."""
    labelled: Positional[str | None] = None
    """Images of the known classes: a folder with one sub-folder per class, or a CSV or Parquet table (path,label)."""
    unlabelled: Positional[str | None] = None
    """The images to sort: a folder, a table, tar shards, Parquet files with images, or their address (s3://...). Left out,
    LABELLED is a table in which some labels are empty."""

    @property
    def recipe_name(self) -> str:
        """The benchmark's own recipe, or the one for folders."""
        if self.recipe or not self.data:
            return self.recipe or "folder"
        from autonovel.settings.recipes import describe_recipes

        family = self.data.partition(":")[0].partition("-")[0]
        return family if family in describe_recipes() else "best"

    def read(self) -> tuple[Any, Any, Any]:
        """Labelled images, unlabelled images and, for a benchmark, the truth."""
        if self.data and self.labelled:
            raise InputError(f"Give either your own images or a benchmark ({option('data')}), not both.")
        if self.data:
            images, truth = _benchmark(self)
            return images, None, truth
        if self.labelled is None:
            raise InputError(
                f"Give a folder of labelled and one of unlabelled images, or a benchmark ({option('data', 'NAME')})."
            )
        return _opened(self.labelled, self.unlabelled, to_sort=self.TO_SORT), None, None


@dataclass(frozen=True)
class PilesOrFeatures(TwoPiles):
    """A command that reads two piles of images, or of their features."""

    features: bool = False
    """LABELLED and UNLABELLED hold features, not images: folders that describe has made, Parquet tables with the columns features
    and, where there are any, image and label, or .npy files (those of LABELLED with --labels)."""
    engine: Literal["local", "ray"] | None = None
    """Describe the images first, shard by shard, with a worker for each core or GPU of this machine (local) or on a cluster."""
    address: str | None = None
    """With --engine ray, the address of the cluster; left out, Ray starts on this machine."""

    def idle(self, path: str) -> str:
        """Features are grouped as they are: most of what a recipe says is about images."""
        if path == "address" and self.engine != "ray":
            return f"it belongs to {option('engine', 'ray')}"
        if self.features and path not in OF_FEATURES:
            return "features are grouped as they are"
        if self.engine is not None and path not in (*OF_FEATURES, *OF_DESCRIBING):
            return f"{option('engine')} describes the images, and their features are grouped as they are"
        return super().idle(path)

    def read(self) -> tuple[Any, Any, Any]:
        """The same of features; where images are described first, what was given."""
        if self.features and self.engine is not None:
            raise InputError(f"{option('engine')} describes images; leave it out where features are given.")
        if self.data or self.labelled is None or not (self.features or self.engine):
            return super().read()
        if self.engine is not None:
            return self.labelled, self.unlabelled, None
        return self.read_features(), None, None

    def read_features(self) -> Any:
        """The features of both."""
        from autonovel.data.reading.embedded import read_embedded

        return read_embedded(self.labelled, self.unlabelled)


@dataclass(frozen=True)
class OnePile(ReadingVerb):
    """A command that reads unlabelled images alone."""

    images: Positional[str | None] = None
    """A folder or a table of images."""

    def read(self) -> tuple[Any, Any]:
        """The images and, for a benchmark, the truth."""
        if self.data and self.images is not None:
            raise InputError(f"Give either your own images or a benchmark ({option('data')}), not both.")
        if self.data:
            return _benchmark(self)
        if self.images is None:
            raise InputError(f"Give a folder or a table of images, or a benchmark ({option('data', 'NAME')}).")
        return _opened(None, self.images), None


def load_api_while(work: Callable[[], T]) -> tuple[Any, T]:
    """``autonovel.api.discover``, and with it torch, and what the work, done in a thread meanwhile, gives.

    Reading a benchmark takes a third of the time that importing torch does, most of it outside of Python. What is wrong with
    images or folders is mostly known after a moment: that moment is waited for, so that nobody waits for torch to hear it.
    """
    from concurrent.futures import ThreadPoolExecutor  # slow to import, for --help

    import autonovel.data.benchmarks.splits  # noqa: F401  (not in the thread: two imports that need each other could meet)

    with ThreadPoolExecutor(1) as thread, _without_garbage():
        done = thread.submit(work)
        with suppress(TimeoutError):
            done.result(A_MOMENT)
        import autonovel.api.discover as api

        return api, done.result()


def agree_to_fetch(run: Run, agreed: bool) -> None:
    """Let the pictures of a run be fetched from the stores that it names, or say how one would."""
    from autonovel.data.reading.members import STORES_AGREED

    if agreed:
        STORES_AGREED.set()
    elif run.parts is not None and "://" in run.images[-1].source:
        say(f"The pictures lie in a store; {option('fetch', True)} fetches them.", sys.stderr)


@contextmanager
def _without_garbage() -> Iterator[None]:
    """While torch is imported: what is imported stays, and looking through it again and again takes a tenth of the time."""
    if "torch" in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _opened(labelled: Any, unlabelled: Any, *, to_sort: bool = True) -> Any:
    """Images of a person, listed and looked at: what is wrong with them is said before anything else is loaded."""
    from autonovel.data.reading.inputs import open_input

    given = open_input(labelled, unlabelled, to_sort=to_sort)
    _ = given.survey
    return given


def _benchmark(options: ReadingVerb) -> tuple[Any, Any]:
    from autonovel.data.benchmarks.splits import load_benchmark

    return load_benchmark(options.data, options.root, unverified=options.unverified)
