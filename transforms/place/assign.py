"""Layout assignment: a Triton model becomes a GPU model, where the type of a tensor says who holds which element."""

from __future__ import annotations

from ziggurat.codemodel.dialects import core, gpu, tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.transforms.place.homes import Anchor
from ziggurat.transforms.place.plan import Plan
from ziggurat.transforms.place.relayout import relaid


def assign(
    module: core.Module, num_warps: int = 4, target: str = "sm_90a", anchor: Anchor = lambda op: None
) -> gpu.Module:
    """The GPU model of a prepared Triton model: each tensor with a layout, and as few conversions as possible.

    `anchor` may give the layout of the result of a `tt.dot` (or of a descriptor load); None lets this step choose.

        %9 : tensor<x1024, f32>                    %9 : tensor<x1024, f32, "1 2 512 | 4 … 64 | 128 256">
            = tt.load %8;                              = tt.load %8 @width=4;

    What is computed from ranges, constants and scalars alone is computed in each layout in which it is needed; other
    tensors are computed once, in their home, and converted where another layout is needed: just before the first use,
    the narrower of two tensors. Loops carry indices and pointers in each layout in which they are used.
    """
    func = _kernel(module)
    plan = Plan(func, num_warps, anchor)
    return relaid(func, plan, target, num_warps)


def _kernel(module: core.Module) -> tt.Func:
    functions = list(module.functions().values())
    if len(functions) != 1 or not isinstance(functions[0], tt.Func):
        raise InternalError("layouts are assigned to a module of one tt.func; prepare it first", str(module))
    return functions[0]
