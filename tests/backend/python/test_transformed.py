"""Models that transforms changed are written as Python as well: what its text cannot hold is kept in variables."""

import itertools

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_objects as objects
from ziggurat.codemodel.errors import KernelTypeError, TargetError
from ziggurat.codemodel.types import pyobject


def tracer(builder, op, operands):
    """Note each value that a variable gets."""
    if isinstance(op, core.VarStore | core.Var) and operands and isinstance(op.operands[-1], zg.OpResult):
        name = op.name if isinstance(op, core.Var) else op.var.op.name
        result = builder.copy(op, operands)
        label = builder.add(core.ConstantOp(name, pyobject))
        builder.add(py.Invoke((label, operands[-1]), "note"))
        return result
    return None


def traced(f, *arguments):
    """What a function gives, and the values that the variables of its traced model got."""
    notes = []
    model = zg.transform(zg.reflect(f), tracer)
    zg.verify(model)
    compile(zg.to_python(model), "<text>", "exec")
    function = zg.to_function(model, note=lambda name, value: notes.append((name, value)))
    return function(*arguments), notes


def test_statements_between_assignments(define):
    f = define(
        "def f(x):\n    a = b = x + 1\n    (c, [d, *e]) = a, 'xyz'\n"
        "    for i in range(2):\n        c += i\n    return a, b, c, d, e"
    )
    result, notes = traced(f, 1)
    assert result == f(1)
    values = [("a", 2), ("b", 2), ("c", 2), ("d", "x"), ("e", ["y", "z"]), ("c", 2), ("c", 3)]
    assert notes == values


@pytest.mark.parametrize(
    "expression",
    [
        "x and (y := x + 1) and y * 2",
        "x > 5 or (y := x) > 0 or y",
        "(y := x) if x else (y := -1)",
        "0 < (y := x) < (z := y + 1) < (y := z)",
        "[x, (y := x + 1), y]",
        "sum([x, y := 3], y)",
    ],
)
def test_statements_in_parts_of_expressions(define, expression):
    f = define(f"def f(x):\n    y = z = 0\n    return {expression}, y, z")
    for x in (0, 1, 7):
        result, notes = traced(f, x)
        assert result == f(x)
        assert len(notes) >= 2


def test_a_statement_in_the_condition_of_a_loop(define):
    f = define(
        "def f(x):\n    while (x := x - 1) > 2:\n        if x == 5: break\n"
        "    else:\n        return 'else', x\n    return x"
    )
    for x in (1, 4, 9):
        result, notes = traced(f, x)
        assert result == f(x)
        assert notes and all(name == "x" for name, _ in notes)


def test_components_of_another_spread_are_refused():
    text = """func @"f" (%0 : object)object -> {
    %1 : object = spread %0 @count=2;
    %2 : object = unpack %1 @index=2 @count=3;
    return %2;
};"""
    with pytest.raises(TargetError, match="a spread of 2 cannot be unpacked into 3"):
        zg.to_python(zg.parse(text))


def test_what_has_no_form_is_said(define):
    f = define("def f(x):\n    return [y := a for a in x]")
    with pytest.raises(TargetError, match="a comprehension has statements in this model"):
        traced(f, (1, 2))


def test_a_value_that_is_used_twice_is_computed_once(define):
    f = define("def f(g, x):\n    return (g(x) + 1) * 2")

    def square(builder, op, operands):
        if isinstance(op, py.Mul):
            return builder.add(py.Mul(operands[0], operands[0]))
        return None

    model = zg.transform(zg.reflect(f), square)
    calls = []
    assert zg.to_function(model)(lambda x: calls.append(x) or 4, 3) == 25
    assert calls == [3]


def test_values_out_of_order_keep_their_order(define):
    f = define("def f(g):\n    return g(1) - g(2)")

    def exchanged(builder, op, operands):
        return builder.add(py.Sub(*reversed(operands))) if isinstance(op, py.Sub) else None

    calls = []

    def g(x):
        calls.append(x)
        return x

    assert zg.to_function(zg.transform(zg.reflect(f), exchanged))(g) == 1
    assert calls == [1, 2]


def test_a_value_of_a_body_around_is_computed_before(define):
    f = define("def f(x, g):\n    y = g(x)\n    if y:\n        return y + g(1)\n    return 0")

    def without_the_variable(builder, op, operands):
        if isinstance(op, core.Var) and op.name == "y":
            return operands[0]
        if isinstance(op, core.VarLoad) and op.var.op.name == "y":
            return operands[0]
        return None

    model = zg.transform(zg.reflect(f), without_the_variable)
    calls = []
    assert zg.to_function(model)(5, lambda x: calls.append(x) or x) == 6
    assert calls == [5, 1]


