"""Preparation: one simplified kernel without calls, whose dots have accumulators as the matrix units do.

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

becomes, in a module with only the kernel,

        %7 : f32 = arith.constant @0.5;
        %8 : f32 = arith.mulf %3 %7;
        %9 : tensor<x16, x16, f32> = tt.dot %5 %6 %4;

Loops and branches that are left by a `return`, that hold blocks, or that call a function of several blocks, become
blocks; all others stay structured.
"""

from __future__ import annotations

from ziggurat.codemodel.dialects import arith, cf, core, scf, tt
from ziggurat.codemodel.errors import InternalError, KernelTypeError, LaunchError
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.traits import Returns
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    ScalarType,
    TupleType,
    bf16,
    element_of,
    f16,
    f32,
    f64,
    i32,
    i64,
    scalar_element,
    shape_of,
    void,
)
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.obstacle import warn
from ziggurat.transforms.analysis.queries import constant_of
from ziggurat.transforms.simplify import dce, inline, lower_structured, simplify
from ziggurat.transforms.trip_count import trip_count

_DEPTH_OF_16_BITS = 16  # The k of the matrix units' instructions.
_FUSED: tuple[ScalarType, ...] = (f32, f64, i32)  # An f16 accumulator would be rounded once less.


def prepare(module: Op) -> core.Module:
    """The module with only the kernel, all calls inlined, simplified; a sum with a dot becomes the dot's third operand.

    Raises `VerifyError` for a recursive call; and `KernelTypeError` or `LaunchError` for
    models that no kernel gives, but that may be written by hand.
    """
    op = simplify(lower_structured(_inlinable(module), _has_blocks))
    while calls := [inner for inner in op.walk() if isinstance(inner, tt.Call)]:
        # The callees that are left have several blocks, and are called within a loop or a branch.
        flat = lower_structured(op, _holds_call)
        inlined_model = inline(flat)
        if inlined_model is op or len(calls) <= sum(isinstance(inner, tt.Call) for inner in inlined_model.walk()):
            verify(op)
            raise InternalError(f"the call of '{calls[0].callee}' cannot be inlined", str(op))
        op = simplify(inlined_model)
    op = expect(dce(fuse_dots(op)), core.Module)
    _check_tuples(op)
    return _only_kernel(op)


def prepare_for_gpu(module: Op) -> core.Module:
    """The module prepared, with dots of narrow operands, and loops that can be pipelined. Options of loops that code
    for GPUs ignores give a warning."""
    _warn_of_ignored_options(module)
    return expect(dce(number_loops(narrow_dots(prepare(module)))), core.Module)


def _warn_of_ignored_options(module: Op) -> None:
    """Warn of the options of loops that only Triton's own compiler knows, but for `flatten`, which is only a hint."""
    for op in module.walk():
        if isinstance(op, scf.For):
            unroll = {"loop_unroll_factor": op.loop_unroll_factor not in (None, 1)}
            options = {**unroll, "disallow_acc_multi_buffer": op.disallow_acc_multi_buffer}
            for name in (name for name, option in options.items() if option):
                warn(f"the option {name} of range is ignored: code for GPUs is made without it", op.location)


