"""Recipes: the paper's numbers, schedules against their formulas, round trips, documentation of every field."""

import ast
import dataclasses
import inspect
import json
import math
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autonovel.base.errors import InputError
from autonovel.settings import recipe as settings_module
from autonovel.settings.recipe import KEEP_LAYOUT, Joint, Recipe, Training, from_dict
from autonovel.settings.recipes import PRESETS, describe_recipes, get_recipe, with_fields, with_pretraining
from autonovel.settings.resolve import FEW_IMAGES, Facts, settle

pytestmark = pytest.mark.usefixtures("flags_in_messages")

ALL = sorted(product(describe_recipes(), PRESETS))


# ---- schedules


@given(epoch=st.integers(0, 400), length=st.integers(1, 300))
def test_ramp_follows_the_formula(epoch: int, length: int) -> None:
    expected = math.exp(-5 * (1 - min(1, epoch / length)) ** 2)
    assert Joint(ramp=length).ramp_at(epoch) == pytest.approx(expected)


def test_ramp_is_one_at_its_end_and_without_length() -> None:
    assert Joint(ramp=50).ramp_at(0) == pytest.approx(math.exp(-5))
    assert Joint(ramp=50).ramp_at(49) < Joint(ramp=50).ramp_at(50) == Joint(ramp=50).ramp_at(51) == 1
    assert Joint(ramp=0).ramp_at(0) == 1


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
    assert (one.augment.crop, one.augment.flip, one.train_from) == ("zero", True, "all")
    assert (two.epochs, two.batch, two.lr, two.optimiser, two.weight_decay) == (100, 128, 0.1, "sgd", 1e-4)
    assert (two.milestones, two.decay, two.train_from) == (tuple(range(10, 100, 10)), 0.5, "layer4")
    assert (two.augment.crop, two.augment.flip) == ("zero", True)
    assert (three.objective, three.pairs, three.top_k, three.epochs, three.batch) == ("pairs", "rank", 5, 200, 128)
    assert (three.lr, three.optimiser, three.weight_decay) == (0.1, "sgd", 1e-4)
    assert (three.milestones, three.decay, three.train_from) == ((170,), 0.1, "layer4")
    assert (three.consistency, three.ramp, three.incremental) == (5.0, 50, False)
    assert (three.known_weight, three.pair_weight, three.known_per_batch) == (1.0, 1.0, 0)
    assert (three.augment.crop, three.augment.flip) == ("reflect", True)


@pytest.mark.parametrize(
    ("name", "weight", "ramp", "crop", "flip"),
    [("cifar10", 5, 50, "reflect", True), ("cifar100", 50, 150, "zero", True), ("svhn", 50, 80, "zero", False)],
)
def test_what_differs_between_the_data_sets(name: str, weight: float, ramp: int, crop: str, flip: bool) -> None:
    recipe = get_recipe(name)
    assert (recipe.joint.consistency, recipe.joint.ramp) == (weight, ramp)
    assert (recipe.joint.augment.crop, recipe.joint.augment.flip) == (crop, flip)
    assert recipe.pretrain.augment.flip == recipe.supervised.augment.flip == flip
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
    assert recipe.pretrain == with_pretraining(get_recipe("cifar10", preset), "simclr").pretrain
    assert (recipe.joint.objective, recipe.joint.train_from, recipe.joint.batch) == ("neighbours", "all", 0)
    assert (recipe.joint.optimiser, recipe.joint.lr, recipe.joint.weight_decay) == ("adam", 1e-4, 1e-4)
    assert recipe.model == get_recipe("cluster").model


def test_digits_are_never_mirrored() -> None:
    for name in ("svhn", "digits", "omniglot"):
        for preset in PRESETS:
            recipe = get_recipe(name, preset)
            stages = (recipe.pretrain, recipe.supervised, recipe.joint)
            assert not any(s.augment.flip for s in stages if getattr(s, "method", "") != "none")


# ---- names, presets, round trips


