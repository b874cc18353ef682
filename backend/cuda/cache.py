"""Kernels for GPUs on disk."""

from __future__ import annotations

import attrs

from ziggurat.backend.cache.kernels import Kernels
from ziggurat.backend.cuda.binary import Binary


@attrs.frozen
class Cache(Kernels[Binary]):
    """Kernels for GPUs in a folder."""

    SUFFIX = ".kernel"

    def read(self, payload: bytes) -> Binary:
        return Binary.from_bytes(payload)
