"""
A topic of Kafka whose rules change
===================================

A bank grants loans by a rule, and one day by another, without notice. `streamsvm stream` reads the applications from a
topic, answers each before it learns from it, notices the change, and continues where it was killed.
"""

# %%
# A broker in this process, by Confluent's client (``pip install '.[kafka]'``); yours has an address instead. The
# applications are those of river's generator Agrawal. After 3,000 of them another rule decides.

import json
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from confluent_kafka import Producer
from river.datasets import synth

EVENTS, CHANGE, KILLED = 6_000, 3_000, 4_200

broker = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
granted = []
for rule in (0, 3):
    for x, label in islice(synth.Agrawal(classification_function=rule, seed=rule), CHANGE):
        granted.append("yes" if label else "no")
        broker.produce("loans", json.dumps(x | {"granted": granted[-1]}), partition=0)
broker.flush()
(node,) = broker.list_topics().brokers.values()
print(json.dumps(x | {"granted": granted[-1]}))

# %%
# The stream answers with one JSON line for each message. It is killed after 4,200 of them, without a chance to save,
# and the same command starts it again. The last snapshot holds the offset of the next message of each partition.

folder = tempfile.TemporaryDirectory()
command = [sys.executable, "-m", "streamsvm", "stream", "--input", f"kafka://{node.host}:{node.port}/loans"]
command += ["--label", "granted", "--model", "loans.zarr", "--snapshot-every", "1000"]


def answers(last):
    """What the stream answers, by number of the event, and what it warns of. It is killed after event `last`."""
    answered = {}
    errors = Path(folder.name) / "errors.txt"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(command, cwd=folder.name, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        for line in process.stdout:
            answer = json.loads(line)
            answered[answer["event"]] = answer["prediction"]
            if answer["event"] == last:
                process.kill()
                break
    return answered, errors.read_text()


before, warned = answers(KILLED)
after, warned_later = answers(EVENTS)
twice = sorted(before.keys() & after.keys())
print(f"{len(before):,} answers, then {len(after):,}, the first of them to event {min(after):,}")
print(f"{len(twice)} events were answered twice, {sum(before[n] == after[n] for n in twice)} of them alike")

# %%
# The warnings of both processes say when errors rose (an alarm), and when a second learner, which began then, took over
# (a switch).

print(warned + warned_later)

# %%

answered = before | after
right = np.array([answered[n + 1] == label for n, label in enumerate(granted)])
window = np.ones(200) / 200
figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
share = 100 * np.convolve(right, window, mode="valid")
axes.plot(np.arange(len(share)) + len(window), share, label=f"answers: {100 * right.mean():.1f} % right")
axes.axvline(CHANGE, color="firebrick", linestyle="--", label="the rule changes")
axes.axvline(KILLED, color="grey", linestyle=":", label="killed, and started again")
axes.set(xlabel="messages", ylabel="accuracy of the last 200, %", title="Answer, then learn")
figure.legend(loc="outside lower center", ncols=3)
plt.show()
folder.cleanup()

# %%
# A topic may have several partitions: the snapshot holds an offset for each. :doc:`/guide/stream` has labels that come
# later, active learning, and NATS; :doc:`/guide/serve` a server that learns.
