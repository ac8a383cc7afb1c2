"""Every option of a fit with its range and default, read from TOML, flags and `--set`.

A configuration is built from layers. Later layers win, and an error can name the origin of a value.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from streamsvm.errors import ConfigError
from streamsvm.kernels.table import kernel_row
from streamsvm.options.base import (
    Bytes,
    ClassWeight,
    Count,
    DeviceName,
    Every,
    Gaps,
    KernelConfig,
    Labels,
    MarkGaps,
    OneOf,
    Options,
    Real,
    Scale,
    Size,
    SolverOptions,
    Time,
    Whole,
    choices,
)
from streamsvm.options.layers import Layer, merged, read_layer
from streamsvm.options.probability import ProbabilityConfig, with_method
from streamsvm.options.search import MetricConfig, SearchConfig, searched
from streamsvm.options.solvers import (
    PUBLISHED,
    ADMMHSSConfig,
    ALFPGMConfig,
    BSGDConfig,
    CuttingPlaneConfig,
    DCSVMConfig,
    with_published,
)
from streamsvm.parallel.devices import EXPECTED
from streamsvm.solvers.catalogue import (
    DEFAULT_SOLVER,
    SOLVERS,
    SolverRow,
    for_each,
    options_class,
    renamed,
    section_of,
    solver_names,
    solver_row,
)
from streamsvm.storage.paths import Place
from streamsvm.storage.text import toml_document
from streamsvm.tasks import default_task, task_names, task_of
from streamsvm.texts.documented import described

Model = TypeVar("Model", bound=BaseModel)
CANDIDATES = 9  # for the members of an ensemble, about
MOST_C = 1e30  # the limit of kernel values, too: float32 ends at 3e38


class FitConfig(Options):
    """All options of a fit. Frozen, and stored in the model."""

    solver: Annotated[Annotated[str, OneOf(solver_names)], Field(description="Algorithm")] = DEFAULT_SOLVER
    task: Annotated[
        Annotated[str, OneOf(task_names)] | None,
        Field(description="Task (default: rank if cutting-plane finds a qid, else classify)"),
    ] = None
    kernel: KernelConfig = KernelConfig()
    C: Annotated[Real, Field(gt=0, le=MOST_C, description="Upper bound of the dual variables")] = 1.0
    tol: Annotated[Real, Field(gt=0, description="Tolerance: largest KKT violation at the end, or relative gap")] = 1e-3
    class_weight: Annotated[ClassWeight, Field(description="Factors on C by label, or 'balanced'")] = None
    positive: Annotated[Labels, Field(description="Labels of the positive class, against the rest")] = ()
    multiclass: Annotated[
        Literal["pairs", "rest"],
        Field(description="More than two classes: a problem for each pair, or for each class against the rest"),
    ] = "pairs"
    scale: Annotated[Scale, Field(description="Scaling of the features, kept in the model")] = "none"
    gaps: Gaps = None
    mark_gaps: MarkGaps = False
    holdout: Annotated[
        Whole, Field(ge=0, description="Random rows kept out of training, for thresholds and the expected score")
    ] = 0
    epsilon: Annotated[
        Real, Field(ge=0, description="Error without loss of task regress, in units of scaled targets")
    ] = 0.1
    interval: Annotated[
        Annotated[Real, Field(gt=0, lt=1)] | None,
        Field(description="Coverage of prediction intervals, for example 0.9, calibrated on held-out rows"),
    ] = None
    quantile: Annotated[
        Annotated[Real, Field(gt=0, lt=1)] | None,
        Field(description="Quantile of the targets to predict, by the pinball loss, for example 0.9 (default: none)"),
    ] = None
    scale_targets: Annotated[
        bool, Field(description="Standardise the targets of task regress. Predictions are in original units")
    ] = True
    nu: Annotated[
        Annotated[Real, Field(gt=0, le=1)] | None,
        Field(description="Maximum share of rows beyond the margin (nu-SVC, nu-SVR), or of outliers (oneclass: 0.5)"),
    ] = None
    must_export: Annotated[
        Literal["onnx", "libsvm"] | None,
        Field(description="Choose only models that `streamsvm export` can write in this format"),
    ] = None
    rows: Annotated[Count, Field(description="Random rows to train on (default: all)")] = None
    seed: Annotated[Whole, Field(ge=0, le=2**32 - 1, description="Seed of every random choice")] = 0
    memory_limit: Annotated[
        Bytes, Field(description="Memory of the whole process, for example 2GiB (default: by free memory)")
    ] = None
    cache_size: Annotated[Size, Field(ge=0, description="Memory for cached kernel rows, for example 200MiB")] = (
        200 << 20
    )
    device: Annotated[
        DeviceName, Field(description=f"Computes kernel sums of dense rows: {EXPECTED}. Needs the extra gpu")
    ] = "cpu"
    device_memory: Annotated[
        Bytes, Field(description="Memory of the device to use, for example 4GiB (default: half of what is free)")
    ] = None
    threads: Annotated[Count, Field(description="Threads of this process (default: every core)")] = None
    workers: Annotated[Count, Field(description="Local worker processes (default: threads only)")] = None
    scheduler: Annotated[
        str | None,
        Field(
            description="Address of a dask.distributed scheduler whose workers do the work, or file:PATH of its file"
        ),
    ] = None
    wait_for_scheduler: Annotated[
        Time | None, Field(description="Seconds to wait for a lost scheduler to return (default: end at once)")
    ] = None
    checkpoint_every: Annotated[Every, Field(description="How often to save a checkpoint: seconds, or 'N steps'")] = (
        30.0
    )
    dcsvm: DCSVMConfig = DCSVMConfig()
    bsgd: BSGDConfig = BSGDConfig()
    cutting_plane: CuttingPlaneConfig = CuttingPlaneConfig()
    admm_hss: ADMMHSSConfig = ADMMHSSConfig()
    alfpgm: ALFPGMConfig = ALFPGMConfig()
    probability: ProbabilityConfig = ProbabilityConfig()
    metric: MetricConfig = MetricConfig()
    search: SearchConfig = SearchConfig(options=())

    @property
    def solver_options(self) -> Any:
        """The options of its solver."""
        return getattr(self, section_of(self.solver))

    own = solver_options  # the name in 0.2.0

    @property
    def n_folds(self) -> int:
        """Number of extra fits on folds, by which the fit of all rows is calibrated, or an ensemble is made; 0 if
        nothing needs them."""
        if self.search.has_ensemble:
            return ensemble_fits(self.search.ensemble or 1, self.probability.folds)
        needs_folds = self.probability.method or (self.probability.threshold and not self.holdout)
        return self.probability.folds if needs_folds else 0

    @model_validator(mode="before")
    @classmethod
    def _with_current_names(cls, values: Any) -> Any:
        return searched(with_published(with_method(renamed(values)))) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _kernel_and_solver_agree(self) -> FitConfig:
        name = self.kernel.name
        row = kernel_row(name)
        if not row.definite and not solver_row(self.solver).takes_indefinite:
            expected = " or ".join(solver for solver, row in SOLVERS.items() if row.takes_indefinite)
            raise ValueError(
                f"kernel.name is {name!r}, which need not be positive semidefinite; found solver {self.solver}, "
                f"expected {expected}, which terminates with such kernels"
            )
        fills = self.mark_gaps or self.gaps not in (None, "refuse")
        of_features = fills or self.scale != "none" or self.metric.kind != "none"
        if row.whole and (of_features or self.probability.is_requested or self.interval):
            wanted = "scale 'none', and no metric, gaps, mark_gaps, probability, threshold or interval"
            raise ValueError(f"kernel.name is {name!r}, whose columns are not features; expected {wanted}")
        if row.is_linear and self.metric.kind != "none":
            raise ValueError(f"metric.kind is {self.metric.kind!r}, which needs a nonlinear kernel; found {name}")
        self.solver_options.require(self.kernel)
        return self

    @model_validator(mode="after")
    def _task_and_solver_agree(self) -> FitConfig:
        if self.task is not None:
            named = [name for name in ("positive", "class_weight") if getattr(self, name)]
            task_of(self.task).require(self.solver, named)
            self.solver_options.require_task(task_of(self.task))
        if self.quantile is not None:
            others = {"nu": self.nu, "interval": self.interval, "dcsvm.loss": self.dcsvm.is_squared or None}
            if named := [name for name, value in others.items() if value is not None]:
                raise ValueError(f"quantile is {self.quantile:g}, which excludes {', '.join(named)}: leave one out")
        if self.nu is not None:
            task_of(self.task or default_task(self.solver, has_queries=False)).require_alone(self)
        return self


def ensemble_fits(members: int, folds: int) -> int:
    """The number of fits of an ensemble, besides that of the chosen options to all rows."""
    return CANDIDATES + members * folds


def _add_section(name: str, row: SolverRow) -> None:
    """Adds the section of a solver's options to configurations. Raises ConfigError for an invalid section."""
    section, options = section_of(name), options_class(name)
    if section in FitConfig.model_fields and FitConfig.model_fields[section].annotation is options:
        return
    is_taken = section in FitConfig.model_fields or hasattr(FitConfig, section) or not section.isidentifier()
    if is_taken or not issubclass(options, SolverOptions):
        raise ConfigError(
            f"solver {name!r}: found options {row.options}, expected a SolverOptions, and a name that is not an option"
        )
    names = {*option_names(), *(f"{section}.{member}" for member in options.model_fields)}
    named = {name for rule in options.rules for name in (rule.option, rule.decider)}
    if named - names:
        raise ConfigError(f"solver {name!r}: its rules name {min(named - names)}, expected names of options")
    FitConfig.model_fields[section] = FieldInfo(annotation=options, default=options())
    FitConfig.model_rebuild(force=True)


