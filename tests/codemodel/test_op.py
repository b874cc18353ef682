"""Tests of codemodel/op.py: models do not change, know their uses, walk in order and compare by structure."""

from __future__ import annotations

import math
import re
import sys
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import arith, cf, core, py, scf, tt
from ziggurat.codemodel.dialects import math as math_ops
from ziggurat.codemodel.errors import BuildError, KernelTypeError
from ziggurat.codemodel.op import Body, Op, Successor, require, same_model
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import FunctionType, VarType, constant_key, f32, i1, i32, i64, pyobject, void

LOOP = """
func @"f" (%0 : i32, %1 : i1)i32 -> {
    %2 : i32 = arith.constant @1;
    %3 : i32 = scf.for %2 %0 %2 %0 (%4 : i32, %5 : i32)i32 -> {
        %6 : i32 = arith.addi %4 %5;
        %7 : i32 = scf.if %1
            ()i32 -> {
                %8 : i32 = arith.muli %6 %0;
                scf.yield %8;
            }
            ()i32 -> {
                scf.yield %2;
            };
        scf.yield %7;
    };
    return %3;
};
"""

BRANCHES = """
func @"g" (%0 : i32, %1 : i1)i32 -> {
    cbranch %1 ^left ^right(%0);
  ^left:
    %2 : i32 = arith.addi %0 %0;
    branch ^join(%2);
  ^right(%3 : i32):
    branch ^join(%3);
  ^join(%4 : i32):
    return %4;
};
"""


def named(model: Op, name: str) -> Op:
    return next(op for op in model.walk() if name == op.NAME)


# Immutability.


def parts_of(model: Op) -> list[object]:
    bodies = [body for op in model.walk() for body in op.bodies]
    blocks = [block for body in bodies for block in body.blocks]
    results: list[object] = [*model.walk(), *bodies, *blocks]
    results += [op.result for op in model.walk()] + [p for block in blocks for p in block.parameters]
    results += [successor for op in model.walk() for successor in op.successors]
    return results


def test_no_field_of_any_part_can_be_set_or_deleted():
    for part in [*parts_of(parse(LOOP)), *parts_of(parse(BRANCHES))]:
        names = {name for name in dir(part) if not name.startswith("__")}
        assert names
        for name in names | {"a_new_name"}:
            with pytest.raises(AttributeError):
                setattr(part, name, None)
            with pytest.raises(AttributeError):
                delattr(part, name)


def test_what_collections_a_part_hands_out_are_not_its_own():
    model = parse(LOOP)
    text = str(model)
    for op in model.walk():
        assert isinstance(op.operands, tuple) and isinstance(op.bodies, tuple) and isinstance(op.successors, tuple)
        attributes = op.attributes
        if isinstance(attributes, dict):
            attributes["sym_name"] = "changed"
    with pytest.raises(TypeError):
        model.use_map()[model.result] = ()  # type: ignore[index]
    assert str(model) == text
    assert isinstance(model.bodies[0].entry.ops, tuple)


def test_the_message_for_setting_a_field_names_it():
    with pytest.raises(AttributeError, match="cannot set 'type' of <parameter 0 : i32>: models do not change"):
        parse(LOOP).bodies[0].parameters[0].type = f32


# Uses and where things stand.


def test_uses_are_in_the_order_of_the_model_and_count_an_op_once():
    model = parse(LOOP)
    x = model.bodies[0].parameters[0]
    assert [op.NAME for op in x.uses] == ["scf.for", "arith.muli"]
    unit = named(model, "arith.constant").result
    assert [op.NAME for op in unit.uses] == ["scf.for", "scf.yield"]  # three operands of the loop, yet one use
    assert named(model, "return").result.uses == ()


def test_passing_a_value_to_a_successor_is_a_use():
    model = parse(BRANCHES)
    x, condition = model.bodies[0].parameters
    assert [op.NAME for op in x.uses] == ["cbranch", "arith.addi"]
    branch = model.bodies[0].entry.terminator
    assert branch.all_operands() == (condition, x)
    assert branch.operands == (condition,)
    loop = named(parse(LOOP), "scf.for")
    assert loop.all_operands() == loop.operands


