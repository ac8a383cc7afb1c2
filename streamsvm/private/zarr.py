"""zarr: single keys of a store, read from outside its event loop, and facts in array metadata."""

from __future__ import annotations

import os
from typing import Any

import zarr
from zarr.abc.store import SuffixByteRequest
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync as sync
from zarr.storage import LocalStore


def opened_as_is(place: Any, **more: Any) -> zarr.Group:
    """A group, read-only, without its consolidated metadata: copies, stale once a program has changed an array."""
    return zarr.open_group(place, mode="r", use_consolidated=False, **more)


def member_of(group: zarr.Group, name: str) -> zarr.Array | zarr.Group:
    """A member of a group, a group without its consolidated metadata."""
    member = group[name]
    if isinstance(member, zarr.Group) and member.metadata.consolidated_metadata is not None:
        return opened_as_is(member.store_path)
    return member


def is_local(array: zarr.Array) -> bool:
    """Whether its chunks are files of this machine."""
    return isinstance(array.store, LocalStore)


def has_key(node: zarr.Array | zarr.Group, key: str) -> bool:
    """Whether an array or group has an object under this key."""
    store_path = node.store_path
    if isinstance(store_path.store, LocalStore):
        return os.path.exists(os.path.join(store_path.store.root, store_path.path, key))
    return sync((store_path / key).exists())


def fetch(array: zarr.Array, key: str, last_bytes: int | None = None) -> bytes | None:
    """The bytes under a key as they are, all or the last ones; None if there are none."""
    wanted = None if last_bytes is None else SuffixByteRequest(last_bytes)
    stored = sync((array.store_path / key).get(default_buffer_prototype(), byte_range=wanted))
    return None if stored is None else stored.to_bytes()


def file_key(array: zarr.Array, number: int) -> str:
    """The key of a file, chunk or shard, counted along the first axis."""
    return array.metadata.encode_chunk_key((number,) + (0,) * (array.ndim - 1))


def first_codec(array: zarr.Array) -> Any:
    """The codec of an array of format 3: of a sharded one, the ShardingCodec."""
    return array.metadata.codecs[0]  # type: ignore[union-attr]


def open_for_writing(path: str) -> zarr.Array:
    """An existing array, opened so that chunks of zeros are written, too. Raises FileNotFoundError. An opened array has
    zarr's defaults, whatever it was created with: such chunks would be missing, and look lost."""
    opened = zarr.open_array(path, mode="r+")
    config = {"write_empty_chunks": True}
    return zarr.Array(zarr.AsyncArray(opened.metadata, opened.store_path, config))  # type: ignore[call-overload]
