"""Arguments of all libraries that a launch must refuse or read rightly: the first launch, and later ones by plans."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.triton.runtime.driver import HostDriver, driver

torch = require("torch")
jax = require("jax")
N = 16


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """This machine for Triton's programs and JAX's arrays, whether or not it has a GPU."""
    monkeypatch.setattr(driver, "active", HostDriver())
    with jax.default_device(jax.devices("cpu")[0]):
        yield


@zg.kernel
def scaled(x_ptr, y_ptr, n, B: zg.constexpr = N):
    offsets = zg.arange(0, B)
    x = zg.cast(zg.load(zg.add(x_ptr, offsets)), zg.f32)
    zg.store(zg.add(y_ptr, offsets), zg.mul(x, zg.cast(n, zg.f32)))


@triton.jit
def triton_scaled(x_ptr, y_ptr, n, B: tl.constexpr = N):
    offsets = tl.arange(0, B)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets).to(tl.float32) * n)


def explicit() -> Any:
    return zg.kernel(scaled.fn)


def in_triton() -> Any:
    return triton.jit(triton_scaled.fn)


def tuned() -> Any:
    return zg.autotune([zg.Config({"B": N})], key=["n"])(explicit())


def in_triton_tuned() -> Any:
    return triton.autotune([triton.Config({"B": N})], key=["n"])(in_triton())


def values(dtype: Any = np.float32) -> Any:
    return np.arange(1, N + 1).astype(dtype)


class Matrix(np.ndarray):
    pass


class Tensor(torch.Tensor):
    pass


class Lies:
    """An object whose `__array_interface__` or `__dlpack__` is none."""

    def __init__(self, **keywords: Any) -> None:
        vars(self).update(keywords)


class Raises:
    @property
    def __array_interface__(self) -> Any:
        raise RuntimeError("no")

    def __dlpack__(self, **keywords: Any) -> Any:
        raise RuntimeError("no")

    def __dlpack_device__(self) -> Any:
        return 1, 0


def read_only() -> Any:
    x = values()
    x.flags.writeable = False
    return x


def shrunk(tensor: Any, size: int) -> Any:
    tensor.untyped_storage().resize_(size)
    return tensor


def end_of_storage() -> Any:
    tensor = torch.ones(2 * N)
    end = tensor[N:]
    shrunk(tensor, 6 * N)
    return end


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(N)


def mapped() -> Any:
    inside: list[Any] = []
    torch.func.vmap(lambda tensor: (inside.append(tensor), tensor)[1])(torch.ones(3, N))
    return inside[0]


def traced() -> Any:
    inside: list[Any] = []
    jax.make_jaxpr(lambda array: (inside.append(array), array)[1])(np.ones(N, np.float32))
    return inside[0]


def deleted() -> Any:
    array = jax.numpy.ones(N)
    array.delete()
    return array


def lying() -> Any:
    return Lies(__array_interface__={"version": 3, "typestr": "<f4", "shape": (N,), "data": "here"})


# An array, and the values that a kernel reads from it in the order of memory; None where a launch must refuse it.
ARRAYS: dict[str, tuple[Callable[[], Any], Any]] = {
    "numpy": (values, values()),
    "numpy half": (lambda: values(np.float16), values()),
    "numpy integers": (lambda: values(np.int8), values()),
    "read-only": (read_only, values()),
    "other byte order": (lambda: values(">f4"), None),
    "objects": (lambda: values(object), None),
    "strings": (lambda: values(str), None),
    "dates": (lambda: values("M8[s]"), None),
    "complex": (lambda: values(np.complex64), None),
    "records": (lambda: np.zeros(N, [("a", "<f4")]), None),
    "masked": (lambda: np.ma.masked_array(values()), None),
    "0-d": (lambda: np.array(1, np.float32), None),
    "empty": (lambda: np.zeros(0, np.float32), None),
    "short": (lambda: values()[:5], None),
    "broadcast": (lambda: np.broadcast_to(values()[:1], N), None),
    "reversed": (lambda: values()[::-1], None),
    "2-d": (lambda: values().reshape(4, 4), values()),
    "column order": (lambda: np.asfortranarray(values().reshape(4, 4).T), values()),
    "subclass": (lambda: values().view(Matrix), values()),
    "unaligned": (lambda: np.frombuffer(bytes(1) + values().tobytes(), np.float32, N, 1), None),
    "torch": (lambda: torch.from_numpy(values()), values()),
    "torch bf16": (lambda: torch.from_numpy(values()).bfloat16(), values()),
    "parameter": (lambda: torch.nn.Parameter(torch.from_numpy(values())), values()),
    "gradient": (lambda: torch.from_numpy(values()).requires_grad_(), values()),
    "torch subclass": (lambda: torch.from_numpy(values()).as_subclass(Tensor), values()),
    "negative bit": (lambda: torch._neg_view(torch.from_numpy(values())), None),
    "negative bit of bf16": (lambda: torch._neg_view(torch.from_numpy(values()).bfloat16()), None),
    "negative bit of integers": (lambda: torch._neg_view(torch.ones(N, dtype=torch.int32)), None),
    "negative bit of a parameter": (lambda: torch.nn.Parameter(torch._neg_view(torch.ones(N))), None),
    "imaginary parts": (lambda: torch.ones(N, dtype=torch.complex64).conj().imag, None),
    "conjugate bit": (lambda: torch.ones(N, dtype=torch.complex64).conj(), None),
    "zero tensor": (lambda: torch._efficientzerotensor(N), None),
    "zero tensor of bf16": (lambda: torch._efficientzerotensor(N, dtype=torch.bfloat16), None),
    "no storage": (lambda: shrunk(torch.ones(N), 0), None),
    "no storage of bf16": (lambda: shrunk(torch.ones(N, dtype=torch.bfloat16), 0), None),
    "no storage of a parameter": (lambda: torch.nn.Parameter(shrunk(torch.ones(N), 0)), None),
    "half a storage": (lambda: shrunk(torch.ones(N), 2 * N), None),
    "end of a storage": (end_of_storage, None),
    "functional": (lambda: torch._to_functional_tensor(torch.ones(N)), None),
    "meta": (lambda: torch.empty(N, device="meta"), None),
    "sparse": (lambda: torch.eye(4).to_sparse(), None),
    "quantized": (lambda: torch.quantize_per_tensor(torch.ones(N), 1.0, 0, torch.quint8), None),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(3), torch.ones(4)]), None),
    "nested of one size": (lambda: torch.nested.nested_tensor([torch.ones(N)] * 2), None),
    "fake": (fake, None),
    "vmap": (mapped, None),
    "expanded": (lambda: torch.ones(1).expand(N), None),
    "empty torch": (lambda: torch.ones(0), None),
    "columns of torch": (lambda: torch.from_numpy(values()).reshape(4, 4)[:, :4].t(), values()),
    "transposed torch": (lambda: torch.from_numpy(values()).reshape(4, 4).t(), values()),
    "jax": (lambda: jax.numpy.asarray(values()), values()),
    "deleted jax": (deleted, None),
    "jax tracer": (traced, None),
    "lying interface": (lying, None),
    "interface of no dict": (lambda: Lies(__array_interface__=5), None),
    "raising": (Raises, None),
    "data_ptr alone": (lambda: Lies(data_ptr=lambda: 64, dtype=torch.float32), None),
    "null data_ptr": (lambda: Lies(data_ptr=lambda: 0, dtype=torch.float32), None),
    "list": (lambda: [1.0] * N, None),
    "bytes": (lambda: bytes(4 * N), None),
    "object": (object, None),
    "dict": (dict, None),
    "number": (lambda: 5, None),
}  # fmt: skip


OUTSIDE = ("0-d", "empty", "short", "broadcast", "reversed", "expanded", "empty torch")
WARM: list[Callable[[], Any]] = [
    values, lambda: values(np.float16), lambda: values(np.int8), lambda: np.ones(N, np.int32),
    lambda: torch.ones(N), lambda: torch.ones(N).bfloat16(), lambda: torch.ones(N, dtype=torch.int32),
    lambda: torch.nn.Parameter(torch.ones(N)),
]  # fmt: skip
KINDS = pytest.mark.parametrize("make", [explicit, in_triton, tuned, in_triton_tuned])
GRIDS: list[Any] = [(1,), lambda meta: (meta["n"] // meta["n"],)]


def verdict(launcher: Any, x: Any, n: Any, **options: Any) -> Any:
    """The array that a launch has written; None if it raises an error of ours."""
    y = np.full(N, -1, np.float32)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            launcher(x, y, n, **options)
    except zg.ZigguratError:
        return None
    return y


@functools.cache
def launchers(make: Callable[[], Any]) -> list[Any]:
    """A kernel that has launched other arrays: with a grid from before these launches, and with later ones."""
    kernel = make()
    early = kernel[GRIDS[0]]
    for other in WARM:
        for grid in GRIDS:
            assert verdict(kernel[grid], other(), 2) is not None
    return [kernel[GRIDS[0]], early, kernel[GRIDS[1]]]


@KINDS
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_have_one_verdict_at_each_launch(make: Callable[[], Any], name: str):
    kernel = make()
    array, expected = ARRAYS[name]
    tolerant = make in (in_triton, in_triton_tuned)  # An access outside of an array reads 0.
    if tolerant and name in OUTSIDE:
        pytest.skip("Triton's programs read 0 outside of arrays")
    for number, launcher in enumerate((kernel[GRIDS[0]], kernel[GRIDS[1]], *launchers(make))):
        for options in ({}, {"interpret": True}, {"strict": True}):
            result = verdict(launcher, array(), 2, **options)
            assert (result is None) == (expected is None), (number, options)
            assert result is None or (result == 2 * expected).all(), (number, options)


NUMBERS: list[Any] = [
    1, 16, -3, 2**31, 2**63, 2**64, -(2**63) - 1, 10**50, True, 0.5, 1e300, float("nan"), np.int64(3),
    np.int8(-3),
    np.uint64(2**64 - 1), np.float32(0.5), np.float64(0.5), np.float16(0.5), np.bool_(True), None, "1", b"1", 1j, (),
    [],
    object(), np.array(2), np.array([2]),
    np.datetime64(1, "s"), np.longdouble(1), torch.tensor(2), int, zg.i32,
]  # fmt: skip


@pytest.mark.parametrize("make", [explicit, in_triton])
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: type(number).__name__)
def test_numbers_have_one_verdict_at_each_launch(make: Callable[[], Any], number: Any):
    kernel = make()
    first = None
    for warm in (False, True):
        for launcher in (kernel[GRIDS[0]], kernel[GRIDS[0]]):
            for options in ({}, {"interpret": True}, {"strict": True}):
                result = verdict(launcher, values(), number, **options)
                if first is None:
                    first = (result,)
                same = result is first[0] if result is None else np.array_equal(result, first[0], equal_nan=True)
                assert same, (warm, options)
        for other in (2, 2**40, -(2**40), 2**63, 1.5, True, np.int8(3), np.float32(3)) if not warm else ():
            verdict(kernel[GRIDS[0]], values(), other)


@zg.kernel
def constant(o_ptr, C: zg.constexpr):
    zg.store(o_ptr, C[0])


@triton.jit
def triton_constant(o_ptr, C: tl.constexpr):
    tl.store(o_ptr, C[0])


@triton.jit
def triton_nested(o_ptr, C: tl.constexpr):
    tl.store(o_ptr, C[0][0])


@triton.jit
def triton_attribute(o_ptr, C: tl.constexpr):
    tl.store(o_ptr, C.scale)


def change(things: Any) -> None:
    things[0] = 7.0


@pytest.mark.parametrize(
    ("kernel", "make", "change"),
    [
        (constant, lambda: [1.0, 2.0], change), (triton_constant, lambda: [1.0, 2.0], change),
        (triton_nested, lambda: ([1.0], 2), lambda things: change(things[0])),
        (triton_constant, lambda: {0: 1.0}, change),
        (triton_attribute, lambda: SimpleNamespace(scale=1.0), lambda thing: setattr(thing, "scale", 7.0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"interpret": True}, {"strict": True}])
def test_constants_that_change(kernel: Any, make: Callable[[], Any], change: Any, options: dict[str, Any]):
    kernel = type(kernel)(kernel.fn)
    thing, o = make(), np.zeros(1, np.float32)
    for _ in range(2):
        kernel[1](o, thing, **options)
        assert o[0] == 1
    change(thing)
    for other in (thing, thing, make(), thing):
        kernel[1](o, other, **options)
        assert o[0] == (7 if other is thing else 1)


@pytest.mark.parametrize("kernel", [constant, triton_constant])
@pytest.mark.parametrize("options", [{}, {"interpret": True}, {"strict": True}])
def test_no_array_is_a_constant(kernel: Any, options: dict[str, Any]):
    kernel = type(kernel)(kernel.fn)
    for _ in range(2):
        with pytest.raises(zg.LaunchError, match=r"'C' of .*; got ndarray\n.*hint: take the annotation of 'C' away"):
            kernel[1](np.zeros(1, np.float32), np.ones(3), **options)


def test_a_pointer_is_read_under_any_default_device():
    tensor = torch.ones(N)
    with torch.device("meta"):
        for make in (explicit, in_triton):
            pointer = Lies(data_ptr=tensor.data_ptr, dtype=torch.float32)
            assert (verdict(make()[1], pointer, 2) == 2).all()
