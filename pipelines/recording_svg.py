"""A terminal session as an animated SVG: the first commands of README, on the file that README generates. Linux.

    python pipelines/recording_svg.py --out docs/pictures/session.svg

Runs the commands on a separate terminal, in an empty folder, and draws what it shows, at the time when it shows it;
then the picture begins again. Paper, and viewers that do not animate, show the end. Needs `pip install pyte`.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyte

README = Path(__file__).resolve().parents[1] / "README.md"
COLUMNS, ROWS = 96, 52
BETWEEN_S = 0.5  # pictures
PAUSE_S, END_S = 1.0, 6.0  # before a command's answer; of the last picture
WIDTH, HEIGHT, MARGIN = 8.0, 17, 16  # of a letter, of a line, around, in pixels
COLOURS = {
    "default": "#c9d1d9",
    "black": "#6e7681",
    "brightblack": "#6e7681",
    "red": "#ff7b72",
    "brightred": "#ff7b72",
    "green": "#7ee787",
    "brightgreen": "#7ee787",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "brightmagenta": "#d2a8ff",
    "cyan": "#76e3ea",
}


class Words(NamedTuple):
    """Letters of one look, side by side."""

    column: int
    text: str
    colour: str
    is_bold: bool


Line = tuple[Words, ...]
Frame = tuple[float, list[Line]]  # seconds since the beginning, lines


class Terminal:
    """What commands show, as frames."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._screen = folder, pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._now, self.frames = 0.0, list[Frame]()

    def run(self, command: str) -> None:
        self._stream.feed(f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m\r\n".encode())
        self._keep()
        began = self._now + PAUSE_S
        for seconds, shown in _played(command, self._folder):
            self._stream.feed(shown)
            self._now = began + seconds
            if self._now - self.frames[-1][0] >= BETWEEN_S:
                self._keep()
        self._keep()
        self._now += PAUSE_S

    def _keep(self) -> None:
        self.frames.append((self._now, [_line(self._screen.buffer[row]) for row in range(ROWS)]))


def _line(letters: dict[int, pyte.screens.Char]) -> Line:
    """Words of a row; wide gaps part them, as viewers shrink what is between letters."""
    found = []
    for look, columns in groupby(range(COLUMNS), lambda column: (letters[column].fg, letters[column].bold)):
        at = list(columns)
        text = "".join(letters[column].data for column in at)
        found += [Words(at[m.start()], m[0], *look) for m in re.finditer(r"\S+(?: \S+)*", text)]
    return tuple(found)


def _played(command: str, folder: Path) -> Iterator[tuple[float, bytes]]:
    """Seconds since a command began, and what it then sends to its terminal."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (ROWS, COLUMNS))
    words = ["bash", "-c", f'streamsvm() {{ "{sys.executable}" -m streamsvm "$@"; }}\n{command}']
    environment = {**os.environ, "TERM": "xterm-256color"}
    began = time.monotonic()
    with subprocess.Popen(words, cwd=folder, env=environment, stdin=its, stdout=its, stderr=its) as child:
        os.close(its)
        while select.select([ours], [], []):
            try:
                shown = os.read(ours, 1 << 16)
            except OSError:  # Linux's way to say that nobody writes any more
                shown = b""
            if not shown:
                break
            yield time.monotonic() - began, shown
    os.close(ours)
    if child.returncode:
        raise SystemExit(f"exit status {child.returncode} of: {command}")


class Shown(NamedTuple):
    """A line of the screen from one frame up to another, which is the number of frames if it stays."""

    row: int
    line: Line
    first: int
    stop: int


def spans(frames: list[Frame]) -> Iterator[Shown]:
    """Lines, each as long as it stays the same."""
    for row in range(ROWS):
        number = 0
        for line, same in groupby(lines[row] for _, lines in frames):
            stop = number + len(list(same))
            if line:
                yield Shown(row, line, number, stop)
            number = stop


def drawn(frames: list[Frame]) -> str:
    """The frames as an SVG that repeats them for ever, as wide and high as their letters need."""
    shown = list(spans(frames))
    total = frames[-1][0] + END_S
    times = [*(100 * seconds / total for seconds, _ in frames), 100.0]
    height = HEIGHT * (1 + max(each.row for each in shown)) + 2 * MARGIN
    width = WIDTH * COLUMNS + 2 * MARGIN
    rules = {_name(each, frames): _rule(each, frames, times) for each in shown}
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" font-size="13" '
        f'fill="{COLOURS["default"]}" '
        'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace">'
    )
    style = [
        f"g{{animation:{total:.1f}s step-end infinite}}",
        ".b{font-weight:bold}",
        "@media print,(prefers-reduced-motion){g{animation:none!important}}",
        *rules.values(),
    ]
    ground = f'<rect x=".5" y=".5" width="{width - 1:g}" height="{height - 1}" rx="8" fill="#0d1117" stroke="#808080"/>'
    return "\n".join([head, f"<style>{''.join(style)}</style>", ground, *map(_drawn_with(frames), shown), "</svg>\n"])


def _name(shown: Shown, frames: list[Frame]) -> str:
    return f"f{shown.first}-{shown.stop if shown.stop < len(frames) else ''}"


def _rule(shown: Shown, frames: list[Frame], times: list[float]) -> str:
    begin, name = times[shown.first], _name(shown, frames)
    end = f"{times[shown.stop]:.2f}%{{visibility:hidden}}" if shown.stop < len(frames) else ""
    before = "" if begin == 0 else "0%{visibility:hidden}"
    return f"@keyframes {name}{{{before}{begin:.2f}%{{visibility:visible}}{end}}}.{name}{{animation-name:{name}}}"


def _drawn_with(frames: list[Frame]):
    def draw(shown: Shown) -> str:
        gone = ' visibility="hidden"' if shown.stop < len(frames) else ""
        y = MARGIN + HEIGHT * shown.row + 13
        return f'<g class="{_name(shown, frames)}"{gone}>{"".join(_text(words, y) for words in shown.line)}</g>'

    return draw


def _text(words: Words, y: int) -> str:
    own = COLOURS.get(words.colour, f"#{words.colour}")  # by name, or six hexadecimal digits
    colour = f' fill="{own}"' if words.colour != "default" else ""
    bold = ' class="b"' if words.is_bold else ""
    x, length = MARGIN + WIDTH * words.column, WIDTH * len(words.text)
    given = f'x="{x:g}" y="{y}" textLength="{length:g}"{colour}{bold}'
    return f"<text {given}>{escape(words.text)}</text>"


def commands() -> list[str]:
    """Of README's first block those that fit and predict, and a look at the answers."""
    _, *lines, _ = _found(r"^```sh\n(pip install .*?)^```$").splitlines()
    return [*(line.partition("#")[0].strip() for line in lines), "cat answers.csv"]


def _found(pattern: str) -> str:
    found = re.search(pattern, README.read_text(encoding="utf-8"), re.M | re.S)
    if found is None:
        raise SystemExit(f"{README}: found nothing like {pattern}")
    return found[1]


def prepare(folder: Path) -> None:
    """sales.csv, which README generates, and new.csv, its first rows without their labels."""
    code = _found(r"^python - > sales.csv <<'EOF'\n(.*?)^EOF$")
    rows = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    (folder / "sales.csv").write_text(rows, encoding="utf-8")
    new = [line.rpartition(",")[0] for line in rows.splitlines()[:6]]
    (folder / "new.csv").write_text("\n".join([*new, ""]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.svg")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        terminal = Terminal(Path(folder))
        for command in commands():
            terminal.run(command)
    args.out.write_text(drawn(terminal.frames), encoding="utf-8")


if __name__ == "__main__":
    main()
