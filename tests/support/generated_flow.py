"""Generated kernels of scalars with branches, loops of known lengths, and reads and writes that may be of one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import ziggurat as zg
from ziggurat.codemodel.op import Op

_BINARY = "addi subi muli andi ori xori maxsi minsi divsi remsi shli".split()
_CONSTANTS = (0, 1, 2, -1, 3, -7)
_PREDICATES = ("slt", "eq", "sge")
_KINDS = ("void", "i32", "Tuple<i32, i32>")
_RANGES = ((0, 0, 1), (0, 1, 1), (0, 2, 1), (0, 3, 1), (0, 3, 2), (2, 0, -1), (1, 3, -1))


class Flow:
    """The text of a function of an array of i32, %0, and two numbers, %1 and %2."""

    def __init__(self, random: Random, *, depth: int = 2, size: int = 4) -> None:
        self.random = random
        self.size = size
        self.count = 2
        self.lines: list[str] = []
        values = self.block(["%1", "%2"], depth)
        self.lines.append(f"tt.store {self.pointer(values)} {values[-1]};")

    def model(self) -> Op:
        body = "\n".join(self.lines)
        kernel = f'tt.func @"f" (%0 : ptr<i32>, %1 : i32, %2 : i32)void -> {{ {body} tt.return; }};'
        return zg.parse(f"module ()void -> {{ {kernel} unreachable; }};")

    def name(self) -> str:
        self.count += 1
        return f"%{self.count}"

    def value(self, type_: str, op: str) -> str:
        name = self.name()
        self.lines.append(f"{name} : {type_} = {op};")
        return name

    def number(self, *numbers: int) -> str:
        return self.value("i32", f"arith.constant @{self.random.choice(numbers)}")

    def operand(self, values: list[str], constants: tuple[int, ...] = _CONSTANTS) -> str:
        """A constant, one of the last values, or any: rules are for constants and for what was just computed."""
        chance = self.random.random()
        if chance < 0.35:
            return self.number(*constants)
        return self.random.choice(values[-3:] if chance < 0.7 else values)

    def pointer(self, values: list[str]) -> str:
        """The first place, or one at a distance that may be anything."""
        if self.random.random() < 0.5:
            return "%0"
        offset = self.number(0, 1, 2) if self.random.random() < 0.6 else self.random.choice(values)
        return self.value("ptr<i32>", f"tt.addptr %0 {offset}")

    def inside(self, values: list[str], depth: int, count: int) -> str:
        """The ops of a body, which yields so many values."""
        outside, self.lines = self.lines, []
        inner = self.block(values, depth)
        self.lines.append(f"scf.yield {' '.join(self.random.choice(inner[-3:]) for _ in range(count))};")
        body, self.lines = " ".join(self.lines), outside
        return body

    def results(self, values: list[str], kinds: str, op: str, count: int) -> None:
        """Append an op with so many results, and these to the values."""
        if not count:
            self.lines.append(f"{op};")
        elif count == 1:
            values.append(self.value(kinds, op))
        else:
            whole = self.value(kinds, op)
            values += [self.value("i32", f"tuple.load {whole} @{at}") for at in range(count)]

    def block(self, values: list[str], depth: int) -> list[str]:
        """Append some ops. The values that are then in scope."""
        values = list(values)
        for _ in range(self.random.randint(2, self.size)):
            chance = self.random.random()
            if chance < 0.45:
                op = self.random.choice(_BINARY)
                constants = _CONSTANTS[1:] if op in ("divsi", "remsi") else _CONSTANTS
                operands = f"{self.operand(values)} {self.operand(values, constants)}"
                values.append(self.value("i32", f"arith.{op} {operands}"))
            elif chance < 0.6:
                values.append(self.value("i32", f"tt.load {self.pointer(values)}"))
            elif chance < 0.75:
                self.lines.append(f"tt.store {self.pointer(values)} {self.random.choice(values)};")
            elif chance < 0.82 or not depth:
                self.pair(values)
            else:
                self.branch(values, depth - 1) if chance < 0.91 else self.loop(values, depth - 1)
        return values

    def pair(self, values: list[str]) -> None:
        """Two ops that look alike: a difference both ways, or reads of one place before and after a write."""
        if self.random.random() < 0.4:
            a, b = self.random.choice(values), self.random.choice(values)
            first, second = (self.value("i32", f"arith.subi {x} {y}") for x, y in ((a, b), (b, a)))
        else:
            place = self.pointer(values)
            first = self.value("i32", f"tt.load {place}")
            self.lines.append(f"tt.store {place} {self.random.choice(values)};")
            second = self.value("i32", f"tt.load {place}")
        values.append(self.value("i32", f"arith.muli {first} {second}"))

    def branch(self, values: list[str], depth: int) -> None:
        random = self.random
        condition = self.value(
            "i1", f"arith.cmpi {random.choice(values)} {self.operand(values)} @{random.choice(_PREDICATES)}"
        )
        if random.random() < 0.2:
            condition = self.value("i1", f"arith.constant @{random.choice(['true', 'false'])}")
        count = random.choice((0, 1, 2))
        bodies = [f"(){_KINDS[count]} -> {{ {self.inside(values, depth, count)} }}" for _ in range(2)]
        self.results(values, _KINDS[count], f"scf.if {condition} {' '.join(bodies)}", count)

    def loop(self, values: list[str], depth: int) -> None:
        count = self.random.choice((0, 1, 2))
        start, stop, step = map(self.number, self.random.choice(_RANGES))
        initial = [self.operand(values) for _ in range(count)]
        index, *parameters = (self.name() for _ in range(1 + count))
        body = self.inside([*values, index, *parameters], depth, count)
        types = ", ".join(f"{name} : i32" for name in (index, *parameters))
        op = " ".join(["scf.for", start, stop, step, *initial, f"({types}){_KINDS[count]} -> {{ {body} }}"])
        self.results(values, _KINDS[count], op, count)


# Early exits, in kernels of Python. A statement is text, or a tuple: ("if", condition, then, otherwise), ("for", the
# index, the number of iterations, the body), ("return",), ("break",) or ("continue",).

Statement = Any
Lines = list[str]
Next = Callable[[], Lines]
_HEADER = "@zg.kernel\ndef kernel(p, n):\n"


class Exits:
    """A kernel with returns in branches, and breaks and continues in loops: the language has no return there."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.loops = 0
        self.statements = ["x = zg.load(p)", *self.block(2, None), "zg.store(p, x)"]

    def block(self, depth: int, index: str | None) -> list[Statement]:
        """Some statements, in a loop with an index or in none."""
        return [self.statement(depth, index) for _ in range(self.random.randint(1, 3))]

    def statement(self, depth: int, index: str | None) -> Statement:
        random, chance = self.random, self.random.random()
        number = random.choice([str(random.randint(1, 5)), "n", index or "n"])
        if depth and chance < 0.4:
            condition = f"x {random.choice(['>', '<', '=='])} {number}"
            leaves: list[Statement] = [("return",)] if index is None else [("break",), ("continue",)]
            ends = [[random.choice(leaves)] if random.random() < 0.6 else [] for _ in range(2)]
            then, otherwise = (self.block(depth - 1, index) + end for end in ends)
            return "if", condition, then, otherwise if random.random() < 0.5 else []
        if depth and chance < 0.65 and index is None:
            self.loops += 1
            name = f"i{self.loops}"
            return "for", name, random.randint(1, 3), self.block(depth - 1 or 1, name)
        if chance < 0.8:
            return f"zg.store(p + {random.randint(1, 3)}, x)"
        return f"x = x {random.choice('+-')} {number}"

    def source(self) -> str:
        """The kernel."""
        return _HEADER + "\n".join(_indented(_plain(self.statements)))

    def repeated(self) -> str:
        """The kernel without loops and exits: each path has all that comes after."""
        return _HEADER + "\n".join(_indented(_paths(self.statements, {}, lambda: ["pass"], {})))


