"""The interpreter on models of Python functions: it gives what the function gives, or raises what that raises."""

import asyncio
import copy
import importlib.util
import inspect
import itertools
import linecache
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ziggurat as zg
from ziggurat.codemodel.errors import KernelTypeError, TargetError

numbers = itertools.count()
ROOT = Path(__file__).parents[2]


def define(text, **names):
    text = textwrap.dedent(text)
    file = f"<interpreted {next(numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec", dont_inherit=True), names)
    return names["f"]


def outcome(function, *arguments):
    """What a call gives, or the exception that it raises, with its cause and its context."""
    try:
        return function(*arguments)
    except Exception as error:
        chain = [error, error.__cause__, error.__context__]
        return [None if e is None else (type(e), str(e)) for e in chain]


# Suites of a function of x, and arguments for it.
CASES = [
    ("a, *b = x\n(c, d), e = [1, 2], b\nreturn a, b, c, d, e", [(1, 2, 3), "ab", (1,), ()]),
    ("a, b = x\nreturn a", [(1, 2), (1,), (1, 2, 3), 5]),
    ("a = b = []\na += x\nreturn a, b, a is b", [(1, 2), "z", 3]),
    ("x[0] += 1\nx[1:2] = [5, 6]\ndel x[-1]\nreturn x", [[1, 2, 3], []]),
    ("try:\n    return 1 / x\nexcept ZeroDivisionError as e:\n    return str(e)\nfinally:\n    x = 5", [0, 2, "a"]),
    (
        "try:\n    y = 10 / x\nexcept (TypeError, KeyError):\n    return 'no'\nelse:\n    return y\n"
        "finally:\n    x = 0",
        [0, 4, "a"],
    ),
    ("try:\n    raise KeyError(x)\nexcept KeyError as e:\n    raise ValueError('v') from e", [1]),
    ("try:\n    raise KeyError(x)\nexcept KeyError:\n    try:\n        raise\n    finally:\n        x = 1", [1]),
    ("try:\n    1 / x\nexcept ZeroDivisionError as e: pass\nreturn e", [0]),
    (
        "for i in x:\n    try:\n        if i: break\n        continue\n    finally:\n        i = 7\nelse:\n"
        "    return 'else'\nreturn i",
        [(0, 0), (0, 3, 4)],
    ),
    ("while x:\n    x -= 1\n    if x == 3: break\nelse:\n    return 'else'\nreturn x", [2, 9]),
    ("while True:\n    try:\n        return x\n    finally:\n        break\nreturn 'left'", [1]),
    (
        "class M:\n    def __enter__(self): return self\n"
        "    def __exit__(self, *e): return e[0] is ValueError\nwith M() as m, M():\n    raise x\n"
        "return type(m).__name__",
        [ValueError("a"), KeyError("b")],
    ),
    (
        ""
        "return [i * j for i in range(x) if i % 2 for j in (i, 2)], {i: i for i in range(x)}, sum(i for i in range(x))",
        [5],
    ),
    ("n = [0]\ng = (n.append(i) or i for i in range(x))\nnext(g)\nreturn n", [3]),
    (
        "def g(a, b=2, *c, d=x, **e): return a, b, c, d, e\n"
        "return g(1), g(1, 3, 4, d=5, z=6), g(*[1, 2, 3], **{'d': 0})",
        [9],
    ),
    ("def g(n): return 1 if n == 0 else n * g(n - 1)\nreturn g(x)", [6]),
    ("def g():\n    nonlocal x\n    x += 1\n    return x\nreturn g() + g() + x", [1]),
    ("fs = [lambda: i for i in range(3)]\nreturn [f() for f in fs], [(lambda j=i: j)() for i in range(x)]", [3]),
    ("return x and x[0] or 'none', 1 < len(x) < 4 != 5, not x, x if x else None", [[], [1, 2], [0]]),
    ("return f'{x!r:>6}|{x:{4}}|{{}}'", [3, "ab"]),
    (
        "match x:\n    case [1, *r, 2]: return r\n    case {'a': [p, q], **k}: return p, q, k\n"
        "    case str(s) | bytes(s): return s\n    case int(n) if n > 5: return n\n"
        "    case None | True: return 'c'\n    case _: return 'other'",
        [[1, 5, 2], {"a": (1, 2), "b": 3}, "t", b"u", 7, 3, None, True, {}],
    ),
    (
        "class P:\n    __match_args__ = 'a', 'b'\n    def __init__(self, a, b): self.a, self.b = a, b\n"
        "match P(1, x):\n    case P(1, b=[]): return 'empty'\n    case P(a, b): return a, b",
        [[], 4],
    ),
    (
        "class A:\n    y: int = x\n    def f(self, z): return self.y + z\n    @property\n"
        "    def p(self): return self.f(1)\nclass B(A):\n    def f(self, z): return super().f(z) * 10\n"
        "return A().p, B().p, A.__annotations__, B.__name__",
        [4],
    ),
    (
        "import os.path as p, math\nfrom itertools import chain as c\n"
        "return p.join('a', 'b'), math.floor(x), list(c([1], [2]))",
        [1.5],
    ),
    ("assert x, ('message', x)\nassert x > 1\nreturn x", [0, 1, 2]),
    ("if x: y = 1\nreturn y", [0, 1]),
    ("y = x\ndel y\nreturn y", [1]),
    ("return undefined_name", [0]),
    ("global g_\ng_ = x\nreturn g_ + globals()['g_']", [2]),
    ("y = 2\nreturn sorted(locals().items()), eval('x + y'), (lambda: x)()", [1]),
    ("if (n := len(x)) > 2: return n\nreturn [n, n := 5, n]", ["abc", "a"]),
    ("a = {**x, 'k': 1, **{'z': 2}}\nreturn a, {*x, 1}, [*x, *x], (*x,)", [{"k": 0}, {}]),
    ("return x.upper().split('B'), '%s-%s' % (x, 1), x[::-1], x[1:]", ["abc"]),
    ("@staticmethod\ndef g(): return x\nreturn g.__func__()", [3]),
    ("raise x", [ValueError, ValueError("v"), 5]),
    ("return 2j * x, b'a' * x, ..., -x ** 2", [2]),
]  # fmt: skip


