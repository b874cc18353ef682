"""From a Triton model to an object file for a CPU: the CPU model, LLVM text, and llvmlite's code for the machine."""

from __future__ import annotations

import platform
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from ziggurat.backend.cpu import control, halves, notes
from ziggurat.backend.cpu.code import ArgumentSlot, CpuCode, CpuOptions
from ziggurat.backend.cpu.emitter import EMITTERS, METADATA, CpuEmitter, kind_of, memory_kind, symbol_of
from ziggurat.backend.cpu.factors import RELEASE
from ziggurat.backend.cpu.outline import outlined
from ziggurat.backend.cpu.shared import share
from ziggurat.backend.cpu.streaming import FENCE
from ziggurat.backend.cpu.table_functions import use_quick_quotients
from ziggurat.backend.jit.loading import llvm
from ziggurat.backend.llvm.elementwise import RULES
from ziggurat.codemodel.dialects import arith, core, cpu, tt
from ziggurat.codemodel.dispatch import demand
from ziggurat.codemodel.errors import InternalError, TargetError, warn
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import DescriptorType
from ziggurat.transforms.cpu.allocate import allocate
from ziggurat.transforms.cpu.cpu_passes import lower
from ziggurat.transforms.cpu.traffic import demand_sound

# The modules that register emitters.
PARTS = tuple(
    import_module(f"ziggurat.backend.cpu.{name}")
    for name in ("casts", "control", "elementwise_ops", "indices", "memory", "nest", "sorts", "tiles")
)


HOST = CpuOptions()


def compile_cpu(module: core.Module | cpu.Module, options: CpuOptions = HOST) -> CpuCode:
    """Compile the kernel of a Triton model, or a CPU model, whose buffers get new places. Raises the errors of the
    kernel, `TargetError` for a CPU model with wider vectors, and `InternalError` where LLVM rejects the text."""
    demand(module, {"backend.llvm.elementwise.RULES": RULES, "backend.cpu.emitter.EMITTERS": EMITTERS})
    options = options.resolved()
    if options.tolerant and not options.devices:
        _demand_no_addresses(module)
    vector = vector_bytes(options.features)
    if isinstance(module, cpu.Module) and module.vector > vector:
        raise TargetError(
            f"the model is for vectors of {module.vector} bytes; those of this processor have {vector}",
            hint="make the CPU model of the Triton model again, for this processor",
        )
    if isinstance(module, cpu.Module):
        demand_sound(module)
        model = allocate(module)
    else:
        model = lower(module, vector)
    emitter, text = to_llvm(model, options)
    if "@llvm.fma." in text and _is_x86() and "+fma" not in options.features.split(","):
        warn_of_slow_fma()
    func = emitter.func
    parts = func.parts or tuple(map(str, range(len(func.body.parameters))))
    split = [part.partition(".") for part in parts]
    return CpuCode(
        symbol=symbol_of(func),
        object=to_object(text, options),
        llvm=text,
        model=str(model),
        parameters=tuple(
            ArgumentSlot(str(parameter.type), int(number), part)
            for parameter, (number, _, part) in zip(func.body.parameters, split, strict=True)
        ),
        bounds=tuple(emitter.bounds),
        scratch=emitter.scratch,
        ordered=emitter.ordered,
        sites=tuple(emitter.sites),
        cpu=options.cpu,
        features=options.features,
        tolerant=options.tolerant,
    )


def _demand_no_addresses(module: core.Module | cpu.Module) -> None:
    """Raise `TargetError` for pointers made from integers, which may be addresses of arrays that the launch does not
    name: their bounds are not known. The null pointer is in no array."""
    for op in module.walk():
        if isinstance(op, tt.IntToPtr) and not _is_zero(op.operands[0]):
            raise TargetError(
                "a pointer is made from an integer, which may be the address of an array that the launch does not name",
                op.location,
                hint="pass the array itself",
            )


def _is_zero(value: Value) -> bool:
    return isinstance(value.op, arith.ConstantOp) and value.op.value == 0


def _is_x86() -> bool:
    return platform.machine() in ("x86_64", "AMD64")


@cache
def warn_of_slow_fma() -> None:
    """Warn once that results cost a call of the C library for each multiply-add. A product and a sum would not do: they
    round twice."""
    warn(
        "this processor has no fused multiply-add: dots and functions of floats are slow, as each is computed in C",
        None,
    )


def vector_bytes(features: str) -> int:
    """The bytes of a vector register of a machine with these features."""
    names = set(features.split(","))
    return 64 if "+avx512f" in names else 32 if "+avx2" in names else 16