def test_uses_are_unknown_while_building():
    b = Builder.root([i32], i32)
    (x,) = b.parameters
    total = b.add(arith.AddI(x, x))
    assert x.uses == ()
    b.add(core.Return([total]))
    core.Func("f", b.finish())
    assert [op.NAME for op in x.uses] == ["arith.addi"]


def test_uses_seen_before_an_op_is_placed_do_not_hide_those_after():
    b = Builder.root([i1], void)
    (condition,) = b.parameters
    c = b.add(arith.ConstantOp(1, i32))
    then, otherwise = b.nested([], i32), b.nested([], i32)
    d = then.add(arith.AddI(c, c))
    then.add(scf.Yield([d]))
    otherwise.add(scf.Yield([c]))
    choice = scf.If(condition, then.finish(), otherwise.finish())
    assert [op.NAME for op in d.uses] == ["scf.yield"]
    assert c.uses == ()
    b.add(choice)
    b.add(core.Return([]))
    core.Func("f", b.finish())
    assert [op.NAME for op in c.uses] == ["arith.addi", "scf.yield"]
    assert [op.NAME for op in d.uses] == ["scf.yield"]


def test_where_an_op_stands():
    model = parse(LOOP)
    product = named(model, "arith.muli")
    assert product.parent_op is not None and product.parent_op.NAME == "scf.if"
    assert product.root() is model
    assert model.root() is model and model.parent is None and model.parent_op is None
    assert product.result.block is product.parent
    assert model.result.block is None
    assert product.parent is not None and product.parent.parent.ancestor is named(model, "scf.for").bodies[0]


def test_blocks_know_their_neighbours():
    body = parse(BRANCHES).bodies[0]
    entry, left, right, join = body.blocks
    assert entry.successors == (left, right) and entry.predecessors == ()
    assert join.successors == () and join.predecessors == (left, right)
    assert [block.index for block in body.blocks] == [0, 1, 2, 3]
    assert body.entry is entry and body.parameters is entry.parameters
    assert [block.terminator.NAME for block in body.blocks] == ["cbranch", "branch", "branch", "return"]
    assert list(left) == list(left.ops)
    assert body.signature == FunctionType(i32, (i32, i1))


def test_walk_of_a_deep_model_is_not_recursive():
    depth = 2 * sys.getrecursionlimit()
    builders = [Builder.root((i1,))]
    condition = builders[0].parameters[0]
    builders += [builders[0].nested((), void)]
    while len(builders) < depth:
        builders.append(builders[-1].nested((), void))
    for outer, inner in zip(builders[-2::-1], builders[:0:-1], strict=True):
        inner.add(scf.Yield([]))
        otherwise = outer.nested((), void)
        otherwise.add(scf.Yield([]))
        outer.add(scf.If(condition, inner.finish(), otherwise.finish()))
    builders[0].add(core.Return([]))
    walked = list(builders[0].finish().walk())
    assert [type(op) for op in walked[: depth - 1]] == [scf.If] * (depth - 1)
    assert len(walked) == 3 * (depth - 1) + 1


def test_walk_is_outer_before_inner_in_order():
    model = parse(LOOP)
    names = [op.NAME for op in model.walk()]
    inner = ["arith.addi", "scf.if", "arith.muli", "scf.yield", "scf.yield", "scf.yield"]
    assert names == ["func", "arith.constant", "scf.for", *inner, "return"]
    assert [op.NAME for op in model.bodies[0].walk()] == names[1:]


def test_captured_values_are_those_from_outside_in_the_order_of_use():
    model = parse(LOOP)
    x, flag = model.bodies[0].parameters
    unit = named(model, "arith.constant").result
    total = named(model, "arith.addi").result
    assert model.captured_values() == ()
    assert named(model, "scf.for").captured_values() == (flag, x, unit)
    choice = named(model, "scf.if")
    assert choice.captured_values() == (total, x, unit)  # the condition is an operand, not captured
    assert choice.bodies[1].captured() == (unit,)


def test_captured_values_include_what_goes_to_successors():
    b = Builder.root([i32], i32)
    (x,) = b.parameters
    inner = b.nested([], i32)
    target = inner.new_block([i32])
    inner.add(core.Branch(Successor(target, [x])))
    inner.move_to(target)
    inner.add(core.Yield([target.parameters[0]]))
    assert inner.finish().captured() == (x,)


