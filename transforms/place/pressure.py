"""How many registers a GPU model needs at least: what a loop carries is held all the time that it runs.

Other values can be computed again or put away; sums that a loop adds to can only be spilled. So this is a bound from
below, which tells configurations that cannot be good from those that are worth measuring.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from ziggurat.codemodel.dialects import gpu, scf
from ziggurat.codemodel.errors import ResourceError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.types import ScalarType, TensorType, TupleType, Type

MOST = 255  # Registers that a thread can have. PTX and SASS encode them in 8 bits.
FILE = 65536  # Registers of 32 bits that a multiprocessor has for the threads of a program, since sm_30.


@attrs.frozen
class Pressure:
    """What a loop carries: registers of 32 bits for each thread, and where the loop is in the kernel's source."""

    registers: int = 0
    location: Location | None = None


def pressure(module: gpu.Module) -> Pressure:
    """The largest number of registers that a loop of the model carries floating-point values in."""
    found = Pressure()
    for op in module.walk():
        if isinstance(op, scf.For | scf.While):
            count = sum(map(_registers, _parts(op.result.type)))
            if count > found.registers:
                found = Pressure(count, op.location)
    return found


def registers_of_thread(num_warps: int) -> int:
    """How many registers a thread can have when a program has so many warps: they come in eights."""
    return min(MOST, FILE // (32 * num_warps) // 8 * 8)


def check_registers(module: gpu.Module) -> None:
    """Raise `ResourceError` where a loop carries more than the threads' registers hold."""
    found, most = pressure(module), registers_of_thread(module.num_warps)
    if found.registers > most:
        raise ResourceError(
            f"a loop carries {found.registers} registers in each of {32 * module.num_warps} threads, which have {most}",
            found.location,
            hint="smaller blocks, or more warps" if most == MOST else "smaller blocks",
        )


def _parts(type_: Type) -> Iterator[Type]:
    if isinstance(type_, TupleType):
        for part in type_.components:
            yield from _parts(part)
    else:
        yield type_


def _registers(type_: Type) -> int:
    element = type_.element if isinstance(type_, TensorType) else type_
    if not isinstance(element, ScalarType) or not element.is_float:
        return 0
    count = 1
    if isinstance(type_, TensorType) and type_.layout is not None:
        count = 1 << sum(1 for basis in type_.layout.registers if basis)
    return -(-count * element.bytes // 4)
