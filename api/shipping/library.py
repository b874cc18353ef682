"""Libraries: a folder of code objects, a C header, a manifest and a Python loader."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from ziggurat.backend.cpu.code import CpuCode
from ziggurat.backend.shipping.archive import archive
from ziggurat.backend.shipping.elf import is_linkable, shared_object
from ziggurat.backend.shipping.launcher import launcher_object
from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.codemodel.text.limits import read_regular
from ziggurat.codemodel.types import DescriptorType
from ziggurat.shipping.build import Built, Unit, built, by_variant, checked_target, is_cpu
from ziggurat.shipping.families import Family, families_of, rank_and_element, type_of
from ziggurat.shipping.grids import c_name
from ziggurat.shipping.header import header
from ziggurat.shipping.tables import Codes, GpuCode, exports, tables_text
from ziggurat.shipping.variant import Variant

FORMAT: Final = "ziggurat library 1"
NEEDED: Final = ("libdl.so.2", "libm.so.6", "libc.so.6")
_MAX_MANIFEST: Final = 1 << 28  # Bytes.
_LOADER: Final = Path(__file__).with_name("loader.py")


@attrs.frozen(slots=False)
class Library:
    """Families with their code. `codes` has that of each variant by target, by the function of the family."""

    name: str
    families: tuple[Family, ...]
    codes: Mapping[str, Sequence[Codes]] = attrs.field(hash=False, repr=False)

    @property
    def targets(self) -> dict[str, list[str]]:
        """The targets that there is code for, by the functions of families."""
        return {name: sorted({target for codes in own for target in codes}) for name, own in self.codes.items()}

    @property
    def header(self) -> str:
        return header(self.name, self.families, self.targets)

    @functools.cached_property
    def tables(self) -> bytes:
        """The object with the tables, the functions and the code for GPUs."""
        return host_object([tables_text(self.name, self.families, self.codes)])

    @property
    def hosts(self) -> dict[str, bytes]:
        """The objects for CPUs, by their entries."""
        codes = (code for own in self.codes.values() for variant in own for code in variant.values())
        return {code.symbol: code.object for code in codes if isinstance(code, CpuCode)}

    def archive(self) -> bytes:
        """The archive for a linker."""
        members = {f"{c_name(self.name)}_tables.o": self.tables, "launcher.o": launcher_object()}
        return archive(members | {f"{symbol}.o": image for symbol, image in self.hosts.items()})

    def shared_object(self) -> bytes:
        """The shared object. Raises `TargetError` where it cannot be linked."""
        images = [self.tables, launcher_object(), *self.hosts.values()]
        names = exports(self.name, self.families)
        return shared_object(images, names, f"{self.name}.so", NEEDED)

    @property
    def manifest(self) -> dict[str, Any]:
        """The library for JSON: what the loader needs, and what a reader wants to know."""
        families: list[dict[str, Any]] = []
        for family in self.families:
            own, writes, first = self.codes[family.function], family.writes, family.variants[0]
            variants = [
                {"known": [{"divisor": p.divisor, "is_one": p.is_one} for p in variant.passed],
                 "code": {target: file_of(family, number, target, code) for target, code in codes.items()}}
                for number, (variant, codes) in enumerate(zip(family.variants, own, strict=True))
            ]  # fmt: skip
            hosts = [code for codes in own for code in codes.values() if isinstance(code, CpuCode)]
            families.append(
                {"kernel": family.kernel, "function": family.function, "place": first.place,
                 "parameters": [_parameter(p, writes) for p in family.parameters], "defaults": first.defaults,
                 "options": family.options, "ordered": any(code.ordered for code in hosts), "variants": variants}
            )  # fmt: skip
        return {"format": FORMAT, "name": self.name, "families": families}

    def write(self, folder: Path) -> list[Path]:
        """Write the folder; its files. Raises `LaunchError` where that is not possible, and for a folder that has other
        files than a library's."""
        require_own(folder)
        files: dict[str, bytes] = {
            "manifest.json": json.dumps(self.manifest, indent=1).encode(),  # First: it marks the folder as a library.
            f"{self.name}.h": self.header.encode(),
            f"{self.name}.a": self.archive(),
            "__init__.py": _LOADER.read_bytes(),
        }
        if can_link(self):
            files[f"{self.name}.so"] = self.shared_object()
        for family in self.families:
            for number, codes in enumerate(self.codes[family.function]):
                for target, code in codes.items():
                    image = code.object if isinstance(code, CpuCode) else code.image
                    files[f"code/{file_of(family, number, target, code)}"] = image
        try:
            (folder / "code").mkdir(parents=True, exist_ok=True)
            for path in (folder / "code").iterdir():  # Of kernels that are no more.
                if path.suffix in (".cubin", ".ptx", ".o") and f"code/{path.name}" not in files:
                    path.unlink()
            for name, data in files.items():
                path = folder / name
                temporary = path.with_name(f".{path.name}.new")
                temporary.write_bytes(data)
                temporary.replace(path)  # A program may have the old one mapped.
        except OSError as error:
            raise LaunchError(f"the library cannot be written to '{folder}': {error.strerror}") from None
        return [folder / name for name in files]


