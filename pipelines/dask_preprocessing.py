"""dask-ml's preprocessing in front of DCSVC: a table of numbers and text, read from parquet piece by piece. Linux.

    python pipelines/dask_preprocessing.py --data DIR [--memory-limit 1GiB] [--quick] [--out dask.md]

One scikit-learn pipeline over dask dataframes, none of which is ever whole in memory:
    Categorizer, DummyEncoder    dask-ml's: the values of the text columns, and a column of 0 and 1 for each of them
    rows_of                      the dataframe as a dask array of float32, with chunks of known sizes
    StandardScaler               dask-ml's: means and deviations chunk by chunk
    DCSVC(early=True)            reads chunk by chunk, and regroups by part what does not fit its memory limit

dask-ml 2025.1's ColumnTransformer does not run on scikit-learn 1.9, so all columns are scaled, those of 0 and 1 too.
Needs census.parquet census.t.parquet in --data: 40 columns of numbers and text, the label in income_50k and the weight
of a row, which is left out, in `unknown`. They have one row group each, which dask would read at once: they are first
written again in groups of 16,384 rows, as a stream.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench import Bench, from_arguments
from dask_ml.preprocessing import Categorizer, DummyEncoder, StandardScaler
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from tables import Bytes, Report, Seconds, Share, Table

from streamsvm import DCSVC
from streamsvm.metrics import scored
from streamsvm.parallel.machine import peak_rss_bytes

LABEL, WEIGHT = "income_50k", "unknown"
GROUP_ROWS = 16_384


def regrouped(source: Path, target: Path, rows: int | None) -> Path:
    """The first rows of a parquet file as a file of small row groups."""
    file = pq.ParquetFile(source)
    group = GROUP_ROWS if rows is None else max(1, rows // 4)
    with pq.ParquetWriter(target, file.schema_arrow) as out:
        for batch in _first(file.iter_batches(group), rows or file.metadata.num_rows):
            out.write_batch(batch)
    return target


def _first(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, rows)
        rows -= batch.num_rows
        if rows <= 0:
            return


def columns(file: Path) -> tuple[dd.DataFrame, np.ndarray]:
    """The features, a piece for each row group, and the labels, which fit in memory."""
    frame = dd.read_parquet(file, split_row_groups=True)
    labels = frame[LABEL].compute().str.strip("' ")
    return frame.drop(columns=[LABEL, WEIGHT]), labels.to_numpy(str)


def rows_of(frame: dd.DataFrame) -> da.Array:
    return frame.astype(np.float32).to_dask_array().compute_chunk_sizes()


def pipeline(frame: dd.DataFrame, limit: str) -> Pipeline:
    text = [name for name, dtype in frame.dtypes.items() if dtype == "string"]
    steps = (Categorizer(columns=text), DummyEncoder(columns=text), FunctionTransformer(rows_of))
    svm = DCSVC(C=1, gamma="auto", early=True, memory_limit=limit)
    return make_pipeline(*steps, StandardScaler(copy=False), svm)


def census(bench: Bench, limit: str) -> Table:
    records, rows = [], bench.sizes.train_rows
    train, test = (
        _measured(records, f"{name} in small groups", regrouped, bench.data / name, bench.work / name, rows)
        for name in ("census.parquet", "census.t.parquet")
    )
    (X, y), (X_test, y_test) = columns(train), columns(test)
    model = _measured(records, "pipeline.fit", pipeline(X, limit).fit, X, y)
    decisions = np.asarray(_measured(records, "pipeline.decision_function", model.decision_function, X_test))
    svm = model[-1]
    likeliest = Share((y_test == svm.classes_[0]).mean())
    accuracy = Share((svm.classes_[(decisions > 0).astype(int)] == y_test).mean())
    area = Share(scored(y_test == svm.classes_[1], decisions).roc_auc() or 0.0)
    whole = Bytes(4 * len(y) * svm.n_features_in_)
    notes = [
        f"{len(y):,} rows of {X.shape[1]} columns, which become {svm.n_features_in_}: as one array, {whole}",
        f"on {len(y_test):,} test rows: accuracy {accuracy}, ROC area {area}; '{svm.classes_[0]}' for all: {likeliest}",
    ]
    return Table("Census, from parquet to DCSVC", records, notes)


def _measured(records: list[dict[str, Any]], step: str, do: Any, *args: Any) -> Any:
    start = time.perf_counter()
    result = do(*args)
    seconds = Seconds(time.perf_counter() - start)
    peak = Bytes(peak_rss_bytes())
    records.append({"step": step, "seconds": seconds, "peak memory so far": peak})
    return result


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory-limit", default="1GiB", metavar="SIZE", help="of DCSVC (default 1GiB)")


def main() -> None:
    with from_arguments(__doc__, _own_options) as (bench, args):
        report = Report(args.out)
        report.add([census(bench, args.memory_limit)])


if __name__ == "__main__":
    main()
