"""Symbolic values: what stands for values of a kernel while a Python function runs to build it."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.errors import KernelSyntaxError, KernelTypeError
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import Type
from ziggurat.frontends.language.signature import SIGNATURES
from ziggurat.frontends.language.spellings import of_attribute


class Tape(Protocol):
    """Where the operations on symbols are recorded."""

    def record(self, op: Op) -> Symbol:
        """Append an op of the Python model at the place in the source that asked for it."""
        ...

    def value(self, thing: Any) -> Value:
        """The value of the model for a symbol or a Python constant."""
        ...

    def fail(self, message: str, hint: str) -> NoReturn:
        """Raise an error at the place in the source that asked for it."""
        ...


class _NoAttribute(KernelTypeError, AttributeError):
    """So that `hasattr` of a symbol is false, as of any object that lacks the attribute."""


class Symbol:
    """A value of the kernel under construction. Scalars have Python's operators; tensors take explicit calls."""

    __slots__ = ("tape", "value")

    # Operators of NumPy's arrays leave symbols to the methods here.
    __array_ufunc__ = None

    def __init__(self, tape: Tape, value: Value) -> None:
        self.tape = tape
        self.value = value

    @property
    def type(self) -> Type:
        """The type in the Python model: `object` until attribution."""
        return self.value.type

    @property
    def shape(self) -> Symbol:
        """The shape, as a constant of the kernel."""
        return self._property("shape")

    @property
    def dtype(self) -> Symbol:
        """The element type, as a constant of the kernel."""
        return self._property("dtype")

    @property
    def element_ty(self) -> Symbol:
        """Of the dtype of a pointer: what is pointed to, as a constant of the kernel."""
        return self._property("element_ty")

    def load(self, offsets: Any) -> Symbol:
        """Of a tensor descriptor: the block at these offsets."""
        return self._method(".load", offsets)

    def store(self, offsets: Any, value: Any) -> Symbol:
        """Of a tensor descriptor: write a block at these offsets."""
        return self._method(".store", offsets, value)

    def _method(self, name: str, *arguments: Any) -> Symbol:
        values = [self.value, *(self.tape.value(argument) for argument in arguments)]
        op = OPS["invoke"].SPEC.make(values, [], {"callee": name}, [], self.value.type)
        return self.tape.record(op)

    def _property(self, name: str) -> Symbol:
        return self.tape.record(OPS["attribute"].SPEC.make([self.value], [], {"name": name}, [], self.value.type))

    def _binary(self, name: str, lhs: Any, rhs: Any) -> Symbol:
        values = [self.tape.value(lhs), self.tape.value(rhs)]
        return self.tape.record(OPS[name].SPEC.make(values, [], {}, [], self.value.type))

    def _unary(self, name: str) -> Symbol:
        return self.tape.record(OPS[name].SPEC.make([self.value], [], {}, [], self.value.type))

    def __bool__(self) -> bool:
        self.tape.fail(
            "the truth of a value of the kernel is not known while it is traced",
            "zg.if_(condition, then, otherwise) and zg.while_ build control flow; zg.where chooses between values",
        )

    def __iter__(self) -> NoReturn:
        self.tape.fail(
            "a value of the kernel cannot be iterated over", "zg.for_(start, stop, step, initial, body) builds a loop"
        )

    def __index__(self) -> int:
        self.tape.fail(
            "a value of the kernel is not a Python integer",
            "pass integers that shape the kernel as constants to zg.trace",
        )

    def __getitem__(self, index: Any) -> Symbol:
        return self._binary("subscript", self, index)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        self.tape.fail("a value of the kernel cannot be changed", "write memory with zg.store; a tuple is made anew")

    def __contains__(self, item: object) -> bool:
        self.tape.fail("a value of the kernel cannot be searched", "compare with zg.compare, or with == for scalars")

    def __len__(self) -> int:
        self.tape.fail("the length of a value of the kernel is not known while it is traced", "zg.for_ builds a loop")

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        self.tape.fail("a value of the kernel cannot be called", "calls are zg.<name>(…)")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            hint = f"call zg.{name}(…) instead" if name in SIGNATURES else of_attribute(name)
            hint = hint or "values have .shape and .dtype"
            self.tape.fail(f"a value of the kernel has no '{name}'", hint)
        except KernelTypeError as error:
            raise _NoAttribute(error.summary, error.location, error.hint) from None

    def __matmul__(self, other: Any) -> NoReturn:
        self.tape.fail("the operator '@' does not work in a kernel", "use zg.dot(a, b)")

    def __rmatmul__(self, other: Any) -> NoReturn:
        self.__matmul__(other)

    def __divmod__(self, other: Any) -> tuple[Symbol, Symbol]:
        return self // other, self % other

    def __abs__(self) -> Symbol:
        return self.tape.record(
            OPS["invoke"].SPEC.make([self.value], [], {"callee": "builtins.abs"}, [], self.value.type)
        )

    def __round__(self, digits: Any = None) -> NoReturn:
        self.tape.fail("round() does not work in a kernel", "use zg.floor(zg.add(x, 0.5))")

    def __pow__(self, other: Any) -> Symbol:
        return self._binary("pow", self, other)

    def __rpow__(self, other: Any) -> Symbol:
        return self._binary("pow", other, self)

    def __repr__(self) -> str:
        return f"<symbol of {self.value!r}>"

    def __add__(self, other: Any) -> Symbol:
        return self._binary("add", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return self._binary("add", other, self)

    def __sub__(self, other: Any) -> Symbol:
        return self._binary("sub", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return self._binary("sub", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return self._binary("mul", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return self._binary("mul", other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return self._binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self._binary("div", other, self)

    def __floordiv__(self, other: Any) -> Symbol:
        return self._binary("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Symbol:
        return self._binary("floordiv", other, self)

    def __mod__(self, other: Any) -> Symbol:
        return self._binary("mod", self, other)

    def __rmod__(self, other: Any) -> Symbol:
        return self._binary("mod", other, self)

    def __and__(self, other: Any) -> Symbol:
        return self._binary("and", self, other)

    def __rand__(self, other: Any) -> Symbol:
        return self._binary("and", other, self)

    def __or__(self, other: Any) -> Symbol:
        return self._binary("or", self, other)

    def __ror__(self, other: Any) -> Symbol:
        return self._binary("or", other, self)

    def __xor__(self, other: Any) -> Symbol:
        return self._binary("xor", self, other)

    def __rxor__(self, other: Any) -> Symbol:
        return self._binary("xor", other, self)

    def __lshift__(self, other: Any) -> Symbol:
        return self._binary("shl", self, other)

    def __rlshift__(self, other: Any) -> Symbol:
        return self._binary("shl", other, self)

    def __rshift__(self, other: Any) -> Symbol:
        return self._binary("shr", self, other)

    def __rrshift__(self, other: Any) -> Symbol:
        return self._binary("shr", other, self)

    def __eq__(self, other: object) -> Any:
        return self._binary("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return self._binary("ne", self, other)

    def __lt__(self, other: Any) -> Symbol:
        return self._binary("lt", self, other)

    def __le__(self, other: Any) -> Symbol:
        return self._binary("le", self, other)

    def __gt__(self, other: Any) -> Symbol:
        return self._binary("gt", self, other)

    def __ge__(self, other: Any) -> Symbol:
        return self._binary("ge", self, other)

    def __neg__(self) -> Symbol:
        return self._unary("neg")

    def __pos__(self) -> Symbol:
        return self

    def __invert__(self) -> Symbol:
        return self._unary("invert")

    __hash__ = object.__hash__


class ConstantInt(int):
    """An integer given as a constant argument: a Python int that knows the parameter it came from."""

    parameter: Value


class ConstantFloat(float):
    """A float given as a constant argument."""

    parameter: Value


def constant_argument(value: Any, parameter: Value) -> Any:
    """What a traced function receives for a constant: the value; a number remembers the parameter it came by."""
    if type(value) is int:
        made: Any = ConstantInt(value)
    elif type(value) is float:
        made = ConstantFloat(value)
    else:
        return value
    made.parameter = parameter
    return made


def expect_no_kernel(what: str) -> NoReturn:
    """Raise the error of a construct that only makes sense while a kernel is traced."""
    raise KernelSyntaxError(
        f"{what} was called outside of a traced function", hint="call it in a function that is given to zg.trace"
    )
