"""`triton.runtime.cache`: files by key on disk, for programs that keep something of their own there.

Compiled kernels and choices of tuning are kept by `ziggurat.backend.cache`, in the same folder if a program has
named one by `TRITON_CACHE_DIR` or `knobs.cache.dir`.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ziggurat.triton import knobs


class CacheManager:
    """The files of one key. A program may name a class of its own by `knobs.cache.manager_class`."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None: ...

    def get_file(self, filename: str) -> str | None:
        """The path of a file; None if there is none."""
        raise NotImplementedError

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        """Keep bytes or a text; the path of the file."""
        raise NotImplementedError

    def get_group(self, filename: str) -> dict[str, str] | None:
        """The paths of the files of a group that are there, by name; None if there is no such group."""
        path = self.get_file(f"__grp__{filename}")
        paths: dict[str, str] | None = None if path is None else json.loads(Path(path).read_text()).get("child_paths")
        return None if paths is None else {name: path for name, path in paths.items() if os.path.exists(path)}

    def put_group(self, filename: str, group: Mapping[str, str]) -> str:
        """Keep the paths of files by name as a group."""
        return self.put(json.dumps({"child_paths": group}), f"__grp__{filename}", binary=False)


class FileCacheManager(CacheManager):
    """The files of one key in a folder of its own: that of kept files, of dumped ones, or of those that override."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        root = knobs.cache.dump_dir if dump else knobs.cache.override_dir if override else knobs.cache.dir
        if not root:
            raise RuntimeError("Could not create or locate cache dir")
        self.cache_dir = os.path.join(root, key)
        self.lock_path = os.path.join(self.cache_dir, "lock")  # Classes that programs derive have a use for it.
        if not override or dump:
            os.makedirs(self.cache_dir, exist_ok=True)

    def _make_path(self, filename: str) -> str:
        return os.path.join(self.cache_dir, filename)

    def has_file(self, filename: str) -> bool:
        return os.path.exists(self._make_path(filename))

    def get_file(self, filename: str) -> str | None:
        return self._make_path(filename) if self.has_file(filename) else None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        content = data if isinstance(data, bytes) else str(data).encode()
        handle, temporary = tempfile.mkstemp(dir=self.cache_dir)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, self._make_path(filename))  # A reader sees all of the file or none.
        return self._make_path(filename)


class RemoteCacheBackend:
    """The base of caches on other machines, which programs derive from."""

    def __init__(self, key: str) -> None: ...

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        """The files that are there, by name."""
        raise NotImplementedError

    def put(self, filename: str, data: bytes) -> None:
        """Keep a file."""
        raise NotImplementedError


class RemoteCacheManager(CacheManager):
    """The files of one key on another machine, by the class that `knobs.cache.remote_manager_class` names. Those that
    are read or written are also in the folder of kept files."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        kind = knobs.cache.remote_manager_class
        if not kind:
            raise RuntimeError(
                "Unable to instantiate RemoteCacheManager, TRITON_REMOTE_CACHE_BACKEND doesn't point to a valid class"
            )
        self._here = FileCacheManager(key, override=override, dump=dump)
        self._remote: RemoteCacheBackend | None = None if override or dump else kind(key)

    def get_file(self, filename: str) -> str | None:
        if self._remote is None:
            return self._here.get_file(filename)
        return self._fetched([filename]).get(filename)

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        content = data if isinstance(data, bytes) else str(data).encode()
        if self._remote is not None:
            self._remote.put(filename, content)
        return self._here.put(content, filename)

    def get_group(self, filename: str) -> dict[str, str] | None:
        path = self.get_file(f"__grp__{filename}")
        names = None if path is None else json.loads(Path(path).read_text()).get("child_paths")
        return None if names is None else self._fetched(names) if self._remote else self._here.get_group(filename)

    def put_group(self, filename: str, group: Mapping[str, str]) -> str:
        return self.put(json.dumps({"child_paths": sorted(group)}), f"__grp__{filename}", binary=False)

    def _fetched(self, filenames: list[str]) -> dict[str, str]:
        """The paths here of the files that the other machine has, by name."""
        assert self._remote is not None
        return {name: self._here.put(content, name) for name, content in self._remote.get(filenames).items()}


def _base32(key: str) -> str:
    """Hexadecimal digits as letters and digits that file names can hold."""
    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


def _manager(key: str, **settings: bool) -> CacheManager:
    kind = knobs.cache.manager_class or FileCacheManager
    return kind(_base32(key), **settings)


def get_cache_manager(key: str) -> CacheManager:
    """The files that are kept for a key of hexadecimal digits."""
    return _manager(key)


def get_override_manager(key: str) -> CacheManager:
    """The files that override the stages of a kernel."""
    return _manager(key, override=True)


def get_dump_manager(key: str) -> CacheManager:
    """The files to which the stages of a kernel are written."""
    return _manager(key, dump=True)


def default_cache_dir() -> str:
    """The folder of kept files where the environment names none; the next two are of dumped and overriding ones."""
    return knobs.cache.get_triton_dir("cache")


def default_dump_dir() -> str:
    return knobs.cache.get_triton_dir("dump")


def default_override_dir() -> str:
    return knobs.cache.get_triton_dir("override")


@functools.cache
def triton_key() -> str:
    """A text that is equal for equal versions of the compiler."""
    from ziggurat.backend.cache.keys import compiler_version

    return f"ziggurat {compiler_version()}"


def get_cache_key(src: Any, backend: Any, backend_options: Any, env_vars: dict[str, str]) -> str:
    """A text that is equal for equal sources, targets, options and compilers."""
    parts = (triton_key(), src.hash(), str(getattr(backend, "target", "")), str(backend_options), str(env_vars))
    return hashlib.sha256("-".join(parts).encode()).hexdigest()
