"""Triton-C text of ops on numbers, arrays and memory, and of hints."""

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, TupleType, element_of, i1, scalar_element, shape_of
from ziggurat.frontends.language.host import OPS_OF_FLOATS
from ziggurat.frontends.triton_c.declared import SPELLINGS, spelled
from ziggurat.frontends.triton_c.function_printer import SIGNS, Printer, braces, inexpressible, number, prints, string

_CALLS: Final[dict[type[Op], str]] = {
    arith.MaxSI: "max", arith.MaxUI: "max", arith.MaxNumF: "max", arith.MinSI: "min", arith.MinUI: "min",
    arith.MinNumF: "min", arith.RemF: "mod", tt.PreciseDivF: "div_rn", tt.PreciseSqrt: "sqrt_rn",
    tt.MulHiUI: "umulhi", maths.AbsF: "abs", maths.AbsI: "abs", maths.Fma: "fma", maths.BitReverse: "brev",
    maths.CtPop: "popc", maths.CtLz: "clz",
    tt.Join: "join", tt.Cat: "cat", tt.SmId: "smid", tt.GlobalTimer: "globaltimer", arith.Select: "select",
    tt.Assume: "assume", tt.Barrier: "debug_barrier", tt.GridDependencyWait: "gdc_wait",
    tt.GridDependencyLaunch: "gdc_launch_dependents",
    **{cls: name for name, cls in OPS_OF_FLOATS.items()},
}  # fmt: skip
_PREDICATES: Final = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


# Numbers.


@prints(*SIGNS)
def _binary(p: Printer, op: Op) -> str:
    a, b = op.operands
    return f"{p[a]} {SIGNS[type(op)]} {p[b]}"


@prints(*_CALLS)
def _call(p: Printer, op: Op) -> str:
    return f"{_CALLS[type(op)]}({p.arguments(*op.operands)})"


@prints(arith.ConstantOp)
def _constant(p: Printer, op: arith.ConstantOp) -> str:
    return number(op.value)


@prints(arith.CmpI, arith.CmpF)
def _compared(p: Printer, op: arith.CmpI | arith.CmpF) -> str:
    return f"{p[op.lhs]} {_PREDICATES[op.predicate.value[-2:]]} {p[op.rhs]}"


@prints(arith.Cast)
def _cast(p: Printer, op: Any) -> str:
    value = op.operands[0]
    source, target = scalar_element(value.type), scalar_element(op.result.type)
    if isinstance(op, arith.Bitcast) and (source.is_float or target.is_float):
        return f"bitcast({p[value]}, {SPELLINGS[target]})"
    if isinstance(op, arith.TruncF) and op.rounding is arith.Rounding.ZERO:
        return f'cast({p[value]}, {SPELLINGS[target]}, "rtz")'
    if target == i1:
        return f"({p[value]} & 1) != 0"
    return f"({SPELLINGS[target]}){p[value]}"


@prints(tt.IntToPtr, tt.PtrToInt, tt.Bitcast)
def _pointer(p: Printer, op: Op) -> str:
    element = element_of(op.result.type)
    return f"({spelled(element)}){p[op.operands[0]]}"


@prints(tt.MakeRange)
def _range(p: Printer, op: tt.MakeRange) -> str:
    return f"{op.start} ... {op.end}" if op.start >= 0 else f"({op.start}) ... ({op.end})"


# The forms of ops, with their operands by number.
_FORMS: Final[dict[type[Op], str]] = {
    arith.NegF: "-{0}", tt.Splat: "{0}", tt.Broadcast: "{0}", tt.Gather: "gather({0}, {1}, {op.axis})",
    tt.GetProgramId: "get_program_id({op.axis})", tt.GetNumPrograms: "get_num_programs({op.axis})",
}  # fmt: skip


@prints(*_FORMS)
def _formed(p: Printer, op: Op) -> str:
    return _FORMS[type(op)].format(*(p[operand] for operand in op.operands), op=op)


@prints(tt.ExpandDims)
def _expanded(p: Printer, op: Any) -> str:
    rank = len(shape_of(op.result.type))
    if rank == 1:
        return f"expand({p[op.operands[0]]}, 0)"
    return f"{p[op.operands[0]]}[{', '.join('newaxis' if axis == op.axis else ':' for axis in range(rank))}]"


@prints(tt.Reshape)
def _reshaped(p: Printer, op: Any) -> str:
    return f"reshape({p[op.value]}, {braces(shape_of(op.result.type))})"


@prints(tt.Trans)
def _permuted(p: Printer, op: tt.Trans) -> str:
    rank = len(op.order)
    if tuple(op.order) == (*range(rank - 2), rank - 1, rank - 2):
        return f"^{p[op.value]}"
    return f"permute({p[op.value]}, {braces(op.order)})"


