"""Triton's programs on ziggurat: `import ziggurat.triton as triton`, `import ziggurat.triton.language as tl`."""

from ziggurat.triton import language as language
from ziggurat.triton.jit import JITFunction, jit

__all__ = ["JITFunction", "jit", "language"]
