"""A process that has everything imported and starts each command as a copy of itself, in a hundredth of the time.

``python -m tests.faults.zygote LIBRARY`` reads a line of JSON for each command and answers with one when it has ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any


def obey(order: dict[str, Any], library: ctypes.CDLL | None) -> int:
    """What the copy does."""
    from autonovel.cli.main import main

    os.setsid()
    os.chdir(order["folder"])
    said = os.open(order["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = open(0)
    if library is not None:
        library.fault_arm(order["under"].encode(), order["kind"], order["at"], order["error"])
    try:
        status = main(order["words"])
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 99
    sys.stdout.flush()
    sys.stderr.flush()
    if library is not None:
        count = library.fault_count()
        library.fault_arm(b"/nowhere", 0, -1, 0)
        Path(order["count"]).write_text(str(count))
    return status


def warm_up() -> None:
    """Import what the commands import, so that each copy has it."""
    import matplotlib.pyplot
    import pyarrow.parquet
    import sklearn.cluster
    import sklearn.datasets
    import sklearn.decomposition
    import torch

    import autonovel.answers.further
    import autonovel.api
    import autonovel.discovery.run_stages
    import autonovel.export.folders
    import autonovel.export.weights
    import autonovel.models.efficientnet
    import autonovel.report.html
    import autonovel.report.plots
    import autonovel.tuning.search  # noqa: F401

    torch.set_num_threads(1)


def main() -> None:
    library = ctypes.CDLL(sys.argv[1]) if len(sys.argv) > 1 else None
    if library is not None:
        library.fault_arm.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_long, ctypes.c_int)
        library.fault_count.restype = ctypes.c_long
    warm_up()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        started = time.monotonic()
        process = os.fork()
        if process == 0:
            os._exit(obey(order, library))
        print(json.dumps({"process": process}), flush=True)
        _, how = os.waitpid(process, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(how), "seconds": time.monotonic() - started}), flush=True)


if __name__ == "__main__":
    main()
