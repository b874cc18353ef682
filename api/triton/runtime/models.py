"""The models of functions in Triton's Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from ziggurat import compiler
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.errors import KernelValueError
from ziggurat.codemodel.op import Op, expect
from ziggurat.codemodel.transform import DROP, transform
from ziggurat.codemodel.types import Type
from ziggurat.frontends.language.function import Function
from ziggurat.frontends.triton.compile_time import ConstexprFunction
from ziggurat.frontends.triton.triton_errors import as_triton
from ziggurat.kernels.arguments import KernelSignature
from ziggurat.kernels.models import PythonModels
from ziggurat.triton import knobs
from ziggurat.triton.runtime import triton_options

if TYPE_CHECKING:
    from ziggurat.transforms.attribution import Attribution
    from ziggurat.triton.runtime.jit import JITFunction

_PRECISIONS: Final = tuple(p.value for p in tt.InputPrecision if p is not tt.InputPrecision.DEFAULT)


class TritonModels(PythonModels):
    """The models of a function in Triton's Python, whose annotations declare types: `x: tl.int64`."""

    reads_warps = False  # Whether a Triton model of the function depends on the number of warps.

    def declarations(self, kernel: Function, arguments: Mapping[str, Any]) -> Mapping[str, Type]:
        return _own(kernel).declarations

    def attribution(self, kernel: Function, types: Sequence[Type]) -> Attribution:
        return super().attribution(kernel, _own(kernel).declared_types(types))

    def key(self, signature: KernelSignature) -> KernelSignature:
        return signature if self.reads_warps else attrs.evolve(signature, num_warps=None)

    def identity(self, kernel: Function) -> str:
        """The text for the model, and for the functions of Python that compute constants in it."""
        return f"{super().identity(kernel)} {[function.identity for function in compile_time_functions(kernel)]}"

    def python(self, kernel: Function) -> Op:
        """The Python code model. Raises `ChangedGlobalError` if a function that it may call was compiled with a global
        that has changed since."""
        from ziggurat.triton.runtime.jit import JITFunction

        for name in kernel.fn.__code__.co_names:
            callee = kernel.fn.__globals__.get(name)
            if isinstance(callee, JITFunction):
                callee.require_globals(kernel)
        return super().python(kernel)

    def triton(self, kernel: Function, signature: KernelSignature) -> core.Module:
        """The Triton model with the assertions of the signature."""
        kernel = _own(kernel)
        if signature.assertions == "none":
            plain = attrs.evolve(signature, assertions="device")
            known_model = None if kernel.passes else kernel.known_model(plain)  # A kept model has passed.
            return without_assertions(known_model or self.triton(kernel, plain))
        for parameter in kernel.params:
            if parameter.is_constexpr and (parameter.do_not_specialize or parameter.do_not_specialize_on_alignment):
                message = (
                    f"{parameter.name} marked as constexpr and listed in "
                    "do_not_specialize/do_not_specialize_on_alignment. Remove constexpr designation or skip "
                    "specializing it."
                )
                raise as_triton(KernelValueError(message, kernel.place))

        def num_warps() -> int:
            self.reads_warps = True
            return signature.num_warps or triton_options.DEFAULTS["num_warps"]

        def dot_precision() -> str | None:
            default = kernel.fp32_default = knobs.language.fp32_default
            if default and str(default).lower() not in _PRECISIONS:
                raise KernelValueError(
                    f"TRITON_F32_DEFAULT, or knobs.language.fp32_default, must be one of {', '.join(_PRECISIONS)}; "
                    f"got {default!r}",
                    hint="unset it, or name the precision in the dot: tl.dot(…, input_precision=…)",
                )
            return default or None

        return compiler.triton_model(
            kernel,
            kernel.declared_types(signature.types),
            signature.divisibility,
            signature.small,
            symbol=kernel.symbol_of(signature),
            num_warps=num_warps,
            dot_precision=dot_precision,
            checks_overflow=signature.assertions == "overflow",
            stops=signature.stops,
        )


def _own(kernel: Function) -> JITFunction:
    """The function of a Triton program that a function is: others do not have these models."""
    return cast("JITFunction", kernel)


def compile_time_functions(kernel: Function) -> Iterator[ConstexprFunction]:
    """The functions under `@triton.constexpr_function` that a kernel and the functions that it calls use."""
    from ziggurat.transforms.attribution.link import reached

    for function in reached(kernel):
        yield from (value for value in function.objects.values() if isinstance(value, ConstexprFunction))


def without_assertions(model: core.Module) -> core.Module:
    """The model without its device assertions."""
    if not model.holds(tt.Assert):
        return model
    without = transform(model, lambda builder, op, operands: DROP if isinstance(op, tt.Assert) else None)
    return expect(without, core.Module)
