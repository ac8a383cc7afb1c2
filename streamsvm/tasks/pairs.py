"""More than two classes: one binary problem for each pair, or each class against the rest.

The coefficients of pairs are in LIBSVM's compact layout: a row of class c has one coefficient for each other class o,
in column o - (o > c), (n, k - 1) in all. The pair (i, j), i < j, decides for j if its decision value is positive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations

import numpy as np

from streamsvm.tasks.base import Subproblem

MANY = 20  # classes from which on pairs are computed class by class
Decide = Callable[[np.ndarray, np.ndarray], np.ndarray]


def n_pairs(k: int) -> int:
    return k * (k - 1) // 2


def classes_of_pairs(k: int) -> tuple[np.ndarray, np.ndarray]:
    """(n_pairs,) codes of the earlier class of each pair, and of the later one."""
    first, second = np.triu_indices(k, 1)
    return first, second


def pairs(codes: np.ndarray, k: int, *, single: bool, nu: float | None = None) -> Iterator[Subproblem]:
    """The problems of two of k classes with rows, +1 the later one; single: also those with rows of one class only. nu:
    of nu-SVC."""
    linear = -1.0 if nu is None else 0.0
    members = [np.flatnonzero(codes == c) for c in range(k)]
    for number, (i, j) in enumerate(combinations(range(k), 2)):
        first, second = members[i], members[j]
        if (len(first) and len(second)) or (single and (len(first) or len(second))):
            ids = np.concatenate([first, second])
            order = np.argsort(ids, kind="stable")
            ids, is_second = ids[order], order >= len(first)
            y, columns = np.where(is_second, 1.0, -1.0), np.where(is_second, i, j - 1)
            yield Subproblem(ids, y, columns, linear, number, nu, nu is not None)


def n_columns(k: int) -> int:
    """The number of columns of coefficients for k classes."""
    return 1 if k <= 2 else k


def signs(codes: np.ndarray, k: int) -> np.ndarray:
    """(n, 1) -1 or +1 for two classes, +1 for the second; else (n, k), each class against the rest."""
    return 2.0 * (codes[:, None] == (np.ones(1) if k == 2 else np.arange(k))) - 1.0


def pair_coefficients(
    alpha: np.ndarray, codes: np.ndarray, k: int, dtype: type[np.floating] = np.float32
) -> np.ndarray:
    """(n, n_pairs) y_i alpha_i of every pair, from compact alpha (n, k - 1)."""
    coefficients, number = np.zeros((len(alpha), n_pairs(k)), dtype), _numbers(k)
    for c in range(k):
        rows = np.flatnonzero(codes == c)
        coefficients[rows[:, None], number[c, c + 1 :]] = -alpha[rows, c:]
        coefficients[rows[:, None], number[:c, c]] = alpha[rows, :c]
    return coefficients


def compact_coefficients(coefficients: np.ndarray, codes: np.ndarray, k: int) -> np.ndarray:
    """Compact alpha (n, k - 1) of coefficients (n, n_pairs) that are 0 in pairs without a row's class: the inverse of
    `pair_coefficients`."""
    alpha, number = np.empty((len(codes), k - 1), coefficients.dtype), _numbers(k)
    for c in range(k):
        rows = np.flatnonzero(codes == c)
        alpha[rows, c:] = -coefficients[rows[:, None], number[c, c + 1 :]]
        alpha[rows, :c] = coefficients[rows[:, None], number[:c, c]]
    return alpha


def class_coefficients(
    alpha: np.ndarray, codes: np.ndarray, c: int, others: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rows (s,) with coefficients in the pairs of class c with some others (o,), rising codes, and their y_i
    alpha_i there, (s, o), from compact alpha (n, k - 1)."""
    own, rest = np.flatnonzero(codes == c), np.flatnonzero(np.isin(codes, others))
    of_own, of_rest = alpha[own][:, others - (others > c)], alpha[rest, c - (codes[rest] < c)]
    own, of_own = own[of_own.any(axis=1)], of_own[of_own.any(axis=1)]
    rest, of_rest = rest[of_rest != 0], of_rest[of_rest != 0]
    coefficients = np.zeros((len(own) + len(rest), len(others)))
    coefficients[: len(own)] = np.where(others < c, of_own, -of_own)
    columns = np.searchsorted(others, codes[rest])
    coefficients[np.arange(len(own), len(coefficients)), columns] = np.where(codes[rest] > c, of_rest, -of_rest)
    return np.concatenate([own, rest]), coefficients


