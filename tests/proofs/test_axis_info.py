"""Each rule of `axis_info` keeps the facts true: if those about the operands hold, those about the result do.

For the rules of arithmetic, all rows of four numbers are covered, and pairs of facts of all kinds. Types have 8 bits,
and 6 for products and quotients; the rules depend on the width by the largest number alone.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import pytest
import z3
from axis_claims import Facts, Numbers, prove_rule
from meanings import meaning
from planted import edit, must_find
from proving import Refuted

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import (
    PtrType,
    ScalarType,
    TensorType,
    Type,
    element_of,
    f16,
    f32,
    i1,
    i8,
    i16,
    i32,
    i64,
    shape_of,
    u8,
    u16,
)  # fmt: skip
from ziggurat.transforms.analysis import axis_info
from ziggurat.transforms.analysis.axis_info import analyse, infer, known, meet

SIZE = 4
# The length of runs of consecutive numbers, a divisor of the first of each, and the length of runs of equal numbers.
RUNS = ((1, 1, 1), (1, 2, 1), (1, 16, 1), (2, 4, 1), (4, 1, 1), (4, 2, 1), (4, 8, 1), (1, 2, 2), (1, 1, 4), (1, 8, 4))
MAGNITUDES = (3, 20)
i6, u6 = ScalarType("i6", "int", 6), ScalarType("u6", "int", 6, False)


def row(element: ScalarType | PtrType) -> TensorType:
    return TensorType((SIZE,), element)


@functools.cache
def facts(type_: Type) -> Facts:
    """Facts of all kinds about integers of a type."""
    element = element_of(type_)
    assert isinstance(element, ScalarType)
    least, most = element.limits
    signs = (False, True) if least < 0 else (False,)
    infos = [known(type_, (c,), (d,), (k,), nonnegative=sign) for c, d, k in RUNS for sign in signs]
    for magnitude, sign in itertools.product(MAGNITUDES, signs):
        infos.append(known(type_, (4,), (2,), nonnegative=sign, magnitude=magnitude))
        infos.append(known(type_, (), (), (4,), nonnegative=sign, magnitude=magnitude))
    numbers = {0, 1, 2, 3, 6, 8, element.bits - 1, -1, -2, -8, least, most, most - 1, most // 2 + 1}
    infos += [known(type_, constant=number) for number in sorted(numbers) if least <= number <= most]
    return list(dict.fromkeys(infos))


def numbers_of(name: str, type_: Type, wrap: int = 0, bits: int = 0) -> Numbers:
    """Symbols for the elements of a value."""
    element, count = element_of(type_), math.prod(shape_of(type_))
    bits = bits or (element.bits if isinstance(element, ScalarType) else 16)
    return Numbers(type_, [z3.BitVec(f"{name}{at}", bits) for at in range(count)], wrap)


def prove_elementwise(op: Op, wrap: int = 0, facts: Callable[[Type], Facts] = facts) -> int:
    """Prove the rule of an op whose operands are parameters. The number of choices among facts."""
    operands = [numbers_of(f"{place}.", value.type, wrap) for place, value in enumerate(op.operands)]
    rows = [number.terms * (SIZE // len(number.terms)) for number in operands]
    terms = [meaning(op, *column) for column in zip(*rows, strict=True)]
    bits = terms[0].size()
    if isinstance(op, arith.Cast):  # Runs of the result wrap around where those of the operand do.
        wrap = min(wrap or operands[0].bits, bits)
    result = Numbers(op.result.type, terms, wrap)
    # Division by 0 is undefined; strict mode reports it.
    assumptions = [y != 0 for y in rows[1]] if isinstance(op, DIVISIONS) else []
    every = [(number, facts(number.type)) for number in operands]
    return prove_rule(lambda *infos: infer(op, infos), every, result, assumptions)


DIVISIONS = (arith.DivSI, arith.RemSI, arith.DivUI, arith.RemUI)
HARD = (arith.MulI, *DIVISIONS)
BINARY = (
    arith.AddI, arith.SubI, arith.MulI, arith.AndI, arith.OrI, arith.XOrI, arith.ShlI, arith.ShrSI, arith.ShrUI,
    *DIVISIONS, arith.MaxSI, arith.MinSI, arith.MaxUI, arith.MinUI,
)  # fmt: skip


def binary(cls: type[arith.IntBinary], element: ScalarType) -> Op:
    return cls(*Builder.root([row(element)] * 2).parameters)


def takes(cls: type[arith.IntBinary], element: ScalarType) -> bool:
    """Whether an op takes numbers of this type."""
    return not issubclass(cls, arith.UnsignedBinary if element.limits[0] < 0 else arith.SignedBinary)


ARITHMETIC = [
    pytest.param(cls, narrow if cls in HARD else wide, id=f"{cls.NAME}-{narrow if cls in HARD else wide}")
    for cls in BINARY
    for wide, narrow in ((i8, i6), (u8, u6))
    if takes(cls, wide)
]


@pytest.mark.parametrize(("cls", "element"), ARITHMETIC)
def test_arithmetic(cls: type[arith.IntBinary], element: ScalarType) -> None:
    assert prove_elementwise(binary(cls, element)) == len(facts(row(element))) ** 2


def runs(type_: Type) -> Facts:
    """Facts about runs that are longer than what is known of their first numbers says, so that they may wrap around."""
    signs = (False, True) if element_of(type_).limits[0] < 0 else (False,)
    infos = [known(type_, (c,), (d,), (), nonnegative=sign) for c, d in ((4, 1), (4, 2), (2, 1)) for sign in signs]
    numbers = [known(type_, constant=number) for number in (0, 3, 4, 6)]
    return [*infos, *numbers, known(type_, (), (2,), (4,)), known(type_, (), (4,), (2,))]


@pytest.mark.parametrize(("cls", "element"), ARITHMETIC)
def test_runs_that_wrap_around_in_a_narrower_type(cls: type[arith.IntBinary], element: ScalarType) -> None:
    """They were cast from a type of 4 bits."""
    assert prove_elementwise(binary(cls, element), wrap=4, facts=runs)


@pytest.mark.parametrize("element", [i8, u8, i1], ids=str)
@pytest.mark.parametrize("predicate", IntPredicate, ids=lambda predicate: predicate.value)
def test_comparisons(predicate: IntPredicate, element: ScalarType) -> None:
    sign = predicate.value[0]
    if sign in "su" and (sign == "s") != (element.limits[0] < 0):
        return  # Numbers of the other sign.
    prove_elementwise(arith.CmpI(*Builder.root([row(element)] * 2).parameters, predicate))


@pytest.mark.parametrize("cls", [arith.AndI, arith.OrI, arith.XOrI], ids=lambda cls: cls.NAME)
def test_truth_values(cls: type[arith.IntBinary]) -> None:
    prove_elementwise(binary(cls, i1))


@pytest.mark.parametrize("element", [i8, u8], ids=str)
@pytest.mark.parametrize("cls", [maths.AbsI, maths.CtPop, maths.CtLz, maths.BitReverse], ids=lambda cls: cls.NAME)
def test_one_operand(cls: Callable[[Any], Op], element: ScalarType) -> None:
    """The ops that have no rule keep what is equal."""
    prove_elementwise(cls(*Builder.root([row(element)]).parameters))


CASTS = [
    pytest.param(cls, source, target, id=f"{cls.NAME}-{source}-{target}")
    for cls, source, target in itertools.product(
        (arith.ExtSI, arith.ExtUI, arith.TruncI, arith.Bitcast), (i1, i8, u8, i16), (i1, i8, u8, i16, u16)
    )
    if (source.bits < target.bits) == issubclass(cls, arith.ExtSI | arith.ExtUI)
    and (source.bits > target.bits) == issubclass(cls, arith.TruncI)
]


@pytest.mark.parametrize(("cls", "source", "target"), CASTS)
def test_casts(cls: type[arith.Cast], source: ScalarType, target: ScalarType) -> None:
    (value,) = Builder.root([row(source)]).parameters
    op = cls(value, type=row(target))
    prove_elementwise(op)
    if source.bits > 1:
        prove_elementwise(op, wrap=4)


@pytest.mark.parametrize("element", [i8, u8], ids=str)
@pytest.mark.parametrize("condition", [row(i1), i1], ids=["of-each", "of-all"])
def test_choices(condition: Type, element: ScalarType) -> None:
    op = arith.Select(*Builder.root([condition, row(element), row(element)]).parameters)
    prove_elementwise(op, facts=lambda type_: facts(type_)[:: 1 if element_of(type_) == i1 else 3])


# Sources.


@pytest.mark.parametrize("start", [0, 1, 4, 6, 16, 1000])
@pytest.mark.parametrize("size", [1, 4, 16])
def test_ranges(start: int, size: int) -> None:
    op = tt.MakeRange(start, start + size)
    result = Numbers(op.result.type, [z3.BitVecVal(start + at, 32) for at in range(size)])
    prove_rule(lambda: infer(op, ()), [], result)


@pytest.mark.parametrize("type_", [i8, row(i8), u8, row(u8), TensorType((2, 2), i8)], ids=str)
def test_constants(type_: TensorType | ScalarType) -> None:
    for info in facts(type_):
        number = info.constant
        if number is None:
            continue
        op = arith.ConstantOp(number, type_)
        result = Numbers(type_, [z3.BitVecVal(number, 8)] * math.prod(shape_of(type_)))
        prove_rule(lambda op=op: infer(op, ()), [], result)


@pytest.mark.parametrize("element", [i8, u8, i1], ids=str)
def test_splats(element: ScalarType) -> None:
    (value,) = Builder.root([element]).parameters
    op, numbers = tt.Splat(value, TensorType((2, 4), element)), numbers_of("x", element)
    every = [(numbers, facts(element))]
    prove_rule(lambda info: infer(op, [info]), every, Numbers(op.result.type, [*numbers.terms] * 8))


# Moves of elements.

ALONG = (
    (1, 1, 1),
    (1, 2, 1),
    (1, 8, 1),
    (2, 1, 1),
    (2, 2, 1),
    (4, 1, 1),
    (4, 4, 1),
    (8, 1, 1),
    (8, 8, 1),
    (1, 1, 2),
    (1, 8, 4),
)
MOVES: list[tuple[tuple[int, ...], Callable[[Any, TensorType], Op], tuple[int, ...]]] = [
    ((4, 4), lambda x, t: tt.Trans(x, (1, 0)), (4, 4)),
    ((2, 4), lambda x, t: tt.Trans(x, (1, 0)), (4, 2)),
    ((2, 2, 4), lambda x, t: tt.Trans(x, (2, 0, 1)), (4, 2, 2)),
    *(((8,), tt.Reshape, shape) for shape in ((2, 4), (4, 2), (2, 2, 2), (8, 1), (1, 8))),
    *(((2, 4), tt.Reshape, shape) for shape in ((8,), (4, 2), (2, 2, 2), (1, 8))),
    *(((4, 1), tt.Reshape, shape) for shape in ((4,), (2, 2))),
    *(((2, 2, 2), tt.Reshape, shape) for shape in ((8,), (4, 2), (2, 4))),
    ((4,), lambda x, t: tt.ExpandDims(x, 0), (1, 4)),
    ((4,), lambda x, t: tt.ExpandDims(x, 1), (4, 1)),
    ((2, 4), lambda x, t: tt.ExpandDims(x, 1), (2, 1, 4)),
    *((shape, tt.Broadcast, (4, 4)) for shape in ((4, 1), (1, 4), (1, 1))),
]


def moved(op: Op, places: Any) -> Any:
    """The numbers of the operand's elements, in the places where the op moves them."""
    match op:
        case tt.Trans():
            return np.transpose(places, op.order)
        case tt.Broadcast():
            return np.broadcast_to(places, shape_of(op.type))
        case _:
            return places.reshape(shape_of(op.result.type))


