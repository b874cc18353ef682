"""Messages between a process and one that it has started, over pipes: pickled, with their length before them."""

from __future__ import annotations

import pickle
import struct
from typing import IO, Any

_HEAD = struct.Struct("<Q")


def send(stream: IO[bytes], thing: Any) -> None:
    """Write a whole message. Raises `OSError` if the other side has closed the pipe."""
    data = pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)
    stream.write(_HEAD.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message. Raises `EOFError` if the other side has closed the pipe."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    (size,) = _HEAD.unpack(head)
    return pickle.loads(stream.read(size))
