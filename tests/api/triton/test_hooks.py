"""Records of compilations and launches that hooks and listeners get, and the profiler that is made of them."""

import json

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
import ziggurat.triton.profiler as proton
from ziggurat.triton import knobs
from ziggurat.triton.backends.compiler import GPUTarget
from ziggurat.triton.profiler import sessions, viewer
from ziggurat.triton.runtime.driver import HostEvent

H100 = GPUTarget("cuda", 90, 32)


@triton.jit
def scale(x_ptr, n, factor, FORM: tl.constexpr, DTYPE: tl.constexpr, pair):
    tl.store(x_ptr, (pair[0] * factor).to(DTYPE), mask=n > 3)


def array():
    return np.zeros(4, np.float32)


@pytest.fixture
def runtime():
    """The settings of launches, which are as before after the test."""
    with knobs.runtime.scope():
        yield knobs.runtime


@pytest.mark.parametrize("is_warmup", [True, False])
def test_a_hook_gets_the_record_of_a_compilation(runtime, is_warmup):
    records = []
    runtime.jit_cache_hook = lambda **record: records.append(record)
    runtime.jit_post_compile_hook = lambda **record: records.append(record) or True
    scale.forget()
    options = {"num_warps": 2, "num_stages": 5, "enable_fp_fusion": False, "extern_libs": {"libdevice": "/l.bc"}}
    arguments = (array(), 16, 0.5, "form", tl.float32, (3, 4.0))
    if is_warmup:
        compiled = scale.warmup(*arguments, grid=(1,), **options)
    else:
        compiled = scale[(1,)](*arguments, **options)
    before, after = records
    assert before == after and before["already_compiled"] is False and before["is_manual_warmup"] is is_warmup
    listing = "num_warps=2, num_ctas=1, num_stages=5, enable_fp_fusion=False, launch_cooperative_grid=False"
    assert before["repr"].startswith(f"scale[{listing}](x_ptr: *fp32, n: i32, factor: fp32, FORM: constexpr, DTYPE: ")
    function = before["fn"]
    assert (function.module, function.name, function.jit_function) == (__name__, "scale", scale)
    record = before["compile"]
    expected = {
        "key": before["key"], "signature": compiled.src.signature, "device": 0, "constants": compiled.src.constants,
        "extern_libs": (("libdevice", "/l.bc"),), "configs": [compiled.src.attrs], "is_warmup": is_warmup,
        "num_warps": 2, "num_ctas": 1, "num_stages": 5, "enable_fp_fusion": False, "launch_cooperative_grid": False,
    }  # fmt: skip
    assert {name: record[name] for name in expected} == expected
    data = json.loads(record["specialization_data"])
    assert data["name"] == f"{__name__}.scale" and data["key"] == before["key"]
    assert data["target"] == {"backend": "cpu", "arch": 0, "warp_size": 32}
    assert data["options"] == {"num_warps": 2, "num_stages": 5, "enable_fp_fusion": False}
    assert data["types"][1:5] == ["i32", "f32", 'constant<object, "form">', "constant<object, f32>"]


def test_a_kernel_that_names_itself_by_its_signature_is_recorded(runtime):
    """`repr` takes a specialization; a record has the name of the function."""
    data = []
    runtime.jit_cache_hook = lambda **record: data.append(json.loads(record["compile"]["specialization_data"]))
    kernel = triton.jit(repr=lambda specialization: f"scale_{specialization.signature['n']}")(scale.fn)
    kernel.warmup(array(), 16, 0.5, "form", tl.float32, (3, 4.0), grid=(1,))
    assert [record["name"] for record in data] == [f"{__name__}.scale"]


@triton.jit
def twice(x):
    return x * 2


@triton.jit
def applied(x_ptr, function, DTYPE: tl.constexpr, n: tl.constexpr):
    tl.store(x_ptr, function(n).to(DTYPE))


