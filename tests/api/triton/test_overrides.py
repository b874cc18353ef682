"""Options that replace stages of the compiler: `ir_override`, `ptx_options`; and options without effect."""

import warnings

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import LaunchError, TargetError, ZigguratWarning


def scale():
    @triton.jit
    def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n)
        tl.store(out_ptr + at, x * 2 + 1, mask=at < n)

    return scale


def made(**options):
    x = np.zeros(64, np.float32)
    return scale().warmup(x, x, 64, 32, grid=(2,), **options)


@pytest.mark.parametrize("stage", ["ttir", "ttgir", "llir", "ptx"])
def test_a_stage_is_that_of_a_file(stage, tmp_path):
    file = tmp_path / f"mine.{stage}"
    text = made().asm[stage]
    before, after = {"llir": ("0x4000000000000000", "0x4020000000000000"), "ptx": ("0f40000000", "0f41000000")}.get(
        stage, ("2.0", "8.0")
    )
    assert before in text
    file.write_text(text.replace(before, after))
    changed = made(ir_override=str(file))
    assert "0f41000000" in changed.asm["ptx"] and "0f41000000" not in made().asm["ptx"]
    assert changed.hash != made().hash and changed.asm["cubin"][:4] == b"\x7fELF"


def test_the_model_of_a_file_runs_on_arrays_in_memory(tmp_path):
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    file = tmp_path / "mine.ttir"
    file.write_text(made().asm["ttir"].replace("2.0", "8.0"))
    scale()[(2,)](x, out, 64, BLOCK=32, ir_override=str(file))
    assert out.tolist() == (8 * x + 1).tolist()
    for stage in ("ttgir", "ptx"):
        late = tmp_path / f"late.{stage}"
        late.write_text(made().asm[stage])
        with pytest.warns(ZigguratWarning, match=f"late.{stage} is not run on arrays in memory"):
            scale()[(2,)](x, out, 64, BLOCK=32, ir_override=str(late))
        assert out.tolist() == (2 * x + 1).tolist()


VECTOR = """
#blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [8], order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 8 : i32, ttg.target = "cuda:90"} {
  tt.func public @double(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32) attributes {noinline = false} {
    %at = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32, #blocked>
    %last = tt.splat %n : i32 -> tensor<32xi32, #blocked>
    %in = arith.cmpi slt, %at, %last : tensor<32xi32, #blocked>
    %base = tt.splat %x : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>, #blocked>
    %to = tt.addptr %base, %at : tensor<32x!tt.ptr<f32>, #blocked>, tensor<32xi32, #blocked>
    %old = tt.load %to, %in : tensor<32x!tt.ptr<f32>, #blocked>
    %new = arith.addf %old, %old : tensor<32xf32, #blocked>
    tt.store %to, %new, %in : tensor<32x!tt.ptr<f32>, #blocked>
    tt.return
  }
}
"""


