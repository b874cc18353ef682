"""`triton.experimental.gluon.language`: the names of Gluon, for definitions of kernels and values of modules.

The names that Gluon shares with `tl` are those of `tl`. Layouts and types are classes whose objects hold what they were
made of, and nothing else; an op raises an error, as it does in Triton outside of a kernel.
"""

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.triton import language

TYPES: Final = (
    "AutoLayout", "BlockedLayout", "CoalescedLayout", "DistributedLinearLayout", "DotOperandLayout",
    "NVMMADistributedLayout", "NVMMASharedLayout", "PaddedSharedLayout", "SharedLinearLayout", "SliceLayout",
    "SwizzledSharedLayout", "base_type", "base_value", "distributed_type", "shared_memory_descriptor",
    "shared_memory_descriptor_type", "tuple_type",
)  # fmt: skip
OPS: Final = (
    "allocate_shared_memory", "bank_conflicts", "convert_layout", "dot_fma", "fp4_to_fp", "full_like", "num_ctas",
    "set_auto_layout", "thread_barrier", "to_linear_layout", "warp_specialize",
)  # fmt: skip


class _Described:
    """An object of one of Gluon's classes: its arguments."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self._arguments = (arguments, keywords)

    def __repr__(self) -> str:
        positional, arguments = self._arguments
        parts = [*map(repr, positional), *(f"{name}={value!r}" for name, value in arguments.items())]
        return f"{type(self).__name__}({', '.join(parts)})"


def _op(name: str) -> Any:
    def refuse(*arguments: Any, **keywords: Any) -> Any:
        raise KernelTypeError(f"ziggurat does not have Gluon's op '{name}'", hint="write the kernel in Triton's Python")

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


def __getattr__(name: str) -> Any:
    if hasattr(language, name):
        return getattr(language, name)
    raise AttributeError(f"ziggurat has no 'gluon.language.{name}': it has the names that definitions of kernels need")


globals().update({name: type(name, (_Described,), {"__module__": __name__}) for name in TYPES})
globals().update({name: _op(name) for name in OPS})
