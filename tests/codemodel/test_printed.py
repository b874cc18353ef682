"""The texts that prints write, in Triton's form."""

import numpy as np

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.printed import before_value, hex_digits, index_widths, literals, printed_text


def test_lines():
    assert index_widths((1, 10, 11, 128)) == [1, 1, 2, 3]
    assert (before_value("", 0, 1), before_value("x", 1, 2)) == (": ", " x: (operand 1) ")
    assert [hex_digits(bits) for bits in (1, 8, 64)] == [1, 2, 16]
    text = printed_text((0, 1, 0), "x", [(np.full((4, 128), -1, np.int32), zg.i32)], False, False, False)
    lines = text.split("\n")
    assert len(lines) == 512 + 1 and lines[3 * 128 + 7] == "pid (0, 1, 0) idx (3,   7) x: -1"
    scalars = [(np.array(3, np.int64), zg.i64), (np.array(0.5), zg.f64), (np.array(16, np.int64), None)]
    assert printed_text((0, 1, 0), "{{{}}} {}, {}", scalars, False, False, True) == "{3} 0.5, 0x10"
    assert printed_text((0, 1, 0), "a", [], False, False, True) == "a"
    assert printed_text((0, 1, 0), "a", [], False, False, False) == "pid (0, 1, 0) a\n"
    assert literals("{{{}}} {}, {}") == ["{", "} ", ", ", ""] and literals("a") == ["a"]


@triton.jit
def shows(x_ptr, PREFIX: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.device_print(PREFIX, x)
    tl.device_print("bits", x, hex=True)
    tl.device_print("", x, x)
    print("end")


def test_prefixes_end_alike_in_every_spelling(capsys):
    x = np.arange(-8, 8, dtype=np.int16)
    for prefix in ("x", "x ", "x:", "x: "):
        shows[(1,)](x, prefix)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "pid (0, 0, 0) idx ( 0) x: -8" and lines[10] == "pid (0, 0, 0) idx (10) x: 2"
        assert lines[16] == "pid (0, 0, 0) idx ( 0) bits: 0xfff8"
        assert lines[32] == "pid (0, 0, 0) idx ( 0): (operand 0) -8" and lines[-1] == "pid (0, 0, 0) end"


@triton.jit
def shows_scalars(x_ptr, n):
    tl.device_print("f", tl.load(x_ptr))
    tl.device_print("h", tl.load(x_ptr).to(tl.float16), n > 3)
    print("end")


def test_triton_s_floats_are_those_of_c(capsys):
    for number, text in (
        (42, "42.000000"),
        (-1e-9, "-0.000000"),
        (np.inf, "inf"),
        (1e20, "100000002004087734272.000000"),
    ):
        shows_scalars[(1,)](np.array([number], np.float32), 5)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == f"pid (0, 0, 0) idx () f: {text}" and lines[2] == "pid (0, 0, 0) idx () h: (operand 1) 1"


def test_compiled_kernels_print_the_same_but_scalars_in_each_thread(capsys):
    x = np.arange(-8, 8, dtype=np.int16)
    shows[(1,)](x, "x")
    *interpreted, end = capsys.readouterr().out.splitlines()
    shows.compile(zg.ptr(zg.i16), "x", target="sm_90a").simulate[(1,)](x)
    assert sorted(capsys.readouterr().out.splitlines()) == sorted([*interpreted, *[end] * 128])
    x = np.array([-2.5], np.float32)
    shows_scalars[(1,)](x, 2)
    interpreted = capsys.readouterr().out.splitlines()
    shows_scalars.compile(zg.ptr(zg.f32), zg.i32, num_warps=2, target="sm_90a").simulate[(1,)](x, 2)
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(interpreted * 64)


@zg.kernel
def shows_digits(x_ptr):
    zg.device_print("f", zg.load(x_ptr))


def test_explicit_calls_print_all_digits_once(capsys):
    x = np.array([2**-10], np.float32)
    shows_digits[(1,)](x)
    shows_digits.compile(zg.ptr(zg.f32), target="sm_90a").simulate[(1,)](x)
    assert capsys.readouterr().out.splitlines() == ["pid (0, 0, 0) idx () f: 0.0009765625"] * 2
