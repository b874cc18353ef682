"""Constructs of Python that kernels do not have, each with a hint.

The keys of `CONSTRUCTS` are names of classes of `ast`, so that the table holds for every version of Python.
"""

from __future__ import annotations

import ast

from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.codemodel.messages import Phrase, call_text, say
from ziggurat.frontends.language.phrases import NO_EXCEPTIONS, RETURN_RESULT
from ziggurat.frontends.python.source import Source

_OUTSIDE = "do it outside of the kernel; names of the module and of enclosing functions can be used inside"
_FUNCTION = say("define it outside of the kernel with {function} and call it")
_NO_EXCEPTIONS = NO_EXCEPTIONS()
_TUPLE = "write a tuple: (a, b)"
_LOOP = "write a for loop over range(...), or over a tuple"
_RESULT = RETURN_RESULT()
_STORE = say("store results with {}, or return them from a function under {function}", call_text("store"))

# Statements and expressions by class: the construct in words, and the hint.
CONSTRUCTS: dict[str, tuple[str, str]] = {
    "FunctionDef": ("a function inside of a kernel", _FUNCTION),
    "AsyncFunctionDef": ("an async function", _FUNCTION),
    "ClassDef": ("a class inside of a kernel", "pass its values as separate arguments, or as a tuple"),
    "Delete": ("del", "leave it out: a variable ends with its suite"),
    "AsyncFor": ("async for", "write a plain for loop over range(...)"),
    "With": ("with", "kernels have no context managers; write its statements without it"),
    "AsyncWith": ("async with", "kernels have no context managers; write its statements without it"),
    "Match": ("match", "write if and elif"),
    "Raise": ("raise", _NO_EXCEPTIONS),
    **dict.fromkeys(("Try", "TryStar"), ("try", _NO_EXCEPTIONS)),
    **dict.fromkeys(("Import", "ImportFrom"), ("an import inside of a kernel", _OUTSIDE)),
    "Global": ("global", _RESULT),
    "Nonlocal": ("nonlocal", _RESULT),
    "TypeAlias": ("a type alias", _OUTSIDE),
    "NamedExpr": ("an assignment inside of an expression (:=)", "assign in a statement of its own, before this one"),
    "Lambda": ("lambda", _FUNCTION),
    "Dict": ("a dictionary", "use variables, or a tuple"),
    "Set": ("a set", _TUPLE),
    **dict.fromkeys(("ListComp", "SetComp", "DictComp"), ("a comprehension", _LOOP)),
    "GeneratorExp": ("a generator", _LOOP),
    "Await": ("await", "leave it out: a kernel does not wait"),
    **dict.fromkeys(("Yield", "YieldFrom"), ("yield", _STORE)),
    **dict.fromkeys(("TemplateStr", "Interpolation"), ("a template string", "write a plain string")),
    "Starred": ("a starred expression", "write the items one by one"),
    "Slice": ("a slice", say("load the part that is needed, or reshape and use {}", call_text("split"))),
}

# Unsupported forms of supported constructs: the form in words, and the hint.
FORMS: dict[str, tuple[str, str]] = {
    "loop else": (
        "else after a loop",
        "put its statements after the loop, under an if of a flag that is set before break",
    ),
    "return in loop": (
        "return inside of a loop",
        "keep the result in a variable, leave the loop by break, and return it after the loop",
    ),
    "after break": ("a statement after break or continue", "remove it: it is never run"),
    "matmul": ("the operator @", say("write {}(a, b)", call_text("dot"))),
    "many indices": (
        "indexing with several indices",
        say(
            "index one after the other for tuples; load elements of an array through pointers with {}",
            call_text("load"),
        ),
    ),
    "store subscript": ("assignment to an item", say("write memory with {}; a tuple is made anew", call_text("store"))),
    "store attribute": ("assignment to an attribute", "assign to a variable"),
    "starred target": ("a starred target", "name every item"),
    "keyword arguments": ("**arguments in a call", "write the arguments one by one"),
    "keyword parameter": ("a parameter that takes any number of arguments", "name every parameter"),
    "type parameter": ("a function with type parameters", "leave them out: types are found from the arguments"),
    "literal": ("a literal of this kind", "write a number, a string, True, False, None, or a tuple of these"),
    "launch": ("kernel[grid](…)", say("launch kernels from Python; a kernel can call a function under {function}")),
    "range": ("a range outside of the head of a for loop", "write it as in: for i in range(n)"),
}


# The words of the C++ Triton for forms, which its users look for.
_TRITON_FORMS: dict[str, str] = {
    "return in loop": "Cannot have `return` statements inside `while` or `for` statements in triton",
    "many indices": "unsupported tensor index",
    "store subscript": "__setitem__ is not supported in triton",
    "store attribute": "Attribute assignment is not supported in triton",
    "nested function": "nested function definition is not supported",
    "matmul": "AST binary operator 'MatMult' is not (currently) implemented",
}


def unsupported(node: ast.AST, source: Source, form: str | None = None) -> KernelSyntaxError:
    """The error for a construct of the node's class, or for its form named in `FORMS`, at the node."""
    name = type(node).__name__
    what, instead = FORMS[form] if form is not None else CONSTRUCTS.get(name, (f"the construct '{name}'", _OUTSIDE))
    key = "nested function" if isinstance(node, ast.FunctionDef) else form
    words = f"unsupported AST node type: {name}" if key is None else _TRITON_FORMS.get(key)
    text = "a kernel cannot use {what}"
    summary = Phrase(text, tl=text if words is None else f"{words}: {text}")
    return KernelSyntaxError(summary(what=what), source.span(node), instead)
