"""LLVM text while it is written: types, constants, values as numbers with operators, and routines.

A routine is a function of the LLVM module, defined once and called where it is needed. Routines are plain LLVM, so that
tests can run them on the host, but for `Number.approximate`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial, partialmethod
from typing import Any, Final

from ziggurat.codemodel import types
from ziggurat.codemodel.numbers import bits_of_number, rounded_number

QUOTIENT = "zg.quotient"  # The symbol of `Routine.quotient`, without the kind and the lanes.
_FLOATS = {scalar.llvm: scalar for scalar in (types.f16, types.bf16, types.f32, types.f64)}


class Code:
    """LLVM text while it is written. `label` is the current block."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, None] = {}
        self.variables: dict[str, str] = {}
        self.definitions: dict[str, str] = {}  # Of routines, by symbol.
        self.label = "entry"
        self._into = self.lines
        self._place = ""  # The suffix of instructions, which tells their source.
        self._count = 0

    def name(self, hint: str = "v") -> str:
        """A fresh name for a value or a block, without its sigil."""
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        self._into.append(f"  {text}{self._place}")

    def emit(self, text: str) -> str:
        """Append an instruction; the name of its value."""
        self._count += 1
        name = f"%v{self._count}"
        self._into.append(f"  {name} = {text}{self._place}")
        return name

    def splat(self, kind: str, name: str, lanes: int) -> str:
        """A vector with a number in each lane."""
        type_ = vector_type(kind, lanes)
        first = self.emit(f"insertelement {type_} poison, {kind} {name}, i64 0")
        return self.emit(f"shufflevector {type_} {first}, {type_} poison, <{lanes} x i32> zeroinitializer")

    def called(self, result: str, function: str, *arguments: Number | tuple[str, str]) -> str:
        """The text of a call of an external function, which is declared. Arguments that are no numbers are a type and a
        value."""
        operands = [(value.type, value.name) if isinstance(value, Number) else value for value in arguments]
        self.declarations[f"declare {result} @{function}({', '.join(kind for kind, _ in operands)})"] = None
        return f"call {result} @{function}({', '.join(map(' '.join, operands))})"

    def routine(self, routine: Routine, *values: Number) -> Number:
        """Call a routine, which the module defines once; one of numbers for each lane of vectors."""
        if not routine.lanes and any(value.lanes for value in values):
            return by_lane(partial(self.routine, routine), *values)
        name = self.emit(self.call_of(routine, *values))
        return Number(self, routine.result, name, routine.lanes)

    def call_of(self, routine: Routine, *values: Number) -> str:
        """The text of a call of a routine, which the module defines once."""
        if routine.symbol not in self.definitions:
            self.declarations.update(routine.declarations)
            self.variables.update(routine.variables)
            self.definitions |= {routine.symbol: routine.text, **routine.definitions}
        result, arguments = vector_type(routine.result, routine.lanes), ", ".join(value.typed for value in values)
        return f"call {result} @{routine.symbol}({arguments})"

    def start(self, label: str) -> None:
        """Begin a block."""
        self._into.append(f"{label}:")
        self.label = label

    @property
    def here(self) -> str:
        """The label of the current block."""
        return self.label

    @property
    def into(self) -> list[str]:
        """The lines to which those of a block are appended."""
        return self.lines


class Join:
    """A block that others branch to with values of these LLVM types, which its phis take."""

    def __init__(self, code: Code, hint: str, kinds: Sequence[str]) -> None:
        self.code = code
        self.label = code.name(hint)
        self._phis = [(f"%{code.name('phi')}", kind) for kind in kinds]
        self._sources: list[tuple[list[str], str]] = []
        self._into = code.into
        self._place = 0

    def branch(self, values: Iterable[object]) -> str:
        """The target, in a branch from the current block, with these values."""
        self._sources.append((list(map(str, values)), self.code.here))
        return f"label %{self.label}"

    def begin(self) -> list[str]:
        """Begin the block; the values in it."""
        self.code.start(self.label)
        self._place = len(self._into)
        return [name for name, _ in self._phis]

    def end(self) -> None:
        """Write the phis, when all branches to the block are written. Of nested blocks the inner ones end first."""
        lines: list[str] = []
        for index, (name, kind) in enumerate(self._phis):
            pairs = ", ".join(f"[ {values[index]}, %{label} ]" for values, label in self._sources)
            lines.append(f"  {name} = phi {kind} {pairs}")
        self._into[self._place : self._place] = lines


