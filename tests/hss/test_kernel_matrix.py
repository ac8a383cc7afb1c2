"""Landmarks plus an HSS matrix, and its shifted inverse, against whole kernel matrices."""

from __future__ import annotations

import json

import numpy as np
import pytest
import reference
from hss.compressed import ANY_RANK, ENGINE, cancer, dense, rbf, relative, roll, tolerances
from pairwise import pairwise
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, MemoryLimitError
from streamsvm.hss.compress import HSSOptions, least_bytes
from streamsvm.hss.kernel_matrix import KernelMatrix, ShiftedKernel, approximate, estimated_errors, facts_of
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.inner import Linear, Poly
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.machine import MiB

LANDMARKS = 64
SMOOTH, NARROW = rbf(2.0), rbf(0.05)
KERNELS = {"rbf": rbf(1.0), "poly": Poly(0.1, 2, 1.0), "linear": Linear()}


def options(rtol: float = 1e-4, *, landmarks: int = LANDMARKS, single: bool = False, **wanted) -> HSSOptions:
    return HSSOptions(tolerances(rtol, **wanted), 32, 32, landmarks, single=single)


def made(kernel: Kernel, rows: Rows, **chosen) -> tuple[np.ndarray, KernelMatrix, np.ndarray]:
    """(order, matrix, the exact kernel matrix in that order)."""
    order, matrix = approximate(kernel, rows, options(**chosen), ENGINE)
    X = rows.take(order).X
    return order, matrix, reference.kernel_matrix(kernel, X, X)


def whole(matrix: KernelMatrix) -> np.ndarray:
    return dense(matrix.H) + matrix.Z.astype(np.float64) @ matrix.Z.T


def check_operations(matrix: KernelMatrix, beta: float, accuracy: float) -> ShiftedKernel:
    """Product and shifted solve, of vectors and matrices, are those of the dense form."""
    K, inverse = whole(matrix), matrix.shifted(beta, ENGINE)
    V = np.random.default_rng(0).normal(size=(len(K), 3))
    expected = {matrix.product: K @ V, inverse.solve: np.linalg.solve(K + beta * np.eye(len(K)), V)}
    for operation, result in expected.items():
        allowed = accuracy * np.abs(result).max()
        np.testing.assert_allclose(operation(V), result, rtol=0, atol=allowed)
        np.testing.assert_allclose(operation(V[:, 0]), result[:, 0], rtol=0, atol=allowed)
        np.testing.assert_array_equal(operation(V, 2), operation(V))
        assert operation(V).dtype == np.float64
    return inverse


@pytest.mark.parametrize(("kernel", "used"), [(SMOOTH, True), (NARROW, False)], ids=["smooth", "narrow"])
def test_landmarks_are_used_where_they_explain_much(kernel, used):
    _, matrix, _ = made(kernel, roll(), rtol=1e-2, definite=False)
    assert (matrix.explained > 0.5) == used == (matrix.Z.shape[1] > 0)
    _, without, _ = made(kernel, roll(), landmarks=0)
    assert without.Z.shape == (300, 0)
    assert without.explained == 0


def test_landmarks_leave_little_rank():
    with_landmarks, without = (
        made(SMOOTH, cancer(), rtol=1e-2, landmarks=landmarks, definite=False)[1] for landmarks in (64, 0)
    )
    K = made(SMOOTH, cancer(), landmarks=0)[2]
    assert relative(whole(with_landmarks) - K, K) < 0.2 * relative(whole(without) - K, K)


@pytest.mark.parametrize(
    ("kernel", "landmarks", "layout"),
    pairwise(KERNELS, [0, 16], [np.asarray, sparse.csr_array]),
)
def test_operations_of_every_kernel_and_layout(kernel, landmarks, layout):
    rows = Rows(layout(cancer(standard=True).X))
    order, matrix, K = made(KERNELS[kernel], rows, landmarks=landmarks)
    np.testing.assert_array_equal(np.sort(order), np.arange(len(rows)))
    assert relative(whole(matrix) - K, K) < 0.05
    check_operations(matrix, 10.0, 1e-4 if landmarks else 1e-10)


@pytest.mark.slow  # of many matrices
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_least_squares_errors_of_every_kernel(kernel):
    for rtol in (1e-2, 1e-4):
        _, matrix, K = made(kernel, cancer(standard=True), rtol=rtol, landmarks=0, definite=False)
        assert relative(whole(matrix) - K, K) < 10 * rtol


@pytest.mark.parametrize("landmarks", [0, LANDMARKS])
@pytest.mark.parametrize(("rtol", "max_rank"), [(0.9, ANY_RANK), (0.1, 1), (1e-2, ANY_RANK)])
def test_definite_with_and_without_landmarks(rtol, max_rank, landmarks):
    _, matrix, K = made(SMOOTH, cancer(), rtol=rtol, max_rank=max_rank, landmarks=landmarks)
    assert (matrix.Z.shape[1] > 0) == (landmarks > 0)
    assert np.linalg.eigvalsh(whole(matrix))[0] > -1e-5  # landmarks' features are float32
    check_operations(matrix, 1e-2, 1e-3)


