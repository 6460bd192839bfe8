"""What a recipe leaves open is decided by the data, at once; what a person asked for stays, also in the next round."""

import dataclasses
import json
from itertools import product
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import settings as how_often

from autonovel.base.errors import InputError
from autonovel.settings.fields import from_dict, left_open
from autonovel.settings.joint import SwapSettings
from autonovel.settings.recipe import KEEP_LAYOUT, Recipe
from autonovel.settings.recipes import PRESETS, describe_recipes, get_recipe, with_fields
from autonovel.settings.resolve import FEW_IMAGES, PACKAGED, Asked, Facts, resolve
from tests.settings.made import recipes

pytestmark = pytest.mark.usefixtures("flags_in_messages")

ALL = sorted(product(describe_recipes(), PRESETS))


def resolved(recipe: Recipe, facts: Facts) -> tuple[Recipe, list[str]]:
    found = resolve(Asked.of(recipe), facts)
    return found.recipe, list(found.notes)


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
        recipe, notes = resolved(get_recipe(name, preset), facts)
        assert not set(left_open(recipe)) - {"mirror"}
        if recipe.method == "features":
            continue
        # the authors had no supervised stage there, and in recipe characters the first stage learns the known classes
        left_out = name == "characters" or (name == "omniglot" and preset == "reference")
        assert recipe.supervised.epochs == 0 if left_out else recipe.supervised.epochs >= 1
        stages = (recipe.pretrain, recipe.supervised, recipe.joint)
        for stage in (stage for stage in stages if stage.HOME or stage == recipe.supervised):
            assert stage.epochs >= 1 or stage == recipe.supervised
            assert stage.batch >= 2
            assert stage.lr > 0
            assert all(0 < m < stage.epochs for m in stage.milestones if stage.epochs and stage.schedule == "steps")
            assert stage.warmup <= max(stage.epochs, 1)
        assert all(
            ("(--" in note or "pip install" in note or "no effect" in note) and "\n" not in note for note in notes
        )  # how to decide otherwise
        again, notes = resolved(recipe, facts)  # in some recipes the preset changes nothing, which is said each time
        assert (again, [note for note in notes if "no effect" not in note]) == (recipe, [])
        assert from_dict(Recipe, json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_what_is_given_is_not_decided_by_the_data() -> None:
    recipe = get_recipe("folder")
    given = dataclasses.replace(
        recipe,
        method="autonovel",
        model=dataclasses.replace(recipe.model, backbone="vgg", width=7),
        supervised=dataclasses.replace(recipe.supervised, batch=11),
        joint=SwapSettings(epochs=3, batch=17, lr=0.07),
    )
    for facts in FACTS:
        own, notes = resolved(given, facts)
        assert own == given
        assert all("no effect" in note for note in notes)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("supervised.batch", 11),
        ("joint.lr", 0.07),
        ("joint.objective", "neighbours"),
        ("joint.batch", 17),
        ("joint.epochs", 3),
        ("joint.augment.rotate", 7.0),
        ("model.backbone", "resnet18"),
        ("model.width", 7),
        ("model.width", 32),  # what would be chosen too
    ],
)
def test_one_thing_given_leaves_the_rest_to_the_data(path: str, value: object) -> None:
    asked = Asked("folder", "paper", {path: value})
    for facts in FACTS:
        fitted = resolve(asked, facts).recipe
        assert attrgetter(path)(fitted) == value
        assert fitted.model.width >= 1
        assert fitted.supervised.batch >= 2
        if path not in ("joint.lr", "joint.objective"):
            assert fitted.joint.lr == 0.4 * fitted.joint.batch / 512


