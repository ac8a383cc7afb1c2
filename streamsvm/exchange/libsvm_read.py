"""LIBSVM's model files as models: c_svc, nu_svc, epsilon_svr, nu_svr, one_class; kernels that both support.

It allocates nothing by the size that the file claims: memory is a small multiple of the file.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.names import Names
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.data.sources import csr
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events, Warned, heard
from streamsvm.exchange.libsvm_write import LARGEST_LABEL, SVM, libsvm_names, signed
from streamsvm.exchange.svm_scale import MOST_FEATURES, read_range
from streamsvm.kernels.base import Kernel, kernel_from
from streamsvm.kernels.table import kernel_row
from streamsvm.models import ExpansionModel, Header, KernelModel, LinearModel
from streamsvm.tasks import task_of
from streamsvm.tasks.pairs import n_pairs

Imported = KernelModel | ExpansionModel | LinearModel
CLASSIFIERS = ("c_svc", "nu_svc")
OTHERS = {"epsilon_svr": "regress", "nu_svr": "regress", "one_class": "oneclass"}  # tasks of one column
KEYS = (
    "svm_type",
    "kernel_type",
    "degree",
    "gamma",
    "coef0",
    "nr_class",
    "total_sv",
    "rho",
    "label",
    "nr_sv",
)
LEFT_OUT = ("probA", "probB", "prob_density_marks")
DENSE_FROM = 0.25  # share of nonzeros
MOST_DEGREE = 100
LARGEST = float(np.finfo(np.float32).max)


def import_libsvm(
    path: Path,
    *,
    ranges: Path | None = None,
    labels: Path | None = None,
    features: int | None = None,
    names: Path | None = None,
    events: Events = heard,
) -> Imported:
    """The model in a file of LIBSVM.

    ranges: a file of svm-scale -s, which becomes the model's scaling. labels: a JSON list, label i by position i.
    names: a JSON list, of the features from the first on. features: of the rows to come; else as many as there are
    names, or the highest that the files name. Raises DataError, ConfigError.
    """
    svm, left_out = read_svm(path)
    if left_out:
        events(Warned(f"{path}: {', '.join(left_out)} left out: an imported model has no probabilities"))
    scaling = None if ranges is None else read_range(ranges)
    least = max(svm.support.d, 0 if scaling is None else len(scaling.scale))
    if features is not None and features < least:
        raise ConfigError(f"--features {features}: {path} or its range file has feature {least}")
    feature_names = None if names is None else _feature_names(names, features, least)
    d = features or len(feature_names or ()) or least
    scaling = Scaling.none(d) if scaling is None else scaling.wider(d)
    model = _model(svm, scaling, labels)
    return replace(model, header=replace(model.header, feature_names=feature_names))


def _feature_names(path: Path, features: int | None, least: int) -> Names:
    names = _read_json(path)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}: expected a JSON list of texts, the names of features")
    if len(names) < least or len(names) != (features or len(names)):
        raise DataError(f"{path}: found {len(names)} names, the model has {features or least} features")
    return tuple(names)


def _model(svm: SVM, scaling: Scaling, names: Path | None) -> Imported:
    alike = len(svm.labels) <= 2  # one sum over all support vectors
    task = OTHERS.get(svm.svm_type)
    if task is not None:
        header = Header(svm.kernel, scaling, np.array(task_of(task).own_classes))
    else:
        # LIBSVM's first class of two is where decision values are positive, ours is the second
        numbers = np.array(svm.labels[::-1] if alike else svm.labels)
        header = Header(svm.kernel, scaling, _named(numbers, names) if names else numbers)
    if alike and svm.kernel.is_linear:  # w itself, in float64: its inner products may cancel
        X: Any = svm.support.X
        X.resize((len(svm.support), header.d))
        return LinearModel(header, X.T.astype(np.float64) @ svm.coef, -svm.rho, task or "classify")
    support, ids = _with_layout(svm.support, header.d), np.full(len(svm.support), -1)
    if task is not None:
        return ExpansionModel(header, support, svm.coef, -svm.rho, ids, task)
    codes = np.repeat(np.arange(len(svm.labels)), svm.counts)
    alpha, intercept = signed(svm.coef, codes), svm.rho
    if alike:
        codes, intercept = 1 - codes, -intercept
    return KernelModel(header, support, alpha, codes, ids, intercept, break_ties=False)


def _with_layout(rows: Rows, d: int) -> Rows:
    X: Any = rows.X.astype(np.float32)
    X.resize((len(rows), d))
    return Rows(X) if X.nnz < DENSE_FROM * len(rows) * d else Rows(X.toarray())


def _named(numbers: np.ndarray, path: Path) -> np.ndarray:
    names = _read_json(path)
    kinds = {type(name) for name in names} if isinstance(names, list) else set()
    if kinds not in ({str}, {int}, {float}, {bool}) or len(set(names)) < len(names):
        raise DataError(
            f"{path}: expected a JSON list of different labels, all texts, all numbers or both booleans"
        )
    if not 0 <= numbers.min() <= numbers.max() < len(names):
        raise DataError(
            f"{path}: found {len(names)} labels, the model's are {numbers.min()} to {numbers.max()}"
        )
    classes = np.array(names)
    if classes.dtype.kind not in "Uifb":
        raise DataError(f"{path}: a label is beyond 64 bits")
    return classes[numbers]


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: found no JSON: {error}") from None


@dataclass
class _Header:
    """The lines above the support vectors: line number and words by name."""

    path: Path
    words: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    last: int = 0

    def bad(self, number: int, what: str) -> DataError:
        return DataError(f"{self.path}, line {number}: {what}")

    def read(self, lines: Iterator[tuple[int, str]]) -> None:
        """Takes lines up to "SV"."""
        for self.last, line in lines:  # noqa: B020
            name, *words = line.split() or [""]
            if name == "SV":
                return
            if name not in (*KEYS, *LEFT_OUT):
                raise self.bad(self.last, f"found {name[:40]!r}, expected one of {', '.join(KEYS)}, or SV")
            if name in self.words:
                raise self.bad(self.last, f"found {name} again, it is on line {self.words[name][0]} already")
            self.words[name] = (self.last, words)
        raise self.bad(
            self.last, "found the end of the file, expected SV and support vectors: it is cut short"
        )

    def one_of(self, name: str, known: tuple[str, ...]) -> str:
        number, words = self._at(name)
        if len(words) != 1 or words[0] not in known:
            raise self.bad(number, f"found {name} {' '.join(words)[:40]!r}, supported are {', '.join(known)}")
        return words[0]

    def numbers(self, name: str, count: int, kind: Callable[[str], Any] = float) -> list[Any]:
        """`count` finite numbers within float32."""
        number, words = self._at(name)
        try:
            values = [kind(word) for word in words]
        except ValueError:
            values = []
        if len(values) != count or not all(abs(value) <= LARGEST for value in values):
            what = ("whole " if kind is int else "") + ("number" if count == 1 else "numbers")
            raise self.bad(number, f"found {name} {' '.join(words)[:40]!r}, expected {count} {what}")
        return values

    def _at(self, name: str) -> tuple[int, list[str]]:
        if name not in self.words:
            raise self.bad(self.last, f"found SV, but no line {name} above it")
        return self.words[name]


def read_svm(path: Path) -> tuple[SVM, list[str]]:
    """The contents of a model file, and the names of lines that were left out. Raises DataError."""
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = enumerate(file, 1)
        header = _Header(path)
        header.read(lines)
        svm_type = header.one_of("svm_type", (*CLASSIFIERS, *OTHERS))
        kernel, k = _kernel(header), header.numbers("nr_class", 1, int)[0]
        if svm_type in OTHERS:
            labels, counts, k = [], [], 2
        elif k < 2:
            raise header.bad(header.words["nr_class"][0], f"found nr_class {k}, expected two or more")
        else:
            labels, counts = header.numbers("label", k, int), header.numbers("nr_sv", k, int)
        rho = np.array(header.numbers("rho", n_pairs(k)))
        support, coef = _support(header, lines, k - 1)
        total = header.numbers("total_sv", 1, int)[0]
    _check(header, labels, counts, total, len(support))
    left_out = [name for name in LEFT_OUT if name in header.words]
    return SVM(svm_type, kernel, support, coef, rho, tuple(labels), tuple(counts)), left_out


def _kernel(header: _Header) -> Kernel:
    names = libsvm_names()
    name = names[header.one_of("kernel_type", tuple(names))]
    values = {
        parameter: header.numbers(parameter, 1, int if parameter == "degree" else float)[0]
        for parameter in kernel_row(name).parameters
    }
    if not 1 <= values.get("degree", 1) <= MOST_DEGREE:
        number = header.words["degree"][0]
        raise header.bad(number, f"found degree {values['degree']}, expected 1 to {MOST_DEGREE}")
    if values.get("gamma", 0) < 0:
        raise header.bad(header.words["gamma"][0], f"found gamma {values['gamma']:g}, expected none below 0")
    return kernel_from({"name": name} | values)


def _check(header: _Header, labels: list[int], counts: list[int], total: int, found: int) -> None:
    if total != found:
        claim = f"line {header.words['total_sv'][0]} says {total}"
        raise header.bad(header.last, f"the file ends after {found} support vectors, {claim}")
    if labels and (sum(counts) != found or min(counts) < 0):
        raise header.bad(header.words["nr_sv"][0], f"the counts do not add up to {found} support vectors")
    if len(set(labels)) < len(labels) or any(abs(label) > LARGEST_LABEL for label in labels):
        raise header.bad(header.words["label"][0], "expected a different integer of 32 bits for each class")


def _support(header: _Header, lines: Iterator[tuple[int, str]], columns: int) -> tuple[Rows, np.ndarray]:
    """Support vectors as CSR, (s, highest feature), and their coefficients, (s, columns)."""
    coef, data, indices, indptr = array("d"), array("d"), array("q"), array("q", [0])
    for header.last, line in lines:  # noqa: B020
        words = line.split()
        if not words:
            continue
        try:
            own = [float(word) for word in words[:columns]]
            entries = [word.partition(":") for word in islice(words, columns, None)]
            features = [int(feature) for feature, _, _ in entries]
            values = [float(value) for _, _, value in entries]
        except ValueError:
            raise header.bad(header.last, f"expected {columns} coefficients, then FEATURE:VALUE") from None
        if len(own) < columns or not all(abs(value) <= LARGEST for value in (*own, *values)):
            raise header.bad(header.last, f"expected {columns} coefficients and values, all within float32")
        if any(b <= a for a, b in pairwise([0, *features])) or (features and features[-1] > MOST_FEATURES):
            raise header.bad(header.last, f"expected features from 1 to {MOST_FEATURES}, rising")
        coef.extend(own)
        data.extend(values)
        indices.extend(features)
        indptr.append(len(data))
    columns_of = np.array(indices) - 1
    X = csr(np.array(data), columns_of, np.array(indptr), int(columns_of.max(initial=0)) + 1)
    return Rows(X), np.array(coef).reshape(-1, columns)
