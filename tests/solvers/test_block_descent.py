"""Dual coordinate descent over blocks of rows: against slow solutions and descent in memory, and as a fit."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import reference
from linear_duals import TIGHT, config, data, words
from making import write
from scipy import sparse
from stepwise import killed_and_resumed

from streamsvm.data.cache import CachedSamples
from streamsvm.data.rows import Rows
from streamsvm.data.samples import SamplesInMemory
from streamsvm.data.store import Store
from streamsvm.errors import MemoryLimitError
from streamsvm.fits import cutting_plane
from streamsvm.fits.cutting_plane import CuttingPlaneFit
from streamsvm.models.files import load_model
from streamsvm.parallel.engine import Engine
from streamsvm.problems.linear_blocks import BlocksDual
from streamsvm.problems.linear_dual import RowsDual
from streamsvm.problems.row_risk import LossTerms, OneVsRestTerms, TubeTerms
from streamsvm.solvers import loop
from streamsvm.solvers.dual_descent import BlockDescent, DualDescent, DualState
from streamsvm.train import planned_fit, train, train_in_memory

Problem = tuple[Rows, LossTerms, tuple[np.ndarray, ...], np.ndarray, float]


def in_blocks(problem: Problem, blocks: int, window: int = 20, threads: int = 1) -> BlocksDual:
    rows, *losses = problem
    samples = SamplesInMemory(rows)
    ends = [(start, min(len(rows), start + window)) for start in range(0, len(rows), window)]
    samples.blocks = lambda: ends  # type: ignore[method-assign]
    cached = CachedSamples(samples, 1 << 30, lambda: pytest.fail("all rows are in memory"), block_bytes=1)
    return BlocksDual(cached, *losses, Engine(threads), block_bytes=rows.nbytes // blocks)


def solved(problem: BlocksDual, **options: float) -> DualState:
    solver = BlockDescent(**{"tol": TIGHT} | options)
    state = loop.run(solver, problem, stop=solver.has_ended)
    assert solver.done(state)
    return state


def classes(k: int = 2, make: Any = sparse.csr_array, bias: float = 1.0) -> Problem:
    X, codes = data(k)
    upper = np.random.default_rng(1).choice([0.0, 0.5, 4.0], len(X))
    return Rows(make(X)), OneVsRestTerms(k), (codes,), upper, bias


def numbers() -> Problem:
    X, _ = data()
    t = X @ np.arange(6.0) + np.random.default_rng(0).normal(size=len(X))
    return Rows(sparse.csr_array(X)), TubeTerms(0.1), (t,), np.full(len(X), 2.0), 1.0


@pytest.mark.parametrize("bias", [0.0, 3.0])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("blocks", [4, 1000])
def test_classes_against_the_twin(bias, make, blocks):
    rows, _, (codes,), upper, _ = problem = classes(2, make, bias)
    y, Z = np.where(codes > 0, 1.0, -1.0), np.hstack([rows.dense().astype(float), np.full((len(rows), 1), bias)])
    Q = y[:, None] * (Z @ Z.T) * y
    least = reference.dual_objective(Q, reference.solve_dual(Q, upper))
    [column] = solved(in_blocks(problem, blocks)).columns
    assert -column.bound == pytest.approx(least, rel=1e-7)
    assert ((column.alpha >= 0) & (column.alpha <= upper)).all()
    w = column.point if bias else np.append(column.point, 0.0)
    primal = 0.5 * w @ w + upper @ np.maximum(0, 1 - y * (Z @ w))
    assert column.objective == pytest.approx(primal, rel=1e-12)
    follows = Z.T @ (column.alpha[0] * y)
    np.testing.assert_allclose(column.w, follows if bias else follows[:-1], rtol=1e-12, atol=1e-12)
    assert column.bound == pytest.approx(column.alpha.sum() - 0.5 * follows @ follows, rel=1e-12)


@pytest.mark.parametrize("make", [classes, numbers])
def test_a_single_block_is_descent_in_memory_to_the_last_bit(make):
    """But its objective is known a pass later."""
    problem = make()
    solvers, problems = (BlockDescent(TIGHT), DualDescent(TIGHT)), (in_blocks(problem, 1, 300), whole(problem))
    states = [solver.init(it) for solver, it in zip(solvers, problems, strict=True)]
    for _ in range(4):
        last = states[1].objective
        states = [solver.step(it, s) for solver, it, s in zip(solvers, problems, states, strict=True)]
        [one], [other] = (state.columns for state in states)
        np.testing.assert_array_equal(one.alpha, other.alpha)
        np.testing.assert_array_equal(one.w, other.w)
        assert (one.bound, one.objective) == (other.bound, last)


def whole(problem: Problem) -> RowsDual:
    return RowsDual(*problem, Engine(1))


def test_rows_without_entries_take_their_largest_variable():
    rows, terms, codes, _, _ = classes()
    X = rows.dense()
    X[::5], upper = 0, np.full(len(X), 2.0)
    state = solved(in_blocks((Rows(sparse.csr_array(X)), terms, codes, upper, 0.0), 4))
    assert (state.columns[0].alpha[0, ::5] == 2.0).all()


def test_numbers_against_descent_in_memory():
    solver = DualDescent(TIGHT)
    expected = loop.run(solver, whole(numbers()), stop=solver.has_ended).objective
    assert solved(in_blocks(numbers(), 5)).objective == pytest.approx(expected, rel=1e-7)


def test_classes_are_solved_side_by_side_as_alone():
    one, two = (solved(in_blocks(classes(4), 4, threads=k)) for k in (1, 2))
    np.testing.assert_array_equal(one.points[0], two.points[0])


def test_a_pass_reads_each_row_once_and_keeps_free_rows():
    problem, seen = in_blocks(classes(), 4), list[np.ndarray]()

    def visit(block: Any) -> np.ndarray:
        np.testing.assert_array_equal(block.rows.dense(), classes()[0].dense()[block.ids])
        np.testing.assert_array_equal(block.upper, problem.upper[block.ids])
        kept = seen[-1][::3] if seen else np.empty(0)
        np.testing.assert_array_equal(block.ids[: block.kept], kept)
        seen.append(block.ids)
        return np.arange(block.n) % 3 == 0

    problem.over(visit, [0])
    new = np.concatenate([seen[0], *(ids[len(last[::3]) :] for last, ids in zip(seen, seen[1:], strict=False))])
    np.testing.assert_array_equal(np.sort(new), np.arange(problem.n))
    assert (len(seen) > 4, problem.count) == (True, 1)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a fifth of the rows, whatever the memory."""
    monkeypatch.setattr(CuttingPlaneFit, "_block_bytes", lambda self: int(self.samples.nbytes / 5))


