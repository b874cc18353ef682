"""The verifier: for each invariant a model that breaks it, and models that break none."""

from __future__ import annotations

import pytest

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, cf, core, scf, tt
from ziggurat.codemodel.errors import BuildError, ParseError, VerifyError
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value, fill, same_model
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import TensorType, f32, i1, i32, void
from ziggurat.codemodel.verify import verify, violations


def found(model: Op) -> list[tuple[str, str]]:
    """The violations as (name of the op, message)."""
    return [(violation.op.NAME, violation.message) for violation in violations(model)]


def function(body: str, ends: str = "tt.return;") -> Op:
    return parse(f'tt.func @"f" (%n : i32, %x : f32, %c : i1)void -> {{ {body} {ends} }};')


def only(model: Op, name: str, message: str) -> None:
    """The model breaks one invariant, at this op."""
    assert found(model) == [(name, message)], found(model)
    with pytest.raises(VerifyError) as error:
        verify(model)
    assert len(error.value.violations) == 1
    assert f"// ^ {message}" in str(error.value)


def start() -> Builder:
    return Builder.root([i32, f32, i1])


def finished(builder: Builder) -> Op:
    """The function, also from a body that `Builder.finish` would refuse."""
    fill(builder.body, "blocks", tuple(builder._draft.blocks))  # pyright: ignore[reportPrivateUsage]
    return tt.Func("f", builder.body)


def forced(builder: Builder, op: Op) -> Op:
    """Put an op at the end of the block without the checks of `Builder.add`."""
    op.__dict__["parent"] = builder.block
    builder.block._ops.append(op)  # pyright: ignore
    return op


def test_good_models_have_no_violations():
    verify(function(""))
    verify(
        parse(
            """module ()void -> {
            tt.func @"sum" (%a : f32, %b : f32)f32 -> { %s : f32 = arith.addf %a %b; tt.return %s; };
            tt.func @"f" (%t : tensor<x8, f32>, %c : i1, %n : i32)void -> {
                %r : f32 = tt.reduce %t @axis=0 (%a : f32, %b : f32)f32 -> {
                    %s : f32 = tt.call %a %b @"sum"; tt.reduce.return %s; };
                scf.if %c ()void -> { tt.return; } ()void -> { scf.yield; };
                %z : i32 = arith.constant @0; %o : i32 = arith.constant @1;
                %w : Tuple<i32, f32> = scf.while %n %r
                    (%i : i32, %q : f32)Tuple<i32, f32> -> {
                        %k : i1 = arith.cmpi %i %z @sgt; scf.condition %k %i %q; }
                    (%i : i32, %q : f32)Tuple<i32, f32> -> { %j : i32 = arith.subi %i %o; scf.yield %j %q; };
                cf.cond_br %c ^a(%z) ^b;
              ^a(%p : i32): cf.br ^b;
              ^b: tt.return; };
            unreachable; };"""
        )
    )
    verify(
        parse(
            """module ()void -> {
            func @"g" (%a : object, %k : constexpr)object -> { return %a; };
            func @"f" (%a : object)object -> {
                for ()object -> { yield %a; } (%i : object)object -> {
                    if %i ()object -> { return; } ()object -> { yield; }; yield; };
                %r : object = func.call %a %a @"g"; return; };
            unreachable; };"""
        )
    )


# 1: parents and parts.


def test_parents():
    model = function("%0 : i32 = arith.addi %n %n;")
    other = function("")
    inner = model.bodies[0].entry.ops[0]
    inner.__dict__["parent"] = other.bodies[0].entry
    assert ("tt.func", "arith.addi in its body has another block as its parent") in found(model)


def test_a_body_of_another_op():
    model = function("scf.if %c ()void -> { scf.yield; } ()void -> { scf.yield; };")
    fill(model.bodies[0].entry.ops[0].bodies[0], "parent", model)
    only(model, "scf.if", "one of its bodies belongs to another op")


def test_a_body_built_at_another_place():
    model = function("scf.if %c ()void -> { scf.yield; } ()void -> { scf.yield; };")
    fill(model.bodies[0].entry.ops[0].bodies[1], "ancestor", function("").bodies[0])
    only(model, "scf.if", "one of its bodies was built at another place")


def test_blocks_and_parameters_of_others():
    model = function("")
    block = model.bodies[0].entry
    fill(block.parameters[1], "index", 2)
    only(model, "tt.func", "a parameter of its body belongs to another block")
    model = function("")
    fill(model.bodies[0].entry, "parent", Body(void, None))
    assert ("tt.func", "a block of its body belongs to another body") in found(model)
    model = function("")
    fill(model.bodies[0], "blocks", ())
    only(model, "tt.func", "one of its bodies has no blocks")


