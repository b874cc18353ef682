"""The Python dialect: the statements and expressions of Python functions as ops. Values have the type `object` until
attribution.

A variable is a `var`; a read of it a `var.load`; an assignment a `var.store`. A statement with a suite is an op with
bodies.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel import errors
from ziggurat.codemodel.declare import attribute, bodies, body, operand, operands, operation, template
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.dialects.core import Yield
from ziggurat.codemodel.op import Body, Op, Value, require
from ziggurat.codemodel.traits import LeavesIteration, Loop, MayReturn, Pure, PythonTier
from ziggurat.codemodel.types import Type, pyobject


@template
class Unary(Op, PythonTier, Pure):
    """One operand, one result."""

    operand: Value = operand()

    def infer_type(self) -> Type:
        return pyobject


@template
class Binary(Op, PythonTier, Pure):
    """Two operands, one result."""

    lhs: Value = operand()
    rhs: Value = operand()

    def infer_type(self) -> Type:
        return pyobject


@operation("add")
class Add(Binary):
    """Python's `a + b`."""


@operation("sub")
class Sub(Binary):
    """Python's `a - b`."""


@operation("mul")
class Mul(Binary):
    """Python's `a * b`."""


@operation("div")
class Div(Binary):
    """Python's `a / b`."""


@operation("floordiv")
class FloorDiv(Binary):
    """Python's `a // b`."""


@operation("mod")
class Mod(Binary):
    """Python's `a % b`."""


@operation("pow")
class Pow(Binary):
    """Python's `a ** b`."""


@operation("and")
class And(Binary):
    """Python's `a & b`."""


@operation("or")
class Or(Binary):
    """Python's `a | b`."""


@operation("xor")
class Xor(Binary):
    """Python's `a ^ b`."""


@operation("shl")
class Shl(Binary):
    """Python's `a << b`."""


@operation("shr")
class Shr(Binary):
    """Python's `a >> b`."""


@operation("eq")
class Eq(Binary):
    """Python's `a == b`."""


@operation("ne")
class Ne(Binary):
    """Python's `a != b`."""


@operation("lt")
class Lt(Binary):
    """Python's `a < b`."""


@operation("le")
class Le(Binary):
    """Python's `a <= b`."""


@operation("gt")
class Gt(Binary):
    """Python's `a > b`."""


@operation("ge")
class Ge(Binary):
    """Python's `a >= b`."""


@operation("is")
class Is(Binary):
    """Python's `a is b`."""


@operation("is_not")
class IsNot(Binary):
    """Python's `a is not b`."""


@operation("in")
class In(Binary):
    """Python's `a in b`."""


@operation("not_in")
class NotIn(Binary):
    """Python's `a not in b`."""


@operation("neg")
class Neg(Unary):
    """Python's `-a`."""


@operation("pos")
class Pos(Unary):
    """Python's `+a`."""


@operation("invert")
class Invert(Unary):
    """Python's `~a`."""


@operation("not")
class Not(Unary):
    """Python's `not a`."""


@operation("subscript")
class Subscript(Op, PythonTier, Pure):
    """`a[index]`: a component of a tuple."""

    value: Value = operand()
    index: Value = operand()

    def infer_type(self) -> Type:
        return pyobject


@operation("unpack")
class Unpack(Op, PythonTier, Pure):
    """Component `index` of a value that is unpacked into `count` names: `a, b = value`."""

    value: Value = operand()
    index: int = attribute(int)
    count: int = attribute(int)

    def infer_type(self) -> Type:
        return pyobject


@operation("attribute")
class Attribute(Op, PythonTier, Pure):
    """`a.name`: a property of a value, such as `x.shape` or `x.dtype`."""

    value: Value = operand()
    name: str = attribute(str, unnamed=True)

    def infer_type(self) -> Type:
        return pyobject


@operation("pack")
class Pack(Op, PythonTier, Pure):
    """`(a, b, …)`: a Python tuple."""

    components: Sequence[Value] = operands()

    def infer_type(self) -> Type:
        return pyobject


