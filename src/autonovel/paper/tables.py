"""The thirteen tables and the curves of the paper: its figures, and how each is measured here. Imports no torch.

A table is one list of rows. What the paper leaves open and how we read it stands in its notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autonovel.data.benchmarks.alphabets import EVALUATION_ALPHABETS
from autonovel.paper.cells import (
    MeanError,
    NotPlanned,
    Plan,
    Quoted,
    Row,
    Table,
    Way,
    Ways,
    by_column,
    quoted,
    table,
)

# ---- Ways to measure

SMALL_SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "svhn": "SVHN"}
LARGE_SETS = {"omniglot:*": "OmniGlot", "imagenet:*": "ImageNet"}

NO_PRETRAINING = {"pretrain.method": "none", "supervised.train_from": "all"}
"""Trained from scratch on the known classes: what the paper calls "w/o S.S." and its rows without self-supervision."""


def ours(changes: Mapping[str, Any] | None = None, score: str = "acc_new", **more: Any) -> Ways:
    """A run with the recipe of the column's data."""
    return lambda column: Plan(column, column.partition(":")[0], dict(changes or {}), score=score, **more)


def compared(method: str, changes: Mapping[str, Any] | None = None, **more: Any) -> Ways:
    """One of the methods that the paper compares, in the same frame."""
    return ours({"method": method, **(changes or {})}, **more)


def increment(method: str = "") -> Ways:
    """A row of the incremental table, whose columns are a data set and a part of its test split."""

    def way(column: str) -> Way:
        data, _, part = column.partition(" ")
        own = {"method": method} if method else {}
        return Plan(data, data, {**own, "incremental": True}, score=f"test.separate.{part}")

    return way


def _classes(data: str) -> Ways:
    """How many classes there are, which takes no run."""
    if data == "imagenet":
        known = Plan("imagenet:A", data, score="classes.labelled")
        return by_column(
            {"labelled": known, "unlabelled": NotPlanned("the three parts of 30 classes were drawn from them")}
        )
    return lambda column: Plan(data, data, score=f"classes.{column}")


# ---- The main tables

SPLITS = table(
    "splits", "datasplit", "Data splits",
    {"labelled": "labelled classes", "unlabelled": "unlabelled classes"},
    {
        name: Row(title, figures, _classes(name))
        for name, title, figures in (
            ("cifar10", "CIFAR-10", "5 5"), ("cifar100", "CIFAR-100", "80 20"), ("svhn", "SVHN", "5 5"),
            ("omniglot", "OmniGlot", "964 659"), ("imagenet", "ImageNet", "882 118"),
        )
    },
    unit="classes",
    notes=("The text says 654 classes of OmniGlot once.",),
)  # fmt: skip

ABLATION = table(
    "ablation", "ablation_unlabelled", "Ablation", SMALL_SETS,
    {
        "no-mse": Row("Ours w/o MSE", "82.6±12.0 61.8±3.6 61.3±1.9", ours({"joint.consistency": 0.0})),
        "no-ce": Row("Ours w/o CE", "84.7±4.4 58.4±2.7 59.7±6.6", ours({"joint.known_weight": 0.0})),
        "no-bce": Row("Ours w/o BCE", "26.2±2.0 6.6±0.7 24.5±0.5", ours({"joint.pair_weight": 0.0})),
        "no-ss": Row("Ours w/o S.S.", "89.4±1.4 67.4±2.0 72.9±5.0", ours(NO_PRETRAINING)),
        "full": Row("Ours full", "90.4±0.5 73.2±2.1 95.0±0.2", ours()),
        "incremental": Row("Ours w/ I.L.", "91.7±0.9 75.2±4.2 95.2±0.3", ours({"incremental": True})),
    },
    runs=10,
    notes=("Without self-supervision the whole network is trained on the known classes; the paper does not say which blocks.",),
)  # fmt: skip

