"""The tables of a library, the functions that C calls, and the code for GPUs as data, as LLVM text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from ziggurat.backend.cpu.code import ArgumentSlot, CpuCode
from ziggurat.backend.cpu.error_records import failure_text
from ziggurat.backend.cuda.binary import TENSOR_MAP, Binary, LaunchMap, PtxParameter
from ziggurat.backend.llvm.functions import Struct
from ziggurat.backend.llvm.routines import escaped
from ziggurat.backend.shipping import structures
from ziggurat.backend.shipping.cpu_launcher import feature_bits
from ziggurat.backend.shipping.launcher import launcher
from ziggurat.backend.shipping.launches import MESSAGE
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.types import SCALARS, DescriptorType, PtrType, ScalarType, Type
from ziggurat.shipping.families import Family, rank_and_element, type_of
from ziggurat.shipping.grids import c_name
from ziggurat.shipping.variant import Variant

_FLAGS: Final = {"pdl": structures.DEPENDENT, "cooperative": structures.COOPERATIVE}


@attrs.frozen
class GpuCode:
    """Code for a GPU: what a launch needs to know of it, and a cubin or PTX. `other` is the code for arguments that
    have no tensor maps, if a launch makes maps for this one."""

    binary: Binary
    image: bytes = attrs.field(repr=False)
    other: GpuCode | None = None

    @property
    def is_ptx(self) -> bool:
        return isinstance(self.binary.code, str)


# The code of a variant by target.
Codes = Mapping[str, "GpuCode | CpuCode"]


def tables_text(name: str, families: Sequence[Family], codes: Mapping[str, Sequence[Codes]]) -> str:
    """The LLVM text of a library without the launcher, which it declares. `codes` has those of each variant of a
    family, by the family's function."""
    _, symbols = launcher()
    message = symbols[MESSAGE.symbol]
    tables = _Tables()
    functions: list[str] = []
    for family in families:
        symbol = tables.family(family, codes[family.function])
        functions.append(_function(family, symbol, "launch", ("ptr %stream", "ptr %grid")))
        functions.append(_function(family, symbol, "run", ("ptr %grid", "i64 %first", "i64 %last")))
    error = (
        f"define ptr @{c_name(name)}_error() {{\n  %m = load atomic ptr, ptr @{message} seq_cst, align 8\n"
        f"  %n = icmp eq ptr %m, null\n  %r = select i1 %n, ptr {tables.text('')}, ptr %m\n  ret ptr %r\n}}"
    )
    declarations = (
        f"declare i32 @{symbols['zg_launch']}(ptr, ptr, ptr, ptr)", f"@{message} = external global ptr",
        f"declare i32 @{symbols['zg_run']}(ptr, ptr, i64, i64, ptr)",
    )  # fmt: skip
    return "\n".join([*declarations, *tables.lines, *functions, error, ""])


def exports(name: str, families: Sequence[Family]) -> list[str]:
    """The functions that a library has for others."""
    return [
        f"{c_name(name)}_error",
        *(f"{family.function}_{verb}" for family in families for verb in ("launch", "run")),
    ]


def _function(family: Family, symbol: str, verb: str, head: Sequence[str]) -> str:
    """A function that writes its arguments into slots, and calls the launcher."""
    types = [type_of(parameter) for parameter in family.passed]
    kinds = [_kind(type_) for type_ in types]
    parameters = ", ".join([*head, *(f"{kind} %a{number}" for number, kind in enumerate(kinds))])
    lines = [f"  %slots = alloca [{max(1, len(kinds))} x i64], align 8"]
    for number, (kind, type_) in enumerate(zip(kinds, types, strict=True)):
        value = f"%a{number}"
        if kind in ("float", "double"):
            bits = "i32" if kind == "float" else "i64"
            lines.append(f"  %b{number} = bitcast {kind} {value} to {bits}")
            kind, value = bits, f"%b{number}"
        if kind == "ptr":
            lines.append(f"  %w{number} = ptrtoint ptr {value} to i64")
        elif kind == "i64":
            lines.append(f"  %w{number} = add i64 {value}, 0")
        else:
            is_signed = isinstance(type_, ScalarType) and type_.is_int and type_.signed
            lines.append(f"  %w{number} = {'sext' if is_signed else 'zext'} {kind} {value} to i64")
        lines.append(f"  %s{number} = getelementptr i64, ptr %slots, i64 {number}")
        lines.append(f"  store i64 %w{number}, ptr %s{number}, align 8")
    callee = launcher()[1][f"zg_{verb}"]
    lines.append(f"  %r = call i32 @{callee}(ptr {symbol}, {', '.join(head)}, ptr %slots)")
    return "\n".join([f"define i32 @{family.function}_{verb}({parameters}) {{", *lines, "  ret i32 %r\n}"])


