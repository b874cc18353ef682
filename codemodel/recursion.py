"""A higher recursion limit while a model is read, attributed, compiled or run.

Reflection and the transforms are recursive in nested expressions, nested branches and chains of calls. Python's limit
of 1,000 frames is reached at a depth of about a hundred.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

# Half of the frames that the usual C stack of 8 MiB holds, if each frame uses the C stack.
MAX_FRAMES = 10_000


def frames() -> int:
    """The number of Python frames on the stack of the caller."""
    count, frame = 0, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        count, frame = count + 1, frame.f_back
    return count


_lock = threading.Lock()
_users = 0
_usual = 0


@contextmanager
def deep_recursion() -> Generator[None]:
    """Raise Python's recursion limit until the end of the `with`. The limit is shared by all threads."""
    global _users, _usual
    with _lock:
        if _users == 0:
            _usual = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_usual, MAX_FRAMES))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and sys.getrecursionlimit() == max(_usual, MAX_FRAMES):
                sys.setrecursionlimit(_usual)
