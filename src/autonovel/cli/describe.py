"""``autonovel describe``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autonovel.base.errors import option
from autonovel.base.screen import say
from autonovel.cli.common import Verb
from autonovel.cli.flags import Positional


@dataclass(frozen=True)
class Describe(Verb):
    """Describe images by a pre-trained network, shard by shard: features for discover, estimate and predict."""

    images: Positional[str]
    """A folder, a table, tar shards (WebDataset), Parquet files with images, or their address, such as
    s3://bucket/shards-{0000..0999}.tar."""
    out: Path = Path("features")
    """The folder for the features: a Parquet file for each shard. The same command goes on where it stopped."""
    engine: Literal["local", "ray"] = "local"
    """local has a worker for each core or GPU of this machine; ray works on a cluster."""
    address: str | None = None
    """The address of a Ray cluster; left out, Ray starts on this machine."""
    labelled: bool = False
    """IMAGES is a folder with one sub-folder for each class."""
    backbone: str = "auto"
    """A pre-trained network (autonovel backbones lists them); auto takes the one that is installed."""
    size: int = 0
    """Side in pixels that the network sees; 0 suits the images."""
    device: str = "auto"
    """Where to compute: cpu, cuda or auto."""

    def idle(self, path: str) -> str:
        """An address is that of a cluster."""
        return f"it belongs to {option('engine', 'ray')}" if path == "address" and self.engine != "ray" else ""

    def do(self) -> None:
        """Describe them."""
        from autonovel.api.describe import describe
        from autonovel.machine.progress import make_reporter

        described = describe(
            self.images,
            out=self.out,
            engine=self.engine,
            address=self.address,
            labelled=self.labelled,
            backbone=self.backbone,
            size=self.size,
            device=self.device,
            reporter=make_reporter(),
        )
        say(
            f"{described.n_rows:,} images in {len(described.shards):,} shards, {described.width:,} features each: {self.out}"
        )