@pytest.mark.parametrize(("source", "move", "target"), MOVES)
def test_moves(source: tuple[int, ...], move: Callable[[Any, TensorType], Op], target: tuple[int, ...]) -> None:
    type_ = TensorType(source, i8)
    (value,) = Builder.root([type_]).parameters
    op = move(value, TensorType(target, i8))
    assert shape_of(op.result.type) == target
    prove_move(op, moved(op, np.arange(math.prod(source)).reshape(source)))


def prove_move(op: Op, places: Any) -> None:
    numbers = numbers_of("x", op.operands[0].type)
    rank = len(shape_of(numbers.type))
    every = itertools.product(ALONG[::rank], repeat=rank)
    infos = dict.fromkeys(known(numbers.type, *map(tuple, zip(*axes, strict=True))) for axes in every)
    result = Numbers(op.result.type, [numbers.terms[at] for at in places.flat])
    prove_rule(lambda info: infer(op, [info]), [(numbers, list(infos))], result)


def test_a_reshape_in_any_order() -> None:
    (value,) = Builder.root([row(i8)]).parameters
    op = tt.Reshape(value, TensorType((2, 2), i8), allow_reorder=True)
    for order in itertools.permutations(range(SIZE)):
        prove_move(op, np.array(order))


# Facts that two sources have in common.


