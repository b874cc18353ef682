"""Settings by name, their environment variables, and the defaults of Triton's functions."""

import inspect
import os

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import ZigguratWarning
from ziggurat.triton import knobs
from ziggurat.triton._C.libtriton import get_cache_invalidating_env_vars
from ziggurat.triton.runtime import _async_compile, cache, jit, triton_options
from ziggurat.triton.runtime.driver import HostEvent


class Settings(knobs.base_knobs):
    text = knobs.env_str("ZIGGURAT_TEST_TEXT", "none")
    number = knobs.env_int("ZIGGURAT_TEST_NUMBER", 3)
    count = knobs.env_int("ZIGGURAT_TEST_COUNT")
    flag = knobs.env_bool("ZIGGURAT_TEST_FLAG")
    wish = knobs.env_opt_bool("ZIGGURAT_TEST_WISH")
    path = knobs.env_str_callable_default("ZIGGURAT_TEST_PATH", lambda: "computed")
    kind = knobs.env_class("ZIGGURAT_TEST_KIND", "CacheManager")


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    for knob in Settings().knob_descriptors.values():
        monkeypatch.setenv(knob.key, "")  # The variables are as before after the test.
        monkeypatch.delenv(knob.key)
    return Settings()


def test_defaults_variables_and_assigned_values(settings, monkeypatch):
    defaults = {
        "text": "none", "number": 3, "count": 0, "flag": False, "wish": None, "path": "computed", "kind": None,
    }  # fmt: skip
    assert settings.knobs == defaults
    for name, text, value in (
        ("text", "a", "a"), ("number", "-7", -7), ("flag", "On", True), ("flag", "0", False), ("wish", "yes", True),
        ("wish", "no", False), ("path", "/p", "/p"), ("kind", f"{cache.__name__}:CacheManager", cache.CacheManager),
    ):  # fmt: skip
        monkeypatch.setenv(f"ZIGGURAT_TEST_{name.upper()}", text)
        assert getattr(settings, name) == value
    for name, value in (("text", "b"), ("number", 8), ("flag", True)):
        setattr(settings, name, value)
        assert getattr(settings, name) == value
    assert [os.environ[f"ZIGGURAT_TEST_{name}"] for name in ("TEXT", "NUMBER", "FLAG")] == ["b", "8", "1"]
    settings.number = knobs.env  # The variable counts again.
    monkeypatch.setenv("ZIGGURAT_TEST_NUMBER", "11")
    assert settings.number == 11


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("number", "many", "ZIGGURAT_TEST_NUMBER must be an integer; got 'many'"),
        ("kind", "cache", "ZIGGURAT_TEST_KIND must be of the form MODULE:CLASS; got 'cache'"),
        ("kind", f"{cache.__name__}:RemoteCacheBackend", "must name a class derived from CacheManager; got"),
    ],
)
def test_texts_of_variables_that_are_refused(settings, monkeypatch, name, text, message):
    monkeypatch.setenv(f"ZIGGURAT_TEST_{name.upper()}", text)
    with pytest.raises(RuntimeError, match=message):
        getattr(settings, name)


def test_a_scope_ends_with_the_values_before_it(settings):
    settings.text = "before"
    with settings.scope():
        settings.text, settings.number = "inside", 9
        settings.kind = object  # A value without a text leaves the variable.
        assert os.environ["ZIGGURAT_TEST_NUMBER"] == "9" and "ZIGGURAT_TEST_KIND" not in os.environ
    assert settings.text == os.environ["ZIGGURAT_TEST_TEXT"] == "before"
    assert settings.number == 3 and "ZIGGURAT_TEST_NUMBER" not in os.environ
    copy = settings.copy()
    assert copy.text == "before" and copy is not settings
    settings.text = None
    assert "ZIGGURAT_TEST_TEXT" not in os.environ and settings.text is None and copy.text == "before"
    assert settings.reset() is settings and settings.text == "none"


def test_assigned_values_stay_in_the_process(settings, monkeypatch):
    monkeypatch.setattr(knobs, "propagate_env", False)
    settings.text = "inside"
    assert settings.text == "inside" and "ZIGGURAT_TEST_TEXT" not in os.environ


