"""A folder of the first format: read, restored, and recognised by the command that made it."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import autonovel as an
from autonovel.answers.network import restore
from autonovel.api.run import Run, load
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter
from autonovel.models.net import build, from_description
from autonovel.runs.upgrade import describe_network, upgraded_recipe
from autonovel.settings.recipe import Model, Recipe, Swap, from_dict
from autonovel.settings.recipes import get_recipe
from tests.tiny import joint_method, known_classes

FORMAT_1 = Path(__file__).parent / "fixtures" / "format1"


class Listens(Reporter):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def message(self, text: str) -> None:
        self.heard.append(text)


@pytest.fixture(scope="module")
def digits() -> ImageSet:
    return an.load_benchmark("digits", None)[0]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    shutil.copytree(FORMAT_1, tmp_path / "run")
    return load(tmp_path / "run")


def recipe_of(run: Run) -> Recipe:
    return from_dict(Recipe, upgraded_recipe(run.config["run"]["recipe"]))


def test_the_restored_network_gives_the_recorded_answers(run: Run, digits: ImageSet) -> None:
    mode = replace(Mode.of("cpu"), precision=torch.bfloat16)  # in which it answered, whatever suits this machine
    said = restore(run, mode).answer(digits.subset(~digits.is_labelled))
    assert said.new is not None
    assert said.new.argmax(1).tolist() == run.machine.group.tolist()
    assert said.joint.shape == (896, 10)
    torch.testing.assert_close(said.joint.sum(1), torch.ones(896))
    np.testing.assert_allclose(said.features.numpy(), np.asarray(run.features, dtype=np.float32), rtol=0.01, atol=0.01)


def test_what_a_weights_file_would_say_of_its_network(run: Run) -> None:
    state = run.read_tensors("joint.safetensors")[0]
    said = describe_network(run.config, state)
    # a file of today says the same of the network that was made from it
    assert restore(run, Mode.of("cpu")).net.describe()["heads"].keys() == said["heads"].keys()
    assert said["model"]["temperature"] == 0.2  # once a setting of swapped prediction
    assert said["heads"]["known"]["outputs"] - said["heads"]["known"]["extended_by"] == 5
    assert said["heads"]["new"]["outputs"] == 5


@pytest.mark.parametrize(
    ("head", "objective", "incremental"),
    [
        ("linear", "pairs", False),
        ("linear", "pairs", True),
        ("linear", "swap", True),
        ("mlp", "pairs", False),
        ("mlp", "pairs", True),
        ("cosine", "pairs", False),
        ("cosine", "swap", True),
    ],
)
def test_every_kind_of_network_is_described_from_its_weights(head: str, objective: str, incremental: bool) -> None:
    base = get_recipe("cifar10")
    swap = Swap(heads=2, hidden=16, projection=8)
    joint = replace(base.joint, objective=objective, incremental=incremental, swap=swap)
    recipe = replace(base, model=Model(backbone="small", width=4, head=head, temperature=0.2), joint=joint)
    net = build(recipe.model, channels=3, size=16)
    known_classes(recipe, 3).prepare(net)
    joint_method(recipe, 3, 2).prepare(net)
    config = {"run": {"recipe": recipe.to_dict(), "data": {"shape": [16, 16, 3], "class_names": ["a", "b", "c"]}}}
    again = from_description(describe_network(config, net.state_dict()))
    again.load_state_dict(net.state_dict())
    images = torch.randint(0, 256, (5, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        one, other = net.eval()(images), again.eval()(images)
    assert torch.equal(one.joint, other.joint)
    assert one.new is not None
    assert other.new is not None
    assert torch.equal(one.new, other.new)


def test_settings_that_moved_are_put_where_they_are_now() -> None:
    old = {"model": {"head": "cosine"}, "joint": {"swap": {"temperature": 0.3, "heads": 2}}}
    assert upgraded_recipe(old) == {"model": {"head": "cosine", "temperature": 0.3}, "joint": {"swap": {"heads": 2}}}
    assert old["joint"]["swap"] == {"temperature": 0.3, "heads": 2}  # the given one stays
    apart = {"model": {}, "joint": {"swap": {"divergence": 0.2}}}  # from before it had forms
    assert upgraded_recipe(apart)["joint"]["swap"] == {"divergence": 0.2, "divergence_form": "whole"}
    today = Recipe().to_dict()
    assert upgraded_recipe(today) == today


def test_the_same_command_again_says_that_it_is_finished(run: Run, digits: ImageSet) -> None:
    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    listens = Listens()
    options = {"out": run.path, "n_new": 5, "device": "cpu", "report": False}
    again = an.discover(digits, recipe=recipe_of(run), reporter=listens, **options)
    assert any("finished already" in text for text in listens.heard)
    assert again.labels.tolist() == load(FORMAT_1).labels.tolist()
    assert {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()} == before
    with pytest.raises(InputError, match="seed is 0 there, 1 now"):
        an.discover(digits, recipe=recipe_of(run), seed=1, **options)


def test_its_labels_and_names(run: Run) -> None:
    assert len(run.labels) == 896
    assert (run.labels >= 5).all()
    assert np.array_equal(run.labels - 5, run.machine.group)
    assert len(run.classes) == 10
    assert run.images == []
    run.name(4, "stork")
    assert load(run.path).classes[8:] == ("heron", "stork")