def test_a_folder_takes_pre_trained_features_where_they_are_at_hand_and_suit_the_images() -> None:
    folder = get_recipe("folder")
    photos = dataclasses.replace(FACTS[0], side=137, packaged=PACKAGED[0])
    recipe, notes = resolved(folder, photos)
    assert (recipe.method, recipe.model.backbone, recipe.model.size) == ("features", PACKAGED[0], 224)
    assert "pre-trained features" in notes[0]
    assert resolved(folder, dataclasses.replace(photos, side=28))[0].model.size == 128
    tiny, _ = resolved(folder, dataclasses.replace(photos, side=8, channels=1))
    assert (tiny.method, tiny.model.backbone) == ("scratch", "small")
    bare, notes = resolved(folder, dataclasses.replace(photos, packaged=""))
    assert (bare.method, bare.model.backbone) == ("scratch", "resnet18")
    assert any("autonovel[photos]" in note for note in notes)
    named = dataclasses.replace(folder, model=dataclasses.replace(folder.model, backbone="timm:resnet50"))
    assert resolved(named, dataclasses.replace(photos, packaged=""))[0].method == "features"


def test_few_images_without_a_pre_trained_network_learn_a_space_by_contrast() -> None:
    folder = get_recipe("folder")
    photos = Facts(540, 5, 4, 137, 3, gpu=False)
    few, notes = resolved(folder, photos)
    assert (few.method, few.joint.objective) == ("scratch", "contrast")
    assert (few.model.backbone, few.model.width, few.model.size) == ("resnet18", 16, 32)
    assert any("540 images are few (--joint.objective)" in note for note in notes)
    on_gpu, _ = resolved(folder, dataclasses.replace(photos, gpu=True))
    assert (on_gpu.model.backbone, on_gpu.model.width, on_gpu.model.size) == ("resnet18", 32, 64)
    many, notes = resolved(folder, dataclasses.replace(photos, images=FEW_IMAGES + 1))
    assert (many.method, many.joint.objective, many.model.backbone) == ("scratch", "swap", "resnet18-large")
    assert any("images are enough (--joint.objective)" in note for note in notes)
    # another method waits for heads that cluster
    given = dataclasses.replace(folder, method="autonovel")
    assert resolved(given, photos)[0].joint.objective == "swap"
    # one's own choices stay
    wide = dataclasses.replace(folder, model=dataclasses.replace(folder.model, width=24, size=48))
    own = resolved(wide, photos)[0].model
    assert (own.backbone, own.width, own.size) == ("resnet18", 24, 48)


@pytest.mark.parametrize(("new", "side", "expected"), [(20, 32, (0.5, 2)), (11, 64, (0.5, 2)), (10, 32, (0.0, 0))])
def test_many_classes_have_small_views_and_pick_images(new: int, side: int, expected: tuple[float, int]) -> None:
    facts = Facts(50_000, 80, new, side, 3, gpu=True)
    recipe, notes = resolved(get_recipe("best"), facts)
    swap = recipe.joint
    assert (swap.by_class, swap.small_views) == expected
    said = [note for note in notes if "--joint.by-class" in note or "--joint.small-views" in note]
    assert len(said) == (2 if new > 10 else 0)
    given = with_fields(get_recipe("best"), {"joint.by_class": 0.2})
    own = resolved(given, facts)[0].joint
    assert (own.by_class, own.small_views) == (0.2, expected[1])


@pytest.mark.parametrize("backbone", KEEP_LAYOUT)
def test_networks_that_take_images_of_one_size_get_no_small_views(backbone: str) -> None:
    recipe = with_fields(get_recipe("best"), {"model.backbone": backbone})
    swap = resolved(recipe, Facts(50_000, 80, 20, 32, 3, gpu=True))[0].joint
    assert (swap.by_class, swap.small_views) == (0.5, 0)


@pytest.mark.parametrize(("images", "epochs"), [(20, 400), (540, 190), (3000, 68), (10_000, 20)])
def test_what_counts_for_few_images_is_the_number_of_steps(images: int, epochs: int) -> None:
    facts = Facts(images, 5, 5, 28, 1, gpu=False)
    recipe, notes = resolved(get_recipe("folder"), facts)
    assert recipe.joint.epochs == epochs
    assert recipe.joint.batch <= 128
    assert any(f"{epochs} epochs of joint training" in note for note in notes)


