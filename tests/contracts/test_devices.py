"""A fit on a device is that of the CPU: every solver, kernel and task, by the strict namespace of the array API."""

from __future__ import annotations

import json
import sys

import label_sets
import numpy as np
import pytest
from cases import SMALL, SOLVERS, VARIANTS, WITHOUT_LABELS, config, labelled
from clusters import inside
from commands import run
from contracts.test_kernels import PAIRS, asked
from devices import strict, torch_cpu
from making import write
from scipy import sparse

from streamsvm import DCSVC, DCSVR, Store
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.events import STEPS, Events
from streamsvm.kernels.table import KERNELS
from streamsvm.parallel.devices import open_device
from streamsvm.train import plan, train, train_in_memory

NONLINEAR = [(solver, name) for solver, name in PAIRS if not KERNELS[name].is_linear]
DEVICE = {"device": "cuda"}
REGISTERED = {solver for solver in SOLVERS if solver not in (*SMALL, "dcsvm early", "landmarks")}  # as a test has them
CPU_ONLY = ("bsgd", "one learner", "one class on a budget")  # their steps have few values each
# of decisions, over their spread: of solvers that end by a tolerance, not at the same numbers
DIFFERENCE = {"alfpgm": 0.02, "admm-hss": 0.02, "landmarks": 0.02}
# where the usual one leaves the decisions to the order of sums
TOL = {"landmarks": 1e-6, "one class by planes": 1e-6, "nu": 1e-6, "against the rest": 1e-5}


@pytest.fixture
def device(monkeypatch):
    """What the name cuda opens here."""
    made = strict()

    def opened(name, memory=None):
        return None if name == "cpu" else made

    for place in ("fits.devices", "estimators.base", "cli.options"):
        monkeypatch.setattr(f"streamsvm.{place}.open_device", opened)
    return made


def require_same(made, device, name, X, y):
    store, solver = Store.from_arrays(X, y), name.split(",")[0]
    made = made.model_copy(update={"tol": TOL.get(solver, made.tol)})
    model, report = train_in_memory(store, made)
    assert device.values == 0
    other, other_report = train_in_memory(store, made.model_copy(update=DEVICE))
    assert other_report["device"] == "strict"
    if name not in CPU_ONLY and name not in REGISTERED:
        assert device.values > len(X)
    if report["objective"] is not None:
        assert other_report["objective"] == pytest.approx(report["objective"], rel=1e-4)
    f, g = (some.decision_function(Rows(X)) for some in (model, other))
    most = DIFFERENCE.get(solver, 2e-3)
    np.testing.assert_allclose(f, g, atol=most * np.std(f))


@pytest.mark.parametrize(("solver", "name"), NONLINEAR)
def test_a_fit_is_the_same_under_every_kernel(solver, name, device):
    require_same(asked(solver, name), device, solver, *labelled(3, n=240))


KINDS = [name for name in (*VARIANTS, *WITHOUT_LABELS) if "several labels" not in name]


@pytest.mark.parametrize("name", KINDS)
def test_a_fit_is_the_same_of_every_kind(name, device):
    require_same(config(name), device, name, *labelled(3, n=240))


@pytest.mark.parametrize("task", ["regress", "multilabel"])
def test_a_fit_is_the_same_of_every_task(task, device):
    X, y = labelled(3, n=240)
    y = label_sets.texts(label_sets.rows()[1]) if task == "multilabel" else y.astype(float) if task == "regress" else y
    require_same(config("dcsvm", task=task, tol=1e-5), device, task, X, y)


def test_early_models_predict_on_a_device(device):
    X, y = labelled(3, n=240)
    for made in (DCSVC(C=5.0, gamma=0.5, early=True, levels=1, part_rows=90), DCSVR(gamma=0.5)):
        fitted = made.fit(X, y)
        expected = fitted.predict(X)
        assert device.values == 0
        np.testing.assert_allclose(fitted.set_params(device="cuda").predict(X), expected, atol=1e-4)
        assert device.values > 0
        device.values = 0


