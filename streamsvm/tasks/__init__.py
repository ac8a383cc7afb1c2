"""Tasks: a class for each, which defines all that is specific to it.

Configurations, fits, models, scores and exports call the task; none of them compares names. A task is one file and one
row here. It is imported on first use: help and configurations read the rows alone, without NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from streamsvm.errors import ConfigError
from streamsvm.parallel.imports import imported

if TYPE_CHECKING:
    from streamsvm.tasks.base import Task


class TaskRow(NamedTuple):
    """task: the task itself, or "module:class" to import it from. options: dotted names of options that only this and
    few other tasks read. searched: whether options can be chosen for it by fits on a sample. unread: options that most
    tasks read, and this one does not."""

    task: str | Task
    options: tuple[str, ...] = ()
    searched: bool = False
    unread: tuple[str, ...] = ()


# without labels there are no errors to weigh, and no margin that gives a loss its unit
UNREAD = tuple(
    "C holdout cutting_plane.bias cutting_plane.epsilon dcsvm.bias dcsvm.combine dcsvm.loss dcsvm.part_metric".split()
)
_TASKS = {
    "classify": TaskRow(
        "streamsvm.tasks.classify:Classify", ("nu", "multiclass", "bsgd.loss", "cutting_plane.loss"), searched=True
    ),
    "multilabel": TaskRow("streamsvm.tasks.multilabel:Multilabel", ("bsgd.loss", "cutting_plane.loss"), searched=True),
    "oneclass": TaskRow("streamsvm.tasks.oneclass:OneClass", ("nu",), unread=UNREAD),
    "ordinal": TaskRow("streamsvm.tasks.ordinal:Ordinal"),
    "rank": TaskRow("streamsvm.tasks.rank:Rank"),
    "regress": TaskRow(
        "streamsvm.tasks.regress:Regress", ("epsilon", "interval", "nu", "quantile", "scale_targets"), searched=True
    ),
}


def task_names() -> tuple[str, ...]:
    return tuple(_TASKS)


def task_options(name: str) -> tuple[str, ...]:
    """Dotted names of the options that this task reads, unlike most others."""
    return _TASKS[name].options


def task_unread(name: str) -> tuple[str, ...]:
    """Dotted names of the options that this task does not read, unlike others."""
    return _TASKS[name].unread


def task_of(name: str) -> Task:
    """The task of this name. Raises ConfigError if there is none."""
    if name not in _TASKS:
        raise ConfigError(f"found task {name!r}, expected one of {', '.join(_TASKS)}")
    row = _TASKS[name]
    if isinstance(row.task, str):
        row = _TASKS[name] = row._replace(task=imported(row.task)())
    return row.task  # type: ignore[return-value]  # a task by now


def task_for(config: Any) -> Task:
    """The task of a configuration, with its way to separate several classes. Raises ConfigError if there is none."""
    return task_of(config.task or default_task(config.solver, has_queries=False)).by(config.multiclass)


def is_searched(name: str) -> bool:
    """Whether options can be chosen for this task by fits on a sample."""
    return name in _TASKS and _TASKS[name].searched


def register(task: Task, options: tuple[str, ...] = ()) -> None:
    """Adds a custom task to those of the package. Raises ConfigError if its name is taken. options: dotted names of
    options that it reads, unlike most others."""
    if task.name in _TASKS:
        raise ConfigError(f"there is a task {task.name!r} already; expected another name")
    _TASKS[task.name] = TaskRow(task, options)


def default_task(solver: str, *, has_queries: bool) -> str:
    """The default task of a solver: ranking if rows have queries and it supports that, else classification."""
    from_queries = (task for task in map(task_of, task_names()) if task.needs_queries and task.goes_with(solver))
    return next((task.name for task in from_queries), "classify") if has_queries else "classify"
