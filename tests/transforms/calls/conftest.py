"""Ops of calls, appended to a function of given parameters outside of any kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

import ziggurat as zg
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.types import Type
from ziggurat.transforms.calls import RULES
from ziggurat.transforms.calls.emit import Emitter, packed_type


@attrs.frozen
class Built:
    """The result of `build`, and the function that it built into."""

    result: Any
    func: tt.Func

    @property
    def names(self) -> list[str]:
        """The names of the ops, without the return."""
        return [op.NAME for op in self.func.bodies[0].entry.ops[:-1]]


class Functions:
    """The functions that reductions call: noted, and given the combining function that a test chose."""

    def __init__(self) -> None:
        self.combining: Any = None
        self.helpers: dict[str, tt.Func] = {}
        self.module = self

    def callee(self) -> Any:
        return self.combining

    def helper(self, symbol: str, source: str, types: Sequence[Type], result: Type, build: Any) -> str:
        builder = Builder.root(types, packed_type(result))
        builder.add(tt.Return(build(builder, builder.parameters)))
        self.helpers[symbol] = tt.Func(symbol, builder.finish())
        return symbol


class Ops:
    """The building halves of the rules as methods: `ops.add(result, a, b)`."""

    def __init__(self, emit: Emitter) -> None:
        self.emit = emit

    def __getattr__(self, name: str) -> Callable[..., Any]:
        build = RULES[name].build
        assert build is not None
        return lambda *arguments, **keywords: build(self.emit, *arguments, **keywords)


@pytest.fixture
def functions() -> Functions:
    return Functions()


@pytest.fixture
def emit_ops(functions: Functions) -> Callable[..., Built]:
    """`emit_ops(types, build)` runs `build(emit, *values)` in a function with parameters of these types."""

    def run(types: Sequence[Type], build: Callable[..., Any]) -> Built:
        builder = Builder.root(types)
        result = build(Emitter(builder, functions), *builder.parameters)
        builder.add(tt.Return([]))
        func = tt.Func("f", builder.finish())
        zg.verify(func)
        return Built(result, func)

    return run


@pytest.fixture
def calls() -> Callable[[Emitter], Ops]:
    """The building halves of all rules, over an emitter."""
    return Ops
