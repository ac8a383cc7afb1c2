"""What a fit will take: carried on from small fits."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import samples

from streamsvm import dry_run
from streamsvm.choosing.choices import with_choices
from streamsvm.config import FitConfig, build_config
from streamsvm.data.store import Store
from streamsvm.dry_run import SEARCH_POWER, Costs, Machines, Pilot, SearchCost, does_not_fit, estimate, grown, measure
from streamsvm.search.options import completed
from streamsvm.train import train_in_memory

N = 3_000


def data(is_sparse: bool = False) -> Store:
    rng = np.random.default_rng(0)
    X = samples(N, 4, is_sparse=is_sparse, seed=1).X
    return Store.from_arrays(X, rng.choice(["a", "b", "rare"], N, p=[0.5, 0.498, 0.002]), qid=None)


@given(
    factor=st.floats(1e-3, 1e3),
    power=st.floats(1.0, 2.5),
    sizes=st.lists(st.integers(10, 10**6), min_size=2, max_size=4, unique=True).map(sorted),
    more=st.integers(2, 1000),
)
def test_a_power_law_is_carried_on(factor, power, sizes, more):
    n = sizes[-1] * more
    assert grown(sizes, [factor * m**power for m in sizes], n) == pytest.approx(factor * n**power, rel=1e-6)


def test_what_grows_slower_than_the_rows_is_carried_on_by_a_line():
    assert grown([100, 200], [1.1, 1.2], 1000) == pytest.approx(2.0)  # 1 + n / 1000
    assert grown([100, 200], [3.0, 2.0], 1000) == 2.0
    assert grown([100, 200], [0.0, 0.0], 1000) == 0.0
    assert grown([100], [2.0], 1000) == 20.0


def costs(**more) -> Costs:
    pilots = [Pilot(m, {"solve": m / 100, "save": 1.0}, 3 * m, 0, m // 10, 4, (100 + m) << 20) for m in (100, 200)]
    facts = {
        "solver": "dcsvm",
        "d": 5,
        "columns": 1,
        "row_bytes": 20.0,
        "spooled_row_bytes": 20.0,
        "block_rows": 50,
        "read_bytes_s": 1e6,
    }
    facts |= {"threads": 2, "start_s": 3.0, "base_bytes": 100 << 20, "divided": None, "pilots": pilots}
    facts |= {"limit_bytes": 1 << 40, "is_spread": True}
    return Costs(**(facts | more))


def test_a_limit_does_not_hide_what_a_fit_takes(monkeypatch):
    """What is said is not cut at the limit; an exact model's support vectors have to be held."""
    monkeypatch.setattr("streamsvm.dry_run.measure", lambda *args: costs(spooled_row_bytes=1 << 20))
    found = estimate(data(), build_config(("test", {"memory_limit": 300 << 20})), 1.0, 0.0)
    assert found["peak_rss_bytes_estimated"] == (100 + N) << 20
    assert found["limit_bytes"] == 300 << 20
    assert not found["fits"]  # 300 support vectors of 1 MiB, twice, beside the 100 MiB of a process
    assert re.search("does not fit .* 300 MiB.* give at least 701 MiB, or --early", does_not_fit(found))
    early = costs(spooled_row_bytes=1 << 20, divided=100)
    assert early.least_bytes(N) < 101 << 20


def test_workers_share_what_they_can():
    alone, shared = costs().at(1000, Machines(0, 2)), costs().at(1000, Machines(4, 2))
    assert alone["seconds_estimated_by_phase"] == pytest.approx(
        {"solve": 10.0, "save": 1.0, "read store": 0.06, "scratch": 0.0, "start": 3.0}
    )
    assert shared["seconds_estimated_by_phase"]["solve"] == pytest.approx(2.5)
    assert shared["seconds_estimated_by_phase"]["save"] == 1.0
    assert shared["seconds_estimated_by_phase"]["read store"] == pytest.approx(0.02)  # once more, regrouped
    assert shared["scratch_bytes_estimated"] == 1000 * 20
    assert alone["network_bytes_estimated"] == 0
    assert shared["network_bytes_estimated"] == 100 * (20 + 12 + 8)  # 100 support vectors
    assert alone["store_read_bytes_estimated"] == 60_000
    assert alone["peak_rss_bytes_estimated"] == (100 + 1000) << 20
    assert alone["n_support_estimated"] == 100


def test_rows_beyond_memory_are_written_and_read_by_their_parts():
    found = costs(limit_bytes=1 << 20).at(1000, Machines(0, 2))
    assert found["scratch_bytes_estimated"] == 1000 * 20
    assert found["store_read_bytes_estimated"] == 80_000


def test_regions_are_written_once_more_and_small_fits_have_told_what_that_takes():
    one, many = (costs(solver="bsgd", is_spread=spread).at(1000, Machines(0, 2)) for spread in (False, True))
    assert one.pop("scratch_bytes_estimated") == 0
    assert many.pop("scratch_bytes_estimated") == 1000 * (20 + 6)  # with a number and a code
    assert one == many


def test_a_single_problem_is_not_shared():
    found = costs(solver="alfpgm", is_spread=False).at(1000, Machines(4, 2))
    assert found["seconds_estimated_by_phase"]["solve"] == pytest.approx(10.0)