@pytest.mark.parametrize("element", [i8, u8], ids=str)
def test_meet(element: ScalarType) -> None:
    x, y = (numbers_of(name, row(element)) for name in "xy")
    pair = [(x, facts(x.type)), (y, facts(y.type))]
    for result in (x, y):
        prove_rule(lambda a, b: meet(x.type, a, b), pair, result)


# Pointers: of 16 bits, which offsets of 8 bits move.

POINTERS = ((1, 1, 1), (1, 4, 1), (2, 2, 1), (4, 1, 1), (4, 4, 1), (4, 16, 1), (1, 1, 4), (1, 4, 2), (1, 16, 4))


def of_pointers(type_: Type) -> Facts:
    """Facts about pointers; divisors are those of elements."""
    unit = axis_info.unit_of(type_)
    return list(dict.fromkeys(known(type_, (c,), (d * unit,), (k,)) for c, d, k in POINTERS))


@pytest.mark.parametrize("wrap", [8, 4])
@pytest.mark.parametrize("offset", [i8, u8], ids=str)
@pytest.mark.parametrize("element", [i8, f32], ids=str)
def test_moved_pointers(element: ScalarType, offset: ScalarType, wrap: int) -> None:
    op = tt.AddPtr(*Builder.root([row(PtrType(element)), row(offset)]).parameters)
    unit, extend = element.bytes, z3.SignExt if offset.signed else z3.ZeroExt
    bits = wrap + unit.bit_length() - 1
    pointers, offsets = numbers_of("p", op.ptr.type, bits), numbers_of("x", op.offset.type, wrap)
    terms = [p + extend(8, x) * unit for p, x in zip(pointers.terms, offsets.terms, strict=True)]
    every = [(pointers, of_pointers(pointers.type)), (offsets, facts(offsets.type))]
    prove_rule(lambda p, x: infer(op, [p, x]), every, Numbers(op.result.type, terms, bits))


