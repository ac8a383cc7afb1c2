"""ONNX graphs whose inputs are the columns of a table: they answer as the model does to the table itself."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from commands import run

from streamsvm import DCSVC, DCSVR, AutoSVC, Store, load_model
from streamsvm.errors import ModelError
from streamsvm.exchange.onnx import onnx_model

DAY = pd.Timedelta(days=1)
USUAL = {"gaps": "mean", "scale": "standard"}


def table(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """Columns of all kinds, with gaps, spaces around texts, and names that outputs have, too."""
    rng = np.random.default_rng(seed)
    texts = np.array(["red", "blue", None, "green", " light  grey "], dtype=object)
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 10, n)),
            "colour": rng.choice(texts, n),
            "is_open": rng.random(n) < 0.5,
            "scores": pd.Timestamp("2026-01-01") + DAY * rng.integers(0, 1000, n),
            "town": rng.choice(["Ulm", "Bern", "\u00c5bo", ""], n),
            "code": rng.choice(["1", "2", "12", "x"], n),
        }
    )


def target(frame: pd.DataFrame) -> np.ndarray:
    return np.where((frame["age"].fillna(40) > 40) ^ (frame["colour"] == "red"), "yes", "no")


def feeds(session: onnxruntime.InferenceSession, frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """The inputs of a graph, as its page in the guide says."""
    tensors = {}
    for entry in session.get_inputs():
        column = frame[entry.name.rstrip("_")]
        if entry.type == "tensor(string)":
            values = column.fillna("").to_numpy(dtype=object)
        elif column.dtype.kind == "M":
            values = ((column - pd.Timestamp(0)) / DAY).to_numpy()
        else:
            values = column.to_numpy()
        dtype = {"tensor(float)": np.float32, "tensor(double)": np.float64}.get(entry.type, object)
        tensors[entry.name] = values.astype(dtype)[:, None]
    return tensors


def session_of(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    onnx.checker.check_model(proto, full_check=True)
    return onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


def assert_same(estimator, frame):
    session = session_of(onnx_model(estimator.model_))
    names = [output.name for output in session.get_outputs()]
    answers = dict(zip(names, session.run(names, feeds(session, frame)), strict=True))
    values = estimator.decision_function(frame) if "label" in answers else estimator.predict(frame)
    np.testing.assert_allclose(answers["scores"], values, atol=1e-5 * max(1, np.abs(values).max()))
    if "label" in answers:
        np.testing.assert_array_equal(answers["label"], estimator.predict(frame))
    return session


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"target_encode": ["colour", "town"]},
        {"category": ["code"], "scale": "minmax"},
        {"early": True, "levels": 1, "part_rows": 100},
    ],
    ids=["one-hot", "target-encoded", "codes", "early"],
)
def test_answers_are_those_to_the_table(options):
    frame, new = table(), table(seed=1)
    new.loc[:30, "colour"] = "never seen"
    svm = DCSVC(C=10, **USUAL | options).fit(frame, target(frame))
    session = assert_same(svm, new)
    assert [entry.name for entry in session.get_inputs()] == ["age", "colour", "is_open", "scores_", "town", "code"]


def test_values_of_several_classes():
    frame, new = table(), table(seed=1)
    y = np.where(frame["colour"] == "blue", "maybe", target(frame))
    assert_same(DCSVC(target_encode=["town"], **USUAL).fit(frame, y), new)


def test_a_regression_and_an_ensemble():
    frame, new = table(), table(seed=1)
    y = frame["age"].fillna(40) + 10 * (frame["colour"] == "red")
    assert_same(DCSVR(**USUAL).fit(frame, y), new)
    assert_same(
        AutoSVC(ensemble=2, gaps="mean", search_params={"trials": 3}, random_state=0).fit(frame, target(frame)), new
    )


def test_times_of_day_and_large_numbers_are_float64():
    frame = table().assign(scores=lambda table: table["scores"] + pd.Timedelta(hours=7))
    with pytest.warns(UserWarning, match="has times of day"):
        svm = DCSVC(**USUAL).fit(frame, target(frame))
    session = assert_same(svm, frame)
    assert {entry.type for entry in session.get_inputs()} == {"tensor(string)", "tensor(double)"}


def test_notes_say_what_cannot_be_seen():
    frame = table()
    svm, notes = DCSVC(**USUAL).fit(frame, target(frame)), []
    onnx_model(svm.model_, notes=notes)
    assert notes == [
        "column 'scores' is the input 'scores_', as an output has its name",
        "column 'scores' is in days since 1970",
    ]


def test_rows_or_columns_where_they_are_asked_for():
    frame = table()[["age", "is_open"]].fillna(0.0)
    svm = DCSVC().fit(frame, target(table()))
    assert [entry.name for entry in session_of(onnx_model(svm.model_)).get_inputs()] == ["X"]
    session = session_of(onnx_model(svm.model_, inputs="columns"))
    [label, *_] = session.run(["label"], feeds(session, frame))
    np.testing.assert_array_equal(label, svm.predict(frame))
    [entry] = session_of(onnx_model(DCSVC(**USUAL).fit(table(), target(table())).model_, inputs="rows")).get_inputs()
    assert (entry.name, entry.shape) == ("X", ["N", 14])
    with pytest.raises(ModelError, match="rows come from no table with columns; export --inputs rows"):
        onnx_model(DCSVC().fit(frame.to_numpy(float), target(table())).model_, inputs="columns")


@pytest.mark.parametrize(
    "encoding",
    ["--hash colour=16 --hash town=8", "--min-frequency 40", "--missing ? --target-encode town"],
    ids=["hashed", "rare", "marked"],
)
def test_files_of_texts(tmp_path, encoding, capfd):
    """Of CSV files as pandas reads them, with a space before each text, hashed, rare, and with a marker for gaps."""
    frame, new = table(), table(seed=1)
    paths = {}
    for name, rows in (("train", frame), ("new", new)):
        rows = rows.drop(columns=["scores", "is_open"]).assign(label=target(rows))
        rows["town"], rows["colour"] = rows["town"].replace("", "?"), " " + rows["colour"].fillna("").str.strip()
        paths[name] = tmp_path / f"{name}.csv"
        rows.to_csv(paths[name], index=False)
    store, model = tmp_path / "train.zarr", tmp_path / "model"
    options = "--no-search --scale standard --gaps mean".split()
    for command in (
        ("ingest", paths["train"], "--label", "label", "--store", store, *encoding.split()),
        ("ingest", paths["new"], "--like", store, "--store", tmp_path / "new.zarr"),
        ("fit", "--store", store, *options, "--model", model),
    ):
        assert run(*command) == 0
    capfd.readouterr()
    assert run("export", "--model", model, "--format", "onnx", "--out", tmp_path / "m.onnx", "--json") == 0
    notes = json.loads(capfd.readouterr().out)["notes"]
    assert any("is hashed by an operator" in note for note in notes) == ("--hash" in encoding)
    session = session_of(onnx.load(tmp_path / "m.onnx"))
    frame = pd.read_csv(paths["new"], skipinitialspace="--hash" in encoding)
    labels, scores = session.run(["label", "scores"], feeds(session, frame))
    rows, loaded = Store.open(tmp_path / "new.zarr"), load_model(model)
    np.testing.assert_allclose(scores, loaded.decision_function(rows), atol=1e-5)
    np.testing.assert_array_equal(labels, loaded.predict(rows))
