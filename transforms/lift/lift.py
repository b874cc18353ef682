"""The Python model of a Triton model: what a kernel's author could have written, in explicit calls or Triton's Python.

A value that is used once stays an expression, as the ops of a Python model are read like those of a stack machine
(`backend/python`). Others are variables, with the names that the source of the model gave them. A constant stands where
it is used: as a literal where the call gives it its type, otherwise with its dtype.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, py, scf, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.messages import Words
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.types import PtrType, VarType, element_of, i1, pyobject, scalar_element, shape_of, void
from ziggurat.frontends.language.wording import EXPLICIT, TRITON
from ziggurat.transforms.lift.source_names import definition_of_source, name_of, signature_of
from ziggurat.transforms.simplify.demand import callees

LIFTERS = OpTable[Any]("form in Python's source")
lifts = LIFTERS.of

VARIABLE = VarType(pyobject)
# Names that the text itself uses, which no function and no variable must take.
TEXT_NAMES = ("float", "libdevice", "print", "range", "tl", "triton", "zg")
# Names of calls in Triton that differ.
_TRITON_CALLS = {
    "expand": "expand_dims", "broadcast": "broadcast_to",
    **{name: f"libdevice.{name}" for name in ("tanh", "trunc", "rint", "popc", "clz", "brev")},
}  # fmt: skip


@attrs.frozen
class Lifted:
    """A Python model in the words of a language; by the names of its functions, their decorators and, where they can be
    read, their sources; and the imports that they need."""

    words: Words
    module: core.Module
    decorators: Mapping[str, str]
    sources: Mapping[str, ast.FunctionDef]
    imports: tuple[str, ...]


def lift(model: Op, language: str) -> Lifted:
    """The Python model of a Triton model, in `language`: "zg" for explicit calls, "tl" for Triton's Python.

    Compiled again for the same signature, it gives the same ops. Raises `TargetError` for an op that the language has
    no call for, such as control flow between blocks.
    """
    words = {"zg": EXPLICIT, "tl": TRITON}[language]
    functions = list(model.functions().values()) if isinstance(model, core.Module) else [model]
    symbols = {name for function in functions for name in callees(function)}
    program = _Program(words)
    for function in functions:
        if not isinstance(function, tt.Func):
            raise TargetError(f"to_python: the model must be of tt.func ops; got {function.NAME}", function.location)
        program.name(signature_of(function)[0], function.sym_name)
    for function in functions:
        assert isinstance(function, tt.Func)
        is_kernel = function.sym_name not in symbols and function.body.yield_type == void
        decorator = "@triton.jit" + "(noinline=True)" * function.noinline
        if not program.is_triton:
            decorator = "@zg.kernel" if is_kernel else "@zg.function"
        program.add(function.body, program.names[function.sym_name], decorator, signature_of(function)[1])
    program.builder.add(core.Unreachable())
    imports = ["import triton", "import triton.language as tl"] if program.is_triton else ["import ziggurat as zg"]
    if program.uses_libdevice:
        imports.append("from triton.language.extra import libdevice")
    definitions = {program.names[op.attributes["sym_name"]]: definition_of_source(op) for op in functions}
    sources = {name: node for name, node in definitions.items() if node is not None}
    return Lifted(words, core.Module(program.builder.finish()), program.decorators, sources, tuple(imports))


def words_of(function: core.Func) -> Words:
    """The words of the language in which a Python function is written, by its calls."""
    calls = (op.callee for op in function.walk() if isinstance(op, py.Invoke))
    return TRITON if any(callee.startswith("tl.") for callee in calls) else EXPLICIT


class _Program:
    """The functions of a model, as they are lifted."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.is_triton = words is TRITON
        self.builder = Builder.root()
        self.names: dict[str, str] = {}
        self.decorators: dict[str, str] = {}
        self.uses_libdevice = False

    def name(self, text: str, symbol: str) -> str:
        """A new name of a function, which is that of its source or a symbol with types in it."""
        stem = re.sub(r"\W+", "_", text.partition("<")[0]).strip("_")
        is_free = stem.isidentifier() and not keyword.iskeyword(stem) and stem not in TEXT_NAMES
        stem = stem if is_free else f"function_{stem}"
        name, count = stem, 1
        while name in self.names.values():
            count += 1
            name = f"{stem}_{count}"
        self.names[symbol] = name
        return name

    def add(self, body: Body, name: str, decorator: str, parameters: Sequence[str]) -> None:
        """Add a function with this body, and with parameters of these names."""
        if len(body.blocks) != 1:
            place = body.entry.ops[0].location
            raise TargetError(f"'{name}' has control flow between blocks, which Python's source has no form for", place)
        inner = self.builder.nested([pyobject] * len(body.parameters), pyobject)
        lifter = Lifter(inner, self)
        for parameter, new, text in zip(body.parameters, inner.parameters, parameters, strict=True):
            lifter.variables[parameter] = inner.add(core.Var(new, name=text, type=VARIABLE))
        lifter.ops(body.entry.ops)
        self.decorators[name] = decorator
        self.builder.add(core.Func(name, inner.finish()))

    def function_of(self, body: Body) -> str:
        """The name of the function that a reduction, a scan or a map applies. One that stands in the op is added."""
        call, *rest = body.entry.ops
        is_call = isinstance(call, tt.Call) and call.operands == body.parameters
        if is_call and [op.operands for op in rest] == [(call.result,)]:
            return self.names[call.attributes["callee"]]
        name = self.name("combine", f"{len(self.names)}<>")
        texts = [f"x{index}" for index in range(len(body.parameters))]
        self.add(body, name, "@triton.jit" if self.is_triton else "@zg.function", texts)
        return name


