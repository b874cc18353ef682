"""Races between programs, reported by strict launches and by the simulator; and kernels without one."""

import contextlib
import re
from functools import partial

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.launch.races import WRITE, Races
from ziggurat.backend.launch.regions import Region

F32, I32 = np.float32, np.int32


def fresh(*shapes_and_dtypes):
    return [np.zeros(shape, dtype) for shape, dtype in shapes_and_dtypes]


@triton.jit
def increment(x):
    tl.store(x, tl.load(x) + 1)


@triton.jit
def overlap(x, STRIDE: tl.constexpr, SIZE: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * STRIDE + tl.arange(0, SIZE)
    tl.store(x + at, at + pid + 1, mask=at < 100)


@triton.jit
def chain(x, y):
    pid = tl.program_id(0)
    tl.store(y + pid + 1, tl.load(x + pid) + 1)


@triton.jit
def columns_forgotten(out, WIDTH: tl.constexpr):
    rows = tl.program_id(0) * 4 + tl.arange(0, 4)
    tl.store(out + rows[:, None] * WIDTH + tl.arange(0, 4)[None, :], (tl.program_id(1) + 1) * 1.0)


@triton.jit
def columns(out, WIDTH: tl.constexpr):
    rows = tl.program_id(0) * 4 + tl.arange(0, 4)
    across = tl.program_id(1) * 4 + tl.arange(0, 4)
    tl.store(out + rows[:, None] * WIDTH + across[None, :], (tl.program_id(1) + 1) * 1.0)


@triton.jit
def blocks(out, STEP: tl.constexpr):
    descriptor = tl.make_tensor_descriptor(out, [64, 16], [16, 1], [16, 16])
    pid = tl.program_id(0)
    descriptor.store([pid * STEP, 0], tl.full((16, 16), 1.0, tl.float32) * (pid + 1))


@triton.jit
def block_pointers(out, STEP: tl.constexpr):
    pid = tl.program_id(0)
    block = tl.make_block_ptr(out, (64, 16), (16, 1), (pid * STEP, 0), (16, 16), (1, 0))
    tl.store(block, tl.full((16, 16), 1.0, tl.float32) * (pid + 1))


@triton.jit
def update_and_look(x, out):
    tl.atomic_add(x, 1)
    tl.debug_barrier()
    tl.store(out + tl.program_id(0), tl.load(x))


@triton.jit
def last_adds(x, parts, counter, out, N: tl.constexpr, SEM: tl.constexpr, EARLY: tl.constexpr):
    pid = tl.program_id(0)
    count = 0
    if EARLY:
        count = tl.atomic_add(counter, 1, sem=SEM)
    tl.store(parts + pid, tl.load(x + pid) * 2)
    if not EARLY:
        count = tl.atomic_add(counter, 1, sem=SEM)
    if count == N - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, N)), 0))


@triton.jit
def locked(out, lock, EACH: tl.constexpr, TAKE: tl.constexpr):
    lock += tl.program_id(0) * EACH
    while tl.atomic_cas(lock, 0, 1, sem=TAKE) == 1:
        pass
    tl.store(out, tl.load(out) + 1)
    tl.atomic_xchg(lock, 0)


@triton.jit
def flag(out):
    tl.store(out, 7)


@triton.jit
def first_writes(out, values):
    if tl.program_id(0) == 2:
        tl.store(out, 7)
    tl.store(values + tl.program_id(0), tl.load(out))


@triton.jit
def polled(out, flags):
    pid = tl.program_id(0)
    if pid == 0:
        tl.store(out, 5)
        tl.atomic_xchg(flags, 1)
    else:
        while tl.load(flags, volatile=True) == 0:
            pass
        tl.store(out + pid, tl.load(out))


@triton.jit
def rows_in_place(x):
    at = tl.program_id(0) * 16 + tl.arange(0, 16)
    row = tl.load(x + at)
    tl.debug_barrier()
    tl.store(x + at, row / (1 + tl.sum(row, 0)))


