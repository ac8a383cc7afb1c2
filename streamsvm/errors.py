"""The errors a caller can expect; each is also the builtin that a caller would catch."""


class StreamSVMError(Exception):
    """Base of every error streamsvm raises on purpose; its text is one line that says what to do."""


class DataError(StreamSVMError, ValueError):
    """Input data is not what was expected: names the file, row or chunk, what was found, what was expected."""


class CorruptDataError(DataError):
    """Stored bytes are damaged or missing: a chunk that fails its checksum or does not exist."""


class NotFoundError(StreamSVMError, FileNotFoundError):
    """A store, model or file does not exist, or is not of the expected kind."""


class ConfigError(StreamSVMError, ValueError):
    """An option is unknown, out of range, or contradicts another one."""


class ModelError(StreamSVMError, ValueError):
    """A model file cannot be used: unknown kind or version, or it does not fit the data."""


class MemoryLimitError(StreamSVMError, MemoryError):
    """The plan needs more memory than the limit allows; reports the smallest limit that works."""


class ClusterError(StreamSVMError, ConnectionError):
    """The scheduler or its workers cannot be reached, or were lost too often."""


class StorageError(StreamSVMError, OSError):
    """Writing failed: disk full, permission denied, target exists."""
