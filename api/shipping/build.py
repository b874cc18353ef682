"""The code of variants for targets: compiled in child processes, and kept on disk."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import attrs

from ziggurat.backend.cache.keys import compiler_version
from ziggurat.backend.cpu.code import CpuCode, CpuOptions
from ziggurat.backend.cuda.binary import Binary
from ziggurat.backend.cuda.cache import Cache
from ziggurat.backend.jit.loading import host, without_tiles
from ziggurat.backend.jit.objects import Objects
from ziggurat.backend.ptx.sass import machine_code, tool
from ziggurat.codemodel.errors import LaunchError, TargetError, ZigguratError, shown
from ziggurat.codemodel.gpu.options import CPU, CompileOptions
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.compiler.workers import CpuJob, Job, close_idle, compile_apart
from ziggurat.shipping.tables import GpuCode
from ziggurat.shipping.variant import Variant

# The levels of x86-64 (its psABI, section 3.1.1), as names of LLVM's features: v4 has all of v3.
_V3: Final = "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
LEVELS: Final = {
    "x86-64-v3": _V3,
    "x86-64-v4": f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl",
}


@attrs.frozen
class Unit:
    """The code of a variant for a target: `symbol` is the name of its entry, where that can be chosen."""

    variant: Variant
    target: str
    symbol: str


@attrs.frozen
class Built:
    """Code of units, in their order: an error where there is none. `compiled` counts those that were not on disk."""

    codes: tuple[GpuCode | CpuCode | ZigguratError, ...]
    compiled: int


def checked_target(name: str) -> str:
    """A target: "cpu", "x86-64-v3" or one of GPUs. Raises `LaunchError` for another."""
    if name in TARGETS or name == CPU:
        return name
    if name in LEVELS and platform.machine() in ("x86_64", "AMD64"):
        return name
    raise LaunchError(f"a target must be one of {', '.join((*TARGETS, CPU, *LEVELS))}; got {shown(name)}")


def is_cpu(target: str) -> bool:
    """Whether a target is a CPU's."""
    return target not in TARGETS


def built(
    units: Sequence[Unit], *, jobs: int = 0, done: Callable[[Unit, bool], None] = lambda unit, is_new: None
) -> Built:
    """The code of units. At most `jobs` child processes compile, or one for each processor.

    `done` is called after each unit, and told whether it was compiled now.
    """

    def work(unit: Unit) -> tuple[GpuCode | CpuCode | ZigguratError, bool]:
        try:
            code, is_new = _host_code(unit) if is_cpu(unit.target) else _gpu_code(unit)
        except ZigguratError as error:
            return error, False
        done(unit, is_new)
        return code, is_new

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        results = list(pool.map(work, units))
    close_idle(1)
    return Built(tuple(code for code, _ in results), sum(is_new for _, is_new in results))


def _digest(unit: Unit, *more: str) -> str:
    """The key of a unit on disk. The text of the model stands for the model: it need not be parsed."""
    facts = [compiler_version(), unit.target, repr(sorted(unit.variant.options.items())), *more]
    return hashlib.sha256("\n".join([*facts, unit.variant.model]).encode()).hexdigest()


def _gpu_code(unit: Unit) -> tuple[GpuCode, bool]:
    """Code for a GPU, and whether it was compiled now."""
    options = CompileOptions.of({**unit.variant.options, "target": unit.target})
    binary, is_new = _binary(unit, options, "")
    if not binary.maps:
        return GpuCode(binary, _bytes(binary)), is_new
    # For arguments that have no tensor maps: the same parameters, without the maps.
    other, is_other_new = _binary(unit, attrs.evolve(options, raise_pointers=False), "other")
    return GpuCode(binary, _bytes(binary), GpuCode(other, _bytes(other))), is_new or is_other_new


def _bytes(binary: Binary) -> bytes:
    return binary.code.encode() if isinstance(binary.code, str) else binary.code


def _binary(unit: Unit, options: CompileOptions, role: str) -> tuple[Binary, bool]:
    cache, key = Cache(), _digest(unit, role, assembler())
    entry = cache.get(key)
    if entry is not None:
        return entry, False
    binary: Any = compile_apart(Job(unit.variant.model, options, unit.variant.kernel, is_strict=False))
    if assembler():
        binary = attrs.evolve(binary, code=machine_code(binary.code, unit.target, binary.shared))
    binary = attrs.evolve(binary, metadata={})
    cache.put(key, binary)
    return binary, True


@functools.cache
def assembler() -> str:
    """The assembler that makes cubins here: nvJitLink or ptxas; "" without one, where PTX is shipped."""
    try:
        from importlib import import_module

        linker: Any = import_module("cuda.bindings.nvjitlink")
        return f"nvJitLink {linker.version()}"
    except Exception:  # cuda.bindings is not installed, or does not find the library.
        path = tool("ptxas")
        return "" if path is None else f"ptxas {path} {path.stat().st_mtime_ns}"


def _host_code(unit: Unit) -> tuple[CpuCode, bool]:
    """Code for a CPU, without checks of bounds, and whether it was compiled now."""
    from ziggurat.backend.cpu.runtime.kernels import restored, stored

    # Programs that load the library do not ask Linux for the matrix units.
    cpu, features = (unit.target, LEVELS[unit.target]) if unit.target in LEVELS else host()
    options = CpuOptions(
        cpu, without_tiles(features), check=False, fast_math=unit.variant.options.get("fast_math", False)
    )
    cache, key = Objects(), _digest(unit, unit.symbol, repr(options))
    entry = cache.get(key)
    if entry is None:
        code: CpuCode = compile_apart(CpuJob(unit.variant.model, options, unit.variant.kernel, unit.symbol))
        cache.put(key, stored(code, unit.variant.kernel))
    else:
        code = restored(entry)
    refuse_prints(code, unit.variant.kernel)
    return code, entry is None


def refuse_prints(code: CpuCode, kernel: str) -> None:
    """Raise `TargetError` for code that prints: a program in C has nothing that prints for it."""
    if any(site.verb == "prints" for site in code.sites):
        summary = f"'{kernel}' prints, which kernels of a library cannot do on a CPU"
        raise TargetError(summary, hint="remove the print")


def by_variant(
    units: Sequence[Unit], build: Built
) -> tuple[dict[str, dict[str, Any]], list[tuple[Unit, ZigguratError]]]:
    """The codes of variants by the units' symbols, with the units that have none."""
    codes: dict[str, dict[str, Any]] = {}
    errors: list[tuple[Unit, ZigguratError]] = []
    for unit, code in zip(units, build.codes, strict=True):
        own = codes.setdefault(unit.symbol, {})
        if isinstance(code, ZigguratError):
            errors.append((unit, code))
        else:
            own[CPU if is_cpu(unit.target) else unit.target] = code
    return codes, errors