@triton.jit
def split(x, out, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.atomic_add(out + tl.arange(0, SIZE), tl.load(x + at))


@triton.jit
def bytes_of(x):
    pid = tl.program_id(0)
    tl.store(x.to(tl.pointer_type(tl.int8)) + pid, (pid + 1).to(tl.int8))


# The kernel, the number of programs, the arrays, the other arguments, and the elements named, or None without a race.
CASES = {
    "increment": (increment, (64,), [(1, F32)], (), "x[0]"),
    "increment f16": (increment, (4,), [(1, np.float16)], (), "x[0]"),
    "increment i64": (increment, (4,), [(1, np.int64)], (), "x[0]"),
    "overlap": (overlap, (3,), [(100, F32)], (28, 32), "x[28]"),
    "overlap u8": (overlap, (3,), [(100, np.uint8)], (28, 32), "x[28]"),
    "disjoint": (overlap, (3,), [(100, F32)], (32, 32), None),
    "overlap in masked lanes": (overlap, (3,), [(100, F32)], (50, 64), "x[50]"),
    "masked lanes": (overlap, (2,), [(101, F32)], (100, 128), None),
    "columns forgotten": (columns_forgotten, (2, 2), [((8, 8), F32)], (8,), "out[0]"),
    "columns": (columns, (2, 2), [((8, 8), F32)], (8,), None),
    "descriptors overlap": (blocks, (4,), [((64, 16), F32)], (8,), "out[128]"),
    "descriptors": (blocks, (4,), [((64, 16), F32)], (16,), None),
    "block pointers overlap": (block_pointers, (4,), [((64, 16), F32)], (8,), "out[128]"),
    "block pointers": (block_pointers, (4,), [((64, 16), F32)], (16,), None),
    "load after an atomic": (update_and_look, (4,), [(1, I32), (4, I32)], (), "x[0]"),
    "last adds": (last_adds, (8,), [(8, F32), (8, F32), (1, I32), (1, F32)], (8, "acq_rel", False), None),
    "relaxed counter": (last_adds, (8,), [(8, F32), (8, F32), (1, I32), (1, F32)], (8, "relaxed", False), "parts[0]"),
    "early counter": (last_adds, (8,), [(8, F32), (8, F32), (1, I32), (1, F32)], (8, "acq_rel", True), "parts[0]"),
    "lock": (locked, (8,), [(1, F32), (1, I32)], (0, "acq_rel"), None),
    "lock taken relaxed": (locked, (8,), [(1, F32), (1, I32)], (0, "relaxed"), None),
    "a lock each": (locked, (8,), [(1, F32), (8, I32)], (1, "acq_rel"), "out[0]"),
    "the same value": (flag, (8,), [(1, I32)], (), None),
    "one writes, all read": (first_writes, (4,), [(1, I32), (4, I32)], (), "out[0]"),
    "a flag is polled": (polled, (4,), [(4, I32), (1, I32)], (), None),
    "rows in place": (rows_in_place, (4,), [((4, 16), F32)], (), None),
    "split sum": (split, (8,), [((8, 16), F32), (16, F32)], (16,), None),
    "bytes of one element": (bytes_of, (4,), [(1, I32)], (), None),
}
CASE = pytest.mark.parametrize(("kernel", "grid", "shapes", "rest", "element"), CASES.values(), ids=CASES)


def filled(shapes):
    arrays = fresh(*shapes)
    arrays[0][...] = 0 if len(arrays) == 1 or arrays[0].size == 1 else 1
    return arrays


def check(run, element):
    """Run, and compare the race that is reported. Both places must be shown."""
    if element is None:
        run()
        return
    with pytest.raises(
        zg.KernelRuntimeError, match=r"^program \(.*\) (reads|writes|updates) .*program \(.*\) has"
    ) as e:
        run()
    assert f" {element}, which program" in e.value.summary
    assert e.value.location is not None
    ((text, place),) = e.value.related
    assert text in ("it is written here", "it is read here", "it is updated here")
    assert place.file == __file__ == e.value.location.file
    assert e.value.hint.startswith("programs run in any order")


@CASE
def test_strict_launches(kernel, grid, shapes, rest, element):
    check(lambda: kernel[grid](*filled(shapes), *rest, strict=True), element)


@CASE
def test_simulated(kernel, grid, shapes, rest, element):
    arrays = filled(shapes)
    compiled = kernel.compile(*map(pointer, arrays), *rest, target="sm_90a", num_warps=1)
    check(lambda: compiled.simulate[grid](*arrays), element)


def pointer(array):
    names = {"float32": zg.f32, "float16": zg.f16, "int32": zg.i32, "int64": zg.i64, "uint8": zg.u8}
    return zg.ptr(names[array.dtype.name])


@pytest.mark.parametrize(
    ("units", "programs", "values", "clash"),
    [
        ([2, 2], [0, 1], [5, 5], None),
        ([2, 2], [0, 1], [5, 6], "program (0, 0, 0) writes x[2], which program (1, 0, 0) has written"),
        ([2, 2], [1, 1], [5, 6], None),
        ([2, 3], [0, 1], [5, 6], None),
        (
            [3, 2, 3, 2],
            [0, 4, 0, 5],
            [1, 7, 2, 8],
            "program (0, 1, 0) writes x[2], which program (1, 1, 0) has written",
        ),
    ],
)
def test_programs_that_store_at_once(units, programs, values, clash):
    """Only different values of different programs race."""
    region = Region([np.zeros(4, I32)])
    region.names = ["x"]
    races = Races((4, 2, 1), lambda place: None, zg.KernelRuntimeError)
    bits = np.array([values, [0] * len(values)])
    arguments = region, np.array(units), np.array(programs), WRITE, None
    with contextlib.nullcontext() if clash is None else pytest.raises(zg.KernelRuntimeError, match=re.escape(clash)):
        races.note(*arguments, size=4, bits=lambda: bits)


def test_a_later_store_of_another_program_races_if_it_changes_memory():
    region = Region([np.zeros(4, I32)])
    region.names = ["x"]
    races = Races((4, 2, 1), lambda place: None, zg.KernelRuntimeError)
    for program, *bits in ((3, [9], [0]), (2, [9], [9]), (2, [8], [9])):
        races.note(region, np.array([2]), np.array([program]), WRITE, None, size=4, bits=partial(np.array, bits))
    message = "program (1, 0, 0) writes x[2], which program (2, 0, 0) has written"
    with pytest.raises(zg.KernelRuntimeError, match=re.escape(message)):
        races.note(region, np.array([2]), np.array([1]), WRITE, None, size=4, bits=lambda: np.array([[9], [8]]))


def test_other_launches_do_not_look_for_races():
    x = np.zeros(1, F32)
    increment[(64,)](x, interpret=True)
    assert x[0] == 64


def test_the_programs_before_the_race_have_done_their_work():
    x = np.zeros(9, F32)
    with pytest.raises(zg.KernelRuntimeError, match=r"^program \(1, 0, 0\) reads .*, which program \(0, 0, 0\) has"):
        chain[(8,)](x, x, strict=True)
    assert x.tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0]


