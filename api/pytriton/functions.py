"""Operations with gradients, written once for every library with automatic differentiation."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from ziggurat.codemodel.errors import LaunchError
from ziggurat.frameworks.operation import as_list, is_array
from ziggurat.pytriton.tensor_kernels import library_of


class Context:
    """The context that `forward` hands to `backward`: tensors by `save_for_backward`, and any attributes."""

    saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors; `backward` finds them in `saved_tensors`."""
        self.saved_tensors = tensors


class function:
    """An operation with a gradient. A class derived from this one has static methods `forward(ctx, …)`, which gives a
    tensor or a tuple of tensors, and `backward(ctx, *gradients)`, which gives the gradient, or None, of each argument.

    `apply` is the operation. Its arguments are tensors of one library, and other values. Gradients beyond the number of
    arguments are left out.
    """

    autograd_function: Any  # PyTorch's form of the class, made when it is first applied to tensors of PyTorch.

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        """The result for the arguments."""
        raise LaunchError("a triton.function must have a static method forward(ctx, …)")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradients of the arguments, for the gradients of the results."""
        raise LaunchError("a triton.function must have a static method backward(ctx, …) to be differentiated")

    @classmethod
    def apply(cls, *arguments: Any, **keywords: Any) -> Any:
        """The result of `forward`, with the gradient of `backward`."""
        if keywords:
            signature = inspect.signature(cls.forward)
            try:
                bound = signature.bind(None, *arguments, **keywords)
            except TypeError as error:
                raise LaunchError(f"{cls.__name__}.apply: {error}", hint=f"forward{signature}") from None
            bound.apply_defaults()
            arguments = bound.args[1:]
        library = library_of(arguments)
        if library == "torch":
            from ziggurat.pytriton.torch_functions import apply
        elif library == "jax":
            from ziggurat.pytriton.jax_functions import apply
        elif library == "tensorflow":
            from ziggurat.pytriton.tensorflow_functions import apply
        else:
            return cls.forward(Context(), *arguments)
        return apply(cls, arguments)

    _applied: Any = apply
    setattr(_applied.__func__, "autograph_info__", {})  # noqa: B010  See `Operation`.


def arrays_among(arguments: Sequence[Any]) -> list[int]:
    """The places of the arrays among the arguments of a function."""
    return [place for place, value in enumerate(arguments) if is_array(value)]


def with_arrays(arguments: Sequence[Any], places: Sequence[int], arrays: Sequence[Any]) -> list[Any]:
    """The arguments of a function, with arrays at some places."""
    values = [*arguments]
    for place, array in zip(places, arrays, strict=True):
        values[place] = array
    return values


def gradients_at(results: Any, places: Sequence[int]) -> list[Any]:
    """The gradients of the arguments at some places, of what `backward` returns; None for those that it leaves out."""
    gradients = as_list(results)
    return [gradients[place] if place < len(gradients) else None for place in places]