class Lifter:
    """Lifts the ops of one body.

    `variables` are those that hold values, `expressions` those of other values, and `parts` the variables of the
    components of a tuple. What the body yields goes to the variables `outputs`, by way of `targets` to some where it is
    computed. `implied` are the ops that a call adds by itself. The condition of a loop is an expression, in which
    statements have no place.
    """

    def __init__(self, builder: Builder, program: _Program, around: Lifter | None = None) -> None:
        self.builder = builder
        self.program = program
        self.is_triton = program.is_triton
        self.variables: dict[Value, Value] = {} if around is None else around.variables
        self.expressions: dict[Value, Value] = {} if around is None else around.expressions
        self.parts: dict[Value, list[Value]] = {} if around is None else around.parts
        self.targets: dict[Value, Value] = {}
        self.outputs: Sequence[Value] = ()
        self.implied: set[Op] = set()
        self.is_expression = around is not None and around.is_expression

    def ops(self, ops: Sequence[Op]) -> None:
        """Lift the ops of a block."""
        self.implied |= _implied(ops)
        for op in ops:
            if op in self.implied or constant_number(op.result) is not None:
                continue
            self.builder.location = op.location
            function = LIFTERS.get(type(op))
            if function is None:
                raise TargetError(f"'{op.NAME}' has no form in Python's source", op.location)
            if function(self, op) is False:
                return

    def body(self, body: Body, outputs: Sequence[Value], parameters: int = 0) -> Body:
        """A suite for the ops of a body. What it yields goes to the variables `outputs`, which hold its parameters
        after the first ones."""
        inner = Lifter(self.builder.nested([pyobject] * parameters, pyobject), self.program, self)
        for parameter, new in zip(body.parameters, inner.builder.parameters, strict=False):
            inner.variables[parameter] = inner.add(core.Var(new, name=name_of_index(body) or "i", type=VARIABLE))
        inner.outputs, inner.is_expression = outputs, False
        inputs = body.parameters[parameters:]
        inner.variables.update(zip(inputs, outputs, strict=False))
        inner.targets = _targets(body, outputs, inputs)
        inner.ops(body.entry.ops)
        return inner.builder.finish()

    # Python's ops.

    def add(self, op: Op) -> Value:
        return self.builder.add(op)

    def constant(self, value: Any) -> Value:
        return self.add(core.ConstantOp(value, pyobject))

    def call(self, name: str, *arguments: Any, **options: Any) -> Value:
        """A call of the language, or of a method (`.to`). Arguments are values, dtypes, constants of Python, and lists
        of these; options that are None are left out."""
        if self.is_triton:
            name = _TRITON_CALLS.get(name, name)
            self.program.uses_libdevice |= name.startswith("libdevice.")
        callee = name if "." in name else self.program.words.call(name)
        options = {text: value for text, value in options.items() if value is not None}
        values = [self.argument(value) for value in (*arguments, *options.values())]
        return self.add(py.Invoke(tuple(values), callee, keywords=tuple(options)))

    def argument(self, value: Any) -> Value:
        if isinstance(value, Value):
            return value
        if isinstance(value, list) and any(isinstance(item, Value) for item in value):  # pyright: ignore[reportUnknownVariableType]
            return self.add(py.Pack(tuple([self.argument(item) for item in value])))  # pyright: ignore[reportUnknownVariableType]
        return self.constant(tuple(value) if isinstance(value, list) else value)  # pyright: ignore[reportUnknownArgumentType]

    # Values of the Triton model.

    def use(self, value: Value) -> Value:
        """A value in the Python model."""
        if value in self.variables:
            return self.add(core.VarLoad(self.variables[value]))
        if value in self.expressions:
            return self.expressions[value]
        number = constant_number(value)
        if number is None:
            raise TargetError(f"{value!r} has no form in Python's source", self.builder.location)
        shape, element = shape_of(value.type), element_of(value.type)
        return self.call("full", shape, number, element) if shape else self.call("cast", number, element)

    def literal(self, value: Value) -> Value:
        """A value where the call gives a literal its type."""
        number = constant_number(value)
        return self.use(value) if number is None else self.constant(number)

    def operand(self, value: Value) -> Value:
        """A value where the call also brings it to the shape of its other operands."""
        op = value.op
        return self.operand(op.operands[0]) if op is not None and op in self.implied else self.literal(value)

    def operands(self, values: Sequence[Value], literal_types: Sequence[str] | None) -> list[Value]:
        """The operands of a call that have one type. All but one of them may be literals.

        In Triton, a literal has its own type but in an operator. `literal_types` are those that it may have, if not
        all.
        """
        literals = [self.is_literal(value) and element_of(value.type) != i1 for value in values]
        if self.is_triton and literal_types is not None:
            numbers = [constant_number(value) for value in values]
            fits = all(not isinstance(number, int) or -(1 << 31) <= number < 1 << 31 for number in numbers)
            if not fits or str(element_of(values[0].type)) not in literal_types:
                literals = [False] * len(values)
        if all(literals):
            literals[0] = False
        is_bare = [literal or value.op in self.implied for value, literal in zip(values, literals, strict=True)]
        return [(self.operand if bare else self.use)(value) for value, bare in zip(values, is_bare, strict=True)]

    def is_literal(self, value: Value) -> bool:
        op = value.op
        return constant_number(value) is not None or (
            op is not None and op in self.implied and self.is_literal(op.operands[0])
        )

    def assigned(self, value: Value) -> Value:
        """A value that is assigned to a variable: in Triton, a literal becomes an i32 or an f32 there."""
        number = constant_number(value)
        if number is not None and self.is_triton and str(value.type) in ("i32", "f32"):
            return self.constant(number)
        return self.use(value)

    def define(self, result: Value, value: Value) -> None:
        """Let `value` stand for the result of an op of the Triton model."""
        op = result.op
        assert op is not None
        uses = result.uses
        if result in self.targets:
            self.variables[result] = self.targets[result]
            self.add(core.VarStore(self.targets[result], value))
        elif len(uses) == 1 and is_single(result) and uses[0].parent is op.parent and not starts_loop(result):
            self.expressions[result] = value
        elif uses:
            stem = carried_name(uses[0], result) if is_single(result) and starts_loop(result) else name_of(op)
            self.variables[result] = self.add(core.Var(value, name=stem or "value", type=VARIABLE))

    def components(self, result: Value, value: Value, count: int) -> None:
        """Let the components of `value` stand for those of a result."""
        if count == 1:
            self.define(result, value)
            return
        names = {op.index: name_of(op) for op in result.uses if isinstance(op, core.TupleLoad)}
        parts = [self.add(py.Unpack(value, index, count)) for index in range(count)]
        self.parts[result] = [
            self.add(core.Var(part, name=names.get(index) or "value", type=VARIABLE))
            for index, part in enumerate(parts)
        ]

    def results(self, result: Value, variables: Sequence[Value]) -> None:
        """Let variables hold the result of an op with bodies, or its components."""
        if len(variables) != 1:
            self.parts[result] = list(variables)
        elif result in self.targets:
            self.define(result, self.add(core.VarLoad(variables[0])))
        else:
            self.variables[result] = variables[0]

    def store(self, variables: Sequence[Value], values: Sequence[Value]) -> None:
        """Give the variables values, all at once."""
        rest = [pair for pair in zip(variables, values, strict=True) if self.targets.get(pair[1]) is not pair[0]]
        for (variable, _), value in zip(rest, [self.assigned(value) for _, value in rest], strict=True):
            self.add(core.VarStore(variable, value))


