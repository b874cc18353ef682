"""Layout assignment: a Triton model becomes a GPU model, where the type of a tensor says who holds which element.

A block that is stored transposed, in a CTA of one warp (L and M stand for layouts):

    %10 : tensor<x32, x32, ptr<f32>> = tt.addptr %9 %8;
    %11 : tensor<x32, x32, f32> = tt.load %10;
    %12 : tensor<x32, x32, f32> = tt.trans %11 @order=[1, 0];
    tt.store %10 %12;

becomes

    %11 : tensor<x32, x32, ptr<f32>, L> = tt.addptr %10 %9;
    %12 : tensor<x32, x32, f32, L> = tt.load %11 @width=4;
    %13 : tensor<x32, x32, f32, M> = gpu.convert_layout %12;
    %14 : tensor<x32, x32, f32, L> = tt.trans %13 @order=[1, 0];
    tt.store %11 %14 @width=4;

where L is "1 2 128 256 512 | 4 8 16 32 64 | ": four neighbours of a row in registers, eight lanes to a row, so that
both accesses are coalesced and in vectors; and M is the layout that the transposition maps to L:
"32 64 4 8 16 | 128 256 512 1 2 | ".

Tensors that follow from ranges, constants and scalars alone are computed in each layout in which they are needed, and
so are narrow loads, and what is computed from them, unless a conversion costs less (`recomputation`). Other
tensors are computed once, in their primary layout, and converted where another one is needed: just before the first
use, and before a cast to a wider type. Loops carry indices and pointers in each layout in which they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS, CompileOptions
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Successor, Value
from ziggurat.codemodel.structured import Structured, packed
from ziggurat.codemodel.traits import BodyTerminator, Loop, Terminator
from ziggurat.codemodel.transform import rebuilt
from ziggurat.codemodel.types import TensorType, TupleType, Type, component_types, of_floats, void
from ziggurat.transforms.analysis.axis_info import infer
from ziggurat.transforms.analysis.components import Component, component_of, components_of
from ziggurat.transforms.analysis.queries import function_of, is_shaping, registers_alike, with_layout
from ziggurat.transforms.layouts.layout_plan import Anchor, LayoutPlan, Operands

# A value that control flow carries: its position among the values, and its layout (None for a scalar).
Entry = tuple[int, Layout | None]


def assign(
    module: core.Module,
    options: CompileOptions = DEFAULT_OPTIONS,
    anchor: Anchor = lambda op, _: None,
    operands: Operands = lambda dot, _: None,
) -> gpu.Module:
    """The GPU model of a prepared Triton model: each tensor with a layout, and as few conversions as possible.

    `anchor` may give the layout of the result of a `tt.dot`, and `operands` those of its operands; None lets this step
    choose.
    """
    func = function_of(module)
    rebuilding = _Rebuilding(
        LayoutPlan(func, options.warps, anchor, operands, sum_bytes=TARGETS[options.target].sum_bytes)
    )
    outside = Builder.root()
    inside = Builder.root([p.type for p in func.body.parameters], func.body.yield_type)
    outside.add(rebuilt(func, (), [rebuilding.body(inside, func.body)]), func.location)
    outside.add(core.Unreachable())
    return gpu.Module(options.target, options.warps, outside.finish())


class _Rebuilding:
    def __init__(self, plan: LayoutPlan) -> None:
        self.plan = plan
        # The new value for an old one, in each layout in which there is one; with None for scalars.
        self.copies: dict[tuple[Component, Layout | None], Value] = {}
        self._new_blocks: dict[Block, tuple[Block, list[Entry]]] = {}
        self._entries: dict[Body, list[Entry]] = {}
        self._needs_inside: dict[Op, list[tuple[Component, Layout]]] = {}

    # Values.

    def get(self, value: Value, layout: Layout | None) -> Value:
        """The new value for an old one, in a layout; None for scalars."""
        copy = self.copies.get((component_of(value), layout))
        if copy is None:
            where = value.op.root() if isinstance(value, OpResult) else ""
            raise InternalError(f"{value!r} was not made in the layout {layout}", str(where))
        return copy

    def define(self, olds: Sequence[Value], entries: Sequence[Entry], news: Sequence[Value]) -> None:
        """Note which old values the new ones stand for."""
        for (position, layout), new in zip(entries, news, strict=True):
            self.copies[(olds[position], 0), layout] = new

    def ensure(self, builder: Builder, component: Component, layout: Layout) -> None:
        """Make a component in a layout that comes from a conversion, unless it exists."""
        if (component, layout) in self.copies:
            return
        value, _ = component
        sources = self.plan.sources(component, layout)
        if sources is None:
            source = self.copies[component, self.plan.primary.of(component)]
            converted = gpu.ConvertLayout(source, with_layout(source.type, layout))
            location = value.op.location if isinstance(value, OpResult) else None
            self.copies[component, layout] = builder.add(converted, location)
            return
        for source, required in sources:
            self.ensure(builder, source, required)
        assert isinstance(value, OpResult)
        self._compute(builder, value.op, layout)

    # Blocks.

    def body(self, builder: Builder, body: Body, parameters: Sequence[Entry] | None = None) -> Body:
        """Rebuild a body with these parameters; without them, those of the old body, which are scalars."""
        if parameters is None:
            parameters = [(at, None) for at in range(len(body.parameters))]
        self.define(body.parameters, parameters, builder.parameters)
        for block in body.blocks[1:]:
            entries = [
                (i, entry_layout)
                for i, value in enumerate(block.parameters)
                for entry_layout in self.plan.carried((value, 0))
            ]
            copy = builder.new_block(self._types(block.parameters, entries))
            self._new_blocks[block] = copy, entries
            self.define(block.parameters, entries, copy.parameters)
        for block in body.blocks:
            if block is not body.entry:
                builder.move_to(self._new_blocks[block][0])
            for op in block.ops:
                self.op(builder, op)
        return builder.finish()

    @staticmethod
    def _types(values: Sequence[Value], entries: Sequence[Entry]) -> list[Type]:
        return [with_layout(values[position].type, layout) for position, layout in entries]

    # Ops.

    def op(self, builder: Builder, op: Op) -> None:
        """Rebuild one op, and before it the conversions that it needs."""
        if isinstance(op, core.TupleLoad | core.MakeTuple):
            return  # `component_of` looks through them.
        if self.plan.is_lazy(op):
            for layout in self.plan.wanted((op.result, 0)):
                if not self.plan.is_late((op.result, 0), layout):
                    self.ensure(builder, (op.result, 0), layout)
            return
        for component, layout in self._needs(op):
            if self.plan.is_late(component, layout):
                self.ensure(builder, component, layout)
        if isinstance(op, Terminator):
            self._leave(builder, op)
        elif isinstance(op, Structured):
            self._structured(builder, op)
        else:
            self._plain(builder, op)

    def _needs(self, op: Op) -> list[tuple[Component, Layout]]:
        """The components that an op and all ops inside of it read, with the layouts."""
        own = self.plan.needs.get(op.result, [])
        if not op.bodies:
            return own
        needs = self._needs_inside.get(op)
        if needs is None:
            blocks = dict.fromkeys(block for body in op.bodies for block in body.blocks)
            inner = [need for block in blocks for each in block.ops for need in self._needs(each)]
            # A component that is defined inside is converted inside.
            needs = [need for need in dict.fromkeys((*own, *inner)) if need[0][0].block not in blocks]
            self._needs_inside[op] = needs
        return needs

    def _compute(self, builder: Builder, op: Op, layout: Layout) -> Value:
        """The result of a lazy op in a layout, computed there or converted."""
        component = op.result, 0
        if (component, layout) not in self.copies:
            own = self.plan.computed(op, layout)
            if own != layout:
                copy = self._compute(builder, op, own)
                copy = builder.add(gpu.ConvertLayout(copy, with_layout(copy.type, layout)), op.location)
            else:
                copy = self._made(builder, op, dict(self.plan.reads(op, layout)), [layout])
            self.copies[component, layout] = copy
        return self.copies[component, layout]

    def _made(
        self, builder: Builder, op: Op, required: Mapping[int, Layout], layouts: Sequence[Layout | None]
    ) -> Value:
        """An op with operands in the wanted layouts, and results in these; an access with its width."""
        operands = [self.get(value, required.get(position)) for position, value in enumerate(op.operands)]
        types = component_types(op.result.type)
        type_ = packed([with_layout(type_, layout) for type_, layout in zip(types, layouts, strict=True)])
        if isinstance(op, tt.Load | tt.Store | tt.AtomicRMW) and isinstance(op.ptr.type, TensorType):
            attributes = {**op.attributes, "width": self.plan.accesses.width(op, required[0])}
            if self.plan.accesses.is_ragged(op, required[0]):
                attributes["ragged"] = True
            if isinstance(op, tt.Load) and (runs := self.plan.accesses.runs(op)):
                attributes["runs"] = runs
            new = op.SPEC.make(operands, (), attributes, (), type_)
        elif isinstance(op, arith.SignedDivision):
            new = op.SPEC.make(operands, (), self._division(op), (), type_)
        else:
            inners = [builder.nested([p.type for p in body.parameters], body.yield_type) for body in op.bodies]
            bodies = [self.body(inner, body) for inner, body in zip(inners, op.bodies, strict=True)]
            new = rebuilt(op, operands, bodies, (), type_)
        return self._in_runs(builder, op, builder.add(new, op.location))

    def _division(self, op: arith.SignedDivision) -> dict[str, Any]:
        """The facts about a division that its code depends on."""
        infos = [self.plan.accesses.info(value) for value in op.operands]
        constancy = infer(arith.DivSI(op.lhs, op.rhs), infos).constancy
        runs = constancy if isinstance(op.result.type, TensorType) and max(constancy) > 1 else ()
        return {"nonnegative": infos[0].nonnegative, "runs": runs}

    def _in_runs(self, builder: Builder, op: Op, value: Value) -> Value:
        """A comparison or an unsigned quotient, with a hint on its runs of equal results: a thread computes one a run.

        Masks of accesses that move whole runs get no hint: an access looks at the mask of the first of its neighbours.
        """
        if not isinstance(op, arith.CmpI | arith.DivUI) or not isinstance(value.type, TensorType):
            return value
        constancy = self.plan.accesses.info(op.result).constancy
        if not registers_alike(value.type, constancy) or self._only_masks(op.result, max(constancy)):
            return value
        return builder.add(tt.MaxConstancy(value, tuple(constancy)), op.location)

    def _only_masks(self, value: Value, run: int) -> bool:
        """Whether a condition is used only as the mask of accesses that move runs of so many neighbours together, or as
        many as they can."""
        return all(
            self.plan.accesses.is_wide(user, run)
            if isinstance(user, tt.Load | tt.Store | tt.AtomicRMW)
            else (is_shaping(user) or isinstance(user, arith.AndI)) and self._only_masks(user.result, run)
            for user in value.uses
        )

    def _plain(self, builder: Builder, op: Op) -> None:
        """An op that gives its results in their primary layouts."""
        layouts = [self.plan.primary.of(component) for component in components_of(op.result)]
        copy = self._made(builder, op, dict(self.plan.reads(op)), layouts)
        self._results(builder, op, list(enumerate(layouts)), copy)

    def _results(self, builder: Builder, op: Op, entries: Sequence[Entry], result: Value) -> None:
        """Note the results of an op; load those components of a Tuple that are used."""
        if len(entries) == 1:
            position, layout = entries[0]
            self.copies[(op.result, position), layout] = result
            return
        # One value that is carried in several layouts became a Tuple; the old model has no loads from that.
        indices = {user.index for user in op.result.uses if isinstance(user, core.TupleLoad)}
        results_used = indices if isinstance(op.result.type, TupleType) else {0}
        for index, (position, layout) in enumerate(entries):
            if position in results_used:
                component = builder.add(core.TupleLoad(result, index), op.location)
                self.copies[(op.result, position), layout] = component

    # Control flow.

    def _structured(self, builder: Builder, op: Structured) -> None:
        """A loop or a branch, which carries each component in all layouts in which it is used."""
        types = component_types(op.result.type)
        entries = [(at, layout) for at in range(len(types)) for layout in self.plan.carried((op.result, at))]
        result = packed([with_layout(types[at], layout) for at, layout in entries])
        operands = [self.get(value, None) for value in op.controls]
        operands += [self.get(op.inits[at], layout) for at, layout in entries if op.inits]
        parameters: list[Entry] = [(at, None) for at in range(op.LEADING)]
        parameters += [(at + op.LEADING, layout) for at, layout in entries if op.inits]
        bodies: list[Body] = []
        for body in op.bodies:
            inner = builder.nested(self._types(body.parameters, parameters), result)
            self._entries[body] = entries
            bodies.append(self.body(inner, body, parameters))
        new = op.SPEC.make(operands, (), dict(op.attributes), bodies, result)
        self._results(builder, op, entries, builder.add(new, op.location))

    def _leave(self, builder: Builder, op: Op) -> None:
        """A terminator, after the conversions of this block's values for the blocks that follow."""
        block = op.parent
        assert block is not None
        if op.successors:
            values = [*block.parameters, *(inner.result for inner in block.ops)]
            for component in (component for value in values for component in components_of(value)):
                for layout in self.plan.wanted(component):
                    if self.plan.is_late(component, layout):
                        self.ensure(builder, component, layout)
        if isinstance(op, BodyTerminator) and block.parent in self._entries:
            operands = [self.get(value, None) for value in op.operands[: len(op.operands) - len(op.handed)]]
            operands += [self._handed(builder, op, op.handed[at], layout) for at, layout in self._entries[block.parent]]
            new = op.SPEC.make(operands, (), {}, (), void)
        else:
            successors: list[Successor] = []
            for old in op.successors:
                target, entries = self._new_blocks[old.block]
                successors.append(Successor(target, [self.get(old.arguments[at], layout) for at, layout in entries]))
            new = rebuilt(op, [self.get(value, None) for value in op.operands], (), successors)
        builder.add(new, op.location)

    def _handed(self, builder: Builder, op: Op, value: Value, layout: Layout | None) -> Value:
        """A value that a body hands on. Floats of a loop get a hint on their runs of equal ones: a thread carries one a
        run, and computes the next from it."""
        result = self.get(value, layout)
        type_, is_loop = result.type, isinstance(op.parent_op, Loop)
        if is_loop and isinstance(type_, TensorType) and of_floats(type_):
            constancy = self.plan.accesses.info(value).constancy
            if registers_alike(type_, constancy):
                return builder.add(tt.MaxConstancy(result, tuple(constancy)), op.location)
        return result
