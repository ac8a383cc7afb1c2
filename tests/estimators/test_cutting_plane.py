"""Cutting planes through their doors: scikit-learn's habits, LIBLINEAR's objective, ranks, stores, bad input."""

from __future__ import annotations

import inspect
import json
import pickle

import numpy as np
import pytest
import reference
from every_case import every_case
from making import write
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem as SklearnNystroem
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC, LinearSVC

from streamsvm import CuttingPlaneRanker, CuttingPlaneSVC, Store, load_model
from streamsvm.config import CuttingPlaneConfig, FitConfig, build_config
from streamsvm.data import cache
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, DataError, MemoryLimitError
from streamsvm.events import Events, Step
from streamsvm.fits import cutting_plane as recipe
from streamsvm.kernels.distance import RBF
from streamsvm.kernels.nystroem import Nystroem
from streamsvm.train import plan, train, train_in_memory
from streamsvm.unread import require_read


def data(k: int = 2, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((n, 6)) < 0.7, rng.normal(size=(n, 6)), 0).astype(np.float32)
    f = X @ [1, -2, 0.5, 0, 0.3, 0] + 0.7 * rng.normal(size=n)
    return X, np.digitize(f, np.quantile(f, np.arange(1, k) / k))


def config(**values) -> FitConfig:
    linear = {"solver": "cutting-plane", "kernel": {"name": "linear"}, "threads": 2}
    return build_config(("test", linear | values))


def primal(coef, intercept, X, y, C) -> float:
    """LinearSVC's objective, summed over classes."""
    X, total = reference.dense(X), 0.0
    for c, (w, b) in enumerate(zip(coef, intercept, strict=True)):
        Y = np.where(y == (np.unique(y)[-1] if len(coef) == 1 else np.unique(y)[c]), 1, -1)
        total += 0.5 * (w @ w + b * b) + C * np.maximum(0, 1 - Y * (X @ w + b)).sum()
    return total


class TestObjective:
    @pytest.mark.parametrize("k", [2, 4])
    @pytest.mark.parametrize("C", [0.01, 1.0])
    def test_is_liblinears(self, k, C):
        X, y = data(k)
        ours = CuttingPlaneSVC(C=C, tol=1e-4).fit(X, y)
        peer = LinearSVC(C=C, loss="hinge", max_iter=100_000, tol=1e-6).fit(X, y)
        best = primal(peer.coef_, peer.intercept_, X, y, C)
        assert ours.objective_ == pytest.approx(primal(ours.coef_, ours.intercept_, X, y, C), rel=1e-6)
        assert best * (1 - 1e-6) <= ours.objective_ <= best * (1 + 1e-4)
        assert 0 <= ours.dual_gap_ <= 1e-4 * ours.objective_
        f, expected = ours.decision_function(X), peer.decision_function(X)
        assert np.abs(f - expected).mean() < 0.05 * np.abs(expected).mean()

    @pytest.mark.parametrize("name", ["a9a", "reuters"])
    def test_is_liblinears_on_real_rows(self, shared_data, name):
        X, y = load_svmlight_file(str(shared_data(f"{name}.bz2")))
        X, y = X[:3000], y[:3000]
        ours = CuttingPlaneSVC(C=0.3).fit(X, y)
        peer = LinearSVC(C=0.3, loss="hinge", max_iter=100_000, tol=1e-5).fit(X, y)
        assert ours.objective_ == pytest.approx(primal(peer.coef_, peer.intercept_, X, y, 0.3), rel=1e-3)
        assert np.mean(ours.predict(X) == peer.predict(X)) > 0.995

    def test_weights_count_as_repetitions(self):
        X, y = data()
        weight = np.random.default_rng(1).integers(0, 4, len(y))
        weighted = CuttingPlaneSVC(tol=1e-6, class_weight={0: 2.0}).fit(X, y, sample_weight=weight)
        times = weight * np.where(y == 0, 2, 1)
        repeated = CuttingPlaneSVC(tol=1e-6).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
        assert weighted.objective_ == pytest.approx(repeated.objective_, rel=2e-6)

    def test_intercept_scaling(self):
        X, y = data()
        free = CuttingPlaneSVC(C=0.1, tol=1e-6, intercept_scaling=100.0).fit(X + 3, y)
        held_back = CuttingPlaneSVC(C=0.1, tol=1e-6).fit(X + 3, y)
        none = CuttingPlaneSVC(C=0.1, tol=1e-6, fit_intercept=False).fit(X + 3, y)
        assert none.intercept_.tolist() == [0.0]
        assert free.objective_ < held_back.objective_ < none.objective_


