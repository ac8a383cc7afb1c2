"""The kind of a feature's first value stands: no wrong event changes how later ones are answered."""

from __future__ import annotations

import json
import math
from datetime import datetime
from itertools import product

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import pairwise
from river import datasets, evaluate, metrics, preprocessing

from streamsvm.errors import DataError
from streamsvm.models.files import load_model, save_model
from streamsvm.online import BSGDClassifier, BSGDMultiLabelClassifier, BSGDOneClass, BSGDRegressor
from streamsvm.online.brokers import as_text
from streamsvm.online.kinds import MISSING
from streamsvm.online.lines import events, json_event
from streamsvm.online.stream import Stream
from streamsvm.serving.learning import LearningModel
from streamsvm.serving.requests import RequestError
from streamsvm.tables import arrow

VALUES = {
    "number": [0.5, 3],
    "bool": [True, False],
    "text": ["grey", "1.5"],
    "time": [datetime(2026, 1, 2, 3), datetime(2026, 5, 6)],
}
LABELS = {"number": [1, 2], "bool": [True, False], "text": ["in", "1"]}
TASKS = {
    "classify": lambda: BSGDClassifier(1e-3, 0.5, budget=20),
    "regress": lambda: BSGDRegressor(budget=20),
    "oneclass": lambda: BSGDOneClass(budget=20),
    "multilabel": lambda: BSGDMultiLabelClassifier(budget=20),
}
TARGETS = {"classify": ["in", "out"], "regress": [1.5, 2.0], "multilabel": [{"in": True}, {"in": False}]}
PAIRS = [(first, later) for first, later in product(VALUES, VALUES) if first != later]


def learnt(task, stream):
    learner = TASKS[task]()
    for i, x in enumerate(stream):
        learn(task, learner, x, i)
    return learner


def learn(task, learner, x, i=0):
    learner.learn_one(x) if task == "oneclass" else learner.learn_one(x, TARGETS[task][i % 2])


def told(learner):
    arrays, attrs = learner.to_model().to_state()
    saved = {name: np.asarray(own).tobytes() for name, own in arrays.items() if not name.endswith("counts")}
    return saved, json.dumps(attrs, default=str)


@every_case("task", TASKS)
@every_case(("first", "later"), PAIRS)
def test_a_feature_of_another_kind_is_refused_in_python(first, later, task):
    learner = learnt(task, [{"f": value, "n": 1.0} for value in VALUES[first] * 2])
    before = told(learner)
    for value in VALUES[later]:
        with pytest.raises(DataError, match=f"feature 'f': found .*, expected {'a' if first != 'bool' else 'true'}"):
            learn(task, learner, {"f": value, "n": 2.0, "new": 1.0})
        if task in ("classify", "regress"):
            X = pd.DataFrame([{"f": VALUES[first][0], "n": 1.0}, {"f": value, "n": 1.0}], dtype=object)
            with pytest.raises(DataError, match="row 1, feature 'f'"):
                learner.learn_many(X, pd.Series(TARGETS[task]))
    assert told(learner) == before


def line_of(x, task, i=0):
    y = {} if task == "oneclass" else {"y": TARGETS[task][i % 2]}
    return json.dumps(x | y)


def by_lines(stream, text):
    return stream.answer(as_text(text.encode()), json_event)


def by_http(stream, text):
    try:
        return json.loads(LearningModel(stream, 9, 1 << 60, None, print)._learn_request(text.encode(), None))[0]
    except (DataError, RequestError) as error:
        return {"error": str(error)}


NEW = ("n", 7), ("s", 7), ("t", "warm"), ("t", "7"), ("f", True)  # right values, which are learned
WRONG = st.one_of(
    st.tuples(
        st.sampled_from("fnts"),
        st.sampled_from([[], {}, [1.0], "warm", "7", True, 7, 10**400, math.nan, 1e30]),
    ),
    st.tuples(st.sampled_from(["\ud800", "t=grey"]), st.sampled_from([7, "x", True])),
    st.tuples(st.sampled_from("tfy"), st.sampled_from(["\udfff", "a\ud800"])),
)


