"""What a page of the reference lists of a class: members that this package defines and describes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from typing import Any

from streamsvm.solvers.catalogue import SOLVERS

VALUES = (property, cached_property)
GUIDES = {  # by the end of a class's name, the first that fits
    "AutoSVC": "choose",
    "BSGDClassifier": "stream",
    "BSGDMultiLabelClassifier": "stream",
    "BSGDRegressor": "stream",
    "BSGDOneClass": "stream",
    "SVC": "fit",
    "SVR": "regression",
    "Ranker": "fit",
    "OneClassSVM": "outliers",
    "Store": "data",
    "Model": "predict",
    "Intervals": "regression",
    "Importances": "explain",
    "Told": "explain",
    "SupportVector": "explain",
}


class Members:
    """For templates, which Sphinx keeps in its cache: so no plain functions."""

    def methods(self, fullname: str) -> list[str]:
        """Names of the public methods of streamsvm's own, in the order of their definition."""
        return [name for name, member in _members(fullname) if not isinstance(member, VALUES) and _is_ours(member)]

    def properties(self, fullname: str) -> list[str]:
        """Names of the public properties; those of a fit, `coef_`, are among the attributes of the class's text."""
        return [name for name, member in _members(fullname) if isinstance(member, VALUES) and name[-1] != "_"]

    def guides(self, fullname: str) -> list[str]:
        """Pages that show the class at work: of its task, and of its solver."""
        name = fullname.rpartition(".")[2]
        own = [
            f"/solvers/{solver}"
            for solver, row in SOLVERS.items()
            if any(e.endswith(f":{name}") for e in row.estimators)
        ]
        return [f"/guide/{page}" for ending, page in GUIDES.items() if name.endswith(ending)][:1] + own


def _members(fullname: str) -> Iterator[tuple[str, Any]]:
    module, _, name = fullname.rpartition(".")
    found: dict[str, Any] = {}
    for parent in getattr(import_module(module), name).__mro__:
        if parent.__module__.startswith("streamsvm"):
            found = {**found, **{k: v for k, v in vars(parent).items() if k not in found}}
    return ((k, v) for k, v in found.items() if k[0] != "_" and _is_described(v))


def _is_described(member: Any) -> bool:
    return bool(inspect.getdoc(member)) and (
        inspect.isroutine(member) or hasattr(member, "fn") or isinstance(member, VALUES)
    )


def _is_ours(member: Any) -> bool:
    function = getattr(member, "fn", None) or getattr(member, "__func__", member)
    return str(function.__module__).startswith("streamsvm")
