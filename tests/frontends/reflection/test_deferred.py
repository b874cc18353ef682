"""Errors in code that may never run: they are ops of the model, and are raised when these run."""

import pytest

from ziggurat.codemodel.dialects import py
from ziggurat.codemodel.errors import (
    KernelErrors,
    KernelNameError,
    KernelRuntimeError,
    KernelSyntaxError,
    KernelTypeError,
    VerifyError,
    ZigguratError,
    source_order,
)
from ziggurat.codemodel.execute import execute
from ziggurat.codemodel.op import same_model
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.verify import verify
from ziggurat.frontends.reflection import reflect
from ziggurat.transforms.unsupported import checked, unsupported

WRONG = {
    "an unknown name": ("y = unknown", KernelNameError, "name 'unknown' is not defined"),
    "an unknown call": ("y = zg.nosuch(1)", KernelNameError, "the module 'zg' has no 'nosuch'"),
    "a wrong argument": ("zg.load(x, maks=1)", KernelTypeError, "zg.load has no parameter 'maks'"),
    "too many arguments": ("zg.program_id(0, 1)", KernelTypeError, "at most 1 positional argument; got 2"),
    "an operator": ("y = x @ y", KernelSyntaxError, "the operator @"),
    "a statement": ("with x as f:\n    y = f", KernelSyntaxError, "with"),
    "an import": ("import math", KernelSyntaxError, "an import"),
    "a function": ("def f(a):\n    b = a\n    return b", KernelSyntaxError, "a function inside"),
    "a comprehension": ("y = {i for i in x}", KernelSyntaxError, "a comprehension"),
    "a builtin": ("y = zip(x)", KernelSyntaxError, "cannot call the builtin 'zip'"),
    "a return": ("return unknown", KernelNameError, "name 'unknown' is not defined"),
    "a target": ("x[0] = 1", KernelSyntaxError, "assignment to an item"),
    "a nested if": ("if y:\n    y = unknown", KernelNameError, "name 'unknown' is not defined"),
    "a condition": ("if unknown:\n    y = 1", KernelNameError, "name 'unknown' is not defined"),
    "a loop": ("for i in unknown:\n    y = i", KernelNameError, "name 'unknown' is not defined"),
    "a loop's else": ("while x:\n    y = 1\nelse:\n    y = 2", KernelSyntaxError, "else after a loop"),
    "after break": ("for i in range(2):\n    break\n    y = 1", KernelSyntaxError, "a statement after break"),
    "return in a loop": ("for i in range(2):\n    return 1", KernelSyntaxError, "return inside of a loop"),
}


def reflected(kernel):
    """The model of a kernel, without the constructs that kernels do not have. Raises the errors of the kernel."""
    try:
        return checked(reflect(kernel))
    except ZigguratError as error:
        raise KernelErrors.of(sorted([*error.parts, *map(unsupported, error.plain)], key=source_order)) from None


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("what", WRONG)
def test_a_branch_that_is_not_run_is_no_error(define, what):
    suite, kind, message = WRONG[what]
    kernel = define(f"def kernel(x, y):\n    if x:\n{indented(indented(suite))}    return y + 1\n")
    model = reflected(kernel)
    verify(model)
    assert same_model(parse(str(model)), model)
    (op,) = [op for op in model.walk() if isinstance(op, py.Error)]
    assert type(op.error()) is kind and message in op.summary
    assert execute(model, (0, 4)) == 5
    with pytest.raises(kind) as error_info:
        execute(model, (1, 4))
    assert error_info.value.summary == op.summary
    assert error_info.value.location is not None and error_info.value.location.source_line() is not None


@pytest.mark.parametrize("what", [what for what in WRONG if what != "a nested if"])
def test_the_error_is_the_one_outside_of_an_if(define, what):
    suite, kind, _ = WRONG[what]
    with pytest.raises(kind) as outside:
        reflected(define(f"def kernel(x, y):\n    if 1:\n        x = 2\n{indented(suite)}"))
    inside = reflected(define(f"def kernel(x, y):\n    if 1:\n        x = 2\n    if x:\n{indented(indented(suite))}"))
    error = next(op for op in inside.walk() if isinstance(op, py.Error)).error()
    expected = outside.value
    assert (type(error), error.summary, error.hint) == (type(expected), expected.summary, expected.hint)
    # One line further down, and one suite further in.
    assert error.location.line == expected.location.line + 1
    assert error.location.column == expected.location.column + 4
    assert error.location.end_column == expected.location.end_column + 4


