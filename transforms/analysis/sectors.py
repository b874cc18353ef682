"""The sectors of memory that an access touches, by the strides of its addresses for each bit of an element's number.

    %10 : tensor<x64, x32, ptr<f32>>        a + 2 · row · stride + 2 · column, of an i32 parameter `stride`

has the strides 8, 16, … bytes for the bits of a column, and unknown ones for those of a row. So 32 columns touch 8
sectors of 32 bytes, and each row others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import Layout, Span, axis_bases, bits_of, transposition
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import TensorType, i1, scalar_element
from ziggurat.transforms.analysis.axis_info import AxisInfo, unit_of
from ziggurat.transforms.analysis.components import Component, ComponentGroup, component_of, tensor_type
from ziggurat.transforms.analysis.queries import constant_of, is_shaping, tensor_of

SECTOR = 32  # Bytes that global memory moves at once.
LINE = 128  # Bytes of a cache line: an instruction asks for one after the other.
_SAME_BIT = (arith.ExtUI, arith.ExtSI, arith.TruncI, tt.Broadcast)

# Each bit of an element's number adds one of these to a tensor's value; None where that is not known.
Strides = tuple[int | None, ...]


class Sectors:
    """The sectors of the accesses of a function, with the facts that `axis_info` finds, and the loop-carried values."""

    def __init__(self, info: Callable[[Component], AxisInfo], groups: Mapping[Component, ComponentGroup]) -> None:
        self._info, self._groups = info, groups
        self._cache: dict[Component, Strides] = {}
        self._differing: dict[Component, Strides] = {}
        self._is_stale = False

    def of(self, ptr: Value, layout: Layout, width: int) -> tuple[int, int]:
        """The number of different sectors that all warps touch, and the sum of those of each instruction.

        `width` successive registers are moved together. The first address is taken to be that of a sector.
        """
        strides = self.of_value(ptr)
        registers = layout.registers[bits_of(width) :]
        of_thread = layout.registers[: bits_of(width)]
        instruction = _count(strides, (*of_thread, *layout.lanes))
        others = sum(1 for basis in (*registers, *layout.warps) if basis)
        return _count(strides, layout.bases), instruction << others

    def lines(self, ptr: Value, layout: Layout, width: int) -> int:
        """The sum of the cache lines that each instruction of each warp asks for."""
        registers = layout.registers[bits_of(width) :]
        instruction = _count(self.of_value(ptr), (*layout.registers[: bits_of(width)], *layout.lanes), LINE)
        return instruction << sum(1 for basis in (*registers, *layout.warps) if basis)

    def of_value(self, value: Value) -> Strides:
        """The strides of a tensor's value, for pointers in bytes."""
        strides = self._strides(component_of(value))
        while self._is_stale:  # A loop does not keep the strides that it begins with, on which others were based.
            self._cache, self._is_stale = dict(self._differing), False
            strides = self._strides(component_of(value))
        return strides

    def _strides(self, component: Component) -> Strides:
        strides = self._cache.get(component)
        if strides is None:
            value = component[0]
            # Until the sources of a carried value are known, the runs that the analysis has found.
            self._cache[component] = self._runs(component)
            strides = self._cache[component] = self._found(component, value)
        return strides

    def _found(self, component: Component, value: Value) -> Strides:
        group = self._groups.get(component)
        runs = self._cache[component]
        if group is not None:
            # An iteration may add as much to all elements. The last source is from outside of the loop.
            *others, first = [source for _, source in group.sources]
            strides = self._strides(first)
            self._cache.update(dict.fromkeys(group.members, strides))
            if all(self._strides(source) == strides for source in others):
                return strides
            self._differing.update(dict.fromkeys(group.members, runs))
            self._is_stale = True
            return runs
        op = value.op
        computed_strides = None if op is None or (op.bodies and not isinstance(op, tt.Scan)) else self._computed(op)
        return (
            runs
            if computed_strides is None
            else tuple(b if a is None else a for a, b in zip(computed_strides, runs, strict=True))
        )

    def _runs(self, component: Component) -> Strides:
        """The strides within runs of neighbours, and of equal values."""
        type_ = tensor_type(component)
        if type_ is None:
            return ()
        info, strides = self._info(component), list[int | None]([None] * bits_of(type_.numel))
        for axis, (run, same) in enumerate(zip(info.contiguity, info.constancy, strict=True)):
            for number, basis in enumerate(axis_bases(type_.shape, axis)):
                if 1 << number < same:
                    strides[bits_of(basis)] = 0
                elif 1 << number < run:
                    strides[bits_of(basis)] = info.unit << number
        return tuple(strides)

    def _computed(self, op: Op) -> Strides | None:
        if not isinstance(op.result.type, TensorType):
            return None
        count = bits_of(op.result.type.numel)
        if isinstance(op, tt.MakeRange):
            return tuple(1 << bit for bit in range(count))
        if isinstance(op, tt.Splat | arith.ConstantOp):
            return (0,) * count
        if isinstance(op, tt.Scan):
            return _counted(op)
        operands = [self._strides(component_of(operand)) for operand in op.operands]
        if isinstance(op, arith.AddI | arith.SubI | tt.AddPtr):
            scale = unit_of(op.result.type) if isinstance(op, tt.AddPtr) else -1 if isinstance(op, arith.SubI) else 1
            return tuple(None if a is None or b is None else a + scale * b for a, b in zip(*operands, strict=True))
        if isinstance(op, arith.MulI):
            for strides, factor in ((operands[0], op.rhs), (operands[1], op.lhs)):
                by = _number(factor)
                if by is not None or all(stride == 0 for stride in operands[factor is op.rhs]):
                    return tuple(
                        0 if stride == 0 else None if stride is None or by is None else by * stride
                        for stride in strides
                    )
        if isinstance(op, arith.DivSI | arith.DivUI | arith.RemSI | arith.RemUI):
            by = _number(op.rhs)
            if by is None or by <= 0 or by & (by - 1):
                return None
            is_quotient = isinstance(op, arith.DivSI | arith.DivUI)
            return tuple(_divided(stride, by, is_quotient) for stride in operands[0])
        if isinstance(op, tt.Broadcast):
            narrow, wide = tensor_of(op.value).shape, tensor_of(op.result).shape
            result: list[int | None] = [0] * count
            for axis in range(len(wide)):
                for inner, outer in zip(axis_bases(narrow, axis), axis_bases(wide, axis), strict=False):
                    result[bits_of(outer)] = operands[0][bits_of(inner)]
            return tuple(result)
        if isinstance(op, tt.Trans):
            renumbered = transposition(tensor_of(op.value).shape, op.order)
            renumbering = {renumbered(1 << bit): stride for bit, stride in enumerate(operands[0])}
            return tuple(renumbering[1 << bit] for bit in range(count))
        if is_shaping(op) or isinstance(op, gpu.ConvertLayout | tt.Hint | arith.ExtSI | arith.ExtUI):
            return operands[0] if len(operands[0]) == count else None
        return None


