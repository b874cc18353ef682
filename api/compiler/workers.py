"""Compiling in child processes: several at once for tuning, and one for the option `isolate`.

Threads gain nothing, because llvmlite lets one thread at a time into LLVM. A crash of LLVM ends its process: in a child
it becomes an `InternalError` that names the kernel and the stage. A child is sent the text of a model, which is
complete, locations included.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any, Final

import attrs

from ziggurat.backend.cuda.binary import Binary
from ziggurat.codemodel import errors
from ziggurat.codemodel.errors import InternalError, ZigguratError, ZigguratWarning
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, Value, is_foreign
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.text.writer import to_text

if TYPE_CHECKING:
    from ziggurat.backend.cpu.code import CpuOptions
    from ziggurat.backend.ptx.assemble import Assembly
    from ziggurat.codemodel.transform import Outcome, Rewriter
    from ziggurat.transforms.cost.grid_cost import Launch

# The start of a process takes as long as about three compilations: processes that are running wait for more of them.
_JOBS_A_PROCESS = 3
_IDLE_SECONDS = 60.0
_COMMAND = ("-m", __name__)
LEAST = "least cycles"
_SHOWN_BYTES = 2000  # of what a crashed process wrote


@attrs.frozen
class Job:
    """A model, or its text, to compile with these options. `name` is the kernel's. A Triton model gives a `Binary`; a
    GPU model gives its texts, an `Assembly`. If the job `is_strict`, values that do not fit the registers are an error.

    For a `launch`, on a device with so many `multiprocessors`, the binary's metadata have under `LEAST` the cycles that
    it takes at least, if these are known.
    """

    model: Op | str
    options: CompileOptions
    name: str
    launch: Launch | None = None
    multiprocessors: int = 1
    is_strict: bool = True

    def result(self, begin: Callable[[str], None] = lambda stage: None) -> Any:
        """The kernel, compiled in this process. `begin` gets the name of each stage as it begins.

        Raises the errors of `zg.compile`, and of a Triton model `ResourceError` where the values that its loops carry
        do not fit the registers.
        """
        from ziggurat.backend.ptx.assemble import assemble
        from ziggurat.compiler.pipeline import compile_model
        from ziggurat.transforms.cost.bounds import least_cycles
        from ziggurat.transforms.cost.pressure import check_registers

        model = parse(self.model) if isinstance(self.model, str) else self.model
        if isinstance(model, gpu.Module):
            begin("LLVM")
            return assemble(model, self.options)
        begin("placement")

        least: float | None = None

        def examine(model: gpu.Module) -> None:
            nonlocal least
            if self.is_strict:
                check_registers(model)
            if self.launch is not None:
                least = least_cycles(model, self.launch, self.multiprocessors)
            begin("LLVM")

        options = attrs.evolve(self.options, isolate=False)
        binary = compile_model(model, options, examine=examine, name=self.name).binary
        return binary if least is None else attrs.evolve(binary, metadata={**binary.metadata, LEAST: least})


@attrs.frozen
class CpuJob:
    """The text of a Triton model to compile for a CPU. `symbol` is the name of its function from now on."""

    model: str
    options: CpuOptions
    name: str
    symbol: str

    def result(self, begin: Callable[[str], None] = lambda stage: None) -> Any:
        """The `CpuCode`, compiled in this process. Raises the errors of `compile_cpu`."""
        from ziggurat.backend.cpu.compile import compile_cpu
        from ziggurat.codemodel.dialects import core
        from ziggurat.codemodel.op import expect
        from ziggurat.codemodel.transform import transform
        from ziggurat.transforms.simplify.demand import first_kernel

        begin("LLVM")
        model = expect(parse(self.model), core.Module)
        kernel = first_kernel(model)

        def rename(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
            if op is not kernel:
                return None
            body = builder.rewrite_body(kernel.body, isolated=True)
            return builder.add(kernel.evolve(sym_name=self.symbol, body=body), kernel.location)

        return compile_cpu(expect(transform(model, rename), core.Module), self.options)


_KINDS: Final = {kind.__name__: kind for kind in (Job, CpuJob)}


def compile_all(
    jobs: Sequence[Job], processes: int | None = None, done: Callable[[], None] = lambda: None
) -> list[Binary | ZigguratError]:
    """For each job the kernel, or the error that says why there is none.

    At most `processes` child processes compile, or one for each processor. `done` is called after each job. The
    processes wait a minute for jobs of another call; one of them is kept until the program ends.
    """
    if not jobs:
        return []
    started = max(-(-len(jobs) // _JOBS_A_PROCESS), len(_idle)) if processes is None else len(jobs)
    count = min(processes or os.cpu_count() or 1, started, len(jobs))
    _cancel_closing()

    def work(job: Job) -> Binary | ZigguratError:
        try:
            return _in_child(job)
        except ZigguratError as error:
            return error
        finally:
            done()

    try:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(work, jobs))
    finally:
        _cancel_closing()
        timer = threading.Timer(_IDLE_SECONDS, close_idle, (1,))
        timer.daemon = True
        _closing.append(timer)
        timer.start()


def _cancel_closing() -> None:
    while _closing:
        _closing.pop().cancel()


def compile_apart(job: Job | CpuJob) -> Any:
    """The result of a job, made in a child process, which then waits for others: see `close_idle`."""
    return _in_child(job)


def assemble_apart(model: gpu.Module, options: CompileOptions, name: str) -> Assembly:
    """The texts of a GPU model, made in a child process."""
    return _in_child(Job(model, options, name))


def _send(stream: IO[bytes], message: Any) -> None:
    """Write a message, which `pickle.load` reads. Raises `OSError` if the other side has closed the pipe."""
    stream.write(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
    stream.flush()


def _in_child(job: Job | CpuJob) -> Any:
    """The result of a job by a worker that no other thread uses, which is kept for the next job.

    A model with ops of the user's is compiled in this process: the functions that emit them may be those of a program.
    """
    if isinstance(job.model, Op) and any(is_foreign(type(op)) for op in job.model.walk()):
        return job.result()
    try:
        worker = _idle.pop()
    except IndexError:
        worker = Worker()
    try:
        return worker.result(job)
    except KeyboardInterrupt:
        worker.close()  # The next job would get its answer.
        raise
    finally:
        _idle.append(worker)


class Worker:
    """A process that compiles. It is started at the first job, and again after a crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    def result(self, job: Job | CpuJob) -> Any:
        """The result of `Job.result` in the child. Raises its error, and `InternalError` if the child crashes."""
        stage = None
        try:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            text = job.model if isinstance(job.model, str) else to_text(job.model, locations=True)
            request = {**attrs.asdict(job, recurse=False), "model": text}
            _send(process.stdin, (type(job).__name__, request))
            while True:
                kind, value = pickle.load(process.stdout)
                if kind == "stage":
                    stage = value
                elif kind == "result":
                    return value
                else:
                    raise _error(*value)
        except (EOFError, OSError, pickle.PickleError):
            if stage is None:  # No child can be started here.
                self.close()
                message = f"no process could be started to compile '{job.name}', which is compiled in this one"
                warnings.warn(message, ZigguratWarning, stacklevel=2)
                return job.result()
            raise self._crash(job, stage) from None

    def _crash(self, job: Job | CpuJob, stage: str) -> InternalError:
        assert self._process is not None and self._output is not None
        status = self._process.wait()
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - _SHOWN_BYTES))
        output = self._output.read().decode(errors="replace").strip()
        self.close()
        summary = f"compiling '{job.name}' crashed in the stage {stage} ({how})"
        return InternalError(f"{summary}: {output}" if output else summary, str(job.model))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._output = tempfile.TemporaryFile()  # noqa: SIM115  (`close` closes it)
            self._process = subprocess.Popen(
                [sys.executable, *_COMMAND],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._output,
                env=environment,
            )
        return self._process


_idle: list[Worker] = []
_closing: list[threading.Timer] = []  # The timer that ends most of the idle processes.


@atexit.register
def close_idle(count: int = 0) -> None:
    """End the processes that wait for work, except for `count` of them."""
    with contextlib.suppress(IndexError):  # Another thread may take the last one.
        while len(_idle) > count:
            _idle.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # The processes belong to the parent.


def _error(name: str, text: str) -> ZigguratError:
    """The error of a child as one of its class, with its text."""
    family = getattr(errors, name, InternalError)
    error: ZigguratError = family.__new__(family)
    ZigguratError.__init__(error, text)
    return error


def serve() -> None:
    """The child process: compile each model that arrives, until the parent is gone."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Keep prints of the compiler out of the answers.
    while True:
        try:
            kind, fields = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            result = _KINDS[kind](**fields).result(lambda stage: _send(answers, ("stage", stage)))
            answer: tuple[str, Any] = ("result", result)
        except ZigguratError as error:
            answer = ("error", (type(error).__name__, str(error)))
        _send(answers, answer)


if __name__ == "__main__":
    serve()
