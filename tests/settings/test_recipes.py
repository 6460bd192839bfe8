"""Recipes: the paper's numbers, schedules against their formulas, round trips, documentation of every field."""

import dataclasses
import json
import math
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autonovel.base.errors import InputError
from autonovel.settings.fields import from_dict, usual
from autonovel.settings.joint import PairsSettings
from autonovel.settings.recipe import Recipe
from autonovel.settings.recipes import PRESETS, describe_recipes, get_recipe, with_fields
from autonovel.settings.stages import PRETRAINING, Training

pytestmark = pytest.mark.usefixtures("flags_in_messages")

ALL = sorted(product(describe_recipes(), PRESETS))


# ---- schedules


@given(epoch=st.integers(0, 400), length=st.integers(1, 300))
def test_ramp_follows_the_formula(epoch: int, length: int) -> None:
    expected = math.exp(-5 * (1 - min(1, epoch / length)) ** 2)
    assert PairsSettings(ramp=length).ramp_at(epoch) == pytest.approx(expected)


def test_ramp_is_one_at_its_end_and_without_length() -> None:
    assert PairsSettings(ramp=50).ramp_at(0) == pytest.approx(math.exp(-5))
    assert (
        PairsSettings(ramp=50).ramp_at(49)
        < PairsSettings(ramp=50).ramp_at(50)
        == PairsSettings(ramp=50).ramp_at(51)
        == 1
    )
    assert PairsSettings(ramp=0).ramp_at(0) == 1


@pytest.mark.parametrize(
    ("stage", "milestones", "factor"),
    [("pretrain", [60, 120, 160], 0.2), ("supervised", list(range(10, 100, 10)), 0.5), ("joint", [170], 0.1)],
)
def test_learning_rate_of_the_paper_falls_in_steps(stage: str, milestones: list[int], factor: float) -> None:
    settings = getattr(get_recipe("cifar10"), stage)
    for epoch in range(settings.epochs):
        passed = len([m for m in milestones if epoch >= m])
        for part in (0.0, 0.5, 0.999):  # constant within an epoch
            assert settings.lr_at(epoch + part) == pytest.approx(0.1 * factor**passed)


@given(st.floats(0, 1), st.integers(1, 100), st.integers(0, 20), st.floats(0, 0.5))
def test_cosine_and_triangle_follow_their_formulas(share: float, epochs: int, warmup: int, final: float) -> None:
    time = share * epochs
    for schedule in ("cosine", "triangle"):
        settings = Training(epochs=epochs, lr=0.4, schedule=schedule, warmup=warmup, final=final)
        if time < warmup:
            expected = 0.4 * time / warmup
        elif warmup >= epochs:
            continue  # the fall has no room
        else:
            x = (time - warmup) / (epochs - warmup)
            fall = (1 + math.cos(math.pi * x)) / 2 if schedule == "cosine" else 1 - x
            expected = 0.4 * (final + (1 - final) * fall)
        assert settings.lr_at(time) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("schedule", ["cosine", "triangle"])
def test_smooth_schedules_peak_after_warm_up_and_end_low(schedule: str) -> None:
    settings = Training(epochs=50, lr=0.2, schedule=schedule, warmup=10, final=0.01)
    assert settings.lr_at(0) == 0
    assert settings.lr_at(10) == pytest.approx(0.2)
    assert settings.lr_at(50) == pytest.approx(0.002)
    assert max(settings.lr_at(t / 4) for t in range(200)) == pytest.approx(0.2)


# ---- what the paper's text says


def test_settings_of_the_paper_for_cifar10() -> None:
    recipe = get_recipe("cifar10")
    assert (recipe.model.backbone, recipe.model.width, recipe.model.shortcut, recipe.model.head) == (
        "resnet18", 64, "pool", "linear",
    )  # fmt: skip
    one, two, three = recipe.pretrain, recipe.supervised, recipe.joint
    assert (one.method, one.epochs, one.batch, one.lr, one.optimiser) == ("rotation", 200, 128, 0.1, "nesterov")
    assert (one.weight_decay, one.milestones, one.decay) == (5e-4, (60, 120, 160), 0.2)
    assert (one.augment.kind, recipe.mirror, one.train_from) == ("shift", "yes", "all")
    assert (two.epochs, two.batch, two.lr, two.optimiser, two.weight_decay) == (100, 128, 0.1, "sgd", 1e-4)
    assert (two.milestones, two.decay, two.train_from) == (tuple(range(10, 100, 10)), 0.5, "layer4")
    assert two.augment.kind == "shift"
    assert (three.objective, three.pairs, three.top_k, three.epochs, three.batch) == ("pairs", "rank", 5, 200, 128)
    assert (three.lr, three.optimiser, three.weight_decay) == (0.1, "sgd", 1e-4)
    assert (three.milestones, three.decay, three.train_from) == ((170,), 0.1, "layer4")
    assert (three.consistency, three.ramp, recipe.incremental) == (5.0, 50, False)
    assert (three.known_weight, three.pair_weight, three.known_per_batch) == (1.0, 1.0, 0)
    assert three.augment.kind == "reflect"


