"""Functions with gradients, under PyTorch's autograd and `torch.compile`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ziggurat.frameworks.torch_ops import torch
from ziggurat.pytriton.functions import gradients_at

if TYPE_CHECKING:
    from ziggurat.pytriton.functions import function


def apply(cls: type[function], arguments: tuple[Any, ...]) -> Any:
    """The result of the function for the arguments."""
    _make_autograd_function(cls)
    return cls.autograd_function.apply(*arguments)


@torch._dynamo.assume_constant_result
def _make_autograd_function(cls: type[function]) -> bool:
    """Give the class its `torch.autograd.Function`, once.

    `torch.compile` traces no definition of a class, so it calls this function while it traces. The class is an
    attribute, and not the result, because `torch.compile` can guard an attribute but not a result.
    """
    if "autograd_function" not in vars(cls):

        def forward(ctx: Any, *arguments: Any) -> Any:
            ctx.count = len(arguments)
            return cls.forward(ctx, *arguments)

        def backward(ctx: Any, *gradients: Any) -> Any:
            # Autograd's gradients may have strides of 0, as that of a sum has; kernels take them for contiguous.
            cotangents = [None if gradient is None else gradient.contiguous() for gradient in gradients]
            return tuple(gradients_at(cls.backward(ctx, *cotangents), range(ctx.count)))

        methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        cls.autograd_function = type(cls.__name__, (torch.autograd.Function,), methods)
    return True