def require_own(folder: Path) -> None:
    """Raise `LaunchError` for a folder that a library must not be written to: it is not empty, and is no library."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    try:
        manifest: Any = json.loads(read_regular(folder / "manifest.json", _MAX_MANIFEST))
        is_library = str(manifest["format"]).startswith(FORMAT.rstrip("0123456789"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        is_library = False
    if not is_library:
        raise LaunchError(
            f"'{folder}' has files that are no library's: a library is written to a new or an empty folder, or over "
            "an earlier library",
            hint="name another folder by -o, or empty this one",
        )


def _parameter(parameter: Any, writes: Collection[str]) -> dict[str, Any]:
    """A parameter for the loader; of a descriptor with its rank and the bytes of its elements."""
    facts = dict(parameter.facts) | ({"written": True} if parameter.name in writes else {})
    if parameter.is_passed and isinstance(type_ := type_of(parameter), DescriptorType):
        rank, element = rank_and_element(type_)
        facts |= {"rank": rank, "element": element.name, "bytes": element.bytes}
    return facts


def can_link(library: Library) -> bool:
    """Whether a shared object of the library can be linked here."""
    return sys.platform == "linux" and is_linkable(library.tables)


def file_of(family: Family, number: int, target: str, code: GpuCode | CpuCode) -> str:
    """The name of the file of the code of a variant."""
    suffix = "o" if isinstance(code, CpuCode) else "ptx" if code.is_ptx else "cubin"
    return f"{family.function}-{number}.{target}.{suffix}"


def host_object(texts: Sequence[str], kernels: Sequence[tuple[str, str, str]] = ()) -> bytes:
    """The object of LLVM texts for any processor of this kind of machine. `kernels` are texts that become part of it,
    each for a processor and its features."""
    from ziggurat.backend.cpu.code import CpuOptions
    from ziggurat.backend.cpu.compile import machine as machine_of
    from ziggurat.backend.cpu.compile import optimized
    from ziggurat.backend.jit.loading import linking, llvm

    with linking:
        binding = llvm()
        machine = binding.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="default")
        module = binding.parse_assembly(texts[0])
        for text in texts[1:]:
            module.link_in(binding.parse_assembly(text))
        module.verify()
        builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=2))
        builder.getModulePassManager().run(module, builder)
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        for kernel, cpu, features in kernels:
            module.link_in(optimized(kernel, CpuOptions(cpu, features)))
            machine = machine_of(cpu, features)
        return machine.emit_object(module)


@attrs.frozen
class Outcome:
    """A library that was built: how many of its units were compiled, and not on disk, and the units without code."""

    library: Library
    units: int
    compiled: int
    errors: tuple[tuple[Unit, ZigguratError], ...]


def build(
    variants: Iterable[Variant], name: str, targets: Sequence[str], *, jobs: int = 0,
    done: Callable[[Unit, bool], None] = lambda unit, is_new: None,
) -> Outcome:  # fmt: skip
    """Compile variants for targets. A variant that has code for no target is left out.

    Raises `LaunchError` for targets that there are not, and where no variant has code.
    """
    targets = list(dict.fromkeys(map(checked_target, targets)))
    if sum(map(is_cpu, targets)) > 1:
        raise LaunchError(f"a library is for one CPU; got {', '.join(filter(is_cpu, targets))}")
    families = families_of(variants)
    units = [
        Unit(variant, target, f"{family.function}_{number}")
        for family in families
        for number, variant in enumerate(family.variants)
        for target in targets
    ]
    result: Built = built(units, jobs=jobs, done=done)
    codes, errors = by_variant(units, result)
    with_code: list[Family] = []
    by_function: dict[str, list[Codes]] = {}
    for family in families:
        own = [(variant, codes[f"{family.function}_{number}"]) for number, variant in enumerate(family.variants)]
        own = [(variant, code) for variant, code in own if code]
        if own:
            with_code.append(attrs.evolve(family, variants=tuple(variant for variant, _ in own)))
            by_function[family.function] = [code for _, code in own]
    if not with_code:
        raise errors[0][1] if errors else LaunchError("there are no variants to build")
    return Outcome(Library(name, tuple(with_code), by_function), len(units), result.compiled, tuple(errors))
