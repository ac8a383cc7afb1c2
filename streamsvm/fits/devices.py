"""The device that computes the kernel sums of a fit."""

from __future__ import annotations

from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.events import Events, ignore
from streamsvm.kernels.table import kernel_row
from streamsvm.parallel.devices import AUTO, CPU, Device, open_device

WORTH_VALUES = 4e8  # of the kernel matrix from which on auto takes a device: 20,000 rows


def device_of(config: FitConfig, store: Store, events: Events = ignore) -> Device | None:
    """The device that the options name; None: the CPU computes, also where there is nothing for a device to do. Raises
    ConfigError if it cannot be used."""
    if config.device == CPU:
        return None
    reason = _reason_against(config, store)
    if reason and config.device != AUTO:
        events.warn(f"device {config.device} is not used: {reason}")
    return None if reason else open_device(config.device, config.device_memory)


def _reason_against(config: FitConfig, store: Store) -> str:
    """Why a device would have nothing to do; empty if it would."""
    if store.is_sparse:
        return "the rows are sparse, and the CPU computes their kernel values"
    if kernel_row(config.kernel.name).is_linear:
        return f"sums of the {config.kernel.name} kernel are rows, which the CPU computes"
    if config.device == AUTO and float(store.n) ** 2 < WORTH_VALUES:
        return "the rows are few"
    return ""
