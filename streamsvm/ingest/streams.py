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
from typing import IO, Any
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
        problem = f"{url.scheme}://{url.hostname}: found a password among the parameters of the URL"
        raise ConfigError(f"{problem}; expected postgresql://USER:PASSWORD@HOST/NAME, PGPASSWORD or ~/.pgpass")
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


_PANDAS = "write it as CSV or parquet, for example by pandas.{0}(...).to_parquet(...)"
_UNPACK = "unpack it, and give the files inside"
_FOREIGN = {  # formats that ingest does not read, and what to do
    "excel": ("an Excel workbook", "save the sheet as CSV, or write it by pandas.read_excel(...).to_parquet(...)"),
    "sheets": ("an OpenDocument table", "save the sheet as CSV"),
    "zip": ("a zip archive", _UNPACK),
    "hdf5": (
        "HDF5",
        "write .h5ad by anndata.read_h5ad(...).write_zarr(...) and give that as --store, other files as npy or parquet",
    ),
    "pickle": ("a pickle, which is never loaded because it runs code", "write it as npy, CSV or parquet"),
    "orc": ("ORC", _PANDAS.format("read_orc")),
    "avro": ("Avro", "write it as parquet"),
    "feather": ("Feather of version 1", "write it again as Feather of version 2 or parquet"),
    "r": ("data of R", "write it as CSV or parquet, for example by arrow::write_parquet"),
    "zstandard": ("Zstandard", "unpack it by `zstd -d`"),
    "7z": ("7z", _UNPACK),
    "pdf": ("a PDF document", "write its table as CSV"),
    "matlab": ("a MATLAB file", "write its array as npy"),
    "spss": ("an SPSS file", _PANDAS.format("read_spss")),
    "sas": ("a SAS file", _PANDAS.format("read_sas")),
    "netcdf": (
        "NetCDF",
        "write it as zarr, for example by xarray.open_dataset(...).to_zarr(...), and give that as --store",
    ),
    "fits": (
        "FITS",
        "write its table as parquet, for example by astropy.table.Table.read(...).to_pandas().to_parquet(...)",
    ),
    "image": ("an image", "write the pixels of all images as one array, npy or zarr, with a row for each"),
    "rar": ("a rar archive", _UNPACK),
    "packed": ("a packed file of another kind than gzip, bzip2 and xz", "unpack it"),
    "tar": ("a tar archive", _UNPACK),
    "stata": ("a Stata file", _PANDAS.format("read_stata")),
    "xml": ("XML or HTML", "write its table as CSV"),
    "rtf": ("an RTF document", "save its table as plain text, CSV"),
    "json": ("JSON", f"{_PANDAS.format('read_json')}; `streamsvm stream` learns from JSON lines"),
    "arff": ("ARFF", "write it as CSV or parquet, for example by pandas.DataFrame(scipy.io.arff.loadarff(...)[0])"),
}
_BINARY_HEADS = {  # regular expressions of first bytes, which no text file begins with
    rb"\xd0\xcf\x11\xe0": "excel",
    rb"PK(\x03\x04|\x05\x06)": "zip",
    rb"\x89HDF\r\n\x1a\n": "hdf5",
    rb"\x80[\x02-\x05]": "pickle",
    rb"ORC[\x00-\x1f]": "orc",
    rb"Obj\x01": "avro",
    rb"FEA1": "feather",
    rb"RD[XA][23]\n|X\n\x00\x00": "r",
    rb"\x28\xb5\x2f\xfd": "zstandard",
    rb"7z\xbc\xaf\x27\x1c": "7z",
    rb"%PDF-": "pdf",
    rb"MATLAB 5\.0": "matlab",
    rb"\$FL[23]": "spss",
    rb"\0{12}\xc2\xea\x81\x60": "sas",
    rb"CDF[\x01\x02\x05]": "netcdf",
    rb"SIMPLE  =": "fits",
    rb"\x89PNG\r\n|\xff\xd8\xff|GIF8|II\*\0|MM\0\*": "image",
    rb"Rar!\x1a\x07": "rar",
    rb"\x1f\x9d|\x04\x22\x4d\x18": "packed",
    rb"(?s:.{257})ustar": "tar",
}
_TEXT_HEADS = {
    rb"\s*<stata_dta>": "stata",
    rb"\s*<": "xml",
    rb"\{\\rtf": "rtf",
    rb"\s*(\{|\[\s*[\[{\"\]])": "json",
    rb"(?i:(\s*%[^\n]*\n)*\s*@relation)": "arff",
}


