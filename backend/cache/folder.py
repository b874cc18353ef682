"""Folders on disk whose entries this process, the next, and several at once can share.

An entry is a file named by its key. One that is damaged, or that was written for another key, counts as absent.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import stat
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import attrs

from ziggurat.codemodel.errors import ZigguratWarning, pass_on_signals
from ziggurat.codemodel.text.limits import read_regular

# Folders on disk that only this user can write, for compiled kernels and for choices of tuning. Whoever can write an
# entry chooses the code that this user's GPU runs. So a folder of another user, or one that others can write, is not
# used, and a file counts only if it is a regular one of this user. A file is written under another name and put in its
# place at once, so that a reader sees all of it or none.

_MAX_ENTRY: Final = 256 << 20  # A larger file is no kernel and no record.
# Files of a writer that was killed are removed at this age, in seconds.
_ABANDONED: Final = 3600.0
T = TypeVar("T")
_IS_POSIX: Final = os.name == "posix"


def default_directory() -> Path:
    """The folder of kept kernels unless the caller names one: `ZIGGURAT_CACHE_DIR`, or `~/.cache/ziggurat`.

    A user without a home, as in containers, gets a folder among the temporary ones.
    """
    directory = os.environ.get("ZIGGURAT_CACHE_DIR")
    if directory:
        return Path(os.path.expanduser(directory))
    home = Path(os.path.expanduser("~"))
    cache_directory = home / ".cache" / "ziggurat"
    can_write = home.is_dir() and os.access(home, os.W_OK)
    # Python and containers give the root as the home of a user without one.
    if home.is_absolute() and home != Path(home.anchor) and (cache_directory.is_dir() or can_write):
        return cache_directory
    return _temporary_directory()


@functools.cache
def _temporary_directory() -> Path:
    """A temporary folder of this user alone, the same one in the next process where possible."""
    import getpass
    import shutil
    import tempfile

    user = os.getuid() if hasattr(os, "getuid") else getpass.getuser()
    path = Path(tempfile.gettempdir()) / f"ziggurat-{user}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        if not path.is_symlink() and _reason_against(path) is None:
            return path
    except OSError:
        pass
    try:
        directory = tempfile.mkdtemp(prefix="ziggurat-")
    except OSError:
        return path  # Nothing can be written there: a cache in it is empty.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def _reason_against(folder: Path) -> str | None:
    """The reason not to trust a folder; None for a folder of this user that others cannot write. Raises `OSError` if
    it is not a folder."""
    state = folder.stat()
    if not stat.S_ISDIR(state.st_mode):
        raise NotADirectoryError(str(folder))
    if not _IS_POSIX:
        return None
    if state.st_uid not in (os.geteuid(), 0):
        return "belongs to another user"
    return "can be written by other users" if state.st_mode & 0o022 else None


def write_whole(path: Path, data: bytes) -> bool:
    """Put a file in its place at once; False where that is not possible."""
    # Python's tempfile would take longer to import than this to run.
    temporary = path.with_name(f".{path.name[:16]}-{os.getpid()}-{time.monotonic_ns()}")
    try:
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o600)
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError as error:
        remove(temporary)
        pass_on_signals(error)
        return False
    return True


def remove(path: Path) -> bool:
    """Remove a file; False where that is not possible."""
    try:
        path.unlink()
    except OSError as error:
        pass_on_signals(error)
        return False
    return True


@attrs.frozen
class Folder:
    """The entries in a folder: its files with the `SUFFIX` of the class. A folder that cannot be used, or is not
    trusted, counts as empty."""

    SUFFIX: ClassVar[str]

    directory: Path

    def path(self, key: str) -> Path:
        return self.directory / f"{key}{self.SUFFIX}"

    def load(self, key: str, decoded: Callable[[str, bytes], T], keep: bool = False) -> T | None:
        """An entry, or None. `decoded` makes it from key and bytes, and raises `ValueError` if they are damaged; the
        file is then removed, unless it is to be kept."""
        try:
            owners = (os.geteuid(), 0) if _IS_POSIX else ()
            if not self._is_trusted():
                return None
            return decoded(key, read_regular(self.path(key), _MAX_ENTRY, owners=owners))
        except OSError as error:
            pass_on_signals(error)
            return None
        except (ValueError, RecursionError) as error:
            pass_on_signals(error)
            if not keep:
                remove(self.path(key))
            return None

    def write(self, key: str, data: bytes) -> bool:
        """Keep an entry; False where the folder does not allow it."""
        try:
            for folder in reversed([self.directory, *self.directory.parents]):
                if not folder.exists():
                    folder.mkdir(mode=0o700, exist_ok=True)  # Whatever the umask, others get no access.
            return self._is_trusted() and write_whole(self.path(key), data)
        except OSError as error:
            pass_on_signals(error)
            return False

    def files(self) -> list[tuple[str, os.stat_result]]:
        """The keys of the entries, with the states of their files."""
        paths_and_facts: list[tuple[str, os.stat_result]] = []
        for path in self.directory.glob(f"[!.]*{self.SUFFIX}") if self._is_trusted() else ():
            with contextlib.suppress(OSError):  # Another process may remove it meanwhile.
                paths_and_facts.append((path.name.removesuffix(self.SUFFIX), path.lstat()))
        return paths_and_facts

    def clear(self) -> int:
        """Remove all entries; their number."""
        removed = sum(remove(self.path(key)) for key, _ in self.files())
        self.sweep(0.0)
        return removed

    def sweep(self, age: float = _ABANDONED) -> None:
        """Remove the files that killed writers have left."""
        try:
            newest = max((state.st_mtime for _, state in self.files()), default=float("inf"))
            for path in self.directory.glob(".*-*"):
                if path.stat().st_mtime <= newest - age:
                    remove(path)
        except OSError:
            return

    def _is_trusted(self) -> bool:
        """Whether only this user can write the folder; a warning says why a folder is not used."""
        try:
            reason = _reason_against(self.directory)
        except OSError as error:
            pass_on_signals(error)
            return False
        if reason is not None:
            warnings.warn(
                f"{self.directory} {reason}, so that nothing is kept or read there\n"
                f"  hint: chmod go-w '{self.directory}', or name another folder in ZIGGURAT_CACHE_DIR",
                ZigguratWarning,
                stacklevel=1,  # One place for all callers, so that the warning is shown once.
            )
        return reason is None
