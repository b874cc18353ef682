"""Preparation: one kernel without calls, simplified, with sums of products as the matrix units compute them.

    tt.func @"half_f32_f32" (%0 : f32)f32 -> {
        %1 : f32 = arith.constant @0.5;
        %2 : f32 = arith.mulf %0 %1;
        tt.return %2;
    };
    …
        %7 : f32 = tt.call %3 @"half_f32_f32";
        %8 : tensor<x16, x16, f32> = arith.constant @0.0;
        %9 : tensor<x16, x16, f32> = tt.dot %5 %6 %8;
        %10 : tensor<x16, x16, f32> = arith.addf %4 %9;

becomes, in a module with nothing but the kernel,

        %7 : f32 = arith.constant @0.5;
        %8 : f32 = arith.mulf %3 %7;
        %9 : tensor<x16, x16, f32> = tt.dot %5 %6 %4;

Loops and branches that are left by a `return`, or that call a function of several blocks, become blocks; all others
stay structured.
"""

from __future__ import annotations

from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.errors import InternalError, KernelTypeError, LaunchError
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.traits import Returns
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import ScalarType, TupleType, element_of, f32, f64, i32
from ziggurat.transforms.simplify import dce, inline, lower_structured, simplify

_FUSED: tuple[ScalarType, ...] = (f32, f64, i32)  # An f16 sum would be rounded once less.


def prepare(module: Op) -> core.Module:
    """The module with only the kernel, all calls inlined, simplified; a sum with a dot becomes the dot's third operand.

    Raises `InternalError` naming the callee where a call cannot be inlined: it is recursive; and `KernelTypeError` or
    `LaunchError` for models that no kernel gives, but that may be written by hand.
    """
    op = simplify(lower_structured(_inlinable(module), _returns_early))
    while calls := [inner for inner in op.walk() if isinstance(inner, tt.Call)]:
        # What is left is called from within a loop or a branch, and has several blocks.
        flat = lower_structured(op, _holds_call)
        made = inline(flat)
        if made is op or len(calls) <= sum(isinstance(inner, tt.Call) for inner in made.walk()):
            raise InternalError(f"the call of '{calls[0].callee}' cannot be inlined", str(op))
        op = simplify(made)
    op = dce(fuse_dots(op))
    assert isinstance(op, core.Module)
    _no_tuple_handed_on(op)
    return _only_kernel(op)


def fuse_dots(op: Op) -> Op:
    """Where a dot from zero is only used in a sum (f32, f64, i32) of the same block, start it from the other term."""

    def fuse(builder: Rewriter, inner: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(inner, arith.AddF | arith.AddI) or element_of(inner.result.type) not in _FUSED:
            return None
        for value, start in ((inner.rhs, operands[0]), (inner.lhs, operands[1])):
            dot = value.op if isinstance(value, OpResult) else None
            if isinstance(dot, tt.Dot) and dot.parent is inner.parent and _is_zero(dot.c) and len(value.uses) == 1:
                if inner.lhs is inner.rhs:
                    return None
                return builder.copy(dot, (builder[dot.a], builder[dot.b], start))
        return None

    return transform(op, fuse, pass_name="prepare")


def _is_zero(value: Value) -> bool:
    while isinstance(value, OpResult) and isinstance(value.op, tt.Splat | tt.Broadcast):
        value = value.op.value
    return isinstance(value, OpResult) and isinstance(value.op, arith.ConstantOp) and value.op.value == 0


def _inlinable(module: Op) -> Op:
    """The module without `noinline`, which is for the printed Triton model: a GPU model has no calls."""
    if not any(isinstance(op, tt.Func) and op.noinline for op in module.walk()):
        return module

    def allow(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, tt.Func) or not op.noinline:
            return None
        body = builder.rewrite_body(op.body, isolated=True)
        return builder.add(tt.Func(op.sym_name, body, divisibility=op.divisibility), op.location)

    return transform(module, allow)


def _returns_early(op: Op) -> bool:
    """Whether the op, a loop or a branch, may leave its function."""
    return any(isinstance(inner, Returns) for body in op.bodies for inner in body.walk())


def _holds_call(op: Op) -> bool:
    return any(isinstance(inner, tt.Call) for body in op.bodies for inner in body.walk())


def _no_tuple_handed_on(module: core.Module) -> None:
    """Loops, branches and blocks hand on numbers, pointers and tensors: Tuples one by one component."""
    for op in module.walk():
        if op.NAME.startswith(("scf.", "cf.")) and any(isinstance(v.type, TupleType) for v in op.all_operands()):
            raise KernelTypeError(
                f"{op.NAME} hands on a Tuple as one value, which is not compiled",
                op.location,
                hint="hand on its components",
            )


def _only_kernel(module: core.Module) -> core.Module:
    """The module, in which after inlining there is nothing but one kernel."""
    functions = list(module.functions())
    if len(functions) != 1:
        raise LaunchError(
            f"a module to compile has one kernel, not {len(functions)}: {', '.join(functions)}",
            hint="make a module of the one that is meant",
        )
    return module
