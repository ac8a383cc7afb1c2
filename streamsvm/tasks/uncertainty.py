"""Standard errors and intervals of scores, as rows were drawn at random one by one, or in whole groups.

A score of n rows moves by u_i with row i, its influence, sum_i u_i = 0. If rows are drawn one by one, its variance is
sum_i u_i^2. If groups are drawn whole, it is sum_g (sum_{i in g} u_i)^2 (Liang and Zeger 1986). Each is multiplied by
G / (G - 1), G the number of units drawn. The influence on the area under the ROC curve is that of DeLong, DeLong and
Clarke-Pearson (1988), by groups of Obuchowski (1997)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from streamsvm.data.store import Store
from streamsvm.metrics import ScoreCounts, quotient
from streamsvm.storage.text import JsonObject

LEVEL = 0.95
MOST_SUMS = 4096  # units of a regression; each sums over as many rows as there are
MOST_ENTRIES = 1 << 19  # of these sums, if there is one for each label
LEAST_SUMS = 64
SHARES = ("accuracy", "balanced_accuracy", "roc_auc", "hamming_loss", "f1_micro", "f1_macro", "f1_samples")
ORDERS = ("ndcg", "ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "map", "swapped_pairs")
LOWEST = dict.fromkeys((*SHARES, "share_below", *ORDERS), 0.0) | {"kendall_tau": -1.0}  # of scores that are 1 at most


class ResamplingUnits:
    """The units that are drawn at random: the groups of a store, or its rows. codes (n,): the unit of each row, from 0
    to count - 1; None if units are rows."""

    def __init__(self, store: Store, most_units: int | None = None, *, by_query: bool = False) -> None:
        """most_units: if the store has more, each unit stands for several rows or groups. by_query: queries are units,
        if there are any and the store has no groups."""
        self.codes: np.ndarray | None = None
        count = store.n
        unit_of_row = store.qid if by_query and store.group is None else store.group
        if unit_of_row is not None:
            values, self.codes = np.unique(unit_of_row, return_inverse=True)
            count = len(values)
        self._groups = None if store.group is None else count
        self.count = min(count, most_units or count)
        if self.codes is not None and self.count < count:
            self.codes %= self.count

    def of_rows(self, start: int, stop: int) -> np.ndarray:
        """(m,) the units of rows start to stop."""
        return np.arange(start, stop) % self.count if self.codes is None else self.codes[start:stop]

    def summed(self, influence: np.ndarray) -> np.ndarray:
        """(count,) the influence of each group, by that of its rows (n,)."""
        assert self.codes is not None
        return np.bincount(self.codes, influence, self.count)

    def facts(self, influences: Iterable[tuple[str, float | None, np.ndarray, np.ndarray | float]]) -> JsonObject:
        """`intervals`, and the number of groups that they are based on. influences: of each score its name, value, the
        influence of units, and the number of units with this influence. Empty if there is only one unit."""
        if self.count < 2:
            return {}
        records = [
            self._record(name, score, float(np.sqrt(np.sum(rows * influence**2) * self.count / (self.count - 1))))
            for name, score, influence, rows in influences
            if score is not None
        ]
        return {"intervals": records} | ({} if self._groups is None else {"groups": self._groups})

    def _record(self, name: str, score: float, error: float) -> JsonObject:
        from scipy.special import stdtrit

        t = float(stdtrit(self.count - 1, (1 + LEVEL) / 2))
        low, high = score - t * error, score + t * error
        if name in LOWEST:
            least, width = LOWEST[name], 1.0 - LOWEST[name]
            ends = _wilson((score - least) / width, error / width, t, self.count)
            low, high = (least + width * end for end in ends)
        return {"score": name, "value": score, "standard_error": error, "low": low, "high": high}


def _wilson(share: float, error: float, t: float, units: int) -> tuple[float, float]:
    """The ends of Wilson's interval (1927) for as many rows, drawn one by one, as would have this error; else for all
    units."""
    spread = share * (1 - share)
    rows = spread / error**2 if error > 0 and spread > 0 else float(units)
    centre, factor = share + t**2 / (2 * rows), 1 + t**2 / rows
    half = t * (spread / rows + (t / (2 * rows)) ** 2) ** 0.5
    return max(0.0, (centre - half) / factor), min(1.0, (centre + half) / factor)


def merged(*scores: JsonObject) -> JsonObject:
    """Scores of several kinds as one dict, with all of their intervals."""
    records = [row for part in scores for row in part.get("intervals", ())]
    merged = {name: value for part in scores for name, value in part.items()}
    return merged | ({"intervals": records} if records else {})


def drawn_units(scores: JsonObject) -> str:
    """The units that intervals of scores are based on, in words."""
    if "groups" in scores:
        return f"{scores['groups']:,} groups"
    return f"{scores['queries']:,} queries" if scores.get("queries", 1) > 1 else "rows"


def shift(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """(units,) the influence of each unit on the quotient of the sums of both columns; 0 if the second sum is 0."""
    score = quotient(part, whole)
    return np.zeros(len(part)) if score is None else (part - score * whole) / whole.sum()


class LabelErrors:
    """Intervals of scores of labels: from counts of rows, or from all rows if groups are drawn."""

    def __init__(self, store: Store, k: int, *, by_query: bool = False) -> None:
        self._units, self._k, n = ResamplingUnits(store, by_query=by_query), k, store.n
        has_groups = self._units.codes is not None
        self._kinds = np.empty(n if has_groups else 0, np.int32)  # k true + predicted; k k: of no known class
        self._values = np.empty(n if has_groups and k == 2 else 0)

    def add(self, start: int, truth: np.ndarray, predicted: np.ndarray, values: np.ndarray) -> None:
        """Adds rows from `start` on: codes (m,) of classes, the true one -1 if it is not known, and decision values."""
        rows = slice(start, start + len(truth))
        if len(self._kinds):
            self._kinds[rows] = np.where(truth < 0, self._k**2, truth * self._k + predicted)
        if len(self._values):
            self._values[rows] = values

    def facts(
        self, summary: JsonObject, counts: np.ndarray, costs: np.ndarray | None, order: ScoreCounts | None
    ) -> JsonObject:
        """See `ResamplingUnits.facts`. counts (k, k): rows by true and predicted class; order: of two classes, of all
        rows."""
        n_known, influences = int(counts.sum()), []
        rows = np.append(counts, summary["n"] - n_known)
        for name, influence in label_influences(counts, summary["n"], costs).items():
            per_unit = (
                (influence, rows) if self._units.codes is None else (self._units.summed(influence[self._kinds]), 1.0)
            )
            influences.append((name, summary[name], *per_unit))
        if order is not None and summary["roc_auc"] is not None:
            influence = order.influences()
            if self._units.codes is None:
                influences.append(("roc_auc", summary["roc_auc"], influence, order.counts))
            else:
                is_known = self._kinds < self._k**2
                of_rows = np.zeros(len(is_known))
                of_rows[is_known] = influence[self._kinds[is_known] // self._k, order.places(self._values[is_known])]
                influences.append(("roc_auc", summary["roc_auc"], self._units.summed(of_rows), 1.0))
        return self._units.facts(influences)


def label_influences(counts: np.ndarray, n: int, costs: np.ndarray | None) -> dict[str, np.ndarray]:
    """(k k + 1,) by score: the influence of a row by its true and predicted class, and of a row of an unknown class,
    which is wrong and counts in no other score."""
    is_right, rows, n_known = np.eye(len(counts)), counts.sum(axis=1), counts.sum()
    weight = np.divide(1.0, rows, where=rows > 0, out=np.zeros(len(counts))) / np.count_nonzero(rows)
    recall = np.diag(counts) / np.maximum(rows, 1)
    accuracy = np.trace(counts) / n
    by_score = {
        "accuracy": np.append(is_right - accuracy, -accuracy) / n,
        "balanced_accuracy": np.append((is_right - recall[:, None]) * weight[:, None], 0.0),
    }
    if costs is not None:
        by_score["cost"] = np.append(costs - np.sum(counts * costs) / n_known, 0.0) / n_known
    return by_score


class MeanErrors:
    """Intervals of means over rows, of which some count."""

    def __init__(self, store: Store, names: tuple[str, ...], *, by_query: bool = False) -> None:
        self._units, self._names = ResamplingUnits(store, MOST_SUMS, by_query=by_query), names
        self._sums = np.zeros((1 + len(names), self._units.count))  # rows, then each score

    def add(self, start: int, counts: np.ndarray, values: Iterable[np.ndarray]) -> None:
        """Adds rows from `start` on, which count if `counts` (m,) is true, and the values of those, by score."""
        units = self._units.of_rows(start, start + len(counts))[counts]
        _gather(self._sums, units, (np.ones(len(units)), *values))

    def facts(self, scores: JsonObject) -> JsonObject:
        """See `ResamplingUnits.facts`."""
        rows, *sums = self._sums
        named = zip(self._names, sums, strict=True)
        return self._units.facts((name, scores[name], shift(total, rows), 1.0) for name, total in named)


class SetErrors:
    """Intervals of scores of sets of k labels: from sums over groups or rows, fewer for more labels."""

    def __init__(self, store: Store, k: int) -> None:
        self._units = ResamplingUnits(store, max(LEAST_SUMS, min(MOST_SUMS, MOST_ENTRIES // (2 * k))))
        self._sums = np.zeros((3 + 2 * k, self._units.count))  # rows, right ones, their F1; by label hits, and all

    def add(self, start: int, right: np.ndarray, f1: np.ndarray, hits: np.ndarray, either: np.ndarray) -> None:
        """Adds rows from `start` on: (m,) whether they are right, and their F1; (m, k) whether labels are true and
        predicted, and the number of the two."""
        units = self._units.of_rows(start, start + len(right))
        _gather(self._sums, units, (np.ones(len(right)), right, f1, *hits.T, *either.T))

    def facts(self, scores: JsonObject) -> JsonObject:
        """See `ResamplingUnits.facts`."""
        (rows, right, f1), (hits, either) = self._sums[:3], np.split(self._sums[3:], 2)
        both, in_all = 2 * hits.sum(axis=0), either.sum(axis=0)
        influences = {
            "accuracy": shift(right, rows),
            "hamming_loss": shift(in_all - both, rows * len(hits)),
            "f1_micro": shift(both, in_all),
            "f1_macro": np.mean(
                [shift(2 * label_hits, label_all) for label_hits, label_all in zip(hits, either, strict=True)], axis=0
            ),
            "f1_samples": shift(f1, rows),
        }
        return self._units.facts((name, scores[name], influence, 1.0) for name, influence in influences.items())


def _gather(sums: np.ndarray, units: np.ndarray, columns: Iterable[np.ndarray]) -> None:
    """Adds columns (m,) of rows to the sums (columns, count) of their units (m,)."""
    for total, column in zip(sums, columns, strict=True):
        np.add.at(total, units, column)


class NumberErrors:
    """Intervals of scores of a regression: from sums over groups, or over rows at equal distances."""

    def __init__(self, store: Store) -> None:
        self._units = ResamplingUnits(store, MOST_SUMS)
        self._sums = np.zeros((3, self._units.count))  # rows, |error|, error^2
        self._means, self._inside = np.zeros((2, self._units.count))  # of y, and its squared deviations from them

    def add(self, start: int, y: np.ndarray, values: np.ndarray) -> None:
        """Adds rows from `start` on, at least one: numbers y (m,), and predicted ones."""
        error = values - y
        units, places = np.unique(self._units.of_rows(start, start + len(y)), return_inverse=True)
        rows = np.bincount(places)
        mean = np.bincount(places, y) / rows
        delta, share = mean - self._means[units], rows / (self._sums[0, units] + rows)
        between = delta**2 * self._sums[0, units] * share  # two means to one: Chan, Golub and LeVeque 1979
        self._inside[units] += np.bincount(places, (y - mean[places]) ** 2) + between
        self._means[units] += delta * share
        self._sums[:, units] += rows, np.bincount(places, np.abs(error)), np.bincount(places, error**2)

    def facts(self, scores: dict[str, float | None]) -> JsonObject:
        """See `ResamplingUnits.facts`."""
        rows, absolute, squares = self._sums
        spread = self._inside + rows * (self._means - np.average(self._means, weights=rows)) ** 2
        root = scores["root_mean_squared_error"] or np.inf
        influences = {"mean_squared_error": shift(squares, rows)}
        influences["root_mean_squared_error"] = influences["mean_squared_error"] / (2 * root)
        influences["mean_absolute_error"] = shift(absolute, rows)
        if scores["r2"] is not None:
            influences["r2"] = (spread * squares.sum() / spread.sum() - squares) / spread.sum()
        return self._units.facts((name, scores[name], influence, 1.0) for name, influence in influences.items())
