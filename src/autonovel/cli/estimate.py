"""``autonovel estimate``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autonovel.base.errors import InputError, option
from autonovel.base.screen import say
from autonovel.cli.common import PilesOrFeatures, load_api_while
from autonovel.discovery.arguments import check_arguments

if TYPE_CHECKING:
    from autonovel.settings.resolve import Asked


@dataclass(frozen=True)
class Estimate(PilesOrFeatures):
    """Estimate how many new classes there are among unlabelled images."""

    out: Path = Path("runs/estimate")
    """The run folder; discover can continue from it."""

    def check(self) -> None:
        """Refuse what cannot work, before an image is read."""
        if (self.features or self.engine) and self.data:
            raise InputError(f"A benchmark is read as it is; leave {option('features')} and {option('engine')} out.")
        check_arguments(out=self.out, device=self.device, seed=self.seed)

    def do(self, asked: Asked) -> None:
        """Estimate."""
        api, (labelled, unlabelled, truth) = load_api_while(self.read)
        how = {"features": self.features, "engine": self.engine, "address": self.address}
        estimate = api.estimate(labelled, unlabelled, cache=self.cache, **how, **self.passed_on(asked))
        if self.json:
            say(json.dumps(asdict(estimate)))
            return
        say(estimate)
        if truth is not None:
            say(f"The truth is {len(truth.class_names) - labelled.n_known}.")
        say(f"The curve: {self.out / 'estimate.png'} (the numbers: estimate.json)")