COMPARISON = table(
    "comparison", "comparison", "Novel category discovery", SMALL_SETS,
    {
        "kmeans": Row("k-means", "65.5±0.0 56.6±1.6 42.6±0.0", compared("kmeans", NO_PRETRAINING)),
        "kcl": Row("KCL", "66.5±3.9 14.3±1.3 21.4±0.6", compared("kcl", NO_PRETRAINING)),
        "mcl": Row("MCL", "64.2±0.1 21.3±3.4 38.6±10.8", compared("mcl", NO_PRETRAINING)),
        "dtc": Row("DTC", "87.5±0.3 56.7±1.2 60.9±1.6", compared("dtc", NO_PRETRAINING)),
        "kmeans-ss": Row("k-means w/ S.S.", "72.5±0.0 56.3±1.7 46.7±0.0", compared("kmeans")),
        "kcl-ss": Row("KCL w/ S.S.", "72.3±0.2 42.1±1.8 65.6±4.9", compared("kcl", {"incremental": True})),
        "mcl-ss": Row("MCL w/ S.S.", "70.9±0.1 21.5±2.3 53.1±0.3", compared("mcl", {"incremental": True})),
        "dtc-ss": Row("DTC w/ S.S.", "88.7±0.3 67.3±1.2 75.7±0.4", compared("dtc", {"incremental": True})),
        "full": Row("Ours", "90.4±0.5 73.2±2.1 95.0±0.2", ours()),
        "incremental": Row("Ours w/ I.L.", "91.7±0.9 75.2±4.2 95.2±0.2", ours({"incremental": True})),
    },
    runs=10,
    notes=(
        "KCL and MCL have no published settings for these data: see the settings of the methods.",
        "The paper shows the best variant of DTC on each data set; here it is pi.",
    ),
)  # fmt: skip

NOTHING_BEFORE = {"pretrain.method": "none", "supervised.epochs": 0}
"""Both networks of KCL and MCL begin with random weights on OmniGlot; the first stages would serve the estimate alone."""


def _paired(method: str, n_new: Any) -> Ways:
    def way(column: str) -> Way:
        alone = NOTHING_BEFORE if column.startswith("omniglot") else {}
        return compared(method, alone, n_new=n_new)(column)

    return way


MANY_CLASSES = table(
    "many-classes", "comparison_omniglot_imagenet", "OmniGlot and ImageNet", LARGE_SETS,
    {
        "kmeans": Row("k-means", "77.2 71.9", compared("kmeans")),
        "kcl": Row("KCL", "82.4 73.8", _paired("kcl", "true")),
        "mcl": Row("MCL", "83.3 74.4", _paired("mcl", "true")),
        "dtc": Row("DTC", "89.0 78.3", compared("dtc")),
        "full": Row("Ours", "89.1 82.5", ours()),
    },
)  # fmt: skip

_PARTS = {f"{data} {part}": f"{title} {part}" for data, title in SMALL_SETS.items() for part in ("old", "new", "all")}
INCREMENTAL = table(
    "incremental", "increment", "Incremental learning, test split", _PARTS,
    {
        "kcl-ss": Row("KCL w/ S.S.", "79.4±0.6 60.1±0.6 69.8±0.1 23.4±0.3 29.4±0.3 24.6±0.2 90.3±0.3 65.0±0.5 81.0±0.1",
                      increment("kcl")),
        "mcl-ss": Row("MCL w/ S.S.", "81.4±0.4 64.8±0.4 73.1±0.1 18.2±0.3 18.0±0.1 18.2±0.2 94.0±0.2 48.6±0.3 77.2±0.1",
                      increment("mcl")),
        "dtc-ss": Row("DTC w/ S.S.", "58.7±0.6 78.6±0.2 68.7±0.3 47.6±0.2 49.1±0.2 47.9±0.2 90.5±0.3 72.8±0.2 84.0±0.1",
                      increment("dtc")),
        "incremental": Row("Ours w/ I.L.", "90.6±0.2 88.8±0.2 89.7±0.1 71.2±0.1 56.8±0.3 68.3±0.1 96.3±0.1 96.1±0.0 96.2±0.1",
                           increment()),
    },
    runs=10,
    notes=("Old, new and all are each matched on their own, as the paper does; the summary has the other rules too.",),
)  # fmt: skip

# ---- The number of classes

_L2C, _MCL = "Hsu et al. 2018", "Hsu et al. 2019"
_COUNTS = {
    "Angelic": "20 16 26 22 23", "Atemayar_Qelisayer": "26 17 34 26 25", "Atlantean": "26 21 41 25 34",
    "Aurek-Besh": "26 14 28 22 34", "Avesta": "26 8 32 23 31", "Ge_ez": "26 18 32 25 31", "Glagolitic": "45 18 45 36 46",
    "Gurmukhi": "45 12 43 31 34", "Kannada": "41 19 44 30 40", "Keble": "26 16 28 23 25", "Malayalam": "47 12 47 35 42",
    "Manipuri": "40 17 41 33 39", "Mongolian": "30 28 36 29 33", "Old_Church_Slavonic_(Cyrillic)": "45 23 45 38 51",
    "Oriya": "46 22 49 32 33", "Sylheti": "28 11 50 30 22", "Syriac_(Serto)": "23 19 38 24 26", "Tengwar": "25 12 41 26 28",
    "Tibetan": "42 15 42 34 43", "ULOG": "26 15 40 27 33",
}  # fmt: skip


