"""What two samples of a large pile say together."""

import torch

from autonovel.answers.census import Census
from autonovel.answers.sampled import learn, look, number_of, with_rare
from autonovel.maths.count.result import ClassEstimate
from autonovel.maths.known_space import Space
from autonovel.maths.mixed import OldImages
from autonovel.runs.headline import how_sampled


def counted(n_new: int, interval: tuple[int, int], *, mixed: bool = False) -> Census:
    points, labels = torch.ones(3, 2), torch.zeros(3, dtype=torch.int64)
    old = OldImages(torch.zeros(3), 0.0, None, mixed, labels)
    estimate = ClassEstimate(n_new, interval, {}, "judges", [n_new])
    return Census(Space(torch.zeros(2), torch.eye(2)), points, labels, points, "auto", old, points, estimate)


def test_the_larger_number_counts_and_the_interval_holds_both() -> None:
    for pair in ((counted(9, (6, 12)), counted(14, (8, 40))), (counted(14, (8, 40)), counted(9, (6, 12)))):
        number = number_of(*pair)
        assert number is not None
        assert (number.n_new, number.interval, sorted(number.answers)) == (14, (6, 40), [9, 14])


def test_samples_that_counted_different_things_are_not_put_together() -> None:
    number = number_of(counted(9, (6, 12)), counted(14, (8, 40), mixed=True))
    assert number is not None
    assert (number.n_new, number.interval) == (9, (6, 12))


def test_sentences_name_what_the_samples_disagree_on() -> None:
    facts = {"rows": 20_000, "labelled": 400, "agreement": 0.934, "numbers": [9, 14], "rare": 1}
    first, second = how_sampled(3, facts, 1_200_000)
    assert "20,000 of the 1,200,000" in first
    assert "93.4%, and they count 9 and 14 new classes" in first
    assert "1 class that the sample misses" in second
    assert len(how_sampled(3, facts | {"numbers": [9, 9], "rare": 0}, 100_001)) == 1


def test_a_class_that_the_sample_misses_has_its_images_and_no_others() -> None:
    generator = torch.Generator().manual_seed(0)
    middles = 2 * torch.randn(8, 16, generator=generator)
    kind = torch.cat([torch.arange(3, 7).repeat_interleave(150), torch.full((24,), 7)])
    labels = torch.arange(3).repeat_interleave(20)
    known, rows = (middles[c] + torch.randn(len(c), 16, generator=generator) for c in (labels, kind))
    sample = rows[kind < 7][::3]
    learned = learn(look(known, labels, sample, 4, kind="new"), 4)
    found, rare = with_rare(learned, rows)
    before, place = (torch.from_numpy(what.answers(rows).place) for what in (learned, found))
    assert rare == 1
    assert (place == 7).equal(kind == 7)
    assert place[kind < 7].equal(before[kind < 7])
    assert found.judged.judge.strangers is not None
    assert len(found.judged.judge.strangers.centres) == 8
