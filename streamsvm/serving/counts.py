"""What a server counts, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping

from streamsvm.parallel.machine import rss_bytes

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
KIND = "text/plain; version=0.0.4; charset=utf-8"


class Counts:
    """Requests by route and status, and how long they took; only the event loop changes it."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = defaultdict(int)
        self._seconds: dict[str, float] = defaultdict(float)
        self._within: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS_S) + 1))

    def add(self, route: str, status: int, seconds: float) -> None:
        self.requests[route, status] += 1
        self._seconds[route] += seconds
        self._within[route][bisect_left(BOUNDS_S, seconds)] += 1

    def text(self, gauges: Mapping[str, float], totals: Mapping[str, float]) -> str:
        """All of it. gauges, totals: more of them, by name."""
        lines = ["# TYPE streamsvm_requests_total counter"]
        for (route, status), n in sorted(self.requests.items()):
            lines.append(f'streamsvm_requests_total{{route="{route}",status="{status}"}} {n}')
        lines.append("# TYPE streamsvm_request_seconds histogram")
        for route in sorted(self._within):
            lines += self._histogram(route)
        own = {"process_resident_memory_bytes": rss_bytes()}
        for kind, values in (("counter", totals), ("gauge", gauges)):
            named = {f"streamsvm_{name}": value for name, value in values.items()}
            for name, value in (named | (own if kind == "gauge" else {})).items():
                lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"

    def _histogram(self, route: str) -> Iterator[str]:
        name, so_far = "streamsvm_request_seconds", 0
        for bound, n in zip([*map(str, BOUNDS_S), "+Inf"], self._within[route], strict=True):
            so_far += n
            yield f'{name}_bucket{{route="{route}",le="{bound}"}} {so_far}'
        yield f'{name}_sum{{route="{route}"}} {self._seconds[route]:.6f}'
        yield f'{name}_count{{route="{route}"}} {so_far}'
