"""Libraries: their folder, their loader in a process without this package, and programs in C."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from shipped import GCC, compiled_c, needs_gcc, needs_linux

import ziggurat as zg
from ziggurat.backend.shipping.cpu_launcher import feature_bits
from ziggurat.cli import main
from ziggurat.codemodel.errors import LaunchError, TargetError
from ziggurat.shipping import build, tables
from ziggurat.shipping.families import families_of
from ziggurat.shipping.library import build as build_library
from ziggurat.shipping.variant import general, read_variants, write_variants

EXAMPLES = Path(__file__).parents[3] / "examples"
F32, N = zg.ptr(zg.f32), zg.i32


@zg.kernel
def scale(x, y, n, by: zg.f32 = 2.0, B: zg.constexpr = 64, pair: zg.constexpr = (1, 2)):
    i = zg.program_id(0) * B + zg.arange(0, B)
    zg.store(y + i, zg.load(x + i, i < n) * by, i < n)


@zg.kernel
def checked(x, n, B: zg.constexpr = 16):
    zg.device_assert(zg.load(x + zg.arange(0, B)) < n, "too large")
    total = zg.atomic_add(x, 1)
    zg.store(x + 1, total)


@zg.kernel
def greets(x):
    zg.device_print("hello", zg.load(x))


@pytest.fixture(autouse=True)
def a_cache_of_its_own(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ZIGGURAT_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "shipping-cache"))


def grid(meta):
    return (zg.cdiv(meta["n"], meta["B"]),)


def declared():
    A = zg.divisible(F32)
    return [
        zg.variant(scale, A, A, zg.divisible(N), zg.f32, 64, (1, 2), grid=grid),
        zg.variant(scale, F32, F32, N, zg.f32, 64, (1, 2), grid=grid),
        zg.variant(scale, zg.ptr(zg.f16), zg.ptr(zg.f16), N, zg.f32, 64, (1, 2)),
        zg.variant(checked, zg.ptr(zg.i32), N, 16),
    ]


def built(folder: Path, *targets: str, variants=None) -> str:
    """What the command says of a library of these variants, by a file of them."""
    file = folder / "launches.json"
    write_variants(file, variants or declared())
    return run_build(file, folder / "lib", *targets)


def run_build(source: Path, folder: Path, *targets: str, more: Sequence[str] = ()) -> str:
    """What the command says."""
    options = [*more, *(option for target in targets for option in ("--target", target))]
    with contextlib.redirect_stdout(io.StringIO()) as report:
        assert main(["build", str(source), "-o", str(folder), *options]) == 0
    return report.getvalue()


def loaded(folder: Path):
    """The loader of a folder, in this process."""
    spec = importlib.util.spec_from_file_location("lib_" + re.sub(r"\W", "_", str(folder)), folder / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A library for this machine's processor and two GPUs."""
    folder = tmp_path_factory.mktemp("library")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZIGGURAT_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "shipping-cache"))
        report = built(folder, "cpu", "sm_80", "sm_90a")
    assert "4 variant(s) in 3 function(s) for cpu, sm_80, sm_90a: 12 compiled, 0 from disk, 0 refused" in report
    return folder / "lib"


def test_a_second_build_compiles_nothing(library, tmp_path):
    assert "0 compiled, 12 from disk" in built(tmp_path, "cpu", "sm_80", "sm_90a")
    for file in ("lib.h", "lib.a", "lib.so", "manifest.json", "code/scale_f32-0.sm_90a.cubin"):
        assert (library / file).read_bytes() == (tmp_path / "lib" / file).read_bytes(), file


@pytest.mark.parametrize("manifest", [None, "{}", '{"format": "theirs 1"}', "no JSON"])
def test_a_folder_of_other_files_is_left_alone(tmp_path, manifest, capsys):
    file, folder = tmp_path / "launches.json", tmp_path / "lib"
    write_variants(file, declared()[:1])
    (folder / "code").mkdir(parents=True)
    own = {
        "__init__.py": "SECRET = 1\n",
        "code/mine.o": "mine",
        **({} if manifest is None else {"manifest.json": manifest}),
    }
    for name, text in own.items():
        (folder / name).write_text(text)
    assert main(["build", str(file), "-o", str(folder), "--target", "cpu"]) == 1
    message = capsys.readouterr().err
    assert f"'{folder}' has files that are no library's" in message and "name another folder by -o" in message
    with pytest.raises(LaunchError, match="no library's"):
        build_library(declared()[:1], "lib", ["cpu"]).library.write(folder)
    after = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert after == own


