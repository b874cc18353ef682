"""What tuning has found, on disk: for each kernel, key and device the configuration that was chosen, and the times.

A record is a JSON file named by the digest of all that it depends on. Like the cache's, it is written under another
name and put in its place at once; it carries the digest of its own content, so that a damaged one counts as not there.
Several can be put into one file, to be read on another machine of the same kind.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import attrs

from ziggurat.backend.cuda.cache import default_directory
from ziggurat.codemodel.errors import LaunchError

_SUFFIX: Final = ".choice.json"
_FORMAT: Final = "ziggurat choices 1"


@attrs.frozen
class Record:
    """A choice. `about` is what it was made for: the kernel's name, the structure of its model, the values of the key,
    the arrays' types, the device, the compiler and the configurations. `config` is the text of the chosen one, `times`
    the milliseconds of each that was measured, `left_out` why others were not."""

    about: Mapping[str, Any]
    config: str
    times: Mapping[str, float]
    left_out: Mapping[str, str] = attrs.field(factory=dict[str, str])

    @property
    def digest(self) -> str:
        """64 hexadecimal digits for what the choice was made for."""
        return digest_of(self.about)

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "about": dict(self.about),
            "config": self.config,
            "times": dict(self.times),
            "left_out": dict(self.left_out),
        }
        return {**body, "checksum": digest_of(body)}

    @classmethod
    def from_json(cls, data: Any) -> Record:
        """The record that `to_json` gave. Raises `ValueError` for anything else."""
        if not isinstance(data, dict):
            raise ValueError("a record is an object of JSON")
        fields = cast("dict[str, Any]", data)
        body = {name: fields.get(name) for name in ("about", "config", "times", "left_out")}
        if fields.get("checksum") != digest_of(body):
            raise ValueError("the record does not agree with its checksum")
        return cls(**body)  # pyright: ignore[reportArgumentType]


def digest_of(data: Any) -> str:
    """64 hexadecimal digits for what JSON can hold, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


@attrs.frozen
class Records:
    """The records in a directory. Where it cannot be read or written, nothing is found and nothing is kept."""

    directory: Path = attrs.field(factory=lambda: default_directory() / "choices", converter=Path)

    def get(self, about: Mapping[str, Any]) -> Record | None:
        """The choice that was made for this, or None. A damaged record is removed."""
        path = self.directory / f"{digest_of(about)}{_SUFFIX}"
        record = _read(path)
        if record is None:
            try:
                path.unlink(missing_ok=True)
            except OSError:
                return None  # of a directory that is only read
        return record

    def put(self, record: Record) -> bool:
        """Keep a record; False where the directory does not let us."""
        path = self.directory / f"{record.digest}{_SUFFIX}"
        return _write(path, json.dumps(record.to_json(), indent=1))

    def all(self) -> list[Record]:
        """All records, by kernel."""
        found = [_read(path) for path in sorted(self.directory.glob(f"*{_SUFFIX}"))]
        return sorted((record for record in found if record is not None), key=lambda r: str(r.about.get("kernel")))

    def clear(self) -> int:
        """Remove all records; how many there were."""
        paths = list(self.directory.glob(f"*{_SUFFIX}"))
        for path in paths:
            path.unlink(missing_ok=True)
        return len(paths)

    def export(self, file: str | os.PathLike[str], kernel: str | None = None) -> int:
        """Write the records, or those of one kernel, into a file; how many."""
        records = [record.to_json() for record in self.all() if kernel in (None, record.about.get("kernel"))]
        if not _write(Path(file), json.dumps({"format": _FORMAT, "records": records}, indent=1)):
            raise LaunchError(f"'{file}' cannot be written")
        return len(records)

    def import_(self, file: str | os.PathLike[str]) -> int:
        """Keep the records of a file that `export` wrote; how many. They replace those that are there. Raises
        `LaunchError` for other files, and then keeps none."""
        try:
            data: Any = json.loads(Path(file).read_text(encoding="utf-8"))
            if not isinstance(data, dict) or cast("dict[str, Any]", data).get("format") != _FORMAT:
                raise ValueError("it is no export of choices")
            records = [Record.from_json(each) for each in cast("dict[str, Any]", data)["records"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LaunchError(f"'{file}' has no choices that can be read: {error}") from None
        return sum(map(self.put, records))


def _read(path: Path) -> Record | None:
    try:
        return Record.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _write(path: Path, text: str) -> bool:
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:16]}-", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        return False
    return True


def chosen(times: Mapping[str, float], noise: float) -> str:
    """The first configuration that is as fast as the fastest, but for `noise` (0.02: two per cent).

    Measured again the same one comes out, as long as times differ by less than that from run to run.
    """
    limit = min(times.values()) * (1 + noise)
    return next(name for name, time in times.items() if time <= limit)
