"""Models in LIBSVM's text format (svm_save_model of LIBSVM 3): written, and read.

The writer takes models whose decisions are sums of kernel values; svm-predict and its bindings load the file. LIBSVM's
pair (i, j), i < j, decides for i if sum_s coef K - rho is positive. For two classes the second one is written first, so
that decision values are ours; for more, a pair's value is the negative of ours.

The reader takes c_svc, nu_svc, epsilon_svr, nu_svr and one_class, with kernels that both sides have. It allocates
nothing by the size that a file claims: memory is a small multiple of the file.

A range file of svm-scale scales x' = lower + (upper - lower) (x - min) / (max - min), feature by feature: a line "x", a
line "lower upper", and a line "feature min max" for each feature; one whose min is its max becomes 0.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.data.labels import label_texts
from streamsvm.data.layout import Names
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.data.sources import csr
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.events import Events, Warned, heard
from streamsvm.exchange import expansion
from streamsvm.kernels.base import Kernel, has_graph, kernel_class, kernel_from
from streamsvm.kernels.table import KERNELS, kernel_row
from streamsvm.models import ExpansionModel, Header, KernelModel, LinearModel
from streamsvm.models.base import Model
from streamsvm.models.shapes import Expansion
from streamsvm.storage.atomic import whole_file
from streamsvm.tasks import task_of
from streamsvm.tasks.pairs import n_pairs

MOST_FEATURES = 1 << 25  # a model has two float64 of each


def range_lines(scaling: Scaling) -> Iterator[str]:
    """Any scaling as a map of [offset, offset + 1 / scale] to [0, 1]."""
    yield "x\n0 1\n"
    for number, (low, scale) in enumerate(zip(scaling.offset.tolist(), scaling.scale.tolist(), strict=True), 1):
        yield f"{number} {low:.17g} {low + (1 / scale if scale else 0):.17g}\n"


def read_range(path: Path) -> Scaling:
    """The scaling that a range file describes; features that it does not name become 0. Raises DataError."""
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = enumerate(file, 1)
        if (first := next(lines, (1, ""))[1].strip()) != "x":
            also = "; labels scaled with -y are not supported" if first == "y" else ""
            raise DataError(f"{path}, line 1: found {first[:40]!r}, expected x, as svm-scale -s writes it{also}")
        number, line = next(lines, (2, ""))
        lower, upper = _range_numbers(path, number, line, 2)
        ranges = {}
        for number, line in lines:
            if line.strip():
                index, low, high = _range_numbers(path, number, line, 3)
                if not (index.is_integer() and 1 <= index <= MOST_FEATURES) or high < low:
                    raise DataError(f"{path}, line {number}: expected a feature from 1 to {MOST_FEATURES}, min <= max")
                ranges[int(index) - 1] = (low, high)
    d = max(ranges, default=-1) + 1
    offset, scale = np.zeros(d), np.zeros(d)
    for column, (low, high) in ranges.items():
        if high > low and upper != lower:
            slope = (upper - lower) / (high - low)
            if not 0 < abs(slope) < math.inf:
                raise DataError(f"{path}: the range of feature {column + 1} is too wide or too narrow")
            scale[column], offset[column] = slope, low - lower / slope
    return Scaling("minmax" if offset.any() else "maxabs", offset, scale)


def _range_numbers(path: Path, number: int, line: str, count: int) -> list[float]:
    try:
        values = [float(word) for word in line.split()]
    except ValueError:
        values = []
    if len(values) != count or not all(map(math.isfinite, values)):
        raise DataError(f"{path}, line {number}: found {line.strip()[:40]!r}, expected {count} numbers")
    return values


BLOCK_ROWS = 4096
LARGEST_LABEL = 2**31 - 1  # an int of C


@dataclass(frozen=True)
class SVM:
    """A model in terms of the format.

    A pair (i, j) sums column j - 1 of the support vectors of class i and column i of those of class j.
    """

    svm_type: str  # c_svc, nu_svc; or epsilon_svr, nu_svr and one_class: one column, no labels
    kernel: Kernel
    support: Rows  # by class
    coef: np.ndarray  # (s, k - 1)
    rho: np.ndarray  # (pairs,)
    labels: tuple[int, ...] = ()  # (k,)
    counts: tuple[int, ...] = ()  # (k,) support vectors of each class


def write_libsvm(model: Model, out: Path) -> dict[str, Any]:
    """Writes a model to `out`, completely or not at all, and next to it what the format cannot express.

    OUT.range, for svm-scale -r, if rows have to be scaled first. OUT.labels.json, the labels by number, if they are not
    integers. OUT.names.json, the names of the features, if they have any. Returns n_support, files and notes.
    Raises ModelError, StorageError.
    """
    if task_of(model.task).in_sets:
        problem = f"the model is of task {model.task}, and LIBSVM's files give a row one label"
        raise ModelError(f"{problem}; export --format onnx")
    expanded = expansion(model).folded()
    _require_linear(expanded.scaling)
    numbers = _numbers(model.classes)
    svm = _svm(model, expanded, numbers or range(len(model.classes)))
    texts = {out: svm_lines(svm)}  # the first one takes its name last
    notes = []
    if expanded.scaling.kind != "none":
        ranges = out.with_name(f"{out.name}.range")
        texts[ranges] = range_lines(expanded.scaling)
        notes.append(f"rows have to be scaled first: svm-scale -r {ranges} ROWS > SCALED")
    if model.takes_gaps:
        notes.append("LIBSVM has no missing values: fill them as the fit did before")
    if numbers is None and svm.labels:
        names = out.with_name(f"{out.name}.labels.json")
        texts[names] = iter([json.dumps(model.classes.tolist()) + "\n"])
        notes.append(f"LIBSVM's labels are integers: 0 to {len(model.classes) - 1} stand for those in {names}")
    if model.shown_names is not None:
        features = out.with_name(f"{out.name}.names.json")
        texts[features] = iter([json.dumps(model.shown_names) + "\n"])
        notes.append(f"LIBSVM's features have no names: feature 1 is the first of those in {features}")
    if model.header.threshold is not None:
        notes.append(
            f"the threshold, {model.header.threshold:.9g}, is subtracted from decision values, as LIBSVM's is 0"
        )
    if model.costs is not None:
        notes.append("costs of errors are not in LIBSVM's format: labels are those of decision values")
    if len(svm.labels) > 2:
        notes.append(
            "for equal votes LIBSVM takes the first class, and a pair's value is positive for its first class"
            if model.is_pairwise
            else "classes against the rest became pairs: each class has its own support vectors, and the value of a "
            "pair is the difference of theirs"
        )
    with ExitStack() as stack:
        files = {path: stack.enter_context(whole_file(path)) for path in texts}
        for path, lines in texts.items():
            files[path].writelines(line.encode("ascii") for line in lines)
    others = [str(path) for path in texts if path != out]
    return {"n_support": len(svm.support), "files": others, "notes": notes}


def _require_linear(scaling: Scaling) -> None:
    """Raises ModelError for a scaling that is more than an offset and a factor."""
    reason = "scales rows by quantiles, which svm-scale cannot; fit with --scale standard"
    if scaling.marks is not None:
        reason = "marks missing values, which LIBSVM has none of; fit without --mark-gaps"
    elif scaling.quantiles is None:
        return
    raise ModelError(f"the model {reason}, or export --format onnx")


def _numbers(classes: np.ndarray) -> tuple[int, ...] | None:
    """The labels if all are integers of C, else None."""
    texts = label_texts(classes).tolist()
    try:
        numbers = tuple(int(text) for text in texts)
    except ValueError:
        return None
    fits = all(abs(number) <= LARGEST_LABEL for number in numbers)
    return numbers if fits and list(map(str, numbers)) == texts else None


def _svm(model: Model, expanded: Expansion, numbers: Any) -> SVM:
    kernel, labels = expanded.kernel, tuple(numbers)
    support, coef, intercept = expanded.support, expanded.coef, expanded.intercept
    task, config = task_of(model.task), model.header.config or {}
    svm_type = task.libsvm_type if config.get("nu") is None else task.libsvm_nu_type
    if not (task.has_labels and task.has_classes):
        return SVM(svm_type, kernel, support, coef, -intercept)
    if expanded.compact is not None and len(labels) > 2:
        alpha, codes = expanded.compact.alpha, expanded.compact.codes
        order = np.argsort(codes, kind="stable")
        counts = np.bincount(codes, minlength=len(labels)).tolist()
        compact = signed(alpha.astype(np.float32), codes)
        return SVM(svm_type, kernel, support.take(order), compact[order], intercept, labels, tuple(counts))
    coef, intercept = task.against_rest(coef, intercept, model.thresholds)
    if len(labels) == 2:
        coef, intercept = coef[:, -1:], intercept[-1:] - (model.header.threshold or 0.0)
        is_first = coef[:, 0] > 0
        order, n_first = np.argsort(~is_first, kind="stable"), int(np.count_nonzero(is_first))
        counts = (n_first, len(coef) - n_first)
        return SVM(svm_type, kernel, support.take(order), coef[order], -intercept, labels[::-1], counts)
    return _against_the_rest(kernel, support, coef, intercept, labels)


def _against_the_rest(
    kernel: Kernel, support: Rows, coef: np.ndarray, intercept: np.ndarray, labels: tuple[int, ...]
) -> SVM:
    """Pair (i, j) as f_i - f_j, so that the largest f wins all its pairs: every class has its own support vectors."""
    k = len(labels)
    codes, rows = np.nonzero(coef.T)
    alone = np.repeat(coef[rows, codes][:, None], k - 1, axis=1)
    rho = np.array([intercept[j] - intercept[i] for i, j in combinations(range(k), 2)])
    counts = tuple(np.bincount(codes, minlength=k).tolist())
    return SVM("c_svc", kernel, support.take(rows), signed(alone, codes), rho, labels, counts)


def signed(coef: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """(s, k - 1) coefficients, negated where a support vector's class is the later one of the pair."""
    return np.where(np.arange(coef.shape[1]) >= codes[:, None], coef, -coef)


