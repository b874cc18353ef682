"""Launches in a process of their own, with watched memory around each array.

A kernel that hangs, or that reads or writes where nothing is, takes its context with it; here that is a child process,
which is replaced. What a kernel writes just beside its arrays is found as well.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, cast

import attrs
import numpy as np

from ziggurat.backend.cuda.binary import Binary
from ziggurat.codemodel.errors import KernelRuntimeError

Array = np.ndarray[Any, Any]

GUARD = 4096  # Bytes before and after an array that nobody should touch.
_PATTERN = 0xA5
_ALIGNED = 256  # Allocations are this well aligned, so that an array lies as it does in the host's memory.


@attrs.frozen(eq=False)
class Image:
    """Some memory as it is to be on the device: `memory` with guards around it, as well aligned as it is here."""

    bytes: Array
    start: int
    size: int

    @staticmethod
    def of(memory: Array, address: int) -> Image:
        """The image of bytes that lie at an address on the host."""
        start = GUARD + address % _ALIGNED
        result = np.full(start + memory.size + GUARD, _PATTERN, np.uint8)
        result[start : start + memory.size] = memory
        return Image(result, start, memory.size)

    def memory(self, after: Array) -> Array:
        """The memory as a launch left it. Raises `KernelRuntimeError` where it has written beside it."""
        stop = self.start + self.size
        for name, guard, base in (("before", after[: self.start], self.start), ("after", after[stop:], 0)):
            touched = np.flatnonzero(guard != _PATTERN)
            if touched.size:
                places = base - touched[::-1] if base else touched
                raise KernelRuntimeError(f"{touched.size} byte(s) {name} an array are written, {places[0]} byte(s) off")
        return after[self.start : stop]


class Isolated:
    """A device that is used in a child process, which is started at the first launch and after each failure.

    `run` gives a launch `limit` seconds, the start of the child included.
    """

    def __init__(self, limit: float = 60.0) -> None:
        self.limit = limit
        self._child: subprocess.Popen[bytes] | None = None

    def run(
        self, binary: Binary, grid: tuple[int, ...], images: Sequence[Image], arguments: Sequence[Any]
    ) -> list[Array]:
        """Launch a kernel and wait for it; the memory of each image as it then is.

        An argument is a number, or `(image, offset)` for a pointer: the image's number, and bytes from its start.
        Raises `KernelRuntimeError` for whatever goes wrong.
        """
        child = self._started()
        assert child.stdin is not None and child.stdout is not None
        job = (binary, grid, [image.bytes for image in images], [image.start for image in images], list(arguments))
        try:
            child.stdin.write(pickle.dumps(job))
            child.stdin.flush()
            actual, _, _ = select.select([child.stdout], [], [], self.limit)
            answer: Any = (
                pickle.load(child.stdout)
                if actual
                else f"assembling and running the kernel did not end in {self.limit:.0f} s"
            )
        except (EOFError, BrokenPipeError):
            answer = "the process that ran the kernel has died"
        if isinstance(answer, str):
            self.close()
            raise KernelRuntimeError(f"'{binary.title}' on the GPU: {answer}")
        return [image.memory(after) for image, after in zip(images, answer, strict=True)]

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            self._child = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._child


def _launched(
    binary: Binary, grid: tuple[int, ...], images: list[Array], starts: list[int], arguments: list[Any]
) -> list[Array]:
    from ziggurat.backend.cuda.device_memory import to_device, to_host
    from ziggurat.backend.cuda.launch import Launcher

    there = [to_device(image) for image in images]
    values: list[Any] = []
    inputs: Any
    for inputs in arguments:
        if isinstance(inputs, tuple):
            number, offset = cast("tuple[int, int]", inputs)
            inputs = there[number].pointer + starts[number] + offset
        values.append(inputs)
    Launcher(binary)(grid, *values, check=True)
    return [to_host(array) for array in there]


def serve() -> None:
    """The child: launches what it is told to, until one fails or nobody is left."""
    stdin = sys.stdin.buffer
    stdout = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Prints of kernels must not mix with the answers.
    while True:
        try:
            job = pickle.load(stdin)
        except EOFError:
            return
        try:
            answer: Any = _launched(*job)
        except Exception as error:
            answer = str(error) or type(error).__name__
        stdout.write(pickle.dumps(answer))
        stdout.flush()
        if isinstance(answer, str):
            return


if __name__ == "__main__":
    serve()
