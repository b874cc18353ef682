"""The register pressure of a GPU model, bounded from below: values that a loop carries live as long as it runs.

Other values can be computed again or spilled; accumulators can only be spilled. So the bound tells configurations that
cannot be good from those that are worth measuring. Spills are slow code, and slow compiling: the time of LLVM and of
ptxas grows with the square of their number.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from ziggurat.codemodel.errors import ResourceError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import ResultInFlight
from ziggurat.codemodel.gpu.options import MAX_REGISTERS
from ziggurat.codemodel.gpu.scope import WarpScope, scope_of
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.types import ScalarType, TensorType, Type, component_types, element_of, void
from ziggurat.transforms.analysis.obstacle import warn
from ziggurat.transforms.cost.budget import BESIDE_WGMMA, OF_WGMMA, registers_of_thread

MAX_VALUE_REGISTERS = 8 * MAX_REGISTERS  # A larger value takes 12 s to compile, the next ones minutes.
SLOW_ELEMENTS = 512  # A thread. A masked tensor with more takes half a minute to compile.


@attrs.frozen
class Pressure:
    """The values that a loop carries: registers of 32 bits a thread, and the location of the loop.

    `type` is that of the value with the most registers, and `scope` that of the loop.
    """

    scope: WarpScope
    registers: int = 0
    location: Location | None = None
    type: Type = void

    @property
    def largest(self) -> int:
        """The registers of the value with the most."""
        return value_registers(self.type)

    @property
    def value(self) -> str:
        """The value with the most registers, in words: "a value of 256×256 f32"."""
        if isinstance(self.type, TensorType):
            return f"a value of {_shape(self.type)} {self.type.element}"
        return f"a value of {self.type}"


def pressure(module: gpu.Module) -> Pressure:
    """The largest number of registers in which a loop of the model carries floating-point values."""
    worst = Pressure(module.scopes[0])
    for op in module.walk():
        if isinstance(op, Loop):
            parts = component_types(op.result.type)
            registers = sum(map(value_registers, parts))
            if registers > worst.registers:
                worst = Pressure(scope_of(op), registers, op.location, max(parts, key=value_registers))
    return worst


def _in_scope(scope: WarpScope) -> tuple[int, str]:
    """The registers that a thread of a scope has, also in words."""
    most = scope.registers or registers_of_thread(scope.warps)
    return most, f"in each of {scope.threads} threads, which have {most}"


def check_registers(module: gpu.Module) -> None:
    """Raise `ResourceError` if a loop carries more than the threads' registers hold, also with another accumulator."""
    peak, demand, most = _carried(module)
    if peak.registers > most:
        raise ResourceError(demand, peak.location, hint=_hint(most))
    for loop in (op for op in module.walk() if isinstance(op, Loop)):
        own, beside = loop_registers(loop)
        most, threads = _in_scope(scope_of(loop))
        if own + beside > most:
            message = f"a loop carries {own} registers and computes {beside} {threads}"
            raise ResourceError(message, loop.location, hint=_hint(most))


def loop_registers(loop: Op) -> tuple[int, int]:
    """The registers of a thread for floating-point values that a loop carries, and for another accumulator in it."""
    own = sum(map(value_registers, component_types(loop.result.type)))
    # A dot that starts from zero, as attention's scores: the loop does not carry its result.
    fresh = [op for op in loop.walk() if isinstance(op, ResultInFlight) and not op.adds and not op.is_part]
    return own, max((value_registers(op.result.type) for op in fresh), default=0)


def warn_of_registers(module: gpu.Module) -> None:
    """Warn if a loop carries more than the threads' registers hold, so that the rest is spilled.

    Warn as well if a thread has so many elements of a tensor that compiling takes long: each has its own code. Raises
    `ResourceError` if compiling would take minutes, and if an instruction cannot have its registers.
    """
    peak, demand, most = _carried(module)
    if peak.largest > MAX_VALUE_REGISTERS:
        raise ResourceError(f"{demand}: {peak.value} takes {peak.largest}", peak.location, hint=_hint(most))
    if peak.registers > most:
        message = f"{demand}: the rest is spilled to memory, which is slow; {_hint(most)} would do better"
        warn(message, peak.location)
        return
    tensors: dict[Type, Op] = {}
    for op in module.walk():
        tensors.setdefault(op.result.type, op)
    type_ = max((type_ for type_ in tensors if isinstance(type_, TensorType)), key=_elements, default=None)
    if type_ is None or _elements(type_) < SLOW_ELEMENTS:
        return
    threads = scope_of(tensors[type_]).threads
    message = f"a tensor of {_shape(type_)} has {_elements(type_)} elements in each of {threads} threads"
    hint = _hint(MAX_REGISTERS)
    if _elements(type_) > MAX_VALUE_REGISTERS:
        raise ResourceError(f"{message}: compiling that would take minutes", tensors[type_].location, hint=hint)
    warn(f"{message}, and compiling takes long; {hint} would do better", tensors[type_].location)


def _carried(module: gpu.Module) -> tuple[Pressure, str, int]:
    """The values that a loop carries, in words as well, and the registers that a thread has.

    Raises `ResourceError` if one wgmma needs more registers than that: ptxas could not spill them.
    """
    peak = pressure(module)
    for op in (op for op in module.walk() if isinstance(op, ResultInFlight)):
        most, threads = _in_scope(scope_of(op))
        count = value_registers(op.result.type, lambda element: True)  # Accumulators of integers, too.
        if min(count, OF_WGMMA) + BESIDE_WGMMA > most:
            message = (
                f"the accumulator of a dot takes {count} registers {threads}; its addresses and operands need some, too"
            )
            raise ResourceError(message, op.location, hint="use smaller blocks")
    most, threads = _in_scope(peak.scope)
    return peak, f"a loop carries {peak.registers} registers {threads}", most


def _shape(type_: TensorType) -> str:
    return "×".join(map(str, type_.shape))


def _elements(type_: TensorType) -> int:
    """The number of elements of a tensor that a thread has."""
    return 1 if type_.layout is None else 1 << sum(1 for basis in type_.layout.registers if basis)


def _hint(most: int) -> str:
    return "smaller blocks, or more warps" if most == MAX_REGISTERS else "smaller blocks"


def value_registers(type_: Type, counts: Callable[[ScalarType], bool] = lambda element: element.is_float) -> int:
    """The registers of a thread for a value, if its elements are of a type that `counts`."""
    element = element_of(type_)
    if not isinstance(element, ScalarType) or not counts(element):
        return 0
    count = _elements(type_) if isinstance(type_, TensorType) else 1
    return -(-count * element.bytes // 4)
