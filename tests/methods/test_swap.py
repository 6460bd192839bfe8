"""The settings of swapped prediction: off they change nothing; on, each is told slowly."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from autonovel.base.chance import seeded
from autonovel.base.errors import InputError
from autonovel.data.loader import Batch
from autonovel.maths.losses import balanced_targets
from autonovel.methods.base import Method, losses_of
from autonovel.models.net import Net, build
from autonovel.settings.augment import Augment
from autonovel.settings.joint import SwapSettings
from autonovel.settings.recipe import KEEP_LAYOUT, Model, Recipe
from tests.tiny import joint_method, known_classes

N_KNOWN, N_NEW, SIZE, EPOCHS = 3, 4, 8, 12
MIXED = torch.tensor([0, 1, 2, 0, 1, -1, -1, -1, -1, -1])
ONLY_KNOWN, ONLY_NEW = MIXED.clamp(min=1), torch.full((10,), -1)
KEY = torch.tensor(4711)

pytestmark = pytest.mark.usefixtures("flags_in_messages")


def prepared(*, n_known: int = N_KNOWN, **settings: float) -> tuple[Net, Method]:
    """A small network in training mode and the method; the network's weights do not depend on the settings."""
    vary = Augment("mixed", jitter=0.3)
    swap = SwapSettings(epochs=EPOCHS, batch=10, lr=0.1, heads=2, hidden=12, projection=8, augment=vary)
    recipe = Recipe(model=Model(width=4, head="cosine"), joint=replace(swap, **settings))
    with seeded(0):
        net = build(recipe.model, channels=3, size=SIZE)
        if n_known:
            known_classes(recipe, n_known).prepare(net)
        method = joint_method(recipe, n_known, N_NEW)
        method.prepare(net)
    return net.train(), method


