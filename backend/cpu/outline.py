"""A long kernel as several functions.

LLVM's passes take a time that grows with the square of a function's length: a loop that its author unrolled a thousand
times would take minutes. So the lines of neighbouring ops outside of regions, together `LONG` or more, become a part: a
function of its own. It takes the values that it uses, stores those that others use to memory of the kernel, and returns
0 or the code of an error, which the kernel returns as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from ziggurat.backend.ptx.lines import LineInfo

LONG = 1500  # Lines of a function, from which on the next op begins another one.
MAX_REPEATED = 3  # Instructions that a part repeats to have a value of another part.

_CALL = "; call of part "
_LABEL = re.compile(r"^([\w.]+):", re.MULTILINE)
_NAME = re.compile(r"%([\w.]+)")
# An instruction on scalars that is cheaper repeated than passed on.
_CHEAP = re.compile(r"(?:add|sub|mul|shl|sext|zext|trunc)(?: n[us]w)* i\d+ ")
DEFINITION = re.compile(r"^  %([\w.]+) = (.*)", re.MULTILINE)
_PLACE = re.compile(r", !dbg !\d+$")
_DEBUG = re.compile(r"!dbg !(\d+)")

# The type of the value of an instruction, as its text says it.
_TYPE = r"(<\d+ x \w+>|\w+)"
_TYPES = tuple(
    (re.compile(pattern), result)
    for pattern, result in (
        (r"(?:getelementptr|inttoptr|alloca)\b", "ptr"),
        (r"[fi]cmp \w+ (<\d+ x )", r"\1i1>"),
        (r"[fi]cmp ", "i1"),
        (rf"(?:[sz]ext|trunc|fpext|fptrunc|[su]itofp|fpto[su]i|bitcast|ptrtoint) .* to {_TYPE}", r"\1"),
        (rf"select (?:<\d+ x i1>|i1) [^,]+, {_TYPE} ", r"\1"),
        (r"extractelement <\d+ x (\w+)>", r"\1"),
        (r"shufflevector <\d+ x (\w+)> .*, <(\d+) x i32> ", r"<\2 x \1>"),
        (rf"load (?:atomic )?{_TYPE},", r"\1"),
        (rf"atomicrmw \w+ ptr [^,]+, {_TYPE} ", r"\1"),
        (r"extractvalue { (\w+), \w+ } [^,]+, 0", r"\1"),
        (r"extractvalue { \w+, (\w+) } [^,]+, 1", r"\1"),
        (rf"\w+ (?:(?:fast|exact|disjoint|contract|n[a-z]+) )*{_TYPE} ", r"\1"),
    )
)


def type_of(instruction: str) -> str:
    """The LLVM type of the value of an instruction."""
    for pattern, result in _TYPES:
        match = pattern.match(instruction)
        if match is not None:
            return match.expand(result)
    raise AssertionError(f"no type in {instruction!r}")


def call_of(part: int) -> str:
    """The line of a kernel that stands for the lines of a part, by its number."""
    return f"{_CALL}{part}"


def checked_call(status: str, call: str, after: str) -> list[str]:
    """The lines of a call of a function that returns 0 or the code of an error: they go on at the label `after`, or
    return the code, which is named `status`."""
    return [
        f"  %{status} = {call}",
        f"  %{status}.good = icmp eq i64 %{status}, 0",
        f"  br i1 %{status}.good, label %{after}, label %{status}.bad, !prof !2",
        f"{status}.bad:",
        f"  ret i64 %{status}",
    ]


def outlined(
    symbol: str, lines: Sequence[str], parts: Sequence[Sequence[str]], places: LineInfo | None
) -> tuple[list[str], list[str]]:
    """The lines of a kernel, which begin with the label of its entry, and those of the functions that it calls."""
    if not parts:
        return [*lines], []
    texts = ["\n".join(text) for text in (lines, *parts)]
    labels = {label for text in texts for label in _LABEL.findall(text)}
    values = [dict(DEFINITION.findall(text)) for text in texts]
    names = [{*_NAME.findall(text)} - own.keys() - labels for text, own in zip(texts, values, strict=True)]
    repeated = _repeated(set[str]().union(*names[1:]), values)
    starts = [_instructions(names[number] & repeated.keys(), repeated) for number in range(len(texts))]
    for number in range(1, len(texts)):
        start = "\n".join(starts[number])
        names[number] = (names[number] | {*_NAME.findall(start)}) - dict(DEFINITION.findall(start)).keys()
    inputs = set[str]().union(*names)
    types = {value: type_of(text) for own in values for value, text in own.items() if value in inputs}
    kernel: list[str] = []
    functions: list[str] = []
    label = ""
    for line in lines:
        match = _LABEL.match(line)
        label = match[1] if match is not None else label
        if not line.startswith(_CALL):
            kernel.append(line)
            continue
        number = int(line.removeprefix(_CALL)) + 1
        name, text = f"{symbol}.{number}", texts[number]
        results = {value: types[value] for value in values[number] if value in inputs}
        takes = [f"{types.get(value, 'ptr')} %{value}" for value in sorted(names[number])]
        arguments = ", ".join([*takes, *(f"ptr %{value}.out" for value in results)])
        place = _DEBUG.search(text)
        body = [*starts[number], *parts[number - 1]]
        functions += _function(name, arguments, label, body, results, places if place else None)
        kernel[1:1] = [f"  %{value}.out = alloca {type_}" for value, type_ in results.items()]
        call = f"call i64 @{name}({arguments}){f', {place[0]}' if place else ''}"
        last = [label, *_LABEL.findall(text)][-1]
        if last == label:  # Nothing in it can end the kernel.
            kernel.append(f"  {call}")
        else:
            kernel += [*checked_call(f"status{number}", call, last), f"{last}:"]
        kernel += [f"  %{value} = load {type_}, ptr %{value}.out" for value, type_ in results.items()]
        label = last
    return kernel, functions


def _repeated(inputs: Collection[str], values: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """The values of parts, among those that other parts use, that these compute again; each with its instructions,
    which use values of the kernel's own lines. `values` has the instructions of all values of the kernel and the parts.
    """
    parts = {value: text for own in values[1:] for value, text in own.items()}
    chains: dict[str, list[str] | None] = {}  # None for a value that is not computed again.

    def instructions(value: str) -> list[str] | None:
        if value not in parts:
            return []
        if value not in chains:
            chains[value] = None
            if _CHEAP.match(parts[value]):
                operands = [instructions(operand) for operand in _NAME.findall(parts[value])]
                if None not in operands:
                    before = [line for lines in operands for line in lines or ()]
                    text = f"  %{value} = {_PLACE.sub('', parts[value])}"
                    chains[value] = [*before, text] if len(before) < MAX_REPEATED else None
        return chains[value]

    return {value: lines for value in inputs if (lines := instructions(value))}


def _instructions(values: Collection[str], repeated: Mapping[str, list[str]]) -> list[str]:
    """The instructions that compute values again, each once."""
    return [*dict.fromkeys(line for value in sorted(values) for line in repeated[value])]


def _function(
    name: str, arguments: str, label: str, lines: Sequence[str], results: Mapping[str, str], places: LineInfo | None
) -> list[str]:
    """The lines of a function whose first block has this label."""
    debug = ""
    if places is not None:
        moved_lines, subprogram = places.moved, places.function(name)
        debug = f" !dbg !{subprogram}"
        lines = [_DEBUG.sub(lambda node: f"!dbg !{moved_lines(int(node[1]), subprogram)}", line) for line in lines]
    stores = [f"  store {type_} %{value}, ptr %{value}.out" for value, type_ in results.items()]
    head = f"define internal i64 @{name}({arguments}) #1{debug} {{"
    return [head, f"{label}:", *lines, *stores, "  ret i64 0", "}"]
