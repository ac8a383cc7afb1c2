"""Rows with several labels: next to a fit of each label alone, to scikit-learn's scores and to its rules."""

from __future__ import annotations

import json
from typing import Any

import dask.array as da
import numpy as np
import pytest
from label_sets import NAMES, K, command, config, rows, texts
from making import write
from sklearn import metrics as twin
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from stepwise import killed_and_resumed

from streamsvm import ALFPGMSVC, DCSVC, HSSSVC, BudgetedSVC, CuttingPlaneSVC, Store, graph_of, load_model
from streamsvm.data.labels import set_texts
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.exchange.libsvm import write_libsvm
from streamsvm.exchange.onnx import onnx_model
from streamsvm.models.files import save_model
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate
from streamsvm.tasks import task_of
from streamsvm.tasks.base import Targets
from streamsvm.train import train, train_in_memory

DIVIDED = {"levels": 1, "part_rows": 100}


CASES: dict[str, dict[str, Any]] = {
    "exact": {},
    "a bias": {"dcsvm": {"bias": True}},
    "squared losses": {"dcsvm": {"loss": "squared"}},
    "divided": {"dcsvm": DIVIDED},
    "divided, a bias": {"dcsvm": DIVIDED | {"bias": True}},
    "early": {"dcsvm": DIVIDED | {"early": True}},
    "early, a bias": {"dcsvm": DIVIDED | {"early": True, "bias": True}},
    "committee": {"dcsvm": DIVIDED | {"early": True, "combine": "committee"}},
    "budget": {"solver": "bsgd", "bsgd": {"budget": 480, "epochs": 2}},
    "regions": {"solver": "bsgd", "bsgd": {"budget": 300, "partitions": 3}},
    "budget, logistic": {"solver": "bsgd", "bsgd": {"budget": 480, "epochs": 2, "loss": "logistic"}},
    "planes": {"solver": "cutting-plane", "kernel": {"name": "linear"}},
    "planes, logistic": {
        "solver": "cutting-plane",
        "kernel": {"name": "linear"},
        "cutting_plane": {"loss": "logistic"},
    },
    "landmarks": {"solver": "cutting-plane", "cutting_plane": {"landmarks": 40}},
    "pairs of variables": {"solver": "alfpgm"},
    "compressed": {"solver": "admm-hss", "admm_hss": {"leaf": 64, "polish": 500}},
}


@pytest.mark.parametrize("name", [name for name in CASES if name != "committee"])
def test_each_label_is_a_fit_of_it_alone(name):
    """A committee weighs its parts by the support vectors of all labels."""
    X, Y = rows()
    fit = config(**CASES[name])
    decisions = train_in_memory(Store.from_arrays(X, texts(Y)), fit)[0].decision_function(X)
    for column, has in enumerate(Y.T):
        alone = fit.model_copy(update={"task": "classify", "positive": ("1",)})
        expected = train_in_memory(Store.from_arrays(X, has.astype(int)), alone)[0].decision_function(X)
        np.testing.assert_allclose(decisions[:, column], expected, atol=2e-3)


WEIGHED = [
    (name, weight)
    for name in ("exact", "squared losses", *list(CASES)[-8:])
    for weight in ("balanced", {"10": 4.0})
    # steps of log-odds are limited by the mean weight of a row, which a fit of one label has by itself
    if name != "budget, logistic" or weight == "balanced"
]


@pytest.mark.parametrize(("name", "weight"), WEIGHED)
def test_each_label_has_the_weights_of_a_fit_of_it_alone(name, weight):
    X, Y = rows()
    plain = config(**CASES[name])
    fit = plain.model_copy(update={"class_weight": weight})
    store = Store.from_arrays(X, texts(Y))
    decisions = train_in_memory(store, fit)[0].decision_function(X)
    assert np.abs(decisions - train_in_memory(store, plain)[0].decision_function(X)).max() > 0.1
    for column, has in enumerate(Y.T):
        own = weight if weight == "balanced" else {"1": weight.get(NAMES[column], 1.0)}
        alone = fit.model_copy(update={"task": "classify", "positive": ("1",), "class_weight": own})
        expected = train_in_memory(Store.from_arrays(X, has.astype(int)), alone)[0].decision_function(X)
        np.testing.assert_allclose(decisions[:, column], expected, atol=4e-3)


