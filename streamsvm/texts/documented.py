"""What people read of classes and functions: docstrings, and how objects look in a console or a notebook.

Docstrings are numpydoc with entries for each parameter. What several classes share is written once, in
`texts.parameters`, and filled in here: the text of an entry is the first one in the docstring itself, in those of the
bases, and in the shared texts. At the foot: how parameters become attributes, and the repr of stores and models.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from html import escape
from inspect import Parameter, cleandoc, isfunction, signature
from textwrap import indent
from typing import Any, NamedTuple, TypeVar

from streamsvm.texts.parameters import ATTRIBUTES, FUNCTIONS, PARAMETERS, RAISES

F = TypeVar("F", bound=Callable[..., Any])

SECTION = r"(?<=^{}\n{}\n)(?:.|\n)*?(?=\n[A-Z][A-Za-z ]+\n---|\Z)"

SEARCH = '"search"'


class Entry(NamedTuple):
    """What a value may be, and what it says; "" where it is left to another entry of this name."""

    kind: str = ""
    text: str = ""

    def or_else(self, other: Entry) -> Entry:
        return Entry(self.kind or other.kind, self.text or other.text)

    def line(self, name: str) -> str:
        is_searched = SEARCH in self.kind and SEARCH not in self.text
        text = f"{self.text}\n{SEARCH}: chosen from the data." if is_searched else self.text
        head = f"{name} : {self.kind}" if self.kind else name
        return f"{head}\n{indent(text, '    ')}"


def entries(doc: str, section: str) -> dict[str, Entry]:
    """The entries of a numpydoc section, by name. A line of names alone, `a, b`, has an empty entry for each."""
    section_text = re.search(SECTION.format(section, "-" * len(section)), doc, re.M)
    return dict(_entries(section_text[0])) if section_text else {}


def _entries(text: str) -> Iterator[tuple[str, Entry]]:
    for entry in re.split(r"\n(?=\S)", text.strip("\n")):
        head, _, body = entry.partition("\n")
        names, _, kind = head.partition(" : ")
        yield from ((name, Entry(kind, cleandoc(body))) for name in names.split(", ") if name)


def fill(cls: type, methods: str) -> None:
    """Completes docstrings: an entry for each parameter of the class, with its default, and of its methods, in order.

    methods: the section that methods share. A class from outside the package keeps its docstrings.
    """
    if not cls.__module__.startswith("streamsvm.") or not cls.__doc__:
        return
    shared = entries(methods, "Parameters")
    for name, member in vars(cls).items():
        function = getattr(member, "fn", getattr(member, "__func__", member))
        if name[0] != "_" and isfunction(function) and function.__doc__:
            function.__doc__ = _of_method(function, shared)
    if "__init__" in vars(cls):
        cls.__doc__ = _of_class(cls, cleandoc(cls.__doc__))


def described(function: F) -> F:
    """Completes the docstring of a public function: entries for each parameter, with its default, and error."""
    if function.__doc__:
        doc = _of_method(function, entries(FUNCTIONS, "Parameters"))
        errors = _with_shared(entries(doc, "Raises"), entries(RAISES, "Raises"))
        function.__doc__ = _replaced(doc, "Raises", "\n".join(errors[n].line(n) for n in entries(doc, "Raises")))
    return function


def _of_class(cls: type, doc: str) -> str:
    parameters = _merged(cls, doc, "Parameters", PARAMETERS)
    doc = _replaced(doc, "Parameters", "\n".join(_lines(cls.__init__, parameters)))  # type: ignore[misc]
    attributes = _merged(cls, doc, "Attributes", ATTRIBUTES)
    return _replaced(doc, "Attributes", "\n".join(attributes[n].line(n) for n in entries(doc, "Attributes")))


def _of_method(function: Any, shared: Mapping[str, Entry]) -> str:
    doc = cleandoc(function.__doc__)
    lines = "\n".join(_lines(function, _with_shared(entries(doc, "Parameters"), shared)))
    if "\nParameters\n---" in doc or not lines:
        return _replaced(doc, "Parameters", lines)
    return f"{doc}\n\nParameters\n----------\n{lines}"


def _with_shared(entries_of: Mapping[str, Entry], shared: Mapping[str, Entry]) -> dict[str, Entry]:
    return {name: entries_of.get(name, Entry()).or_else(shared.get(name, Entry())) for name in {**shared, **entries_of}}


def _lines(function: Any, entries_of: Mapping[str, Entry]) -> Iterator[str]:
    parameters = [p for p in signature(function).parameters.values() if p.name not in ("self", "cls")]
    return (_with_default(entries_of[p.name], p).line(p.name) for p in parameters if p.name in entries_of)


def _merged(cls: type, doc: str, section: str, shared: str) -> Mapping[str, Entry]:
    merged = entries(doc, section)
    texts = [cleandoc(base.__doc__ or "") for base in cls.__mro__[1:] if base.__module__.startswith("streamsvm.")]
    for text in (*texts, shared):
        for name, entry in entries(text, section).items():
            merged[name] = merged.get(name, Entry()).or_else(entry)
    return merged


def _with_default(entry: Entry, parameter: Parameter) -> Entry:
    is_given = parameter.default is Parameter.empty
    return entry if is_given else entry._replace(kind=f"{entry.kind}, default={_literal(parameter.default)}")


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _replaced(doc: str, section: str, text: str) -> str:
    pattern = SECTION.format(section, "-" * len(section))
    return re.sub(pattern, lambda _: f"{text}\n", doc, count=1, flags=re.M)


def set_parameters(estimator: object, arguments: Mapping[str, object]) -> None:
    """Sets the arguments of `__init__`, its `locals()`, as attributes of the same names, as they are."""
    vars(estimator).update((name, value) for name, value in arguments.items() if name != "self")


class FactsRepr:
    """A repr in one line, and a small table in notebooks, of what `facts` says."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """What matters, by name, in words."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.facts().values())})"

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><th style="text-align: left">{escape(name)}</th><td style="text-align: left">{escape(text)}</td></tr>'
            for name, text in self.facts().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{cells}</table>"