@prints(tt.Split)
def _split(p: Printer, op: Any) -> None:
    assert isinstance(op.result.type, TupleType)
    call = f"split({p[op.operands[0]]})"
    types = op.result.type.components
    p.values[op.result] = [p.declare(type_, f"{call}[{index}]", op) for index, type_ in enumerate(types)]


@prints(tt.Histogram)
def _histogram(p: Printer, op: tt.Histogram) -> str:
    return f"histogram({p[op.value]}, {op.bins}{'' if op.mask is None else f', {p[op.mask]}'})"


@prints(tt.Dot)
def _dot(p: Printer, op: tt.Dot) -> str:
    a, b = scalar_element(op.a.type), element_of(op.c.type)
    if element_of(op.b.type) != a:
        raise inexpressible(op, "factors of two types")
    if op.max_num_imprecise_acc:
        raise inexpressible(op, "max_num_imprecise_acc")
    if op.input_precision is tt.InputPrecision.DEFAULT and tt.accumulators(a)[:1] == (b,):
        return f"{p[op.c]} + {p[op.a]} @ {p[op.b]}"
    precision = "" if op.input_precision is tt.InputPrecision.DEFAULT else f', "{op.input_precision.value}"'
    return f"dot({p.arguments(op.a, op.b, op.c)}{precision})"


# Memory.


def _policy(op: tt.Load | tt.Store) -> list[str]:
    """The cache modifier and the eviction policy as arguments; none where both are the default."""
    cache = "" if op.cache is tt.CacheModifier.NONE else f".{op.cache.value}"
    eviction = "" if op.eviction is tt.EvictionPolicy.NORMAL else op.eviction.value
    return [string(cache), string(eviction)] if cache or eviction else []


@prints(tt.Load)
def _load(p: Printer, op: tt.Load) -> str:
    policy = _policy(op)
    if op.volatile:
        policy = [*(policy or ['""', '""']), "true"]
    if op.mask is None and not policy:
        return f"*{p[op.ptr]}"
    mask = "true" if op.mask is None else p[op.mask]
    other = [p[op.other]] if op.other is not None else ["0"] if policy else []
    return f"load({p.arguments(op.ptr, mask, *other, *policy)})"


@prints(tt.Store)
def _store(p: Printer, op: tt.Store) -> str:
    policy = _policy(op)
    if policy:
        mask = "true" if op.mask is None else p[op.mask]
        return f"store({p.arguments(op.ptr, op.value, mask, *policy)})"
    return f"{'*' if op.mask is None else f'*?({p[op.mask]})'}{p[op.ptr]} = {p[op.value]}"


_ATOMICS: Final = {
    tt.AtomicKind.FADD: "add", tt.AtomicKind.FMAX: "max", tt.AtomicKind.FMIN: "min", tt.AtomicKind.UMAX: "max",
    tt.AtomicKind.UMIN: "min",
}  # fmt: skip


def _order(op: tt.AtomicRMW | tt.AtomicCAS) -> list[str]:
    """The memory order and the scope as arguments; none where both are the default."""
    if op.sem is tt.MemSemantic.ACQ_REL and op.scope is tt.MemScope.GPU:
        return []
    return [string(op.sem.value), string(op.scope.value)]


@prints(tt.AtomicRMW)
def _atomic(p: Printer, op: tt.AtomicRMW) -> str:
    order = _order(op)
    mask = [p[op.mask]] if op.mask is not None else ["true"] if order else []
    name = _ATOMICS.get(op.kind, op.kind.value)
    return f"atomic_{name}({p.arguments(op.ptr, op.value, *mask, *order)})"


@prints(tt.AtomicCAS)
def _swap(p: Printer, op: tt.AtomicCAS) -> str:
    return f"atomic_cas({p.arguments(op.ptr, op.compare, op.value, *_order(op))})"


# Hints and debugging.


@prints(tt.Hint)
def _hint(p: Printer, op: Any) -> str:
    name = op.NAME.partition(".")[2]
    values = op.values
    return f"{name}({p[op.value]}, {values[0] if len(values) == 1 else braces(values)})"


@prints(tt.Assert)
def _assert(p: Printer, op: tt.Assert) -> str:
    return f"device_assert({p[op.condition]}, {string(op.message)})"


@prints(tt.Print)
def _print(p: Printer, op: tt.Print) -> str:
    if op.whole:
        raise inexpressible(op, "a whole line", "use zg.device_print for each value")
    if op.hex:
        raise inexpressible(op, "numbers in hexadecimal")
    return f"device_print({p.arguments(string(op.prefix), *op.values)})"


@prints(tt.InlineAsm)
def _assembly(p: Printer, op: tt.InlineAsm) -> str:
    element = element_of(op.result.type)
    if not isinstance(element, ScalarType):
        raise inexpressible(op, "several results")
    values = braces(p[value] for value in op.values)
    pure = "true" if op.is_pure else "false"
    return (
        f"inline_asm_elementwise({string(op.asm)}, {string(op.constraints)}, {values}, "
        f"{SPELLINGS[element]}, {pure}, {op.pack})"
    )