class TestLogistic:
    @pytest.mark.parametrize("k", [2, 3])
    def test_probabilities_are_liblinears(self, k):
        X, y = data(k)
        ours, alone = CuttingPlaneSVC(C=0.5, loss="logistic", tol=1e-7).fit(X, y), []
        for c in range(1, 2) if k == 2 else range(k):
            peer = LogisticRegression(C=0.5, solver="liblinear", tol=1e-8).fit(X, y == c)
            alone.append(peer.predict_proba(X)[:, 1])
        p = np.column_stack(alone)
        expected = np.hstack([1 - p, p]) if k == 2 else p / p.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(ours.predict_proba(X), expected, atol=2e-3)
        np.testing.assert_array_equal(ours.predict(X), ours.predict_proba(X).argmax(axis=1))

    def test_they_are_in_the_file_without_other_fits(self, tmp_path):
        X, y = data()
        report = train(Store.from_arrays(X, y), config(cutting_plane={"loss": "logistic"}), model_path=tmp_path / "m")
        assert "folds" not in plan(Store.from_arrays(X, y), config(cutting_plane={"loss": "logistic"}))
        assert report["n_support"] == len(y)
        model = load_model(tmp_path / "m")
        p = 1 / (1 + np.exp(-model.decision_function(X)))
        np.testing.assert_allclose(model.predict_proba(X)[:, 1], p)

    def test_folds_that_are_asked_for_make_them_instead(self):
        X, y = data()
        folded = CuttingPlaneSVC(loss="logistic", probability="isotonic", random_state=0).fit(X, y)
        assert len(np.unique(folded.predict_proba(X))) < len(y) / 2

    def test_weights_count_as_repetitions(self):
        X, y = data()
        weight = np.random.default_rng(1).integers(0, 4, len(y))
        weighted = CuttingPlaneSVC(loss="logistic", tol=1e-6).fit(X, y, sample_weight=weight)
        repeated = CuttingPlaneSVC(loss="logistic", tol=1e-6).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
        assert weighted.objective_ == pytest.approx(repeated.objective_, rel=2e-6)

    def test_it_is_of_classes(self):
        X, y = data(3)
        for task in ("ordinal", "regress"):
            with pytest.raises(ConfigError, match=f"which is for classes; found task '{task}'"):
                train_in_memory(Store.from_arrays(X, y), config(task=task, cutting_plane={"loss": "logistic"}))


class TestRanker:
    def test_two_labels_are_the_area_under_the_curve(self):
        X, y = data()
        ranker = CuttingPlaneRanker(C=10.0).fit(X, y)
        assert ranker.score(X, y) == pytest.approx(roc_auc_score(y, ranker.decision_function(X)))
        assert ranker.score(X, y) >= roc_auc_score(y, LinearSVC().fit(X, y).decision_function(X)) - 0.002

    def test_objective_is_that_of_all_pairs(self):
        X, y = data(5)
        qid = np.arange(len(y)) // 7
        ranker = CuttingPlaneRanker(C=0.2, tol=1e-5).fit(X, y, qid=qid)
        w = ranker.coef_[0]
        value, _ = reference.pair_risk(X.astype(np.float64), y, qid, np.ones(len(y)), 0.2, w)
        assert ranker.objective_ == pytest.approx(0.5 * w @ w + value, rel=1e-9)
        rng = np.random.default_rng(0)
        for step in (1e-1, 1e-2, 1e-3):
            for _ in range(20):
                v = w + step * rng.normal(size=len(w))
                other, _ = reference.pair_risk(X.astype(np.float64), y, qid, np.ones(len(y)), 0.2, v)
                assert 0.5 * v @ v + other >= ranker.objective_ - ranker.dual_gap_

    def test_the_order_of_rows_and_names_of_queries_do_not_count(self):
        X, y = data(3)
        qid = np.arange(len(y)) // 20
        shuffled = np.random.default_rng(0).permutation(len(y))
        one = CuttingPlaneRanker(tol=1e-6).fit(X, y, qid=qid)
        two = CuttingPlaneRanker(tol=1e-6).fit(X[shuffled], 10 * y[shuffled], qid=(997 - 3 * qid)[shuffled])
        np.testing.assert_allclose(one.coef_, two.coef_, atol=2e-2 * np.abs(one.coef_).max())
        assert one.objective_ == pytest.approx(two.objective_, rel=2e-6)

    def test_ordinal_labels_come_back(self):
        X, y = data(4)
        names = np.array([-2.0, 0.5, 3.0, 7.0])
        ranker = CuttingPlaneRanker(C=10.0).fit(X, names[y])
        assert set(np.unique(ranker.predict(X))) <= set(names)
        assert np.mean(np.abs(np.searchsorted(names, ranker.predict(X)) - y)) < 0.6
        assert np.all(np.diff(ranker.thresholds_) > 0)
        with pytest.raises(AttributeError, match="no queries"):
            _ = CuttingPlaneRanker().fit(X, y, qid=y * 0).thresholds_

    def test_no_pairs(self):
        X, y = data()
        with pytest.raises(ValueError, match="no query has rows of two grades"):
            CuttingPlaneRanker().fit(X, y, qid=y)

    @pytest.mark.parametrize("qid", [-1.0, 0.5, np.nan])
    def test_bad_query(self, qid):
        X, y = data(n=4)
        with pytest.raises(ValueError, match=f"qid of row 2 is {qid}; expected a whole number >= 0"):
            CuttingPlaneRanker().fit(X, [0, 1, 0, 1], qid=[0, 0, qid, 1])

    def test_grid_search(self):
        X, y = data(3)
        search = GridSearchCV(CuttingPlaneRanker(), {"C": [0.01, 1.0]}, cv=3).fit(X, y)
        assert 0.5 < search.best_score_ <= 1

    def test_pickled_it_is_the_same(self):
        X, y = data(3)
        ranker = CuttingPlaneRanker().fit(X, y)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(ranker)).predict(X), ranker.predict(X))


