"""Functions of grids in C: `lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),)` by its Python code model.

Numbers that the function captures are parameters in C. One with the name and the value of an argument is that argument.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import attrs

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import BuildError, ZigguratError
from ziggurat.codemodel.location import register
from ziggurat.codemodel.op import Block, Body, Op, Value
from ziggurat.frontends.language.function import Function
from ziggurat.frontends.reflection.functions import function

# Words of C and C++, and the names of the parameters that functions have besides.
_RESERVED: Final = frozenset(
    """
    alignas alignof and asm auto bool break case catch char class const continue default delete do double else enum
    explicit export extern false first float for friend goto grid if inline int last long mutable namespace new not
    operator or private protected public register restrict return short signed sizeof static stream struct switch
    template this throw true try typedef typename union unsigned using virtual void volatile while xor
    """.split()  # noqa: SIM905 - one word a line would be a page
)
_INFIX: Final[dict[type[Op], str]] = {
    py.Add: "+", py.Sub: "-", py.Mul: "*", py.And: "&", py.Or: "|", py.Xor: "^", py.Shl: "<<", py.Shr: ">>",
    py.Eq: "==", py.Ne: "!=", py.Lt: "<", py.Le: "<=", py.Gt: ">", py.Ge: ">=",
}  # fmt: skip
_PREFIX: Final[dict[type[Op], str]] = {py.Neg: "-", py.Pos: "+", py.Invert: "~", py.Not: "!"}
# Functions of the header, by the calls of the language and the builtins that they stand for.
_CALLS: Final = {
    "zg.cdiv": "ziggurat_cdiv", "zg.next_power_of_2": "ziggurat_next_power_of_2",
    "builtins.min": "ziggurat_min", "builtins.max": "ziggurat_max",
    "zg.minimum": "ziggurat_min", "zg.maximum": "ziggurat_max",
}  # fmt: skip
_IDENTITY: Final = ("builtins.int",)


def c_name(name: str) -> str:
    """A name as C can have it."""
    text = re.sub(r"\W+", "_", name, flags=re.ASCII)
    text = (text if text == name else text.rstrip("_")) or "x"
    return f"{text}_" if text in _RESERVED or text[0].isdecimal() else text


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
    runs, and not compiled in, are parameters of the function in C.

    Raises `BuildError` for a function that has no such form, and the errors of a function that has no model.
    """
    node = _definition(fn)
    original = ast.unparse(node.body) if isinstance(node, ast.Lambda) else f"{node.name} of line {node.lineno}"
    source, namespace, captures, name = _source_of(fn, node)
    file = f"<grid {hash(source) & 0xFFFFFFFF:x}>"
    register(file, source)
    exec(compile(source, file, "exec", dont_inherit=True), namespace)
    read = function(namespace[name])
    model = read.model
    writer = _Writer(arguments, is_run_time, read.callees)
    own = {key: value for key, value in captures.items() if arguments.get(key) != value}
    shared = [key for key in captures if key not in own]
    (block,) = cast(core.Func, model).body.blocks
    writer.names = {block.parameters[0]: _META}
    for parameter, key in zip(block.parameters[1:], captures, strict=True):
        own_name = c_name(f"{key}_" if key in arguments else key)
        writer.names[parameter] = writer.argument(key) if key in shared else own_name
    writer.variables = _variables(model)
    lines = writer.block(block)
    renamed = {f"{key}_" if key in arguments else key: value for key, value in own.items()}
    return Grid(original, lines, tuple(dict.fromkeys(writer.takes)), renamed)


_META: Final = "meta"  # Stands for the parameter of the function, which C does not have.


def _definition(fn: Any) -> ast.Lambda | ast.FunctionDef:
    """The syntax of a function. Raises `BuildError` where its source cannot be told."""
    if not isinstance(fn, types.FunctionType):
        raise BuildError(f"the grid must be a function with a source; got {type(fn).__name__}")
    code = fn.__code__
    text = "".join(linecache.getlines(code.co_filename, fn.__globals__))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        raise BuildError(f"the source of the grid's function '{fn.__name__}' cannot be read") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno <= code.co_firstlineno:
            last = node.end_lineno or node.lineno
            if last >= code.co_firstlineno and _is_code_of(node, code):
                return node
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min(node.lineno, *(decorator.lineno for decorator in node.decorator_list), node.lineno)
            if first == code.co_firstlineno:
                return node
    raise BuildError(f"the source of the grid's function '{fn.__name__}' cannot be found in {code.co_filename}")


def _is_code_of(node: ast.Lambda, code: types.CodeType) -> bool:
    """Whether a lambda has this code, captured variables apart."""
    compiled = compile(ast.Expression(node), "", "eval").co_consts[0]
    names = {*compiled.co_names, *compiled.co_freevars}
    return (
        compiled.co_varnames == code.co_varnames
        and names == {*code.co_names, *code.co_freevars}
        and compiled.co_consts == code.co_consts
    )


