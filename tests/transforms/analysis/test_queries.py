"""Layouts through ops, thread by thread: each thread computes a result from the elements that it holds."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.layout import Layout, bits_of, blocked, moved
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import PtrType, TensorType, f16, f32, i1, i32
from ziggurat.transforms.analysis.queries import (
    is_computable,
    is_elementwise,
    is_root,
    is_shaping,
    is_widening,
    operand_layouts,
)


@st.composite
def layouts(draw: Any, numel: int, warp_bits: int = 1, copies: bool = True) -> Layout:
    """A layout of so many elements, of single bits; with copies in lanes and warps."""
    bases = draw(st.permutations([1 << bit for bit in range(bits_of(numel))]))
    values: list[list[int]] = [[], [], []]
    for basis in bases:
        values[draw(st.integers(0, 2))].append(basis)
    for place, room in ((1, 5), (2, warp_bits)):
        values[0] += values[place][room:]
        values[place] = draw(st.permutations(values[place][:room] + [0] * (room - len(values[place]))))
    if copies and draw(st.booleans()):
        values[0].insert(draw(st.integers(0, len(values[0]))), 0)
    return Layout(tuple(values[0]), tuple(values[1]), tuple(values[2]))


def held(layout: Layout, lane: int, warp: int) -> list[int]:
    return [layout.element(register, lane, warp) for register in range(layout.num_registers)]


def threads(layout: Layout) -> list[tuple[int, int]]:
    return [(lane, warp) for lane in range(32) for warp in range(layout.num_warps)]


WIDE = (4, 2, 8)


@settings(max_examples=30)
@given(layouts(math.prod(WIDE)), st.sampled_from([(1, 2, 8), (4, 1, 8), (4, 2, 1), (4, 1, 1), (1, 1, 1), WIDE]))
def test_a_broadcast_repeats_elements_of_the_same_thread(layout: Layout, narrow: tuple[int, ...]) -> None:
    actual = layout.narrowed(WIDE, narrow).without_copies()
    assert actual.covers(math.prod(narrow)) and actual.free[0] == 0  # No copies in a thread.

    def source(element: int) -> int:
        """The element of the narrow tensor that the broadcast repeats at a place."""
        i, j, k = element // 16 % 4, element // 8 % 2, element % 8
        i, j, k = (index % size for index, size in zip((i, j, k), narrow, strict=True))
        return (i * narrow[1] + j) * narrow[2] + k

    for lane, warp in threads(layout):
        assert {source(element) for element in held(layout, lane, warp)} == set(held(actual, lane, warp))


@settings(max_examples=30)
@given(st.data(), st.sampled_from([(1, 2, 8), (4, 1, 8), (4, 2, 1), (4, 1, 1)]))
def test_narrowing_is_the_inverse_of_widening(data: st.DataObject, narrow: tuple[int, ...]) -> None:
    layout = data.draw(layouts(math.prod(narrow), warp_bits=2))
    wide = layout.widened(narrow, WIDE)
    assert wide.covers(math.prod(WIDE))
    assert wide.narrowed(WIDE, narrow).without_copies() == layout.without_copies()


def test_threads_with_copies_take_the_new_axis() -> None:
    """A column of 8 rows, held in 8 lanes and copied in the others, which take the columns."""
    narrow = Layout((), (1, 2, 4, 0, 0), (0,))
    assert narrow.widened((8, 1), (8, 16)) == Layout((8,), (16, 32, 64, 1, 2), (4,))
    # The other columns are in the lowest registers, so that a thread has neighbours.
    full = Layout((32,), (1, 2, 4, 8, 16), ())
    assert full.widened((64, 1), (64, 4)) == Layout((1, 2, 128), (4, 8, 16, 32, 64), ())


def test_copies_in_registers_are_dropped() -> None:
    assert Layout((0, 1, 0, 2), (4, 8, 16, 0, 0), (0,)).without_copies() == Layout((1, 2), (4, 8, 16, 0, 0), (0,))


@settings(max_examples=30)
@given(layouts(64, copies=False), st.data())
def test_a_conversion_within_threads_is_free(source: Layout, data: st.DataObject) -> None:
    """Two bases are exchanged, which is free if both are of registers."""
    bases = list(source.bases)
    first, second = (data.draw(st.integers(0, len(bases) - 1)) for _ in range(2))
    bases[first], bases[second] = bases[second], bases[first]
    count = len(source.registers)
    target = Layout(tuple(bases[:count]), tuple(bases[count : count + 5]), tuple(bases[count + 5 :]))
    columns = [
        set(zip(*(held(layout, *thread) for thread in threads(source)), strict=True)) for layout in (source, target)
    ]
    have = columns[1] <= columns[0]  # Each register of the target is one of the source, the same in all threads.
    assert (moved(source, target, 64) is not None) is have


@settings(max_examples=30)
@given(layouts(64), st.data())
def test_registers_in_another_order_are_free(source: Layout, data: st.DataObject) -> None:
    other = Layout(tuple(data.draw(st.permutations(source.registers))), source.lanes, source.warps)
    assert moved(source, other, 64)


def test_a_conversion_between_threads_is_not_free() -> None:
    source = Layout((1, 2), (4, 8, 16, 32, 64), (128,))
    for other in (
        Layout((1, 2), (8, 4, 16, 32, 64), (128,)),  # Lanes
        Layout((1, 2), (4, 8, 16, 32, 128), (64,)),  # warps
        Layout((1, 4), (2, 8, 16, 32, 64), (128,)),  # registers and lanes exchanged
        Layout((1, 2), (4, 8, 16, 32, 64 | 4), (128,)),  # one lane that is also another
        Layout((1, 2), (4 | 1, 8, 16, 32, 64), (128,)),  # another register in some lanes
    ):
        assert moved(source, other, 256) is None
        assert other.covers(256)
    # If lanes hold copies, the target may name any of them.
    copied = Layout((1, 2), (4, 8, 16, 0, 0), (0,))
    assert moved(copied, copied, 32) and moved(copied, Layout((2, 1, 0), copied.lanes, (0,)), 32)


# Ops.

TYPE = TensorType((4, 16), f32)


def one(make: Any, *types: Any) -> Op:
    return make(*Builder.root(types).parameters)


ELEMENTWISE = {
    "add": one(arith.AddF, TYPE, TYPE), "ext": one(lambda x: arith.ExtF(x, type=TYPE), TensorType((4, 16), f16)),
    "addptr": one(tt.AddPtr, TensorType((4, 16), PtrType(f32)), TensorType((4, 16), i32)),
}  # fmt: skip
SHAPING = {
    "trans": one(lambda x: tt.Trans(x, (1, 0)), TYPE), "expand": one(lambda x: tt.ExpandDims(x, 1), TYPE),
    "reshape": one(lambda x: tt.Reshape(x, type=TensorType((64,), f32)), TYPE),
    "broadcast": one(lambda x: tt.Broadcast(x, type=TYPE), TensorType((4, 1), f32)),
}  # fmt: skip
ROOTS = {
    "range": tt.MakeRange(0, 64), "splat": one(lambda x: tt.Splat(x, type=TYPE), f32),
    "constant": arith.ConstantOp(1.0, type=TYPE), "poison": tt.Poison(type=TYPE),
}  # fmt: skip
OTHERS = {"join": one(tt.Join, TYPE, TYPE), "cat": one(tt.Cat, TensorType((8,), f32), TensorType((8,), f32))}


def test_kinds_of_ops() -> None:
    for ops, roots, elementwise, shaping in (
        (ELEMENTWISE, False, True, False), (SHAPING, False, False, True), (ROOTS, True, False, False),
        (OTHERS, False, False, False),
    ):  # fmt: skip
        for name, op in ops.items():
            assert (is_root(op), is_elementwise(op), is_shaping(op)) == (roots, elementwise, shaping), name
            assert is_computable(op) == (ops is not OTHERS), name
            assert is_widening(op) == (name == "ext"), name


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_ops_take_the_layout_of_their_result(name: str) -> None:
    layout = blocked((4, 16), (1, 0), 2, 2)
    op = ELEMENTWISE[name]
    assert operand_layouts(op, layout) == [(position, layout) for position in range(len(op.operands))]


def test_a_scalar_among_the_operands_has_no_layout() -> None:
    layout = blocked((4, 16), (1, 0), 2, 2)
    op = one(arith.Select, i1, TYPE, TYPE)
    assert operand_layouts(op, layout) == [(1, layout), (2, layout)]


def test_roots_have_no_operand_layouts_and_other_ops_are_an_internal_error() -> None:
    layout = blocked((64,), (0,), 1, 1)
    assert all(operand_layouts(op, layout) == [] for op in ROOTS.values())
    f = Builder.root([TensorType((32,), f32)])
    type_ = tt.Cat(f.parameters[0], f.parameters[0])
    f.add(type_)
    f.add(tt.Return([]))
    func = tt.Func("k", f.finish())
    with pytest.raises(InternalError, match=r"tt\.cat is not computed in any layout") as error:
        operand_layouts(func.body.entry.ops[0], layout)
    assert 'tt.func @"k"' in str(error.value)  # The model is shown.


@settings(max_examples=25)
@given(layouts(64), st.permutations([0, 1, 2]))
def test_a_transposed_tensor_is_in_the_same_registers(layout: Layout, order: list[int]) -> None:
    shape = (4, 2, 8)
    type_ = TensorType(shape, f32)
    op = one(lambda x: tt.Trans(x, tuple(order)), type_)
    ((position, source),) = operand_layouts(op, layout)
    assert position == 0 and source.transposed(shape, order) == layout


def test_shapes_do_not_change_layouts_and_broadcasts_narrow_them() -> None:
    layout = blocked((64,), (0,), 2, 1)
    assert operand_layouts(SHAPING["reshape"], layout) == operand_layouts(SHAPING["expand"], layout) == [(0, layout)]
    wide = blocked((4, 16), (1, 0), 2, 1)
    assert operand_layouts(SHAPING["broadcast"], wide) == [(0, wide.narrowed((4, 16), (4, 1)).without_copies())]
