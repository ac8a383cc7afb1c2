"""Labels of the least expected cost, beside plain loops; through fits, files, estimators and `evaluate`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cases
import numpy as np
import pytest
from cases import labelled
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from streamsvm import DCSVC, BudgetedSVC
from streamsvm.config import ProbabilityConfig, build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, CorruptDataError, ModelError
from streamsvm.judging.probabilities import held_out
from streamsvm.models.files import load_model, save_model
from streamsvm.online import BSGDClassifier
from streamsvm.options.layers import parse_set
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate
from streamsvm.tasks.weights import cheapest, cost_matrix
from streamsvm.train import plan, train, train_in_memory

N = 300
COSTS = {"0": {"1": 0.2, "2": 3.0}, "2": {"1": 7.0}}  # of three classes
TEXT = "0>1=0.2, 0>2=3, 2>1=7"


def cheapest_by_hand(p: np.ndarray, C: np.ndarray) -> list[int]:
    found = []
    for row in p:
        risks = []
        for j in range(len(C)):
            risk = 0.0
            for i in range(len(C)):
                risk += row[i] * C[i, j]
            risks.append(risk)
        found.append(min(range(len(C)), key=lambda j: (risks[j], j)))
    return found


def store(k: int = 3, **more: Any) -> Store:
    return Store.from_arrays(*labelled(k, N), **more)


def config(name: str = "dcsvm", k: int = 3, **values: Any) -> Any:
    costs = COSTS if k == 3 else {"0": {"1": 8.0}}
    own = {"probability": {"method": "sigmoid", "folds": 3, "costs": costs}}
    return cases.config(name, **own | values)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 30))
def test_the_least_expected_cost(seed, k, m):
    rng = np.random.default_rng(seed)
    p = rng.multinomial(8, np.full(k, 1 / k), m) / 8  # equal risks are among them
    C = rng.integers(0, 5, (k, k)) * (1.0 - np.eye(k))
    assert cheapest(p, C).tolist() == cheapest_by_hand(p, C)
    ones = 1.0 - np.eye(k)
    np.testing.assert_array_equal(cheapest(p, ones), np.argmax(p, axis=1))


def test_a_row_alone_is_decided_as_among_others():
    rng = np.random.default_rng(0)
    p, C = rng.random((500, 7)), rng.random((7, 7))
    np.testing.assert_array_equal(cheapest(p, C), [cheapest(row[None], C)[0] for row in p])


def test_costs_that_are_not_named_are_one():
    found = cost_matrix(COSTS, np.array([0.0, 1.0, 2.0]))
    assert found.tolist() == [[0, 0.2, 3], [1, 0, 1], [1, 7, 0]]
    assert build_config(parse_set(f"probability.costs={TEXT}")).probability.costs == COSTS
    assert build_config(("file", {"probability": {"costs": COSTS}})).probability.costs == COSTS


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("bsgd", "dcsvm early", "against the rest", "landmarks")]


@pytest.mark.parametrize("name", ["dcsvm", *SLOW])  # each is two fits with folds
def test_a_fit_decides_by_them_in_memory_and_from_files(name, tmp_path):
    X, _ = labelled(3, N)
    model, _ = train_in_memory(store(), config(name))
    plain, _ = train_in_memory(store(), config(name, probability={"method": "sigmoid", "folds": 3}))
    p = model.predict_proba(Rows(X))
    np.testing.assert_array_equal(p, plain.predict_proba(Rows(X)))
    labels = model.predict(Rows(X))
    assert labels.tolist() == model.classes[cheapest_by_hand(p, model.costs)].tolist()
    assert np.any(labels != plain.predict(Rows(X)))
    train(store(), config(name), model_path=tmp_path / "m")
    there = load_model(tmp_path / "m")
    np.testing.assert_array_equal(there.costs, model.costs)
    save_model(there, tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(Rows(X)), there.predict(Rows(X)))


@pytest.mark.parametrize("name", ["dcsvm", "dcsvm early", "logistic"])
def test_the_expected_score_is_of_what_the_model_decides(name, tmp_path):
    X, y = labelled(3, N)
    how = config(name, holdout=100)
    ids = np.sort(np.random.default_rng([0, 26]).choice(N, 100, replace=False))
    model, report = train_in_memory(store(), how)
    right = np.mean(model.predict(Rows(X[ids])) == model.classes[y[ids]])
    assert report["expected"]["score"] == pytest.approx(right)
    assert train(store(), how, model_path=tmp_path / "m")["expected"]["score"] == pytest.approx(right)


def test_a_logistic_loss_needs_no_folds_and_positive_labels_are_one():
    how = config("logistic", positive=("2",), probability={"costs": {"1": {"0": 9.0}}})
    assert "folds" not in plan(store(), how)
    model, _ = train_in_memory(store(), how)
    assert model.costs.tolist() == [[0, 1], [9, 0]]


def test_evaluate_tells_what_labels_cost_with_costs_and_without():
    (X, y), rows = labelled(3, N), store()
    model, _ = train_in_memory(rows, config())
    strange = Store.from_arrays(np.vstack([X, X[:5]]), np.append(y, [9] * 5))
    p = model.predict_proba(Rows(X))
    own, likeliest = model.predict(Rows(X)), np.argmax(p, axis=1)
    for some in (rows, strange):  # rows whose label is unknown cost nothing that is known
        result = evaluate(model, some, engine=Engine(1))
        assert result["cost"] == pytest.approx(np.mean([model.costs[i, j] for i, j in zip(y, own, strict=True)]))
        without = np.mean([model.costs[i, j] for i, j in zip(y, likeliest, strict=True)])
        assert result["cost_of_likeliest"] == pytest.approx(without)
    assert result["cost"] < result["cost_of_likeliest"]
    plain = replace(model, header=replace(model.header, costs=None))
    assert "cost" not in evaluate(plain, rows, engine=Engine(1))


def test_calibrate_adds_and_replaces_them():
    X, y = labelled(2, 2 * N)
    rest = Store.from_arrays(X[N:], y[N:])

    def calibrated(model: Any, **probability: Any) -> Any:
        asked = ProbabilityConfig.model_validate(probability)
        return held_out(model, rest, asked, engine=Engine(1))

    plain, _ = train_in_memory(store(2), config(k=2, probability={}))
    with pytest.raises(ConfigError, match="costs weigh probabilities, and the model has none"):
        calibrated(plain, costs="0>1=8")
    by_threshold, _ = calibrated(plain, threshold="f1")
    costly, n = calibrated(by_threshold, method="isotonic", costs="0>1=8")
    assert (n, costly.header.threshold, costly.header.calibration.method) == (N, None, "isotonic")
    assert "threshold" not in costly.header.certificate
    assert costly.costs.tolist() == [[0, 8], [1, 0]]
    again, n = calibrated(costly, costs="1>0=4")  # probabilities stay, and no row is asked
    assert (n, again.costs.tolist()) == (0, [[0, 1], [4, 0]])
    assert again.header.calibration is costly.header.calibration
    assert calibrated(again, method="sigmoid")[0].costs.tolist() == [[0, 1], [4, 0]]
    assert calibrated(again, threshold="f1")[0].costs is None


@pytest.mark.parametrize("labels", [(False, True), (0, 1), (0.0, 1.0), ("no", "yes")])
def test_estimators_name_labels_as_they_are(labels):
    X, codes = labelled(2, N)
    y = np.array(labels)[codes]
    kind = {"probability": True, "random_state": 0}
    plain, costly = DCSVC(**kind).fit(X, y), DCSVC(costs={(labels[1], labels[0]): 9}, **kind).fit(X, y)
    assert costly.model_.costs.tolist() == [[0, 1], [9, 0]]
    expected = np.array(labels)[(costly.predict_proba(X) @ costly.model_.costs).argmin(axis=1)]
    np.testing.assert_array_equal(costly.predict(X), expected)
    assert np.sum(costly.predict(X) == labels[1]) > np.sum(plain.predict(X) == labels[1])


def test_learning_goes_on_without_costs_only():
    model, _ = train_in_memory(store(2), config("bsgd", k=2, bsgd={"budget": 30}))
    with pytest.raises(ModelError, match="fit without --costs"):
        BSGDClassifier.from_model(model)
    X, y = labelled(2, N)
    with pytest.raises(ConfigError, match="threshold and costs are of what learns no further"):
        BudgetedSVC(costs={(0, 1): 2}).partial_fit(X, y, classes=[0, 1])


@every_case(
    ("values", "text"),
    [
        ({"costs": "yes"}, "found 'yes', expected TRUE>PREDICTED=COST"),
        ({"costs": "0>1=-1"}, "a number of at least 0"),
        ({"costs": "0>1=nan"}, "a number of at least 0"),
        ({"costs": "0>0=1"}, "expected TRUE>PREDICTED=COST"),
        ({"costs": ""}, "expected TRUE>PREDICTED=COST"),
        ({"costs": {"0": 3}}, "expected TRUE>PREDICTED=COST"),
        ({"costs": {"0": {"1": "much"}}}, "expected TRUE>PREDICTED=COST"),
        ({"costs": "0>1=1,0>1=2"}, "0>1 is named twice"),
        ({"costs": "0>1=2", "threshold": "f1"}, "threshold and costs both decide between labels; leave one"),
        ({"costs": "0>1=2", "method": None}, "costs weigh probabilities, and the fit makes none"),
        ({"costs": "0>4=2"}, "costs 0>4: no such label 4; the labels are 0, 1, 2"),
    ],
)
def test_bad_input_is_one_line(values, text):
    with pytest.raises(ConfigError, match=text) as error:
        plan(store(), build_config(("t", {"probability": {"method": "sigmoid"} | values})))
    assert "\n" not in str(error.value)


def test_costs_alone_weigh_sigmoids():
    costs = {"probability": {"costs": "0>1=2"}}
    assert build_config(("t", costs)).probability.method == "sigmoid"
    assert (
        build_config(("t", {"probability": costs["probability"] | {"method": "isotonic"}})).probability.method
        == "isotonic"
    )
    assert build_config(("t", costs | {"solver": "bsgd", "bsgd": {"loss": "logistic"}})).probability.method is None
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    svm = DCSVC(costs={(0, 1): 5.0}).fit(X, y)
    np.testing.assert_array_equal(svm.predict(X), svm.predict_proba(X)[:, 1] > 5 / 6)


@pytest.mark.parametrize("costs", [np.ones((2, 3)), np.full((3, 3), np.nan), np.ones((3, 3), np.int64)])
def test_damaged_costs_are_not_loaded(costs, tmp_path):
    model, _ = train_in_memory(store(), config())
    save_model(replace(model, header=replace(model.header, costs=costs)), tmp_path / "m")
    with pytest.raises(CorruptDataError, match="costs are incomplete"):
        load_model(tmp_path / "m")