def test_pointers_to_another_type() -> None:
    for element in (f32, f16, i8):
        (pointer,) = Builder.root([row(PtrType(i32))]).parameters
        op, numbers = tt.Bitcast(pointer, row(PtrType(element))), numbers_of("p", pointer.type)
        # A pointer is a multiple of the size of its elements; an access through another one is an error: misaligned.
        assumptions = [p & element.bytes - 1 == 0 for p in numbers.terms]
        every, result = [(numbers, of_pointers(numbers.type))], Numbers(op.result.type, numbers.terms)
        prove_rule(lambda info, op=op: infer(op, [info]), every, result, assumptions)


def test_addresses_as_numbers() -> None:
    (pointer,) = Builder.root([row(PtrType(f32))]).parameters
    numbers = numbers_of("p", pointer.type, bits=64)
    op = tt.PtrToInt(pointer)
    result = Numbers(op.result.type, numbers.terms)
    prove_rule(lambda info: infer(op, [info]), [(numbers, of_pointers(numbers.type))], result)
    (number,) = Builder.root([row(i64)]).parameters
    back, numbers = tt.IntToPtr(number, pointer.type), numbers_of("x", number.type)
    result = Numbers(back.result.type, numbers.terms)
    assumptions = [x & 3 == 0 for x in numbers.terms]  # As above.
    prove_rule(lambda info: infer(back, [info]), [(numbers, facts(numbers.type))], result, assumptions)


# Facts that the analysis takes for granted about a kernel. Each needs to be: without it, a claim is false.


@attrs.frozen
class Assumption:
    """What holds, where a kernel that breaks it is reported, and a kernel with such values.

    `condition` says it of the kernel's values, by their names.
    """

    text: str
    place: str
    kernel: str
    condition: Callable[..., Any]
    type: str = "i32"  # Of %x, the kernel's argument.
    divisor: int = 1
    small: str = ""


