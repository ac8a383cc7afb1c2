"""Gradients by tiles against those in float64."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.made import KERNELS, OF_EACH_PRODUCT, rows
from pairwise import pairwise
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.kernels import tiles
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.distance import RBF, Distances, Laplacian, Matern
from streamsvm.kernels.inner import InnerProducts, Linear, Poly, Precomputed
from streamsvm.kernels.table import kernel_names
from streamsvm.kernels.tiles import COLUMNS

LAYOUTS = [(a, b) for a in ("float32", "csr") for b in ("float32", "csr")]
MORE_THAN_A_TILE = COLUMNS + 13


def exact(kernel: Kernel, a: Rows, b: Rows, coef: np.ndarray) -> np.ndarray:
    """By `gradient`, a column at a time."""
    gradients = [kernel.gradient(a, b, column) for column in np.atleast_2d(coef.T)]
    return np.reshape(gradients, (*coef.shape[1:], len(a), a.d))


def compare(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max(initial=1e-30))


def test_every_kernel_is_tried():
    assert {kernel.name for kernel in KERNELS} == set(kernel_names())


@pytest.mark.parametrize(("kernel", "layouts", "wanted"), pairwise(KERNELS, LAYOUTS, [((), 1), ((3,), 2)]), ids=str)
def test_tiles_are_those_of_the_twin(kernel, layouts, wanted):
    shape, threads = wanted
    a, b = rows(151, 21, layouts[0], 0), rows(MORE_THAN_A_TILE, 21, layouts[1], 1)
    coef = np.random.default_rng(2).normal(size=(len(b), *shape))
    compare(kernel.gradients(a, b, coef, threads), exact(kernel, a, b, coef))


@pytest.mark.parametrize(
    ("kernel", "filled", "layouts"),
    pairwise([RBF(0.1), Laplacian(0.1), Poly(0.1, 2, 1.0)], [0.9, 0.1, 0.01, 0.0], LAYOUTS),
    ids=str,
)
def test_any_share_of_zeros(kernel, layouts, filled):
    """Columns of zeros on both sides are ties of every row."""
    a, b = rows(50, 70, layouts[0], 3, filled), rows(33, 70, layouts[1], 4, filled)
    coef = np.random.default_rng(5).normal(size=33)
    compare(kernel.gradients(a, b, coef), exact(kernel, a, b, coef))


@pytest.mark.parametrize(("kernel", "layouts"), pairwise(OF_EACH_PRODUCT, LAYOUTS), ids=str)
def test_any_share_of_coefficients_of_zero(kernel, layouts):
    """As of pairs of many classes; a column without any has no gradient."""
    a, b = rows(150, 21, layouts[0], 3), rows(MORE_THAN_A_TILE, 21, layouts[1], 4)
    rng = np.random.default_rng(5)
    coef = rng.normal(size=(len(b), 9))
    for column, share in enumerate([0.001, 0.1, 0.0, 0.003, 0.02, 0.01, 0.0, 0.3, 0.05]):
        coef[rng.random(len(b)) >= share, column] = 0
    coef[:COLUMNS, 3] = 0
    compare(kernel.gradients(a, b, coef), exact(kernel, a, b, coef))


@pytest.mark.parametrize("layouts", [("uint8", "uint8"), ("uint8", "csr"), ("float64", "uint8")], ids=str)
@pytest.mark.parametrize("kernel", OF_EACH_PRODUCT, ids=str)
def test_numbers_of_other_types(kernel, layouts):
    a, b = rows(20, 24, layouts[0], 6, 0.9), rows(31, 24, layouts[1], 7, 0.9)
    coef = np.random.default_rng(8).normal(size=31)
    compare(kernel.gradients(a, b, coef), exact(kernel, a, b, coef))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_row_gives_itself_what_the_twin_says(kernel):
    """At the row itself the edges of matern and laplacian have no slope."""
    a = rows(60, 9, "float32", 9, 1.0)
    compare(kernel.gradients(a, a, np.ones(60)), exact_apart(kernel, a))


def exact_apart(kernel: Kernel, a: Rows) -> np.ndarray:
    """sum_j dK(a_i, a_j) / da_i, where roundings of a float64 distance of 0 have no slope."""
    if not isinstance(kernel, Matern):
        return kernel.gradient(a, a, np.ones(len(a)))
    others = [a.take(np.delete(np.arange(len(a)), i)) for i in range(len(a))]
    one = [kernel.gradient(a.take([i]), other, np.ones(len(other))) for i, other in enumerate(others)]
    return np.concatenate(one)


@pytest.mark.parametrize("layout", ["float32", "csr"])
@pytest.mark.parametrize("kernel", [RBF(0.1), Laplacian(0.1), Linear()], ids=str)
def test_threads_and_groups_of_columns_change_nothing(kernel, layout, monkeypatch):
    a, b = rows(700, 21, layout, 10), rows(600, 21, layout, 11)
    coef = np.random.default_rng(12).normal(size=(600, 5))
    gradients = kernel.gradients(a, b, coef)
    np.testing.assert_array_equal(kernel.gradients(a, b, coef, 3), gradients)
    monkeypatch.setattr(tiles, "OPERAND_BYTES", 4 * 600 * 21 * 2)
    compare(kernel.gradients(a, b, coef), gradients)
    for column, one in zip(coef.T, gradients, strict=True):
        compare(kernel.gradients(a, b, column), one)


@pytest.mark.parametrize(
    ("kernel", "layout"), [*product(KERNELS, ["float32"]), *product(OF_EACH_PRODUCT, ["csr"])], ids=str
)
def test_no_rows_have_no_gradients(kernel, layout):
    a, none = rows(5, 3, layout, 13), rows(0, 3, layout, 13)
    np.testing.assert_array_equal(kernel.gradients(a, none, np.empty((0, 2))), np.zeros((2, 5, 3)))
    assert kernel.gradients(none, a, np.ones(5)).shape == (0, 3)
    assert kernel.gradients(a, a, np.empty((5, 0))).shape == (0, 5, 3)


def test_given_values_have_none():
    a = rows(4, 4, "float32", 14)
    with pytest.raises(ConfigError, match="precomputed kernel values have no gradient.*rbf, laplacian"):
        Precomputed().gradients(a, a, np.ones(4))


def test_gradients_beyond_float32_are_one_line():
    wide = Rows(np.full((4, 2), 1e6, np.float32))
    with pytest.raises(ConfigError, match="poly kernel are beyond float32"):
        Poly(1.0, 9).gradients(wide, wide, np.ones(4))


@pytest.mark.parametrize("way", ["exact blocks", "slopes in NumPy"])
@pytest.mark.parametrize("kernel", [RBF(0.1), Poly(0.1, 3, 1.0)], ids=str)
def test_a_class_need_not_bring_tiles_of_slopes(kernel, way, monkeypatch):
    """What kernels from outside the package have."""
    a, b = rows(70, 21, "csr", 15), rows(41, 21, "float32", 16)
    coef = np.random.default_rng(17).normal(size=(41, 2))
    expected = kernel.gradients(a, b, coef)
    made = type(kernel)
    if way == "exact blocks":
        monkeypatch.setattr(made, "slopes", Kernel.slopes)
    else:
        monkeypatch.setattr(made, "finish_slope", made.__mro__[1].finish_slope)
    compare(kernel.gradients(a, b, coef, 2), expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(0, 2**31), st.floats(-1e3, 1e3))
def test_ties_of_whole_numbers_count_for_nothing(d, seed, factor):
    """Laplacian at integers: of each feature the rows above less those below."""
    rng = np.random.default_rng(seed)
    a, b = (Rows(rng.integers(-2, 3, (m, d)).astype(np.float32)) for m in (7, 19))
    coef = factor * rng.normal(size=19)
    expected = exact(Laplacian(0.3), a, b, coef)
    for other in (b, Rows(sparse.csr_array(b.X))):
        compare(Laplacian(0.3).gradients(a, other, coef), expected)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(KERNELS), st.integers(0, 2**31))
def test_gradients_are_linear_in_coefficients(kernel, seed):
    a, b = rows(9, 5, "float32", seed, 1.0), rows(12, 5, "float32", seed + 1, 1.0)
    coef = np.random.default_rng(seed).normal(size=(12, 2))
    one, other = kernel.gradients(a, b, coef)
    both = kernel.gradients(a, b, coef @ [2.0, -3.0])
    np.testing.assert_allclose(both, 2 * one - 3 * other, atol=1e-4 * (1 + np.abs(one).max() + np.abs(other).max()))


@dataclass(frozen=True)
class Wave(Kernel):
    """cos(1'a - 1'b): neither of distances nor of inner products."""

    name = "wave"

    def tiles(self, b):
        return lambda a, out: np.copyto(out, self.exact(a, b))

    def exact(self, a, b):
        return np.cos(a.dense().sum(axis=1)[:, None] - b.dense().sum(axis=1))

    def diag(self, a):
        return np.ones(len(a))

    def gradient(self, a, b, coef):
        slope = -np.sin(a.dense().sum(axis=1)[:, None] - b.dense().sum(axis=1)) @ coef
        return np.repeat(slope[:, None], a.d, axis=1)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_of_no_family_has_them_from_its_own(threads):
    a, b = rows(40, 5, "float32", 18), rows(MORE_THAN_A_TILE, 5, "float32", 19)
    coef = np.random.default_rng(20).normal(size=(len(b), 2))
    compare(Wave().gradients(a, b, coef, threads), exact(Wave(), a, b, coef))


def test_families_have_tiles_of_their_own():
    assert all(family.slopes is not Kernel.slopes for family in (Distances, InnerProducts, Laplacian))
