"""Mistakes in the functions of passes and emitters: small edits of a function's code, in memory.

    functions = called(lambda: assign(model, options))
    mutants = mutants_of(functions)
    with mutants[7].active(): ...

An edit is of the kind that a person makes: an operand swapped, a number off by one, a condition turned around, a
statement left out, the instruction beside the right one, the entry of a table that belongs to another key.
"""

from __future__ import annotations
import __future__

import ast
import copy
import gc
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import attrs

_PACKAGES = ("ziggurat.transforms.", "ziggurat.backend.ptx.", "ziggurat.backend.cpu.", "ziggurat.backend.llvm.")
_COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATIONS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
# Instructions of LLVM text and PTX, and those beside them.
_INSTRUCTIONS = {
    "add": "sub", "sub": "add", "mul": "add", "fadd": "fsub", "fsub": "fadd", "fmul": "fadd", "fdiv": "fmul",
    "and": "or", "or": "and", "xor": "or", "shl": "lshr", "lshr": "shl", "ashr": "lshr", "sext": "zext",
    "zext": "sext", "slt": "sle", "sle": "slt", "sgt": "sge", "ult": "ule", "ugt": "uge", "eq": "ne", "ne": "eq",
    "olt": "ole", "ogt": "oge", "oeq": "une", "smax": "smin", "smin": "smax", "umax": "umin", "umin": "umax",
    "maxnum": "minnum", "minnum": "maxnum", "maximum": "minimum", "sdiv": "udiv", "udiv": "sdiv", "srem": "urem",
    "bfly": "down", "up": "down", "ex2": "lg2", "sitofp": "uitofp", "uitofp": "sitofp", "row": "col", "col": "row",
    "trunc": "zext", "rn": "rz", "ftz": "sat", "fma": "mul",
}  # fmt: skip


