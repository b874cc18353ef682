"""`triton.experimental.gluon.language`: the names of Gluon, for definitions of kernels and values of modules.

The names that Gluon shares with `tl` are those of `tl`. Layouts and types are classes whose objects hold what they were
made of, and nothing else; an op raises an error, as it does in Triton outside of a kernel. The modules of one maker's
GPUs, such as `nvidia.blackwell`, have every name: a class for one with a capital, and for another what can be an op
and a module. `extra` is that of `tl`.
"""

from __future__ import annotations

import sys
from collections.abc import MutableSequence
from importlib.machinery import ModuleSpec
from types import ModuleType
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
_OF_GPUS: Final = (
    "nvidia", "nvidia.ampere", "nvidia.ampere.async_copy", "nvidia.ampere.mbarrier", "nvidia.hopper",
    "nvidia.hopper.mbarrier", "nvidia.hopper.tma", "nvidia.blackwell", "nvidia.blackwell.float2",
    "nvidia.blackwell.tma", "nvidia.rubin", "amd", "amd.cdna3", "amd.cdna4", "amd.cdna4.async_copy", "amd.gfx1250",
    "amd.rdna3", "amd.rdna4",
)  # fmt: skip


class _Described:
    """An object of one of Gluon's classes: its arguments."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self._arguments = (arguments, keywords)

    def __repr__(self) -> str:
        positional, arguments = self._arguments
        parts = [*map(repr, positional), *(f"{name}={value!r}" for name, value in arguments.items())]
        return f"{type(self).__name__}({', '.join(parts)})"


class _Named(ModuleType):
    """An op, or a module of one maker's GPUs: the names of libraries' newest kernels do not tell which."""

    __path__: MutableSequence[str] = []  # noqa: RUF012

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        name = self.__name__.removeprefix(f"{__name__}.")
        raise KernelTypeError(f"ziggurat does not have Gluon's op '{name}'", hint="write the kernel in Triton's Python")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self.__name__}.{name}"
        value = type(name, (_Described,), {"__module__": self.__name__}) if name[0].isupper() else _Named(path)
        vars(self)[name] = value
        return value


def __getattr__(name: str) -> Any:
    if hasattr(language, name):
        return getattr(language, name)
    raise AttributeError(f"ziggurat has no 'gluon.language.{name}': it has the names that definitions of kernels need")


__path__: list[str] = []
for _path in _OF_GPUS:
    _module = _Named(f"{__name__}.{_path}")
    _module.__spec__ = ModuleSpec(_module.__name__, None, is_package=True)
    sys.modules[_module.__name__] = _module
    _above, _, _last = _path.rpartition(".")
    vars(sys.modules[f"{__name__}.{_above}" if _above else __name__])[_last] = _module
globals().update({name: type(name, (_Described,), {"__module__": __name__}) for name in TYPES})
globals().update({name: _Named(f"{__name__}.{name}") for name in OPS})
sys.modules |= {f"{__name__}.extra": language.extra, f"{__name__}.extra.libdevice": language.extra.libdevice}