def _counted(alphabet: str) -> Ways:
    data = f"omniglot:{alphabet}"
    used = {
        name: Plan(data, "omniglot", {"method": name, **NOTHING_BEFORE}, n_new=100, score="n_new_used")
        for name in ("kcl", "mcl")
    }
    own = Plan(data, "omniglot", n_new="auto", score="n_new_estimated", until="estimate")
    return by_column(
        {"true": Plan(data, "omniglot", score="classes.unlabelled"), "skms": Quoted(_MCL), **used, "full": own}
    )


NUMBER_OMNIGLOT = table(
    "number-omniglot", "omniglot_k_est", "Number of classes, OmniGlot",
    {"true": "true number", "skms": "SKMS", "kcl": "KCL", "mcl": "MCL", "full": "Ours"},
    {
        **{name: Row(name.replace("_", " "), _COUNTS[name], _counted(name)) for name in EVALUATION_ALPHABETS},
        "error": Row("mean error", "- 16.3 6.35 5.10 4.60", by_column(
            {"true": NotPlanned("nothing to measure"), "skms": Quoted(_MCL), "kcl": MeanError(), "mcl": MeanError(),
             "full": MeanError()})),
    },
    unit="classes",
    notes=("KCL and MCL are given 100 outputs; those with at least as many images as the mean output are counted.",),
)  # fmt: skip


def _imagenet_count(part: str) -> Ways:
    data = f"imagenet:{part}"
    count_plan = Plan(data, "imagenet", n_new="auto", score="n_new_estimated", until="estimate")
    return by_column(
        {"true": Plan(data, "imagenet", score="classes.unlabelled"), "full": count_plan, "error": MeanError()}
    )


NUMBER_IMAGENET = table(
    "number-imagenet", "imagenet_k_est", "Number of classes, ImageNet",
    {"true": "true number", "full": "Ours", "error": "error"},
    {
        **{part: Row(f"ImageNet {part}", figures, _imagenet_count(part))
           for part, figures in (("A", "30 34 4"), ("B", "30 31 1"), ("C", "30 32 2"))},
        "error": Row("mean error", "- - 2.33", by_column(
            {"true": NotPlanned("nothing to measure"), "full": NotPlanned("nothing to measure"), "error": MeanError()})),
    },
    unit="classes",
)  # fmt: skip


UNKNOWN_NUMBER = table(
    "unknown-number", "comparison_unknown", "Unknown number of classes", LARGE_SETS,
    {
        "kmeans": Row("k-means", "18.9 34.5", quoted(_MCL)),
        "lpnmf": Row("LPNMF", "16.3 21.8", quoted(_MCL)),
        "lsc": Row("LSC", "18.0 33.5", quoted(_MCL)),
        "kcl-100": Row("KCL", "78.1 65.2", _paired("kcl", 100)),
        "mcl-100": Row("MCL", "80.2 71.5", _paired("mcl", 100)),
        "kcl": Row("KCL w/ our number", "80.3 71.4", compared("kcl", n_new="auto")),
        "mcl": Row("MCL w/ our number", "80.5 72.9", compared("mcl", n_new="auto")),
        "dtc": Row("DTC w/ our number", "87.0 77.6", compared("dtc", n_new="auto")),
        "full": Row("Ours", "85.4 80.5", ours(n_new="auto")),
    },
)  # fmt: skip

# ---- Studies

_IMAGENET = {"model.backbone": "efficientnet-lite0", "pretrain.method": "none"}
TRANSFER = table(
    "transfer", "imagenet_transfer", "From ImageNet to small images", SMALL_SETS,
    {
        "kmeans": Row("k-means", "92.4 78.8 23.4", compared("kmeans", {**_IMAGENET, "supervised.epochs": 0})),
        "full": Row("Ours", "95.4 87.1 40.2", ours(_IMAGENET)),
        "incremental": Row("Ours w/ I.L.", "96.1 90.9 38.8", ours({**_IMAGENET, "incremental": True})),
    },
    notes=("With the packaged EfficientNet-Lite0; the paper's ResNet-18 has weights that must be downloaded.",),
)  # fmt: skip

THRESHOLDS = {"cifar10": 0.85, "cifar100": 0.8, "svhn": 0.9}
"""The cosine that the paper took for each data set."""


def _pairs(rule: str, **more: Any) -> Ways:
    return ours({"joint.pairs": rule, **{f"joint.{name}": value for name, value in more.items()}})


