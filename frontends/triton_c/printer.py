"""Triton-C text of Triton models: a declaration for each value, so that reading the text gives the ops again.

What cannot be said is a `TargetError` that names the op: tensor descriptors, values of several results that have no
call, options of single loops.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Body, Op, OpResult, Value, require_model
from ziggurat.codemodel.types import (
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    element_of,
    i1,
    shape_of,
    void,
)
from ziggurat.frontends.language.host import OPS_OF_FLOATS
from ziggurat.frontends.triton_c.declared import SPELLINGS
from ziggurat.frontends.triton_c.names import KEYWORDS, KNOWN_NAMES

# What an op becomes: an expression of C, or None where the function wrote statements and named the result.
Prints = Callable[["Printer", Any], "str | None"]
PRINTERS = OpTable[Prints]("text in Triton-C")
prints = PRINTERS.of

_SIGNS: Final[dict[type[Op], str]] = {
    arith.AddI: "+", arith.AddF: "+", arith.SubI: "-", arith.SubF: "-", arith.MulI: "*", arith.MulF: "*",
    arith.DivF: "/", arith.DivSI: "/", arith.DivUI: "/", arith.RemSI: "%", arith.RemUI: "%", arith.AndI: "&",
    arith.OrI: "|", arith.XOrI: "^", arith.ShlI: "<<", arith.ShrSI: ">>", arith.ShrUI: ">>", tt.AddPtr: "+",
}  # fmt: skip
_BROADCASTS: Final = (arith.ConstantOp, tt.Splat, tt.Broadcast)
_INFIX: Final = (*_SIGNS, arith.CmpI, arith.CmpF)
_CALLS: Final[dict[type[Op], str]] = {
    arith.MaxSI: "max", arith.MaxUI: "max", arith.MaxNumF: "max", arith.MinSI: "min", arith.MinUI: "min",
    arith.MinNumF: "min", arith.RemF: "mod", tt.PreciseDivF: "div_rn", tt.PreciseSqrt: "sqrt_rn",
    tt.MulHiUI: "umulhi", maths.AbsF: "abs", maths.AbsI: "abs", maths.Fma: "fma", maths.BitReverse: "brev",
    tt.Join: "join", tt.Cat: "cat", tt.SmId: "smid", tt.GlobalTimer: "globaltimer",
    **{cls: name for name, cls in OPS_OF_FLOATS.items()},
}  # fmt: skip
_PREDICATES: Final = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
# Reductions by the op that combines two elements.
_REDUCTIONS: Final[dict[type[Op], str]] = {
    arith.AddF: "+", arith.AddI: "+", arith.MaxNumF: "max", arith.MaxSI: "max", arith.MaxUI: "max",
    arith.MinNumF: "min", arith.MinSI: "min", arith.MinUI: "min",
}  # fmt: skip
_SCANS: Final[dict[type[Op], str]] = {
    arith.AddF: "cumsum", arith.AddI: "cumsum", arith.MulF: "cumprod", arith.MulI: "cumprod",
    arith.MaxNumF: "cummax", arith.MaxSI: "cummax", arith.MaxUI: "cummax", arith.MinNumF: "cummin",
    arith.MinSI: "cummin", arith.MinUI: "cummin",
}  # fmt: skip
# Reductions to a value and its index, by the name of the function that combines them.
_EXTREMES: Final = {
    "argmax": "max({}, {}, true)", "argmin": "min({}, {}, true)",
    "argmax_any": "max({}, {}, true, false)", "argmin_any": "min({}, {}, true, false)",
}  # fmt: skip
_KEPT = KEYWORDS  # Names that the kernel itself must not have.
_KEPT_WIDTH = 32  # Sums of narrower integers give wider ones.


def to_triton_c(model: Op) -> str:
    """Triton-C text of a Triton model: `zg.to_triton_c(kernel.triton(types…))`.

    Reading the text (`zg.triton_c`) gives a model that computes the same. Raises `TargetError` for an op that Triton-C
    cannot say, at its place.
    """
    require_model(model, "zg.to_triton_c")
    if isinstance(model, tt.Func):
        functions: Mapping[str, Op] = {model.sym_name: model}
    elif isinstance(model, core.Module):
        functions = model.functions()
    else:
        functions = {}
    if not functions or not all(isinstance(function, tt.Func) for function in functions.values()):
        raise TargetError(f"zg.to_triton_c takes a Triton model, a module with a tt.func; got {model.NAME}")
    return Module(functions).text()


class Module:
    """The functions of a model, by symbol; `names` has their names in C."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.functions = functions
        self.names: dict[str, str] = {}
        self.used: set[str] = set()
        self.written: list[str] = []
        self.counts = collections.Counter(
            value for function in functions.values() for op in function.walk() for value in op.operands
        )
        for symbol in reversed([*functions]):  # The kernel, which comes last, keeps its name.
            self.names[symbol] = self.fresh(_bare(symbol), KNOWN_NAMES if self.names else _KEPT)

    def fresh(self, name: str, avoided: Collection[str] = KNOWN_NAMES) -> str:
        """A name of C that no function has."""
        made, count = name, 0
        while made in self.used or made in avoided:
            count += 1
            made = f"{name}_{count}"
        self.used.add(made)
        return made

    def text(self) -> str:
        """The text of all functions that are called, callees first."""
        made = self._text()
        kernel = next(iter(self.names.values()))
        if kernel in KNOWN_NAMES and len(re.findall(rf"\b{kernel}\(", made)) > 1:
            # The kernel has the name of a call that it makes.
            self.names[next(iter(self.names))] = self.fresh(kernel)
            self.written.clear()
            made = self._text()
        return made

    def _text(self) -> str:
        called = {
            op.callee for function in self.functions.values() for op in function.walk() if isinstance(op, tt.Call)
        }
        for symbol, function in self.functions.items():
            is_kernel = symbol not in called
            if is_kernel or self._needs_text(function):
                self.written.append(Printer(self).function(function, self.names[symbol], is_kernel))
        return "\n".join(self.written)

    def _needs_text(self, function: tt.Func) -> bool:
        """Whether a function that is called is written: a reduction that has a form of its own is not."""
        several = isinstance(function.body.yield_type, TupleType)
        return not several and not self._is_special(function) and not self._combines_only(function)

    def _is_special(self, function: tt.Func) -> bool:
        return special(function, self.functions) is not None or extreme(function) is not None

    def _combines_only(self, function: tt.Func) -> bool:
        """Whether a function is called by reductions only that have forms of their own."""
        users = [
            caller
            for caller in self.functions.values()
            for op in caller.walk()
            if isinstance(op, tt.Call) and op.callee == function.sym_name
        ]
        return bool(users) and all(map(self._is_special, users))


