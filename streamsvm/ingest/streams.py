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


_PANDAS = "write it as CSV or parquet, for example by pandas.{0}(...).to_parquet(...)"
_UNPACK = "unpack it, and give the files inside"
EXCEL = "an Excel workbook", "save the sheet as CSV, or write it by pandas.read_excel(...).to_parquet(...)"
SHEETS = "an OpenDocument table", "save the sheet as CSV"
ZIP = "a zip archive", _UNPACK
HDF5 = (
    "HDF5",
    "write .h5ad by anndata.read_h5ad(...).write_zarr(...) and give that as --store, other files as npy or parquet",
)
JSON = ("JSON", f"{_PANDAS.format('read_json')}; `streamsvm stream` learns from JSON lines")
ARFF = "ARFF", "write it as CSV or parquet, for example by pandas.DataFrame(scipy.io.arff.loadarff(...)[0])"
PICKLE = "a pickle, which is never loaded because it runs code", "write it as npy, CSV or parquet"
XML = "XML or HTML", "write its table as CSV"
STATA, SPSS = ("a Stata file", _PANDAS.format("read_stata")), ("an SPSS file", _PANDAS.format("read_spss"))
ORC, AVRO = ("ORC", _PANDAS.format("read_orc")), ("Avro", "write it as parquet")
SAS, MATLAB = ("a SAS file", _PANDAS.format("read_sas")), ("a MATLAB file", "write its array as npy")
FEATHER = "Feather of version 1", "write it again as Feather of version 2 or parquet"
R_DATA = "data of R", "write it as CSV or parquet, for example by arrow::write_parquet"
TAR, ZSTANDARD, SEVEN = ("a tar archive", _UNPACK), ("Zstandard", "unpack it by `zstd -d`"), ("7z", _UNPACK)
PDF, RTF = (("a PDF document", "write its table as CSV"), ("an RTF document", "save its table as plain text, CSV"))
NETCDF = ("NetCDF", "write it as zarr, for example by xarray.open_dataset(...).to_zarr(...), and give that as --store")
FITS = ("FITS", "write its table as parquet, for example by astropy.table.Table.read(...).to_pandas().to_parquet(...)")
IMAGE = "an image", "write the pixels of all images as one array, npy or zarr, with a row for each"
RAR, PACKED = (("a rar archive", _UNPACK), ("a packed file of another kind than gzip, bzip2 and xz", "unpack it"))

_BINARY = (  # first bytes of formats that no text file begins with
    (re.compile(rb"\x89HDF\r\n\x1a\n"), HDF5),
    (re.compile(rb"\xd0\xcf\x11\xe0"), EXCEL),
    (re.compile(rb"PK(\x03\x04|\x05\x06)"), ZIP),
    (re.compile(rb"\x80[\x02-\x05]"), PICKLE),
    (re.compile(rb"ORC[\x00-\x1f]"), ORC),
    (re.compile(rb"Obj\x01"), AVRO),
    (re.compile(rb"FEA1"), FEATHER),
    (re.compile(rb"RD[XA][23]\n|X\n\x00\x00"), R_DATA),
    (re.compile(rb"\x28\xb5\x2f\xfd"), ZSTANDARD),
    (re.compile(rb"7z\xbc\xaf\x27\x1c"), SEVEN),
    (re.compile(rb"%PDF-"), PDF),
    (re.compile(rb"MATLAB 5\.0"), MATLAB),
    (re.compile(rb"\$FL[23]"), SPSS),
    (re.compile(rb"\0{12}\xc2\xea\x81\x60"), SAS),
    (re.compile(rb"CDF[\x01\x02\x05]"), NETCDF),
    (re.compile(rb"SIMPLE  ="), FITS),
    (re.compile(rb"\x89PNG\r\n|\xff\xd8\xff|GIF8|II\*\0|MM\0\*"), IMAGE),
    (re.compile(rb"Rar!\x1a\x07"), RAR),
    (re.compile(rb"\x1f\x9d|\x04\x22\x4d\x18"), PACKED),
    (re.compile(rb".{257}ustar", re.DOTALL), TAR),
)
_TEXT = (
    (re.compile(rb"\s*<stata_dta>"), STATA),
    (re.compile(rb"\s*<"), XML),
    (re.compile(rb"\{\\rtf"), RTF),
    (re.compile(rb"\s*(\{|\[\s*[\[{\"\]])"), JSON),
    (re.compile(rb"(\s*%[^\n]*\n)*\s*@relation", re.IGNORECASE), ARFF),
)
_FOREIGN_SUFFIXES = {
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".xlsb"), EXCEL),
    **dict.fromkeys((".h5", ".h5ad", ".hdf5", ".hdf", ".loom"), HDF5),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), JSON),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), PICKLE),
    **dict.fromkeys((".rds", ".rda", ".rdata"), R_DATA),
    **dict.fromkeys((".sas7bdat", ".xpt"), SAS),
    **dict.fromkeys((".html", ".xml"), XML),
    **dict.fromkeys((".tar", ".tgz"), TAR),
    ".zip": ZIP,
    ".ods": SHEETS,
    ".arff": ARFF,
    ".orc": ORC,
    ".avro": AVRO,
    ".dta": STATA,
    ".sav": SPSS,
    ".mat": MATLAB,
    ".zst": ZSTANDARD,
    ".7z": SEVEN,
    ".pdf": PDF,
    ".rtf": RTF,
    ".rar": RAR,
    **dict.fromkeys((".nc", ".nc4"), NETCDF),
    **dict.fromkeys((".z", ".lz4", ".sz", ".br"), PACKED),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".tif", ".tiff"), IMAGE),
}