@pytest.mark.parametrize(
    ("name", "weight", "ramp", "kind", "mirror"),
    [("cifar10", 5, 50, "reflect", "yes"), ("cifar100", 50, 150, "shift", "yes"), ("svhn", 50, 80, "shift", "no")],
)
def test_what_differs_between_the_data_sets(name: str, weight: float, ramp: int, kind: str, mirror: str) -> None:
    recipe = get_recipe(name)
    assert (recipe.joint.consistency, recipe.joint.ramp) == (weight, ramp)
    assert (recipe.joint.augment.kind, recipe.mirror) == (kind, mirror)
    base = get_recipe("cifar10")
    assert recipe.model == base.model
    same = dataclasses.replace(recipe.joint, consistency=5.0, ramp=50, augment=base.joint.augment)
    assert same == base.joint


@pytest.mark.parametrize("preset", PRESETS)
def test_the_unsupervised_mode_is_that_of_cifar10_without_labels(preset: str) -> None:
    paper, cluster = (get_recipe(name, preset) for name in ("cifar10", "cluster"))
    assert (cluster.pretrain, cluster.joint) == (paper.pretrain, paper.joint)


@pytest.mark.parametrize("preset", PRESETS)
def test_neighbours_start_from_the_contrastive_stage_of_the_preset(preset: str) -> None:
    recipe = get_recipe("cluster-neighbours", preset)
    assert recipe.pretrain == with_fields(get_recipe("cifar10", preset), {"pretrain.method": "simclr"}).pretrain
    assert (recipe.joint.objective, recipe.joint.train_from, recipe.joint.batch) == ("neighbours", "all", 0)
    assert (recipe.joint.optimiser, recipe.joint.lr, recipe.joint.weight_decay) == ("adam", 1e-4, 1e-4)
    assert recipe.model == get_recipe("cluster").model


def test_digits_are_never_mirrored() -> None:
    for name, preset in product(("svhn", "digits", "omniglot", "characters"), PRESETS):
        assert get_recipe(name, preset).mirror == "no"


# ---- names, presets, round trips


@pytest.mark.parametrize(("name", "preset"), ALL)
def test_recipes_survive_a_round_trip_through_json(name: str, preset: str) -> None:
    recipe = get_recipe(name, preset)
    assert (recipe.name, recipe.preset) == (name, preset)
    again = from_dict(Recipe, json.loads(json.dumps(recipe.to_dict())))
    assert again == recipe
    assert hash(again) == hash(recipe)  # tuples came back as tuples
    assert from_dict(Recipe, recipe.to_dict()) == recipe


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match=r"no recipe 'cifar11' \(did you mean cifar10\?\); choose one of cifar10, "):
        get_recipe("cifar11")
    with pytest.raises(InputError, match="no preset 'slow'; choose one of paper, reference, fast"):
        get_recipe("cifar10", "slow")
    with pytest.raises(InputError, match="Recipe has no setting 'colour'; it has name, preset, method, "):
        from_dict(Recipe, {"colour": 1})
    with pytest.raises(InputError, match=r"SwapSettings has no setting 'head' \(did you mean heads"):
        from_dict(Recipe, {"joint": {"objective": "swap", "head": 2}})
    with pytest.raises(
        InputError, match=r"--joint.objective is 'swop' \(did you mean swap\?\); choose one of none, pairs"
    ):
        from_dict(Recipe, {"joint": {"objective": "swop"}})


def test_every_recipe_has_a_line_about_it() -> None:
    assert {"cifar10", "cifar100", "svhn", "digits", "best"} <= describe_recipes().keys()
    assert all(text and "\n" not in text for text in describe_recipes().values())


# ---- another pre-training, other fields, a file


