"""Tables of bounded size."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """A table of at most `limit` entries. A new one takes the place of the one that was made or `used` least recently.

    Threads may share it: each operation on the dict is one step of Python.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self.limit:
            self.popitem(last=False)

    def used(self, key: K) -> V | None:
        """The value of a key, which counts as used now; None where there is none."""
        value = self.get(key)
        if value is not None:
            with suppress(KeyError):  # Another thread may have taken it out.
                self.move_to_end(key)
        return value