def stored(folder: Any, X: np.ndarray, y: np.ndarray, **options: Any) -> Store:
    return write(folder / "s.zarr", Rows(X), y, step=32, **{"chunk_rows": 16} | options)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("make", [np.uint8, sparse.csr_array])
def test_a_fit_has_the_objective_of_one_in_memory(make, tmp_path, monkeypatch):
    X, y = words()
    y = y + 2 * (X[:, 0] > 0)  # four classes
    options = config(tol=1e-5)
    model, report = train_in_memory(stored(tmp_path, make(X), y, chunk_rows=1), options)
    monkeypatch.undo()
    expected, in_memory = train_in_memory(Store.from_arrays(make(X), y), options)
    assert (report["planes"], report["stopped_by"], report["passes"]) == (0, "tol", report["steps"])
    assert report["objective"] == pytest.approx(in_memory["objective"], rel=2e-5)
    assert report["gap"] <= 1e-5 * report["objective"]
    np.testing.assert_allclose(model.coef, expected.coef, atol=1e-2)


@pytest.mark.usefixtures("small_blocks")
def test_a_killed_run_goes_on_to_the_same_model(tmp_path, monkeypatch):
    """By blocks of the size with which it began."""
    X, y = words()
    options = config(tol=1e-4, checkpoint_every="1 step")
    whole, resumed = killed_and_resumed(stored(tmp_path, sparse.csr_array(X), y), options, tmp_path)
    models = [load_model(tmp_path / name) for name in ("whole", "m")]
    np.testing.assert_array_equal(models[0].coef, models[1].coef)
    assert [whole[name] for name in ("steps", "passes", "gap")] == [
        resumed[name] for name in ("steps", "passes", "gap")
    ]
    with planned_fit(Store.from_arrays(X, y), options) as fit:
        fit._choose(was_dual=True, block_bytes=12345)
        assert fit.block_bytes == 12345


