"""``autonovel discover``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from autonovel.base.errors import InputError, option
from autonovel.cli.common import PilesOrFeatures, load_api_while
from autonovel.cli.flags import Given
from autonovel.discovery.arguments import check_arguments
from autonovel.discovery.trackers import check_tracker

if TYPE_CHECKING:
    from autonovel.settings.resolve import Asked


@dataclass(frozen=True)
class Discover(PilesOrFeatures):
    """Discover the new classes among unlabelled images. With --from, the clusters that you named in a finished run are known
    classes, its other images are sorted again, and LABELLED stands for a folder or table of further images, if there are any."""

    MATTER: ClassVar[tuple[str, ...]] = ("from_", *PilesOrFeatures.MATTER)

    out: Path = Path("runs/discover")
    """The run folder. The same command with the same folder continues where it stopped."""
    n_new: int | Literal["auto", "true"] = "auto"
    """How many new classes to look for; auto estimates the number, true takes that of the benchmark."""
    from_: Path | None = None
    """A finished run to continue from: clusters that were named in it are known classes now. Its recipe is used again."""
    start_from: Path | None = None
    """A finished run on the same images: its first stages are taken over, as far as their settings are the same."""
    keep: tuple[int, ...] = ()
    """Keep features and clusters of the pile after these epochs of the last stage, for the figures of reproduce --run."""
    labels: Path | None = None
    """With --features and a .npy file as LABELLED: a text file with its labels, one a line."""
    log: Literal["tensorboard", "mlflow", "wandb"] | None = None
    """Write the losses for one of these too: on this machine, unless you have logged in to its server or named one."""
    report: bool = True
    """Write clusters.png and report.html at the end."""

    def base(self, given: Given) -> Asked:
        """What was asked for in the run to continue from, unless another one is asked for."""
        if self.from_ is None or self.recipe:
            return super().base(given)
        from autonovel.discovery.next_round import asked_again, refuse_to_fetch
        from autonovel.runs.folder import load

        asked = asked_again(load(self.from_), given.get("preset"))
        if "model.backbone" not in given:
            refuse_to_fetch(asked)
        return asked

    def check(self) -> None:
        """Refuse what cannot work, before an image is read."""
        if self.n_new == "true" and not self.data:
            raise InputError(f"{option('n_new', 'true')} is for benchmarks; give the number of new classes, or auto.")
        n_new = "auto" if self.n_new == "true" else self.n_new
        if (self.features or self.engine) and (self.data or self.from_ is not None):
            flag = option("features" if self.features else "engine")
            what = "goes with features alone" if self.features else "describes images in files"
            raise InputError(f"{flag} {what}; leave {option('data')} and {option('from')} out.")
        if self.labels is not None and not self.features:
            raise InputError(
                f"{option('labels')} goes with {option('features')}; labels of images are folders or a table."
            )
        if self.from_ is not None and (self.data or self.unlabelled is not None):
            raise InputError(
                f"With {option('from')} the known classes come from that run; give one folder or table of further images, "
                "or none."
            )
        check_tracker(self.log, trains=not self.features and self.engine is None)
        check_arguments(out=self.out, device=self.device, seed=self.seed, n_new=n_new)

    def read(self) -> tuple[Any, Any, Any]:
        """Labelled images, unlabelled images and, for a benchmark, the truth; further images alone for the next round."""
        return (None, self.labelled, None) if self.from_ is not None else super().read()

    def read_features(self) -> Any:
        """The features of both."""
        from autonovel.api.features import features_of
        from autonovel.data.reading.embedded import load_array

        known: Any = self.labelled
        if self.labels is not None:
            try:
                known = (load_array(self.labelled), self.labels.read_text(encoding="utf-8").splitlines())
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(
                    f"{self.labels} cannot be read ({error}); give a text file of labels, one a line."
                ) from None
        return features_of(known, self.unlabelled)

    def do(self, asked: Asked) -> None:
        """Discover."""
        api, (labelled, unlabelled, truth) = load_api_while(self.read)
        passed = self.passed_on(asked)
        run = api.discover(
            labelled,
            unlabelled,
            continue_from=self.from_,
            n_new=len(truth.class_names) - labelled.n_known if self.n_new == "true" else self.n_new,
            truth=truth,
            start_from=self.start_from,
            keep=self.keep,
            cache=self.cache,
            log=self.log,
            report=False,
            features=self.features,
            engine=self.engine,
            address=self.address,
            pile=asked.get().pile if self.features or self.engine else None,
            **passed,
        )
        self.say_and_draw(run, passed, report=self.report)