def fuse_dots(op: Op) -> Op:
    """The model in which a dot from zero that is only added (f32, f64, i32) in its block starts from the other term."""

    def fuse(builder: Rewriter, inner: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(inner, arith.AddF | arith.AddI) or element_of(inner.result.type) not in _FUSED:
            return None
        for value, start in ((inner.rhs, operands[0]), (inner.lhs, operands[1])):
            dot = value.op if len(value.uses) == 1 else None
            if isinstance(dot, tt.Dot) and dot.parent is inner.parent and constant_of(dot.c) == 0:
                if inner.lhs is inner.rhs:
                    return None
                return builder.copy(dot, (builder[dot.a], builder[dot.b], start))
        return None

    return transform(op, fuse, pass_name="prepare") if op.holds(tt.Dot) else op


def narrow_dots(op: Op) -> Op:
    """The model in which a dot of f32 whose operands were f16, or bf16, multiplies these: the products are the same,
    and the matrix units add them in f32 alike. A dot of IEEE precision stays, as they do not round each sum.
    """

    def narrow(builder: Rewriter, dot: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(dot, tt.Dot) or dot.input_precision is tt.InputPrecision.IEEE:
            return None
        a, b = _before_extension(dot.a), _before_extension(dot.b)
        if a is None or b is None or scalar_element(a.type) != scalar_element(b.type):
            return None
        if shape_of(dot.a.type)[-1] < _DEPTH_OF_16_BITS:
            return None
        return builder.add(tt.Dot(_narrow(builder, dot.a), _narrow(builder, dot.b), operands[2]), dot.location)

    return transform(op, narrow, pass_name="prepare") if op.holds(tt.Dot) else op


def _before_extension(value: Value) -> Value | None:
    """The f16 or bf16 that an f32 is, maybe transposed; None if it may be another number."""
    while isinstance(value.op, tt.Trans):
        value = value.op.value
    if not isinstance(value.op, arith.ExtF) or scalar_element(value.type) != f32:
        return None
    return value.op.operand if scalar_element(value.op.operand.type) in (f16, bf16) else None


def _narrow(builder: Rewriter, value: Value) -> Value:
    """The value before its extension, transposed as the value is."""
    if isinstance(value.op, tt.Trans):
        return builder.add(tt.Trans(_narrow(builder, value.op.value), value.op.order))
    assert isinstance(value.op, arith.ExtF)
    return builder[value.op.operand]


def number_loops(op: Op) -> Op:
    """The model in which loops with a run-time step count their iterations by one, if they have dots or ask for stages:
    only such loops are pipelined.

    scf.for %start %stop %step (%i : i32)… -> {        %n : i32 = …;  the number of iterations
        …                                               scf.for %0 %n %1 (%k : i32)… -> {
                                                            %i : i32 = arith.addi %start %k * %step; …
    """

    def number(builder: Rewriter, loop: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(loop, scf.For) or not _steps_at_run_time(loop):
            return None
        start, stop, step = operands[:3]
        count = trip_count(lambda new: builder.add(new, loop.location), start, stop, step)
        zero, unit = (builder.add(arith.ConstantOp(value, type=start.type)) for value in (0, 1))
        inner = builder.inside([parameter.type for parameter in loop.body.parameters], loop.body.yield_type)
        index = inner.add(arith.AddI(start, inner.add(arith.MulI(inner.parameters[0], step))))
        for old, new in zip(loop.body.parameters, (index, *inner.parameters[1:]), strict=True):
            inner[old] = new
        inner.rewrite_ops(loop.body.entry.ops)
        return builder.add(
            loop.SPEC.copy(loop, (zero, count, unit, *operands[3:]), (), [inner.finish()], loop.result.type)
        )

    return transform(op, number, pass_name="prepare") if any(map(_steps_at_run_time, op.walk())) else op


def _steps_at_run_time(op: Op) -> bool:
    if not isinstance(op, scf.For) or constant_of(op.step) is not None or op.start.type not in (i32, i64):
        return False
    loads = (tt.Load, tt.DescriptorLoad) if (op.num_stages or 0) > 1 else ()
    return len(op.body.blocks) == 1 and any(isinstance(inner, (tt.Dot, *loads)) for inner in op.body.entry.ops)


def _inlinable(module: Op) -> Op:
    """The module without `noinline`, which concerns the Triton model only: a GPU model has no calls."""
    if not any(isinstance(op, tt.Func) and op.noinline for op in module.walk()):
        return module

    def allow(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, tt.Func) or not op.noinline:
            return None
        return builder.add(op.evolve(body=builder.rewrite_body(op.body, isolated=True), noinline=False), op.location)

    return transform(module, allow)


def _has_blocks(op: Op) -> bool:
    """Whether a loop or a branch has no structured form: it may leave its function, or holds blocks."""
    return op.holds((Returns, cf.Br, cf.CondBr))


def _holds_call(op: Op) -> bool:
    return any(isinstance(inner, tt.Call) for body in op.bodies for inner in body.walk())


def _check_tuples(module: core.Module) -> None:
    """Raise `KernelTypeError` if control flow carries a Tuple as one value, not as its components."""
    for op in module.walk():
        if op.NAME.startswith(("scf.", "cf.")) and any(isinstance(v.type, TupleType) for v in op.all_operands()):
            raise KernelTypeError(
                f"{op.NAME} must carry the components of a Tuple one by one; got a Tuple as one value",
                op.location,
                hint="carry its components",
            )


def _only_kernel(module: core.Module) -> core.Module:
    """The module, if it has one kernel; raises `LaunchError` otherwise, and `KernelTypeError` for a function that
    takes or gives what a launch does not pass."""
    functions = module.functions()
    if len(functions) != 1:
        raise LaunchError(
            f"a module to compile must have one kernel; got {len(functions)}: {', '.join(functions)}",
            hint="make a module of one of them",
        )
    ((name, function),) = functions.items()
    (body,) = function.bodies
    if body.yield_type != void:
        raise KernelTypeError(
            f"the kernel '{name}' returns {body.yield_type}: a kernel returns nothing",
            function.location,
            hint="store results through a pointer",
        )
    for number, parameter in enumerate(body.parameters):
        if not isinstance(parameter.type, ScalarType | PtrType | DescriptorType):
            raise KernelTypeError(
                f"parameter {number} of the kernel '{name}' is of type {parameter.type}, which no launch passes",
                function.location,
                hint="take scalars, pointers and descriptors, and load tensors through them",
            )
    return module
