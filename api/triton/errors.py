"""The base of the errors that programs catch as Triton's. Errors of ziggurat stay those of `ziggurat`."""

from ziggurat.codemodel.errors import ZigguratError as TritonError

__all__ = ["TritonError"]
