"""Divided fits whose rows are not held: what there is of each row lies in files; models are the same bit for bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import EARLY, config, labelled
from making import write
from scipy import sparse

from streamsvm.data import regroup
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import StorageError
from streamsvm.events import Event, Events, LevelSolved, Record, Warned, ignore
from streamsvm.fits.parts import EarlyPartitions
from streamsvm.fits.prepare import TrainingData
from streamsvm.models.files import load_model
from streamsvm.train import train

WAYS: dict[str, dict[str, Any]] = {
    "sparse": {},
    "several rounds of centres": {"part_rows": 25},
    "a metric each": {"part_metric": 1},
    "from the level below": {"levels": 2, "early_level": 1},
}


class Told:
    """What a fit says."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.levels = 0
        self.events = Events(self._tell)

    def _tell(self, record: Record[Event]) -> None:
        if isinstance(record.event, Warned):
            self.warnings.append(record.event.message)
        self.levels += isinstance(record.event, LevelSolved)


class Stop(Exception):
    """Instead of a kill."""


def store(folder: Path, k: int = 3, *, is_sparse: bool = False) -> Store:
    X, y = labelled(k)
    rows = Rows(sparse.csr_array(X)) if is_sparse else Rows(X)
    return write(folder / "s", rows, y, step=100, chunk_rows=128)


@pytest.fixture
def streamed(monkeypatch):
    """Makes a fit hold no rows, and read them in many blocks and files."""

    def now() -> None:
        monkeypatch.setattr("streamsvm.fits.divided.stay_in_memory", lambda *_: False)
        monkeypatch.setattr(Store, "blocks", lambda self: [(a, min(self.n, a + 128)) for a in range(0, self.n, 128)])
        monkeypatch.setattr(regroup, "SPOOL_BYTES", 1)

    return now


def fitted(there: Store, path: Path, *, run_dir: Path | None = None, **more: Any) -> Any:
    options = config("dcsvm early", checkpoint_every="1 steps", **more.pop("options", {}), dcsvm=EARLY | more)
    return partial(train, there, options, model_path=path, run_dir=run_dir)


def is_same(one: Path, two: Path) -> None:
    models = [load_model(path) for path in (one, two)]
    arrays = [model.to_state()[0] for model in models]
    assert arrays[0].keys() == arrays[1].keys()
    for name in arrays[0]:
        np.testing.assert_array_equal(np.asarray(arrays[0][name]), np.asarray(arrays[1][name]))
    assert models[0].header.certificate == models[1].header.certificate


@pytest.mark.parametrize("way", WAYS)
def test_the_model_is_that_of_held_rows(way, streamed, tmp_path):
    there = store(tmp_path, is_sparse=way == "sparse")
    fitted(there, tmp_path / "held", **WAYS[way], options={"holdout": 50})(events=ignore)
    streamed()
    fitted(there, tmp_path / "streamed", **WAYS[way], options={"holdout": 50})(events=ignore)
    is_same(tmp_path / "held", tmp_path / "streamed")


def test_nothing_of_each_row_is_in_memory(streamed, tmp_path, monkeypatch):
    there = store(tmp_path)
    streamed()
    monkeypatch.setattr(TrainingData, "dual_data", property(lambda self: pytest.fail("targets of all rows")))
    monkeypatch.setattr(Store, "y", property(lambda self: pytest.fail("labels of all rows")))
    fitted(there, tmp_path / "m", run_dir=tmp_path / "run")(events=ignore)
    assert not (tmp_path / "run" / "rows").exists()  # wanted no more


def stopped(fit: Any, parts: int) -> None:
    """A fit that ends once so many parts are solved."""
    add, done = EarlyPartitions.add, list[Any]()

    def stop(self: EarlyPartitions, *args: Any) -> None:
        if len(done) == parts:
            raise Stop
        done.append(add(self, *args))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EarlyPartitions, "add", stop)
        with pytest.raises(Stop):
            fit(events=ignore)


