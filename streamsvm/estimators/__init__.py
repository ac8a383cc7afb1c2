"""Estimators that follow scikit-learn.

scikit-learn imports pandas wherever it is installed (`utils/fixes.py`) and since 1.8 does not need it there: data
frames come from callers who have imported pandas. It is a fifth of the time of `from streamsvm import DCSVC`, so where
this package is what brings scikit-learn in, the thread that does so finds no pandas for that moment.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.metadata import version
from threading import get_ident


class _HiddenPandas(MetaPathFinder):
    """This thread finds no pandas; others do."""

    def __init__(self) -> None:
        self._thread = get_ident()

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas" and get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


if "sklearn" not in sys.modules and tuple(map(int, version("scikit-learn").split(".")[:2])) >= (1, 8):
    sys.meta_path.insert(0, finder := _HiddenPandas())
    try:
        import_module("sklearn.base")
    finally:
        sys.meta_path.remove(finder)
