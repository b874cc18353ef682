"""Statements of Triton-C as ops of the Python code model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import lark

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelErrors, ZigguratError, source_order
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.types import PtrType, ScalarType, Type, VarType, pyobject
from ziggurat.frontends.triton_c.counted import Counted, counting_head
from ziggurat.frontends.triton_c.declared import Specifiers
from ziggurat.frontends.triton_c.expressions import CExpressions, Reported, Variable
from ziggurat.frontends.triton_c.grammar import Node
from ziggurat.frontends.triton_c.trees import without_groups

if TYPE_CHECKING:
    from ziggurat.frontends.triton_c.reader import CProgram, FunctionSource

_VARIABLE = VarType(pyobject)


class CStatements(CExpressions):
    """Reads the statements of a function."""

    def __init__(self, program: CProgram, builder: Builder, function: FunctionSource) -> None:
        super().__init__(program, builder)
        self.function = function
        # For each loop around the statement, a function that adds the ops between an iteration and the next.
        self.loops: list[Callable[[], None]] = []
        self.errors: list[ZigguratError] = []

    def function_body(self) -> Body:
        """The body of the function. Raises the error of the source, or `KernelErrors` if there are several."""
        function = self.function
        for constant in self.program.constants:
            self.attempt(lambda constant=constant: self.declaration(constant))
        for parameter, value in zip(function.parameters, self.builder.parameters, strict=True):
            self.attempt(lambda parameter=parameter, value=value: self.parameter(parameter, value), parameter)
        self.block(function.block)
        if not self.builder.terminated:
            self.add(core.Return(()), function.header)
        if self.errors:
            raise KernelErrors.of(sorted(self.errors, key=source_order))
        return self.builder.finish()

    def hidden(self, name: str, value: Value, node: Node) -> Value:
        """A variable that the source does not declare."""
        return self.add(core.Var(value, name=name, type=_VARIABLE), node)

    def attempt(self, read: Callable[[], None], *declares: Node) -> None:
        """Call `read`. If it raises, collect the error, and declare the names of `declares` without a value, so that
        later uses of them report no second error."""
        builder = self.builder
        try:
            read()
        except ZigguratError as error:
            self.errors += error.parts
        except Reported:
            pass
        else:
            return
        self.builder = builder
        for tree in declares:
            for name in _declared_names(tree):
                self.scopes[-1].setdefault(name, None)

    def parameter(self, node: Node, value: Value) -> None:
        """Declare a parameter."""
        declaration, type_, name = self.function.declaration(self, node)
        dims = node.children[3]
        shape = self.scalar if self.function.is_pointer(node) else self.shape(dims, node)
        argument = self.convert(value, type_, shape, f"'{name}'", node)
        if not self.function.is_kernel:
            argument = self.with_hint(argument, declaration, type_, node)
        self.declare(name, argument, type_, shape, declaration, node)

    def declare(
        self,
        name: str,
        value: Value | None,
        type_: ScalarType | PtrType,
        shape: Value | None,
        declaration: Specifiers,
        node: Node,
        *,
        is_readonly: bool = False,
    ) -> None:
        scope = self.scopes[-1]
        if scope.get(name) is not None:
            raise self.source.syntax(f"'{name}' is declared twice in this block", node, "use another name")
        pointer = isinstance(type_, PtrType)
        readonly = is_readonly or (pointer and bool(declaration.qualifiers & {"const", "__readonly"}))
        var = self.add(core.Var(value, name=name, type=_VARIABLE), node)
        constant = "const" in declaration.qualifiers and not pointer
        scope[name] = Variable(name, var, type_, shape, constant=constant, readonly=readonly)

    def with_hint(self, value: Value, declaration: Specifiers, type_: ScalarType | PtrType, node: Node) -> Value:
        """The value, with a `zg.multiple_of` for the divisibility that its declaration states."""
        by = max(declaration.aligned, declaration.multiple) if isinstance(type_, PtrType) else declaration.multiple
        return value if by == 1 else self.invoke("zg.multiple_of", node, value, self.constant(by, node))

    # Blocks.

    def body(self, node: Node, fill: Callable[[], Any], parameters: Sequence[Type] = ()) -> Body:
        """A body that `fill` adds ops to; see `Bodies.filled`. `node` gives the location of the yield."""
        return self.filled(lambda _: fill(), parameters, self.source.place(node))

    def statement(self, node: Node) -> None:
        """Read a statement. Skip it if it follows a `return`, `break` or `continue` in its block."""
        if not self.builder.terminated:
            _STATEMENTS[node.data](self, node)

    def block(self, node: Node) -> None:
        """Read the statements of a block, or one statement, in a scope of its own."""
        self.scopes.append({})
        for statement in node.children if node.data == "block" else [node]:
            declares = [statement] if statement.data == "declaration" else []
            self.attempt(lambda statement=statement: self.statement(statement), *declares)
        self.scopes.pop()

    def declaration(self, node: Node) -> None:
        specifiers, *variables = node.children
        declared_type = self.specifiers(specifiers)
        storage = declared_type.qualifiers & {"static", "extern"}
        if storage and "const" not in declared_type.qualifiers:
            raise self.source.syntax(
                f"a variable must not be {min(storage)}: a program keeps nothing for the next one",
                node,
                f"leave {min(storage)} out, or pass a pointer to memory",
            )
        for variable in variables:
            self.attempt(lambda variable=variable: self.variable(declared_type, variable), variable)

    def variable(self, declared_type: Specifiers, node: Node) -> None:
        stars, token, dims, *rest = node.children
        initial, attributes = rest[-1], rest[:-2]
        declared_type = self.with_attributes(declared_type, attributes)
        name = str(token)
        type_ = self.pointer_to(declared_type, stars, node)
        shape = self.shape(dims, node)
        if initial is None:
            self.declare(name, None, type_, shape, declared_type, node)
            return
        if initial.data == "braces":
            items = [item for item in initial.children if item is not None]
            if len(items) > 1 or (items and self.static_value(items[0]) != 0):
                raise self.source.syntax(
                    "an array is initialised by one value for all elements: float x[16] = 3.14; of braces only {0}",
                    initial,
                )
            value = self.constant(0, node)
        else:
            value = self.expression(initial)
        is_scalar = not dims.children
        const = "const" in declared_type.qualifiers and is_scalar and isinstance(type_, ScalarType)
        value = self.convert(value, type_, shape, f"'{name}'", node, const=const)
        value = self.with_hint(value, declared_type, type_, node)
        readonly = isinstance(type_, PtrType) and self.is_readonly(initial)
        self.declare(name, value, type_, shape, declared_type, node, is_readonly=readonly)

    def evaluate(self, node: Node) -> None:
        expression = without_groups(node.children[0])
        items = expression.children if expression.data == "commas" else [expression]
        for item in items:
            kind = without_groups(item)
            if kind.data == "cast" and self.specifiers(kind.children[1].children[0]).type is None:
                kind = kind.children[3]  # (void) x
            elif kind.data not in ("assign", "step", "step_after", "call"):
                raise self.source.syntax(
                    "a statement must have an effect; this one only computes a value", item, "assign the value: x = …"
                )
            self.expression(kind)

    def empty(self, node: Node) -> None:
        """`;` has no op."""

    # Control flow.

    def if_(self, node: Node) -> None:
        _, test, then, otherwise = node.children
        self.branch(self.truth(test), node, lambda: self.block(then), lambda: otherwise and self.block(otherwise))

    def branch(
        self, condition: Value, node: Node, then: Callable[[], object], otherwise: Callable[[], object] = lambda: None
    ) -> None:
        """Add an `if` whose bodies these functions add ops to."""
        self.add(py.If(condition, self.body(node, then), self.body(node, otherwise)), node)

    def while_(self, node: Node) -> None:
        _, test, suite = node.children
        condition, start = self.head(test, node)
        self.loop(node, suite, lambda body: py.While(condition, body), start)

    def head(self, test: Node | None, node: Node) -> tuple[Body, Callable[[], object]]:
        """The condition of a `while`, and a function that adds ops at the start of an iteration.

        The condition of a `while` of the model assigns nothing. A test that assigns leaves the loop from there.
        """
        if test is None or _assigns(test):
            return self.body(node, lambda: self.constant(True, node)), lambda: test and self.leave_unless(test)
        return self.body(test, lambda: self.truth(test)), lambda: None

    def leave_unless(self, test: Node) -> None:
        """Leave the loop if an expression is zero."""

        def leave() -> None:
            self.add(py.Break(), test)

        self.branch(self.truth(test), test, lambda: None, leave)

    def do(self, node: Node) -> None:
        """Read a `do` loop as a `while` whose condition is `first || test`: `first` holds only before the first
        iteration."""
        _, suite, _, test = node.children
        first = self.hidden("first", self.constant(True, node), node)

        def again() -> Value:
            if _assigns(test):
                return self.constant(True, node)
            first_time = self.body(node, lambda: self.add(core.VarLoad(first), node))
            other = self.body(test, lambda: self.truth(test))
            return self.add(py.CondOr((first_time, other)), node)

        condition = self.body(node, again)

        def start() -> None:
            if _assigns(test):
                begun = self.add(core.VarLoad(first), node)
                self.branch(begun, test, lambda: None, lambda: self.leave_unless(test))
            self.add(core.VarStore(first, self.constant(False, node)), node)

        self.loop(node, suite, lambda body: py.While(condition, body), start)

    def for_(self, node: Node) -> None:
        _, initial, test, step, suite = node.children
        self.scopes.append({})
        head = counting_head(self, initial, test, step, suite)
        if head is not None:
            self.counted_for(node, head, suite)
        else:
            self.general_for(node, initial, test, step, suite)
        self.scopes.pop()

    def counted_for(self, node: Node, head: Counted, suite: Node) -> None:
        """Read a `for` whose head counts, as a `for` over a range."""
        type_, name = head.type, head.name

        def iterable() -> Value:
            start = self.expression(head.start)
            if not head.is_plain:
                start = self.convert(start, type_, self.scalar, f"'{name}'", node)
            stop = self.expression(head.stop)
            if head.offset:
                sign = "+" if head.offset > 0 else "-"
                stop = self.operator(sign, stop, self.constant(1, node), node)
            step = self.constant(head.step, node) if isinstance(head.step, int) else self.expression(head.step)
            if head.negated and not isinstance(head.step, int):
                step = self.invoke("c.neg", node, step)
            return self.add(py.Invoke((start, stop, step), "builtins.range"), node)

        counter = self.body(node, iterable)

        def start() -> None:
            item = self.builder.parameters[0]
            value = self.convert(item, type_, self.scalar, f"'{name}'", node)
            self.declare(name, value, type_, self.scalar, Specifiers(type_), head.variable)

        self.loop(node, suite, lambda body: py.For(counter, body), start, (pyobject,))

    def general_for(self, node: Node, initial: Node, test: Node, step: Node, suite: Node) -> None:
        """Read a `for` with any other head, as a `while`. A `continue` is preceded by the step."""
        if initial is not None:
            if initial.data == "declaration":
                self.declaration(initial)
            else:
                self.evaluate(lark.Tree("evaluate", [initial]))
        scopes = list(self.scopes)

        def following() -> None:
            if step is not None:
                around, self.scopes = self.scopes, list(scopes)  # Without the variables of the suite.
                self.evaluate(lark.Tree("evaluate", [step]))
                self.scopes = around

        condition, start = self.head(test, node)
        self.loop(node, suite, lambda body: py.While(condition, body), start, following=following)

    def loop(
        self,
        node: Node,
        suite: Node,
        make: Callable[[Body], Op],
        start: Callable[[], object],
        parameters: Sequence[Type] = (),
        following: Callable[[], None] = lambda: None,
    ) -> None:
        """Read the suite of a loop and add the loop. `start` adds ops at the start of an iteration, and `following`
        those between an iteration and the next: the step of a `for`."""

        def iteration() -> None:
            self.scopes.append({})
            start()
            self.block(suite)
            self.scopes.pop()
            if not self.builder.terminated:
                following()

        self.loops.append(following)
        body = self.body(node, iteration, parameters)
        self.loops.pop()
        self.add(make(body), node)

    def break_(self, node: Node) -> None:
        if not self.loops:
            raise self.source.syntax("break must stand in a loop", node)
        self.add(py.Break(), node)

    def continue_(self, node: Node) -> None:
        if not self.loops:
            raise self.source.syntax("continue must stand in a loop", node)
        self.loops[-1]()
        self.add(py.Continue(), node)

    def return_(self, node: Node) -> None:
        value, type_ = node.children[1], self.function.result
        if (value is None) != (type_ is None):
            problem = "returns nothing" if type_ is None else "must return a value"
            hint = "leave the value out" if type_ is None else "write a value after return"
            raise self.source.syntax(f"'{self.function.name}' {problem}, as it is declared", node, hint)
        result: Value | None = None
        if value is not None and type_ is not None:
            result = self.convert(self.expression(value), type_, None, "the result", node)
        self.add(core.Return(() if result is None else (result,)), node)


_STATEMENTS: Final[dict[str, Callable[[CStatements, Node], None]]] = {
    name.removesuffix("_"): getattr(CStatements, name)
    for name in (
        "block", "declaration", "evaluate", "empty", "if_", "for_", "while_", "do", "break_", "continue_", "return_",
    )
}  # fmt: skip


def _assigns(tree: Node) -> bool:
    """Whether an expression assigns to a variable."""
    return any(part.data in ("assign", "step", "step_after") for part in tree.iter_subtrees())


def _declared_names(tree: Node) -> Iterable[str]:
    """The names that a declaration, one of its variables or a parameter declares."""
    if tree.data == "declaration":
        for variable in tree.children[1:]:
            yield from _declared_names(variable)
    else:
        yield from (str(child) for child in tree.children if isinstance(child, lark.Token) and child.type == "NAME")
