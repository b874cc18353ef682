"""Declarations of variables: by an assignment, or without a value before a statement."""

import ast
import textwrap

import pytest

from ziggurat.frontends.reflection.scopes import declarations


def placed(text):
    """`name@line` for a variable that its assignment declares, `name<line` for one declared before the statement."""
    body = ast.parse(textwrap.dedent(text).strip("\n")).body
    names = {node.id for node in ast.walk(ast.Module(body, [])) if isinstance(node, ast.Name)}
    by_statement = declarations(body, {"p", "q"}, names & {"a", "b", "c", "i", "j"})
    return sorted(
        f"{d.name}{'@' if d.by_assignment else '<'}{statement.lineno}"
        for statement, entries in by_statement.items()
        for d in entries
    )


CASES = {
    "assignment": ("a = p\nf(a)", ["a@1"]),
    "parameters are left out": ("p = q\nq += 1", []),
    "several targets": ("a = b = p\nc = a, b", ["a@1", "b@1", "c@2"]),
    "tuple": ("a, (b, c) = p", ["a@1", "b@1", "c@1"]),
    "annotated": ("a: int = p", ["a@1"]),
    "used in its own first value": ("a = a + 1", ["a<1"]),
    "augmented first": ("f()\na += 1", ["a<2"]),
    "used before it is assigned": ("f(a)\na = 1", ["a<1"]),
    "in one suite only": ("if p:\n    a = 1\n    f(a)", ["a@2"]),
    "in both suites of an if": ("if p:\n    a = 1\nelse:\n    a = 2", ["a<1"]),
    "after an if": ("f()\nif p:\n    a = 1\nf(a)", ["a<2"]),
    "assigned again after an if": ("if p:\n    a = 1\na = 2", ["a<1"]),
    "before and inside": ("a = 1\nif p:\n    a = 2", ["a@1"]),
    "condition of an if": ("if p:\n    a = 1\nif a:\n    pass", ["a<1"]),
    "elif": ("if p:\n    pass\nelif q:\n    a = 1\nelse:\n    f(a)", ["a<3"]),
    "loop variable": ("for i in range(p):\n    f(i)", ["i@1"]),
    "loop variable used later": ("for i in range(p):\n    pass\nf(i)", ["i<1"]),
    "loop variable in its own range": ("for i in range(i):\n    pass", ["i<1"]),
    "loop variable in a nested suite": ("for i in range(p):\n    if q:\n        f(i)", ["i@1"]),
    "two loops, one variable": ("for i in range(p):\n    pass\nfor i in range(p):\n    pass", ["i<1"]),
    "one variable, nested loops": ("for i in range(p):\n    for i in range(q):\n        f(i)", ["i@1"]),
    "only in a loop": ("for i in range(p):\n    a = i\n    f(a)", ["a@2", "i@1"]),
    "carried to the next iteration": ("for i in range(p):\n    if i:\n        f(a)\n    a = i", ["a<1", "i@1"]),
    "assigned in one iteration": ("for i in range(p):\n    if i:\n        a = i\n    f(a)", ["a<1", "i@1"]),
    "kept by two loops": (
        "while p:\n    for i in range(q):\n        if i:\n            f(a)\n        a = i",
        ["a<1", "i@2"],
    ),
    "assigned where an iteration goes on": (
        "for i in range(p):\n    if i:\n        continue\n    else:\n        a = i\n    f(a)",
        ["a<2", "i@1"],
    ),
    "assigned in both suites in a loop": (
        "for i in range(p):\n    if i:\n        a = 1\n    else:\n        a = 2\n    f(a)",
        ["a<2", "i@1"],
    ),
    "carried by a loop": ("a = 0\nfor i in range(p):\n    a += i\nf(a)", ["a@1", "i@2"]),
    "while condition": ("while a < p:\n    a += 1", ["a<1"]),
    "while condition assigned inside": ("while p:\n    a = 1\n    while a:\n        a = b = 2", ["a@2", "b@4"]),
    "deep common suite": (
        "if p:\n    f()\n    if q:\n        if p:\n            a = 1\n    else:\n        while q:\n            f(a)",
        ["a<3"],
    ),
    "siblings at different depth": ("if p:\n    if q:\n        a = 1\nif q:\n    a = 2", ["a<1"]),
    "comparisons and calls are uses": ("if p:\n    a = 1\nf(x=(q if a else p))", ["a<1"]),
    "assigned inside of an expression": ("f(a := p)\nf(a)", ["a<1"]),
    "assigned by the condition of an if": ("if (a := p):\n    f(a)", ["a<1"]),
    "assigned by the condition of a loop": ("while (a := p):\n    f(a)", ["a<1"]),
    "loop variable read by a comprehension": ("for i in q:\n    pass\na = [i * b for b in p]", ["a@3", "i<1"]),
    "read by the first iterable of a comprehension": ("if p:\n    a = q\nb = [a for a in a]", ["a<1", "b@3"]),
    "variable of a comprehension": ("if p:\n    a = q\nb = [a for a in q if a]", ["a@2", "b@3"]),
    "never assigned": ("f(a)", []),
}


@pytest.mark.parametrize("case", CASES)
def test_place(case):
    text, expected = CASES[case]
    assert placed(text) == expected


def test_model_of_a_variable_assigned_in_both_suites(lines):
    assert lines("if x:\n    a = 1\nelse:\n    a = 2\nreturn a") == [
        '%6 : Var<object> = var @"a";',
        "%7 : object = var.load %3;",
        "if %7",
        "    ()object -> {",
        "        %8 : object = constant @1;",
        "        var.store %6 %8;",
        "        yield;",
        "    }",
        "    ()object -> {",
        "        %9 : object = constant @2;",
        "        var.store %6 %9;",
        "        yield;",
        "    };",
        "%10 : object = var.load %6;",
        "return %10;",
    ]


def test_loop_variable_used_after_the_loop(lines):
    assert lines("for i in range(n):\n    pass\nreturn i") == [
        '%6 : Var<object> = var @"i";',
        "for",
        "    ()object -> {",
        "        %7 : object = var.load %5;",
        '        %8 : object = invoke %7 @"builtins.range";',
        "        yield %8;",
        "    }",
        "    (%9 : object)object -> {",
        "        var.store %6 %9;",
        "        yield;",
        "    };",
        "%10 : object = var.load %6;",
        "return %10;",
    ]