@pytest.mark.parametrize(("suite", "arguments"), CASES, ids=[case[0] for case in CASES])
def test_the_model_does_what_the_function_does(suite, arguments):
    f = define("def f(x):\n" + textwrap.indent(suite, "    "))
    model = zg.reflect(f)
    for argument in arguments:
        expected = outcome(f, copy.deepcopy(argument))
        assert outcome(zg.interpret(model, like=f), copy.deepcopy(argument)) == expected
        assert outcome(zg.interpret(zg.parse(str(model)), like=f), copy.deepcopy(argument)) == expected


def test_defaults_closure_and_names():
    make = define("def f(k):\n    def g(a, b=5, *, c=7): return a + b + c + k + h\n    return g", h=1000)
    g = make(100)
    assert zg.interpret(zg.reflect(g), like=g)(1) == g(1) == 1113
    assert zg.interpret(zg.reflect(g), k=1, h=2)(1, c=3) == 12
    with pytest.raises(KernelTypeError, match="needs k of a function around it"):
        zg.interpret(zg.reflect(g))


# Functions of x that stop in the middle.
STOPPING = [
    ("for i in range(x):\n    y = yield i\n    if y: yield y * 10\nreturn 'end'", [0, 3]),
    (
        "try:\n    yield 1\n    yield 1 / x\nexcept ZeroDivisionError as e:\n    yield str(e)\nfinally:\n    yield 'f'",
        [0, 2],
    ),
    (
        "def g(n):\n    if n:\n        yield n\n        return (yield from g(n - 1)) + 1\n    return 0\n"
        "yield (yield from g(x))",
        [3],
    ),
    (
        "while x := x - 1:\n    if x == 2: continue\n    if (yield x) or x == 1: break\nelse:\n    yield 'else'",
        [4, 1],
    ),
    ("yield next(iter([]))", [1]),
    (
        "try:\n    yield 0\n    next(iter(()))\nexcept StopIteration as e:\n    yield type(e)\n    raise KeyError",
        [1],
    ),
    (
        "class M:\n    def __enter__(self): return 5\n    def __exit__(self, *e): return e[0] is KeyError\n"
        "with M() as m:\n    yield m\n    raise x\nyield 'after'",
        [KeyError(), ValueError("v")],
    ),
    (
        "a = [(yield 1), (yield 2)], (yield 3) if x else (yield 4), x and (yield 5), 0 < (yield 6) < (yield 7)\n"
        "yield a",
        [0, 1],
    ),
    ("match x:\n    case [a, *b] if (yield a):\n        yield b\n    case _:\n        yield 'no'", [(1, 2), 5]),
    ("yield from (i * 2 for i in range(x) if i)\ny = lambda: (yield x)\nyield from y()", [3]),
    (
        "try:\n    raise x\nexcept* ValueError as e:\n    yield type(e), str(e.exceptions)\n"
        "except* KeyError:\n    raise TypeError('t')\nelse:\n    yield 'else'",
        [ValueError("v"), KeyError("k"), OSError("o")],
    ),
]
ASYNC = """
async def wait(n):
    await asyncio.sleep(0)
    return n
class A:
    async def __aenter__(self): return await wait(1)
    async def __aexit__(self, *e): return await wait(e[0] is KeyError)
async def items(n):
    try:
        for i in range(n):
            got = yield await wait(i)
            if got: yield got
    finally:
        log.append('closed')
log = []
async with A() as a:
    log.append(a)
    raise KeyError
log += [i async for i in items(x)] + [await wait(i) for i in range(2)]
async for i in items(9):
    if i == 2: break
else: log.append('else')
g = items(3)
log += [await anext(g), await g.asend('sent'), await anext(g)]
await g.aclose()
log.append([i async for i in (await wait(j) for j in range(3) if await wait(j))])
try:
    await asyncio.gather(wait(1), items(2).athrow(ValueError('thrown')))
except ValueError as e:
    log.append(str(e))
return log, await wait(x) if x else 0
"""