# Equality and hash.


def func_of(*values: object, type_=pyobject, name: str = "f") -> Op:
    b = Builder.root()
    for value in values:
        b.add(core.ConstantOp(value, type_))
    b.add(core.Return([]))
    return core.Func(name, b.finish())


DISTINCT = [
    1,
    True,
    1.0,
    0,
    False,
    0.0,
    -0.0,
    math.nan,
    math.inf,
    "1",
    "nan",
    None,
    (),
    (1,),
    (True,),
    (1.0,),
    i32,
    f32,
]


@pytest.mark.parametrize("left", range(len(DISTINCT)))
def test_constants_are_equal_to_themselves_and_to_no_other(left: int):
    for right in range(len(DISTINCT)):
        a, b = func_of(DISTINCT[left]), func_of(DISTINCT[right])
        assert same_model(a, b) == (left == right), (DISTINCT[left], DISTINCT[right])


@given(st.floats(), st.floats())
def test_floats_compare_by_their_text(x: float, y: float):
    assert same_model(func_of(x), func_of(y)) == (repr(x) == repr(y))
    assert same_model(func_of(x), func_of(float(x)))


def test_the_comparison_of_models_sees_each_part():
    model = parse(LOOP)
    assert same_model(model, parse(LOOP)) and model != parse(LOOP)
    for old, new in [
        ('"f"', '"g"'),  # an attribute
        ("arith.addi %4 %5", "arith.addi %5 %4"),  # the flow of values
        ("arith.muli", "arith.subi"),  # an op
        ("@1;", "@2;"),
        ("return %3", "return %2"),
        ("%1 : i1)i32", "%1 : i1, %100 : i1)i32"),  # a parameter nobody uses
    ]:
        assert old in LOOP
        assert not same_model(parse(LOOP.replace(old, new)), model), old
    assert not same_model(parse(BRANCHES), model)
    with pytest.raises(KernelTypeError, match=r"same_model: the model must be an Op; got a string"):
        same_model(model, LOOP)


def test_names_of_values_and_locations_do_not_count():
    assert same_model(parse(LOOP.replace("%6", "%sum")), parse(LOOP))
    assert same_model(parse(LOOP.replace('@"f"', '@loc="3:1:3:9:k.py" @"f"')), parse(LOOP))


def test_the_order_of_blocks_counts_by_flow_not_by_spelling():
    lines = BRANCHES.split("  ^")
    swapped = "  ^".join([lines[0], lines[2], lines[1], lines[3]])
    assert swapped != BRANCHES
    assert same_model(parse(swapped), parse(BRANCHES))  # blocks stand in reverse postorder, wherever they were written
    exchanged = BRANCHES.replace("^left ^right(%0)", "^right(%0) ^left")
    assert not same_model(parse(exchanged), parse(BRANCHES))


def test_the_type_of_a_result_counts():
    assert not same_model(func_of(1, type_=i32), func_of(1, type_=i64))


def test_ops_that_use_values_from_outside_are_the_same_when_these_are_the_same_values():
    b = Builder.root([i32, i32], i32)
    x, y = b.parameters
    assert same_model(arith.AddI(x, y), arith.AddI(x, y))
    assert not same_model(arith.AddI(x, y), arith.AddI(y, x))
    other = Builder.root([i32, i32], i32)
    assert not same_model(arith.AddI(*other.parameters), arith.AddI(x, y))

    def with_capture(value):
        inner = b.nested([], i32)
        inner.add(scf.Yield([value]))
        return inner.finish()

    flag = b.add(arith.ConstantOp(True, i1))
    make = lambda value: scf.If(flag, with_capture(value), with_capture(value))  # noqa: E731
    assert same_model(make(x), make(x))
    assert not same_model(make(x), make(y))


def test_constant_keys_are_hashable_and_tell_types_apart():
    keys = [constant_key(v) for v in (1, 1.0, True, "1", (1,), (1.0,), arith.IntPredicate.EQ, i32, None)]
    assert len(set(keys)) == len(keys)
    assert constant_key((math.nan,)) == constant_key((math.nan,))