def test_views_of_one_memory_are_named_together():
    x = np.zeros(9, F32)
    with pytest.raises(zg.KernelRuntimeError, match=r"reads x\[2\] or y\[1\], which"):
        chain[(4,)](x, x[1:], strict=True)  # y + 1 is x + 2.
    with pytest.raises(zg.KernelRuntimeError, match=r"reads x\[1\] or y\[1\], which"):
        chain[(2,)](x.view(np.uint8)[4:12], x, strict=True)


def test_reads_of_a_later_batch_meet_the_writes_of_an_earlier_one():
    @triton.jit
    def ahead(x, out, SIZE: tl.constexpr):
        pid = tl.program_id(0)
        at = tl.arange(0, SIZE)
        tl.store(x + pid, pid)
        tl.store(out + pid * SIZE + at, tl.load(x + 2000 + at * 0))

    with pytest.raises(zg.KernelRuntimeError, match=r"program \(2000, 0, 0\) writes x\[2000\], which program"):
        ahead[(2048,)](np.zeros(2048, I32), np.zeros(2048 * 512, I32), 512, strict=True)


def test_triton_c_and_zg_run():
    kernel = zg.triton_c("__global__ void f(float *x) { *x = *x + 1; }")
    with pytest.raises(zg.KernelRuntimeError, match=r"program \(1, 0, 0\) reads x\[0\]"):
        kernel[(4,)](np.zeros(1, F32), strict=True)
    with pytest.raises(zg.KernelRuntimeError, match=r"program \(1, 0, 0\) reads arg0\[0\]"):
        zg.run(kernel.triton(), 4, np.zeros(1, F32), strict=True)
