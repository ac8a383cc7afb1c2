"""The catalogue of kernels: one row each, with all that must be known before loading one. A new kernel is a class and a
row here; configuration, command line, estimators, exporters and documentation read it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Literal, NamedTuple

from streamsvm.errors import ConfigError
from streamsvm.parallel.imports import whole_class

DefiniteKernel = Literal["rbf", "laplacian", "matern", "cauchy", "poly", "linear"]  # for type checkers
KernelName = Literal[DefiniteKernel, "sigmoid", "precomputed"]


class KernelRow(NamedTuple):
    """where: module:class. parameters: options of the section `kernel` that it reads, the fields of its class."""

    where: str
    formula: str
    parameters: tuple[str, ...] = ("gamma",)
    definite: bool = True  # positive semidefinite at any data and parameters
    is_linear: bool = False  # its features are the rows themselves
    merges: bool = False  # one point may replace several support vectors, see solvers.budget
    whole: bool = False  # values with all rows are given, so that no row can be scaled or left out


KERNELS = {
    "rbf": KernelRow("streamsvm.kernels.distance:RBF", "exp(-gamma |a-b|^2)", merges=True),
    "laplacian": KernelRow("streamsvm.kernels.distance:Laplacian", "exp(-gamma |a-b|_1)"),
    "matern": KernelRow(
        "streamsvm.kernels.distance:Matern",
        "p(s) exp(-s), s = sqrt(2 nu) gamma |a-b|, p = 1, 1 + s or 1 + s + s^2/3 for nu = 0.5, 1.5 or 2.5",
        ("gamma", "nu"),
    ),
    "cauchy": KernelRow("streamsvm.kernels.distance:Cauchy", "1 / (1 + gamma |a-b|^2)"),
    "poly": KernelRow("streamsvm.kernels.inner:Poly", "(gamma a'b + coef0)^degree", ("gamma", "degree", "coef0")),
    "sigmoid": KernelRow(
        "streamsvm.kernels.inner:Sigmoid", "tanh(gamma a'b + coef0)", ("gamma", "coef0"), definite=False
    ),
    "linear": KernelRow("streamsvm.kernels.inner:Linear", "a'b", (), is_linear=True),
    "precomputed": KernelRow(
        "streamsvm.kernels.inner:Precomputed",
        "rows are kernel values with all training rows",
        (),
        definite=False,
        is_linear=True,
        whole=True,
    ),
}


def kernel_row(name: str) -> KernelRow:
    """The row of the kernel with this name. Raises ValueError if there is none."""
    if name not in KERNELS:
        raise ValueError(f"found kernel {name!r}, expected one of {', '.join(kernel_names())}")
    return KERNELS[name]


def kernel_names() -> list[str]:
    """Names that the command line offers."""
    return [name for name, row in KERNELS.items() if not row.whole]


def given_kernels() -> list[str]:
    """Names of the kernels whose values are given by the user: estimators take them."""
    return [name for name, row in KERNELS.items() if row.whole]


def readers(parameter: str) -> list[str]:
    """Names of the kernels that read a parameter."""
    return [name for name, row in KERNELS.items() if parameter in row.parameters]


def parameters() -> set[str]:
    """The parameters of all kernels."""
    return {parameter for row in KERNELS.values() for parameter in row.parameters}


def mergers() -> list[str]:
    """Names of the kernels under which support vectors may be merged."""
    return [name for name, row in KERNELS.items() if row.merges]


def has_gamma(name: str) -> bool:
    """Whether a run's kernel has a gamma; assumed of kernels of later versions."""
    return "gamma" in KERNELS[name].parameters if name in KERNELS else bool(name)


def register(name: str, row: KernelRow) -> None:
    """Adds a custom kernel to those that come with the package. Raises ConfigError for what is wrong with it."""
    if name in KERNELS:
        raise ConfigError(f"there is a kernel {name!r} already; expected another name")
    if unknown := set(row.parameters) - parameters():
        expected = ", ".join(sorted(parameters()))
        raise ConfigError(f"kernel {name!r}: found parameter {min(unknown)!r}, expected some of {expected}")
    kernel = whole_class(row.where, f"kernel {name!r}: class")
    class_name = getattr(kernel, "name", None)
    class_fields = tuple(field.name for field in fields(kernel)) if is_dataclass(kernel) else ()
    if (class_name, class_fields) != (name, row.parameters):
        raise ConfigError(
            f"kernel {name!r}: found a class {row.where} of name {class_name!r} and fields {class_fields}, "
            f"expected this name, and a dataclass with fields {row.parameters} as its row says"
        )
    KERNELS[name] = row
