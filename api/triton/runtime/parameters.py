"""The parameters of kernels in Triton's Python."""

from __future__ import annotations

import inspect

from ziggurat.triton._utils import type_canonicalisation_dict
from ziggurat.triton.compiler.signatures import declared_of, type_text


class KernelParam:
    """A parameter of a kernel: its place, its name, its annotation, and whether its values select code."""

    def __init__(
        self, num: int, param: inspect.Parameter, do_not_specialize: bool, do_not_specialize_on_alignment: bool
    ) -> None:
        self.num = num
        self.name = param.name
        self.default = param.default
        self.do_not_specialize = do_not_specialize
        self.do_not_specialize_on_alignment = do_not_specialize_on_alignment
        self.dtype = declared_of(param.annotation)
        annotation = param.annotation
        self.annotation = "" if annotation is param.empty else getattr(annotation, "__name__", None) or str(annotation)

    @property
    def annotation_type(self) -> str:
        """The type that the annotation names, "i64" or "*fp32"; an empty text without one."""
        text = self.annotation if self.dtype is None else type_text(self.dtype)
        return text if text.lstrip("*k") in type_canonicalisation_dict.values() else ""

    @property
    def is_constexpr(self) -> bool:
        return "constexpr" in self.annotation

    @property
    def is_const(self) -> bool:
        return "const" in self.annotation and not self.is_constexpr

    @property
    def has_default(self) -> bool:
        return self.default is not inspect.Parameter.empty
