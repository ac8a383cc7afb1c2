"""The learner in a pipe: every line answered, kills survived, nothing learnt twice."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import piped
from every_case import every_case
from river.preprocessing import StandardScaler
from sklearn.metrics import roc_auc_score
from terminal import read_all

from streamsvm import load_model
from streamsvm.cli.app import app, exit_status
from streamsvm.data.rows import Rows
from streamsvm.events import Events, Stretch
from streamsvm.models.learner import BudgetStats
from streamsvm.online import BSGDClassifier, BSGDOneClass, BSGDRegressor
from streamsvm.online.lines import Lines, events
from streamsvm.online.scores import ClassScores
from streamsvm.online.stream import RecentCounts, Stream, StreamReporter
from streamsvm.report.html import contents
from streamsvm.report.read import read_run

COMMAND = [sys.executable, "-m", "streamsvm", "stream"]
OPTIONS = ["--budget", "30", "--lam", "1e-3", "--gamma", "0.5"]


def lines(n: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 3)) * [1, 10, 1] + [0, 3, 0], 4)
    y = np.where(X[:, 0] * (X[:, 1] - 3) > 0, "up", "down")
    return [json.dumps({"a": a, "b": b, "c": c, "y": str(t)}) for (a, b, c), t in zip(X.tolist(), y, strict=True)]


def command(model: Path, text: str, *more: str) -> tuple[int, list[dict], str]:
    """(exit status, answers, stderr) of the command, in this process."""
    status, answers, said = piped(text, "stream", "--model", model, *OPTIONS, *more)
    return status, [json.loads(line) for line in answers.splitlines()], said


def stream(model: Path, text: str, kind: str = "json") -> list[dict]:
    """The answers to all lines, and a snapshot, in this process."""
    learner = Stream.open(model, lambda: BSGDClassifier(1e-3, 0.5, budget=30), scale=True, label="y")
    answers = [learner.answer(line, parse) for _, line, parse in events(text.split("\n"), kind)]
    learner.save()
    return json.loads(json.dumps(answers))


def state(model: Path) -> dict[str, bytes]:
    arrays, _ = load_model(model).to_state()
    return {name: array.tobytes() for name, array in arrays.items() if name != "learner_counts"}


def test_every_event_is_answered_before_it_is_learnt(tmp_path):
    """As river would: a scaler that learns the event, then prediction, then learning."""
    scaler, learner = StandardScaler(), BSGDClassifier(1e-3, 0.5, budget=30)
    done = subprocess.run(
        [*COMMAND, "--model", str(tmp_path / "m"), *OPTIONS],
        input="\n".join(lines(2000)),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answers = map(json.loads, done.stdout.splitlines())
    for number, (line, answer) in enumerate(zip(lines(2000), answers, strict=True), 1):
        x = json.loads(line)
        y = x.pop("y")
        scaler.learn_one(x)
        x = scaler.transform_one(x)
        p = learner.predict_proba_one(x)
        assert answer["probabilities"] == pytest.approx(p, abs=1e-6)
        assert (answer["event"], answer["prediction"]) == (number, learner.predict_one(x))
        learner.learn_one(x, y)
    assert json.loads(done.stderr.splitlines()[-1])["learnt"] == 2000


@pytest.mark.slow  # commands, and streams from their beginning
def test_a_csv_and_json_stream_are_the_same(tmp_path):
    rows = [json.loads(line) for line in lines(300)]
    table = "a,b,c,y\n" + "\n".join(",".join(map(str, row.values())) for row in rows)
    nested = "\n".join(json.dumps({"x": {k: row[k] for k in "abc"}, "y": row["y"]}) for row in rows)
    expected = stream(tmp_path / "json", "\n".join(lines(300)))
    assert stream(tmp_path / "csv", table, "csv") == expected
    assert stream(tmp_path / "nested", nested) == expected


TEXTS = ["2.5", "-3", "+4", " 5 ", "1e-3", ".5", "9007199254740993", "7" * 30, "1e400", "7" * 400, "7" * 5000]
TEXTS += ["inf", "nan", "NULL", "N/A", "", "1_0", "1_0.5", "0x1", "1.5.2", "true", "red", "\u0663", "--1", "1,5"]


@every_case("text", TEXTS)
@pytest.mark.parametrize("task", [BSGDClassifier, BSGDRegressor])
def test_rows_of_numbers_are_read_at_once_as_if_field_by_field(task, text, tmp_path):
    table = [f"{i % 3},{i / 7},{(-1) ** i}" for i in range(6)]
    answers, streams = [], [Stream.open(tmp_path / "m", task, scale=True, label="y") for _ in range(2)]
    for at, state in enumerate(streams):
        for _, line, parse in events(["a,b,y", *table, f'1.0,"{text}",1', *table], "csv"):
            if at:
                state.numeric = frozenset()
            answers.append(json.dumps(state.answer(line, parse)))
    assert streams[0].numeric == {"a", "b"}
    assert answers[: len(answers) // 2] == answers[len(answers) // 2 :]


def test_columns_that_are_not_all_of_numbers_are_read_field_by_field(tmp_path):
    state = Stream.open(tmp_path / "m", BSGDClassifier, scale=False, label="y", categories=["code"])
    table = [f"{i},{i % 2},{'red' if i % 2 else 'blue'},{i % 2}" for i in range(5)]
    for _, line, parse in events(["a,code,colour,y", *table], "csv"):
        assert "error" not in state.answer(line, parse)
    assert state.numeric == frozenset()
    assert sorted(state.learner.features) == ["a", "code=0", "code=1", "colour=blue", "colour=red"]


def test_without_a_label_an_event_is_predicted_only(tmp_path):
    stream(tmp_path / "m", "\n".join(lines(200)))
    before = state(tmp_path / "m")
    answers = stream(tmp_path / "m", json.dumps({"a": 0.1, "b": 2.0, "c": 0.3}))
    assert answers[0]["event"] == 201
    assert "label" not in answers[0]
    assert state(tmp_path / "m")["coef"] == before["coef"]


BAD = {
    "broken": ('{"a": 1.0, ', "broken JSON"),
    "no object": ("[1, 2]", "expected a JSON object"),
    "text": ('{"a": "high", "y": "up"}', "feature 'a': found 'high', expected a number"),
    "nan": ('{"a": NaN, "y": "up"}', "feature 'a': found nan, expected a finite number"),
    "label": ('{"a": 1.0, "y": [1]}', "label 'y': found [1]"),
    "huge number": (f'{{"a": {10**400}, "y": "up"}}', f"feature 'a': found 1{'0' * 39}, expected"),
    "huge label": (f'{{"a": 1.0, "y": {1 << 63}}}', "expected an integer of 64 bits"),
    "deep": ("[" * 100_000, "too many nested brackets"),
}
BAD_CSV = {
    "carriage return": ("1.0,2\r,0", "broken CSV: new-line character"),
    "long field": (f"1.0,{'2' * (1 << 18)},0", "broken CSV: field larger than field limit"),
    "huge number": (f"1.0,{10**400},0", f"feature 'b': found 1{'0' * 39}, expected"),
    "fields": ("1.0,2", "found 2 fields, expected 3"),
}


@every_case("case", BAD)
def test_a_bad_line_is_told_counted_and_changes_nothing(case, tmp_path):
    bad, message = BAD[case]
    good = lines(120)
    stream(tmp_path / "clean", "\n".join(good))
    answers = stream(tmp_path / "m", "\n".join([*good[:50], bad, *good[50:]]))
    assert len(answers) == 121
    assert message in answers[50]["error"]
    assert load_model(tmp_path / "m").stream["counts"]["bad"] == 1
    assert state(tmp_path / "m") == state(tmp_path / "clean")


@pytest.mark.slow  # commands, and streams from their beginning
@pytest.mark.parametrize("case", BAD_CSV)
def test_a_bad_csv_line_ends_no_stream(case, tmp_path):
    bad, message = BAD_CSV[case]
    good = [f"{i % 7},{i % 3},{i % 2}" for i in range(40)]
    status, answers, _ = command(tmp_path / "m", "\n".join(["a,b,y", *good, bad, *good]), "--format", "csv")
    assert status == 0
    assert len(answers) == 81
    assert message in answers[40]["error"]
    assert load_model(tmp_path / "m").stream["counts"]["learnt"] == 80


def odd_lines(n: int, kind: str) -> Iterator[str]:
    """Lines that nobody would write: noise, and good ones with a few characters changed."""
    rng = random.Random(0)
    alphabet = '{}[]",:.0123456789eE+-ayxNnulI\\\r\x00\ufeff\u20ac '
    texts = lines(10) if kind == "json" else ["0.5,1e3,-2,up", "1,,3,down", "1,2,3,7"]
    texts += ['{"a": {}, "y": 1}', '{"x": [], "y": 1}', "1e400", "null", f'{{"a": {10**400}}}', "[" * 5000]
    for i in range(n):
        if i % 3 == 0:
            text = rng.choice(texts)
            at = rng.randrange(len(text))
            yield text[:at] + rng.choice(alphabet) + text[at + rng.randrange(3) :]
        else:
            yield "".join(rng.choices(alphabet, k=rng.randrange(1, 60)))


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_any_line_is_answered_and_counted(kind, tmp_path):
    """None ends the stream, and what was learnt is there. STREAMSVM_FUZZ_LINES=100000 tries as many."""
    odd = list(odd_lines(int(os.environ.get("STREAMSVM_FUZZ_LINES", "2000")), kind))
    good = lines(50)
    if kind == "csv":
        good = [",".join(map(str, json.loads(line).values())) for line in good]
    header = ["a,b,c,y"] if kind == "csv" else []
    answers = stream(tmp_path / "m", "\n".join([*header, *good, *odd, *good]), kind)
    assert len(answers) == len(good) * 2 + sum(bool(line.strip()) for line in odd)
    counts = load_model(tmp_path / "m").stream["counts"]
    assert counts["events"] == len(answers)
    assert counts["learnt"] >= 100
    assert counts["bad"] == sum("error" in answer for answer in answers)


def test_a_byte_order_mark_and_labels_with_a_point_are_what_was_meant(tmp_path):
    text = "\ufeffy,a\n" + "\n".join(f"{i % 2}.0,{i % 5}" for i in range(40))
    status, answers, _ = command(tmp_path / "m", text, "--format", "csv")
    assert status == 0
    assert load_model(tmp_path / "m").classes.tolist() == [0, 1]
    assert {answer["label"] for answer in answers} == {0, 1}


@pytest.mark.slow  # commands, and streams from their beginning
def test_a_header_that_names_a_column_twice_is_refused(tmp_path):
    status, answers, said = command(tmp_path / "m", "a,a,y\n1,2,0", "--format", "csv")
    assert (status, answers) == (2, [])
    assert "header: found column 'a' twice" in said


def test_a_stream_without_a_label_says_so(tmp_path):
    status, _, said = command(tmp_path / "m", '{"a": 1, "target": 1}')
    assert status == 0
    assert "no event had a label 'y'" in said
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("texts", [1000, 10])
def test_texts_that_hardly_repeat_are_told_once(texts, tmp_path, capsys):
    lines = [json.dumps({"a": i, "time": f"10:{i % texts}", "y": i % 2}) for i in range(1100)]
    (tmp_path / "events").write_text("\n".join(lines))
    args = ["stream", "--model", str(tmp_path / "m"), "--input", str(tmp_path / "events")]
    assert exit_status(lambda: app(args, standalone_mode=False)) == 0
    message = "feature 'time' has 1,000 different texts in 1,000 events, each with a column; leave it out"
    assert capsys.readouterr().err.count(message) == (texts == 1000)


@pytest.mark.parametrize("more", [(), ("--wait-for-labels", "10")])
def test_a_stream_whose_labels_do_not_come_says_so_soon(more, tmp_path, capsys):
    (tmp_path / "events").write_text('{"id": 1, "a": 1, "target": 1}\n' * 150)
    args = ["stream", "--model", str(tmp_path / "m"), "--input", str(tmp_path / "events"), *more]
    assert exit_status(lambda: app(args, standalone_mode=False)) == 0
    message = "the first 100 events have no label 'y', so nothing is learned; --label names the field: this event has"
    assert (f"{message} 'id', 'a', 'target'" in capsys.readouterr().err) == (not more)


@pytest.mark.slow  # processes of the command
def test_a_reader_that_leaves_costs_no_snapshot(tmp_path):
    (tmp_path / "events").write_text("\n".join(lines(3000)), encoding="utf-8")
    shell = f"{sys.executable} -m streamsvm stream --model {tmp_path / 'm'} --input {tmp_path / 'events'} | head -2"
    subprocess.run(["bash", "-c", shell], capture_output=True, check=True)
    assert load_model(tmp_path / "m").stream["counts"]["learnt"] > 1


@pytest.mark.slow  # a stream for each kind of line
def test_bad_lines_are_skipped_or_end_the_stream(tmp_path):
    text = "\n".join([*lines(20), "oops", *lines(5)])
    status, answers, said = command(tmp_path / "m", text)
    assert status == 0
    assert len(answers) == 26
    assert f"line 21: {answers[20]['error']}; skipped" in said
    status, answers, said = command(tmp_path / "n", text, "--on-error", "stop")
    assert status == 2
    assert "error: line 21: broken JSON" in said
    assert len(answers) == 21
    assert load_model(tmp_path / "n").stream["counts"]["events"] == 21
    status, answers, said = command(tmp_path / "o", "a,b\n1,2\n")
    assert (status, len(answers)) == (2, 2)
    assert "nothing was learned, and no model was written" in said


@pytest.mark.slow  # commands, and streams from their beginning
def test_a_stream_in_two_halves_is_the_whole_stream(tmp_path):
    whole = stream(tmp_path / "whole", "\n".join(lines(600)))
    first = stream(tmp_path / "m", "\n".join(lines(600)[:350]))
    second = stream(tmp_path / "m", "\n".join(lines(600)[350:]))
    for answer in whole + first + second:
        del answer["snapshot"]
    assert first + second == whole
    assert state(tmp_path / "m") == state(tmp_path / "whole")


@pytest.mark.slow  # several processes of the command
def test_killed_at_random_and_resumed_nothing_is_lost_or_learnt_twice(tmp_path):
    """The model after two SIGKILLs, each time taken up from its file, is that of one run; more in the recipe."""
    file = tmp_path / "events"
    file.write_text("\n".join(lines(3000)))
    more = ["--input", str(file), "--snapshot-every", "200"]
    stream(tmp_path / "whole", file.read_text())
    rng, answered = random.Random(1), {}
    for kill in range(3):
        with subprocess.Popen(
            [*COMMAND, "--model", str(tmp_path / "m"), *OPTIONS, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            stop = rng.randrange(100, 900) if kill < 2 else 10_000
            for count, line in enumerate(process.stdout):
                answer = json.loads(line)
                facts = {k: v for k, v in answer.items() if k != "snapshot"}
                assert answered.setdefault(answer["event"], facts) == facts
                if count == stop:
                    process.send_signal(signal.SIGKILL)
                    break
    assert sorted(answered) == list(range(1, 3001))
    assert state(tmp_path / "m") == state(tmp_path / "whole")
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


@pytest.mark.slow  # processes of the command
def test_sigterm_saves_and_answers_leave_before_it_waits(tmp_path):
    with subprocess.Popen(
        [*COMMAND, "--model", str(tmp_path / "m"), *OPTIONS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number, line in enumerate(lines(30), 1):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["event"] == number
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert load_model(tmp_path / "m").stream["counts"]["events"] == 30


def test_a_snapshot_predicts_raw_rows(tmp_path):
    """The running standardisation is the model's scaling: rows as they came, not as the learner saw them."""
    stream(tmp_path / "m", "\n".join(lines(800)))
    rows = [json.loads(line) for line in lines(60, seed=1)]
    for row in rows:
        del row["y"]
    answers = stream(tmp_path / "m", "\n".join(map(json.dumps, rows)))
    model = load_model(tmp_path / "m")
    X = np.zeros((60, model.d), np.float32)
    for column, name in enumerate(model.stream["features"]):
        X[:, column] = [row[name] for row in rows]
    agree = [a["prediction"] == label for a, label in zip(answers, model.predict(Rows(X)).tolist(), strict=True)]
    assert np.mean(agree) >= 0.95  # the scaler has moved a little since the first of them


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--gamma", "9"], "--gamma 9: the stream of .* has gamma 0.5, which cannot change"),
        (["--budget", "7"], "--budget 7: the stream of .* has budget 30"),
        (["--lam", "0.5"], "--lam 0.5: the stream of .* has lam 0.001"),
        (["--scale", "none"], "--scale none: the stream of .* has scale standard"),
        (["--set", "bsgd.average=true"], "--set bsgd.average=true: the stream of .* has average False"),
    ],
)
@pytest.mark.slow  # commands, and streams from their beginning
def test_options_that_an_existing_stream_does_not_have_are_told(more, said, tmp_path):
    stream(tmp_path / "m", "\n".join(lines(100)))
    before = state(tmp_path / "m")
    status, answers, error = command(tmp_path / "m", "\n".join(lines(10)), *more)
    assert (status, answers) == (2, [])
    assert re.search(f"error: {said}.*; leave the option out, use another --model, or start again with --force", error)
    assert state(tmp_path / "m") == before