class Number:
    """A value in LLVM text, an SSA value or a constant, with the operators of its LLVM type.

    `>>`, `/` and `%` of integers are the unsigned ones. Python's numbers may be operands. With `lanes` it is a vector
    of so many numbers of the type `kind`; a number among vectors counts for each lane.
    """

    __slots__ = ("code", "kind", "lanes", "name")

    def __init__(self, code: Code, kind: str, name: str, lanes: int = 0) -> None:
        self.code = code
        self.kind = kind
        self.name = name
        self.lanes = lanes

    def __str__(self) -> str:
        return self.name

    @property
    def type(self) -> str:
        """The LLVM type, of a vector or a number."""
        return vector_type(self.kind, self.lanes)

    @property
    def typed(self) -> str:
        """The LLVM type and the value."""
        return f"{self.type} {self.name}"

    def like(self, value: Number | float) -> Number:
        """A value of this number's type: itself, or a constant."""
        if isinstance(value, Number):
            return value
        scalar = _FLOATS.get(self.kind)
        text = str(value).lower() if isinstance(value, bool) else "null" if self.kind == "ptr" else str(value)
        return Number(self.code, self.kind, text if scalar is None else literal(value, scalar))

    def spread(self, lanes: int) -> Number:
        """A vector with this number in each lane; a vector itself."""
        if self.lanes == lanes:
            return self
        if self.name[0] not in "%<":
            return Number(self.code, self.kind, f"splat ({self.kind} {self.name})", lanes)
        return Number(self.code, self.kind, self.code.splat(self.kind, self.name, lanes), lanes)

    def lane(self, lane: int) -> Number:
        """The number in a lane; a number itself."""
        return self.made(self.kind, f"extractelement {self.typed}, i64 {lane}", 0) if self.lanes else self

    def made(self, kind: str, text: str, lanes: int) -> Number:
        """The value of an instruction, by its text and the type of its result."""
        return Number(self.code, kind, self.code.emit(text), lanes)

    def _operation(self, opcode: str, other: Number | float, *, swapped: bool = False) -> Number:
        a, b = together(*((self.like(other), self) if swapped else (self, self.like(other))))
        prefix = "f" if self.kind in _FLOATS else "u" if opcode in ("div", "rem") else ""
        return self.made(self.kind, f"{prefix}{opcode} {a.type} {a}, {b}", a.lanes)

    __add__ = partialmethod(_operation, "add")
    __sub__ = partialmethod(_operation, "sub")
    __rsub__ = partialmethod(_operation, "sub", swapped=True)
    __mul__ = partialmethod(_operation, "mul")
    __truediv__ = partialmethod(_operation, "div")
    __rtruediv__ = partialmethod(_operation, "div", swapped=True)
    __mod__ = partialmethod(_operation, "rem")
    __and__ = partialmethod(_operation, "and")
    __or__ = partialmethod(_operation, "or")
    __xor__ = partialmethod(_operation, "xor")
    __lshift__ = partialmethod(_operation, "shl")
    __rshift__ = partialmethod(_operation, "lshr")

    def ashr(self, by: Number | int) -> Number:
        """A signed integer shifted to the right."""
        return self._operation("ashr", by)

    def __invert__(self) -> Number:
        return self ^ (True if self.kind == "i1" else -1)

    def __neg__(self) -> Number:
        return self.made(self.kind, f"fneg {self.typed}", self.lanes) if self.kind in _FLOATS else 0 - self

    def __abs__(self) -> Number:
        return self.call("llvm.fabs")

    def test(self, predicate: str, other: Number | float) -> Number:
        """A comparison, by the predicate of icmp or fcmp."""
        opcode = "fcmp" if self.kind in _FLOATS else "icmp"
        a, b = together(self, self.like(other))
        return self.made("i1", f"{opcode} {predicate} {a.type} {a}, {b}", a.lanes)

    def select(self, then: Number | float, otherwise: Number | float, kind: str = "") -> Number:
        """One of two values, by an i1. Two Python numbers are of the type `kind`."""
        of = next((x for x in (then, otherwise) if isinstance(x, Number)), Number(self.code, kind, ""))
        first, second = of.like(then), of.like(otherwise)
        lanes = max(self.lanes, first.lanes, second.lanes)
        first, second = first.spread(lanes), second.spread(lanes)
        return self.made(of.kind, f"select {self.typed}, {first.typed}, {second.typed}", lanes)

    def to(self, opcode: str, kind: str) -> Number:
        """The value cast to another type."""
        return self.made(kind, f"{opcode} {self.typed} to {vector_type(kind, self.lanes)}", self.lanes)

    def call(self, function: str, *others: Number | float) -> Number:
        """Call an intrinsic whose result has the type of this number, its first argument. A bool is an i1."""
        operands: list[Number] = [self]
        for x in others:
            operands.append(Number(self.code, "i1", str(x).lower()) if isinstance(x, bool) else self.like(x))
        lanes = max(x.lanes for x in operands)
        operands = [
            x if isinstance(y, bool) else x.spread(lanes) for x, y in zip(operands, (self, *others), strict=True)
        ]
        result = vector_type(self.kind, lanes)
        return self.made(self.kind, self.code.called(result, f"{function}.{suffix(result)}", *operands), lanes)

    def convert(self, function: str, kind: str) -> Number:
        """Call an intrinsic that converts this number to another type."""
        result = vector_type(kind, self.lanes)
        name = f"{function}.{suffix(result)}.{suffix(self.type)}"
        return self.made(kind, self.code.called(result, name, self), self.lanes)

    def any(self) -> Number:
        """Whether an i1 is true in any lane; a number itself."""
        name = f"llvm.vector.reduce.or.v{self.lanes}i1"
        return self.made("i1", self.code.called("i1", name, self), 0) if self.lanes else self

    def bits(self) -> Number:
        """The bits of a float as an integer."""
        return self.to("bitcast", f"i{_FLOATS[self.kind].bits}")

    def signed_as(self, sign: Number) -> Number:
        """The magnitude of a float with the sign of another one."""
        return self.call("llvm.copysign", sign)

    def approximate(self, name: str) -> Number:
        """2^x or 1 / x by an instruction of NVIDIA's GPUs, `ex2` or `rcp`, which takes and gives subnormal numbers as
        zero. `rcp` of f64 has the first 19 digits."""
        letter, suffixed = self.kind[0], suffix(self.kind)
        text = f'call {self.kind} asm "{name}.approx.ftz.{suffixed} $0, $1;", "={letter},{letter}"({self.typed})'
        return self.made(self.kind, text, 0)

    def clamp(self, low: float, high: float) -> Number:
        """A float limited to an interval; NaN stays."""
        x = self.test("olt", low).select(low, self)
        return x.test("ogt", high).select(high, x)


