"""Kernel blocks and products against float64 twins."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, ModelError
from streamsvm.exchange.graph import Graph, kernel_values
from streamsvm.exchange.libsvm import SVM, svm_lines
from streamsvm.kernels import COLUMNS, Kernel

KERNELS = [
    Kernel("rbf", 0.7),
    Kernel("rbf", 1e-4),
    Kernel("rbf", 300.0),
    Kernel("poly", 0.5, 3, 1.0),
    Kernel("poly", 0.25, 1, 0.0),
    Kernel("linear"),
]


def rows(m: int, d: int, layout: str, seed: int, filled: float = 0.5) -> Rows:
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((m, d)) < filled, rng.normal(size=(m, d)), 0).astype(np.float32)
    if layout == "uint8":
        return Rows((np.abs(X) * 3).astype(np.uint8))
    return Rows(sparse.csr_array(X) if layout == "csr" else X.astype(layout))


def rounding(kernel: Kernel, a: Rows, b: Rows) -> float:
    """What float32 leaves: the exponential's own error, and that of the squared distances, gamma |x|^2 2^-24."""
    distances = kernel.gamma * max(a.sq_norms.max(), b.sq_norms.max()) * 2.0**-22
    return 1e-6 + (distances if kernel.name == "rbf" else 0.0)


@pytest.mark.parametrize("layout", ["float32", "float64", "uint8", "csr"])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_block_and_diagonal_are_those_of_the_twin(kernel, layout):
    a, b = rows(70, 5, layout, 0), rows(41, 5, layout, 1)
    K = reference.kernel_matrix(kernel, a.X, b.X)
    np.testing.assert_allclose(kernel.block(a, b), K, atol=rounding(kernel, a, b) * max(1.0, np.abs(K).max()))
    own = reference.kernel_matrix(kernel, a.X, a.X)
    np.testing.assert_allclose(kernel.diag(a), np.diag(own), rtol=1e-6, atol=1e-6)
    assert kernel.block(a, b).dtype == np.float32


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
@pytest.mark.parametrize("layout", ["float32", "csr"])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_apply_is_block_times_coefficients(kernel, layout, shape):
    a, b = rows(300, 6, layout, 2), rows(COLUMNS + 17, 6, layout, 3)  # more than one tile each way
    coef = np.random.default_rng(4).normal(size=(len(b), *shape))
    expected = reference.kernel_matrix(kernel, a.X, b.X) @ coef
    found = kernel.apply(a, b, coef)
    assert found.shape == (300, *shape)
    assert found.dtype == np.float64
    largest = np.abs(reference.kernel_matrix(kernel, a.X, b.X)).max() * np.abs(coef).sum()
    np.testing.assert_allclose(found, expected, atol=rounding(kernel, a, b) * largest)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize(
    "layouts", [("csr", "float32"), ("float32", "csr"), ("uint8", "csr"), ("csr", "uint8")]
)
def test_layouts_may_differ(kernel, layouts):
    """A model of CSR rows meets dense ones, and the other way round."""
    a, b = rows(30, 4, layouts[0], 9), rows(20, 4, layouts[1], 10)
    K = reference.kernel_matrix(kernel, a.X, b.X)
    np.testing.assert_allclose(kernel.block(a, b), K, atol=rounding(kernel, a, b) * max(1.0, np.abs(K).max()))


@pytest.mark.parametrize("filled", [0.9, 0.1, 0.01, 0.0])
@pytest.mark.parametrize("layouts", [(a, b) for a in ("float32", "csr") for b in ("float32", "csr")], ids=str)
def test_any_share_of_zeros(layouts, filled):
    """GEMM, skipped zeros, added rows and met entries are one inner product."""
    a, b = rows(50, 70, layouts[0], 11, filled), rows(33, 70, layouts[1], 12, filled)
    expected = a.dense().astype(np.float64) @ b.dense().T.astype(np.float64)
    np.testing.assert_allclose(Kernel("linear").block(a, b), expected, atol=2e-5)


@pytest.mark.parametrize("layout", ["float32", "csr"])
def test_threads_change_nothing(layout):
    kernel, a, b = Kernel("rbf", 0.3), rows(3000, 4, layout, 5), rows(600, 4, layout, 6)
    coef = np.random.default_rng(7).normal(size=600)
    np.testing.assert_array_equal(kernel.block(a, b, 1), kernel.block(a, b, 3))
    np.testing.assert_array_equal(kernel.apply(a, b, coef, 1), kernel.apply(a, b, coef, 3))


def test_no_rows_give_empty_blocks_and_zero_products():
    kernel, a, none = Kernel("rbf"), rows(5, 3, "float32", 8), rows(0, 3, "float32", 8)
    assert kernel.block(a, none).shape == (5, 0)
    np.testing.assert_array_equal(kernel.apply(a, none, np.empty(0)), np.zeros(5))
    assert kernel.apply(none, a, np.ones(5)).shape == (0,)


@settings(max_examples=30)
@given(st.floats(1e-3, 1e3), st.integers(1, 40))
def test_exponential_is_accurate_over_its_whole_range(gamma, m):
    """Relative error with one feature: of the polynomial, and of the float32 argument, five roundings of it."""
    a = Rows(np.zeros((1, 1), np.float32))
    x = np.linspace(0, 9 / np.sqrt(gamma), m, dtype=np.float32)[:, None]
    argument = gamma * (x.astype(np.float64) ** 2).ravel()
    error = Kernel("rbf", gamma).block(a, Rows(x))[0] / np.exp(-argument) - 1
    assert np.all(np.abs(error) <= 3e-7 + 5 * 2.0**-24 * argument)


def test_values_beyond_float32_are_one_line():
    wide = Rows(np.full((4, 2), 1e6, np.float32))
    with pytest.raises(ConfigError, match="poly kernel are beyond float32"):
        Kernel("poly", 1.0, 9).apply(wide, wide, np.ones(4))


def forgotten() -> Kernel:
    """A kernel whose name is in no place that asks for it."""
    kernel = Kernel("rbf")
    object.__setattr__(kernel, "name", "cauchy")
    return kernel


@pytest.mark.parametrize(
    "ask",
    [
        lambda kernel, a: kernel.block(a, a),
        lambda kernel, a: kernel.exact(a, a),
        lambda kernel, a: kernel.diag(a),
        lambda kernel, a: kernel.apply(a, a, np.ones(len(a))),
        lambda kernel, a: kernel_values(Graph(), kernel, "x", "rows"),
    ],
    ids=["block", "exact", "diag", "apply", "onnx"],
)
def test_a_kernel_that_is_forgotten_somewhere_computes_no_other_one(ask):
    with pytest.raises(AssertionError, match="cauchy"):
        ask(forgotten(), rows(5, 3, "float32", 0))


def test_libsvm_is_given_no_kernel_that_it_has_no_name_for():
    kernel = forgotten()
    svm = SVM("c_svc", kernel, rows(1, 3, "float32", 0), np.ones((1, 1)), np.zeros(1), (1, 2), (1, 0))
    with pytest.raises(
        ModelError, match=r"cauchy kernel has no name in LIBSVM's format.*export --format onnx"
    ):
        list(svm_lines(svm))


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="found kernel .cauchy., expected one of rbf, poly, linear"):
        Kernel("cauchy")