# Constants, uses and names of the Triton model.


def constant_number(value: Value) -> Any:
    """The number of a constant, or of one that is splatted; None for any other value."""
    op = value.op
    if isinstance(op, tt.Splat):
        return constant_number(op.value)
    return op.value if isinstance(op, arith.ConstantOp) else None


def is_single(value: Value) -> bool:
    """Whether one operand of one op uses a value."""
    return len(value.uses) == 1 and value.uses[0].operands.count(value) == 1


def starts_loop(value: Value) -> bool:
    """Whether the first use of a value is that of a variable of a loop before its first iteration."""
    op = value.uses[0]
    return isinstance(op, scf.For | scf.While) and value in op.initial


def carried_name(op: Op, initial: Value) -> str | None:
    """The name of a variable that a loop carries."""
    assert isinstance(op, scf.For | scf.While)
    body = op.bodies[-1]
    index = list(op.initial).index(initial)
    return value_name(body.entry.terminator.operands[index]) or value_name(initial)


def value_name(value: Value) -> str | None:
    """The name that the source gives a value: also one that comes out of a loop or a branch."""
    op = value.op
    index = 0
    if isinstance(op, core.TupleLoad):
        index, op = op.index, op.tuple.op
    if isinstance(op, scf.If | scf.For | scf.While):
        ends = [body.entry.terminator for body in op.bodies]
        inner = [end.operands[index] for end in ends if isinstance(end, scf.Yield) and index < len(end.operands)]
        return next((name for name in map(value_name, inner) if name is not None), None)
    return None if op is None else name_of(op)