@operation("invoke")
class Invoke(Op, PythonTier):
    """Call a function of the language (`zg.load`) or a builtin (`min`). `keywords` names the last operands."""

    arguments: Sequence[Value] = operands()
    callee: str = attribute(str, unnamed=True)
    keywords: tuple[str, ...] = attribute([str], default=())

    def infer_type(self) -> Type:
        return pyobject

    def check(self) -> None:
        require(len(self.keywords) <= len(self.arguments), "more keywords than operands")


@operation("call")
class Call(Op, PythonTier):
    """`f(a, …)` where `f` is a value: a parameter that takes a function, say. `keywords` names the last arguments."""

    callee: Value = operand()
    arguments: Sequence[Value] = operands()
    keywords: tuple[str, ...] = attribute([str], default=())

    def infer_type(self) -> Type:
        return pyobject

    def check(self) -> None:
        require(len(self.keywords) <= len(self.arguments), "more keywords than arguments")


def parameter_names(function: Op) -> list[str | None]:
    """The names of a function's parameters: the names of the variables that first hold them, or None."""
    body = function.bodies[0]
    held = {op.initial: op.name for op in body.entry.ops if isinstance(op, core.Var) and op.initial is not None}
    return [held.get(parameter) for parameter in body.parameters]


@operation("error")
class Error(Op, PythonTier):
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

    def infer_type(self) -> Type:
        return pyobject

    def check(self) -> None:
        require(self.kind in _ERRORS, f"the kind of an error must be one of {', '.join(_ERRORS)}; got '{self.kind}'")


# The errors of a kernel's source.
_ERRORS: dict[str, type[errors.ZigguratError]] = {
    cls.__name__: cls
    for cls in (errors.KernelSyntaxError, errors.KernelNameError, errors.KernelTypeError, errors.KernelValueError)
}


@operation("for")
class For(Op, PythonTier, Loop, MayReturn):
    """`for target in iterable: suite`. The first body gives the iterable; the second takes an item: the suite."""

    iterable: Body = body(ends=Yield)
    suite: Body = body(ends=Yield)

    def check(self) -> None:
        require(len(self.suite.parameters) == 1, "the suite of a for takes the item")


@operation("while")
class While(Op, PythonTier, Loop, MayReturn):
    """`while condition: suite`. The first body gives the condition."""

    condition: Body = body(ends=Yield)
    suite: Body = body(ends=Yield)


@operation("break")
class Break(Op, PythonTier, LeavesIteration):
    """`break`: end the innermost `for` or `while` around it."""


@operation("continue")
class Continue(Op, PythonTier, LeavesIteration):
    """`continue`: go on with the next iteration of the innermost `for` or `while` around it."""


def leaves_iteration(op: Op) -> bool:
    """Whether a `break` or a `continue` inside the op ends an iteration of a loop around it."""
    if isinstance(op, LeavesIteration):
        return True
    return isinstance(op, If) and any(leaves_iteration(inner) for body in op.bodies for inner in body.entry.ops)


@operation("if")
class If(Op, PythonTier, MayReturn):
    """`if condition: … else: …`. A suite ends in `yield`, `return`, `break` or `continue`."""

    condition: Value = operand()
    then: Body = body(ends=Yield)
    otherwise: Body = body(ends=Yield)


@operation("cexpression")
class CondExpression(Op, PythonTier):
    """`a if condition else b`: each body gives a value, and only one is run."""

    condition: Value = operand()
    then: Body = body(ends=Yield)
    otherwise: Body = body(ends=Yield)

    def infer_type(self) -> Type:
        return pyobject


@operation("cand")
class CondAnd(Op, PythonTier):
    """`a and b and …`: bodies are run until one gives a false value."""

    parts: Sequence[Body] = bodies(ends=Yield)

    def infer_type(self) -> Type:
        return pyobject


@operation("cor")
class CondOr(Op, PythonTier):
    """`a or b or …`: bodies are run until one gives a true value."""

    parts: Sequence[Body] = bodies(ends=Yield)

    def infer_type(self) -> Type:
        return pyobject


@operation("assert")
class Assert(Op, PythonTier):
    """`assert condition, message`."""

    condition: Value = operand()
    message: Value | None = operand(default=None)
