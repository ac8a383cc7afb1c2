"""numba: when a cached function is stale."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from numba.core.dispatcher import Dispatcher

T = TypeVar("T")


def stale_with(*modules: ModuleType) -> Callable[[T], T]:
    """For a function with cache=True that calls compiled functions of these modules, or reads constants of theirs.

    numba compiles a cached function again when the file that it stands in has changed, and looks at no other file.
    """

    def stamped(function: T) -> T:
        if isinstance(function, Dispatcher):  # else NUMBA_DISABLE_JIT
            cached: Any = function
            index = cached._cache._cache_file
            files = [os.stat(str(module.__file__)) for module in modules]
            index._source_stamp = (index._source_stamp, *((at.st_mtime, at.st_size) for at in files))
        return function

    return stamped
