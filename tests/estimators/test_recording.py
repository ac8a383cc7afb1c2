"""Fits in Python that leave a run directory, which `report` shows."""

from __future__ import annotations

import pandas as pd
import pytest
from cases import labelled

from streamsvm import DCSVC, recording
from streamsvm.cli.app import app
from streamsvm.errors import StorageError
from streamsvm.report.read import read_run


def test_a_fit_leaves_a_run_that_has_scores_and_a_page(tmp_path):
    X, y = labelled()
    frame = pd.DataFrame(X).rename(columns="x{}".format)
    with recording(str(tmp_path / "run")):
        svm = DCSVC(C=10).fit(frame, y)
    svm.save(tmp_path / "m.zarr")
    DCSVC().fit(frame, y)  # outside, and so without a record
    frame.assign(y=y).to_csv(tmp_path / "own.csv", index=False)
    run, page = str(tmp_path / "run"), tmp_path / "page.html"
    args = ["evaluate", str(tmp_path / "own.csv"), "--model", str(tmp_path / "m.zarr"), "--label", "y"]
    app([*args, "--run-dir", run], standalone_mode=False)
    app(["report", run, "--out", str(page)], standalone_mode=False)
    found = read_run(tmp_path / "run")
    assert found.result["objective"] == svm.objective_
    assert found.evaluation["n"] == len(X)
    assert "Scores" in page.read_text()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with recording(tmp_path / "file" / "run"), pytest.raises(StorageError, match="file/run"):
        DCSVC().fit(*labelled())
