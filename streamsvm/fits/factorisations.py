"""Factorisations of compressed kernel matrices in a run directory: one file, or one more for each subtree."""

from __future__ import annotations

from contextlib import suppress

from streamsvm.errors import NotFoundError
from streamsvm.hss.files import Factorisation, SubtreeFactorisation
from streamsvm.models.files import load_factorisation, save_model
from streamsvm.parallel.engine import Engine
from streamsvm.storage.atomic import storage_errors
from streamsvm.storage.paths import Place


def keep(made: Factorisation, path: Place, engine: Engine) -> None:
    """Writes it; workers write the subtrees that they hold. Raises StorageError, and ConfigError if workers do not
    see the folder."""
    tree = made.matrix.tree
    if tree.cut:
        folder = _folder(path)
        with storage_errors(str(folder)):
            folder.mkdir(exist_ok=True)
        engine.require_folder(folder)
        for _ in engine.map(_write, made.parts(engine), _paths(path, len(tree.roots))):
            pass
    save_model(made, path)


def kept(path: Place, key: str, engine: Engine) -> Factorisation | None:
    """What `keep` wrote for the same key, if it exists; its subtrees are on the workers. Raises CorruptDataError."""
    with suppress(NotFoundError):
        found = load_factorisation(path)
        if not isinstance(found, Factorisation) or found.key != key:
            return None
        if not found.matrix.tree.cut:
            return found
        paths = _paths(path, len(found.matrix.tree.roots))
        if engine.is_local:
            return found.joined([_read(path, key) for path in paths])
        engine.require_folder(_folder(path))
        return found.spread(engine.hold(_read, paths, [key] * len(paths)), engine)
    return None


def _folder(path: Place) -> Place:
    return path.with_name(f"{path.stem}-subtrees")


def _paths(path: Place, count: int) -> list[Place]:
    return [_folder(path) / f"{number:05d}.zarr" for number in range(count)]


def _write(part: SubtreeFactorisation, path: Place) -> None:
    save_model(part, path)


def _read(path: Place, key: str) -> SubtreeFactorisation:
    """Raises NotFoundError if it belongs to another run."""
    found = load_factorisation(path)
    if not isinstance(found, SubtreeFactorisation) or found.key != key:
        raise NotFoundError(f"{path}: belongs to another run")
    return found
