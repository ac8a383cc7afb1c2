"""Rows of a store, in the order in which they are asked for, all that is said of them consistent."""

from __future__ import annotations

import numpy as np
import pytest
from explain.made import SPREAD, SUMS, animals, made

from streamsvm.data.store import Store
from streamsvm.errors import ModelError
from streamsvm.explain.rows import deviations, explain_rows

ASKED = np.array([200, 3, 77, 4])


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("kind", [kind for kind in SUMS if kind != "cutting-plane"])
def test_all_that_is_said_of_a_row_fits_together(kind, k):
    model, (X, _) = made(kind, k), animals(k)
    told = explain_rows(model, Store.from_arrays(X), ASKED, SPREAD, shapley=True, support=2)
    assert [row.row for row in told] == ASKED.tolist()
    assert [row.answer for row in told] == model.predict(X[ASKED]).tolist()
    for row in told:
        np.testing.assert_array_equal(row.values, X[row.row])
        np.testing.assert_allclose(row.effect, row.gradient * SPREAD)
        assert row.base + row.shapley.sum() == pytest.approx(row.decision, abs=1e-9)
        assert row.for_class == ("bee" if k == 2 else row.answer)
        assert len(row.weightiest) == len(row.nearest) == 2
        assert np.abs(row.shapley[row.order()]).tolist() == sorted(np.abs(row.shapley), reverse=True)


def test_a_linear_model_has_gradients_alone():
    X, _ = animals(3)
    (row,) = explain_rows(made("cutting-plane", 3), Store.from_arrays(X), np.array([3]), SPREAD)
    assert (row.shapley, row.base, row.weightiest, row.nearest) == (None, None, [], [])
    assert row.order()[0] == np.argmax(np.abs(row.effect))


def test_shapley_values_of_other_kernels_are_refused():
    with pytest.raises(ModelError, match="the model's is matern"):
        explain_rows(made("dcsvm", 2, name="matern"), Store.from_arrays(animals(2)[0]), ASKED, SPREAD, shapley=True)


def test_deviations_are_those_of_numpy():
    X, _ = animals(2)
    np.testing.assert_allclose(deviations(Store.from_arrays(X).read(0, 300)), X.std(axis=0), rtol=1e-4)
