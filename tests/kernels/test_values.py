"""Kernel blocks and products against float64 twins."""

from __future__ import annotations

from dataclasses import fields
from itertools import product

import numpy as np
import pytest
import reference
from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.made import EVERY, KERNELS, OF_EACH_PRODUCT, STEEP, WITH_GRADIENT, rows
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, ModelError
from streamsvm.exchange.libsvm import SVM, svm_lines
from streamsvm.kernels.base import Kernel, Stationary, kernel_class, kernel_from
from streamsvm.kernels.distance import RBF, Cauchy, Laplacian, Matern
from streamsvm.kernels.inner import Linear, Poly, Precomputed
from streamsvm.kernels.table import KERNELS as ROWS
from streamsvm.kernels.tiles import COLUMNS, SKIP_COLUMNS


def rounding(kernel: Kernel, a: Rows, b: Rows) -> float:
    """What float32 leaves: the exponential's own error, and that of the squared distances, gamma |x|^2 2^-24."""
    return 1e-6 + 2 * kernel.rounding(max(a.sq_norms.max(), b.sq_norms.max()))


@pytest.mark.parametrize(
    ("kernel", "layout"),
    [
        *product(EVERY, ["float32"]),
        *product(KERNELS, ["csr"]),
        *product(OF_EACH_PRODUCT, ["float64", "uint8"]),
    ],
    ids=str,
)
def test_block_and_diagonal_are_those_of_the_twin(kernel, layout):
    a, b = rows(70, 5, layout, 0), rows(41, 5, layout, 1)
    K = reference.kernel_matrix(kernel, a.X, b.X)
    np.testing.assert_allclose(kernel.block(a, b), K, atol=rounding(kernel, a, b) * max(1.0, np.abs(K).max()))
    own = reference.kernel_matrix(kernel, a.X, a.X)
    np.testing.assert_allclose(kernel.diag(a), np.diag(own), rtol=1e-6, atol=1e-6)
    assert kernel.block(a, b).dtype == np.float32


@pytest.mark.parametrize(
    ("kernel", "layout", "shape"),
    [*product(EVERY, ["float32"], [(3,)]), *product(KERNELS, ["csr"], [()]), (KERNELS[0], "csr", (1,))],
    ids=str,
)
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
def test_features_in_which_all_rows_agree_do_not_count(kernel):
    X = np.hstack([np.full((90, 3), 2.5), np.random.default_rng(0).random((90, 4)), np.zeros((90, 1))])
    a, b = Rows(X[:60].astype(np.float32)), Rows(X[60:].astype(np.float32))
    some_a, some_b = kernel.distinguishing(a, b)
    np.testing.assert_allclose(kernel.block(some_a, some_b), kernel.block(a, b), rtol=1e-5)
    is_stationary = isinstance(kernel, Stationary)
    assert some_a.d == some_b.d == (4 if is_stationary else 8)
    for others in (Rows(X[60:] + 1), Rows(sparse.csr_array(X[60:])), b.take(slice(0))):  # they differ, or it is unknown
        assert [rows.d for rows in kernel.distinguishing(a, others)] == [8, 8]


@pytest.mark.parametrize("kernel", OF_EACH_PRODUCT, ids=str)
@pytest.mark.parametrize("layouts", [("csr", "float32"), ("float32", "csr"), ("uint8", "csr"), ("csr", "uint8")])
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
    np.testing.assert_allclose(Linear().block(a, b), expected, atol=2e-5)


@pytest.mark.parametrize("layout", ["float32", "csr"])
def test_threads_change_nothing(layout):
    kernel, a, b = RBF(0.3), rows(3000, 4, layout, 5), rows(600, 4, layout, 6)
    coef = np.random.default_rng(7).normal(size=600)
    np.testing.assert_array_equal(kernel.block(a, b, 1), kernel.block(a, b, 3))
    np.testing.assert_array_equal(kernel.apply(a, b, coef, 1), kernel.apply(a, b, coef, 3))


def test_no_rows_give_empty_blocks_and_zero_products():
    kernel, a, none = RBF(), rows(5, 3, "float32", 8), rows(0, 3, "float32", 8)
    assert kernel.block(a, none).shape == (5, 0)
    np.testing.assert_array_equal(kernel.apply(a, none, np.empty(0)), np.zeros(5))
    assert kernel.apply(none, a, np.ones(5)).shape == (0,)


