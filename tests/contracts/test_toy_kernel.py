"""A kernel that is registered from one file (toy_kernel.py) is everywhere: nothing else was touched for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import SOLVERS, labelled
from making import write
from sklearn.svm import SVC

from streamsvm.data.rows import Rows

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"


def toy(code: str, *words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    """What Python says after it has imported the kernel, as a plug-in is before the command line."""
    program = f"import sys, toy_kernel\nsys.path.insert(0, {str(DOCS)!r})\n{code}"
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (HERE, HERE.parent, HERE.parents[1]))),
        "COLUMNS": "200",
        "TERM": "dumb",
    }
    words = [sys.executable, "-c", program, *map(str, words)]
    run = subprocess.run(words, capture_output=True, text=True, env=env, timeout=120)
    assert run.returncode == status, run.stderr
    return run


def command(*words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    return toy("from streamsvm.cli import main\nmain()", *words, status=status)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    X, y = labelled(2, n=300)
    return write(tmp_path_factory.mktemp("toy") / "s.zarr", Rows(X), y, step=100, chunk_rows=100).url


@pytest.fixture(scope="module")
def trained(store, tmp_path_factory) -> Path:
    model = tmp_path_factory.mktemp("toy") / "m.zarr"
    words = ("fit", "--store", store, "--model", model, "--run-dir", model.parent / "run", "--json")
    said = json.loads(command(*words, "--kernel", "toy", "--gamma", "0.5", "--C", "5").stdout)
    assert (said["converged"], said["gamma"]) == (True, 0.5)
    return model


def test_the_command_line_and_its_help_know_it(store):
    help_text = " ".join(command("fit", "--help").stdout.split())
    assert "linear, toy" in help_text
    wrong = command("fit", "--store", store, "--kernel", "tay", status=2)
    assert "'linear' or 'toy'" in wrong.stderr
    unread = command("fit", "--store", store, "--kernel", "toy", "--degree", "2", status=2)
    assert "kernel.degree is read by kernel poly only, found kernel.name toy" in unread.stderr


@pytest.mark.parametrize("solver", ["dcsvm", "alfpgm", "admm-hss", "bsgd", "cutting-plane"])
def test_dry_run_of_every_solver_plans_and_pilots(store, solver):
    more = {
        "bsgd": ["--set", "bsgd.strategy=remove"],
        "cutting-plane": ["--set", "cutting_plane.landmarks=30"],
        "admm-hss": ["--set", "hss.leaf=32"],
    }
    assert {name for name in more} < {solver.split(" ")[0] for solver in SOLVERS}
    words = ("--kernel", "toy", "--solver", solver, "--dry-run", "--pilot", "2", "--json")
    plan = json.loads(command("fit", "--store", store, *words, *more.get(solver, [])).stdout)
    assert plan["n"] == 300


@pytest.mark.slow  # several processes of the command
def test_models_decide_as_svc_does_and_are_exported(trained, store, tmp_path):
    said = json.loads(command("evaluate", "--model", trained, "--store", store, "--json").stdout)
    X, y = labelled(2, n=300)
    squares = lambda A, B: ((A[:, None] - B) ** 2).sum(axis=2)  # noqa: E731
    libsvm = SVC(C=5, kernel=lambda A, B: (1 + 0.5 * squares(A, B)) ** -0.5).fit(X, y)
    assert said["accuracy"] == pytest.approx(libsvm.score(X, y), abs=0.02)
    command("export", "--model", trained, "--format", "onnx", "--out", tmp_path / "m.onnx")
    refused = command("export", "--model", trained, "--format", "libsvm", "--out", tmp_path / "m", status=2)
    assert "the toy kernel has no name in LIBSVM's format" in refused.stderr


@pytest.mark.slow  # several processes of the command
def test_a_run_goes_on_and_is_reported(trained, store, tmp_path):
    words = ("--store", store, "--model", tmp_path / "m", "--run-dir", tmp_path / "r", "--kernel", "toy")
    every = ("--set", "checkpoint_every='1 step'", "--set", "dcsvm.part_rows=100")
    interrupted = """
from streamsvm.cli import main
from streamsvm.runs.checkpoints import Checkpoints
save = Checkpoints._save
def once(run_dir, arrays):
    save(run_dir, arrays)
    raise KeyboardInterrupt
Checkpoints._save = staticmethod(once)
main()
"""
    toy(interrupted, "fit", *words, *every, status=130)
    command("fit", *words, *every, "--resume")
    command("report", tmp_path / "r", "--out", tmp_path / "r.html")
    assert "toy, gamma" in (tmp_path / "r.html").read_text()


def test_estimators_and_streams_take_it():
    toy(
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


def test_the_tables_of_the_documentation_have_it():
    tables = toy("from tables import option_tables\nprint(option_tables())").stdout
    assert "toy 1 / sqrt(1 + gamma" in tables
    assert "`linear`, `toy`" in tables


def test_it_is_a_kernel_by_the_contract():
    toy(
        """
from streamsvm.kernels.base import kernel_from
import numpy as np
from streamsvm.data.rows import Rows
a = Rows(np.random.default_rng(0).normal(size=(30, 4)))
kernel = kernel_from({"name": "toy", "gamma": 0.5})
np.testing.assert_allclose(kernel.block(a, a), kernel.exact(a, a), atol=1e-6)
"""
    )


def test_an_unfinished_one_is_an_error_that_says_what_is_missing():
    toy(
        """
import pytest
from streamsvm.errors import ConfigError
from streamsvm.kernels.base import kernel_class
toy_kernel.Toy.__abstractmethods__ = frozenset({"slope"})
with pytest.raises(ConfigError, match="kernel 'toy': toy_kernel:Toy has no slope"):
    kernel_class("toy")
"""
    )
