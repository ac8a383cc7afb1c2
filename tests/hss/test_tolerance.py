"""The error of a whole kernel matrix against rtol, by dense twins in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import reference
from hss.compressed import ANY_RANK, ENGINE, Elsewhere, cancer, dense, rbf, roll

from streamsvm.data.rows import Rows
from streamsvm.events import Events, Warned
from streamsvm.hss import kernel_matrix
from streamsvm.hss.compress import HSSOptions, Tolerances
from streamsvm.hss.kernel_matrix import KernelMatrix, approximate, facts_of

RTOLS = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5]
FORMS = {"fitted": (0, False), "definite": (0, True), "landmarks": (64, None)}


def options(rtol: float, form: str = "fitted", *, max_rank: int = ANY_RANK, seed: int = 0) -> HSSOptions:
    landmarks, definite = FORMS[form]
    return HSSOptions(Tolerances(rtol, None, max_rank, definite), 32, 32, landmarks, seed)


def whole(matrix: KernelMatrix) -> np.ndarray:
    return dense(matrix.H) + matrix.Z.astype(np.float64) @ matrix.Z.T


def made(rows: Rows, h: float, chosen: HSSOptions) -> tuple[KernelMatrix, np.ndarray, list[str]]:
    """The matrix, its error, and the warnings."""
    seen: list[str] = []

    def sink(record):
        if isinstance(record.event, Warned):
            seen.append(record.event.message)

    order, matrix = approximate(rbf(h), rows, chosen, ENGINE, events=Events(sink))
    X = rows.take(order).X
    return matrix, whole(matrix) - reference.kernel_matrix(rbf(h), X, X), seen


def check(rows: Rows, h: float, form: str, seed: int) -> None:
    for rtol in RTOLS:
        matrix, error, warnings = made(rows, h, options(rtol, form, seed=seed))
        norm = np.linalg.norm(whole(matrix) - error)
        found = float(np.linalg.norm(error)) / norm
        assert found <= 10 * rtol, (rtol, found)
        assert found <= 1.5 * rtol or warnings, (rtol, found)
        assert matrix.error is not None
        assert found / 3 - 1e-7 < matrix.error < 3 * found + 1e-6


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("h", [0.1, 1.0, 10.0])
def test_error_follows_the_tolerance(h, form):
    check(roll(600), h, form, 0)


@pytest.mark.parametrize(("h", "form"), [(0.3, "fitted"), (0.3, "landmarks"), (3.0, "definite")])
def test_error_follows_the_tolerance_on_real_rows(h, form):
    check(cancer(569), h, form, 0)


def test_a_definite_basis_that_rounding_limits_ends():
    """Near twins make K(J, J) singular to rounding: no finer basis is more accurate, and the error is told."""
    matrix, error, (warning,) = made(cancer(569), 0.3, options(1e-5, "definite"))
    assert np.linalg.norm(error) < 1e-3 * np.linalg.norm(whole(matrix))
    assert "take a larger rtol, or admm_hss.definite=false" in warning


def test_no_entry_is_wild():
    """A basis as wide as the sample of columns fits it exactly, and nothing else."""
    for seed in range(3):
        _, error, _ = made(cancer(569), 1.0, options(1e-4, seed=seed))
        assert np.abs(error).max() < 0.01


def test_an_error_that_cannot_be_reached_is_told():
    matrix, error, (warning,) = made(roll(600), 0.1, options(1e-4, max_rank=5))
    assert np.linalg.norm(error) > 1e-4 * np.linalg.norm(whole(matrix))
    assert "above admm_hss.rtol, 0.0001: ranks reach admm_hss.max_rank, 5; take a larger one" in warning
    assert facts_of(matrix)["hss_error"] == pytest.approx(matrix.error, rel=0.01)


def test_rounding_of_landmarks_is_told():
    matrix, _, (warning,) = made(cancer(569), 1.0, options(1e-7, "landmarks"))
    assert matrix.landmarks > 0
    assert "landmarks are rounded to float32" in warning


def test_a_coarse_matrix_is_made_again(monkeypatch):
    """If the tolerances of the bases are too large, finer ones follow."""
    monkeypatch.setattr(kernel_matrix, "BASIS_SHARE", 8.0)
    rows = roll(600)
    made_again, error, warnings = made(rows, 0.3, options(1e-3))
    assert warnings == []
    assert np.linalg.norm(error) <= 1.5e-3 * np.linalg.norm(whole(made_again) - error)
    monkeypatch.setattr(kernel_matrix, "ATTEMPTS", 1)
    _, coarse, (warning,) = made(rows, 0.3, options(1e-3))
    assert np.linalg.norm(coarse) > 1.5 * np.linalg.norm(error)
    assert "take a larger rtol" in warning


def test_a_given_atol_ends_bases_and_nothing_checks_them():
    chosen = options(1e-5)
    chosen = replace(chosen, tolerances=replace(chosen.tolerances, atol=0.1))
    matrix, _, warnings = made(roll(600), 0.3, chosen)
    assert matrix.error is None
    assert "hss_error" not in facts_of(matrix)
    assert warnings == []


def test_workers_reach_it_alike(monkeypatch):
    monkeypatch.setattr("streamsvm.hss.tree.SUBTREE_ROWS", 90)
    monkeypatch.setattr("streamsvm.hss.kernel_matrix.STRIP_ROWS", 32)
    monkeypatch.setattr(kernel_matrix, "BASIS_SHARE", 8.0)  # made again
    V = np.random.default_rng(0).normal(size=(300, 3))
    (_, here), (_, there) = (approximate(rbf(0.3), roll(), options(1e-3), e) for e in (ENGINE, Elsewhere()))
    assert there.held is not None
    assert facts_of(there) == facts_of(here)
    np.testing.assert_allclose(there.product(V), here.product(V), rtol=1e-9, atol=1e-11)
