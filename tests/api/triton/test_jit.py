"""Launches of Triton's kernels: arguments, options, and what a launch gives back."""

import collections
import inspect
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import LaunchError, ZigguratWarning
from ziggurat.triton.runtime.jit import MockTensor

GLOBAL = tl.constexpr(3)


@triton.jit
def scale(x_ptr, out_ptr, n, stride, factor, BLOCK: tl.constexpr, bias_ptr=None):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * stride, mask=at < n)
    tl.store(out_ptr + at, x * factor, mask=at < n)


def arguments(n: int = 40):
    x = np.arange(n, dtype=np.float32)
    return x, np.zeros_like(x)


def test_a_launch_gives_a_compiled_kernel():
    x, out = arguments()
    compiled = scale[lambda meta: (triton.cdiv(40, meta["BLOCK"]),)](x, out, 40, 1, 2.0, BLOCK=32)
    assert out.tolist() == (2 * x).tolist()
    assert list(compiled.src.signature.values()) == [
        "*fp32",
        "*fp32",
        "i32",
        "constexpr",
        "fp32",
        "constexpr",
        "constexpr",
    ]
    assert compiled.src.constants == {(3,): 1, (5,): 32, (6,): None}
    assert (
        "tt.store" in compiled.asm["ttir"]
        and "gpu.module" in compiled.asm["ttgir"]
        and "define" in compiled.asm["llir"]
    )
    assert ".entry" in compiled.asm["ptx"] and compiled.asm["cubin"][:4] == b"\x7fELF"
    assert list(compiled.asm) == ["source", "ttir", "ttgir", "llir", "ptx", "cubin"] and "sass" in compiled.asm
    assert compiled.metadata.num_warps == 4 and compiled.metadata.shared == 0
    assert compiled.metadata.target == triton.backends.GPUTarget("cuda", 90, 32)
    assert compiled.n_regs > 0 and compiled.n_spills == 0 and len(compiled.hash) == 64
    with pytest.raises(KeyError, match="hsaco"):
        _ = compiled.asm["hsaco"]


@pytest.mark.parametrize(
    ("options", "values", "count"),
    [
        ({}, (1, 2, 16, 32, 2**31, 2**63), 5),  # constexpr, i32, i32 by 16, i64 by 16, u64 by 16
        ({"do_not_specialize": ["n"]}, (1, 2, 16), 1),
        ({"do_not_specialize": [1]}, (1, 2, 16), 1),
        ({"do_not_specialize_on_alignment": ["n"]}, (1, 2, 16), 2),
    ],
)
def test_specialization(options: dict[str, list[str]], values: tuple[int, ...], count: int):
    @triton.jit(**options)
    def keep(out_ptr, n):
        tl.store(out_ptr, n)

    out = np.zeros(1, np.uint64)
    for value in values:
        keep[(1,)](out, value)
        assert out[0] == value
    assert len(keep.device_caches[0][0]) == count


def test_annotations_declare_types():
    @triton.jit
    def keep(out_ptr, n: tl.int64, x: tl.float64, flag: tl.int1):
        tl.store(out_ptr, n + x + flag)

    compiled = keep[(1,)](np.zeros(1), 3, 1, True)
    assert list(compiled.src.signature.values()) == ["*fp64", "i64", "fp64", "u1"]


def test_tuples_functions_and_dtypes_are_arguments():
    Pair = collections.namedtuple("Pair", ["first", "second"])

    @triton.jit
    def twice(x):
        return x * 2

    @triton.jit
    def add(out_ptr, pair, function, dtype):
        tl.store(out_ptr, function(pair.first + pair.second).to(dtype))

    out = np.zeros(1, np.float32)
    add[(1,)](out, Pair(3, 1), twice, tl.float32)
    assert out[0] == 8


def test_options():
    x, out = arguments()
    eight = scale.warmup(x, out, 40, 1, 2.0, 32, grid=(2,), num_warps=8, num_ctas=1, enable_fp_fusion=False)
    assert eight.metadata.num_warps == 8 and not eight.metadata.enable_fp_fusion
    assert ".reqntid 256" in eight.asm["ptx"]
    with pytest.raises(KeyError, match=r"num_wraps was specified but unrecognised \(did you mean num_warps\?\)"):
        scale[(2,)](x, out, 40, 1, 2.0, 32, num_wraps=8)


