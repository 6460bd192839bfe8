"""k-means as a whole method: its centres, its answers, and a run restored from its folder."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import autonovel as an
from autonovel.answers.network import restore
from autonovel.base.errors import InputError
from autonovel.data.images import ImageSet
from autonovel.machine.device import Mode
from autonovel.maths.kmeans import kmeans
from autonovel.settings.recipes import get_recipe
from tests.small_data import class_images

pytestmark = pytest.mark.usefixtures("flags_in_messages")


def test_new_classes_are_the_clusters_of_the_features_and_known_ones_their_means(tmp_path: Path) -> None:
    classes = np.tile(np.arange(5), 16)
    data = ImageSet.from_arrays(class_images(classes, 16, n_classes=5), np.where(classes < 3, classes, -1))
    recipe = get_recipe("digits", "fast")
    recipe = replace(recipe, method="kmeans", incremental=False, model=replace(recipe.model, networks=1, width=8))
    run = an.discover(data, out=tmp_path / "run", n_new=2, recipe=recipe, device="cpu", seed=3)
    pile = torch.from_numpy(classes[~data.is_labelled])
    trained = restore(run, Mode.of("cpu"))
    answers = trained.answer(data)
    unlabelled = torch.from_numpy(~data.is_labelled)
    expected = kmeans(answers.features[unlabelled], 2, seed=3)
    found = answers.new[unlabelled].argmax(1)
    assert torch.equal(found, expected.labels)
    torch.testing.assert_close(trained.net.heads["new"][0].centres, expected.centres)
    for c in range(3):
        mean = answers.features[torch.from_numpy(data.labels == c)].mean(0)
        torch.testing.assert_close(trained.net.heads["known"].centres[c], mean)
        # a labelled image belongs to the class with the nearest of all centres
    centres = torch.cat([trained.net.heads["known"].centres, expected.centres])
    assert torch.equal(answers.joint.argmax(1), torch.cdist(answers.features, centres).argmin(1))
    assert {m["stage"] for m in run.metrics} == {"supervised"}
    assert run.summary["method"] == "kmeans"
    assert len(pile.unique()) == 2


def test_an_unknown_method_is_refused_with_the_choices(tmp_path: Path) -> None:
    data = ImageSet.from_arrays(np.zeros((6, 16, 16), np.uint8), [0, 0, 1, 1, -1, -1])
    recipe = replace(get_recipe("digits", "fast"), method="kmean")
    with pytest.raises(InputError, match=r"--method is 'kmean'; choose one of .*kmeans.*did you mean kmeans"):
        an.discover(data, out=tmp_path / "run", n_new=2, recipe=recipe, device="cpu")
    assert not (tmp_path / "run").exists()