def name_of_index(body: Body) -> str | None:
    """The name of the index of a loop."""
    op = body.parent
    return name_of(op) if isinstance(op, scf.For) else None


def _targets(body: Body, outputs: Sequence[Value], inputs: Sequence[Value]) -> dict[Value, Value]:
    """The variables to which values of a body can be assigned where they are computed, in the order of the variables.

    The parameter that a variable holds must have no use after that.
    """
    block = body.entry
    places = {op: index for index, op in enumerate(block.ops)}
    end = block.terminator
    values = end.operands
    targets: dict[Value, Value] = {}
    last = -1
    if not isinstance(end, scf.Yield):
        return targets
    for index, (value, variable) in enumerate(zip(values, outputs, strict=True)):
        op = value.op
        if op is None or op.parent is not block or values.count(value) > 1 or constant_number(value) is not None:
            break
        uses = inputs[index].uses if inputs else ()
        if places[op] < last or any(_place(use, places) > places[op] for use in uses):
            break
        last = places[op]
        targets[value] = variable
    return targets


def _place(op: Op, places: Mapping[Op, int]) -> int:
    return next(places[around] for around in op.path() if around in places)


# Ops that calls add by themselves.

# The operands that a call brings to one shape, by the op. Those of other elementwise ops are all of them.
_SPREADS: dict[type[Op], tuple[int, ...]] = {
    tt.AddPtr: (0, 1), tt.Load: (1, 2), tt.Store: (1, 2), tt.AtomicRMW: (1, 2), tt.AtomicCAS: (1, 2),
    arith.Select: (0, 1, 2), arith.CmpI: (0, 1), arith.CmpF: (0, 1),
}  # fmt: skip


