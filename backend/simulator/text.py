"""LLVM text for the simulation: functions, blocks, instructions, types, operands, and places in the kernel's source.

It is that of the emitters or of LLVM's passes, with comments, attributes of parameters and results, constant
expressions and switches. Parts that do not change results are dropped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import attrs
import ml_dtypes
import numpy as np

from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.graphs import reached, reverse_postorder
from ziggurat.codemodel.location import Location

_DTYPES: dict[str, Any] = {
    "i1": np.bool_, "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64, "ptr": np.int64,
    "i128": object, "half": np.float16, "bfloat": ml_dtypes.bfloat16, "float": np.float32, "double": np.float64,
}  # fmt: skip

_TYPE = re.compile(r"(?:<[^<>]*>|\[[^\[\]]*\]|\{[^{}]*\}|ptr(?: addrspace\(\d+\))?|[\w.]+)")

# Attributes of a parameter, an argument or a result that do not change results.
_ATTRIBUTE = re.compile(
    r"\s*(?:(?:noundef|nonnull|readnone|readonly|writeonly|nocapture|noalias|nofree|signext|zeroext|inreg|immarg"
    r"|returned)\b|align \d+|(?:captures|dereferenceable|dereferenceable_or_null|nofpclass|byval)\([^()]*\)"
    r"|range\([^()]*\)|initializes\(\([^()]*\)\)|\"[^\"]*\")\s*"
)

# Flags of an instruction before its operands.
_FLAGS = {
    "nuw", "nsw", "exact", "disjoint", "inbounds", "nusw", "samesign", "nneg", "fast", "contract", "nnan", "ninf",
    "nsz", "arcp", "afn", "reassoc",
}  # fmt: skip


# Instructions on integers of other widths, which LLVM's passes make; none reads them as signed numbers.
_ODD = re.compile(r"(?<![%\w.@])i(?!(?:1|8|16|32|64|128)\b)(\d+)\b")
_DONE_WITH_ODD = {
    "trunc", "zext", "sext", "add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "udiv", "urem", "icmp", "select",
    "freeze", "phi", "switch", "call",
}  # fmt: skip
_SIGNED_ORDER = ("sl", "sg")


def unknown(text: str) -> TargetError:
    """The error for text that the simulator does not know."""
    return TargetError(f"the simulator does not know {text}")


def dtype_of(kind: str) -> Any:
    """NumPy's dtype for a type of one value. Raises `TargetError` for types that are not known here."""
    word = "ptr" if kind.startswith("ptr") else kind
    if odd_width(word):
        word = f"i{next(bits for bits in (8, 16, 32, 64) if bits > odd_width(word))}"
    if word not in _DTYPES:
        raise unknown(f"the type {kind}")
    return _DTYPES[word]


@lru_cache(maxsize=1 << 10)
def odd_width(kind: str) -> int:
    """The width of an integer type that NumPy lacks, else 0. The bits beyond it are kept zero."""
    match = _ODD.fullmatch(kind)
    return int(match[1]) if match and int(match[1]) < 64 else 0


@lru_cache(maxsize=1 << 10)
def elements_of(kind: str) -> tuple[str, ...] | None:
    """The types of the elements of a vector, an array or a struct; None for the type of one value."""
    match = re.fullmatch(r"[<\[](\d+) x (.+)[>\]]", kind)
    if match:
        return (match[2],) * int(match[1])
    return tuple(split(kind[1:-1])) if kind.startswith("{") else None


def size_of(kind: str) -> int:
    """The bytes of a type in memory."""
    elements = elements_of(kind)
    if elements is None:
        return np.dtype(dtype_of(kind)).itemsize
    if kind.startswith("{"):
        raise unknown(f"the size of {kind}")
    return len(elements) * size_of(elements[0]) if elements else 0


@lru_cache(maxsize=1 << 14)
def split(text: str) -> list[str]:
    """The parts between commas outside of brackets and quotes."""
    parts: list[str] = []
    depth, start, quoted = 0, 0, False
    for at, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


@lru_cache(maxsize=1 << 14)
def typed(text: str) -> tuple[str, str]:
    """A type and the value after it."""
    text = text.strip()
    while match := _ATTRIBUTE.match(text):  # Those of a result come before its type.
        text = text[match.end() :]
    match = _TYPE.match(text)
    assert match is not None, text
    kind, at = match[0], match.end()
    while match := _ATTRIBUTE.match(text, at):
        at = match.end()
    return kind, text[at:].strip()