@pytest.mark.slow  # commands, and streams from their beginning
def test_a_stream_begins_anew_with_force_alone(tmp_path):
    stream(tmp_path / "m", "\n".join(lines(100)))
    more = ["--gamma", "9", "--scale", "none", "--force", "--set", "bsgd.average=true"]
    status, answers, _ = command(tmp_path / "m", "\n".join(lines(20)), *more)
    assert (status, answers[0]["event"]) == (0, 1)
    model = load_model(tmp_path / "m")
    assert (model.header.kernel.gamma, model.options.average, model.stream["scaler"]) == (9.0, True, None)
    (tmp_path / "other").mkdir()
    status, _, said = command(tmp_path / "other", "", "--force")
    assert status == 2
    assert "found a folder of other things" in said


@pytest.mark.slow  # commands, and streams from their beginning
def test_bounds_of_a_stream_are_said_and_may_be_raised(tmp_path):
    events = [json.dumps({"a": i % 5, f"id{i}": 1, "y": ["no", "yes"][i % 2]}) for i in range(40)]
    wrong = [json.dumps({"a": 1, "y": f"user {i}"}) for i in range(9)]
    bounds = ("--max-features", "8", "--max-classes", "4")
    status, answers, said = command(tmp_path / "m", "\n".join(events + wrong), *bounds)
    assert status == 0
    assert said.count("warning: feature 'id7' is left out, as are all new ones") == 1
    assert ["error" in answer for answer in answers] == [False] * 42 + [True] * 7
    assert "found label 'user 2' in addition to 4 others, expected at most max_classes" in answers[-7]["error"]
    assert len(load_model(tmp_path / "m").stream["features"]) == 8
    status, answers, _ = command(tmp_path / "m", "\n".join(wrong), "--max-classes", "20")
    assert status == 0
    assert not any("error" in answer for answer in answers)


