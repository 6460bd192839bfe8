"""A run in a person's hands: its folder, and everything that is done with one. Opening it needs no torch."""

from __future__ import annotations

import os
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autonovel.runs.folder import Folder
from autonovel.runs.shared import SharedFolder

if TYPE_CHECKING:
    import pandas

    from autonovel.answers.table import AnswerTable
    from autonovel.machine.processes import World

Path_ = str | os.PathLike[str]

_INNER = re.compile(r"_[^_]|write_|read_|append_|forget_|(remove|claim|whole|file|state|edit|machine)$")
"""Members that the package itself uses, and that a person does not look for."""


class Run(Folder):
    """A run: its folder, what was found, and what a person makes of it.

    >>> run = load("runs/birds")                        # doctest: +SKIP
    >>> run.summary["n_new"], run.classes[run.labels[0]]            # doctest: +SKIP
    (5, 'new 2')
    """

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not _INNER.match(name)]

    def _repr_html_(self) -> str:
        from autonovel.api.show import as_html

        return as_html(self) if self.finished else f"<p>{escape(repr(self))}</p>"

    def to_pandas(self) -> pandas.DataFrame:
        """The predictions as a pandas table."""
        from autonovel.api.show import as_table

        return as_table(self)

    def show(self) -> None:
        """Show the clusters: the picture and a table in a notebook, the table in a terminal."""
        from autonovel.api.show import show

        show(self)

    def report(self) -> Path:
        """Write report.html and clusters.png as the clusters are now, and say where the report is."""
        from autonovel.report.html import draw_report

        return draw_report(self)

    def export(self, to: Path_, **options: Any) -> Any:
        """Hand the result to other tools: see :func:`autonovel.export.export`."""
        from autonovel.export import export

        return export(self, to, **options)

    def predict(self, images: Any, **options: Any) -> AnswerTable:
        """The classes of further images: see :func:`autonovel.answers.further.predict`."""
        from autonovel.answers.further import predict
        from autonovel.api.features import is_of_features, predict_features

        return predict_features(self, images, **options) if is_of_features(self) else predict(self, images, **options)


class SharedRun(SharedFolder, Run):
    """A run that several processes work on: the first one reads and writes its folder."""


def open_run(path: Path_, world: World) -> Run:
    """The folder for a run of these processes."""
    return SharedRun(path, world) if world.several else Run(path)


def load(path: Path_) -> Run:
    """Open the run in this folder."""
    return Run.open(path)
