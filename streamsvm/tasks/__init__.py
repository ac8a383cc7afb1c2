"""What is learned: a class for each task, which says all that is true of it alone.

Configurations, fits, models, scores and exports ask the task; none of them compares names. A task is one file and one
line here. It is loaded when it is first asked for: names alone, for help and configurations, need no NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from streamsvm.errors import ConfigError

if TYPE_CHECKING:
    from streamsvm.tasks.base import Task

_TASKS: dict[str, str | Task] = {
    "classify": "streamsvm.tasks.classify:Classify",
    "ordinal": "streamsvm.tasks.ordinal:Ordinal",
    "rank": "streamsvm.tasks.rank:Rank",
    "regress": "streamsvm.tasks.regress:Regress",
}


def task_names() -> tuple[str, ...]:
    return tuple(_TASKS)


def task_of(name: str) -> Task:
    """The task of this name. Raises ConfigError where there is none."""
    if name not in _TASKS:
        raise ConfigError(f"found task {name!r}, expected one of {', '.join(_TASKS)}")
    found = _TASKS[name]
    if isinstance(found, str):
        module, _, kind = found.partition(":")
        found = _TASKS[name] = getattr(import_module(module), kind)()
    return found


def register(task: Task) -> None:
    """Adds a task of its own to those that come with the package. Raises ConfigError where its name is taken."""
    if task.name in _TASKS:
        raise ConfigError(f"there is a task {task.name!r} already; expected another name")
    _TASKS[task.name] = task


def default_task(solver: str, *, has_queries: bool) -> str:
    """What a solver learns where nobody says: from queries, where rows have them and it can, else classes."""
    from_queries = (
        task for task in map(task_of, task_names()) if task.needs_queries and task.goes_with(solver)
    )
    return next((task.name for task in from_queries), "classify") if has_queries else "classify"