@lru_cache(maxsize=1 << 14)
def instruction(line: str) -> tuple[str, str, str, frozenset[str]]:
    """The name of an instruction's result ("" without one), its opcode, its operands, and its flags."""
    name, _, text = line.partition(" = ") if line.startswith("%") else ("", "", line)
    opcode, _, rest = text.partition(" ")
    flags, operands = _flags(rest)
    if " asm " not in rest and _ODD.search(rest) and (opcode not in _DONE_WITH_ODD or operands[:2] in _SIGNED_ORDER):
        raise unknown(f"{opcode} {rest}")
    return name, opcode, operands, flags


def _flags(text: str) -> tuple[frozenset[str], str]:
    """The flags at the beginning of a text, and the rest."""
    words = text.split(" ")
    count = next((at for at, word in enumerate(words) if word not in _FLAGS), len(words))
    return frozenset(words[:count]), " ".join(words[count:])


@lru_cache(maxsize=1 << 14)
def operands_of(line: str) -> tuple[str, ...]:
    """The names of the values, and of the blocks, in an instruction, without its result."""
    return tuple(re.findall(r"%[\w.$-]+", line.partition(" = ")[2] if line.startswith("%") else line))


@lru_cache(maxsize=1 << 14)
def called(rest: str) -> tuple[str, tuple[str, ...]]:
    """The function of a call, and its arguments; operand bundles are dropped."""
    match = re.search(r" @(\"[^\"]*\"|[\w.$-]+)\(", rest)
    assert match is not None, rest
    return match[1].strip('"'), tuple(split(rest[match.end() : _closing(rest, match.end())]))


def _closing(text: str, at: int) -> int:
    """The position of the bracket that closes the one open here."""
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at - 1


@lru_cache(maxsize=1 << 12)
def incoming(line: str) -> tuple[str, str, dict[str, str]]:
    """The name of a phi, its type, and its value from each block."""
    name, _, rest = line.partition(" = phi ")
    kind, ways = typed(_flags(rest)[1])
    pairs = [split(way.strip("[] ")) for way in split(ways)]
    return name, kind, {label.removeprefix("%"): value for value, label in pairs}


def targets(line: str) -> list[str]:
    """The blocks that an instruction at the end of a block may go to."""
    return re.findall(r"label %([\w.$-]+)", line)


@attrs.frozen
class TextFunction:
    """A function of a text: its parameters (type, name), and its blocks in the order of `arranged`.

    `places` has the number of the debug location of each line of a block, or None."""

    parameters: tuple[tuple[str, str], ...]
    blocks: dict[str, list[str]]
    places: dict[str, list[int | None]]


@attrs.frozen
class TextModule:
    """A text: its functions, one of them the kernel; its variables (address space, type, initial value); the numbers in
    attributes ("nvvm.reqntid", "nvvm.maxnreg", "nvvm.cluster_dim" along x); and its metadata by number."""

    kernel: TextFunction
    functions: dict[str, TextFunction]
    variables: dict[str, tuple[int, str, str]]
    numbers: dict[str, int]
    metadata: dict[int, str]


_VARIABLE = re.compile(
    r"^@(\"[^\"]*\"|[\w.$-]+) = (?:\w+ )*?(?:addrspace\((\d)\) )?(?:global|constant) "
    r"(\[[^\]]*\]|\w+)(?: ([^\n]*?))?(?:, align \d+)?$",
    re.MULTILINE,
)
_PLACE = re.compile(r", !dbg !(\d+)")
_METADATA = re.compile(r",? ![\w.]+ !(?:\d+|\{\})")


@lru_cache(maxsize=8)  # A text may be simulated several times, with other seeds.
def module_of(llvm: str) -> TextModule:
    """The functions, variables and metadata of a text, which has one kernel."""
    for name, struct in re.findall(r"^(%[\w.]+) = type (.*)$", llvm, re.MULTILINE):
        llvm = re.sub(rf"{re.escape(name)}(?![\w.])", struct, llvm)
    lines = llvm.split("\n")
    functions: dict[str, TextFunction] = {}
    kernel: TextFunction | None = None
    for at, line in enumerate(lines):
        if line.startswith("define "):
            name, function = _function(lines, at)
            functions[name] = function
            if " ptx_kernel " in line:
                kernel = function
    assert kernel is not None, "a text without a kernel"
    variables = {
        name.strip('"'): (int(space or 0), kind, value or "") for name, space, kind, value in _VARIABLE.findall(llvm)
    }
    numbers = {key: int(value) for key, value in re.findall(r'"(nvvm\.\w+)"="(\d+)(?:,1,1)?"', llvm)}
    metadata = {int(number): text for number, text in re.findall(r"^!(\d+) = (.*)$", llvm, re.MULTILINE)}
    return TextModule(kernel, functions, variables, numbers, metadata)