def test_programs_are_one_cta_with_the_warps_of_all():
    x, out = arguments()
    with pytest.warns(
        ZigguratWarning, match="one CTA, not a cluster of num_ctas=2: its longest axis has only 32 elements"
    ):
        compiled = scale.warmup(x, out, 40, 1, 2.0, 32, grid=(2,), num_warps=4, num_ctas=2)
        assert ".reqntid 256" in compiled.stages.ptx
    assert compiled.metadata.num_warps == 8 and compiled.metadata.num_ctas == 1
    with warnings.catch_warnings():  # Programs on arrays in memory have no CTAs.
        warnings.simplefilter("error")
        scale[(2,)](x, out, 40, 1, 2.0, 32, num_ctas=16)
    assert out.tolist() == (2 * x).tolist()
    for wrong in (3, 32, "2"):
        with pytest.raises(LaunchError, match="num_ctas must be an integer, a power of two from 1 to 16; got"):
            scale[(2,)](x, out, 40, 1, 2.0, 32, num_ctas=wrong)


def test_warmup_takes_tensors_without_memory():
    x, out = arguments()
    compiled = scale.warmup(MockTensor(np.dtype(np.float32)), out, 40, 1, 2.0, 32, grid=(1,))
    assert scale.warmup(x, out, 40, 1, 2.0, 32, grid=(1,)) is compiled
    assert scale.run(x, out, 40, 1, 2.0, 32, grid=(2,), warmup=False) is compiled
    assert out[-1] == 78
    compiled[(2,)](x, out, 40, 1, 3.0, 32, None)
    assert out[-1] == 117


def test_an_empty_grid_runs_no_program():
    x, out = arguments()
    assert scale[(0,)](x, out, 40, 1, 2.0, 32) is not None
    scale[[2]](x, out, 40, 1, 2.0, 32)
    assert out[-1] == 78


def test_a_changed_global_is_refused():
    global GLOBAL

    @triton.jit
    def keep(out_ptr):
        tl.store(out_ptr, GLOBAL)

    out = np.zeros(1, np.int32)
    keep[(1,)](out)
    assert out[0] == 3
    GLOBAL = tl.constexpr(4)
    try:
        with pytest.raises(RuntimeError, match="Global variable GLOBAL has changed since we compiled this kernel"):
            keep[(1,)](out)
    finally:
        GLOBAL = tl.constexpr(3)


def test_a_kernel_is_not_called():
    with pytest.raises(RuntimeError, match=r"Cannot call @triton.jit'd outside of the scope of a kernel: .*grid"):
        scale(1, 2)


def test_the_source_can_be_replaced():
    @triton.jit
    def keep(out_ptr):
        tl.store(out_ptr, 1)

    out = np.zeros(1, np.int32)
    keep[(1,)](out)
    before, source = keep.cache_key, keep.src
    assert source.startswith("def keep(out_ptr):\n")
    keep._unsafe_update_src(source.replace("1)", "2)"))
    assert keep.cache_key != before
    keep[(1,)](out)
    assert out[0] == 2


def test_hooks_see_compilations_and_launches():
    calls: list[str] = []

    @triton.jit(launch_metadata=lambda grid, metadata, args: {"n": args["n"], "grid": grid})
    def keep(out_ptr, n):
        tl.store(out_ptr, n)

    def enter(metadata):
        calls.append(f"enter {metadata.get()['n']} {metadata.get()['grid']}")

    out = np.zeros(1, np.int32)
    triton.knobs.runtime.jit_cache_hook = lambda **arguments: calls.append(
        f"compile {arguments['fn'].name.split('.')[-1]}"
    )
    triton.knobs.runtime.launch_enter_hook.add(enter)
    keep.add_pre_run_hook(lambda *args, **kwargs: calls.append(f"before {args[1]}"))
    try:
        keep[(1,)](out, 5)
        keep[(1,)](out, 5)
    finally:
        triton.knobs.runtime.jit_cache_hook = None
        triton.knobs.runtime.launch_enter_hook.remove(enter)
    assert calls == ["before 5", "compile keep", "enter 5 (1,)", "before 5", "enter 5 (1,)"]
    assert not triton.knobs.watched