def pair_decisions(decide: Decide, m: int, alpha: np.ndarray, codes: np.ndarray, k: int) -> np.ndarray:
    """(m, n_pairs) decision values of m rows by the support rows with compact alpha (s, k - 1), without the intercepts.
    decide(ids, coef): K(rows, support[ids]) @ coef, (m, columns). It is called class by class: a support row is in k -
    1 pairs only, so for many classes nearly all `pair_coefficients` are 0."""
    decisions, number = np.zeros((n_pairs(k), m)), _numbers(k)  # of a pair one after another: columns are scattered
    for c in range(k):
        ids = np.flatnonzero(codes == c)
        if len(ids):
            values = decide(ids, alpha[ids]).T
            decisions[number[c, c + 1 :]] -= values[c:]
            decisions[number[:c, c]] += values[:c]
    return decisions.T


def _numbers(k: int) -> np.ndarray:
    """(k, k) the number of the pair (i, j), i < j."""
    number = np.zeros((k, k), np.intp)
    number[classes_of_pairs(k)] = np.arange(n_pairs(k))
    return number


def against_rest(codes: np.ndarray, k: int, *, single: bool, nu: float | None = None) -> Iterator[Subproblem]:
    """The problems of each class against the rest, or of the second of two classes; as `pairs`."""
    return of_columns(signs(codes, k).T, single=single, nu=nu)


def of_columns(
    columns: Iterable[np.ndarray], *, single: bool, nu: float | None = None, factors: np.ndarray | None = None
) -> Iterator[Subproblem]:
    """Problems of all rows, each with one column of signs (n,); as `pairs`. factors: see `Targets`."""
    linear = -1.0 if nu is None else 0.0
    for column, y in enumerate(columns):
        if len(y) and (single or y.min() < y.max()):
            ids = np.arange(len(y))
            weight = None if factors is None else factors[(y > 0).astype(np.intp), column]
            columns_of_variables = np.full(len(ids), column)
            yield Subproblem(ids, y, columns_of_variables, linear, column, nu, nu is not None, weight)


def joined(decisions: np.ndarray, k: int, *, pairwise: bool) -> np.ndarray:
    """(m,) decision values of one problem, else (m, k), from (m, problems): votes if problems are pairs."""
    if decisions.shape[1] == 1:
        return decisions[:, 0]
    return vote(decisions, k) if pairwise else decisions


def vote(decisions: np.ndarray, k: int) -> np.ndarray:
    """(m, k) scores from pair decisions (m, n_pairs): votes, ties broken by confidence in (-1/3, 1/3). A decision of
    exactly 0 is nobody's vote. The same scores as scikit-learn's one-vs-rest view of one-vs-one."""
    votes, confidence = np.zeros((len(decisions), k)), np.zeros((len(decisions), k))
    start = 0
    for i in range(k):  # not pair by pair: a hundred classes have 4,950
        later = slice(i + 1, k)
        of_class = decisions[:, start : (start := start + k - 1 - i)]
        votes[:, i] += np.count_nonzero(of_class < 0, axis=1)
        votes[:, later] += of_class > 0
        confidence[:, i] -= of_class.sum(axis=1, dtype=np.float64)
        confidence[:, later] += of_class
    return votes + confidence / (3 * (np.abs(confidence) + 1))
