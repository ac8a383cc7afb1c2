"""Every option of a fit, its range and its default; read from TOML, flags and `--set`.

A configuration is built from layers, later ones winning, so that an error can say where its value came from.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from streamsvm.choices import OneOf, choices
from streamsvm.errors import ConfigError, NotFoundError
from streamsvm.kernels.table import KERNELS, given_kernels, kernel_names, kernel_row, mergers
from streamsvm.tasks import task_names, task_of

Layer = tuple[str, Mapping[str, Any]]
Model = TypeVar("Model", bound=BaseModel)

INDEFINITE = ("alfpgm",)  # solvers whose steps end under kernels that are not positive semidefinite too
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


def _plain_number(value: Any) -> Any:
    """A NumPy scalar as the Python number it holds; booleans are no numbers."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool | str | bytes):
        raise ValueError("expected a number")
    return value


def _gamma(value: Any) -> Any:
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


def _class_weight(value: Any) -> Any:
    if value is None or value == "balanced":
        return value
    if not isinstance(value, Mapping) or not value:
        raise ValueError("expected 'balanced' or a table of label = weight")
    weights = {str(label): _plain_number(weight) for label, weight in value.items()}
    if not all(isinstance(w, int | float) and 0 < w < float("inf") for w in weights.values()):
        raise ValueError("expected weights above 0")
    return {label: float(weight) for label, weight in weights.items()}


def _every(value: Any) -> Any:
    """Seconds as a number, steps as text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)s?|([1-9]\d*) ?steps?", str(value).strip())
    if isinstance(value, bool) or match is None:
        raise ValueError("expected seconds like 30 or 2.5s, or steps like '5 steps'")
    return f"{match[2]} steps" if match[2] else float(match[1])


def _labels(value: Any) -> Any:
    values = value.split(",") if isinstance(value, str) else value
    if not isinstance(values, list | tuple):
        values = (values,)
    labels = tuple(str(label).strip() for label in values)
    if not all(labels) or len(set(labels)) != len(labels):
        raise ValueError("expected labels, each named once")
    return labels


Real = Annotated[float, BeforeValidator(_plain_number), Field(allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_plain_number)]
Gamma = Annotated[float | Literal["scale", "auto"], BeforeValidator(_gamma)]
Count = Annotated[Whole, Field(ge=1)] | None
Size = Annotated[int, BeforeValidator(parse_size), Field(json_schema_extra={"format": "size"})]
Bytes = Annotated[Size, Field(gt=0)] | None
Labels = Annotated[tuple[str, ...], BeforeValidator(_labels)]
ClassWeight = Annotated[dict[str, float] | Literal["balanced"] | None, BeforeValidator(_class_weight)]
Every = Annotated[float | str, BeforeValidator(_every)]
Scale = Literal["none", "minmax", "standard", "maxabs"]
TaskName = Annotated[str, OneOf(task_names)]


class Resolved(dict[str, Any]):
    """Every option of a model, asked for or a default."""


class Options(BaseModel):
    """A table of options: frozen, and unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class KernelConfig(Options):
    __doc__ = f"k(a, b): {'; '.join(f'{name} {KERNELS[name].formula}' for name in kernel_names())}."

    name: Annotated[
        Annotated[str, OneOf(lambda: tuple(kernel_names()), tuple(given_kernels()))],
        Field(description="Kernel"),
    ] = "rbf"
    gamma: Annotated[
        Gamma,
        Field(
            description="Number, 'scale' (so that units of X do not matter: 1 / (d var(X))) or 'auto' (1 / d)"
        ),
    ] = "scale"
    degree: Annotated[Whole, Field(ge=1, description="Degree of the polynomial")] = 3
    coef0: Annotated[Real, Field(description="Constant inside poly, at least 0, and sigmoid")] = 0.0
    nu: Annotated[
        Real, AfterValidator(_smoothness), Field(description="Smoothness of matern: 0.5, 1.5 or 2.5")
    ] = 1.5

    @field_validator("coef0")
    @classmethod
    def _keeps_definite(cls, coef0: float, info: ValidationInfo) -> float:
        if coef0 < 0 and kernel_row(info.data.get("name", "rbf")).definite:
            raise ValueError("expected a number at least 0")
        return coef0


