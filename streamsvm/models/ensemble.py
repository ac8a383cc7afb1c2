"""A model that combines the probabilities of several: of kernels, losses and scalings that err on different rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError
from streamsvm.models.base import Header, Model
from streamsvm.models.files import MODELS, model_class
from streamsvm.models.shapes import Expansion, PartitionRouting
from streamsvm.solvers.pooling import TINY
from streamsvm.storage.arrays import Arrays, Attrs, State

LEAST = 1e-6  # of a member's probability: its logarithm counts for no more


def log_odds(p: np.ndarray) -> np.ndarray:
    """(m, 1) log-odds of the second of two classes, else (m, k) of each class against the rest."""
    p = p[:, 1:] if p.shape[1] == 2 else p
    p = np.clip(p, TINY, 1 - TINY)
    return np.asarray(np.log(p / (1 - p)))


def combined(probabilities: Sequence[np.ndarray], weights: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """(m, k) probabilities proportional to exp(offset_c) prod_i p_ic^w_i, of those of members, (m, k) each. weights:
    (members,); offsets: (k,)."""
    u = offsets + sum(w * np.log(np.maximum(p, LEAST)) for w, p in zip(weights, probabilities, strict=True))
    p = np.exp(u - u.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


@dataclass(frozen=True, repr=False)
class EnsembleModel(Model):
    """p_c(x) proportional to exp(b_c) prod_i p_ic(x)^w_i, p_i the probabilities of member i: a logarithmic opinion pool
    (Genest and Zidek 1986, Combining probability distributions), whose weights are a logistic regression's. Decision
    values are log-odds: of the second of two classes, else of each class against the rest. See `choosing.ensemble`."""

    kind: ClassVar[str] = "ensemble"
    header: Header  # with the kernel and the scaling that the search chose
    members: tuple[Model, ...]  # each calibrated
    weights: np.ndarray  # (members,) w
    offsets: np.ndarray  # (k,) b

    @property
    def n_support(self) -> int:
        return sum(getattr(member, "n_support", 0) for member in self.members)

    def facts(self) -> dict[str, str]:
        kernels = [member.header.kernel.name for member in self.members]
        return super().facts() | {"kernel": f"ensemble of {', '.join(kernels)}"}

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, 1) or (m, k) decision values; rows are raw."""
        return self.combine([member.binary_decisions(rows) for member in self.members], rows)

    def combine(self, decisions: Sequence[np.ndarray], rows: Rows) -> np.ndarray:
        """The decision values of rows from those of each member's binary problems."""
        answers = [member.answers_from(f, rows)[1] for member, f in zip(self.members, decisions, strict=True)]
        return log_odds(combined([p for p in answers if p is not None], self.weights, self.offsets))

    def as_expansion(self) -> Expansion:
        raise ModelError(_NO_SUM)

    def as_routes(self) -> PartitionRouting | None:
        raise ModelError(_NO_SUM)

    def to_state(self) -> State:
        arrays, attrs = self.header.to_state()
        arrays |= {"ensemble_weights": self.weights, "ensemble_offsets": self.offsets}
        states = [member.to_state() for member in self.members]
        for number, (of_member, _) in enumerate(states):
            arrays |= {_prefix(number) + name: array for name, array in of_member.items()}
        kinds = [member.kind for member in self.members]
        return arrays, attrs | {"members": [{"kind": k} | of for k, (_, of) in zip(kinds, states, strict=True)]}

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> EnsembleModel:
        header, members = Header.from_state(arrays, attrs), []
        for number, of_member in enumerate(attrs["members"]):
            if of_member["kind"] not in MODELS or of_member["kind"] == cls.kind:
                raise ValueError(f"found a member of kind {of_member['kind']!r}")
            member = model_class(of_member["kind"]).from_state(_OfMember(arrays, _prefix(number)), of_member)
            members.append(member)
        weights, offsets = (np.asarray(arrays[f"ensemble_{name}"]) for name in ("weights", "offsets"))
        k = len(header.classes)
        are_alike = all(member.d == header.d and len(member.classes) == k for member in members)
        if not are_alike or weights.shape != (len(members),) or offsets.shape != (k,) or header.calibration is None:
            raise ValueError("the members of the ensemble do not go together")
        if not all(member.header.calibration for member in members):
            raise ValueError("a member of the ensemble has no probabilities")
        return cls(header, tuple(members), weights, offsets)


_NO_SUM = (
    "the model is an ensemble, whose members are weighted by their probabilities: there is no single sum over support "
    "vectors; fit without --ensemble"
)


def _prefix(number: int) -> str:
    return f"member{number}_"


class _OfMember(Mapping[str, Any]):
    """The arrays of a member, by its names of them; not read before they are used."""

    def __init__(self, arrays: Arrays, prefix: str) -> None:
        self._arrays, self._prefix = arrays, prefix

    def __getitem__(self, name: str) -> Any:
        return self._arrays[self._prefix + name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._prefix + name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._arrays if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)
