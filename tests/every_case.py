"""A table of quick cases as one test: all are run, and those that fail are named together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest


def every_case(names: str | tuple[str, ...], cases: Iterable[Any], ids: Any = None) -> Callable[..., Any]:
    """In place of `pytest.mark.parametrize`, for cases of milliseconds: of a text in a table, an error and its line.

    Each case has a folder of its own below `tmp_path`, the other fixtures are those of the test. `ids` are not needed.
    """
    parameters = (names,) if isinstance(names, str) else tuple(names)
    table = list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, **fixtures: Any) -> None:
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
            if skipped:
                pytest.skip("; ".join(sorted(set(skipped))))

        signature = inspect.signature(test)
        left = [p for name, p in signature.parameters.items() if name not in parameters]
        assert len(left) + len(parameters) == len(signature.parameters), f"{test.__name__} takes no {parameters}"
        run.__name__, run.__qualname__ = test.__name__, test.__qualname__
        run.__module__, run.__doc__ = test.__module__, test.__doc__
        run.__dict__.update(vars(test))  # its marks
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate


def apart(fixtures: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Fixtures, with a folder of this case in place of that of the test."""
    given = dict(fixtures)
    if "tmp_path" in given:
        folder: Path = given["tmp_path"] / f"case-{number}"
        folder.mkdir()
        given["tmp_path"] = folder
    return given
