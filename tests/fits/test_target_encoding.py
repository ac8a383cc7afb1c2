"""Target-encoded columns, against scikit-learn's TargetEncoder."""

from __future__ import annotations

import json
import pickle

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.preprocessing import TargetEncoder

from streamsvm import DCSVC, DCSVR, AutoSVC, BudgetedSVC, load_model
from streamsvm.cli.app import app, exit_status
from streamsvm.config import build_config
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.events import Events, Progress, ignore
from streamsvm.exchange.onnx import onnx_model
from streamsvm.explain.slices import evaluate_sliced
from streamsvm.fits.prepare import prepare
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.judging.held_out import by_chance
from streamsvm.models.files import read_attrs
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate
from streamsvm.tables.target_encoding import FOLDS, FoldAssignment, with_values_of_model
from streamsvm.train import plan, train, train_in_memory

KINDS = ("binary", "multiclass", "continuous")


def table(kind: str = "binary", n: int = 400, seed: int = 0) -> pd.DataFrame:
    """Towns with effects of their own, some of a row or two, some missing; a colour, a number, a label."""
    rng = np.random.default_rng(seed)
    towns = np.minimum(rng.geometric(0.06, n), 50)
    value = np.random.default_rng(9).normal(size=51)[towns] + 0.5 * rng.normal(size=n)
    labels = {
        "binary": np.where(value > 0, "yes", "no"),
        "multiclass": np.array(["a", "b", "c"])[np.digitize(value, [-0.4, 0.4])],
        "continuous": value + 1000,
    }
    town = [None if t == 7 else f"town {t}" for t in towns]
    colour = np.array(["red", "blue"])[rng.integers(0, 2, n)]
    return pd.DataFrame({"town": town, "colour": colour, "size": rng.normal(size=n), "label": labels[kind]})


def store_of(rows: pd.DataFrame, **options) -> Store:
    return Store.from_arrays(rows.drop(columns="label"), rows["label"].to_numpy(), **options)


def configured(kind: str = "binary", **options):
    task = "regress" if kind == "continuous" else "classify"
    return build_config(("test", {"task": task, "kernel": {"gamma": 0.5}, "tol": 0.01, **options}))


def run(*words) -> int:
    return exit_status(lambda: app([*map(str, words)], standalone_mode=False))


def encoder(kind: str, rows: pd.DataFrame, smooth) -> TargetEncoder:
    peer = TargetEncoder(target_type=kind, smooth=smooth)
    return peer.fit(texts(rows), rows["label"])


def texts(rows: pd.DataFrame) -> np.ndarray:
    return rows[["town"]].fillna("").to_numpy(object)