@pytest.mark.slow  # of many matrices
@pytest.mark.parametrize(
    ("kernel", "rows"),
    [
        (KERNELS["linear"], cancer(standard=True)),
        (rbf(10.0), roll()),
        (rbf(1.0), cancer(10).take(np.repeat(np.arange(10), 20))),
    ],
    ids=["linear", "wide", "duplicates"],
)
def test_landmarks_that_explain_all(kernel, rows):
    """What is left is rounding, of either sign: definite bases must bear it."""
    _, matrix, K = made(kernel, rows)
    assert matrix.explained == pytest.approx(1, abs=1e-4)
    assert relative(whole(matrix) - K, K) < 1e-4
    matrix.shifted(1.0, ENGINE)


@pytest.mark.slow  # of many matrices
@pytest.mark.parametrize("landmarks", [0, 16])
def test_single_precision(landmarks):
    _, matrix, K = made(rbf(1.0), cancer(), single=True, landmarks=landmarks)
    assert relative(whole(matrix) - K, K) < 0.02
    inverse = check_operations(matrix, 1.0, 1e-4)
    _, double, _ = made(rbf(1.0), cancer(), landmarks=landmarks)
    assert matrix.nbytes < 0.6 * double.nbytes
    assert inverse.nbytes < 0.7 * double.shifted(1.0, ENGINE).nbytes


@pytest.mark.parametrize("n", [1, 2, 3, 32])
def test_few_rows_are_exact(n):
    _, matrix, K = made(rbf(1.0), cancer(n), rtol=0.9, landmarks=0)
    np.testing.assert_allclose(whole(matrix), K, atol=1e-14)
    check_operations(matrix, 0.5, 1e-10)


def test_an_indefinite_matrix_is_refused():
    _, matrix, _ = made(SMOOTH, cancer(), rtol=0.1, landmarks=0, definite=False)
    with pytest.raises(ConfigError, match=r"beta = 0\.001"):
        matrix.shifted(1e-3, ENGINE)
    check_operations(matrix, 100.0, 1e-10)


def test_threads_do_not_matter():
    V = np.random.default_rng(0).normal(size=300)
    results = []
    for threads in (1, 2):
        engine = Engine(threads)
        order, matrix = approximate(SMOOTH, roll(), options(1e-2), engine)
        results.append((order, matrix.product(V), matrix.shifted(1.0, engine).solve(V)))
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_limit_too_small_is_refused_at_once():
    n, checks = 300, []
    with pytest.raises(MemoryLimitError, match=r"100.0 MiB is too small.*300 rows \(before the first rank.*MiB"):
        approximate(SMOOTH, roll(n), options(), ENGINE, limit_bytes=100 * MiB, events=checks.append)
    assert checks == []
    leaf = n // 16
    assert least_bytes(n, options()) == n * (2 * leaf * 8 + 8 * 32 + 8 * LANDMARKS)


def test_a_limit_that_the_ranks_do_not_meet_is_refused_after_them(monkeypatch):
    """A process of constant size, so that only the bytes of the matrix count."""
    monkeypatch.setattr("streamsvm.hss.compress.process_bytes", lambda: 64 * MiB)
    wanted = options(1e-6, landmarks=0)
    limit = 64 * MiB + least_bytes(300, wanted) + 1
    with pytest.raises(MemoryLimitError, match=r"a mean rank of \d+ and a maximum of \d+.*about \d+ MiB"):
        approximate(rbf(0.5), cancer(), wanted, ENGINE, limit_bytes=limit)
    order, _ = approximate(rbf(0.5), cancer(), wanted, ENGINE, limit_bytes=limit + 64 * MiB)
    assert len(order) == 300


@pytest.mark.parametrize(("rtol", "definite"), [(1e-1, True), (1e-2, False), (1e-4, True)])
def test_estimated_errors_are_near_the_true_ones(rtol, definite):
    order, matrix, K = made(rbf(0.5), roll(), rtol=rtol, definite=definite, landmarks=0)
    inverse = matrix.shifted(10.0, ENGINE)
    errors = estimated_errors(rbf(0.5), roll().take(order), matrix, inverse, 0, 1)
    assert errors.keys() == {"product_error", "solve_error"}
    true = np.linalg.norm(whole(matrix) - K) / np.linalg.norm(K)  # random signs: the Frobenius norm
    assert true / 3 < errors["product_error"] < 3 * true
    assert errors["solve_error"] < 1e-12


@pytest.mark.parametrize("landmarks", [0, 16])
def test_facts_are_json(landmarks):
    _, matrix, _ = made(rbf(1.0), cancer(), landmarks=landmarks)
    facts = json.loads(json.dumps(facts_of(matrix)))
    assert facts["landmarks"] == matrix.Z.shape[1]
    assert facts["hss_bytes"] == matrix.nbytes
    assert [level["most"] for level in facts["hss_ranks"]] == [r.max() for r in matrix.H.ranks()]
