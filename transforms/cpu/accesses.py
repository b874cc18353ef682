"""Loads and stores whose pointers are affine: `tt.load` and `tt.store` become `cpu.load` and `cpu.store`.

%13 : tensor<x1024, ptr<f32>> = tt.addptr …;         %20 : i64 = …;                      1024 · program, in i64
%15 : tensor<x1024, i1> = arith.cmpi … @slt;         %21 : ptr<f32> = tt.addptr %0 %20;
%16 : tensor<x1024, f32> = tt.load %13 %15;          %24 : i1 = …;                       no index wraps around
                                                     %27 : i64 = …;                      n - 1024 · program
                                                     %28 : access<x1024, f32> = cpu.access %21 %24 %26 %27;
                                                     %16 : tensor<x1024, f32> = cpu.load %28 %13 %15;
"""

from __future__ import annotations

from ziggurat.codemodel.dialects import cpu, tt
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, scalar_element
from ziggurat.transforms.cpu.affine import Affine


def raise_accesses(module: Op) -> Op:
    """The module with affine accesses where the pointers have such a form."""
    return transform(module, _raised, pass_name="accesses")


def _raised(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    if not isinstance(op, tt.Load | tt.Store) or not isinstance(op.ptr.type, TensorType):
        return None
    if isinstance(op, tt.Load) and op.volatile:
        return None
    access = _access(builder, op, operands[0], op.mask and operands[1 if isinstance(op, tt.Load) else 2])
    if access is None:
        return None
    if isinstance(op, tt.Load):
        return builder.add(cpu.Load(access, *operands))
    builder.add(cpu.Store(access, operands[0], operands[1], operands[2] if op.mask is not None else None))
    return DROP


def _access(builder: Rewriter, op: tt.Load | tt.Store, ptr: Value, mask: Value | None) -> Value | None:
    affine = Affine(builder)
    pointers = affine.pointers(ptr)
    type_ = expect(ptr.type, TensorType)
    if pointers is None:
        return None
    base, form = pointers
    lane = max((axis for axis, size in enumerate(type_.shape) if size > 1), default=0)
    step = form.strides[lane]
    operands = (0, 1) if isinstance(op, tt.Load) else (1,)
    if isinstance(step, int) and step not in operands and type_.shape[lane] > 1:
        return None  # Gathers are faster than a copy element by element; stores to one address have an order.
    counts, exact = affine.counts(mask) if mask is not None else (list(type_.shape), True)
    start = builder.add(tt.AddPtr(base, affine.value(form.base)))
    strides = [affine.value(stride) for stride in form.strides]
    limits = [affine.value(count) for count in counts]
    value = op.result if isinstance(op, tt.Load) else op.value
    kind = cpu.AccessType(type_.shape, scalar_element(value.type))
    return builder.add(cpu.Access(start, affine.guard(), strides, limits, kind, part=not exact))