def _source_of(fn: Any, node: ast.Lambda | ast.FunctionDef) -> tuple[str, dict[str, Any], dict[str, int], str]:
    """The text of a function that takes captured numbers as parameters, its namespace, these numbers, its name."""
    outer = {**fn.__globals__, **_closure(fn)}
    if len(node.args.args) != 1:
        raise BuildError("the function of a grid must have one parameter, the arguments by name")
    outside = _Captures(outer, node.args.args[0].arg, {*_assigned(node)})
    name = "grid" if isinstance(node, ast.Lambda) else node.name
    own_body: list[ast.stmt] = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
    statements: list[ast.stmt] = [outside.visit(statement) for statement in own_body]
    own = [node.args.args[0], *(ast.arg(key) for key in outside.numbers)]
    parameters = ast.arguments([], own, None, [], [], None, [])
    definition = ast.FunctionDef(name, parameters, statements, [], None, None)
    definition.type_params = []  # type: ignore[attr-defined]
    source = ast.unparse(ast.fix_missing_locations(ast.Module([definition], [])))
    # A plain function that it calls is read as well.
    helpers = {
        key: function(value)
        for key, value in outer.items()
        if isinstance(value, types.FunctionType) and key in outside.callees and not _is_language(value)
    }
    return source, {**outer, **helpers}, outside.numbers, name


def _is_language(fn: types.FunctionType) -> bool:
    return fn.__module__.startswith("ziggurat.")


def _closure(fn: types.FunctionType) -> dict[str, Any]:
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if _has_contents(cell)}


def _has_contents(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _assigned(node: ast.AST) -> list[str]:
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]


class _Captures(ast.NodeTransformer):
    """Replaces what a function captures by parameters: names of numbers, and numbers of captured objects, such as
    `x.shape[0]` and `x.numel()`."""

    def __init__(self, outer: Mapping[str, Any], meta: str, assigned: set[str]) -> None:
        self.outer, self.meta, self.assigned = outer, meta, assigned
        self.numbers: dict[str, int] = {}
        self.callees: set[str] = set()

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
            value = self._number(node)
            if value is not None:
                text = "".join(c if c.isalnum() else "_" for c in ast.unparse(node)).strip("_")
                text = re.sub("__+", "_", text)
                while self.numbers.get(text, value) != value:  # Of another expression with such a name.
                    text += "_"
                self.numbers[text] = value
                return ast.Name(text, ast.Load())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            self.callees.add(node.func.id)
        return super().visit(node)

    def _number(self, node: ast.expr) -> int | None:
        """The value of a captured number, or of a number of a captured object."""
        root: ast.expr = node
        while not isinstance(root, ast.Name):
            if isinstance(root, ast.Call):
                is_plain = isinstance(root.func, ast.Attribute) and not root.keywords
                if not is_plain or not all(isinstance(argument, ast.Constant) for argument in root.args):
                    return None
                root = root.func
            elif isinstance(root, ast.Attribute | ast.Subscript):
                if isinstance(root, ast.Subscript) and not isinstance(root.slice, ast.Constant | ast.UnaryOp):
                    return None
                root = root.value
            else:
                return None
        owner = self.outer.get(root.id)
        is_local = root.id in (self.meta, *self.assigned) or hasattr(builtins, root.id)
        if is_local or root.id not in self.outer or (node is not root and isinstance(owner, types.ModuleType)):
            return None
        try:
            value = eval(compile(ast.Expression(node), "", "eval"), dict(self.outer))
        except Exception:  # Code of the user, which the grid itself runs as well.
            return None
        return int(value) if isinstance(value, int) else None


