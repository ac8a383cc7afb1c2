"""Parquet and Arrow files, which have typed columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.streams import open_raw
from streamsvm.ingest.table import ARROW_ERRORS, Batches, OfSchema, rows_at_once, told
from streamsvm.storage.paths import local_path


class Parquet(OfSchema):
    def __init__(self, path: str, options: IngestOptions) -> None:
        self._path, self._options = path, options
        self._raw = open_raw(path)
        try:
            with told(f"{path} is not a whole parquet file", *ARROW_ERRORS):
                self._file = pq.ParquetFile(self._raw)
        except Exception:
            self._raw.close()
            raise
        self._schema = self._file.schema_arrow

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        rows = rows_at_once(self._options, len(types))
        with told(f"{self._path} is damaged", *ARROW_ERRORS):
            yield from self._file.iter_batches(batch_size=rows, columns=[*types], use_threads=False)

    def close(self) -> None:
        self._raw.close()


class ArrowFile(OfSchema):
    """Feather and other Arrow files, or streams in a file. One of their batches is decompressed at a time. From an
    uncompressed local file, only the needed bytes are read."""

    def __init__(self, path: str, options: IngestOptions) -> None:
        self._path, self._options = path, options
        with open_raw(path) as raw:
            self._is_file = raw.read(6) == b"ARROW1"
        local = local_path(path)
        with told(f"{path} is not a whole Arrow file", *ARROW_ERRORS):
            self._raw = open_raw(path) if local is None else pa.memory_map(str(local))
            try:
                open_ = pa.ipc.open_file if self._is_file else pa.ipc.open_stream
                self._reader = open_(self._raw)
            except Exception:
                self._raw.close()
                raise
        self._schema = self._reader.schema

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        rows = rows_at_once(self._options, len(types))
        with told(f"{self._path} is damaged", *ARROW_ERRORS):
            for batch in self._own_batches():
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)

    def _own_batches(self) -> Batches:
        if not self._is_file:
            yield from self._reader
            return
        for i in range(self._reader.num_record_batches):
            yield self._reader.get_batch(i)

    def close(self) -> None:
        self._raw.close()
