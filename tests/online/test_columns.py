"""Rows of events: by the plan of the last event they are the same as by name."""

from __future__ import annotations

import json
import math
import pickle
import sys
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


class Subclass(dict):
    pass


class Incomparable:
    def __hash__(self) -> int:
        return hash("b")

    def __eq__(self, other: object) -> bool:
        raise ArithmeticError


LIKE_THE_LAST = [
    {"a": 1.0, "b": 2.0, "c": 3.0},
    {"c": 3.0, "a": 1.0, "b": 2.0},  # in another order
    {"a": 1, "b": -2, "c": 2**59 + 1},
    {"a": -0.0, "b": 1e-300, "c": 1.0 / 3},
]
UNLIKE_IT = [
    {"a": 1.0, "b": 2.0},
    {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0},
    {"a": 1.0, "b": 2.0, "d": 4.0},
    {},
    Subclass(a=1.0, b=2.0, c=3.0),
    {"a": 1.0, "b": None, "c": 3.0},
    {"a": 1.0, "b": math.nan, "c": 3.0},
    {"a": 1.0, "b": -math.inf, "c": 3.0},
    {"a": 1.0, "b": LARGEST, "c": 3.0},
    {"a": 1.0, "b": 10**400, "c": 3.0},
    {"a": 1.0, "b": True, "c": 3.0},
    {"a": 1.0, "b": "2.0", "c": 3.0},
    {"a": 1.0, "b": Decimal(2), "c": 3.0},
    {"a": 1.0, "b": datetime(2024, 1, 31), "c": 3.0},
    {"a": np.float64(1.0), "b": np.float32(0.1), "c": np.int64(3)},
    {"a": 1.0, "b": np.bool_(True), "c": 3.0},
    {"a": 1.0, "b": np.array(2.0), "c": 3.0},
]


def unplanned() -> FeatureColumns:
    return FeatureColumns("abc", 8, 100, math.nan, lanes=8)


def outcome(columns: FeatureColumns, x: Any, grow: bool) -> object:
    """The row of an event, or the error."""
    try:
        return columns.row(x, grow=grow).tolist()
    except DataError as error:
        return str(error)


@every_case("x", LIKE_THE_LAST, ids=repr)
def test_an_event_like_the_last_is_read_by_its_plan(x):
    columns = planned()
    row = columns._plan.row(x)
    np.testing.assert_array_equal(row, unplanned().row(x, grow=True))
    assert columns._plan.row(dict(x)) is row


@every_case("x", UNLIKE_IT, ids=repr)
def test_an_event_unlike_the_last_is_read_as_if_it_was_the_first(x):
    for grow in (False, True):
        columns = planned()
        before = columns._plan._row.copy()
        assert columns._plan.row(x) is None
        np.testing.assert_equal(outcome(columns, x, grow), outcome(unplanned(), x, grow))
        np.testing.assert_array_equal(before, columns.row({"b": 2.0, "a": 2.0, "c": 3.0}, grow=True))


@every_case("value", [True, "2.0", None, math.nan, 7.0], ids=repr)
def test_an_event_may_change_between_two_looks(value):
    columns, x = planned(), {"a": 1.0, "b": 2.0, "c": 3.0}
    row = columns.row(x, grow=False)
    x["a"] = value  # the same dict
    np.testing.assert_equal(outcome(columns, x, True), outcome(unplanned(), x, True))
    np.testing.assert_array_equal(row[:3], [1, 2, 3])


@every_case(
    ("first", "x"),
    [
        ({"a": True, "b": 1.0}, {"a": False, "b": 2}),
        ({"a": np.float32(1), "b": np.int64(2)}, {"a": np.float32(0.5), "b": np.int64(3)}),
        ({"a": np.bool_(True), "b": 1}, {"a": np.bool_(False), "b": 2.5}),
        ({"a": 1.0}, {"a": 3}),
    ],
)
def test_a_plan_is_of_the_types_that_came(first, x):
    columns = FeatureColumns((), 0, 100)
    for event in (first, {**first, "b": 3.0} if "b" in first else {"a": 2.0}, first):
        columns.row(event, grow=True)
    columns.row(x, grow=True)
    row = columns._plan.row(x)
    np.testing.assert_array_equal(row, np.array([x[name] for name in columns.names], np.float32))
    for wrong in ("text", math.nan, None):
        assert columns._plan.row({**x, "a": wrong}) is None


def test_reading_by_a_plan_keeps_counts_of_references_and_leaves_no_error():
    columns, values = planned(), [12345.5, 67890.5, 10**400]
    x = dict(zip("abc", values, strict=True))

    def counts() -> list[int]:
        return [sys.getrefcount(object_) for object_ in (*values, *"abc", float, int, x)]

    before = counts()
    for _ in range(1000):
        assert columns._plan.row(x) is None
    assert counts() == before
    assert columns._plan.row({"a": 1.0, Incomparable(): 2.0, "c": 3.0}) is None
    x["c"] = 1
    assert columns._plan.row(x) is not None


@pytest.mark.parametrize("grow", [False, True])
@pytest.mark.parametrize("absent", [0.0, math.nan])
def test_rows_of_frames_are_those_of_events(absent, grow):
    X = pd.DataFrame({"z": [1.0, 2.0], "c": [math.nan, 3.0], "b": [4, 5], "a": [True, False]}, index=[7, 8])
    both = [FeatureColumns("abc", 8, 100, absent, kinds=[("a", "bool")]) for _ in range(2)]
    for frame in (X, X[["b", "c"]], X[["a", "b"]], X[:0], X.iloc[::-1]):
        events = [{k: v for k, v in x.items() if v == v} for x in frame.to_dict("records")]
        rows = both[0].matrix(frame, grow=grow).dense()
        for event in events if grow else ():
            both[1]._add_columns(event, list(event))
        np.testing.assert_array_equal(rows, np.reshape([both[1].row(x, grow=False) for x in events], rows.shape))
    for value in (math.inf, -LARGEST):
        with pytest.raises(DataError, match="row 1, feature 'c': found -?(inf|1e)"):
            both[0].matrix(X.assign(c=[math.nan, value]), grow=grow)


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
