"""LLVM's instructions on values in the simulation: arithmetic, comparisons, casts and intrinsics.

A value is an array over the threads; a vector, a struct or an LLVM array is a list of these. Where LLVM leaves the
result open (a shift by too much, an overflow against a flag) it is some number that nothing may depend on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, cast

import numpy as np

from ziggurat.backend.simulator.shared import Array
from ziggurat.backend.simulator.text import dtype_of, elements_of, odd_width, unknown
from ziggurat.codemodel import scalars
from ziggurat.codemodel.numbers import COMPARISONS, quotient
from ziggurat.codemodel.scalars import bits_of
from ziggurat.codemodel.types import SCALARS, ScalarType, bf16, f16, f32, f64, i32, u32

_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_FLOATS = {np.dtype(scalar.dtype): scalar for scalar in (f16, bf16, f32, f64)}
_OBJECT = np.dtype(object)
_WIDE = (1 << 128) - 1  # An i128 is an array of Python's integers.


def over(function: Callable[..., Any], *values: Any) -> Any:
    """Apply a function to arrays, and to vectors and structs element by element; an array goes with each element."""
    count = next((len(cast("list[Any]", value)) for value in values if isinstance(value, list)), None)
    if count is None:
        return function(*values)
    columns = (cast("list[Any]", value) if isinstance(value, list) else [value] * count for value in values)
    return [over(function, *parts) for parts in zip(*columns, strict=True)]


def chosen(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` where the condition holds, else `otherwise`; vectors and structs element by element."""
    return over(np.where, condition, then, otherwise)


def distinct(array: Array) -> Array:
    """The values in an array, in order. Most arrays have one, for which `unique` takes longer than to compare them."""
    flat = array.reshape(-1)
    return flat[:1] if (flat == flat[:1]).all() else np.unique(flat)


def signed(array: Array) -> Array:
    """The bits of integers read as signed ones; a true i1 is -1."""
    if array.dtype == object:
        return array - (array >> 127 << 128)
    return array.view(_SIGNED[array.dtype.itemsize]) if array.dtype != np.bool_ else -array.astype(np.int8)


def _unsigned(array: Array, like: Array) -> Array:
    """Signed integers in the representation of `like`."""
    if like.dtype == object:
        return array & _WIDE
    return (array & 1).astype(np.bool_) if like.dtype == np.bool_ else array.view(like.dtype)


