"""`streamsvm tune` next to GridSearchCV over scikit-learn-intelex's SVC: 30 points, 5 folds of ijcnn1.

    python pipelines/tune_table.py --data DIR [--only shared,peer] [--quick] [--out t.md] [--peer-python PYTHON]

items, all of them on ijcnn1.bz2 with C from 2^-5 to 2^10 (6 values), gamma from 2^-6 to 2^2 (5 values), the same folds:
    shared   alfpgm (LIBSVM's problem), dcsvm and admm-hss: folds as bounds of one problem
    peer     GridSearchCV: its threads in one fit after the other, and two fits side by side, the faster one counts;
             ours before, between and after
    others   dcsvm by successive halving, bsgd, and what sharing saves: dcsvm fit by fit, of 3 points

A search of a few rows compiles first. Peers are timed inside GridSearchCV.fit without a refit, ours without start and
refit; `command` is the whole command. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from bench import HERE, Bench, print_tables
from measure import Spread, run
from tables import Factor, Seconds, Share, Table

from streamsvm import Store
from streamsvm.data.folds import make_folds

C = [2.0**e for e in (-5, -2, 1, 4, 7, 10)]
GAMMA = [2.0**e for e in (-6, -4, -2, 0, 2)]
FOLDS = 5
TOL = 1e-3


def shared(bench: Bench) -> list[Table]:
    ways = {solver: _search(bench, solver) for solver in ("alfpgm", "dcsvm", "admm-hss")}
    return [Table("30 points, 5 folds", [_row(name, found) for name, found in ways.items()])]


def peer(bench: Bench) -> list[Table]:
    ours, peers = [_search(bench, "alfpgm")], []
    for jobs in (1, 2):
        peers.append(_row(f"GridSearchCV, n_jobs={jobs}", _peer(bench, jobs)))
        ours.append(_search(bench, "alfpgm"))
    best, spread = min(peers, key=lambda row: row["seconds"]), Spread.of([found["seconds"] for found in ours])
    faster = best["seconds"] / spread.median
    checks = [
        (f"at least 10 times as fast ({faster:.1f} times)", faster >= 10),
        ("same best point, or as good a score", _as_good(ours[0], best)),
    ]
    rows = [_row("streamsvm, alfpgm", ours[0]) | {"seconds": spread}, *peers]
    notes = [
        "ijcnn1, C from 2^-5 to 2^10, gamma from 2^-6 to 4, the same five folds; GridSearchCV over the SVC of "
        "scikit-learn-intelex, one run each, ours before, between and after",
        "seconds: the search without start and refit; n_jobs=1: threads inside a fit, n_jobs=2: two fits side by side",
    ]
    return [Table("Against GridSearchCV", rows, notes, checks)]


def others(bench: Bench) -> list[Table]:
    few = {"C": C[2:5], "gamma": GAMMA[3:4]}
    rows = [
        _row("dcsvm, halving", _search(bench, "dcsvm", tune={"search": "halving"})),
        _row("bsgd", _search(bench, "bsgd")),
        _row("dcsvm, 3 points", _search(bench, "dcsvm", **few)),
        _row("dcsvm, 3 points, fit by fit", _search(bench, "dcsvm", tune={"share": False}, **few)),
    ]
    return [Table("Other ways", rows)]


def _as_good(ours: dict[str, Any], peer: dict[str, Any]) -> bool:
    same = (ours["C"], ours["gamma"]) == (peer["C"], peer["gamma"])
    return same or float(ours["score"]) >= float(peer["score"])


def _row(name: str, found: dict[str, Any]) -> dict[str, Any]:
    return {
        "search": name,
        "points": found["points"],
        "seconds": Seconds(found["seconds"]),
        "command": Seconds(found["command"]),
        "cores busy": Factor(found["cores"]),
        "C": found["C"],
        "gamma": found["gamma"],
        "score": Share(found["score"]),
    }


@cache
def _store(bench: Bench) -> Path:
    return bench.stores("ijcnn1")[0]


def _search(bench: Bench, solver: str, tune: dict[str, Any] | None = None, **grid: list[float]) -> dict[str, Any]:
    """Ours: the search's seconds, those of the whole command, and the best point."""
    _compiled(bench, solver)
    config = _config(bench, solver, tune or {}, grid.get("C", C), grid.get("gamma", GAMMA))
    ended = bench.command("tune", "--store", _store(bench), "--config", config)
    best = ended.result["best"]
    return {
        "points": len(ended.result["results"]),
        "seconds": ended.result["seconds_search"],
        "command": ended.seconds,
        "cores": ended.cores,
        "C": best["params"]["C"],
        "gamma": best["params"]["kernel.gamma"],
        "score": best["score"],
    }


@cache
def _compiled(bench: Bench, solver: str) -> None:
    few = bench.copies(_store(bench), 400)
    bench.command("tune", "--store", few, "--config", _config(bench, solver, {"folds": 2}, C[3:4], GAMMA[3:4]))


def _config(bench: Bench, solver: str, tune: dict[str, Any], Cs: list[float], gammas: list[float]) -> Path:
    tol = [] if solver == "bsgd" else [f"tol = {TOL}"]
    lines = [f'solver = "{solver}"', *tol, "[tune]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in ({"folds": FOLDS} | tune).items()]
    lines += ["[tune.grid]", f"C = {Cs}", f"kernel.gamma = {gammas}"]
    path = bench.work / "tune.toml"
    path.write_text("\n".join([*lines, ""]))
    return path


def _peer(bench: Bench, jobs: int) -> dict[str, Any]:
    store = Store.open(_store(bench))
    file = bench.work / "tune.npz"
    X, y = store.read(0, store.n).dense().astype(np.float32), store.y
    np.savez(file, X=X, y=y, fold=make_folds(store, FOLDS, True, 0).of)
    options = {"grid": {"C": C, "gamma": GAMMA}, "tol": TOL, "n_jobs": jobs}
    ended = run([bench.peer_python, HERE / "grid_worker.py", file, json.dumps(options)])
    more = {"points": len(C) * len(GAMMA), "command": ended.seconds, "cores": ended.cores}
    return more | ended.result | ended.result["params"]


ITEMS = {"shared": shared, "peer": peer, "others": others}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