@pytest.mark.parametrize(("name", "preset"), ALL)
def test_recipes_survive_a_round_trip_through_json(name: str, preset: str) -> None:
    recipe = get_recipe(name, preset)
    assert (recipe.name, recipe.preset) == (name, preset)
    again = from_dict(Recipe, json.loads(json.dumps(recipe.to_dict())))
    assert again == recipe
    assert hash(again) == hash(recipe)  # tuples came back as tuples
    assert from_dict(Recipe, recipe.to_dict()) == recipe


FACTS = [
    Facts(images=images, known_classes=known, new_classes=new, side=side, channels=channels, gpu=gpu)
    for (images, known, new), (side, channels), gpu in product(
        [(40, 2, 2), (1797, 5, 5), (50_000, 80, 20), (300, 0, 10), (200_000, 10, None)],
        [(8, 1), (32, 3), (224, 3)],
        [True, False],
    )
]


@pytest.mark.parametrize(("name", "preset"), ALL)
def test_recipes_are_complete_for_any_data(name: str, preset: str) -> None:
    for facts in FACTS:
        recipe, notes = settle(get_recipe(name, preset), facts)
        assert recipe.model.backbone != "auto"
        # the authors had no supervised stage there, and in recipe characters the first stage learns the known classes
        left_out = name == "characters" or (name == "omniglot" and preset == "reference")
        assert recipe.supervised.epochs == 0 if left_out else recipe.supervised.epochs >= 1
        for stage in (recipe.pretrain, recipe.supervised, recipe.joint):
            assert stage.epochs >= 1 or stage == recipe.supervised
            assert stage.batch >= 2
            assert stage.lr > 0
            assert all(0 < m < stage.epochs for m in stage.milestones if stage.schedule == "steps")
            assert stage.warmup <= max(stage.epochs, 1)
        assert all(
            ("(--" in note or "pip install" in note) and "\n" not in note for note in notes
        )  # how to decide otherwise
        assert settle(recipe, facts) == (recipe, [])
        assert from_dict(Recipe, json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_what_is_given_is_not_decided_by_the_data() -> None:
    recipe = get_recipe("folder")
    given = dataclasses.replace(
        recipe,
        method="autonovel",
        model=dataclasses.replace(recipe.model, backbone="vgg", width=7),
        supervised=dataclasses.replace(recipe.supervised, batch=11),
        joint=dataclasses.replace(recipe.joint, objective="swap", epochs=3, batch=17, lr=0.07),
    )
    for facts in FACTS:
        assert settle(given, facts) == (given, [])


@pytest.mark.parametrize(
    ("stage", "change"),
    [
        ("supervised", {"batch": 11}),
        ("joint", {"lr": 0.07}),
        ("joint", {"objective": "pairs"}),
        ("joint", {"batch": 17}),
        ("joint", {"epochs": 3}),
        ("model", {"backbone": "resnet18"}),
        ("model", {"width": 7}),
    ],
)
def test_one_thing_given_leaves_the_rest_to_the_data(stage: str, change: dict[str, object]) -> None:
    recipe = get_recipe("folder")
    given = dataclasses.replace(recipe, **{stage: dataclasses.replace(getattr(recipe, stage), **change)})
    for facts in FACTS:
        fitted, _ = settle(given, facts)
        assert {name: getattr(getattr(fitted, stage), name) for name in change} == change
        assert fitted.model.width >= 1
        assert fitted.supervised.batch >= 2
        assert fitted.joint.lr == change.get("lr", 0.4 * fitted.joint.batch / 512)


def test_a_folder_takes_pre_trained_features_where_they_are_at_hand_and_suit_the_images() -> None:
    folder = get_recipe("folder")
    photos = dataclasses.replace(FACTS[0], side=137, packaged=True)
    recipe, notes = settle(folder, photos)
    assert (recipe.method, recipe.model.backbone, recipe.model.size) == ("features", "efficientnet-lite0", 224)
    assert "pre-trained features" in notes[0]
    assert settle(folder, dataclasses.replace(photos, side=28))[0].model.size == 112
    tiny, _ = settle(folder, dataclasses.replace(photos, side=8, channels=1))
    assert (tiny.method, tiny.model.backbone) == ("scratch", "small")
    bare, notes = settle(folder, dataclasses.replace(photos, packaged=False))
    assert (bare.method, bare.model.backbone) == ("scratch", "resnet18")
    assert any("autonovel[photos]" in note for note in notes)
    named = dataclasses.replace(folder, model=dataclasses.replace(folder.model, backbone="timm:resnet50"))
    assert settle(named, dataclasses.replace(photos, packaged=False))[0].method == "features"


def test_few_images_without_a_pre_trained_network_learn_a_space_by_contrast() -> None:
    folder = get_recipe("folder")
    photos = Facts(540, 5, 4, 137, 3, gpu=False)
    few, notes = settle(folder, photos)
    assert (few.method, few.joint.objective) == ("scratch", "contrast")
    assert (few.model.backbone, few.model.width, few.model.size) == ("resnet18", 16, 32)
    assert any("540 images are few (--joint.objective)" in note for note in notes)
    on_gpu, _ = settle(folder, dataclasses.replace(photos, gpu=True))
    assert (on_gpu.model.backbone, on_gpu.model.width, on_gpu.model.size) == ("resnet18", 32, 64)
    many, notes = settle(folder, dataclasses.replace(photos, images=FEW_IMAGES + 1))
    assert (many.method, many.joint.objective, many.model.backbone) == ("scratch", "swap", "resnet18-large")
    assert any("images are enough (--joint.objective)" in note for note in notes)
    # another method waits for heads that cluster
    given = dataclasses.replace(folder, method="autonovel")
    assert settle(given, photos)[0].joint.objective == "swap"
    # one's own choices stay
    wide = dataclasses.replace(folder, model=dataclasses.replace(folder.model, width=24, size=48))
    own = settle(wide, photos)[0].model
    assert (own.backbone, own.width, own.size) == ("resnet18", 24, 48)


@pytest.mark.parametrize(("new", "side", "expected"), [(20, 32, (0.5, 2)), (11, 64, (0.5, 2)), (10, 32, (0.0, 0))])
def test_many_classes_have_small_views_and_pick_images(new: int, side: int, expected: tuple[float, int]) -> None:
    facts = Facts(50_000, 80, new, side, 3, gpu=True)
    recipe, notes = settle(get_recipe("best"), facts)
    swap = recipe.joint.swap
    assert (swap.by_class, swap.small_views) == expected
    said = [note for note in notes if "--joint.swap" in note]
    assert len(said) == (2 if new > 10 else 0)
    given = with_fields(get_recipe("best"), {"joint.swap.by_class": 0.2})
    own = settle(given, facts)[0].joint.swap
    assert (own.by_class, own.small_views) == (0.2, expected[1])


@pytest.mark.parametrize("backbone", KEEP_LAYOUT)
def test_networks_that_take_images_of_one_size_get_no_small_views(backbone: str) -> None:
    recipe = with_fields(get_recipe("best"), {"model.backbone": backbone})
    swap = settle(recipe, Facts(50_000, 80, 20, 32, 3, gpu=True))[0].joint.swap
    assert (swap.by_class, swap.small_views) == (0.5, 0)


@pytest.mark.parametrize("name", sorted(describe_recipes()))
def test_nothing_is_left_open_once_settled(name: str) -> None:
    for facts in FACTS:
        swap = settle(get_recipe(name), facts)[0].joint.swap
        assert min(swap.by_class, swap.small_views) >= 0


@pytest.mark.parametrize(("images", "epochs"), [(20, 400), (540, 190), (3000, 68), (10_000, 20)])
def test_what_counts_for_few_images_is_the_number_of_steps(images: int, epochs: int) -> None:
    facts = Facts(images, 5, 5, 28, 1, gpu=False)
    recipe, notes = settle(get_recipe("folder"), facts)
    assert recipe.joint.epochs == epochs
    assert recipe.joint.batch <= 128
    assert any(f"{epochs} epochs of joint training" in note for note in notes)


@pytest.mark.parametrize("name", sorted(describe_recipes()))
def test_fast_takes_less_time(name: str) -> None:
    def epochs(preset: str) -> int:
        recipe, _ = settle(get_recipe(name, preset), FACTS[0])
        stages = [recipe.supervised, recipe.joint] + ([] if recipe.pretrain.method == "none" else [recipe.pretrain])
        return recipe.model.networks * sum(stage.epochs for stage in stages)

    assert epochs("fast") < epochs("paper")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match=r"no recipe 'cifar11' \(did you mean cifar10\?\); choose one of cifar10, "):
        get_recipe("cifar11")
    with pytest.raises(InputError, match="no preset 'slow'; choose one of paper, reference, fast"):
        get_recipe("cifar10", "slow")
    with pytest.raises(InputError, match="Recipe has no setting 'colour'; it has name, preset, method, "):
        from_dict(Recipe, {"colour": 1})
    with pytest.raises(InputError, match="Swap has no setting 'head'"):
        from_dict(Recipe, {"joint": {"swap": {"head": 2}}})


