"""Runs a model on unknown inputs: the interpreter's machine, with terms of a solver as the elements of its arrays.

An array of known numbers is an array of NumPy, and ops on such arrays are the interpreter's. Any other array is one of
objects, the elements of `terms.py`; then an elementwise op is done element by element, and ops that only move elements
are the interpreter's again. One program runs, whose coordinates are unknown as well.

Where control depends on what is unknown, both ways are run, and their values are joined by the condition.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any, NoReturn

import attrs
import numpy as np

from ziggurat.backend.proof.cells import Cells
from ziggurat.backend.proof.elements import TRUE, Bit, Element, NotDecided, Pointer, Sum, Term, bits_of, identity_of
from ziggurat.backend.proof.frames import SymbolicFrame, is_known, joined, lifted
from ziggurat.backend.proof.solver import z3
from ziggurat.backend.proof.tensors import (
    FEW,
    Index,
    Tensor,
    Version,
    forced,
    is_few,
    key_of,
    objects,
    objects_of,
    origins_of,
)
from ziggurat.backend.proof.terms import Terms
from ziggurat.backend.proof.universe import Universe
from ziggurat.backend.reference import run  # It imports the meanings in NumPy.
from ziggurat.backend.reference.argument_memory import Memory
from ziggurat.backend.reference.machine import Machine, triton
from ziggurat.backend.reference.values import Array, Frame, is_array, over
from ziggurat.codemodel import elementwise, scalars
from ziggurat.codemodel.dialects import arith, cf, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.interpret import Meaning
from ziggurat.codemodel.numbers import ELEMENTWISE
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.traits import BodyTerminator, Commutative, MayTrap, MemoryRead, MemoryWrite, Returns
from ziggurat.codemodel.types import (
    PtrType,
    ScalarType,
    SharedType,
    TupleType,
    Type,
    element_of,
    i1,
    i32,
    scalar_element,
    shape_of,
    u8,
)  # fmt: skip
from ziggurat.transforms.simplify.effects import may_trap

MEANINGS = run.MEANINGS

meanings = OpTable[Meaning]("meaning in terms")  # Only of ops whose meaning in NumPy does not do for objects.


@attrs.frozen
class Effect:
    """What a program does besides writing memory, in the runs in which a formula holds: a print, an assertion."""

    name: str
    condition: Term
    values: tuple[Element, ...] = ()


class _Table(OpTable[Meaning]):
    """The meanings in terms, and those in NumPy of all other ops."""

    def __init__(self) -> None:
        super().__init__("meaning in terms")

    def __getitem__(self, op: Op) -> Meaning:
        meaning = meanings.get(type(op))
        if meaning is None:
            meaning = elementwise_meaning if isinstance(op, ELEMENTWISE) else triton[op]
        return partial(_perform, meaning) if isinstance(op, _MADE) else meaning


def _perform(meaning: Meaning, machine: SymbolicMachine, op: Op, operands: tuple[Any, ...]) -> Any:
    if machine.universe.contracts and isinstance(op, maths.Fma | arith.SubF | arith.AddF):
        return machine.apart(op, operands)
    return machine.made(op, meaning, operands)


# Ops that do more than compute.
_EFFECTS = MemoryRead, MemoryWrite, tt.Assert, tt.Assume, tt.Print, cf.AssertOp, tt.GlobalTimer, tt.InlineAsm
SAID = ("type", "nonnegative", "runs")

# Ops whose results depend on nothing but their operands.
_MADE = (
    *ELEMENTWISE, tt.AddPtr, tt.Join, tt.Split, tt.Cat, tt.Scan,
    tt.Gather, tt.MapElementwise,
)  # fmt: skip


class Undecided(NotDecided):
    """Whether a loop goes on after so many `visits` depends on what is unknown: in runs in which `path` holds, on a
    condition. `sides` are the formula that holds if the loop ends, and the one if it goes on."""

    def __init__(self, condition: Bit, path: Bit, visits: int) -> None:
        super().__init__("the length of a loop")
        self.sides = [~path | side for side in (~condition, condition)]
        self.visits = visits


class SymbolicMachine(Machine):
    """A machine that runs one program on unknown inputs, of which `premise` holds. That must decide how long loops are:
    see `Undecided`. `assumed` are the assumptions of the program; `effects` are what it does besides writing memory,
    and `defined` what must hold lest it divide by zero, or break what it says itself."""

    def __init__(self, functions: Mapping[str, Op], universe: Universe, premise: Bit, *, bound: int) -> None:
        super().__init__(functions, Memory([], (1, 1, 1)), strict=False, limit=1 << 20)
        self.meanings = _Table()
        self._plans = universe.plans
        self.universe = universe
        self.domain = universe.domain
        self.bound = bound
        self.premise = premise
        self.cut = False  # Whether `premise` is that a loop has no more than `bound` iterations.
        self.arrays: dict[int, Version] = {}
        self.sizes: dict[int, int] = {}
        self.assumed: list[Term] = []
        self.presumptions: dict[str, None] = {}  # Those of the assumptions that a proof must name, in words.
        self.defined: list[Term] = []
        self.effects: list[Effect] = []
        self.allocations: list[Any] = []
        self.coordinates = [self.unknown(f"program {axis}") for axis in range(3)]
        self.sizes_of_grid = [self.unknown(f"programs {axis}") for axis in range(3)]
        self.parameters: list[Any] = []  # The elements that stand for the kernel's.
        self.cta: Any = None  # In a cluster, the CTA that runs (`clusters.Cta`), and global memory at the last barrier.
        self.before: dict[int, Version] = {}
        self.start()

    def start(self) -> None:
        """Begin a program, or a CTA of one."""
        self.begin(0, 1)
        self.frame = SymbolicFrame(self.universe, self.premise, (), self.frame.keys, self.frame.programs)
        self.allocations = []

    def goes_on(self, frame: SymbolicFrame, condition: Array, visits: int) -> bool:
        """Whether a loop goes on in some runs after some iterations. Raises `Undecided` if no premise tells."""
        goes = frame.settled(condition.reshape(1))[0]
        if goes.known is not None:
            return goes.known == 1
        decision = Undecided(condition.flat[0], frame.condition[0], visits)
        for holds, side in enumerate(decision.sides):
            if side.identity in self.premise.parts:
                return holds == 1
        raise decision

    def unknown(self, name: str) -> Sum:
        """An unknown integer of 32 bits."""
        return self.domain.unknown(name, i32)

    def may_enter(self, visits: int, programs: Frame) -> bool:
        """In a loop of unknown length, of blocks: no more than `bound` times."""
        if visits < self.bound:
            return True
        self.cut_off(programs)
        return False

    def require(self, condition: Bit, *, much: bool = False) -> None:
        """Say that a condition must hold where the program comes here, unless it is seen to with some work, or much."""
        assert isinstance(self.frame, SymbolicFrame)
        if not self.universe.holds(self.frame.where, condition, much=much):
            self.defined.append(self.under(condition))

    def presume(self, condition: Bit, words: str) -> None:
        """Assume that a condition holds where the program comes here, and say so."""
        self.assumed.append(self.under(condition))
        self.presumptions[words] = None

    def cut_off(self, programs: Frame) -> None:
        """Assume that there are no such runs."""
        outer, self.frame, self.cut = self.frame, programs, True
        self.assumed.append((~self.path).term)
        self.frame = outer

    def stuck(self, message: str) -> None:
        raise NotDecided(message)

    def fail(self, op: Op, error: Exception) -> NoReturn:
        if isinstance(error, NotDecided):
            raise error
        raise NotDecided(f"{op.NAME}: {error}") from error

    def apart(self, op: Op, operands: tuple[Any, ...]) -> Any:
        """a · b + c as a product and a sum, and a - b as the sum of a and -b."""
        if isinstance(op, arith.AddF):
            return self._sum(op, operands)
        if isinstance(op, arith.SubF):
            negated = arith.NegF(op.rhs)
            value = self.made(negated, elementwise_meaning, operands[1:])
            return self._sum(arith.AddF(op.lhs, negated.result), (operands[0], value))
        a, b, c = op.operands
        x, y, z = operands
        product = arith.MulF(a, b)
        negation = a.op if isinstance(a.op, arith.NegF) else None  # -a · b is -(a · b).
        factors = (x if negation is None else self.lookup(negation.operand), y)
        value = self.made(product, elementwise_meaning, factors)
        if negation is not None:
            value = self.made(arith.NegF(product.result), elementwise_meaning, (value,))
        return self._sum(arith.AddF(product.result, c), (value, z))

    def _sum(self, op: arith.AddF, operands: tuple[Any, ...]) -> Any:
        """A sum of floats. A product of matrices that is added to something is one that begins with it."""
        for value, addend in (operands, operands[::-1]):
            product = self.universe.products.get(key_of(value))
            if product is not None and is_known(product.addend) and not scalars.bits_of(product.addend).any():
                return product.added_to(addend)
        return self.made(op, elementwise_meaning, operands)

    def made(self, op: Op, meaning: Meaning, operands: tuple[Any, ...]) -> Any:
        """The result of an op on operands: computed at once if it is small, and a tensor otherwise."""
        if (choice := self._scalar_choice(op, operands)) is not None:
            return choice
        if isinstance(op, arith.DivSI | arith.DivUI | arith.RemSI | arith.RemUI):
            self._require_divisor(op, operands[1])
        if isinstance(op, tt.Gather):
            self.require_inside(op, operands[1])
        captures = self._captures(op)
        traps = self.may_trap(op)
        if op.bodies:
            meaning = self._apart_from_runs(meaning, captures)
        keys = [key_of(operand) for operand in (*operands, *captures.values())]
        if isinstance(op, Commutative) and len(keys) == 2:
            keys.sort(key=hash)
        small, key = self.universe.small, (self.signature(op), *keys)
        if all(map(is_few, operands)) and (all(map(is_known, operands)) or _numel(op.result.type) <= FEW):
            if op.bodies or key not in small:
                small[key] = meaning(self, op, operands), operands
            result, _ = small[key]
            return self._decided(result) if is_array(result) and result.dtype == object else result
        origins = frozenset[int]().union(*map(origins_of, operands))

        def at(index: Index) -> Element:
            ones = [self._one(operand, value, index) for operand, value in zip(operands, op.operands, strict=True)]
            return objects(meaning(self, op, tuple(ones)), op.result.type).flat[0]

        tensor = self.universe.tensor(
            key, lambda: meaning(self, op, tuple(map(forced, operands))), origins,
            type_=op.result.type, at=at if isinstance(op, (*ELEMENTWISE, tt.AddPtr)) else None,
        )  # fmt: skip
        if traps:  # Bodies run later, and only if the result is looked at.
            self.effects.append(Effect(f"a body of tensor {tensor.number} that may divide by zero", self.path.term))
        return tensor

    def signature(self, op: Op) -> Hashable:
        """An op without its operands, without the layouts of its result, and without what it says of numbers."""
        signatures = self.universe.signatures
        if op not in signatures:
            bodies = (
                [self.function_of(op)] if isinstance(op, tt.Combining) else [self._body(body) for body in op.bodies]
            )
            attributes = tuple((name, str(value)) for name, value in op.attributes.items() if name not in SAID)
            # Numbers of two types may have equal bits, and arrays of one element may stand for tensors of any shape.
            types = tuple((shape_of(type_), str(element_of(type_))) for type_ in _types(op))
            signatures[op] = op.NAME, types, attributes, *bodies
        return signatures[op]

    def _body(self, body: Body) -> Hashable:
        return body_key(body, self.functions)

    def function_of(self, op: tt.Combining) -> Hashable:
        """The function by which an op combines: those are equal that give the same terms, however they are written."""
        types, outer = [scalar_element(value.type) for value in op.values], self.frame
        if op.captured_values() or self.may_trap(op):
            return self._body(op.combine)
        elements = [
            self.domain.loaded(self.domain.unknown(f"{side} {at}", scalar), scalar)
            for side in ("first", "second") for at, scalar in enumerate(types)
        ]  # fmt: skip
        self.frame = SymbolicFrame(self.universe, TRUE, (), outer.keys[:1], outer.programs[:1])
        try:
            _, values = self.run_in(op.combine, list(map(objects_of, elements)), self.frame)
        except NotDecided:
            return self._body(op.combine)
        finally:
            self.frame = outer
        results = [objects(forced(value), of).flat[0] for value, of in zip(values, types, strict=True)]
        self.universe.functions.append(results)
        return tuple(map(identity_of, results))

    def may_trap(self, op: Op) -> bool:
        """Whether the bodies of an op may divide by zero. Raises `NotDecided` for bodies that do more than compute."""
        waiting, visited, traps = [*op.bodies], set[Body](), False
        while waiting:
            body = waiting.pop()
            visited.add(body)
            for inner in body.walk():
                if isinstance(inner, _EFFECTS):
                    raise NotDecided(f"{inner.NAME} in the body of {op.NAME}")
                traps |= isinstance(inner, MayTrap) and may_trap(inner)
                if isinstance(inner, tt.Call):
                    callees = self.functions[inner.callee].bodies
                    waiting += [callee for callee in callees if callee not in visited]
        return traps

    def _captures(self, op: Op) -> dict[Value, Any]:
        """The values from outside that the bodies of an op use."""
        return {value: self.lookup(value) for value in op.captured_values()} if op.bodies else {}

    def _apart_from_runs(self, meaning: Meaning, captures: Mapping[Value, Any]) -> Meaning:
        """A meaning that runs bodies, whose result holds in all runs: a tensor is computed later, and for all of
        them."""
        path = self.path.term

        def in_all(machine: SymbolicMachine, op: Op, operands: tuple[Any, ...]) -> Any:
            outer, count = machine.frame, len(machine.defined)
            machine.frame = SymbolicFrame(machine.universe, TRUE, (), outer.keys[:1], outer.programs[:1])
            try:
                for value, content in captures.items():
                    machine.frame.bind(value, content)
                return meaning(machine, op, operands)
            finally:
                machine.frame = outer
                machine.defined[count:] = [z3.Implies(path, term) for term in machine.defined[count:]]

        return in_all

    def _decided(self, array: Array) -> Array:
        """The number with each choice in it replaced by the side that these runs take, where they tell."""
        assert isinstance(self.frame, SymbolicFrame)
        choices = self.domain.choices
        while array.size == 1 and isinstance(number := array.flat[0], Sum):
            for atom in number.atoms.keys() & choices.keys():
                condition, then, otherwise, choice = choices[atom]
                holds = self.frame.decided(condition).known
                if holds is not None:
                    change = (then if holds else otherwise) - choice
                    array = objects_of(number + change.scaled(number.atoms[atom][0])).reshape(array.shape)
                    break
            else:
                break
        return array

    def _one(self, operand: Any, value: Value, index: Index) -> Array:
        """The element of an operand at an index, as an array."""
        result = np.empty((1,) * (len(shape_of(value.type)) + 1), object)
        result[...] = self.universe.element(operand, value.type, index if result.ndim > 1 else ())
        return result

    def _scalar_choice(self, op: Op, operands: tuple[Any, ...]) -> Any:
        """The result of a choice between tensors by a scalar i1, or of a mask and such an i1."""
        if isinstance(op, arith.Select):
            (condition, *sides) = operands
        elif isinstance(op, arith.AndI) and scalar_element(op.result.type) == i1:
            few = [operand for operand in operands if not isinstance(operand, Tensor) and operand.size == 1]
            if len(few) != 1:
                return None
            if is_known(few[0]):
                return next(x for x in operands if x is not few[0]) if few[0].all() else few[0]
            (condition,) = few
            sides = [next(x for x in operands if x is not condition), np.zeros((1,) * condition.ndim, np.bool_)]
        else:
            return None
        if isinstance(condition, Tensor) or condition.size > 1 or is_known(condition) or _numel(op.result.type) <= FEW:
            return None
        assert isinstance(self.frame, SymbolicFrame)
        condition = self.frame.settled(condition.reshape(1))
        holds = condition[0].known
        return joined(self.universe, condition, *sides) if holds is None else sides[0 if holds else 1]

    def _require_divisor(self, op: arith.IntBinary, divisor: Any) -> None:
        if is_known(divisor) and divisor.all():
            return
        scalar = scalar_element(op.result.type)
        zero = self.domain.constant(0, scalar)
        for element in {identity_of(element): element for element in objects(forced(divisor), scalar).flat}.values():
            if element.known == 0:
                raise NotDecided("a division by zero")
            if element.known is None:
                self.defined.append(self.under(self.domain.compare("ne", element, zero, signed=False)))

    def require_inside(self, op: tt.Gather | gpu.LocalGather, index: Any) -> None:
        """Say that all indices of a gather must be those of elements."""
        type_, source = op.index.type, op.operands[0].type
        size = shape_of(source)[op.axis] if not isinstance(source, SharedType) else source.shape[op.axis]
        if is_known(index):
            if ((index < 0) | (index >= size)).any():
                raise NotDecided("a gather at an index that no element has")
            return
        scalar, shape = scalar_element(type_), shape_of(type_)
        place = self.universe.element(index, type_, self.universe.index(shape))
        last = self.domain.constant(min(size, 1 << scalar.bits - scalar.signed) - 1, scalar)
        self.require(self.domain.compare("le", place, last, signed=False))

    @property
    def path(self) -> Bit:
        """The condition under which the program comes here."""
        frame = self.frame
        assert isinstance(frame, SymbolicFrame)
        condition = frame.condition
        if len(condition) > 1 or len(frame) > 1:
            raise NotDecided("an access of memory by the elements of a tensor")
        return condition[0]

    def under(self, condition: Bit) -> Term:
        """That a condition holds where the program comes here, as a formula."""
        return (~self.path | condition).term

    def version(self, origin: int, scalar: ScalarType) -> Version:
        """The contents of an array now, which has elements of a type. Raises `NotDecided` for elements of two sizes."""
        if self.sizes.setdefault(origin, scalar.bytes) != scalar.bytes:
            raise NotDecided("accesses of one array at elements of two sizes")
        return self.arrays.setdefault(origin, self.universe.initial(origin, scalar.bytes))

    def read(self, cells: Cells, offset: Sum, scalar: ScalarType) -> Element:
        """The element of an array at an offset."""
        bits = cells.load(offset)
        if scalar.bits == 1:
            return self.domain.compare("ne", bits, Sum.number(0, 8), signed=False)
        return self.domain.loaded(bits, scalar)

    def write(self, cells: Cells, offset: Sum, content: Element, scalar: ScalarType, condition: Bit) -> None:
        """Write the element of an array at an offset, where a condition holds."""
        if scalar.bits == 1:
            bits = self.domain.resize(content, scalar, u8, signed=False)
        else:
            bits = content if isinstance(content, Sum) else Sum.of(bits_of(content))
        cells.store(offset, bits, condition)


def _types(op: Op) -> list[Type]:
    return [op.result.type, *(value.type for value in op.operands)]


def body_key(body: Body, functions: Mapping[str, Op]) -> Hashable:
    """Bodies with equal keys are the same, but for the names of values and functions. A body that only calls a function
    is that function's."""
    ops = body.entry.ops
    if len(ops) == 2 and isinstance(ops[0], tt.Call) and ops[0].operands == body.parameters:
        return body_key(functions[ops[0].callee].bodies[0], functions)
    numbers: dict[Value, int] = {}
    lines: list[Hashable] = []
    for block in body.blocks:
        for parameter in block.parameters:
            numbers[parameter] = len(numbers)
        for op in block.ops:
            operands = tuple(numbers.get(value, id(value)) for value in op.operands)
            targets = tuple((body.blocks.index(s.block), *map(str, s.arguments)) for s in op.successors)
            bodies = (*op.bodies, *((functions[op.callee].bodies[0],) if isinstance(op, tt.Call) else ()))
            inner = tuple(body_key(body, functions) for body in bodies)
            attributes = tuple((name, str(value)) for name, value in op.attributes.items() if name != "callee")
            name = "return" if isinstance(op, BodyTerminator | Returns) else op.NAME
            lines.append((name, attributes, operands, targets, inner))
            numbers[op.result] = len(numbers)
    return tuple(lines)