@pytest.mark.parametrize("name", ["budget, logistic", "planes, logistic"])
def test_logistic_losses_have_probabilities_of_each_label_by_themselves(name):
    X, Y = rows()
    model, _ = train_in_memory(Store.from_arrays(X, texts(Y)), config(**CASES[name]))
    f = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X), 1 / (1 + np.exp(-f)), atol=1e-6)
    np.testing.assert_array_equal(model.predict(X), texts(f > 0))
    losses = [twin.log_loss(has, p) for has, p in zip(Y.T, model.predict_proba(X).T, strict=True)]
    assert np.mean(losses) < 0.9 * np.mean([twin.log_loss(has, np.full(len(has), has.mean())) for has in Y.T])


@pytest.mark.parametrize("name", CASES)
def test_a_label_that_all_rows_have_is_always_the_answer(name):
    X, Y = rows()
    Y = np.column_stack([Y[:, :2], np.ones(len(Y), bool)])
    model, _ = train_in_memory(Store.from_arrays(X, texts(Y)), config(**CASES[name]))
    assert model.codes_of(model.decision_function(X))[:, 2].all()
    has_constant = name in ("a bias", "divided, a bias", "early", "early, a bias", "pairs of variables")
    if has_constant:
        np.testing.assert_allclose(model.decision_function(X)[:, 2], 1.0, atol=1e-6)


@pytest.mark.parametrize("name", ["exact", "a bias", "early", "pairs of variables", "planes"])
def test_a_label_of_no_weight_is_never_the_answer(name):
    X, Y = rows()
    store = Store.from_arrays(X, texts(Y), sample_weight=np.where(Y[:, 1], 0.0, 1.0))
    model, _ = train_in_memory(store, config(**CASES[name]))
    assert not model.codes_of(model.decision_function(X))[:, 1].any()


def test_parts_without_a_label_answer_against_it():
    X, Y = rows()
    Y = Y.copy()
    Y[:, 0], Y[:, 1] = X[:, 0] > 1.2, X[:, 0] > -1.2  # which parts have of one side
    model, _ = train_in_memory(Store.from_arrays(X, texts(Y)), config(dcsvm=DIVIDED | {"early": True}))
    has, lacks = np.hsplit(model.present, 2)
    assert (has ^ lacks).any()
    decisions, parts = model.decision_function(X), model.parts_of(Rows(X))
    for part in range(len(has)):
        own = decisions[parts == part]
        np.testing.assert_array_equal(own[:, ~has[part]], -1.0)
        np.testing.assert_array_equal(own[:, ~lacks[part]], 1.0)


def test_what_a_part_of_one_side_says():
    task, sets = task_of("multilabel"), np.array([[1, 0, 1], [1, 1, 0], [0, 0, 0]], bool)
    expected = {(0,): [1, -1, 1], (0, 1): [1, 0, 0], (2,): [-1, -1, -1], (0, 2): [0, -1, 0], (): [0, 0, 0]}
    for codes, said in expected.items():
        here = task.present(Targets(NAMES, np.array(codes, int), sets=sets))
        np.testing.assert_array_equal(task.one_sided(here[None]), [said])


@pytest.mark.parametrize("k", [1, 2])
def test_few_labels_are_a_column_each(k):
    X, Y = rows()
    Y = Y[:, :k]
    model, _ = train_in_memory(Store.from_arrays(X, texts(np.pad(Y, ((0, 0), (0, K - k))))), config())
    assert model.classes.tolist() == NAMES[:k].tolist()
    decision = model.decision_function(X).reshape(len(X), -1)
    assert decision.shape == (len(X), k)
    np.testing.assert_array_equal(model.predict(X), set_texts(decision > 0, NAMES[:k]))
    found = evaluate(model, Store.from_arrays(X, texts(np.pad(Y, ((0, 0), (0, K - k))))), engine=Engine(1))
    assert found["accuracy"] == np.mean(((decision > 0) == Y).all(axis=1))
    session = pytest.importorskip("onnxruntime").InferenceSession(onnx_model(model).SerializeToString())
    np.testing.assert_array_equal(session.run(["label"], {"X": X})[0], decision > 0)


def test_labels_may_be_numbers_of_a_file_with_one_each():
    X, Y = rows()
    numbers = np.where(Y[:, 1], 10, 2)
    model, _ = train_in_memory(Store.from_arrays(X, numbers), config())
    assert set(model.predict(X)) <= {"", "2", "10", "2,10"}
    assert evaluate(model, Store.from_arrays(X, numbers), engine=Engine(1))["f1_micro"] > 0.8


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["1,2"] * 4, r"y has the same labels in every row \(1,2\); expected different ones"),
        ([""] * 4, r"y has the same labels in every row \(none\); expected different ones"),
        (["1", "2,", "", "1"], "found labels '2,', expected a name before and after each comma"),
        ([0.5, 1.0, 2.0, 1.0], "y holds numbers with a fraction, expected labels such as '1,3,7'"),
    ],
)
def test_labels_that_tell_nothing_are_one_line(y, message):
    with pytest.raises(DataError, match=message):
        train_in_memory(Store.from_arrays(np.eye(4), np.array(y)), config())