def _cosine(column: str) -> Way:
    return _pairs("cosine", threshold=THRESHOLDS[column])(column)


PAIRS = table(
    "pairs", "diff_pairwise", "Pair labels", SMALL_SETS,
    {
        "kmeans-batch": Row("k-means (batch)", "42.9 74.3 45.3", _pairs("kmeans-batch")),
        "kmeans-all": Row("k-means (all)", "62.2 55.5 61.5", _pairs("kmeans-all")),
        "cosine": Row("cosine", "90.1 73.3 95.0", _cosine),
        "nearest": Row("nearest neighbour", "90.2 69.7 78.2", _pairs("nearest")),
        "rank": Row("ranking statistics", "90.4 73.2 95.0", ours()),
        "soft-5": Row("soft ranking, k = 5", "62.2 65.2 72.5", _pairs("soft", top_k=5)),
        "soft-15": Row("soft ranking, k = 15", "89.7 71.1 95.2", _pairs("soft", top_k=15)),
    },
    notes=("The paper does not say how often k-means (all) is run; here before every epoch.",),
)  # fmt: skip

_FIRST = {"simclr": "SimCLR", "moco": "MoCo", "moco-v2": "MoCo v2", "rotation": "RotNet"}


def _first(method: str) -> dict[str, Any]:
    return {} if method == "rotation" else {"pretrain.method": method}


def _raw(method: str) -> Ways:
    return compared("kmeans", {**_first(method), "supervised.epochs": 0})


PRETRAINING = table(
    "pretraining", "diff_selfsup", "Self-supervised learning", SMALL_SETS,
    {
        **{f"kmeans-{name}": Row(f"k-means, {title}", figures, _raw(name)) for (name, title), figures in zip(
            _FIRST.items(), ("84.7 41.2 30.6", "58.7 34.5 21.3", "61.8 39.3 28.5", "25.5 10.3 31.7"), strict=True)},
        **{name: Row(f"Ours, {title}", figures, ours(_first(name))) for (name, title), figures in zip(
            _FIRST.items(), ("89.0 54.6 67.8", "87.6 61.1 74.6", "89.0 62.5 76.6", "90.4 73.2 95.0"), strict=True)},
    },
)  # fmt: skip

DEPTHS = {
    "heads": "heads",
    "layer4": "layer 4",
    "layer3": "layer 3",
    "layer2": "layer 2",
    "layer1": "layer 1",
    "all": "layer 0",
}


def _from_depth(method: str) -> Ways:
    def way(column: str) -> Way:
        depth = {} if column == "layer4" else {"supervised.train_from": column, "joint.train_from": column}
        return Plan("cifar10", "cifar10", {**_first(method), **depth})

    return way


DEPTH = table(
    "depth", "different_layer", "Blocks that are trained, CIFAR-10", DEPTHS,
    {
        name: Row(_FIRST[name], figures, _from_depth(name))
        for name, figures in (
            ("rotation", "39.9 90.4 90.8 88.4 89.3 88.9"), ("simclr", "73.1 89.0 89.1 89.5 90.4 88.6"),
            ("moco", "80.8 87.6 88.8 89.3 90.4 89.5"), ("moco-v2", "84.6 89.0 89.5 89.0 90.3 89.2"),
        )
    },
)  # fmt: skip

_CLUSTERED = {"cifar10-both": "CIFAR-10", "cifar100-20-both": "CIFAR-100-20", "stl10-both": "STL-10"}


def _cluster(changes: Mapping[str, Any] | None = None) -> Ways:
    return lambda column: Plan(column, "cluster", dict(changes or {}), labelled=False)


CLUSTERING = table(
    "clustering", "clustering", "Clustering without labels", _CLUSTERED,
    {
        "pixels": Row("k-means", "22.9 13.0 19.2",
                      _cluster({"method": "kmeans", "model.backbone": "pixels", "pretrain.method": "none"})),
        "jule": Row("JULE", "27.2 13.7 27.7", quoted("Yang et al. 2016, by way of Chang et al. 2017")),
        "dec": Row("DEC", "30.1 18.5 35.9", quoted("Xie et al. 2016, by way of Chang et al. 2017")),
        "dac": Row("DAC", "52.2 23.8 47.0", quoted("Chang et al. 2017")),
        "iic": Row("IIC", "61.7 25.7 59.6", quoted("Ji et al. 2019")),
        "kmeans": Row("k-means on S.S.", "14.3 8.8 15.7", _cluster({"method": "kmeans"})),
        "no-ss": Row("Ours w/o S.S.", "18.8 13.0 22.7", _cluster({"pretrain.method": "none"})),
        "no-mse": Row("Ours w/o MSE", "57.7 31.6 48.6", _cluster({"joint.consistency": 0.0})),
        "full": Row("Ours", "61.7 35.0 56.4", _cluster()),
    },
    notes=(
        "Training and test images together, as in the literature; the paper does not say which it used.",
        "Weight and ramp of consistency are those of CIFAR-10; the paper does not say.",
        "Without self-supervision the frozen blocks keep their random weights.",
    ),
)  # fmt: skip

