"""The result of a run as a table: for pandas, a notebook or a terminal."""

from __future__ import annotations

import sys
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING

from autonovel.base.errors import InputError, TrainingError
from autonovel.base.screen import say
from autonovel.runs.answers import Answer

if TYPE_CHECKING:
    import pandas

    from autonovel.runs.folder import Folder

HEADER = ("cluster", "name", "kind", "images", "mean probability")


def as_table(run: Folder) -> pandas.DataFrame:
    """The predictions as a pandas table."""
    try:
        import pandas
    except ImportError as error:
        raise InputError("The table needs pandas: pip install pandas, or use run.predictions.") from error
    table = pandas.DataFrame(run.predictions, columns=list(Answer._fields))
    return table.astype({"cluster": "Int64", "probability": float, "known": bool, "unlike": bool})


def show(run: Folder) -> None:
    """Show the clusters: the picture and the table in a notebook, the table in a terminal."""
    if _in_notebook():
        from IPython.display import HTML, Image, display

        display(HTML(as_html(run)))
        if run.has("clusters.png"):
            if run.edits:
                from autonovel.report.plots import draw_clusters

                with suppress(TrainingError):  # a folder that cannot be written can still be looked at
                    draw_clusters(run)
            display(Image(filename=str(run.path / "clusters.png")))
    else:
        say(as_text(run))


def rows(run: Folder) -> list[tuple[str, ...]]:
    """A row of words per cluster."""
    sure = run.machine.probability
    return [
        (
            str(c.number) if c.number >= 0 else "",
            c.name,
            c.kind,
            str(len(c.members)),
            f"{sure[c.members].mean():.2f}" if len(c.members) else "",
        )
        for c in run.clusters
    ]


def as_text(run: Folder) -> str:
    """The clusters as lines of text."""
    table = [HEADER, *rows(run)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(word.ljust(n) for word, n in zip(row, widths, strict=True)).rstrip() for row in table)


def as_html(run: Folder) -> str:
    """The clusters as an HTML table."""
    head = "".join(f"<th>{word}</th>" for word in HEADER)
    body = "".join(f"<tr>{''.join(f'<td>{escape(word)}</td>' for word in row)}</tr>" for row in rows(run))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _in_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None
