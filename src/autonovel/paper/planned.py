"""Which runs the cells of some tables need, in which order, and with which settings. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autonovel.base.errors import InputError, did_you_mean, option
from autonovel.paper.cells import Plan, Scale, Table, on_scale
from autonovel.paper.measured import about
from autonovel.paper.tables import CURVES, NUMBERED, TABLES
from autonovel.settings.fields import leaves
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe, with_fields


@dataclass(frozen=True)
class Wanted:
    """A run that cells need.

    Attributes:
        name: the first cell that needs it, with the seed: ``ablation.full.cifar10.s0``.
        plan: of the run; its score is one of several.
        scores: all that cells want of it.
        seed: of the last stage.
    """

    name: str
    plan: Plan
    scores: tuple[str, ...]
    seed: int

    @property
    def counts_alone(self) -> bool:
        """Whether the data say it all."""
        return all(score.startswith("classes.") for score in self.scores)


def recipe_of(plan: Plan, scale: Scale, tried: Mapping[str, Any] | None = None) -> Recipe:
    """The settings of a run: on scale paper those of its text, but for OmniGlot, where the text leaves too much open.

    ``tried`` are fields that are set otherwise wherever a recipe has them, to try the machinery.
    """
    preset = "fast" if scale == "fast" else "reference" if plan.recipe == "omniglot" else "paper"
    recipe = get_recipe(plan.recipe, preset)
    if scale == "small":  # another method brings its short schedule
        recipe = replace(recipe, preset="fast")
    recipe = with_fields(recipe, dict(plan.changes))
    there = dict(leaves(recipe))
    return with_fields(recipe, {name: value for name, value in (tried or {}).items() if name in there})


def find_tables(names: Sequence[str]) -> list[Table]:
    """Tables and curves by name or number; all of them where none is named."""
    there = {**TABLES, **CURVES}
    tables = []
    for name in names or there:
        name = NUMBERED.get(name, name)
        if name not in there:
            near = did_you_mean(name, [*there, *NUMBERED])
            raise InputError(f"The paper has no table or figure '{name}' here{near}; choose among {', '.join(there)}.")
        tables.append(there[name])
    return tables


def wanted(
    tables: Iterable[Table],
    scale: Scale,
    seeds: int,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    data: Sequence[str] = (),
) -> list[Wanted]:
    """The runs of these tables: those of all cells with the first seed, then with the next one. Twins are one run.

    Args:
        tables: in the order in which they are worked on.
        scale: of the runs.
        seeds: how many of the last stage.
        rows, columns: only these, where any are given; a column may be given by its data alone.
        data: only runs on these, where any are given.
    """
    tables = list(tables)
    for given, flag, kind in (
        (rows, "rows", [t.rows for t in tables]),
        (columns, "columns", [t.columns for t in tables]),
    ):
        there = [name for names in kind for name in names]
        for name in given:
            if not any(_is(name, one) for one in there):
                raise InputError(f"{option(flag)} {name}: no table here has that{did_you_mean(name, there)}; choose among "
                                 f"{', '.join(dict.fromkeys(there))}.")  # fmt: skip
    jobs: dict[str, Wanted] = {}
    for table in tables:
        for cell in table.cells:
            if not isinstance(cell.way, Plan) or not _chosen(cell.row, rows) or not _chosen(cell.column, columns):
                continue
            plan = on_scale(cell.way, scale)
            for part in plan.parts() if plan is not None else []:
                if not _chosen(part.data, data):
                    continue
                name = ".".join(
                    word.replace(" ", "-").replace(":*", "") for word in (table.name, cell.row, cell.column)
                )
                name += f".{part.data.partition(':')[2]}" if part != plan else ""
                key = about(part) + ("classes" if part.score.startswith("classes.") else "")
                if key not in jobs:
                    jobs[key] = Wanted(name, part, (part.score,), 0)
                else:
                    one = jobs[key]
                    whole = replace(one.plan, until=one.plan.until and part.until)
                    jobs[key] = replace(one, plan=whole, scores=tuple(dict.fromkeys((*one.scores, part.score))))
    return [
        replace(one, seed=seed, name=f"{one.name}.s{seed}")
        for seed in range(seeds)
        for one in jobs.values()
        if seed == 0 or not one.counts_alone
    ]


def _chosen(name: str, given: Sequence[str]) -> bool:
    return not given or any(_is(one, name) for one in given)


def _is(given: str, name: str) -> bool:
    return given == name or name.startswith((f"{given} ", f"{given}:"))
