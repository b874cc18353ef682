"""Functions with gradients, under `jax.grad` and `jax.jit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ziggurat.frameworks.jax_ops import jax, no_gradient
from ziggurat.frameworks.operation import as_list
from ziggurat.pytriton.functions import Context, arrays_among, gradients_at, with_arrays

if TYPE_CHECKING:
    from ziggurat.pytriton.functions import function


def apply(cls: type[function], arguments: tuple[Any, ...]) -> Any:
    """The result of the function for the arguments."""
    places = arrays_among(arguments)
    # Attributes of the context that are no arrays are known while the function is traced.
    constants: dict[str, Any] = {}

    def forward(*arrays: Any) -> tuple[Any, Any]:
        ctx = Context()
        result = cls.forward(ctx, *with_arrays(arguments, places, arrays))
        saved = {name: value for name, value in vars(ctx).items() if arrays_among(as_list(value))}
        constants.update({name: value for name, value in vars(ctx).items() if name not in saved})
        return result, (saved, arrays)

    def backward(saved: Any, gradients: Any) -> tuple[Any, ...]:
        attributes, arrays = saved
        ctx = Context()
        vars(ctx).update({**constants, **attributes})
        results = gradients_at(cls.backward(ctx, *as_list(gradients)), places)
        return tuple(no_gradient(x) if g is None else g for x, g in zip(arrays, results, strict=True))

    def primal(*arrays: Any) -> Any:
        return forward(*arrays)[0]

    differentiable = jax.custom_vjp(primal)
    differentiable.defvjp(forward, backward)
    return differentiable(*[arguments[place] for place in places])
