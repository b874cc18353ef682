"""Barriers: as many as needed and no more, on models written by hand and on generated ones."""

import random
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.dialects import scf
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import SharedType, TensorType
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.allocate import allocate
from ziggurat.transforms.gpu.barriers import insert_barriers
from ziggurat.transforms.gpu.hazards import hazards

ROWS = 'tensor<x128, f32, "1 | 2 4 8 16 32 | 64">'  # 128 elements over two warps
COLUMNS = 'tensor<x128, f32, "64 | 1 2 4 8 16 | 32">'
COPIES = 'tensor<x128, f32, "64 1 | 2 4 8 16 32 | 0">'
BUFFER = 'shared<x128, f32, "1 2 4 8 16 32 64">'
HALF = 'shared<x64, x64, f16, "1 2 4 8 16 32 64 128 256 512 1024 2048">'


def kernel(lines: str, num_warps: int = 2) -> gpu.Module:
    tensors = f", %r : {ROWS}, %k : {COLUMNS}, %d : {COPIES}" if num_warps == 2 else ""
    text = f"""gpu.module @target="sm_90a" @num_warps={num_warps} ()void -> {{
        tt.func @"f" (%x : ptr<f32>, %y : ptr<f32>, %f : f32, %n : i32, %c : i1{tensors})void -> {{
            {lines}
            tt.return;
        }};
        unreachable;
    }};"""
    model = allocate(parse(text))
    assert isinstance(model, gpu.Module)
    verify(model)
    return model


