"""`streamsvm` on Kubernetes: the pods of a DaskCluster, made by dask's operator (pip install dask-kubernetes).

    python pipelines/deploy_kubernetes.py [--config configs/kubernetes.yaml] [--namespace default] COMMAND [OPTION ...]
    python pipelines/deploy_kubernetes.py fit --store s3://bucket/train.zarr --model /models/m.zarr

The configuration is the custom resource itself, which `kubectl apply -f` takes too; its image has to have streamsvm
and Python of the same versions as here. This runs in a pod of the same cluster, for it speaks with the workers
directly; stores are in object storage, the model goes to a volume of this pod.
"""

from __future__ import annotations

import argparse
import sys

from dask_kubernetes.operator import KubeCluster
from deploy import arguments, streamsvm


def own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", default="default")


def main() -> None:
    args, resource = arguments(__doc__, "kubernetes.yaml", own_options)
    with KubeCluster(custom_cluster_spec=resource, namespace=args.namespace) as cluster:
        sys.exit(streamsvm(args.command, cluster.scheduler_address))


if __name__ == "__main__":
    main()
