"""Ctrl-C, answered at once."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamsvm.cli.app import INTERRUPTED

FIRST = "interrupted: stopping; press Ctrl-C again to stop at once"


@contextmanager
def answered(say: Callable[[str], None]) -> Iterator[None]:
    """Inside, `say` answers the first Ctrl-C at once, and a second one ends the process.

    Python handles a signal only when the main thread returns from compiled code, which may take seconds. Here a
    thread waits for the byte that a signal writes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    listener = threading.Thread(target=_listen, args=(ours, say), name="interrupts", daemon=True)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        theirs.close()  # which ends the thread
        listener.join()
        ours.close()


def _listen(signals: socket.socket, say: Callable[[str], None]) -> None:
    count = 0
    while number := signals.recv(1):
        if number[0] != signal.SIGINT:
            continue
        count += 1
        if count == 1:
            say(FIRST)
        else:
            os._exit(INTERRUPTED)
