"""A pass for tests: a GPU model whose tensors go through random layouts, which must not change the results.

    %8 : tensor<x64, f32, "1 | 2 4 8 16 32 | 0"> = arith.addf %6 %7;

becomes, with a random layout,

    %8 : tensor<x64, f32, "3 | 0 32 6 8 20 | 1"> = gpu.convert_layout %6;
    %9 : tensor<x64, f32, "3 | 0 32 6 8 20 | 1"> = gpu.convert_layout %7;
    %10 : tensor<x64, f32, "3 | 0 32 6 8 20 | 1"> = arith.addf %8 %9;
    %11 : tensor<x64, f32, "1 | 2 4 8 16 32 | 0"> = gpu.convert_layout %10;

The pass runs after `assign`. Elementwise ops and accesses are done in the random layout; reductions and scans start
from one whose bits are in another order; the results of all other ops are converted to one and back.
"""

from __future__ import annotations

from random import Random

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import LANE_BITS, Layout, bits_of
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, TupleType, Type
from ziggurat.transforms.analysis.queries import is_elementwise, is_root, with_layout

# Registers that a tensor may fill in each thread.
_MANY_REGISTERS = 64


def random_layout(random: Random, numel: int, num_warps: int, *, mixed: bool = True) -> Layout:
    """A random layout that covers `numel` elements, with copies in some threads or registers, and bits in any order.

    With `mixed`, some bases have more than one bit.
    """
    bits = bits_of(numel)
    bases = [1 << bit for bit in range(bits)]
    random.shuffle(bases)
    if mixed:
        for _ in range(random.randrange(2 * bits + 1)):
            if bits > 1:
                first_bit, other = random.sample(range(bits), 2)
                bases[first_bit] ^= bases[other]
    places = LANE_BITS + bits_of(num_warps)
    spread = max(0, min(bits, places) - random.choice((0, 0, 0, 1, 2)))
    threads = [*bases[:spread], *([0] * (places - spread))]
    random.shuffle(threads)
    registers = [*bases[spread:], *([0] if random.random() < 0.2 else [])]
    random.shuffle(registers)
    return Layout(tuple(registers), tuple(threads[:LANE_BITS]), tuple(threads[LANE_BITS:]))


def scatter(module: Op, seed: int, share: float = 0.5) -> gpu.Module:
    """The GPU model in which a `share` of the ops have their tensors in random layouts, determined by the seed."""
    assert isinstance(module, gpu.Module)
    random = Random(seed)
    num_warps = module.num_warps

    def drawn(type_: TensorType, *, mixed: bool = True) -> Layout:
        return random_layout(random, type_.numel, num_warps, mixed=mixed)

    def scattered(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        tensors = [value.type for value in (*op.operands, op.result) if isinstance(value.type, TensorType)]
        if not tensors or isinstance(op, core.MakeTuple) or random.random() >= share:
            return None
        if any(type_.numel > _MANY_REGISTERS * 32 * num_warps for type_ in tensors):
            return None
        if is_elementwise(op) or isinstance(op, tt.Load | tt.Store | tt.AtomicRMW | tt.AtomicCAS):
            return _each(builder, op, operands, drawn(tensors[0]))
        if isinstance(op, tt.Reduce):
            layout = drawn(tensors[0], mixed=False)
            return builder.copy(op, [_converted(builder, value, layout) for value in operands], op.result.type)
        if isinstance(op, tt.Scan):
            return _each(builder, op, operands, drawn(tensors[0], mixed=False))
        type_ = op.result.type
        if not isinstance(type_, TensorType):
            return None
        layout = drawn(type_)
        if is_root(op):
            return _back(builder, builder.copy(op, operands, with_layout(type_, layout)), type_)
        return _back(builder, _converted(builder, builder.copy(op, operands), layout), type_)

    model = transform(module, scattered, pass_name="scatter")
    assert isinstance(model, gpu.Module)
    return model


def _each(builder: Rewriter, op: Op, operands: tuple[Value, ...], layout: Layout) -> Value:
    """An op whose tensors all have the same layout, in a given layout."""
    arguments = [_converted(builder, value, layout) for value in operands]
    before = op.result.type
    if isinstance(before, TupleType):
        type_: Type = TupleType(tuple(with_layout(component, layout) for component in before.components))
    else:
        type_ = with_layout(before, layout)
    if isinstance(op, tt.Load | tt.Store | tt.AtomicRMW):
        # Nothing is known of which registers point to neighbours.
        result = op.SPEC.make(arguments, (), {**op.attributes, "width": 1}, (), type_)
        return _back(builder, builder.add(result, op.location), before)
    return _back(builder, builder.copy(op, arguments, type_), before)


def _converted(builder: Builder, value: Value, layout: Layout) -> Value:
    type_ = with_layout(value.type, layout)
    return value if type_ == value.type else builder.add(gpu.ConvertLayout(value, type_))


def _back(builder: Builder, value: Value, type_: Type) -> Value:
    """A value converted back to its type."""
    if value.type == type_:
        return value
    if isinstance(type_, TupleType):
        components = [builder.add(core.TupleLoad(value, index)) for index in range(len(type_.components))]
        return builder.add(
            core.MakeTuple([_back(builder, v, t) for v, t in zip(components, type_.components, strict=True)])
        )
    assert isinstance(type_, TensorType) and type_.layout is not None
    return _converted(builder, value, type_.layout)
