"""Tensors in loop nests and buffers: the plan of a kernel (`plan.py`) carried out.

%8 : tensor<x1024, f32> = tt.load %5 %7;        %20 : buffer<x1024, f32> = cpu.alloc;
%9 : f32 = tt.reduce %8 @axis=0 {…};            %21 : f32 = cpu.region @shape=[1024] {
%10 : tensor<x1024, f32> = tt.splat %9;             %26 : tensor<x1024, f32> = tt.load %24 %25;
%11 : tensor<x1024, f32> = arith.subf %8 %10;       cpu.put %20 %26;
tt.store %6 %11 %7;                                 %27 : f32 = tt.reduce %26 @axis=0 {…};
                                                    cpu.end %27;
                                                };
                                                cpu.region @shape=[1024] {
                                                    %28 : tensor<x1024, f32> = cpu.get %20;
                                                    …
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, cf, core, cpu, scf, tt
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value, expect
from ziggurat.codemodel.structured import Structured, packed
from ziggurat.codemodel.traits import Pure
from ziggurat.codemodel.transform import Rewriter
from ziggurat.codemodel.types import TensorType, Type, component_types, i32, shape_of
from ziggurat.transforms.analysis.components import Component, component_of
from ziggurat.transforms.cpu.plan import (
    Edge,
    Item,
    NestPlan,
    NestStep,
    Segment,
    adds_to_zero,
    carried,
    dot_operands,
    holds_tensor,
)


def make_regions(module: core.Module, vector: int) -> cpu.Module:
    """The CPU model of a prepared module, for vectors of `vector` bytes."""
    (func,) = module.functions().values()
    assert isinstance(func, tt.Func)
    outside = Rewriter.over(Builder.root())
    body = _Regions(NestPlan(func)).function(func, outside)
    outside.add(tt.Func(func.sym_name, body, divisibility=func.divisibility, parts=func.parts), func.location)
    outside.add(core.Unreachable())
    return cpu.Module(outside.finish(), vector=vector)


class _Regions:
    """The new function while it is written."""

    def __init__(self, plan: NestPlan) -> None:
        self.plan = plan
        self.buffers: dict[Component, Value] = {}
        self.in_buffers: set[Component] = set()  # The components whose homes hold them here.

    def function(self, func: tt.Func, outside: Rewriter) -> Body:
        """The body of the new function. All buffers are declared at its beginning."""
        builder = outside.replacing(func.body)
        builder.location = func.location
        for component in self.plan.homes:
            owner = self.plan.home(component)
            if owner not in self.buffers:
                type_ = expect(component_types(owner[0].type)[owner[1]], TensorType)
                self.buffers[owner] = builder.add(cpu.Alloc(cpu.BufferType(type_.shape, type_.element)))
        self._blocks(func.body, builder)
        return builder.finish()

    def buffer(self, component: Component) -> Value:
        """The home of a component."""
        return self.buffers[self.plan.home(component)]

    def get(self, component: Component, value: Value) -> cpu.Get:
        """An op that reads a tensor from the home of a component."""
        return cpu.Get(self.buffer(component), type=value.type)

    def _body(
        self, body: Body, around: Rewriter, types: Sequence[Type], yields: Type, parameters: Sequence[Value]
    ) -> Body:
        builder = around.inside(types, yields)
        builder.mapping.values.update(zip(parameters, builder.parameters, strict=True))
        for parameter in body.parameters:
            if isinstance(parameter.type, TensorType):
                self.in_buffers.add((parameter, 0))
        self._blocks(body, builder)
        return builder.finish()

    def _blocks(self, body: Body, builder: Rewriter) -> None:
        outer = set(self.in_buffers)
        for block in body.blocks[1:]:
            scalars = [p for p in block.parameters if not isinstance(p.type, TensorType)]
            copy = builder.new_block([p.type for p in scalars])
            builder.mapping.blocks[block] = copy
            builder.mapping.values.update(zip(scalars, copy.parameters, strict=True))
            self.in_buffers.update((p, 0) for p in block.parameters if isinstance(p.type, TensorType))
        for block in body.blocks:
            if block is not body.entry:
                builder.move_to(builder.mapping.blocks[block])
            self._block(block, builder)
        self.in_buffers = outer

    def _block(self, block: Block, builder: Rewriter) -> None:
        edges: dict[int, Segment] = {}
        for entry in self.plan.entries[block]:
            if isinstance(entry, Segment):
                self._segment(entry, builder)
            elif isinstance(entry, Edge):
                edges[entry.successor] = entry.segment
            else:
                builder.location = entry.location
                self._op(entry, builder, edges)

    # Ops outside of regions.

    def _op(self, op: Op, builder: Rewriter, edges: dict[int, Segment]) -> None:
        if isinstance(op, Structured):
            self._structured(op, builder)
        elif isinstance(op, scf.Yield | scf.Condition):
            values = [builder[value] for value in op.operands if not isinstance(value.type, TensorType)]
            builder.add(op.SPEC.make(values, (), {}, (), op.result.type), op.location)
        elif isinstance(op, cf.Br | cf.CondBr):
            self._branch(op, builder, edges)
        elif isinstance(op, tt.Split):
            halves = component_types(op.result.type)
            buffer = self.buffer(component_of(op.value))
            parts = [builder.add(cpu.Get(buffer, start=half, type=halves[half])) for half in range(2)]
            self._results(op, builder, range(2), parts)
        else:
            operands = [
                self.buffer(component_of(value)) if isinstance(value.type, TensorType) else builder[value]
                for value in op.operands
            ]
            builder.mapping.values[op.result] = builder.copy(op, operands, op.result.type)

    def _branch(self, op: cf.Br | cf.CondBr, builder: Rewriter, edges: dict[int, Segment]) -> None:
        here = builder.block
        successors: list[Successor] = []
        for number, successor in enumerate(op.successors):
            target = builder.mapping.blocks[successor.block]
            values = [builder[v] for v in successor.arguments if not isinstance(v.type, TensorType)]
            edge = Successor(target, values)
            if number in edges:
                middle = builder.new_block()
                builder.move_to(middle)
                self._segment(edges[number], builder)
                builder.add(cf.Br(edge), op.location)
                builder.move_to(here)
                edge = Successor(middle)
            successors.append(edge)
        operands = [builder[value] for value in op.operands]
        builder.add(op.SPEC.make(operands, successors, {}, (), op.result.type), op.location)

    def _structured(self, op: Structured, builder: Rewriter) -> None:
        """A loop or a branch that carries only the scalars."""
        tensors = set(carried(op))
        scalars = [index for index in range(len(op.value_types)) if index not in tensors]
        yields = packed([op.value_types[index] for index in scalars])
        operands = [*op.controls, *(op.inits[index] for index in scalars if op.inits)]
        bodies: list[Body] = []
        for body in op.bodies:
            values = op.entry_arguments(body)
            parameters = [*body.parameters[: op.LEADING], *(values[index] for index in scalars if values)]
            types = [p.type for p in parameters]
            bodies.append(self._body(body, builder, types, yields, parameters))
        new = op.SPEC.make([builder[v] for v in operands], (), dict(op.attributes), bodies, yields)
        result = builder.add(new, op.location)
        self._results(op, builder, scalars, _unpacked(builder, result, len(scalars)))
        self.in_buffers.update((op.result, index) for index in tensors)

    def _results(self, op: Op, builder: Rewriter, indices: Sequence[int], values: Sequence[Value]) -> None:
        """Let the scalars among the components of an op's result be these values."""
        if len(component_types(op.result.type)) == 1:
            builder.mapping.values.update(zip([op.result] * len(indices), values, strict=True))
            return
        scalars = dict(zip(indices, values, strict=True))
        for user in op.result.uses:
            if isinstance(user, core.TupleLoad) and user.index in scalars:
                builder.mapping.values[user.result] = scalars[user.index]

    # Regions.

    def _segment(self, segment: Segment, builder: Rewriter) -> None:
        for index, scalars in enumerate(segment.scalars):
            for op in scalars:
                if builder.mapping.get(op.result) is None:
                    builder.location = op.location
                    builder.mapping.values[op.result] = builder.copy(op, [builder[v] for v in op.operands])
            if index < len(segment.items):
                item = segment.items[index]
                first = item.statements[0].op
                if first is not None:
                    builder.location = first.location
                if item.shape is None:
                    assert first is not None
                    self._whole(first, builder)
                else:
                    self._region(item, builder)

    def _region(self, item: Item, builder: Rewriter) -> None:
        assert item.shape is not None
        results = [s.op for s in item.statements if isinstance(s.op, tt.Reduce) and not holds_tensor(s.op.result.type)]
        types = [type_ for op in results for type_ in component_types(op.result.type)]
        region = _Region(self, item, builder.inside([], packed(types)))
        for statement in item.statements:
            region.state(statement)
        region.inside.add(cpu.End(region.arguments))
        region_op = builder.add(cpu.Region(item.shape, region.inside.finish(), axis=item.axis))
        values = _unpacked(builder, region_op, len(types))
        for op in results:
            count = len(component_types(op.result.type))
            self._results(op, builder, range(count), values[:count])
            values = values[count:]
        self.in_buffers.update(region.puts)

    def _whole(self, op: Op, builder: Rewriter) -> None:
        """An op on buffers."""
        match op:
            case tt.Dot():
                target = self.buffer((op.result, 0))
                operands, zero = dot_operands(op), adds_to_zero(op)
                a, b = (self.buffer(component_of(value)) for value in operands[:2])
                c = target if zero else self.buffer(component_of(op.c))
                if c is not target:
                    builder.add(cpu.Copy(c, target))
                transposed = operands[1] is not op.b
                builder.add(cpu.Dot(a, b, target, input_precision=op.input_precision, transposed=transposed, zero=zero))
                self.in_buffers.add((op.result, 0))
            case tt.Scan():
                targets: list[Value] = []
                for index, value in enumerate(op.values):
                    targets.append(self.buffer((op.result, index)))
                    builder.add(cpu.Copy(self.buffer(component_of(value)), targets[-1]))
                    self.in_buffers.add((op.result, index))
                combine = builder.rewrite_body(op.combine)
                builder.add(cpu.Scan(targets, op.axis, combine, reverse=op.reverse))
            case cpu.Sort():
                target = self.buffer((op.result, 0))
                builder.add(cpu.Sort(self.buffer(component_of(op.keys)), target))
                self.in_buffers.add((op.result, 0))
            case tt.Histogram():
                self._histogram(op, builder)
            case _:
                raise KernelTypeError(f"{op.NAME} has no form for a CPU", op.location)

    def _histogram(self, op: tt.Histogram, builder: Rewriter) -> None:
        counts = self.buffer((op.result, 0))
        inner = builder.inside([], packed([]))
        inner.add(cpu.Put(counts, inner.add(arith.ConstantOp(0, TensorType((op.bins,), i32)))))
        inner.add(cpu.End([]))
        builder.add(cpu.Region((op.bins,), inner.finish()))
        inner = builder.inside([], packed([]))
        read = [inner.add(cpu.Get(self.buffer(component_of(value)), type=value.type)) for value in op.operands]
        inner.add(cpu.Count(counts, *read))
        inner.add(cpu.End([]))
        builder.add(cpu.Region(shape_of(op.value.type), inner.finish()))
        self.in_buffers.add((op.result, 0))


