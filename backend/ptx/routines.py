"""Routines: functions of the LLVM module, defined once, called where they are needed.

They are plain LLVM without anything of a target, so a test can run them on the host; LLVM inlines them as it sees fit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache


def f32_bits(bits: int) -> str:
    """The f32 with these bits, as LLVM writes it: by the bits of the equal f64."""
    return f64(struct.unpack("<f", struct.pack("<I", bits))[0])


def f64(number: float) -> str:
    """An f64 as LLVM writes it."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def f32(number: float) -> str:
    """The f32 nearest to a number, as LLVM writes it."""
    return f64(struct.unpack("<f", struct.pack("<f", number))[0])


class Routine:
    """Writes one function `result @name(parameters)`; its arguments are `%a0`, `%a1` and so on."""

    def __init__(self, name: str, result: str, parameters: Sequence[str]) -> None:
        self.name = name
        self.result = result
        self.parameters = tuple(parameters)
        self.lines: list[str] = []
        self.declared: dict[str, None] = {}
        self.variables: dict[str, str] = {}
        self.text = ""
        self.label = "entry"
        self._count = 0

    def fresh(self, hint: str = "t") -> str:
        """A fresh name, without its sigil."""
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        """Append an instruction that gives nothing."""
        self.lines.append(f"  {text}")

    def emit(self, text: str) -> str:
        """Append an instruction; the name of its value."""
        name = f"%{self.fresh()}"
        self.lines.append(f"  {name} = {text}")
        return name

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.label = label

    def call(self, result: str, function: str, *arguments: tuple[str, str]) -> str:
        """Call an intrinsic, declaring it."""
        self.declared[f"declare {result} @{function}({', '.join(kind for kind, _ in arguments)})"] = None
        return self.emit(f"call {result} @{function}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def constant(self, name: str, kind: str, values: Sequence[int]) -> str:
        """A table of the module, in constant memory; its name."""
        items = ", ".join(f"{kind} {value}" for value in values)
        self.variables[name] = f"@{name} = internal addrspace(4) constant [{len(values)} x {kind}] [{items}]"
        return f"@{name}"

    def done(self, value: str, inline: bool = True) -> Routine:
        """End with the result. With `inline` LLVM puts it where it is called if it sees fit; long ones that are slow
        anyway are better called, or a tensor with many elements in each thread takes long to compile."""
        self.line(f"ret {self.result} {value}")
        given = ", ".join(f"{kind} %a{index}" for index, kind in enumerate(self.parameters))
        head = f"define internal {self.result} @{self.name}({given}) nounwind {'' if inline else 'noinline '}{{"
        self.text = "\n".join([head, "entry:", *self.lines, "}"])
        return self


class Real(Routine):
    """A routine over floats of one kind, "float" or "double": numbers may be given as Python's."""

    def __init__(self, name: str, kind: str, parameters: int = 1) -> None:
        super().__init__(name, kind, [kind] * parameters)
        self.kind = kind
        self.suffix = "f32" if kind == "float" else "f64"
        self.bits_kind = "i32" if kind == "float" else "i64"

    def number(self, value: str | float) -> str:
        """A value as it is, or a number as a constant."""
        return value if isinstance(value, str) else f32(value) if self.kind == "float" else f64(value)

    def _binary(self, name: str, a: str | float, b: str | float) -> str:
        return self.emit(f"{name} {self.kind} {self.number(a)}, {self.number(b)}")

    def add(self, a: str | float, b: str | float) -> str:
        """a + b."""
        return self._binary("fadd", a, b)

    def sub(self, a: str | float, b: str | float) -> str:
        """a - b."""
        return self._binary("fsub", a, b)

    def mul(self, a: str | float, b: str | float) -> str:
        """a · b."""
        return self._binary("fmul", a, b)

    def div(self, a: str | float, b: str | float) -> str:
        """a / b, as IEEE 754 has it."""
        return self._binary("fdiv", a, b)

    def fma(self, a: str | float, b: str | float, c: str | float) -> str:
        """a · b + c, rounded once."""
        given = [(self.kind, self.number(value)) for value in (a, b, c)]
        return self.call(self.kind, f"llvm.fma.{self.suffix}", *given)

    def poly(self, x: str, coefficients: Sequence[float]) -> str:
        """The polynomial with these coefficients, from the lowest, by Horner's rule."""
        result: str | float = coefficients[-1]
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, coefficient)
        return self.number(result)

    def magnitude(self, x: str) -> str:
        """|x|."""
        return self.call(self.kind, f"llvm.fabs.{self.suffix}", (self.kind, x))

    def negative(self, x: str) -> str:
        """-x."""
        return self.emit(f"fneg {self.kind} {x}")

    def signed_as(self, x: str, sign: str) -> str:
        """x with the sign of another number."""
        return self.call(self.kind, f"llvm.copysign.{self.suffix}", (self.kind, x), (self.kind, sign))

    def compare(self, predicate: str, a: str, b: str | float) -> str:
        """A comparison of floats."""
        return self.emit(f"fcmp {predicate} {self.kind} {a}, {self.number(b)}")

    def select(self, condition: str, a: str | float, b: str | float, kind: str | None = None) -> str:
        """a where the condition holds, else b."""
        kind = kind or self.kind
        first, second = (self.number(x) if kind == self.kind else str(x) for x in (a, b))
        return self.emit(f"select i1 {condition}, {kind} {first}, {kind} {second}")

    def clamp(self, x: str, low: float, high: float) -> str:
        """x brought between the bounds; NaN stays."""
        x = self.select(self.compare("olt", x, low), low, x)
        return self.select(self.compare("ogt", x, high), high, x)

    def to_bits(self, x: str) -> str:
        """The bits of a float."""
        return self.emit(f"bitcast {self.kind} {x} to {self.bits_kind}")

    def from_bits(self, bits: str) -> str:
        """The float with these bits."""
        return self.emit(f"bitcast {self.bits_kind} {bits} to {self.kind}")

    def nearest(self, x: str, factor: float = 1.0) -> tuple[str, str]:
        """The whole number nearest to factor · x, as a float and as an integer, if it is less than 2^22 or 2^31.

        Adding a large number lets the sum be rounded there; so NaN stays NaN, and no conversion can be undefined.
        """
        anchor = 1.5 * 2.0 ** (23 if self.kind == "float" else 52)
        shifted = self.fma(x, factor, anchor)
        base = struct.unpack("<I", struct.pack("<f", anchor))[0]
        if self.kind == "double":
            base = struct.unpack("<Q", struct.pack("<d", anchor))[0]
        integer = self.emit(f"sub {self.bits_kind} {self.to_bits(shifted)}, {base}")
        return self.sub(shifted, anchor), integer

    def power_of_two(self, exponent: str) -> str:
        """2**exponent, for an integer exponent of a normal number."""
        digits, bias = (23, 127) if self.kind == "float" else (52, 1023)
        field = self.emit(f"add {self.bits_kind} {exponent}, {bias}")
        return self.from_bits(self.emit(f"shl {self.bits_kind} {field}, {digits}"))

    def scaled(self, x: str, exponent: str) -> str:
        """x · 2**exponent, also where that is subnormal: in two steps, of which only the second can round."""
        half = self.emit(f"ashr {self.bits_kind} {exponent}, 1")
        rest = self.emit(f"sub {self.bits_kind} {exponent}, {half}")
        return self.mul(self.mul(x, self.power_of_two(half)), self.power_of_two(rest))

    def branch(self, condition: str, then: Callable[[], str], otherwise: Callable[[], str]) -> str:
        """One of two values, of which only the wanted one is computed."""
        labels = [self.fresh("block") for _ in range(3)]
        self.line(f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}")
        pairs: list[str] = []
        for label, make in zip(labels, (then, otherwise), strict=False):
            self.start(label)
            value = make()
            pairs.append(f"[ {value}, %{self.label} ]")
            self.line(f"br label %{labels[2]}")
        self.start(labels[2])
        return self.emit(f"phi {self.kind} {', '.join(pairs)}")


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
