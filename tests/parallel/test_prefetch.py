"""Results made ahead: their order, how many wait, and errors."""

from __future__ import annotations

import signal
import threading

import pytest

from streamsvm.parallel.prefetch import ahead, as_they_come


@pytest.mark.parametrize(("threads", "most"), [(1, None), (3, None), (3, 4), (2, 1)])
def test_results_come_in_order_and_few_wait(threads, most):
    """However slowly they are taken."""
    begun, taken = [], []

    def work(number):
        begun.append(number)
        assert len(begun) - len(taken) <= (most or threads) + 1  # one is being used
        return number

    for number in ahead(work, range(40), threads, most):
        taken.append(number)
        threading.Event().wait(0.001)
    assert taken == list(range(40))


def test_the_next_one_is_made_while_one_is_used():
    second = threading.Event()
    results = ahead(lambda number: second.set() if number == 1 else None, range(2))
    next(results)
    assert second.wait(10)


def test_an_error_comes_where_its_result_would():
    results = ahead(lambda number: 1 // number, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_nothing_is_made_of_nothing():
    assert list(ahead(str, [])) == []


def test_streams_side_by_side_yield_as_it_comes():
    """The second stream's results come while the first one waits for them."""
    turn = threading.Event()

    def first():
        assert turn.wait(10)
        yield "first"

    results = as_they_come([first, lambda: iter("ab")], 2)
    assert (next(results), next(results)) == ("a", "b")
    turn.set()
    assert list(results) == ["first"]


def test_an_error_ends_all_streams():
    turn, taken = threading.Event(), []

    def endless():
        turn.set()
        for number in range(10**9):
            taken.append(number)
            yield number

    def fails():
        assert turn.wait(10)
        yield 1 // 0

    with pytest.raises(ZeroDivisionError):
        list(as_they_come([endless, fails], 2))
    assert len(taken) < 10**9


def test_ctrl_c_does_not_wait_for_what_is_at_work():
    at_work, go_on = threading.Event(), threading.Event()

    def work(number):
        at_work.set()
        assert go_on.wait(30)

    def interrupted():
        at_work.wait(30)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the parent did with it
    try:
        results = ahead(work, range(3))
        threading.Timer(0.1, interrupted).start()
        with pytest.raises(KeyboardInterrupt):
            next(results)
        assert not go_on.is_set()
    finally:
        signal.signal(signal.SIGINT, before)
        go_on.set()
