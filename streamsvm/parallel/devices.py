"""Devices that compute kernel sums: a graphics processor, by PyTorch. Without one nothing is imported for it.

`computing_on` makes a device current for a block of code; the threads and tasks of an engine inherit it.
`kernels.device` gives the current device the sums that are large enough for it, and the CPU computes the others.
"""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from streamsvm.errors import ConfigError
from streamsvm.parallel.imports import uncollected
from streamsvm.storage.text import JsonObject, human_bytes

if TYPE_CHECKING:
    import numpy as np

CPU, AUTO = "cpu", "auto"
NAMES = re.compile(r"auto|cpu|torch:cpu|mps|(cuda|xpu)(:\d+)?")
EXPECTED = "auto, cpu, cuda, cuda:1, xpu, mps or torch:cpu"
KINDS = ("cuda", "xpu", "mps")  # that auto looks for, in this order
FREE_SHARE = 0.5  # of a device's free memory, which is used by default
ROWS_SHARE, TILE_SHARE = 0.5, 1 / 16  # of that: for rows that stay there, and for a tile, of which several exist
LEAST_BYTES = 64 << 20  # of a device's memory
LEAST_TILE_BYTES = 1 << 20
MOST_TILE_BYTES, CPU_TILE_BYTES = 64 << 20, 2 << 20  # a larger tile takes longer to start than to compute, or leaves L2
WIDE = 1 << 14  # columns of a tile of many rows
LEAST_VALUES = 1 << 21  # of a kernel block: the CPU has fewer before they are sent and read