class _Writer:
    """Writes blocks of a Python code model as C. `names` has the expressions of values; tuples are Python's."""

    def __init__(
        self, arguments: Mapping[str, Any], is_run_time: Callable[[str], bool], callees: Mapping[str, Function]
    ) -> None:
        self.arguments, self.is_run_time, self.callees = arguments, is_run_time, callees
        self.names: dict[Value, Any] = {}
        self.variables: set[Value] = set()  # Variables that get other values later.
        self.takes: list[str] = []
        self.count = 0

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
        return lines

    def sizes(self, value: Any) -> list[str]:
        parts: list[Any] = [*cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else [value]
        if not 1 <= len(parts) <= 3 or not all(isinstance(part, str) for part in parts):
            raise BuildError("the function of a grid must give one to three integers")
        three = (*parts, "1", "1")[:3]
        return [f"grid[{axis}] = (uint32_t)({part});" for axis, part in enumerate(three)] + ["return;"]

    def variable(self, initial: Any = None) -> tuple[str, list[str]]:
        self.count += 1
        name = f"v{self.count}"
        return name, [f"int64_t {name} = {initial or 0};"]

    def statement(self, op: Op) -> list[str]:
        if isinstance(op, core.Var):
            initial = None if op.initial is None else self.names[op.initial]
            if op.result not in self.variables or isinstance(initial, tuple) or initial is _META:
                self.names[op.result] = initial
                return []
            self.names[op.result], lines = self.variable(initial)
            return lines
        if isinstance(op, core.VarStore):
            return [f"{self.names[op.var]} = {self.text(op.value)};"]
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
        if isinstance(op, core.VarLoad) and op.var in self.variables and self.names[op.var] is not _META:
            self.names[op.result], lines = self.variable(self.names[op.var])  # The variable may change before its use.
            return lines
        if isinstance(op, core.FuncCall):
            return self.inlined(op)
        self.names[op.result] = self.expression(op)
        return []

    def inlined(self, op: core.FuncCall) -> list[str]:
        """The statements of a function that is called, which returns at its end alone."""
        callee = self.callees[op.callee]
        (block,) = cast(core.Func, callee.model).body.blocks
        *statements, last = block.ops
        returns = [inner for inner in callee.model.walk() if isinstance(inner, core.Return)]
        end = returns[-1]
        if len(block.parameters) != len(op.arguments) or op.keywords or returns != [last]:
            raise BuildError(f"the grid's function calls '{op.callee}', which must return at its end alone")
        self.variables |= _variables(callee.model)
        self.names |= dict(zip(block.parameters, (self.names[value] for value in op.arguments), strict=True))
        outer, self.callees = self.callees, callee.callees
        lines = [line for inner in statements for line in self.statement(inner)]
        self.callees = outer
        self.names[op.result] = self.names[end.values[0]] if end.values else None
        return lines

    def value_of(self, body: Body, name: str) -> list[str]:
        """The statements that give a variable the value of a body."""
        return self.block(body.entry, lambda value: [f"{name} = {value};"])

    def text(self, value: Value) -> str:
        text = self.names[value]
        if not isinstance(text, str) or text is _META:
            raise BuildError("the grid must be computed of integers")
        return text

    def expression(self, op: Op) -> Any:
        if isinstance(op, core.ConstantOp):
            return str(int(op.value)) if isinstance(op.value, int) else (op.value,)
        if isinstance(op, core.VarLoad):
            return self.names[op.var]
        if isinstance(op, py.Pack):
            return tuple(self.names[value] for value in op.components)
        if isinstance(op, py.Subscript):
            index = self.names[op.index]
            if self.names[op.value] is _META:
                return self.argument(index[0] if isinstance(index, tuple) else index)
            if isinstance(self.names[op.value], tuple) and isinstance(index, str) and index.isdecimal():
                return self.names[op.value][int(index)]
        if isinstance(op, py.BinaryExpression):
            left, right = self.text(op.lhs), self.text(op.rhs)
            if type(op) in _INFIX:
                return f"({left} {_INFIX[type(op)]} {right})"
            if isinstance(op, py.FloorDiv | py.Mod):
                return f"ziggurat_{'div' if isinstance(op, py.FloorDiv) else 'mod'}({left}, {right})"
        if isinstance(op, py.UnaryExpression) and type(op) in _PREFIX:
            return f"({_PREFIX[type(op)]}{self.text(op.operand)})"
        if isinstance(op, py.Invoke) and not op.keywords and not op.starred:
            operands = [self.text(value) for value in op.arguments]
            if op.callee in _IDENTITY and len(operands) == 1:
                return operands[0]
            name = _CALLS.get(op.callee)
            if name is not None and operands:
                if name.endswith(("min", "max")) and len(operands) > 2:  # They take two.
                    operands = [operands[0], _nested(name, operands[1:])]
                return f"{name}({', '.join(operands)})"
        raise BuildError(f"the grid's function has {op.NAME} {getattr(op, 'callee', '')}, which has no form in C")


def _variables(model: Op) -> set[Value]:
    return {op.var for op in model.walk() if isinstance(op, core.VarStore)}


def _nested(name: str, operands: Sequence[str]) -> str:
    return operands[0] if len(operands) == 1 else f"{name}({operands[0]}, {_nested(name, operands[1:])})"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def attempted(fn: Any, arguments: Mapping[str, Any], is_run_time: Callable[[str], bool]) -> tuple[Grid | None, str]:
    """The function of a grid in C, or None and the reason why it has no such form."""
    try:
        return grid_in_c(fn, arguments, is_run_time), ""
    except (ZigguratError, SyntaxError) as error:
        return None, getattr(error, "summary", str(error))