for_each(_add_section)


@described
def build_config(*layers: Layer) -> FitConfig:
    """Checks and merges options.

    Returns
    -------
    FitConfig
        The options. Those that no layer gives have their defaults.

    Raises
    ------
    ConfigError
    """
    return validated(FitConfig, *((origin, renamed(values)) for origin, values in layers))


def validated(model: type[Model], *layers: Layer) -> Model:
    """The options of (origin, nested values) layers, later ones winning. Raises ConfigError."""
    try:
        return model.model_validate(merged(*layers))
    except ValidationError as error:
        raise ConfigError(_explain(error, layers, model)) from None


@described
def load_config(path: str | Place, *overrides: Layer) -> FitConfig:
    """Reads the configuration from a TOML file or a saved model.

    Parameters
    ----------
    path : str or Path
        The file, or the folder or URL of the model.

    Returns
    -------
    FitConfig
        The options. What the file leaves out has its default.

    Raises
    ------
    ConfigError, NotFoundError
    """
    return build_config(read_layer(path), *overrides)


def repeating(config: FitConfig) -> str:
    """A TOML file of options that differ from their defaults, to repeat a fit without a search."""
    return toml_document(changes(config) | {"search": {"options": []}})


def changes(config: FitConfig) -> dict[str, Any]:
    """The nested options that differ from their defaults; with `alfpgm.method` paper also all that the paper sets, as
    those have its values where they are left out."""
    values = config.model_dump(mode="json", exclude_defaults=True, exclude={"search"})
    if config.alfpgm.method == "paper":
        of_paper: Any = {"tol": True, "alfpgm": set(PUBLISHED["alfpgm"])}
        values = merged(("the paper", config.model_dump(mode="json", include=of_paper)), ("changes", values))
    return values