@pytest.mark.parametrize("door", [by_lines, by_http])
@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=15)
@given(wrong=st.lists(WRONG, min_size=1, max_size=4))
def test_no_wrong_event_changes_later_answers(task, door, tmp_path_factory, wrong):
    rng = np.random.default_rng(0)
    right = [
        {
            "n": round(float(rng.normal()), 3),
            "f": bool(i % 3),
            "t": ["grey", "blue"][i % 2],
            "s": "n/a" if i % 2 else 2,
        }
        for i in range(12)
    ]
    path = tmp_path_factory.mktemp("none") / "m"
    clean, tried = (Stream.open(path, TASKS[task], scale=True, label="y") for _ in range(2))
    for i, x in enumerate(right):
        if i > 2:
            for name, value in wrong:
                said = door(tried, json.dumps({**json.loads(line_of(x, task)), name: value}))
                assert (name, value) in NEW or "error" in said
        expected, actual = (door(stream, line_of(x, task, i)) for stream in (clean, tried))
        if any(one in NEW for one in wrong):
            continue
        for said in (expected, actual):
            del said["event"], said["snapshot"]
        assert actual == expected


def test_missing_markers_are_those_of_tables():
    assert set(arrow.MISSING) == MISSING


@every_case("missing", ["n/a", "", "NA", "null", None])
def test_a_missing_marker_before_the_first_number_is_missing(missing):
    marked = learnt("classify", [{"a": missing, "b": 1.0}, {"a": 2.0, "b": 0.5}, {"a": missing, "b": 1.5}])
    absent = learnt("classify", [{"b": 1.0}, {"a": 2.0, "b": 0.5}, {"b": 1.5}])
    assert told(marked) == told(absent)
    text = learnt("classify", [{"a": "grey"}, {"a": "n/a"}])
    assert text.features == ["a=grey", "a=n/a"]


def test_kinds_are_known_after_a_restart(tmp_path):
    learner = learnt("classify", [{"f": True, "t": "grey", "n": 1, "w": datetime(2026, 1, 1)}] * 2)
    save_model(learner.to_model(), tmp_path / "m")
    again = BSGDClassifier.from_model(load_model(tmp_path / "m"))
    for wrong in ({"f": 1.0}, {"t": 7}, {"n": True}, {"w": "soon"}, {"t=grey": 7.0}, {"w.hour": 3}):
        with pytest.raises(DataError, match="feature"):
            again.learn_one(wrong, "in")
    assert told(again) == told(learner)


@every_case(("first", "later"), [pair for pair in product(LABELS, LABELS) if pair[0] != pair[1]])
@every_case("make", [TASKS["classify"], lambda: BSGDMultiLabelClassifier(budget=20)])
def test_labels_of_two_kinds_are_refused_when_met(make, first, later):
    learner, has = make(), isinstance(make(), BSGDMultiLabelClassifier)
    for label in LABELS[first]:
        learner.learn_one({"a": 1.0}, {label: True} if has else label)
    for label in LABELS[later]:
        with pytest.raises(DataError, match="found label .*as before: a model holds labels of one kind"):
            learner.learn_one({"a": 1.0}, {label: True} if has else label)
    assert learner.labels == LABELS[first]


@every_case("label", [("u", 1), b"u", 1 << 64, math.inf, "a\0", "\ud800", 1j, datetime(2026, 1, 1)], ids=repr)
def test_labels_that_no_model_can_hold_are_refused_when_met(label):
    learner = TASKS["classify"]()
    with pytest.raises(DataError, match="found label"):
        learner.learn_one({"a": 1.0}, label)
    with pytest.raises(DataError, match="found label"):
        learner.learn_many(pd.DataFrame({"a": [1.0]}), pd.Series([label], dtype=object))
    with pytest.raises(DataError, match="found label"):
        BSGDClassifier(classes=["u", label])
    assert (learner.labels, learner.n_seen) == ([], 0)


@pytest.mark.parametrize("labels", [[True, False], [1, 2.5], ["1", "01"], [np.int64(3), 4], [-(1 << 63), 0]], ids=str)
def test_labels_that_are_learned_are_those_of_the_model(labels, tmp_path):
    learner = TASKS["classify"]()
    for i in range(10):
        learner.learn_one({"a": float(i % 2)}, labels[i % 2])
    save_model(learner.to_model(), tmp_path / "m")
    assert load_model(tmp_path / "m").classes.tolist() == labels


