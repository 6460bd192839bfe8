"""The Python interface: scikit-learn's rules, arrays and image sets, lazy imports, refusals."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone, is_clusterer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

import autonovel as an
from autonovel.base.errors import InputError
from autonovel.maths.metrics import cluster_accuracy
from autonovel.settings.joint import OBJECTIVES
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.settings.resolve import Asked
from tests.small_data import class_images

SIZE, N_NEW = 12, 3
PARAMETERS = {"n_new", "recipe", "preset", "seed", "device", "out", "verbose", "pile"}


def tiny_recipe(objective: str = "swap") -> Recipe:
    """A recipe of the real shape that takes a moment."""
    base = get_recipe("digits", "fast")
    small = {"heads": 2, "hidden": 16, "projection": 8} if objective == "swap" else {}
    joint = OBJECTIVES[objective](epochs=2, batch=40, lr=0.1, warmup=0, augment=base.joint.augment, **small)
    return replace(
        base,
        model=Model(backbone="small", width=4, head="cosine" if objective == "swap" else "linear"),
        supervised=replace(base.supervised, epochs=1, batch=40, warmup=0),
        joint=joint,
    )


def pile(labels: tuple[object, ...] = (0, 1, 2), per_class: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images of six classes, the labels of three of them, and the truth."""
    truth = np.random.default_rng(0).permutation(np.repeat(np.arange(6), per_class))
    images = class_images(truth, SIZE, n_classes=6)
    hidden = -1 if isinstance(labels[0], int) else ""
    return images, np.array([labels[t] if t < 3 else hidden for t in truth]), truth


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written into the cache of the person who runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def fitted() -> an.AutoNovel:
    X, y, _ = pile()
    return an.AutoNovel(n_new=N_NEW, recipe=tiny_recipe(), device="cpu").fit(X, y)


# ---- scikit-learn's rules


def test_the_constructor_only_stores() -> None:
    odd = object()
    model = an.AutoNovel(n_new=odd, recipe=odd, preset=odd, seed=odd, device=odd, out=odd, verbose=odd, pile=odd)
    assert vars(model) == dict.fromkeys(PARAMETERS, odd)
    assert all(value is odd for value in model.get_params().values())


def test_parameters_can_be_read_set_and_cloned() -> None:
    model = an.AutoNovel(n_new=7, recipe=tiny_recipe(), seed=3)
    assert set(model.get_params()) == set(model.get_params(deep=False)) == PARAMETERS
    assert model.set_params(seed=9, preset="fast") is model
    assert (model.seed, model.preset, model.n_new) == (9, "fast", 7)
    copy = clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    assert "AutoNovel(n_new=7" in repr(model)
    with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
        model.set_params(colour=1)


class HalfLabelled(an.AutoNovel):
    """The estimator, given scikit-learn's labels for every second row: with a label for each nothing is left to discover."""

    def fit(self, X: object, y: object = None) -> an.AutoNovel:
        if y is not None:
            y = np.array(y)
            y[::2] = "" if y.dtype.kind in "OU" else -1
        return super().fit(X, y)


NOT_AS_SCIKIT_LEARN = {
    "check_dtype_object": "What is no number is refused by an InputError, which is a ValueError and not a TypeError.",
    "check_fit2d_1sample": "One row is refused in words of ours.",
}


@parametrize_with_checks(
    [HalfLabelled(n_new=2, pile="new", device="cpu")],
    expected_failed_checks=lambda _: NOT_AS_SCIKIT_LEARN,
    xfail_strict=True,
)
def test_the_checks_of_scikit_learn_pass(estimator: an.AutoNovel, check: Callable[[an.AutoNovel], None]) -> None:
    check(estimator)


