"""Compiled kernels as plain values, which the compiler gives to the runtime, and the cache keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs
from attrs.validators import instance_of

from ziggurat.codemodel.types import SCALARS

POINTER: Final = "ptr"
TENSOR_MAP: Final = "tensormap"
KINDS: Final = (*SCALARS, POINTER, TENSOR_MAP)


@attrs.frozen
class PtxParameter:
    """One parameter of the PTX kernel.

    `kind` is the name of a scalar type ("i32", "f32" …), "ptr", or "tensormap". It takes the run-time argument of its
    own index, unless `argument` is another index. For a descriptor, `part` names the part that it takes: "map", "base",
    "shape0", "stride0" (in elements) and so on; `box` (outermost axis first) and `swizzle` (0, 32, 64 or 128 bytes) are
    the encoding of the map.
    """

    kind: str
    box: tuple[int, ...] = attrs.field(default=(), converter=tuple[int, ...])
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
class LaunchMap:
    """A tensor map that a launch makes, of a matrix of this type of elements, for a box and a swizzle.

    `sources` says where its address, its two sizes and the elements from a row to the next come from: the number of a
    parameter, or "=" and a constant. The kernel stores through it if `stored`, and otherwise loads.
    """

    element: str
    box: tuple[int, ...] = attrs.field(converter=tuple[int, ...])
    swizzle: int
    sources: tuple[str, ...] = attrs.field(converter=tuple[str, ...])
    stored: bool = False


@attrs.frozen
class Binary:
    """A kernel for one target: PTX text, or the bytes of a cubin.

    `symbol` is its name in `code`; `name` the kernel's name for messages. `shared` is the dynamic shared memory of a
    CTA in bytes, `parameters` are in the order of the code's. `metadata` holds further facts, which JSON can hold;
    `disjoint` has pairs of run-time arguments, one after the other: see `pairs`. `launched` has the attributes of its
    launches: "pdl" and "cooperative". With `persistent`, the code has three more parameters, the sizes of the grid, and
    CTAs take the programs in turn. It has one more parameter for each of `maps`. If `scratch` is not 0, it has
    yet one, the last: a pointer to so many bytes for each program (`scratch.py`). A program is a cluster of `num_ctas`
    CTAs along the first axis.
    """

    symbol: str = attrs.field(validator=instance_of(str))
    code: str | bytes = attrs.field(repr=False)
    num_warps: int = attrs.field(validator=instance_of(int))
    shared: int = attrs.field(validator=instance_of(int))
    parameters: tuple[PtxParameter, ...]
    target: str = attrs.field(validator=instance_of(str))
    name: str = attrs.field(default="", validator=instance_of(str))
    metadata: Mapping[str, Any] = attrs.field(factory=dict[str, Any], hash=False, validator=instance_of(dict))
    disjoint: tuple[int, ...] = attrs.field(default=(), converter=tuple[int, ...])
    launched: tuple[str, ...] = attrs.field(default=(), converter=tuple[str, ...])
    scratch: int = attrs.field(default=0, validator=instance_of(int))
    maps: tuple[LaunchMap, ...] = attrs.field(default=(), converter=tuple[LaunchMap, ...])
    persistent: bool = attrs.field(default=False, validator=instance_of(bool))
    num_ctas: int = attrs.field(default=1, validator=instance_of(int))

    @property
    def arguments(self) -> tuple[int, ...]:
        """For each parameter, the run-time argument that it takes."""
        return tuple(n if p.argument is None else p.argument for n, p in enumerate(self.parameters))

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
        head = attrs.asdict(self)
        code = head.pop("code")
        head["ptx"] = isinstance(code, str)
        return json.dumps(head).encode() + b"\n" + (code.encode() if head["ptx"] else code)

    @classmethod
    def from_bytes(cls, data: bytes) -> Binary:
        """The value that `to_bytes` wrote. Raises `ValueError` for other bytes."""
        line, _, code = data.partition(b"\n")
        try:
            head = json.loads(line)
            parameters = tuple(PtxParameter(**fields) for fields in head.pop("parameters"))
            maps = tuple(LaunchMap(**fields) for fields in head.pop("maps"))
            is_text = head.pop("ptx")
            return cls(code=code.decode() if is_text else code, parameters=parameters, maps=maps, **head)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"these bytes are not a compiled kernel: {error}") from None
