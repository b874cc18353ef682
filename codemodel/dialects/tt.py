"""The Triton dialect: programs over tensors of constant shape, addressed by pointers; named as in Triton's MLIR.

Several results of an op in Triton's dialect are one Tuple here; attributes on values (`tt.divisibility`) are ops.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

from ziggurat.codemodel import traits
from ziggurat.codemodel.assembly import constraints_error, parts_of, template_error
from ziggurat.codemodel.dialects.arith import (
    BinaryElementwise,
    Conditional,
    FloatBinary,
    axis_of,
    require_of,
    tensor_of,
)
from ziggurat.codemodel.dialects.math import FloatUnary
from ziggurat.codemodel.dialects.scf import packed
from ziggurat.codemodel.dialects.tt_memory import *
from ziggurat.codemodel.dialects.tt_memory import MemScope
from ziggurat.codemodel.dialects.tt_shapes import *
from ziggurat.codemodel.fields import attribute, body, operand, operands, result_type
from ziggurat.codemodel.op import Body, Op, Value, require
from ziggurat.codemodel.types import (
    PtrType,
    ScalarType,
    Type,
    element_of,
    f16,
    f32,
    f64,
    i1,
    i32,
    i64,
    is_power_of_two,
    shape_of,
    shaped,
    void,
)

# Functions and programs.


class Return(Op, traits.Returns, name="tt.return"):
    """Leave the function with its values."""

    values: Sequence[Value] = operands()


class Func(Op, traits.Isolated, traits.Symbol, name="tt.func"):
    """A function of the Triton model. A function that returns nothing is a kernel.

    `divisibility` has a known divisor of the value of each parameter (for a pointer, of its address in bytes). If it is
    empty, no divisor is known. `small` has the numbers of the parameters that are known to be from 0 to 2^15 - 1. Calls
    of a function with `noinline` are not inlined.

    The parameters of a GPU kernel may be parts of its arguments. Then `parts` has an entry for each parameter: "1" is
    argument number 1 itself, "0.map" a descriptor's map, "0.base" the address of its tensor, "0.shape0" and
    "0.stride1" its sizes and strides (in elements), "scratch" the memory that a launch provides (`gpu.module`). If
    `parts` is empty, there is one parameter for each argument. "map 0 3 5 =64" is a tensor map that a launch makes: of
    the memory at parameter number 0, with parameter 3 and 5 as sizes, and rows that are 64 elements apart; it ends with
    " stored" if the kernel stores through it. "grid 1" is the size along axis 1 of the grid that a launch asks for.

    `disjoint` has pairs of argument numbers, one pair after the other. The kernel stores to the memory of the first
    descriptor of a pair and loads from that of the second, and the two must not overlap. A launch checks it.

    A program of a GPU kernel is a cluster of `num_ctas` CTAs. With several, each has a part of the program's tensors
    (`gpu.cluster_rank`).
    """

    sym_name: str = attribute(str, unnamed=True)
    body: Body = body(ends=Return)
    divisibility: tuple[int, ...] = attribute([int], default=())
    small: tuple[int, ...] = attribute([int], default=())
    noinline: bool = attribute(bool, default=False)
    parts: tuple[str, ...] = attribute([str], default=())
    disjoint: tuple[int, ...] = attribute([int], default=())
    num_ctas: int = attribute(int, default=1)

    def check(self) -> None:
        if self.divisibility:
            require(
                len(self.divisibility) == len(self.body.parameters), "divisibility has one number for each parameter"
            )
        if self.small:
            types = enumerate(parameter.type for parameter in self.body.parameters)
            integers = [at for at, type_ in types if isinstance(type_, ScalarType) and type_.is_int]
            require({*self.small} <= {*integers}, "small has numbers of parameters that are integers")
        if self.parts:
            require(len(self.parts) == len(self.body.parameters), "parts has one string for each parameter")
        require(len(self.disjoint) % 2 == 0, "disjoint has pairs of arguments")
        require(is_power_of_two(self.num_ctas), f"num_ctas must be a power of two; got {self.num_ctas}")


class Call(Op, traits.SymbolUser, name="tt.call"):
    """Call a function of the module by its symbol."""

    arguments: Sequence[Value] = operands()
    callee: str = attribute(str, unnamed=True)
    type: Type = result_type()


class Grid(Op, traits.Pure):
    """The base of the ops that query the launch grid along an axis."""

    axis: int = attribute(int, unnamed=True)

    RESULT = i32

    def check(self) -> None:
        axis_of(self, self.axis, 3)


class GetProgramId(Grid, name="tt.get_program_id"):
    """The number of this program along an axis of the grid."""


class GetNumPrograms(Grid, name="tt.get_num_programs"):
    """The number of programs along an axis of the grid."""


class SmId(Op, traits.Pure, name="tt.smid"):
    """The number of the multiprocessor that runs the program: PTX's `%smid`, an i32. 0 on a CPU."""

    RESULT = i32


