"""svmlight files: `label [qid:q] index:value ... # comment`, a sample per line. Multilabel: `1,3,7`, or no label."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from streamsvm.data.labels import NAMED, lacks_name, parse_labels
from streamsvm.data.layout import Layout
from streamsvm.data.rows import Rows
from streamsvm.data.sources import csr
from streamsvm.data.statistics import SAMPLE, NeedsFloat64, first_rounded
from streamsvm.errors import DataError
from streamsvm.ingest.block import Block, OpenStream, Reader
from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.streams import Stream, require_bytes
from streamsvm.private.numba import njit, njit_inner

_WHAT = {
    1: "expected a number as the label",
    2: "expected index:value",
    3: "expected a finite number as the value",
    4: "indices must rise along a line, but this one does not (unsorted or duplicate)",
    5: "expected qid: and a whole number",
    6: "the index is too large (at most 2147483646)",
    7: "qid: is on some lines and not on others",
}
EXACT = 2.0**53  # float64 holds whole numbers up to here
_MAX_INDEX = 2**31 - 2
_LABELS = re.compile(rb"(?:[^\s:#]+(?![^\s#]))?")  # a first word without a colon


class Parsed(NamedTuple):
    """Arrays for parsed values, with room for the maximum rows and entries. Compiled code takes a plain tuple."""

    y: np.ndarray  # (rows,)
    qid: np.ndarray  # (rows,) int64
    indptr: np.ndarray  # (rows + 1,) int64
    indices: np.ndarray  # (entries,) int32
    values: np.ndarray  # (entries,)


class SvmlightReader(Reader):
    """Reads svmlight. Indices start at 0 if any index of any source is 0, else at 1."""

    dense_below = 0.25

    def __init__(self, options: IngestOptions, like: Layout | None, open_stream: OpenStream = Stream) -> None:
        self._options, self._open = options, open_stream
        self.dtype = options.feature_dtype()
        self._model_d = None if like is None else like.d
        self._model_first = None if like is None else like.attrs.get("first_index")
        self._lowest, self._highest = _MAX_INDEX, -1
        self._n, self._nnz = 0, 0
        self._has_qid: bool | None = None

    def blocks(self, path: str) -> Iterator[Block]:
        line, rest = 1, b""
        with self._open(path) as stream:
            while raw := stream.read_exactly(self._options.block_bytes):
                if line == 1 and not rest:
                    require_bytes(path, raw)
                    raw = raw.removeprefix(BOM_UTF8)
                text = rest + raw
                cut = text.rfind(b"\n") + 1
                rest = text[cut:]
                yield from self._parse(path, text[:cut], line)
                line += text.count(b"\n", 0, cut)
            yield from self._parse(path, rest + b"\n", line)

    def _parse(self, path: str, text: bytes, line: int) -> Iterator[Block]:
        if not text.strip():
            return
        labels = None
        if self._options.multilabel:
            labels, text = _labels_apart(path, text, line)
        n_lines, room = text.count(b"\n"), text.count(b":") + 1
        rows = np.empty(n_lines), np.empty(n_lines, np.int64), np.zeros(n_lines + 1, np.int64)
        parsed = Parsed(*rows, np.empty(room, np.int32), np.empty(room))
        error, bad_line, at, n, n_qid = _parse_all(np.frombuffer(text, np.uint8), tuple(parsed), _POWERS)
        if error:
            token = re.split(rb"[ \t\r\n]", text[at : at + 40], maxsplit=1)[0].decode("utf-8", "replace")
            hint = "; --multilabel takes several" if error == 1 and "," in token else ""
            raise DataError(f"{path}:{line + bad_line}: {_WHAT[error]}; found {token!r}{hint}")
        if n:
            self._require_model_indices(path, text, line, parsed, n)
            if labels is None and np.abs(parsed.y[:n]).max() >= EXACT:
                words = _labels_apart(path, text, line)[0]
                labels = parse_labels([word.removeprefix("+") for word in words.tolist()])
            yield self._block(path, line, parsed, n, n_qid, labels)

    def _require_model_indices(self, path: str, text: bytes, line: int, parsed: Parsed, n: int) -> None:
        """Raises DataError for an index that the features of the model do not have. line: the first one of text."""
        if self._model_d is None:
            return
        lowest = self._model_first or 0
        highest = self._model_d - (self._model_first == 0)
        indices = parsed.indices[: parsed.indptr[n]]
        wrong = np.flatnonzero((indices < lowest) | (indices > highest))
        if not len(wrong):
            return
        row = int(np.searchsorted(parsed.indptr[1 : n + 1], wrong[0], side="right"))
        lines = map(bytes.strip, text.split(b"\n"))
        rows = [at for at, content in enumerate(lines) if content and not content.startswith(b"#")]
        raise DataError(
            f"{path}:{line + rows[row]}: found the index {indices[wrong[0]]}, expected {lowest} to {highest}, because "
            f"the model, or the store given as --like, has {self._model_d} features; leave out what it was not trained "
            "on, or train it on rows as wide"
        )

    def _block(self, path: str, line: int, parsed: Parsed, n: int, n_qid: int, labels: np.ndarray | None) -> Block:
        indptr, nnz = parsed.indptr[: n + 1], int(parsed.indptr[n])
        if self._options.dtype is None:
            end = parsed.indptr[min(n, SAMPLE)]
            if (rounded := first_rounded(parsed.indices[:end], parsed.values[:end])) is not None:
                raise NeedsFloat64.of(f"feature {rounded.column}", rounded)
        indices, data = parsed.indices[:nnz], _narrow(parsed.values[:nnz], self.dtype, path)
        self._has_qid = n_qid > 0 if self._has_qid is None else self._has_qid
        if n_qid != (n if self._has_qid else 0):
            raise DataError(f"{path}: {_WHAT[7]} (from line {line} on)")
        if nnz:
            self._lowest = min(self._lowest, int(indices.min()))
            self._highest = max(self._highest, int(indices.max()))
        self._n += n
        self._nnz += int(np.count_nonzero(data))
        rows = Rows(csr(data, indices, indptr, _MAX_INDEX + 1))
        y = parsed.y[:n].copy() if labels is None else labels
        return Block(rows, y, parsed.qid[:n].copy() if self._has_qid else None)

    def finish(self) -> None:
        self.width()

    def _first_index(self) -> int:
        if self._model_first is not None:
            return int(self._model_first)
        return 0 if self._lowest == 0 else 1

    def width(self) -> int:
        width = self._highest + 1 - self._first_index()
        if self._model_d is not None and width > self._model_d:
            raise DataError(
                f"indices are {self._lowest} to {self._highest}, one more than the {self._model_d} features of the "
                "model, or of the store given as --like"
            )
        if width < 1:
            raise DataError("the sources have no index:value; expected at least one feature")
        return self._model_d or width

    def density(self) -> float:
        return self._nnz / (self._n * self.width())

    def encode(self, rows: Rows) -> Rows:
        X = rows.csr
        indices = X.indices - X.indices.dtype.type(self._first_index())
        return Rows(csr(X.data, indices, X.indptr, self.width()))

    def attrs(self) -> dict[str, object]:
        return {"first_index": self._first_index()}


def _labels_apart(path: str, text: bytes, line: int) -> tuple[np.ndarray, bytes]:
    """(rows,) the labels of each row of whole lines, and the text with 0 instead of them. Raises DataError."""
    labels, lines = list[str](), text.split(b"\n")
    for number, content in enumerate(lines):
        row = content.strip()
        if not row or row.startswith(b"#"):
            continue
        word = _LABELS.match(row)[0]  # type: ignore[index]  # it matches anything
        labels.append(word.decode("utf-8", "replace"))
        if lacks_name(labels[-1]):
            raise DataError(f"{path}:{line + number}: {NAMED}; found {labels[-1]!r}")
        lines[number] = b"0 " + row[len(word) :]
    return np.array(labels, str), b"\n".join(lines)


def _narrow(values: np.ndarray, dtype: np.dtype, path: str) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        data = values.astype(dtype)
    fits = np.array_equal(data, values) if dtype == np.uint8 else bool(np.isfinite(data).all())
    if not fits:
        wrong = values[data != values] if dtype == np.uint8 else values[~np.isfinite(data)]
        raise DataError(f"{path}: the value {wrong[0]} does not fit {dtype}; choose another --dtype")
    return data


_POWERS = 10.0 ** np.arange(0, 309, dtype=np.float64)


@njit_inner()
def _mantissa(text, at):
    """(digits as an integer, power of ten, digits seen, position after) of `12.5`: 125, -1, 3."""
    mantissa, exponent, digits = np.uint64(0), 0, 0
    after_point = False
    while True:
        c = text[at]
        if 48 <= c <= 57:
            digits += 1
            if mantissa < np.uint64(1_000_000_000_000_000_000):
                mantissa = mantissa * np.uint64(10) + np.uint64(c - 48)
                exponent -= after_point
            else:
                exponent += not after_point
        elif c == 46 and not after_point:
            after_point = True
        else:
            return mantissa, exponent, digits, at
        at += 1


@njit_inner()
def _exponent(text, at):
    """(power, position after) of `e-12` at `at`; position -1 if no digits follow."""
    at += 1
    down = text[at] == 45
    if down or text[at] == 43:
        at += 1
    power, start = 0, at
    while 48 <= text[at] <= 57:
        power = min(power * 10 + text[at] - 48, 9999)
        at += 1
    return -power if down else power, at if at > start else -1


@njit_inner()
def _scaled(value, exponent, powers):
    if exponent > 308:
        return np.inf if value > 0 else 0.0
    if exponent >= 0:
        return value * powers[exponent]
    if exponent >= -308:
        return value / powers[-exponent]
    return value / powers[308] / powers[min(-exponent - 308, 308)]


@njit_inner()
def _number(text, at, powers):
    """(value, position after) of the decimal number at `at`; position -1 if there is none. Within 1 ulp."""
    negative = text[at] == 45
    if negative or text[at] == 43:
        at += 1
    mantissa, exponent, digits, at = _mantissa(text, at)
    if digits == 0:
        return 0.0, -1
    if text[at] == 101 or text[at] == 69:
        power, at = _exponent(text, at)
        exponent += power
    value = _scaled(np.float64(mantissa), exponent, powers)
    return -value if negative else value, at


@njit_inner()
def _skip(text, at):
    while text[at] == 32 or text[at] == 9 or text[at] == 13:
        at += 1
    return at


@njit_inner()
def _is_end(c):
    return c == 32 or c == 9 or c == 13 or c == 10 or c == 35


@njit_inner()
def _integer(text, at):
    """(value, position after) of the digits at `at`; position -1 if there are none or too many."""
    value, start = 0, at
    while 48 <= text[at] <= 57 and at - start < 18:
        value = value * 10 + text[at] - 48
        at += 1
    return value, at if at > start else -1


@njit_inner(forceinline=True)
def _parse_line(text, at, row, k, out, powers):
    """Parses the sample that starts at `at`: (error, position, entries so far, has qid)."""
    y, qid, indices, values = out.y, out.qid, out.indices, out.values
    y[row], end = _number(text, at, powers)
    if end < 0 or not _is_end(text[end]) or not np.isfinite(y[row]):
        return 1, at, k, False
    at = _skip(text, end)
    has_qid = text[at] == 113
    if has_qid:
        if not (text[at + 1] == 105 and text[at + 2] == 100 and text[at + 3] == 58):
            return 5, at, k, True
        qid[row], end = _integer(text, _skip(text, at + 4))
        if end < 0 or not _is_end(text[end]):
            return 5, at, k, True
        at = _skip(text, end)
    last = -1
    while text[at] != 10 and text[at] != 35:
        index, end = _integer(text, at)
        if end < 0 or text[end] != 58:
            return 2, at, k, has_qid
        if index > 2147483646:
            return 6, at, k, has_qid
        if index <= last:
            return 4, at, k, has_qid
        value, end = _number(text, _skip(text, end + 1), powers)
        if end < 0 or not _is_end(text[end]) or not np.isfinite(value):
            return 3, at, k, has_qid
        indices[k], values[k], last = index, value, index
        k += 1
        at = _skip(text, end)
    return 0, at, k, has_qid


@njit(cache=True)
def _parse_all(text, parsed, powers):
    """Fills the arrays from whole lines: (error, line, position, rows, rows with qid). text ends with a newline."""
    out = Parsed(*parsed)
    indptr = out.indptr
    at, line, row, k, n_qid = 0, 0, 0, 0, 0
    while at < len(text):
        at = _skip(text, at)
        if text[at] != 10 and text[at] != 35:
            error, at, k, has_qid = _parse_line(text, at, row, k, out, powers)
            if error:
                return error, line, at, row, n_qid
            row += 1
            n_qid += has_qid
            indptr[row] = k
        while text[at] != 10:
            at += 1
        at += 1
        line += 1
    return 0, line, at, row, n_qid