@pytest.mark.slow  # commands, and streams from their beginning
def test_labels_that_answers_could_not_tell_apart_are_refused(tmp_path):
    events = [{"a": i, "y": [1, "1", 2][i % 3]} for i in range(9)]
    answers = stream(tmp_path / "m", "\n".join(map(json.dumps, events)))
    assert "found label '1', expected a number, as before" in answers[1]["error"]
    assert all(sum(answer["probabilities"].values()) == pytest.approx(1) for answer in answers[3::3])


@pytest.mark.slow  # commands, and streams from their beginning
def test_columns_in_thousands_are_said(tmp_path):
    events = [json.dumps({"a": 1e4 * i % 777, "b": 1e4 * i % 999, "y": i % 2}) for i in range(300)]
    status, _, said = command(tmp_path / "m", "\n".join(events), "--scale", "none")
    assert status == 0
    assert said.count("warning: nearly all kernel values vanish: gamma is 0.5") == 1


@pytest.mark.slow  # several processes of the command
def test_a_model_is_one_streams_at_a_time(tmp_path):
    with subprocess.Popen(
        [*COMMAND, "--model", str(tmp_path / "m"), *OPTIONS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(lines(1)[0] + "\n")
        first.stdin.flush()
        first.stdout.readline()
        status, answers, said = command(tmp_path / "m", "\n".join(lines(5)))
        assert (status, answers) == (2, [])
        assert f"m is in use by process {first.pid} on " in said
        first.stdin.close()
        assert first.wait(60) == 0
    assert command(tmp_path / "m", "\n".join(lines(5)))[0] == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--format", "xml"], "'--format': 'xml' is not one of 'json', 'csv'"),
        (["--input", "nowhere"], "--input nowhere: no such file"),
        (["--input", "."], "--input .: found a folder, expected a file or a pipe"),
        (["--budget", "1"], "budget: found 1, expected a number at least 2"),
        (
            ["--set", "kernel.name=poly", "--set", "bsgd.strategy=sequence"],
            "points merge under the rbf kernel only",
        ),
        (["--set", "C=3"], "--set C=3: a stream has no such option, expected one of kernel.gamma, "),
        (["--set", "seed=3"], "--set seed=3: a stream has no such option"),
        (["--set", "bsgd.epochs=3"], "--set bsgd.epochs=3: a stream has no such option"),
        (["--gamma", "wide"], "gamma: found 'wide', expected a number above 0, 'scale' or 'auto'"),
    ],
)
@pytest.mark.slow  # commands, and streams from their beginning
def test_bad_options_are_one_line(more, message, tmp_path):
    status, answers, said = command(tmp_path / "m", "", *more)
    assert status == 2
    assert message in said
    assert len(said.splitlines()) == 1
    assert not answers
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.slow  # commands, and streams from their beginning
def test_input_may_be_a_named_pipe(tmp_path):
    os.mkfifo(tmp_path / "p")
    with subprocess.Popen(["sh", "-c", f"printf '%s\\n' '{lines(1)[0]}' > {tmp_path / 'p'}"]) as writer:
        status, answers, _ = command(tmp_path / "m", "", "--input", tmp_path / "p")
    assert (status, len(answers), writer.returncode) == (0, 1, 0)


