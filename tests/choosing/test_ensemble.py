"""Ensembles: weights that minimise the log loss, members without their folds, the same answers everywhere."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from clusters import inside
from commands import require_one_line, run
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split

from streamsvm import DCSVC, AutoSVC, Store, graph_of, load_model
from streamsvm.choosing import ensemble
from streamsvm.choosing.ensemble import best_with_and_without_metric, fit_weights, in_ranks, with_other_loss
from streamsvm.choosing.metric_search import FittedTrial, MetricState, Trial
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, ModelError, StreamSVMError
from streamsvm.events import Events, Progress
from streamsvm.exchange.onnx import onnx_model
from streamsvm.explain.decisions import decisions, gradients
from streamsvm.explain.importances import importances
from streamsvm.explain.rows import deviations, explain_rows
from streamsvm.fits.base import Fit
from streamsvm.models import EnsembleModel, Model
from streamsvm.models.calibration import Calibration
from streamsvm.models.ensemble import LEAST
from streamsvm.models.files import save_model
from streamsvm.search.options import completed
from streamsvm.train import plan, train, train_in_memory

SEARCH = {"ensemble": 3, "sample": 200, "trials": 4}


def config_of(seed=0, **options):
    return completed([("test", {"task": "classify", "seed": seed, "threads": 2, "search": SEARCH, **options})])


def store_of(load=load_wine, text=False, rows=None):
    X, y = load(return_X_y=True)
    y = np.array(["first", "second", "third"])[y] if text else y
    return Store.from_arrays(X[:rows], y[:rows])


@pytest.fixture(scope="module")
def wine():
    return store_of(text=True)


@pytest.fixture(scope="module", params=["two", "three"])
def fitted(request):
    """A store, its ensemble and the report."""
    store = store_of(load_breast_cancer) if request.param == "two" else store_of(text=True)
    return store, *train_in_memory(store, config_of())


def some_probabilities(n, k, members, seed=0):
    """Of members that see the classes (n,) through noise."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, k, n)
    noisy = np.eye(k)[codes] * 2 + rng.normal(size=(members, n, k)) * np.arange(1, members + 1)[:, None, None]
    p = np.exp(noisy) / np.exp(noisy).sum(axis=2, keepdims=True)
    return list(p), codes, rng.uniform(0.5, 2, n)


def twin_p(ps, w, b):
    """The pool, row by row and class by class."""
    out = np.array([[np.exp(b[c]) * np.prod([p[i, c] ** v for p, v in zip(ps, w, strict=True)])
                     for c in range(len(b))] for i in range(len(ps[0]))])  # fmt: skip
    return out / out.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("k", [2, 4])
def test_weights_minimise_the_objective(k):
    ps, codes, weight = some_probabilities(120, k, 3)
    v = weight / weight.mean()
    sizes = [v[codes == c].sum() for c in range(k)]

    def objective(x):
        w, b, total = x[:3], x[3:], 0.0
        for i, c in enumerate(codes):
            u = [b[e] + sum(w[m] * np.log(max(ps[m][i, e], LEAST)) for m in range(3)) for e in range(k)]
            t = [(sizes[c] + 1) / (sizes[c] + 2) if e == c else 1 / (sizes[c] + 2) / (k - 1) for e in range(k)]
            total -= v[i] * np.dot(t, u - np.logaddexp.reduce(u))
        return total + 0.5 * np.sum((w - 1 / 3) ** 2) + 0.5 * b @ b

    w, b = fit_weights(ps, codes, weight)
    bounds = [(0, None)] * 3 + [(None, None)] * k
    twin = minimize(objective, np.zeros(3 + k), method="SLSQP", bounds=bounds, options={"maxiter": 500, "ftol": 1e-12})
    assert objective(np.concatenate([w, b])) <= twin.fun + 1e-6
    np.testing.assert_allclose(np.concatenate([w, b]), twin.x, atol=1e-3)
    assert w[0] > w[1] > w[2] >= 0  # the less noise, the more weight


def test_no_member_has_a_weight_below_0():
    [good], codes, weight = some_probabilities(200, 2, 1)
    w, _ = fit_weights([good, good[:, ::-1]], codes, weight)
    assert w[1] == 0
    assert w[0] > 0


