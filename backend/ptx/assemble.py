"""From a GPU model to LLVM text, and from that to PTX by llvmlite's NVPTX target.

ptxas is told that an occupancy of one CTA is enough for register-limited kernels. It weighs spills against occupancy,
and errs where spills cannot be avoided. Of a softmax whose threads have 512 elements, it takes 32 registers and spills
20 KB, with this line 255 and 8 KB. Of a 256×256 f32 accumulator in 16 warps, whose threads can have 128 registers
and carry 128 around the loop, it takes 32 and spills almost everything. It takes 128, with a third of the spills, where
the text asks for one CTA per SM:

    attributes #0 = { convergent nounwind "nvvm.reqntid"="512" "nvvm.minctasm"="1" }

LLVM writes this as `.minnctapersm 1`. Other kernels do not ask for it: they would get some more registers, gain
nothing, and lose occupancy. They are assembled again with the registers of the occupancy that they get (`bound`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import attrs

from ziggurat.backend.llvm.binding import has_llvm, llvm
from ziggurat.backend.llvm.routines import llvm_type
from ziggurat.backend.ptx import control, roles
from ziggurat.backend.ptx.emitter import PtxEmitter, symbol_of
from ziggurat.backend.ptx.tma import MAP_PARAMETER
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.errors import InternalError, ResourceError, TargetError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import ResultInFlight
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS, CompileOptions
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.op import Op, Value, is_foreign
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.types import DescriptorType, PtrType, Type, component_types, i1
from ziggurat.transforms.analysis.queries import function_of
from ziggurat.transforms.cost.budget import CTAS, WARPS, limits, registers_of_thread
from ziggurat.transforms.cost.pressure import value_registers

# The modules that register emitters.
PARTS = tuple(
    import_module(f"ziggurat.backend.ptx.{name}")
    for name in (
        "atomics", "casts", "clusters", "control", "debug", "divisions", "elementwise_ops", "inline_asm", "matrix",
        "memory", "reductions", "roles", "shared", "shuffles", "tensors", "tma",
    )
)  # fmt: skip


@attrs.frozen
class Assembly:
    """The texts of a kernel. `symbol` is its name in the PTX, which is empty without llvmlite."""

    symbol: str
    llvm: str
    ptx: str


def to_llvm(module: gpu.Module, options: CompileOptions = DEFAULT_OPTIONS) -> str:
    """The LLVM text of a GPU model."""
    emitter = PtxEmitter(module, options)
    func = function_of(module)
    parameters: list[str] = []
    divisibility: Sequence[int] = func.divisibility or (1,) * len(func.body.parameters)
    for index, (parameter, divisor) in enumerate(zip(func.body.parameters, divisibility, strict=True)):
        attribute = f" align {divisor}" if isinstance(parameter.type, PtrType) and divisor > 1 else ""
        kind = MAP_PARAMETER if isinstance(parameter.type, DescriptorType) else llvm_type(parameter.type)
        parameters.append(f"{kind}{attribute} %p{index}")
        emitter.values[parameter] = f"%p{index}"
    emitter.label = "start"
    control.function_body(emitter, func.body)
    _check_shared(module, emitter.slot_bytes)
    threads = 32 * module.num_warps
    registers = roles.registers_of(module)
    if registers is None:
        registers = options.maxnreg
    limit = f' "nvvm.maxnreg"="{registers}"' if registers is not None else ""
    if registers is None and (ctas := ctas_to_ask_for(module)):
        limit += f' "nvvm.minctasm"="{ctas}"'  # CTAs per SM: .minnctapersm
    if func.num_ctas > 1:
        limit += f' "nvvm.cluster_dim"="{func.num_ctas},1,1"'
    debug = f" !dbg !{emitter.places.subprogram}" if emitter.places is not None else ""
    lines = [
        'target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"',
        'target triple = "nvptx64-nvidia-cuda"',
        *emitter.types.values(),
        "@smem = external addrspace(3) global [0 x i8], align 1024",
        f"define ptx_kernel void @{symbol_of(func.sym_name)}({', '.join(parameters)}) #0{debug} {{",
        "entry:",
        *emitter.preamble,
        "  br label %start",
        "start:",
        *emitter.lines,
        "}",
        *emitter.declarations,
        *emitter.variables.values(),
        *emitter.definitions.values(),
        f'attributes #0 = {{ convergent nounwind "nvvm.reqntid"="{threads}"{limit} }}',
        "attributes #1 = { convergent nounwind }",
        "attributes #2 = { convergent nounwind memory(none) }",
        "attributes #3 = { convergent nounwind memory(read) }",
        "attributes #4 = { nounwind }",
        *emitter.metadata,
        *(emitter.places.metadata() if emitter.places is not None else ()),
    ]
    return "\n".join(lines) + "\n"


def _check_shared(module: gpu.Module, slot: int) -> None:
    """Raise `ResourceError` where the buffers leave no room in shared memory for the results of atomics."""
    most = TARGETS[module.target].max_shared
    if slot and module.shared + slot > most:
        raise ResourceError(
            f"the kernel's buffers take {module.shared} bytes of shared memory and the results of its atomics {slot}; "
            f"a CTA has {most} on {module.target}",
            hint="use smaller blocks, or fewer stages",
        )


@lru_cache(maxsize=1)
def _llvm() -> Any:
    """llvmlite's binding, with the code generators of all targets."""
    binding = llvm()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding


@lru_cache(maxsize=8)
def _machine(target: str) -> Any:
    """LLVM's code generator. At level 3 it numbers values once more, which the passes before have done."""
    features = f"+ptx{TARGETS[target].ptx.replace('.', '')}"
    triple = _llvm().Target.from_triple("nvptx64-nvidia-cuda")
    return triple.create_target_machine(cpu=target, features=features, opt=2)


