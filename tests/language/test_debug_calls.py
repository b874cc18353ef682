"""Program indices, printing, assertions and hints for the compiler."""

from __future__ import annotations

import io

import numpy as np
import pytest

import ziggurat as zg


def test_programs_know_their_place(kernel, launch):
    place = kernel("""
    def place(out_ptr):
        x, y, z = zg.program_id(0), zg.program_id(1), zg.program_id(axis=2)
        a, b, c = zg.num_programs(0), zg.num_programs(1), zg.num_programs(2)
        here = ((z * b + y) * a + x) * 6
        zg.store(out_ptr + here, x)
        zg.store(out_ptr + here + 1, y)
        zg.store(out_ptr + here + 2, z)
        zg.store(out_ptr + here + 3, a)
        zg.store(out_ptr + here + 4, b)
        zg.store(out_ptr + here + 5, c)
    """)
    for grid in ((3,), (2, 3), (2, 1, 4), (1, 1, 1), (3, 2, 2)):
        a, b, c = (*grid, 1, 1)[:3]
        out = np.zeros((c, b, a, 6), np.int32)
        launch(place, grid, [out])
        for z, y, x in np.ndindex(c, b, a):
            assert out[z, y, x].tolist() == [x, y, z, a, b, c]


def test_grids_and_arguments(kernel):
    fill = kernel("""
    def fill(out_ptr, n, N: zg.constexpr = 4):
        at = zg.add(zg.program_id(0) * N, zg.arange(0, N))
        zg.store(zg.add(out_ptr, at), 1, zg.compare(at, n, K.LESS_THAN))
    """)
    for grid in (3, (3,), lambda constants: (zg.cdiv(10, constants["N"]),), lambda constants: 3):
        out = np.zeros(12, np.int8)
        fill[grid](out, 10)
        assert out.tolist() == [1] * 10 + [0] * 2
    fill[(0,)](out, 10)
    fill[(6,)](n=10, N=2, out_ptr=out)


def test_hints_are_checked_only_in_strict_mode(kernel, launch):
    hint = kernel("""
    def hint(x_ptr, n, limit):
        n = zg.multiple_of(n, 4)
        zg.assume(limit > 2)
        at = zg.max_contiguous(zg.multiple_of(zg.add(n, zg.arange(0, 8)), 4), 8)
        row = zg.max_constancy(zg.floordiv(at, 4), 4)
        x_ptr = zg.multiple_of(x_ptr, 2)
        zg.store(zg.add(x_ptr, at), row)
    """)
    x = np.zeros(16, np.int32)
    launch(hint, 1, [x, 4, 3])
    assert x[4:12].tolist() == [1] * 4 + [2] * 4
    hint[1](x, 4, 3, strict=True)
    launch(hint, 1, [x, 3, 1], host_only="hints that are wrong promise the compiler what does not hold")
    for n, limit, message in ((3, 3, "not a multiple of 4"), (4, 2, "assumption")):
        with pytest.raises(zg.KernelRuntimeError, match=message):
            hint[1](x, n, limit, strict=True)


def test_printing(kernel, capsys):
    speak = kernel("""
    def speak(x_ptr, n, N: zg.constexpr):
        zg.static_print("compiling for", N)
        x = zg.load(zg.add(x_ptr, zg.arange(0, N)))
        zg.device_print("hello")
        if zg.program_id(0) > 0:
            zg.device_print("x", x)
            zg.device_print("both", n, x.shape[0] + n)
            zg.device_print("bits", n, hex=True)
        print_nothing = 0
    """)
    x = np.array([1.5, -2], np.float32)
    speak[(2,)](x, -1, N=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "compiling for 2", "pid (0, 0, 0) hello", "pid (1, 0, 0) hello", "pid (1, 0, 0) idx (0) x: 1.5",
        "pid (1, 0, 0) idx (1) x: -2.0", "pid (1, 0, 0) idx () both: (operand 0) -1",
        "pid (1, 0, 0) idx () both: (operand 1) 1", "pid (1, 0, 0) idx () bits: 0xffffffff",
    ]  # fmt: skip
    speak[(1,)](x, -1, N=2)
    assert "compiling" not in capsys.readouterr().out


def test_inline_assembly_is_for_gpus(kernel):
    add = kernel("""
    def add(x_ptr):
        at = zg.arange(0, 4)
        x = zg.load(zg.add(x_ptr, at))
        code = "add.s32 $0, $2, $3; mov.b32 $1, $2;"
        y, z = zg.inline_asm_elementwise(code, "=r,=r,r,r", (x, 1), (zg.i32, zg.u32), True, 1)
        zg.store(zg.add(x_ptr, at), y)
    """)
    model = add.triton(zg.ptr(zg.i32))
    zg.verify(model)
    assert zg.same_model(zg.parse(str(model)), model)
    with pytest.raises(zg.KernelRuntimeError, match="inline assembly cannot be interpreted"):
        add[(1,)](np.zeros(4, np.int32))