def test_probabilities_are_those_of_the_members_combined(fitted):
    store, model, report = fitted
    rows = store.read(0, store.n)
    ps = [np.maximum(member.answers(rows)[1], LEAST) for member in model.members]
    np.testing.assert_allclose(model.predict_proba(rows), twin_p(ps, model.weights, model.offsets), atol=1e-9)
    assert len(report["ensemble"]) == len(model.members) <= 3
    assert len(model.members) > 1
    assert [one["weight"] for one in report["ensemble"]] == model.weights.tolist()
    assert report["n_support"] == sum(one["n_support"] or 0 for one in report["ensemble"])
    assert report["expected"]["folds"]
    assert np.array_equal(model.predict(rows), model.classes[np.argmax(model.predict_proba(rows), axis=1)])


def test_a_saved_ensemble_answers_the_same(fitted, tmp_path):
    store, model, _ = fitted
    save_model(model, tmp_path / "m.model.zarr")
    loaded, rows = load_model(tmp_path / "m.model.zarr"), store.read(0, store.n)
    assert isinstance(loaded, EnsembleModel)
    assert np.array_equal(loaded.decision_function(rows), model.decision_function(rows))
    assert loaded.classes.tolist() == model.classes.tolist()
    attrs = json.loads((tmp_path / "m.model.zarr/zarr.json").read_text())
    attrs["attributes"]["members"][0]["kind"] = "ensemble"
    (tmp_path / "m.model.zarr/zarr.json").write_text(json.dumps(attrs))
    with pytest.raises(StreamSVMError, match=r"m\.model\.zarr.*kind 'ensemble'"):
        load_model(tmp_path / "m.model.zarr")


def test_onnx_gives_the_same(fitted):
    store, model, _ = fitted
    proto = onnx_model(model)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    rows = store.read(0, store.n)
    kind = {"tensor(float)": np.float32, "tensor(double)": np.float64}[session.get_inputs()[0].type]
    answers = dict(zip(names, session.run(names, {"X": rows.X.astype(kind)}), strict=True))
    rows = Rows(rows.X.astype(kind))
    np.testing.assert_allclose(answers["probabilities"], model.predict_proba(rows), atol=1e-5)
    assert answers["label"].tolist() == model.predict(rows).tolist()


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_gradients_are_those_of_the_decision_function(load):
    X, y = load(return_X_y=True)
    members = [DCSVC(gamma=gamma, scale="standard", probability=True).fit(X, y).model_ for gamma in (0.01, 0.05)]
    k = len(np.unique(y))  # kernels without kinks, so that differences are close to derivatives
    header = replace(members[0].header, calibration=Calibration.logistic(1 if k == 2 else k))
    model = EnsembleModel(header, tuple(members), np.array([0.5, 0.8]), np.linspace(-0.2, 0.1, k))
    rows, deviation, h = Rows(X[::60].astype(np.float64)), X.std(axis=0), 2e-3
    codes, found = model.codes_of(*model.answers(rows)), gradients(model, rows)
    for f in range(0, model.d, 4):
        step = np.zeros(model.d)
        step[f] = h * deviation[f]
        ends = [model.decision_function(Rows(rows.X + sign * step)) for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * h)
        slope = slope if slope.ndim == 1 else slope[np.arange(len(rows)), codes]
        np.testing.assert_allclose(found[:, f] * deviation[f], slope, rtol=0.02, atol=0.01)


def test_explanations(fitted):
    store, model, _ = fitted
    for X in (None, store):
        shares = importances(model, X)
        assert shares.values.sum() == pytest.approx(1)
    [row] = explain_rows(model, store, np.array([1]), deviations(store.read(0, store.n)), support=2)
    assert len(row.nearest) == 2
    ids = [vector.id for vector in row.nearest if vector.id is not None]
    assert 1 in ids or row.nearest[0].distance > 0  # itself, where it is a support vector
    [(_, decision)] = list(decisions(model, store.take(np.array([1])), np.array([1])))
    assert decision.values(store.take(np.array([1]))).shape == (1,)
    with pytest.raises(ModelError, match="no Shapley values"):
        explain_rows(model, store, np.array([1]), deviations(store.read(0, store.n)), shapley=True)


def test_better_than_one_model_on_rows_that_are_not_seen():
    X, y = load_digits(return_X_y=True)
    train_rows, test = train_test_split(np.arange(len(y)), test_size=0.5, random_state=0, stratify=y)
    losses = []
    for count in (None, 3):
        svm = AutoSVC(ensemble=count, probability=True, random_state=0, search_params={"trials": 6})
        svm.fit(X[train_rows], y[train_rows])
        losses.append(-np.log(svm.predict_proba(X[test])[np.arange(len(test)), y[test]]).mean())
    assert losses[1] < 0.7 * losses[0]