class Routine(Code):
    """One function `result @symbol(parameters)` while it is written; its arguments are `%a0`, `%a1` and so on.

    With `lanes` it is one of vectors. Such a routine cannot read tables at its arguments.
    """

    def __init__(self, symbol: str, result: str, parameters: Sequence[str], lanes: int = 0) -> None:
        super().__init__()
        self.symbol = f"{symbol}.v{lanes}" if lanes else symbol
        self.result = result
        self.parameters = tuple(parameters)
        self.lanes = lanes
        self.text = ""

    def argument(self, index: int = 0) -> Number:
        """An argument."""
        return Number(self, self.parameters[index], f"%a{index}", self.lanes)

    def table(self, name: str, kind: str, values: Sequence[int], index: Number) -> Callable[[int], Number]:
        """A table of the module in constant memory: a function of constant offsets from an index."""
        items = ", ".join(f"{kind} {value}" for value in values)
        self.variables[name] = f"@{name} = internal addrspace(4) constant [{len(values)} x {kind}] [{items}]"

        def load(offset: int) -> Number:
            at = index + offset
            place = self.emit(f"getelementptr {kind}, ptr addrspace(4) @{name}, {at.kind} {at}")
            return Number(self, kind, self.emit(f"load {kind}, ptr addrspace(4) {place}"))

        return load

    def fma(self, a: Number, b: Number | float, c: Number | float) -> Number:
        """a · b + c, rounded once."""
        return a.call("llvm.fma", b, c)

    def poly(self, x: Number, coefficients: Sequence[float]) -> Number:
        """The polynomial with these coefficients, from the lowest, by Horner's rule."""
        result = x.like(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, coefficient)
        return result

    def quotient(self, a: Number, b: Number) -> Number:
        """a / b to 1 ulp, for a b between 2^-500 and 2^500. Of vectors it is a routine, which a target may have its own
        of."""
        if not self.lanes:
            return a / b
        divide = Routine(f"{QUOTIENT}.{a.kind}", a.kind, [a.kind, a.kind], self.lanes)
        return self.routine(divide.done(divide.argument() / divide.argument(1)), *together(a, b))

    def nearest(self, x: Number, factor: float = 1.0) -> tuple[Number, Number]:
        """The whole number nearest to factor · x, as a float and as an integer, if it is less than 2^22 or 2^31.

        Adding a large number lets the sum be rounded there; so NaN stays NaN, and no conversion can be undefined.
        """
        anchor = 1.5 * 2.0 ** (23 if x.kind == "float" else 52)
        base = struct.unpack("<I", struct.pack("<f", anchor))[0]
        if x.kind == "double":
            base = struct.unpack("<Q", struct.pack("<d", anchor))[0]
        shifted = self.fma(x, factor, anchor)
        integer = shifted.bits() - base
        return shifted - anchor, integer

    def power_of_two(self, exponent: Number) -> Number:
        """2**exponent as a float of the exponent's width, for the exponents of normal numbers."""
        digits, bias, kind = (23, 127, "float") if exponent.kind == "i32" else (52, 1023, "double")
        return (exponent + bias << digits).to("bitcast", kind)

    def scaled(self, x: Number, exponent: Number) -> Number:
        """x · 2**exponent, subnormal results included: in two steps. Only the second can round."""
        half = exponent.ashr(1)
        rest = exponent - half
        return x * self.power_of_two(half) * self.power_of_two(rest)

    def branch(
        self, condition: Number, then: Callable[[], list[Number]], otherwise: Callable[[], list[Number]]
    ) -> list[Number]:
        """Branch on a condition; the values of the branch that was taken. Vectors take both branches, and select."""
        if self.lanes:
            return [condition.select(a, b) for a, b in zip(then(), otherwise(), strict=True)]
        labels = [self.name("block") for _ in range(2)]
        self.line(f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}")
        results: list[Number] = []
        after: Join | None = None
        for label, make in zip(labels, (then, otherwise), strict=True):
            self.start(label)
            results = make()
            after = after or Join(self, "block", [value.kind for value in results])
            self.line(f"br {after.branch(results)}")
        assert after is not None
        names = after.begin()
        after.end()
        return [Number(self, value.kind, name) for value, name in zip(results, names, strict=True)]

    def done(self, value: Number, inline: bool = True, attributes: str = "") -> Routine:
        """End with the result. With `inline` LLVM may inline the routine. Long and slow ones are better called: for a
        tensor with many elements a thread, the copies would take long to compile."""
        kinds = [vector_type(kind, self.lanes) for kind in self.parameters]
        parameters = ", ".join(f"{kind} %a{index}" for index, kind in enumerate(kinds))
        result = vector_type(self.result, self.lanes)
        attributes = f"{'' if inline else 'noinline '}{attributes}"
        head = f"define internal {result} @{self.symbol}({parameters}) nounwind {attributes}{{"
        self.text = "\n".join([head, "entry:", *self.lines, f"  ret {result} {value}", "}"])
        return self