@dataclass(eq=False)
class Device:
    """A namespace of the array API, and the memory that it may take.

    xp: the namespace. where, host: its device, and that from which NumPy reads, as its arrays take them. memory: bytes.
    title: of the hardware. highest: a context in which products of float32 have all its digits. least_values: of a
    block that it computes. limit: bytes that the user allows. values, seconds: what it has computed so far.
    """

    name: str
    xp: Any
    where: Any
    host: Any
    memory: int
    title: str = ""
    has_float64: bool = True
    highest: Callable[[], AbstractContextManager[object]] = nullcontext
    most_tile_bytes: int = MOST_TILE_BYTES
    least_values: int = LEAST_VALUES
    limit: int | None = None
    values: int = 0
    seconds: float = 0.0
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _kept: OrderedDict[tuple[int, str], tuple[Any, int]] = field(default_factory=OrderedDict, repr=False)
    _gone: deque[tuple[int, str]] = field(default_factory=deque, repr=False)  # keys of objects that no longer exist

    def __post_init__(self) -> None:
        self._tile_bytes = int(min(self.most_tile_bytes, max(LEAST_TILE_BYTES, TILE_SHARE * self.memory)))

    def __reduce__(self) -> tuple[Any, ...]:
        return worker_device, (self.name, self.limit)

    def __str__(self) -> str:
        return f"{self.name} ({self.title})" if self.title else self.name

    @contextmanager
    def computing(self, values: int) -> Iterator[None]:
        """One call at a time, of so many kernel values, so that its memory is known."""
        with self._lock, self.highest():
            began = time.perf_counter()
            yield
            self.seconds += time.perf_counter() - began
            self.values += values

    def put(self, array: np.ndarray) -> Any:
        """An array of this device."""
        return self.xp.asarray(array if array.flags.writeable else array.copy(), device=self.where)

    def get(self, array: Any) -> np.ndarray:
        """An array of this device, in memory."""
        import numpy as np
        from array_api_compat import to_device

        return np.from_dlpack(to_device(array, self.host))

    def kept(self, owner: Any, dtype: str, nbytes: int, make: Callable[[], Any]) -> Any:
        """make(), of this object, which does not change: kept here while there is room for it and the object exists."""
        key = id(owner), dtype
        while self._gone:  # at any time, in any thread: so their entries go here
            self._kept.pop(self._gone.popleft(), None)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        room = ROWS_SHARE * self.memory - nbytes
        while self._kept and sum(size for _, size in self._kept.values()) > room:
            self._kept.popitem(last=False)
        made = make()
        if room >= 0:
            weakref.finalize(owner, self._gone.append, key).atexit = False
            self._kept[key] = made, nbytes
        return made

    def zeros(self, shape: tuple[int, ...]) -> Any:
        """Sums that begin."""
        return self.widened(self.xp.zeros(shape, dtype=self.xp.float32, device=self.where))

    def widened(self, sums: Any) -> Any:
        """Sums as float64, where the device has it."""
        return self.xp.astype(sums, self.xp.float64) if self.has_float64 else sums

    def has_room(self, nbytes: int) -> bool:
        """Whether so many bytes of rows can stay here."""
        return nbytes <= ROWS_SHARE * self.memory

    def tile(self, m: int, q: int, row_values: int, itemsize: int) -> tuple[int, int]:
        """(rows, columns) of a tile of a block (m, q), wide rather than high. row_values: of a row besides."""
        values = self._tile_bytes // itemsize
        width = min(q, max(values // m, min(values, WIDE)))
        return max(1, min(m, values // max(width, row_values))), width

    def piece_rows(self, row_bytes: int) -> int:
        """Of a piece of rows that are sent when they are needed."""
        return max(1, self._tile_bytes // row_bytes)

    def is_full(self, error: Exception) -> bool:
        """Whether an error says that there is no memory left."""
        text = f"{type(error).__name__} {error}".lower()
        return isinstance(error, MemoryError) or any(
            sign in text for sign in ("out of memory", "outofmemory", "alloc_failed")
        )

    def shrink(self) -> bool:
        """After it was full: drops the rows that stay, and halves tiles. False: these would be too small."""
        self._kept.clear()
        if self._tile_bytes < 2 * LEAST_TILE_BYTES:
            return False
        self._tile_bytes //= 2
        return True

    def facts(self) -> JsonObject:
        """For reports: what it is, the memory that it may take, and its kernel values per second so far."""
        rate = {"device_values_per_s": round(self.values / self.seconds)} if self.seconds else {}
        return {"device": str(self), "device_memory_bytes": self.memory, **rate}


_current: ContextVar[Device | None] = ContextVar("_device", default=None)


def current_device() -> Device | None:
    """The device of this context; None: the CPU computes."""
    return _current.get()


def device_facts() -> JsonObject:
    """The current device's facts; nothing of the CPU."""
    device = current_device()
    return {} if device is None else device.facts()


@contextmanager
def computing_on(device: Device | None) -> Iterator[Device | None]:
    """Kernel sums inside this context are computed by the device; None: by the CPU."""
    token = _current.set(device)
    try:
        yield device
    finally:
        _current.reset(token)


class OnDevice:
    """A function that computes on a device, wherever it runs."""

    def __init__(self, device: Device | None, fn: Callable[..., Any]) -> None:
        self.device, self.func = device, fn

    def __call__(self, *args: Any) -> Any:
        with computing_on(self.device):
            return self.func(*args)


def inheriting(fn: Callable[..., Any]) -> Callable[..., Any]:
    """fn, which in other threads computes on the device that is current now."""
    device = current_device()
    return fn if device is None else OnDevice(device, fn)


@cache
def open_device(name: str, memory: int | None = None) -> Device | None:
    """The device with this name; None for the CPU, or if auto finds no other. memory: bytes that it may take, by
    default half of what is free there. Raises ConfigError if it cannot be used."""
    if not NAMES.fullmatch(name):
        raise ConfigError(f"found device {name!r}, expected {EXPECTED}")
    if name == CPU:
        return None
    try:
        with uncollected():
            import torch
            from array_api_compat import torch as xp
    except ImportError as error:
        if name == AUTO:
            return None
        needs = f"device {name} needs {error.name} (the extra gpu)"
        raise ConfigError(f"{needs}: pip install torch array-api-compat") from None
    if name == AUTO:
        present = [kind for kind in KINDS if _is_available(torch, kind)]
        return open_device(present[0], memory) if present else None
    where = torch.device(name.removeprefix("torch:"))
    _require_available(torch, name, where)
    title, free = _hardware(torch, where)
    allowed = memory or int(FREE_SHARE * free)
    if not LEAST_BYTES <= allowed <= free:
        raise ConfigError(
            f"device {name}: found {human_bytes(free)} of free memory, of which {human_bytes(allowed)} may be used; "
            f"expected at least {human_bytes(LEAST_BYTES)}, and no more than is free"
        )
    return Device(
        name,
        xp,
        where,
        torch.device(CPU),
        allowed,
        title,
        has_float64=where.type != "mps",
        highest=lambda: _highest(torch),
        most_tile_bytes=CPU_TILE_BYTES if where.type == CPU else MOST_TILE_BYTES,
        limit=memory,
    )


def worker_device(name: str, memory: int | None) -> Device | None:
    """The device of a worker, which computes on its CPU where there is none, see `lacking_device`."""
    return None if lacking_device(name, memory) else open_device(name, memory)


def lacking_device(name: str, memory: int | None) -> str:
    """Why this process cannot compute on a device; empty if it can."""
    try:
        open_device(name, memory)
    except ConfigError as error:
        return str(error)
    return ""


def _is_available(torch: Any, kind: str) -> bool:
    place = torch.backends.mps if kind == "mps" else getattr(torch, kind, None)
    return place is not None and bool(place.is_available())


def _require_available(torch: Any, name: str, where: Any) -> None:
    if where.type == CPU:
        return
    if not _is_available(torch, where.type):
        present = [kind for kind in KINDS if _is_available(torch, kind)]
        raise ConfigError(
            f"device {name}: PyTorch {torch.__version__} finds no {where.type} device{_reason(torch, where.type)}; "
            f"expected one of {', '.join([*present, CPU])}"
        )
    count = 1 if where.type == "mps" else getattr(torch, where.type).device_count()
    if (where.index or 0) >= count:
        raise ConfigError(f"device {name}: found {count} of them, expected {where.type}:0 to {where.type}:{count - 1}")


def _reason(torch: Any, kind: str) -> str:
    """What PyTorch says about a device that is not there: a driver too old, or no support for it in its build."""
    try:
        place = torch.mps if kind == "mps" else getattr(torch, kind)
        place.init() if hasattr(place, "init") else place.synchronize()
    except (AssertionError, AttributeError, RuntimeError) as error:
        return f" ({str(error).splitlines()[0].rstrip('.')})"
    return ""


def _hardware(torch: Any, where: Any) -> tuple[str, int]:
    """(its name, bytes of memory that are free)."""
    import psutil

    if where.type == "mps":
        return "Apple GPU", int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    if where.type == CPU:
        return "PyTorch on the CPU", int(psutil.virtual_memory().available)
    place = getattr(torch, where.type)
    return place.get_device_name(where), int(place.mem_get_info(where)[0])


@contextmanager
def _highest(torch: Any) -> Iterator[None]:
    """Without TF32: ten bits of mantissa cancel in distances."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