def test_what_was_compiled_is_compiled_again_from_its_record():
    calls: list[str] = []

    @triton.jit
    def negated(x):
        return -x

    @triton.jit
    def keep(out_ptr, n: tl.constexpr, text: tl.constexpr, change: tl.constexpr, pair, scale):
        tl.store(out_ptr, change(n + pair[0] + scale) if text == "a" else pair[1])

    triton.knobs.runtime.jit_cache_hook = lambda **arguments: calls.append(arguments["compile"]["specialization_data"])
    try:
        compiled = keep.warmup(np.zeros(1, np.float32), 5, "a", negated, (32, None), 0.5, grid=(1,), num_warps=2)
    finally:
        triton.knobs.runtime.jit_cache_hook = None
    keep.device_caches[0][0].clear()
    again = keep.preload(calls[0])
    assert again.hash == compiled.hash and again.signature == compiled.signature and again is not compiled
    with pytest.raises(RuntimeError, match="has a function for 'change' that this process does not know"):
        keep.preload(calls[0].replace("function ", "function 0"))
    with pytest.raises(RuntimeError, match="Specialization data is for"):
        scale.preload(calls[0])


def test_a_source_is_compiled_without_arguments():
    source = triton.compiler.ASTSource(
        scale,
        {"x_ptr": "*fp16", "out_ptr": "*fp16", "n": "i32", "stride": "i32", "factor": "fp32", "BLOCK": "constexpr"},
        {"BLOCK": 64, "bias_ptr": None},
        {(0,): [["tt.divisibility", 16]]},
    )
    compiled = triton.compile(source, target=triton.backends.GPUTarget("cuda", 90, 32), options={"num_warps": 1})
    assert compiled.metadata.num_warps == 1
    assert compiled.asm["ttir"].count("tt.divisibility = 16") == 1 and "tensor<64xf16>" in compiled.asm["ttir"]


def test_what_inductor_asks_for():
    x, out = arguments()
    compiled = scale.warmup(x, out, 40, 1, 2.0, 32, grid=(2,))
    compiled._init_handles()
    calls: list[str] = []
    compiled.run(
        2,
        1,
        1,
        0,
        compiled.function,
        compiled.packed_metadata,
        None,
        calls.append,
        calls.append,
        x,
        out,
        40,
        1,
        2.0,
        32,
    )
    assert out[-1] == 78 and calls == [None, None]
    backend = triton.backends.backends["cpu"]
    assert isinstance(triton.runtime.driver.active, backend.driver) is backend.driver.is_active()
    assert triton.compiler.make_backend(triton.backends.GPUTarget("cuda", 90, 32)).parse_options({}).num_warps == 4


def test_the_name_in_machine_code():
    @triton.jit(repr=lambda specialization: f"keep_{specialization.constants['WIDE']}_{specialization.signature['n']}")
    def keep(out_ptr, n, WIDE: tl.constexpr):
        tl.store(out_ptr, n)

    x, out = arguments()
    assert keep.warmup(np.zeros(1, np.int32), 5, 8, grid=(1,)).metadata.name == "keep_8_i32"
    assert scale.warmup(x, out, 40, 1, 2.0, 32, grid=(1,)).name == "scale"


def test_sizes_that_constants_give_are_integers():
    for size in (7, tl.constexpr(7)):
        for block in (2, tl.constexpr(2)):
            assert type(triton.cdiv(size, block)) is int and triton.cdiv(size, block) == 4
        assert type(triton.next_power_of_2(size)) is int and triton.next_power_of_2(size) == 8
    assert [triton.next_power_of_2(size) for size in (-3, 0, 1, 2, 3, 64, 65)] == [0, 0, 1, 2, 4, 64, 128]


