"""Compiled kernels on disk, for this process and the next, and for several at once.

An entry is a file named by its key: a line with the checksum of what follows, then the binary. A file is written
under another name and then put in its place at once, so that a reader sees all of it or none; one that is damaged all
the same does not agree with its checksum, and counts as not there.
"""

from __future__ import annotations

import atexit
import functools
import getpass
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from ziggurat.backend.cuda.binary import Binary

_MAGIC: Final = b"ziggurat kernel 1 "
_SUFFIX: Final = ".kernel"
DEFAULT_LIMIT: Final = 1 << 30
# Leftovers of a writer that was killed are taken away when they are this old, in seconds.
_ABANDONED: Final = 3600.0


def default_directory() -> Path:
    """Where kernels are kept unless the caller says: the folder that `ZIGGURAT_CACHE_DIR` names, or
    `~/.cache/ziggurat`.

    A user without a home, as containers have them, gets a folder of their own among the temporary ones.
    """
    named = os.environ.get("ZIGGURAT_CACHE_DIR")
    if named:
        return Path(named)
    home = Path(os.path.expanduser("~"))
    kept = home / ".cache" / "ziggurat"
    # The root is what Python and containers say of a user who has none.
    if home.is_absolute() and home != Path(home.anchor) and (kept.is_dir() or _is_writable(home)):
        return kept
    return _temporary_directory()


def _is_writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK)


@functools.cache
def _temporary_directory() -> Path:
    """A folder that is this user's alone: what others can write is not to be run. It lasts where it can."""
    user = os.getuid() if hasattr(os, "getuid") else getpass.getuser()
    path = Path(tempfile.gettempdir()) / f"ziggurat-{user}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        state = path.lstat()
        if stat.S_ISDIR(state.st_mode) and (os.name != "posix" or (state.st_uid == user and not state.st_mode & 0o022)):
            return path
    except OSError:
        pass
    try:
        made = tempfile.mkdtemp(prefix="ziggurat-")
    except OSError:
        return path  # Nothing can be written there: a cache of it is empty.
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


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
    """The kernels in a directory, together of at most `limit` bytes: the ones longest not used make room.

    A directory that cannot be written or read is as an empty one: kernels are compiled, and not kept.
    """

    directory: Path = attrs.field(factory=default_directory, converter=Path)
    limit: int = DEFAULT_LIMIT

    def get(self, key: str) -> Binary | None:
        """The kernel of that key, or None. A damaged entry is removed."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        binary = _decode(data)
        try:
            if binary is None:
                path.unlink(missing_ok=True)
            else:
                os.utime(path)
        except OSError:
            return binary  # A directory that is only read serves all the same.
        return binary

    def put(self, key: str, binary: Binary) -> bool:
        """Keep a kernel; False where the directory does not let us."""
        payload = binary.to_bytes()
        data = _MAGIC + hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload
        temporary: str | None = None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=f".{key[:16]}-", dir=self.directory)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, self._path(key))
        except OSError:
            if temporary is not None:
                _remove(Path(temporary))
            return False
        self.evict()
        return True

    def get_or_build(self, key: str, build: Callable[[], Binary]) -> Binary:
        """The kernel of that key; built and kept where it is not there."""
        binary = self.get(key)
        if binary is None:
            binary = build()
            self.put(key, binary)
        return binary

    def entries(self) -> list[Entry]:
        """What the cache holds, the last used first. Damaged entries are left out."""
        found: list[Entry] = []
        for path, state in self._files():
            try:
                binary = _decode(path.read_bytes())
            except OSError:
                continue
            if binary is not None:
                found.append(Entry(path.stem, binary.title, binary.target, state.st_size, state.st_mtime))
        return sorted(found, key=lambda entry: -entry.used)

    def size(self) -> int:
        """Bytes that the cache takes."""
        return sum(state.st_size for _, state in self._files())

    def clear(self) -> int:
        """Remove all kernels; how many there were."""
        removed = [path for path, _ in self._files() if _remove(path)]
        self._sweep(0.0)
        return len(removed)

    def evict(self) -> int:
        """Remove the kernels longest not used until the rest fit the limit; how many went."""
        files = sorted(self._files(), key=lambda file: file[1].st_mtime)
        total = sum(state.st_size for _, state in files)
        gone = 0
        for path, state in files:
            if total <= self.limit:
                break
            total -= state.st_size
            gone += _remove(path)
        if gone:
            self._sweep(_ABANDONED)
        return gone

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}{_SUFFIX}"

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        found: list[tuple[Path, os.stat_result]] = []
        try:
            with os.scandir(self.directory) as listing:
                for item in listing:
                    if item.name.endswith(_SUFFIX) and not item.name.startswith("."):
                        try:
                            found.append((Path(item.path), item.stat()))
                        except OSError:  # Another process removed it meanwhile.
                            continue
        except OSError:
            return []
        return found

    def _sweep(self, age: float) -> None:
        """Remove what writers that were killed have left."""
        try:
            newest = max((state.st_mtime for _, state in self._files()), default=float("inf"))
            for path in self.directory.glob(".*-*"):
                if path.stat().st_mtime <= newest - age:
                    _remove(path)
        except OSError:
            return


def _decode(data: bytes) -> Binary | None:
    """The binary in a file, or None where the file is damaged or of another version."""
    line, _, payload = data.partition(b"\n")
    if line != _MAGIC + hashlib.sha256(payload).hexdigest().encode():
        return None
    try:
        return Binary.from_bytes(payload)
    except ValueError:
        return None


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
