"""The errors of running kernels, under Triton's names."""

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.errors import KernelRuntimeError, ResourceError, TargetError, ZigguratError
from ziggurat.frontends.triton.triton_errors import TritonError, as_triton


class InterpreterError(KernelRuntimeError, TritonError):
    """A kernel on arrays in memory failed."""


class OutOfResources(ResourceError, TritonError):
    """A kernel needs more of a resource than the GPU has: `required` of `name`, where `limit` is the most. The numbers
    are zero where the message has them."""

    required = limit = 0
    name = "resources"

    def __init__(self, required: int, limit: int, name: str) -> None:
        super().__init__(
            f"out of resource: {name}, Required: {required}, Hardware limit: {limit}. Reducing block sizes or "
            "`num_stages` may help."
        )
        self.required = required
        self.limit = limit
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.required, self.limit, self.name)


class PTXASError(TargetError, TritonError):
    """NVIDIA's assembler rejected a kernel, or its target cannot express it."""


class AutotunerError(ZigguratError, TritonError):
    """No configuration of a kernel can be chosen."""

    def __init__(self, summary: str) -> None:
        super().__init__(f"Autotuner error: {summary}")


_THEIRS: Final[dict[type[ZigguratError], type[ZigguratError]]] = {
    ResourceError: OutOfResources, KernelRuntimeError: InterpreterError, TargetError: PTXASError,
}  # fmt: skip


def as_raised(error: ZigguratError) -> ZigguratError:
    """An error of a launch as one that Triton's programs catch, with a hint that names Triton's functions."""
    for ours, theirs in _THEIRS.items():
        if type(error) is ours:
            error.__class__ = theirs  # pyright: ignore[reportAttributeAccessIssue]
    return as_triton(error)


__all__ = ["AutotunerError", "InterpreterError", "OutOfResources", "PTXASError"]
