"""The errors that programs catch as Triton's. Errors of Triton functions are of these classes besides our own."""

from ziggurat.frontends.triton.triton_errors import TritonError

__all__ = ["TritonError"]
