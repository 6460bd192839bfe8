"""The names that a device may have. Imports no torch: the command line asks before that."""

from __future__ import annotations

import re

from autonovel.base.errors import InputError


def check_device_name(device: object) -> None:
    """Refuse a name that no device has; whether there is such a device is not asked here."""
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", str(device)):
        raise InputError(f"There is no device '{device}'; choose cpu, cuda, cuda:N or auto.")
