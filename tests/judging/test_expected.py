"""Rows that a fit does not learn from: they change nothing in a model, and tell how it will do."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from cases import SOLVERS, VARIANTS, config, labelled
from making import write

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import ignore
from streamsvm.fits.prepare import prepare
from streamsvm.judging import probabilities
from streamsvm.judging.expected import gain_of_rows, of_candidates, of_model
from streamsvm.models.files import load_model
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate
from streamsvm.search.options import completed
from streamsvm.train import train, train_in_memory

KEPT = 90
EARLY = ("dcsvm early", *VARIANTS)
EXACT = ("dcsvm", "alfpgm", "admm-hss", "cutting-plane")


def kept_ids(store: Store) -> np.ndarray:
    options = config("alfpgm", task="regress" if store.y.dtype.kind == "f" else "classify", holdout=KEPT)
    kept = prepare(store, options, Engine(1)).held_out
    assert kept is not None
    np.testing.assert_array_equal(kept.rows.X, store.take(kept.ids).X)
    return kept.ids


def fitted(X: np.ndarray, y: np.ndarray, name: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    return train_in_memory(Store.from_arrays(X, y), config(name, **options), ignore)


@pytest.mark.parametrize(("name", "k"), [*product([*SOLVERS, *VARIANTS], [3]), *product(SOLVERS, [2])])
def test_a_model_does_not_know_the_labels_of_rows_that_are_kept_out(name, k):
    X, y = labelled(k)
    ids, other = kept_ids(Store.from_arrays(X, y)), y.copy()
    other[ids] = (y[ids] + 1) % k
    (one, told), (two, changed) = (fitted(X, labels, name, holdout=KEPT) for labels in (y, other))
    tolerance = {"admm-hss": 2e-3, "landmarks": 1e-6, "nu": 1e-9}.get(name, 1e-12)  # whose sums run over all rows
    np.testing.assert_allclose(*(m.decision_function(Rows(X)) for m in (one, two)), rtol=0, atol=tolerance)
    assert told["expected"]["rows"] == KEPT
    right = one.predict(Rows(X[ids])).astype(str) == y[ids].astype(str)
    assert told["expected"]["score"] == pytest.approx(np.mean(right))
    assert changed["expected"]["score"] < told["expected"]["score"]


@pytest.mark.parametrize("name", EXACT)
def test_the_model_is_that_of_the_other_rows(name):
    X, y = labelled(2)
    rest = np.delete(np.arange(len(y)), kept_ids(Store.from_arrays(X, y)))
    one, report = fitted(X, y, name, holdout=KEPT, tol=1e-5)
    other, alone = fitted(X[rest], y[rest], name, tol=1e-5)
    assert report["objective"] == pytest.approx(alone["objective"], rel=1e-3)
    np.testing.assert_allclose(*(m.decision_function(Rows(X)) for m in (one, other)), atol=0.05)


@pytest.mark.parametrize("name", ["dcsvm", *EARLY, "bsgd"])
def test_what_is_expected_is_what_evaluate_says_of_these_rows(name, tmp_path):
    X, y = labelled(3)
    store = write(tmp_path / "s", Rows(X), y, step=100, chunk_rows=100)
    report = train(store, config(name, holdout=KEPT), model_path=tmp_path / "m", events=ignore)
    ids = kept_ids(store)
    kept, model = Store.from_arrays(X[ids], y[ids]), load_model(tmp_path / "m")
    expected = report["expected"]
    assert expected == model.header.certificate["expected"]
    assert expected["score"] == pytest.approx(evaluate(model, kept, engine=Engine(1))["accuracy"])
    assert expected["low"] < expected["score"] < expected["high"]
    assert (expected["scoring"], expected["rows"], expected["model"]) == ("accuracy", KEPT, True)
    assert model.header.config["holdout"] == KEPT


def test_numbers_that_are_kept_out_tell_of_r2():
    X, _ = labelled()
    t = X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=len(X))
    store = Store.from_arrays(X, t)
    model, report = train_in_memory(store, config("alfpgm", task="regress", holdout=KEPT), ignore)
    ids = kept_ids(store)
    found = evaluate(model, Store.from_arrays(X[ids], t[ids]), engine=Engine(1))["r2"]
    assert report["expected"]["score"] == pytest.approx(found, abs=1e-9)


def test_at_most_half_of_the_rows_are_kept_out():
    with pytest.raises(ConfigError, match="holdout is 301, expected at most half of the 600 rows"):
        fitted(*labelled(), "dcsvm", holdout=301)


@pytest.mark.parametrize("error", [0.005, 0.02, 0.2, 0.5])
def test_nineteen_of_twenty_tests_of_as_many_rows_are_inside(error):
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(1000):
        found = of_model("accuracy", (rng.random(400) < error).astype(float))
        inside.append(found.low <= 1 - np.mean(rng.random(400) < error) <= found.high)
    assert 0.93 <= np.mean(inside) <= 0.99


def test_the_best_of_many_that_guess_is_not_believed():
    rng = np.random.default_rng(0)
    pool = [(rng.random(300) < 0.5).astype(float) for _ in range(40)]
    assert 1 - min(losses.mean() for losses in pool) > 0.55
    assert of_candidates("accuracy", pool, 0.0, seed=0).score == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("h", [1, 2, 6, 10])
def test_few_rows_have_a_score_to_expect(h):
    """Rows outside a bootstrap sample may be none."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        pool = [(rng.random(h) < 0.4).astype(float) for _ in range(3)]
        found = of_candidates("accuracy", pool, 0.0, seed)
        assert 0 <= found.low <= found.score <= found.high <= 1


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_a_search_of_few_rows_has_a_score_to_expect(kind):
    X = np.random.default_rng(0).normal(size=(32, 4))
    report = fitted(X, (X[:, 0] > 0).astype(int), "dcsvm", metric={"kind": kind})[1]
    assert 0 <= report["expected"]["low"] <= report["expected"]["score"] <= 1