class GlobalTimer(Op, name="tt.globaltimer"):
    """Nanoseconds, of a clock that the whole device shares: PTX's `%globaltimer`, an i64. Each thread reads it here."""

    RESULT = i64


# Computing.


def accumulators(element: Type) -> tuple[ScalarType, ...]:
    """The types in which `tt.dot` accumulates products of an element type, the usual one first; () if it takes none."""
    if not isinstance(element, ScalarType):
        return ()
    if element.is_int:
        return (i32,) if element.bits == 8 else ()
    return (f64,) if element == f64 else (f32, f16) if element.bits <= 16 else (f32,)


class InputPrecision(enum.Enum):
    """The precision of a dot of f32. DEFAULT is the target's fastest (tf32), exact in the interpreter.

    With x3 and x6, each operand is the sum of two or three parts of the narrow type, the first of which is the rounded
    operand; 3 or 6 of the products of parts are added, without the smallest.
    """

    DEFAULT = "default"
    TF32 = "tf32"
    TF32X3 = "tf32x3"
    BF16X3 = "bf16x3"
    BF16X6 = "bf16x6"
    IEEE = "ieee"

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """The parts of a and of b whose products are added, the smallest first; () where no operand is split."""
        return _PRODUCTS.get(self, ())


_X3 = ((1, 0), (0, 1), (0, 0))
_PRODUCTS = {
    InputPrecision.TF32X3: _X3,
    InputPrecision.BF16X3: _X3,
    InputPrecision.BF16X6: ((1, 1), (2, 0), (0, 2), *_X3),
}


def multiplies(a: Type, b: Type) -> bool:
    """Whether there are dots of these element types: of one type, or of two floats or two integers of 8 bits."""
    if a == b or not isinstance(a, ScalarType) or not isinstance(b, ScalarType):
        return a == b
    return a.bits == b.bits == 8 and a.kind == b.kind


class Dot(Op, traits.Pure, name="tt.dot"):
    """a · b + c for matrices, or batches of matrices; computed in the type of c, which is that of the result.

    `max_num_imprecise_acc`, if it is not 0, is the number of products of 8-bit floats along k that the matrix units of
    Hopper may add with fewer bits than f32 has; then they are added in f32.
    """

    a: Value = operand()
    b: Value = operand()
    c: Value = operand()
    input_precision: InputPrecision = attribute(InputPrecision, default=InputPrecision.DEFAULT)
    max_num_imprecise_acc: int = attribute(int, default=0)

    def infer_type(self) -> Type:
        return self.c.type

    def check(self) -> None:
        a, b, c = (tensor_of(self, value) for value in (self.a, self.b, self.c))
        require_of(
            self,
            a.rank == b.rank and a.rank in (2, 3) and a.shape[:-2] == b.shape[:-2],
            "{}: the operands must be two matrices, or two equal batches of them; got {} and {}",
            a,
            b,
        )
        require_of(
            self,
            a.shape[-1] == b.shape[-2],
            "{}: the inner sizes differ: {} has {} columns, {} has {} rows",
            list(a.shape),
            a.shape[-1],
            list(b.shape),
            b.shape[-2],
        )
        require_of(
            self,
            multiplies(a.element, b.element),
            "{}: the operands must be of one element type, or both 8-bit floats or integers; got {} and {}",
            a.element,
            b.element,
        )
        allowed = accumulators(a.element)
        operands = "{}: the operands must be floats or 8-bit integers; got {}"
        require_of(self, bool(allowed), operands, a.element)
        shape = (*a.shape[:-1], b.shape[-1])
        require_of(self, c.shape == shape, "{}: the accumulator must have the shape {}; got {}", list(shape), c)
        choices = " or ".join(["{}"] * len(allowed))
        require_of(
            self,
            c.element in allowed,
            f"{{}} of {{}} accumulates in {choices}; got {{}}",
            a.element,
            *allowed,
            c.element,
        )


class PreciseDivF(FloatBinary, name="tt.precise_divf"):
    """Correctly rounded quotient, also on targets whose own division is approximate."""


class PreciseSqrt(FloatUnary, name="tt.precise_sqrt"):
    """Correctly rounded square root, also on targets whose own root is approximate."""


