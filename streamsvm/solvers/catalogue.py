"""The catalogue of solvers: one row each, with all that must be known before loading one.

A new solver is an algorithm, a fit, a section of options and a row here; configuration, command line, cost model,
search, reports, estimators and documentation read it. Names alone, for help and configurations, need no NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from streamsvm.errors import ConfigError
from streamsvm.parallel.imports import imported, whole_class


class SolverRow(NamedTuple):
    """What a solver declares.

    fit, options, estimators: module:class. fit: of a `fits.base.Fit`. options: of the `options.base.SolverOptions`
    that are its section of a configuration, under its own name; aliases: older names of this section.
    tasks: that it takes; a task may name solvers, too. reads: which of the options it reads that only some solvers do.
    needs: options that it cannot do without, as `--set` takes them. searches: what can be chosen for it by fits on a
    sample."""

    fit: str
    options: str
    estimators: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ("classify",)
    takes_indefinite: bool = False  # its steps end under kernels that are not positive semidefinite, too
    reads: tuple[str, ...] = ("tol",)
    needs: tuple[str, ...] = ()
    searches: tuple[str, ...] = ("scale", "kernel", "metric", "C", "gamma", "class_weight")


SOLVERS = {
    "dcsvm": SolverRow(
        "streamsvm.fits.dcsvm:DCSVMFit",
        "streamsvm.options.solvers:DCSVMConfig",
        (
            "streamsvm.estimators.dcsvm:DCSVC",
            "streamsvm.estimators.dcsvm:DCSVR",
            "streamsvm.estimators.dcsvm:DCOneClassSVM",
        ),
        tasks=("classify", "multilabel", "regress", "oneclass"),
        reads=("tol", "cache_size", "nu", "multiclass", "quantile"),
        searches=("solver", "early", "scale", "kernel", "metric", "C", "gamma", "class_weight", "multiclass"),
    ),
    "bsgd": SolverRow(
        "streamsvm.fits.bsgd:BSGDFit",
        "streamsvm.options.solvers:BSGDConfig",
        ("streamsvm.estimators.budgeted:BudgetedSVC", "streamsvm.estimators.budgeted:BudgetedSVR"),
        tasks=("classify", "multilabel", "regress", "oneclass"),
        reads=("nu",),
        searches=("scale", "metric", "gamma"),
    ),
    "cutting-plane": SolverRow(
        "streamsvm.fits.cutting_plane:CuttingPlaneFit",
        "streamsvm.options.solvers:CuttingPlaneConfig",
        (
            "streamsvm.estimators.cutting_plane:CuttingPlaneSVC",
            "streamsvm.estimators.cutting_plane:CuttingPlaneRanker",
            "streamsvm.estimators.cutting_plane:CuttingPlaneSVR",
            "streamsvm.estimators.cutting_plane:CuttingPlaneOneClassSVM",
        ),
        tasks=("classify", "multilabel", "ordinal", "rank", "regress", "oneclass"),
        reads=("tol", "nu"),
        needs=("kernel.name=linear",),
        searches=("scale", "metric", "C", "gamma", "class_weight"),
    ),
    "admm-hss": SolverRow(
        "streamsvm.fits.admm_hss:ADMMHSSFit",
        "streamsvm.options.solvers:ADMMHSSConfig",
        ("streamsvm.estimators.admm_hss:HSSSVC", "streamsvm.estimators.admm_hss:HSSSVR"),
        aliases=("hss",),
        tasks=("classify", "multilabel", "regress"),
        reads=("tol", "quantile"),
    ),
    "alfpgm": SolverRow(
        "streamsvm.fits.alfpgm:ALFPGMFit",
        "streamsvm.options.solvers:ALFPGMConfig",
        ("streamsvm.estimators.alfpgm:ALFPGMSVC", "streamsvm.estimators.alfpgm:ALFPGMSVR"),
        tasks=("classify", "multilabel", "regress"),
        takes_indefinite=True,
        reads=("tol", "cache_size", "multiclass", "quantile"),
    ),
}
DEFAULT_SOLVER = "dcsvm"
MOVED = {("alfpgm", "epsilon"): "epsilon"}  # members of a section that are options of their own today
OF_SOME = ("tol", "cache_size", "nu", "multiclass", "quantile")  # options that solvers read which say so in `reads`
Use = Callable[[str, SolverRow], None]
_users: list[Use] = []  # that are notified of solvers to come


def solver_names() -> tuple[str, ...]:
    return tuple(SOLVERS)


def solver_row(name: str) -> SolverRow:
    """The row of the solver with this name. Raises ConfigError if there is none."""
    if name not in SOLVERS:
        raise ConfigError(f"found solver {name!r}, expected one of {', '.join(SOLVERS)}")
    return SOLVERS[name]


def section_of(name: str) -> str:
    """The section of a configuration that has a solver's options."""
    return name.replace("-", "_")


