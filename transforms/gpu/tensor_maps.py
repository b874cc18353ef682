"""Tensor maps that the kernel makes, for the descriptors that TMA uses and that are no parameters.

    tt.func @"…" (%0 : ptr<f16>, …)void -> {            tt.func @"…" (%0 : ptr<f16>, …, %4 : ptr<i8>)void -> {
                                                            %5 : shared<x32, i32, "1 2 4 8 16"> =
                                                                gpu.local_alloc @alignment=128;
                                                            …                    the number of the program · 128
                                                            %20 : ptr<i8> = tt.addptr %4 %19;
        %9 : descriptor<x64, x64, f16> =         becomes    %24 : descriptor<x64, x64, f16> =
            tt.make_tensor_descriptor %0 …;                     gpu.make_tensor_map %5 %20 %0 … @index=0;

TMA reads a tensor map from global memory. The launch provides it: the last parameter of the kernel, whose part is
"scratch", points to 128 bytes for each map of each program. A map is made where the descriptor is, in a loop each time
anew. Nothing in flight reads the map before then: the copies of a loop are complete after it, and a store of TMA is
waited for at once (`hazards` checks this). The buffers in which maps are filled live from the beginning of the kernel
on, as warp roles run side by side.

It takes a warp 0.4 microseconds to make a map (H200). So the maps of neighbouring descriptors are made side by side,
each by a warp of its own, between two barriers. In a kernel with roles, the elected thread's warp makes them all.

A map of parameters and constants can be made by the launch (`at_launch`). It is a parameter, too: its part is "map"
with the numbers of the parameters that it is made of, or "=" and a constant.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import MAP, MAP_BYTES, SCRATCH, STORED
from ziggurat.codemodel.op import BlockParameter, Op, Value, expect
from ziggurat.codemodel.traits import Pure
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import PtrType, SharedType, i8, i32, i64
from ziggurat.transforms.analysis.queries import constant, constant_of, role_split


def make_tensor_maps(module: gpu.Module) -> Op:
    """The GPU model whose kernel makes a tensor map for each descriptor that is made and used."""
    module = expect(_with_maps_of_launch(module), gpu.Module)
    makes = [op for op in module.walk() if isinstance(op, tt.MakeTensorDescriptor) and op.result.uses]
    if not makes:
        return module
    size = MAP_BYTES * len(makes)
    warps = module.num_warps if role_split(module) is None else 1
    neighbours = {op: run for run in _runs(makes) for op in run}
    parameters: dict[Op, tuple[Value, ...]] = {}
    buffers: list[Value] = []
    scratch: list[Value] = []

    def lowered(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, gpu.Module):
            return builder.add(op.evolve(body=builder.rewrite_body(op.body, isolated=True), scratch=size), op.location)
        if isinstance(op, tt.Func):
            old = op.body.parameters
            types = [*(parameter.type for parameter in old), PtrType(i8)]
            inner = builder.inside(types, op.body.yield_type, isolated=True)
            inner.location = op.location
            inner.mapping.values.update(zip(old, inner.parameters, strict=False))
            type_ = SharedType((MAP_BYTES // 4,), i32, (1, 2, 4, 8, 16))
            buffers.extend(inner.add(gpu.LocalAlloc(type_, alignment=MAP_BYTES)) for _ in makes)
            scratch.append(_of_program(inner, inner.parameters[-1], size))
            inner.rewrite_blocks(op.body)
            return builder.add(_with_parameters(op, inner, [SCRATCH], MAP_BYTES), op.location)
        if not isinstance(op, tt.MakeTensorDescriptor):
            return None
        if op not in neighbours:
            return DROP
        parameters[op] = operands
        run = neighbours[op]
        if op is not run[-1]:
            return DROP
        apart = min(len(run), warps) > 1
        if apart and not (isinstance(op.parent_op, tt.Func) and op.parent is op.parent_op.body.entry):
            # In a loop, the elected thread may still use the maps of the iteration before.
            builder.add(gpu.Barrier())
        for number, make in enumerate(run):
            index, rank = makes.index(make), len(make.shape)
            base, *numbers = parameters[make]
            builder.mapping.values[make.result] = builder.add(
                gpu.MakeTensorMap(
                    buffers[index], scratch[0], base, numbers[:rank], numbers[rank:], make.result.type,
                    index=index, warp=number % warps,
                ),
                make.location,
            )  # fmt: skip
        if apart:
            builder.add(gpu.Barrier())
        maps = [builder.mapping.values[make.result] for make in run]
        builder.add(gpu.AcquireTensorMaps(maps))
        return maps[-1]

    return transform(module, lowered, pass_name="tensor_maps")


def _runs(makes: Sequence[tt.MakeTensorDescriptor]) -> list[list[tt.MakeTensorDescriptor]]:
    """The ops, in lists of those between which only pure ops and loads stand, without a use of their results."""
    runs: list[list[tt.MakeTensorDescriptor]] = []
    for op in makes:
        block, last = op.parent, runs[-1][-1] if runs else None
        if last is not None and block is not None and last.parent is block:
            values = {make.result for make in runs[-1]}
            results = [op.result for op in block.ops]
            between = block.ops[results.index(last.result) + 1 : results.index(op.result)]
            if all(isinstance(op_, Pure | tt.Load) and values.isdisjoint(op_.operands) for op_ in between):
                runs[-1].append(op)
                continue
        runs.append([op])
    return runs


def _of_program(builder: Builder, scratch: Value, size: int) -> Value:
    """The address of the `size` bytes of this program."""
    x, y, z, columns, rows = (
        builder.add(arith.ExtSI(builder.add(op), i64))
        for op in (
            tt.GetProgramId(0),
            tt.GetProgramId(1),
            tt.GetProgramId(2),
            tt.GetNumPrograms(0),
            tt.GetNumPrograms(1),
        )
    )
    row = builder.add(arith.AddI(builder.add(arith.MulI(z, rows)), y))
    number = builder.add(arith.AddI(builder.add(arith.MulI(row, columns)), x))
    return builder.add(tt.AddPtr(scratch, builder.add(arith.MulI(number, constant(builder, size, i64)))))


def _with_maps_of_launch(module: Op) -> Op:
    """The model whose kernel takes the maps that a launch makes as further parameters."""
    makes = [op for op in module.walk() if isinstance(op, tt.MakeTensorDescriptor) and op.at_launch]

    def lowered(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, tt.Func):
            old = op.body.parameters
            types = [value.type for value in (*old, *(make.result for make in makes))]
            inner = builder.inside(types, op.body.yield_type, isolated=True)
            inner.location = op.location
            inner.mapping.values.update(zip([*old, *(make.result for make in makes)], inner.parameters, strict=True))
            inner.rewrite_blocks(op.body)
            parts = [_part_of(make) for make in makes]
            return builder.add(_with_parameters(op, inner, parts), op.location)
        return builder[op.result] if op in makes else None

    return transform(module, lowered, pass_name="tensor_maps") if makes else module


def _part_of(make: tt.MakeTensorDescriptor) -> str:
    """The part of a tensor map that a launch makes."""
    is_stored = any(isinstance(user, gpu.TmaStore) for user in make.result.uses)
    return " ".join((MAP, *map(_source, (make.base, *make.shape, make.strides[0])))) + STORED * is_stored


def _source(value: Value) -> str:
    """The parameter or the constant that an operand of a descriptor is."""
    while isinstance(value.op, tt.Hint | arith.ExtSI):
        (value,) = value.op.operands
    return str(value.index) if isinstance(value, BlockParameter) else f"={constant_of(value)}"


def _with_parameters(op: tt.Func, inner: Rewriter, parts: Sequence[str], divisor: int = 1) -> tt.Func:
    """The function with further parameters."""
    count = len(op.body.parameters)
    divisibility = (*(op.divisibility or (1,) * count), *[divisor] * len(parts))
    parts = (*(op.parts or map(str, range(count))), *parts)
    return op.evolve(body=inner.finish(), divisibility=divisibility, parts=parts)
