"""Values as dask's workers get them, and the arrays in them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np


def sent(value: Any, offset: int) -> Any:
    """Arrays out of one message, in which they begin anywhere."""
    buffers: list[pickle.PickleBuffer] = []
    data, received = pickle.dumps(value, protocol=5, buffer_callback=buffers.append), []
    for buffer in buffers:
        raw = buffer.raw()
        message = np.empty(raw.nbytes + 64, np.uint8)
        start = -message.ctypes.data % 64 + offset
        message[start : start + raw.nbytes] = raw
        received.append(message[start : start + raw.nbytes].data)
    return pickle.loads(data, buffers=received)


def arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict | list | tuple):
        return [array for own in (value.values() if isinstance(value, dict) else value) for array in arrays(own)]
    return arrays(vars(value)) if hasattr(value, "__dict__") else []
