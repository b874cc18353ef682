"""Asynchronous ops by their declaration: the analyses understand ops that they have never seen.

`Product` is a matrix unit as a later architecture may have it: it adds to a buffer, and its own waits count its groups.
`Signalled` is the same, completed by an mbarrier; `Chained` gives its sum in registers.
"""

from __future__ import annotations

import pytest

from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.fields import attribute, operand
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import Asynchronous, BufferOp, GroupWait, ResultInFlight, ResultWait
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import Type, void
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.intervals import intervals_of
from ziggurat.transforms.analysis.memory_flow import read_in_flight
from ziggurat.transforms.gpu.allocate import allocate
from ziggurat.transforms.gpu.barriers import insert_barriers, missing_barriers
from ziggurat.transforms.gpu.hazards import hazards
from ziggurat.transforms.gpu.in_flight import used_too_early
from ziggurat.transforms.gpu.lower_channels import lower_channels
from ziggurat.transforms.schedule.schedule import expand
from ziggurat.transforms.schedule.sink_waits import sink_waits


class ProductWait(Op, GroupWait, name="test.product_wait"):
    """At most `pending` products are in flight."""

    pending: int = attribute(int, unnamed=True)


class Product(Asynchronous, name="test.product"):
    """Begin to add a · b to the buffer c."""

    READS, WRITES, WAIT, BY_PROXY = ("a", "b"), ("c",), ProductWait, True

    a: Value = operand()
    b: Value = operand()
    c: Value = operand()


class Signalled(Asynchronous, name="test.signalled"):
    """Begin to add a · b to the buffer c; the mbarrier tells of the end."""

    READS, WRITES, WAIT, MBARRIER, BY_PROXY = ("a", "b"), ("c",), gpu.MbarrierWait, "barrier", True

    a: Value = operand()
    b: Value = operand()
    c: Value = operand()
    barrier: Value = operand()


class ChainedWait(ResultWait, name="test.chained_wait"):
    """The sum, complete."""


class Chained(ResultInFlight, name="test.chained"):
    """Begin a · a + c."""

    READS, WAIT, BY_PROXY, ACCUMULATOR = ("a",), ChainedWait, True, "c"

    a: Value = operand()
    c: Value = operand()

    def infer_type(self) -> Type:
        return self.c.type


ROWS = 'tensor<x128, f32, "1 | 2 4 8 16 32 | 64">'
BUFFER = 'shared<x128, f32, "1 2 4 8 16 32 64">'
RING = 'shared<n2, x128, f32, "1 2 4 8 16 32 64">'
BUFFERS = "".join(f"%{name} : {BUFFER} = gpu.local_alloc;" for name in "abc")
NUMBERS = "%0 : i32 = arith.constant @0; %1 : i32 = arith.constant @1; %yes : i1 = arith.constant @true;"
MBARRIER = "%m : shared<x1, i64, ''> = gpu.local_alloc @alignment=8; gpu.mbarrier_init %m @arrivals=1;".replace(
    "'", '"'
)


def kernel(lines: str) -> gpu.Module:
    text = f"""gpu.module @target="sm_90a" @num_warps=2 ()void -> {{
        tt.func @"f" (%x : {ROWS}, %n : i32, %p : tensor<x128, ptr<f32>, "1 | 2 4 8 16 32 | 64">)void -> {{
            {NUMBERS} {lines}
            tt.return;
        }};
        unreachable;
    }};"""
    module = parse(text)
    assert isinstance(module, gpu.Module)
    verify(module)
    return module


def placed(lines: str) -> gpu.Module:
    module = insert_barriers(allocated(lines))
    assert isinstance(module, gpu.Module) and missing_barriers(module) == []
    return module


def allocated(lines: str) -> gpu.Module:
    module = allocate(kernel(lines))
    assert isinstance(module, gpu.Module)
    return module


def missing(module: gpu.Module) -> set[tuple[str, str, str]]:
    return {(hazard.missing, hazard.first.NAME, hazard.second.NAME) for hazard in used_too_early(module)}


STORE = "gpu.local_store %a %x;"
BEGIN = "test.product %a %b %c;"


