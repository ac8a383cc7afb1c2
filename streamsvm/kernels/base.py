"""The base of kernels: values in float32 tiles and in float64, the diagonal, a gradient, and forms for
exporters; and the kernel of a configuration's options, whose gamma is a number."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from streamsvm.data.rows import Rows, varying
from streamsvm.errors import ConfigError, ModelError
from streamsvm.kernels import device
from streamsvm.kernels.device import DeviceRows
from streamsvm.kernels.table import KernelRow, kernel_names, kernel_row, parameters
from streamsvm.kernels.tiles import COLUMNS, Keep, Slopes, Tile, applied, filled, groups, height
from streamsvm.parallel.imports import imported
from streamsvm.parallel.strips import evenly, strips
from streamsvm.storage.arrays import Attrs

if TYPE_CHECKING:
    from streamsvm.config import KernelConfig

Sums = Callable[[Any, Rows], np.ndarray]  # of a `Kernel` or `Float64`, and rows: (m,) or (m, k)
SUM_ERROR = 1e-3  # of a sum over support rows, over a typical sum: the default tol
SUMS = 32  # rows at which it is measured
COARSE = 1e-3  # error of a value, over those that rows differ by, from which on float32 is not enough
AGREE = 0.25  # share of features without which products are so much faster that rows are copied
ESTIMATOR_PARAMETERS = ("gamma", "degree", "coef0")


class OnnxGraph(Protocol):
    """The part of `exchange.onnx.Graph` that kernels use: methods add operators, and return the names of results."""

    def op(self, kind: str, *inputs: str) -> str: ...

    def constant(self, value: object) -> str: ...

    def inner_products(self, x: str, rows: str) -> str: ...

    def sq_distances(self, x: str, rows: str) -> str: ...

    def l1_distances(self, x: str, rows: str) -> str: ...


@dataclass(frozen=True)
class Kernel(ABC):
    """K(a, b) of rows a (m, d) and b (q, d). A class for each name in `table`, whose fields are its parameters."""

    name: ClassVar[str]
    libsvm: ClassVar[str | None] = None  # its kernel_type in LIBSVM's files
    most: ClassVar[float] = 1e30  # of `largest`: sums of values times coefficients must stay below float32's 3e38
    on_device: ClassVar[bool] = False  # whether `values_on` and `gradients_on` are defined

    @property
    def row(self) -> KernelRow:
        return kernel_row(self.name)

    @property
    def is_linear(self) -> bool:
        """Whether its features are the rows themselves, so that sums over rows are rows."""
        return self.row.is_linear

    @property
    def is_zero_at_origin(self) -> bool:
        """Whether K(a, 0) = 0 for all a: without a bias f(0) = 0, whatever the rows are."""
        return False

    def to_attrs(self) -> Attrs:
        """Name and parameters, which `kernel_from` reads."""
        return {"name": self.name} | asdict(self)

    @property
    def operand(self) -> Hashable:
        """The key of `operand_tiles`: kernels with the same one share them."""
        return self

    def operand_tiles(self, b: Rows) -> Tile:
        """As `tiles`, of what the values are made of, for example inner products, whatever the parameters are."""
        return self.tiles(b)

    def finisher(self, b: Rows) -> Tile:
        """Makes float32 tiles of K(a, b) of those of `operand_tiles`, in place."""
        return _finished

    @abstractmethod
    def tiles(self, b: Rows) -> Tile:
        """Writes K(a, b) into float32 tiles; b is laid out once for many of them."""

    def float64_tiles(self, b: Rows) -> Tile:
        """Writes K(a, b) into float64 tiles, by default by `exact`."""
        b = b.astype(np.float64)

        def tile(a: Rows, out: np.ndarray) -> None:
            out[:] = self.exact(a, b)

        return tile

    @abstractmethod
    def exact(self, a: Rows, b: Rows) -> np.ndarray:
        """K(a, b), (m, q) float64 throughout; for small blocks."""

    @abstractmethod
    def diag(self, a: Rows) -> np.ndarray:
        """K(a_i, a_i), (m,) float64."""

    def largest(self, a: Rows) -> float:
        """The largest number that values of rows a are made of, at most `most`: beyond it float32 overflows."""
        return float(self.diag(a).max())

    @abstractmethod
    def gradient(self, a: Rows, b: Rows, coef: np.ndarray) -> np.ndarray:
        """sum_j coef_j dK(a_i, b_j) / da_i for coef (q,): (m, d) float64; for small blocks."""

    def block(self, a: Rows, b: Rows, threads: int = 1, out: np.ndarray | None = None) -> np.ndarray:
        """K(a, b), (m, q) float32, written into `out` if it is given."""
        out = np.empty((len(a), len(b)), np.float32) if out is None else out
        values = device.block(self, a, b, out)
        return filled(self.tiles(b), a, out, threads) if values is None else values

    def apply(self, a: Rows, b: Rows, coef: np.ndarray, threads: int = 1, keep: Keep | None = None) -> np.ndarray:
        """K(a, b) @ coef for coef (q,) or (q, k): (m,) or (m, k) float64; the block is never formed. keep(columns,
        first row, tile) is called with each tile of the block. Raises ConfigError if values are beyond float32."""
        out = None if keep else device.sums(self, a, b, coef)
        if out is None and not keep:
            out = self.near_sums(a, b, coef, threads)
        if out is None:
            out = applied(self.tiles, a, b, coef, threads, keep)
        self._check_finite(out)
        return out

    def near_sums(
        self, a: Rows, b: Rows, coef: np.ndarray, threads: int = 1, dtype: type = np.float32
    ) -> np.ndarray | None:
        """K(a, b) @ coef as of `apply`, from values of this dtype between rows that are near each other; None if the
        others are not negligible."""
        return None

    def in_float64(self) -> Float64:
        """The same kernel, whose values and sums are float64."""
        return Float64(self)

    def for_sums(self, rows: Rows, coef: np.ndarray, sums: Sums | None = None) -> Kernel | Float64:
        """This kernel; or in float64, if float32 sums over these rows, coef (q,) or (q, k), are wrong by `SUM_ERROR`.
        Measured at some of the rows, unless the coefficients are too small for that. sums: the sums of a kernel at rows
        a, by default K(a, rows) @ coef."""
        if self.float32_error(rows) * float(np.linalg.norm(coef)) < 0.1 * SUM_ERROR:
            return self
        some = rows.take(evenly(len(rows), SUMS))
        sums = sums or (lambda kernel, a: kernel.apply(a, rows, coef))
        exact = sums(self.in_float64(), some)
        error = np.abs(sums(self, some) - exact).max(axis=0)
        return self if np.all(error <= SUM_ERROR * np.median(np.abs(exact), axis=0)) else self.in_float64()

    def distinguishing(self, *blocks: Rows) -> list[Rows]:
        """Blocks of rows with the same values between any two rows, without features that do not count for these."""
        return list(blocks)

    def float32_error(self, rows: Rows) -> float:
        """About the largest error of float32 values between rows like these."""
        return 2.0**-23 * float(self.diag(rows).max(initial=0.0)) + self.rounding(float(rows.sq_norms.max(initial=0.0)))

    def gradients(self, a: Rows, b: Rows, coef: np.ndarray, threads: int = 1) -> np.ndarray:
        """sum_j coef[j, c] dK(a_i, b_j) / da_i for coef (q,) or (q, k): (m, d) or (k, m, d) float32, by tiles.

        The block is never formed. Kernels of distances have differences of sums, sum_j w_j a_i - sum_j w_j b_j, w being
        slopes times coefficients: their rounding is about 2^-20 of sum_j |w_j| (|a_i| + |b_j|), and slopes are as exact
        as values. So rows far from the origin should be moved there first, as scaling does. Raises ConfigError where
        values are beyond float32."""
        columns, computed = np.atleast_2d(coef.T), device.gradients(self, a, b, coef)
        if computed is not None:
            self._check_finite(computed)
            return computed
        out = np.zeros((len(columns), len(a), a.d), np.float32)
        for first in range(0, len(b), COLUMNS):
            part = b.take(slice(first, first + COLUMNS))
            part_columns = columns[:, first : first + COLUMNS]
            for group in groups(part_columns, part):
                self._add_gradients(a, part, part_columns[group], out[group], threads)
        self._check_finite(out)
        return out.reshape(*coef.shape[1:], len(a), a.d)

    def _add_gradients(self, a: Rows, b: Rows, columns: np.ndarray, out: np.ndarray, threads: int) -> None:
        add = self.slopes(b, columns)
        wide = 2 if b.is_sparse else 1  # entries are read one by one, each with a whole strip
        most = wide * height(len(b), a.d)
        strips(lambda start, stop: add(a.take(slice(start, stop)), out[:, start:stop]), len(a), most, threads)

    def slopes(self, b: Rows, coef: np.ndarray) -> Slopes:
        """Adds gradients, of coef (k, q), to float32 arrays (k, h, d); by default from `gradient`, in float64."""

        def add(a: Rows, out: np.ndarray) -> None:
            for column, gradient in zip(coef, out, strict=True):
                gradient += self.gradient(a, b, column)

        return add

    def _check_finite(self, out: np.ndarray) -> None:
        if not np.isfinite(out).all():
            raise ConfigError(
                f"values of the {self.name} kernel are beyond float32: scale the features, or take a smaller "
                "gamma, degree or C"
            )

    def device_values(self, xp: Any, a: DeviceRows, b: DeviceRows) -> Any:
        """K(a, b), (m, q), of arrays of a device, whose namespace is xp; for kernels that are `on_device`."""
        raise NotImplementedError(self.name)

    def device_gradients(self, xp: Any, a: DeviceRows, b: DeviceRows, coef: Any) -> Any:
        """As `gradients`, of arrays of a device, for coef (q, k): (k, m, d)."""
        raise NotImplementedError(self.name)

    def support(self, rows: Rows, ids: np.ndarray) -> Rows:
        """The rows that models keep for these positions among all training rows."""
        return rows.take(ids)

    @classmethod
    def typical_gamma(cls, d: int, variance: float) -> float:
        """gamma "scale" of d features whose variances add up to this, "auto" at a variance of d: scikit-learn's. The
        kernel is then the same at any unit of the features."""
        return 1.0 / variance

    def rounding(self, sq_norm: float) -> float:
        """Error of values at rows with squared norms this large that a shift to the origin would avoid."""
        return 0.0

    def is_coarse(self, before: float, after: float) -> bool:
        """Whether float32 values of rows with this squared norm no longer distinguish the rows. after: the squared norm
        of the same rows moved to the origin."""
        return self.rounding(before) > COARSE

    def shortfall(self, differences: np.ndarray) -> np.ndarray:
        """1 - k(t), in [0, 1], of differences t in one feature each, where K(a, b) = prod_f k(a_f - b_f). Raises
        ModelError if K is not such a product."""
        products = (name for name in kernel_names() if kernel_class(name).shortfall is not Kernel.shortfall)
        raise ModelError(
            f"Shapley values are those of kernels that are products over features, {' and '.join(products)}; "
            f"the model's is {self.name}: leave Shapley values out, which leaves gradients and support vectors"
        )

    def onnx(self, graph: OnnxGraph, x: str, rows: str) -> str:
        """K(x, rows), (N, s), of float64 x (N, d) and rows (s, d), as operators of the graph. Raises ModelError if
        there are none for it."""
        names = ", ".join(name for name in kernel_names() if has_graph(name))
        raise ModelError(f"the {self.name} kernel has no ONNX graph; fit with one of {names}")


@dataclass(frozen=True)
class Stationary(Kernel):
    """A kernel of a - b that is 1 at 0 and less elsewhere."""

    gamma: float = 1.0

    def diag(self, a: Rows) -> np.ndarray:
        return np.ones(len(a))

    @abstractmethod
    def reach(self, a: Rows) -> float:
        """The largest value of gamma times distance (or squared distance) from the origin to these rows."""

    def distinguishing(self, *blocks: Rows) -> list[Rows]:
        """The blocks without features in which all rows agree, if these are a quarter or more of them."""
        return varying(blocks, AGREE)

    def widened(self) -> Self:
        """The kernel at twice the length."""
        return replace(self, gamma=self.gamma / 2**self._gamma_power)

    def median_gamma(self, a: Rows, b: Rows) -> float:
        """The gamma at which half of all pairs of rows have values above 1/e; 1 where these are all the same. Unlike
        "scale" it does not depend on how the variance is shared among columns."""
        values = self.exact(a, b)
        at = int(np.argpartition(values, values.size // 2, axis=None)[values.size // 2])
        one, other = _difference(a.take(np.array([at // len(b)])), b.take(np.array([at % len(b)])))
        if values.flat[at] >= 1.0 or not one.d:
            return 1.0
        low, high = 0.0, self.gamma
        while float(replace(self, gamma=high).exact(one, other)[0, 0]) > 1 / math.e:
            low, high = high, 2 * high
        for _ in range(30):
            middle = 0.5 * (low + high)
            above = float(replace(self, gamma=middle).exact(one, other)[0, 0]) > 1 / math.e
            low, high = (middle, high) if above else (low, middle)
        return 0.5 * (low + high)

    _gamma_power: ClassVar[int] = 1  # gamma is that power of an inverse length


def _difference(a: Rows, b: Rows) -> tuple[Rows, Rows]:
    """The difference a - b of two rows, and the origin, at the same distance: dense, without columns of zeros."""
    difference = a.astype(np.float64).dense() - b.astype(np.float64).dense()
    nonzero = difference[:, difference[0] != 0]
    return Rows(nonzero), Rows(np.zeros_like(nonzero))


def _finished(a: Rows, tile: np.ndarray) -> None:
    """For kernels whose operands are their values."""


def composed(operands: Tile, finish: Tile) -> Tile:
    """Tiles of values, from those of operands and a finisher."""

    def tile(a: Rows, out: np.ndarray) -> None:
        operands(a, out)
        finish(a, out)

    return tile


def joined(kernels: Sequence[Kernel], counts: Sequence[int]) -> Kernel:
    """One kernel for the second rows of several kernels of one class, one after another: each parameter that differs
    has a value for each row. counts: how many rows are of each."""
    columns = {name: [kernel.to_attrs()[name] for kernel in kernels] for name in kernels[0].to_attrs()}
    differing = {name: column for name, column in columns.items() if len(set(column)) > 1}
    values: dict[str, Any] = {name: np.repeat(column, counts) for name, column in differing.items()}
    return replace(kernels[0], **values)


def inner_products(a: Rows, b: Rows, dtype: type) -> np.ndarray:
    """a @ b', (m, q) of this dtype; for small blocks."""
    out = a.astype(dtype).X @ b.astype(dtype).X.T
    return out if isinstance(out, np.ndarray) else out.toarray()