def test_every_recipe_has_a_line_about_it() -> None:
    assert {"cifar10", "cifar100", "svhn", "digits", "best"} <= describe_recipes().keys()
    assert all(text and "\n" not in text for text in describe_recipes().values())


# ---- another pre-training, other fields, a file


@pytest.mark.parametrize("method", ["simclr", "moco", "moco-v2"])
@pytest.mark.parametrize("preset", PRESETS)
def test_contrastive_pre_training_has_a_schedule_of_its_own(method: str, preset: str) -> None:
    base = get_recipe("cifar10", preset)
    recipe = with_pretraining(base, method)
    own = recipe.pretrain
    assert (own.method, own.batch, own.schedule, own.optimiser) == (method, 512, "cosine", "sgd")
    assert own.epochs == 2 * base.pretrain.epochs  # two inputs of the network for an image in place of four
    assert own.lr == pytest.approx({"simclr": 0.25}.get(method, 0.03 * 512 / 256))
    assert (own.augment, own.contrast) == (base.pretrain.augment, base.pretrain.contrast)
    assert dataclasses.replace(recipe, pretrain=base.pretrain) == base  # nothing else has changed
    assert with_pretraining(recipe, "rotation") == base  # and back


def test_the_same_pre_training_and_none_leave_the_schedule_alone() -> None:
    recipe = get_recipe("cifar10")
    longer = dataclasses.replace(recipe, pretrain=dataclasses.replace(recipe.pretrain, epochs=7))
    assert with_pretraining(longer, "rotation") == longer
    assert with_pretraining(longer, "none").pretrain == dataclasses.replace(longer.pretrain, method="none")


