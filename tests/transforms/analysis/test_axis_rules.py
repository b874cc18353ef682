"""Each axis rule alone: the facts about a result hold for the numbers, for any facts about the operands.

`test_axis_info.py` has the same of whole programs. Here, operands are rows of eight numbers of which everything that is
true is known, or only a part of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as math_dialect
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import PtrType, TensorType, Type, f16, f32, i1, i8, i32, i64, u8, u32
from ziggurat.transforms.analysis.axis_info import LIMIT, RULES, AxisInfo, infer, known, meet, power, unit_of

SIZE = 8
ROW = TensorType((SIZE,), i32)
MASK = TensorType((SIZE,), i1)


def runs_of(values: Any, step: int) -> int:
    """The length of the aligned runs in which each number is the one before it plus the step."""
    run = SIZE
    while run > 1 and np.any(np.diff(values.reshape(-1, run), axis=1) != step):
        run //= 2
    return run


def all_of(values: Any, type_: Type = ROW) -> AxisInfo:
    """All facts that hold for a row of numbers."""
    values = np.asarray(values).astype(np.int64)
    run = runs_of(values, 1)
    divisor = math.gcd(*(int(first) for first in values.reshape(-1, run)[:, 0]))
    same, constant = runs_of(values, 0), int(values[0])
    return known(
        type_, (run,), (power(divisor),), (same,), constant if same == SIZE else None, bool(np.all(values >= 0))
    )


def check(info: AxisInfo, values: Any) -> None:
    """Assert every fact."""
    values = np.asarray(values).astype(np.int64)
    (run,), (divisor,), (same,) = info.contiguity, info.divisibility, info.constancy
    assert runs_of(values, 1) >= run and runs_of(values, 0) >= same
    assert np.all(values.reshape(-1, run)[:, 0] % divisor == 0)
    assert info.constant is None or np.all(values == info.constant)
    assert not info.nonnegative or np.all(values >= 0)
    assert np.all(values % info.everywhere == 0)


@st.composite
def rows(draw: Any, low: int = -64) -> tuple[Any, AxisInfo]:
    """Eight numbers, with some or all of the facts that hold for them."""
    start = draw(st.integers(0 if low >= 0 else -16, 16)) * draw(st.sampled_from([1, 2, 4, 8]))
    number = np.arange(SIZE)
    shaped = [number, number // 2, number // 4, number % 4, number * 2, number * 0, 7 - number, number ^ 1]
    values = start + draw(st.sampled_from(shaped)) * draw(st.sampled_from([1, 1, 4]))
    values = np.maximum(values, low)
    info = all_of(values)
    if draw(st.booleans()):
        run = min(info.contiguity[0], draw(st.sampled_from([1, 2, 4])))
        same = min(info.constancy[0], draw(st.sampled_from([1, 2, 4])))
        weaker = min(info.divides(0, run), draw(st.sampled_from([1, 2, 4, 8])))
        info = known(ROW, (run,), (weaker,), (same,), None, info.nonnegative and draw(st.booleans()))
    return values, info


def quotient(x: Any, y: Any) -> Any:
    """The quotient rounded toward zero."""
    return np.sign(x) * (np.abs(x) // y)


BINARY: dict[str, tuple[type[Any], Callable[[Any, Any], Any], int]] = {
    "add": (arith.AddI, np.add, -64), "sub": (arith.SubI, np.subtract, -64), "mul": (arith.MulI, np.multiply, -64),
    "and": (arith.AndI, np.bitwise_and, -64), "or": (arith.OrI, np.bitwise_or, -64),
    "xor": (arith.XOrI, np.bitwise_xor, -64), "max": (arith.MaxSI, np.maximum, -64),
    "min": (arith.MinSI, np.minimum, -64), "div": (arith.DivSI, quotient, 1),
    "rem": (arith.RemSI, lambda x, y: x - quotient(x, y) * y, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_binary_rules_are_sound(name: str) -> None:
    cls, apply, low = BINARY[name]
    op = cls(*Builder.root([ROW, ROW]).parameters)

    @settings(max_examples=30)
    @given(rows(), rows(low))
    def claims(first: tuple[Any, AxisInfo], second: tuple[Any, AxisInfo]) -> None:
        check(infer(op, [first[1], second[1]]), apply(first[0], second[0]))

    claims()


@pytest.mark.parametrize("predicate", list(IntPredicate))
def test_comparisons_are_sound(predicate: IntPredicate) -> None:
    type_ = TensorType((SIZE,), u32) if predicate.value.startswith("u") else ROW
    op = arith.CmpI(*Builder.root([type_, type_]).parameters, predicate)
    name, low = predicate.value, 0 if predicate.value.startswith("u") else -64
    relation = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                "ge": np.greater_equal}[name if len(name) == 2 else name[1:]]  # fmt: skip

    @settings(max_examples=15)
    @given(rows(low), rows(low))
    def claims(first: tuple[Any, AxisInfo], second: tuple[Any, AxisInfo]) -> None:
        check(infer(op, [first[1], second[1]]), relation(first[0], second[0]))

    claims()


@settings(max_examples=30)
@given(rows(), rows(), rows())
def test_select_is_sound(
    chosen: tuple[Any, AxisInfo], first: tuple[Any, AxisInfo], second: tuple[Any, AxisInfo]
) -> None:
    condition = chosen[0] > 0
    op = arith.Select(*Builder.root([MASK, ROW, ROW]).parameters)
    values = np.where(condition, first[0], second[0])
    check(infer(op, [all_of(condition, MASK), first[1], second[1]]), values)


@settings(max_examples=30)
@given(rows(), rows())
def test_meet_is_sound(first: tuple[Any, AxisInfo], second: tuple[Any, AxisInfo]) -> None:
    barriers = meet(ROW, first[1], second[1])
    check(barriers, first[0])
    check(barriers, second[0])
    assert meet(ROW, first[1], first[1]) == first[1]


@pytest.mark.parametrize("by", range(4))
@pytest.mark.parametrize("rest", [False, True])
def test_shifts_are_sound(rest: bool, by: int) -> None:
    op = (arith.ShlI if rest else arith.ShrSI)(*Builder.root([ROW, ROW]).parameters)

    @settings(max_examples=15)
    @given(rows())
    def claims(row: tuple[Any, AxisInfo]) -> None:
        info = infer(op, [row[1], known(ROW, constant=by)])
        check(info, row[0] << by if rest else row[0] >> by)
        check(infer(op, [row[1], known(ROW)]), row[0] << by if rest else row[0] >> by)

    claims()


# The facts.


def test_powers_of_two_that_divide() -> None:
    assert [power(number) for number in (1, 12, -8, 7, 0, 1 << 50)] == [1, 4, 8, 1, LIMIT, LIMIT]


def test_pointers_count_in_the_bytes_of_their_elements() -> None:
    assert unit_of(i32) == unit_of(ROW) == 1
    assert unit_of(PtrType(f32)) == unit_of(TensorType((4,), PtrType(f32))) == 4 and unit_of(PtrType(i8)) == 1
    assert known(TensorType((4,), PtrType(f16))).divisibility == (2,)


def test_numbers_that_are_not_given_are_one() -> None:
    assert known(TensorType((4, 8), i32)) == AxisInfo((1, 1), (1, 1), (1, 1), magnitude=1 << 31)
    assert known(i32) == AxisInfo((1,), (1,), (1,), magnitude=1 << 31)
    assert known(u32).nonnegative and not known(i32).nonnegative and known(TensorType((4,), u8)).nonnegative


def test_runs_are_no_longer_than_the_axis() -> None:
    info = known(TensorType((4, 8), i32), (64, 2), (1 << 60, 4), (16, 16))
    assert (info.contiguity, info.constancy) == ((4, 2), (4, 8))
    assert info.divisibility[0] == LIMIT


def test_a_constant_implies_all_facts() -> None:
    info = known(TensorType((2, 4), i32), constant=12)
    assert info == AxisInfo((1, 1), (4, 4), (2, 4), 12, True, magnitude=12)
    assert not known(i32, constant=-1).nonnegative and known(i32, constant=0).everywhere == LIMIT


def test_a_divisor_of_every_element_divides_the_first_of_any_run() -> None:
    info = known(TensorType((4, 8), i32), (1, 4), (16, 1))
    assert info.everywhere == 16 and info.divisibility == (16, 16)


def test_shorter_runs_have_smaller_divisors() -> None:
    info = known(TensorType((64,), PtrType(f32)), (64,), (128,))
    assert [info.divides(0, run) for run in (64, 16, 4, 1)] == [128, 64, 16, 4]
    assert info.aligned(0) == 32 and info.everywhere == 4
    assert known(TensorType((64,), i32), (64,), (16,)).aligned(0) == 16


# Rules of shapes.


def result(make: Callable[..., Op], info: AxisInfo, type_: Type) -> AxisInfo:
    return infer(make(*Builder.root([type_]).parameters), [info])


GRID = TensorType((4, 8), i32)
OF_GRID = known(GRID, (1, 8), (2, 16), (4, 1), nonnegative=True)


def test_ranges_and_constants() -> None:
    assert infer(tt.MakeRange(4, 12), []) == known(ROW, (8,), (4,), nonnegative=True, magnitude=11)
    assert infer(arith.ConstantOp(12, type=ROW), []) == known(ROW, constant=12)
    assert infer(arith.ConstantOp(1.5, type=TensorType((8,), f32)), []).constancy == (8,)
    assert infer(tt.GetProgramId(axis=0), []).nonnegative


def test_a_scalar_is_the_same_everywhere() -> None:
    info = result(lambda x: tt.Splat(x, type=GRID), known(i32, (), (16,), (), None, True), i32)
    assert info == AxisInfo((1, 1), (16, 16), (4, 8), None, True, magnitude=(1 << 31) - 1)
    assert result(lambda x: tt.Splat(x, type=GRID), known(i32, constant=5), i32).constant == 5


def test_moves_of_elements_move_the_facts() -> None:
    transposed = result(lambda x: tt.Trans(x, (1, 0)), OF_GRID, GRID)
    assert (transposed.contiguity, transposed.constancy, transposed.divisibility) == (
        (8, 1),
        (1, 4),
        OF_GRID.divisibility[::-1],
    )
    wider = result(lambda x: tt.ExpandDims(x, 1), OF_GRID, GRID)
    assert (wider.contiguity, wider.constancy) == ((1, 1, 8), (4, 1, 1)) and wider.nonnegative
    column = TensorType((4, 1), i32)
    repeated = result(lambda x: tt.Broadcast(x, type=GRID), known(column, (4, 1), (8, 8)), column)
    assert (repeated.contiguity, repeated.constancy) == ((4, 1), (1, 8))


def test_a_reshape_in_any_order_keeps_no_runs() -> None:
    flat = TensorType((32,), i32)
    copies = result(lambda x: tt.Reshape(x, type=flat), OF_GRID, GRID)
    lost = result(lambda x: tt.Reshape(x, type=flat, allow_reorder=True), OF_GRID, GRID)
    assert copies.contiguity == (8,) and lost.contiguity == (1,)
    assert lost.nonnegative and lost.divisibility == (OF_GRID.everywhere,)


def test_offsets_of_pointers_are_in_their_unit() -> None:
    pointers = TensorType((8,), PtrType(f32))
    op = tt.AddPtr(*Builder.root([pointers, ROW]).parameters)
    base = known(pointers, (), (64,), (8,))
    info = infer(op, [base, known(ROW, (8,), (8,))])
    assert (info.contiguity, info.divisibility, info.unit) == ((8,), (32,), 4)


def test_casts() -> None:
    row = known(ROW, (8,), (16,), (1,), None, True)
    wide, narrow = TensorType((8,), i64), TensorType((8,), i8)
    longer = result(lambda x: arith.ExtSI(x, type=wide), row, ROW)
    assert (longer.contiguity, longer.nonnegative) == ((8,), True)
    shorter = result(lambda x: arith.TruncI(x, type=narrow), row, ROW)
    assert (shorter.contiguity, shorter.nonnegative) == ((8,), False)  # 128 is -128.
    cut = result(lambda x: arith.TruncI(x, type=narrow), known(ROW, constant=300), ROW)
    assert cut.constant is None and cut.constancy == (8,)
    assert result(lambda x: arith.ExtUI(x, type=wide), known(ROW), ROW).nonnegative
    mask = result(lambda x: arith.ExtUI(x, type=ROW), known(MASK, (), (), (4,)), MASK)
    assert mask.constancy == (4,) and mask.contiguity == (1,)


def test_pointers_of_another_unit_are_unknown() -> None:
    source = TensorType((8,), PtrType(f32))
    info = known(source, (8,), (64,))
    same = result(lambda x: tt.Bitcast(x, type=TensorType((8,), PtrType(i32))), info, source)
    other = result(lambda x: tt.Bitcast(x, type=TensorType((8,), PtrType(f16))), info, source)
    assert same == info and other == known(TensorType((8,), PtrType(f16)))


def test_hints_add_facts() -> None:
    info = known(ROW, (2,), (4,), (1,))
    assert result(lambda x: tt.MultipleOf(x, (16,)), info, ROW).divisibility == (16,)
    assert result(lambda x: tt.MultipleOf(x, (2,)), info, ROW).divisibility == (4,)  # Not less than before.
    assert result(lambda x: tt.MaxContiguous(x, (8,)), info, ROW).contiguity == (8,)
    assert result(lambda x: tt.MaxConstancy(x, (4,)), info, ROW).constancy == (4,)


def test_the_absolute_value_is_not_negative_but_of_the_smallest_number() -> None:
    assert result(math_dialect.AbsI, known(ROW, (), (8,)), ROW) == known(ROW, (), (8,))
    small = known(ROW, (), (8,), magnitude=1 << 20)
    assert result(math_dialect.AbsI, small, ROW) == attrs.evolve(small, nonnegative=True)


def test_other_elementwise_ops_give_equal_results_of_equal_operands() -> None:
    type_ = TensorType((8,), f32)
    op = arith.MulF(*Builder.root([type_, type_]).parameters)
    assert type(op) not in RULES
    assert infer(op, [known(type_, (), (), (4,)), known(type_, (), (), (8,))]).constancy == (4,)
    # A scalar among tensors is equal everywhere; an op that is not elementwise has no facts.
    condition, x = known(i1), attrs.evolve(known(type_, (), (), (2,)))
    choice = arith.Select(*Builder.root([i1, type_, type_]).parameters)
    assert infer(choice, [condition, x, x]).constancy == (2,)
    index = tt.Gather(*Builder.root([ROW, ROW]).parameters, 0)
    assert infer(index, [known(ROW, constant=3), known(ROW, constant=0)]) == known(ROW)
