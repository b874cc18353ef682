"""Reductions and scans, from lowering to emitted text: simulated and compared with the reference.

Each program is written once, as a GPU model with layouts; the reference runs it with the layouts taken out of the text.
The simulation also finds races, so a barrier that is missing fails here.
"""

import math
import re
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (gives NumPy its small floats)
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.backend.ptx.assemble import assemble, to_llvm
from ziggurat.backend.ptx.reductions import picks
from ziggurat.backend.reference.run import run
from ziggurat.backend.simulator.shared import SimulationError
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.layout import Layout, blocked
from ziggurat.codemodel.op import Body, Op, same_model
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.allocate import allocate
from ziggurat.transforms.gpu.barriers import insert_barriers
from ziggurat.transforms.gpu.hazards import hazards
from ziggurat.transforms.gpu.lower import lower, run_of_warps

PTXAS = Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/bin/ptxas"
DTYPES = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u32": np.uint32, "f16": np.float16, "f32": np.float32, "f64": np.float64}  # fmt: skip  # noqa: E501
WARPS = st.sampled_from([1, 4, 8])


@st.composite
def layouts(draw: st.DrawFn, bits: int, num_warps: int, mixed: bool = False) -> Layout:
    """A layout of 2^bits elements: their bits in any order over registers, lanes and warps, with copies."""
    count = 5 + num_warps.bit_length() - 1
    bases = [1 << bit for bit in draw(st.permutations(range(bits)))]
    # At most 16 registers a thread where that is possible, so that a simulation is quick.
    copies = draw(st.integers(max(0, count - bits), max(0, count - bits, count - max(0, bits - 4))))
    threads = draw(st.permutations([*bases[: count - copies], *[0] * copies]))
    registers = bases[count - copies :]
    if draw(st.booleans()):
        registers.insert(draw(st.integers(0, len(registers))), 0)
    if mixed and bits > 1 and draw(st.booleans()):
        a, b = draw(st.permutations(range(bits)))[:2]
        registers, threads = ([x ^ (x >> a & 1) << b for x in part] for part in (registers, threads))
    return Layout(tuple(registers), tuple(threads[:5]), tuple(threads[5:]))


def tensor(shape: Sequence[int], element: str, layout: Layout) -> str:
    return f'tensor<{"".join(f"x{size}, " for size in shape)}{element}, "{layout}">'


class Text:
    """A kernel under construction."""

    def __init__(self, num_warps: int) -> None:
        self.num_warps = num_warps
        self.target = "sm_90a"
        self.parameters: list[str] = []
        self.lines: list[str] = []
        self.count = 0

    def add(self, type_: str, text: str) -> str:
        self.count += 1
        self.lines.append(f"%v{self.count} : {type_} = {text};")
        return f"%v{self.count}"

    def pointers(self, element: str, numel: int, layout: Layout) -> str:
        self.parameters.append(f"%p{len(self.parameters)} : ptr<{element}>")
        pointer = f"ptr<{element}>"
        base = self.add(tensor([numel], pointer, layout), f"tt.splat %p{len(self.parameters) - 1}")
        numbers = self.add(tensor([numel], "i32", layout), f"tt.make_range @start=0 @end={numel}")
        return self.add(tensor([numel], pointer, layout), f"tt.addptr {base} {numbers}")

    def load(self, element: str, shape: Sequence[int], layout: Layout) -> str:
        """A tensor from the next parameter."""
        numel = math.prod(shape)
        flat = self.add(tensor([numel], element, layout), f"tt.load {self.pointers(element, numel, layout)}")
        return self.add(tensor(shape, element, layout), f"tt.reshape {flat}")

    def store(self, value: str, element: str, shape: Sequence[int], layout: Layout | None) -> None:
        """A tensor, or a scalar, to the next parameter."""
        if layout is None:
            self.parameters.append(f"%p{len(self.parameters)} : ptr<{element}>")
            self.lines.append(f"tt.store %p{len(self.parameters) - 1} {value};")
            return
        numel = math.prod(shape)
        flat = self.add(tensor([numel], element, layout), f"tt.reshape {value}")
        self.lines.append(f"tt.store {self.pointers(element, numel, layout)} {flat};")

    def __str__(self) -> str:
        body = "\n".join([*self.lines, "tt.return;"])
        func = f'tt.func @"f" ({", ".join(self.parameters)})void -> {{\n{body}\n}};'
        return f'gpu.module @target="{self.target}" @num_warps={self.num_warps} ()void -> {{\n{func}\nunreachable;\n}};'


