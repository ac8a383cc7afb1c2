"""The seam where estimators meet layouts: however rows are held, one store comes of them, and what is wrong is told.

What follows of a store is not tried for each layout again; test_estimators.py does so on numpy and on a CSR store.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from contracts.layouts import CHUNK, LAYOUTS, SPARSE, labelled

from streamsvm import ALFPGMSVC, DCSVC, BudgetedSVC, CuttingPlaneSVC, Store

ARRAYS = [layout for layout in LAYOUTS if "Store" not in layout]


def given(layout: str, X: np.ndarray, y: np.ndarray, folder) -> tuple[object, np.ndarray | None]:
    """(rows in this layout, their labels unless they bring them)."""
    there = LAYOUTS[layout](X, y, folder)
    return there, None if isinstance(there, Store) else y


def read(store: Store) -> np.ndarray:
    return np.concatenate([store.read(*block).dense() for block in store.blocks(CHUNK)])


@pytest.mark.parametrize("classes", ["two", "three"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_store_comes_of_every_layout(layout, classes, tmp_path):
    X, y = labelled(classes)
    there, labels = given(layout, X, y, tmp_path)
    estimator = DCSVC()
    learned, names = estimator._training_store(there, labels, None)
    asked = estimator._store(there, reset=False)
    for store in (learned, asked):
        assert (store.n, store.d, store.is_sparse) == (*X.shape, layout in SPARSE)
        np.testing.assert_array_equal(read(store), X)
        np.testing.assert_array_equal(store.take(np.array([259, 3, 64])).dense(), X[[259, 3, 64]])
    np.testing.assert_array_equal(learned.y, y)
    np.testing.assert_array_equal(names, y)
    assert estimator.n_features_in_ == 4


@pytest.mark.parametrize("layout", ARRAYS)
def test_weights_come_along(layout, tmp_path):
    X, y = labelled("two")
    weight = np.linspace(0.5, 2, len(y))
    for those in (weight, da.from_array(weight, chunks=CHUNK)):
        store, _ = DCSVC()._training_store(LAYOUTS[layout](X, y, tmp_path), y, those)
        np.testing.assert_allclose(store.sample_weight, weight)


@pytest.mark.parametrize("layout", LAYOUTS)
class TestWrong:
    def test_number_of_columns(self, layout, tmp_path):
        X, y = labelled("two")
        estimator = DCSVC()
        estimator._training_store(X, y, None)
        there, _ = given(layout, np.ascontiguousarray(X[:, :3]), y, tmp_path)
        with pytest.raises(ValueError, match="X has 3 features, but DCSVC is expecting 4 features as input"):
            estimator._store(there, reset=False)

    def test_number_of_labels(self, layout, tmp_path):
        X, y = labelled("two")
        there, _ = given(layout, X, y, tmp_path)
        expected = "inconsistent numbers of samples|X has 260 rows but y has 259|brings its own y"
        with pytest.raises(ValueError, match=expected):
            DCSVC()._training_store(there, y[1:], None)

    def test_one_class(self, layout, tmp_path):
        there, labels = given(layout, labelled("two")[0], np.ones(260, np.int64), tmp_path)
        with pytest.raises(ValueError, match="greater than one; got 1 class"):
            CuttingPlaneSVC().fit(there, labels)

    def test_a_value_that_is_no_number(self, layout, tmp_path):
        X, y = labelled("two")[0].copy(), labelled("two")[1]
        X[133, 2] = np.inf
        with pytest.raises(ValueError, match=r"contains infinity|row 133, column 2 \(chunk \d\) is inf"):
            CuttingPlaneSVC().fit(*given(layout, X, y, tmp_path))

    def test_a_missing_value(self, layout, tmp_path):
        X, y = labelled("two")[0].copy(), labelled("two")[1]
        X[133, 2] = np.nan
        there, labels = given(layout, X, y, tmp_path)
        with pytest.raises(ValueError, match=r"contains NaN|row 133, column 2 \(chunk \d\) is nan"):
            CuttingPlaneSVC(gaps="refuse").fit(there, labels)
        if isinstance(there, Store | da.Array):  # are not looked at before
            with pytest.raises(ValueError, match=r"row 133, column 2 \(chunk \d\) is nan"):
                CuttingPlaneSVC().fit(there, labels)
            return
        with pytest.warns(UserWarning, match="a column has missing values, column 2 in 0.4% of the rows"):
            CuttingPlaneSVC().fit(there, labels)


class TestOwnWays:
    """What an estimator reads by itself."""

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_decisions_of_pairs(self, layout, tmp_path):
        X, y = labelled("three")
        estimator = ALFPGMSVC(C=5.0, gamma=0.5, decision_function_shape="ovo").fit(X, y)
        found = estimator.decision_function(given(layout, X, y, tmp_path)[0])
        np.testing.assert_allclose(found, estimator.decision_function(X), atol=1e-5)
        assert found.shape == (260, 3)

    @pytest.mark.parametrize("layout", ARRAYS)
    def test_partial_fits(self, layout, tmp_path):
        X, y = labelled("two")
        rows, found, expected = LAYOUTS[layout](X, y, tmp_path), *(BudgetedSVC(gamma=0.5) for _ in range(2))
        found.partial_fit(rows, y, classes=np.unique(y))
        expected.partial_fit(X, y, classes=np.unique(y))
        np.testing.assert_allclose(found.decision_function(X), expected.decision_function(X), atol=1e-3)
