"""Scores of the order of rows within each query: NDCG, average precision, swapped pairs, with intervals."""

from __future__ import annotations

import numpy as np

from streamsvm.data.store import Store
from streamsvm.metrics import quotient, ratio
from streamsvm.storage.text import JsonObject
from streamsvm.tasks.uncertainty import ResamplingUnits, shift


def ranked(store: Store, values: np.ndarray) -> JsonObject:
    """The scores of the order that values (n,) give the rows of each query, with intervals; of all rows without
    queries."""
    if store.qid is None:
        return ranking(store.y, values, np.zeros(store.n, np.int64))
    queries = np.unique(store.qid, return_inverse=True)[1]
    sums, units = query_sums(store.y, values, queries), ResamplingUnits(store, by_query=True)
    scores, rows = _scores(sums), np.bincount(queries)
    by_row = {name: (shift(*columns) / rows)[queries] for name, columns in sums.items()}
    influences = ((name, scores[name], units.summed(columns), 1.0) for name, columns in by_row.items())
    return scores | units.facts(influences)


def _scores(sums: dict[str, tuple[np.ndarray, np.ndarray]]) -> JsonObject:
    return {"queries": len(sums["map"][0]), **{name: quotient(*columns) for name, columns in sums.items()}}


def ranking(y: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> JsonObject:
    """How well scores (n,) order labels y (n,) inside groups, codes (n,) of queries: means over the queries.

    ndcg: over all rows of a query and at 1, 3, 5, 10; gains 2^grade - 1, discounts 1 / log2(1 + place). map: mean
    average precision, every grade above the lowest relevant. Both count a query without a relevant row as 0, as LETOR
    does. Rows with equal scores keep their order. swapped_pairs: share of the pairs that are in the wrong order, ties
    half, over all queries; kendall_tau: tau-b; both None without pairs. Grades are y if it holds whole numbers
    >= 0, else ranks.
    """
    return _scores(query_sums(y, scores, groups))


def query_sums(y: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The scores of `ranking`, each as two columns (queries,), of whose sums it is the quotient."""
    whole = y.dtype.kind in "biuf" and np.all((y >= 0) & (y == np.floor(y)) & (y < 64))
    grades = y.astype(np.float64) if whole else np.unique(y, return_inverse=True)[1].astype(np.float64)
    order = np.lexsort((-scores, groups))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    place = np.arange(len(y)) - np.repeat(starts, np.diff(np.append(starts, len(y)))) + 1
    best = grades[np.lexsort((-grades, groups))]
    cuts = {"ndcg": len(y)} | {f"ndcg@{cut}": cut for cut in (1, 3, 5, 10)}
    means = {name: _ndcg(grades[order], best, place, starts, cut) for name, cut in cuts.items()}
    means["map"] = _average_precision(grades[order] > grades.min(), place, starts)
    every = np.ones(len(starts))
    return {name: (values, every) for name, values in means.items()} | _pair_order(
        grades, scores, np.split(order, starts[1:])
    )


def _ndcg(grades: np.ndarray, best: np.ndarray, place: np.ndarray, starts: np.ndarray, cut: int) -> np.ndarray:
    discount = (place <= cut) / np.log2(1 + place)
    gained, most = (np.add.reduceat((2.0**g - 1) * discount, starts) for g in (grades, best))
    return ratio(gained, most)


def _average_precision(relevant: np.ndarray, place: np.ndarray, starts: np.ndarray) -> np.ndarray:
    total = np.cumsum(relevant)
    before = np.repeat(total[starts] - relevant[starts], np.diff(np.append(starts, len(place))))
    precision = relevant * (total - before) / place
    return ratio(np.add.reduceat(precision, starts), np.add.reduceat(relevant * 1.0, starts))


def _pair_order(
    grades: np.ndarray, scores: np.ndarray, queries: list[np.ndarray]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Swapped pairs and Kendall's tau of each query; tau gives the swapped pairs, by concordant minus discordant
    ones."""
    from scipy.stats import kendalltau  # it takes longer to load than all else that a fit needs

    tau, swapped, pairs = np.zeros((3, len(queries)))
    for i, rows in enumerate(queries):
        pairs[i], of_scores = _n_pairs(grades[rows]), _n_pairs(scores[rows])
        if pairs[i] and of_scores:
            tau[i] = kendalltau(grades[rows], scores[rows]).statistic
        swapped[i] = (pairs[i] - tau[i] * np.sqrt(pairs[i] * of_scores)) / 2
    return {"swapped_pairs": (swapped, pairs), "kendall_tau": (tau, (pairs > 0) * 1.0)}


def _n_pairs(values: np.ndarray) -> float:
    """The number of pairs of different values."""
    n, counts = len(values), np.unique(values, return_counts=True)[1].astype(np.float64)
    return (n**2 - float(counts @ counts)) / 2
