"""What a log gives back after a kill at any byte, and what of it a snapshot makes needless."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.errors import ConfigError, CorruptDataError, StorageError
from streamsvm.serving.log import RequestLog

BODIES = st.lists(st.binary(max_size=80), min_size=1, max_size=6)


def written(folder, bodies, first=1):
    """The file of a segment with these bodies, each of one event."""
    log = RequestLog(folder, "y")
    log.begin(first)
    for number, body in enumerate(bodies, first):
        log.append(number, body)
    log.sync()
    log.close()
    return folder / f"{first:018d}"


@given(BODIES, st.data())
def test_a_log_cut_off_anywhere_gives_what_is_whole(bodies, data):
    with TemporaryDirectory() as folder:
        file = written(Path(folder) / "log", bodies)
        ends = [0]
        for number, body in enumerate(bodies, 1):
            ends.append(ends[-1] + len(f"{number} {len(body)} 01234567\n\n") + len(body))
        assert ends[-1] == file.stat().st_size
        cut = data.draw(st.integers(0, ends[-1]))
        with file.open("rb+") as out:
            out.truncate(cut)
        whole = sum(end <= cut for end in ends) - 1
        log = RequestLog(file.parent, "y")
        assert [record[:2] for record in log.records(0)] == list(enumerate(bodies[:whole], 1))
        assert file.stat().st_size == ends[whole]


def test_damage_before_the_end_is_told(tmp_path):
    file = written(tmp_path / "log", [b"first", b"second"])
    file.write_bytes(file.read_bytes().replace(b"first", b"first"[::-1]))
    with pytest.raises(CorruptDataError, match="damaged at byte 0, expected a record"):
        list(RequestLog(tmp_path / "log", "y").records(0))


def test_segments_that_a_snapshot_has_go(tmp_path):
    log = RequestLog(tmp_path / "log", "y")
    for first in (1, 4):
        log.begin(first)
        log.append(first, b"abc")
    log.sync()
    log.drop(3)
    assert [first for first, *_ in log.records(0)] == [1, 4]
    log.drop(4)
    assert [first for first, *_ in log.records(0)] == [4]
    log.close()


def test_a_label_of_another_name_is_refused_while_events_are_kept(tmp_path):
    written(tmp_path / "log", [b"abc"])
    with pytest.raises(ConfigError, match="--label z: .* holds events with label 'y'"):
        RequestLog(tmp_path / "log", "z")


def test_a_full_disk_leaves_no_half_record(tmp_path, monkeypatch):
    from streamsvm.serving import log as log_module

    log = RequestLog(tmp_path / "log", "y")
    log.begin(1)
    log.append(1, b"abc")
    real = log_module.os.write

    def full(descriptor, data):
        real(descriptor, data[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log_module.os, "write", full)
    with pytest.raises(StorageError, match="No space left"):
        log.append(2, b"def")
    monkeypatch.undo()
    log.append(2, b"ghi")
    log.close()
    assert list(RequestLog(tmp_path / "log", "y").records(0)) == [(1, b"abc", None), (2, b"ghi", None)]