@pytest.mark.parametrize(
    "options",
    [
        {"class_weight": "balanced"},
        {"probability": {"method": "isotonic"}},
        {"probability": {"threshold": "recall=0.99"}},
        {"probability": {"method": "sigmoid", "costs": {"1": {"0": 20.0}, "0": {"1": 1.0}}}},
        {"dcsvm": {"early": True, "levels": 1}, "kernel": {"name": "rbf"}},
    ],
    ids=str,
)
def test_other_options(options):
    store = store_of(load_breast_cancer)
    model, report = train_in_memory(store, config_of(**options))
    assert isinstance(model, EnsembleModel)
    p, truth = model.predict_proba(store.read(0, store.n)), store.coded[1]
    assert abs(p[:, 1].mean() - truth.mean()) < 0.03  # of the rows as they are, whatever weights classes had
    if "threshold" in options.get("probability", {}):
        assert report["threshold"]["recall"] >= 0.99
    missed = np.mean(model.predict(store.read(0, store.n))[truth == 1] == 0)
    assert missed < 0.05


def test_labels_that_nothing_predicts():
    rng = np.random.default_rng(0)
    store = Store.from_arrays(rng.normal(size=(300, 5)), rng.integers(0, 2, 300))
    with pytest.warns(UserWarning, match="no better, beyond chance"):
        model, report = train_in_memory(store, config_of())
    assert 0.4 < report["expected"]["score"] < 0.6
    assert np.ptp(model.predict_proba(store.read(0, 300))) < 0.9  # none is sure


def test_encoded_columns():
    rng = np.random.default_rng(0)
    town, y = rng.integers(0, 40, 400), rng.integers(0, 2, 400)
    frame = pd.DataFrame({"town": [f"town {t}" for t in town], "x": rng.normal(size=400) + y})
    frame["kind"] = np.where(rng.random(400) < 0.8, y, 1 - y) + 0.0
    svm = AutoSVC(ensemble=2, target_encode=["town"], random_state=0, search_params={"trials": 3}).fit(frame, y)
    assert isinstance(svm.model_, EnsembleModel)
    assert svm.score(frame, y) > 0.8
    assert svm.predict_proba(frame.iloc[:3]).shape == (3, 2)


def test_groups_stay_together():
    X, y = load_breast_cancer(return_X_y=True)
    groups = np.arange(len(y)) // 3
    store = Store.from_arrays(X, y, group=groups)
    fold = ensemble.folds_of(store, config_of())
    assert all(len(np.unique(fold[groups == g])) == 1 for g in range(groups.max()))
    model, _ = train_in_memory(store, config_of())
    assert isinstance(model, EnsembleModel)


def test_a_stopped_run_continues(tmp_path, wine):
    whole, config, fits = tmp_path / "whole.model.zarr", config_of(), []

    def stop_after(record):
        event = record.event
        if isinstance(event, Progress) and event.phase == "ensemble":
            fits.append(event.done)
            if event.done == 9:
                raise KeyboardInterrupt

    train(wine, config, model_path=whole, events=Events())
    run_dir, model_path = tmp_path / "run", tmp_path / "m.model.zarr"
    with pytest.raises(KeyboardInterrupt):
        train(wine, config, model_path=model_path, run_dir=run_dir, events=Events(stop_after))
    solved = []
    with pytest.MonkeyPatch.context() as patch:
        certified = Fit.certified
        patch.setattr(Fit, "certified", lambda self, *args: solved.append(self.store.n) or certified(self, *args))
        train(wine, config, model_path=model_path, run_dir=run_dir, resume=True, events=Events())
    rows = wine.read(0, wine.n)
    one, other = load_model(whole), load_model(model_path)
    assert np.array_equal(one.predict_proba(rows), other.predict_proba(rows))
    folds_left = sum(n < wine.n for n in solved)
    assert 0 < folds_left < max(fits) + 15 - 8
    assert not (run_dir / "ensemble").exists()


