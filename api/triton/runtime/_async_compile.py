"""`triton.AsyncCompileMode`: compilations of `warmup` in the threads of an executor."""

from __future__ import annotations

import types
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from ziggurat.triton.compiler.compiled_kernel import CompiledKernel

active_mode: ContextVar[AsyncCompileMode | None] = ContextVar("async_compile_active_mode", default=None)


class FutureKernel:
    """A kernel that an executor compiles."""

    def __init__(self, kernel: CompiledKernel, future: Future[Any]) -> None:
        self.kernel, self.future = kernel, future

    def result(self, ignore_errors: bool = False) -> CompiledKernel | None:
        """The kernel, when it is compiled. Raises the errors of the kernel unless they are to be ignored."""
        try:
            self.future.result()
        except Exception:
            if not ignore_errors:
                raise
            return None
        return self.kernel


class AsyncCompileMode:
    """Within `with AsyncCompileMode(executor):`, `kernel.warmup(…)` gives a `FutureKernel` at once.

    A launch compiles what it needs by itself if the executor has not done so. The end waits for all compilations.
    """

    def __init__(self, executor: Executor, *, ignore_errors: bool = False) -> None:
        self.executor, self.ignore_errors = executor, ignore_errors
        self.future_kernels: dict[int, FutureKernel] = {}

    def submit(self, kernel: CompiledKernel) -> FutureKernel:
        """Have a kernel compiled, once."""
        future = self.future_kernels.get(id(kernel))
        if future is None:
            future = FutureKernel(kernel, self.executor.submit(kernel.demand))
            self.future_kernels[id(kernel)] = future
        return future

    def __enter__(self) -> AsyncCompileMode:
        if active_mode.get() is not None:
            raise RuntimeError("Another AsyncCompileMode is already active")
        active_mode.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        from concurrent.futures import as_completed

        active_mode.set(None)
        by_future = {future_kernel.future: future_kernel for future_kernel in self.future_kernels.values()}
        for future in as_completed(by_future):
            by_future[future].result(self.ignore_errors)