def test_commands_compute_on_a_device(device, tmp_path, capsys):
    X, y = labelled(3, n=240)
    write(tmp_path / "rows.zarr", Rows(X), y, step=100)
    store, model = ("--store", tmp_path / "rows.zarr"), ("--model", tmp_path / "model")
    fit = ("fit", *store, *model, "--no-search", "--early", "--gamma", "0.5", "--json")
    assert run(*fit, "--device", "cuda", "--run-dir", tmp_path / "run") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["device"] == "strict"
    assert report["device_memory_bytes"] == device.memory
    assert report["device_values_per_s"] > 0
    before = device.values
    for command in (("predict", "--out", tmp_path / "a.csv"), ("evaluate",), ("explain",)):
        assert run(*command, *store, *model, "--device", "cuda") == 0, command
        assert device.values > before, command
        before = device.values
    capsys.readouterr()
    assert run("fit", *store, "--no-search", "--dry-run", "--pilot", "0", "--device", "cuda") == 0
    assert "device" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kernel": {"name": "linear"}}, "device cuda is not used: sums of the linear kernel are rows"),
        ({"device": "auto"}, None),
    ],
)
def test_a_device_that_has_nothing_to_do_is_not_used(values, message, device, recwarn):
    X, y = labelled(2, n=240)
    _, report = train_in_memory(Store.from_arrays(X, y), config("dcsvm", **DEVICE | values))
    assert "device" not in report
    messages = [str(warning.message) for warning in recwarn]
    assert message is None or any(text.startswith(message) for text in messages)
    assert message or not messages


def test_sparse_rows_are_the_cpus(device):
    X, y = labelled(2, n=240)
    with pytest.warns(UserWarning, match="device cuda is not used: the rows are sparse"):
        _, report = train_in_memory(Store.from_arrays(sparse.csr_array(X), y), config("dcsvm", **DEVICE))
    assert "device" not in report


def test_a_plan_says_the_device(device):
    X, y = labelled(2, n=240)
    facts = plan(Store.from_arrays(X, y), config("dcsvm", **DEVICE))
    assert (facts["device"], facts["device_memory_bytes"]) == ("strict", device.memory)


def test_workers_without_the_device_compute_on_their_cpus(device):
    X, y = labelled(2, n=240)
    store, made = Store.from_arrays(X, y), config("dcsvm early")
    expected, _ = train_in_memory(store, made)
    with (
        inside(2) as address,
        pytest.warns(
            UserWarning, match="2 of 2 workers compute on their CPUs, for example tcp.*: found device 'strict'"
        ),
    ):
        model, _ = train_in_memory(store, made.model_copy(update=DEVICE | {"scheduler": address}))
    np.testing.assert_allclose(model.decision_function(Rows(X)), expected.decision_function(Rows(X)), atol=1e-3)


def test_workers_compute_on_their_device():
    X, y = labelled(2, n=240)
    store, made = Store.from_arrays(X, y), config("dcsvm early")
    device = torch_cpu(None)
    expected, _ = train_in_memory(store, made)
    with inside(2) as address:
        model, _ = train_in_memory(store, made.model_copy(update={"device": "torch:cpu", "scheduler": address}))
    assert device.values > 0  # of the same process, here
    np.testing.assert_allclose(model.decision_function(Rows(X)), expected.decision_function(Rows(X)), atol=1e-3)


def test_a_run_resumed_elsewhere_says_so(device, tmp_path):
    X, y = labelled(2, n=240)
    store, made = Store.from_arrays(X, y), config("dcsvm", checkpoint_every="1 step", tol=1e-7, **DEVICE)
    left = 3

    def interrupt(record) -> None:
        nonlocal left
        left -= isinstance(record.event, STEPS)
        if left == 0:
            raise KeyboardInterrupt

    places = {"model_path": tmp_path / "model", "run_dir": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        train(store, made, **places, events=Events(interrupt))
    with pytest.warns(UserWarning, match="was computed on strict, and this run computes on cpu: the objective is"):
        train(store, config("dcsvm", tol=1e-7), **places, resume=True)


@pytest.mark.parametrize(
    ("name", "memory", "message"),
    [
        ("cuda", None, "PyTorch .* finds no cuda device.*; expected one of .*cpu"),
        ("mps", None, "PyTorch .* finds no mps device.*; expected one of .*cpu"),
        ("torch:cpu", 1 << 20, "free memory, of which 1.0 MiB may be used; expected at least 64.0 MiB"),
        ("gpu", None, "found device 'gpu', expected auto, cpu, cuda"),
    ],
)
def test_a_device_that_cannot_be_used_is_one_line(name, memory, message):
    torch_cpu()
    with pytest.raises(ConfigError, match=message) as raised:
        open_device(name, memory)
    assert "\n" not in str(raised.value)


def test_a_device_that_cannot_be_used_leaves_no_cluster_behind(monkeypatch):
    torch_cpu()
    monkeypatch.setattr("streamsvm.train.open_engine", lambda *args: pytest.fail("opened"))
    X, y = labelled(2, n=240)
    with pytest.raises(ConfigError, match="finds no mps device"):
        train_in_memory(Store.from_arrays(X, y), config("dcsvm", device="mps", workers=2))


def test_without_pytorch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    open_device.cache_clear()
    with pytest.raises(
        ConfigError, match=r"device cuda needs torch \(the extra gpu\): pip install torch array-api-compat"
    ):
        open_device("cuda")
    assert open_device("auto") is None
    open_device.cache_clear()
