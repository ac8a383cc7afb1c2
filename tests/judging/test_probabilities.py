"""Probabilities of whole fits: folds, held-out rows, resuming, and labels that go with them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache
from typing import Any

import cases
import numpy as np
import pytest
from cases import SOLVERS, labelled
from making import write

from streamsvm.config import FitConfig, ProbabilityConfig, build_config
from streamsvm.data.folds import make_folds
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.judging import probabilities
from streamsvm.judging.probabilities import held_out
from streamsvm.models.calibration import calibrate
from streamsvm.models.files import load_model, save_model
from streamsvm.parallel.engine import Engine
from streamsvm.train import plan, train, train_in_memory

N = 300
NAMES = [name for name in SOLVERS if name not in ("landmarks", "logistic")]  # that has probabilities by itself


def data(k: int = 2) -> tuple[np.ndarray, np.ndarray]:
    return labelled(k, 2 * N)


def store(k: int = 2, **columns: Any) -> Store:
    X, y = data(k)
    return Store.from_arrays(X[:N], y[:N], **columns)


def config(name: str = "dcsvm", method: str | None = "sigmoid", folds: int = 3, **values: Any) -> FitConfig:
    return cases.config(name, probability={"method": method, "folds": folds}, **values)


@cache
def trained(name: str, k: int, method: str | None = "sigmoid") -> Any:
    return train_in_memory(store(k), config(name, method))[0]


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", NAMES)
class TestModels:
    @pytest.mark.slow  # a fit for each fold, twice
    def test_cross_validation_is_that_of_plain_loops(self, name, k):
        X, y = data(k)
        fold = make_folds(store(k), 3, True, 0).of
        own, codes = [], []
        for number in range(3):
            others = store(k).subset(np.flatnonzero(fold != number))
            model, _ = train_in_memory(others, config(name, None))
            decisions, truth = model.binary_decisions(Rows(X[:N][fold == number])), y[:N][fold == number]
            own.append(probabilities.own_problems(decisions, truth, k, pairwise=model.is_pairwise))
            codes.append(truth)
        facts = {"method": "sigmoid", "pairwise": model.is_pairwise}
        expected = calibrate(np.concatenate(own), np.concatenate(codes), k, **facts)
        found = trained(name, k).header.calibration
        np.testing.assert_allclose(found.points, expected.points, rtol=1e-4, atol=1e-5)

    def test_labels_are_those_of_the_largest_probability(self, name, k):
        model, (X, y) = trained(name, k), data(k)
        plain, proba = trained(name, k, None), model.predict_proba(Rows(X[N:]))
        np.testing.assert_array_equal(model.predict(Rows(X[N:])), model.classes[proba.argmax(axis=1)])
        np.testing.assert_allclose(proba.sum(axis=1), 1)
        np.testing.assert_array_equal(model.decision_function(Rows(X)), plain.decision_function(Rows(X)))
        right, most = (np.mean(m.predict(Rows(X[N:])) == y[N:]) for m in (model, plain))
        assert right > most - 0.06
        assert -np.log(proba[np.arange(N), y[N:]]).mean() < 0.97 * np.log(k)

    def test_saved_and_loaded(self, name, k, tmp_path):
        save_model(trained(name, k), tmp_path / "m")
        rows = Rows(data(k)[0])
        loaded = load_model(tmp_path / "m")
        np.testing.assert_array_equal(loaded.predict_proba(rows), trained(name, k).predict_proba(rows))
        save_model(loaded, tmp_path / "m")  # over the file that it is read from
        np.testing.assert_array_equal(load_model(tmp_path / "m").predict(rows), loaded.predict(rows))

    def test_a_model_without_says_what_to_do(self, name, k):
        with pytest.raises(ModelError, match=r"no probabilities: `streamsvm calibrate --model M --store HELDOUT`"):
            trained(name, k, None).predict_proba(Rows(data(k)[0]))

    def test_held_out_rows(self, name, k):
        X, y = data(k)
        unknown = np.where(np.arange(N) < 5, 99, y[N:])
        calibrated, n = held_out(
            trained(name, k, None),
            Store.from_arrays(X[N:], unknown),
            ProbabilityConfig(method="isotonic"),
            engine=Engine(2),
        )
        assert n == N - 5
        proba = calibrated.predict_proba(Rows(X[N:]))
        np.testing.assert_allclose(proba.mean(axis=0), np.bincount(y[N:]) / N, atol=0.06)


def test_blocks_and_chunks_do_not_matter(tmp_path, monkeypatch):
    X, y = data(3)
    there = write(tmp_path / "s", Rows(X[:N]), y[:N], step=100, chunk_rows=64)
    monkeypatch.setattr(Store, "blocks", lambda self, *_: [(i, min(i + 37, self.n)) for i in range(0, self.n, 37)])
    model, _ = train_in_memory(there, config())
    expected = trained("dcsvm", 3).header.calibration.points
    np.testing.assert_allclose(model.header.calibration.points, expected, rtol=1e-4, atol=1e-5)


def test_sample_weights_count_and_class_weights_do_not():
    y = data()[1]
    weight = np.where(y[:N] == 1, 4.0, 1.0)
    rows = Rows(data()[0][N:])
    plain = trained("dcsvm", 2).predict_proba(rows)[:, 1]
    by_row, _ = train_in_memory(store(sample_weight=weight), config())
    assert by_row.predict_proba(rows)[:, 1].mean() > plain.mean() + 0.1
    by_class, _ = train_in_memory(store(), config(class_weight={"1": 4.0}))
    p = by_class.predict_proba(rows)[:, 1]
    assert p.mean() == pytest.approx(plain.mean(), abs=0.03)
    f = by_class.decision_function(rows)
    np.testing.assert_array_equal(by_class.predict(rows), (f > 0).astype(int))  # as weighted
    assert np.count_nonzero(f > 0) > np.count_nonzero(p > 0.5)
    again, _ = held_out(by_class, store(), ProbabilityConfig(method="sigmoid"), engine=Engine(1))
    unknown = replace(by_class, header=replace(by_class.header, config=None))
    other, _ = held_out(unknown, store(), ProbabilityConfig(method="sigmoid"), engine=Engine(1))
    np.testing.assert_array_equal(again.header.calibration.points, other.header.calibration.points)
    np.testing.assert_array_equal(again.predict(rows), by_class.predict(rows))


def rare(k: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """k classes, the later the rarer, which overlap."""
    rng = np.random.default_rng(seed)
    y = rng.choice(k, n, p=[0.88, 0.12] if k == 2 else [0.7, 0.2, 0.1])
    return rng.normal(size=(n, 3)) + 1.3 * np.eye(3)[y], y


WEIGHTED = {
    "sigmoid": {"dcsvm": {}},
    "isotonic": {"probability": {"method": "isotonic"}},
    "early": {"dcsvm": {"early": True, "levels": 1}},
    "linear": {"solver": "cutting-plane", "kernel": {"name": "linear"}},
    "logistic": {
        "solver": "cutting-plane",
        "kernel": {"name": "linear"},
        "cutting_plane": {"loss": "logistic"},
        "probability": {},
    },
    "alfpgm": {"solver": "alfpgm"},
    "hss": {"solver": "admm-hss", "admm_hss": {"polish": 1000}},
}


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("options", WEIGHTED.values(), ids=WEIGHTED)
def test_probabilities_of_balanced_classes_are_those_of_the_rows(options, k, tmp_path):
    (X, y), (new, truth) = rare(k, 800, 0), rare(k, 3000, 1)
    base = {"kernel": {"gamma": 0.2}, "C": 2.0, "probability": {"method": "sigmoid"}, "threads": 2}
    rows = Rows(new)
    found = {}
    for weight in (None, "balanced"):
        own = build_config(("test", base | options | {"class_weight": weight}))
        model, _ = train_in_memory(Store.from_arrays(X, y), own)
        save_model(model, tmp_path / str(weight))
        model = load_model(tmp_path / str(weight))
        p, labels = model.predict_proba(rows), model.predict(rows)
        recalls = [np.mean(labels[truth == c] == c) for c in range(k)]
        found[weight] = -np.log(p[np.arange(len(p)), truth]).mean(), p.mean(axis=0), np.mean(recalls), model
    (plain, _, before, _), (loss, means, after, model) = found.values()
    assert loss < plain + 0.06  # with the weights in it, the loss rises by 0.15 and more
    np.testing.assert_allclose(means, np.bincount(truth) / len(truth), atol=0.06)
    assert after > before + 0.02  # labels are those of balanced classes
    f = model.decision_function(rows)
    np.testing.assert_array_equal(model.predict(rows), f > 0 if k == 2 else f.argmax(axis=1))


@pytest.mark.parametrize("weight", [None, {"1": 7.0, "2": 9.0}, "balanced"], ids=["none", "given", "balanced"])
@pytest.mark.parametrize("options", [{}, {"C": 10.0}, {"bsgd": {"loss": "logistic", "average": True}}], ids=str)
def test_odds_of_budgeted_models_are_steady(weight, options):
    """A step may change them a little only: by 1 / (lambda t) times its weight, rows that came last decided."""
    (X, y), (new, truth) = rare(3, 2000, 0), rare(3, 3000, 1)
    base = {"solver": "bsgd", "kernel": {"gamma": 0.2}, "bsgd": {"loss": "logistic"}, "threads": 1}
    losses = []
    for own in (
        {"C": 1.0, "probability": {"method": "sigmoid"}, "solver": "dcsvm"},
        {"class_weight": weight},
    ):
        config = build_config(("test", base | options | own))
        model, _ = train_in_memory(Store.from_arrays(X, y), config)
        p = model.predict_proba(Rows(new))
        losses.append(-np.log(p[np.arange(len(p)), truth]).mean())
    assert losses[1] < losses[0] + 0.08


def test_costs_weigh_probabilities_of_the_rows_and_not_of_balanced_classes():
    (X, y), (new, _) = rare(2, 800, 0), rare(2, 500, 1)
    values = {"kernel": {"gamma": 0.2}, "class_weight": "balanced", "threads": 2}
    values |= {"probability": {"method": "sigmoid", "costs": "1>0=3"}}
    model, _ = train_in_memory(Store.from_arrays(X, y), build_config(("test", values)))
    np.testing.assert_array_equal(model.predict(Rows(new)), model.predict_proba(Rows(new))[:, 1] > 0.25)


def test_probabilities_of_weighted_label_sets_are_those_of_the_rows():
    X, y = rare(2, 1500, 0)
    sets = np.array(["a,b" if c and x[0] > 0 else "b" if c else "a" for x, c in zip(X, y, strict=True)])
    shared = {"task": "multilabel", "solver": "cutting-plane", "kernel": {"name": "linear"}}
    for values in ({"cutting_plane": {"loss": "logistic"}}, {"probability": {"method": "sigmoid"}}):
        config = build_config(("test", shared | values | {"class_weight": "balanced"}))
        model, _ = train_in_memory(Store.from_arrays(X, sets), config)
        p = model.predict_proba(Rows(X))
        assert p[:, 1].mean() == pytest.approx(y.mean(), abs=0.03)
        np.testing.assert_array_equal(model.codes_of(*model.answers(Rows(X))), model.decision_function(Rows(X)) > 0)


def test_positive_labels_against_the_rest():
    grouped, _ = train_in_memory(store(3), config(positive=("0", "2")))
    assert grouped.predict_proba(Rows(data(3)[0])).shape == (2 * N, 2)


@pytest.mark.parametrize("task", ["rank", "ordinal"])
def test_tasks_without_classes_are_refused(task):
    with pytest.raises(ConfigError, match=f"only with task classify or multilabel, found task '{task}'"):
        train_in_memory(store(3), config("cutting-plane", task=task))


def test_queries_are_ranked_and_so_refused_at_once():
    with pytest.raises(ConfigError, match="found task 'rank'"):
        plan(store(3, qid=np.arange(N) // 10), config("cutting-plane"))
    assert plan(store(3), config("cutting-plane"))["folds"] == 3
    assert "folds" not in plan(store(3), config("cutting-plane", None))


def test_held_out_for_a_ranking_is_refused():
    model, _ = train_in_memory(store(3), config("cutting-plane", None, task="ordinal"))
    with pytest.raises(ConfigError, match="found task 'ordinal'"):
        held_out(model, store(3), ProbabilityConfig(method="sigmoid"), engine=Engine(1))


def test_held_out_rows_that_hold_no_numbers_are_told():
    X = data()[0][:N].copy()
    X[7, 1] = np.nan
    with pytest.raises(DataError, match="row 7, column 1 .*is nan; expected finite numbers"):
        held_out(
            trained("cutting-plane", 2, None),
            Store.from_arrays(X, data()[1][:N]),
            ProbabilityConfig(method="sigmoid"),
            engine=Engine(1),
        )


@pytest.mark.filterwarnings("ignore:.*holds no whole checkpoint")
@pytest.mark.slow  # several runs of several fits each
class TestResuming:
    def test_finished_folds_are_not_repeated(self, tmp_path, monkeypatch):
        there = write(tmp_path / "s", Rows(data()[0][:N]), data()[1][:N])
        train(there, config("dcsvm early"), model_path=tmp_path / "whole")
        fits, original = [], probabilities.calibrate

        def interrupted(*args: Any, **kwargs: Any) -> Any:
            raise KeyboardInterrupt

        run = {"model_path": tmp_path / "m", "run_dir": tmp_path / "run"}
        self.count(monkeypatch, fits, stop=2)
        with pytest.raises(KeyboardInterrupt):
            train(there, config("dcsvm early"), **run)
        assert fits == [200, 200]
        monkeypatch.setattr(probabilities, "calibrate", interrupted)
        self.count(monkeypatch, fits)
        with pytest.raises(KeyboardInterrupt):
            train(there, config("dcsvm early"), **run, resume=True)
        assert fits == [200, 200, 200, 200]  # the second, which was interrupted, and the third
        monkeypatch.setattr(probabilities, "calibrate", original)
        report = train(there, config("dcsvm early"), **run, resume=True)
        assert fits[4:] == [300]
        assert report["seconds_by_phase"]["folds"] > 0
        rows, whole = Rows(data()[0]), load_model(tmp_path / "whole")
        np.testing.assert_array_equal(load_model(tmp_path / "m").predict_proba(rows), whole.predict_proba(rows))
        assert [p.name for p in (tmp_path / "run" / "folds").iterdir() if p.is_dir()] == []

    def count(self, monkeypatch, fits: list[int], stop: int | None = None) -> None:
        """Notes the rows of every fit that starts, and interrupts one."""
        from streamsvm import train as recipe

        original = getattr(recipe.planned_fit, "original", recipe.planned_fit)

        def counted(store: Store, *args: Any) -> Any:
            fits.append(store.n)
            if len(fits) == stop:
                raise KeyboardInterrupt
            return original(store, *args)

        counted.original = original  # type: ignore[attr-defined]
        monkeypatch.setattr(recipe, "planned_fit", counted)

    def test_folds_that_were_dealt_in_another_way_are_begun_anew(self, tmp_path, monkeypatch):
        there, fits = write(tmp_path / "s", Rows(data()[0][:N]), data()[1][:N]), list[int]()
        train(there, config(), model_path=tmp_path / "whole")
        run = {"model_path": tmp_path / "m", "run_dir": tmp_path / "run"}
        self.count(monkeypatch, fits, stop=2)
        with pytest.raises(KeyboardInterrupt):
            train(there, config(), **run)
        for path in (tmp_path / "run" / "folds").glob("state-*.npz"):
            arrays = dict(np.load(path))
            np.savez(path, **{name: array for name, array in arrays.items() if name != "fold"})
        self.count(monkeypatch, fits)
        train(there, config(), **run, resume=True)
        assert fits == [200, 200, 200, 200, 200, 300]
        models, rows = (load_model(tmp_path / name) for name in ("m", "whole")), Rows(data()[0])
        np.testing.assert_array_equal(*(model.predict_proba(rows) for model in models))

    def test_queries_stay_in_one_fold(self, monkeypatch):
        qid, seen = np.arange(N) // 5, []
        original = Store.subset
        monkeypatch.setattr(Store, "subset", lambda self, ids: (seen.append(qid[ids]), original(self, ids))[1])
        train_in_memory(store(qid=qid), config(solver="alfpgm"))
        assert len(seen) == 6  # learnt and held out, of three folds
        assert all(not np.intersect1d(*seen[i : i + 2]).size for i in (0, 2, 4))

    def test_another_configuration_is_not_gone_on_with(self, tmp_path):
        run = {"model_path": tmp_path / "m", "run_dir": tmp_path / "run"}
        train(store(), config(), **run)
        with pytest.raises(ConfigError, match=r"another store or configuration \(probability.folds was 3, is 4\)"):
            train(store(), config(folds=4), **run, resume=True)

    def test_events_of_folds_are_not_those_of_the_run(self, tmp_path):
        train(store(), config("dcsvm early"), model_path=tmp_path / "m", run_dir=tmp_path / "run")
        events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
        levels = [event for event in events if event["event"] == "level"]
        shutil.rmtree(tmp_path / "run")
        train(store(), config("dcsvm early", None), model_path=tmp_path / "m", run_dir=tmp_path / "run")
        plain = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
        assert len(levels) == len([event for event in plain if event["event"] == "level"]) == 1
