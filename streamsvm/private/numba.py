"""numba: when a cached function is stale, arrays without reference counts, and calls without a check of types."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar, cast

import numba as nb
from numba.core import cgutils, types
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

T = TypeVar("T")


def stale_with(*modules: ModuleType) -> Callable[[T], T]:
    """For a function with cache=True that calls compiled functions of these modules, or reads their constants. numba
    compiles a cached function again when the file that it stands in has changed, and looks at no other file. And it
    fails to read a cache that names a class which has another name since: such a cache is stale, too."""

    def stamped(function: T) -> T:
        if isinstance(function, Dispatcher):  # else NUMBA_DISABLE_JIT
            cached: Any = function
            index = cached._cache._cache_file
            files = [os.stat(str(module.__file__)) for module in modules]
            index._source_stamp = (index._source_stamp, *((at.st_mtime, at.st_size) for at in files))
            load_index = index._load_index

            def load_known() -> dict[object, str]:
                try:
                    return load_index()
                except (AttributeError, ImportError):
                    return {}

            index._load_index = load_known
        return function

    return stamped


def direct(function: Any, *args: Any) -> Callable[..., Any]:
    """The function compiled for arguments of the types of these, and for no others: it does not check them, and reads
    other dtypes and layouts as these. The check at each call is a tenth of the time of an online event."""
    if not isinstance(function, Dispatcher):  # NUMBA_DISABLE_JIT
        return cast(Callable[..., Any], function)
    return function.compile(tuple(map(nb.typeof, args)))


def _borrowed(typing_context: Any, kind: Any) -> Any:
    """`kind`, a tuple of arrays, numbers and such tuples, without counts of references to the arrays: the caller keeps
    them alive for as long as they are used. A count is an atomic operation each time that an array is taken out of a
    tuple, a quarter of an event in all."""

    def copy(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _uncounted(context, builder, kind, args[0])

    return kind(kind), copy


borrowed: Any = intrinsic(_borrowed)


def _uncounted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Array):
        array = make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        parts = cgutils.unpack_tuple(builder, value, len(kind))
        parts = [_uncounted(context, builder, *part) for part in zip(cast(Any, kind).types, parts, strict=True)]
        return context.make_tuple(builder, kind, parts)
    return value