def test_an_op_in_two_places():
    builder = start()
    op = arith.AddI(*[builder.parameters[0]] * 2)
    builder.add(op)
    forced(builder, op)
    builder.add(tt.Return([]))
    assert ("arith.addi", "the op has several places in the model") in found(finished(builder))


def test_a_result_of_another_op():
    model = function("%0 : i32 = arith.addi %n %n;")
    op = model.bodies[0].entry.ops[0]
    op.__dict__["result"] = function("%0 : i32 = arith.addi %n %n;").bodies[0].entry.ops[0].result
    assert ("arith.addi", "its result belongs to another op") in found(model)


# 2: blocks.


def test_a_block_without_terminator():
    builder = start()
    builder.add(tt.GetProgramId(0))
    only(finished(builder), "tt.get_program_id", "block 0 does not end in a terminator")
    only(finished(start()), "tt.func", "block 0 does not end in a terminator")


def test_a_terminator_in_the_middle():
    builder = start()
    builder.add(tt.Return([]))
    forced(builder, tt.Return([]))
    only(finished(builder), "tt.return", "a terminator stands in the middle of a block")


def test_a_block_that_nothing_leads_to():
    builder = start()
    builder.add(tt.Return([]))
    builder.move_to(builder.new_block())
    builder.add(tt.Return([]))
    only(finished(builder), "tt.return", "block 1 cannot be reached from the entry")


# 3 and 4: operands.


def test_use_before_declaration():
    builder = start()
    number = builder.parameters[0]
    later = arith.AddI(number, number)
    forced(builder, arith.AddI(number, later.result))
    forced(builder, later)
    builder.add(tt.Return([]))
    only(finished(builder), "arith.addi", "operand 1 does not dominate its use")


def test_use_in_a_block_that_is_not_dominated():
    model = function(
        """cf.cond_br %c ^a ^b; ^a: %0 : i32 = arith.addi %n %n; cf.br ^d; ^b: cf.br ^d;
        ^d: tt.print %0 @"";"""
    )
    only(model, "tt.print", "operand 0 does not dominate its use")


def test_an_argument_of_a_successor_that_is_not_dominated():
    model = function(
        """cf.cond_br %c ^a ^b; ^a: %0 : i32 = arith.addi %n %n; cf.br ^d(%0); ^b: cf.br ^d(%0);
        ^d(%1 : i32): tt.print %1 @"";"""
    )
    only(model, "cf.br", "operand 0 does not dominate its use")


def test_use_outside_of_the_body_that_declares():
    builder = start()
    number, _, condition = builder.parameters
    bodies: list[Body] = []
    hidden: list[Value] = []
    for _ in range(2):
        inner = builder.nested()
        hidden.append(inner.add(arith.AddI(number, number)))
        inner.add(scf.Yield([]))
        bodies.append(inner.finish())
    builder.add(scf.If(condition, *bodies))
    forced(builder, tt.Print(hidden[:1], ""))
    builder.add(tt.Return([]))
    only(finished(builder), "tt.print", "operand 0 does not dominate its use")


def test_an_operand_that_is_nowhere():
    builder = start()
    forced(builder, tt.Print([tt.GetProgramId(0).result], ""))
    builder.add(tt.Return([]))
    only(finished(builder), "tt.print", "operand 0 is not declared in the model")


def test_an_operand_without_a_value():
    builder = start()
    nothing = builder.add(tt.Print([], ""))
    builder.add(tt.Print([nothing], ""))
    builder.add(tt.Return([]))
    only(finished(builder), "tt.print", "operand 0 has no value: it is of type void")


def test_isolated_ops_capture_nothing():
    module = Builder.root()
    outside = module.add(tt.GetProgramId(0))
    inner = Builder.root()
    forced(inner, tt.Print([outside], ""))
    inner.add(tt.Return([]))
    module.add(tt.Func("f", inner.finish()))
    module.add(core.Unreachable())
    only(core.Module(module.finish()), "tt.print", "operand 0 is declared outside of the isolated tt.func")


# 5: successors.


def test_a_successor_in_another_body():
    builder, other = start(), start()
    elsewhere: Block = other.new_block()
    forced(builder, cf.Br(Successor(elsewhere)))
    only(finished(builder), "cf.br", "a successor is not a block of the same body")