def test_an_augmented_assignment_whose_parts_are_apart(define):
    f = define("def f(x, y):\n    x.a += y\n    y[0] -= 1\n    return x.a, y")

    def noted(builder, op, operands):
        if isinstance(op, objects.InPlace):
            builder.add(py.Invoke((operands[1],), "print"))
        return None

    model = zg.transform(zg.reflect(f), noted)
    numbers = []
    function = zg.to_function(model, print=numbers.append)

    class Thing:
        def __init__(self):
            self.a = [0]

    assert function(Thing(), [2]) == ([0, 2], [1])
    assert numbers == [[1], 1]  # The list that was numbers has changed since.


def test_names_that_meet_are_told_apart(define):
    f = define("def f(x):\n    def g(y):\n        return x + y\n    return g(2)")
    names = itertools.cycle("x")

    def renamed(builder, op, operands):
        if isinstance(op, core.Var):
            return builder.add(core.Var(operands[0] if operands else None, name=next(names), type=op.type))
        return None

    model = zg.transform(zg.reflect(f), renamed)
    assert zg.to_function(model)(1) == 3


def test_a_kernel_is_written_in_its_own_calls():
    @zg.kernel
    def scale(x, n, B: zg.constexpr):
        i = zg.program_id(0) * B + zg.arange(0, B)
        zg.store(x + i, zg.load(x + i, mask=i < n) * 2.0, mask=i < n)

    text = zg.to_python(scale.model)
    assert "i = zg.program_id(0) * B + zg.arange(0, B)" in text
    assert "zg.store(x + i, zg.load(x + i, mask=i < n) * 2.0, mask=i < n)" in text


def test_the_function_shows_the_places_of_its_model(define):
    f = define("def f(x):\n\n    return (1 +\n        1 / x)")
    with pytest.raises(ZeroDivisionError) as info:
        zg.to_function(zg.reflect(f))(0)
    entry = info.traceback[-1]
    assert (str(entry.path), entry.lineno + 1, entry.name) == (f.__code__.co_filename, 4, "f")


def test_the_function_is_like_another(define):
    make = define(
        "def f(k):\n    def g(x=1, *, y: int = 2):\n        'doc'\n        return x + y + k + h\n    return g", h=100
    )
    g = make(10)
    copy = zg.to_function(zg.reflect(g), like=g)
    assert copy() == g() == 113
    assert (copy.__doc__, copy.__name__, copy.__qualname__) == ("doc", "g", "f.<locals>.g")
    assert copy.__kwdefaults__ == {"y": 2} and copy.__annotations__ == {"y": int}
    with pytest.raises(KernelTypeError, match="needs k of a function around it"):
        zg.to_function(zg.reflect(g))
    assert zg.to_function(zg.reflect(g), k=1, h=1)(5, y=3) == 10


def test_what_is_no_function_is_refused():
    model = next(op for op in zg.reflect(lambda: 1).walk() if isinstance(op, core.ConstantOp))
    with pytest.raises(TargetError, match="the model must be a func"):
        zg.to_python(model)
    with pytest.raises(KernelTypeError):
        zg.to_python("text")


def test_parts_of_kernels():
    @zg.kernel
    def kernel(x, n):
        sizes = [i + 1 for i in (1, 2, 3) if i > 1]
        if n:
            x.a = sizes
        return sizes

    text = zg.to_python(kernel.model)
    assert "sizes = [i + 1 for i in (1, 2, 3) if i > 1]" in text
    assert "x.a = sizes" in text


def test_loops_without_early_exits(define):
    from ziggurat.frontends.reflection import reflect
    from ziggurat.transforms.early_exits import early_exits

    f = define(
        "def f(x, n):\n    for i in range(n):\n        if i == x:\n            break\n        n += i\n"
        "    while n > 0:\n        n -= 1\n        if n == x: break\n        n -= 1\n    return n, x"
    )
    model = early_exits(reflect(f))
    assert any(isinstance(op, py.For | py.While) and op.flag is not None for op in model.walk())
    function = zg.to_function(model)
    for x in range(5):
        for n in (0, 2, 4, 6):
            assert function(x, n) == f(x, n)