class _Region:
    """The body of a region while it is written."""

    def __init__(self, around: _Regions, item: Item, inside: Rewriter) -> None:
        self.around = around
        self.item = item
        self.inside = inside
        self.arguments: list[Value] = []  # The scalars that the region gives.
        self.puts: list[Component] = []
        self._own: dict[Value, Value] = {}  # The counterparts of tensors here.

    def pull(self, value: Value) -> Value:
        """The counterpart of a value in this region: computed here, or read from its home."""
        if not holds_tensor(value.type):
            return self.inside[value]
        copy = self._own.get(value)
        if copy is None:
            copy = self._own[value] = self._pulled(value)
        return copy

    def _pulled(self, value: Value) -> Value:
        around = self.around
        component = component_of(value)
        if component in around.in_buffers and component[0] not in self._own:
            return self.inside.add(around.get(component, value))
        assert isinstance(value.op, Pure | core.TupleLoad), f"{value!r} has no home"
        return self.copy(value.op)

    def copy(self, op: Op) -> Value:
        """A copy of an op on what it uses here."""
        operands = [self.pull(value) for value in op.operands]
        self.inside.location = op.location
        copy = self._own[op.result] = self.inside.copy(op, operands, op.result.type)
        return copy

    def state(self, statement: NestStep) -> None:
        """Append a statement."""
        op = statement.op
        if op is None:
            assert statement.target is not None
            value, source = statement.value, statement.source
            state = self.pull(value) if source is None else self.inside.add(self.around.get(source, value))
            self.put(statement.target, state)
            return
        self.copy(op)
        new = self._own[op.result]
        parts = component_types(op.result.type)
        for index in range(len(parts)):
            if (op.result, index) in self.around.plan.homes:
                self.put((op.result, index), _component(self.inside, new, len(parts), index))
        if isinstance(op, tt.Reduce) and not holds_tensor(op.result.type):
            self.arguments += [_component(self.inside, new, len(parts), index) for index in range(len(parts))]

    def put(self, component: Component, value: Value) -> None:
        """Store a tensor to a home."""
        self.inside.add(cpu.Put(self.around.buffer(component), value))
        self.puts.append(component)


def _component(builder: Builder, value: Value, count: int, index: int) -> Value:
    return value if count == 1 else builder.add(core.TupleLoad(value, index))


def _unpacked(builder: Builder, value: Value, count: int) -> list[Value]:
    return [_component(builder, value, count, index) for index in range(count)]
