"""What a report has to show, section by section; a section without data has no parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from streamsvm.events import Compressed, Failed, LevelSolved, Memory, Planned, SupportCompared, Warned
from streamsvm.kernels.table import has_gamma
from streamsvm.report import chosen, metric, numbers, plots, scores
from streamsvm.report.heat_map import axes_of, heat_map
from streamsvm.report.hss import rank_blocks
from streamsvm.report.parts import Facts, Lines, Part, Section, Table, each, known, one
from streamsvm.report.read import NOT_OPTIONS, Run, options_of
from streamsvm.report.values import Row, table, table_rows
from streamsvm.runs.records import number
from streamsvm.solvers.catalogue import section_of, solver_names
from streamsvm.storage.human import human, human_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("precision", "recall", "f1")  # of a class
LEVEL_NAMES = {"objective": "sum of the parts' objectives"}  # which is not that of the whole problem
MOST_TRIALS = 12
MOST_CLASSES = 12  # whose table is unfolded
SIZES = ("memory_limit", "cache_size")  # options in bytes


def summary(runs: Sequence[Run]) -> Iterator[Part]:
    if len(runs) == 1:
        [run] = runs
        told = {k: v for k, v in (_headline(run) | _results(run)).items() if v not in (None, "")}
        if told:
            yield Facts(told)
        if settings := _settings(run):
            yield Table(
                "Configuration", [{"option": k, "value": v} for k, v in settings.items()], folded=True
            )
        if facts := _facts(run):
            yield Table("Everything else that was told", facts, folded=True)
        return
    differing = _differing(runs)
    rows = [
        {"run": run.name, "status": run.status, "solver": run.solver, **differing[i], **_results(run)}
        for i, run in enumerate(runs)
    ]
    yield Table("", known(rows), "Options that differ, and what came of them.")


def _headline(run: Run) -> Row:
    start, plan = run.started, run.last(Planned)
    planned = {} if run.tune or plan is None else plan.kernel  # a search plans a fit for each trial
    kernel = planned or table(run.config.get("kernel"))
    gamma = number(run.result.get("gamma")) or kernel.get("gamma")
    name = str(kernel.get("name", ""))
    return {
        "status": run.status,
        "solver": run.solver,
        "rows": start.n or run.result.get("n"),
        "columns": start.d or run.result.get("d"),
        "kernel": f"{name}, gamma {human('', gamma)}" if has_gamma(name) else name,
        "C": table(run.result.get("metric")).get("C", run.config.get("C")),
    }


def _results(run: Run) -> Row:
    score, result = run.evaluation, run.result
    measured = ((score, "accuracy"), (result, "online_accuracy"), (result, "accuracy"))
    return {
        "converged": _yes_or_no(result.get("converged")),
        "accuracy": next((told[k] for told, k in measured if told.get(k) is not None), None),
        "roc_auc": score.get("roc_auc"),
        "r2": score.get("r2"),
        "n_support": result.get("n_support"),
        "objective": number(result.get("objective")),
        "gap": number(result.get("gap")),
        "seconds": number(result.get("seconds")) or run.seconds,
        "peak_rss_bytes": result.get("peak_rss_bytes"),
    }


def _yes_or_no(value: Any) -> str | None:
    return ("yes" if value else "no") if isinstance(value, bool) else None


def flat(config: Row) -> Row:
    """Options by their path."""
    found: Row = {}
    for name, value in config.items():
        if isinstance(value, dict) and name != "class_weight":
            found |= {f"{name}.{member}": v for member, v in value.items()}
        else:
            found[name] = value
    return found


def _settings(run: Run) -> Row:
    """The options that its solver reads."""
    others = {section_of(name) for name in solver_names() if name != run.solver}
    own = flat({name: value for name, value in run.config.items() if name not in others})
    sizes = {name: human_bytes(size) for name in SIZES if (size := number(own.get(name))) is not None}
    return own | sizes


def _differing(runs: Sequence[Run]) -> list[Row]:
    """Of each run those options in which the runs that have them differ."""
    settings = [_settings(run) | {"store": run.started.store} for run in runs]
    names = dict.fromkeys(name for own in settings for name in own if name != "solver")
    differ = [name for name in names if len({repr(own[name]) for own in settings if name in own}) > 1]
    return [{name: own.get(name) for name in differ} for own in settings]


def _facts(run: Run) -> list[Row]:
    start = run.started
    told: Row = {name: getattr(start, name) for name in ("store", "time", "host", "cores", "limit_bytes")}
    told |= start.versions or {}
    told |= {name: value for name, value in run.result.items() if not isinstance(value, dict)}
    return [{"": name, "value": human(name, value)} for name, value in told.items() if value is not None]


def what_was_chosen(runs: Sequence[Run]) -> Iterator[Part]:
    several = len(runs) > 1
    told = [(run, facts) for run in runs if (facts := chosen.facts(run))]
    if several and told:
        yield Table("", known([{"run": run.name} | facts for run, facts in told]))
    elif told:
        yield Facts(told[0][1])
    fits = (
        "The best of each step of the search, on held-out rows, from few rows of the store to more of them (written "
        "above); then what was chosen, and what it is compared with. A metric has to win by more than chance. In "
        "regions the held-out rows are others."
    )
    yield from each(runs, "candidates", "Candidates", fits, chosen.candidates)
    differ = "Between the best and the worst value tried, each by its best step on the same rows."
    yield from each(runs, "influence", "How much each choice matters", differ, chosen.influences)
    more = (
        "Best score of the search. Dotted: not measured, but extrapolated by the power law of the last two sizes: what "
        "a larger sample, and so a longer budget, would have bought."
    )
    yield from each(runs, "learning", "Score by rows", more, chosen.learning)
    about = "Best score of each value that was tried; gamma in units that the sample gives it."
    for run in runs:
        after = f": {run.name}" if several else ""
        if values := chosen.values_of(run):
            yield Table(f"Values of each choice{after}", known(values), about)
        if steps := chosen.table_of(run):
            yield Table(f"Steps of the search{after}", known(steps), folded=True)


def convergence(runs: Sequence[Run]) -> Iterator[Part]:
    whole = (
        "Of the whole problem, where it is known exactly: rounds in which rows are left out do not tell it."
    )
    yield from one("objective", "Objective", whole, plots.objective(runs))
    above = "How far the objective can be from the best, at most, over its size."
    yield from one("gap", "Relative gap", above, plots.gap(runs))
    rounds = "Of the KKT conditions, after each round; tol is where a run ends."
    yield from one("violation", "Largest violation", rounds, plots.violation(runs))
    yield from one("residuals", "Residuals of ADMM", "After each step.", plots.residuals(runs))


def levels(runs: Sequence[Run]) -> Iterator[Part]:
    for run in runs:
        found = {event.level: event for _, event in run.of(SupportCompared)}
        solved = {event.level: event for _, event in run.of(LevelSolved)}
        rows = [_level(solved[level], found.get(level)) for level in sorted(solved, reverse=True)]
        if rows:
            about = (
                "Precision: share of a level's support vectors that are ones of the solution; recall: share of the "
                "solution's that the level had found."
            )
            title = run.name if len(runs) > 1 else "Level by level"
            yield Table(title, known(rows), about if found else "")
    yield from each(
        runs, "levels", "Support vectors found", "At each level, of those of the solution.", plots.levels
    )


def _level(solved: LevelSolved, compared: SupportCompared | None) -> Row:
    shares = {} if compared is None else {"precision": compared.precision, "recall": compared.recall}
    return {LEVEL_NAMES.get(name, name): value for name, value in vars(solved).items()} | shares


def working_sets(runs: Sequence[Run]) -> Iterator[Part]:
    caption = "Rows that were optimised together, and rows that had not been left out, by round."
    yield from each(runs, "working-sets", "Working sets", caption, plots.working_sets)


def planes(runs: Sequence[Run]) -> Iterator[Part]:
    caption = "The best value so far, and what the planes show to be below the optimum."
    yield from each(runs, "planes", "Cutting planes", caption, plots.bounds)


def ranks(runs: Sequence[Run]) -> Iterator[Part]:
    caption = "Columns of the bases that stand for a block; low ones are cheap."
    yield from each(runs, "ranks", "Ranks by level", caption, plots.ranks)
    caption = "Each block of the kernel matrix, rows in the order of the cluster tree, with its rank."
    yield from each(runs, "blocks", "Blocks", caption, _blocks)


def _blocks(run: Run) -> Figure | None:
    """None where the ranks are not those of a whole tree."""
    told = run.last(Compressed)
    if told is None or told.rows is None or not told.ranks:
        return None
    n, levels = told.rows, told.ranks
    whole = all(
        isinstance(level, list) and len(level) == 2**i and all(number(rank) is not None for rank in level)
        for i, level in enumerate(levels, 1)
    )
    return rank_blocks(n, levels) if whole and n >= 2 ** len(levels) else None


def budget(runs: Sequence[Run]) -> Iterator[Part]:
    caption = (
        "Accuracy of rows before they were learnt, stretch by stretch; support vectors; and the sum of |w' - w|\u00b2 "
        "over all merges."
    )
    yield from one("budget", "Over the stream", caption, plots.budget(runs))


def cost(runs: Sequence[Run]) -> Iterator[Part]:
    yield from one("phases", "Time by phase", "A phase inside another counts once.", plots.phases(runs))
    yield from one("memory", "Memory", _of_memory(runs), plots.memory(runs))


def _of_memory(runs: Sequence[Run]) -> str:
    """What the picture shows, and the limit that is too far above to be in it."""
    held = [event.rss_bytes for run in runs for _, event in run.of(Memory)]
    above = [limit for limit in plots.limits(runs) if limit >= plots.LIMIT_SHOWN * max(held, default=0)]
    limit = f" The limit, {human_bytes(above[0])}, is far above." if above else ""
    return f"Resident memory of the processes, once a second.{limit}"


def score_tables(runs: Sequence[Run]) -> Iterator[Part]:
    scored = [run for run in runs if run.evaluation]
    if len(runs) == 1 and scored:
        yield Facts(_scores(runs[0]))
    elif scored:
        yield Table("", known([{"run": run.name} | _scores(run) for run in scored]))
    for run in scored:
        rows = table_rows(run.evaluation.get("per_class"))
        if rows:
            title = "By class" if len(runs) == 1 else f"By class: {run.name}"
            yield Table(title, known([*rows, *_mean(rows)]), folded=len(rows) > MOST_CLASSES)
        own = "" if len(runs) == 1 else f": {run.name}"
        if intervals := table_rows(run.evaluation.get("intervals")):
            groups = run.evaluation.get("groups")
            by = "rows" if groups is None else f"{groups} groups"
            yield Table(f"Intervals, 19 times of 20, by {by}{own}", known(intervals))
        for column, values in table(run.evaluation.get("slices")).items():
            if slices := table_rows(values):
                yield Table(f"By {column}{own}", known(slices))


def score(runs: Sequence[Run]) -> Iterator[Part]:
    yield from score_tables(runs)
    caption = "Counts, shaded by their share of the true class."
    yield from each(runs, "confusion", "Confusion", caption, scores.confusion)
    caption = "Dotted: what chance would give."
    yield from one("roc", "ROC curve", caption, scores.roc(runs))
    yield from one("precision-recall", "Precision and recall", "", scores.precision_recall(runs))


def _mean(rows: list[Row]) -> Iterator[Row]:
    """The mean over classes of what is a share, each class counting the same."""
    shares = [[number(row.get(name)) for row in rows] for name in MEASURES]
    known = [[share for share in column if share is not None] for column in shares]
    if len(rows) > 1 and all(len(column) == len(rows) for column in known):
        means = {name: sum(column) / len(rows) for name, column in zip(MEASURES, known, strict=True)}
        yield {"label": "mean of the classes"} | means


def _scores(run: Run) -> Row:
    """Single values of the evaluation; the store it was on first."""
    left_out = ("model", "groups", "seconds", "peak_rss_bytes")
    told = {"store": run.evaluation.get("store")} | run.evaluation
    return {k: v for k, v in told.items() if isinstance(v, int | float | str) and k not in left_out}


def calibration(runs: Sequence[Run]) -> Iterator[Part]:
    caption = "Rows by the probability that they were given: how often it was true; dotted: always as often as said."
    yield from one("calibration", "Reliability", caption, scores.calibration(runs))


def threshold(runs: Sequence[Run]) -> Iterator[Part]:
    for run in runs:
        told = table(run.result.get("threshold"))
        expected = table(told.get("expected"))
        rows = [
            {"score": name, "at the threshold": told.get(name), "on new rows": number(own.get("score"))}
            | {end: number(own.get(end)) for end in ("low", "high")}
            for name, own in ((name, table(own)) for name, own in expected.items())
        ]
        if rows:
            of = f"{human('value', told.get('value'))}, for {told.get('wish')}, by {told.get('rows')} held-out rows"
            yield Table(f"Threshold: {of}" + ("" if len(runs) == 1 else f": {run.name}"), known(rows))
    caption = "Of rows that the model did not learn from, threshold by threshold; the point is the one it decides at."
    yield from each(runs, "threshold", "Precision and recall of held-out rows", caption, scores.threshold)


def predictions(runs: Sequence[Run]) -> Iterator[Part]:
    told = [(run, facts) for run in runs if (facts := numbers.facts(run))]
    if len(runs) == 1 and told:
        yield Facts(told[0][1])
    elif told:
        yield Table("", known([{"run": run.name} | facts for run, facts in told]))
    band = "Dashed: intervals, where there are any."
    whole = f"Dotted: where both are equal. {band}"
    yield from each(runs, "predicted", "Predictions against labels", whole, numbers.predicted)
    yield from each(runs, "residual", "Residuals", f"Label less prediction. {band}", numbers.residuals)
    yield from each(runs, "histogram", "How large residuals are", band, numbers.histogram)
    share = "Share of the rows of evaluate inside intervals of each level; dotted: what levels promise."
    yield from one("coverage", "Coverage", share, numbers.coverage(runs))
    below = "Rows of evaluate by decision value; below 0 they are told outliers."
    yield from each(runs, "decisions", "Decision values", below, numbers.decisions)


def columns(runs: Sequence[Run]) -> Iterator[Part]:
    several = len(runs) > 1
    learned = [(run, facts) for run in runs if (facts := metric.facts(run))]
    if several and learned:
        yield Table("", known([{"run": run.name} | facts for run, facts in learned]))
    elif learned:
        yield Facts(learned[0][1])
    for run in runs:
        after = f": {run.name}" if several else ""
        if found := metric.shares(run):
            yield Table(f"Columns{after}", found, "Shares in the metric.", folded=len(found) > MOST_CLASSES)
    most = f"Of the columns that count most, {metric.MOST_BARS} at most."
    yield from each(runs, "importances", "Importances", most, metric.importances)
    largest = (
        f"Shares in the metric of each part, in percent; of more than {metric.MOST_PARTS} parts the largest."
    )
    yield from each(runs, "parts", "What each part looks at", largest, metric.looks)


def tune(runs: Sequence[Run]) -> Iterator[Part]:
    caption = "Best mean score over whatever else was tried."
    yield from each(runs, "tune", "Scores", caption, _heat_map)
    for run in runs:
        best = run.tune[:MOST_TRIALS]
        if best:
            names = [*options_of(run.tune), *NOT_OPTIONS]
            rows = known([{name: trial.get(name) for name in names} for trial in best])
            shown = f"{len(best)} of {len(run.tune)}, the best first."
            yield Table("Trials" if len(runs) == 1 else f"Trials: {run.name}", rows, shown)


def _heat_map(run: Run) -> Any:
    tried = {name: {str(trial.get(name)) for trial in run.tune} for name in options_of(run.tune)}
    axes = axes_of(tried)
    return axes and heat_map(run.tune, *axes)


def warnings(runs: Sequence[Run]) -> Iterator[Part]:
    lines = []
    for run in runs:
        failed = [f"ended: {event.message or ''}" for _, event in run.of(Failed)]
        said = [event.message for _, event in run.of(Warned)]
        before = "" if len(runs) == 1 else f"{run.name}: "
        lines += [before + line for line in dict.fromkeys([*said, *failed, *run.notes])]
    if lines:
        yield Lines(lines)


SECTIONS = (
    Section("summary", "Summary", summary),
    Section("chosen", "What was chosen", what_was_chosen),
    Section("convergence", "Convergence", convergence),
    Section("levels", "Levels", levels),
    Section("working-sets", "Working sets", working_sets),
    Section("planes", "Cutting planes", planes),
    Section("ranks", "Ranks", ranks),
    Section("budget", "Budget", budget),
    Section("cost", "Time and memory", cost),
    Section("scores", "Scores", score),
    Section("threshold", "Threshold", threshold),
    Section("calibration", "Calibration", calibration),
    Section("predictions", "Predictions", predictions),
    Section("columns", "What the columns count for", columns),
    Section("tune", "Tuning", tune),
    Section("warnings", "Warnings", warnings),
)
