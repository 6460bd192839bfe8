"""From probabilities to answers: calibration, the warning, what is kept in the run folder."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autonovel.answers.judge import (
    UNLIKE,
    Judge,
    _agreeing_power,
    judge_pile,
)
from autonovel.answers.network import said_by_heads
from autonovel.api.run import Run
from autonovel.base.chance import seeded
from autonovel.base.errors import InputError
from autonovel.data.augment import to_float
from autonovel.machine.device import Mode
from autonovel.maths.known_space import group_means, unit
from autonovel.models.consensus import Consensus
from autonovel.models.net import Scores, build
from autonovel.settings.joint import SwapSettings
from autonovel.settings.recipe import Model, Recipe
from tests.tiny import joint_method

KNOWN, NEW = 3, 2


def judge(power: float = 1.0, doubt: float = 0.0) -> Judge:
    return Judge(torch.eye(4), 0.5, power, doubt)


def slow_calibrated(row: list[float], power: float, doubt: float) -> list[float]:
    raised = [max(p, 1e-12) ** power for p in row]
    total = sum(raised)
    return [(1 - doubt) * r / total + doubt / len(row) for r in raised]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.02, 5), st.floats(0, 0.9), st.integers(2, 6))
def test_calibrated_keeps_the_answer_and_sums_to_one(seed: int, power: float, doubt: float, k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    joint = (4 * torch.randn(7, k, generator=generator)).softmax(1)
    found = judge(power, doubt).calibrated(joint)
    torch.testing.assert_close(found.sum(1), torch.ones(7))
    answer = joint.gather(1, found.argmax(1, keepdim=True))
    torch.testing.assert_close(
        answer, joint.amax(1, keepdim=True), rtol=1e-4, atol=0
    )  # but for ties to the last digits
    expected = torch.tensor([slow_calibrated(row, power, doubt) for row in joint.tolist()])
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_certainty_and_zeros_stay_finite() -> None:
    joint = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    for power in (0.02, 1.0, 5.0):
        found = judge(power).calibrated(joint)
        assert found.isfinite().all()
        assert found[0].argmax() == 0
        assert found[1].tolist() == pytest.approx([0.25] * 4)


def test_the_answer_is_the_calibrated_maximum_and_far_images_are_named() -> None:
    joint = torch.tensor([[0.1, 0.6, 0.2, 0.1], [0.3, 0.2, 0.1, 0.4]])
    features = torch.tensor([[0.0, 9.0, 0.0, 0.0], [-1.0, -1.0, -1.0, -1.0]])
    found = judge(2.0, 0.1).answers(Scores(features, joint.log(), joint[:, 2:].log()))
    assert found.place.tolist() == [1, 3]
    assert found.probability.tolist() == pytest.approx(
        [max(slow_calibrated(row, 2.0, 0.1)) for row in joint.tolist()], abs=1e-5
    )
    assert found.unlike.tolist() == [False, True]


def test_where_images_are_of_new_classes_alone_known_ones_have_no_probability() -> None:
    scores = Scores(torch.eye(4), torch.tensor([[9.0, 0, 1, 2]]).expand(4, 4), torch.tensor([[1.0, 2]]).expand(4, 2))
    made = judge(0.5, 0.1)
    found = made.answers(scores, mixed=False)
    assert found.place.tolist() == [3] * 4
    assert found.joint[0].tolist() == pytest.approx(
        [0, 0, *slow_calibrated(scores.new[0].softmax(0).tolist(), 0.5, 0.1)]
    )
    assert made.answers(scores).place.tolist() == [0] * 4
    # a network that has outputs for new classes alone
    narrow = Scores(scores.features, scores.new, scores.new)
    assert made.answers(narrow).place.tolist() == [3] * 4
    assert made.answers(narrow).joint.shape == (4, 4)


def test_a_judge_is_kept_in_the_run_folder(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(InputError, match="earlier version"):
        Judge.read(run)
    made = Judge(torch.randn(5, 3), -0.25, 0.7, 0.01)
    made.write(run)
    again = Judge.read(run)
    assert torch.equal(again.centres, made.centres)
    assert (again.least, again.power, again.doubt) == (-0.25, 0.7, 0.01)


# ---- a pile


def bunches(seed: int, per_class: int = 200, spread: float = 0.15) -> tuple[Tensor, Tensor]:
    """Points around one direction per class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(KNOWN + NEW).repeat_interleave(per_class)
    middles = torch.eye(KNOWN + NEW, 8)
    return middles[labels] + spread * torch.randn(len(labels), 8, generator=generator), labels


def scores_for(features: Tensor, sharpness: float = 8.0) -> Scores:
    scores = sharpness * unit(features) @ torch.eye(KNOWN + NEW, 8).T
    return Scores(features, scores, scores[:, KNOWN:])


