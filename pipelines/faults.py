"""Fits on a cluster, and what befalls them at random moments: killed, frozen, cut off, out of memory or disk. Linux.

    python pipelines/faults.py [--trials 20] [--only worker-killed,...] [--solvers dcsvm,...] [--rows 6000]
        [--frozen 60] [--quick] [--out faults.md]

Each trial is a scheduler and two workers with their nannies, one `streamsvm fit` on deformed digits of scikit-learn,
and one fault at a random moment of its time; if the fit ends with it, the same command with --resume. Its model
must then decide as that of an undisturbed run, and the store's fault must be named. Exits 1 where one does not.

    worker-killed      SIGKILL of a worker's process; the nanny starts another
    workers-killed     of all of them at once
    client-killed      SIGKILL of the fit, then --resume
    machine-killed     SIGKILL of everything, then a new cluster and --resume
    worker-memory      a worker is filled until its nanny kills it
    worker-frozen      SIGSTOP of a worker for --frozen seconds
    network-cut        the connection of a worker to the scheduler is broken
    disk-full          no space left in the run directory while the state is saved
    state-torn         the fit is killed, its last state cut at a random byte, then --resume
    chunk-damaged      a chunk of the store is overwritten: the fit names it or has read it; restored, --resume
    scheduler-killed   SIGKILL of the scheduler, which is started again, while the fit has --wait-for-scheduler
    all-killed         one fit, one after the other: ten workers, the scheduler twice, and once the fit, then --resume;
                       the model has to be the undisturbed one bit for bit. Only where asked for, with --rows 200000
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from bench import STREAMSVM, asking_for
from processes import WORKER_BYTES, RelayedCluster, SupervisedCluster
from tables import Report, Seconds, Table

from streamsvm.data.store import Store
from streamsvm.demo import write_stores
from streamsvm.models.files import load_model
from streamsvm.solvers.catalogue import SOLVERS as CATALOGUE

EVEN = ["--positive", "0,2,4,6,8"]  # two classes: decision values that can be compared, no votes
KERNEL = [*EVEN, "--gamma", "2e-2", "--C", "10", "--scale", "maxabs"]
PARTS = ["--set", "dcsvm.levels=2", "--set", "dcsvm.part_rows=600"]
MORE = {
    "dcsvm": PARTS,
    "bsgd": ["--set", "bsgd.partitions=2", "--budget", "300", "--epochs", "2"],
    "cutting-plane": ["--tol", "1e-4"],
}
SOLVERS: dict[str, list[str]] = {
    name: [*(EVEN if row.needs else KERNEL), *asking_for(name), *MORE.get(name, [])] for name, row in CATALOGUE.items()
} | {"early": [*KERNEL, "--early", *PARTS]}
WAITS = ["--wait-for-scheduler", "2m"]
LONGEST_S = 600  # a fit that takes longer hangs
CLOSE = 2e-2  # difference of decision values, over their size, that tolerances explain


@dataclass
class Trial:
    """One fit of one solver, under one fault."""

    bench: Bench
    solver: str
    cluster: Any  # that the fault befalls
    folder: Path
    store: Path
    moment_s: float
    rng: random.Random

    def fit(self, *more: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """On the cluster, or with a prefix on threads."""
        model, run = self.folder / "model", self.folder / "run"
        command = [*STREAMSVM, "fit", "--store", self.store, "--model", model, "--json", "--no-search"]
        command += [] if prefix else ["--scheduler", self.cluster.address]
        command += ["--run-dir", run, "--checkpoint-every", "2 steps", *SOLVERS[self.solver], *more]
        return subprocess.Popen(
            [*prefix, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def resumed(self) -> str:
        return _ended(self.fit("--resume"))

    def wait(self) -> None:
        time.sleep(self.moment_s)

    def bits(self) -> str:
        """A digest of every array of the model; attributes have seconds, too."""
        digest = sha256()
        for path in sorted((self.folder / "model").rglob("*")):
            if path.is_file() and path.name != "zarr.json":
                digest.update(path.relative_to(self.folder).as_posix().encode() + path.read_bytes())
        return digest.hexdigest()


def _undisturbed(trial: Trial) -> None:
    _ended(trial.fit())


def _workers_killed(trial: Trial, count: int | None = None) -> None:
    """Of all, or so many of them."""
    fit = trial.fit()
    trial.wait()
    workers = trial.cluster.workers()
    for worker in trial.rng.sample(workers, count or len(workers)):
        worker.kill()
    _ended(fit)


def _client_killed(trial: Trial) -> None:
    fit = trial.fit()
    trial.wait()
    fit.kill()
    fit.communicate()
    trial.resumed()


def _machine_killed(trial: Trial) -> None:
    fit = trial.fit()
    trial.wait()
    fit.kill()
    trial.cluster.kill()
    fit.communicate()
    with trial.cluster:
        trial.resumed()


def _worker_memory(trial: Trial) -> None:
    from distributed import Client

    fit = trial.fit()
    trial.wait()
    with Client(trial.cluster.address, set_as_default=False) as client:
        worker = trial.rng.choice(sorted(client.nthreads()))
        client.submit(_fill, WORKER_BYTES, workers=[worker], pure=False, retries=0)
        _ended(fit)


def _fill(most: int) -> None:
    held = []
    while True:
        held.append(np.ones(most // 64 // 8))
        time.sleep(0.05)


def _worker_frozen(trial: Trial) -> None:
    fit = trial.fit()
    trial.wait()
    worker = trial.rng.choice(trial.cluster.workers())
    worker.suspend()
    time.sleep(trial.bench.frozen_s)
    with suppress(psutil.NoSuchProcess):
        worker.resume()
    _ended(fit)


def _network_cut(trial: Trial) -> None:
    fit = trial.fit()
    trial.wait()
    trial.cluster.relay.cut()
    _ended(fit)


def _disk_full(trial: Trial) -> None:
    """The run directory is a separate file system, which workers would not see, with room for no state."""
    run = trial.folder / "run"
    run.mkdir()
    script = f'mount -t tmpfs -o size=1m tmpfs {run} && head -c 1000000 /dev/zero > {run}/filler; exec "$@"'
    _ended(trial.fit(prefix=("unshare", "-rm", "bash", "-c", script, "fit")), says="No space left on device")


def _state_torn(trial: Trial) -> None:
    fit = trial.fit()
    trial.wait()
    fit.kill()
    fit.communicate()
    states = sorted((trial.folder / "run").glob("state-*.npz"))
    for newest in states[-1:]:
        newest.write_bytes(newest.read_bytes()[: trial.rng.randrange(newest.stat().st_size)])
    trial.resumed()


def _chunk_damaged(trial: Trial) -> None:
    copy = trial.folder / "store.zarr"
    shutil.copytree(trial.store, copy)
    trial.store = copy
    fit = trial.fit()
    trial.wait()
    chunk = trial.rng.choice(sorted(path for path in (copy / "X" / "c").rglob("*") if path.is_file()))
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:100])
    _, said = _communicate(fit)
    chunk.write_bytes(whole)
    if fit.returncode:
        named = f"chunk {chunk.parent.name}"
        if fit.returncode != 2 or named not in said:
            raise AssertionError(f"expected exit status 2 and {named!r}, found {fit.returncode}: {said}")
        trial.resumed()


def _scheduler_killed(trial: Trial) -> None:
    fit = trial.fit(*WAITS)
    trial.wait()
    trial.cluster.kill_scheduler()
    _ended(fit)


def _all_killed(trial: Trial) -> None:
    """At random moments, each after the cluster is whole again."""
    kills = ["worker"] * 10 + ["scheduler"] * 2 + ["fit"]
    trial.rng.shuffle(kills)
    fit = trial.fit(*WAITS)
    for kill in kills:
        time.sleep(trial.rng.random() * trial.bench.seconds[trial.solver] / len(kills))
        if fit.poll() is not None:
            raise AssertionError(f"it ended before the {kill} was killed; give more --rows ({_ended(fit)})")
        if kill == "worker":
            trial.rng.choice(trial.cluster.workers()).kill()
        elif kill == "scheduler":
            trial.cluster.kill_scheduler()
        else:
            fit.kill()
            fit.communicate()
            fit = trial.fit("--resume", *WAITS)
        trial.cluster.settle()
    _ended(fit)
    if (found := trial.bits()) != trial.bench.bits[trial.solver]:
        raise AssertionError(f"the model is not the undisturbed one bit for bit ({found})")


FAULTS: dict[str, Callable[[Trial], None]] = {
    "worker-killed": partial(_workers_killed, count=1),
    "workers-killed": _workers_killed,
    "client-killed": _client_killed,
    "machine-killed": _machine_killed,
    "worker-memory": _worker_memory,
    "worker-frozen": _worker_frozen,
    "network-cut": _network_cut,
    "disk-full": _disk_full,
    "state-torn": _state_torn,
    "chunk-damaged": _chunk_damaged,
    "scheduler-killed": _scheduler_killed,
    "all-killed": _all_killed,
}
MADE = {"scheduler-killed": SupervisedCluster, "all-killed": SupervisedCluster, "disk-full": nullcontext}
NOTES = (
    "each fault at random moments; all-killed: ten workers, the scheduler twice, the fit once, the same bit for bit",
    "furthest: of decision values from those of an undisturbed fit, over their size",
)
ROOM = ("bsgd",)  # whose regions are files of the run directory, which no fit can do without
SHORT = [fault for fault in FAULTS if fault != "all-killed"]


@dataclass
class Bench:
    """The data, and what undisturbed fits come to: seconds and decision values by solver."""

    folder: Path
    rows: int
    frozen_s: float
    seconds: dict[str, float] = field(default_factory=dict)
    decisions: dict[str, np.ndarray] = field(default_factory=dict)
    bits: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        write_stores(self.folder, self.rows)
        self.test = Store.open(self.folder / "test.zarr")

    def undisturbed(self, solver: str, *, compiled: bool) -> None:
        if not compiled:
            with self.trial(solver, 0.0) as trial:
                _undisturbed(trial)
        with self.trial(solver, 0.0) as trial:
            began = time.perf_counter()
            _undisturbed(trial)
            self.seconds[solver] = time.perf_counter() - began
            self.decisions[solver], self.bits[solver] = self.decide(trial), trial.bits()

    def decide(self, trial: Trial) -> np.ndarray:
        return load_model(trial.folder / "model").decision_function(self.test.read(0, self.test.n))

    @contextmanager
    def trial(
        self, solver: str, share: float, seed: int = 0, made: Callable[[Path], Any] = RelayedCluster
    ) -> Iterator[Trial]:
        moment, rng = share * self.seconds.get(solver, 0.0), random.Random(seed)
        with ExitStack() as stack:
            own = tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(own))
            cluster = stack.enter_context(made(folder))
            yield Trial(self, solver, cluster, folder, self.folder / "train.zarr", moment, rng)

    def try_fault(self, fault: str, solver: str, seed: int) -> float:
        """How far the model's decisions are from the undisturbed one's, over their size. Raises AssertionError."""
        share = random.Random(f"{fault} {solver} {seed}").random()
        made = MADE.get(fault, RelayedCluster)
        with self.trial(solver, share, seed, made) as trial:
            FAULTS[fault](trial)
            found, expected = self.decide(trial), self.decisions[solver]
        return float(np.abs(found - expected).max() / np.abs(expected).max())


def _ended(fit: subprocess.Popen[str], says: str = "") -> str:
    """What a fit that ends well has said."""
    _, said = _communicate(fit)
    if fit.returncode or says not in said:
        raise AssertionError(f"exit status {fit.returncode} of the fit, which said: {said}")
    return said


def _communicate(fit: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return fit.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        fit.kill()
        raise AssertionError(f"the fit had not ended after {LONGEST_S} s") from None


def can_mount() -> bool:
    """Whether a user may have a separate file system, as disk-full needs."""
    return shutil.which("unshare") is not None and subprocess.run(["unshare", "-rm", "true"]).returncode == 0


def table(bench: Bench, faults: list[str], solvers: list[str], trials: int) -> Table:
    for solver in solvers:
        bench.undisturbed(solver, compiled=trials == 1)
    rows, checks = [], []
    for place, fault in enumerate(faults):
        failures, furthest, began = [], 0.0, time.perf_counter()
        for number in range(trials):
            able = [s for s in solvers if fault != "disk-full" or s not in ROOM] or solvers
            solver = able[(place + number) % len(able)]
            try:
                far = bench.try_fault(fault, solver, number)
                furthest, said = max(furthest, far), f"{far:.1e}"
            except AssertionError as error:
                said = " ".join(str(error).split())[-400:]
                failures.append(f"{solver}, trial {number}: {said}")
            print(f"{fault}, trial {number}, {solver}: {said}", file=sys.stderr, flush=True)
        seconds = (time.perf_counter() - began) / trials
        rows.append(
            {
                "fault": fault,
                "trials": trials,
                "equal": trials - len(failures),
                "furthest": f"{furthest:.1e}",
                "a trial": Seconds(seconds),
            }
        )
        print(rows[-1], *failures, sep="\n", file=sys.stderr, flush=True)
        checks.append((f"{fault}: every model as undisturbed ({furthest:.1e})", not failures and furthest <= CLOSE))
    notes = [f"fits of {bench.rows:,} digits on two workers, alternating: {', '.join(solvers)}", *NOTES]
    return Table("Faults", rows, notes, checks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="of each fault")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*SHORT], metavar="FAULT,...")
    parser.add_argument("--solvers", type=lambda text: text.split(","), default=list(SOLVERS), metavar="SOLVER,...")
    parser.add_argument("--rows", type=int, default=6000, metavar="N")
    parser.add_argument("--frozen", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--quick", action="store_true", help="one trial each, 2,000 rows, frozen for 3 s")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    for given, known in ((args.only, FAULTS), (args.solvers, SOLVERS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"{unknown[0]}: expected some of {', '.join(known)}")
    if args.quick:
        args.trials, args.rows, args.frozen = 1, 2000, 3.0
    with tempfile.TemporaryDirectory(prefix="streamsvm-faults-", ignore_cleanup_errors=True) as folder:
        if "disk-full" in args.only and not can_mount():
            args.only.remove("disk-full")
            print("disk-full is left out: no file system can be mounted here (unshare -rm)", file=sys.stderr)
        report = Report(args.out)
        made = table(Bench(Path(folder), args.rows, args.frozen), args.only, args.solvers, args.trials)
        report.add([made])
    sys.exit(not all(met for _, met in made.checks))


if __name__ == "__main__":
    main()
