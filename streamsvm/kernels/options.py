"""From the options of a kernel to the kernel, whose gamma is a number; and back to arguments of an estimator."""

from __future__ import annotations

from typing import Any

from streamsvm.config import KernelConfig
from streamsvm.kernels.base import Kernel, kernel_class, kernel_from
from streamsvm.kernels.table import kernel_row

ESTIMATOR_PARAMETERS = ("gamma", "degree", "coef0")


def needs_variance(options: KernelConfig) -> bool:
    """Whether gamma comes from the rows."""
    return options.gamma == "scale" and "gamma" in kernel_row(options.name).parameters


def kernel_of(options: KernelConfig, d: int, total: float | None = None) -> Kernel:
    """The kernel of these options for rows of d features; total: d times their variance, where it `needs_variance`."""
    gamma = options.gamma
    if not isinstance(gamma, float):
        total = float(d) if gamma == "auto" or total is None else total
        gamma = kernel_class(options.name).typical_gamma(d, total) if total > 0 else 1.0
    return kernel_from(options.model_dump() | {"gamma": gamma})


def as_arguments(kernel: Kernel) -> dict[str, Any]:
    """The arguments of an estimator with this kernel: those without a parameter go into kernel_params."""
    attrs = kernel.to_attrs()
    arguments = {"kernel": attrs.pop("name")}
    arguments |= {name: attrs.pop(name) for name in ESTIMATOR_PARAMETERS if name in attrs}
    return arguments | {"kernel_params": attrs or None}
