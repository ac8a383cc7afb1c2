"""What the C library does with memory in workers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FAULTS = """
import resource
from streamsvm.parallel.heaps import in_worker

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        bytearray(1 << 20)  # 256 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(), in_worker(faults))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
@pytest.mark.parametrize(("trim", "is_kept"), [("65536", True), ("70000", False)])
def test_memory_stays_unless_the_user_says_otherwise(trim, is_kept):
    ran = subprocess.run(
        [sys.executable, "-c", FAULTS],
        capture_output=True,
        text=True,
        env=os.environ | {"MALLOC_TRIM_THRESHOLD_": trim},
        check=True,
    )
    before, within = map(int, ran.stdout.split())
    assert before > 40_000
    assert (within < 4_000) == is_kept
