"""One step of every method: finite on any mix of images, each term on its own, each loss told slowly."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from autonovel.base.chance import seeded
from autonovel.base.errors import InputError
from autonovel.data.augment import make_view, quarter_turns, to_float
from autonovel.data.loader import Batch
from autonovel.maths.losses import balanced_targets
from autonovel.maths.pairs import rank_statistics
from autonovel.methods.base import Method, losses_of
from autonovel.models.backbones import Backbone
from autonovel.models.net import Net, build
from autonovel.settings.augment import Augment
from autonovel.settings.joint import PairsSettings, SwapSettings
from autonovel.settings.recipe import Model, Recipe
from autonovel.settings.stages import PrototypicalSettings, RotationSettings, Supervised
from tests.tiny import joint_method, known_classes, pretraining

N_KNOWN, N_NEW, SIZE = 3, 4, 16
METHODS = ["rotation", "supervised", "pairs", "incremental", "pairs without known", "swap", "swap without known"]
MIXED = torch.tensor([0, 1, 2, 0, 1, -1, -1, -1, -1, -1])
ONLY_KNOWN = MIXED.clamp(min=1)
ONLY_NEW = torch.full((10,), -1)


def recipe_for(name: str, **joint: object) -> Recipe:
    swaps, vary = name.startswith("swap"), Augment("mixed", jitter=0.3, solarise=0.2)
    swap = SwapSettings(batch=10, heads=2, hidden=12, projection=8, small_views=1, augment=vary)
    return Recipe(
        incremental=name == "incremental",
        model=Model(width=4, head="cosine" if swaps else "linear"),
        pretrain=RotationSettings(batch=10),
        supervised=Supervised(batch=10),
        joint=replace(swap if swaps else PairsSettings(batch=10), **joint),
    )


def prepared(name: str, **joint: object) -> tuple[Net, Method]:
    """A small network with its heads, in training mode, and the method."""
    recipe = recipe_for(name, **joint)
    n_known = 0 if name.endswith("without known") else N_KNOWN
    with seeded(0):
        net = build(recipe.model, channels=3, size=SIZE)
        known = known_classes(recipe, N_KNOWN)
        method: Method
        if name == "rotation":
            method = pretraining(recipe)
        elif name == "supervised":
            method = known
        else:
            if n_known:
                known.prepare(net)
            method = joint_method(recipe, n_known, N_NEW)
        method.prepare(net)
    return net.train(), method


def batch_of(labels: Tensor, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    images = torch.from_numpy(rng.integers(0, 256, (len(labels), SIZE, SIZE, 3), dtype=np.uint8))
    index = torch.arange(len(labels)) * 7 + 3
    return Batch(images, labels, index, index)


def progress(ramp: float = 0.6) -> tuple[Tensor, Tensor]:
    """Key and ramp."""
    return torch.tensor(4711), torch.tensor(ramp)


def total(losses: dict[str, Tensor]) -> Tensor:
    return torch.stack([loss.sum() for loss in losses.values()]).sum()


def views(net: Net, method: Method, batch: Batch, count: int = 2) -> list[Tensor]:
    """The features that the step will see: the same views through the same network, one after the other."""
    augment = method.settings.augment
    key = progress()[0]
    return [net.features(make_view(batch.images, key, batch.index, augment, view=v, mirror=True)) for v in range(count)]


# ---- any mix of images


@pytest.mark.parametrize("labels", [MIXED, ONLY_KNOWN, ONLY_NEW], ids=["mixed", "only known", "only new"])
@pytest.mark.parametrize("name", METHODS)
def test_losses_and_gradients_are_finite_for_every_mix(name: str, labels: Tensor) -> None:
    net, method = prepared(name)
    if name.endswith("without known"):
        labels = ONLY_NEW
    losses = losses_of(method, net, batch_of(labels), *progress())
    total(losses).backward()
    assert all(loss.isfinite().all() for loss in losses.values()), losses
    for parameter, p in net.named_parameters():
        assert p.grad is None or p.grad.isfinite().all(), parameter


@pytest.mark.parametrize("name", ["pairs", "incremental", "swap"])
def test_images_all_alike_give_finite_losses(name: str) -> None:
    net, method = prepared(name)
    batch = batch_of(MIXED)._replace(images=torch.zeros(10, SIZE, SIZE, 3, dtype=torch.uint8))
    losses = losses_of(method, net, batch, *progress())
    total(losses).backward()
    assert total(losses).isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_terms_without_images_are_zero() -> None:
    net, method = prepared("incremental")
    only_known = losses_of(method, net, batch_of(ONLY_KNOWN), *progress())
    assert only_known["pairs"].item() == only_known["incremental"].item() == 0
    assert only_known["known"].item() > 0
    only_new = losses_of(method, net, batch_of(ONLY_NEW), *progress())
    assert only_new["known"].item() == 0
    assert only_new["pairs"].item() > 0
    net, method = prepared("supervised")
    assert losses_of(method, net, batch_of(ONLY_NEW), *progress())["known"].item() == 0


@pytest.mark.parametrize("name", METHODS)
def test_a_step_is_a_function_of_its_arguments(name: str) -> None:
    labels = ONLY_NEW if name.endswith("without known") else MIXED
    net, method = prepared(name)
    first = losses_of(method, net, batch_of(labels), *progress())
    again = losses_of(method, net, batch_of(labels), *progress())
    assert all(torch.equal(first[key], again[key]) for key in first)
    other = losses_of(method, net, batch_of(labels), torch.tensor(4712), torch.tensor(0.6))
    assert any(not torch.equal(first[key], other[key]) for key in first)


# ---- switches


WEIGHTS = {"known_weight": "known", "pair_weight": "pairs", "consistency": "consistency"}


@pytest.mark.parametrize(("field", "term"), WEIGHTS.items())
def test_a_weight_of_zero_drops_its_term_and_leaves_the_others(field: str, term: str) -> None:
    net, method = prepared("incremental")
    whole = losses_of(method, net, batch_of(MIXED), *progress())
    assert whole.keys() == {"known", "pairs", "consistency", "incremental"}
    net, method = prepared("incremental", **{field: 0.0})
    rest = losses_of(method, net, batch_of(MIXED), *progress())
    assert rest.keys() == whole.keys() - {term}
    assert all(torch.equal(rest[key], whole[key]) for key in rest)


@pytest.mark.parametrize(("field", "term"), WEIGHTS.items())
def test_a_weight_multiplies_its_term(field: str, term: str) -> None:
    terms = []
    for weight in (1.0, 3.0):
        net, method = prepared("incremental", **{field: weight})
        terms.append(losses_of(method, net, batch_of(MIXED), *progress())[term].item())
    assert terms[1] == pytest.approx(3 * terms[0], rel=1e-5)


def test_the_ramp_reaches_consistency_and_incremental_loss_alone() -> None:
    net, method = prepared("incremental")
    half, full = (losses_of(method, net, batch_of(MIXED), *progress(ramp)) for ramp in (0.5, 1.0))
    for term in ("consistency", "incremental"):
        assert full[term].item() == pytest.approx(2 * half[term].item(), rel=1e-5)
    for term in ("known", "pairs"):
        assert torch.equal(full[term], half[term])
    assert method.ramp(0) == pytest.approx(math.exp(-5))
    assert method.ramp(method.settings.ramp) == 1


# ---- the pairs objective, told slowly


def softmax(row: list[float]) -> list[float]:
    parts = [math.exp(value - max(row)) for value in row]
    return [part / sum(parts) for part in parts]


def slow_pairs(method: Method, net: Net, batch: Batch, ramp: float) -> dict[str, float]:
    """Equations 2 to 6 of the paper, image by image, from the features of the two views."""
    s = method.settings
    with torch.no_grad():
        features = views(net, method, batch)
        new_scores = [net.heads["new"][0](z).tolist() for z in features]
        known_scores = [net.heads["known"](z).tolist() for z in features]
    labels = batch.labels.tolist()
    first = features[0].tolist()
    n = len(labels)
    tops = [set(sorted(range(len(z)), key=lambda place, z=z: (-z[place], place))[: s.top_k]) for z in first]
    new = [[softmax(row) for row in scores] for scores in new_scores]
    known = [[softmax(row) for row in scores] for scores in known_scores]
    pairs = []
    for i in range(n):
        for j in range(n):
            if labels[i] < 0 and labels[j] < 0:
                score = sum(a * b for a, b in zip(new[0][i], new[1][j], strict=True))
                pairs.append(-math.log((score if tops[i] == tops[j] else 1 - score) + 1e-7))
    agreement = 0.0
    for both in (new, known):
        squares = [(a - b) ** 2 for x, y in zip(*both, strict=True) for a, b in zip(x, y, strict=True)]
        agreement += sum(squares) / len(squares)
    right = [-math.log(known[0][i][labels[i]]) for i in range(n) if labels[i] >= 0]
    guessed = []
    for i in range(n):
        if labels[i] < 0 and net.extended:
            best = new_scores[0][i].index(max(new_scores[0][i]))
            guessed.append(-math.log(known[0][i][N_KNOWN + best]))
    expected = {
        "pairs": sum(pairs) / len(pairs),
        "known": sum(right) / len(right),
        "consistency": ramp * s.consistency * agreement,
    }
    if net.extended:
        expected["incremental"] = ramp * 0.05 * sum(guessed) / len(guessed)
    return expected


@pytest.mark.parametrize("name", ["pairs", "incremental"])
@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_the_pairs_step_agrees_with_the_slow_account(name: str, top_k: int) -> None:
    net, method = prepared(name, top_k=top_k)
    batch = batch_of(MIXED.repeat_interleave(3))
    # the last image twice, so that some pairs are alike whatever the network thinks
    batch.images[-1] = batch.images[-2]
    batch.index[-1] = batch.index[-2]
    expected = slow_pairs(method, net, batch, 0.6)
    found = {key: loss.item() for key, loss in losses_of(method, net, batch, *progress(0.6)).items()}
    assert found.keys() == expected.keys()
    for key in expected:
        assert found[key] == pytest.approx(expected[key], rel=1e-4), key
    # the account can tell whether pair labels come from the first view or from the second
    labels = [rank_statistics(z, top_k) for z in views(net, method, batch)]
    assert not torch.equal(labels[0], labels[1]) or top_k == 5


def test_pair_labels_pass_no_gradient_and_known_images_no_pair_loss() -> None:
    net, method = prepared("pairs", consistency=0.0, known_weight=0.0)
    batch = batch_of(MIXED)
    before = losses_of(method, net, batch, *progress())["pairs"].item()
    # other pixels for the known images change batch-norm statistics, so compare in evaluation mode
    net.eval()
    one = losses_of(method, net, batch, *progress())["pairs"].item()
    batch.images[:5] = 255 - batch.images[:5]
    assert losses_of(method, net, batch, *progress())["pairs"].item() == pytest.approx(one, rel=1e-6)
    assert before != pytest.approx(one, rel=1e-6)


def test_labels_of_known_images_reach_the_known_loss_alone() -> None:
    net, method = prepared("incremental")
    batch = batch_of(MIXED)
    other = batch._replace(labels=torch.where(MIXED >= 0, (MIXED + 1) % N_KNOWN, -1))
    one, two = (losses_of(method, net, b, *progress()) for b in (batch, other))
    assert one["known"].item() != two["known"].item()
    assert all(torch.equal(one[key], two[key]) for key in one if key != "known")


# ---- swapped prediction, told slowly


def test_the_swap_step_agrees_with_the_slow_account() -> None:
    net, method = prepared("swap")
    s, batch = method.settings, batch_of(MIXED)
    swap = s
    is_labelled = MIXED >= 0
    with torch.no_grad():
        features = views(net, method, batch, 2)
        part = replace(s.augment, kind="crop", area=(0.3, 0.8))
        small = make_view(batch.images, progress()[0], batch.index, part, view=2, mirror=True, size=9)
        features.append(net.features(small))
        expected = {}
        for kind in ("new", "over"):
            by_head = []
            for head in range(swap.heads):
                scores = [net.heads[kind](z)[head] for z in features]
                joint = [torch.cat([net.heads["known"](z), q], 1) for z, q in zip(features, scores, strict=True)]
                log_p = [logits.log_softmax(1) for logits in joint]
                terms = []
                for v in range(2):
                    target = balanced_targets(
                        scores[v][None] * net.settings.temperature,
                        ~is_labelled,
                        epsilon=0.05,
                        iterations=3,
                    )[0]
                    for w in range(len(features)):
                        if w == v:
                            continue
                        rows = []
                        for i, label in enumerate(MIXED.tolist()):
                            if label >= 0:
                                rows.append(-log_p[w][i, label].item())
                            else:
                                rows.append(-(target[i] * log_p[w][i, N_KNOWN:]).sum().item())
                        terms.append(sum(rows) / len(rows))
                by_head.append(sum(terms) / len(terms) / swap.heads / 2)
            expected[kind] = by_head
    found = losses_of(method, net, batch, *progress())
    assert found.keys() == expected.keys()
    for kind in expected:
        np.testing.assert_allclose(found[kind].detach().numpy(), expected[kind], rtol=1e-4)


def test_swap_without_over_clustering() -> None:
    net, method = prepared("swap", heads=3, over_factor=0, small_views=0)
    assert "over" not in net.heads
    losses = losses_of(method, net, batch_of(MIXED), *progress())
    assert {name: loss.shape for name, loss in losses.items()} == {"new": (3,)}


# ---- the first two stages


def test_rotation_agrees_with_the_slow_account() -> None:
    net, method = prepared("rotation")
    batch = batch_of(MIXED)
    with torch.no_grad():
        view = make_view(batch.images, progress()[0], batch.index, method.settings.augment, mirror=True)
        turned = torch.stack([torch.rot90(view[i], r, (1, 2)) for r in range(4) for i in range(10)])
        assert torch.equal(turned, quarter_turns(view))
        scores = net.heads["pretext"](net.features(turned)).tolist()
    expected = sum(-math.log(softmax(row)[place // 10]) for place, row in enumerate(scores)) / 40
    assert losses_of(method, net, batch, *progress())["rotation"].item() == pytest.approx(expected, rel=1e-4)


def test_rotation_needs_no_labels() -> None:
    net, method = prepared("rotation")
    one, two = (
        losses_of(method, net, batch_of(MIXED)._replace(labels=labels), *progress()) for labels in (MIXED, ONLY_NEW)
    )
    assert torch.equal(one["rotation"], two["rotation"])


def test_supervised_agrees_with_the_slow_account() -> None:
    net, method = prepared("supervised")
    batch = batch_of(MIXED)
    with torch.no_grad():
        scores = net.heads["known"](views(net, method, batch, 1)[0]).tolist()
    known = [(row, label) for row, label in zip(scores, MIXED.tolist(), strict=True) if label >= 0]
    expected = sum(-math.log(softmax(row)[label]) for row, label in known) / len(known)
    assert losses_of(method, net, batch, *progress())["known"].item() == pytest.approx(expected, rel=1e-4)


class Pixels(nn.Sequential):
    """A backbone whose features are the pixels themselves."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten())


