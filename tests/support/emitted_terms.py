"""Ops as the code generators write them, over terms of z3."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import z3
from emission import Operation, emit_cpu, emit_ptx
from llvm_numbers import Scalar, Value, bits_of, lanes_of, of_bits, symbol
from llvm_text import Execution
from proving import prove

from ziggurat.backend.cpu.emitter import kind_of
from ziggurat.backend.llvm.routines import llvm_type
from ziggurat.backend.ptx.emitter import PtxEmitter
from ziggurat.codemodel.types import ScalarType

REGISTERS = 4  # Of a tensor in a thread.


@attrs.frozen(eq=False)
class Emitted:
    """The results of an op in registers or lanes, the operands of each, and when the text's behaviour is undefined."""

    rows: Sequence[Sequence[Scalar]]
    results: Sequence[Scalar]
    undefined: Sequence[Any]

    def prove(self, meaning: Callable[..., Any], given: Callable[..., Iterable[Any]], **options: Any) -> None:
        """Prove that the results are what the op means, none of them is poison, and the behaviour is defined, for all
        operands of which `given` holds."""
        facts = [condition for row in self.rows for condition in given(*(value.term for value in row))]
        prove(z3.Not(z3.Or(*self.undefined, *(value.poison for value in self.results))), facts, **options)
        for row, result in zip(self.rows, self.results, strict=True):
            prove(result.term == meaning(*(value.term for value in row)), facts, **options)


def on_gpu(
    operation: Operation, execution: Execution, *, tensors: bool = False, words: bool = False, target: str = "sm_80"
) -> Emitted:
    """An op on numbers, or on tensors of four registers: with `words`, these are the bytes or the halves of words."""
    values, pieces = dict[str, Value](), dict[str, tuple[str, int]]()
    names: list[list[str]] = [[] for _ in range(REGISTERS if tensors else 1)]
    for place, operand in enumerate(operation.operands):
        for register, row in enumerate(names):
            name = f"%p{place}.{register}" if tensors else f"%p{place}"
            row.append(name)
            if not isinstance(operand, ScalarType):
                values[name] = _constant(operation, operand, llvm_type)
            elif words:
                per, kind = 32 // operand.bits, llvm_type(operand)
                pieces[name] = word, index = f"%w{place}.{register // per}", register % per
                values[word] = symbol(word, "i32")
                low = index * operand.bits
                values[name] = of_bits(kind, z3.Extract(low + operand.bits - 1, low, z3.BitVec(word, 32)))
            else:
                values[name] = symbol(name, llvm_type(operand))

    def type_of(scalar: ScalarType) -> str:
        return f'tensor<x{32 * REGISTERS}, {scalar}, "1 2 | 4 8 16 32 64 |">' if tensors else str(scalar)

    def prepare(emitter: PtxEmitter) -> None:
        emitter.pieces.update(pieces)

    emitter, results = emit_ptx(*operation.text(type_of), target, prepare=prepare)
    execution.definitions = emitter.definitions
    rows = [[lanes_of(values[name])[0] for name in row] for row in names]
    execution.run([*emitter.preamble, *emitter.lines], values)
    last, kind = results[-1], llvm_type(operation.result)
    return Emitted(rows, [number_of(values, kind, name) for name in (last if tensors else [last])], execution.undefined)


def on_cpu(
    operation: Operation, execution: Execution, *, lanes: int = 0, vector: int = 32, tolerant: bool = False
) -> Emitted:
    """An op on numbers, or on vectors of so many."""
    values = dict[str, Value]()
    for place, operand in enumerate(operation.operands):
        name = f"%p{place}"
        if not isinstance(operand, ScalarType):
            values[name] = (_constant(operation, operand, kind_of),) * max(1, lanes)
        elif lanes:
            values[name] = tuple(symbol(f"{name}.{lane}", kind_of(operand)) for lane in range(lanes))
        else:
            values[name] = symbol(name, kind_of(operand))
    rows = [*zip(*map(lanes_of, values.values()), strict=True)]
    emitter, results = emit_cpu(*operation.text(), lanes, vector, tolerant=tolerant)
    execution.definitions = emitter.definitions
    execution.run(emitter.levels[0].lines, values)
    number = results[-1]
    result = values[number.name] if number.name in values else number_of(values, number.kind, number.name)
    return Emitted(rows, lanes_of(result) * (len(rows) // len(lanes_of(result))), execution.undefined)


def _constant(operation: Operation, number: int, kind: Callable[[ScalarType], str]) -> Scalar:
    first = next(operand for operand in operation.operands if isinstance(operand, ScalarType))
    return of_bits(kind(first), z3.BitVecVal(number, bits_of(kind(first))))


def number_of(values: dict[str, Value], kind: str, name: str) -> Scalar:
    """A result, which may be a constant."""
    if name in values:
        return lanes_of(values[name])[0]
    return of_bits(kind, z3.BitVecVal(int(name == "true") if name in ("true", "false") else int(name), bits_of(kind)))
