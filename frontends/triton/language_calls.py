"""The calls of Triton's language that are calls of ours, most under the same names and with the same parameters."""

# The stubs have Triton's names, several of which hide builtins; they are found in `SPELLED`.
# pyright: reportUnusedFunction=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ziggurat.frontends.language.kinds import (
    ConstAny,
    ConstBool,
    ConstDtype,
    ConstInt,
    ConstInts,
    ConstStr,
    ConstTruth,
    Value,
)
from ziggurat.frontends.language.languages import Adapt, Spelling
from ziggurat.frontends.language.programs import HINTS
from ziggurat.frontends.language.signature import signature_of
from ziggurat.frontends.triton.spelling import declare_spelling, same, spells

# Calls with our parameters.

FUNCTIONS = (
    "abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log2", "rsqrt", "sigmoid", "sin", "sqrt", "sqrt_rn",
)  # fmt: skip
_OF_X = {"input": "x"}
_OF_TWO = {"x": "a", "y": "b"}
_AT_POINTERS = {"pointer": "ptr"}
# With the names of parameters that differ.
_CALLS: tuple[tuple[Sequence[str], Mapping[str, str]], ...] = (
    ((
        *FUNCTIONS, "program_id", "num_programs", "arange", "full", "join", "interleave", "clamp", "swizzle2d",
        "philox", "rand", "randn", "randint", "randn4x", "randint4x", "make_block_ptr", "make_tensor_descriptor",
        "load_tensor_descriptor", "store_tensor_descriptor", "dot_scaled", "range", "static_range", "assume",
        "device_print", "device_assert", "debug_barrier", "map_elementwise", "inline_asm_elementwise", "smid",
        "gdc_wait", "gdc_launch_dependents", "globaltimer", "squeeze", "unsqueeze", "cdiv", "advance", "sort", "gather",
    ), {}),
    (("rand4x",), {"offsets": "offset"}),
    (("split",), {"a": "x"}),
    (("umulhi", "div_rn"), _OF_TWO),
    (("fma",), {**_OF_TWO, "z": "c"}),
    ((
        *HINTS, "sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce", "associative_scan", "cumprod", "cumsum",
        "histogram",
    ), _OF_X),
    ((
        "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or", "atomic_xchg", "atomic_xor",
    ), _AT_POINTERS),
)  # fmt: skip
for _names, _renamed in _CALLS:
    for _name in _names:
        same(_name, _renamed)
zeros, where = same("zeros"), same("where")
minimum, maximum = same("minimum", _OF_TWO), same("maximum", _OF_TWO)
same("expand", _OF_X, name="expand_dims")
same("and_", _OF_TWO, name="logical_and", method=True)
same("or_", _OF_TWO, name="logical_or", method=True)
same("flip", adapt=lambda bound: {"x": bound["x"], "dim": -1 if bound["dim"] is None else bound["dim"]})


# Constants of a launch.


def num_warps() -> Value: ...


def num_threads() -> Value: ...


for _stub, _per_warp in ((num_warps, 1), (num_threads, 32)):
    declare_spelling(Spelling(signature_of(_stub, "Triton", 1, "tl"), "", dict, per_warp=_per_warp))


# Conversions and shapes.


def cast(
    input: Value, dtype: ConstDtype, fp_downcast_rounding: ConstStr | None = None, bitcast: ConstBool = False
) -> Value: ...


for _name in ("cast", "to"):
    spells("cast", _OF_X, name=_name)(cast)


def _in_a_row(name: str) -> Adapt:
    """Numbers that are given one by one, or as one tuple, for a parameter of this name that takes a tuple."""

    def adapt(bound: Mapping[str, Any]) -> Mapping[str, Any]:
        numbers = bound[name]
        is_tuple = len(numbers) == 1 and isinstance(numbers[0], tuple)
        return {"x": bound["input"], name: numbers[0] if is_tuple else numbers}

    return adapt


for _name in ("trans", "permute"):
    same(_name, _OF_X, adapt=_in_a_row("dims"))


@spells("broadcast", adapt=_in_a_row("shape"))
def broadcast_to(input: Value, *shape: ConstInts) -> Value: ...


@spells("reshape", adapt=_in_a_row("shape"))
def reshape(input: Value, *shape: ConstInts, can_reorder: ConstBool = False) -> Value: ...


@spells("reshape", adapt=_in_a_row("shape"))
def view(input: Value, *shape: ConstInts) -> Value: ...


@spells("reshape", adapt=lambda bound: {"x": bound["input"], "shape": ()})
def item(input: Value) -> Value: ...


@spells("ravel")
def ravel(x: Value, can_reorder: ConstBool = False) -> Value: ...


# Arithmetic.


# A check for overflow is an option of the launch.
def arithmetic(x: Value, y: Value, sanitize_overflow: ConstBool = True) -> Value: ...


for _name in ("add", "sub", "mul"):
    spells(_name, _OF_TWO, name=_name)(arithmetic)


# Quotients are never less exact than Triton's approximate ones.
@spells("fdiv", _OF_TWO)
def fdiv(x: Value, y: Value, ieee_rounding: ConstBool = False, approx: ConstBool = False) -> Value: ...


# Memory.


@spells("load", _AT_POINTERS)
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


@spells("store", _AT_POINTERS)
def store(
    pointer: Value,
    value: Value,
    mask: Value = None,
    boundary_check: ConstInts | None = (),
    cache_modifier: ConstStr | None = "",
    eviction_policy: ConstStr | None = "",
) -> None: ...


# Reductions and sorting.


@spells("reduce_or", _OF_X)
def reduce_or(input: Value, axis: ConstInt | None, keep_dims: ConstBool = False) -> Value: ...


@spells("topk")
def topk(x: Value, k: ConstInt, dim: ConstInt | None = None, descending: ConstBool = True) -> Value: ...


# Linear algebra.


def _dot_arguments(bound: Mapping[str, Any]) -> Mapping[str, Any]:
    precision = bound["input_precision"]
    if precision is None:
        precision = "tf32" if bound["allow_tf32"] in (None, True) else "ieee"
    options = {name: bound[name] for name in ("acc", "max_num_imprecise_acc", "out_dtype")}
    return {"a": bound["input"], "b": bound["other"], "input_precision": precision.lower(), **options}


@spells("dot", adapt=_dot_arguments)
def dot(
    input: Value,
    other: Value,
    acc: Value = None,
    input_precision: ConstStr | None = None,
    allow_tf32: ConstTruth = None,
    max_num_imprecise_acc: ConstInt | None = None,
    out_dtype: ConstDtype | None = None,
) -> Value: ...


# Debugging.


@spells("static_assert")
def static_assert(cond: ConstAny, msg: ConstAny = "") -> None: ...


@spells("static_print")
def static_print(
    *values: Value, sep: ConstStr = " ", end: ConstStr = "\n", file: ConstAny = None, flush: ConstBool = False
) -> None: ...