def test_a_search_for_the_number_of_classes_is_refused_and_not_answered() -> None:
    X = np.random.default_rng(0).normal(size=(60, 4)) + 9 * np.eye(5)[np.arange(60) % 5, :4]
    y = np.where(np.arange(60) % 5 < 2, np.arange(60) % 5, -1)
    search = GridSearchCV(an.AutoNovel(), {"n_new": [2, 3]}, cv=2, error_score="raise")
    with pytest.raises(InputError, match="score needs the true class of every image"):
        search.fit(X, y)
    with pytest.raises(InputError, match="There are no unlabelled rows to discover classes in"):
        search.fit(X, np.arange(60) % 5)


@pytest.mark.parametrize("kind", ["float", "object"])
def test_labels_of_rows_are_numbers_whatever_holds_them(kind: str) -> None:
    truth = np.repeat(np.arange(14), 12)
    X = np.random.default_rng(0).normal(size=(14, 16))[truth] * 9 + np.random.default_rng(1).normal(size=(168, 16))
    hidden = None if kind == "object" else -1
    y = np.array([c if c < 12 and i % 2 else hidden for i, c in enumerate(truth.tolist())], dtype=kind)
    model = an.AutoNovel(n_new=2, pile="mixed").fit(X, y)
    assert model.classes_.tolist() == list(range(14))
    assert model.score(X, truth) == (model.predict(X[truth < 12]) == truth[truth < 12]).mean() == 1


def test_fit_returns_itself_and_leaves_parameters_alone() -> None:
    X, y, _ = pile()
    X_before, y_before = X.copy(), y.copy()
    model = an.AutoNovel(n_new=N_NEW, recipe=tiny_recipe(), device="cpu")
    before = model.get_params()
    assert model.fit(X, y) is model
    assert model.get_params() == before
    np.testing.assert_array_equal(X, X_before)
    np.testing.assert_array_equal(y, y_before)
    check_is_fitted(model)
    public = {name for name in vars(model) if not name.startswith("_")} - PARAMETERS
    assert public == {"labels_", "classes_", "n_new_", "summary_"}


def test_it_works_inside_a_scikit_learn_pipeline(fitted: an.AutoNovel) -> None:
    X, y, _ = pile()
    pipeline = make_pipeline(FunctionTransformer(lambda images: images / 255), clone(fitted)).fit(X, y)
    np.testing.assert_array_equal(pipeline.predict(X), fitted.predict(X))
    with pytest.raises(NotFittedError):
        check_is_fitted(clone(fitted))


def test_a_clone_of_a_fitted_model_is_not_fitted(fitted: an.AutoNovel) -> None:
    copy = clone(fitted)
    assert not [name for name in vars(copy) if name.endswith("_")]
    with pytest.raises(NotFittedError, match="not been fitted"):
        copy.predict(pile()[0])


@pytest.mark.parametrize("verb", ["predict", "predict_proba", "transform", "score"])
def test_a_model_that_is_not_fitted_says_so(verb: str) -> None:
    X, y, _ = pile()
    with pytest.raises(NotFittedError, match=r"has not been fitted; call fit\(X, y\) first\."):
        getattr(an.AutoNovel(), verb)(*((X, y) if verb == "score" else (X,)))


def test_answers_have_their_shapes_and_agree_with_each_other(fitted: an.AutoNovel) -> None:
    X, y, truth = pile()
    assert fitted.n_new_ == N_NEW
    assert fitted.classes_.tolist() == [0, 1, 2, 3, 4, 5]
    chance = fitted.predict_proba(X)
    assert chance.shape == (len(X), 6)
    np.testing.assert_allclose(chance.sum(1), 1, atol=1e-5)
    assert chance.min() >= 0
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[chance.argmax(1)])
    features = fitted.transform(X)
    assert features.shape[0] == len(X)
    assert np.isfinite(features).all()
    assert fitted.score(X, truth) == cluster_accuracy(truth, fitted.predict(X))
    some = np.where(np.arange(len(X)) % 3 == 0, -1, truth)
    for unknown in (some, np.full(len(X), -1)):  # what is left says nothing of new classes
        with pytest.raises(InputError, match="score needs the true class of every image"):
            fitted.score(X, unknown)
    assert is_clusterer(fitted)
    assert fitted.labels_.shape == (len(X),)
    known = y != -1
    np.testing.assert_array_equal(fitted.labels_[known], y[known])
    assert set(fitted.labels_[~known]) <= {3, 4, 5}
    sizes = np.bincount(fitted.labels_[~known] - 3, minlength=3)
    assert sizes.tolist() == fitted.summary_["cluster_sizes"]


