"""
From an imbalanced table to a served model
==========================================

Few payments are fraud. A model that never warns is nearly always right, and useless: what counts is what errors
cost. This example goes from a CSV file to a model that decides by costs, and to answers over HTTP.
"""

# %%
# 12,000 payments, with numbers and text. New devices, nights and amounts that are unusual for the shop are suspicious.

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import Request, urlopen

import matplotlib.pyplot as plt
import numpy as np

from streamsvm import Store, load_model

folder = tempfile.TemporaryDirectory()
here, rng, n = Path(folder.name), np.random.default_rng(0), 12_000
amount, hour, is_new = rng.lognormal(3, 1, n), rng.integers(0, 24, n), rng.random(n) < 0.2
shop = rng.choice(["books", "games", "tickets", "food"], n)
unusual = np.abs(np.log(amount) - np.where(shop == "tickets", 4, 3))
risk = 1.5 * unusual + 2 * is_new + 2 * (hour < 6) + rng.normal(0, 0.7, n)
lines = [
    f"{a:.2f},{h},{s},{str(d).lower()},{'fraud' if r > 5.5 else 'fine'}"
    for a, h, s, d, r in zip(amount, hour, shop, is_new, risk, strict=True)
]
(here / "payments.csv").write_text("\n".join(["amount,hour,shop,new_device,payment", *lines, ""]))


def streamsvm(*words):
    """What a command prints, as JSON."""
    command = [sys.executable, "-m", "streamsvm", *words, "--json"]
    return json.loads(subprocess.run(command, cwd=here, check=True, capture_output=True, text=True).stdout)


split = ["--split", "0.7", "--test-store", "test.zarr"]
made = streamsvm("ingest", "payments.csv", "--store", "train.zarr", "--label", "payment", *split)
print(f"{made['rows']:,} rows to learn from, {np.mean(risk > 5.5):.1%} of all are fraud")

# %%
# A missed fraud costs 40 times as much as a false alarm. `--costs` needs probabilities, and predicts the label whose
# expected cost is the smallest.

options = ["--no-search", "--scale", "standard", "--C", "10", "--gamma", "0.1", "--probability", "sigmoid"]
costs = ["--costs", "fraud>fine=40,fine>fraud=1"]
streamsvm("fit", "--store", "train.zarr", "--model", "payments.zarr", *options, *costs)
scores = streamsvm("evaluate", "--model", "payments.zarr", "--store", "test.zarr")
print(f"cost of a payment: {scores['cost']:.3f}, of the most probable labels: {scores['cost_of_likeliest']:.3f}")

# %%
# The costs decide where to warn: from a probability of 1 / 41 on. The plot shows what other thresholds would cost on
# the test rows.

test, model = Store.open(str(here / "test.zarr")), load_model(here / "payments.zarr")
is_fraud = test.labels_at(np.arange(test.n)) == "fraud"
p = model.predict_proba(test.read(0, test.n))[:, list(model.classes).index("fraud")]
thresholds = np.geomspace(1e-3, 0.9, 200)
cost = [np.mean(40 * (is_fraud & (p <= t)) + (~is_fraud & (p > t))) for t in thresholds]

figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
axes.plot(thresholds, cost, label="cost of a payment")
axes.axvline(1 / 41, color="grey", linestyle="--", label="1 / 41, from the costs")
axes.axhline(40 * is_fraud.mean(), color="firebrick", linestyle=":", label="never warn")
axes.set(xscale="log", xlabel="warn above this probability", ylabel="mean cost", ylim=0, title="Test rows")
axes.legend()
plt.show()

# %%
# `serve` answers with JSON, from the table's own columns.

command = [sys.executable, "-m", "streamsvm", "serve", "--model", "payments.zarr", "--port", "0"]
payments = [
    {"amount": 20.0, "hour": 14, "shop": "books", "new_device": False},
    {"amount": 900.0, "hour": 3, "shop": "games", "new_device": True},
]
with subprocess.Popen(command, cwd=here, stderr=subprocess.PIPE, text=True) as server:
    address = re.search(r"http://\S+", server.stderr.readline())[0]
    with urlopen(Request(f"{address}/predict?proba=1", json.dumps(payments).encode())) as response:
        answers = json.load(response)
    server.terminate()
for payment, answer in zip(payments, answers, strict=True):
    print(payment, answer)
folder.cleanup()

# %%
# :doc:`/guide/probabilities` is about calibration and costs, :doc:`/guide/serve` about the server, which also learns
# from events if its model is one of a stream.
