"""Linear fits: nothing of each row is held between passes, nor kept; models are the same bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import config, labelled
from making import refuse_whole_columns

from streamsvm.data import cache
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.data.writer import StoreWriter
from streamsvm.events import ignore
from streamsvm.fits.cutting_plane import CuttingPlaneFit
from streamsvm.fits.prepare import TrainingData
from streamsvm.models.files import load_model
from streamsvm.runs.checkpoints import read_state
from streamsvm.train import plan, train


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Of three classes, in many blocks."""
    monkeypatch.setattr(cache, "PASS_BYTES", 1)
    monkeypatch.setattr(Store, "blocks", lambda self, _=0: [(a, min(self.n, a + 96)) for a in range(0, self.n, 96)])
    X, y = labelled(3)
    weight = np.arange(1, len(y) + 1) / len(y)
    with StoreWriter(tmp_path / "s", d=X.shape[1], dtype=X.dtype, chunk_rows=128) as writer:
        writer.append(Rows(X), y, sample_weight=weight)
    return Store.open(tmp_path / "s")


def coefficients(path: Path) -> np.ndarray:
    model = load_model(path)
    return np.vstack([model.coef, model.intercept])


@pytest.mark.parametrize("name", ["cutting-plane", "landmarks"])
def test_nothing_of_each_row_is_held_or_kept(name, store, tmp_path, monkeypatch):
    """Rows, codes and bounds that memory has no room for come from scratch files."""
    train(store, config(name), model_path=tmp_path / "held", events=ignore)
    monkeypatch.setattr(CuttingPlaneFit, "_cache_bytes", lambda self: 0)
    monkeypatch.setattr(TrainingData, "dual_data", property(lambda self: pytest.fail("targets of all rows")))
    refuse_whole_columns(monkeypatch)
    options, run_dir = config(name, checkpoint_every="1 steps"), tmp_path / "run"
    report = train(store, options, model_path=tmp_path / "m", run_dir=run_dir, events=ignore)
    np.testing.assert_array_equal(coefficients(tmp_path / "m"), coefficients(tmp_path / "held"))
    last = read_state(max(run_dir.glob("state-*.npz")))
    assert len(last["b"]) == report["planes"]
    assert len(last["f"]) == 0


def test_the_plan_knows_of_no_vectors(store):
    assert plan(store, config("cutting-plane"))["vector_bytes"] == 0
    ranks = config("cutting-plane", task="ordinal")
    assert plan(store, ranks)["vector_bytes"] > 100 * store.n