@pytest.mark.parametrize("method", ["simclr", "moco", "moco-v2"])
@pytest.mark.parametrize("preset", PRESETS)
def test_contrastive_pre_training_has_a_schedule_of_its_own(method: str, preset: str) -> None:
    base = get_recipe("cifar10", preset)
    recipe = with_fields(base, {"pretrain.method": method})
    own = recipe.pretrain
    assert (own.method, own.batch, own.schedule, own.optimiser) == (method, 512, "cosine", "sgd")
    assert own.epochs == 2 * base.pretrain.epochs  # two inputs of the network for an image in place of four
    assert own.lr == pytest.approx({"simclr": 0.25}.get(method, 0.03 * 512 / 256))
    assert (own.augment.kind, own.augment.area) == ("crop", (0.2, 1.0))
    assert own.temperature == {"simclr": 0.5, "moco": 0.07, "moco-v2": 0.2}[method]  # as published
    assert dataclasses.replace(recipe, pretrain=base.pretrain) == base  # nothing else has changed
    assert with_fields(recipe, {"pretrain.method": "rotation"}) == base  # and back


def test_the_same_pre_training_leaves_the_schedule_alone() -> None:
    longer = with_fields(get_recipe("cifar10"), {"pretrain.epochs": 7})
    assert with_fields(longer, {"pretrain.method": "rotation"}) == longer
    assert with_fields(longer, {"pretrain.method": "none"}).to_dict()["pretrain"] == {"method": "none"}


def test_the_images_of_svhn_stay_upright_whatever_is_learned_from_them() -> None:
    recipe = with_fields(get_recipe("svhn"), {"pretrain.method": "moco"})
    assert (recipe.mirror, recipe.smallest_part) == ("no", 0.5)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_method_that_is_chosen_comes_as_it_usually_is(preset: str) -> None:
    for name, kind in PRETRAINING.items():
        own = with_fields(get_recipe("best", preset), {"pretrain.method": name}).pretrain
        assert with_fields(Recipe(), {"pretrain.method": name}).pretrain.method == name
        assert own.epochs == usual(kind, preset).epochs


def test_fields_are_set_by_name_and_have_the_last_word() -> None:
    values = {"pretrain.epochs": 3, "pretrain.method": "simclr", "supervised.train_from+joint.train_from": "layer2"}
    recipe = with_fields(get_recipe("cifar10"), values | {"joint.heads": 2, "joint.objective": "swap"})
    assert (recipe.pretrain.method, recipe.pretrain.epochs, recipe.pretrain.batch) == ("simclr", 3, 512)
    assert (recipe.supervised.train_from, recipe.joint.train_from, recipe.joint.heads) == ("layer2", "layer2", 2)


@pytest.mark.parametrize(
    ("recipe", "path", "sentence"),
    [
        ("best", "joint.top_k", "--joint.top-k belongs to --joint.objective pairs; this run has swap."),
        ("cifar10", "joint.heads", "--joint.heads belongs to --joint.objective swap or neighbours; this run has pairs."),
        ("folder", "joint.pairs", "--joint.pairs belongs to --joint.objective pairs; this run has auto."),
        ("cifar10", "pretrain.queue", "--pretrain.queue belongs to --pretrain.method moco or moco-v2; this run has rotation."),
        ("digits", "estimate.reading", "--estimate.reading belongs to --estimate.method paper; this run has calibrated."),
        ("best", "joint.milestones", "--joint.milestones belongs to --joint.schedule steps; this run has cosine."),
        (
            "cifar10",
            "joint.augment.rotate",
            "--joint.augment.rotate belongs to --joint.augment.kind turn, crop, redrawn, drawing, mixed or scan; this run has "
            "reflect.",
        ),
        (
            "best",
            "pretrain.augment.area",
            "--pretrain.augment.area belongs to --pretrain.method rotation, simclr, moco, moco-v2 or prototypical; this run has "
            "none.",
        ),
    ],
)  # fmt: skip
def test_a_field_of_what_is_not_chosen_is_refused_and_it_is_said_whose_it_is(
    recipe: str, path: str, sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        with_fields(get_recipe(recipe), {path: 1})
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("path", "hint"),
    [("joint.topk", r" \(did you mean joint.top_k\?\)"), ("joint", ""), ("joint.swap.heads", ""), ("x.y", "")],
)
def test_a_field_that_there_is_not_is_refused(path: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"A recipe has no field '{path}'{hint}.* autonovel recipes NAME"):
        with_fields(Recipe(), {path: 1})


