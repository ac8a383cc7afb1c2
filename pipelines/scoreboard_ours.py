"""streamsvm on the scoreboard: one place that says what it is given.

`streamsvm` has standardised columns alike, and a search of C and gamma. `streamsvm metric` learns what each column
weighs as well (`metric="diagonal"`); it is left out where the estimator has no such parameter. Regression is
`ALFPGMSVR`, whose seconds grow as the square of the rows, and which has no early prediction.
"""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

from scoreboard_peers import About, Config, Peer, log

from streamsvm import ALFPGMSVR, DCSVC

FIRST = {"C": 10.0, "gamma_d": 4.0, "epsilon": 0.1}
SPACE = {"C": log(0.3, 100), "gamma_d": log(0.1, 200), "epsilon": log(0.01, 0.5)}


def _make(config: Config, about: About) -> Any:
    chosen = {"C": config["C"], "gamma": config["gamma_d"] / about.d, "n_jobs": about.cores}
    chosen |= {"metric": config["metric"]} if "metric" in config else {}
    if about.is_regression:
        return ALFPGMSVR(**chosen, epsilon=config["epsilon"])
    early = {"early": True, "levels": config.get("levels"), "random_state": about.seed}
    return DCSVC(**chosen, **early)


def _write(model: Any, path: Path) -> None:
    model.save(path.with_suffix(".zarr"))


def _no_metric() -> str | None:
    has = "metric" in signature(DCSVC).parameters and "metric" in signature(ALFPGMSVR).parameters
    return None if has else "these estimators have no parameter `metric`"


WARM = {"levels": 1}  # compiles what larger sets need
OURS = {
    "streamsvm": Peer("streamsvm", _make, FIRST, SPACE, write=_write, warm=WARM),
    "streamsvm metric": Peer(
        "streamsvm",
        _make,
        FIRST | {"metric": "diagonal"},
        SPACE,
        write=_write,
        warm=WARM,
        missing=_no_metric,
    ),
}
