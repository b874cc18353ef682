"""The calls of Triton's language that are calls of ours under other names or with other parameters."""

# The stubs have Triton's names, several of which hide builtins; they are found in `SPELLED`.
# pyright: reportUnusedFunction=false

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstAny, ConstBool, ConstDtype, ConstInt, ConstShape, ConstStr, Value
from ziggurat.frontends.triton.spelling import spells


@spells("program_id")
def program_id(axis: ConstInt) -> Value: ...


@spells("num_programs")
def num_programs(axis: ConstInt) -> Value: ...


@spells("arange")
def arange(start: ConstInt, end: ConstInt) -> Value: ...


@spells("zeros")
def zeros(shape: ConstShape, dtype: ConstDtype) -> Value: ...


@spells("full")
def full(shape: ConstShape, value: Value, dtype: ConstDtype) -> Value: ...


@spells("load", ptr="ptr", pointer="ptr")
def load(
    pointer: Value,
    mask: Value = None,
    other: Value = None,
    boundary_check: ConstAny = (),
    padding_option: ConstStr = "",
    cache_modifier: ConstStr = "",
    eviction_policy: ConstStr = "",
    volatile: ConstBool = False,
) -> Value: ...


@spells("store", pointer="ptr")
def store(
    pointer: Value,
    value: Value,
    mask: Value = None,
    boundary_check: ConstAny = (),
    cache_modifier: ConstStr = "",
    eviction_policy: ConstStr = "",
) -> None: ...


@spells("where")
def where(condition: Value, x: Value, y: Value) -> Value: ...


@spells("exp", method=True)
def exp(x: Value) -> Value: ...


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


@spells("dot", input="a", other="b")
def dot(
    input: Value,
    other: Value,
    acc: Value = None,
    input_precision: ConstStr | None = None,
    allow_tf32: ConstAny = None,
    max_num_imprecise_acc: ConstAny = None,
    out_dtype: ConstDtype | None = None,
) -> Value: ...


@spells("cdiv")
def cdiv(x: Value, div: Value) -> Value: ...


@spells("cast", method=True, input="x")
def to(
    input: Value, dtype: ConstDtype, fp_downcast_rounding: ConstStr | None = None, bitcast: ConstBool = False
) -> Value: ...
