"""streamsvm on the scoreboard: one place that says what it is given.

`streamsvm` has standardised columns alike, and a search of C and gamma. `streamsvm metric` learns what each column
counts for, and chooses kernel, C and gamma itself (`metric="diagonal"`): there is nothing to search. `streamsvm
ensemble` is `AutoSVC(ensemble=3)`, for classes. Regression is `ALFPGMSVR`, whose seconds grow as the square of the
rows, and which has no early prediction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scoreboard_peers import About, Config, Peer, log

from streamsvm import ALFPGMSVR, DCSVC, AutoSVC

FIRST = {"C": 10.0, "gamma_d": 4.0, "epsilon": 0.1}
SPACE = {"C": log(0.3, 100), "gamma_d": log(0.1, 200), "epsilon": log(0.01, 0.5)}


def _make(config: Config, about: About) -> Any:
    chosen = {"n_jobs": about.cores}
    if "ensemble" in config and not about.is_regression:
        return AutoSVC(ensemble=config["ensemble"], random_state=about.seed, **chosen)
    if "metric" in config:
        chosen |= {"metric": config["metric"]}
    else:
        chosen |= {"C": config["C"], "gamma": config["gamma_d"] / about.d}
    if about.is_regression:
        return ALFPGMSVR(**chosen, epsilon=config["epsilon"])
    early = {"early": True, "levels": config.get("levels"), "random_state": about.seed}
    return DCSVC(**chosen, **early)


def _write(model: Any, path: Path) -> None:
    model.save(path.with_suffix(".zarr"))


WARM = {"levels": 1}  # compiles what larger sets need
OURS = {
    "streamsvm": Peer("streamsvm", _make, FIRST, SPACE, write=_write, warm=WARM),
    "streamsvm metric": Peer("streamsvm", _make, {"metric": "diagonal", "epsilon": 0.1}, {}, write=_write, warm=WARM),
    "streamsvm ensemble": Peer(
        "streamsvm", _make, {"ensemble": 3, "metric": "diagonal", "epsilon": 0.1}, {}, write=_write
    ),
}
