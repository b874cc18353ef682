"""Other types in memory: the arrays of a kernel change their element type, its arithmetic does not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import BuildError, shown
from ziggurat.codemodel.op import Op, Value, require, require_argument, require_model
from ziggurat.codemodel.traits import MemoryRead, MemoryWrite
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import (
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    element_of,
    find_scalar,
    with_element,
)
from ziggurat.transforms.calls.memory import atomic_dtypes
from ziggurat.transforms.casts import cast
from ziggurat.transforms.simplify import inline


def retype(model: Op, types: Mapping[ScalarType, ScalarType], parameters: Collection[int] | None = None) -> Op:
    """The model with other element types in memory, computing in the types it computes in.

        narrow = kit.retype(kernel.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32), {zg.f32: zg.bf16})

    Pointers and descriptors to a type of `types` become those to the type it maps to, and the symbol of the kernel says
    so. A cast to the old type follows each load, and a cast to the new one precedes each store and atomic. With
    `parameters`, only the kernel's parameters of these numbers change, and helper functions are inlined.

    Raises `BuildError` for a model without a Triton function, for an unknown dtype or parameter, when a row of a
    descriptor's block would have less than 16 bytes, and when a pointer of the old type meets one of the new: in a
    `select`, in a call of a function that both are given to, or where one is made from an integer.
    """
    require_model(model, "retype")
    require_argument(types, Mapping, "retype: 'types' must be a dictionary of dtypes", "{zg.f32: zg.bf16}")
    if parameters is not None:
        require_argument(parameters, Collection, "retype: 'parameters' must be the numbers of parameters, such as [0]")
        model = inline(model)
    functions = [op for op in model.walk() if isinstance(op, tt.Func)]
    require(bool(functions), "retype: the model must have a tt.func; got none", "give kernel.triton(types…)")
    if parameters is not None:
        count = len(functions[0].body.parameters)
        require(len(functions) == 1, f"to retype parameters, a model must have one function; got {len(functions)}")
        strays = [number for number in parameters if number not in range(count)]
        require(not strays, f"the kernel's parameters have the numbers 0 to {count - 1}; got {strays}")
    types = {_dtype(old): _dtype(new) for old, new in types.items()}
    callees = {op.callee for op in model.walk() if isinstance(op, tt.Call)}
    return transform(model, _Retyping(types, parameters, callees), pass_name="retype")


def _dtype(dtype: object) -> ScalarType:
    scalar = find_scalar(dtype)
    if scalar is None:
        raise BuildError(f"retype: 'types' must map dtypes to dtypes, such as zg.f32; got {shown(dtype)}")
    return scalar


# The operands of accesses that are elements of memory; of other ops it is the second. Offsets may have the same type.
_ELEMENTS: dict[type[Op], tuple[int, ...]] = {
    tt.Load: (2,), tt.AtomicCAS: (1, 2), tt.DescriptorLoad: (), tt.DescriptorGather: (),
}  # fmt: skip


class _Retyping:
    """The transformer."""

    def __init__(
        self, types: Mapping[ScalarType, ScalarType], parameters: Collection[int] | None, callees: Collection[str]
    ) -> None:
        self.types = types
        self.parameters = parameters
        self.callees = callees

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, tt.Func):
            return self.function(builder, op)
        if isinstance(op, tt.Call) and self.parameters is None:
            type_ = self.pointing(op.result.type)
            return None if type_ == op.result.type else builder.copy(op, operands, type_)
        if isinstance(op, MemoryRead | MemoryWrite):
            return self.access(builder, op, operands)
        return None

    def function(self, builder: Rewriter, op: tt.Func) -> Outcome:
        types = [
            self.pointing(parameter.type) if self.parameters is None or index in self.parameters else parameter.type
            for index, parameter in enumerate(op.body.parameters)
        ]
        if types == [parameter.type for parameter in op.body.parameters]:
            return None
        body = builder.rewrite_body(op.body, isolated=True, parameter_types=types)
        symbol = op.sym_name if op.sym_name in self.callees else _symbol(op, types)
        return builder.add(op.evolve(sym_name=symbol, body=body), op.location)

    def access(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        """An access of memory whose pointer or descriptor has changed: cast what goes in and what comes out."""
        before, after = _in_memory(op.operands[0].type), _in_memory(operands[0].type)
        if before is None or after is None or before == after:
            return None
        elements = _ELEMENTS.get(type(op), (1,))
        inputs = [cast(builder, value, after) if at in elements else value for at, value in enumerate(operands)]
        result = op.result.type
        if element_of(result) != before:
            return builder.copy(op, inputs)
        if isinstance(op, tt.AtomicRMW | tt.AtomicCAS):
            names = ", ".join(atomic_dtypes(op))
            require(after.name in atomic_dtypes(op), f"{op.NAME}: the dtype in memory must be {names}; got {after}")
        copy = builder.copy(op, inputs, with_element(result, after))
        copy.op.check()
        return cast(builder, copy, before)

    def pointing(self, type_: Type) -> Type:
        """The type with its pointers and descriptors retyped."""
        if isinstance(type_, PtrType):
            return PtrType(self.types.get(type_.pointee, type_.pointee))
        if isinstance(type_, DescriptorType):
            descriptor_type = DescriptorType(
                type_.block, self.types.get(type_.element, type_.element), type_.padding, type_.parts
            )
            row = descriptor_type.block[-1] * descriptor_type.element.bytes
            require(
                row >= 16, f"a row of a descriptor's block must have at least 16 bytes; {descriptor_type} has {row}"
            )
            return descriptor_type
        if isinstance(type_, TensorType) and isinstance(type_.element, PtrType):
            element = type_.element.pointee
            return with_element(type_, PtrType(self.types.get(element, element)))
        if isinstance(type_, TupleType):
            return TupleType(tuple(map(self.pointing, type_.components)))
        return type_


def _symbol(kernel: tt.Func, types: Sequence[Type]) -> str:
    """The symbol of a kernel, which has the types of its parameters, with other types."""
    symbol, at = kernel.sym_name, 0
    for parameter, type_ in zip(kernel.body.parameters, types, strict=True):
        position = symbol.find(f"_{parameter.type}", at)
        if position >= 0:
            at = position + 1 + len(str(type_))
            symbol = f"{symbol[: position + 1]}{type_}{symbol[position + 1 + len(str(parameter.type)) :]}"
    return symbol


def _in_memory(type_: Type) -> ScalarType | None:
    """The element type in memory behind a pointer, a tensor of pointers, or a descriptor."""
    if isinstance(type_, DescriptorType):
        return type_.element
    element = element_of(type_)
    return element.pointee if isinstance(element, PtrType) else None
