"""The rules of LLVM text that all machines share: each elementwise op has one, or emitters of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ziggurat.backend.cpu.compile
import ziggurat.backend.ptx.assemble  # noqa: F401 (Both fill the tables of emitters.)
from ziggurat.backend.cpu import emitter as cpu
from ziggurat.backend.llvm.elementwise import INSTRUCTIONS, RULES
from ziggurat.backend.llvm.routines import Number, Routine
from ziggurat.backend.ptx import emitter as ptx
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import arith, math, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.types import i32

SHARED = (arith.Elementwise, arith.CmpI, arith.CmpF, arith.Select, arith.Cast)


@pytest.mark.parametrize("emitters", [ptx.EMITTERS, cpu.EMITTERS], ids=["ptx", "cpu"])
def test_every_elementwise_op_has_a_rule_or_an_emitter(emitters: OpTable[Callable[..., Any]]) -> None:
    by_rule = emitters.get(arith.Elementwise)
    lacking = [
        cls.NAME
        for cls in OPS.values()
        if issubclass(cls, SHARED) and emitters.get(cls) is by_rule and cls not in RULES
    ]
    assert lacking == []
    assert emitters.get(math.CtPop) is by_rule


@pytest.mark.parametrize("lanes", [0, 4])
def test_an_instruction_has_the_type_of_its_operands(lanes: int) -> None:
    r = Routine("r", "i32", ["i32", "i32"], lanes)
    a, b = r.argument(0), r.argument(1)
    for cls, text in ((arith.SubI, "sub {t} %a0, %a1"), (arith.MaxSI, "call {t} @llvm.smax.{s}({t} %a0, {t} %a1)")):
        assert cls in INSTRUCTIONS
        value = tt.Poison(i32).result
        op = cls(value, value)
        compiled = RULES[op](op, a, b)
        kind, suffix = ("<4 x i32>", "v4i32") if lanes else ("i32", "i32")
        assert isinstance(compiled, Number) and compiled.type == kind
        assert r.lines[-1].endswith("= " + text.format(t=kind, s=suffix))
