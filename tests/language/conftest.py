"""Kernels run through `@zg.kernel` on NumPy arrays, against what a test computed with NumPy.

Every kernel that is run here is also verified, printed and parsed back, and run again: its programs one by one, and
after the simplifications. All ways have to give the same bits. The first case of each test is run as native code, too,
and its first launches on a simulated GPU; where the environment has CI, every sixteenth case is run as native code,
too, and with `--natively` all are. With `--on-gpu`, each launch is repeated on the GPU, with `--simulated` on a
simulated one, and with `--random-layouts SEED` in layouts that are drawn; see `differential.py`.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import linecache
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy_calls
import pytest
from numpy_calls import DTYPES

import ziggurat as zg
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.execute import execute
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.traits import LeavesIteration
from ziggurat.transforms.early_exits import early_exits

Array = np.ndarray[Any, Any]

NAMES = {dtype: name for name, dtype in DTYPES.items()}

_numbers = itertools.count()

NATIVELY = pytest.StashKey[bool]()
ELSEWHERE = pytest.StashKey[int]()  # The number of launches that are repeated on another machine.
MAX_SIMULATED = 4  # Of a first case: generated tests have hundreds of launches.

_differential: Any = None  # Repeats launches on another machine.
_natively = False  # Whether launches of the present test are repeated in native code.
_launches = 0  # Of the present test.
_most_launches = 0  # Of the present test that are repeated on another machine.


def pytest_configure(config: pytest.Config) -> None:
    global _differential
    kinds = _everywhere(config)
    seed = config.getoption("--random-layouts")
    if not kinds and seed is not None:
        raise pytest.UsageError("--random-layouts is about --on-gpu, --simulated or --assembled")
    file = Path(__file__).with_name("differential.py")
    spec = importlib.util.spec_from_file_location("differential", file)
    assert spec is not None and spec.loader is not None
    differential = sys.modules["differential"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(differential)
    classes = differential.MACHINES[kinds[0]] if kinds else (differential.Simulated,)
    machines = [machine() for machine in classes]
    _differential = differential.Differential(machines, same, seed, config.getoption("--every-warps"))


def _everywhere(config: pytest.Config) -> list[str]:
    """The machines on which each launch is to be repeated."""
    return [name for name in ("gpu", "simulated", "assembled") if config.getoption(f"launches_{name}")]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if item.nodeid.startswith("tests/language/")]
    if config.getoption("launches_gpu"):
        for item in here:
            item.add_marker("gpu")
    firsts = {item.nodeid.partition("[")[0]: item for item in reversed(here)}
    some = [*firsts.values(), *(here[::16] if "CI" in os.environ else ())]
    everywhere = bool(_everywhere(config))
    for item in here if config.getoption("--natively") else () if everywhere else some:
        item.stash[NATIVELY] = True
    for item in here if everywhere else firsts.values():
        item.stash[ELSEWHERE] = sys.maxsize if everywhere else MAX_SIMULATED


@pytest.fixture(autouse=True)
def repeated_too(request: pytest.FixtureRequest):
    """Repeats the launches of chosen tests in native code, and on another machine."""
    global _natively, _launches, _most_launches
    _natively = request.node.stash.get(NATIVELY, False)
    _launches, _most_launches = 0, request.node.stash.get(ELSEWHERE, 0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # One of the processes of pytest-xdist.
        session.config.workeroutput["launches"] = dict(_differential.counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    _differential.counts.update(getattr(node, "workeroutput", {}).get("launches", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for what, count in _differential.counts.most_common() if _everywhere(terminalreporter.config) else ():
        terminalreporter.write_line(f"launches elsewhere: {count:5} {what}")


def make(source: str, decorate: Callable[..., Any] = zg.kernel, **names: Any) -> Any:
    """Decorate the one function in a source text. `names` are its globals, beside `zg`."""
    source = textwrap.dedent(source).strip() + "\n"
    file = f"<kernel {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {"zg": zg, "K": zg.CompareKind, **names}
    before = set(space)
    exec(compile(source, file, "exec"), space)
    (function,) = (space[name] for name in space if name not in before and callable(space[name]))
    return decorate(function)


def bits(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


def same(actual: Array, expected: Array, ulp: float = 0, tolerance: float = 0) -> Array:
    """The elements at which two arrays agree: NaN with NaN, zeros by their sign, numbers within `ulp` last places."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    equal = bits(actual) == bits(expected)
    if actual.dtype.kind in "biu":
        return equal
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    equal |= np.isnan(a) & np.isnan(b)
    if ulp:
        with np.errstate(all="ignore"):
            bits_of_fraction = {2: 10, 4: 23, 8: 52}[actual.itemsize]
            if NAMES[actual.dtype] == "bf16":
                bits_of_fraction = 7
            tiny = float(ml_dtypes.finfo(actual.dtype).smallest_subnormal)
            _, exponent = np.frexp(b)
            unit = np.maximum(np.ldexp(1.0, exponent - 1 - bits_of_fraction), tiny)
            equal |= np.abs(a - b) <= ulp * unit
    if tolerance:
        equal |= np.abs(a - b) <= tolerance
    return equal