STRICT = "strict mode (docs/guides/compiling.md)"
ASSUMPTIONS = {
    "divisors": Assumption(
        "A divisor is not 0.", "native code and the interpreter, always (docs/reference/language.md)",
        """%z : i8 = arith.constant @0; %c : i1 = arith.cmpi %x %z @sge; tt.assume %c;
        %q : i8 = arith.divsi %x %x;""",
        lambda x, **_: z3.And(x > 0, x <= 63), type="i8",
    ),
    "programs": Assumption(
        "A grid has at most 1024 programs along an axis, or none of its products and sums wraps around.", STRICT,
        "%n : i32 = tt.get_program_id @0; %c : i32 = arith.constant @1048576; %m : i32 = arith.muli %n %c;",
        lambda n, **_: z3.ULE(n, axis_info.NOMINAL),
    ),
    "blocks": Assumption(
        "A number of blocks, `cdiv(x, size)`, is positive where it divides, and at most 1024.", STRICT,
        """%n : i32 = tt.get_program_id @0; %c : i32 = arith.constant @63; %s : i32 = arith.constant @64;
        %t : i32 = arith.addi %x %c; %b : i32 = arith.divsi %t %s; %q : i32 = arith.divsi %n %b;""",
        lambda n, b, **_: z3.And(b > 0, b <= axis_info.NOMINAL, z3.ULE(n, axis_info.NOMINAL)),
    ),
    "groups": Assumption(
        "`min(blocks - group * size, size)`, the rows of a group of blocks, is positive where it divides.", STRICT,
        """%n : i32 = tt.get_program_id @0; %c : i32 = arith.constant @63; %s : i32 = arith.constant @64;
        %t : i32 = arith.addi %x %c; %b : i32 = arith.divsi %t %s; %e : i32 = arith.constant @8;
        %g : i32 = arith.divsi %n %e; %f : i32 = arith.muli %g %e; %r : i32 = arith.subi %b %f;
        %h : i32 = arith.minsi %r %e; %q : i32 = arith.divsi %n %h;""",
        lambda n, b, h, **_: z3.And(h > 0, b > 0, b <= axis_info.NOMINAL, z3.ULE(n, axis_info.NOMINAL)),
    ),
    "assumptions": Assumption(
        "What `zg.assume` says holds; a number that it says is not negative is at most half of the largest.", STRICT,
        """%z : i32 = arith.constant @0; %c : i1 = arith.cmpi %x %z @sge; tt.assume %c;
        %s : i32 = arith.addi %x %x;""",
        lambda x, **_: z3.And(x >= 0, x <= (1 << 30) - 1),
    ),
    "hints": Assumption(
        "`zg.multiple_of`, `max_contiguous` and `max_constancy` hold.", "strict mode, for the first run of an axis",
        "%m : i32 = tt.multiple_of %x @[16];", lambda x, **_: x & 15 == 0,
    ),
    "arguments": Assumption(
        "Arguments are divisible by what the kernel is compiled for.", "the launch, always",
        "%c : i32 = arith.constant @16; %m : i32 = arith.muli %x %c;", lambda x, **_: x & 15 == 0, divisor=16,
    ),
    "small arguments": Assumption(
        "Arguments are from 0 to 2^15 - 1 where the kernel is compiled for that.", "the launch, always",
        """%m : i32 = arith.muli %x %x; %c : i32 = arith.constant @7; %a : i32 = arith.addi %m %c;
        %q : i32 = arith.divsi %a %c; %r : i32 = arith.remsi %c %x;""",
        lambda x, **_: z3.And(x > 0, x < 1 << 15), small="@small=[0] ",
    ),
}  # fmt: skip


def claims_of(assumption: Assumption) -> tuple[dict[str, Any], Callable[[Any], None]]:
    """The values of a kernel of scalars by their names, and a function that proves all that the analysis says of them
    under a condition."""
    parameter = f"@divisibility=[{assumption.divisor}] {assumption.small}(%x : {assumption.type})"
    func = parse(f'tt.func @"f" {parameter}void -> {{ {assumption.kernel} tt.return; }};')
    assert isinstance(func, tt.Func)
    (x,) = func.body.parameters
    values: dict[Value, Any] = {x: numbers_of("x", x.type).terms[0]}
    for op in func.body.entry.ops[:-1]:
        match op:
            case arith.ConstantOp():
                values[op.result] = z3.BitVecVal(op.value, element_of(op.type).bits)
            case tt.Grid():
                values[op.result] = z3.BitVec("programs", 32)
            case tt.Hint():
                values[op.result] = values[op.value]
            case tt.Assume():
                pass
            case _:
                values[op.result] = meaning(op, *(values[operand] for operand in op.operands))
    names = ["x", *re.findall(r"%(\w+) : \w+ =", assumption.kernel)]
    infos = analyse(func)

    def prove_all(condition: Any) -> None:
        for value, term in values.items():
            prove_rule(lambda value=value: infos[value, 0], [], Numbers(value.type, [term]), [condition])

    return dict(zip(names, values.values(), strict=True)), prove_all