def test_prototypical_agrees_with_the_slow_account() -> None:
    settings = PrototypicalSettings(ways=3, shots=2, queries=3, augment=Augment("none"))
    method = pretraining(Recipe(mirror="no", pretrain=settings))
    net = Net(Backbone(Pixels(), 3 * SIZE * SIZE), 3)
    labels = torch.tensor([0] * 5 + [1] * 5 + [2] * 5)
    batch = batch_of(labels)
    points = to_float(batch.images).flatten(1).tolist()
    means = []
    for c in range(3):
        shots = points[5 * c : 5 * c + 2]
        means.append([sum(values) / 2 for values in zip(*shots, strict=True)])
    terms = []
    for c in range(3):
        for point in points[5 * c + 2 : 5 * c + 5]:
            away = [-sum((a - b) ** 2 for a, b in zip(point, mean, strict=True)) for mean in means]
            terms.append(-math.log(softmax(away)[c]))
    found = losses_of(method, net, batch, *progress())["prototypical"].item()
    assert found == pytest.approx(sum(terms) / len(terms), rel=1e-4)


def test_episodes_hold_distinct_images_class_by_class() -> None:
    settings = PrototypicalSettings(ways=3, shots=2, queries=2, episodes=7)
    labels = torch.tensor([0] * 6 + [1] * 4 + [2] * 3 + [3] * 9 + [-1] * 5)  # class 2 has too few images
    order = pretraining(Recipe(mirror="no", pretrain=settings)).order(labels, 0, "pretrain", 0)
    assert order.shape == (7, 12)
    for row in order:
        classes = labels[row].view(3, 4)
        assert bool((classes == classes[:, :1]).all())
        assert sorted(classes[:, 0].tolist()) == [0, 1, 3]
        assert len(set(row.tolist())) == 12
    assert torch.equal(pretraining(Recipe(mirror="no", pretrain=settings)).order(labels, 0, "pretrain", 0), order)
    assert not torch.equal(pretraining(Recipe(mirror="no", pretrain=settings)).order(labels, 0, "pretrain", 1), order)


