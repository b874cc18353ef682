"""Gradients of kernels, by reverse-mode differentiation of the Triton code model."""

from ziggurat.transforms.differentiate.adjoint import gradients
from ziggurat.transforms.differentiate.gradient import accumulates, differentiate

__all__ = ["accumulates", "differentiate", "gradients"]