@pytest.mark.parametrize("layout", ["float32", "csr"])
@pytest.mark.parametrize("kernel", [kernel for kernel in (*KERNELS, *STEEP) if kernel != Matern(0.4, 0.5)], ids=str)
def test_float64_values_and_products_are_those_of_the_twin(kernel, layout):
    """With so many columns that zeros of dense rows are skipped; not with a kernel of a root, which near 0 has half of
    the digits."""
    a, b = rows(70, 40, layout, 2, 0.1), rows(SKIP_COLUMNS + 5, 40, layout, 3, 0.1)
    K, coef = reference.kernel_matrix(kernel, a.X, b.X), np.random.default_rng(4).normal(size=len(b))
    exact = kernel.in_float64()
    np.testing.assert_allclose(exact.block(a, b), K, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(exact.apply(a, b, coef), K @ coef, rtol=1e-11, atol=1e-12 * np.abs(K).max())
    assert exact.apply(a, b.take(slice(0)), coef[:0]).shape == (70,)


def test_the_exponential_of_float64_is_accurate_over_its_whole_range():
    x = np.linspace(0, 26.5, 5000)[:, None]
    error = RBF(1.0).in_float64().block(Rows(np.zeros((1, 1))), Rows(x))[0] / np.exp(-(x**2).ravel()) - 1
    assert np.all(np.abs(error) <= 1e-15 + 2.0**-52 * (x**2).ravel())


@settings(max_examples=30)
@given(st.floats(1e-3, 1e3), st.integers(1, 40))
def test_exponential_is_accurate_over_its_whole_range(gamma, m):
    """Relative error with one feature: of the polynomial, and of the float32 argument, five roundings of it."""
    a = Rows(np.zeros((1, 1), np.float32))
    x = np.linspace(0, 9 / np.sqrt(gamma), m, dtype=np.float32)[:, None]
    argument = gamma * (x.astype(np.float64) ** 2).ravel()
    error = RBF(gamma).block(a, Rows(x))[0] / np.exp(-argument) - 1
    assert np.all(np.abs(error) <= 3e-7 + 5 * 2.0**-24 * argument)


def test_values_beyond_float32_are_one_line():
    wide = Rows(np.full((4, 2), 1e6, np.float32))
    with pytest.raises(ConfigError, match="poly kernel are beyond float32"):
        Poly(1.0, 9).apply(wide, wide, np.ones(4))


@pytest.mark.parametrize("layouts", [(a, b) for a in ("float32", "csr") for b in ("float32", "csr")], ids=str)
@pytest.mark.parametrize("filled", [0.9, 0.1, 0.01, 0.0])
def test_absolute_distances_at_any_share_of_zeros(layouts, filled):
    """Dense rows, added rows and met entries are one distance, in both precisions."""
    kernel, a, b = Laplacian(0.02), rows(51, 71, layouts[0], 11, filled), rows(33, 71, layouts[1], 12, filled)
    expected = reference.kernel_matrix(kernel, a.X, b.X)
    np.testing.assert_allclose(kernel.block(a, b), expected, atol=1e-6)
    np.testing.assert_allclose(kernel.exact(a, b), expected, atol=1e-14)


@every_case(("kernel", "layout"), [*product(EVERY, ["float64"]), *product(OF_EACH_PRODUCT, ["csr"])], ids=str)
def test_exact_values_are_those_of_the_twin(kernel, layout):
    a, b = rows(20, 5, layout, 13), rows(30, 5, layout, 14)
    expected = reference.kernel_matrix(kernel, a.X, b.X)
    np.testing.assert_allclose(kernel.exact(a, b), expected, rtol=1e-7, atol=1e-13)
    np.testing.assert_allclose(kernel.diag(a), np.diag(kernel.exact(a, a)), rtol=1e-6, atol=1e-6)


@every_case(("kernel", "layout"), [*product(WITH_GRADIENT, ["float64"]), *product(OF_EACH_PRODUCT, ["csr"])], ids=str)
def test_the_gradient_is_that_of_differences(kernel, layout):
    a, b = rows(6, 4, "float64", 15, 1.0), rows(9, 4, layout, 16)
    coef, step = np.random.default_rng(17).normal(size=9), 1e-6
    there = Rows(sparse.csr_array(a.X) if layout == "csr" else a.X)
    gradient = kernel.gradient(there, b, coef)
    for f, move in enumerate(step * np.eye(4)):
        ahead, behind = (kernel.exact(Rows(a.X + sign * move), Rows(b.dense())) @ coef for sign in (1, -1))
        np.testing.assert_allclose(gradient[:, f], (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-6)


@every_case("kernel", WITH_GRADIENT, ids=str)
def test_the_gradient_at_the_row_itself_is_finite(kernel):
    a = rows(5, 3, "float64", 18)
    assert np.isfinite(kernel.gradient(a, a, np.ones(5))).all()


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_is_one_at_the_row_itself(nu):
    """The root of what float32 leaves of a distance would be 1e-3 of a row's length."""
    a = rows(200, 54, "float32", 19)
    assert np.all(np.diag(Matern(0.3, nu).block(a, a)) == 1)
    again = Matern(0.3, nu).apply(a, a.take(np.arange(7)), np.eye(7))
    np.testing.assert_array_equal(np.diag(again), np.ones(7))


@pytest.mark.parametrize("name", ["rbf", "laplacian", "matern", "cauchy"])
def test_scale_makes_units_of_features_irrelevant(name):
    a, b = rows(20, 5, "float64", 20), rows(10, 5, "float64", 21)
    made = kernel_class(name)
    plain, grown = (
        made(made.typical_gamma(5, 5 * size**2)).exact(Rows(size * a.X), Rows(size * b.X)) for size in (1.0, 7.0)
    )
    np.testing.assert_allclose(plain, grown, rtol=1e-6)


class TestTable:
    @every_case("name", ROWS)
    def test_a_row_and_its_class_agree(self, name):
        made = kernel_class(name)
        assert made.name == name
        assert tuple(field.name for field in fields(made)) == ROWS[name].parameters
        kernel = kernel_from({"name": name, "gamma": 0.5, "degree": 2, "coef0": 0.5, "nu": 2.5})
        assert kernel_from(kernel.to_attrs()) == kernel
        a = rows(40, 3, "float64", 22)
        if ROWS[name].definite:
            assert np.linalg.eigvalsh(kernel.exact(a, a)).min() > -1e-9

    @pytest.mark.parametrize(
        ("attrs", "found"),
        [
            ({"name": "magic"}, "found kernel 'magic', expected one of rbf, laplacian, matern"),
            ({"name": "rbf", "gamma": 1.0, "width": 2}, "found kernel parameter 'width'"),
            ({"name": "matern", "gamma": 1.0, "nu": 0.7}, "found nu 0.7 of the matern kernel"),
        ],
    )
    def test_what_is_unknown_is_refused(self, attrs, found):
        with pytest.raises(ValueError, match=found):
            kernel_from(attrs)

    def test_a_parameter_that_is_missing_is_no_default(self):
        with pytest.raises(KeyError, match="gamma"):
            kernel_from({"name": "rbf"})

    def test_attributes_of_models_before_the_table_are_read(self):
        """They had all parameters, whatever the kernel."""
        old = {"gamma": 0.5, "degree": 2, "coef0": 1.0}
        assert kernel_from({"name": "rbf"} | old) == RBF(0.5)
        assert kernel_from({"name": "poly"} | old) == Poly(0.5, 2, 1.0)
        assert kernel_from({"name": "linear"} | old) == Linear()


@pytest.mark.parametrize("kernel", [Laplacian(), Matern(), Cauchy(), Precomputed()], ids=lambda kernel: kernel.name)
def test_libsvm_is_given_no_kernel_that_it_has_no_name_for(kernel):
    svm = SVM("c_svc", kernel, rows(1, 3, "float32", 0), np.ones((1, 1)), np.zeros(1), (1, 2), (1, 0))
    with pytest.raises(ModelError, match=f"{kernel.name} kernel has no name in LIBSVM's format, which knows rbf, poly"):
        list(svm_lines(svm))
