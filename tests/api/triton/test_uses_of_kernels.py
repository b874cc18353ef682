"""Uses of kernels by libraries, each in a few lines: how they are kept, found out about, launched and recorded."""

import contextvars
import copy
import functools
import importlib.util
import inspect
import json
import linecache
import pickle
import threading
from collections import OrderedDict, namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError, StaticAssertionError, ZigguratWarning
from ziggurat.triton import knobs
from ziggurat.triton.backends.compiler import GPUTarget
from ziggurat.triton.compiler import ASTSource, CompiledKernel
from ziggurat.triton.runtime.cache import FileCacheManager, get_cache_manager
from ziggurat.triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def shifted(x_ptr, y_ptr, n, by, BLOCK: tl.constexpr, NEGATE: tl.constexpr = False):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + at, at < n) + by
    if NEGATE:
        value = -value
    tl.store(y_ptr + at, value, at < n)


def arrays(n=10):
    return np.arange(n, dtype=np.float32), np.zeros(n, np.float32)


# Kernels in tables, made by functions, and found by name.


def made(operation, is_checked):
    """A kernel for an operation, as libraries make one for each dtype or activation."""

    @triton.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        value = tl.load(x_ptr + at, at < n)
        if is_checked:
            value = tl.maximum(value, 1.0)
        tl.store(x_ptr + at, operation(value), at < n)

    return kernel


@triton.jit
def squared(x):
    return x * x


@triton.jit
def cubed(x):
    return x * x * x


def test_kernels_in_a_table_are_made_by_a_function():
    table = {(f.__name__, flag): made(f, tl.constexpr(flag)) for f in (squared, cubed) for flag in (False, True)}
    for (name, flag), kernel in table.items():
        x = np.array([0.5, 2, 3], np.float32)
        expected = np.maximum(x, 1) if flag else x.copy()
        kernel[(1,)](x, 3, BLOCK=4)
        np.testing.assert_allclose(x, expected ** {"squared": 2, "cubed": 3}[name])


def test_a_method_of_a_class_and_a_partial_launch():
    class Layer:
        kernel = staticmethod(shifted)
        launch = functools.partialmethod(lambda self, grid, *a, **k: self.kernel[grid](*a, **k), (1,))

    x, y = arrays()
    Layer().launch(x, y, 10, by=2, BLOCK=16)
    np.testing.assert_array_equal(y, x + 2)


# Launches.


def test_grids_of_every_form():
    x, y = arrays(40)
    for grid in (
        (3,), [3], (3, 1), (3, 1, 1), lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),),
        lambda META: [triton.cdiv(40, META["BLOCK"])], (np.int64(3),),
    ):  # fmt: skip
        y[:] = 0
        shifted[grid](x, y, 40, 1, BLOCK=16, num_warps=2, num_stages=1)
        np.testing.assert_array_equal(y, x + 1)
    shifted.run(x, y, 40, 2, grid=(3,), warmup=False, BLOCK=16, num_ctas=1)
    np.testing.assert_array_equal(y, x + 2)
    arguments = {"x_ptr": x, "y_ptr": y, "n": 40, "by": 3, "BLOCK": 16, "NEGATE": True}
    shifted[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](**arguments)
    np.testing.assert_array_equal(y, -x - 3)


def test_a_launch_over_nothing_does_nothing():
    x, y = arrays()
    shifted[(0,)](x, y, 10, 1, BLOCK=16)
    shifted[(0, 5)](x, y, 10, 1, BLOCK=16)
    assert not y.any()


def test_a_compiled_kernel_is_launched_without_its_constants():
    """Some libraries give all arguments, some those before the constants, as the release of Triton asks."""
    x, y = arrays()
    compiled = shifted.warmup(x, y, 10, 1, grid=(1,), BLOCK=16, NEGATE=True)
    assert isinstance(compiled, CompiledKernel)
    for count, arguments in enumerate([(x, y, 10, 1, 16, True), (x, y, 10, 1, 16), (x, y, 10, 1), (x, y, 10)]):
        y[:] = 0
        compiled[(1, 1, 1)](*arguments)
        np.testing.assert_array_equal(y, -x - 1, str(count))
    facts = compiled.function, compiled.packed_metadata
    for arguments in ((x, y, 10, 1, 16, True), (x, y, 10)):
        y[:] = 0
        compiled.run(1, 1, 1, 0, *facts, None, None, None, *arguments)
        np.testing.assert_array_equal(y, -x - 1)
    with pytest.raises(LaunchError, match="needs 'y_ptr'"):
        compiled[(1,)](x)


