"""Kernels for this machine's CPU: their code, from disk or from the compiler, and `CompiledCpu` with their stages."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import LaunchError, ZigguratError, warn
from ziggurat.codemodel.op import Op, expect
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.text.writer import to_text
from ziggurat.compiler import compiling
from ziggurat.compiler.compiled import Argument

if TYPE_CHECKING:
    from ziggurat.backend.cpu.code import CpuCode
    from ziggurat.codemodel.location import Location
    from ziggurat.launches.compiled import HostExecutable


def code_of(model: Op, name: str, *, check: bool, tolerant: bool, fast_math: bool) -> CpuCode:
    """The native code of a Triton model, from the cache on disk or made now. Raises the errors of `compile_cpu`."""
    from ziggurat.backend.cpu.code import CpuOptions
    from ziggurat.backend.cpu.runtime.jitdump import folder
    from ziggurat.backend.cpu.runtime.kernels import restored, stored
    from ziggurat.backend.cpu.runtime.loading import host, linking
    from ziggurat.backend.cpu.runtime.objects import Objects
    from ziggurat.backend.cuda.keys import compiler_version

    options = CpuOptions(*host(), check, tolerant, fast_math, line_info=bool(folder()))
    facts = f"{compiler_version()}\n{options}\n{to_text(model, locations=True)}"
    key, cache = hashlib.sha256(facts.encode()).hexdigest(), Objects()
    kept = cache.get(key)
    if kept is not None:
        return restored(kept)
    with linking, compiling:  # In this order everywhere: a fork waits for both.
        from ziggurat.backend.cpu.compile import compile_cpu

        code = compile_cpu(expect(model, core.Module), options)
    cache.put(key, stored(code, name))
    return code


def warn_interpreted(name: str, error: ZigguratError, place: Location | None = None) -> None:
    """Warn that a kernel is interpreted, with the reason; at `place` if the error names no other."""
    reason = next((line for line in error.summary.splitlines() if line), "")
    hint = f" ({error.hint})" if isinstance(error, LaunchError) and error.hint else ""
    warn(f"'{name}' is interpreted, as no native code could be made: {reason}{hint}", error.location or place)


@attrs.frozen(repr=False)
class CompiledCpu:
    """A kernel compiled for this machine's CPU. `stages` holds its models and texts in order: python (where it is
    known), triton, cpu, llvm and asm. `arguments` are those of a launch.

        compiled[grid](x, y, n)

    runs it on arrays in memory.
    """

    code: CpuCode
    above: Mapping[str, Any]  # The stages before the CPU model.
    arguments: tuple[Argument, ...]
    name: str = ""
    target: str = "cpu"

    def __repr__(self) -> str:
        takes = ", ".join(map(str, self.arguments))
        return f"<{self.title}({takes}) compiled for {self.code.cpu}: {len(self.code.object)} bytes of object code>"

    @functools.cached_property
    def stages(self) -> Mapping[str, Any]:
        """The models and texts by stage."""
        return {**self.above, "cpu": self.cpu, "llvm": self.llvm, "asm": self.asm}

    @functools.cached_property
    def cpu(self) -> Op:
        """The CPU model."""
        return parse(self.code.model)

    @property
    def llvm(self) -> str:
        """The LLVM text."""
        return self.code.llvm

    @functools.cached_property
    def asm(self) -> str:
        """The assembly of this machine."""
        from ziggurat.backend.cpu.code import CpuOptions
        from ziggurat.backend.cpu.compile import to_assembly

        return to_assembly(self.llvm, CpuOptions(self.code.cpu, self.code.features))

    @property
    def title(self) -> str:
        """The kernel's name for messages."""
        return self.name or self.code.symbol

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = 'its stages are python, triton, cpu, llvm and asm; without target="cpu", kernel.compile is for a GPU'
            raise AttributeError(f"a kernel that is compiled for a CPU has no '{name}'\n  hint: {hint}")

    __iter__ = None  # Python would ask for the items 0, 1, …: each is a launch.

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        raise LaunchError(f"'{self.title}' must be launched over a grid", hint="compiled[grid](…)")

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """`compiled[grid](arguments…)` runs it once for each program of the grid, on this machine.

        The arguments are the run-time ones, in their order, without those that were compiled in. Arrays are in memory,
        of any library. Raises `LaunchError` for arguments that it was not compiled for, and the errors of programs.
        """
        return functools.partial(self._executable.launch, grid)

    @functools.cached_property
    def _executable(self) -> HostExecutable:
        from ziggurat.launches.compiled import HostExecutable

        return HostExecutable(self)
