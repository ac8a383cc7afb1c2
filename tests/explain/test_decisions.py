"""What decides about a row: the model's own decision values, and gradients by finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from explain.made import MEAN, SPREAD, SUMS, animals, made
from scipy import sparse

from streamsvm import ALFPGMSVC, ALFPGMSVR
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ModelError
from streamsvm.explain import decisions as module
from streamsvm.explain.decisions import Decision, answered, decisions, gradients
from streamsvm.kernels.distance import RBF

ROWS = Rows((np.random.default_rng(7).normal(size=(9, 4)) * SPREAD + MEAN).astype(np.float32))


def decided(model, rows):
    """(m,) g of each row."""
    scaled, out = model.header.scaling.apply(rows), np.empty(len(rows))
    for here, g in decisions(model, rows, answered(model, rows)[1]):
        out[here] = g.values(scaled.take(here))
    return out


@pytest.mark.parametrize("kind", SUMS)
class TestEveryModel:
    def test_of_two_classes_the_decision_value_decides(self, kind):
        model = made(kind, 2)
        np.testing.assert_allclose(decided(model, ROWS), model.decision_function(ROWS), atol=1e-4)

    def test_of_several_what_speaks_for_the_answer(self, kind):
        model = made(kind, 3)
        binary, codes = model.binary_decisions(ROWS), answered(model, ROWS)[1]
        assert (model.classes[codes] == model.predict(ROWS)).all()
        if model.is_pairwise:  # pairs (0, 1), (0, 2), (1, 2), positive for the second
            speaks = np.array([[-1, -1, 0], [1, 0, -1], [0, 1, 1]])[codes]
            expected = (binary * speaks).sum(axis=1)
        else:
            expected = binary[np.arange(len(codes)), codes]
        np.testing.assert_allclose(decided(model, ROWS), expected, atol=1e-4)

    @pytest.mark.parametrize("k", [2, 3])
    def test_gradients_are_those_of_finite_differences(self, kind, k):
        """Of raw features, through the scaling: by functions of float64 throughout."""
        model = made(kind, k)
        scaling, found, h = model.header.scaling, gradients(model, ROWS), 1e-5
        for here, g in decisions(model, ROWS, answered(model, ROWS)[1]):
            X = ROWS.X[here].astype(np.float64)
            for f in range(4):
                ahead, back = X.copy(), X.copy()
                ahead[:, f] += h * SPREAD[f]
                back[:, f] -= h * SPREAD[f]
                ends = [g.values(Rows((x - scaling.offset) * scaling.scale)) for x in (ahead, back)]
                expected = (ends[0] - ends[1]) / (2 * h * SPREAD[f])
                np.testing.assert_allclose(found[here, f] * SPREAD[f], expected * SPREAD[f], atol=1e-4)


@pytest.mark.parametrize("kernel", ["laplacian", "matern", "cauchy", "poly"])
def test_gradients_of_other_kernels(kernel):
    model, h = made("dcsvm", 2, name=kernel, gamma=0.5), 1e-5
    (here, g), *none = decisions(model, ROWS, np.zeros(len(ROWS), int))
    assert len(here) == len(ROWS)
    assert not none
    scaled = model.header.scaling.apply(ROWS).astype(np.float64)
    step = np.eye(4)[2] * h
    slope = (g.values(Rows(scaled.X + step)) - g.values(Rows(scaled.X - step))) / (2 * h)
    expected = slope * model.header.scaling.scale[2]
    np.testing.assert_allclose(gradients(model, ROWS)[:, 2], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["dcsvm", "cutting-plane"])
def test_sparse_rows_have_the_gradients_of_dense_ones(kind):
    dense, csr = made(kind, 2, scale="maxabs"), made(kind, 2, scale="maxabs", layout="csr")
    expected = gradients(dense, ROWS)
    found = gradients(csr, Rows(sparse.csr_array(ROWS.X)))
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2 * np.abs(expected).max())


class Mixing(Scaling):
    """Scaled rows have two columns, sums of the raw ones."""

    L = np.array([[1.0, 0.5], [0.0, 0.1], [2.0, 0.0], [0.0, 1.0]])

    def apply(self, rows):
        return Rows((rows.X - self.offset) @ self.L)

    def pull_back(self, gradients, rows):
        return gradients @ self.L.T


def test_gradients_are_of_raw_columns_where_scaling_mixes_them():
    scaling, rng, h = Mixing("none", np.zeros(4), np.ones(4)), np.random.default_rng(0), 1e-5
    support, coef, X = Rows(rng.normal(size=(6, 2))), rng.normal(size=6), rng.normal(size=(5, 4))
    g = Decision(RBF(0.3), scaling, support, coef, 0.0, coef[:, None], None, True)
    found = g.gradients(Rows(X))
    for f, step in enumerate(h * np.eye(4)):
        ends = [g.values(scaling.apply(Rows(x))) for x in (X + step, X - step)]
        np.testing.assert_allclose(found[:, f], (ends[0] - ends[1]) / (2 * h), atol=1e-8)


def test_tiles_change_nothing(monkeypatch):
    model = made("dcsvm", 3)
    whole = gradients(model, ROWS), decided(model, ROWS)
    monkeypatch.setattr(module, "TILE_ENTRIES", 40)
    np.testing.assert_allclose(gradients(model, ROWS), whole[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(decided(model, ROWS), whole[1], rtol=1e-9)


def test_of_a_regression_its_value():
    X, _ = animals(2)
    svr = ALFPGMSVR(gamma=0.5, C=10.0, scale="standard").fit(X, X[:, 0] * 3)
    np.testing.assert_allclose(decided(svr.model_, ROWS), svr.predict(ROWS.X), atol=1e-4)
    slope = gradients(svr.model_, Rows(MEAN[None]))[0]
    assert slope[0] == pytest.approx(3.0, abs=0.5)


def test_models_without_such_a_sum_are_refused():
    with pytest.raises(ModelError, match="combine = 'committee' asks all partitions about every row"):
        gradients(made("committee", 2), ROWS)
    K = np.eye(20)
    svm = ALFPGMSVC(kernel="precomputed").fit(K, np.arange(20) % 2)
    with pytest.raises(ModelError, match="the kernel is precomputed: .* has no features to explain"):
        gradients(svm.model_, Rows(K.astype(np.float32)))