@pytest.mark.parametrize(
    ("model", "data", "score"),
    [
        (BSGDOneClass(), datasets.Phishing(), metrics.ROCAUC()),
        (BSGDRegressor(), datasets.TrumpApproval(), metrics.MAE()),
        (BSGDClassifier(1e-3, 0.5), datasets.Phishing(), metrics.Accuracy()),
    ],
)
def test_a_scaler_of_river_may_say_nan_before_anything_is_learned(model, data, score):
    evaluate.progressive_val_score(data.take(30), preprocessing.MinMaxScaler() | model, score)
    assert model.n_seen == 30
    x = dict.fromkeys(model.features, 0.5)
    np.testing.assert_array_equal(model.decision_one(x | {"new": math.nan}), model.decision_one(x))
    with pytest.raises(DataError, match="found nan"):
        model.decision_one(dict.fromkeys(model.features, math.nan))


FRAMES = {
    "pandas": (lambda columns: pd.DataFrame(columns), pd.Series),
    "polars": (lambda columns: pl.DataFrame(columns, strict=False), pl.Series),
    "arrow": (lambda columns: pa.table(columns), pa.array),
}


@pytest.mark.parametrize(("task", "library", "text"), pairwise(["classify", "regress"], FRAMES, [False, True]))
def test_frames_with_gaps_are_learned_as_their_rows(task, library, text):
    frame, series = FRAMES[library]
    rng = np.random.default_rng(0)
    columns = {"b": [None, *rng.normal(size=39).tolist()], "flag": (rng.random(40) < 0.5).tolist()}
    columns["a"] = [None if i % 7 == 3 else float(value) for i, value in enumerate(rng.normal(size=40))]
    columns["none"] = pa.nulls(40, pa.float64()).to_pylist()
    if text:
        columns["t"] = [None if i % 5 == 2 else "uv"[i % 2] for i in range(40)]
    targets = [TARGETS[task][i % 2] for i in range(40)]
    one, many = TASKS[task](), TASKS[task]()
    for i in range(40):
        one.learn_one({name: values[i] for name, values in columns.items()}, targets[i])
    if library == "arrow":
        columns["none"] = pa.nulls(40, pa.float64())
    X = frame(columns)
    many.learn_many(X, series(targets))
    assert many.features == one.features
    rows = [{name: values[i] for name, values in columns.items() if name != "none"} for i in range(40)]
    expected = [one.predict_one(x) for x in rows]
    predicted = many.predict_many(X)
    assert type(predicted).__module__.partition(".")[0] == {"arrow": "pyarrow"}.get(library, library)
    values = predicted.to_pylist() if library == "arrow" else predicted.to_list()
    assert values == expected if task == "classify" else np.allclose(values, expected, rtol=1e-3)
    if task == "classify":
        names = getattr(many.predict_proba_many(X), "column_names", None) or [*many.predict_proba_many(X).columns]
        assert names == ["in", "out"]


@pytest.mark.parametrize("task", ["regress", "oneclass", "multilabel"])
@pytest.mark.parametrize("scale", [True, False])
def test_null_and_text_are_taken_in_all_tasks(task, scale, tmp_path):
    def opened():
        return Stream.open(tmp_path / "m", TASKS[task], scale=scale, label="y")

    stream = opened()
    some = [
        {"temp": 21.5, "sky": "grey"},
        {"temp": None},
        {"temp": 15, "sky": "blue"},
        {"sky": "grey", "temp": 3},
    ]
    for i, x in enumerate(some * 5):
        assert "error" not in stream.answer(line_of(x, task, i), json_event)
    stream.save()
    again = opened()
    assert "as before" in again.answer(line_of({"sky": 7}, task), json_event)["error"]
    assert again.learner.features == ["sky=grey", "temp", "sky=blue"]
    np.testing.assert_array_equal(again.decide(some), stream.decide(some))
    model, gap = load_model(tmp_path / "m"), {"sky": "grey", "temp": 9.5}
    row = pd.DataFrame([[1.0, 9.5, 0.0]], columns=["sky=grey", "temp", "sky=blue"])
    np.testing.assert_allclose(model.decision_function(row).ravel()[0], stream.decide([gap]).ravel()[0], rtol=1e-4)


