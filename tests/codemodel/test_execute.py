"""Python code models run on Python values."""

import pytest

from ziggurat.codemodel import dialects, interpreted  # noqa: F401
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelNameError, KernelRuntimeError
from ziggurat.codemodel.execute import execute, python
from ziggurat.codemodel.text.parser import parse


def function(body, parameters="%a : object, %b : object"):
    return parse(f'func @"f" ({parameters})object -> {{ {body} }};')


def test_every_op_has_a_meaning():
    for dialect, without in ((core, {"module", "func"}), (py, set())):
        ops = [cls for cls in OPS.values() if cls.__module__ == dialect.__name__]
        assert set(python.missing(ops)) == without


def test_formats_comprehensions_and_items_of_tuples_as_arguments():
    model = function("""
        %k : object = constant @2; %o : object = outer @"scale";
        %c : object = comprehension
            ()object -> { yield %a; }
            (%i : object)object -> { %t : object = gt %i %b; yield %t; }
            (%j : object)object -> { %u : object = call %o %j; yield %u; };
        %m : object = invoke %c %k @"builtins.max" @starred=[0];
        %f : object = format %m %c @"{0:>4}|{1!r}";
        return %f;
    """)
    assert execute(model, ((1, 5, 3), 2), host={"scale": lambda x: 10 * x}) == "  50|(50, 30)"
    with pytest.raises(KernelNameError, match="'scale' has no meaning on the host"):
        execute(model, ((3,), 2))


BINARY = {
    "add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b",
    "floordiv": "a // b", "mod": "a % b", "pow": "a ** b",
    "and": "a & b", "or": "a | b", "xor": "a ^ b", "shl": "a << b", "shr": "a >> b", "eq": "a == b", "ne": "a != b",
    "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b", "is": "a is b", "is_not": "a is not b",
}  # fmt: skip


@pytest.mark.parametrize("op", BINARY)
def test_operators(op):
    model = function(f"%c : object = {op} %a %b; return %c;")
    for a, b in [(7, 3), (3, 3), (-7, 2)]:
        assert execute(model, (a, b)) == eval(BINARY[op])


def test_unary_operators_and_containers():
    model = function("""
        %n : object = neg %a; %p : object = pos %b; %i : object = invert %a; %t : object = not %a;
        %c : object = pack %n %p %i %t; %in : object = in %a %b; %ni : object = not_in %a %b;
        %d : object = pack %c %in %ni; return %d;""")
    with pytest.raises(KernelRuntimeError, match="TypeError"):
        execute(model, (3, (3, 4)))
    model = function("""
        %in : object = in %a %b; %ni : object = not_in %a %b; %k : object = constant @1; %s : object = subscript %b %k;
        %u : object = unpack %b @index=0 @count=2; %n : object = neg %a; %i : object = invert %a; %t : object = not %a;
        %d : object = pack %in %ni %s %u %n %i %t; return %d;""")
    assert execute(model, (3, (3, 4))) == (True, False, 4, 3, -3, -4, False)
    with pytest.raises(KernelRuntimeError, match=r"3 value\(s\) are unpacked into 2 names"):
        execute(model, (3, (3, 4, 5)))


LOOPS = """
    %zero : object = constant @0;
    %total : Var<object> = var %zero @"total";
    for ()object -> {
        %r : object = invoke %a @"builtins.range";
        yield %r;
    } (%item : object)object -> {
        %i : Var<object> = var %item @"i";
        while ()object -> {
            %x : object = var.load %i;
            %c : object = gt %x %zero;
            yield %c;
        } ()object -> {
            %x : object = var.load %i;
            %one : object = constant @1;
            %y : object = sub %x %one;
            var.store %i %y;
            %t : object = var.load %total;
            %u : object = add %t %x;
            var.store %total %u;
            %big : object = gt %u %b;
            if %big ()object -> { return %u; } ()object -> { yield; };
            yield;
        };
        yield;
    };
    %t : object = var.load %total;
    return %t;"""


