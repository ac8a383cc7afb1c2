"""How far a parameter goes through the code: the calls that pass it on, from function to function.

    python pipelines/stops.py streamsvm.train:train:store [streamsvm.predict:write_predictions:store ...]
    python pipelines/stops.py streamsvm.train:train:store --tree DIR --list

Nothing is run: sources are read. Followed are the parameter, names and attributes that it is assigned to as it is, and
fields of a dataclass that is made with it. An attribute is followed in every function that has an object of this class:
`self`, or a name whose class an annotation or a call gives. A method is that of the object's class, and those of
subclasses that override it. Results of calls are not followed, and neither are functions chosen when the program runs.

- A stop is a call that passes it on to a function or class of the package, or calls a method of it.
- A place is a file with a stop, or one that a stop leads to.
- A step back up is a stop that takes it out of an object whose class is in a lower file (it went down, was kept there,
  and comes up again), or that leads to a higher file. A file is higher in the order of imports: its layer in LAYERS of
  `tests/test_imports.py` is higher, or in the same layer it has the longer chain of imports below it.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = "streamsvm"
Def = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
WRAPPERS = (
    "Iterator",
    "Annotated",
    "Final",
    "ClassVar",
    "Optional",
)  # of annotations: what they hold is meant


class Package:
    """All definitions of a tree by their dotted names, and what names and annotations mean."""

    def __init__(self, tree: Path) -> None:
        self.names: dict[str, dict[str, str]] = {}  # of each module: dotted names of what it imports and defines
        self.imports: dict[str, list[str]] = {}  # of each module, when it is imported
        self.defs: dict[str, Def] = {}
        self.module_of: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.members: dict[tuple[str, str], str] = {}  # classes of attributes
        for path in sorted((tree / PACKAGE).rglob("*.py")):
            file = path.relative_to(tree)
            module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
            self.files[module] = file.as_posix()
            self._add(module, ast.parse(path.read_text(encoding="utf-8")))
        self.functions = {
            name: Function(self, name) for name, node in self.defs.items() if not isinstance(node, ast.ClassDef)
        }
        self.layers = layers_of(tree)
        self.bases, self.depth = cache(self._bases), cache(self._depth)

    def _add(self, module: str, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                own = {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
                self.names.setdefault(module, {}).update(own)
                if node in tree.body:
                    self.imports.setdefault(module, []).extend(own.values())
        for node in tree.body:
            if isinstance(node, Def):
                self.names.setdefault(module, {})[node.name] = f"{module}.{node.name}"
                self._define(f"{module}.{node.name}", node, module)

    def _define(self, name: str, node: Def, module: str) -> None:
        self.defs[name], self.module_of[name] = node, module
        for own in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(own, Def):
                self._define(f"{name}.{own.name}", own, module)

    def named(self, node: ast.expr | None, module: str) -> str:
        """The dotted name of what a name or attribute in a module means, through imports of imports."""
        if isinstance(node, ast.Attribute):
            name = f"{self.named(node.value, module)}.{node.attr}"
        else:
            name = self.names.get(module, {}).get(node.id, "") if isinstance(node, ast.Name) else ""
        home, _, last = name.rpartition(".")
        known = self.names.get(home, {}).get(last, name)
        return name if name in self.defs or known == name else self.named(ast.Name(last), home)

    def class_in(self, node: ast.expr | None, module: str) -> str:
        """The class that an annotation names, or that it says is inside; "" if there is none."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        if isinstance(node, ast.BinOp):
            return self.class_in(node.left, module) or self.class_in(node.right, module)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in WRAPPERS:
            return self.class_in(node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice, module)
        found = self.named(node, module)
        return found if isinstance(self.defs.get(found), ast.ClassDef) else ""

    def _bases(self, name: str) -> tuple[str, ...]:
        """A class of the package, and its bases there, nearest first."""
        node = self.defs.get(name)
        if not isinstance(node, ast.ClassDef):
            return ()
        found = (self.bases(self.named(base, self.module_of[name])) for base in node.bases)
        return tuple(dict.fromkeys((name, *(base for some in found for base in some))))

    def member_class(self, owner: str, name: str) -> str:
        """The class of an attribute, by its annotation, or of what a method sets it to; "" if that is unknown."""
        if (owner, name) not in self.members:
            self.members[owner, name] = ""  # while it is looked for
            found = (own for base in self.bases(owner) for own in self._classes(base, name))
            self.members[owner, name] = next(filter(None, found), "")
        return self.members[owner, name]

    def _classes(self, owner: str, name: str) -> Iterator[str]:
        if f"{owner}.{name}" in self.functions:  # a property
            yield self.class_in(self.functions[f"{owner}.{name}"].node.returns, self.module_of[owner])
        for node in ast.walk(self.defs[owner]):
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in (name, f"self.{name}"):
                yield self.class_in(node.annotation, self.module_of[owner])
        for method in (f for f in self.functions.values() if f.owner == owner):
            values = (v for target, v in assigned(method.node) if ast.unparse(target) == f"self.{name}")
            yield from map(method.class_of, values)

    def methods(self, owner: str, name: str) -> list[str]:
        """The method of an object of a class, and those of its subclasses."""
        found = [f"{base}.{name}" for base in self.bases(owner) if f"{base}.{name}" in self.functions][:1]
        below = (f.name for f in self.functions.values() if f.owner and f.name == f"{f.owner}.{name}")
        return found + [own for own in below if owner in self.bases(self.functions[own].owner)[1:]]

    def signature(self, name: str, *, skips: bool) -> tuple[str, list[str]]:
        """What holds the values given to a call, and their names: a function, or a class without `__init__`.

        skips: the first one is the object whose method is called."""
        if not isinstance(self.defs[name], ast.ClassDef):
            function = self.functions[name]
            return name, function.positional[1 if skips and function.owner else 0 :]
        if inits := self.methods(name, "__init__")[:1]:
            return inits[0], self.functions[inits[0]].positional[1:]
        bodies = (self.defs[base].body for base in reversed(self.bases(name)))
        return name, [ast.unparse(n.target) for body in bodies for n in body if isinstance(n, ast.AnnAssign)]

    def height(self, module: str) -> tuple[int, int]:
        """Of a module in the order of imports: its layer, and the longest chain of imports below it there."""
        return self._layer(module), self.depth(module)

    def _layer(self, module: str) -> int:
        name = module.partition(".")[2] or "__init__"
        parts = (name, name.rpartition(".")[0], name.partition(".")[0])
        return next((self.layers[part] for part in parts if part in self.layers), len(self.layers))

    def _depth(self, module: str) -> int:
        used = {m for name in self.imports.get(module, ()) for m in (name, name.rpartition(".")[0])}
        own = used & set(self.files) - {module}
        return max((1 + self.depth(m) for m in own if self._layer(m) == self._layer(module)), default=0)