def test_a_library_is_written_over(tmp_path):
    folder = tmp_path / "lib"
    folder.mkdir()
    assert "1 variant(s)" in built(tmp_path, "cpu", variants=declared()[:1])  # An empty folder.
    (folder / "NOTES").write_text("mine")
    assert "2 variant(s)" in built(tmp_path, "cpu", variants=declared()[:2])
    assert len(json.loads((folder / "manifest.json").read_text())["families"][0]["variants"]) == 2
    assert (folder / "NOTES").read_text() == "mine"


def test_the_folder(library):
    names = {path.name for path in library.iterdir()}
    assert names >= {"__init__.py", "manifest.json", "lib.h", "lib.a", "lib.so", "code"}
    codes = {path.name for path in (library / "code").iterdir()}
    assert len(codes) == 12 and {"scale_f32-1.cpu.o", "scale_f16-0.sm_80.cubin", "checked-0.sm_90a.cubin"} <= codes
    assert (library / "code/scale_f32-0.sm_80.cubin").read_bytes().startswith(b"\x7fELF")
    manifest = json.loads((library / "manifest.json").read_text())
    first = manifest["families"][0]
    assert first["function"] == "scale_f32" and first["variants"][0]["known"][2] == {"divisor": 16, "is_one": False}


def test_the_header(library):
    text = (library / "lib.h").read_text()
    assert (
        "int scale_f32_run(const uint32_t grid[3], int64_t first, int64_t last, void *x, void *y, int32_t n, float by);"
        in text
    )
    assert "address of x % 16 = 0, address of y % 16 = 0, n % 16 = 0" in text and "variant: any arguments" in text
    assert re.search(
        r"scale_f32_grid\(uint32_t grid\[3\], int64_t n\) \{\n  grid\[0\] = .*ziggurat_cdiv\(n, 64\)", text
    )


@needs_linux
def test_launches_on_arrays(library):
    lib = loaded(library)
    x = np.arange(1000, dtype=np.float32)
    for n, start in ((992, 0), (999, 0), (500, 3)):  # By the first variant, and by the other.
        y = np.zeros_like(x)
        lib.scale[grid_of](x[start:], y[start:], n, by=1.5)
        assert np.array_equal(y[start : start + n], x[start : start + n] * 1.5) and not y[start + n :].any()
    lib.scale[grid_of](x, y, np.int32(10), np.float32(4), B=np.int64(64))
    assert np.array_equal(y[:10], x[:10] * 4)
    lib.scale[(16,)](x.astype(np.float16), half := np.zeros(1000, np.float16), 1000)
    assert np.array_equal(half, (x * 2).astype(np.float16))
    big = np.ones(1 << 20, np.float32)
    lib.set_threads(3)
    lib.scale[grid_of](big, out := np.zeros_like(big), len(big), 3.0)
    assert (out == 3).all() and "scale" in repr(lib.scale) and "scale" in dir(lib)


def grid_of(meta):
    return -(-meta["n"] // meta["B"]), 1


@needs_linux
def test_failures_of_programs(library):
    lib = loaded(library)
    x = np.zeros(16, np.int32)
    lib.checked[(5,)](x, 100)  # Programs that use what an atomic gives run in order.
    assert x[0] == 5 and x[1] == 4
    with pytest.raises(lib.LaunchError, match=r"a program of 'checked' fails a device-side assertion: too large"):
        lib.checked[(2,)](x, 3)
    with pytest.raises(AttributeError, match="no kernel 'other'; it has scale, checked"):
        lib.other


@needs_linux
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"x": np.zeros(64)}, "'x' must be an array of f32; got an array of f64"),
        ({"n": 1 << 40}, "'n' must be an integer that fits i32; got 1099511627776"),
        ({"n": 2.5}, "'n' must be an integer that fits i32; got 2.5"),
        ({"B": 32}, "'B' must be 64; got 32"),
        ({"pair": (1, 3)}, r"'pair' must be \[1, 2\]; got \(1, 3\)"),
        ({"by": "x"}, "'by' must be a number of type f32; got 'x'"),
    ],
)
def test_a_miss_names_the_argument(library, change, reason):
    lib = loaded(library)
    x = np.zeros(64, np.float32)
    arguments = {"x": x, "y": x, "n": 64, **change}
    with pytest.raises(lib.Miss, match=f"no variant of 'scale' for this launch: {reason}"):
        lib.scale[(1,)](**arguments)


