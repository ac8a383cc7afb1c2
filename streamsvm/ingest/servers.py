"""URLs of databases on servers. Their passwords stay in this process: stores, logs and errors have URLs without one."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from streamsvm.errors import ConfigError

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