def vector_type(kind: str, lanes: int) -> str:
    """The LLVM type of a vector, or of a number for 0 lanes."""
    return f"<{lanes} x {kind}>" if lanes else kind


def instruction(name: str, *values: Number) -> Number:
    """The result of an instruction, or of an intrinsic ("llvm.smax"), whose operands and result have one type."""
    if name.startswith("llvm."):
        return values[0].call(name, *values[1:])
    lanes = together(*values)
    first, names = lanes[0], ", ".join([value.name for value in lanes])
    return first.made(first.kind, f"{name} {first.type} {names}", first.lanes)


def together(*values: Number) -> list[Number]:
    """The values as vectors of one length, or all as numbers."""
    lanes = max([value.lanes for value in values])
    return [value.spread(lanes) for value in values] if lanes else [*values]


def by_lane(make: Callable[..., Number], *values: Number) -> Number:
    """A function of numbers applied to each lane of vectors."""
    lanes = max(value.lanes for value in values)
    if not lanes:
        return make(*values)
    result: Number | None = None
    for lane in range(lanes):
        results = make(*(value.lane(lane) for value in values))
        result = result or Number(results.code, results.kind, "poison", lanes)
        name = results.code.emit(f"insertelement {result.typed}, {results.typed}, i64 {lane}")
        result = Number(results.code, results.kind, name, lanes)
    assert result is not None
    return result