def without(model: Op, number: int) -> Op:
    """The model without its barrier or fence of this number."""
    count = iter(range(1000))

    def drop(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        return DROP if isinstance(op, gpu.Barrier | gpu.FenceAsync) and next(count) == number else None

    return transform(model, drop)


def placed_exactly(model: gpu.Module, barriers: int, fences: int = 0) -> Op:
    """The model with barriers; there must be this many, and each must be needed."""
    result = insert_barriers(model)
    verify(result)
    assert [h for h in hazards(result) if h.missing != "wait"] == []
    results = [op for op in result.walk() if isinstance(op, gpu.Barrier | gpu.FenceAsync)]
    assert [sum(isinstance(op, cls) for op in results) for cls in (gpu.Barrier, gpu.FenceAsync)] == [
        barriers,
        fences,
    ], result
    for number in range(len(results)):
        assert hazards(without(result, number)) != [], f"barrier {number} is not needed:\n{result}"
    assert insert_barriers(result) is result
    return result


A = f"%a : {BUFFER} = gpu.local_alloc;"
B = f"%b : {BUFFER} = gpu.local_alloc;"


@pytest.mark.parametrize(
    ("lines", "barriers"),
    [
        # A thread may read what it has written itself.
        (f"{A} gpu.local_store %a %r; %1 : {ROWS} = gpu.local_load %a;", 0),
        (f"{A} gpu.local_store %a %r; %1 : {COLUMNS} = gpu.local_load %a;", 1),
        # Copies of an element are written by one thread and read by all.
        (f"{A} gpu.local_store %a %d; %1 : {COPIES} = gpu.local_load %a;", 1),
        # Write after read, and write after write, by other threads.
        (f"{A} %1 : {ROWS} = gpu.local_load %a; gpu.local_store %a %k;", 1),
        (f"{A} gpu.local_store %a %r; gpu.local_store %a %k;", 1),
        (f"{A} gpu.local_store %a %r; gpu.local_store %a %r;", 0),
        # Two buffers, one barrier.
        (
            f"{A} {B} gpu.local_store %a %r; gpu.local_store %b %r;"
            f"%1 : {COLUMNS} = gpu.local_load %a; %2 : {COLUMNS} = gpu.local_load %b;",
            1,
        ),
        # A barrier that is there already.
        (f"{A} gpu.local_store %a %r; tt.barrier; %1 : {COLUMNS} = gpu.local_load %a;", 0),
        # A barrier on one path only.
        (
            f"{A} scf.if %c ()void -> {{ gpu.local_store %a %r; scf.yield; }} ()void -> {{ scf.yield; }};"
            f"%1 : {COLUMNS} = gpu.local_load %a;",
            1,
        ),
    ],
)
def test_barriers_where_accesses_conflict(lines: str, barriers: int) -> None:
    placed_exactly(kernel(lines), barriers)


PTR = {tensor: tensor.replace("f32", "ptr<f32>") for tensor in (ROWS, COLUMNS, COPIES)}
EXCHANGE = '%o : f32 = tt.atomic_rmw %x %1 @kind="xchg";'
INDEX = {tensor: tensor.replace("f32", "i32") for tensor in (ROWS, COLUMNS, COPIES)}


def pointers(name: str, tensor: str, base: str = "x", start: int = 0) -> str:
    """The pointers to 128 elements of an argument, in a layout."""
    return (
        f"%{name}i : {INDEX[tensor]} = tt.make_range @start={start} @end={start + 128};"
        f"%{name}s : {PTR[tensor]} = tt.splat %{base}; %{name} : {PTR[tensor]} = tt.addptr %{name}s %{name}i;"
    )


@pytest.mark.parametrize(
    ("lines", "barriers"),
    [
        # A thread loads what it stores itself.
        (pointers("p", ROWS) + f"%1 : {ROWS} = tt.load %p; tt.store %p %1;", 0),
        (pointers("p", ROWS) + f"tt.store %p %r; %1 : {ROWS} = tt.load %p;", 0),
        # All warps load a number, or have copies of each element, which one thread stores.
        ("%1 : f32 = tt.load %x; tt.store %x %1;", 1),
        (f"%1 : f32 = tt.load %x; {EXCHANGE}", 1),
        (pointers("p", COPIES) + f"%1 : {COPIES} = tt.load %p; tt.store %p %1;", 1),
        (pointers("p", COPIES) + f"tt.store %p %d; %1 : {COPIES} = tt.load %p;", 1),
        # Other threads load an element than the one that stores it: also among other elements.
        (pointers("p", ROWS) + pointers("q", COLUMNS) + f"%1 : {ROWS} = tt.load %p; tt.store %q %k;", 1),
        (pointers("p", ROWS) + pointers("q", ROWS, start=1) + f"%1 : {ROWS} = tt.load %p; tt.store %q %r;", 1),
        (pointers("p", ROWS) + pointers("q", COLUMNS) + f"tt.store %q %k; %1 : {ROWS} = tt.load %p;", 1),
        (pointers("p", ROWS) + pointers("q", COLUMNS) + "tt.store %q %k; tt.store %p %r;", 1),
        ("tt.store %x %f; tt.store %x %f;", 0),
        # A load after a store through other pointers needs a barrier in the text.
        (pointers("p", ROWS) + pointers("q", ROWS, start=1) + f"tt.store %q %r; %1 : {ROWS} = tt.load %p;", 0),
        # Arguments are different memory.
        (pointers("p", ROWS) + pointers("q", COLUMNS, "y") + f"%1 : {ROWS} = tt.load %p; tt.store %q %k;", 0),
        # One barrier for two loads; a barrier that is there.
        (f"%1 : f32 = tt.load %x; %2 : f32 = tt.load %x; tt.store %x %1; {EXCHANGE}", 1),
        ("%1 : f32 = tt.load %x; tt.barrier; tt.store %x %1;", 0),
    ],
)
def test_barriers_in_global_memory(lines: str, barriers: int) -> None:
    placed_exactly(kernel(lines), barriers)


def test_one_warp_needs_no_barriers_in_global_memory() -> None:
    placed_exactly(kernel("%1 : f32 = tt.load %x; tt.store %x %1;", 1), 0)


def test_global_memory_in_loops() -> None:
    placed_exactly(kernel(loop("%1 : f32 = tt.load %x; tt.store %x %1;")), 2)
    placed_exactly(kernel(loop(pointers("p", ROWS) + f"%1 : {ROWS} = tt.load %p; tt.store %p %1;")), 0)
    # In other iterations the pointers are others: one loads, the next one stores.
    branches = f"""scf.if %c ()void -> {{ %1 : {ROWS} = tt.load %p; scf.yield; }}
        ()void -> {{ tt.store %p %r; scf.yield; }};"""
    shift = f"%is : {INDEX[ROWS]} = tt.splat %i; %p : {PTR[ROWS]} = tt.addptr %q %is;"
    placed_exactly(kernel(pointers("q", ROWS) + loop(shift + branches)), 1)
    placed_exactly(kernel(pointers("p", ROWS) + loop(branches)), 0)


def test_many_accesses_take_little_time() -> None:
    """Pointers that follow from one another, as in an unrolled loop."""
    start = f"%one : i32 = arith.constant @1; %ones : {INDEX[ROWS]} = tt.splat %one;" + pointers("p0", ROWS)
    lines = [
        f"%v{at} : {ROWS} = tt.load %p{at}; tt.store %p{at} %v{at};%p{at + 1} : {PTR[ROWS]} = tt.addptr %p{at} %ones;"
        for at in range(40)
    ]
    module = kernel(start + "".join(lines))
    begin = time.process_time()
    assert sum(isinstance(op, gpu.Barrier) for op in insert_barriers(module).walk()) == 20
    assert time.process_time() - begin < 5


def loop(lines: str) -> str:
    return f"""%zero : i32 = arith.constant @0; %one : i32 = arith.constant @1;
        scf.for %zero %n %one (%i : i32)void -> {{ {lines} scf.yield; }};"""


def test_back_edges() -> None:
    """The next iteration writes what this one reads: that takes a second barrier, unless there is another one."""
    once = f"gpu.local_store %a %r; %1 : {COLUMNS} = gpu.local_load %a;"
    placed_exactly(kernel(A + loop(once)), 2)
    twice = f"{once} gpu.local_store %b %r; %2 : {COLUMNS} = gpu.local_load %b;"
    placed_exactly(kernel(A + B + loop(twice)), 2)
    inner = f"{A} {once} {B} gpu.local_store %b %r; %2 : {COLUMNS} = gpu.local_load %b;"
    placed_exactly(kernel(loop(inner)), 2)


def test_blocks_of_control_flow() -> None:
    text = f"""gpu.module @target="sm_90a" @num_warps=2 ()void -> {{
        tt.func @"f" (%c : i1, %r : {ROWS})void -> {{
            {A}
            cf.br ^head;
          ^head:
            gpu.local_store %a %r;
            %1 : {COLUMNS} = gpu.local_load %a;
            cf.cond_br %c ^head ^end;
          ^end:
            tt.return;
        }};
        unreachable;
    }};"""
    model = allocate(parse(text))
    assert isinstance(model, gpu.Module)
    placed_exactly(model, 2)


def test_memory_that_is_used_again() -> None:
    """Buffers that are not alive together share memory: the first must be read before the second is written."""
    big = 'tensor<x8192, f32, "64 128 256 512 1024 2048 4096 | 1 2 4 8 16 | 32">'
    other = 'tensor<x8192, f32, "1 128 256 512 1024 2048 4096 | 2 4 8 16 32 | 64">'
    buffer = 'shared<x8192, f32, "1 2 4 8 16 32 64 128 256 512 1024 2048 4096">'
    lines = "".join(
        f"""%s{name} : {big} = arith.constant @1.0; %{name} : {buffer} = gpu.local_alloc;
        gpu.local_store %{name} %s{name}; %l{name} : {other} = gpu.local_load %{name};"""
        for name in "ab"
    )
    model = kernel(lines)
    assert model.shared == 8192 * 4
    placed_exactly(model, 3)


def test_fences_before_the_matrix_units() -> None:
    acc = 'tensor<x64, x64, f32, "1 512 8 16 32 | 2 4 64 128 256 | 1024 2048">'
    part = 'tensor<x64, x64, f16, "1 2 4 512 1024 | 8 16 32 64 128 | 256 2048">'
    lines = f"""%v : {part} = arith.constant @1.0; %z : {acc} = arith.constant @0.0;
        %a : {HALF} = gpu.local_alloc; %b : {HALF} = gpu.local_alloc;
        gpu.local_store %a %v; gpu.local_store %b %v;
        %1 : {acc} = gpu.wgmma %a %b %z; %2 : {acc} = gpu.wgmma_wait %1 @0;"""
    placed_exactly(kernel(lines, 4), 1, 1)
    # In a loop, the next iteration's stores come after all threads have waited for the wgmma.
    placed_exactly(kernel(loop(lines), 4), 2, 1)
    # The later of two fences is left: it comes after all writes.
    first, second = "gpu.local_store %a %v;", "gpu.local_store %b %v;"
    twice = lines.replace(first, f"{first} gpu.fence_async;").replace(second, f"{second} gpu.fence_async;")
    placed = insert_barriers(kernel(loop(twice), 4))
    ops = [op.NAME for op in placed.walk() if isinstance(op, gpu.FenceAsync | gpu.LocalStore)]
    assert ops == ["gpu.local_store", "gpu.local_store", "gpu.fence_async"] and hazards(placed) == []


def test_a_wgmma_without_a_wait() -> None:
    acc = 'tensor<x64, x64, f32, "1 512 8 16 32 | 2 4 64 128 256 | 1024 2048">'
    part = 'tensor<x64, x64, f16, "1 2 4 512 1024 | 8 16 32 64 128 | 256 2048">'
    lines = f"""%v : {part} = arith.constant @1.0; %z : {acc} = arith.constant @0.0;
        %a : {HALF} = gpu.local_alloc; %b : {HALF} = gpu.local_alloc;
        %1 : {acc} = gpu.wgmma %a %b %z; gpu.local_store %a %v; %2 : {acc} = gpu.wgmma_wait %1 @0;"""
    result = insert_barriers(kernel(lines, 4))
    assert [h.missing for h in hazards(result)] == ["wait"]


def test_copies_that_are_waited_for() -> None:
    pointers = 'tensor<x128, ptr<f32>, "1 | 2 4 8 16 32 | 64">'
    lines = f"""{A} %p : {pointers} = tt.splat %x; gpu.async_copy %p %a; gpu.async_commit; gpu.async_wait @0;
        %1 : {COLUMNS} = gpu.local_load %a;"""
    placed_exactly(kernel(lines), 1)
    early = lines.replace("gpu.async_wait @0;", "gpu.barrier;")
    kinds = [(h.missing, type(h.second)) for h in hazards(kernel(early))]
    assert kinds == [("wait", gpu.LocalLoad), ("wait", gpu.AsyncCopy)]  # The other at the kernel's end.


# TMA.

ACC = 'tensor<x64, x64, f32, "1 512 8 16 32 | 2 4 64 128 256 | 1024 2048">'
PART = 'tensor<x64, x64, f16, "1 2 4 512 1024 | 8 16 32 64 128 | 256 2048">'
PHASES = 'shared<x1, i64, "">'
NUMBERS = f"""%zero : i32 = arith.constant @0; %one : i32 = arith.constant @1; %yes : i1 = arith.constant @true;
    %z : {ACC} = arith.constant @0.0; %v : {PART} = arith.constant @1.0;"""
PHASE = f"%m : {PHASES} = gpu.local_alloc; gpu.mbarrier_init %m @arrivals=1;"
BLOCK = f"{NUMBERS} %a : {HALF} = gpu.local_alloc;"
MADE = f"{BLOCK} {PHASE} gpu.barrier;"
FETCH = "gpu.mbarrier_expect %m %yes @bytes=8192; gpu.tma_load %t %a %m %yes %zero %zero;"
WAIT = "gpu.mbarrier_wait %m %zero;"


def of_phase(parity: str) -> str:
    return WAIT.replace("%zero", parity)


def tma_kernel(lines: str) -> gpu.Module:
    text = f"""gpu.module @target="sm_90a" @num_warps=4 ()void -> {{
        tt.func @"f" (%t : descriptor<x64, x64, f16>, %n : i32)void -> {{
            {lines}
            tt.return;
        }};
        unreachable;
    }};"""
    model = allocate(parse(text))
    assert isinstance(model, gpu.Module)
    verify(model)
    return model


def missing(model: Op) -> set[tuple[str, type[Op], type[Op]]]:
    return {(hazard.missing, type(hazard.first), type(hazard.second)) for hazard in hazards(model)}


def test_mbarriers_are_initialised_before_a_barrier() -> None:
    """Other threads must not wait for an mbarrier before that, nor reuse its memory before it is invalidated."""
    early = f"{BLOCK} {PHASE} gpu.mbarrier_expect %m %yes @bytes=0;"
    assert missing(tma_kernel(f"{early} {WAIT}")) == {("barrier", gpu.MbarrierInit, gpu.MbarrierWait)}
    placed_exactly(tma_kernel(f"{early} {WAIT} gpu.mbarrier_inval %m;"), 2)


def test_a_wgmma_is_complete_before_a_fetch_into_its_operand() -> None:
    """A barrier stands between the wait and the fetch in every iteration, as all threads must have waited."""
    product = f"{of_phase('%odd')} %1 : {ACC} = gpu.wgmma %a %a %z; %2 : {ACC} = gpu.wgmma_wait %1 @0;"
    lines = f"""{MADE} {FETCH} %last : i32 = scf.for %zero %n %one %zero (%i : i32, %odd : i32)i32 -> {{
        {product} {FETCH} %next : i32 = arith.xori %odd %one; scf.yield %next; }}; {of_phase("%last")}"""
    model = tma_kernel(lines)
    assert missing(model) == {("barrier", gpu.Wgmma, gpu.TmaLoad)}
    result = insert_barriers(model)
    assert hazards(result) == [] and sum(isinstance(op, gpu.Barrier) for op in result.walk()) == 2
    late = tma_kernel(lines.replace("gpu.wgmma_wait %1 @0;", "gpu.wgmma_wait %1 @1;"))
    assert ("wait", gpu.Wgmma, gpu.TmaLoad) in missing(late)


def test_a_store_by_tma() -> None:
    """There is a fence and a barrier before it, and a wait and a barrier before its buffer is written again."""
    wait = "gpu.tma_store_wait @0 @written=true;"  # The next store is of the same block.
    store = f"gpu.local_store %a %v; gpu.tma_store %t %a %zero %zero; {wait}"
    placed_exactly(tma_kernel(f"{BLOCK} {store}"), 1, 1)
    placed_exactly(tma_kernel(f"{BLOCK} {store} {store}"), 3, 2)
    placed_exactly(tma_kernel(f"{BLOCK} scf.for %zero %n %one (%i : i32)void -> {{ {store} scf.yield; }};"), 2, 1)
    result = insert_barriers(tma_kernel(f"{BLOCK} {store} {store}".replace(wait, "", 1)))
    early = ("wait for what is written", gpu.TmaStore, gpu.TmaStore)
    assert missing(result) == {("wait", gpu.TmaStore, gpu.LocalStore), early}


def test_writes_of_threads_are_fenced_before_a_fetch() -> None:
    """Otherwise an earlier write could overwrite the bytes of TMA. The barrier is for the mbarrier, too."""
    lines = f"{BLOCK} {PHASE} gpu.local_store %a %v; {FETCH} {WAIT} %1 : {PART} = gpu.local_load %a;"
    placed_exactly(tma_kernel(lines), 1, 1)


# Generated programs, run along random paths by a checker that knows only which thread touches which byte.


@st.composite
def programs(draw: st.DrawFn, depth: int = 0) -> str:
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.integers(0, 9 if depth < 2 else 7))
        name = draw(st.sampled_from("ab"))
        if kind < 4:
            parts.append(f"gpu.local_store %{name} {draw(st.sampled_from(['%r', '%k', '%d']))};")
        elif kind < 8:
            parts.append(f"%_ : {draw(st.sampled_from([ROWS, COLUMNS, COPIES]))} = gpu.local_load %{name};")
        elif kind == 8:
            parts.append(f"scf.for %zero %n %one (%i : i32)void -> {{ {draw(programs(depth + 1))} scf.yield; }};")
        else:
            then, otherwise = draw(programs(depth + 1)), draw(programs(depth + 1))
            branches = [f"()void -> {{ {part} scf.yield; }}" for part in (then, otherwise)]
            parts.append(f"scf.if %c {' '.join(branches)};")
    return " ".join(parts)


