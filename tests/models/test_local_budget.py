"""Models of regions with a budget each: decisions by their formula, files, and what cannot go on from them."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from exchange.made import local_budget_model, raw_rows

from streamsvm.errors import ConfigError, ModelError
from streamsvm.exchange.libsvm import write_libsvm
from streamsvm.models.files import load_model, save_model
from streamsvm.online.estimators import BSGDClassifier
from streamsvm.online.stream import Stream

ROWS = raw_rows(200)


@pytest.mark.parametrize("k", [2, 3])
def test_a_region_decides_for_its_own_rows(k):
    model = local_budget_model("rbf", k, "minmax")
    rows = model.header.scaling.apply(ROWS)
    K = reference.kernel_matrix(model.header.kernel, rows.X, model.support.X)
    expected = np.empty((len(rows), len(model.bias[0])))
    for i, p in enumerate(model.partition.assign(rows)):
        here = slice(*model.bounds[p : p + 2])
        expected[i] = K[i, here] @ model.coef[here] + model.bias[p]
    np.testing.assert_allclose(model.binary_decisions(ROWS), expected, atol=1e-4)


def test_a_file_keeps_it(tmp_path):
    model = local_budget_model("rbf", 3)
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    np.testing.assert_array_equal(loaded.decision_function(ROWS), model.decision_function(ROWS))


def test_what_it_cannot_become_is_one_line(tmp_path):
    model = local_budget_model("rbf", 2)
    with pytest.raises(ModelError, match="each region decides for its own rows.*export --format onnx"):
        write_libsvm(model, tmp_path / "libsvm")
    save_model(model, tmp_path / "m")
    with pytest.raises(ConfigError, match="kind 'local-budget', expected one of `stream`, or .*partitions=1"):
        Stream.open(tmp_path / "m", BSGDClassifier, scale=False, label="y")
