"""Names of Triton's language and what to write in their place: hints for names that are not found.

Names that differ little from ours are found by their likeness (`suggest` in signature.py); these are not.
"""

from __future__ import annotations

from typing import Final

from ziggurat.codemodel.messages import call_text, say
from ziggurat.codemodel.types import SCALARS

# Calls, dtypes and other members of `triton.language`: our name, and its arguments.
_MEMBERS: Final[dict[str, tuple[str, str]]] = {
    "expand_dims": ("expand", "(x, axis)"),
    "broadcast_to": ("broadcast", "(x, shape)"),
    "view": ("reshape", "(x, shape)"),
    "zeros_like": ("zeros", "(x.shape, x.dtype)"),
    "logical_and": ("and_", "(a, b)"),
    "logical_or": ("or_", "(a, b)"),
    "logical_not": ("invert", "(x)"),
    "load_block_ptr": ("load", "(block_pointer)"),
    "pointer_type": ("ptr", "(dtype)"),
    **{scalar.numpy: (str(scalar), "") for scalar in SCALARS.values()},
    "float8e5": ("f8e5m2", ""),
    "float8e4nv": ("f8e4m3", ""),
    "int1": ("i1", ""),
}
# Methods of its tensors.
_ATTRIBUTES: Final[dict[str, tuple[str, str]]] = {
    "expand_dims": ("expand", "(x, axis)"),
    "broadcast_to": ("broadcast", "(x, shape)"),
    "view": ("reshape", "(x, shape)"),
    "item": ("reshape", "(x, ())"),
}


def of_member(name: str, prefix: str = "zg") -> str | None:
    """A hint for `tl.name`, where the language is called `prefix`; None for a name that Triton does not have."""
    return f"write {prefix}.{''.join(_MEMBERS[name])}" if name in _MEMBERS else None


def of_attribute(name: str) -> str | None:
    """A hint for `x.name` or `x.name(…)`, where `x` is a tensor of Triton's or its dtype."""
    if name == "primitive_bitwidth":
        return "write x.dtype.bits"
    if name not in _ATTRIBUTES:
        return None
    call, arguments = _ATTRIBUTES[name]
    return say("write {}{}", call_text(call), arguments)