@pytest.mark.parametrize("failing", [0, 2])
def test_candidates_that_fail_are_left_out(wine, monkeypatch, failing):
    learn, messages, first = ensemble._Folds._decide, [], 1

    def fails(self, number, fold):
        if number >= first and fold == failing:
            raise ConfigError("no luck")
        learn(self, number, fold)

    monkeypatch.setattr(ensemble._Folds, "_decide", fails)
    events = Events(lambda record: messages.append(getattr(record.event, "message", "")))
    model, _ = train_in_memory(wine, config_of(), events)
    assert isinstance(model, EnsembleModel)
    assert len(model.members) == 1
    assert sum("no luck" in message for message in messages) >= 2
    first = 0
    with pytest.raises(ConfigError, match="no luck"):  # of the chosen options
        train_in_memory(wine, config_of(), events)


def test_options_that_do_not_go_with_it():
    store = store_of(load_breast_cancer)
    with pytest.raises(ConfigError, match="ensemble is 3, which combines probabilities of classes; found task regress"):
        train_in_memory(store, completed([("x", {"task": "regress", "search": {"ensemble": 3}})]))
    with pytest.raises(ConfigError, match="holdout 50"):
        train_in_memory(store, config_of(holdout=50))
    with pytest.raises(ConfigError, match="a graph is one fit"):
        graph_of(store, config_of(dcsvm={"early": True}))
    with pytest.raises(ConfigError, match=r"search\.ensemble is read by a fit that chooses options only"):
        completed([("x", {"search": {"options": [], "ensemble": 3}})])
    with pytest.raises(ConfigError, match="expected a number at most 9"):
        config_of(search={"ensemble": 10})
    assert plan(store, config_of())["folds"] > 15


def test_a_time_budget_with_room_makes_one():
    store = store_of(load_breast_cancer)
    for budget, options, kind in ((60, {}, EnsembleModel), (60, {"ensemble": 1}, Model), (None, {}, Model)):
        search = {"time_budget": budget, "trials": 4, "sample": 200} | options
        model, report = train_in_memory(store, completed([("test", {"task": "classify", "search": search})]))
        assert isinstance(model, kind)
        assert isinstance(model, EnsembleModel) == (kind is EnsembleModel) == ("ensemble" in report)
    given = completed([("test", {"task": "classify", "kernel": {"name": "rbf"}, "search": {"time_budget": 60}})])
    assert not isinstance(train_in_memory(store, given)[0], EnsembleModel)  # the user named what to fit


def test_fits_within_a_time_budget_are_not_cut_short():
    X, y = load_digits(return_X_y=True)
    search = {"time_budget": 40, "trials": 4, "sample": 500, "ensemble": 3}
    config = completed([("test", {"task": "classify", "search": search, "threads": 2})])
    within, report = train_in_memory(Store.from_arrays(X[:600], y[:600]), config)
    assert report["converged"]
    whole, _ = train_in_memory(Store.from_arrays(X[:600], y[:600]), config.model_copy(
        update={"search": config.search.model_copy(update={"time_budget": None})}))  # fmt: skip
    rows = Rows(X[600:].astype(np.float64))
    assert np.mean(within.predict(rows) == whole.predict(rows)) > 0.98


def test_an_ensemble_that_was_cut_short_is_not_converged(wine, monkeypatch):
    decide, messages = ensemble._Folds._decide, []

    def cut_short(self, number, fold):
        decide(self, number, fold)
        self._state["cut short"] = True

    monkeypatch.setattr(ensemble._Folds, "_decide", cut_short)
    events = Events(lambda record: messages.append(getattr(record.event, "message", "")))
    _, report = train_in_memory(wine, config_of(), events)
    assert report["converged"] is False
    assert any("fits of the ensemble ended early" in message for message in messages)


@pytest.mark.parametrize(("count", "has_any"), [(None, False), (1, False), (2, True)])
def test_probabilities_are_there_with_an_ensemble(count, has_any):
    assert hasattr(AutoSVC(ensemble=count), "predict_proba") == has_any


def test_the_first_fit_shows_whether_there_is_time(monkeypatch):
    decide, decided, messages = ensemble._Folds._decide, [], []

    def slowly(self, number, fold):
        decided.append((number, fold))
        decide(self, number, fold)
        self._until = time.time() + 0.01

    monkeypatch.setattr(ensemble._Folds, "_decide", slowly)
    config = completed([("test", {"task": "classify", "search": {"time_budget": 60, "trials": 4, "sample": 200}})])
    events = Events(lambda record: messages.append(getattr(record.event, "message", "")))
    model, report = train_in_memory(store_of(load_breast_cancer), config, events)
    assert decided == [(0, 0)]
    assert not isinstance(model, EnsembleModel)
    assert report["converged"]
    assert not any("combined" in message for message in messages)


