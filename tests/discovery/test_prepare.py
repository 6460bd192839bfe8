"""Whole runs on small real files: what the folder holds, resuming, honesty, refusals."""

import json
import shutil
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
import torch

import autonovel as an
from autonovel.answers.network import restore
from autonovel.api.run import Run
from autonovel.base.errors import AutonovelWarning, InputError
from autonovel.data.images import ImageSet, Truth
from autonovel.discovery import run_stages as walk
from autonovel.discovery.prepare import prepare
from autonovel.discovery.probes import ProbePlan, estimate_from
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.metrics import cluster_accuracy
from autonovel.settings.estimate import CalibratedSettings
from autonovel.settings.joint import OBJECTIVES
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.settings.stages import PrototypicalSettings
from tests.small_data import write_small_cifar10

pytestmark = pytest.mark.usefixtures("flags_in_messages")


def small_recipe(objective: str = "pairs", *, incremental: bool = False) -> Recipe:
    """A recipe of the real shape that takes a second."""
    base = get_recipe("cifar10")
    head = "cosine" if objective == "swap" else "linear"
    swap = {"heads": 2, "hidden": 16, "projection": 8, "regroups": 2}
    kind = OBJECTIVES[objective]
    own = swap if objective == "swap" else {"ramp": 2, "train_from": "layer4"} if objective == "pairs" else {}
    return replace(
        base,
        model=Model(width=4, head=head, size=16),
        pretrain=replace(base.pretrain, epochs=1, batch=50),
        supervised=replace(base.supervised, epochs=2, batch=50, lr=0.01),
        incremental=incremental,
        joint=kind(epochs=3, batch=50, lr=0.01, schedule="steps", milestones=(), **own),
    )


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> tuple[ImageSet, Truth]:
    folder = tmp_path_factory.mktemp("cifar")
    write_small_cifar10(folder, per_class=20)
    return an.load_benchmark("cifar10", folder, unverified=True)


def discover(cifar: tuple[ImageSet, Truth], out: Path, recipe: Recipe, **options: object) -> Run:
    images, truth = cifar
    # a report takes as long as the rest
    settings = {"n_new": 5, "device": "cpu", "report": False} | options
    return an.discover(images, out=out, recipe=recipe, truth=truth, **settings)


