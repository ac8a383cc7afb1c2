"""The reference: each parameter of a public signature has one entry in its docstring, in order, with its default."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import streamsvm
from streamsvm.kernels.table import DefiniteKernel, KernelName, given_kernels, kernel_names, kernel_row
from streamsvm.online import BSGDClassifier, BSGDMultiLabelClassifier, BSGDOneClass, BSGDRegressor
from streamsvm.parallel.open import on_client
from streamsvm.texts import parameters
from streamsvm.texts.documented import entries
from streamsvm.texts.parameters import ATTRIBUTES, BATCH_METHODS, ONLINE_METHODS, PARAMETERS

OURS = [getattr(streamsvm, name) for name in streamsvm.__all__ if not name.startswith("_")]
PUBLIC = [*OURS, BSGDClassifier, BSGDMultiLabelClassifier, BSGDOneClass, BSGDRegressor]
REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
LISTED = [
    f"streamsvm.{name}"
    for block in REFERENCE.read_text(encoding="utf-8").split(":template: function.rst")[1:]
    for name in block.partition("```")[0].split()
]
FUNCTIONS = [getattr(import_module(path), name) for path, _, name in (n.rpartition(".") for n in LISTED)]
LEARNERS = [public for public in PUBLIC if hasattr(public, "fit") or hasattr(public, "learn_one")]
HEAD = re.compile(r"^(\w+) : ", re.M)


def methods_of(public):
    """Public methods of this package's own that have parameters."""
    for name in dir(public):
        function = inspect.unwrap(getattr(public, name))
        ours = getattr(function, "__module__", None) or ""
        if name[0] != "_" and inspect.isroutine(function) and ours.startswith("streamsvm"):
            yield function


def signatures():
    for function in FUNCTIONS:
        yield function.__name__, function, function.__doc__
    for public in PUBLIC:
        if inspect.isfunction(public):
            continue
        if public in LEARNERS:
            yield public.__name__, public.__init__, public.__doc__
        for method in methods_of(public):
            yield f"{public.__name__}.{method.__name__}", method, method.__doc__


def mistakes(function, doc):
    """In the entries of a function's parameters."""
    given = [p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]
    if not doc:
        yield "no docstring"
        return
    section = inspect.cleandoc(doc).partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    names = [p.name for p in given]
    if HEAD.findall(section) != names:
        yield f"describes {HEAD.findall(section)}, expected {names}"
        return
    described = entries(inspect.cleandoc(doc), "Parameters")
    for parameter in given:
        entry = described[parameter.name]
        if not entry.text.endswith("."):
            yield f"{parameter.name}: no full stop"
        default = f"default={parameter.default!r}"
        if parameter.default is not Parameter.empty and not entry.kind.replace('"', "'").endswith(default):
            yield f"{parameter.name}: {entry.kind}, expected {default}"


def test_every_parameter_has_one_entry_in_order():
    found = [f"{name}: {text}" for name, function, doc in signatures() for text in mistakes(function, doc)]
    assert not found, "\n".join(found)


def test_mistakes_of_entries_are_found():
    def f(a, b=1.0): ...

    doc = "Adds.\n\nParameters\n----------\na : float\n    One.\nb : float, default={}\n    Two{}\n"
    assert list(mistakes(f, doc.format("1.0", "."))) == []
    assert list(mistakes(f, doc.format("2.0", "")))[0] == "b: no full stop"
    assert list(mistakes(f, doc.format("2.0", "."))) == ["b: float, default=2.0, expected default=1.0"]
    assert list(mistakes(f, doc.partition("b :")[0])) == ["describes ['a'], expected ['a', 'b']"]
    assert list(mistakes(f, None)) == ["no docstring"]


CONTEXTS = (on_client, streamsvm.recording)  # return nothing


def test_functions_describe_what_they_return_and_raise():
    missing = [
        f"{function.__name__}: {section}"
        for function in FUNCTIONS
        if function not in CONTEXTS
        for section in ("Returns", "Raises")
        for described in [entries(function.__doc__, section)]
        if not described or not all(entry.text.endswith(".") for entry in described.values())
    ]
    assert not missing


def test_no_text_of_a_parameter_stands_twice_on_a_page():
    for public in LEARNERS:
        texts = [entry.text for entry in entries(public.__doc__, "Parameters").values()]
        assert [text for text in set(texts) if texts.count(text) > 1] == [], public.__name__


def test_a_page_leads_on():
    missing = [
        f"{public.__name__}: {section}"
        for public in LEARNERS
        for section in ("See Also", "References", "Examples")
        if f"\n{section}\n---" not in public.__doc__
    ]
    missing += [
        f"{public.__name__}: {name}"
        for public in LEARNERS
        for name, entry in entries(public.__doc__, "Attributes").items()
        if not entry.kind or not entry.text
    ]
    assert not missing


def test_shared_texts_are_read():
    told = "".join(public.__doc__ for public in LEARNERS)
    for text in (PARAMETERS, ATTRIBUTES):
        section = text.partition("\n")[0]
        unread = [name for name, entry in entries(text, section).items() if f"\n{name} : " not in told]
        assert not unread
    given = {p for function in FUNCTIONS for p in inspect.signature(function).parameters}
    assert set(entries(parameters.FUNCTIONS, "Parameters")) <= given
    raised = {name for function in FUNCTIONS for name in entries(function.__doc__, "Raises")}
    assert set(entries(parameters.RAISES, "Raises")) <= raised
    for text in (BATCH_METHODS, ONLINE_METHODS):
        names = {p for public in LEARNERS for m in methods_of(public) for p in inspect.signature(m).parameters}
        assert set(entries(text, "Parameters")) <= names


def test_a_subclass_from_outside_keeps_its_docstring():
    class Own(streamsvm.DCSVC):
        """Mine.

        Parameters
        ----------
        C
        """

        def __init__(self, *, C=1.0):
            super().__init__(C=C)

    assert inspect.cleandoc(Own.__doc__) == "Mine.\n\nParameters\n----------\nC"


def test_literal_types_list_the_kernels():
    definite = {name for name in kernel_names() if kernel_row(name).definite}
    assert set(get_args(DefiniteKernel)) == definite
    assert set(get_args(KernelName)) == {*kernel_names(), *given_kernels()}


def test_stores_and_models_are_short_in_consoles_and_notebooks():
    store = streamsvm.Store.from_arrays(np.eye(4), ["a", "<b>", "a", "<b>"])
    model = streamsvm.DCSVC(gamma=0.5).fit(store).model_
    assert repr(store) == "Store(in memory, 4 x 4 float64 dense, y)"
    assert repr(model) == "KernelModel(classify, rbf gamma=0.5, 4 features, 2 classes, 4 support vectors)"
    for shown in (store, model):
        assert all(f">{text}</td>" in shown._repr_html_() for text in shown.facts().values())


def test_formulas_need_no_script(monkeypatch):
    errors = pytest.importorskip("sphinx.errors", reason="needs Sphinx: streamsvm[docs]")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "docs"))
    from mathml import mathml

    assert "<mi>α</mi>" in mathml(r"\min_\alpha x \tag{1}")
    assert mathml(r"\tfrac12 \sqrt5") == mathml(r"\tfrac{1}{2} \sqrt{5}")
    assert mathml(r"x \tag{1}").endswith("(1)</span>")
    with pytest.raises(errors.ExtensionError, match="cannot convert"):
        mathml(r"\nothing")
