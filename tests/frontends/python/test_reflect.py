"""Which functions have models, and what the models name."""

import functools

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelSyntaxError

scale = 3


class Point:
    """A class whose methods have models."""

    __slots__ = ("__x",)

    def __init__(self, x):
        self.__x = x

    @property
    def x(self):
        return self.__x

    @staticmethod
    def origin():
        return Point(0)

    @classmethod
    def of(cls, x):
        return cls(x)

    def __repr__(self):
        return f"Point({self.__x!r})"


def test_methods_of_all_kinds():
    point = Point(2)
    for function, name in (
        (Point.__init__, "__init__"),
        (point.__repr__, "__repr__"),
        (Point.x, "x"),
        (Point.origin, "origin"),
        (Point.of, "of"),
        (vars(Point)["of"], "of"),
    ):
        assert zg.reflect(function).sym_name == f"Point.{name}"


def test_private_names_are_those_of_the_class():
    copy = zg.to_function(zg.reflect(Point.__repr__), like=Point.__repr__)
    assert copy(Point(4)) == "Point(4)"
    assert '@"_Point__x"' in str(zg.reflect(Point.__repr__))


def test_wrappers_have_the_model_of_the_function():
    def twice(f):
        @functools.wraps(f)
        def wrapper(*arguments):
            return 2 * f(*arguments)

        return wrapper

    @twice
    def inner(a):
        return a + scale

    assert zg.reflect(inner).sym_name.endswith(".inner")
    assert zg.reflect(functools.partial(inner, 1)).sym_name.endswith(".inner")
    assert zg.reflect(functools.cache(inner)).sym_name.endswith(".inner")


def test_lambdas_of_one_line_are_told_apart():
    first, second, third = (lambda x: x + 1), (lambda x: x * 2), (lambda y: y + 1)
    assert [zg.to_python(zg.reflect(f)) for f in (first, second, third)] == [
        "lambda x: x + 1", "lambda x: x * 2", "lambda y: y + 1",
    ]  # fmt: skip


def test_names_from_outside_are_names():
    def f(x):
        return x * scale + len(x) + k

    k = 1
    model = zg.reflect(f)
    outer = [op.name for op in model.walk() if isinstance(op, py.Outer)]
    assert outer == ["scale", "k"] and model.free == ("k",)
    assert [op.callee for op in model.walk() if isinstance(op, py.Invoke)] == ["len"]


def test_a_variable_is_one_of_its_function():
    def f(x):
        def g():
            nonlocal x
            x += 1
            return [x for _ in range(2)]

        for x in (1, 2):
            g()
        return x

    model = zg.reflect(f)
    names = [op.name for op in model.walk() if isinstance(op, core.Var)]
    assert sorted(names) == ["_", "g", "x"]
    assert zg.to_function(model)(0) == 3


def test_places_are_those_of_the_text():
    def f(x):
        return x.a[0]

    op = next(op for op in zg.reflect(f).walk() if isinstance(op, py.Subscript))
    assert op.location.source_line()[op.location.column : op.location.end_column] == "x.a[0]"


def test_kernels_have_models_of_this_tier():
    @zg.kernel
    def kernel(x):
        zg.store(x, 1.0)

    assert [op.callee for op in zg.reflect(kernel).walk() if isinstance(op, py.Invoke)] == [".store"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (len, "'len' is a builtin_function_or_method, not a function"),
        (Point, "'Point' is a class, not a function"),
        (3, "'3' is an int, not a function"),
        (eval("lambda: 1"), "there is no text for '<string>'"),
    ],
)
def test_what_has_no_source_is_refused(function, message):
    with pytest.raises(KernelSyntaxError, match=message):
        zg.reflect(function)


def test_quoted_code():
    k = 4
    q = zg.quote(lambda x: x * scale + k - len("abc"))
    assert dict(q.captured) == {"scale": 3, "k": 4}
    assert q(2) == 7 and zg.quote(q) is q
    assert zg.to_python(q.model) == "lambda x: x * scale + k - len('abc')"
    assert "lambda" in repr(q)
    with pytest.raises(TypeError):
        q.captured["k"] = 5


def test_quoted_code_keeps_what_it_captured():
    k = 1

    def f():
        return k

    q = zg.quote(f)
    k = 2
    assert q.captured == {"k": 1} and q() == 2


class Scaled:
    """A callable object, with a property that is computed once."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x, *rest, offset=0):
        return self.factor * x + offset + sum(rest) + scale

    def times(self, x):
        return self.factor * x

    @classmethod
    def unit(cls, x):
        return cls(1)(x)

    @functools.cached_property
    def double(self):
        return self.factor * 2


def test_objects_around_functions():
    assert zg.reflect(Scaled(2)).sym_name == "Scaled.__call__"
    assert zg.reflect(vars(Scaled)["double"]).sym_name == "Scaled.double"
    q = zg.quote(lambda x: x + scale)
    assert zg.to_python(zg.reflect(q)) == "lambda x: x + scale"
    assert zg.to_function(q.model, like=q)(1) == 4


def test_quoted_code_has_the_values_that_are_bound():
    scaled = Scaled(2)
    inner = functools.partial(scaled, 1, 10, offset=4)
    for function, bound, arguments in (
        (scaled, {"self": scaled}, (5,)),
        (scaled.times, {"self": scaled}, (5,)),
        (Scaled.unit, {"cls": Scaled}, (5,)),
        (functools.partial(Scaled.times, scaled), {"self": scaled}, (5,)),
        (inner, {"self": scaled, "x": 1, "rest": (10,), "offset": 4}, ()),
        (functools.partial(inner, 20, offset=5), {"self": scaled, "x": 1, "rest": (10, 20), "offset": 5}, ()),
    ):
        q = zg.quote(function)
        assert {name: value for name, value in q.captured.items() if name != "scale"} == bound
        assert q(*arguments) == function(*arguments)
    with pytest.raises(zg.KernelTypeError, match="must fit 'times'; got: got an unexpected keyword argument 'z'"):
        zg.quote(functools.partial(Scaled.times, z=1))


def test_hints_are_those_of_the_caller():
    text = eval("lambda: 1")
    for function, hint in ((Point, "one of its methods"), (len, "written in Python"), (text, "linecache")):
        with pytest.raises(KernelSyntaxError) as info:
            zg.reflect(function)
        assert hint in info.value.hint and "kernel" not in info.value.hint
    names = {}
    exec("def f(x): pass", names)
    for function, hint in ((len, "decorate a function"), (names["f"], "zg.kernel(source=text)")):
        with pytest.raises(KernelSyntaxError) as info:
            _ = zg.kernel(function).model
        assert hint in info.value.hint


def test_simplification_keeps_what_may_run_a_method():
    def f(x, notes):
        y = (x, x is None)
        x + 1
        x.a
        x[0]
        not x
        return notes

    class Noted:
        def __init__(self, notes):
            self.notes = notes

        def __add__(self, other):
            self.notes.append("add")

        def __getattr__(self, name):
            self.notes.append(name)

        def __getitem__(self, index):
            self.notes.append(index)

        def __bool__(self):
            self.notes.append("bool")
            return True

    model = zg.simplify(zg.reflect(f))
    for function in (f, zg.interpret(model), zg.to_function(model)):
        notes = []
        assert function(Noted(notes), notes) == ["add", "a", 0, "bool"]
    assert not [op for op in model.walk() if isinstance(op, py.Is | py.Pack)]
