"""Which plan of the paper each line of an earlier experiment measured, written down by hand.

Those lines have no key: they are shown with their commit and never resumed. Where a plan was run again, the newest line is
shown.
"""

from __future__ import annotations

from autonovel.data.benchmarks.alphabets import EVALUATION_ALPHABETS
from autonovel.paper.cells import Plan, Table
from autonovel.paper.measured import Earlier
from autonovel.paper.tables import (
    ABLATION,
    CLUSTERING,
    DEPTH,
    INCREMENTAL,
    NUMBER_OMNIGLOT,
    PAIRS,
    PRETRAINING,
    TRANSFER,
)

_ACC = {"acc_new": "acc_new"}
_TEST = {f"test.separate.{part}": f"test.separate.{part}" for part in ("old", "new", "all")}
_ALL = {**_ACC, **_TEST}
_FIRST = ("rotation", "simclr", "moco", "moco-v2")


def _plan(table: Table, row: str, column: str) -> Plan:
    cell = table.cell(row, column)
    assert cell is not None
    assert isinstance(cell.way, Plan)
    return cell.way


def _cifar() -> list[Earlier]:
    earlier = []
    for data, full, incremental in (("cifar10", "eb9c91d", "25a91c0"), ("cifar100", "f03ac04", "f03ac04")):
        runs = tuple(f"paper-{data}-seed{seed}" for seed in range(3))
        plain = {"run": runs, "commit": full}
        earlier += [
            Earlier("cifar", plain, _plan(ABLATION, "full", data), _ALL),
            Earlier("cifar", plain, Plan(data, data, {"method": "kmeans"}), {"acc_new": "kmeans.supervised_features"}),
            Earlier("cifar", {"run": f"paper-{data}-il-seed0", "commit": incremental},
                    _plan(INCREMENTAL, "incremental", f"{data} all"), _ALL),
        ]  # fmt: skip
        frozen = {"run": f"features-{data}-seed0", "commit": {"cifar10": "80ab936", "cifar100": "faff029"}[data]}
        earlier.append(
            Earlier("cifar", frozen, _plan(TRANSFER, "kmeans", data), {"acc_new": "kmeans.supervised_features"})
        )
    runs = tuple(f"fast-cifar10-il-seed{seed}" for seed in range(3))
    earlier.append(
        Earlier(
            "cifar", {"run": runs, "commit": "0927a80"}, _plan(INCREMENTAL, "incremental", "cifar10 all"), _ALL, "fast"
        )
    )
    rows = {"full": ("full", "f03ac04"), "no-consistency": ("no-mse", "2689e68"), "no-rotation": ("no-ss", "2689e68")}
    earlier += [
        Earlier("cifar", {"run": f"cluster-cifar10-{name}", "commit": commit}, _plan(CLUSTERING, row, "cifar10-both"), _ACC,
                note="training images alone")
        for name, (row, commit) in rows.items()
    ]  # fmt: skip
    return earlier


def _choices() -> list[Earlier]:
    rows = {"pairs": {row: _plan(PAIRS, row, "cifar10") for row in PAIRS.rows}}
    rows["pretraining"] = {row: _plan(PRETRAINING, row, "cifar10") for row in _FIRST}
    for name in ("rotation", "simclr"):
        table = "depth" if name == "rotation" else f"depth-{name}"
        rows[table] = {column: _plan(DEPTH, name, column) for column in DEPTH.columns}
    earlier = [
        Earlier("choices", {"table": table, "row": row}, plan, _ALL, "fast")
        for table, plans in rows.items()
        for row, plan in plans.items()
    ]
    raw = {row: _plan(PRETRAINING, f"kmeans-{row}", "cifar10") for row in _FIRST}
    return earlier + [
        Earlier("choices", {"table": "pretraining", "row": row}, plan, {"acc_new": "acc_raw"}, "fast")
        for row, plan in raw.items()
    ]


def _omniglot() -> list[Earlier]:
    """With the true number, one network of the authors' schedule over two commits; with the estimated one, another network."""
    earlier = []
    for alphabet in EVALUATION_ALPHABETS:
        data = f"omniglot:{alphabet}"
        own = {"alphabet": alphabet, "commit": ("4483efa", "0927a80")}
        counted = _plan(NUMBER_OMNIGLOT, alphabet, "full")
        earlier += [
            Earlier("omniglot", own, Plan(data, "omniglot"), {"acc_new": "acc_true"}),
            Earlier("omniglot", own, Plan(data, "omniglot", {"method": "kmeans"}), {"acc_new": "kmeans.pretrain"}),
            Earlier("omniglot", own, counted, {"n_new_estimated": "n_estimated"}),
            Earlier(
                "omniglot",
                {**own, "commit": "2689e68"},
                counted,
                {"acc_new": "acc_estimated"},
                note="a shorter first stage, then a supervised one",
            ),
        ]
    return earlier  # fmt: skip


EARLIER: tuple[Earlier, ...] = (*_cifar(), *_choices(), *_omniglot())
"""Every earlier line that a cell shows."""