def test_records_are_compiled_again(runtime):
    texts = []
    runtime.jit_cache_hook = lambda **record: texts.append(record["compile"]["specialization_data"])
    compiled = applied.warmup(array(), twice, tl.float32, 21, grid=(1,), num_warps=2)
    runtime.jit_cache_hook = None
    (text,) = texts
    applied.forget()
    records = []
    runtime.jit_post_compile_hook = lambda **record: records.append(record["is_manual_warmup"])
    again = applied.preload(text)
    runtime.jit_post_compile_hook = None
    assert records == [True]
    assert again is not compiled and again.hash == compiled.hash and again.signature == compiled.signature
    assert again.launch_options == {"num_warps": 2} and again.is_compiled
    data = json.loads(text)
    data["types"][1] = "function of another process"
    with pytest.raises(RuntimeError, match="has a function for 'function' that this process does not know"):
        applied.preload(json.dumps(data))
    for field, value in (("target", {"backend": "cuda", "arch": 90, "warp_size": 32}), ("name", "other")):
        with pytest.raises(RuntimeError, match=r"Specialization data is for .* but trying to preload for"):
            applied.preload(json.dumps({**json.loads(text), field: value}))


def test_hooks_of_loading_are_told_once(runtime):
    calls = []
    hooks = {
        runtime.kernel_load_start_hook: lambda *arguments: calls.append(("start", *arguments)),
        runtime.kernel_load_end_hook: lambda *arguments: calls.append(("end", *arguments)),
    }
    for chain, hook in hooks.items():
        chain.add(hook)
    scale.forget()
    try:
        for _ in range(2):
            compiled = scale[(1,)](array(), 16, 0.5, "form", tl.float32, (3, 4.0))
    finally:
        for chain, hook in hooks.items():
            chain.remove(hook)
    facts = (None, None, "scale", compiled.metadata_group, compiled.hash)
    assert calls == [("start", *facts), ("end", *facts)]


def test_hooks_of_launches_are_called_around_them(runtime):
    calls, x = [], array()
    hooks = {
        runtime.launch_enter_hook: lambda metadata: calls.append(("enter", x[0], metadata.get())),
        runtime.launch_exit_hook: lambda metadata: calls.append(("exit", x[0], metadata.get())),
    }
    for chain, hook in hooks.items():
        chain.add(hook)
    try:
        scale[(1,)](x, 16, 0.5, "form", tl.float32, (3, 4.0))
    finally:
        for chain, hook in hooks.items():
            chain.remove(hook)
    facts = {"name": "scale", "function": None, "stream": 0}
    assert calls == [("enter", 0.0, facts), ("exit", 1.5, facts)]
    calls.clear()
    scale[(1,)](x, 16, 0.5, "form", tl.float32, (3, 4.0))
    assert calls == []


def one_stored(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), 1.0)


def test_a_listener_gets_the_times_of_the_steps(tmp_path, monkeypatch):
    """A clock that goes on by 1, 2, 4 … seconds tells which step a time is of."""
    events, times = [], iter(2.0**number - 1 for number in range(20))
    with knobs.cache.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path)
        knobs.compilation.listener = lambda **event: events.append(event)
        monkeypatch.setattr("time.perf_counter", lambda: next(times))
        for _ in range(2):
            source = triton.compiler.ASTSource(triton.jit(one_stored), {"out": "*fp32"}, {"BLOCK": 16})
            compiled = triton.compile(source, target=H100)
            assert compiled.binary is not None
        knobs.compilation.listener = None
        monkeypatch.undo()
    steps = [(e["times"].ir_initialization, e["times"].lowering_stages, e["times"].store_results) for e in events]
    assert steps == [(10**6, [("ptx", 2 * 10**6)], 4 * 10**6), (16 * 10**6, [], 0)]
    assert [event["cache_hit"] for event in events] == [False, True]
    for event in events:
        assert event["src"].name == "one_stored"
        assert event["metadata"] == {"hash": compiled.hash, "name": "one_stored", "target": H100}
    (file,) = events[0]["metadata_group"].values()
    assert list(events[0]["metadata_group"]) == ["one_stored.kernel"] and file.startswith(str(tmp_path))
    assert events[1]["metadata_group"] == events[0]["metadata_group"]


