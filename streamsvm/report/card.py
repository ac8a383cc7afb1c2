"""A model card: what a model does, of what it was made, how good it is and where it ends, as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamsvm.config import build_config, changes
from streamsvm.models import EnsembleModel
from streamsvm.models.base import Model
from streamsvm.report.markdown import markdown
from streamsvm.report.parts import Facts, Lines, Part, Table, filled_columns
from streamsvm.report.read import Run
from streamsvm.report.scores import score_tables
from streamsvm.report.sections import flat
from streamsvm.runs.records import Row, table
from streamsvm.storage.text import human, score_text
from streamsvm.tables.schema import Schema

MOST_COLUMNS, MOST_TEXTS = 200, 20  # that are listed
NOT_EXACT = ("asked", "expected", "threshold", "thinned")  # of a certificate


def card(model: Model, name: str, run: Run | None = None, stream_scores: Row | None = None) -> str:
    """The page. run: the one that trained the model; its scores are reported, too. stream_scores: scores of answers to
    a stream, each given before the model learned from its event."""
    before_learning = {name: score for name, score in (stream_scores or {}).items() if score is not None}
    of_stream = [Table("Answers to events before learning from them", [before_learning])] if before_learning else []
    sections: dict[str, list[Part]] = {
        "What it does": [Facts(_use(model))],
        "Columns": list(_columns(model)),
        "Data": [Facts(_data(model, run))],
        "Options": [Table("", [{"option": k, "value": v} for k, v in _options(model).items()])],
        "How exact": [Facts({k: v for k, v in _certificate(model).items() if k not in NOT_EXACT})],
        "What to expect": [Facts(_expected(model))],
        "Scores": [*([] if run is None else score_tables([run])), *of_stream],
        "Limits": [Lines(list(_limits(model)))],
    }
    texts = {title: "".join(map(markdown, parts)) for title, parts in sections.items()}
    return f"# Model card: {name}\n" + "".join(f"\n## {title}\n{text}" for title, text in texts.items() if text)


def _certificate(model: Model) -> Row:
    return model.header.certificate or {}


def _stream(model: Model) -> Row | None:
    """What a learner of streams stores alongside its model."""
    return getattr(model, "stream", None)


def _use(model: Model) -> Row:
    header, config = model.header, model.header.config or {}
    calibration, intervals = header.calibration, model.intervals
    return {
        "task": model.task,
        "classes": model.classes.tolist() if model.learned.has_classes else None,
        "class_1_stands_for": list(header.positive) or None,
        "solver": config.get("solver"),
        "kernel": ", ".join(human("", v) for v in header.kernel.to_attrs().values()),
        "ensemble": _members(model),
        "scaling": header.scaling.kind,
        "probabilities": None if calibration is None else calibration.method,
        "threshold": threshold.tolist() if isinstance(threshold := header.threshold, np.ndarray) else threshold,
        "interval": None if intervals is None else intervals.level,
    }


def _members(model: Model) -> list[str] | None:
    """Kernels of an ensemble, with their weights; the kernel above is that of the first one chosen."""
    if not isinstance(model, EnsembleModel):
        return None
    pairs = zip(model.members, model.weights.tolist(), strict=True)
    return [f"{member.header.kernel.name} (weight {weight:.3g})" for member, weight in pairs]


def _columns(model: Model) -> Iterator[Part]:
    rows = list(_of_table(model)) or [
        {"column": name, "kind": "number", "if missing": _fill(model, column)}
        for column, name in enumerate(model.shown_names or ())
    ]
    if not rows:
        yield Lines([f"{model.d:,} columns of numbers without names."])
        return
    yield Table("", filled_columns(rows[:MOST_COLUMNS]))
    if len(rows) > MOST_COLUMNS:
        yield Lines([f"And {len(rows) - MOST_COLUMNS:,} more."])


def _of_table(model: Model) -> Iterator[Row]:
    """The columns of the table that it was trained on, if it was one."""
    layout = model.layout
    if layout is None or "columns" not in layout.attrs:
        return
    schema = Schema.from_attrs(layout.attrs)
    for feature, start in zip(schema.features, schema.offsets.tolist(), strict=False):
        gap = _fill(model, start) if feature.kind != "text" else "0 for each"
        gap = gap if feature.smooth is None else "the value of missing text"
        name = feature.name if layout.attrs.get("header", True) else feature.name.removeprefix("f")
        texts = [*feature.categories]
        more = f" and {len(texts) - MOST_TEXTS:,} more" if len(texts) > MOST_TEXTS else ""
        values = ", ".join(texts[:MOST_TEXTS]) + more
        yield {"column": name, "kind": feature.kind, "values": values, "if missing": gap}


def _fill(model: Model, column: int) -> str:
    fill, marks = model.header.scaling.fill, model.header.scaling.marks
    if fill is None and _stream(model) is not None:
        return "0 in events, refused in stores"
    if fill is None:
        return "refused"
    marked = ", marked" if marks is not None and column in marks else ""
    return human("", float(fill[column])) + marked


def _data(model: Model, run: Run | None) -> Row:
    attrs = {} if model.layout is None else model.layout.attrs
    started = None if run is None else run.started
    return {
        "fingerprint": model.header.fingerprint,
        "store": None if started is None else started.store,
        "rows": None if started is None else started.n,
        "columns_of_rows": model.d,
        "label": attrs.get("label"),
        "left_out": attrs.get("ignored"),
        **(_stream(model) or {}).get("counts", {}),
    }


def _options(model: Model) -> Row:
    """Those that are not defaults."""
    config = build_config(("the model", model.header.config or {}))
    return flat(changes(config))


def _expected(model: Model) -> Row:
    expected = table(_certificate(model).get("expected"))
    if not expected:
        return {}
    scoring = expected["scoring"]
    score, low, high = (score_text(scoring, expected[name]) for name in ("score", "low", "high"))
    fits = "folds" if expected.get("folds") else "the search"
    by = "by the model itself" if expected["model"] else f"by fits of {fits}"
    scores = {scoring: f"{score} on new rows (95 % interval: {low} to {high}), from {expected['rows']:,} rows, {by}"}
    return scores | ({"cost": f"{expected['cost']:.4g} a row, from the same rows"} if "cost" in expected else {})


def _limits(model: Model) -> Iterator[str]:
    if _stream(model) is None:
        yield from _limits_of_rows(model)
    else:
        yield "Events may have any of these columns, by name. A missing column counts as 0, a new one is added."
        yield "Rows of stores and files must have exactly these columns, by name, in any order. Others are refused."
        yield "`streamsvm stream --model` resumes learning from the snapshot, which changes the model."
    if model.learned.has_classes:
        yield "A row that belongs to none of the classes still gets one of them."
    if thinned := _certificate(model).get("thinned"):
        before, points = thinned["support_vectors_before"], thinned["points"]
        yield f"It was thinned from {before:,} support vectors, and {points:.2g} % of rows got another label by that."
    if _certificate(model).get("converged") is False:
        yield "The solver was stopped before it had converged."
    yield "Scores hold for rows like the training rows. `streamsvm check STORE --against OTHER` compares two stores."


def _limits_of_rows(model: Model) -> Iterator[str]:
    named = " with these names" if model.feature_names else ""
    yield f"Rows must have {model.d:,} columns{named}. Infinite values are refused."
    if not model.takes_gaps:
        yield "Missing numbers are refused: the training rows had none."
    if any(row["kind"] == "text" for row in _of_table(model)):
        yield "A text that is not listed above counts as 0 in each of its columns."
