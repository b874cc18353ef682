"""Calls that Triton-C has besides those of the language: `c.<name>` in the Python code model.

They hold the rules of C that differ from those of the language's calls. No kernel calls them by name, so they are not
among `SIGNATURES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ziggurat.codemodel.messages import operator_text
from ziggurat.frontends.language.kinds import ConstAny, ConstInt, Value
from ziggurat.frontends.language.signature import Signature, signature_of

C_SIGNATURES: Final[dict[str, Signature]] = {}
# The words that messages have for a call.
WRITTEN: Final[dict[str, str]] = {}
# The words that messages have for parameters, which have no names in C.
PARAMETERS: Final[dict[str, str]] = {"shape": "the sizes of an array"}


def _c_call(written: str = "") -> Callable[[Callable[..., Any]], None]:
    def declare(stub: Callable[..., Any]) -> None:
        C_SIGNATURES[stub.__name__] = signature_of(stub, "Triton-C", 1)
        WRITTEN[stub.__name__] = written

    return declare


@_c_call(operator_text("/"))
def div(a: Value, b: Value, where: Value = None) -> Value:  # pyright: ignore[reportUnusedFunction]
    """The quotient; of integers rounded toward zero. Where `where` is false, an integer divisor counts as 1."""


@_c_call(operator_text("%"))
def rem(a: Value, b: Value, where: Value = None) -> Value:  # pyright: ignore[reportUnusedFunction]
    """The remainder of integers, with the sign of `a`. Where `where` is false, the divisor counts as 1."""


@_c_call(operator_text("-"))
def neg(x: Value) -> Value:  # pyright: ignore[reportUnusedFunction]
    """`-x`; a bool counts as an int."""


@_c_call(operator_text("~"))
def invert(x: Value) -> Value:  # pyright: ignore[reportUnusedFunction]
    """`~x` of integers that are no bools."""


@_c_call(operator_text("<<"))
def shl(a: Value, b: Value) -> Value:  # pyright: ignore[reportUnusedFunction]
    """`a << b`; a bool counts as an int."""


@_c_call(operator_text(">>"))
def shr(a: Value, b: Value) -> Value:  # pyright: ignore[reportUnusedFunction]
    """`a >> b`; a bool counts as an int."""


@_c_call("a condition")
def truth(x: Value) -> Value:  # pyright: ignore[reportUnusedFunction]
    """Whether each element is not zero."""


@_c_call(operator_text("?:"))
def choose(condition: Value, x: Value, y: Value) -> Value:  # pyright: ignore[reportUnusedFunction]
    """`condition ? x : y`, element by element; one of them where the condition is known at compile time."""


@_c_call("the declaration")
def declare(x: Value, shape: ConstAny, declaration: ConstAny) -> Value:  # pyright: ignore[reportUnusedFunction]
    """The value that a declared variable gets from `x`: converted, and broadcast to the shape; None is that of `x`.

    `declaration` has the element type, the name for messages, and whether a scalar that is known at compile time stays
    known, because it is `const`.
    """


@_c_call("the cast")
def cast(x: Value, type: ConstAny) -> Value:  # pyright: ignore[reportUnusedFunction]
    """`(type)x`, element by element."""


@_c_call(operator_text("*"))
def load(p: Value, mask: Value = None, other: Value = None) -> Value:  # pyright: ignore[reportUnusedFunction]
    """The elements at the pointers; where `mask` is false, nothing is read and the result is `other`, or 0."""


@_c_call("the assignment")
def store(p: Value, value: Value, mask: Value = None) -> None:  # pyright: ignore[reportUnusedFunction]
    """Write the value, converted to the pointers' elements, where `mask` is true."""


@_c_call("the value")
def pointee(p: Value, value: Value) -> Value:  # pyright: ignore[reportUnusedFunction]
    """`value` as the elements that `p` points to."""


@_c_call(operator_text("@"))
def dot(a: Value, b: Value, acc: Value = None) -> Value:  # pyright: ignore[reportUnusedFunction]
    """The matrix product of `a` and `b`, after promotion, added to `acc`."""


@_c_call("the subscript")
def ranked(x: Value, count: ConstInt) -> Value:  # pyright: ignore[reportUnusedFunction]
    """`x`, an array with `count` axes."""
