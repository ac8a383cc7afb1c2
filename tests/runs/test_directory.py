"""What a run directory holds: the records of a run, thinned, and its results."""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise

import pytest

from streamsvm.errors import DataError, NotFoundError, StorageError
from streamsvm.events import Events, LevelSolved, Progress, Record, ignore
from streamsvm.runs import directory
from streamsvm.runs.directory import RunLog, end_with, recorded, require_run, write_result


def lines(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_progress_is_thinned_and_a_phase_that_was_told_ends(tmp_path):
    log = RunLog(tmp_path / "events.jsonl")
    for i in range(50):
        log(Record(i * 0.1, Progress("rows", i, 50)))
        log(Record(i * 0.1, Progress("short", 1, 1)))
    log(Record(4.95, Progress("rows", 50, 50)))
    log.close()
    told = [r for r in lines(tmp_path) if r["event"] == "progress"]
    assert {r["phase"] for r in told} == {"rows"}
    assert [r["done"] for r in told] == [0, 10, 20, 30, 40, 50]


def test_memory_is_sampled_by_the_clock_where_nothing_else_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(directory, "EVERY_S", 0.1)
    with recorded(tmp_path, Events(), False):
        until = time.monotonic() + 60
        while (tmp_path / "events.jsonl").read_text().count('"memory"') < 4 and time.monotonic() < until:
            time.sleep(0.02)
    samples = [r for r in lines(tmp_path) if r["event"] == "memory"]
    assert len(samples) >= 4
    assert all(b["t"] - a["t"] >= 0.09 for a, b in pairwise(samples[:-1]))
    assert all(10 << 20 < r["rss_bytes"] < 64 << 30 for r in samples)
    assert not [thread for thread in threading.enumerate() if thread.name == "memory"]


def test_start_and_end_frame_a_run(tmp_path):
    run = tmp_path / "run"
    with recorded(run, Events(), False, n=3) as events:
        events(LevelSolved(1, 4, 9, 5, -1.0, 0.1, 0.2))
    records = [r for r in lines(run) if r["event"] != "memory"]
    assert [r["event"] for r in records] == ["start", "level", "done"]
    assert (records[0]["n"], records[0]["resume"]) == (3, False)
    assert records[0]["versions"]["streamsvm"]


@pytest.mark.parametrize(
    ("error", "message"), [(DataError("row 3"), "row 3"), (KeyboardInterrupt(), "KeyboardInterrupt")]
)
def test_what_ended_a_run_is_told(tmp_path, error, message):
    with pytest.raises(type(error)), recorded(tmp_path, Events(), False):
        raise error
    assert lines(tmp_path)[-1]["event"] == "failed"
    assert lines(tmp_path)[-1]["message"] == message


@pytest.mark.parametrize("resume", [False, True])
def test_results_of_an_earlier_run_do_not_stay(tmp_path, resume):
    for name in (directory.RESULT, directory.EVALUATION, directory.TUNE):
        write_result(tmp_path, name, {})
    with recorded(tmp_path, Events(), resume):
        left = {path.name for path in tmp_path.iterdir()}
    assert left & {directory.RESULT, directory.EVALUATION, directory.TUNE} == {directory.TUNE} | (
        {directory.EVALUATION} if resume else set()
    )


def test_results_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    write_result(tmp_path, "result.json", {"gap": float("nan"), "n": 1})
    assert json.loads((tmp_path / "result.json").read_text()) == {"gap": None, "n": 1}
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(StorageError, match="No space left"):
            write_result(tmp_path, "result.json", {"n": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert json.loads((tmp_path / "result.json").read_text())["n"] == 1
    with monkeypatch.context() as patch:
        patch.setattr(directory, "whole_file", lambda path: (_ for _ in ()).throw(StorageError("disk full")))
        seen = []
        end_with(tmp_path, Events(seen.append), {})
        assert [event.message for _, event in seen] == ["disk full"]
    with pytest.raises(NotFoundError, match="no such run directory"):
        require_run(tmp_path / "none")


def test_another_program_s_events_are_left_alone(tmp_path):
    own = tmp_path / "events.jsonl"
    own.write_text('{"a": 1}\n')
    with pytest.raises(StorageError, match=r"events.jsonl has no records of a run; give --run-dir another folder"):
        with recorded(tmp_path, ignore, False):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["events.jsonl"]
    assert own.read_text() == '{"a": 1}\n'
