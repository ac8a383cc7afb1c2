"""Whether the rows of two stores are alike."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import ks_2samp
from sklearn.datasets import load_digits

from streamsvm.cli.app import app, exit_status
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.data.writer import StoreWriter
from streamsvm.errors import DataError
from streamsvm.explain.drift import drift, remarks
from streamsvm.parallel.engine import Engine


def halves(seed=0):
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order[:900]], X[order[900:]]


def drift_of(A, B, **more):
    return drift(Store.from_arrays(A, **more), Store.from_arrays(B, **more), Engine(2))


def test_halves_of_a_table_are_alike():
    for seed in range(3):
        found = drift_of(*halves(seed))
        assert (found["rows"], found["held_out"]) == (897, 448)
        assert found["chance"][0] < found["roc_auc"] < found["chance"][1]
        assert remarks(found) == []


@pytest.mark.parametrize("is_sparse", [False, True])
def test_what_differs_is_named_the_largest_first(is_sparse):
    A, B = halves()
    B[:, 20] *= 0.3
    B[::3, 26] = np.nan  # a gap is a value, too
    names = [f"pixel {i}" for i in range(64)]
    found = drift_of(*(sparse.csr_array(half) if is_sparse else half for half in (A, B)), feature_names=names)
    assert [one["column"] for one in found["columns"]] == ["'pixel 20'", "'pixel 26'"]
    rows = np.sort(np.random.default_rng(0).permutation(900)[:897])
    assert found["columns"][0]["ks"] == pytest.approx(ks_2samp(A[rows, 20], B[:, 20]).statistic)
    assert found["roc_auc"] > 0.7
    [line] = remarks(found)
    assert "a classifier separates them" in line
    assert "'pixel 20' (0." in line


def test_dense_and_sparse_rows_of_other_types_are_compared():
    A, B = halves()
    found = drift(Store.from_arrays(A.astype(np.uint8)), Store.from_arrays(sparse.csr_array(B)), Engine(2))
    assert remarks(found) == []


@pytest.mark.parametrize(
    ("B", "names", "message"),
    [
        (np.ones((60, 3)), None, "has 3 columns, the first has 2; expected the same columns"),
        (
            np.ones((60, 2)),
            ["b", "a"],
            r"column 0: found 'b', expected 'a' \(the same columns in another order\)",
        ),
        (np.ones((60, 3)), ["a", "b", "c"], "has 3 columns.*column 2: found 'c', expected none"),
        (np.ones((20, 2)), ["a", "b"], "found 20 rows to compare, expected at least 50 in each store"),
    ],
)
def test_refusals(B, names, message):
    with pytest.raises(DataError, match=message) as error:
        drift(
            Store.from_arrays(np.ones((60, 2)), feature_names=["a", "b"]),
            Store.from_arrays(B, feature_names=names),
            Engine(2),
        )
    assert "\n" not in str(error.value)


def test_on_the_command_line(tmp_path, capfd):
    A, B = halves()
    for name, X in (("a", A), ("b", 2 * B), ("c", B[:, :3])):
        with StoreWriter(tmp_path / name, d=X.shape[1], dtype="float32") as writer:
            writer.append(Rows(X.astype(np.float32)))

    def check(other, *more):
        words = ["check", tmp_path / "a", "--against", tmp_path / other, *more]
        status = exit_status(lambda: app([*map(str, words)], standalone_mode=False))
        return status, *capfd.readouterr()

    status, out, _ = check("b", "--json")
    found = json.loads(out)
    assert (status, found["against"]["store"]) == (0, str(tmp_path / "b"))
    assert len(found["against"]["columns"]) == 10
    assert "a classifier separates them" in found["warnings"][-1]
    assert "ROC AUC" in check("b")[1]
    status, out, err = check("c")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "has 3 columns" in err