def placed(text: Text) -> gpu.Module:
    """The model with everything lowered, allocated and with barriers."""
    model: Op = parse(str(text))
    for step in (lower, allocate, insert_barriers):
        verify(model)
        model = step(model)
    verify(model)
    assert same_model(parse(str(model)), model)
    assert hazards(model) == []
    assert isinstance(model, gpu.Module)
    return model


def agree(text: Text, inputs: list[Any], outputs: list[Any], tolerance: float = 0) -> None:
    """Run both and compare the outputs."""
    model = placed(text)
    plain = re.sub(r', "[^"]*">', ">", str(text).replace("gpu.convert_layout", "tt.reshape"))
    plain = re.sub(r"gpu.module [^(]*\(", "module (", plain)
    reference = [np.zeros_like(output) for output in outputs]
    with np.errstate(all="ignore"):
        run(parse(plain), "f", (1,), [*(array.copy() for array in inputs), *reference])
    simulate(to_llvm(model), num_warps=model.num_warps, shared=model.shared, arguments=[*inputs, *outputs])
    for output, expected in zip(outputs, reference, strict=True):
        if tolerance:
            np.testing.assert_allclose(output, expected, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(output, expected)


def noise(element: str, numel: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    dtype = np.dtype(DTYPES[element])
    if dtype.kind == "f":
        return rng.standard_normal(numel).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, numel, dtype=dtype, endpoint=True)


shapes = st.lists(st.integers(0, 5), min_size=1, max_size=3).filter(lambda bits: sum(bits) <= 10)


@settings(max_examples=40)
@given(st.data(), st.integers(0, 11), WARPS, st.sampled_from(sorted(DTYPES)))
def test_conversions(data: st.DataObject, bits: int, num_warps: int, element: str) -> None:
    source, target = (data.draw(layouts(bits, num_warps, mixed=True)) for _ in range(2))
    text = Text(num_warps)
    value = text.load(element, [1 << bits], source)
    value = text.add(tensor([1 << bits], element, target), f"gpu.convert_layout {value}")
    text.store(value, element, [1 << bits], target)
    agree(text, [noise(element, 1 << bits)], [np.zeros(1 << bits, DTYPES[element])])


def test_conversions_of_conditions() -> None:
    source, target = Layout((1,), (2, 4, 8, 16, 32), (64, 128)), Layout((128,), (64, 1, 2, 32, 4), (8, 16))
    text = Text(4)
    value = text.load("i32", [256], source)
    zero = text.add(tensor([256], "i32", source), "arith.constant @0")
    test = text.add(tensor([256], "i1", source), f"arith.cmpi {value} {zero} @slt")
    test = text.add(tensor([256], "i1", target), f"gpu.convert_layout {test}")
    ones = [text.add(tensor([256], "i32", target), f"arith.constant @{number}") for number in (1, 2)]
    value = text.add(tensor([256], "i32", target), f"arith.select {test} {ones[0]} {ones[1]}")
    text.store(value, "i32", [256], target)
    agree(text, [noise("i32", 256)], [np.zeros(256, np.int32)])


SUM = "arith.addi"


def single(name: str, op: str, element: str) -> str:
    """A combining body of one op."""
    return f"(%a : {element}, %b : {element}){element} -> {{ %c : {element} = {op} %a %b; {name}.return %c; }}"


def axis_types(shape: Sequence[int], axis: int, element: str, layout: Layout) -> tuple[str, list[int], Layout | None]:
    rest = [size for at, size in enumerate(shape) if at != axis]
    if not rest:
        return element, rest, None
    narrow = layout.dropped(shape, axis)
    return tensor(rest, element, narrow), rest, narrow


@settings(max_examples=60)
@given(st.data(), shapes, WARPS, st.sampled_from(["i8", "i32", "i64", "f16", "f32", "f64"]))
def test_reductions(data: st.DataObject, sizes: list[int], num_warps: int, element: str) -> None:
    shape = [1 << size for size in sizes]
    axis = data.draw(st.integers(0, len(shape) - 1))
    layout = data.draw(layouts(sum(sizes), num_warps))
    op = data.draw(st.sampled_from(["arith.maximumf", "arith.minimumf"] if element[0] == "f" else [SUM, "arith.maxsi"]))
    text = Text(num_warps)
    value = text.load(element, shape, layout)
    type_, rest, narrow = axis_types(shape, axis, element, layout)
    result = text.add(type_, f"tt.reduce {value} @axis={axis} {single('tt.reduce', op, element)}")
    text.store(result, element, rest, narrow)
    agree(text, [noise(element, math.prod(shape))], [np.zeros(math.prod(rest), DTYPES[element])])


ARGMAX = """(%a : {0}, %i : i32, %b : {0}, %j : i32)Tuple<{0}, i32> -> {{
    %gt : i1 = arith.cmpi %a %b @sgt;
    %eq : i1 = arith.cmpi %a %b @eq;
    %lt : i1 = arith.cmpi %i %j @slt;
    %tie : i1 = arith.andi %eq %lt;
    %first : i1 = arith.ori %gt %tie;
    %x : {0} = arith.select %first %a %b;
    %n : i32 = arith.select %first %i %j;
    tt.reduce.return %x %n;
}}"""


@settings(max_examples=30)
@given(st.data(), shapes, WARPS, st.sampled_from(["i8", "i64"]))
def test_reductions_of_pairs(data: st.DataObject, sizes: list[int], num_warps: int, element: str) -> None:
    """The place of the largest, the first of equal ones: two results, and a body that is not one op."""
    shape = [1 << size for size in sizes]
    axis = data.draw(st.integers(0, len(shape) - 1))
    layout, other = (data.draw(layouts(sum(sizes), num_warps)) for _ in range(2))
    text = Text(num_warps)
    value, index = text.load(element, shape, layout), text.load("i32", shape, other)
    (type_, rest, narrow), (places, _, _) = (axis_types(shape, axis, e, layout) for e in (element, "i32"))
    both = text.add(f"Tuple<{type_}, {places}>", f"tt.reduce {value} {index} @axis={axis} {ARGMAX.format(element)}")
    for number, (part, kind) in enumerate(((type_, element), (places, "i32"))):
        text.store(text.add(part, f"tuple.load {both} @{number}"), kind, rest, narrow)
    numel = math.prod(shape)
    values = noise(element, numel) % 4
    outputs = [np.zeros(math.prod(rest), DTYPES[kind]) for kind in (element, "i32")]
    agree(text, [values.astype(DTYPES[element]), np.arange(numel, dtype=np.int32)], outputs)


# Composition of x -> p·x + q: it is associative, and the order matters.
COMPOSE = """(%p : i32, %q : i32, %r : i32, %s : i32)Tuple<i32, i32> -> {
    %pr : i32 = arith.muli %p %r;
    %rq : i32 = arith.muli %r %q;
    %t : i32 = arith.addi %rq %s;
    tt.scan.return %pr %t;
}"""


def store_composed(
    text: Text, values: list[str], shape: Sequence[int], axis: int, layout: Layout, reverse: bool
) -> None:
    """Scan two values together, in an order that matters, and store both results."""
    type_ = tensor(shape, "i32", layout)
    more = " @reverse=true" if reverse else ""
    both = text.add(f"Tuple<{type_}, {type_}>", f"tt.scan {values[0]} {values[1]} @axis={axis}{more} {COMPOSE}")
    for number in range(2):
        text.store(text.add(type_, f"tuple.load {both} @{number}"), "i32", shape, layout)


@pytest.mark.parametrize("element", ["i32", "u32"])
@pytest.mark.parametrize("op", ["addi", "andi", "ori", "xori", "min", "max"])
def test_one_instruction_reduces_the_lanes_of_a_warp(op: str, element: str) -> None:
    op = f"arith.{op}{'' if op.endswith('i') else element[0].replace('i', 's') + 'i'}"
    layout = Layout((1, 64), (2, 4, 8, 16, 32), (0,))
    text = Text(2)
    value = text.load(element, [128], layout)
    total = text.add(element, f"tt.reduce {value} @axis=0 {single('tt.reduce', op, element)}")
    text.store(text.add(tensor([128], element, layout), f"tt.splat {total}"), element, [128], layout)
    code = to_llvm(placed(text))
    assert code.count("call i32 @llvm.nvvm.redux.sync") == 1 and "shfl" not in code
    agree(text, [noise(element, 128)], [np.zeros(128, DTYPES[element])])


def test_gathers_from_the_lanes_of_each_warp() -> None:
    source, layout = Layout((), (1, 2, 4, 0, 0), (0, 0)), blocked((256,), (0,), 2, 4)
    text = Text(4)
    value, index = text.load("i16", [8], source), text.load("i32", [256], layout)
    text.store(text.add(tensor([256], "i16", layout), f"tt.gather {value} {index} @axis=0"), "i16", [256], layout)
    assert placed(text).shared == 0
    agree(text, [noise("i16", 8), noise("i32", 256) & 7], [np.zeros(256, np.int16)])


@settings(max_examples=60)
@given(st.data(), shapes, WARPS, st.booleans())
def test_scans_in_order(data: st.DataObject, sizes: list[int], num_warps: int, reverse: bool) -> None:
    shape = [1 << size for size in sizes]
    axis = data.draw(st.integers(0, len(shape) - 1))
    layout = data.draw(layouts(sum(sizes), num_warps))
    text = Text(num_warps)
    values = [text.load("i32", shape, layout) for _ in range(2)]
    store_composed(text, values, shape, axis, layout, reverse)
    numel = math.prod(shape)
    agree(text, [noise("i32", numel, 1), noise("i32", numel, 2)], [np.zeros(numel, np.int32) for _ in range(2)])


@settings(max_examples=20)
@given(st.data(), shapes, WARPS, st.sampled_from(["i8", "i16", "f32", "f64"]), st.booleans())
def test_scans_of_types(data: st.DataObject, sizes: list[int], num_warps: int, element: str, reverse: bool) -> None:
    shape = [1 << size for size in sizes]
    axis = data.draw(st.integers(0, len(shape) - 1))
    layout = data.draw(layouts(sum(sizes), num_warps, mixed=True))
    text = Text(num_warps)
    type_ = tensor(shape, element, layout)
    op = "arith.maximumf" if element[0] == "f" else SUM
    value = text.load(element, shape, layout)
    more = " @reverse=true" if reverse else ""
    value = text.add(type_, f"tt.scan {value} @axis={axis}{more} {single('tt.scan', op, element)}")
    text.store(value, element, shape, layout)
    agree(text, [noise(element, math.prod(shape))], [np.zeros(math.prod(shape), DTYPES[element])])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis", "num_warps"), [
    ((2048,), 0, 8), ((1024,), 0, 4), ((256,), 0, 2), ((16, 256), 1, 8), ((64, 32), 0, 4), ((4, 64, 8), 1, 4),
])  # fmt: skip
def test_scans_of_runs(shape: tuple[int, ...], axis: int, num_warps: int, reverse: bool) -> None:
    """Scans in the layouts of loads: the buffers hold the last value of each run of a warp."""
    order = tuple(reversed(range(len(shape))))
    layout = blocked(shape, order, 4, num_warps)
    text = Text(num_warps)
    values = [text.load("i32", shape, layout) for _ in range(2)]
    store_composed(text, values, shape, axis, layout, reverse)
    numel, run = math.prod(shape), run_of_warps(layout, shape, axis)
    assert run > 1
    # Two values of 4 bytes, each twice at most: on the way to one warp, and to the next run. The buffers of the two
    # values live at the same time, and each is aligned to 16 bytes.
    assert numel // run * 8 <= placed(text).shared <= max(numel // run * 16, 2 * 16 + numel // run * 4)
    agree(text, [noise("i32", numel, 1), noise("i32", numel, 2)], [np.zeros(numel, np.int32) for _ in range(2)])


