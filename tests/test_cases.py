"""How tests come by their cases: covers of crossed axes, and tables whose rows are all tried."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import combinations, product

import pytest
from every_case import SKIPPED, every_case
from pairwise import pairwise


def test_a_cover_has_every_two_values_together():
    axes = (range(4), "abc", [None, 0.5], [True, False])
    cases = pairwise(*axes)
    for i, j in combinations(range(len(axes)), 2):
        assert {(case[i], case[j]) for case in cases} == set(product(axes[i], axes[j]))
    assert 12 <= len(cases) <= 14
    assert cases[0] == (0, "a", None, True)
    assert cases == pairwise(*axes)


def test_two_axes_are_crossed():
    assert pairwise("ab", (1, 2)) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


def test_every_case_is_tried_in_its_folder_and_those_that_fail_are_named(tmp_path):
    tried = []

    @every_case(("a", "b"), [(1, 1), (2, 3), (4, 5)])
    def test(tmp_path, a, b):
        tried.append((a, *tmp_path.iterdir()))
        (tmp_path / "left").touch()
        assert a == b

    with pytest.raises(BaseExceptionGroup, match="2 of 3 cases failed") as failed:
        test(tmp_path=tmp_path)
    assert tried == [(1,), (2,), (4,)]
    assert ["{'a': 2, 'b': 3}" in note for error in failed.value.exceptions for note in error.__notes__] == [
        True,
        False,
    ]


@every_case("a", [1, 2])
@every_case("b", [3, 4])
def test_tables_are_crossed(a, b, request):
    assert request.node.name == "test_tables_are_crossed"
    assert 4 <= a + b <= 6


@pytest.mark.parametrize(("skipping", "is_skipped"), [((1,), False), ((1, 2), True)])
def test_a_table_is_skipped_where_all_of_its_cases_are(skipping, is_skipped):
    tried, recorded = [], []

    @every_case("a", [1, 2])
    def test(a):
        tried.append(a)
        if a in skipping:
            pytest.skip("no such library")

    with pytest.raises(pytest.skip.Exception, match="^no such library$") if is_skipped else nullcontext():
        test(record_property=lambda *named: recorded.append(named))
    assert tried == [1, 2]
    assert recorded == ([] if is_skipped else [(SKIPPED, "1 of 2 cases: no such library")])
