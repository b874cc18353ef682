"""The text of models: what is written is read back, for every op; and malformed text is an error with its place."""

from __future__ import annotations

import enum
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.errors import ParseError
from ziggurat.codemodel.fields import REQUIRED
from ziggurat.codemodel.location import Location, marked
from ziggurat.codemodel.op import Body, Op, Successor, same_model
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.text.writer import attribute_text, to_text
from ziggurat.codemodel.traits import Isolated, Terminator
from ziggurat.codemodel.types import (
    SCALARS,
    ConstantType,
    DescriptorType,
    FunctionType,
    PtrType,
    TensorType,
    TupleType,
    Type,
    VarType,
    constexpr_type,
    pyobject,
    void,
)

# Random parts of models.

texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["", '"', "\\", '\\"', "\n\t\r\0", "\x85\u2028", "\U0001f5fc", "double", "64", "//", "};", "%0 : i32"]
)
integers = st.integers() | st.sampled_from([0, -1, 2**31, -(2**63), 2**64 - 1, 10**40])
floats = st.floats() | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 1e22])
scalars = st.sampled_from(list(SCALARS.values()))
pointers = scalars.map(PtrType)
shapes = st.lists(st.integers(1, 4096), max_size=3).map(tuple)
types: st.SearchStrategy[Type] = st.recursive(
    scalars
    | pointers
    | st.builds(TensorType, shapes, scalars | pointers)
    | st.builds(DescriptorType, shapes, st.just(SCALARS["f32"]), st.sampled_from(DescriptorType.PADDINGS))
    | st.builds(DescriptorType, shapes, scalars)
    | st.sampled_from([pyobject, constexpr_type])
    | st.builds(ConstantType, st.none() | st.booleans() | integers | floats | texts, scalars),
    lambda inner: (
        st.builds(TupleType, st.lists(inner, max_size=3).map(tuple))
        | st.builds(VarType, inner)
        | st.builds(FunctionType, inner, st.lists(inner, max_size=2).map(tuple))
    ),
    max_leaves=4,
)
constants = st.recursive(
    st.none() | st.booleans() | integers | floats | texts | types,
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)


def attributes(kind: Any) -> st.SearchStrategy[Any]:
    """Values of an attribute of a kind."""
    if isinstance(kind, list):
        return st.lists(attributes(kind[0]), max_size=4).map(tuple)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    return {int: integers, float: floats, bool: st.booleans(), str: texts, Type: types, object: constants}[kind]


def a_body(draw: Any, place: Builder, isolated: bool) -> Body:
    parameters = draw(st.lists(types, max_size=2))
    inner = Builder.root(parameters, draw(types)) if isolated else place.nested(parameters, draw(types | st.just(void)))
    visible = [*inner.parameters, *(() if isolated else place.parameters)]
    inner.add(tt.Return(visible))
    return inner.finish()


@st.composite
def models(draw: Any, cls: type[Op]) -> Op:
    """A function that holds an op of this class, with random operands, attributes, bodies and result type."""
    f = Builder.root(draw(st.lists(types, min_size=1, max_size=3)), draw(types | st.just(void)))
    spec = cls.SPEC
    value = st.sampled_from(f.parameters)

    group = draw(st.integers(0, 3))
    count = spec.required + draw(st.integers(0, spec.optional)) + spec.variadic * group
    operands = [draw(value) for _ in range(count)]
    if cls is arith.ConstantOp:  # Strings are the 2024 spelling of its numbers.
        results = {"value": draw(st.booleans() | integers | floats)}
    else:
        present = [field for field in spec.attributes if field.default is REQUIRED or draw(st.booleans())]
        results = {field.name: draw(attributes(field.kind)) for field in present}
    blocks = [f.new_block(draw(st.lists(types, max_size=2))) for _ in spec.successors]
    successors = [Successor(block, [draw(value) for _ in block.parameters]) for block in blocks]
    many = any(field.role == "bodies" for field in spec.bodies)
    number = draw(st.integers(0, 3)) if many else len(spec.bodies)
    bodies = [a_body(draw, f, issubclass(cls, Isolated)) for _ in range(number)]
    op = spec.make(operands, successors, results, bodies, void if issubclass(cls, Terminator) else draw(types))
    location = draw(st.none() | st.builds(Location, texts, *[st.integers(0, 999)] * 4, st.none() | texts))
    f.add(op, location)
    for block in blocks:
        f.move_to(block)
        f.add(core.Return(block.parameters[:1]))
    if not f.terminated:
        f.add(tt.Return([op.result, *f.parameters]))
    return tt.Func(draw(texts), body=f.finish())


# Round trips.


