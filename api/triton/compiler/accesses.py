"""The accesses of a kernel in the words of MLIR's bindings: PyTorch asks which tensors a kernel reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.traits import MemoryWrite
from ziggurat.codemodel.types import DescriptorType
from ziggurat.transforms.kit.dataflow import read_parameters, written_parameters


class AccessModule:
    """The kernel as one function, with a load or a store by each parameter through which it may access memory.

    A kernel with one op that writes has one store; others have two by each parameter, as PyTorch counts them.
    """

    def __init__(self, name: str, kernel: Op) -> None:
        self.name = name
        # Triton's functions have a descriptor as one parameter, and its sizes and strides as others after it.
        self.values: list[Any] = []
        first: list[Any] = []
        for parameter in kernel.bodies[0].parameters:
            type_ = parameter.type
            start, parts = len(self.values), 1 + 2 * len(type_.block) if isinstance(type_, DescriptorType) else 1
            self.values += [_entity(start + part) for part in range(parts)]
            first.append(self.values[start])
        stores = sum(isinstance(op, MemoryWrite | tt.InlineAsm | tt.Call) for op in kernel.root().walk())
        self.accesses = [("tt.load", first[number]) for number in read_parameters(kernel)]
        self.accesses += [("tt.store", first[number]) for number in written_parameters(kernel)] * min(stores, 2)

    def verify(self) -> bool:
        return True

    def walk(self, visit: Callable[[Any], None]) -> None:
        """Visit the ops, and then the function that has them."""
        region = _entity(0)
        arguments = {"get_num_arguments": lambda: len(self.values), "get_argument": self.values.__getitem__}
        block = _entity(0, get_parent=lambda: region, **arguments)
        for name, value in self.accesses:
            visit(_op(name, block, [value]))
        visit(_op("tt.return", block))
        visit(_op("tt.func", None, regions=[region], symbol=self.name))


def _entity(number: int, **methods: Any) -> Any:
    return SimpleNamespace(id=lambda: number, **methods)


def _op(name: str, block: Any, operands: Sequence[Any] = (), regions: Sequence[Any] = (), symbol: str = "") -> Any:
    return SimpleNamespace(
        get_name=lambda: name, get_block=lambda: block, get_str_attr={"sym_name": symbol}.get,
        get_num_operands=lambda: len(operands), get_operand=operands.__getitem__, get_num_results=lambda: 0,
        get_num_regions=lambda: len(regions), get_region=regions.__getitem__,
    )  # fmt: skip
