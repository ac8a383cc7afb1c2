"""scikit-learn's callbacks (its 1.9 and later) for estimators: each step of a solver is a task of the fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, Self, TypeVar

from sklearn.utils.metaestimators import available_if

from streamsvm.events import STEPS, Event, Record, Sink

T = TypeVar("T")


def _are_available(_: object) -> bool:
    if find_spec("sklearn.callback") is None:
        raise AttributeError("callbacks need scikit-learn 1.9 or newer")
    return True


def _support() -> Any:
    """Imported when it is needed: it brings rich."""
    from sklearn.callback import CallbackSupportMixin

    return CallbackSupportMixin


class CallbackSupport:
    """scikit-learn's `CallbackSupportMixin`, which is imported when one of its methods is called."""

    @available_if(_are_available)
    def set_callbacks(self, *callbacks: object) -> Self:
        """Sets callbacks that hear of each step of `fit`: `sklearn.callback.ProgressBar` and others.

        Needs scikit-learn 1.9. In the middle of a fit there is no estimator to score, and a wish to stop is not heard.
        """
        _support().set_callbacks(self, *callbacks)
        return self

    @available_if(_are_available)
    def _init_callback_context(self, *args: object, **options: object) -> Any:
        return _support()._init_callback_context(self, *args, **options)


def with_callback_sinks(estimator: Any, fit: Callable[[list[Sink]], T]) -> T:
    """Runs a fit with the estimator's callbacks, if it has any, as sinks of its events; its result."""
    if not (hasattr(estimator, "_skl_callbacks") or hasattr(estimator, "_parent_callback_ctx")):
        return fit([])
    from sklearn.callback import with_callbacks

    result: T = with_callbacks(_fit_as_tasks)(estimator, fit)
    return result


def _fit_as_tasks(estimator: Any, fit: Callable[[list[Sink]], T]) -> T:
    context = estimator._init_callback_context(max_subtasks=None)
    context.call_on_fit_task_begin(estimator=estimator)
    result = fit([partial(_step_as_task, estimator, context)])
    context.call_on_fit_task_end(estimator=estimator)
    return result


def _step_as_task(estimator: Any, context: Any, record: Record[Event]) -> None:
    """A step that was made, as a task that begins and ends."""
    if isinstance(record.event, STEPS):
        task = context.subcontext(task_name=record.event.kind)
        task.call_on_fit_task_begin(estimator=estimator)
        task.call_on_fit_task_end(estimator=estimator)
