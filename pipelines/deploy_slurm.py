"""`streamsvm` on the nodes of a SLURM cluster: workers are jobs that dask-jobqueue submits (pip install dask-jobqueue).

    python pipelines/deploy_slurm.py [--config configs/slurm.yaml] [--jobs 4] COMMAND [OPTION ...]
    python pipelines/deploy_slurm.py --jobs 8 fit --store /shared/train.zarr --model model.zarr --run-dir /shared/run
    python pipelines/deploy_slurm.py --print

The configuration holds SLURMCluster's parameters. The scheduler runs where this runs, a login node or a separate job.
Stores and --run-dir lie where all nodes see them. Work begins with the first worker. --print shows the script of
a job and submits none. A script that sbatch would not take ends it with sbatch's words.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from dask_jobqueue import SLURMCluster
from deploy import arguments, streamsvm


def own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=4, metavar="N")
    parser.add_argument("--print", action="store_true", dest="only_print")


def require_taken(script: str) -> None:
    """Exits where sbatch would not take it: adapting, the cluster would try for ever."""
    try:
        tested = subprocess.run(["sbatch", "--test-only"], input=script, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit("there is no sbatch here: expected a host that submits jobs")
    if tested.returncode:
        sys.exit(tested.stderr.strip())


def main() -> None:
    args, settings = arguments(__doc__, "slurm.yaml", own_options)
    with SLURMCluster(**settings) as cluster:
        if args.only_print:
            print(cluster.job_script())
            return
        require_taken(cluster.job_script())
        cluster.adapt(minimum_jobs=args.jobs, maximum_jobs=args.jobs)  # another one where one ends
        sys.exit(streamsvm(args.command, cluster.scheduler_address))


if __name__ == "__main__":
    main()
