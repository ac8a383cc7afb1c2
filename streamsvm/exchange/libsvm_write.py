"""Models as LIBSVM's text format, which svm-predict and its bindings load (svm_save_model of LIBSVM 3).

LIBSVM's pair (i, j), i < j, decides for i if sum_s coef K - rho is positive. For two classes the second one is
written first, so that decision values are ours; for more, a pair's value is the negative of ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.data.labels import label_texts
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ModelError
from streamsvm.exchange.expansion import expansion
from streamsvm.exchange.svm_scale import range_lines
from streamsvm.kernels.base import Kernel, has_graph, kernel_class
from streamsvm.kernels.table import KERNELS
from streamsvm.models.shapes import Expansion
from streamsvm.storage.atomic import whole_file
from streamsvm.tasks import task_of

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


def write_libsvm(model: Any, out: Path) -> dict[str, Any]:
    """Writes a model to `out`, completely or not at all, and next to it what the format cannot express.

    OUT.range, for svm-scale -r, if rows have to be scaled first. OUT.labels.json, the labels by number, if they are not
    integers. OUT.names.json, the names of the features, if they have any. Returns n_support, files and notes.
    Raises ModelError, StorageError.
    """
    if task_of(model.task).in_sets:
        raise ModelError(
            f"the model is of task {model.task}, and LIBSVM's files give a row one label; export --format onnx"
        )
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
        notes.append(
            f"LIBSVM's labels are integers: 0 to {len(model.classes) - 1} stand for those in {names}"
        )
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
    beside = [str(path) for path in texts if path != out]
    return {"n_support": len(svm.support), "files": beside, "notes": notes}


def _require_linear(scaling: Scaling) -> None:
    """Raises ModelError for a scaling that is more than an offset and a factor."""
    found = "scales rows by quantiles, which svm-scale cannot; fit with --scale standard"
    if scaling.marks is not None:
        found = "marks missing values, which LIBSVM has none of; fit without --mark-gaps"
    elif scaling.quantiles is None:
        return
    raise ModelError(f"the model {found}, or export --format onnx")


def _numbers(classes: np.ndarray) -> tuple[int, ...] | None:
    """The labels if all are integers of C, else None."""
    texts = label_texts(classes).tolist()
    try:
        numbers = tuple(int(text) for text in texts)
    except ValueError:
        return None
    fits = all(abs(number) <= LARGEST_LABEL for number in numbers)
    return numbers if fits and list(map(str, numbers)) == texts else None


def _svm(model: Any, expanded: Expansion, numbers: Any) -> SVM:
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
        known = ", ".join(ours for ours in libsvm_names().values())
        instead = "export --format onnx" if has_graph(kernel.name) else "fit with one of these"
        raise ModelError(
            f"the {kernel.name} kernel has no name in LIBSVM's format, which knows {known}; {instead}"
        )
    return kernel.libsvm


def libsvm_names() -> dict[str, str]:
    """Our names of kernels by LIBSVM's."""
    theirs = ((kernel_class(name).libsvm, name) for name in KERNELS)
    return {libsvm: name for libsvm, name in theirs if libsvm is not None}


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
    for i, own in enumerate(coef.tolist()):
        here = slice(X.indptr[i], X.indptr[i + 1])
        entries = zip((X.indices[here] + 1).tolist(), X.data[here].tolist(), strict=True)
        yield " ".join(chain(map("%.17g".__mod__, own), map(entry.__mod__, entries))) + "\n"


def _line(name: str, words: Iterable[str]) -> str:
    return f"{name} {' '.join(words)}\n"