def test_the_entry_as_a_successor():
    builder = Builder.root()
    forced(builder, cf.Br(Successor(builder.entry)))
    only(finished(builder), "cf.br", "the entry block is a successor")


def test_arguments_of_a_successor():
    only(function("cf.br ^a; ^a(%0 : i32):"), "cf.br", "block 1 takes (i32); it is given ()")
    only(function("cf.br ^a(%x); ^a(%0 : i32):"), "cf.br", "block 1 takes (i32); it is given (f32)")


# 6 and 7: the declarations of the ops.


def test_counts():
    builder = start()
    op = arith.AddI(*[builder.parameters[0]] * 2)
    op.__dict__["operands"] = op.operands[:1]
    builder.add(op)
    op = cf.Br(Successor(builder.new_block()))
    builder.add(op)
    builder.move_to(op.successors[0].block)
    builder.add(tt.Return([]))
    model = finished(builder)
    only(model, "arith.addi", "arith.addi takes 2 operand(s), got 1")
    op.__dict__["successors"] = ()
    assert ("cf.br", "cf.br takes 1 successor(s), got 0") in found(model)


def test_count_of_bodies():
    model = function("scf.if %c ()void -> { scf.yield; } ()void -> { scf.yield; };")
    choice = model.bodies[0].entry.ops[0]
    choice.__dict__["bodies"] = choice.bodies[:1]
    only(model, "scf.if", "scf.if takes 2 body(s), got 1")


def test_attributes():
    builder = start()
    builder.add(tt.GetProgramId.SPEC.make([], [], {"axis": "z"}, [], i32))
    builder.add(tt.Return([]))
    messages = found(finished(builder))
    assert ("tt.get_program_id", "attribute 'axis' must be of kind int; got 'z'") in messages


def test_result_types():
    only(function("%0 : f32 = arith.addi %n %n;"), "arith.addi", "the result is of type f32; it should be i32")
    builder = start()
    op = arith.ConstantOp(1, i32)
    fill(op.result, "type", f32)
    builder.add(op)
    builder.add(tt.Return([]))
    only(finished(builder), "arith.constant", "the result is of type f32; it should be i32")


def test_type_rules():
    only(function("%0 : f32 = arith.addi %x %x;"), "arith.addi", "arith.addi: the operands must be integers; got f32")
    only(
        function("%0 : i32 = arith.addi %n %x;"),
        "arith.addi",
        "arith.addi: the operands must be of one type; got i32 and f32",
    )


def test_a_type_rule_that_stumbles_is_a_violation():
    builder = start()
    number = builder.parameters[0]
    op = arith.CmpI(number, number, arith.IntPredicate.EQ)
    op.__dict__["lhs"] = None
    builder.add(op)
    builder.add(tt.Return([]))
    assert any(
        name == "arith.cmpi" and "its type rule fails with" in message for name, message in found(finished(builder))
    )


# 8: leaving bodies.


@pytest.mark.parametrize(
    ("model", "name", "message"),
    [
        (function("", "scf.yield;"), "scf.yield", "scf.yield cannot end a body of tt.func; that ends in tt.return"),
        (function("", "return;"), "return", "return cannot end a body of tt.func; that ends in tt.return"),
        (
            function("scf.if %c ()void -> { yield; } ()void -> { scf.yield; };"),
            "yield",
            "yield cannot end a body of scf.if; that ends in scf.yield",
        ),
        (
            function("scf.if %c ()void -> { return; } ()void -> { scf.yield; };"),
            "return",
            "return cannot leave a tt.func; that ends in tt.return",
        ),
        (
            function("scf.while ()void -> { scf.yield; } ()void -> { scf.yield; };"),
            "scf.yield",
            "scf.yield cannot end a body of scf.while; that ends in scf.condition",
        ),
        (
            function(
                """%t : tensor<x8, i32> = tt.make_range @start=0 @end=8;
                %r : i32 = tt.reduce %t @axis=0 (%a : i32, %b : i32)i32 -> { tt.scan.return %a; };"""
            ),
            "tt.scan.return",
            "tt.scan.return cannot end a body of tt.reduce; that ends in tt.reduce.return",
        ),
        (
            function(
                """%t : tensor<x8, i32> = tt.make_range @start=0 @end=8;
                %r : i32 = tt.reduce %t @axis=0 (%a : i32, %b : i32)i32 -> {
                    scf.if %c ()void -> { tt.return; } ()void -> { scf.yield; }; tt.reduce.return %a; };"""
            ),
            "tt.return",
            "tt.return cannot leave a function through tt.reduce",
        ),
        (function("", "tt.return %n;"), "tt.return", "tt.func yields void; tt.return gives i32"),
        (
            function("scf.if %c ()void -> { tt.return %n; } ()void -> { scf.yield; };"),
            "tt.return",
            "tt.func yields void; tt.return gives i32",
        ),
        (
            function("%0 : i32 = arith.constant @0; scf.for %0 %n %n (%i : i32)i32 -> { scf.yield; };"),
            "scf.yield",
            "the body of scf.for yields i32; scf.yield gives void",
        ),
        (
            function("scf.while ()i1 -> { scf.condition %c; } ()void -> { scf.yield; };"),
            "scf.condition",
            "the body of scf.while yields i1; scf.condition gives void",
        ),
        (
            parse("module ()void -> { yield; };"),
            "yield",
            "yield cannot end a body of module; that ends in unreachable",
        ),
    ],
)
def test_ends_of_bodies(model: Op, name: str, message: str):
    only(model, name, message)


