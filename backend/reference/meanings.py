"""The table of the meanings of Triton ops in NumPy. The other files of this package fill it."""

from __future__ import annotations

from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.interpret import Meaning

triton = OpTable[Meaning]("meaning in NumPy")
