"""Allocation of shared memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ziggurat as zg
from ziggurat.codemodel.errors import ResourceError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.scope import WarpScope
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import SharedType, f32
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.intervals import Interval, intervals_of, place
from ziggurat.transforms.gpu.allocate import allocate


def kernel(lines: str, target: str = "sm_90a") -> gpu.Module:
    text = f"""gpu.module @target="{target}" @num_warps=1 ()void -> {{
        tt.func @"f" (%n : i32)void -> {{
            %zero : i32 = arith.constant @0; %one : i32 = arith.constant @1;
            {lines}
            tt.return;
        }};
        unreachable;
    }};"""
    model = parse(text)
    assert isinstance(model, gpu.Module)
    return model


def alloc(name: str, bits: int = 13, more: str = "") -> str:
    return (
        f'%{name} : shared<x{1 << bits}, f32, "{" ".join(str(1 << b) for b in range(bits))}"> = gpu.local_alloc{more};'
    )


def held(bits: int = 13) -> str:
    bases = [str(1 << bit) for bit in range(bits)]
    return f'tensor<x{1 << bits}, f32, "{" ".join(bases[5:])} | {" ".join(bases[:5])} | ">'


def store(name: str, bits: int = 13) -> str:
    return f"%v{name} : {held(bits)} = arith.constant @1.0; gpu.local_store %{name} %v{name};"


def load(name: str, bits: int = 13) -> str:
    return f"%l{name} : {held(bits)} = gpu.local_load %{name};"


def offsets(model: gpu.Module) -> tuple[list[int], int]:
    result = allocate(model)
    verify(result)
    assert isinstance(result, gpu.Module)
    return [op.offset for op in result.walk() if isinstance(op, gpu.LocalAlloc)], result.shared


KIB = 1024


def test_buffers_that_are_not_alive_together_share_memory() -> None:
    lines = "".join(alloc(name) + store(name) + load(name) for name in "ab")
    assert offsets(kernel(lines)) == ([0, 0], 32 * KIB)


def test_buffers_that_are_alive_together_lie_apart_the_larger_first() -> None:
    lines = alloc("a", 12) + alloc("b") + store("a", 12) + store("b") + load("a", 12) + load("b")
    assert offsets(kernel(lines)) == ([32 * KIB, 0], 48 * KIB)


def test_a_buffer_from_before_a_loop_lives_through_it() -> None:
    inside = load("a") + alloc("b") + store("b") + load("b")
    lines = f"{alloc('a')} {store('a')} scf.for %zero %n %one (%i : i32)void -> {{ {inside} scf.yield; }};"
    assert offsets(kernel(lines)) == ([0, 32 * KIB], 64 * KIB)


def test_small_buffers_alternate() -> None:
    """Three buffers in two places: the barrier for the second one also separates the first from the third."""
    lines = "".join(alloc(name, 5) + store(name, 5) + load(name, 5) for name in "abc")
    assert offsets(kernel(lines)) == ([0, 128, 0], 256)


def test_small_operands_of_dots_one_after_the_other_alternate() -> None:
    """The barrier before a dot also separates the operands of the dot before it from those of the next."""
    acc = 'tensor<x64, x64, f32, "1 8 16 32 512 1024 2048 | 2 4 64 128 256 | ">'
    part = 'tensor<x64, x32, f16, "32 64 128 256 512 1024 | 1 2 4 8 16 | ">'
    a, b = (f'shared<{shape}, f16, "{" ".join(str(1 << b) for b in range(11))}">' for shape in ("x64, x32", "x32, x64"))
    lines = f"%z : {acc} = arith.constant @0.0; %p : {part} = arith.constant @1.0; %s0 : {acc} = gpu.wgmma_wait %z @0;"
    for n in range(6):
        lines += f"""%a{n} : {a} = gpu.local_alloc; gpu.local_store %a{n} %p; %b{n} : {b} = gpu.local_alloc;
            %d{n} : {acc} = gpu.wgmma %a{n} %b{n} %s{n}; %s{n + 1} : {acc} = gpu.wgmma_wait %d{n} @0;"""
    places, total = offsets(kernel(lines))
    assert total == 16 * KIB and places[:4] == places[4:8] == [0, 4 * KIB, 8 * KIB, 12 * KIB]


def test_small_buffers_are_not_kept_longer_than_there_is_memory() -> None:
    """Without a tensor through shared memory later, a small buffer would be kept until the end of the kernel."""
    lines = "".join(alloc(f"a{n}", 10) + store(f"a{n}", 10) for n in range(80))
    assert offsets(kernel(lines))[1] == 4 * KIB


def test_alignment() -> None:
    more = " @alignment=1024"
    lines = alloc("a", 10) + alloc("b", 5) + alloc("c", 8, more) + store("a", 10) + store("b", 5) + store("c", 8)
    lines += load("a", 10) + load("b", 5) + load("c", 8)
    places, total = offsets(kernel(lines))
    assert places == [0, 5120, 4096]
    assert total == 5248


def test_a_buffer_that_a_wgmma_reads_lives_until_its_wait() -> None:
    acc = 'tensor<x64, x64, f32, "1 8 16 32 512 1024 2048 | 2 4 64 128 256 | ">'
    buffer = f'shared<x64, x64, f16, "{" ".join(str(1 << b) for b in range(12))}">'
    lines = f"""%z : {acc} = arith.constant @0.0; %a : {buffer} = gpu.local_alloc; %b : {buffer} = gpu.local_alloc;
        %1 : {acc} = gpu.wgmma %a %b %z;
        {alloc("c", 11)} {store("c", 11)} {load("c", 11)}
        %2 : {acc} = gpu.wgmma_wait %1 @0;"""
    assert offsets(kernel(lines)) == ([0, 8192, 16384], 24576)


def test_loops_of_blocks() -> None:
    text = f"""gpu.module @target="sm_90a" @num_warps=1 ()void -> {{
        tt.func @"f" (%c : i1)void -> {{
            {alloc("a")} {store("a")}
            cf.br ^head;
          ^head:
            {load("a")}
            {alloc("b")} {store("b")} {load("b")}
            cf.cond_br %c ^head ^end;
          ^end:
            tt.return;
        }};
        unreachable;
    }};"""
    model = parse(text)
    assert isinstance(model, gpu.Module)
    assert offsets(model) == ([0, 32 * KIB], 64 * KIB)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 12)), max_size=12))
def test_intervals_that_meet_never_overlap(data: list[tuple[int, int, int]]) -> None:
    def buffer(bits: int) -> gpu.LocalAlloc:
        return gpu.LocalAlloc(SharedType((1 << bits,), f32, tuple(1 << b for b in range(bits))), alignment=128)

    intervals = [Interval(buffer(bits), start, start + length, WarpScope(0, 1)) for start, length, bits in data]
    total = place(intervals)
    for at, item in enumerate(intervals):
        assert item.offset % 128 == 0
        assert item.offset + item.size <= total
        for other in intervals[:at]:
            apart = item.offset + item.size <= other.offset or other.offset + other.size <= item.offset
            assert apart or not item.meets(other)


def test_too_much_shared_memory_is_an_error() -> None:
    lines = alloc("a", 15) + alloc("b", 14) + alloc("c", 5)
    lines += "".join(store(n, b) for n, b in (("a", 15), ("b", 14), ("c", 5)))
    lines += "".join(load(n, b) for n, b in (("a", 15), ("b", 14), ("c", 5)))

    def located(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, gpu.LocalAlloc):
            return builder.add(gpu.LocalAlloc(op.type), Location(__file__, 1, 0))
        return None

    for target, fits in (("sm_90a", True), ("sm_80", False), ("sm_89", False)):
        model = transform(kernel(lines, target), located)
        if fits:
            allocate(model)
            continue
        with pytest.raises(ResourceError) as error:
            allocate(model)
        text = str(error.value)
        assert f"needs 196736 bytes of shared memory; {target} has {TARGETS[target].max_shared}" in text
        assert "131072 bytes: 32768 of f32: on its way between threads, at" in text
        assert text.index("131072 bytes") < text.index("65536 bytes") < text.index("  128 bytes")
        assert "test_allocate.py:1:1\n    " + '"""Allocation of shared memory."""' in text
        assert "hint: use smaller blocks" in text
    assert zg.ResourceError is ResourceError


def test_lifetimes_are_in_the_order_of_the_model() -> None:
    lines = "".join(alloc(name) + store(name) + load(name) for name in "ab")
    first, second = intervals_of(kernel(lines))
    assert first.end < second.start
    assert not first.meets(second)