@pytest.mark.parametrize(
    ("path", "value", "give"),
    [
        ("joint.epochs", "x", "a whole number"),
        ("model.size", "16", "a whole number"),
        ("joint.lr", None, "a number"),
        ("pile", "old", "new, mixed or auto"),
        ("incremental", 1, "true or false"),
        ("joint.milestones", 5, "any number of whole numbers"),
        ("joint.milestones", (1, "x"), "any number of whole numbers"),
        ("estimate.size_range", 5, "2 whole numbers or None"),
    ],
)
def test_a_value_that_a_field_cannot_hold_is_refused(path: str, value: object, give: str) -> None:
    with pytest.raises(InputError) as caught:
        with_fields(Recipe(), {path: value})
    assert str(caught.value) == f"--{path.replace('_', '-')} is {value!r}; give {give}."


def test_what_only_looks_like_a_field_is_none() -> None:
    with pytest.raises(InputError, match="has no field 'to_dict'"):
        with_fields(Recipe(), {"to_dict": 1})


def test_a_recipe_is_read_from_a_file(tmp_path: Path) -> None:
    recipe = with_fields(get_recipe("svhn", "fast"), {"joint.top_k": 3})
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(recipe.to_dict()))
    assert get_recipe(str(file)) == recipe


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, r"cannot be read \(No such file or directory\); give a file .* or the name of a recipe.$"),
        ("{", "cannot be read .it is no JSON"),
        ("[1]", r"must hold the fields of a recipe by name, as Recipe.to_dict gives them.$"),
        ('{"colour": 1}', "Recipe has no setting 'colour'; it has name, preset, method, "),
        ('{"joint": {"epoch": 1}}', r"PairsSettings has no setting 'epoch' \(did you mean epochs\?\); it has "),
        ('{"joint": 3}', "The setting joint of Recipe cannot be 3; give its settings by name.$"),
        (
            '{"joint": {"epochs": "many"}}',
            "The setting epochs of PairsSettings cannot be 'many'; give a whole number.$",
        ),
        ('{"joint": {"epochs": null}}', "epochs of PairsSettings cannot be None"),
        ('{"joint": {"epochs": true}}', "epochs of PairsSettings cannot be True"),
        ('{"joint": {"epochs": 1.5}}', "epochs of PairsSettings cannot be 1.5"),
        ('{"joint": {"augment": {"area": "x"}}}', "area of Augment cannot be 'x'; give 2 numbers.$"),
        ('{"joint": {"augment": {"area": [0.1]}}}', "area of Augment cannot be"),
        ('{"pile": "old"}', "pile of Recipe cannot be 'old'; give new, mixed or auto.$"),
        (
            '{"estimate": {"size_range": 5}}',
            "size_range of CalibratedSettings cannot be 5; give 2 whole numbers or null.$",
        ),
        ('{"incremental": 0}', "incremental of Recipe cannot be 0; give true or false.$"),
        ('{"method": 5}', "method of Recipe cannot be 5; give a text.$"),
        ('{"name": {"a": 1}}', "name of Recipe cannot be"),
        ("[" * 100_000, "cannot be read .it is no JSON"),
    ],
)
def test_a_file_that_holds_no_recipe_is_refused(text: str | None, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=reason):
        get_recipe(str(file))


def test_characters_are_learned_by_episodes_and_then_grouped() -> None:
    recipe = get_recipe("characters")
    assert (recipe.method, recipe.joint.objective, recipe.supervised.epochs) == ("scratch", "none", 0)
    assert (recipe.pretrain.method, recipe.pretrain.turns, recipe.pretrain.schedule) == ("prototypical", True, "cosine")
    assert recipe.pretrain.families == 1.0
    assert recipe.pretrain.augment.kind == "drawing"
    assert recipe.model == get_recipe("omniglot").model


def test_omniglot_as_its_authors_ran_it() -> None:
    recipe = get_recipe("omniglot", "reference")
    one = recipe.pretrain
    assert (one.method, one.epochs * one.episodes, one.ways, one.shots, one.queries) == (
        "prototypical",
        15_800,
        20,
        5,
        5,
    )
    assert {one.lr_at(epoch) for epoch in range(one.epochs)} == {1e-3}
    assert (one.optimiser, one.weight_decay) == ("adam", 0.0)
    assert recipe.supervised.epochs == 0
    joint = recipe.joint
    assert (joint.batch, joint.known_per_batch, joint.train_from, joint.epochs) == (100, 68, "layer4", 100)
    assert (joint.optimiser, joint.lr, joint.consistency, joint.ramp) == ("adam", 0.01, 100.0, 1)
    # their scheduler is stepped before each epoch, so that the hundredth step comes before the last epoch
    assert [joint.lr_at(epoch) for epoch in (0, 98)] == [0.01, 0.01]
    assert joint.lr_at(99) == pytest.approx(0.001)
    assert (recipe.model.backbone, recipe.model.head, recipe.model.size) == ("vgg", "mlp", 32)
