"""Building blocks of options: types that validate a value, the base of tables of options, and of a solver's table.

Options whose values are names take a literal, or the names of a table that may grow (`OneOf`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import CoreSchema, core_schema

from streamsvm.kernels.table import KERNELS, given_kernels, kernel_names, kernel_row
from streamsvm.parallel import devices
from streamsvm.storage.text import names_in, parse_time

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

    from streamsvm.tasks.base import Task

SIZE_UNITS = {"b": 1} | {
    prefix + unit: base**power
    for unit, base in (("b", 1000), ("ib", 1024))
    for power, prefix in enumerate("kmgt", start=1)
}


def parse_size(value: int | str) -> int:
    """Bytes of a memory size: `2GiB`, `500MB`, `1.5 gib` or a number of bytes. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b)?", str(value).strip().lower())
    unit = match and (match[2] or "b")
    if isinstance(value, bool | float) or match is None or unit not in SIZE_UNITS:
        raise ValueError("expected a memory size like 2GiB or 500MB, or a number of bytes")
    return int(float(match[1]) * SIZE_UNITS[unit]) if "." in match[1] else int(match[1]) * SIZE_UNITS[unit]


def _plain_number(value: object) -> object:
    """A NumPy scalar as a Python number. Booleans are not numbers."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool | str | bytes):
        raise ValueError("expected a number")
    return value


def _gamma(value: object) -> object:
    if isinstance(value, str):
        if value not in ("scale", "auto"):
            raise ValueError("expected a number above 0, 'scale' or 'auto'")
        return value
    number = _plain_number(value)
    if not isinstance(number, int | float) or not 0 < number < float("inf"):
        raise ValueError("expected a number above 0, 'scale' or 'auto'")
    return float(number)


def _smoothness(nu: float) -> float:
    if nu not in (0.5, 1.5, 2.5):
        raise ValueError("expected 0.5, 1.5 or 2.5")
    return nu


def _class_weight(value: object) -> object:
    if value is None or value == "balanced":
        return value
    if not isinstance(value, Mapping) or not value:
        raise ValueError("expected 'balanced' or a table of label = weight")
    weights = {}
    for label, given in value.items():
        weight = _plain_number(given)
        if not isinstance(weight, int | float) or not 0 < weight < float("inf"):
            raise ValueError("expected weights above 0")
        weights[str(label)] = float(weight)
    return weights


def _every(value: object) -> object:
    """Seconds as a number, steps as text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)s?|([1-9]\d*) ?steps?", str(value).strip())
    if isinstance(value, bool) or match is None:
        raise ValueError("expected seconds like 30 or 2.5s, or steps like '5 steps'")
    return f"{match[2]} steps" if match[2] else float(match[1])


def _labels(value: object) -> object:
    values = names_in(value) if isinstance(value, str) else value
    if not isinstance(values, list | tuple):
        values = (values,)
    labels = tuple(str(label).strip() for label in values)
    if not all(labels) or len(set(labels)) != len(labels):
        raise ValueError("expected labels, each named once")
    return labels


Real = Annotated[float, BeforeValidator(_plain_number), Field(allow_inf_nan=False)]


def _device(name: str) -> str:
    if not devices.NAMES.fullmatch(name):
        raise ValueError(f"expected {devices.EXPECTED}")
    return name


Whole = Annotated[int, BeforeValidator(_plain_number)]
Gamma = Annotated[float | Literal["scale", "auto"], BeforeValidator(_gamma)]
Count = Annotated[Whole, Field(ge=1)] | None
Size = Annotated[int, BeforeValidator(parse_size), Field(json_schema_extra={"format": "size"})]
Bytes = Annotated[Size, Field(gt=0)] | None
DeviceName = Annotated[str, AfterValidator(_device)]
Labels = Annotated[tuple[str, ...], BeforeValidator(_labels)]
ClassWeight = Annotated[dict[str, float] | Literal["balanced"] | None, BeforeValidator(_class_weight)]
Every = Annotated[float | str, BeforeValidator(_every)]
Time = Annotated[float, BeforeValidator(parse_time)]
Fill = Literal["mean", "median", "most_frequent", "refuse"]
Gaps = Annotated[
    Fill | None,
    Field(
        description="Fill for missing values (NaN), saved in the model: a column's mean, median or most_frequent "
        "value, or refuse them (default: mean, if the table was ingested with gaps)"
    ),
]
MarkGaps = Annotated[
    bool, Field(description="Add an indicator for each column with missing values: 1 if filled, else 0")
]
Scale = Literal["none", "minmax", "standard", "maxabs", "robust", "quantile"]


class Options(BaseModel):
    """A table of options. Frozen; unknown options are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class KernelConfig(Options):
    __doc__ = f"k(a, b): {'; '.join(f'{name} {KERNELS[name].formula}' for name in kernel_names())}."

    name: Annotated[
        Annotated[str, OneOf(lambda: tuple(kernel_names()), tuple(given_kernels()))], Field(description="Kernel")
    ] = "rbf"
    gamma: Annotated[
        Gamma, Field(description="Number, 'scale' (1 / (d var(X)), independent of the units of X) or 'auto' (1 / d)")
    ] = "scale"
    degree: Annotated[Whole, Field(ge=1, description="Degree of the polynomial")] = 3
    coef0: Annotated[Real, Field(description="Constant term of poly (at least 0) and sigmoid")] = 0.0
    nu: Annotated[Real, AfterValidator(_smoothness), Field(description="Smoothness of matern: 0.5, 1.5 or 2.5")] = 1.5

    @field_validator("coef0")
    @classmethod
    def _keeps_definite(cls, coef0: float, info: ValidationInfo) -> float:
        if coef0 < 0 and kernel_row(info.data.get("name", "rbf")).definite:
            raise ValueError("expected a number at least 0")
        return coef0


class ReadRule(NamedTuple):
    """An option (its dotted name), the fits that read it, in words, and the option that decides whether it is read."""

    option: str
    readers: str
    decider: str
    reads: Callable[[Any], bool]  # of the decider's value


class SolverOptions(Options):
    """The options of a solver, named in its row of the catalogue. rules: options that it reads only with certain values
    of its other options. parameters: names of options in estimators, if they differ."""

    rules: ClassVar[tuple[ReadRule, ...]] = ()
    parameters: ClassVar[Mapping[str, str]] = {}

    def has_bias(self, *, zero_at_origin: bool) -> bool:
        """Whether decision values have a constant without a penalty, y'a = 0 in the dual, whatever the task.
        zero_at_origin: of the kernel, K(a, 0) = 0."""
        return False

    def require(self, kernel: KernelConfig) -> None:
        """Raises ValueError, if the solver is selected, for a kernel that these options do not support."""

    def require_task(self, task: Task) -> None:
        """Raises ConfigError, if the solver is selected, for a task that these options do not support."""


@dataclass(frozen=True)
class OneOf:
    """Marks text as one of the names of a table, which is read at each validation. unlisted: further names that are
    accepted but not listed; the caller interprets them."""

    names: Callable[[], tuple[str, ...]]
    unlisted: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._known, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        return {"type": "string", "enum": list(self.names())}

    def _known(self, value: object) -> object:
        if value not in (*self.names(), *self.unlisted):
            *first, last = map(repr, self.names())
            raise ValueError(f"expected {', '.join(first)} or {last}")
        return value


def choices(kind: object) -> tuple[str, ...]:
    """The values that a type lists."""
    if isinstance(kind, OneOf):
        return kind.names()
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(value for member in get_args(kind) for value in choices(member))