def test_with_turns_all_images_of_a_class_are_turned_alike() -> None:
    settings = PrototypicalSettings(ways=4, shots=2, queries=1, turns=True, augment=Augment("none"))
    method = pretraining(Recipe(mirror="no", pretrain=settings))
    labels = torch.tensor([7, 7, 7, 2, 2, 2, 30, 30, 30, 5, 5, 5])
    batch = batch_of(labels)
    plain = to_float(batch.images)
    found: dict[int, set[int]] = {}
    for step in range(40):
        [view] = method.views(batch, torch.tensor(step))
        for image in range(0, 12, 3):
            fitting = [
                r
                for r in range(4)
                if all(torch.equal(view[i], torch.rot90(plain[i], r, (1, 2))) for i in range(image, image + 3))
            ]
            assert len(fitting) == 1
            found.setdefault(image, set()).add(fitting[0])
    assert all(turns == {0, 1, 2, 3} for turns in found.values())
    # a part of the episode, as one of several processes has it, is turned as in the whole
    part = batch._replace(images=batch.images[4:9], index=batch.index[4:9])
    assert torch.equal(method.views(part, torch.tensor(3))[0], method.views(batch, torch.tensor(3))[0][4:9])


def test_episodes_take_one_family_after_the_other() -> None:
    settings = PrototypicalSettings(ways=4, shots=1, queries=1, episodes=60, families=1.0)
    families = [0, 1, 0, 1, 2, 0, 2, 0]  # of classes 0 to 7, of which 4 has too few images
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 6, 7, 7, 7])
    members = {0: {0, 2, 5, 7}, 1: {1, 3}, 2: {6}}

    def episodes(share: float) -> list[list[int]]:
        """The classes of each episode, in their order."""
        method = pretraining(Recipe(pretrain=replace(settings, families=share)), families)
        return labels[method.order(labels, 0)[:, ::2]].tolist()

    for episode in episodes(1.0):
        assert len(set(episode)) == 4
        in_turn = [families[c] for c in episode]
        *before, last = dict.fromkeys(in_turn)
        assert in_turn == sorted(in_turn, key=[*before, last].index)  # nobody comes back to a family
        for family in before:  # only the last one may be cut off
            assert members[family] <= set(episode)
    assert len({frozenset(episode) for episode in episodes(1.0)}) > 3
    single = [sum(set(episode) == members[0] for episode in episodes(share)) for share in (0.0, 0.5, 1.0)]
    assert 0 < single[1] < single[2]
    assert single[0] < single[2]