def _numel(type_: Type) -> int:
    return math.prod(shape_of(type_)) if not isinstance(type_, TupleType) else max(map(_numel, type_.components))


def elementwise_meaning(machine: SymbolicMachine, op: Op, operands: tuple[Any, ...]) -> Any:
    """The result of an elementwise op."""
    if all(map(is_known, operands)):
        return triton[op](machine, op, operands)
    rule = elementwise.MEANINGS.get(type(op))
    arrays = [objects(array, value.type) for value, array in zip(op.operands, operands, strict=True)]
    rank = max(array.ndim for array in arrays)
    arrays = [over(array, rank - 1) if array.ndim < rank else array for array in arrays]
    if rule is None:
        raise NotDecided(f"no meaning over domains is registered for {op.NAME}")
    if isinstance(element_of(op.operands[0].type), PtrType):
        rule = _of_pointers
    return lifted(partial(rule, machine.domain, op), op.result.type, *arrays)


def _of_pointers(domain: Terms, op: Op, *pointers: Element) -> Element:
    if not all(isinstance(p, Pointer) for p in pointers) or len({p.origin for p in pointers}) != 1:
        raise NotDecided("pointers to two arrays compared")
    return elementwise.MEANINGS[op](domain, op, *(pointer.offset for pointer in pointers))
