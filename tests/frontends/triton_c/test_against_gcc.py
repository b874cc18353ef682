"""Generated programs of integers: what gcc compiles them to, and what the interpreter computes.

All types have 32 bits or more: C and Triton-C promote these alike.
"""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ziggurat as zg

TYPES = ("int", "unsigned", "long", "unsigned long")
PARAMETERS = "int a, unsigned b, long c, unsigned long d"
INPUTS = ((5, 7, -9, 11), (-3, 4_000_000_000, 2**40 + 3, 2**63 + 5), (2**31 - 1, 2**32 - 1, -(2**62), 2**64 - 1))


class Program:
    """A random program. Names of variables come with whether the program may assign to them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        body = self.block({name: True for name in "abcd"}, 3, False)
        results = " ".join(f"*(o + {place}) += {name};" for place, name in enumerate("abcd"))
        for place in range(4, 32):
            results += f" *(o + {place}) = {self.expression(dict.fromkeys('abcd', True), 2)};"
        self.body = f"{{ {{ {body} {results} }} }}"

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def expression(self, names: dict[str, bool], depth: int) -> str:
        choose = self.random.choice
        if depth <= 0:
            return choose([*names])

        def part() -> str:
            return self.expression(names, depth - 1)

        literal = choose(("1", "2", "3", "7", "31", "100"))
        return choose(
            (
                f"({part()} {choose('+-*&|^')} {choose((part(), literal))})",
                f"({part()} {choose('+-*')} {part()})",
                f"({part()} {choose('/%')} {choose((literal, f'(({part()} & 7) + 1)'))})",
                f"({part()} {choose(('<<', '>>'))} ({part()} & 15))",
                f"({part()} {choose(('<', '>', '<=', '>=', '==', '!='))} {part()})",
                f"({part()} {choose(('&&', '||'))} {part()})",
                f"({part()} ? {part()} : {part()})",
                f"({choose('-!')}{part()})",
                f"(({choose(TYPES)}){part()})",
                choose([*names]),
            )
        )

    def block(self, names: dict[str, bool], depth: int, in_loop: bool) -> str:
        """Statements. A declaration may hide a variable of a block around."""
        names, own, lines = dict(names), set[str](), list[str]()
        for _ in range(self.random.randint(2, 4)):
            kind = self.random.choice(
                ("declare", "assign", "assign", "branch", "loop", "leave" if in_loop else "store")
            )
            if depth == 0 and kind in ("branch", "loop"):
                kind = "assign"
            lines.append(getattr(self, kind)(names, depth, in_loop, own))
        return " ".join(lines)

    def declare(self, names: dict[str, bool], depth: int, in_loop: bool, own: set[str]) -> str:
        hidden = [name for name, assignable in names.items() if assignable and name not in own]
        name = self.random.choice((self.fresh(), *hidden[:1]))
        value = self.expression({other: True for other in names if other != name}, 2)
        second = self.fresh()
        names |= {name: True, second: True}
        own |= {name, second}
        return f"{self.random.choice(TYPES)} {name} = {value}, {second} = {name} + 3;"

    def assign(self, names: dict[str, bool], depth: int, in_loop: bool, own: set[str]) -> str:
        name = self.random.choice([name for name, assignable in names.items() if assignable])
        sign = self.random.choice(("", "+", "-", "*", "&", "|", "^", "<<", ">>", "/", "++"))
        value = self.expression(names, 2)
        if sign == "++":
            return f"{name}++; --{name}; ++{name};"
        value = f"({value} & 15)" if sign in ("<<", ">>") else f"(({value} & 7) + 1)" if sign == "/" else value
        return f"{name} {sign}= {value};"

    def store(self, names: dict[str, bool], depth: int, in_loop: bool, own: set[str]) -> str:
        leaves = f"if ({self.expression(names, 2)} == 3) {{ *o = 1; return; }}"
        return self.random.choice((f"*(o + {self.random.randint(0, 3)}) ^= {self.expression(names, 2)};", leaves))

    def leave(self, names: dict[str, bool], depth: int, in_loop: bool, own: set[str]) -> str:
        return f"if ({self.expression(names, 2)}) {self.random.choice(('break', 'continue'))};"

    def branch(self, names: dict[str, bool], depth: int, in_loop: bool, own: set[str]) -> str:
        then, other = (self.block(names, depth - 1, in_loop) for _ in range(2))
        return f"if ({self.expression(names, 2)}) {{ {then} }}" + self.random.choice(("", f" else {{ {other} }}"))

    def loop(self, names: dict[str, bool], depth: int, in_loop: bool, own: set[str]) -> str:
        k, type_ = self.fresh(), self.random.choice(("int", "unsigned", "long"))
        inside = self.block({**names, k: False}, depth - 1, True)
        limit = f"({self.expression(names, 1)} & 7)"
        return self.random.choice(
            (
                f"for ({type_} {k} = 0; {k} < {limit}; {k}++) {{ {inside} }}",
                f"for (int {k} = 9; {k} >= 2; {k} -= 2) {{ {inside} }}",
                f"for ({type_} {k} = {limit}; {k} <= 9; {k} += 3) {{ {inside} }}",
                f"{{ int {k} = {limit}; while ({k}-- > 0) {{ {inside} }} }}",
                f"{{ int {k} = 0; do {{ {k}++; {inside} }} while ({k} < {limit}); }}",
                f"{{ int {k} = 0; while (1) {{ if ({k}++ >= {limit}) break; {inside} }} }}",
            )
        )


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_programs_compute_what_gcc_makes_of_them(tmp_path: Path):
    bodies = [Program(seed).body for seed in range(5)]
    functions = [f"void f{number}(long *o, {PARAMETERS}) {body}" for number, body in enumerate(bodies)]
    (tmp_path / "programs.c").write_text("\n".join(functions))
    library = tmp_path / "programs.so"
    command = ["gcc", "-O0", "-w", "-fwrapv", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "programs.c")]
    subprocess.run(command, check=True)
    compiled = ctypes.CDLL(str(library))
    for number, body in enumerate(bodies):
        kernel = zg.triton_c(f"__global__ void f(long *o, {PARAMETERS}) {body}")
        function = getattr(compiled, f"f{number}")
        function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_long, ctypes.c_ulong]
        for arguments in INPUTS:
            expected, actual = np.zeros((2, 32), np.int64)
            function(expected.ctypes.data, *arguments)
            with np.errstate(over="ignore"):
                kernel[1](actual, *arguments)
            assert np.array_equal(actual, expected), body