def _kernel_type(kernel: Kernel) -> str:
    if kernel.libsvm is None:
        names = ", ".join(libsvm_names().values())
        instead = "export --format onnx" if has_graph(kernel.name) else "fit with --must-export libsvm"
        raise ModelError(f"the {kernel.name} kernel has no name in LIBSVM's format, which knows {names}; {instead}")
    return kernel.libsvm


def libsvm_names() -> dict[str, str]:
    """Our names of kernels by LIBSVM's."""
    return {libsvm: name for name in KERNELS if (libsvm := kernel_class(name).libsvm) is not None}


def svm_lines(svm: SVM) -> Iterator[str]:
    """The file, line by line. Features count from 1."""
    kernel = svm.kernel
    yield f"svm_type {svm.svm_type}\nkernel_type {_kernel_type(kernel)}\n"
    values = kernel.to_attrs()
    for name in ("degree", "coef0", "gamma"):
        if name in values:
            yield f"{name} {values[name]:.17g}\n"
    yield f"nr_class {len(svm.labels) or 2}\ntotal_sv {len(svm.support)}\n"
    yield _line("rho", (f"{value:.17g}" for value in svm.rho))
    if svm.labels:
        yield _line("label", map(str, svm.labels))
        yield _line("nr_sv", map(str, svm.counts))
    yield "SV\n"
    for start in range(0, len(svm.support), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        yield from _support_lines(svm.support.take(block), svm.coef[block])


def _support_lines(rows: Rows, coef: np.ndarray) -> Iterator[str]:
    X: Any = sparse.csr_array(rows.X)
    entry = "%d:%.9g" if X.dtype == np.float32 else "%d:%.17g"  # as many digits as distinguish two numbers
    for i, coefficients in enumerate(coef.tolist()):
        entries_of = slice(X.indptr[i], X.indptr[i + 1])
        entries = zip((X.indices[entries_of] + 1).tolist(), X.data[entries_of].tolist(), strict=True)
        yield " ".join(chain(map("%.17g".__mod__, coefficients), map(entry.__mod__, entries))) + "\n"


def _line(name: str, words: Iterable[str]) -> str:
    return f"{name} {' '.join(words)}\n"


Imported = KernelModel | ExpansionModel | LinearModel
CLASSIFIERS = ("c_svc", "nu_svc")
OTHERS = {"epsilon_svr": "regress", "nu_svr": "regress", "one_class": "oneclass"}  # tasks of one column
KEYS = ("svm_type", "kernel_type", "degree", "gamma", "coef0", "nr_class", "total_sv", "rho", "label", "nr_sv")
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
        raise DataError(f"{path}: expected a JSON list of different labels, all texts, all numbers or both booleans")
    if not 0 <= numbers.min() <= numbers.max() < len(names):
        raise DataError(f"{path}: found {len(names)} labels, the model's are {numbers.min()} to {numbers.max()}")
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
        raise self.bad(self.last, "found the end of the file, expected SV and support vectors: it is cut short")

    def one_of(self, name: str, supported: tuple[str, ...]) -> str:
        number, words = self._at(name)
        if len(words) != 1 or words[0] not in supported:
            value = " ".join(words)[:40]
            raise self.bad(number, f"found {name} {value!r}, supported are {', '.join(supported)}")
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


def _check(header: _Header, labels: list[int], counts: list[int], total: int, n_support: int) -> None:
    if total != n_support:
        claim = f"line {header.words['total_sv'][0]} says {total}"
        raise header.bad(header.last, f"the file ends after {n_support} support vectors, {claim}")
    if labels and (sum(counts) != n_support or min(counts) < 0):
        raise header.bad(header.words["nr_sv"][0], f"the counts do not add up to {n_support} support vectors")
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
            coefficients = [float(word) for word in words[:columns]]
            entries = [word.partition(":") for word in islice(words, columns, None)]
            features = [int(feature) for feature, _, _ in entries]
            values = [float(value) for _, _, value in entries]
        except ValueError:
            raise header.bad(header.last, f"expected {columns} coefficients, then FEATURE:VALUE") from None
        if len(coefficients) < columns or not all(abs(value) <= LARGEST for value in (*coefficients, *values)):
            raise header.bad(header.last, f"expected {columns} coefficients and values, all within float32")
        if any(b <= a for a, b in pairwise([0, *features])) or (features and features[-1] > MOST_FEATURES):
            raise header.bad(header.last, f"expected features from 1 to {MOST_FEATURES}, rising")
        coef.extend(coefficients)
        data.extend(values)
        indices.extend(features)
        indptr.append(len(data))
    columns_of = np.array(indices) - 1
    X = csr(np.array(data), columns_of, np.array(indptr), int(columns_of.max(initial=0)) + 1)
    return Rows(X), np.array(coef).reshape(-1, columns)
