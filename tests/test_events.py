"""Events in a file: one line each, whatever happens to the file."""

from __future__ import annotations

import errno
import json
import math
import os

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.events import Events, Phase, Progress, Round
from streamsvm.progress import Convergence, Rounds
from streamsvm.runs import records as growing
from streamsvm.runs.records import JsonLines


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@every_case("torn", ["", '{"event": "ro', '{"event": "round"}', "x" * 200])
@every_case("before", ["", '{"event": "a"}\n{"event": "b"}\n'])
def test_a_torn_last_line_is_removed(tmp_path, monkeypatch, before, torn):
    monkeypatch.setattr(growing, "BLOCK", 16)
    path = tmp_path / "events.jsonl"
    path.write_text(before + torn)
    log = JsonLines(path)
    log({"event": "c"})
    log.close()
    assert [record["event"] for record in lines(path)] == [*(["a", "b"] if before else []), "c"]


class TestApproach:
    def test_halfway_in_digits_is_half_the_way(self):
        share = Convergence(1e-4)
        assert [round(share(value), 6) for value in (1.0, 1e-1, 1e-2, 1e-3)] == [0, 0.25, 0.5, 0.75]

    @given(st.lists(st.floats(0, 1e6) | st.just(math.inf), max_size=20), st.floats(1e-9, 1))
    def test_it_never_falls_and_never_ends(self, values, tol):
        share = Convergence(tol)
        shares = [share(value) for value in values]
        assert shares == sorted(shares)
        assert all(0 <= value < 1 for value in shares)


def test_rounds_of_problems_one_after_the_other():
    seen = []
    rounds = Rounds(Events(seen.append), Phase.SOLVE, 2, 1e-2)
    for problem, violation in ((0, 1.0), (0, 0.1), (1, 10.0), (1, 0.001)):
        rounds(problem, {"round": 1, "violation": violation, "active": 3})
    rounds.end()
    told = [event for _, event in seen if isinstance(event, Round)]
    assert [event.problem for event in told] == [0, 0, 1, 1]
    assert all(event.phase is Phase.SOLVE and event.active == 3 for event in told)
    done = [event.done for _, event in seen if isinstance(event, Progress)]
    assert done == pytest.approx([0, 0.5, 1, 1.999, 2])


@pytest.mark.parametrize("some", [0, 5])
def test_a_full_disk_leaves_whole_lines(tmp_path, some):
    """A write that fails, or writes a few bytes only."""
    log = JsonLines(tmp_path / "events.jsonl")
    whole = log._file

    class Full:
        tell, truncate, close = whole.tell, whole.truncate, whole.close

        @staticmethod
        def write(line):
            if not some:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return whole.write(line[:some])

    log({"event": "a"})
    log._file = Full
    log({"event": "lost"})
    log._file = whole
    log({"event": "b"})
    log.close()
    assert [record["event"] for record in lines(tmp_path / "events.jsonl")] == ["a", "b"]
