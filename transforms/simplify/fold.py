"""Constant folding: replace ops by constants or by one of their operands.

`codemodel/numbers.py` computes numbers, and `identities.py` holds the algebraic identities. This file folds tuples,
masked accesses, and control flow whose condition or bounds are constants. An op on constants is not folded

* where it is undefined: a division by zero, a shift by the width or more, a float that does not fit an integer;
* where the result depends on the library that computes it: exp, sin and the like are folded only at the points where
  they are exact;
* where a constant cannot hold the bits of the result, such as those of a NaN.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

from ziggurat.codemodel.dialects import arith, cf, core, py, scf, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.fixpoint import fixpoint
from ziggurat.codemodel.numbers import ELEMENTWISE, Number, on_numbers, rounded_number
from ziggurat.codemodel.op import Op, Value, constant_of
from ziggurat.codemodel.python_operators import OPERATORS
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, Transformer
from ziggurat.codemodel.types import ScalarType, element_of, pyobject
from ziggurat.transforms.simplify.identities import constant, same_number, simpler


def fold(op: Op) -> Op:
    """Fold constants and identities to a fixpoint. Ops that become unused stay; `dce` removes them.

        %1 : i32 = arith.constant @4;                    %1 : i32 = arith.constant @4;
        %2 : i32 = arith.constant @16;                   %2 : i32 = arith.constant @16;
        %3 : i32 = arith.muli %1 %2;                     %3 : i32 = arith.constant @64;
        %4 : tensor<x8, i32> = tt.splat %3;              %4 : tensor<x8, i32> = arith.constant @64;
        %5 : i1 = arith.cmpi %1 %2 @slt;                 %5 : i1 = arith.constant @true;
        %6 : i32 = scf.if %5                             %6 : i32 = arith.addi %0 %3;
            ()i32 -> {                                   tt.return %6;
                %7 : i32 = arith.addi %0 %3;
                scf.yield %7;
            }
            ()i32 -> { scf.yield %1; };
        tt.return %6;

    A loop-carried value that no iteration changes becomes the initial one. A result of `scf.if` that is the same in
    both branches becomes that value. Returns `op` itself if there is nothing to fold.
    """
    return fixpoint(op, lambda op, operands: _FOLDING, pass_name="fold")


def folding(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    """The transformer of `fold`, for one level."""
    if isinstance(op, arith.ConstantOp):
        return None
    if isinstance(op, scf.If):
        return _fold_if(builder, op, operands)
    if isinstance(op, scf.For):
        return _fold_for(builder, op, operands)
    if isinstance(op, scf.While):
        return _fold_while(builder, op, operands)
    if isinstance(op, core.TupleLoad):
        return _component(builder, operands[0], op.index)
    if isinstance(op, tt.DescriptorFact):
        return _fact(op, operands[0])
    if isinstance(op, tt.Load | tt.Store):
        return _masked(builder, op, operands)
    if isinstance(op, tt.Assume | tt.Assert | cf.AssertOp):
        return DROP if constant_of(operands[0]) is True else None
    if type(op) in OPERATORS:
        return _operated(builder, op, operands)
    return _computed(builder, op, operands) or simpler(builder, op, operands)


_PLAIN = (bool, int, float, str)
_MAX_BITS = 64  # Of integers, and the number of characters of strings, that operators of Python are folded for.


def _operated(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
    """The result of an operator of Python on numbers and strings, whose methods are known. An error is left to the run,
    and so is the identity of objects."""
    contents = [constant_of(value) for value in operands]
    if isinstance(op, py.Is | py.IsNot) or any(
        type(content) not in _PLAIN
        or (isinstance(content, int) and content.bit_length() > _MAX_BITS)
        or (isinstance(content, str) and len(content) > _MAX_BITS)
        for content in contents
    ):
        return None
    is_text = any(isinstance(content, str) for content in contents)
    most = max((content for content in contents if isinstance(content, int)), default=0)
    is_large = most > _MAX_BITS and (is_text or isinstance(op, py.Pow | py.Shl))
    if is_large or (is_text and isinstance(op, py.Mod)):  # A format may ask for any number of characters.
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = OPERATORS[type(op)].function(*contents)
    except Exception:
        return None
    return builder.add(core.ConstantOp(result, pyobject)) if type(result) in _PLAIN else None


_FOLDING: tuple[Transformer, ...] = (folding,)


def _computed(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
    """The result of an elementwise op on constants."""
    if not operands or op.bodies:
        return None
    numbers: list[Number] = []
    for value in operands:
        number = constant_of(value)
        if number is None:
            return None
        numbers.append(number)
    result = evaluate(op, tuple(numbers))
    return None if result is None else constant(builder, result, op.result.type)


# Numbers.


def evaluate(op: Op, numbers: tuple[Number, ...]) -> Number | None:
    """The result of an elementwise op whose operands are these numbers (of tensors: each element is), or None.

    >>> from ziggurat.codemodel.types import i8
    >>> a = arith.ConstantOp(100, type=i8)
    >>> evaluate(arith.AddI(a.result, a.result), (100, 100))
    -56
    """
    target = element_of(op.result.type)
    if not isinstance(op, ELEMENTWISE) or not isinstance(target, ScalarType):
        return None
    arguments: list[Number] = []
    for value, number in zip(op.operands, numbers, strict=True):
        type_ = element_of(value.type)
        if not isinstance(type_, ScalarType):
            return None
        arguments.append(rounded_number(number, type_) if type_.is_float else number)
    if not _is_certain(op, arguments, target):
        return None
    result: Number = on_numbers(op, arguments)
    if target.is_float and isinstance(op, arith.Bitcast | arith.NegF | maths.AbsF):
        # The sign and the bits of a NaN count here; and an infinity of a type that saturates is no constant.
        return result if math.isfinite(result) or (math.isinf(result) and not target.saturates) else None
    return result


def _is_certain(op: Op, numbers: list[Number], target: ScalarType) -> bool:
    """Whether the op is defined on these numbers, and exact."""
    match op:
        case arith.DivSI() | arith.DivUI():
            return numbers[1] != 0 and (numbers[1] != -1 or numbers[0] != target.limits[0])
        case arith.RemSI() | arith.RemUI():
            return numbers[1] != 0
        case arith.ShlI() | arith.ShrSI() | arith.ShrUI():
            return 0 <= numbers[1] < target.bits
        case arith.FPToSI() | arith.FPToUI():
            low, high = target.limits
            return math.isfinite(numbers[0]) and low <= math.trunc(numbers[0]) <= high
        case arith.Bitcast():
            return not math.isnan(numbers[0])
        case _:
            return type(op) not in _EXACT_AT or _EXACT_AT[type(op)](float(numbers[0]))


def _is_even_power_of_two(x: float) -> bool:
    return 0.0 < x < math.inf and math.frexp(x)[0] == 0.5 and math.frexp(x)[1] % 2 == 1


# The points at which a function whose last digits differ from target to target is exact on all of them.
_EXACT_AT: dict[type[Op], Callable[[float], bool]] = {
    maths.Exp: lambda x: x == 0.0,
    maths.Exp2: lambda x: -126 <= x <= 127 and x == int(x),
    maths.Log: lambda x: x == 1.0,
    maths.Log2: lambda x: 0.0 < x < math.inf and math.frexp(x)[0] == 0.5,
    maths.Rsqrt: _is_even_power_of_two,
    maths.Cos: lambda x: x == 0.0,
    maths.Sin: lambda x: False,
    maths.Tanh: lambda x: False,
    maths.Erf: lambda x: False,
    maths.Approximate: lambda x: False,
}


# Control flow.


def _fold_if(builder: Rewriter, op: scf.If, operands: tuple[Value, ...]) -> Outcome:
    condition = constant_of(operands[0])
    if condition is not None:
        branch = op.then if condition else op.otherwise
        terminator = branch.entry.terminator
        if len(branch.blocks) == 1 and isinstance(terminator, scf.Yield):
            builder.rewrite_ops(branch.entry.ops[:-1])
            return _packed(builder, [builder[value] for value in terminator.values])
    same = _same_in_both_branches(op)
    if len(same) == 1 and same[0] is not None and op.result.uses:
        builder.copy(op, operands)
        return _again(builder, builder.mapping.get(same[0]) or same[0])
    return None


def _fold_for(builder: Rewriter, op: scf.For, operands: tuple[Value, ...]) -> Outcome:
    if _never_runs(operands[0], operands[1], operands[2]):
        return _packed(builder, operands[3:])
    return _with_unchanged(builder, op, operands)


def _fold_while(builder: Rewriter, op: scf.While, operands: tuple[Value, ...]) -> Outcome:
    terminator = op.before.entry.terminator
    once = isinstance(terminator, scf.Condition) and constant_of(terminator.condition) is False
    if once and len(op.before.blocks) == 1:
        builder.mapping.values.update(zip(op.before.parameters, operands, strict=True))
        builder.rewrite_ops(op.before.entry.ops[:-1])
        return _packed(builder, [builder[value] for value in terminator.operands[1:]])
    return _with_unchanged(builder, op, operands)


def _never_runs(start: Value, stop: Value, step: Value) -> bool:
    """Whether a loop is known to run no iteration."""
    by = constant_of(step)
    if not by:
        return False
    if start is stop:
        return True
    first, last = constant_of(start), constant_of(stop)
    return first is not None and last is not None and (first >= last if by > 0 else first <= last)


def _with_unchanged(builder: Rewriter, op: Structured, operands: tuple[Value, ...]) -> Outcome:
    """The loop, its bodies using the initial values in place of the carried values that no iteration changes.

    They are still carried; `dce` removes them.
    """
    initial = operands[op.CONTROLS :]
    unchanged = [index for index in range(len(initial)) if _is_unchanged(op, index)]
    values = {op.entry_arguments(body)[i]: initial[i] for i in unchanged for body in op.bodies}
    result_known = bool(unchanged) and len(initial) == 1
    if not any(parameter.uses for parameter in values) and not (result_known and op.result.uses):
        return None
    bodies = [builder.rewrite_body(body, mapping=values) for body in op.bodies]
    new = builder.add(op.SPEC.copy(op, operands, (), bodies, op.result.type), op.location)
    return initial[0] if result_known else new


def _is_unchanged(op: Structured, index: int) -> bool:
    """Whether each body yields its carried parameter `index`, or the initial value."""
    return all(
        terminator.handed[index] in (op.entry_arguments(body)[index], op.inits[index])
        for body in op.bodies
        for terminator in op.terminators(body)
    )


def _same_in_both_branches(op: scf.If) -> list[Value | None]:
    """For each result of the `scf.if`, the value that both branches yield, or None. Equal constants count as one."""

    def alike(first: Value, value: Value) -> bool:
        number = constant_of(first)
        return value is first or (number is not None and same_number(constant_of(value), number))

    pairs = zip(*(terminator.handed for terminator in op.terminators()), strict=True)
    return [first if all(alike(first, value) for value in rest) else None for first, *rest in pairs]


def _again(builder: Rewriter, value: Value) -> Value:
    """A value usable at the insertion point: a constant from inside a body is built again."""
    number = constant_of(value)
    return value if number is None else constant(builder, number, value.type)


def _packed(builder: Rewriter, values: Sequence[Value]) -> Outcome:
    """Values as the result of an `scf` op: none, one, or a tuple."""
    if not values:
        return DROP
    return values[0] if len(values) == 1 else builder.add(core.MakeTuple(tuple(values)))


def _component(builder: Rewriter, source: Value, index: int) -> Value | None:
    """Component `index` of a tuple in the new model, or None if it is unknown."""
    op = source.op
    if isinstance(op, core.MakeTuple):
        return op.components[index]
    if isinstance(op, core.TupleWith):
        if op.index == index:
            return op.value
        return _component(builder, op.tuple, index) or builder.add(core.TupleLoad(op.tuple, index))
    if isinstance(op, scf.For | scf.While) and len(op.inits) > 1:
        return op.inits[index] if _is_unchanged(op, index) else None
    if isinstance(op, scf.If):
        same = _same_in_both_branches(op)
        if len(same) > 1 and (value := same[index]) is not None:
            return _again(builder, value)
    return None


def _fact(op: tt.DescriptorFact, descriptor: Value) -> Value | None:
    """The size or stride from which the descriptor is made, if it is made in the function."""
    if not isinstance(descriptor.op, tt.MakeTensorDescriptor):
        return None
    maker = descriptor.op
    return (maker.shape if isinstance(op, tt.DescriptorSize) else maker.strides)[op.axis]


def _masked(builder: Rewriter, op: tt.Load | tt.Store, operands: tuple[Value, ...]) -> Outcome:
    """A load or store with a constant mask: unmasked, or removed."""
    if op.mask is None:
        return None
    place = 1 if isinstance(op, tt.Load) else 2
    mask = constant_of(operands[place])
    if mask is None:
        return None
    if mask:
        return builder.add(op.SPEC.make(operands[:place], (), dict(op.attributes), (), op.result.type), op.location)
    if isinstance(op, tt.Store):
        return DROP
    return operands[2] if op.other is not None else builder.add(tt.Poison(type=op.result.type))
