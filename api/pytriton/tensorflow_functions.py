"""Functions with gradients, under TensorFlow's `GradientTape` and `tf.function`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ziggurat.frameworks.tensorflow_ops import tf
from ziggurat.pytriton.functions import Context, arrays_among, gradients_at, with_arrays

if TYPE_CHECKING:
    from ziggurat.pytriton.functions import function


def apply(cls: type[function], arguments: tuple[Any, ...]) -> Any:
    """The result of the function for the arguments."""
    places = arrays_among(arguments)

    def differentiable(*tensors: Any) -> tuple[Any, Any]:
        ctx = Context()
        result = cls.forward(ctx, *with_arrays(arguments, places, tensors))

        def backward(*gradients: Any) -> list[Any]:
            return gradients_at(cls.backward(ctx, *gradients), places)

        return result, backward

    return tf.custom_gradient(differentiable)(*[tf.convert_to_tensor(arguments[place]) for place in places])
