"""Ranks of the scoreboard: in each set, over all sets, and wins against those to beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata
from tables import Bytes, Factor, Seconds, Share, Table

TO_BEAT = ("HistGradientBoosting", "LightGBM")
Record = dict[str, Any]


def score(record: Record) -> float:
    """What ranks: accuracy, or R2; who has no figures is below all."""
    return record.get("accuracy", record.get("r2", -np.inf))


def with_ranks(records: Sequence[Record]) -> list[Record]:
    """The records, each with its rank in its set, from 1; equal scores share the mean of their ranks."""
    ranked = []
    for name in dict.fromkeys(record["set"] for record in records):
        there = [record for record in records if record["set"] == name]
        ranks = rankdata([-score(record) for record in there])
        ranked += [r | {"rank": float(rank)} for r, rank in zip(there, ranks, strict=True)]
    return ranked


def scores(ranked: Sequence[Record]) -> list[Table]:
    """A row for each set with the score of each peer: sets of classes, then of numbers."""
    peers = list(dict.fromkeys(record["peer"] for record in ranked))
    of_classes, of_numbers = Table("Accuracy", []), Table("R2", [])
    for name in dict.fromkeys(record["set"] for record in ranked):
        there = {record["peer"]: record for record in ranked if record["set"] == name}
        best = max(map(score, there.values()))
        done = {peer for peer, record in there.items() if record["outcome"] == "done"}
        row: dict[str, Any] = {"set": name, "rows": next(iter(there.values()))["n"]}
        for peer in peers:
            row[peer] = _score(there[peer]) if peer in done else None
            if peer.startswith("streamsvm"):
                row[f"{peer}, s"] = Seconds(there[peer]["seconds"]) if peer in done else None
        row["first"] = ", ".join(peer for peer in peers if peer in done and score(there[peer]) == best)
        is_numbers = any("r2" in record for record in there.values())
        (of_numbers if is_numbers else of_classes).rows.append(row)
    return [table for table in (of_classes, of_numbers) if table.rows]


def _score(record: Record) -> Share | str:
    return Share(record["accuracy"]) if "accuracy" in record else f"{record['r2']:.3f}"


def summary(ranked: Sequence[Record], notes: Sequence[str] = ()) -> Table:
    """A row for each peer, by mean rank over the sets that it was in."""
    rows = []
    best = {r["set"]: max(score(other) for other in ranked if other["set"] == r["set"]) for r in ranked}
    for peer in dict.fromkeys(record["peer"] for record in ranked):
        own = [record for record in ranked if record["peer"] == peer]
        rows.append(
            {
                "peer": peer,
                "mean rank": Factor(np.mean([record["rank"] for record in own])),
                "first": sum(score(r) == best[r["set"]] for r in own if r["outcome"] == "done"),
                **{f"above {other}": _wins(own, ranked, other) for other in TO_BEAT},
                "finished": f"{sum(r['outcome'] == 'done' for r in own)} of {len(own)}",
            }
        )
    said = [f"{r['set']}, {r['peer']}: {r['outcome']}" for r in ranked if r["outcome"] != "done"]
    return Table("Mean ranks", sorted(rows, key=lambda row: row["mean rank"]), [*notes, *said])


def _wins(own: Sequence[Record], ranked: Sequence[Record], other: str) -> str:
    """On how many of the sets that both were in it is strictly better."""
    theirs = {r["set"]: score(r) for r in ranked if r["peer"] == other}
    both = [r for r in own if r["set"] in theirs and r["peer"] != other]
    return f"{sum(score(r) > theirs[r['set']] for r in both)} of {len(both)}" if both else ""


def rows_by_set(ranked: Sequence[Record], name: str) -> Table:
    there = sorted((r for r in ranked if r["set"] == name), key=lambda r: r["rank"])
    about = there[0]
    title = f"{name}: {about['task']}, {about['n']:,} rows, {about['n_test']:,} to test, {about['d']} columns"
    return Table(title, [_row(record) for record in there])


def _row(record: Record) -> dict[str, Any]:
    if record["outcome"] != "done":
        return {
            "rank": f"{record['rank']:g}",
            "peer": f"{record['peer']}: {record['outcome'].partition(':')[0]}",
        }
    if "accuracy" in record:
        area = record["roc_auc"]
        found = {
            "accuracy": Share(record["accuracy"]),
            "ROC area": None if area is None else Share(area),
            "log loss": f"{record['log_loss']:.4f}",
        }
    else:
        found = {"R2": f"{record['r2']:.4f}", "mean absolute error": f"{record['mae']:.4g}"}
    peak = record["peak_bytes"]
    return {
        "rank": f"{record['rank']:g}",
        "peer": record["peer"],
        **found,
        "seconds": Seconds(record["seconds"]),
        "us a row": f"{record['us_per_row']:.3g}",
        "peak memory": None if peak is None else Bytes(peak),
        "model": f"{record['model_bytes'] / 2**20:.2f} MiB",
        "rows fitted": record["rows"],
        "tried": record["configs"],
    }