PARAMETERS = {"kernel.name": "kernel", "probability.method": "probability"}  # names in estimators
PARAMETERS |= {"metric.kind": "metric", "multiclass": "multi_class"}


def groups() -> dict[str, type[Options]]:
    """The tables of options by name, including the solvers' sections."""
    fields = ((name, field.annotation) for name, field in FitConfig.model_fields.items())
    return {name: kind for name, kind in fields if isinstance(kind, type) and issubclass(kind, Options)}


def option_names() -> Iterator[str]:
    """Dotted names of every option, groups' members included."""
    tables = groups()
    for name in FitConfig.model_fields:
        yield name
        if name in tables:
            yield from (f"{name}.{member}" for member in tables[name].model_fields)


def option_field(option: str) -> FieldInfo:
    """Description, default and range of the option with this dotted name."""
    group, _, member = option.rpartition(".")
    table: Any = FitConfig.model_fields[group].annotation if group else FitConfig
    return table.model_fields[member]


def option_values(option: str) -> tuple[str, ...]:
    """The values of the option with this dotted name, if it lists them."""
    return field_values(option_field(option))


def field_values(field: FieldInfo) -> tuple[str, ...]:
    return tuple(value for kind in (field.annotation, *field.metadata) for value in choices(kind))


def _explain(error: ValidationError, layers: tuple[Layer, ...], model: type[BaseModel]) -> str:
    first = error.errors(include_url=False)[0]
    path = _known_part(first["loc"])
    name, prefix = ".".join(path), _place(_origin(path, layers), path)
    if first["type"] == "extra_forbidden":
        names = list(option_names() if model is FitConfig else model.model_fields)
        return f"{prefix}: unknown option{suggest(name, names)}"
    reason = _expected(first)
    given = "" if isinstance(first["input"], Mapping) else f"found {first['input']!r}, "
    return f"{prefix}: {given}{reason}"


