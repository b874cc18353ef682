"""Functions of grids in C: `lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),)` by its Python code model.

Numbers that the function captures are parameters in C. One with the name and the value of an argument is that argument.
"""

from __future__ import annotations

import ast
import builtins
import math
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
_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=")
_OF_FLOATS: Final = ("+", "-", "*", *_COMPARISONS)
_INFIX: Final = (*_OF_FLOATS, "&", "|", "^", "<<", ">>")
# Binary operators in C, by their signs in Python.
_BINARY: Final = {**{sign: sign for sign in _INFIX}, "//": "ziggurat_div", "%": "ziggurat_mod"}
_PREFIX: Final[dict[type[Op], str]] = {py.Neg: "-", py.Pos: "+", py.Invert: "~", py.Not: "!"}
# Functions of the header, by the names of the calls of languages that they stand for, and by functions of Python.
_CALLS: Final = {
    "cdiv": "ziggurat_cdiv", "next_power_of_2": "ziggurat_next_power_of_2",
    "minimum": "ziggurat_min", "maximum": "ziggurat_max", "abs": "ziggurat_abs",
}  # fmt: skip
_PYTHON: Final[dict[Any, str]] = {
    min: "ziggurat_min", max: "ziggurat_max", abs: "ziggurat_abs", int: "ziggurat_int", round: "ziggurat_round",
    math.ceil: "ziggurat_ceil", math.floor: "ziggurat_floor", math.trunc: "ziggurat_int",
}  # fmt: skip
_EXTREMES: Final = ("ziggurat_min", "ziggurat_max")
# Functions of one number: those that round, which leave integers as they are, and those that have a form for each type.
_ROUNDINGS: Final = ("ziggurat_int", "ziggurat_round", "ziggurat_ceil", "ziggurat_floor")
_COUNTS: Final = {"ziggurat_cdiv": 2, **dict.fromkeys(_EXTREMES, 2)}  # Operands, where it is not one.


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
    lines = writer.function(block)
    return Grid(_text_of(fn), lines, tuple(dict.fromkeys(writer.takes)), dict(writer.captures.values()))


@attrs.frozen(eq=False)
class _Object:
    """An object of Python that is no integer: a constant, or a captured one with the expression that gave it."""

    value: Any
    path: str = ""


class _Float(str):
    """An expression of C that is a `double`; those of integers are plain strings."""

    __slots__ = ()


@attrs.frozen
class _Range:
    """A `range` of integers, as expressions of C."""

    start: str
    stop: str
    step: str


_META: Final = _Object(None)  # Stands for the parameter of the function, which C does not have.


def _text_of(fn: types.FunctionType) -> str:
    """The expression of a lambda; the name and the line of another function."""
    node = find_definition(fn, read_lines(fn)).node
    is_lambda = isinstance(node, ast.Lambda)
    return ast.unparse(node.body) if is_lambda else f"{fn.__name__} of line {fn.__code__.co_firstlineno}"


def _call_in_c(target: Any) -> str:
    """The function of the header for a call of a language or a builtin; empty for any other object."""
    if isinstance(target, types.BuiltinFunctionType | type) and target in _PYTHON:
        return _PYTHON[target]
    owner = cast(Any, type(target)) if hasattr(target, "signature") else target  # Our calls, and Triton's functions.
    if str(getattr(owner, "__module__", "")).partition(".")[0] not in ("ziggurat", "triton"):
        return ""
    return _CALLS.get(getattr(getattr(target, "signature", None), "name", "") or getattr(target, "__name__", ""), "")


