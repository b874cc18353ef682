"""The calls of Triton's language that are calls of ours under other names or with other parameters."""

# The stubs have Triton's names, several of which hide builtins; they are found in `SPELLED`.
# pyright: reportUnusedFunction=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ziggurat.codemodel.types import TensorType
from ziggurat.frontends.language.kinds import (
    ConstAny,
    ConstBool,
    ConstDtype,
    ConstDtypes,
    ConstFunction,
    ConstInt,
    ConstInts,
    ConstShape,
    ConstStr,
    Value,
    Values,
)
from ziggurat.frontends.language.signature import signature_of
from ziggurat.frontends.triton.spelling import HINTS, Adapt, Spelling, declared, spells

# Programs.


@spells("program_id")
def program_id(axis: ConstInt) -> Value: ...


@spells("num_programs")
def num_programs(axis: ConstInt) -> Value: ...


def num_warps() -> Value: ...


def num_threads() -> Value: ...


for _stub, _per_warp in ((num_warps, 1), (num_threads, 32)):
    declared(Spelling(signature_of(_stub, "Triton", 1, "tl"), "", dict, per_warp=_per_warp))


# Creation.


@spells("arange")
def arange(start: ConstInt, end: ConstInt) -> Value: ...


@spells("zeros")
def zeros(shape: ConstShape, dtype: ConstDtype) -> Value: ...


@spells("full")
def full(shape: ConstShape, value: Value, dtype: ConstDtype) -> Value: ...


def _cast_arguments(bound: Mapping[str, Any]) -> Mapping[str, Any]:
    """The type of a tensor stands for that of its elements: `x.to(y.type)`."""
    dtype = bound["dtype"]
    given = {name: bound[name] for name in ("fp_downcast_rounding", "bitcast")}
    return {"x": bound["input"], "dtype": dtype.element if isinstance(dtype, TensorType) else dtype, **given}


@spells("cast", method=True, adapt=_cast_arguments)
def cast(
    input: Value, dtype: ConstAny, fp_downcast_rounding: ConstStr | None = None, bitcast: ConstBool = False
) -> Value: ...


@spells("cast", method=True, adapt=_cast_arguments)
def to(
    input: Value, dtype: ConstAny, fp_downcast_rounding: ConstStr | None = None, bitcast: ConstBool = False
) -> Value: ...


# Shapes.


def _in_a_row(name: str, to: str) -> Adapt:
    """Numbers that are given one by one, or as one tuple, for a parameter that takes a tuple."""

    def adapt(bound: Mapping[str, Any]) -> Mapping[str, Any]:
        given = bound[name]
        return {"x": bound["input"], to: given[0] if len(given) == 1 and isinstance(given[0], tuple) else given}

    return adapt


@spells("expand", method=True, input="x")
def expand_dims(input: Value, axis: ConstInts) -> Value: ...


@spells("broadcast", method=True, adapt=_in_a_row("shape", "shape"))
def broadcast_to(input: Value, *shape: ConstInts) -> Value: ...


@spells("reshape", method=True, adapt=_in_a_row("shape", "shape"))
def reshape(input: Value, *shape: ConstInts, can_reorder: ConstBool = False) -> Value: ...


@spells("reshape", method=True, adapt=_in_a_row("shape", "shape"))
def view(input: Value, *shape: ConstInts) -> Value: ...


@spells("reshape", method=True, adapt=lambda bound: {"x": bound["input"], "shape": ()})
def item(input: Value) -> Value: ...


@spells("ravel", method=True)
def ravel(x: Value, can_reorder: ConstBool = False) -> Value: ...


@spells("trans", method=True, adapt=_in_a_row("dims", "dims"))
def trans(input: Value, *dims: ConstInts) -> Value: ...


@spells("permute", method=True, adapt=_in_a_row("dims", "dims"))
def permute(input: Value, *dims: ConstInts) -> Value: ...


@spells("squeeze", method=True)
def squeeze(x: Value, dim: ConstInt) -> Value: ...


