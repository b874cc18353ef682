"""Object files on disk, with the guarantees of the GPU's kernels (`backend/cache`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
from attrs.validators import instance_of

from ziggurat.backend.cache.kernels import Kernels


@attrs.frozen
class StoredObject:
    """An object file, and facts about it that JSON can hold. `title` is the kernel's name, `target` that of the CPU."""

    title: str = attrs.field(validator=instance_of(str))
    target: str = attrs.field(validator=instance_of(str))
    image: bytes = attrs.field(repr=False)
    facts: Mapping[str, Any] = attrs.field(factory=dict[str, Any], hash=False, validator=instance_of(dict))

    def to_bytes(self) -> bytes:
        """This value as bytes: a line of JSON, then the object file."""
        head = {"title": self.title, "target": self.target, "facts": self.facts}
        return json.dumps(head).encode() + b"\n" + self.image

    @classmethod
    def from_bytes(cls, data: bytes) -> StoredObject:
        """The value that `to_bytes` wrote. Raises `ValueError` for other bytes."""
        line, _, image = data.partition(b"\n")
        try:
            return cls(image=image, **json.loads(line))
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"these bytes are not an object file: {error}") from None


@attrs.frozen
class Objects(Kernels[StoredObject]):
    """Kernels for CPUs in a folder."""

    SUFFIX = ".object"

    def read(self, payload: bytes) -> StoredObject:
        return StoredObject.from_bytes(payload)