@attrs.frozen(eq=False)
class Mutant:
    """A mistake: `what` it is, and how it is put in and taken out again."""

    what: str
    insert: Callable[[], Callable[[], None]] = attrs.field(repr=False)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within this context, the mistake is there."""
        restore = self.insert()
        try:
            yield
        finally:
            restore()


def called(action: Callable[[], object]) -> list[FunctionType]:
    """The functions of passes and emitters that an action calls."""
    codes: set[CodeType] = set()

    def see(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith(_PACKAGES):
            codes.add(frame.f_code)

    sys.setprofile(see)
    try:
        action()
    finally:
        sys.setprofile(None)
    functions = [item for item in gc.get_objects() if type(item) is FunctionType and item.__code__ in codes]
    return sorted(
        {function.__code__: function for function in functions}.values(),
        key=lambda f: (f.__module__, f.__code__.co_firstlineno, f.__qualname__),
    )


def mutants_of(functions: Sequence[FunctionType]) -> list[Mutant]:
    """The mistakes in functions, and in the tables of their modules."""
    mutants = [mutant for function in functions for mutant in _of_function(function)]
    modules = sorted({function.__module__ for function in functions})
    return [*mutants, *(mutant for name in modules for mutant in _of_tables(name))]


def _of_function(function: FunctionType) -> Iterator[Mutant]:
    if function.__code__.co_freevars or function.__name__.startswith("__"):
        return
    try:
        source = textwrap.dedent(inspect.getsource(function))
        definition = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError):
        return
    if not isinstance(definition, ast.FunctionDef):
        return
    definition.decorator_list = []
    for number, (node, what, change) in enumerate(_sites(definition)):
        line = function.__code__.co_firstlineno + node.lineno - 1
        place = f"{function.__module__.removeprefix('ziggurat.')}:{line} {function.__name__}"
        yield Mutant(f"{place}: {what}", lambda number=number: _put(function, definition, number))


def _put(function: FunctionType, definition: ast.FunctionDef, number: int) -> Callable[[], None]:
    """Give a function the code with one edit; what takes it out again."""
    wrong, old = copy.deepcopy(definition), function.__code__
    for at, (_, _, change) in enumerate(_sites(wrong)):
        if at == number:
            change()
            break
    tree = ast.fix_missing_locations(ast.Module([wrong], []))
    flags = __future__.annotations.compiler_flag
    code = compile(tree, inspect.getfile(function), "exec", flags, dont_inherit=True)
    function.__code__ = next(
        constant
        for constant in code.co_consts
        if isinstance(constant, CodeType) and constant.co_name == definition.name
    )

    def restore() -> None:
        function.__code__ = old

    return restore


def _sites(definition: ast.FunctionDef) -> Iterator[tuple[Any, str, Callable[[], None]]]:
    """The edits that a function allows: the node, what the edit is, and the change of the node in place."""
    for parent in ast.walk(definition):
        for name, value in ast.iter_fields(parent):
            if name in ("annotation", "returns"):
                continue
            for at, node in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(node, ast.AST):
                    yield from _of_node(parent, name, at if isinstance(value, list) else None, node)


def _of_node(parent: Any, name: str, at: int | None, node: Any) -> Iterator[tuple[Any, str, Callable[[], None]]]:
    def replace(new: ast.AST) -> Callable[[], None]:
        def change() -> None:
            if at is None:
                setattr(parent, name, ast.copy_location(new, node))
            else:
                getattr(parent, name)[at] = ast.copy_location(new, node)

        return change

    text = ast.unparse(node)[:60] if not isinstance(node, ast.stmt) else ""
    match node:
        case ast.Compare(ops=[operator, *_]) if type(operator) in _COMPARISONS:
            new = ast.Compare(node.left, [_COMPARISONS[type(operator)](), *node.ops[1:]], node.comparators)
            yield node, f"another comparison than '{text}'", replace(new)
        case ast.BinOp(op=operator) if type(operator) in _OPERATIONS:
            yield (
                node,
                f"'{text}' with {type(_OPERATIONS[type(operator)]()).__name__}",
                replace(ast.BinOp(node.left, _OPERATIONS[type(operator)](), node.right)),
            )
            if isinstance(operator, ast.Sub | ast.FloorDiv | ast.Mod):
                yield node, f"swapped operands of '{text}'", replace(ast.BinOp(node.right, operator, node.left))
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, f"'{text}' with {type(other).__name__}", replace(ast.BoolOp(other, node.values))
        case ast.IfExp():
            yield node, f"the other branch of '{text}'", replace(ast.IfExp(node.test, node.orelse, node.body))
        case ast.Call(args=[first, second, *rest]) if not _is_plain(node):
            yield (
                node,
                f"swapped arguments of '{text}'",
                replace(ast.Call(node.func, [second, first, *rest], node.keywords)),
            )
        case ast.Constant(value=bool() as value):
            yield node, f"{not value} for {value}", replace(ast.Constant(not value))
        case ast.Constant(value=int() as value):
            yield node, f"{value + 1} for {value}", replace(ast.Constant(value + 1))
        case ast.Constant(value=str() as value) if not isinstance(parent, ast.Expr):
            for word in dict.fromkeys(re.findall(r"[a-z]+\d?", value)):
                if word in _INSTRUCTIONS:
                    new = re.sub(rf"(?<![A-Za-z]){word}(?![A-Za-z])", _INSTRUCTIONS[word], value)
                    if new != value:
                        yield node, f"{new.strip()!r} for {value.strip()!r}"[:100], replace(ast.Constant(new))
        case ast.Expr(value=ast.Call()):
            yield node, f"'{ast.unparse(node)[:60]}' left out", replace(ast.Pass())
        case ast.If():
            new = ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
            yield node, f"'if {ast.unparse(node.test)[:60]}' turned around", replace(new)
        case _:
            return


def _is_plain(call: ast.Call) -> bool:
    """Whether swapped arguments of a call would be an error in any case, or are not known."""
    names = ("isinstance", "issubclass", "getattr", "hasattr", "map", "filter")
    return getattr(call.func, "id", "") in names or any(isinstance(part, ast.Starred) for part in call.args[:2])


def _of_tables(module: str) -> Iterator[Mutant]:
    """Two neighbours of each table of a module, with their values swapped."""
    for name, table in vars(sys.modules[module]).items():
        if type(table) is not dict or name.startswith("__") or len(table) < 2:
            continue
        keys = list(table)
        for first, second in itertools.pairwise(keys):
            if type(table[first]) is type(table[second]) and table[first] != table[second]:
                words = " and ".join(getattr(key, "__name__", str(key)) for key in (first, second))
                what = f"{module.removeprefix('ziggurat.')} {name}: {words} swapped"
                yield Mutant(what, lambda table=table, a=first, b=second: _swap(table, a, b))


def _swap(table: dict[Any, Any], first: Any, second: Any) -> Callable[[], None]:
    table[first], table[second] = table[second], table[first]

    def restore() -> None:
        table[first], table[second] = table[second], table[first]

    return restore