def test_beyond_the_division_all_grows_with_the_rows():
    quadratic = [Pilot(m, {"solve": m**2 / 1e4}, m, 0, m, 4, 1 << 20) for m in (100, 200)]
    one, many = (costs(pilots=quadratic, divided=1000).at(n, Machines(0, 2)) for n in (1000, 10_000))
    assert one["seconds_estimated_by_phase"]["solve"] == pytest.approx(100.0)
    assert many["seconds_estimated_by_phase"]["solve"] == pytest.approx(1000.0)


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize(
    "options",
    [
        {"dcsvm": {"early": True, "levels": 2}},
        {"dcsvm": {"levels": 1}},
        {"solver": "alfpgm"},
        {"solver": "bsgd", "bsgd": {"budget": 50}, "holdout": N // 2},
        {"solver": "cutting-plane", "kernel": {"name": "linear"}},
        {"solver": "admm-hss", "hss": {"iterations": 5}},
    ],
    ids=lambda options: options.get("solver", "dcsvm"),
)
@pytest.mark.slow  # small fits by every solver
def test_every_solver_is_measured_on_small_fits_that_have_all_classes(options):
    config = build_config(("test", options))
    found = measure(data(), config, 60.0)
    assert [pilot.n for pilot in found.pilots][-1] == N // 2
    assert all(pilot.rows_read >= pilot.n for pilot in found.pilots)
    phases = train_in_memory(data(), config)[1]["seconds_by_phase"]
    assert set(phases) - {"compile"} <= {name for pilot in found.pilots for name in pilot.seconds}
    estimated = estimate(data(), config.model_copy(update={"memory_limit": 1 << 40}), 1e-9, 2.0)
    assert estimated["seconds_estimated"] > 2.0
    assert len(estimated["pilots"]) == 1  # the least, as no time is given


def test_sparse_rows_weights_and_queries_come_along():
    X = samples(N, 4, is_sparse=True, seed=1).X
    rng = np.random.default_rng(0)
    store = Store.from_arrays(X, rng.integers(0, 3, N), sample_weight=rng.random(N) + 0.5, qid=np.arange(N) // 10)
    config = FitConfig(solver="cutting-plane", kernel={"name": "linear"})
    assert measure(store, config, 1e-9).at(N, Machines(2, 1))["network_bytes_estimated"] > 0


def test_a_small_store_is_its_own_pilot():
    store = Store.from_arrays(samples(60, 3).X, np.arange(60) % 2)
    assert [pilot.n for pilot in measure(store, FitConfig(), 5.0).pilots] == [60]


@pytest.mark.slow  # a search, and small fits
def test_one_search_beforehand_chooses_for_all_small_fits(monkeypatch):
    """They have what it chose: a search in each would take longer than the fit."""
    searches = []

    def counting(prepared, context):
        searches.append(prepared.store.n)
        return with_choices(prepared, context)

    monkeypatch.setattr("streamsvm.train.with_choices", counting)
    monkeypatch.setattr("streamsvm.dry_run.SEARCH_ROWS", 250)
    config = completed([("t", {"search": {"sample": 600}, "threads": 1})])
    found = estimate(data(), config, 1.0, 0.0)
    assert searches == [1000]  # as dense to 250 as 3,000 are to 600
    assert found["chosen"].keys() >= {"kernel", "gamma", "C", "scale", "metric", "early"}
    by_phase = found["seconds_estimated_by_phase"]
    assert by_phase["search"] > 0
    assert sum(by_phase.values()) == pytest.approx(found["seconds_estimated"])
    assert all(p["seconds"] < by_phase["search"] for p in found["pilots"])


@pytest.mark.slow  # a search, and small fits
def test_a_time_budget_ends_what_would_take_longer():
    config = completed([("t", {"search": {"time_budget": 5, "sample": 200}, "threads": 1})])
    assert estimate(data(), config, 1e-9, 100.0)["seconds_estimated"] == 5.0


def test_a_search_grows_with_its_sample_up_to_its_most_rows():
    choice = SearchCost(6_000, {"search": 2.0, "regions": 3.0}, FitConfig(), {})
    assert choice.grown(6_000, 20_000) == {"search": 2.0, "regions": 3.0}
    assert choice.grown(10**6, 20_000) == choice.grown(20_000, 20_000)
    assert choice.grown(20_000, 20_000)["search"] == pytest.approx(2.0 * (20 / 6) ** SEARCH_POWER)
    assert costs(choice=choice, sample=6_000).at(1000, Machines(0, 2))["seconds_estimated_by_phase"]["regions"] == 3


def test_a_budget_is_what_search_and_fit_may_take_and_not_what_they_do():
    choice = SearchCost(6_000, {"search": 2.0}, FitConfig(), {})
    long, short = (
        costs(choice=choice, sample=20_000, budget_s=budget_s).at(10_000, Machines(0, 2)) for budget_s in (500, 106)
    )
    assert long["seconds_estimated_by_phase"]["search"] == pytest.approx(2.0 * (10 / 6) ** SEARCH_POWER)
    assert long["seconds_estimated"] < 110
    assert short["seconds_estimated"] == pytest.approx(106)


def test_search_and_pilots_end_within_the_seconds_they_are_given(monkeypatch):
    """A second for both: a search that has begun ends at its next step, and pilots as they are."""
    ends: list[tuple[str, float]] = []
    for name in ("planned_fit", "fit_models"):
        original = getattr(dry_run, name)

        def noted(store, config, run, original=original, name=name):
            ends.append((name, run.until - began))
            return original(store, config, run)

        monkeypatch.setattr(dry_run, name, noted)
    monkeypatch.setattr(dry_run, "time", SimpleNamespace(time=lambda: began, perf_counter=time.perf_counter))
    began = time.time() + 100  # that it takes longer to get here changes nothing
    options = {
        "threads": 1,
        "metric": {"kind": "none"},
        "kernel": {"name": "rbf"},
        "search": {"options": ["C"]},
    }
    measure(Store.from_arrays(samples(400, 3).X, np.arange(400) % 2), completed([("t", options)]), 3.0)
    assert ends[0] == ("planned_fit", pytest.approx(3.0))
    assert ends[1:] == [("fit_models", pytest.approx(3.0))] * (len(ends) - 1)
    assert len(ends) > 2