@pytest.mark.parametrize("name", ASSUMPTIONS)
def test_what_is_taken_for_granted(name: str) -> None:
    assumption = ASSUMPTIONS[name]
    values, prove_all = claims_of(assumption)
    prove_all(assumption.condition(**values))
    with pytest.raises(Refuted):
        prove_all(True)


def test_quotients_that_count_no_blocks() -> None:
    """What is rounded up by another number than a block's size may be 0."""
    kernel = ASSUMPTIONS["blocks"].kernel.replace("@63", "@62")
    values, prove_all = claims_of(attrs.evolve(ASSUMPTIONS["blocks"], kernel=kernel))
    prove_all(z3.ULE(values["n"], axis_info.NOMINAL))


# Loops: facts about what a loop carries hold at the start, and the rules keep them. Indices and magnitudes are apart.


@pytest.mark.parametrize(("start", "step"), [(0, 1), (16, 4), (16, 64), (-64, 32), (7, 3)])
@pytest.mark.parametrize("stop", ["%d", "arith.constant @4096", "arith.constant @-8"])
def test_loops(start: int, step: int, stop: str) -> None:
    """For at most 1024 iterations, where their number is not known."""
    func = parse(f"""tt.func @"f" @divisibility=[16] (%d : i32)void -> {{
        %start : i32 = arith.constant @{start}; %stop : i32 = {f"tt.multiple_of {stop} @[1]" if stop == "%d" else stop};
        %step : i32 = arith.constant @{step}; %first : i32 = arith.constant @12;
        %last : i32 = scf.for %start %stop %step %first (%i : i32, %n : i32)i32 -> {{
            %next : i32 = arith.addi %n %step; scf.yield %next; }};
        tt.return; }};""")
    assert isinstance(func, tt.Func)
    (loop,) = (op for op in func.walk() if isinstance(op, scf.For))
    infos, index, number = analyse(func), *loop.body.parameters
    k, d = z3.BitVecs("k d", 64)
    at, end = start + k * step, d if stop == "%d" else z3.BitVecVal(int(stop.split("@")[1]), 64)
    assumptions = [k >= 0, k < axis_info.NOMINAL, d >= -(1 << 31), d < 1 << 31, at < end]
    for value, term in ((index, at), (number, 12 + k * step), (loop.result, 12 + (k + 1) * step)):
        prove_rule(lambda value=value: infos[value, 0], [], Numbers(value.type, [z3.Extract(31, 0, term)]), assumptions)


def test_every_rule_is_proved() -> None:
    """No rule was added without a proof."""
    proved = {
        *BINARY, maths.AbsI, arith.CmpI, arith.ExtSI, arith.ExtUI, arith.TruncI, arith.Bitcast, arith.Select,
        tt.MakeRange, arith.ConstantOp, tt.Splat, tt.Trans, tt.Reshape, tt.ExpandDims, tt.Broadcast, tt.AddPtr,
        tt.Bitcast, tt.IntToPtr, tt.PtrToInt,
    }  # fmt: skip
    # These give what is taken for granted.
    granted = {tt.GetProgramId, tt.GetNumPrograms, tt.MultipleOf, tt.MaxContiguous, tt.MaxConstancy}
    granted |= {tt.SmId, gpu.ClusterRank}  # Multiprocessors, and CTAs of a cluster, are fewer than 1024.
    assert {cls for cls in arith_and_others() if cls in axis_info.RULES} == proved | granted


def arith_and_others() -> Iterator[type[Op]]:
    classes = [Op]
    while classes:
        yield (cls := classes.pop())
        classes += cls.__subclasses__()


# Faults in the rules, each of which a proof above finds.