def to_ptx(llvm_text: str, target: str) -> str:
    """The PTX of LLVM text. Raises `InternalError` where LLVM rejects it."""
    return _machine(target).emit_assembly(_optimized(llvm_text, target))


def optimized(llvm_text: str, target: str) -> str:
    """The text after LLVM's passes, those of its code generation included.

    The PTX of `to_ptx` is selected from it. It is another program where the emitted text makes a promise that does not
    hold. Raises `InternalError` where LLVM rejects the text.
    """
    module = _optimized(llvm_text, target)
    _machine(target).emit_assembly(module)  # Its passes change the module in place.
    return str(module)


def _optimized(llvm_text: str, target: str) -> Any:
    """LLVM's module of a text, after the passes for all targets."""
    llvm = _llvm()
    try:
        module: Any = llvm.parse_assembly(llvm_text)
        if "Debug Info Version" not in llvm_text:  # Otherwise the parser has verified the module.
            module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM rejects the emitted text: {error}", llvm_text) from None
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    # Emitted code has its vectors, and its loops are unrolled as the kernel says.
    options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(_machine(target), options)
    builder.getModulePassManager().run(module, builder)
    return module


def assemble(module: gpu.Module, options: CompileOptions = DEFAULT_OPTIONS) -> Assembly:
    """All texts of a GPU model."""
    text = to_llvm(module, options)
    if names := sorted({op.NAME for op in module.walk() if is_foreign(type(op))}):
        _require_valid(text, names)
    return Assembly(symbol_of(function_of(module).sym_name), text, to_ptx(text, module.target) if has_llvm() else "")


_DEBUG_INFO = re.compile(r",? !dbg !\d+|^!llvm\.(dbg\.cu|module\.flags) = .*", re.MULTILINE)


def _require_valid(text: str, names: Sequence[str]) -> None:
    """Raise `TargetError` where LLVM rejects a text with what functions of the user's have written for these ops.

    LLVM's parser ends the process at the first mistake in a text with debug information.
    """
    if has_llvm():
        try:
            _llvm().parse_assembly(_DEBUG_INFO.sub("", text)).verify()
        except RuntimeError as error:
            raise TargetError(
                f"LLVM rejects the emitted text: {error}",
                hint=f"look at the functions that write LLVM text for {', '.join(names)}",
            ) from None


def ctas_to_ask_for(module: gpu.Module) -> int:
    """The CTAs per SM that ptxas is to leave registers for; 0 to let it choose.

    A tensor of floats, or one that is loaded, has registers of its own. A loop needs registers for the numbers that it
    carries, and for those that it loads in an iteration, whose loads then all begin at once, or for the operands of its
    widest reduction or scan. So do the loads outside of loops: of four of 64 registers each, ptxas took 32 registers
    and spilled 13 KB. It finds the registers for the operands of a wgmma, or fails: kernels with wgmma do not
    ask for CTAs. Other dots need more registers than those that are counted.

    A loop whose values leave room for 16 warps on an SM asks for these: for gradients of layer norm with 70 registers
    of values, ptxas took 154, with which an SM has one CTA of 8 warps, where 128 are as good.
    """
    ops = [*module.walk()]
    if any(isinstance(op, ResultInFlight) for op in ops):
        return 0
    loops, loads = [op for op in ops if isinstance(op, Loop)], _of_loads(function_of(module))
    values = [_registers(op.result.type) for op in ops if isinstance(op, tt.Load) or value_registers(op.result.type)]
    if max([loads, *values, *map(_needed, loops)]) >= registers_of_thread(module.num_warps):
        return 1
    if any(isinstance(op, tt.Dot | gpu.Mma) for op in ops):
        return 0
    if limits(TARGETS[module.target], module.num_warps, 0, 0)["warps"] == CTAS:
        live = [_needed(loop) + sum(_registers(value.type) for value in loop.captured_values()) for loop in loops]
        return CTAS if max([loads, *live]) <= registers_of_thread(module.num_warps, CTAS) else 0
    # Of smaller CTAs an SM has several, unless ptxas takes more registers than what a loop holds asks for.
    ctas = WARPS // module.num_warps
    room = registers_of_thread(module.num_warps, ctas) if ctas > 1 else 0
    live = [
        _needed(loop) + sum(value_registers(v.type) for v in loop.captured_values() if not _is_uniform(v))
        for loop in loops
    ]
    return ctas if room // 2 <= max(live, default=0) <= room * 5 // 8 else 0


def _is_uniform(value: Value) -> bool:
    """Whether all elements of a tensor are one constant or scalar, which takes a register at most."""
    return isinstance(value.op, arith.ConstantOp | tt.Splat)


def _of_loads(op: Op) -> int:
    """The registers for what the bodies of an op load, without the bodies of ops in them."""
    own = (op for body in op.bodies for block in body.blocks for op in block.ops)
    return sum(_registers(op.result.type) for op in own if isinstance(op, tt.Load))


def _needed(loop: Op) -> int:
    combined = (
        sum(_registers(value.type) for value in op.operands)
        for op in loop.walk()
        if isinstance(op, tt.Reduce | tt.Scan)
    )
    return _registers(loop.result.type) + max([_of_loads(loop), *combined])


def _registers(type_: Type) -> int:
    """Registers of 32 bits a thread for a value; 0 for pointers, which LLVM computes again, and for booleans."""
    return sum(value_registers(part, lambda element: element != i1) for part in component_types(type_))
