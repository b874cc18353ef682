"""The lowering of ops that cross threads; tests/backend/ptx/test_reductions.py checks the results."""

import pytest

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.layout import blocked, moved, parse_layout
from ziggurat.codemodel.op import Op, same_model
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import SharedType, TensorType
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.lower import lower, scan_layout, scans_within_warps

ROWS = "1 2 | 4 8 16 32 64 | 128 256"
COLUMNS = "128 256 | 1 2 4 8 16 | 32 64"
BODY = "(%a : f32, %b : f32)f32 -> { %c : f32 = arith.addf %a %b; NAME.return %c; }"


def tensor(layout: str, element: str = "f32", size: int = 512) -> str:
    return f'tensor<x{size}, {element}, "{layout}">'


def lowered(lines: str, element: str = "f32") -> list[Op]:
    """The ops of the lowered kernel, which has %x in ROWS, without its return."""
    text = f"""gpu.module @target="sm_90a" @num_warps=4 ()void -> {{
        tt.func @"f" (%x : {tensor(ROWS, element)}, %p : ptr<f32>, %s : f32)void -> {{ {lines} tt.return; }};
        unreachable;
    }};"""
    model = parse(text)
    verify(model)
    result = lower(model)
    verify(result)
    again = any(isinstance(op, tt.AtomicRMW) for op in result.walk())  # Its result would be told twice.
    assert again or same_model(lower(result), result), "what is lowered stays as it is"
    return list(result.bodies[0].entry.ops[0].bodies[0].entry.ops[:-1])


def names(ops: list[Op]) -> list[str]:
    return [op.NAME.split(".")[1] for op in ops]


def test_conversions_within_threads_stay() -> None:
    swapped = "2 1 | 4 8 16 32 64 | 128 256"
    assert names(lowered(f"%y : {tensor(swapped)} = gpu.convert_layout %x;")) == ["convert_layout"]
    assert names(lowered(f"%y : {tensor(ROWS)} = gpu.convert_layout %x;")) == []


def test_conversions_between_threads_go_through_a_buffer() -> None:
    ops = lowered(f"%y : {tensor(COLUMNS)} = gpu.convert_layout %x;")
    assert names(ops) == ["local_alloc", "local_store", "local_load"]
    assert str(ops[-1].result.type) == tensor(COLUMNS)


def test_neighbouring_conversions_of_small_tensors_share_a_barrier() -> None:
    both = f"%y : {tensor(COLUMNS)} = gpu.convert_layout %x; %z : {tensor(COLUMNS)} = gpu.convert_layout %w;"
    ops = lowered(f"%w : {tensor(ROWS)} = arith.negf %x; {both}")
    stores = 2 * ["local_alloc", "local_store"]
    assert names(ops) == ["negf", *stores, "local_load", "local_load"]
    assert [op.operands[0] for op in ops if isinstance(op, gpu.LocalLoad)] == [ops[1].result, ops[3].result]
    back = f"%y : {tensor(COLUMNS)} = gpu.convert_layout %x; %z : {tensor(ROWS)} = gpu.convert_layout %y;"
    assert names(lowered(back)) == 2 * ["local_alloc", "local_store", "local_load"]


def test_pointers_are_converted_as_integers() -> None:
    ops = lowered(f"%y : {tensor(COLUMNS, 'ptr<f16>')} = gpu.convert_layout %x;", "ptr<f16>")
    assert names(ops) == ["ptr_to_int", "local_alloc", "local_store", "local_load", "int_to_ptr"]
    assert str(ops[-1].result.type) == tensor(COLUMNS, "ptr<f16>")


def test_reductions_exchange_one_number_a_warp() -> None:
    ops = lowered(f"%y : f32 = tt.reduce %x @axis=0 {BODY.replace('NAME', 'tt.reduce')};")
    assert names(ops) == ["reshape", "reduce", "local_alloc", "local_store", "local_load", "reduce"]
    (alloc,) = (op for op in ops if isinstance(op, gpu.LocalAlloc))
    assert isinstance(alloc.type, SharedType)
    assert alloc.type.bytes == 16
    for op in ops:
        if isinstance(op, tt.Reduce):
            values = op.values[0].type
            assert isinstance(values, TensorType) and values.layout is not None
            dropped = values.layout.dropped(values.shape, op.axis)
            assert dropped.free[2] == values.layout.free[2], "nothing of the axis is in the warps"