@triton.jit
def inner_constant(x_ptr, BLOCK: tl.constexpr, n):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, n, at < n)


def test_a_compiled_kernel_with_a_constant_inside_is_launched_by_both():
    x = np.zeros(8, np.int32)
    compiled = inner_constant[(1,)](x, 8, 5)
    assert x.tolist() == [5] * 5 + [0] * 3
    for arguments in ((x, 8, 5), (x, 5)):
        x[:] = 0
        compiled[(1,)](*arguments)
        assert x.tolist() == [5] * 5 + [0] * 3
    on_host = triton.compile(
        ASTSource(inner_constant, {"x_ptr": "*i32", "BLOCK": "constexpr", "n": "i32"}, {"BLOCK": 8}),
        target=GPUTarget("cpu", 0, 32),
    )
    for arguments in ((x, 8, 5), (x, 5)):
        x[:] = 0
        on_host[(1, 1, 1)](*arguments)
        assert x.tolist() == [5] * 5 + [0] * 3


@triton.jit
def strided(x_ptr, KIND: tl.constexpr, stride, y_ptr, step, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at * step, tl.load(x_ptr + at * stride, at < n) + KIND, at < n)


def test_strides_of_1_are_given_or_not():
    """A launcher that leaves out constexprs gives them; the code does not read them."""
    x, y = arrays()
    compiled = strided[(1,)](x, 2, 1, y, 1, 10, BLOCK=16, EVEN=True)
    facts = compiled.function, compiled.packed_metadata
    every = (x, 2, 1, y, 1, 10, 16, True)
    for arguments in (every, every[:7], every[:6], (x, 1, y, 1, 10), (x, y, 10)):
        for launch in (compiled[(1, 1, 1)], functools.partial(compiled.run, 1, 1, 1, 0, *facts, None, None, None)):
            y[:] = 0
            launch(*arguments)
            np.testing.assert_array_equal(y[:10], x[:10] + 2, str(len(arguments)))
    with pytest.raises(LaunchError):
        compiled[(1,)](x, y)


@triton.jit
def numbers_last(x_ptr, BLOCK: tl.constexpr, n, m, stride):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at * stride, n - m, at < n)


@pytest.mark.parametrize("is_on_host", [False, True])
def test_constants_tell_launches_with_as_many_arguments_apart(is_on_host: bool):
    """Without the stride, or without the constexpr: both have four arguments, of which the code takes its own."""
    x = np.zeros(16, np.int32)
    compiled = numbers_last[(1,)](x, 16, 9, 2, 1)
    if is_on_host:
        types = {"x_ptr": "*i32", "BLOCK": "constexpr", "n": "i32", "m": "i32", "stride": "constexpr"}
        source = ASTSource(numbers_last, types, {"BLOCK": 16, "stride": 1})
        compiled = triton.compile(source, target=GPUTarget("cpu", 0, 32))
    facts = compiled.function, compiled.packed_metadata
    for arguments in ((x, 16, 9, 2, 1), (x, 16, 9, 2), (x, 9, 2, 1), (x, 9, 2)):
        for launch in (compiled[(1,)], functools.partial(compiled.run, 1, 1, 1, 0, *facts, None, None, None)):
            x[:] = 0
            launch(*arguments)
            assert x.tolist() == [7] * 9 + [0] * 7, arguments


@triton.jit
def stride_last(x_ptr, BLOCK: tl.constexpr, stride):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at * stride, 5)


def test_a_launch_has_the_constants_of_the_code():
    x = np.zeros(16, np.int32)
    compiled = stride_last[(1,)](x, 4, 1)
    for arguments in ((x, 4, 1), (x, 4), (x, 1), (x,)):
        x[:] = 0
        compiled[(1,)](*arguments)
        assert x.tolist() == [5] * 4 + [0] * 12, arguments