def assert_same(actual: Array, expected: Array, what: str, ulp: float = 0, tolerance: float = 0) -> None:
    __tracebackhide__ = True
    good = same(actual, expected, ulp, tolerance)
    if not good.all():
        places = [tuple(map(int, place)) for place in np.argwhere(~good)[:5]]
        differences = "; ".join(f"{place}: {actual[place]!r}, expected {expected[place]!r}" for place in places)
        pytest.fail(f"{what}: {(~good).sum()} of {good.size} differ: {differences}", pytrace=False)


def copied(arguments: Sequence[Any]) -> list[Any]:
    """Copies of the arrays, strides and shared memory included; the copy of a view has the memory of its base."""
    copies: dict[int, Array] = {}

    def again(array: Array) -> Array:
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        if id(root) not in copies:
            copies[id(root)] = root.copy(order="K")
        memory = copies[id(root)].ravel(order="K").view(np.uint8)
        assert np.shares_memory(memory, copies[id(root)]) and root.strides == copies[id(root)].strides
        offset = address(array) - address(root)
        return np.ndarray(array.shape, array.dtype, memory.data, offset, array.strides)

    return [again(argument) if isinstance(argument, np.ndarray) else argument for argument in arguments]


def address(array: Array) -> int:
    return array.__array_interface__["data"][0]


def launched(
    kernel: Any,
    grid: Any,
    arguments: Sequence[Any],
    thorough: bool = True,
    host_only: str = "",
    unordered: Sequence[int] = (),
    **constants: Any,
) -> Any:
    """Run a kernel, and its model in other ways. The constants come last among its parameters.

    `host_only` says why it is not repeated on a GPU; there, the arguments `unordered` (by number) are not compared, as
    they depend on the order of the programs.
    """
    global _launches
    _launches += 1
    elsewhere = _differential if _launches <= _most_launches and not host_only else None
    repeat = elsewhere.start(kernel, arguments, constants) if elsewhere else None
    before = copied([argument for argument in arguments if argument is not None])
    kernel[grid](*arguments, **constants, interpret=True)
    if repeat is not None:
        repeat.check(grid, unordered)
    arguments = [argument for argument in arguments if argument is not None]
    model = next(reversed(kernel._models.values()))
    if _natively:
        natively(model, (grid,) if isinstance(grid, int) else grid, copied(before), arguments)
    if not thorough:
        return model
    sizes = (grid,) if isinstance(grid, int) else grid
    simpler = _simplified(model)
    for what, other, batch in (("one by one", model, 1), ("simplified", simpler, None)):
        again = copied(before)
        run(other, None, sizes, again, batch=batch)
        for index, (first, second) in enumerate(zip(arguments, again, strict=True)):
            if isinstance(first, np.ndarray):
                assert_same(second, first, f"{what}, argument {index}")
    return model


@functools.lru_cache(maxsize=1)  # A test may launch a kernel several times.
def _simplified(model: Op) -> Op:
    """The simplified model. Both are well-formed, and the text gives the model."""
    zg.verify(model)
    assert zg.same_model(zg.parse(str(model)), model)
    simpler = zg.simplify(model)
    zg.verify(simpler)
    return simpler


def natively(model: Any, grid: tuple[int, ...], again: Sequence[Any], expected: Sequence[Any]) -> None:
    """Run a model in native code, and compare every array with what the interpreter gave."""
    __tracebackhide__ = True
    from run_cpu import run_cpu

    run_cpu(model, grid, again)
    kinds = {op.NAME for op in model.walk()}
    ulp = 8 if kinds & set(INEXACT) else 0
    for index, (first, second) in enumerate(zip(expected, again, strict=True)):
        if isinstance(first, np.ndarray):
            tolerance = 0.0
            if "tt.dot" in kinds and first.dtype.kind not in "biu":
                wide = np.abs(first.astype(np.float64))
                tolerance = float(ml_dtypes.finfo(first.dtype).eps) * float(wide[np.isfinite(wide)].max(initial=0)) * 16
            assert_same(
                second, first, f"in native code, argument {index}", ulp if first.dtype == np.float64 else 0, tolerance
            )


# The functions of f64 that are not correctly rounded: docs/reference/accuracy.md has their bounds.
INEXACT = ("math.exp", "math.exp2", "math.log", "math.log2", "math.sin", "math.cos", "math.tanh", "math.erf")


def described(inputs: Mapping[str, Array]) -> str:
    return ", ".join(f"{name}: {NAMES[array.dtype]} {array.shape[1:]}" for name, array in inputs.items())


def _offsets(shape: Sequence[int]) -> str:
    n = int(np.prod(shape))
    lanes = f"zg.arange(0, {n})" if len(shape) == 1 else f"zg.reshape(zg.arange(0, {n}), {tuple(shape)})"
    return f"zg.add(pid * {n}, {lanes})" if shape else "pid"