@pytest.mark.parametrize("expression", ["1 if not x else bad", "bad if x else 1", "not x or bad", "x and bad"])
def test_errors_in_parts_of_expressions_that_are_not_run(define, expression):
    model = reflected(define(f"def kernel(x):\n    return {expression}\n"))
    assert same_model(parse(str(model)), model)
    assert execute(model, (0,)) in (0, 1, True)
    with pytest.raises(KernelNameError, match="name 'bad' is not defined"):
        execute(model, (1,))


def test_the_end_of_a_chain_of_comparisons(define):
    model = reflected(define("def kernel(x):\n    return 0 < x < bad\n"))
    assert execute(model, (0,)) is False
    with pytest.raises(KernelNameError):
        execute(model, (1,))


def test_the_first_part_is_always_run(fail):
    (failure,) = fail("y = bad and x")
    assert failure.summary == "name 'bad' is not defined"
    for suite in ("y = bad if x else 1\nreturn missing", "if x:\n    y = bad\nreturn missing"):
        assert [f.marked for f in fail(suite)] == ["bad", "missing"]


def test_a_loop_that_is_never_run(define):
    model = reflected(define("def kernel(x):\n    while x:\n        raise bad\n    return 1\n"))
    assert execute(model, (0,)) == 1
    with pytest.raises(KernelSyntaxError, match="raise"):
        execute(model, (1,))


def test_certain_errors_are_reported_with_deferred_ones(define):
    kernel = define("""
    def kernel(x):
        if x:
            a = bad1
        b = bad2
        if x:
            c = bad3 if a else 1
    """)
    with pytest.raises(KernelErrors) as error_info:
        reflected(kernel)
    assert [error.summary for error in error_info.value.errors] == [f"name 'bad{i}' is not defined" for i in (1, 2, 3)]


def test_variables_of_a_statement_in_error_are_declared(lines):
    ops = lines("if x:\n    import math as m, os.path\n    y = m\ny = os")
    assert '    %6 : Var<object> = var @"os";' in ["    " + line for line in ops]
    # The name of the import is a variable of the function, as in Python.
    assert any('@"m"' in line for line in ops)


def test_names_of_other_scopes_are_not_the_functions(define):
    model = reflected(define("def kernel(x):\n    if x:\n        y = [g for g in x]\n    return g\n", g=7))
    assert execute(model, (0,)) == 7


def test_a_deleted_name(define):
    # A name that is deleted is the function's, as in Python: that of the module is not meant.
    with pytest.raises(KernelErrors) as error_info:
        reflected(define("def kernel(x):\n    if x:\n        del y\n    return y\n", y=7))
    assert [error.summary for error in error_info.value.errors] == [
        "a kernel cannot use del",
        "'y' is used before it is assigned",
    ]


def test_the_op_takes_the_errors_of_sources_only():
    with pytest.raises(VerifyError, match="the kind of an error must be one of KernelSyntaxError"):
        verify(parse('func @"f" ()object -> {\n    %0 : object = error @"no" @kind="SystemExit";\n    return %0;\n};'))
    with pytest.raises(KernelRuntimeError, match="'f' takes a, b; got 1, c"):
        model = parse(
            'module ()void -> {\n    func @"f" (%0 : object, %1 : object)object -> {\n'
            '        %2 : Var<object> = var %0 @"a";\n        %3 : Var<object> = var %1 @"b";\n'
            "        return;\n    };\n"
            '    func @"g" ()object -> {\n        %4 : object = func.ref @"f";\n        %5 : object = constant @1;\n'
            '        %6 : object = call %4 %5 %5 @keywords=["c"];\n        return %6;\n    };\n    unreachable;\n};'
        )
        execute(model, (), symbol="g")