def test_probabilities_are_those_that_the_run_writes_down(tmp_path: Path) -> None:
    X, y, _ = pile()
    recipe = replace(tiny_recipe(), pile="mixed")  # any class may be the answer, as in predict_proba
    model = an.AutoNovel(n_new=N_NEW, recipe=recipe, device="cpu", out=tmp_path / "run").fit(X, y)
    chance = model.predict_proba(X[y == -1])
    written = an.load(tmp_path / "run")
    np.testing.assert_array_equal(chance.argmax(1), written.labels)
    np.testing.assert_allclose(chance.max(1), [p.probability for p in written.predictions], atol=1e-3)
    np.testing.assert_allclose(chance.sum(1), 1, atol=1e-5)


def test_probabilities_are_not_those_of_the_network_but_the_answers_are(fitted: an.AutoNovel) -> None:
    X, _, _ = pile()
    raw, chance = fitted._trained.answer(an.ImageSet.from_arrays(X)).joint.softmax(1).numpy(), fitted.predict_proba(X)
    np.testing.assert_array_equal(chance.argmax(1), raw.argmax(1))
    assert np.abs(chance - raw).max() > 0.01


def test_answers_do_not_depend_on_the_batch(fitted: an.AutoNovel) -> None:
    X, _, _ = pile()
    whole = fitted.predict_proba(X)
    np.testing.assert_allclose(fitted.predict_proba(X[5:9]), whole[5:9], atol=1e-5)
    np.testing.assert_allclose(fitted.predict_proba(X / 255.0), whole, atol=1e-5)  # floating point in [0, 1]
    assert fitted.predict_proba(X[:0]).shape == (0, 6)


