"""The code of kernels for this machine's CPU, from disk or from the compiler."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import LaunchError, ZigguratError, warn
from ziggurat.codemodel.op import Op, expect
from ziggurat.codemodel.text.writer import to_text
from ziggurat.compiler import compiling

if TYPE_CHECKING:
    from ziggurat.backend.cpu.code import CpuCode
    from ziggurat.codemodel.location import Location


def code_of(model: Op, name: str, *, check: bool, tolerant: bool, fast_math: bool, devices: bool = False) -> CpuCode:
    """The native code of a Triton model, from the cache on disk or made now. Raises the errors of `compile_cpu`."""
    from ziggurat.backend.cache.keys import compiler_version
    from ziggurat.backend.cpu.code import CpuOptions
    from ziggurat.backend.cpu.runtime.kernels import restored, stored
    from ziggurat.backend.jit.loading import debug_folder, host, linking
    from ziggurat.backend.jit.objects import Objects

    options = CpuOptions(*host(), check, tolerant, fast_math, bool(debug_folder()), devices)
    facts = f"{compiler_version()}\n{options}\n{to_text(model, locations=True)}"
    key, cache = hashlib.sha256(facts.encode()).hexdigest(), Objects()
    entry = cache.get(key)
    if entry is not None:
        return restored(entry)
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
