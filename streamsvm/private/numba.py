"""numba: compiled functions that environments share, arrays without counts, calls without a check of types, and
numbers of dicts."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import numba as nb
from llvmlite import ir
from numba import config
from numba.core import cgutils, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.dispatcher import Dispatcher
from numba.core.registry import CPUDispatcher
from numba.extending import NativeValue, intrinsic, models, register_model, unbox
from numba.misc.appdirs import AppDirs
from numba.np.arrayobj import make_array

from streamsvm._version import __version__

T = TypeVar("T")
_njit: Any = nb.njit
_caches: list[_Cache] = []
UNUSED_S = 90 * 24 * 3600.0  # after which compiled code of other versions is deleted


def njit(*, cache: bool = False, uses: Sequence[ModuleType] = (), **options: Any) -> Callable[[T], T]:
    """`numba.njit` without the GIL, and without the wrapper by which C code would call the function.

    cache: the compiled function is kept for later processes, by content: all environments of a user share what they
    have in common, and what has changed is compiled again. uses: the modules whose compiled functions it calls, or
    whose constants it reads. The folder: `NUMBA_CACHE_DIR`, else one in the user's cache; else where numba finds one,
    if it does."""

    def compiled(function: T) -> T:
        dispatcher = _njit(**{"nogil": True, "no_cfunc_wrapper": True} | options)(function)
        if cache and dispatcher is not function:  # as with NUMBA_DISABLE_JIT
            with suppress(RuntimeError):  # no folder can be written: each process compiles its own
                dispatcher._cache = _Cache(function, uses)
                _caches.append(dispatcher._cache)
        return cast(T, dispatcher)

    return compiled


def njit_inner(**options: Any) -> Callable[[T], T]:
    """`njit` for what compiled code alone calls: without the wrapper for Python, which takes time to compile."""

    def compiled(function: T) -> T:
        dispatcher = _njit(nogil=True, no_cfunc_wrapper=True, no_cpython_wrapper=True, **options)(function)
        if dispatcher is not function:
            dispatcher.__class__ = _Inner
        return cast(T, dispatcher)

    return compiled


class _Inner(CPUDispatcher):
    def __call__(self, *args: Any, **named: Any) -> Any:
        name = self.py_func.__name__
        raise TypeError(f"{name} is for compiled callers only; expected njit, or a call of {name}.py_func")


class _Cache(FunctionCache):
    def __init__(self, function: Any, uses: Sequence[ModuleType]) -> None:
        locator = _ContentLocator(function, uses)
        self._impl_class: Any = functools.partial(_CacheImpl, locator=locator)
        super().__init__(function)
        index: Any = self._cache_file
        index._source_stamp = locator.get_source_stamp()
        load_index = index._load_index

        def load_known() -> dict[object, str]:
            try:
                return cast(dict[object, str], load_index())
            except (AttributeError, ImportError):  # it names a class that has another name by now
                return {}

        index._load_index = load_known


class _CacheImpl(CompileResultCacheImpl):
    def __init__(self, function: Any, locator: _ContentLocator) -> None:
        self._locator_classes: Any = [locator, *self._locator_classes]
        super().__init__(function)


class _ContentLocator(_CacheLocator):
    """The folder for the compiled code of a function, named by its module and by the content of what it depends on."""

    def __init__(self, function: Any, uses: Sequence[ModuleType]) -> None:
        self._line, self._py_file = function.__code__.co_firstlineno, function.__code__.co_filename
        files = [self._py_file, __file__, *(str(module.__file__) for module in uses)]  # this one has intrinsics
        self._stamp = sha256(b"".join(map(_digest, files))).hexdigest()
        self._module = function.__module__

    def from_function(self, py_func: Any, py_file: str) -> _ContentLocator | None:  # type: ignore[override]
        base = _users_folder()
        if base is None:
            return None
        self._folder = base / f"{self._module}-{self._stamp[:16]}"
        with suppress(OSError):  # not there yet
            _in_use(self._folder)
        return self

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return str(self._line)

    def ensure_cache_path(self) -> None:
        if self._folder.is_dir():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for other in self._folder.parent.glob(f"{self._module}-*"):
            with suppress(OSError):
                if other.stat().st_mtime < time.time() - UNUSED_S:
                    shutil.rmtree(other)


@functools.cache
def _in_use(folder: Path) -> None:
    os.utime(folder)


@functools.cache
def _digest(path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError:  # in a zip file, say
        content = f"{path} of {__version__}".encode()
    return sha256(content).digest()


@functools.cache
def _users_folder() -> Path | None:
    """The folder for compiled code by content, if it can be written."""
    users = AppDirs("streamsvm", appauthor=False).user_cache_dir
    base = Path(getattr(config, "CACHE_DIR", "") or users, f"numba-{nb.__version__}")
    try:
        base.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=base).close()
    except OSError:
        return None
    return base


def cache_folder() -> Path | None:
    """The folder that holds what is kept of the functions imported so far; None: nothing is kept."""
    folders = {cache.cache_path for cache in _caches}
    return Path(os.path.commonpath(folders)) if folders else None


def is_compiled(function: Any) -> bool:
    """False with NUMBA_DISABLE_JIT."""
    return isinstance(function, Dispatcher)


def direct(function: Any, *args: Any) -> Callable[..., Any]:
    """The function compiled for arguments of the types of these, and for no others: it does not check them, and reads
    other dtypes and layouts as these. The check at each call is a tenth of the time of an online event. `AN_OBJECT`
    stands for any object of Python."""
    if not is_compiled(function):
        return cast(Callable[..., Any], function)
    return function.compile(tuple(arg if arg is AN_OBJECT else nb.typeof(arg) for arg in args))


class _Borrowed(types.Array):
    """An array whose owner stays alive without it."""

    def __init__(self, kind: types.Array) -> None:
        super().__init__(kind.dtype, kind.ndim, kind.layout, not kind.mutable, f"borrowed {kind.name}", kind.aligned)


@register_model(_Borrowed)
class _BorrowedModel(models.ArrayModel):
    def traverse(self, builder: Any) -> list[Any]:
        return []  # nothing to count


def _borrowed(typing_context: Any, kind: Any) -> Any:
    """`kind`, a tuple of arrays, numbers and such tuples, without counts of references to the arrays: the caller keeps
    them alive for as long as they are used. A count is an atomic operation each time that an array is taken out of a
    tuple, a quarter of an event in all. Views of the result are ordinary arrays, whose counts find no counter."""

    def copy(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _uncounted(context, builder, kind, args[0])

    return _uncounted_type(kind)(kind), copy


borrowed: Any = intrinsic(_borrowed)


def _uncounted_type(kind: Any) -> Any:
    if isinstance(kind, types.BaseTuple):
        return types.BaseTuple.from_types([_uncounted_type(part) for part in cast(Any, kind).types])
    return _Borrowed(kind) if isinstance(kind, types.Array) else kind


def _uncounted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Array):
        array = make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        parts = cgutils.unpack_tuple(builder, value, len(kind))
        parts = [_uncounted(context, builder, *part) for part in zip(cast(Any, kind).types, parts, strict=True)]
        return context.make_tuple(builder, _uncounted_type(kind), parts)
    return value


class _Object(types.Opaque):
    """Any object of Python, which compiled code passes on."""


AN_OBJECT = _Object("object")
TYPE_AT = object.__basicsize__ - tuple.__itemsize__  # bytes: an object's type is the last of its fields
register_model(_Object)(models.OpaqueModel)


@unbox(_Object)
def _unbox_object(_type: Any, value: Any, _context: Any) -> Any:
    return NativeValue(value)


def _numbers_of(_typing_context: Any, x: Any, names: Any, kinds: Any, bound: Any, out: Any) -> Any:
    """Fills the start of out with the values of the dict x by these names, a list; returns how many these are, or -1 if
    x lacks a name, or a value is of another type than kinds, a list, has there, or is not below the bound. An int is
    taken for a float. The caller holds the GIL: njit(nogil=False)."""

    def read(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        python, (x, names, kinds, bound, out) = context.get_python_api(builder), args
        floats, integers = map(python.get_c_object, ("PyFloat_Type", "PyLong_Type"))
        entries, n = make_array(signature.args[-1])(context, builder, out).data, python.list_size(names)
        two = ir.FunctionType(floats.type, [floats.type] * 2)
        get = cgutils.get_or_insert_function(builder.module, two, "PyDict_GetItemWithError")
        one, magnitude = ir.Constant(n.type, 1), builder.module.declare_intrinsic("llvm.fabs", [bound.type])
        found = cgutils.alloca_once_value(builder, ir.Constant(n.type, -1))
        with cgutils.for_range(builder, n) as loop:

            def unless(condition: Any) -> Any:
                return builder.if_then(builder.not_(condition), likely=False)

            value = builder.call(get, [x, python.list_getitem(names, loop.index)])  # borrowed references
            with unless(cgutils.is_not_null(builder, value)):
                python.err_clear()  # of a name that could not be compared
                loop.do_break()
            field = builder.gep(value, [ir.Constant(ir.IntType(64), TYPE_AT)])
            kind = builder.load(builder.bitcast(field, floats.type.as_pointer()))
            expected = python.list_getitem(kinds, loop.index)
            is_float = builder.icmp_unsigned("==", expected, floats)
            is_integer = builder.and_(is_float, builder.icmp_unsigned("==", kind, integers))
            with unless(builder.or_(builder.icmp_unsigned("==", kind, expected), is_integer)):
                loop.do_break()
            number = python.float_as_double(value)
            with unless(builder.icmp_unsigned("==", kind, floats)):
                with unless(cgutils.is_null(builder, python.err_occurred())):  # an int beyond float64
                    python.err_clear()
                    loop.do_break()
            with unless(builder.fcmp_ordered("<", builder.call(magnitude, [number]), bound)):  # NaN is not
                loop.do_break()
            entry = cgutils.gep_inbounds(builder, entries, loop.index)
            builder.store(builder.fptrunc(number, context.get_data_type(signature.args[-1].dtype)), entry)
            after = builder.add(loop.index, one)
            with builder.if_then(builder.icmp_signed("==", after, n)):
                builder.store(n, found)
        return builder.load(found)

    return types.intp(x, names, kinds, bound, out), read


numbers_of: Any = intrinsic(_numbers_of)