def test_the_same_seed_gives_the_same_model_and_another_one_another(fitted: an.AutoNovel) -> None:
    X, y, _ = pile()
    np.testing.assert_array_equal(clone(fitted).fit(X, y).predict_proba(X), fitted.predict_proba(X))
    other = clone(fitted).set_params(seed=1).fit(X, y)
    assert not np.allclose(other.predict_proba(X), fitted.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("shape", [(4, SIZE + 1, SIZE, 3), (4, SIZE, SIZE, 1), (4, SIZE, SIZE)])
def test_images_of_another_size_are_refused(fitted: an.AutoNovel, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"The images have shape .*; the model was fitted on \(12, 12, 3\)\."):
        fitted.predict(np.zeros(shape, np.uint8))


def test_labels_may_be_text() -> None:
    X, y, _ = pile(("wren", "crow", "heron"))
    model = an.AutoNovel(n_new=2, recipe=tiny_recipe(), device="cpu").fit(X, y)
    assert model.classes_.tolist() == ["crow", "heron", "wren", "new 0", "new 1"]
    np.testing.assert_array_equal(model.labels_[y != ""], y[y != ""])
    assert set(model.predict(X)) <= set(model.classes_)
    assert set(model.labels_[y == ""]) <= {"new 0", "new 1"}


def test_a_known_class_may_be_called_as_a_new_one_would_be() -> None:
    X, y, _ = pile(("new 0", "crow", "heron"))
    model = an.AutoNovel(n_new=2, recipe=tiny_recipe(), device="cpu").fit(X, y)
    assert model.classes_.tolist() == ["crow", "heron", "new 0", "new new 0", "new 1"]
    np.testing.assert_array_equal(model.labels_[y != ""], y[y != ""])


def test_labels_may_have_gaps_and_any_type() -> None:
    X, y, _ = pile((7, 40, 12))
    for kind in (np.int8, np.float64):
        model = an.AutoNovel(n_new=2, recipe=tiny_recipe(), device="cpu").fit(X, y.astype(kind))
        assert model.classes_.tolist() == [7, 12, 40, 41, 42]
        np.testing.assert_array_equal(model.labels_[y != -1], y[y != -1])


def test_the_paper_objective_works_too_and_the_folder_can_be_kept(tmp_path: Path) -> None:
    X, y, _ = pile()
    model = an.AutoNovel(n_new=N_NEW, recipe=tiny_recipe("pairs"), device="cpu", out=tmp_path / "run").fit(X, y)
    assert model.predict_proba(X).shape == (len(X), 6)
    run = an.load(tmp_path / "run")
    assert run.config["run"]["recipe"]["incremental"] is True
    np.testing.assert_array_equal(model.labels_[y == -1], run.labels)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"y": "none"}, "y labels no image"),
        ({"y": "all"}, "no unlabelled images"),
        ({"y": "short"}, "give one label per image"),
        ({"y": "one class"}, "Only one class is known"),
        ({"X": "flat"}, "must have shape"),
        ({"X": "nan"}, "must be finite"),
        ({"n_new": 1}, "n_new is 1; there must be at least 2 classes"),
        ({"recipe": "nonsense"}, "no recipe 'nonsense'"),
        ({"preset": "nonsense", "recipe": "digits"}, "no preset 'nonsense'"),
        ({"device": "tpu"}, "no device 'tpu'"),
    ],
)
def test_input_that_cannot_be_used_is_refused_by_fit(change: dict[str, object], sentence: str) -> None:
    X, y, truth = pile()
    X = {"flat": X.reshape(-1), "nan": np.full(X.shape, np.nan)}.get(change.get("X"), X)
    labels = {"none": np.full(len(y), -1), "all": truth, "short": y[:-1], "one class": np.where(y == 0, 0, -1)}
    y = labels.get(change.get("y"), y)
    parameters = {name: value for name, value in change.items() if name in PARAMETERS}
    model = an.AutoNovel(**{"n_new": N_NEW, "recipe": tiny_recipe(), "device": "cpu"} | parameters)
    with pytest.raises(InputError, match=sentence):
        model.fit(X, y)


# ---- discover and load


def test_two_piles_of_arrays_or_image_sets_are_the_same_run(tmp_path: Path) -> None:
    X, y, _ = pile()
    known = y != -1
    settings = {"n_new": N_NEW, "recipe": tiny_recipe(), "device": "cpu", "report": False}
    arrays = an.discover((X[known], y[known]), X[~known], out=tmp_path / "arrays", **settings)
    sets = an.discover(
        an.ImageSet.from_arrays(X[known], y[known]),
        an.ImageSet.from_arrays(X[~known]),
        out=tmp_path / "sets",
        **settings,
    )
    assert arrays.labels.tolist() == sets.labels.tolist()
    assert len(arrays.labels) == (~known).sum()
    assert (tmp_path / "arrays/joint.safetensors").read_bytes()[-4096:] == (
        tmp_path / "sets/joint.safetensors"
    ).read_bytes()[-4096:]
    ids = [row.image for row in arrays.predictions]
    assert len(set(ids)) == len(ids)
    # one pile: the rows of the answer are the unlabelled images in the order of the input
    one = an.discover((X, y), out=tmp_path / "one", **settings)
    assert len(one.labels) == len(arrays.labels)


