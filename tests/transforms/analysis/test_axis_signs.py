"""Numbers that are negative though their parts are not: by a negative divisor, and where integers wrap around.

Code for GPUs, simulated, stores what the interpreter stores. The analysis claims no sign that a number may not have,
and keeps the widths of the usual orders of programs.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.reference.machine import Machine
from ziggurat.backend.reference.values import plain
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import SMALL, PtrType, TensorType, element_of, i32, shape_of, u8
from ziggurat.kernels.arguments import bind
from ziggurat.launches.inspected import compiled_for_launch
from ziggurat.transforms.analysis.axis_info import AxisInfo, analyse, infer, known
from ziggurat.transforms.tiles.prepare import prepare

P = zg.divisible(zg.ptr(zg.i32), 16)
TYPES = {"i16": (zg.i16, np.int16), "i32": (zg.i32, np.int32), "i64": (zg.i64, np.int64), "u32": (zg.u32, np.uint32)}


@zg.function
def divided(x, by):
    return zg.floordiv(x, by)


@zg.function
def negative(n, data, axis: zg.constexpr, WHICH: zg.constexpr):
    """A number that is negative for the arguments of the tests, as a program may compute it."""
    pid = zg.cast(zg.program_id(axis), zg.i32)
    if WHICH == "argument":
        number = n
    elif WHICH == "quotient":
        number = (pid + 8) // n
    elif WHICH == "by a helper":
        number = divided(pid + 8, n)
    elif WHICH == "by a product":
        number = (pid + 64) // (n * 8)
    elif WHICH == "by a constant":
        number = zg.floordiv(pid + 64, -8)
    elif WHICH == "by a load":
        number = (pid + 8) // zg.load(data)
    elif WHICH == "by a choice":
        number = (pid + 8) // zg.where(zg.less(pid, 9), n, 4)
    elif WHICH == "by a minimum":
        number = (pid + 8) // zg.minimum(n, 8)
    elif WHICH == "by a rest":
        number = (pid + 8) // zg.minimum(n - pid * 8, 8)
    elif WHICH == "larger of two":
        number = zg.maximum((pid + 8) // n, -3)
    elif WHICH == "smaller of two":
        number = zg.minimum((pid + 8) // n, 5)
    elif WHICH == "product":
        number = (pid + 3) * 1000000000
    elif WHICH == "sum":
        number = pid + 2147483000 + (pid + 1) * 1024
    elif WHICH == "difference":
        number = pid - 9
    elif WHICH == "shift":
        number = zg.shl(pid + 1, 31)
    elif WHICH == "shift by a number":
        number = zg.shl(pid + 1, 31 - pid)
    elif WHICH == "absolute":
        number = zg.abs(zg.load(data + 1))
    elif WHICH == "product of a load":
        number = zg.load(data + 2) * 65536
    elif WHICH == "counted":
        number = pid
        for i in range(0, n + 5):
            number += 1 << 29
    elif WHICH == "hashed":
        number = pid
        for i in range(0, n + 4):
            number = number * 31 + 1013904223
    elif WHICH == "while":
        number = pid + 1
        while number > 0:
            number = number * 4
    elif WHICH == "unsigned":
        number = zg.cast(zg.cast(n, zg.u64), zg.i64)
    elif WHICH == "index":
        number = 0
        for i in zg.range(0, 1 << 30, 1 << 29):
            number = zg.maximum(number, i) * 8 // 4 - 1
    else:
        zg.static_assert(False, "no such number")
    return number


NUMBERS = (
    "argument", "quotient", "by a helper", "by a product", "by a constant", "by a load", "by a choice", "by a minimum",
    "by a rest", "larger of two", "smaller of two", "product", "sum", "difference", "shift", "shift by a number",
    "absolute", "product of a load", "counted", "hashed", "while", "unsigned",
    "index",
)  # fmt: skip


@zg.kernel
def masked(x, data, out, n, N: zg.constexpr, AXIS: zg.constexpr, WHICH: zg.constexpr):
    j = zg.arange(0, N)
    tile = zg.add(negative(n, data, AXIS, WHICH) * 4, j)
    inside = zg.less(zg.floordiv(tile, 4), 0)
    zg.store(zg.add(out, j), zg.load(zg.add(x, j)), inside)


@zg.kernel
def scattered(x, data, out, n, N: zg.constexpr, AXIS: zg.constexpr, WHICH: zg.constexpr):
    j = zg.arange(0, N)
    tile = zg.add(negative(n, data, AXIS, WHICH) * N, j)
    zg.store(zg.add(out, zg.add(zg.mod(tile, N), N)), zg.load(zg.add(x, j)))


@zg.kernel
def gathered(x, data, out, n, N: zg.constexpr, AXIS: zg.constexpr, WHICH: zg.constexpr):
    j = zg.arange(0, N)
    tile = zg.add(negative(n, data, AXIS, WHICH) * N, j)
    zg.store(zg.add(out, j), zg.load(zg.add(x, zg.add(zg.mod(tile, 16), 32))))


@pytest.mark.parametrize("which", NUMBERS)
@pytest.mark.parametrize("kernel", [masked, scattered, gathered], ids=lambda kernel: kernel.name)
def test_compiled_code_stores_what_the_interpreter_stores(kernel: Any, which: str) -> None:
    x, data = np.arange(1, 513, dtype=np.int32), np.array([-2, -(1 << 31), 40000, 0], np.int32)
    types = (P, zg.ptr(zg.i32), P, zg.i32, 64, 1 if which == "quotient" else 0, which)
    model, code = kernel.triton(*types), kernel.compile(*types, target="sm_90a", num_warps=1)
    for n in (-1, -3):
        expected, values = np.zeros(256, np.int32), np.zeros(256, np.int32)
        zg.run(model, (1,), x, data, expected, n)
        code.simulate[(1,)](x, data, values, n)
        np.testing.assert_array_equal(values, expected, err_msg=f"n = {n}")


@zg.kernel
def decomposed(x, out, rows, columns, step, N: zg.constexpr):
    j = (zg.program_id(1) + 2) * (step * 16) + zg.arange(0, N)
    place = zg.mod(zg.floordiv(j, columns), rows) * columns + zg.mod(j, columns)
    zg.store(zg.add(out, zg.arange(0, N)), zg.load(zg.add(x, zg.mod(place, 256) + 256)))


@pytest.mark.parametrize("sizes", [(4, 16, 3), (48, 32, 2), (4, -16, 2), (-4, 16, 2), (4, 16, -3), (4, 16, 1 << 26)])
def test_small_arguments_of_a_launch_keep_wide_loads(sizes: tuple[int, int, int]) -> None:
    """Indices are divided by two arguments. A launch with others has code of its own, for numbers of any sign."""
    x, expected, values = np.arange(1, 513, dtype=np.int32), np.zeros(128, np.int32), np.zeros(128, np.int32)
    bound = bind(decomposed, (x, values, *sizes, 128), {})
    code, _, arguments = compiled_for_launch(decomposed, bound, {"target": "sm_90a", "num_warps": 1})
    assert ("ld.global.v4" in code.ptx) == all(0 <= size < SMALL for size in sizes)
    decomposed[(1,)](x, expected, *sizes, 128, interpret=True)
    code.simulate[(1,)](*arguments)
    np.testing.assert_array_equal(values, expected)
    if sizes[0] == 48:
        with pytest.raises(zg.LaunchError, match="'columns' of 'decomposed' is compiled for a number from 0 to 32767"):
            code.simulate[(1,)](*arguments[:3], -16, arguments[4])
        with pytest.raises(zg.LaunchError, match="a kernel that is saved must take any 'rows'"):
            code.save("decomposed.so")


# Numbers of other forms, for an argument each. The last ones are among the exceptions that the documents state.


@zg.function
def formed(n, m, FORM: zg.constexpr):
    pid = zg.program_id(0)
    if FORM == "bit to the sign":
        number = zg.shl(n & 1, 31)
    elif FORM == "bit to the sign by a number":
        number = zg.shl(n & 1, m)
    elif FORM == "bit of a comparison":
        number = zg.shl(zg.cast(n > 0, zg.i32), 31)
    elif FORM == "one to the sign":
        number = zg.shl(zg.minimum(n & 7, 1), m)
    elif FORM == "cdiv":
        number = zg.cdiv(n & 65535, 4) * (1 << 20)
    elif FORM == "rest by a cdiv":
        number = (n & 65535) % zg.cdiv(n & 65535, 2) * (1 << 17)
    elif FORM == "cdiv of a negative number":
        number = zg.cdiv(n, 4) * 64
    elif FORM == "quotient in plain operators":
        number = (n + 3) // 4 * 64
    elif FORM == "quotient in other operators":
        number = (4 + n - 1) // 4 * 64
    elif FORM == "no group, of size 1":
        number = (pid + 8) // zg.minimum(8 - (n & 15), 1) * 64
    elif FORM == "no group, of size 8":
        number = (pid + 8) // zg.minimum(64 - (n & 15) * 8, 8) * 64
    elif FORM == "no group, of negative rows":
        number = (pid + 8) // zg.minimum(-8 - (n & 1023) // 512 * 8, 8) * 64
    elif FORM == "steps of 1024":
        number = 0
        for i in range(0, 100):
            number += n & 1024
        number = number * 32768
    elif FORM == "steps of 1024 to an end":
        number = 0
        for i in range(0, 2048, n & 1024):
            number = i * (1 << 20)
    elif FORM == "constant end":
        number = 0
        for i in range(0, 3000):
            number = i * (1 << 20)
    elif FORM == "constant end of steps":
        number = 0
        for i in range(n & 1, 300000, 100):
            number = i * (1 << 13)
    elif FORM == "constant end of a sum":
        number = 0
        for i in range(0, 3000):
            number += 1 << 20
    elif FORM == "while":
        number = 0
        k = n & 8191
        while k > 0:
            number += 1 << 20
            k -= 1
    elif FORM == "assume":
        zg.assume(n >= 0)
        number = n * 2
    else:
        zg.static_assert(False, "no such number")
    return number


FORMS = {
    "bit to the sign": 1, "bit to the sign by a number": 1, "bit of a comparison": 1, "one to the sign": 5,
    "cdiv": 16000, "rest by a cdiv": 65535, "cdiv of a negative number": -200, "quotient in plain operators": -200,
    "quotient in other operators": -203, "no group, of size 1": 13, "no group, of size 8": 13,
    "no group, of negative rows": 1, "steps of 1024": 1024, "steps of 1024 to an end": 1024, "constant end": 0,
    "constant end of steps": 1, "constant end of a sum": 0,
}  # fmt: skip


@zg.kernel
def stored_at_rests(x, out, n, m, FORM: zg.constexpr, JOINED: zg.constexpr):
    j = zg.arange(0, 64)
    number = formed(n, m, FORM)
    tile = zg.or_(number, j) if JOINED else zg.add(number, j)
    zg.store(zg.add(out, zg.add(zg.mod(tile, 64), 64)), zg.load(zg.add(x, j)))


@pytest.mark.parametrize("type_", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_numbers_of_other_forms_have_no_sign(form: str, type_: bool) -> None:
    types = (P, P, zg.i32, zg.i32, form, type_)
    x, expected, values = np.arange(1, 513, dtype=np.int32), np.zeros(256, np.int32), np.zeros(256, np.int32)
    zg.run(stored_at_rests.triton(*types), 1, x, expected, FORMS[form], 31)
    stored_at_rests.compile(*types, target="sm_90a", num_warps=1).simulate[(1,)](x, values, FORMS[form], 31)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(("form", "n"), [("while", 2500), ("assume", (1 << 30) + 5)])
def test_strict_mode_checks_other_numbers_that_wrap_around(form: str, n: int) -> None:
    model = stored_at_rests.triton(P, P, zg.i32, zg.i32, form, False)
    x, out = np.arange(1, 513, dtype=np.int32), np.zeros(256, np.int32)
    zg.run(model, 1, x, out, 500, 0, strict=True)
    with pytest.raises(zg.KernelRuntimeError, match="an index must not wrap around on GPUs"):
        zg.run(model, 1, x, out, n, 0, strict=True)


@zg.kernel
def bit_of_a_width(x, out, n, T: zg.constexpr, BITS: zg.constexpr):
    j = zg.arange(0, 64)
    tile = zg.or_(zg.shl(zg.cast(n & 1, T), BITS - 1), zg.cast(j, T))
    zg.store(zg.add(out, zg.add(zg.cast(zg.mod(tile, 64), zg.i32), 64)), zg.load(zg.add(x, j)))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("kind", "iu")
def test_the_sign_bit_of_each_width_is_negative(kind: str, bits: int) -> None:
    types = (P, P, zg.i32, getattr(zg, f"{kind}{bits}"), bits)
    x, expected, values = np.arange(1, 513, dtype=np.int32), np.zeros(256, np.int32), np.zeros(256, np.int32)
    zg.run(bit_of_a_width.triton(*types), 1, x, expected, 1)
    bit_of_a_width.compile(*types, target="sm_90a", num_warps=1).simulate[(1,)](x, values, 1)
    np.testing.assert_array_equal(values, expected)


# Random programs: each fact of the analysis holds for the values of the interpreter.

_LARGE = (1000000000, 1 << 30, 1 << 24, 1 << 20, 3 << 28, 12345 * 64, 1 << 16, 1 << 15)
_SMALL = (1, 2, 4, 8, 16, 64, -1, -4, -16, -64, 3, 7, -8)


def program(random_: random.Random, type_: str) -> Callable[..., None]:
    """A function to trace that divides, multiplies and chooses among indices of a type."""
    scalar, dtype = TYPES[type_]
    limits = np.iinfo(dtype)

    def constant(of: tuple[int, ...] = _SMALL) -> int:
        number = random_.choice(of)
        return int(np.array(abs(number) if limits.min == 0 else number).astype(dtype)) or 4

    def combined(a: Any, b: Any) -> Any:
        by = zg.where(zg.equal(b, 0), constant(), b)
        count = random_.choice([1, 2, limits.bits // 2, limits.bits - 2])
        return random_.choice([
            lambda: zg.add(a, b), lambda: zg.sub(a, b), lambda: zg.mul(a, b), lambda: zg.mul(a, constant(_LARGE)),
            lambda: zg.mul(a, constant()), lambda: zg.floordiv(a, constant()), lambda: zg.mod(a, constant()),
            lambda: zg.minimum(a, b), lambda: zg.maximum(a, b), lambda: zg.shl(a, count), lambda: zg.shr(a, count),
            lambda: zg.abs(a), lambda: zg.where(zg.less(a, b), a, b), lambda: zg.floordiv(a, by),
            lambda: zg.mod(a, by), lambda: zg.and_(a, limits.bits - 1), lambda: zg.xor(a, b),
        ])()  # fmt: skip

    def body(data: Any, out: Any, n: Any, m: Any) -> None:
        row = zg.cast(zg.arange(0, 16), scalar)
        scalars = [zg.cast(zg.program_id(axis), scalar) for axis in (0, 1)]
        scalars += [n, m, zg.cast(zg.load(data), scalar), zg.cast(zg.num_programs(0), scalar)]
        tensors = [row, zg.add(row, abs(constant()))]
        for _ in range(random_.randint(1, 5)):
            scalars.append(combined(random_.choice(scalars), random_.choice(scalars)))
        for _ in range(random_.randint(1, 5)):
            tensors.append(combined(random_.choice(tensors[-2:]), random_.choice(scalars[-3:] + tensors)))
        total = zg.add(zg.mul(random_.choice(scalars), constant(_LARGE + _SMALL)), tensors[-1])
        by = random_.choice((4, 16, 64)) * (1 if limits.min == 0 else random_.choice((1, -1)))
        number = zg.add(zg.floordiv(total, by), zg.mod(total, by))
        zg.store(zg.add(out, zg.arange(0, 16)), zg.cast(number, zg.i32))

    return body


def assert_facts(value: Value, info: AxisInfo, contents: Any) -> None:
    shape = shape_of(value.type) or (1,)
    numbers = np.broadcast_to(contents.reshape(len(contents), *contents.shape[1:] or (1,)), (len(contents), *shape))
    numbers = numbers.astype(object)
    assert info.constant is None or np.all(numbers == info.constant)
    assert not info.nonnegative or np.all(numbers >= 0)
    assert np.all(np.abs(numbers) <= info.magnitude)
    for axis, size in enumerate(shape):
        lines = np.moveaxis(numbers, axis + 1, -1).reshape(-1, size)
        run, same = info.contiguity[axis], info.constancy[axis]
        assert np.all(lines.reshape(-1, run)[:, 0] % info.divisibility[axis] == 0)
        assert np.all(np.diff(lines.reshape(-1, info.aligned(axis)), axis=1) == 1)
        assert np.all(np.diff(lines.reshape(-1, same), axis=1) == 0)


@pytest.mark.parametrize("seed", range(40))
def test_facts_hold_for_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(seed)
    type_ = random_.choice([*TYPES])
    scalar, dtype = TYPES[type_]
    model = prepare(zg.trace(program(random_, type_), P, P, scalar, zg.divisible(scalar, 16)))
    (func,) = model.functions().values()
    facts, bind = analyse(func), Machine.bind

    def check(machine: Machine, value: Value, values: Any) -> None:
        element, info = element_of(value.type), facts.get((value, 0))
        contents = plain(values)
        if info is not None and not isinstance(element, PtrType) and np.asarray(contents).dtype.kind != "b":
            assert_facts(value, info, contents)
        bind(machine, value, values)

    monkeypatch.setattr(Machine, "bind", check)
    limits = np.iinfo(dtype)
    for _ in range(3):
        numbers = [random_.choice((-1, -3, -16, -64, 5, 16, 48, limits.max, limits.min)) for _ in range(2)]
        n, m = (int(np.clip(number, limits.min, limits.max)) for number in numbers)
        data = np.array([random_.choice((-1, -16, 5, 64, (1 << 31) - 1, -(1 << 31)))] * 16, np.int32)
        zg.run(model, (3, 2), data, np.zeros(16, np.int32), n, m // 16 * 16)


# The order of programs that matrix products have: signs that follow from a number of blocks.


@zg.function
def columns_of(n, SIZE: zg.constexpr, GROUP: zg.constexpr):
    return zg.cdiv(n, SIZE) * GROUP


@zg.kernel
def grouped(x, out, m, n, SIZE: zg.constexpr, GROUP: zg.constexpr, LOOP: zg.constexpr):
    rows, tile = zg.cdiv(m, SIZE), zg.program_id(0)
    while tile < rows * zg.cdiv(n, SIZE):
        group = tile // columns_of(n, SIZE, GROUP)
        height = zg.minimum(rows - group * GROUP, GROUP)
        column = tile % columns_of(n, SIZE, GROUP) // height
        at = zg.mod(zg.add(column * SIZE, zg.arange(0, SIZE)), n)
        zg.store(zg.add(out, zg.add(tile * SIZE, zg.arange(0, SIZE))), zg.load(zg.add(x, at)))
        tile += zg.num_programs(0) if LOOP else 1 << 20


@pytest.mark.parametrize("group", [1, 6, 8])
@pytest.mark.parametrize("loop", [False, True])
def test_a_grouped_order_keeps_wide_loads(group: int, loop: bool) -> None:
    types = (P, P, zg.i32, zg.divisible(zg.i32, 16), 64, group, loop)
    code = grouped.compile(*types, target="sm_90a", num_warps=1)
    assert re.search(r"ld\.global\S*\.v2", code.ptx), code.ptx
    x, expected, values = np.arange(192, dtype=np.int32), np.zeros(960, np.int32), np.zeros(960, np.int32)
    zg.run(grouped.triton(*types), 15, x, expected, 320, 192)
    code.simulate[(15,)](x, values, 320, 192)
    np.testing.assert_array_equal(values, expected)


def test_strict_mode_checks_what_is_taken_for_granted() -> None:
    x, out = np.arange(1024, dtype=np.int32), np.zeros(1024, np.int32)
    model = grouped.triton(P, P, zg.i32, zg.i32, 64, 8, True)
    zg.run(model, 16, x, out, 256, 256, strict=True)
    with pytest.raises(zg.KernelRuntimeError, match="a block's number must not be negative on GPUs; got -1") as error:
        zg.run(model, 1, x, out, -512, -512, strict=True)
    assert error.value.location is not None and error.value.hint


@zg.kernel
def far(x, out, SIZE: zg.constexpr):
    at = zg.mod(zg.add(zg.program_id(0) * SIZE, zg.arange(0, 16)), 16)
    zg.store(zg.add(out, zg.add(at, 16)), zg.load(zg.add(x, zg.arange(0, 16))))


def test_strict_mode_checks_that_indices_fit() -> None:
    x, out = np.arange(16, dtype=np.int32), np.zeros(32, np.int32)
    zg.run(far.triton(P, P, 1 << 20), 2048, x, out, strict=True)
    with pytest.raises(zg.KernelRuntimeError, match=r"program \(2048, 0, 0\): an index must not wrap around") as error:
        zg.run(far.triton(P, P, 1 << 20), 2049, x, out, strict=True)
    assert "zg.program_id(0) * SIZE" in str(error.value)
    zg.run(far.triton(P, P, 1 << 30), 8, x, out, strict=True)  # Code for GPUs does not take this to fit.


@zg.kernel
def turned(x, out, FORM: zg.constexpr):
    if FORM == "absolute":
        number = zg.abs(zg.program_id(0) * -(1 << 20))
    elif FORM == "unsigned":
        number = zg.cast(zg.cast(zg.program_id(0), zg.u32) * (1 << 20), zg.i32)
    else:
        number = zg.cast(zg.program_id(0) * 16, zg.i16)
    at = zg.mod(zg.or_(number, zg.cast(zg.arange(0, 16), number.dtype)), 16)
    zg.atomic_add(zg.add(out, zg.add(at, 16)), zg.load(zg.add(x, zg.arange(0, 16))))


@pytest.mark.parametrize("form", ["absolute", "unsigned", "narrower"])
def test_strict_mode_checks_numbers_that_become_negative_without_a_sum(form: str) -> None:
    x, out = np.arange(16, dtype=np.int32), np.zeros(32, np.int32)
    zg.run(turned.triton(P, P, form), 2048, x, out, strict=True)
    with pytest.raises(zg.KernelRuntimeError, match=r"program \(2048, 0, 0\): an index must not wrap around on GPUs"):
        zg.run(turned.triton(P, P, form), 2049, x, out, strict=True)


# Rules.


def fact(text: str) -> AxisInfo:
    """The facts about the last value of a function given as text."""
    func = parse(f'tt.func @"f" (%n : i32, %m : i32, %b : u8)void -> {{ {text} tt.return; }};')
    assert isinstance(func, tt.Func)
    return analyse(func)[(func.body.entry.ops[-2].result, 0)]


PID = "%0 : i32 = tt.get_program_id @0;"


@pytest.mark.parametrize(("number", "fits"), [(1 << 20, True), (1 << 21, False), (1000000000, False), (-4, False)])
def test_products_that_may_wrap_around_have_no_sign(number: int, fits: bool) -> None:
    text = f"{PID} %1 : i32 = arith.constant @{number}; %2 : i32 = arith.muli %0 %1;"
    assert fact(text).nonnegative is fits


@pytest.mark.parametrize(("by", "fits"), [("@8", True), ("@-8", False)])
def test_a_quotient_has_the_sign_of_a_constant_divisor(by: str, fits: bool) -> None:
    assert fact(f"{PID} %1 : i32 = arith.constant {by}; %2 : i32 = arith.divsi %0 %1;").nonnegative is fits
    assert fact(f"{PID} %1 : i32 = arith.constant {by}; %2 : i32 = arith.remsi %0 %1;").nonnegative


def test_only_a_quotient_that_is_rounded_up_is_a_number_of_blocks() -> None:
    for total, by, counts in ((63, 64, True), (62, 64, False), (64, 64, False), (-65, -64, False), (0, 1, False)):
        text = f"%1 : i32 = arith.constant @{total}; %2 : i32 = arith.addi %n %1; %3 : i32 = arith.constant @{by};"
        quotient = f"{text} %4 : i32 = arith.divsi %2 %3;"
        assert not fact(quotient).nonnegative and (fact(quotient).magnitude == 1024) is counts
        assert fact(f"{PID} {quotient} %5 : i32 = arith.divsi %0 %4;").nonnegative is counts


def index_of(start: int, stop: str, step: str) -> AxisInfo:
    """The facts about the index of a loop to `stop`, %n or a constant, whose step is a constant or a value."""
    func = parse(f"""tt.func @"f" (%n : i32)void -> {{
        %start : i32 = arith.constant @{start};
        %stop : i32 = {f"arith.constant @{stop}" if stop != "%n" else "tt.multiple_of %n @[64]"};
        %step : i32 = {f"arith.constant @{step}" if step.isdecimal() else step};
        scf.for %start %stop %step (%i : i32)void -> {{ tt.print %i @""; scf.yield; }};
        tt.return;
    }};""")
    assert isinstance(func, tt.Func)
    (loop,) = (op for op in func.walk() if isinstance(op, scf.For))
    return analyse(func)[(loop.body.parameters[0], 0)]


def test_an_index_is_as_large_as_a_usual_number_of_iterations_makes_it() -> None:
    """Unless the bounds are constants. A step of the number of programs counts as 1."""
    results = [
        index_of(*bounds)
        for bounds in (
            (0, "4096", "64"), (0, "%n", "64"), (96, "%n", "64"), (8192, "4096", "64"),
            (0, "%n", "tt.get_num_programs @0"), (-64, "%n", "64"),
        )
    ]  # fmt: skip
    assert [info.magnitude for info in results] == [4096, 64 * 1024, 96 + 64 * 1024, 8192, 1024, 64 + 64 * 1024]
    assert [info.everywhere for info in results] == [64, 64, 32, 64, 1, 64]
    assert [info.nonnegative for info in results] == [True, True, True, True, True, False]


def test_casts_change_signs() -> None:
    assert fact("%0 : i32 = arith.extui %b;").magnitude == 255
    signed = fact("%0 : i32 = arith.extsi %b;")
    assert not signed.nonnegative and signed.magnitude >= 128
    row = Builder.root([TensorType((4,), u8)]).parameters
    assert infer(arith.ExtSI(*row, type=TensorType((4,), i32)), [known(row[0].type, constant=200)]).constant is None
    assert infer(arith.ExtUI(*row, type=TensorType((4,), i32)), [known(row[0].type, constant=200)]).constant == 200
    assert fact(f"{PID} %1 : u32 = tt.bitcast %0; %2 : i32 = tt.bitcast %1;").nonnegative
    assert not fact("%1 : u32 = tt.bitcast %n; %2 : i32 = tt.bitcast %1;").nonnegative
    assert not fact("%1 : u64 = arith.extsi %n; %2 : i64 = arith.bitcast %1;").nonnegative
