"""Functions of grids in C: `lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),)` by its Python code model.

Numbers that the function captures are parameters in C. One with the name and the value of an argument is that argument.
"""

from __future__ import annotations

import ast
import builtins
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import attrs

from ziggurat.codemodel.dialects import core, py, py_objects
from ziggurat.codemodel.errors import BuildError, ZigguratError
from ziggurat.codemodel.op import Block, Body, Op, Value
from ziggurat.codemodel.python_operators import OPERATORS
from ziggurat.codemodel.types import NUMPY
from ziggurat.frontends.language.function import Function, written_function
from ziggurat.frontends.python.quote import Quoted, quote
from ziggurat.frontends.python.source import find_definition, read_lines
from ziggurat.shipping import captured

# Words of C and C++, and the names of the parameters that functions have besides.
_RESERVED: Final = frozenset(
    """
    alignas alignof and asm auto bool break case catch char class const continue default delete do double else enum
    explicit export extern false first float for friend goto grid if inline int last long mutable namespace new not
    operator or private protected public register restrict return short signed sizeof static stream struct switch
    template this throw true try typedef typename union unsigned using virtual void volatile while xor
    """.split()  # noqa: SIM905 - one word a line would be a page
)
_INFIX: Final = ("+", "-", "*", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=")
# Binary operators in C, by their signs in Python.
_BINARY: Final = {**{sign: sign for sign in _INFIX}, "//": "ziggurat_div", "%": "ziggurat_mod"}
_PREFIX: Final[dict[type[Op], str]] = {py.Neg: "-", py.Pos: "+", py.Invert: "~", py.Not: "!"}
# Functions of the header, by the names of the calls of languages that they stand for.
_CALLS: Final = {
    "cdiv": "ziggurat_cdiv", "next_power_of_2": "ziggurat_next_power_of_2",
    "minimum": "ziggurat_min", "maximum": "ziggurat_max",
}  # fmt: skip


def c_name(name: str) -> str:
    """A name as C can have it."""
    text = re.sub(r"\W+", "_", name, flags=re.ASCII)
    text = (text if text == name else text.rstrip("_")) or "x"
    return f"x{text}" if text[0].isdecimal() else f"{text}_" if text in _RESERVED else text


@attrs.frozen
class Grid:
    """A function of the grid in C: its source, the statements that set `grid`, the names of the arguments that it
    takes, and the numbers that it captured, by the names of their parameters in C."""

    source: str
    body: tuple[str, ...] = attrs.field(converter=tuple[str, ...])
    takes: tuple[str, ...] = attrs.field(converter=tuple[str, ...])
    captures: Mapping[str, int] = attrs.field(factory=dict[str, int], hash=False)


def grid_in_c(fn: Callable[..., Any], arguments: Mapping[str, Any], is_run_time: Callable[[str], bool]) -> Grid:
    """A function of the grid in C. `arguments` are those of a launch by name; those that are passed when the kernel
    runs, and not compiled in, are parameters of the function in C. No code of the program runs.

    Raises `BuildError` for a function that has no such form, and `KernelSyntaxError` for one without a source.
    """
    if not isinstance(fn, types.FunctionType):
        raise BuildError(f"the grid must be a function with a source; got {type(fn).__name__}")
    quoted = quote(fn)
    model = cast(core.Func, quoted.model)
    (block,) = model.body.blocks
    if len(block.parameters) != 1 or any(text.startswith("*") for text in model.parameters):
        raise BuildError("the function of a grid must have one parameter, the arguments by name")
    writer = _Writer(arguments, is_run_time, quoted)
    writer.names[block.parameters[0]] = _META
    lines = writer.block(block)
    return Grid(_text_of(fn), lines, tuple(dict.fromkeys(writer.takes)), dict(writer.captures.values()))


@attrs.frozen(eq=False)
class _Object:
    """An object of Python that is no integer: a constant, or a captured one with the expression that gave it."""

    value: Any
    path: str = ""


_META: Final = _Object(None)  # Stands for the parameter of the function, which C does not have.


def _text_of(fn: types.FunctionType) -> str:
    """The expression of a lambda; the name and the line of another function."""
    node = find_definition(fn, read_lines(fn)).node
    is_lambda = isinstance(node, ast.Lambda)
    return ast.unparse(node.body) if is_lambda else f"{fn.__name__} of line {fn.__code__.co_firstlineno}"


def _call_in_c(target: Any) -> str:
    """The function of the header for a call of a language or a builtin; empty for any other object."""
    if target is min or target is max:
        return f"ziggurat_{target.__name__}"
    owner = cast(Any, type(target)) if hasattr(target, "signature") else target  # Our calls, and Triton's functions.
    if str(getattr(owner, "__module__", "")).partition(".")[0] not in ("ziggurat", "triton"):
        return ""
    return _CALLS.get(getattr(getattr(target, "signature", None), "name", "") or getattr(target, "__name__", ""), "")


class _Writer:
    """Writes blocks of a Python code model as C. `names` has the expressions of values; tuples are Python's, other
    objects are `_Object`s. `captures` has the names in C and the values of captured numbers, by the function and the
    expression that captured them."""

    def __init__(
        self, arguments: Mapping[str, Any], is_run_time: Callable[[str], bool], quoted: Quoted[..., Any]
    ) -> None:
        self.arguments, self.is_run_time, self.quoted = arguments, is_run_time, quoted
        self.callers: list[Any] = []
        self.names: dict[Value, Any] = {}
        self.variables: set[Value] = set(_variables(quoted.model))  # Variables that get other values later.
        self.takes: list[str] = []
        self.captures: dict[tuple[Any, str], tuple[str, int]] = {}
        self.count = 0

    def captured(self, path: str, value: Any) -> Any:
        """A captured object; a number is an argument, or becomes a parameter in C."""
        if not isinstance(value, (int, NUMPY.integer)):
            return _Object(value, path)
        number = int(value)
        own = self.arguments.get(path)
        if isinstance(own, (int, NUMPY.integer)) and own == number:
            return self.argument(path)
        key = self.quoted.function, path
        if key not in self.captures:
            name = re.sub("__+", "_", re.sub(r"\W", "_", path)).strip("_") or "x"
            others = {c_name(other) for other in (*self.arguments, *(other for other, _ in self.captures.values()))}
            while c_name(name) in others or re.fullmatch(r"v\d+", name):  # A variable may have such a name.
                name += "_"
            self.captures[key] = name, number
        return c_name(self.captures[key][0])

    def argument(self, name: Any) -> str:
        """An argument of the launch, as a parameter or a constant."""
        if name not in self.arguments:
            raise BuildError(f"the grid asks for {name!r}, which is no parameter of the kernel")
        if self.is_run_time(name):
            self.takes.append(name)
            return c_name(name)
        value = self.arguments[name]
        if not isinstance(value, int):
            raise BuildError(f"the grid asks for {name!r}, which is no integer")
        return str(int(value))

    def block(self, block: Block, result: Callable[[Any], list[str]] | None = None) -> list[str]:
        """The statements of a block. `result` writes what its `yield` hands on."""
        lines: list[str] = []
        for op in block.ops:
            if isinstance(op, core.Return):
                lines += self.sizes(self.names[op.values[0]] if op.values else None)
            elif isinstance(op, core.Yield):
                lines += result(self.names[op.values[0]]) if result is not None and op.values else []
            else:
                lines += self.statement(op)
                if _returns(op):
                    break
        return lines

    def sizes(self, value: Any) -> list[str]:
        if isinstance(value, _Object) and type(value.value) in (tuple, list):  # A captured grid.
            value = tuple(self.component(value, index, len(value.value)) for index in range(len(value.value)))
        parts: list[Any] = [*cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else [value]
        if not 1 <= len(parts) <= 3 or not all(isinstance(part, str) for part in parts):
            raise BuildError("the function of a grid must give one to three integers")
        three = (*parts, "1", "1")[:3]
        return [f"grid[{axis}] = (uint32_t)({part});" for axis, part in enumerate(three)] + ["return;"]

    def variable(self, initial: Any = None) -> tuple[str, list[str]]:
        self.count += 1
        while (name := f"v{self.count}") in self.arguments:
            self.count += 1
        return name, [f"int64_t {name} = {initial or 0};"]

    def statement(self, op: Op) -> list[str]:
        if isinstance(op, core.Var):
            initial = None if op.initial is None else self.names[op.initial]
            if op.result not in self.variables or not (initial is None or _is_text(initial)):
                self.names[op.result] = initial
                return []
            self.names[op.result], lines = self.variable(initial)
            return lines
        if isinstance(op, core.VarStore):
            return [f"{self.text(op.var)} = {self.text(op.value)};"]
        if isinstance(op, py.If):
            then, otherwise = (self.block(body.entry) for body in op.bodies)
            return [f"if ({self.text(op.condition)}) {{", *_indented(then), "} else {", *_indented(otherwise), "}"]
        if isinstance(op, py.CondExpression):
            name, lines = self.variable()
            arms = [self.value_of(body, name) for body in op.bodies]
            then, otherwise = map(_indented, arms)
            self.names[op.result] = name
            return [*lines, f"if ({self.text(op.condition)}) {{", *then, "} else {", *otherwise, "}"]
        if isinstance(op, py.CondAnd | py.CondOr):
            name, lines = self.variable()
            first, *rest = op.bodies
            lines += self.value_of(first, name)
            for body in rest:
                test = name if isinstance(op, py.CondAnd) else f"!{name}"
                lines += [f"if ({test}) {{", *_indented(self.value_of(body, name)), "}"]
            self.names[op.result] = name
            return lines
        if isinstance(op, core.VarLoad) and op.var in self.variables and _is_text(self.names[op.var]):
            self.names[op.result], lines = self.variable(self.names[op.var])  # The variable may change before its use.
            return lines
        if isinstance(op, py_objects.Chain):
            name, lines = self.variable()
            self.names[op.result] = name
            return lines + self.chain(name, self.text(op.lhs), self.text(op.rhs), op.operators, op.others)
        if isinstance(op, py.Invoke):
            return self.call(op)
        self.names[op.result] = self.expression(op)
        return []

    def chain(self, name: str, lhs: str, rhs: str, operators: Sequence[str], others: Sequence[Body]) -> list[str]:
        """The statements of a chain of comparisons, each in the condition of the one before."""
        if operators[0] not in _INFIX:
            raise BuildError(f"the grid's function has '{operators[0]}', which has no form in C")
        lines = [f"{name} = ({lhs} {operators[0]} {rhs});"]
        if others:
            more = self.block(others[0].entry, lambda value: self.chain(name, rhs, value, operators[1:], others[1:]))
            lines += [f"if ({name}) {{", *_indented(more), "}"]
        return lines

    def call(self, op: py.Invoke) -> list[str]:
        """The statements of a call; its value is noted."""
        values = [self.names[value] for value in op.arguments]
        if op.keywords or op.starred:
            raise BuildError(f"the grid's function calls '{op.callee}' with keywords, which has no form in C")
        if op.callee.startswith("."):
            owner, *values = values
            path = f"{owner.path}{op.callee}" if isinstance(owner, _Object) else ""
            if not path or owner is _META:
                raise BuildError(f"the grid's function calls '{op.callee}', which has no form in C")
            if not isinstance(owner.value, types.ModuleType):
                constants = [int(v) if _is_number(v) else v for v in values]
                number = captured.method(owner.value, op.callee[1:], constants)
                self.names[op.result] = self.captured(f"{path}({', '.join(map(str, constants))})", number)
                return []
            target = captured.attribute(owner.value, op.callee[1:])
        else:
            target = self.quoted.captured.get(op.callee, getattr(builtins, op.callee, None))
        if target is len and len(values) == 1 and isinstance(values[0], _Object) and values[0] is not _META:
            size = captured.method(values[0].value, "__len__", ())
            self.names[op.result] = self.captured(f"len({values[0].path})", size)
            return []
        target = written_function(target) if isinstance(target, Function) else target
        name, texts = _call_in_c(target), [value for value in values if _is_text(value)]
        if isinstance(target, types.FunctionType) and not name:
            return self.inlined(op, target, values)
        if target is int and len(texts) == len(values) == 1:
            self.names[op.result] = texts[0]
        elif name and len(texts) == len(values) and len(texts) >= _LEAST[name]:
            self.names[op.result] = _nested(name, texts)
        else:
            raise BuildError(f"the grid's function calls '{op.callee}', which has no form in C")
        return []

    def inlined(self, op: py.Invoke, target: types.FunctionType, values: Sequence[Any]) -> list[str]:
        """The statements of a function of the program, which returns at its end alone."""
        quoted = quote(target)
        model = cast(core.Func, quoted.model)
        (block,) = model.body.blocks
        *statements, last = block.ops
        if last not in (returns := [inner for inner in model.walk() if isinstance(inner, core.Return)]):
            returns = []
        is_plain = len(block.parameters) == len(values) and not model.parameters
        if len(returns) != 1 or not is_plain or target in self.callers:
            raise BuildError(f"the grid's function calls '{op.callee}', which must return at its end alone")
        self.variables |= _variables(model)
        self.names |= dict(zip(block.parameters, values, strict=True))
        before, self.quoted = self.quoted, quoted
        self.callers.append(target)
        lines = [line for inner in statements for line in self.statement(inner)]
        self.callers.pop()
        self.quoted = before
        self.names[op.result] = self.names[returns[0].values[0]] if returns[0].values else _Object(None)
        return lines

    def value_of(self, body: Body, name: str) -> list[str]:
        """The statements that give a variable the value of a body."""
        return self.block(body.entry, lambda value: [f"{name} = {value};"])

    def text(self, value: Value) -> str:
        text = self.names[value]
        if not _is_text(text):
            raise BuildError("the grid must be computed of integers")
        return text

    def expression(self, op: Op) -> Any:
        if isinstance(op, core.ConstantOp):
            return str(int(op.value)) if isinstance(op.value, int) else _Object(op.value)
        if isinstance(op, core.VarLoad):
            return self.names[op.var]
        if isinstance(op, py.Outer):
            if op.name not in self.quoted.captured:
                raise BuildError(f"the grid's function asks for '{op.name}', which has no value")
            return self.captured(op.name, self.quoted.captured[op.name])
        if isinstance(op, py.Attribute) and isinstance(owner := self.names[op.value], _Object) and owner is not _META:
            return self.captured(f"{owner.path}.{op.name}", captured.attribute(owner.value, op.name))
        if isinstance(op, py.Pack):
            return tuple(self.names[value] for value in op.components)
        if isinstance(op, py_objects.List) and not op.starred:
            return tuple(self.names[value] for value in op.items)
        if isinstance(op, py_objects.Spread) and op.star < 0:
            return self.names[op.value]
        if isinstance(op, py.Unpack):
            return self.component(self.names[op.value], op.index, op.count)
        if isinstance(op, py.Subscript):
            return self.item(self.names[op.value], self.names[op.index])
        if isinstance(op, py.BinaryExpression):
            return _binary(OPERATORS[type(op)].sign, op, self.text(op.lhs), self.text(op.rhs))
        if isinstance(op, py_objects.InPlace):
            return _binary(op.operator, op, self.text(op.lhs), self.text(op.rhs))
        if isinstance(op, py.UnaryExpression) and type(op) in _PREFIX:
            return f"({_PREFIX[type(op)]}{self.text(op.operand)})"
        raise _no_form(op)

    def component(self, value: Any, index: int, count: int) -> Any:
        if isinstance(value, tuple) and len(cast("tuple[Any, ...]", value)) == count:
            return cast("tuple[Any, ...]", value)[index]
        if isinstance(value, _Object) and captured.method(value.value, "__len__", ()) == count:
            return self.captured(f"{value.path}[{index}]", captured.item(value.value, index))
        raise BuildError("the grid's function unpacks a value that is no tuple of this length")

    def item(self, value: Any, index: Any) -> Any:
        """The item of a value: an argument of the launch, a component of a tuple, or an item of a captured object."""
        key = int(index) if _is_number(index) else index.value if isinstance(index, _Object) else None
        if value is _META:
            return self.argument(key)
        if isinstance(value, tuple) and isinstance(key, int):
            parts = cast("tuple[Any, ...]", value)
            if -len(parts) <= key < len(parts):
                return parts[key]
        if isinstance(value, _Object) and isinstance(key, int | str):
            return self.captured(f"{value.path}[{key!r}]", captured.item(value.value, key))
        raise BuildError("the grid's function has a subscript that has no form in C")


def _is_text(value: Any) -> bool:
    """Whether a value is an expression of C."""
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    """Whether a value is the text of a constant."""
    return _is_text(value) and re.fullmatch(r"-?\d+|\(-\d+\)", value) is not None


def _no_form(op: Op) -> BuildError:
    return BuildError(f"the grid's function has {op.NAME}, which has no form in C")


def _binary(sign: str, op: Op, left: str, right: str) -> str:
    operator = _BINARY.get(sign)
    if operator is None:
        raise _no_form(op)
    return f"{operator}({left}, {right})" if operator.isidentifier() else f"({left} {operator} {right})"


def _returns(op: Op) -> bool:
    """Whether control never goes on after an op."""
    last = [body.entry.ops[-1] for body in op.bodies] if isinstance(op, py.If) else []
    return bool(last) and all(isinstance(end, core.Return) or _returns(end) for end in last)


def _variables(model: Op) -> set[Value]:
    return {op.var for op in model.walk() if isinstance(op, core.VarStore)}


_LEAST: Final = {"ziggurat_cdiv": 2, "ziggurat_next_power_of_2": 1, "ziggurat_min": 2, "ziggurat_max": 2}


def _nested(name: str, operands: Sequence[str]) -> str:
    """A call; of a function of two operands with more, calls in each other."""
    if len(operands) > 2:
        return f"{name}({operands[0]}, {_nested(name, operands[1:])})"
    return f"{name}({', '.join(operands)})"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def attempted(fn: Any, arguments: Mapping[str, Any], is_run_time: Callable[[str], bool]) -> tuple[Grid | None, str]:
    """The function of a grid in C, or None and the reason why it has no such form."""
    try:
        return grid_in_c(fn, arguments, is_run_time), ""
    except ZigguratError as error:
        return None, error.summary
