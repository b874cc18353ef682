"""The rule of a call: the type of its result and the ops that it becomes, beside each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.errors import BuildError, KernelTypeError, KernelValueError, ZigguratError
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import ConstantType, Type
from ziggurat.frontends.language import CALLS, Function
from ziggurat.transforms.calls.constants import FunctionName, show
from ziggurat.transforms.calls.emit import Built
from ziggurat.transforms.calls.promotion import constant

# The name of an op at the start of its messages.
_OP_NAME = re.compile(r"^[a-z_]+\.\w+")


@attrs.frozen
class Typing:
    """The context of a type rule: the name of the call, and `combiner`, which attributes the function of a reduction.

    As text it is the call's name as it is written in a kernel.
    """

    name: str
    combiner: Callable[[FunctionName | str, Sequence[Type], str], None] | None = None

    def __str__(self) -> str:
        return f"zg.{self.name}"

    def combine(self, function: FunctionName | str, types: Sequence[Type]) -> None:
        """Attribute the function that combines two elements of each of `types`: a function, or a reduction's name.

        Raises `KernelTypeError` unless it gives one element of each.
        """
        assert self.combiner is not None
        self.combiner(function, types, str(self))

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
            shown = f"{self}({', '.join(map(show, values))})"
            raise KernelValueError(f"cannot compute {shown}: {error.summary}") from None

    def asked(
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
            raise error(_OP_NAME.sub(str(self), objection.summary), hint=hint) from None


@attrs.frozen
class Rule:
    """The meaning of a call of the language for the tiers below Python.

    `type` is asked in a `Typing`, with the arguments in the order of the signature: a type for each value (None where
    it is absent), the Python value for each constant. It gives the type of the result, a `ConstantType` where the
    value of the result is known, and raises `KernelTypeError` or `KernelValueError`; the driver adds the place.

    `build` appends ops. It is given an `Emitter`, the type of the result, and the arguments in the same order: an
    `Operand` for each value, the Python value for each constant. It is None for a call that leaves no op.

    `body` is the function behind a call that is written in the language. Its `type` checks the arguments, and gives a
    type only where the result is a constant.
    """

    type: Callable[..., Type | None]
    build: Callable[..., Built] | None = None
    body: Function | None = None
