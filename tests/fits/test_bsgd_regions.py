"""Learners on a budget side by side: rows regrouped by region, each learner alone, memory, time, and its report."""

from __future__ import annotations

from itertools import count
from threading import Event
from typing import Any

import numpy as np
import pytest
from cases import config, labelled
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from streamsvm.data import regroup
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import MemoryLimitError
from streamsvm.fits import bsgd as recipe
from streamsvm.fits.base import END_S
from streamsvm.fits.bsgd import Pace, Regions, Turn, regions, share_of_time
from streamsvm.models.learner import BudgetLearner, BudgetOptions
from streamsvm.train import plan, train_in_memory


@pytest.fixture
def seen(monkeypatch) -> list[tuple[Regions, list[Any]]]:
    """The regions of a fit, and all their rows, read in windows of at most 100."""
    found = []

    def kept(*args):
        made = regions(*args)
        turns = made.turns(100)
        found.append((made, [[made.read(p, *turn[p]) for turn in turns] for p in range(len(made.sizes))]))
        return made

    monkeypatch.setattr(recipe, "regions", kept)
    return found


@pytest.mark.parametrize("is_sparse", [False, True])
def test_every_row_is_in_its_region_once(is_sparse, seen, monkeypatch):
    """In the order of the store, with its label and weight, out of several files."""
    monkeypatch.setattr(regroup, "SPOOL_BYTES", 1)
    monkeypatch.setattr(Store, "blocks", lambda self: [(lo, min(self.n, lo + 900)) for lo in range(0, self.n, 900)])
    X, y = labelled(2, 2200)
    weights = np.arange(len(X)) + 1.0
    store = Store.from_arrays(sparse.csr_array(X) if is_sparse else X, y, sample_weight=weights)
    train_in_memory(store, config("bsgd", bsgd={"budget": 20, "partitions": 3}))
    [(made, windows)] = seen
    own = made.partition.assign(Rows(X))
    for p, turns in enumerate(windows):
        here = np.flatnonzero(own == p)
        assert max(len(rows) for rows, _, _ in turns) <= 100
        np.testing.assert_array_equal(np.concatenate([rows.dense() for rows, _, _ in turns]), X[here])
        np.testing.assert_array_equal(np.concatenate([Y for _, Y, _ in turns])[:, 0], 2 * y[here] - 1)
        np.testing.assert_allclose(np.concatenate([weight for _, _, weight in turns]), weights[here])


@pytest.mark.parametrize("k", [2, 3])
def test_a_region_is_learnt_as_if_it_were_all(k, seen):
    X, y = labelled(k)
    options = {"budget": 30, "epochs": 2, "partitions": 3, "bias": True}
    model, _ = train_in_memory(Store.from_arrays(X, y), config("bsgd", bsgd=options))
    [(made, windows)] = seen
    for p, turns in enumerate(windows):
        rows = np.concatenate([rows.dense() for rows, _, _ in turns])
        Y = np.concatenate([Y for _, Y, _ in turns])
        own = BudgetOptions(1 / (5.0 * len(rows)), 30, bias=True, longest=1.0)
        learner = BudgetLearner(model.header.kernel, 3, len(model.bias[0]), own)
        pace = Pace(2 * len(rows))
        for epoch in range(2):
            order = np.random.default_rng([0, recipe.SHUFFLE, epoch, 0, p]).permutation(len(rows))
            learner.learn(Rows(rows[order]), Y[order], pace.factors(learner.t, len(rows)))
        here = slice(*model.bounds[p : p + 2])
        coef, bias = learner.coefficients()
        np.testing.assert_array_equal(model.support.X[here], learner.supports().X)
        np.testing.assert_array_equal(model.coef[here], coef)
        np.testing.assert_array_equal(model.bias[p], bias)