def test_strict_shows_what_depends_on_masked_lanes(kernel):
    careless = kernel("""
    def careless(x_ptr, out_ptr, n):
        at = zg.arange(0, 4)
        zg.store(out_ptr, zg.sum(zg.load(zg.add(x_ptr, at), zg.compare(at, n, K.LESS_THAN))))
    """)
    x, out = np.ones(3, np.float32), np.zeros(1, np.float32)
    with pytest.raises(zg.KernelRuntimeError, match="stores an undefined element: the mask of this load of x_ptr"):
        careless[1](x, out, 3, strict=True)


def test_shape_and_dtype_of_values(kernel):
    tell = kernel("""
    def tell(x_ptr, n, N: zg.constexpr):
        x = zg.load(zg.add(x_ptr, zg.reshape(zg.arange(0, N * 2), (2, N))))
        zg.static_assert(x.shape == (2, N) and x.dtype == zg.f16 and n.dtype == zg.i32 and n.shape == ())
        zg.static_assert(len(x.shape) == 2 and x.shape[1] == N and x.numel == 2 * N)
    """)
    tell.triton(zg.ptr(zg.f16), zg.i32, 8)
    with pytest.raises(zg.ZigguratError, match="static assertion"):
        tell.triton(zg.ptr(zg.f32), zg.i32, 8)


def test_globaltimer_increases_and_smid_is_zero(kernel, launch):
    timed = kernel("""
    def timed(x_ptr, out_ptr):
        before = zg.globaltimer()
        x = zg.load(x_ptr + zg.program_id(0))
        zg.store(out_ptr + 2 * zg.program_id(0), x)
        after = zg.globaltimer()
        zg.store(out_ptr + 2 * zg.program_id(0) + 1, zg.where(after >= before, 0, 1) + zg.smid() * 0)
    """)
    out = np.full(6, -1, np.int32)
    launch(timed, (3,), [np.arange(3, dtype=np.int32), out])
    assert out.tolist() == [0, 0, 1, 0, 2, 0]
    clock = kernel("def clock(out_ptr):\n    zg.store(out_ptr, zg.globaltimer() - zg.globaltimer())")
    step = np.zeros(1, np.int64)
    clock[(1,)](step)
    assert step[0] < 0


@pytest.mark.parametrize("mode", [{}, {"interpret": True}])
def test_print_of_tensors_is_pythons(kernel, capsys, mode):
    printing = kernel("""
    def printing(n, x):
        print("n is:", zg.arange(0, 2), 2, "and", n)
        print(zg.full((2, 2), n, zg.i8), zg.arange(0, 2048))
        print("x", zg.load(x + zg.arange(0, 4)), x)
    """)
    x = np.array([0.1, np.nan, -np.inf, 1e10], np.float32)
    printing[(2,)](7, x, **mode)
    output = io.StringIO()
    for _ in range(2):
        print("n is:", np.arange(0, 2), 2, "and", 7, file=output)
        print(np.full((2, 2), 7, np.int8), np.arange(2048), file=output)
        print("x", x, hex(x.ctypes.data), file=output)
    assert capsys.readouterr().out == output.getvalue()
    for wrong in ("print(n, zg.f32)", "print((n, zg.f32))"):
        with pytest.raises(zg.KernelTypeError, match=r"print\(\) must take strings, numbers, pointers and tuples"):
            kernel(f"def wrong(n):\n    {wrong}\n").triton(zg.i32)


def test_assertions_with_a_mask(kernel):
    checked = kernel("""
    def checked(x_ptr, n, N: zg.constexpr = 8):
        at = zg.arange(0, N)
        zg.device_assert(zg.greater(zg.load(zg.add(x_ptr, at)), 0), "positive", mask=zg.less(at, n))
        zg.device_assert(n < 5, "few", n < 100)
    """)
    x = np.array([1, 2, 3, 4, -1, 0, 0, 0], np.float32)
    checked[(1,)](x, 4)
    with pytest.raises(zg.KernelRuntimeError, match="positive"):
        checked[(1,)](x, 5)
    with pytest.raises(zg.KernelRuntimeError, match="few"):
        checked[(1,)](np.ones(8, np.float32), 6)


def test_groups_of_programs(kernel):
    order = kernel("""
    def order(out_ptr, rows, columns, group):
        i, j = zg.swizzle2d(zg.program_id(0), zg.program_id(1), rows, columns, group)
        at = zg.add(zg.mul(zg.program_id(0), columns), zg.program_id(1))
        zg.store(zg.add(out_ptr, at), zg.add(zg.mul(i, columns), j))
    """)
    out = np.zeros((5, 4), np.int32)
    order[(5, 4)](out, 5, 4, 2)
    walked = [(i, j) for first in (0, 2, 4) for j in range(4) for i in range(first, min(first + 2, 5))]
    assert out.ravel().tolist() == [4 * i + j for i, j in walked]
