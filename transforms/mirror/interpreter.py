"""The builder interpreter: the mirror of the language that appends ops of the Triton model.

One method a call, named as the call. A method takes the attributed result type, then the arguments in the order of
the signature: an `Operand` for each value (None where absent), and the Python value for each constexpr parameter.
Conversions are made fresh at the user, left operand first; what an operand stands for is never changed.
"""

from __future__ import annotations

from ziggurat.transforms.mirror.elementwise import ElementwiseBuilder
from ziggurat.transforms.mirror.emit import Emitter
from ziggurat.transforms.mirror.memory import MemoryBuilder
from ziggurat.transforms.mirror.programs import ProgramBuilder
from ziggurat.transforms.mirror.reductions import Functions, ReductionBuilder
from ziggurat.transforms.mirror.shapes import ShapeBuilder


class BuilderInterpreter(ElementwiseBuilder, ShapeBuilder, MemoryBuilder, ReductionBuilder, ProgramBuilder):
    """All calls of the language."""

    def __init__(self, emit: Emitter, functions: Functions) -> None:
        self.emit = emit
        self.functions = functions
