"""From a store and a configuration to a model: what is refused before any work."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import Store
from streamsvm.config import build_config
from streamsvm.errors import DataError
from streamsvm.train import train_in_memory, with_task

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)


def test_numbers_where_labels_are_expected_are_pointed_out():
    numbers = Store.from_arrays(X, np.linspace(0.5, 9.3, 60))
    with pytest.raises(
        DataError, match=r"y holds 60 different numbers, as 0.5; expected labels .* --task regress"
    ):
        train_in_memory(numbers, build_config(("t", {})))
    for given in ({"task": "classify"}, {"task": "regress", "solver": "alfpgm"}, {"positive": ["0.5"]}):
        assert with_task(build_config(("t", given)), numbers).task
    few = Store.from_arrays(X, np.resize([0.5, 1.5, 2.5], 60))
    whole = Store.from_arrays(X, np.arange(60.0))
    assert with_task(build_config(("t", {})), few).task == with_task(build_config(("t", {})), whole).task


@pytest.mark.parametrize("case", ["constant", "one class"])
def test_rows_that_tell_nothing_are_refused(case):
    rows = np.ones_like(X) if case == "constant" else X
    y = np.zeros(60, int) if case == "one class" else (X[:, 0] > 0).astype(int)
    options = {"search": {"options": ["scale", "kernel", "C", "gamma", "metric", "early"]}}
    config = build_config(("t", options | {"metric": {"kind": "diagonal"}, "threads": 1}))
    expected = "one class" if case == "one class" else "found the same values in every row"
    with pytest.raises(DataError, match=expected):
        train_in_memory(Store.from_arrays(rows, y), config)
