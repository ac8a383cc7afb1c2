"""Stores and models of earlier versions open, and answer as they did (tests/kept/make.py made them)."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from streamsvm import Store, audit, load_model
from streamsvm.cli.app import app, exit_status

STORES = ("dense", "sparse", "gaps")
ARCHIVES = sorted((Path(__file__).parent / "kept").glob("*.tar.xz"))


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name)
def folder(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("kept")
    with tarfile.open(request.param) as archive:
        archive.extractall(place, filter="data")
    return place


@pytest.fixture(scope="module")
def answers(folder):
    with np.load(folder / "answers.npz") as kept:
        return dict(kept)


def kept_models(folder):
    return [path for path in folder.iterdir() if path.is_dir() and path.name not in (*STORES, "stream")]


def test_stores_hold_what_they_held(folder, answers):
    for name, names in (("dense", ("height", "width", "colour=red", "colour=blue")), ("sparse", None)):
        store = Store.open(str(folder / name))
        rows = store.read(0, len(answers[f"{name}.X"]))
        store.require_finite(rows, 0)
        np.testing.assert_array_equal(rows.dense(), answers[f"{name}.X"])
        np.testing.assert_array_equal(store.y, answers[f"{name}.y"])
        assert names is None or sorted(store.feature_names or ()) == sorted(names)


def test_models_answer_as_they_did(folder, answers):
    models = kept_models(folder)
    assert len(models) >= 18
    for path in models:
        model = load_model(path)
        assert audit(path)["kind"] == model.kind
        of_0_1 = "sparse" if path.name in ("exact", "planes", "rank") else "dense"
        store = Store.open(str(folder / str(answers.get(f"{path.name}.store", of_0_1))))
        shown = len(answers[f"{path.name}.decisions"])
        for what, ask in (("decisions", model.decision_function), ("labels", model.predict)):
            wanted, found = answers[f"{path.name}.{what}"], ask(store)[:shown]
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=path.name)
            else:
                np.testing.assert_array_equal(found, wanted, err_msg=path.name)
        if f"{path.name}.p" in answers:
            np.testing.assert_allclose(model.predict_proba(store)[:shown], answers[f"{path.name}.p"], atol=1e-5)


def test_a_stream_goes_on(folder, answers, tmp_path, capsys):
    model = load_model(folder / "stream")
    events = np.arange(-1.0, 2.0, 0.25)[:, None] * np.ones(3)
    for what in ("decision_function", "predict", "predict_proba"):
        wanted, found = answers[f"stream.{what}"], getattr(model, what)(events)
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(found, wanted)
    (tmp_path / "more").write_text('{"a": 0.1, "b": 0.2, "red": true, "y": "class 1"}\n' * 151)
    line = ["stream", "--model", str(folder / "stream"), "--input", str(tmp_path / "more")]
    assert exit_status(lambda: app(line, standalone_mode=False)) == 0
    assert '"event": 151,' in capsys.readouterr().out