def _implied(ops: Sequence[Op]) -> set[Op]:
    """The ops that the calls of a block add by themselves: they spread an operand just before the op that takes it."""
    implied: set[Op] = set()
    for index, op in enumerate(ops):
        positions = _SPREADS.get(type(op))
        if positions is None and isinstance(op, arith.Elementwise) and len(op.operands) > 1:
            positions = tuple(range(len(op.operands)))
        if positions is None or (isinstance(op, arith.CmpI) and isinstance(element_of(op.lhs.type), PtrType)):
            continue
        spread: list[Op] = []
        place = index - 1
        for position in reversed([position for position in positions if position < len(op.operands)]):
            value = op.operands[position]
            while place >= 0 and constant_number(ops[place].result) is not None:
                place -= 1
            source = ops[place] if place >= 0 else None
            # The call converts the operand, then spreads it.
            converts = isinstance(op, tt.Store | tt.AtomicRMW) and position == 1
            for kind in ("spread", "cast"):
                if source is None or source.result is not value or not is_single(value):
                    break
                is_cast = _is_converted(source) or (converts and is_plain_cast(source))
                if is_cast if kind == "cast" else isinstance(source, tt.Splat | tt.Broadcast):
                    spread.insert(0, source)
                    value = source.operands[0]
                    place -= 1
                    source = ops[place] if place >= 0 else None
        implied |= set(_allowed(op, spread, [op.operands[at] for at in positions if at < len(op.operands)]))
    return implied


def _is_converted(op: Op) -> bool:
    """Whether an op makes a number of another type of a literal."""
    return isinstance(op, arith.SIToFP | arith.ExtSI) and isinstance(op.operand.op, arith.ConstantOp)


def is_plain_cast(op: Op) -> bool:
    """Whether an op is the one that a conversion to its type makes, in which the signs are those of the types."""
    if not isinstance(op, arith.Cast) or isinstance(op, arith.Bitcast) or constant_number(op.operand) is not None:
        return False
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    if target == i1 or (isinstance(op, arith.TruncF) and op.rounding is not arith.Rounding.NEAREST):
        return False
    if isinstance(op, arith.FPToSI | arith.FPToUI):
        return isinstance(op, arith.FPToSI) == target.signed
    return SIGNED.get(type(op), source.signed) == source.signed


# The sign of the operand of conversions that have one.
SIGNED: dict[type[Op], bool] = {arith.ExtSI: True, arith.SIToFP: True, arith.ExtUI: False, arith.UIToFP: False}


def _allowed(op: Op, spread: Sequence[Op], values: Sequence[Value]) -> Sequence[Op]:
    """The last ones of the ops without which the operands still have the shape, and one of them is no literal."""
    rest = [value for value in op.operands[:1] if value not in values]
    for count in range(len(spread)):
        sources = [_without(value, spread[count:]) for value in (*rest, *values)]
        shapes = [shape_of(value.type) for value in sources if constant_number(value) is None]
        rank = max(map(len, shapes), default=0)
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        if padded and tuple(map(max, zip(*padded, strict=True))) == shape_of(values[-1].type):
            return spread[count:]
    return ()


def _without(value: Value, ops: Sequence[Op]) -> Value:
    return _without(value.op.operands[0], ops) if value.op is not None and value.op in ops else value
