"""The task of a fit, and whether labels, costs and probabilities suit it: checked before any row is read."""

from __future__ import annotations

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.labels import id_like_labels
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.models.calibration import are_odds
from streamsvm.options.costs import Costs
from streamsvm.tasks import default_task, task_of
from streamsvm.tasks.base import Task

MOST_FRACTIONS = 20  # different numbers that are not whole, among labels of classes


def with_task(config: FitConfig, store: Store) -> FitConfig:
    """The configuration with its task set: if it names none, the solver and query ids determine it."""
    task = config.task or default_task(config.solver, has_queries=store.has_qid)
    if config.task is None and not config.positive and task_of(task).has_classes and store.has_y:
        _require_labels(store, task_of(task))
    if config.probability.is_requested or config.probability.costs is not None:
        from streamsvm.judging.probabilities import require_supported

        known = config.probability.threshold is None or config.positive or not store.has_y
        require_supported(config.probability, task, 2 if known else len(store.classes.values))
    if (costs := config.probability.costs) is not None:
        _require_costs(costs, config, task_of(task), store)
    return config.model_copy(update={"task": task})


def _require_costs(costs: Costs, config: FitConfig, task: Task, store: Store) -> None:
    """Raises ConfigError if costs have no probabilities to weigh, or name unknown labels."""
    if config.probability.method is None and not are_odds(getattr(config.solver_options, "loss", None)):
        raise ConfigError("costs weigh probabilities, and the fit makes none: give --probability sigmoid, too")
    if store.has_y:
        known = np.array([0, 1]) if config.positive else task.classes_of(store.classes.values)
        task.costs(costs, known)


def _require_labels(store: Store, task: Task) -> None:
    """Raises DataError if labels are many numbers that are not whole, as those of a regression, or texts that look like
    ids."""
    different = store.classes.values
    k, where = len(different), store.url or "y"
    if task.in_sets:
        return
    if different.dtype.kind == "f" and k > MOST_FRACTIONS and np.any(different != np.round(different)):
        raise DataError(
            f"{where} holds {k:,} different numbers, as {different[0]:.6g}; expected labels of "
            "classes: give --task regress to predict numbers, or --task classify where they are labels"
        )
    if different.dtype.kind == "U" and (found := id_like_labels(store.classes)):
        raise DataError(
            f"{where} holds {found}; expected labels of classes, each of several rows: name their column "
            f"{'with --label, ' * (store.url is not None)}or give --task classify where they are labels"
        )