def test_discover_takes_the_words_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = pile()
    recipe = tiny_recipe()
    run = an.discover(
        (X, y), out=tmp_path / "run", n_new=N_NEW, recipe=recipe, device="cpu", report=False, verbose=False,
        pile="mixed", method="autonovel", backbone="resnet18", incremental=False, settings={"joint.epochs": 1},
    )  # fmt: skip
    asked = run.config["run"]["recipe"]
    assert (asked["pile"], asked["method"], asked["model"]["backbone"]) == ("mixed", "autonovel", "resnet18")
    assert asked["joint"]["epochs"] == 1
    with pytest.raises(InputError, match="A recipe has no field 'joint.epoch' .did you mean joint.epochs"):
        an.discover((X, y), out=tmp_path / "other", recipe=recipe, settings={"joint.epoch": 1})
    with pytest.raises(InputError, match="pile"):
        an.discover((X, y), out=tmp_path / "other", recipe=recipe, pile="none")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("recipe", "pile", "found"), [("digits", None, "auto"), ("digits", "new", "new"), ("cifar10", None, "new")]
)
def test_known_classes_are_looked_for_in_a_pile_of_ones_own(recipe: str, pile: str | None, found: str) -> None:
    values = {} if pile is None else {"pile": pile}
    assert Asked(recipe, "fast", values).on_own_images().get().pile == found


def test_own_images_are_looked_at_for_known_classes_and_an_estimator_may_be_told(tmp_path: Path) -> None:
    X, y, _ = pile()
    asked = Asked.of(tiny_recipe())
    run = an.discover((X, y), out=tmp_path, n_new=N_NEW, recipe=asked, device="cpu", report=False, verbose=False)
    assert run.config["run"]["recipe"]["pile"] == "auto"
    told = an.AutoNovel(N_NEW, tiny_recipe(), device="cpu", pile="mixed").fit(X, y)
    assert told.summary_["how_sure"]["pile"] == "mixed"


def test_the_folder_may_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    X, y, _ = pile()
    for row, (pixels, label) in enumerate(zip(X, y, strict=True)):
        folder = tmp_path / (f"known/{label}" if label >= 0 else "pile")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.squeeze()).save(folder / f"{row}.png")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/discover").mkdir(parents=True)
    (tmp_path / "runs/discover/mine.txt").touch()
    settings = {"n_new": N_NEW, "recipe": tiny_recipe(), "device": "cpu", "report": False}
    first = an.discover("known", "pile", **settings)
    assert first.path == Path("runs/discover-2")
    assert "the run is kept in runs/discover-2" in capfd.readouterr().err
    again = an.discover("known", "pile", verbose=False, **settings)
    assert again.path == first.path
    other = an.discover("known", "pile", seed=1, verbose=False, **settings)
    assert other.path == Path("runs/discover-3")
    assert capfd.readouterr() == ("", "")


def test_what_is_public_is_listed() -> None:
    assert dir(an) == sorted([*an.__all__, "__version__"])
    assert all(getattr(an, name) is not None for name in dir(an))


def test_a_seed_out_of_an_array_is_the_same_seed(tmp_path: Path) -> None:
    X, y, _ = pile()
    settings = {"n_new": N_NEW, "recipe": tiny_recipe(), "device": "cpu", "report": False}
    plain = an.discover((X, y), out=tmp_path / "plain", seed=1, **settings)
    run = an.discover((X, y), out=tmp_path / "run", seed=np.arange(2)[1], **settings)
    assert run.config == plain.config
    np.testing.assert_array_equal(run.features, plain.features)
    with pytest.raises(InputError, match="seed is 0.5; give a whole number"):
        an.tune((X, y), search={"joint.epochs": [1, 2]}, out=tmp_path / "tune", seed=0.5)


def test_labels_on_the_unlabelled_side_are_not_used(tmp_path: Path) -> None:
    X, y, truth = pile()
    known = y != -1
    settings = {"n_new": N_NEW, "recipe": tiny_recipe(), "device": "cpu", "report": False}
    plain = an.discover((X[known], y[known]), X[~known], out=tmp_path / "plain", **settings)
    told = an.discover((X[known], y[known]), (X[~known], truth[~known]), out=tmp_path / "told", **settings)
    assert told.config["run"]["data"]["class_names"] == plain.config["run"]["data"]["class_names"]
    assert told.labels.tolist() == plain.labels.tolist()
    np.testing.assert_array_equal(told.features, plain.features)


