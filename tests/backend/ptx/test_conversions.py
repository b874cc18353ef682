"""Conversions between random layouts, run thread by thread: every element keeps its value."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.backend.ptx.assemble import assemble, to_llvm
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.layout import Layout, blocked
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu import lower as lowering
from ziggurat.transforms.gpu.allocate import allocate
from ziggurat.transforms.gpu.barriers import insert_barriers
from ziggurat.transforms.gpu.hazards import hazards
from ziggurat.transforms.layouts import shuffle_rounds
from ziggurat.transforms.layouts.shuffle_rounds import exchange

DTYPES = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "f8e5m2": ml_dtypes.float8_e5m2,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


@st.composite
def layouts(draw: st.DrawFn, bits: int, num_warps: int, warps: tuple[int, ...] | None = None) -> Layout:
    """A layout of 2^bits elements with copies, and with bases that are sums; with these warps, where given."""
    count = num_warps.bit_length() - 1
    if warps is None:
        warps = tuple(draw(st.permutations([*(1 << bit for bit in range(bits)), *[0] * count]))[:count])
    rest = [1 << bit for bit in range(bits) if 1 << bit not in warps]
    lanes = list(draw(st.permutations([*rest, *[0] * 5]))[:5])
    # At most 16 registers a thread, so that a simulation is quick.
    for basis in [basis for basis in rest if basis not in lanes][4:]:
        if 0 in lanes:
            lanes[lanes.index(0)] = basis
    registers = [basis for basis in rest if basis not in lanes]
    registers = list(draw(st.permutations([*registers, *[0] * draw(st.integers(0, 1))])))
    for _ in range(draw(st.integers(0, 2)) if len(rest) > 1 else 0):
        a, b = draw(st.permutations(rest))[:2]
        registers, lanes = ([x ^ b if x & a else x for x in part] for part in (registers, lanes))
    return Layout(tuple(registers), tuple(lanes), warps)


def program(element: str, numel: int, source: Layout, target: Layout) -> str:
    """Load in the one layout, and store in the other. Conditions come from bytes, and go to bytes."""
    values = "i8" if element == "i1" else element
    lines: list[str] = []
    for name, layout in (("p", source), ("q", target)):
        lines.append(f'%n{name} : tensor<x{numel}, i32, "{layout}"> = tt.make_range @start=0 @end={numel};')
        lines.append(f'%b{name} : tensor<x{numel}, ptr<{values}>, "{layout}"> = tt.splat %{name};')
        lines.append(f'%a{name} : tensor<x{numel}, ptr<{values}>, "{layout}"> = tt.addptr %b{name} %n{name};')
    lines.append(f'%x : tensor<x{numel}, {values}, "{source}"> = tt.load %ap;')
    if element == "i1":
        lines.append(f'%z : tensor<x{numel}, i8, "{source}"> = arith.constant @0;')
        lines.append(f'%c : tensor<x{numel}, i1, "{source}"> = arith.cmpi %x %z @ne;')
    value = "%c" if element == "i1" else "%x"
    lines.append(f'%y : tensor<x{numel}, {element}, "{target}"> = gpu.convert_layout {value};')
    if element == "i1":
        lines.append(f'%w : tensor<x{numel}, i8, "{target}"> = arith.extui %y;')
    lines.append(f"tt.store %aq {'%w' if element == 'i1' else '%y'};")
    body = "\n".join(lines)
    return f"""gpu.module @target="sm_90a" @num_warps={source.num_warps} ()void -> {{
        tt.func @"f" (%p : ptr<{values}>, %q : ptr<{values}>)void -> {{ {body} tt.return; }}; unreachable; }};"""


def placed(text: str) -> gpu.Module:
    """The model with everything lowered, allocated and with barriers."""
    model = parse(text)
    for step in (lowering.lower, allocate, insert_barriers):
        verify(model)
        model = step(model)
    verify(model)
    assert hazards(model) == []
    assert isinstance(model, gpu.Module)
    return model


def run(text: str, element: str, numel: int) -> str:
    """Lower, emit and simulate; the emitted text."""
    model = placed(text)
    dtype = np.dtype(DTYPES[element])
    raw = np.random.default_rng(numel).integers(0, 256, numel * dtype.itemsize, np.uint8)
    arguments = raw % 2 if element == "i1" else raw
    result = np.zeros_like(arguments)
    llvm = to_llvm(model)
    simulate(llvm, num_warps=model.num_warps, shared=model.shared, arguments=[arguments, result])
    np.testing.assert_array_equal(result, arguments)
    return llvm


@settings(max_examples=60)
@given(st.data(), st.integers(0, 11), st.sampled_from([1, 4, 8]), st.sampled_from(sorted(DTYPES)))
def test_between_any_layouts(data: st.DataObject, bits: int, num_warps: int, element: str) -> None:
    source, target = (data.draw(layouts(bits, num_warps)) for _ in range(2))
    run(program(element, 1 << bits, source, target), element, 1 << bits)


@settings(max_examples=60)
@given(st.data(), st.integers(0, 11), st.sampled_from([1, 4, 8]), st.sampled_from(sorted(DTYPES)))
def test_within_warps_by_shuffles(data: st.DataObject, bits: int, num_warps: int, element: str) -> None:
    source = data.draw(layouts(bits, num_warps))
    target = data.draw(layouts(bits, num_warps, source.warps))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            shuffle_rounds, "by_shuffles", lambda source, target, numel, size: exchange(source, target, numel)
        )
        llvm = run(program(element, 1 << bits, source, target), element, 1 << bits)
    assert "@smem," not in llvm and "bar.sync" not in llvm


@pytest.mark.parametrize("element", ["i8", "f16", "f32"])
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_fragments_by_matrices(element: str, order: tuple[int, int], num_warps: int, target: str) -> None:
    """From accumulators to coalesced vectors and back, by ldmatrix, and by stmatrix where the target has it."""
    rows, columns = 64, 64
    warps = {1: (), 4: (1024, 2048)}[num_warps]
    rest = () if warps else (1024, 2048)
    sums = Layout((1, 512, 8, 16, 32, *rest), (2, 4, 64, 128, 256), warps)
    vectors = blocked((rows, columns), order, 16 // np.dtype(DTYPES[element]).itemsize, num_warps)
    message = ""
    for source, expected in ((sums, vectors), (vectors, sums)):
        text = program(element, rows * columns, source, expected).replace("sm_90a", target)
        message += run(text, element, rows * columns)
    if element == "f16" and num_warps == 4:
        assert "ldmatrix" in message and (".trans" in message) == (order == (0, 1))
    assert ("stmatrix" in message) <= (target == "sm_90a")


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_matrices_assemble(ptxas: Callable[..., str], target: str) -> None:
    sums = Layout((1, 512, 8, 16, 32), (2, 4, 64, 128, 256), (1024, 2048))
    columns = blocked((64, 64), (0, 1), 8, 4)
    for source, expected in ((sums, columns), (columns, sums)):
        model = placed(program("f16", 4096, source, expected).replace("sm_90a", target))
        assembly = assemble(model, CompileOptions())
        uses = "stmatrix" if source is sums and target == "sm_90a" else "ldmatrix" if source is columns else "st.shared"
        assert uses in assembly.ptx and ("matrix" not in assembly.ptx or ".trans.shared.b16" in assembly.ptx)
        ptxas(assembly.ptx, target)


SOURCE = Layout((1, 2, 4, 8), (16, 32, 64, 128, 256), ())


@pytest.mark.parametrize(("element", "shuffles"), [("i8", 2), ("f16", 4), ("f32", 8), ("f64", 16)])
def test_one_swap_shuffles_half_of_the_words(element: str, shuffles: int) -> None:
    target = SOURCE.map(lambda basis: {8: 16, 16: 8}.get(basis, basis))
    llvm = run(program(element, 512, SOURCE, target), element, 512)
    assert llvm.count("call i32 @llvm.nvvm.shfl.sync.bfly.i32") == shuffles
    # One before a shuffle is enough, and two after it: a word for each half of the registers.
    assert llvm.count(" select ") == 4 * shuffles // (2 if element == "f64" else 1)


def test_pointers_are_exchanged_as_they_are() -> None:
    target = SOURCE.map(lambda basis: {8: 16, 16: 8}.get(basis, basis))
    text = program("i32", 512, SOURCE, target).replace("tt.store %aq %y", f"""
        %m : tensor<x512, ptr<i32>, "{target}"> = gpu.convert_layout %ap;
        %k : tensor<x512, i32, "{target}"> = tt.load %m;
        tt.store %aq %k""")  # fmt: skip
    run(text, "i32", 512)