class Printer:
    """Writes one function. `values` has the name of each value, or the names of a Tuple's components."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.values: dict[Value, str | list[str]] = {}
        self.count = 0
        self.indent = 1

    # Text.

    def line(self, text: str) -> None:
        self.lines.append(f"{'  ' * self.indent}{text}")

    def fresh(self, prefix: str = "v") -> str:
        name = f"{prefix}{self.count}"
        self.count += 1
        return name

    def __getitem__(self, value: Value) -> str:
        """The name of a value that is no Tuple."""
        name = self.values[value]
        assert isinstance(name, str)
        return name

    def is_inline(self, op: Op) -> bool:
        """Whether a constant, splat or broadcast is written in the one operator that uses it, which broadcasts too.

        A constant that does not stand just before its use keeps its place.
        """
        user = self._user(op.result)
        if isinstance(user, tt.Splat):
            return isinstance(op, arith.ConstantOp) and self.is_inline(user)
        if isinstance(user, scf.For):
            return isinstance(op, arith.ConstantOp) and op.result not in user.initial
        if user is None or type(user) not in _INFIX:
            return False
        a, b = user.operands
        shapes = [self._written_shape(a), self._written_shape(b)]
        if not all(isinstance(value, OpResult) and isinstance(value.op, arith.ConstantOp) for value in (a, b)):
            wide = max(map(len, shapes))
            if all(len(shape) in (0, wide) for shape in shapes):
                sizes = zip(*((1,) * (wide - len(shape)) + shape for shape in shapes), strict=True)
                return tuple(map(max, sizes)) == shape_of(user.result.type)
        return False

    def _user(self, value: Value) -> Op | None:
        """The op that uses a value, in its block, if that is the only use."""
        if self.module.counts[value] != 1 or value.block is None or not isinstance(value, OpResult):
            return None
        ops = value.block.ops
        for op in ops[ops.index(value.op) + 1 :]:
            if value in op.operands:
                return op
            if isinstance(value.op, arith.ConstantOp) and not isinstance(op, _BROADCASTS):
                return None
        return None

    def _written_shape(self, value: Value) -> tuple[int, ...]:
        """The shape of an operand as it is written: that of the value that is splatted or broadcast."""
        op = value.op if isinstance(value, OpResult) else None
        if isinstance(op, tt.Splat | tt.Broadcast) and self._user(value) is not None:
            return shape_of(op.operands[0].type)
        return shape_of(value.type)

    def declared(self, type_: Type, name: str, op: Op) -> str:
        """A variable of a type as C declares it: `float *x[16, 8]`."""
        element, shape = element_of(type_), shape_of(type_)
        dims = f"[{', '.join(map(str, shape))}]" if shape else ""
        if isinstance(element, PtrType):
            return f"{SPELLINGS[element.pointee]} *{name}{dims}"
        if isinstance(element, ScalarType) and isinstance(type_, ScalarType | TensorType):
            return f"{SPELLINGS[element]} {name}{dims}"
        raise unsaid(op, f"a value of the type {type_}")

    def declare(self, value: Value, text: str, op: Op) -> None:
        """Declare the variable of a value."""
        name = self.fresh()
        self.line(f"{self.declared(value.type, name, op)} = {text};")
        self.values[value] = name

    def arguments(self, *parts: str | Value) -> str:
        return ", ".join(part if isinstance(part, str) else self[part] for part in parts)

    # Functions.

    def function(self, function: tt.Func, name: str, is_kernel: bool) -> str:
        """The text of a function."""
        known = function.divisibility or (1,) * len(function.body.parameters)
        parts: list[str] = []
        for parameter, by in zip(function.body.parameters, known, strict=True):
            self.values[parameter] = made = self.fresh("p")
            attribute = "__aligned" if isinstance(parameter.type, PtrType) else "__multipleof"
            parts.append(self.declared(parameter.type, made, function) + (f" {attribute}({by})" if by > 1 else ""))
        result = function.body.yield_type
        element = element_of(result)
        if result == void:
            head = "__global__ void " if is_kernel else "void "
        elif isinstance(element, ScalarType | PtrType):
            head = SPELLINGS[element] + " " if isinstance(element, ScalarType) else f"{SPELLINGS[element.pointee]} *"
        else:
            raise unsaid(function, f"a function that gives {result}")
        for value in self.statements(function.body):
            self.line(f"return {self[value]};")
        return "\n".join([f"{head}{name}({', '.join(parts)}) {{", *self.lines, "}\n"])

    def statements(self, body: Body) -> Sequence[Value]:
        """Write the statements of a body; the operands of its terminator."""
        if len(body.blocks) > 1:
            raise unsaid(body.entry.ops[0], "control flow between blocks")
        *ops, last = body.entry.ops
        for op in ops:
            self.op(op)
        return last.operands

    def op(self, op: Op) -> None:
        made = PRINTERS.get(type(op))
        if made is None:
            raise unsaid(op)
        text = made(self, op)
        if text is None:
            return
        if isinstance(op, _BROADCASTS) and self.is_inline(op):
            self.values[op.result] = text
            return
        if op.result.type == void:
            self.line(f"{text};")
        elif isinstance(op.result.type, TupleType):
            raise unsaid(op, "several results")
        else:
            self.declare(op.result, text, op)

    def block(self, head: str, fill: Callable[[], None], tail: str = "}") -> None:
        self.line(f"{head} {{")
        self.indent += 1
        fill()
        self.indent -= 1
        self.line(tail)

    def variables(self, types: Sequence[Type], initial: Sequence[Value] | None, op: Op) -> list[str]:
        """Variables that control flow gives values to."""
        names: list[str] = []
        for number, type_ in enumerate(types):
            name = self.fresh("c")
            start = f" = {self[initial[number]]}" if initial is not None else ""
            self.line(f"{self.declared(type_, name, op)}{start};")
            names.append(name)
        return names

    def assign(self, names: Sequence[str], values: Sequence[Value], op: Op) -> None:
        """Give variables new values, all at once: a value that is another of the variables is kept before."""
        texts = [self[value] for value in values]
        for number, value in enumerate(values):
            if texts[number] in names[:number]:
                kept = self.fresh()
                self.line(f"{self.declared(value.type, kept, op)} = {texts[number]};")
                texts[number] = kept
        for name, text in zip(names, texts, strict=True):
            if name != text:
                self.line(f"{name} = {text};")

    def give(self, result: Value, names: list[str]) -> None:
        """The variables that hold the results of control flow."""
        if result.type != void:
            self.values[result] = names if isinstance(result.type, TupleType) else names[0]


def unsaid(op: Op, what: str | None = None) -> TargetError:
    """The error for an op that Triton-C cannot say."""
    said = f": {what}" if what else ""
    return TargetError(f"Triton-C cannot say {op.NAME}{said}", op.location)


def number(value: Any) -> str:
    """A number as a literal of C."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    return repr(value)


