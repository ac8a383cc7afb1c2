"""Explanations of pools of experts: gradients, importances and support vectors of the pooled decision."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise, permutations

import numpy as np
import pytest
from explain.made import MEAN, SPREAD, animals

from streamsvm.cli.app import app, exit_status
from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError
from streamsvm.explain import shapley
from streamsvm.explain.decisions import answered, decisions, gradients
from streamsvm.explain.importances import importances
from streamsvm.explain.rows import support_vectors
from streamsvm.explain.shapley import shapley_values
from streamsvm.models import ExpertsModel
from streamsvm.models.files import save_model
from streamsvm.online import BSGDClassifier


@cache
def pool(k: int) -> ExpertsModel:
    X, y = animals(k)
    learner = BSGDClassifier(budget=50, max_features=4)  # so that no columns are left for new ones
    for x, label in zip(X.tolist(), y.tolist(), strict=True):
        learner.learn_one(dict(zip("abcd", x, strict=True)), label)
    return learner.to_model()  # type: ignore[return-value]


ROWS = Rows((np.random.default_rng(7).normal(size=(40, 4)) * SPREAD + MEAN).astype(np.float32))


@pytest.mark.parametrize("k", [2, 3])
def test_gradients_are_those_of_finite_differences(k):
    model, h = pool(k), 2e-3
    codes = answered(model, ROWS)[1]
    found, of = gradients(model, ROWS), np.arange(len(ROWS))
    for f in range(4):
        step = h * SPREAD[f] * np.eye(4)[f]
        ahead, back = (model.binary_decisions(Rows(ROWS.X + s * step))[of, codes] for s in (1, -1))
        off = np.abs(found[:, f] * SPREAD[f] - (ahead - back) / (2 * h))
        assert np.quantile(off, 0.8) < 5e-3  # the others have a knot within the step


@pytest.mark.parametrize("k", [2, 3])
def test_values_are_the_decisions_and_contributions_add_up_to_first_order(k):
    """Scaled by 1 + h, the kernels' sums move the decision by h times the contributions."""
    model, h = pool(k), 1e-5
    pooled = model.as_pooled()
    for here, g in decisions(model, ROWS, answered(model, ROWS)[1]):
        scaled = g.scaled(ROWS.take(here))
        values = model.binary_decisions(ROWS.take(here))[:, 0 if g.is_single else g.code]
        np.testing.assert_allclose(g.values(scaled), values, atol=1e-5)
        row = scaled.take(slice(1))
        every, nearest = support_vectors(model, g, ROWS.take(here).take(slice(1)), 1000)
        said = pooled.each(row.dense())
        moved = said.copy()
        for of, learner in zip(moved[3:], pooled.kernels, strict=True):
            of += h * (of - learner.coefficients()[1])
        rise = (pooled.pool.decide(moved, 3) - pooled.pool.decide(said, 3))[0, 0 if g.is_single else g.code] / h
        assert sum(vector.contribution for vector in every) == pytest.approx(rise, rel=1e-3, abs=1e-3)
        assert len(every) == len(nearest) == model.n_support
        assert nearest[0].distance == min(vector.distance for vector in every)


def by_orders(model: ExpertsModel, raw: np.ndarray, column: int) -> tuple[np.ndarray, float]:
    """The definition: mean gains as columns come in all orders, the others gaps in the row; and v of none."""
    d = len(raw)

    def worth(has: list[int]) -> float:
        row = np.full((1, d), np.nan, np.float32)
        row[0, has] = raw[has]
        return float(model.binary_decisions(model.header.scaling.filled(Rows(row)))[0, column])

    gains = []
    for order in permutations(range(d)):
        v = [worth([*order[:q]]) for q in range(d + 1)]
        gains.append(np.empty(d))
        gains[-1][[*order]] = [b - a for a, b in pairwise(v)]
    return np.mean(gains, axis=0), worth([])