def pile_of(*classes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Labelled points of the known classes with their labels; a pile of these classes with the truth."""
    points, labels = bunches(0)
    others, truth = bunches(1)
    inside = torch.isin(truth, torch.tensor(classes))
    return points[labels < KNOWN], labels[labels < KNOWN], others[inside], truth[inside]


def test_a_pile_of_new_classes_is_given_to_new_classes_alone() -> None:
    known, labels, pile, truth = pile_of(3, 4)
    strange = scores_for(pile)
    strange.joint[:50] = 99 * torch.eye(KNOWN + NEW)[0]  # a network that takes them for a known class
    found, made, facts, *_ = judge_pile(strange, known, labels, mixed=False)
    assert found.place.tolist() == truth.tolist()
    assert (found.joint[:, :KNOWN] == 0).all()
    assert found.joint.sum(1) == pytest.approx(1.0)
    assert found.probability.tolist() == found.joint.max(1).tolist()
    assert facts == {"agreement": 1.0, "pile": "new"}
    expected = group_means(unit(torch.cat([known, pile])), torch.cat([labels, truth]), KNOWN + NEW)
    torch.testing.assert_close(made.centres, expected)


def test_a_mixed_pile_is_given_to_all_classes() -> None:
    known, labels, pile, truth = pile_of(0, 1, 2, 3, 4)
    found, made, facts, *_ = judge_pile(scores_for(pile), known, labels, mixed=True)
    assert facts["pile"] == "mixed"
    assert found.place.tolist() == truth.tolist()
    assert found.joint.sum(1) == pytest.approx(1.0, abs=1e-5)
    # what is kept judges the same images alike
    again = made.answers(scores_for(pile))
    assert again.place.tolist() == found.place.tolist()
    assert again.probability == pytest.approx(found.probability, abs=1e-5)


def test_nothing_known_at_all() -> None:
    _, _, pile, truth = pile_of(3, 4)
    scores = 8 * unit(pile) @ torch.eye(KNOWN + NEW, 8)[KNOWN:].T
    said = Scores(pile, scores, scores)
    found, made, *_ = judge_pile(said, pile[:0], torch.zeros(0, dtype=torch.int64), mixed=False)
    assert found.place.tolist() == (truth - KNOWN).tolist()
    assert made.centres.shape == (NEW, 8)
    assert found.unlike.mean() <= 0.05
    far = -torch.ones(20, 8) + 0.1 * torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    assert made.unlike(far).all()
    assert made.unlike(bunches(2)[0][bunches(2)[1] >= KNOWN]).float().mean() <= 0.05


@pytest.mark.parametrize("mixed", [False, True])
def test_few_images_like_the_seen_ones_and_all_far_ones_are_called_unlike(mixed: bool) -> None:
    known, labels, pile, _ = pile_of(*(range(KNOWN + NEW) if mixed else range(KNOWN, KNOWN + NEW)))
    found, made, *_ = judge_pile(scores_for(pile), known, labels, mixed=mixed)
    assert found.unlike.mean() <= 3 * UNLIKE
    more, _ = bunches(2)
    assert made.unlike(more).float().mean() <= 3 * UNLIKE
    far = -torch.ones(20, 8) + 0.1 * torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    elsewhere = torch.eye(8)[torch.full((20,), 7)] + 0.05 * torch.randn(
        20, 8, generator=torch.Generator().manual_seed(1)
    )
    assert made.unlike(far).all()
    assert made.unlike(elsewhere).all()


def test_the_power_makes_the_mean_probability_what_two_answers_agree_on() -> None:
    _, _, pile, _ = pile_of(3, 4)
    joint = torch.zeros(len(pile), KNOWN + NEW)
    said = scores_for(pile, sharpness=4.0)
    joint[:, KNOWN:] = said.new.softmax(1)
    wrong = torch.arange(len(pile)) % 5 == 0  # a fifth is given to the other class, and as surely
    joint[wrong, KNOWN:] = joint[wrong, KNOWN:].flip(1)
    power, facts = _agreeing_power(joint, pile, KNOWN)
    assert facts["agreement"] == pytest.approx(0.8, abs=0.02)
    sure = Judge(pile[:0], 0.0, power).calibrated(joint[:, KNOWN:]).amax(1).mean().item()
    assert sure == pytest.approx(math.sqrt(facts["agreement"]), abs=0.01)
    lengths = 10 ** torch.linspace(-1, 1, len(pile))[torch.randperm(len(pile), generator=torch.manual_seed(0))]
    assert _agreeing_power(joint, pile * lengths[:, None], KNOWN)[1]["agreement"] == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_with_too_few_images_or_one_class_the_probabilities_stay(n: int) -> None:
    joint = torch.zeros(n, KNOWN + NEW)
    joint[:, KNOWN + torch.arange(n) % NEW] = 1.0
    assert _agreeing_power(joint, torch.randn(n, 4), KNOWN) == (1.0, {})
    one = torch.zeros(30, KNOWN + NEW)
    one[:, KNOWN] = 1.0
    assert _agreeing_power(one, torch.randn(30, 4), KNOWN) == (1.0, {})


@torch.no_grad()
def test_every_head_of_every_network_is_asked() -> None:
    recipe = Recipe(
        model=Model("small", 4, head="cosine"),
        joint=SwapSettings(heads=2, hidden=8, projection=4),
    )
    nets = []
    for seed in range(2):
        with seeded(seed):
            net = build(recipe.model, channels=1, size=8)
            joint_method(recipe, 0, 3).prepare(net)
        nets.append(net.eval())
    images = torch.randint(0, 256, (1500, 8, 8, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    whole = Consensus(nets, torch.arange(3).expand(2, 2, 3))
    mode = Mode.of("cpu")
    found = [*said_by_heads(whole, "over", whole(images).features, mode)]
    expected = torch.cat([net.head("over", net.features(to_float(images))).softmax(2) for net in nets])
    torch.testing.assert_close(torch.stack(found), expected)
    assert [*said_by_heads(nets[0], "known", nets[0](images).features, mode)] == []
