"""The cost of a GPU model: what each op asks of an SM, for one CTA and one iteration of the loops around it.

    %14 : tensor<x1024, f32, "1 2 512 | …"> = tt.load %13 %11 @width=4;      4 warps

loads 4096 bytes, as 128 sectors of 32 bytes, by 2 instructions of 128 bits in each warp.

Bytes, sectors, wavefronts of shared memory and operations of the matrix units follow from the layouts, and are exact as
far as these say which elements are neighbours; masks count as true. A wavefront is a cycle in which each of the 32
banks serves a word: bank conflicts show as more wavefronts than bytes / 128. Issue slots (instructions of warps) are an
estimate: what an op takes for each element, where a thread computes equal values once, and values that differ by a
constant as well (LLVM adds the constant to an address). `tests/backend/ptx/test_machine_code.py` compares them with
machine code.

The cycles of an SM for each resource are a lower bound for the time of a CTA: `Work.cycles`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce

import attrs

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import WGMMA_COLUMNS, box_and_swizzle, unit_for, warps_of
from ziggurat.codemodel.gpu.scope import WARP_GROUP
from ziggurat.codemodel.gpu.targets import TARGETS, Target
from ziggurat.codemodel.layout import LANE_BITS, Layout, Span, axis_bases, bits_of, moved, transposition
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BodyTerminator, Loop, Pure
from ziggurat.codemodel.types import PtrType, ScalarType, SharedType, TensorType, Type, i1
from ziggurat.transforms.analysis.affine import Form, Forms
from ziggurat.transforms.analysis.axis_info import AxisInfo, analyse, unknown_component
from ziggurat.transforms.analysis.components import (
    Component,
    ComponentGroup,
    component_of,
    groups_of,
    tensor_operands,
    tensor_type,
)
from ziggurat.transforms.analysis.issue_slots import DIVISIONS, FUNCTIONS, ISSUES, bits_of_element, slots_of
from ziggurat.transforms.analysis.queries import (
    descriptor_of,
    function_of,
    is_computable,
    is_elementwise,
    is_shaping,
    layout_of,
    operand_layouts,
    registers_alike,
    shared_of,
    tensor_of,
    warp_reduction,
)
from ziggurat.transforms.analysis.sectors import SECTOR, Sectors
from ziggurat.transforms.cost.budget import limits
from ziggurat.transforms.cost.pressure import pressure
from ziggurat.transforms.layouts.accesses import Access, Accesses, pointee_bytes
from ziggurat.transforms.layouts.shuffle_rounds import exchange
from ziggurat.transforms.layouts.swizzle import LINE, VECTOR, Moves, extended, moves, stores_matrices, vector_moves

L2_BYTES = 64  # The width of an SM's port, a cycle.


@attrs.frozen
class Work:
    """Demands on an SM. `read` and `written` are bytes of global memory that are used. `moved` are those of different
    sectors, and `asked` those of the sectors of each instruction, which L1 may have.

    `wavefronts` are cycles of shared memory, `least` those without bank conflicts. `flops` are operations of the matrix
    units, `tensor` the cycles that these take. `issued` are instructions of warps, `functions` those among them for the
    MUFU.
    """

    read: float = 0
    written: float = 0
    moved: float = 0
    asked: float = 0
    wavefronts: float = 0
    least: float = 0
    flops: float = 0
    tensor: float = 0
    issued: float = 0
    functions: float = 0
    barriers: float = 0

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(attrs.astuple(self), attrs.astuple(other), strict=True)))

    def times(self, count: float) -> Work:
        """The work of so many times this."""
        return Work(*(count * number for number in attrs.astuple(self)))

    @property
    def cycles(self) -> dict[str, float]:
        """The least cycles that an SM takes for this, by the resource."""
        return {
            "matrix units": self.tensor,
            "shared memory": self.wavefronts,
            "L2 cache": self.moved / L2_BYTES,
            "issue slots": self.issued / ISSUES,
            "MUFU": self.functions * 32 / FUNCTIONS,
        }


@attrs.frozen(eq=False)
class CostEntry:
    """The cost of an op. `loop` is the innermost loop around it, `role` the number of its warps' role.

    `bits` is the width of an access, None for other ops; `reasons` say why an access is not better.
    """

    op: Op
    loop: Op | None
    role: int
    work: Work
    bits: int | None = None
    reasons: tuple[str, ...] = ()


@attrs.frozen(eq=False)
class Cost:
    """The cost of a model: of each op in order, and of a CTA."""

    entries: tuple[CostEntry, ...]
    func: tt.Func
    target: Target
    warps: int
    shared: int
    carried: int

    def ctas(self, registers: int) -> dict[str, int]:
        """The occupancy (CTAs per SM) that each resource allows, if a thread has so many registers."""
        return limits(self.target, self.warps, registers, self.shared)


def cost_of(module: gpu.Module, names: tuple[str, ...] = (), *, at_least: bool = False) -> Cost:
    """The cost of a model after all passes. `names` are those of the arguments, for the reasons.

    With `at_least`, elements count as different only if LLVM cannot know that they are equal: loads whose addresses are
    affine, of each array the first one, and what is computed from these.
    """
    return _Costs(module, names, at_least).cost()


_SHARED_DIVISOR = 4  # Issue slots of a division by what a thread divides several elements by.
# Issue slots of a warp for ops of all elements at once, or of an elected thread.
_OTHERS: dict[type[Op], float] = {
    gpu.Barrier: 1, gpu.ClusterBarrier: 2, gpu.ClusterArrive: 2, gpu.ClusterWait: 1, gpu.FenceAsync: 2,
    gpu.FenceGlobal: 2, gpu.AsyncCommit: 1, gpu.AsyncWait: 1, gpu.WgmmaWait: 1, gpu.MbarrierWait: 3,
    gpu.MbarrierArrive: 3, gpu.MbarrierExpect: 4, gpu.MbarrierInit: 4, gpu.MbarrierInval: 4, gpu.TmaStoreWait: 1,
    gpu.LocalView: 1, tt.Barrier: 1, scf.For: 0, scf.If: 2, scf.Yield: 0,
}  # fmt: skip
_LOOP_SLOTS = 3  # An addition, a comparison and a jump for each iteration.
_ELECTED = 8  # Issue slots of a warp for a box that TMA copies, which one thread begins.
_FREE = (
    arith.ConstantOp, core.TupleLoad, core.MakeTuple, gpu.LocalAlloc, gpu.LocalTrans, tt.Splat, tt.Poison, tt.Join,
    tt.Split, tt.Cat,
)  # fmt: skip
_OFFSET = (arith.AddI, arith.SubI, tt.AddPtr, tt.Hint, arith.ExtSI, arith.ExtUI)  # Keep a constant apart.


def move_of(op: gpu.LocalLoad | gpu.LocalStore, target: Target) -> tuple[Layout, tuple[int, ...], int, bool]:
    """The layout of the tensor that moves, the `offsets` of the buffer, the bytes of an element, and whether matrices
    may move at once: the arguments of `moves`."""
    shared, value = shared_of(op.buffer), op.result if isinstance(op, gpu.LocalLoad) else op.value
    layout = layout_of(value.type)
    matrices = isinstance(op, gpu.LocalLoad) or (target.has_stmatrix and stores_matrices(layout))
    return layout, shared.offsets, shared.element.bytes, matrices


class _Costs:
    def __init__(self, module: gpu.Module, names: tuple[str, ...], at_least: bool) -> None:
        self.module, self.names, self.at_least = module, names, at_least
        self.func = func = function_of(module)
        self.target = TARGETS[module.target]
        self.accesses = Accesses(func, analyse(func), module.num_warps, sum_bytes=self.target.sum_bytes)
        self.groups = groups_of(func)
        self.sectors = Sectors(self._info, self.groups)
        self.needs = _needed(func, self.groups, self._may_drop)
        self.forms = Forms(self.func)
        self.first_loads: dict[Value | None, Op] = {}
        self.varies: dict[Value, tuple[int, int]] = {}
        self.bits_by_group: dict[ComponentGroup, int] = {}
        self.entries: list[CostEntry] = []
        self.warps = module.num_warps

    def cost(self) -> Cost:
        self._body(self.func, None, 0)
        registers = pressure(self.module).registers
        return Cost(tuple(self.entries), self.func, self.target, self.module.num_warps, self.module.shared, registers)

    def _body(self, owner: Op, loop: Op | None, role: int) -> None:
        warps = self.warps
        for number, body in enumerate(owner.bodies):
            if isinstance(owner, gpu.WarpSpecialize):
                role, self.warps = number, owner.scopes[number].warps
            for op in (op for block in body.blocks for op in block.ops):
                within = op if isinstance(op, Loop) else loop
                if isinstance(op, Structured | gpu.WarpSpecialize):
                    self._body(op, within, role)
                if isinstance(op, Loop):
                    self._add(op, op, role, Work(issued=_LOOP_SLOTS * self.warps))
                else:
                    self._op(op, loop, role)
        self.warps = warps

    def _add(
        self, op: Op, loop: Op | None, role: int, work: Work, bits: int | None = None, reasons: tuple[str, ...] = ()
    ) -> None:
        if work != Work():
            self.entries.append(CostEntry(op, loop, role, work, bits, reasons))

    def _op(self, op: Op, loop: Op | None, role: int) -> None:
        if isinstance(op, Access):
            self._add(op, loop, role, *self._access(op))
        elif isinstance(op, gpu.TmaCopy):
            size, own, type_ = shared_of(op.buffer).bytes, op.own_bytes, descriptor_of(op.descriptor)
            box, _ = box_and_swizzle(type_)
            issued = _ELECTED * math.prod(type_.block) / math.prod(box) * self.warps * own / size
            traffic = {"read" if op.writes else "written": own}
            work = Work(**traffic, moved=own, asked=own, wavefronts=size / LINE, least=size / LINE, issued=issued)
            self._add(op, loop, role, work)
        elif isinstance(op, gpu.LocalLoad | gpu.LocalStore):
            self._add(op, loop, role, *self._local(op))
        elif isinstance(op, gpu.LocalGather | gpu.LocalAtomicAdd):
            count = _unique(op.index.type) * self.warps  # Conflicts depend on the indices.
            self._add(op, loop, role, Work(wavefronts=count, least=count, issued=2 * count))
        elif isinstance(op, gpu.ClusterStore):  # Two addresses and a store; of a tensor, for each CTA.
            count = shared_of(op.buffer).shape[-1] * _unique(op.value.type) if tensor_type((op.value, 0)) else 1
            self._add(op, loop, role, Work(issued=3 * count * self.warps))
        elif isinstance(op, gpu.MatrixProduct):
            self._add(op, loop, role, self._product(op))
        else:
            issued, mufu = self._slots(op)
            barriers = int(isinstance(op, gpu.Barrier))
            self._add(op, loop, role, Work(issued=issued * self.warps, functions=mufu * self.warps, barriers=barriers))

    # Memory.

    def _access(self, op: Access) -> tuple[Work, int, tuple[str, ...]]:
        """The work, the width in bits, and the reasons why it is not better."""
        size, width, reasons = pointee_bytes(op.ptr), getattr(op, "width", 1), list[str]()
        useful, sectors, requested, count = size, SECTOR, SECTOR, 1.0
        if isinstance(op.ptr.type, TensorType):
            layout = layout_of(op.ptr.type)
            registers = _registers_accessed(op, op.ptr.type)
            useful, count = op.ptr.type.numel * size, (1 << sum(map(bool, registers))) / width
            accessed = Layout(registers, layout.lanes, layout.warps)
            sectors, requested = (SECTOR * count for count in self.sectors.of(op.ptr, accessed, width))
            reasons += self._why_narrow(op, layout, width, size)
            if requested > sectors:
                times = requested // sectors
                reasons.append(f"each sector is asked for {times} times: a thread moves neighbours one after the other")
        loads, stores = not isinstance(op, tt.Store), not isinstance(op, tt.Load | gpu.AsyncCopy)
        both = loads + stores
        work = Work(useful * loads, useful * stores, sectors * both, requested * both, issued=count * self.warps)
        if isinstance(op, gpu.AsyncCopy):
            # The size of a masked copy is selected.
            masks = 0 if op.mask is None else 2 * self._count(op.mask)
            vectors = vector_moves(layout_of(op.ptr.type), shared_of(op.buffer).offsets, size, bits_of(width))
            waves, least = vectors.wavefronts * self.warps, vectors.least * self.warps
            work += Work(wavefronts=waves, least=least, issued=masks * self.warps)
            reasons += _conflicts(vectors)
        return work, 8 * size * width, tuple(reasons)

    def _local(self, op: gpu.LocalLoad | gpu.LocalStore) -> tuple[Work, int, tuple[str, ...]]:
        shared_moves, warps = moves(*move_of(op, self.target)), self.warps
        waves, least = shared_moves.wavefronts * warps, shared_moves.least * warps
        work = Work(wavefronts=waves, least=least, issued=shared_moves.instructions * warps)
        return work, 8 * shared_moves.bytes, tuple(_conflicts(shared_moves))

    def _why_narrow(self, op: Access, layout: Layout, width: int, size: int) -> Iterator[str]:
        """The reason why an access has fewer than 128 bits."""
        most = VECTOR // size
        if width >= most or not isinstance(op, tt.Load | tt.Store | gpu.AsyncCopy):
            return
        if isinstance(op, tt.Load) and op.runs:
            return  # Neighbours have one address, which is read once.
        type_, info, threads = tensor_of(op.ptr), self.accesses.info(op.ptr), 32 * self.warps
        axis = self.accesses.order(op)[0]
        mask = most if op.mask is None else self.accesses.info(op.mask).constancy[axis]
        run = layout.contiguous(type_.shape, axis)
        why = f"a thread holds {run} neighbour{'s' * (run > 1)} in this layout"
        if info.contiguity[axis] < most:
            parting = self._parting(op.ptr, most, axis - type_.rank)
            why = f"{info.contiguity[axis]} of the addresses in a row are known to be neighbours{parting}"
        elif info.divisibility[axis] < most * size:
            reasons = self._unknown(op.ptr, most)
            why = f"the addresses are known to be multiples of {info.divisibility[axis]} bytes only{reasons}"
        elif op.mask is not None and mask < most:
            why = f"the mask is known to be equal for {mask} in a row only{self._unknown(op.mask, most, axis)}"
        elif type_.numel < most * threads:
            why = f"{threads} threads share {type_.numel} elements"
        yield f"{8 * size * width} bits a thread, not 128: {why}"

    def _info(self, component: Component) -> AxisInfo:
        return self.accesses.infos.get(component) or unknown_component(component)

    def _origins(self, value: Value, follow: Callable[[Component], bool]) -> Iterator[Component]:
        """The values that a value is computed from, itself first, as long as `follow` holds."""
        visited: set[Component] = set()
        work = [component_of(value)]
        while work:
            component = work.pop(0)
            if component in visited or not follow(component):
                continue
            visited.add(component)
            yield component
            start, _ = component
            if component in self.groups:
                work += [source for _, source in self.groups[component].sources]
            elif isinstance(start, OpResult) and not start.op.bodies:
                work += [component_of(operand) for operand in start.op.operands]

    def _unknown(self, value: Value, width: int, axis: int | None = None) -> str:
        """The arguments that would have to be multiples of the width, as clauses; "" if there are none. Those of a mask
        make it change along the axis."""

        def is_unknown(component: Component) -> bool:
            info, type_ = self._info(component), tensor_type(component)
            if axis is not None and type_ is not None and type_.element == i1:
                return info.constancy[axis % type_.rank] < width
            return info.everywhere < width * info.unit

        reasons: dict[str, None] = {}
        for component in self._origins(value, is_unknown):
            parameter = component[0]
            if not isinstance(parameter, BlockParameter) or parameter not in self.func.body.parameters:
                continue
            part = self.func.parts[parameter.index] if self.func.parts else str(parameter.index)
            number, is_pointer = int(part.partition(".")[0]), isinstance(parameter.type, PtrType)
            name = f"`{self.names[number]}`" if number < len(self.names) else f"argument {number}"
            name = f"a size or stride of {name}" if "." in part and not is_pointer else name
            multiple = f"{width * self._info(component).unit}{' bytes' if is_pointer else ''}"
            reasons[f"; {name} is not known to be a multiple of {multiple}"] = None
        return "".join(reasons)

    def _parting(self, value: Value, most: int, axis: int) -> str:
        """The ops that part neighbours along an axis, counted from the last, as a clause."""
        reasons: dict[str, None] = {}
        unknown = ""
        for component in self._origins(value, lambda component: tensor_type(component) is not None):
            op = component[0].op
            infos = [self._info(each) for _, each, _ in tensor_operands(op)] if op is not None else []
            runs = [info.contiguity[max(axis, -len(info.contiguity))] for info in (self._info(component), *infos)]
            if op is not None and not is_shaping(op) and runs[0] < most <= max(runs):
                reasons[f"`{_source(op)}`"] = None
                unknown += self._unknown(op.rhs, most) if isinstance(op, DIVISIONS) else ""
        return f", because of {' and '.join(reasons)}{unknown}" if reasons else ""

    # Matrix units.

    def _product(self, op: gpu.MatrixProduct) -> Work:
        a, b, c = op.a.type, shared_of(op.b), tensor_of(op.c)
        assert isinstance(a, TensorType | SharedType) and isinstance(c.element, ScalarType)
        layout, (m, n), k, size = layout_of(c), c.shape[-2:], b.shape[-2], b.element.bytes
        if isinstance(op, gpu.DotFma):
            rows = len({layout.element(register) // n for register in layout.unique_registers})
            columns = len({layout.element(register) % n for register in layout.unique_registers})
            loads, sums = (rows + columns) * k * self.warps, _unique(c) * k * self.warps
            return Work(wavefronts=loads, least=loads, issued=loads + sums)
        if isinstance(op, gpu.Wgmma) and op.within:
            k = op.within[1] - op.within[0]
        batch = math.prod(c.shape[:-2])
        flops = 2 * batch * m * n * k
        # Half the rate for tf32, twice the rate for 8 bits, a 16th for f64.
        tensor = flops / self.target.flops * {1: 0.5, 2: 1, 4: 2, 8: 16}[size]
        unit = unit_for(b.element, (m, n, k), self.module.target)
        warps = None if unit is None else warps_of(layout, unit, c.shape)
        assert unit is not None and warps is not None
        if isinstance(op, gpu.Wgmma):
            m, n = (n, m) if warps.swapped else (m, n)
            in_memory = isinstance(a, SharedType) and not warps.paired
            columns, depth = min(WGMMA_COLUMNS, n // warps.columns), 32 // size
            count = m * n * k // (16 * WARP_GROUP * columns * depth)  # wgmmas of all warp groups.
            waves = count * (columns + (16 * WARP_GROUP if in_memory else 0)) * 32 / LINE
            issued = WARP_GROUP * (count * (3 if in_memory else 2) + 1)
            if warps.paired:
                # A warp reads 16 rows of 32 bytes by ldmatrix and turns 4 words, or by two loads of pairs.
                read = m * warps.columns * k * size / 512
                waves, issued = waves + 4 * read, issued + {1: 5, 4: 2}[size] * read
            return Work(wavefronts=waves, least=waves, flops=flops, tensor=tensor, issued=issued)
        count = batch * m * n * k // (unit.m * unit.n * unit.k)
        # ldmatrix: each warp reads its rows of a, and its columns of b.
        rows, columns = (warps.columns, warps.rows) if warps.swapped else (warps.rows, warps.columns)
        read = batch * k * size * (m * columns * isinstance(a, SharedType) + n * rows)
        waves = read / LINE
        return Work(wavefronts=waves, least=waves, flops=flops, tensor=tensor, issued=count + waves / 4)

    # Issue slots of a warp.

    def _slots(self, op: Op) -> tuple[float, float]:
        self._varies(op.result)
        if isinstance(op.result.type, TensorType):
            self.sectors.of_value(op.result)
        if isinstance(op, _FREE):
            return 0, 0
        other = _OTHERS.get(type(op))
        if other is not None:
            return other, 0
        if isinstance(op, tt.Reduce | tt.Scan):
            return self._combining(op)
        if isinstance(op, gpu.ConvertLayout):
            type_ = tensor_of(op.value)
            arguments = layout_of(type_), layout_of(op.type), type_.numel
            plan = exchange(*arguments) if moved(*arguments) is None else None
            return (0 if plan is None else plan.cost(bits_of_element(type_) // 8)), 0
        if isinstance(op, tt.InlineAsm):
            return op.asm.count(";") * _unique(op.values[0].type) / op.pack, 0
        if isinstance(op, tt.MapElementwise):
            slots = [slots_of(inner) for inner in op.apply.entry.ops[:-1]]
            count = _unique(op.values[0].type) / op.pack
            return count * sum(slot for slot, _ in slots), count * sum(mufu for _, mufu in slots)
        if is_shaping(op) or not isinstance(op, Pure):
            return 0, 0
        count = self._count(op.result, 0 if isinstance(op, _OFFSET) else 1)
        issued, mufu = slots_of(op)
        if isinstance(op, arith.DivF | arith.SignedDivision) and (once := self._count(op.rhs)) < count:
            return _SHARED_DIVISOR * count + (issued - _SHARED_DIVISOR) * once, mufu * once
        return issued * count, mufu * count

    def _count(self, value: Value, of: int = 1) -> int:
        """The number of different values that a thread computes of a tensor; with `of=0` up to constants."""
        if not isinstance(value.type, TensorType):
            return 1
        read = self.needs.get(component_of(value))
        if self.at_least and (read is None or (not self._varies(value)[1] and self._is_fixed(value))):
            return 0
        read = layout_of(value.type).registers if read is None else read
        return 1 << len(Span(basis & self._varies(value)[of] for basis in read))

    def _varies(self, value: Value) -> tuple[int, int]:
        """The bits of an element's number on which its value depends, first up to a constant known when compiling."""
        if value not in self.varies:
            self.varies[value] = self._found(value)
        return self.varies[value]

    def _found(self, value: Value) -> tuple[int, int]:
        op, type_ = value.op, value.type
        every = type_.numel - 1 if isinstance(type_, TensorType) else 0
        if self.at_least and (varying := self._certain(value, every)) is not None:
            return varying, varying
        if isinstance(op, tt.Splat | arith.ConstantOp | tt.Poison | tt.MakeRange):
            return 0, every if isinstance(op, tt.MakeRange) else 0
        if op is None or not (is_shaping(op) or is_elementwise(op)):
            return every, every
        # The operands of an op come before it, so that this is no deep recursion.
        masks = [self._varies(operand) for operand in op.operands]
        bases, values = (reduce(int.__or__, masks, 0) for masks in zip(*masks, strict=True))
        if isinstance(op, tt.Trans):
            renumbered = transposition(tensor_of(op.value).shape, op.order)
            return renumbered(bases), renumbered(values)
        if isinstance(op, tt.Broadcast):
            narrow, wide = tensor_of(op.value).shape, tensor_of(op.result).shape
            axes = [(sum(axis_bases(narrow, axis)), sum(axis_bases(wide, axis))) for axis in range(len(wide))]
            return _spread(axes, bases), _spread(axes, values)
        return (bases, values) if isinstance(op, _OFFSET) or is_shaping(op) else (values, values)

    def _certain(self, value: Value, every: int) -> int | None:
        """The bits of an element's number on which a value is certain to depend; None if they follow from the
        operands of its op, as in `_found`."""
        source, _ = component = component_of(value)
        if component in self.groups:
            return self._passed(self.groups[component])
        match source.op:
            case tt.MakeRange():
                return 0
            case tt.Load() as op if every:
                form, shape = self.forms.form(op.ptr), tensor_of(op.ptr).shape
                if form is None or (op.mask is not None and self._is_fixed(op.mask)):
                    return 0
                if self.first_loads.setdefault(form.origin, op) is not op:
                    return 0  # It may read what the other one has read.
                return sum(sum(axis_bases(shape, axis)) for axis in _telling(form, shape))
            case gpu.ConvertLayout() as op:
                return self._varies(op.value)[1]
            case tt.Reduce() | tt.Scan() | tt.Split() | tt.Join() | tt.Cat() as op:
                tensors = [operand for operand in op.operands if isinstance(operand.type, TensorType)]
                return every if all(self._varies(tensor)[1] == tensor_of(tensor).numel - 1 for tensor in tensors) else 0
            case arith.Select() as op if self._is_fixed(op.condition):
                return self._varies(op.then)[1] & self._varies(op.otherwise)[1]
            case _:
                return None

    def _passed(self, group: ComponentGroup) -> int:
        """The bits on which a value that control flow passes is certain to depend."""
        if group not in self.bits_by_group:
            self.bits_by_group[group] = 0  # While it is computed from itself.
            for _, (source, index) in group.sources:
                inner = self.groups.get((source, index))
                self.bits_by_group[group] |= self._varies(source)[1] if inner is None else self._passed(inner)
        return self.bits_by_group[group]

    def _may_drop(self, op: Op) -> bool:
        """Whether it may be known when compiling that an op does not read some elements."""
        chooses = op.condition if isinstance(op, arith.Select) else op.mask if isinstance(op, tt.Store) else None
        return self.at_least and chooses is not None and self._is_fixed(chooses)

    def _is_fixed(self, value: Value) -> bool:
        """Whether the compiler may know the value for each thread: it is computed from ranges, constants, scalars, and
        loads whose mask is such a value."""

        def follow(component: Component) -> bool:
            op = component[0].op
            return not (isinstance(op, tt.Load) and op.mask is not None and self._is_fixed(op.mask))

        roots = (tt.MakeRange, arith.ConstantOp, tt.Splat)
        return all(
            isinstance(origin, OpResult)
            and (isinstance(origin.op, roots) or is_shaping(origin.op) or is_elementwise(origin.op))
            for origin, _ in self._origins(value, follow)
        )

    def _combining(self, op: tt.Reduce | tt.Scan) -> tuple[float, float]:
        """The combinations in registers, then a shuffle of each operand and a combination for each bit of the lanes."""
        type_ = tensor_of(op.values[0])
        layout = layout_of(type_)
        mask = sum(axis_bases(type_.shape, op.axis))
        lanes = sum(1 for basis in layout.lanes if basis & mask)
        if self.at_least and not self._varies(op.values[0])[1]:
            return 0, 0
        bases = [basis & (self._varies(op.values[0])[1] if self.at_least else -1) for basis in layout.registers]
        every, rows = (1 << len(Span(basis & of for basis in bases)) for of in (-1, ~mask))
        if isinstance(op, tt.Reduce) and warp_reduction(op) is not None:
            return every, 0  # One instruction for all bits of the lanes.
        combined = every - rows + lanes * rows
        if isinstance(op, tt.Scan) and lanes:
            combined += every  # All registers are combined with what other lanes give.
        slots = [slots_of(inner) for inner in op.combine.entry.ops[:-1]]
        words = sum(max(1, bits_of_element(value.type) // 32) for value in op.values)
        issued = combined * sum(slot for slot, _ in slots) + lanes * rows * words
        return issued, combined * sum(mufu for _, mufu in slots)


def _needed(
    func: tt.Func, groups: Mapping[Component, ComponentGroup], may_drop: Callable[[Op], bool]
) -> dict[Component, tuple[int, ...]]:
    """The registers of each tensor that are read, by ops other than those that may drop them, as the bases of the
    elements that they hold.

    An access reads the pointer, and the mask, of the first of the elements that it moves together.
    """
    needs: dict[Component, tuple[int, ...]] = {}

    def need(component: Component, bases: Iterable[int]) -> None:
        needs[component] = tuple(extended((), (*needs.get(component, ()), *filter(None, bases))))

    ops = [op for op in func.walk() if op is not func and not may_drop(op)]
    for _ in range(3):  # What a loop carries is read in its body, which comes first backwards; and so on outwards.
        for op in reversed(ops):
            known_bases: dict[int, Sequence[int]] = {}
            if isinstance(op, tt.Load | tt.Store | gpu.AsyncCopy) and isinstance(op.ptr.type, TensorType):
                first = _registers_accessed(op, op.ptr.type)[bits_of(op.width) :]
                known_bases = {at: first for at, value in enumerate(op.operands) if value in (op.ptr, op.mask)}
            elif is_computable(op) and isinstance(op.result.type, TensorType):
                layout = Layout(needs.get((op.result, 0), ()), (0,) * LANE_BITS, ())
                with suppress(ValueError):  # Some bits of a swizzle are no bits of one axis.
                    known_bases = {at: layout.registers for at, layout in operand_layouts(op, layout)}
            carries = isinstance(op, Structured | BodyTerminator)
            for at, component, type_ in tensor_operands(op):
                if at in known_bases or not carries:
                    need(component, known_bases.get(at, layout_of(type_).registers))
        for group in dict.fromkeys(groups.values()):
            bases = [basis for member in group.members for basis in needs.get(member, ())]
            for _, source in group.sources if tensor_type(group.members[0]) is not None else ():
                need(source, bases)
    return needs


def _conflicts(moves: Moves) -> Iterator[str]:
    if moves.wavefronts > moves.least:
        ways = moves.wavefronts // moves.least
        yield f"{ways}-way bank conflicts: {moves.wavefronts} wavefronts a warp, not {moves.least}"


def _source(op: Op) -> str:
    """The source of an op, if it stands on one line; else its name."""
    place = op.location
    line = None if place is None or place.line != place.end_line else place.source_line()
    return op.NAME if place is None or line is None else line.encode()[place.column : place.end_column].decode()


def _spread(axes: Sequence[tuple[int, int]], mask: int) -> int:
    """The bits of the axes of a broadcast tensor, of those whose bits in the narrow one are in a mask."""
    return sum(wide for narrow, wide in axes if mask & narrow)


def _registers_accessed(op: Access, type_: TensorType) -> tuple[int, ...]:
    """The register bases of the elements that a thread accesses: of each run with one pointer, the first."""
    alike = registers_alike(type_, op.runs) if isinstance(op, tt.Load) and op.runs else 0
    return tuple(basis for bit, basis in enumerate(layout_of(type_).registers) if not alike >> bit & 1)


def _unique(type_: Type) -> int:
    """The elements of a value in a thread, without copies."""
    return 1 << sum(map(bool, layout_of(type_).registers)) if isinstance(type_, TensorType) else 1


def _telling(form: Form, shape: Sequence[int]) -> Iterator[int]:
    """Axes along which different indices are certain to give different addresses, whatever the arguments are."""
    moving = [(at, axis.stride) for at, axis in enumerate(form.axes) if axis.stride and not axis.wrap]
    if len(moving) == 1:
        yield moving[0][0]
        return
    reach: dict[tuple[int, ...], int] = {}
    for factor, at, product in sorted(
        (abs(factor), at, product) for at, stride in moving if len(stride) == 1 for product, factor in stride.items()
    ):
        if factor > reach.get(product, 0):
            reach[product] = reach.get(product, 0) + factor * (shape[at] - 1)
            yield at
