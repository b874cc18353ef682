from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ziggurat as zg
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.execute import execute
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import i32, pyobject
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.simplify.inline import inline, inline_call


def test_what_stays_a_call() -> None:
    model = parse(
        """
        module ()void -> {
            tt.func @"kept" @noinline=true (%0 : i32)i32 -> { tt.return %0; };
            tt.func @"itself" (%0 : i32)i32 -> { %1 : i32 = tt.call %0 @"itself"; tt.return %1; };
            tt.func @"early" (%0 : i32, %c : i1)i32 -> {
                scf.if %c
                    ()void -> { tt.return %0; }
                    ()void -> { scf.yield; };
                tt.return %0;
            };
            tt.func @"kernel" (%0 : i32, %c : i1)void -> {
                %1 : i32 = tt.call %0 @"kept";
                %2 : i32 = tt.call %0 @"itself";
                %3 : i32 = tt.call %0 %c @"early";
                tt.return;
            };
            unreachable;
        };"""
    )
    assert inline(model) is model


def test_places_tell_the_calls_that_led_there() -> None:
    model = parse(
        """
        module ()void -> {
            tt.func @"inner" (%0 : i32)i32 -> {
                %1 : i32 = arith.addi %0 %0 @loc="2:0:2:5:k.py";
                tt.return %1;
            };
            tt.func @"outer" (%0 : i32)i32 -> { %1 : i32 = tt.call %0 @loc="5:0:5:5:k.py" @"inner"; tt.return %1; };
            tt.func @"kernel" (%0 : i32)void -> {
                %1 : i32 = tt.call %0 @loc="9:0:9:5:k.py" @"outer";
                tt.print %1 @"";
                tt.return;
            };
            unreachable;
        };"""
    )
    result = inline(model)
    assert isinstance(result, core.Module)
    place = result.functions()["kernel"].bodies[0].entry.ops[0].location
    lines: list[int] = []
    while place is not None:
        lines.append(place.line)
        place = place.caller
    assert lines == [2, 5, 9]


def test_inline_call_is_for_builders_too() -> None:
    function = parse('tt.func @"twice" (%0 : i32)i32 -> { %1 : i32 = arith.addi %0 %0; tt.return %1; };')
    builder = Builder.root([i32], i32)
    once = inline_call(builder, function, builder.parameters)
    assert once is not None
    twice = inline_call(builder, function, [once])
    assert twice is not None
    builder.add(tt.Return([twice]))
    result = tt.Func("four", body=builder.finish())
    expected = """
        tt.func @"four" (%0 : i32)i32 -> {
            %1 : i32 = arith.addi %0 %0;
            %2 : i32 = arith.addi %1 %1;
            tt.return %2;
        };"""
    assert zg.same_model(result, parse(expected))


OTHER = 'tt.func @"other" (%0 : ptr<i32>, %1 : i32)void -> { tt.call %0 %1 @"write"; tt.return; };'


@pytest.mark.parametrize(("other", "rest"), [("", ["kernel"]), (OTHER, ["write", "other", "kernel"])])
def test_inline_call_leaves_a_model_that_runs(other: str, rest: list[str]) -> None:
    model = parse(f"""
        module ()void -> {{
            tt.func @"write" (%0 : ptr<i32>, %1 : i32)void -> {{ tt.store %0 %1; tt.return; }};
            tt.func @"twice" (%0 : i32)i32 -> {{ %1 : i32 = arith.addi %0 %0; tt.return %1; }};
            {other}
            tt.func @"kernel" (%0 : ptr<i32>, %1 : i32)void -> {{
                %2 : i32 = tt.call %1 @"twice";
                tt.call %0 %2 @"write";
                tt.return;
            }};
            unreachable;
        }};""")
    assert isinstance(model, core.Module)
    functions = model.functions()

    def transformer(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, tt.Call) or op.parent_op is not functions["kernel"]:
            return None
        return inline_call(builder, functions[op.callee], operands) or DROP

    result = transform(model, transformer)
    verify(result)
    assert isinstance(result, core.Module) and list(result.functions()) == rest
    if not other:
        out = np.zeros(1, np.int32)
        zg.run(result, 1, out, 4)
        assert out[0] == 8


def test_inline_call_wants_fitting_arguments() -> None:
    function = parse('tt.func @"f" (%0 : i32)i32 -> { tt.return %0; };')
    with pytest.raises(BuildError, match=r"must be of types \(i32\); got \(\)"):
        inline_call(Builder.root(), function, [])


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_random_programs_do_the_same(seed: int, preserves: Any) -> None:
    preserves(inline, seed)


def test_inline_call_of_a_function_of_python_with_several_blocks() -> None:
    function = parse(
        'func @"next" (%0 : object)object -> { branch ^on(%0);\n      ^on(%1 : object):\n        return %1; };'
    )
    builder = Builder.root([pyobject], pyobject)
    result = inline_call(builder, function, builder.parameters)
    assert result is not None
    builder.add(core.Return([result]))
    whole = core.Func("f", body=builder.finish())
    verify(whole)
    assert execute(whole, [3]) == 3