class Entry(triton.KernelInterface):
    """A kernel that keeps compiled ones by a key of its own, beneath tuners and heuristics, and launches these."""

    def __init__(self, fn):
        self.fn, self.arg_names, self.signature, self.compiled, self.first = fn, fn.arg_names, fn.signature, {}, 0
        while not isinstance(fn, triton.runtime.JITFunction):
            fn = fn.fn
        self.jit_function, self.lock = fn, threading.Lock()
        self.run_time = [p.num for p in fn.params if not p.is_constexpr]

    def constants_of(self, args, kwargs):
        fn, constants = self.fn, {}
        while not isinstance(fn, triton.runtime.JITFunction):
            if isinstance(fn, triton.runtime.Autotuner):
                constants |= {"num_warps": fn.best_config.num_warps, **fn.best_config.kwargs}
            elif isinstance(fn, triton.runtime.Heuristics):
                current = {**dict(zip(fn.arg_names, args, strict=False)), **kwargs, **constants}
                constants |= {name: heuristic(current) for name, heuristic in fn.values.items()}
            fn = fn.fn
        return constants

    def run(self, *args, grid, warmup, **kwargs):
        by_name = OrderedDict(zip(self.signature.parameters, args, strict=False))
        key = tuple(
            (v.dtype, v.ctypes.data % 16 == 0) if hasattr(v, "dtype") else (type(v), v) for v in by_name.values()
        )
        if key not in self.compiled:
            with self.lock:
                self.first += 1
                kernel = self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)
                self.compiled[key] = kernel, self.constants_of(args, kwargs)
            return kernel
        kernel, constants = self.compiled[key]
        sizes = grid({**by_name, **kwargs, **constants}) if callable(grid) else grid
        kernel[(*sizes, 1, 1)[:3]](*(args[place] for place in self.run_time))
        return kernel


@pytest.mark.parametrize("kind", ["plain", "heuristics", "tuned", "both"])
def test_an_entry_launches_kept_kernels(kind):
    fn = triton.jit(shifted.fn)
    if kind in ("heuristics", "both"):
        fn = triton.heuristics({"NEGATE": lambda args: args["by"] > 1})(fn)
    if kind in ("tuned", "both"):
        configs = [triton.Config({"BLOCK": size}, num_warps=w) for size, w in ((16, 1), (32, 2))]
        fn = triton.autotune(configs, key=["n"], do_bench=lambda call, quantiles: [call() or 1.0] * 3)(fn)
    entry, (x, y) = Entry(fn), arrays(40)
    options = {} if kind in ("tuned", "both") else {"BLOCK": 16}
    for by in (1, 2, 1, 2):
        y[:] = 0
        entry[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, y, 40, by, **options)
        np.testing.assert_array_equal(y, -x - by if kind in ("heuristics", "both") and by > 1 else x + by)
    assert entry.first == 2


def test_launches_are_recorded_and_played_again(monkeypatch):
    """All launches of a function, by a method in the place of every kernel's own."""
    records, plain = [], triton.JITFunction.run

    def run(self, *args, grid, warmup, **kwargs):
        compiled = plain(self, *args, grid=grid, warmup=warmup, **kwargs)
        records.append((self, compiled, grid, args, kwargs))
        return compiled

    x, y = arrays()
    with monkeypatch.context() as patch:
        patch.setattr(triton.JITFunction, "run", run)
        shifted[(1,)](x, y, 10, by=4, BLOCK=16)
    shifted[(1,)](x, y, 10, by=5, BLOCK=16)
    ((kernel, compiled, grid, args, kwargs),) = records
    values = [*args, *(kwargs.get(p.name, p.default) for p in kernel.params[len(args) :])]
    assert len(values) == len(compiled.src.signature) and kernel.arg_names[-1] == "NEGATE"
    sizes, stream = (*grid, 1, 1)[:3], triton.runtime.driver.active.get_current_stream(0)
    y[:] = 0
    compiled.run(*sizes, stream, compiled.function, compiled.packed_metadata, None, None, None, *values)
    np.testing.assert_array_equal(y, x + 4)


# What is asked of kernels.


def test_sources_and_facts_of_a_kernel():
    names = [*inspect.signature(shifted.fn).parameters]
    assert shifted.arg_names == names and [p.name for p in shifted.params if p.is_constexpr] == ["BLOCK", "NEGATE"]
    assert "def shifted(" in shifted.src and inspect.getsource(shifted.fn).startswith("@triton.jit")
    assert shifted.fn.__name__ == shifted.__name__ and shifted.__module__ == __name__
    assert shifted.cache_key == triton.jit(shifted.fn).cache_key != inner_constant.cache_key
    assert inspect.unwrap(shifted) is shifted.fn and callable(shifted)
    assert shifted.params[5].default is False and not shifted.params[0].has_default
    assert copy.copy(shifted).cache_key == shifted.cache_key and pickle.loads(pickle.dumps(shifted)) is shifted


