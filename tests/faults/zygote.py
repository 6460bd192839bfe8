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
from importlib import import_module
from pathlib import Path
from typing import Any

EXTERNAL = ("torch", "matplotlib", "pyarrow", "sklearn", "safetensors")


def obey(order: dict[str, Any], library: ctypes.CDLL | None) -> int:
    """What the copy does."""
    from autonovel.cli.main import main

    os.setsid()
    os.chdir(order["folder"])
    said = os.open(order["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0)
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
    for name in (
        *("torch", "matplotlib.pyplot", "pyarrow.parquet", "sklearn.cluster", "sklearn.datasets", "safetensors.torch"),
        *("api", "answers.further", "discovery.run_stages", "export.folders", "export.weights", "models.efficientnet"),
        *("paper.work", "report.html", "report.plots", "tuning.search"),
    ):
        import_module(name if name.partition(".")[0] in EXTERNAL else f"autonovel.{name}")


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
