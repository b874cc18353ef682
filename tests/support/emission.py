"""Ops as the code generators write them in LLVM text, for tests of that text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from ziggurat.backend.cpu import compile as _cpu  # Fills the table of emitters.
from ziggurat.backend.cpu import emitter as cpu_emitter
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.emitter import CpuEmitter, kind_of
from ziggurat.backend.ptx import assemble as _ptx  # Fills the table, too.
from ziggurat.backend.ptx.emitter import PtxEmitter
from ziggurat.codemodel.dialects import cpu, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import ScalarType, TensorType
from ziggurat.transforms.analysis.queries import function_of

assert _cpu and _ptx


@attrs.frozen
class Operation:
    """An op of the text, with its attributes; the types of its operands, or their constants; and the result's type."""

    name: str
    operands: tuple[ScalarType | int, ...]
    result: ScalarType
    attributes: str = ""

    def text(self, of: Callable[[ScalarType], str] = str) -> tuple[str, str]:
        """The lines and the parameters of a kernel, for the types `of` the scalar types. The op is in the last line."""
        lines, parameters = "", list[str]()
        first = next(type_ for type_ in self.operands if isinstance(type_, ScalarType))
        for place, operand in enumerate(self.operands):
            if isinstance(operand, ScalarType):
                parameters.append(f"%{place} : {of(operand)}")
            else:
                lines += f"%{place} : {of(first)} = arith.constant @{operand}; "
        names = " ".join(f"%{place}" for place in range(len(self.operands)))
        return f"{lines} %r : {of(self.result)} = {self.name} {names} {self.attributes};", ", ".join(parameters)

    def op(self) -> Op:
        """The op on scalars."""
        lines, parameters = self.text()
        func = parse(f'tt.func @"k" ({parameters})void -> {{ {lines} tt.return; }};')
        assert isinstance(func, tt.Func)
        return func.body.entry.ops[-2]

    def __str__(self) -> str:
        return " ".join([self.name, *map(str, self.operands), self.attributes, "->", str(self.result)])


def emit_ptx(
    lines: str,
    parameters: str,
    target: str = "sm_80",
    num_warps: int = 1,
    prepare: Callable[[PtxEmitter], None] = lambda emitter: None,
) -> tuple[PtxEmitter, list[Any]]:
    """Ops in a kernel as they are emitted for a GPU: the emitter and what each op gives. Parameter 1 is `%p1`, or where
    it is a tensor, `%p1.0`, `%p1.1` and so on."""
    module = parse(f"""gpu.module @target="{target}" @num_warps={num_warps} ()void -> {{
        tt.func @"k" ({parameters})void -> {{ {lines} tt.return; }}; unreachable; }};""")
    assert isinstance(module, gpu.Module)
    body = function_of(module).body
    emitter = PtxEmitter(module, CompileOptions(line_info=False))
    prepare(emitter)
    for index, parameter in enumerate(body.parameters):
        type_ = parameter.type
        layout = type_.layout if isinstance(type_, TensorType) else None
        names = [f"%p{index}.{register}" for register in range(layout.num_registers)] if layout else []
        emitter.values[parameter] = names or f"%p{index}"
    ops = body.entry.ops[:-1]
    emitter.ops(ops)
    return emitter, [emitter.values.get(op.result) if op.result is not None else None for op in ops]


def emit_cpu(
    lines: str, parameters: str, lanes: int = 0, vector: int = 32, *, tolerant: bool = False
) -> tuple[CpuEmitter, list[Any]]:
    """Ops on numbers, or on vectors, as they are emitted for a CPU whose vectors have so many bytes: the emitter and
    what each op gives. Parameter 1 is `%p1`."""
    module = parse(f"""cpu.module @vector={vector} ()void -> {{
        tt.func @"k" ({parameters})void -> {{ {lines} tt.return; }}; unreachable; }};""")
    assert isinstance(module, cpu.Module)
    (func,) = module.functions().values()
    assert isinstance(func, tt.Func)
    emitter, values = CpuEmitter(module, func, CpuOptions(tolerant=tolerant)), dict[Any, Any]()
    for index, parameter in enumerate(func.body.parameters):
        values[parameter] = emitter.number(kind_of(parameter.type), f"%p{index}", lanes)
    ops = func.body.entry.ops[:-1]
    for op in ops:
        values[op.result] = cpu_emitter.EMITTERS[op](emitter, op, *map(values.__getitem__, op.operands))
    return emitter, [values[op.result] for op in ops]
