"""From a store and a configuration to a model: what is refused before any work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_digits

from streamsvm import DCSVC, Store
from streamsvm.config import build_config
from streamsvm.errors import DataError
from streamsvm.events import Events
from streamsvm.fits.prepare import with_task
from streamsvm.train import train_in_memory

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)


def test_numbers_where_labels_are_expected_are_pointed_out():
    numbers = Store.from_arrays(X, np.linspace(0.5, 9.3, 60))
    with pytest.raises(DataError, match=r"y holds 60 different numbers, as 0.5; expected labels .* --task regress"):
        train_in_memory(numbers, build_config(("t", {})))
    for given in ({"task": "classify"}, {"task": "regress", "solver": "alfpgm"}, {"positive": ["0.5"]}):
        assert with_task(build_config(("t", given)), numbers).task
    few = Store.from_arrays(X, np.resize([0.5, 1.5, 2.5], 60))
    whole = Store.from_arrays(X, np.arange(60.0))
    assert with_task(build_config(("t", {})), few).task == with_task(build_config(("t", {})), whole).task


def test_labels_that_look_like_ids_are_said_before_the_work():
    names = np.array([f"person {i}" for i in range(60)])
    some = np.where(np.arange(60) % 2, names, "nobody")  # of 31 labels 30 are of one row
    for y in (names, some, names.astype(object)):
        with pytest.raises(DataError, match=r"y holds .* different texts in 60 rows, as 'nobody|as 'person 0'"):
            train_in_memory(Store.from_arrays(X, y), build_config(("t", {})))
    for rows, labels in ((X, names), (pd.DataFrame(X), pd.Series(names))):
        with (
            pytest.raises(DataError, match="look like ids"),
            pytest.warns(UserWarning, match="unique classes"),
        ):
            DCSVC(gamma=0.1).fit(rows, labels)
    whole = Store.from_arrays(X, np.arange(60))
    for y, given in ((whole.y, {}), (names, {"task": "classify"})):
        said = list[Any]()
        config = build_config(("t", given | {"solver": "bsgd"}))
        train_in_memory(Store.from_arrays(X, y), config, Events(said.append))
        texts = [getattr(record.event, "message", "") for record in said]
        assert sum("60 rows" in text and "look like ids" in text for text in texts) == 1
    for y, given in (
        (np.resize(names[:30], 60), {}),
        (names[:20].repeat(3), {}),
        (names, {"positive": ["person 3"]}),
        (np.array(["a,b", "c", *names[2:]]), {"task": "multilabel"}),
    ):
        assert with_task(build_config(("t", given)), Store.from_arrays(X, y)).task


def test_numeric_labels_of_few_rows_each_are_said_to_be_classes():
    def said(y: np.ndarray, **given: Any) -> list[str]:
        heard = list[Any]()
        rows = np.random.default_rng(0).normal(size=(len(y), 3)).astype(np.float32)
        config = with_task(build_config(("t", given)), Store.from_arrays(rows, y), Events(heard.append))
        assert config.task
        return [record.event.message for record in heard]

    values = load_diabetes().target
    for y in (values, values.astype(int), values.astype(np.int8)):
        [text] = said(y)
        assert text.startswith(f"y: found {len(np.unique(y))} distinct numeric labels among 442 rows, and")
        assert "--task regress predicts values" in text
    for y, given in (
        (values, {"task": "classify"}),
        (values, {"task": "regress"}),
        (values, {"positive": ["25"]}),
        (values, {"solver": "dcsvm", "task": "oneclass"}),
        (load_digits().target, {}),
        (np.arange(300).repeat(5), {}),  # people, with five pictures each
        (np.arange(20).repeat(3), {}),
        (np.array([f"word {i}" for i in range(60)]).repeat(2), {}),
    ):
        assert said(y, **given) == []


@pytest.mark.parametrize("case", ["constant", "one class"])
def test_rows_that_tell_nothing_are_refused(case):
    rows = np.ones_like(X) if case == "constant" else X
    y = np.zeros(60, int) if case == "one class" else (X[:, 0] > 0).astype(int)
    options = {"search": {"options": ["scale", "kernel", "C", "gamma", "metric", "early"]}}
    config = build_config(("t", options | {"metric": {"kind": "diagonal"}, "threads": 1}))
    expected = "one class" if case == "one class" else "found the same values in every row"
    with pytest.raises(DataError, match=expected):
        train_in_memory(Store.from_arrays(rows, y), config)