def test_what_was_set_stays_where_the_pre_training_is_another() -> None:
    recipe = with_fields(get_recipe("cifar10"), {"pretrain.epochs": 7, "pretrain.weight_decay": 0.0})
    there = with_pretraining(recipe, "moco").pretrain
    assert (there.epochs, there.weight_decay, there.batch, there.lr) == (7, 0.0, 512, 0.06)
    again = with_pretraining(with_pretraining(recipe, "moco"), "simclr").pretrain
    assert (again.epochs, again.weight_decay, again.batch, again.lr) == (7, 0.0, 512, 0.25)
    characters = with_pretraining(get_recipe("omniglot"), "simclr").pretrain
    assert (characters.epochs, characters.batch, characters.optimiser) == (400, 512, "sgd")


def test_the_images_of_svhn_stay_upright_whatever_is_learned_from_them() -> None:
    recipe = with_pretraining(get_recipe("svhn"), "moco")
    assert recipe.pretrain.contrast.augment.area == (0.5, 1.0)
    assert not recipe.pretrain.augment.flip
    assert not recipe.pretrain.contrast.augment.flip


def test_fields_are_set_by_name_and_have_the_last_word() -> None:
    values = {"pretrain.epochs": 3, "pretrain.method": "simclr", "supervised.train_from+joint.train_from": "layer2"}
    recipe = with_fields(get_recipe("cifar10"), values | {"joint.swap.heads": 2})
    assert (recipe.pretrain.method, recipe.pretrain.epochs, recipe.pretrain.batch) == ("simclr", 3, 512)
    assert (recipe.supervised.train_from, recipe.joint.train_from, recipe.joint.swap.heads) == ("layer2", "layer2", 2)


