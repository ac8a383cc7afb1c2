"""Names of columns on the command line: rows are predicted as the model's, or refused with the first difference."""

from __future__ import annotations

import csv
import json
import shutil
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import run
from hypothesis import given
from hypothesis import strategies as st

from streamsvm import Store, load_model
from streamsvm.online.stream import Stream

COLUMNS = ("width", "age", "colour", "b")
NAMES = ("width", "age", "colour=red", "colour=blue", "b")


def rows() -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    X, red = rng.normal(size=(60, 3)).round(3), rng.random(60) < 0.5
    red[:2] = True, False
    y = np.where(X[:, 0] - 2 * X[:, 1] + red > 0, "up", "down")
    colour = np.where(red, "red", "blue")
    return [
        {"width": a, "age": b, "colour": c, "b": d, "y": t}
        for (a, b, d), c, t in zip(X.tolist(), colour, y, strict=True)
    ]


def table(path: Path, columns: tuple[str, ...] = COLUMNS, names: tuple[str, ...] | None = None) -> Path:
    """A CSV file of these columns and the label, under these names."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(names or columns), "y"])
        writer.writerows([*(row[c] for c in columns), row["y"]] for row in rows())
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store, its model, and the predictions of its rows."""
    folder = tmp_path_factory.mktemp("names")
    assert run("ingest", table(folder / "a.csv"), "--store", folder / "a.zarr") == 0
    how = ("--model", folder / "m.zarr", "--kernel", "linear", "--no-search")
    assert run("fit", "--store", folder / "a.zarr", *how) == 0
    assert predicted(folder, "a") == 0
    return folder


def predicted(folder: Path, name: str, model: str = "m.zarr") -> int:
    paths = (
        "--model",
        folder / model,
        "--store",
        folder / f"{name}.zarr",
        "--out",
        folder / f"{name}.out.csv",
    )
    return run("predict", *paths)


@given(
    columns=st.permutations(COLUMNS),
    renamed=st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from(["W", "age ", "B", "colours"]), max_size=1),
)
def test_rows_of_other_columns_are_predicted_right_or_refused(folder, columns, renamed):
    names = tuple(renamed.get(column, column) for column in columns)
    shutil.rmtree(folder / "t.zarr", ignore_errors=True)
    (folder / "t.out.csv").unlink(missing_ok=True)
    assert run("ingest", table(folder / "t.csv", tuple(columns), names), "--store", folder / "t.zarr") == 0
    before = set(folder.iterdir())
    with redirect_stderr(StringIO()) as err:
        status = predicted(folder, "t")
    found = Store.open(folder / "t.zarr").feature_names
    if found == NAMES:
        assert status == 0
        assert (folder / "t.out.csv").read_bytes() == (folder / "a.out.csv").read_bytes()
    else:
        first = next(i for i, pair in enumerate(zip(found, NAMES, strict=True)) if pair[0] != pair[1])
        assert status == 2
        assert f"t.zarr: column {first}: found {found[first]!r}, expected {NAMES[first]!r}" in err.getvalue()
        assert err.getvalue().count("\n") == 1
        assert set(folder.iterdir()) == before


def test_all_commands_that_read_rows_compare(folder, tmp_path, capfd):
    other = tmp_path / "other.zarr"
    assert run("ingest", table(tmp_path / "other.csv", COLUMNS[::-1]), "--store", other) == 0
    model = shutil.copytree(folder / "m.zarr", tmp_path / "m.zarr")
    for command in ("evaluate", "calibrate"):
        capfd.readouterr()
        assert run(command, "--model", model, "--store", other) == 2
        assert "column 0: found 'b', expected 'width' (the same columns in another order)" in capfd.readouterr().err
    assert load_model(model).header.calibration is None
    assert run("calibrate", "--model", model, "--store", folder / "a.zarr") == 0
    assert load_model(model).feature_names == NAMES


def test_what_ingest_like_makes_of_another_order_is_right(folder, tmp_path):
    """What the error proposes."""
    like = ("--like", folder / "a.zarr", "--store", tmp_path / "a.zarr")
    assert run("ingest", table(tmp_path / "b.csv", COLUMNS[::-1]), *like) == 0
    shutil.copytree(folder / "m.zarr", tmp_path / "m.zarr")
    assert predicted(tmp_path, "a") == 0
    assert (tmp_path / "a.out.csv").read_bytes() == (folder / "a.out.csv").read_bytes()


