"""`compiled.save`: one kernel as a file for C, with its header."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from ziggurat.backend.cpu.code import CpuCode
from ziggurat.backend.ptx.sass import machine_code
from ziggurat.backend.shipping.launcher import launcher
from ziggurat.codemodel.errors import LaunchError, TargetError
from ziggurat.codemodel.types import SMALL
from ziggurat.shipping.build import refuse_prints
from ziggurat.shipping.families import Family
from ziggurat.shipping.grids import c_name
from ziggurat.shipping.library import Library, host_object
from ziggurat.shipping.tables import GpuCode, tables_text
from ziggurat.shipping.variant import Parameter, Variant, options_of

if TYPE_CHECKING:
    from ziggurat.compiler.compiled import Compiled

_BARE: Final = (".ptx", ".cubin")


def save(compiled: Compiled, path: str | Path) -> list[Path]:
    """Write a compiled kernel and its header: see `Compiled.save`."""
    file = Path(path)
    writers: dict[str, Callable[[], bytes]] = {}
    if compiled.code is None:
        writers |= {
            ".ptx": compiled.ptx.encode,
            ".cubin": lambda: machine_code(compiled.ptx, compiled.target, compiled.shared),
        }
    writers |= {
        ".o": lambda: _object(library()),
        ".a": lambda: library().archive(),
        ".so": lambda: library().shared_object(),
    }

    def library() -> Library:
        return library_of(compiled, c_name(file.stem))

    if file.suffix not in writers:
        other = " of a kernel that is compiled for a GPU" if file.suffix in _BARE else ""
        raise LaunchError(
            f"the name of a file to save '{compiled.title}' to must end in {', '.join(writers)}; got '{file.name}'",
            hint=f"{file.suffix} is the end of the name{other}" if other else None,
        )
    data = writers[file.suffix]()
    header = _facts(compiled, file) if file.suffix in _BARE else library().header
    paths = [file, file.with_suffix(".h")]
    try:
        for place, content in zip(paths, (data, header.encode()), strict=True):
            place.write_bytes(content)
    except OSError as error:
        raise LaunchError(f"'{compiled.title}' cannot be written to '{file}': {error.strerror}") from None
    return paths


def library_of(compiled: Compiled, name: str) -> Library:
    """The library of one kernel."""
    if any(argument.type is None for argument in compiled.arguments):
        raise TargetError(
            f"'{compiled.title}' takes a descriptor of which its GPU model has the parts alone",
            hint="compile the Triton model",
        )
    if small := [argument.name for argument in compiled.arguments if argument.small]:
        raise LaunchError(
            f"a kernel that is saved must take any '{small[0]}'; '{compiled.title}' is compiled for one from 0 to "
            f"{SMALL - 1}",
            hint="save what kernel.compile(types…) gives",
        )
    parameters = tuple(
        Parameter(argument_name, str(argument.type), argument.divisibility)
        for argument_name, argument in zip(compiled.names, compiled.arguments, strict=True)
    )
    kernel = c_name(compiled.title)
    variant = Variant(kernel, "", options_of(compiled.options), parameters)
    codes: dict[str, Any] = {compiled.target: _code(compiled)}
    return Library(name, (Family(kernel, (variant,)),), {kernel: [codes]})


def _code(compiled: Compiled) -> GpuCode | CpuCode:
    if compiled.code is not None:
        return _host_code(compiled)
    other = None
    if compiled.maps and "triton" in compiled.stages:
        from ziggurat.compiler.pipeline import compile_model

        plain = attrs.evolve(compiled.options, raise_pointers=False)
        other = _gpu_code(compile_model(compiled.stages["triton"], plain, name=compiled.name))
    return attrs.evolve(_gpu_code(compiled), other=other)


def _gpu_code(compiled: Compiled) -> GpuCode:
    """A cubin, or PTX where there is no assembler."""
    try:
        image = machine_code(compiled.ptx, compiled.target, compiled.shared)
    except LaunchError:  # Neither nvJitLink nor ptxas is here.
        return GpuCode(compiled.binary, compiled.ptx.encode())
    return GpuCode(attrs.evolve(compiled.binary, code=image), image)


def _host_code(compiled: Compiled) -> CpuCode:
    """The code without checks of bounds, which C has no lengths for."""
    from ziggurat.backend.cpu.code import CpuOptions
    from ziggurat.backend.cpu.compile import compile_cpu
    from ziggurat.compiler import compiling

    assert compiled.code is not None
    model: Any = compiled.stages.get("triton") or compiled.cpu
    options = CpuOptions(compiled.code.cpu, compiled.code.features, False, fast_math=compiled.options.fast_math)
    with compiling:
        code = compile_cpu(model, options)
    refuse_prints(code, compiled.title)
    return code


def _object(library: Library) -> bytes:
    """One relocatable object: the launcher, and the kernel's LLVM text in one module."""
    (own,) = library.codes.values()
    texts = [tables_text(library.name, library.families, library.codes), launcher()[0]]
    hosts = [code for codes in own for code in codes.values() if isinstance(code, CpuCode)]
    return host_object(texts, [(code.llvm, code.cpu, code.features) for code in hosts])


def _facts(compiled: Compiled, file: Path) -> str:
    """The header of bare code for a GPU: what a launch by the driver's interface needs to know."""
    binary, name = compiled.binary, c_name(compiled.title)
    guard = f"{c_name(file.stem)}_H".upper()
    lines = [f"/* {compiled.title} for {compiled.target}, written by ziggurat: {file.name}\n   parameters, in order:"]
    for number, parameter in zip(binary.arguments, binary.parameters, strict=True):
        argument = compiled.arguments[number]
        part = f", its {parameter.part}" if parameter.part else ""
        box = f", box {parameter.box} swizzle {parameter.swizzle}" if parameter.box else ""
        divisor = f", divisible by {argument.divisibility}" if argument.divisibility > 1 else ""
        lines.append(f"     {parameter.kind} {compiled.names[number]}{part}{box}{divisor}")
    lines += ["     i32 three sizes of the grid"] if binary.persistent else []
    lines += [
        f"     tensormap of the matrix {map_.sources}, box {map_.box} swizzle {map_.swizzle}" for map_ in binary.maps
    ]
    lines += [f"     ptr scratch memory, {binary.scratch} bytes for each program"] if binary.scratch else []
    if binary.maps or binary.scratch or binary.persistent:
        lines.append('   save("….a") or save("….so") gives a function that makes these.')
    facts = {"SYMBOL": f'"{binary.symbol}"', "TARGET": f'"{compiled.target}"', "THREADS": binary.threads,
             "SHARED": binary.shared, "CTAS": binary.num_ctas, "SCRATCH": binary.scratch}  # fmt: skip
    defines = [f"#define {name.upper()}_{key} {value}" for key, value in facts.items()]
    return "\n".join([*lines[:-1], f"{lines[-1]} */", f"#ifndef {guard}\n#define {guard}", *defines, "#endif\n"])
