"""Memory plans: under the limit, monotone, and honest about the least that works."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.data.metric import Metric
from streamsvm.data.samples import SamplesInStore
from streamsvm.data.scaling import Scaling
from streamsvm.errors import MemoryLimitError
from streamsvm.fits.divided import LEAST_ROWS, plan_memory
from streamsvm.parallel import machine
from streamsvm.parallel.machine import WORKER_BYTES, MiB

GiB = 1 << 30


def samples(n: int, d: int, dtype: str = "float32") -> SamplesInStore:
    kind = np.dtype(dtype)
    store: Any = SimpleNamespace(n=n, d=d, dtype=kind, is_sparse=False, nbytes=n * d * kind.itemsize)
    return SamplesInStore(store, Scaling.none(d))


@pytest.fixture(autouse=True)
def small_process(monkeypatch):
    """The process counts as 200 MiB, whatever other tests have loaded."""
    monkeypatch.setattr(psutil.Process, "memory_info", lambda self: SimpleNamespace(rss=200 * MiB))


def test_small_data_stays_in_memory_and_large_does_not():
    assert plan_memory(samples(10_000, 50), 1, 4 * GiB, 2, cache_bytes=0).in_memory
    assert not plan_memory(samples(50_000_000, 50), 1, 4 * GiB, 2, cache_bytes=0).in_memory


@settings(max_examples=3 * settings.default.max_examples)
@given(
    n=st.integers(1, 10**8),
    d=st.integers(1, 5000),
    dtype=st.sampled_from(["uint8", "float32", "float64"]),
    limit=st.integers(300 * MiB, 64 * GiB),
    threads=st.integers(1, 16),
    columns=st.integers(1, 9),
    cache=st.integers(0, 8 * GiB),
)
def test_parts_of_all_threads_fit_under_the_limit(n, d, dtype, limit, threads, columns, cache):
    """Or the error names a limit under which they do."""
    facts, raw = samples(n, d, dtype), dtype == "uint8"
    try:
        plan = plan_memory(facts, columns, limit, threads, cache_bytes=cache)
    except MemoryLimitError as error:
        least = int(re.search(r"at least (\d+) MiB", str(error))[1]) * MiB
        assert least > limit
        plan = plan_memory(facts, columns, least, threads, cache_bytes=cache)
        limit = least
    row = d * (1 if raw else 4)
    held = plan.process_bytes + plan.vector_bytes + (plan.rows_bytes if plan.in_memory else 0)
    assert 1 <= plan.threads <= threads
    assert plan.max_part_rows >= LEAST_ROWS
    held += plan.cache_bytes
    assert plan.cache_bytes <= cache
    assert held + plan.threads * plan.max_part_rows * 2 * row <= limit


def test_more_memory_never_means_smaller_parts_on_disk():
    facts = samples(50_000_000, 100)
    rows = [plan_memory(facts, 1, gib * GiB, 2, cache_bytes=0).max_part_rows for gib in (3, 4, 6, 8)]
    assert rows == sorted(rows)


def test_a_tight_limit_takes_threads_away_before_it_fails():
    facts = samples(1_000_000, 784)
    plans = [plan_memory(facts, 1, limit * MiB, 8, cache_bytes=0).threads for limit in (500, 700, 1000, 4000)]
    assert plans == sorted(plans)
    assert plans[0] < 8


def test_a_worker_has_its_memory_however_much_the_leading_process_holds(monkeypatch):
    facts, options = samples(900, 50), {"cache_bytes": 0, "on_worker": True}
    small = plan_memory(facts, 1, 2 * GiB, 1, **options)
    monkeypatch.setattr("streamsvm.fits.divided.process_bytes", lambda: 5 * GiB // 2)
    assert plan_memory(facts, 1, 2 * GiB, 1, **options) == small
    assert small.process_bytes == WORKER_BYTES
    assert small.max_part_rows > 900
    with pytest.raises(MemoryLimitError, match=r"a memory limit of 2.0 GiB is too small for 900 rows"):
        plan_memory(facts, 1, 2 * GiB, 1, cache_bytes=0)


def test_without_a_limit_it_is_the_process_s_memory_and_what_is_free(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10 * GiB))
    monkeypatch.setattr(machine, "rss_bytes", lambda: GiB)
    assert plan_memory(samples(1000, 10), 1, None, 2, cache_bytes=0).limit_bytes == 9 * GiB


def test_rows_of_fewer_columns_under_a_metric_take_less():
    wide = samples(1_000_000, 50)
    narrow = SamplesInStore(wide.store, wide.scaling.under(Metric(np.arange(50.0) < 10)))
    plans = [plan_memory(rows, 1, 4 * GiB, 2, cache_bytes=0) for rows in (wide, narrow)]
    assert plans[1].rows_bytes == plans[0].rows_bytes / 5
    assert plans[1].max_part_rows > 2 * plans[0].max_part_rows


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_one_more_copy_of_a_parts_rows_makes_parts_smaller(dtype):
    plan = plan_memory(samples(50_000_000, 100, dtype), 1, 3 * GiB, 2, cache_bytes=0)
    assert plan.part_rows() == plan.max_part_rows
    assert plan.part_rows(4) * 4 <= plan.max_part_rows * 3 < (plan.part_rows(4) + 1) * 4