@pytest.mark.parametrize("name", OPS)
@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_every_op_is_read_back(name: str, data: st.DataObject):
    model = data.draw(models(OPS[name]))
    text = str(model)
    again = parse(text)
    assert same_model(again, model)
    assert str(again) == text
    assert same_model(parse(to_text(model, defaults=True)), model)
    located = parse(to_text(model, locations=True))
    assert same_model(located, model)
    assert [op.location for op in located.walk()] == [op.location for op in model.walk()]


@given(constants)
def test_constants_are_read_back(value: Any):
    f = Builder.root([], void)
    f.add(core.ConstantOp(value, pyobject))
    f.add(core.Return([]))
    model = core.Func("f", f.finish())
    assert same_model(parse(str(model)), model)


def test_an_enum_is_written_by_its_value():
    assert attribute_text(arith.IntPredicate.SLT) == "slt"
    text = 'tt.func @"f" (%0 : ptr<f32>, %1 : i32, %2 : i64)void -> {\n'
    text += "    %3 : descriptor<x8, f32, nan> = tt.make_tensor_descriptor %0 %1 %2 @padding=nan;\n    tt.return;\n};\n"
    model = parse(text)
    assert str(model) == text
    result = model.bodies[0].entry.ops[0]
    assert isinstance(result, tt.MakeTensorDescriptor) and result.padding is tt.Padding.NAN
    assert same_model(parse(text.replace("=nan", '="nan"')), model)


def test_symbols_that_look_like_old_types_are_symbols():
    text = 'tt.func @"double_int" (%0 : i32)void -> {\n    tt.call %0 @"float";\n    tt.return;\n};\n'
    assert str(parse(text)) == text


def test_blocks_are_numbered_by_their_place_and_dead_ones_dropped():
    text = """func @"f" (%0 : i1)void -> { cbranch %0 ^far ^near(%0);
        ^dead: return;
        ^near(%x : i1): branch ^far;
        ^far: return; };"""
    assert str(parse(text)) == (
        'func @"f" (%0 : i1)void -> {\n'
        "    cbranch %0 ^block_2 ^block_1(%0);\n"
        "\n  ^block_1(%1 : i1):\n    branch ^block_2;\n"
        "\n  ^block_2:\n    return;\n};\n"
    )


def test_numbers_begin_anew_in_an_isolated_op():
    body = "(%5 : i32)i32 -> { tt.return %5; }"
    text = str(parse(f'module ()void -> {{ tt.func @"a" {body}; tt.func @"b" {body}; unreachable; }};'))
    assert text.count("(%0 : i32)i32 -> {") == 2


def test_comments_and_layout_do_not_count():
    plain = 'func @"f" ()void -> { %0 : i32 = tt.get_program_id @0; return; };'
    spread = 'func // a "comment\n@"f"\n(\n)void->{%a:i32=tt.get_program_id@0;//\nreturn;\r\n}\t;// end'
    assert same_model(parse(spread), parse(plain))


def test_values_of_around_are_visible_inside():
    inside = "()void -> { scf.yield %0; } ()void -> { scf.yield %0; }"
    model = parse(f'tt.func @"f" (%0 : i1)void -> {{ scf.if %0 {inside}; tt.return; }};')
    assert model.bodies[0].entry.ops[0].captured_values() == model.bodies[0].parameters


# Malformed text.

F = 'func @"f" (%0 : i32)void -> {\n    '  # The next character is at line 2, column 5.
E = "\n    return;\n};"

