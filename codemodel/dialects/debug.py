"""The debug dialect: what a debugger needs to know of the source. Only models for debuggers have its ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziggurat.codemodel.fields import attribute, operands
from ziggurat.codemodel.op import Op, Value, require
from ziggurat.codemodel.traits import PythonTier


class Statement(Op, PythonTier, name="debug.statement"):
    """A statement of a Python model begins: that of the location. `breaks` marks `breakpoint()`.

    A loop has it at its head before each iteration, and once more at its end, as Python's debugger stops.
    """

    breaks: bool = attribute(bool, default=False)


class Stop(Op, name="debug.stop"):
    """A statement of the function of this name begins in a Triton model: that of the location.

    `names` are those of the variables that have a value here, one for each operand; the components of a tuple are
    `pair.0` and `pair.1`. `constants` are the names and values of variables that are known at compile time. `breaks`
    marks `breakpoint()`.
    """

    values: Sequence[Value] = operands()
    function: str = attribute(str, unnamed=True)
    names: tuple[str, ...] = attribute([str], default=())
    constants: tuple[Any, ...] = attribute(object, default=())
    breaks: bool = attribute(bool, default=False)

    def check(self) -> None:
        require(
            len(self.values) == len(self.names),
            f"{self.NAME}: each operand must have a name; got {len(self.values)} operands and {len(self.names)} names",
        )