def path(body: Body, choose: random.Random) -> Iterator[Op]:
    """The ops of one run, with loops of up to three iterations and random branches."""
    for op in body.entry.ops:
        if isinstance(op, scf.For):
            for _ in range(choose.randrange(4)):
                yield from path(op.body, choose)
        elif isinstance(op, scf.If):
            yield from path(choose.choice([op.then, op.otherwise]), choose)
        else:
            yield op


def touched(op: Op) -> Iterator[tuple[int, int]]:
    """The pairs (place, thread) of an access; a place with copies is written by one thread and read by all."""
    assert isinstance(op, gpu.LocalLoad | gpu.LocalStore)
    values = op.result.type if isinstance(op, gpu.LocalLoad) else op.value.type
    buffer = op.buffer.op  # type: ignore[attr-defined]
    assert isinstance(values, TensorType) and values.layout is not None and isinstance(buffer.type, SharedType)
    for warp in range(2):
        for lane in range(32):
            for register in range(values.layout.num_registers):
                if warp & values.layout.free[2] and isinstance(op, gpu.LocalStore):
                    continue
                yield buffer.offset + 4 * values.layout.element(register, lane, warp), 32 * warp + lane


def race(model: Op, choose: random.Random) -> bool:
    """Whether a run has a race."""
    text: dict[int, int] = {}
    read: dict[int, set[int]] = {}
    func = model.bodies[0].entry.ops[0]
    for op in path(func.bodies[0], choose):
        if isinstance(op, gpu.Barrier):
            text.clear()
            read.clear()
        elif isinstance(op, gpu.LocalLoad):
            for place, thread in touched(op):
                if text.get(place, thread) != thread:
                    return True
                read.setdefault(place, set()).add(thread)
        elif isinstance(op, gpu.LocalStore):
            for place, thread in touched(op):
                if text.get(place, thread) != thread or read.get(place, {thread}) != {thread}:
                    return True
                text[place] = thread
    return False


def numbered(lines: str) -> str:
    """Each unused result gets a name of its own."""
    parts = lines.split("%_ ")
    return "".join(part + (f"%u{number} " if number < len(parts) - 1 else "") for number, part in enumerate(parts))


@settings(max_examples=25)
@given(programs(), st.integers(0, 1 << 30))
def test_generated_programs(lines: str, seed: int) -> None:
    start = f"%zero : i32 = arith.constant @0; %one : i32 = arith.constant @1; {A} {B}"
    result = insert_barriers(kernel(start + numbered(lines)))
    assert hazards(result) == []
    choose = random.Random(seed)
    for _ in range(3):
        assert not race(result, choose), result
    count = sum(isinstance(op, gpu.Barrier) for op in result.walk())
    for number in range(count):
        assert hazards(without(result, number)) != [], f"barrier {number} is not needed:\n{result}"


def test_the_checker_of_runs_finds_a_race() -> None:
    assert race(kernel(f"{A} gpu.local_store %a %r; %1 : {COLUMNS} = gpu.local_load %a;"), random.Random(0))
