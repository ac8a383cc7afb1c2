"""The data sets of Hsieh, Si and Dhillon 2014 as the paper prepares them, with its C and gamma.

Features are scaled to [0, 1], except those of cifar, and of ijcnn1: the paper says that it scales these, too, but its
accuracies are those of the file as it is. A random fifth of the rows is for testing if a set has no test
file. A set is read from files of these names:

    ijcnn1.bz2, ijcnn1.t.bz2          LIBSVM's page
    census.parquet, census.t.parquet  census income (KDD), a column each; texts become a feature per value
    covtype.csv.gz                    UCI's covertype as CSV with a header and the label in Cover_Type: 2, or another
    webspam.bz2                       LIBSVM's page: webspam_wc_normalized_unigram.svm, compressed again
    kddcup.data.gz, corrected.gz      KDD cup 1999, as UCI has it: normal, or an attack
    cifar10.bz2, cifar10.t.bz2        LIBSVM's page: animals, or vehicles
"""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
from papers import Arrays
from sklearn.datasets import load_svmlight_file

TEST_SHARE = 0.2
CENSUS_LABEL, CENSUS_LEFT_OUT = "income_50k", ("unknown", "__index_level_0__")  # its weight, and a row number
ANIMALS = (2, 3, 4, 5, 6, 7)  # bird, cat, deer, dog, frog, horse
NORMAL = "normal."


@dataclass(frozen=True)
class DataSet:
    """files: that have to be in the data folder. C, gamma: the paper's, of table 3."""

    files: tuple[str, ...]
    read: Callable[[Path], Arrays]
    C: float
    gamma: float
    is_scaled: bool = True

    def arrays(self, data: Path) -> Arrays:
        arrays = self.read(data)
        return arrays.scaled() if self.is_scaled else arrays


def _split(X: np.ndarray, y: np.ndarray) -> Arrays:
    order = np.random.default_rng(0).permutation(len(y))
    tested, kept = np.split(order, [round(TEST_SHARE * len(y))])
    return Arrays(X[kept], y[kept], X[tested], y[tested])


def _signs(is_positive: Any) -> np.ndarray:
    return np.where(is_positive, 1, -1)


def _svmlight(path: Path, features: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    with bz2.open(path) as file:
        X, y = load_svmlight_file(file, n_features=features, dtype=np.float32)
    return X.toarray(), y


def _ijcnn1(data: Path) -> Arrays:
    X, y = _svmlight(data / "ijcnn1.bz2")
    X_test, y_test = _svmlight(data / "ijcnn1.t.bz2", X.shape[1])
    return Arrays(X, _signs(y > 0), X_test, _signs(y_test > 0))


def _webspam(data: Path) -> Arrays:
    X, y = _svmlight(data / "webspam.bz2")
    return _split(X, _signs(y > 0))


def _cifar(data: Path) -> Arrays:
    X, y = _svmlight(data / "cifar10.bz2")
    X_test, y_test = _svmlight(data / "cifar10.t.bz2", X.shape[1])
    return Arrays(X, _signs(np.isin(y, ANIMALS)), X_test, _signs(np.isin(y_test, ANIMALS)))


def _covtype(data: Path) -> Arrays:
    with gzip.open(data / "covtype.csv.gz") as file:
        table = pcsv.read_csv(file)
    names = [name for name in table.column_names if name != "Cover_Type"]
    X = np.column_stack([table[name].to_numpy().astype(np.float32) for name in names])
    return _split(X, _signs(table["Cover_Type"].to_numpy() == 2))


def _census(data: Path) -> Arrays:
    train, test = pq.read_table(data / "census.parquet"), pq.read_table(data / "census.t.parquet")
    names = [name for name in train.column_names if name not in (CENSUS_LABEL, *CENSUS_LEFT_OUT)]
    both = pa.concat_tables([train.select([*names, CENSUS_LABEL]), test.select([*names, CENSUS_LABEL])])
    X, n = _features(both, names), len(train)
    income = pc.utf8_trim(both[CENSUS_LABEL], " '").to_numpy(zero_copy_only=False)
    y = _signs(income == "50000+.")
    return Arrays(X[:n], y[:n], X[n:], y[n:])


def _kddcup(data: Path) -> Arrays:
    options = pcsv.ReadOptions(autogenerate_column_names=True)
    tables = []
    for name in ("kddcup.data.gz", "corrected.gz"):
        with gzip.open(data / name) as file:
            tables.append(pcsv.read_csv(file, read_options=options))
    both, n = pa.concat_tables(tables), len(tables[0])
    *names, label = both.column_names
    X, y = _features(both, names), _signs(both[label].to_numpy(zero_copy_only=False) != NORMAL)
    return Arrays(X[:n], y[:n], X[n:], y[n:])


def _features(table: pa.Table, names: list[str]) -> np.ndarray:
    """Numbers as they are, and of a text 1 in the column of its value; a missing one is a value like others."""
    columns = []
    for name in names:
        if pa.types.is_string(table[name].type):
            values = pc.fill_null(table[name], "").to_numpy(zero_copy_only=False)
            columns.append((values[:, None] == np.unique(values)).astype(np.float32))
        else:
            columns.append(table[name].to_numpy().astype(np.float32)[:, None])
    return np.hstack(columns)


SETS = {
    "ijcnn1": DataSet(("ijcnn1.bz2", "ijcnn1.t.bz2"), _ijcnn1, 32, 2, is_scaled=False),
    "cifar": DataSet(("cifar10.bz2", "cifar10.t.bz2"), _cifar, 8, 2**-22, is_scaled=False),
    "census": DataSet(("census.parquet", "census.t.parquet"), _census, 512, 2**-9),
    "covtype": DataSet(("covtype.csv.gz",), _covtype, 32, 32),
    "webspam": DataSet(("webspam.bz2",), _webspam, 8, 32),
    "kddcup99": DataSet(("kddcup.data.gz", "corrected.gz"), _kddcup, 256, 0.5),
}
