"""A kernel that is registered from one file (toy_kernel.py) is everywhere: nothing else was touched for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases import SOLVERS, labelled
from contracts.toys import KILLED, Toy
from sklearn.svm import SVC

TOY = Toy("toy_kernel")


@pytest.fixture(scope="module")
def trained(store, tmp_path_factory) -> Path:
    model = tmp_path_factory.mktemp("toy") / "m.zarr"
    words = ("fit", "--store", store, "--model", model, "--run-dir", model.parent / "run", "--json")
    said = json.loads(TOY.command(*words, "--kernel", "toy", "--gamma", "0.5", "--C", "5", "--no-search").stdout)
    assert (said["converged"], said["gamma"]) == (True, 0.5)
    return model


@pytest.mark.slow  # a process, which imports a kernel of others
def test_the_command_line_and_its_help_know_it(store):
    help_text = " ".join(TOY.command("fit", "--help").stdout.split())
    assert "linear, toy" in help_text
    fit = ("fit", "--store", store, "--kernel")
    (_, wrong), (_, unread) = TOY.commands([*fit, "tay"], [*fit, "toy", "--degree", "2"], status=2)
    assert "'linear' or 'toy'" in wrong
    assert "kernel.degree is read by kernel poly only, found kernel.name toy" in unread


@pytest.mark.slow  # a process, which imports a kernel of others
def test_dry_run_of_every_solver_plans_and_pilots(store):
    more = {
        "bsgd": ["--set", "bsgd.strategy=remove"],
        "cutting-plane": ["--set", "cutting_plane.landmarks=30"],
        "admm-hss": ["--set", "hss.leaf=32"],
    }
    assert {name for name in more} < {solver.split(" ")[0] for solver in SOLVERS}
    solvers = ("dcsvm", "alfpgm", "admm-hss", "bsgd", "cutting-plane")
    words = ("fit", "--store", store, "--no-search", "--kernel", "toy", "--dry-run", "--pilot", "2", "--json")
    plans = TOY.commands(*([*words, "--solver", solver, *more.get(solver, [])] for solver in solvers))
    assert [json.loads(plan)["n"] for plan, _ in plans] == [300] * len(solvers)


@pytest.mark.slow  # processes, which import a kernel of others
def test_models_decide_as_svc_does_and_are_exported(trained, store, tmp_path):
    export = ("export", "--model", trained, "--format")
    (said, _), _ = TOY.commands(
        ["evaluate", "--model", trained, "--store", store, "--json"], [*export, "onnx", "--out", tmp_path / "m.onnx"]
    )
    X, y = labelled(2, n=300)
    squares = lambda A, B: ((A[:, None] - B) ** 2).sum(axis=2)  # noqa: E731
    libsvm = SVC(C=5, kernel=lambda A, B: (1 + 0.5 * squares(A, B)) ** -0.5).fit(X, y)
    assert json.loads(said)["accuracy"] == pytest.approx(libsvm.score(X, y), abs=0.02)
    refused = TOY.command(*export, "libsvm", "--out", tmp_path / "m", status=2)
    assert "the toy kernel has no name in LIBSVM's format" in refused.stderr


@pytest.mark.slow  # several processes of the command
def test_a_run_goes_on_and_is_reported(trained, store, tmp_path):
    words = ("--store", store, "--model", tmp_path / "m", "--run-dir", tmp_path / "r", "--kernel", "toy")
    every = ("--no-search", "--set", "checkpoint_every='1 step'", "--set", "dcsvm.part_rows=100")
    TOY.says(KILLED, "fit", *words, *every, status=130)
    TOY.commands(["fit", *words, *every, "--resume"], ["report", tmp_path / "r", "--out", tmp_path / "r.html"])
    assert "toy, gamma" in (tmp_path / "r.html").read_text()


@pytest.mark.slow  # a process, which imports a kernel of others
def test_estimators_and_streams_take_it():
    TOY.says(
        """
import numpy as np
from streamsvm import ALFPGMSVC, DCSVC, HSSSVC, BudgetedSVC, CuttingPlaneSVC
from streamsvm.online import BSGDClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3)).astype(np.float32)
y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int)
for svm in (DCSVC(kernel="toy"), ALFPGMSVC(kernel="toy"), HSSSVC(kernel="toy", leaf=32, random_state=0),
            BudgetedSVC(kernel="toy", strategy="project", random_state=0), CuttingPlaneSVC(kernel="toy", landmarks=50)):
    assert svm.fit(X, y).score(X, y) > 0.75, svm
stream = BSGDClassifier(kernel="toy")
for row, label in zip(X, y):
    stream.learn_one(dict(enumerate(row.tolist())), int(label))
assert BSGDClassifier.from_model(stream.to_model()).kernel == "toy"
"""
    )


@pytest.mark.slow  # a process, which imports a kernel of others
def test_the_tables_of_the_documentation_have_it():
    tables = TOY.says("from tables import option_tables\nprint(option_tables())").stdout
    assert "toy 1 / sqrt(1 + gamma" in tables
    assert "`linear`, `toy`" in tables


@pytest.mark.slow  # a process, which imports a kernel of others
def test_it_is_a_kernel_by_the_contract():
    TOY.says(
        """
from streamsvm.kernels.base import kernel_from
import numpy as np
from streamsvm.data.rows import Rows
a = Rows(np.random.default_rng(0).normal(size=(30, 4)))
kernel = kernel_from({"name": "toy", "gamma": 0.5})
np.testing.assert_allclose(kernel.block(a, a), kernel.exact(a, a), atol=1e-6)
found, coef = kernel.gradients(a, a, np.ones((30, 2)), 2), np.ones(30)
np.testing.assert_allclose(found, 2 * [kernel.gradient(a, a, coef)], atol=1e-5)
"""
    )


WRONG = {
    "there is a kernel 'rbf' already": "register('rbf', KernelRow('toy_kernel:Toy', '1'))",
    "kernel 'new': class 'toy_kernel:Tay' is not there": "register('new', KernelRow('toy_kernel:Tay', '1'))",
    "found parameter 'width', expected some of coef0": "register('new', KernelRow('toy_kernel:Toy', '1', ('width',)))",
    "of name 'toy' and fields ": "register('new', KernelRow('toy_kernel:Toy', '1'))",
    "and a dataclass with fields ": "register('new', KernelRow('__main__:Other', '1', ('gamma', 'nu')))",
    "kernel 'half': class __main__:Half has no slope": "register('half', KernelRow('__main__:Half', '1'))",
}


def test_what_is_forgotten_is_an_error_where_it_is_registered():
    lines = [f"with pytest.raises(ConfigError, match={said!r}): {wrong}" for said, wrong in WRONG.items()]
    TOY.says(
        "\n".join(
            [
                "import pytest",
                "from streamsvm.errors import ConfigError",
                "from streamsvm.kernels.table import KernelRow, kernel_names, register",
                "class Other(toy_kernel.Toy): name = 'new'",
                "class Half(toy_kernel.Toy): name = 'half'",
                "Half.__abstractmethods__ = frozenset({'slope'})",
                *lines,
                "assert kernel_names()[-1] == 'toy'",
            ]
        )
    )