@pytest.mark.slow  # commands, and streams from their beginning
def test_a_run_directory_tells_of_the_stream(tmp_path):
    (tmp_path / "in").write_text("\n".join([*lines(1000), "broken", *lines(500, 1)]) + "\n")
    more = ("--input", str(tmp_path / "in"), "--run-dir", str(tmp_path / "run"))
    status, answers, said = command(tmp_path / "m", "", *more)
    assert (status, len(answers)) == (0, 1501)
    records = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert (records[0]["event"], records[-1]["event"]) == ("start", "done")
    assert records[0]["config"]["bsgd"]["budget"] == 30
    stretches = [record for record in records if record["event"] == "stretch"]
    assert [record["steps"] for record in stretches] == list(range(100, 1501, 100))
    assert [record["bad"] for record in stretches] == [0] * 10 + [1] * 5
    right = sum(answer.get("label") == answer.get("prediction", "none") for answer in answers)
    assert sum(100 * record["accuracy"] for record in stretches) == pytest.approx(right)
    assert stretches[-1]["supports"] <= 30
    assert {sum(record["labels"].values()) for record in stretches} == {100}
    assert all(0 < record["answer_s"] <= record["slowest_s"] for record in stretches)
    assert stretches[-1]["degradation"] > stretches[0]["degradation"] == 0.0 or stretches[0]["supports"] == 30
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["events"] == json.loads(said.splitlines()[-1])["events"] == 1501
    assert sum(result["seconds_by_phase"].values()) == pytest.approx(result["seconds"], abs=0.01)

    command(tmp_path / "m", "\n".join(lines(150, 2)), *more[2:])
    resumed = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert resumed[len(records)]["resume"] is True
    assert [r["steps"] for r in resumed[len(records) :] if r["event"] == "stretch"] == [1600, 1650]


