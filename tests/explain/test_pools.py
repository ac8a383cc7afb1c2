"""Explanations of pools of experts: gradients, importances and support vectors of the pooled decision."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from explain.made import MEAN, SPREAD, animals

from streamsvm.cli.app import app, exit_status
from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError
from streamsvm.explain.decisions import answered, decisions, gradients
from streamsvm.explain.importances import importances
from streamsvm.explain.shapley import shapley_values
from streamsvm.explain.support import support_vectors
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
        every, nearest = support_vectors(model, g, row, 1000)
        said = pooled.each(row.dense())
        moved = said.copy()
        for of, learner in zip(moved[3:], pooled.kernels, strict=True):
            of += h * (of - learner.coefficients()[1])
        rise = (pooled.pool.decide(moved, 3) - pooled.pool.decide(said, 3))[
            0, 0 if g.is_single else g.code
        ] / h
        assert sum(vector.contribution for vector in every) == pytest.approx(rise, rel=1e-3, abs=1e-3)
        assert len(every) == len(nearest) == model.n_support
        assert nearest[0].distance == min(vector.distance for vector in every)
        with pytest.raises(ModelError, match="the model pools several; leave Shapley values out"):
            shapley_values(g, row)


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
    assert exit_status(lambda: app([*map(str, words)], standalone_mode=False)) == 0
    said = json.loads(capfd.readouterr().out)
    assert {found["feature"] for found in said["importances"]} == {"x", "colour=red", "colour=blue"}
    assert [row["answer"] for row in said["rows"]] == ["yes", "no"]
    assert len(said["rows"][0]["support_by_weight"]) == 3