@pytest.mark.parametrize("name", sorted(describe_recipes()))
def test_fast_takes_less_time(name: str) -> None:
    def epochs(preset: str) -> int:
        recipe, _ = resolved(get_recipe(name, preset), FACTS[0])
        stages = [recipe.supervised, recipe.joint] + ([] if recipe.pretrain.method == "none" else [recipe.pretrain])
        return recipe.model.networks * sum(stage.epochs for stage in stages)

    assert epochs("fast") < epochs("paper")


# ---- what was asked for


@pytest.mark.parametrize(("name", "preset"), ALL)
def test_a_recipe_as_it_is_asks_for_nothing_else(name: str, preset: str) -> None:
    assert Asked.of(get_recipe(name, preset)) == Asked(name, preset)


@how_often(max_examples=60, deadline=None)
@given(recipes())
def test_what_is_asked_for_is_what_differs_from_the_named_recipe(recipe: Recipe) -> None:
    asked = Asked.of(recipe)
    assert asked.get() == recipe
    assert Asked(**json.loads(json.dumps(asked.to_dict()))).get() == recipe


def test_what_was_given_stays_given_in_another_preset() -> None:
    asked = Asked("cifar10", "paper", {"joint.ramp": 50}).in_preset("fast").get()  # 50 is the paper's own
    assert (asked.preset, asked.joint.epochs, asked.joint.ramp) == ("fast", 60, 50)
    with pytest.raises(InputError, match="There is no recipe 'mine'"):
        Asked("mine").in_preset("fast")


def test_a_setting_without_effect_under_what_was_chosen_is_said() -> None:
    asked = Asked("folder", "paper", {"joint.epochs": 3, "model.width": 8})
    photos = dataclasses.replace(FACTS[0], side=137, packaged=PACKAGED[0])
    found = resolve(asked, photos)
    assert any(n.startswith("--joint.epochs has no effect: --method features trains nothing") for n in found.notes)
    assert not any("--model.width" in note for note in found.notes)


@pytest.mark.parametrize(
    ("values", "facts", "said"),
    [
        (
            {"estimate.max_new": 9},
            {"new_classes": 5},
            "--estimate.max-new has no effect: the number of classes is given",
        ),
        ({"estimate.max_new": 9}, {"new_classes": None}, ""),
        ({"supervised.epochs": 9}, {"known_classes": 0}, "--supervised.epochs has no effect: nothing is labelled"),
        (
            {"method": "scratch", "supervised.lr": 0.2, "supervised.epochs": 9},
            {},
            "--supervised.lr, --supervised.epochs have no effect: --joint.objective contrast learns the known classes itself",
        ),
        (
            {"method": "autonovel", "incremental": False},
            {},
            "--incremental has no effect: --joint.objective swap learns known and new classes together in any case",
        ),
        ({"method": "autonovel", "joint.objective": "pairs", "incremental": True}, {}, ""),
    ],
)
def test_what_has_nothing_to_do_with_these_images_is_said(
    values: dict[str, object], facts: dict[str, object], said: str
) -> None:
    notes = resolve(Asked("folder", "paper", values), dataclasses.replace(FACTS[0], **facts)).notes
    assert [note for note in notes if "no effect" in note] == ([said] if said else [])


def test_a_run_that_trains_nothing_has_no_settings_of_training() -> None:
    recipe = resolve(Asked(), dataclasses.replace(FACTS[0], side=137, packaged=PACKAGED[0])).recipe
    assert recipe.method == "features"
    assert not {"pretrain", "supervised", "joint", "mirror", "incremental"} & recipe.to_dict().keys()


def test_no_crop_shows_less_than_the_smallest_part() -> None:
    asked = Asked("svhn", "paper", {"pretrain.method": "moco", "joint.augment.kind": "mixed"})
    recipe = resolve(asked, FACTS[0]).recipe
    assert recipe.pretrain.augment.area == (0.5, 1.0)
    assert recipe.joint.augment.area == (0.5, 1.0)
    assert asked.get().pretrain.augment.area == (0.2, 1.0)
    plain = resolve(dataclasses.replace(asked, recipe="cifar10"), FACTS[0]).recipe
    assert plain.pretrain.augment.area == (0.2, 1.0)
