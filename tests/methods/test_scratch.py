"""A space learned by contrast and grouped at the end: what is learned, in which order, from which labels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import autonovel as an
from autonovel.answers.network import restore
from autonovel.api.run import Run
from autonovel.base.chance import seeded
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet, Truth
from autonovel.data.loader import Batch
from autonovel.discovery.plan import plan
from autonovel.discovery.prepare import prepare
from autonovel.discovery.probes import plan_probes
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter
from autonovel.maths.contrastive import labelled_nt_xent
from autonovel.methods.base import Task, losses_of
from autonovel.methods.contrast import Contrast
from autonovel.models.net import Net, build
from autonovel.settings.augment import Augment
from autonovel.settings.joint import ContrastSettings, NoJoint, SwapSettings
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.recipes import get_recipe
from autonovel.settings.stages import NoPretraining, SimCLRSettings
from tests.small_data import class_images

pytestmark = pytest.mark.usefixtures("flags_in_messages")

KNOWN, NEW, EACH, SIDE = 3, 3, 20, 16
TRUTH = np.repeat(np.arange(KNOWN + NEW), EACH)
STILL = Augment("none")
KEY, RAMP = torch.tensor(4711), torch.tensor(1.0)


def recipe(epochs: int = 25, **contrast: object) -> Recipe:
    base = get_recipe("folder")
    vary = replace(ContrastSettings().augment, rotate=0.0, solarise=0.0)  # stripes have a direction
    joint = replace(ContrastSettings(epochs=epochs, batch=40, lr=0.05, warmup=1, augment=vary), **contrast)
    return replace(
        base, method="scratch", pile="new", model=Model("small", width=4, head="cosine", size=SIDE), joint=joint
    )


def data(truth: np.ndarray = TRUTH, known: int = KNOWN) -> ImageSet:
    return ImageSet.from_arrays(class_images(truth, SIDE), np.where(truth < known, truth, -1))


def prepared(**contrast: object) -> tuple[Net, Contrast]:
    settings = replace(recipe(**contrast), mirror="no")
    method = Contrast(Task(settings, KNOWN))
    with seeded(0):
        net = build(settings.model, channels=3, size=SIDE)
        method.prepare(net)
    return net.train(), method


def batch(labels: Tensor) -> Batch:
    index = torch.arange(len(labels))
    return Batch(torch.from_numpy(class_images(np.arange(len(labels)) % 6, SIDE)), labels, index, index)


LABELS = torch.tensor([0, 1, 2, 0, -1, -1, -1, -1])


def test_the_losses_are_the_contrast_of_two_views_and_the_known_classes() -> None:
    net, method = prepared(augment=STILL, temperature=0.3, known_share=0.7)
    shown = batch(LABELS)
    losses = losses_of(method, net, shown, KEY, RAMP)
    features = net.features(shown.images.permute(0, 3, 1, 2).float() / 255)  # both views are the image itself
    projected, scores = net.head("pretext", features), net.head("known", features)
    contrast = labelled_nt_xent(projected, projected, LABELS, 0.3, 0.7)
    known = torch.nn.functional.cross_entropy(scores[:4], LABELS[:4])
    torch.testing.assert_close(losses["contrast"], contrast)
    torch.testing.assert_close(losses["known"], known)


@pytest.mark.parametrize("labels", [LABELS, torch.full((8,), -1), torch.zeros(8, dtype=torch.int64)])
def test_any_mix_of_a_batch_gives_finite_losses_and_gradients(labels: Tensor) -> None:
    net, method = prepared()
    losses = losses_of(method, net, batch(labels), KEY, RAMP)
    torch.stack(list(losses.values())).sum().backward()
    assert all(loss.isfinite() for loss in losses.values())
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())
    if (labels < 0).all():
        assert losses["known"] == 0


def test_the_number_is_estimated_in_the_space_that_was_learned() -> None:
    assert [stage.name for stage in plan(recipe(), KNOWN)] == ["joint", "estimate", "features"]
    first = replace(recipe(), pretrain=SimCLRSettings(epochs=1))
    assert [stage.name for stage in plan(first, KNOWN)] == ["pretrain", "joint", "estimate", "features"]
    swap = replace(recipe(), joint=SwapSettings())
    assert [stage.name for stage in plan(swap, KNOWN)] == ["estimate", "supervised", "joint", "features"]


def test_classes_are_found_and_the_restored_network_repeats_the_answer(tmp_path: Path) -> None:
    truth = Truth(TRUTH, tuple("abcdef"))
    images = data()
    run = an.discover(images, out=tmp_path / "run", n_new=NEW, recipe=recipe(), truth=truth, device="cpu", report=False)
    assert run.summary["acc_new"] >= 0.9
    assert {m["stage"] for m in run.metrics} == {"joint"}
    assert all(m["losses"].keys() == {"contrast", "known"} for m in run.metrics)
    said = restore(run, Mode.of("cpu")).answer(images.subset(~images.is_labelled))
    assert said.new is not None
    assert np.mean(said.new.argmax(1).numpy() == run.machine.group) >= 0.95


def test_the_baseline_is_k_means_before_the_stage_that_makes_clusters(tmp_path: Path) -> None:
    base = replace(recipe(), supervised=replace(recipe().supervised, epochs=2, batch=16))
    swap = replace(base, joint=SwapSettings(epochs=2, batch=40, lr=0.05, heads=1, hidden=8, projection=4))
    truth, found = Truth(TRUTH, tuple("abcdef")), {}
    for method, one in (("scratch", swap), ("kmeans", swap), ("contrast", base)):
        asked = replace(one, method="scratch" if method == "contrast" else method)
        run = an.discover(
            data(), out=tmp_path / method, n_new=NEW, recipe=asked, truth=truth, device="cpu", report=False
        )
        found[method] = run.summary["kmeans"]
    assert found["scratch"]["supervised_features"] == found["kmeans"]["supervised_features"]
    assert found["contrast"].keys() == {"joint_features", "pixels"}


def test_probe_classes_lose_their_labels_only_where_the_number_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = np.arange(14 * 6) % 14
    images = data(truth, known=12)
    seen: list[set[int]] = []
    order = Contrast.order
    monkeypatch.setattr(
        Contrast, "order", lambda s, labels, *k: (seen.append(set(labels.tolist())), order(s, labels, *k))[1]
    )

    def stop_after_training(n_new: int | None, name: str) -> set[int]:
        run = prepare(images, recipe(epochs=1), n_new, 0, Mode.of("cpu")).run(Run(tmp_path / name), until="joint")
        assert run.has("joint.safetensors")
        return seen[-1]

    assert stop_after_training(2, "given") == {-1, *range(12)}
    probes = plan_probes(images, recipe().estimate, 0, "labels")
    assert 2 <= probes.n_train < 12
    assert stop_after_training(None, "estimated") == {-1, *range(probes.n_train)}


def test_a_space_is_taken_over_only_if_it_has_seen_the_same_labels(tmp_path: Path) -> None:
    images = data(np.arange(14 * 6) % 14, known=12)

    def train(name: str, n_new: int | None, seed: int = 0, start_from: Run | None = None) -> set[str]:
        pipeline = prepare(images, recipe(epochs=1), n_new, seed, Mode.of("cpu"))
        run = pipeline.run(Run(tmp_path / name), start_from=start_from, until="joint")
        return {m["stage"] for m in run.metrics}

    train("first", 2)
    first = Run(tmp_path / "first")
    assert train("another seed", 2, 1, first) == set()
    assert train("another number", 3, 0, first) == set()
    assert train("estimated", None, 0, first) == {"joint"}


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("autonovel", {}, "contrast learns a space and no clusters; use --method scratch"),
        ("scratch", {"temperature": 0.0}, "--joint.temperature is 0.0; it must be above 0"),
        ("scratch", {"known_share": 1.5}, "--joint.known-share is 1.5; it must lie between 0 and 1"),
    ],
)
def test_what_cannot_work_is_refused_before_training(method: str, change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare(data(), replace(recipe(**change), method=method), NEW, 0, Mode.of("cpu"))


def episodes(**changes: object) -> Recipe:
    """Episodes over the known classes, and nothing after them."""
    base = get_recipe("characters", "fast")
    pretrain = replace(base.pretrain, epochs=4, episodes=8, ways=3, shots=3, queries=3, turns=False, augment=STILL)
    return replace(base, pile="new", model=Model("small", width=4, size=SIDE), pretrain=pretrain, **changes)


def test_without_an_objective_the_space_of_the_first_stages_is_grouped(tmp_path: Path) -> None:
    job = prepare(data(), episodes(), NEW, 0, Mode.of("cpu"))
    run = job.run(Run(tmp_path / "run"), truth=Truth(TRUTH, tuple("abcdef")))
    assert {line["stage"] for line in run.metrics} == {"pretrain"}
    assert run.summary["acc_new"] > 0.8
    assert [stage.name for stage in plan(job.recipe, KNOWN)] == ["pretrain", "estimate", "features"]
    assert set(restore(run, Mode.of("cpu")).net.heads) == {"known", "new"}


def test_a_stage_that_is_left_out_has_no_settings() -> None:
    job = prepare(data(), episodes(joint=NoJoint()), NEW, 0, Mode.of("cpu"))
    assert job.recipe.to_dict()["joint"] == {"objective": "none"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "autonovel"}, "--joint.objective none leaves nothing that finds new classes; add --method scratch"),
        ({"pretrain": NoPretraining()}, "nothing would be learned"),
        ({"pretrain": replace(get_recipe("characters").pretrain, epochs=0)}, "nothing would be learned"),
    ],
)
def test_without_an_objective_something_else_must_learn_and_group(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare(data(), replace(episodes(), **changes), NEW, 0, Mode.of("cpu"))


class Told(Reporter):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def one_sided(n: int = 80) -> np.ndarray:
    """Two known classes that are each other's mirror image, and a pile of both."""
    rng = np.random.default_rng(0)
    images = rng.normal(60, 15, (n, SIDE, SIDE, 3))
    for i in range(n):
        left = (i % 2) * (SIDE // 2)
        images[i, :, left : left + SIDE // 2] += 100
    return images.clip(0, 255).astype(np.uint8)


def test_views_are_mirrored_only_where_known_classes_stay_what_they_are() -> None:
    images = one_sided()
    labels = np.where(np.arange(len(images)) < 60, np.arange(len(images)) % 2, -1)
    told = Told()
    job = prepare(ImageSet.from_arrays(images, labels), recipe(), 2, 0, Mode.of("cpu"), told)
    assert job.recipe.mirror == "no"
    assert any("views are not mirrored" in text and "(--mirror)" in text for text in told.messages)
    # everything else stays, what is given stays, and classes that look the same both ways keep their mirrored views
    assert replace(job.recipe, mirror="auto", supervised=recipe().supervised) == recipe()
    given = prepare(ImageSet.from_arrays(images, labels), replace(recipe(), mirror="yes"), 2, 0, Mode.of("cpu"))
    assert given.recipe.mirror == "yes"
    upright = np.rot90(images, axes=(1, 2)).copy()
    told = Told()
    job = prepare(ImageSet.from_arrays(upright, labels), recipe(), 2, 0, Mode.of("cpu"), told)
    assert job.recipe.mirror == "yes"
    assert any(text.startswith("views are mirrored:") for text in told.messages)


def test_what_a_small_network_does_not_see_is_kept_for_the_eye(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Photographs are learned from at 32 pixels on a CPU; thumbnails and further images keep the usual 64."""
    monkeypatch.setattr("autonovel.api.discover.packaged_network", lambda: "")
    monkeypatch.setattr("autonovel.discovery.prepare.packaged_network", lambda: "")
    labels = np.repeat(np.arange(4), 4)
    for i, (image, label) in enumerate(zip(class_images(labels, 100), labels, strict=True)):
        place = tmp_path / "known" / str(label) if label < 2 else tmp_path / "pile"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{i:03d}.png")
    base = get_recipe("folder")
    short = replace(base, pile="new", joint=replace(base.joint, epochs=1, warmup=0))
    run = an.discover(
        tmp_path / "known", tmp_path / "pile", out=tmp_path / "run", n_new=2, recipe=short, device="cpu",
        cache=tmp_path / "cache", report=False,
    )  # fmt: skip
    assert run.config["run"]["data"]["shape"] == [64, 64, 3]
    assert run.config["run"]["recipe"]["model"]["size"] == 32
    again = run.predict(tmp_path / "pile", device="cpu", cache=tmp_path / "cache")
    assert [p.name for p in again] == [p.name for p in run.predictions]
