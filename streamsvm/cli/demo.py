"""`streamsvm demo`: the main job on data that ships with a dependency."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from streamsvm.cli.options import AsJson, option
from streamsvm.cli.output import emit, progress
from streamsvm.runs.phases import usage_so_far
from streamsvm.storage.text import human_bytes


def demo(
    rows: Annotated[int, option("--rows", "Deformed digits to train on.", min=1000)] = 200_000,
    folder: Annotated[Path | None, option("--dir", "Keep stores and model here.", "DIR")] = None,
    force: Annotated[bool, option("--force", "Replace what an earlier demo left in --dir.")] = False,
    as_json: AsJson = False,
) -> None:
    """Deform scikit-learn's digits into a large store, train DC-SVM on it, score on untouched digits."""
    from streamsvm.demo import run_demo

    place = nullcontext(str(folder)) if folder else tempfile.TemporaryDirectory(prefix="streamsvm-demo-")
    with place as where, progress() as events:
        Path(where).mkdir(parents=True, exist_ok=True)
        result = {**run_demo(Path(where), rows, events, force=force), **usage_so_far()}
    if as_json:
        emit(result, as_json=True, title="")
    else:
        typer.echo(_summary(result, folder))


def _summary(result: dict[str, Any], folder: Path | None) -> str:
    fit = result["fit"]
    where = f"Stores and model are in {folder}." if folder else "Give --dir to keep the stores and the model."
    return (
        f"Trained on {result['rows']:,} deformed digits: {fit['n_support']:,} support vectors.\n"
        f"{result['accuracy']:.2%} of {result['test_rows']} untouched digits are recognised.\n"
        f"{result['seconds']:.1f} s in all, at most {human_bytes(result['peak_rss_bytes'])} of memory. {where}"
    )