def test_stretches_grow_with_the_stream():
    learner = SimpleNamespace(stats=BudgetStats(0, 0, 0, 0.0, 0.0, 0.0), n_support=0, drifts={})
    seen, state = [], SimpleNamespace(learner=learner, events=0, learnt=0, right=0, bad=0)
    state.recent = RecentCounts()
    state.judge = SimpleNamespace(scores=dict)
    tell = StreamReporter(state, Events(seen.append))
    for _ in range(100_000):
        state.events += 1
        state.learnt += 1
        tell(None)
    tell.end()
    steps = [event.steps for _, event in seen if isinstance(event, Stretch)]
    assert steps[:3] == [100, 200, 300]
    assert steps[-1] == 100_000
    assert 200 < len(steps) < 600


@pytest.mark.slow  # processes of the command
@pytest.mark.parametrize("redirected", [False, True])
def test_bars_do_not_mix_with_answers(tmp_path, redirected):
    (tmp_path / "in").write_text("\n".join(lines(200)) + "\n")
    ours, theirs = pty.openpty()
    script = "import streamsvm.online.stream as s; s.PROGRESS_S = 0; from streamsvm.cli import main; main()"
    arguments = ["stream", "--model", str(tmp_path / "m"), "--input", str(tmp_path / "in")]
    out = (tmp_path / "out").open("wb") if redirected else theirs
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=out, stderr=theirs)
    os.close(theirs)
    shown = read_all(ours)
    assert process.wait(timeout=60) == 0
    if redirected:
        out.close()
        assert len((tmp_path / "out").read_text().splitlines()) == 200
        assert b"accuracy" in shown.partition(b'{"events"')[0]
        assert b"prediction" not in shown
    else:
        assert shown.count(b'"prediction"') == 200
        assert b"supports" not in shown


