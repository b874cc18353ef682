"""The errors of running kernels, under Triton's names."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.errors import KernelRuntimeError, ResourceError, ZigguratError

InterpreterError = KernelRuntimeError


class OutOfResources(ResourceError):
    """A kernel needs more of a resource than the GPU has: `required` of `name`, where `limit` is the most."""

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


class PTXASError(ResourceError):
    """NVIDIA's assembler rejected a kernel."""


class AutotunerError(ZigguratError):
    """No configuration of a kernel can be chosen."""


__all__ = ["AutotunerError", "InterpreterError", "OutOfResources", "PTXASError"]
