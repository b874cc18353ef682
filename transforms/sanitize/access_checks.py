"""The checks of accesses of a sanitized kernel: bounds, races, and the order of programs.

%p : tensor<x4, ptr<f32>> = tt.addptr …;
%d : tensor<x4, i64> = tt.call %p %x @"sanitize_distance_…";     // bytes from the start of x
%i : tensor<x4, i1> = tt.call %d %low %high @"sanitize_inside_…";
%m : tensor<x4, i1> = arith.andi %mask %i;                       // what the load may read
…                                                                // reports of bounds and of races
%v : tensor<x4, f32> = tt.load %p %m %zero;
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.traits import MemoryRead, MemoryWrite
from ziggurat.codemodel.transform import Rewriter
from ziggurat.codemodel.types import DescriptorType, i64, scalar_element, shape_of, void
from ziggurat.frontends.library import sanitizing
from ziggurat.transforms.sanitize import marks
from ziggurat.transforms.sanitize.accesses import (
    ATOMICS,
    DESCRIBED,
    LOADS,
    Accesses,
    Elements,
    Facts,
    access_size,
    acquires,
    block_of,
    cells,
    inside,
    polls,
    releases,
)
from ziggurat.transforms.sanitize.code import Checks, Code
from ziggurat.transforms.sanitize.records import place_of_array


class AccessChecks:
    """The checks of the accesses of a kernel. `bases` has the address of each new descriptor, None for an argument."""

    def __init__(self, accesses: Accesses, checks: Checks) -> None:
        self.accesses, self.checks, self.names = accesses, checks, checks.names
        self.bases: dict[Value, Value | None] = {}
        self._facts: dict[int, Facts] = {}

    def read_facts(self, code: Code, parameters: Sequence[Value]) -> None:
        """Read the facts about the arrays, at the start of the kernel."""
        for number, array in enumerate(self.accesses.arrays.values()):
            place = place_of_array(number)
            low, high, table, rows = (
                code.add(tt.Load(code.add(tt.AddPtr(self.checks.memory, code.constant(place + word, i64)))))
                for word in range(4)
            )
            start = code.add(tt.AddPtr(self.checks.memory, table))
            if isinstance(parameters[array.parameter].type, DescriptorType):
                self.bases[parameters[array.parameter]] = None
            self._facts[array.parameter] = Facts(parameters[array.parameter], low, high, start, rows)

    def elements(
        self, code: Code, op: Op, operands: tuple[Value, ...], mask: Value | None, verb: str
    ) -> tuple[list[Elements], Value | None]:
        """The elements of an access by array, and what the access may do: the lanes in bounds, which is None without
        the check of bounds."""
        numbers, size = self.accesses.parameters[op], access_size(op)
        own = operands[0]
        start: Value | None = None
        base: Value | None = None
        if isinstance(op, DESCRIBED):
            start, mask = block_of(code, op, operands)
            base = self.bases.get(own)
        shape = shape_of(own.type) if start is None else shape_of(start.type)
        if mask is None:
            mask = code.true(shape)
        elements: list[Elements] = []
        outside: Value | None = None
        for number in numbers:
            facts = self._facts[number]
            if start is None:
                distance = code.call_check(sanitizing.sanitize_distance, own, facts.parameter)
            elif base is None:
                distance = start
            else:
                shift = code.call_check(sanitizing.sanitize_distance, base, facts.parameter)
                distance = code.add(arith.AddI(start, code.spread(shift, shape)))
            within = inside(code, facts, distance, size)
            elements.append(Elements(facts, number, distance, code.both(mask, within)))
            outside = code.opposite(within) if outside is None else code.both(outside, code.opposite(within))
        if "bounds" not in self.names or outside is None:
            return elements, None
        bad = code.both(mask, outside)
        for part, lanes in zip(elements, self._nearest(code, elements, bad, size), strict=True):
            place = self.checks.place(code, self.checks.add("bounds", op, verb, part.parameter))
            none = code.constant(0, i64)
            code.call_check(sanitizing.sanitize_report, self.checks.memory, place, lanes, part.distance, none)
        if isinstance(op, (*DESCRIBED, tt.AtomicCAS)):
            return elements, code.opposite(code.highest_of_all(bad))
        return elements, code.both(mask, code.opposite(outside))

    def _nearest(self, code: Code, elements: Sequence[Elements], bad: Value, size: int) -> list[Value]:
        """For each array that an access may be to, the lanes outside of all of them to which it is the nearest."""
        if len(elements) == 1:
            return [bad]
        gaps = [
            code.call_check(sanitizing.sanitize_gap, part.distance, part.facts.low, part.facts.high, size)
            for part in elements
        ]
        nearest: list[Value] = []
        for number, gap in enumerate(gaps):
            lanes = bad
            for other, distance in enumerate(gaps):
                if other != number:
                    predicate = arith.IntPredicate.SLT if other < number else arith.IntPredicate.SLE
                    lanes = code.both(lanes, code.add(arith.CmpI(gap, distance, predicate)))
            nearest.append(lanes)
        return nearest

    def made(
        self,
        code: Code,
        builder: Rewriter,
        op: Op,
        operands: tuple[Value, ...],
        mask: Value | None,
        allowed: Value | None,
    ) -> Value | None:
        """The access itself, of what is allowed. A lane of a load that reads nothing is 0, unless it has an `other`."""
        if isinstance(op, tt.Load):
            active = mask if allowed is None else allowed
            if active is None:
                return builder.copy(op, operands)
            zero = scalar_element(op.result.type).zero
            other = operands[2] if op.other is not None else code.add(arith.ConstantOp(zero, op.result.type))
            return builder.add(op.evolve(ptr=operands[0], mask=active, other=other), op.location)
        if allowed is None:
            return builder.copy(op, operands)
        if isinstance(op, tt.Store):
            return builder.add(op.evolve(ptr=operands[0], value=operands[1], mask=allowed), op.location)
        if isinstance(op, tt.AtomicRMW):
            return builder.add(op.evolve(ptr=operands[0], value=operands[1], mask=allowed), op.location)
        gives = op.result.type != void
        bodies: list[Body] = []
        for runs in (True, False):
            inner = builder.nested((), op.result.type)
            value = inner.add(op.SPEC.copy(op, operands, (), (), op.result.type), op.location) if runs else None
            if gives and value is None:
                value = inner.add(arith.ConstantOp(scalar_element(op.result.type).zero, op.result.type))
            inner.add(scf.Yield([value] if gives and value is not None else []))
            bodies.append(inner.finish())
        return builder.add(scf.If(allowed, *bodies))

    def order(self, code: Code, op: Op, elements: Sequence[Elements], *, before: bool) -> None:
        """Note what an atomic releases before it, and what an access acquires after it."""
        if "races" not in self.names or not (releases(op) if before else acquires(op)):
            return
        function = sanitizing.sanitize_release if before else sanitizing.sanitize_acquire
        for part in elements:
            array = self.accesses.arrays[part.parameter]
            tables = self.accesses.tables.get(array.group)
            if tables is not None and tables.time:
                places = cells(code, part, array.unit)
                code.call_check(function, self.checks.memory, places, part.facts.rows, tables.time, part.mask)

    def unwritten(self, code: Code, op: Op, elements: Sequence[Elements], verb: str) -> None:
        """Report the elements that an access reads though nothing has written them, and note those that it writes."""
        for part in elements:
            array = self.accesses.arrays[part.parameter]
            tables = self.accesses.tables.get(array.group)
            if tables is None or not tables.defined:
                continue
            places, rows = cells(code, part, array.unit), part.facts.rows
            if isinstance(op, MemoryRead):
                place = self.checks.place(code, self.checks.add("undefined", op, verb, part.parameter))
                code.call_check(
                    sanitizing.sanitize_unwritten, self.checks.memory, places, rows, tables.defined, place, part.mask,
                    part.distance,
                )  # fmt: skip
            if isinstance(op, MemoryWrite):
                code.call_check(sanitizing.sanitize_defined, places, rows, tables.defined, part.mask)

    def races(
        self, code: Code, op: Op, elements: Sequence[Elements], values: Sequence[Value], verb: str
    ) -> dict[int, int]:
        """Note an access in the tables, and report others that it races with; the numbers of the checks by array."""
        numbers: dict[int, int] = {}
        if "races" not in self.names:
            return numbers
        for part in elements:
            array = self.accesses.arrays[part.parameter]
            tables = self.accesses.tables.get(array.group)
            if tables is None:
                continue
            number = numbers[part.parameter] = self.checks.add("races", op, verb, part.parameter)
            if number > sanitizing.ACCESSES:
                raise KernelTypeError("a kernel with this many accesses cannot be sanitized for races", op.location)
            places, rows, place = cells(code, part, array.unit), part.facts.rows, self.checks.place(code, number)
            access = code.constant(number, i64)
            if isinstance(op, LOADS + ATOMICS):
                own, other = tables.update, tables.read
                if isinstance(op, LOADS):
                    own, other = (0, 0) if polls(op) else (other, own)
                code.call_check(
                    sanitizing.sanitize_read_or_update, self.checks.memory, places, rows, own, other, tables.time,
                    access, place, part.mask, part.distance,
                )  # fmt: skip
            else:
                code.call_check(
                    sanitizing.sanitize_write, self.checks.memory, places, rows, tables.read, tables.update,
                    tables.time, access, place, part.mask, part.distance, _bits(code, values[0]),
                )  # fmt: skip
        return numbers

    def lanes(
        self, code: Code, op: Op, operands: tuple[Value, ...], elements: Sequence[Elements], numbers: dict[int, int]
    ) -> None:
        """Report two lanes of one store that write an element."""
        code.add(tt.Barrier())
        for part in elements:
            if part.parameter in numbers:
                number = self.checks.add("races", op, "writes", part.parameter)
                access, bits = code.constant(numbers[part.parameter], i64), _bits(code, operands[1])
                code.call_check(
                    sanitizing.sanitize_lanes, self.checks.memory, operands[0], self.checks.place(code, number), access,
                    part.mask, part.distance, bits, marks.element_word(scalar_element(operands[1].type)),
                )  # fmt: skip


def _bits(code: Code, value: Value) -> Value:
    return code.call_check(sanitizing.sanitize_bits, value, marks.element_word(scalar_element(value.type)))