FAULTS: list[tuple[Callable[..., Any], str, str, Callable[[], object]]] = [
    (axis_info._div, "x.nonnegative or shifts", "True", lambda: prove_elementwise(binary(arith.DivSI, i6))),
    (axis_info._div, "max(1, x.everywhere // y.constant)", "x.everywhere",
     lambda: prove_elementwise(binary(arith.ShrSI, i8))),
    (axis_info._div, "x.nonnegative and (", "(x.nonnegative or ", lambda: prove_elementwise(binary(arith.DivSI, i6))),
    (axis_info._rem, " if x.nonnegative else [1] * len(x.contiguity)", "",
     lambda: prove_elementwise(binary(arith.RemSI, i6))),
    (axis_info._rem, "min(x.divides(axis, run), y.everywhere)", "x.divides(axis, run)",
     lambda: prove_elementwise(binary(arith.RemUI, u6))),
    (axis_info._sum, "minus = isinstance(op, arith.SubI)", "minus = False",
     lambda: prove_elementwise(binary(arith.SubI, i8))),
    (axis_info._sum, "and _fits(op, total)", "", lambda: prove_elementwise(binary(arith.AddI, i8))),
    (axis_info._sum, "None if known(op.result.type).nonnegative else ", "",
     lambda: prove_elementwise(binary(arith.SubI, u8))),
    (axis_info._sum, "* scale)", "* scale * 2)", lambda: test_moved_pointers(f32, i8, 4)),
    (axis_info._mul, "and _fits(op, product)", "", lambda: prove_elementwise(binary(arith.MulI, i6))),
    (axis_info._power_of_two, "(divides or _fits(op, 1 << shift.constant))", "True",
     lambda: prove_elementwise(binary(arith.ShlI, i8))),
    (axis_info._and, "power(y.constant + 1) == y.constant + 1", "True",
     lambda: prove_elementwise(binary(arith.AndI, i8))),
    (axis_info._or, "_blocks(x, y)", "x.contiguity", lambda: prove_elementwise(binary(arith.OrI, u8))),
    (axis_info._or, "(1 << bits) - 1", "max(x.magnitude, y.magnitude)",
     lambda: prove_elementwise(binary(arith.XOrI, i8))),
    (axis_info._select, "min, x.contiguity, y.contiguity, constancy", "min, x.contiguity, y.contiguity",
     lambda: test_choices(row(i1), i8)),
    (axis_info._extreme, "nonnegative = x.nonnegative and y.nonnegative", "nonnegative = x.nonnegative",
     lambda: prove_elementwise(binary(arith.MinSI, i8))),
    (axis_info._abs, "_fits(op, info.magnitude)", "True", lambda: test_one_operand(maths.AbsI, i8)),
    (axis_info._cmpi, "if op.predicate in _BELOW", "if op.predicate in _ABOVE",
     lambda: test_comparisons(IntPredicate.SLT, i8)),
    (axis_info._cast, "info.magnitude < 1 << (min(source.bits, target.bits) - 1)", "True",
     lambda: test_casts(arith.TruncI, i16, i8)),
    (axis_info._cast, "and source.signed and target.signed", "and source.signed",
     lambda: test_casts(arith.ExtSI, i8, u16)),
    (axis_info._cast, "info.divides(axis, run)", "info.divisibility[axis] * 2",
     lambda: test_casts(arith.TruncI, i16, i8)),
    (axis_info._moved, "info.divides(old, run)", "info.divisibility[old]",
     lambda: test_moves((8,), tt.Reshape, (2, 4))),
    (axis_info._reshape, "target[axis + 1 :]", "target[axis:]", lambda: test_moves((2, 4), tt.Reshape, (2, 2, 2))),
    (axis_info._reshape, "and op.allow_reorder", "and False", test_a_reshape_in_any_order),
    (axis_info._broadcast, "k if a == b else a", "a", lambda: test_moves((4, 1), tt.Broadcast, (4, 4))),
    (axis_info._splat, "info.everywhere", "2 * info.everywhere", lambda: test_splats(i8)),
    (axis_info.known, "abs(constant)", "constant", lambda: test_constants(i8)),
    (axis_info.AxisInfo.divides, "min(divisor, run * self.unit)", "divisor",
     lambda: prove_elementwise(binary(arith.AddI, i8))),
    (axis_info.meet, "map(min, first.constancy", "map(max, first.constancy", lambda: test_meet(i8)),
    (axis_info.meet, "first.divides(a, run), second.divides(a, run)", "first.divides(a, run), first.divides(a, run)",
     lambda: test_meet(i8)),
    (axis_info._Analysis._index, "min(start.everywhere, step.everywhere)", "step.everywhere",
     lambda: test_loops(16, 64, "%d")),
    (axis_info._is_cdiv, "1 < offset == constant_of(quotient.rhs)", "1 < offset", test_quotients_that_count_no_blocks),
]  # fmt: skip

test_planted_faults = must_find((edit(function, old, new), proof) for function, old, new, proof in FAULTS)
