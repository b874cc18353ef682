"""Inlining: a call becomes the body of the function that it calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import cf, core, tt
from ziggurat.codemodel.errors import BuildError, ResourceError
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Body, Op, Successor, Value, require_argument, require_model
from ziggurat.codemodel.traits import Returns, Routine
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, Transformer, transform
from ziggurat.codemodel.types import void
from ziggurat.transforms.simplify.demand import callees, reachable_roots

# The limit of a function's ops after inlining.
MAX_OPS = 1 << 17
_CALLS = (tt.Call, core.FuncCall)


def inline(op: Op) -> Op:
    """Replace the calls in a module by the bodies of their functions, to any depth.

        tt.func @"twice" (%0 : i32)i32 -> {                   tt.func @"kernel" (%0 : i32)void -> {
            %1 : i32 = arith.addi %0 %0;                          %1 : i32 = arith.addi %0 %0;
            tt.return %1;                                         tt.print %1 @"";
        };                                                        tt.return;
        tt.func @"kernel" (%0 : i32)void -> {                 };
            %1 : i32 = tt.call %0 @"twice";
            tt.print %1 @"";
            tt.return;
        };

    Functions that are left without a call are removed. Calls stay when the function has `noinline`, is recursive, or
    has a `return` inside a loop or a branch (`lower_structured` turns it into blocks). A function of several blocks is
    inlined where the call stands directly in a function, whose blocks can be split. The location of an inlined op has
    the place of the call. Gives `op` itself where it is no module, or there is nothing to inline. Raises
    `ResourceError` when a function would come to more than `MAX_OPS` ops.
    """
    require_model(op, "inline")
    if not isinstance(op, core.Module):
        return op
    functions = op.functions()
    if len(functions) == 1 and not op.holds(_CALLS):
        return op
    roots = reachable_roots(op)
    _demand_size(functions, roots)
    inlining = _Inlining(functions, roots)
    if not inlining.going and not op.holds(_CALLS):
        return op
    return transform(op, inlining)


def inline_call(
    builder: Builder,
    function: Op,
    arguments: Sequence[Value],
    *,
    location: Location | None = None,
    transformers: Sequence[Transformer] = (),
) -> Value | None:
    """Append the body of a `tt.func` or a `func`, applied to these arguments, at the place of the builder.

    Gives its result, packed into a Tuple where it returns several values, or None where it returns none. A function of
    several blocks makes the builder go on in a new block. `location` is the place of the call, `transformers` are asked
    about the ops of the function. In a transformer, a function of the transformed model goes with its last call.
    Raises `BuildError` when the arguments do not fit or the function cannot be inlined here.
    """
    require_argument(builder, Builder, "inline_call: 'builder' must be a Builder")
    require_argument(function, (tt.Func, core.Func), "inline_call: 'function' must be a tt.func or a func")
    require_argument(arguments, Sequence, "inline_call: 'arguments' must be a list of values")
    for value in arguments:
        require_argument(value, Value, "inline_call: an argument must be a Value")
    if isinstance(builder, Rewriter):
        builder.note_inlined(function)
    body = function.bodies[0]
    expected, types = [p.type for p in body.parameters], [value.type for value in arguments]
    if expected != types:
        raise BuildError(f"inline_call: the arguments must be of types ({_listed(expected)}); got ({_listed(types)})")
    if not can_inline(function, builder):
        raise BuildError("inline_call: the function returns from a loop or a branch, or its blocks have no place here")
    if len(body.blocks) == 1:
        inner = Rewriter.over(builder, transformers, caller=location)
        inner.mapping.values.update(zip(body.parameters, arguments, strict=True))
        inner.rewrite_ops(body.entry.ops[:-1])
        values = [inner[value] for value in body.entry.terminator.operands]
        builder.move_to(inner.block)
    else:
        results = next((b.terminator.operands for b in body.blocks if isinstance(b.terminator, Returns)), ())
        rest = builder.new_block([value.type for value in results])
        branch = cf.Br if isinstance(function, tt.Func) else core.Branch

        def leave(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
            if not isinstance(op, Returns) or op.parent is None or op.parent.parent is not body:
                return None
            builder.add(branch(Successor(rest, operands)))
            return DROP

        inner = Rewriter.over(builder, (leave, *transformers), caller=location)
        inner.mapping.values.update(zip(body.parameters, arguments, strict=True))
        inner.rewrite_blocks(body)
        builder.move_to(rest)
        values = list(rest.parameters)
    if len(values) > 1:
        return builder.add(core.MakeTuple(values), location)
    return values[0] if values else None


class _Inlining:
    """The transformer. It is asked about the ops of the functions that it inlines as well."""

    def __init__(self, functions: Mapping[str, Op], roots: Sequence[Op]) -> None:
        self.functions = functions
        self.recursive = _recursive(functions)
        # Functions that are inlined at every call. They are dropped at once, so that no call in them is inlined first.
        self.going = {
            name
            for name, function in functions.items()
            if isinstance(function, tt.Func) and not function.noinline and can_inline(function)
            if name not in self.recursive and not any(function is root for root in roots)
        }

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, tt.Func) and op.sym_name in self.going:
            return DROP
        if not isinstance(op, _CALLS) or (isinstance(op, core.FuncCall) and op.keywords):
            return None
        function = self.functions.get(op.callee)
        if function is None or op.callee in self.recursive:
            return None
        if function.attributes.get("noinline") or not can_inline(function, builder):
            return None
        location = builder.location
        value = inline_call(builder, function, operands, location=location, transformers=(self,))
        builder.location = location
        if value is not None:
            return value
        if op.result.type == void:
            return DROP
        # A Python function that returns nothing gives None.
        return builder.add(core.ConstantOp(None, type=op.result.type))


def can_inline(function: Op, builder: Builder | None = None) -> bool:
    """Whether all returns of a function end its blocks, and these have a place at the builder: in a function.

    Without a builder, whether they have a place at every builder.
    """
    body = function.bodies[0]
    if len(body.blocks) > 1 and (builder is None or builder.body.ancestor is not None):
        return False
    ends = [block.terminator for block in body.blocks]
    if len(ends) == 1 and not isinstance(ends[0], Returns):
        return False
    return sum(isinstance(op, Returns) for op in ends) == _returns(body)


def _returns(body: Body) -> int:
    """The number of returns that leave the function of a body: not those of functions inside."""
    ops = [op for block in body.blocks for op in block.ops]
    inner = sum(_returns(inside) for op in ops if not isinstance(op, Routine) for inside in op.bodies)
    return inner + sum(isinstance(op, Returns) for op in ops)


def _recursive(functions: Mapping[str, Op]) -> set[str]:
    """The functions that may call themselves, directly or through others."""
    calls = {
        name: {callee for inner in function.walk() for callee in callees(inner) if callee in functions}
        for name, function in functions.items()
    }
    return {name for name in functions if name in reached(calls[name], calls.__getitem__)}


def _demand_size(functions: Mapping[str, Op], roots: Sequence[Op]) -> None:
    """Raise `ResourceError` at the call, in a root, by which the root would get more than `MAX_OPS` ops."""
    sizes: dict[str, int] = {}

    def size(name: str) -> int:
        if name not in sizes:
            sizes[name] = 1  # A recursive function is not inlined.
            function = functions[name]
            inner = sum(size(op.callee) for op in function.walk() if isinstance(op, tt.Call) and op.callee in functions)
            sizes[name] = inner + sum(1 for _ in function.walk())
        return sizes[name]

    for root in roots:
        calls = [op for op in root.walk() if isinstance(op, tt.Call) and op.callee in functions]
        total = sum(size(op.callee) for op in calls)
        if total > MAX_OPS:
            raise ResourceError(
                f"inlining the functions that '{root.attributes['sym_name']}' calls gives {total:,} operations, "
                f"more than {MAX_OPS:,}",
                max(calls, key=lambda op: size(op.callee)).location,
                "call helper functions fewer times, in a loop over range for instance",
            )


def _listed(types: Sequence[object]) -> str:
    return ", ".join(map(str, types))