@pytest.mark.parametrize(
    ("path", "hint"),
    [("joint.topk", r" \(did you mean joint.top_k\?\)"), ("joint", ""), ("joint.swap", ""), ("x.y", "")],
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
        ("joint.incremental", 1, "true or false"),
        ("joint.milestones", 5, "any number of whole numbers"),
        ("joint.augment.area", (0.1,), "2 numbers"),
        ("estimate.size_range", 5, "2 whole numbers or None"),
    ],
)
def test_a_value_that_a_field_cannot_hold_is_refused(path: str, value: object, give: str) -> None:
    with pytest.raises(InputError) as caught:
        with_fields(Recipe(), {path: value})
    assert str(caught.value) == f"The field {path} of a recipe cannot be {value!r}; give {give}."


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
        ('{"joint": {"epoch": 1}}', r"Joint has no setting 'epoch' \(did you mean epochs\?\); it has "),
        ('{"joint": 3}', "The setting joint of Recipe cannot be 3; give its settings by name.$"),
        ('{"joint": {"epochs": "many"}}', "The setting epochs of Joint cannot be 'many'; give a whole number.$"),
        ('{"joint": {"epochs": null}}', "epochs of Joint cannot be None"),
        ('{"joint": {"epochs": true}}', "epochs of Joint cannot be True"),
        ('{"joint": {"epochs": 1.5}}', "epochs of Joint cannot be 1.5"),
        ('{"joint": {"augment": {"area": "x"}}}', "area of Augment cannot be 'x'; give 2 numbers.$"),
        ('{"joint": {"augment": {"area": [0.1]}}}', "area of Augment cannot be"),
        ('{"pile": "old"}', "pile of Recipe cannot be 'old'; give new, mixed or auto.$"),
        ('{"estimate": {"size_range": 5}}', "size_range of Estimate cannot be 5; give 2 whole numbers or null.$"),
        ('{"joint": {"incremental": 0}}', "incremental of Joint cannot be 0; give true or false.$"),
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
    assert not recipe.pretrain.augment.flip
    assert recipe.model == get_recipe("omniglot").model
    assert settle(recipe, FACTS[0])[1] == []  # nothing is said about a stage that there is not


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


# ---- the settings themselves


def settings_classes() -> dict[str, ast.ClassDef]:
    tree = ast.parse(inspect.getsource(settings_module))
    return {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.dump(d) for d in node.decorator_list)
    }


KINDS = [getattr(settings_module, name) for name in settings_classes() if name != "Facts"]


def test_all_parts_of_a_recipe_are_looked_at() -> None:
    assert {Recipe, Training, *(type(getattr(Recipe(), f.name)) for f in dataclasses.fields(Recipe))} - set(KINDS) == {
        str
    }
    assert len(KINDS) >= 9


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_documented(kind: type) -> None:
    body = settings_classes()[kind.__name__].body
    assert ast.get_docstring(settings_classes()[kind.__name__])
    for place, node in enumerate(body):
        if isinstance(node, ast.AnnAssign):
            after = body[place + 1] if place + 1 < len(body) else None
            documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            assert documented, f"{kind.__name__}.{ast.unparse(node.target)} has no text"
            assert len(after.value.value.strip()) > 10


@pytest.mark.parametrize("kind", KINDS)
def test_settings_are_frozen_and_hashable(kind: type) -> None:
    value = kind()
    hash(value)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, 1)