def _indented(lines: Lines) -> Lines:
    return [f"    {line}" for line in lines or ["pass"]]


def _plain(statements: Sequence[Statement]) -> Lines:
    lines: Lines = []
    for statement in statements:
        match statement:
            case str():
                lines.append(statement)
            case ("if", condition, then, otherwise):
                lines += [f"if {condition}:", *_indented(_plain(then))]
                if otherwise:
                    lines += ["else:", *_indented(_plain(otherwise))]
            case ("for", name, count, body):
                lines += [f"for {name} in range(0, {count}):", *_indented(_plain(body))]
            case (word,):
                lines.append(word)
            case _:
                raise AssertionError(statement)
    return lines


def _paths(statements: Sequence[Statement], indices: dict[str, int], after: Next, exits: dict[str, Next]) -> Lines:
    """The lines of statements and of what comes after them. `exits` has what comes after a break or a continue."""
    if not statements:
        return after()

    def numbered(text: str) -> str:
        for name, number in indices.items():
            text = text.replace(name, str(number))
        return text

    first, *rest = statements

    def then_rest() -> Lines:
        return _paths(rest, indices, after, exits)

    match first:
        case str():
            return [numbered(first), *then_rest()]
        case ("if", condition, then, otherwise):
            branches = [_indented(_paths(branch, indices, then_rest, exits)) for branch in (then, otherwise)]
            return [f"if {numbered(condition)}:", *branches[0], "else:", *branches[1]]
        case ("for", name, count, body):

            def iteration(number: int) -> Lines:
                if number == count:
                    return then_rest()

                def following() -> Lines:
                    return iteration(number + 1)

                return _paths(body, {**indices, name: number}, following, {"break": then_rest, "continue": following})

            return iteration(0)
        case ("return",):
            return ["pass"]
        case (word,):
            return exits[word]()
        case _:
            raise AssertionError(first)