def test_all_registers_are_256():
    x, out = arguments()
    compiled = scale[(2,)](x, out, 40, 1, 2.0, 32, maxnreg=256)
    assert compiled.options.maxnreg == 255 and out[-1] == 78
    with pytest.raises(LaunchError, match="maxnreg must be an integer from 1 to 255; got 0"):
        scale[(2,)](x, out, 40, 1, 2.0, 32, maxnreg=0)


def test_refused_options():
    x, out = arguments()
    with pytest.raises(AssertionError, match="num_warps must be a power of 2"):
        scale[(2,)](x, out, 40, 1, 2.0, 32, num_warps=3)

    @triton.jit(do_not_specialize=["N"])
    def keep(out_ptr, N: tl.constexpr):
        tl.store(out_ptr, N)

    with pytest.raises(triton.CompilationError, match="N marked as constexpr and listed in do_not_specialize"):
        keep[(1,)](np.zeros(1, np.int32), 5)


def test_assertions_are_compiled_for_debugging():
    @triton.jit
    def keep(out_ptr, n):
        tl.device_assert(n > 3, "n is small")
        tl.store(out_ptr, n)

    out = np.zeros(1, np.int32)
    plain, debugged = (keep.warmup(out, 5, grid=(1,), debug=debug) for debug in (False, True))
    assert "tt.assert" not in plain.asm["ttir"] and "tt.assert" in debugged.asm["ttir"]
    keep.debug = True
    assert keep.warmup(out, 5, grid=(1,)) is debugged


def test_warmup_in_threads():
    x, out = arguments()
    with ThreadPoolExecutor(1) as pool, triton.AsyncCompileMode(pool) as mode:
        first, second = (scale.warmup(x, out, 40, 1, 2.0, 32, grid=(1,), num_warps=2) for _ in range(2))
        assert first is second and len(mode.future_kernels) == 1
    assert first.result().metadata.num_warps == 2
    assert scale.warmup(x, out, 40, 1, 2.0, 32, grid=(1,), num_warps=2) is first.result()


def test_models_have_the_names_of_arguments():
    x, out = arguments()
    text = scale.warmup(x, out, 40, 1, 2.0, 32, grid=(1,)).asm["ttir"]
    assert "%x_ptr: !tt.ptr<f32>" in text and "%n: i32" in text and "%arg" not in text


def test_a_declared_integer_takes_the_low_bits():
    @triton.jit
    def keep(out_ptr, n: tl.int8):
        tl.store(out_ptr, n)

    out = np.zeros(1, np.int32)
    keep[(1,)](out, 255)
    assert out[0] == -1


def test_none_stands_for_the_default_of_an_option_of_an_access():
    @triton.jit
    def copy(x_ptr, out_ptr):
        at = tl.arange(0, 16)
        x = tl.load(x_ptr + at, boundary_check=None, padding_option=None, cache_modifier=None, eviction_policy=None)
        tl.store(out_ptr + at, x, boundary_check=None, cache_modifier=None, eviction_policy=None)

    x, out = arguments(16)
    copy[(1,)](x, out)
    assert out.tolist() == x.tolist()


def test_a_kernel_knows_its_number_of_warps():
    @triton.jit
    def fill(out_ptr):
        threads: tl.constexpr = tl.extra.cuda.num_threads()
        tl.store(out_ptr + tl.arange(0, threads), tl.extra.cuda.num_warps())

    for warps in (8, 2, 4):
        out = np.zeros(32 * 8, np.int32)
        compiled = fill[(1,)](out, num_warps=warps)
        assert out.tolist() == [warps] * 32 * warps + [0] * 32 * (8 - warps)
        assert compiled.metadata.num_warps == warps and f"end = {32 * warps} : i32" in compiled.asm["ttir"]
    assert fill.warmup(out, grid=(1,), num_warps=8).asm["ttir"] != compiled.asm["ttir"]


def test_a_model_serves_every_number_of_warps_unless_it_is_asked_for():
    x, out = arguments()
    first, second = (scale.warmup(x, out, 40, 1, 2.0, 32, grid=(1,), num_warps=warps) for warps in (2, 8))
    assert first.model is second.model


