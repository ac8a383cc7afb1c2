"""Values as JSON can hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]  # a result, report or record: what JSON can hold


def jsonable(value: Any) -> Any:
    """NumPy scalars and arrays as numbers and lists; a float that is not finite as None, which JSON supports.

    Finite floats keep every bit through `json.dumps` and back.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
