"""Every statement and expression of Python: model, text, model, source, and the code that Python makes of it."""

import ast
import sys

import pytest
from python_models import normal

import ziggurat as zg
from ziggurat.backend.python.to_function import code_of

# The suite of a function of `x`, `y` and `z`.
SUITES = [
    "x = 1",
    "x = y = z",
    "a = b[x] = x.c = y",
    "a, b = b, a = x, y",
    "(a, [b, c]), *d = x",
    "x.a, y[z] = z",
    "a = (b, c) = x",
    "x += 1",
    "x.a += y",
    "x.a.b[y] -= z",
    "x[y] *= z",
    "x[y:z] += z",
    "global g\ng += 1",
    "global g, h\ng = h\ndel g",
    "a: int = 1\nb: str",
    "x.a: int = 1\nx[y]: int\nx.b: int",
    "if (a := x) > y and (b := a):\n    return a, b",
    "return [a for a in x if (b := a)], b",
    "print(x, *y, a=z, **z)",
    "print(*x, a=y)",
    "return x.a(y)(z).b(*z)",
    "return x if y else z",
    "return x and y or not z",
    "return x < y < z, x <= y, x is y is not z, x in y not in z",
    "return -x + +y - ~z, x @ y, x // y % z ** -2",
    "return (-1) ** 2, -1 ** 2, 2j, b'a', ..., None, True, 'a\\n', '\\ud800', 1e309, -0.0",
    "return x[y], x[y:z], x[:], x[y:z:2], x[:, y], x[1:2, ...]",
    "return {}, {x: y}, {x: y, **z, 1: 2}, {x, *y}, [x, *y], (x, *y), (), []",
    "return f'{x}', f'{x!r:>{y}}', f'a{{{x:{y}.{z}f}}}b', f'{x=}', f''",
    "for a in x:\n    break\nelse:\n    y = 1",
    "for a, *b in x:\n    if b: continue\n    print(a)",
    "for x.a in y: pass",
    "for x[y] in z: print(x)",
    "while x:\n    if y: break\nelse:\n    return",
    "while (a := x()): print(a)",
    "while True:\n    pass",
    "try:\n    x()\nexcept A:\n    pass\nexcept (B, C) as e:\n    raise D from e\nelse:\n    y()\nfinally:\n    z()",
    "try:\n    return x()\nexcept:\n    raise",
    "try:\n    x()\nfinally:\n    y()",
    "try:\n    x()\nexcept* A as e:\n    print(e)\nexcept* B:\n    pass",
    "for a in x:\n    try:\n        continue\n    except A:\n        break",
    "with x as a, y as (b, c), z:\n    return a",
    "with x.a as y.b:\n    pass",
    "assert x\nassert x, y",
    "raise",
    "raise A(x)",
    "del x, y.a, z[x]",
    "del (x, [y])",
    "import a\nimport a.b, c as d, e.f as g",
    "from a import b, c as d\nfrom . import e\nfrom ..f.g import h",
    "yield\na = yield x\nyield from y",
    "raise A\nyield",
    "return lambda a, /, b=x, *c, d, e=y, **h: (a, b, c, d, e, h, z)",
    "return lambda: (yield x)",
    "def g(a: int, b: 'str' = 1, *c: x, d: y = 2, **e: z) -> A:\n    return a\nreturn g",
    "def g():\n    nonlocal x\n    x = 1\n    def h():\n        nonlocal x\n        x += y\n    return h\nreturn g",
    "@a\n@b.c(x)\ndef g(): pass",
    "def g(): return g()\ng()",
    "a = 1\ndef g():\n    global a\n    a = 2\nreturn a",
    "class A(x, metaclass=y, **z):\n    'doc'\n    a: int = 1\n    b: str\n    x = x",
    "class A(x):\n    def f(self): return super().f(), __class__",
    "@a\nclass B:\n    def __m(self): return self.__n\n    c = [x for y in z]",
    "class A:\n    for i in x: pass\n    with y as b: pass\n    import c\n    del i\n    j += 1",
    "return [a for a in x], {a for a in x if a if y}, {a: b for a, b in x}, (a + b for a in x for b in a if b)",
    "return [[b for b in a] for a in x], [lambda: a for a in x]",
    "return [a for a in x for b[0] in y]",
    "def g():\n    x = 1\n    return [x for _ in y]\nreturn g",
    "return print(x) or [y() for y in z][0]",
    "match x:\n    case 1 | -2 | 'a': pass\n    case None: pass\n    case A.b: pass\n    case _: pass",
    "match x:\n    case [a, *b]: return a, b\n    case (a, *_): return a\n    case {'k': c, **d} if c > y: return d",
    "match x, y:\n    case A(1, b, c=d) as e: return b, d, e\n    case [1 | 2 as f, 3]: return f\n    case g: return g",
    "match x:\n    case 1+2j | -1.5: pass\n    case []: pass\n    case {}: pass",
    "pass",
    "'doc'\nreturn __debug__",
    "x\n...\n1",
    "print(a)\na = 1",
    "del a\nprint(x)",
    "if x:\n    a = 1\nelif y:\n    a = 2\nelse:\n    a = 3\nreturn a",
    "return x\nprint(y)",
    "a = b = [x for x in y]\nreturn a, b",
    "x(y)[0](a=1).b = c.d = z",
    "a, b.c = d[0], *e = z",
    "return (x, (yield y), z)",
]  # fmt: skip
ASYNC = [
    "async with x as a, y: pass",
    "async for a in x:\n    pass\nelse:\n    await y",
    "return [a async for a in x if await a], {await b for b in y}",
    "yield await x",
    "return await x(await y, z)",
    "return (a async for a in x for b in a)",
]
LAMBDAS = [
    "lambda: 0",
    "lambda x, *y, z=1, **k: (x, y, z, k)",
    "lambda x: [x for x in x]",
    "lambda a, /, b: a if b else 1",
]