def numbered(n: int = 300) -> list[str]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return [json.dumps({"a": a, "b": 1e3 * b, "y": 1e6 + 1e3 * np.sin(2 * a)}) for a, b in X.tolist()]


def scattered(n: int = 1000, labelled: bool = True) -> list[str]:
    rng = np.random.default_rng(0)
    out = rng.random(n) < 0.05
    X = np.where(out[:, None], rng.uniform(-9, 9, (n, 2)), rng.normal(size=(n, 2)))
    label = [{"y": "bad" if o else "good"} if labelled else {} for o in out]
    return [json.dumps({"a": a, "b": b} | y) for (a, b), y in zip(X.tolist(), label, strict=True)]


def answered(state: Stream, some: list[str]) -> list[dict]:
    return [state.answer(line, parse) for _, line, parse in events(some, "json")]


MAKE = {
    "regress": (lambda: BSGDRegressor(budget=30), numbered),
    "oneclass": (lambda: BSGDOneClass(nu=0.1, budget=30), scattered),
}


@pytest.mark.parametrize("task", MAKE)
def test_streams_of_other_tasks_go_on_where_they_were(task, tmp_path):
    make, some = MAKE[task]
    text, whole = some(), Stream.open(tmp_path / "w", make, scale=True, label="y")
    expected = answered(whole, text)
    first = Stream.open(tmp_path / "h", make, scale=True, label="y")
    half = answered(first, text[:100])
    first.save()
    second = Stream.open(tmp_path / "h", make, scale=True, label="y")
    half += answered(second, text[100:])
    for answer in (*expected, *half):
        del answer["snapshot"]
    assert half == expected
    assert second.summary() | {"snapshot": 0} == whole.summary()
    assert json.loads(json.dumps(second.summary()))["events"] == len(text)


def test_a_stream_of_numbers_tells_its_errors(tmp_path):
    state = Stream.open(tmp_path / "m", MAKE["regress"][0], scale=True, label="y")
    answers = answered(state, [*numbered(), '{"a": 1, "b": 2}', '{"a": 1, "b": 2, "y": "high"}'])
    assert answers[0]["prediction"] is None
    assert sorted(answers[-2]) == ["event", "prediction", "snapshot"]
    assert answers[-1]["error"] == "label 'y': found 'high', expected a number"
    y, f = np.array([(a["label"], a["prediction"]) for a in answers[1:-2]]).T
    summary = state.summary()
    assert (summary["events"], summary["learnt"], summary["bad"]) == (302, 300, 1)
    assert summary["mean_absolute_error"] == pytest.approx(np.mean(np.abs(y - f)))
    assert summary["r2"] == pytest.approx(1 - np.sum((y - f) ** 2) / np.sum((y - y.mean()) ** 2))
    assert summary["r2"] > 0.4


@pytest.mark.parametrize("labelled", [True, False])
def test_a_stream_of_one_class_tells_the_share_and_with_labels_the_roc_area(labelled, tmp_path):
    state = Stream.open(tmp_path / "m", MAKE["oneclass"][0], scale=True, label="y")
    answers = answered(state, scattered(labelled=labelled))
    found, scores = state.summary(), np.array([a["score"] for a in answers])
    assert found["learnt"] == 1000
    assert [a["prediction"] for a in answers] == np.where(scores > 0, -1, 1).tolist()
    assert found["outliers"] == np.mean(scores > 0) == pytest.approx(0.1, abs=0.03)
    assert ("roc_auc" in found) == labelled
    if labelled:
        expected = roc_auc_score([a["label"] == "bad" for a in answers], scores)
        assert found["roc_auc"] == pytest.approx(expected, abs=2e-3)
        assert expected > 0.9
        state.answer('{"a": 1, "b": 2, "y": "other"}', json.loads)
        assert state.summary()["roc_auc"] is None


