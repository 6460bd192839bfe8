"""What is printed of a finished run."""

import numpy as np

from autonovel.cli.results import _scores
from autonovel.discovery.finish import plain
from autonovel.maths.metrics import joint_scores


def test_a_pile_without_old_images_of_which_some_were_called_old_is_printed() -> None:
    pile = plain(joint_scores(np.array([5, 5, 6, 6, 7]), np.array([5, 5, 6, 1, 7]), 5))
    lines = list(_scores({"acc_new": 0.8, "nmi_new": 0.7, "ari_new": 0.6, "pile": pile}))
    assert lines[1] == "mixed pile, one matching of all its classes: all 80.0%  new 80.0%"