def test_ops_are_keys_of_tables_by_identity():
    b = Builder.root([i32], i32)
    (x,) = b.parameters
    first, second = b.add(arith.AddI(x, x)), b.add(arith.AddI(x, x))
    assert same_model(first.op, second.op) and first.op != second.op
    assert len({first.op, second.op, first.op}) == 2


# How they look.


def test_repr_is_one_line_with_the_numbers_of_the_text():
    model = parse(LOOP)
    assert repr(named(model, "arith.muli")) == "<arith.muli %6 %0>"
    assert repr(model) == '<func @"f" {…}>'
    assert repr(named(model, "scf.if")) == "<scf.if %1 {…}>"
    assert repr(named(model, "arith.muli").result) == "<result of arith.muli : i32>"
    assert repr(model.bodies[0].parameters[1]) == "<parameter 1 : i1>"
    assert repr(model.bodies[0]) == "<body func<i32, i32, i1> of 1 blocks>"
    assert repr(model.bodies[0].entry) == "<block of 3 ops>"
    assert repr(parse(BRANCHES).bodies[0].entry.terminator.successors[1]) == "<successor with 1 arguments>"


def test_everything_has_a_repr_while_it_is_built():
    b = Builder.root([i32], i32)
    (x,) = b.parameters
    op = arith.AddI(x, x)
    assert repr(op) == "<arith.addi %free_0 %free_0>"
    b.add(op)
    assert repr(op) == "<arith.addi %free_0 %free_0>"
    assert repr(b.body) == "<body under construction>"
    assert repr(b.block) == "<block of 1 ops>"


def test_str_is_the_text():
    assert same_model(parse(str(parse(LOOP))), parse(LOOP))
    assert str(parse(LOOP)).splitlines()[1:3] == [
        "    %2 : i32 = arith.constant @1;",
        "    %3 : i32 = scf.for %2 %0 %2 %0 (%4 : i32, %5 : i32)i32 -> {",
    ]


class Checker(HTMLParser):
    """Sees that tags are closed in order, and gathers what is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.shown = ""
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.shown += data


@pytest.mark.parametrize("text", [LOOP, BRANCHES])
def test_html_is_well_formed_and_shows_the_text(text: str):
    model = parse(text)
    checker = Checker()
    checker.feed(model._repr_html_())
    checker.close()
    assert checker.open == [] and checker.tags == {"pre", "span"}
    assert checker.shown == str(model)


@given(st.text(max_size=20))
def test_html_escapes_what_strings_hold(text: str):
    model = func_of(f"<script>&{text}", "</pre>", name='<b>"x"')
    html = model._repr_html_()
    assert not re.search(r"<(?!/?(pre|span)\b)", html)
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    assert checker.shown == str(model)


# Declared ops.


def test_require():
    require(True, "not raised")
    with pytest.raises(BuildError, match="raised") as error:
        require(False, "raised", hint="try")
    assert error.value.hint == "try"


def test_ops_without_type_rule_give_void():
    assert core.Return([]).result.type is void
    assert cf.Br.infer_type is Op.infer_type


@pytest.mark.parametrize("name", sorted(OPS))
def test_each_op_is_documented(name: str):
    text = OPS[name].__dict__.get("__doc__")
    assert text and text[0] != " " and text.strip().endswith("."), f"{name} needs a docstring of sentences"


def test_the_generic_view_reads_as_the_fields():
    b = Builder.root([i32], i32)
    (x,) = b.parameters
    op = arith.CmpI(x, x, arith.IntPredicate.SLT)
    assert op.operands == (op.lhs, op.rhs) == (x, x)
    assert dict(op.attributes) == {"predicate": arith.IntPredicate.SLT}
    assert op.bodies == () and op.successors == () and op.location is None and op.parent is None
    assert op.result.op is op and op.result.type == i1
    names = core.Var(x, name="n", type=VarType(i32))
    assert names.initial is x and core.Var(type=VarType(i32)).initial is None
    assert isinstance(parse(LOOP).bodies[0], Body)
    assert py.Pack([x, x]).operands == (x, x)
    assert {tt.Load, math_ops.Exp} <= set(OPS.values())
