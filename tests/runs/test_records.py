"""Events as lines: what an earlier version wrote is read, written again it is the same, anything else does no harm."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import fields
from pathlib import Path

import pytest
import told
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from streamsvm import events
from streamsvm.cli.top import RunMonitor
from streamsvm.events import Event, LevelSolved, Memory, Phase, Progress, Record, Round, Step, Window
from streamsvm.report.html import contents
from streamsvm.report.read import read_run
from streamsvm.runs.directory import Tail
from streamsvm.runs.records import Unknown, flat, parse

RUNS = Path(__file__).parents[1] / "kept" / "records" / "0.1.0.tar.xz"  # written before events were typed
SECTIONS = {
    "dcsvm": {"convergence", "levels"},
    "bsgd": {"budget"},
    "alfpgm": {"convergence", "working-sets"},
    "admm-hss": {"convergence", "ranks"},
    "cutting-plane": {"convergence", "planes", "warnings"},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    with tarfile.open(RUNS) as archive:
        archive.extractall(place, filter="data")
    return place


@pytest.mark.parametrize("solver", SECTIONS)
class TestRunsOfAnEarlierVersion:
    def test_lines_are_the_same_when_written_again(self, runs, solver):
        for line in (runs / solver / "events.jsonl").read_bytes().splitlines():
            record, before = parse(line), json.loads(line)
            assert not isinstance(record.event, Unknown)
            assert flat(record) == {name: value for name, value in before.items() if name != "store"}

    def test_a_page_has_its_sections(self, runs, solver):
        run = read_run(runs / solver)
        assert run.status == "finished"
        assert (run.started.n, run.solver) == (600, solver)
        assert {section.id for section, _ in contents([run])} >= SECTIONS[solver] | {"summary", "cost"}

    def test_top_shows_them(self, runs, solver):
        console = Console(file=io.StringIO(), width=120)
        watch = RunMonitor(runs / solver, console)
        watch.take(Tail(runs / solver)())
        console.print(watch.frame())
        shown = console.file.getvalue()
        assert solver in shown
        assert "finished after" in shown
        assert "accuracy" in shown if solver == "bsgd" else "(tol 0.001)" in shown or "primal" in shown


@every_case(
    ("line", "event"),
    [
        ({"event": "level", "level": 2, "rows": 5}, LevelSolved(2, None, None, None, None, None, None)),
        ({"event": "memory", "rss_bytes": "much"}, Unknown("memory")),
        ({"event": "round", "phase": "top", "problem": 0, "violation": 0.1}, Unknown("round")),
        ({"event": "step", "step": 3, "gap": True, "primal": 1}, Step(3, primal=1)),
        ({"event": "landed", "moon": 1}, Unknown("landed")),
        (
            {"event": "progress", "phase": "rows", "done": 1, "total": None, "pass": 2},
            Progress("rows", 1, None, facts={"pass": 2}),
        ),
    ],
)
def test_what_another_version_wrote_is_read_as_far_as_it_goes(line, event):
    assert parse(json.dumps({"t": 1.5} | line).encode()) == Record(1.5, event)


def test_a_phase_from_elsewhere_keeps_what_its_rounds_tell():
    for phase in (Phase("anneal", "whole"), Phase.TOP, Phase("warm up")):
        event = Round(phase, 0, 3, 0.5, -9.0, 0.1)
        line = flat(Record(1.0, event))
        assert ("scope" in line) == (phase == "anneal")
        again = parse(json.dumps(line).encode()).event
        assert again == event
        assert again.phase.scope == phase.scope


def test_rounds_of_another_solver_are_drawn(tmp_path):
    rounds = [told.round_(number, phase="anneal", scope="whole") for number in range(1, 5)]
    [convergence] = [
        parts
        for section, parts in contents([read_run(told.write_run(tmp_path / "run", rounds))])
        if section.id == "convergence"
    ]
    assert {part.name for part in convergence} == {"objective", "gap", "violation"}


NAMES = ["phase", "done", "total", "level", "round", "problem", "step", "steps", "config", "message", "ranks"]
ANY = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers())


@given(
    st.sampled_from(["start", "plan", "progress", "round", "step", "level", "window", "hss", "warning", "x"]),
    st.dictionaries(st.sampled_from(NAMES), ANY),
)
def test_whatever_a_line_holds_fields_have_their_types(kind, values):
    record = parse(json.dumps({"event": kind, "t": 0} | values).encode())
    event = record.event
    for field in fields(event):
        value = getattr(event, field.name)
        allowed = {"str": str, "int": int, "Phase": str, "Facts": dict, "float": (int, float)}
        name, _, optional = str(field.type).partition(" | ")
        assert value is None if value is None and optional else isinstance(value, allowed.get(name, object))


def test_each_kind_has_a_name_and_says_what_it_is():
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]
    named = [kind for kind in kinds if hasattr(kind, "kind")]
    assert len({kind.kind for kind in named}) == len(named) == 19
    assert all(kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}(") for kind in named)
    with pytest.raises(AttributeError):
        Memory(3).rss_bytes = 4
    with pytest.raises(TypeError, match="suports"):
        Window(accuracy=1.0, loss=0.0, steps=3, suports=2)
