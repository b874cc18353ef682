"""The writing of checks into a kernel: calls of the functions of `frontends/library/sanitizing.py`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.types import Type, i1, i32, i64, shape_of, shaped, value_element
from ziggurat.frontends.language import Function
from ziggurat.transforms.calls.emit import Emitter
from ziggurat.transforms.calls.lattice import outer_constant
from ziggurat.transforms.mirror.library_models import function_model
from ziggurat.transforms.sanitize.records import Check, place_of_check


@functools.lru_cache(maxsize=512)
def _model(function: Function, types: tuple[Type, ...]) -> core.Module:
    """The model of a function for types and constants, made once for all kernels."""
    return function_model(function, types)


class Library:
    """The functions that the checks of a kernel call, as Triton models, by their symbols."""

    def __init__(self) -> None:
        self.functions: dict[str, tt.Func] = {}
        self._symbols: dict[Any, tt.Func] = {}

    def function(self, function: Function, types: Sequence[Type]) -> tt.Func:
        """The model of a function for types and constants; what it calls is added too."""
        key = function, tuple(types)
        if key not in self._symbols:
            module = _model(function, key[1])
            for name, op in module.functions().items():
                self.functions[name] = self._symbols[key] = expect(op, tt.Func)
        return self._symbols[key]


class Code(Emitter):
    """A builder in a sanitized kernel. Constants are arguments of calls as they are."""

    def __init__(self, builder: Builder, library: Library) -> None:
        super().__init__(builder)
        self.library = library

    def call_check(self, function: Function, *arguments: Any) -> Value:
        """Call a function with values and constants; its result."""
        types = [value.type if isinstance(value, Value) else outer_constant(value) for value in arguments]
        callee = self.library.function(function, types)
        values = [value for value in arguments if isinstance(value, Value)]
        return self.add(tt.Call(values, callee.sym_name, callee.body.yield_type))

    def true(self, shape: Sequence[int]) -> Value:
        """Lanes that are all true."""
        return self.constant(True, shaped(tuple(shape), i1))

    def both(self, a: Value | None, b: Value) -> Value:
        """The conjunction of two masks; without the first, the second."""
        return b if a is None else self.add(arith.AndI(a, b))

    def opposite(self, mask: Value) -> Value:
        """The lanes of a mask that are false."""
        return self.add(arith.XOrI(mask, self.constant(True, mask.type)))

    def either(self, a: Value | None, b: Value | None) -> Value | None:
        """The disjunction of two masks, of which either may be missing."""
        return b if a is None else a if b is None else self.add(arith.OrI(a, b))

    def marked(self, marks: Value) -> Value:
        """Whether each lane has a mark."""
        return self.add(arith.CmpI(marks, self.constant(0, marks.type), arith.IntPredicate.NE))

    def joined(self, a: Value | None, b: Value | None) -> Value | None:
        """For each lane the first mark, or else the second."""
        if a is None or b is None:
            return b if a is None else a
        return self.add(arith.Select(self.marked(a), a, b))

    def highest(self, value: Value, axis: int) -> Value:
        """The largest element along an axis: a mark, or whether any is true."""
        element = value_element(value.type)
        combine = self.builder.nested([element, element], element)
        larger = arith.OrI if element == i1 else arith.MaxSI
        combine.add(tt.ReduceReturn([combine.add(larger(*combine.parameters))]))
        return self.add(tt.Reduce([value], axis, combine.finish()))

    def highest_of_all(self, value: Value) -> Value:
        """The largest element of a tensor, or the scalar itself."""
        while shape_of(value.type):
            value = self.highest(value, 0)
        return value

    def fitted(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Marks or a mask for the lanes of another shape: one that any lane has is that of all."""
        return value if shape_of(value.type) == shape else self.spread(self.highest_of_all(value), shape)

    def no_marks(self, type_: Type) -> Value:
        """Marks of lanes that have none, in the shape of a type."""
        return self.constant(0, shaped(shape_of(type_), i32))

    def wide(self, value: Value) -> Value:
        """Integers as i64."""
        return self.cast(value, i64)


class Checks:
    """The checks of a kernel, for the names `names`, as they are added. `memory` is that of a launch."""

    memory: Value

    def __init__(self, names: tuple[str, ...], arrays: int) -> None:
        self.names, self._arrays = names, arrays
        self.entries: list[Check] = []

    def add(self, kind: str, op: Op, verb: str, parameter: int | None = None) -> int:
        """Add a check at an op; its number."""
        self.entries.append(Check(kind, verb, op.location, parameter, type(op)))
        return len(self.entries) - 1

    def place(self, code: Code, number: int) -> Value:
        """The place of the reports of a check in the memory."""
        return code.constant(place_of_check(self._arrays, number), i64)
