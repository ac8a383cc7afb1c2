"""The sections of a report in order, see `SECTIONS` at the foot: each a function from runs to what it shows.

A section without data is empty. Plots are drawn by other files of this folder; the two that one section alone shows are
drawn here: the blocks of a compressed matrix, and the scores of a search over one option.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.events import Compressed, Failed, LevelSolved, Memory, Planned, Started, SupportCompared, Warned
from streamsvm.hss.tree import ClusterTree
from streamsvm.kernels.table import has_gamma
from streamsvm.report import chosen, metric, part_plots, plots, stream_plots
from streamsvm.report.drawing import DASHES, INK, MUTED, SERIES, SPREAD, WIDTH, finish, new, number_text, plot, short
from streamsvm.report.heat_map import axes_of, heat_map
from streamsvm.report.parts import Code, Facts, Lines, Part, Section, Table, filled_columns, plot_each, plot_one
from streamsvm.report.plots import colour
from streamsvm.report.read import NOT_OPTIONS, SCORE, Run, options_of
from streamsvm.report.score_sections import MOST_CLASSES, calibration, predictions, score, threshold
from streamsvm.report.timeline import timeline
from streamsvm.report.values import Row, table
from streamsvm.report.values import label as label_of
from streamsvm.runs.records import number
from streamsvm.solvers.catalogue import renamed, section_of, solver_names
from streamsvm.storage.text import human, human_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL_NAMES = {"objective": "sum of the partitions' objectives"}  # which is not that of the whole problem
MOST_TRIALS = 12
MOST_LINES = 8  # over one option
DEEPEST = 7  # levels drawn: smaller blocks cannot be seen
WRITTEN = 4  # levels whose ranks are written into the blocks
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
    has_C = run.result.get("events") is None  # a stream has lambda, which it tunes unless it is given
    return {
        "status": run.status,
        "solver": run.solver,
        "rows": start.n or run.result.get("n"),
        "events": run.result.get("events"),
        "columns": start.d or run.result.get("d"),
        "kernel": f"{name}, gamma {human('', gamma)}" if has_gamma(name) else name,
        "C": _settled_C(run, plan) if has_C else None,
        "lambda": None if has_C else table(run.config.get("bsgd")).get("lam") or "tuned while learning",
    }


def _settled_C(run: Run, plan: Planned | None) -> Any:
    """The C of the fit: as a search chose it, else as it was given."""
    planned = run.config if run.tune or plan is None else plan.facts
    return table(run.result.get("metric")).get("C", planned.get("C", run.config.get("C")))


def _results(run: Run) -> Row:
    score, result = run.evaluation, run.result
    measured = ((score, "accuracy"), (result, "online_accuracy"), (result, "accuracy"))
    return {
        "converged": _yes_or_no(result.get("converged")),
        "accuracy": next((scores[k] for scores, k in measured if scores.get(k) is not None), None),
        "roc_auc": score.get("roc_auc"),
        "r2": score.get("r2"),
        "n_support": result.get("n_support"),
        "objective": number(result.get("objective")),
        "gap": number(result.get("gap")),
        "seconds": number(result.get("seconds")) or run.seconds,
        "peak_rss_bytes": result.get("peak_rss_bytes"),
    }


def _yes_or_no(value: object) -> str | None:
    return ("yes" if value else "no") if isinstance(value, bool) else None


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
    facts |= {name: value for name, value in run.result.items() if not isinstance(value, dict)}
    return [{"": name, "value": human(name, value)} for name, value in facts.items() if value is not None]


def what_was_chosen(runs: Sequence[Run]) -> Iterator[Part]:
    several = len(runs) > 1
    with_choices = [(run, facts) for run in runs if (facts := chosen.facts(run))]
    if several and with_choices:
        yield Table("", filled_columns([{"run": run.name} | facts for run, facts in with_choices]))
    elif with_choices:
        yield Facts(with_choices[0][1])
    fits = (
        "Best score of each step of the search on held-out rows; the number of training rows is written above. Then "
        "the final choice and its baselines. A learned metric is kept only if it wins by more than chance. "
        "Regions have other held-out rows."
    )
    yield from plot_each(runs, "candidates", "Candidates", fits, chosen.candidates)
    differ = "Difference in score between the best and the worst value tried, each at its best, on the same rows."
    yield from plot_each(runs, "influence", "How much each choice matters", differ, chosen.influences)
    more = (
        "Learning curve: best score by number of training rows. Dotted: extrapolated from the last two sizes by a "
        "power law, not measured. It shows what a longer time budget would gain."
    )
    yield from plot_each(runs, "learning", "Score by rows", more, chosen.learning)
    about = "Best score of each value that was tried. gamma is relative to the scale of the sample."
    for run in runs:
        after = f": {run.name}" if several else ""
        if values := chosen.values_of(run):
            yield Table(f"Values of each choice{after}", filled_columns(values), about)
        if steps := chosen.table_of(run):
            yield Table(f"Steps of the search{after}", filled_columns(steps), folded=True)


def convergence(runs: Sequence[Run]) -> Iterator[Part]:
    whole = "Objective of the whole problem. Rounds in which some rows are left out are not shown."
    yield from plot_one("objective", "Objective", whole, plots.objective(runs))
    above = "Duality gap, relative to the objective: an upper bound on the distance to the optimum."
    yield from plot_one("gap", "Relative gap", above, plots.gap(runs))
    rounds = (
        "Largest violation of the KKT conditions after each round. A run ends at tol. The rounds of several problems, "
        "such as pairs of classes, follow one another."
    )
    yield from plot_one("violation", "Largest violation", rounds, plots.violation(runs))
    yield from plot_one(
        "residuals",
        "Residuals of ADMM",
        "Relative primal and dual residual after each step.",
        plots.residuals(runs),
    )


def levels(runs: Sequence[Run]) -> Iterator[Part]:
    for run in runs:
        compared = {event.level: event for _, event in run.of(SupportCompared)}
        solved = {event.level: event for _, event in run.of(LevelSolved)}
        rows = [_level(solved[level], compared.get(level)) for level in sorted(solved, reverse=True)]
        if rows:
            about = (
                "Precision: share of the level's support vectors that are support vectors of the solution. Recall: "
                "share of the solution's support vectors that the level had found."
            )
            title = run.name if len(runs) > 1 else "Level by level"
            yield Table(title, filled_columns(rows), about if compared else "")
    yield from plot_each(
        runs,
        "levels",
        "Support vectors found",
        "How well each level had found the support vectors of the solution.",
        plots.levels,
    )


def _level(solved: LevelSolved, compared: SupportCompared | None) -> Row:
    shares = {} if compared is None else {"precision": compared.precision, "recall": compared.recall}
    return {LEVEL_NAMES.get(name, name): value for name, value in vars(solved).items()} | shares


def parts(runs: Sequence[Run]) -> Iterator[Part]:
    for run in runs:
        if largest := part_plots.largest(run):
            title = "Largest partitions" if len(runs) == 1 else f"Largest partitions: {run.name}"
            yield Table(title, filled_columns(largest), folded=len(largest) > MOST_CLASSES)
    where = (
        "Centres of the partitions, in the two directions in which they differ most (PCA); distances from the middle "
        "are logarithmic if a few lie far away. Areas show rows; darker partitions are more accurate, if evaluate has "
        "scored them."
    )
    yield from plot_each(runs, "map", "Map of the partitions", where, part_plots.part_map)
    each_one = "Seconds to solve each partition, by its rows. Of many partitions, also how many have so many rows."
    yield from plot_each(runs, "part-sizes", "Size and time of the partitions", each_one, part_plots.part_sizes)


def working_sets(runs: Sequence[Run]) -> Iterator[Part]:
    caption = "Rows optimised together in each round, and rows not left out by shrinking."
    yield from plot_each(runs, "working-sets", "Working sets", caption, plots.working_sets)


def planes(runs: Sequence[Run]) -> Iterator[Part]:
    caption = "Best objective so far (upper bound), and the lower bound given by the planes."
    yield from plot_each(runs, "planes", "Cutting planes", caption, plots.bounds)


def ranks(runs: Sequence[Run]) -> Iterator[Part]:
    caption = "Mean and largest rank of the off-diagonal blocks. Low ranks need little time and memory."
    yield from plot_each(runs, "ranks", "Ranks by level", caption, plots.ranks)
    caption = "Blocks of the kernel matrix with their rank; rows in the order of the cluster tree."
    yield from plot_each(runs, "blocks", "Blocks", caption, _blocks)


def _blocks(run: Run) -> Figure | None:
    """None where the ranks are not those of a whole tree."""
    compressed = run.last(Compressed)
    if compressed is None or compressed.rows is None or not compressed.ranks:
        return None
    n, levels = compressed.rows, compressed.ranks
    whole = all(
        isinstance(level, list) and len(level) == 2**i and all(number(rank) is not None for rank in level)
        for i, level in enumerate(levels, 1)
    )
    return rank_blocks(n, levels) if whole and n >= 2 ** len(levels) else None


@plot
def rank_blocks(n: int, ranks: Sequence[Sequence[int]]) -> Figure:
    """The matrix of n rows as nested blocks, darker where the larger of their two bases has more columns.

    ranks: of the nodes, level by level from the top, without the root's. Diagonal blocks are grey.
    """
    from matplotlib.patches import Rectangle

    bottom = min(len(ranks), DEEPEST)
    tree, most = ClusterTree(n, bottom), max((max(level) for level in ranks), default=1) or 1
    figure, axes = new(WIDTH, xlim=(0, n), ylim=(n, 0), aspect="equal", xlabel="row", ylabel="row")
    axes.grid(visible=False)
    axes.locator_params(nbins=5)

    def block(rows: tuple[int, int], columns: tuple[int, int], **face: Any) -> None:
        size = (columns[1] - columns[0], rows[1] - rows[0])
        axes.add_patch(Rectangle((columns[0], rows[0]), *size, lw=0, **face))

    for level in range(bottom):
        for place, node in enumerate(tree.level(level)):
            left, right = tree.span(2 * node + 1), tree.span(2 * node + 2)
            rank = max(ranks[level][2 * place : 2 * place + 2])
            for rows, columns in ((left, right), (right, left)):
                block(rows, columns, facecolor=SERIES[0], alpha=0.08 + 0.62 * rank / most)
                if level < WRITTEN:
                    middle = sum(columns) / 2, sum(rows) / 2
                    size = 10 - 1.5 * level
                    axes.text(*middle, str(rank), ha="center", va="center", color=INK, fontsize=size)
    for node in tree.level(bottom):
        block(tree.span(node), tree.span(node), facecolor=MUTED, alpha=0.35)
    return figure


def budget(runs: Sequence[Run]) -> Iterator[Part]:
    caption = (
        "Accuracy on each block of rows before training on it, number of support vectors, and cumulative weight "
        "degradation of merging, the sum of |w' - w|\u00b2."
    )
    yield from plot_one("budget", "Accuracy and support vectors", caption, plots.budget(runs))
    caption = "Events per second, and the time to answer and learn an event: mean (line) and slowest (dots)."
    yield from plot_one("pace", "Speed", caption, stream_plots.pace(runs))
    yield from plot_each(
        runs, "labels", "Labels over time", "Share of each label among the events.", stream_plots.labels
    )


def cost(runs: Sequence[Run]) -> Iterator[Part]:
    yield from plot_one("phases", "Time by phase", _of_phases(runs), plots.phases(runs))
    yield from plot_one("memory", "Memory", _of_memory(runs), plots.memory(runs))
    caption = (
        "Tasks by the thread of this machine or the worker that ran them, the busiest first. "
        "Tasks too short to be seen are left out. Point at a task to read its phase and times."
    )
    yield from plot_each(runs, "tasks", "Timeline of tasks", caption, timeline)


def _of_phases(runs: Sequence[Run]) -> str:
    """What the bars add up to."""
    nested = "Nested phases are counted once."
    [seconds] = [run.result.get("seconds") for run in runs] if len(runs) == 1 else [None]
    if "start" not in table(runs[0].result.get("seconds_by_phase")) or number(seconds) is None:
        return nested
    return f"{nested} start: imports and options. All add up to {human('seconds', seconds)}."


def _of_memory(runs: Sequence[Run]) -> str:
    """What the picture shows, and the limit that is too far above to be in it."""
    resident = [event.rss_bytes for run in runs for _, event in run.of(Memory)]
    above = [limit for limit in plots.limits(runs) if limit >= plots.LIMIT_SHOWN * max(resident, default=0)]
    limit = f" The limit of {human_bytes(above[0])} is far above and not drawn." if above else ""
    return f"Resident memory of all processes of the run, sampled every second.{limit}"


def columns(runs: Sequence[Run]) -> Iterator[Part]:
    several = len(runs) > 1
    learned = [(run, facts) for run in runs if (facts := metric.facts(run))]
    if several and learned:
        yield Table("", filled_columns([{"run": run.name} | facts for run, facts in learned]))
    elif learned:
        yield Facts(learned[0][1])
    for run in runs:
        after = f": {run.name}" if several else ""
        if shares := metric.shares(run):
            yield Table(f"Columns{after}", shares, "Shares in the metric.", folded=len(shares) > MOST_CLASSES)
    most = f"The most important columns, {metric.MOST_BARS} at most."
    yield from plot_each(runs, "importances", "Importances", most, metric.importances)
    largest = (
        f"Importance of each column in the metric of each partition, in percent. Only the {metric.MOST_PARTS} largest "
        "partitions are shown."
    )
    yield from plot_each(runs, "parts", "Importance by partition", largest, metric.looks)


def tune(runs: Sequence[Run]) -> Iterator[Part]:
    caption = "Best mean score of each pair of values, over all other options."
    yield from plot_each(runs, "tune", "Score by two options", caption, _heat_map)
    caption = "Mean score on held-out folds. Error bars: standard deviation over the folds."
    yield from plot_each(runs, "tuned", "Score by one option", caption, over_option)
    for run in runs:
        best = run.tune[:MOST_TRIALS]
        if best:
            names = [*options_of(run.tune), *NOT_OPTIONS]
            rows = filled_columns([{name: trial.get(name) for name in names} for trial in best])
            shown = f"{len(best)} of {len(run.tune)} trials, best first."
            yield Table("Trials" if len(runs) == 1 else f"Trials: {run.name}", rows, shown)


def _heat_map(run: Run) -> Any:
    tried = {name: {str(trial.get(name)) for trial in run.tune} for name in options_of(run.tune)}
    axes = axes_of(tried)
    return axes and heat_map(run.tune, *axes)


@plot
def over_option(run: Run) -> Figure | None:
    """Mean score over C, or another option with several numbers, with the standard deviation over folds; a line for
    each choice of the others, those with the best score."""
    trials = [trial for trial in run.tune if number(trial.get(SCORE)) is not None]
    name = across(trials)
    if name is None:
        return None
    lines: dict[str, list[Row]] = {}
    for trial in trials:  # the best first
        if number(trial.get(name)) is not None:
            lines.setdefault(_others(trial, name), []).append(trial)
    score = run.result.get("scoring") or "score"
    figure, axes = new(3.6, xlabel=name, ylabel=f"mean {label_of(str(score))}")
    for i, (label, points_of) in enumerate(list(lines.items())[:MOST_LINES]):
        points = np.array(
            sorted((float(t[name]), float(t[SCORE]), number(t.get("std_score")) or 0.0) for t in points_of)
        )
        style = {"color": colour(i), "ls": DASHES[i % len(DASHES)], "marker": "o", "ms": 4, "capsize": 3}
        axes.errorbar(*points.T[:2], yerr=points[:, 2], label=short(label) if label else None, **style)
    values = [float(t[name]) for t in trials if number(t.get(name)) is not None]
    if min(values) > 0 and max(values) >= SPREAD * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    return finish(figure, axes, is_shared=any(lines))


def across(trials: list[Row]) -> str | None:
    """C where several were tried, else the option with the most different numbers; None where none has several."""
    counts = {
        name: len({value for trial in trials if (value := number(trial.get(name))) is not None})
        for name in options_of(trials)
    }
    several = {name: count for name, count in counts.items() if count > 1}
    return "C" if "C" in several else max(several, key=several.__getitem__, default=None)


def _others(trial: Row, name: str) -> str:
    def text(value: object) -> str:
        as_number = number(value)
        return str(value) if as_number is None else number_text(as_number)

    return ", ".join(
        f"{other.rpartition('.')[2]} {text(trial[other])}"
        for other in options_of([trial])
        if other != name and isinstance(trial[other], str | int | float | bool)
    )


def warnings(runs: Sequence[Run]) -> Iterator[Part]:
    lines = []
    for run in runs:
        failed = [f"ended: {event.message or ''}" for _, event in run.of(Failed)]
        warned = [event.message for _, event in run.of(Warned)]
        before = "" if len(runs) == 1 else f"{run.name}: "
        lines += [before + line for line in dict.fromkeys([*warned, *failed, *run.notes])]
    if lines:
        yield Lines(lines)


SECTIONS = (
    Section("summary", "Summary", summary),
    Section("warnings", "Warnings", warnings),
    Section("chosen", "What was chosen", what_was_chosen),
    Section("tune", "Tuning", tune),
    Section("convergence", "Convergence", convergence),
    Section("levels", "Levels", levels),
    Section("parts", "Partitions", parts),
    Section("working-sets", "Working sets", working_sets),
    Section("planes", "Cutting planes", planes),
    Section("ranks", "Ranks", ranks),
    Section("budget", "Over the rows", budget),
    Section("cost", "Time and memory", cost),
    Section("scores", "Scores", score),
    Section("threshold", "Threshold", threshold),
    Section("calibration", "Calibration", calibration),
    Section("predictions", "Predictions", predictions),
    Section("columns", "Column importances", columns),
)
