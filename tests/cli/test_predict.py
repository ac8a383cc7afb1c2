"""`predict` and `evaluate` on the command line, with a model read from disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from terminal import on_a_terminal

from streamsvm.cli.app import app, exit_status
from streamsvm.data.rows import Rows
from streamsvm.data.writer import StoreWriter
from streamsvm.models import files
from streamsvm.models.columns import NamedColumns
from streamsvm.models.files import save_model


@dataclass
class FirstColumn(NamedColumns):
    """Says yes where the first feature is positive."""

    kind: ClassVar[str] = "first-column"
    classes: np.ndarray
    d: int = 2
    task: str = "classify"
    costs: None = None

    def to_state(self):
        return {"classes": self.classes}, {"d": self.d}

    @classmethod
    def from_state(cls, arrays, attrs):
        return cls(np.asarray(arrays["classes"]), attrs["d"])

    def decision_function(self, rows: Rows) -> np.ndarray:
        return rows.X[:, 0].astype(np.float64)

    def answers(self, rows: Rows):
        return self.decision_function(rows), None

    def codes_of(self, decision, proba=None):
        return (decision > 0).astype(int)

    def labels(self, decision, proba=None):
        return self.classes[self.codes_of(decision, proba)]

    def encode_labels(self, y):
        return np.searchsorted(self.classes, y)


def run(*args):
    return exit_status(lambda: app([*map(str, args)], standalone_mode=False))


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setitem(files.MODELS, "first-column", f"{__name__}:FirstColumn")
    save_model(FirstColumn(np.array(["no", "yes"])), tmp_path / "m")
    return tmp_path / "m"


@pytest.fixture
def store(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    with StoreWriter(tmp_path / "s", d=2, dtype="float32", chunk_rows=50) as writer:
        writer.append(Rows(X), np.where(X.sum(axis=1) > 0, "yes", "no"))
    return tmp_path / "s"


def test_predict_writes_labels(tmp_path, model, store, capfd):
    assert run("predict", "--model", model, "--store", store, "--out", tmp_path / "p.csv", "--decision", "--json") == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["n"] == 200
    assert err == ""
    header, *rows = (tmp_path / "p.csv").read_text().splitlines()
    assert header == "label,decision"
    assert [row.partition(",")[0] == "yes" for row in rows] == [float(row.partition(",")[2]) > 0 for row in rows]


@pytest.mark.parametrize("name", ["p.csv", "p.npy", "p.zarr"])
def test_what_is_there_is_replaced_by_force_alone(tmp_path, model, store, name, capfd):
    out = tmp_path / name
    out.write_text("mine")
    words = "predict", "--model", model, "--store", store, "--out", out
    assert run(*words) == 2
    assert f"--out {out}: found a file; --force replaces it" in capfd.readouterr().err
    assert out.read_text() == "mine"
    out.unlink()
    assert run(*words) == 0
    assert run(*words) == 2
    assert run(*words, "--force") == 0


def test_labels_on_a_terminal_come_without_bars(model, store, monkeypatch):
    with on_a_terminal(monkeypatch) as shown:
        assert run("predict", "--model", model, "--store", store) == 0
    header, *labels = shown().splitlines()
    assert header == "label"
    assert len(labels) == 200
    assert set(labels) == {"no", "yes"}


def test_evaluate_as_json_and_for_people(model, store, capfd):
    assert run("evaluate", "--model", model, "--store", store, "--json") == 0
    result = json.loads(capfd.readouterr().out)
    assert result["n"] == 200
    assert 0.5 < result["accuracy"] < 1
    assert 0.5 < result["roc_auc"] < 1
    assert result["seconds"] > 0
    assert run("evaluate", "--model", model, "--store", store) == 0
    out = capfd.readouterr().out
    for text in ("accuracy", "recall", "Confusion", "yes"):
        assert text in out


def test_a_store_for_a_model_and_the_reverse(tmp_path, model, store, capfd):
    out = tmp_path / "p.csv"
    assert run("predict", "--model", store, "--store", store, "--out", out) == 2
    assert "found a store of data, expected a model" in capfd.readouterr().err
    assert run("predict", "--model", model, "--store", model, "--out", out) == 2
    assert "found a model, expected a store of rows" in capfd.readouterr().err
    assert not out.exists()