def test_a_file_is_compiled(tmp_path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "double.ttgir"
    file.write_text(VECTOR)
    source = triton.compiler.IRSource(str(file))
    assert source.name == "@double" and source.signature == {0: "*fp32", 1: "i32"}
    assert source.parse_options() == {"num_ctas": 1, "num_warps": 8}
    compiled = triton.compile(str(file))
    assert compiled.metadata.name == "double" and compiled.metadata.num_warps == 8
    assert ".entry double(" in compiled.asm["ptx"] and compiled.src.attrs == {(0,): [["tt.divisibility", 16]]}
    x = np.arange(32, dtype=np.float32)
    compiled[(1,)](x, 20, interpret=True)
    assert x.tolist() == [*range(0, 40, 2), *range(20, 32)]
    with monkeypatch.context() as patch:
        patch.setattr("ziggurat.launches.host.run", None)  # Native code does not need it.
        compiled[(1,)](x, 20, num_warps=8)
    with pytest.raises(LaunchError, match="'double' has no option 'n'\n  hint: give its arguments by position"):
        compiled[(1,)](x, n=20)
    assert x.tolist() == [*range(0, 80, 4), *range(20, 32)]
    ttir = tmp_path / "double.ttir"
    ttir.write_text(compiled.asm["ttir"])
    assert triton.compile(ttir, options={"num_warps": 2}).metadata.num_warps == 2


def test_other_sources_are_refused(tmp_path):
    file = tmp_path / "mine.ptx"
    file.write_text(made().asm["ptx"])
    with pytest.raises(LaunchError, match=r"takes an ASTSource, or a file \.ttir or \.ttgir; got"):
        triton.compile(str(file))
    with pytest.raises(LaunchError, match="the signature of 'scale' must have a type for 'x_ptr'"):
        triton.compile(scale())


def test_lines_of_the_source_are_left_out(monkeypatch):
    assert ".loc" in made().asm["ptx"]
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    assert ".loc" not in made().asm["ptx"]


def test_triton_s_layouts_and_parameters_are_left_out(tmp_path):
    file = tmp_path / "theirs.ttgir"
    file.write_text("""
        #blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
        module attributes {"ttg.num-ctas" = 1 : i32, ttg.target = "cuda:90"} {
          tt.func public @scale(%x: !tt.ptr<f32>, %out: !tt.ptr<f32>, %n: i32) {
            %at = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32, #blocked>
            %c = arith.constant dense<8.0> : tensor<32xf32, #blocked>
            %base = tt.splat %out : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>, #blocked>
            %to = tt.addptr %base, %at : tensor<32x!tt.ptr<f32>, #blocked>, tensor<32xi32, #blocked>
            tt.store %to, %c : tensor<32x!tt.ptr<f32>, #blocked>
            tt.return
          }
        }""")
    assert "1090519040" in made(ir_override=file).asm["ptx"]  # The bits of 8.0.
    file.write_text("tt.func public @scale() { ttg.barrier }")
    with pytest.raises(LaunchError, match=r"ttg\.barrier is an op of Triton's GPU dialect"):
        made(ir_override=file)
    own = made().asm["ptx"]
    ptx = tmp_path / "theirs.ptx"
    ptx.write_text(own.replace("\n)", ",\n\t.param .u64 .ptr .global .align 1 scratch\n)", 1))
    assert "scratch" not in made(ir_override=ptx).asm["ptx"]


def test_the_memory_for_tensor_maps_stays_a_parameter(tmp_path):
    @triton.jit
    def product(x_ptr, out_ptr, n):
        x = tl.make_tensor_descriptor(x_ptr, [64, n], [n, 1], [64, 64])
        total = tl.zeros((64, 64), tl.float32)
        for at in range(0, n, 64):
            total += tl.dot(x.load([0, at]), x.load([0, at]).T)
        places = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)
        tl.store(out_ptr + places, total)

    def compiled(**options):
        x, out = np.zeros((64, 256), np.float16), np.zeros((64, 64), np.float32)
        return product.warmup(x, out, 256, grid=(1,), **options)

    file = tmp_path / "mine.ptx"
    file.write_text(compiled().asm["ptx"])
    again = compiled(ir_override=file)
    assert again.metadata.global_scratch_size > 0 and again.asm["ptx"].count(".param") == file.read_text().count(
        ".param"
    )


def test_what_is_no_stage_of_the_kernel_is_refused(tmp_path):
    file = tmp_path / "other.ttir"
    file.write_text("module { tt.func public @other(%n: i32) { tt.return } }")
    with pytest.raises(
        LaunchError, match=r"must have the parameters of 'scale', \(ptr<f32>, ptr<f32>, i32\); got \(i32\)"
    ):
        made(ir_override=file)
    with pytest.raises(LaunchError, match="the suffix of ir_override must be one of"):
        made(ir_override=tmp_path / "kernel.cubin")
    ptx = tmp_path / "other.ptx"
    ptx.write_text(".visible .entry other(.param .u32 n) { ret; }")
    with pytest.raises(LaunchError, match="must have 3 parameters; got 1"):
        made(ir_override=ptx)


def test_the_assembler_takes_options():
    kernel = made(ptx_options="--maxrregcount=16 -O1")
    assert kernel.asm["ptx"].lstrip().startswith("//") and kernel.asm["cubin"] != made().asm["cubin"]
    assert kernel.hash != made().hash and kernel.binary.code == kernel.asm["cubin"]
    with triton.knobs.nvidia.scope():
        triton.knobs.nvidia.ptxas_options = "--no-such-option"
        with pytest.raises(TargetError, match="no-such-option"):
            made(num_warps=2)


def test_products_and_sums_are_contracted():
    fused, plain = made(), made(enable_fp_fusion=False)
    assert "fma.rn.f32" in fused.asm["ptx"] and fused.metadata.enable_fp_fusion
    assert "fma" not in plain.asm["ptx"] and not plain.metadata.enable_fp_fusion
    assert "math.fma" in fused.asm["ttgir"] and "math.fma" not in fused.asm["ttir"]
    with triton.knobs.language.scope():
        triton.knobs.language.default_fp_fusion = False
        assert "fma" not in made().asm["ptx"]


def test_libraries():
    assert made(extern_libs={"libdevice": "/path/libdevice.10.bc"}).asm["ptx"]
    with pytest.raises(LaunchError, match="extern_libs can only name libdevice; got 'mine'"):
        made(extern_libs={"mine": "/mine.bc"})


