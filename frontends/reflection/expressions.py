"""Expressions as ops: each gives one value and has the location of its text."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NoReturn

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import (
    BuildError,
    KernelNameError,
    KernelSyntaxError,
    KernelTypeError,
    ZigguratError,
    warn,
)
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Body, Value
from ziggurat.codemodel.types import pyobject
from ziggurat.frontends.bodies import symbol_of
from ziggurat.frontends.language.constants import as_constant, unwrapped
from ziggurat.frontends.language.function import Default, Function, constexpr, usable
from ziggurat.frontends.language.languages import Spelling
from ziggurat.frontends.language.phrases import BY_INDEX, UNASSIGNED
from ziggurat.frontends.language.signature import Call, Signature
from ziggurat.frontends.python.reader import OPS, Reader
from ziggurat.frontends.python.source import Source
from ziggurat.frontends.reflection.names import BUILTINS, DYNAMIC, Names, builtin_name, is_record
from ziggurat.frontends.reflection.plain import PlainPython, plain_body

# The classes that a model holds by the names of the builtins, as arguments of `isinstance`.
_CLASSES = (bool, int, float, str, tuple)


@attrs.frozen
class OuterObjects:
    """The functions and the other objects of Python from outside of a function, by the symbols in its model."""

    callees: dict[str, Function] = attrs.field(factory=dict[str, Function])
    objects: dict[str, Any] = attrs.field(factory=dict[str, Any])


class Expressions(Reader):
    """Reflects expressions into `builder`. `variables` are the variables declared so far.

    `errors` are the errors found so far. Code inside of branches (`choices` is not 0) may never run, so an error there
    becomes an op and is added to `deferred` instead.
    """

    def __init__(self, names: Names, source: Source, builder: Builder, outer: OuterObjects) -> None:
        self.names = names
        self.language = names.language
        super().__init__(source, builder)
        self.outer = outer
        self.variables: dict[str, Value] = {}
        self.errors: list[ZigguratError] = []
        self.deferred: list[ZigguratError] = []
        # The parts in plain Python, and whether one stands where it always runs.
        self.plain: list[py.Plain] = []
        self.is_refused = False
        self.choices = 0
        # The number of expressions around this one that may not be computed.
        self.parts = 0
        # The iterable of the innermost `for`, the only place of a range; or those that a condition chooses from.
        self.heads: tuple[ast.expr | None, ...] = ()

    def report(self, error: ZigguratError, node: Any) -> Value:
        """Note an error. Returns a value for `node`, so that the rest of the function can be read."""
        if isinstance(error, PlainPython):
            self.is_refused |= not self.choices
            op = py.Plain(error.construct, plain_body(node, self))
            self.plain.append(op)
            return self.builder.add(op, error.location)
        if not self.choices:
            self.errors.append(error)
            return self.constant(None, node)
        self.deferred.append(error)
        error.say_in(self.language.words)
        return self.builder.add(py.Error.of(error), error.location)

    def generic_visit(self, node: ast.AST) -> NoReturn:
        """Leave a construct that kernels do not have to plain Python."""
        raise self.unsupported(node)

    def unsupported(self, node: ast.AST, form: str | None = None) -> PlainPython:
        """The error that says what is plain Python: a class of nodes, or a form of one."""
        return PlainPython(form or type(node).__name__, self.source.span(node))

    def attempt(self, node: ast.expr, fill: Callable[[], Value] | None = None) -> Value:
        """The value of an expression, or the one that `fill` returns for it. After an error it is any value."""
        try:
            return self.expression(node) if fill is None else fill()
        except BuildError:
            raise
        except ZigguratError as error:
            return self.report(error, node)

    def choice(self, node: ast.expr, fill: Callable[[], Value] | None = None) -> Body:
        """A body that may never run. It yields the value of `node`, or the one that `fill` returns for it."""
        self.choices += 1
        body = self.body(node, lambda: self.attempt(node, fill))
        self.choices -= 1
        return body

    # Names and literals.

    def visit_Name(self, node: ast.Name) -> Value:
        if node in self.names.early:
            return self.outer_value(self.names.outer(node), node)
        variable = self.variables.get(node.id)
        if variable is not None:
            return self.add(core.VarLoad(variable), node)
        if node.id in self.names.locals:
            if not self.errors and not self.is_refused:
                raise KernelNameError(
                    UNASSIGNED(name=node.id),
                    self.source.span(node),
                    f"assign '{node.id}' first",
                )
            # An unsupported statement binds the name, such as a del, which is reported already: use any value.
            return self.constant(None, node)
        return self.outer_value(self.names.outer(node), node)

    def outer_value(self, value: Any, node: Any) -> Value:
        """An object from outside as a value: a constant, a function, a tuple of these, or an object of Python."""
        value = unwrapped(value)
        if isinstance(value, Function):
            return self.add(core.FuncRef(self.symbol(value), pyobject), node)
        is_object = is_record(value)
        good, constant = (False, None) if is_object else as_constant(value)
        if good:
            return self.constant(constant, node)
        if is_object or not usable(value):
            return self.host_object(value, node)
        return self.add(py.Pack(tuple([self.outer_value(item, node) for item in value])), node)

    def host_object(self, value: Any, node: ast.AST) -> Value:
        """An object of Python that a model cannot hold, by the name that the function gives it."""
        name = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else type(value).__name__
        return self.add(py.Outer(symbol_of(self.outer.objects, name, value)), node)

    def symbol(self, function: Function) -> str:
        """The symbol of a function that this one refers to."""
        return symbol_of(self.outer.callees, function.fn.__qualname__, function)

    def visit_Constant(self, node: ast.Constant) -> Value:
        value: Any = node.value
        if value is not None and not isinstance(value, (bool, int, float, str)):
            raise self.unsupported(node, "literal")
        return self.constant(value, node)

    def visit_Attribute(self, node: ast.Attribute) -> Value:
        value = self.names.static(node)
        if value is not DYNAMIC:
            return self.outer_value(value, node)
        return self.add(py.Attribute(self.expression(node.value), node.attr), node)

    def visit_Tuple(self, node: ast.Tuple | ast.List) -> Value:
        """A tuple. A list display is one as well, because nothing in a kernel can change it."""
        return self.add(py.Pack(tuple([self.expression(item) for item in node.elts])), node)

    visit_List = visit_Tuple

    def visit_ListComp(self, node: ast.ListComp) -> Value:
        """A list comprehension is unrolled over the items of a tuple or of a range. Its variables are its own."""
        if len(node.generators) != 1 or node.generators[0].is_async:
            raise self.unsupported(node)
        (generator,) = node.generators
        self.heads = (generator.iter,)
        iterable = self.part(generator.iter)
        around, local = dict(self.variables), self.names.locals

        def bound(fill: Callable[[], Value]) -> Body:
            def fill_bound() -> Value:
                self.choices += 1
                self.assign(generator.target, self.builder.parameters[0], generator.target)
                value = fill()
                self.choices -= 1
                return value

            names = {name.id for name in ast.walk(generator.target) if isinstance(name, ast.Name)}
            self.names.locals = local | names
            for name in names:
                self.variables.pop(name, None)
            try:
                return self.body(node, fill_bound, (pyobject,))
            finally:
                self.names.locals, self.variables = local, dict(around)

        def condition() -> Value:
            if not generator.ifs:
                return self.constant(True, node)
            return self.expression(ast.copy_location(_all_of(generator.ifs), node))

        return self.add(py.Comprehension(iterable, bound(condition), bound(lambda: self.expression(node.elt))), node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Value:
        """`(name := value)`: only where the expression is always computed."""
        if self.parts:
            raise self.unsupported(node)
        value = self.expression(node.value)
        self.assign(node.target, value, node)
        return self.expression(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))

    def visit_Subscript(self, node: ast.Subscript) -> Value:
        index = node.slice
        items = index.elts if isinstance(index, ast.Tuple) else [index]
        new_axes = [self.new_axis(item) for item in items]
        if None not in new_axes:
            value = self.expression(node.value)
            return self.add(py.Subscript(value, self.constant(tuple(new_axes), index)), node)
        if isinstance(index, ast.Slice):
            value = self.expression(node.value)
            ends = [self.constant(None, index) if end is None else self.expression(end) for end in _ends(index)]
            return self.add(py.Subscript(value, self.add(py.Invoke(tuple(ends), "builtins.slice"), index)), node)
        for item in items:
            if isinstance(item, ast.Slice):
                raise self.unsupported(item)
        if isinstance(index, ast.Tuple):
            raise self.unsupported(node, "many indices")
        value = self.expression(node.value)
        return self.add(py.Subscript(value, self.expression(index)), node)

    def new_axis(self, item: ast.expr) -> str | None:
        """The text of an index of a tensor: "None" for a new axis, ":" for one that is kept; None for another one."""
        if isinstance(item, ast.Slice) and all(end is None or _is_none(end) for end in _ends(item)):
            return ":"
        return "None" if isinstance(item, ast.Constant) and item.value in (None, ...) else None

    # Operators.

    def visit_BinOp(self, node: ast.BinOp) -> Value:
        self.operator(node.op, node)
        return super().visit_BinOp(node)

    def operator(self, operator: ast.operator, node: ast.AST) -> type[py.BinaryExpression]:
        """The op of the binary operator of `node`."""
        if isinstance(operator, ast.MatMult):
            raise self.unsupported(node, "matmul")
        return OPS[type(operator)]

    def visit_Compare(self, node: ast.Compare) -> Value:
        """A comparison. A chain is a `cand`; all its operands but the last are evaluated once, before it."""
        first = self.expression(node.left)
        ops = [OPS[type(op)] for op in node.ops]
        if len(ops) == 1:
            return self.add(ops[0](first, self.expression(node.comparators[0])), node)
        values = [first, *(self.expression(part) for part in node.comparators[:-1])]
        last = node.comparators[-1]

        def pair(index: int) -> Value:
            right = values[index + 1] if index + 1 < len(values) else self.expression(last)
            return self.add(ops[index](values[index], right), node)

        parts = [self.body(node, lambda: pair(0))]
        parts += [self.choice(node, lambda index=index: pair(index)) for index in range(1, len(ops))]
        return self.add(py.CondAnd(tuple(parts)), node)

    def operands(self, *nodes: ast.expr) -> list[Body]:
        """The bodies of operands of which all but the first may not be computed."""
        first, *others = nodes
        parts = [self.part(first)]
        self.parts += 1
        parts += map(self.choice, others)
        self.parts -= 1
        return parts

    def visit_BoolOp(self, node: ast.BoolOp) -> Value:
        op = py.CondAnd if isinstance(node.op, ast.And) else py.CondOr
        return self.add(op(tuple(self.operands(*node.values))), node)

    def visit_IfExp(self, node: ast.IfExp) -> Value:
        condition = self.expression(node.test)
        self.parts += 1
        bodies = self.choice(node.body), self.choice(node.orelse)
        self.parts -= 1
        return self.add(py.CondExpression(condition, *bodies), node)

    # Calls.

    def visit_Call(self, node: ast.Call) -> Value:
        callee = node.func
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.unsupported(keyword, "keyword arguments")
        target = unwrapped(self.names.static(callee))
        if target is not DYNAMIC:
            if is_range(target) and node not in self.heads:
                raise self.unsupported(node, "range")
            return self.call_object(node, target)
        if isinstance(callee, ast.IfExp) and node in self.heads:
            return self.choice_of_ranges(node, callee)
        if isinstance(callee, ast.Attribute):
            receiver = self.expression(callee.value)
            return self.invoke(node, f".{callee.attr}", receiver)
        if isinstance(callee, ast.Subscript) and isinstance(self.names.static(callee.value), Function):
            raise self.unsupported(node, "launch")
        return self.call_value(node, self.expression(callee))

    def choice_of_ranges(self, node: ast.Call, callee: ast.IfExp) -> Value:
        """`for i in (tl.static_range if n < 8 else range)(n)` loops over one of two ranges."""
        calls = [
            ast.copy_location(ast.Call(branch, node.args, node.keywords), node)
            for branch in (callee.body, callee.orelse)
        ]
        self.heads = tuple(calls)
        return self.expression(ast.copy_location(ast.IfExp(callee.test, *calls), node))

    def call_value(self, node: ast.Call, callee: Value) -> Value:
        arguments, keywords, starred = self.arguments(node)
        return self.add(py.Call(callee, arguments, keywords=keywords, starred=starred), node)

    def call_object(self, node: ast.Call, target: Any) -> Value:
        """A call of an object from outside of the function."""
        if isinstance(target, Call | Spelling):
            self.check_call(target.signature, node)
            return self.invoke(node, f"{target.signature.prefix}.{target.signature.name}")
        if isinstance(target, Function):
            if any(isinstance(argument, ast.Starred) for argument in node.args) or target.is_variadic:
                return self.call_value(node, self.outer_value(target, node.func))
            return self.call_function(node, target)
        name = builtin_name(target)
        if name not in BUILTINS:
            return self.call_host(node, target)
        self.check_builtin(name, node)
        if name == "isinstance":
            value = self.expression(node.args[0])
            return self.add(py.Invoke((value, self.classes(node.args[1])), f"builtins.{name}"), node)
        return self.invoke(node, f"builtins.{name}")

    def call_host(self, node: ast.Call, target: Any) -> Value:
        """A call of an object of Python: a class, or a function on constants.

        Triton takes functions from modules, and as global variables if they are under `@tl.constexpr`.
        """
        if target is constexpr or getattr(target, "ziggurat_constant", False) is True:
            if len(node.args) == 1:
                return self.expression(node.args[0])  # `tl.constexpr(16)`
        elif (
            isinstance(node.func, ast.Name)
            and isinstance(self.names.static(node.func), types.FunctionType)
            and not target.__module__.startswith("ziggurat.")
        ):
            raise self.not_callable(node, target, None)
        if builtin_name(target) in _INSTEAD:
            raise self.not_callable(node, target, builtin_name(target))
        return self.call_value(node, self.outer_value(target, node.func))

    def check_call(self, signature: Signature, node: ast.Call) -> None:
        """Raise `KernelTypeError` when the arguments do not fit a call of the language."""
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            return  # The number of the arguments is not known here.
        signature.bind(node.args, *self.keywords(node))

    def keywords(self, node: ast.Call) -> tuple[dict[str, ast.expr], Callable[[str | None], Location]]:
        """The keyword arguments of a call, and the place of one of them by its name, or of the call for None."""
        nodes = {keyword.arg or "": keyword for keyword in self.written_keywords(node)}
        values = {name: keyword.value for name, keyword in nodes.items()}
        return values, lambda name: self.source.span(node if name is None else nodes[name])

    def written_keywords(self, node: ast.Call) -> list[ast.keyword]:
        """The keyword arguments. Those by which functions of Triton's hand on their compiler say nothing here."""
        return [k for k in node.keywords if k.arg not in ("_semantic", "_generator")]

    def check_builtin(self, name: str, node: ast.Call) -> None:
        """Raise `KernelTypeError` when the arguments do not fit a builtin."""
        if node.keywords and name == "range":
            ignored = ", ".join(keyword.arg or "" for keyword in node.keywords)
            warn(f"range() ignores '{ignored}', as Triton does: tl.range takes it", self.source.span(node))
        else:
            own = ("sep", "end") if name == "print" else ()
            for keyword in node.keywords:
                if keyword.arg not in own:
                    what = f"'{keyword.arg}'" if own else "keyword arguments"
                    hint = "'sep' and 'end' are taken" if own else "pass it by position"
                    what = f"{name}() takes no {what} in a kernel"
                    raise KernelTypeError(what, self.source.span(keyword), hint)
        least, most = BUILTINS[name]
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            return
        if not least <= len(node.args) <= most:
            count = str(least) if least == most else f"{least} to {most}" if most < inf else f"at least {least}"
            plural = "" if count.endswith("1") else "s"
            what = f"{name}() takes {count} argument{plural}; got {len(node.args)}"
            raise KernelTypeError(what, self.source.span(node))

    def invoke(self, node: ast.Call, callee: str, *receiver: Value) -> Value:
        arguments, keywords, starred = self.arguments(node)
        starred = tuple(index + len(receiver) for index in starred)
        return self.add(py.Invoke((*receiver, *arguments), callee, keywords=keywords, starred=starred), node)

    def arguments(self, node: ast.Call) -> tuple[tuple[Value, ...], tuple[str, ...], tuple[int, ...]]:
        """The arguments of a call, the names of the keyword arguments, which come last, and the indices of `*t`."""
        ignored = self.names.static(node.func) is range
        keywords = [] if ignored else self.written_keywords(node)
        starred = tuple(index for index, argument in enumerate(node.args) if isinstance(argument, ast.Starred))
        nodes = [a.value if isinstance(a, ast.Starred) else a for a in node.args]
        values = [self.expression(argument) for argument in (*nodes, *(k.value for k in keywords))]
        return tuple(values), tuple(keyword.arg or "" for keyword in keywords), starred

    def call_function(self, node: ast.Call, function: Function) -> Value:
        """A call of a user's function. Arguments are evaluated as written and passed in the order of the parameters."""
        bound = function.bind(node.args, *self.keywords(node))
        nodes = (*node.args, *(k.value for k in self.written_keywords(node)))
        values = {id(item): self.expression(item) for item in nodes}
        arguments = [
            self.outer_value(item.value, node) if isinstance(item, Default) else values[id(item)]
            for item in bound.values()
        ]
        return self.add(core.FuncCall(tuple(arguments), self.symbol(function), type=pyobject), node)

    def classes(self, node: ast.expr) -> Value:
        """The second argument of `isinstance`: classes of Python's numbers and texts as the names of the builtins."""
        items: Sequence[ast.expr] = node.elts if isinstance(node, ast.Tuple) else [node]
        values = [self.names.static(item) for item in items]
        if not all(any(value is cls for cls in _CLASSES) for value in values):
            return self.expression(node)
        names = tuple(f"builtins.{value.__name__}" for value in values)
        return self.constant(names if isinstance(node, ast.Tuple) else names[0], node)

    def not_callable(self, node: ast.Call, target: Any, builtin: str | None) -> KernelSyntaxError:
        """The error for a call of an object that a kernel cannot call."""
        text = ast.unparse(node.func)
        last = text.rpartition(".")[2]
        hint: str = f"did you mean {self.names.prefix()}.{last}? " if last in self.language.calls else ""
        if builtin is not None:
            what = f"the builtin '{text}'"
            hint = hint or _INSTEAD.get(builtin, "")
            hint = hint or f"of Python's builtins a kernel can call {', '.join(BUILTINS)}"
        elif isinstance(target, types.FunctionType) and not (target.__module__ or "").startswith("ziggurat"):
            what = f"'{text}', which is a plain Python function,"
            name = target.__name__ if target.__name__.isidentifier() else "what it does as a def"
            hint = say("{}decorate {} with {function}", hint, name)
        else:
            what = f"'{text}'"
            if target is constexpr:
                hint = "leave it out: numbers, strings and dtypes in a kernel are constants already"
            hint = hint or say("{}; compute known values outside of the kernel, and use them by their names", _CALLABLE)
        return KernelSyntaxError(f"a kernel cannot call {what}".rstrip(","), self.source.span(node.func), hint)


def is_range(target: Any) -> bool:
    """True of `range`, and of `range` and `static_range` of the language."""
    return target is range or (
        isinstance(target, Call | Spelling) and target.signature.name in ("range", "static_range")
    )


def _all_of(conditions: list[ast.expr]) -> ast.expr:
    return conditions[0] if len(conditions) == 1 else ast.BoolOp(ast.And(), conditions)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _ends(slice_: ast.Slice) -> tuple[ast.expr | None, ...]:
    return slice_.lower, slice_.upper, slice_.step


# Hints for the builtins that loops in Python run over.
_BY_INDEX = BY_INDEX()
_INSTEAD = {"zip": _BY_INDEX, "enumerate": _BY_INDEX, "reversed": f"{_BY_INDEX.removesuffix('a[i]')}a[len(a) - 1 - i]"}
_CALLABLE = say("a kernel calls the calls of the language, functions decorated with {function}, and some builtins")
