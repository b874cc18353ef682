"""How many registers a GPU model needs at least: what a loop carries is held all the time that it runs.

Other values can be computed again or put away; sums that a loop adds to can only be spilled. So this is a bound from
below, which tells configurations that cannot be good from those that are worth measuring. Spilling is slow code, and
slow compiling: the time of LLVM and of the assembler grows with the square of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import attrs

from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.errors import ResourceError, ZigguratWarning
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.types import ScalarType, TensorType, TupleType, Type

MOST = 255  # Registers that a thread can have. PTX and SASS encode them in 8 bits.
REGISTERS_OF_SM = 65536  # Registers of 32 bits that a multiprocessor has for the threads of a program, since sm_30.
HOPELESS = 8 * MOST  # Of one value. Compiling takes 12 s from here on, and minutes for the next larger blocks.
OF_A_WGMMA = 128  # Registers of the sum of the widest one.
BESIDE_A_WGMMA = 26  # What ptxas wants beside them.
LONG = 512  # Elements of a tensor in one thread from which on compiling takes half a minute, where they are masked.


@attrs.frozen
class Pressure:
    """What a loop carries: registers of 32 bits for each thread, and where the loop is in the kernel's source.

    `largest` of them are for one value, which is of the type `type`.
    """

    registers: int = 0
    location: Location | None = None
    largest: int = 0
    type: Type | None = None

    @property
    def value(self) -> str:
        """The value that takes the most, in words: "a value of 256×256 f32"."""
        shape = _shape(self.type) if isinstance(self.type, TensorType) else ""
        element = self.type.element if isinstance(self.type, TensorType) else self.type
        return f"a value of {shape} {element}" if shape else f"a value of {element}"


def pressure(module: gpu.Module) -> Pressure:
    """The largest number of registers that a loop of the model carries floating-point values in."""
    found = Pressure()
    for op in module.walk():
        if isinstance(op, scf.For | scf.While):
            parts = list(_parts(op.result.type))
            counts = list(map(_registers, parts))
            if sum(counts) > found.registers:
                largest = max(range(len(parts)), key=counts.__getitem__)
                found = Pressure(sum(counts), op.location, counts[largest], parts[largest])
    return found


def registers_of_thread(num_warps: int) -> int:
    """How many registers a thread can have when a program has so many warps: they come in eights."""
    return min(MOST, REGISTERS_OF_SM // (32 * num_warps) // 8 * 8)


def check_registers(module: gpu.Module) -> None:
    """Raise `ResourceError` where a loop carries more than the threads' registers hold."""
    _check_products(module)
    found, most = pressure(module), registers_of_thread(module.num_warps)
    if found.registers > most:
        raise ResourceError(_said(found, module, most), found.location, hint=_hint(most))


def warn_of_registers(module: gpu.Module) -> None:
    """Warn where a loop carries more than the threads' registers hold: what is too much is put into memory.

    Also where a thread has so many elements of a tensor that compiling takes long: each has code of its own.

    Raises `ResourceError` where compiling would take minutes, and where an instruction cannot have its registers.
    """
    _check_products(module)
    found, most = pressure(module), registers_of_thread(module.num_warps)
    if found.largest > HOPELESS:
        raise ResourceError(
            f"{_said(found, module, most)}: {found.value} takes {found.largest}", found.location, hint=_hint(most)
        )
    if found.registers > most:
        said = (
            f"{_said(found, module, most)}: the rest is put into memory, which is slow; {_hint(most)} would do better"
        )
        _warn(said, found.location)
    elif (large := _largest(module)) is not None and large[0] >= LONG:
        count, type_, place = large
        said = f"a tensor of {_shape(type_)} has {count} elements in each of {32 * module.num_warps} threads"
        hint = "smaller blocks, or more warps"
        if count > HOPELESS:
            raise ResourceError(f"{said}: compiling that would take minutes", place, hint=hint)
        _warn(f"{said}, and compiling takes long; {hint} would do better", place)


def _warn(said: str, place: Location | None) -> None:
    file, line = ("<model>", 0) if place is None else (place.file, place.line)
    warnings.warn_explicit(said, ZigguratWarning, file, line)


def _largest(module: gpu.Module) -> tuple[int, TensorType, Location | None] | None:
    """The tensor of which a thread has the most elements: how many, its type, and where it is made."""
    seen: dict[TensorType, Location | None] = {}
    for op in module.walk():
        if isinstance(op.result.type, TensorType):
            seen.setdefault(op.result.type, op.location)
    if not seen:
        return None
    largest = max(seen, key=_elements)
    return _elements(largest), largest, seen[largest]


def _check_products(module: gpu.Module) -> None:
    """Raise `ResourceError` where one wgmma needs more registers than a thread has: ptxas could not put them away."""
    most = registers_of_thread(module.num_warps)
    for op in module.walk():
        if not isinstance(op, gpu.Wgmma):
            continue
        count = _registers(op.result.type, lambda element: True)  # Sums of integers, too.
        if min(count, OF_A_WGMMA) + BESIDE_A_WGMMA > most:
            raise ResourceError(
                f"the sum of a product takes {count} registers in each of {32 * module.num_warps} threads, which have"
                f" {most}, and its addresses and operands need some, too",
                op.location,
                hint="smaller blocks",
            )


def _shape(type_: TensorType) -> str:
    return "×".join(map(str, type_.shape))


def _elements(type_: TensorType) -> int:
    """How many elements of a tensor a thread has."""
    return 1 if type_.layout is None else 1 << sum(1 for basis in type_.layout.registers if basis)


def _said(found: Pressure, module: gpu.Module, most: int) -> str:
    return f"a loop carries {found.registers} registers in each of {32 * module.num_warps} threads, which have {most}"


def _hint(most: int) -> str:
    return "smaller blocks, or more warps" if most == MOST else "smaller blocks"


def _parts(type_: Type) -> Iterator[Type]:
    if isinstance(type_, TupleType):
        for part in type_.components:
            yield from _parts(part)
    else:
        yield type_


def _registers(type_: Type, counts: Callable[[ScalarType], bool] = lambda element: element.is_float) -> int:
    """Registers of a thread for a value, if its elements are of a type that `counts`."""
    element = type_.element if isinstance(type_, TensorType) else type_
    if not isinstance(element, ScalarType) or not counts(element):
        return 0
    count = _elements(type_) if isinstance(type_, TensorType) else 1
    return -(-count * element.bytes // 4)
