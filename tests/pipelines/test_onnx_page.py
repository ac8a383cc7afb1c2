"""The page of an ONNX model answers as the model does: its own script, run by node on onnxruntime-web."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import browser
import numpy as np
import pandas as pd
import pytest

from streamsvm import DCSVC
from streamsvm.exchange.onnx import write_onnx

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
RUNTIME = os.environ.get("STREAMSVM_TEST_ORT_WEB")  # the folder dist of onnxruntime-web
FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
NAMES = ["a", "<b> & c"]
DOCUMENT = """
const page = require("node:fs").readFileSync(process.argv[1], "utf8"), shown = {};
globalThis.document = {
  querySelectorAll: () => process.argv.slice(2).map(value => ({ value })),
  querySelector: () => ({ addEventListener() {} }),
  getElementById: () => shown,
};
const script = page.split('<script type="module">')[1].split("</script>")[0];
import("data:text/javascript;base64," + Buffer.from(script).toString("base64"))
  .then(() => { console.log(shown.textContent); process.exit(0); });
"""

ANSWER = "document.getElementById('answer').textContent"
FILL = """
const [a, b] = document.querySelectorAll("input");
[a.value, b.value] = [2, 1.5];
document.querySelector("form").dispatchEvent(new Event("input"));
"""


@pytest.fixture(scope="module")
def fitted():
    X = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    return DCSVC(C=10).fit(pd.DataFrame(X, columns=NAMES), np.where(X[:, 0] * X[:, 1] > 0, "same", "other"))


@pytest.fixture(scope="module")
def fitted_to_text():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"colour": rng.choice(["red", "blue"], 100), "size": rng.normal(size=100)})
    return DCSVC(C=10).fit(frame, np.where((frame["colour"] == "red") ^ (frame["size"] > 0), "same", "other"))


def make_page(fitted, runtime, folder):
    write_onnx(fitted.model_, folder / "m.onnx")
    recipe = [sys.executable, PIPELINES / "onnx_page.py", folder / "m.onnx"]
    return subprocess.run(
        [*map(str, recipe), "--runtime", str(runtime), "--out", str(folder / "page.html")],
        capture_output=True,
        text=True,
    )


def test_a_page_needs_nothing_else(fitted, tmp_path):
    missing = make_page(fitted, tmp_path, tmp_path)
    assert missing.returncode == 1
    assert "found no ort.wasm.bundle.min.mjs, expected the folder dist" in missing.stderr
    for name in FILES:
        (tmp_path / name).write_bytes(b"anything")
    done = make_page(fitted, tmp_path, tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<label>&lt;b&gt; &amp; c<input" in page
    assert "<b>" not in page
    assert "http" not in page


def test_text_has_a_field_of_text(fitted_to_text, tmp_path):
    for name in FILES:
        (tmp_path / name).write_bytes(b"anything")
    assert make_page(fitted_to_text, tmp_path, tmp_path).returncode == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<label>colour<input type="text"></label><label>size<input type="number"' in page


NEEDS_RUNTIME = pytest.mark.skipif(
    RUNTIME is None, reason="needs STREAMSVM_TEST_ORT_WEB, the folder dist of onnxruntime-web"
)


@pytest.mark.slow  # 14 MB of WebAssembly are compiled
@NEEDS_RUNTIME
@pytest.mark.skipif(browser.find() is None, reason="needs chromium")
def test_it_answers_in_a_browser(fitted, tmp_path):
    assert make_page(fitted, RUNTIME, tmp_path).returncode == 0

    async def ask(tab):
        await tab.until(f"{ANSWER} !== 'loading'", 100)
        await tab.value(FILL)
        said[:] = [await tab.until(f"{ANSWER}.includes('same') && {ANSWER}")]
        assert tab.problems == []

    said = [""]
    browser.visit(browser.find(), tmp_path / "page.html", ask)
    row = pd.DataFrame([(2.0, 1.5)], columns=NAMES)
    assert fitted.predict(row)[0] == "same"
    value = float(said[0].split("scores: ")[1].split()[0])
    assert value == pytest.approx(fitted.decision_function(row)[0], abs=1e-5)


@pytest.mark.slow  # 14 MB of WebAssembly are compiled
@NEEDS_RUNTIME
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("row", [(0.5, 1.5), (-1.0, 2.0)])
def test_it_answers_as_the_model(fitted, tmp_path, row):
    assert_same(fitted, tmp_path, pd.DataFrame([row], columns=NAMES))


@pytest.mark.slow  # 14 MB of WebAssembly are compiled
@NEEDS_RUNTIME
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("row", [("red", 1.5), ("blue", -1.0), ("green", 0.3)])
def test_it_takes_the_texts_of_a_table(fitted_to_text, tmp_path, row):
    assert_same(fitted_to_text, tmp_path, pd.DataFrame([row], columns=["colour", "size"]))


def assert_same(fitted, folder, rows):
    assert make_page(fitted, RUNTIME, folder).returncode == 0
    node = ["node", "--eval", DOCUMENT, str(folder / "page.html"), *map(str, rows.iloc[0])]
    done = subprocess.run(node, capture_output=True, text=True, timeout=200)
    said = dict(line.split(": ") for line in done.stdout.splitlines())
    assert said["label"] == fitted.predict(rows)[0], done.stderr
    assert float(said["scores"]) == pytest.approx(fitted.decision_function(rows)[0], abs=1e-5)
