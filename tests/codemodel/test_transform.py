"""Tests of codemodel/transform.py: ops are copied unless a transformer gives something else."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, py, scf, tt
from ziggurat.codemodel.errors import BuildError, KernelTypeError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op, OpResult, Successor, Value, same_model
from ziggurat.codemodel.passes import compose
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.text.writer import to_text
from ziggurat.codemodel.transform import DROP, Rewriter, rebuilt, transform, with_attributes
from ziggurat.codemodel.types import PtrType, TensorType, TupleType, bf16, f32, f64, i1, i32, i64, pyobject, u32
from ziggurat.codemodel.verify import verify

NESTED = """
module ()void -> {
    func @"f" (%0 : i32, %1 : i1)i32 -> {
        %2 : i32 = arith.constant @2;
        %3 : i32 = scf.for %2 %0 %2 %0 (%4 : i32, %5 : i32)i32 -> {
            %6 : i32 = arith.addi %4 %5;
            %7 : i32 = scf.if %1
                ()i32 -> {
                    %8 : i32 = arith.muli %6 %2;
                    scf.yield %8;
                }
                ()i32 -> {
                    scf.yield %2;
                };
            scf.yield %7;
        };
        cbranch %1 ^a ^b(%3);
      ^a:
        %9 : i32 = arith.addi %3 %2;
        branch ^b(%9);
      ^b(%10 : i32):
        return %10;
    };
    unreachable;
};
"""


def refused(message: str) -> AbstractContextManager[object]:
    return pytest.raises(BuildError, match=re.escape(message))


def add_to_sub(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
    return builder.add(arith.SubI(*operands)) if isinstance(op, arith.AddI) else None


def body_of(text: str, parameters: str = "%0 : i32", result: str = "i32") -> Op:
    return parse(f'func @"f" ({parameters}){result} -> {{ {text} }};')


# Copying.


def parts(model: Op) -> set[int]:
    results = {id(op) for op in model.walk()} | {id(op.result) for op in model.walk()}
    for op in model.walk():
        for body in op.bodies:
            results.add(id(body))
            results |= {id(block) for block in body.blocks} | {id(p) for block in body.blocks for p in block.parameters}
    return results


def test_a_copy_is_equal_and_shares_no_part():
    model = parse(NESTED)
    text = str(model)
    copy = transform(model)
    assert same_model(copy, model) and copy != model and str(copy) == text
    assert not parts(copy) & parts(model)
    assert str(model) == text
    for op in copy.walk():
        assert op.parent is None or op in op.parent.ops
        assert all(body.parent is op for body in op.bodies)


@st.composite
def models(draw: st.DrawFn) -> Op:
    """Straight lines, loops, branches of control flow and blocks, of integers."""
    b = Builder.root([i32, i1], i32)

    def fill(b: Builder, values: list[Value], depth: int) -> Value:
        for _ in range(draw(st.integers(0, 4))):
            kind = draw(st.sampled_from(["constant", "add", "mul", *(["if", "for"] if depth < 3 else [])]))
            pick = lambda: draw(st.sampled_from(values))  # noqa: E731
            if kind == "constant":
                values.append(b.add(arith.ConstantOp(draw(st.integers(-9, 9)), i32)))
            elif kind in ("add", "mul"):
                values.append(b.add((arith.AddI if kind == "add" else arith.MulI)(pick(), pick())))
            elif kind == "if":
                suites = []
                for _ in range(2):
                    inner = b.nested([], i32)
                    inner.add(scf.Yield([fill(inner, list(values), depth + 1)]))
                    suites.append(inner.finish())
                values.append(b.add(scf.If(condition, *suites)))
            else:
                inner = b.nested([i32, i32], i32)
                inner.add(scf.Yield([fill(inner, [*values, *inner.parameters], depth + 1)]))
                values.append(b.add(scf.For(pick(), pick(), pick(), [pick()], inner.finish())))
        return draw(st.sampled_from(values))

    x, condition = b.parameters
    result = fill(b, [x], 0)
    rest, join = b.new_block(), b.new_block([i32])
    b.add(core.CondBranch(condition, Successor(rest), Successor(join, [result])))
    b.move_to(rest)
    b.add(core.Branch(Successor(join, [fill(b, [x, result], 1)])))
    b.move_to(join)
    b.add(core.Return(join.parameters))
    return core.Func(draw(st.text(max_size=5)), b.finish())


@given(models())
def test_copy_and_round_trip_of_any_model(model: Op):
    copy = transform(model)
    assert same_model(copy, model) and str(copy) == str(model)
    assert same_model(parse(str(model)), model)
    assert not parts(copy) & parts(model)


@given(models())
def test_a_change_and_its_reverse_give_the_model_back(model: Op):
    def sub_to_add(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        return builder.add(arith.AddI(*operands)) if isinstance(op, arith.SubI) else None

    changed = transform(model, add_to_sub)
    assert not any(isinstance(op, arith.AddI) for op in changed.walk())
    assert same_model(transform(changed, sub_to_add), model)
    assert same_model(compose(lambda m: transform(m, add_to_sub), lambda m: transform(m, sub_to_add))(model), model)


# Transformers.


def test_the_example_of_the_docstring():
    def double_negation(builder, op, operands):
        if (
            isinstance(op, arith.NegF)
            and isinstance(inner := operands[0], OpResult)
            and isinstance(inner.op, arith.NegF)
        ):
            return inner.op.operand
        return None

    model = body_of(
        "%1 : f32 = arith.negf %0; %2 : f32 = arith.negf %1; %3 : f32 = arith.addf %2 %2; return %3;", "%0 : f32", "f32"
    )
    better = transform(model, double_negation)
    assert same_model(
        better, body_of("%1 : f32 = arith.negf %0; %2 : f32 = arith.addf %0 %0; return %2;", "%0 : f32", "f32")
    )


def test_nested_bodies_and_blocks_are_transformed():
    changed = transform(parse(NESTED), add_to_sub)
    assert same_model(changed, parse(NESTED.replace("arith.addi", "arith.subi")))


def test_the_first_transformer_that_says_something_decides():
    calls: list[str] = []

    def watch(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> None:
        calls.append(op.NAME)

    def add_to_mul(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        return builder.add(arith.MulI(*operands)) if isinstance(op, arith.AddI | arith.SubI) else None

    model = parse(NESTED)
    names = {op.NAME for op in transform(model, add_to_sub, add_to_mul).walk()}
    assert "arith.subi" in names and "arith.addi" not in names
    assert same_model(transform(model, watch, add_to_mul), parse(NESTED.replace("arith.addi", "arith.muli")))
    assert calls == [op.NAME for op in model.walk()]  # each once, in order, the root too
    # Ops that a transformer adds are not asked about again.
    assert len([op for op in transform(model, add_to_sub, add_to_mul).walk() if isinstance(op, arith.MulI)]) == 1


def test_one_op_becomes_several_in_nested_bodies():
    def spell_out(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        if isinstance(op, arith.MulI):
            zero = builder.add(arith.ConstantOp(0, i32))
            return builder.add(arith.AddI(builder.add(arith.SubI(operands[0], zero)), operands[1]))
        return None

    names = [op.NAME for op in transform(parse(NESTED), spell_out).walk()]
    at = names.index("scf.if")
    assert names[at + 1 : at + 5] == ["arith.constant", "arith.subi", "arith.addi", "scf.yield"]


def test_values_are_mapped_across_bodies():
    def forward(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        return operands[0] if isinstance(op, arith.MulI) else None

    changed = transform(parse(NESTED), forward)
    choice = next(op for op in changed.walk() if isinstance(op, scf.If))
    total = next(op for op in changed.walk() if isinstance(op, arith.AddI))
    assert choice.then.entry.terminator.operands == (total.result,)


def test_drop():
    model = body_of("%1 : i32 = arith.constant @1; %2 : i32 = arith.constant @2; return %1;")

    def drop(*values: int):
        def transformer(builder: Rewriter, op: Op, operands: tuple[Value, ...]):
            return DROP if isinstance(op, arith.ConstantOp) and op.value in values else None

        return transformer

    assert same_model(transform(model, drop(2)), body_of("%1 : i32 = arith.constant @1; return %1;"))
    with refused("<result of arith.constant : i32> has no counterpart in the new model: its op was dropped"):
        transform(model, drop(1))
    assert repr(DROP) == "DROP"


def test_dropped_successors_leave_unreachable_blocks_behind():
    def take_first(builder: Rewriter, op: Op, operands: tuple[Value, ...]):
        if isinstance(op, core.CondBranch):
            blocks = builder.mapping.blocks
            builder.add(core.Branch(Successor(blocks[op.then.block], [builder[v] for v in op.then.arguments])))
            return DROP
        return None

    model = body_of(
        "cbranch %0 ^a ^b; ^a: %1 : i32 = arith.constant @1; return %1; ^b: %2 : i32 = arith.constant @2; return %2;",
        "%0 : i1",
    )
    assert same_model(
        transform(model, take_first), body_of("branch ^a; ^a: %1 : i32 = arith.constant @1; return %1;", "%0 : i1")
    )


def test_answers_that_are_none_of_the_three_are_refused():
    def unplaced(builder: Rewriter, op: Op, operands: tuple[Value, ...]):
        return arith.SubI(*operands) if isinstance(op, arith.AddI) else None

    model = body_of("%1 : i32 = arith.addi %0 %0; return %1;")
    with refused("a transformer must give a value, DROP or None; got <arith.subi"):
        transform(model, unplaced)
    with refused("got True (while rewriting func)"):
        transform(model, lambda builder, op, operands: True)  # type: ignore[arg-type, return-value]


def test_values_of_the_old_model_are_refused():
    model = body_of("%1 : i32 = arith.addi %0 %0; return %1;")

    def stale(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        return op.operands[0] if isinstance(op, arith.AddI) else None

    with refused("return: an operand is not visible here"):
        transform(model, stale)


def test_only_a_root_is_transformed():
    model = parse(NESTED)
    loop = next(op for op in model.walk() if isinstance(op, scf.For))
    with refused("the root of a model has no operands"):
        transform(loop)
    func = model.bodies[0].entry.ops[0]
    assert same_model(transform(func), func) and transform(func).parent is None


# Types.


def widen(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
    if isinstance(op, arith.ConstantOp):
        return builder.add(arith.ConstantOp(op.value, i64))
    return None


def test_types_are_inferred_anew_where_operands_changed_theirs():
    model = body_of(
        "%1 : i32 = arith.constant @1; %2 : i32 = arith.addi %1 %1; %3 : i1 = arith.cmpi %2 %1 @slt; return;",
        "",
        "void",
    )
    changed = transform(model, widen)
    assert [str(op.result.type) for op in changed.bodies[0].entry.ops] == ["i64", "i64", "i1", "void"]


def test_a_type_rule_that_fails_is_a_build_error():
    model = body_of("%1 : i32 = arith.constant @1; %2 : i32 = arith.addi %1 %1; return;", "", "void")

    def float_constant(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        return builder.add(arith.ConstantOp(1.0, f32)) if isinstance(op, arith.ConstantOp) else None

    with refused("arith.addi: the operands must be integers; got f32"):
        transform(model, float_constant)


def test_types_are_kept_where_operands_kept_theirs():
    # The verifier would refuse it, but copying is not its business.
    wrong = body_of("%1 : i64 = arith.addi %0 %0; return %0;")
    assert same_model(transform(wrong), wrong)


def test_rebuilt():
    b = Builder.root([i32, i64, u32])
    x, wide, _ = b.parameters
    op = b.add(arith.AddI(x, x), Location("k.py", 3)).op
    same = rebuilt(op, (x, x), ())
    assert same_model(same, op) and same is not op and same.parent is None and same.location == op.location
    assert rebuilt(op, (wide, wide), ()).result.type == i64
    assert rebuilt(op, (wide, wide), (), type_=i32).result.type == i32
    with refused("arith.addi takes 2 operand(s), got 1"):
        rebuilt(op, (x,), ())


def test_rebuilt_with_another_number_of_operands_has_another_type():
    b = Builder.root([i32, f32])
    x, y = b.parameters
    pair = core.MakeTuple([x, y])
    assert rebuilt(pair, (x, y, x), ()).result.type == TupleType((i32, f32, i32))
    assert rebuilt(pair, (x,), ()).result.type == TupleType((i32,))
    loop_free = rebuilt(core.Return([x]), (), ())
    assert loop_free.operands == () and loop_free.values == ()  # type: ignore[attr-defined]


def test_rebuilt_with_bodies_of_another_type():
    b = Builder.root([i1, i32, i64])
    flag, x, wide = b.parameters

    def give(value: Value):
        inner = b.nested([], value.type)
        inner.add(scf.Yield([value]))
        return inner.finish()

    choice = scf.If(flag, give(x), give(x))
    assert choice.result.type == i32
    assert rebuilt(choice, (flag,), [give(wide), give(wide)]).result.type == i64


def test_rebuilt_with_another_number_of_bodies():
    b = Builder.root([pyobject])

    def give():
        inner = b.nested([], pyobject)
        inner.add(core.Yield(b.parameters))
        return inner.finish()

    op = py.CondAnd([give() for _ in range(3)])
    for count in (2, 4):
        result = rebuilt(op, (), [give() for _ in range(count)])
        assert len(result.bodies) == len(result.parts) == count  # type: ignore[attr-defined]
    with pytest.raises(BuildError, match=r"cexpression takes 2 body\(s\), got 1"):
        rebuilt(py.CondExpression(b.parameters[0], give(), give()), b.parameters, [give()], type_=pyobject)


def test_declared_types_follow_the_operand_where_it_determines_them():
    b = Builder.root([i32, i64])
    op = tt.Splat(b.parameters[0], TensorType((4,), i32))
    result = rebuilt(op, (b.parameters[1],), ())
    assert result.result.type == result.type == TensorType((4,), i64)  # type: ignore[attr-defined]
    assert rebuilt(op, (b.parameters[1],), (), type_=TensorType((4,), i64)).type == TensorType((4,), i64)  # type: ignore[attr-defined]


def test_what_is_remembered_of_an_op_is_not_copied():
    model = parse(NESTED)
    loop = next(op for op in model.walk() if isinstance(op, scf.For))
    assert model.structure and loop.structure and model.use_map()
    copy = transform(model, add_to_sub)
    new_loop = next(op for op in copy.walk() if isinstance(op, scf.For))
    assert not same_model(new_loop, loop)
    assert set(copy.use_map()).isdisjoint(model.use_map())


# Bodies.


def test_rewrite_body_with_other_types():
    model = body_of("%1 : i32 = arith.addi %0 %0; return %1;")
    outside = Rewriter.over(Builder.root())
    body = outside.rewrite_body(model.bodies[0], isolated=True, parameter_types=[i64], yield_type=i64)
    result = rebuilt(model, (), [body])
    assert str(result) == str(model).replace("i32", "i64")


def test_inlining_blocks_of_another_body():
    callee = body_of(
        "cbranch %1 ^a ^b; ^a: %2 : i32 = arith.addi %0 %0; branch ^c(%2); ^b: branch ^c(%0); ^c(%3 : i32): return %3;",
        "%0 : i32, %1 : i1",
    )
    b = Builder.root([i32, i1], i32)
    after = b.new_block([i32])

    def jump(builder: Rewriter, op: Op, operands: tuple[Value, ...]):
        if isinstance(op, core.Return):
            builder.add(core.Branch(Successor(after, operands)))
            return DROP
        return None

    rewriter = Rewriter.over(b, [jump])
    for old, new in zip(callee.bodies[0].parameters, b.parameters, strict=True):
        rewriter[old] = new
    rewriter.rewrite_blocks(callee.bodies[0])
    b.move_to(after)
    b.add(core.Return(after.parameters))
    result = core.Func("g", b.finish())
    assert [op.NAME for op in result.walk()].count("return") == 1
    assert len(result.body.blocks) == 5 and result.body.blocks[-1] is after


# Attributes and locations.


def test_with_attributes():
    model = parse('tt.func @"f" (%0 : i32)void -> { tt.return; };')
    keywords = with_attributes(model, {"sym_name": "g", "divisibility": [16]})
    assert str(keywords).startswith('tt.func @"g" @divisibility=[16] (%0 : i32)void')
    assert not same_model(keywords, model) and model.attributes["sym_name"] == "f"
    with refused("tt.func has no attribute 'name'; it has sym_name, divisibility, small, noinline, parts"):
        with_attributes(model, {"name": "g"})
    with refused("tt.func: attribute 'noinline' must be of kind bool; got 'maybe'"):
        with_attributes(model, {"noinline": "maybe"})
    with refused("divisibility has one number for each parameter"):
        with_attributes(model, {"divisibility": [16, 16]})


LOCATED = (
    'func @loc="1:0:9:0:k.py" @"f" (%0 : i32)i32 -> { %1 : i32 = arith.addi %0 %0 @loc="2:4:2:9:k.py"; return %1; };'
)


def test_copies_stay_where_they_were_and_additions_name_their_pass():
    model = parse(LOCATED)
    copy = transform(model, pass_name="nothing")
    assert to_text(copy, locations=True) == to_text(model, locations=True)
    changed = transform(model, add_to_sub, pass_name="subtract")
    subtraction, leave = changed.bodies[0].entry.ops
    assert subtraction.location == Location("k.py", 2, 4, 2, 9, by="subtract")
    assert changed.location == model.location
    assert leave.location is None  # it had no place, and gets none


def test_additions_without_pass_name_have_the_place_of_what_they_replace():
    subtraction = transform(parse(LOCATED), add_to_sub).bodies[0].entry.ops[0]
    assert subtraction.location == Location("k.py", 2, 4, 2, 9)


# Types that change.

KERNEL = """
module ()void -> {
    tt.func @"k" (%p : ptr<f32>, %n : i32)void -> {
        %zero : i32 = arith.constant @0;
        %one : i32 = arith.constant @1;
        %pp : tensor<x8, ptr<f32>> = tt.splat %p;
        %r : tensor<x8, i32> = tt.make_range @start=0 @end=8;
        %a : tensor<x8, ptr<f32>> = tt.addptr %pp %r;
        %x : tensor<x8, f32> = tt.load %a;
        %s : tensor<x8, f32> = scf.for %zero %n %one %x (%i : i32, %c : tensor<x8, f32>)tensor<x8, f32> -> {
            %y : tensor<x8, f32> = arith.addf %c %x;
            scf.yield %y;
        };
        %total : f32 = tt.reduce %s @axis=0 (%l : f32, %m : f32)f32 -> {
            %lm : f32 = arith.addf %l %m;
            tt.reduce.return %lm;
        };
        %t : tensor<x8, f32> = tt.splat %total;
        tt.store %a %t;
        tt.return;
    };
    unreachable;
};"""


def to_bf16(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
    """The kernel with its pointer to f32 as one to bf16."""
    if not isinstance(op, tt.Func):
        return None
    body = builder.rewrite_body(op.body, isolated=True, parameter_types=[PtrType(bf16), i32])
    return builder.add(rebuilt(op, (), [body]), op.location)


def test_a_change_of_types_runs_on_by_itself():
    model = transform(parse(KERNEL), to_bf16)
    verify(model)
    assert same_model(model, parse(KERNEL.replace("f32", "bf16")))


def test_a_lone_function_is_asked_about():
    function = parse(KERNEL).bodies[0].entry.ops[0]
    lone = parse(str(function))
    assert lone.NAME == "tt.func"
    model = transform(lone, to_bf16)
    verify(model)
    assert model.parent is None and "f32" not in str(model).replace("bf16", "")


def test_what_does_not_fit_its_new_operand_is_named_with_its_place():
    extended = KERNEL.replace("tt.store %a %t;", "%w : f64 = arith.extf %total;\n        tt.store %a %t;")
    place = Location("kernel.py", 7, 4)

    def widen(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        if not isinstance(op, tt.Reduce):
            return None
        total = builder.copy(op, operands)
        return builder.add(arith.ExtF(total, f64))

    model = parse(extended)
    extf = next(op for op in model.walk() if isinstance(op, arith.ExtF))
    extf.__dict__["location"] = place
    with pytest.raises(BuildError, match="f64 to f64 does not") as error:
        transform(model, widen)
    assert error.value.rewriting == "arith.extf"
    assert error.value.location == place


def test_an_error_of_a_transformer_names_the_op_that_it_was_asked_about():
    def wrong(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        return builder.add(arith.AddF(operands[0], operands[0])) if isinstance(op, tt.AddPtr) else None

    with pytest.raises(BuildError, match=r"\(while rewriting tt.addptr\)"):
        transform(parse(KERNEL), wrong)


def test_a_loop_that_yields_another_type_than_it_carries_is_refused():
    def narrow(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        if not isinstance(op, arith.AddF) or op.result.type == f32:
            return None
        return builder.add(arith.TruncF(builder.copy(op, operands), TensorType((8,), bf16)))

    with pytest.raises(BuildError, match=r"scf\.for"):
        transform(parse(KERNEL), narrow)


# Nothing to change.


def test_the_model_itself_comes_back_when_nothing_was_changed():
    model = parse(KERNEL)
    assert transform(model, lambda builder, op, operands: None) is model
    assert transform(model) is not model


def test_a_plain_copy_is_no_change():
    model = parse(KERNEL)
    pure = lambda builder, op, operands: builder.copy(op, operands) if isinstance(op, arith.AddF) else None  # noqa: E731
    assert transform(model, pure) is model


@pytest.mark.parametrize("drops", [True, False])
def test_an_op_that_is_added_or_dropped_is_a_change(drops: bool):
    def transformer(builder: Rewriter, op: Op, operands: tuple[Value, ...]):
        if not isinstance(op, tt.Store):
            return None
        if drops:
            return DROP
        builder.add(tt.Print([operands[1]], ""))
        return None

    model = parse(KERNEL)
    result = transform(model, transformer)
    assert result is not model and not same_model(result, model)


def test_a_root_that_is_dropped():
    with pytest.raises(BuildError, match="the root of a model becomes one op"):
        transform(parse(KERNEL), lambda builder, op, operands: DROP)


def test_what_is_no_transformer():
    model = parse('tt.func @"f" ()void -> { tt.return; };')
    with pytest.raises(KernelTypeError, match=r"must be a function \(builder, op, operands\); got 5"):
        transform(model, 5)  # type: ignore[arg-type]
