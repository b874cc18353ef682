"""Constructs of Python that kernels do not have, each with a hint: the parts of a model that are `python` ops.

Reflection reads them as it reads any function. A kernel that runs one is refused here, where it is compiled.
The keys of `CONSTRUCTS` are names of classes of `ast`, so that the table holds for every version of Python.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ziggurat.codemodel.dialects import py
from ziggurat.codemodel.errors import KernelErrors, KernelSyntaxError, ZigguratError, source_order
from ziggurat.codemodel.messages import Phrase, call_text, say
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Rewriter, transform
from ziggurat.frontends.language.function import Function
from ziggurat.frontends.language.languages import EXPLICIT, Language
from ziggurat.frontends.language.phrases import NO_EXCEPTIONS, RETURN_RESULT

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
    "literal": ("a literal of this kind", "write a number, a string, True, False, None, or a tuple of these"),
    "launch": ("kernel[grid](…)", say("launch kernels from Python; a kernel can call a function under {function}")),
    "range": ("a range outside of the head of a for loop", "write it as in: for i in range(n)"),
}


# The words of the C++ Triton, which its users look for.
_TRITON_WORDS: dict[str, str] = {
    "return in loop": "Cannot have `return` statements inside `while` or `for` statements in triton",
    "many indices": "unsupported tensor index",
    "store subscript": "__setitem__ is not supported in triton",
    "store attribute": "Attribute assignment is not supported in triton",
    "FunctionDef": "nested function definition is not supported",
    "matmul": "AST binary operator 'MatMult' is not (currently) implemented",
}


def unsupported(op: py.Plain) -> KernelSyntaxError:
    """The error for a construct that kernels do not have, at its place."""
    name = op.construct
    what, instead = FORMS.get(name) or CONSTRUCTS.get(name) or (f"the construct '{name}'", _OUTSIDE)
    words = f"unsupported AST node type: {name}" if name not in FORMS else None
    words = _TRITON_WORDS.get(name, words)
    text = "a kernel cannot use {what}"
    summary = Phrase(text, tl=text if words is None else f"{words}: {text}")
    return KernelSyntaxError(summary(what=what), op.location, instead)


def kernel_model(function: Function) -> Op:
    """The Python code model of a function that a kernel reaches, as it is compiled; see `checked`.

    Raises the errors of the function: those that reflection has, and those of the constructs that kernels do not have.
    """
    language = function.language
    try:
        model = function.model
    except ZigguratError as error:
        if not function.plain:
            raise
        errors = sorted([*error.parts, *map(unsupported, function.plain)], key=source_order)
        raise language.error(KernelErrors.of(errors)) from None
    try:
        return checked(model, language)
    except ZigguratError as error:
        raise language.error(error) from None


def checked(model: Op, language: Language = EXPLICIT) -> Op:
    """A model with an `error` in the place of each construct that kernels do not have.

    These stand where they may never run. Raises all errors of the model if there is one that always runs.
    """
    checked_model = _CHECKED.get(model)
    if checked_model is not None:
        return checked_model
    parts = [op for op in model.walk() if isinstance(op, py.Plain)]
    if not parts:
        return model
    if any(map(_always_runs, parts)):
        errors = [unsupported(op) for op in parts]
        errors += [op.error() for op in model.walk() if isinstance(op, py.Error)]
        raise KernelErrors.of(sorted(errors, key=source_order))

    def as_error(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        if not isinstance(op, py.Plain):
            return None
        error = unsupported(op)
        error.say_in(language.words)
        return builder.add(py.Error.of(error), op.location)

    checked_model = _CHECKED[model] = transform(model, as_error)
    return checked_model


# The models that have errors, and what `checked` has made of them.
_CHECKED: WeakKeyDictionary[Op, Op] = WeakKeyDictionary()


def _always_runs(op: Op) -> bool:
    """Whether an op runs whenever its function does: it stands in no branch, and in no part that may be left out."""
    body = op.parent.parent if op.parent is not None else None
    around = body.parent if body is not None else None
    if body is None or around is None:
        return True
    first = around.bodies[0] is body
    if isinstance(around, py.If | py.CondExpression):
        return False
    if isinstance(around, py.While | py.CondAnd | py.CondOr | py.Comprehension) and not first:
        return False
    return _always_runs(around)
