"""Replacing calls: of helper functions, and of the language's calls in a Python model."""

from __future__ import annotations

from collections.abc import Callable

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py, tt
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.transforms.simplify import dce

Replacement = Callable[[Builder, tuple[Value, ...]], Value]


def replace_calls(model: Op, callee: str | Callable[[str], bool], replacement: Replacement) -> Op:
    """The model with the calls of a function replaced.

        kit.replace_calls(model, "zg.exp", lambda builder, arguments: builder.add(py.Invoke(arguments, "zg.exp2")))

    `callee` is the symbol of a helper function in a Triton model, or the name of a call in a Python model, `zg.exp`; or
    it says of a name whether it is meant. `replacement` gets the builder at the place of the call and the arguments,
    and gives the value that stands for the call's. Functions that nothing calls any more go.
    """

    def matches(name: str) -> bool:
        return callee(name) if callable(callee) else name == callee

    def transformer(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, tt.Call | core.FuncCall | py.Invoke) and matches(op.callee):
            return replacement(builder, operands)
        return None

    made = transform(model, transformer, pass_name="replace_calls")
    return model if made is model else dce(made) if isinstance(made, core.Module) else made
