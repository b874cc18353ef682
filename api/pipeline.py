"""The way down the tower, as one visible tuple of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.boundary import no_faults
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import Type
from ziggurat.frontends.language import Function
from ziggurat.transforms.attribution import attribute
from ziggurat.transforms.mirror import mirror
from ziggurat.transforms.simplify.dce import remove_unused

# What is done to a Triton model before a user sees it. The model stays as the kernel's author wrote it: nothing is
# folded, shared or hoisted; only constants that became attributes are gone.
TIDY: tuple[Callable[[Op], Op], ...] = (remove_unused,)


def triton_model(kernel: Function | Op, types: Sequence[Type], divisibility: Sequence[int] = ()) -> core.Module:
    """The Triton code model of a kernel's Python model at these argument types. Raises the errors of the kernel."""
    name = kernel.name if isinstance(kernel, Function) else str(kernel.attributes["sym_name"])
    with no_faults("compiling", lambda: kernel.model if isinstance(kernel, Function) else kernel, name):
        try:
            model: Op = mirror(attribute(kernel, types), divisibility)
            for step in TIDY:
                model = step(model)
        except RecursionError:
            raise KernelSyntaxError(
                f"the code of '{name}' is nested too deeply: functions that call functions, or loops in loops",
                hint="call helper functions one after the other, not each from the one before",
            ) from None
        assert isinstance(model, core.Module)
        return model