@pytest.mark.parametrize("name", ["divided", "early", "regions", "planes"])
def test_rows_that_are_not_held_give_the_same(name, tmp_path, monkeypatch):
    X, Y = rows()
    store = write(tmp_path / "s", Rows(X), texts(Y), step=50, chunk_rows=50)
    held, _ = train_in_memory(store, config(**CASES[name]))
    monkeypatch.setattr("streamsvm.fits.divided.stay_in_memory", lambda *_: False)
    train(store, config(**CASES[name]), model_path=tmp_path / "m")
    model = load_model(tmp_path / "m")
    np.testing.assert_allclose(model.decision_function(X), held.decision_function(X), atol=1e-3)
    np.testing.assert_array_equal(model.predict(X), texts(model.codes_of(model.decision_function(X))))


def test_the_graph_of_an_early_fit_has_the_same_model():
    X, Y = rows()
    store, fit = Store.from_arrays(X, texts(Y)), config(**CASES["early"])
    model, graph = train_in_memory(store, fit)[0], graph_of(store, fit)
    np.testing.assert_array_equal(graph.compute().decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("name", ["divided", "budget", "planes"])
def test_killed_and_resumed_it_is_the_same(name, tmp_path):
    X, Y = rows()
    store = write(tmp_path / "s", Rows(X), texts(Y), step=100, chunk_rows=100)
    fit = config(**CASES[name], checkpoint_every="1 step")
    whole, again = killed_and_resumed(store, fit, tmp_path)
    assert again["objective"] == whole["objective"]
    models = [load_model(tmp_path / name).decision_function(X) for name in ("whole", "m")]
    np.testing.assert_array_equal(*models)


def test_scores_are_those_of_scikit_learn():
    """Of labels that the model does not know, too, which are columns that it never answers."""
    X, Y = rows()
    model, _ = train_in_memory(Store.from_arrays(X[::2], texts(Y[::2])), config())
    X, Y = X[1::2], Y[1::2]
    strange = X[:, 1] > 1
    y = np.array([",".join(filter(None, own)) for own in zip(texts(Y), np.where(strange, "x", ""), strict=True)])
    found = evaluate(model, Store.from_arrays(X, y), engine=Engine(2))
    f = model.decision_function(X)
    truth, told = np.column_stack([Y, strange]), np.column_stack([f > 0, np.zeros(len(X), bool)])
    assert found["accuracy"] == twin.accuracy_score(truth, told)
    assert found["hamming_loss"] == pytest.approx(twin.hamming_loss(truth, told))
    balanced = [twin.balanced_accuracy_score(*own) for own in zip(truth.T, told.T, strict=True)]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(balanced))
    for average in ("micro", "macro", "samples"):
        expected = twin.f1_score(truth, told, average=average, zero_division=0)
        assert found[f"f1_{average}"] == pytest.approx(expected)
    assert (found["n"], found["n_unknown_labels"]) == (len(X), strange.sum())
    assert (found["classes"], found["unknown_labels"]) == (NAMES.tolist(), ["x"])
    parts = twin.precision_recall_fscore_support(truth, told, zero_division=0)
    assert [row["label"] for row in found["per_class"]] == [*NAMES, "x"]
    for name, values in zip(("precision", "recall", "f1", "support"), parts, strict=True):
        assert [row[name] for row in found["per_class"]] == pytest.approx(values.tolist())
    aucs = [twin.roc_auc_score(has, own) for has, own in zip(Y.T, f.T, strict=True)]
    assert [row["roc_auc"] for row in found["per_class"]] == [*map(pytest.approx, aucs), None]
    with pytest.raises(DataError, match="no row has a label that the model knows; it knows 2, 10, 30"):
        evaluate(model, Store.from_arrays(X, np.where(strange, "x", "")), engine=Engine(1))


def test_rows_that_are_kept_out_tell_of_whole_sets():
    X, Y = rows()
    store = Store.from_arrays(X, texts(Y))
    for name in ("exact", "early"):
        model, report = train_in_memory(store, config(holdout=60, **CASES[name]))
        kept = np.sort(np.random.default_rng([0, 26]).choice(len(X), 60, replace=False))
        own = (model.codes_of(model.decision_function(X[kept])) == Y[kept]).all(axis=1)
        assert report["expected"]["score"] == pytest.approx(own.mean())


