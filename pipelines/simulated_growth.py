"""What a fit of more rows would be recorded as, by what two smaller ones were: for `simulate.py`."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from statistics import mean
from typing import NamedTuple

import numpy as np
from measure import Failed
from scale_table import COLUMNS
from simulation import Record, Stage, Task, stretched

from streamsvm.data.regroup import file_bytes
from streamsvm.data.samples import SamplesInStore
from streamsvm.data.scaling import Scaling
from streamsvm.data.store import Store
from streamsvm.kernels.division import FEW_BLOCKS
from streamsvm.parallel.cluster import REDUCED_A_SLOT

MOST_CENTRES, SAMPLED, OF_A_CENTRE = (
    64,
    1000,
    64,
)  # `kernels/division.py`: of one k-means, and rows that it sees: in all, for each
MOST_LEAVES, MANY_SLOTS = 16, 100  # of a task that fits centres; as on so many threads
POWER = 0.7  # of rows and centres, by which k-means grows: 64 parts took 0.15 s at 3 centres, 2.1 at 10, 5.5 at 38
# of k-means, of a pass, of files of rows by part, of the parts of as many rows whatever n
CENTRES, ASSIGN, REGROUP, BOUND = "centres", "assign", "regroup", "taken"
PICK, RANKS = "take", "at_ranks"  # of rows picked from blocks: by number, and by their places in parts
MOMENTS = "scale"  # of blocks, merged: three tasks for some neighbours, those of as many slots as centres have
LEAF_BYTES = 4  # of a leaf in what a block's task tells of the rows in each
SEED = 0


def grown(leads: tuple[Record, Record], more: Record, n: int) -> Record:
    """What n rows would be recorded as, by what a fit was whose partitions have as many rows; what the leader takes
    grows as between the fits `leads`."""
    rng, factor = np.random.default_rng(SEED), n / more.n
    before, rounds, after = _parted(more.stages)
    merge, in_all = _block_rows(n) / _block_rows(more.n), round(more.parts * factor)
    had, wanted = divided(more.parts)[: len(rounds)], divided(in_all)
    of_centres = [next(stage for stage in own if stage.name == CENTRES) for own in rounds[: len(had)]]
    larger = _file_rows(n, in_all) / _file_rows(more.n, more.parts)
    stages = [
        _many(stage, factor, SAMPLED, rng, _fewer(stage, n, factor) if stage.name == MOMENTS else merge)
        for stage in before
    ]
    leaves = [*(own.parts for own in wanted), in_all]
    for number, own in enumerate(wanted):
        for stage in rounds[min(len(had) - 1, number)]:
            if stage.name == CENTRES:
                stages.append(_fitted(dict(zip(had, of_centres, strict=True)), own))
                continue
            many = _many(stage, factor, SAMPLED * own.parts, rng, merge)
            if stage.name == ASSIGN:
                received = LEAF_BYTES * leaves[number + 1] * len(many.tasks)
                many = replace(many, received=max(many.received, received))
            stages.append(many)
    late = [stage for own in rounds[len(had) :] for stage in own]  # of few parts, that are too large still
    stages += [_many(stage, factor, math.inf, rng, merge) for stage in late]
    stages += [_many(stage, factor, SAMPLED, rng, larger if stage.name == REGROUP else 1.0) for stage in after]
    # long tasks come with what a process does by the clock: the least of all is what a task takes
    gaps, waits, each = ([_means(own, what) for own in leads] for what in ("gap_s", "wait_s", "lead_s"))

    def at(here: float, few: float, many: float) -> float:
        slope = max(0.0, (many - few) / (leads[1].n - leads[0].n))
        return max(0.0, here + slope * (n - more.n))

    stages = [
        replace(
            own,
            lead_s=min([own.lead_s, *(found[_kind(own.name)] for found in each if _kind(own.name) in found)]),
            gap_s=at(_gap(more, own.name), *(found.get(_kind(own.name), 0.0) for found in gaps)),
            wait_s=min([own.wait_s, *(found[_kind(own.name)] for found in waits if _kind(own.name) in found)]),
        )
        for own in stages
    ]
    memory = at(more.leader_bytes, *(own.leader_bytes for own in leads))
    tail_s = at(more.tail_s, *(own.tail_s for own in leads))
    return replace(more, n=n, parts=in_all, stages=stages, leader_bytes=memory, tail_s=tail_s)


def _parted(stages: list[Stage]) -> tuple[list[Stage], list[list[Stage]], list[Stage]]:
    """What stands before the rounds that divide, each round, and what comes after them."""
    names = [stage.name for stage in stages]
    if not {CENTRES, ASSIGN} <= set(names):
        raise Failed(f"stages {CENTRES} and {ASSIGN} are not in the record, found {', '.join(names)}")
    first, ends = names.index(CENTRES), [i + 1 for i, name in enumerate(names) if name == ASSIGN]
    first -= names[first - 1] == PICK
    rounds = [stages[start:end] for start, end in pairwise([first, *ends])]
    return stages[:first], rounds, stages[ends[-1] :]


class Round(NamedTuple):
    """Parts that a round divides, and centres of each."""

    parts: int
    centres: int

    @property
    def work(self) -> float:
        """Of k-means, for a part: `POWER` of rows and centres."""
        rows = SAMPLED if self.parts == 1 else min(SAMPLED, OF_A_CENTRE * self.centres)
        return float(rows * self.centres) ** POWER


def _fitted(had: dict[Round, Stage], own: Round) -> Stage:
    """The centres of a round, by those of the round that is most like it."""
    like = min(had, key=lambda round: abs(math.log(own.work / round.work)))
    stage = had[like]
    if like == own:
        return stage
    together = max(1, min(MOST_LEAVES, own.parts // (4 * MANY_SLOTS)))
    of_a_leaf = [sum(values) / like.parts for values in zip(*stage.tasks, strict=True)]
    cpu_s, *moved = (together * value for value in of_a_leaf)
    task = Task(cpu_s * own.work / like.work, *moved)
    bytes_of = own.parts / like.parts
    tasks = [task] * math.ceil(own.parts / together)
    return replace(stage, tasks=tasks, sent=stage.sent * bytes_of, received=stage.received * bytes_of)


def _block_rows(n: int) -> int:
    """Of a block of so many of these rows, or as many as fill one."""
    blocks = Store.from_arrays(np.broadcast_to(np.float32(0), (max(n, 1 << 20), COLUMNS))).blocks()
    return blocks[0][1]


def _file_rows(n: int, parts: int) -> float:
    """Of a file of rows by part."""
    samples = SamplesInStore(Store.from_arrays(np.broadcast_to(np.float32(0), (n, COLUMNS))), Scaling.none(COLUMNS))
    return min(n, file_bytes(samples, parts) / (4 * COLUMNS))


def _many(stage: Stage, times: float, most: float, rng: np.random.Generator, merge: float = 1.0) -> Stage:
    """Of so many times the tasks; of those that pick rows, at most so many, and from so many blocks as `division` does.
    merge: how many of them are one."""
    if stage.name == BOUND:
        return stage
    had = len(stage.tasks)
    wanted = min(had * times, most if stage.name == PICK else math.inf)
    count = max(1, round(wanted / merge))
    if stage.name in (PICK, RANKS):
        count = min(count, FEW_BLOCKS)
    sent, received = stage.sent * wanted / had, stage.received * wanted / had
    tasks = [Task(*(merge * value for value in task)) for task in stretched(stage.tasks, count, rng)]
    return replace(stage, tasks=tasks, sent=sent, received=received)


def _fewer(stage: Stage, n: int, times: float) -> float:
    """How many tasks of a reduction over blocks are one, of so many times the rows, n: as of `ClusterEngine`."""
    blocks = math.ceil(n / _block_rows(n))
    together = 1 << max(0, (blocks // (REDUCED_A_SLOT * MANY_SLOTS)).bit_length() - 1)
    return len(stage.tasks) * times / (3 * math.ceil(blocks / together))


def _kind(name: str) -> str:
    """Of stages: those of all levels are alike."""
    return name.rstrip("0123456789 ")


def _means(record: Record, what: str) -> dict[str, float]:
    """Of the leading process, on average before a stage of a kind."""
    found: dict[str, list[float]] = {}
    for stage in record.stages:
        found.setdefault(_kind(stage.name), []).append(getattr(stage, what))
    return {name: mean(own) for name, own in found.items()}


def _gap(record: Record, name: str) -> float:
    return _means(record, "gap_s")[_kind(name)]


def divided(n_parts: int) -> list[Round]:
    """Rounds of `kernels.division.partition`, where all partitions of a round are as large."""
    found = [Round(1, min(n_parts, MOST_CENTRES))]
    while n_parts > 2 * (parts := found[-1].parts * found[-1].centres):  # a part is at most twice an even share
        found.append(Round(parts, min(max(2, math.ceil(0.75 * n_parts / parts)), MOST_CENTRES)))
    return found
