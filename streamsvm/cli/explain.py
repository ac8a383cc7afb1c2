"""`streamsvm explain`: which columns matter, and why rows are predicted as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from streamsvm.cli.app import importing
from streamsvm.cli.inputs import ROWS, TO_PREDICT, GivenRows, takes_rows
from streamsvm.cli.options import AsJson, ModelIn, on_device, option
from streamsvm.cli.output import emit, print_table, progress
from streamsvm.errors import ConfigError
from streamsvm.events import Events, Warned
from streamsvm.storage.text import heading, human

if TYPE_CHECKING:
    from streamsvm.data.store import Store
    from streamsvm.models.base import Model

FIRST = "0..2"
MOST_ROWS = 10_000
NUMBER = re.compile("[0-9]{1,18}")
VALUES = 3  # columns of support vectors that a table shows
SHORT, RAW = 4, 6  # digits of computed numbers, and of values in rows


@on_device
@takes_rows(*ROWS, files=TO_PREDICT, store="Rows to explain, unscaled.", has_labels=False)
def explain(
    model: ModelIn,
    given: GivenRows,
    rows: Annotated[
        str | None, option("--rows", f"Which rows, such as 0,5,10..20 (default {FIRST}).", "N,N..N")
    ] = None,
    top: Annotated[int, option("--top", "Columns to show in tables.", "N", min=1)] = 10,
    support: Annotated[
        int, option("--support", "Support vectors to show for each row, by weight and by distance.", "N", min=0)
    ] = 3,
    shapley: Annotated[
        bool, option("--shapley", "Shapley values of each row: rbf and laplacian kernels, pools.")
    ] = False,
    of_label: Annotated[
        str | None, option("--of-label", "Whose decision to explain, of a model of task multilabel.", "LABEL")
    ] = None,
    out: Annotated[Path | None, option("--out", "Write everything to this file, .csv or .json.", "FILE")] = None,
    as_json: AsJson = False,
) -> None:
    """Show which columns matter to a model, and gradients, support vectors and Shapley values of rows.

    \b
    streamsvm explain --model model.zarr
    streamsvm explain --model model.zarr new.csv --rows 0,7 --shapley
    """
    has_rows = bool(given.files) or given.store is not None
    _require(has_rows, out, {"rows": rows, "shapley": shapley or None, "x": given.x, **given.read})
    with importing():
        from streamsvm.explain.importances import importances_table
        from streamsvm.explain.rows import rows_tables
        from streamsvm.models.files import load_model

    given.require_other(out)
    loaded = load_model(model)
    if not has_rows:
        result = {"model": str(model), **importances_table(loaded, None, of_label)}
    else:
        with (
            progress() as events,
            given.opened(events, loaded.layout, loaded.categories, label="none") as (opened, name, _),
        ):
            ids = row_numbers(rows or FIRST, opened.n, name, clipped=rows is None)
            _warn(loaded, opened, events)
            result = {"model": str(model), "store": name, **importances_table(loaded, opened, of_label)}
            result["rows"] = rows_tables(loaded, opened, ids, shapley=shapley, support=support, label=of_label)
    if out is not None:
        from streamsvm.explain.rows import write

        write(result, out)
    if as_json:
        emit(result, as_json=True, title="")
    else:
        _show(result, top)


def _require(has_rows: bool, out: Path | None, of_rows: dict[str, Any]) -> None:
    """Raises ConfigError for options that need rows if there are none, and for file names of other types."""
    for name, value in of_rows.items():
        if value is not None and not has_rows:
            raise ConfigError(f"--{name} is about rows: name their store with --store, or give a FILE")
    if out is not None and out.suffix not in (".csv", ".json"):
        raise ConfigError(f"--out {out}: expected a name ending in .csv or .json")


def _warn(model: Model, store: Store, events: Events) -> None:
    from streamsvm.tables.target_encoding import with_values_of_model

    _, unchecked = model.columns_in(with_values_of_model(store, model.layout))
    if unchecked:
        events(Warned(unchecked))


def row_numbers(text: str, n: int, store: str, *, clipped: bool = False) -> list[int]:
    """The row numbers in text such as 0,5,10..20, each once and in the given order. clipped: existing rows only.

    Raises ConfigError.
    """
    numbers: dict[int, None] = {}
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        ends = (first, last if dots else first)
        if not all(map(NUMBER.fullmatch, ends)) or int(ends[0]) > int(ends[1]):
            raise ConfigError(f"--rows: found {part[:40]!r}, expected row numbers such as 0,5,10..20")
        if int(ends[1]) >= n and not clipped:
            raise ConfigError(f"--rows: found {part[:40]}, {store} has rows 0 to {n - 1}")
        if int(ends[1]) - int(ends[0]) + len(numbers) >= MOST_ROWS:
            raise ConfigError(f"--rows: found more than {MOST_ROWS:,} rows, expected fewer")
        numbers |= dict.fromkeys(range(int(ends[0]), min(n, int(ends[1]) + 1)))
    return list(numbers)


def _show(result: dict[str, Any], top: int) -> None:
    every = result.get("importances_by_column", result["importances"])
    shown = every[:top]
    more = len(every) - len(shown)
    tail = f"; {more:,} more below" if more else ""
    _table(f"Importances of {result['model']}, from {result['importances_from']}{tail}", shown)
    for row in result.get("rows", []):
        _table(_title(row), row.get("columns", row["features"])[:top])
        _show_support(row)


def _title(row: dict[str, Any]) -> str:
    above = "" if row["for_class"] is None else f" (above 0: {row['for_class']})"
    base = "" if row["shapley_base"] is None else f" = {row['shapley_base']:.4g} and the sum of Shapley values"
    return f"Row {row['row']}: {row['answer']}, decision {row['decision']:.4g}{above}{base}"


def _show_support(row: dict[str, Any]) -> None:
    """A line for each support vector, with its values in the columns that matter most to the row."""
    vectors = [(by, vector) for by in ("weight", "distance") for vector in row[f"support_by_{by}"]]
    if not vectors:
        return
    by_column = "columns" if "columns" in row else "values"
    of_columns = [feature.get("column", feature.get("feature")) for feature in row.get("columns", row["features"])]
    facts = [
        name
        for name in vectors[0][1]
        if name not in ("values", "columns") and any(vector[name] is not None for _, vector in vectors)
    ]
    values = [vector.get(by_column) or {} for _, vector in vectors]  # None in columns that a metric leaves out
    first = [name for name in of_columns if any(of_vector.get(name) is not None for of_vector in values)][:VALUES]
    cells = [
        [by, *(_text(vector[name]) for name in facts), *(_text(of_vector[name], RAW) for name in first)]
        for (by, vector), of_vector in zip(vectors, values, strict=True)
    ]
    print_table(f"Support vectors of row {row['row']}", ["by", *map(heading, facts), *first], cells)


def _table(title: str, records: list[dict[str, Any]]) -> None:
    """Records as people read them, without fields that are None in all of them."""
    filled = [name for name in records[0] if any(record[name] is not None for record in records)]
    cells = [[_text(record[name], RAW if name == "value" else SHORT) for name in filled] for record in records]
    print_table(title, list(map(heading, filled)), cells)


def _text(value: Any, digits: int = SHORT) -> str:
    """Rounds to this many digits. Names of columns say nothing about units."""
    return f"{value:.{digits}g}" if isinstance(value, float) else human("", value)
