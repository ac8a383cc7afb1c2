"""Predictions of a store, block by block: the files they go into, and the scores."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field

import numpy as np
import pytest
import zarr
from making import write
from sklearn import metrics as twin

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError, ModelError, StorageError
from streamsvm.models.columns import NamedColumns
from streamsvm.predict import PredictionOptions, evaluate, predict_blocks, write_predictions


class Serial:
    """An engine of one thread."""

    slots = 1

    def share(self, value):
        return value

    def map(self, fn, items, *, shared, phase, events):
        return (fn(*shared, item) for item in items)


@dataclass
class Linear(NamedColumns):
    """Decision values x W; classes by sign, or by the largest."""

    W: np.ndarray
    classes: np.ndarray = field(default_factory=lambda: np.array(["no", "yes"]))
    task: str = "classify"
    costs: None = None

    @property
    def d(self):
        return len(self.W)

    def decision_function(self, rows: Rows) -> np.ndarray:
        return rows.X @ self.W

    def answers(self, rows: Rows):
        return self.decision_function(rows), None

    def codes_of(self, decision, proba=None):
        return (decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)

    def labels(self, decision, proba=None):
        return self.classes[self.codes_of(decision, proba)]

    def encode_labels(self, y):
        index = {label: code for code, label in enumerate(self.classes.tolist())}
        return np.array([index.get(label, -1) for label in y.tolist()])


@pytest.fixture
def store(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3)).astype(np.float32)
    made = Store.from_arrays(X, np.where(X[:, 0] + rng.normal(size=1000) > 0, "yes", "no"))
    monkeypatch.setattr(made, "blocks", lambda most=None: [(0, 300), (300, 999), (999, 1000)])
    return made


@pytest.fixture
def binary():
    return Linear(np.array([1.0, 0.5, 0.25]))


@pytest.fixture
def three():
    return Linear(np.random.default_rng(1).normal(size=(3, 3)), np.array([3, 5, 8]))


def whole(model, store):
    return model.decision_function(store.read(0, store.n))


def test_blocks_come_in_order_and_cover_all_rows(store, binary):
    blocks = list(predict_blocks(binary, store, engine=Serial()))
    assert [(start, stop) for start, stop, _ in blocks] == store.blocks()
    assert np.allclose(np.concatenate([values for _, _, values in blocks]), whole(binary, store))


@pytest.mark.parametrize(
    ("slots", "rows", "expected"), [(1, 1 << 20, [1000]), (4, 1 << 20, [250] * 4), (1, 100, [100] * 10)]
)
def test_blocks_hold_many_chunks_and_each_task_has_one(slots, rows, expected, binary, monkeypatch, tmp_path):
    monkeypatch.setattr("streamsvm.data.store.default_chunk_rows", lambda row_bytes: 50)
    monkeypatch.setattr("streamsvm.predict.BLOCK_BYTES", rows * 3 * 4)
    X = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    chunked, engine = write(tmp_path / "s.zarr", Rows(X), chunk_rows=50), Serial()
    engine.slots = slots
    blocks = [(start, stop) for start, stop, _ in predict_blocks(binary, chunked, engine=engine)]
    assert [stop - start for start, stop in blocks] == expected


@pytest.mark.parametrize("model_name", ["binary", "three"])
@pytest.mark.parametrize("decision", [False, True])
def test_csv_npy_and_zarr_say_the_same(tmp_path, store, request, model_name, decision):
    model = request.getfixturevalue(model_name)
    values = whole(model, store)
    labels = model.labels(values)
    for suffix in (".csv", ".npy", ".zarr"):
        write_predictions(model, store, tmp_path / f"p{suffix}", PredictionOptions(decision=decision), engine=Serial())
    with (tmp_path / "p.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == [
        "label",
        *([] if not decision else ["decision"] if values.ndim == 1 else ["decision_0", "decision_1", "decision_2"]),
    ]
    assert [row[0] for row in rows] == [str(label) for label in labels]
    array = np.load(tmp_path / "p.npy")
    group = zarr.open_group(tmp_path / "p.zarr", mode="r")
    assert np.array_equal(group["label"][:].astype(labels.dtype), labels)
    assert ("decision" in group) == decision
    if decision:
        table = np.array([row[1:] for row in rows], float).reshape(values.shape)
        for found in (table, array, group["decision"][:]):
            assert np.allclose(found, values, rtol=1e-6)
        assert np.array_equal(array, group["decision"][:])
        assert np.array_equal(array, table.astype(array.dtype))
    else:
        assert np.array_equal(array, labels)
        assert array.dtype == labels.dtype
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.npy", "p.zarr"]


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".zarr"])
def test_a_failure_on_the_way_leaves_nothing_and_keeps_what_was_there(tmp_path, store, binary, suffix):
    out = tmp_path / f"p{suffix}"
    write_predictions(binary, store, out, engine=Serial())
    before = sorted(tmp_path.rglob("*"))
    calls = iter(range(9))

    def fails_late(rows):
        if next(calls) == 2:
            raise DataError("bad chunk")
        return rows.X @ binary.W

    binary.decision_function = fails_late
    with pytest.raises(DataError, match="bad chunk"):
        write_predictions(binary, store, out, PredictionOptions(decision=True), engine=Serial())
    assert sorted(tmp_path.rglob("*")) == before


def test_where_predictions_may_not_go(tmp_path, store, binary):
    with pytest.raises(ConfigError, match=r"expected a name ending in .csv, .npy or .zarr"):
        write_predictions(binary, store, tmp_path / "p.txt", engine=Serial())
    (tmp_path / "mine.zarr").mkdir()
    with pytest.raises(StorageError, match="already exists"):
        write_predictions(binary, store, tmp_path / "mine.zarr", engine=Serial())
    with pytest.raises(StorageError, match="No such file"):
        write_predictions(binary, store, tmp_path / "no" / "p.csv", engine=Serial())


def test_another_number_of_columns_is_refused(store):
    with pytest.raises(ModelError, match="has 3 columns, the model was trained on 4"):
        list(predict_blocks(Linear(np.ones(4)), store, engine=Serial()))


def test_scores_are_sklearns(store, binary):
    values = whole(binary, store)
    labels = binary.labels(values)
    result = evaluate(binary, store, engine=Serial())
    assert result["accuracy"] == pytest.approx(twin.accuracy_score(store.y, labels))
    assert result["roc_auc"] == pytest.approx(twin.roc_auc_score(store.y == "yes", values))
    assert result["confusion"] == twin.confusion_matrix(store.y, labels).tolist()
    report = twin.classification_report(store.y, labels, output_dict=True)
    for row in result["per_class"]:
        assert row["f1"] == pytest.approx(report[row["label"]]["f1-score"])
    assert (result["n"], result["n_unknown_labels"], result["classes"]) == (1000, 0, ["no", "yes"])


def test_classes_need_no_order_and_may_stand_for_several_labels(store, binary):
    class Grouped(Linear):
        def encode_labels(self, y):
            return np.isin(y, ["yes"]).astype(int)

    grouped = Grouped(binary.W, np.array(["rest", "yes, or so"]))
    backwards = Grouped(binary.W, np.array(["z: rest", "a: yes, or so"]))
    expected = evaluate(binary, store, engine=Serial())
    for model in (grouped, backwards):
        found = evaluate(model, store, engine=Serial())
        assert (found["accuracy"], found["confusion"]) == (expected["accuracy"], expected["confusion"])
        assert found["classes"] == model.classes.tolist()


def test_rows_of_unknown_classes_count_as_wrong(store, binary, three):
    some_unknown = Store.from_arrays(store.read(0, 1000).X, np.where(np.arange(1000) < 100, "what", store.y))
    result = evaluate(binary, some_unknown, engine=Serial())
    right = binary.labels(whole(binary, store))[100:] == store.y[100:]
    assert result["n_unknown_labels"] == 100
    assert result["accuracy"] == pytest.approx(right.sum() / 1000)
    with pytest.raises(DataError, match="no row has a label that the model knows; it knows 3, 5, 8"):
        evaluate(three, store, engine=Serial())


@dataclass
class Calibrated(Linear):
    """Probabilities by softmax; of two classes at most 0.9 of the second."""

    def answers(self, rows: Rows):
        values = self.decision_function(rows)
        two = np.column_stack([np.zeros(len(values)), values - 0.5])
        p = np.exp(two if values.ndim == 1 else values)
        return values, p / p.sum(axis=1, keepdims=True)

    def codes_of(self, decision, proba=None):
        return np.argmax(proba, axis=1)

    def require_probabilities(self):
        pass


@pytest.mark.parametrize("k", [2, 3])
def test_probabilities_in_every_file_and_the_labels_that_go_with_them(tmp_path, store, k):
    W, classes = np.random.default_rng(1).normal(size=(3, 3)), np.array([3, 5, 8])
    model = Calibrated(W, classes) if k == 3 else Calibrated(W[0])
    values, proba = model.answers(store.read(0, store.n))
    write_predictions(model, store, tmp_path / "p.csv", PredictionOptions(decision=True, proba=True), engine=Serial())
    with (tmp_path / "p.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header[-k:] == [f"probability_{label}" for label in model.classes]
    assert len(header) == 1 + (3 if k == 3 else 1) + k
    np.testing.assert_allclose(np.array([row[-k:] for row in rows], float), proba, rtol=1e-6)
    assert [row[0] for row in rows] == [str(label) for label in model.classes[proba.argmax(axis=1)]]
    write_predictions(model, store, tmp_path / "p.npy", PredictionOptions(proba=True), engine=Serial())
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), proba)
    write_predictions(model, store, tmp_path / "p.zarr", PredictionOptions(proba=True), engine=Serial())
    group = zarr.open_group(tmp_path / "p.zarr", mode="r")
    np.testing.assert_array_equal(group["probability"][:], proba)
    assert "decision" not in group
    with pytest.raises(ConfigError, match="found --decision and --proba, expected one of them"):
        write_predictions(
            model, store, tmp_path / "p.npy", PredictionOptions(decision=True, proba=True), engine=Serial()
        )


def test_probabilities_are_scored_over_rows_with_known_labels(store):
    model = Calibrated(np.array([1.0, 0.5, 0.25]))
    y = store.y.copy()
    y[:100] = "perhaps"
    there = Store.from_arrays(store.read(0, 1000).dense(), y)
    there.blocks = store.blocks
    result = evaluate(model, there, engine=Serial())
    proba = model.answers(store.read(0, 1000))[1][100:]
    positive = y[100:] == "yes"
    assert result["brier"] == pytest.approx(2 * twin.brier_score_loss(positive, proba[:, 1]))
    assert result["log_loss"] == pytest.approx(twin.log_loss(positive, proba[:, 1]))
    assert result["accuracy"] == pytest.approx(np.sum((proba[:, 1] > 0.5) == positive) / 1000)
    assert sum(row["count"] for row in result["reliability"]) == 900
    assert "brier" not in evaluate(Linear(np.ones(3)), store, engine=Serial())