def test_barriers_and_fences_are_placed() -> None:
    """A fence and a barrier come before the product reads what threads have stored, a barrier after the wait for it."""
    module = placed(f"{BUFFERS} {STORE} {BEGIN} test.product_wait @0; {STORE}")
    (func,) = module.functions().values()
    order = [op.NAME for op in func.walk() if op.NAME.startswith(("gpu.", "test.")) and op.NAME != "gpu.local_alloc"]
    assert order == [
        "gpu.local_store", "gpu.fence_async", "gpu.barrier", "test.product", "test.product_wait", "gpu.barrier",
        "gpu.local_store",
    ]  # fmt: skip
    assert hazards(module) == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"{BEGIN} test.product_wait @0; {STORE}", set()),
        (f"{BEGIN} {STORE} test.product_wait @0;", {("wait", "test.product", "gpu.local_store")}),
        (f"{BEGIN} %y : {ROWS} = gpu.local_load %a; test.product_wait @0;", set()),
        (
            f"{BEGIN} %y : {ROWS} = gpu.local_load %c; test.product_wait @0;",
            {("wait", "test.product", "gpu.local_load")},
        ),
        (f"{BEGIN} test.product %b %b %b; test.product_wait @0;", {("wait", "test.product", "test.product")}),
        # The wait is for the first product, and the second one is in flight still.
        (f"{BEGIN} test.product %b %b %d; test.product_wait @1; {STORE} test.product_wait @0;", set()),
        (
            f"test.product %b %b %d; {BEGIN} test.product_wait @1; {STORE} test.product_wait @0;",
            {("wait", "test.product", "gpu.local_store")},
        ),
        # Waits for other ops do not count.
        (
            f"{BEGIN} gpu.tma_store_wait @0; {STORE} test.product_wait @0;",
            {("wait", "test.product", "gpu.local_store")},
        ),
        (BEGIN, {("wait", "test.product", "test.product")}),
    ],
)
def test_what_is_in_flight_is_waited_for(lines: str, expected: set[tuple[str, str, str]]) -> None:
    assert missing(placed(f"{BUFFERS} %d : {BUFFER} = gpu.local_alloc; {lines}")) == expected


def test_an_mbarrier_completes() -> None:
    begin = f"{BUFFERS} {MBARRIER} gpu.barrier; test.signalled %a %b %c %m;"
    assert missing(placed(f"{begin} gpu.mbarrier_wait %m %0; {STORE}")) == set()
    assert missing(placed(f"{begin} {STORE} gpu.mbarrier_wait %m %0;")) == {
        ("wait", "test.signalled", "gpu.local_store")
    }
    other = MBARRIER.replace("%m", "%o")
    waits = f"gpu.mbarrier_wait %o %0; {STORE} gpu.mbarrier_wait %m %0;"
    assert missing(placed(f"{other} {begin} {waits}")) == {("wait", "test.signalled", "gpu.local_store")}


def test_results_in_flight_are_accumulators_only() -> None:
    begin = f"%a : {BUFFER} = gpu.local_alloc; %s : {ROWS} = test.chained %a %x;"
    assert missing(placed(f"{begin} %t : {ROWS} = test.chained %a %s; %u : {ROWS} = test.chained_wait %t @0;")) == set()
    used = f"%u : {ROWS} = arith.addf %s %s; %v : {ROWS} = test.chained_wait %s @0;"
    assert missing(placed(f"{begin} {used}")) == {("wait", "test.chained", "arith.addf")}


def test_a_buffer_is_alive_until_the_wait() -> None:
    later = f"%d : {BUFFER} = gpu.local_alloc; gpu.local_store %d %x; %y : {ROWS} = gpu.local_load %d;"
    module = kernel(f"{BUFFERS} {BEGIN} {later} test.product_wait @0;")
    *operands, last = intervals_of(module)
    assert len(operands) == 3 and all(interval.meets(last) for interval in operands)
    offsets = {op.offset for op in allocate(module).walk() if isinstance(op, gpu.LocalAlloc)}
    assert len(offsets) == 4


