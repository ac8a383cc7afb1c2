"""What others have for stores beyond memory: python beyond_worker.py KIND TRAIN TEST SECONDS WORK OUT

KIND is a name of METHODS. TRAIN and TEST are zarr stores with rows X and labels y, of which a block is read at a time.
After each while, a line of JSON goes to OUT: the seconds so far, without those of testing, the share of rows of TEST
with the right label, and how often the rows were read. After SECONDS the process ends.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr

BLOCK_BYTES = 64 << 20  # of float32
SAMPLE, FEATURES = 20_000, 1000  # rows for the choice of a kernel, and how many of them have a feature
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)  # times 1 / (columns * variance)
OFTEN = 1.5  # times the seconds of the last test is the next one
MISSING = 3  # exit status where a package is not installed
TREES = 10_000  # more than any limit allows

Block = tuple[np.ndarray, np.ndarray]


class Task:
    """The rows of a fit, as blocks, those to test on, and the clock."""

    def __init__(self, train: str, test: str, seconds: float, work: Path, out: Path) -> None:
        self._began, self._tested_s, self._next_s = time.perf_counter(), 0.0, 1.0
        self._store, self._test, self._seconds, self._out = zarr.open_group(train, mode="r"), test, seconds, out
        self.work = work
        self.n, self.d = self._store["X"].shape
        chunk = self._store["X"].chunks[0]
        self.rows = max(1, BLOCK_BYTES // (4 * self.d * chunk)) * chunk
        self.classes = np.unique(self.labels(0, min(self.n, SAMPLE)))

    def labels(self, start: int, stop: int) -> np.ndarray:
        return np.asarray(self._store["y"][start:stop])

    def codes(self, start: int, stop: int) -> np.ndarray:
        return np.searchsorted(self.classes, self.labels(start, stop))

    def X(self, start: int, stop: int) -> np.ndarray:
        return np.asarray(self._store["X"][start:stop], np.float32)

    def blocks(self) -> Iterator[Block]:
        for start in range(0, self.n, self.rows):
            yield self.X(start, start + self.rows), self.codes(start, start + self.rows)

    def goes_on(self, passes: float, predict: Callable[[np.ndarray], np.ndarray]) -> bool:
        """Tests if it is time to; predict: codes of rows. False if time is up."""
        spent = time.perf_counter() - self._began - self._tested_s
        is_over = spent >= self._seconds
        if spent >= self._next_s or is_over:
            before = time.perf_counter()
            store = zarr.open_group(self._test, mode="r")
            right = total = 0
            for start in range(0, store["X"].shape[0], self.rows):
                y = np.asarray(store["y"][start : start + self.rows])
                codes = predict(np.asarray(store["X"][start : start + self.rows], np.float32))
                right, total = right + int(np.sum(self.classes[codes] == y)), total + len(y)
            line = {"seconds": spent, "accuracy": right / total, "passes": passes}
            with self._out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            self._next_s = OFTEN * spent
            self._tested_s += time.perf_counter() - before
        return not is_over


def xgboost(task: Task) -> None:
    import xgboost

    class Blocks(xgboost.DataIter):
        def __init__(self) -> None:
            super().__init__(cache_prefix=str(task.work / "xgboost"))
            self.reset()

        def next(self, input_data: Any) -> bool:
            block = next(self._blocks, None)
            if block is not None:
                input_data(data=block[0], label=block[1])
            return block is not None

        def reset(self) -> None:
            self._blocks = task.blocks()

    rows = xgboost.ExtMemQuantileDMatrix(Blocks())
    k = len(task.classes)
    goal = {"objective": "multi:softmax", "num_class": k} if k > 2 else {"objective": "binary:logistic"}

    class Clock(xgboost.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            def predict(X: np.ndarray) -> np.ndarray:
                values = model.inplace_predict(X)
                return (values if k > 2 else values > 0.5).astype(np.intp)

            return not task.goes_on(epoch + 1, predict)

    xgboost.train({"tree_method": "hist", **goal}, rows, TREES, callbacks=[Clock()])


def lightgbm(task: Task) -> None:
    import lightgbm

    class Rows(lightgbm.Sequence):
        batch_size = task.rows

        def __getitem__(self, places: Any) -> np.ndarray:
            if isinstance(places, slice):
                return task.X(*places.indices(task.n)[:2]).astype(np.float64)
            return task.X(places, places + 1)[0].astype(np.float64)

        def __len__(self) -> int:
            return task.n

    k = len(task.classes)
    goal = {"objective": "multiclass", "num_class": k} if k > 2 else {"objective": "binary"}

    def clock(environment: Any) -> None:
        def predict(X: np.ndarray) -> np.ndarray:
            values = environment.model.predict(X)
            return values.argmax(axis=1) if k > 2 else (values > 0.5).astype(np.intp)

        if not task.goes_on(environment.iteration + 1, predict):
            raise lightgbm.callback.EarlyStopException(environment.iteration, [])

    data = lightgbm.Dataset(Rows(), task.codes(0, task.n))
    lightgbm.train(goal | {"verbose": -1}, data, TREES, callbacks=[clock])


def _features(task: Task) -> Callable[[np.ndarray], np.ndarray]:
    """Features of Nystroem with the kernel that decides other rows of a sample best."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, codes = task.X(0, min(task.n, SAMPLE)), task.codes(0, min(task.n, SAMPLE))
    n = len(X) * 4 // 5
    best, best_score = None, -1.0
    for scale in SCALES:
        gamma, count = scale / X.shape[1], min(FEATURES, n)
        features = make_pipeline(StandardScaler(), Nystroem(gamma=gamma, n_components=count, random_state=0)).fit(X[:n])
        score = _learner().fit(features.transform(X[:n]), codes[:n]).score(features.transform(X[n:]), codes[n:])
        if score > best_score:
            best, best_score = features, score
    assert best is not None
    return best.transform


