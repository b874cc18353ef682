"""The Python dialect: the statements and expressions of Python functions as ops. Values have the type `object` until
attribution.

A variable is a `var`; a read of it a `var.load`; an assignment a `var.store`. A statement with a suite is an op with
bodies.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel import errors
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.dialects.core import Yield
from ziggurat.codemodel.fields import attribute, bodies, body, operand, operands
from ziggurat.codemodel.op import Body, Op, Value, require
from ziggurat.codemodel.traits import LeavesIteration, Loop, MayReturn, Pure, PythonTier
from ziggurat.codemodel.types import pyobject


class Expression(Op, PythonTier):
    """An op that gives any Python object."""

    RESULT = pyobject


class UnaryExpression(Expression, Pure):
    """One operand, one result."""

    operand: Value = operand()


class BinaryExpression(Expression, Pure):
    """Two operands, one result."""

    lhs: Value = operand()
    rhs: Value = operand()


class Add(BinaryExpression, name="add"):
    """Python's `a + b`."""


class Sub(BinaryExpression, name="sub"):
    """Python's `a - b`."""


class Mul(BinaryExpression, name="mul"):
    """Python's `a * b`."""


class Div(BinaryExpression, name="div"):
    """Python's `a / b`."""


class FloorDiv(BinaryExpression, name="floordiv"):
    """Python's `a // b`."""


class Mod(BinaryExpression, name="mod"):
    """Python's `a % b`."""


class Pow(BinaryExpression, name="pow"):
    """Python's `a ** b`."""


class And(BinaryExpression, name="and"):
    """Python's `a & b`."""


class Or(BinaryExpression, name="or"):
    """Python's `a | b`."""


class Xor(BinaryExpression, name="xor"):
    """Python's `a ^ b`."""


class Shl(BinaryExpression, name="shl"):
    """Python's `a << b`."""


class Shr(BinaryExpression, name="shr"):
    """Python's `a >> b`."""


class Eq(BinaryExpression, name="eq"):
    """Python's `a == b`."""


class Ne(BinaryExpression, name="ne"):
    """Python's `a != b`."""


class Lt(BinaryExpression, name="lt"):
    """Python's `a < b`."""


class Le(BinaryExpression, name="le"):
    """Python's `a <= b`."""


class Gt(BinaryExpression, name="gt"):
    """Python's `a > b`."""


class Ge(BinaryExpression, name="ge"):
    """Python's `a >= b`."""


class Is(BinaryExpression, name="is"):
    """Python's `a is b`."""


class IsNot(BinaryExpression, name="is_not"):
    """Python's `a is not b`."""


class In(BinaryExpression, name="in"):
    """Python's `a in b`."""


class NotIn(BinaryExpression, name="not_in"):
    """Python's `a not in b`."""


class Neg(UnaryExpression, name="neg"):
    """Python's `-a`."""


class Pos(UnaryExpression, name="pos"):
    """Python's `+a`."""


class Invert(UnaryExpression, name="invert"):
    """Python's `~a`."""


class Not(UnaryExpression, name="not"):
    """Python's `not a`."""


class Subscript(Expression, Pure, name="subscript"):
    """`a[index]`: a component of a tuple."""

    value: Value = operand()
    index: Value = operand()


class Unpack(Expression, Pure, name="unpack"):
    """Component `index` of a value that is unpacked into `count` names: `a, b = value`."""

    value: Value = operand()
    index: int = attribute(int)
    count: int = attribute(int)

    def check(self) -> None:
        require(0 <= self.index < self.count, f"component {self.index} is not one of {self.count}")


class Attribute(Expression, Pure, name="attribute"):
    """`a.name`: a property of a value, such as `x.shape` or `x.dtype`."""

    value: Value = operand()
    name: str = attribute(str, unnamed=True)


class Pack(Expression, Pure, name="pack"):
    """`(a, b, …)`: a Python tuple."""

    components: Sequence[Value] = operands()


class Outer(Expression, Pure, name="outer"):
    """An object of Python from outside of the function, such as a class, by the name that the function gives it."""

    name: str = attribute(str, unnamed=True)


class Format(Expression, Pure, name="format"):
    """An f-string of constants: `template.format(*values)`."""

    values: Sequence[Value] = operands()
    template: str = attribute(str, unnamed=True)


class Invoke(Expression, name="invoke"):
    """Call a function of the language (`zg.load`) or a builtin (`min`). `keywords` names the last operands.

    `starred` are the indices of the arguments that are tuples whose items are passed: `f(a, *b)`.
    """

    arguments: Sequence[Value] = operands()
    callee: str = attribute(str, unnamed=True)
    keywords: tuple[str, ...] = attribute([str], default=())
    starred: tuple[int, ...] = attribute([int], default=())

    def check(self) -> None:
        names = self.callee.removeprefix(".").split(".")
        require(
            all(map(str.isidentifier, names)),
            f"the callee must be a name, names with dots, or '.method'; got {self.callee!r}",
        )
        require(len(self.keywords) <= len(self.arguments), "more keywords than operands")


class Call(Expression, name="call"):
    """`f(a, …)` where `f` is a value: a parameter that takes a function, say. `keywords` names the last arguments.

    `starred` is as in `invoke`.
    """

    callee: Value = operand()
    arguments: Sequence[Value] = operands()
    keywords: tuple[str, ...] = attribute([str], default=())
    starred: tuple[int, ...] = attribute([int], default=())

    def check(self) -> None:
        require(len(self.keywords) <= len(self.arguments), "more keywords than arguments")


