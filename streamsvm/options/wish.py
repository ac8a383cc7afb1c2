"""What a threshold on decision values is chosen for, as text: `f1`, `precision=0.9`."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

MICRO = "f1_micro"  # of all predictions of several labels together
ALONE = ("f1", "balanced_accuracy", MICRO)  # as large as can be
WITH_LEAST = {
    "precision": "recall",
    "recall": "precision",
}  # at least so large, and the other as large as can be
EXPECTED = (
    "expected f1, balanced_accuracy, precision=NUMBER or recall=NUMBER with a number above 0 and at most 1, or "
    "f1_micro for several labels a row"
)


class Wish(NamedTuple):
    """score: of the second class, or of both; MICRO: of all labels. least: what it has to reach, where the other score
    is made large."""

    score: str
    least: float | None = None

    @classmethod
    def of(cls, text: str) -> Wish:
        """Raises ValueError."""
        name, equals, number = (part.strip() for part in text.partition("="))
        if name in ALONE and not equals:
            return cls(name)
        try:
            least = float(number)
        except ValueError:
            raise ValueError(EXPECTED) from None
        if name not in WITH_LEAST or not 0 < least <= 1:
            raise ValueError(EXPECTED)
        return cls(name, least)

    def __str__(self) -> str:
        return self.score if self.least is None else f"{self.score}={self.least!r}"


def _checked(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(EXPECTED)
    return str(Wish.of(value))


WishText = Annotated[str | None, BeforeValidator(_checked)]
