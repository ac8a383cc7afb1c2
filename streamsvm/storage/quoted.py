"""Lists of names in options, for example a,b=2. A name with a mark in it is quoted as in CSV files: "a,b"=2."""

from __future__ import annotations

import re
import shlex

_MARKS = ",=>"
_PIECE = rf'(?:(?<![^{_MARKS}])\s*"(?:[^"]|"")*"|[^{{}}])*'


def split(text: str, mark: str = ",") -> list[str]:
    """The pieces of a text between marks that are outside of quotes, still with their quotes."""
    return [piece[1] for piece in re.finditer(rf"(?:^|{mark})({_PIECE.format(mark)})", text)]


def cut(text: str, mark: str) -> tuple[str, str]:
    """The text before the last mark outside of quotes, and after it; all of it, and nothing, if there is no mark."""
    first, *others = split(text, mark)
    return (mark.join([first, *others[:-1]]), others[-1]) if others else (first, "")


def name_of(text: str) -> str:
    """A piece as a name, without spaces around it and without its quotes."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text


def names_in(text: str) -> list[str]:
    """The names in a list such as a,"b,c"."""
    return [name_of(part) for part in split(text)]


def as_names(*names: str, end: str = "") -> str:
    """A list that `names_in` reads as these names, quoted for a shell. end: text after each name, for example =16."""
    return shlex.quote(",".join(f"{_marked(name)}{end}" for name in names))


def _marked(name: str) -> str:
    has_marks = any(mark in name for mark in (*_MARKS, '"')) or name != name.strip()
    return '"' + name.replace('"', '""') + '"' if has_marks else name
