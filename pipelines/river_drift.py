"""A river pipeline on a stream whose rules change: the electricity market, in its order of time. Linux.

    python pipelines/river_drift.py --data DIR [--plots DIR] [--quick] [--out drift.md]

Each event is predicted, then learned, by
    no drift handling   StandardScaler | BSGDClassifier, with a lambda and a gamma: it tunes nothing
    fresh learner       the same, where ADWIN over the errors finds drift the learner starts again
    background learner  where DDM warns of drift another learner begins next to it, and takes over where drift is found
    larger steps        no drift handling, but a smaller lambda: steps are 1 / (lambda t), and forget what was before
    NoChange            river's: the label of the event before
    adaptive tree       river's HoeffdingAdaptiveTreeClassifier, which has ADWIN in its nodes

Printed are accuracies by tenths of the stream: as it is, and with UP and DOWN exchanged from its middle on. Labels
come in long runs here, so NoChange, which looks at no feature, is hard to beat. Detectors help a learner whose steps
have become small; a learner that keeps them large needs none on this stream. Options are in configs/river_drift.toml.
--plots draws the accuracy of the last 1,000 events.

Needs electricity.csv.gz in --data: a row number, numbers, and UP or DOWN, with a header.
"""

from __future__ import annotations

import argparse
import tomllib
from itertools import islice
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from bench import CONFIGS, electricity, from_arguments
from prequential import prequential
from river import base, drift, dummy, preprocessing, tree
from tables import Report, Share, Table

from streamsvm.online import BSGDClassifier

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

CONFIG = CONFIGS / "river_drift.toml"
PARTS = 10


class Counted(drift.DriftRetrainingClassifier):
    """river's wrapper, which also says after which events the learner was replaced."""

    def __init__(self, model: base.Classifier, drift_detector: Any, train_in_background: bool) -> None:
        super().__init__(model, drift_detector, train_in_background)
        self.n_seen, self.replaced = 0, list[int]()

    def learn_one(self, x: dict[str, float], y: bool) -> None:
        before = self.model
        super().learn_one(x, y)
        self.n_seen += 1
        if self.model is not before:
            self.replaced.append(self.n_seen)


def models(config: dict[str, Any]) -> dict[str, base.Classifier]:
    def learner(**changed: float) -> BSGDClassifier:
        return BSGDClassifier(**config["learner"] | changed)

    adwin, ddm = drift.ADWIN(**config["adwin"]), drift.binary.DDM(**config["ddm"])
    scaled = preprocessing.StandardScaler
    return {
        "no drift handling": scaled() | learner(),
        "fresh learner": scaled() | Counted(learner(), adwin, train_in_background=False),
        "background learner": scaled() | Counted(learner(), ddm, train_in_background=True),
        "larger steps": scaled() | learner(**config["larger_steps"]),
        "NoChange": dummy.NoChangeClassifier(),
        "adaptive tree": scaled() | tree.HoeffdingAdaptiveTreeClassifier(seed=0),
    }


def progressive(model: base.Classifier, events: list[Any]) -> tuple[np.ndarray, float]:
    """(n,) whether each event was predicted right before it was learned, and events per second."""
    told = prequential(model, events, labels_only=True)
    return told.right, len(events) / told.seconds


def table(title: str, found: dict[str, tuple[np.ndarray, float]], replaced: dict[str, list[int]]) -> Table:
    records = []
    for name, (right, rate) in found.items():
        tenths = {f"{i}": Share(part.mean()) for i, part in enumerate(np.array_split(right, PARTS), start=1)}
        whole = {"whole": Share(right.mean()), "events/s": int(rate)}
        records.append({"model": name} | tenths | whole | {"replaced": len(replaced[name]) or None})
    means = {name: 100 * right.mean() for name, (right, _) in found.items()}
    fresh, last = (means["fresh learner"] - means[name] for name in ("no drift handling", "NoChange"))
    notes = [
        f"1 to {PARTS} are tenths of {len(right):,} events; replaced: times that a learner took over",
        f"a fresh learner: {fresh:+.2f} points against no drift handling, {last:+.2f} against NoChange",
    ]
    return Table(title, records, notes)


def plot(found: dict[str, tuple[np.ndarray, float]], replaced: list[int], window: int, file: Path) -> None:
    figure, axes = plt.subplots(figsize=(10, 4), layout="constrained")
    for name, (right, _) in found.items():
        sums = np.cumsum(np.insert(right, 0, 0))
        width = min(window, len(right))
        axes.plot(range(width, len(sums)), 100 * (sums[width:] - sums[:-width]) / width, lw=1, label=name)
    for event in replaced:
        axes.axvline(event, color="0.85", lw=0.5, zorder=0)
    axes.set(xlabel="event", ylabel=f"accuracy of the last {window:,}, %")
    axes.set_title("Grey: a fresh learner begins", fontsize="small", loc="right")
    axes.legend(fontsize="small", ncols=3)
    figure.savefig(file, dpi=150)
    plt.close(figure)


def compare(title: str, events: list[Any], file: Path | None) -> Table:
    config = tomllib.loads(CONFIG.read_text())
    found, replaced = {}, {}
    for name, model in models(config).items():
        found[name] = progressive(model, events)
        replaced[name] = model["Counted"].replaced if "learner" in name else []
    if file is not None:
        plot(found, replaced["fresh learner"], config["plot"]["window"], file)
    return table(title, found, replaced)


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw drift.png and break.png here")


def main() -> None:
    with from_arguments(__doc__, _own_options) as (bench, args):
        report, plots = Report(args.out), args.plots
        if plots is not None:
            plots.mkdir(parents=True, exist_ok=True)
        events = list(islice(electricity(bench.data), bench.sizes.train_rows))
        broken = [(x, y != (i >= len(events) // 2)) for i, (x, y) in enumerate(events)]
        models(tomllib.loads(CONFIG.read_text()))["no drift handling"].learn_one(*events[0])  # compiles
        report.add([compare("Electricity", events, plots and plots / "drift.png")])
        report.add([compare("Labels exchanged in the middle", broken, plots and plots / "break.png")])


if __name__ == "__main__":
    main()
