"""The method as a scikit-learn estimator."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.exceptions import NotFittedError

from autonovel.answers.judge import Judge, Judged, read_judged
from autonovel.answers.network import restore
from autonovel.answers.sampled import scores_of
from autonovel.api.discover import discover
from autonovel.api.features import discover_features
from autonovel.api.large import STAGE
from autonovel.api.run import Path_
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet, says_a_class
from autonovel.data.reading.embedded import alike, read_embedded
from autonovel.machine.device import Mode
from autonovel.machine.progress import make_reporter
from autonovel.maths.metrics import cluster_accuracy
from autonovel.models.net import Scores
from autonovel.runs.folder import Folder
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.settings.resolve import Asked


class AutoNovel(ClusterMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Discovery as scikit-learn does it: one pile of images, ``y = -1`` where unlabelled; as :func:`autonovel.discover`.

    Args:
        n_new: how many new classes there are among the unlabelled images; 'auto' estimates it.
        recipe: a name or a :class:`~autonovel.settings.recipe.Recipe`.
        preset: paper, reference or fast.
        seed: everything random depends on it.
        device: cpu, cuda or auto.
        pile: what the unlabelled images may hold: 'new' classes alone, 'mixed' (known classes too), or 'auto', decided from
            the images, as it is when left out unless a Recipe says otherwise.
        out: keep the run folder here; a temporary one is used and removed when left out.
        verbose: show progress.

    Attributes:
        labels_: (n,) class of every training image, as a value of ``classes_``: its own for labelled images, the discovered
            one for the others.
        classes_: known classes as given in y, then 'new 0', 'new 1', ... (as numbers following the largest when y has numbers).
        n_new_: number of new classes.
        summary_: the summary of the run.
        n_features_in_: features in a row of X, where X are features.

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
        verbose: bool = False,
        pile: str | None = None,
    ) -> None:
        self.n_new = n_new
        self.recipe = recipe
        self.preset = preset
        self.seed = seed
        self.device = device
        self.out = out
        self.verbose = verbose
        self.pile = pile

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> AutoNovel:
        """Learn known and new classes from images X (n, h, w[, c]), or from features X (n, d) that you have computed.

        y (n,) are labels: -1, None or "" where there is none. Without y nothing is known, and X is sorted into clusters.
        """
        given, y = _numbers(X), None if y is None else _labels(y)
        if given.ndim <= 2:
            return self._fit_features(_rows(given), y)
        data = ImageSet.from_arrays(given, y)
        if y is not None and not data.n_known:
            raise InputError("y labels no image; at least two classes must be known.")
        with tempfile.TemporaryDirectory() as folder:
            run = discover(
                data,
                out=self.out if self.out is not None else Path(folder) / "run",
                n_new=self.n_new,
                recipe=_asked(self.recipe, self.preset),
                pile=self.recipe.pile if self.pile is None and isinstance(self.recipe, Recipe) else self.pile,
                seed=self.seed,
                device=self.device,
                verbose=self.verbose,
                report=False,
            )
            self._trained, self._judge = restore(run, Mode.of(self.device)), Judge.read(run)
            self.summary_ = run.summary
            labels, names = run.labels, run.classes
            self._judged: Judged | None = None
        self._shape = data.images.shape[1:]
        return self._keep(data, y, names, labels)

    def _fit_features(self, X: npt.NDArray[Any], y: npt.NDArray[Any] | None) -> AutoNovel:
        given = read_embedded((X, None if y is None else y.tolist()))
        with tempfile.TemporaryDirectory() as folder:
            run = Folder(self.out if self.out is not None else Path(folder) / "run")
            number = None if self.n_new == "auto" else int(self.n_new)
            discover_features(run, given, number, self.pile, self.seed, make_reporter(self.verbose))
            self._judged, self._judge = read_judged(run, STAGE), Judge.read(run)
            self.summary_ = run.summary
            labels, names = run.labels, run.classes
        self._shape = given.features.shape[1:]
        return self._keep(given.names, y, names, labels)

    def _keep(
        self, data: ImageSet, y: npt.NDArray[Any] | None, names: tuple[str, ...], labels: npt.NDArray[np.int64]
    ) -> AutoNovel:
        self.n_new_: int = self.summary_["n_new"]
        self.classes_ = _class_labels(np.full(len(data), -1) if y is None else y, names, self.n_new_)
        index = data.labels.copy()
        index[~data.is_labelled] = labels
        self.labels_ = np.asarray(self.classes_[index])
        return self

    def fit_predict(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None, **kwargs: Any) -> npt.NDArray[Any]:
        """:meth:`fit`, then ``labels_``."""
        return np.asarray(self.fit(X, y).labels_)

    def predict_proba(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The probability of every class, in the order of ``classes_``, for images that may be old or new.

        They are calibrated as those in ``predictions.csv`` of the run are.
        """
        scores = self._scores(X)  # first, because it says so where there is no fit and hence no judge
        return self._judge.probabilities(scores).numpy()

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """The most probable class of each image, as in ``classes_``."""
        scores = self._scores(X)  # first, because it says so where there is no fit and hence no classes_
        return np.asarray(self.classes_[self._judge.answers(scores).place])

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """The features of each image."""
        return self._scores(X).features.numpy()

    def score(self, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """ACC of the predictions against true classes, under the best one-to-one matching.

        Rows without a class are refused: what is left of them says nothing of new classes, so that a search of ``n_new`` by
        it would take any number (``GridSearchCV`` needs ``error_score="raise"``). ``n_new="auto"`` estimates the number,
        and :func:`autonovel.tune` compares settings.
        """
        true, predicted = np.asarray(y), self.predict(X)  # which says so where there is no fit
        if not says_a_class(true).all():
            raise InputError(
                "y has rows without a class; score needs the true class of every image, so give only rows whose class is "
                "known. To choose settings without true classes use autonovel.tune, for the number n_new='auto'."
            )
        return cluster_accuracy(true, predicted)

    @property
    def n_features_in_(self) -> int:
        """Features in a row of X."""
        if getattr(self, "_judged", None) is None:
            raise AttributeError("n_features_in_ is known once features (n, d) have been fitted.")
        return int(self._shape[0])

    def _scores(self, X: npt.ArrayLike) -> Scores:
        if not hasattr(self, "_judge"):
            raise NotFittedError("This AutoNovel has not been fitted; call fit(X, y) first.")
        given = _numbers(X)
        if self._judged is not None:
            further = read_embedded(None, _rows(given))
            if further.features.shape[1:] != self._shape:
                raise InputError(
                    f"X has {further.features.shape[1]} features, but {type(self).__name__} is expecting {self._shape[0]} "
                    "features as input; give rows like those of fit."
                )
            n_known = len(self._judge.centres) - self.n_new_
            return scores_of(self._judged, torch.from_numpy(further.features), n_known)
        images = ImageSet.from_arrays(given)
        if images.images.shape[1:] != self._shape:
            raise InputError(f"The images have shape {images.images.shape[1:]}; the model was fitted on {self._shape}.")
        return self._trained.answer(images)


def _asked(recipe: str | Recipe, preset: str) -> Asked:
    """The recipe, with a head for known and new classes together where its method can be told to have one."""
    asked = Asked.of(get_recipe(recipe, preset) if isinstance(recipe, str) else recipe)
    return asked.with_values({"incremental": True}) if asked.get().learns_apart else asked


def _numbers(X: npt.ArrayLike) -> npt.NDArray[Any]:
    """X as an array of real numbers."""
    if issparse(X):
        raise InputError("X is sparse; give X.toarray().")
    given = np.asarray(X)
    if given.dtype.kind == "c":
        raise InputError("Complex data not supported; give real numbers.")
    return given


def _rows(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """X as rows of features, in the words of scikit-learn where it is none."""
    if X.ndim < 2:
        raise InputError(
            f"Reshape your data: X must have shape (n, d) for features, (n, h, w) or (n, h, w, c) for images, not {X.shape}."
        )
    if not X.shape[1]:
        raise InputError(f"X has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required; give (n, d).")
    return X


def _labels(y: npt.ArrayLike) -> npt.NDArray[Any]:
    """Labels as integers where all are whole numbers, as they are otherwise."""
    given = np.asarray(y)
    if given.dtype.kind == "O":
        return alike(given)
    whole = given.dtype.kind == "f" and bool((np.isfinite(given) & (given == np.round(given))).all())
    return given.astype(np.int64) if whole else given


def _class_labels(y: npt.NDArray[Any], names: tuple[str, ...], n_new: int) -> npt.NDArray[Any]:
    """Known labels as they were given, then labels for the new classes of the same kind: numbers, or these names of all."""
    if y.dtype.kind in "iufb":
        known = np.unique(y[y != -1].astype(np.int64))
        return np.concatenate([known, known.max(initial=-1) + 1 + np.arange(n_new)])
    return np.array(names)
