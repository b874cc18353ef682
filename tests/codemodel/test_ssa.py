"""SSA: golden cases as text, and random programs that must do the same before and after."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, cf, core, py, scf, tt
from ziggurat.codemodel.dominance import Dominance
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value, same_model
from ziggurat.codemodel.ssa import VariableFlow, promotable, ssa
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import TupleType, VarType, i32
from ziggurat.codemodel.verify import verify


def function(body: str) -> Op:
    return parse(f'tt.func @"f" (%n : i32, %c : i1)void -> {{ %0 : i32 = arith.constant @0; {body} tt.return; }};')


def check(before: str, after: str) -> None:
    result = ssa(function(before))
    verify(result)
    assert same_model(result, function(after)), f"\n{result}\nexpected\n{function(after)}"


def test_many_stores_in_a_block_take_linear_time(monkeypatch: pytest.MonkeyPatch):
    calls: list[Op] = []
    position = Dominance.position

    def counted(dominance: Dominance, op: Op) -> int:
        calls.append(op)
        return position(dominance, op)

    monkeypatch.setattr(Dominance, "position", counted)
    count = 500
    steps = "".join(f"%a{i} : i32 = var.load %v; var.store %v %a{i};" for i in range(count))
    check(f"""%v : Var<i32> = var %n @"v"; {steps} %b : i32 = var.load %v; tt.print %b @"";""", 'tt.print %n @"";')
    assert len(calls) < 20 * count


def test_straight_line():
    check(
        """%v : Var<i32> = var %n @"v"; %a : i32 = var.load %v; %b : i32 = arith.addi %a %0; var.store %v %b;
        %d : i32 = var.load %v; tt.print %d @"";""",
        """%b : i32 = arith.addi %n %0; tt.print %b @"";""",
    )


LOOP = "%1 : i32 = arith.constant @1; scf.for %0 %n %1"


def test_loop_carries_in_the_order_of_first_stores():
    check(
        f"""%a : Var<i32> = var %n @"a"; %b : Var<i32> = var %0 @"b";
        {LOOP} (%i : i32)void -> {{
            %x : i32 = var.load %a; %y : i32 = var.load %b; %z : i32 = arith.addi %x %y;
            scf.if %c ()void -> {{ var.store %b %z; scf.yield; }} ()void -> {{ scf.yield; }};
            var.store %a %i; scf.yield; }};
        %r : i32 = var.load %a; tt.print %r @"";""",
        f"""%t : Tuple<i32, i32> = {LOOP.split(";")[1]} %0 %n (%i : i32, %y : i32, %x : i32)Tuple<i32, i32> -> {{
            %z : i32 = arith.addi %x %y;
            %q : i32 = scf.if %c ()i32 -> {{ scf.yield %z; }} ()i32 -> {{ scf.yield %y; }};
            scf.yield %q %i; }};
        %b : i32 = tuple.load %t @0; %r : i32 = tuple.load %t @1; tt.print %r @"";""".replace(
            "%t :", "%1 : i32 = arith.constant @1; %t :"
        ),
    )


def test_only_what_a_load_sees_is_carried():
    # `a` is stored before it is read in the body and not read after; `b` is never read; `d` is stored again in between.
    check(
        f"""%a : Var<i32> = var %n @"a"; %b : Var<i32> = var %n @"b"; %d : Var<i32> = var @"d";
        {LOOP} (%i : i32)void -> {{
            var.store %a %i; var.store %b %i; var.store %d %i; %x : i32 = var.load %a; tt.print %x @""; scf.yield; }};
        var.store %d %0; %r : i32 = var.load %d; tt.print %r @"";""",
        f"""{LOOP} (%i : i32)void -> {{ tt.print %i @""; scf.yield; }}; tt.print %0 @"";""",
    )


def test_poison_stands_before_the_construct():
    check(
        """%a : Var<i32> = var @"a"; scf.if %c ()void -> { var.store %a %n; scf.yield; } ()void -> { scf.yield; };
        %r : i32 = var.load %a; tt.print %r @"";""",
        """%p : i32 = tt.poison;
        %r : i32 = scf.if %c ()i32 -> { scf.yield %n; } ()i32 -> { scf.yield %p; }; tt.print %r @"";""",
    )


def test_undefined_is_the_callers_choice():
    model = function(
        """%a : Var<i32> = var @"a"; scf.if %c ()void -> { var.store %a %n; scf.yield; } ()void -> { scf.yield; };
        %r : i32 = var.load %a; tt.print %r @"";"""
    )
    result = ssa(model, lambda builder, type_: builder.add(arith.ConstantOp(7, type_)))
    assert [op.value for op in result.walk() if isinstance(op, arith.ConstantOp)] == [0, 7]


def test_a_load_without_any_value_is_an_error():
    with pytest.raises(BuildError, match="variable 'lost' must have a value where it is read"):
        ssa(function("""%a : Var<i32> = var @"lost"; %r : i32 = var.load %a; tt.print %r @"";"""))


def test_while_carries_through_both_bodies():
    check(
        """%a : Var<i32> = var %n @"a"; %l : Var<i32> = var @"l";
        scf.while ()void -> { %x : i32 = var.load %a; %k : i1 = arith.cmpi %x %0 @sgt; scf.condition %k; }
                  ()void -> { %y : i32 = var.load %a; %z : i32 = arith.addi %y %n; var.store %a %z; var.store %l %y;
                              scf.yield; };
        %r : i32 = var.load %l; tt.print %r @"";""",
        """%p : i32 = tt.poison;
        %t : Tuple<i32, i32> = scf.while %n %p
            (%x : i32, %m : i32)Tuple<i32, i32> -> { %k : i1 = arith.cmpi %x %0 @sgt; scf.condition %k %x %m; }
            (%y : i32, %m : i32)Tuple<i32, i32> -> { %z : i32 = arith.addi %y %n; scf.yield %z %y; };
        %q : i32 = tuple.load %t @0; %r : i32 = tuple.load %t @1; tt.print %r @"";""",
    )


def test_a_loop_that_reads_in_its_second_body_makes_the_variable_live():
    check(
        """%a : Var<i32> = var %n @"a"; scf.if %c ()void -> { var.store %a %0; scf.yield; } ()void -> { scf.yield; };
        scf.while ()void -> { scf.condition %c; } ()void -> { %x : i32 = var.load %a; tt.print %x @""; scf.yield; };""",
        """%x : i32 = scf.if %c ()i32 -> { scf.yield %0; } ()i32 -> { scf.yield %n; };
        scf.while ()void -> { scf.condition %c; } ()void -> { tt.print %x @""; scf.yield; };""",
    )


def test_what_is_stored_wherever_a_body_goes_on_is_not_live_before():
    check(
        """%a : Var<i32> = var %n @"a"; scf.if %c ()void -> { var.store %a %0; scf.yield; } ()void -> { scf.yield; };
        scf.if %c ()void -> { tt.return; } ()void -> { var.store %a %0; scf.yield; };
        %r : i32 = var.load %a; tt.print %r @"";""",
        """scf.if %c ()void -> { scf.yield; } ()void -> { scf.yield; };
        %r : i32 = scf.if %c ()i32 -> { tt.return; } ()i32 -> { scf.yield %0; }; tt.print %r @"";""",
    )


def test_what_was_carried_keeps_its_place_one():
    check(
        """%a : Var<i32> = var %n @"a"; %1 : i32 = arith.constant @1;
        %s : i32 = scf.for %0 %n %1 %n (%i : i32, %e : i32)i32 -> { var.store %a %i; scf.yield %i; };
        %r : i32 = var.load %a; tt.print %s %r @"";""",
        """%1 : i32 = arith.constant @1;
        %t : Tuple<i32, i32> = scf.for %0 %n %1 %n %n (%i : i32, %e : i32, %b : i32)Tuple<i32, i32> -> {
            scf.yield %i %i; };
        %s : i32 = tuple.load %t @0; %r : i32 = tuple.load %t @1; tt.print %s %r @"";""",
    )


def test_what_was_carried_keeps_its_place_several():
    before = """%a : Var<i32> = var %n @"a";
        %s : Tuple<i32, i1> = scf.if %c ()Tuple<i32, i1> -> { var.store %a %0; scf.yield %n %c; }
            ()Tuple<i32, i1> -> { scf.yield %0 %c; };
        %v : i32 = var.load %a; %w : i1 = tuple.load %s @1;"""
    after = """%t : Tuple<i32, i1, i32> = scf.if %c ()Tuple<i32, i1, i32> -> { scf.yield %n %c %0; }
            ()Tuple<i32, i1, i32> -> { scf.yield %0 %c %n; };"""
    check(
        before + 'tt.print %v %w @"";',
        after + '%v : i32 = tuple.load %t @2; %w : i1 = tuple.load %t @1; tt.print %v %w @"";',
    )
    # Used as a whole, the old tuple is made again.
    check(
        before + 'tt.print %v %s @"";',
        after
        + """%x : i32 = tuple.load %t @0; %y : i1 = tuple.load %t @1; %s : Tuple<i32, i1> = tuple %x %y;
        %v : i32 = tuple.load %t @2; %w : i1 = tuple.load %s @1; tt.print %v %s @"";""",
    )


def test_a_single_value_that_is_a_tuple_is_one_value():
    check(
        """%a : Var<i32> = var %n @"a"; %p : Tuple<i32, i32> = tuple %n %n;
        %s : Tuple<i32, i32> = scf.if %c ()Tuple<i32, i32> -> { var.store %a %0; scf.yield %p; }
            ()Tuple<i32, i32> -> { scf.yield %p; };
        %v : i32 = var.load %a; %w : i32 = tuple.load %s @1; tt.print %v %w @"";""",
        """%p : Tuple<i32, i32> = tuple %n %n;
        %t : Tuple<Tuple<i32, i32>, i32> = scf.if %c ()Tuple<Tuple<i32, i32>, i32> -> { scf.yield %p %0; }
            ()Tuple<Tuple<i32, i32>, i32> -> { scf.yield %p %n; };
        %s : Tuple<i32, i32> = tuple.load %t @0; %v : i32 = tuple.load %t @1; %w : i32 = tuple.load %s @1;
        tt.print %v %w @"";""",
    )


def test_blocks_take_parameters_where_stores_meet():
    text = """tt.func @"f" (%n : i32, %c : i1)void -> {{ {entry} cf.cond_br %c ^a ^b;
          ^a: {a} ^b: {b} ^d{parameters}: tt.print {shown} @""; tt.return; }};"""
    before = text.format(
        entry='%v : Var<i32> = var %n @"v"; %dead : Var<i32> = var %n @"dead";',
        a="%1 : i32 = arith.constant @1; var.store %v %1; var.store %dead %1; cf.br ^d;",
        b="cf.br ^d;",
        parameters="",
        shown="%r",
    ).replace("^d: ", "^d: %r : i32 = var.load %v;")
    after = text.format(
        entry="",
        a="%1 : i32 = arith.constant @1; cf.br ^d(%1);",
        b="cf.br ^d(%n);",
        parameters="(%r : i32)",
        shown="%r",
    )
    result = ssa(parse(before))
    verify(result)
    assert same_model(result, parse(after)), str(result)


def test_stores_from_bodies_of_other_ops_keep_their_variable():
    model = parse(
        """func @"f" (%c : object)object -> {
            %a : Var<object> = var %c @"a"; %b : Var<object> = var %c @"b";
            if %c ()object -> { %d : Var<object> = var %c @"d"; var.store %a %c; %x : object = var.load %d;
                                var.store %d %x; %y : object = var.load %b; invoke %y %x @"g"; yield; }
                  ()object -> { yield; };
            %r : object = var.load %a; return %r; };""".replace("invoke", "%z : object = invoke")
    )
    result = ssa(model)
    verify(result)
    assert [op.name for op in result.walk() if isinstance(op, core.Var)] == ["a"]
    call = next(op for op in result.walk() if isinstance(op, py.Invoke))
    parameter = result.bodies[0].parameters[0]
    assert call.operands == (parameter, parameter)


def test_a_variable_used_as_a_value_is_kept():
    model = function('%a : Var<i32> = var %n @"a"; tt.print %a @"";')
    assert same_model(ssa(model), model)


def test_a_module_and_locations():
    text = """module ()void -> {
        tt.func @"f" (%n : i32)i32 -> { %v : Var<i32> = var %n @"v"; %a : i32 = var.load %v;
            %b : i32 = arith.addi %a %a @loc="3:4:3:9:k.py"; tt.return %b; };
        tt.func @"g" (%n : i32)i32 -> { %b : i32 = arith.addi %n %n; tt.return %b; };
        unreachable; };"""
    result = ssa(parse(text))
    assert isinstance(result, core.Module)
    f, g = result.functions().values()
    assert f.bodies == g.bodies or str(f).replace('"f"', '"g"') == str(g)
    add = next(op for op in f.walk() if isinstance(op, arith.AddI))
    assert add.location == Location("k.py", 3, 4, 3, 9)


# Random programs. A tiny evaluator says what a model does: the sequence of what it prints.


class _Poison:
    def __repr__(self) -> str:
        return "poison"


POISON = _Poison()


class OutOfFuel(Exception):
    pass


class Left(Exception):
    """The function is left."""


class Evaluator:
    def __init__(self, fuel: int = 400) -> None:
        self.values: dict[Value, Any] = {}
        self.variables: dict[Value, Any] = {}
        self.trace: list[Any] = []
        self.fuel = fuel

    def run(self, op: Op, arguments: list[Any]) -> list[Any]:
        try:
            self.body(op.bodies[0], arguments)
        except OutOfFuel:
            self.trace.append("out of fuel")
        except Left:
            pass
        return self.trace

    def body(self, body: Body, arguments: list[Any]) -> list[Any]:
        block: Block = body.entry
        while True:
            self.fuel -= 1
            if self.fuel < 0:
                raise OutOfFuel
            self.values.update(zip(block.parameters, arguments, strict=True))
            for op in block.ops[:-1]:
                self.op(op)
            last = block.terminator
            operands = [self.values[value] for value in last.operands]
            if isinstance(last, core.Return):
                raise Left
            if not last.successors:
                return operands
            target = last.successors[
                1 if isinstance(last, cf.CondBr | core.CondBranch) and operands[0] is not True else 0
            ]
            arguments = [self.values[value] for value in target.arguments]
            block = target.block

    def op(self, op: Op) -> None:
        operands = [self.values.get(value) for value in op.operands]
        self.values[op.result] = self.meaning(op, operands)

    def meaning(self, op: Op, operands: list[Any]) -> Any:
        match op:
            case arith.ConstantOp():
                return op.value
            case arith.AddI():
                return POISON if POISON in operands else (operands[0] + operands[1]) % 1000
            case arith.CmpI():
                return POISON if POISON in operands else operands[0] < operands[1]
            case tt.Poison():
                return POISON
            case tt.Print():
                self.trace.append(operands)
            case core.Var():
                self.variables[op.result] = operands[0] if operands else POISON
            case core.VarLoad():
                return self.variables[op.var]
            case core.VarStore():
                self.variables[op.var] = operands[1]
            case core.MakeTuple():
                return tuple(operands)
            case core.TupleLoad():
                return operands[0][op.index]
            case scf.If():
                return pack(self.body(op.bodies[operands[0] is not True], []))
            case scf.For():
                start, stop, step, *parameters = operands
                for index in range(start, stop, step):
                    parameters = self.body(op.body, [index, *parameters])
                return pack(parameters)
            case scf.While():
                while True:
                    going, *operands = self.body(op.before, operands)
                    if going is not True:
                        return pack(operands)
                    operands = self.body(op.after, operands)
            case py.CondExpression():
                return self.body(op.bodies[operands[0] is not True], [])[0]
            case _:
                raise NotImplementedError(op.NAME)


def pack(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


class Generator:
    """Random functions of two integers with variables, loops and ifs; `blocks` adds branches between blocks."""

    def __init__(self, rng: random.Random, foreign: bool = False) -> None:
        self.rng = rng
        self.foreign = foreign
        self.count = 0
        self.may_return = True

    def function(self, block_count: int) -> Op:
        builder = Builder.root([i32, i32])
        values: list[Value] = list(builder.parameters)
        variables: list[Value] = []
        for _ in range(self.rng.randint(2, 4)):
            variables.append(self.variable(builder, values))
        blocks = [builder.block, *(builder.new_block() for _ in range(block_count - 1))]
        for block in blocks:
            builder.move_to(block)
            # Values of other blocks need not dominate; the parameters of the function do.
            self.statements(builder, list(builder.entry.parameters), list(variables), 0)
            if block_count == 1 or self.rng.random() < 0.2:
                builder.add(tt.Print([self.load(builder, v) for v in variables if self.rng.random() < 0.6], ""))
                builder.add(core.Return([]))
            elif self.rng.random() < 0.4:
                builder.add(cf.Br(Successor(self.rng.choice(blocks[1:]))))
            else:
                targets = [Successor(self.rng.choice(blocks[1:])) for _ in range(2)]
                builder.add(cf.CondBr(self.condition(builder, list(builder.entry.parameters), variables), *targets))
        return core.Func("f", builder.finish())

    def variable(self, builder: Builder, values: list[Value]) -> Value:
        self.count += 1
        initial = None if self.rng.random() < 0.05 else self.rng.choice(values)
        return builder.add(core.Var(initial, name=f"v{self.count}", type=VarType(i32)))

    def load(self, builder: Builder, variable: Value) -> Value:
        return builder.add(core.VarLoad(variable))

    def expression(self, builder: Builder, values: list[Value], variables: list[Value]) -> Value:
        match self.rng.randrange(4):
            case 0:
                return builder.add(arith.ConstantOp(self.rng.randint(0, 9), i32))
            case 1:
                return self.load(builder, self.rng.choice(variables))
            case 2:
                return self.rng.choice(values)
            case _:
                return builder.add(
                    arith.AddI(self.expression(builder, values, variables), self.expression(builder, values, variables))
                )

    def condition(self, builder: Builder, values: list[Value], variables: list[Value]) -> Value:
        operands = [self.expression(builder, values, variables) for _ in range(2)]
        return builder.add(arith.CmpI(*operands, arith.IntPredicate.SLT))

    def statements(self, builder: Builder, values: list[Value], variables: list[Value], depth: int) -> None:
        for _ in range(self.rng.randint(1, 4)):
            choice = self.rng.randrange(10 if depth < 3 else 5)
            if choice < 3:
                builder.add(core.VarStore(self.rng.choice(variables), self.expression(builder, values, variables)))
            elif choice == 3:
                builder.add(tt.Print([self.expression(builder, values, variables)], ""))
            elif choice == 4:
                variables.append(self.variable(builder, values))
            elif choice in (5, 6):
                self.branch(builder, values, variables, depth)
            elif choice in (7, 8):
                self.loop(builder, values, variables, depth)
            else:
                self.other(builder, values, variables, depth)

    def unpack(self, builder: Builder, result: Value, count: int, values: list[Value]) -> None:
        if count == 1:
            values.append(result)
        elif count:
            if self.rng.random() < 0.3:
                parts = [builder.add(core.TupleLoad(result, index)) for index in range(count)]
                whole = builder.add(core.MakeTuple([result, *parts]))
                assert isinstance(whole.type, TupleType)
                result = builder.add(core.TupleLoad(whole, 0))
            values.append(builder.add(core.TupleLoad(result, self.rng.randrange(count))))

    def branch(self, builder: Builder, values: list[Value], variables: list[Value], depth: int) -> None:
        condition = self.condition(builder, values, variables)
        count = self.rng.choice([0, 0, 1, 2])
        bodies: list[Body] = []
        for part in range(2):
            inner = builder.nested([], scf.packed([i32] * count))
            scope, mine = list(values), list(variables)
            if part == 0 or self.rng.random() < 0.5:
                self.statements(inner, scope, mine, depth + 1)
            if part == 1 and self.may_return and self.rng.random() < 0.1:
                inner.add(core.Return([]))
            else:
                inner.add(scf.Yield([self.expression(inner, scope, mine) for _ in range(count)]))
            bodies.append(inner.finish())
        self.unpack(builder, builder.add(scf.If(condition, *bodies)), count, values)

    def loop(self, builder: Builder, values: list[Value], variables: list[Value], depth: int) -> None:
        count = self.rng.choice([0, 0, 1, 2])
        types = [i32] * count
        initial = [self.expression(builder, values, variables) for _ in range(count)]
        if self.rng.random() < 0.6:
            bounds = [builder.add(arith.ConstantOp(n, i32)) for n in (0, self.rng.randint(0, 3), 1)]
            inner = builder.nested([i32, *types], scf.packed(types))
            scope, mine = [*values, *inner.parameters], list(variables)
            self.statements(inner, scope, mine, depth + 1)
            inner.add(scf.Yield([self.expression(inner, scope, mine) for _ in range(count)]))
            result = builder.add(scf.For(*bounds, initial, body=inner.finish()))
        else:
            before = builder.nested(types, scf.packed(types))
            scope, mine = [*values, *before.parameters], list(variables)
            self.statements(before, scope, mine, depth + 1)
            parameters = [self.expression(before, scope, mine) for _ in range(count)]
            before.add(scf.Condition(self.condition(before, scope, mine), parameters))
            after = builder.nested(types, scf.packed(types))
            scope, mine = [*values, *after.parameters], list(variables)
            self.statements(after, scope, mine, depth + 1)
            after.add(scf.Yield([self.expression(after, scope, mine) for _ in range(count)]))
            result = builder.add(scf.While(initial, before.finish(), after.finish()))
        self.unpack(builder, result, count, values)

    def other(self, builder: Builder, values: list[Value], variables: list[Value], depth: int) -> None:
        condition = self.condition(builder, values, variables)
        bodies: list[Body] = []
        outer, self.may_return = self.may_return, False
        for _ in range(2):
            inner = builder.nested([], i32)
            scope, mine = list(values), [] if not self.foreign else list(variables)
            # Without `foreign` the body stores only to variables of its own; it still reads the others.
            mine.append(self.variable(inner, scope))
            self.statements(inner, scope, mine, depth + 1)
            inner.add(core.Yield([self.load(inner, self.rng.choice([*variables, *mine]))]))
            bodies.append(inner.finish())
        self.may_return = outer
        builder.add(py.CondExpression(condition, *bodies))


@given(st.integers(0, 1 << 32), st.sampled_from([1, 1, 1, 3, 6]), st.booleans())
@settings(max_examples=200)
def test_random_programs_do_the_same(seed: int, block_count: int, foreign: bool):
    model = Generator(random.Random(seed), foreign).function(block_count)
    try:
        result = ssa(model)
    except BuildError as error:
        assert "must have a value where it is read" in error.summary
        return
    verify(result)
    for arguments in ([0, 0], [3, 1], [1, 7]):
        assert Evaluator().run(result, arguments) == Evaluator().run(model, arguments), f"{model}\n{result}"
    if not foreign:
        assert not any(isinstance(op, core.Var | core.VarLoad | core.VarStore) for op in result.walk())
    assert same_model(ssa(result), result)
    assert same_model(parse(str(result)), result)


# The variables of a model: those that become values, and where their values go.


def function_of(body: str):
    model = parse(f'tt.func @"f" (%p : ptr<i32>, %n : i32, %b : i1)void -> {{ {body} tt.return; }};')
    variables = {op.name: op.result for op in model.walk() if isinstance(op, core.Var)}
    return model, variables


def promoted(body: str) -> list[str]:
    return [var.name for var in promotable(function_of(body)[0]).values()]


V = '%v : Var<i32> = var %n @"v"; '
W = '%w : Var<i32> = var %n @"w"; '
LOAD = "%x : i32 = var.load %v;"
IF = "scf.if %b ()void -> {{ {} scf.yield; }} ()void -> {{ {} scf.yield; }}; "


def test_what_is_only_loaded_and_stored_becomes_a_value():
    assert promoted(V + W + "var.store %v %n; %x : i32 = var.load %w;") == ["v", "w"]
    assert promoted(V + IF.format("var.store %v %n;", "")) == ["v"], "an if can hand it on"
    assert promoted('%v : Var<i32> = var @"v"; var.store %v %n;') == ["v"]


def test_what_is_used_otherwise_stays():
    assert promoted(V + W + "%t : Tuple<Var<i32>, i32> = tuple %v %n;") == ["w"]


def handed_by(body: str, kind: type[Structured]) -> list[str]:
    """The names of the variables that the first op of a kind hands on."""
    model, variables = function_of(body)
    op = next(op for op in model.walk() if isinstance(op, kind))
    names = {value: name for name, value in variables.items()}
    return [names[value] for value in VariableFlow(model, promotable(model)).handed(op)]


def test_which_variables_an_op_hands_on():
    stores = V + W + IF.format("var.store %w %n; var.store %v %n;", "var.store %w %n;")
    assert handed_by(stores + LOAD + "%y : i32 = var.load %w;", scf.If) == ["w", "v"], "by their first stores"
    assert handed_by(stores + LOAD, scf.If) == ["v"], "only what is loaded"
    assert handed_by(stores + "var.store %v %n;" + LOAD, scf.If) == [], "it has another value where it is loaded"


def test_a_variable_of_the_inside_is_not_handed_out():
    assert handed_by(IF.format(V + "var.store %v %n;" + LOAD, ""), scf.If) == []


def test_what_loops_and_ifs_give():
    model, _ = function_of(
        "%r : i32 = scf.if %b ()i32 -> { scf.yield %n; } ()i32 -> { scf.yield %n; };"
        "%l : i32 = scf.for %n %n %n %n (%i : i32, %c : i32)i32 -> { scf.yield %c; };"
    )
    branch, loop, _ = model.bodies[0].entry.ops
    assert [str(t) for t in branch.value_types] == ["i32"] and [str(t) for t in loop.value_types] == ["i32"]


def needs_initial(body: str) -> bool:
    """Whether the first value of the variable `v` is needed: without one, it is undefined, or there is an error."""
    try:
        return any(isinstance(op, tt.Poison) for op in ssa(function_of('%v : Var<i32> = var @"v";' + body)[0]).walk())
    except BuildError:
        return True


def test_values_through_an_if():
    for then, other, reads, sets in (
        ("var.store %v %n;", "var.store %v %n;", False, True),
        ("var.store %v %n;", "", False, False),
        (LOAD, "var.store %v %n;", True, False),
    ):
        branch = IF.format(then, other)
        assert needs_initial(branch) == reads
        assert needs_initial(branch + LOAD.replace("%x", "%y")) != sets


def test_a_loop_may_be_skipped_and_repeated():
    loop = "%c : i32 = arith.constant @1; scf.for %n %n %c (%i : i32)void -> { {} scf.yield; }; "
    loop = loop.replace("{}", LOAD + "var.store %v %i;")
    for after in ("", LOAD.replace("%x", "%y")):
        assert needs_initial(loop + after)
        assert handed_by(V + loop + after, scf.For) == ["v"], "the next iteration loads it"
