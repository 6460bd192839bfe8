"""``autonovel discover``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autonovel.arguments import check_arguments
from autonovel.cli.common import TwoPiles, load_api_while
from autonovel.cli.results import print_result
from autonovel.errors import InputError, option
from autonovel.settings import Recipe


@dataclass(frozen=True)
class Discover(TwoPiles):
    """Discover the new classes among unlabelled images."""

    out: Path = Path("runs/discover")
    """The run folder. The same command with the same folder continues where it stopped."""
    n_new: int | Literal["auto", "true"] = "auto"
    """How many new classes to look for; auto estimates it, true takes a benchmark's own number."""
    start_from: Path | None = None
    """A run whose first stages are used again where data and settings are the same."""
    report: bool = True
    """Write clusters.png and report.html at the end."""

    def check(self) -> None:
        """Refuse what cannot work, before an image is read."""
        if self.n_new == "true" and not self.data:
            raise InputError(f"{option('n_new', 'true')} is for benchmarks; give the number of new classes, or auto.")
        n_new = "auto" if self.n_new == "true" else self.n_new
        check_arguments(out=self.out, device=self.device, n_new=n_new)

    def do(self, recipe: Recipe) -> None:
        """Discover."""
        api, (labelled, unlabelled, truth) = load_api_while(self.read)
        run = api.discover(
            labelled,
            unlabelled,
            n_new=len(truth.class_names) - labelled.n_known if self.n_new == "true" else self.n_new,
            truth=truth,
            start_from=self.start_from,
            cache=self.cache,
            report=self.report,
            **self.passed_on(recipe),
        )
        print_result(run, json=self.json)
