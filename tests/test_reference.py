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
        yield pytest.param(function, function.__doc__, id=function.__name__)
    for public in PUBLIC:
        if inspect.isfunction(public):
            continue
        if public in LEARNERS:
            yield pytest.param(public.__init__, public.__doc__, id=public.__name__)
        for method in methods_of(public):
            yield pytest.param(method, method.__doc__, id=f"{public.__name__}.{method.__name__}")


@pytest.mark.parametrize(("function", "doc"), list(signatures()))
def test_every_parameter_has_one_entry_in_order(function, doc):
    given = [p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]
    section = inspect.cleandoc(doc).partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    assert HEAD.findall(section) == [p.name for p in given]
    found = entries(inspect.cleandoc(doc), "Parameters")
    for parameter in given:
        entry = found[parameter.name]
        assert entry.text.endswith("."), parameter.name
        if parameter.default is not Parameter.empty:
            assert entry.kind.replace('"', "'").endswith(f"default={parameter.default!r}")


CONTEXTS = (on_client, streamsvm.recording)  # return nothing


@pytest.mark.parametrize(
    "function", [f for f in FUNCTIONS if f not in CONTEXTS], ids=lambda function: function.__name__
)
def test_functions_describe_what_they_return_and_raise(function):
    for section in ("Returns", "Raises"):
        found = entries(function.__doc__, section)
        assert found, section
        assert all(entry.text.endswith(".") for entry in found.values())


@pytest.mark.parametrize("public", LEARNERS, ids=lambda public: public.__name__)
def test_no_text_of_a_parameter_stands_twice_on_a_page(public):
    texts = [entry.text for entry in entries(public.__doc__, "Parameters").values()]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("public", LEARNERS, ids=lambda public: public.__name__)
def test_a_page_leads_on(public):
    for section in ("See Also", "References", "Examples"):
        assert f"\n{section}\n---" in public.__doc__
    for name, entry in entries(public.__doc__, "Attributes").items():
        assert entry.kind, name
        assert entry.text, name


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
        names = {
            p for public in LEARNERS for m in methods_of(public) for p in inspect.signature(m).parameters
        }
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