@pytest.fixture(scope="module")
def finished(cifar, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of the small recipe; a test that writes to it takes a copy."""
    return discover(cifar, tmp_path_factory.mktemp("finished") / "run", small_recipe())


@pytest.fixture
def copied(finished: Run, tmp_path: Path) -> Run:
    """A copy of the finished run that a test may change."""
    return Run(shutil.copytree(finished.path, tmp_path / "run"))


@pytest.mark.parametrize("objective", ["pairs", "swap"])
def test_without_a_supervised_stage_joint_training_makes_the_head_of_the_known_classes(
    cifar, tmp_path: Path, objective: str
) -> None:
    recipe = small_recipe(objective, incremental=True)
    run = discover(cifar, tmp_path / "run", replace(recipe, supervised=replace(recipe.supervised, epochs=0)))
    assert not run.has("supervised.safetensors")
    stages = {entry["stage"] for entry in run.metrics}
    assert stages == {"pretrain", "joint"}
    assert run.probabilities.shape[1] == 10
    assert "known" in restore(run, Mode.of("cpu")).net.heads
    if objective == "pairs":
        assert run.metrics[-1]["losses"]["known"] > 0


def slow_accuracy(truth: np.ndarray, found: np.ndarray) -> float:
    """The share of right answers under the best of all matchings of five clusters to five classes."""
    classes = np.unique(truth)
    matchings = permutations(classes.tolist())
    return max(float(np.mean(np.array(matching)[found] == truth)) for matching in matchings)


@pytest.mark.parametrize(
    ("objective", "incremental"), [("pairs", False), ("pairs", True), ("swap", True), ("neighbours", False)]
)
def test_a_run_folder_holds_everything(cifar, tmp_path: Path, objective: str, incremental: bool) -> None:
    run = discover(cifar, tmp_path / "run", small_recipe(objective, incremental=incremental), report=True)
    images, truth = cifar
    hidden = int((~images.is_labelled).sum())
    names = {path.name for path in run.path.iterdir()}
    assert names - ({"merging.json"} if objective == "swap" else set()) == {
        "config.json", "checksums.sha256", "metrics.jsonl", "state",
        "pretrain.safetensors", "supervised.safetensors", "joint.safetensors",
        "predictions.csv", "features.npy", "summary.json", "names.json", "problems.csv", "images.csv", "thumbnails",
        "features-labelled.npy", "probabilities.npy", "unlike.csv", "judge.npz", "seen.npy", "clusters.png", "report.html",
        "map.npy",
    }  # fmt: skip
    assert run.has("merging.json") == ("n_new_by_heads" in run.summary) == (objective == "swap")
    assert len({path.stat().st_mode for path in run.path.iterdir() if path.is_file()}) == 1  # all as readable
    summary = run.summary
    assert summary["n_known"] == 5
    assert summary["n_new"] == 5
    assert summary["images"] == {"labelled": len(images) - hidden, "unlabelled": hidden}
    assert summary["acc_new"] == slow_accuracy(truth.labels[~images.is_labelled], run.machine.group)
    assert set(summary["test"]) == {"separate", "single", "fixed"}
    assert set(summary["seconds"]) == {"pretrain", "supervised", "joint", "total"}
    assert len(run.labels) == len(run.features) == hidden
    assert np.bincount(run.machine.group, minlength=5).tolist() == summary["cluster_sizes"]
    assert [m["stage"] for m in run.metrics] == ["pretrain"] + ["supervised"] * 2 + ["joint"] * 3
    assert json.loads((run.path / "config.json").read_text())["run"]["recipe"]["joint"]["objective"] == objective
    # the saved network gives the saved answers
    mode = Mode.of("cpu")
    answers = restore(run, mode).answer(images.subset(~images.is_labelled))
    assert answers.new is not None
    assert answers.new.argmax(1).tolist() == run.machine.group.tolist()
    assert answers.joint.shape == (hidden, 10)


@pytest.mark.parametrize("objective", ["pairs", "swap", "neighbours"])
def test_permuting_hidden_labels_changes_no_bit_of_the_model(
    cifar, finished: Run, tmp_path: Path, objective: str
) -> None:
    images, truth = cifar
    shuffled = truth.labels.copy()
    hidden = np.flatnonzero(~images.is_labelled)
    shuffled[hidden] = np.random.default_rng(0).permutation(shuffled[hidden])
    recipe = small_recipe(objective)
    one = finished if objective == "pairs" else discover(cifar, tmp_path / "one", recipe)
    other = discover((images, replace(truth, labels=shuffled)), tmp_path / "other", recipe)
    for stage in ("pretrain", "supervised", "joint"):
        a, b = one.read_tensors(f"{stage}.safetensors")[0], other.read_tensors(f"{stage}.safetensors")[0]
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a)
    assert one.labels.tolist() == other.labels.tolist()


def test_a_second_call_does_nothing_and_another_recipe_is_refused(cifar, copied: Run) -> None:
    recipe = small_recipe()
    before = {path: path.stat().st_mtime_ns for path in copied.path.iterdir() if path.is_file()}
    discover(cifar, copied.path, recipe)
    assert before == {path: path.stat().st_mtime_ns for path in copied.path.iterdir() if path.is_file()}
    with pytest.raises(InputError, match=r"another run \(recipe\.joint\.top_k is 5 there, 3 now\)"):
        discover(cifar, copied.path, replace(recipe, joint=replace(recipe.joint, top_k=3)))
    with pytest.raises(InputError, match="seed is 0 there, 7 now"):
        discover(cifar, copied.path, recipe, seed=7)


def test_first_stages_of_another_run_serve_again(cifar, finished: Run, tmp_path: Path) -> None:
    recipe, first = small_recipe(), finished
    second = discover(cifar, tmp_path / "second", recipe, seed=1, start_from=first.path)
    for stage in ("pretrain", "supervised"):
        assert (first.path / f"{stage}.safetensors").read_bytes() == (second.path / f"{stage}.safetensors").read_bytes()
    assert {m["stage"] for m in second.metrics} == {"joint"}
    # other settings of stage 2: only stage 1 is taken
    changed = replace(recipe, supervised=replace(recipe.supervised, lr=0.02))
    third = discover(cifar, tmp_path / "third", changed, start_from=first.path)
    assert {m["stage"] for m in third.metrics} == {"supervised", "joint"}


def test_stages_that_see_labelled_images_alone_serve_for_another_pile(cifar, tmp_path: Path) -> None:
    images, truth = cifar
    recipe = small_recipe()
    episodes = PrototypicalSettings(epochs=1, ways=3, shots=2, queries=2, episodes=2)
    labelled_only = replace(recipe, pretrain=episodes)
    first = discover(cifar, tmp_path / "first", labelled_only)
    fewer = np.concatenate([np.flatnonzero(images.is_labelled), np.flatnonzero(~images.is_labelled)[5:]])
    other = images.subset(fewer), replace(truth, labels=truth.labels[fewer])
    second = discover(other, tmp_path / "second", labelled_only, start_from=first.path)
    assert {m["stage"] for m in second.metrics} == {"joint"}
    assert second.summary["images"]["unlabelled"] == first.summary["images"]["unlabelled"] - 5
    # rotation has seen all images, so a run that has it needs the same ones
    with pytest.raises(InputError, match="has other images;"):
        discover(other, tmp_path / "third", recipe, start_from=first.path)
    assert not (tmp_path / "third").exists()
    later = images.subset(np.arange(5, len(images))), replace(truth, labels=truth.labels[5:])
    with pytest.raises(InputError, match="has other labelled images"):
        discover(later, tmp_path / "fourth", labelled_only, start_from=first.path)


def test_a_cosine_head_of_another_temperature_is_not_taken_over(cifar, tmp_path: Path) -> None:
    recipe = small_recipe("swap")
    first = discover(cifar, tmp_path / "first", recipe)
    same = discover(cifar, tmp_path / "same", recipe, seed=1, start_from=first.path)
    assert {m["stage"] for m in same.metrics} == {"joint"}
    colder = replace(recipe, model=replace(recipe.model, temperature=0.5 * recipe.model.temperature))
    second = discover(cifar, tmp_path / "second", colder, start_from=first.path)
    assert {m["stage"] for m in second.metrics} == {"supervised", "joint"}


def test_a_pile_that_looks_like_one_class_is_not_sorted(cifar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ClassEstimate(1, (1, 1), {"k": [1.0], "silhouette": [0.0]}, "silhouette")
    monkeypatch.setattr(walk, "estimate_from", lambda *_: one)
    with pytest.raises(InputError, match="looks like a single new class.*--n-new 2 or more, and another --out"):
        prepare(cifar[0], small_recipe(), None, 0, Mode.of("cpu")).run(Run(tmp_path / "run"))
    assert Run(tmp_path / "run").has("pretrain.safetensors")  # rotation may take hours, and serves another run
    again = prepare(
        cifar[0], small_recipe(), None, 0, Mode.of("cpu"), remarks={"continued_from": {"run": "before", "taken": ""}}
    )
    with pytest.raises(
        InputError, match="single new class; name it in before and sort further images with autonovel pred"
    ):
        again.run(Run(tmp_path / "next"))


def test_rotation_serves_for_other_labels_of_the_same_images(cifar, finished: Run, tmp_path: Path) -> None:
    images, truth = cifar
    fewer_labels = replace(images, labels=np.where(np.arange(len(images)) % 3 == 0, -1, images.labels))
    second = discover((fewer_labels, truth), tmp_path / "second", small_recipe(), start_from=finished.path)
    assert {m["stage"] for m in second.metrics} == {"supervised", "joint"}


@pytest.mark.parametrize("name", ["cluster", "cluster-neighbours"])
def test_all_ways_without_labels_take_rotation_over_from_a_run_with_labels(
    cifar, finished: Run, tmp_path: Path, name: str
) -> None:
    images, truth = cifar
    small = small_recipe()
    own = get_recipe(name)
    short = {"epochs": 2, "batch": 50, "lr": 0.01}
    recipe = replace(own, model=small.model, pretrain=small.pretrain, joint=replace(own.joint, **short))
    unlabelled = replace(images, labels=np.full(len(images), -1), class_names=())
    run = discover((unlabelled, truth), tmp_path / name, recipe, n_new=10, start_from=finished.path)
    assert {m["stage"] for m in run.metrics} == {"joint"}
    losses = {"cluster": {"pairs", "consistency"}, "cluster-neighbours": {"neighbours", "balance"}}
    assert all(m["losses"].keys() == losses[name] for m in run.metrics)
    assert sum(run.summary["cluster_sizes"]) == len(images)
    assert run.summary["acc_new"] == pytest.approx(cluster_accuracy(truth.labels, run.machine.group))


def test_stages_before_the_estimate_leave_probe_classes_out_only_for_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = ImageSet.from_arrays(rng.integers(0, 255, (120, 16, 16, 3), dtype=np.uint8), np.arange(120) % 12 - 1)
    recipe = small_recipe()
    episodes = PrototypicalSettings(epochs=1, ways=3, shots=2, queries=2, episodes=2)
    recipe = replace(recipe, pretrain=episodes)

    def first_stage(name: str, n_new: int | None, seed: int = 0, start_from: str = "") -> tuple[bytes, bool]:
        """Its weights, and whether they were taken over."""
        run = Run(tmp_path / name)
        start = Run(tmp_path / start_from) if start_from else None
        prepare(data, recipe, n_new, seed, Mode.of("cpu")).run(run, until="pretrain", start_from=start)
        weights = run.read_tensors("pretrain.safetensors")[0].values()
        return b"".join(part.numpy().tobytes() for part in weights), not run.metrics

    given, _ = first_stage("given", 2)
    estimated, _ = first_stage("estimated", None)
    assert given != estimated
    assert first_stage("three", 3, start_from="given") == (given, True)
    assert first_stage("another seed", 3, seed=1, start_from="given") == (given, True)
    assert first_stage("given after", 2, start_from="estimated") == (given, False)
    assert first_stage("estimated after", None, start_from="given") == (estimated, False)
    assert first_stage("estimated again", None, start_from="estimated") == (estimated, True)
    assert not first_stage("others left out", None, seed=1, start_from="estimated")[1]


def test_until_stops_after_a_stage_and_the_rest_follows(cifar, tmp_path: Path) -> None:
    images, truth = cifar
    pipeline = prepare(images, small_recipe(), 5, 0, Mode.of("cpu"))
    run = pipeline.run(Run(tmp_path / "run"), until="supervised")
    assert not run.finished
    with pytest.raises(InputError, match="not finished"):
        _ = run.summary
    assert pipeline.run(run).finished
    assert "acc_new" not in run.summary


class Stops(Reporter):
    """Interrupts the work after the first epoch of a stage."""

    def __init__(self, stage: str) -> None:
        self._stage, self._now = stage, ""

    def start(self, stage: str, epochs: int, done: int) -> None:
        self._now = stage

    def epoch(self, number: int, losses: object, seconds: float) -> None:
        if self._now == self._stage:
            raise KeyboardInterrupt


def test_families_make_episodes_also_where_the_number_is_estimated(cifar, tmp_path: Path) -> None:
    images, truth = cifar
    labels = np.where(truth.labels < 8, truth.labels, -1)
    names = tuple(f"family {c % 4}/{truth.class_names[c]}" for c in range(8))
    data = replace(images, labels=labels, class_names=names)
    recipe = small_recipe()
    episodes = PrototypicalSettings(epochs=1, ways=3, shots=2, queries=2, episodes=2, turns=True, families=1.0)
    recipe = replace(recipe, pretrain=episodes, estimate=replace(recipe.estimate, max_new=5))
    run = prepare(data, recipe, None, 0, Mode.of("cpu")).run(Run(tmp_path / "run"))
    assert run.finished
    assert run.summary["n_new_estimated"] >= 1


@pytest.mark.parametrize(("objective", "networks"), [("pairs", 3), ("swap", 2)])
def test_several_networks_answer_together(cifar, tmp_path: Path, objective: str, networks: int) -> None:
    one = small_recipe(objective, incremental=True)
    recipe = replace(one, model=replace(one.model, networks=networks))
    single, run = discover(cifar, tmp_path / "single", one), discover(cifar, tmp_path / "run", recipe)
    stages = ["pretrain", "supervised", "joint"]
    every = stages + [f"{stage}-{number}" for number in range(2, networks + 1) for stage in stages]
    weights = {stage: run.read_tensors(f"{stage}.safetensors")[0] for stage in every}
    # the first network is the one that a run with a single network trains, the others start elsewhere
    first = single.read_tensors("joint.safetensors")[0]
    assert all(torch.equal(first[name], weights["joint"][name]) for name in first)
    start = next(name for name in first if name.startswith("backbone.") and name.endswith("weight"))
    starts = [weights[stage][start] for stage in every if stage.startswith("pretrain")]
    assert len(starts) == networks
    assert not any(torch.equal(one, other) for one, other in combinations(starts, 2))
    assert set(run.summary["seconds"]) == {*stages, "total"}
    assert set(run.summary["test"]) == {"separate", "single", "fixed"}
    images, _ = cifar
    mode = Mode.of("cpu")
    answers = restore(run, mode).answer(images.subset(~images.is_labelled))
    assert answers.new is not None
    assert answers.new.argmax(1).tolist() == run.machine.group.tolist()
    assert answers.joint.shape == (100, 10)
    torch.testing.assert_close(answers.joint.exp().sum(1), torch.ones(100))  # logarithms of mean probabilities
    assert run.features.shape == (100, networks * single.features.shape[1])
    # stopped within the second network and gone on with: the very same weights and answers
    out = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        discover(cifar, out, recipe, reporter=Stops("joint-2"))
    assert not (out / "joint-2.safetensors").exists()
    resumed = discover(cifar, out, recipe)
    for stage in every:
        state = resumed.read_tensors(f"{stage}.safetensors")[0]
        assert all(torch.equal(state[name], weights[stage][name]) for name in state)
    assert resumed.labels.tolist() == run.labels.tolist()
    assert [m["stage"] for m in resumed.metrics] == [m["stage"] for m in run.metrics]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n_new": 1}, "--n-new is 1; there must be at least 2"),
        (
            {"n_new": 101},
            "100 unlabelled images, fewer than the 101 new classes to find; give --n-new 100 or less, or more",
        ),
        ({"top_k": 500}, "top_k is 500, but features have 32 components"),
        ({"train_from": "layer9"}, "no block 'layer9'"),
        ({"epochs": 0}, None),
        ({"batch": 1}, "--joint.batch is 1"),
        ({"lr": -1.0}, "--joint.lr is -1.0; it must be above 0"),
        ({"lr": float("inf")}, "--joint.lr is inf; it must be above 0"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_training(
    cifar, change: dict[str, object], sentence: str | None
) -> None:
    images, _ = cifar
    change = dict(change)
    n_new = change.pop("n_new", 5)
    recipe = small_recipe()
    recipe = replace(recipe, joint=replace(recipe.joint, **change))
    if sentence is None:  # 0 epochs: decided by the data
        assert prepare(images, recipe, 5).recipe.joint.epochs > 0
        return
    with pytest.raises(InputError, match=sentence):
        prepare(images, recipe, n_new)


@pytest.mark.parametrize(
    ("stage", "change", "sentence"),
    [
        ("estimate", {"max_new": 1}, "--estimate.max-new is 1; it must be at least 2"),
        ("estimate", {"coverage": 2.0}, "--estimate.coverage is 2.0"),
        ("estimate", {"size_range": (0, 0)}, "--estimate.size-range is 0 0"),
        ("estimate", {"size_range": (20, 5)}, "--estimate.size-range is 20 5"),
        ("pretrain", {"ways": 0}, "--pretrain.ways is 0"),
        ("pretrain", {"queries": 0}, "--pretrain.queries is 0"),
        ("supervised", {"lr": float("nan")}, "--supervised.lr is nan"),
    ],
)
def test_settings_of_other_stages_that_cannot_work(cifar, stage: str, change: dict[str, object], sentence: str) -> None:
    recipe = small_recipe()
    recipe = replace(recipe, pretrain=PrototypicalSettings())
    recipe = replace(recipe, **{stage: replace(getattr(recipe, stage), **change)})
    with pytest.raises(InputError, match=sentence):
        prepare(cifar[0], recipe, None)


def test_too_few_images_to_count_classes_in(cifar) -> None:
    images, _ = cifar
    few = images.subset(np.flatnonzero(images.is_labelled | (np.cumsum(~images.is_labelled) <= 2)))
    with pytest.raises(InputError, match="2 unlabelled images, too few to estimate the number"):
        prepare(few, small_recipe(), None)


def test_the_number_of_clusters_is_called_by_its_flag(cifar) -> None:
    images, _ = cifar
    nothing_known = replace(images, labels=np.full(len(images), -1), class_names=())
    with pytest.raises(InputError, match="^--k is 1; there must be at least 2 clusters to tell apart"):
        prepare(nothing_known, small_recipe(), 1)
    with pytest.raises(InputError, match=r"fewer than the 1000 clusters to find; give --k \d+ or less, or more images"):
        prepare(nothing_known, small_recipe(), 1000)


@pytest.mark.parametrize(
    ("n_known", "sentence"),
    [
        (0, "^Without known classes the silhouette alone decides how many clusters there are; give --k if you know it"),
        (5, "^5 known classes are too few to leave .* how many new classes there are; give --n-new if you know it"),
    ],
)
def test_an_estimate_by_the_silhouette_alone_is_told_as_what_it_counts(cifar, n_known: int, sentence: str) -> None:
    images, _ = cifar
    if not n_known:
        images = replace(images, labels=np.full(len(images), -1), class_names=())
    none = np.empty(0, np.int64)
    no_probes = ProbePlan(False, 0, none, none, None)
    points = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    settings = CalibratedSettings(max_new=4)
    with pytest.warns(AutonovelWarning, match=sentence):
        found = estimate_from(points, no_probes, images, settings, 0, Mode.of("cpu"))
    assert str(found).startswith(f"{found.n_new} {'new classes' if n_known else 'clusters'}. The silhouette has")


@pytest.mark.parametrize("known", [True, False])
def test_copies_do_not_count_as_further_images(cifar, known: bool) -> None:
    images, _ = cifar
    pile = np.flatnonzero(~images.is_labelled)
    same = images.images.copy()
    same[pile[3:]] = same[pile[0]]  # three that differ, and copies of the first
    data = replace(images, images=same)
    if not known:
        data = replace(data.subset(pile), class_names=())
    what, flag = ("new classes", "--n-new") if known else ("clusters", "--k")
    sentence = f"^Only 3 of the {len(pile)} unlabelled images differ, fewer than the 4 {what} to find; "
    with pytest.raises(InputError, match=f"{sentence}give {flag} 3 or less, or more images"):
        prepare(data, small_recipe(), 4)
    prepare(data, small_recipe(), 3)
    data.images[~data.is_labelled] = same[pile[0]]
    with pytest.raises(InputError, match=f"^All {len(pile)} unlabelled images are the same; give images that differ"):
        prepare(data, small_recipe(), 2)


def test_no_network_at_all_is_refused(cifar) -> None:
    recipe = small_recipe()
    with pytest.raises(InputError, match="--model.networks is 0; it must be at least 1"):
        prepare(cifar[0], replace(recipe, model=replace(recipe.model, networks=0)), 5)


def test_damaged_and_foreign_folders_are_refused(cifar, copied: Run, tmp_path: Path) -> None:
    recipe = small_recipe()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty and holds no run"):
        discover(cifar, tmp_path / "foreign", recipe)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        discover(cifar, tmp_path / "file", recipe)
    (copied.path / "summary.json").unlink()
    (copied.path / "joint.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"joint\.safetensors cannot be read"):
        discover(cifar, copied.path, recipe)
    with pytest.raises(InputError, match="no run in"):
        an.load(tmp_path / "nowhere")


def test_some_images_of_known_classes_among_the_unlabelled_are_scored_as_what_they_are(cifar, tmp_path: Path) -> None:
    images, truth = cifar
    labels = np.where(np.arange(len(images)) % 4 == 0, -1, images.labels)
    mixed = (replace(images, labels=labels), truth)
    run = discover(mixed, tmp_path / "run", small_recipe())
    actual = truth.labels[labels < 0]
    table = np.array(run.summary["confusion"])
    assert table.sum(1).tolist() == np.bincount(actual).tolist()
    one = run.summary["pile"]["single"]
    assert np.trace(table) / len(actual) == pytest.approx(one["all"])
    assert run.summary["acc_new"] == one["new"]  # of the images that really are new
    for cluster, (name, hits) in run.summary["matched"].items():
        members = actual[run.machine.group == int(cluster)]
        assert hits == (members == truth.class_names.index(name)).sum()


def test_a_truth_for_other_images_is_refused_before_training(cifar, tmp_path: Path) -> None:
    images, truth = cifar
    with pytest.raises(InputError, match="199 labels for 200 images"):
        discover((images, replace(truth, labels=truth.labels[1:])), tmp_path / "run", small_recipe())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("end", ['{"stage": "joi', "\0\0\0\n"])
def test_a_line_of_metrics_that_a_crash_left_incomplete_is_passed_over(cifar, copied: Run, end: str) -> None:
    for name in ("summary.json", "joint.safetensors"):
        (copied.path / name).unlink()
    with (copied.path / "metrics.jsonl").open("a") as file:
        file.write(end)
    again = discover(cifar, copied.path, small_recipe())
    assert [m["stage"] for m in again.metrics] == ["pretrain"] + ["supervised"] * 2 + ["joint"] * 3
    assert len((copied.path / "metrics.jsonl").read_text().splitlines()) == 6


def test_a_run_that_ended_before_its_first_file_goes_on(cifar, tmp_path: Path) -> None:
    (tmp_path / "run" / "state").mkdir(parents=True)
    (tmp_path / "run" / "state" / "lock").touch()
    assert discover(cifar, tmp_path / "run", small_recipe()).finished


def test_a_path_that_no_system_takes_is_refused(cifar) -> None:
    with pytest.raises(InputError, match="cannot be written .*give another folder for the run as --out"):
        discover(cifar, Path("long" * 100), small_recipe())
    with pytest.raises(InputError, match="no run in"):
        an.load("long" * 100)


def test_naming_a_cluster(copied: Run) -> None:
    run, cluster = copied, copied.predictions[0].cluster
    run.name(cluster, "heron")
    again = an.load(run.path)
    assert again.names == {cluster: "heron"}
    assert again.predictions[0].name == "heron"
    assert again.labels.tolist() == run.labels.tolist()
    with pytest.raises(InputError, match="no cluster 5"):
        run.name(5, "stork")


def test_what_a_killed_process_was_writing_is_cleared_away(tmp_path: Path) -> None:
    config = {"run": {"seed": 0}}
    folder = tmp_path / "run"
    (folder / "state").mkdir(parents=True)
    left = [folder / ".config.json.123.part", folder / ".tmpAb12cD", folder / "state" / ".joint.safetensors.9.part"]
    for part in left:
        part.write_bytes(b"cut off")
    with Run(folder).claim(config):  # a run that got no further than this goes on
        assert not any(part.exists() for part in left)
    for part in left:
        part.write_bytes(b"cut off")
    (folder / "notes.part").write_text("not ours")
    with Run(folder).claim(config):
        assert not any(part.exists() for part in left)
    assert (folder / "notes.part").exists()