def test_settings_without_variables():
    """Those that Triton's documentation lists."""
    for group, names in {
        knobs.amd: {"use_buffer_ops": True, "use_buffer_atomics": True, "use_block_pingpong": None},
        knobs.proton: {"disable": False, "enable_nvtx": True},
        knobs.redis: {"key_format": "triton:{key}:{filename}", "host": "localhost", "port": 6379},
        knobs.language: {"default_fp_fusion": True},
    }.items():
        with group.scope():
            for name, value in names.items():
                setattr(group, name, knobs.env)
                assert os.environ.get(group.knob_descriptors[name].key) is None and getattr(group, name) == value
    with knobs.build.scope():
        knobs.build.cudart_path, knobs.build.cudacrt_path = "/one", None
        assert knobs.build.backend_dirs == {"/one"} and knobs.build.impl is None


def test_hooks_are_called_in_order_and_the_last_ones_in_reverse():
    calls: list[tuple[str, int]] = []
    for chain, order in ((knobs.HookChain(), "ab"), (knobs.HookChain(reversed=True), "ba")):
        first, second = (lambda value, name=name: calls.append((name, value)) for name in "ab")
        assert not chain
        for function in (first, second, first):
            chain.add(function)
        chain(1)
        assert chain and calls == [(name, 1) for name in order]
        calls.clear()
        for _ in range(2):
            chain.remove(first)
        chain(2)
        assert calls == [("b", 2)]
        calls.clear()
    runtime = knobs.runtime
    chains = (runtime.launch_enter_hook, runtime.launch_exit_hook)
    assert [chain.reversed for chain in chains] == [False, True]
    assert [chain.reversed for chain in (runtime.kernel_load_start_hook, runtime.kernel_load_end_hook)] == [False, True]
    assert not knobs.watched
    for chain in chains:
        chain.add(print)
        assert knobs.watched
        chain.remove(print)
        assert not knobs.watched


def test_settings_of_launches_are_watched(monkeypatch):
    with knobs.runtime.scope():
        for name in ("debug", "jit_cache_hook"):
            before = getattr(knobs.runtime, name)
            setattr(knobs.runtime, name, True)
            assert knobs.watched
            setattr(knobs.runtime, name, before)
            assert not knobs.watched
        type(knobs.runtime)().debug = True  # Not those of the process.
        assert not knobs.watched
        with pytest.warns(ZigguratWarning, match="add_stages_inspection_hook is not called") as records:
            knobs.runtime.add_stages_inspection_hook = print
        assert records[0].filename == __file__
        knobs.runtime.add_stages_inspection_hook = None


def test_variables_of_the_process_are_read_again(monkeypatch):
    try:
        monkeypatch.setenv("TRITON_DEBUG", "1")
        monkeypatch.setenv("TRITON_INSTRUMENTATION_MODE", "consan")  # It is read at each use.
        knobs.refresh_knobs()
        assert knobs.runtime.debug is True and knobs.compilation.instrumentation_mode == "consan"
    finally:
        monkeypatch.delenv("TRITON_DEBUG")
        monkeypatch.delenv("TRITON_INSTRUMENTATION_MODE")
        knobs.refresh_knobs()
    assert knobs.runtime.debug is False and knobs.compilation.instrumentation_mode == ""


def test_programs_of_nvidia_s_toolkit(tmp_path, monkeypatch):
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.93'\n")
    tool.chmod(0o755)
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\necho 'release 12.8'\nexit 1\n")
    failing.chmod(0o755)
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho nothing\n")
    other.chmod(0o755)
    assert knobs.NvidiaTool.from_path(str(tool)) == knobs.NvidiaTool(str(tool), "12.8")
    assert [knobs.NvidiaTool.from_path(str(path)) for path in (failing, other, tmp_path / "absent")] == [None] * 3
    monkeypatch.setattr("ziggurat.backend.ptx.sass.tool", lambda name: {"ptxas": tool}.get(name))
    with knobs.nvidia.scope():
        knobs.nvidia.ptxas = str(other)  # It is no assembler: that of the machine is used.
        assert knobs.nvidia.ptxas.path == str(tool)
        monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", str(tool))
        assert knobs.nvidia.ptxas_blackwell.version == "12.8"
        with pytest.raises(RuntimeError, match="cannot find cuobjdump"):
            _ = knobs.nvidia.cuobjdump


def test_times_of_a_compilation():
    times = knobs.CompileTimes(5, [("ttir", 10), ("ptx", 20)], 7)
    assert times.total_lowering == 30 and times.total == 42