def _on_signed(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *values: _unsigned(function(*map(signed, values)), values[0])


def _shifted(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """A shift that leaves single bits as they are: they shift by 0 only."""
    return lambda a, b: a if a.dtype == np.bool_ else function(a, b)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda a, b: a ^ b if a.dtype == np.bool_ else a + b,
    "sub": lambda a, b: a ^ b if a.dtype == np.bool_ else a - b,
    "mul": lambda a, b: a * b, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": _shifted(np.left_shift), "lshr": _shifted(np.right_shift),
    "ashr": _shifted(_on_signed(np.right_shift)), "udiv": np.floor_divide, "urem": np.remainder,
    "fadd": lambda a, b: a + b, "fsub": lambda a, b: a - b, "fmul": lambda a, b: a * b, "fdiv": lambda a, b: a / b,
    "frem": np.fmod, "sdiv": _on_signed(quotient), "srem": _on_signed(np.fmod),
}  # fmt: skip
BINARY = frozenset(_BINARY)


def binary(opcode: str, a: Any, b: Any) -> Any:
    """The result of an instruction in `BINARY`."""
    result = over(_BINARY[opcode], a, b)
    return result & _WIDE if getattr(result, "dtype", None) is _OBJECT else result


def broken(opcode: str, flags: Collection[str], a: Array, b: Array, result: Array) -> Array:
    """A mask of results that break the instruction's flags, as nuw."""
    poison = np.zeros(len(a), bool)
    if a.dtype in (np.bool_, object):
        return poison
    if "disjoint" in flags:
        poison |= (a & b) != 0
    if "exact" in flags and opcode in ("lshr", "ashr"):
        poison |= result << b != a
    for flag in {"nuw", "nsw"}.intersection(flags):
        x, y, z = (a, b, result) if flag == "nuw" else (signed(a), signed(b), signed(result))
        if opcode == "add":
            poison |= z < x if flag == "nuw" else (z < x) != (y < 0)
        elif opcode == "sub":
            poison |= z > x if flag == "nuw" else (z > x) != (y < 0)
        elif opcode == "shl":
            poison |= z >> y != x
        elif opcode == "mul":
            poison |= ((y != 0) & (quotient(z, y) != x)) | ((x != 0) & (quotient(z, x) != y))
    return poison


def compared(opcode: str, predicate: str, a: Any, b: Any) -> Any:
    """The result of icmp or fcmp."""
    return over(partial(_integers if opcode == "icmp" else _floats, predicate), a, b)


def _integers(predicate: str, a: Array, b: Array) -> Array:
    if predicate[0] == "s":
        a, b = signed(a), signed(b)
    return COMPARISONS[predicate[-2:]](a, b)


def _floats(predicate: str, a: Array, b: Array) -> Array:
    unordered = np.isnan(a) | np.isnan(b)
    if predicate in ("true", "false"):
        return np.full_like(unordered, predicate == "true")
    result = ~unordered if predicate == "ord" else predicate != "uno" and COMPARISONS[predicate[1:]](a, b)
    return result | unordered if predicate[0] == "u" else result & ~unordered


# Casts.

_CASTS = {
    "trunc", "zext", "sext", "fptrunc", "fpext", "fptoui", "fptosi", "uitofp", "sitofp", "ptrtoint", "inttoptr",
    "bitcast", "addrspacecast",
}  # fmt: skip


def cast_to(opcode: str, value: Any, source: str, target: str) -> Any:
    """The result of a cast. Raises `TargetError` for casts and types that are not known."""
    if opcode not in _CASTS or (opcode == "addrspacecast" and "(3)" in source + target):
        raise unknown(f"{opcode} from {source} to {target}")  # Simulated addresses do not tell the memory.
    if opcode == "bitcast":
        return _bits(value, target)
    dtype = dtype_of((elements_of(target) or (target,))[0])
    if width := odd_width(source):
        if opcode == "sext":
            sign = value.dtype.type(1 << width - 1)
            value = (value ^ sign) - sign
        elif opcode not in ("zext", "trunc"):
            raise unknown(f"{opcode} from {source} to {target}")
    result = over(partial(_converted, opcode, dtype), value)
    return result & dtype((1 << odd_width(target)) - 1) if odd_width(target) else result


def _converted(opcode: str, dtype: Any, array: Array) -> Array:
    if opcode == "fptrunc":
        return scalars.rounded(array, _FLOATS[np.dtype(dtype)])
    if opcode in ("sext", "sitofp"):
        result = signed(array).astype(dtype)
        return result & _WIDE if dtype is object else result
    if opcode == "trunc" and array.dtype == object and dtype != np.bool_:
        return (array & ((1 << 8 * np.dtype(dtype).itemsize) - 1)).astype(dtype)
    if opcode == "trunc" and dtype == np.bool_:
        return (array & 1).astype(np.bool_)
    if opcode == "fptosi" and dtype != np.bool_:
        return array.astype(_SIGNED[np.dtype(dtype).itemsize]).view(dtype)
    return array.astype(dtype)


def _bits(value: Any, target: str) -> Any:
    """The same bits in another type; a vector's first element has the low ones."""
    elements = elements_of(target)
    dtype = dtype_of(elements[0] if elements else target)
    parts = cast("list[Array]", value if isinstance(value, list) else [value])
    if elements and len(elements) == len(parts):
        return [np.ascontiguousarray(part).view(dtype) for part in parts]
    if any(part.dtype == np.bool_ for part in parts) or dtype == np.bool_:
        raise unknown(f"bitcast of one bit, to {target}")
    together = np.ascontiguousarray(np.stack(parts, axis=1)).view(dtype)
    return [together[:, at] for at in range(together.shape[1])] if elements else together[:, 0]


# Functions.


def _funnel(is_left: bool, a: Array, b: Array, by: Array) -> Array:
    """The upper, or the lower, half of two words that are shifted as one."""
    width = a.dtype.type(8 * a.dtype.itemsize)
    by = by % width
    other = (width - by) % width
    shifted = a << by | b >> other if is_left else a << other | b >> by
    return np.where(by == 0, a if is_left else b, shifted)


def _saturated(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def made(a: Array, b: Array) -> Array:
        info = np.iinfo(a.dtype)
        if a.dtype.itemsize == 8:
            raise unknown("saturation of 64 bits")
        return np.clip(function(a.astype(np.int64), b.astype(np.int64)), info.min, info.max).astype(a.dtype)

    return made


def _leading_zeros(a: Array) -> Array:
    if a.dtype == object:
        return np.array([128 - value.bit_length() for value in a.tolist()], object)
    return scalars.leading_zeros(a)


def _whole(a: Array, scalar: ScalarType) -> Array:
    """The bits of floats as integers of a type, toward zero and saturating; NaN is 0."""
    return bits_of(scalars.float_to_int(a, scalar))


def _of_class(a: Array, mask: Array) -> Array:
    """Whether a float is of one of the classes whose bits are set: NaNs, then from -∞ to ∞."""
    negative, size = np.signbit(a), np.abs(a)
    smallest = _FLOATS[a.dtype].format.smallest_normal
    kinds = [np.isnan(a), size == 0, np.isinf(a), size < smallest]
    bits = np.select(
        kinds,
        [3, np.where(negative, 32, 64), np.where(negative, 4, 512), np.where(negative, 16, 128)],
        np.where(negative, 8, 256),
    )
    return (bits & mask) != 0


def _bytes_of_two(low: Array, high: Array, selected: Array) -> Array:
    """The bytes of two words that the lower four digits of `selected` name, the lowest first."""
    both = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    digits = (selected.astype(np.uint64) >> np.uint64(4 * at) & np.uint64(7) for at in range(4))
    parts = ((both >> digit * np.uint64(8) & np.uint64(255)) << np.uint64(8 * at) for at, digit in enumerate(digits))
    return np.asarray(sum(parts, np.uint64(0))).astype(np.uint32)


_OF_ONE: dict[str, Callable[[Array], Array]] = {
    "ctpop": scalars.ones, "bswap": lambda a: np.asarray(a.byteswap()), "bitreverse": scalars.reversed_bits,
    "fabs": np.abs, "sqrt": np.sqrt, "exp2": np.exp2, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "rint": np.rint, "nearbyint": np.rint, "roundeven": np.rint, "sqrt.approx": np.sqrt,
    "sqrt.rn": np.sqrt, "f2i.rz": partial(_whole, scalar=i32), "f2ui.rz": partial(_whole, scalar=u32),
    "internal.addrspace.wrap": lambda a: a,  # The address of a parameter in parameter memory.
}  # fmt: skip
_OF_TWO: dict[str, Callable[[Array, Array], Any]] = {
    "umax": np.maximum, "umin": np.minimum, "smax": _on_signed(np.maximum), "smin": _on_signed(np.minimum),
    "uadd.sat": _saturated(np.add), "usub.sat": _saturated(np.subtract),
    "sadd.sat": _on_signed(_saturated(np.add)), "ssub.sat": _on_signed(_saturated(np.subtract)),
    "uadd.with.overflow": lambda a, b: [a + b, a + b < a], "usub.with.overflow": lambda a, b: [a - b, a < b],
    "maximum": scalars.maximum, "minimum": scalars.minimum, "maxnum": scalars.maxnum, "minnum": scalars.minnum,
    "copysign": np.copysign, "is.fpclass": _of_class,
    # The second operand says whether some results are poison.
    "abs": lambda a, _: _on_signed(np.abs)(a), "cttz": lambda a, _: _leading_zeros(scalars.reversed_bits(a)),
    "ctlz": lambda a, _: _leading_zeros(a),
}  # fmt: skip
_OF_THREE: dict[str, Callable[[Array, Array, Array], Array]] = {
    "fshl": partial(_funnel, True), "fshr": partial(_funnel, False),
    "fma": lambda a, b, c: scalars.fma(a, b, c, _FLOATS[a.dtype]), "prmt": _bytes_of_two,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {**_OF_ONE, **_OF_TWO, **_OF_THREE}


def _order(is_signed: bool, dtype: str, a: Array, b: Array) -> Array:
    """-1, 0 or 1 in a type, as `a` is below, equal to or above `b`."""
    if is_signed:
        a, b = signed(a), signed(b)
    return bits_of(((a > b).astype(np.int8) - (a < b).astype(np.int8)).astype(dtype))


def _reversed_of(width: int, a: Array) -> Array:
    return scalars.reversed_bits(a) >> a.dtype.type(8 * a.dtype.itemsize - width)


def function_named(name: str) -> Callable[..., Any] | None:
    """The function of an LLVM intrinsic, for arrays and vectors of them; None for an unknown one."""
    saturated = re.fullmatch(r"llvm\.fpto([us])i\.sat\.i(8|16|32|64)\..*", name)
    if saturated:
        scalar = SCALARS[f"{saturated[1].replace('s', 'i')}{saturated[2]}"]
        return partial(over, partial(_whole, scalar=scalar))
    comparison = re.fullmatch(r"llvm\.([su])cmp\.(?:v\d+)?i(8|16|32|64)\.(?:v\d+)?i(?:8|16|32|64)", name)
    if comparison:
        return partial(over, partial(_order, comparison[1] == "s", f"i{int(comparison[2]) // 8}"))
    words = name.removeprefix("llvm.").removeprefix("nvvm.").split(".")
    width = odd_width(words[-1])
    if width:  # Integers of a width that NumPy lacks.
        if words[0] == "bitreverse":
            return partial(_reversed_of, width)
        return _FUNCTIONS[words[0]] if words[0] in ("umin", "umax", "ctpop") else None
    # Drop the types at the end of a name, and the rounding of f32.
    while len(words) > 1 and re.fullmatch(r"(?:v\d+)?(?:i\d+|f\d+|bf16|p\d+)|ftz|f|d", words[-1]):
        words.pop()
    function = _FUNCTIONS.get(".".join(words))
    return None if function is None else partial(over, function)
