"""Whether tests notice faults: random mutants of functions, and which of them the tests kill.

    python pipelines/mutants.py --count 200 --out before.json [GLOB ...]
    python pipelines/mutants.py --like before.json --tree DIR --out after.json

A mutant is one change in one function: a comparison negated or moved to its boundary, + for -, * for /, another number,
a condition negated, `None` returned, `and` for `or`, a slice longer by one. It is made in a copy of the tree, where
`pytest -x` runs the `--files` test files that are nearest by imports; those of the same name first. It is killed if a
test fails that passes without it, has timed out if a test takes too long, and has survived if all pass.

GLOB: files to change, relative to the tree. A run ends after `--most` mutants, and the same command continues where it
ended. `--like` makes the same mutants in another tree. They are found by the name of their function, wherever it is, or
if it has another name by the form of its code; the output says how many are lost.

Why no library: cosmic-ray finds its mutants by file and line, which do not survive a move, and mutmut calls functions
through others, which numba does not compile. Coverage sees no lines of compiled functions, so that imports are the map.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

PACKAGE = "streamsvm"
CORE = ("solvers", "problems", "kernels", "hss", "models", "data", "training", "fits", "judging", "choosing")
GLOBS = [f"{PACKAGE}/{folder}/**/*.py" for folder in CORE]
NEGATED = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
SWAPPED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
FEW_NODES = 30  # a function of fewer has the form of many others
FAR = 2  # imports from a test file to a module
SHORT = 4  # letters of names that stand for other things, too
FIRST = 4  # test files that run first, in a process of their own
NO_TESTS = 5  # pytest's exit status if it finds none
LATE = " (late)"
NOT_COPIED = shutil.ignore_patterns(".git", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".venv")


@dataclass(frozen=True)
class Mutant:
    """One change: of the `ordinal`-th of `of` nodes of a kind in a function of a file.

    form: of the function's code, without names. outcome: "" (not run), killed, survived, timeout, or lost (`--like`
    does not find it). by: the test that failed.
    """

    file: str
    function: str
    kind: str
    ordinal: int
    of: int
    source: str
    becomes: str
    form: str
    outcome: str = ""
    by: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Site:
    """A change of a function: the node to replace, and the text instead of it."""

    kind: str
    node: ast.expr | ast.stmt
    text: str


@dataclass(frozen=True)
class Function:
    """A function or method of a file, by its name in the file, such as `RBF.block`."""

    file: str
    name: str
    node: ast.FunctionDef

    @cached_property
    def sites(self) -> list[Site]:
        return [site for node in inside(self.node) for site in changes(node)]

    @cached_property
    def form(self) -> str:
        """The kinds of its nodes, in order: number and digest."""
        kinds = [type(node).__name__ for node in inside(self.node)]
        return f"{len(kinds)}-{hashlib.sha256(' '.join(kinds).encode()).hexdigest()[:16]}"

    def mutants(self) -> Iterator[Mutant]:
        counts, seen = Counter(site.kind for site in self.sites), Counter[str]()
        for site in self.sites:
            own = self.file, self.name, site.kind, seen[site.kind], counts[site.kind]
            yield Mutant(*own, ast.unparse(site.node), site.text, self.form)
            seen[site.kind] += 1


def functions_of(tree: Path, globs: Sequence[str]) -> list[Function]:
    files = sorted({path for own in globs for path in tree.glob(own)})
    found = []
    for path in files:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        found += [Function(path.relative_to(tree).as_posix(), *own) for own in _defined(body, "")]
    return found


def _defined(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _defined(node.body, f"{prefix}{node.name}.")


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body in order, without annotations, defaults, docstrings and messages."""
    children = node.body if isinstance(node, ast.FunctionDef) else ast.iter_child_nodes(node)
    for child in children:
        is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if is_text or isinstance(child, ast.Raise | ast.Assert | ast.JoinedStr):
            continue
        if isinstance(child, ast.AnnAssign):
            child = ast.copy_location(ast.Assign([child.target], child.value or ast.Name("_")), child)
        yield child
        yield from inside(child)