def test_options_without_effect_are_told_once():
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        for _ in range(2):
            made(kpack=2, waves_per_eu=0, ptx_version=None)
    assert [str(record.message) for record in records if record.category is ZigguratWarning] == [
        "the option kpack=2 has no effect: it is an option for AMD's GPUs"
    ]


def test_stages_are_written_and_read_again(tmp_path, capfd):
    with triton.knobs.compilation.scope(), triton.knobs.cache.scope():
        triton.knobs.cache.home_dir, triton.knobs.compilation.dump_ir = str(tmp_path), True
        triton.knobs.cache.dir = str(tmp_path / "cache")
        plain = made()
        files = {file.suffix: file for file in (tmp_path / ".triton" / "dump" / plain.hash).iterdir()}
        assert sorted(files) == [".llir", ".ptx", ".ttgir", ".ttir"]
        mine = tmp_path / ".triton" / "override" / plain.hash / "scale.ttir"
        mine.parent.mkdir(parents=True)
        mine.write_text(files[".ttir"].read_text().replace("2.0", "8.0"))
        triton.knobs.compilation.override = True
        assert "0f41000000" in made().asm["ptx"] and "0f41000000" not in plain.asm["ptx"]


def test_models_are_printed_before_each_pass(tmp_path, capfd, monkeypatch):
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path)
        for name, num_warps, printed in (("other", 1, False), ("scale", 2, True), ("1", 4, True)):
            monkeypatch.setenv("MLIR_ENABLE_DUMP", name)
            made(num_warps=num_warps)
            output = capfd.readouterr().err
            assert ("IR Dump Before contract" in output and "tt.func public @scale" in output) is printed


def test_parameters_of_triton_s_own_are_left_out_where_nothing_reads_them(tmp_path):
    own, file = made().asm["ptx"], tmp_path / "mine.ptx"
    file.write_text(own.replace("\n)", ",\n\t.param .u64 first,\n\t.param .u64 second\n)", 1))
    assert made(ir_override=file).asm["ptx"].count(".param .u64") == own.count(".param .u64")
    for name in ("first", "second"):
        read = file.read_text().replace("\tret;", f"\tld.param.u64 %rd1, [{name}];\n\tret;", 1)
        assert read != file.read_text()
        other = tmp_path / f"{name}.ptx"
        other.write_text(read)
        with pytest.raises(LaunchError, match="must have 3 parameters; got 5"):
            made(ir_override=other)
    file.write_text("// nothing")
    with pytest.raises(LaunchError, match=r"must have a kernel, \.entry name"):
        made(ir_override=file)


def test_a_gpu_model_of_ours_in_a_file_is_that_model(tmp_path):
    """It is recognized by its first word, and only in files of its stage."""
    text, file = made().asm["ttgir"], tmp_path / "mine.ttgir"
    file.write_text("\n  " + text)
    assert str(made(ir_override=file).model) == text
    other = tmp_path / "mine.ttir"
    other.write_text(text)
    with pytest.raises(Exception) as error:
        made(ir_override=other)
    assert "gpu.module" in str(error.value)


def test_models_of_functions_keep_their_names_of_parameters(tmp_path):
    @triton.jit(noinline=True)
    def helper(value):
        return value * 2

    @triton.jit
    def calls(out_ptr, n):
        tl.store(out_ptr, helper(n))

    text = calls.warmup(np.zeros(1, np.int32), 5, grid=(1,)).asm["ttir"]
    private, _, own = text.partition("tt.func public")
    assert "%out_ptr" in own and "%arg" not in own and "%arg0" in private and "%out_ptr" not in private
    file = tmp_path / "mine.ttir"
    head, _, tail = private.partition("tt.func private")
    body = own[: own.rindex("}")]
    file.write_text(f"{head}tt.func public{body}tt.func private{tail}}}")  # The kernel comes first.
    turned = calls.warmup(np.zeros(1, np.int32), 5, grid=(1,), ir_override=file).asm["ttir"]
    own, _, private = turned.partition("tt.func public")[2].partition("tt.func private")
    assert "%out_ptr" in own and "%arg" not in own
    assert "%arg0" in (private or turned.partition("tt.func public")[0])


def test_the_first_stage_of_a_folder_counts(tmp_path):
    from ziggurat.triton.compiler.overrides import Override

    assert Override.in_folder(tmp_path, "scale") is None
    for stage in (".ptx", ".ttgir", ".ttir"):
        (tmp_path / f"scale{stage}").write_text(stage)
        assert Override.in_folder(tmp_path, "scale").text == stage
    assert Override.in_folder(tmp_path, "other") is None
    digests = {Override(path, text).digest for path in (tmp_path / "a.ttir", tmp_path / "b.ptx") for text in "xy"}
    assert len(digests) == 4