def computed(
    body: str,
    inputs: Mapping[str, Any],
    expected: Mapping[str, Any],
    *,
    ulp: float = 0,
    tolerance: float = 0,
    thorough: bool = True,
    **names: Any,
) -> Any:
    """Run `body`, lines over the names of the inputs, and compare the names that it is expected to give.

    The first axis of all arrays is that of the programs: program p gets row p of each input, as a tensor (or as a
    scalar where there is no other axis). The results have exactly the dtype and the shape of what is expected.
    """
    inputs = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
    expected = {name: np.ascontiguousarray(array) for name, array in expected.items()}
    pointers = [f"{name}_ptr" for name in (*inputs, *(f"{out}_out" for out in expected))]
    lines = [f"def kernel({', '.join(pointers)}):", "    pid = zg.program_id(0)"]
    for name, array in inputs.items():
        lines.append(f"    {name} = zg.load(zg.add({name}_ptr, {_offsets(array.shape[1:])}))")
    lines += textwrap.indent(textwrap.dedent(body).strip(), "    ").splitlines()
    for name, array in expected.items():
        shape = array.shape[1:]
        message = f"{name} is {NAMES[array.dtype]} {shape}"
        lines.append(f"    zg.static_assert({name}.dtype == zg.{NAMES[array.dtype]}, '{message}')")
        lines.append(f"    zg.static_assert({name}.shape == {shape}, '{message}')")
        lines.append(f"    zg.store(zg.add({name}_out_ptr, {_offsets(shape)}), {name})")
    kernel = make("\n".join(lines), **names)
    results = {name: np.zeros_like(array) for name, array in expected.items()}
    programs = next(iter(expected.values())).shape[0]
    model = launched(kernel, (programs,), [*inputs.values(), *results.values()], thorough)
    for name, array in expected.items():
        line = next((line.strip() for line in body.splitlines() if f"{name} =" in line), body)
        assert_same(results[name], array, f"{line} of {described(inputs)}", ulp, tolerance)
    return model


@pytest.fixture(scope="session")
def compute() -> Callable[..., Any]:
    """See `computed`."""
    return computed


@pytest.fixture(scope="session")
def launch() -> Callable[..., Any]:
    """See `launched`."""
    return launched


@pytest.fixture(scope="session")
def kernel() -> Callable[..., Any]:
    """See `make`."""
    return make


PAIRS = [(a, b) for a in (-9, -2, 0, 1, 4, 11) for b in (-3, 0, 2, 8)]


@pytest.fixture(scope="session")
def three_ways() -> Callable[..., list[Any]]:
    """Checks a function of two numbers and a constant, run by Python, by its Python model, and in a kernel."""

    def check(source: str, flags: tuple[Any, ...] = (0,), **names: Any) -> list[Any]:
        function = make(source, zg.function, **names)
        caller = make(
            """
            def caller(a_ptr, b_ptr, out_ptr, FLAG: zg.constexpr):
                pid = zg.program_id(0)
                result = f(zg.load(a_ptr + pid), zg.load(b_ptr + pid), FLAG)
                zg.store(out_ptr + pid, zg.cast(result, zg.i64))
            """,
            f=function,
        )
        models: list[Any] = []
        for flag in flags:
            expected = [function.fn(a, b, flag) for a, b in PAIRS]
            host = {"zg.static_range": range}
            for model in (function.model, without_exits(function.model)):
                assert [execute(model, (a, b, flag), host=host) for a, b in PAIRS] == expected
            a, b = (np.array(column, np.int64) for column in zip(*PAIRS, strict=True))
            out = np.full(len(PAIRS), 99, np.int64)
            models.append(launched(caller, len(PAIRS), [a, b, out], FLAG=flag))
            assert out.tolist() == expected
        return models

    return check


def without_exits(model: Op) -> Op:
    """The Python model after `early_exits`, verified: a function returns at its end, and a body ends at its end."""
    plain = early_exits(model)
    zg.verify(plain)
    assert zg.same_model(zg.parse(str(plain)), plain) and early_exits(plain) is plain
    exits = [op for op in plain.walk() if isinstance(op, core.Return | LeavesIteration)]
    assert exits == [plain.bodies[0].entry.ops[-1]]
    return plain


@pytest.fixture(scope="session")
def values() -> Callable[[str], Array]:
    """See `numpy_calls.values`."""
    return numpy_calls.values


@pytest.fixture(scope="session")
def rows() -> Callable[..., list[Array]]:
    """See `numpy_calls.rows`."""
    return numpy_calls.rows


@pytest.fixture(scope="session")
def dtypes() -> Mapping[str, np.dtype[Any]]:
    """NumPy's dtypes by the names of ours."""
    return DTYPES


@pytest.fixture(autouse=True)
def quiet_numpy():
    """Overflows in these tests are intended."""
    with np.errstate(all="ignore"):
        yield