def test_an_integer_of_more_than_64_bits_is_an_overflow():
    @triton.jit
    def keep(out_ptr, n):
        tl.store(out_ptr, n)

    for number in (2**64, -(2**63) - 1):
        with pytest.raises(OverflowError, match="'n' of 'keep': an integer must fit in 64 bits") as error:
            keep[(1,)](np.zeros(1, np.uint64), number)
        assert isinstance(error.value, LaunchError)


def test_overflow_of_integers_is_an_assertion():
    @triton.jit
    def combine(x_ptr, y_ptr, out_ptr, OP: tl.constexpr):
        x, y = tl.load(x_ptr), tl.load(y_ptr)
        tl.store(out_ptr, x + y if OP == "add" else x - y if OP == "sub" else x * y)

    cases = [("add", 2**31 - 1, 1, np.int32), ("sub", -(2**31), 1, np.int32), ("mul", 2**16, 2**15, np.int32)]
    cases += [("add", 127, 1, np.int8), ("sub", 0, 1, np.uint16)]
    for op, a, b, dtype in cases:
        x, y, out = np.array([a], dtype), np.array([b], dtype), np.zeros(1, dtype)
        combine[(1,)](x, y, out, op)
        combine[(1,)](x, y, out, op, debug=True, sanitize_overflow=False)
        bits = 8 * out.itemsize
        with pytest.raises(RuntimeError, match=f"device-side assertion failed: int{bits} overflow detected .* {op}"):
            combine[(1,)](x, y, out, op, debug=True)
        y[0] = 0
        combine[(1,)](x, y, out, op, debug=True)
    wide = np.array([2**63 - 1])
    combine[(1,)](wide, wide, wide, "add", debug=True)
    compiled = combine.warmup(*[np.zeros(1, np.int32)] * 3, "add", grid=(1,), debug=True)
    assert "int32 overflow detected for operation add" in compiled.asm["ttir"] and ".entry" in compiled.asm["ptx"]


def test_assertions_hold_when_a_launch_is_debugged():
    @triton.jit
    def keep(out_ptr, n):
        tl.device_assert(n > 3, "n is small")
        tl.store(out_ptr, n)

    out = np.zeros(1, np.int32)
    keep[(1,)](out, 2)
    assert out[0] == 2
    with pytest.raises(RuntimeError, match="device-side assertion failed: n is small"):
        keep[(1,)](out, 2, debug=True)


def test_calls_of_a_function_under_noinline_stay():
    @triton.jit(noinline=True)
    def twice(x):
        return x * 2

    @triton.jit
    def keep(out_ptr, n):
        tl.store(out_ptr, twice(n))

    out = np.zeros(1, np.int32)
    compiled = keep[(1,)](out, 21)
    assert out[0] == 42 and "noinline = true" in compiled.asm["ttir"]
    twice.noinline = False
    keep.device_caches[0][0].clear()
    assert "noinline = true" not in keep[(1,)](out, 21).asm["ttir"]


COUNT = tl.constexpr(3)


@triton.jit
def counted():
    return COUNT


def test_globals_that_functions_share_do_not_differ():
    global COUNT

    @triton.jit
    def first(out_ptr):
        tl.store(out_ptr, counted())

    @triton.jit
    def second(out_ptr):
        tl.store(out_ptr, COUNT + counted())

    out = np.zeros(1, np.int32)
    first[(1,)](out)
    COUNT = tl.constexpr(4)
    try:
        with pytest.raises(
            RuntimeError, match=r"Global variable COUNT has value .*4.* when compiling second, but inner"
        ):
            second[(1,)](out)
    finally:
        COUNT = tl.constexpr(3)


def test_a_constant_of_an_enclosing_function_that_is_assigned_is_refused():
    size = tl.constexpr(42)

    @triton.jit
    def keep(out_ptr):
        tl.store(out_ptr, size)

    out = np.zeros(1, np.int32)
    keep[(1,)](out)
    size.value = 43
    with pytest.raises(RuntimeError, match=r"size has changed since we compiled this kernel, from constexpr\[42\] to"):
        keep[(1,)](out)