def string(text: str) -> str:
    """A string as a literal of C."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\{ord(c):03o}" for c in text) + '"'


def braces(items: Iterable[Any]) -> str:
    return f"{{{', '.join(map(str, items))}}}"


# The symbol of a function is its name, the types of its arguments and its result.
_TYPES = re.compile(
    r"_(?:ptr<|tensor<|Tuple<|descriptor<|[iuf]\d+(?![0-9A-Za-z])|bf16|f8e|void$|-?\d|\(|None|True|False).*", re.DOTALL
)


def _bare(symbol: str) -> str:
    """The name in a symbol."""
    return re.sub(r"\W", "_", _TYPES.sub("", symbol)) or "f"


# Ops.


@prints(*_SIGNS)
def _binary(p: Printer, op: Op) -> str:
    a, b = op.operands
    return f"{p[a]} {_SIGNS[type(op)]} {p[b]}"


@prints(*_CALLS)
def _call(p: Printer, op: Op) -> str:
    return f"{_CALLS[type(op)]}({p.arguments(*op.operands)})"


@prints(arith.ConstantOp)
def _constant(p: Printer, op: arith.ConstantOp) -> str:
    return number(op.value)


@prints(arith.NegF)
def _negated(p: Printer, op: Op) -> str:
    return f"-{p[op.operands[0]]}"


@prints(arith.CmpI, arith.CmpF)
def _compared(p: Printer, op: arith.CmpI | arith.CmpF) -> str:
    return f"{p[op.lhs]} {_PREDICATES[op.predicate.value[-2:]]} {p[op.rhs]}"


@prints(arith.Select)
def _selected(p: Printer, op: arith.Select) -> str:
    return f"select({p.arguments(op.condition, op.then, op.otherwise)})"


@prints(arith.Cast)
def _cast(p: Printer, op: Any) -> str:
    value = op.operands[0]
    source, target = element_of(value.type), element_of(op.result.type)
    assert isinstance(source, ScalarType) and isinstance(target, ScalarType)
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
    word = f"{SPELLINGS[element.pointee]}*" if isinstance(element, PtrType) else "long"
    return f"({word}){p[op.operands[0]]}"


@prints(maths.CtPop, maths.CtLz)
def _counted(p: Printer, op: Op) -> str:
    name = "popc" if isinstance(op, maths.CtPop) else "clz"
    return f"{name}({p[op.operands[0]]})"


@prints(tt.GetProgramId, tt.GetNumPrograms)
def _program(p: Printer, op: Any) -> str:
    name = "get_program_id" if isinstance(op, tt.GetProgramId) else "get_num_programs"
    return f"{name}({op.axis})"


@prints(tt.MakeRange)
def _range(p: Printer, op: tt.MakeRange) -> str:
    return f"{op.start} ... {op.end}" if op.start >= 0 else f"({op.start}) ... ({op.end})"


@prints(tt.Splat, tt.Broadcast)
def _spread(p: Printer, op: Op) -> str:
    return p[op.operands[0]]


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
    names: list[str] = []
    assert isinstance(op.result.type, TupleType)
    for number_, type_ in enumerate(op.result.type.components):
        name = p.fresh()
        p.line(f"{p.declared(type_, name, op)} = split({p[op.operands[0]]})[{number_}];")
        names.append(name)
    p.values[op.result] = names


@prints(tt.Gather)
def _gathered(p: Printer, op: tt.Gather) -> str:
    return f"gather({p.arguments(op.source, op.index)}, {op.axis})"


@prints(tt.Histogram)
def _histogram(p: Printer, op: tt.Histogram) -> str:
    return f"histogram({p[op.value]}, {op.bins}{'' if op.mask is None else f', {p[op.mask]}'})"


@prints(tt.Dot)
def _dot(p: Printer, op: tt.Dot) -> str:
    a, b = element_of(op.a.type), element_of(op.c.type)
    assert isinstance(a, ScalarType)
    if element_of(op.b.type) != a:
        raise unsaid(op, "factors of two types")
    if op.max_num_imprecise_acc:
        raise unsaid(op, "max_num_imprecise_acc")
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


@prints(tt.Assume)
def _assume(p: Printer, op: tt.Assume) -> str:
    return f"assume({p[op.condition]})"


@prints(tt.Assert)
def _assert(p: Printer, op: tt.Assert) -> str:
    return f"device_assert({p[op.condition]}, {string(op.message)})"


@prints(tt.Print)
def _print(p: Printer, op: tt.Print) -> str:
    if op.hex:
        raise unsaid(op, "numbers in hexadecimal")
    return f"device_print({p.arguments(string(op.prefix), *op.values)})"


@prints(tt.Barrier)
def _barrier(p: Printer, op: tt.Barrier) -> str:
    return "debug_barrier()"


@prints(tt.InlineAsm)
def _assembly(p: Printer, op: tt.InlineAsm) -> str:
    element = element_of(op.result.type)
    if not isinstance(element, ScalarType):
        raise unsaid(op, "several results")
    values = braces(p[value] for value in op.values)
    pure = "true" if op.is_pure else "false"
    return (
        f"inline_asm_elementwise({string(op.asm)}, {string(op.constraints)}, {values}, "
        f"{SPELLINGS[element]}, {pure}, {op.pack})"
    )


# Tuples, functions and reductions.


@prints(core.TupleLoad)
def _component(p: Printer, op: core.TupleLoad) -> None:
    names = p.values[op.tuple]
    assert isinstance(names, list)
    p.values[op.result] = names[op.index]


@prints(core.MakeTuple)
def _tuple(p: Printer, op: core.MakeTuple) -> None:
    p.values[op.result] = [p[value] for value in op.components]


def _combined(body: Body, functions: Mapping[str, Any]) -> type[Op] | None:
    """The op that a combining body is, itself or by one call; None for any other body."""
    ops = body.entry.ops
    while len(ops) == 2 and isinstance(ops[0], tt.Call) and ops[0].callee in functions:
        if [*ops[0].operands] != [*body.parameters]:
            return None
        body = functions[ops[0].callee].body
        ops = body.entry.ops
    return type(ops[0]) if len(ops) == 2 and [*ops[0].operands] == [*body.parameters] else None


def special(function: tt.Func, functions: Mapping[str, Any]) -> Callable[[str], str] | None:
    """The form of a function that only reduces or scans its parameter; None for any other function."""
    ops = function.body.entry.ops
    if len(ops) != 2 or not isinstance(ops[0], tt.Reduce | tt.Scan) or len(ops[0].values) != 1:
        return None
    return form_of(ops[0], functions) if [*ops[1].operands] == [ops[0].result] else None


def form_of(op: tt.Reduce | tt.Scan, functions: Mapping[str, Any]) -> Callable[[str], str] | None:
    """The form of a reduction or a scan that C can say without a function."""
    combined = _combined(op.combine, functions)
    if len(op.values) != 1 or combined is None:
        return None
    element, rank = element_of(op.values[0].type), len(shape_of(op.values[0].type))
    assert isinstance(element, ScalarType)
    if element.bits < _KEPT_WIDTH and combined in (arith.AddF, arith.AddI, arith.MulF, arith.MulI):
        return None
    if isinstance(op, tt.Scan):
        name = _SCANS.get(combined)
        reverse = ", true" if op.reverse else ""
        return None if name is None else lambda x: f"{name}({x}, {op.axis}{reverse})"
    sign = _REDUCTIONS.get(combined)
    if sign is None:
        return None
    indices = ", ".join(sign if axis == op.axis else ":" for axis in range(rank))
    return lambda x: f"{x}[{indices}]"


def extreme(function: tt.Func) -> tuple[str, int] | None:
    """The call and the axis of a function that only finds the greatest or least element and its index."""
    ops = function.body.entry.ops
    reduce = ops[0]
    if not isinstance(reduce, tt.Reduce) or [*reduce.values] != [*function.body.parameters] or len(reduce.values) != 2:
        return None
    combined = reduce.combine.entry.ops[0]
    name = _bare(combined.callee) if isinstance(combined, tt.Call) else ""
    return (_EXTREMES[name], reduce.axis) if name in _EXTREMES else None


def _is_index(value: Value, axis: int) -> bool:
    """Whether a tensor has the index along an axis as its elements."""
    size = shape_of(value.type)[axis]
    while isinstance(value, OpResult) and isinstance(value.op, tt.Broadcast | tt.ExpandDims):
        value = value.op.operands[0]
    op = value.op if isinstance(value, OpResult) else None
    return isinstance(op, tt.MakeRange) and (op.start, op.end) == (0, size)


@prints(tt.Call)
def _called(p: Printer, op: tt.Call) -> str | None:
    functions = p.module.functions
    function = functions[op.callee]
    found = extreme(function)
    if found is not None:
        call, axis = found
        if not _is_index(op.arguments[1], axis):
            raise unsaid(op, "a reduction of several tensors together")
        texts = [f"{call.format(p[op.arguments[0]], axis)}[{part}]" for part in (0, 1)]
        names: list[str] = []
        for text, type_ in zip(texts, _types(op.result.type), strict=True):
            names.append(p.fresh())
            p.line(f"{p.declared(type_, names[-1], op)} = {text};")
        p.values[op.result] = names
        return None
    form = special(function, functions)
    if form is not None:
        return form(p[op.arguments[0]])
    if isinstance(op.result.type, TupleType):  # Its statements stand here, because C gives one result.
        for parameter, argument in zip(function.body.parameters, op.arguments, strict=True):
            p.values[parameter] = p.values[argument]
        p.values[op.result] = [p[value] for value in p.statements(function.body)]
        return None
    return f"{p.module.names[op.callee]}({p.arguments(*op.arguments)})"


@prints(tt.Reduce, tt.Scan)
def _reduced(p: Printer, op: tt.Reduce | tt.Scan) -> str:
    form = form_of(op, p.module.functions)
    if form is not None:
        return form(p[op.values[0]])
    if len(op.values) != 1:
        raise unsaid(op, "several tensors together")
    name = p.module.fresh("combine")
    p.module.written.append(_combining(p.module, op, name))
    if isinstance(op, tt.Scan):
        return f"associative_scan({p[op.values[0]]}, {op.axis}, {name}{', true' if op.reverse else ''})"
    return f"reduce({p[op.values[0]]}, {op.axis}, {name})"


def _combining(module: Module, op: tt.Reduce | tt.Scan, name: str) -> str:
    """The function of a reduction's body."""
    p = Printer(module)
    parts: list[str] = []
    for parameter in op.combine.parameters:
        p.values[parameter] = made = p.fresh("p")
        parts.append(p.declared(parameter.type, made, op))
    (value,) = p.statements(op.combine)
    p.line(f"return {p[value]};")
    element = element_of(op.values[0].type)
    assert isinstance(element, ScalarType)
    return "\n".join([f"{SPELLINGS[element]} {name}({', '.join(parts)}) {{", *p.lines, "}\n"])