def test_a_listener_has_kernels_of_this_machine_compiled(tmp_path):
    events = []
    kernel, out = triton.jit(one_stored), np.zeros(16, np.float32)
    with knobs.cache.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path)
        kernel[(1,)](out, 16)
        knobs.compilation.listener = lambda **event: events.append(event)
        kernel.forget()
        kernel[(1,)](out, 16)
        knobs.compilation.always_compile = True
        kernel.forget()
        kernel[(1,)](out, 16)
        knobs.compilation.listener = None
    assert [event["cache_hit"] for event in events] == [False, False]


# The profiler.


@pytest.fixture
def clock(monkeypatch):
    """Events of a clock that goes on by 2 milliseconds at each."""
    now = [0.0]

    def record(event, stream=None):
        now[0] += 0.002
        event.time = now[0]

    def start(event, enable_timing=False):
        assert enable_timing, "events of PyTorch have no time otherwise"

    monkeypatch.setattr(HostEvent, "record", record)
    monkeypatch.setattr(HostEvent, "__init__", start)


def shown(file, *metrics):
    """The metrics of the nodes of a file, by name."""
    tree, names = viewer.parse(metrics, str(file))
    assert names == list(metrics)
    result = {}

    def walk(node):
        result[node["frame"]["name"]] = [*node["shown"].values()]
        for child in node["children"]:
            walk(child)

    walk(tree)
    return result


def test_times_and_rates_of_scopes(tmp_path, monkeypatch, clock, capsys):
    monkeypatch.chdir(tmp_path)
    session = proton.start("run")
    for _ in range(2):
        with proton.scope("outer", {"bytes": 4e6, "flops8": 6e9}):
            with proton.scope("inner", {"flops16": 8e9}):
                pass
    with proton.scope("bare"):
        pass
    proton.finalize(session)
    # The events of the outer scope are 3 steps apart, those of the inner one are neighbours.
    times = shown("run.hatchet", "time/s", "time/ms", "time/us", "time/ns", "avg_time/ms", "count")
    assert times["outer"] == pytest.approx([0.012, 12, 12e3, 12e6, 6, 2])
    assert times["inner"] == pytest.approx([0.004, 4, 4e3, 4e6, 2, 2])
    assert times["bare"] == pytest.approx([0.002, 2, 2e3, 2e6, 2, 1]) and times["ROOT"] == [None] * 6
    rates = shown("run.hatchet", "tflop16/s", "gflop8/s", "gbyte/s", "tbyte/s", "bytes", "flops16")
    near = pytest.approx
    assert rates["outer"] == [None, near(1000.0), near(8 / 12), near(8e-3 / 12), 8e6, None]
    assert rates["inner"] == [near(4.0), None, None, None, None, 16e9]
    viewer.print_tree(*viewer.parse(["time/ms", "bytes"], "run.hatchet"))
    assert capsys.readouterr().out.splitlines() == [
        f"{'time/ms':>12} {'bytes':>12}", f"{'':>12} {'':>12} ROOT", f"{'12.000':>12} {'8000000.000':>12}   outer",
        f"{'4.000':>12} {'':>12}     inner", f"{'2.000':>12} {'':>12}   bare",
    ]  # fmt: skip


def test_a_count_without_calls_has_no_average(tmp_path):
    node = {"frame": {"name": "a"}, "metrics": {"time (ns)": 5.0}, "children": []}
    file = tmp_path / "run.hatchet"
    file.write_text(json.dumps([node]))
    assert shown(file, "avg_time/ns", "time/ns", "gbyte/s") == {"a": [None, 5.0, None]}


