"""Compiled kernels on disk.

A kernel is a file named by its key: a line with the key and the checksum of what follows, then the binary.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import attrs

from ziggurat.backend.cache.folder import Folder, default_directory, remove

_MAGIC: Final = "ziggurat kernel 2"
DEFAULT_LIMIT: Final = 1 << 30


@attrs.frozen
class CacheEntry:
    """A kernel in the cache. `size` is in bytes, `used` when it was last read or written, in seconds since 1970."""

    key: str
    name: str
    target: str
    size: int
    used: float


class Kept(Protocol):
    """A compiled kernel that can be kept; its class has `from_bytes`, which raises `ValueError` for other bytes."""

    @property
    def title(self) -> str: ...
    @property
    def target(self) -> str: ...
    def to_bytes(self) -> bytes: ...


K = TypeVar("K", bound=Kept)


@attrs.frozen
class Kernels(Folder, Generic[K]):
    """The kernels of one class in a folder, together of at most `limit` bytes: the least recently used make room.

    A folder that cannot be written or read counts as empty: kernels are compiled, and not kept.
    """

    directory: Path = attrs.field(factory=default_directory, converter=Path)
    limit: int = DEFAULT_LIMIT

    def read(self, payload: bytes) -> K:
        """The kernel that `to_bytes` wrote. Raises `ValueError` for other bytes."""
        raise NotImplementedError

    def get(self, key: str) -> K | None:
        """The kernel of that key, or None. A damaged entry is removed."""
        binary = self.load(key, self._checked)
        if binary is not None:
            with contextlib.suppress(OSError):  # A folder that is only read serves all the same.
                os.utime(self.path(key))
        return binary

    def put(self, key: str, binary: K) -> bool:
        """Keep a kernel; False where the folder does not allow it."""
        payload = binary.to_bytes()
        path = self.write(key, _head(key, payload) + b"\n" + payload)
        # To list the folder takes long where it has thousands of kernels: it is done, by whichever process, once for
        # each hundredth of the limit that is written.
        if path and random.random() * self.limit < 100 * len(payload):
            self.evict()
        return path

    def entries(self) -> list[CacheEntry]:
        """The kernels of the cache, the most recently used first. Damaged entries are left out."""
        listing: list[CacheEntry] = []
        for key, state in self.files():
            binary = self.load(key, self._checked, keep=True)
            if binary is not None:
                listing.append(CacheEntry(key, binary.title, binary.target, state.st_size, state.st_mtime))
        return sorted(listing, key=lambda entry: -entry.used)

    def evict(self) -> int:
        """Remove the least recently used kernels until the rest fit the limit; the number of removed ones."""
        files = sorted(self.files(), key=lambda file: file[1].st_mtime)
        total = sum(state.st_size for _, state in files)
        removed = 0
        for key, state in files:
            if total <= self.limit:
                break
            total -= state.st_size
            removed += remove(self.path(key))
        if removed:
            self.sweep()
        return removed

    def _checked(self, key: str, data: bytes) -> K:
        line, _, payload = data.partition(b"\n")
        if line != _head(key, payload):
            raise ValueError("the entry is damaged, or of another key or version")
        return self.read(payload)


def _head(key: str, payload: bytes) -> bytes:
    return f"{_MAGIC} {key} {hashlib.sha256(payload).hexdigest()}".encode()