MALFORMED = {
    "nothing": ("", 1, 1, "expected the name of an op, got 'end of text'"),
    "not an op": (F + "frobnicate %0;" + E, 2, 5, "unknown op 'frobnicate'"),
    "misspelt op": (F + "retrun;" + E, 2, 5, "unknown op 'retrun'"),
    "strange character": (F + "return §;" + E, 2, 12, "unexpected character '§'"),
    "open string": (F + 'var @"x;' + E, 2, 10, "unterminated string"),
    "unknown escape": (F + r'%1 : Var<i32> = var @"a\qb";' + E, 2, 28, r"unknown escape '\q' in a string"),
    "escape beyond Unicode": (F + r'%1 : Var<i32> = var @"\U00110000";' + E, 2, 27, "unknown escape"),
    "no semicolon": (F + "%1 : i32 = arith.addi %0 %0" + E, 3, 5, "expected ';', got 'return'"),
    "no type": (F + "%1 = arith.addi %0 %0;" + E, 2, 8, "expected ':', got '='"),
    "no equals": (F + "%1 : i32 arith.addi %0 %0;" + E, 2, 14, "expected '=', got 'arith.addi'"),
    "unknown type": (F + "%1 : i33 = arith.addi %0 %0;" + E, 2, 10, "unknown type 'i33'"),
    "type of nothing": (F + "%1 : tensor<> = arith.addi %0 %0;" + E, 2, 17, "expected a type, got '>'"),
    "bad dimension": (F + "%1 : tensor<64, f32> = tt.splat %0;" + E, 2, 17, "expected a type, got '64'"),
    "no dimension": (F + "%1 : tensor<y4, f32> = tt.splat %0;" + E, 2, 10, "expected a dimension such as 'x64'"),
    "open type": (F + "%1 : ptr<f32 = tt.splat %0;" + E, 2, 18, "expected ',' or '>' in a type, got '='"),
    "pointer to a tensor": (F + "%1 : ptr<Tuple<i32>> = tt.splat %0;" + E, 2, 10, "expected a scalar type"),
    "undeclared value": (F + "%1 : i32 = arith.addi %0 %7;" + E, 2, 30, "undeclared value '%7'"),
    "value of itself": (F + "%1 : i32 = arith.addi %0 %1;" + E, 2, 30, "undeclared value '%1'"),
    "declared twice": (F + "%0 : i32 = arith.addi %0 %0;" + E, 2, 5, "value '%0' is declared twice"),
    "void value": (F + "%1 : void = var.store %0 %0;" + E, 2, 5, "an op of type void gives no value"),
    "too few operands": (F + "%1 : i32 = arith.addi %0;" + E, 2, 16, "arith.addi takes 2 operand(s), got 1"),
    "too many operands": (F + "%1 : i32 = arith.addi %0 %0 %0;" + E, 2, 16, "arith.addi takes 2 operand(s), got 3"),
    "attribute missing": (F + "%1 : i32 = tt.get_program_id;" + E, 2, 16, "attribute 'axis' is missing"),
    "attribute twice": (F + "%1 : i32 = tt.get_program_id @0 @1;" + E, 2, 37, "attribute 'axis' is given twice"),
    "unknown attribute": (F + "return @x=1;" + E, 2, 12, "return has no attribute 'x'; it has none"),
    "no unnamed attribute": (F + "return @1;" + E, 2, 12, "return has no unnamed attribute"),
    "attribute of nothing": (F + "return @;" + E, 2, 12, "return has no unnamed attribute"),
    "wrong kind": (F + "%1 : i32 = tt.get_program_id @1.5;" + E, 2, 35, "attribute 'axis' must be of kind int"),
    "wrong member": (F + "%1 : i1 = arith.cmpi %0 %0 @lt;" + E, 2, 33, "must be one of eq, ne, slt"),
    "octal": (F + "%1 : i32 = tt.get_program_id @007;" + E, 2, 35, "malformed number '007'"),
    "number too long": (F + f"%1 : i32 = tt.get_program_id @{'9' * 5000};" + E, 2, 35, "a token is longer than 1000"),
    "no value": (F + "%1 : i32 = tt.get_program_id @axis=;" + E, 2, 40, "expected an attribute value, got ';'"),
    "open list": (F + "%1 : i32 = tt.trans %0 @order=[1, 0;" + E, 2, 40, "expected ',', got ';'"),
    "location": (F + 'return @loc="here";' + E, 2, 12, "malformed location 'here'"),
    "undeclared block": (F + "branch ^nowhere;\n};", 2, 12, "undeclared block '^nowhere'"),
    "block twice": (F + "branch ^a; ^a: return; ^a:" + E, 2, 28, "block '^a' is declared twice"),
    "block in a block": (F + "branch ^a; ^a: ^b:" + E, 2, 20, "the block before this one has no terminator"),
    "entry as successor": ('func @"f" ^a()void -> { branch ^a; };', 1, 32, "undeclared block '^a'"),
    "after the terminator": (F + "return;" + E, 3, 5, "cannot add return after the block's terminator"),
    "no terminator": (F + "%1 : i32 = arith.addi %0 %0;\n};", 3, 1, "expected a terminator"),
    "unfinished block": (F + "^a: return;" + E, 2, 5, "the block before this one has no terminator"),
    "open body": (F + "return;", 1, 29, "expected '}' before the end of the text"),
    "no arrow": ('func @"f" ()void { return; };', 1, 18, "expected '->', got '{'"),
    "no body": ('func @"f";', 1, 1, "func takes 1 body(s), got 0"),
    "two models": (F + E.strip() + "\nmodule", 4, 1, "expected the end of the text"),
    "isolated": (F + 'func @"g" ()void -> { return %0; };' + E, 2, 34, "undeclared value '%0'"),
    "deep types": (F + "%1 : " + "Var<" * 300 + E, 2, 810, "types are nested too deeply (200)"),
    "deep lists": (F + "%1 : object = constant @" + "[" * 300 + E, 2, 229, "values are nested too deeply (200)"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed(case: str):
    text, line, column, message = MALFORMED[case]
    with pytest.raises(ParseError) as failure:
        parse(text, "model.txt")
    error = failure.value
    assert (error.line, error.column) == (line, column), str(error)
    assert message in error.summary
    head, source, caret, *_ = str(error).split("\n")
    assert head.startswith(f"model.txt:{line}:{column}: ")
    assert [source, caret] == marked(text.split("\n")[line - 1], column - 1)
    assert error.__cause__ is None


def test_a_misspelt_op_gets_a_hint():
    with pytest.raises(ParseError, match="did you mean 'return'") as error:
        parse(F + "retrun;" + E)
    assert error.value.hint == "did you mean 'return'?"


def test_deep_bodies_are_an_error_not_a_crash():
    with pytest.raises(ParseError, match=re.escape("bodies are nested too deeply (200)")):
        parse("module ()void -> { " * 1000)


SAMPLES = (
    """module ()void -> {
    tt.func @"k" @divisibility=[16, 1] (%0 : ptr<f32>, %1 : i32)void -> {
        %2 : i32 = arith.constant @-1;
        %3 : tensor<x4, x8, f32> = arith.constant @-inf @loc="1:2:3:4:a.py";
        %4 : i1 = arith.cmpi %1 %2 @slt;
        %5 : Tuple<i32, f32> = scf.for %1 %1 %2 %2 @num_stages=2 (%6 : i32, %7 : i32)i32 -> {
            scf.yield %6;
        };
        cf.cond_br %4 ^block_2(%2) ^block_1;

      ^block_1:
        cf.br ^block_2(%1);

      ^block_2(%8 : i32):
        tt.return;
    };
    unreachable;
};
""",
    """func @"f" (%0 : object, %1 : constexpr)object -> {
    %2 : Var<object> = var %0 @"x\\n\\"";
    %3 : object = constant @[1, 2.5, "a", null, i32, [true]];
    %4 : int = arith.constant @"64";
    %5 : java.type:"float" = invoke %0 @"zg.add" @keywords=["a"];
    for
        ()object -> { yield %3; }
        (%6 : object)object -> { var.store %2 %6; yield; };
    return %3;
};
""",
)
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[\w.%^]+|\s+|.')


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_mutilated_text_is_a_parse_error_or_a_model(data: st.DataObject):
    """Tokens of valid texts deleted, doubled, exchanged and replaced: nothing but `ParseError` comes out."""
    pieces = _PIECE.findall(data.draw(st.sampled_from(SAMPLES)))
    pool = sorted({piece for sample in SAMPLES for piece in _PIECE.findall(sample)})
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(pieces) - 1))
        change = data.draw(st.sampled_from(["delete", "double", "replace", "swap", "cut"]))
        if change == "delete":
            del pieces[at]
        elif change == "double":
            pieces.insert(at, pieces[at])
        elif change == "replace":
            pieces[at] = data.draw(st.sampled_from(pool) | st.text(max_size=3))
        elif change == "swap":
            other = data.draw(st.integers(0, len(pieces) - 1))
            pieces[at], pieces[other] = pieces[other], pieces[at]
        else:
            del pieces[at + 1 :]
        if not pieces:
            break
    text = "".join(pieces)
    try:
        model = parse(text)
    except ParseError as error:
        assert 1 <= error.line <= text.count("\n") + 1
        assert error.column >= 1
    else:
        assert same_model(parse(str(model)), model)


