"""The answers of a trained network for images, and a finished run restored from its folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from autonovel.base.errors import TrainingError, option
from autonovel.data.images import ImageSet
from autonovel.data.loader import Images, as_tensor, put_on, resize
from autonovel.machine.capture import not_captured
from autonovel.machine.device import Mode
from autonovel.machine.transfer import in_parts, send
from autonovel.models.consensus import Consensus
from autonovel.models.feature_store import stream_features
from autonovel.models.net import Net, Scores, from_weights
from autonovel.runs.folder import Run
from autonovel.runs.weights import fitting, numbered

_PIXELS_AT_ONCE = {"cpu": 256 * 32 * 32, "cuda": 4096 * 32 * 32}
"""Of the images that pass through the network together. Few enough for the caches of a CPU, which takes 1,024 images of 32 pixels
a quarter slower than 256; enough that a GPU does not wait for the next ones."""

_FEATURES_AT_ONCE = 1024
"""Images whose features pass through a head together."""


def images_at_once(device: torch.device, side: int) -> int:
    """How many images of this side pass through the network together."""
    return max(1, _PIXELS_AT_ONCE[device.type] // side**2)


@torch.no_grad()
def answer(
    net: Net | Consensus,
    images: Iterable[Tensor],
    mode: Mode,
    cache: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> Scores:
    """What the network says of parts of a data set, uint8 (m, h, w, c), as they are, in float32 on the CPU.

    Features of a pre-trained backbone that nothing has changed are computed once and kept in the cache. ``progress`` is
    called with how many images are done.
    """
    net.eval()
    features, joint, new = [], [], []
    with not_captured(mode.device):
        for z, scores, new_scores in _scores(net, images, mode, cache):
            features.append(z.cpu())
            joint.append(scores.cpu())
            if new_scores is not None:
                new.append(new_scores.cpu())
            if progress is not None:
                progress(sum(map(len, features)))
    whole = torch.cat(features)
    if not torch.isfinite(whole).all():
        raise TrainingError(
            "The features of the network are not finite, so training went wrong although no loss showed it; a lower "
            f"{option('joint.lr')} usually helps, in another folder."
        )
    return Scores(whole, torch.cat(joint), torch.cat(new) if new else None)


def _scores(net: Net | Consensus, images: Iterable[Tensor], mode: Mode, cache: Path | None) -> Iterator[Scores]:
    """What the network says of each part, on the device; of features that are kept, parts of another size."""
    if isinstance(net, Net) and net.identity:
        streamed = stream_features(net.as_backbone(), images, device=mode.device, precision=mode.precision, cache=cache)
        for features in streamed:
            z = send(torch.from_numpy(features), mode.device)
            with torch.no_grad():  # each time: a generator may be left in the middle
                joint, new = net.scores(z)
            yield Scores(z, joint[0], None if new is None else new[0])
        return

    @torch.no_grad()
    def scored(some: Tensor) -> Scores:
        said: Scores = net(send(some, mode.device))
        return said

    for part in images:
        side = part.shape[1]
        net.precision = mode.precision_for(side)
        yield from in_parts(scored, part, images_at_once(mode.device, side))


def answer_together(
    net: Net | Consensus,
    images: Images,
    mode: Mode,
    index: npt.NDArray[np.int64] | None = None,
    cache: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Scores:
    """:func:`answer` for these images of a data set (all when left out), which the processes share among them.

    ``progress`` is called with how many images are done, and how many there are.
    """
    index = np.arange(len(images.labels)) if index is None else index
    world, n, size = mode.world, len(index), _part_size(net, images, mode)
    if not world.several or n < world.size:
        return answer(net, images.chunks(index, size), mode, cache, progress and (lambda done: progress(done, n)))
    rows = index[world.rows(n)]
    part = answer(net, images.chunks(rows, size), mode, cache, progress and (lambda done: progress(done, len(rows))))
    new = None if part.new is None else world.join_rows(part.new, n)
    return Scores(world.join_rows(part.features, n), world.join_rows(part.joint, n), new)


def _part_size(net: Net | Consensus, images: Images, mode: Mode) -> int:
    """Images of a part; where features are computed once and kept, those who compute them divide it further."""
    keeps = isinstance(net, Net) and bool(net.identity)
    return 1024 if keeps else images_at_once(mode.device, images.side)


@torch.no_grad()
def scores_of(net: Net, features: Tensor, mode: Mode) -> Scores:
    """What the heads of a network say of images with these features (n, d), on the CPU."""
    net.eval()
    parts = [net.scores(part.to(mode.device)) for part in features.split(_FEATURES_AT_ONCE)]
    new = [part[0].cpu() for _, part in parts if part is not None]
    return Scores(features, torch.cat([part[0].cpu() for part, _ in parts]), torch.cat(new) if new else None)


@torch.no_grad()
def said_by_heads(net: Net | Consensus, kind: str, features: Tensor, mode: Mode) -> Iterator[Tensor]:
    """Probabilities (n, clusters) that each head of this kind, of each network, gives to images with these features (n, d).

    The features are those of :func:`answer`: of several networks, all of them side by side.
    """
    net.eval()
    nets = [net] if isinstance(net, Net) else [one for one in net.nets if isinstance(one, Net)]
    for one, own in zip(nets, features.split([one.n_features for one in nets], 1), strict=True):
        if kind in one.heads:
            parts = [one.head(kind, part.to(mode.device)).softmax(2) for part in own.split(_FEATURES_AT_ONCE)]
            yield from torch.cat(parts, 1)


@dataclass(frozen=True)
class Trained:
    """A finished run, ready to answer.

    Attributes:
        net: the trained network, or several as one, on the mode's device in evaluation mode.
        mode: how it works on this machine.
        size: side that images are brought to; 0 takes them as they are.
        cache: where features of a pre-trained backbone are kept; None keeps none.
    """

    net: Net | Consensus
    mode: Mode
    size: int
    cache: Path | None = None

    def answer(self, images: ImageSet) -> Scores:
        """What the network says of images of any size, on the CPU."""
        shown = put_on(self.mode.device, images, size=self.size)
        parts = shown.chunks(size=_part_size(self.net, shown, self.mode))
        return answer(self.net, parts, self.mode, self.cache)

    def scores(self, parts: Iterable[npt.NDArray[np.uint8]]) -> Iterator[Scores]:
        """What the network says of images, uint8 parts (m, h, w, c), in their order: parts on the device, not as they came."""
        sized = (resize(as_tensor(part), self.size) for part in parts)
        return _scores(self.net, sized, self.mode, self.cache)


def restore(run: Run, mode: Mode, cache: Path | None = None) -> Trained:
    """The network of a finished run, or its networks as one, from what its weights files say; no method is asked.

    ``cache`` is where features of a pre-trained backbone are kept; None keeps none.
    """
    last = last_stage(run)
    nets = [_read_net(run, numbered(last, number)) for number in range(1, _networks(run, last) + 1)]
    whole: Net | Consensus = nets[0]
    if len(nets) > 1:
        kept = run.read_tensors("consensus.safetensors")[0]
        with fitting(run, "consensus.safetensors"):
            whole = Consensus(nets, kept["numbering"])
    whole = whole.to(mode.device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    return Trained(whole, mode, nets[0].settings.size, cache)


def last_stage(run: Run) -> str:
    """The name of the stage that answers."""
    return str(run.summary.get("answering_stage", "joint"))


def _networks(run: Run, stage: str) -> int:
    number = 1
    while run.has(f"{numbered(stage, number + 1)}.safetensors"):
        number += 1
    return number


def _read_net(run: Run, stage: str) -> Net:
    file = f"{stage}.safetensors"
    state, metadata = run.read_tensors(file)
    with fitting(run, file):
        return from_weights(json.loads(metadata["net"]), state)
