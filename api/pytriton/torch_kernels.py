"""Calls of kernels in Triton-C with PyTorch's tensors, as operators that `torch.compile` traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ziggurat.codemodel.structured import packed_values
from ziggurat.frameworks import torch_ops
from ziggurat.frameworks.operation import GRID, Sizes, definers
from ziggurat.frameworks.torch_ops import torch
from ziggurat.pytriton.tensor_kernels import MACRO, sizes

if TYPE_CHECKING:
    from ziggurat.pytriton.tensor_kernels import kernel


def call(of: kernel, macros: tuple[tuple[str, Any], ...], values: Sequence[Any], grid: Any) -> Any:
    """The outputs of a kernel, for definitions of the macros, the arguments and the grid."""
    bound = of.arguments_by_name(_parameters(of.label, macros), values, grid)
    bound[GRID] = Sizes(sizes(grid, macros))
    for name, value in macros:
        bound[MACRO + name] = value
    return packed_values(torch_ops.call(of, bound, of.outputs, lambda name: name.startswith(MACRO)))


@torch._dynamo.assume_constant_result
def _parameters(label: str, macros: tuple[tuple[str, Any], ...]) -> tuple[str, ...]:
    return definers[label].parameters(macros)
