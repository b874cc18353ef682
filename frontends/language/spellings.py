"""Names of Triton's language and what to write in their place: hints for names that are not found.

Names that differ little from ours are found by their likeness (`suggest` in signature.py); these are not.
"""

from __future__ import annotations

from typing import Final

from ziggurat.codemodel.types import SCALARS

# Calls, dtypes and other members of `triton.language`.
_MEMBERS: Final[dict[str, str]] = {
    "expand_dims": "zg.expand(x, axis)",
    "broadcast_to": "zg.broadcast(x, shape)",
    "view": "zg.reshape(x, shape)",
    "zeros_like": "zg.zeros(x.shape, x.dtype)",
    "logical_and": "zg.and_(a, b)",
    "logical_or": "zg.or_(a, b)",
    "logical_not": "zg.invert(x)",
    "load_block_ptr": "zg.load(block_pointer)",
    "pointer_type": "zg.ptr(dtype)",
    **{scalar.numpy: f"zg.{scalar}" for scalar in SCALARS.values()},
    "float8e5": "zg.f8e5m2",
    "float8e4nv": "zg.f8e4m3",
    "int1": "zg.i1",
}
# Methods and properties of its tensors and dtypes.
_ATTRIBUTES: Final[dict[str, str]] = {
    "primitive_bitwidth": "x.dtype.bits",
    "expand_dims": "zg.expand(x, axis)",
    "broadcast_to": "zg.broadcast(x, shape)",
    "view": "zg.reshape(x, shape)",
    "item": "zg.reshape(x, ())",
}


def of_member(name: str, prefix: str = "zg") -> str | None:
    """A hint for `tl.name`, where the language is called `prefix`; None for a name that Triton does not have."""
    return _hint(_MEMBERS.get(name), prefix)


def of_attribute(name: str, prefix: str = "zg") -> str | None:
    """A hint for `x.name` or `x.name(…)`, where `x` is a tensor of Triton's or its dtype."""
    return _hint(_ATTRIBUTES.get(name), prefix)


def _hint(instead: str | None, prefix: str) -> str | None:
    return f"write {instead.replace('zg.', f'{prefix}.')}" if instead else None