@spells("unsqueeze", method=True)
def unsqueeze(x: Value, dim: ConstInt) -> Value: ...


@spells("join")
def join(a: Value, b: Value) -> Value: ...


@spells("interleave")
def interleave(a: Value, b: Value) -> Value: ...


@spells("split", method=True, a="x")
def split(a: Value) -> Value: ...


@spells("flip", method=True, adapt=lambda bound: {"x": bound["x"], "dim": -1 if bound["dim"] is None else bound["dim"]})
def flip(x: Value, dim: ConstInt | None = None) -> Value: ...


# Arithmetic.


@spells("add", x="a", y="b")
def add(x: Value, y: Value, sanitize_overflow: ConstBool = True) -> Value: ...


@spells("sub", x="a", y="b")
def sub(x: Value, y: Value, sanitize_overflow: ConstBool = True) -> Value: ...


@spells("mul", x="a", y="b")
def mul(x: Value, y: Value, sanitize_overflow: ConstBool = True) -> Value: ...


@spells("minimum", x="a", y="b")
def minimum(x: Value, y: Value, propagate_nan: ConstBool = False) -> Value: ...


@spells("maximum", x="a", y="b")
def maximum(x: Value, y: Value, propagate_nan: ConstBool = False) -> Value: ...


@spells("clamp")
def clamp(x: Value, min: Value, max: Value, propagate_nan: ConstBool = False) -> Value: ...


@spells("where")
def where(condition: Value, x: Value, y: Value) -> Value: ...


@spells("cdiv", method=True)
def cdiv(x: Value, div: Value) -> Value: ...


@spells("and_", method=True, x="a", y="b")
def logical_and(x: Value, y: Value) -> Value: ...


@spells("or_", method=True, x="a", y="b")
def logical_or(x: Value, y: Value) -> Value: ...


@spells("fdiv", x="a", y="b")
def fdiv(x: Value, y: Value, ieee_rounding: ConstBool = False) -> Value: ...


@spells("swizzle2d")
def swizzle2d(i: Value, j: Value, size_i: Value, size_j: Value, size_g: Value) -> Value: ...


# Functions.


@spells("fma", x="a", y="b", z="c")
def fma(x: Value, y: Value, z: Value) -> Value: ...


@spells("umulhi", x="a", y="b")
def umulhi(x: Value, y: Value) -> Value: ...


@spells("div_rn", x="a", y="b")
def div_rn(x: Value, y: Value) -> Value: ...


def _function(name: str) -> Spelling:
    """A function of one number."""

    def stub(x: Value) -> Value: ...

    stub.__name__ = name
    return spells(name, method=True)(stub)


FUNCTIONS = (
    "abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log2", "rsqrt", "sigmoid", "sin", "sqrt", "sqrt_rn",
)  # fmt: skip
for _name in FUNCTIONS:
    _function(_name)


# Random numbers.


@spells("philox")
def philox(seed: Value, c0: Value, c1: Value, c2: Value, c3: Value, n_rounds: ConstInt = 10) -> Value: ...


