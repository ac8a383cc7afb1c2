"""The recipes run from files to tables, on tiny files of the real ones' names and formats."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import re
import runpy
import shutil
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import memory_of_a_new_process

from streamsvm.kernels.table import kernel_names

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
RECIPES = {
    "exact": ("dcsvm_table.py", "--only", "exact,mnist"),
    "commands": ("dcsvm_table.py", "--only", "early,growing,predict"),
    "dcsvm-paper": (
        "paper_dcsvm.py",
        "--only",
        "figure-1,figure-2,table-1,table-2,table-3-others,bias,figure-3,table-6",
    ),
    "dcsvm-grids": ("paper_dcsvm.py", "--only", "table-7,table-8,table-9,table-10"),
    "budget": ("bsgd_table.py",),
    "multi-merge": ("paper_multi_merge.py",),
    "stream": ("stream_kills.py",),
    "streams": ("stream_table.py",),
    "tuned": ("tuned_streams.py", "--only", "alone,speed,ask"),
    "hostile": ("hostile_events.py", "--only", "lines,python"),
    "serve": ("serve_load.py", "--batch", "20", "--learn", "500", "--kills", "1"),
    "kinds": ("column_kinds.py",),
    "soak": ("soak.py",),
    "digits": ("mnist8m.py", "--only", "store,budget,early"),
    "linear": ("linear_table.py",),
    "losses": ("linear_losses.py",),
    "planes": ("paper_cutting_planes.py",),
    "hss": ("paper_admm_hss.py",),
    "alfpgm": ("alfpgm_table.py",),
    "alfpgm-paper": ("paper_alfpgm.py", "--only", "table-1,table-2,limiter,min-alpha-check,figure-2,figure-3"),
    "cluster": ("cluster_table.py", "--only", "early"),
    "budgets": ("cluster_table.py", "--only", "bsgd"),
    "bytes": ("cluster_table.py", "--only", "bytes"),
    "cost": ("cost_table.py", "--only", "threads,chosen,plan"),
    "calibration": ("calibration_table.py",),
    "interval": ("interval_table.py",),
    "oneclass": ("oneclass_table.py", "--nu", "0.1"),
    "svr": ("svr_table.py",),
    "files": ("files_table.py",),
    "tune": ("tune_table.py",),
    "covtype": ("covtype.py",),
    "ranking": ("ranking.py",),
    "path": ("c_path.py",),
    "drift": ("river_drift.py", "--plots", "plots"),
    "forgetting": ("forgetting.py",),
    "dask": ("dask_preprocessing.py",),
    "foreign": ("foreign_stores.py",),
    "comparison": ("comparison.py", "--plots", "plots"),
    "starting": ("starting.py",),
    "kernels": ("kernels_table.py",),
    "gradients": ("gradient_tiles.py",),
    "certificates": ("certificates.py",),
    "regrouping": ("regroup_table.py",),
    "metric": ("metric_table.py",),
    "choice": ("choice_table.py",),
    "options": ("option_table.py",),
    "scale": ("scale_table.py", "--only", "budget,early,killed"),
    "scale-linear": ("scale_table.py", "--only", "linear"),
    "plans": ("scale_table.py", "--only", "plan"),
    "beyond": ("beyond_memory.py", "--only", "rows"),
    "rate": ("engine_rate.py",),
    "simulated": ("simulate.py",),
    "gpu": ("gpu_table.py", "--device", "auto"),
}
# by themselves, as users start them, or within a limit that this process may have passed; the others in this process
PROCESSES = {
    "stream",
    "serve",
    "soak",
    "bytes",
    "cluster",
    "commands",
    "dask",
    "digits",
    "plans",
    "rate",
    "scale",
    "scale-linear",
    "simulated",
    "linear",
    "options",
}
RNG = np.random.default_rng(7)


def svmlight(path, n, d):
    X = RNG.integers(0, 2, (n, d))
    y = np.where(X[:, 0] + X[:, 1] > 1, "+1", "-1")
    rows = [f"{label} {' '.join(f'{j + 1}:1' for j in np.flatnonzero(x))}" for x, label in zip(X, y, strict=True)]
    path.write_bytes(bz2.compress("\n".join([*rows, ""]).encode()))


def covtype(path, n):
    """One feature tells the classes apart, a few others change a little."""
    X = np.zeros((n, 54), int)
    X[:, :3] = RNG.integers(0, 4000, (n, 3)) // [1, 40, 40]
    X[0] = 4000
    y = np.where(X[:, 0] > 2000, 2, 1 + 4 * (X[:, 1] > 50))
    names = [*(f"c{j}" for j in range(54)), "Cover_Type"]
    lines = [",".join(map(str, row)) for row in np.column_stack([X, y]).tolist()]
    path.write_bytes(gzip.compress("\n".join([",".join(names), *lines, ""]).encode()))


def electricity(path, n):
    rows = [f"{i},{x:.4f},{z:.4f},{'UP' if x > 0 else 'DOWN'}" for i, (x, z) in enumerate(RNG.normal(size=(n, 2)))]
    path.write_bytes(gzip.compress("\n".join([",price,demand,class", *rows, ""]).encode()))


def skin(path, n):
    rows = ["\t".join(map(str, (*x, 1 + int(x[2] > 128)))) for x in RNG.integers(0, 256, (n, 3)).tolist()]
    path.write_bytes(gzip.compress("\n".join([*rows, ""]).encode()))


def queries(path, n):
    X = RNG.random((n, 46))
    grades = (X[:, 0] + 0.2 * RNG.random(n) > 0.6).astype(int) + (X[:, 0] > 0.9)
    rows = [
        f"{grade} qid:{i // 10} {' '.join(f'{j + 1}:{v:.3f}' for j, v in enumerate(x))} # doc {i}"
        for i, (grade, x) in enumerate(zip(grades, X, strict=True))
    ]
    path.write_bytes(bz2.compress("\n".join([*rows, ""]).encode()))


def magic(path, n, labels="gh"):
    rows = [",".join([*(f"{v:.3f}" for v in x), labels[int(x[0] > 0)]]) for x in RNG.normal(size=(n, 10))]
    path.write_bytes(gzip.compress("\n".join([*rows, ""]).encode()))


def abalone(path, n, d=8):
    X = RNG.random((n, d))
    rows = [f"{1 + int(10 * x[0])} {' '.join(f'{j + 1}:{v:.3f}' for j, v in enumerate(x))}" for x in X]
    path.write_bytes(bz2.compress("\n".join([*rows, ""]).encode()))


def census(path, n):
    age, sector = RNG.integers(0, 90, n), RNG.choice(["' Private'", "' Not in universe'", None], n)
    income = np.where((age > 30) & (sector == "' Private'"), "' 50000+.'", "' - 50000.'")
    columns = {"age": age, "class_worker": sector, "unknown": RNG.random(n), "income_50k": income}
    columns["__index_level_0__"] = np.arange(n)
    pq.write_table(pa.table(columns), path)


def idx(path, values):
    shape = b"".join(side.to_bytes(4, "big") for side in values.shape)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, values.ndim]) + shape + values.astype(np.uint8).tobytes()))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    RNG.bit_generator.state = np.random.default_rng(7).bit_generator.state  # the same, if made again later
    folder = tmp_path_factory.mktemp("data")
    svmlight(folder / "a9a.bz2", 500, 123)
    svmlight(folder / "a9a.t.bz2", 100, 122)
    svmlight(folder / "ijcnn1.bz2", 500, 22)
    svmlight(folder / "ijcnn1.t.bz2", 100, 22)
    svmlight(folder / "phishing.bz2", 400, 68)
    svmlight(folder / "w8a.bz2", 400, 300)
    svmlight(folder / "reuters.bz2", 300, 90)
    svmlight(folder / "reuters.t.bz2", 100, 90)
    for part in range(1, 6):
        queries(folder / f"mq2008.s{part}.bz2", 60)
    abalone(folder / "abalone.bz2", 300)
    skin(folder / "skin_nonskin.tsv.gz", 400)
    electricity(folder / "electricity.csv.gz", 500)
    covtype(folder / "covtype.csv.gz", 800)
    for name, n in (("train", 500), ("t10k", 100)):
        labels = RNG.integers(0, 10, n)
        images = RNG.integers(0, 255, (n, 28, 28))
        images[np.isin(labels, (0, 3, 6, 8, 9)), :14] //= 4
        idx(folder / f"{name}-images-idx3-ubyte.gz", images)
        idx(folder / f"{name}-labels-idx1-ubyte.gz", labels)
    magic(folder / "magic04.csv.gz", 300)
    abalone(folder / "letter.bz2", 300, 16)
    census(folder / "census.parquet", 600)
    census(folder / "census.t.parquet", 200)
    svmlight(folder / "sector.bz2", 300, 90)
    svmlight(folder / "sector.t.bz2", 100, 90)
    abalone(folder / "letter.t.bz2", 100, 16)
    magic(folder / "alfpgm_test_6.csv.gz", 200, labels="01")
    svmlight(folder / "a8a.bz2", 400, 122)
    svmlight(folder / "a8a.t.bz2", 100, 122)
    svmlight(folder / "webspam.bz2", 300, 254)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def tables(data, folder):
    """tables(name): runs a recipe; what it wrote, by the titles' first words."""

    @cache
    def run(name):
        (folder / name).mkdir()
        stdout = (as_process if name in PROCESSES else here)(data, folder / name, *RECIPES[name])
        found = written(folder / name)
        assert all(f"### {table.title}" in stdout for table in found)
        return {table.title.partition(":")[0]: table.rows for table in found}

    return run