@pytest.mark.slow  # several commands
def test_rows_without_names_are_predicted_with_one_warning(folder, tmp_path, capfd):
    store = Store.open(folder / "a.zarr")
    np.save(tmp_path / "x.npy", store.read(0, store.n).X)
    assert run("ingest", tmp_path / "x.npy", "--store", tmp_path / "a.zarr") == 0
    shutil.copytree(folder / "m.zarr", tmp_path / "m.zarr")
    capfd.readouterr()
    assert predicted(tmp_path, "a") == 0
    err = capfd.readouterr().err
    assert err.startswith("warning: ")
    assert "has no column names; assuming the model's: 'width', 'age', 'colour=red'" in err
    assert err.count("\n") == 1
    assert (tmp_path / "a.out.csv").read_bytes() == (folder / "a.out.csv").read_bytes()


def test_a_model_of_before_has_no_names_and_takes_all(folder, tmp_path, capfd):
    model = shutil.copytree(folder / "m.zarr", tmp_path / "m.zarr")
    metadata = json.loads((model / "zarr.json").read_text())
    del metadata["attributes"]["strings"]["feature_names"]
    (model / "zarr.json").write_text(json.dumps(metadata))
    assert load_model(model).feature_names is None
    assert run("evaluate", "--model", model, "--store", folder / "a.zarr", "--json") == 0
    assert capfd.readouterr().err == ""


def test_a_model_whose_names_are_damaged_is_refused(folder, tmp_path, capfd):
    model = shutil.copytree(folder / "m.zarr", tmp_path / "m.zarr")
    metadata = json.loads((model / "zarr.json").read_text())
    metadata["attributes"]["strings"]["feature_names"].pop()
    (model / "zarr.json").write_text(json.dumps(metadata))
    assert run("evaluate", "--model", model, "--store", folder / "a.zarr") == 2
    assert "found 4 feature names, expected 5" in capfd.readouterr().err


def test_info_shows_names(folder, capfd):
    assert run("info", folder / "a.zarr") == 0
    assert "'width', 'age', 'colour=red', 'colour=blue', 'b'" in capfd.readouterr().out
    assert run("info", folder / "a.zarr", "--json") == 0
    assert json.loads(capfd.readouterr().out)["feature_names"] == list(NAMES)


