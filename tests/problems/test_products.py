"""Products of rows with few vectors, in every layout, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.problems import products


def block(m: int, d: int, dtype: str, layout: str, seed: int) -> tuple[Rows, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((m, d)) < 0.4, rng.integers(0, 200, (m, d)) / (1 if dtype == "uint8" else 7), 0)
    X = X.astype(dtype)
    if layout == "dense":
        return Rows(X), X.astype(np.float64)
    out = sparse.csr_array(X)
    index = np.int64 if layout == "csr, 64 bit" else np.int32
    out.indices, out.indptr = out.indices.astype(index), out.indptr.astype(index)
    return Rows(out), X.astype(np.float64)


@given(
    m=st.integers(1, 40),
    d=st.integers(1, 12),
    k=st.integers(1, 4),
    dtype=st.sampled_from(["uint8", "float32", "float64"]),
    layout=st.sampled_from(["dense", "csr", "csr, 64 bit"]),
    seed=st.integers(0, 99),
)
@pytest.mark.slow  # many matrices
def test_both_products_are_numpys(m, d, k, dtype, layout, seed):
    rows, X = block(m, d, dtype, layout, seed)
    rng = np.random.default_rng(seed)
    W, G = rng.normal(size=(d, k)), np.where(rng.random((m, 1)) < 0.5, rng.normal(size=(m, k)), 0)
    np.testing.assert_allclose(products.times(rows, W), X @ W, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(products.transposed_times(rows, G), X.T @ G, rtol=1e-12, atol=1e-9)


def test_no_rows():
    rows = Rows(np.zeros((0, 3), np.float32))
    assert products.times(rows, np.ones((3, 2))).shape == (0, 2)
    np.testing.assert_array_equal(products.transposed_times(rows, np.ones((0, 2))), np.zeros((3, 2)))
