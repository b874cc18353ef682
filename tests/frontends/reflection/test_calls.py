"""Calls: of the language, of builtins, of methods, of functions; how arguments find their parameters."""

import math

import pytest

import ziggurat as zg
from ziggurat.codemodel.errors import KernelSyntaxError, KernelTypeError


@zg.function
def helper(a, b=2, *, c, d=None):
    return a


@zg.function
def strict(a, /, b):
    return a


@zg.function
def with_function(a, f=helper):
    return a


def plain(a):
    return a


NAMES = {
    "helper": helper,
    "strict": strict,
    "with_function": with_function,
    "plain": plain,
    "math": math,
}


def test_language_call_with_keywords(lines):
    assert lines("zg.load(x, other=0.0, mask=y)") == [
        "%6 : object = var.load %3;",
        "%7 : object = constant @0.0;",
        "%8 : object = var.load %4;",
        '%9 : object = invoke %6 %7 %8 @"zg.load" @keywords=["other", "mask"];',
        "return;",
    ]


def test_method_of_a_value(lines):
    assert lines("a = x.load((0, n), mask=y)")[-3:] == [
        '%11 : object = invoke %6 %9 %10 @".load" @keywords=["mask"];',
        '%12 : Var<object> = var %11 @"a";',
        "return;",
    ]


@pytest.mark.parametrize(
    "call",
    ["range", "min(x, y)", "max(x, y, n)", "abs(x)", "len(x)", "int(x)", "float('inf')", "bool(x)", "print()"],
)
def test_builtins(lines, call):
    name = call.split("(")[0]
    text = "\n".join(lines("for i in range(x, y, n):\n    pass" if call == "range" else f"a = {call}"))
    assert f'@"builtins.{name}"' in text


def test_isinstance_takes_classes_by_name(lines):
    assert lines("a = isinstance(x, int)")[1:3] == [
        '%7 : object = constant @"builtins.int";',
        '%8 : object = invoke %6 %7 @"builtins.isinstance";',
    ]
    assert '@["builtins.float", "builtins.tuple"]' in lines("a = isinstance(x, (float, tuple))")[1]


def test_function_call_in_the_order_of_its_parameters(lines):
    assert lines("helper(c=x, a=y)", **NAMES) == [
        "%6 : object = var.load %3;",
        "%7 : object = var.load %4;",
        "%8 : object = constant @2;",
        "%9 : object = constant @null;",
        '%10 : object = func.call %7 %8 %6 %9 @"helper";',
        "return;",
    ]


def test_default_that_is_a_function(lines):
    assert lines("with_function(x)", **NAMES)[1:3] == [
        '%7 : object = func.ref @"helper";',
        '%8 : object = func.call %6 %7 @"with_function";',
    ]


@pytest.mark.parametrize(
    ("call", "message", "marked", "hint"),
    [
        ("zg.load()", "zg.load needs its argument 'ptr'", "zg.load()", "zg.load(ptr, mask=None"),
        (
            "zg.program_id(1, 2)",
            "zg.program_id takes at most 1 positional argument; got 2",
            "zg.program_id(1, 2)",
            "",
        ),
        ("zg.load(x, maks=y)", "zg.load has no parameter 'maks'", "maks=y", "did you mean mask?"),
        ("zg.load(x, ptr=y)", "zg.load got 'ptr' twice", "ptr=y", ""),
        ("abs(x, y)", "abs() takes 1 argument; got 2", "abs(x, y)", ""),
        ("isinstance(x)", "isinstance() takes 2 arguments; got 1", "isinstance(x)", ""),
        ("max()", "max() takes at least 1 argument; got 0", "max()", ""),
        ("max(x, key=y)", "max() takes no keyword arguments in a kernel", "key=y", ""),
        (
            "helper(1, 2, 3, c=4)",
            "helper takes at most 2 positional arguments; got 3",
            "helper(1, 2, 3, c=4)",
            "helper(a, b=2",
        ),
        ("helper(1)", "helper needs its argument 'c'", "helper(1)", "helper(a, b=2"),
        ("helper(1, e=1)", "helper has no parameter 'e'", "e=1", "helper(a, b=2"),
        ("helper(1, a=1, c=1)", "helper got 'a' twice", "a=1", ""),
        ("strict(a=1, b=2)", "strict takes 'a' by position", "a=1", ""),
    ],
)
def test_arguments_that_do_not_fit(fail, call, message, marked, hint):
    (failure,) = fail(f"a = {call}", **NAMES)
    assert isinstance(failure.error, KernelTypeError)
    assert failure.summary == message
    assert failure.marked == marked
    assert hint in failure.hint


