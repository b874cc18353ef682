"""Builder methods of loads, stores, atomics and tensor descriptors."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import PtrType, Type, element_of, i1, i32, i64, with_element
from ziggurat.transforms.attribution.memory import CACHE, EVICTION, PADDING, SCOPES, SEMANTICS
from ziggurat.transforms.attribution.promotion import scalar_type
from ziggurat.transforms.mirror.emit import Emitter, Operand, split_operand


class MemoryBuilder:
    """Global memory."""

    emit: Emitter

    def _pointee(self, ptr: Operand) -> Type:
        element = element_of(ptr.type)
        assert isinstance(element, PtrType)
        return with_element(ptr.type, element.pointee)

    def _mask(self, ptr: Operand, mask: Operand | None) -> Value | None:
        return None if mask is None else self.emit.convert(mask, with_element(ptr.type, i1), dense=True)

    def load(
        self,
        result: Type,
        ptr: Operand,
        mask: Operand | None,
        other: Operand | None,
        cache: Any,
        eviction: Any,
        volatile: Any,
    ) -> Value:
        chosen = self._mask(ptr, mask)
        value = None if other is None else self.emit.convert(other, result, dense=True)
        return self.emit.add(
            tt.Load(ptr.value, chosen, value, cache=CACHE[cache], eviction=EVICTION[eviction], volatile=bool(volatile))
        )

    def store(
        self, result: Type, ptr: Operand, value: Operand, mask: Operand | None, cache: Any, eviction: Any
    ) -> Value:
        stored = self.emit.convert(value, self._pointee(ptr), dense=True)
        chosen = self._mask(ptr, mask)
        return self.emit.add(tt.Store(ptr.value, stored, chosen, cache=CACHE[cache], eviction=EVICTION[eviction]))

    def _atomic(
        self, kind: tt.AtomicKind, ptr: Operand, value: Operand, mask: Operand | None, sem: Any, scope: Any
    ) -> Value:
        stored = self.emit.convert(value, self._pointee(ptr), dense=True)
        chosen = self._mask(ptr, mask)
        return self.emit.add(
            tt.AtomicRMW(ptr.value, stored, chosen, kind=kind, sem=SEMANTICS[sem], scope=SCOPES[scope])
        )

    def atomic_add(
        self, result: Type, ptr: Operand, value: Operand, mask: Operand | None, sem: Any, scope: Any
    ) -> Value:
        kind = tt.AtomicKind.FADD if scalar_type(result).is_float else tt.AtomicKind.ADD
        return self._atomic(kind, ptr, value, mask, sem, scope)

    def atomic_max(
        self, result: Type, ptr: Operand, value: Operand, mask: Operand | None, sem: Any, scope: Any
    ) -> Value:
        element = scalar_type(result)
        kind = tt.AtomicKind.FMAX if element.is_float else tt.AtomicKind.MAX if element.signed else tt.AtomicKind.UMAX
        return self._atomic(kind, ptr, value, mask, sem, scope)

    def atomic_min(
        self, result: Type, ptr: Operand, value: Operand, mask: Operand | None, sem: Any, scope: Any
    ) -> Value:
        element = scalar_type(result)
        kind = tt.AtomicKind.FMIN if element.is_float else tt.AtomicKind.MIN if element.signed else tt.AtomicKind.UMIN
        return self._atomic(kind, ptr, value, mask, sem, scope)

    def atomic_and(
        self, result: Type, ptr: Operand, value: Operand, mask: Operand | None, sem: Any, scope: Any
    ) -> Value:
        return self._atomic(tt.AtomicKind.AND, ptr, value, mask, sem, scope)

    def atomic_or(
        self, result: Type, ptr: Operand, value: Operand, mask: Operand | None, sem: Any, scope: Any
    ) -> Value:
        return self._atomic(tt.AtomicKind.OR, ptr, value, mask, sem, scope)

    def atomic_xor(
        self, result: Type, ptr: Operand, value: Operand, mask: Operand | None, sem: Any, scope: Any
    ) -> Value:
        return self._atomic(tt.AtomicKind.XOR, ptr, value, mask, sem, scope)

    def atomic_xchg(
        self, result: Type, ptr: Operand, value: Operand, mask: Operand | None, sem: Any, scope: Any
    ) -> Value:
        return self._atomic(tt.AtomicKind.XCHG, ptr, value, mask, sem, scope)

    def atomic_cas(self, result: Type, ptr: Operand, compare: Operand, value: Operand, sem: Any, scope: Any) -> Value:
        expected = self.emit.convert(compare, result, dense=True)
        stored = self.emit.convert(value, result, dense=True)
        return self.emit.add(tt.AtomicCAS(ptr.value, expected, stored, sem=SEMANTICS[sem], scope=SCOPES[scope]))

    # Descriptors.

    def make_tensor_descriptor(
        self, result: Type, base: Operand, shape: Operand, strides: Operand, block: Any, padding: Any
    ) -> Value:
        sizes = [self.emit.convert(part, i32) for part in split_operand(shape)]
        steps = [self.emit.convert(part, i64) for part in split_operand(strides)]
        return self.emit.add(tt.MakeTensorDescriptor(base.value, sizes, steps, result, padding=PADDING[padding]))

    def load_tensor_descriptor(self, result: Type, descriptor: Operand, offsets: Operand, *_options: Any) -> Value:
        at = [self.emit.convert(part, i32) for part in split_operand(offsets)]
        return self.emit.add(tt.DescriptorLoad(descriptor.value, at))

    def store_tensor_descriptor(self, result: Type, descriptor: Operand, offsets: Operand, value: Operand) -> Value:
        at = [self.emit.convert(part, i32) for part in split_operand(offsets)]
        return self.emit.add(tt.DescriptorStore(descriptor.value, value.value, at))