def trace(generator):
    """What a generator gives, sent numbers, and how it ends."""
    items = []
    try:
        items.append(next(generator))
        for number in range(20):
            items.append(generator.send(number % 3))
    except BaseException as error:
        items.append((type(error), str(error), getattr(error, "value", None), type(error.__cause__)))
    return items


def test_generators_and_coroutines():
    for suite, arguments in STOPPING:
        f = define("def f(x):\n" + textwrap.indent(suite, "    "))
        run = zg.interpret(zg.reflect(f), like=f)
        assert inspect.isgeneratorfunction(run)
        for argument in arguments:
            assert trace(run(copy.deepcopy(argument))) == trace(f(copy.deepcopy(argument))), suite
    f = define("async def f(x):\n" + textwrap.indent(ASYNC, "    "), asyncio=asyncio)
    run = zg.interpret(zg.reflect(f), like=f)
    assert inspect.iscoroutinefunction(run)
    for argument in (0, 2):
        assert asyncio.run(run(argument)) == asyncio.run(f(argument))


def test_a_generator_is_closed_and_takes_exceptions():
    suite = "try:\n    yield 1\nexcept KeyError:\n    yield 2\nfinally:\n    log.append(3)"
    f = define("def f(log):\n" + textwrap.indent(suite, "    "))
    for function in (f, zg.interpret(zg.reflect(f), like=f)):
        log = []
        generator = function(log)
        assert (next(generator), generator.throw(KeyError()), generator.close(), log) == (1, 2, None, [3])


def test_groups_of_exceptions():
    suite = (
        "try:\n    raise x\nexcept* (ValueError, OSError) as e:\n    log.append(sorted(map(str, e.exceptions)))\n"
        "except* KeyError:\n    raise\nexcept* TypeError as e:\n    raise IndexError('i') from e\n"
        "else:\n    log.append('else')\nfinally:\n    log.append('finally')\nreturn log"
    )
    f = define("def f(x, log):\n" + textwrap.indent(suite, "    "))
    run = zg.interpret(zg.reflect(f), like=f)

    def described(error):
        inner = [described(part) for part in getattr(error, "exceptions", ())]
        return type(error), str(error), inner, type(error.__cause__)

    first, second = ExceptionGroup("one", [ValueError("v"), KeyError("k")]), ExceptionGroup("two", [TypeError("t")])
    both = ExceptionGroup("both", [first, second, EOFError("e"), OSError("o")])
    for error in (ValueError("v"), KeyError("k"), EOFError("e"), first, second, both):
        results = []
        for function in (f, run):
            log = []
            try:
                results.append(function(copy.deepcopy(error), log))
            except BaseException as exception:
                results.append((described(exception), log))
        assert results[0] == results[1]