def test_what_cannot_be_combined_in_time_leaves_a_single_model(monkeypatch):
    def fails(*args):
        raise ConfigError("no luck")

    monkeypatch.setattr(ensemble._Folds, "_decide", fails)
    store, messages = store_of(load_breast_cancer), []
    config = completed([("test", {"task": "classify", "search": {"time_budget": 60, "trials": 4, "sample": 200}})])
    events = Events(lambda record: messages.append(getattr(record.event, "message", "")))
    model, report = train_in_memory(store, config, events)
    assert not isinstance(model, EnsembleModel)
    assert report["converged"]
    assert sum("which is fitted alone (no luck)" in message for message in messages) == 1


def test_decisions_of_many_pairs_need_room(monkeypatch, wine):
    monkeypatch.setattr(ensemble, "allowed_bytes", lambda limit: 1000)
    with pytest.raises(ConfigError, match="more than memory allows; leave it out"):
        train_in_memory(wine, config_of())


def test_command(tmp_path, capsys):
    X, y = load_wine(return_X_y=True)
    lines = [",".join([*(f"x{f}" for f in range(13)), "kind"])]
    lines += [",".join([*map(str, row), f"class {label}"]) for row, label in zip(X.tolist(), y.tolist(), strict=True)]
    (tmp_path / "wine.csv").write_text("\n".join(lines))
    words = "fit", tmp_path / "wine.csv", "--label", "kind", "--trials", 4, "--ensemble", 3
    assert run(*words) == 0
    out = capsys.readouterr().out
    assert "Ensemble of" in out
    assert "repeat:" not in out  # no configuration has the options of all members
    model = tmp_path / "wine.model.zarr"
    assert not Path(f"{tmp_path}/wine.model.fit.toml").exists()
    assert run("predict", tmp_path / "wine.csv", "--model", model, "--proba", "--out", tmp_path / "p.csv") == 0
    assert "probability_class 2" in (tmp_path / "p.csv").read_text()
    capsys.readouterr()
    assert run("evaluate", "--model", model, "--store", tmp_path / "wine.zarr", "--json") == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.97
    require_one_line(capsys, "no single sum over support vectors", "export", "--model", model, "--format", "libsvm",
                     "--out", tmp_path / "m.libsvm")  # fmt: skip
    require_one_line(capsys, "--no-search excludes search.trials, search.ensemble", *words, "--no-search", "--force")


def test_the_search_keeps_the_best_of_each_family():
    def fitted_trial(kernel, rows, loss, learned):
        return FittedTrial(Trial(kernel, 1.0, 1.0), rows, np.ones((1, 3)), np.full(4, loss), learned)

    state = MetricState((), 10)
    state = state.with_families([fitted_trial("rbf", 5, 0.1, False), fitted_trial("rbf", 5, 0.2, False)])
    state = state.with_families([fitted_trial("rbf", 9, 0.3, False), fitted_trial("rbf", 5, 0.0, True)])
    assert [(one.rows, one.learned) for one in state.families] == [(9, False), (5, True)]
    again = MetricState.from_arrays({name: np.asarray(value) for name, value in state.to_arrays().items()})
    assert [(one.family, one.rows, one.score) for one in again.families] == [
        (one.family, one.rows, one.score) for one in state.families
    ]


def test_more_candidates():
    config = config_of()
    assert with_other_loss(config).dcsvm.loss == "squared"
    assert with_other_loss(with_other_loss(config)) is None
    ranks = in_ranks(config)
    assert (ranks.scale, "scale" in ranks.search.chosen) == ("quantile", False)
    plain = config.model_copy(update={"metric": config.metric.model_copy(update={"factor": None})})
    weighed = config.model_copy(update={"metric": config.metric.model_copy(update={"factor": (1.0, 2.0)})})
    assert best_with_and_without_metric([plain, plain, weighed]) == [plain, weighed]
    assert best_with_and_without_metric([weighed]) == [weighed]


@pytest.mark.slow
def test_workers_make_the_same(tmp_path):
    store = store_of(load_breast_cancer)
    alone, _ = train_in_memory(store, config_of())
    with inside(2) as address:
        spread, report = train_in_memory(store, config_of(scheduler=address, threads=None))
    rows = store.read(0, store.n)
    np.testing.assert_allclose(spread.predict_proba(rows), alone.predict_proba(rows), atol=1e-3)
    assert report["workers"] == 2
