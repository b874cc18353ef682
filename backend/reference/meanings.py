"""The table of what the ops of the Triton model mean in NumPy; the other files of this package fill it."""

from __future__ import annotations

from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.interpret import Meaning

triton = OpTable[Meaning]("meaning in NumPy")