def _function(lines: Sequence[str], start: int) -> tuple[str, TextFunction]:
    """The name of the function that begins in this line, and the function."""
    head = _METADATA.sub("", lines[start])
    match = re.search(r' @("[^"]*"|[\w.$-]+)\(', head)
    assert match is not None, head
    inside = head[match.end() : _closing(head, match.end())]
    blocks: dict[str, list[str]] = {}
    places: dict[str, list[int | None]] = {}
    current: list[str] = []
    here: list[int | None] = []
    for line in lines[start + 1 :]:
        if line == "}":
            break
        label_match = re.match(r"([\w.$-]+):(?: *;.*)?$", line)
        text = re.sub(r"(^|= )(?:tail|musttail|notail) call ", r"\1call ", _METADATA.sub("", line).strip())
        if label_match:
            label, current, here = label_match[1], [], []
            blocks[label], places[label] = current, here
        elif current and current[-1].startswith("switch ") and "]" not in current[-1]:
            current[-1] += f" {text}"  # Its cases are on lines of their own.
        elif text and not text.startswith((";", "#dbg_")):
            current.append(text)
            place = _PLACE.search(line)
            here.append(int(place[1]) if place else None)
    order = arranged(list(blocks), {name: targets(inside[-1]) for name, inside in blocks.items()})
    blocks_in_order = {name: blocks[name] for name in order}
    return match[1].strip('"'), TextFunction(tuple(map(typed, split(inside))), blocks_in_order, places)


def arranged(labels: Sequence[str], following: Mapping[str, Sequence[str]]) -> list[str]:
    """The blocks in a weak topological order (Bourdoncle 1993), without unreachable ones.

    Each block but the first of a loop comes after its predecessors, and the blocks of a loop are contiguous. When the
    threads in the earliest block run first, diverged paths meet again as early as possible.
    """
    order = reverse_postorder(labels[0], following.__getitem__)
    remaining = set(order)
    order_of_labels: list[str] = []
    for label in order:
        if label in remaining:
            # The blocks that lead back here are those of a loop. They are arranged without the edges to the first.
            loop = reached([label], lambda label: [before for before in remaining if label in following[before]])
            remaining.difference_update(loop)
            inside = {name: [after for after in following[name] if after in loop and after != label] for name in loop}
            order_of_labels += (
                arranged([label for label in order if label in loop], inside) if len(loop) > 1 else [label]
            )
    return order_of_labels


class TextPlaces:
    """The places of a text's metadata. A place in `locations` with the same line and column gives its span."""

    def __init__(self, metadata: Mapping[int, str], locations: Iterable[Location] = ()) -> None:
        self._metadata = metadata
        self._locations = {(place.file, place.line, place.column): place for place in locations}
        self._cache: dict[int, Location | None] = {}

    def of(self, number: int | None) -> Location | None:
        """The place of the metadata with this number."""
        if number is None:
            return None
        if number not in self._cache:
            self._cache[number] = self._place(number)
        return self._cache[number]

    def _place(self, number: int) -> Location | None:
        node = self._metadata.get(number, "")
        line, file = self._field(node, "line"), self._file(self._field(node, "scope"))
        if not line or file is None:
            return None
        place = Location(file, line, max(0, (self._field(node, "column") or 0) - 1))
        place = self._locations.get((place.file, place.line, place.column), place)
        caller = self._field(node, "inlinedAt")
        return place if place.caller is not None or caller is None else place.called_from(self.of(caller))

    def _file(self, scope: int | None) -> str | None:
        while scope is not None:
            node = self._metadata.get(scope, "")
            file = self._field(node, "file")
            if file is not None:
                match = re.search(r'filename: "([^"]*)", directory: "([^"]*)"', self._metadata.get(file, ""))
                names = [unquoted(name).decode(errors="surrogateescape") for name in match.groups()] if match else []
                return os.path.join(*names[::-1]) if match else None
            scope = self._field(node, "scope")
        return None

    @staticmethod
    def _field(node: str, name: str) -> int | None:
        match = re.search(rf"\b{name}: !?(\d+)", node)
        return int(match[1]) if match else None


def unquoted(quoted: str) -> bytes:
    """The bytes of text that LLVM quotes, some of them in hexadecimal."""
    return re.sub(rb"\\([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), quoted.encode())
