"""Shapley values against all subsets, their axioms, and exact fractions where d is large."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import comb, factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ModelError
from streamsvm.explain.decisions import Decision
from streamsvm.explain.shapley import product_values, shapley_values
from streamsvm.kernels.base import kernel_from

PRODUCTS = ["rbf", "laplacian"]


def decision(kernel: str, s: int, d: int, gamma: float = 0.3) -> Decision:
    rng = np.random.default_rng(d)
    support, coef = Rows(rng.normal(size=(s, d)).astype(np.float32)), rng.normal(size=s)
    parameters = {"gamma": gamma, "nu": 1.5, "degree": 2, "coef0": 0.0}
    made = kernel_from({"name": kernel, **parameters})
    return Decision(made, Scaling.none(d), support, coef, 0.7, coef[:, None], None, True)


def by_subsets(g: Decision, row: Rows) -> np.ndarray:
    """The definition: each feature's mean gain over all orders; the kernel sees the columns of S alone."""
    d = row.d

    def worth(S: tuple[int, ...]) -> float:
        columns = list(S)
        restricted = replace(g, support=Rows(g.support.X[:, columns]))
        return restricted.values(Rows(row.X[:, columns]))[0] if S else g.intercept + g.coef.sum()

    v = {S: worth(S) for q in range(d + 1) for S in combinations(range(d), q)}
    out = np.zeros(d)
    for S, value in v.items():
        share = factorial(len(S)) * factorial(max(0, d - len(S) - 1)) / factorial(d)
        for i in set(range(d)) - set(S):
            out[i] += share * (v[tuple(sorted((*S, i)))] - value)
    return out


@pytest.mark.parametrize("d", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("kernel", PRODUCTS)
def test_are_the_mean_gains_over_all_subsets(kernel, d):
    g, row = decision(kernel, 6, d), Rows(np.random.default_rng(99).normal(size=(1, d)).astype(np.float32))
    found, base, _ = shapley_values(g, row)
    np.testing.assert_allclose(found, by_subsets(g, row), rtol=1e-11, atol=1e-13)
    assert base + found.sum() == pytest.approx(g.values(row)[0], abs=1e-12)


@st.composite
def games(draw):
    """What each factor lacks of 1, 0 and 1 among them, and coefficients."""
    s, d = draw(st.integers(1, 5)), draw(st.integers(2, 30))
    shortfall = draw(arrays(float, (s, d), elements=st.floats(0, 1)))
    return shortfall, draw(arrays(float, s, elements=st.floats(-10, 10)))


@given(games())
def test_add_up_to_what_all_features_are_worth(game):
    shortfall, coef = game
    gained = (coef * (np.prod(1 - shortfall, axis=1) - 1)).sum()
    assert product_values(shortfall, coef).sum() == pytest.approx(gained, abs=1e-11)


@given(games())
def test_features_alike_count_alike_and_those_without_effect_nothing(game):
    shortfall, coef = game
    shortfall[:, 1] = shortfall[:, 0]
    shortfall[:, -1] = 0.0 if shortfall.shape[1] > 2 else shortfall[:, -1]
    found = product_values(shortfall, coef)
    assert found[0] == pytest.approx(found[1], rel=1e-12, abs=1e-14)
    assert found[-1] == 0 or shortfall.shape[1] == 2


def exactly(shortfall: np.ndarray) -> list[float]:
    """Values of one product by elementary symmetric polynomials of fractions."""
    below, d = [Fraction(float(u)) for u in shortfall], len(shortfall)
    out = []
    for i in range(d):
        e = [Fraction(1)]  # of the others' factors
        for f in (1 - u for k, u in enumerate(below) if k != i):
            e = [a + f * b for a, b in zip([*e, Fraction(0)], [Fraction(0), *e], strict=True)]
        out.append(float(-below[i] * sum(value / (d * comb(d - 1, q)) for q, value in enumerate(e))))
    return out


@pytest.mark.parametrize("kind", ["any", "vanishing", "near 1", "both"])
def test_no_digit_is_lost_by_factors_far_apart(kind):
    rng, d = np.random.default_rng(0), 24
    shortfall = {
        "any": rng.random(d),
        "vanishing": 1 - 10.0 ** -rng.uniform(0, 300, d),
        "near 1": 10.0 ** -rng.uniform(0, 15, d),
        "both": np.where(rng.random(d) < 0.5, 1.0, 1e-12),
    }[kind]
    np.testing.assert_allclose(product_values(shortfall[None], np.ones(1)), exactly(shortfall), rtol=1e-11)


@pytest.mark.parametrize("d", [65, 784, 3000])
def test_fewer_points_are_enough_where_features_are_many(d):
    rng = np.random.default_rng(d)
    shortfall = np.stack([np.ones(d), rng.random(d), np.where(np.arange(d) % 2, 1.0, 1e-3)])
    for below in shortfall:
        gained = np.prod(1 - below) - 1
        assert product_values(below[None], np.ones(1)).sum() == pytest.approx(gained, abs=1e-9)


@pytest.mark.parametrize("kernel", ["matern", "cauchy", "poly", "linear"])
def test_other_kernels_are_refused_with_what_is_left(kernel):
    with pytest.raises(ModelError, match=f"products over features, rbf and laplacian; the model's is {kernel}: leave"):
        shapley_values(decision(kernel, 3, 2), Rows(np.zeros((1, 2), np.float32)))


def test_too_many_columns_are_refused():
    with pytest.raises(ModelError, match="of at most 4,096 columns, the model has 5,000; leave Shapley values out"):
        shapley_values(decision("rbf", 1, 5000), Rows(np.zeros((1, 5000), np.float32)))
