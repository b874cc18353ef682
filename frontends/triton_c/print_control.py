"""Triton-C text of branches and loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ziggurat.codemodel.dialects import arith, scf
from ziggurat.codemodel.op import Body, constant_of
from ziggurat.frontends.triton_c.function_printer import INFIX, PRINTERS, Printer, inexpressible, prints
from ziggurat.frontends.triton_c.print_reductions import types_of


@prints(scf.If)
def _if(p: Printer, op: scf.If) -> None:
    types = types_of(op.result.type)
    names = p.variables(types, None, op)

    def part(body: Body) -> Callable[[], None]:
        return lambda: p.assign(names, p.statements(body), op)

    p.block(f"if ({p[op.condition]})", part(op.then), "}" if _is_empty(op.otherwise) else "} else {")
    if not _is_empty(op.otherwise):
        p.indent += 1
        part(op.otherwise)()
        p.indent -= 1
        p.line("}")
    p.give(op.result, names)


def _is_empty(body: Body) -> bool:
    return len(body.entry.ops) == 1 and not body.entry.ops[0].operands


_OPTIONS: Final = ("num_stages", "loop_unroll_factor", "disallow_acc_multi_buffer", "flatten", "warp_specialize",
                   "disable_licm")  # fmt: skip


@prints(scf.For)
def _for(p: Printer, op: scf.For) -> None:
    for name in _OPTIONS:
        if getattr(op, name) not in (None, False):
            raise inexpressible(op, f"the option {name} of a loop", "leave the option out of the loop's range")
    index, *carried = op.body.parameters
    names = p.variables([value.type for value in op.initial], op.initial, op)
    counter = p.fresh("i")
    p.values[index] = counter
    for parameter, name in zip(carried, names, strict=True):
        p.values[parameter] = name
    step = constant_of(op.step)
    sign, change = (">", f"-= {-step}") if step is not None and step < 0 else ("<", f"+= {p[op.step]}")
    start = f"{p.declared(index.type, counter, op)} = {p[op.start]}"
    head = f"for ({start}; {counter} {sign} {p[op.stop]}; {counter} {change})"
    p.block(head, lambda: p.assign(names, p.statements(op.body), op))
    p.give(op.result, names)


def _is_head(p: Printer, op: scf.While) -> bool:
    """Whether the first body only compares two values, and hands on its parameters."""
    if len(op.before.entry.ops) < 2:
        return False
    *constants, test, last = op.before.entry.ops
    if type(test) not in INFIX or [*last.operands] != [test.result, *op.before.parameters]:
        return False
    return all(isinstance(one, arith.ConstantOp) and p.is_inline(one) for one in constants)


@prints(scf.While)
def _while(p: Printer, op: scf.While) -> None:
    """A condition that is one operator is the head; another first body is at the start of an endless loop."""
    *ops, _ = op.before.entry.ops
    if _is_head(p, op):
        names = p.variables([value.type for value in op.initial], op.initial, op)
        for parameters in (op.before.parameters, op.after.parameters):
            p.values.update(zip(parameters, names, strict=True))
        for one in ops[:-1]:
            p.op(one)
        test = PRINTERS[ops[-1]](p, ops[-1])
        p.block(f"while ({test})", lambda: p.assign(names, p.statements(op.after), op))
        p.give(op.result, names)
        return
    results = p.variables([parameter.type for parameter in op.after.parameters], None, op)
    names = p.variables([value.type for value in op.initial], op.initial, op)
    for parameter, name in zip(op.before.parameters, names, strict=True):
        p.values[parameter] = name
    for parameter, name in zip(op.after.parameters, results, strict=True):
        p.values[parameter] = name

    def iteration() -> None:
        condition, *values = p.statements(op.before)
        p.assign(results, values, op)
        p.line(f"if (!{p[condition]}) break;")
        p.assign(names, p.statements(op.after), op)

    p.block("while (true)", iteration)
    p.give(op.result, results)