class TestStreams:
    """A snapshot's columns are in the order of appearance: those of a store are found by name."""

    def events(self, folder: Path, features: tuple[str, ...]) -> Path:
        """Of which the last feature comes later than the others, so that the learner makes room for more."""
        store = Store.open(folder / "a.zarr")
        with (folder / "events.jsonl").open("w") as file:
            for i, (x, y) in enumerate(zip(store.read(0, store.n).X.tolist(), store.y.tolist(), strict=True)):
                event = dict(zip(NAMES, x, strict=True))
                known = features if i > 5 else features[:-1]
                file.write(json.dumps({name: event[name] for name in known} | {"y": y}) + "\n")
        return folder / "events.jsonl"

    @pytest.mark.parametrize("how", [(), ("--lam", 1e-4, "--gamma", "scale")], ids=["pool", "one learner"])
    def test_a_snapshot_finds_its_columns_in_a_store(self, folder, tmp_path, capfd, how):
        events = self.events(folder, ("colour=blue", "b", "age", "width", "colour=red"))
        shutil.copytree(folder / "a.zarr", tmp_path / "a.zarr")
        assert run("stream", "--model", tmp_path / "s.zarr", "--input", events, *how) == 0
        assert load_model(tmp_path / "s.zarr").d > 5
        capfd.readouterr()
        assert predicted(tmp_path, "a", "s.zarr") == 0
        assert capfd.readouterr().err == ""
        own = csv.DictReader((tmp_path / "a.out.csv").read_text().splitlines())
        learner_says = _learner_says(tmp_path / "s.zarr", Store.open(folder / "a.zarr"))
        assert [row["label"] for row in own] == learner_says

    def test_a_store_that_lacks_a_feature_is_refused(self, folder, tmp_path, capfd):
        events = self.events(folder, ("colour=blue", "b", "age", "width", "colour=red"))
        assert run("stream", "--model", tmp_path / "s.zarr", "--input", events) == 0
        assert run("ingest", table(tmp_path / "a.csv", COLUMNS[1:]), "--store", tmp_path / "a.zarr") == 0
        capfd.readouterr()
        assert predicted(tmp_path, "a", "s.zarr") == 2
        assert "a.zarr has no column 'width', a feature of the stream" in capfd.readouterr().err

    def test_a_stream_goes_on_from_a_fit_by_its_names(self, folder, tmp_path):
        how = ("--solver", "bsgd", "--no-search", "--model", tmp_path / "s.zarr")
        assert run("fit", "--store", folder / "a.zarr", *how) == 0
        assert run("stream", "--model", tmp_path / "s.zarr", "--input", self.events(folder, NAMES)) == 0
        model = load_model(tmp_path / "s.zarr")
        assert (model.feature_names, model.d) == (NAMES, 5)

    @pytest.mark.parametrize("how", [(), ("--lam", 1e-4, "--gamma", "scale"), ("--task", "regress")], ids=str)
    def test_texts_of_a_file_may_be_new_or_missing(self, tmp_path, capfd, how):
        """As `serve` takes them: a new text counts as none, and one that no row has is absent."""
        values = (3, 8) if "regress" in how else ("a", "b")
        with (tmp_path / "e.jsonl").open("w") as file:
            for i in range(40):
                event = {"sky": ("grey", "blue")[i % 2], "t": i % 5, "y": values[i % 2]}
                file.write(json.dumps(event) + "\n")
        assert run("stream", "--model", tmp_path / "m.zarr", "--input", tmp_path / "e.jsonl", *how) == 0
        state = Stream.open(tmp_path / "m.zarr", lambda: None, scale=True, label="y")
        capfd.readouterr()
        for skies in (["grey", "grey"], ["grey", "blue", "green"], ["green", "green"]):
            rows = [{"sky": sky, "t": i, "y": values[0]} for i, sky in enumerate(skies)]
            for name, columns in (("new.csv", ["sky", "t"]), ("test.csv", ["sky", "t", "y"])):
                with (tmp_path / name).open("w", newline="") as file:
                    writer = csv.DictWriter(file, columns, extrasaction="ignore")
                    writer.writeheader()
                    writer.writerows(rows)
            found = ("--model", tmp_path / "m.zarr", tmp_path / "new.csv")
            assert run("predict", *found, "--decision", "--out", tmp_path / "out.csv", "--force") == 0
            decisions = [
                float(row["decision"]) for row in csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
            ]
            np.testing.assert_allclose(decisions, state.decide(rows)[:, 0], rtol=1e-3, atol=1e-5)
            assert run("evaluate", *found[:2], tmp_path / "test.csv", "--label", "y") == 0
        (tmp_path / "new.csv").write_text("t,cloud\n1,yes\n")
        assert run("predict", "--model", tmp_path / "m.zarr", tmp_path / "new.csv") == 2
        assert "has no column 'sky=grey', a feature of the stream" in capfd.readouterr().err


def _learner_says(path: Path, store: Store) -> list[str]:
    """Of events with the store's names, as the stream itself would scale and predict them."""
    state = Stream.open(path, lambda: None, scale=True, label="y")
    rows = (dict(zip(NAMES, x, strict=True)) for x in store.read(0, store.n).X.tolist())
    if state.scaler is not None:
        rows = map(state.scaler.transform_one, rows)
    return [state.learner.predict_one(row) for row in rows]


def test_other_formats_carry_names(folder, tmp_path, capfd):
    model, out = folder / "m.zarr", tmp_path / "m.onnx"
    assert run("export", "--model", model, "--format", "onnx", "--out", out) == 0
    props = {p.key: p.value for p in onnx.load(out).metadata_props}
    assert json.loads(props["feature_names"]) == list(NAMES)

    svm, back = tmp_path / "m.svm", tmp_path / "back.zarr"
    assert run("export", "--model", model, "--format", "libsvm", "--out", svm) == 0
    assert "LIBSVM's features have no names: feature 1 is the first of those in" in capfd.readouterr().err
    more = ("--labels", f"{svm}.labels.json", "--names", f"{svm}.names.json")
    assert run("import", svm, *more, "--model", back) == 0
    assert load_model(back).feature_names == NAMES
    (tmp_path / "few.json").write_text('["a"]')
    assert run("import", svm, "--names", tmp_path / "few.json", "--model", tmp_path / "no") == 2
    assert "few.json: found 1 names, the model has 5 features" in capfd.readouterr().err
