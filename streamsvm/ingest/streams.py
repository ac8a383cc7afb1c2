"""Opens sources, plain or compressed by gzip, bzip2 or xz, and detects their formats, both by their first bytes.

Of formats that ingest does not read, errors say what to do. Passwords of databases on servers stay in this process:
stores, logs and errors have URLs without one.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from streamsvm.errors import ConfigError, DataError, NotFoundError
from streamsvm.storage.paths import local_path, nearest

_SERVER = re.compile(r"postgres(ql)?://")
_passwords: dict[str, str] = {}  # by URL without it, as they were written


def is_server(source: str) -> bool:
    """Whether rows come from a database server."""
    return _SERVER.match(source) is not None


def without_password(source: str) -> str:
    """The same URL without its password, which `with_password` knows from now on; anything else as it is.

    Raises ConfigError for a password that is a parameter of the URL.
    """
    if not is_server(source):
        return source
    url = urlsplit(source)
    if "password" in dict(parse_qsl(url.query)):
        raise ConfigError(
            f"{url.scheme}://{url.hostname}: found a password among the parameters of the URL; expected "
            "postgresql://USER:PASSWORD@HOST/NAME, PGPASSWORD or ~/.pgpass"
        )
    user, mark, host = url.netloc.rpartition("@")
    user, colon, password = user.partition(":")
    if not colon:
        return source
    plain = source.replace(url.netloc, f"{user}{mark}{host}", 1)
    _passwords[plain] = password
    return plain


def with_password(url: str) -> str:
    """The URL that `without_password` was given, if it had a password."""
    if url not in _passwords:
        return url
    user, mark, rest = url.partition("@")
    return f"{user}:{_passwords[url]}{mark}{rest}"


class Foreign(NamedTuple):
    """A format that ingest does not read: what to do, its suffixes, and what its files begin with."""

    name: str
    remedy: str
    suffixes: str = ""
    head: bytes | None = None  # a regular expression
    is_text: bool = False  # else no text file begins so


_PANDAS = "write it as CSV or parquet, for example by pandas.{0}(...).to_parquet(...)"
_UNPACK = "unpack it, and give the files inside"
_EXCEL = Foreign(
    "an Excel workbook",
    "save the sheet as CSV, or write it by pandas.read_excel(...).to_parquet(...)",
    ".xlsx .xlsm .xls .xlsb",
    rb"\xd0\xcf\x11\xe0",
)
_SHEETS = Foreign("an OpenDocument table", "save the sheet as CSV", ".ods")
_ZIP = Foreign("a zip archive", _UNPACK, ".zip", rb"PK(\x03\x04|\x05\x06)")
_FOREIGN = (
    _EXCEL,
    _SHEETS,
    _ZIP,
    Foreign(
        "HDF5",
        "write .h5ad by anndata.read_h5ad(...).write_zarr(...) and give that as --store, other files as npy or parquet",
        ".h5 .h5ad .hdf5 .hdf .loom",
        rb"\x89HDF\r\n\x1a\n",
    ),
    Foreign(
        "a pickle, which is never loaded because it runs code",
        "write it as npy, CSV or parquet",
        ".pkl .pickle .joblib",
        rb"\x80[\x02-\x05]",
    ),
    Foreign("ORC", _PANDAS.format("read_orc"), ".orc", rb"ORC[\x00-\x1f]"),
    Foreign("Avro", "write it as parquet", ".avro", rb"Obj\x01"),
    Foreign("Feather of version 1", "write it again as Feather of version 2 or parquet", "", rb"FEA1"),
    Foreign(
        "data of R",
        "write it as CSV or parquet, for example by arrow::write_parquet",
        ".rds .rda .rdata",
        rb"RD[XA][23]\n|X\n\x00\x00",
    ),
    Foreign("Zstandard", "unpack it by `zstd -d`", ".zst", rb"\x28\xb5\x2f\xfd"),
    Foreign("7z", _UNPACK, ".7z", rb"7z\xbc\xaf\x27\x1c"),
    Foreign("a PDF document", "write its table as CSV", ".pdf", rb"%PDF-"),
    Foreign("a MATLAB file", "write its array as npy", ".mat", rb"MATLAB 5\.0"),
    Foreign("an SPSS file", _PANDAS.format("read_spss"), ".sav", rb"\$FL[23]"),
    Foreign("a SAS file", _PANDAS.format("read_sas"), ".sas7bdat .xpt", rb"\0{12}\xc2\xea\x81\x60"),
    Foreign(
        "NetCDF",
        "write it as zarr, for example by xarray.open_dataset(...).to_zarr(...), and give that as --store",
        ".nc .nc4",
        rb"CDF[\x01\x02\x05]",
    ),
    Foreign(
        "FITS",
        "write its table as parquet, for example by astropy.table.Table.read(...).to_pandas().to_parquet(...)",
        "",
        rb"SIMPLE  =",
    ),
    Foreign(
        "an image",
        "write the pixels of all images as one array, npy or zarr, with a row for each",
        ".png .jpg .jpeg .gif .tif .tiff",
        rb"\x89PNG\r\n|\xff\xd8\xff|GIF8|II\*\0|MM\0\*",
    ),
    Foreign("a rar archive", _UNPACK, ".rar", rb"Rar!\x1a\x07"),
    Foreign(
        "a packed file of another kind than gzip, bzip2 and xz",
        "unpack it",
        ".z .lz4 .sz .br",
        rb"\x1f\x9d|\x04\x22\x4d\x18",
    ),
    Foreign("a tar archive", _UNPACK, ".tar .tgz", rb"(?s:.{257})ustar"),
    Foreign("a Stata file", _PANDAS.format("read_stata"), ".dta", rb"\s*<stata_dta>", is_text=True),
    Foreign("XML or HTML", "write its table as CSV", ".html .xml", rb"\s*<", is_text=True),
    Foreign("an RTF document", "save its table as plain text, CSV", ".rtf", rb"\{\\rtf", is_text=True),
    Foreign(
        "JSON",
        f"{_PANDAS.format('read_json')}; `streamsvm stream` learns from JSON lines",
        ".json .jsonl .ndjson",
        rb"\s*(\{|\[\s*[\[{\"\]])",
        is_text=True,
    ),
    Foreign(
        "ARFF",
        "write it as CSV or parquet, for example by pandas.DataFrame(scipy.io.arff.loadarff(...)[0])",
        ".arff",
        rb"(?i:(\s*%[^\n]*\n)*\s*@relation)",
        is_text=True,
    ),
)
_FOREIGN_SUFFIXES = {suffix: foreign for foreign in _FOREIGN for suffix in foreign.suffixes.split()}


def _foreign_with(head: bytes, *, is_text: bool) -> Foreign | None:
    known = (f for f in _FOREIGN if f.is_text == is_text and f.head is not None and re.match(f.head, head))
    return next(known, None)


def binary_of(path: str, head: bytes) -> str | None:
    """A message that names the binary format of a file with these first bytes, if ingest does not read it, and the
    remedy."""
    foreign = _foreign_with(head, is_text=False)
    if foreign is _ZIP:  # many formats are zip archives: the name of the first file tells
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        if name.startswith((b"[Content_Types]", b"xl/", b"_rels/", b"docProps/")):
            foreign = _EXCEL
        else:
            by_name = _FOREIGN_SUFFIXES.get(PurePosixPath(path).suffix.lower(), _ZIP)
            foreign = _SHEETS if name == b"mimetype" else by_name
    return foreign and f"found {foreign.name}, which ingest does not read; {foreign.remedy}"


def foreign_of(path: str, head: bytes) -> str | None:
    """The same of any format, by the first bytes of a file or by its name."""
    by_name = _FOREIGN_SUFFIXES.get(PurePosixPath(path).suffix.lower())
    foreign = _foreign_with(head, is_text=True) or by_name
    message = foreign and f"found {foreign.name}, which ingest does not read; {foreign.remedy}"
    return binary_of(path, head) or message


_OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_MOST_AT_ONCE = 16 << 20  # a damaged header may claim any size
_PACKED = {".gz", ".bz2", ".xz"}
_SUFFIXES_OF = {
    "csv": ".csv",
    "tsv": ".tsv .tab",
    "parquet": ".parquet .pq",
    "arrow": ".arrow .arrows .feather .ipc",
    "sqlite": ".sqlite .sqlite3",
    "duckdb": ".duckdb",
    "npy": ".npy",
    "npz": ".npz",
    "svmlight": ".svm .libsvm .svmlight",
    "idx": ".idx",
}
_SUFFIXES = {suffix: format_ for format_, suffixes in _SUFFIXES_OF.items() for suffix in suffixes.split()}
CSV, DATABASES = ("csv", "tsv"), ("sqlite", "duckdb", "postgresql")
TABLES = (*CSV, "parquet", "arrow", *DATABASES)
_HEADS = {  # regular expressions of first bytes
    rb"PAR1": "parquet",
    rb"\x93NUMPY": "npy",
    rb"ARROW1|\xff\xff\xff\xff": "arrow",  # a file, or a stream
    rb"SQLite format 3\0": "sqlite",
    rb"(?s:PK\x03\x04.{26}[^\0]{0,200}?\.npy)": "npz",  # a zip archive of arrays
    rb"\0\0[\x08\x09\x0b-\x0e][\x01-\x05]": "idx",
    rb"(?s:.{8}DUCK)": "duckdb",  # after a checksum
}
_SVMLIGHT = re.compile(rb"[-+.\w]+(\s+qid:\d+)?(\s+\d+:\S+)*\s*(#.*)?")


def open_raw(path: str) -> IO[bytes]:
    """The raw bytes of a local file or fsspec URL. Raises NotFoundError, DataError."""
    try:
        local = local_path(path)
        if local is None:
            import fsspec

            return fsspec.open(path, "rb").open()
        file = open(local, "rb")
    except FileNotFoundError:
        raise NotFoundError(f"{path} does not exist; expected a data file{nearest(path)}") from None
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not file.seekable():
        file.close()
        raise DataError(f"{path}: found a pipe, which is read once only; give its rows as stdin, -, or write a file")
    return file


class Stream(io.RawIOBase):
    """A source that is decompressed while it is read. Damaged or cut-off data raises DataError naming the file."""

    def __init__(self, path: str, on_read: Callable[[int], None] | None = None) -> None:
        """on_read: called after each read with the number of stored bytes read so far."""
        self.path = path
        self._on_read = on_read
        self._raw = open_raw(path)
        head = self._raw.read(6)
        self._raw.seek(0)
        opener = next((opener for magic, opener in _OPENERS.items() if head.startswith(magic)), None)
        self._file: IO[bytes] = self._raw if opener is None else opener(self._raw)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            piece = self._file.read(size)
        except (EOFError, OSError, zlib.error, lzma.LZMAError, ValueError) as error:
            raise DataError(f"{self.path} is damaged or cut off: {error}") from error
        if self._on_read is not None:
            self._on_read(self._raw.tell())
        return piece

    def read_exactly(self, size: int) -> bytes:
        """Up to size bytes, fewer only at the end, although compressed files may give less per read."""
        pieces, missing = [], size
        while missing and (piece := self.read(min(missing, _MOST_AT_ONCE))):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def head(self) -> bytes:
        """The first MiB, or more if the first line is longer, up to 64 MiB."""
        head = self.read_exactly(1 << 20)
        while b"\n" not in head and len(head) < 64 << 20 and (piece := self.read_exactly(1 << 20)):
            head += piece
        return head

    def close(self) -> None:
        self._raw.close()
        super().close()


def source_bytes(path: str) -> int:
    """The stored size of a source, or 0 if it is unknown."""
    return os.path.getsize(path) if os.path.exists(path) else 0


def is_packed(name: str) -> bool:
    """Whether its name is that of a compressed file."""
    return PurePosixPath(name).suffix.lower() in _PACKED


def is_data_name(name: str) -> bool:
    """Whether its last suffix is that of data files or compressed files."""
    suffix = PurePosixPath(name).suffix.lower()
    return suffix in _PACKED or suffix in _SUFFIXES or suffix == ".db"  # either database


def detect_format(path: str) -> str:
    """The format of a source, by its name or else its first bytes. Raises DataError if it stays unclear."""
    if is_server(path):
        return "postgresql"
    name = PurePosixPath(path)
    name = name.with_suffix("") if name.suffix in _PACKED else name
    if name.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[name.suffix.lower()]
    if re.search(r"idx\d-ubyte", name.name):
        return "idx"
    with Stream(path) as stream:
        head = stream.read_exactly(1 << 16)
    if (format_ := _by_content(head)) is not None:
        return format_
    if (problem := foreign_of(path, head)) is not None:
        raise DataError(f"{path}: {problem}")
    raise DataError(f"{path}: the format is not clear from its name or first bytes; give --format")


def _by_content(head: bytes) -> str | None:
    """The format of a file with these first bytes, if it is clear."""
    for pattern, format_ in _HEADS.items():
        if re.match(pattern, head):
            return format_
    lines = [line for line in head.split(b"\n") if line.strip() and not line.startswith(b"#")]
    is_svmlight = lines and b":" in head and _SVMLIGHT.fullmatch(lines[0].strip())
    return "svmlight" if is_svmlight else None
