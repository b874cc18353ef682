"""Calls by which a kernel reports to the host: CUDA's vprintf and __assertfail, and what it assumes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ziggurat.backend.simulator.shared import Array, SimulationError
from ziggurat.codemodel.errors import KernelRuntimeError


def _text(program: Any, address: int) -> str:
    """A string that ends with a zero."""
    return program.memory.bytes_at(address).tobytes().partition(b"\0")[0].decode(errors="replace")


def _print(program: Any, form: Array, buffer: Array) -> Array:
    """Run CUDA's vprintf: the threads print one after the other."""
    for thread in np.flatnonzero(program.active):
        at, text, arguments = int(buffer[thread]), _text(program, int(form[thread])), list[Any]()
        for conversion in filter(None, re.findall(r"%%|(%[.\d]*(?:ll)?[a-z])", text)):
            size = 8 if "ll" in conversion or conversion[-1] in "fgs" else 4
            at = -(-at // size) * size
            dtype = {"f": np.float64, "g": np.float64, "d": f"i{size}"}.get(conversion[-1], f"u{size}")
            number = program.memory.bytes_at(at)[:size].view(dtype)[0].item()
            arguments.append(_text(program, number) if conversion[-1] == "s" else number)
            at += size
        # Python's formats are C's, without "ll".
        print(re.sub(r"%%|(%[.\d]*)ll", lambda match: match[1] or match[0], text) % tuple(arguments), end="")
    return np.zeros(program.threads, np.uint32)


def _fail(program: Any, message: Array, *where: Array) -> None:
    thread = int(np.flatnonzero(program.active)[0])
    raise KernelRuntimeError(f"assertion failed: {_text(program, int(message[thread]))}")


def _assume(program: Any, condition: Array) -> None:
    if not condition[program.active].all():
        raise SimulationError("a condition that the kernel assumes must hold")


# By the name without LLVM's prefix. Each takes the program and the operands.
HOST_CALLS: Mapping[str, Callable[..., Any]] = {"assume": _assume, "vprintf": _print, "__assertfail": _fail}