def _by_suffix(table: str) -> dict[str, str]:
    """The format of each suffix. table: formats, each followed by its suffixes, between bars."""
    rows = (row.split() for row in table.split("|"))
    return {suffix: format_ for format_, *suffixes in rows for suffix in suffixes}


_FOREIGN_SUFFIXES = _by_suffix(
    "excel .xlsx .xlsm .xls .xlsb | sheets .ods | zip .zip | hdf5 .h5 .h5ad .hdf5 .hdf .loom | orc .orc | avro .avro | "
    "pickle .pkl .pickle .joblib | r .rds .rda .rdata | zstandard .zst | 7z .7z | pdf .pdf | matlab .mat | spss .sav | "
    "sas .sas7bdat .xpt | netcdf .nc .nc4 | image .png .jpg .jpeg .gif .tif .tiff | rar .rar | tar .tar .tgz | "
    "packed .z .lz4 .sz .br | stata .dta | xml .html .xml | rtf .rtf | json .json .jsonl .ndjson | arff .arff"
)


def _first_of(heads: dict[bytes, str], head: bytes) -> str | None:
    return next((format_ for pattern, format_ in heads.items() if re.match(pattern, head)), None)


def binary_of(path: str, head: bytes) -> str | None:
    """A message with the remedy if a file with these first bytes has a binary format that ingest does not read."""
    format_ = _first_of(_BINARY_HEADS, head)
    if format_ == "zip":  # many formats are zip archives: the name of the first file tells
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        by_name = _FOREIGN_SUFFIXES.get(PurePosixPath(path).suffix.lower(), "zip")
        format_ = "sheets" if name == b"mimetype" else by_name
        if name.startswith((b"[Content_Types]", b"xl/", b"_rels/", b"docProps/")):
            format_ = "excel"
    return format_ and _message(format_)


def foreign_of(path: str, head: bytes) -> str | None:
    """The same of any format, by the first bytes of a file or by its name."""
    by_name = _FOREIGN_SUFFIXES.get(PurePosixPath(path).suffix.lower())
    format_ = _first_of(_TEXT_HEADS, head) or by_name
    return binary_of(path, head) or (format_ and _message(format_))


def _message(format_: str) -> str:
    name, remedy = _FOREIGN[format_]
    return f"found {name}, which ingest does not read; {remedy}"


_OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_MOST_AT_ONCE = 16 << 20  # a damaged header may claim any size
_PACKED = {".gz", ".bz2", ".xz"}
_SUFFIXES = _by_suffix(
    "csv .csv | tsv .tsv .tab | parquet .parquet .pq | arrow .arrow .arrows .feather .ipc | sqlite .sqlite .sqlite3 | "
    "duckdb .duckdb | npy .npy | npz .npz | svmlight .svm .libsvm .svmlight | idx .idx"
)
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


_WIDE = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_WIDE_LINE = re.compile(rb"([!-~]\0){2}|(\0[!-~]){2}")  # two letters, without a mark before them


def require_bytes(path: str, head: bytes) -> None:
    """Raises DataError for a file whose first characters have two or four bytes each, with or without a mark."""
    encoding = next((name for mark, name in _WIDE.items() if head.startswith(mark)), None)
    if encoding is None and (m := _WIDE_LINE.match(head)) is not None:
        encoding = "UTF-16LE" if m[1] else "UTF-16BE"
    if encoding is not None:
        raise DataError(f"{path}: found {encoding}, expected UTF-8; convert it with `iconv -f {encoding} -t UTF-8`")


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
    if (format_ := _first_of(_HEADS, head)) is not None:
        return format_
    lines = [line for line in head.split(b"\n") if line.strip() and not line.startswith(b"#")]
    is_svmlight = lines and b":" in head and _SVMLIGHT.fullmatch(lines[0].strip())
    return "svmlight" if is_svmlight else None
