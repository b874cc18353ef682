"""Builder methods of program ids, hints, debugging, inline assembly and Python's builtins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ConstantType, Type, shape_of
from ziggurat.transforms.attribution.lattice import components
from ziggurat.transforms.attribution.promotion import common_shape
from ziggurat.transforms.mirror.emit import Built, Emitter, Operand, packed_type, split_operand


class ProgramBuilder:
    """What is neither arithmetic, memory nor shape."""

    emit: Emitter

    def program_id(self, result: Type, axis: int) -> Value:
        return self.emit.add(tt.GetProgramId(axis))

    def num_programs(self, result: Type, axis: int) -> Value:
        return self.emit.add(tt.GetNumPrograms(axis))

    def smid(self, result: Type) -> Value:
        return self.emit.add(tt.SmId())

    def globaltimer(self, result: Type) -> Value:
        return self.emit.add(tt.GlobalTimer())

    def _hint(self, cls: type[Any], x: Operand, values: Any) -> Value:
        return self.emit.add(cls(x.value, (values,) if isinstance(values, int) else tuple(values)))

    def multiple_of(self, result: Type, x: Operand, values: Any) -> Value:
        return self._hint(tt.MultipleOf, x, values)

    def max_contiguous(self, result: Type, x: Operand, values: Any) -> Value:
        return self._hint(tt.MaxContiguous, x, values)

    def max_constancy(self, result: Type, x: Operand, values: Any) -> Value:
        return self._hint(tt.MaxConstancy, x, values)

    def assume(self, result: Type, condition: Operand) -> Value | None:
        if isinstance(condition.type, ConstantType):
            return None
        return self.emit.add(tt.Assume(self.emit.truth(condition)))

    def device_print(self, result: Type, prefix: str, values: Sequence[Operand], hex_: bool = False) -> Value:
        built = [self._runtime(value) for value in values]
        return self.emit.add(tt.Print(built, prefix, hex=bool(hex_)))

    def _runtime(self, x: Operand) -> Value:
        return self.emit.convert(x, x.type.type) if isinstance(x.type, ConstantType) else x.value

    def device_assert(self, result: Type, condition: Operand, message: str = "", *_options: Any) -> Value:
        return self.emit.add(tt.Assert(self.emit.truth(condition), message=message))

    def debug_barrier(self, result: Type) -> Value:
        return self.emit.add(tt.Barrier())

    def inline_asm_elementwise(
        self, result: Type, asm: str, constraints: str, args: Operand, dtype: Any, pure: bool, pack: int
    ) -> Built:
        parts = split_operand(args) if components(args.type) is not None else [args]
        shape = common_shape("zg.inline_asm_elementwise", *(part.type for part in parts)) if parts else ()
        values: list[Value] = []
        for part in parts:
            value = self._runtime(part)
            values.append(self.emit.spread(value, shape) if shape_of(value.type) != shape else value)
        made = self.emit.add(tt.InlineAsm(values, asm, constraints, packed_type(result), is_pure=bool(pure), pack=pack))
        return self.emit.unpack(made, result)