class DCSVMConfig(Options):
    """Divide and conquer (Hsieh, Si and Dhillon 2014)."""

    early: Annotated[bool, Field(description="Stop at a level; each part predicts its own rows")] = False
    children: Annotated[Whole, Field(ge=2, description="Parts that a part is divided into")] = 4
    levels: Annotated[Count, Field(description="Levels of division; else from n")] = None
    early_level: Annotated[Count, Field(description="Level of early prediction; else from n")] = None
    sample: Annotated[Whole, Field(ge=2, description="Rows that k-means clusters")] = 1000
    clustering: Annotated[Literal["kernel", "input"], Field(description="Space of k-means")] = "input"
    part_rows: Annotated[Count, Field(description="Most rows of a part; else from the memory limit")] = None
    adaptive: Annotated[bool, Field(description="Sample k-means rows among the support vectors")] = True
    refine: Annotated[bool, Field(description="Solve on level 1's support vectors before the top")] = True
    combine: Annotated[
        Literal["nearest", "naive", "committee"], Field(description="How parts predict together, with early")
    ] = "nearest"
    neighbours: Annotated[
        Whole,
        Field(ge=1, description="Nearest parts whose mean decides; of combine nearest, input clustering"),
    ] = 1

    @model_validator(mode="after")
    def _levels_agree(self) -> DCSVMConfig:
        if self.levels is not None and self.early_level is not None and self.early_level > self.levels:
            raise ValueError(f"early_level is {self.early_level}, expected at most levels, {self.levels}")
        if self.neighbours > 1 and (self.combine != "nearest" or self.clustering != "input"):
            raise ValueError(
                f"neighbours is {self.neighbours}, which goes with combine nearest and clustering input alone"
            )
        return self


class BSGDConfig(Options):
    """Budgeted stochastic gradient descent (Wang, Crammer and Vucetic 2012; Qaadan and Glasmachers 2018)."""

    budget: Annotated[Whole, Field(ge=2, description="Most support vectors")] = 500
    merge: Annotated[
        Whole, Field(ge=2, description="Support vectors that become one where the budget is full")
    ] = 3
    strategy: Annotated[
        Literal["sequence", "gradient", "project", "remove"],
        Field(description="How: merged one by one or at once, projected on the others, or removed"),
    ] = "sequence"
    epochs: Annotated[Whole, Field(ge=1, description="Passes over the rows")] = 1
    lam: Annotated[Annotated[Real, Field(gt=0)] | None, Field(description="lambda; else 1 / (n C)")] = None
    bias: Annotated[bool, Field(description="Learn a constant too, regularised like the rest")] = False
    average: Annotated[
        bool, Field(description="Decide by the mean of all steps weighted by t, not the last")
    ] = False
    partitions: Annotated[
        Whole,
        Field(ge=1, description="Learners side by side, whose mean goes on; 1: the sequential algorithm"),
    ] = 1
    rounds: Annotated[
        Whole, Field(ge=1, description="Times in an epoch that they become one, where there are partitions")
    ] = 10

    @model_validator(mode="after")
    def _merge_fits(self) -> BSGDConfig:
        if self.merge > self.budget:
            raise ValueError(f"merge is {self.merge}, expected at most the budget, {self.budget}")
        if self.partitions > 1 and self.average:
            raise ValueError(f"partitions is {self.partitions}, which does not go with average")
        return self


class CuttingPlaneConfig(Options):
    """Cutting planes (Joachims 2006; Franc and Sonnenburg 2009)."""

    method: Annotated[
        Literal["ocas", "plain"],
        Field(description="Planes near the best point of a line search, or at the last minimum"),
    ] = "ocas"
    bias: Annotated[
        Real, Field(ge=0, description="Value of the constant feature that makes an intercept; 0: none")
    ] = 1.0
    passes: Annotated[Whole, Field(ge=1, description="Most passes over the rows")] = 1000
    landmarks: Annotated[Count, Field(description="Rows by which a kernel is approximated (Nystroem)")] = None


