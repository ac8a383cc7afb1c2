"""Options whose values are names: literals, or the names of a table that may grow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic_core import CoreSchema, core_schema

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler


@dataclass(frozen=True)
class OneOf:
    """Marks text as one of the names of a table, which is read at each validation.

    unlisted: further names that are accepted but not listed; the caller interprets them.
    """

    names: Callable[[], tuple[str, ...]]
    unlisted: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._known, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        return {"type": "string", "enum": list(self.names())}

    def _known(self, value: Any) -> Any:
        if value not in (*self.names(), *self.unlisted):
            *first, last = map(repr, self.names())
            raise ValueError(f"expected {', '.join(first)} or {last}")
        return value


def choices(kind: Any) -> tuple[str, ...]:
    """The values that a type enumerates."""
    if isinstance(kind, OneOf):
        return kind.names()
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(value for member in get_args(kind) for value in choices(member))