def test_more_rows_save_errors_as_they_did_before():
    steps = [(1000, 0.8), (1000, 0.7), (4000, 0.9)]  # half of the errors with four times the rows
    assert gain_of_rows(steps, 4000, 16_000) == pytest.approx(0.5)
    assert gain_of_rows(steps[:2], 4000, 16_000) == gain_of_rows(steps, 4000, 4000) == 0.0


PURPOSES = {
    "threshold": {"probability": {"threshold": "recall=0.9"}},
    "threshold by balanced accuracy": {
        "probability": {"threshold": "recall=0.95"},
        "search": {"scoring": "balanced_accuracy"},
    },
    "costs": {"probability": {"method": "sigmoid", "costs": "1>0=8"}},
    "costs of three classes": {"probability": {"method": "sigmoid", "costs": "1>0=8,2>0=8"}},
    "rows kept out": {"probability": {"threshold": "recall=0.9"}, "holdout": 300},
    "costs, rows kept out": {"probability": {"method": "sigmoid", "costs": "1>0=8"}, "holdout": 300},
}


@pytest.mark.parametrize("purpose", PURPOSES)
def test_what_is_expected_is_of_the_model_with_its_threshold_or_costs(purpose, monkeypatch):
    """By the rows that folds, or the fit, have not learned from, decided as the model decides."""
    k, values = 3 if "three" in purpose else 2, PURPOSES[purpose]
    rng = np.random.default_rng(0)
    y = rng.choice(k, 1000, p=[0.8, 0.2] if k == 2 else [0.7, 0.15, 0.15])
    X = rng.normal(size=(1000, 3)).astype(np.float32) + np.float32(1.2) * np.eye(3, dtype=np.float32)[y]
    search = {"trials": 2, "options": ["C"]} | values.get("search", {})
    config = completed([("test", {"threads": 2, **values, "search": search})])
    store, of_folds = Store.from_arrays(X, y), dict[str, np.ndarray]()
    original = probabilities.decided_by_rows

    def decided(requested, rows, seed):
        of_folds.update(decisions=rows.decisions, truth=rows.codes)
        return original(requested, rows, seed)

    monkeypatch.setattr(probabilities, "decided_by_rows", decided)
    model, report = train_in_memory(store, config)

    cost = 1.0 - np.eye(k)
    cost[1:, 0] = 8.0

    def codes(f: np.ndarray, p: np.ndarray | None) -> np.ndarray:
        if p is None:
            return (f.ravel() > model.header.threshold).astype(int)
        return np.argmin(p @ cost, axis=1)

    def score(found: np.ndarray) -> float:
        right = found == truth
        if "balanced" in purpose:
            return float(np.mean([right[truth == c].mean() for c in range(k)]))
        return float(right.mean())

    if "holdout" in values:
        kept = prepare(store, config, Engine(1)).held_out
        f, truth = model.decision_function(kept.rows)[:, None], kept.codes
    else:
        f, truth = of_folds["decisions"], of_folds["truth"]
    calibration = model.header.calibration
    p = None if calibration is None else calibration.probabilities(f, k, pairwise=k > 2)
    decided, by_default = codes(f, p), (f.ravel() > 0).astype(int) if p is None else np.argmax(p, axis=1)
    expected = report["expected"]
    assert expected == model.header.certificate["expected"]
    assert expected["rows"] == len(truth)
    if "threshold" in report:
        own = report["threshold"]["expected"][expected["scoring"]]
        assert {name: expected[name] for name in own} == own
        assert report["threshold"][expected["scoring"]] == pytest.approx(score(decided))
        assert expected["score"] == pytest.approx(score(decided), abs=0.02)  # less what a choice gains
    else:
        assert expected["score"] == pytest.approx(score(decided))
        assert expected["cost"] == pytest.approx(cost[truth, decided].mean())
        assert expected["cost_of_likeliest"] == pytest.approx(cost[truth, by_default].mean())
        assert expected["cost"] < expected["cost_of_likeliest"]
    assert abs(score(decided) - score(by_default)) > 0.03  # which the search knows
    np.testing.assert_array_equal(model.predict(Rows(X)), codes(*model.answers(Rows(X))))