def test_a_name_is_a_global_until_the_function_assigns_it():
    @triton.jit
    def keep(out_ptr):
        n = COUNT  # noqa: F823
        COUNT = 1
        tl.store(out_ptr, n)

    out = np.zeros(1, np.int32)
    keep[(1,)](out)
    assert out[0] == 3


@triton.constexpr_function
def shift():
    return 3


@triton.constexpr_function
def from_elsewhere():
    return np.random.randint(3)


def test_functions_of_the_host_are_part_of_the_key():
    @triton.jit
    def keep(out_ptr):
        n: tl.constexpr = shift()
        tl.store(out_ptr, n)

    before, source = keep.cache_key, shift.src
    shift._unsafe_update_src(source.replace("3", "4"))
    assert keep.cache_key != before and shift() == 4
    shift._unsafe_update_src(source)
    assert keep.cache_key == before and shift() == 3
    with pytest.raises(RuntimeError, match="Unsupported function referenced"):
        _ = from_elsewhere.cache_key


@pytest.mark.parametrize("signature, constants, message, hint", [
    ({"x_ptr": "*fp32"}, {}, "the signature of 'scale' must have a type for 'out_ptr'", "scale(x_ptr, out_ptr"),
    ({"y": "i32"}, {}, "'scale' has no parameter 'y'", "it has 'x_ptr', 'out_ptr'"),
    ({}, {"BLOK": 64}, "'scale' has no parameter 'BLOK'", "did you mean BLOCK?"),
    ("*fp32, *fp32, i32, i32, i32, i32, i32, i32", {}, "'scale' has no parameter 7", "it has 7, which count from 0"),
    ({}, {-1: 64}, "'scale' has no parameter -1", "it has 7"),
    (["*fp32", "i32"], {}, "must be a dict of types by parameter; got ['*fp32', 'i32']", "ASTSource(kernel, {"),
    (
        dict.fromkeys(("x_ptr", "out_ptr"), "*fp32") | dict.fromkeys(("n", "stride", "factor"), "i32")
        | {"BLOCK": "constexpr"},
        {}, "'scale' needs a value of its constexpr 'BLOCK'", "ASTSource(…, {'BLOCK': …})",
    ),
])  # fmt: skip
def test_a_wrong_signature_is_refused(signature, constants, message: str, hint: str):
    with pytest.raises(LaunchError) as error:
        triton.compile(triton.compiler.ASTSource(scale, signature, constants))
    assert message in error.value.summary
    assert hint in error.value.hint


def test_errors_of_launches_name_what_a_triton_program_writes():
    x, out = arguments()
    with pytest.raises(LaunchError) as error:
        scale[(40 / 32,)](x, out, 40, 1, 2.0, 32)
    assert error.value.hint == "scale[(triton.cdiv(n, BLOCK),)](…)"
    with pytest.raises(LaunchError, match="'scale' needs 'BLOCK'") as error:
        scale[(1,)](x, out, 40, 1, 2.0)
    assert error.value.hint.startswith("scale[grid](x_ptr, out_ptr")


def test_stages_print_their_names():
    x, out = arguments()
    compiled = scale.warmup(x, out, 40, 1, 2.0, 32, grid=(2,))
    assert repr(compiled.asm) == "<stages of scale: source, ttir, ttgir, llir, ptx, cubin>"


def made_of_text(text, like):
    """A kernel as OpenAI's triton_kernels makes it: of a stub with a signature, whose source and code are replaced."""
    variables = {}
    exec(text, {"tl": tl}, variables)

    def stub():
        pass

    stub.__signature__ = inspect.signature(variables["fill"])
    kernel = triton.JITFunction(stub, do_not_specialize=["n"])
    kernel._unsafe_update_src(text)
    kernel.raw_src, kernel.starting_line_number = list(like.raw_src), like.starting_line_number
    kernel.file_name, kernel.def_file_line_number, kernel.def_file_col_number = "made.py", 5, 7
    kernel.fn.__code__ = kernel.fn.__code__.replace(co_filename=__file__, co_firstlineno=3)
    return kernel