@lru_cache(maxsize=1)
def two_over_pi(bits: int) -> int:
    """The first `bits` binary digits of 2/π after the point, as an integer; π by Machin's formula."""
    guard = bits + 64

    def arctangent(inverse: int) -> int:
        term = (1 << guard) // inverse
        total, n, sign = term, 1, 1
        while term:
            term //= inverse * inverse
            n, sign = n + 2, -sign
            total += sign * (term // n)
        return total

    pi = 4 * (4 * arctangent(5) - arctangent(239))
    return (1 << guard + 1 + bits) // pi


def llvm_type(type_: types.Type) -> str:
    """The LLVM type of a scalar, a pointer, a tensor's element, or a buffer's address. 8-bit floats are their bits."""
    element = types.element_of(type_)
    if isinstance(element, types.PtrType):
        return "ptr addrspace(1)"
    if isinstance(element, types.SharedType):
        return "ptr addrspace(3)"
    if isinstance(element, types.DescriptorType):
        return "ptr"
    assert isinstance(element, types.ScalarType), f"{type_} has no LLVM type"
    return element.llvm


def literal(value: Any, scalar: types.ScalarType) -> str:
    """A number as a constant of LLVM text, rounded to the type; floats by their bits."""
    if not scalar.is_float:
        return ("true" if value else "false") if scalar.bits == 1 else str(int(value))
    if scalar == types.f32:  # LLVM writes an f32 by the bits of the f64 that equals it.
        return f"0x{bits_of_number(rounded_number(value, types.f32), types.f64):016X}"
    bits = bits_of_number(value, scalar)
    if scalar.is_fp8:
        return str(bits)
    prefix = {"f16": "0xH", "bf16": "0xR"}.get(scalar.name, "0x")
    return f"{prefix}{bits:0{scalar.bits // 4}X}"


def suffix(kind: str) -> str:
    """The name of a type in the names of intrinsics."""
    if kind.startswith("<"):
        count, _, element = kind[1:-1].partition(" x ")
        return f"v{count}{suffix(element)}"
    return _FLOATS[kind].name if kind in _FLOATS else kind


def encoded(text: str) -> bytes:
    """Text as UTF-8. Surrogates that stand for bytes of a file name become these bytes."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


_ESCAPES: Final = [chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in range(256)]


def escaped(raw: bytes) -> str:
    """Bytes as LLVM quotes them: quotes, backslashes and bytes beyond printable ASCII in hexadecimal."""
    return "".join(map(_ESCAPES.__getitem__, raw))
