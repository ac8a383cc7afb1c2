"""Fits whose models must go into a format: choices leave out what would keep them out, options that do are refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine

from streamsvm import AutoSVC
from streamsvm.choosing.choices import _trials
from streamsvm.choosing.ensemble import may_combine
from streamsvm.config import build_config
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.exchange.libsvm import write_libsvm
from streamsvm.options.search import left_out
from streamsvm.search.options import completed
from streamsvm.train import train_in_memory

X, Y = load_wine(return_X_y=True)
STORE = Store.from_arrays(X.astype(np.float32), Y)


def configured(**values):
    return build_config(("test", values))


def test_kernels_without_a_name_in_the_format_are_not_tried():
    tried = {
        name: {trial.kernel for trial in _trials(completed([("test", {"must_export": name})]), 1.0)}
        for name in (None, "onnx", "libsvm")
    }
    assert tried[None] == tried["onnx"]
    assert tried[None] - tried["libsvm"] == {"laplacian", "matern"}


def test_partitions_and_ensembles_are_not_chosen_for_libsvm(monkeypatch):
    assert "early" in left_out({})
    assert "early" in left_out({"must_export": "onnx"})
    assert "early" not in left_out({"must_export": "libsvm"})
    seen = []

    def with_time(fit, config):
        seen.append(config.must_export)
        return may_combine(fit, config)

    monkeypatch.setattr("streamsvm.train.may_combine", with_time)
    monkeypatch.setattr("streamsvm.choosing.ensemble.has_time_for_fits", lambda *_: True)
    options = {"time_budget": 60, "search_params": {"trials": 3}, "random_state": 0}
    assert AutoSVC(must_export="libsvm", **options).fit(X, Y).model_.kind != "ensemble"
    assert AutoSVC(must_export="onnx", **options).fit(X, Y).model_.kind == "ensemble"
    assert seen == ["libsvm", "onnx"]


def test_what_is_chosen_goes_into_the_file(tmp_path):
    svm = AutoSVC(must_export="libsvm", search_params={"trials": 6}, random_state=0).fit(X, Y)
    assert write_libsvm(svm.model_, tmp_path / "m.svm")["n_support"] > 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"must_export": "libsvm", "kernel": {"name": "cauchy"}},
            "of kernels rbf, poly, sigmoid, linear; found kernel",
        ),
        ({"must_export": "libsvm", "dcsvm": {"early": True}}, "cannot express dcsvm.early: leave one of them out"),
        ({"must_export": "libsvm", "bsgd": {"partitions": 2}}, "cannot express bsgd.partitions"),
        ({"must_export": "libsvm", "scale": "quantile"}, "cannot express scale 'quantile'"),
        ({"must_export": "libsvm", "gaps": "mean", "mark_gaps": True}, "cannot express mark_gaps"),
        ({"must_export": "libsvm", "metric": {"kind": "full"}}, "cannot express metric.kind 'full'"),
        ({"must_export": "libsvm", "search": {"ensemble": 2}}, "cannot express search.ensemble"),
        ({"must_export": "onnx", "dcsvm": {"early": True, "combine": "naive"}}, "cannot express dcsvm.combine 'naive'"),
    ],
)
def test_options_that_keep_a_model_out_are_one_line(values, message):
    with pytest.raises(ConfigError, match=message):
        train_in_memory(STORE, configured(**values))
