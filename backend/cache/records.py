"""Choices of tuning on disk."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from ziggurat.backend.cache.folder import Folder, default_directory, write_whole
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.text.limits import read_regular

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
