"""Dual coordinate descent against slow solutions, and as a method of the linear solver."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from every_case import every_case
from linear_duals import TIGHT, config, data, words
from scipy import sparse
from sklearn.datasets import load_diabetes
from sklearn.svm import LinearSVC, LinearSVR

from streamsvm import CuttingPlaneRanker, CuttingPlaneSVC, CuttingPlaneSVR, Store, load_model
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, MemoryLimitError
from streamsvm.events import Events, Record, Step
from streamsvm.fits import cutting_plane
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.machine import process_bytes
from streamsvm.problems.linear_dual import RowsDual
from streamsvm.problems.row_risk import OneVsRestTerms, TubeTerms
from streamsvm.solvers import loop
from streamsvm.solvers.dual_descent import DualDescent, DualState
from streamsvm.tasks import task_for
from streamsvm.train import planned_fit, train, train_in_memory


def solved(problem: RowsDual, **options: float) -> DualState:
    solver = DualDescent(**{"tol": TIGHT} | options)
    state = loop.run(solver, problem, stop=solver.has_ended)
    assert solver.done(state)
    return state


@pytest.mark.parametrize("bias", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_classes_against_the_twin(bias, make):
    X, codes = data()
    y, upper = np.where(codes > 0, 1.0, -1.0), np.random.default_rng(1).choice([0.0, 0.5, 4.0], len(X))
    Z = np.hstack([X.astype(float), np.full((len(X), 1), bias)])
    Q = y[:, None] * (Z @ Z.T) * y
    least = reference.dual_objective(Q, reference.solve_dual(Q, upper))
    state = solved(RowsDual(Rows(make(X)), OneVsRestTerms(2), (codes,), upper, bias, Engine(1)))
    [column] = state.columns
    assert -state.bound == pytest.approx(least, rel=1e-7)
    w = column.point if bias else np.append(column.point, 0.0)
    primal = 0.5 * w @ w + upper @ np.maximum(0, 1 - y * (Z @ w))
    assert state.objective == pytest.approx(primal, rel=1e-12)
    assert ((column.alpha >= 0) & (column.alpha <= upper)).all()


def test_numbers_against_liblinear():
    X, t = load_diabetes(return_X_y=True)
    t = (t - t.mean()) / t.std()
    targets, upper = (t,), np.full(len(t), 20.0)
    state = solved(RowsDual(Rows(np.ascontiguousarray(X, np.float32)), TubeTerms(0.1), targets, upper, 1.0, Engine(1)))
    theirs = LinearSVR(C=20.0, epsilon=0.1, tol=1e-6, max_iter=1_000_000).fit(X, t)
    w = np.append(theirs.coef_, theirs.intercept_)
    loss = 20.0 * np.maximum(0, np.abs(X @ w[:-1] + w[-1] - t) - 0.1).sum()
    assert state.objective == pytest.approx(0.5 * w @ w + loss, rel=1e-4)


def test_rows_without_entries_take_their_largest_variable():
    X, codes = data()
    X[::5] = 0
    state = solved(RowsDual(Rows(X), OneVsRestTerms(2), (codes,), np.full(len(X), 2.0), 0.0, Engine(1)))
    assert (state.columns[0].alpha[0, ::5] == 2.0).all()


def test_classes_are_solved_side_by_side_as_alone():
    X, codes = data(4)
    rows, upper = Rows(sparse.csr_array(X)), np.ones(len(X))
    one, two = (solved(RowsDual(rows, OneVsRestTerms(4), (codes,), upper, 1.0, Engine(k))) for k in (1, 2))
    np.testing.assert_array_equal(one.points[0], two.points[0])


@pytest.mark.parametrize("k", [2, 4])
def test_a_fit_has_liblinears_objective(k):
    X, y = data(k)
    _, report = train_in_memory(Store.from_arrays(X, y), config(tol=1e-6, cutting_plane={"method": "dual"}))
    theirs = LinearSVC(loss="hinge", tol=1e-8, max_iter=1_000_000).fit(X, y)
    total = 0.0
    for c, (w, b) in enumerate(zip(theirs.coef_, theirs.intercept_, strict=True)):
        signs = np.where(y == (np.unique(y)[-1] if k == 2 else np.unique(y)[c]), 1, -1)
        total += 0.5 * (w @ w + b * b) + np.maximum(0, 1 - signs * (X @ w + b)).sum()
    assert report["objective"] == pytest.approx(total, rel=1e-5)
    assert (report["stopped_by"], report["planes"]) == ("tol", 0)


def test_sparse_rows_that_fit_are_solved_by_it_however_they_are_stored(monkeypatch):
    X, y = words()

    def fitted(X: object, **values: object) -> tuple[int, np.ndarray]:
        model, report = train_in_memory(Store.from_arrays(X, y), config(**values))
        return report["planes"], model.coef

    (planes, coef), (others, same) = fitted(sparse.csr_array(X)), fitted(X)
    assert planes == others == 0
    np.testing.assert_array_equal(coef, same)
    assert fitted(np.ascontiguousarray(X[:, :3] + 1))[0] > 0
    assert fitted(X, cutting_plane={"method": "ocas"})[0] > 0
    monkeypatch.setattr("streamsvm.fits.cutting_plane.DUAL_SHARE", 0)
    assert fitted(X)[0] > 0


def test_the_choice_depends_on_rows_and_memory_not_on_threads(monkeypatch):
    X = words()[0]
    store = Store.from_arrays(X, np.arange(len(X)) % 4)
    chosen: dict[int, list[bool]] = {1: [], 8: []}
    for share in np.geomspace(1e-6, 1e-2, 40):
        monkeypatch.setattr(cutting_plane, "DUAL_SHARE", share)
        for threads, found in chosen.items():
            with planned_fit(store, config(memory_limit="8GiB", threads=threads)) as fit:
                fit._choose(was_dual=None)
                found.append(fit.is_dual)
    assert chosen[1] == chosen[8]
    assert {*chosen[1]} == {False, True}


def test_memory_that_dual_descent_alone_fits_is_enough():
    """Planes of 30 wide columns would take three times as much."""
    n, d = 120, 20_000
    rng = np.random.default_rng(0)
    X, y = sparse.random(n, d, 1e-3, format="csr", dtype=np.float32, random_state=rng), np.arange(n) % 30
    within = config(memory_limit=process_bytes() + (80 << 20), task="classify")
    assert train_in_memory(Store.from_arrays(sparse.csr_array(X), y), within)[1]["planes"] == 0
    with pytest.raises(MemoryLimitError, match="too small for 30 linear problems"):
        train_in_memory(Store.from_arrays(X.toarray() + 1, y), within)


def test_support_vectors_have_a_dual_variable_above_0():
    """Free ones lie on the margin up to rounding: whether they have a loss there depends on the order of the sweeps."""
    X, y = data()
    store, options = Store.from_arrays(X, y), {"tol": 1e-7, "cutting_plane": {"method": "dual"}}
    counts = {train_in_memory(store, config(seed=seed, **options))[1]["n_support"] for seed in range(4)}
    assert len(counts) == 1
    assert counts.pop() < len(X)


def test_the_first_rows_are_read_once_for_both_choices(monkeypatch):
    """Of the method, and of how dual descent holds the rows."""
    read, first_rows = [], cutting_plane.first_rows
    monkeypatch.setattr(cutting_plane, "first_rows", lambda store: read.append(store) or first_rows(store))
    X, y = words()
    assert train_in_memory(Store.from_arrays(X, y), config())[1]["planes"] == 0
    assert len(read) == 1


CANNOT = [
    ({"cutting_plane": {"loss": "logistic"}}, "has the hinge loss, not 'logistic'"),
    ({"cutting_plane": {"landmarks": 10}, "kernel": {"name": "rbf"}}, "takes rows as they are, without landmarks"),
    ({"task": "ordinal"}, "solves classes and numbers, not task 'ordinal'"),
    ({"task": "oneclass"}, "solves classes and numbers, not task 'oneclass'"),
]


@every_case(("options", "reason"), CANNOT)
def test_options_that_it_cannot_solve_are_refused_before_a_fit(options, reason):
    """auto takes planes for the same reasons."""
    sections = options.get("cutting_plane", {})
    with pytest.raises(ConfigError) as refused:
        config(**options | {"cutting_plane": sections | {"method": "dual"}})
    expected = f"test: cutting_plane.method is 'dual', which {reason}; expected 'auto', 'ocas' or 'plain'"
    assert str(refused.value) == expected
    assert config(**options).cutting_plane.no_dual(task_for(config(**options))) == reason


def test_a_task_that_the_rows_decide_is_refused_by_the_fit():
    X, y = data()
    store = Store.from_arrays(X, y, qid=np.arange(len(X)) // 10)
    with pytest.raises(ConfigError, match="solves classes and numbers, not task 'rank'"):
        train_in_memory(store, config(cutting_plane={"method": "dual"}))


def test_options_of_another_solver_do_not_matter():
    unread = {"method": "dual", "loss": "logistic"}
    assert config(solver="dcsvm", cutting_plane=unread).cutting_plane.method == "dual"


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (CuttingPlaneRanker(method="dual"), "solves classes and numbers"),
        (CuttingPlaneSVC(method="dual", loss="logistic"), "has the hinge loss"),
        (CuttingPlaneSVC(method="dual", kernel="rbf", landmarks=10), "without landmarks"),
    ],
)
def test_what_it_cannot_solve_is_an_error(estimator, message):
    X, y = data()
    more = {"qid": np.arange(len(X)) // 10} if isinstance(estimator, CuttingPlaneRanker) else {}
    with pytest.raises((ConfigError, ValueError), match=message):
        estimator.fit(X, y, **more)


def test_a_run_goes_on_as_it_began(tmp_path, monkeypatch):
    """By planes or by dual descent, whatever the memory of the machine would choose now."""
    X, y = words()
    store, options = Store.from_arrays(X, y), config(tol=1e-9, checkpoint_every="1 step")
    for name, share in (("dual", 1.0), ("planes", 0.0)):
        monkeypatch.setattr("streamsvm.fits.cutting_plane.DUAL_SHARE", share)
        whole = train(store, options, model_path=tmp_path / f"{name}.whole")
        run = {"model_path": tmp_path / name, "run_dir": tmp_path / f"{name}.run"}
        with pytest.raises(KeyboardInterrupt):
            train(store, options, **run, events=Events(interrupt))
        monkeypatch.setattr("streamsvm.fits.cutting_plane.DUAL_SHARE", 1.0 - share)
        report = train(store, options, **run, resume=True)
        assert (report["planes"] == 0) == (name == "dual")
        assert (report["steps"], report["passes"]) == (whole["steps"], whole["passes"])
        models = [load_model(tmp_path / path) for path in (name, f"{name}.whole")]
        np.testing.assert_array_equal(models[0].coef, models[1].coef)


def interrupt(record: Record) -> None:
    if isinstance(record.event, Step) and record.event.step == 2:
        raise KeyboardInterrupt


def test_numbers_by_the_estimator_agree_with_planes():
    X, t = load_diabetes(return_X_y=True)
    one, other = (CuttingPlaneSVR(method=method, tol=1e-6).fit(X, t) for method in ("dual", "ocas"))
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-2)