def test_classes_without_families_make_the_same_episodes_whatever_the_share() -> None:
    settings = PrototypicalSettings(ways=3, shots=1, queries=1, episodes=5)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    orders = [pretraining(Recipe(pretrain=replace(settings, families=share))).order(labels, 0) for share in (0.0, 1.0)]
    assert torch.equal(*orders)
    known = pretraining(Recipe(mirror="no", pretrain=settings), [0, 0, 1, 1]).order(labels, 0)
    assert torch.equal(known, orders[0])


def test_classes_of_a_family_are_turned_alike() -> None:
    settings = PrototypicalSettings(ways=3, shots=1, queries=1, turns=True, families=1.0, augment=Augment("none"))
    method = pretraining(Recipe(mirror="no", pretrain=settings), [0, 1, 0])
    batch = batch_of(torch.tensor([0, 0, 1, 1, 2, 2]))
    plain = to_float(batch.images)
    differ = 0
    for step in range(20):
        [view] = method.views(batch, torch.tensor(step))
        turns = [
            [r for r in range(4) if torch.equal(v, torch.rot90(p, r, (1, 2)))] for v, p in zip(view, plain, strict=True)
        ]
        assert turns[0] == turns[1] == turns[4] == turns[5]
        assert turns[2] == turns[3]
        differ += turns[0] != turns[2]
    assert 5 < differ < 20


