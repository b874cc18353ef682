"""The way down the tower, as one visible tuple of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import Type
from ziggurat.frontends.language import Function
from ziggurat.transforms.attribution import attribute
from ziggurat.transforms.mirror import mirror
from ziggurat.transforms.simplify.dce import remove_unused

# What is done to a Triton model before a user sees it. The model stays as the kernel's author wrote it: nothing is folded,
# shared or hoisted; only constants that became attributes, and reads of variables, are gone.
TIDY: tuple[Callable[[Op], Op], ...] = (remove_unused,)


def triton_model(kernel: Function | Op, types: Sequence[Type], divisibility: Sequence[int] = ()) -> core.Module:
    """The Triton code model of a kernel's Python model at these argument types."""
    model: Op = mirror(attribute(kernel, types), divisibility)
    for step in TIDY:
        model = step(model)
    assert isinstance(model, core.Module)
    return model
