"""One call from features to answers: new and mixed piles, counted numbers, stored models, refused input."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from autonovel.answers.census import Census
from autonovel.answers.judge import Answers, Judged, read_judged, write_judged
from autonovel.answers.space import _less_sure, add_heads, answer_from_features, fill_heads
from autonovel.api.run import Run
from autonovel.base.errors import InputError
from autonovel.maths.grouping import Grouping, how_apart
from autonovel.maths.known_space import smooth, unit
from autonovel.maths.metrics import cluster_accuracy
from autonovel.maths.mixed import OldImages
from autonovel.models.backbones import Backbone
from autonovel.models.net import Net, Scores


def features(n_known: int, n_new: int, hidden: int = 0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Positive features as networks give them, and the classes of the pile."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(n_known + n_new, 40, generator=generator)
    labels = torch.arange(n_known).repeat_interleave(50)
    truth = torch.cat(
        [torch.arange(n_known).repeat_interleave(hidden), torch.arange(n_known, n_known + n_new).repeat_interleave(50)]
    )
    draw = [(centres[c] + torch.randn(len(c), 40, generator=generator)).relu() for c in (labels, truth)]
    return draw[0], labels, draw[1], truth


class Found(NamedTuple):
    census: Census
    judged: Judged
    labels: Tensor
    probabilities: Tensor
    unlike: Tensor

    @property
    def notes(self) -> tuple[str, ...]:
        return self.judged.notes

    @property
    def how_sure(self) -> dict[str, Any]:
        return self.judged.facts

    @property
    def n_new(self) -> int:
        return len(self.judged.judge.centres) - self.census.n_known

    @property
    def is_old(self) -> Tensor:
        return self.census.is_old


def answer(*data: object, **options: object) -> Found:
    """What is found, as tensors."""
    census, judged = answer_from_features(*data, **options)  # type: ignore[arg-type]
    place, joint, unlike = (torch.from_numpy(getattr(judged.answers, name)) for name in ("place", "joint", "unlike"))
    return Found(census, judged, place, joint, unlike)


def further(found: Found, features: Tensor) -> Answers:
    """The answers for further images, as a network gives them whose heads were filled."""
    net = Net(Backbone(nn.Sequential(), features.shape[1]), 3)
    add_heads(net, found.census.n_known, found.n_new)
    fill_heads(net, found.judged)
    joint, new = net.scores(features)
    assert new is not None
    return found.judged.judge.answers(Scores(features, joint[0], new[0]), mixed=found.how_sure["pile"] == "mixed")


def test_a_pile_of_new_classes() -> None:
    labelled, labels, pile, truth = features(5, 4)
    found = answer(labelled, labels, pile)
    assert found.n_new == 4
    assert not found.is_old.any()
    assert found.probabilities.shape == (200, 9)
    assert (found.labels >= 5).all()
    assert cluster_accuracy(truth.numpy(), found.labels.numpy()) > 0.97
    assert torch.equal(found.probabilities.argmax(1), found.labels)
    torch.testing.assert_close(found.probabilities.sum(1), torch.ones(200))
    assert found.how_sure["new"]["calibration_error"] < 0.1
    assert found.how_sure["known"]["calibration_error"] < 0.1
    assert any("only new classes are expected" in note for note in found.notes)
    count = found.census.estimate
    assert count is not None
    assert "5 known classes cannot show how often they are wrong" in count.note
    assert count.interval is not None
    assert count.interval[0] <= 4 <= count.interval[1]


@pytest.mark.parametrize("kind", ["auto", "mixed"])
def test_a_mixed_pile(kind: str) -> None:
    labelled, labels, pile, truth = features(5, 4, hidden=20)
    found = answer(labelled, labels, pile, 4, pile_kind=kind)  # type: ignore[arg-type]
    old = truth < 5
    assert found.is_old[old].float().mean() > 0.9
    assert (found.labels[old] == truth[old]).float().mean() > 0.9
    assert cluster_accuracy(truth[~old].numpy(), found.labels[~old].numpy()) > 0.93
    assert torch.equal(found.probabilities.argmax(1), found.labels)
    assert torch.equal(found.labels < 5, found.is_old)
    torch.testing.assert_close(found.probabilities.sum(1), torch.ones(len(pile)))


@pytest.mark.parametrize(("sure_old", "sure_new"), [(1.0, 1.0), (0.9, 0.7), (0.5, 0.5), (0.0, 1.0)])
def test_that_an_image_may_be_of_the_other_kind_makes_it_less_sure_and_no_other_answer(
    sure_old: float, sure_new: float
) -> None:
    generator, n_known, n_new = torch.Generator().manual_seed(0), 3, 2
    is_old = torch.rand(50, generator=generator) < 0.5
    rows = torch.rand(50, n_known + n_new, generator=generator) + 0.01
    rows[is_old, n_known:] = 0.0
    rows[~is_old, :n_known] = 0.0
    rows = rows / rows.sum(1, keepdim=True)
    old = OldImages(torch.zeros(50), 0.5, None, True, torch.zeros(50), sure_old, sure_new)
    found = _less_sure(rows, is_old, old, n_known)
    assert torch.equal(found.argmax(1), rows.argmax(1)) or sure_old == 0.0
    for row, before, was_old in zip(found.tolist(), rows.tolist(), is_old.tolist(), strict=True):
        sure, others = (sure_old, range(n_known, 5)) if was_old else (sure_new, range(n_known))
        best = max(p * sure for p in before)
        expected = [
            min((1 - sure) / len(others), 0.999 * best) if c in others else p * sure for c, p in enumerate(before)
        ]
        assert row == pytest.approx([p / sum(expected) for p in expected] if best else row, abs=1e-5)


def test_a_pile_that_is_said_to_be_new_is_taken_for_new() -> None:
    labelled, labels, pile, _ = features(4, 3, hidden=20)
    found = answer(labelled, labels, pile, 3, pile_kind="new")
    assert not found.is_old.any()
    assert (found.labels >= 4).all()


@pytest.mark.parametrize("hidden", [0, 20])
def test_further_images_are_answered_as_the_pile_is_also_after_storing(tmp_path: Path, hidden: int) -> None:
    labelled, labels, pile, truth = features(5, 4, hidden)
    found = answer(labelled, labels, pile, 4)
    write_judged(Run(tmp_path), "features", found.judged)
    kept = read_judged(Run(tmp_path), "features")
    assert kept is not None
    for mine, theirs in zip(vars(kept.answers).values(), vars(found.judged.answers).values(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (kept.facts, kept.notes) == (found.how_sure, found.notes)
    more = further(found._replace(judged=kept), pile)
    assert (torch.from_numpy(more.place) == found.labels).float().mean() > 0.95
    assert more.probability.mean() == pytest.approx(found.probabilities.amax(1).mean().item(), abs=0.02)
    assert more.unlike.tolist() == found.unlike.tolist()
    assert found.unlike.float().mean() < 0.05
    assert read_judged(Run(tmp_path), "supervised") is None
    stranger = torch.rand(30, 40, generator=torch.Generator().manual_seed(9))
    assert further(found, stranger).unlike.mean() > 0.5


def test_a_wrong_number_is_noted() -> None:
    labelled, labels, pile, _ = features(5, 4)
    notes = " ".join(answer(labelled, labels, pile, 8).notes)
    assert "look like 4 new classes rather than 8" in notes
    assert "rather than" not in " ".join(answer(labelled, labels, pile, 8, check_number=False).notes)


def test_same_seed_same_answer() -> None:
    data = features(4, 3)[:3]
    first, second = (answer(*data, 3, check_number=False, seed=5) for _ in range(2))
    assert torch.equal(first.probabilities, second.probabilities)


def test_one_known_class_is_enough_to_answer() -> None:
    labelled, labels, pile, truth = features(1, 3)
    found = answer(labelled, labels, pile, 3)
    assert found.how_sure["new"] is None
    assert any(note.startswith("With 1 known class the probabilities only say") for note in found.notes)
    assert cluster_accuracy(truth.numpy(), found.labels.numpy()) > 0.9


@pytest.mark.parametrize("n_new", [3, None])
def test_nothing_need_be_known(n_new: int | None) -> None:
    labelled, labels, pile, truth = features(1, 3)
    found = answer(labelled[:0], labels[:0], pile, n_new)
    assert found.n_new == 3
    assert found.census.n_known == 0
    assert any(note.startswith("Without known classes the probabilities only say") for note in found.notes)
    assert cluster_accuracy(truth.numpy(), found.labels.numpy()) > 0.9
    # further images are answered as the pile is
    assert further(found, pile).place.tolist() == found.labels.tolist()
    assert found.unlike.float().mean() < 0.05
    stranger = torch.randn(40, pile.shape[1], generator=torch.Generator().manual_seed(0))
    assert further(found, stranger).unlike.mean() > 0.5


def test_without_known_classes_groups_that_two_ways_agree_on_are_surer() -> None:
    labelled, labels, pile, _ = features(1, 3)
    blurred = pile + 3 * torch.randn(pile.shape, generator=torch.Generator().manual_seed(1))
    clear, blurry = (answer(labelled[:0], labels[:0], points, 3) for points in (pile, blurred))
    assert blurry.how_sure["agreement"] < clear.how_sure["agreement"]
    assert blurry.probabilities.amax(1).mean().item() == pytest.approx(blurry.how_sure["agreement"], abs=0.01)
    assert clear.probabilities.amax(1).mean() > 0.98


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.tensor([0, 2] * 50)}, "without a gap"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "one for each labelled image"),
        ({"pile": torch.rand(20, 7)}, "must be the same"),
        ({"pile": torch.full((20, 40), float("nan"))}, "NaN"),
        ({"pile_kind": "old"}, "choose new, mixed or auto"),
        ({"n_new": 999}, "too few for 999"),
    ],
)
def test_what_cannot_be_used_is_refused(change: dict[str, object], message: str) -> None:
    labelled, labels, pile, _ = features(2, 2)
    given: dict[str, object] = {"labelled": labelled, "labels": labels, "pile": pile} | change
    with pytest.raises(InputError, match=message):
        answer(**given)  # type: ignore[arg-type]


def known_vary_where(new_differ: bool, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Known classes that vary widely in one direction, and a pile of two classes.

    Either these differ in that very direction, and by chance in another one, or they vary in it too and differ elsewhere.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(n: int, spread: float = 0.3) -> Tensor:
        return spread * torch.randn(n, 13, generator=generator)

    labels, truth = torch.arange(5).repeat_interleave(40), torch.arange(2).repeat_interleave(60)
    known, pile = noise(len(labels)), noise(len(truth))
    known[:, 1:6] += 3 * torch.eye(5)[labels]
    known[:, 0] += noise(len(labels), 4.0)[:, 0]
    side, chance = 2.0 * truth - 1, 2.0 * (torch.arange(len(truth)) % 2) - 1
    if new_differ:
        pile[:, 0] += 2.5 * side
        pile[:, 6] += chance
    else:
        pile[:, 0] += noise(len(truth), 4.0)[:, 0]
        pile[:, 6] += 2 * side
    far = torch.full((1, 1), 20.0)  # features of length 1 then lie on a nearly flat patch
    known, pile = (torch.cat([part, far.expand(len(part), 1)], 1) for part in (known, pile))
    return known, labels, pile, truth


@pytest.mark.parametrize(("misled", "method"), [(True, "plain"), (False, "learned")])
def test_where_known_classes_were_trained_on_the_groups_that_lie_further_apart_are_taken(
    misled: bool, method: str
) -> None:
    labelled, labels, pile, truth = known_vary_where(misled)
    found = answer(labelled, labels, pile, 2, pile_kind="new", check_number=False, trained=True)
    assert found.how_sure["grouping"] == method
    assert cluster_accuracy(truth.numpy(), found.labels.numpy()) > 0.95
    scores = found.how_sure["silhouettes"]
    assert max(scores, key=scores.__getitem__) == method
    assert any("separates the groups better" in note for note in found.notes) == misled
    assert (found.how_sure["agreement"] is None) == misled  # k-means would agree with itself
    # features that nobody trained on these labels go by what known classes show
    frozen = answer(labelled, labels, pile, 2, pile_kind="new", check_number=False)
    assert (frozen.how_sure["grouping"], frozen.how_sure["silhouettes"]) == ("learned", {})
    assert (cluster_accuracy(truth.numpy(), frozen.labels.numpy()) > 0.95) != misled


@pytest.mark.parametrize("misled", [True, False])
def test_with_two_known_classes_the_note_says_what_the_probabilities_rest_on(misled: bool) -> None:
    labelled, labels, pile, _ = known_vary_where(misled, seed=3)
    few = labels < 2
    found = answer(labelled[few], labels[few], pile, 2, pile_kind="new", check_number=False, trained=True)
    assert found.how_sure["grouping"] == ("plain" if misled else "learned")
    assert (found.how_sure["agreement"] is None) == misled
    (note,) = [note for note in found.notes if "they could not be checked" in note]
    assert ("only say how far two ways of grouping agree" in note) != misled
    assert ("are the votes of repeated runs as they are" in note) == misled


def test_silhouettes_of_two_answers_are_averaged_over_the_spaces_of_both() -> None:
    generator = torch.Generator().manual_seed(1)
    pile = torch.randn(30, 4, generator=generator)
    index = torch.arange(30)

    def grouping(groups: Tensor) -> Grouping:
        matrix = torch.randn(4, 4, generator=generator)
        return Grouping(groups, torch.nn.functional.one_hot(groups).float(), matrix, 1.0)

    def slow(points: Tensor, groups: Tensor) -> float:
        values = []
        for i in range(len(points)):
            distance = (points - points[i]).norm(dim=1)
            own = groups == groups[i]
            if own.sum() == 1:
                values.append(0.0)
                continue
            inside = distance[own].sum() / (own.sum() - 1)
            outside = min(distance[groups == c].mean() for c in groups.unique() if c != groups[i])
            values.append(((outside - inside) / max(inside, outside)).item())
        return sum(values) / len(values)

    learned, plain = grouping(index % 3), grouping(index // 10)
    spaces = [smooth(unit(pile @ one.matrix)) for one in (learned, plain)]
    wanted = {
        name: sum(slow(points, one.labels) for points in spaces) / 2
        for name, one in (("learned", learned), ("plain", plain))
    }
    assert how_apart(pile, learned, plain) == pytest.approx(wanted, abs=1e-3)
    alone = grouping(index % 3)
    alone.labels.zero_()
    assert how_apart(pile, learned, alone)["plain"] == -1