# ---- Curves, of which the paper gives no numbers

TOP_K, TAU = (1, 2, 3, 5, 7, 10, 15, 20, 50), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97)
NUMBERS = (20, 25, 30, 35, 40, 50, 60, 80, 100)


def _swept(data: str, field: str, values: tuple[float, ...], **others: Any) -> Ways:
    usual = {"joint.top_k": 5}
    changes = {str(v): {**others, **({} if usual.get(field) == v else {field: v})} for v in values}
    return lambda column: Plan(data, data, changes[column])


def _curve(values: tuple[float, ...]) -> dict[str, str]:
    return {str(value): str(value) for value in values}


FIGURE_K = table(
    "figure-k", "k", "ACC over k of ranking statistics", _curve(TOP_K),
    {data: Row(title, "", _swept(data, "joint.top_k", TOP_K)) for data, title in SMALL_SETS.items()},
    axis="k",
)  # fmt: skip

FIGURE_TAU = table(
    "figure-tau", "cosine", "ACC over the threshold of cosine similarity", _curve(TAU),
    {data: Row(title, "", _swept(data, "joint.threshold", TAU, **{"joint.pairs": "cosine"}))
     for data, title in SMALL_SETS.items()},
    axis="threshold",
)  # fmt: skip


def _wrong_number(method: str) -> Ways:
    own = {"method": method} if method else {}
    return lambda column: Plan("imagenet:A", "imagenet", own, n_new=int(column))


FIGURE_NUMBER = table(
    "figure-number", "cluster_number", "ACC over the number of clusters, ImageNet A", _curve(NUMBERS),
    {name: Row(title, "", _wrong_number(method))
     for name, title, method in (("kcl", "KCL", "kcl"), ("mcl", "MCL", "mcl"), ("dtc", "DTC", "dtc"), ("full", "Ours", ""))},
    axis="clusters",
)  # fmt: skip

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        SPLITS, ABLATION, COMPARISON, MANY_CLASSES, INCREMENTAL, NUMBER_OMNIGLOT, NUMBER_IMAGENET, UNKNOWN_NUMBER, TRANSFER,
        PAIRS, PRETRAINING, DEPTH, CLUSTERING,
    )
}  # fmt: skip
"""The tables by name, in the paper's order."""

CURVES: Mapping[str, Table] = {table.name: table for table in (FIGURE_K, FIGURE_TAU, FIGURE_NUMBER)}
"""The curves by name."""

PICTURES: Mapping[str, tuple[str, tuple[Plan, ...]]] = {
    "tsne": (
        "t-SNE of the unlabelled images of CIFAR-10 at the start, after 30 and after 90 epochs",
        (Plan("cifar10", "cifar10"),),
    ),
    "curves": (
        "ACC over the epochs on CIFAR-10, without and with incremental learning",
        (Plan("cifar10", "cifar10"), Plan("cifar10", "cifar10", {"incremental": True})),
    ),
    "tsne-incremental": (
        "t-SNE of old and new classes of CIFAR-10, without and with incremental learning",
        (Plan("cifar10", "cifar10"), Plan("cifar10", "cifar10", {"incremental": True})),
    ),
    "confusion": (
        "Confusion on the new classes of CIFAR-10, without and with incremental learning",
        (Plan("cifar10", "cifar10"), Plan("cifar10", "cifar10", {"incremental": True})),
    ),
    "confusion-clustering": ("Confusion of clustering, CIFAR-10", (Plan("cifar10-both", "cluster", labelled=False),)),
    "ranking": (
        "Precision and recall of 'alike' over the epochs, for each rule of pair labels",
        tuple(cell.way for cell in PAIRS.cells if cell.column == "cifar10" and isinstance(cell.way, Plan)),
    ),
}
"""Pictures of runs: what they show, and the runs. Those of ACC and of the rules are not in the paper: the last one
explains its table of pair labels."""

NUMBERED: Mapping[str, str] = {f"table{number}": name for number, name in enumerate(TABLES, 1)}
"""Tables by their number in the paper."""
