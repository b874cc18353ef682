"""Loads and stores of global memory: words and vectors, predicates, hints to the caches; simulated on arrays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from ziggurat.backend.llvm.routines import Routine
from ziggurat.backend.ptx import assemble  # noqa: F401  (fills the table)
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.backend.ptx.emitter import PtxEmitter
from ziggurat.backend.ptx.packed_words import from_memory, pack, to_memory, unpack, word_bytes
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import bf16, f8e4m3, f16, f32, f64, i1, i32

DTYPES: dict[str, Any] = {"i8": np.int8, "f16": np.float16, "i32": np.int32, "f32": np.float32, "f64": np.float64}


def model(parameters: str, body: str, num_warps: int = 1) -> gpu.Module:
    module = parse(f"""gpu.module @target="sm_90a" @num_warps={num_warps} ()void -> {{
        tt.func @"k" ({parameters})void -> {{ {body} tt.return; }}; unreachable; }};""")
    assert isinstance(module, gpu.Module)
    return module


def emitter() -> PtxEmitter:
    return PtxEmitter(model("", ""), CompileOptions())


@pytest.mark.parametrize(("size", "count", "expected"), [
    (1, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 4), (1, 4, 4), (2, 4, 4), (4, 1, 4), (4, 4, 4), (8, 1, 8), (8, 2, 8),
])  # fmt: skip
def test_an_access_is_divided_into_words(size: int, count: int, expected: int) -> None:
    assert word_bytes(size, count) == expected


def test_memory_holds_the_bits_of_floats_and_a_byte_of_a_condition() -> None:
    result = emitter()
    assert to_memory(result, "%x", i32) == from_memory(result, "%x", i32) == "%x"
    assert to_memory(result, "%x", f8e4m3) == "%x"  # An 8-bit float is held as its bits.
    assert result.lines == []
    for scalar in (i1, f16, bf16, f32, f64):
        from_memory(result, to_memory(result, "%x", scalar), scalar)
    kinds = {"half": "i16", "bfloat": "i16", "float": "i32", "double": "i64"}
    casts = [
        text
        for kind, whole in kinds.items()
        for text in (f"bitcast {kind} %x to {whole}", f"bitcast {whole} %v to {kind}")
    ]
    text = [re.sub(r"%v\d+", "%v", line.split(" = ")[1]) for line in result.lines]
    assert text == ["zext i1 %x to i8", "icmp ne i8 %v, 0", *casts]


@pytest.mark.parametrize(("size", "word"), [(1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (4, 8)])
def test_unpacking_is_the_inverse_of_packing(size: int, word: int, on_host) -> None:
    """The first element is in the lowest bits."""
    per, kind = word // size, f"i{8 * size}"
    for expected in range(per):
        result = emitter()
        (packed,) = pack(result, [f"%a{index}" for index in range(per)], size, word)
        back = unpack(result, [packed], size, word)
        assert len(back) == per
        routine = Routine("back", kind, [kind] * per)
        routine.lines = result.lines
        arguments = [np.array([index + 1, 255 - index, 128], np.uint64) for index in range(per)]
        actual = on_host(routine.done(back[expected]))(*arguments)
        np.testing.assert_array_equal(actual, arguments[expected])
    routine = Routine("packed", f"i{8 * word}", [kind] * per)
    result = emitter()
    (packed,) = pack(result, [f"%a{index}" for index in range(per)], size, word)
    routine.lines = result.lines
    actual = on_host(routine.done(packed))(*(np.array([index + 1]) for index in range(per)))
    assert int(actual[0]) == sum((index + 1) << (8 * size * index) for index in range(per))


def test_a_word_holds_at_least_an_element() -> None:
    with pytest.raises(AssertionError, match="at least an element"):
        pack(emitter(), ["%a"], 4, 2)


def test_conditions_are_joined() -> None:
    result = emitter()
    assert result.both() is None and result.both(None, None) is None
    assert result.both(None, "%a") == "%a" and result.lines == []
    assert result.both("%a", None, "%b", "%c") == "%v2"
    assert result.lines == ["  %v1 = and i1 %a, %b", "  %v2 = and i1 %v1, %c"]


def copying(element: str, width: int, load: str = "", store: str = "", mask: bool = False, other: bool = False) -> str:
    """The LLVM text that copies 128 elements by one warp, four in a row to each thread."""

    def of(kind: str) -> str:
        return f'tensor<x128, {kind}, "1 2 | 4 8 16 32 64 | ">'

    pointer, bound = of(f"ptr<{element}>"), f"%m : {of('i1')} = arith.cmpi %0 %n @slt;" if mask else ""
    masked, arguments = "%m" if mask else "", "%e" if other else ""
    return to_llvm(
        model(
            f"%p : ptr<{element}>, %q : ptr<{element}>, %c : i32, %d : {element}",
            f"""%0 : {of("i32")} = tt.make_range @start=0 @end=128; %n : {of("i32")} = tt.splat %c; {bound}
            %e : {of(element)} = tt.splat %d;
            %1 : {pointer} = tt.splat %p; %2 : {pointer} = tt.addptr %1 %0;
            %3 : {pointer} = tt.splat %q; %4 : {pointer} = tt.addptr %3 %0;
            %5 : {of(element)} = tt.load %2 {masked} {arguments} @width={width} {load};
            tt.store %4 %5 {masked} @width={width} {store};""",
        )
    )


@pytest.mark.parametrize(("element", "width", "values"), [
    ("f32", 4, "<4 x i32>"), ("f32", 2, "<2 x i32>"), ("f32", 1, "i32"), ("f16", 4, "<2 x i32>"), ("f16", 2, "i32"),
    ("f16", 1, "i16"), ("i8", 4, "i32"), ("i8", 2, "i16"), ("i8", 1, "i8"), ("f64", 2, "<2 x i64>"), ("f64", 1, "i64"),
])  # fmt: skip
def test_accesses_are_as_wide_as_they_may_be(element: str, width: int, values: str) -> None:
    llvm = copying(element, width)
    align = DTYPES[element]().itemsize * width
    assert llvm.count(f"load {values}, ptr addrspace(1)") == 4 // width
    assert len(re.findall(rf"store {re.escape(values)} %v\d+, ptr addrspace\(1\) %v\d+, align {align}\n", llvm)) == (
        4 // width
    )
    assert f"align {align}\n" in llvm and "asm" not in llvm


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("bound", [None, 0, 66, 128])
def test_copies(element: str, width: int, bound: int | None) -> None:
    """A false mask reads and writes nothing; the loaded element is `other`."""
    dtype = DTYPES[element]
    x, out = np.arange(1, 129).astype(dtype), np.zeros(128, dtype)
    llvm = copying(element, width, mask=bound is not None)
    assert ("asm sideeffect" in llvm) == (bound is not None)
    arguments = [x.view(np.uint8), out.view(np.uint8), bound or 0, dtype(7)]
    simulate(llvm, num_warps=1, shared=0, arguments=arguments)
    count = 128 if bound is None else bound
    np.testing.assert_array_equal(out, np.where(np.arange(128) < count, x, 0))


@pytest.mark.parametrize("element", ["i8", "f16", "i32", "f64"])
def test_an_element_with_a_false_mask_is_other(element: str) -> None:
    dtype = DTYPES[element]
    text = copying(element, 2, mask=True, other=True)
    # Store all elements, without the predicate of the store.
    x, out = np.arange(1, 129).astype(dtype), np.zeros(128, dtype)
    text = re.sub(r'"@\$(\d+) st\.global', lambda actual: '"st.global', text)
    arguments = [x.view(np.uint8), out.view(np.uint8), 50, dtype(7)]
    simulate(text, num_warps=1, shared=0, arguments=arguments)
    np.testing.assert_array_equal(out, np.where(np.arange(128) < 50, x, 7))


@pytest.mark.parametrize(("hints", "values"), [
    ("@cache=cg", "ld.global.cg.v4.b32"), ("@cache=ca", "ld.global.ca.v4.b32"),
    ("@eviction=evict_first", "ld.global.L1::evict_first.v4.b32"),
    ("@eviction=evict_last", "ld.global.L1::evict_last.v4.b32"),
    ("@cache=cv @eviction=evict_first", "ld.global.cv.v4.b32"),  # Not both.
    ("@volatile=true @cache=cg", "ld.volatile.global.v4.b32"),  # Volatile ones pass by the caches.
])  # fmt: skip
def test_hints_of_loads(hints: str, values: str) -> None:
    llvm = copying("f32", 4, load=hints)
    assert f"; {values} {{" in llvm and "load <" not in llvm


@pytest.mark.parametrize(("hints", "values"), [
    ("@cache=wb", "st.global.wb.v2.b32"), ("@eviction=evict_last", "st.global.L1::evict_last.v2.b32"),
])  # fmt: skip
def test_hints_of_stores(hints: str, values: str) -> None:
    llvm = copying("f16", 4, store=hints)
    assert f'"{values} [ $0 + 0 ], {{$1, $2}};", "l,r,r,~{{memory}}"' in llvm


def test_a_scalar_is_stored_by_one_thread() -> None:
    llvm = to_llvm(model("%p : ptr<f32>, %q : ptr<f32>", "%0 : f32 = tt.load %p; tt.store %q %0;"))
    x, out = np.array([2.5], np.float32), np.zeros(1, np.float32)
    simulate(llvm, num_warps=1, shared=0, arguments=[x.view(np.uint8), out.view(np.uint8)])
    assert out[0] == 2.5
    assert re.search(r"icmp eq i32 %v\d+, 0", llvm) and '"@$2 st.global.b32' in llvm


def test_copies_are_loaded_and_stored_once() -> None:
    """Registers with copies of an element share its value; one of the lanes with copies stores it."""

    def of(kind: str) -> str:
        return f'tensor<x16, {kind}, "0 1 | 2 4 8 0 0 | ">'

    llvm = to_llvm(
        model(
            "%p : ptr<i32>",
            f"""%0 : {of("i32")} = tt.make_range @start=0 @end=16; %1 : {of("ptr<i32>")} = tt.splat %p;
            %2 : {of("ptr<i32>")} = tt.addptr %1 %0; %3 : {of("i32")} = tt.load %2;
            %4 : {of("i32")} = arith.addi %3 %3; tt.store %2 %4;""",
        )
    )
    assert llvm.count("load i32") == 2 and llvm.count("st.global.b32") == 2
    memory = np.arange(16, dtype=np.int32)
    simulate(llvm, num_warps=1, shared=0, arguments=[memory.view(np.uint8)])
    np.testing.assert_array_equal(memory, np.arange(16) * 2)