def test_an_if_whose_yields_differ_in_number():
    # Both pack to the same Tuple, so only the number tells them apart.
    model = function(
        """%p : Tuple<i32, i32> = tuple %n %n;
        %r : Tuple<i32, i32> = scf.if %c ()Tuple<i32, i32> -> { scf.yield %p; }
            ()Tuple<i32, i32> -> { scf.yield %n %n; };"""
    )
    only(model, "scf.if", "the bodies of scf.if yield different numbers of values")


def test_a_return_outside_of_functions():
    model = parse(
        """module ()void -> { %c : i1 = arith.constant @true;
            scf.if %c ()void -> { tt.return; } ()void -> { scf.yield; }; unreachable; };"""
    )
    only(model, "tt.return", "tt.return cannot leave a function through module")


def test_every_op_declares_how_its_bodies_end():
    from ziggurat.codemodel.declare import OPS

    assert [cls.NAME for cls in OPS.values() for field in cls.SPEC.bodies if field.ends is None] == []


# 9: symbols.

CALLEE = 'tt.func @"g" (%a : i32)f32 -> { %r : f32 = arith.constant @1.0; tt.return %r; };'


def python(caller: str) -> Op:
    """A Python function beside a Triton function."""
    return parse(
        f"""module ()void -> {{ {CALLEE} func @"f" (%n : i32)void -> {{ {caller} return; }}; unreachable; }};"""
    )


def module(caller: str, callee: str = CALLEE) -> Op:
    return parse(
        f"""module ()void -> {{ {callee}
            tt.func @"f" (%n : i32, %x : f32)void -> {{ {caller} tt.return; }}; unreachable; }};"""
    )


@pytest.mark.parametrize(
    ("model", "name", "message"),
    [
        (module("", CALLEE.replace('"g"', '"f"')), "tt.func", "the symbol 'f' is declared twice"),
        (module('%0 : f32 = tt.call %n @"h";'), "tt.call", "the module has no function 'h'"),
        (python('%0 : object = func.ref @"h";'), "func.ref", "the module has no function 'h'"),
        (module('%0 : f32 = tt.call %x @"g";'), "tt.call", "'g' takes (i32); it is given (f32)"),
        (module('%0 : f32 = tt.call %n %n @"g";'), "tt.call", "'g' takes (i32); it is given (i32, i32)"),
        (module('%0 : i32 = tt.call %n @"g";'), "tt.call", "'g' gives f32, not i32"),
        (python('%0 : f32 = func.call %n @"g";'), "func.call", "func.call calls a func; 'g' is a tt.func"),
    ],
)
def test_symbols(model: Op, name: str, message: str):
    only(model, name, message)


@pytest.mark.parametrize("callee", ["f", "g", "h"])
def test_recursion(callee: str):
    calls = {"f": "g", "g": "h", "h": callee}
    functions = [f'tt.func @"{name}" ()void -> {{ tt.call @"{calls[name]}"; tt.return; }};' for name in calls]
    problems = violations(parse("module ()void -> { " + " ".join(functions) + " unreachable; };"))
    looping = ["f", "g", "h"]["fgh".index(callee) :]
    assert [str(violation) for violation in problems] == [
        f"tt.call: recursion: '{name}' calls '{calls[name]}', which leads back to it" for name in looping
    ]


# The report.