@pytest.mark.slow  # commands, and streams from their beginning
@pytest.mark.parametrize("task", MAKE)
def test_other_tasks_from_the_command_line(task, tmp_path):
    text, model = "\n".join(MAKE[task][1]()), tmp_path / "m"

    def said(*more: str) -> tuple[int, str]:
        status, _, stderr = piped(text, "stream", "--model", model, "--budget", "30", *more)
        return status, stderr

    status, told = said("--task", task, "--run-dir", str(tmp_path / "run"))
    assert status == 0
    assert load_model(model).task == task
    assert contents([read_run(tmp_path / "run")])
    assert said()[0] == 0
    assert "has task " + task in said("--task", "classify")[1]
    assert "which has no such option" in said("--max-classes", "3")[1]
    assert "has no such option" in said("--task", "classify", "--force", "--set", "nu=0.1")[1]
    assert "expected one of classify, multilabel, oneclass, regress" in said("--task", "rank", "--force")[1]


@pytest.mark.slow  # commands, and streams from their beginning
def test_weights_of_labels_from_the_command_line(tmp_path):
    text, plain, weighted = "\n".join(lines(300)), tmp_path / "plain", tmp_path / "weighted"
    _, answers, _ = command(plain, text)
    status, more, _ = command(weighted, text, "--class-weight", "up=20,down=1")
    assert status == 0
    ups = [sum(answer["prediction"] == "up" for answer in said) for said in (answers, more)]
    assert ups[1] > ups[0]
    assert load_model(weighted).header.config["class_weight"] == {"up": 20.0, "down": 1.0}
    assert command(weighted, text, "--class-weight", "up=20,down=1")[0] == 0
    status, _, stderr = command(weighted, text, "--class-weight", "up=2")
    assert status == 2
    assert "has class_weight {'up': 20.0, 'down': 1.0}, which cannot change" in stderr
    status, _, stderr = command(tmp_path / "other", text, "--class-weight", "even")
    assert status == 2
    assert "class_weight: found 'even', expected a weight for each label, or 'balanced'" in stderr
    assert command(tmp_path / "other", text, "--class-weight", "balanced")[0] == 0
    assert load_model(tmp_path / "other").header.config["class_weight"] == "balanced"


@pytest.mark.slow  # a long stream, to a change and beyond
def test_a_stream_that_tunes_itself_is_gone_on_with_and_tells_of_change(tmp_path):
    """Without lambda and gamma; the labels are exchanged after 1,500 events."""
    events = [json.loads(line) for line in lines(2400)]
    for event in events[1500:]:
        event["y"] = {"up": "down", "down": "up"}[event["y"]]
    text = [json.dumps(event | {"town": "Bonn", "gap": None}) for event in events]
    (tmp_path / "all.jsonl").write_text("\n".join(text) + "\n")

    def run(model: str, *more: str) -> tuple[dict, str, str]:
        status, answers, said = piped("", "stream", "--model", tmp_path / model, "--budget", "30", *more)
        assert status == 0, said
        return json.loads(said.splitlines()[-1]), answers, said

    whole, answers, said = run("whole", "--input", str(tmp_path / "all.jsonl"), "--ask", "0.1")
    assert whole["switches"] >= 1
    assert "the stream has changed; the second learner takes over" in said
    asks = [json.loads(line)["ask"] for line in answers.splitlines()]
    assert 0.02 < np.mean(asks) <= 0.11
    (tmp_path / "half.jsonl").write_text("\n".join(text[:1600]) + "\n")
    run("halves", "--input", str(tmp_path / "half.jsonl"))
    halves, _, said = run("halves", "--input", str(tmp_path / "all.jsonl"))
    assert "continuing after event 1600" in said
    assert {**halves, "snapshot": 0} == {**whole, "snapshot": 0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ask", "2"], "--ask 2.0: expected a share above 0, at most 1"),
        (
            ["--ask", "0.5", "--task", "regress"],
            "a stream of task regress has no single label to be unsure of",
        ),
    ],
)
def test_options_that_do_not_go_together_are_one_line(options, message, tmp_path):
    status, _, said = piped("", "stream", "--model", tmp_path / "m", *options)
    assert status == 2
    assert message in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_labels_that_are_asked_for_are_those_of_unsure_events():
    judge = ClassScores(BSGDClassifier())
    rng = np.random.default_rng(0)
    sure = rng.random(5000) < 0.7
    asks = np.array([judge.is_worth({"a": 0.99 if s else 0.6, "b": 0.01 if s else 0.4}, 0.2) for s in sure])
    assert 0.1 < asks[1000:].mean() <= 0.21
    assert asks[1000:][~sure[1000:]].mean() > 5 * asks[1000:][sure[1000:]].mean()


def test_a_signal_just_before_it_waits_ends_the_wait():
    source, writer = os.pipe()
    try:
        lines = Lines(source, lambda: lines.stop())
        with pytest.raises(InterruptedError):
            next(iter(lines))
    finally:
        os.close(source)
        os.close(writer)