def test_reductions_within_warps_stay() -> None:
    rows = 'tensor<x4, x128, f32, "1 2 | 4 8 16 32 64 | 128 256">'
    lines = f'%y : {rows} = tt.reshape %x; %z : tensor<x4, f32, "0 0 | 0 0 0 0 0 | 1 2"> = tt.reduce %y @axis=1 '
    assert names(lowered(lines + BODY.replace("NAME", "tt.reduce") + ";")) == ["reshape", "reduce"]


def test_scans_exchange_one_number_for_each_run_of_a_warp() -> None:
    """One number goes to the lanes that scan the runs, by shared memory, and one from there to the next run, by
    shuffles. 512 numbers, 128 of them in a warp."""
    ops = lowered(f"%y : {tensor(ROWS)} = tt.scan %x @axis=0 {BODY.replace('NAME', 'tt.scan')};")
    allocs = [op.type for op in ops if isinstance(op, gpu.LocalAlloc)]
    assert [isinstance(type_, SharedType) and type_.bytes for type_ in allocs] == [16]
    assert names(ops).count("gather") == 1
    assert names(ops)[:6] == ["reshape", "scan", "reduce", "local_alloc", "local_store", "local_load"]
    for op in ops:
        if isinstance(op, tt.Scan):
            values = op.values[0].type
            assert isinstance(values, TensorType) and values.layout is not None
            assert scans_within_warps(values.layout, values.shape, op.axis)


def test_scans_keep_layouts_that_fit() -> None:
    fits = blocked((16, 128), (1, 0), 4, 4)
    assert scan_layout(fits, (16, 128), 1) is fits
    across = parse_layout("1 2 512 | 4 8 16 32 64 | 128 256")
    near = scan_layout(across, (1024,), 0)
    assert not scans_within_warps(across, (1024,), 0)
    assert scans_within_warps(near, (1024,), 0)
    assert near.registers[:3] == (1, 2, 512), "vectors stay together"
    assert near.lanes == across.lanes
    # Warps continue along other axes.
    down = scan_layout(blocked((128, 16), (0, 1), 1, 4), (128, 16), 0)
    assert scans_within_warps(down, (128, 16), 0)
    assert all(down.warps)


def test_a_broadcast_from_any_layout() -> None:
    wide = 'tensor<x2, x512, f32, "512 1 2 | 4 8 16 32 64 | 128 256">'
    free = lowered(f'%y : tensor<x1, x512, f32, "{ROWS}"> = tt.reshape %x; %z : {wide} = tt.broadcast %y;')
    assert names(free) == ["reshape", "broadcast"]
    other = wide.replace("512 1 2 | 4 8", "512 4 8 | 1 2")
    ops = lowered(f'%y : tensor<x1, x512, f32, "{ROWS}"> = tt.reshape %x; %z : {other} = tt.broadcast %y;')
    assert names(ops) == ["reshape", "convert_layout", "broadcast"], "by shuffles"
    values = ops[1].result.type
    assert isinstance(values, TensorType) and values.layout is not None
    assert moved(values.layout, parse_layout("0 4 8 | 1 2 16 32 64 | 128 256"), 512) is not None
    crossing = wide.replace("1 2 | 4 8 16 32 64 | 128 256", "128 256 | 4 8 16 32 64 | 1 2")
    ops = lowered(f'%y : tensor<x1, x512, f32, "{ROWS}"> = tt.reshape %x; %z : {crossing} = tt.broadcast %y;')
    assert names(ops) == ["reshape", "local_alloc", "local_store", "local_load", "broadcast"]


@pytest.mark.parametrize("uses", [True, False])
def test_all_threads_get_the_result_of_an_atomic(uses: bool) -> None:
    use = "tt.store %p %old;" if uses else ""
    ops = lowered(f"%old : f32 = tt.atomic_rmw %p %s @fadd; {use}")
    messages = ["splat", "local_alloc", "local_store", "local_load", "reduce", "store"] if uses else []
    assert names(ops) == ["atomic_rmw", *messages]