def test_all_violations_are_listed_and_marked():
    model = function(
        """%0 : f32 = arith.addi %n %n @loc="7:4:7:9:k.py"; %1 : i32 = arith.addi %n %x;
        scf.if %c ()void -> { yield; } ()void -> { scf.yield; };""",
        "return;",
    )
    with pytest.raises(VerifyError) as error:
        verify(model)
    assert [violation.op.NAME for violation in error.value.violations] == [
        "arith.addi",
        "arith.addi",
        "yield",
        "return",
    ]
    text = str(error.value)
    assert text.startswith("the model breaks 4 invariants:")
    assert "arith.addi: the result is of type f32; it should be i32 (k.py:7:5)" in text
    lines = [line.strip() for line in text.splitlines()]
    at = lines.index("%3 : f32 = arith.addi %0 %0;")
    assert lines[at + 1] == "// ^ the result is of type f32; it should be i32"
    # The marks are comments: the printed model can be read again, and is as wrong as before.
    printed = text[text.index("tt.func @") :]
    assert same_model(parse(printed), model)
    assert len(violations(parse(printed))) == 4


def test_a_function_of_a_module_can_be_verified_alone():
    good = module('%0 : f32 = tt.call %n @"g";')
    assert isinstance(good, core.Module)
    for part in good.functions().values():
        verify(part)


# Limits, tiers and names.


@pytest.mark.parametrize("text", [
    "%0 : tensor<x2097152, i32> = tt.make_range @start=0 @end=2097152;",
    "%0 : tensor<x2097152, i32> = tt.splat %n;",
])  # fmt: skip
def test_a_tensor_has_a_limited_number_of_elements(text: str):
    messages = [message for _, message in found(function(text))]
    assert "a tensor of shape [2097152] has more than 1048576 elements" in messages


@pytest.mark.parametrize(("start", "end"), [(2**31 - 2, 2**31 + 2), (-(2**31) - 2, -(2**31) + 2)])
def test_the_bounds_of_a_range_fit_in_i32(start: int, end: int):
    messages = [
        message for _, message in found(function(f"%0 : tensor<x4, i32> = tt.make_range @start={start} @end={end};"))
    ]
    assert f"the bounds of tt.make_range must fit in i32; got {start} and {end}" in messages


def test_an_op_that_gives_a_larger_tensor_is_refused():
    builder = Builder.root([i32])
    with pytest.raises(BuildError, match=r"tt.splat: a tensor of shape \[1024, 2048\] has more than 1048576 elements"):
        tt.Splat(builder.parameters[0], TensorType((1024, 2048), i32))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("%0 : object = constant @1;", "constant"),
        ('%0 : object = invoke %n @"zg.load";', "invoke"),
        ('%0 : i32 = func.call %n @"g";', "func.call"),
    ],
)
def test_a_triton_function_holds_no_ops_of_the_python_model(text: str, name: str):
    assert (name, f"{name} belongs to the Python code model; it cannot stand in a tt.func") in found(function(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('%0 : object = invoke %n @"";', "the callee must be a name, names with dots, or '.method'; got ''"),
        ('%0 : object = invoke %n @"zg.1";', "the callee must be a name, names with dots, or '.method'; got 'zg.1'"),
        ("%0 : object = unpack %n @index=2 @count=2;", "component 2 is not one of 2"),
        ("%0 : object = spread %n @count=2 @star=2;", "component 2 is not one of 2"),
        ("%0 : object = spread %n @count=-1;", "a spread has no -1 components"),
    ],
)
def test_names_and_components_of_the_python_model(text: str, message: str):
    assert message in [message for _, message in found(python(text))]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ('@target="sm_1" @num_warps=4', "the target must be one of sm_80, "),
        ('@target="sm_80" @num_warps=0', "a CTA has 1 to 32 warps; got 0"),
    ],
)
def test_the_machine_of_a_gpu_model(attributes: str, message: str):
    model = parse(f'gpu.module {attributes} ()void -> {{ tt.func @"f" ()void -> {{ tt.return; }}; unreachable; }};')
    assert any(text.startswith(message) for _, text in found(model))


@pytest.mark.parametrize("symbol", ["", " ", "a\\n"])
def test_a_symbol_is_a_name(symbol: str):
    model = parse(f'tt.func @"{symbol}" ()void -> {{ tt.return; }};')
    assert any("a symbol must be a printable name" in message for _, message in found(model))


def test_a_string_with_a_lone_surrogate_is_refused():
    with pytest.raises(BuildError, match="must be valid Unicode"):
        tt.Print([], "\ud800")
    with pytest.raises(ParseError, match="must be valid Unicode"):
        parse(r'tt.func @"f" ()void -> { tt.print @"\ud800"; tt.return; };')
