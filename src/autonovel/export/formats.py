"""The formats by name, and the one function that writes any of them. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from autonovel.base.errors import InputError, TrainingError, option, unknown
from autonovel.machine.disk import why_not_writable

if TYPE_CHECKING:
    from autonovel.runs.folder import Run

HOW = ("copy", "link", "hardlink", "move")
"""How files get into sorted folders."""


class NotAgreed(InputError):  # noqa: N818, what happened is the better word
    """Files of the user's would be moved, and nobody has said that they may be."""


class Format(NamedTuple):
    """A format.

    Attributes:
        writer: the function that writes it, in a module beside this one: ``(run, to, options)``, giving what was written.
        text: what it is, in a line.
        suffix: a target that ends with this is a file, not a folder; empty where it is always a folder.
    """

    writer: str
    text: str
    suffix: str = ""


FORMATS = {
    "folders": Format("folders.write_folders", "one folder of images per class"),
    "imagefolder": Format(
        "training_folders.write_imagefolder", "images with metadata.jsonl, as the datasets of Hugging Face read them"
    ),
    "yolo": Format("training_folders.write_yolo", "train and val, each with one folder per class, for YOLO classification"),
    "csv": Format("tables.write_csv", "a table with one line per image", ".csv"),
    "spreadsheet": Format("tables.write_spreadsheet", "the same table, without a cell that would be a formula", ".csv"),
    "parquet": Format("tables.write_parquet", "the same table as Parquet", ".parquet"),
    "coco": Format("labels.write_coco", "COCO-style JSON: images, categories, one annotation per image", ".json"),
    "cvat": Format("labels.write_cvat", "a tag per image for CVAT (CVAT for images 1.1)", ".xml"),
    "fiftyone": Format("labels.write_fiftyone", "a dataset that FiftyOne imports as FiftyOneImageClassificationDataset"),
    "label-studio": Format("labels.write_label_studio", "tasks with predictions for Label Studio"),
    "safetensors": Format("weights.write_safetensors", "the weights of the network in one file, with a model card"),
    "onnx": Format("graphs.write_onnx", "the network as ONNX, from uint8 pixels to probabilities"),
    "torch": Format("graphs.write_torch", "the network as a torch.export program (.pt2), from uint8 pixels to probabilities"),
    "hub": Format("hub.upload", "the safetensors folder, uploaded to a repository of the Hugging Face hub"),
}  # fmt: skip
"""Every format."""

NETWORKS = ("safetensors", "onnx", "torch", "hub")
"""Those that hold the network and list no images."""


@dataclass(frozen=True)
class Options:
    """What may be chosen.

    Attributes:
        how: one of :data:`HOW`.
        overwrite: replace what an earlier export left in the target.
        all: the labelled images too, not only those that were sorted.
        private: whether a repository that is made on the hub is private.
        yes: whether somebody has agreed that files are moved.
    """

    how: str = "copy"
    overwrite: bool = False
    all: bool = False
    private: bool = True
    yes: bool = False


def export(
    run: Run,
    to: str | os.PathLike[str],
    *,
    format: str = "folders",
    how: str = "copy",
    overwrite: bool = False,
    all: bool = False,
    private: bool = True,
    yes: bool = False,
) -> Path | str:
    """Hand the result of a run, with a person's names and corrections, to other tools.

    Args:
        run: a finished run.
        to: the folder to write; a table may be named as a file (``labels.csv``); for ``hub``, the repository (``me/birds``).
        format: one of :data:`FORMATS`.
        how: how images get into sorted folders: ``copy``, ``link`` (symbolic), ``hardlink`` or ``move``.
        overwrite: replace what an earlier export left there; files that no export wrote are left alone.
        all: the labelled images too (for the formats that list images).
        private: whether a repository that is made on the hub is private.
        yes: files may be moved; without it, ``how="move"`` only says out of which folders they would be.

    Returns:
        The folder or file that was written; for ``hub``, the address of the repository.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if how not in HOW:
        raise unknown("way to place files", how, HOW)
    if how != "copy" and format not in ("folders", "imagefolder", "yolo"):
        raise InputError(f"{option('how', how)} is for sorted folders; leave it out with {option('format', format)}.")
    target = Path(to)
    _check_suffix(target, format)
    _ = run.machine  # refuses a run that is not finished, before anything is written
    module, _, function = FORMATS[format].writer.partition(".")
    write = getattr(import_module(f"autonovel.export.{module}"), function)
    try:
        written: Path | str = write(run, target, Options(how, overwrite, all, private, yes))
    except OSError as error:
        from autonovel.runs.files import cannot_be_written  # reads arrays: --help is to be quick

        raise TrainingError(cannot_be_written(error.filename or target, error)) from error
    return written


def _check_suffix(to: Path, format: str) -> None:
    """Refuse a target that says another format than was asked for."""
    ends = {".csv": "csv", ".parquet": "parquet", ".json": "coco", ".xml": "cvat", ".onnx": "onnx", ".pt2": "torch"} | {
        ".safetensors": "safetensors"
    }
    meant = ends.get(to.suffix.lower())
    if meant is None or to.is_dir() or format == "hub":
        return
    if FORMATS[format].suffix != FORMATS[meant].suffix:
        raise InputError(f"{to} looks like {meant}, but the format is {format}; add {option('format', meant)}.")
    if not FORMATS[format].suffix:
        raise InputError(f"{to} would be a file, but {format} needs a folder; give one with {option('to')}.")


def check_folder(run: Run, to: Path, options: Options) -> None:
    """Refuse a target folder that is a file, a run, or not empty (unless it may be overwritten)."""
    if to.exists() and not to.is_dir():
        raise InputError(f"{to} is a file; give a folder with {option('to')}.")
    if to.is_dir() and (to / "summary.json").exists() and (to / "predictions.csv").exists():
        raise InputError(f"{to} is a run folder; give another folder with {option('to')}.")
    _check_writable(to)
    if to.is_dir() and not options.overwrite and any(to.iterdir()):
        raise InputError(
            f"The folder {to} is not empty; choose another one with {option('to')}, or add {option('overwrite', True)}."
        )


def check_file(to: Path, format: str, name: str, options: Options) -> Path:
    """The file to write: the target itself where it has the format's suffix, otherwise one of this name in it."""
    file = to if to.suffix.lower() == FORMATS[format].suffix and not to.is_dir() else to / name
    if file.is_dir() or (file.parent.exists() and not file.parent.is_dir()):
        raise InputError(f"{file} cannot be written; give another folder with {option('to')}.")
    _check_writable(file.parent)
    if file.exists() and not options.overwrite:
        raise InputError(f"The file {file} exists; give another {option('to')}, or add {option('overwrite', True)}.")
    return file


def _check_writable(folder: Path) -> None:
    if why := why_not_writable(folder):
        raise InputError(f"The folder {folder} cannot be written ({why}); give another one with {option('to')}.")
