"""Support vector machines for data that does not fit in memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamsvm._version import __version__
from streamsvm.parallel.imports import uncollected

if TYPE_CHECKING:
    from streamsvm.data.store import Store as Store
    from streamsvm.estimators.admm_hss import HSSSVC as HSSSVC
    from streamsvm.estimators.admm_hss import HSSSVR as HSSSVR
    from streamsvm.estimators.alfpgm import ALFPGMSVC as ALFPGMSVC
    from streamsvm.estimators.alfpgm import ALFPGMSVR as ALFPGMSVR
    from streamsvm.estimators.auto import AutoSVC as AutoSVC
    from streamsvm.estimators.budgeted import BudgetedSVC as BudgetedSVC
    from streamsvm.estimators.budgeted import BudgetedSVR as BudgetedSVR
    from streamsvm.estimators.cutting_plane import CuttingPlaneOneClassSVM as CuttingPlaneOneClassSVM
    from streamsvm.estimators.cutting_plane import CuttingPlaneRanker as CuttingPlaneRanker
    from streamsvm.estimators.cutting_plane import CuttingPlaneSVC as CuttingPlaneSVC
    from streamsvm.estimators.cutting_plane import CuttingPlaneSVR as CuttingPlaneSVR
    from streamsvm.estimators.dcsvm import DCSVC as DCSVC
    from streamsvm.estimators.dcsvm import DCSVR as DCSVR
    from streamsvm.estimators.dcsvm import DCOneClassSVM as DCOneClassSVM
    from streamsvm.estimators.recording import recording as recording
    from streamsvm.models.audit import audit as audit
    from streamsvm.models.files import load_model as load_model
    from streamsvm.train import graph_of as graph_of

_HOMES = {
    "AutoSVC": "streamsvm.estimators.auto",
    "Store": "streamsvm.data.store",
    "audit": "streamsvm.models.audit",
    "graph_of": "streamsvm.train",
    "load_model": "streamsvm.models.files",
    "recording": "streamsvm.estimators.recording",
}

__all__ = [
    "ALFPGMSVC",
    "ALFPGMSVR",
    "AutoSVC",
    "DCOneClassSVM",
    "DCSVC",
    "DCSVR",
    "HSSSVC",
    "HSSSVR",
    "BudgetedSVC",
    "BudgetedSVR",
    "CuttingPlaneOneClassSVM",
    "CuttingPlaneRanker",
    "CuttingPlaneSVC",
    "CuttingPlaneSVR",
    "Store",
    "__version__",
    "audit",
    "graph_of",
    "load_model",
    "recording",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: `import streamsvm` alone stays light."""
    home = _HOMES.get(name) or (None if name.startswith("_") else _estimators().get(name))
    if home is None:
        raise AttributeError(f"module 'streamsvm' has no attribute {name!r}")
    with uncollected():
        return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_estimators()])


def _estimators() -> dict[str, str]:
    """Module by name, of the solvers' rows."""
    from streamsvm.solvers.catalogue import estimators

    return estimators()
