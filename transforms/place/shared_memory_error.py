"""The error of a kernel that needs more shared memory than there is, which names the tensors that are there together.

    the kernel needs 262144 bytes of shared memory; sm_90a has 232448 for a program
      131072 bytes: 256×256 of f16: a, the first operand of dot, at matmul.py:7:15
        acc = zg.dot(a, b, acc)
      131072 bytes: 256×256 of f16: b, the second operand of dot, at matmul.py:7:15
      hint: use smaller blocks

What a buffer is for is told by those that read it; what the author calls the tensor stands in the source at the place
of the op that the buffer was made for. Of several buffers in turn there are as many as a loop has stages.
"""

from __future__ import annotations

import ast
import linecache
import os
from collections.abc import Iterator, Sequence

import ziggurat.frontends.language
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import ResourceError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import SharedType

_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(ziggurat.frontends.language.__file__)), "")
_MOST = 8  # Tensors that are told.
_LONG = 40  # Characters of an expression that are told.
_ORDINALS = ("first", "second")
_PARAMETERS = ("a", "b")  # Of `zg.dot`.


def shortage(buffers: Sequence[gpu.LocalAlloc], total: int, limit: int, target: str) -> ResourceError:
    """The error of a kernel that needs `total` bytes where there are `limit`, with these buffers at the same time."""
    lines = [f"the kernel needs {total} bytes of shared memory; {target} has {limit} for a program"]
    quoted: Location | None = None
    for buffer in sorted(buffers, key=lambda op: -_type(op).bytes)[:_MOST]:
        type_ = _type(buffer)
        count = f"{type_.count} × " if type_.count > 1 else ""
        told = f"  {type_.bytes} bytes: {count}{'×'.join(map(str, type_.shape))} of {type_.element}"
        name, purpose = _name_and_purpose(buffer)
        if name or purpose:
            told += ": " + ", ".join(filter(None, (name, purpose)))
        place = buffer.location
        if place is None or _is_for_barriers(buffer):
            lines.append(told)
            continue
        author = place.outside(_LIBRARY)
        lines.append(f"{told}, at {author}")
        text = author.source_line()
        if text is not None and author != quoted:
            lines.append(f"    {text.strip()}")
        lines += [f"    called from {caller}" for caller in _callers(author)]
        if author is not place:
            lines.append(f"    in the library, at {place}")
        quoted = author
    staged = any(_type(buffer).count > 1 and not _is_for_barriers(buffer) for buffer in buffers)
    return ResourceError("\n".join(lines), hint="use smaller blocks" + ", or fewer stages" * staged)


def _type(buffer: gpu.LocalAlloc) -> SharedType:
    assert isinstance(buffer.type, SharedType)
    return buffer.type


def _is_for_barriers(buffer: gpu.LocalAlloc) -> bool:
    return any(isinstance(user, gpu.MbarrierInit) for user in _users(buffer.result))


def _callers(place: Location) -> Iterator[Location]:
    while place.caller is not None:
        place = place.caller
        yield place


# What a buffer is for.


def _name_and_purpose(buffer: gpu.LocalAlloc) -> tuple[str | None, str | None]:
    """What the author calls the tensor, and what it is in shared memory for, each as far as it is known."""
    if _is_for_barriers(buffer):
        return None, "mbarriers, which tell that blocks are there"
    users = list(_users(buffer.result))
    for number, ordinal in enumerate(_ORDINALS):
        for user in users:
            dot = _dot_of(user, number, buffer.result)
            if dot is not None:
                # The buffer's op may be the load, of which the result has a name; the product's has its operands.
                name = _operand(dot.location, number) or _variable(buffer.location)
                return name, f"the {ordinal} operand of dot"
    for kind, purpose in _PURPOSES:
        if any(isinstance(user, kind) for user in users):
            return _variable(buffer.location), purpose
    for user in users:
        if isinstance(user, gpu.LocalLoad):
            for after in user.result.uses:
                if isinstance(after, tt.Reduce | tt.Scan):
                    what = "reduction" if isinstance(after, tt.Reduce) else "scan"
                    return _variable(buffer.location), f"on its way between warps for a {what}"
            return _variable(buffer.location), "on its way between threads"
    return _variable(buffer.location), None


_PURPOSES: tuple[tuple[type[Op], str], ...] = (
    (gpu.LocalAtomicAdd, "the counters of histogram"),
    (gpu.LocalGather, "what threads look up"),
    (gpu.TmaStore, "on its way to a descriptor"),
)


def _users(buffer: Value) -> Iterator[Op]:
    """The ops that use a buffer, or a part of it."""
    for user in buffer.uses:
        if isinstance(user, gpu.LocalView | gpu.LocalTrans):
            yield from _users(user.result)
        else:
            yield user


def _dot_of(user: Op, number: int, buffer: Value) -> Op | None:
    """The product that reads a buffer as this operand, from shared memory or after it has been loaded."""
    if isinstance(user, gpu.Wgmma | gpu.Mma | gpu.DotFma | tt.Dot):
        return user if _leads_from(user.operands[number], buffer) else None
    if not isinstance(user, gpu.LocalLoad | gpu.ConvertLayout | tt.Trans):
        return None
    return next((dot for op in user.result.uses if (dot := _dot_of(op, number, user.result)) is not None), None)


def _leads_from(value: Value, buffer: Value) -> bool:
    """Whether a buffer is `buffer` or a part of it."""
    while value is not buffer:
        op = getattr(value, "op", None)
        if not isinstance(op, gpu.LocalView | gpu.LocalTrans):
            return False
        value = op.buffer
    return True


# What the author calls it.


def _operand(place: Location | None, number: int) -> str | None:
    """The operand of the `dot` that stands at this place of the source, as it is written there."""
    found = _expression(place)
    if place is None or found is None:
        return None
    source, node, _ = found
    calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call) and _called(inner) == "dot"]
    if isinstance(node, ast.Call) and _called(node) == "dot":
        calls = [node]
    if len(calls) != 1:
        return None
    given = [keyword.value for keyword in calls[0].keywords if keyword.arg == _PARAMETERS[number]]
    if len(calls[0].args) > number:
        given = [calls[0].args[number]]
    return _shortened(ast.get_source_segment(source, given[0])) if given else None


def _variable(place: Location | None) -> str | None:
    """The variable that the expression at this place is assigned to."""
    found = _expression(place)
    return found[2] if found is not None else None


def _called(call: ast.Call) -> str | None:
    return getattr(call.func, "attr", None) or getattr(call.func, "id", None)


def _shortened(text: str | None) -> str | None:
    text = " ".join(text.split()) if text is not None else ""
    return text if 0 < len(text) <= _LONG else None


def _expression(place: Location | None) -> tuple[str, ast.AST, str | None] | None:
    """The text of the file of a place, the expression there, and the variable that it is assigned to, if it is."""
    if place is None:
        return None
    place = place.outside(_LIBRARY)
    source = "".join(linecache.getlines(place.file))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):  # The outer ones first: of `f(x)(y)` the whole.
        if isinstance(node, ast.expr) and _stands_at(node, place):
            return source, node, next(_assigned(tree, node), None)
    return None


def _stands_at(node: ast.expr, place: Location) -> bool:
    if (node.lineno, node.col_offset) != (place.line, place.column):
        return False
    return not place.end_line or (node.end_lineno, node.end_col_offset) == (place.end_line, place.end_column)


def _assigned(tree: ast.AST, value: ast.expr) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and node.value is value and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id
        elif isinstance(node, ast.AnnAssign) and node.value is value and isinstance(node.target, ast.Name):
            yield node.target.id
