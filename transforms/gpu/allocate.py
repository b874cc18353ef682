"""Allocation of shared memory: an offset for every buffer, by liveness, and the limit checked.

    %2 : shared<x64, f32, "1 2 4 8 16 32"> = gpu.local_alloc;

becomes `gpu.local_alloc @offset=256`, and the module says how much there is in all: `gpu.module @shared=512`.

`intervals` has the live ranges, and places them. If a CTA has less memory than that takes, no small buffer is kept
longer.

The error of a kernel that needs more than there is names the tensors that need it together:

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
from collections.abc import Sequence

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import ResourceError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.location import FRONTENDS, Location
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.transforms.analysis.intervals import Interval, intervals_of, place
from ziggurat.transforms.analysis.memory_flow import allocation, users_of
from ziggurat.transforms.analysis.queries import shared_of


def allocate(module: gpu.Module) -> Op:
    """The GPU model whose buffers have offsets. Raises `ResourceError` if they need more than the target has."""
    intervals = intervals_of(module)
    total = place(intervals)
    limit = TARGETS[module.target].max_shared
    if total > limit:
        intervals = intervals_of(module, small=0)
        total = place(intervals)
    if total > limit:
        raise shared_memory_error(_at_worst(intervals), total, limit, module.target)
    offsets = {interval.op: interval.offset for interval in intervals}

    def with_offset(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, gpu.LocalAlloc):
            return builder.add(gpu.LocalAlloc(op.type, offset=offsets[op], alignment=op.alignment), op.location)
        if isinstance(op, gpu.Module):
            return builder.add(op.evolve(body=builder.rewrite_body(op.body, isolated=True), shared=total), op.location)
        return None

    return transform(module, with_offset)


def _at_worst(intervals: Sequence[Interval]) -> list[gpu.LocalAlloc]:
    """The buffers that are alive when the most shared memory is needed."""
    alive = [[other for other in intervals if other.start <= each.start <= other.end] for each in intervals]
    return [interval.op for interval in max(alive, key=lambda together: sum(each.size for each in together))]


# The error of a kernel that needs more.

_MAX_TENSORS = 8  # Named in the error.
_MAX_EXPRESSION = 40  # Characters of an expression that is quoted.
_OPERANDS = (("first", "a"), ("second", "b"))  # For `zg.dot`: ordinal, and name of the parameter.
_PURPOSES: tuple[tuple[type[Op], str], ...] = (
    (gpu.LocalAtomicAdd, "the counters of histogram"),
    (gpu.LocalGather, "the table of a gather"),
    (gpu.TmaStore, "on its way to a descriptor"),
    (tt.Reduce, "on its way between warps for a reduction"),
    (tt.Scan, "on its way between warps for a scan"),
    (gpu.LocalLoad, "on its way between threads"),
)


def shared_memory_error(buffers: Sequence[gpu.LocalAlloc], total: int, limit: int, target: str) -> ResourceError:
    """The error of a kernel that needs `total` bytes where there are `limit`, with these buffers at the same time."""
    lines = [f"the kernel needs {total} bytes of shared memory; {target} has {limit} for a CTA"]
    quoted: Location | None = None
    staged = any(shared_of(op.result).count > 1 and not _holds_mbarriers(op) for op in buffers)
    for buffer in sorted(buffers, key=lambda op: -shared_of(op.result).bytes)[:_MAX_TENSORS]:
        type_, place = shared_of(buffer.result), buffer.location
        count = f"{type_.count} × " if type_.count > 1 else ""
        line = f"  {type_.bytes} bytes: {count}{'×'.join(map(str, type_.shape))} of {type_.element}"
        if _holds_mbarriers(buffer):
            lines.append(f"{line}: mbarriers, which signal that blocks have arrived")
            continue
        if details := ", ".join(filter(None, _name_and_purpose(buffer))):
            line += f": {details}"
        if place is None:
            lines.append(line)
            continue
        author = place.outside(FRONTENDS)
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
    return any(isinstance(user, gpu.MbarrierInit) for user in users_of(buffer.result))


def _name_and_purpose(buffer: gpu.LocalAlloc) -> tuple[str | None, str | None]:
    """The author's name of the tensor, and its purpose in shared memory, as far as they are known."""
    users = list(users_of(buffer.result))
    for number, (ordinal, _) in enumerate(_OPERANDS):
        for dot in (_dot_of(user, number, buffer.result) for user in users):
            if dot is not None:
                # The buffer may have the location of the load, whose result has a name; that of the dot's operand
                # comes first.
                name = _operand(dot.location, number) or _expression(buffer.location)[1]
                return name, f"the {ordinal} operand of dot"
    readers = [op for user in users if isinstance(user, gpu.LocalLoad) for op in user.result.uses]
    users += [op for op in readers if isinstance(op, tt.Reduce | tt.Scan)]
    purposes = (purpose for kind, purpose in _PURPOSES if any(isinstance(op, kind) for op in users))
    return _expression(buffer.location)[1], next(purposes, None)


def _dot_of(user: Op, number: int, buffer: Value) -> Op | None:
    """The dot that reads a value as its operand of this number: from shared memory, or after a load."""
    if isinstance(user, gpu.MatrixProduct | tt.Dot):
        return user if allocation(user.operands[number]) is buffer else None
    if not isinstance(user, gpu.LocalLoad | gpu.ConvertLayout | tt.Trans):
        return None
    return next((dot for op in user.result.uses if (dot := _dot_of(op, number, user.result)) is not None), None)


# The author's names.


def _operand(place: Location | None, number: int) -> str | None:
    """The operand of the `dot` at a place of the source, as it is written there."""
    whole, _ = _expression(place)
    calls = [node for node in ast.walk(whole) if isinstance(node, ast.Call) and _called(node) == "dot"] if whole else []
    if not calls or (len(calls) > 1 and calls[0] is not whole):
        return None
    arguments = [keyword.value for keyword in calls[0].keywords if keyword.arg == _OPERANDS[number][1]]
    arguments += calls[0].args[number : number + 1]
    text = ast.unparse(arguments[0]) if arguments else ""
    return text if 0 < len(text) <= _MAX_EXPRESSION else None


def _called(call: ast.Call) -> str | None:
    return getattr(call.func, "attr", None) or getattr(call.func, "id", None)


def _expression(place: Location | None) -> tuple[ast.expr | None, str | None]:
    """The expression at a place of the source, and the variable that it is assigned to, as far as they are known."""
    if place is None:
        return None, None
    place = place.outside(FRONTENDS)
    try:
        nodes = list(ast.walk(ast.parse("".join(linecache.getlines(place.file)))))
    except (SyntaxError, ValueError):
        return None, None
    position = (place.line, place.column, place.end_line, place.end_column)[: 4 if place.end_line else 2]
    for node in nodes:  # Outer expressions come first: of `f(x)(y)` the whole.
        if isinstance(node, ast.expr):
            span = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
            if span[: len(position)] == position:
                assigned = (n for n in nodes if isinstance(n, ast.Assign | ast.AnnAssign) and n.value is node)
                targets = (n.targets[0] if isinstance(n, ast.Assign) else n.target for n in assigned)
                return node, next((target.id for target in targets if isinstance(target, ast.Name)), None)
    return None, None
