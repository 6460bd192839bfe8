"""The pair rules, for anyone's own training loop."""

from autonovel.maths.pairs import PAIR_RULES, rank_statistics, top_k_sets

__all__ = ["PAIR_RULES", "rank_statistics", "top_k_sets"]
