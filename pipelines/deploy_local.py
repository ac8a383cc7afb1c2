"""A cluster on this machine that outlives one command: `streamsvm` on dask's LocalCluster.

    python pipelines/deploy_local.py [--config configs/local.yaml] COMMAND [OPTION ...]
    python pipelines/deploy_local.py fit --store train.zarr --model model.zarr --early

The configuration holds LocalCluster's parameters. For a single command, its own --workers does the same.
"""

from __future__ import annotations

import sys

from deploy import arguments, streamsvm
from distributed import LocalCluster


def main() -> None:
    args, settings = arguments(__doc__, "local.yaml")
    with LocalCluster(**settings) as cluster:
        sys.exit(streamsvm(args.command, cluster.scheduler_address))


if __name__ == "__main__":
    main()
