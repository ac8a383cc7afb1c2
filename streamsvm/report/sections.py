"""The sections of a report in order, see `SECTIONS` at the foot, and the first two of them.

A section without data is empty. What the others show is in files of this folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamsvm.events import Failed, Planned, Started, Warned
from streamsvm.kernels.table import has_gamma
from streamsvm.metrics import D2
from streamsvm.report import chosen, part_plots, plots, scores, trials
from streamsvm.report.parts import Code, Facts, Lines, Part, Section, Table, facts_of, filled_columns, tables_of
from streamsvm.report.read import Run
from streamsvm.runs.records import Row, number, table, table_rows
from streamsvm.solvers.catalogue import renamed, section_of, solver_names
from streamsvm.storage.text import human, human_bytes

SIZES = ("memory_limit", "cache_size")  # options in bytes


def summary(runs: Sequence[Run]) -> Iterator[Part]:
    if len(runs) == 1:
        [run] = runs
        first = {k: v for k, v in (_headline(run) | _results(run)).items() if v not in (None, "")}
        if first:
            yield Facts(first)
        yield from _commands(runs)
        if settings := _settings(run):
            before = _settings(run, table(run.started.config))
            changed = {k: before[k] for k, v in settings.items() if k in before and before[k] != v}
            rows = [
                {"option": k, "value": v} | ({"before it was resumed": changed.get(k)} if changed else {})
                for k, v in settings.items()
            ]
            yield Table("Configuration", rows, folded=True)
        if facts := _facts(run):
            yield Table("Run details", facts, folded=True)
        return
    differing = _differing(runs)
    rows = [
        {"run": run.name, "status": run.status, "solver": run.solver, **differing[i], **_results(run)}
        for i, run in enumerate(runs)
    ]
    yield Table("", filled_columns(rows), "Options that differ between the runs, and the results.")
    yield from _commands(runs)


def _commands(runs: Sequence[Run]) -> Iterator[Part]:
    """The lines that began the runs, and those that resumed them."""
    commands = (event.command for run in runs for _, event in run.of(Started))
    lines = list(dict.fromkeys(filter(None, commands)))
    if lines:
        yield Code("Command", "\n".join(lines))


def _headline(run: Run) -> Row:
    start, plan = run.started, run.last(Planned)
    planned = {} if run.tune or plan is None else plan.kernel  # a search plans a fit for each trial
    kernel = planned or table(run.config.get("kernel"))
    gamma = number(run.result.get("gamma")) or kernel.get("gamma")
    name = str(kernel.get("name", ""))
    of_plan = run.config if run.tune or plan is None else plan.facts
    C = run.metric.get("C", of_plan.get("C", run.config.get("C")))  # as a search chose it, else as it was given
    has_C = run.result.get("events") is None  # a stream has lambda, which it tunes unless it is given
    return {
        "status": run.status,
        "solver": run.solver,
        "rows": start.n or run.result.get("n"),
        "events": run.result.get("events"),
        "columns": start.d or run.result.get("d"),
        "kernel": f"{name}, gamma {human('', gamma)}" if has_gamma(name) else name,
        "C": C if has_C else None,
        "lambda": None if has_C else table(run.config.get("bsgd")).get("lam") or "tuned while learning",
    }


def _results(run: Run) -> Row:
    score, result, converged = run.evaluation, run.result, run.result.get("converged")
    measured = ((score, "accuracy"), (result, "online_accuracy"), (result, "accuracy"))
    return {
        "converged": ("yes" if converged else "no") if isinstance(converged, bool) else None,
        "accuracy": next((scores[k] for scores, k in measured if scores.get(k) is not None), None),
        "roc_auc": score.get("roc_auc"),
        "r2": score.get("r2"),
        D2: score.get(D2),
        "n_support": result.get("n_support"),
        "objective": number(result.get("objective")),
        "gap": number(result.get("gap")),
        "seconds": number(result.get("seconds")) or run.seconds,
        "peak_rss_bytes": result.get("peak_rss_bytes"),
        "device": result.get("device"),
    }


def flat(config: Row) -> Row:
    """Options by their path."""
    options: Row = {}
    for name, value in config.items():
        if isinstance(value, dict) and name != "class_weight":
            options |= {f"{name}.{member}": v for member, v in value.items()}
        else:
            options[name] = value
    return options


def _settings(run: Run, config: Row | None = None) -> Row:
    """The options that its solver reads; config: others than those that it has now."""
    others = {section_of(name) for name in solver_names() if name != run.solver}
    config = run.config if config is None else renamed(config)
    options = flat({name: value for name, value in config.items() if name not in others})
    sizes = {name: human_bytes(size) for name in SIZES if (size := number(options.get(name))) is not None}
    return options | sizes


def _differing(runs: Sequence[Run]) -> list[Row]:
    """Of each run those options in which the runs that have them differ."""
    settings = [_settings(run) | {"store": run.started.store} for run in runs]
    names = dict.fromkeys(name for options in settings for name in options if name != "solver")
    differ = [name for name in names if len({repr(options[name]) for options in settings if name in options}) > 1]
    return [{name: options.get(name) for name in differ} for options in settings]


def _facts(run: Run) -> list[Row]:
    start = run.started
    facts: Row = {name: getattr(start, name) for name in ("store", "time", "host", "cores", "limit_bytes")}
    facts |= start.versions or {}
    facts |= {
        name: value for name, value in run.result.items() if not isinstance(value, dict) and not table_rows(value)
    }
    return [{"": name, "value": human(name, value)} for name, value in facts.items() if value is not None]


def warnings(runs: Sequence[Run]) -> Iterator[Part]:
    lines = []
    for run in runs:
        failed = [f"ended: {event.message or ''}" for _, event in run.of(Failed)]
        warned = [event.message for _, event in run.of(Warned)]
        before = "" if len(runs) == 1 else f"{run.name}: "
        lines += [before + line for line in dict.fromkeys([*warned, *failed, *run.notes])]
    if lines:
        yield Lines(lines)


ABOUT_VALUES = "Best score of each value that was tried. gamma is relative to the scale of the sample."
ABOUT_MEMBERS = (
    "Its probability counts to the power of its weight. Scores are of rows of folds that it did not learn from."
)
ABOUT_CONFUSIONS = "Of each true class, the rows that were given another one."
SECTIONS = (
    Section("summary", "Summary", (summary,)),
    Section("warnings", "Warnings", (warnings,)),
    Section(
        "chosen",
        "What was chosen",
        (
            facts_of(chosen.facts),
            tables_of("Members of the ensemble", chosen.members, ABOUT_MEMBERS),
            chosen.candidates,
            chosen.influences,
            chosen.learning,
            tables_of("Values of each choice", chosen.values_of, ABOUT_VALUES),
            tables_of("Steps of the search", chosen.steps_table, most=0),
        ),
    ),
    Section("tune", "Tuning", (trials.by_two_options, trials.over_option, trials.trials_tables)),
    Section("convergence", "Convergence", (plots.objective, plots.gap, plots.violation, plots.residuals)),
    Section("levels", "Levels", (part_plots.levels_tables, part_plots.levels)),
    Section(
        "parts",
        "Partitions",
        (
            tables_of("Largest partitions", part_plots.largest, most=scores.MOST_CLASSES),
            part_plots.part_map,
            part_plots.part_sizes,
        ),
    ),
    Section("working-sets", "Working sets", (plots.working_sets,)),
    Section("planes", "Cutting planes", (plots.planes,)),
    Section("ranks", "Ranks", (plots.ranks, part_plots.blocks)),
    Section("budget", "Over the rows", (plots.budget, plots.pace, plots.labels)),
    Section("cost", "Time and memory", (plots.phases, plots.memory, plots.timeline)),
    Section(
        "scores",
        "Scores",
        (
            scores.score_tables,
            scores.confusion,
            tables_of("Largest confusions", scores.confused, ABOUT_CONFUSIONS),
            scores.by_class,
            scores.roc,
            scores.precision_recall,
            scores.roc_by_class,
            scores.precision_recall_by_class,
        ),
    ),
    Section("threshold", "Threshold", (scores.threshold_tables, scores.threshold)),
    Section("calibration", "Calibration", (scores.calibration,)),
    Section(
        "predictions",
        "Predictions",
        (
            facts_of(scores.number_facts),
            scores.predicted,
            scores.residuals,
            scores.histogram,
            scores.coverage,
            scores.decisions,
        ),
    ),
    Section(
        "columns",
        "Column importances",
        (
            facts_of(chosen.column_facts),
            tables_of("Columns", chosen.shares, "Shares in the metric.", scores.MOST_CLASSES),
            chosen.importances,
            chosen.looks,
        ),
    ),
)