def source(a, b):
    total = 0
    for item in range(a):
        i = item
        while i > 0:
            x = i
            i = x - 1
            total = total + x
            if total > b:
                return total
    return total


def test_source_and_model_agree_on_control_flow():
    model = function(LOOPS)
    for a in range(7):
        for b in (5, 17, 100):
            assert execute(model, (a, b)) == source(a, b)


def test_short_circuits_run_no_more_than_python():
    text = []
    host = {"zg.say": lambda value: text.append(value) or value}
    parts = """()object -> { %x : object = invoke %a @"zg.say"; yield %x; }
        ()object -> { %y : object = invoke %b @"zg.say"; yield %y; }"""
    for op, meaning in (("cand", lambda a, b: a and b), ("cor", lambda a, b: a or b)):
        for a, b in [(0, 2), (1, 2), (3, 0)]:
            text.clear()
            assert execute(function(f"%c : object = {op} {parts}; return %c;"), (a, b), host=host) == meaning(a, b)
            assert text == ([a, b] if bool(a) == (op == "cand") else [a])
    choice = function(f"%c : object = cexpression %a {parts}; return %c;")
    text.clear()
    assert execute(choice, (0, 9), host=host) == 9
    assert text == [9]


MODULE = """
module ()void -> {
    func @"fib" (%n : object)object -> {
        %two : object = constant @2;
        %one : object = constant @1;
        %c : object = lt %n %two;
        if %c ()object -> { return %n; } ()object -> { yield; };
        %p : object = sub %n %one;
        %q : object = sub %n %two;
        %x : object = func.call %p @"fib";
        %y : object = func.call %q @"fib";
        %z : object = add %x %y;
        return %z;
    };
    func @"main" (%n : object)object -> {
        %f : object = func.ref @"fib";
        %r : object = invoke %n %f @"zg.apply" @keywords=["function"];
        return %r;
    };
    unreachable;
};"""


def test_calls_recursion_and_functions_as_values():
    module = parse(MODULE)
    assert execute(module, (10,), symbol="fib") == 55
    assert execute(module, (10,), symbol="main", host={"zg.apply": lambda n, function: function(n)}) == 55
    with pytest.raises(KernelNameError, match="say which function to run: fib, main"):
        execute(module, (1,))
    with pytest.raises(KernelNameError, match="no function 'x'"):
        execute(module, (1,), symbol="x")


def test_methods_attributes_and_builtins():
    model = function("""
        %m : object = invoke %a %b @".count";
        %k : object = invoke %m %b @"builtins.max";
        %i : object = attribute %b @"imag";
        %t : object = pack %m %k %i;
        return %t;""")
    assert execute(model, ([1, 2, 2], 2)) == (2, 2, 0)


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (
            '%v : Var<object> = var @"v"; %x : object = var.load %v; return %x;',
            KernelNameError,
            "'v' has no value here",
        ),
        ('%x : object = invoke %a @"zg.load"; return %x;', KernelNameError, "'zg.load' has no meaning on the host"),
        ("%x : object = div %a %b; return %x;", KernelRuntimeError, "ZeroDivisionError: division by zero"),
        ('%m : object = constant @"why"; assert %b %m; return %a;', KernelRuntimeError, "assertion failed: why"),
        ('%x : object = func.call %a @"g"; return %x;', KernelNameError, "no function 'g'"),
        ("unreachable;", KernelRuntimeError, "unreachable"),
    ],
)
def test_failures(body, error, message):
    with pytest.raises(error, match=message):
        execute(function(body), (1, 0))


def test_failures_know_their_place():
    with pytest.raises(KernelRuntimeError) as error:
        execute(function('%x : object = div %a %b @loc="3:8:3:13:kernel.py"; return %x;'), (1, 0))
    assert str(error.value.location) == "kernel.py:3:9"
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_blocks():
    model = function("""
        branch ^head(%a, %b);
      ^head(%x : object, %y : object):
        cbranch %y ^body ^end;
      ^body:
        %r : object = mod %x %y;
        branch ^head(%y, %r);
      ^end:
        return %x;""")
    assert execute(model, (48, 18)) == 6
