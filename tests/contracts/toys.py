"""Plug-ins of one file, each in a process of its own, as a user's are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
PATHS = os.pathsep.join(map(str, (HERE, HERE.parent, HERE.parents[1])))
COMMAND = "from streamsvm.cli import main\nmain()"
KILLED = f"""
from streamsvm.runs.checkpoints import Checkpoints
save = Checkpoints._save
def once(run_dir, arrays):
    save(run_dir, arrays)
    raise KeyboardInterrupt
Checkpoints._save = staticmethod(once)
{COMMAND}
"""  # the command, interrupted once it has kept a state


SEVERAL = """
import io, json
from contextlib import redirect_stderr, redirect_stdout
from streamsvm.cli.app import app, exit_status
for words in json.loads(sys.argv[1]):
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        status = exit_status(lambda: app(words, standalone_mode=False))
    print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""


@dataclass(frozen=True)
class Toy:
    """What registers itself when this module is imported."""

    module: str

    def says(self, code: str, *words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
        """What Python says after it has imported the module, as a plug-in is before the command line."""
        program = f"import sys, {self.module}\nsys.path.insert(0, {str(DOCS)!r})\n{code}"
        env = os.environ | {"PYTHONPATH": PATHS, "COLUMNS": "200", "TERM": "dumb"}
        words = [sys.executable, "-c", program, *map(str, words)]
        run = subprocess.run(words, capture_output=True, text=True, env=env, timeout=120)
        assert run.returncode == status, run.stderr
        return run

    def command(self, *words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
        return self.says(COMMAND, *words, status=status)

    def commands(self, *several: Sequence[object], status: int = 0) -> list[tuple[str, str]]:
        """stdout and stderr of each of several commands, in one process."""
        lines = self.says(SEVERAL, json.dumps([[*map(str, words)] for words in several])).stdout.splitlines()
        ended = [json.loads(line) for line in lines]
        assert [own for own, *_ in ended] == [status] * len(several), ended
        return [(out, err) for _, out, err in ended]