def test_sessions_measure_by_themselves(tmp_path, monkeypatch, clock):
    monkeypatch.chdir(tmp_path)
    first, second = proton.start("first"), proton.start("second")
    assert (first, second) == (0, 1)
    hook = knobs.runtime.launch_enter_hook
    with proton.scope("both"):
        pass
    proton.deactivate(first)
    assert hook and knobs.watched
    with proton.scope("only the second"):
        pass
    proton.activate(first)
    proton.deactivate(second)
    with proton.scope("only the first"):
        pass
    proton.deactivate()
    assert not hook and not knobs.watched
    with proton.scope("none"):
        pass
    proton.activate()
    proton.finalize(second)
    assert hook and len(sessions._SESSIONS) == 1 and not (tmp_path / "first.hatchet").exists()
    proton.finalize()
    assert not hook and not knobs.watched and sessions._SESSIONS == []
    assert shown("first.hatchet", "count") == {"ROOT": [None], "both": [1], "only the first": [1]}
    assert shown("second.hatchet", "count") == {"ROOT": [None], "both": [1], "only the second": [1]}


def test_profiles_of_calls(tmp_path, monkeypatch, clock):
    monkeypatch.chdir(tmp_path)

    @proton.profile
    def fails(number, *, more):
        with proton.scope("inside"):
            raise ValueError(number + more)

    with pytest.raises(ValueError, match="5"):
        fails(2, more=3)
    assert not sessions._SESSIONS and not sessions._OPEN
    assert shown(f"{sessions.DEFAULT_PROFILE_NAME}.hatchet", "count")["inside"] == [1]


@triton.jit(launch_metadata=lambda grid, metadata, args: {"name": "named", "flops": 2, "bytes": 3, "other": 5})
def noted(x_ptr):
    tl.store(x_ptr, 1.0)


def test_numbers_of_launches_are_summed(tmp_path, monkeypatch, clock):
    monkeypatch.chdir(tmp_path)
    proton.start("run")
    for _ in range(2):
        noted[(1,)](array())
    proton.finalize()
    assert shown("run.hatchet", "flops", "bytes", "other", "count")["named"] == [4.0, 6.0, None, 2]


# Kernels.


def test_resources_of_a_kernel_that_is_loaded(gpu):
    gpu.attributes["CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES"] = 24
    gpu.attributes["CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK"] = 512
    gpu.parameters = 1
    compiled = triton.jit(one_stored)[(1,)](zg.empty(16), 16)
    assert (compiled.n_regs, compiled.n_spills, compiled.n_max_threads) == (40, 6, 512)
    assert compiled.function == 0x1234 and isinstance(compiled.module, int)


def test_the_metadata_of_a_kernel():
    source = triton.compiler.ASTSource(triton.jit(one_stored), {"out": "*fp32"}, {"BLOCK": 16})
    for arch, name in ((89, "sm_89"), (80, "sm_80"), (90, "sm_90a")):
        compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": 1})
        facts = compiled.metadata._asdict()
        assert facts["arch"] == name.removesuffix("a").replace("_", "") and compiled.options.target == name
        assert facts["target"] == GPUTarget("cuda", arch, 32)
    assert compiled.function is compiled.module is None and compiled.kernel == compiled.asm["cubin"]
    expected = {
        "name": "one_stored", "hash": compiled.hash, "num_warps": 1, "num_stages": 3, "num_ctas": 1, "shared": 0,
        "maxnreg": None, "enable_fp_fusion": True, "launch_pdl": False, "launch_cooperative_grid": False,
        "debug": False, "sanitize_overflow": True, "warp_size": 32, "backend_name": "cuda",
        "cluster_dims": (1, 1, 1), "tmem_size": 0, "global_scratch_size": 0, "global_scratch_align": 1,
        "profile_scratch_size": 0, "profile_scratch_align": 1, "triton_version": triton.RELEASE,
    }  # fmt: skip
    assert {name: facts[name] for name in expected} == expected
    assert compiled.packed_metadata == (1, 1, 0)
    assert repr(compiled) == "<compiled kernel one_stored(*fp32, constexpr)>"
    assert compiled.result() is compiled and compiled.is_compiled
