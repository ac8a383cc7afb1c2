"""Fits whose model must go into a format of other systems: options that keep it out are refused, choices leave them
out."""

from __future__ import annotations

from streamsvm.config import FitConfig
from streamsvm.errors import ConfigError
from streamsvm.kernels.base import has_graph, kernel_class
from streamsvm.kernels.table import kernel_names
from streamsvm.tasks.base import Task


def takes_kernel(config: FitConfig, name: str) -> bool:
    """Whether a model with the kernel of this name goes into the format that it must go into, if any."""
    if config.must_export is None:
        return True
    return has_graph(name) if config.must_export == "onnx" else kernel_class(name).libsvm is not None


def require_exportable(config: FitConfig, task: Task) -> None:
    """Raises ConfigError for an option with which no model goes into the format that it must go into."""
    if config.must_export is None:
        return
    given = f"must_export is {config.must_export!r}, a format"
    if "kernel" not in config.search.chosen and not takes_kernel(config, config.kernel.name):
        expected = ", ".join(name for name in kernel_names() if takes_kernel(config, name))
        raise ConfigError(f"{given} of kernels {expected}; found kernel.name {config.kernel.name!r}")
    early = config.dcsvm.early
    obstacles = {
        "onnx": {f"dcsvm.combine {config.dcsvm.combine!r}": early and config.dcsvm.combine != "nearest"},
        "libsvm": {
            "dcsvm.early": early,
            "bsgd.partitions": config.bsgd.partitions > 1,
            "scale 'quantile'": config.scale == "quantile",
            "mark_gaps": config.mark_gaps,
            "search.ensemble": config.search.has_ensemble,
            "metric.kind 'full'": config.metric.kind == "full",
            f"task {task.name}": task.in_sets,
        },
    }
    if found := [name for name, keeps_out in obstacles[config.must_export].items() if keeps_out]:
        raise ConfigError(f"{given} that cannot express {found[0]}: leave one of them out")
