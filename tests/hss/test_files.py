"""A factorisation comes back bit by bit, and one that is not whole is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from every_case import every_case
from hss.compressed import ENGINE, cancer, rbf, tolerances

from streamsvm.errors import CorruptDataError, ModelError, StreamSVMError
from streamsvm.hss.compress import HSSOptions
from streamsvm.hss.files import Factorisation
from streamsvm.hss.kernel_matrix import approximate, facts_of
from streamsvm.models.files import load_factorisation, load_model, save_model

BETA = 0.5


def factorisation(n: int = 100, *, landmarks: int = 16, single: bool = False) -> Factorisation:
    options = HSSOptions(tolerances(1e-2), 32, landmarks=landmarks, single=single)
    order, matrix = approximate(rbf(2.0), cancer(n), options, ENGINE)
    return Factorisation(order, matrix, matrix.shifted(BETA, ENGINE), "the key")


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(("n", "landmarks"), [(100, 0), (100, 16), (300, 16), (20, 0), (1, 0)])
def test_round_trip(tmp_path, n, landmarks, single):
    made = factorisation(n, landmarks=landmarks, single=single)
    save_model(made, tmp_path / "factor")
    loaded = load_factorisation(tmp_path / "factor")
    assert isinstance(loaded, Factorisation)
    assert loaded.key == "the key"
    assert loaded.inverse.beta == BETA
    assert facts_of(loaded.matrix) == facts_of(made.matrix)
    np.testing.assert_array_equal(loaded.order, made.order)
    for V in (np.random.default_rng(0).normal(size=(n, 3)), np.ones(n)):
        np.testing.assert_array_equal(loaded.matrix.product(V), made.matrix.product(V))
        np.testing.assert_array_equal(loaded.inverse.solve(V), made.inverse.solve(V))
    again = loaded.matrix.shifted(2 * BETA, ENGINE).solve(V)
    np.testing.assert_array_equal(again, made.matrix.shifted(2 * BETA, ENGINE).solve(V))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "factor"
    save_model(factorisation(), path)
    return path


@every_case("name", sorted(factorisation().to_state()[0]))
def test_a_shortened_array_is_refused(saved, name):
    array = zarr.open_group(saved, mode="r+")[name]
    original = array[:]
    array.resize((len(original) - 1, *original.shape[1:]))
    try:
        with pytest.raises(StreamSVMError, match="factor"):
            load_factorisation(saved)
    finally:
        array.resize(original.shape)
        array[:] = original


def test_a_missing_array_is_named(saved):
    group = zarr.open_group(saved, mode="r+")
    original = group["inner"][:]
    del group["inner"]
    with pytest.raises(CorruptDataError, match="'inner' is missing"):
        load_factorisation(saved)
    group.create_array("inner", data=original, chunks=original.shape)


def test_it_is_no_model(saved):
    with pytest.raises(ModelError, match="'hss'"):
        load_model(saved)
