"""Settings of methods that must lie within limits."""

from __future__ import annotations

from autonovel.base.errors import InputError, option

Limits = tuple[tuple[str, float, float, str], ...]
"""Setting, smallest and largest value, and how to say so."""


def check_limits(settings: object, path: str, limits: Limits) -> None:
    """Refuse a setting below its smallest or above its largest value, or that is no number."""
    for name, least, most, rule in limits:
        if not least <= getattr(settings, name) <= most:
            raise InputError(f"{option(f'{path}.{name}')} is {getattr(settings, name)}; it must {rule}.")
