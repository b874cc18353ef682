"""Compiling in several processes.

LLVM is entered by one thread at a time (llvmlite holds a lock), so threads gain nothing. A model has a text form that
says all of it, places in the source included; that is what a process is sent, and it answers with a binary.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import attrs

from ziggurat.backend.cuda.binary import Binary
from ziggurat.backend.cuda.messages import receive, send
from ziggurat.codemodel import errors
from ziggurat.codemodel.errors import InternalError, ZigguratError
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.text.writer import to_text

# A process takes as long to start as about three kernels take to compile.
_WORTH_A_PROCESS = 3


@attrs.frozen
class Job:
    """A Triton model to compile with these options. `name` is the kernel's."""

    model: Op
    options: CompileOptions
    name: str

    def done_here(self) -> Binary:
        """The kernel, compiled in this process. Raises the errors of `zg.compile`, and `ResourceError` where the values
        that its loops carry do not fit the registers."""
        from ziggurat.compiler.compiled import binary_of
        from ziggurat.compiler.pipeline import compile_model
        from ziggurat.transforms.place.pressure import check_registers

        return binary_of(compile_model(self.model, self.options, examine=check_registers), self.name)


def compile_all(
    jobs: Sequence[Job], processes: int | None = None, done: Callable[[], None] = lambda: None
) -> list[Binary | ZigguratError]:
    """What becomes of each job: the kernel, or the error that says why there is none.

    `processes` is as many as there are processors where it is not given; with 1, or for a few jobs, all is done in this
    one. `done` is called after each job.
    """
    count = min(processes or os.cpu_count() or 1, len(jobs) // _WORTH_A_PROCESS if processes is None else len(jobs))
    if count <= 1:
        results: list[Binary | ZigguratError] = []
        for job in jobs:
            results.append(_done_here(job))
            done()
        return results
    idle: SimpleQueue[_Child] = SimpleQueue()
    children = [_Child() for _ in range(count)]
    for child in children:
        idle.put(child)

    def work(job: Job) -> Binary | ZigguratError:
        child = idle.get()
        try:
            return child.ask(job)
        finally:
            idle.put(child)
            done()

    try:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(work, jobs))
    finally:
        for child in children:
            child.close()


def _done_here(job: Job) -> Binary | ZigguratError:
    try:
        return job.done_here()
    except ZigguratError as error:
        return error


class _Child:
    """A process that compiles; it is started at the first job."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, job: Job) -> Binary | ZigguratError:
        message = (to_text(job.model, locations=True), job.options, job.name)
        try:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            send(process.stdin, message)
            binary, error, said = receive(process.stdout)
        except (EOFError, OSError, pickle.PicklingError, AttributeError, TypeError):
            # There can be no such process here, or options that cannot be sent.
            self.close()
            return _done_here(job)
        return Binary.from_bytes(binary) if binary is not None else _error(error, said)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
        return self._process


def _error(name: str, said: str) -> ZigguratError:
    """The error of a process as one of ours: of its class, with its text."""
    family = getattr(errors, name, InternalError)
    made: ZigguratError = family.__new__(family)
    ZigguratError.__init__(made, said)
    return made


def serve() -> None:
    """The process: compiles what it is sent, until nobody is left."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What is printed meanwhile is no answer.
    while True:
        try:
            text, options, name = receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            binary = Job(parse(text), options, name).done_here()
            answer: tuple[bytes | None, str, str] = (binary.to_bytes(), "", "")
        except ZigguratError as error:
            answer = (None, type(error).__name__, str(error))
        send(answers, answer)


if __name__ == "__main__":
    serve()
