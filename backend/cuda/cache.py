"""Compiled kernels and choices of tuning on disk, for this process and the next, and for several at once.

A kernel is a file named by its key: a line with the key and the checksum of what follows, then the binary. An entry
that is damaged, or that was written for another key, counts as absent.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import json
import math
import os
import random
import stat
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import attrs

from ziggurat.backend.cuda.binary import Binary
from ziggurat.codemodel.errors import LaunchError, ZigguratWarning
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
    except OSError:
        remove(temporary)
        return False
    return True


def remove(path: Path) -> bool:
    """Remove a file; False where that is not possible."""
    try:
        path.unlink()
    except OSError:
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
        except OSError:
            return None
        except (ValueError, RecursionError):
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
        except OSError:
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
        except OSError:
            return False
        if reason is not None:
            warnings.warn(
                f"{self.directory} {reason}, so that nothing is kept or read there\n"
                f"  hint: chmod go-w '{self.directory}', or name another folder in ZIGGURAT_CACHE_DIR",
                ZigguratWarning,
                stacklevel=1,  # One place for all callers, so that the warning is shown once.
            )
        return reason is None


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


@attrs.frozen
class Cache(Kernels[Binary]):
    """Kernels for GPUs in a folder."""

    SUFFIX = ".kernel"

    def read(self, payload: bytes) -> Binary:
        return Binary.from_bytes(payload)


def _head(key: str, payload: bytes) -> bytes:
    return f"{_MAGIC} {key} {hashlib.sha256(payload).hexdigest()}".encode()


_FORMAT: Final = "ziggurat choices 1"


@attrs.frozen
class TuningRecord:
    """A choice. `about` says what it was made for: the kernel's name, the structure of its model, the values of the
    key, the arrays' types, the device, the compiler and the configurations. `config` is the text of the chosen one,
    `times` the milliseconds of each that was measured, `left_out` the reason for each that was not."""

    about: Mapping[str, Any]
    config: str
    times: Mapping[str, float]
    left_out: Mapping[str, str] = attrs.field(factory=dict[str, str])

    def __attrs_post_init__(self) -> None:
        about = self.about
        texts = [self.config, about["kernel"], about["device"]]
        for text in (about["key"], about["types"], self.left_out):
            texts += text.values()
        if not all(isinstance(text, str) for text in texts) or not all(0 <= t < math.inf for t in self.times.values()):
            raise TypeError("names and reasons must be strings, and times numbers from 0")

    @property
    def digest(self) -> str:
        """64 hexadecimal digits for what the choice was made for."""
        return digest_of(self.about)

    def to_json(self) -> dict[str, Any]:
        body = attrs.asdict(self)
        return {**body, "checksum": digest_of(body)}

    @classmethod
    def from_json(cls, data: Any) -> TuningRecord:
        """The record that `to_json` gave. Raises `ValueError` for anything else."""
        try:
            if data.pop("checksum") == digest_of(data):
                return cls(**data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError("the record lacks a field, or a field has another type") from error
        raise ValueError("the record does not agree with its checksum")


def digest_of(data: Any) -> str:
    """64 hexadecimal digits for what JSON can hold, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


@attrs.frozen
class Records(Folder):
    """The records in a folder. A folder that cannot be used counts as empty."""

    SUFFIX = ".choice.json"

    directory: Path = attrs.field(factory=lambda: default_directory() / "choices", converter=Path)

    def get(self, about: Mapping[str, Any]) -> TuningRecord | None:
        """The choice that was made for this, or None. A damaged record is removed."""
        return self.load(digest_of(about), _record)

    def put(self, record: TuningRecord) -> bool:
        """Keep a record; False where the folder does not allow it."""
        return self.write(record.digest, json.dumps(record.to_json(), indent=1).encode())

    def all(self) -> list[TuningRecord]:
        """All records, by kernel."""
        records = (self.load(key, _record, keep=True) for key, _ in sorted(self.files()))
        return sorted((record for record in records if record is not None), key=lambda record: record.about["kernel"])

    def export(self, file: str | os.PathLike[str], kernel: str | None = None) -> int:
        """Write the records, or those of one kernel, into a file; their number."""
        records = [record.to_json() for record in self.all() if kernel in (None, record.about["kernel"])]
        text = json.dumps({"format": _FORMAT, "records": records}, indent=1)
        if not write_whole(Path(file), text.encode()):
            raise LaunchError(f"'{file}' cannot be written")
        return len(records)

    def import_(self, file: str | os.PathLike[str]) -> int:
        """Keep the records of a file that `export` wrote; their number. They replace those that are there. Raises
        `LaunchError` for other files, and then keeps none."""
        try:
            data: Any = json.loads(read_regular(Path(file)))
            if data["format"] != _FORMAT:
                raise ValueError("it is no export of choices")
            records = list(map(TuningRecord.from_json, data["records"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or error
            raise LaunchError(f"'{file}' has no choices that can be read: {reason}") from None
        return sum(map(self.put, records))


def _record(key: str, data: bytes) -> TuningRecord:
    record = TuningRecord.from_json(json.loads(data))
    if record.digest != key:
        raise ValueError("the record was made for something else")
    return record


def chosen(times: Mapping[str, float], noise: float) -> str:
    """The first configuration within `noise` (0.02: two per cent) of the fastest.

    Measured again, the same one comes out, if times differ by less than that from run to run.
    """
    limit = min(times.values()) * (1 + noise)
    return next(name for name, time in times.items() if time <= limit)
