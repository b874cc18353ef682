"""Every construct that kernels lack: the message, the marked text, and the hint."""

import ast

import pytest

from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.frontends.reflection.statements import Statements
from ziggurat.transforms.unsupported import CONSTRUCTS, FORMS, checked

# Suite, what the kernel cannot use, what is marked, part of the hint.
CASES = [
    ("while x:\n    break\n    y = x", "a statement after break or continue", "y = x", "remove it"),
    ("for i in x:\n    n = i\n    continue\n    y = x", "a statement after break or continue", "y = x", "remove it"),
    ("for i in range(n):\n    return x", "return inside of a loop", "return x", "after the loop"),
    ("while x:\n    if y:\n        return", "return inside of a loop", "return", "after the loop"),
    ("try:\n    x = 1\nfinally:\n    pass", "try", "try:", "zg.device_assert"),
    ("raise ValueError(x)", "raise", "raise ValueError(x)", "zg.device_assert"),
    ("with x as f:\n    pass", "with", "with x as f:", "no context managers"),
    ("del x", "del", "del x", "leave it out"),
    ("global g\ng = 1", "global", "global g", "zg.store"),
    ("import math\ny = math.pi", "an import inside of a kernel", "import math", "outside of the kernel"),
    ("from math import pi\ny = pi", "an import inside of a kernel", "from math import pi", "outside of the kernel"),
    ("def f(): pass\nf()", "a function inside of a kernel", "def f(): pass", "@zg.function"),
    ("class C: pass", "a class inside of a kernel", "class C: pass", "tuple"),
    ("match x:\n    case 1: pass", "match", "match x:", "if and elif"),
    ("f = lambda a: a", "lambda", "lambda a: a", "@zg.function"),
    ("y = {i for i in range(3)}", "a comprehension", "{i for i in range(3)}", "for loop"),
    ("y = {i: i for i in range(3)}", "a comprehension", "{i: i for i in range(3)}", "for loop"),
    ("y = max(i for i in range(3))", "a generator", "(i for i in range(3))", "for loop"),
    ("y = n and (x := 2)", "an assignment inside of an expression (:=)", "x := 2", "statement of its own"),
    ("y = {'a': 1}", "a dictionary", "{'a': 1}", "tuple"),
    ("y = {1, 2}", "a set", "{1, 2}", "tuple"),
    ("y = x[1:2, 3]", "a slice", "1:2", "load the part"),
    ("y = x[1, 2]", "indexing with several indices", "x[1, 2]", "zg.load"),
    ("zg.add(x, **y)", "**arguments in a call", "**y", "one by one"),
    ("y = (x, *n)", "a starred expression", "*n", "one by one"),
    ("y = x @ n", "the operator @", "x @ n", "zg.dot(a, b)"),
    ("x @= n", "the operator @", "x @= n", "zg.dot(a, b)"),
    ("x.a = 1", "assignment to an attribute", "x.a", "variable"),
    ("x[0] = 1", "assignment to an item", "x[0]", "zg.store"),
    ("x[0] += 1", "assignment to an item", "x[0]", "zg.store"),
    ("x.a += 1", "assignment to an attribute", "x.a", "variable"),
    ("a, *b = x", "a starred target", "*b", "every item"),
    ("a, (b, *c) = x", "a starred target", "*c", "every item"),
    ("while x:\n    pass\nelse:\n    y = 1", "else after a loop", "y = 1", "after the loop"),
    (
        "for i in x:\n    v = i\n    if v:\n        break\nelse:\n    y = 1",
        "else after a loop",
        "y = 1",
        "after the loop",
    ),
    ("for a, *b in x:\n    pass", "a starred target", "*b", "every item"),
    ("for x.a in (1, 2):\n    pass", "assignment to an attribute", "x.a", "variable"),
    ("for i in {1, 2}:\n    pass", "a set", "{1, 2}", "(a, b)"),
    ("y = range(n)", "a range outside of the head of a for loop", "range(n)", "for i in range(n)"),
    ("zg.static_range(3)", "a range outside of the head of a for loop", "zg.static_range(3)", "for i in"),
    ("y = 2j", "a literal of this kind", "2j", "a number"),
    ("y = b'a'", "a literal of this kind", "b'a'", "a number"),
    ("yield x", "yield", "yield x", "zg.store"),
    ("yield from x", "yield", "yield from x", "zg.store"),
]


@pytest.mark.parametrize(("suite", "what", "marked", "hint"), CASES, ids=[case[0] for case in CASES])
def test_message(fail, suite, what, marked, hint):
    (failure,) = fail(suite)
    assert isinstance(failure.error, KernelSyntaxError)
    assert failure.summary == f"a kernel cannot use {what}"
    assert failure.marked == marked
    assert hint in failure.hint


def test_parameters_of_any_keywords(fail):
    (failure,) = fail("pass", "x, **rest")
    assert failure.summary == "a kernel cannot use a parameter that takes any number of arguments"
    assert failure.marked == "rest"


def test_the_model_has_the_ops_of_plain_python(define):
    from ziggurat.codemodel.dialects import py, py_suites
    from ziggurat.codemodel.op import same_model
    from ziggurat.codemodel.text.parser import parse
    from ziggurat.codemodel.verify import verify
    from ziggurat.frontends.reflection import reflect

    model = reflect(define("def kernel(x):\n    y = x\n    with x as f:\n        y = f\n    return y\n"))
    verify(model)
    assert same_model(parse(str(model)), model)
    (plain,) = [op for op in model.walk() if isinstance(op, py.Plain)]
    assert plain.construct == "With"
    assert any(isinstance(op, py_suites.With) for op in plain.walk())
    with pytest.raises(KernelSyntaxError, match="a kernel cannot use with"):
        checked(model)


def test_nonlocal(define):
    from ziggurat.frontends.reflection import reflect

    kernel = define(
        """
        def outer():
            v = 1
            def kernel():
                nonlocal v
                v = 2
            return kernel
        kernel = outer()
        """
    )
    with pytest.raises(KernelSyntaxError, match="nonlocal"):
        checked(reflect(kernel))


# Parts of other nodes, which are handled with these.
_PARTS = {"FormattedValue", "Interpolation"}


def test_every_construct_of_python_is_known():
    supported = {name.removeprefix("visit_") for name in dir(Statements) if name.startswith("visit_")}
    every = {cls.__name__ for base in (ast.stmt, ast.expr) for cls in base.__subclasses__()}
    assert every - supported - set(CONSTRUCTS) - _PARTS == set()
    # Some forms of these are supported.
    assert supported & set(CONSTRUCTS) == {"ListComp", "NamedExpr"}


def test_every_message_is_tested():
    messages = {case[1] for case in CASES}
    untested = {what for what, _ in (*CONSTRUCTS.values(), *FORMS.values())} - messages
    assert untested == {
        "async for",  # can only stand in an async function, which is an error as a whole
        "async with",
        "await",
        "an async function",
        "nonlocal",  # has its own test
        "a type alias",  # newer than Python 3.11
        "a template string",
        "kernel[grid](…)",
    }