@spells("rand")
def rand(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value: ...


@spells("randn")
def randn(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value: ...


@spells("randint")
def randint(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value: ...


@spells("rand4x", offsets="offset")
def rand4x(seed: Value, offsets: Value, n_rounds: ConstInt = 10) -> Value: ...


@spells("randn4x")
def randn4x(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value: ...


@spells("randint4x")
def randint4x(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value: ...


# Memory.


@spells("load", pointer="ptr")
def load(
    pointer: Value,
    mask: Value = None,
    other: Value = None,
    boundary_check: ConstInts | None = (),
    padding_option: ConstStr | None = "",
    cache_modifier: ConstStr | None = "",
    eviction_policy: ConstStr | None = "",
    volatile: ConstBool = False,
) -> Value: ...


@spells("store", method=True, pointer="ptr")
def store(
    pointer: Value,
    value: Value,
    mask: Value = None,
    boundary_check: ConstInts | None = (),
    cache_modifier: ConstStr | None = "",
    eviction_policy: ConstStr | None = "",
) -> None: ...


@spells("make_block_ptr")
def make_block_ptr(
    base: Value, shape: Values, strides: Values, offsets: Values, block_shape: ConstShape, order: ConstInts
) -> Value: ...


@spells("advance", method=True)
def advance(base: Value, offsets: Values) -> Value: ...


@spells("make_tensor_descriptor")
def make_tensor_descriptor(
    base: Value, shape: Values, strides: Values, block_shape: ConstShape, padding_option: ConstStr = "zero"
) -> Value: ...


@spells("load_tensor_descriptor")
def load_tensor_descriptor(desc: Value, offsets: Values) -> Value: ...


@spells("store_tensor_descriptor")
def store_tensor_descriptor(desc: Value, offsets: Values, value: Value) -> None: ...


def _atomic(name: str) -> Spelling:
    """An atomic operation with one operand."""

    def stub(
        pointer: Value, val: Value, mask: Value = None, sem: ConstStr | None = None, scope: ConstStr | None = None
    ) -> Value: ...

    stub.__name__ = name
    return spells(name, method=True, pointer="ptr")(stub)


for _name in ("atomic_add", "atomic_and", "atomic_max", "atomic_min", "atomic_or", "atomic_xchg", "atomic_xor"):
    _atomic(_name)


@spells("atomic_cas", method=True, pointer="ptr")
def atomic_cas(
    pointer: Value, cmp: Value, val: Value, sem: ConstStr | None = None, scope: ConstStr | None = None
) -> Value: ...


# Reductions, scans, sorting and counting.


@spells("sum", method=True, input="x")
def sum(
    input: Value, axis: ConstInt | None = None, keep_dims: ConstBool = False, dtype: ConstDtype | None = None
) -> Value: ...


@spells("max", method=True, input="x")
def max(
    input: Value,
    axis: ConstInt | None = None,
    return_indices: ConstBool = False,
    return_indices_tie_break_left: ConstBool = True,
    keep_dims: ConstBool = False,
) -> Value: ...


@spells("min", method=True, input="x")
def min(
    input: Value,
    axis: ConstInt | None = None,
    return_indices: ConstBool = False,
    return_indices_tie_break_left: ConstBool = True,
    keep_dims: ConstBool = False,
) -> Value: ...


@spells("argmax", method=True, input="x")
def argmax(
    input: Value, axis: ConstInt | None, tie_break_left: ConstBool = True, keep_dims: ConstBool = False
) -> Value: ...


@spells("argmin", method=True, input="x")
def argmin(
    input: Value, axis: ConstInt | None, tie_break_left: ConstBool = True, keep_dims: ConstBool = False
) -> Value: ...


@spells("xor_sum", method=True, input="x")
def xor_sum(input: Value, axis: ConstInt | None = None, keep_dims: ConstBool = False) -> Value: ...


@spells("reduce_or", method=True, input="x")
def reduce_or(input: Value, axis: ConstInt | None, keep_dims: ConstBool = False) -> Value: ...


@spells("reduce", method=True, input="x")
def reduce(input: Value, axis: ConstInt | None, combine_fn: ConstFunction, keep_dims: ConstBool = False) -> Value: ...


@spells("associative_scan", method=True, input="x")
def associative_scan(input: Value, axis: ConstInt, combine_fn: ConstFunction, reverse: ConstBool = False) -> Value: ...


@spells("cumprod", method=True, input="x")
def cumprod(input: Value, axis: ConstInt = 0, reverse: ConstBool = False) -> Value: ...


@spells("cumsum", method=True, input="x")
def cumsum(input: Value, axis: ConstInt = 0, reverse: ConstBool = False, dtype: ConstDtype | None = None) -> Value: ...


@spells("sort", method=True)
def sort(x: Value, dim: ConstInt | None = None, descending: ConstBool = False) -> Value: ...


@spells("topk")
def topk(x: Value, k: ConstInt, dim: ConstInt | None = None, descending: ConstBool = True) -> Value: ...


@spells("histogram", method=True, input="x")
def histogram(input: Value, num_bins: ConstInt, mask: Value = None) -> Value: ...


@spells("gather", method=True)
def gather(src: Value, index: Value, axis: ConstInt) -> Value: ...


# Linear algebra.


def _dot_arguments(bound: Mapping[str, Any]) -> Mapping[str, Any]:
    precision = bound["input_precision"]
    if precision is None:
        precision = "tf32" if bound["allow_tf32"] in (None, True) else "ieee"
    given = {name: bound[name] for name in ("acc", "max_num_imprecise_acc", "out_dtype")}
    return {"a": bound["input"], "b": bound["other"], "input_precision": precision.lower(), **given}


@spells("dot", adapt=_dot_arguments)
def dot(
    input: Value,
    other: Value,
    acc: Value = None,
    input_precision: ConstStr | None = None,
    allow_tf32: ConstAny = None,
    max_num_imprecise_acc: ConstInt | None = None,
    out_dtype: ConstDtype | None = None,
) -> Value: ...


@spells("dot_scaled")
def dot_scaled(
    lhs: Value,
    lhs_scale: Value | None,
    lhs_format: ConstStr,
    rhs: Value,
    rhs_scale: Value | None,
    rhs_format: ConstStr,
    acc: Value = None,
    fast_math: ConstBool = False,
    lhs_k_pack: ConstBool = True,
    rhs_k_pack: ConstBool = True,
    out_dtype: ConstDtype | None = None,
) -> Value: ...


# Loops, hints, debugging, inline assembly.


@spells("range")
def range(
    arg1: Value,
    arg2: Value = None,
    step: Value = None,
    num_stages: ConstInt | None = None,
    loop_unroll_factor: ConstInt | None = None,
    disallow_acc_multi_buffer: ConstBool = False,
    flatten: ConstBool = False,
    warp_specialize: ConstBool = False,
    disable_licm: ConstBool = False,
) -> Value: ...


@spells("static_range")
def static_range(arg1: ConstInt, arg2: ConstInt | None = None, step: ConstInt | None = None) -> Value: ...


def _hint(name: str) -> Spelling:
    """A fact about integers or pointers."""

    def stub(input: Value, values: ConstInts) -> Value: ...

    stub.__name__ = name
    return spells(name, input="x")(stub)


for _name in HINTS:
    _hint(_name)


@spells("assume")
def assume(cond: Value) -> None: ...


@spells("static_assert")
def static_assert(cond: ConstAny, msg: ConstAny = "") -> None: ...


@spells("static_print")
def static_print(
    *values: Value, sep: ConstStr = " ", end: ConstStr = "\n", file: ConstAny = None, flush: ConstBool = False
) -> None: ...


@spells("device_print")
def device_print(prefix: ConstStr, *args: Value, hex: ConstBool = False) -> None: ...


@spells("device_assert")
def device_assert(cond: Value, msg: ConstStr = "", mask: Value = None) -> None: ...


@spells("debug_barrier")
def debug_barrier() -> None: ...


@spells("map_elementwise")
def map_elementwise(scalar_fn: ConstFunction, *args: Value, pack: ConstInt = 1) -> Value: ...


@spells("inline_asm_elementwise")
def inline_asm_elementwise(
    asm: ConstStr, constraints: ConstStr, args: Values, dtype: ConstDtypes, is_pure: ConstBool, pack: ConstInt
) -> Value: ...


# What CUDA alone has.


@spells("smid")
def smid() -> Value: ...


@spells("gdc_wait")
def gdc_wait() -> None: ...


@spells("gdc_launch_dependents")
def gdc_launch_dependents() -> None: ...


@spells("globaltimer")
def globaltimer() -> Value: ...
