"""Small line charts as SVG. Colours come from the page's style sheet, so that they suit light, dark and paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

WIDTH, HEIGHT = 560, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 36
MOST_POINTS = 400


class Line(NamedTuple):
    """A line of a chart; points that are not finite leave a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


class Tick(NamedTuple):
    """A mark on an axis: where, in pixels, and what it says."""

    at: float
    text: str


@dataclass
class Chart:
    """What a template needs to draw a chart.

    Attributes:
        title: what it shows.
        x_label: what is to the right.
        paths: (name, SVG path) of each line.
        x_ticks: marks below.
        y_ticks: marks on the left.
        band: left edge and width of a shaded range, in pixels.
        mark: where an upright line stands.
    """

    title: str
    x_label: str
    paths: list[tuple[str, str]]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    band: tuple[float, float] | None = None
    mark: float | None = None
    size: tuple[int, int] = field(default=(WIDTH, HEIGHT))
    inner: tuple[int, int, int, int] = field(default=(LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM))


def line_chart(
    title: str,
    x_label: str,
    lines: Sequence[Line],
    *,
    log: bool = False,
    band: tuple[float, float] | None = None,
    mark: float | None = None,
) -> Chart | None:
    """A chart of some lines; None where there is nothing to draw.

    Args:
        title: what it shows.
        x_label: what is to the right.
        lines: the lines.
        log: whether the values are drawn by their logarithm.
        band: a range of x to shade.
        mark: an x to mark.
    """
    lines = [Line(line.name, *_thinned(line, log)) for line in lines]
    xs = [x for line in lines for x in line.x]
    ys = [y for line in lines for y in line.y if math.isfinite(y)]
    if not ys:
        return None
    scale = math.log10 if log else float
    x_low, x_high = _range(xs)
    y_low, y_high = _range([scale(y) for y in ys])

    def across(x: float) -> float:
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - (scale(y) - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    chart = Chart(
        title=title,
        x_label=x_label,
        paths=[
            (line.name, _path([across(x) for x in line.x], [up(y) if math.isfinite(y) else y for y in line.y]))
            for line in lines
        ],
        x_ticks=[Tick(across(x), f"{x:g}") for x in _round_numbers(x_low, x_high, whole=True)],
        y_ticks=[Tick(up(10**y if log else y), _value(10**y if log else y)) for y in _round_numbers(y_low, y_high)],
    )
    if band is not None:
        left, right = (min(max(x, x_low), x_high) for x in band)
        chart.band = (across(left), max(across(right) - across(left), 3))
    if mark is not None and x_low <= mark <= x_high:
        chart.mark = across(mark)
    return chart


def _thinned(line: Line, log: bool) -> tuple[list[float], list[float]]:
    """No more points than a chart can show, and no values that have no logarithm."""
    step = -(-len(line.x) // MOST_POINTS) or 1
    xs, ys = list(line.x)[::step], list(line.y)[::step]
    return xs, [y if math.isfinite(y) and (not log or y > 0) else math.nan for y in ys]


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _path(xs: Sequence[float], ys: Sequence[float]) -> str:
    parts, pen_down = [], False
    for x, y in zip(xs, ys, strict=True):
        if math.isfinite(y):
            parts.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        pen_down = math.isfinite(y)
    if len(parts) == 1:
        parts.append("h0.1")  # a single point, which the round end of the line makes a dot
    return "".join(parts)


def _round_numbers(low: float, high: float, *, whole: bool = False) -> list[float]:
    """A few round numbers within a range.

    >>> _round_numbers(0.0, 1.0)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    rough = (high - low) / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    if whole:
        step = max(1.0, math.ceil(step - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 10) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _value(number: float) -> str:
    return f"{number:.3g}"