def test_transformed_models_mean_what_their_source_does():
    from ziggurat.codemodel.dialects import py

    f = define("def f(x, y): return x + y * x")
    model = zg.transform(zg.reflect(f), lambda b, op, v: b.add(py.Sub(v[0], v[1])) if isinstance(op, py.Add) else None)
    for x, y in itertools.product((1, 2.5, -3), repeat=2):
        assert zg.interpret(model)(x, y) == zg.to_function(model)(x, y) == x - y * x


@pytest.mark.skipif(
    importlib.util.find_spec("test.test_textwrap") is None, reason="this Python has no tests of its own"
)
@pytest.mark.parametrize(
    "options",
    [
        ["test_textwrap", "test_string", "test_shlex", "test_csv"],
        ["--ssa", "test_textwrap", "test_string", "test_bisect", "test_fractions"],
    ],
    ids=["suites", "blocks"],
)
def test_tests_of_cpython_pass_in_the_interpreter(options):
    script = ROOT / "benchmarks" / "python_models_tests.py"
    done = subprocess.run(
        [sys.executable, str(script), "--interpret", *options],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    lines = done.stdout.splitlines()
    assert lines[0].endswith("functions replaced, 0 not"), done.stderr
    assert sum(" 0 failed," in line for line in lines) == 4, lines


DEFAULTS = (
    "def f(a, /, b=(1, -2), *c, d: dict(k=[1]) = {'=': 3}, e: 'x=1'=1 + 2j, **g) -> dict(a=1):\n"
    "    return a, b, c, d, e, g"
)


@pytest.mark.parametrize("make", [zg.interpret, zg.to_function])
def test_literal_defaults_are_those_of_the_model(make):
    f = define(DEFAULTS)
    model = zg.reflect(f)
    for function in (make(model), make(zg.parse(str(model))), make(model, like=f), make(model, like=make(model))):
        assert function(0) == f(0) == (0, (1, -2), (), {"=": 3}, 1 + 2j, {})
        assert function(0, 1, 2, d=3, z=4) == (0, 1, (2,), 3, 1 + 2j, {"z": 4})
        assert (function.__defaults__, function.__kwdefaults__) == (f.__defaults__, f.__kwdefaults__)
        assert [*inspect.signature(function).parameters] == [*inspect.signature(f).parameters]
        with pytest.raises(TypeError, match=r"missing a required argument: 'a'|missing 1 required positional argument"):
            function()


@pytest.mark.parametrize("make", [zg.interpret, zg.to_function])
def test_a_default_that_is_no_literal_is_that_of_the_function(make):
    f = define("def f(x, y=G, z=lambda a=1: a, *, w=len):\n    return x + y, z(), w", G=[1])
    model = zg.reflect(f)
    with pytest.raises(
        KernelTypeError, match="the default of 'y' must be a literal or a name with a value; got G"
    ) as info:
        make(model)
    assert "`like`" in info.value.hint
    with pytest.raises(KernelTypeError, match=r"the default of 'z' must be .*; got lambda a=1: a"):
        make(model, G=[2])
    assert make(model, like=f)([0]) == f([0]) == ([0, 1], 1, len)
    named = define("def f(x, y=G, *, w=len):\n    return x, y, w", G=1)
    assert make(zg.reflect(named), G=2)(0) == (0, 2, len)


@pytest.mark.parametrize("make", [zg.interpret, zg.to_function])
def test_parameters_of_private_names(make):
    f = define("class C:\n    def g(self, __x=1, *, __y=2):\n        return __x, __y\nf = C.g")
    assert make(zg.reflect(f))(0, _C__y=5) == f(0, _C__y=5) == (1, 5)


@pytest.mark.parametrize("make", [zg.interpret, zg.to_function])
@pytest.mark.parametrize("parameters", ["x =", "x): pass\ndef g(x", "x, y", "x + 1", "*"])
def test_parameters_that_are_not_those_of_the_body_are_refused(make, parameters):
    f = define("def f(x=1):\n    return x")
    text = str(zg.reflect(f)).replace("x = 1", repr(parameters)[1:-1])
    for like in (None, f):
        with pytest.raises(TargetError, match="the parameters of a func must be"):
            make(zg.parse(text), like=like)


def test_a_keyword_does_not_stand_for_a_parameter_by_place():
    f = define("def f(a, b, /, **rest): return a, b, rest")
    run = zg.interpret(zg.reflect(f))
    assert run(1, 2, b=3) == f(1, 2, b=3)
    with pytest.raises(TypeError, match="'b'"):
        run(1, b=3)
