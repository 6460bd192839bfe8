"""The pair rules, for anyone's own training loop."""

from autonovel.maths.pairs import (
    PAIR_RULES,
    PairInput,
    PairRule,
    cluster_batch,
    cosine_pairs,
    nearest_pairs,
    rank_statistics,
    same_cluster,
    soft_rank_statistics,
    top_k_sets,
)

__all__ = [
    "PAIR_RULES",
    "PairInput",
    "PairRule",
    "cluster_batch",
    "cosine_pairs",
    "nearest_pairs",
    "rank_statistics",
    "same_cluster",
    "soft_rank_statistics",
    "top_k_sets",
]
