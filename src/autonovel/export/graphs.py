"""The network as a program that runs without this package: ONNX and torch.export. Both are tried after they are written."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from autonovel.base.errors import TrainingError, needed
from autonovel.export.card import write_card
from autonovel.export.formats import Options, check_folder
from autonovel.export.network import (
    Classifier,
    Exported,
    describe,
    describe_classes,
    network_of,
    sample_images,
)
from autonovel.runs.files import RunFiles

if TYPE_CHECKING:
    from autonovel.runs.folder import Run

TOLERANCE = 1e-4
"""The largest difference to torch that is accepted; for features, of their largest value where that is above 1."""


def write_onnx(run: Run, to: Path, options: Options) -> Path:
    """Write ``model.onnx``, ``classes.json`` and a model card."""
    needed("Writing ONNX", "onnx", "onnx", "onnxscript", "onnxruntime")
    import onnxruntime

    def write(exported: Exported, program: Any, path: Path) -> None:
        with _quiet():
            graph = torch.onnx.export(
                program, input_names=["images"], output_names=list(Classifier.OUTPUTS), dynamo=True, verbose=False
            )
        assert graph is not None
        graph.model.metadata_props["autonovel"] = json.dumps(describe(exported), ensure_ascii=False)
        shape = graph.model.graph.inputs[0].shape
        assert shape is not None
        graph.rename_axes({str(shape[0]): "n"})
        graph.save(str(path))

    def read(path: Path) -> Callable[[Tensor], list[Any]]:
        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
        return lambda images: list(session.run(None, {"images": images.numpy()}))

    return _write(run, to, options, "model.onnx", write, read)


def write_torch(run: Run, to: Path, options: Options) -> Path:
    """Write ``model.pt2``, ``classes.json`` and a model card."""

    def write(exported: Exported, program: Any, path: Path) -> None:
        with _quiet():
            torch.export.save(program, path, extra_files={"autonovel.json": json.dumps(describe(exported))})

    def read(path: Path) -> Callable[[Tensor], list[Any]]:
        with _quiet():
            model = torch.export.load(path).module()
        return lambda images: [part.detach().numpy() for part in model(images)]

    return _write(run, to, options, "model.pt2", write, read)


def _write(
    run: Run,
    to: Path,
    options: Options,
    name: str,
    write: Callable[[Exported, Any, Path], None],
    read: Callable[[Path], Callable[[Tensor], list[Any]]],
) -> Path:
    check_folder(run, to, options)
    exported = network_of(run)
    images = sample_images(run, exported.shape)
    with torch.no_grad():
        wanted = [(part, exported.model(part)) for part in (images[:1], images)]  # one image, and several
    files = RunFiles(to)
    with files.whole(name) as part:
        # torch.export wants the file to be called so
        path = part.with_name(f".{part.name}{Path(name).suffix}")
        try:
            write(exported, _program(exported, images), path)
            _check(wanted, read(path), name)
            path.replace(part)
        finally:
            path.unlink(missing_ok=True)
    files.write_json("classes.json", describe_classes(exported.outputs))
    write_card(run, exported, to, name)
    return to


@torch.no_grad()
def _program(exported: Exported, images: Tensor) -> Any:
    """The traced network, for any number of images."""
    with _quiet():
        program = torch.export.export(exported.model, (images[:3],), dynamic_shapes=({0: torch.export.Dim("n")},))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    return program


def _check(
    wanted: Sequence[tuple[Tensor, tuple[Tensor, ...]]], again: Callable[[Tensor], list[Any]], name: str
) -> None:
    """Refuse a file that does not say what torch says."""
    for images, said in wanted:
        for mine, theirs, what in zip(said, again(images), Classifier.OUTPUTS, strict=True):
            if mine.dtype == torch.bool:  # an image may lie at the very edge
                continue
            apart = float(np.abs(mine.numpy() - theirs).max(initial=0))
            if not apart <= TOLERANCE * max(1.0, float(mine.abs().max())):
                raise TrainingError(f"The {what} of {name} differ from torch's by {apart:.2g}; it was not kept.")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch says about itself while it traces and writes."""
    noisy = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "torch._export")]
    levels = [logger.level for logger in noisy]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in noisy:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(noisy, levels, strict=True):
                logger.setLevel(level)
