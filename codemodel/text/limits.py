"""The limits of texts from outside of the process: models, MLIR, Triton-C, and the records of tuning."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 64 << 20  # Of a text or a file.
MAX_FILES: Final = 1000  # Files that a source includes.
MAX_TOKEN: Final = 1000  # The characters of a name or number. Python refuses to read a number of thousands of digits.
MAX_DEPTH: Final = 200  # Of bodies, brackets, types, and files that include each other.
MAX_EXPANSION: Final = 1 << 20  # The characters that the macros of a source may expand to.
TOO_DEEP: Final = f"nested too deeply ({MAX_DEPTH})"


def read_regular(path: Path, limit: int = MAX_BYTES, *, owners: tuple[int, ...] = ()) -> bytes:
    """The bytes of a regular file, not of a pipe or a device. Raises `OSError` for other files, for one that is larger
    than the limit, and if there are `owners`, for a link, and for one of a user who is not among them.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags | (getattr(os, "O_NOFOLLOW", 0) if owners else 0))
    with os.fdopen(handle, "rb") as file:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_size > limit:
            raise OSError(f"it is not a regular file of at most {limit >> 20} MiB")
        if owners and state.st_uid not in owners:
            raise OSError("it belongs to another user")
        return file.read(limit)