def test_the_example_of_the_grammar():
    document = Path(__file__).resolve().parents[2] / "docs" / "reference" / "text-grammar.md"
    example = document.read_text(encoding="utf-8").split("```\n")[1]
    assert str(parse(example)) == example


def test_the_samples_are_valid():
    for sample in SAMPLES:
        assert same_model(parse(str(parse(sample))), parse(sample))
    assert str(parse(SAMPLES[0])) == SAMPLES[0].replace(' @loc="1:2:3:4:a.py"', "")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("3:4:5:6:a.py", ("a.py", 3, 4, 5, 6)), ("3:4:a.py", ("a.py", 3, 4, 3, 4)), ("3:4", ("<text>", 3, 4, 3, 4)),
        ("3:4:5:6", ("<text>", 3, 4, 5, 6)), ("3:4:5:6:a:b", ("a:b", 3, 4, 5, 6)),
    ],
)  # fmt: skip
def test_locations_may_lack_an_end_and_a_file(text: str, place: tuple[object, ...]):
    location = (
        parse(f'tt.func @"f" ()void -> {{ tt.barrier @loc="{text}"; tt.return; }};').bodies[0].entry.ops[0].location
    )
    assert location is not None
    assert (location.file, location.line, location.column, location.end_line, location.end_column) == place
