"""Intervals of split conformal prediction: next to a slow twin, the law of their coverage, states."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom

from streamsvm.errors import ModelError
from streamsvm.metrics import CoverageScores
from streamsvm.models.intervals import Intervals, rows_needed

NONE = np.empty(0)


def twin(errors: np.ndarray, level: Fraction) -> float | None:
    """The least q so that q is not below as many of the m errors as (m + 1) level; exact, and slow."""
    for q in sorted(errors.tolist()):
        if sum(error <= q for error in errors.tolist()) >= (len(errors) + 1) * level:
            return q
    return None


@given(st.integers(0, 2**32 - 1), st.integers(1, 120), st.integers(1, 199))
def test_half_widths_are_those_of_the_definition(seed, m, share):
    rng = np.random.default_rng(seed)
    y, f = rng.normal(size=(2, m)).round(1)  # ties among errors
    expected, level = twin(np.abs(y - f), Fraction(share, 200)), share / 200
    found = Intervals.of(0.9, y, f)
    assert (rows_needed(level) <= m) == (expected is not None)
    if expected is None:
        with pytest.raises(ModelError, match=f"which needs {rows_needed(level)} held-out rows, and there were {m}"):
            found.half_width(level)
        return
    assert found.half_width(level) == expected
    np.testing.assert_array_equal(found.around(f, level), np.stack([f - expected, f + expected], axis=1))


@every_case(("level", "rows"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99), (0.999, 999)])
def test_rows_that_a_level_needs(level, rows):
    assert rows_needed(level) == rows


def test_coverage_has_its_beta_law():
    """Of labels that nobody has told the function: given m errors it is Beta(k, m + 1 - k), for any function."""
    rng = np.random.default_rng(0)
    m, rows, level = 49, 400, 0.9
    inside = []
    for _ in range(300):
        y = rng.standard_cauchy(m + rows)
        q = Intervals.of(level, y[:m], np.full(m, 0.3)).half_width()
        inside.append(int(np.count_nonzero(np.abs(y[m:] - 0.3) <= q)))
    law = betabinom(rows, 45, 5)
    places = law.cdf(inside) - 0.5 * law.pmf(inside)  # uniform, were there no steps
    assert abs(places.mean() - 0.5) < 4 / np.sqrt(12 * 300)
    assert np.quantile(places, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.1)


@every_case("level", [0.0, 1.0, -0.1, 90.0, float("nan")])
def test_levels_are_shares(level):
    with pytest.raises(ModelError, match="expected a level above 0 and below 1"):
        Intervals(0.9, np.arange(20.0)).half_width(level)


def test_a_state_comes_back():
    own = Intervals.of(0.8, np.arange(30), np.zeros(30))
    arrays, attrs = own.to_state()
    again = Intervals.from_state(arrays, attrs)
    assert again is not None
    assert (again.level, again.half_width(0.9)) == (0.8, own.half_width(0.9))
    assert Intervals.from_state({}, {}) is None


@every_case(
    ("errors", "level"),
    [
        (np.array([1.0, 0.5]), 0.9),
        (np.array([-1.0, 0.5]), 0.9),
        (np.array([0.0, np.nan]), 0.9),
        (NONE, 0.9),
        (np.arange(3), 0.9),
        (np.arange(3.0), 1.5),
        (np.arange(3.0), "wide"),
    ],
)
def test_what_was_not_written_is_refused(errors, level):
    with pytest.raises(ValueError, match="incomplete"):
        Intervals.from_state({"interval_errors": errors}, {"interval": level})


def test_coverage_is_counted_over_blocks():
    rng = np.random.default_rng(0)
    y, f = rng.normal(size=(2, 500))
    own = Intervals.of(0.9, *rng.normal(size=(2, 60)))
    scores = CoverageScores(own)
    for start in range(0, 500, 130):
        scores.add(y[start : start + 130], f[start : start + 130])
    ends = own.around(f)
    inside = (ends[:, 0] <= y) & (y <= ends[:, 1])
    assert scores.result() == {
        "interval": 0.9,
        "coverage": pytest.approx(inside.mean()),
        "mean_width": pytest.approx(np.ptp(ends, axis=1).mean()),
    }
    levels, shares, widths = np.array(scores.curve()["coverages"]).T
    assert len(levels) == 19
    assert np.all(np.diff(shares) >= 0)
    assert widths[levels.tolist().index(0.9)] == 2 * own.half_width()
