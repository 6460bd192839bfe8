"""Folders of the first version, in which weights files did not say what network they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def upgraded_recipe(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe of any version in the form of this one: settings that moved are put where they are now."""
    recipe = {name: dict(part) if isinstance(part, Mapping) else part for name, part in recipe.items()}
    swap = dict(recipe.get("joint", {}).get("swap", {}))
    if "temperature" in swap:
        recipe["model"]["temperature"] = swap.pop("temperature")
    if swap.get("divergence"):
        swap.setdefault("divergence_form", "whole")  # the only one that there was
    if swap:
        recipe["joint"]["swap"] = swap
    return recipe


def describe_network(config: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """What :meth:`autonovel.models.net.Net.describe` would have said of a network, from its settings and weights."""
    recipe, data = upgraded_recipe(config["run"]["recipe"]), config["run"]["data"]
    model, joint = recipe["model"], recipe["joint"]
    height, _, channels = data["shape"]
    n_known, n_features = len(data["class_names"]), 0
    heads: dict[str, dict[str, Any]] = {}
    if n_known:
        weight = _last_weight(state, "heads.known.")
        known = {"kind": model["head"], "outputs": weight.shape[0], "temperature": model["temperature"]}
        n_features = (state.get("heads.known.0.weight", weight)).shape[1]
        heads["known"] = known | {"inputs": n_features, "extended_by": weight.shape[0] - n_known}
    for name in ("new", "over"):
        classes = state.get(f"heads.{name}.classes")
        if classes is not None:
            swap = joint["swap"]
            inputs = state[f"heads.{name}.hidden.0.weight"].shape[1]
            spec = {"count": swap["heads"], "hidden": swap["hidden"], "projection": swap["projection"]}
            spec |= {"kind": "projected", "inputs": inputs, "outputs": classes.shape[1]}
            heads[name] = spec | {"temperature": model["temperature"]}
        elif any(key.startswith(f"heads.{name}.") for key in state):
            weight = _last_weight(state, f"heads.{name}.")
            inputs = state.get(f"heads.{name}.0.0.weight", weight).shape[1]
            spec = {"kind": model["head"], "inputs": inputs, "outputs": weight.shape[0], "stacked": True}
            heads[name] = spec | {"temperature": model["temperature"]}
    return {"model": model, "channels": channels, "size": model["size"] or height, "heads": heads}


def _last_weight(state: Mapping[str, Any], prefix: str) -> Any:
    """The weight matrix of the last layer below a prefix."""
    names = [name for name in state if name.startswith(prefix) and name.endswith("weight") and state[name].ndim == 2]
    return state[max(names)]
