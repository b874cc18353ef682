"""Loops and branches with a return inside, or with bodies of several blocks, written as blocks of the function."""

from __future__ import annotations

from ziggurat.backend.mlir.counting import before_stop
from ziggurat.backend.mlir.emitter import Emitter, Names
from ziggurat.backend.mlir.types import leaves, mlir_type, mlir_types
from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.op import Body, Op
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import Returns
from ziggurat.codemodel.types import ScalarType


def needs_blocks(op: Op) -> bool:
    """Whether structured control flow has no form in MLIR's structured ops."""
    return any(
        isinstance(inner, Returns)
        or (isinstance(inner, Structured) and any(len(body.blocks) > 1 for body in inner.bodies))
        for inner in op.walk()
    )


def _goto(e: Emitter, label: str, names: Names, types: tuple[str, ...]) -> None:
    e.line(f"cf.br {_jump(label, names, types)}")


def _jump(label: str, names: Names, types: tuple[str, ...]) -> str:
    return f"{label}({', '.join(names)} : {', '.join(types)})" if names else label


def _begin(e: Emitter, label: str, types: tuple[str, ...]) -> Names:
    """Begin a block with parameters of these types. Returns their names."""
    names = tuple(e.fresh("%arg") for _ in types)
    e.label(label, tuple(zip(names, types, strict=True)))
    return names


def _bind(e: Emitter, body: Body, names: Names) -> None:
    """Give the parameters of a body these values."""
    rest = list(names)
    for parameter in body.parameters:
        count = len(leaves(parameter.type))
        e.values[parameter] = tuple(rest[:count])
        del rest[:count]


def if_as_blocks(e: Emitter, op: scf.If) -> Names:
    """A conditional branch to the blocks of both bodies, and a block after them with the results as parameters."""
    types = mlir_types(op.result.type)
    then, otherwise, after = (e.fresh("^bb") for _ in range(3))
    e.line(f"cf.cond_br {e.name(op.condition)}, {then}, {otherwise}")
    for label, body in ((then, op.then), (otherwise, op.otherwise)):
        e.exits[body] = lambda end: _goto(e, after, e.names(end.operands), types)
        e.label(label)
        e.blocks(body)
    return _begin(e, after, types)


def while_as_blocks(e: Emitter, op: scf.While) -> Names:
    """A block for the condition, one for the body with a branch back, and one after the loop.

    The carried values are parameters of each.
    """
    types = mlir_types(op.result.type)
    head, body, after = (e.fresh("^bb") for _ in range(3))
    _goto(e, head, e.names(op.initial), types)

    def decide(end: Op) -> None:
        assert isinstance(end, scf.Condition)
        names = e.names(end.values)
        e.line(f"cf.cond_br {e.name(end.condition)}, {_jump(body, names, types)}, {_jump(after, names, types)}")

    e.exits[op.before] = decide
    e.exits[op.after] = lambda end: _goto(e, head, e.names(end.operands), types)
    _bind(e, op.before, _begin(e, head, types))
    e.blocks(op.before)
    _bind(e, op.after, _begin(e, body, types))
    e.blocks(op.after)
    return _begin(e, after, types)


def for_as_blocks(e: Emitter, op: scf.For) -> Names:
    """A block that compares the index, one for the body with a branch back, and one after the loop."""
    types = mlir_types(op.result.type)
    index_type = op.start.type
    assert isinstance(index_type, ScalarType)
    carried = (mlir_type(index_type), *types)
    head, body, after = (e.fresh("^bb") for _ in range(3))
    _goto(e, head, (e.name(op.start), *e.names(op.initial)), carried)
    index, *values = _begin(e, head, carried)
    runs = before_stop(e, index, e.name(op.stop), op.step, index_type)
    e.line(f"cf.cond_br {runs}, {body}, {_jump(after, tuple(values), types)}")

    def advance(end: Op) -> None:
        following = e.value(f"arith.addi {index}, {e.name(op.step)}", f" : {carried[0]}")
        _goto(e, head, (following, *e.names(end.operands)), carried)

    e.exits[op.body] = advance
    e.label(body)
    _bind(e, op.body, (index, *values))
    e.blocks(op.body)
    return _begin(e, after, types)