def test_turned_images_must_be_square() -> None:
    method = pretraining(Recipe(pretrain=PrototypicalSettings(turns=True)))
    with pytest.raises(InputError, match="square"):
        method.check((8, 9, 3))
    pretraining(Recipe(pretrain=PrototypicalSettings())).check((8, 9, 3))


@pytest.mark.parametrize("labels", [[-1, -1, -1], [0, 0, 0, 0], [0, 0, 0, 0, 1, 1, -1]])
def test_too_few_known_images_for_episodes_are_refused(labels: list[int]) -> None:
    method = pretraining(Recipe(pretrain=PrototypicalSettings(shots=2, queries=2)))
    with pytest.raises(InputError, match=r"two or more known classes with at least 4 images"):
        method.order(torch.tensor(labels), 0)


# ---- orders


def test_orders_of_the_stages() -> None:
    labels = torch.tensor([0, -1, 1, -1, 2, -1, 0, -1])
    assert sorted(prepared("rotation")[1].order(labels, 0).flatten().tolist()) == list(range(8))
    assert sorted(prepared("supervised")[1].order(labels, 0).flatten().tolist()) == [0, 2, 4, 6]
    for name in ("pairs", "swap"):
        assert sorted(prepared(name)[1].order(labels, 0).flatten().tolist()) == list(range(8))
        fixed = prepared(name, batch=3, known_per_batch=1)[1].order(labels, 0)
        assert (labels[fixed] >= 0).sum(1).tolist() == [1] * 4


def test_orders_see_known_from_unknown_alone() -> None:
    labels = torch.tensor([0, -1, 1, -1, 2, -1, 0, -1])
    for name in ("rotation", "supervised", "pairs", "swap"):
        method = prepared(name)[1]
        renamed = torch.where(labels >= 0, 2 - labels, -1)
        assert torch.equal(method.order(labels, 0, "x"), method.order(renamed, 0, "x"))
