"""A model as one HTML page that answers in the browser, by onnxruntime-web: no server, no network.

    npm pack onnxruntime-web && tar xzf onnxruntime-web-*.tgz
    streamsvm export --model model.zarr --format onnx --out model.onnx
    python pipelines/onnx_page.py model.onnx --runtime package/dist --out page.html

The page has a field for each column of the rows or, if any is text, of the table, and shows the label, decision values
and probabilities of the row. The runtime (MIT licence, 14 MB of WebAssembly) and the model are inside, so that it opens
from a folder.
"""

from __future__ import annotations

import argparse
import base64
import html
import json
from pathlib import Path
from typing import Any

import onnx

RUNTIME, BINARY = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
TYPES = {onnx.TensorProto.STRING: "string", onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.DOUBLE: "float64"}
PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
  body {{ font: 16px system-ui; margin: 2rem auto; max-width: 40rem; color-scheme: light dark; padding: 0 1rem }}
  label {{ display: flex; justify-content: space-between; gap: 1rem; margin: .3rem 0 }}
</style>
<h1>{title}</h1>
<form>{fields}</form>
<pre id="answer" aria-live="polite">loading</pre>
<script type="module">
const bytes = async text => new Uint8Array(await (await fetch("data:;base64," + text)).arrayBuffer());
const ort = await import("data:text/javascript;base64,{runtime}");
ort.env.wasm.wasmBinary = await bytes("{binary}");
ort.env.wasm.numThreads = 1;
const session = await ort.InferenceSession.create(await bytes("{model}"));
const inputs = {inputs};
const arrays = {{ string: Array, float32: Float32Array, float64: Float64Array }};
async function answer() {{
  const values = Array.from(document.querySelectorAll("input"), input => input.value), feeds = {{}};
  for (const {{ name, type, width }} of inputs) {{
    const row = values.splice(0, width).map(value => type === "string" ? value : Number(value));
    feeds[name] = new ort.Tensor(type, arrays[type].from(row), [1, width]);
  }}
  const found = await session.run(feeds);
  const lines = Object.entries(found).map(([name, value]) => name + ": " + Array.from(value.data).join(", "));
  document.getElementById("answer").textContent = lines.join("\\n");
}}
document.querySelector("form").addEventListener("input", answer);
await answer();
</script>
</html>
"""


def page(model: Path, runtime: Path, title: str) -> str:
    """The page of a model that `streamsvm export --format onnx` wrote. Raises SystemExit where the runtime lacks."""
    for name in (RUNTIME, BINARY):
        if not (runtime / name).is_file():
            raise SystemExit(f"{runtime}: found no {name}, expected the folder dist of onnxruntime-web")
    graph = onnx.load(str(model))
    inputs, fields = inputs_of(graph), []
    for entry in inputs:
        names = columns(graph) if entry["width"] > 1 else [entry["name"]]
        kind = 'type="text"' if entry["type"] == "string" else 'type="number" step="any" value="0"'
        fields += [f"<label>{html.escape(name)}<input {kind}></label>" for name in names]
    return PAGE.format(
        title=html.escape(title),
        fields="".join(fields),
        inputs=json.dumps(inputs).replace("<", "\\u003c"),
        runtime=packed(runtime / RUNTIME),
        binary=packed(runtime / BINARY),
        model=packed(model),
    )


def inputs_of(graph: onnx.ModelProto) -> list[dict[str, Any]]:
    """The name, type and columns of each input."""
    tensors = [(entry.name, entry.type.tensor_type) for entry in graph.graph.input]
    return [
        {"name": name, "type": TYPES[tensor.elem_type], "width": tensor.shape.dim[1].dim_value}
        for name, tensor in tensors
    ]


def columns(graph: onnx.ModelProto) -> list[str]:
    """The names of the columns of X that the graph keeps, else x0, x1, .."""
    kept = {prop.key: prop.value for prop in graph.metadata_props}
    width = graph.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    return json.loads(kept["feature_names"]) if "feature_names" in kept else [f"x{j}" for j in range(width)]


def packed(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="written by streamsvm export --format onnx")
    parser.add_argument("--runtime", type=Path, required=True, help="the folder dist of onnxruntime-web")
    parser.add_argument("--out", type=Path, required=True, help="the page")
    given = parser.parse_args()
    given.out.write_text(page(given.model, given.runtime, given.model.stem), encoding="utf-8")
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