def changes(node: ast.AST) -> Iterator[Site]:
    """How a node can be changed."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for kind, table in (("comparison", NEGATED), ("boundary", BOUNDARY)):
            if other := table.get(type(node.ops[0])):
                yield Site(kind, node, _with(node, ops=[other()]))
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPPED:
        kind = "and or" if isinstance(node, ast.BoolOp) else "arithmetic"
        yield Site(kind, node, _with(node, op=SWAPPED[type(node.op)]()))
    elif isinstance(node, ast.Constant) and (other := _other(node.value)):
        yield Site("constant", node, other)
    elif isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Constant):
        yield Site("condition", node.test, f"not ({ast.unparse(node.test)})")
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield Site("return", node, "return None")
    elif isinstance(node, ast.Slice):
        yield from (Site("slice", own, f"{ast.unparse(own)} + 1") for own in (node.lower, node.upper) if own)


def _other(value: object) -> str:
    """Another number, or the other truth value; "" for what is neither."""
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int):
        return repr(value + 1)
    return repr(2 * value or 1.0) if isinstance(value, float) else ""


def _with(node: ast.AST, **own: object) -> str:
    changed = copy.copy(node)
    for name, value in own.items():
        setattr(changed, name, value)
    return ast.unparse(changed)


def mutated(source: bytes, site: Site) -> bytes:
    """The text of a file with one change, and with as many lines."""
    lines, node = source.splitlines(keepends=True), site.node
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    stop = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    text = f"({site.text})" if isinstance(node, ast.expr) else site.text
    more = "\n" * source[start:stop].count(b"\n") if isinstance(node, ast.expr) else ""
    return source[:start] + (text[:-1] + more + text[-1:] if more else text).encode() + source[stop:]


def drawn(functions: Sequence[Function], count: int, seed: int) -> list[Mutant]:
    everything = [mutant for function in functions for mutant in function.mutants()]
    return random.Random(seed).sample(everything, min(count, len(everything)))


def found(mutant: Mutant, functions: Sequence[Function]) -> tuple[Function, Site] | None:
    """The function of a mutant in a tree, maybe in another file or of another name, and its place there."""
    name = mutant.function.rpartition(".")[2]
    same = [f for f in functions if f.name == mutant.function]
    for own in (
        [f for f in same if f.file == mutant.file],
        [f for f in same if f.form == mutant.form],
        [f for f in functions if f.name.rpartition(".")[2] == name and f.form == mutant.form],
        same,
        [f for f in functions if f.form == mutant.form and int(f.form.partition("-")[0]) >= FEW_NODES],
    ):
        sites = [site for site in own[0].sites if site.kind == mutant.kind] if len(own) == 1 else []
        if own and sites and (own[0].form == mutant.form or len(sites) == mutant.of):
            return own[0], sites[mutant.ordinal]
        alike = [site for site in sites if ast.unparse(site.node) == mutant.source]
        if len(alike) == 1:
            return own[0], alike[0]
    return None


class Tests:
    """The test files of a tree, and which of them concern a function."""

    def __init__(self, tree: Path) -> None:
        files = [*(tree / PACKAGE).rglob("*.py"), *(tree / "tests").rglob("*.py")]
        self.texts = {path.relative_to(tree).as_posix(): path.read_text(encoding="utf-8") for path in files}
        homes = {name: {name} for name in self.texts}
        self.uses = homes | {name: set(self._used(text)) - {name} for name, text in self.texts.items()}

    def _used(self, text: str) -> Iterator[str]:
        """Files of what a text imports, and of what it names as `module:class`."""
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{a.name}" for a in node.names]
            elif isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.Constant) and re.fullmatch(rf"{PACKAGE}[.\w]+:\w+", str(node.value)):
                names = [str(node.value).partition(":")[0]]
            else:
                continue
            yield from (file for name in names if (file := self._file(name)))

    def _file(self, name: str) -> str:
        """That of an imported name, of its module; a public name of the package is in the file that defines it."""
        for own in (name, name.rpartition(".")[0]):
            for place in (f"{own.replace('.', '/')}.py", f"tests/{own}.py"):
                if place in self.texts:
                    return place
        home, _, last = name.rpartition(".")
        public = re.search(rf"from ([.\w]+) import {last} as {last}\n", self.texts[f"{PACKAGE}/__init__.py"])
        return self._file(f"{public[1]}.{last}") if public and home == PACKAGE else ""

    def of(self, function: Function, most: int) -> list[str]:
        """As many test files as are asked for, of those from which the fewest imports lead to the function, or FAR at
        most. First come those of the same name as its file, those that name it, and those of the same folder."""
        distance = {function.file: 0}
        for far in range(1, 2 * FAR + 1):
            distance = {own: far for own, used in self.uses.items() if used & distance.keys()} | distance
            tests = [own for own in distance if Path(own).name.startswith("test_")]
            if len(tests) >= most and far >= FAR:
                break
        home, stem = Path(function.file.replace(PACKAGE, "tests", 1)), Path(function.file).stem
        names = [name for name in function.name.split(".") if len(name) > SHORT]
        words = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")

        def order(own: str) -> tuple[bool, bool, int, int, str]:
            is_named = bool(names) and words.search(self.texts[own]) is not None
            shared = len(os.path.commonpath([own, home]).split("/"))
            return stem not in Path(own).stem, not is_named, -shared, distance[own], own

        return sorted(tests, key=order)[:most]


@dataclass(frozen=True)
class Bench:
    """A copy of the tree to run tests in, limits in seconds, and whether tests fail there without a mutant."""

    base: Path
    test_timeout: float
    timeout: float
    known: dict[str, bool] = field(default_factory=dict)

    def outcome(self, mutant: Mutant, function: Function, site: Site, files: list[str]) -> Mutant:
        """The mutant, and whether tests kill it: in a copy whose compiled functions are those of the unchanged tree."""
        began, tree = time.monotonic(), self.base.with_name("mutant")
        shutil.copytree(self.base, tree)
        try:
            (tree / function.file).write_bytes(mutated((tree / function.file).read_bytes(), site))
            failed = self.failing(tree, files)
        finally:
            shutil.rmtree(tree)
        result = "survived" if not failed else "timeout" if failed.endswith(LATE) else "killed"
        seconds = round(time.monotonic() - began, 1)
        return replace(mutant, outcome=result, by=failed.removesuffix(LATE), seconds=seconds)

    def failing(self, tree: Path, files: list[str]) -> str:
        """The first test that fails in a tree, and does not without the mutant; "" if there is none."""
        now, later = files[:FIRST], files[FIRST:]
        while now:
            failed = self.failed(tree, now)
            test = failed.removesuffix(LATE)
            if test and test not in self.known:
                self.known[test] = bool(self.failed(self.base, [test]))
            if test and not self.known[test]:
                return failed
            if test:
                now = [file for file in now if file != test.partition("::")[0]]  # others of this file are not run
            else:
                now, later = later, []
        return ""

    def failed(self, tree: Path, tests: list[str]) -> str:
        """The first test that fails, or the first file if that is unknown; "" if all pass."""
        limit = ["--timeout", str(self.test_timeout), "--timeout-method", "thread"]
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *limit, *tests]
        process = subprocess.Popen(
            words,
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree)},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            said, _ = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            return tests[0] + LATE
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        if process.returncode in (0, NO_TESTS):
            return ""
        first = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.M)
        late = LATE if re.search(r"Failed: Timeout|^\++ Timeout \++$", said, re.M) else ""
        return (first[1] if first else tests[0]) + late


def listed(path: Path) -> list[Mutant]:
    return [Mutant(**values) for values in json.loads(path.read_text(encoding="utf-8"))["mutants"]]


def save(path: Path, mutants: Sequence[Mutant]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"mutants": [asdict(m) for m in mutants]}, indent=1), encoding="utf-8")
    new.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("globs", nargs="*", metavar="GLOB", help="files to change (default: the core)")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[1], metavar="DIR")
    parser.add_argument("--tests", type=Path, metavar="DIR", help="tests to run (default: those of the tree)")
    parser.add_argument("--like", type=Path, metavar="FILE.json", help="make the mutants of another run")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--most", type=int, metavar="N", help="mutants to run now (default: all)")
    parser.add_argument("--files", type=int, default=16, metavar="N", help="test files to run for a mutant")
    parser.add_argument("--test-timeout", type=float, default=120, metavar="S")
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="for tests that run together")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the copies are removed
    functions = functions_of(args.tree, args.globs or GLOBS)
    if args.out.exists():
        mutants = listed(args.out)
    elif args.like is not None:
        mutants = [replace(mutant, outcome="", by="", seconds=0.0) for mutant in listed(args.like)]
    else:
        mutants = drawn(functions, args.count, args.seed)
    everywhere = functions_of(args.tree, [f"{PACKAGE}/**/*.py"])
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(Path(folder, "tree"), args.test_timeout, args.timeout)
        shutil.copytree(args.tree, bench.base, ignore=NOT_COPIED)
        if args.tests is not None:
            shutil.rmtree(bench.base / "tests")
            shutil.copytree(args.tests, bench.base / "tests", ignore=NOT_COPIED)
        tests, ran = Tests(bench.base), 0
        for i, mutant in enumerate(mutants):
            if mutant.outcome or ran == args.most:
                continue
            if place := found(mutant, everywhere):
                mutants[i], ran = bench.outcome(mutant, *place, tests.of(place[0], args.files)), ran + 1
            else:
                mutants[i] = replace(mutant, outcome="lost")
            save(args.out, mutants)
            own = mutants[i]
            print(f"{own.outcome:8} {own.seconds:6.1f} s  {own.file} {own.function}: {own.kind}", flush=True)
    save(args.out, mutants)
    counts = Counter(mutant.outcome or "not run" for mutant in mutants)
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())), f"of {len(mutants)}")


if __name__ == "__main__":
    main()
