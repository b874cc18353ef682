"""The library's functions, run as Python with calls that compute in NumPy: their algorithms, without the compiler."""

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ziggurat as zg
from ziggurat.codemodel.types import SCALARS, ScalarType
from ziggurat.frontends import language
from ziggurat.frontends.language import SIGNATURES
from ziggurat.frontends.language.signature import Signature, active_recorder
from ziggurat.frontends.library import LIBRARY
from ziggurat.frontends.library.combine import COMBINE

NUMPY = {
    "i1": "bool", "i32": "int32", "i64": "int64", "u32": "uint32", "u64": "uint64", "f16": "float16", "f32": "float32",
    "f64": "float64",
}  # fmt: skip
OURS = {np.dtype(theirs): SCALARS[ours] for ours, theirs in NUMPY.items()}


@attrs.frozen(eq=False)
class Tensor:
    """A NumPy array as a kernel sees it: no operators, `shape` and `dtype` in our terms."""

    data: np.ndarray[Any, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def dtype(self) -> ScalarType:
        return OURS[self.data.dtype]


def tensor(values: Any, dtype: str) -> Tensor:
    return Tensor(np.asarray(values, dtype=dtype))


def numbers(x: Any) -> Any:
    return x.data if isinstance(x, Tensor) else x


def together(*values: Any) -> list[np.ndarray[Any, Any]]:
    """Operands in one dtype: a literal takes that of the tensors, or f32 where it is a float among integers."""
    tensors = [v.data for v in values if isinstance(v, Tensor)]
    dtype = np.result_type(*tensors)
    if dtype.kind != "f" and any(isinstance(v, float) for v in values):
        dtype = np.dtype("float32")
    return [np.asarray(numbers(v), dtype=dtype) for v in values]


def elementwise(compute: Callable[..., Any]) -> Callable[..., Tensor]:
    return lambda *values: Tensor(np.asarray(compute(*together(*values))))


def umulhi(a: Any, b: Any) -> Tensor:
    a, b = together(a, b)
    assert a.dtype == np.uint32
    return Tensor((a.astype(np.uint64) * b.astype(np.uint64) >> np.uint64(32)).astype(np.uint32))


def broadcast(x: Tensor, shape: Any) -> Tensor:
    return Tensor(np.broadcast_to(x.data, shape.shape if isinstance(shape, Tensor) else shape))


def cast(x: Any, dtype: ScalarType, *_: Any) -> Tensor:
    return Tensor(np.asarray(numbers(x)).astype(NUMPY[dtype.name]))


CALLS: dict[str, Callable[..., Any]] = {
    **{name: elementwise(getattr(np, theirs)) for name, theirs in {
        "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "xor": "bitwise_xor",
        "or_": "bitwise_or", "shr": "right_shift",
        "equal": "equal", "less": "less", "greater": "greater",
        "exp": "exp", "log": "log", "sqrt": "sqrt", "sin": "sin", "cos": "cos",
    }.items()},
    "maximum": lambda a, b, _propagate_nan: elementwise(np.fmax)(a, b),
    "fdiv": lambda a, b, _ieee_rounding: elementwise(np.divide)(a, b),
    "floordiv": elementwise(lambda a, b: (a / b).astype(a.dtype)),
    "umulhi": umulhi,
    "cast": cast,
    "bitcast": lambda x, dtype: Tensor(x.data.view(NUMPY[dtype.name])),
    "where": lambda condition, x, y: Tensor(np.where(numbers(condition), *together(x, y))),
    "static_range": lambda arg1, arg2, step: range(arg1) if arg2 is None else range(arg1, arg2, step or 1),
    "broadcast": broadcast,
    "max": lambda x, axis, _indices, _tie, keep_dims: Tensor(np.max(x.data, axis=axis, keepdims=keep_dims)),
    "sum": lambda x, axis, keep_dims, _dtype: Tensor(np.sum(x.data, axis=axis, keepdims=keep_dims)),
}  # fmt: skip


class InNumPy:
    """A recorder that computes at once."""

    def call(self, signature: Signature, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
        return CALLS[signature.name](*signature.bind(arguments, keywords).values())

    def call_function(self, function: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
        return function.fn(*arguments, **keywords)


@pytest.fixture
def run() -> Iterator[Callable[..., Any]]:
    """Calls a function of the library, and gives NumPy arrays."""

    def call(name: str, *arguments: Any, **keywords: Any) -> Any:
        with np.errstate(all="ignore"):
            result = LIBRARY[name](*arguments, **keywords)
        return tuple(map(numbers, result)) if isinstance(result, tuple) else result.data

    token = active_recorder.set(InNumPy())
    yield call
    active_recorder.reset(token)


Run = Callable[..., Any]


@pytest.mark.parametrize("name", LIBRARY)
def test_a_function_has_the_parameters_of_its_call(name: str):
    function, signature = LIBRARY[name], SIGNATURES[name]
    parameters = function.signature.parameters.values()
    assert [(p.name, p.default, p.annotation == "zg.constexpr") for p in parameters] == [
        (p.name, p.default, p.constexpr) for p in signature.parameters
    ]
    assert function.fn.__globals__.get("zg", language) is language


def test_symbols():
    assert all(function.name == name for name, function in LIBRARY.items())
    for function in (*LIBRARY.values(), *COMBINE.values()):
        assert function.fn.__qualname__ == function.name
    assert COMBINE["sum"].name == "sum" and COMBINE["cumprod"].name == "mul"


def test_cdiv(run: Run):
    assert run("cdiv", tensor([0, 1, 10, 11, 20], "int32"), 10).tolist() == [0, 1, 1, 2, 2]


# Salmon et al. published these with their code (Random123's known-answer tests).
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_words(run: Run, counter: str, key: str, expected: str):
    low, high = (int(word, 16) for word in key.split())
    words = [tensor([int(word, 16)], "uint32") for word in counter.split()]
    got = run("philox", tensor(low | high << 32, "uint64"), *words)
    assert [f"{int(word[0]):08x}" for word in got] == expected.split()


def test_philox_brings_its_words_to_one_shape(run: Run):
    words = run("philox", 7, tensor(range(4), "int32"), 0, 0, 0)
    assert [(word.shape, word.dtype) for word in words] == [((4,), np.dtype("uint32"))] * 4
    third = run("philox", 7, tensor(2, "int32"), 0, 0, 0)
    assert [int(word[2]) for word in words] == [int(word) for word in third]


def test_offsets_are_the_low_words_of_the_counter(run: Run):
    wide = run("randint4x", 1, tensor([5 + (3 << 32)], "int64"))
    assert wide == run("philox", 1, tensor([5], "uint32"), 3, 0, 0)
    assert run("randint", 1, tensor([-2], "int32")) == run("philox", 1, tensor([0xFFFFFFFE], "uint32"), 0, 0, 0)[0]
    assert run("randint", 1, tensor([5], "int64")) == run("randint", 1, tensor([5], "int32"))


def test_uniform_numbers(run: Run):
    offset = tensor(range(1 << 14), "int32")
    numbers = run("rand", 42, offset)
    assert numbers.dtype == np.float32 and 0 <= numbers.min() and numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=16, range=(0, 1))
    assert np.abs(counts - 1024).max() < 5 * np.sqrt(1024)
    first, *others = run("rand4x", 42, offset)
    assert (first == numbers).all() and all((first != other).mean() > 0.99 for other in others)


def test_the_ends_of_the_uniform_numbers(run: Run):
    words = [0, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000]
    uniform = LIBRARY["rand"].fn.__globals__["uint_to_uniform_float"]
    got = uniform(tensor(words, "uint32")).data
    assert got.dtype == np.float32 and got[:2].tolist() == [0, 0]
    assert (got[2:] < 1).all() and (got[2:] > 0.9999).all()


def test_normal_numbers(run: Run):
    offset = tensor(range(1 << 14), "int32")
    numbers = run("randn", 42, offset)
    assert numbers.dtype == np.float32 and np.isfinite(numbers).all()
    assert abs(numbers.mean()) < 0.04 and abs(numbers.std() - 1) < 0.03
    assert abs((np.abs(numbers) < 1).mean() - 0.6827) < 0.02
    assert (run("randn4x", 42, offset)[0] == numbers).all()


@zg.kernel
def sigmoid_and_softmax(first, second, x):
    at = zg.add(zg.mul(zg.expand(zg.arange(0, 4), 1), 16), zg.expand(zg.arange(0, 16), 0))
    numbers = zg.load(zg.add(x, at))
    zg.store(zg.add(first, at), zg.sigmoid(numbers))
    zg.store(zg.add(second, at), zg.softmax(numbers, 1))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_sigmoid_and_softmax_round_once(dtype: str):
    x = (np.random.default_rng(0).standard_normal((4, 16)) * 5).astype(dtype)
    wide = x.astype(np.float64)
    result = np.dtype("float32" if dtype == "int32" else dtype)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    exact = 1 / (1 + np.exp(-wide)), powers / powers.sum(axis=1, keepdims=True)
    actual = np.empty((4, 16), result), np.empty((4, 16), result)
    zg.run(sigmoid_and_softmax.triton(*(zg.ptr(OURS[array.dtype]) for array in (*actual, x))), 1, *actual, x)
    for got, expected in zip(actual, exact, strict=True):
        ulp = np.spacing(expected.astype(result)).astype(np.float64)
        assert (np.abs(got - expected) <= (0.501 if dtype == "float16" else 16) * ulp).all()


def test_combining_numbers():
    assert COMBINE["sum"](2, 3) == COMBINE["cumsum"](2, 3) == 5 and COMBINE["cumprod"](2, 3) == 6
    assert COMBINE["max"](2, 3) == 3 and COMBINE["min"](2, 3) == 2 and COMBINE["xor_sum"](6, 3) == 5


NUMBER = st.one_of(st.integers(-2, 2).map(float), st.just(math.nan))


@given(st.lists(NUMBER, min_size=1, max_size=8), st.randoms(use_true_random=False), st.sampled_from([max, min]))
def test_the_place_of_the_extreme_does_not_depend_on_the_order(values: list[float], random: Random, extreme: Any):
    combine = COMBINE[f"arg{extreme.__name__}"]
    pairs = [(value, index) for index, value in enumerate(values)]
    while len(pairs) > 1:
        a, b = (pairs.pop(random.randrange(len(pairs))) for _ in range(2))
        pairs.append(combine(*a, *b))
    ordered = [value for value in values if value == value]
    place = values.index(extreme(ordered)) if ordered else 0
    assert pairs[0][1] == place and repr(pairs[0][0]) == repr(values[place])
