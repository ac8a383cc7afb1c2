"""`predict_interval` of regressors: there where it is asked for, and the model's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from streamsvm import ALFPGMSVR, DCSVR, HSSSVR, BudgetedSVR, CuttingPlaneSVR, load_model
from streamsvm.errors import ModelError
from streamsvm.online import BSGDRegressor

SMALL = {"gamma": 0.5, "scale": "standard"}
ESTIMATORS = {
    "exact": DCSVR(**SMALL, random_state=0),
    "early": DCSVR(**SMALL, random_state=0, early=True, levels=1, part_rows=100),
    "many pairs": ALFPGMSVR(**SMALL, C=10),
    "budgeted": BudgetedSVR(**SMALL, budget=40, random_state=0),
    "compressed": HSSSVR(**SMALL, polish=1000, random_state=0),
    "planes": CuttingPlaneSVR(scale="standard"),
}


def curve(n: int = 500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, 10 * np.sin(X[:, 0]) + rng.normal(size=n)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_intervals_are_those_of_the_model(name, tmp_path):
    da = pytest.importorskip("dask.array")
    X, y = curve()
    svm = clone(ESTIMATORS[name]).set_params(interval=0.9).fit(X[:400], y[:400])
    found = svm.predict_interval(X[400:])
    assert found.shape == (100, 2)
    np.testing.assert_allclose(found.mean(axis=1), svm.predict(X[400:]))
    assert 0.75 <= np.mean((found[:, 0] <= y[400:]) & (y[400:] <= found[:, 1])) <= 1
    narrow = svm.predict_interval(X[400:], level=0.5)
    assert np.all(np.ptp(narrow, axis=1) < np.ptp(found, axis=1))
    svm.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict_interval(X[400:], 0.5), narrow)
    lazy = svm.predict_interval(da.from_array(X[400:], (30, 3)))
    np.testing.assert_allclose(lazy.compute(), found, rtol=1e-6)
    with pytest.raises(ModelError, match=r"interval is 0\.999, which needs 999 held-out rows"):
        svm.predict_interval(X, 0.999)


def test_what_learns_on_drops_its_intervals():
    X, y = curve()
    model = clone(ESTIMATORS["budgeted"]).set_params(interval=0.9, scale="none").fit(X, y).model_
    assert model.intervals is not None
    online = BSGDRegressor.from_model(model)
    online.learn_one(dict(zip("012", X[0].tolist(), strict=True)), float(y[0]))
    assert online.to_model().intervals is None


def test_river_wraps_learners_in_intervals_of_its_own():
    conf = pytest.importorskip("river.conf", reason="an extra")
    wrapped = conf.RegressionJackknife(BSGDRegressor(budget=30), confidence_level=0.9)
    X, y = curve()
    inside = 0
    for i, (row, target) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        x = dict(zip("012", row, strict=True))
        inside += i >= 100 and target in wrapped.predict_one(x, with_interval=True)
        wrapped.learn_one(x, target)
    assert 0.8 < inside / 400 < 0.99


@pytest.mark.parametrize("name", ESTIMATORS)
def test_without_an_interval_there_are_none(name):
    X, y = curve(120)
    svm = clone(ESTIMATORS[name]).fit(X, y)
    assert not hasattr(svm, "predict_interval")
    with pytest.raises(ModelError, match="the model has no intervals: `streamsvm fit --task regress --interval"):
        svm.model_.predict_interval(X)
    with pytest.raises(ValueError, match=r"interval: found 1\.5, expected less than 1"):
        clone(svm).set_params(interval=1.5).fit(X, y)
