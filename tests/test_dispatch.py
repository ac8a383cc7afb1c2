"""Solvers and tasks are looked up in their tables: no other file decides by one of their names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from pathlib import Path

import pytest

import streamsvm
from streamsvm.solvers.catalogue import SOLVERS, section_of
from streamsvm.tasks import task_names

ROOT = Path(streamsvm.__file__).parent
SOLVER_NAMES = {
    *SOLVERS,
    *map(section_of, SOLVERS),
    *(alias for row in SOLVERS.values() for alias in row.aliases),
}
TASK_NAMES = set(task_names())
TABLES = {  # who may
    "solver": ("solvers/catalogue.py",),
    "task": tuple(path.relative_to(ROOT).as_posix() for path in (ROOT / "tasks").glob("*.py")),
}


def decisions(tree: ast.AST, names: Set[str]) -> Iterator[ast.AST]:
    """Where a name decides: compared, matched, looked up among others, or handed to an operator."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue):
            texts = [n for n in ast.walk(node) if isinstance(n, ast.Constant)]
        elif isinstance(node, ast.Dict):
            texts = [key for key in node.keys if isinstance(key, ast.Constant)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("partial"):
            texts = [arg for arg in node.args if isinstance(arg, ast.Constant)]
        else:
            continue
        used = {text.value for text in texts if isinstance(text.value, str)} & names
        if len(used) > isinstance(node, ast.Dict):  # one name alone may be any table's key
            yield node


@pytest.mark.parametrize(("kind", "names"), [("solver", SOLVER_NAMES), ("task", TASK_NAMES)], ids=TABLES)
def test_no_other_file_decides_by_a_name(kind, names):
    paths = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}
    assert set(TABLES[kind]) <= set(paths)
    violations = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for name, path in paths.items()
        if name not in TABLES[kind]
        for node in decisions(ast.parse(path.read_text(encoding="utf-8")), names)
    ]
    assert not violations, "\n".join(violations)


def test_a_decision_by_a_name_is_noticed():
    """And no name that is a value or a key of its own."""
    by_solver = (
        "config.solver == 'admm-hss'",
        "solver in ('dcsvm', 'alfpgm')",
        "{'dcsvm': 2.5, 'bsgd': 1.2}[solver]",
        "partial(ne, 'bsgd')",
        "match solver:\n    case 'alfpgm':\n        pass",
    )
    by_task = (
        "model.task == 'rank'",
        "task not in (None, 'classify')",
        "{'rank': 'score', 'regress': 'value'}",
        "partial(eq, 'regress')",
        "match task:\n    case 'ordinal':\n        pass",
    )
    for codes, names in ((by_solver, SOLVER_NAMES), (by_task, TASK_NAMES)):
        assert [code for code in codes if not list(decisions(ast.parse(code), names))] == []
    assert not list(decisions(ast.parse("{'solver': 'bsgd', 'bsgd': options}"), SOLVER_NAMES))
    assert not list(decisions(ast.parse("values | {'task': 'regress'}"), TASK_NAMES))
