"""A kernel that is to be compiled for a GPU: by this process, by another one, or from disk where it is kept."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.compiler import compiling

if TYPE_CHECKING:
    from ziggurat.backend.cuda.binary import Binary
    from ziggurat.backend.cuda.cache import Cache
    from ziggurat.compiler.compiled import Compiled


class KernelBuild:
    """A kernel of a model for some options, compiled as far as it is asked for. `title` is its name in messages."""

    python: Op | None = None

    def __init__(self, model: Op, options: CompileOptions, title: str) -> None:
        self.model, self.options, self.title = model, options, title

    @property
    def is_own(self) -> bool:
        """Whether all of its stages are those of this compiler, so that a worker can compile it."""
        return self.options.plain is self.options

    @property
    def cache(self) -> Cache:
        """The kernels on disk."""
        from ziggurat.backend.cuda.cache import Cache

        return Cache()

    @functools.cached_property
    def hash(self) -> str:
        """64 hexadecimal digits for the model, the options and the compiler: the key on disk."""
        from ziggurat.backend.cache.keys import key

        return key(self.model, self.options)

    @functools.cached_property
    def stages(self) -> Compiled:
        """The kernel with its models at every tier."""
        from ziggurat.compiler.pipeline import compile_model

        return compile_model(self.model, self.options, self.python, name=self.title)

    @functools.cached_property
    def binary(self) -> Binary:
        """The kernel as the driver loads it, from disk or compiled now. Raises the errors of the kernel."""
        times = [time.perf_counter()]
        model = self.model  # A kernel of a Triton program makes it here.
        times.append(time.perf_counter())
        with compiling:  # Imports are under the lock, too.
            from ziggurat.backend.cuda.places import placed_as

            entry = self.kept()
        binary = self.compiled() if entry is None else placed_as(model, entry)
        times.append(time.perf_counter())
        if entry is None:
            self.keep(binary)
        times.append(time.perf_counter())
        self.note(times, entry is not None)
        return binary

    def kept(self) -> Binary | None:
        """The kernel on disk, if it is there."""
        return self.cache.get(self.hash) if self.options.is_kept else None

    def compiled(self) -> Binary:
        """The kernel, compiled now."""
        return self.stages.binary

    def keep(self, binary: Binary) -> None:
        """Keep the compiled kernel on disk."""
        if self.options.is_kept:
            self.cache.put(self.hash, binary)

    def note(self, times: Sequence[float], is_kept: bool) -> None:
        """Take note of the seconds at which the steps began and ended: the model, the code, and its entry on disk."""

    @property
    def is_compiled(self) -> bool:
        """Whether the kernel is compiled, in this process or on disk."""
        return "binary" in vars(self) or self.cache.path(self.hash).exists()
