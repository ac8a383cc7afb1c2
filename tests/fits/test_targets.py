"""What rows are learned by: bounds to the last bit, and none of them held where labels and weights can be read."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from cases import config
from making import refuse_whole_columns, samples
from pairwise import pairwise

from streamsvm.data.store import Store
from streamsvm.data.writer import StoreWriter
from streamsvm.errors import DataError
from streamsvm.fits.parts import ColumnForm
from streamsvm.fits.prepare import TrainingData, prepare
from streamsvm.fits.targets import TargetsInMemory, TargetsInStore
from streamsvm.parallel.engine import Engine
from streamsvm.tasks.weights import row_weights
from streamsvm.train import train_in_memory

N = 300
Y = np.array(["ash", "elm", "oak"])[np.random.default_rng(0).integers(0, 3, N)]
WEIGHT = np.random.default_rng(1).random(N)


def stored(url: object, weight: np.ndarray | None) -> Store:
    rows = samples(N, 2)
    with StoreWriter(str(url), d=2, dtype="float32", chunk_rows=40) as writer:
        writer.append(rows, Y, sample_weight=weight)
    return Store.open(str(url))


def in_memory(store: Store) -> Store:
    return Store.from_arrays(store.read(0, N).X, store.y, sample_weight=store.sample_weight)


def prepared(store: Store, **options: object) -> TrainingData:
    return prepare(store, config("dcsvm", C=0.7, **options), Engine(1))


@pytest.mark.parametrize(
    ("has_weights", "class_weight", "positive"),
    pairwise([False, True], [None, "balanced", "by label"], [(), ("elm", "oak")]),
)
def test_bounds_are_those_of_vectors_to_the_last_bit(tmp_path, has_weights, class_weight, positive):
    weight = WEIGHT if has_weights else None
    store = stored(tmp_path / "s", weight)
    if class_weight == "by label":
        class_weight = {"1": 1.7} if positive else {"ash": 3.1, "oak": 0.3}
    found = prepared(store, class_weight=class_weight, positive=positive, holdout=30)
    held = prepared(in_memory(store), class_weight=class_weight, positive=positive, holdout=30)
    assert isinstance(found.target_source, TargetsInStore)
    assert isinstance(held.target_source, TargetsInMemory)

    classes, codes = np.unique(np.isin(Y, positive).astype(int) if positive else Y, return_inverse=True)
    by_class = np.arange(2, 2 + len(classes)) / 3
    upper = 0.7 * row_weights(codes, classes, class_weight, weight)
    assert found.held_out is not None
    upper[found.held_out.ids] = 0.0
    upper = upper * (1.3 / 0.7) * by_class[codes]
    ids = np.random.default_rng(2).permutation(N)[:77]
    count = weight if class_weight == "balanced" else None  # balanced classes have equal sums of weights
    for data in (found, held):
        np.testing.assert_allclose(data.class_rows, np.bincount(codes, count))
        answers = data.target_source.times(np.full(len(classes), 1.3 / 0.7)).times(by_class)
        for asked, own in (
            (answers.all(), slice(None)),
            (answers.read(35, 211), slice(35, 211)),
            (answers.take(ids), ids),
        ):
            np.testing.assert_array_equal(asked.upper, upper[own])
            np.testing.assert_array_equal(asked.targets.codes, codes[own])
            np.testing.assert_array_equal(asked.targets.classes, classes)
        form = ColumnForm.of(answers, data.task, data.no_targets)
        in_file = form.stored(ids, answers.take(ids))
        restored_ids, restored = form.restored(in_file)
        np.testing.assert_array_equal(restored_ids, ids)
        np.testing.assert_array_equal(restored.upper, upper[ids])
        np.testing.assert_array_equal(restored.targets.codes, codes[ids])
        assert restored.targets.codes.dtype == answers.take(ids).targets.codes.dtype
        knows_bounds = data is found and not has_weights
        assert sum(array.itemsize for array in in_file.values()) == (2 + 1 + 1 if knows_bounds else 2 + 1 + 8)


def test_rows_by_chance_are_none_that_are_kept_out(tmp_path):
    data = prepared(stored(tmp_path / "s", WEIGHT), holdout=150)
    assert data.held_out is not None
    everyone = data.drawn(150, np.random.default_rng(0))
    np.testing.assert_array_equal(everyone, np.setdiff1d(np.arange(N), data.held_out.ids))
    few = data.of_rows(100)
    assert len(few.store.y) == len(few.upper) == len(few.targets.codes) == 100
    np.testing.assert_array_equal(few.store.y, few.classes[few.targets.codes])
    np.testing.assert_array_equal(few.upper, 0.7 * few.store.sample_weight)
    np.testing.assert_array_equal(few.class_rows, data.class_rows)


@pytest.mark.filterwarnings("ignore:held-out rows are predicted no better")  # labels are by chance
@pytest.mark.parametrize("search", [{"options": ()}, {"options": ("C",), "sample": 100}], ids=["plain", "search"])
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_fit_on_a_budget_holds_no_labels(monkeypatch, tmp_path, search, partitions):
    store = stored(tmp_path / "s", WEIGHT)
    options = config("bsgd", search=search, class_weight="balanced", bsgd={"budget": 9, "partitions": partitions})
    held, _ = train_in_memory(in_memory(store), options)
    refuse_whole_columns(monkeypatch)
    monkeypatch.setattr(TargetsInStore, "all", lambda self: pytest.fail("all were asked for"))
    found, _ = train_in_memory(store, options)
    new = samples(50, 2, seed=3)
    np.testing.assert_array_equal(found.decision_function(new), held.decision_function(new))


def test_what_tasks_are_sent_does_not_grow_with_the_rows(tmp_path):
    answers = prepared(stored(tmp_path / "s", WEIGHT)).target_source
    sent = pickle.dumps(answers)
    assert len(sent) < 2000
    np.testing.assert_array_equal(pickle.loads(sent).read(3, 9).upper, answers.read(3, 9).upper)


def test_a_bad_weight_is_told_before_anything_is_learned(tmp_path):
    weight = WEIGHT.copy()
    weight[211] = -1.0
    with pytest.raises(DataError, match=r"sample_weight of row 211 is -1.0; expected a finite number >= 0"):
        prepared(stored(tmp_path / "s", weight))
