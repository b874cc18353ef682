"""Kernels whose loops carry all the registers that a thread can have, of which the assembler is told that.

ptxas weighs spills against how many programs run on a multiprocessor, and errs where the first cannot be avoided: of a
product of 256×256 f32 by 16 warps, whose threads can have 128 registers and carry 128, it takes 32 and puts almost
everything into memory. It does not where the text says that one program is enough:

    attributes #0 = { convergent nounwind "nvvm.reqntid"="512" "nvvm.minctasm"="1" }

of which `.minnctapersm 1` becomes: 128 registers, and a third of the spills. Kernels that carry less are not told so.
They would get some more registers, which bring them nothing and leave room for fewer programs.
"""

from __future__ import annotations

from ziggurat.backend.ptx.roles import warps_of
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.transforms.place.pressure import pressure, registers_of_thread


def is_crowded(module: gpu.Module) -> bool:
    """Whether the floating-point values that a loop carries take all registers that its threads can have.

    That is said of no kernel with wgmma, for whose operands ptxas finds the registers, or fails.
    """
    if any(isinstance(op, gpu.Wgmma) for op in module.walk()):
        return False
    return pressure(module).registers >= registers_of_thread(warps_of(module))
