"""`zg.triton_c`: macros, signatures, types, tuning, the command line."""

import math
import re
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.cuda.specialize import KernelParameter, described, kind_of
from ziggurat.c_kernels.parameters import check_type, macro_text
from ziggurat.cli import main
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.types import SCALARS
from ziggurat.transforms.attribution import constant

ADD = """
__global__ void add(int N, TYPE *a, TYPE *b, TYPE *c) {
  int off[SIZE] = get_program_id(0) * SIZE + (0 ... SIZE);
  *(c + off) = *(a + off) + *(b + off);
}
"""
ONES, TWOS = np.ones(64, np.float32), np.full(64, 2, np.float32)


def added(kernel: zg.Kernel, size: int = 32, **macros: object) -> np.ndarray:
    c = np.zeros(64, np.float32)
    kernel[lambda meta: (64 // meta["SIZE"],)](64, ONES, ONES, c, **macros)
    return c


def test_macros_are_parameters_by_keyword():
    kernel = zg.triton_c(ADD, TYPE="float", SIZE=32)
    assert str(kernel.signature) == "(N, a, b, c, *, TYPE='float', SIZE=32)"
    assert np.array_equal(added(kernel), TWOS)
    assert np.array_equal(added(kernel, SIZE=64), TWOS)
    open_ = zg.triton_c(ADD)
    assert str(open_.signature) == "(N, a, b, c, *, TYPE, SIZE)"
    assert np.array_equal(added(open_, TYPE=zg.f32, SIZE=16), TWOS)
    assert np.array_equal(added(open_, TYPE=np.dtype(np.float32), SIZE=np.int64(16)), TWOS)
    with pytest.raises(zg.LaunchError, match="'add' needs 'SIZE'"):
        open_[1](64, ONES, ONES, ONES, TYPE="float")
    with pytest.raises(zg.LaunchError, match="'add' has no parameter 'SIZ'"):
        added(kernel, SIZ=3)
    with pytest.raises(zg.KernelNameError, match="'add' uses 'SIZE', which is neither declared nor defined as a macro"):
        _ = zg.triton_c(ADD, TYPE="float").model
    with pytest.raises(zg.LaunchError, match="the macro 'TYPE' must be a number"):
        zg.triton_c(ADD, TYPE=object())


def test_a_macro_that_the_source_nowhere_names_gives_a_warning():
    with pytest.warns(zg.ZigguratWarning, match="'SIZ' is given, .*'add' does not name it: did you mean SIZE"):
        kernel = zg.triton_c(ADD, TYPE="float", SIZ=32)
    assert np.array_equal(added(kernel, SIZE=32), TWOS)
    with pytest.warns(zg.ZigguratWarning, match="'ZZ' is given, .* its macros are TYPE, SIZE"):
        zg.triton_c(ADD, TYPE="float", ZZ=[1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for before in ("#ifdef ZZ\n#endif\n", "#if 0\nint ZZ;\n#endif\n", "#define ONE ZZ\n"):
            assert np.array_equal(added(zg.triton_c(before + ADD, TYPE="float", SIZE=32, ZZ=3)), TWOS)


def test_a_macro_may_be_named_by_an_included_file_or_another_macro(tmp_path):
    file = tmp_path / "add.tc"
    (tmp_path / "types.h").write_text("#ifdef WIDE\n#define TYPE double\n#endif\n")
    file.write_text('#include "types.h"\n' + ADD)
    assert "f64" in str(zg.triton_c(file, SIZE="COUNT", COUNT=32, WIDE=1).triton())


def test_models_of_all_tiers():
    kernel = zg.triton_c(ADD, TYPE="half", SIZE=128)
    assert str(kernel.model).startswith('func @"add" (%0 : object, %1 : object, %2 : object, %3 : object)object')
    assert zg.same_model(zg.parse(str(kernel.model)), kernel.model)
    model = kernel.triton()
    assert model is kernel.triton(zg.i32, zg.ptr(zg.f16), zg.ptr(zg.f16), zg.ptr(zg.f16))
    zg.verify(model)
    assert zg.same_model(zg.parse(str(model)), model)
    assert "tensor<x64, f32>" in str(kernel.triton(TYPE="float", SIZE=64))
    assert kernel.module.functions().keys() == {"add"}
    assert "-> tensor<x128, f16>" in str(kernel.attribution())
    compiled = kernel.compile(num_warps=1)
    assert compiled.stages.keys() >= {"python", "triton", "gpu", "llvm", "ptx"}
    assert [argument.name for argument in compiled.arguments] == ["N", "a", "b", "c"]
    with pytest.raises(zg.LaunchError, match=r"'a' of 'add' is declared as half\*; got float\*"):
        kernel.triton(zg.i32, zg.ptr(zg.f32))


def test_the_model_is_that_of_explicit_calls():
    @zg.kernel
    def dot(A, B, C, K, lda, TM: zg.constexpr, TK: zg.constexpr):
        rm = zg.add(zg.program_id(0) * TM, zg.arange(0, TM))
        rk = zg.arange(0, TK)
        c = zg.zeros((TM, TM), zg.f32)
        pa = zg.add(zg.add(A, zg.expand(rk, 0)), zg.mul(zg.expand(rm, 1), lda))
        pb = zg.add(zg.add(B, zg.expand(rm, 0)), zg.mul(zg.expand(rk, 1), lda))
        for _ in range(0, K, TK):
            c = zg.dot(zg.load(pa), zg.load(pb), c)
            pa = zg.add(pa, TK)
            pb = zg.add(pb, TK * lda)
        zg.store(zg.add(zg.add(C, zg.expand(rm, 0)), zg.mul(zg.expand(rm, 1), lda)), zg.cast(c, zg.f16))

    source = """
    __global__ void dot(half *A, half *B, half *C, int K, int lda) {
      int rm[TM] = get_program_id(0) * TM + 0 ... TM, rk[TK] = 0 ... TK;
      float c[TM, TM] = 0;
      half *pa[TM, TK] = A + rk[newaxis, :] + rm[:, newaxis] * lda;
      half *pb[TK, TM] = B + rm[newaxis, :] + rk[:, newaxis] * lda;
      for (int k = 0; k < K; k += TK) {
        c += *pa @ *pb;
        pa += TK;
        pb += TK * lda;
      }
      *(C + rm[newaxis, :] + rm[:, newaxis] * lda) = c;
    }
    """
    half = zg.ptr(zg.f16)
    explicit = zg.simplify(dot.triton(half, half, half, zg.i32, zg.i32, 32, 16))

    def ops(model: zg.Op) -> list[str]:
        # Constants that are parameters stand at the entry, those of macros where they are used.
        return sorted(re.sub(r'@"dot_[^"]*"|%\d+', "", line).strip() for line in str(model).splitlines())

    for text in (source, source.replace("c += *pa @ *pb", "c = c + *pa @ *pb")):
        ours = zg.simplify(zg.triton_c(text, TM=32, TK=16).triton())
        assert ops(ours) == ops(explicit)


def test_lists_tune_over_all_combinations():
    kernel = zg.triton_c(ADD, TYPE="float", SIZE=[16, 32, 64], num_warps=[1, 4])
    assert isinstance(kernel, zg.TunedKernel)
    assert [str(config) for config in kernel.tuning.configs] == [
        f"SIZE={size}, num_warps={warps}" for size in (16, 32, 64) for warps in (1, 4)
    ]
    assert kernel.tuning.key == ("N",)
    assert np.array_equal(added(kernel), TWOS)
    assert "tensor<x16, f32>" in str(kernel.triton())
    both = zg.triton_c(ADD, SIZE=[16, 32])
    assert set(both.tuning.key) == {"N", "a", "b", "c", "TYPE"}
    assert np.array_equal(added(both, TYPE="float"), TWOS)
    with pytest.raises(zg.LaunchError, match="the list of 'SIZE' must have values"):
        zg.triton_c(ADD, SIZE=[])


def test_decorators_of_kernels_apply():
    tuned = zg.autotune(configs=[zg.Config({"SIZE": 32})], key=["N"])(zg.triton_c(ADD, TYPE="float"))
    assert np.array_equal(added(tuned), TWOS)
    computed = zg.heuristics({"SIZE": lambda arguments: arguments["N"] // 4})(zg.triton_c(ADD, TYPE="float"))
    c = np.zeros(64, np.float32)
    computed[4](64, ONES, ONES, c)
    assert np.array_equal(c, TWOS)


def test_conditions_of_the_preprocessor_make_optional_macros():
    source = """
    #ifndef SCALE
    #define SCALE 2
    #endif
    __global__ void f(float *x) {
    #if defined(TWICE) && TWICE
      *x *= SCALE;
    #endif
      *x *= SCALE;
    }
    """
    kernel = zg.triton_c(source)
    assert str(kernel.signature) == "(x, *, SCALE=None, TWICE=None)"
    for macros, expected in (({}, 2), ({"TWICE": True}, 4), ({"SCALE": 3}, 3), ({"SCALE": 3, "TWICE": 1}, 9)):
        x = np.ones(1, np.float32)
        kernel[1](x, **macros)
        assert x[0] == expected


def test_values_of_macros():
    for value, expected in ((-3, -3), (2.5, 2.5), (True, 1), ("1 + 1", 2), (-0.5, -0.5), (float("inf"), np.inf)):
        x = np.zeros(1, np.float32)
        zg.triton_c("__global__ void f(float *x) { *x = V; }", V=value)[1](x)
        assert x[0] == expected


def test_a_file_is_named_in_errors(tmp_path):
    file = tmp_path / "wrong.tc"
    (tmp_path / "types.h").write_text("#define TYPE float\n")
    file.write_text('#include "types.h"\n__global__ void f(TYPE *x) {\n  *x = sqroot(2);\n}\n')
    with pytest.raises(zg.KernelNameError) as error:
        _ = zg.triton_c(file).model
    assert f"at {file}:3:8\n      *x = sqroot(2);\n           ^^^^^^" in str(error.value)


def test_multiples_are_promised():
    source = "__global__ void f(float *x __aligned(16), float *y, int n __multipleof(24), int m) { *x = n; *y = m; }"
    model = zg.triton_c(source).triton()
    assert "@divisibility=[16, 1, 8, 1]" in str(model)
    model = zg.triton_c(source).triton(zg.divisible(zg.ptr(zg.f32), 4), n=zg.divisible(zg.i32, 32))
    assert "@divisibility=[16, 1, 32, 1]" in str(model)
    compiled = zg.triton_c(source).compile()
    with pytest.raises(zg.LaunchError, match="divisible by 8"):
        compiled.simulate[1](np.zeros(4, np.float32), np.zeros(4, np.float32), 12, 3)


def test_launches_on_a_gpu_pass_declared_floats():
    for declaration, value, expected in (
        (zg.f64, 0.1, zg.f64),
        (zg.f16, 0.1, zg.f16),
        (None, 0.1, zg.f32),
        (zg.f64, 3, zg.i32),
    ):
        parameter = KernelParameter("x", declared=declaration)
        assert described(value, kind_of(value, parameter, "f"), parameter).type == expected


def test_the_command_line(tmp_path, capsys):
    file = tmp_path / "add.tc"
    file.write_text(ADD)
    for stage, text in (
        ("python", '@"zg.arange"'), ("triton", "tensor<x128, f16>"), ("gpu", "tt.load"), ("llvm", "define"),
        ("ptx", "ld.global"), ("mlir", "tt.func"),
    ):  # fmt: skip
        assert main(["show", f"{file}:add", "-DTYPE=half", "-D", "SIZE=128", "--stage", stage, "--num-warps", "1"]) == 0
        assert text in capsys.readouterr().out
    assert main(["show", str(file), "i32, ptr<f32>", "-DTYPE=float", "-DSIZE=[32, 64]"]) == 0
    assert "tensor<x32, f32>" in capsys.readouterr().out
    arguments = "64, f32[64], f32[64], f32[64]"
    assert main(["simulate", f"{file}:add", arguments, "--grid", "2", "-DTYPE=float", "-DSIZE=32"]) == 0
    assert "no fault found" in capsys.readouterr().out
    assert main(["show", f"{file}:add", "-DTYPE=half"]) == 1
    assert "'add' uses 'SIZE'" in capsys.readouterr().err
    assert main(["show", f"{file}:other", "-DTYPE=half", "-DSIZE=4"]) == 1
    assert "there is no function 'other'" in capsys.readouterr().err
    python = tmp_path / "kernel.py"
    python.write_text("")
    assert main(["show", f"{python}:f", "-DTM=4"]) == 1
    assert "-D must go with a Triton-C source" in capsys.readouterr().err


def test_neither_parser_nor_preprocessor_is_imported_before_a_source_is_read(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import sys, ziggurat as zg
@zg.kernel
def f(x_ptr):
    zg.store(x_ptr, 1.0)
f.compile(zg.ptr(zg.f32))
assert not {"lark", "pcpp"} & set(sys.modules)
zg.triton_c
zg.triton_c("__global__ void f(float *x) { *x = 1; }")
assert {"lark", "pcpp"} <= set(sys.modules)
""")
    subprocess.run([sys.executable, str(program)], check=True)


def test_the_front_half_is_quick():
    """From the text to the Python model, warm; the limit is generous for a machine that does other work as well."""
    from triton_c_listings import macros_of_dot, source_of_pytriton

    from ziggurat.frontends.triton_c.reader import read_kernel

    macros = {**macros_of_dot(False, True), "TYPE": "float", "TM": "64", "TN": "64", "TK": "8"}
    source = source_of_pytriton()
    times = []
    for _ in range(8):
        start = time.process_time()
        read_kernel(source, "<dot>", macros)
        times.append(time.process_time() - start)
    assert min(times) < 0.08


def test_options_are_those_of_other_kernels():
    kernel = zg.triton_c(ADD, TYPE="float", SIZE=64)
    assert kernel.compile(num_warps=2).options == CompileOptions.of({"num_warps": 2})
    with pytest.raises(zg.LaunchError, match="nor is there such an option"):
        kernel.compile(warps=2)


def test_a_launch_shows_the_place_of_a_name_without_a_declaration():
    kernel = zg.triton_c("__global__ void f(float *x) {\n  float value = *x;\n  *x = val;\n}")
    with pytest.raises((zg.LaunchError, zg.KernelNameError), match="'val'") as error:
        kernel[1](np.zeros(1, np.float32))
    location = error.value.location
    assert location is not None and (location.line, location.column) == (3, 7)


def test_files_and_lists_in_the_wrong_place(tmp_path):
    with pytest.raises(zg.LaunchError, match=r"pathlib.Path\('soft.tc'\)"):
        zg.triton_c("soft.tc")
    with pytest.raises(zg.LaunchError, match="cannot read the file"):
        zg.triton_c(tmp_path / "soft.tc")
    with pytest.raises(zg.LaunchError, match=r"zg.triton_c\(source, SIZE=\[32, 64\]\)"):
        added(zg.triton_c(ADD, TYPE="float"), SIZE=[32, 64])


@pytest.mark.parametrize("fitting", [True, False])
@pytest.mark.parametrize(
    ("declared", "fits", "rest"),
    [
        # An integer of a launch is i32, i64 or u64, by its size; smaller and unsigned ones are converted.
        ("i8", ("i32", 3, True), ("i64", "u64", "f32", 1.5)),
        ("u16", ("i32", 3), ("i64", "u64", "f32")),
        ("i32", ("i32", 3, True), ("i64", "u64", "f32", 1.5)),
        ("u32", ("i32", "i64", "u64"), ("f32", 1.5)),
        ("i64", ("i32", "i64", "u64"), ("f32", 1.5)),
        ("u64", ("i32", "i64", "u64"), ("f32",)),
        ("f16", ("i32", "u64", "f16", "f32", 1.5, 3), ("f64", "bf16")),
        ("f32", ("i32", "u64", "f32", 1.5), ("f16", "f64")),
        ("f64", ("i64", "f64", 1.5), ("f32",)),
    ],
)
def test_types_of_arguments_for_a_declared_one(declared, fits, rest, fitting):
    for argument in fits if fitting else rest:
        type_ = SCALARS[argument] if isinstance(argument, str) else constant(argument)
        if fitting:
            check_type("k", "x", SCALARS[declared], type_)
        else:
            with pytest.raises(zg.LaunchError, match="'x' of 'k' is declared as"):
                check_type("k", "x", SCALARS[declared], type_)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1, "1"), (-1, "(-1)"), (True, "1"), (False, "0"), (0.0, "0.0"), (0.5, "0.5"), (-0.5, "(-0.5)"),
        (math.inf, "INFINITY"), (-math.inf, "(-INFINITY)"), (math.nan, "NAN"),
    ],
)  # fmt: skip
def test_texts_of_macros(value, text):
    assert macro_text("A", value) == text