def text_of(suite: str, head: str = "def f(x, y, z):") -> str:
    return f"{head}\n" + "".join(f"    {line}\n" for line in suite.splitlines())


def checked(f):
    """The model of a function; it verifies, is what its text says, and gives the code of the function."""
    model = zg.reflect(f)
    zg.verify(model)
    assert zg.same_model(zg.parse(str(model)), model)
    assert str(zg.parse(zg.to_text(model, locations=True))) == str(model)
    assert normal(code_of(model)) == normal(f.__code__)
    source = zg.to_python(model)
    tree = ast.parse(source)
    assert ast.unparse(tree) == source
    return model


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite(define, suite):
    checked(define(text_of(suite)))


@pytest.mark.parametrize("suite", ASYNC)
def test_an_async_suite(define, suite):
    checked(define(text_of(suite, "async def f(x, y, z):")))


@pytest.mark.parametrize("text", LAMBDAS)
def test_a_lambda(define, text):
    checked(define(f"f = {text}"))


@pytest.mark.parametrize(
    "head",
    [
        "def f(a, b=1, /, c: int = 2, *d: str, e, g: int = 3, **h: x) -> 'int':",
        "def f(*, a): ",
        "def f(a, /): ",
        "def f(**a) -> int: ",
    ],
)
def test_parameters(define, head):
    f = define(text_of("return 1", head), x=1)
    model = checked(f)
    definition = ast.parse(zg.to_python(model)).body[0]
    assert ast.dump(definition.args) == ast.dump(ast.parse(head + " pass").body[0].args)
    assert zg.to_function(model, like=f).__defaults__ == f.__defaults__


def test_what_later_versions_add(define):
    if sys.version_info < (3, 12):
        pytest.skip("type parameters are new in Python 3.12")
    checked(
        define("def f(x):\n    def g[T: int](a: T) -> T: return a\n    class A[T]: pass\n    type B[T] = list[T]\n")
    )
    checked(define("""def f(x):\n    return f"{x['a']}" """))
    f = define("def f[T: int, *Ts](a: T):\n    type A[K] = dict[K, T]\n    class C[U]: pass\n    return A, C, T, a\n")
    model = zg.reflect(f)
    assert zg.to_python(model).startswith("def f[T: int, *Ts](a: T):")
    assert zg.to_function(model, like=f).__type_params__ == f.__type_params__
    interpreted = zg.interpret(model, like=f)
    alias, generic, parameter, _ = interpreted(1)
    assert (parameter.__name__, parameter.__bound__, *interpreted.__type_params__[:1]) == ("T", int, parameter)
    assert alias.__value__ == dict[alias.__type_params__[0], parameter] and [*generic.__type_params__] != []


def test_template_strings(define):
    text = """def f(n, w):\n    return t"{{ {n + 1!r:>{w}} {n=}" t"{w}" """
    template = zg.parse("""func @"f" (%0 : object)object -> {
        %1 : object = template %0 @"a {0!r:>4}" @expressions=["n"]; return %1; };""")
    if sys.version_info < (3, 14):
        with pytest.raises(zg.TargetError, match=r"Python before 3\.14"):
            zg.to_python(template)
        return
    model = checked(define(text))
    (result,) = [zg.interpret(model)(3, 5).interpolations[0]]
    assert (result.value, result.expression, result.conversion, result.format_spec) == (4, "n + 1", "r", ">5")
    assert "return t'a {argument!r:>4}'" in zg.to_python(template).replace("argument_1", "argument")


def test_every_construct_is_read():
    from ziggurat.frontends.python.statements import Statements

    every = {cls.__name__ for base in (ast.stmt, ast.expr, ast.pattern) for cls in base.__subclasses__()}
    parts = {"FormattedValue", "Starred", "Interpolation"}
    assert {name for name in every if not hasattr(Statements, f"visit_{name}")} <= parts