def test_misses_of_what_is_known(tmp_path):
    """With a variant for divisible arguments alone."""
    built(tmp_path, "cpu", variants=declared()[:1])
    lib = loaded(tmp_path / "lib")
    x = np.zeros(68, np.float32)
    assert "'n' must be divisible by 16; got 63" in lib.scale.explain(x[:64], x, 63)
    assert "the address of 'x' must be divisible by 16; got 0x" in lib.scale.explain(x[1:], x, 64)
    assert "launched by scale" in lib.scale.explain(x, x, 64)
    with pytest.raises(TypeError, match="'scale' needs 'n'"):
        lib.scale[(1,)](x, x)
    with pytest.raises(TypeError, match="no parameter 'm'"):
        lib.scale[(1,)](x, x, 3, m=1)


@needs_linux
def test_read_only_arrays_are_read_alone(library):
    lib, x, y = loaded(library), np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    x.flags.writeable = False
    lib.scale[(1,)](x, y, 64)
    assert np.array_equal(y, 2 * x)
    with pytest.raises(lib.LaunchError, match="'scale' writes 'y', but its array is read-only"):
        lib.scale[(1,)](y, x, 64)
    assert np.array_equal(x, np.arange(64))


@needs_linux
def test_a_descriptor_of_a_read_only_array_is_not_written(tmp_path):
    @zg.kernel
    def copy(a, b):
        b.store([0, 0], a.load([0, 0]))

    type_ = zg.descriptor((8, 8), zg.f32)
    built(tmp_path, "cpu", variants=[zg.variant(copy, type_, type_)])
    lib, x, y = loaded(tmp_path / "lib"), np.ones((8, 8), np.float32), np.zeros((8, 8), np.float32)
    x.flags.writeable = False
    a, b = lib.TensorDescriptor(x), lib.TensorDescriptor(y)
    with pytest.raises(lib.LaunchError, match="'copy' writes 'b', but its array is read-only"):
        lib.copy[(1,)](b, a)
    lib.copy[(1,)](a, b)
    assert y.all()


@needs_linux
@pytest.mark.parametrize("grid", [(4.7,), 4.0, (True,), (), (1, 1, 1, 2), (-1,), "1", (1 << 31,), None])
def test_sizes_of_a_grid_are_integers(library, grid):
    lib, x = loaded(library), np.zeros(64, np.float32)
    for sizes in (grid, lambda meta: grid):
        with pytest.raises(lib.LaunchError, match="the grid of 'scale' must be one to three sizes, integers from 0"):
            lib.scale[sizes](x, x, 64)


@needs_linux
def test_grids_of_all_kinds(library):
    lib, x = loaded(library), np.ones(128, np.float32)
    for grid in (2, np.int64(2), [2], np.array([2, 1]), np.array(2), (2, 1, 1, 1)):
        y = np.zeros_like(x)
        lib.scale[grid](x, y, 128)
        assert (y == 2).all()


@needs_linux
def test_options_of_a_launch_are_those_of_a_variant(library, tmp_path):
    lib, x = loaded(library), np.zeros(64, np.float32)
    for name in ("num_warps", "num_stages"):
        with pytest.raises(lib.Miss, match=f"the option '{name}' must be left out; got 32"):
            lib.scale[(1,)](x, x, 64, **{name: 32})
    with pytest.raises(TypeError, match="'scale' has no parameter 'fast_math'"):
        lib.scale[(1,)](x, x, 64, fast_math=True)
    built(tmp_path, "cpu", variants=[zg.variant(scale, F32, F32, N, zg.f32, 64, (1, 2), num_warps=8)])
    other = loaded(tmp_path / "lib")
    assert "must be 8; got 4" in other.scale.explain(x, x, 64, num_warps=4)
    other.scale[(1,)](x, x, 64, num_warps=8)
    other.scale[(1,)](x, x, 64)


