"""Models: decisions by their formula, labels, and states that come back bit by bit."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import reference
from cases import SOLVERS, VARIANTS, WITHOUT_LABELS, config
from every_case import every_case
from pairwise import pairwise
from scipy import sparse

from streamsvm.data.labels import encode, label_texts
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ModelError
from streamsvm.models import LocalModel
from streamsvm.models.files import load_model, save_model
from streamsvm.tasks.pairs import vote
from streamsvm.train import train_in_memory

SCALED = {"dense": "standard", "csr": "maxabs", "uint8": "none"}  # layouts of rows, each with a scaling
KINDS = ["dcsvm", "dcsvm early", *VARIANTS, *WITHOUT_LABELS, "cutting-plane", "landmarks"]


def wrap(X: np.ndarray, layout: str) -> np.ndarray | sparse.csr_array:
    return sparse.csr_array(X) if layout == "csr" else X.astype(np.uint8) if layout == "uint8" else X


@cache
def trained(kind: str, layout: str, k: int, scale: str = "none") -> tuple[Any, Rows, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((300, 4)) < 0.7, rng.integers(0, 6, (300, 4)), 0).astype(np.float32)
    codes = (X[:, 0] > X[:, 1]).astype(int) + (k - 2) * (X[:, 2] > 3)
    y = np.array(["ant", "bee", "cat"])[codes]
    rows, kernel = Rows(wrap(X, layout)), {} if kind == "cutting-plane" else {"kernel": {"gamma": 0.2}}
    C = VARIANTS.get(kind, {}).get("C", 3.0)  # nu-SVC has none
    fit = config(kind, C=C, scale=scale, **kernel)
    return train_in_memory(Store.from_arrays(rows.X, y), fit)[0], rows, y


@pytest.mark.parametrize(("kind", "layout", "k"), pairwise(KINDS, SCALED, (2, 3)))
class TestSaved:
    def test_decisions_come_back_bit_by_bit(self, kind, layout, k, tmp_path):
        model, rows, _ = trained(kind, layout, k, SCALED[layout])
        save_model(model, tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        assert type(loaded) is type(model)
        np.testing.assert_array_equal(loaded.decision_function(rows), model.decision_function(rows))
        np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows))

    def test_state_comes_back_as_it_was(self, kind, layout, k):
        model, _, _ = trained(kind, layout, k, SCALED[layout])
        arrays, attrs = model.to_state()
        again, attrs_again = type(model).from_state(arrays, attrs).to_state()
        assert attrs_again == attrs
        assert set(again) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(again[name], array)


@pytest.mark.parametrize("scale", ["none", "minmax"])
@pytest.mark.parametrize("kind", ["dcsvm", "dcsvm early", "one learner", "cutting-plane"])
def test_other_scalings_come_back(kind, scale, tmp_path):
    model, rows, _ = trained(kind, "dense", 2, scale)
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(rows), model.decision_function(rows))


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("k", [2, 3])
def test_decisions_are_the_kernel_expansion(layout, k):
    model, rows, _ = trained("dcsvm", layout, k)
    K = reference.kernel_matrix(model.header.kernel, rows.X, model.support.X)
    pairs = reference.pair_decisions(K, model.alpha, model.codes, k)
    expected = pairs[:, 0] if k == 2 else vote(pairs, k)
    np.testing.assert_allclose(model.decision_function(rows), expected, atol=1e-4)


def test_support_rows_are_those_of_the_store():
    model, rows, y = trained("dcsvm", "dense", 3)
    np.testing.assert_array_equal(rows.X[model.ids], model.support.X)
    np.testing.assert_array_equal(model.classes[model.codes], y[model.ids])


@pytest.mark.parametrize("kind", sorted({*KINDS} - {*WITHOUT_LABELS, "several labels, early"}))
def test_labels_follow_from_decisions(kind):
    two, three = trained(kind, "dense", 2)[0], trained(kind, "dense", 3)[0]
    assert two.labels(np.array([-0.1, 0.0, 0.1])).tolist() == ["ant", "ant", "bee"]
    assert three.labels(np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 2.0]])).tolist() == ["cat", "ant"]


@pytest.mark.parametrize("kind", ["dcsvm early", "kernel k-means"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_local_rows_do_not_depend_on_their_company(kind, layout):
    model, rows, _ = trained(kind, layout, 2)
    assert isinstance(model, LocalModel)
    order = np.random.default_rng(0).permutation(len(rows))
    whole = model.decision_function(rows)
    np.testing.assert_allclose(model.decision_function(rows.take(order)), whole[order], atol=1e-5)
    np.testing.assert_allclose(model.decision_function(rows.take(slice(7, 8))), whole[7:8], atol=1e-5)
    assert model.decision_function(rows.take(slice(0, 0))).shape == (0,)


@pytest.mark.parametrize("combine", ["naive", "committee"])
def test_no_rows_no_decisions(combine):
    model, rows, _ = trained("committee", "dense", 3)
    local = LocalModel(model.header, model.partition, model.bounds, model.present, model.arrays, combine)
    assert local.decision_function(rows.take(slice(0, 0))).shape == (0, 3)


@every_case(
    ("y", "classes", "codes"),
    [
        (np.array([3, 1, 9]), np.array([1, 3]), [1, 0, -1]),
        (np.array([3.0, 1.0]), np.array([1, 3]), [1, 0]),
        (np.array(["3", "1", "x"]), np.array([1, 3]), [1, 0, -1]),
        (np.array([10, 9]), np.array(["10", "9"]), [0, 1]),
        (np.array(["b", "a", ""]), np.array(["a", "b"]), [1, 0, -1]),
    ],
)
def test_codes_of_labels(y, classes, codes):
    assert encode(y, classes).tolist() == codes


def test_whole_floats_are_written_as_integers():
    assert label_texts(np.array([1.0, -2.0])).tolist() == ["1", "-2"]
    assert label_texts(np.array([1.5, 2.0])).tolist() == ["1.5", "2.0"]


@pytest.mark.parametrize(("name", "k"), [*product(SOLVERS | VARIANTS | WITHOUT_LABELS, [3]), *product(SOLVERS, [2])])
def test_every_model_says_what_its_decisions_are_made_of(name, k):
    """Sums over support rows, or the mean of those of the parts that a row is sent to; else why it has none."""
    model, rows, _ = trained(name, "dense", k, "maxabs")
    if name == "committee":
        with pytest.raises(ModelError, match="asks all partitions about every row"):
            model.as_routes()
        return
    expected, routes = model.binary_decisions(rows), model.as_routes()
    if routes is None:
        made = model.as_expansion()
        decisions = made.kernel.apply(made.scaling.apply(rows), made.support, made.coef) + made.intercept
    else:
        with pytest.raises(ModelError, match="each (partition|region) decides for its own rows"):
            model.as_expansion()
        decisions = np.zeros_like(expected)
        for i, parts in enumerate(routes.partition.nearest(routes.scaling.apply(rows), routes.neighbours)):
            row = routes.scaling.apply(rows.take(slice(i, i + 1)))
            sums = [routes.kernel.apply(row, *routes.part(p))[0] + routes.intercept[p] for p in parts]
            decisions[i] = np.mean(sums, axis=0)
    np.testing.assert_allclose(decisions, expected, atol=1e-4 * np.abs(expected).max())
