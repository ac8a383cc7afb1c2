"""Plans make no pass: what a store keeps tells of its rows, else some of them do, and the plan says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from cases import config
from making import samples

from streamsvm.cli.app import app, exit_status
from streamsvm.data import sketch
from streamsvm.data.sketch import sketched
from streamsvm.data.statistics import moments_of
from streamsvm.data.store import Store
from streamsvm.data.writer import StoreWriter
from streamsvm.errors import ConfigError
from streamsvm.train import plan

CHANGING = {"process_bytes": 0, "max_part_rows": 0}  # with what the process holds already
N, CHUNK = 20_000, 1_000


@pytest.fixture
def url(tmp_path, monkeypatch):
    """A store as ingest leaves one, but for small chunks of labels."""
    monkeypatch.setattr("streamsvm.data.columns.COLUMN_CHUNK", 500)
    X, rng = samples(N, 6, seed=3), np.random.default_rng(1)
    with StoreWriter(tmp_path / "store", d=6, dtype=np.float32, chunk_rows=CHUNK) as out:
        out.append(X, rng.choice(["a", "b", "c"], N, p=[0.5, 0.3, 0.2]))
        out.statistics = moments_of(X)
    return tmp_path / "store"


def without_chunks(url: Path, *, first: bool) -> Store:
    for path in [*url.glob("X/c/*"), *url.glob("y/c/*")]:
        if not first or "X" not in path.parts or path.name != "0":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return Store.open(url)


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_what_a_store_keeps_is_all_that_a_plan_needs(url, scale):
    options = config("dcsvm", scale=scale, class_weight="balanced", memory_limit="8GiB", holdout=100)
    expected = plan(Store.open(url), options)
    assert "guessed" not in expected
    with pytest.raises(ConfigError, match="holdout is 10001"):
        plan(Store.open(url), options.model_copy(update={"holdout": N // 2 + 1}))
    planned = plan(without_chunks(url, first=True), options)
    assert planned | CHANGING == expected | CHANGING
    planned = plan(without_chunks(url, first=False), options)
    assert "the first rows are not known" in planned.pop("guessed")
    assert set(planned) == set(expected)


def test_where_nothing_is_kept_some_rows_tell(url, monkeypatch):
    shutil.rmtree(url / "statistics")
    store = Store.open(url)
    whole, exact = sketched(store), store.count_labels()
    np.testing.assert_allclose(whole.moments.mean, moments_of(store.read(0, N)).mean)
    assert whole.guessed == []
    monkeypatch.setattr(sketch, "SAMPLE_BYTES", 4 * CHUNK * 24)
    monkeypatch.setattr("streamsvm.data.sources.CHUNK_BYTES", CHUNK * 24)
    monkeypatch.setattr(sketch, "LABEL_BLOCKS", 4)
    monkeypatch.setattr("streamsvm.data.columns.PIECE_ROWS", 1)
    some = sketched(Store.open(url))
    assert some.classes.values.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(some.classes.counts, exact.counts, rtol=0.15)
    assert abs(some.classes.counts.sum() - N) <= 3
    np.testing.assert_allclose(some.moments.mean, whole.moments.mean, rtol=0.1)
    assert some.guessed == [
        "classes are those of 2,000 of 20,000 rows",
        "columns are measured by 4,000 of 20,000 rows",
    ]


def test_a_billion_rows_are_planned_of_metadata_alone(tmp_path, capfd):
    """Of a store that another program has described: two classes are assumed."""
    group = zarr.create_group(tmp_path / "rows")
    group.create_array("X", shape=(10**9, 128), chunks=(8192, 128), dtype="float32")
    group.create_array("y", shape=(10**9,), chunks=(1 << 16,), dtype="int64")
    words = ["fit", "--store", str(tmp_path / "rows"), "--solver", "bsgd", "--no-search", "--dry-run"]
    words += ["--memory-limit", "8GiB", "--json"]
    assert exit_status(lambda: app(words, standalone_mode=False)) == 0
    out, err = capfd.readouterr()
    assert '"n": 1000000000' in out
    assert "two classes are assumed: array 'y': chunk 0" in out
    assert err.startswith("warning: small fits could not estimate the time: array 'y': chunk")
