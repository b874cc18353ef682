"""Compiled kernels on disk, for this process and the next, and for several at once.

An entry is a file named by its key: a line with the key and the checksum of what follows, then the binary. An entry
that is damaged, or that was written for another key, counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Final

import attrs

from ziggurat.backend.cuda.binary import Binary
from ziggurat.backend.cuda.folder import Folder, default_directory, remove

_MAGIC: Final = "ziggurat kernel 2"
_SUFFIX: Final = ".kernel"
DEFAULT_LIMIT: Final = 1 << 30


@attrs.frozen
class Entry:
    """A kernel in the cache. `size` is in bytes, `used` when it was last read or written, in seconds since 1970."""

    key: str
    name: str
    target: str
    size: int
    used: float


@attrs.frozen
class Cache:
    """The kernels in a folder, together of at most `limit` bytes: the least recently used make room.

    A folder that cannot be written or read is as an empty one: kernels are compiled, and not kept.
    """

    directory: Path = attrs.field(factory=default_directory, converter=Path)
    limit: int = DEFAULT_LIMIT

    @property
    def _folder(self) -> Folder:
        return Folder(self.directory, _SUFFIX)

    def get(self, key: str) -> Binary | None:
        """The kernel of that key, or None. A damaged entry is removed."""
        binary = self._folder.load(key, _decoded)
        if binary is not None:
            with contextlib.suppress(OSError):  # A folder that is only read serves all the same.
                os.utime(self._folder.path(key))
        return binary

    def put(self, key: str, binary: Binary) -> bool:
        """Keep a kernel; False where the folder does not allow it."""
        payload = binary.to_bytes()
        kept = self._folder.write(key, _head(key, payload) + b"\n" + payload)
        if kept:
            self.evict()
        return kept

    def entries(self) -> list[Entry]:
        """The kernels of the cache, the most recently used first. Damaged entries are left out."""
        found: list[Entry] = []
        for key, state in self._folder.files():
            binary = self._folder.load(key, _decoded, keep=True)
            if binary is not None:
                found.append(Entry(key, binary.title, binary.target, state.st_size, state.st_mtime))
        return sorted(found, key=lambda entry: -entry.used)

    def clear(self) -> int:
        """Remove all kernels; their number."""
        return self._folder.clear()

    def evict(self) -> int:
        """Remove the least recently used kernels until the rest fit the limit; the number of removed ones."""
        files = sorted(self._folder.files(), key=lambda file: file[1].st_mtime)
        total = sum(state.st_size for _, state in files)
        removed = 0
        for key, state in files:
            if total <= self.limit:
                break
            total -= state.st_size
            removed += remove(self._folder.path(key))
        if removed:
            self._folder.sweep()
        return removed


def _head(key: str, payload: bytes) -> bytes:
    return f"{_MAGIC} {key} {hashlib.sha256(payload).hexdigest()}".encode()


def _decoded(key: str, data: bytes) -> Binary:
    line, _, payload = data.partition(b"\n")
    if line != _head(key, payload):
        raise ValueError("the entry is damaged, or of another key or version")
    return Binary.from_bytes(payload)