class TestLandmarks:
    def test_features_have_the_kernel_of_the_landmarks(self):
        X, _ = data()
        kernel = RBF(0.3)
        features = Nystroem.of(kernel, Rows(X[:80]))
        phi = features(Rows(X)).dense().astype(np.float64)
        K, cross = (reference.kernel_matrix(kernel, X[:80], other) for other in (X[:80], X))
        expected = cross.T @ np.linalg.pinv(K, rcond=1e-6, hermitian=True) @ cross
        np.testing.assert_allclose(phi @ phi.T, expected, atol=1e-3)

    def test_it_is_as_good_as_scikit_learns_map(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1500, 4)).astype(np.float32)
        y = (np.sum(X**2, axis=1) > 3.4).astype(int)
        ours = CuttingPlaneSVC(kernel="rbf", gamma=0.3, landmarks=150, C=5.0).fit(X[:1000], y[:1000])
        features = SklearnNystroem(gamma=0.3, n_components=150, random_state=0).fit(X[:1000])
        peer = LinearSVC(C=5.0, loss="hinge", max_iter=100_000).fit(features.transform(X[:1000]), y[:1000])
        whole = SVC(gamma=0.3, C=5.0).fit(X[:1000], y[:1000])
        found = ours.score(X[1000:], y[1000:])
        assert found >= peer.score(features.transform(X[1000:]), y[1000:]) - 0.02
        assert found >= whole.score(X[1000:], y[1000:]) - 0.03
        with pytest.raises(AttributeError, match="without landmarks only"):
            _ = ours.coef_

    def test_more_landmarks_than_rows_is_the_whole_kernel(self):
        X, y = data(n=60)
        ours = CuttingPlaneSVC(kernel="rbf", gamma=0.3, landmarks=500, tol=1e-5, fit_intercept=False).fit(X, y)
        Q = np.outer(2 * y - 1, 2 * y - 1) * reference.kernel_matrix(RBF(0.3), X, X)
        best = -reference.dual_objective(Q, reference.solve_dual(Q, np.ones(60)))
        assert ours.objective_ == pytest.approx(best, rel=1e-4)


def test_defaults_are_those_of_the_configuration():
    for estimator in (CuttingPlaneSVC, CuttingPlaneRanker):
        given = {name: p.default for name, p in inspect.signature(estimator).parameters.items()}
        options, fit = CuttingPlaneConfig(), FitConfig()
        assert (given["C"], given["tol"]) == (fit.C, fit.tol)
        names = ("method", "landmarks", "max_passes", "slack_tol")
        assert [given[name] for name in names] == [options.method, options.landmarks, options.passes, options.epsilon]
        assert given.get("loss", options.loss) == options.loss


