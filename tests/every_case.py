"""A table of quick cases as one test: all are run, and those that fail are named together.

It is skipped where all of its cases are; where some are, conftest.py reports it and `--skipped-to` has it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

SKIPPED = "skipped cases"  # of a test that has run the others


def every_case(names: str | tuple[str, ...], cases: Iterable[Any], ids: Any = None) -> Callable[..., Any]:
    """In place of `pytest.mark.parametrize`, for cases of milliseconds: of a text in a table, an error and its line.

    Each case has a folder of its own below `tmp_path`, the other fixtures are those of the test. `ids` are not needed.
    """
    parameters = (names,) if isinstance(names, str) else tuple(names)
    table = list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        left = {name: p for name, p in signature.parameters.items() if name not in parameters}
        assert len(left) + len(parameters) == len(signature.parameters), f"{test.__name__} takes no {parameters}"
        is_crossed = "record_property" in left  # with another table, which records for itself

        def run(*args: Any, record_property: Callable[[str, object], None] = unrecorded, **fixtures: Any) -> None:
            if is_crossed:
                fixtures["record_property"] = record_property
            failed: list[BaseException] = []
            skipped: list[str] = []
            for number, case in enumerate(table):
                values = dict(zip(parameters, (case,) if isinstance(names, str) else case, strict=True))
                try:
                    test(*args, **apart(fixtures, number), **values)
                except pytest.skip.Exception as error:
                    skipped.append(str(error))
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"case {number} of {len(table)}: {values!r}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(table)} cases failed", failed)
            reasons = "; ".join(sorted(set(skipped)))
            if len(skipped) == len(table) > 0:
                pytest.skip(reasons)
            if skipped:
                record_property(SKIPPED, f"{len(skipped)} of {len(table)} cases: {reasons}")

        run.__name__, run.__qualname__ = test.__name__, test.__qualname__
        run.__module__, run.__doc__ = test.__module__, test.__doc__
        run.__dict__.update(vars(test))  # its marks
        left["record_property"] = inspect.Parameter("record_property", inspect.Parameter.KEYWORD_ONLY)
        run.__signature__ = signature.replace(parameters=list(left.values()))  # type: ignore[attr-defined]
        return run

    return decorate


def unrecorded(name: str, told: object) -> None:
    """Where a test calls another one."""


def apart(fixtures: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Fixtures, with a folder of this case in place of that of the test."""
    given = dict(fixtures)
    if "tmp_path" in given:
        folder: Path = given["tmp_path"] / f"case-{number}"
        folder.mkdir()
        given["tmp_path"] = folder
    return given