@pytest.mark.parametrize("name", ["memory://events/e.jsonl", "memory://events/e.jsonl.gz", "e.jsonl.gz"])
def test_events_come_from_urls_and_packed_files(name, tmp_path, monkeypatch):
    import gzip

    import fsspec

    monkeypatch.chdir(tmp_path)
    text = "\n".join(lines(40)).encode()
    with fsspec.open(name, "wb") as file:
        file.write(gzip.compress(text) if name.endswith("gz") else text)
    more = ("--input", name, "--snapshot-every", "15")
    for expected in (40, 0):  # it continues after the last event
        status, answers, _ = command(tmp_path / "m", "", *more)
        assert (status, len(answers)) == (0, expected)
    assert state(tmp_path / "m") == (stream(tmp_path / "other", "\n".join(lines(40))), state(tmp_path / "other"))[1]
    status, _, said = command(tmp_path / "m2", "", "--input", "memory://events/none.jsonl")
    assert (status, "memory://events/none.jsonl does not exist" in said) == (2, True)


DIALECTS = {  # options, lines, and the features of the two events
    "decimal": (
        ("--decimal", ","),
        ["a,b,y", '"1,5",3,up', '"2,5",3,down'],
        [{"a": 1.5, "b": 3}, {"a": 2.5, "b": 3}],
    ),
    "points only": (("--decimal", "."), ["a;y", "1,5;up", "2,5;down"], [{"a": "1,5"}, {"a": "2,5"}]),
    "thousands": (("--thousands", "."), ["a;y", "1.299,5;up", "2;down"], [{"a": 1299.5}, {"a": 2}]),
    "missing": (("--missing", "?,-"), ["a,b,y", "?,1,up", "3, - ,down"], [{"b": 1}, {"a": 3}]),
    "delimiter": (("--delimiter", ";"), ["a,x;y", "1;up", "2;down"], [{"a,x": 1}, {"a,x": 2}]),
    "spaces": (("--delimiter", "space"), ["a  y", "1   up ", " 2 down"], [{"a": 1}, {"a": 2}]),
    "lines": (
        ("--skip-rows", "1", "--comment", "#"),
        ["A title, of two", "# by", "a,y", "1,up", "#,no", "2,down"],
        [{"a": 1}, {"a": 2}],
    ),
    "codes": (("--category", "a"), ["a,b,y", "7,1,up", "007,1,down"], [{"a": "7", "b": 1}] * 2),
}


@every_case("name", DIALECTS)
def test_csv_lines_are_read_as_ingest_reads_files(name, tmp_path):
    options, written, features = DIALECTS[name]
    status, answers, said = command(tmp_path / "m", "\n".join(written), "--format", "csv", *options)
    assert (status, len(answers), '"bad": 0' in said) == (0, 2, True)
    plain = [json.dumps(x | {"y": y}) for x, y in zip(features, ("up", "down"), strict=True)]
    assert command(tmp_path / "n", "\n".join(plain))[1] == answers
    assert load_model(tmp_path / "m").feature_names == load_model(tmp_path / "n").feature_names


def test_number_codes_of_a_stream_are_categories(tmp_path):
    codes = [7, 7.0, "007", 30, 30.0, "30", 5.5, None] * 3
    labels = ["up" if i % 8 < 3 else "down" for i in range(24)]
    made = [{"code": code, "b": 1, "y": y} for code, y in zip(codes, labels, strict=True)]
    text = "\n".join(map(json.dumps, made))
    status, answers, said = command(tmp_path / "m", text, "--category", "code")
    assert (status, '"bad": 0' in said, len(answers)) == (0, True, 24)
    model = load_model(tmp_path / "m")
    assert {*model.feature_names} == {"code=7", "code=30", "code=5.5", "b"}
    again = Stream.open(tmp_path / "m", lambda: None, scale=True, label="y")
    seven, zeros, other = again.decide([{"code": 7, "b": 1}, {"code": "007", "b": 1}, {"code": 8, "b": 1}])
    assert seven == zeros != other
    (tmp_path / "new.csv").write_text("b,code\n1,7\n1,8\n")
    out, said = piped("", "predict", "--model", tmp_path / "m", tmp_path / "new.csv", "--decision")[1:]
    values = [float(line.split(",")[1]) for line in out.splitlines()[1:]]
    np.testing.assert_allclose(values, [seven[0], other[0]], atol=1e-4)
    assert command(tmp_path / "m", text, "--category", "code")[0] == 0
    said = command(tmp_path / "m", text, "--category", "b")[2]
    assert re.search("--category b: the stream of .*m has code, which cannot change; leave the option out", said)
    said = command(tmp_path / "m", text, "--decimal", ",")[2]
    assert "--decimal applies to --format csv, found json; leave it out" in said


@every_case("wrong", [True, 1e300, float("nan"), float("inf"), 10**40, [1], {"a": 1}], ids=str)
@every_case("scale", [True, False])
def test_what_is_no_code_changes_nothing(tmp_path, wrong, scale):
    def answers(*first):
        stream = Stream.open(tmp_path / "m", MAKE["regress"][0], scale=scale, label="y", categories=["code"])
        said = [stream.take({"code": code, "b": 1.0, "y": 2.0}) for code in (*first, 7, "007", 30, 8.0)]
        return [{**one, "event": 0} for one in said]

    bad, *others = answers(wrong)
    assert bad["error"].startswith("feature 'code': found ")
    assert others == answers()