class HSSConfig(Options):
    """ADMM on a kernel matrix compressed and factorised once (Cipolla and Gondzio 2021; Chavez et al. 2020)."""

    rtol: Annotated[Real, Field(gt=0, lt=1, description="Pivot over the first at which a basis ends")] = 1e-3
    atol: Annotated[
        Real, Field(ge=0, description="Size of entries, over the diagonal's, at which a basis ends")
    ] = 1e-3
    max_rank: Annotated[Whole, Field(ge=1, description="Most columns of a basis")] = 300
    definite: Annotated[
        bool | None,
        Field(
            description="Bases that keep the matrix positive semidefinite, or least squares; else by landmarks"
        ),
    ] = None
    leaf: Annotated[Whole, Field(ge=2, description="Most rows of a leaf of the cluster tree")] = 128
    neighbours: Annotated[
        Whole, Field(ge=1, description="Near rows of each row, whose columns are compressed")
    ] = 32
    landmarks: Annotated[
        Whole, Field(ge=0, description="Rows that explain the smooth part of the kernel first; 0: none")
    ] = 256
    storage: Annotated[Literal["float64", "float32"], Field(description="Numbers of matrix and factor")] = (
        "float64"
    )
    beta: Annotated[
        Annotated[Real, Field(gt=0)] | Literal["paper", "balance"],
        Field(description="Shift of ADMM: number, 'paper' (from the rows) or 'balance' (by residuals)"),
    ] = "paper"
    iterations: Annotated[Whole, Field(ge=1, description="Most steps of ADMM")] = 50
    residual: Annotated[
        Real, Field(ge=0, description="Relative primal and dual residual at which ADMM ends sooner; 0: never")
    ] = 0.0
    polish: Annotated[
        Whole, Field(ge=0, description="Most rounds of the exact solver afterwards, to tol; 0: none")
    ] = 0


class ALFPGMConfig(Options):
    """Decomposition by many pairs at a time (Aregbesola and Griva 2022)."""

    pairs: Annotated[
        Whole, Field(ge=1, description="Pairs that join a working set, of rows or of kept ones")
    ] = 500
    subproblem: Annotated[
        Literal["pairs", "fpg"],
        Field(
            description="Two-variable steps, or the paper's augmented Lagrangian with fast projected gradient"
        ),
    ] = "pairs"
    mu: Annotated[Real, Field(gt=0, description="Scaling parameter of the augmented Lagrangian")] = 0.1
    min_alpha_check: Annotated[Count, Field(description="Rows among which partners are sought; else all")] = (
        2000
    )
    min_alpha_opt: Annotated[
        Count, Field(description="Working sets after which a row that has settled is left out; else never")
    ] = None
    max_alpha_opt: Annotated[
        Count, Field(description="Working sets after which any row is left out; else never")
    ] = None
    delta_alpha: Annotated[Real, Field(ge=0, description="Change below which a row has settled")] = 1e-6
    shrinking: Annotated[bool, Field(description="Leave out rows that are sure to stay at a bound")] = True
    max_iter: Annotated[Count, Field(description="Most rounds of a problem; else until tol")] = None
    break_ties: Annotated[
        bool, Field(description="Equal votes are decided by confidence, not for the first class")
    ] = False
    epsilon: Annotated[Real, Field(ge=0, description="Error without loss, of task regress")] = 0.1


class ProbabilityConfig(Options):
    """Probabilities from decision values of rows that the model of them was not trained on (see `calibration`)."""

    method: Annotated[
        Literal["sigmoid", "isotonic"] | None,
        Field(description="How decision values become probabilities; else there are none"),
    ] = None
    folds: Annotated[
        Whole, Field(ge=2, description="Parts of the rows, each predicted by a fit on the others")
    ] = 5


