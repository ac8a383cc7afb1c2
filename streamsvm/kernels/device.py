"""Kernel values, sums and gradients on a device, by tiles that fit its memory.

Rows are float32 there (or float64), and stay while they exist if the device has room for them. Sums are float32 over
`SLICE` columns, and float64 from there on where the device has it. A tile for which there is no memory is halved.
Kernels give the formulas, `device_values` and `device_gradients`, in a namespace of the array API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike

from streamsvm.data.rows import Rows
from streamsvm.events import heard
from streamsvm.parallel.devices import Device, current_device

SLICE = 512  # columns over which sums are float32
Array = Any  # of a device


class DeviceRows(NamedTuple):
    """Rows x on a device, as [x, |x|^2, 1], (m, d + 2): squared distances of two such blocks are one product."""

    extended: Array

    @classmethod
    def of(cls, device: Device, rows: Rows, dtype: DTypeLike) -> DeviceRows:
        extended = np.empty((len(rows), rows.d + 2), dtype)
        extended[:, :-2], extended[:, -2], extended[:, -1] = rows.X, rows.sq_norms, 1
        return cls(device.put(extended))

    @property
    def X(self) -> Array:
        return self.extended[:, :-2]

    def take(self, ids: slice) -> DeviceRows:
        return DeviceRows(self.extended[ids, :])


class DeviceKernel(Protocol):
    """What is needed of a kernel: formulas that a device computes."""

    on_device: ClassVar[bool]

    def device_values(self, xp: Any, a: DeviceRows, b: DeviceRows) -> Array:
        """K(a, b), (m, q)."""

    def device_gradients(self, xp: Any, a: DeviceRows, b: DeviceRows, coef: Array) -> Array:
        """sum_j coef[j, c] dK(a_i, b_j) / da_i for coef (q, k): (k, m, d)."""


def namespace(array: Any) -> Any:
    """The functions for an array: NumPy's, or those of a device."""
    if isinstance(array, np.ndarray | np.generic):
        return np
    from array_api_compat import array_namespace

    return array_namespace(array)


def computes(kernel: Any, *blocks: Rows) -> bool:
    """Whether the current device computes values of a kernel between such rows, if there are enough of them."""
    return current_device() is not None and kernel.on_device and not any(rows.is_sparse for rows in blocks)


def _device_for(kernel: DeviceKernel, a: Rows, b: Rows, dtype: DTypeLike = np.float32) -> Device | None:
    device = current_device()
    if device is None or len(a) * len(b) < max(1, device.least_values) or not computes(kernel, a, b):
        return None
    return device if device.has_float64 or np.dtype(dtype) == np.float32 else None


def sums(kernel: DeviceKernel, a: Rows, b: Rows, coef: np.ndarray, dtype: DTypeLike = np.float32) -> np.ndarray | None:
    """K(a, b) @ coef for coef (q,) or (q, k): (m,) or (m, k) float64, of values of this dtype. None, as of all
    functions here: the CPU is to compute them."""
    if (device := _device_for(kernel, a, b, dtype)) is None:
        return None
    columns = coef.reshape(len(b), -1)
    out = np.zeros((len(a), columns.shape[1]))

    def add(strip: slice, left: DeviceRows, piece: slice, right: DeviceRows, width: int) -> None:
        weights, total = _weights(device, columns[piece], dtype), device.zeros(out[strip].shape)
        for tile in _slices(len(columns[piece]), width):
            total = total + _sums(device, kernel.device_values(device.xp, left, right.take(tile)), weights[tile, :])
        out[strip] += device.get(total)

    is_done = _over_strips(device, a, b, dtype, columns.shape[1], add)
    return out.reshape(len(a), *coef.shape[1:]) if is_done else None


def block(kernel: DeviceKernel, a: Rows, b: Rows, out: np.ndarray) -> np.ndarray | None:
    """K(a, b), written into out (m, q)."""
    if (device := _device_for(kernel, a, b, out.dtype)) is None:
        return None

    def write(strip: slice, left: DeviceRows, piece: slice, right: DeviceRows, width: int) -> None:
        into = out[strip, piece]
        for tile in _slices(into.shape[1], width):
            into[:, tile] = device.get(kernel.device_values(device.xp, left, right.take(tile)))

    return out if _over_strips(device, a, b, out.dtype, 1, write) else None


def gradients(kernel: DeviceKernel, a: Rows, b: Rows, coef: np.ndarray) -> np.ndarray | None:
    """sum_j coef[j, c] dK(a_i, b_j) / da_i for coef (q,) or (q, k): (m, d) or (k, m, d) float32."""
    if (device := _device_for(kernel, a, b)) is None:
        return None
    columns = coef.reshape(len(b), -1)
    out = np.zeros((columns.shape[1], len(a), a.d), np.float32)

    def add(strip: slice, left: DeviceRows, piece: slice, right: DeviceRows, width: int) -> None:
        weights, total = _weights(device, columns[piece]), device.zeros(out[:, strip].shape)
        for tile in _slices(len(columns[piece]), width):
            total = total + kernel.device_gradients(device.xp, left, right.take(tile), weights[tile, :])
        out[:, strip] += device.get(total)

    is_done = _over_strips(device, a, b, np.float32, len(out) * a.d, add)
    return out.reshape(*coef.shape[1:], len(a), a.d) if is_done else None