def kernel_class(name: str) -> type[Kernel]:
    """The class of the kernel with this name. Raises ValueError if there is none."""
    return imported(kernel_row(name).where)


def kernel_from(attrs: Attrs) -> Kernel:
    """The kernel of a name and its parameters; those of other kernels are ignored. Raises ValueError, KeyError."""
    kernel = kernel_class(attrs["name"])
    if unknown := attrs.keys() - parameters() - {"name"}:
        expected = ", ".join(sorted(parameters()))
        raise ValueError(f"found kernel parameter {min(unknown)!r}, expected one of {expected}")
    return kernel(**{field.name: attrs[field.name] for field in fields(kernel)})


def has_graph(name: str) -> bool:
    """Whether the kernel with this name has an ONNX graph."""
    return kernel_class(name).onnx is not Kernel.onnx


@dataclass(frozen=True)
class Float64:
    """A kernel whose values and sums are float64, where float32 is not enough; several times slower."""

    kernel: Kernel

    @property
    def on_device(self) -> bool:
        return self.kernel.on_device

    def diag(self, a: Rows) -> np.ndarray:
        return self.kernel.diag(a)

    def block(self, a: Rows, b: Rows, threads: int = 1, out: np.ndarray | None = None) -> np.ndarray:
        """K(a, b), (m, q) float64."""
        out = np.empty((len(a), len(b))) if out is None else out
        values = device.block(self.kernel, a, b, out)
        return filled(self.kernel.float64_tiles(b), a, out, threads) if values is None else values

    def apply(self, a: Rows, b: Rows, coef: np.ndarray, threads: int = 1, keep: Keep | None = None) -> np.ndarray:
        """K(a, b) @ coef for coef (q,) or (q, k): (m,) or (m, k) float64. keep: as `Kernel.apply`."""
        out = None if keep else device.sums(self.kernel, a, b, coef, np.float64)
        if out is None and not keep:
            out = self.kernel.near_sums(a, b, coef, threads, np.float64)
        return applied(self.kernel.float64_tiles, a, b, coef, threads, keep, np.float64) if out is None else out


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