def _counted(op: tt.Scan) -> Strides | None:
    """The strides of places that a scan counts: where each element is 0 or 1, neighbours are at most one apart."""
    steps = [inner for inner in op.combine.entry.ops if not isinstance(inner, tt.ScanReturn)]
    if len(op.values) != 1 or len(steps) != 1 or not isinstance(steps[0], arith.AddI) or not _is_bit(op.values[0]):
        return None
    type_ = tensor_of(op.values[0])
    strides = list[int | None]([None] * bits_of(type_.numel))
    for number, basis in enumerate(axis_bases(type_.shape, op.axis)):
        strides[bits_of(basis)] = -1 << number if op.reverse else 1 << number
    return tuple(strides)


def _is_bit(value: Value) -> bool:
    """Whether each element is known to be 0 or 1."""
    while (op := value.op) is not None and (isinstance(op, _SAME_BIT) or is_shaping(op)):
        if isinstance(op, arith.ExtUI) and scalar_element(op.operand.type) == i1:
            return True
        value = op.operands[0]
    if isinstance(value.op, arith.Select):
        return all(_number(choice) in (0, 1) for choice in value.op.operands[1:])
    return _number(value) in (0, 1)


def _number(value: Value) -> int | None:
    """The integer that all elements of a value are."""
    number = constant_of(value)
    return number if isinstance(number, int) else None


def _divided(stride: int | None, by: int, is_quotient: bool) -> int | None:
    """The stride of a quotient, or of a remainder, by a power of two; the first number is taken to be a multiple."""
    if stride is None or (stride % by and not 0 < stride < by):
        return None
    quotient, remainder = divmod(stride, by)
    return quotient if is_quotient else remainder


def _count(strides: Strides, bases: Sequence[int], size: int = SECTOR) -> int:
    """The sectors of the elements that these bases span, the first one at the beginning of a sector; or blocks of
    another size. A bit whose stride is not known leads to other sectors."""
    touched = reduce(int.__or__, bases, 0)
    of_bits = [strides[bit] for bit in range(len(strides)) if touched >> bit & 1]
    apart, places = of_bits.count(None), {0}
    for step in filter(None, of_bits):
        places |= {place + step for place in places}
    # Where bases share bits, as those of a swizzle, there are not as many elements as these bits number.
    return len({place // size for place in places}) << apart >> len(of_bits) - len(Span(bases))