@pytest.mark.parametrize("name", ["exact", "early", "regions", "planes"])
def test_exports(name, tmp_path):
    X, Y = rows()
    model, _ = train_in_memory(Store.from_arrays(X, texts(Y)), config(**CASES[name]))
    with pytest.raises(ModelError, match="LIBSVM's files give a row one label; export --format onnx"):
        write_libsvm(model, tmp_path / "m.svm")
    session = pytest.importorskip("onnxruntime").InferenceSession(onnx_model(model).SerializeToString())
    label, scores = session.run(["label", "scores"], {"X": X})
    np.testing.assert_allclose(scores, model.decision_function(X), atol=1e-4)
    np.testing.assert_array_equal(label, scores > 0)
    assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == NAMES.tolist()


def test_from_a_file_to_answers(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, Y = rows()
    lines = (
        f"{text} " + " ".join(f"{j + 1}:{v:.6g}" for j, v in enumerate(x)) for text, x in zip(texts(Y), X, strict=True)
    )
    (tmp_path / "a.svm").write_text("\n".join(lines))
    ingest = ("ingest", "a.svm", "--store", "s.zarr", "--multilabel")
    assert command(capfd, *ingest)[0] == 0
    fit = ("fit", "--store", "s.zarr", "--task", "multilabel", "--no-search", "--C", 2, "--gamma", 0.2)
    fit += ("--model", "m.zarr")
    assert json.loads(command(capfd, *fit, "--dry-run", "--pilot", 0, "--json")[1])["classes"] == [*NAMES]
    assert json.loads(command(capfd, *fit, "--json")[1])["converged"]
    model = load_model(tmp_path / "m.zarr")
    decisions = model.decision_function(Store.open("s.zarr"))
    scored = json.loads(command(capfd, "evaluate", "--model", "m.zarr", "--store", "s.zarr", "--json")[1])
    assert scored["accuracy"] == np.mean(((decisions > 0) == Y).all(axis=1)) > 0.5
    shown = command(capfd, "evaluate", "--model", "m.zarr", "--store", "s.zarr")[1]
    assert "ROC AUC" in shown
    assert "Confusion" not in shown
    predict = ("predict", "--model", "m.zarr", "--store", "s.zarr", "--out")
    assert command(capfd, *predict, "p.csv", "--decision")[0] == 0
    header, *answers = (tmp_path / "p.csv").read_text().splitlines()
    assert header == "label,decision_2,decision_10,decision_30"
    assert [line.rpartition('"')[0].strip('"') for line in answers if line[0] == '"'] == [
        text for text in texts(decisions > 0) if "," in text
    ]
    assert command(capfd, *predict, "p.npy")[0] == command(capfd, *predict, "p.zarr")[0] == 0
    np.testing.assert_array_equal(np.load("p.npy"), decisions > 0)


def test_a_search_over_folds_together_or_one_by_one(tmp_path, capfd):
    X, Y = rows()
    write(tmp_path / "s.zarr", Rows(X), texts(Y))
    (tmp_path / "t.toml").write_text(
        'task = "multilabel"\nclass_weight = {10 = 3.0}\n[tune]\nfolds = 3\n'
        'scoring = "f1_micro"\ngrid = {C = [0.1, 2.0]}\n'
    )
    words = ("tune", "--store", tmp_path / "s.zarr", "--config", tmp_path / "t.toml", "--json")
    together, apart = (
        json.loads(command(capfd, *words, "--set", f"tune.share={way}")[1])["results"] for way in ("true", "false")
    )
    for one, other in zip(together, apart, strict=True):
        assert one["C"] == other["C"]
        assert one["mean_score"] == pytest.approx(other["mean_score"], abs=0.01)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "fit --positive 10",
            "task is 'multilabel', which separates each label from the rest; found positive: leave it out",
        ),
        ("fit --class-weight 11=2", "class_weight names '11'; the classes are 2, 10, 30"),
        ("fit --nu 0.3", "nu is 0.3, which task multilabel does not support"),
        (
            "fit --probability sigmoid --costs 2>10=3",
            "costs 2>10: expected LABEL>rest (it is missed) or rest>LABEL (it is false) for several labels",
        ),
        ("fit --set multiclass=rest", "multiclass is read by task classify only, found task multilabel"),
        ("explain", "one label's decision is explained at a time: found no label, expected one of 2, 10, 30"),
        ("explain --of-label 11", "explained at a time: found label 11, expected one of 2, 10, 30"),
        ("export --format libsvm --out m.svm", "LIBSVM's files give a row one label"),
        ("predict --out p.csv --proba", "the model has no probabilities"),
        (
            "stream --input events.jsonl --ask 0.1",
            "a stream of task multilabel has no single label to be unsure of",
        ),
    ],
)
def test_what_it_does_not_do_is_one_line(words, message, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.jsonl").touch()
    X, Y = rows()
    store, model = tmp_path / "s.zarr", tmp_path / "m.zarr"
    write(store, Rows(X), texts(Y))
    name, *more = words.split()
    if name == "fit":
        more += ["--task", "multilabel"]
    else:
        fit = config(**CASES["budget"])
        save_model(train_in_memory(Store.open(str(store)), fit)[0], model)
    of_rows = [] if name in ("export", "stream") else ["--store", store]
    status, _, said = command(capfd, name, *more, *of_rows, "--model", model)
    assert status == 2
    assert message in said
    assert said.count("\n") == 1


ESTIMATORS = {
    "exact": DCSVC(C=2.0, gamma=0.2, random_state=0),
    "early": DCSVC(C=2.0, gamma=0.2, early=True, random_state=0, **DIVIDED),
    "many pairs": ALFPGMSVC(C=2.0, gamma=0.2, decision_function_shape="ovo"),
    "compressed": HSSSVC(C=[0.5, 2.0], gamma=0.2, leaf=64, polish=300, random_state=0),
    "budgeted": BudgetedSVC(C=2.0, gamma=0.2, budget=100, random_state=0),
    "planes": CuttingPlaneSVC(C=2.0),
}


@pytest.mark.parametrize("name", ESTIMATORS)
class TestEstimators:
    def test_it_answers_with_an_indicator(self, name):
        """Also of columns that are 0, or 1, in all rows."""
        X, Y = rows()
        Y = np.column_stack([Y, np.zeros(len(Y)), np.ones(len(Y))]).astype(np.int8)
        estimator = clone(ESTIMATORS[name]).fit(X, Y)
        answer, f = estimator.predict(X), estimator.decision_function(X)
        assert (answer.dtype, answer.shape, f.shape) == (np.int8, Y.shape, Y.shape)
        np.testing.assert_array_equal(answer, f > 0)
        np.testing.assert_array_equal(answer[:, K:], Y[:, K:])
        np.testing.assert_array_equal(estimator.classes_, np.arange(K + 2))
        assert estimator.score(X, Y) == twin.accuracy_score(Y, answer)
        lazily = estimator.predict(da.from_array(X, chunks=(100, 5)))
        np.testing.assert_array_equal(lazily.compute(), answer)
        again = clone(ESTIMATORS[name]).fit(da.from_array(X, chunks=(100, 5)), da.from_array(Y))
        np.testing.assert_allclose(again.decision_function(X), f, atol=1e-3)
        assert estimator.fit(X, Y[:, 1]).predict(X).shape == (len(X),)

    def test_what_it_does_not_do_is_an_error(self, name):
        X, Y = rows()
        estimator = ESTIMATORS[name]
        if "nu" in estimator.get_params():
            with pytest.raises(ConfigError, match="task"):
                clone(estimator).set_params(nu=0.2).fit(X, Y)
        with pytest.raises(ValueError, match=r"y has shape \(240, 3\), a column for each label; expected 0 and"):
            clone(estimator).fit(X, np.where(Y, 2, -1))
        with pytest.raises(ValueError, match="number of classes has to be greater than one; got 1 class"):
            clone(estimator).fit(X, np.zeros_like(Y))
        assert clone(estimator).fit(X, Y).feature_importances_.sum() == pytest.approx(1)


@pytest.mark.parametrize("weight", ["balanced", {1: 4.0}])
def test_the_weight_of_a_column(weight):
    X, Y = rows()
    estimator = clone(ESTIMATORS["exact"]).set_params(class_weight=weight)
    expected = clone(estimator).fit(X, Y[:, 1]).decision_function(X)
    np.testing.assert_allclose(estimator.fit(X, Y).decision_function(X)[:, 1], expected, atol=4e-3)


def test_scikit_learn_searches_over_it():
    X, Y = rows()
    search = GridSearchCV(ESTIMATORS["exact"], {"C": [0.01, 2.0]}, cv=2, error_score="raise").fit(X, Y)
    assert search.best_params_ == {"C": 2.0}


def test_batches_have_one_label_a_row():
    X, Y = rows()
    estimator = clone(ESTIMATORS["budgeted"]).fit(X, Y)
    with pytest.raises(ConfigError, match="partial_fit learns one label a row, and fit was given several"):
        estimator.partial_fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="y should be a 1d array"):
        clone(ESTIMATORS["budgeted"]).partial_fit(X, Y, classes=[0, 1])
