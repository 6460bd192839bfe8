"""Compare settings on known classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autonovel.api.discover import asked_for, given_of, read_images
from autonovel.api.run import Path_
from autonovel.base.errors import InputError, option
from autonovel.discovery.arguments import check_search
from autonovel.machine.cache_folder import user_cache
from autonovel.machine.device import Mode
from autonovel.machine.progress import Reporter, make_reporter
from autonovel.settings.fields import check
from autonovel.settings.recipe import Recipe
from autonovel.settings.resolve import Asked, resolve
from autonovel.tuning.result import Tuned
from autonovel.tuning.search import Search, to_compare
from autonovel.tuning.tasks import choose_splits, how_many_to_hide
from autonovel.tuning.tasks import hide as hide_classes


def tune(
    labelled: Any,
    unlabelled: Any = None,
    *,
    search: Mapping[str, Sequence[Any]],
    out: Path_,
    recipe: str | Recipe | Asked = "folder",
    preset: str = "paper",
    trials: int | None = None,
    splits: int = 4,
    hide: int | None = None,
    seeds: int = 1,
    n_new: int | None = None,
    with_pile: bool = False,
    halving: bool = True,
    together: int | None = None,
    seed: int = 0,
    device: str = "auto",
    cache: Path_ | None = None,
    verbose: bool = True,
    reporter: Reporter | None = None,
) -> Tuned:
    """Compare settings of a recipe on known classes: hide the labels of some, discover them, and score the answer.

    True classes of the unlabelled images are never asked for. Stages that trials have in common are trained once.

    Args:
        labelled: images of the known classes, in any form that :func:`discover` takes; there must be four classes or more.
        unlabelled: the images to be sorted later. They decide, with the others, what the recipe leaves to the data.
        search: fields of the recipe by name and the values to compare: ``{"joint.top_k": [1, 3, 5]}``. A name may be several
            joined by ``+``, which are given the same value.
        out: the folder of the search. The same call with the same folder continues where it stopped.
        recipe: name or :class:`~autonovel.settings.recipe.Recipe` to which the values are added.
        preset: paper, reference or fast.
        trials: how many combinations to try, chosen at random; all of them when left out.
        splits: how many different sets of classes are hidden, one after the other.
        hide: how many classes each of them has; as many as there are new ones, at most two fifths of the known ones, or a
            quarter of these where ``n_new`` is left out.
        seeds: how often each split is tried, with other randomness where classes are discovered.
        n_new: how many new classes the unlabelled images hold, where that is known.
        with_pile: keep the unlabelled images among the hidden ones, which makes the task as crowded as the real one; needs
            ``n_new``.
        halving: leave the worse half of the combinations out after 1, 2, 4, ... trials.
        together: trials at the same time; 4 on a GPU and 1 on a CPU when left out.
        seed: everything random depends on it.
        device: cpu, cuda or auto.
        cache: folder for decoded images and features; the user's cache folder when left out.
        verbose: show progress; False is silent.
        reporter: sees the progress, in place of what ``verbose`` shows.

    Returns:
        The table, the best recipe, and how far to trust it.
    """
    check_search(
        out=out,
        device=device,
        splits=splits,
        seeds=seeds,
        together=together,
        n_new=n_new,
        with_pile=with_pile,
        seed=seed,
    )
    seed = int(seed)
    shown = reporter if reporter is not None else make_reporter(verbose)
    asked = asked_for(recipe, preset)
    settings = asked.get()
    values = to_compare(search, trials, seed)
    for one in values:
        check(asked.with_values(one).get())  # refuses fields and values that there are not
    largest = max(search.get("model.size", [settings.model.size]), key=lambda size: size or math.inf)
    mode, folder = Mode.of(device), Path(cache) if cache is not None else user_cache()
    given = given_of(labelled, unlabelled, to_sort=False)
    data, resolved, problems = read_images(
        given, asked.with_values({"model.size": largest}), n_new, mode, folder, shown, least=0
    )
    hidden = hide if hide is not None else how_many_to_hide(data.n_known, n_new)
    if with_pile and data.is_labelled.all():
        raise InputError(
            f"{option('with_pile')} keeps the unlabelled images, but there are none; give some, or leave it out."
        )
    pile = (n_new or 0) if with_pile else 0
    job = Search(
        out=Path(out),
        recipe=settings,
        values=values,
        settle=lambda one: resolve(Asked.of(one), resolved.facts).recipe,
        tasks=[hide_classes(data, chosen, pile) for chosen in choose_splits(data.n_known, hidden, splits, seed)],
        seeds=range(seed, seed + seeds),
        mode=mode,
        reporter=shown,
        halving=halving,
        together=together or (4 if mode.device.type == "cuda" else 1),
        cache=folder / "features",
        problems=problems,
    )
    return job.go(data.n_known)