def test_no_answer_has_nan(tmp_path):
    stream = Stream.open(tmp_path / "m", TASKS["oneclass"], scale=True, label="y")
    for label in ("NaN", "Infinity", "-Infinity", "1e999"):
        assert "expected a boolean, a finite number or a text" in by_lines(stream, f'{{"a": 1, "y": {label}}}')["error"]
    assert by_lines(stream, '{"a": 1, "y": 1}')["label"] == 1


@pytest.mark.parametrize("bad", [b'{"a": 1, "y": "caf\xe9"}', b'{"caf\xe9": 1}', b'{"a": 1, "y": "\\ud800"}'], ids=str)
def test_bytes_that_are_not_unicode_are_a_bad_line(bad, tmp_path):
    stream = Stream.open(tmp_path / "m", TASKS["classify"], scale=True, label="y")
    assert "Unicode" in stream.answer(as_text(bad), json_event)["error"]
    [(_, row, parse)] = events(["a,y", as_text(b"1,caf\xe9")], "csv")
    assert "Unicode" in stream.answer(row, parse)["error"]
    assert (stream.learner.labels, stream.learner.features) == ([], [])


CSV = {
    "semicolons": ("a;t;y", "1,5;grey;in", [1.5, "grey", "in"]),
    "points": ("a;t;y", "1.5;grey;in", [1.5, "grey", "in"]),
    "a line that names the delimiter": ("sep=|\na|t|y", "1.5|grey|in", [1.5, "grey", "in"]),
    "a comma in a name": ("a;t,b;y", "1.5;grey;in", [1.5, "grey", "in"]),
    "tabs": ("a\tt\ty", "1.5\tgrey\tin", [1.5, "grey", "in"]),
    "delimiters at the end": ("a,t,y", "1.5,grey,in,", [1.5, "grey", "in"]),
    "codes": ("a,t,y", "007,grey,001", [7, "grey", "001"]),
    "what Python alone reads": ("a,t,y", "1.5,1_000,in", [1.5, "1_000", "in"]),
    "missing": ("a,t,y", "n/a,grey,in", ["n/a", "grey", "in"]),
}


@every_case("case", CSV)
def test_a_csv_stream_reads_as_ingest_does(case, tmp_path):
    header, row, expected = CSV[case]
    stream = Stream.open(tmp_path / "m", TASKS["classify"], scale=False, label="y")
    [(_, line, parse)] = events([*header.split("\n"), row], "csv")
    x, y = stream._features_of(parse(line))
    assert [*x.values(), y] == expected


def test_a_number_is_a_text_in_a_column_of_texts_of_a_csv_stream(tmp_path):
    stream = Stream.open(tmp_path / "m", TASKS["classify"], scale=False, label="y")
    for _, line, parse in events(["t,y", "grey,a1", "7,2", "n/a,010"], "csv"):
        assert "error" not in stream.answer(line, parse)
    assert stream.learner.features == ["t=grey", "t=7", "t=n/a"]
    assert stream.learner.labels == ["a1", "2", "010"]


@pytest.mark.parametrize("make", [BSGDClassifier, BSGDRegressor])
def test_a_duration_of_numpy_is_no_number(make):
    model, day = make(), np.timedelta64(1, "D")
    with pytest.raises(DataError, match="feature 'a': found np.timedelta64.*, expected a number"):
        model.learn_one({"a": day}, 1)
    with pytest.raises(DataError, match="found (label|target) np.timedelta64"):
        model.learn_one({"a": 1.0}, day)


@pytest.mark.parametrize("make", [BSGDClassifier, BSGDRegressor])
def test_frames_with_columns_of_one_name_or_without_rows_in_memory_are_one_line(make):
    X, y = pd.DataFrame([[1.0, 2.0], [2.0, 1.0]], columns=["a", "a"]), pd.Series([0, 1])
    for frame in (X, X.assign(b=["u", "v"])):
        with pytest.raises(DataError, match="X has two columns 'a'; expected different names"):
            make().learn_many(frame, y)
    with pytest.raises(DataError, match="found rows as LazyFrame, expected a data frame"):
        make().learn_many(pl.LazyFrame({"a": [1.0, 2.0]}), y)
