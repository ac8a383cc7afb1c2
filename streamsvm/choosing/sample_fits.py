"""Fits of several trials on the rows of one sample, and their losses on held-out rows, with shared kernel values.

What kernel values are made of, inner products or distances, depends on the rows alone: it is computed once for all
trials, and the values once for all of the same kernel. All values of few rows are kept; of more rows those of one pair
of classes at a time, and of pairs beyond a block each fit computes its own. Held-out rows are decided strip by strip.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

import numpy as np

from streamsvm.choosing import against_rest
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.judging.expected import weighted_losses
from streamsvm.judging.log_loss import likelihoods, log_losses
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.tiles import COLUMNS, Tile, add_tile, columns_of, filled
from streamsvm.parallel.strips import strips
from streamsvm.problems.dual import gathered, loss_terms
from streamsvm.problems.subproblems import DualData, MakeDual, in_memory, sums_of, with_loss
from streamsvm.solvers import blockws
from streamsvm.solvers.descent import pairs_descent
from streamsvm.tasks.base import Subproblem
from streamsvm.tasks.pairs import MANY, joined, pair_coefficients, pair_decisions

TOL = 0.1  # of fits that are compared: at 1e-3 they take four times as long, and choose the same
NEAR = 1.0  # a larger violation than that disqualifies a fit that has ended before TOL
MOST_ROUNDS = 2000  # of a fit; one that takes more is no candidate
MOST_SUBBLOCKS = 100  # of a pair of classes that is one block
WHOLE = 6144  # rows all of whose kernel values are kept (144 MiB), where memory allows it
STRIP = 1024  # held-out rows that are decided at once
BEYOND = "kernel values are beyond float32"
Products = Callable[[np.ndarray, np.ndarray], None]  # adds those of a tile (h, q) to sums (h, subproblems)
FINISHED = 64  # rows whose values are made of operands at once: these stay in L2


@dataclass(eq=False)
class TrialFit:
    """A kernel, targets and bounds, and coefficients to start from, of the first rows. `solve` sets alpha (n, columns)
    and bias (subproblems,). seconds: of the fit and its losses, if it shared nothing. error: why it failed, or None."""

    kernel: Kernel
    dual_data: DualData
    start: np.ndarray | None = None
    squared: bool = False
    seconds: float = 0.0
    error: str | None = None
    alpha: np.ndarray = field(init=False)
    bias: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.alpha = np.zeros(self.dual_data.shape)
        if self.start is not None:
            self.alpha[: len(self.start)] = self.start[: len(self.alpha)]
        # if all rows are of one side, the bias decides for it
        self.bias = self.dual_data.task.one_sided(self.dual_data.present[None])[0]

    @property
    def subproblems(self) -> Iterator[Subproblem]:
        return self.dual_data.task.subproblems(self.dual_data.targets)


def _shared(fits: Iterable[TrialFit]) -> list[list[TrialFit]]:
    """The fits that have not failed, those of the same kernel together."""
    by_kernel: dict[Kernel, list[TrialFit]] = {}
    for fit in fits:
        if fit.error is None:
            by_kernel.setdefault(fit.kernel, []).append(fit)
    return list(by_kernel.values())


@contextmanager
def _timed(fits: Iterable[TrialFit]) -> Iterator[None]:
    """Adds the time to each of these fits, which would take as long alone; what fails, fails for them all."""
    began = time.perf_counter()
    try:
        yield
    except ConfigError as error:
        for fit in fits:
            fit.error = str(error)
    for fit in fits:
        fit.seconds += time.perf_counter() - began


class SharedOperands:
    """What kernel values of the same rows are made of, for tasks of one process: the first that asks computes it, on
    all of these threads, while the others wait."""

    def __init__(self, threads: int) -> None:
        self._threads, self._lock = threads, Lock()
        self._operands: dict[Hashable, np.ndarray] = {}

    def __reduce__(self) -> tuple[type[SharedOperands], tuple[int]]:
        return SharedOperands, (self._threads,)  # another process computes its own

    def of(self, kernel: Kernel, rows: Rows, order: Hashable) -> np.ndarray:
        """(n, n) float32. order: of the rows."""
        key = kernel.operand, order
        with self._lock:
            if key not in self._operands:
                self._operands[key] = _operands(kernel, rows, self._threads)
            return self._operands[key]


def _operands(kernel: Kernel, rows: Rows, threads: int = 1) -> np.ndarray:
    """Operands of K(rows, rows), (n, n) float32."""
    n = len(rows)
    out = np.empty((n, n), np.float32)

    def fill(start: int, stop: int) -> None:  # those below the diagonal are those above it
        tiles, strip = kernel.operand_tiles(rows.take(slice(start, n))), np.empty((stop - start, n - start), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # of this thread; `SharedGram.of` checks
            out[start:stop, start:] = filled(tiles, rows.take(slice(start, stop)), strip, 1)
        out[stop:, start:stop] = strip[:, stop - start :].T

    strips(fill, n, COLUMNS, threads)
    return out


class SharedGram:
    """K(rows, rows) of one kernel after another, all of the same operands. operands: if they are known."""

    def __init__(self, kernels: Sequence[Kernel], rows: Rows, operands: np.ndarray | None = None) -> None:
        self._rows = rows
        self._latest: Kernel | None = None
        self._operands = _operands(kernels[0], rows) if operands is None else operands
        in_place = operands is None and len(set(kernels)) == 1
        self._K = self._operands if in_place else np.empty_like(self._operands)

    def of(self, kernel: Kernel) -> np.ndarray:
        """(n, n) float32, until the next kernel. Raises ConfigError if values are beyond float32."""
        if kernel != self._latest:
            finish = kernel.finisher(self._rows)
            for start in range(0, len(self._K), FINISHED):
                strip = slice(start, start + FINISHED)
                if self._K is not self._operands:
                    self._K[strip] = self._operands[strip]
                finish(self._rows.take(strip), self._K[strip])
                _require_finite(self._K[start])  # beyond float32, most values are
            self._latest = kernel
        return self._K


def solve(fits: Sequence[TrialFit], rows: Rows, most_bytes: int, shared: SharedOperands | None = None) -> None:
    """Solves trials on the same rows, of one task and kernels of the same operands. Fits that do not converge get an
    error. most_bytes: that kernel values may take. shared: with other trials on these rows, in other threads."""
    fits = [fit for fit in fits if fit.error is None and not _solved_as_linear(fit, rows)]
    if not fits:
        return
    matrices = 2 if shared else min(2, len({fit.kernel for fit in fits}))
    if len(rows) <= WHOLE and 4 * matrices * len(rows) ** 2 <= most_bytes:
        _solve_whole(fits, rows, shared)
        return
    makes = [in_memory(fit.kernel, rows, 1, 0) for fit in fits]
    for parts in zip(*(fit.subproblems for fit in fits), strict=True):  # of the same rows
        if _is_direct(fits[0], len(parts[0].ids)):
            pair = parts[0]
            _solve_each(fits, rows.take(pair.ids[_by_class(pair)]), partial(_solve_pair, pair))
            continue
        for fit, make, part in zip(fits, makes, parts, strict=True):
            if fit.error is None:
                with _timed([fit]):
                    _solve_part(fit, part, make)


def _solved_as_linear(fit: TrialFit, rows: Rows) -> bool:
    """Whether a trial needs no kernel values: each class against the rest, with a linear kernel. It is solved then."""
    if not against_rest.is_linear(fit.kernel, fit.dual_data, squared=fit.squared):
        return False
    with _timed([fit]):
        fit.alpha, fit.bias = against_rest.solved(rows, fit.dual_data, fit.alpha)
    return True


def _solve_whole(fits: Sequence[TrialFit], rows: Rows, shared: SharedOperands | None) -> None:
    """From the kernel values of all rows."""
    codes = fits[0].dual_data.targets.codes
    counts = np.sort(np.bincount(codes))
    is_direct = _is_direct(fits[0], int(counts[-2:].sum()))  # each pair of classes
    ids = np.argsort(codes, kind="stable") if is_direct else np.arange(len(rows))

    def solve_fit(fit: TrialFit, K: np.ndarray) -> None:
        if is_direct:
            begins = np.searchsorted(codes[ids], np.arange(len(fit.dual_data.targets.classes) + 1))
            fit.alpha[ids] = _descended(fit, K, ids, begins, fit.alpha[ids])
        else:
            _solve_parts(fit, K, rows)

    ordered, kernel = rows.take(ids) if is_direct else rows, fits[0].kernel
    with _timed(fits):
        operands = shared.of(kernel, ordered, is_direct) if shared else None
    _solve_each(fits, ordered, solve_fit, operands)


def _solve_each(
    fits: Sequence[TrialFit],
    rows: Rows,
    solve_fit: Callable[[TrialFit, np.ndarray], None],
    operands: np.ndarray | None = None,
) -> None:
    """Calls solve_fit(fit, K(rows, rows)) for each fit that has not failed; what it raises fails this one alone."""
    with _timed(fits):
        gram = SharedGram([fit.kernel for fit in fits], rows, operands)
    for of_kernel in _shared(fits):
        with _timed(of_kernel):
            K = gram.of(of_kernel[0].kernel)
        for fit in of_kernel:
            if fit.error is None:
                with _timed([fit]):
                    solve_fit(fit, K)


def _is_direct(fit: TrialFit, rows: int) -> bool:
    """Whether so many rows of two classes are one block, without a bias."""
    return fit.dual_data.task.in_pairs and rows <= blockws.BLOCK


def _solve_parts(fit: TrialFit, K: np.ndarray, rows: Rows) -> None:
    make = in_memory(fit.kernel, rows, 1, 0, K)
    for part in fit.subproblems:
        if _is_direct(fit, len(part.ids)):
            ids = part.ids[_by_class(part)]
            _solve_pair(part, fit, gathered(K, ids, ids))
        else:
            _solve_part(fit, part, make)


def _by_class(part: Subproblem) -> np.ndarray:
    """The rows of a pair of classes: first those of one class, then those of the other."""
    return np.argsort(part.y, kind="stable")


def _solve_pair(part: Subproblem, fit: TrialFit, K: np.ndarray) -> None:
    """A pair of classes, from the kernel values of its rows `_by_class`."""
    order = _by_class(part)
    ids, places = part.ids[order], (part.ids[order], part.columns[order])
    begins = np.array([0, np.count_nonzero(part.y < 0), len(ids)])
    fit.alpha[places] = _descended(fit, K, ids, begins, fit.alpha[places][:, None])[:, 0]


def _descended(fit: TrialFit, K: np.ndarray, ids: np.ndarray, begins: np.ndarray, a: np.ndarray) -> np.ndarray:
    """argmin of 1/2 a'Qa - e'a, 0 <= a <= upper, of each pair of classes, from a (m, classes - 1), with the kernel
    values K of these rows, class by class."""
    upper, ridge = loss_terms(fit.dual_data.upper[ids], squared=fit.squared)
    limits = np.float32(TOL), (blockws.SUBBLOCK, MOST_SUBBLOCKS)
    pairs_descent(K, begins, a, upper, ridge, *limits)
    return a


def _solve_part(fit: TrialFit, part: Subproblem, make: MakeDual) -> None:
    """A subproblem by working sets. Raises ConfigError if it does not converge."""
    task, start = fit.dual_data.task, None if fit.start is None else fit.alpha[part.places]
    dual = with_loss(make, squared=fit.squared)(part, part.bounds(fit.dual_data.upper))
    state = blockws.solve(dual, start, tol=TOL, bias=task.has_bias, max_rounds=MOST_ROUNDS)
    if not state.violation <= NEAR:
        raise ConfigError(f"a trial ended at a violation of {state.violation:.2g}")
    fit.alpha[part.places], fit.bias[part.number] = state.alpha, state.bias


def _require_finite(values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise ConfigError(BEYOND)


def losses(
    fits: Sequence[TrialFit], rows: Rows, held_out: Rows, held_out_data: DualData, *, by_log_loss: bool = False
) -> list[np.ndarray]:
    """(h,) losses of held-out rows by each fit, see `weighted_losses` and `log_losses`; infinite if it has failed, or
    its decision values are beyond float32."""
    codes = held_out_data.task.truth(held_out_data.targets) if by_log_loss else None
    by_kernel, failed = _shared(fits), np.full(len(held_out), np.inf)
    blocks = _support_blocks(by_kernel, rows)
    strips = [
        _predicted(
            by_kernel,
            blocks,
            held_out.take(slice(start, start + STRIP)),
            None if codes is None else codes[start : start + STRIP],
        )
        for start in range(0, len(held_out), STRIP)
    ]
    lost, losses_by = [], log_losses if by_log_loss else weighted_losses
    for fit in fits:
        if fit.error is None:
            with _timed([fit]):
                of_fit = losses_by(np.concatenate([strip[fit] for strip in strips]), held_out_data)
                _require_finite(of_fit)
        lost.append(of_fit if fit.error is None else failed)
    return lost


@dataclass(frozen=True)
class _SupportBlock:
    """Some rows with coefficients in any of the fits. operands: their tiles. finishers: of each kernel. products: add
    values times the coefficients of a fit to its decision values."""

    width: int
    operands: Tile
    finishers: list[Tile]
    products: dict[TrialFit, Products]


def _support_blocks(by_kernel: list[list[TrialFit]], rows: Rows) -> list[_SupportBlock]:
    fits = [fit for of_kernel in by_kernel for fit in of_kernel]
    if not fits:
        return []
    data, blocks = fits[0].dual_data, []
    support = np.flatnonzero(np.any([fit.alpha.any(axis=1) for fit in fits], axis=0))
    if data.task.in_pairs:
        support = support[np.argsort(data.targets.codes[support], kind="stable")]
    for first in range(0, len(support), COLUMNS):
        ids = support[first : first + COLUMNS]
        vectors = rows.take(ids)
        with _timed(fits):
            operands = fits[0].kernel.operand_tiles(vectors)
        finishers = [of_kernel[0].kernel.finisher(vectors) for of_kernel in by_kernel]
        blocks.append(_SupportBlock(len(ids), operands, finishers, {fit: _products(fit, ids) for fit in fits}))
    return blocks


def _predicted(
    by_kernel: list[list[TrialFit]], blocks: list[_SupportBlock], held_out: Rows, codes: np.ndarray | None
) -> dict[TrialFit, np.ndarray]:
    """What each fit predicts of some held-out rows, or their `likelihoods` if they are of these classes (m,)."""
    fits = [fit for of_kernel in by_kernel for fit in of_kernel]
    decisions = {fit: _biases(fit, len(held_out)) for fit in fits}
    for block in blocks:
        operands = np.empty((len(held_out), block.width), np.float32)
        with _timed(fits):
            block.operands(held_out, operands)
        for finish, of_kernel in zip(block.finishers, by_kernel, strict=True):
            with _timed(of_kernel):
                tile = operands if of_kernel is by_kernel[-1] else operands.copy()
                finish(held_out, tile)
            for fit in of_kernel:
                with _timed([fit]):
                    block.products[fit](tile, decisions[fit])
    predicted = {}
    for fit, values in decisions.items():
        with _timed([fit]):
            _require_finite(values)
            task, k = fit.dual_data.task, len(fit.dual_data.targets.classes)
            if codes is not None:
                predicted[fit] = likelihoods(values, codes, k, pairwise=task.in_pairs)
                continue
            values = joined(values, k, pairwise=task.in_pairs)
            predicted[fit] = task.codes(values, np.empty(0)) if task.has_classes else values
    return predicted


def _biases(fit: TrialFit, count: int) -> np.ndarray:
    """(count, subproblems), of many pairs of classes one column after another, as in `pair_decisions`."""
    is_many = fit.dual_data.task.in_pairs and len(fit.dual_data.targets.classes) >= MANY
    return np.full((count, len(fit.bias)), fit.bias, order="F" if is_many else "C")


def _products(fit: TrialFit, ids: np.ndarray) -> Products:
    """Adds K(held, rows[ids]) times the coefficients of these rows to decision values. ids: class by class if
    subproblems are pairs."""
    task, targets = fit.dual_data.task, fit.dual_data.targets
    k = len(targets.classes)
    if not task.in_pairs:
        columns = columns_of(sums_of(task, targets, fit.alpha)[ids], np.float32)
    elif k < MANY:
        columns = columns_of(pair_coefficients(fit.alpha[ids], targets.codes[ids], k), np.float32)
    else:
        alpha, codes = fit.alpha[ids].astype(np.float32), targets.codes[ids]

        def add_by_class(tile: np.ndarray, sums: np.ndarray) -> None:
            def decide(ids: np.ndarray, coef: np.ndarray) -> np.ndarray:
                return tile[:, ids[0] : ids[-1] + 1] @ coef

            sums += pair_decisions(decide, len(tile), alpha, codes, k)

        return add_by_class
    return lambda tile, sums: add_tile(tile, columns, sums)