class FitConfig(Options):
    """All of a fit; frozen, and stored in the model it made."""

    solver: Annotated[
        Literal["dcsvm", "bsgd", "cutting-plane", "admm-hss", "alfpgm"], Field(description="Algorithm")
    ] = "dcsvm"
    task: Annotated[
        TaskName | None,
        Field(description="What is learned; else rank where cutting planes find a qid, classify elsewhere"),
    ] = None
    kernel: KernelConfig = KernelConfig()
    C: Annotated[Real, Field(gt=0, description="Upper bound of the dual variables")] = 1.0
    tol: Annotated[
        Real, Field(gt=0, description="Largest KKT violation at the end, or gap over objective")
    ] = 1e-3
    class_weight: Annotated[ClassWeight, Field(description="Factors on C by label, or 'balanced'")] = None
    positive: Annotated[Labels, Field(description="Labels of the positive class, against the rest")] = ()
    scale: Annotated[Scale, Field(description="Scaling of the features, kept in the model")] = "none"
    seed: Annotated[Whole, Field(ge=0, le=2**32 - 1, description="Seed of every random choice")] = 0
    memory_limit: Annotated[
        Bytes, Field(description="Memory of the whole process, as 2GiB; else of what is free")
    ] = None
    cache_size: Annotated[
        Size, Field(ge=0, description="Memory for kernel rows that solvers keep, as 200MiB")
    ] = 200 << 20
    threads: Annotated[Count, Field(description="Threads of this process; else every core")] = None
    workers: Annotated[Count, Field(description="Processes on this machine that do the work, if any")] = None
    scheduler: Annotated[
        str | None, Field(description="Address of a dask.distributed scheduler whose workers do the work")
    ] = None
    checkpoint_every: Annotated[
        Every, Field(description="How often the run directory gets the state: seconds, or 'N steps'")
    ] = 30.0
    dcsvm: DCSVMConfig = DCSVMConfig()
    bsgd: BSGDConfig = BSGDConfig()
    cutting_plane: CuttingPlaneConfig = CuttingPlaneConfig()
    hss: HSSConfig = HSSConfig()
    alfpgm: ALFPGMConfig = ALFPGMConfig()
    probability: ProbabilityConfig = ProbabilityConfig()

    @model_validator(mode="after")
    def _kernel_and_solver_agree(self) -> FitConfig:
        name, strategy = self.kernel.name, self.bsgd.strategy
        row = kernel_row(name)
        if not row.definite and self.solver not in INDEFINITE:
            raise ValueError(
                f"kernel.name is {name!r}, which need not be positive semidefinite; found solver {self.solver}, "
                f"expected {' or '.join(INDEFINITE)}, which ends all the same"
            )
        if row.whole and (self.scale != "none" or self.probability.method):
            raise ValueError(
                f"kernel.name is {name!r}, whose values are no features; expected scale 'none' and no probability"
            )
        if self.solver == "bsgd" and not row.merges and strategy in ("sequence", "gradient"):
            raise ValueError(
                f"bsgd.strategy is {strategy!r}, and points merge under the {' or '.join(mergers())} kernel only; "
                f"expected 'project' or 'remove' with {name}"
            )
        return self

    @model_validator(mode="after")
    def _task_and_solver_agree(self) -> FitConfig:
        if self.task is not None:
            task_of(self.task).require(self.solver, names_classes=bool(self.positive or self.class_weight))
        return self

    @model_validator(mode="after")
    def _cutting_planes_are_linear(self) -> FitConfig:
        if self.solver != "cutting-plane":
            return self
        is_linear = kernel_row(self.kernel.name).is_linear
        if not is_linear and self.cutting_plane.landmarks is None:
            raise ValueError(
                f"solver is 'cutting-plane', which is linear; expected kernel.name 'linear', or "
                f"cutting_plane.landmarks (1000, say) to approximate {self.kernel.name}"
            )
        elif is_linear and self.cutting_plane.landmarks is not None:
            raise ValueError(
                f"cutting_plane.landmarks go with kernels to approximate; found kernel.name {self.kernel.name!r}"
            )
        return self


def build_config(*layers: Layer) -> FitConfig:
    """The configuration of (origin, nested values) layers, later ones winning. Raises ConfigError."""
    return validated(FitConfig, *layers)


def validated(model: type[Model], *layers: Layer) -> Model:
    """The options of (origin, nested values) layers, later ones winning. Raises ConfigError."""
    merged: dict[str, Any] = {}
    for _, values in layers:
        merged = _merge(merged, values)
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(_explain(error, layers, model)) from None


def load_config(path: str | Path, *overrides: Layer) -> FitConfig:
    """The configuration in a TOML file or a saved model, changed by `overrides`. Raises ConfigError."""
    return build_config(read_layer(path), *overrides)


def read_layer(path: str | Path) -> Layer:
    """(origin, values) of a TOML file, or of the resolved configuration inside a model."""
    path = Path(path)
    if path.is_dir():
        return str(path), _model_config(path)
    try:
        return str(path), tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such configuration file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def parse_set(text: str) -> Layer:
    """The layer of `--set name=value`: the value is TOML (0.5, true, [1, 2]), anything else a string."""
    name, equals, value = text.partition("=")
    for toml in (text, f"{name} = {_toml_string(value.strip())}") if equals else ():
        with suppress(tomllib.TOMLDecodeError):
            return f"--set {text}", tomllib.loads(toml)
    raise ConfigError(f"--set {text}: expected name=value, for example --set dcsvm.levels=3")


