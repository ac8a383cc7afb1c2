"""Mapping and reducing: order, windows, errors and progress."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from every_case import every_case

from streamsvm.events import Events, Progress
from streamsvm.parallel.engine import Engine, GroupedReduction, SerialEngine, merged_by_level, merged_in_tree, several


def test_results_come_in_the_order_of_the_items():
    assert list(Engine(3).map(lambda x: x * x, range(50))) == [x * x for x in range(50)]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_reduction_keeps_the_order(threads):
    """String concatenation is not commutative."""
    owns, merged = Engine(threads).map_reduce(lambda x: (-x, str(x)), lambda a, b: a + b, range(30))
    assert owns == [-x for x in range(30)]
    assert merged == "".join(map(str, range(30)))


@every_case(
    ("count", "tree"),
    [(1, "0"), (2, "(01)"), (3, "((01)2)"), (5, "(((01)(23))4)"), (7, "(((01)(23))((45)6))")],
)
def test_the_tree_of_a_reduction_follows_from_the_number_of_items(count, tree):
    assert merged_in_tree(lambda a, b: f"({a}{b})", map(str, range(count))) == tree


@every_case("count", [1, 2, 3, 6, 11, 37])
def test_a_tree_merged_level_by_level_is_the_same(count):
    parts, levels = [str(number) for number in range(count)], []

    def merge(pairs):
        levels.append(len(pairs))
        return [f"({a}{b})" for a, b in pairs]

    tree = merged_in_tree(lambda a, b: f"({a}{b})", parts)
    assert merged_by_level(merge, parts) == tree
    assert len(levels) == (count - 1).bit_length()


def test_what_is_shared_comes_first_and_what_is_held_is_read_in_the_task():
    engine, reads = Engine(2), []
    held = engine.hold(lambda base, x: reads.append(x) or base + x, range(4), shared=(10,))
    assert reads == []
    assert list(engine.map(lambda a, x, y: (a, x, y), held, "wxyz", shared=("s",)))[3] == ("s", 13, "z")
    assert sorted(reads) == [0, 1, 2, 3]


def test_one_window_is_made_while_another_is_taken():
    made, eighth = [], threading.Event()

    def make(item):
        made.append(item)
        if len(made) == 8:
            eighth.set()
        return item

    results = Engine(2).map(make, range(40), window=4)
    assert next(results) == 0
    assert eighth.wait(10)
    assert [next(results) for _ in range(3)] == [1, 2, 3]
    assert len(made) == 8


def test_what_is_not_taken_is_not_made():
    made = []
    results = Engine(2).map(made.append, range(40), window=4)
    next(results)
    results.close()
    assert len(made) <= 8


def test_tasks_run_on_as_many_threads_as_asked():
    barrier = threading.Barrier(2, timeout=60)  # two tasks have to be inside at once
    assert len(list(Engine(2).map(lambda _: barrier.wait(), range(2)))) == 2


def test_an_error_in_a_task_reaches_the_caller_as_it_is():
    def fail(item):
        raise KeyError(f"item {item}")

    with pytest.raises(KeyError, match="item [012]"):
        list(Engine(2).map(fail, range(3)))


def test_progress_ends_at_the_total():
    records = []
    list(Engine(2).map(str, range(20), phase="work", events=Events(records.append)))
    assert [event.done for _, event in records] == sorted(event.done for _, event in records)
    assert records[-1].event == Progress("work", 20, 20)


def test_items_may_be_tuples_and_callables():
    """Neither is taken for a task of the graph."""
    assert list(Engine(1).map(lambda item: item, [(1, 2), (3,)])) == [(1, 2), (3,)]
    assert list(Engine(1).map(lambda item: item, [(len, "abc")])) == [(len, "abc")]


def test_an_engine_with_other_threads_leaves_the_first_as_it_is():
    """DC-SVM takes fewer where memory is short: once it changed the engine that it was given."""
    given = Engine(2)
    assert (given.on(1).threads, given.threads) == (1, 2)
    assert list(given.on(1).map(str, range(3))) == ["0", "1", "2"]


@pytest.mark.parametrize("together", [2, 4, 8])
def test_neighbours_that_one_task_merges_leave_the_tree_as_it_is(together):
    def fn(base: int, x: int) -> tuple[int, str]:
        return base - x, str(x)

    def merge(a: str, b: str) -> str:
        return f"({a} {b})"

    for n in range(1, 40):
        alone = SerialEngine().map_reduce(fn, merge, range(n), shared=(100,))
        jobs = [(x,) for x in range(n)]
        owns, merged = SerialEngine().map_reduce(
            GroupedReduction(fn, merge), merge, several(jobs, together), shared=(100,)
        )
        assert (sum(owns, []), merged) == alone


def test_a_blas_that_is_loaded_after_the_engine_was_opened_is_serial_too():
    script = """
from threadpoolctl import threadpool_info
from streamsvm.parallel.engine import Engine
def blas():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
engine = Engine(2)
with engine.serial_blas():
    first = len(blas())
import scipy.linalg
if len(blas()) > first:  # SciPy's wheels bring their own
    with engine.serial_blas():
        assert set(blas()) == {1}, blas()
    assert set(blas()) != {1}
"""
    env = os.environ | {"OPENBLAS_NUM_THREADS": "2", "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    assert ended.returncode == 0, ended.stderr
