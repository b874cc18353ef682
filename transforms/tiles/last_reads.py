"""The last of several reads of the same elements: their lines can be the first to leave the L1.

    scf.for … {                                      scf.for … {
        %9 = tt.load %8 %7;                              %9 = tt.load %8 %7;
    …                                                …
    scf.for … {                                      scf.for … {
        %19 = tt.load %18 %17;             becomes       %19 = tt.load %18 %17 @eviction=evict_first;

A kernel that goes over its row twice finds it in the L1 the second time, if that holds the rows of all CTAs of the
SM. A line that has been read for the last time only takes room from the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.dialects.tt import CacheModifier, EvictionPolicy
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value
from ziggurat.codemodel.traits import Loop, Pure
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, constant_key


def mark_last_reads(module: Op) -> Op:
    """The model whose tensors are read for the last time with the eviction policy evict_first.

    Two reads are of the same elements if their pointers are equal, computed from the numbers of loops with equal
    bounds. Only those count that depend on the number of the program, and in a loop on its number: other elements may
    be read again. Loads that ask for another cache or policy stay, as do the kernels with dots: their programs share
    what they read.
    """
    ops = list(module.walk())
    if sum(isinstance(op, tt.Load) for op in ops) < 2 or any(isinstance(op, tt.Dot) for op in ops):
        return module
    numbers = _Numbers()
    loads: dict[int, list[tt.Load]] = {}
    for op in ops:
        numbers.of(op.result)  # In order, so that no operand is far from what has a number.
        if isinstance(op, tt.Load) and isinstance(op.ptr.type, TensorType):
            loads.setdefault(numbers.of(op.ptr), []).append(op)
    # Equal reads of one block may become one.
    last = {
        last
        for *before, last in loads.values()
        if before and all(op.parent is not last.parent for op in before) and _own(last)
    }
    marked = {op for op in last if op.cache in _ALL_LEVELS and op.eviction is EvictionPolicy.NORMAL and not op.volatile}

    def hinted(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op not in marked:
            return None
        assert isinstance(op, tt.Load)
        attributes = {**op.attributes, "cache": CacheModifier.NONE, "eviction": EvictionPolicy.FIRST}
        return builder.add(tt.Load.SPEC.make(operands, (), attributes, (), op.result.type), op.location)

    return transform(module, hinted, pass_name="last_reads") if marked else module


_ALL_LEVELS = (CacheModifier.NONE, CacheModifier.CA)  # `ld` without a modifier means `ld.ca`.


class _Numbers:
    """Numbers of values: equal where one expression gives them, from the numbers of loops with equal bounds."""

    def __init__(self) -> None:
        self.numbers: dict[Value, int] = {}
        self.keys: dict[Hashable, int] = {}

    def of(self, value: Value) -> int:
        """The number of a value."""
        if value not in self.numbers:
            self.numbers[value] = self.keys.setdefault(self._key(value), len(self.keys))
        return self.numbers[value]

    def _key(self, value: Value) -> Hashable:
        if isinstance(value.op, Pure) and not value.op.bodies:
            op = value.op
            attributes = tuple(constant_key(attribute) for attribute in op.attributes.values())
            return op.NAME, value.type, attributes, tuple(self.of(operand) for operand in op.operands)
        loop = _loop_of(value)
        if loop is not None:
            return "loop", *(self.of(bound) for bound in (loop.start, loop.stop, loop.step))
        return value


def _loop_of(value: Value) -> scf.For | None:
    """The loop that a value counts."""
    owner = value.block.parent.parent if isinstance(value, BlockParameter) else None
    return owner if isinstance(owner, scf.For) and value is owner.body.parameters[0] else None


def _computed_from(value: Value) -> Sequence[Value]:
    """The values from which this one is computed, or where it starts to count."""
    if isinstance(value, OpResult):
        return value.op.operands
    loop = _loop_of(value)
    return () if loop is None else (loop.start,)


def _own(load: tt.Load) -> bool:
    """Whether what is read depends on the number of the program, and on those of all loops around the load."""
    values = reached([load.ptr], _computed_from)
    around = [op for op in load.path() if isinstance(op, Loop)]
    counted = all(isinstance(op, scf.For) and op.body.parameters[0] in values for op in around)
    return counted and any(isinstance(source.op, tt.GetProgramId) for source in values)
