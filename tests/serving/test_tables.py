"""Events of a model whose rows come from a table with texts and times: answered as `predict` answers that table."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from cases import config
from every_case import every_case

from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.models.files import save_model
from streamsvm.online.stream import Stream
from streamsvm.serving.fixed import InputColumns
from streamsvm.tables import arrow
from streamsvm.tables.arrow import raw_rows
from streamsvm.train import train_in_memory

ZONES = ["1970-01-01 10:00:00Z", "1970-01-01", "1970-01-01T12:00:00+02:00", "1970-01-02 10:00:00"]


def table(n, *, gaps):
    rng, rows = np.random.default_rng(0), []
    for i in range(n):
        row = {
            "size": round(rng.normal(), 3),
            "colour": ("red", "blue", "sea green")[i % 3],
            "code": i % 2,
        }
        row |= {"when": f"1970-01-0{1 + i % 7} 0{i % 5}:00:00", "flag": bool(i % 2)}
        if gaps:
            row |= dict.fromkeys(("size", "colour", "when", "flag")[i % 5 : i % 5 + 1])
        rows.append(row | {"y": "yes" if i % 3 else "no"})
    return rows


def fitted(folder, kind, rows, **options):
    """A model, its store, and the rows as events."""
    with (folder / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        for row in rows:
            text = "" if row["flag"] is None else str(row["flag"]).lower()
            writer.writerow(row | {"flag": text})
    ingest([folder / "a.csv"], folder / "s", IngestOptions(label="y", **options))
    store = Store.open(folder / "s")
    events = [{name: value for name, value in row.items() if name != "y"} for row in rows]
    return train_in_memory(store, config(kind, scale="none"))[0], store, events


@pytest.mark.filterwarnings("ignore:.*3 columns have missing values")
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"hash": {"colour": 4}}, {"target_encode": {"colour": "auto"}}, {"min_frequency": 21}],
    ids=str,
)
def test_a_model_sees_the_rows_that_ingest_makes(tmp_path, options, gaps):
    model, store, events = fitted(tmp_path, "dcsvm", table(60, gaps=gaps), **options)
    columns = InputColumns(model)
    assert columns.names == ["size", "colour", "code", "when", "flag"]
    expected = model._rows(store).dense()
    np.testing.assert_array_equal(columns.rows(events).dense(), expected)
    left_out = [{name: value for name, value in event.items() if value is not None} for event in events]
    np.testing.assert_array_equal(columns.rows(left_out).dense(), expected)
    np.testing.assert_array_equal(columns.rows([{"x": event} for event in events[:5]]).dense(), expected[:5])


@pytest.mark.parametrize("options", [{}, {"hash": {"colour": 4}}], ids=str)
def test_a_stream_continues_with_the_rows_that_ingest_makes(tmp_path, options):
    model, store, events = fitted(tmp_path, "one learner", table(60, gaps=False), **options)
    save_model(model, tmp_path / "m")
    stream = Stream.open(tmp_path / "m", lambda: None, scale=False, label="y")
    np.testing.assert_allclose(stream.decide(events)[:, 0], model.decision_function(store), atol=1e-6)
    features = [*stream.learner.features]
    assert "error" not in stream.take(events[0] | {"y": "no"})
    stream.save()
    again = Stream.open(tmp_path / "m", lambda: None, scale=False, label="y")
    assert again.learner.features == features
    np.testing.assert_array_equal(again.decide(events), stream.decide(events))
    assert stream.take(events[0] | {"colour": 1.5, "y": "no"})["error"] == (
        "feature 'colour': found '1.5', expected a text"
    )


@every_case(
    ("wrong", "message"),
    [
        ({"colour": 1.5}, "event 1: feature 'colour': found '1.5', expected a text"),
        ({"when": "soon"}, "event 1: feature 'when': found 'soon', expected a time such as"),
        ({"when": 3}, "event 1: feature 'when': found '3', expected a time such as"),
        ({"flag": "true"}, "event 1: feature 'flag': found 'true', expected true or false"),
        ({"size": "a"}, "event 1: feature 'size': found 'a', expected a number"),
        ({"size": None}, "event 1: feature 'size' is missing, and the model takes no gaps"),
        ({"colour=red": 1}, "event 1: feature 'colour=red' is none of the model's"),
    ],
)
def test_values_of_other_types_are_told(tmp_path, wrong, message):
    model, _, events = fitted(tmp_path, "dcsvm", table(12, gaps=False))
    with pytest.raises(DataError, match=message):
        InputColumns(model).rows([events[0], events[1] | wrong])


def test_rows_of_many_events_are_made_at_once(tmp_path, monkeypatch):
    """One column for each feature, in one piece: pieces of one event are encoded one by one."""
    model, _, events = fitted(tmp_path, "dcsvm", table(12, gaps=False))
    events = [event | {"when": zone} for event, zone in zip(events, ZONES * 3, strict=True)]
    expected = [InputColumns(model).rows([event]).dense()[0] for event in events]
    pieces = list[int]()

    def counted(batch, *args, **options):
        pieces.append(batch.num_rows)
        return raw_rows(batch, *args, **options)

    monkeypatch.setattr(arrow, "raw_rows", counted)
    np.testing.assert_array_equal(InputColumns(model).rows(events).dense(), expected)
    assert pieces == [12]


def test_missing_markers_of_files_are_missing(tmp_path):
    rows = table(60, gaps=True)
    with pytest.warns(UserWarning, match="3 columns have missing values"):
        model, _, events = fitted(tmp_path, "dcsvm", rows)
    columns = InputColumns(model)
    marked = [{n: "n/a" if v is None and n != "colour" else v for n, v in event.items()} for event in events]
    np.testing.assert_array_equal(columns.rows(marked).dense(), columns.rows(events).dense())
