"""Register-limited kernels: ptxas is told that an occupancy of one CTA is enough for them.

ptxas weighs spills against occupancy, and errs where spills cannot be avoided. Of a 256×256 f32 accumulator in 16
warps, whose threads can have 128 registers and carry 128 around the loop, it takes 32 and spills almost everything. It
takes 128, with a third of the spills, where the text asks for one CTA per SM:

    attributes #0 = { convergent nounwind "nvvm.reqntid"="512" "nvvm.minctasm"="1" }

LLVM writes this as `.minnctapersm 1`. Other kernels do not ask for it: they would get some more registers, gain
nothing, and lose occupancy.
"""

from __future__ import annotations

from ziggurat.backend.ptx.roles import warps_of
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.types import Type, i1
from ziggurat.transforms.place.components import component_types
from ziggurat.transforms.place.pressure import registers_of_thread, value_registers


def is_register_limited(module: gpu.Module) -> bool:
    """Whether a loop needs all registers that its threads can have.

    A loop needs registers for the numbers that it carries, and for the operands of its widest reduction or scan.
    ptxas finds the registers for the operands of a wgmma, or fails: kernels with wgmma do not count as limited.
    """
    if any(isinstance(op, gpu.Wgmma) for op in module.walk()):
        return False
    available = registers_of_thread(warps_of(module))
    return any(_needed(op) >= available for op in module.walk() if isinstance(op, Loop))


def _needed(loop: Op) -> int:
    combined = (
        sum(_registers(value.type) for value in op.operands)
        for op in loop.walk()
        if isinstance(op, tt.Reduce | tt.Scan)
    )
    return _registers(loop.result.type) + max(combined, default=0)


def _registers(type_: Type) -> int:
    """Registers of 32 bits a thread for a value; 0 for pointers, which LLVM computes again, and for booleans."""
    return sum(value_registers(part, lambda element: element != i1) for part in component_types(type_))