def test_a_kernel_of_a_stub_has_the_signature_that_it_is_given():
    header = "def fill(out_ptr, n, BLOCK: tl.constexpr = 4):\n"
    text = f"{header}    at = tl.arange(0, BLOCK)\n    tl.store(out_ptr + at, n, at < 3)\n"
    kernel, out = made_of_text(text, scale), np.zeros(4, np.int32)
    kernel[(1,)](out, 7)
    assert out.tolist() == [7, 7, 7, 0] and kernel.constexprs == [2] and kernel.raw_src == scale.raw_src
    assert kernel.starting_line_number == scale.starting_line_number
    assert (kernel.file_name, kernel.def_file_line_number, kernel.def_file_col_number) == ("made.py", 5, 7)


def test_the_variables_that_a_function_can_read():
    around = tl.constexpr(5)

    @triton.jit
    def keep(out_ptr):
        tl.store(out_ptr, around)

    scope = keep.get_capture_scope()
    assert scope["around"] is around and scope["tl"] is tl and scope["GLOBAL"] is GLOBAL


@triton.jit
def documented(x_ptr, n: tl.constexpr = 2):
    """Nothing."""


def test_attributes_of_the_python_function():
    kernel, fn = documented, documented.fn
    for name in ("__doc__", "__name__", "__qualname__", "__globals__", "__module__"):
        assert getattr(kernel, name) is getattr(fn, name), name
    assert kernel.__globals__ is globals() and kernel.__doc__ == "Nothing."
    assert kernel._fn_name == f"{__name__}.documented" and kernel.repr(None) == kernel._fn_name
    assert kernel.parse().body[0].name == "documented" and kernel.kernel is None
    namespace = dict(kernel.__globals__)
    assert namespace["documented"] is kernel
    assert triton.constexpr_function(plain_add).__globals__ is globals()


def plain_add(x, y):
    return x + y


def test_attributes_that_pytorch_sets_while_it_pickles_a_kernel():
    @triton.jit
    def kernel(out_ptr, n: tl.constexpr):
        tl.store(out_ptr, n + GLOBAL)

    out = np.zeros(1, np.int32)
    kernel[(1,)](out, 2)
    names = ("fn", "__globals__", "used_global_vals", "repr")
    before = {name: getattr(kernel, name) for name in names}
    for name in (*names, "_hash_lock"):
        setattr(kernel, name, None)
    for name, value in before.items():
        setattr(kernel, name, value)
    assert {name: getattr(kernel, name) for name in names} == before
    assert kernel.used_global_vals == {("GLOBAL", id(globals())): (GLOBAL, globals())}
    kernel[(1,)](out, 4)
    assert out.tolist() == [7]


def test_a_launch_is_a_call_of_run(monkeypatch):
    """Tools look on by a `run` of their own: in a subclass, or in place of that of all kernels."""

    def add(x_ptr, n, BLOCK: tl.constexpr = 16):
        at = tl.arange(0, BLOCK)
        tl.store(x_ptr + at, tl.load(x_ptr + at) + n)

    calls, own = [], triton.JITFunction.run

    class Traced(triton.JITFunction):
        def run(self, *args, **kwargs):
            calls.append(kwargs.pop("warmup"))
            return super().run(*args, warmup=False, **kwargs)

    x, traced, plain = np.zeros(16, np.float32), Traced(add), triton.jit(add)
    for _ in range(3):
        traced[(1,)](x, 4)
        plain[(1,)](x, 4)
    assert calls == [False] * 3 and (x == 24).all()
    tuned = triton.autotune([triton.Config({"BLOCK": 16})], key=[])(plain)

    def run(self, *args, **kwargs):
        calls.append(self)
        return own(self, *args, **kwargs)

    monkeypatch.setattr(triton.JITFunction, "run", run)
    plain.add_pre_run_hook(lambda *args, **kwargs: calls.append("hook"))
    for launch in (plain[1,], plain[1,], tuned[1,]):
        calls.clear()
        launch(x, 4)
        assert calls == [plain, "hook"]
    assert (x == 36).all()
    monkeypatch.undo()
    plain[1,](x, 4)
    assert calls == [plain, "hook", "hook"] and (x == 40).all()