# The defaults of functions of Triton's that programs call without them.
DEFAULTS = [
    (cache.CacheManager, {"override": False, "dump": False}),
    (cache.FileCacheManager, {"override": False, "dump": False}),
    (cache.CacheManager.put, {"binary": True}),
    (cache.FileCacheManager.put, {"binary": True}),
    (knobs.HookChain, {"reversed": False}),
    (triton.testing.Mark.run, {"show_plots": False, "print_data": False, "save_path": "", "return_df": False}),
    (_async_compile.FutureKernel.result, {"ignore_errors": False}),
    (triton.AsyncCompileMode, {"ignore_errors": False}),
    (HostEvent, {"enable_timing": False}),
    (jit.mangle_type, {"specialize": False}),
    (triton.autotune, {
        **dict.fromkeys((
            "prune_configs_by", "reset_to_zero", "restore_value", "pre_hook", "post_hook", "warmup", "rep", "do_bench",
        )),
        "use_cuda_graph": False, "cache_results": False,
    }),
    (triton.Config, {
        "num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "pre_hook": None, "ir_override": None,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("function", "defaults"), DEFAULTS, ids=lambda value: getattr(value, "__qualname__", ""))
def test_defaults_are_those_of_triton(function, defaults):
    parameters = inspect.signature(function).parameters
    assert {name: p.default for name, p in parameters.items() if p.default is not p.empty} == defaults


def test_defaults_of_the_tuner_are_those_of_its_decorator():
    names = ("use_cuda_graph", "cache_results", "warmup", "rep", "do_bench")
    parameters, own = (
        inspect.signature(function).parameters for function in (triton.autotune, triton.runtime.Autotuner)
    )
    assert [own[name].default for name in names] == [parameters[name].default for name in names]
    for function in (triton.runtime.Autotuner.run, triton.runtime.Autotuner._bench):
        assert inspect.signature(function).parameters["warmup"].default is False


@triton.jit
def wrong(x_ptr):
    tl.static_assert(False, "wrong")
    tl.store(x_ptr, 1.0)


def test_errors_of_compilations_in_threads_are_raised_unless_they_are_ignored():
    from concurrent.futures import ThreadPoolExecutor

    x = np.zeros(1, np.float32)
    with ThreadPoolExecutor(1) as pool:
        with triton.AsyncCompileMode(pool, ignore_errors=True):
            future = wrong.warmup(x, grid=(1,))
        assert future.result(ignore_errors=True) is None
        with pytest.raises(triton.CompilationError):
            future.result()
        with pytest.raises(triton.CompilationError), triton.AsyncCompileMode(pool):
            wrong.warmup(x, grid=(1,))
        with triton.AsyncCompileMode(pool):
            with pytest.raises(RuntimeError, match="Another AsyncCompileMode is already active"):
                triton.AsyncCompileMode(pool).__enter__()


def test_folders_of_the_home_folder(monkeypatch):
    for variable in ("TRITON_CACHE_DIR", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR", "TRITON_HOME"):
        monkeypatch.delenv(variable, raising=False)
    with knobs.cache.scope():
        for name in ("dir", "dump_dir", "override_dir"):
            setattr(knobs.cache, name, knobs.env)
        knobs.cache.home_dir = "/home/of"
        folders = [knobs.cache.dir, knobs.cache.dump_dir, knobs.cache.override_dir]
        assert folders == [f"/home/of/.triton/{name}" for name in ("cache", "dump", "override")]
    assert knobs.proton.cupti_lib_dir.endswith(os.path.join("triton", "backends", "nvidia", "lib"))


def test_groups_of_files(tmp_path):
    with knobs.cache.scope():
        knobs.cache.dir = knobs.cache.override_dir = str(tmp_path)
        files = cache.get_cache_manager("abcd")
        assert files.get_file("a.txt") is files.get_group("both") is None
        paths = {name: files.put(name.encode(), name) for name in ("a.txt", "b.txt")}
        files.put_group("both", {**paths, "c.txt": str(tmp_path / "absent")})
        assert files.get_group("both") == paths and files.has_file("a.txt")
        files.put('{"other": 1}', "__grp__none", binary=False)
        assert files.get_group("none") is None
        own = cache.FileCacheManager("key", override=True)
        assert own.cache_dir == str(tmp_path / "key") and not os.path.exists(own.cache_dir)
        assert os.path.exists(cache.FileCacheManager("other").cache_dir)
        knobs.cache.dump_dir = str(tmp_path / "dump")
        assert os.path.exists(cache.FileCacheManager("key", override=True, dump=True).cache_dir)
        knobs.cache.dir = ""
        with pytest.raises(RuntimeError, match="Could not create or locate cache dir"):
            cache.FileCacheManager("key")
        calls = []
        knobs.cache.manager_class = lambda key, **settings: calls.append((key, settings))
        for manager in (cache.get_cache_manager, cache.get_override_manager, cache.get_dump_manager):
            manager("00ff")
        assert calls == [("AD7Q", {}), ("AD7Q", {"override": True}), ("AD7Q", {"dump": True})]


def test_keys_of_caches_tell_what_they_are_made_of_apart():
    from types import SimpleNamespace

    def key(text="a", target="sm_90", options=1, variables=None):
        source, backend = SimpleNamespace(hash=lambda: text), SimpleNamespace(target=target)
        return cache.get_cache_key(source, backend, options, variables or {})

    keys = {key(), key("b"), key(target="sm_80"), key(options=2), key(variables={"A": "1"})}
    assert len(keys) == 5 and key() in keys and all(len(text) == 64 for text in keys)
    assert cache.triton_key().startswith("ziggurat ")


SETTINGS = [(group, name, knob) for group, name, knob in knobs.settings()]
IGNORED = [(group, knob) for group, _, knob in SETTINGS if knob.instead]
KEYS = {
    "TRITON_DISABLE_LINE_INFO": "1", "TRITON_OVERRIDE_ARCH": "sm80", "TRITON_F32_DEFAULT": "ieee",
    "TRITON_DEFAULT_FP_FUSION": "0", "TRITON_FORCE_DISABLE_FP_FUSION": "1", "DISABLE_PTXAS_OPT": "1",
    "PTXAS_OPTIONS": "--maxrregcount=64",
}  # fmt: skip


def test_each_setting_says_what_it_does():
    for group, name, knob in SETTINGS:
        assert bool(knob.effect) + bool(knob.instead) + bool(group.NEEDLESS) >= 1 and not (knob.effect and knob.instead)
        assert knob.effect or not knob.is_key, "what does nothing changes no kernel"
        assert knobs.effect_of(group, knob) and (not name or getattr(knobs, name.partition(".")[0]) is group)


@pytest.mark.parametrize(("group", "knob"), IGNORED, ids=[knob.key for _, knob in IGNORED])
def test_a_setting_without_effect_is_told_at_a_compilation(monkeypatch, group, knob):
    monkeypatch.setattr(knobs, "_warned", set())
    value = f"{__name__}:Remote" if isinstance(knob, knobs.env_class) else "1"
    monkeypatch.setenv(knob.key, value)
    with pytest.warns(ZigguratWarning) as records:
        triton_options.compile_options({})
    assert [str(record.message) for record in records] == [f"{knob.key} has no effect: {knob.instead}"]
    triton_options.compile_options({})  # Warnings are errors here: it says so once.


class Remote(cache.CacheManager, cache.RemoteCacheBackend):
    pass


@triton.jit
def products(a_ptr, b_ptr, c_ptr):
    i = tl.arange(0, 32)
    at = i[:, None] * 32 + i[None, :]
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    tl.store(c_ptr + at, tl.dot(a, b) + a * b)


@pytest.mark.parametrize("name", [knob.key for _, _, knob in SETTINGS if knob.is_key])
def test_settings_that_change_kernels_are_in_their_keys(monkeypatch, name):
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)

    def facts():
        kernel = triton.jit(products.fn)
        compiled = kernel.warmup(*[jit.MockTensor(tl.float32)] * 3, grid=(1,))
        return compiled.hash, get_cache_invalidating_env_vars()

    before, after = facts(), (monkeypatch.setenv(name, KEYS[name]), facts())[1]
    assert before[0] != after[0] and before[1] == {} and after[1] == {name: KEYS[name]}


def test_the_ptx_is_printed(monkeypatch, capsys):
    monkeypatch.setenv("NVPTX_ENABLE_DUMP", "1")
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    kernel = triton.jit(products.fn).warmup(*[jit.MockTensor(tl.float32)] * 3, grid=(1,))
    assert f"NVPTX Dump //----- //\n{kernel.asm['ptx']}" in capsys.readouterr().out


def test_the_listener_of_tuning_is_told_the_choice():
    configs, records = [triton.Config({}, num_warps=warps) for warps in (1, 2)], []
    times = iter([[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    tuned = triton.autotune(configs, key=[], do_bench=lambda run, quantiles: next(times))(triton.jit(products.fn))
    arrays = [np.zeros((32, 32), np.float32) for _ in range(3)]
    with knobs.autotuning.scope():
        knobs.autotuning.listener = lambda **facts: records.append(facts)
        for _ in range(2):
            tuned[(1,)](*arrays)
    (facts,) = records
    assert facts["fn"] is tuned.fn and facts["best_config"] is tuned.best_config and facts["cache_hit"] is False
    assert facts["configs_timings"] == tuned.configs_timings and facts["duration"] == tuned.bench_time
