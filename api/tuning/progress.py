"""A progress bar, shown on terminals only."""

from __future__ import annotations

import sys
import threading
from typing import TextIO

_WIDTH = 30


class Progress:
    """A bar that `advance` moves towards `total` and `close` removes."""

    def __init__(self, title: str, total: int, stream: TextIO | None = None) -> None:
        self.title, self.total, self.done = title, total, 0
        self._stream = sys.stderr if stream is None else stream
        self._shown = total > 1 and self._stream.isatty()
        self._lock = threading.Lock()
        self._draw()

    def advance(self) -> None:
        """Count one more. Threads may call this."""
        with self._lock:
            self.done += 1
            self._draw()

    def close(self) -> None:
        """Remove the bar."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _draw(self) -> None:
        if self._shown:
            full = _WIDTH * self.done // self.total
            self._stream.write(f"\r{self.title} [{'#' * full}{'.' * (_WIDTH - full)}] {self.done}/{self.total}\x1b[K")
            self._stream.flush()