def one_stored(out):
    tl.store(out, 1.0)


def test_a_listener_of_compilations_is_told_of_hits(tmp_path):
    events = []
    with triton.knobs.cache.scope(), triton.knobs.compilation.scope():
        triton.knobs.cache.dir = str(tmp_path)
        triton.knobs.compilation.listener = lambda **event: events.append(event)
        for _ in range(2):
            source = triton.compiler.ASTSource(triton.jit(one_stored), {"out": "*fp32"})
            assert triton.compile(source, target=triton.backends.GPUTarget("cuda", 90, 32)).binary
    first, second = events
    assert not first["cache_hit"] and second["cache_hit"]
    assert [name for name, _ in first["times"].lowering_stages] == ["ptx"] and not second["times"].lowering_stages


def test_each_list_of_exceptions_is_checked_for_constants():
    for setting in ("do_not_specialize", "do_not_specialize_on_alignment"):

        @triton.jit(**{setting: ["N"]})
        def keep(out_ptr, N: tl.constexpr):
            tl.store(out_ptr, N)

        with pytest.raises(triton.CompilationError, match="N marked as constexpr and listed in do_not_specialize"):
            keep[(1,)](np.zeros(1, np.int32), 5)


def test_kernels_of_a_device_that_has_none():
    @triton.jit
    def keep(out_ptr):
        tl.store(out_ptr, 1)

    caches = keep.device_caches
    assert len(caches) == 0 and caches[0][0] == caches[3][0] == caches["cpu"][0] == {}
    compiled = keep.warmup(np.zeros(1, np.int32), grid=(1,))
    kernels, options, target, *rest = keep.device_caches[0]
    assert [*kernels.values()] == [compiled] == [*keep.device_caches["cpu"][0].values()] and options == {}
    assert target.backend == "cpu" and rest == [None, None] and keep.device_caches[3][0] == {}
    assert [(device, kernel) for _, device, kernel in keep.compilations()] == [(0, compiled)]
    keep.device_caches.clear()
    assert not [*keep.compilations()] and keep.warmup(np.zeros(1, np.int32), grid=(1,)) is not compiled


def test_objects_that_are_launched_by_their_own_run():
    calls = []

    class Own(triton.runtime.jit.KernelInterface):
        def run(self, *args, grid, warmup, **kwargs):
            calls.append((args, grid, warmup, kwargs))
            return warmup

    assert Own()[(2,)](1, n=3) is False and Own().warmup(1, grid=(1,), n=3) is True
    assert calls == [((1,), (2,), False, {"n": 3}), ((1,), (1,), True, {"n": 3})]


PLAIN = 3


def test_a_program_may_allow_plain_globals(monkeypatch):
    def keep(out_ptr):
        tl.store(out_ptr, PLAIN)

    out = np.zeros(1, np.int32)
    with pytest.raises(triton.CompilationError, match="PLAIN"):
        triton.jit(keep)[(1,)](out)
    monkeypatch.setattr(triton.knobs.compilation, "allow_non_constexpr_globals", True)
    triton.jit(keep)[(1,)](out)
    assert out[0] == 3


def test_parameters_say_what_they_are():
    @triton.jit(do_not_specialize=["b"], do_not_specialize_on_alignment=[0])
    def keep(a, b: tl.const, c: tl.constexpr = 3, d: "tl.int64" = 4):
        tl.store(a, c)

    facts = [(p.num, p.name, p.is_constexpr, p.is_const, p.has_default, p.annotation) for p in keep.params]
    assert facts == [
        (0, "a", False, False, False, ""), (1, "b", False, True, False, "const"),
        (2, "c", True, False, True, "constexpr"), (3, "d", False, False, True, "tl.int64"),
    ]  # fmt: skip
    assert [p.do_not_specialize for p in keep.params] == [False, True, False, False]
    assert [p.do_not_specialize_on_alignment for p in keep.params] == [True, False, False, False]
    assert keep.defaults == {"c": 3, "d": 4} and keep.constexprs == [2]