@pytest.mark.parametrize(
    ("call", "count"),
    [
        ("min()", "at least 1 argument; got 0"), ("abs()", "1 argument; got 0"), ("len()", "1 argument; got 0"),
        ("len(x, y)", "1 argument; got 2"), ("int(x, y)", "1 argument; got 2"), ("float(x, y)", "1 argument; got 2"),
        ("float()", "1 argument; got 0"), ("int()", "1 argument; got 0"),
        ("bool()", "1 argument; got 0"), ("bool(x, y)", "1 argument; got 2"), ("str()", "1 argument; got 0"),
        ("str(x, y)", "1 argument; got 2"), ("repr()", "1 argument; got 0"), ("repr(x, y)", "1 argument; got 2"),
        ("isinstance(x, int, y)", "2 arguments; got 3"), ("getattr(x)", "2 to 3 arguments; got 1"),
        ("getattr(x, 'a', y, y)", "2 to 3 arguments; got 4"), ("hasattr(x)", "2 arguments; got 1"),
        ("hasattr(x, 'a', y)", "2 arguments; got 3"), ("list(x, y)", "0 to 1 argument; got 2"),
        ("tuple(x, y)", "0 to 1 argument; got 2"),
    ],
)  # fmt: skip
def test_numbers_of_arguments_of_builtins(fail, call, count):
    (failure,) = fail(f"a = {call}", **NAMES)
    assert failure.summary == f"{call.partition('(')[0]}() takes {count}"


def test_range_that_does_not_fit(fail):
    failures = fail("for i in range():\n    pass\nfor j in zg.range(1, stages=2):\n    pass")
    assert [f.summary for f in failures] == [
        "range() takes 1 to 3 arguments; got 0",
        "zg.range has no parameter 'stages'",
    ]
    assert [f.marked for f in failures] == ["range()", "stages=2"]
    assert "did you mean num_stages?" in failures[1].hint


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (
            "plain(x)",
            "a kernel cannot call 'plain', which is a plain Python function",
            "decorate plain with @zg.function",
        ),
        ("zip(x, y)", "a kernel cannot call the builtin 'zip'", "for i in zg.static_range(len(a))"),
        ("enumerate(x)", "a kernel cannot call the builtin 'enumerate'", "with the items a[i]"),
        ("reversed(x)", "a kernel cannot call the builtin 'reversed'", "a[len(a) - 1 - i]"),
    ],
)
def test_call_of_something_else(fail, call, message, hint):
    (failure,) = fail(f"a = {call}", five=5, **NAMES)
    assert isinstance(failure.error, KernelSyntaxError)
    assert failure.summary == message
    assert failure.marked == call.split("(")[0]
    assert hint in failure.hint


def test_launch_in_a_kernel(fail):
    (failure,) = fail("helper[(1,)](x)", **NAMES)
    assert failure.summary == "a kernel cannot use kernel[grid](…)"
    assert "@zg.function" in failure.hint


def test_a_global_shadows_a_builtin(lines):
    assert '@"helper"' in lines("a = max(x, c=y)", max=helper)[-3]
    ops = lines("range = x\nfor i in range(3):\n    pass")
    assert not any("builtins.range" in line for line in ops)
    assert "        %10 : object = call %8 %9;" in ops


def test_call_of_a_variable(lines):
    assert lines("x(y, c=n)") == [
        "%6 : object = var.load %3;",
        "%7 : object = var.load %4;",
        "%8 : object = var.load %5;",
        '%9 : object = call %6 %7 %8 @keywords=["c"];',
        "return;",
    ]


def test_call_of_the_value_of_an_expression(lines):
    assert lines("x[0](y)") == [
        "%6 : object = var.load %3;",
        "%7 : object = constant @0;",
        "%8 : object = subscript %6 %7;",
        "%9 : object = var.load %4;",
        "%10 : object = call %8 %9;",
        "return;",
    ]


def test_tuple_of_functions_from_outside(lines):
    assert lines("a = ALL", ALL=(helper, 3)) == [
        '%6 : object = func.ref @"helper";',
        "%7 : object = constant @3;",
        "%8 : object = pack %6 %7;",
        '%9 : Var<object> = var %8 @"a";',
        "return;",
    ]
