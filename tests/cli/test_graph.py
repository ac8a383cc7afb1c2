"""`fit --graph`: the graph of an early fit as a picture."""

from __future__ import annotations

import re

import numpy as np
import pytest
from making import write

from streamsvm.cli.app import app, exit_status
from streamsvm.data.rows import Rows
from streamsvm.report.graph import count_of, lines_of

TASKS = {"rounds": 5, "blocks": 24, "files": 3, "parts": 1}


@pytest.fixture
def fit(tmp_path):
    """fit(option, ...): the exit status of a fit of 400 rows."""
    X = np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)
    write(tmp_path / "s.zarr", Rows(X), (X[:, 0] > 0).astype(int), step=400, chunk_rows=40)
    where = ["--store", str(tmp_path / "s.zarr"), "--model", str(tmp_path / "m.zarr"), "--no-search"]
    return lambda *options: exit_status(lambda: app(["fit", *where, *map(str, options)], standalone_mode=False))


def test_the_picture_has_all_phases_and_one_model(fit, tmp_path):
    parts = ("--set", "dcsvm.levels=1", "--set", "dcsvm.part_rows=40")
    assert fit("--early", *parts, "--graph", tmp_path / "early.svg", "--json") == 0
    texts = re.findall(r">([^<>\n]+)</text>", (tmp_path / "early.svg").read_text())
    for name in ("sample 0", "centres 0", "sample 1", "number", "parts", "model"):
        assert texts.count(name) == 2  # the phase, and its one task
    assert texts.count("assign 0") == texts.count("regroup") == 2  # rows in memory are few blocks
    assert texts.count("solve") == 1
    assert any(text.startswith("Early fit of s.zarr: 400 rows, 2 columns") for text in texts)
    assert any(text.startswith("… × ") for text in texts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--graph: a graph needs an early fit"),
        (("--early",), "--graph: a graph needs rows in partitions, and 400 rows are one partition"),
        (("--early", "--graph", "g.txt"), "expected a name ending in .png or .svg"),
        (("--early", "--graph", "nowhere/g.svg"), "there is no folder nowhere"),
    ],
)
def test_no_graph_is_one_line_before_anything_is_trained(fit, options, message, tmp_path, capfd):
    given = () if "--graph" in options else ("--graph", tmp_path / "g.svg")
    assert fit(*options, *given) == 2
    error = capfd.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "m.zarr").exists()


def test_many_tasks_of_a_kind_are_a_few_boxes():
    lines = list(lines_of(TASKS))
    assert [line for line in lines if isinstance(line, str)] == ["… 3 more rounds like these"]
    assert lines[2].labels == ["0", "1", "2", "3", "4", "5", "… × 17", "23"]
    assert [line.labels for line in lines[-4:]] == [["0", "1", "2"], ["parts"], ["solve"], ["model"]]
    assert count_of(TASKS) == 5 * 26 + 3 + 1 + 3
