"""The Python interface: functions for whole jobs, and an estimator in scikit-learn's form."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autonovel.data.images import ImageSet, Truth
from autonovel.data.reading.load import load_images
from autonovel.data.reading.survey import survey
from autonovel.errors import InputError
from autonovel.machine.cache_folder import user_cache
from autonovel.machine.device import Mode
from autonovel.maths.estimate import ClassEstimate
from autonovel.maths.metrics import cluster_accuracy
from autonovel.pipeline import Pipeline, look_at, read_estimate, restore
from autonovel.predict import Answers
from autonovel.progress import Reporter
from autonovel.recipes import get_recipe, side_for
from autonovel.report.plots import draw_estimate
from autonovel.runs.folder import Run, load
from autonovel.runs.shared import open_run
from autonovel.settings import Recipe

Path_ = str | os.PathLike[str]


def discover(
    labelled: Any,
    unlabelled: Any = None,
    *,
    out: Path_,
    n_new: int | str = "auto",
    recipe: str | Recipe = "folder",
    preset: str = "paper",
    incremental: bool | None = None,
    seed: int = 0,
    device: str = "auto",
    truth: Truth | None = None,
    start_from: Path_ | None = None,
    cache: Path_ | None = None,
    reporter: Reporter | None = None,
) -> Run:
    """Discover the new classes among unlabelled images.

    Args:
        labelled: images of the known classes: a folder with one sub-folder per class, a CSV or Parquet table (path, label),
            (images, labels) arrays, an ImageSet, a Hugging Face or torch dataset. None clusters without any labels.
        unlabelled: the images to sort, in any of these forms without labels. Left out, ``labelled`` is one pile in which
            some images have no label (or -1).
        out: the run folder. A folder of the same run is gone on with.
        n_new: how many new classes there are; 'auto' estimates it.
        recipe: a name (see ``autonovel recipes``) or a :class:`~autonovel.settings.Recipe`.
        preset: paper, reference or fast.
        incremental: train a joint head for known and new classes; as the recipe says when left out.
        seed: everything random depends on it.
        device: cpu, cuda or auto.
        truth: the true classes, for scoring alone.
        start_from: a run whose first stages are used again where their settings and the data are the same.
        cache: folder for decoded images; the user's cache folder when left out.
        reporter: sees the progress.

    Returns:
        The finished run.
    """
    pipeline = _prepare(
        labelled, unlabelled, n_new, recipe, preset, incremental, seed, device, cache, reporter or Reporter()
    )
    world = pipeline.mode.world
    source = None if start_from is None else world.from_first(lambda: load(start_from))
    run = pipeline.run(open_run(out, world), truth=truth, start_from=source)
    if world.first:
        _draw(Run(out))
    return run


def estimate(
    labelled: Any,
    unlabelled: Any = None,
    *,
    out: Path_,
    recipe: str | Recipe = "folder",
    preset: str = "paper",
    seed: int = 0,
    device: str = "auto",
    cache: Path_ | None = None,
    reporter: Reporter | None = None,
) -> ClassEstimate:
    """How many new classes are there? The first stages of :func:`discover`, which can go on from the same folder."""
    pipeline = _prepare(labelled, unlabelled, "auto", recipe, preset, None, seed, device, cache, reporter or Reporter())
    world = pipeline.mode.world
    run = pipeline.run(open_run(out, world), until="estimate")
    if world.first:
        _draw(Run(out))
    return read_estimate(run)[0]


def _draw(run: Run) -> None:
    """The picture of an estimate, where there is one and no picture of it yet."""
    if run.has("estimate.json") and not run.has("estimate.png"):
        draw_estimate(run)


def cluster(images: Any, k: int, *, out: Path_, recipe: str | Recipe = "cluster", **options: Any) -> Run:
    """Sort images into k clusters without any labels: :func:`discover` with nothing known."""
    return discover(None, images, out=out, n_new=k, recipe=recipe, **options)


def _prepare(
    labelled: Any,
    unlabelled: Any,
    n_new: int | str,
    recipe: str | Recipe,
    preset: str,
    incremental: bool | None,
    seed: int,
    device: str,
    cache: Path_ | None,
    reporter: Reporter,
) -> Pipeline:
    if not (n_new == "auto" or (isinstance(n_new, Integral) and not isinstance(n_new, bool))):
        raise InputError(f"n_new is {n_new!r}; give a whole number or 'auto'.")
    settings = get_recipe(recipe, preset) if isinstance(recipe, str) else recipe
    if incremental is not None:
        settings = replace(settings, joint=replace(settings.joint, incremental=incremental))
    mode = Mode.of(device)
    if isinstance(labelled, ImageSet) and unlabelled is None:
        data, problems = labelled, []
    else:
        size, why = side_for(settings, survey(labelled, unlabelled).size, mode.device.type == "cuda")
        if why:
            reporter.message(why)
        with mode.world.one_per_machine_first():
            loaded = load_images(
                labelled,
                unlabelled,
                size=size,
                cache=Path(cache) if cache is not None else user_cache(),
                progress=reporter.counter("reading images"),
            )
        data, problems = loaded.images, loaded.problems
        for note in loaded.notes:
            reporter.message(note)
    return Pipeline(data, settings, None if n_new == "auto" else int(n_new), seed, mode, reporter, problems)


class AutoNovel:
    """The method as a scikit-learn estimator: one pile of images, ``y = -1`` where unlabelled.

    A thin face of the same pipeline as :func:`discover`.

    Args:
        n_new: how many new classes there are among the unlabelled images; 'auto' estimates it.
        recipe: a name or a :class:`~autonovel.settings.Recipe`.
        preset: paper, reference or fast.
        seed: everything random depends on it.
        device: cpu, cuda or auto.
        out: keep the run folder here; a temporary one is used and removed when left out.

    Attributes:
        labels_: (n,) class of every training image as a place in ``classes_``: its own for labelled images, the discovered
            one for the others.
        classes_: known classes as given in y, then 'new 0', 'new 1', ... (as numbers following the largest when y has numbers).
        n_new_: number of new classes.
        summary_: the summary of the run.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = AutoNovel(n_new=5, recipe="digits", preset="fast")
    >>> model.fit(X.reshape(-1, 8, 8) / 16, np.where(y < 5, y, -1)).classes_        # doctest: +SKIP
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """

    def __init__(
        self,
        n_new: int | str = "auto",
        recipe: str | Recipe = "folder",
        preset: str = "paper",
        seed: int = 0,
        device: str = "auto",
        out: Path_ | None = None,
    ) -> None:
        self.n_new = n_new
        self.recipe = recipe
        self.preset = preset
        self.seed = seed
        self.device = device
        self.out = out

    _PARAMETERS = ("n_new", "recipe", "preset", "seed", "device", "out")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments by name."""
        return {name: getattr(self, name) for name in self._PARAMETERS}

    def set_params(self, **params: Any) -> AutoNovel:
        """Change constructor arguments."""
        for name, value in params.items():
            if name not in self._PARAMETERS:
                raise InputError(f"AutoNovel has no parameter '{name}'; choose from {', '.join(self._PARAMETERS)}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        return f"AutoNovel({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"

    def __sklearn_tags__(self) -> Any:
        # asked for by scikit-learn's own tools (check_is_fitted, Pipeline); imported here, as nothing else needs it
        from sklearn.base import BaseEstimator

        return BaseEstimator().__sklearn_tags__()

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> AutoNovel:
        """Learn known and new classes from images X (n, h, w[, c]) and labels y (n,), -1 where unlabelled."""
        data = ImageSet.from_arrays(X, y)
        if not data.n_known:
            raise InputError("y labels no image; at least two classes must be known.")
        with tempfile.TemporaryDirectory() as folder:
            run = discover(
                data,
                out=self.out if self.out is not None else Path(folder) / "run",
                n_new=self.n_new,
                recipe=self.recipe,
                preset=self.preset,
                incremental=True,
                seed=self.seed,
                device=self.device,
            )
            self._mode = Mode.of(self.device)
            self._net, self._recipe = restore(run, self._mode)
            self.summary_ = run.summary
            found = run.labels
        self.n_new_: int = self.summary_["n_new"]
        self.classes_ = _class_labels(np.asarray(y), data.class_names, self.n_new_)
        self.labels_ = data.labels.copy()
        self.labels_[~data.is_labelled] = found
        self._shape = data.images.shape[1:]
        return self

    def predict_proba(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The probability of every class, in the order of ``classes_``, for images that may be old or new."""
        return self._answers(X).joint.numpy()

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """The most probable class of each image, as in ``classes_``."""
        chance = self.predict_proba(X)  # first, because it says so where there is no fit and hence no classes_
        return np.asarray(self.classes_[chance.argmax(1)])

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The features of each image."""
        return self._answers(X).features.numpy()

    def score(self, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """ACC of the predictions against true classes, under the best one-to-one matching."""
        return cluster_accuracy(np.asarray(y), self.predict(X))

    def _answers(self, X: npt.ArrayLike) -> Answers:
        if not hasattr(self, "_net"):
            raise InputError("This AutoNovel has not been fitted; call fit(X, y) first.")
        images = ImageSet.from_arrays(X)
        if images.images.shape[1:] != self._shape:
            raise InputError(f"The images have shape {images.images.shape[1:]}; the model was fitted on {self._shape}.")
        return look_at(self._net, self._recipe, images, self._mode)


def _class_labels(y: npt.NDArray[Any], class_names: tuple[str, ...], n_new: int) -> npt.NDArray[Any]:
    """Known labels as they were given, then labels for the new classes of the same kind."""
    if y.dtype.kind in "iufb":
        known = np.unique(y[y != -1].astype(np.int64))
        return np.concatenate([known, known.max() + 1 + np.arange(n_new)])
    return np.array([*class_names, *(f"new {i}" for i in range(n_new))])