def _place(origin: str, path: tuple[str, ...]) -> str:
    """The origin of an option for an error. A flag names the option, and estimators' parameters have no groups."""
    name = ".".join(path)
    if not path or (origin.startswith("--") and " " not in origin and name not in groups()):
        return origin
    return f"{origin}: {_parameter(name) if origin.isidentifier() else name}"


def _parameter(option: str) -> str:
    group, _, member = option.rpartition(".")
    return PARAMETERS.get(option) or getattr(groups().get(group), "parameters", {}).get(member, member)


def _known_part(loc: tuple[int | str, ...]) -> tuple[str, ...]:
    """The path of the option in an error's location, which may also name members of unions and items of lists."""
    depth = 2 if loc and loc[0] in groups() else 1
    return tuple(str(part) for part in loc[:depth])


def _expected(first: Mapping[str, Any]) -> str:
    context = first.get("ctx", {})
    if first["type"] == "value_error":
        return str(context["error"])
    limits = {"greater_than": "above {gt}", "greater_than_equal": "at least {ge}", "less_than_equal": "at most {le}"}
    if first["type"] in limits:
        return "expected a number " + limits[first["type"]].format(**context)
    if first["type"] == "literal_error":
        return f"expected {context['expected']}"
    if first["type"] == "model_type":
        return "expected a table of options"
    return str(first["msg"]).replace("Input should be", "expected", 1)


def _origin(path: tuple[str, ...], layers: tuple[Layer, ...]) -> str:
    for origin, values in reversed(layers):
        value: Any = values
        for part in path:
            value = value.get(part, None) if isinstance(value, Mapping) else None
        if value is not None:
            return origin
    return layers[-1][0] if layers else "configuration"


def suggest(name: str, names: list[str]) -> str:
    """A hint at the nearest known option: by its whole dotted name, else by the last component."""
    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not matches:
        by_last = {option.rpartition(".")[2]: option for option in reversed(names)}
        matches = [by_last[m] for m in difflib.get_close_matches(name.rpartition(".")[2], by_last, n=1)]
    return f"; did you mean {matches[0]}?" if matches else f"; known are {', '.join(names)}"