@pytest.mark.parametrize("k", [2, 3])
def test_shapley_values_are_mean_gains_over_all_orders(k, monkeypatch):
    model, rows = pool(k), ROWS.take(slice(3))
    for here, g in decisions(model, rows, answered(model, rows)[1]):
        for i in here.tolist():
            raw, row = rows.dense()[i], g.scaled(rows.take(slice(i, i + 1)))
            expected, nothing = by_orders(model, raw, 0 if g.is_single else g.code)
            found = shapley_values(g, row)
            np.testing.assert_allclose(found.values, expected, atol=1e-4)
            assert (found.base, found.error) == (pytest.approx(nothing, abs=1e-5), None)
            with monkeypatch.context() as patch:
                patch.setattr(shapley, "ALL_SETS", 2)
                drawn = shapley_values(g, row)
            assert (np.abs(drawn.values - expected) < 5 * drawn.error + 1e-4).all()
            assert drawn.base + drawn.values.sum() == pytest.approx(g.values(row)[0], abs=1e-4)


def test_sampled_values_are_as_far_off_as_their_errors_say():
    def worth(sets):  # of four features together, and of three others alone
        return 8.0 * sets[:, :4].all(axis=1) + sets[:, 4:] @ np.array([1.0, -2.0, 0.0])

    expected = [2.0, 2.0, 2.0, 2.0, 1.0, -2.0, 0.0]
    np.testing.assert_allclose(shapley.exact(worth, 7), expected, atol=1e-12)
    values, error = shapley.sampled(worth, 7)
    assert (error[:4] > 0.01).all()
    np.testing.assert_allclose(error[4:], 0.0, atol=1e-12)
    assert (np.abs(values - expected) < 4 * error + 1e-9).all()
    assert values.sum() == pytest.approx(7.0)


def test_features_that_an_event_lacks_are_worth_nothing():
    g = next(decisions(pool(2), ROWS, np.zeros(len(ROWS), int)))[1]
    found = shapley_values(g, Rows(np.array([[0.0, 1.0, 0.0, 0.0]], np.float32)))
    assert found.values[[0, 2, 3]].tolist() == [0.0, 0.0, 0.0]
    assert shapley_values(g, Rows(np.zeros((1, 4), np.float32))).values.tolist() == [0.0] * 4
    with pytest.raises(ModelError, match="of at most 4,096 columns, the row has 5,000; leave Shapley values out"):
        shapley.pool_values(g, Rows(np.ones((1, 5000), np.float32)))


def test_the_columns_that_count_are_found():
    X, _ = animals(2)
    for found in (importances(pool(2)), importances(pool(2), Rows(X))):
        assert {name for name, _ in found.ordered(2)} == {"a", "b"}
        assert found.values.sum() == pytest.approx(1)


def test_the_command_explains_events_with_texts(tmp_path, capfd):
    learner, lines = BSGDClassifier(), ["x,colour"]
    for i in range(120):
        x = {"x": i / 60 - 1, "colour": ("red", "blue", "blue")[i % 3]}
        learner.learn_one(x, "yes" if x["colour"] == "red" else "no")
        lines.append(f"{x['x']},{x['colour']}")
    save_model(learner.to_model(), tmp_path / "m.zarr")
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    words = ["explain", "--model", tmp_path / "m.zarr", tmp_path / "rows.csv", "--rows", "0,1", "--json"]
    words += ["--shapley"]
    assert exit_status(lambda: app([*map(str, words)], standalone_mode=False)) == 0
    said = json.loads(capfd.readouterr().out)
    assert {found["feature"] for found in said["importances"]} == {"x", "colour=red", "colour=blue"}
    assert [row["answer"] for row in said["rows"]] == ["yes", "no"]
    assert len(said["rows"][0]["support_by_weight"]) == 3
    shares = {found["feature"]: found["shapley"] for found in said["rows"][0]["features"]}
    assert shares["colour=blue"] == 0  # which it lacks
    assert shares["colour=red"] < 0  # "yes" was the first class: it is below 0
    assert sum(shares.values()) == pytest.approx(said["rows"][0]["decision"] - said["rows"][0]["shapley_base"])
