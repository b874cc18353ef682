"""llvmlite's binding to LLVM, with the settings that are the process's."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from ziggurat.codemodel.errors import LaunchError

_OPTIONS: Final = (
    # Addresses by `mad.wide`, of which ptxas makes LEA. Of `mul.wide` and `add` it makes IMAD.WIDE, which slows down
    # the loop of a matmul that computes its addresses anew in each iteration, by 8 % on an H200.
    "-nvptx-mad-wide-opt",
    # Straight-line strength reduction took a fourth of LLVM's time, quadratic in the addresses of a tensor. Sums and
    # products of integers are emitted with what registers share (`elementwise`). CPUs' pipelines lack the pass.
    "-opt-disable=slsr",
    # LLVM 22's NewGVN, which CPUs' pipelines have, takes `p | x` of a phi p for a phi of x, with the x of the iteration
    # before.
    "-enable-phi-of-ops=false",
)


@cache
def llvm() -> Any:
    """llvmlite's binding, which has no types. It is imported at first use, as it is large.

    All settings are made here, before LLVM compiles anything: it looks at some of them only once. Raises `LaunchError`
    where llvmlite cannot be imported.
    """
    try:
        binding = import_module("llvmlite.binding")
    except (ImportError, OSError) as error:
        message = f"PTX and native code are made by llvmlite, which cannot be imported: {error}"
        raise LaunchError(message, hint="pip install llvmlite") from None
    for option in _OPTIONS:
        binding.set_option("", option)
    return binding


@cache
def has_llvm() -> bool:
    """Whether llvmlite can be imported."""
    try:
        return llvm() is not None
    except LaunchError:
        return False
