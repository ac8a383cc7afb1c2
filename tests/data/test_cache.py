"""Answers kept for the array that asked: a copy finds them, an array changed in place gets its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streamsvm.data.cache import CachedSamples, SingleEntryCache
from streamsvm.data.rows import Rows
from streamsvm.data.samples import SamplesInMemory
from streamsvm.kernels.distance import RBF
from streamsvm.kernels.row_cache import WIDE
from streamsvm.online import BSGDClassifier
from streamsvm.parallel.engine import Engine
from streamsvm.problems.dual import KernelColumns, KernelDual, RepeatedDual
from streamsvm.problems.pair_risk import PairRisk
from streamsvm.problems.passes import Passes

N = 600
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2 * WIDE)).astype(np.float32)
Y = np.where(np.arange(N) % 2, 1.0, -1.0)
KERNEL = RBF(1 / WIDE)


def test_it_is_made_once_for_equal_entries():
    latest, made = SingleEntryCache(), []
    array = np.arange(5)
    for asked in (array, array, array.copy()):
        assert latest.of(asked, lambda a: made.append(0) or a.sum()) == 10
    assert len(made) == 1
    array[0] = 7
    assert latest.of(array, np.sum) == 17


def dual(cache_rows: int = 0) -> KernelDual:
    return KernelDual(KERNEL, Rows(X), Y, np.ones(N), cache_bytes=4 * N * cache_rows)


def columns(*_: int) -> KernelColumns:
    return KernelColumns(KERNEL, Rows(X), Y, np.ones((1, N)))


PROBLEMS: dict[str, Callable] = {
    "in memory": dual,
    "cached rows": lambda: dual(N),
    "regression": lambda: RepeatedDual(dual(), np.repeat([1.0, -1.0], N), 0.1),
    "columns": columns,
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_an_active_set_that_changes_in_place_is_another(kind):
    """Products of the rows that were active before would be wrong, and nothing would say so."""
    ids, delta = np.arange(5), np.ones((1, 5) if kind == "columns" else 5)
    active, others = np.arange(0, 300), np.arange(200, 500)
    problem, fresh = PROBLEMS[kind](), PROBLEMS[kind]()
    problem.apply(ids, delta, active)
    active[:] = others
    np.testing.assert_allclose(problem.apply(ids, delta, active), fresh.apply(ids, delta, others), rtol=1e-5, atol=1e-6)


def test_a_working_set_that_changes_in_place_is_another():
    problem, ids = columns(), np.arange(10)
    problem.gram(ids)
    ids[:] = np.arange(20, 30)
    np.testing.assert_array_equal(problem.gram(ids), columns().gram(ids))


def test_problems_that_share_memory_do_not_share_answers():
    one = columns()
    other = KernelColumns(KERNEL, Rows(X[::-1].copy()), Y, np.ones((1, N)), cache=one.cache)
    one.gram(np.arange(10))
    gram = other.gram(np.arange(10)).copy()
    np.testing.assert_array_equal(
        gram, KernelColumns(KERNEL, Rows(X[::-1].copy()), Y, np.ones((1, N))).gram(np.arange(10))
    )


def test_scores_that_change_in_place_have_another_loss():
    held = CachedSamples(SamplesInMemory(Rows(X)), 1 << 30, lambda: pytest.fail("no folder"))
    risk = PairRisk(Passes(held, Engine(1)), np.arange(N) % 3, np.zeros(N, int), np.ones(N), 1.0)
    f = RNG.normal(size=N)
    before = risk._loss(f)[0]
    f *= -3
    assert risk._loss(f)[0] == risk._loss(f.copy())[0] != before


def test_a_row_that_changes_in_place_between_predicting_and_learning_is_met_again():
    learner = BSGDClassifier(gamma=1.0)
    for x in range(20):
        learner.learn_one({"x": x / 10}, x % 2)
    row = np.array([0.3], np.float32)
    learner._decide(row)
    row[:] = 5.0
    np.testing.assert_array_equal(learner._decide(row)[0], learner._learner.decide_one(row)[0])