class MulHiUI(BinaryElementwise, name="tt.mulhiui"):
    """The upper half of the product of two unsigned integers."""

    TAKES = "unsigned"


class ReduceReturn(Op, traits.BodyTerminator, name="tt.reduce.return"):
    """The combined elements."""

    values: Sequence[Value] = operands()


class ScanReturn(Op, traits.BodyTerminator, name="tt.scan.return"):
    """The combined elements."""

    values: Sequence[Value] = operands()


class Combining(Op, traits.Pure):
    """Tensors of one shape, combined along an axis. The body takes an element of each tensor, then a second element of
    each, and returns one element for each tensor."""

    values: Sequence[Value] = operands()
    axis: int = attribute(int)
    combine: Body = body()

    def entry_types(self, operands: Sequence[Value]) -> Sequence[Type]:
        return 2 * [element_of(value.type) for value in operands]

    def elements(self) -> list[Type]:
        """The element types, after checking that the shapes agree."""
        require(bool(self.values), f"{self.NAME} takes at least one tensor")
        first = tensor_of(self, self.values[0])
        axis_of(self, self.axis, first.rank)
        for value in self.values:
            shape = tensor_of(self, value).shape
            require(
                shape == first.shape,
                f"{self.NAME}: the operands must be tensors of one shape; got {first.shape} and {shape}",
            )
        return [element_of(value.type) for value in self.values]

    def check(self) -> None:
        elements = self.elements()
        expected = [*elements, *elements]
        require(
            [p.type for p in self.combine.parameters] == expected, f"the body of {self.NAME} takes two of each element"
        )
        for block in self.combine.blocks:
            if isinstance(block.terminator, ReduceReturn | ScanReturn):
                types = [value.type for value in block.terminator.operands]
                require(types == elements, f"the body of {self.NAME} gives one of each element")


class Reduce(Combining, name="tt.reduce"):
    """The elements along the axis combined to one, in an unspecified order. A `combine` that returns its first (second)
    operand unchanged gives the first (last) element. The result lacks the axis; for a tensor of one axis it is a
    scalar."""

    combine: Body = body(ends=ReduceReturn)

    def infer_type(self) -> Type:
        elements = self.elements()
        first = tensor_of(self, self.values[0])
        rest = (*first.shape[: self.axis], *first.shape[self.axis + 1 :])
        layout = None if first.layout is None else first.layout.dropped(first.shape, self.axis)
        return packed([shaped(rest, e, layout) for e in elements if isinstance(e, ScalarType | PtrType)])


class Scan(Combining, name="tt.scan"):
    """An inclusive scan: each element combined with all before it along the axis; with `reverse`, with all after it."""

    combine: Body = body(ends=ScanReturn)
    reverse: bool = attribute(bool, default=False)

    def infer_type(self) -> Type:
        self.elements()
        return packed([value.type for value in self.values])


class MapReturn(Op, traits.BodyTerminator, name="tt.map_elementwise.return"):
    """The elements of the results: `pack` of the first result, then `pack` of the second, and so on."""

    values: Sequence[Value] = operands()


class MapElementwise(Op, traits.Pure, name="tt.map_elementwise"):
    """A body applied to the elements of tensors of one shape, `pack` elements at a time.

    The body takes `pack` elements of the first tensor, then `pack` of the second, and so on. Which elements come
    together is not defined. It gives `pack` elements of each result, in the same order.
    """

    values: Sequence[Value] = operands()
    apply: Body = body(ends=MapReturn)
    pack: int = attribute(int, default=1)

    def returned(self) -> Sequence[Value]:
        """The elements that the body gives, where control leaves it."""
        ends = (block.terminator for block in self.apply.blocks)
        return next((end.values for end in ends if isinstance(end, MapReturn)), ())

    def entry_types(self, operands: Sequence[Value]) -> Sequence[Type]:
        return [element_of(value.type) for value in operands for _ in range(self.pack)]

    def infer_type(self) -> Type:
        require(bool(self.values), f"{self.NAME} takes at least one tensor")
        require(self.pack > 0, f"{self.NAME}: pack must be at least 1; got {self.pack}")
        first = tensor_of(self, self.values[0])
        types = self.returned()
        require(
            bool(types) and len(types) % self.pack == 0,
            f"the body of {self.NAME} must give {self.pack} elements of each result; got {len(types)}",
        )
        elements = [element_of(value.type) for value in types[:: self.pack]]
        return packed([shaped(first.shape, e, first.layout) for e in elements if isinstance(e, ScalarType | PtrType)])

    def check(self) -> None:
        shapes = {tensor_of(self, value).shape for value in self.values}
        require(len(shapes) == 1, f"{self.NAME}: the operands must be tensors of one shape; got {sorted(shapes)}")
        expected = [element_of(value.type) for value in self.values for _ in range(self.pack)]
        require(
            [p.type for p in self.apply.parameters] == expected,
            f"the body of {self.NAME} takes {self.pack} of each element",
        )
        types = [value.type for value in self.returned()]
        alike = all(type_ == types[at - at % self.pack] for at, type_ in enumerate(types))
        require(
            alike, f"the elements of each result of {self.NAME} must be of one type; got {', '.join(map(str, types))}"
        )


