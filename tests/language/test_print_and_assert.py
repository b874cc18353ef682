"""Python's `print` and `assert` in kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.simulator.simulate import simulate

MODES = [{}, {"interpret": True}]
LINES = """
def f(out, s, v, NAME: {0}.constexpr):
    print("s", s, "v", v)
    print(s, "{{{{then}}}}", "100%", "text:", v, NAME, s > 2, 0.1, True)
    print("x", {0}.arange(0, 2), "y:", s, "end")
    print("s:", s)
    print("end")
    print(v)
    {0}.store(out, 1)
"""
FIRST = "s 3 v 1.5\n3 {then} 100% text: 1.5 end True 0.1 True\n"
PRINTED = FIRST + "x [0 1] y: 3 end\n"
PRINTED_ON_GPU = f"""\
{FIRST}pid (0, 0, 0) idx (0) x: 0
pid (0, 0, 0) idx (1) x: 1
pid (0, 0, 0) idx () y: 3
pid (0, 0, 0) end
"""
# What Triton prints as well has its form.
LAST = {"zg": "s: 3\nend\n1.5\n", "tl": "pid (0, 0, 0) idx () s: 3\npid (0, 0, 0) end\n1.5\n"}


def printing(kernel: Any, prefix: str) -> Any:
    return kernel(LINES.format(prefix).replace("{{", "{").replace("}}", "}"), DECORATORS[prefix], tl=tl)


DECORATORS = {"zg": zg.kernel, "tl": triton.jit}


@pytest.mark.parametrize("prefix", DECORATORS)
@pytest.mark.parametrize("mode", [*MODES, {"strict": True}])
def test_a_print_of_scalars_is_a_line_as_python_writes_it(kernel, capsys, prefix: str, mode: Any):
    printing(kernel, prefix)[(1,)](np.zeros(1, np.int32), 3, 1.5, "end", **mode)
    assert capsys.readouterr().out == PRINTED + LAST[prefix]


@pytest.mark.parametrize("mode", MODES)
def test_each_program_prints_its_line(kernel, capsys, mode: Any):
    test_kernel = kernel("""
        def f(x):
            print("of", zg.program_id(0), zg.load(zg.add(x, zg.program_id(0))), zg.cast(zg.program_id(0), zg.u8))
    """)
    test_kernel[(3,)](np.array([0.1, -np.inf, np.nan], np.float32), **mode)
    assert capsys.readouterr().out == "of 0 0.1 0\nof 1 -inf 1\nof 2 nan 2\n"


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_one_thread_prints_the_line_on_a_gpu(kernel, capsys, target: str):
    compiled = printing(kernel, "zg").compile(zg.ptr(zg.i32), zg.i32, zg.f32, "end", target=target)
    arguments = [np.zeros(1, np.int32), np.int32(3), np.float32(1.5)]
    simulate(compiled.stages["llvm"], num_warps=4, shared=compiled.shared, arguments=arguments)
    assert capsys.readouterr().out == PRINTED_ON_GPU + LAST["zg"]


def test_a_line_of_many_values_on_a_gpu(kernel, capsys):
    """More than the buffer for the arguments of other prints holds."""
    test_kernel = kernel(f"def f(n):\n    print({', '.join(['n, n > 3'] * 12)})\n    print('n', n)")
    compiled = test_kernel.compile(zg.i64, target="sm_90a")
    simulate(compiled.stages["llvm"], num_warps=4, shared=compiled.shared, arguments=[np.int64(2**40)])
    assert capsys.readouterr().out == " ".join([f"{2**40} True"] * 12) + f"\nn {2**40}\n"


@pytest.mark.parametrize("prefix", DECORATORS)
def test_a_print_survives_text_and_mlir(kernel, capsys, prefix: str):
    model = printing(kernel, prefix).triton(zg.ptr(zg.i32), zg.i32, zg.f32, "end")
    assert zg.same_model(zg.parse(str(model)), model)
    zg.run(zg.from_mlir(zg.to_mlir(model)), 1, np.zeros(1, np.int32), 3, 1.5)
    assert capsys.readouterr().out == PRINTED + LAST[prefix]


@pytest.mark.parametrize("format_", ["n", "{} {}", "{", "}", "{0}", "{n}", "{}}"])
def test_the_format_of_a_line_fits_its_values(format_: str):
    with pytest.raises(zg.VerifyError, match="a whole text has a"):
        zg.verify(
            zg.parse(f"""module ()void -> {{
            tt.func @"f" (%0 : i32)void -> {{ tt.print %0 @"{format_}" @whole=true; tt.return; }};
            unreachable;
        }};""")
        )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("prefix", DECORATORS)
def test_tuples_and_separators_are_written_as_python_does(kernel, capsys, prefix: str, mode: Any):
    source = """
        def f(x, n):
            print("a", (n, "b", (n,)), (), "{}", sep=", ")
            print("a", n, "b", sep="")
            print("a", n, sep=": {")
            print(n, "x", end="")
            print(n, end=" {%}\\n")
            print(sep=None, end=None)
    """
    kernel(source, DECORATORS[prefix], tl=tl)[(1,)](np.zeros(1, np.int32), 3, **mode)
    assert capsys.readouterr().out == "a, (3, 'b', (3,)), (), {}\na3b\na: {3\n3 x3 {%}\n\n"


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_gpu_writes_the_end_of_a_text(kernel, capsys, target: str):
    test_kernel = kernel("""
        def f(n):
            print("a", n, end="%; ")
            print("{b", n)
            print("{c", zg.arange(0, 2), sep="} ", end=" ")
    """)
    compiled = test_kernel.compile(zg.i32, target=target)
    simulate(compiled.stages["llvm"], num_warps=4, shared=compiled.shared, arguments=[np.int32(3)])
    lines = [f"pid (0, 0, 0) idx ({n}) {{c}}: {n}\n" for n in range(2)]
    assert capsys.readouterr().out == "a 3%; {b 3\n" + "".join(lines)


@pytest.mark.parametrize(("call", "message"), [
    ("print('a', (n, zg.f32))", "must take strings, numbers, pointers and tuples of them; got the type zg.f32"),
    ("print('a', sep=n)", "must take a constant string as its 'sep'; got i32"),
    ("print('a', sep=1)", "must take a constant string as its 'sep'; got the constant 1"),
    ("print('a', end=n)", "must take a constant string as its 'end'; got i32"),
    ("print('a', flush=True)", "takes no 'flush' in a kernel"),
])  # fmt: skip
def test_prints_that_are_refused(kernel, call: str, message: str):
    with pytest.raises(zg.KernelTypeError, match=message):
        kernel(f"def f(out, n):\n    {call}").triton(zg.ptr(zg.i32), zg.i32)


@triton.jit
def of_triton(out, n, x):
    assert n * 1.0
    assert n, "message"
    assert out
    tl.device_assert(x, "a float")
    assert tl.arange(0, 4) * n + 1.0
    tl.store(out, 1)


@zg.kernel
def explicit(out, n, x):
    assert n * 1.0
    assert n, "message"
    assert x
    assert 1.5
    zg.store(out, 1)


@pytest.mark.parametrize(("launcher", "options"), [(of_triton, {"debug": True}), (explicit, {})])
@pytest.mark.parametrize("mode", MODES)
def test_a_condition_may_be_a_float(launcher: Any, options: Any, mode: Any):
    out = np.zeros(1, np.int32)
    launcher[(1,)](out, 2, float("nan"), **options, **mode)
    assert out[0] == 1
    for n, x in ((0, 1.0), (1, 0.0), (1, -0.0)):
        with pytest.raises(zg.KernelRuntimeError, match="device-side assertion failed"):
            launcher[(1,)](out, n, x, **options, **mode)


def test_conditions_and_messages_that_are_none(kernel):
    for line, words in (("assert n, 5", "must be a constant string"),):
        with pytest.raises(zg.KernelTypeError, match=words):
            kernel(f"def f(out, n):\n    {line}")[(1,)](np.zeros(1), 1)


def test_a_kernel_does_not_take_any_number_of_arguments():
    @triton.jit
    def many(out, *rest):
        tl.store(out, 1)

    for arguments in ((), (1,), (1, 2)):
        with pytest.raises(zg.KernelSyntaxError, match=r"cannot take any number of arguments, as many\(out"):
            many[(1,)](np.zeros(1), *arguments)
