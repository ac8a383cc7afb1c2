"""Labels are what the file says: 001 is not 1, 64 bits stay, and a boolean is one thing in all formats."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from every_case import every_case

from streamsvm.cli.inputs import class_weights
from streamsvm.config import build_config
from streamsvm.data.labels import encode
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.online import BSGDClassifier
from streamsvm.online.scores import ClassScores
from streamsvm.storage.text import as_names, names_in
from streamsvm.tasks.classify import coder_of
from streamsvm.tasks.weights import class_factors, cost_matrix

LARGE = 2**53 + 1
WRITTEN = {
    "leading zeros": (["001", "010", "001"], ["001", "010"]),
    "zeros at the end alone": (["1", "10"] * 30_000 + ["007"], ["007", "1", "10"]),
    "signed zeros": (["-01", "1"], ["-01", "1"]),
    "whole numbers": (["3", "-1", "0"], [-1, 0, 3]),
    "quoted": (['"7"', '"8"'], [7, 8]),
    "64 bits": ([str(LARGE), str(LARGE - 1)], [LARGE - 1, LARGE]),
    "more than 64 bits": (["18446744073709551615", "1"], ["1", "18446744073709551615"]),
    "fractions": (["1.50", "2"], [1.5, 2.0]),
    "fractions at the end": (["1", "2"] * 30_000 + ["2.50"], [1.0, 2.0, 2.5]),
    "whole fractions": (["1.0", "2.0"], [1, 2]),
    "powers": (["1e3", "5"], [5, 1000]),
    "booleans of pandas": (["True", "False"], ["false", "true"]),
    "booleans of spreadsheets": (["TRUE", "FALSE"], ["false", "true"]),
    "booleans among others": (["True", "False", "Unknown"], ["False", "True", "Unknown"]),
}


def csv_store(folder, labels, **options):
    rows = "".join(f"{i % 7:025.20f},{label}\n" for i, label in enumerate(labels))  # many are above 1 MiB
    (folder / "a.csv").write_text("a,y\n" + rows)
    ingest([folder / "a.csv"], folder / "a.zarr", IngestOptions(memory_limit="32MiB", **options))
    return Store.open(folder / "a.zarr")


@every_case("name", list(WRITTEN))
@every_case("shuffle", [False, True])
def test_csv_labels_are_as_written(tmp_path, name, shuffle):
    labels, expected = WRITTEN[name]
    store = csv_store(tmp_path, labels, shuffle=shuffle)
    assert store.classes.values.tolist() == expected
    assert store.classes.values.dtype.kind == np.array(expected).dtype.kind


@pytest.mark.parametrize("gap", ["", "NA", "null"])
def test_a_missing_number_is_no_label(tmp_path, gap):
    with pytest.raises(DataError, match=r"a.csv:4: column 'y' has no value; fill it in or remove the row"):
        csv_store(tmp_path, ["1", "2", gap])


def test_sources_with_and_without_zeros_have_one_type_of_label(tmp_path):
    for name, labels in {"a": "1 2", "b": "001 2", "c": "3 4"}.items():
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "".join(f"1,{label}\n" for label in labels.split()))
    ingest([tmp_path / f"{name}.csv" for name in "abc"], tmp_path / "s.zarr", IngestOptions())
    assert Store.open(tmp_path / "s.zarr").y.tolist() == ["1", "2", "001", "2", "3", "4"]


TYPED = {
    "int64": (pa.array([LARGE, LARGE - 1]), [LARGE - 1, LARGE]),
    "uint64": (pa.array([2**64 - 1, 2**63], pa.uint64()), [str(2**64 - 1), str(2**63)]),
    "int8": (pa.array([1, -1], pa.int8()), [-1, 1]),
    "bool": (pa.array([True, False]), ["false", "true"]),
    "texts": (pa.array(["001", "1"]), ["001", "1"]),
    "codes of int64": (pa.array([LARGE, LARGE - 1]).dictionary_encode(), [LARGE - 1, LARGE]),
    "codes of bool": (pa.array([True, False]).dictionary_encode(), ["false", "true"]),
    "codes of texts": (pa.array(["001", "1"]).dictionary_encode(), ["001", "1"]),
}


@every_case("name", list(TYPED))
def test_typed_labels_stay_whole(tmp_path, name):
    labels, expected = TYPED[name]
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": labels}), tmp_path / "a.parquet")
    ingest([tmp_path / "a.parquet"], tmp_path / "a.zarr", IngestOptions())
    assert Store.open(tmp_path / "a.zarr").classes.values.tolist() == expected


@pytest.mark.parametrize("labels", [pa.array(["x", "x\0"]), pa.array(["x", "x\0"]).dictionary_encode()])
def test_a_zero_at_the_end_of_a_label_is_refused(tmp_path, labels):
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": labels}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet:2: the label \(column 'y'\) is 'x\\x00', which a model cannot"):
        ingest([tmp_path / "a.parquet"], tmp_path / "a.zarr", IngestOptions())


@pytest.mark.parametrize(("other", "told"), [("x ", True), ("'x'", True), ("X", False)])
def test_labels_that_differ_in_spaces_or_quotes_are_named(tmp_path, other, told):
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": ["x", other]}), tmp_path / "a.parquet")
    labels_found = []
    events = Events(lambda record: labels_found.append(getattr(record.event, "message", "")))
    ingest([tmp_path / "a.parquet"], tmp_path / "a.zarr", IngestOptions(), events)
    assert ("label column 'y' has 'x' with and without spaces" in "".join(labels_found)) is told


@pytest.mark.parametrize("format_", ["npy", "txt", "svm"])
def test_labels_of_64_bits_in_other_files(tmp_path, format_):
    X, y = np.ones((3, 2), np.float32), np.array([LARGE, LARGE - 1, 5])
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    (tmp_path / "y.txt").write_text("".join(f"{label}\n" for label in y))
    (tmp_path / "X.svm").write_text("".join(f"+{label} 1:1\n" for label in y))
    source, labels = ("X.svm", None) if format_ == "svm" else ("X.npy", str(tmp_path / f"y.{format_}"))
    ingest([tmp_path / source], tmp_path / "s.zarr", IngestOptions(labels=labels))
    assert Store.open(tmp_path / "s.zarr").y.tolist() == y.tolist()


def test_query_ids_of_64_bits_stay_apart(tmp_path):
    (tmp_path / "a.csv").write_text(f"q,a,y\n{LARGE},1,0\n{LARGE - 1},1,1\n")
    ingest([tmp_path / "a.csv"], tmp_path / "a.zarr", IngestOptions(qid="q"))
    assert Store.open(tmp_path / "a.zarr").qid.tolist() == [LARGE, LARGE - 1]


BOOLEANS = [np.array([False, True]), np.array(["False", "True"]), np.array(["false", "true"])]


@every_case("classes", BOOLEANS)
@every_case("y", [*BOOLEANS, np.array(["FALSE", "TRUE"])])
def test_booleans_are_one_thing(classes, y):
    assert encode(y, classes).tolist() == [0, 1]
    assert encode(y, np.array([0, 1]), ("True",)).tolist() == [0, 1]


def test_booleans_of_arrays_and_zarr_are_labels(tmp_path):
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="w")
    group.create_array("X", data=np.ones((2, 1), np.float32))
    group.create_array("y", data=np.array([True, False]))
    assert encode(Store.open(tmp_path / "s.zarr").classes.values, np.array(["False", "True"])).tolist() == [
        0,
        1,
    ]


def test_labels_are_named_in_any_spelling_of_booleans(tmp_path):
    store = csv_store(tmp_path, ["True", "False", "True"])
    assert coder_of(store, ("True",)).of_label.tolist() == [0, 1]
    assert cost_matrix({"TRUE": {"False": 5.0}}, store.classes.values)[1, 0] == 5
    assert class_factors(np.array([1, 2]), store.classes.values, {"True": 3.0}).tolist() == [1, 3]


def test_a_stream_takes_booleans_of_json_and_csv():
    of_json, of_csv = (ClassScores(BSGDClassifier(classes=classes)) for classes in ([True, False], ["False", "True"]))
    assert [of_json.label("y", y) for y in ("TRUE", "false", True)] == [True, False, True]
    assert [of_csv.label("y", y) for y in (True, False, "True")] == ["True", "False", "True"]


def test_a_model_of_other_labels_says_what_both_have(tmp_path):
    from streamsvm import DCSVC

    X, y = np.arange(8.0)[:, None], np.array(["yes", "no"] * 4)
    model = DCSVC().fit(X, y).model_
    from streamsvm.parallel.engine import Engine
    from streamsvm.predict import evaluate

    store = csv_store(tmp_path, ["Y", "N"])
    message = "no row has a label that the model knows; it knows no, yes, the rows have N, Y"
    with pytest.raises(DataError, match=message):
        evaluate(model, Store.from_arrays(np.ones((2, 1)), store.y), engine=Engine())


@every_case(
    ("positive", "y"),
    [
        (("1",), np.array([1, 0, 2])),
        (("1",), np.array([1.0, 0.5, 2.0])),
        (("1.0",), np.array([1, 0, 2])),
        (("1",), np.array([True, False, False])),
        (("true",), np.array([True, False, False])),
        (("True",), np.array(["TRUE", "false", "no"])),
        (("1", "a"), np.array(["a", "1.0", "b"])),
    ],
)
def test_positive_labels_are_those_that_they_equal(positive, y):
    assert encode(y, np.array([0, 1]), positive).tolist() == [1, 0, 0]


def test_large_positive_labels_are_one():
    assert encode(np.array([2**53, 2**53 + 1]), np.array([0, 1]), (str(2**53),)).tolist() == [1, 0]


def test_rows_without_a_positive_label_are_told(tmp_path):
    from streamsvm.parallel.engine import Engine
    from streamsvm.predict import evaluate
    from streamsvm.train import train_in_memory

    X = np.arange(9.0)[:, None]
    store = Store.from_arrays(X, np.arange(9) % 3)
    model, _ = train_in_memory(store, build_config(("x", {"positive": "1", "kernel": {"gamma": 1.0}})))
    message = "no row has a label of the positive class, which is 1; the rows have 1.0, 2.0, and all of them count as"
    with pytest.warns(UserWarning, match=message):
        evaluate(model, Store.from_arrays(X[:2], np.array(["1.0", "2.0"])), engine=Engine())
    evaluation = evaluate(model, Store.from_arrays(X, (np.arange(9) % 3).astype(float)), engine=Engine())
    assert evaluation == evaluate(model, store, engine=Engine())


def test_names_with_marks_are_quoted_as_in_csv():
    assert names_in('"a,b",c, "say ""hi""" ,5" pipe') == ["a,b", "c", 'say "hi"', '5" pipe']
    assert class_weights('"a,b"=2,"c=d"=1,e=3') == {"a,b": 2, "c=d": 1, "e": 3}
    with pytest.raises(ConfigError, match="found 'e=1,\"e\"=2', expected each label once"):
        class_weights('e=1,"e"=2')
    assert build_config(("x", {"positive": '"a,b",c'})).positive == ("a,b", "c")
    costs = build_config(("x", {"probability": {"costs": '"a>b">"c,d"=5,e="f=g"=1'.replace("e=", "e>")}}))
    assert costs.probability.costs == {"a>b": {"c,d": 5.0}, "e": {"f=g": 1.0}}
    assert IngestOptions(ignore='"a,b",c').ignore == ("a,b", "c")
    assert IngestOptions(hash='"a,b"=8').hash == {"a,b": 8}
    assert IngestOptions(target_encode='"a=b"=20,c').target_encode == {"a=b": 20.0, "c": "auto"}


@every_case("names", [["a"], ["a,b", "c"], [' a "b" '], ["a=b", "?"], ["1,5"], ["x'y"]])
def test_lists_that_are_advised_mean_these_names(names):
    [word] = shlex.split(as_names(*names))
    assert names_in(word) == names
    [word] = shlex.split(as_names(*names, end="=8"))
    assert IngestOptions(hash=word).hash == dict.fromkeys(names, 8)


def test_saved_booleans_of_python_meet_csv(tmp_path):
    from streamsvm import DCSVC

    frame = pd.DataFrame({"a": np.arange(8.0), "y": np.arange(8) % 2 > 0})
    DCSVC().fit(frame[["a"]], frame["y"]).save(tmp_path / "m.zarr")
    assert json.loads((tmp_path / "m.zarr" / "zarr.json").read_text())
    from streamsvm import load_model

    assert load_model(tmp_path / "m.zarr").encode_labels(np.array(["True", "False"])).tolist() == [1, 0]