# Control flow.


@prints(scf.If)
def _if(p: Printer, op: scf.If) -> None:
    types = _types(op.result.type)
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


def _types(type_: Type) -> Sequence[Type]:
    return () if type_ == void else type_.components if isinstance(type_, TupleType) else (type_,)


_OPTIONS: Final = ("num_stages", "loop_unroll_factor", "disallow_acc_multi_buffer", "flatten", "warp_specialize",
                   "disable_licm")  # fmt: skip


@prints(scf.For)
def _for(p: Printer, op: scf.For) -> None:
    for name in _OPTIONS:
        if getattr(op, name) not in (None, False):
            raise unsaid(op, f"the option {name} of a loop")
    index, *carried = op.body.parameters
    names = p.variables([value.type for value in op.initial], op.initial, op)
    counter = p.fresh("i")
    p.values[index] = counter
    for parameter, name in zip(carried, names, strict=True):
        p.values[parameter] = name
    step = _known(op.step)
    sign, change = (">", f"-= {-step}") if step is not None and step < 0 else ("<", f"+= {p[op.step]}")
    start = f"{p.declared(index.type, counter, op)} = {p[op.start]}"
    head = f"for ({start}; {counter} {sign} {p[op.stop]}; {counter} {change})"
    p.block(head, lambda: p.assign(names, p.statements(op.body), op))
    p.give(op.result, names)


def _known(value: Value) -> int | None:
    """The number that a value is known to be."""
    made = getattr(value, "op", None)
    return made.value if isinstance(made, arith.ConstantOp) and isinstance(made.value, int) else None


def _is_head(p: Printer, op: scf.While) -> bool:
    """Whether the first body only compares two values, and hands on its parameters."""
    if len(op.before.entry.ops) < 2:
        return False
    *constants, test, last = op.before.entry.ops
    if type(test) not in _INFIX or [*last.operands] != [test.result, *op.before.parameters]:
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