def in_a_ring(release: str) -> gpu.Module:
    """A kernel that copies to a channel and reads its slots, each until the next one is read."""
    fill = """%t = gpu.channel_acquire %h %yes; %at : BB = gpu.local_view %r %t; gpu.async_copy %p %at;
        gpu.channel_commit %h;"""
    text = f"""%b : BB = gpu.local_alloc; %c : BB = gpu.local_alloc; %r : {RING} = gpu.local_alloc;
        %h = gpu.channel %r; {fill}
        scf.for %0 %n %1 (%i : i32)void -> {{
            %s = gpu.channel_wait %h; %v : BB = gpu.local_view %r %s;
            test.product %v %b %c; {release}
            {fill.replace("%t", "%u").replace("%at", "%then")}
            scf.yield; }};
        gpu.channel_close %h;"""
    return kernel(
        text.replace("BB", BUFFER)
        .replace("%t =", "%t : i32 =")
        .replace("%u =", "%u : i32 =")
        .replace("%s =", "%s : i32 =")
        .replace("%h =", "%h : channel =")
    )


def test_a_slot_of_a_channel_is_released_after_the_wait() -> None:
    lowered = allocate(lower_channels(in_a_ring("test.product_wait @0; gpu.channel_release %h;")))
    module = insert_barriers(lowered)
    assert isinstance(module, gpu.Module) and hazards(module) == []
    # The product reads what threads copy: through the proxy, after a fence.
    assert any(isinstance(op, gpu.FenceAsync) for op in module.walk())
    with pytest.raises(InternalError, match=r"no wait between .*test\.product.* and .*channel_release"):
        lower_channels(in_a_ring("gpu.channel_release %h; test.product_wait @0;"))


# Schedules.


def asynchronous_ops(module: Op) -> list[str | int]:
    """The names of the ops that begin something, and the numbers of groups that waits leave in flight."""
    ops = (op for op in module.walk() if isinstance(op, Asynchronous | ResultWait))
    return [op.pending if isinstance(op, ResultWait) else op.NAME for op in ops]


def test_waits_sink_to_the_uses_of_results() -> None:
    lines = f"""{BUFFERS} scf.for %0 %n %1 (%i : i32)void -> {{
        %d : {ROWS} = test.chained %a %x; %s : {ROWS} = test.chained_wait %d @0;
        %e : {ROWS} = test.chained %b %x; %t : {ROWS} = test.chained_wait %e @0;
        gpu.local_store %a %s; gpu.local_store %b %t;
        scf.yield; }};"""
    module = kernel(lines)
    assert asynchronous_ops(module) == ["test.chained", 0, "test.chained", 0]
    sunk = sink_waits(module, every=True)
    verify(sunk)
    assert asynchronous_ops(sunk) == ["test.chained", "test.chained", 1, 0]


def test_a_result_stays_in_flight_into_the_next_iteration() -> None:
    lines = f"""{BUFFERS} %z : {ROWS} = scf.for %0 %n %1 %x (%i : i32, %q : {ROWS}){ROWS} -> {{
        %f : i1 = gpu.stage @0; %d : {ROWS} = test.chained %a %q;
        %g : i1 = gpu.stage @1; %s : {ROWS} = test.chained_wait %d @0;
        %h : i1 = gpu.stage @0; scf.yield %s; }};"""
    expanded = expand(kernel(lines))
    verify(expanded)
    assert asynchronous_ops(expanded) == ["test.chained", 1, 0]


# Declarations.


@pytest.mark.parametrize("name", sorted(name for name, cls in OPS.items() if issubclass(cls, BufferOp)))
def test_declared_operands_exist(name: str) -> None:
    cls = OPS[name]
    assert issubclass(cls, BufferOp) and (cls.READS or cls.WRITES)
    operands = {field.name for field in cls.SPEC.operands}
    assert {*cls.READS, *cls.WRITES} <= operands
    if issubclass(cls, Asynchronous):
        assert {cls.MBARRIER} - {""} <= operands
        assert issubclass(cls.WAIT, gpu.MbarrierWait if cls.MBARRIER else GroupWait)
    if issubclass(cls, ResultInFlight):
        assert cls.ACCUMULATOR in operands and issubclass(cls.WAIT, ResultWait)


def test_only_declared_reads_are_in_flight() -> None:
    (op,) = (op for op in kernel(f"{BUFFERS} {BEGIN}").walk() if isinstance(op, Product))
    assert read_in_flight(op) == [op.a, op.b] and op.in_flight == [op.a, op.b, op.c]
    assert op.result.type == void
