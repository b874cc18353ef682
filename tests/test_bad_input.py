"""Answers to bad input: launches, grids, traces, models, text, and faults of the compiler.

Kernels' own errors are in tests/transforms/attribution/test_errors.py (each message as a whole) and
test_wrong_arguments.py (every call with every kind of argument); those of the
command line in tests/test_bad_commands.py; the malformed texts of models in tests/codemodel/test_text.py, the
invariants of models in tests/codemodel/test_verify.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.reference import run as reference
from ziggurat.codemodel import errors
from ziggurat.compiler import pipeline

P32 = zg.ptr(zg.f32)


@zg.kernel
def scale(x_ptr, out_ptr, n, factor, BLOCK: zg.constexpr):
    offsets = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(offsets, n, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, offsets), mask)
    zg.store(zg.add(out_ptr, offsets), zg.mul(x, factor), mask)


X = np.arange(32, dtype=np.float32)


TRITON = scale.triton(P32, P32, zg.i32, zg.f32, 32)


def launch(grid: Any = (1,), **changed: Any) -> None:
    given = {"x_ptr": X, "out_ptr": np.zeros_like(X), "n": 32, "factor": 2.0, "BLOCK": 32}
    scale[grid](**(given | changed))


def failure(run: Callable[[], object]) -> zg.ZigguratError:
    """The error that a user gets: one of the family, in words, and not our fault."""
    with pytest.raises(zg.ZigguratError) as caught:
        run()
    error = caught.value
    assert not isinstance(error, zg.InternalError), str(error)
    for inside in ("ScalarType(", "PtrType(", "ConstantType", "Traceback", "NoneType"):
        assert inside not in str(error)
    return error


class Broken:
    """An array whose protocols fail in their own ways."""

    @property
    def __array_interface__(self) -> Any:
        raise OSError("gone")


class NoInterface:
    __array_interface__: ClassVar[dict[str, int]] = {"shape": 3}


class BrokenDlpack:
    def __dlpack__(self, **options: Any) -> Any:
        raise OSError("gone")

    def __dlpack_device__(self) -> Any:
        return "nowhere"


def read_only() -> Any:
    array = np.zeros_like(X)
    array.flags.writeable = False
    return array


NO_ARGUMENTS: dict[str, Any] = {
    "list": [1.0, 2.0], "string": "x", "complex": 1j, "object": object(), "class": np.ndarray, "dict": {},
    "bytes": b"abc", "memory": memoryview(b"abc"), "range": range(3),
    "function": abs, "Decimal": Decimal(1), "long double": np.longdouble(1), "date": np.datetime64("2020"),
    "objects": X.astype(object), "big endian": X.astype(">f4"), "strings": X.astype("S3"), "complexes": X.astype("c8"),
    "records": np.zeros(3, [("a", "f4")]), "dates": np.zeros(3, "M8[s]"), "masked": np.ma.array(X), "broken": Broken(),
    "no interface": NoInterface(), "no dlpack": BrokenDlpack(), "too large": 2**64, "too small": -(2**63) - 1,
    "far too large": 1 << 20_000,
}  # fmt: skip


@pytest.mark.parametrize("what", NO_ARGUMENTS)
@pytest.mark.parametrize("parameter", ["x_ptr", "n"])
def test_objects_that_are_no_arguments_of_a_launch(parameter: str, what: str):
    error = failure(lambda: launch(**{parameter: NO_ARGUMENTS[what]}))
    assert isinstance(error, zg.LaunchError) and f"'{parameter}'" in error.summary


@pytest.mark.parametrize("what", ["objects", "big endian", "masked", "far too large"])
def test_objects_that_are_no_constants_of_a_launch(what: str):
    error = failure(lambda: launch(BLOCK=NO_ARGUMENTS[what]))
    assert isinstance(error, zg.LaunchError) and error.summary.startswith("'BLOCK' of 'scale'")


WRONG_KINDS = {
    "an array for a number": ({"n": X}, "zg.compare: the operands must be numbers; got a pointer"),
    "a number for an array": (
        {"x_ptr": 3},
        "zg.load: 'ptr' must be a pointer or a tensor of pointers; got tensor<x32, i32>",
    ),
    "a block of 24": ({"BLOCK": 24}, "zg.arange(0, 24) must give a power of two of numbers; got 24"),
    "a block that is a bool": ({"BLOCK": True}, "zg.arange: 'end' must be an integer; got True"),
    "a block that is a float": ({"BLOCK": 32.0}, "zg.arange: 'end' must be an integer; got 32.0"),
    "a block that is not a number": ({"BLOCK": "32"}, "zg.arange: 'end' must be an integer; got '32'"),
    "a read-only output": ({"out_ptr": read_only()}, "writes out_ptr, but its array is read-only"),
    "an empty array": ({"x_ptr": X[:0]}, "reads x_ptr[0], but x_ptr has 0 elements"),
    "an array of no axes": ({"x_ptr": np.array(1.0, np.float32)}, "reads x_ptr[1]"),
    "a short array": ({"x_ptr": X[:20]}, "reads x_ptr[20], but x_ptr has 20 elements"),
}


@pytest.mark.parametrize(
    ("changed", "hint"),
    [
        ({"out_ptr": read_only()}, "np.array(out_ptr) is a copy that can"),
        ({"x_ptr": X[:20]}, "mask=zg.less(offsets, n)"),
        ({"x_ptr": X[:0]}, "check that the sizes"),
        ({"x_ptr": X[::2], "n": 20, "interpret": True}, "or pass a contiguous copy"),
    ],
    ids=["a read-only output", "a short array", "an empty array", "strides"],
)
def test_accesses_that_are_refused_say_what_to_do(changed: dict[str, Any], hint: str):
    error = failure(lambda: launch(**changed))
    assert isinstance(error, zg.MemoryAccessError) and error.location is not None
    assert hint in (error.hint or "") and f"hint: {error.hint}" in str(error)


@pytest.mark.parametrize("what", WRONG_KINDS)
def test_wrong_kinds_of_arguments(what: str):
    changed, message = WRONG_KINDS[what]
    assert message in str(failure(lambda: launch(**changed)))


def test_none_is_a_constant_that_has_no_elements():
    error = failure(lambda: launch(x_ptr=None))
    assert error.summary == "zg.add: 'a' must be a value; got None" and error.location is not None


def test_unusual_arguments_that_a_launch_takes():
    launch(factor=float("nan"))
    launch(factor=np.float32(2))
    launch(factor=1e300)
    COMPILED.simulate[1](X, X.copy(), 32, 1e300)
    launch(n=2**40)
    launch(n=True)
    launch((0,), x_ptr=X[:0])
    launch(np.int64(1))
    launch([1, 1])
    launch(lambda constants: (zg.cdiv(32, constants["BLOCK"]),))
    launch(x_ptr=read_only())


SIGNATURE = "scale(x_ptr, out_ptr, n, factor, BLOCK: zg.constexpr)"
LAUNCH = SIGNATURE.replace("(", "[grid](", 1)
OUTSIDE = "call it in a function decorated with @zg.kernel or @zg.function, or in one given to zg.trace"
WRONG_CALLS: list[tuple[Callable[[], object], str, str]] = [
    (lambda: scale[(1,)](X), "'scale' needs 'out_ptr', 'n', 'factor', 'BLOCK'", LAUNCH),
    (lambda: scale[(1,)](X, X, 1, 1.0, 32, 33), "'scale' takes 5 arguments; got 6", LAUNCH),
    (lambda: launch(BLOK=3), "'scale' has no parameter 'BLOK', nor is there such an option", "did you mean BLOCK?"),
    (lambda: scale[(1,)](X, x_ptr=X), "'scale' got 'x_ptr' twice", ""),
    (lambda: scale(X, X, 1, 1.0, 32), "'scale' is a kernel, which must be launched over a grid", "scale[grid](…)"),
    (lambda: scale.triton(P32, P32), "'scale' needs 'n', 'factor', 'BLOCK'", SIGNATURE),
    (lambda: zg.load(1), "zg.load was called outside of a kernel", OUTSIDE),
    (
        lambda: zg.kernel(do_not_specialize=["y"])(scale.fn),
        "'scale' has no parameter 'y' (in do_not_specialize)",
        "scale(x_ptr, out_ptr, n, factor, BLOCK: zg.constexpr)",
    ),
    (
        lambda: launch(lambda constants: constants["SIZE"]),
        "the grid of 'scale' asks for 'SIZE', which is no parameter of it",
        "it has 'x_ptr', 'out_ptr', 'n', 'factor', 'BLOCK'",
    ),
]


COMPILED = scale.compile(P32, P32, zg.i32, zg.f32, 32)
CYCLE: list[Any] = [1.0]
CYCLE.append(CYCLE)
MUST_BE_NAMES = "zg.autotune: key, reset_to_zero and restore_value must be names of parameters; got "
ONE = [zg.Config({"BLOCK": 32})]
WRONG_CALLS += [
    (
        lambda: zg.kernel(do_not_specialize=3)(scale.fn),
        "zg.kernel: 'do_not_specialize' must be names of parameters; got 3",
        "",
    ),
    (
        lambda: launch(lambda: 4),
        "the grid of 'scale' must be a function of one parameter, the arguments by name; got: "
        "<lambda>.<locals>.<lambda>() takes 0 positional arguments but 1 was given",
        'scale[lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),)](…)',
    ),
    (lambda: COMPILED(X, X, 1, 1.0), "'scale' must be launched over a grid", "compiled[grid](…)"),
    (lambda: COMPILED.simulate(X, X, 1, 1.0), "'scale' must be simulated over a grid", "compiled.simulate[grid](…)"),
    (
        lambda: COMPILED.simulate[1](X, X.copy(), 1, 1.0, optimized="x"),
        "optimized must be True or False; got 'x'",
        "",
    ),
    (lambda: zg.run(TRITON, 1, X, X, 1, 1.0, strict="x"), "strict must be True or False; got 'x'", ""),
    (lambda: zg.run(TRITON, 1, X, X, 1, 1.0, warps=4), "run() got an unexpected keyword argument 'warps'", ""),
    (
        lambda: zg.execute(abs),
        "zg.execute: 'function' must be a function of the language or a model; got <built-in function abs>",
        "decorate a function with @zg.function",
    ),
    (lambda: zg.execute(7), "zg.execute: 'function' must be a function of the language or a model; got 7", ""),
    (
        lambda: zg.autotune(configs=None),
        "zg.autotune: 'configs' must be a list; got None",
        'configs=[zg.Config({"BLOCK": 128})]',
    ),
    (
        lambda: zg.autotune(configs=zg.Config({})),
        f"zg.autotune: 'configs' must be a list; got {errors.shown(zg.Config({}))}",
        'configs=[zg.Config({"BLOCK": 128})]',
    ),
    (lambda: zg.autotune(configs=ONE, key=None), f"{MUST_BE_NAMES}None", ""),
    (lambda: zg.autotune(configs=ONE, reset_to_zero=3), f"{MUST_BE_NAMES}3", ""),
    (
        lambda: zg.autotune(configs=ONE, prune_configs_by=3),
        "zg.autotune: 'prune_configs_by' must be a dict; got 3",
        "it has the keys early_config_prune, perf_model and top_k",
    ),
    (
        lambda: zg.autotune(configs=ONE, prune_configs_by={"top_k": "a"})(scale),
        "zg.autotune: 'top_k' must be a number of configurations, 1 or more, or a share of them, above 0.0 and at most "
        "1.0; got 'a'",
        "",
    ),
    (
        lambda: zg.autotune(configs=ONE, prune_configs_by={"perf_model": 3})(scale),
        "zg.autotune: 'perf_model' must be a function; got 3",
        "",
    ),
    (
        lambda: zg.autotune(configs=ONE, measure=3)(scale),
        "zg.autotune: 'measure' must be a function; got 3",
        "",
    ),
    (lambda: zg.autotune(configs=ONE, rep="a")(scale), "zg.autotune: 'rep' must be a number; got 'a'", ""),
    (
        lambda: zg.testing.assert_close(X, X, rtol="a"),
        "assert_close: 'rtol' must be a number of zero or more; got 'a'",
        "",
    ),
    (
        lambda: zg.testing.assert_close(X, X, atol=-1),
        "assert_close: 'atol' must be a number of zero or more; got -1",
        "",
    ),
    (
        lambda: zg.testing.assert_close(X, X, rtol=np.float32(-1)),
        "assert_close: 'rtol' must be a number of zero or more; got np.float32(-1.0)",
        "",
    ),
    (lambda: zg.testing.assert_close(X, "a"), "assert_close: 'expected' must be an array of numbers; got 'a'", ""),
    (
        lambda: zg.testing.assert_same(TRITON, TRITON, None),
        "assert_same: 'inputs' must be the arguments of a launch, in a list; got None",
        "",
    ),
]


@pytest.mark.parametrize("parameter", ["x_ptr", "n", "BLOCK"])
def test_a_list_that_contains_itself(parameter: str):
    given = {"x_ptr": P32, "out_ptr": P32, "n": 1, "factor": 1.0, "BLOCK": 32, parameter: CYCLE}
    for call in (lambda: launch(**{parameter: CYCLE}), lambda: scale.compile(**given)):
        assert "lists and tuples must be nested at most 100 deep" in failure(call).summary


@pytest.mark.parametrize(("call", "summary", "hint"), WRONG_CALLS, ids=[summary for _, summary, _ in WRONG_CALLS])
def test_wrong_calls(call: Callable[[], object], summary: str, hint: str):
    error = failure(call)
    assert (error.summary, error.hint or "") == (summary, hint)


NO_GRIDS = [(-1,), (2.0,), (1, 1, 1, 2), (), "1", None, 1.5, {1: 2}, (2**40,), float("nan"), (None,), ((1,),), object]


@pytest.mark.parametrize("grid", NO_GRIDS, ids=repr)
def test_objects_that_are_no_grids(grid: Any):
    grids = [grid, lambda _: grid] if grid is not object else [lambda _: grid]
    for size in grids:
        error = failure(lambda size=size: launch(size))
        assert error.summary.startswith(
            "the grid of 'scale' must be one to three sizes, integers from 0 to 2147483647; got "
        )
        assert error.hint == "scale[(zg.cdiv(n, BLOCK),)](…)"


# Wrong objects in place of a type, of a number, and of a model.

NO_DTYPES = [None, "f32", 1, P32, [zg.f32], float, np.float32, np.dtype("f4"), zg.add]


@pytest.mark.parametrize("thing", NO_DTYPES, ids=str)
def test_types_are_made_of_dtypes(thing: Any):
    assert "zg.ptr: the argument must be a dtype such as zg.f32" in failure_of_any(lambda: zg.ptr(thing)).summary
    if thing is not P32:
        assert (
            "the type of zg.divisible must be an integer, a pointer"
            in failure_of_any(lambda: zg.divisible(thing)).summary
        )


@pytest.mark.parametrize("by", [0, -16, 3, 1.0, "16", None, True, zg.i32], ids=str)
def test_divisibility_is_a_power_of_two(by: Any):
    assert "a power of two" in failure_of_any(lambda: zg.divisible(zg.i32, by)).summary


def test_messages_do_not_hold_a_whole_model():
    assert failure(lambda: zg.divisible(TRITON)).summary.endswith("or a descriptor; got <module {…}>")


def test_floats_are_not_divisible():
    words = "the type of zg.divisible must be an integer, a pointer or a descriptor; got f32"
    assert failure(lambda: zg.divisible(zg.f32)).summary == words


def failure_of_any(run: Callable[[], object]) -> zg.ZigguratError:
    """As `failure`, for messages that show whatever was given."""
    with pytest.raises(zg.ZigguratError) as caught:
        run()
    assert not isinstance(caught.value, zg.InternalError)
    return caught.value


NO_MODELS = [None, "module", 1, zg.f32, scale, [scale]]
OF_MODELS: dict[str, Callable[[Any], object]] = {
    "verify": zg.verify,
    "to_text": zg.to_text,
    "to_mlir": zg.to_mlir,
    "simplify": zg.simplify,
    "transform": zg.transform,
    "run": lambda model: zg.run(model, (1,)),
}


@pytest.mark.parametrize("call", OF_MODELS)
@pytest.mark.parametrize("thing", NO_MODELS, ids=str)
def test_objects_that_are_no_models(call: str, thing: Any):
    error = failure_of_any(lambda: OF_MODELS[call](thing))
    assert "the model must be an Op; got " in error.summary
    assert (error.hint == "its models are kernel.model and kernel.triton(types…)") == (thing is scale)


@pytest.mark.parametrize("text", [None, 1, b"module", scale], ids=str)
def test_only_text_is_parsed(text: Any):
    assert "parse: 'text' must be the text of a model" in failure_of_any(lambda: zg.parse(text)).summary


@pytest.mark.parametrize("thing", [1, "kernel", [], zg.f32], ids=str)
def test_only_functions_are_kernels(thing: Any):
    for decorate in (zg.kernel, zg.function):
        assert "not a function defined by def" in failure_of_any(lambda d=decorate: d(thing)).summary


def test_callables_without_source_are_no_kernels():
    for thing in (len, np.float32, zg.add, print, type("C", (), {}), dict, min):
        assert "not a function defined by def" in failure(lambda t=thing: zg.kernel(t).model).summary


# Tracing.


def nothing(_: object) -> None:
    """Takes what a call of the language gives, so that a traced lambda returns nothing."""


@zg.function
def helper(a, b=2):
    return zg.add(a, b)


TRACES: dict[str, tuple[Callable[..., Any], str]] = {
    "truth": (lambda p, n: nothing(1 if n > 0 else 2), "the truth of a value of the kernel is not known"),
    "iteration": (lambda p, n: nothing([i for i in n]), "a value of the kernel cannot be iterated over"),
    "index": (lambda p, n: nothing(range(n)), "a value of the kernel is not a Python integer"),
    "float": (lambda p, n: nothing(float(n)), "a value of the kernel is not a Python number"),
    "length": (lambda p, n: nothing(len(n)), "the length of a value of the kernel is not known"),
    "call": (lambda p, n: nothing(n()), "a value of the kernel cannot be called"),
    "method": (lambda p, n: nothing(n.sum()), "a value of the kernel has no 'sum'"),
    "item": (lambda p, n: n.__setitem__(0, 1), "a value of the kernel cannot be changed"),
    "search": (lambda p, n: nothing(1 in n), "a value of the kernel cannot be searched"),
    "matmul": (lambda p, n: nothing(n @ n), "the operator '@' does not work in a kernel"),
    "round": (lambda p, n: nothing(round(n)), "round() does not work in a kernel"),
    "power": (lambda p, n: nothing(n**2), "'**' is for constants in a kernel"),
    "object": (lambda p, n: nothing(zg.add(n, object())), "an object of the type object cannot be a value of a kernel"),
    "array": (lambda p, n: nothing(X + n), "an object of the type ndarray cannot be a value of a kernel"),
    "keyword": (lambda p, n: zg.store(p, 1.0, maks=1), "zg.store has no parameter 'maks'"),
    "function": (lambda p, n: nothing(zg.reduce(zg.arange(0, 4), 0, max)), "cannot be a value of a kernel"),
    "result": (lambda p, n: n, "returns a value, and a kernel returns nothing"),
    "tensors": (lambda p, n: nothing(zg.arange(0, 4) + zg.arange(0, 8)), "the shapes [4] and [8] do not match"),
    "too few": (lambda p, n: nothing(helper()), "helper needs its argument 'a'"),
    "too many": (lambda p, n: nothing(helper(1, 2, 3)), "takes at most 2 positional arguments; got 3"),
    "for body": (lambda p, n: zg.for_(0, n, 1, None, None), "the body of zg.for_ must be a function; got None"),
    "for arity": (lambda p, n: zg.for_(0, n, 1, 0, lambda i: None), "the body of zg.for_ is called with 2 arguments"),
    "for result": (lambda p, n: zg.for_(0, n, 1, 0, lambda i, a: None), "gives nothing, expected one value"),
    "for results": (lambda p, n: zg.for_(0, n, 1, 0, lambda i, a: (a, a)), "gives a tuple of 2, expected one value"),
    "for step": (lambda p, n: zg.for_(0, n, 0, None, lambda i: None), "zg.range: the step is zero"),
    "for bound": (lambda p, n: zg.for_(0.5, n, 1, None, lambda i: None), "zg.range counts with integers"),
    "for option": (lambda p, n: zg.for_(0, n, 1, None, lambda i: None, depth=1), "zg.range has no parameter 'depth'"),
    "if part": (lambda p, n: zg.if_(n > 0, 1), "the first part of zg.if_ must be a function; got 1"),
    "if else": (lambda p, n: zg.if_(n > 0, lambda: None, 2), "the second part of zg.if_ must be a function; got 2"),
    "if arity": (lambda p, n: zg.if_(n > 0, lambda a: a), "the first part of zg.if_ is called with 0 arguments"),
    "if results": (lambda p, n: nothing(zg.if_(n > 0, lambda: 1)), "zg.if_ gives nothing, the first one value"),
    "while arity": (lambda p, n: nothing(zg.while_(lambda: True, lambda a: a, 0)), "is called with 1 argument"),
    "while end": (lambda p, n: nothing(zg.while_(lambda a: True, lambda a: a, 0)), "this loop never ends"),
    "inside out": (lambda p, n: inside_out(p, n), "that was made inside a loop or a branch is used outside"),
    "nested": (lambda p, n: nothing(zg.trace(lambda q: zg.store(q, n), P32)), "a value of another trace is used here"),
}  # fmt: skip


def inside_out(p: Any, n: Any) -> None:
    kept: list[Any] = []
    zg.for_(0, n, 1, None, lambda i: kept.append(i))
    zg.store(p, kept[0])


@pytest.mark.parametrize("what", TRACES)
def test_errors_of_traced_functions(what: str):
    body, message = TRACES[what]
    error = failure(lambda: zg.trace(body, P32, zg.i32))
    assert message in error.summary
    if what != "result":
        assert error.location is not None and error.location.file == __file__


def test_attributes_of_symbols():
    seen: list[bool] = []
    zg.trace(lambda n: seen.append(hasattr(n, "foo") or hasattr(n, "__array__")), zg.i32)
    assert seen == [False]


def test_values_of_a_finished_kernel_are_refused():
    kept: list[Any] = []
    zg.trace(lambda n: kept.append(n), zg.i32)
    assert failure(lambda: kept[0] + 1).summary == "a value is used after its kernel was traced"
    assert (
        failure(lambda: zg.trace(lambda p: zg.store(p, kept[0]), P32)).summary
        == "a value of another trace is used here"
    )


@pytest.mark.parametrize("arguments", [(), (P32,), (P32, zg.i32, zg.i32)])
def test_a_traced_function_takes_its_arguments(arguments: tuple[Any, ...]):
    error = failure(lambda: zg.trace(lambda p, n: zg.store(p, 1.0), *arguments))
    assert error.summary.startswith(f"'<lambda>' cannot be traced with {len(arguments)} arguments: ")


def test_only_functions_are_traced():
    assert "zg.trace must get a function; got 1" in failure(lambda: zg.trace(1, zg.i32)).summary  # type: ignore[arg-type]


def test_exceptions_of_a_traced_function_are_its_own():
    def body(p: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        zg.trace(body, P32)


def test_a_traced_function_gets_any_python_object():
    zg.trace(lambda p, options: zg.store(p, options["value"]), P32, {"value": 1.0})
    zg.trace(lambda p, table: zg.store(p, float(table[1])), P32, X)


@pytest.mark.parametrize("call", [
    lambda: zg.for_(0, 1, 1, None, nothing), lambda: zg.if_(True, lambda: None), lambda: zg.while_(nothing, nothing, 0),
])  # fmt: skip
def test_control_flow_is_built_while_tracing(call: Callable[[], object]):
    assert "was called outside of a traced function" in failure(call).summary


# Our own faults.


class Fault(RuntimeError):
    """Stands for any exception that is not meant."""


def faulty(*_: Any, **__: Any) -> Any:
    raise Fault("something is wrong\nwith details")


def test_a_fault_while_compiling_shows_the_model(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pipeline, "mirror", faulty)
    for compile_it in (
        lambda: zg.kernel(scale.fn).triton(P32, P32, zg.i32, zg.f32, 32),
        lambda: zg.trace(lambda p: zg.store(p, 1.0), P32),
    ):
        with pytest.raises(zg.InternalError) as caught:
            compile_it()
        assert isinstance(caught.value.__cause__, Fault)
        text = str(caught.value)
        assert "failed with Fault: something is wrong\nThis is a fault of ziggurat. Please report it" in text
        assert "zg.store" in text and "func @" in text


def test_a_fault_while_running_shows_the_model(monkeypatch: pytest.MonkeyPatch):
    launch(interpret=True)
    monkeypatch.setattr(reference, "run", faulty)
    with pytest.raises(zg.InternalError, match="running 'scale' failed with Fault") as caught:
        launch(interpret=True)
    assert "tt.store" in str(caught.value)
    model = scale.triton(P32, P32, zg.i32, zg.f32, 32)
    with pytest.raises(zg.InternalError, match="failed with Fault"):
        zg.run(model, (1,), X, X.copy(), 32, 2.0)


def test_a_fault_does_not_hide_an_error_of_the_user(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pipeline, "mirror", faulty)
    error = failure(lambda: zg.kernel(scale.fn).triton(P32, P32, zg.i32, zg.f32, 24))
    assert error.summary == "zg.arange(0, 24) must give a power of two of numbers; got 24"


def test_a_build_error_while_compiling_is_our_fault(monkeypatch: pytest.MonkeyPatch):
    def build(*_: Any) -> Any:
        raise zg.BuildError("an op is put together wrongly")

    monkeypatch.setattr(pipeline, "TIDY", (build,))
    with pytest.raises(zg.InternalError, match="BuildError: an op is put together wrongly"):
        zg.kernel(scale.fn).triton(P32, P32, zg.i32, zg.f32, 32)


def test_helpers_that_call_each_other_too_deeply_are_an_error():
    made: list[Any] = [helper]
    text = "@zg.function\ndef deep{0}(a):\n    return deep{1}(a)\n"
    import linecache

    source = "@zg.function\ndef deep0(a):\n    return a\n" + "".join(text.format(i + 1, i) for i in range(4000))
    source += "@zg.kernel\ndef kernel(q, n):\n    zg.store(q, deep4000(n))\n"
    linecache.cache["deep.py"] = (len(source), None, source.splitlines(True), "deep.py")
    scope: dict[str, Any] = {"zg": zg, "made": made}
    exec(compile(source, "deep.py", "exec"), scope)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # hypothesis raises it
    try:
        error = failure(lambda: scope["kernel"].triton(zg.ptr(zg.i32), zg.i32))
    finally:
        sys.setrecursionlimit(limit)
    assert "nested too deeply" in error.summary


def test_a_python_model_cannot_be_run():
    model = zg.parse('func @"f" ()void -> { return; };')
    with pytest.raises(zg.LaunchError, match=r"must be a Triton model, or .*; 'func' is an op of another tier"):
        zg.run(model, 1)


# The family.


def test_the_errors_are_one_family():
    found = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, Exception)]
    found = [cls for cls in found if not issubclass(cls, Warning)]
    assert found and all(issubclass(cls, zg.ZigguratError) for cls in found)
    public = {name for name, cls in vars(zg).items() if isinstance(cls, type) and issubclass(cls, zg.ZigguratError)}
    assert public == {cls.__name__ for cls in found} | {"ZigguratError"}


def test_malformed_text_and_broken_models_are_of_the_family():
    assert issubclass(zg.ParseError, zg.ZigguratError) and issubclass(zg.VerifyError, zg.ZigguratError)
    tests = Path(__file__).parent / "codemodel"
    assert (tests / "test_text.py").exists() and (tests / "test_verify.py").exists()
