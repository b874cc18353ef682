"""A tracer: the model of a function with a note after each assignment, made a function again.

Notes say the line, the name and the value. The function itself, its source and its globals stay as they are.
"""

from collections.abc import Callable
from typing import Any

import ziggurat as zg
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.transform import Rewriter
from ziggurat.codemodel.types import pyobject

Note = tuple[int, str, Any]


def with_notes(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
    """Put `_note(line, name, value)` after each assignment to a variable."""
    if not isinstance(op, core.Var | core.VarStore) or not operands:
        return None
    variable = op if isinstance(op, core.Var) else op.var.op
    result = builder.copy(op, operands)
    new = result if isinstance(op, core.Var) else operands[0]
    line = op.location.line if op.location is not None else 0
    arguments = [builder.add(core.ConstantOp(value, pyobject)) for value in (line, variable.name)]
    builder.add(py.Invoke((*arguments, builder.add(core.VarLoad(new))), "_note"))
    return result if isinstance(result, OpResult) else None


def traced(f: Callable[..., Any], note: Callable[[int, str, Any], None]) -> Callable[..., Any]:
    """The function, which calls `note` after each assignment to one of its variables."""
    model = zg.transform(zg.reflect(f), with_notes, pass_name="with_notes")
    zg.verify(model)
    return zg.to_function(model, like=f, _note=note)


def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


def main() -> None:
    notes: list[Note] = []
    function = traced(gcd, lambda line, name, value: notes.append((line, name, value)))
    assert function(48, 18) == gcd(48, 18) == 6
    first = gcd.__code__.co_firstlineno
    for line, name, value in notes:
        print(f"line {line - first:2}: {name} = {value!r}")
    assert [(name, value) for _, name, value in notes] == [
        *(("a", 48), ("b", 18)),
        *(("a", 18), ("b", 12)),
        *(("a", 12), ("b", 6)),
        *(("a", 6), ("b", 0)),
    ]


if __name__ == "__main__":
    main()
