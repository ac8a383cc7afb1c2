"""Kernel values, sums and gradients of a device equal those of float64, and the CPU's."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
import reference
from devices import DEVICES, strict
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.kernels.base import kernel_from
from streamsvm.kernels.table import KERNELS, kernel_names
from streamsvm.parallel.devices import LEAST_TILE_BYTES, computing_on, current_device, inheriting
from streamsvm.parallel.engine import Engine

PARAMETERS = {"gamma": 0.3, "degree": 3, "coef0": 0.5, "nu": 1.5}
rng = np.random.default_rng(0)
A = rng.normal(size=(90, 7)).astype(np.float32)
B = np.concatenate([A[:30], rng.normal(size=(1200, 7)).astype(np.float32)])  # rows that are the same, too
COEF = rng.normal(size=(len(B), 3))


def kernel(name: str, **more):
    values = PARAMETERS | more
    return kernel_from({"name": name} | {key: values[key] for key in KERNELS[name].parameters})


KERNELS_HERE = [kernel(name) for name in kernel_names()] + [kernel("matern", nu=nu) for nu in (0.5, 2.5)]


@pytest.fixture(params=DEVICES)
def device(request):
    return DEVICES[request.param]()


@pytest.mark.parametrize("made", KERNELS_HERE, ids=str)
def test_values_sums_and_gradients_are_those_of_float64(made, device):
    a, b, before = Rows(A), Rows(B), device.values
    with computing_on(device):
        values, doubles = made.block(a, b), made.in_float64().block(a, b)
        sums, double_sums = made.apply(a, b, COEF), made.in_float64().apply(a, b, COEF[:, 0])
        gradients, gradient = made.gradients(a, b, COEF), made.gradients(a, b, COEF[:, 0])
    assert device.values - before == 6 * len(A) * len(B)
    K = reference.kernel_matrix(made, A, B)
    size = np.abs(K).max()
    np.testing.assert_allclose(values, K, atol=2e-6 * size)
    np.testing.assert_allclose(doubles, K, atol=1e-7 * size if made.name == "matern" else 1e-12 * size)
    np.testing.assert_allclose(sums, K @ COEF, atol=1e-4 * size)
    np.testing.assert_allclose(double_sums, K @ COEF[:, 0], atol=1e-5 * size if made.name == "matern" else 1e-10 * size)
    expected = made.gradients(a, b, COEF)
    np.testing.assert_allclose(gradients, expected, atol=3e-5 * np.abs(expected).max())
    np.testing.assert_allclose(gradient, gradients[0], atol=1e-5 * np.abs(expected).max())
    assert (values.dtype, sums.dtype, gradients.dtype) == (np.float32, np.float64, np.float32)


@pytest.mark.parametrize("memory", [1 << 16, 1 << 12], ids=["rows stay", "rows in pieces"])
def test_small_memory_gives_the_same_sums(memory, monkeypatch):
    monkeypatch.setattr("streamsvm.parallel.devices.LEAST_TILE_BYTES", 1 << 10)
    monkeypatch.setattr("streamsvm.kernels.device.SLICE", 32)
    made, small = kernel("rbf"), strict(memory)
    a, b, K = Rows(A), Rows(B), reference.kernel_matrix(kernel("rbf"), A, B)
    with computing_on(small):
        np.testing.assert_allclose(made.apply(a, b, COEF), K @ COEF, atol=1e-4)
        np.testing.assert_allclose(made.block(a, b), K, atol=2e-6)
        gradients = made.gradients(a, b, COEF)
    np.testing.assert_allclose(gradients, made.gradients(a, b, COEF), atol=1e-4)


def test_a_full_device_halves_its_tiles(monkeypatch):
    """The namespace fails at products above a size, as a card with little memory does."""
    made, device = kernel("rbf"), strict(1 << 26)
    device._tile_bytes = 8 * LEAST_TILE_BYTES
    a, b = Rows(np.tile(A, (40, 1))), Rows(B)
    values = made.device_values
    sizes = []

    def limited(self, xp, left, right):
        out = values(xp, left, right)
        sizes.append(4 * out.shape[0] * out.shape[1])
        if sizes[-1] > 3 * LEAST_TILE_BYTES:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return out

    monkeypatch.setattr(type(made), "device_values", limited)
    with computing_on(device):
        sums = made.apply(a, b, COEF)
    np.testing.assert_allclose(sums, reference.kernel_matrix(made, a.X, B) @ COEF, atol=1e-4)
    assert max(sizes) > 3 * LEAST_TILE_BYTES
    assert max(sizes[3:]) <= 2 * LEAST_TILE_BYTES


def test_without_memory_the_cpu_computes_and_says_so(monkeypatch):
    made, device = kernel("rbf"), strict()
    a, b = Rows(A), Rows(B)
    expected = made.apply(a, b, COEF)

    def full(self, xp, left, right):
        raise MemoryError

    monkeypatch.setattr(type(made), "device_values", full)
    with computing_on(device), pytest.warns(UserWarning, match="device strict has no memory left: the CPU computes"):
        sums = made.apply(a, b, COEF)
    np.testing.assert_array_equal(sums, expected)


def test_other_errors_of_a_device_are_raised(monkeypatch):
    made = kernel("rbf")

    def broken(self, xp, left, right):
        raise RuntimeError("device-side assert triggered")

    monkeypatch.setattr(type(made), "device_values", broken)
    with computing_on(strict()), pytest.raises(RuntimeError, match="assert triggered"):
        made.apply(Rows(A), Rows(B), COEF)


def test_rows_stay_while_they_exist():
    made, device, a, b = kernel("rbf"), strict(), Rows(A), Rows(B)
    with computing_on(device):
        for _ in range(2):
            made.apply(a, b, COEF)
            assert {key[0] for key in device._kept} == {id(a), id(b)}
        del a
        gc.collect()
        other = Rows(A[:50])
        made.apply(other, b, COEF)
        assert {key[0] for key in device._kept} == {id(other), id(b)}


def test_sparse_rows_and_few_values_are_the_cpus():
    made, device = kernel("rbf"), strict(least_values=1000)
    few, b, thin = Rows(A[:1]), Rows(B[:999]), Rows(sparse.csr_array(A))
    with computing_on(device):
        made.apply(few, b, COEF[:999])
        made.apply(thin, Rows(B), COEF)
        assert device.values == 0
        made.apply(few, Rows(B), COEF)
        assert device.values == len(B)


def test_tasks_and_threads_inherit_a_device():
    device = strict()
    with computing_on(device):
        assert list(Engine(2).map(_name, [0, 1, 2])) == ["strict"] * 3
        found, work = [], inheriting(_name)
        thread = threading.Thread(target=lambda: found.append(work(0)))
        thread.start()
        thread.join()
    assert found == ["strict"]
    assert current_device() is None
    assert list(Engine(2).map(_name, [0])) == ["cpu"]


def _name(_: int) -> str:
    device = current_device()
    return "cpu" if device is None else device.name
