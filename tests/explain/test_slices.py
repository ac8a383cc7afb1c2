"""Scores of the rows of each value of a text column."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from every_case import every_case
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.preprocessing import scale

from streamsvm import DCSVC, BudgetedSVR
from streamsvm.cli.app import app, exit_status
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import ignore
from streamsvm.explain.slices import OTHER, cut, evaluate_sliced
from streamsvm.models.files import load_model
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate

WARDS = np.array(["east", "north", "west", ""])


def frame_of(load):
    """Real columns beside a ward; a quarter of the rows have none."""
    X, y = load(return_X_y=True)
    frame = pd.DataFrame(scale(X), columns=[f"x{i}" for i in range(X.shape[1])])
    wards = WARDS[np.random.default_rng(0).integers(0, 4, len(y))]
    return frame.assign(ward=pd.Series(wards).replace("", None)), y


@pytest.mark.parametrize(
    ("load", "estimator"),
    [
        (load_breast_cancer, DCSVC(C=10, probability=True)),
        (load_digits, DCSVC(C=10)),
        (load_diabetes, BudgetedSVR()),
    ],
)
def test_each_value_is_scored_as_its_rows_alone_are(load, estimator):
    frame, y = frame_of(load)
    model, store = estimator.fit(frame, y).model_, Store.from_arrays(frame, y)
    store.blocks = lambda most=None: Store.blocks(store, 100)  # several
    assert len(store.blocks()) > 4
    found = evaluate_sliced(model, store, ["ward"], engine=Engine(2))
    whole = evaluate(model, store, engine=Engine(2))
    assert {name: found[name] for name in whole} == whole
    assert [row["n"] for row in found["slices"]["ward"]] == sorted(
        (row["n"] for row in found["slices"]["ward"]), reverse=True
    )
    assert {row["value"] for row in found["slices"]["ward"]} == {"east", "north", "west", OTHER}
    for row in found["slices"]["ward"]:
        own = frame["ward"].isna() if row["value"] == OTHER else frame["ward"] == row["value"]
        alone = evaluate(model, store.subset(np.flatnonzero(own)), engine=Engine(2))
        assert row.pop("value")
        assert row == pytest.approx({name: alone[name] for name in row}, rel=1e-4)
        assert "r2" in row or "accuracy" in row


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("no", "--slice no: the data has no such column; it has 'x0', 'x1'"),
        ("id", "--slice id: has 150 values, expected at most 100: a column of categories"),
    ],
)
def test_refusals(column, message):
    frame, y = frame_of(load_breast_cancer)
    model = DCSVC().fit(frame, y).model_
    if column == "id":
        frame["id"] = [f"r{i % 150}" for i in range(len(y))]
    with pytest.raises(ConfigError, match=message):
        evaluate_sliced(model, Store.from_arrays(frame, y), [column], engine=Engine(1))


def test_a_store_without_text():
    X, y = load_digits(return_X_y=True)
    with pytest.raises(ConfigError, match="--slice a: the data has no such column; it has numbers from 0 to 63"):
        evaluate_sliced(DCSVC().fit(X, y).model_, Store.from_arrays(X, y), ["a"], engine=Engine(1))


def test_labels_that_the_model_does_not_know_have_no_scores():
    frame, y = frame_of(load_digits)
    model = DCSVC().fit(frame, y).model_
    y[frame["ward"] == "east"] = 77
    found = evaluate_sliced(model, Store.from_arrays(frame, y), ["ward"], engine=Engine(1))
    [row] = [row for row in found["slices"]["ward"] if row["value"] == "east"]
    assert row["n"] == np.sum(frame["ward"] == "east")
    assert row["accuracy"] is None


def test_on_the_command_line_with_a_store_a_file_and_a_run(tmp_path, capfd):
    frame, y = frame_of(load_breast_cancer)
    frame.assign(label=y).to_csv(tmp_path / "t.csv", index=False)

    def run(*words):
        status = exit_status(lambda: app([*map(str, words)], standalone_mode=False))
        return status, *capfd.readouterr()

    model, folder = tmp_path / "m", tmp_path / "run"
    fit = ("fit", tmp_path / "t.csv", "--label", "label", "--model", model, "--no-search")
    assert run(*fit, "--scale", "standard", "--run-dir", folder)[0] == 0
    asked = ("evaluate", "--model", model, "--slice", "ward")
    status, out, _ = run(*asked, tmp_path / "t.csv", "--json", "--run-dir", folder)
    of_file = json.loads(out)
    assert (status, [*of_file["slices"]], len(of_file["slices"]["ward"])) == (0, ["ward"], 4)
    assert json.loads((folder / "evaluation.json").read_text())["slices"] == of_file["slices"]
    assert json.loads(run(*asked, "--store", tmp_path / "t.zarr", "--json")[1])["slices"] == of_file["slices"]
    assert "By ward" in run(*asked, tmp_path / "t.csv")[1]
    assert run("report", folder, "--out", tmp_path / "r.html")[0] == 0
    assert "By ward" in (tmp_path / "r.html").read_text()
    status, out, err = run("evaluate", "--model", model, "--slice", "no", tmp_path / "t.csv")
    assert (status, out, err.count("\n")) == (2, "", 1)


def table_of(n=240):
    """Columns of every kind, some of which are missing here and there."""
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-02-01") + pd.to_timedelta(rng.integers(0, 90, n), "D")
    frame = pd.DataFrame(
        {
            "vip": rng.random(n) < 0.5,
            "kids": rng.integers(0, 4, n).astype(float),
            "size": rng.normal(size=n).round(3),
            "day": days,
            "town": [f"t{i}" for i in rng.integers(0, 50, n)],
            "shop": rng.choice(["a", "b"], n),
            "number": rng.integers(10**9, 10**10, n),
        }
    )
    frame.loc[::11, "kids"] = np.nan
    return frame.assign(y=np.where(frame["size"] + frame["vip"] > 0.5, "yes", "no"))


def quarters(column):
    """The label of each row, by pandas."""
    own = pd.qcut(column, 4, labels=False)
    ends = column.groupby(own).agg(["min", "max"])
    return own.map(lambda i: f"{text(ends['min'][i])} to {text(ends['max'][i])}")


def text(value):
    return f"{value:%Y-%m-%d}" if isinstance(value, pd.Timestamp) else f"{value:.6g}"


def plain(column):
    return column.map(lambda v: "(missing)" if pd.isna(v) else str(v).lower().removesuffix(".0"))


def test_columns_of_every_kind_of_files_and_stores(tmp_path, capfd):
    frame = table_of()
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    expected = {"vip": plain(frame["vip"]), "kids": plain(frame["kids"]), "shop": frame["shop"]}
    expected |= {"size": quarters(frame["size"]), "day": quarters(frame["day"])}
    left_out = {"town": frame["town"], "number": pd.qcut(frame["number"], 4, labels=False)}

    def sliced(columns, *rows):
        words = ("evaluate", "--model", tmp_path / "m", "--slice", ",".join(columns), "--json", *rows)
        assert exit_status(lambda: app([*map(str, words)], standalone_mode=False)) == 0
        return json.loads(capfd.readouterr().out)["slices"]

    fit = ("fit", tmp_path / "t.csv", "--model", tmp_path / "m", "--no-search", "--C", "10", "--scale")
    own = ("standard", "--ignore", "number", "--group", "town", "--set", "solver=bsgd")
    assert exit_status(lambda: app([*map(str, (*fit, *own))], standalone_mode=False)) == 0
    capfd.readouterr()
    of_file = sliced([*expected, *left_out], tmp_path / "t.csv")
    assert [*of_file] == [*expected, *left_out]
    assert sliced([*of_file], tmp_path / "t.parquet") == of_file
    of_store = sliced(expected, "--store", tmp_path / "t.zarr")
    predicted = load_model(tmp_path / "m").predict(frame.drop(columns=["y", "number", "town"]))
    for name, values in (expected | left_out).items():
        rows = pd.DataFrame({"value": values, "right": predicted == frame["y"]}).groupby("value")["right"]
        counts, right = rows.size(), rows.mean()
        if name == "number":
            assert [row["n"] for row in of_file[name]] == counts.tolist()
            assert of_file[name][0]["value"].startswith(f"{frame['number'].min()} to ")
            assert [row["accuracy"] for row in of_file[name]] == pytest.approx(right.tolist())
            continue
        assert {row["value"]: row["n"] for row in of_file[name]} == counts.to_dict()
        found = {row["value"]: row["accuracy"] for row in of_file[name]}
        assert found == pytest.approx(right.to_dict())
        if name in expected:  # the store has groups, the file was given none
            rows = [{name: score for name, score in row.items() if name != "groups"} for row in of_store[name]]
            assert rows == of_file[name]


@every_case(
    ("values", "told"),
    [
        ([0.0] * 90 + [*range(1, 31)], ["0", "1 to 30"]),
        ([*range(12)], [str(i) for i in range(12)]),
        ([*range(13)], ["0 to 3", "4 to 6", "7 to 9", "10 to 12"]),
        ([np.nan, 2.5, np.nan], ["2.5", "(missing)"]),
        ([np.nan, np.nan], ["(missing)"]),
    ],
)
def test_numbers_by_value_or_in_quarters(values, told):
    store = Store.from_arrays(np.array(values)[:, None], feature_names=("a",))
    found = cut(store, "a", None, Engine(1), ignore)
    assert [found.values[i] for i in np.unique(found.places)] == told
    assert len(found.places) == len(values)


def test_times_are_told_to_the_minute_where_they_have_one():
    when = pd.to_datetime(["2024-01-01 10:30", "2024-01-02 00:00", None])
    found = cut(Store.from_arrays(pd.DataFrame({"t": when, "z": [0, 1, 2]})), "t", None, Engine(1), ignore)
    assert [found.values[i] for i in found.places] == ["2024-01-01T10:30", "2024-01-02", "(missing)"]


def test_columns_without_names_are_numbers_from_0():
    found = cut(Store.from_arrays(np.array([[1.0, 5.0], [2.0, 4.0]])), "1", None, Engine(1), ignore)
    assert [found.values[i] for i in found.places] == ["5", "4"]
