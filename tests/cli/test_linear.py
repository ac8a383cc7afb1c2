"""Linear problems by the command line alone: sparse text, queries, ranks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import run

from streamsvm import Store, load_model

LINEAR = ("--solver", "cutting-plane", "--kernel", "linear", "--no-search")


def answer(capfd, *args):
    assert run(*args, "--json") == 0
    return json.loads(capfd.readouterr().out)


@pytest.fixture
def text(tmp_path):
    """Sparse rows of 3,000 features with queries and three grades, as svmlight."""
    rng = np.random.default_rng(0)
    lines = []
    for i in range(400):
        words = np.unique(rng.integers(1, 3000, 20))
        grade = int(words[0] % 2 + (words[-1] > 2900))
        values = rng.random(len(words)) + (words == words[0]) * grade
        pairs = " ".join(f"{w}:{v:.4f}" for w, v in zip([*words, 3000 + grade], [*values, 1.0], strict=True))
        lines.append(f"{grade} qid:{i // 8} {pairs}")
    (tmp_path / "text.svm").write_text("\n".join(lines) + "\n")
    return tmp_path / "text.svm"


@pytest.mark.slow  # several commands
def test_classes_of_sparse_rows(text, tmp_path, capfd):
    store, model = tmp_path / "s.zarr", tmp_path / "m.zarr"
    answer(capfd, "ingest", text, "--store", store, "--sparse")
    report = answer(capfd, "fit", "--store", store, "--model", model, *LINEAR, "--task", "classify")
    assert report["converged"]
    assert report["planes"] == 0
    assert 0 <= report["gap"] <= 1e-3 * report["objective"]
    scored = answer(capfd, "evaluate", "--model", model, "--store", store)
    assert scored["accuracy"] > 0.95
    assert "ndcg" not in scored  # three classes have no one score
    coef = load_model(model).coef
    assert coef.shape == (Store.open(store).d, 3)


@pytest.mark.slow  # several commands
def test_queries_are_ranked_by_default(text, tmp_path, capfd):
    store, model, out = tmp_path / "s.zarr", tmp_path / "m.zarr", tmp_path / "p.csv"
    answer(capfd, "ingest", text, "--store", store)
    report = answer(capfd, "fit", "--store", store, "--model", model, *LINEAR)
    assert (report["task"], report["queries"]) == ("rank", 50)
    scored = answer(capfd, "evaluate", "--model", model, "--store", store)
    assert scored["accuracy"] is None
    assert scored["ndcg@5"] > 0.9
    assert scored["swapped_pairs"] < 0.05
    assert run("evaluate", "--model", model, "--store", store) == 0
    assert "ndcg@5" in capfd.readouterr().out
    assert run("predict", "--model", model, "--store", store, "--out", out) == 0
    lines = out.read_text().splitlines()
    rows = Store.open(store).read(0, 400)
    assert lines[0] == "score"
    np.testing.assert_allclose([float(x) for x in lines[1:]], load_model(model).decision_function(rows))
    for suffix in ("npy", "zarr"):
        assert run("predict", "--model", model, "--store", store, "--out", tmp_path / f"p.{suffix}") == 0


@pytest.mark.slow  # several fits
def test_ranks_and_two_classes_with_queries(text, tmp_path, capfd):
    store, model = tmp_path / "s.zarr", tmp_path / "m.zarr"
    answer(capfd, "ingest", text, "--store", store)
    answer(capfd, "fit", "--store", store, "--model", model, *LINEAR, "--task", "ordinal", "--C", 10)
    scored = answer(capfd, "evaluate", "--model", model, "--store", store)
    assert scored["mean_absolute_error"] < 0.1
    assert scored["accuracy"] > 0.9
    two = ("--task", "classify", "--positive", "1,2")
    answer(capfd, "fit", "--store", store, "--model", model, "--force", *LINEAR, *two)
    scored = answer(capfd, "evaluate", "--model", model, "--store", store)
    assert scored["roc_auc"] > 0.95
    assert scored["break_even"] > 0.9
    assert scored["map"] > 0.9


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--kernel", "rbf"), "solver is 'cutting-plane', which is linear"),
        (
            ("--kernel", "linear", "--set", "cutting_plane.landmarks=5"),
            "landmarks approximate a nonlinear kernel",
        ),
        (
            ("--kernel", "linear", "--task", "ordinal", "--set", "cutting_plane.loss=logistic"),
            "cutting_plane.loss is read by tasks classify and multilabel only, found task ordinal",
        ),
    ],
)
def test_bad_options_are_one_line(text, tmp_path, capfd, options, said):
    store, model = tmp_path / "s.zarr", tmp_path / "m.zarr"
    assert run("ingest", text, "--store", store) == 0
    capfd.readouterr()
    assert run("fit", "--store", store, "--model", model, "--solver", "cutting-plane", *options) == 2
    error = capfd.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not model.exists()


@pytest.mark.slow  # several commands
def test_a_plan_and_a_model_to_repeat(text, tmp_path, capfd):
    store, model, again = tmp_path / "s.zarr", tmp_path / "m.zarr", tmp_path / "n.zarr"
    answer(capfd, "ingest", text, "--store", store)
    facts = answer(capfd, "fit", "--store", store, *LINEAR, "--dry-run")
    assert facts["pass_bytes"] > 0
    assert not model.exists()
    answer(capfd, "fit", "--store", store, "--model", model, *LINEAR, "--C", 0.3, "--tol", 0.1)
    answer(capfd, "fit", "--store", store, "--model", again, "--config", model)
    np.testing.assert_array_equal(load_model(model).coef, load_model(again).coef)