def test_a_text_is_made_of_a_kernel_s_source():
    """Generators of code write the source of a scalar function into theirs."""
    text = f"{squared.src}\n\ndef outer(x):\n    return {squared.__name__}(x) + 1\n"
    scope = {}
    exec(compile(text, "<generated>", "exec"), scope)
    assert scope["outer"](3) == 10 and "@" not in squared.src


def test_a_compiled_kernel_tells_its_facts():
    mock = triton.runtime.jit.MockTensor(tl.float32)
    compiled = shifted.warmup(mock, mock, 10, 1, grid=(1,), BLOCK=16, num_warps=2)
    assert set(compiled.asm) >= {"ttir", "ttgir", "llir", "ptx", "cubin"} and "shifted" in compiled.asm["ptx"]
    metadata = compiled.metadata
    assert (metadata.num_warps, metadata.num_ctas, metadata.name, metadata.shared >= 0) == (2, 1, "shifted", True)
    assert json.dumps(metadata._asdict() | {"target": str(metadata.target)}) and compiled.hash == compiled.hash
    assert (compiled.num_warps, compiled.num_ctas, compiled.cluster_dims) == (2, 1, (1, 1, 1))
    assert metadata.target.backend == "cuda" and compiled.src.fn is shifted and compiled.src.constants[4,] == 16
    assert compiled in [*shifted.device_caches[0][0].values()]


def test_kernels_are_compiled_ahead_of_launches():
    types = {"x_ptr": "*fp16", "y_ptr": "*fp16", "n": "i32", "by": "fp32", "BLOCK": "constexpr", "NEGATE": "constexpr"}
    source = ASTSource(shifted, types, {(4,): 64, (5,): True}, {(0,): [["tt.divisibility", 16]]})
    compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 8, "num_stages": 2})
    assert compiled.metadata.target.arch == 80 and compiled.metadata.num_warps == 8
    assert ".target sm_80" in compiled.asm["ptx"] and source.hash() == compiled.src.hash()
    other = ASTSource(fn=shifted, signature=source.signature, constexprs={"BLOCK": 32, "NEGATE": False})
    assert triton.compile(src=other, target=GPUTarget("cuda", 90, 32)).hash != compiled.hash


# Arguments.


class Pair(NamedTuple):
    left: object
    right: object
    scale: object = 1


Nested = namedtuple("Nested", "pair function")


