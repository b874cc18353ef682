"""LLVM text of a function without loops and memory, run on terms of z3.

execution = Execution()
execution.run(["%v1 = udiv i32 %x, %y"], values := {"%x": symbol("x", "i32"), "%y": symbol("y", "i32")})
values["%v1"].term, execution.undefined
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import z3
from llvm_numbers import (
    FALSE,
    INTRINSICS,
    NEAREST,
    OPERATIONS,
    TRUE,
    WRAPS,
    Scalar,
    Value,
    bit,
    bits_of,
    cast,
    cast_bits,
    chosen,
    fresh,
    frozen,
    is_float,
    lanes_of,
    negated,
    of_bits,
    saturated,
    select,
    sort_of,
    test,
)  # fmt: skip

_TYPE, _OPERAND = r"(<\d+ x \w+>|\w+)", r"(splat \([^)]*\)|<[^>]*>|[^\s,()]+)"
_FLAGS = r"((?:(?:nsw|nuw|exact|disjoint|nneg) )*)"
_FORMS = {
    name: re.compile(pattern)
    for name, pattern in {
        "two": rf"{_FLAGS}{_TYPE} {_OPERAND}, {_OPERAND}",
        "test": rf"(\w+) {_TYPE} {_OPERAND}, {_OPERAND}",
        "select": rf"{_TYPE} {_OPERAND}, {_TYPE} {_OPERAND}, {_TYPE} {_OPERAND}",
        "cast": rf"{_FLAGS}{_TYPE} {_OPERAND} to {_TYPE}",
        "one": rf"{_TYPE} {_OPERAND}",
        "call": rf'{_TYPE} @"?([^\s("]+)"?\((.*)\).*',
        "asm": r'(\S+|\{.*?\}) asm (?:sideeffect )?"([^"]*)", "[^"]*"\((.*)\).*',
        "insertelement": rf"{_TYPE} {_OPERAND}, {_TYPE} {_OPERAND}, i\d+ (\d+)",
        "extractelement": rf"{_TYPE} {_OPERAND}, i\d+ (\d+)",
        "shufflevector": rf"{_TYPE} {_OPERAND}, {_TYPE} {_OPERAND}, <(\d+) x i32> zeroinitializer",
        "extractvalue": r".* (%[\w.]+), (\d+)",
        "phi": rf"{_TYPE} (.*)",
    }.items()
}
_OF_GPUS = {"f2i": "fptosi", "f2ui": "fptoui"}  # Conversions, which saturate there.
_TRUTHS = {"true": 1, "false": 0}
_ARGUMENT = re.compile(rf"{_TYPE} {_OPERAND}")


class Execution:
    """The values of LLVM text. `undefined` has the conditions under which its behaviour is.

    `functions` may have others for some instructions and intrinsics, by their names, and those of inline assembly, by
    its text. They take and give terms; assembly with several results gives a tuple.
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        frame: Callable[..., Any] | None = None,
    ) -> None:
        self.frame = frame or Frame
        self.definitions: Mapping[str, str] = {}  # Of routines, by symbol.
        self.replaced = functions or {}
        self.functions = {**OPERATIONS, **INTRINSICS, **self.replaced}
        self.undefined: list[Any] = []

    def run(self, lines: Sequence[str], values: dict[str, Value], reached: Any = TRUE) -> Value | None:
        """Run text, and add its values; the value that a function returns. It is reached under a condition."""
        frame = self.frame(self, values, reached)
        for line in lines:
            frame.line(re.sub(r", ![\w ]*![\w]+|#\d+$", "", line.strip()).strip())
        return frame.result

    def call(self, function: str, arguments: Sequence[Value], reached: Any) -> Value | None:
        """The result of a function of the text."""
        text = self.definitions[function]
        return self.run(text.split("\n"), {f"%a{at}": value for at, value in enumerate(arguments)}, reached)