def to_llvm(module: cpu.Module, options: CpuOptions) -> tuple[CpuEmitter, str]:
    """The LLVM text of a CPU model, and the emitter that wrote it."""
    (func,) = module.functions().values()
    assert isinstance(func, tt.Func)
    emitter = CpuEmitter(module, func, options)
    loads: list[str] = []
    for number, parameter in enumerate(func.body.parameters):
        if isinstance(parameter.type, DescriptorType):  # Of a parameter that nothing uses.
            continue
        emitter.values[parameter] = emitter.number(kind_of(parameter.type), f"%p{number}")
        kind = memory_kind(parameter.type)
        loads.append(f"  %a{number} = getelementptr i64, ptr %arguments, i64 {number}")
        loads.append(f"  %p{number}{'m' if kind != kind_of(parameter.type) else ''} = load {kind}, ptr %a{number}")
        if kind != kind_of(parameter.type):
            loads.append(f"  %p{number} = icmp ne i8 %p{number}m, 0")
    control.function_body(emitter, func.body)
    use_quick_quotients(emitter)
    emitter.start("next")
    emitter.poll("going")
    bits = 8 * module.vector
    last = "".join(f"  call {end}\n" for end in (FENCE, RELEASE) if f"declare {end}" in emitter.declarations)
    debug = f" !dbg !{emitter.places.subprogram}" if emitter.places is not None else ""
    kernel = [
        "entry:",
        *loads,
        *emitter.slots,
        *(f"  %g{axis} = getelementptr i32, ptr %launch, i64 {axis}" for axis in range(3)),
        *(f"  %grid{axis} = load i32, ptr %g{axis}" for axis in range(3)),
        "  %host.at = getelementptr i64, ptr %launch, i64 2",
        "  %host = load ptr, ptr %host.at",
        "  %scratch = ptrtoint ptr %memory to i64",
        *emitter.reservations(),
        "  %some = icmp slt i64 %first, %end",
        "  br i1 %some, label %programs, label %done",
        "programs:",
        "  %program = phi i64 [ %first, %entry ], [ %following, %going ]",
        "  %number = trunc i64 %program to i32",
        "  %pid0 = urem i32 %number, %grid0",
        "  %row = udiv i32 %number, %grid0",
        "  %pid1 = urem i32 %row, %grid1",
        "  %pid2 = udiv i32 %row, %grid1",
        "  br label %start",
        "start:",
        *emitter.restarts,
        *emitter.levels[0].lines,
        "  %following = add nsw i64 %program, 1",
        "  %more = icmp slt i64 %following, %end",
        "  br i1 %more, label %programs, label %done",
        "done:",
        "  ret i64 0",
    ]
    symbol = symbol_of(func)
    slow = share(symbol, (kernel, *emitter.parts), "#2")
    kernel, functions = outlined(symbol, kernel, emitter.parts, emitter.places)
    attributes = f'nounwind uwtable "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    lines = [
        f"define i64 @{symbol}(ptr noalias %arguments, i64 %first, i64 %end, ptr noalias %launch, "
        f"ptr noalias align 64 %memory, ptr noalias %record) #0{debug} {{",
        *(line.replace("  ret", f"{last}  ret") for line in (*kernel, "}", *functions, *slow)),
        *emitter.declarations,
        *(text.replace(" addrspace(4)", "") for text in emitter.variables.values()),
        *map(_inlined, emitter.definitions.values()),
        *([notes.text(len(emitter.sites))] if options.tolerant else ()),
        f"attributes #0 = {{ {attributes} }}",
        *([f"attributes #1 = {{ noinline {attributes} }}"] if functions else ()),
        *([f"attributes #2 = {{ noinline cold {attributes} }}"] if slow else ()),
        *([halves.text()] if _is_x86() and "+f16c" not in options.features.split(",") else ()),
        *(f"!{number} = {text}" for number, text in enumerate(METADATA)),
        *(emitter.places.metadata() if emitter.places is not None else ()),
    ]
    return emitter, "\n".join(lines) + "\n"


def _inlined(text: str) -> str:
    """A routine without the GPU's address spaces. Short ones are inlined, into loops that keep their constants."""
    text = text.replace(" addrspace(4)", "")
    return (
        text
        if "noinline" in text
        else text.replace(") nounwind {", ") alwaysinline nounwind {").replace(
            ") nounwind  {", ") alwaysinline nounwind {"
        )
    )


# LLVM.


@lru_cache(maxsize=8)
def machine(cpu_name: str, features: str) -> Any:
    """LLVM's code generator for a machine."""
    target = llvm().Target.from_default_triple()
    return target.create_target_machine(cpu=cpu_name, features=features, opt=2, reloc="pic", codemodel="default")


def optimized(text: str, options: CpuOptions) -> Any:
    """LLVM's module of a text, after the passes for CPUs."""
    binding = llvm()
    try:
        module = binding.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM rejects the emitted text: {error}", text) from None
    target_machine = machine(options.cpu, options.features)
    module.triple = target_machine.triple
    module.data_layout = str(target_machine.target_data)
    passes = binding.create_new_module_pass_manager()
    # Others cost more than the code generator gains, which simplifies, too; and after passes over functions, llvmlite
    # keeps 55 kB for each module.
    passes.add_always_inliner_pass()
    tuning = binding.create_pipeline_tuning_options(speed_level=1)
    passes.run(module, binding.create_pass_builder(target_machine, tuning))
    return module


def to_object(text: str, options: CpuOptions) -> bytes:
    """The object file of LLVM text."""
    return machine(options.cpu, options.features).emit_object(optimized(text, options))


def to_assembly(text: str, options: CpuOptions) -> str:
    """The machine's assembly of LLVM text."""
    return machine(options.cpu, options.features).emit_assembly(optimized(text, options))
