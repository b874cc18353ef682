"""Compiled kernels as plain values, which the compiler gives to the runtime, and the cache keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from ziggurat.codemodel.types import SCALARS

POINTER: Final = "ptr"
TENSOR_MAP: Final = "tensormap"
KINDS: Final = (*SCALARS, POINTER, TENSOR_MAP)
# Fields of the head of a binary in bytes.
_TYPES: Final[dict[str, type]] = {
    "symbol": str, "ptx": bool, "num_warps": int, "shared": int, "target": str, "name": str, "metadata": dict,
    "disjoint": list,
}  # fmt: skip


@attrs.frozen
class Parameter:
    """One parameter of the PTX kernel.

    `kind` is the name of a scalar type ("i32", "f32" …), "ptr", or "tensormap". It takes the run-time argument of its
    own index, unless `argument` is another index. For a descriptor, `part` names the part that it takes: "map", "base",
    "shape0", "stride0" (in elements) and so on; `box` (outermost axis first) and `swizzle` (0, 32, 64 or 128 bytes) are
    the encoding of the map.
    """

    kind: str
    box: tuple[int, ...] = ()
    swizzle: int = 0
    part: str = ""
    argument: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"the kind of a parameter must be one of {', '.join(KINDS)}; got {self.kind!r}")
        numbers = (*self.box, self.swizzle, 0 if self.argument is None else self.argument)
        if not all(type(number) is int for number in numbers) or type(self.part) is not str:
            raise ValueError("box, swizzle and argument of a parameter must be numbers, and its part a string")


@attrs.frozen
class Binary:
    """A kernel for one target: PTX text, or the bytes of a cubin.

    `symbol` is its name in `code`; `name` the kernel's name for messages. `shared` is the dynamic shared memory of a
    CTA in bytes, `parameters` are in the order of the code's. `metadata` holds further facts, which JSON can hold;
    `disjoint` has pairs of run-time arguments, one after the other: see `pairs`.
    """

    symbol: str
    code: str | bytes = attrs.field(repr=False)
    num_warps: int
    shared: int
    parameters: tuple[Parameter, ...]
    target: str
    name: str = ""
    metadata: Mapping[str, Any] = attrs.field(factory=dict[str, Any], hash=False)
    disjoint: tuple[int, ...] = ()

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of run-time arguments whose memory must be disjoint: the first is stored to, the second loaded from."""
        return tuple(zip(self.disjoint[::2], self.disjoint[1::2], strict=True))

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return 32 * self.num_warps

    @property
    def title(self) -> str:
        """The name for messages."""
        return self.name or self.symbol

    def to_bytes(self) -> bytes:
        """This value as bytes: a line of JSON, then the code."""
        code = self.code.encode() if isinstance(self.code, str) else self.code
        head = {
            "symbol": self.symbol,
            "ptx": isinstance(self.code, str),
            "num_warps": self.num_warps,
            "shared": self.shared,
            "parameters": [attrs.astuple(parameter) for parameter in self.parameters],
            "target": self.target,
            "name": self.name,
            "metadata": dict(self.metadata),
            "disjoint": self.disjoint,
        }
        return json.dumps(head).encode() + b"\n" + code

    @classmethod
    def from_bytes(cls, data: bytes) -> Binary:
        """The value that `to_bytes` wrote. Raises `ValueError` for other bytes."""
        line, _, code = data.partition(b"\n")
        try:
            head = json.loads(line)
            parameters = tuple(Parameter(kind, tuple(box), *rest) for kind, box, *rest in head["parameters"])
            for name, kind in _TYPES.items():
                if type(head[name]) is not kind:
                    raise ValueError(f"'{name}' must be of type {kind.__name__}")
            return cls(
                symbol=head["symbol"],
                code=code.decode() if head["ptx"] else code,
                num_warps=head["num_warps"],
                shared=head["shared"],
                parameters=parameters,
                target=head["target"],
                name=head["name"],
                metadata=head["metadata"],
                disjoint=tuple(map(int, head["disjoint"])),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"these bytes are not a compiled kernel: {error}") from None
