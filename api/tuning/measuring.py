"""Measured runs of a kernel: one tuning at a time, with the contents that the arrays of the launch had before, and a
progress bar."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from ziggurat.backend.launch.arrays import as_array, is_array, on_gpu
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.codemodel.errors import LaunchError, shown

_WIDTH = 30  # of the progress bar

# The lock of the thread that tunes: the tunings of other threads would disturb its times. A process that is forked
# meanwhile has it free.
alone: Any = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=alone._at_fork_reinit)


class _Thread(threading.local):
    is_measuring = False


_thread = _Thread()


@contextmanager
def measuring() -> Generator[None]:
    """Within this context, launches of this thread are those of a tuning."""
    before, _thread.is_measuring = _thread.is_measuring, True
    try:
        yield
    finally:
        _thread.is_measuring = before


def is_measuring() -> bool:
    """Whether launches of this thread are those of a tuning."""
    return _thread.is_measuring


def zeroing(arguments: Mapping[str, Any], names: Iterable[str]) -> list[Callable[[], Any]]:
    """The functions that set arrays, given by name, to zero. An argument that is None is skipped.

    Raises `LaunchError` for an argument that is no array, or one that cannot be written.
    """
    return [_zeroing(array, name) for name, array in arrays_of(arguments, names)]


def restoring(arguments: Mapping[str, Any], names: Iterable[str]) -> list[Callable[[], Any]]:
    """The functions that give arrays, given by name, the contents that they have now. An argument that is None is
    skipped, and an array that cannot be written needs no copy. Raises `LaunchError` for an argument that is no array.
    """
    return [_restoring(array, name) for name, array in arrays_of(arguments, names)]


def arrays_of(arguments: Mapping[str, Any], names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """The arrays of arguments, with their names: the arguments themselves, or what a descriptor describes."""
    for name in names:
        value = arguments[name]
        array = value.array if isinstance(value, TensorDescriptor) else value
        if is_array(array) or on_gpu(array):
            yield name, array
        elif value is not None:
            raise LaunchError(
                f"'{name}' must be an array, as reset_to_zero or restore_value names it; got {shown(value)}",
                hint="name parameters that take arrays",
            )


def _zeroing(array: Any, name: str) -> Callable[[], Any]:
    if on_gpu(array):
        from ziggurat.backend.cuda.device_memory import ArrayMemory

        return array.detach().zero_ if _is_torch(array) else ArrayMemory(array, name).zero
    here = as_array(array, name)
    if not here.flags.writeable:
        raise LaunchError(
            f"'{name}' must be an array that can be written, to be set to zero; it is read-only",
            hint=f"take '{name}' out of reset_to_zero, or pass np.array({name}), a copy that can be written",
        )
    return lambda: here.fill(0)


def _restoring(array: Any, name: str) -> Callable[[], Any]:
    if on_gpu(array):
        from ziggurat.backend.cuda.device_memory import Saved

        if not _is_torch(array):
            return Saved(array, name).restore
        tensor = array.detach()
        contents = tensor.clone()
        return lambda: tensor.copy_(contents)
    here = as_array(array, name)
    copy = here.copy()
    return lambda: here.__setitem__(..., copy) if here.flags.writeable else None


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


class Progress:
    """A progress bar, shown on terminals only: `advance` moves it towards `total`, `close` removes it."""

    def __init__(self, title: str, total: int, stream: TextIO | None = None) -> None:
        self.title, self.total, self.done = title, total, 0
        self._stream = sys.stderr if stream is None else stream
        self._is_visible = total > 1 and self._stream.isatty()
        self._lock = threading.Lock()
        self._draw()

    def advance(self) -> None:
        """Count one more. Threads may call this."""
        with self._lock:
            self.done += 1
            self._draw()

    def close(self) -> None:
        """Remove the bar."""
        if self._is_visible:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _draw(self) -> None:
        if self._is_visible:
            full = _WIDTH * self.done // self.total
            self._stream.write(f"\r{self.title} [{'#' * full}{'.' * (_WIDTH - full)}] {self.done}/{self.total}\x1b[K")
            self._stream.flush()
