"""What `fit` prints if it chose options: the choices, their scores, the time, and a command that repeats the fit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import typer

from streamsvm.cli.output import emit, emit_table, print_table
from streamsvm.config import FitConfig
from streamsvm.options.probability import MICRO
from streamsvm.options.search import FAILED
from streamsvm.runs.phases import searched_s
from streamsvm.solvers.catalogue import DEFAULT_SOLVER
from streamsvm.storage.text import heading, human, percent, score_text

Report = dict[str, Any]
SHARES = 3  # columns to name
SHOWN_LABELS = 10  # with a threshold each
LEAST = 0.001  # smallest share of a column to name
BEFORE = ("start", "compile")  # phases besides the search and the fit
MULTICLASS = {"pairs": "pairs of classes", "rest": "each class against the rest"}
LEAST_S = 0.05  # of a stage, to be named
SAID = ("metric", "expected", "gamma", "exact", "config")  # printed in words, or not at all


def print_fit(report: Report, config: FitConfig, again: Sequence[str]) -> None:
    """Prints the tables, and the command that repeats a fit with its choices.

    config: as the user gave it, with the names of the options to choose. again: the words of that command, without
    the configuration.
    """
    metric = report.get("metric")
    said = ("config",) if metric is None else SAID
    if metric and "score" not in metric:
        print_table("Nothing was chosen", [], [("why", metric["reason"])])
    elif metric:
        print_table(_title(report), [], list(choices(report, config).items()))
        scored = heading(metric["scoring"])
        print_table(scored[:1].upper() + scored[1:], [], list(scores(report).items()))
    if members := report.get("ensemble"):
        emit_table(f"Ensemble of {len(members)}, the first as chosen, by decisions on folds", members)
    rows = {name: _plain(value) for name, value in report.items() if name not in (*said, "violation")}
    rows |= _exactness(report, config.tol)
    rows |= threshold(report["threshold"]) if "threshold" in report else {}
    emit(report, as_json=False, title="Trained", rows=rows | {"seconds": times(report)})
    if report.get("config"):
        typer.echo(f"repeat: {shlex.join([*again, '--config', report['config'], '--force'])}")


def _exactness(report: Report, tol: float) -> dict[str, str]:
    """What the gap and the end of a fit mean: next to the objective, and by the tolerance."""
    texts, gap, objective = {}, report.get("gap"), report.get("objective")
    if gap and objective:
        texts["gap"] = f"{gap:.4g}, {abs(gap / objective):.2g} of the objective"
    if report.get("converged") is not None:
        limit = f"tol {tol:g}" if report.get("epsilon") is None else f"epsilon {report['epsilon']:g}"
        texts["converged"] = f"{_plain(report['converged'])}, to {limit}"
        if not report["converged"] and "violation" in report:
            texts["converged"] += f": the violation is {report['violation']:.2g}"
    return texts


def threshold(chosen: Report) -> dict[str, str]:
    """The chosen threshold and its scores: estimates for new rows, or with too few rows those on the rows it was
    chosen by."""
    by = f"for {chosen['wish']}, by {chosen['rows']:,} held-out rows"
    if "labels" in chosen:
        rows = {f"threshold of {row['label']}": _of_label(row) for row in chosen["labels"][:SHOWN_LABELS]}
        more = len(chosen["labels"]) - SHOWN_LABELS
        of_all = {heading(MICRO): percent(_score(chosen, MICRO))} if MICRO in chosen else {}
        return {"thresholds": by} | of_all | rows | ({"more labels": str(more)} if more > 0 else {})
    where = "new rows" if chosen["expected"] else "the rows it was chosen by"
    return {"threshold": f"{chosen['value']:.6g} {by}", f"scores there, on {where}": _scores_text(chosen)}


def _of_label(chosen: Report) -> str:
    scores = f": {_scores_text(chosen)}" if "expected" in chosen else ", of rows that all have it, or all lack it"
    return f"{chosen['value']:.6g}{scores}"


def _scores_text(chosen: Report) -> str:
    """The scores at a threshold."""
    names = ("precision", "recall", "f1", "balanced_accuracy")
    return ", ".join(f"{heading(name)} {percent(_score(chosen, name))}" for name in names)


def _score(chosen: Report, name: str) -> float:
    """A score on new rows, if it is known, else on those that the threshold was chosen by."""
    return float(chosen["expected"].get(name, {"score": chosen[name]})["score"])


def _plain(value: Any) -> Any:
    return ("yes" if value else "no") if isinstance(value, bool) else value


def _title(report: Report) -> str:
    rows = max(step["rows"] for step in report["metric"]["rungs"])
    expected = report.get("expected") or {}
    held_out = 0 if expected.get("model", True) else expected["rows"]
    n = max(report["n"], held_out)  # the time left may have been enough for some of them only
    number = f"{held_out:,} " if held_out else ""
    return f"Chosen by fits on up to {rows:,} of {n:,} rows, compared on {number}held-out rows"


def choices(report: Report, config: FitConfig) -> dict[str, str]:
    """The options of the fit. Those that were not searched are marked."""
    metric, searched = report["metric"], config.search.chosen
    texts = {
        "kernel": metric["kernel"],
        "gamma": "" if metric["gamma"] is None else f"{metric['gamma']:.4g}",
        "C": f"{metric['C']:.4g}",
        "scale": "none" if metric["scale"] == "centre" else metric["scale"],
        "metric": _weighed(metric, report["d"]),
        "class_weight": _class_weight(metric),
        "multiclass": MULTICLASS.get(str(metric.get("multiclass", "")), ""),
    }
    shown = {
        heading(name): text if name in searched else f"{text} (not searched)" for name, text in texts.items() if text
    }
    return shown | ({"prediction": _prediction(report)} if "early" in searched else {})


def _class_weight(metric: Report) -> str:
    """The weights that a search tried because its score counts classes alike."""
    name = str(metric.get("class_weight", ""))
    return f"{name}: as {heading(metric['scoring'])} counts classes alike" if name == "balanced" else name


def _weighed(metric: Report, d: int) -> str:
    """The weights of the columns, or why all weigh the same."""
    if metric["kind"] == "none":
        return f"none: {metric['reason']}" if "reason" in metric else "none"
    most = [f"{name} ({percent(share)})" for name, share in metric["importances"][:SHARES] if share >= LEAST]
    unit = "columns count" if metric["kind"] == "diagonal" else "directions count"
    return f"{metric['kind']}: {metric['columns']:,} of {d:,} {unit}, most: {', '.join(most)}"


def _prediction(report: Report) -> str:
    if report["solver"] != DEFAULT_SOLVER:
        return f"{report['solver']}: a weight for each column"
    if report.get("exact", True):
        return "exact: the whole problem is solved"
    return "early: an exact fit would take too long, so each partition of the rows has its own model"


def scores(report: Report) -> dict[str, str]:
    """Scores of the search, of the fits it is compared with, and the estimate for new rows."""
    metric, expected = report["metric"], report.get("expected")
    values = {"search, as chosen": metric["score"]}
    compared = {"search, without the metric": "plain_score", "search, with the defaults": "given_score"}
    values |= {
        label: metric[name] for label, name in compared.items() if name in metric and metric[name] != metric["score"]
    }
    if metric.get("regions"):
        values["search, in dense regions"] = max(step["score"] for step in metric["regions"])
    texts = {label: score_text(metric["scoring"], score) for label, score in values.items()}
    if failed := metric.get("failed"):
        texts["fits dropped by the search"] = f"{failed:,}: {FAILED}"
    return texts if expected is None else texts | _expected(expected)


def _expected(expected: Report) -> dict[str, str]:
    score, low, high = (score_text(expected["scoring"], expected[name]) for name in ("score", "low", "high"))
    fits = "folds" if expected.get("folds") else "the search"
    rows = "rows kept out of the fit" if expected["model"] else f"held-out rows of {fits}"
    texts = {
        "expected on new rows": f"{score}, by {expected['rows']:,} {rows}",
        "19 of 20 such tests": f"{low} to {high}",
    }
    if "cost" in expected:
        likeliest = f"{expected['cost_of_likeliest']:.4g} with the most probable labels"
        texts["expected cost of a row"] = f"{expected['cost']:.4g}; {likeliest}"
    return texts


def times(report: Report) -> str:
    """Seconds of the command, and those of its stages, which add up to them: `start` is imports and reading."""
    phases = report.get("seconds_by_phase") or {}
    stages = {name: phases.get(name, 0.0) for name in BEFORE} | {"search": searched_s(phases)}
    stages["fit"] = sum(phases.values()) - sum(stages.values())
    text = human("seconds", float(report["seconds"]))
    named = [f"{name} {seconds:.1f} s" for name, seconds in stages.items() if seconds >= LEAST_S]
    return f"{text}: {', '.join(named)}" if stages["search"] else text