def _learner() -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(alpha=1e-6, average=True, n_jobs=-1, random_state=0)


def sgd(task: Task) -> None:
    features, learner, passes = _features(task), _learner(), 0.0
    codes = np.arange(len(task.classes))
    while True:
        for X, y in task.blocks():
            learner.partial_fit(features(X), y, classes=codes)
            passes += len(X) / task.n
            if not task.goes_on(passes, lambda rows: learner.predict(features(rows))):
                return


def incremental(task: Task) -> None:
    import dask
    import dask.array as da
    from dask_ml.wrappers import Incremental

    features, learner, passes = _features(task), Incremental(_learner(), assume_equal_chunks=True), 0
    codes = np.arange(len(task.classes))
    starts = range(0, task.n, task.rows)
    sizes = [min(task.rows, task.n - start) for start in starts]

    def block(start: int) -> np.ndarray:
        return features(task.X(start, start + task.rows))

    width = features(task.X(0, 2)).shape[1]
    X = da.concatenate(
        [da.from_delayed(dask.delayed(block)(s), (m, width), np.float32) for s, m in zip(starts, sizes, strict=True)]
    )
    y = da.concatenate(
        [da.from_delayed(dask.delayed(task.codes)(s, s + m), (m,), np.intp) for s, m in zip(starts, sizes, strict=True)]
    )
    while True:
        learner.partial_fit(X, y, classes=codes)
        passes += 1
        if not task.goes_on(passes, lambda rows: learner.estimator_.predict(features(rows))):
            return


METHODS = {"xgboost": xgboost, "lightgbm": lightgbm, "sgd": sgd, "incremental": incremental}


if __name__ == "__main__":
    kind, train, test, seconds, work, out = sys.argv[1:]
    try:
        METHODS[kind](Task(train, test, float(seconds), Path(work), Path(out)))
    except ModuleNotFoundError as error:
        print(error, file=sys.stderr)
        sys.exit(MISSING)
