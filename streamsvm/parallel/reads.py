"""Tasks of a cluster that make some of their arguments for themselves: values that workers have no room to keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from streamsvm.parallel.engine import Later, name_of

# what makes an argument of others; None: it is given
Form = tuple[Callable[..., Any], tuple[Any, ...]] | None


class Reading:
    """A task that makes some of its arguments for itself; forms: of each argument of fn."""

    def __init__(self, fn: Callable[..., Any], forms: Sequence[Form]) -> None:
        self._fn, self._forms, self.__name__ = fn, forms, name_of(fn)

    def __call__(self, *given: Any) -> Any:
        left = iter(given)
        return self._fn(*(_made(form, left) for form in self._forms))


def _made(form: Form, given: Iterator[Any]) -> Any:
    return next(given) if form is None else form[0](*(_made(own, given) for own in form[1]))


def _form(arg: Any) -> Form:
    return (arg.read, tuple(map(_form, arg.args))) if isinstance(arg, Later) else None


def _given(args: Iterable[Any]) -> Iterator[Any]:
    """What tasks are given of these arguments, those of `Later` in its place."""
    for arg in args:
        if isinstance(arg, Later):
            yield from _given(arg.args)
        else:
            yield arg


def with_reads(
    fn: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]
) -> tuple[Callable[..., Any], Sequence[tuple[Any, ...]]]:
    """As it is, or where jobs have values that are to be read, all of them alike: one task reads and uses them."""
    if not any(isinstance(arg, Later) for arg in next(iter(jobs), ())):
        return fn, jobs
    return Reading(fn, [_form(arg) for arg in jobs[0]]), [tuple(_given(job)) for job in jobs]
