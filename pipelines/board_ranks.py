"""Results of the board put together: means over seeds, ranks over streams, and by how much mean ranks must differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from board_models import OURS
from scipy.stats import studentized_range
from scoreboard_ranks import Record, score, with_ranks
from tables import Factor, Share, Table

MEANS = ("accuracy", "kappa", "roc_auc", "events_per_s")
Row = dict[str, Any]


@dataclass(frozen=True)
class Board:
    """Results as river_board.py keeps them: one of each stream, model and seed."""

    results: Sequence[Record]

    @cached_property
    def cells(self) -> list[Record]:
        """A record for each stream ("set") and model ("peer") with the means over its seeds, and its rank."""
        pairs = dict.fromkeys((r["stream"], r["model"]) for r in self.results)
        return with_ranks([_cell([r for r in self.results if _pair(r) == pair]) for pair in pairs])

    @cached_property
    def streams(self) -> list[str]:
        return [*dict.fromkeys(cell["set"] for cell in self.cells)]

    @cached_property
    def models(self) -> list[str]:
        """By their mean ranks, the best first."""
        return sorted(dict.fromkeys(cell["peer"] for cell in self.cells), key=lambda m: np.mean(self.ranks(m)))

    def of(self, model: str) -> list[Record]:
        return [cell for cell in self.cells if cell["peer"] == model]

    def on(self, stream: str) -> list[Record]:
        """The best first."""
        return sorted((cell for cell in self.cells if cell["set"] == stream), key=lambda cell: cell["rank"])

    def ranks(self, model: str) -> np.ndarray:
        """In each of the streams that it was in."""
        return np.array([cell["rank"] for cell in self.of(model)])

    def mean(self, model: str, name: str) -> float | None:
        """Over the streams where it is known."""
        known = [value for cell in self.of(model) if (value := cell.get(name)) is not None]
        return float(np.mean(known)) if known else None


def whole(results: Sequence[Record]) -> list[Record]:
    """Those of streams that have results of all models."""
    there = {_pair(r) for r in results}
    models = {model for _, model in there}
    return [r for r in results if all((r["stream"], model) in there for model in models)]


def _pair(result: Record) -> tuple[str, str]:
    return result["stream"], result["model"]


def _cell(results: Sequence[Record]) -> Record:
    about = {"set": results[0]["stream"], "peer": results[0]["model"]}
    outcomes = [r["outcome"] for r in results if r["outcome"] != "done"]
    about["outcome"] = min(outcomes, default="done")  # failed before stopped
    if about["outcome"].startswith("failed"):
        return about
    known = {name: [r[name] for r in results if r[name] is not None] for name in MEANS}
    means = {name: float(np.mean(values)) if values else None for name, values in known.items()}
    last = [r["memory"][-1][1] for r in results if r["memory"]]
    return about | means | {"memory": float(np.mean(last)) if last else None}


def critical_difference(n_models: int, n_streams: int, alpha: float = 0.05) -> float:
    """Mean ranks further apart differ at this level: Nemenyi's test (Demsar 2006, section 3.2.2)."""
    q = studentized_range.ppf(1 - alpha, n_models, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(n_models * (n_models + 1) / (6 * n_streams)))


def board_tables(results: Sequence[Record]) -> list[Table]:
    board = Board(results)
    return [models_table(board), streams_table(board), accuracies(board)]


def models_table(board: Board) -> Table:
    notes = [f"{len(board.models)} models on {len(board.streams)} streams"]
    if len(board.models) > 1:
        apart = critical_difference(len(board.models), len(board.streams))
        notes.append(f"Nemenyi: mean ranks that are {apart:.2f} apart differ at the level of 5 %")
    said = [f"{c['set']}, {c['peer']}: {c['outcome']}" for c in board.cells if c["outcome"] != "done"]
    return Table("Models", [_model_row(board, model) for model in board.models], [*notes, *said])


def _model_row(board: Board, model: str) -> Row:
    cells, ranks = board.of(model), board.ranks(model)
    low, high = np.quantile(ranks, (0.25, 0.75))
    rates = [cell["events_per_s"] for cell in cells if "events_per_s" in cell]
    memory = [cell["memory"] for cell in cells if cell.get("memory") is not None]
    shares = {title: board.mean(model, name) for title, name in _SHARES.items()}
    return {
        "model": model,
        "mean rank": Factor(ranks.mean()),
        "half of its ranks": f"{low:.3g} to {high:.3g}",
        "first": int(sum(ranks == [board.on(cell["set"])[0]["rank"] for cell in cells])),
        **{title: None if value is None else Share(value) for title, value in shares.items()},
        "events/s": int(np.median(rates)) if rates else None,
        "MiB": Factor(np.median(memory) / 2**20) if memory else None,
        "stopped": sum(cell["outcome"].startswith("stopped") for cell in cells) or None,
        "failed": sum(cell["outcome"].startswith("failed") for cell in cells) or None,
    }


_SHARES = {"accuracy": "accuracy", "kappa": "kappa", "ROC area": "roc_auc"}


def streams_table(board: Board) -> Table:
    """The best of each stream, and where ours stands."""
    return Table("Streams", [_stream_row(board, stream) for stream in board.streams])


def _stream_row(board: Board, stream: str) -> Row:
    cells = board.on(stream)
    row: Row = {"stream": stream, "best": cells[0]["peer"], "accuracy": Share(score(cells[0]))}
    own = next((cell for cell in cells if cell["peer"] == OURS), None)
    if own is None:
        return row
    above = [cell for cell in cells if score(cell) > score(own)]
    names = ", ".join(f"{cell['peer']} {100 * (score(cell) - score(own)):+.1f}" for cell in above)
    return row | {"ours": Share(score(own)), "rank": Factor(own["rank"]), "above ours, points": names}


def accuracies(board: Board) -> Table:
    """A row for each model, a column for each stream."""
    rows = []
    for model in board.models:
        known = {cell["set"]: cell["accuracy"] for cell in board.of(model) if "accuracy" in cell}
        rows.append({"model": model} | {s: Share(known[s]) if s in known else None for s in board.streams})
    return Table("Accuracy", rows)