def _toml_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _model_config(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads((path / "zarr.json").read_text(encoding="utf-8"))["attributes"]["config"]
    except (OSError, ValueError, KeyError, TypeError):
        config = None
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: found a folder without a configuration, expected a TOML file or a model")
    return Resolved(config)


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """`new` over `old`, tables key by key."""
    merged = dict(old)
    for key, value in new.items():
        both_tables = isinstance(old.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(old[key], value) if both_tables else value
    return merged


PARAMETERS = {
    "kernel.name": "kernel",
    "probability.method": "probability",
}  # of estimators: else the last part
PARAMETERS |= {"cutting_plane.passes": "max_passes", "cutting_plane.bias": "intercept_scaling"}
_GROUPS = {
    name: field.annotation
    for name, field in FitConfig.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Options)
}


def option_names() -> Iterator[str]:
    """Dotted names of every option, groups' members included."""
    for name in FitConfig.model_fields:
        yield name
        if name in _GROUPS:
            yield from (f"{name}.{member}" for member in _GROUPS[name].model_fields)


def option_field(option: str) -> FieldInfo:
    """Description, default and range of the option with this dotted name."""
    group, _, member = option.rpartition(".")
    return (_GROUPS[group] if group else FitConfig).model_fields[member]


def option_values(option: str) -> tuple[str, ...]:
    """The values that the option with this dotted name is one of, where they are listed."""
    return field_values(option_field(option))


def field_values(field: FieldInfo) -> tuple[str, ...]:
    return tuple(value for kind in (field.annotation, *field.metadata) for value in choices(kind))


def _explain(error: ValidationError, layers: tuple[Layer, ...], model: type[BaseModel]) -> str:
    first = error.errors(include_url=False)[0]
    path = _known_part(first["loc"])
    name, prefix = ".".join(path), _place(_origin(path, layers), path)
    if first["type"] == "extra_forbidden":
        known = list(option_names() if model is FitConfig else model.model_fields)
        return f"{prefix}: unknown option{suggest(name, known)}"
    reason = _expected(first)
    found = "" if isinstance(first["input"], Mapping) else f"found {first['input']!r}, "
    return f"{prefix}: {found}{reason}"


def _place(origin: str, path: tuple[str, ...]) -> str:
    """Where an option was found: a flag names it already, and the parameters of an estimator are in no groups."""
    name = ".".join(path)
    if not path or (origin.startswith("--") and " " not in origin and name not in _GROUPS):
        return origin
    return f"{origin}: {PARAMETERS.get(name, path[-1]) if origin.isidentifier() else name}"


def _known_part(loc: tuple[int | str, ...]) -> tuple[str, ...]:
    """The option's path inside an error's location, which may go on into unions and list items."""
    depth = 2 if loc and loc[0] in _GROUPS else 1
    return tuple(str(part) for part in loc[:depth])


def _expected(first: Mapping[str, Any]) -> str:
    context = first.get("ctx", {})
    if first["type"] == "value_error":
        return str(context["error"])
    limits = {
        "greater_than": "above {gt}",
        "greater_than_equal": "at least {ge}",
        "less_than_equal": "at most {le}",
    }
    if first["type"] in limits:
        return "expected a number " + limits[first["type"]].format(**context)
    if first["type"] == "literal_error":
        return f"expected {context['expected']}"
    if first["type"] == "model_type":
        return "expected a table of options"
    return str(first["msg"]).replace("Input should be", "expected", 1)


def _origin(path: tuple[str, ...], layers: tuple[Layer, ...]) -> str:
    """The last layer that sets `path`."""
    for origin, values in reversed(layers):
        here: Any = values
        for part in path:
            here = here.get(part, None) if isinstance(here, Mapping) else None
        if here is not None:
            return origin
    return layers[-1][0] if layers else "configuration"


def suggest(name: str, known: list[str]) -> str:
    """The nearest known option: by its whole dotted name, else by its last part alone."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not near:
        by_last = {option.rpartition(".")[2]: option for option in reversed(known)}
        near = [by_last[m] for m in difflib.get_close_matches(name.rpartition(".")[2], by_last, n=1)]
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
