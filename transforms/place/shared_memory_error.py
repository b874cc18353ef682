"""The error of a kernel that needs more shared memory than there is. It names the tensors that need it together.

    the kernel needs 262144 bytes of shared memory; sm_90a has 232448 for a CTA
      131072 bytes: 256×256 of f16: a, the first operand of dot, at matmul.py:7:15
        acc = zg.dot(a, b, acc)
      131072 bytes: 256×256 of f16: b, the second operand of dot, at matmul.py:7:15
      hint: use smaller blocks

The readers of a buffer tell its purpose. The name of the tensor stands in the source, where the op is that the buffer
was made for. A ring has as many buffers as the loop has stages.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import ResourceError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op, Value
from ziggurat.transforms.place.flow import allocation
from ziggurat.transforms.place.obstacle import LIBRARY
from ziggurat.transforms.place.queries import shared_of

_MAX_TENSORS = 8  # Named in the error.
_MAX_EXPRESSION = 40  # Characters of an expression that is quoted.
_OPERANDS = (("first", "a"), ("second", "b"))  # For `zg.dot`: ordinal, and name of the parameter.
_PURPOSES: tuple[tuple[type[Op], str], ...] = (
    (gpu.MbarrierInit, "mbarriers, which tell that blocks are there"),
    (gpu.LocalAtomicAdd, "the counters of histogram"),
    (gpu.LocalGather, "the table of a gather"),
    (gpu.TmaStore, "on its way to a descriptor"),
)


def shared_memory_error(buffers: Sequence[gpu.LocalAlloc], total: int, limit: int, target: str) -> ResourceError:
    """The error of a kernel that needs `total` bytes where there are `limit`, with these buffers at the same time."""
    lines = [f"the kernel needs {total} bytes of shared memory; {target} has {limit} for a CTA"]
    quoted: Location | None = None
    staged = any(shared_of(op.result).count > 1 and not _holds_mbarriers(op) for op in buffers)
    for buffer in sorted(buffers, key=lambda op: -shared_of(op.result).bytes)[:_MAX_TENSORS]:
        type_ = shared_of(buffer.result)
        count = f"{type_.count} × " if type_.count > 1 else ""
        line = f"  {type_.bytes} bytes: {count}{'×'.join(map(str, type_.shape))} of {type_.element}"
        name, purpose = _name_and_purpose(buffer)
        if name or purpose:
            line += ": " + ", ".join(filter(None, (name, purpose)))
        place = buffer.location
        if place is None or _holds_mbarriers(buffer):
            lines.append(line)
            continue
        author = place.outside(LIBRARY)
        lines.append(f"{line}, at {author}")
        text = author.source_line()
        if text is not None and author != quoted:
            lines.append(f"    {text.strip()}")
        quoted = caller = author
        while caller.caller is not None:
            caller = caller.caller
            lines.append(f"    called from {caller}")
        if author is not place:
            lines.append(f"    in the library, at {place}")
    return ResourceError("\n".join(lines), hint="use smaller blocks" + ", or fewer stages" * staged)


# The purpose of a buffer.


def _holds_mbarriers(buffer: gpu.LocalAlloc) -> bool:
    return any(isinstance(user, gpu.MbarrierInit) for user in _users(buffer.result))


def _name_and_purpose(buffer: gpu.LocalAlloc) -> tuple[str | None, str | None]:
    """The author's name of the tensor, and its purpose in shared memory, as far as they are known."""
    users = list(_users(buffer.result))
    for number, (ordinal, _) in enumerate(_OPERANDS):
        dot = next((dot for user in users if (dot := _dot_of(user, number, buffer.result)) is not None), None)
        if dot is not None:
            # The buffer's location may be that of the load, whose result has a name; the operands of dot have theirs.
            name = _operand(dot.location, number) or _variable(buffer.location)
            return name, f"the {ordinal} operand of dot"
    for kind, purpose in _PURPOSES:
        if any(isinstance(user, kind) for user in users):
            return None if kind is gpu.MbarrierInit else _variable(buffer.location), purpose
    loads = [user for user in users if isinstance(user, gpu.LocalLoad)]
    purpose = "on its way between threads" if loads else None
    combined = next((op for op in (loads[0].result.uses if loads else ()) if isinstance(op, tt.Reduce | tt.Scan)), None)
    if combined is not None:
        kind = "reduction" if isinstance(combined, tt.Reduce) else "scan"
        purpose = f"on its way between warps for a {kind}"
    return _variable(buffer.location), purpose


def _users(buffer: Value) -> Iterator[Op]:
    """The ops that use a buffer, or a part of it."""
    for user in buffer.uses:
        if isinstance(user, gpu.LocalView):
            yield from _users(user.result)
        else:
            yield user


def _dot_of(user: Op, number: int, buffer: Value) -> Op | None:
    """The dot that reads a value as its operand of this number: from shared memory, or after a load."""
    if isinstance(user, gpu.Wgmma | gpu.Mma | gpu.DotFma | tt.Dot):
        return user if allocation(user.operands[number]) is buffer else None
    if not isinstance(user, gpu.LocalLoad | gpu.ConvertLayout | tt.Trans):
        return None
    return next((dot for op in user.result.uses if (dot := _dot_of(op, number, user.result)) is not None), None)


# The author's names.


def _operand(place: Location | None, number: int) -> str | None:
    """The operand of the `dot` at a place of the source, as it is written there."""
    found = _expression(place)
    if found is None:
        return None
    source, node, _ = found
    calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call) and _called(inner) == "dot"]
    if isinstance(node, ast.Call) and _called(node) == "dot":
        calls = [node]
    if len(calls) != 1:
        return None
    given = [keyword.value for keyword in calls[0].keywords if keyword.arg == _OPERANDS[number][1]]
    given += calls[0].args[number : number + 1]
    text = " ".join((ast.get_source_segment(source, given[0]) or "").split()) if given else ""
    return text if 0 < len(text) <= _MAX_EXPRESSION else None


def _variable(place: Location | None) -> str | None:
    """The variable that the expression at a place is assigned to."""
    found = _expression(place)
    return found[2] if found is not None else None


def _called(call: ast.Call) -> str | None:
    return getattr(call.func, "attr", None) or getattr(call.func, "id", None)


def _expression(place: Location | None) -> tuple[str, ast.expr, str | None] | None:
    """The text of the file of a place, the expression there, and the variable that it is assigned to, if it is."""
    if place is None:
        return None
    place = place.outside(LIBRARY)
    source = "".join(linecache.getlines(place.file))
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return None
    for node in nodes:  # Outer expressions come first: of `f(x)(y)` the whole.
        if not isinstance(node, ast.expr) or (node.lineno, node.col_offset) != (place.line, place.column):
            continue
        if not place.end_line or (node.end_lineno, node.end_col_offset) == (place.end_line, place.end_column):
            for statement in nodes:
                if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is node:
                    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
                    return source, node, target.id if isinstance(target, ast.Name) else None
            return source, node, None
    return None
