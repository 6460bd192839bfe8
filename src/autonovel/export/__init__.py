"""The result of a run for other tools: sorted folders, tables, labels, and the trained network."""

from autonovel.export.formats import FORMATS, HOW, export

__all__ = ["FORMATS", "HOW", "export"]