def test_a_general_library_takes_all(tmp_path):
    """The variant of any divisibility is compiled from the one that knows more."""
    write_variants(tmp_path / "launches.json", declared()[:1])
    report = run_build(tmp_path / "launches.json", tmp_path / "lib", "cpu", more=["--general"])
    assert "2 variant(s) in 1 function(s)" in report
    lib, x = loaded(tmp_path / "lib"), np.arange(70, dtype=np.float32)
    lib.scale[(2,)](x[1:], y := np.zeros(69, np.float32), 69)
    assert np.array_equal(y, 2 * x[1:])
    (tmp_path / "general.txt").write_text(general(declared()[0]).model)
    assert "divisib" not in (tmp_path / "general.txt").read_text() and "divisib" in declared()[0].model


def test_the_command_explains_a_miss(library, capsys):
    assert main(["explain-miss", str(library), "scale", "f32[64], f32[64], 63"]) == 0
    assert main(["explain-miss", str(library), "scale", "f32[64], f32[64], 63, 2.0, 128"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "'scale' is launched by scale_f32",
        "the library has no variant of 'scale' for this launch: 'B' must be 64; got 128",
    ]
    assert main(["explain-miss", str(library), "scales", "1"]) == 1
    assert main(["explain-miss", str(library.parent), "scale", "1"]) == 1
    assert "it has scale, checked" in capsys.readouterr().err


@needs_linux
def test_the_loader_starts_quickly(library):
    """It imports few modules of Python, and nothing of this package, llvmlite or NumPy."""
    program = (
        "import sys, array\n"
        f"sys.path.insert(0, {str(library.parent)!r})\nimport lib\n"
        "x, y = array.array('f', range(64)), array.array('f', bytes(256))\n"
        "lib.scale[(1,)](x, y, 64)\nassert y[3] == 6\nprint(*sys.modules)"
    )
    command = [sys.executable, "-S", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    modules = set(done.stdout.split())
    assert not modules & {"ziggurat", "llvmlite", "numpy", "attrs", "pathlib", "importlib.util"} and len(modules) < 80


@needs_gcc
@needs_linux
def test_a_program_in_c_launches_matmul_softmax_and_attention(tmp_path):
    run_build(EXAMPLES / "shipping.py", tmp_path / "kernels", "cpu")
    for library in ("kernels.a", "kernels.so"):
        command = [
            str(GCC),
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            "-o",
            "main",
            str(EXAMPLES / "shipping.c"),
        ]
        parts = ["-Ikernels", f"kernels/{library}", "-ldl", "-lm", "-Wl,-rpath,kernels"]
        subprocess.run([*command, *parts], cwd=tmp_path, check=True, timeout=120)
        done = subprocess.run(["./main", "cpu"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0 and "attention by" in done.stdout, done.stdout
    done = subprocess.run(["./main", "gpu"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "libcuda" in done.stdout or done.returncode == 0, done.stdout


def test_what_a_target_refuses_is_reported(tmp_path, capfd):
    report = built(tmp_path, "cpu", "sm_80", variants=[zg.variant(greets, zg.ptr(zg.i32)), *declared()[:1]])
    assert "no code of 'greets' for cpu: 'greets' prints" in report and "2 variant(s) in 2 function(s)" in report
    with pytest.raises(SystemExit):
        main(["build", "x.json"])
    other = tmp_path / "other.json"
    other.write_text("[]")
    for arguments, reason in (
        (["nothing.json", "-o", str(tmp_path / "x")], "has no variants that can be read"),
        ([str(other), "-o", str(tmp_path / "x")], "has no variants that can be read: it is no recording of launches"),
        (["no_such_package", "-o", str(tmp_path / "x")], "cannot be imported"),
        ([str(EXAMPLES / "vector_add.py"), "-o", str(tmp_path / "x")], "declares no variants of kernels"),
        ([str(tmp_path / "launches.json"), "-o", str(tmp_path / "a-b")], "must be a name of C; got 'a-b'"),
        ([str(tmp_path / "launches.json"), "-o", str(tmp_path / "x"), "--target", "sm_7"], "a target must be one of"),
    ):
        assert main(["build", *arguments]) == 1 and reason in capfd.readouterr().err


def test_kernels_of_one_name_are_told_apart(tmp_path):
    """By their places in sources; and variants of a kernel by what differs."""

    def other():
        @zg.kernel
        def scale(x, y, n, by: zg.f32 = 2.0, B: zg.constexpr = 64, pair: zg.constexpr = (1, 2)):
            zg.store(y, n)

        return scale

    variants = [
        zg.variant(scale, F32, F32, N, B=32), zg.variant(other(), F32, F32, N, B=32),
        zg.variant(scale, F32, F32, N, B=32, num_warps=8), zg.variant(scale, F32, F32, zg.i64, B=32),
        zg.variant(scale, F32, F32, N, B=64),
    ]  # fmt: skip
    families = families_of(variants)
    assert [family.function for family in families] == [
        "scale_i32_B32", "scale_i32_B32_warps8", "scale_i64_B32", "scale_i32_B64", "scale_2"
    ]  # fmt: skip
    assert [family.kernel for family in families] == ["scale"] * 4 + ["scale_2"]


def test_ptx_is_shipped_where_there_is_no_assembler(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "assembler", lambda: "")
    built(tmp_path, "sm_80", variants=declared()[1:2])
    assert b".target sm_80" in (tmp_path / "lib/code/scale-0.sm_80.ptx").read_bytes()
    assert b".target sm_80" in (tmp_path / "lib/lib.a").read_bytes()


@needs_linux
def test_code_for_other_processors(tmp_path):
    report = built(tmp_path, "x86-64-v3", variants=declared()[1:2])
    assert "for cpu: 1 compiled" in report
    if "avx2" in Path("/proc/cpuinfo").read_text():
        lib, x = loaded(tmp_path / "lib"), np.ones(100, np.float32)
        lib.scale[(2,)](x, x, 100, 4.0)
        assert (x == 4).all()
    with pytest.raises(LaunchError, match="a library is for one CPU; got cpu, x86-64-v3"):
        build_library(declared()[:1], "lib", ["cpu", "x86-64-v3"])


@needs_linux
def test_a_processor_without_the_features_is_refused(tmp_path, monkeypatch):
    assert feature_bits("+avx2,-avx512f,+avx512bf16") == 1 << 37
    monkeypatch.setattr(tables, "feature_bits", lambda features: 1 << 16)  # Of CPUID's word, this bit is reserved.
    built(tmp_path, "cpu", variants=declared()[1:2])
    lib, x = loaded(tmp_path / "lib"), np.ones(100, np.float32)
    with pytest.raises(lib.Miss, match="lacks instructions that 'scale' is compiled for"):
        lib.scale[(2,)](x, x, 100, 4.0)


def test_variants_survive_their_file(tmp_path):
    variants = declared()
    write_variants(tmp_path / "launches.json", variants)
    assert read_variants(tmp_path / "launches.json") == variants
    (tmp_path / "launches.json").write_text('{"format": "ziggurat launches 1", "variants": [{"kernel": 3}]}')
    with pytest.raises(LaunchError, match="this is no variant"):
        read_variants(tmp_path / "launches.json")


def test_declarations_that_do_not_fit():
    with pytest.raises(LaunchError, match="asks for 'm', which is no parameter"):
        zg.variant(scale, F32, F32, N, grid=lambda meta: (meta["m"],))
    with pytest.raises(LaunchError, match="no parameter 'target'"):
        zg.variant(scale, F32, F32, N, target="sm_80")
    with pytest.raises(Exception, match="must be a kernel"):
        zg.variant(grid, F32)


MAIN = """
#include "scale.h"
#include <stdio.h>
int main(void) {
  float x[100], y[100];
  uint32_t grid[3] = {2, 1, 1};
  for (int i = 0; i < 100; i++) x[i] = i;
  if (scale_run(grid, 1, 2, x, y, 100, 3.0f) || y[99] != 297) return 1;
  if (scale_run(grid, 0, 3, x, y, 100, 3.0f) != 1) return 2;
  puts(scale_error());
  return 0;
}
"""


@needs_gcc
@needs_linux
def test_a_compiled_kernel_is_saved(tmp_path):
    compiled = scale.compile(F32, F32, N, zg.f32, target="cpu")
    for end in ("o", "a", "so"):
        files = compiled.save(tmp_path / f"scale.{end}")
        assert files == [tmp_path / f"scale.{end}", tmp_path / "scale.h"]
        (tmp_path / "main.c").write_text(MAIN)
        command = [str(GCC), "-Wall", "-Werror", "-o", "main", "main.c", f"scale.{end}", "-ldl", "-lm", "-Wl,-rpath,."]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
        done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "must be in the grid" in done.stdout
    with pytest.raises(LaunchError, match=r"must end in \.o, \.a, \.so; got 'scale.cubin'"):
        compiled.save(tmp_path / "scale.cubin")


def test_a_kernel_that_prints_is_not_saved_for_a_cpu(tmp_path):
    @zg.kernel
    def loud(x):
        zg.device_print("x", zg.load(x))

    with pytest.raises(zg.TargetError, match="'loud' prints, which kernels of a library cannot do on a CPU"):
        loud.compile(zg.ptr(zg.f32), target="cpu").save(tmp_path / "loud.a")


def test_a_compiled_kernel_of_a_gpu_is_saved(tmp_path):
    compiled = scale.compile(F32, F32, N, zg.f32, target="sm_90a")
    code, header = compiled.save(tmp_path / "scale.ptx")
    assert code.read_text() == compiled.ptx and f'#define SCALE_SYMBOL "{compiled.symbol}"' in header.read_text()
    compiled.save(tmp_path / "scale.cubin")
    assert (tmp_path / "scale.cubin").read_bytes().startswith(b"\x7fELF")
    _, header = compiled.save(tmp_path / "scale.a")
    assert "int scale_launch(void *stream, const uint32_t grid[3]," in header.read_text()
    model = compiled.stages["gpu"]
    descriptor = zg.compile(model)
    assert descriptor.save(tmp_path / "again.ptx")
    with pytest.raises(LaunchError, match="cannot be written"):
        compiled.save(tmp_path / "missing" / "scale.ptx")


def test_a_descriptor_of_a_gpu_model_has_no_header(tmp_path):
    @zg.kernel
    def copy(a, b):
        b.store([0, 0], a.load([0, 0]))

    block = zg.divisible(zg.descriptor((16, 16), zg.f16))
    model = copy.compile(block, block, target="sm_80").stages["gpu"]
    with pytest.raises(TargetError, match="the parts alone"):
        zg.compile(model).save(tmp_path / "copy.a")


@zg.kernel
def meeting(arrived, x, out, SIZE: zg.constexpr):
    """Each program sums what all have stored, after a barrier of the grid."""
    i, count = zg.program_id(0), zg.num_programs(0)
    zg.store(x + i, i + 1)
    zg.atomic_add(arrived, 1)
    zg.wait(arrived, count, "ge", scope="gpu")
    at = zg.arange(0, SIZE)
    zg.store(out + i, zg.sum(zg.load(x + at, at < count, 0)))


@needs_linux
@needs_gcc
def test_programs_that_wait_for_later_ones(tmp_path, monkeypatch):
    pointer = zg.ptr(zg.i32)
    built(tmp_path, "cpu", variants=[zg.variant(meeting, pointer, pointer, pointer, 64)])
    library = loaded(tmp_path / "lib")
    for count in (1, 2, 40):
        arrived, x, out = np.zeros(1, np.int32), np.zeros(count, np.int32), np.zeros(count, np.int32)
        library.meeting[(count,)](arrived, x, out, SIZE=64)
        assert out.tolist() == [count * (count + 1) // 2] * count
    start, starts = threading.Thread.start, iter(range(100))

    def start_seldom(thread):
        if next(starts) % 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_seldom)
        out = np.zeros(8, np.int32)
        library.meeting[(8,)](np.zeros(1, np.int32), np.zeros(8, np.int32), out, SIZE=64)
    assert out.tolist() == [36] * 8
    source = """
#include "lib.h"
#include <stdio.h>
int main(void) {
  int arrived = 0, x[64] = {0}, out[64] = {0};
  uint32_t grid[3] = {3, 1, 1};
  int status = meeting_run(grid, 0, 3, &arrived, x, out);
  puts(status ? lib_error() : "done");
  return 0;
}
"""
    program = compiled_c(tmp_path / "lib", source, str(tmp_path / "lib" / "lib.a"), "-ldl", "-lm")
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    assert "a later one makes it, run each program of the grid by a call of its own, on a thread" in done.stdout