@triton.jit
def paired(out_ptr, pair, nested, EXTRA: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    total = tl.load(pair.left + at) + pair.scale * tl.load(nested.pair[1] + at)
    if pair.right is not None:
        total += tl.load(pair.right + at)
    for value in EXTRA:
        total += value
    tl.store(out_ptr + at, nested.function(total))


def test_tuples_and_named_tuples_are_arguments():
    x, y, out = np.arange(4, dtype=np.float32), np.ones(4, np.float32), np.zeros(4, np.float32)
    for right in (None, y):
        pair = Pair(x, right, 2)
        paired[(1,)](out, pair, Nested(pair._replace(right=y), squared), (1, 2), 4)
        np.testing.assert_array_equal(out, (x + 2 + (right is not None) + 3) ** 2)


@triton.jit
def optional(x_ptr, bias_ptr, scale, HAS_BIAS: tl.constexpr, ACT: tl.constexpr, DTYPE: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.load(x_ptr + at).to(DTYPE)
    if HAS_BIAS:
        value += tl.load(bias_ptr + at)
    if scale is not None:
        value *= scale
    if ACT == "relu":
        value = tl.maximum(value, 0.0)
    elif ACT is not None:
        value = ACT(value)
    tl.store(x_ptr + at, value.to(x_ptr.dtype.element_ty))


def test_arguments_that_are_none_texts_dtypes_and_functions():
    bias = np.ones(4, np.float32)
    for argument, scale, act in ((None, None, None), (bias, 2.0, "relu"), (bias, None, squared), (None, 3, cubed)):
        x = np.array([-2, -1, 1, 2], np.float32)
        expected = (x + (argument is not None)) * (scale or 1)
        expected = {None: lambda v: v, "relu": lambda v: np.maximum(v, 0)}.get(act, getattr(act, "fn", None))(expected)
        optional[(1,)](x, argument, scale, argument is not None, act, tl.float32, 4)
        np.testing.assert_allclose(x, expected)


def test_numbers_of_numpy_and_booleans():
    x, y = arrays()
    shifted[(np.int32(1),)](x, y, np.int64(10), np.float32(1.5), BLOCK=np.int64(16), NEGATE=np.bool_(True))
    np.testing.assert_array_equal(y, -x - 1.5)
    shifted[1,](x, y, 10, True, BLOCK=16)
    np.testing.assert_array_equal(y, x + 1)


@triton.jit
def through_descriptors(source, target, SIZE: tl.constexpr):
    at = [tl.program_id(0) * SIZE, 0]
    target.store(at, source.load(at) + 1)


def test_descriptors_made_by_the_host():
    x, y = np.arange(64, dtype=np.float32).reshape(8, 8), np.zeros((8, 8), np.float32)
    through_descriptors[(2,)](TensorDescriptor.from_tensor(x, [4, 8]), TensorDescriptor(y, y.shape, [8, 1], [4, 8]), 4)
    np.testing.assert_array_equal(y, x + 1)
    with pytest.warns(ZigguratWarning, match="round_f32_to_tf32 has no effect"):
        source = TensorDescriptor.from_tensor(x, [4, 8], "zero", round_f32_to_tf32=True)
    through_descriptors[(2,)](source, TensorDescriptor.from_tensor(y, [4, 8], padding="nan"), 4)
    np.testing.assert_array_equal(y, x + 1)


@triton.jit
def described(x_ptr, y_ptr, m, n, SIZE: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [m, n], [n, 1], [SIZE, SIZE])
    target = tl.make_tensor_descriptor(y_ptr, [m, n], [n, 1], [SIZE, SIZE])
    at = [tl.program_id(0) * SIZE, tl.program_id(1) * SIZE]
    target.store(at, source.load(at))


def test_an_allocator_is_set_around_launches():
    x, y = np.arange(64, dtype=np.float32).reshape(8, 8), np.zeros((8, 8), np.float32)

    def in_context() -> None:
        triton.set_allocator(lambda size, alignment, stream: size)
        described[(2, 2)](x, y, 8, 8, SIZE=4)

    contextvars.copy_context().run(in_context)
    np.testing.assert_array_equal(y, x)


# Globals and functions of compile time.

_WIDTH = tl.constexpr(8)
_TABLE: tl.constexpr = tl.constexpr((1, 2, 3))


@triton.constexpr_function
def rounded_up(n, by=4):
    return -(-n // by) * by


@triton.jit
def of_globals(x_ptr, n: tl.constexpr):
    at = tl.arange(0, _WIDTH)
    tl.static_assert(rounded_up(n) <= _WIDTH, "too wide")
    tl.store(x_ptr + at, _TABLE[1] + rounded_up(n), at < n)


def test_constants_of_the_module_and_functions_of_compile_time():
    x = np.zeros(8, np.int32)
    of_globals[(1,)](x, 5)
    assert x.tolist() == [10] * 5 + [0] * 3 and rounded_up(5) == 8
    with pytest.raises(StaticAssertionError, match="too wide"):
        of_globals[(1,)](x, 9)


def test_constants_are_computed_with_by_the_host():
    """A module may keep its tables as constants, for kernels and for the functions that launch these."""
    sizes, names = tl.constexpr((16, 32, 64)), tl.constexpr({"relu": 1})
    assert [*sizes] == [16, 32, 64] and sizes[tl.constexpr(1)] == 32 and names["relu"] == 1 and sizes[1:] == (32, 64)
    width = tl.constexpr(5)
    assert (width * 2 + 1).value == 11 and triton.cdiv(width, 2) == 3 and [*range(width)] == [0, 1, 2, 3, 4]
    assert {5: "five"}[width] == "five" and max(width, 3) == 5 and triton.next_power_of_2(width) == 8
    assert width.logical_and(0).value == 0 and tl.constexpr(0).logical_or(width).value == 5 and width == 5


# Hooks, settings and threads.


def test_hooks_and_settings_in_a_scope():
    events, (x, y) = [], arrays()
    kernel = triton.jit(shifted.fn, launch_metadata=lambda grid, kernel, args: {"name": "mine", "bytes": 4 * args["n"]})
    kernel.add_pre_run_hook(lambda *args, **kwargs: events.append(("pre", sorted(kwargs))))
    hooks = [
        (knobs.runtime.launch_enter_hook, lambda metadata: events.append(("enter", metadata.get()["bytes"]))),
        (knobs.runtime.launch_exit_hook, lambda metadata: events.append(("exit", metadata.get()["name"]))),
        (knobs.runtime.kernel_load_start_hook, lambda *facts: events.append(("load", facts[2]))),
    ]
    for chain, hook in hooks:
        chain.add(hook)
    with knobs.runtime.scope(), knobs.compilation.scope():
        knobs.runtime.jit_post_compile_hook = lambda **facts: events.append(("made", facts["fn"].name.split(".")[-1]))
        knobs.compilation.listener = lambda **facts: events.append(("times", facts["times"].total >= 0))
        kernel[(1,)](x, y, 10, 1, BLOCK=16)
    for chain, hook in hooks:
        chain.remove(hook)
    kernel[(1,)](x, y, 10, 1, BLOCK=16)
    names = [name for name, _ in events]
    assert names.count("pre") == 2 and names.count("enter") == names.count("exit") == names.count("made") == 1
    assert ("enter", 40) in events and ("exit", "mine") in events and ("made", "shifted") in events
    assert names.index("made") < names.index("enter") < names.index("exit")


def test_a_hook_may_keep_a_kernel_from_being_compiled_here():
    """A service that compiles elsewhere is told of the kernel, and compiles by the description."""
    descriptions, (x, y), kernel = [], arrays(), triton.jit(shifted.fn)

    def hook(key, repr, fn, compile, is_manual_warmup, already_compiled):
        descriptions.append(compile["specialization_data"])
        return True

    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook = hook
        assert kernel.warmup(x, y, 10, 1, BLOCK=16, grid=(1,)) is None
    other = triton.jit(shifted.fn)
    compiled = other.preload(descriptions[0])
    assert compiled.metadata.name == "shifted"
    other[(1,)](x, y, 10, 1, BLOCK=16)
    np.testing.assert_array_equal(y, x + 1)
    assert len(other.device_caches[0][0]) == 1


def test_threads_launch_one_kernel():
    kernel = triton.jit(shifted.fn)

    def launch(by):
        x, y = arrays(100)
        for _ in range(5):
            kernel[(7,)](x, y, 100, by, BLOCK=16, NEGATE=by % 2 == 0)
        return (y == (-x - by if by % 2 == 0 else x + by)).all()

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(launch, range(12)))


class Traced(triton.JITFunction):
    """A kernel that counts its launches, in the place of `@triton.jit`."""

    def __init__(self, fn, **options):
        super().__init__(fn, **options)
        self.launches = 0

    def run(self, *args, grid, warmup, **kwargs):
        self.launches += not warmup
        return super().run(*args, grid=grid, warmup=warmup, **kwargs)


def test_a_class_of_kernels_is_derived():
    kernel = Traced(shifted.fn, do_not_specialize=["n"])
    tuned = triton.autotune([triton.Config({"BLOCK": 16})], key=[])(kernel)
    x, y = arrays()
    tuned[(1,)](x, y, 10, by=1)
    kernel[(1,)](x, y, 1, by=2, BLOCK=16)
    assert kernel.launches == 2 and y[0] == 2 and y[1] == 2


# Caches, and kernels that are generated.


class Careful(FileCacheManager):
    """A manager of files that writes them in its own way, as a library has it."""

    count = 0

    def put(self, data, filename, binary=True):
        assert self.cache_dir and self.lock_path is not None and self.key in self.cache_dir
        path = self._make_path(filename)
        Path(path).write_bytes(data if isinstance(data, bytes) else str(data).encode())
        Careful.count += 1
        return path


def test_a_manager_of_files_is_derived_and_named(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_MANAGER", f"{__name__}:Careful")
    manager = get_cache_manager("abcd12")
    assert type(manager).__name__ == "Careful" and manager.get_file("x.bin") is None
    manager.put(b"data", "x.bin")
    manager.put_group("x", {"x.bin": manager.get_file("x.bin")})
    assert Path(manager.get_group("x")["x.bin"]).read_bytes() == b"data" and manager.has_file("x.bin")
    x, y = arrays()
    triton.jit(shifted.fn)[(1,)](x, y, 10, 1, BLOCK=16)
    np.testing.assert_array_equal(y, x + 1)


_GENERATED = """
import {triton} as triton
import {triton}.language as tl


@triton.jit
def {name}(x_ptr, {arguments}, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
{lines}
    tl.store(x_ptr + at, total, at < n)


def launch(x, *arrays):
    {name}[(triton.cdiv(x.size, 16),)](x, *arrays, x.size, BLOCK=16)
"""


@pytest.mark.parametrize("way", ["file", "exec"])
def test_kernels_of_generated_modules(tmp_path, way):
    """A module for each number of operands: written to a file and imported, or executed with its lines in linecache."""
    for count in (1, 3):
        names = [f"in{place}_ptr" for place in range(count)]
        lines = "\n".join(f"    total += tl.load({name} + at, at < n)" for name in names)
        text = _GENERATED.format(
            name=f"sum_of_{count}", arguments=", ".join(names), lines=lines, triton=triton.__name__
        )
        file = tmp_path / f"{way}_{count}.py"
        if way == "file":
            file.write_text(text)
            spec = importlib.util.spec_from_file_location(f"generated_{count}", file)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            launch = module.launch
        else:
            linecache.cache[str(file)] = (len(text), None, text.splitlines(True), str(file))
            scope = {"__name__": f"generated_{count}"}
            exec(compile(text, str(file), "exec"), scope)
            launch = scope["launch"]
        x, arguments = np.zeros(20, np.float32), [np.full(20, place + 1, np.float32) for place in range(count)]
        launch(x, *arguments)
        assert x.tolist() == [count * (count + 1) / 2] * 20


def doubling(fn):
    """A decorator below `@triton.jit`'s, which keeps the function."""
    fn.is_marked = True
    return fn


@triton.jit(do_not_specialize=["n", 3], do_not_specialize_on_alignment=["x_ptr"], debug=True, noinline=False)
@doubling
def marked(x_ptr, y_ptr, n, m, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.device_assert(n <= BLOCK, "too many")
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) * m, at < n)


def test_options_of_the_decorator():
    x, y = arrays()
    for n, m in ((10, 1), (1, 16), (7, 3)):
        y[:] = 0
        marked[(1,)](x, y, n, m, BLOCK=16)
        np.testing.assert_array_equal(y[:n], m * x[:n])
    assert marked.fn.is_marked and [p.name for p in marked.params if p.do_not_specialize] == ["n", "m"]
    assert len(marked.device_caches[0][0]) == 1 and marked.module == __name__
    other = triton.jit(marked.fn, do_not_specialize=marked.do_not_specialize)  # Libraries copy kernels so.
    assert [p.name for p in other.params if p.do_not_specialize] == ["n", "m"]
    with pytest.raises(KernelRuntimeError, match="too many"):
        marked[(1,)](x, y, 17, 1, BLOCK=16)


@triton.jit
def limits(x_ptr, DTYPE: tl.constexpr):
    width: tl.constexpr = DTYPE.int_bitwidth
    signed: tl.constexpr = DTYPE.is_int_signed()
    tl.store(x_ptr, tl.full([], (1 << (width - signed)) - 1, x_ptr.dtype.element_ty))


def test_a_dtype_s_properties_in_a_kernel():
    x = np.zeros(1, np.int64)
    for dtype, most in ((tl.int8, 127), (tl.uint8, 255), (tl.int32, 2**31 - 1)):
        limits[(1,)](x, dtype)
        assert x[0] == most


def test_settings_of_a_launch_by_the_environment(monkeypatch):
    """Programs switch the interpreter on before kernels are made; a launch has options of many machines."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernel = triton.jit(shifted.fn)
    x, y = arrays()
    kernel[(1,)](x, y, 10, 1, BLOCK=16, num_warps=4, num_stages=2, launch_pdl=False, maxnreg=None, waves_per_eu=0)
    np.testing.assert_array_equal(y, x + 1)
    monkeypatch.delenv("TRITON_INTERPRET")
    kernel[(1,)](x, y, 10, 2, BLOCK=16, launch_cooperative_grid=False)
    np.testing.assert_array_equal(y, x + 2)
