"""What workers of the tests do."""

import os
import signal
import tempfile
from collections.abc import Callable

from autonovel.base.errors import TrainingError


def deadly(folder: str) -> Callable[[str], bytes]:
    def work(item: str) -> bytes:
        if item == "deadly":
            tempfile.mkstemp(dir=folder)  # counts how often
            os.kill(os.getpid(), signal.SIGKILL)
        if item == "fault":
            raise TrainingError("The store is out of reach.")
        if item == "wrong":
            raise ValueError("no such item")
        return item.encode()

    return work
