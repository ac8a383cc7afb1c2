"""The simulated cluster: runs that are known by hand, nothing lost or gained, and records of more rows."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
sys.path.insert(0, str(PIPELINES))
try:
    from simulated_growth import _block_rows, divided, grown
    from simulation import Overheads, Record, Site, Stage, Task, simulate
finally:
    sys.path.remove(str(PIPELINES))

FREE = Overheads()
TAKEN = Overheads(scheduler_s=0.002, worker_s=0.003, leader_s=0.001)


def record(stages, overheads=FREE, n=1000, tail_s=0.0):
    return Record(n, 1, 0.0, 0.0, 64, 1e6, tail_s, overheads, stages)


def tasks(*seconds):
    return [Task(s) for s in seconds]


def seconds(stages, site, overheads=FREE, **more):
    return pytest.approx(simulate(record(stages, overheads, **more), site).seconds)


def fit(n, parts):
    """As the phases of an early fit stand in a record; some times rise with the rows."""
    blocks = n // 100
    rng = np.random.default_rng(n)
    stages = [
        Stage("moments", tasks(*rng.random(blocks)), gap_s=1.0),
        Stage("take", tasks(*rng.random(blocks)), gap_s=1e-4 * n),
        Stage("centres", tasks(0.5), sent=10.0),
        Stage("assign", tasks(*rng.random(blocks)), sent=100.0 * blocks),
        Stage("take", tasks(*rng.random(blocks))),
        Stage("regroup", tasks(*rng.random(blocks // 2)), wait_s=0.2),
        Stage("level 3", sorted(tasks(*rng.random(parts)), reverse=True)),
    ]
    return Record(n, 1, 0.0, 0.0, parts, 1e6 + n, 0.5, TAKEN, stages)


def test_runs_that_are_known_by_hand():
    two = [Stage("a", tasks(1, 2, 3), gap_s=0.5), Stage("b", tasks(1, 1), wait_s=0.25)]
    assert seconds(two, Site(2), tail_s=0.1) == 0.5 + 4 + 0.25 + 1 + 0.1  # the third begins after the first
    assert seconds(two, Site(1, threads=2)) == 5.75
    assert seconds([Stage("a", tasks(1, 3))], Site(2, cores=1)) == 4  # both at half speed until the first ends, at 2
    assert seconds([Stage("a", tasks(1, 1, 1, 1))], Site(4, cores=2)) == 2
    assert seconds([Stage("a", tasks(0, 0, 0))], Site(3), Overheads(scheduler_s=0.1)) == 0.3  # one at a time
    assert seconds([Stage("a", tasks(1, 1), received=20.0)], Site(2, link_bytes_s=10.0)) == 3  # on one link, at once
    assert seconds([Stage("a", [Task(1, moved=10, files=20)])], Site(1, link_bytes_s=10.0)) == 4
    shared = Site(4, link_bytes_s=10.0, files_bytes_s=20.0)
    assert seconds([Stage("a", [Task(1, files=10)] * 4)], shared) == 3  # 40 bytes at 20 a second


def test_a_result_that_waits_for_those_before_it_holds_the_next_back():
    assert seconds([Stage("a", tasks(10, *[1] * 8))], Site(1, threads=2)) == 10
    late = [Stage("a", tasks(20, *[1] * 20))]  # with two threads 16 are under way: fifteen end, the others wait
    assert seconds(late, Site(1, threads=2)) == 23
    assert seconds(late, Site(2, threads=2)) == 20


def test_all_work_is_done_once():
    own = fit(1000, 64)
    for site in (Site(1), Site(3, cores=2), Site(4, threads=8, link_bytes_s=50.0)):
        busy = simulate(own, site).busy_s
        every = [task for stage in own.stages for task in stage.tasks]
        assert busy["workers"] == pytest.approx(sum(task.cpu_s for task in every) + 0.003 * len(every))
        assert busy["scheduler"] == pytest.approx(0.002 * len(every))
        alone = sum(stage.gap_s for stage in own.stages) + own.tail_s
        assert busy["leader"] == pytest.approx(alone + 0.001 * len(every))


def test_more_workers_are_never_slower():
    own = fit(3000, 200)
    took = [simulate(own, Site(workers)).seconds for workers in (1, 2, 3, 5, 8, 13, 40, 300)]
    assert all(after <= before + 1e-9 for before, after in zip(took, took[1:], strict=False))
    assert took[0] > 20 * took[-1]


def test_of_many_tasks_a_part_tells_the_whole():
    own = record([Stage("a", tasks(*np.random.default_rng(0).random(6000)), sent=6e4)], TAKEN)
    whole, part = (simulate(own, Site(20, link_bytes_s=1e6), most=most) for most in (6000, 1000))
    assert part.seconds == pytest.approx(whole.seconds, rel=0.02)
    assert part.busy_s["workers"] == pytest.approx(whole.busy_s["workers"], rel=0.02)


def test_a_record_grows_with_its_rows():
    less, more = fit(500, 32), fit(1000, 64)
    same = grown((less, more), more, 1000)
    assert [stage.tasks for stage in same.stages] == [stage.tasks for stage in more.stages]
    assert simulate(same, Site(2)).seconds == pytest.approx(simulate(more, Site(2)).seconds)
    large = grown((less, more), more, 64_000)
    assert large == grown((less, more), more, 64_000)
    assert (large.parts, large.leader_bytes) == (4096, 1e6 + 64_000)
    assert divided(4096) == [(1, 64), (64, 48)]
    counts = [(stage.name, len(stage.tasks)) for stage in large.stages]
    round_of = [
        ("take", 256),
        ("centres", 1),
        ("assign", 640),
        ("take", 256),
        ("centres", 64),
        ("assign", 640),
    ]
    assert counts == [("moments", 640), *round_of, ("take", 256), ("regroup", 5), ("level 3", 4096)]
    assert _block_rows(10**9) == 16 * _block_rows(10**6)  # of 32 MiB, not of 2
    assert large.stages[0].gap_s == pytest.approx(1.0)
    assert large.stages[3].sent == pytest.approx(64 * 1000)
    assert divided(64) == [(1, 64)]
    assert divided(256) == [(1, 64), (64, 3)]
    assert len(divided(10**6)) == 4
