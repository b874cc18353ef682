"""Arrays between pages that cannot be touched: an access beside the array ends the process."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np

POSSIBLE = os.name == "posix" and hasattr(mmap, "PROT_READ")


def guarded(array: np.ndarray[Any, Any], at_end: bool) -> np.ndarray[Any, Any]:
    """A copy of a contiguous array right before a page that cannot be touched, or right after one."""
    libc, page = ctypes.CDLL(None, use_errno=True), mmap.PAGESIZE
    size = -(-max(array.nbytes, 1) // page) * page
    room = mmap.mmap(-1, size + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(room))
    for guard in (start, start + page + size):
        assert libc.mprotect(ctypes.c_void_p(guard), page, 0) == 0
    place = page + (size - array.nbytes if at_end else 0)
    result = np.frombuffer(room, np.uint8, array.nbytes, place).view(array.dtype).reshape(array.shape)
    result[...] = array
    return result
