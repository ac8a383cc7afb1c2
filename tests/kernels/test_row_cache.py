"""The row cache: whatever is kept, evicted or narrowed, products and blocks are those of the kernel."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF
from streamsvm.kernels.row_cache import LEAST_ROWS, WIDE, RowCache
from streamsvm.problems.dual import KernelDual

N = 700


def problem(cache_rows: int, threads: int = 1) -> KernelDual:
    rng = np.random.default_rng(0)
    y = np.where(rng.random(N) < 0.5, 1.0, -1.0)
    rows = Rows(rng.normal(size=(N, 2 * WIDE)).astype(np.float32))
    return KernelDual(RBF(1 / WIDE), rows, y, np.ones(N), threads, cache_bytes=cache_rows * N * 4)


@settings(max_examples=settings.default.max_examples // 4)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, LEAST_ROWS, LEAST_ROWS + 100, N]), st.sampled_from([1, 2]))
def test_rounds_of_products_and_blocks_are_those_without_a_cache(seed, cache_rows, threads):
    """Working sets, narrowed active sets and their end, as the block solver asks for them."""
    rng = np.random.default_rng(seed)
    cached, plain = problem(cache_rows, threads), problem(0)
    active = None
    for _ in range(12):
        choice = rng.random()
        if choice < 0.15:
            active = None
        elif choice < 0.4:
            active = np.flatnonzero(rng.random(N) < 0.8) if active is None else active[rng.random(len(active)) < 0.8]
        among = np.arange(N) if active is None else active
        ids = rng.choice(among, min(len(among), int(rng.integers(1, 400))), replace=False)
        np.testing.assert_allclose(cached.gram(ids).copy(), plain.gram(ids), atol=4e-6)
        delta = rng.normal(size=len(ids))
        np.testing.assert_allclose(cached.apply(ids, delta, active), plain.apply(ids, delta, active), atol=1e-4)


def test_rows_used_longest_ago_make_room():
    cache = RowCache(N, 4 * N * 300)
    assert cache.capacity == 300
    cache.find(np.arange(200))
    cache.admit(np.arange(200))
    cache.find(np.arange(100))  # 100 to 199 are the older ones now
    cache.find(np.arange(300, 450))
    cache.admit(np.arange(300, 450))
    cached = cache.find(np.arange(N)) >= 0
    assert cached[:100].all()
    assert cached[300:450].all()
    assert np.count_nonzero(cached) == 300


def test_no_more_rows_are_admitted_than_fit():
    cache = RowCache(N, 4 * N * 300)
    cache.find(np.arange(500))
    places = cache.admit(np.arange(500))
    assert np.count_nonzero(places >= 0) == 300
    assert np.array_equal(cache.find(np.arange(500)), places)


def test_few_rows_have_no_more_places_than_there_are():
    """Each round looks through all of them."""
    cache = RowCache(10, 1 << 30)
    cache.focus(None)
    assert cache.capacity == 10