def test_an_op_that_python_has_no_words_for():
    model = zg.parse(
        'func @"f" ()object -> {\n    %0 : object = error @"no" @kind="KernelNameError";\n    return %0;\n};'
    )
    with pytest.raises(TargetError, match="'error' has no form in Python's source"):
        zg.to_python(model)


WRAPPED = """
    import functools

    def twice(g):
        @functools.wraps(g)
        def wrapper(*arguments, **keywords):
            return 2 * g(*arguments, **keywords)

        wrapper.mark = "wrapper"
        return wrapper

    def f():
        k = 10

        @twice
        def g(x, y=2, *, z=3):
            return x + y + z + k + h

        return g

    h = 100
"""


@pytest.mark.parametrize("make", [zg.to_function, zg.interpret])
def test_like_may_be_a_wrapper(define, make):
    g = define(WRAPPED)()
    function = make(zg.reflect(g), like=g)
    assert function(1) == 1 + 2 + 3 + 10 + 100 and g(1) == 2 * function(1)
    assert function(1, 1, z=1) == 113
    assert make(zg.reflect(g), like=g, k=0, h=0)(1) == 6
    assert "mark" not in vars(function)


class Counter:
    def __init__(self):
        self.total = 0

    def add(self, n=1):
        self.total += n
        return self.total

    def __call__(self, n=5):
        return self.add(n)


@pytest.mark.parametrize("make", [zg.to_function, zg.interpret])
def test_like_may_be_a_method_or_an_object(make):
    counter = Counter()
    assert make(zg.reflect(counter.add), like=counter.add)(counter) == 1
    assert make(zg.reflect(counter), like=counter)(counter) == 6
    with pytest.raises(zg.BuildError, match="`like` must be a Python function"):
        make(zg.reflect(counter), like=len)


@pytest.mark.parametrize("make", [zg.to_function, zg.interpret])
def test_a_function_keeps_the_model_that_it_was_made_of(define, make):
    def negated(builder, op, operands):
        return builder.add(py.Sub(*operands)) if isinstance(op, py.Add) else None

    f = define("def f(x, y):\n    return x + y + h", h=1)
    changed = zg.transform(zg.reflect(f), negated)
    function = make(changed, like=f)
    assert function(5, 2) == 2
    assert zg.reflect(function) is changed
    assert zg.reflect(f) is not changed and "add" in str(zg.reflect(f))
    q = zg.quote(function)
    assert q.model is changed and q.captured == {"h": 1} and q(5, 2) == 2
    again = make(zg.reflect(function), like=function)
    assert again(5, 2) == 2 and zg.reflect(again) is changed
    with pytest.raises(zg.KernelSyntaxError, match="'f' is a function made of a model") as info:
        _ = zg.kernel(function).model
    assert "zg.kernel(source=zg.to_python(model))" in info.value.hint


def test_a_function_with_other_code_has_the_model_of_its_source(define):
    f = define("def f(x):\n    return x + 1")
    function = zg.to_function(zg.reflect(f))
    function.__code__ = define("def f(x):\n    return x * 2").__code__
    assert zg.to_python(zg.reflect(function)).endswith("return x * 2")


@pytest.mark.parametrize("text", ["", "int; y", "x = 1", "list[", "a\\u0000"])
def test_an_annotation_that_is_not_python(define, text):
    model = str(zg.reflect(define("def f(x):\n    y: int = x\n    return y")))
    assert '@text="int"' in model
    with pytest.raises(TargetError, match="the annotation of a variable must be"):
        zg.to_python(zg.parse(model.replace('@text="int"', f'@text="{text}"')))


def test_a_function_without_its_variables_keeps_the_names_of_its_parameters(define):
    f = define(
        "def f(a, b=2):\n    c = a + 2 * 3\n    b = b << 70\n    return (c * c, b, 'x' * 3, 1 / 0, '%99999d' % 1)\n"
    )
    model = zg.kit.ssa(zg.simplify(zg.reflect(f)))
    text = zg.to_python(model)
    assert "def f(a, b=2):" in text and "= a + 6" in text and "<< 70" in text and "'xxx', 1 / 0, '%99999d' % 1" in text
    g = define("def f(a, b):\n    c = a - b\n    return c * c\n")
    model = zg.kit.ssa(zg.reflect(g))
    assert not any(op.NAME.startswith("var") for op in model.walk())
    for same in (zg.to_function(model), zg.interpret(model), zg.to_function(zg.reflect(zg.to_function(model)))):
        assert same(b=1, a=4) == g(4, 1) == 9
    zg.verify(model)
    assert zg.same_model(zg.parse(str(model)), model)
