"""Digits without end: MNIST's training digits, then the same ones again and again, each time deformed in another way.

    python pipelines/infinite_mnist.py --data DIR --store OUT.zarr [--rows 8100000] [--seed 0] [--start 0]

reads train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz in DIR, and never the test files, and writes rows
start, start + 1, ... of 784 bytes with labels 0..9. Rows 0 to 59,999 are the digits as they are, in the order of the
file. Each later pass over the 60,000 has its own order, so that a stretch of rows is a random sample of the
classes. Row i is a function of (seed, i) alone. On two cores 8,100,000 rows take a minute or so; the store has 2.2 GB.

After Loosli, Canu and Bottou, Training invariant support vector machines using selective sampling (2007), whose
8,100,000 rows are known as mnist8m: smooth random displacements, thicker and thinner strokes, shifts. They move grey
levels along the tangents of an image, which is exact to first order; here the image itself is sampled where the
displacement points. So the rows are alike, but not theirs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from math import isqrt
from pathlib import Path
from typing import NamedTuple, TypeVar

import numba as nb
import numpy as np
from scipy.ndimage import gaussian_filter

from streamsvm.data.rows import Rows
from streamsvm.data.statistics import Moments, merge, moments_of
from streamsvm.data.writer import StoreWriter
from streamsvm.errors import DataError, StreamSVMError
from streamsvm.ingest.arrays import ArrayReader
from streamsvm.ingest.options import IngestOptions
from streamsvm.parallel.machine import cores
from streamsvm.parallel.prefetch import ahead

IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
ROWS = 8_100_000
BLOCK_ROWS = 5_349  # about a chunk of the store: 4 MiB
FIELD_SIDE, SMOOTH = 512, 4.0  # pixels
MOST = 1 << 60  # as seed or row number: far from the end of int64

T = TypeVar("T")


class Strength(NamedTuple):
    """How much a digit changes: as another hand would write it, and still the same digit to a reader.

    bend: root mean square displacement by a smooth random field, pixels.
    linear: largest entry of a linear map less the identity; it turns, shears and scales at once.
    shift: largest shift of the whole image along an axis, pixels.
    thick: largest weight of the dilated or eroded image.
    """

    bend: float = 1.0
    linear: float = 0.1
    shift: float = 1.0
    thick: float = 0.3


STRENGTH = Strength()


class InfiniteDigits:
    """Rows 0, 1, 2, ... made of images (n, d) uint8, square, and labels (n,); the first n are the images themselves.

    Memory: the images and 1 MiB.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, seed: int = 0, strength: Strength = STRENGTH) -> None:
        n, d = images.shape
        side = isqrt(d)
        if side * side != d:
            raise DataError(f"the images have {d} pixels; expected a square")
        self.d, self.seed = d, seed
        self._images, self._labels = images.reshape(n, side, side), labels
        self._field, self._strength = smooth_field(seed), np.array(strength, np.float32)

    def rows(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows start..stop, (m, d) uint8, and their labels (m,)."""
        m, side = stop - start, self._images.shape[1]
        sources, out = np.empty(m, np.int64), np.empty((m, side, side), np.uint8)
        _sources(self.seed, start, len(self._images), sources)
        images = self._images[sources]
        as_they_are = min(max(len(self._images) - start, 0), m)
        out[:as_they_are], rest = images[:as_they_are], slice(as_they_are, m)
        _deform(self.seed, start + as_they_are, images[rest], self._field, self._strength, out[rest])
        return out.reshape(m, self.d), self._labels[sources]


def smooth_field(seed: int) -> np.ndarray:
    """(FIELD_SIDE, FIELD_SIDE) float32: a smooth random function of mean square 1.

    A digit is displaced along each axis by a window of it at a random place: a quarter of a million of fields that
    together take the memory of one.
    """
    noise = np.empty((FIELD_SIDE, FIELD_SIDE))
    _noise(seed, noise)
    field = gaussian_filter(noise, SMOOTH, mode="wrap")
    return (field / np.sqrt(np.mean(field**2))).astype(np.float32)


def load_digits(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """MNIST's training images (n, 784) uint8 and labels (n,) int64. Raises NotFoundError, DataError."""
    reader = ArrayReader(IngestOptions(labels=str(folder / LABELS)), None, "idx")
    blocks = list(reader.blocks(str(folder / IMAGES)))
    reader.finish()
    images = np.concatenate([block.rows.dense() for block in blocks])
    return images, np.concatenate([block.y for block in blocks]).astype(np.int64)


def write_store(
    url: str | os.PathLike[str],
    digits: InfiniteDigits,
    rows: int,
    *,
    start: int = 0,
    workers: int | None = None,
    on_rows: Callable[[int], None] = lambda done: None,
) -> None:
    """Writes rows start..start + rows to a new store; the same ones with any number of workers.

    Blocks are made in threads, a few ahead of the one that is packed and written. Raises StorageError.
    """
    workers = workers or cores()
    starts, stop = range(start, start + rows, BLOCK_ROWS), start + rows
    blocks = ((at, min(at + BLOCK_ROWS, stop)) for at in starts)
    attrs = {"made_of": IMAGES, "seed": digits.seed, "start": start}
    with StoreWriter(url, d=digits.d, dtype=np.uint8, chunk_rows=BLOCK_ROWS, attrs=attrs) as out:
        for X, y, moments in ahead(partial(_block, digits), blocks, workers, workers + 2):
            out.statistics = merge(out.statistics, moments) if out.statistics else moments
            out.append(Rows(X), y)
            on_rows(out.n)


def _block(digits: InfiniteDigits, block: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, Moments]:
    X, y = digits.rows(*block)
    return X, y, moments_of(Rows(X))


def _show(rows: int, done: int) -> None:
    print(f"\r{done:,} of {rows:,} rows", end="\n" if done == rows else "", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="the training files' folder")
    parser.add_argument("--store", type=Path, required=True, metavar="OUT.zarr")
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--start", type=int, default=0, metavar="N", help="number of the first row")
    parser.add_argument("--workers", type=int, metavar="N", help="threads; as many as cores where not given")
    args = parser.parse_args()
    for name, least in (("rows", 1), ("seed", 0), ("start", 0), ("workers", 1)):
        value = getattr(args, name)
        if value is not None and not least <= value <= MOST:
            parser.error(f"--{name} {value}: expected a number from {least} to {MOST}")
    if not args.data.is_dir():
        parser.error(f"--data {args.data}: no such folder; it holds {IMAGES} and {LABELS}")
    if args.store.exists():
        parser.error(f"--store {args.store}: already exists; remove it or choose another name")
    on_rows = partial(_show, args.rows) if sys.stderr.isatty() else lambda done: None
    try:
        digits = InfiniteDigits(*load_digits(args.data), args.seed)
        write_store(args.store, digits, args.rows, start=args.start, workers=args.workers, on_rows=on_rows)
    except StreamSVMError as error:
        parser.error(str(error))


# Randomness is counted, not drawn: a number is a hash of (seed, what it is for, where), so that any row can be made
# first. SplitMix64's finalizer (Steele, Lea and Flood 2014).

_ROW, _ORDER, _FIELD = np.uint64(1), np.uint64(2), np.uint64(3)  # what for


@nb.njit(nogil=True, cache=True)
def _hash(a, b):  # uint64, uint64 -> uint64
    z = a + np.uint64(0x9E3779B97F4A7C15) * (b + np.uint64(1))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@nb.njit(nogil=True, cache=True)
def _key(seed, what, where):
    return _hash(_hash(_hash(np.uint64(0), np.uint64(seed)), what), np.uint64(where))


@nb.njit(nogil=True, cache=True)
def _uniform(key, k):  # in -1..1
    return np.float32(np.int64(_hash(key, np.uint64(k)) >> np.uint64(40)) * 2.0**-23 - 1)


@nb.njit(nogil=True, cache=True)
def _below(n, key, k):  # in 0..n, for small n
    return np.int64((_hash(key, np.uint64(k)) >> np.uint64(32)) * np.uint64(n) >> np.uint64(32))


@nb.njit(nogil=True, cache=True)
def _noise(seed, out):
    for i in range(len(out)):
        key = _key(seed, _FIELD, i)
        for j in range(out.shape[1]):
            out[i, j] = _uniform(key, j)


@nb.njit(nogil=True, cache=True)
def _sources(seed, start, n, out):  # rows start, start + 1, ... -> the images that they are made of
    for r in range(len(out)):
        number, at = divmod(start + r, n)
        out[r] = at if number == 0 else _permuted(_key(seed, _ORDER, number), at, n)


@nb.njit(nogil=True, cache=True)
def _permuted(key, at, n):  # a permutation of 0..n
    # a Feistel network permutes the least 4^half >= n numbers; walking its cycle until below n permutes those below n
    half = 1
    while 4**half < n:
        half += 1
    mask = np.uint64(2**half - 1)
    while True:
        left, right = np.uint64(at >> half), np.uint64(at) & mask
        for turn in range(6):
            left, right = right, left ^ (_hash(key + np.uint64(turn), right) & mask)
        at = np.int64(left) << half | np.int64(right)
        if at < n:
            return at


@nb.njit(nogil=True, cache=True)
def _deform(seed, start, images, field, strength, out):  # (m, s, s) -> rows start, start + 1, ... (m, s, s)
    # float32 without fastmath: the same bytes on any processor
    side = images.shape[1]
    framed = np.zeros((side + 3, side + 3), np.float32)  # one black pixel before, two behind
    middle = np.float32((side - 1) / 2)
    bend, linear, shift, thick = strength[0], strength[1], strength[2], strength[3]
    for r in range(len(out)):
        key = _key(seed, _ROW, start + r)
        _thicken(images[r], thick * _uniform(key, 0), framed[1 : side + 1, 1 : side + 1])
        down, right = shift * _uniform(key, 1), shift * _uniform(key, 2)
        a, b = linear * _uniform(key, 3), linear * _uniform(key, 4)
        c, d = linear * _uniform(key, 5), linear * _uniform(key, 6)
        rows, columns = _window(field, side, key, 7), _window(field, side, key, 9)
        for i in range(side):
            y = np.float32(i) - middle
            for j in range(side):
                x = np.float32(j) - middle
                u = np.float32(i + 1) + a * y + b * x + down + bend * rows[i, j]
                v = np.float32(j + 1) + c * y + d * x + right + bend * columns[i, j]
                out[r, i, j] = np.uint8(_bilinear(framed, u, v) + np.float32(0.5))


@nb.njit(nogil=True, cache=True)
def _window(field, side, key, k):
    i = _below(field.shape[0] - side, key, k)
    j = _below(field.shape[1] - side, key, k + 1)
    return field[i : i + side, j : j + side]


@nb.njit(nogil=True, cache=True)
def _thicken(image, weight, out):  # weight > 0: towards the dilated image, < 0: towards the eroded one
    # over a pixel and its four neighbours; the border stays as it is
    side = len(image)
    other = np.float32(abs(weight))
    for i in range(side):
        for j in range(side):
            out[i, j] = image[i, j]
    for i in range(1, side - 1):
        for j in range(1, side - 1):
            p, q, r, s, t = image[i, j], image[i - 1, j], image[i + 1, j], image[i, j - 1], image[i, j + 1]
            end = max(p, q, r, s, t) if weight > 0 else min(p, q, r, s, t)
            out[i, j] += other * (np.float32(end) - np.float32(p))


@nb.njit(nogil=True, cache=True)
def _bilinear(framed, u, v):  # framed (s, s) at row u and column v; its last two rows and columns are black
    last = np.float32(len(framed) - 2)
    u, v = min(max(u, np.float32(0)), last), min(max(v, np.float32(0)), last)
    i, j = np.int64(u), np.int64(v)
    u -= np.float32(i)
    v -= np.float32(j)
    top = framed[i, j] + v * (framed[i, j + 1] - framed[i, j])
    bottom = framed[i + 1, j] + v * (framed[i + 1, j + 1] - framed[i + 1, j])
    return top + u * (bottom - top)


if __name__ == "__main__":
    main()