def parameter_names(function: Op) -> list[str | None]:
    """The names of a function's parameters: the names of the variables that first hold them, or None."""
    body = function.bodies[0]
    names = {op.initial: op.name for op in body.entry.ops if isinstance(op, core.Var) and op.initial is not None}
    return [names.get(parameter) for parameter in body.parameters]


class Error(Expression, name="error"):
    """An error in the source at this place, raised only where it is run.

    `kind` is the class of the error. In a branch of an `if` that is not taken it does no harm.
    """

    summary: str = attribute(str, unnamed=True)
    kind: str = attribute(str)
    hint: str = attribute(str, default="")

    @staticmethod
    def of(error: errors.ZigguratError) -> Error:
        """The op of an error. The caller gives the op the place of the error as its location."""
        return Error(error.summary, type(error).__name__, hint=error.hint or "")

    def error(self) -> errors.ZigguratError:
        """The error itself, at the place of the op."""
        return _ERRORS[self.kind](self.summary, self.location, self.hint or None)

    def check(self) -> None:
        require(self.kind in _ERRORS, f"the kind of an error must be one of {', '.join(_ERRORS)}; got '{self.kind}'")


# The errors of a kernel's source.
_ERRORS: dict[str, type[errors.ZigguratError]] = {
    cls.__name__: cls
    for cls in (errors.KernelSyntaxError, errors.KernelNameError, errors.KernelTypeError, errors.KernelValueError)
}


class Plain(Expression, MayReturn, name="python"):
    """A part of a kernel that only plain Python has, as its ops. A kernel in which it is run is refused.

    `construct` says what it is: a class of `ast`, or a form.
    """

    construct: str = attribute(str, unnamed=True)
    body: Body = body(ends=Yield)


class Flag(core.Var, name="flag"):
    """Declare a variable that is true or false according to the way that control has taken; see `early_exits`.

    The types of other variables may depend on it until it is tested.
    """


class Result(core.Var, name="result"):
    """Declare the variable that holds what the function returns."""


class For(Op, PythonTier, Loop, MayReturn, name="for"):
    """`for target in iterable: suite`. The first body gives the iterable; the second takes an item: the suite.

    The loop ends after an iteration that leaves `flag` false.
    """

    iterable: Body = body(ends=Yield)
    suite: Body = body(ends=Yield)
    flag: Value | None = operand(default=None)
    is_async: bool = attribute(bool, default=False)

    def check(self) -> None:
        require(len(self.suite.parameters) == 1, "the suite of a for takes the item")


class Iterate(Expression, name="iterate"):
    """The iterator of an object, over which a `for` runs that is lowered to blocks."""

    iterable: Value = operand()


class Advance(Expression, name="advance"):
    """The next item of an iterator; where it has none, an object that only `exhausted` knows."""

    iterator: Value = operand()


class Exhausted(Expression, Pure, name="exhausted"):
    """Whether what `advance` gave is no item: the iterator has none any more."""

    item: Value = operand()


class While(Op, PythonTier, Loop, MayReturn, name="while"):
    """`while condition: suite`. The first body gives the condition.

    The loop ends after an iteration that leaves `flag` false; the condition is not computed again.
    """

    condition: Body = body(ends=Yield)
    suite: Body = body(ends=Yield)
    flag: Value | None = operand(default=None)


class Break(Op, PythonTier, LeavesIteration, name="break"):
    """`break`: end the innermost `for` or `while` around it."""


class Continue(Op, PythonTier, LeavesIteration, name="continue"):
    """`continue`: go on with the next iteration of the innermost `for` or `while` around it."""


def leaves_iteration(op: Op) -> bool:
    """Whether a `break` or a `continue` inside the op ends an iteration of a loop around it."""
    if isinstance(op, LeavesIteration):
        return True
    return isinstance(op, If) and any(leaves_iteration(inner) for body in op.bodies for inner in body.entry.ops)


class If(Op, PythonTier, MayReturn, name="if"):
    """`if condition: … else: …`. A suite ends in `yield`, `return`, `break` or `continue`."""

    condition: Value = operand()
    then: Body = body(ends=Yield)
    otherwise: Body = body(ends=Yield)


class CondExpression(Expression, name="cexpression"):
    """`a if condition else b`: each body gives a value, and only one is run."""

    condition: Value = operand()
    then: Body = body(ends=Yield)
    otherwise: Body = body(ends=Yield)


class CondAnd(Expression, name="cand"):
    """`a and b and …`: bodies are run until one gives a false value."""

    parts: Sequence[Body] = bodies(ends=Yield)


class CondOr(Expression, name="cor"):
    """`a or b or …`: bodies are run until one gives a true value."""

    parts: Sequence[Body] = bodies(ends=Yield)


class Comprehension(Expression, name="comprehension"):
    """`[element for item in iterable if condition]`: a tuple. The second and the third body take the item."""

    iterable: Body = body(ends=Yield)
    condition: Body = body(ends=Yield)
    element: Body = body(ends=Yield)

    def check(self) -> None:
        for part in (self.condition, self.element):
            require(len(part.parameters) == 1, "the condition and the element of a comprehension take the item")


class Assert(Op, PythonTier, name="assert"):
    """`assert condition, message`."""

    condition: Value = operand()
    message: Value | None = operand(default=None)
