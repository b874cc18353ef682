"""LLVM text of a kernel, run by any thread of a CTA, on memory of any contents.

The number of the thread is a term, and so is each value. A value of another lane is the same term of another number.
The elements of a tensor are an unknown function of their numbers: so a proof is one for all threads and values.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs
import z3
from emission import emit_ptx
from llvm_numbers import FALSE, TRUE, Scalar, Value, bits_of, lanes_of, of_bits
from llvm_text import Execution, Frame
from proving import prove

from ziggurat.backend.llvm.routines import llvm_type
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.types import DescriptorType, PtrType, SharedType, Type, element_of

THREAD = z3.BitVec("thread", 32)
LANE = THREAD & 31


def in_thread(term: Any, number: Any) -> Any:
    """A term as it is in the thread with another number."""
    return z3.substitute(term, (THREAD, number))


def in_lane(term: Any, lane: Any) -> Any:
    """A term as it is in another lane of the warp."""
    return in_thread(term, (THREAD & ~31) | (lane & 31))


def linear(bases: Sequence[int], number: Any = THREAD) -> Any:
    """The xor of the bases of the bits that are set in a number."""
    result = z3.BitVecVal(0, 32)
    for bit, basis in enumerate(bases):
        result = result ^ z3.If(z3.Extract(bit, bit, number) == 1, z3.BitVecVal(basis, 32), z3.BitVecVal(0, 32))
    return result


def element(layout: Layout, register: int) -> Any:
    """The number of the element in a register of the thread."""
    return linear(layout.threads) ^ layout.element(register)


def memory_bits(type_: Any) -> int:
    return 64 if isinstance(type_, PtrType) else max(8, type_.bits)


@attrs.frozen(eq=False)
class Access:
    """An access of some bytes where a condition holds. `content` is what is written, or None."""

    space: str
    condition: Any
    address: Any
    size: int
    content: Any = None


@attrs.frozen(eq=False)
class Atomic:
    """An atomic access where a condition holds: the instruction with its order and its scope, the words of its
    operands, and those that were in memory, which are unknown: what other threads do before is open. A fence or a
    barrier has no address."""

    name: str
    order: str
    scope: str
    condition: Any
    address: Any
    words: Sequence[Any]
    old: Sequence[Any]


_POINTERS = {r"\bptr addrspace\(1\)": "i64", r"\bptr addrspace\(3\)": "i32", r"\bptr\b": "i64"}
_WIDTHS = {"global": 64, "shared": 32}
# Hints of PTX about caches, which do not change what is read or written (PTX ISA, "Cache Operators", "Eviction").
_HINTS = r"(?:\.(?:ca|cg|cs|cv|lu|wb|wt|L1::evict_first|L1::evict_last|L1::no_allocate))*"
_ACCESS = re.compile(rf"(ld|st)(?:\.volatile)?\.(global|shared){_HINTS}(?:\.v(\d))?\.[bu](\d+)")
_COPY = re.compile(r"cp\.async\.(?:cg|ca)\.shared\.global")
_MATRICES = re.compile(r"(ld|st)matrix\.sync\.aligned\.m8n8\.x(\d)(\.trans)?\.shared\.b16")
_ATOMIC = re.compile(r"(atom|red|ld|st)\.(relaxed|acquire|release|acq_rel)\.(cta|gpu|sys)\.global\.(\S+)")
_MMA = re.compile(r"mma\.sync\.aligned\.m(\d+)n8k(\d+)\.row\.col\.\S+")
_SIZES = {"ptr": 8, "half": 2, "bfloat": 2, "float": 4, "double": 8}


class Threads(Execution):
    """A run of text by any thread. `accesses` are those of memory, in order; `memory` is what a thread has left. The
    instructions of two numbers `combining` are one unknown function of bits, as the author's functions are."""

    def __init__(self, combining: Collection[str] = ()) -> None:
        super().__init__({"read": lambda: THREAD}, frame=_ThreadFrame)
        self.memory = {space: z3.Array(space, z3.BitVecSort(bits), z3.BitVecSort(8)) for space, bits in _WIDTHS.items()}
        self.accesses: list[Access] = []
        self.combining = combining
        self.atomics: list[Atomic] = []
        self.copies: list[tuple[str, list[Any]]] = []  # Those of TMA: the text, and its operands.

    def load(self, space: str, address: Any, size: int, condition: Any) -> Any:
        self.accesses.append(Access(space, condition, address, size))
        memory, width = self.memory[space], _WIDTHS[space]
        parts = [z3.Select(memory, address + z3.BitVecVal(at, width)) for at in reversed(range(size))]
        return z3.Concat(*parts) if size > 1 else parts[0]

    def store(self, space: str, address: Any, content: Any, condition: Any) -> None:
        size = content.size() // 8
        self.accesses.append(Access(space, condition, address, size, content))
        memory = self.memory[space]
        for at in range(size):
            part = z3.Extract(8 * at + 7, 8 * at, content)
            memory = z3.Store(memory, address + z3.BitVecVal(at, _WIDTHS[space]), part)
        self.memory[space] = z3.If(condition, memory, self.memory[space])