@pytest.mark.parametrize("smooth", ["auto", 0, 7.5])
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_scikit_learn(kind, smooth):
    """Of all rows for new ones, new texts among them, and of the other folds for those that are learned from."""
    rows, new = table(kind), table(kind, seed=1)
    new.loc[:20, "town"] = "elsewhere"
    store = store_of(rows, like={"town": smooth})
    found = prepare(store, configured(kind, seed=3), Engine(2))
    layout, width = found.header().layout, 3 if kind == "multiclass" else 1
    assert found.store.d == found.header().d == width + 3
    names = ["town_a", "town_b", "town_c"] if width == 3 else ["town"]
    assert [*(found.store.feature_names or ())][:width] == names

    peer = encoder(kind, rows, smooth)
    [column, *_] = layout.attrs["columns"]
    known = dict(zip(column["categories"], column["values"], strict=False))
    encodings = np.reshape(peer.encodings_, (width, -1)).T
    np.testing.assert_allclose([known[text] for text in peer.categories_[0]], encodings, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(column["values"][-1], np.ravel(peer.target_mean_), rtol=1e-12)
    for own in (store_of(new, like=layout), with_values_of_model(store_of(new, like=store.layout), layout)):
        np.testing.assert_allclose(own.read(0, own.n).X[:, :width], peer.transform(texts(new)), rtol=2e-7)

    fold, X = FoldAssignment.of_store(store, 3, np.empty(0, np.int64)).of(np.arange(store.n)), found.store
    assert np.bincount(fold).min() > store.n / FOLDS / 2
    for number in range(FOLDS):
        there = np.flatnonzero(fold == number)
        peer = encoder(kind, rows[fold != number], smooth)
        expected = peer.transform(texts(rows)[there])
        np.testing.assert_allclose(X.take(there).X[:, :width], expected, rtol=2e-7)
        np.testing.assert_array_equal(X.take(there).X, X.read(0, X.n).X[there])


def test_each_of_two_columns_has_its_own_values():
    rows = table("continuous")
    both = store_of(rows, like={"town": "auto", "colour": "auto"})
    found = prepare(both, configured("continuous"), Engine(1))
    assert found.store.feature_names == ("town", "colour", "size")
    for j, name in enumerate(("town", "colour")):
        one = prepare(store_of(rows, like={name: "auto"}), configured("continuous"), Engine(1))
        own = [*one.store.feature_names].index(name)
        np.testing.assert_array_equal(found.store.read(0, 400).X[:, j], one.store.read(0, 400).X[:, own])


@pytest.mark.parametrize("options", [{"holdout": 60}, {"interval": 0.8}], ids=str)
def test_held_out_rows_count_in_no_value(options):
    rows = table("continuous")
    store = store_of(rows, like={"town": "auto"})
    found = prepare(store, configured("continuous", **options), Engine(1))
    held = by_chance(store, len(found.held_out.rows), 0)
    peer = encoder("continuous", rows.drop(index=held), "auto")
    np.testing.assert_allclose(found.held_out.rows.X[:, :1], peer.transform(texts(rows.iloc[held])), rtol=2e-7)
    [column, *_] = found.header().layout.attrs["columns"]
    assert column["values"][-1] == pytest.approx([peer.target_mean_])


@pytest.mark.parametrize("groups", [2, 4, 10])
def test_groups_are_encoded_without_their_own_targets(groups):
    rows = table()
    group = np.arange(len(rows)) % groups
    for seed in range(10):
        dealt = FoldAssignment.of_store(store_of(rows, group=group), seed, np.empty(0, np.int64))
        fold = dealt.of(np.arange(len(rows)))
        assert all(len(np.unique(fold[group == g])) == 1 for g in range(groups))
        assert len(np.unique(fold)) == min(groups, FOLDS)


def test_all_rows_in_one_group_are_refused():
    rows = table()
    group = np.arange(len(rows)) < 3
    store, held = store_of(rows, like={"town": "auto"}, group=group.astype(int)), np.arange(3)
    with pytest.raises(DataError, match="all rows to learn from in one group, expected two or more"):
        FoldAssignment.of_store(store, 0, held)


def test_few_rows_have_several_folds():
    for seed in range(20):
        dealt = FoldAssignment(seed, None, np.empty(0, np.int64))
        assert len(np.unique(dealt.of(np.arange(3)))) == 3
        assert len(np.unique(dealt.of(np.arange(50)) - np.arange(50) % FOLDS)) > 1  # the order changes


@pytest.mark.parametrize("kind", KINDS)
def test_files_frames_and_stores_give_the_same_model_and_answers(kind, tmp_path):
    rows, new = table(kind), table(kind, seed=1)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    new.drop(columns="label").to_csv(tmp_path / "new.csv", index=False)
    options = IngestOptions(label="label", target_encode="town")
    ingest([tmp_path / "rows.csv"], tmp_path / "rows.zarr", options)
    ingest([tmp_path / "new.csv"], tmp_path / "new.zarr", IngestOptions(like=tmp_path / "rows.zarr"))
    store, config = Store.open(tmp_path / "rows.zarr"), configured(kind, seed=5)
    train(store, config, model_path=tmp_path / "m.zarr")
    model = load_model(tmp_path / "m.zarr")
    twin, _ = train_in_memory(store_of(rows, like={"town": "auto"}), config)
    small, _ = train_in_memory(
        Store.from_arrays(rows.drop(columns="label"), rows["label"].to_numpy(), like=store.layout),
        config.model_copy(update={"threads": 1}),
    )
    there = Store.open(tmp_path / "new.zarr")
    expected = model.decision_function(there)
    for own in (model, twin, small, pickle.loads(pickle.dumps(twin))):
        np.testing.assert_array_equal(own.decision_function(new.drop(columns="label")), expected)
    out = tmp_path / "p.npy"
    arguments = ["predict", tmp_path / "new.csv", "--model", tmp_path / "m.zarr", "--out", out, "--decision"]
    assert run(*arguments) == 0
    np.testing.assert_array_equal(np.load(out), expected)


def test_sparse_rows_have_the_same_values(tmp_path):
    rows = table()
    rows["colour"] = [f"c{i % 40}" for i in range(len(rows))]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    found = {}
    for dense in (True, False):
        options = IngestOptions(label="label", target_encode="town", dense=dense)
        ingest([tmp_path / "rows.csv"], tmp_path / str(dense), options)
        found[dense] = prepare(Store.open(tmp_path / str(dense)), configured(), Engine(1)).store
        assert found[dense].is_sparse != dense
    np.testing.assert_array_equal(found[False].read(0, 400).dense(), found[True].read(0, 400).X)
    ids = np.array([399, 3, 77])
    np.testing.assert_array_equal(found[False].take(ids).dense(), found[True].take(ids).X)


def test_stopped_and_resumed_it_is_the_same(tmp_path):
    store = store_of(table(), like={"town": "auto"})
    config = configured(probability={"method": "sigmoid", "folds": 3})
    whole, _ = train_in_memory(store, config)

    def stop(record) -> None:
        if isinstance(record.event, Progress) and record.event.phase == "folds" and record.event.done == 2:
            raise KeyboardInterrupt

    places = {"model_path": tmp_path / "m", "run_dir": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        train(store, config, **places, events=Events(stop))
    train(store, config, **places, resume=True, events=ignore)
    resumed, new = load_model(tmp_path / "m"), table(seed=1).drop(columns="label")
    np.testing.assert_array_equal(resumed.predict_proba(new), whole.predict_proba(new))


def test_older_versions_refuse_its_models_and_theirs_still_load(tmp_path):
    for name, target in (("plain", None), ("target", {"town": "auto"})):
        store = store_of(table(), like=target)
        train(store, configured(), model_path=tmp_path / name)
    assert read_attrs(tmp_path / "plain")["version"] == 1
    assert read_attrs(tmp_path / "target")["version"] == 2


def test_estimators_encode_as_the_command_does():
    rows, new = table(), table(seed=1).drop(columns="label")
    X, y = rows.drop(columns="label"), rows["label"]
    svm = DCSVC(target_encode="town", random_state=0).fit(X, y)
    assert svm.score(new, table(seed=1)["label"]) > 0.8 > DCSVC().fit(X[["size"]], y).score(new[["size"]], y)
    assert svm.model_.feature_names[0] == "town"
    DCSVR(target_encode={"town": 3}).fit(X, table("continuous")["label"]).predict(new)
    with pytest.raises(ValueError, match="fitted on a data frame with columns of text"):
        svm.predict(np.zeros((2, svm.n_features_in_)))


@pytest.mark.parametrize(
    ("svm", "X", "told"),
    [
        (DCSVC(target_encode="size"), None, "X: column 'size' to target-encode holds numbers; expected text"),
        (
            DCSVC(target_encode=["nowhere"]),
            None,
            "X has no feature column 'nowhere' to target-encode; it has",
        ),
        (
            DCSVC(target_encode={"town": -1}),
            None,
            "DCSVC: target_encode: found -1, expected a number at least 0.0",
        ),
        (
            DCSVC(target_encode="town"),
            np.eye(400),
            "target_encode names text columns of a data frame, found an arr",
        ),
    ],
)
def test_what_cannot_be_encoded_is_refused(svm, X, told):
    rows = table()
    with pytest.raises((DataError, ConfigError), match=told):
        svm.fit(rows.drop(columns="label") if X is None else X, rows["label"])


def test_first_batches_are_refused_and_later_ones_have_the_values_of_the_fit():
    rows, new = table(), table(seed=1)
    X, y = rows.drop(columns="label"), rows["label"]
    svm = BudgetedSVC(target_encode="town", random_state=0)
    with pytest.raises(ValueError, match="target_encode needs all rows"):
        svm.partial_fit(X, y, classes=["no", "yes"])
    values = svm.fit(X, y).model_.layout.attrs["columns"][0]["values"]
    svm.partial_fit(new.drop(columns="label"), new["label"])
    assert svm.model_.layout.attrs["columns"][0]["values"] == values


def test_other_tasks_and_models_of_other_encodings_are_refused():
    store = store_of(table(), like={"town": "auto"})
    with pytest.raises(ConfigError, match="task oneclass has no target-encoded columns, found 'town'"):
        train_in_memory(store, build_config(("test", {"task": "oneclass"})))
    numbers = table().assign(town=1.0)
    model, _ = train_in_memory(store_of(numbers), configured())
    with pytest.raises(ModelError, match="column 'town' holds texts to target-encode, and the model has no values"):
        model.predict(store)


def test_plans_slices_and_graphs_know_of_it():
    rows = table()
    store = store_of(rows, like={"town": "auto"})
    assert plan(store, configured())["d"] == 4
    model, _ = train_in_memory(store, configured(scale="none"))
    found = evaluate_sliced(model, store, ["town"], engine=Engine(1))
    counts = rows["town"].value_counts()
    assert {row["value"]: row["n"] for row in found["slices"]["town"]}[counts.index[0]] == counts.iloc[0]
    assert found["accuracy"] == evaluate(model, store, engine=Engine(1))["accuracy"]
    own = with_values_of_model(store, model.layout).read(0, store.n).X
    session = onnxruntime.InferenceSession(onnx_model(model, inputs="rows").SerializeToString())
    [labels, *_] = session.run(None, {session.get_inputs()[0].name: own.astype(np.float32)})
    np.testing.assert_array_equal(labels, model.predict(store))


def test_a_search_chooses_with_it():
    rows, new = table(), table(seed=1)
    svm = AutoSVC(target_encode="town", search_params={"trials": 4}, random_state=0)
    svm.fit(rows.drop(columns="label"), rows["label"])
    assert svm.score(new.drop(columns="label"), new["label"]) > 0.8


def test_a_stream_does_not_continue_with_it(tmp_path, capsys):
    table().to_csv(tmp_path / "rows.csv", index=False)
    model = str(tmp_path / "m.zarr")
    flags = ["--target-encode", "town", "--label", "label", "--no-search", "--solver", "bsgd", "--json"]
    assert run("fit", tmp_path / "rows.csv", *flags, "--scale", "none", "--model", model) == 0
    assert json.loads(capsys.readouterr().out)["d"] == 4
    assert run("stream", "--model", model, "--input", tmp_path / "rows.csv") == 2
    assert "was fitted with target-encoded column 'town', which a stream" in capsys.readouterr().err
