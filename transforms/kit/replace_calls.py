"""Replacing calls: of helper functions, and of the language's calls in a Python model."""

from __future__ import annotations

import re
from collections.abc import Callable

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py, tt
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.op import Op, Value, require_argument, require_model
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.transforms.simplify import dce

_CONSTANT = re.compile(r"-?\d|\(|(True|False|None)_")
_CALLS = (tt.Call, core.FuncCall, py.Invoke)
Replacement = Callable[[Builder, tuple[Value, ...]], Value]


def _is_instance(function: Op, symbol: str, name: str) -> bool:
    """Whether the symbol of a function is this name, followed by types and values of constexpr parameters."""
    body = function.bodies[0]
    first = [*(parameter.type for parameter in body.parameters), body.yield_type][0]
    rest = symbol.removeprefix(f"{name}_")
    return rest != symbol and (rest.startswith(str(first)) or bool(_CONSTANT.match(rest)))


def replace_calls(model: Op, callee: str | Callable[[str], bool], replacement: Replacement) -> Op:
    """The model with the calls of a function replaced.

        kit.replace_calls(model, "zg.exp", lambda builder, arguments: builder.add(py.Invoke(arguments, "zg.exp2")))

    `callee` is the name of a helper function, or the name of a call in a Python model, `zg.exp`; or it says of a symbol
    whether it is meant. In a Triton model, a function has an instance for each combination of argument types, whose
    symbol has the types after the name (`relu_f32_f32`): the name alone will do where one instance is called.
    `replacement` gets the builder at the place of the call and the arguments, and gives the value that stands for the
    call's. Functions that nothing calls any more go. Raises `BuildError` when no call has the name, or calls of several
    instances have it.
    """
    require_model(model, "replace_calls")
    require_argument(
        replacement, callable(replacement), "replace_calls: 'replacement' must be a function (builder, arguments)"
    )
    callees = dict.fromkeys(op.callee for op in model.walk() if isinstance(op, _CALLS))
    if callable(callee):
        targets = list(filter(callee, callees))
    else:
        functions = model.functions() if isinstance(model, core.Module) else {}
        instances = [name for name in callees if name in functions and _is_instance(functions[name], name, callee)]
        targets = [callee] if callee in callees else instances
        if len(targets) != 1:
            problem = "several functions of that name" if targets else "no such function"
            names = ", ".join(targets or callees) or "none"
            raise BuildError(f"replace_calls: the model calls {problem} as {callee!r}", hint=f"it calls {names}")

    def transformer(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, _CALLS) and op.callee in targets:
            return replacement(builder, operands)
        return None

    new = transform(model, transformer, pass_name="replace_calls")
    return model if new is model else dce(new) if isinstance(new, core.Module) else new