def batch_of(labels: Tensor, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    images = torch.from_numpy(rng.integers(0, 256, (len(labels), SIZE, SIZE, 3), dtype=np.uint8))
    index = torch.arange(len(labels)) * 7 + 3
    return Batch(images, labels, index, index)


def step(net: Net, method: Method, labels: Tensor = MIXED, seed: int = 0, ramp: float = 0.6) -> dict[str, Tensor]:
    return losses_of(method, net, batch_of(labels, seed), KEY, torch.tensor(ramp))


@torch.no_grad()
def said(
    net: Net, method: Method, kind: str, labels: Tensor = MIXED, seed: int = 0
) -> tuple[list[Tensor], list[Tensor]]:
    """For each view: scores (heads, n, clusters) of this kind of head, and log-probabilities over known and new classes."""
    views = net.through_frozen(method.views(batch_of(labels, seed), KEY))
    features = net.features_of(views)
    scores = net.head_of(kind, features)
    known = net.head_of("known", features)
    joint = [torch.cat([k.expand(len(s), -1, -1), s], 2) for k, s in zip(known, scores, strict=True)]
    return scores, [logits.log_softmax(2) for logits in joint]


def cross_entropy(log_p: list[Tensor], targets: list[Tensor], labels: Tensor = MIXED) -> list[float]:
    """By head, in loops: each of two views against the targets of the other; targets (heads, n, clusters)."""
    found = []
    for head in range(len(log_p[0])):
        rows = []
        for mine, theirs in ((0, 1), (1, 0)):
            for i, label in enumerate(labels.tolist()):
                row = log_p[mine][head, i]
                rows.append(-row[label] if label >= 0 else -(targets[theirs][head, i] * row[N_KNOWN:]).sum())
        found.append(float(sum(rows)) / len(rows) / len(log_p[0]) / 2)
    return found


# ---- off


def test_without_the_settings_the_loss_is_bit_for_bit_what_it_was() -> None:
    net, method = prepared()
    found = step(net, method)
    assert list(found) == ["new", "over"]
    assert not method.state_dict()
    is_labelled = MIXED >= 0
    given = F.one_hot(MIXED.clamp(min=0), N_KNOWN).float() * is_labelled[:, None]
    for kind in ("new", "over"):
        scores, log_p = said(net, method, kind)
        total = torch.zeros(2)
        for v in range(2):
            targets = balanced_targets(scores[v] * net.settings.temperature, ~is_labelled, epsilon=0.05, iterations=3)
            target = torch.cat([given.expand(2, -1, -1), targets], 2)
            total = total - (target * log_p[1 - v]).sum(2).mean(1)
        assert torch.equal(found[kind], total / 2 / 2 / 2)


def test_the_bound_alone_changes_nothing() -> None:
    (net, method), (_, bounded) = prepared(), prepared(divergence_bound=-8.0)
    assert all(torch.equal(a, b) for a, b in zip(step(net, method).values(), step(net, bounded).values(), strict=True))


# ---- on


@pytest.mark.parametrize(("side", "small"), [(32, 18), (16, 9), (8, 8)])
def test_small_views_have_nine_sixteenths_of_the_side_and_eight_pixels_or_more(side: int, small: int) -> None:
    _, method = prepared(small_views=2)
    batch = batch_of(MIXED)._replace(images=torch.zeros(len(MIXED), side, side, 3, dtype=torch.uint8))
    assert [view.shape[-1] for view in method.views(batch, KEY)] == [side, side, small, small]


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_in_a_share_of_the_loss_classes_pick_images(share: float) -> None:
    net, method = prepared(by_class=share)
    found = step(net, method)
    for kind in ("new", "over"):
        scores, by_image = said(net, method, kind)
        targets = [
            balanced_targets(view * net.settings.temperature, MIXED < 0, epsilon=0.05, iterations=3) for view in scores
        ]
        # log-probabilities of a row are scores up to a constant of the image, so only the scores themselves will do here
        features = net.features_of(net.through_frozen(method.views(batch_of(MIXED), KEY)))
        known = net.head_of("known", features)
        picked = []
        for view in range(2):
            both = torch.empty_like(by_image[view])
            for head in range(2):
                joint = torch.cat([known[view], scores[view][head]], 1).tolist()
                for c in range(len(joint[0])):
                    total = sum(math.exp(joint[j][c]) for j in range(len(MIXED)))
                    for i in range(len(MIXED)):
                        by_class = joint[i][c] - math.log(total)
                        both[head, i, c] = (1 - share) * by_image[view][head, i, c] + share * by_class
            picked.append(both)
        np.testing.assert_allclose(found[kind].detach(), cross_entropy(picked, targets), rtol=1e-4)


@pytest.mark.parametrize("bound", [0.0, -2.0])
def test_the_divergence_is_that_of_all_pairs_with_the_ramp(bound: float) -> None:
    net, method = prepared(divergence=0.2, divergence_bound=bound)
    terms = []
    for kind in ("new", "over"):
        for view in said(net, method, kind)[1]:
            for log_p in view:
                a, p = log_p.clamp(min=bound or -np.inf), log_p.exp()
                for i in range(10):
                    for j in range(10):
                        if MIXED[i] >= 0 and MIXED[j] < 0:
                            both_ways = (p[i] * (a[i] - a[j])).sum() + (p[j] * (a[j] - a[i])).sum()
                            terms.append(float(both_ways) / 2)
    found = step(net, method, ramp=0.6)
    assert found["divergence"].item() == pytest.approx(-0.2 * 0.6 * np.mean(terms), rel=1e-4)
    assert step(net, method, ramp=0.0)["divergence"].item() == 0


@pytest.mark.parametrize(("share", "length"), [(0.5, EPOCHS / 2), (1.0, EPOCHS), (0.0, 0)])
def test_the_divergence_grows_over_a_share_of_the_epochs(share: float, length: float) -> None:
    _, method = prepared(divergence=0.2, divergence_ramp=share)
    expected = [math.exp(-5 * (1 - min(1, epoch / length)) ** 2) if length else 1.0 for epoch in range(EPOCHS + 1)]
    assert [method.ramp(epoch) for epoch in range(EPOCHS + 1)] == pytest.approx(expected)


def test_the_divergence_pushes_an_unlabelled_image_off_the_mean_of_the_labelled_ones_however_sure_it_is() -> None:
    """The cross term's gradient in the scores is the prediction less the labelled mean: it does not fade (lab/log.md)."""
    from autonovel.maths.losses import set_divergence

    labelled = torch.tensor([True, True, True, False])
    scores = torch.tensor([[30.0, 0, 0, 0], [0, 30, 0, 0], [0, 0, 30, 0], [0, 0, 0, 30]], requires_grad=True)
    set_divergence(scores.log_softmax(1), labelled, ~labelled).backward()
    assert scores.grad is not None
    np.testing.assert_allclose(scores.grad[3], [-1 / 6, -1 / 6, -1 / 6, 1 / 2], atol=1e-5)
    limited = scores.detach().clone().requires_grad_()
    set_divergence(limited.log_softmax(1), labelled, ~labelled, bound=8.0).backward()
    assert limited.grad is not None
    np.testing.assert_allclose(limited.grad, torch.zeros(4, 4), atol=1e-5)


# ---- groups of the features in place of clusters


class Blobs:
    """Features of three known classes, and of four new ones that have 120, 60, 40 and 30 images."""

    seed = 0

    def __init__(self, n_features: int) -> None:
        sizes = torch.tensor([50, 50, 50, 120, 60, 40, 30])
        self.classes = torch.arange(7).repeat_interleave(sizes)
        self.labels = torch.where(self.classes < N_KNOWN, self.classes, -1)
        noise = torch.Generator().manual_seed(0)
        middles = 3 * torch.randn(7, n_features, generator=noise)
        self.values = (middles[self.classes] + 0.3 * torch.randn(len(self.classes), n_features, generator=noise)).relu()
        self.shares = sizes[N_KNOWN:] / sizes[N_KNOWN:].sum()

    @staticmethod
    def agreed(decide: Callable[[], Any]) -> Any:
        return decide()

    def features(self, index: Tensor) -> Tensor:
        return self.values[index]


@pytest.mark.parametrize("known", [True, False])
def test_clusters_start_again_from_groups_that_are_clearer(known: bool) -> None:
    net, method = prepared(n_known=N_KNOWN if known else 0, regroups=2)
    net.eval()
    look, head = Blobs(net.n_features), net.heads["new"]
    if not known:
        keep = look.classes >= N_KNOWN
        look.classes, look.labels, look.values = look.classes[keep], look.labels[keep], look.values[keep]
    pile, truth = look.values[look.labels < 0], look.classes[look.labels < 0] - N_KNOWN
    before = head.classes.detach().clone()
    for epoch in (0, 1, EPOCHS // 2, EPOCHS - 1):  # the turns are after a third and two thirds of the epochs
        method.start_epoch(net, look, epoch)
    assert torch.equal(head.classes, before)
    method.start_epoch(net, look, EPOCHS // 3)
    norms = [classes.norm(dim=2) for classes in (head.classes, before)]
    torch.testing.assert_close(*norms)
    for own, prior in zip(head(pile).argmax(2), method.get_buffer("prior_new"), strict=True):
        names = torch.stack([own[truth == group].mode().values for group in range(N_NEW)])
        assert sorted(names.tolist()) == list(range(N_NEW))  # every class has a cluster
        assert (names[truth] == own).float().mean() > 0.95
        torch.testing.assert_close(prior[names], look.shares)


def test_clusters_that_are_as_clear_stay() -> None:
    net, method = prepared(regroups=2)
    look, head = Blobs(net.eval().n_features), net.heads["new"]
    asked = []

    def agreed(decide: Callable[[], Any]) -> Any:
        groups, clearer = decide()
        asked.append(clearer.tolist())
        return groups, torch.tensor([False, True])

    look.agreed = agreed  # type: ignore[method-assign]
    before = head.classes.detach().clone()
    method.start_epoch(net, look, EPOCHS // 3)
    assert asked == [[True, True]]
    assert torch.equal(head.classes[0], before[0])
    assert not torch.allclose(head.classes[1], before[1])
    assert method.get_buffer("prior_new")[0].tolist() == [0.25] * 4


@pytest.mark.gpu
def test_clusters_start_again_on_a_gpu() -> None:
    net, method = prepared(regroups=1)
    net, method = net.cuda().eval(), method.cuda()
    look, before = Blobs(net.n_features), net.heads["new"].classes.detach().clone()
    method.start_epoch(net, look, EPOCHS // 2)
    assert not torch.allclose(net.heads["new"].classes, before)
    torch.testing.assert_close(method.get_buffer("prior_new")[0].sort().values.cpu(), look.shares.sort().values)


def test_the_middles_of_groups_are_where_training_will_see_them() -> None:
    net, method = prepared(regroups=1)
    look, head = Blobs(net.eval().n_features), net.heads["new"]
    method.start_epoch(net, look, EPOCHS // 2)
    hidden = head.hidden[0](look.values)
    torch.testing.assert_close(head.hidden[1].running_mean, hidden.mean(0), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(head.hidden[1].running_var, hidden.var(0, unbiased=False), atol=1e-4, rtol=1e-3)


def test_targets_aim_at_the_sizes_of_the_groups() -> None:
    net, method = prepared(regroups=1)
    assert method.state_dict().keys() == {"prior_new"}
    plain = step(net, method)
    assert torch.equal(plain["over"], step(*prepared())["over"])
    method.get_buffer("prior_new").copy_(torch.tensor([0.7, 0.1, 0.1, 0.1]).expand(2, -1))
    moved = step(net, method)
    assert not torch.allclose(moved["new"], plain["new"])
    scores, log_p = said(net, method, "new")
    prior = method.get_buffer("prior_new")
    targets = [balanced_targets(view * 0.1, MIXED < 0, epsilon=0.05, iterations=3, prior=prior) for view in scores]
    np.testing.assert_allclose(moved["new"].detach(), cross_entropy(log_p, targets), rtol=1e-4)


def test_too_few_images_are_left_as_they_are() -> None:
    net, method = prepared(regroups=1)
    look, before = Blobs(net.n_features), net.heads["new"].classes.detach().clone()
    look.labels[(look.labels < 0).nonzero()[2 * N_NEW - 1 :]] = 0
    method.start_epoch(net.eval(), look, EPOCHS // 2)
    assert torch.equal(net.heads["new"].classes, before)


# ---- everything at once


ALL = {"small_views": 2, "by_class": 0.5, "regroups": 1, "divergence": 0.2, "divergence_bound": -6.0}


@pytest.mark.parametrize("labels", [MIXED, ONLY_KNOWN, ONLY_NEW], ids=["mixed", "only known", "only new"])
def test_all_settings_together_are_finite_for_every_mix(labels: Tensor) -> None:
    net, method = prepared(**ALL)
    for seed in range(2):
        losses = step(net, method, labels, seed)
        torch.stack([loss.sum() for loss in losses.values()]).sum().backward()
        assert all(loss.isfinite().all() for loss in losses.values())
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())
    assert all(value.isfinite().all() for value in method.state_dict().values())


def test_without_known_classes_there_is_no_divergence() -> None:
    net, method = prepared(n_known=0, **ALL)
    assert step(net, method, ONLY_NEW).keys() == {"new", "over"}


@pytest.mark.parametrize("backbone", KEEP_LAYOUT)
def test_networks_that_take_images_of_one_size_refuse_small_views(backbone: str) -> None:
    recipe = Recipe(model=Model(backbone=backbone), joint=SwapSettings(small_views=1))
    sentence = f"The {backbone} network takes images of one size.* set --joint.small-views 0, or choose another"
    with pytest.raises(InputError, match=sentence):
        joint_method(recipe, N_KNOWN, N_NEW).check((16, 16, 3))
    from_a_file = joint_method(replace(recipe, model=Model(backbone="joint.safetensors")), N_KNOWN, N_NEW)
    from_a_file.check((16, 16, 3))
    with pytest.raises(InputError, match=sentence):
        from_a_file.prepare(build(Model(backbone=backbone, width=4), channels=3, size=32))