def test_discover_refuses_what_cannot_be_used_and_writes_nothing(tmp_path: Path) -> None:
    X, y, _ = pile()
    known = y != -1
    settings = {"recipe": tiny_recipe(), "device": "cpu", "out": tmp_path / "run"}
    with pytest.raises(InputError, match="nothing to discover"):
        an.discover((X[known], y[known]), n_new=N_NEW, **settings)
    with pytest.raises(InputError, match=r"n_new is 'many'; give a whole number or 'auto'\."):
        an.discover((X, y), n_new="many", **settings)
    with pytest.raises(InputError, match=r"n_new is 2\.5"):
        an.discover((X, y), n_new=2.5, **settings)
    with pytest.raises(InputError, match="n_new is 0"):
        an.discover((X, y), n_new=0, **settings)
    with pytest.raises(InputError):
        an.discover(tmp_path / "nowhere", tmp_path / "neither", n_new=N_NEW, **settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("recipe", ["folder", "digits"])
def test_an_image_set_without_images_or_without_labelled_ones_is_refused(tmp_path: Path, recipe: str) -> None:
    settings = {"recipe": recipe, "preset": "fast", "device": "cpu", "out": tmp_path / "run"}
    with pytest.raises(InputError, match="There are no unlabelled images to discover classes in"):
        an.discover(an.ImageSet.from_arrays(np.zeros((0, 8, 8))), **settings)
    X, _, _ = pile()
    unlabelled = an.ImageSet(X, np.full(len(X), -1), tuple(map(str, range(len(X)))), ("cat", "dog"))
    with pytest.raises(InputError, match="The known class 'cat' has no image"):
        an.discover(unlabelled, n_new=N_NEW, **settings)
    assert not (tmp_path / "run").exists()


def test_loading_a_run_gives_what_discover_gave(tmp_path: Path) -> None:
    X, y, truth = pile()
    data = an.ImageSet.from_arrays(X, y)
    names = tuple(str(c) for c in range(6))
    run = an.discover(
        data, out=tmp_path / "run", n_new=N_NEW, recipe=tiny_recipe(), device="cpu", truth=an.Truth(truth, names)
    )
    again = an.load(str(tmp_path / "run"))
    assert again.summary == run.summary
    assert again.labels.tolist() == run.labels.tolist()
    assert again.features.shape[0] == (y == -1).sum()
    assert run.summary["acc_new"] == cluster_accuracy(truth[y == -1], run.labels)
    assert repr(again) == repr(run)
    with pytest.raises(InputError, match="no run in"):
        an.load(tmp_path)


# ---- imports


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_import_does_not_wait_for_torch() -> None:
    heavy = "{'torch', 'numpy', 'scipy', 'sklearn', 'matplotlib', 'PIL', 'rich'}"
    use = "autonovel.Recipe; autonovel.get_recipe('cifar10')"
    result = python(f"import sys, autonovel; {use}; print({heavy} & set(sys.modules))")
    assert result.stdout.strip() == "set()", result.stderr


def test_the_core_needs_torch_numpy_and_pillow_alone() -> None:
    # everything else is imported where it is used
    code = """
import sys
for name in ("scipy", "sklearn", "matplotlib", "rich", "tyro", "pooch", "pandas", "pyarrow", "datasets"):
    sys.modules[name] = None  # importing it now fails
import autonovel.maths.losses, autonovel.maths.pairs, autonovel.maths.metrics
import autonovel.settings.recipes, autonovel.training.engine, autonovel.models
import autonovel.methods.pairs, autonovel.methods.swap, autonovel.methods.rotation, autonovel.methods.supervised
import autonovel.data.augment, autonovel.data.loader, autonovel.data.images, autonovel.machine.progress
import torch
from autonovel.maths.pairs import rank_statistics
print(rank_statistics(torch.eye(3), 1).sum().item())
"""
    result = python(code)
    assert result.stdout.strip() == "3.0", result.stderr


def test_every_public_name_is_there_and_unknown_ones_are_not() -> None:
    for name in an.__all__:
        assert getattr(an, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = an.nonsense
