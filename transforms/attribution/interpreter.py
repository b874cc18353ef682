"""The type interpreter: the mirror of the language that computes with types instead of values.

One method a call, named as the call. A method takes the arguments in the order of the signature: a type for each
value (None where the argument is absent), and the Python value itself for each constexpr parameter. It gives the type
of the result, a `ConstantType` where the result is known, and raises `KernelTypeError` or `KernelValueError` in words
for the kernel's author; the driver adds the place.
"""

from __future__ import annotations

from ziggurat.transforms.attribution.elementwise import ElementwiseTypes
from ziggurat.transforms.attribution.library import LibraryChecks
from ziggurat.transforms.attribution.memory import MemoryTypes
from ziggurat.transforms.attribution.programs import BuiltinTypes
from ziggurat.transforms.attribution.reductions import Combiner, ReductionTypes
from ziggurat.transforms.attribution.shapes import ShapeTypes


class TypeInterpreter(ElementwiseTypes, ShapeTypes, MemoryTypes, ReductionTypes, BuiltinTypes, LibraryChecks):
    """All calls of the language. `combiner` attributes the functions that reductions apply."""

    def __init__(self, combiner: Combiner) -> None:
        self.combiner = combiner
