"""Symbolic values: the stand-ins for values of a kernel while a Python function runs to build it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ziggurat.codemodel.dialects import py
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import Type
from ziggurat.frontends.language.signature import SIGNATURES
from ziggurat.frontends.language.spellings import of_attribute

if TYPE_CHECKING:
    from ziggurat.frontends.tracing.trace import Trace


class _NoAttribute(KernelTypeError, AttributeError):
    """The error of an attribute that symbols lack. `hasattr` takes it as any `AttributeError`."""


class TracedValue:
    """A value of the kernel under construction. Scalars have Python's operators; tensors take explicit calls."""

    __slots__ = ("trace", "value")

    def __init__(self, trace: Trace, value: Value) -> None:
        self.trace = trace
        self.value = value

    @property
    def type(self) -> Type:
        """The type in the Python model: `object` until attribution."""
        return self.value.type

    def load(self, offsets: Any) -> TracedValue:
        """The block of a tensor descriptor at these offsets."""
        return self.trace.record(py.Invoke([self.value, self.trace.value(offsets)], ".load"))

    def store(self, offsets: Any, value: Any) -> TracedValue:
        """Write a block of a tensor descriptor at these offsets."""
        return self.trace.record(py.Invoke([self.value, self.trace.value(offsets), self.trace.value(value)], ".store"))

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "dtype", "element_ty"):  # These are constants of the kernel.
            return self.trace.record(py.Attribute(self.value, name))
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            hint = f"call zg.{name}(…) instead" if name in SIGNATURES else of_attribute(name)
            self.trace.fail(f"a value of the kernel has no '{name}'", hint or "values have .shape and .dtype")
        except KernelTypeError as error:
            raise _NoAttribute(error.summary, error.location, error.hint) from None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> TracedValue:
        """Operators of NumPy's numbers with a symbol, which NumPy computes by ufuncs. It refuses others."""
        op = _UFUNCS.get(ufunc.__name__)
        if op is None or method != "__call__" or keywords:
            self._refuse_numpy(ufunc.__name__)
        # A comparison has numbers as arrays without axes.
        numbers = (x if isinstance(x, TracedValue) or getattr(x, "shape", None) != () else x[()] for x in inputs)
        return self.trace.record(op(*map(self.trace.value, numbers)))

    def __array_function__(self, function: Any, types: Any, arguments: Any, keywords: Any) -> NoReturn:
        self._refuse_numpy(function.__name__)

    def _refuse_numpy(self, name: str) -> NoReturn:
        call = name if name in SIGNATURES else "<name>"
        self.trace.fail(f"NumPy's '{name}' does not work on a value of the kernel", f"call zg.{call}(…) instead")

    def __getitem__(self, index: Any) -> TracedValue:
        return self.trace.record(py.Subscript(self.value, self.trace.value(index)))

    def __divmod__(self, other: Any) -> tuple[TracedValue, TracedValue]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[TracedValue, TracedValue]:
        return other // self, other % self

    def __abs__(self) -> TracedValue:
        return self.trace.record(py.Invoke([self.value], "builtins.abs"))

    def __neg__(self) -> TracedValue:
        return self.trace.record(py.Neg(self.value))

    def __pos__(self) -> TracedValue:
        return self

    def __invert__(self) -> TracedValue:
        return self.trace.record(py.Invert(self.value))

    def __repr__(self) -> str:
        return f"<symbol of {self.value!r}>"

    __hash__ = object.__hash__


# Python's methods of operators that have an op, for the symbol as the left operand.
_OPERATORS: dict[str, type[py.BinaryExpression]] = {
    "add": py.Add, "sub": py.Sub, "mul": py.Mul, "truediv": py.Div, "floordiv": py.FloorDiv, "mod": py.Mod,
    "pow": py.Pow, "and": py.And, "or": py.Or, "xor": py.Xor, "lshift": py.Shl, "rshift": py.Shr,
}  # fmt: skip
_COMPARISONS: dict[str, type[py.BinaryExpression]] = {
    "eq": py.Eq, "ne": py.Ne, "lt": py.Lt, "le": py.Le, "gt": py.Gt, "ge": py.Ge,
}  # fmt: skip
# The names that NumPy has for Python's operators, where they differ.
_NUMPY = {
    "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift",
    "rshift": "right_shift", "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip
_UFUNCS = {_NUMPY.get(name, name): op for name, op in {**_OPERATORS, **_COMPARISONS}.items()}
# Python's methods that symbols cannot have, by the message and the hint.
_REFUSED = {
    "float floor ceil trunc": (
        "a value of the kernel is not a Python number",
        "call those of zg: zg.exp(x) for math.exp(x), zg.floor(x) for math.floor(x), zg.cast(x, zg.f32) for float(x)",
    ),
    "bool": (
        "the truth of a value of the kernel is not known while it is traced",
        "zg.if_(condition, then, otherwise) and zg.while_ build control flow; zg.where chooses between values",
    ),
    "iter": (
        "a value of the kernel cannot be iterated over",
        "zg.for_(start, stop, step, initial, body) builds a loop",
    ),
    "index": ("a value of the kernel is not a Python integer", "pass such integers as constants to zg.trace"),
    "setitem delitem": ("a value of the kernel cannot be changed", "write memory with zg.store; build a new tuple"),
    "contains": ("a value of the kernel cannot be searched", "compare with zg.compare, or with == for scalars"),
    "len": ("the length of a value of the kernel is not known while it is traced", "zg.for_ builds a loop"),
    "call": ("a value of the kernel cannot be called", "calls are zg.<name>(…)"),
    "matmul rmatmul": ("the operator '@' does not work in a kernel", "use zg.dot(a, b)"),
    "round": ("round() does not work in a kernel", "use zg.floor(zg.add(x, 0.5))"),
}


def _left(op: type[py.BinaryExpression]) -> Callable[[TracedValue, Any], TracedValue]:
    return lambda self, other: self.trace.record(op(self.trace.value(self), self.trace.value(other)))


def _right(op: type[py.BinaryExpression]) -> Callable[[TracedValue, Any], TracedValue]:
    return lambda self, other: self.trace.record(op(self.trace.value(other), self.trace.value(self)))


def _refusal(message: str, hint: str) -> Callable[..., NoReturn]:
    def refuse(self: TracedValue, *_: Any) -> NoReturn:
        self.trace.fail(message, hint)

    return refuse


for _name, _op in {**_OPERATORS, **_COMPARISONS}.items():
    setattr(TracedValue, f"__{_name}__", _left(_op))
for _name, _op in _OPERATORS.items():
    setattr(TracedValue, f"__r{_name}__", _right(_op))
for _names, _words in _REFUSED.items():
    for _name in _names.split():
        setattr(TracedValue, f"__{_name}__", _refusal(*_words))


class ConstantInt(int):
    """An integer given as a constant argument: a Python int with the parameter that it stands for."""

    parameter: Value


class ConstantFloat(float):
    """A float given as a constant argument, with the parameter that it stands for."""

    parameter: Value


def constant_argument(value: Any, parameter: Value) -> Any:
    """The argument of a traced function for a constant: the value itself, a number with its parameter."""
    kind = ConstantInt if type(value) is int else ConstantFloat if type(value) is float else None
    if kind is None:
        return value
    number = kind(value)
    number.parameter = parameter
    return number
