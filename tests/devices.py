"""Devices for tests: array-api-strict, which has no more than the standard, and PyTorch on the CPU."""

from __future__ import annotations

import pytest

from streamsvm.parallel.devices import Device, open_device

MEMORY = 1 << 30


def strict(memory: int = MEMORY, least_values: int = 0, **more) -> Device:
    """A device that computes every value, by the strict namespace."""
    pytest.importorskip("array_api_compat", reason="needs array-api-compat, of the extra gpu")
    xp = pytest.importorskip("array_api_strict", reason="needs array-api-strict, of the extra test")
    where = xp.Device("CPU_DEVICE")
    return Device("strict", xp, where, where, memory, least_values=least_values, **more)


def torch_cpu(memory: int | None = MEMORY) -> Device:
    """PyTorch on the CPU, which computes every value."""
    pytest.importorskip("torch", reason="needs PyTorch, of the extra gpu")
    device = open_device("torch:cpu", memory)
    assert device is not None
    device.least_values = 0
    return device


DEVICES = {"strict": strict, "torch": torch_cpu}