def test_report():
    X, y = labelled(2)
    model, report = train_in_memory(Store.from_arrays(X, y), config("bsgd"))
    assert report["regions"] == 3
    assert 200 <= report["max_region_rows"] <= 202
    assert report["steps"] == 3 * 600
    assert report["n_support"] == model.n_support <= 90
    assert 0 < report["supports_a_decision"] <= 30
    K = np.exp(-0.5 * ((model.support.X[:, None] - model.support.X) ** 2).sum(axis=2))
    own = np.repeat(np.arange(3), np.diff(model.bounds))
    squared = model.coef[:, 0] @ (K * (own[:, None] == own)) @ model.coef[:, 0]
    assert report["objective"] > 0.5 * squared / (5 * 600)


def test_rows_that_are_all_alike_are_one_region():
    X, y = np.ones((60, 3), np.float32), np.arange(60) % 2
    model, report = train_in_memory(Store.from_arrays(X, y), config("bsgd"))
    assert report["regions"] == 1
    assert np.isfinite(model.decision_function(X)).all()


def test_memory_is_planned_for_all_regions():
    X, y = labelled(2)
    store = Store.from_arrays(X, y)
    one, ten = (plan(store, config("bsgd", bsgd={"budget": 500, "partitions": partitions})) for partitions in (1, 10))
    assert ten["supports_bytes"] > 10 * one["supports_bytes"]
    with pytest.raises(MemoryLimitError, match="a budget of 500 in each of 10 regions: give at least"):
        train_in_memory(store, config("bsgd", bsgd={"budget": 500, "partitions": 10}, memory_limit="50MiB"))


def test_regions_that_wait_have_their_share_of_the_time(monkeypatch):
    """Of five on two slots, the first to start leaves two more to its slot, the second one more."""
    monkeypatch.setattr("streamsvm.fits.bsgd.time.time", lambda: 100.0)
    assert [share_of_time(130.0, waiting, 2) for waiting in (5, 4, 3, 2, 1)] == [110.0, 115.0, 115.0, 130.0, 130.0]
    assert share_of_time(90.0, 3, 2) == 100.0
    assert share_of_time(None, 2, 2) is None


@pytest.mark.parametrize(("counts", "ends"), [(True, [110.0, 115.0, 130.0]), (False, [130.0, 115.0, 110.0])])
def test_a_share_is_counted_by_starts_or_by_numbers(counts, ends, monkeypatch):
    monkeypatch.setattr("streamsvm.fits.bsgd.time.time", lambda: 100.0)
    turn = Turn(0, [], 3, slots=1, threads=1, until=130.0, passed=0.0, order=count() if counts else None)
    assert [turn.pace(region, 10).until for region in (2, 1, 0)] == ends


def test_every_region_has_its_share_of_the_time_in_whatever_order_they_start(lessons, monkeypatch):
    """Four one after the other have 40 s, and would take 19 s each; the steps of each fall to 0."""
    monkeypatch.setattr(recipe, "BLOCKS", 1)
    lessons.seconds = 1.0
    options = {"bsgd": {"budget": 20, "partitions": 4}, "threads": 1, "search": {"time_budget": 40 + END_S}}
    with pytest.warns(ConvergenceWarning, match="time budget"):
        train_in_memory(Store.from_arrays(*labelled(2, 2400)), config("bsgd", **options))
    firsts = [number for number, start in enumerate(lessons.starts) if start == 0]
    counts = np.diff([*firsts, len(lessons.starts)])
    assert counts.tolist() == [11, 10, 10, 10]
    assert all(lessons.factors[first][0] == 1 for first in firsts)
    assert all(lessons.factors[first + count - 1][0] < 0.6 for first, count in zip(firsts, counts, strict=True))


def test_a_free_slot_takes_the_next_region_at_once(monkeypatch):
    """However many wait: the first of five ends when the last one has begun."""
    read, started, all_started = Regions.read, count(1), Event()

    def waiting(*args):
        number = next(started)
        if number == 5:
            all_started.set()
        assert number > 1 or all_started.wait(timeout=10)
        return read(*args)

    monkeypatch.setattr(Regions, "read", waiting)
    options = {"bsgd": {"budget": 20, "partitions": 5}, "threads": 2}
    train_in_memory(Store.from_arrays(*labelled(2)), config("bsgd", **options))
    assert all_started.is_set()
