"""The tables of the scoreboard: numbers, codes of text columns, and a test part that no search sees.

Test files are used where a set has them; else a seeded fifth of the rows, stratified by class, is the test part. Sets
of scikit-learn and river are those whose files are inside the packages: nothing is downloaded.
"""

from __future__ import annotations

import bz2
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
from sklearn import datasets
from sklearn.datasets import load_svmlight_file
from sklearn.model_selection import train_test_split

TEST_SHARE = 0.2
CENSUS_LABEL, CENSUS_LEFT_OUT = "income_50k", ("unknown", "__index_level_0__")  # its weight, and a row number
Columns = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Problem:
    """Rows to learn from and rows to test on; a text column holds the codes of its values, in alphabetical order."""

    X: np.ndarray  # (n, d) float32
    y: np.ndarray  # (n,) codes 0..k-1 of the classes, or float targets
    X_test: np.ndarray
    y_test: np.ndarray
    is_text: np.ndarray  # (d,) bool
    is_regression: bool = False

    @property
    def n_classes(self) -> int:
        return 0 if self.is_regression else int(max(self.y.max(), self.y_test.max())) + 1

    def save(self, path: Path) -> None:
        np.savez(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> Problem:
        with np.load(path) as kept:
            return cls(**{name: kept[name] if kept[name].ndim else kept[name].item() for name in kept.files})

    def capped(self, rows: int | None) -> Problem:
        """At most this many training rows, and a quarter as many for tests: seeded, of all classes where they fit."""
        if rows is None:
            return self
        few, few_test = self._some(self.y, rows), self._some(self.y_test, max(20, rows // 4))
        return replace(self, X=self.X[few], y=self.y[few], X_test=self.X_test[few_test], y_test=self.y_test[few_test])

    def _some(self, y: np.ndarray, rows: int) -> np.ndarray:
        order = np.random.default_rng(0).permutation(len(y))
        if not self.is_regression:  # the first two rows of every class come first
            place = np.empty(len(y), int)
            for code in np.unique(y):
                place[order[y[order] == code]] = np.arange(np.sum(y == code))
            order = order[np.argsort(place[order] >= 2, kind="stable")]
        return order[:rows]


def problem(X: Any, y: Any, test: Columns | None = None, *, is_regression: bool = False) -> Problem:
    """Rows and labels as a Problem, split where no test rows are given."""
    X, y = np.asarray(X, np.float32), np.asarray(y)
    if not is_regression:
        names = np.unique(y if test is None else np.concatenate([y, test[1]]))
        y = np.searchsorted(names, y)
        test = test and (test[0], np.searchsorted(names, test[1]))
    if test is None:
        kept, tested = train_test_split(
            np.arange(len(y)), test_size=TEST_SHARE, random_state=0, stratify=None if is_regression else y
        )
        X, y, test = X[kept], y[kept], (X[tested], y[tested])
    is_text = np.zeros(X.shape[1], bool)
    return Problem(X, y, np.asarray(test[0], np.float32), test[1], is_text, is_regression)


def _svmlight(
    name: str, *, test: bool = False, is_regression: bool = False, features: int | None = None
) -> Callable[[Path], Problem]:
    def read(data: Path) -> Problem:
        X, y = _rows(data / f"{name}.bz2", features)
        held = _rows(data / f"{name}.t.bz2", X.shape[1]) if test else None
        return problem(X, y, held, is_regression=is_regression)

    return read


def _rows(path: Path, features: int | None) -> Columns:
    with bz2.open(path) as file:
        X, y = load_svmlight_file(file, n_features=features, dtype=np.float32)
    return X.toarray(), y


def _csv(path: Path, *, header: bool = True, delimiter: str = ",") -> tuple[np.ndarray, np.ndarray]:
    """(all columns but the last as float32, the last)."""
    read = pcsv.ReadOptions(autogenerate_column_names=not header)
    table = pcsv.read_csv(path, read_options=read, parse_options=pcsv.ParseOptions(delimiter=delimiter))
    *columns, label = table.columns
    return np.column_stack([c.to_numpy().astype(np.float32) for c in columns]), label.to_numpy()


def _covtype(data: Path) -> Problem:
    return problem(*_csv(data / "covtype.csv.gz"))


def _covtype_2(data: Path) -> Problem:
    X, y = _csv(data / "covtype.csv.gz")
    return problem(X, y == 2)


def _electricity(data: Path) -> Problem:
    """Shuffled, without the row number; date and period stay."""
    X, y = _csv(data / "electricity.csv.gz")
    return problem(X[:, 1:], y)


def _census(data: Path) -> Problem:
    """Text columns as codes; what is missing is a value like others. The weight of an instance is left out."""
    train, test = pq.read_table(data / "census.parquet"), pq.read_table(data / "census.t.parquet")
    names = [name for name in train.column_names if name not in (CENSUS_LABEL, *CENSUS_LEFT_OUT)]
    both = pa.concat_tables([train.select([*names, CENSUS_LABEL]), test.select([*names, CENSUS_LABEL])])
    is_text = np.array([pa.types.is_string(both[name].type) for name in names])
    X = np.column_stack([_codes(both[name]) if text else both[name] for name, text in zip(names, is_text, strict=True)])
    y, n = _codes(both[CENSUS_LABEL]), len(train)
    return replace(problem(X[:n], y[:n], (X[n:], y[n:])), is_text=is_text)


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """(n,) places of the values among all values, sorted."""
    values = pc.fill_null(column, "").to_numpy()
    return np.searchsorted(np.unique(values), values)


def _sklearn(load: Callable[..., Any], *, is_regression: bool = False) -> Callable[[Path], Problem]:
    return lambda data: problem(*load(return_X_y=True), is_regression=is_regression)


def _river(name: str, *, is_regression: bool = False) -> Callable[[Path], Problem]:
    def read(data: Path) -> Problem:
        from river import datasets as streams

        return problem(*_columns(getattr(streams, name)()), is_regression=is_regression)

    return read


def _columns(events: Iterable[tuple[dict[Any, float], Any]]) -> Columns:
    """Events as rows; a feature that an event leaves out is 0, as svmlight files mean it."""
    rows, labels = zip(*events, strict=True)
    names = sorted({name for row in rows for name in row})
    return np.array([[row.get(name, 0) for name in names] for row in rows], np.float32), np.array(labels)


SETS: dict[str, Callable[[Path], Problem]] = {
    "covtype-2": _covtype_2,
    "covtype-7": _covtype,
    "electricity": _electricity,
    "magic04": lambda data: problem(*_csv(data / "magic04.csv.gz", header=False)),
    "census": _census,
    "skin": lambda data: problem(*_csv(data / "skin_nonskin.tsv.gz", header=False, delimiter="\t")),
    "ijcnn1": _svmlight("ijcnn1", test=True),
    "a9a": _svmlight("a9a", test=True, features=123),
    "letter": _svmlight("letter", test=True),
    "phishing": _svmlight("phishing"),
    "abalone": _svmlight("abalone", is_regression=True),
    "breast_cancer": _sklearn(datasets.load_breast_cancer),
    "wine": _sklearn(datasets.load_wine),
    "iris": _sklearn(datasets.load_iris),
    "digits": _sklearn(datasets.load_digits),
    "diabetes": _sklearn(datasets.load_diabetes, is_regression=True),
    "river-phishing": _river("Phishing"),
    "river-bananas": _river("Bananas"),
    "river-segments": _river("ImageSegments"),
    "river-shuttle": _river("Shuttle"),
    "river-trump": _river("TrumpApproval", is_regression=True),
    "river-chicks": _river("ChickWeights", is_regression=True),
}
OPTIONAL: dict[str, Callable[[Path], Problem]] = {"w8a": _svmlight("w8a")}  # by name only: it takes long
ALL = SETS | OPTIONAL
