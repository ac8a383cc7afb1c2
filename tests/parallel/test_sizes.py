"""Values that were sent: their arrays begin where numpy multiplies as it does where they were made."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from every_case import every_case
from scipy import sparse
from sent import arrays, sent

from streamsvm.data.rows import Rows
from streamsvm.parallel.sizes import SizedInBytes, aligned


@dataclass(frozen=True)
class Held(SizedInBytes):
    given: Any


A = np.arange(12.0).reshape(4, 3)
VALUES = {
    "an array": A,
    "of float32": A.astype(np.float32),
    "in a tuple": (1, A, [A, "a"]),
    "by name": {"a": A, 3: None},
    "sparse": sparse.csr_array(A),
    "rows": Held(Rows(A)),
    "sparse rows": Held({0: Rows(sparse.csr_array(A))}),
}


@every_case("offset", [0, 1, 4, 8])
@every_case("name", VALUES)
def test_arrays_are_aligned_where_they_arrive(name, offset):
    found = aligned(sent(VALUES[name], offset))
    assert type(found) is type(VALUES[name])
    pairs = list(zip(arrays(found), arrays(VALUES[name]), strict=True))
    assert pairs
    for own, expected in pairs:
        assert own.flags.aligned
        np.testing.assert_array_equal(own, expected)


def test_an_object_may_change_while_it_is_weighed():
    class Cached:
        def __sizeof__(self):
            vars(held)["later"] = A
            return 100

    held = Held(Cached())
    assert sys.getsizeof(held) >= 100


def test_what_is_aligned_stays_where_it_is():
    found = sent(Held(A), 8)
    assert aligned(found.given) is found.given
    assert not sent(A, 1).flags.aligned  # or the tests above would test nothing
