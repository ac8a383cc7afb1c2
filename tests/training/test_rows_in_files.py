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
from streamsvm.models.files import load_model
from streamsvm.train import train
from streamsvm.training.early import EarlyParts
from streamsvm.training.prepare import Prepared

WAYS: dict[str, dict[str, Any]] = {
    "sparse": {},
    "several rounds of centres": {"part_rows": 25},
    "a metric each": {"part_metric": 1},
    "from the level below": {"levels": 2, "early_level": 1},
}


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
        monkeypatch.setattr("streamsvm.training.memory_plan.stay_in_memory", lambda *_: False)
        monkeypatch.setattr(
            Store, "blocks", lambda self: [(a, min(self.n, a + 128)) for a in range(0, self.n, 128)]
        )
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
    monkeypatch.setattr(Prepared, "all_asked", property(lambda self: pytest.fail("targets of all rows")))
    monkeypatch.setattr(Store, "y", property(lambda self: pytest.fail("labels of all rows")))
    fitted(there, tmp_path / "m", run_dir=tmp_path / "run")(events=ignore)
    assert not (tmp_path / "run" / "rows").exists()  # wanted no more


def stopped(fit: Any, parts: int) -> None:
    """A fit that ends once so many parts are solved."""
    add, done = EarlyParts.add, list[Any]()

    def stop(self: EarlyParts, *args: Any) -> None:
        if len(done) == parts:
            raise Stop
        done.append(add(self, *args))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EarlyParts, "add", stop)
        with pytest.raises(Stop):
            fit(events=ignore)


@pytest.mark.parametrize("way", ["streamed", "held", "a part is damaged", "the rows' parts are damaged"])
@pytest.mark.slow  # fits over files
def test_a_fit_that_was_killed_goes_on(way, streamed, tmp_path):
    """From the parts that are solved; what is damaged is made again, and said."""
    there, told = store(tmp_path), list[str]()
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

    def tell(record: Record[Event]) -> None:
        if isinstance(record.event, Warned):
            told.append(record.event.message)
        if isinstance(record.event, LevelSolved):
            told.append("level")

    fit(resume=True, events=Events(tell))
    is_same(tmp_path / "whole", tmp_path / "m")
    again = {"a part is damaged": "solved again", "the rows' parts are damaged": "divided again"}
    assert any(again.get(way, "level") in text for text in told)


def test_an_exact_fit_that_has_ended_may_be_resumed_without_its_partitions(streamed, tmp_path):
    there, places = store(tmp_path), {"model_path": tmp_path / "m", "run_dir": tmp_path / "run"}
    streamed()
    options = config("dcsvm", checkpoint_every="1 steps", dcsvm={"levels": 2, "part_rows": 60})
    reports = [train(there, options, **places, resume=resume, events=ignore) for resume in (False, True)]
    assert not (tmp_path / "run" / "rows" / "level-2").exists()
    assert reports[0]["objective"] == reports[1]["objective"]


def full_disk(monkeypatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("streamsvm.runs.part_log.write_arrays", full)


def test_a_full_disk_ends_no_run_in_memory(tmp_path, monkeypatch):
    there, told = store(tmp_path), list[str]()
    fitted(there, tmp_path / "whole")(events=ignore)
    full_disk(monkeypatch)
    run_dir = tmp_path / "run"

    def tell(record: Record[Event]) -> None:
        if isinstance(record.event, Warned):
            told.append(record.event.message)

    fitted(there, tmp_path / "m", run_dir=run_dir)(events=Events(tell))
    [message] = [text for text in told if "part" in text]
    assert message.startswith("partition 0 could not be saved (")
    is_same(tmp_path / "whole", tmp_path / "m")


def test_a_full_disk_is_said_where_parts_are_left_in_files(streamed, tmp_path, monkeypatch):
    there = store(tmp_path)
    streamed()
    full_disk(monkeypatch)
    with pytest.raises(StorageError, match=r"npz failed: No space left on device"):
        fitted(there, tmp_path / "m", run_dir=tmp_path / "run")(events=ignore)
    assert not (tmp_path / "m").exists()
