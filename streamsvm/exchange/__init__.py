"""Models for and from other systems: LIBSVM's text format, ONNX, MLflow."""

from __future__ import annotations

from streamsvm.errors import ModelError
from streamsvm.models.base import Model
from streamsvm.models.shapes import Expansion
from streamsvm.tasks import task_of


def expansion(model: Model) -> Expansion:
    """The sums behind a model's decision values. Raises ModelError for models that have none, with the reason."""
    require_two_classes(model)
    return model.as_expansion()


def require_two_classes(model: Model) -> None:
    """Raises ModelError for a classifier that knows fewer."""
    task = task_of(model.task)
    if task.has_labels and not task.in_sets and len(model.classes) < 2:
        problem = f"the model knows {len(model.classes)} classes so far"
        raise ModelError(f"{problem}, an export needs two: train it on more rows")
