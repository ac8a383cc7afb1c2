"""Values on the workers of a cluster, and how their results arrive: in order, many small ones at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, takewhile
from typing import Any

from dask.sizeof import sizeof

from streamsvm.parallel.contact import Contact
from streamsvm.progress import EVERY_S, Meter

INLINE_BYTES = 4096  # of a value that goes with its task, through the scheduler; smaller ones are small here
TOGETHER_BYTES = 1 << 20  # of results that are fetched at once
FIRST = 4  # results at once before the size of one is known


class Remote:
    """A value on the workers, and how to make it (again, if it was lost)."""

    def __init__(self, make: Callable[[], Any], future: Any = None) -> None:
        self._make, self._future = make, future

    @property
    def future(self) -> Any:
        if self._future is None or self._future.status in ("cancelled", "lost"):
            self._future = self._make()
        return self._future

    @property
    def pending(self) -> Any:
        """The future of what is not made yet; None if there is nothing to wait for."""
        return self._future if self._future is not None and self._future.status == "pending" else None

    @property
    def is_finished(self) -> bool:
        return self._future is not None and self._future.status == "finished"

    @property
    def has_failed(self) -> bool:
        """Whether making it has raised an error."""
        return self._future is not None and self._future.status == "error"

    def forget(self) -> None:
        self._future = None


class Arrivals:
    """The results of tasks, taken in the order in which the tasks were begun; `meter` counts them as they end.

    fetch: the result of the first of tasks, whatever happens to workers; it ensures that all of them are running.
    """

    def __init__(self, contact: Contact, fetch: Callable[[Sequence[Remote]], Any], meter: Meter) -> None:
        self._contact, self._fetch, self._meter = contact, fetch, meter
        self._begun, self._taken, self._largest = deque[Remote](), 0, 0

    def __len__(self) -> int:
        return len(self._begun)

    @property
    def are_small(self) -> bool:
        return 0 < self._largest <= INLINE_BYTES

    def add(self, tasks: Iterable[Remote]) -> None:
        self._begun.extend(tasks)

    def take(self, most: int) -> list[Any]:
        """The next results: at least one, and at most so many, where they are small. Raises what the task raised."""
        together = max(1, TOGETHER_BYTES // self._largest) if self._largest else FIRST
        most = min(most, together, len(self))
        self._wait(most - 1)
        found = self._together(most) or [self._fetch(self._begun)]
        for result in found:
            self._begun.popleft()
            self._meter.end(self._taken)  # as `_tell` did, unless its worker was lost
            self._taken += 1
            self._largest = max(self._largest, sizeof(result))
        return found

    def _wait(self, last: int) -> None:
        """Waits for the next result, and a little longer for those up to `last`."""
        self._wait_for(self._begun[last], EVERY_S)
        while self._begun[0].pending is not None:
            self._wait_for(self._begun[0], EVERY_S)

    def _wait_for(self, task: Remote, seconds: float) -> None:
        future = task.pending
        if future is not None:
            self._contact.wait(future, seconds)
        self._tell()

    def _tell(self) -> None:
        """Counts tasks in the order in which they end, which is not that of their results."""
        for number, task in enumerate(self._begun, self._taken):
            if task.is_finished:
                self._meter.end(number)

    def _together(self, most: int) -> list[Any]:
        """Finished results, fetched at once; none if that fails, as then each is fetched by itself."""
        ready = [*takewhile(lambda task: task.is_finished, islice(self._begun, most))]
        if len(ready) < 2:
            return []
        try:
            return self._contact.results([task.future for task in ready])
        except Exception:
            return []
