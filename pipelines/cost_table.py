"""What `fit --dry-run` says beforehand, and what the fit then takes.

    python pipelines/cost_table.py --data DIR [--only threads,chosen,workers,plan] [--quick] [--out cost.md]

items, and the files of --data that they need:
    threads   seconds and memory of nine fits by five solvers (a9a.bz2, ijcnn1.bz2, covtype.csv.gz)
    chosen    everything left to the fit, which searches first (covtype.csv.gz, a9a.bz2, letter.bz2, letter.t.bz2)
    workers   seconds and bytes on the network (of the loopback device) with two local processes (covtype.csv.gz)
    plan      a billion rows like covtype's on a hundred workers (covtype.csv.gz)

Each fit runs once uncounted, then --runs times, alternating with its prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from bench import CONFIGS, Bench, print_tables
from measure import Spread
from tables import Bytes, Factor, Seconds, Table

from streamsvm.config import build_config
from streamsvm.data.store import Store
from streamsvm.dry_run import Machines, measure
from streamsvm.options.layers import read_layer

MOST_OFF = 0.3
PILOT_S = 20
BIG = 1_000_000_000
COVTYPE = ("--no-search", "--scale", "minmax", "--positive", "2")
FITS: dict[str, tuple[str, Sequence[Any]]] = {
    "covtype, DC-SVM early": ("covtype", ("--config", CONFIGS / "covtype_early.toml")),
    "covtype, cutting planes": (
        "covtype",
        (*COVTYPE, "--solver", "cutting-plane", "--kernel", "linear", "--C", 1),
    ),
    "covtype, budget 1,000": (
        "covtype",
        (*COVTYPE, "--solver", "bsgd", "--gamma", 32, "--C", 32, "--budget", 1000),
    ),
    "ijcnn1, DC-SVM exact": ("ijcnn1", ("--config", CONFIGS / "ijcnn1.toml")),
    "ijcnn1, ALFPGM": ("ijcnn1", ("--config", CONFIGS / "ijcnn1.toml", "--solver", "alfpgm")),
    "ijcnn1, ADMM": ("ijcnn1", ("--config", CONFIGS / "ijcnn1.toml", "--solver", "admm-hss")),
    "a9a, DC-SVM exact": ("a9a", ("--config", CONFIGS / "a9a.toml")),
    "a9a, ALFPGM": ("a9a", ("--config", CONFIGS / "a9a.toml", "--solver", "alfpgm")),
    "a9a, budget 500, 5 epochs": (
        "a9a",
        ("--no-search", "--gamma", 0.03, "--C", 8, "--solver", "bsgd", "--epochs", 5),
    ),
}


def threads(bench: Bench) -> list[Table]:
    records, off = [], []
    for name, (data, options) in list(FITS.items())[:: 7 if bench.sizes.is_quick else 1]:
        said, took, memory, _ = _tried(bench, bench.stores(data)[0], options)
        off.append(abs(said["seconds_estimated"] / took.median - 1))
        records.append(
            {
                "fit": name,
                "estimated": Seconds(said["seconds_estimated"]),
                "took": took,
                "estimated / took": Factor(said["seconds_estimated"] / took.median),
                "pilots": Seconds(sum(pilot["seconds"] for pilot in said["pilots"])),
                "memory estimated": Bytes(said["peak_rss_bytes_estimated"]),
                "memory taken": Bytes(memory),
            }
        )
    within = sum(o <= MOST_OFF for o in off)
    checks = [(f"at least five estimates within 30 % ({within} of {len(off)})", within >= 5)]
    return [Table("What a fit takes, predicted", records, checks=checks)]


def chosen(bench: Bench) -> list[Table]:
    """Bare commands: what `--dry-run` says, and what the fit takes."""
    records = []
    bare: dict[str, tuple[Any, ...]] = {"letter": (), "a9a": (), "covtype": ("--positive", 2)}
    for name, options in list(bare.items())[: 1 if bench.sizes.is_quick else None]:
        store = bench.stores(name)[0]
        dry = bench.command("fit", "--store", store, *options, "--dry-run")
        fit = bench.command("fit", "--store", store, "--model", bench.work / "cost.model", "--force", *options)
        records.append(
            {
                "store": name,
                "rows": fit.result["n"],
                "the dry run takes": Seconds(dry.seconds),
                "it estimates": Seconds(dry.result["seconds_estimated"]),
                "the fit takes": Seconds(fit.seconds),
                "of which search": Seconds(fit.result["seconds_by_phase"]["search"]),
            }
        )
    return [Table("Everything chosen", records, ["whole commands, one run each"])]


def workers(bench: Bench) -> list[Table]:
    records = []
    for name in ("covtype, DC-SVM early", "covtype, cutting planes"):
        data, options = FITS[name]
        said, took, _, sent = _tried(bench, bench.stores(data)[0], (*options, "--workers", 2))
        records.append(
            {
                "fit": name,
                "estimated": Seconds(said["seconds_estimated"]),
                "took": took,
                "estimated / took": Factor(said["seconds_estimated"] / took.median),
                "network estimated": Bytes(said["network_bytes_estimated"]),
                "network taken": Bytes(sent),
            }
        )
    return [Table("The same on two local processes", records)]


def _tried(bench: Bench, store: Path, options: Sequence[Any]) -> tuple[dict[str, Any], Spread, int, int]:
    """What was said (the median of seconds), what it took: seconds, memory, bytes on the loopback device."""
    model, said, took, memory, sent = bench.work / "cost.model", [], [], 0, 0
    for number in bench.sizes.numbers:
        plan = bench.command("fit", "--store", store, *options, "--dry-run", "--pilot", PILOT_S).result
        before = psutil.net_io_counters(pernic=True)["lo"].bytes_sent
        fit = bench.command("fit", "--store", store, "--model", model, "--force", *options).result
        sent = psutil.net_io_counters(pernic=True)["lo"].bytes_sent - before
        if number >= 0:  # the one before compiles
            said.append(plan)
            took.append(fit["seconds"])
            memory = max(memory, fit["peak_rss_bytes"])
    said.sort(key=lambda plan: plan["seconds_estimated"])
    return said[len(said) // 2], Spread.of(took), memory, sent


def plan(bench: Bench) -> list[Table]:
    """From pilots on covtype; its partitions are as large as those of the big store, which has more of them."""
    store = Store.open(str(bench.stores("covtype")[0]))
    config = build_config(read_layer(CONFIGS / "covtype_early.toml"))
    costs = measure(store, config, PILOT_S)
    records = []
    for n, site in (
        (store.n, Machines(0, costs.threads)),
        (BIG, Machines(0, costs.threads)),
        (BIG, Machines(100, 8, network_bytes_s=1.25e9, store_bytes_s=1e10)),
    ):
        found = costs.at(n, site)
        phases = found["seconds_estimated_by_phase"]
        records.append(
            {
                "rows": f"{n:,}",
                "on": f"{site.workers or 1} x {site.threads} threads",
                "hours": Factor(found["seconds_estimated"] / 3600),
                **{
                    name: Seconds(phases.get(name, 0.0))
                    for name in ("cluster", "solve", "read store", "scratch", "lead")
                },
                "read": Bytes(found["store_read_bytes_estimated"]),
                "scratch files": Bytes(found["scratch_bytes_estimated"]),
                "network": Bytes(found["network_bytes_estimated"]),
                "support vectors": f"{found['n_support_estimated']:,}",
            }
        )
    return [Table("A billion rows like covtype's, early prediction", records)]


if __name__ == "__main__":
    print_tables(__doc__, {"threads": threads, "chosen": chosen, "workers": workers, "plan": plan})
