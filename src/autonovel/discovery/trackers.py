"""What ``--log`` writes: the losses of every epoch, for a tracker of experiments. Each is an extra, imported where it is used.

A tracker gets the lines of metrics.jsonl, those of an earlier start first: so a run that is resumed is there as a whole. What is
written stays on this machine, unless the user has told the tracker of a server, or logged in to one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from autonovel.base.errors import InputError, needed, option, unknown

Numbers = Mapping[str, float]
Write = Callable[[Numbers, int], None]
"""Takes the numbers of an epoch by their names, ``joint/swap``, and the epoch."""


@contextmanager
def _tensorboard(run: Path, recipe: Mapping[str, Any]) -> Iterator[Write]:
    from torch.utils.tensorboard import SummaryWriter

    shutil.rmtree(run / "tensorboard", ignore_errors=True)  # what is written again would be there twice
    with SummaryWriter(str(run / "tensorboard")) as writer:
        writer.add_text("recipe", f"```\n{json.dumps(recipe, indent=1)}\n```")

        def write(numbers: Numbers, epoch: int) -> None:
            for name, value in numbers.items():
                writer.add_scalar(name, value, epoch)
            writer.flush()

        yield write


@contextmanager
def _mlflow(run: Path, recipe: Mapping[str, Any]) -> Iterator[Write]:
    import mlflow

    if not os.environ.get("MLFLOW_EXPERIMENT_NAME"):
        mlflow.set_experiment("autonovel")
    with mlflow.start_run(run_name=run.name):
        mlflow.log_dict(recipe, "recipe.json")
        yield lambda numbers, epoch: mlflow.log_metrics(dict(numbers), step=epoch)


@contextmanager
def _wandb(run: Path, recipe: Mapping[str, Any]) -> Iterator[Write]:
    import wandb

    mode = None if os.environ.get("WANDB_MODE") or wandb.login(prompt=False) else "offline"
    quiet = wandb.Settings(console="off")  # else it copies what is printed, bars and all
    with wandb.init(project="autonovel", name=run.name, config=dict(recipe), mode=mode, settings=quiet) as written:
        written.define_metric("*", step_metric="epoch")
        yield lambda numbers, epoch: written.log({**numbers, "epoch": epoch})


TRACKERS: Mapping[str, Callable[[Path, Mapping[str, Any]], AbstractContextManager[Write]]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}
"""What ``--log`` takes."""


def check_tracker(name: str | None, *, trains: bool = True) -> None:
    """Refuse a name that is none, a tracker that is not installed, and any where nothing is trained."""
    if name is None:
        return
    if not trains:
        raise InputError(f"Nothing is trained on features; leave {option('log')} out.")
    if name not in TRACKERS:
        raise unknown(option("log"), name, TRACKERS)
    needed(option("log", name), name, name)


@contextmanager
def tracked(name: str | None, run: Path, recipe: Mapping[str, Any]) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that takes a line of metrics.jsonl; without a name it does nothing."""
    if name is None:
        yield lambda entry: None
        return
    with ExitStack() as opened:
        try:
            write = opened.enter_context(TRACKERS[name](run, recipe))
        except Exception as error:  # each has errors of its own: a server that is away, a folder that cannot be written
            why = str(error).partition("\n")[0]
            raise InputError(f"{option('log', name)} cannot begin ({why}); mend that, or leave it out.") from error
        yield lambda entry: write(_numbers(entry), entry["epoch"])


def _numbers(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an epoch under the name of its stage; of several heads, the mean.

    >>> _numbers({"stage": "joint", "epoch": 3, "lr": 0.1, "seconds": 2.0, "losses": {"swap": [1.0, 2.0]}})
    {'joint/lr': 0.1, 'joint/seconds': 2.0, 'joint/swap': 1.5}
    """
    losses = {k: sum(v) / len(v) if isinstance(v, list) else v for k, v in entry["losses"].items()}
    return {f"{entry['stage']}/{k}": v for k, v in ({n: entry[n] for n in ("lr", "seconds")} | losses).items()}