def _kind(type_: Type) -> str:
    """The LLVM type of an argument in C."""
    if isinstance(type_, PtrType | DescriptorType):
        return "ptr"
    assert isinstance(type_, ScalarType)
    return {"f32": "float", "f64": "double"}.get(type_.name, f"i{8 * type_.bytes}")


class _Tables:
    """Writes tables as variables of the module. A field's value is a number, or the symbol of another variable."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._texts: dict[str, str] = {}

    def _add(self, text: str, kind: str = "constant", align: int = 8) -> str:
        symbol = f"@t{len(self.lines)}"
        self.lines.append(f"{symbol} = internal {kind} {text}, align {align}")
        return symbol

    def data(self, data: bytes, align: int = 1) -> str:
        return self._add(f'[{len(data)} x i8] c"{escaped(data)}"', align=align)

    def text(self, words: str) -> str:
        if words not in self._texts:
            self._texts[words] = self.data(words.encode() + b"\0")
        return self._texts[words]

    def table(self, struct: Struct, rows: Sequence[Mapping[str, Any]], kind: str = "constant") -> str | None:
        """The symbol of a table; null for one without rows. Fields that a row lacks are 0."""
        if not rows:
            return None
        texts = [
            ", ".join(f"{type_} {_value(type_, row.get(name))}" for name, type_ in struct.kinds.items()) for row in rows
        ]
        return self._add(
            f"[{len(rows)} x {struct.type}] [{', '.join(f'{struct.type} {{ {t} }}' for t in texts)}]", kind
        )

    def family(self, family: Family, codes: Sequence[Codes]) -> str:
        targets = sorted({target for own in codes for target in own})
        rows = [self.variant(family, variant, own) for variant, own in zip(family.variants, codes, strict=True)]
        obstacle = self.text(f"'{family.kernel}' has no code for this processor: it is built for {', '.join(targets)}")
        fields = {"variants": self.table(structures.VARIANT, rows), "count": len(rows), "obstacle": obstacle}
        return str(self.table(structures.FAMILY, [fields]))

    def variant(self, family: Family, variant: Variant, codes: Codes) -> dict[str, Any]:
        conditions = self.conditions(family, variant)
        slots = [slot for slot, parameter in enumerate(variant.passed) if not parameter.is_one]
        gpu = [(target, code) for target, code in codes.items() if isinstance(code, GpuCode)]
        gpu.sort(key=lambda item: (-TARGETS[item[0]].capability, not TARGETS[item[0]].is_specific))
        types = [type_of(parameter) for parameter in variant.passed]
        rows = [self.code(target, code, slots, types) for target, code in gpu]
        host = codes.get("cpu")
        return {
            "conditions": self.table(structures.CONDITION, conditions), "condition_count": len(conditions),
            "codes": self.table(structures.CODE, rows, "global"), "code_count": len(rows),
            "host": self.host(host, slots, family.kernel) if isinstance(host, CpuCode) else None,
        }  # fmt: skip

    def conditions(self, family: Family, variant: Variant) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for slot, parameter in enumerate(variant.passed):
            if not parameter.is_one and parameter.divisor == 1:
                continue
            type_ = type_of(parameter)
            offset, width = structures.IN_SLOT, 1
            what = f"'{parameter.name}' of '{family.kernel}'"
            if isinstance(type_, DescriptorType):
                rank, element = rank_and_element(type_)
                offset, width = structures.TENSOR.offsets[f"shape{rank - 1}"], element.bytes
                what = f"a row of {what} in bytes"
            elif isinstance(type_, PtrType):
                what = f"the address {what}"
            expected = "1" if parameter.is_one else f"divisible by {parameter.divisor}"
            message = self.text(f"{what} must be {expected}: the library has no other variant")
            divisor = 0 if parameter.is_one else parameter.divisor
            rows.append({"slot": slot, "offset": offset, "bytes": width, "divisor": divisor, "message": message})
        return rows

    def code(self, target: str, code: GpuCode, slots: Sequence[int], types: Sequence[Type]) -> dict[str, Any]:
        binary, facts = code.binary, TARGETS[target]
        high = facts.capability if facts.is_specific else 9999 if code.is_ptx else facts.capability // 10 * 10 + 9
        parameters = [
            self.parameter(parameter, slots[number], types[slots[number]])
            for number, parameter in zip(binary.arguments, binary.parameters, strict=True)
        ]
        maps = [_launch_map(map_) for map_ in binary.maps]
        apart = [_pair(slots[store], slots[load], types) for store, load in binary.pairs]
        other = None if code.other is None else self.table(
            structures.CODE, [self.code(target, code.other, slots, types)], "global"
        )  # fmt: skip
        flags = sum(_FLAGS[name] for name in binary.launched) | structures.PERSISTENT * binary.persistent
        return {
            "image": self.data(code.image + b"\0" * code.is_ptx, 64), "symbol": self.text(binary.symbol),
            "low": facts.capability, "high": high, "threads": binary.threads, "shared": binary.shared,
            "ctas": binary.num_ctas, "scratch": binary.scratch, "flags": flags, "count": len(parameters),
            "parameters": self.table(structures.PARAMETER, parameters), "map_count": len(maps),
            "maps": self.table(structures.MAP, maps), "apart_count": len(apart),
            "apart": self.table(structures.APART, apart), "other": other,
        }  # fmt: skip

    def parameter(self, parameter: PtxParameter, slot: int, type_: Type) -> dict[str, Any]:
        """The row of a parameter of PTX."""
        if parameter.kind == TENSOR_MAP:
            rank, element = rank_and_element(type_)
            assert isinstance(type_, DescriptorType)
            fill = int(type_.padding == "nan")
            row = _map(element, parameter.box, parameter.swizzle, rank, fill)
            return {"slot": slot, "offset": 0, "map": self.table(structures.MAP, [row])}
        return {"slot": slot, "offset": _offset(parameter.part)}

    def host(self, code: CpuCode, slots: Sequence[int], kernel: str) -> str:
        self.lines.append(f"declare i64 @{code.symbol}(ptr, i64, i64, ptr, ptr, ptr)")
        parameters = [
            {"slot": slots[parameter.argument], "offset": _offset(_host_part(parameter))}
            for parameter in code.parameters
        ]
        messages = [self.text(f"a program of '{kernel}' {failure_text(site)}") for site in code.sites]
        lacks = f"this processor lacks instructions that '{kernel}' is compiled for: build it for x86-64-v3, or here"
        sites = self._add(f"[{len(messages)} x ptr] [{', '.join(f'ptr {m}' for m in messages)}]") if messages else None
        fields = {
            "entry": f"@{code.symbol}", "parameters": self.table(structures.PARAMETER, parameters),
            "count": len(parameters), "bounds": len(code.bounds), "scratch": code.scratch, "sites": sites,
            "features": feature_bits(code.features), "lacks": self.text(lacks),
        }  # fmt: skip
        return str(self.table(structures.HOST_CODE, [fields]))


def _value(kind: str, value: Any) -> str:
    return ("null" if kind == "ptr" else "0") if value is None else str(value)


def _offset(part: str) -> int:
    """The place of a part of a descriptor in a tensor; that of a value itself."""
    return structures.TENSOR.offsets[part] if part else structures.IN_SLOT


def _host_part(parameter: ArgumentSlot) -> str:
    return "base" if parameter.type.startswith("descriptor") and not parameter.part else parameter.part


def _map(element: ScalarType, box: Sequence[int], swizzle: int, rank: int, fill: int = 0) -> dict[str, Any]:
    sides = {f"box{axis}": side for axis, side in enumerate(reversed(box))}
    kind = structures.TENSOR_MAP_TYPES.index(element.tensor_map)
    number = structures.SWIZZLES[swizzle]
    return {"element": kind, "bytes": element.bytes, "rank": rank, "swizzle": number, "fill": fill, **sides}


def _launch_map(map_: LaunchMap) -> dict[str, Any]:
    row = _map(SCALARS[map_.element], map_.box, map_.swizzle, 2)
    for number, source in enumerate(map_.sources):
        is_constant = source.startswith("=")
        row[f"source{number}"] = -1 if is_constant else int(source)
        row[f"constant{number}"] = int(source[1:]) if is_constant else 0
    return row


def _pair(store: int, load: int, types: Sequence[Type]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for prefix, slot in (("", store), ("other_", load)):
        rank, element = rank_and_element(types[slot])
        row |= {f"{prefix}slot": slot, f"{prefix}rank": rank, f"{prefix}bytes": element.bytes}
    return row