class Frame:
    """A function while it runs. Blocks come after those that branch to them."""

    def __init__(self, execution: Execution, values: dict[str, Value], reached: Any) -> None:
        self.execution = execution
        self.values = values
        self.reached = reached  # The condition under which control comes to the present block.
        self.label = "entry"
        self.edges: dict[str, dict[str, Any]] = {}  # By target and source.
        self.result: Value | None = None

    def line(self, line: str) -> None:
        match re.match(r"(%[\w.]+) = (\w+) (.*)|(\w+)(.*)", line), line:
            case _, "" | "}":
                pass
            case _, text if text.endswith(":"):
                self._begin(text[:-1])
            case match, _ if match is not None and match[1]:
                self.values[match[1]] = self._value(match[2], match[3])
            case match, _ if match is not None and match[4] == "ret":
                self._return(match[5].strip())
            case match, _ if match is not None and match[4] == "br":
                self._branch(match[5].strip())
            case match, _ if match is not None and match[4] in ("define", "call", "unreachable"):
                pass  # Calls without a result report errors.
            case _:
                raise NotImplementedError(line)

    # Control.

    def _begin(self, label: str) -> None:
        sources = self.edges.get(label)
        if sources is not None:
            self.reached = z3.Or(*sources.values())
        self.label = label

    def _branch(self, text: str) -> None:
        labels = re.findall(r"label %([\w.]+)", text)
        conditions = [self.reached]
        if len(labels) == 2:
            condition = self.scalar("i1", text.split(" ")[1].rstrip(","))
            self._forbid(condition.poison)
            holds = condition.term == 1
            conditions = [z3.And(self.reached, holds), z3.And(self.reached, z3.Not(holds))]
        for label, condition in zip(labels, conditions, strict=True):
            self.edges.setdefault(label, {})[self.label] = condition
        self.reached = FALSE

    def _return(self, text: str) -> None:
        if text != "void":
            match = _FORMS["one"].fullmatch(text)
            assert match is not None, text
            value = self.value(*match.groups())
            self.result = value if self.result is None else chosen(self.reached, value, self.result)
        self.reached = FALSE

    def _forbid(self, condition: Any) -> None:
        self.execution.undefined.append(z3.And(self.reached, condition))

    # Values.

    def value(self, type_: str, text: str) -> Value:
        """An operand of a type."""
        if text in self.values:
            return self.values[text]
        vector = re.fullmatch(r"<(\d+) x (\w+)>", type_)
        if vector is None:
            return self.scalar(type_, text)
        count, kind = int(vector[1]), vector[2]
        if (splat := re.fullmatch(r"splat \(\w+ (\S+)\)", text)) is not None:
            return (self.scalar(kind, splat[1]),) * count
        if text[0] == "<":
            return tuple(self.scalar(kind, item.split(" ")[1]) for item in text[1:-1].split(", "))
        return (self.scalar(kind, {"zeroinitializer": "0"}.get(text, text)),) * count

    def scalar(self, kind: str, text: str) -> Scalar:
        """A number of a type, by its name or as a constant."""
        if text[0] == "%":
            value = self.values[text]
            assert isinstance(value, Scalar)
            return value
        if text == "poison":
            return Scalar(kind, z3.Const(f"poison!{next(fresh)}", sort_of(kind)), TRUE)
        if not is_float(kind):
            number = _TRUTHS[text] if text in _TRUTHS else int(text)
            return Scalar(kind, z3.BitVecVal(number, bits_of(kind)))
        if kind in ("half", "bfloat"):
            return of_bits(kind, z3.BitVecVal(int(text[3:], 16), 16))
        double = z3.fpBVToFP(z3.BitVecVal(int(text[2:], 16), 64), sort_of("double"))
        if kind == "double":
            return Scalar(kind, z3.simplify(double))
        return Scalar(kind, z3.simplify(z3.fpFPToFP(NEAREST, double, sort_of(kind))))

    def _value(self, opcode: str, rest: str) -> Value:
        if opcode == "call":
            return self._call(rest)
        if opcode in ("insertelement", "extractelement", "shufflevector", "phi", "extractvalue"):
            return getattr(self, f"_{opcode}")(*self._parsed(opcode, rest))
        if opcode in OPERATIONS:
            flags, type_, *names = self._parsed("two", rest)
            return self._lanes(lambda a, b: self._two(opcode, flags.split(), a, b), [type_] * 2, names)
        if opcode in ("icmp", "fcmp"):
            predicate, type_, *names = self._parsed("test", rest)
            return self._lanes(lambda a, b: test(opcode, predicate, a, b), [type_] * 2, names)
        if opcode == "select":
            pairs = self._parsed("select", rest)
            return self._lanes(select, pairs[::2], pairs[1::2])
        if opcode in ("fneg", "freeze"):
            type_, name = self._parsed("one", rest)
            return self._lanes(negated if opcode == "fneg" else frozen, [type_], [name])
        flags, type_, name, target = self._parsed("cast", rest)
        if opcode == "bitcast":
            return cast_bits(self.value(type_, name), target)
        kind, other = target.strip("<>").split(" ")[-1], self.execution.replaced.get(opcode)
        if other is not None:
            return self._lanes(lambda a: Scalar(kind, other(a.term), a.poison), [type_], [name])
        return self._lanes(lambda a: cast(opcode, flags.split(), a, kind), [type_], [name])

    def _parsed(self, form: str, text: str) -> list[str]:
        match = _FORMS[form].fullmatch(text)
        if match is None:
            raise NotImplementedError(text)
        return list(match.groups())

    def _lanes(self, make: Callable[..., Scalar], types: Sequence[str], names: Sequence[str]) -> Value:
        """A function of numbers applied to each lane. A number among vectors, a condition, is that of all lanes."""
        operands = [self.value(type_, name) for type_, name in zip(types, names, strict=True)]
        count = max(len(value) if isinstance(value, tuple) else 0 for value in operands)
        if not count:
            return make(*operands)
        columns = [value if isinstance(value, tuple) else (value,) * count for value in operands]
        return tuple(make(*row) for row in zip(*columns, strict=True))

    def _two(self, opcode: str, flags: Sequence[str], a: Scalar, b: Scalar) -> Scalar:
        x, y = a.term, b.term
        poison = [a.poison, b.poison, *(z3.Not(WRAPS[opcode, flag](x, y)) for flag in flags)]
        if opcode in ("shl", "lshr", "ashr"):
            poison.append(z3.UGE(y, x.size()) if x.size() > 1 else y == 1)
        if opcode in ("udiv", "urem", "sdiv", "srem"):
            self._forbid(z3.Or(b.poison, y == 0))
            if opcode[0] == "s":
                self._forbid(z3.And(y == -1, z3.Or(a.poison, x == 1 << x.size() - 1)))
        return Scalar(a.kind, self.execution.functions[opcode](x, y), z3.Or(*poison))

    def _insertelement(self, type_: str, vector: str, _: str, item: str, at: str) -> Value:
        lanes = list(lanes_of(self.value(type_, vector)))
        lanes[int(at)] = self.scalar(lanes[0].kind, item)
        return tuple(lanes)

    def _extractelement(self, type_: str, vector: str, at: str) -> Value:
        return lanes_of(self.value(type_, vector))[int(at)]

    def _shufflevector(self, type_: str, vector: str, _type: str, _other: str, count: str) -> Value:
        return (lanes_of(self.value(type_, vector))[0],) * int(count)

    def _extractvalue(self, struct: str, at: str) -> Value:
        return lanes_of(self.values[struct])[int(at)]

    def _phi(self, type_: str, pairs: str) -> Value:
        result: Value | None = None
        for text, label in re.findall(r"\[ (.*?), %([\w.]+) \]", pairs):
            edge, value = self.edges[self.label][label], self.value(type_, text)
            result = value if result is None else chosen(edge, value, result)
        assert result is not None
        return result

    def _call(self, rest: str) -> Value:
        if (assembly := _FORMS["asm"].fullmatch(rest)) is not None:
            type_, text, arguments = assembly.groups()
            values = [lanes_of(self.value(*pair))[0] for pair in _ARGUMENT.findall(arguments)]
            return self.assembly(type_, text, values)
        type_, function, arguments = self._parsed("call", rest)
        pairs = _ARGUMENT.findall(arguments)
        if function in self.execution.definitions:
            result = self.execution.call(function, [self.value(*pair) for pair in pairs], self.reached)
            assert result is not None
            return result
        kind = type_.strip("<>").split(" ")[-1]
        if not pairs:
            return self._intrinsic(function, kind, ())
        types, names = zip(*pairs, strict=True)
        if function.startswith("llvm.vector.reduce.or"):
            lanes = lanes_of(self.value(types[0], names[0]))
            holds, poison = z3.Or(*(lane.term == 1 for lane in lanes)), z3.Or(*(lane.poison for lane in lanes))
            return Scalar("i1", bit(holds), poison)
        return self._lanes(lambda *values: self._intrinsic(function, kind, values), types, names)

    def assembly(self, type_: str, text: str, arguments: Sequence[Scalar]) -> Any:
        """The results of inline assembly."""
        results = self.execution.functions[text](*(value.term for value in arguments))
        poison = z3.Or(*(value.poison for value in arguments))
        if not isinstance(results, tuple):
            return Scalar(type_, results, poison)
        return tuple(Scalar(kind, x, poison) for kind, x in zip(type_.strip("{} ").split(", "), results, strict=True))

    def _intrinsic(self, function: str, kind: str, values: Sequence[Scalar]) -> Scalar:
        name, *suffixes = function.removeprefix("llvm.").split(".")
        name = _OF_GPUS.get(suffixes[0], suffixes[0]) if name == "nvvm" else name
        terms, poison = [value.term for value in values], z3.Or(*(value.poison for value in values))
        if name in ("fptosi", "fptoui"):  # With `sat`.
            return Scalar(kind, saturated(*terms, bits_of(kind), signed=name == "fptosi"), poison)
        return Scalar(kind, self.execution.functions[name](*terms), poison)