class _Writer:
    """Writes blocks of a Python code model as C. `names` has the expressions of values; tuples are Python's, other
    objects are `_Object`s. `captures` has the names in C and the values of captured numbers, by the function and the
    expression that captured them. `floats` are the variables that hold a float at some place."""

    def __init__(
        self, arguments: Mapping[str, Any], is_run_time: Callable[[str], bool], quoted: Quoted[..., Any]
    ) -> None:
        self.arguments, self.is_run_time, self.quoted = arguments, is_run_time, quoted
        self.callers: list[Any] = []
        self.names: dict[Value, Any] = {}
        self.quotes: dict[types.FunctionType, Quoted[..., Any]] = {}  # Of functions that are called.
        self.variables: set[Value] = set(_variables(quoted.model))  # Variables that get other values later.
        self.floats: set[Value] = set()
        self.takes: list[str] = []
        self.captures: dict[tuple[Any, str], tuple[str, int]] = {}
        self.count = 0

    def function(self, block: Block) -> list[str]:
        """The statements of the function, written again until all variables that hold floats are known."""
        while True:
            count = len(self.floats)
            self.takes, self.captures, self.count = [], {}, 0
            self.names = dict[Value, Any]({block.parameters[0]: _META})
            lines = self.block(block)
            if len(self.floats) == count:
                return lines

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
            while c_name(name) in others or re.fullmatch(r"v\d+(_\d+)*", name):  # A variable may have such a name.
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
        if isinstance(value, float):
            return _literal(value)
        if not isinstance(value, int):
            raise BuildError(f"the grid asks for {name!r}, which is no number")
        return _integer(value)

    def block(self, block: Block, result: Callable[[Any], list[str]] | None = None) -> list[str]:
        """The statements of a block. `result` writes what its `yield` hands on."""
        lines: list[str] = []
        for op in block.ops:
            if isinstance(op, core.Return):
                lines += self.sizes(self.names[op.values[0]] if op.values else None)
            elif isinstance(op, core.Yield):
                lines += result(self.names[op.values[0]]) if result is not None and op.values else []
            elif isinstance(op, py.Break | py.Continue):
                lines.append(f"{op.NAME};")
            else:
                lines += self.statement(op)
                if _returns(op):
                    break
        return lines

    def sizes(self, value: Any) -> list[str]:
        if isinstance(value, _Object) and type(value.value) in (tuple, list):  # A captured grid.
            value = tuple(self.component(value, index, len(value.value)) for index in range(len(value.value)))
        parts: list[Any] = [*cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else [value]
        if not 1 <= len(parts) <= 3 or not all(map(_is_integer, parts)):
            raise BuildError(
                "the function of a grid must give one to three integers",
                hint="convert a float by int(), math.ceil() or math.floor()",
            )
        three = (*parts, "1", "1")[:3]
        return [f"grid[{axis}] = (uint32_t)({part});" for axis, part in enumerate(three)] + ["return;"]

    def name(self) -> str:
        self.count += 1
        while any(re.fullmatch(rf"v{self.count}(_\d+)*", name) for name in self.arguments):
            self.count += 1
        return f"v{self.count}"

    def variable(self, initial: Any = None) -> tuple[str, list[str]]:
        """A new variable of the type of its value."""
        return self.declared(self.name(), ["0" if initial is None else initial], initial)

    def declared(self, name: str, values: Sequence[Any], initial: Any = None) -> tuple[Any, list[str]]:
        """A variable that holds one of some values, and its declaration; a tuple of variables for tuples."""
        if all(map(_is_text, values)):
            kind, word = (_Float, "double") if any(isinstance(v, _Float) for v in values) else (str, "int64_t")
            return kind(name), [f"{word} {name} = {'0' if initial is None else initial};"]
        if all(isinstance(value, tuple) for value in values) and len({len(value) for value in values}) == 1:
            parts = [self.declared(f"{name}_{at}", column) for at, column in enumerate(zip(*values, strict=True))]
            return tuple(part for part, _ in parts), [line for _, lines in parts for line in lines]
        raise BuildError("the grid's function chooses between values that are neither numbers nor tuples of one length")

    def statement(self, op: Op) -> list[str]:
        if isinstance(op, core.Var):
            initial = None if op.initial is None else self.names[op.initial]
            if op.result not in self.variables or not (initial is None or _is_text(initial)):
                self.names[op.result] = initial
                return []
            self.floats |= {op.result} if isinstance(initial, _Float) else set()
            kinds = [_Float("0") if op.result in self.floats else "0"]
            self.names[op.result], lines = self.declared(self.name(), kinds, initial)
            return lines
        if isinstance(op, core.VarStore):
            self.floats |= {op.var} if isinstance(value := self.number(op.value), _Float) else set()
            return [f"{self.number(op.var)} = {value};"]
        if isinstance(op, py.If):
            then, otherwise = (self.block(body.entry) for body in op.bodies)
            return [f"if ({self.number(op.condition)}) {{", *_indented(then), "} else {", *_indented(otherwise), "}"]
        if type(op) is py.For and not op.is_async:  # One with `else` is of a class of its own.
            return self.loop(op)
        if type(op) is py.While:
            test = self.block(op.condition.entry, lambda value: [f"if (!({self.checked(value)})) break;"])
            return ["for (;;) {", *_indented([*test, *self.block(op.suite.entry)]), "}"]
        if isinstance(op, py.CondExpression):
            then, otherwise = map(_indented, (arms := self.arms(op, op.bodies))[1])
            return [*arms[0], f"if ({self.number(op.condition)}) {{", *then, "} else {", *otherwise, "}"]
        if isinstance(op, py.CondAnd | py.CondOr):
            lines, (first, *rest) = self.arms(op, op.bodies)
            test = ("" if isinstance(op, py.CondAnd) else "!") + self.number(op.result)
            return lines + first + [line for arm in rest for line in (f"if ({test}) {{", *_indented(arm), "}")]
        if isinstance(op, core.VarLoad) and op.var in self.variables and _is_text(self.names[op.var]):
            self.names[op.result], lines = self.variable(self.names[op.var])  # The variable may change before its use.
            return lines
        if isinstance(op, py_objects.Chain):
            name, lines = self.variable()
            self.names[op.result] = name
            return lines + self.chain(name, self.number(op.lhs), self.number(op.rhs), op.operators, op.others)
        if isinstance(op, py.Invoke):
            return self.call(op)
        self.names[op.result] = self.expression(op)
        return []

    def arms(self, op: Op, bodies: Sequence[Body]) -> tuple[list[str], list[list[str]]]:
        """The declaration of the value of an op that runs some of its bodies, and the statements of each body."""
        name, values = self.name(), list[Any]()

        def assign(value: Any) -> list[str]:
            values.append(value)
            return _assignments(name, value)

        arms = [self.block(body.entry, assign) for body in bodies]
        self.names[op.result], lines = self.declared(name, values)
        return lines, arms

    def loop(self, op: py.For) -> list[str]:
        """The statements of a loop over a range, or over the items of a tuple."""
        lines, last = self.block(op.iterable.entry), op.iterable.entry.ops[-1]
        items: Any = self.names[last.operands[0]]
        (parameter,) = op.suite.parameters
        if isinstance(items, _Range):
            start, stop, step = items.start, items.stop, items.step
            number = self.names[parameter] = self.name()
            (stop, more), (step, other) = self.variable(stop), self.variable(step)
            ends = f"{step} > 0 ? {number} < {stop} : {step} < 0 && {number} > {stop}"
            head = [*more, *other, f"for (int64_t {number} = {start}; {ends}; {number} += {step}) {{"]
            return [*lines, *head, *_indented(self.block(op.suite.entry)), "}"]
        values = self.items(items)
        table, number = self.name(), self.name()
        self.names[parameter], declaration = self.declared(self.name(), values)
        word, name, *_ = declaration[0].split()
        head = [
            f"const {word} {table}[] = {{{', '.join(values)}}};",
            f"for (int {number} = 0; {number} < {len(values)}; {number}++) {{",
        ]
        return [*lines, *head, f"  {word} {name} = {table}[{number}];", *_indented(self.block(op.suite.entry)), "}"]

    def items(self, value: Any) -> list[str]:
        """The numbers of a tuple or a list."""
        if isinstance(value, _Object) and type(value.value) in (tuple, list):
            value = tuple(self.component(value, index, len(value.value)) for index in range(len(value.value)))
        if not isinstance(value, tuple) or not value or not all(map(_is_text, cast("tuple[Any, ...]", value))):
            raise BuildError("the grid's function loops over a value that is no range and no tuple of numbers")
        return list(cast("tuple[str, ...]", value))

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
                constants = [v if (number := _constant(v)) is None else number for v in values]
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
        if target is range and 1 <= len(values) <= 3:
            texts = [self.checked(value, int) for value in values]
            start, stop, step = ["0", *texts, "1"] if len(texts) == 1 else [*texts, "1"][:3]
            self.names[op.result] = _Range(start, stop, step)
            return []
        name, texts = _call_in_c(target), [value for value in values if _is_text(value)]
        if isinstance(target, types.FunctionType) and not name:
            return self.inlined(op, target, values)
        fits = len(texts) == (count := _COUNTS.get(name, 1)) or (name in _EXTREMES and len(texts) > count)
        if not name or not fits or len(texts) != len(values):
            raise BuildError(f"the grid's function calls '{op.callee}', which has no form in C")
        is_float = any(isinstance(text, _Float) for text in texts)
        if name in _ROUNDINGS:
            self.names[op.result] = f"{name}({texts[0]})" if is_float else texts[0]
        elif is_float and (name in _EXTREMES or name == "ziggurat_abs"):
            self.names[op.result] = _Float(_nested(name.replace("_", "_f"), texts))
        else:
            self.names[op.result] = _nested(name, [self.checked(text, int) for text in texts])
        return []

    def inlined(self, op: py.Invoke, target: types.FunctionType, values: Sequence[Any]) -> list[str]:
        """The statements of a function of the program, which returns at its end alone."""
        quoted = self.quotes.setdefault(target, quote(target))
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

    def number(self, value: Value) -> str:
        return self.checked(self.names[value])

    def checked(self, value: Any, kind: type[Any] = float) -> str:
        """An expression of a number; of an integer, if that is the kind. Raises `BuildError` for others."""
        if not _is_text(value):
            raise BuildError("the grid must be computed of numbers")
        if kind is int and isinstance(value, _Float):
            hint = "convert it by int(), math.ceil() or math.floor()"
            raise BuildError("the grid's function has a float where its form in C needs an integer", hint=hint)
        return value

    def expression(self, op: Op) -> Any:
        if isinstance(op, core.ConstantOp):
            if isinstance(op.value, float):
                return _literal(op.value)
            return _integer(op.value) if isinstance(op.value, int) else _Object(op.value)
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
            return self.binary(OPERATORS[type(op)].sign, op, self.number(op.lhs), self.number(op.rhs))
        if isinstance(op, py_objects.InPlace):
            return self.binary(op.operator, op, self.number(op.lhs), self.number(op.rhs))
        if isinstance(op, py.UnaryExpression) and type(op) in _PREFIX:
            operand = self.number(op.operand)
            is_float = isinstance(operand, _Float) and not isinstance(op, py.Not)
            operand = self.checked(operand, int) if isinstance(op, py.Invert) else operand
            return (_Float if is_float else str)(f"({_PREFIX[type(op)]}{operand})")
        raise _no_form(op)

    def binary(self, sign: str, op: Op, left: str, right: str) -> str:
        if sign == "/":
            return _Float(f"((double){left} / {right})")
        if (operator := _BINARY.get(sign)) is None:
            raise _no_form(op)
        if sign not in _OF_FLOATS:
            left, right = self.checked(left, int), self.checked(right, int)
        is_float = sign not in _COMPARISONS and any(isinstance(text, _Float) for text in (left, right))
        text = f"{operator}({left}, {right})" if operator.isidentifier() else f"({left} {operator} {right})"
        return _Float(text) if is_float else text

    def component(self, value: Any, index: int, count: int) -> Any:
        if isinstance(value, tuple) and len(cast("tuple[Any, ...]", value)) == count:
            return cast("tuple[Any, ...]", value)[index]
        if isinstance(value, _Object) and captured.method(value.value, "__len__", ()) == count:
            return self.captured(f"{value.path}[{index}]", captured.item(value.value, index))
        raise BuildError("the grid's function unpacks a value that is no tuple of this length")

    def item(self, value: Any, index: Any) -> Any:
        """The item of a value: an argument of the launch, a component of a tuple, or an item of a captured object."""
        key = index.value if isinstance(index, _Object) else _constant(index)
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


def _is_integer(value: Any) -> bool:
    """Whether a value is an expression of C that is an integer."""
    return _is_text(value) and not isinstance(value, _Float)


def _constant(value: Any) -> int | None:
    """The integer of which a value is the text in C; None for anything else."""
    return int(value.strip("()")) if _is_text(value) and re.fullmatch(r"\d+|\(-\d+\)", value) else None


def _no_form(op: Op) -> BuildError:
    return BuildError(f"the grid's function has {op.NAME}, which has no form in C")


def _integer(number: int) -> str:
    """A constant, in parentheses if it is negative: C reads `--5` as a decrement."""
    return f"({int(number)})" if number < 0 else str(int(number))


def _literal(number: float) -> _Float:
    if not math.isfinite(number):
        raise BuildError(f"the grid's function has the number {number}, which has no form in C")
    return _Float(f"({number!r})" if number < 0 else repr(number))


def _assignments(name: str, value: Any) -> list[str]:
    """The statements that give a variable, or the variables of a tuple, a value."""
    if not isinstance(value, tuple):
        return [f"{name} = {value};"]
    return [
        line for at, part in enumerate(cast("tuple[Any, ...]", value)) for line in _assignments(f"{name}_{at}", part)
    ]


def _returns(op: Op) -> bool:
    """Whether control never goes on to the op after an op."""
    last = [body.entry.ops[-1] for body in op.bodies] if isinstance(op, py.If) else []
    return bool(last) and all(isinstance(end, core.Return | py.Break | py.Continue) or _returns(end) for end in last)


def _variables(model: Op) -> set[Value]:
    return {op.var for op in model.walk() if isinstance(op, core.VarStore)}


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
