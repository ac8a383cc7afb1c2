"""dask dataframes: read partition by partition, as dask arrays are."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import DCSVC, BudgetedSVC
from streamsvm.data.sources import source_of
from streamsvm.errors import DataError


@pytest.fixture
def frame():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=400), "b": rng.random(400) < 0.5, "c": rng.integers(0, 9, 400)}
    whole = pd.DataFrame(table).astype({"c": "Int64"})
    whole["y"] = np.where((whole.a > 0) ^ whole.b, "up", "down")
    return dd.from_pandas(whole, npartitions=4)


def test_no_more_than_a_partition_is_in_memory(frame):
    seen = []

    def watched(part):
        seen.append(len(part))
        return part

    X = frame[["a", "b", "c"]].map_partitions(watched, meta=frame[["a", "b", "c"]])
    seen.clear()
    source = source_of(X)
    assert (source.n, source.d, source.dtype) == (400, 3, np.float64)
    seen.clear()
    rows = source.read(120, 130)
    assert seen == [100]
    assert len(rows) == 10


def test_they_are_fitted_and_predicted_as_arrays_are(frame):
    X, y = frame[["a", "b", "c"]], frame["y"]
    here = X.compute().astype(float).to_numpy()
    options = {"C": 5.0, "gamma": 0.5, "random_state": 0}
    fitted = DCSVC(**options).fit(X, y)
    expected = DCSVC(**options).fit(here, y.compute().to_numpy())
    np.testing.assert_array_equal(fitted.decision_function(X), expected.decision_function(here))
    assert fitted.score(X, y) == expected.score(here, y.compute().to_numpy()) > 0.8
    online = BudgetedSVC(gamma=0.5, random_state=0).partial_fit(X, y, classes=["down", "up"])
    assert online.predict(X).shape == (400,)


def test_a_column_of_text_is_refused_by_name(frame):
    with pytest.raises(DataError, match=r"column 'y' of the dask dataframe .* expected numbers"):
        DCSVC().fit(frame, frame["y"])


def test_a_frame_has_names_that_predict_compares(frame):
    X = frame[["a", "b", "c"]]
    svm = DCSVC(random_state=0).fit(X, frame["y"])
    assert svm.feature_names_in_.tolist() == ["a", "b", "c"]
    assert svm.model_.header.feature_names == ("a", "b", "c")
    with pytest.raises(ValueError, match="feature names should match"):
        svm.predict(X[["b", "a", "c"]])
