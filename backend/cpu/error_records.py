"""Errors of native kernels: the record that the entry leaves, in the interpreter's words."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from ziggurat.backend.cpu.code import CpuCode
from ziggurat.backend.cpu.sites import READ_ONLY, STRAY, Site
from ziggurat.backend.launch.grids import program_name
from ziggurat.backend.reference.argument_memory import MASK_HINT, Array, ArrayArgument, outside, stray_outcome
from ziggurat.backend.reference.machine import WAITS
from ziggurat.codemodel.errors import KernelRuntimeError, MemoryAccessError, warn
from ziggurat.codemodel.types import SCALARS

__all__ = ["Array", "ArrayArgument", "error_of"]


def error_of(
    code: CpuCode, record: Sequence[int], grid: tuple[int, int, int], arguments: Sequence[ArrayArgument]
) -> KernelRuntimeError:
    """The error of a launch whose entry left this record. `arguments` are the arrays of the launch."""
    kind, program, number, address, value = record[:5]
    site, who = code.sites[number], program_name(program, grid)
    hint: str | None = None
    if kind in (STRAY, READ_ONLY):
        argument = next((argument for argument in arguments if argument.index == value), None)
        if kind == READ_ONLY:
            name = argument.name if argument is not None else "an array"
            what = f"{site.verb} {name}, but its array is read-only"
            hint = f"pass an array that can be written; np.array({name}) is a copy that can"
        else:
            what, hint = _stray(site, address, value, arguments)
        return MemoryAccessError(f"{who} {what}", site.location, hint=hint)
    if kind == 4:
        message = f"device-side assertion failed: {site.message}" if site.message else "device-side assertion failed"
        index = np.unravel_index(address, site.shape) if site.shape else ()
        where = f" at element ({', '.join(str(int(i)) for i in index)})" if index else ""
        return KernelRuntimeError(f"{who}: {message}{where}", site.location)
    texts = {
        3: f"{who} divides by zero",
        5: f"{who} gathers at index {address}; it must be from 0 to {value - 1}",
        6: f"{who}: the step of a loop must not be zero",
        7: f"{who} reached code that is marked unreachable",
        9: f"{who}: {site.message or WAITS}",
    }
    waits = kind == 9 and not site.message
    hint = (
        "pass interpret=True if a later program ends the wait: the interpreter runs these by turns" if waits else None
    )
    return KernelRuntimeError(texts.get(kind, f"{who} was stopped"), site.location, hint)


def _stray(site: Site, address: int, number: int, arguments: Sequence[ArrayArgument]) -> tuple[str, str]:
    """The message for an access outside of the array with this number, or of all arrays, and a hint."""
    argument = next((argument for argument in arguments if argument.index == number), None)
    if argument is None:
        return f"{site.verb} address {address:#x}, which is in no array of the launch", MASK_HINT
    return outside(argument, address - argument.address, SCALARS[site.dtype].dtype, site.verb)


def warn_of(
    code: CpuCode, record: Sequence[int], grid: tuple[int, int, int], arguments: Sequence[ArrayArgument]
) -> None:
    """Warn of what a program of a tolerant kernel has left out: a stray access, or a division by zero."""
    _, program, number, address, value = record[:5]
    site = code.sites[number]
    if site.verb == "divides":
        what = "divides by zero: the result is taken to have all bits set"
    else:
        reason, _ = _stray(site, address, value, arguments)
        what = f"{reason}: {stray_outcome(site.verb)}"
    warn(f"{program_name(program, grid)} {what}", site.location)


_FAILURES = {
    "asserts": "fails a device-side assertion", "divides": "divides by zero",
    "gathers": "gathers at an index outside of the tensor", "loops": "has a loop whose step is zero",
    "reaches": "reached code that is marked unreachable",
    "waits": "waits for a change of memory that no earlier program has made; if a later one makes it, run each program "
    "of the grid by a call of its own, on a thread of its own",
}  # fmt: skip


def failure_text(site: Site) -> str:
    """The failure of a program at a place, for code that keeps nothing else of its record."""
    where = "" if site.location is None else f" ({os.path.basename(site.location.file)}:{site.location.line})"
    reason = _FAILURES.get(site.verb, "was stopped")
    return f"{reason}{f': {site.message}' if site.message else ''}{where}"
