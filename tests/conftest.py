"""Fixtures that several test folders share, and how many examples properties are tried on."""

from __future__ import annotations

import gc
import os
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from every_case import SKIPPED
from hypothesis import settings
from threadpoolctl import threadpool_limits

# how long an example takes is the machine's business
settings.register_profile("quick", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=50, derandomize=True)

MOST = 4  # cases of one test that are run by default

TOGETHER = {  # files that compile the same, for half a minute
    "streams": ("/online/", "models/test_experts.py", "exchange/test_onnx.py"),
    "all kinds": (
        "contracts/test_estimators.py",
        "contracts/test_scikit_learn.py",
        "models/test_models.py",
        "estimators/test_budgeted.py",
        "tasks/test_tasks.py",
    ),
}

LONG = ("pipelines/", "parallel/", "runs/test_in_a_bucket.py", "test_documents.py", "contracts/test_toy_solver.py")

DATA = Path(os.environ.get("STREAMSVM_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--skipped-to",
        type=Path,
        help="write the ids of skipped tests to this file, one a line",
    )
    parser.addoption("--skipped-from", type=Path, help="tests of such a file count as slow: `-m slow` runs them, too")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    ids = {report.nodeid for report in terminalreporter.stats.get("skipped", [])}
    for report in terminalreporter.stats.get("passed", []):
        for name, told in report.user_properties:
            if name == SKIPPED:
                terminalreporter.line(f"SKIPPED in part: {report.nodeid}: {told}")
                ids.add(report.nodeid)
    if config.option.skipped_to:
        config.option.skipped_to.write_text("".join(f"{one}\n" for one in sorted(ids)), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """BLAS has one thread here and in processes of tests: two wait for each other longer than small products take."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    threadpool_limits(1, "blas")  # of NumPy, which a plugin may have imported
    gc.disable()  # a third of the time in which tests are imported went into looking for garbage
    settings.load_profile("quick" if config.getoption("markexpr") == "not slow" else "thorough")


def pytest_collection_finish() -> None:
    gc.freeze()  # what is imported stays
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before slow ones are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with more than MOST cases, so many, evenly spread, are run by default; the others are slow."""
    skipped = config.option.skipped_from
    again = set(skipped.read_text(encoding="utf-8").splitlines()) if skipped else set()
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not item.get_closest_marker("slow"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        kept = set(spread(len(cases), MOST))
        for number, item in enumerate(cases):
            if number not in kept or again.intersection((item.nodeid, item.nodeid.partition("::")[0])):
                item.add_marker("slow")


def spread(n: int, most: int) -> list[int]:
    """At most so many of the numbers below n, the first and the last among them."""
    return list(range(n)) if n <= most else [round(k * (n - 1) / (most - 1)) for k in range(most)]


@pytest.hookimpl(tryfirst=True)  # before the fixtures of the test
def pytest_runtest_setup() -> None:
    """A random_state of None draws from NumPy's generator: the same numbers in every run, whatever ran before."""
    import numpy as np

    np.random.seed(0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Scopes of our own for `--dist loadgroup`; the marks that it goes by are lost by xdist 3.8 under pytest 9.2.

    First come those that compile for others, next those that take long for their number of tests, so that no worker
    has one left when the others have ended.
    """
    from xdist.scheduler import LoadScopeScheduling

    class LongFirst(OrderedDict[str, dict[str, bool]]):
        def popitem(self, last: bool = True) -> tuple[str, dict[str, bool]]:
            scope = max(self, key=lambda own: (own in TOGETHER, any(name in own for name in LONG), len(self[own])))
            return scope, self.pop(scope)

    class ByFile(LoadScopeScheduling):
        def __init__(self, config: pytest.Config, log: Any) -> None:
            super().__init__(config, log)
            self.workqueue = LongFirst()

        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return ByFile(config, log) if config.getvalue("dist") == "loadgroup" else None


def scope_of(nodeid: str) -> str:
    """The tests that go to one worker: a file's, so that its fixtures are made and its kernels compiled once.

    Some files compile the same. Recipes share little and take long: any worker takes the next.
    """
    file, _, test = nodeid.partition("::")
    if file.endswith("test_recipes.py"):
        own = test.partition("[")[0]
        return "pipelines/" + ("foreign_stores.py" if own.endswith(("as_they_are", "as_it_is")) else own)
    return next((name for name, files in TOGETHER.items() if any(own in file for own in files)), file)


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """shared_data(name): a file of real data; skips the test where it is absent."""

    def find(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"needs real data, which STREAMSVM_TEST_DATA names the folder of: {path} is absent")
        return path

    return find