def test_a_run_that_is_limited_to_a_pass_ends_with_a_model_and_a_warning(tmp_path, small_blocks):
    X, y = words()
    options = config(tol=1e-9, cutting_plane={"passes": 3, "method": "dual"})
    with pytest.warns(UserWarning, match="stopped after 3 passes"):
        train(stored(tmp_path, X, y), options, model_path=tmp_path / "m")
    assert np.isfinite(load_model(tmp_path / "m").coef).all()


def wide_rows(n: int = 20_000) -> tuple[sparse.csr_array, np.ndarray]:
    rng = np.random.default_rng(0)
    X = sparse.random_array((n, 4000), density=0.025, format="csr", dtype=np.float32, rng=rng)
    return X, (X @ rng.normal(size=4000) > 0).astype(int)


@pytest.fixture
def process_of_no_bytes(monkeypatch):
    """So that the same blocks are chosen in each run."""
    for name in ("streamsvm.fits.cutting_plane", "streamsvm.parallel.machine"):
        monkeypatch.setattr(f"{name}.process_bytes", lambda: 0)


def test_memory_decides_between_rows_blocks_and_planes(tmp_path, process_of_no_bytes, monkeypatch):
    X, y = wide_rows(4000)
    store = write(tmp_path / "s.zarr", Rows(X), y, step=1000, chunk_rows=100)

    def chosen(limit: int, method: str = "auto", *, is_local: bool = True) -> int | None:
        with planned_fit(store, config(memory_limit=limit, cutting_plane={"method": method})) as fit:
            fit.engine = SimpleNamespace(is_local=is_local, threads=2)
            fit._choose(was_dual=None)
            assert sum(fit.bytes.values()) <= limit
            return fit.block_bytes if fit.is_dual else None

    monkeypatch.setattr(cutting_plane, "PASS_BYTES", 1 << 16)  # planes need little
    assert chosen(32 << 20) == 0
    assert chosen(6 << 20) == (6 << 20) // 4
    assert chosen(6 << 20, is_local=False) is None
    assert chosen(6 << 20, "ocas") is None
    assert chosen(6 << 20, "dual") == (6 << 20) // 4
    assert chosen(12 << 20, "dual") == 0
    monkeypatch.setattr(cutting_plane, "DUAL_SHARE", 0.01)
    assert chosen(6 << 20) is None


def test_too_little_memory_for_any_block_says_how_much_is_needed():
    X, y = words()
    with pytest.raises(MemoryLimitError, match="too small for 1 linear problems: give at least"):
        train_in_memory(Store.from_arrays(X, y), config(memory_limit="1MiB", cutting_plane={"method": "dual"}))


@pytest.mark.slow  # traces memory
@pytest.mark.filterwarnings("ignore:not converged. stopped after 3 passes")
def test_blocks_keep_to_their_memory(tmp_path, process_of_no_bytes, monkeypatch):
    """The arrays that are alive when a block is visited."""
    X, y = wide_rows(8000)
    store = write(tmp_path / "s.zarr", Rows(X), y, step=1000, chunk_rows=200)
    options = config(memory_limit="5MiB", threads=1, tol=1e-9, cutting_plane={"passes": 3})
    with planned_fit(store, options) as fit:
        fit._choose(was_dual=None)
        planned, size = sum(fit.bytes.values()), fit.block_bytes
    assert 0 < 3 * size < store.nbytes
    visited, visits, alive = BlockDescent._visit, count(), []

    def visit(self, *args):
        if next(visits) % 8 == 7:  # as it takes a while
            gc.collect()
            arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
            traces = tracemalloc.take_snapshot().filter_traces([arrays]).traces
            alive.append(sum(trace.size for trace in traces))
        return visited(self, *args)

    monkeypatch.setattr(BlockDescent, "_visit", visit)
    tracemalloc.start()
    try:
        assert train_in_memory(store, options)[1]["planes"] == 0
    finally:
        tracemalloc.stop()
    assert size < max(alive) <= planned