Work = Callable[[slice, DeviceRows, slice, DeviceRows, int], None]


def _over_strips(device: Device, a: Rows, b: Rows, dtype: DTypeLike, row_values: int, work: Work) -> bool:
    """Calls work(strip, rows a of it, piece, rows b of it, columns of a tile) for all pairs of them. row_values: of a
    row of its results. A strip for which the device is full is worked on again with smaller tiles, so work may change
    what is outside at its end alone. False, with a warning: not even the smallest tiles have room."""
    size, wide = np.dtype(dtype).itemsize, max(row_values, a.d + 2)
    with device.computing(len(a) * len(b)):
        for piece in _pieces(device, b, size):
            start, right = 0, None
            while start < len(a):
                try:
                    right = right or _on_device(device, b, piece, dtype)
                    height, width = device.tile(len(a) - start, piece.stop - piece.start, wide, size)
                    strip = slice(start, start + height)
                    work(strip, _on_device(device, a, strip, dtype), piece, right, width)
                    start += height
                except (MemoryError, RuntimeError) as error:
                    if not device.is_full(error):
                        raise
                    right = None
                    if not device.shrink():
                        heard.warn(f"device {device.name} has no memory left: the CPU computes what it could not")
                        return False
    return True


def _pieces(device: Device, rows: Rows, size: int) -> Iterator[slice]:
    """Rows that are on a device together: all of them if they can stay there."""
    row_bytes = (rows.d + 2) * size
    step = len(rows) if device.has_room(len(rows) * row_bytes) else device.piece_rows(row_bytes)
    return _slices(len(rows), step)


def _on_device(device: Device, rows: Rows, part: slice, dtype: DTypeLike) -> DeviceRows:
    nbytes = len(rows) * (rows.d + 2) * np.dtype(dtype).itemsize
    if not device.has_room(nbytes):
        return DeviceRows.of(device, rows.take(part), dtype)
    return device.kept(rows, np.dtype(dtype).name, nbytes, partial(DeviceRows.of, device, rows, dtype)).take(part)


def _weights(device: Device, coef: np.ndarray, dtype: DTypeLike = np.float32) -> Array:
    return device.put(np.ascontiguousarray(coef, dtype))


def _slices(n: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def _sums(device: Device, values: Array, coef: Array) -> Array:
    """values (h, q) @ coef (q, k), by slices of columns."""
    xp, (q, k) = device.xp, coef.shape
    whole = q - q % SLICE
    out = device.widened(values[:, whole:] @ coef[whole:, :])
    if whole:
        by_slice = xp.permute_dims(xp.reshape(values[:, :whole], (-1, whole // SLICE, SLICE)), (1, 0, 2))
        sums = by_slice @ xp.reshape(coef[:whole, :], (-1, SLICE, k))
        out = out + xp.sum(device.widened(sums), axis=0)
    return out


def sq_distances(xp: Any, a: DeviceRows, b: DeviceRows, resolution: float = 0.0) -> Array:
    """|a-b|^2, (m, q); 0 where it is less than this share of |a|^2 + |b|^2."""
    swapped = xp.concat([-2.0 * b.X, b.extended[:, -1:], b.extended[:, -2:-1]], axis=1)
    sq = xp.clip(a.extended @ xp.matrix_transpose(swapped), min=0.0)
    if not resolution:
        return sq
    return xp.where(sq > resolution * (a.extended[:, -2:-1] + b.extended[:, -2][None, :]), sq, 0.0)


def inner_products(xp: Any, a: DeviceRows, b: DeviceRows) -> Array:
    """a'b, (m, q)."""
    return a.X @ xp.matrix_transpose(b.X)


def weighted_rows(xp: Any, values: Array, b: DeviceRows, coef: Array) -> Array:
    """sum_j coef[j, c] values[:, j] b_j, (k, m, d), for values (m, q) and coef (q, k)."""
    return xp.stack([values @ (coef[:, c : c + 1] * b.X) for c in range(coef.shape[1])])


def l1_distances(xp: Any, a: DeviceRows, b: DeviceRows) -> Array:
    """|a-b|_1, (m, q), feature by feature."""
    out = xp.abs(_differences(a, b, 0))
    for f in range(1, a.X.shape[1]):
        out = out + xp.abs(_differences(a, b, f))
    return out


def l1_gradients(xp: Any, a: DeviceRows, b: DeviceRows, values: Array, coef: Array) -> Array:
    """sum_j coef[j, c] values[:, j] sign(a - b_j), (k, m, d)."""
    by_feature = [(values * xp.sign(_differences(a, b, f))) @ coef for f in range(a.X.shape[1])]
    return xp.permute_dims(xp.stack(by_feature), (2, 1, 0))


def _differences(a: DeviceRows, b: DeviceRows, f: int) -> Array:
    return a.X[:, f : f + 1] - b.X[:, f][None, :]
