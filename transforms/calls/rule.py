"""The rule of a call: the type of its result and the ops that it becomes; and the checks that rules share.

A check raises an error in words for the kernel's author.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.errors import BuildError, KernelTypeError, KernelValueError, ZigguratError
from ziggurat.codemodel.messages import Part, applied_text, in_words, say
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import (
    MAX_ELEMENTS,
    SCALARS,
    ConstantType,
    ScalarType,
    TensorType,
    Type,
    f32,
    is_power_of_two,
    shape_of,
)
from ziggurat.frontends.language import CALLS, Function
from ziggurat.frontends.language.languages import EXPLICIT, Language
from ziggurat.frontends.language.phrases import AXIS_OUTSIDE, POWER_OF_TWO, SHAPE_SIZE
from ziggurat.frontends.language.signature import Signature
from ziggurat.transforms.calls.constant_arguments import FunctionName, describe, show
from ziggurat.transforms.calls.emit import Built
from ziggurat.transforms.calls.lattice import components
from ziggurat.transforms.calls.promotion import constant, is_number, is_pointer, scalar_type, to_load


class CallContext:
    """The function that calls stand in, as their rules need it. By default there is none: `language` says the rules."""

    def __init__(self, language: Language = EXPLICIT) -> None:
        self.language = language

    def combine(self, call: Typing, function: FunctionName | str, types: Sequence[Type]) -> None:
        """Attribute the function by which a call combines two elements of each of `types`, or the reduction of a name.

        Raises `KernelTypeError` unless it gives one element of each.
        """
        raise NotImplementedError

    def apply(self, call: Typing, function: FunctionName, types: Sequence[Type]) -> Type:
        """Attribute a function that a call applies to elements of these types; the type of its result.

        Raises `KernelTypeError` for another number of parameters.
        """
        raise NotImplementedError

    def warn(self, message: str) -> None:
        """Issue a warning at the place of the call."""


NO_FUNCTION: Final = CallContext()


@attrs.frozen
class Typing:
    """A call whose type is derived: its name, and the function that it stands in.

    Its `str` is the call as a kernel writes it: `written`, or by default the name in the words of the language.
    """

    name: str
    context: CallContext = NO_FUNCTION
    written: str = ""
    # The words for parameters that its author does not name.
    parameters: Mapping[str, str] = attrs.field(factory=dict[str, str])

    def __str__(self) -> str:
        return self.written or self.language.words.call(self.name)

    @property
    def language(self) -> Language:
        """The language that the call is written in."""
        return self.context.language

    def argument(self, name: str) -> str:
        """An argument in messages, by the name of its parameter."""
        return self.parameters.get(name) or f"{self}: '{name}'"

    def error(self, text: str, *parts: Any, hint: str | None = None) -> KernelTypeError:
        """An error of the call: after its name the text, with types among the parts as `describe` writes them."""
        return KernelTypeError(self._about(text, parts), hint=hint)

    def value_error(self, text: str, *parts: Any, hint: str | None = None) -> KernelValueError:
        """As `error`, about a constant."""
        return KernelValueError(self._about(text, parts), hint=hint)

    def _about(self, text: str, parts: Sequence[Any]) -> str:
        return say(f"{{}}: {text}", self, *(describe(part) if isinstance(part, Type) else part for part in parts))

    def computed(self, *types: Type) -> ConstantType | None:
        """The constant that the call gives for constants, as on the host; None where one is a run-time value."""
        values = [type_.value for type_ in types if isinstance(type_, ConstantType)]
        if len(values) < len(types):
            return None
        call = CALLS[self.name]
        assert call.host is not None
        result = call.host(**dict(zip((p.name for p in call.signature.parameters), values, strict=False)))
        if result is NotImplemented:
            return None
        try:
            return constant(result)
        except KernelValueError as error:
            raise KernelValueError(
                say("cannot compute {}: {}", applied_text(self.name, [*map(show, values)]), error.summary)
            ) from None

    def op_type(
        self,
        make: Callable[[Sequence[Value]], Op],
        *operands: Type,
        hint: str | None = None,
        error: type[ZigguratError] = KernelTypeError,
    ) -> Type:
        """The type of the op that `make` gives for operands of these types. Its objection is an error of the call."""
        builder = Builder.root(operands)
        try:
            return builder.add(make(builder.parameters)).type
        except BuildError as objection:
            text = objection.summary
            summary = Part(lambda words: in_words(text, words.for_op(str(self))))
            raise error(summary, hint=hint) from None


@attrs.frozen
class Rule:
    """The meaning of a call of the language for the tiers below Python.

    `type` is asked in a `Typing`, with the arguments in the order of the signature: a type for each value (None where
    it is absent), the Python value for each constant. It gives the type of the result, a `ConstantType` where the
    value of the result is known, and raises `KernelTypeError` or `KernelValueError`; the driver adds the place.

    `build` appends ops. It is given an `Emitter`, the type of the result, and the arguments in the same order: an
    `Operand` for each value, the Python value for each constant. It is None for a call that leaves no op.

    `body` is the function behind a call that is written in the language. Its `type` checks the arguments, and gives a
    type only where the result is a constant. With `in_floats` its operands are converted to f32 or f64.
    """

    type: Callable[..., Type | None]
    build: Callable[..., Built] | None = None
    body: Function | None = None
    in_floats: bool = False


@attrs.frozen
class CallTable:
    """Calls that only one frontend has, which have a prefix of their own in Python code models: `c.div`.

    `written` and `parameters` have the words of messages for them; see `Typing`.
    """

    signatures: Mapping[str, Signature]
    rules: Mapping[str, Rule]
    written: Mapping[str, str]
    parameters: Mapping[str, str]


# The tables by their prefixes. The side that makes such models adds its own.
TABLES: Final[dict[str, CallTable]] = {}


def numbers(call: Typing, *types: Type) -> None:
    """Scalars and tensors of numbers, and constants."""
    for type_ in types:
        if not is_number(type_):
            text = say("a pointer, {}", type_) if is_pointer(type_) else describe(type_)
            raise call.error("the operands must be numbers; got {}", text, hint=to_load(type_))


def integers(call: Typing, **arguments: Type) -> None:
    """Arguments by name that hold integers."""
    for name, type_ in arguments.items():
        if not is_number(type_) or scalar_type(type_).is_float:
            raise call.error(
                "'{}' must be an integer or {a_tensor} of integers; got {}", name, type_, hint=to_load(type_)
            )


def scalar_integers(call: Typing, what: str, type_: Type, count: int) -> tuple[Type, ...]:
    """The components of a tuple of `count` scalar integers. Raises `KernelTypeError` for another argument."""
    parts = components(type_)
    if parts is None or len(parts) != count:
        raise call.error("{} must be a tuple of {}, one for each axis of the block; got {}", what, count, type_)
    for part in parts:
        if not is_number(part) or shape_of(part) or not scalar_type(part).is_int:
            raise call.error("{} must be integers; got {}", what, part)
    return parts


def tensor(call: Typing, x: Type) -> TensorType:
    """A tensor of anything."""
    if not isinstance(x, TensorType):
        raise call.error("the operand must be {a_tensor}; got {}", x, hint=to_load(x))
    return x


def number_tensor(call: Typing, x: Type) -> TensorType:
    """A tensor of numbers."""
    if not isinstance(x, TensorType) or not is_number(x):
        raise call.error("the operand must be {a_tensor} of numbers; got {}", x, hint=to_load(x))
    return x


def condition(call: Typing, x: Type) -> None:
    """Something that is true or false."""
    if not is_number(x):
        raise call.error("the condition must be a number; got {}", x, hint=to_load(x))


def scalar_dtype(call: Typing, dtype: Any) -> ScalarType:
    """A dtype that is no pointer."""
    if not isinstance(dtype, ScalarType):
        hint = say("the dtypes are {}", ", ".join(map(show, SCALARS.values())))
        raise call.error("'dtype' must be a dtype such as {}; got {}", show(f32), show(dtype), hint=hint)
    return dtype


def shape(call: Typing, dims: Any) -> tuple[int, ...]:
    """A shape given as a constant: powers of two, at most 2²⁰ elements."""
    sizes: tuple[Any, ...] = (dims,) if isinstance(dims, int) else tuple(dims)
    count = 1
    for place, size in enumerate(sizes):
        if type(size) is not int:
            raise call.error("a shape must be made of integers; got {}", show(size))
        if not is_power_of_two(size):
            raise KernelValueError(
                SHAPE_SIZE(call=str(call), size=size, shape=list(sizes), place=place),
                hint=POWER_OF_TWO(power=1 << (size - 1).bit_length(), size=size) if size > 0 else None,
            )
        count *= size
    if count > MAX_ELEMENTS:
        raise call.value_error("{a_tensor} of shape {} has more than {} elements", list(sizes), MAX_ELEMENTS)
    return sizes


def axis(call: object, number: int, rank: int) -> int:
    """An axis counted from 0; a negative one counts from the end."""
    if not -rank <= number < rank:
        hint = f"give an axis from {-rank} to {rank - 1}; negative ones count from the last" if rank else None
        raise KernelValueError(AXIS_OUTSIDE(call=str(call), axis=number, rank=rank), hint=hint)
    return number % rank


def choice(name: str, value: Any, choices: dict[Any, Any]) -> None:
    """A constant that is one of a few."""
    if value not in choices:
        texts = ", ".join(repr(choice) for choice in choices)
        raise KernelValueError(say("{} must be one of {}; got {}", name, texts, show(value)))
