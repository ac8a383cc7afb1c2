"""The engine of a fit: threads of this machine, or a cluster."""

from __future__ import annotations

from pathlib import Path

from streamsvm.errors import ConfigError
from streamsvm.events import Events, ignore
from streamsvm.parallel.engine import Engine


def open_engine(
    threads: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    memory_limit: int | None = None,
    events: Events = ignore,
    performance_report: Path | None = None,
) -> Engine:
    """The engine that options ask for: a cluster where a scheduler or workers are given, else threads."""
    if scheduler is None and workers is None:
        if performance_report is not None:
            raise ConfigError(
                f"--performance-report {performance_report}: is of a cluster; give --workers or --scheduler too"
            )
        return Engine(threads)
    from streamsvm.parallel.cluster import open_cluster

    return open_cluster(scheduler, workers, memory_limit, events, performance_report)