def cumulative_sum(numel: int, num_warps: int, target: str) -> gpu.Module:
    layout = blocked((numel,), (0,), 4, num_warps)
    text = Text(num_warps)
    value = text.load("f32", [numel], layout)
    value = text.add(
        tensor([numel], "f32", layout), f"tt.scan {value} @axis=0 {single('tt.scan', 'arith.addf', 'f32')}"
    )
    text.store(value, "f32", [numel], layout)
    text.target = target
    return placed(text)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_a_long_scan_assembles(target: str, tmp_path: Path) -> None:
    """Each element after the first needs two additions; some more for each run, and a little shared memory."""
    module = cumulative_sum(65536, 8, target)
    assert module.shared == 2 * 4 * 65536 // 128
    ptx = assemble(module).ptx
    assert len(ptx) < 150_000
    assert ptx.count("shfl.sync") < 65536 // 256 * 2, "a few of each run"
    if not PTXAS.exists():
        pytest.skip("ptxas is not installed (pip install nvidia-cuda-nvcc)")
    source = tmp_path / "k.ptx"
    source.write_text(assemble(cumulative_sum(16384, 8, target)).ptx)
    command = [str(PTXAS), "-v", "-arch", target, str(source), "-o", str(tmp_path / "k.cubin")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and " 0 bytes spill stores" in result.stderr + result.stdout, result.stderr


@pytest.mark.parametrize(("shape", "axis"), [((256,), 0), ((16, 32), 0), ((16, 32), 1), ((4, 8, 16), 1)])
@pytest.mark.parametrize("last", [False, True])
def test_first_and_last_elements(shape: tuple[int, ...], axis: int, last: bool) -> None:
    """A reduction that takes one of its operands as it is: no more than one shuffle brings it."""
    num_warps, numel = 2, math.prod(shape)
    layout = blocked(shape, tuple(reversed(range(len(shape)))), 2, num_warps)
    text = Text(num_warps)
    values = [text.load(element, shape, layout) for element in ("i32", "f64")]
    (type_, rest, narrow), (other, _, _) = (axis_types(shape, axis, e, layout) for e in ("i32", "f64"))
    body = "(%a : i32, %b : f64, %c : i32, %d : f64)Tuple<i32, f64> -> { tt.reduce.return " + (
        "%c %d; }" if last else "%a %b; }"
    )
    both = text.add(f"Tuple<{type_}, {other}>", f"tt.reduce {values[0]} {values[1]} @axis={axis} {body}")
    for number, (part, kind) in enumerate(((type_, "i32"), (other, "f64"))):
        text.store(text.add(part, f"tuple.load {both} @{number}"), kind, rest, narrow)
    arguments = [noise("i32", numel), noise("f64", numel)]
    results = [np.zeros(math.prod(rest), x.dtype) for x in arguments]
    agree(text, arguments, results)
    for x, y in zip(arguments, results, strict=True):
        np.testing.assert_array_equal(y, x.reshape(shape).take(-last, axis).ravel())


def test_bodies_that_return_an_operand() -> None:
    def body(text: str) -> Body:
        func = f'func @"f" (%x : tensor<x4, i32>)i32 -> {{ %y : i32 = tt.reduce %x @axis=0 {text}; return %y; }};'
        module = parse(f"module ()void -> {{ {func} unreachable; }};")
        (reduce,) = (op for op in module.walk() if isinstance(op, tt.Reduce))
        return reduce.combine

    start = "(%a : i32, %b : i32)i32 -> { "
    assert picks(body(start + "tt.reduce.return %a; }")) == 0
    assert picks(body(start + "tt.reduce.return %b; }")) == 1
    assert picks(body(start + "%c : i32 = arith.addi %a %b; tt.reduce.return %c; }")) is None


@settings(max_examples=40)
@given(st.data(), shapes, WARPS, st.sampled_from(["i8", "f16", "f32", "f64"]), st.integers(0, 6))
def test_gathers(data: st.DataObject, sizes: list[int], num_warps: int, element: str, width: int) -> None:
    axis = data.draw(st.integers(0, len(sizes) - 1))
    expected = [width if at == axis else size for at, size in enumerate(sizes)]
    source, index = data.draw(layouts(sum(sizes), num_warps)), data.draw(layouts(sum(expected), num_warps, mixed=True))
    shape, result = [1 << size for size in sizes], [1 << size for size in expected]
    text = Text(num_warps)
    value, numbers = text.load(element, shape, source), text.load("i32", result, index)
    actual = text.add(tensor(result, element, index), f"tt.gather {value} {numbers} @axis={axis}")
    text.store(actual, element, result, index)
    numel = math.prod(result)
    indices = np.random.default_rng(3).integers(0, shape[axis], numel, dtype=np.int32)
    agree(text, [noise(element, math.prod(shape)), indices], [np.zeros(numel, DTYPES[element])])


@settings(max_examples=30)
@given(st.data(), st.integers(0, 10), st.integers(0, 8), WARPS, st.sampled_from(["i8", "u8", "i32", "i64"]))
def test_histograms(data: st.DataObject, bits: int, width: int, num_warps: int, element: str) -> None:
    layout, result = data.draw(layouts(bits, num_warps, mixed=True)), data.draw(layouts(width, num_warps))
    text = Text(num_warps)
    value = text.load(element, [1 << bits], layout)
    mask = ""
    if data.draw(st.booleans()):
        limit = text.add(tensor([1 << bits], element, layout), "arith.constant @9")
        mask = text.add(tensor([1 << bits], "i1", layout), f"arith.cmpi {value} {limit} @ne")
    counts = text.add(tensor([1 << width], "i32", result), f"tt.histogram {value} {mask} @bins={1 << width}")
    text.store(counts, "i32", [1 << width], result)
    values = noise(element, 1 << bits) % np.array(1 << min(6, width), DTYPES[element])
    values[:: 1 + data.draw(st.integers(1, 5))] = np.array(-1).astype(DTYPES[element])
    agree(text, [values], [np.zeros(1 << width, np.int32)])


@settings(max_examples=30)
@given(st.data(), st.integers(0, 5), st.integers(0, 5), WARPS)
def test_broadcasts_and_reshapes_from_any_layout(data: st.DataObject, rows: int, columns: int, num_warps: int) -> None:
    shape, bits = [1 << rows, 1 << columns], rows + columns
    narrow = data.draw(layouts(columns, num_warps, mixed=True))
    wide, other = (data.draw(layouts(bits, num_warps, mixed=True)) for _ in range(2))
    text = Text(num_warps)
    value = text.load("f32", [1, 1 << columns], narrow)
    value = text.add(tensor(shape, "f32", wide), f"tt.broadcast {value}")
    value = text.add(tensor([1 << bits], "f32", other), f"tt.reshape {value}")
    text.store(value, "f32", [1 << bits], other)
    agree(text, [noise("f32", 1 << columns)], [np.zeros(1 << bits, np.float32)])


LOOP = """
%n : i32 = arith.constant @3;
%zero : i32 = arith.constant @0;
%one : i32 = arith.constant @1;
%sum : {T} = scf.for %zero %n %one {V} (%i : i32, %x : {T}){T} -> {{
    %y : {U} = gpu.convert_layout %x;
    %s : i32 = tt.reduce %y @axis=0 {BODY};
    %t : {U} = tt.splat %s;
    %z : {U} = arith.addi %y %t;
    %w : {T} = gpu.convert_layout %z;
    %m : i32 = tt.reduce %w @axis=0 {BODY};
    %q : {T} = tt.splat %m;
    %r : {T} = arith.addi %w %q;
    scf.yield %r;
}};
"""


@pytest.mark.parametrize("num_warps", [1, 4])
def test_loops_reuse_buffers_behind_barriers(num_warps: int) -> None:
    warps = (32, 64)[: num_warps.bit_length() - 1]
    source = Layout((128, 256) if num_warps == 4 else (32, 64, 128, 256), (1, 2, 4, 8, 16), warps)
    target = Layout((1, 2) if num_warps == 4 else (1, 2, 4, 8), (16, 32, 64, 128, 256), (4, 8)[: len(warps)])
    text = Text(num_warps)
    types = {"T": tensor([512], "i32", source), "U": tensor([512], "i32", target)}
    value = text.load("i32", [512], source)
    text.lines.append(LOOP.format(V=value, BODY=single("tt.reduce", SUM, "i32"), **types))
    text.store("%sum", "i32", [512], source)
    agree(text, [noise("i32", 512)], [np.zeros(512, np.int32)])


def test_the_simulation_finds_races() -> None:
    source, target = Layout((1,), (2, 4, 8, 16, 32), (64, 128)), Layout((128,), (64, 1, 2, 32, 4), (8, 16))
    text = Text(4)
    value = text.load("i32", [256], source)
    value = text.add(tensor([256], "i32", target), f"gpu.convert_layout {value}")
    text.store(value, "i32", [256], target)
    model = allocate(lower(parse(str(text))))
    assert isinstance(model, gpu.Module)
    with pytest.raises(SimulationError, match=r"another thread has written|in flight"):
        simulate(to_llvm(model), num_warps=4, shared=model.shared, arguments=[np.zeros(256, np.int32)] * 2)


@pytest.mark.parametrize("element", ["f32", "f16"])
@pytest.mark.parametrize(
    ("options", "fused"), [({}, True), ({"contract": False}, False), ({"exact_math": True}, False)]
)
def test_products_are_added_by_fma(element: str, options: dict[str, bool], fused: bool) -> None:
    """Of 16 products of a thread, two sums begin with one each; of 8 pairs of products in 16 bits, four."""
    text = """gpu.module @target="sm_90a" @num_warps=1 ()void -> {
        tt.func @"k" (%p : ptr<f32>, %x : f32)void -> {
            %r : tensor<x512, i32, "1 2 4 8 | 16 32 64 128 256 |"> = tt.make_range @start=0 @end=512;
            %a : tensor<x512, ptr<f32>, "1 2 4 8 | 16 32 64 128 256 |"> = tt.splat %p;
            %b : tensor<x512, ptr<f32>, "1 2 4 8 | 16 32 64 128 256 |"> = tt.addptr %a %r;
            %v : tensor<x512, f32, "1 2 4 8 | 16 32 64 128 256 |"> = tt.load %b @width=4;
            %w : tensor<x512, f32, "1 2 4 8 | 16 32 64 128 256 |"> = arith.mulf %v %v;
            %s : f32 = tt.reduce %w @axis=0 (%y : f32, %z : f32)f32 -> {
                %t : f32 = arith.addf %y %z; tt.reduce.return %t; };
            tt.store %p %s; tt.return; }; unreachable; };"""
    module = parse(text.replace("f32", element))
    assert isinstance(module, gpu.Module)
    llvm = to_llvm(module, CompileOptions("sm_90a", 1, **options))
    call, count = ("float @llvm.fma.f32", 14) if element == "f32" else ("<2 x half> @llvm.fma.v2f16", 4)
    assert llvm.count(f"call {call}") == count * fused
    x = np.random.default_rng(0).standard_normal(512).astype(DTYPES[element])
    expected = np.sum(x.astype(np.float64) ** 2)
    simulate(llvm, num_warps=1, shared=0, grid=(1,), arguments=[x, 0.0])
    np.testing.assert_allclose(x[0], expected, rtol=1e-6 if element == "f32" else 2e-2)


def test_lanes_add_the_same_products() -> None:
    """Lanes with a product each round it before they add it: they have one sum, which is stored by each."""
    layout = '"| 1 2 4 8 16 |"'
    module = parse(f"""gpu.module @target="sm_90a" @num_warps=1 ()void -> {{
        tt.func @"k" (%p : ptr<f32>, %o : ptr<f32>)void -> {{
            %r : tensor<x32, i32, {layout}> = tt.make_range @start=0 @end=32;
            %a : tensor<x32, ptr<f32>, {layout}> = tt.splat %p; %b : tensor<x32, ptr<f32>, {layout}> = tt.addptr %a %r;
            %v : tensor<x32, f32, {layout}> = tt.load %b; %w : tensor<x32, f32, {layout}> = arith.mulf %v %v;
            %s : f32 = tt.reduce %w @axis=0 (%y : f32, %z : f32)f32 -> {{
                %t : f32 = arith.addf %y %z; tt.reduce.return %t; }};
            %c : tensor<x32, ptr<f32>, {layout}> = tt.splat %o; %d : tensor<x32, ptr<f32>, {layout}> = tt.addptr %c %r;
            %e : tensor<x32, f32, {layout}> = tt.splat %s; tt.store %d %e; tt.return; }}; unreachable; }};""")
    assert isinstance(module, gpu.Module)
    llvm = to_llvm(module)
    assert "@llvm.fma" not in llvm
    x, out = np.random.default_rng(0).standard_normal(32).astype(np.float32), np.zeros(32, np.float32)
    simulate(llvm, num_warps=1, shared=0, grid=(1,), arguments=[x, out])
    assert len({*out.tolist()}) == 1