def binary_of(path: str, head: bytes) -> str | None:
    """A message that names the binary format of a file with these first bytes, if ingest does not read it, and the
    remedy."""
    kind = next((what for pattern, what in _BINARY if pattern.match(head)), None)
    if kind is ZIP:
        kind = _in_zip(head, _FOREIGN_SUFFIXES.get(PurePosixPath(path).suffix.lower(), ZIP))
    return kind and _message(*kind)


def foreign_of(path: str, head: bytes) -> str | None:
    """A message that names the format of a file that ingest does not read, by its first bytes or name, and the
    remedy."""
    by_name = _FOREIGN_SUFFIXES.get(PurePosixPath(path).suffix.lower())
    by_text = next((what for pattern, what in _TEXT if pattern.match(head)), by_name)
    return binary_of(path, head) or (by_text and _message(*by_text))


def _in_zip(head: bytes, by_name: tuple[str, str]) -> tuple[str, str]:
    """The format of a zip archive by the name of its first file: many formats are zip archives."""
    name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    if name.startswith((b"[Content_Types]", b"xl/", b"_rels/", b"docProps/")):
        return EXCEL
    return SHEETS if name == b"mimetype" else by_name


def _message(what: str, remedy: str) -> str:
    return f"found {what}, which ingest does not read; {remedy}"


_OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_MOST_AT_ONCE = 16 << 20  # a damaged header may claim any size
_PACKED = {".gz", ".bz2", ".xz"}
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".duckdb": "duckdb",
    ".npy": "npy",
    ".npz": "npz",
    ".svm": "svmlight",
    ".libsvm": "svmlight",
    ".svmlight": "svmlight",
    ".idx": "idx",
}
CSV, DATABASES = ("csv", "tsv"), ("sqlite", "duckdb", "postgresql")
TABLES = (*CSV, "parquet", "arrow", *DATABASES)
_IDX = re.compile(rb"\0\0[\x08\x09\x0b-\x0e][\x01-\x05]", re.DOTALL)
_MAGIC = {
    b"PAR1": "parquet",
    b"\x93NUMPY": "npy",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",  # a stream
    b"SQLite format 3\0": "sqlite",
}
_NPZ = re.compile(rb"PK\x03\x04.{26}[^\0]{0,200}?\.npy", re.DOTALL)  # a zip archive of arrays
_DUCKDB = b"DUCK"  # after a checksum of 8 bytes
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
        self._file = _unpack(head, self._raw)

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


def _unpack(head: bytes, raw: IO[bytes]) -> IO[bytes] | gzip.GzipFile:
    """The raw bytes, decompressed if they begin as a format of _OPENERS."""
    opener = next((opener for magic, opener in _OPENERS.items() if head.startswith(magic)), None)
    if opener is None:
        return raw
    return opener(fileobj=raw) if opener is gzip.GzipFile else opener(raw)


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
    for magic, format_ in _MAGIC.items():
        if head.startswith(magic):
            return format_
    for pattern, format_ in ((_NPZ, "npz"), (_IDX, "idx")):
        if pattern.match(head):
            return format_
    if head[8:12] == _DUCKDB:
        return "duckdb"
    lines = [line for line in head.split(b"\n") if line.strip() and not line.startswith(b"#")]
    is_svmlight = lines and b":" in head and _SVMLIGHT.fullmatch(lines[0].strip())
    return "svmlight" if is_svmlight else None
