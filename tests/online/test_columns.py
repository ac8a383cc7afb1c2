"""Rows of events: by the plan of the last event they are the same as by name."""

from __future__ import annotations

import json
import math
import pickle
import warnings
from collections import defaultdict
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.errors import DataError
from streamsvm.online import BSGDClassifier, BSGDRegressor
from streamsvm.online.columns import LARGEST, FeatureColumns, TotalVariance
from streamsvm.online.lines import json_event
from streamsvm.online.stream import Stream

VALUES = st.one_of(
    st.floats(-1e17, 1e17),
    st.integers(-(10**17), 10**17),
    st.floats(-1.0, 1.0, width=32).map(np.float32),
    st.decimals(-(10**6), 10**6, places=2),
)
EVENTS = st.lists(st.permutations("abc").flatmap(lambda names: st.fixed_dictionaries({n: VALUES for n in names})))


def planned() -> FeatureColumns:
    columns = FeatureColumns((), 0, 100, math.nan, lanes=8)
    for value in (1.0, 2.0):
        columns.row({"b": value, "a": 2.0, "c": 3.0}, grow=True)
    assert columns._plan is not None
    return columns


@given(EVENTS)
def test_rows_by_plan_are_those_by_name(events):
    columns = planned()
    for x in events:
        row = columns.row(x, grow=True)
        by_name = [np.float32(float(x[name])) for name in columns.names]
        np.testing.assert_array_equal(row[:3], by_name)
        assert np.isnan(row[3:]).all()
        assert columns.row(dict(x), grow=True) is row  # predicted, then learned


@every_case("value", [np.array([1.0, 2.0]), [1.0], 10**400, 1.5 * LARGEST, -math.inf, math.nan, 1j], ids=repr)
def test_a_plan_lets_nothing_in_that_is_no_number(value):
    columns = planned()
    with pytest.raises(DataError, match="feature 'a'"):
        columns.row({"a": value, "b": 2.0, "c": 3.0}, grow=True)
    np.testing.assert_array_equal(columns.row({"a": 4.0, "b": 5.0, "c": 6.0}, grow=True)[:3], [4, 5, 6])


def test_a_text_of_numpy_is_a_text():
    columns = planned()
    with pytest.raises(DataError, match="expected a number, as before"):
        columns.row({"a": np.str_("1.5"), "b": 2.0, "c": 3.0}, grow=True)


def test_events_with_other_features_are_as_before():
    columns = planned()
    x: dict[str, Any] = defaultdict(float, {"a": 1.0, "b": Decimal(2), "z": 3.0})
    np.testing.assert_array_equal(columns.row(x, grow=False)[:3], [1, 2, math.nan])
    assert sorted(x) == ["a", "b", "z"]  # asking for c would make one
    np.testing.assert_array_equal(columns.row(x, grow=True)[:4], [1, 2, math.nan, 3])
    wide = columns.row({f"f{i}": 1.0 for i in range(30)}, grow=True)
    assert columns.row({"a": 1.0, "b": 2.0, "c": 3.0}, grow=True).shape == wide.shape == (columns.width,)


def test_a_plan_is_made_again_where_it_was_sent():
    columns = pickle.loads(pickle.dumps(planned()))
    np.testing.assert_array_equal(columns.row({"a": 4, "b": 1, "c": 6.0}, grow=False)[:3], [4, 1, 6])


@pytest.mark.parametrize("first", [0.0, 1e8, -1e12])
def test_the_spread_of_columns_is_right_far_from_zero_and_from_the_first_row(first):
    X = 1e8 + np.random.default_rng(0).normal(size=(200, 2))
    X[0] = first
    X[:50, 1] = 0.0  # before the column was there
    for size in (1, 37):
        spread = TotalVariance()
        for lo in range(0, 50, size):
            spread.see(X[lo : min(lo + size, 50), :1])
        for lo in range(50, 200, size):
            spread.see(X[lo : lo + size])
        assert spread.variance() == pytest.approx(X.var(axis=0).sum(), rel=1e-9)
    rest = TotalVariance.from_state({**spread.to_state(), "n": 0, "squares": 0.0, "means": [0.0, 0.0]})
    rest.see(X[50:])
    assert rest.variance() == pytest.approx(X[50:].var(axis=0).sum(), rel=1e-6)


def test_spreads_of_earlier_versions_go_on():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) + 5
    apart = X[:40] - X[0]
    state = {
        "n": 40,
        "squares": np.vdot(apart, apart),
        "origin": X[0].tolist(),
        "sums": apart.sum(axis=0).tolist(),
    }
    spread = TotalVariance.from_state(state)
    assert spread.variance() == pytest.approx(X[:40].var(axis=0).sum())
    spread.see(X[40:])
    assert spread.variance() == pytest.approx(X.var(axis=0).sum())


START = 1_700_000_001.0
FAR = {  # features, and whether float32 is too narrow for them
    "seconds": ([START + i for i in range(70)], True),
    "below zero": ([-START - i for i in range(70)], True),
    "a small spread": ([5000 + i % 7 * 1e-3 for i in range(70)], True),
    "a large spread": ([START + i % 7 * 1e7 for i in range(70)], False),
    "exact": ([2.0**30 + 128 * i for i in range(70)], False),
    "constant": ([START] * 70, False),
    "small": ([0.1 * i for i in range(70)], False),
    "few": ([START + i for i in range(60)], False),
    "times": ([datetime(2026, 1, 31, 12, i % 60) for i in range(70)], False),
}


@every_case("door", ["learn_one", "learn_many"])
@every_case("case", FAR)
def test_features_that_float32_rounds_are_told_once(case, door):
    values, is_told = FAR[case]
    model, frame = BSGDClassifier(), pd.DataFrame({"a": 1.5, "when": values})
    labels = pd.Series([i % 2 > 0 for i in range(len(values))])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if door == "learn_one":
            for x, y in zip(frame.to_dict("records"), labels, strict=True):
                model.predict_one(x)
                model.learn_one(x, y)
        else:
            model.learn_many(frame, labels)
    messages = [str(one.message) for one in caught if "float32" in str(one.message)]
    assert [text[:51] for text in messages] == ["feature 'when': float32, in which events are learne"] * is_told


def test_features_that_a_scaler_brings_near_are_not_told(tmp_path):
    events = [json.dumps({"when": START + i, "y": float(i % 5)}) for i in range(70)]
    stream = Stream.open(tmp_path / "m", BSGDRegressor, scale=True, label="y")
    for line in events:
        assert "error" not in stream.answer(line, json_event)