@pytest.mark.parametrize("way", ["streamed", "held", "a part is damaged", "the rows' parts are damaged"])
@pytest.mark.slow  # fits over files
def test_a_fit_that_was_killed_goes_on(way, streamed, tmp_path):
    """From the parts that are solved; what is damaged is made again, and said."""
    there, told = store(tmp_path), Told()
    fitted(there, tmp_path / "whole")(events=ignore)
    if way != "held":
        streamed()
    run_dir = tmp_path / "run"
    fit = fitted(there, tmp_path / "m", run_dir=run_dir)
    stopped(fit, 3)
    damaged = {"a part is damaged": "solved/0000001.npz", "the rows' parts are damaged": "level-1/parts/c/1"}
    if way in damaged:
        path = run_dir / "rows" / damaged[way]
        path.write_bytes(path.read_bytes()[:-20])
    fit(resume=True, events=told.events)
    is_same(tmp_path / "whole", tmp_path / "m")
    again = {"a part is damaged": "solved again", "the rows' parts are damaged": "divided again"}
    assert told.levels
    assert way not in again or any(again[way] in text for text in told.warnings)


@pytest.mark.parametrize("way", ["streamed", "held"])
def test_an_exact_fit_that_has_ended_may_be_resumed_without_its_partitions(way, streamed, tmp_path):
    """Also from a checkpoint before its end, as a kill between its model and its end on a full disk leaves."""
    there, places, told = store(tmp_path), {"model_path": tmp_path / "m", "run_dir": tmp_path / "run"}, Told()
    if way == "streamed":
        streamed()
    options = config("dcsvm", checkpoint_every="2 steps", dcsvm={"levels": 2, "part_rows": 60}, tol=1e-6)
    fit = partial(train, there, options, **places)
    first = fit(events=ignore)
    assert not (tmp_path / "run" / "rows").exists()
    assert fit(resume=True, events=told.events)["objective"] == first["objective"]
    max((tmp_path / "run").glob("state-*")).unlink()  # of the end
    assert told.warnings == []
    again = fit(resume=True, events=told.events)
    assert again["objective"] == pytest.approx(first["objective"], rel=1e-5)
    assert (["parts is missing; rows are divided again"] if way == "streamed" else []) == [
        text.rsplit("/")[-1] for text in told.warnings
    ]


@pytest.mark.parametrize("way", ["streamed", "held"])
@pytest.mark.parametrize("levels", [1, 2])
def test_an_early_fit_that_has_ended_is_made_again(levels, way, streamed, tmp_path):
    there, told = store(tmp_path), Told()
    if way == "streamed":
        streamed()
    fit = fitted(there, tmp_path / "m", run_dir=tmp_path / "run", levels=levels, early_level=1)
    fit(events=ignore)
    (tmp_path / "m").rename(tmp_path / "first")
    fit(resume=True, events=told.events)
    is_same(tmp_path / "first", tmp_path / "m")
    again = [text for text in told.warnings if text.endswith("parts is missing; rows are divided again")]
    assert len(again) == (way == "streamed")


def full_disk(monkeypatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("streamsvm.runs.checkpoints.write_arrays", full)


def test_a_full_disk_ends_no_run_in_memory(tmp_path, monkeypatch):
    there, told = store(tmp_path), Told()
    fitted(there, tmp_path / "whole")(events=ignore)
    full_disk(monkeypatch)
    fitted(there, tmp_path / "m", run_dir=tmp_path / "run")(events=told.events)
    [message] = [text for text in told.warnings if "part" in text]
    assert message.startswith("partition 0 could not be saved (")
    is_same(tmp_path / "whole", tmp_path / "m")


def test_a_full_disk_is_said_where_parts_are_left_in_files(streamed, tmp_path, monkeypatch):
    there = store(tmp_path)
    streamed()
    full_disk(monkeypatch)
    with pytest.raises(StorageError, match=r"npz failed: No space left on device"):
        fitted(there, tmp_path / "m", run_dir=tmp_path / "run")(events=ignore)
    assert not (tmp_path / "m").exists()
