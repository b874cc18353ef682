"""Inlining of calls of plain Python functions, on the tier of Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.op import Op, Value, require_argument, require_model
from ziggurat.codemodel.python_parameters import defaults_of, names_of, signature_of
from ziggurat.codemodel.traits import Returns
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import pyobject
from ziggurat.transforms.simplify.inline import can_inline, inline_call
from ziggurat.transforms.simplify.lower_structured import lower_structured

# Builtins that look at the function that calls them.
_OF_THE_CALLER = frozenset(("locals", "vars", "dir", "eval", "exec", "super", "globals", "__class__"))
_LITERALS = (type(None), bool, int, float, str)


def inline_functions(model: Op, functions: Mapping[str, Op]) -> Op:
    """The model of a Python function, with the body of a called function in the place of each of its calls.

    `functions` has the models by the names that calls use. A name must mean this function whenever the model runs, and
    the names from outside that the function uses must mean the same in `model`. Arguments are bound as Python binds
    them. A call stays whose arguments do not fit or are starred. A function that returns from the middle comes as
    blocks: then `model` is lowered, too, and calls stay that stand in a `try`, a `with`, a `match`, a comprehension or
    a function inside. Gives `model` itself where nothing is called.

    Raises `BuildError` for a generator, a coroutine, a function with `*args` or `**keywords`, with a default that is no
    number or string, with variables of functions around, or that asks for its own variables.
    """
    require_model(model, "inline_functions")
    require_argument(functions, Mapping, "inline_functions: 'functions' must be a dict from names to models")
    callees = {name: _Callee(name, function) for name, function in functions.items()}
    calls = [op for op in model.walk() if isinstance(op, py.Invoke) and op.callee in callees]
    if any(len(callees[op.callee].function.bodies[0].blocks) > 1 for op in calls):
        model = lower_structured(model)

    def inlining(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        callee = callees.get(op.callee) if isinstance(op, py.Invoke) else None
        if callee is None or not isinstance(op, py.Invoke) or op.starred or "**" in op.keywords:
            return None
        arguments = callee.bound(builder, op, operands)
        if arguments is None or not can_inline(callee.function, builder):
            return None
        return inline_call(builder, callee.function, arguments, location=op.location)

    return transform(model, inlining, pass_name="inline_functions")


class _Callee:
    """A function to be inlined: with the value None in each return that has none, and in blocks if it must be."""

    def __init__(self, name: str, function: Op) -> None:
        if not isinstance(function, core.Func):
            raise BuildError(
                f"inline_functions: '{name}' must be the model of a Python function; got a {function.NAME}"
            )
        marks = [text for text in function.parameters if text.startswith("*") and text != "*"]
        names = {op.callee for op in function.walk() if isinstance(op, py.Invoke)}
        names |= {op.name for op in function.walk() if isinstance(op, py.Outer)}
        for present, problem in (
            (function.kind not in ("def", "lambda"), "it is a generator or a coroutine"),
            (bool(marks), f"it takes {', '.join(marks)}"),
            (bool(function.free), "it uses variables of functions around it"),
            (bool(names & _OF_THE_CALLER), "it asks for its own variables or its class"),
        ):
            if present:
                raise BuildError(f"inline_functions: '{name}' cannot be inlined: {problem}", function.location)
        names_ = names_of(function)
        defaults, keywords = defaults_of(function, names_, "inline_functions", {})
        if not all(isinstance(value, _LITERALS) for value in (*defaults, *keywords.values())):
            raise BuildError(f"inline_functions: a default of '{name}' is no number or string", function.location)
        self.signature = signature_of(function.parameters, names_, defaults, keywords)
        self.function = transform(function, _with_value)
        if not can_inline(self.function):
            self.function = lower_structured(self.function)

    def bound(self, builder: Rewriter, op: py.Invoke, operands: tuple[Value, ...]) -> list[Value] | None:
        """The values of the parameters, for a call; None where the arguments do not fit."""
        count = len(operands) - len(op.keywords)
        try:
            bound = self.signature.bind(*operands[:count], **dict(zip(op.keywords, operands[count:], strict=True)))
        except TypeError:
            return None
        bound.apply_defaults()
        values: list[Any] = [bound.arguments[name] for name in self.signature.parameters]
        return [v if isinstance(v, Value) else builder.add(core.ConstantOp(v, pyobject)) for v in values]


def _with_value(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    """Let a return without a value return None."""
    if isinstance(op, Returns) and not operands:
        around = next(here for here in op.path() if here is not op and here.SPEC.ends(0) is core.Return)
        if isinstance(around, core.Func):
            builder.add(core.Return((builder.add(core.ConstantOp(None, pyobject)),)))
            return DROP
    return None