def readers(option: str) -> list[str]:
    """Names of the solvers that read an option which only some do."""
    return [name for name, row in SOLVERS.items() if option in row.reads]


def takers(task: str) -> list[str]:
    """Names of the solvers that take a task by themselves."""
    return [name for name, row in SOLVERS.items() if task in row.tasks]


def made_for(kernel: str, task: str) -> str | None:
    """The name of the solver that takes this kernel alone, and this task; None if there is none."""
    need = f"kernel.name={kernel}"
    return next((name for name, row in SOLVERS.items() if need in row.needs and task in row.tasks), None)


def fit_class(name: str) -> Any:
    """The fit of the solver with this name."""
    return imported(solver_row(name).fit)


def options_class(name: str) -> Any:
    """The section of options of the solver with this name."""
    return imported(solver_row(name).options)


def estimators() -> dict[str, str]:
    """Module by name of every solver's estimators."""
    places = (place.partition(":") for row in SOLVERS.values() for place in row.estimators)
    return {name: module for module, _, name in places}


def renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values of a configuration, sections under the names of today, which win over older ones."""
    current = dict(values)
    for old, new in _renamed().items():
        if old in current:
            table, over = current.pop(old), current.get(new, {})
            both = isinstance(table, Mapping) and isinstance(over, Mapping)
            current[new] = {**table, **over} if both else table
    for (section, member), name in MOVED.items():
        if isinstance(table := current.get(section), Mapping) and member in table:
            current[section] = {key: value for key, value in table.items() if key != member}
            current = {name: table[member]} | current
    return current


def renamed_option(option: str) -> str:
    """The name today of an option by its dotted name."""
    section, dot, member = option.partition(".")
    if (section, member) in MOVED:
        return MOVED[section, member]
    return f"{_renamed().get(section, section)}{dot}{member}" if dot else option


def _renamed() -> dict[str, str]:
    return {alias: section_of(name) for name, row in SOLVERS.items() for alias in row.aliases}


def register(name: str, row: SolverRow) -> None:
    """Adds a custom solver to those that come with the package. Raises ConfigError for what is wrong with it."""
    sections = {section_of(other) for other in SOLVERS} | set(_renamed())
    if name in SOLVERS or section_of(name) in sections:
        raise ConfigError(f"there is a solver {name!r} already; expected another name")
    if unknown := set(row.reads) - set(OF_SOME):
        raise ConfigError(f"solver {name!r}: found {min(unknown)!r} in reads, expected some of {', '.join(OF_SOME)}")
    for what, place in (("fit", row.fit), ("options", row.options), *(("estimator", e) for e in row.estimators)):
        whole_class(place, f"solver {name!r}: {what}")
    SOLVERS[name] = row
    try:
        for use in _users:
            use(name, row)
    except Exception:
        del SOLVERS[name]
        raise


def for_each(use: Use) -> None:
    """Calls `use` with the name and row of every solver there is, and of every one that is registered later."""
    for name, row in SOLVERS.items():
        use(name, row)
    _users.append(use)
