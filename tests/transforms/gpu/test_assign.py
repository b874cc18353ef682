"""Layout assignment: few conversions, wide accesses, and layouts that agree as emission needs it.

The models are also run thread by thread: each op is computed on the registers of each thread, from the registers of the
same thread, as it will be emitted, and compared with what it gives element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.layout import Layout, blocked, moved
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import PtrType, TensorType, element_of, shape_of
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.assign import assign
from ziggurat.transforms.tiles.prepare import prepare

F32, F16 = zg.ptr(zg.f32), zg.ptr(zg.f16)


def aligned(*types: Any) -> list[Any]:
    """Pointers and integers that are divisible by 16."""
    return [zg.divisible(t) if not isinstance(t, int) else t for t in types]


# A run of a model thread by thread.


class Threads:
    """The threads of a CTA: the elements of each tensor, and those that each thread holds in its registers."""

    def __init__(self, module: gpu.Module, numbers: Any, arguments: Sequence[int]) -> None:
        self.count = 32 * module.num_warps
        self.numbers = numbers
        self.elements: dict[Value, Any] = {}
        self.registers: dict[Value, Any] = {}
        self.stored: dict[int, Any] = {}
        self.widths: list[int] = []
        (func,) = [op for op in module.body.entry.ops if isinstance(op, tt.Func)]
        for parameter, argument in zip(func.body.parameters, arguments, strict=True):
            self.elements[parameter] = np.asarray(argument)
        self.run(func.body.entry.ops)

    def held(self, layout: Layout) -> Any:
        """The numbers of the elements that each thread holds."""
        table = [[layout.element(r, t & 31, t >> 5) for r in range(layout.num_registers)] for t in range(self.count)]
        return np.array(table)

    def give(self, value: Value, elements: Any, registers: Any = None) -> None:
        """Note the result of an op; the threads must hold the elements that their layout says."""
        self.elements[value] = elements
        type_ = value.type
        if not isinstance(type_, TensorType):
            return
        assert type_.layout is not None and elements.shape == type_.shape
        expected = elements.reshape(-1)[self.held(type_.layout)]
        if registers is not None:
            np.testing.assert_array_equal(registers, expected)
        self.registers[value] = expected

    def moved(self, value: Value, target: Layout) -> Any:
        """The elements of a tensor that each thread has in its own registers, in the order of another layout."""
        type_ = value.type
        assert isinstance(type_, TensorType) and type_.layout is not None
        source, expected, have = self.held(type_.layout), self.held(target), self.registers[value]
        result = np.empty(expected.shape, have.dtype)
        for thread in range(self.count):
            places = {number: register for register, number in enumerate(source[thread])}
            result[thread] = [have[thread][places[number]] for number in expected[thread]]
        return result

    def run(self, ops: Sequence[Op]) -> list[Any]:
        for op in ops[:-1]:
            self.step(op)
        return [value for value in ops[-1].operands]

    def step(self, op: Op) -> None:
        arguments = [self.elements[value] for value in op.operands]
        contents = [self.registers.get(value, self.elements[value]) for value in op.operands]
        result = op.result
        if isinstance(op, core.TupleLoad):
            whole = op.tuple
            self.give(result, self.elements[whole][op.index])
        elif isinstance(op, scf.For):
            self.loop(op)
        elif isinstance(op, tt.GetProgramId):
            self.elements[result] = np.asarray(2)
        elif isinstance(op, tt.MakeRange):
            assert isinstance(result.type, TensorType) and result.type.layout is not None
            self.give(result, self.numbers.apply(op, arguments), self.held(result.type.layout) + op.start)
        elif isinstance(op, tt.Splat | arith.ConstantOp):
            self.give(result, np.full(shape_of(result.type), arguments[0] if arguments else op.attributes["value"]))
        elif isinstance(op, tt.Broadcast):
            assert isinstance(op.type, TensorType) and op.type.layout is not None
            narrow = op.type.layout.narrowed(op.type.shape, shape_of(op.value.type))
            self.give(result, self.numbers.apply(op, arguments), self.moved(op.value, narrow))
        elif isinstance(op, tt.ExpandDims | tt.Reshape | tt.Trans):
            self.give(result, self.numbers.apply(op, arguments), contents[0])
        elif isinstance(op, gpu.ConvertLayout):
            self.give(result, arguments[0])
        elif isinstance(op, tt.Load):
            self.access(op)
            self.give(result, _memory(arguments[0]), _memory(contents[0]))
        elif isinstance(op, tt.Store):
            self.access(op)
            for addresses, values in ((arguments[0], arguments[1]), (contents[0], contents[1])):
                for address, value in zip(np.ravel(addresses), np.ravel(values), strict=True):
                    assert self.stored.setdefault(int(address), value) == value
        elif isinstance(op, tt.Reduce):
            sums = [np.asarray(value).sum(axis=op.axis) for value in arguments]
            types = result.type.components if len(sums) > 1 else (result.type,)  # type: ignore[attr-defined]
            if len(sums) > 1:
                self.elements[result] = sums
            else:
                self.give(result, sums[0])
            assert all(shape_of(t) == s.shape for t, s in zip(types, sums, strict=True))
        elif isinstance(op, tt.Dot):
            self.give(result, arguments[0] @ arguments[1] + arguments[2])
        elif isinstance(op, tt.Join):
            pairs = np.stack([contents[0], contents[1]], axis=-1).reshape(self.count, -1)
            self.give(result, np.stack(arguments, axis=-1), pairs)
        elif isinstance(op, tt.Cat):
            self.give(result, np.concatenate(arguments), np.concatenate(contents, axis=1))
        elif isinstance(op, tt.Split):
            self.elements[result] = [arguments[0][..., 0], arguments[0][..., 1]]
        else:
            registers = self.compute(op, contents) if isinstance(result.type, TensorType) else None
            self.give(result, self.compute(op, arguments), registers)

    def compute(self, op: Op, operands: Sequence[Any]) -> Any:
        """Compute element by element. Any deterministic meaning of floats will do here."""
        try:
            return self.numbers.apply(op, operands)
        except KeyError:
            return sum((i + 1.5) * np.asarray(x) for i, x in enumerate(operands)) + len(op.NAME)

    def loop(self, op: scf.For) -> None:
        parameters = [self.elements[value] for value in op.initial]
        start, stop, step = (int(self.elements[value]) for value in (op.start, op.stop, op.step))
        for index in range(start, stop, step):
            for parameter, elements in zip(op.body.parameters, [np.asarray(index), *parameters], strict=True):
                self.give(parameter, elements)
            parameters = [self.elements[value] for value in self.run(op.body.entry.ops)]
        if len(parameters) == 1:
            self.give(op.result, parameters[0])
        else:
            self.elements[op.result] = parameters

    def access(self, op: tt.Load | tt.Store) -> None:
        """Check that each group of `width` registers points to aligned neighbours, and has one mask; if it is ragged,
        that the masks that hold come first."""
        if not isinstance(op.ptr.type, TensorType):
            return
        pointer = element_of(op.ptr.type)
        assert isinstance(pointer, PtrType)
        size = pointer.pointee.bytes
        self.widths.append(op.width)
        assert op.width * size <= 16
        groups = self.registers[op.ptr].reshape(-1, op.width)
        assert np.all(groups[:, 0] % (op.width * size) == 0)
        assert np.all(np.diff(groups, axis=1) == size)
        if op.mask is not None:
            masks = self.registers[op.mask].reshape(-1, op.width)
            first = np.sort(masks, axis=1)[:, ::-1] if op.ragged else masks[:, :1]
            assert np.all(masks == first)


def _memory(addresses: Any) -> Any:
    """The content of memory at an address."""
    return (np.asarray(addresses) * 2654435761 % 1009) / 8.0


def placed(kernel: Any, types: Sequence[Any], num_warps: int = 4, **argument: Any) -> gpu.Module:
    """The GPU model of a kernel; it verifies, and its text parses to the same model."""
    module = assign(prepare(kernel.triton(*types)), CompileOptions(num_warps=num_warps), **argument)
    verify(module)
    assert zg.same_model(zg.parse(str(module)), module)
    return module


def conversions(module: gpu.Module) -> list[gpu.ConvertLayout]:
    """The conversions that move elements between threads."""
    results: list[gpu.ConvertLayout] = []
    for op in module.walk():
        if isinstance(op, gpu.ConvertLayout):
            source, target = op.value.type, op.type
            assert isinstance(source, TensorType) and isinstance(target, TensorType)
            assert source.layout is not None and target.layout is not None
            if moved(source.layout, target.layout, source.numel) is None:
                results.append(op)
    return results


def conversions_within(module: gpu.Module) -> list[gpu.ConvertLayout]:
    """Those of values that are not only stored."""
    return [op for op in conversions(module) if not all(isinstance(user, tt.Store) for user in op.result.uses)]


def ops_of(module: gpu.Module, kind: type[Any]) -> list[Any]:
    return [op for op in module.walk() if isinstance(op, kind)]


# Kernels.


@zg.kernel
def add_kernel(x, y, out, n, BLOCK: zg.constexpr):
    index = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(index, n, zg.CompareKind.LESS_THAN)
    total = zg.add(zg.load(zg.add(x, index), mask), zg.load(zg.add(y, index), mask))
    zg.store(zg.add(out, index), total, mask)


@zg.kernel
def softmax_kernel(out, x, stride, n, BLOCK: zg.constexpr):
    index = zg.arange(0, BLOCK)
    mask = zg.compare(index, n, zg.CompareKind.LESS_THAN)
    row = zg.load(zg.add(x + zg.program_id(0) * stride, index), mask, other=0.0)
    top = zg.exp(zg.sub(row, zg.max(row, axis=0)))
    zg.store(zg.add(out + zg.program_id(0) * stride, index), zg.div(top, zg.sum(top, axis=0)), mask)


@zg.kernel
def layer_norm_kernel(out, x, w, b, stride, n, ROWS: zg.constexpr, BLOCK: zg.constexpr):
    rows = zg.add(zg.program_id(0) * ROWS, zg.arange(0, ROWS))
    columns = zg.arange(0, BLOCK)
    mask = zg.compare(columns, n, zg.CompareKind.LESS_THAN)
    places = zg.add(zg.mul(zg.expand(rows, 1), stride), zg.expand(columns, 0))
    tile = zg.load(zg.add(x, places), zg.expand(mask, 0), other=0.0)
    mean = zg.expand(zg.div(zg.sum(tile, axis=1), 8.0), 1)
    centred = zg.sub(tile, mean)
    scale = zg.expand(zg.rsqrt(zg.sum(zg.mul(centred, centred), axis=1)), 1)
    weights = zg.expand(zg.load(zg.add(w, columns), mask), 0)
    bias = zg.expand(zg.load(zg.add(b, columns), mask), 0)
    result = zg.add(zg.mul(zg.mul(centred, scale), weights), bias)
    zg.store(zg.add(out, places), result, zg.expand(mask, 0))


@zg.kernel
def transposed_kernel(out, x, stride_in, stride_out, SIZE: zg.constexpr):
    rows, columns = zg.arange(0, SIZE), zg.arange(0, SIZE)
    tile = zg.load(zg.add(x, zg.add(zg.mul(zg.expand(rows, 1), stride_in), zg.expand(columns, 0))))
    zg.store(zg.add(out, zg.add(zg.expand(rows, 1), zg.mul(zg.expand(columns, 0), stride_out))), tile)


@zg.kernel
def masked_kernel(out, x, stride, m, n, ROWS: zg.constexpr, COLUMNS: zg.constexpr):
    rows = zg.expand(zg.add(zg.program_id(0) * ROWS, zg.arange(0, ROWS)), 1)
    columns = zg.expand(zg.arange(0, COLUMNS), 0)
    mask = zg.and_(zg.compare(rows, m, zg.CompareKind.LESS_THAN), zg.compare(columns, n, zg.CompareKind.LESS_THAN))
    places = zg.add(zg.mul(rows, stride), columns)
    zg.store(zg.add(out, places), zg.exp(zg.load(zg.add(x, places), mask)), mask)


@zg.kernel
def carried_kernel(out, x, n, stride, BLOCK: zg.constexpr):
    pointers = zg.add(x, zg.arange(0, BLOCK))
    total = zg.zeros((BLOCK,), zg.f32)
    for _ in range(0, n):
        total = zg.add(total, zg.load(pointers))
        pointers = zg.add(pointers, stride)
    zg.store(zg.add(out, zg.arange(0, BLOCK)), total)


@zg.kernel
def matmul_kernel(a, b, c, n, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    rows = zg.expand(zg.add(zg.program_id(0) * M, zg.arange(0, M)), 1)
    columns = zg.expand(zg.arange(0, N), 0)
    steps = zg.arange(0, K)
    a_ptrs = zg.add(a, zg.add(zg.mul(rows, k), zg.expand(steps, 0)))
    b_ptrs = zg.add(b, zg.add(zg.mul(zg.expand(steps, 1), n), columns))
    total = zg.zeros((M, N), zg.f32)
    for _ in range(0, k, K):
        total = zg.dot(zg.load(a_ptrs), zg.load(b_ptrs), total)
        a_ptrs = zg.add(a_ptrs, K)
        b_ptrs = zg.add(b_ptrs, K * n)
    zg.store(zg.add(c, zg.add(zg.mul(rows, n), columns)), zg.cast(total, zg.f16))


@zg.kernel
def attention_kernel(out, q, k, n, S: zg.constexpr, D: zg.constexpr):
    rows, columns, depth = zg.expand(zg.arange(0, S), 1), zg.arange(0, S), zg.arange(0, D)
    queries = zg.load(zg.add(q, zg.add(zg.mul(rows, D), zg.expand(depth, 0))))
    top, total = zg.full((S,), -1e9, zg.f32), zg.zeros((S, D), zg.f32)
    for start in range(0, n, S):
        keys = zg.add(zg.mul(zg.expand(zg.add(start, columns), 0), D), zg.expand(depth, 1))
        scores = zg.dot(queries, zg.load(zg.add(k, keys)))
        now = zg.maximum(top, zg.max(scores, axis=1))
        weights = zg.exp(zg.sub(scores, zg.expand(now, 1)))
        total = zg.mul(total, zg.expand(zg.exp(zg.sub(top, now)), 1))
        values = zg.add(zg.mul(zg.expand(zg.add(start, columns), 1), D), zg.expand(depth, 0))
        total = zg.dot(zg.cast(weights, zg.f16), zg.load(zg.add(k, values)), total)
        top = now
    zg.store(zg.add(out, zg.add(zg.mul(rows, D), zg.expand(depth, 0))), total)


@zg.kernel
def weighted_kernel(out, x, w, ROWS: zg.constexpr, COLUMNS: zg.constexpr, SIZE: zg.constexpr):
    rows = zg.expand(zg.expand(zg.arange(0, ROWS), 1), 2)
    columns = zg.expand(zg.expand(zg.arange(0, COLUMNS), 0), 2)
    steps = zg.expand(zg.expand(zg.arange(0, SIZE), 0), 0)
    places = zg.add(zg.add(zg.mul(rows, 8192), zg.mul(columns, 512)), steps)
    weights = zg.exp(zg.mul(zg.load(zg.add(w, zg.add(rows, zg.mul(steps, 512)))), 0.5))
    zg.store(zg.add(out, places), zg.mul(zg.load(zg.add(x, places)), weights))


# Their layouts.

BASES = (1 << 20, 1 << 21, 1 << 22, 1 << 23)


def test_vector_add_is_four_wide_without_conversions(numbers: Any) -> None:
    module = placed(add_kernel, aligned(F32, F32, F32, zg.i32, 1024))
    assert not conversions(module)
    assert [op.width for op in ops_of(module, tt.Load | tt.Store)] == [4, 4, 4]
    assert "1 2 512 | 4 8 16 32 64 | 128 256" in str(module)
    Threads(module, numbers, (*BASES[:3], 16 * 130))


@pytest.mark.parametrize(("types", "widths"), [
    ([F32, F32, F32, zg.i32, 1024], [1, 1, 1]),
    ([*aligned(F32, F32, F32), zg.i32, 1024], [4, 4, 4]),
    ([F32, *aligned(F32, F32, zg.i32), 1024], [1, 4, 4]),
    (aligned(F16, F16, F16, zg.i32, 1024), [8, 8, 8]),
    ([*(zg.divisible(F16, 4) for _ in range(3)), zg.divisible(zg.i32), 1024], [2, 2, 2]),
    (aligned(F16, F16, F16, zg.i32, 256), [2, 2, 2]),
])  # fmt: skip
def test_the_width_is_limited_by_pointers_masks_and_threads(numbers: Any, types: list[Any], widths: list[int]) -> None:
    module = placed(add_kernel, types)
    assert [op.width for op in ops_of(module, tt.Load | tt.Store)] == widths
    Threads(
        module,
        numbers,
        (BASES[0] + 4, BASES[1] + 16, BASES[2] + 16, 16 * 130) if widths[0] == 1 else (*BASES[:3], 2064),
    )


def test_softmax_reads_and_writes_a_row_without_conversions(numbers: Any) -> None:
    module = placed(softmax_kernel, [*aligned(F32, F32, zg.i32, zg.i32), 1024])
    assert not conversions(module)
    assert [op.width for op in ops_of(module, tt.Load | tt.Store)] == [4, 4]
    Threads(module, numbers, (*BASES[:2], 1024, 1008))


@pytest.mark.parametrize("num_warps", [1, 4])
def test_layer_norm_has_no_conversions(numbers: Any, num_warps: int) -> None:
    types = [*aligned(F32, F32, F32, F32, zg.i32, zg.i32), 8, 256]
    module = placed(layer_norm_kernel, types, num_warps)
    assert not conversions(module)
    tiles = [op for op in ops_of(module, tt.Load | tt.Store) if op.ptr.type.numel == 2048]
    assert [op.width for op in tiles] == [4, 4]
    Threads(module, numbers, (*BASES, 256, 240))


def test_a_transposed_copy_converts_once(numbers: Any) -> None:
    module = placed(transposed_kernel, [*aligned(F32, F32, zg.i32, zg.i32), 32])
    (converted,) = conversions(module)
    assert element_of(converted.type) == zg.f32
    assert [op.width for op in ops_of(module, tt.Load | tt.Store)] == [4, 4]
    assert converted.type.layout == blocked((32, 32), (0, 1), 4, 4)  # type: ignore[attr-defined]
    Threads(module, numbers, (*BASES[:2], 64, 32))


def test_weights_that_many_threads_would_load_again_are_computed_once_and_converted(numbers: Any) -> None:
    module = placed(weighted_kernel, [*aligned(F32, F32, F32), 8, 8, 64])
    (converted,) = conversions(module)
    assert shape_of(converted.type) == (8, 1, 64)
    Threads(module, numbers, BASES[:3])


def test_masks_of_two_axes_limit_the_width(numbers: Any) -> None:
    module = placed(masked_kernel, [*aligned(F32, F32, zg.i32), zg.i32, zg.divisible(zg.i32), 16, 64], 2)
    assert not conversions(module)
    assert [op.width for op in ops_of(module, tt.Load | tt.Store)] == [4, 4]
    Threads(module, numbers, (*BASES[:2], 64, 37, 48))
    module = placed(masked_kernel, [*aligned(F32, F32, zg.i32), zg.i32, zg.divisible(zg.i32, 2), 16, 64], 2)
    assert [(op.width, op.ragged) for op in ops_of(module, tt.Load | tt.Store)] == [(4, True), (4, True)]
    Threads(module, numbers, (*BASES[:2], 64, 37, 46))


def test_a_loop_carries_pointers_in_the_layout_of_their_loads(numbers: Any) -> None:
    module = placed(carried_kernel, [*aligned(F32, F32), zg.i32, zg.divisible(zg.i32), 256], 2)
    assert not ops_of(module, gpu.ConvertLayout)
    (loop,) = ops_of(module, scf.For)
    assert len({value.type.layout for value in loop.initial}) == 1  # type: ignore[attr-defined]
    assert [op.width for op in ops_of(module, tt.Load | tt.Store)] == [4, 4]
    Threads(module, numbers, (*BASES[:2], 3, 512))


def test_matmul_converts_only_its_result(numbers: Any) -> None:
    dot = blocked((32, 32), (0, 1), 1, 2)
    types = [*aligned(F16, F16, F16, zg.i32, zg.i32), 32, 32, 32]
    module = placed(matmul_kernel, types, 2, anchor=lambda op, _: dot if isinstance(op, tt.Dot) else None)
    (converted,) = conversions(module)
    assert element_of(converted.type) == zg.f16  # after it was narrowed
    assert isinstance(converted.value.op, arith.TruncF)
    (multiplied,) = ops_of(module, tt.Dot)
    assert multiplied.result.type.layout == dot
    assert [op.width for op in ops_of(module, tt.Load)] == [8, 8]
    Threads(module, numbers, (*BASES[:3], 32, 64))


def test_attention_converts_nothing(numbers: Any) -> None:
    """With the rows of dots in one warp, as the matrix units have them, the statistics of rows need no conversion.

    The result is converted, so that its stores are of whole lines.
    """

    def anchor(op: Op, _: object) -> Layout | None:
        if not isinstance(op, tt.Dot):
            return None
        columns = shape_of(op.result.type)[1]
        bits = [1 << i for i in range(columns.bit_length() - 1)]
        return Layout(
            (bits[0], 8 * columns, *bits[3:]), (bits[1], bits[2], columns, 2 * columns, 4 * columns), (16 * columns,)
        )

    module = placed(attention_kernel, [*aligned(F32, F16, F16, zg.i32), 32, 64], 2, anchor=anchor)
    assert not conversions_within(module)
    Threads(module, numbers, (*BASES[:3], 64))


def test_widened_rows_are_computed_in_the_layout_of_a_dot(numbers: Any) -> None:
    """The negated maximum was computed in a layout of its own, and each of its wide copies was converted."""

    @zg.kernel
    def scores_kernel(out, q, k, M: zg.constexpr, D: zg.constexpr):
        rows = zg.arange(0, M)
        at = zg.add(zg.mul(zg.expand(rows, 1), D), zg.expand(zg.arange(0, D), 0))
        scores = zg.dot(zg.load(zg.add(q, at)), zg.trans(zg.load(zg.add(k, at))))
        bound = zg.broadcast(zg.expand(zg.max(scores, axis=1), 1), (M, M))
        scores = zg.add(scores, zg.neg(bound))
        to = zg.add(zg.mul(zg.expand(rows, 1), M), zg.expand(rows, 0))
        zg.store(zg.add(out, to), scores)

    def anchor(op: Op, _: object) -> Layout:
        columns = shape_of(op.result.type)[1]
        bits = [1 << i for i in range(columns.bit_length() - 1)]
        return Layout(
            (bits[0], 8 * columns, *bits[3:]), (bits[1], bits[2], columns, 2 * columns, 4 * columns), (16 * columns,)
        )

    module = placed(scores_kernel, [*aligned(F32, F16, F16), 32, 64], 2, anchor=anchor)
    assert all(shape_of(op.type) != (32, 32) for op in conversions_within(module))


def test_a_load_by_index_has_the_layout_of_the_index(numbers: Any) -> None:
    @zg.kernel
    def gather_kernel(out, x, index, BLOCK: zg.constexpr):
        places = zg.arange(0, BLOCK)
        actual = zg.load(zg.add(x, zg.load(zg.add(index, places))))
        zg.store(zg.add(out, places), actual)

    module = placed(gather_kernel, [*aligned(F32, F32, zg.ptr(zg.i32)), 512])
    assert not ops_of(module, gpu.ConvertLayout)
    assert [op.width for op in ops_of(module, tt.Load | tt.Store)] == [4, 1, 4]


def test_joined_split_and_concatenated_tensors(numbers: Any) -> None:
    @zg.kernel
    def shapes_kernel(out, x, BLOCK: zg.constexpr):
        index = zg.arange(0, BLOCK)
        values = zg.load(zg.add(x, index))
        left, right = zg.split(zg.reshape(values, (BLOCK // 2, 2)))
        pairs = zg.reshape(zg.join(right, left), (BLOCK,))
        swapped = zg.trans(zg.reshape(pairs, (4, BLOCK // 4)))
        zg.store(zg.add(out, index), zg.add(zg.reshape(swapped, (BLOCK,)), values))

    module = placed(shapes_kernel, [*aligned(F32, F32), 256], 2)
    Threads(module, numbers, BASES[:2])
    assert len(conversions(module)) == 1