@every_case(
    ("options", "match"),
    [
        ({"method": "newton"}, "method: found 'newton'"),
        ({"loss": "squared"}, "loss: found 'squared'"),
        ({"kernel": "rbf"}, "solver is 'cutting-plane', which is linear"),
        ({"landmarks": 100}, "landmarks approximate a nonlinear kernel; found kernel.name 'linear'"),
        ({"landmarks": 0, "kernel": "rbf"}, "landmarks: found 0"),
        ({"max_passes": 0}, "max_passes: found 0"),
        ({"intercept_scaling": -1.0}, "intercept_scaling: found -1.0"),
    ],
)
def test_bad_options(options, match):
    with pytest.raises(ValueError, match=match):
        CuttingPlaneSVC(**options).fit(*data())


def test_other_solvers_have_no_ranks():
    with pytest.raises(ConfigError, match="task is 'rank', which only solver cutting-plane supports"):
        build_config(("test", {"task": "rank"}))


class TestSlack:
    """The paper's stopping rule, by its option."""

    @every_case(
        "task",
        ["classify", "ordinal", "regress", "logistic"],
    )
    def test_report_says_which_rule_ended_the_fit(self, task):
        X, y = data(3 if task == "ordinal" else 2)
        options = {"loss": "logistic"} if task == "logistic" else {}
        values = {"task": "classify" if task == "logistic" else task}
        reports = {}
        for epsilon in (1e-1, 1e-2, None):
            planes = options | {"epsilon": epsilon}
            reports[epsilon] = train_in_memory(Store.from_arrays(X, y * 1.0), config(**values, cutting_plane=planes))[1]
            report = reports[epsilon]
            assert report["stopped_by"] == ("tol" if epsilon is None else "epsilon")
            assert report.get("epsilon") == epsilon
            assert report["relative_gap"] == pytest.approx(report["gap"] / report["objective"])
            assert report["slack"] == pytest.approx(report["gap"] / len(y))  # C is 1
            assert report["slack"] <= (epsilon or 1.0)
        assert reports[1e-1]["steps"] < reports[1e-2]["steps"] < reports[None]["steps"]

    def test_c_of_the_paper_is_the_sum_over_rows(self):
        X, y = data()
        weight = np.linspace(0, 2, len(y))
        svm = CuttingPlaneSVC(C=0.5, slack_tol=1e-2, class_weight={0: 3.0}).fit(X, y, sample_weight=weight)
        total = 0.5 * (weight * np.where(y == 0, 3.0, 1.0)).sum()
        assert svm.slack_ == pytest.approx(svm.dual_gap_ / total)
        assert svm.slack_ <= 1e-2
        assert svm.stopped_by_ == "epsilon"

    def test_another_end_is_told(self):
        X, y = data()
        with pytest.warns(ConvergenceWarning, match=r"before the slack was below epsilon \(1e-05\)"):
            svm = CuttingPlaneSVC(slack_tol=1e-5, max_passes=3).fit(X, y)
        assert svm.stopped_by_ == "passes"

    def test_tol_beside_it_is_not_read(self):
        planes = {"solver": "cutting-plane", "cutting_plane": {"epsilon": 0.1}}
        layers = [("--set tol", {"tol": 1e-2}), ("test", planes)]
        with pytest.raises(ConfigError, match="tol is read by a fit without cutting_plane.epsilon only"):
            require_read(layers, build_config(*layers, ("test", {"kernel": {"name": "linear"}})))

    def test_one_class_has_none(self):
        layers = [("test", {"task": "oneclass", "solver": "cutting-plane", "cutting_plane": {"epsilon": 0.1}})]
        with pytest.raises(ConfigError, match=r"cutting_plane.epsilon is read by tasks .* only, found task oneclass"):
            require_read(layers, build_config(*layers, ("test", {"kernel": {"name": "linear"}})))

    @every_case("method", ["ocas", "plain"])
    def test_resumed_it_is_the_same_model(self, method, tmp_path):
        X, y = data(3)
        there = Store.from_arrays(X, y)
        options = config(cutting_plane={"epsilon": 1e-3, "method": method}, checkpoint_every="1 step")
        whole = train(there, options, model_path=tmp_path / "whole")
        run = {"model_path": tmp_path / "m", "run_dir": tmp_path / "run"}
        with pytest.raises(KeyboardInterrupt):
            train(there, options, **run, events=Events(stop_at(4)))
        report = train(there, options, **run, resume=True)
        for name in ("steps", "passes", "slack", "relative_gap", "stopped_by"):
            assert report[name] == whole[name]
        np.testing.assert_array_equal(load_model(tmp_path / "m").coef, load_model(tmp_path / "whole").coef)


def stop_at(step: int):
    def stop(record):
        if isinstance(record.event, Step) and record.event.step == step:
            raise KeyboardInterrupt

    return stop