class InlineAsm(Op, name="tt.elementwise_inline_asm"):
    """PTX on the elements of tensors of one shape, `pack` elements at a time, as Triton's inline_asm_elementwise."""

    values: Sequence[Value] = operands()
    asm: str = attribute(str)
    constraints: str = attribute(str)
    type: Type = result_type()
    is_pure: bool = attribute(bool, default=True)
    pack: int = attribute(int, default=1)

    def check(self) -> None:
        wrong = constraints_error(self.constraints)
        require(wrong is None, str(wrong))
        registers = [part for part in parts_of(self.constraints) if not part.startswith("~")]
        unread = template_error(self.asm, len(registers))
        require(unread is None, unread[0] if unread else "", unread[1] if unread else None)
        require(self.pack > 0, f"pack must be at least 1; got {self.pack}")


# Hints about values; printing and assertions.


class Hint(Op, traits.Pure):
    """The operand, with a hint about it: one number for each axis."""

    value: Value = operand()
    values: tuple[int, ...] = attribute([int], unnamed=True)

    def infer_type(self) -> Type:
        return self.value.type

    def check(self) -> None:
        rank = max(1, len(shape_of(self.value.type)))
        require(len(self.values) == rank, f"{self.NAME} takes {rank} number(s), got {len(self.values)}")


class MultipleOf(Hint, name="tt.multiple_of"):
    """The first element of each run along an axis is divisible by the number of that axis."""


class MaxContiguous(Hint, name="tt.max_contiguous"):
    """The elements come in runs of consecutive numbers of these lengths."""


class MaxConstancy(Hint, name="tt.max_constancy"):
    """The elements come in runs of equal numbers of these lengths."""


class Assume(Conditional, name="tt.assume"):
    """The condition holds; the compiler may rely on it."""


class Print(Op, name="tt.print"):
    """Print the values, each element with its program.

    With `c_form`, floats are written as C's `%f` has them and i1 as 0 and 1, and on a GPU each thread prints a scalar.
    With `whole`, each program prints one text and no end of a line: the prefix, a format of Python's in which `{}`
    stands for each value. A tensor is written as an array of NumPy; on a GPU, each element of it is a line of its own.
    """

    values: Sequence[Value] = operands()
    prefix: str = attribute(str, unnamed=True)
    hex: bool = attribute(bool, default=False)
    c_form: bool = attribute(bool, default=False)
    whole: bool = attribute(bool, default=False)

    def check(self) -> None:
        parts = re.sub(r"\{\{|\}\}", "", self.prefix).split("{}")
        is_format = len(parts) == len(self.values) + 1 and not set("{}") & set("".join(parts))
        require(
            is_format or not self.whole, f"{self.NAME}: a whole text has a {{}} for each value; got {self.prefix!r}"
        )


class Assert(Op, name="tt.assert"):
    """Stop with a message if an element of the condition is false. On a GPU the whole launch ends with an error."""

    condition: Value = operand()
    message: str = attribute(str, default="", unnamed=True)

    def check(self) -> None:
        require(
            element_of(self.condition.type) == i1, f"tt.assert: the condition must be i1; got {self.condition.type}"
        )


class Barrier(Op, name="tt.barrier"):
    """A barrier of all threads of the program, which orders their accesses of global memory for each other; for other
    programs of a wider `scope` as well, together with relaxed accesses of shared flags (a fence)."""

    scope: MemScope = attribute(MemScope, default=MemScope.CTA)


class GridDependencyWait(Op, name="tt.grid_dependency_wait"):
    """Wait until the launches before this one have ended, if it was allowed to begin earlier; orders the accesses of
    global memory after it after theirs."""


class GridDependencyLaunch(Op, name="tt.grid_dependency_launch"):
    """The launch after this one may begin, if it is allowed to, once all programs have run this op or ended."""


class Poison(Op, traits.Pure, name="tt.poison"):
    """An undefined value, for control flow that needs a value which is never used."""

    type: Type = result_type()

    def check(self) -> None:
        require(self.type != void, "tt.poison gives a value")