def layers_of(tree: Path) -> dict[str, int]:
    """Positions of folders and files in LAYERS, which has names, or texts of names, in tuples or not."""
    source = ast.parse((tree / "tests" / "test_imports.py").read_text(encoding="utf-8"))
    [value] = (v for target, v in assigned(source) if ast.unparse(target) == "LAYERS")
    texts = [node for node in ast.walk(value) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    texts.sort(key=lambda node: (node.lineno, node.col_offset))
    return {part: i for i, part in enumerate(part for node in texts for part in str(node.value).split())}


def assigned(function: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and values of all assignments in a function, of tuples one by one, and of what `with` enters."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            target, value = node.target, node.value
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            target, value = node.optional_vars, node.context_expr
        else:
            continue
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from zip(target.elts, value.elts, strict=False)
        else:
            yield target, value


class Function:
    """A function of the package: its parameters, and the classes of its names."""

    def __init__(self, package: Package, name: str) -> None:
        node, owner = package.defs[name], name.rpartition(".")[0]
        assert not isinstance(node, ast.ClassDef)
        self.package, self.name, self.node, self.module = package, name, node, package.module_of[name]
        is_static = "staticmethod" in map(ast.unparse, node.decorator_list)
        self.owner = owner if owner in package.defs and not is_static else ""  # the class of its first parameter
        self.positional = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        self.parameters = {*self.positional, *(a.arg for a in node.args.kwonlyargs)}
        self.attributes = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        told = ((a.arg, a.annotation) for a in ast.walk(node) if isinstance(a, ast.arg))
        self.annotations = dict(reversed([*told]))
        self.classes = dict.fromkeys(self.positional[:1], self.owner) if self.owner else {}
        self.values: dict[str, list[ast.expr]] = {}
        for target, value in assigned(node):
            self.values.setdefault(ast.unparse(target), []).append(value)

    def class_of(self, node: ast.expr) -> str:
        """The class of what an expression gives; "" if that is unknown."""
        if isinstance(node, ast.Name):
            if node.id not in self.classes:
                self.classes[node.id] = ""  # while it is looked for
                said = self.package.class_in(self.annotations.get(node.id), self.module)
                found = (self.class_of(value) for value in self.values.get(node.id, ()))
                self.classes[node.id] = said or next(filter(None, found), "")
            return self.classes[node.id]
        if isinstance(node, ast.Attribute):
            return self.package.member_class(owner, node.attr) if (owner := self.class_of(node.value)) else ""
        if isinstance(node, ast.IfExp):
            return self.class_of(node.body) or self.class_of(node.orelse)
        for target in self.targets(node.func)[:1] if isinstance(node, ast.Call) else ():
            made = self.package.defs[target]
            if isinstance(made, ast.ClassDef):
                return target
            if made.returns is not None and ast.unparse(made.returns) == "Self":
                return self.package.functions[target].owner
            return self.package.class_in(made.returns, self.package.module_of[target])
        return ""

    def targets(self, called: ast.expr) -> list[str]:
        """Functions and classes of the package that a call may lead to."""
        named = self.package.named(called, self.module)
        if named in self.package.defs and ast.unparse(called) not in self.parameters:
            return [named]
        owner = self.class_of(called.value) if isinstance(called, ast.Attribute) else ""
        return self.package.methods(owner, called.attr) if isinstance(called, ast.Attribute) and owner else []


class Stop(NamedTuple):
    """A call in a module that passes the value on to targets, and whether it is a step back up."""

    module: str
    line: int
    column: int
    targets: tuple[str, ...]
    is_up: bool


class Walk:
    """From a parameter on, until nothing is new. held: what is the value, (function, name) or (class, attribute), and
    the module that it is taken from there."""

    def __init__(self, package: Package) -> None:
        self.package, self.stops = package, set[Stop]()
        self.held: dict[tuple[str, str], str] = {}
        self.waiting: list[Function] = []

    def follow(self, function: str, parameter: str) -> list[Stop]:
        self._hold(function, parameter)
        while self.waiting:
            self._read(self.waiting.pop())
        return sorted(self.stops)

    def _hold(self, owner: str, name: str, source: str = "") -> None:
        functions = self.package.functions
        is_known = owner not in functions or name in functions[owner].parameters or source
        if is_known and (owner, name) not in self.held:
            self.held[owner, name] = source or self.package.module_of[owner]
            holders = [functions[owner]] if owner in functions else functions.values()
            self.waiting += [f for f in holders if f.name == owner or name in f.attributes]

    def _source(self, function: Function, node: ast.expr) -> str:
        """The module from which an expression takes the value; "" if it is another value."""
        if isinstance(node, ast.Attribute):
            bases = self.package.bases(function.class_of(node.value))
            return next((self.held[base, node.attr] for base in bases if (base, node.attr) in self.held), "")
        if isinstance(node, ast.IfExp):
            return self._source(function, node.body) or self._source(function, node.orelse)
        return self.held.get((function.name, node.id), "") if isinstance(node, ast.Name) else ""

    def _read(self, function: Function) -> None:
        for target, value in [*assigned(function.node)] * 2:  # a name may be assigned after it is read
            if source := self._source(function, value):
                if isinstance(target, ast.Name):
                    self._hold(function.name, target.id, source)
                elif isinstance(target, ast.Attribute) and (owner := function.class_of(target.value)):
                    self._hold(owner, target.attr)
        for call in (node for node in ast.walk(function.node) if isinstance(node, ast.Call)):
            given = {k.arg: k.value for k in call.keywords if k.arg}
            self._pass(function, call.func, call.args, given)
            if call.args and ast.unparse(call.func) == "partial":
                self._pass(function, call.args[0], call.args[1:], given)
            if call.args and "shared" in given:  # of engines: map(f, items, shared=(a, share(b))) calls f(a, b, item)
                shared = [given["shared"], *function.values.get(ast.unparse(given["shared"]), ())]
                for own in (node.elts for node in shared if isinstance(node, ast.Tuple)):
                    values = [n.args[0] if isinstance(n, ast.Call) and n.args else n for n in own]
                    self._pass(function, call.args[0], values, {})

    def _pass(
        self, function: Function, called: ast.expr, given: Sequence[ast.expr], named: Mapping[str, ast.expr]
    ) -> None:
        """A call of `called` with values by position and by name."""
        by_position = {i: source for i, value in enumerate(given) if (source := self._source(function, value))}
        by_name = {name: source for name, value in named.items() if (source := self._source(function, value))}
        own = self._source(function, called.value) if isinstance(called, ast.Attribute) else ""
        sources = {*by_position.values(), *by_name.values(), own} - {""}
        targets = function.targets(called) if sources else []
        for target in targets:
            owner, names = self.package.signature(target, skips=isinstance(called, ast.Attribute))
            for name in (*(names[i] for i in by_position if i < len(names)), *by_name):
                self._hold(owner, name)
        if targets:
            here, height = self.package.height(function.module), self.package.height
            leads_up = any(height(self.package.module_of[t]) > here for t in targets if by_position or by_name)
            is_up = leads_up or any(height(source) < here for source in sources)
            self.stops.add(Stop(function.module, called.lineno, called.col_offset, tuple(targets), is_up))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starts", nargs="+", metavar="MODULE:FUNCTION:PARAMETER")
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[1], metavar="DIR")
    parser.add_argument("--list", action="store_true", help="print every stop, and where it leads")
    args = parser.parse_args()
    package = Package(args.tree)
    for start in args.starts:
        module, function, parameter = start.split(":")
        if parameter not in getattr(package.functions.get(f"{module}.{function}"), "parameters", ()):
            parser.error(f"{start}: no such parameter in {args.tree}")
        stops = Walk(package).follow(f"{module}.{function}", parameter)
        for stop in stops if args.list else ():
            up = " (back up)" if stop.is_up else ""
            print(f"{package.files[stop.module]}:{stop.line}: {', '.join(stop.targets)}{up}")
        places = {m for stop in stops for m in (stop.module, *map(package.module_of.get, stop.targets))}
        ups = sum(stop.is_up for stop in stops)
        print(f"{start}: {len(stops)} stops, {len(places)} places, {ups} steps back up")


if __name__ == "__main__":
    main()