class _ThreadFrame(Frame):
    """Text with pointers as integers, accesses of memory, and instructions of PTX."""

    execution: Threads

    def line(self, line: str) -> None:
        for pointer, integer in _POINTERS.items():
            line = re.sub(pointer, integer, line)
        line = re.sub(r"%zg\.(\d+)\.(\w+)", lambda m: f"{{ {', '.join([m[2]] * int(m[1]))} }}", line)
        if (match := re.fullmatch(r"store (.*) (\S+), i(32|64) (\S+), align (\d+)", line)) is not None:
            type_, name, width, pointer, align = match.groups()
            lanes, address = lanes_of(self.value(type_, name)), self.scalar(f"i{width}", pointer)
            self._aligned(address, int(align))
            self._forbid(z3.Or(address.poison, *(lane.poison for lane in lanes)))
            self._write(int(width), address.term, [lane.bits() for lane in lanes], self.reached)
        elif line.startswith("call void asm"):
            self._call(line.removeprefix("call "))
        else:
            super().line(line)

    def scalar(self, kind: str, text: str) -> Scalar:
        return Scalar(kind, z3.BitVec(text, bits_of(kind))) if text[0] == "@" else super().scalar(kind, text)

    def _aligned(self, address: Scalar, align: int) -> None:
        self._forbid(address.term & (align - 1) != 0)

    def _write(self, width: int, address: Any, contents: Sequence[Any], condition: Any) -> None:
        space = "global" if width == 64 else "shared"
        whole = z3.Concat(*reversed(contents)) if len(contents) > 1 else contents[0]
        self.execution.store(space, address, whole, condition)

    def _value(self, opcode: str, rest: str) -> Value:
        if opcode == "load":
            match = re.fullmatch(r"(?:volatile )?(.*), i(32|64) (\S+), align (\d+)", rest)
            assert match is not None, rest
            return self._loaded(match[1], int(match[2]), match[3], int(match[4]))
        if opcode == "getelementptr":
            match = re.fullmatch(r"(?:inbounds )?(?:nuw )?(\w+|\[\d+ x i8\]), i(32|64) (\S+), i(\d+) (\S+)", rest)
            assert match is not None, rest
            base, index = self.scalar(f"i{match[2]}", match[3]), self.scalar(f"i{match[4]}", match[5])
            bytes_ = re.match(r"\[(\d+)", match[1])
            size = int(bytes_[1]) if bytes_ else _SIZES.get(match[1]) or int(match[1][1:]) // 8
            wide = index.term
            if (extra := int(match[2]) - wide.size()) > 0:
                wide = z3.SignExt(extra, wide)
            return Scalar(base.kind, base.term + wide * size, z3.Or(base.poison, index.poison))
        if opcode in ("ptrtoint", "inttoptr"):
            match = re.fullmatch(r"(i\d+) (\S+) to (i\d+)", rest)
            assert match is not None and match[1] == match[3], rest
            return self.scalar(match[1], match[2])
        return super()._value(opcode, rest)

    def _loaded(self, type_: str, width: int, name: str, align: int) -> Value:
        vector = re.fullmatch(r"<(\d+) x (\w+)>", type_)
        count, kind = (int(vector[1]), vector[2]) if vector else (1, type_)
        address, size = self.scalar(f"i{width}", name), bits_of(kind) // 8
        self._aligned(address, align)
        self._forbid(address.poison)
        whole = self.execution.load("global" if width == 64 else "shared", address.term, size * count, self.reached)
        lanes = [of_bits(kind, z3.Extract(8 * size * (at + 1) - 1, 8 * size * at, whole)) for at in range(count)]
        return tuple(lanes) if vector else lanes[0]

    def _two(self, opcode: str, flags: Sequence[str], a: Scalar, b: Scalar) -> Scalar:
        if opcode in self.execution.combining:
            return of_bits(a.kind, combined(a.bits(), b.bits()), z3.Or(a.poison, b.poison))
        return super()._two(opcode, flags, a, b)

    # PTX.

    def _intrinsic(self, function: str, kind: str, values: Sequence[Scalar]) -> Scalar:
        if (match := re.fullmatch(r"llvm\.nvvm\.redux\.sync\.(\w+)", function)) is not None:
            assert match[1] in self.execution.combining
            word, mask = values
            self._forbid(z3.Or(word.poison, mask.term != -1))
            return Scalar(kind, functools.reduce(combined, (in_lane(word.term, lane) for lane in range(32))))
        if (match := re.fullmatch(r"llvm\.nvvm\.shfl\.sync\.(idx|bfly)\.i32", function)) is not None:
            mask, word, lane, clamp = values
            self._forbid(z3.Or(word.poison, lane.poison, mask.term != -1, clamp.term != 31))
            return Scalar(kind, in_lane(word.term, lane.term if match[1] == "idx" else LANE ^ lane.term))
        return super()._intrinsic(function, kind, values)

    def assembly(self, type_: str, text: str, arguments: Sequence[Scalar]) -> Value | None:
        """Run instructions of PTX; their results."""
        if text in self.execution.functions:
            return super().assembly(type_, text, arguments)
        kinds = [] if type_ == "void" else type_.strip("{} ").split(", ")
        registers: dict[int, Any] = {len(kinds) + at: value.bits() for at, value in enumerate(arguments)}
        if "bulk.tensor" in text:
            self.execution.copies.append((text.replace("\\0A", "\n"), [registers[at] for at in range(len(arguments))]))
            return None
        if "wgmma.mma_async" in text:
            self._wgmmas(re.sub(r"\\0A", " ", text), registers, kinds)
            return tuple(of_bits(kind, registers[at]) for at, kind in enumerate(kinds))
        for statement in filter(None, map(str.strip, text.replace("$$", "$").split(";"))):
            match = re.fullmatch(r"(?:@\$(\d+) )?(\S+) ?(.*)", statement)
            assert match is not None, statement
            condition = TRUE if match[1] is None else registers[int(match[1])] == 1
            for at, value in enumerate(arguments):
                if re.search(rf"\${len(kinds) + at}(?!\d)", statement):
                    self._forbid(
                        value.poison if match[1] in (None, str(len(kinds) + at)) else z3.And(condition, value.poison)
                    )
            self._instruction(match[2], match[3], condition, registers, kinds)
        results = tuple(of_bits(kind, registers[at]) for at, kind in enumerate(kinds))
        return results if len(results) > 1 else results[0] if results else None

    def _instruction(
        self, name: str, operands: str, condition: Any, registers: dict[int, Any], kinds: Sequence[str]
    ) -> None:
        groups = [list(map(int, re.findall(r"\$(\d+)", part))) for part in re.split(r", (?![^{]*\})", operands)]
        offsets = [int(offset) for offset in re.findall(r"\[ ?\$\d+ \+ (-?\d+) ?\]", operands)] or [0]
        reached = z3.And(self.reached, condition)

        def keep(target: int, result: Any) -> None:
            """A result, where the instruction runs; in a register that may be wider."""
            extra = bits_of(kinds[target]) - result.size()
            result = z3.ZeroExt(extra, result) if extra else result
            registers[target] = result if z3.is_true(condition) else z3.If(condition, result, registers[target])

        def at(number: int, offset: int) -> Any:
            return registers[number] + z3.BitVecVal(offset, registers[number].size())

        if name.startswith("mov."):
            (target,), (source,) = groups
            registers[target] = registers[source]
        elif (match := _ACCESS.fullmatch(name)) is not None:
            operation, space, count, bits = match.groups()
            places, (pointer,) = groups if operation == "ld" else groups[::-1]
            size, address = int(bits) // 8, at(pointer, offsets[0])
            self._forbid(z3.And(condition, address & (size * int(count or 1) - 1) != 0))
            if operation == "st":
                contents = [z3.Extract(int(bits) - 1, 0, registers[place]) for place in places]
                self._write(_WIDTHS[space], address, contents, reached)
                return
            whole = self.execution.load(space, address, size * len(places), reached)
            for place, target in enumerate(places):
                keep(target, z3.Extract(int(bits) * (place + 1) - 1, int(bits) * place, whole))
        elif (match := _ATOMIC.fullmatch(name)) is not None:
            self._atomic(match.groups(), groups, registers, kinds, reached, at)
        elif name.startswith(("fence.", "bar.")):
            self.execution.atomics.append(Atomic(name, "", "", reached, None, (), ()))
        elif _COPY.fullmatch(name) is not None:
            (target,), (source,), *rest = groups
            size = int(re.findall(r", (\d+)", operands)[0])
            content = self.execution.load("global", at(source, offsets[1]), size, reached)
            if ignored := [number for part in rest for number in part]:  # Then zeros are written, and nothing is read.
                read = self.execution.accesses.pop()
                holds = registers[ignored[0]] == 1
                self.execution.accesses.append(attrs.evolve(read, condition=z3.And(read.condition, z3.Not(holds))))
                content = z3.If(holds, z3.BitVecVal(0, 8 * size), content)
            self._write(32, at(target, offsets[0]), [content], reached)
        elif name == "red.shared.add.u32":
            address = at(groups[0][0], offsets[0])
            content = self.execution.load("shared", address, 4, reached)
            self._write(32, address, [content + int(operands.rpartition(", ")[2])], reached)
        elif (match := _MATRICES.fullmatch(name)) is not None:
            operation, _, trans = match.groups()
            words, (pointer,) = groups if operation == "ld" else groups[::-1]
            for matrix, word in enumerate(words):
                self._matrix(operation, registers, word, at(pointer, offsets[0]), matrix, trans=bool(trans))
        elif (match := _MMA.fullmatch(name)) is not None:
            self._multiplied(groups, registers, rows=int(match[1]))
        else:
            raise NotImplementedError(name)

    def _atomic(
        self, parts: Sequence[str], groups: Sequence[Sequence[int]], registers: dict[int, Any], kinds: Sequence[str],
        condition: Any, at: Callable[[int, int], Any],
    ) -> None:  # fmt: skip
        operation, order, scope, name = parts
        targets, (pointer,), *rest = groups if operation in ("atom", "ld") else [[], *groups]
        address, number = at(pointer, 0), len(self.execution.atomics)
        words = [registers[word] for part in rest for word in part]
        size = sum(word.size() for word in words[: len(targets) or None]) // 8 or int(name[1:]) // 8
        self._forbid(z3.And(condition, address & (size - 1) != 0))
        old: list[Any] = []
        for place, target in enumerate(targets):
            bits = bits_of(kinds[target])
            old.append(z3.Function(f"old {number}.{place}", z3.BitVecSort(64), z3.BitVecSort(bits))(address))
            nothing = z3.Function(f"nothing {number}.{place}", z3.BitVecSort(32), z3.BitVecSort(bits))(THREAD)
            registers[target] = z3.If(condition, old[-1], nothing)
        name = name if operation in ("atom", "red") else f"{operation}.{name}"
        self.execution.atomics.append(Atomic(name, order, scope, condition, address, words, old))

    def _matrix(
        self, operation: str, registers: dict[int, Any], word: int, address: Any, matrix: int, *, trans: bool
    ) -> None:
        """The thread's word of a matrix of 8 rows of 16 bytes, of which 8 lanes have the addresses (PTX ISA,
        "ldmatrix")."""
        self._forbid(address & 15 != 0)
        row, column = z3.LShR(LANE, 2), LANE & 3
        places = [in_lane(address, 8 * matrix + row) + 4 * column]
        if trans:
            places = [in_lane(address, 8 * matrix + 2 * column + half) + 2 * row for half in (0, 1)]
        size = 4 // len(places)
        if operation == "ld":
            parts = [self.execution.load("shared", place, size, self.reached) for place in places]
            registers[word] = z3.Concat(*reversed(parts)) if trans else parts[0]
            return
        for at, place in enumerate(places):
            content = z3.Extract(8 * size * (at + 1) - 1, 8 * size * at, registers[word])
            self.execution.accesses.append(Access("shared", self.reached, place, size, content))

    def _wgmmas(self, text: str, registers: dict[int, Any], kinds: Sequence[str]) -> None:
        """Run the wgmmas of a group, whose accumulators are the tied operands after the results."""
        registers |= {at: registers[len(kinds) + at] for at in range(len(kinds))}
        names: dict[str, Any] = {"never": False, "always": True}
        statements = [statement.strip(" {}") for statement in re.sub(r"^\s*\{|\}\s*$", "", text).split(";")]
        for statement in statements:
            if match := re.fullmatch(r"add\.s64 (\w+), \$(\d+), (\d+)", statement):
                names[match[1]] = placed(registers[int(match[2])] + int(match[3]))
            elif match := re.match(
                r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.(\w+)\.(\w+)\.(\w+) (.*)", statement
            ):
                self._wgmma(int(match[2]), match[4], match[5], match[6], registers, names)
        order = [statement.split(".sync")[0] for statement in statements if statement.startswith("wgmma.")]
        assert order[0] == "wgmma.fence" and order[-1] == "wgmma.commit_group", order

    def _wgmma(
        self, depth: int, of_a: str, of_b: str, operands: str, registers: dict[int, Any], names: Mapping[str, Any]
    ) -> None:
        """c + a · b of a warp group. Places of accumulators, and of a in registers, are those of the PTX ISA, "Register
        Fragments for wgmma.mma_async.m64nNk16" and the like."""
        groups = [list(map(int, re.findall(r"\$(\d+)", part))) for part in re.findall(r"\{([^}]*)\}", operands)]
        _, *rest = re.sub(r"\{[^}]*\}", "{}", operands).split(", ")
        sizes = [4 if name == "tf32" else 2 if name in ("f16", "bf16") else 1 for name in (of_a, of_b)]
        transposes = [flag == "1" for flag in rest[5:]]  # Of the operands in memory, if they have 16 bits.
        transposes = [False, False] if not transposes else [False, *transposes] if len(groups) > 1 else transposes
        sums, warp = groups[0], z3.LShR(THREAD, 5) & 3
        results: dict[int, Any] = {}
        for at, result in enumerate(sums):
            row = 16 * warp + z3.LShR(LANE, 2) + 8 * (at >> 1 & 1)
            column = 8 * (at >> 2) + 2 * (LANE & 3) + (at & 1)
            words = [registers[result] if names[rest[2]] else z3.BitVecVal(0, 32)]
            if len(groups) > 1:
                of_row = groups[1][at >> 1 & 1 :: 2]
                words += [in_lane(registers[word], (LANE & 28) | part) for word in of_row for part in range(4)]
            else:
                words += self._described(names[rest[0]], row, depth, sizes[0], transposes=transposes[0])
            words += self._described(names[rest[1]], column, depth, sizes[1], transposes=transposes[1])
            results[result] = multiplied(words)
        registers.update(results)

    def _described(self, descriptor: Any, line: Any, depth: int, size: int, *, transposes: bool) -> list[Any]:
        """The words along k of a row of a, or of a column of b, by a matrix descriptor (PTX ISA, "Matrix Descriptor
        Format", "Strides", "Swizzling Modes"); `transposes` says that neighbours in memory do not go along k."""

        def field(high: int, low: int) -> int:
            part = z3.Extract(high, low, descriptor)
            first, second = (z3.simplify(in_thread(part, z3.BitVecVal(thread, 32))).as_long() for thread in (0, 128))
            assert first == second  # Of all warp groups.
            return first

        start = z3.ZeroExt(18, z3.Extract(13, 0, descriptor)) << 4
        leading, stride, width = field(29, 16) << 4, field(45, 32) << 4, {1: 128, 2: 64, 3: 32}[field(63, 62)]
        assert field(51, 49) == 0
        across = (width // size).bit_length() - 1

        def element(along: int) -> Any:
            place = (line & 7) * width + z3.LShR(line, 3) * stride + along * size
            if transposes:
                place = (line & (1 << across) - 1) * size + z3.LShR(line, across) * leading
                place = place + along % 8 * width + along // 8 * stride
            address = start + place
            address = address ^ (z3.LShR(address, 7) & width // 16 - 1) << 4
            return self.execution.load("shared", address, size, self.reached)

        pack = 4 // size
        words: list[Any] = []
        for first in range(0, depth, pack):
            parts = [element(first + part) for part in reversed(range(pack))]
            words.append(z3.Concat(*parts) if pack > 1 else parts[0])
        return words

    def _multiplied(self, groups: Sequence[Sequence[int]], registers: dict[int, Any], *, rows: int) -> None:
        """c + a · b of a warp: an unknown function of a row of a, a column of b, and what their product is added to.
        Places are those of the PTX ISA, "Matrix Fragments for mma.m16n8k16" and the like."""
        results, a, b, c = groups
        row_words = len(a) // (rows // 8)
        sums: dict[int, Any] = {}
        for at, result in enumerate(results):
            of_rows = [a[at // 2 + step * (rows // 8)] for step in range(row_words)]
            row, column = z3.LShR(LANE, 2), 2 * (LANE & 3) + at % 2
            words = [in_lane(registers[word], 4 * row + part) for word in of_rows for part in range(4)]
            words += [in_lane(registers[word], 4 * column + part) for word in b for part in range(4)]
            sums[result] = multiplied([registers[c[at]], *words])
        registers.update(sums)


def combined(a: Any, b: Any) -> Any:
    """An unknown function of two numbers, by whose name `leaves` finds them."""
    return z3.Function("combined", a.sort(), a.sort(), a.sort())(a, b)


def leaves(term: Any) -> list[Any]:
    """The numbers that a term combines, in their order."""
    if term.decl().name() != "combined":
        return [term]
    return [leaf for part in term.children() for leaf in leaves(part)]


def multiplied(terms: Sequence[Any]) -> Any:
    """A number to which the product of a row and a column is added, whose words follow."""
    return z3.Function("multiplied", *(term.sort() for term in terms), terms[0].sort())(*terms)


def placed(term: Any) -> Any:
    """A term in which the buffers are at some places."""
    buffers = [(z3.BitVec(f"buffer {at}", 32), z3.BitVecVal((at + 1) << 16, 32)) for at in range(2)]
    return z3.simplify(z3.substitute(term, *buffers))


@attrs.frozen(eq=False)
class Run:
    """A text after its run: its results, and the terms of parameters."""

    execution: Threads
    results: list[Scalar]
    parameters: Sequence[Sequence[Any]]


def contents(name: str, bits: int) -> Callable[[Any], Any]:
    """The elements of a tensor by their numbers: any there are."""
    return z3.Function(f"{name} of {bits}", z3.BitVecSort(32), z3.BitVecSort(bits))


def run(
    lines: str, types: Mapping[str, Type], target: str = "sm_90a", num_warps: int = 1, combining: Collection[str] = ()
) -> Run:
    """Run ops of the text, in a kernel whose parameters have these types. The results are those of the last op."""
    parameters = ", ".join(f"{name} : {type_}" for name, type_ in types.items())
    emitter, results = emit_ptx(lines, parameters, target, num_warps)
    execution, values, terms = Threads(combining), dict[str, Value](), list[list[Any]]()
    execution.definitions = emitter.definitions
    for place, type_ in enumerate(types.values()):
        if isinstance(type_, DescriptorType):
            values[f"%p{place}"] = Scalar("i64", z3.BitVec(f"map {place}", 64))
            terms.append([values[f"%p{place}"]])
            continue
        if isinstance(type_, SharedType):
            values[f"%p{place}"] = Scalar("i32", z3.BitVec(f"buffer {place}", 32))
            terms.append([z3.BitVec(f"buffer {place}", 32)])
            continue
        layout, scalar = getattr(type_, "layout", None), element_of(type_)
        kind = "i64" if isinstance(scalar, PtrType) else llvm_type(scalar)
        names = [f"%p{place}.{r}" for r in range(layout.num_registers)] if layout else [f"%p{place}"]
        elements = contents(f"parameter {place}", bits_of(kind))
        own: list[Any] = []
        for register, name in enumerate(names):
            number = element(layout, register) if layout else z3.BitVecVal(0, 32)
            own.append(elements(number))
            values[name] = of_bits(kind, own[-1])
        terms.append(own)
    execution.run([*emitter.preamble, *emitter.lines], values)
    last = results[-1]
    names = [] if last is None else last if isinstance(last, list) else [last]
    return Run(execution, [lanes_of(values[name])[0] for name in names if name != "poison"], terms)


def prove_defined(execution: Execution, facts: Sequence[Any] = (), threads: int = 32) -> None:
    """Prove that no behaviour of the text is undefined."""
    prove(z3.Not(z3.Or(*execution.undefined, FALSE)), [*facts, z3.ULT(THREAD, threads)])