def written(work):
    """The tables that a recipe left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PIPELINES)
        from tables import read
    return [table for run in read(work / "tables.json") for table in run.tables]


def words(data, work, recipe, *options):
    out = ("--out", work / "tables.json")
    return [*map(str, (PIPELINES / recipe, "--quick", "--data", data, "--work", work, *options, *out))]


def as_process(data, work, *recipe):
    command = [sys.executable, *words(data, work, *recipe)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=work, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def here(data, work, *recipe):
    """As `python recipe` would, without the seconds that a process takes to import everything."""
    script, *options = words(data, work, *recipe)
    with (
        memory_of_a_new_process(),
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()) as stdout,
    ):
        patch.chdir(work)
        patch.setattr(sys, "path", [str(PIPELINES), *sys.path])
        patch.setattr(sys, "argv", [script, *options])
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            ended = SystemExit()
            try:
                runpy.run_path(script, run_name="__main__")
            except SystemExit as said:
                ended = said
    assert not ended.code
    return stdout.getvalue()


@pytest.mark.slow
def test_solvers_are_compared_on_the_same_arrays(tables):
    found = tables("exact")
    _, biased, _, libsvm = found["Exact"]
    assert libsvm["support vectors"] == pytest.approx(biased["support vectors"], rel=0.2)
    early, libsvm = (found["MNIST, round digits against the rest"][i] for i in (1, 3))
    assert early["accuracy"] == libsvm["accuracy"] == 1
    libsvm, ours, their_biased, our_biased, *_ = (float(row["objective"]) for row in found["Exactness"])
    for mine, least in ((ours, libsvm), (our_biased, their_biased)):
        assert mine == pytest.approx(least, rel=1e-3)
        assert mine >= least


@pytest.mark.slow
def test_a_device_is_compared_with_the_cpus(tables):
    found = tables("gpu")  # where auto finds no device worth its while: the CPU, twice
    assert [row["data"] for row in found["Exact fits"]] == ["covtype", "ijcnn1", "mnist", "made"]
    assert all(row["objective"] == "0.0e+00" for row in found["Exact fits"])
    assert [row["model"] for row in found["Predictions"]] == ["exact", "early"]
    assert {"Early prediction", "Rows from disk"} < set(found)


def stub(folder):
    """An interpreter with modules of the names that the peer has, which write down what they are told."""
    modules = folder / "modules"
    (modules / "sklearnex").mkdir(parents=True)
    (modules / "sklearnex" / "__init__.py").touch()
    (modules / "daal4py.py").write_text(
        f"def daalinit(threads):\n    print(threads, file=open({str(folder / 'threads')!r}, 'a'))\n"
    )
    (modules / "sklearnex" / "svm.py").write_text(
        "import numpy as np\n\n"
        "class SVC:\n"
        "    def __init__(self, C, tol, kernel, gamma): pass\n"
        "    def fit(self, X, y): self.n_support_, self.label = np.array([len(y)]), y[0]; return self\n"
        "    def predict(self, X): return np.full(len(X), self.label)\n"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={modules} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.mark.slow  # as others of this file
def test_exact_fits_with_a_bias_are_compared_with_a_peer_of_another_interpreter(data, tmp_path):
    python = stub(tmp_path)
    here(data, tmp_path, "dcsvm_table.py", "--only", "peers", "--peer-python", python)
    [table] = written(tmp_path)
    assert [(row["set"], row["C"]) for row in table.rows] == [
        ("covtype", 1), ("covtype", 32), ("a9a", 1), ("a9a", 8), ("letter", 1), ("letter", 32),
    ]  # fmt: skip
    for row in table.rows:
        ours, theirs, bare = (row[n].median for n in ("seconds", "seconds, intelex", "seconds without a bias"))
        assert (row["streamsvm / intelex"], row["bias / none"]) == (ours / theirs, ours / bare)
        assert row["accuracy"] > row["accuracy, intelex"]  # the stub's label is always the same
    assert (tmp_path / "threads").read_text().split() == ["2"] * len(table.rows)


@pytest.mark.parametrize(
    ("python", "why"),
    [(sys.executable, r"scikit-learn-intelex cannot be imported \(.*Error: .*\)"), ("./none", "No such file .*")],
)
def test_a_peer_that_is_missing_is_one_line(python, why, data, tmp_path, monkeypatch, capsys):
    hidden = tmp_path / "daal4py.py"
    hidden.write_text("raise ImportError('hidden')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(AssertionError):  # of the exit status
        here(data, tmp_path, "dcsvm_table.py", "--only", "peers", "--peer-python", python)
    said = capsys.readouterr().err
    assert re.fullmatch(rf"dcsvm_table.py: --peer-python {python}: {why}; expected an interpreter .*\n", said)


def test_of_all_items_one_whose_peer_is_missing_is_left_out(monkeypatch, capsys, tmp_path):
    monkeypatch.syspath_prepend(str(PIPELINES))
    bench, measure = importlib.import_module("bench"), importlib.import_module("measure")
    tables = importlib.import_module("tables")

    def missing(of: object) -> list:
        raise measure.Missing("no peer")

    items = {"peers": missing, "own": lambda of: [tables.Table("Own", [{"set": "a"}], [])]}
    monkeypatch.setattr(sys, "argv", ["all.py", "--data", str(tmp_path)])
    bench.print_tables("", items)
    said = capsys.readouterr()
    assert (said.err, "Own" in said.out) == ("peers: left out: no peer\n", True)
    monkeypatch.setattr(sys, "argv", ["all.py", "--data", str(tmp_path), "--only", "own,peers"])
    with pytest.raises(SystemExit) as ended:
        bench.print_tables("", items)
    assert (ended.value.code, capsys.readouterr().err) == (1, "all.py: no peer\n")


def test_quick_has_few_rows_of_a_file(data, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(PIPELINES))
    bench = importlib.import_module("bench")
    few = bench.Bench(data, tmp_path, replace(bench.QUICK, train_rows=20), sys.executable)
    X, y, X_test, y_test = few.two_classes("reuters")
    assert X.shape == (20, 90)
    assert len(y) == len(y_test) == X_test.shape[0] == 20


@pytest.mark.slow
def test_whole_commands_are_measured(tables):
    found = tables("commands")
    ingest, fit, evaluate = found["Early prediction"]
    assert fit["rows"] == 640
    assert evaluate["accuracy"] > 0.8
    assert all(row["peak memory"] > 50e6 for row in (ingest, fit, evaluate))
    assert [row["rows"] for row in found["Early prediction in 1 GiB"]] == [500, 1000]


@pytest.mark.slow  # as others of this file
def test_tables_of_the_paper_on_divide_and_conquer(tables):
    """webspam is one that nobody has here; cifar and kddcup99 are not there."""
    found = tables("dcsvm-paper")
    bound, gap = "bound C^2 D / 2", "gap f(a_bar) - f(a*)"
    assert all(-1e-3 * row[bound] <= row[gap] <= row[bound] for row in found["Figure 1"])
    assert [row["partitions"] for row in found["Figure 2"] if row["solver"] == "DC-SVM"][-1] == 1
    assert [row["by"] for row in found["Table 1"]][:3] == ["nearest (11)", "sum (10)", "committee (BCM)"]
    assert {row["set"] for row in found["Table 1"]} == {"covtype", "webspam"}
    missing = {row["set"]: row[""] for row in found["Table 2"] if "" in row}
    assert missing["kddcup99"] == "not run: data (kddcup.data.gz, corrected.gz)"
    assert set(missing) == {"cifar", "kddcup99", "mnist8m"}
    assert [row["level"] for row in found["Table 6"]] == [4, 3, 2, 1, 0]
    assert [row["solver"] for row in found["Table 3"]][:2] == ["DC-SVM (early)", "DC-SVM"]
    assert len({row["setting"] for row in found["Figure 3"]}) > 8
    assert [row["bias"] for row in found["A bias"]][:2] == [False, True]


@pytest.mark.slow  # as others of this file
def test_grids_of_the_paper_on_divide_and_conquer(tables):
    for *points, total in tables("dcsvm-grids").values():
        assert total["C"] == "all points"
        assert total["LIBSVM, seconds"] == pytest.approx(sum(row["LIBSVM, seconds"] for row in points))


def test_an_unknown_item_is_named(data):
    argv = [sys.executable, PIPELINES / "dcsvm_table.py", "--data", data, "--only", "exakt"]
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "exakt: no such item; there are exact, early" in done.stderr


def test_every_file_is_in_the_list_of_recipes():
    listed = (PIPELINES.parent / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert [file.name for file in PIPELINES.glob("*.py") if f"`{file.name}`" not in listed] == []


@pytest.mark.slow
def test_budgeted_learning(tables):
    found = tables("budget")
    assert [row["B"] for row in found["One epoch of ijcnn1"]] == [500, 1000]
    assert all(0.6 < row["lowest"] <= row["accuracy"] <= 1 for row in found["One epoch of ijcnn1"])
    assert all(row["accuracy"] > 0.8 for row in found["Events"])


@pytest.mark.slow
def test_multi_merge_is_set_beside_its_paper(tables):
    found = tables("multi-merge")
    assert [row["at once (paper)"] for row in found["Accuracy at lambda 1e-4"]] == [0.7632, 0.833]
    for row in found["What a merge loses"]:
        assert row["golden section / best"] == pytest.approx(row["table / best"], rel=1e-3)
        assert 1 - 1e-6 <= row["gradient / best"] < 1.5
    assert [row["paper"] for row in found["ADULT over lambda"]] == [0.7632, 0.8297]
    phishing, web = found["Data sets"]
    assert phishing["accuracy"] > 0.6 < phishing["accuracy (paper)"]
    assert web[""] == found["WEB"][0][""] == "not run: data (w6a.bz2, w6a.t.bz2)"
    for row in found["Share of the time that merging takes"]:
        assert 0 <= row["merging"] <= row["all sequential steps"] < 1
    assert [row.get("M") for row in found["IJCNN"]] == [2, 3, None]
    assert found["IJCNN"][-1]["budget"] == "LIBSVM"
    assert any(row["best trade-off"] for row in found["ADULT"])
    assert found["PHISHING"][0]["support vectors (paper)"] == 1367
    ten = found["M = 3 against M = 2"]
    assert all(row["points that became one, all"] in (0, pytest.approx(3, abs=0.1)) for row in ten)
    assert found["All data sets and budgets"][0]["seconds / those of M = 2, geometric mean"] == 1
    assert {row["data"] for row in found["One pass against the exact SVM"]} == {"phishing", "a9a"}


@pytest.mark.slow
def test_a_set_of_a_paper_is_run_where_its_files_are(data, tmp_path):
    brought = tmp_path / "data"
    shutil.copytree(data, brought)
    svmlight(brought / "w6a.bz2", 400, 300)
    svmlight(brought / "w6a.t.bz2", 100, 300)
    here(brought, tmp_path, "paper_multi_merge.py", "--only", "table-2,figure-2")
    found = {table.title: table.rows for table in written(tmp_path)}
    assert found["Data sets"][1]["accuracy"] > 0.6
    assert [row["budget"] for row in found["WEB: budgets and M"]][-1] == "LIBSVM"


@pytest.mark.slow
def test_outliers_are_compared_with_other_detectors(tables):
    exact, early = tables("oneclass").values()
    assert [row["detector"].partition(" ")[0] for row in exact][:2] == ["streamsvm,", "OneClassSVM"]
    assert float(exact[0]["objective"]) == pytest.approx(float(exact[1]["objective"]), rel=1e-4)
    assert all(row["outliers"] == pytest.approx(0.1, abs=0.05) for row in (*exact[:2], *early[:2]))
    assert all(float(row["ROC area"]) > 0.7 for row in early)


@pytest.mark.slow  # as others of this file
def test_regressions_are_compared_with_libsvms(tables):
    exact, early = tables("svr").values()
    assert float(exact[0]["objective"]) == pytest.approx(float(exact[1]["objective"]), rel=1e-4)
    assert all(float(row["R2"]) > 0.5 for row in (*exact, *early))


@pytest.mark.slow
def test_a_stream_killed_twice_is_the_stream(tables):
    found = tables("stream")
    lives = found["The same, killed 2 times"]
    assert [life["ended by"] for life in lives] == ["SIGKILL", "SIGKILL", "its end"]
    assert lives[-1]["last event"] == 12_000


@pytest.mark.slow  # a server that is started twice
def test_a_server_is_loaded_and_killed(tables):
    load, beside = tables("serve").values()
    assert [row["killed"] for row in load].count("yes") >= 1
    assert max(row["predictions/s"] for row in load) > 100
    assert beside[0]["events"] > 0
    assert beside[0]["same"] == "yes"


@pytest.mark.slow  # every learner, compiled
def test_wrong_events_between_right_ones_change_no_answer(tables):
    (rows,) = tables("hostile").values()
    assert {row["door"] for row in rows} == {"lines", "python"}
    for row in rows:
        assert row["refused"] == row["wrong events"] == 400
        assert row["answers that differ"] == 0


@pytest.mark.slow
def test_memory_of_every_process_is_watched(tables):
    """Some quick seconds say nothing about growth; they say that everything is seen and told."""
    (rows,) = tables("soak").values()
    seen = {row["process"]: row for row in rows}
    always = {"scheduler", "nanny 0", "nanny 1", "worker 0", "worker 1", "stream"}
    assert always <= set(seen)
    assert {name.partition(" ")[0] for name in set(seen) - always} == {"fit"}
    for name in always:
        assert 20e6 < seen[name]["second"] <= seen[name]["peak"] < 1 << 30


@pytest.mark.slow
def test_tasks_a_second_are_measured_by_turns(tables):
    (rows,) = tables("rate").values()
    assert [row["way"] for row in rows] == ["Client.map and gather", "ClusterEngine.map"]


@pytest.mark.slow
def test_infinite_digits(tables):
    found = tables("digits")
    assert found["Infinite MNIST"][0]["rows"] == 400
    assert found["Budgeted SGD, round digits, B 1,000"][0]["times the two"] > 1
    assert found["DC-SVM early, round digits"][0]["accuracy"] > 0.8


@pytest.mark.slow
def test_linear_problems(tables):
    found = tables("linear")
    assert {row["data"] for row in found["The same problem as LIBLINEAR's"]} == {
        "reuters",
        "w8a",
        "a9a",
        "covtype",
        "text",
    }
    ratios = [float(row["objective / LIBLINEAR's"]) for row in found["The same problem as LIBLINEAR's"]]
    assert max(ratios) < 1.002  # below 1 where LIBLINEAR has not ended
    sparse_rows = {row["data"]: row for row in found["Sparse rows"]}
    assert [*sparse_rows] == ["reuters", "w8a", "a9a", "sector", "topics", "topics as counts"]
    assert all(float(row["objective / LIBLINEAR's"]) < 1 + 2e-5 for row in sparse_rows.values())
    assert all(row["ratio"] > 0 and row["score"] > 0 for row in sparse_rows.values())
    assert (sparse_rows["topics"]["rows"], sparse_rows["topics"]["features"]) == (320, 62_061)
    assert all(float(row["MAP"]) > 0.9 for row in found["MQ2008, five folds"])
    assert found["Abalone, ordinal"][0]["mean absolute error"] < 1


@pytest.mark.slow
def test_the_paper_of_cutting_planes_and_a_task_that_somebody_brings(data, tables):
    """CCAT is a small file under the name that the recipe wants; the other tasks say which file they lack."""
    svmlight(data / "ccat.bz2", 300, 90)
    svmlight(data / "ccat.t.bz2", 100, 90)
    found = tables("planes")
    assert {title for title in found if title.startswith(("Table", "Figure"))} == {
        "Table 1",
        *(f"Figure {n}" for n in (1, 2, 3, 4, 5, 6, 8, 9)),
        "Figure 7, left",
        "Figure 7, right",
    }
    for title, rows in found.items():
        lacking = {row["data"] for row in rows if str(row.get("")).startswith("not run: data (")}
        if title.startswith(("Table", "Figure", "Lemma")):
            assert lacking == {"Reuters C11", "Arxiv astro-ph", "KDD04 Physics"}
            assert {row["data"] for row in rows} >= {"Reuters CCAT", "Covertype 1", "Reuters-21578 money-fx"}
    for row in found["Figure 8"]:
        if "C" in row:
            assert 2 <= int(str(row["plain, iterations"]).partition(",")[0]) <= 1000
    for row in found["Lemma 2"]:
        if "C" in row:
            assert row["plain"] <= float(row["bound"])
    below = [float(row["plain, below"]) for row in found["Figure 7, right"] if "epsilon" in row]
    assert all(-1e-5 <= share < 0.5 for share in below)


@pytest.mark.slow
def test_linear_losses(tables):
    numbers, logistic, outliers = tables("losses").values()
    for rows in (numbers, logistic):
        assert rows[0]["objective"] <= 1.002 * rows[1]["objective"]
    assert float(outliers[0]["outliers"]) == pytest.approx(0.05, abs=0.01)


@pytest.mark.slow
def test_compressed_kernel_matrices(tables, folder):
    found = tables("hss")
    for name in ("ijcnn1", "a9a", "electricity", "skin", "covtype-100k", "w8a", "covtype-465k"):
        (row,) = found[name]
        assert row["accuracy"] > row["its accuracy"] - 0.1  # of 60 to 100 rows; four of a9a's differ
    for name in ("ijcnn1", "covtype-100k"):
        assert len(found[f"{name}, ten values of C"]) == len(found[f"{name}, grids against intelex"]) == 3
    assert all(float(row["against LIBSVM's"]) < 1e-4 for row in found["Polished by the exact solver"])
    assert [row["rows"] for row in found["Linear cost"]] == [400, 800]
    for title in (title for title in found if title.startswith("Table ")):
        rows = {row["data"]: row for row in found[title]}
        assert len(rows) == 10
        assert rows["w7a"][""] == "not run: data (w7a.bz2, w7a.t.bz2)"
        assert rows["a9a"].keys() == rows["a8a"].keys()  # a small file has its name
    assert all(row["accuracy (paper)"] > 0.7 for row in found["Table 4, accuracy"])
    for row in found["Equation (9)"]:
        assert float(row["objectives apart"]) <= float(row["bound"]) + 1e-3
    for title in ("Error over rtol, ijcnn1", "Error over rtol, magic04"):
        assert len(found[title]) == 30
        assert all(float(row["fitted: error"].split()[0]) <= 10 * float(row["rtol"]) for row in found[title])
    assert len(found["Figure 2, a9a"]) == len(found["Figure 1, singular values over the largest"]) == 3
    assert len(found["Over beta, ijcnn1, h 1"]) == 5
    assert {file.name for file in (folder / "hss").glob("*.svg")} == {
        "hss-0.1.svg",
        "hss-1.svg",
        "hss-10.svg",
    }


@pytest.mark.slow  # as others of this file
def test_tables_of_the_paper_on_many_pairs(tables):
    """Test 6 is one that nobody has here; the others are not there."""
    found = tables("alfpgm-paper")
    missing = {row["data"]: row[""] for row in found["Table 1"] if row.get("")}
    assert missing["test 1"] == "not run: data (alfpgm_test_1.csv.gz)"
    assert len(missing) == 9
    (brought,) = (row for row in found["Table 1"] if row["data"] == "test 6")
    assert (brought["rows"], brought["features"]) == (200, 10)
    rows = [row for row in found["Table 2"] if "seconds" in row]
    assert {row["data"] for row in rows} == {"phishing", "magic04", "ijcnn1", "skin", "test 6"}
    assert [row for row in rows if row["solved"] and float(row["violation"]) > 0.02] == []
    for ours, theirs in zip(rows[2::5], rows[3::5], strict=True):
        assert float(ours["objective"]) == pytest.approx(float(theirs["objective"]), rel=1e-2)
    assert [row["limiter"] for row in found["Section 3.2"]] == ["off", "on", "on, for good"]
    assert [row["minAlphaCheck"] for row in found["Section 3.3"]] == [500]
    assert [row["p"] for figure in ("Figure 2", "Figure 3") for row in found[figure]] == [10, 10]


@pytest.mark.slow
def test_many_pairs_and_libsvm(tables):
    found = tables("alfpgm")
    assert {row["solver"] for row in found["C = 100"]} == {
        "ALFPGM",
        "ALFPGM, fpg, p = 50",
        "LIBSVM",
        "intelex",
    }
    for row in found["Against LIBSVM's answer"]:
        assert row["objective apart"] < (1e-4 if row["tol"] == 1e-3 else 3e-6)  # both are off, on so few rows
        assert row["same labels"] >= 0.99
    assert len(found["Block solver and ALFPGM, seconds at C = 100"]) == 3


@pytest.mark.slow
def test_processes_decide_as_threads(tables):
    rows = tables("cluster")["Early prediction of covtype on processes"]
    assert [row["on"] for row in rows] == ["threads", "cluster of 2", "2 processes"]
    assert all(row["difference"] < 1e-6 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["covtype", "mnist", "ijcnn1", "a9a"])
def test_budgets_are_compared(tables, name):
    rows = tables("budgets")[name]
    assert [row["partitions"] for row in rows] == [1, 2, 4, 8, *([8, 1] if name == "covtype" else [])]


@pytest.mark.slow
def test_what_a_fit_sends_is_counted(tables):
    rows = {row["fit"]: row for row in tables("bytes")["Bytes of a fit on three workers"]}
    assert list(rows) == ["cutting-plane", "dcsvm early", "dcsvm exact, 2 levels"]
    ways = ("leader to scheduler", "leader to workers", "workers to leader")
    assert all(row[way] > 0 for row in rows.values() for way in ways)


@pytest.mark.slow  # fits on clusters of one, two and four processes
def test_recorded_fits_are_replayed(tables):
    found = tables("simulated")
    assert [(row["rows"], row["processes"]) for row in found["Recorded"]] == [
        (20_000, 1),
        (40_000, 1),
        (80_000, 1),
        (40_000, 2),
        (80_000, 2),
    ]
    assert all(0 < row["tasks"] < 200 and float(row["their CPU"]) > 0 for row in found["Recorded"])
    assert len(next(rows for title, rows in found.items() if title.endswith("simulated"))) == 4
    ones = found["Weak scaling, workers of 1 threads"]
    assert [float(row["efficiency"]) for row in ones][0] == 1
    assert all(0 < row["threads busy"] < 1 for row in ones)
    assert [row["rows"] for row in found["Workers of 8 threads"]] == [10_000, 10_000, 100_000, 100_000]


@pytest.mark.slow
def test_what_a_fit_takes_is_said_beforehand(tables):
    found = tables("cost")
    for row in found["What a fit takes, predicted"]:
        assert 0.05 < float(row["estimated / took"]) < 20
    here, alone, workers = found["A billion rows like covtype's, early prediction"]
    assert float(alone["hours"]) > float(workers["hours"]) > float(here["hours"])


@pytest.mark.slow
def test_probabilities_next_to_scikit_learns(tables):
    found = tables("calibration")
    (by_partition, one), _ = by_set = np.split(np.array(found.pop("Partitions with their own sigmoids")), 2)
    assert by_partition["partitions"] == one["partitions"] > 1
    assert [pair[0]["data"] for pair in by_set] == ["magic04", "covtype"]
    assert set(found) == {"a9a", "covtype", "electricity"}
    for rows in found.values():
        assert [row["who"] for row in rows] == 2 * ["DCSVC", "CalibratedClassifierCV"]
        assert all(0 <= row["lowest"] <= row["ECE"] <= row["highest"] < 0.3 for row in rows)
        assert all(0 < row["Brier"] < 0.5 for row in rows)


@pytest.mark.slow
def test_intervals_hold(tables):
    found = tables("interval")
    assert [title.partition(":")[0] for title in found] == ["diabetes", "abalone", "noise", "covtype"]
    assert [len(rows) for rows in found.values()] == [1, 1, 2, 1]
    for row in (row for rows in found.values() for row in rows):
        assert row["expected"] == pytest.approx(0.9, abs=0.01)
        assert row["lowest"] <= row["coverage"] <= row["highest"]
        assert abs(row["coverage"] - row["expected"]) < 4 * row["by the law"]


@pytest.mark.slow
def test_searches(tables):
    found = tables("tune")
    ours, *peers = found["Against GridSearchCV"]
    assert [row["points"] for row in (ours, *peers)] == [30, 30, 30]
    assert all(row["score"] == pytest.approx(ours["score"], abs=0.01) for row in peers)
    assert len(found["30 points, 5 folds"]) == 3
    together, alone = found["Other ways"][2:]
    assert together["score"] == pytest.approx(alone["score"], abs=1e-6)


def test_a_csv_becomes_a_page(tables, folder):
    ingest, fit, evaluate, report = next(iter(tables("covtype").values()))
    assert (ingest["rows"], fit["rows"], evaluate["rows"]) == (800, 400, 160)
    assert fit["parts"] > 1
    assert evaluate["accuracy"] > 0.8
    assert report["command"] == "report"
    assert "<html" in (folder / "covtype" / "covtype.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_queries_and_text_are_ranked(tables):
    found = tables("ranking")
    part, mean = found["MQ2008, four folds teach and one tests"]
    assert part["test"] == "s5"
    assert float(mean["ndcg"]) == float(part["ndcg"]) > 0.9
    accuracy, area = found["Reuters, trained for accuracy and for the ROC area"]
    assert (accuracy["task"], area["task"]) == ("classify", "ordinal")
    assert area["ROC area"] > 0.9


@pytest.mark.slow
def test_the_path_of_C_is_searched_and_kept(tables, folder):
    (rows,) = tables("path").values()
    assert [(row["solver"], row["points"]) for row in rows] == [("admm-hss", 6), ("dcsvm", 6)]
    assert all(row["test rows"] > 0.9 for row in rows)
    kept = {file.name for solver in ("admm-hss", "dcsvm") for file in (folder / "path").glob(f"{solver}.*")}
    assert {"admm-hss.csv", "admm-hss.svg", "dcsvm.csv", "dcsvm.svg"} <= kept


@pytest.mark.slow
def test_drift_is_met_by_new_learners(tables, folder):
    found = tables("drift")
    assert list(found) == ["Electricity", "Labels exchanged in the middle"]
    for rows in found.values():
        whole = {row["model"]: row["whole"] for row in rows}
        assert len(whole) == 6
        assert min(score for name, score in whole.items() if name != "NoChange") > 0.7 > whole["NoChange"]
    assert {file.name for file in (folder / "drift" / "plots").iterdir()} == {"drift.png", "break.png"}


@pytest.mark.slow
def test_dask_prepares_what_is_learned(tables, folder):
    (rows,) = tables("dask").values()
    assert [row["step"] for row in rows[2:]] == ["pipeline.fit", "pipeline.decision_function"]
    assert pq.ParquetFile(folder / "dask" / "census.parquet").num_row_groups == 4
    found = written(folder / "dask")[0].notes
    assert float(found[1].partition("accuracy ")[2].partition(" %")[0]) > 90


@pytest.mark.slow
def test_stores_of_others_open_as_they_are(tables):
    ours, xarray, *_ = tables("foreign")["a9a in stores of three writers"]
    assert (ours["store"], xarray["store"]) == ("ours", "xarray")
    assert xarray["objective"] == ours["objective"]
    assert xarray["accuracy"] == ours["accuracy"]


@pytest.mark.slow
def test_annotated_data_opens_as_it_is(tables):
    pytest.importorskip("anndata", reason="needs anndata, which holds pandas below 3: streamsvm[recipes]")
    ours, _, *annotated = tables("foreign")["a9a in stores of three writers"]
    assert [row["options"] for row in annotated] == ["--y obs/income", "--y obs/code"]
    for row in annotated:
        assert row["layout"] == "sparse"
        assert float(row["objective"]) == pytest.approx(float(ours["objective"]), rel=1e-6)


@pytest.mark.slow
def test_what_stands_before_a_fit(tables):
    found = tables("starting")
    assert [row["solver"] for row in found["Compiling"]] == [
        "dcsvm",
        "bsgd",
        "cutting-plane",
        "admm-hss",
        "alfpgm",
    ]
    assert found["Outside the solver"][0]["seconds"] is not None
    assert all(row["records"] > 0 for row in found["Silence"])


@pytest.mark.slow
def test_kernels_are_compared(tables):
    speeds, covtype, ijcnn1 = tables("kernels").values()
    assert [row["kernel"] for row in speeds] == [row["kernel"] for row in covtype]
    assert len(ijcnn1) == len(kernel_names()) + 2  # three of matern


@pytest.mark.slow  # four fits
def test_memory_is_told_as_the_rows_grow(tables):
    budget, early, killed = tables("scale").values()
    assert [row["support vectors"] for row in killed] == [row["support vectors"] for row in early]
    assert all(row["accuracy"] > 0.9 and row["ended after"] > 0 < row["resumed"] for row in killed)
    assert [row["rows"] for row in budget] == [row["rows"] for row in early] == [20_000, 40_000]
    assert all(row["support vectors"] <= 50 for row in budget)
    assert all(0 < row["rows a second"] < 1e7 and row["peak memory"] > 50e6 for row in (*budget, *early))


@pytest.mark.slow  # as others of this file
def test_methods_for_rows_beyond_memory_are_compared_by_time(tables):
    [rows] = tables("beyond").values()
    assert list(dict.fromkeys(row["method"].split(",")[0] for row in rows)) == [
        *("streamsvm", "XGBoost", "LightGBM", "scikit-learn", "dask-ml"),
    ]
    ended = {row["ended"] for row in rows if "ended" in row}
    assert ended <= {"not installed"}
    of_method = [row["seconds"] for row in rows if row["method"].startswith("dask-ml")]
    assert of_method == sorted(of_method)
    assert all(0.5 < row["accuracy"] <= 1 and row["rows a second and core"] > 0 for row in rows if "ended" not in row)


@pytest.mark.slow  # as others of this file
def test_a_billion_rows_are_planned_that_are_not_there(tables):
    [plans] = tables("plans").values()
    assert [row["rows"] for row in plans] == [10**9, 10**9, 10**9]
    assert all(row["seconds"] > 0 for row in plans)


@pytest.mark.slow  # 30 fits, and a server
def test_options_are_compared(tables):
    found = tables("options")
    assert [row["set, kernel"] for row in found["A bias"]] == ["ijcnn1, rbf", "ijcnn1, linear"]
    assert all(row["accuracy"] > 0.1 for row in found["Pairs of classes, or each against the rest"])
    assert len(found["Options that are not chosen"]) == len(found["covtype, early"]) == 3
    assert len(found["Larger tables, everything chosen"]) == 4
    assert [row["by"] for row in found["covtype, early, as a graph"]] == ["train_in_memory", "graph_of"]
    admm, polished, libsvm = (float(row["objective"]) for row in found["Regression on a compressed matrix"][:3])
    assert polished == pytest.approx(libsvm, rel=1e-4)
    assert admm > libsvm
    assert len(found["What `explain` takes"]) == 8
    rows = found["Model and run directory in a bucket"]
    assert [row["in a"] for row in rows] == 2 * ["local folder", "bucket"]


def test_reported_numbers_hold_in_float64(tables):
    (rows,) = tables("certificates").values()
    counts = {name: sum(row[name] for row in rows) for name in ("fits", "off", "error")}
    assert counts == {"fits": 8, "off": 0, "error": 0}


@pytest.mark.slow  # as others of this file
def test_gradients_are_timed_next_to_values(tables):
    ratios, columns = tables("gradients").values()
    assert [row["features"] for row in ratios] == ["8", "16", "54", "123", "123, 11% filled", "784"]
    assert [row["kernel"] for row in columns] == ["rbf", "matern", "laplacian"]


@pytest.mark.slow  # as others of this file
def test_values_of_every_kind_have_a_cost(tables):
    (rows,) = tables("kinds").values()
    assert [row["column"] for row in rows][:3] == ["number, alone", "number", "true or false"]
    assert all(0 < float(row["fastest"]) <= float(row["slowest"]) < 100 for row in rows)


@pytest.mark.slow  # as others of this file
def test_rows_are_regrouped(tables):
    for (row,) in tables("regrouping").values():
        assert (row["files"], row["partitions"]) == (1, 40)


@pytest.mark.slow
def test_errors_over_seconds(tables, folder):
    (rows,) = tables("comparison").values()
    assert [row["curve"] for row in rows][:2] == ["LIBSVM, subsamples", "dcsvm, exact"]
    assert {row["curve"] for row in rows if "note" in row} <= {"scikit-learn-intelex"}
    fitted = [row for row in rows if "note" not in row]
    assert len(fitted) >= 10
    assert all(0 <= row["error"] <= 0.5 for row in fitted)
    assert {file.suffix for file in (folder / "comparison" / "plots").iterdir()} == {".png", ".svg"}


@pytest.mark.slow  # eighteen streams
def test_probabilities_and_gamma_of_streams_are_told(tables):
    found = tables("streams")
    assert len(found["Probabilities"]) == 10
    assert {row["stream"] for row in found["Probabilities"]} < {row["stream"] for row in found["Gamma"]}
    assert [row["gamma"] for row in found["Regret"]] == ["0.1", "auto", "scale"]
    assert [row["gamma"] for row in found["Text"]] == ["0.1", "auto", "scale", "1.0"]


@pytest.mark.slow  # fifteen seconds: eighteen streams, each from its beginning
def test_streams_that_tune_themselves_are_measured(tables):
    found = tables("tuned")
    assert len(found["BSGDClassifier() alone"]) == 21
    assert [row["what"] for row in found["Events per second, d = 22, B = 500"]] == [
        "predict_one and learn_one",
        "learn_many",
    ]
    [asked] = (rows for title, rows in found.items() if title.startswith("Accuracy by the share"))
    assert all(row["100%"].endswith("(100.0%)") for row in asked)
