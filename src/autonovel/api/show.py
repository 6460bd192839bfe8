"""The result of a run as a table: for pandas, a notebook or a terminal."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from autonovel.base.errors import InputError
from autonovel.base.screen import say
from autonovel.machine.progress import in_notebook
from autonovel.runs.answers import Answer

if TYPE_CHECKING:
    import pandas

    from autonovel.runs.folder import Folder

MOST_CLUSTERS, EACH = 60, 8
"""Clusters in a notebook, and images of each."""

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
    """Show the clusters: a table with pictures in a notebook, lines in a terminal."""
    if in_notebook():
        from IPython.display import HTML, display

        display(HTML(as_html(run)))
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
    """The clusters as an HTML table, each with its most typical images."""
    from autonovel.report.clusters import Pictures, shown_clusters
    from autonovel.report.html import data_uri

    pictures, seen = Pictures(run), shown_clusters(run)
    lines = []
    for words, cluster in list(zip(rows(run), seen, strict=True))[:MOST_CLUSTERS]:
        typical = [row for row in cluster.rows.tolist() if pictures.usable[row]][:EACH]
        shown = "".join(f'<img src="{data_uri(p)}" alt="" width="56" height="56"> ' for p in pictures.many(typical))
        cells = "".join(f"<td>{escape(word)}</td>" for word in words)
        lines.append(f"<tr>{cells}<td>{shown}</td></tr>")
    head = "".join(f"<th>{word}</th>" for word in (*HEADER, "typical images"))
    more = f"<p>and {len(seen) - MOST_CLUSTERS:,} more clusters</p>" if len(seen) > MOST_CLUSTERS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f"<p><b>{escape(run.headline)}</b> ({escape(str(run.path))})</p>{table}{more}"
