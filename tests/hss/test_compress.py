"""Compression against whole matrices: errors follow the tolerance, few entries are asked for, ranks are bounded."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import reference
from hss.compressed import ANY_RANK, ENGINE, LEAF, cancer, compressed, dense, in_order, rbf, relative, roll, tolerances
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import pairwise

from streamsvm.errors import ConfigError
from streamsvm.hss.compress import row_interpolation
from streamsvm.hss.matrix import HSSMatrix
from streamsvm.parallel.engine import Engine

DATA = {"roll": roll, "cancer": cancer}
RTOLS = [1e-1, 1e-2, 1e-4, 1e-6, 1e-8]
SERIAL = Engine(1)


@cache
def case(name: str, h: float):
    """(rows in tree order, their kernel matrix)."""
    _, rows = in_order(DATA[name]())
    return rows, reference.kernel_matrix(rbf(h), rows.X, rows.X)


WIDTHS = [pytest.param(0.1, marks=pytest.mark.slow), 1, pytest.param(10, marks=pytest.mark.slow)]


def matrix(name: str, h: float, rtol: float = 1e-2, engine: Engine = ENGINE, **options) -> HSSMatrix:
    rows, K = case(name, h)
    chosen = {key: options.pop(key) for key in ("definite", "max_rank", "atol") if key in options}
    return compressed(rows, lambda a, b: K[np.ix_(a, b)], tolerances(rtol, **chosen), engine=engine, **options)


def errors(name: str, h: float, **options) -> list[float]:
    K = case(name, h)[1]
    return [relative(dense(matrix(name, h, rtol, **options)) - K, K) for rtol in RTOLS]


@pytest.mark.slow  # of many matrices
@pytest.mark.parametrize("h", WIDTHS)
@pytest.mark.parametrize("name", DATA)
def test_least_squares_error_follows_the_tolerance(name, h):
    product_errors = errors(name, h, definite=False)
    assert all(error <= 10 * rtol for error, rtol in zip(product_errors, RTOLS, strict=True)), product_errors
    assert all(later <= 3 * before for before, later in zip(product_errors, product_errors[1:], strict=False)), (
        product_errors
    )


@pytest.mark.slow  # of many matrices
@pytest.mark.parametrize("h", WIDTHS)
@pytest.mark.parametrize("name", DATA)
def test_definite_error_falls_with_the_tolerance(name, h):
    product_errors = errors(name, h, definite=True)
    assert all(error <= 2 * rtol**0.25 for error, rtol in zip(product_errors, RTOLS, strict=True)), product_errors
    assert all(later <= 1.5 * before for before, later in zip(product_errors, product_errors[1:], strict=False)), (
        product_errors
    )
    assert product_errors[-1] < product_errors[0] / 10


@pytest.mark.parametrize(
    ("name", "h", "accuracy"),
    pairwise(DATA, [0.1, 1, 10], [(0.9, ANY_RANK), (0.1, 1), (1e-2, ANY_RANK), (1e-8, 7)]),
)
def test_definite_at_every_tolerance(name, h, accuracy):
    found = dense(matrix(name, h, accuracy[0], max_rank=accuracy[1]))
    assert np.linalg.eigvalsh(found)[0] > -1e-12 * np.linalg.norm(found, 2)


@pytest.mark.parametrize("definite", [False, True])
def test_product_is_that_of_a_symmetric_matrix(definite):
    made = matrix("roll", 1, definite=definite)
    whole = dense(made)
    np.testing.assert_allclose(whole, whole.T, rtol=0, atol=1e-12)
    V = np.random.default_rng(0).normal(size=(len(whole), 3))
    np.testing.assert_allclose(made.product(V), whole @ V, atol=1e-10)
    np.testing.assert_allclose(made.product(V[:, 0]), whole @ V[:, 0], atol=1e-10)
    np.testing.assert_array_equal(made.product(V, threads=2), made.product(V))


def test_blocks_of_the_diagonal_are_exact():
    made, K = matrix("cancer", 1), case("cancer", 1)[1]
    for leaf in made.tree.level(made.tree.depth):
        here = slice(*made.tree.span(leaf))
        np.testing.assert_array_equal(made.D[leaf], K[here, here])
    assert dense(made).diagonal() == pytest.approx(np.ones(len(K)))


@pytest.mark.parametrize("n", [1, 2, 3, LEAF])
def test_one_leaf_is_exact(n):
    rows = cancer(n)
    K = reference.kernel_matrix(rbf(1), rows.X, rows.X)
    made = compressed(rows, lambda a, b: K[np.ix_(a, b)], tolerances(0.9))
    np.testing.assert_array_equal(dense(made), K)
    assert made.ranks() == []


@pytest.mark.parametrize("definite", [False, True])
def test_duplicates_have_the_rank_of_distinct_rows(definite):
    _, rows = in_order(cancer(10).take(np.repeat(np.arange(10), 20)))
    K = reference.kernel_matrix(rbf(1), rows.X, rows.X)
    made = compressed(rows, lambda a, b: K[np.ix_(a, b)], tolerances(1e-4, definite=definite))
    assert max(ranks.max() for ranks in made.ranks()) <= 10
    assert relative(dense(made) - K, K) < 1e-4


def test_few_entries_are_asked_for():
    n, entries_read = 1500, 0
    _, rows = in_order(roll(n))

    def entries(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        nonlocal entries_read
        entries_read += len(a) * len(b)
        return rbf(1).exact(rows.take(a), rows.take(b))

    made = compressed(rows, entries, tolerances(1e-2), engine=SERIAL)
    assert entries_read < n * n / 4
    assert made.nbytes < 8 * n * n / 30


def test_max_rank_is_kept_and_ranks_are_told_from_the_top():
    made = matrix("cancer", 1, 1e-8, max_rank=5)
    ranks = made.ranks()
    assert [len(level) for level in ranks] == [2**number for number in range(1, made.tree.depth + 1)]
    assert max(level.max() for level in ranks) == 5
    assert ranks[0].tolist() == [made.P[1].shape[1], made.P[2].shape[1]] == list(made.B[0].shape)


def test_absolute_tolerance_ends_bases():
    fine, coarse = (matrix("roll", 1, 1e-8, atol=atol) for atol in (0.0, 1e-3))
    assert coarse.nbytes < fine.nbytes
    K = case("roll", 1)[1]
    assert np.abs(dense(coarse) - K).max() < 0.1


def test_the_same_on_any_number_of_threads():
    one, two = matrix("cancer", 1, engine=SERIAL), matrix("cancer", 1)
    for name in "DPB":
        np.testing.assert_equal(getattr(one, name), getattr(two, name))


def test_levels_are_told_and_may_end_it():
    seen = []
    made = matrix("cancer", 1, on_level=lambda level, nbytes, ranks: seen.append((level, nbytes, ranks)))
    assert [level for level, _, _ in seen] == list(range(made.tree.depth, 0, -1))
    for (_, _, told), ranks in zip(seen[::-1], made.ranks(), strict=True):
        np.testing.assert_array_equal(told, ranks)
    sizes = [nbytes for _, nbytes, _ in seen]
    assert sizes == sorted(sizes)
    assert sizes[-1] + made.B[0].nbytes == made.nbytes

    def stop(level: int, nbytes: int, ranks: np.ndarray) -> None:
        raise MemoryError(f"level {level}")

    with pytest.raises(MemoryError, match=f"level {made.tree.depth}"):
        matrix("cancer", 1, on_level=stop)


def test_single_precision_is_kept():
    made = matrix("cancer", 1, dtype=np.float32)
    blocks = [*made.D.values(), *made.P.values(), *made.B.values()]
    assert {block.dtype for block in blocks} == {np.dtype(np.float32)}
    double = matrix("cancer", 1)
    assert 2 * made.nbytes == double.nbytes
    np.testing.assert_allclose(dense(made), dense(double), atol=1e-4)


def low_rank(m: int, s: int, rank: int, seed: int = 0) -> np.ndarray:
    """Rank `rank`, singular values falling by ten from one to the next."""
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(m, rank)) * 10.0 ** -np.arange(rank) @ rng.normal(size=(rank, s)) if rank else np.zeros((m, s))
    )


@settings(max_examples=60)
@given(
    m=st.integers(1, 30),
    s=st.integers(1, 60),
    rank=st.integers(0, 6),
    rtol=st.sampled_from([0.5, 1e-2, 1e-5, 1e-9]),
    max_rank=st.integers(1, 40),
)
def test_rows_follow_from_some_of_them(m, s, rank, rtol, max_rank):
    A = low_rank(m, s, rank)
    kept, P = row_interpolation(A, tolerances(rtol, max_rank=max_rank))
    assert 1 <= len(kept) <= min(max_rank, m, s, max(rank, 1))
    assert P.shape == (m, len(kept))
    np.testing.assert_array_equal(P[kept], np.eye(len(kept)))
    if len(kept) < max_rank:
        left = np.linalg.norm(A - P @ A[kept], axis=1)
        assert left.max() <= 2 * max(rtol, 1e-12) * np.linalg.norm(A, axis=1).max() * np.sqrt(m)


def test_gram_and_qr_choose_alike(monkeypatch):
    A = low_rank(40, 80, 6) + 1e-7 * low_rank(40, 80, 40, seed=1)
    kept, P = row_interpolation(A, tolerances(1e-3))
    monkeypatch.setattr("streamsvm.hss.compress.GRAM_RTOL", 1.0)
    kept_qr, P_qr = row_interpolation(A, tolerances(1e-3))
    np.testing.assert_array_equal(kept, kept_qr)
    np.testing.assert_allclose(P, P_qr, atol=1e-6)


@pytest.mark.parametrize(
    ("rtol", "size", "rows"),
    pairwise([1e-2, 1e-8], [0.0, 1e-319, 1e-200, 1e150], [slice(None), slice(1)]),
    ids=str,
)
def test_blocks_of_any_size_have_finite_bases(rtol, size, rows):
    """A narrow kernel's far blocks are zeros, or numbers too small to be squared or divided by."""
    A = np.zeros((18, 120))
    A[rows] = size * np.random.default_rng(0).random((18, 120))[rows]
    kept, P = row_interpolation(A, tolerances(rtol))
    assert np.all(np.isfinite(P))
    np.testing.assert_array_equal(P[kept], np.eye(len(kept)))


@pytest.mark.slow  # of many matrices
def test_a_fine_tolerance_sees_all_columns():
    """Draws with replacement, as many as there are columns, would leave some unseen."""
    assert errors("cancer", 1, definite=False)[-1] < 1e-10


def test_a_matrix_without_a_factor_is_an_error():
    """Else bases would come from a factor that LAPACK has not made."""
    rows = in_order(roll())[1]
    K = rbf(1.0).exact(rows, rows)
    K[7] = K[:, 7] = np.nan
    with pytest.raises(ConfigError, match="the kernel matrix cannot be compressed: that of .* rows is not positive"):
        compressed(rows, lambda a, b: K[np.ix_(a, b)], tolerances(1e-2, definite=True))
