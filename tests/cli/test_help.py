"""Help that can be read: values, groups, narrow terminals; what a shell completes; errors that name an option once."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from inspect import signature

import numpy as np
import pytest
from every_case import every_case

from streamsvm import DCSVC, BudgetedSVC, CuttingPlaneSVC
from streamsvm.cli.app import COMMANDS, app, exit_status
from streamsvm.cli.stores import ingest
from streamsvm.config import option_values
from streamsvm.errors import ConfigError, MemoryLimitError
from streamsvm.ingest.options import FORMATS, IngestOptions

LISTED = {
    "solver": "solver",
    "task": "task",
    "kernel": "kernel.name",
    "scale": "scale",
    "probability": "probability.method",
}
USUAL = ["Data", "Model", "Run", "Options"]
NAMES_OF_VALUES = {"probability": "METHOD"}
DETAILED = ["Reading files", "Labels and gaps", "Papers' switches", "Fine tuning", "Predictions"]
DETAILED += ["Plans and checkpoints", "Cluster and device"]


def helped(*words, columns=88):
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setenv("COLUMNS", str(columns))
        app([*words], prog_name="streamsvm", standalone_mode=False)
    return printed.getvalue()


def completed(*words):
    """What bash offers for the last of these words."""
    line = " ".join(("streamsvm", *words))
    asked = {"_STREAMSVM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    command = [sys.executable, "-m", "streamsvm"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | asked)
    return run.stdout.split()


def test_the_command_alone_prints_its_help():
    run = subprocess.run([sys.executable, "-m", "streamsvm"], capture_output=True, text=True, check=True)
    assert run.stdout == helped("--help", columns=80)


def test_every_command_says_all_that_it_does():
    assert all(" ".join(text.split()) in " ".join(helped("--help").split()) for text in COMMANDS.values())


def test_options_have_texts_and_no_types_of_programs():
    for name in COMMANDS:
        text = helped(name, "--help-all")
        assert text.startswith(f"Usage: streamsvm {name} ")
        assert not re.search(r"<\w|\}\.\.\.|\[\]", text), name
        lines = text.splitlines()
        for line, after in zip(lines, [*lines[1:], ""], strict=True):
            if line.startswith("  --"):
                assert re.search(r"\S  +\S", line) or after.startswith("      "), f"{name}: {line}"


def test_help_fits_a_narrow_terminal():
    wide = [
        f"{name}: {line}"
        for name in COMMANDS
        for asked in ("--help", "--help-all")
        for line in helped(name, asked, columns=60).splitlines()
        if len(line) > 60 and not line.startswith(("  streamsvm ", "Usage"))
    ]
    assert not wide, "\n".join(wide)


def headings(text):
    return [line[:-1] for line in text.splitlines() if re.fullmatch(r"[A-Z][\w' ]+:", line)]


def flags(text):
    return re.findall(r"^  (?:-h, )?(--[\w-]+)", text, re.M)


def test_the_options_of_fit_come_in_groups_below_examples():
    text = helped("fit", "--help")
    assert headings(text) == USUAL
    assert headings(helped("fit", "--help-all")) == [*USUAL, *DETAILED]
    assert text.index("streamsvm fit sales.csv --label returned\n") < text.index("Data:")
    assert re.search(r"^  --early  +Stop", text, re.M)


def test_help_of_fit_shows_the_usual_options_on_a_screen_and_names_the_page_of_all():
    short, whole = helped("fit", "--help", columns=80), helped("fit", "--help-all")
    assert len(short.splitlines()) <= 45
    assert len(flags(short)) == 25 + len(["--help", "--help-all"])
    assert set(flags(short)) < set(flags(whole))
    assert {"--nu", "--budget", "--merge", "--epochs"} == set(flags(whole.partition("Papers' switches:")[2])[:4])
    assert re.search(r"^  --help-all  Show all \d\d: also reading files, ", short, re.M)


@pytest.mark.parametrize(
    "name", ["ingest", "tune", "stream", "predict", "evaluate", "info", "check", "calibrate", "explain"]
)
def test_what_is_rarely_needed_is_left_to_the_page_of_all(name):
    short, whole = helped(name, "--help"), helped(name, "--help-all")
    assert "--delimiter" not in short
    assert "--delimiter" in whole
    assert {"--help", "--help-all"} < set(flags(short)) < set(flags(whole))


@pytest.mark.parametrize(("flag", "option"), LISTED.items())
def test_values_are_listed_and_completed(flag, option):
    values = option_values(option)
    assert len(values) > 1
    words = " ".join(helped("fit", "--help", columns=200).split())
    assert f"--{flag} {NAMES_OF_VALUES.get(flag, flag.upper())} " in words
    assert f"{', '.join(values)} " in words
    assert completed("fit", f"--{flag}", values[0][:2]) == [v for v in values if v.startswith(values[0][:2])]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["fit", "--set", "dcsvm.ea"], ["dcsvm.early=", "dcsvm.early_level="]),
        (["fit", "--gamma", "s"], ["scale"]),
        (["stream", "--on-error", "s"], ["skip", "stop"]),
        (["ingest", "--dtype", "float"], ["float32", "float64"]),
    ],
)
def test_the_shell_completes_values(words, offered):
    assert completed(*words) == offered


def test_every_option_of_ingest_is_a_flag():
    given = signature(ingest).parameters
    assert set(IngestOptions.model_fields) == given.keys() - {"context", "sources", "store", "as_json"}
    assert tuple(completed("ingest", "--format", "")) == FORMATS


@every_case(
    ("words", "line"),
    [
        (["--C", "-1"], "--C: found -1, expected a number above 0"),
        (["--C", "abc"], "--C: found 'abc', expected a number"),
        (["--kernel", "foo"], "--kernel: found 'foo', expected 'rbf', 'laplacian', 'matern',"),
        (["--degree", "2.5"], "--degree: found 2.5, expected a valid integer"),
        (["--workers", "0"], "--workers: found 0, expected a number at least 1"),
        (["--memory-limit", "5x"], "--memory-limit: found '5x', expected a memory size"),
        (["--set", "C=-1"], "--set C=-1: C: found -1"),
    ],
)
def test_an_error_names_a_flag_once(capfd, words, line):
    assert exit_status(lambda: app(["fit", "--store", "s", *words], standalone_mode=False)) == 2
    assert capfd.readouterr().err.startswith(f"error: {line}")


@every_case(
    ("estimator", "message"),
    [
        (DCSVC(kernel="foo"), "DCSVC: kernel: found 'foo'"),
        (DCSVC(early="maybe"), "DCSVC: early: found 'maybe'"),
        (DCSVC(probability="maybe"), "DCSVC: probability: found 'maybe'"),
        (BudgetedSVC(budget=1), "BudgetedSVC: budget: found 1"),
        (CuttingPlaneSVC(max_passes=0), "CuttingPlaneSVC: max_passes: found 0"),
        (CuttingPlaneSVC(intercept_scaling=-1.0), "CuttingPlaneSVC: intercept_scaling: found -1.0"),
    ],
)
def test_an_error_names_a_parameter_as_python_does(estimator, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        estimator.fit(np.eye(4), [0, 1, 0, 1])


def test_too_little_memory_is_said_without_a_flag():
    with pytest.raises(MemoryLimitError, match=r"^a memory limit of 5 B is too small .* give at least \d+ MiB"):
        DCSVC(memory_limit=5).fit(np.eye(4), [0, 1, 0, 1])
