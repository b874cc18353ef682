"""Layout assignment: a Triton model becomes a GPU model, where the type of a tensor says who holds which element.

A block that is stored transposed, in a CTA of one warp (L and M stand for layouts):

    %10 : tensor<x32, x32, ptr<f32>> = tt.addptr %9 %8;
    %11 : tensor<x32, x32, f32> = tt.load %10;
    %12 : tensor<x32, x32, f32> = tt.trans %11 @order=[1, 0];
    tt.store %10 %12;

becomes

    %11 : tensor<x32, x32, ptr<f32>, L> = tt.addptr %10 %9;
    %12 : tensor<x32, x32, f32, L> = tt.load %11 @width=4;
    %13 : tensor<x32, x32, f32, M> = gpu.convert_layout %12;
    %14 : tensor<x32, x32, f32, L> = tt.trans %13 @order=[1, 0];
    tt.store %11 %14 @width=4;

where L is "1 2 128 256 512 | 4 8 16 32 64 | ": four neighbours of a row in registers, eight lanes to a row, so that
both accesses are coalesced and in vectors; and M is the layout that the transposition maps to L:
"32 64 4 8 16 | 128 256 512 1 2 | ".

Tensors that follow from ranges, constants and scalars alone are computed in each layout in which they are needed. Other
tensors are computed once, in their primary layout, and converted where another one is needed: just before the first
use, and before a cast to a wider type. Loops carry indices and pointers in each layout in which they are used.
"""

from __future__ import annotations

from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS, CompileOptions
from ziggurat.transforms.place.layout_plan import LayoutPlan
from ziggurat.transforms.place.primary_layouts import Anchor
from ziggurat.transforms.place.relayout import relaid


def assign(
    module: core.Module, options: CompileOptions = DEFAULT_OPTIONS, anchor: Anchor = lambda op: None
) -> gpu.Module:
    """The GPU model of a prepared Triton model: each tensor with a layout, and as few conversions as possible.

    `anchor` may give the layout of the result of a `tt.dot` (or of a descriptor load); None lets this step choose.
    Raises `InternalError` for a module that has not been prepared.
    """
    func = _kernel(module)
    plan = LayoutPlan(func, options.num_warps, anchor)
    return relaid(func, plan, options.target, options.num_warps)


def _kernel(module: core.Module) -> tt.Func:
    functions = list(module.functions().values())
    if len(functions) != 1 or not isinstance(functions[0], tt.Func):
        raise InternalError("layouts are assigned to a module of one tt.func; prepare it first", str(module))
    return functions[0]