def test_too_few_passes_are_told():
    with pytest.warns(ConvergenceWarning, match="stopped after 3 passes"):
        CuttingPlaneSVC(max_passes=3).fit(*data())


class TestStores:
    def test_model_from_scratch_files_is_that_from_memory(self, tmp_path, monkeypatch):
        X, y = data(3, 900)
        there = write(tmp_path / "s", Rows(sparse.csr_array(X)), y, step=100, chunk_rows=64)
        monkeypatch.setattr(cache, "PASS_BYTES", 4000)
        monkeypatch.setattr(Store, "blocks", _small_blocks)
        options = config(cutting_plane={"method": "ocas"})
        inside = train_in_memory(there, options)[0]
        monkeypatch.setattr(recipe.CuttingPlaneFit, "_cache_bytes", lambda self: 5000)
        report = train(there, options, model_path=tmp_path / "m", run_dir=tmp_path / "run")
        np.testing.assert_array_equal(load_model(tmp_path / "m").coef, inside.coef)
        assert not list((tmp_path / "run").glob("*scratch*"))
        steps = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
        assert [step["passes"] for step in steps if step["event"] == "step"] == list(range(1, report["passes"] + 1))

    def test_chunks_do_not_count(self, tmp_path):
        X, y = data(2, 900)
        models = [
            train_in_memory(write(tmp_path / f"{rows}", Rows(X), y, chunk_rows=rows), config(tol=1e-6))[0]
            for rows in (100, 900)
        ]
        np.testing.assert_allclose(models[0].coef, models[1].coef, atol=1e-6)

    def test_empty_rows_are_fine(self):
        X, y = data()
        X[::5] = 0
        assert CuttingPlaneSVC().fit(sparse.csr_array(X), y).score(X, y) > 0.6

    def test_task_follows_from_the_store(self, tmp_path):
        X, y = data(3)
        with_queries = Store.from_arrays(X, y, qid=np.arange(len(y)) // 10)
        facts = [
            train_in_memory(there, config(task=task))[1]
            for there, task in (
                (with_queries, None),
                (with_queries, "classify"),
                (Store.from_arrays(X, y), None),
            )
        ]
        assert [fact["task"] for fact in facts] == ["rank", "classify", "classify"]
        assert facts[0]["passes"] == 2 * facts[0]["steps"]
        assert (facts[0]["queries"], facts[0]["queries_of_one_grade"]) == (40, 1)
        with pytest.raises(DataError, match="no qid, which task rank needs"):
            train_in_memory(Store.from_arrays(X, y), config(task="rank"))

    def test_queries_of_one_grade_are_counted(self):
        X, y = data(2)
        y[:30] = 1  # and one more query is so by itself
        report = train_in_memory(Store.from_arrays(X, y, qid=np.arange(400) // 10), config())[1]
        assert (report["queries"], report["queries_of_one_grade"]) == (40, 4)

    def test_scores_of_a_million_ranks_are_refused(self):
        X = np.zeros((1200, 2), np.float32)
        with pytest.raises(DataError, match="1200 different labels, expected at most 1000 ranks"):
            train_in_memory(Store.from_arrays(X, np.arange(1200.0)), config(task="ordinal"))

    def test_memory_limit(self):
        X, y = data()
        with pytest.raises(MemoryLimitError, match="too small for 1 linear problem"):
            plan(Store.from_arrays(X, y), config(memory_limit="100MiB"))
        facts = plan(Store.from_arrays(X, y), config())
        assert facts["pass_bytes"] == X.nbytes
        assert facts["held_bytes"] > X.nbytes

    def test_ranks_resumed_are_the_same_model(self, tmp_path):
        X, y = data(3)
        there = Store.from_arrays(X, y)
        options = config(task="ordinal", tol=1e-5, checkpoint_every="1 step")
        whole = train(there, options, model_path=tmp_path / "whole")

        run = {"model_path": tmp_path / "m", "run_dir": tmp_path / "run"}
        with pytest.raises(KeyboardInterrupt):
            train(there, options, **run, events=Events(stop_at(5)))
        report = train(there, options, **run, resume=True)
        assert (report["steps"], report["passes"]) == (whole["steps"], whole["passes"])
        for name in ("coef", "intercept", "thresholds"):
            expected = getattr(load_model(tmp_path / "whole"), name)
            np.testing.assert_array_equal(getattr(load_model(tmp_path / "m"), name), expected)


def _small_blocks(self, max_rows=None):
    """Row blocks of a chunk each, however small."""
    step = max_rows or 64
    return [(start, min(start + step, self.n)) for start in range(0, self.n, step)]
