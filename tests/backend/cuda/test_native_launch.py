"""Launches by machine code, compared with those by Python; PyTorch and the driver are fakes."""

import contextlib
import ctypes
import random
import struct
import sys
from types import SimpleNamespace

import pytest

from ziggurat.backend.cuda import native_launch
from ziggurat.backend.cuda.binary import Binary, LaunchMap, PtxParameter
from ziggurat.backend.cuda.launch import Launcher
from ziggurat.backend.cuda.loaded import load
from ziggurat.backend.cuda.routes import Route
from ziggurat.backend.cuda.specialize import KernelParameter, Specialization, described, kind_of
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import f32, f64

LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)


class Tensor:
    is_cuda = True

    def __init__(self, pointer, dtype="torch.float32", device=0):
        self.pointer, self.dtype, self.device = pointer, dtype, device

    def data_ptr(self):
        return self.pointer

    def get_device(self):
        return self.device


@pytest.fixture
def driver(fake, monkeypatch):
    """The fake driver with a C function that launches: `native` records its launches, `status` is its result."""
    torch = SimpleNamespace(
        Tensor=Tensor,
        nn=SimpleNamespace(Parameter=type("Parameter", (Tensor,), {})),
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 64 + device),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    fake.native, fake.status = [], 0

    @LAUNCH
    def launch(function, x, y, z, threads, ty, tz, shared, stream, pointers, extra):
        if fake.status:
            return fake.status
        sizes = fake.sizes or [8] * fake.parameters
        places = (ctypes.c_void_p * len(sizes)).from_address(pointers)
        values = [ctypes.string_at(at, size) for at, size in zip(places, sizes, strict=True)]
        fake.native.append((function, (x, y, z), (threads, ty, tz), shared, stream, values))
        return 0

    address = ctypes.cast(launch, ctypes.c_void_p).value
    fake.cuGetProcAddress = lambda symbol, version, flags: (type(fake.cuInit(0)[0])(0), address, 0)
    native_launch.start.cache_clear()
    yield fake
    native_launch.start.cache_clear()


class Kernel:
    """A route that compiles nothing: it learns a kernel for each new specialization, in Python."""

    def __init__(self, fake, parameters, maps=()):
        self.fake, self.parameters, self.maps = fake, parameters, maps
        self.slow = 0

    def of(self, values):
        self.kinds = [kind_of(value, p, "k") for value, p in zip(values, self.parameters, strict=True)]
        self.route = Route(self.parameters, self.kinds, self.generic)
        return self

    def generic(self, x, y, z, values, more, options, stream, route):
        self.slow += 1
        arguments = tuple(map(described, values, self.kinds, self.parameters))
        spec = Specialization(arguments, "sm_90a", tuple(options.items()))
        parameters = tuple(PtxParameter(argument.field) for argument in spec.run_time)
        self.fake.parameters = len(parameters) + len(self.maps)
        binary = Binary("entry", "ptx", 2, 48, parameters, "sm_90a", maps=self.maps)
        self.route.learn(values, options, load(binary), spec, "result")

    def __call__(self, /, *values, grid=(3, 2, 1), **options):
        return self.route.bound(*grid)(*values, **options)


def launches(fake):
    """The launches that were made in Python, as the C function records them."""
    return [
        (0x1234, item["grid"], (item["threads"], 1, 1), item["shared"], int(item["stream"]), item["values"])
        for item in fake.launches
    ]


def test_machine_code_launches_what_python_launches(driver, monkeypatch):
    monkeypatch.setattr(native_launch, "_MADE", 10**6)
    names = ["x", "y", "n", "m", "free", "scale", "flag", "BLOCK", "none"]
    parameters = [
        KernelParameter(name, constexpr=name == "BLOCK", specialize=name not in ("y", "free")) for name in names
    ]
    kernel = Kernel(driver, parameters).of([Tensor(0), Tensor(0), 2, 2, 2, 0.5, True, 64, None])
    choice = random.Random(5)
    tensors = [Tensor(16 * n, choice.choice(["torch.float32", "torch.int32"])) for n in range(1, 6)]
    tensors += [Tensor(0x1004), Tensor((1 << 47) + 64)]
    integers = [1, 2, 3, 16, 48, 1 << 31, -(1 << 31), 1 << 40, -(1 << 62), -16]
    floats = [0.5, -0.0, 0.0, 1e300, float("inf"), float("nan")]
    missed = compared = 0
    before: tuple = ()
    for _ in range(3000):
        values = (
            *choice.choices(tensors, k=2), *choice.choices(integers, k=3), choice.choice(floats),
            choice.random() < 0.5, choice.choice([64, 128]), None,
        )  # fmt: skip
        values = tuple(new if choice.random() < 0.2 else old for old, new in zip(before or values, values, strict=True))
        before = values
        options = {"num_warps": 8} if choice.random() < 0.3 else {}
        driver.parameters = 7 - sum(value == 1 and type(value) is int for value in values[2:4])
        driver.launches.clear(), driver.native.clear()
        slow = kernel.slow
        actual = kernel(*values, **options)
        if kernel.slow > slow:
            missed += 1
            continue
        by_code, by_python = list(driver.native), launches(driver)
        assert actual == "result" and len(by_code) + len(by_python) == 1
        if by_code:
            due, function = list(kernel.route.plans.due), list(kernel.route.plans.function)
            kernel.route.plans.due.clear(), kernel.route.plans.function.clear()
            kernel(*values, **options)
            kernel.route.plans.due.extend(due), kernel.route.plans.function.extend(function)
            assert by_code == launches(driver)
            compared += 1
    assert compared > 500 and missed > 50


def ready(driver, *values, parameters=None, maps=()):
    """A kernel that was launched so often that machine code knows these arguments."""
    parameters = parameters or [KernelParameter(f"a{i}") for i in range(len(values))]
    kernel = Kernel(driver, parameters, maps).of(values)
    for _ in range(native_launch.BEFORE + 3):
        kernel(*values)
    assert len(driver.native) == 1 or len(driver.launches) > native_launch.BEFORE
    driver.native.clear(), driver.launches.clear()
    return kernel


@pytest.mark.parametrize(
    "other",
    [
        (Tensor(0x2000, "torch.int32"), 5, 0.5), (Tensor(0x2000, device=1), 5, 0.5), (Tensor(0x2004), 5, 0.5),
        (Tensor(0x2000), True, 0.5), (Tensor(0x2000), 16, 0.5), (Tensor(0x2000), 1 << 70, 0.5),
        (Tensor(0x2000), 5, 1), (Tensor(0x2000), 5.0, 0.5), (None, 5, 0.5), (Tensor(-8), 5, 0.5),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_left_to_python(driver, other):
    kernel = ready(driver, Tensor(0x1000), 5, 0.5)
    kernel(Tensor(0x3000), 7, 0.25)
    assert len(driver.native) == 1 and not driver.launches
    slow = kernel.slow
    with contextlib.suppress(LaunchError, TypeError):
        kernel(*other)
    assert len(driver.native) == 1 and (kernel.slow > slow or len(driver.launches) == 1)


@pytest.mark.parametrize(
    ("value", "fit", "others"),
    [
        (5, (-(2**31), 2**31 - 1), (2**31, -(2**31) - 1)),
        (1 << 40, (2**31, 2**63 - 1), (2**31 - 1, 2**63, -(1 << 40))),
        (-(1 << 40), (-(2**31) - 1, -(2**63)), (-(2**31), -(2**63) - 1, 1 << 40)),
    ],
)
def test_integers_of_one_width_are_launched_by_machine_code(driver, value, fit, others):
    """From the least to the largest that has the width of the first."""
    kernel = ready(
        driver, Tensor(0x1000), value, parameters=[KernelParameter("x"), KernelParameter("n", specialize=False)]
    )
    for number in fit:
        kernel(Tensor(0x1000), number)
    assert [launch[-1][1] for launch in driver.native] == [struct.pack("=q", number) for number in fit]
    for number in others:
        with contextlib.suppress(LaunchError):
            kernel(Tensor(0x1000), number)
    assert len(driver.native) == len(fit)


@pytest.mark.parametrize(("declared", "written"), [(f64, "=d"), (f32, "=f4x")])
def test_floats_have_the_width_that_the_source_declares(driver, declared, written):
    kernel = ready(
        driver, Tensor(0x1000), 0.5, parameters=[KernelParameter("x"), KernelParameter("s", declared=declared)]
    )
    kernel(Tensor(0x1000), 0.1)
    assert [launch[-1][1] for launch in driver.native] == [struct.pack(written, 0.1)]


def test_a_dtype_that_changes_in_place_is_seen(driver):
    x = Tensor(0x1000)
    kernel = ready(driver, x, 5)
    kernel(x, 5)
    x.dtype = "torch.float16"
    slow = kernel.slow
    kernel(x, 5)
    assert len(driver.native) == 1 and kernel.slow == slow + 1


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: [1.0, 2.0], lambda things: things.append(3.0)), (lambda: {1: 2}, lambda things: things.update({1: 3})),
        (lambda: {1}, lambda things: things.add(2)), (lambda: ([1], 2), lambda things: things[0].append(3)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [1, native_launch.BEFORE + 3])
def test_a_constant_that_changes_in_place_is_seen(driver, make, change, before):
    x, things = Tensor(0x1000), make()
    kernel = Kernel(driver, [KernelParameter("x"), KernelParameter("things", constexpr=True)]).of((x, things))
    for _ in range(before):
        kernel(x, things)
    change(things)
    for _ in range(2):
        kernel(x, things)
        kernel(x, make())
        kernel(x, things)
    assert kernel.slow == 2 and not driver.native


def test_an_error_of_the_driver_is_left_to_python(driver):
    kernel = ready(driver, Tensor(0x1000), 5)
    driver.status = 700
    assert kernel(Tensor(0x1000), 5) == "result"
    assert not driver.native and len(driver.launches) == 1


def test_grids_and_streams(driver):
    kernel = ready(driver, Tensor(0x1000), 5)
    for grid in ((7, 1, 2), (lambda meta: (meta["a1"], 4), None, None)):
        kernel(Tensor(0x1000), 5, grid=grid)
    kernel(Tensor(0x1000), 5, stream=99)
    kernel(Tensor(0x1000), 5, stream=SimpleNamespace(cuda_stream=98))
    assert [case[1] for case in driver.native] == [(7, 1, 2), (5, 4, 1), (3, 2, 1)]
    assert [case[4] for case in driver.native] == [64, 64, 99]
    assert [int(item["stream"]) for item in driver.launches] == [98]
    for grid in ((0, 1, 1), (1 << 31, 1, 1), (2.0, 1, 1)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(driver), "cuLaunchKernel", lambda *argument: (1,))
            kernel(Tensor(0x1000), 5, grid=grid)
    assert len(driver.native) == 3


def test_a_binary_is_started_on_a_stream(driver):
    driver.parameters = 2
    launcher = Launcher(Binary("entry", "ptx", 2, 48, (PtxParameter("ptr"), PtxParameter("i32")), "sm_90a"))
    driver.sizes = [8, 4]
    for number in range(native_launch.BEFORE + 3):
        launcher.start(3, 2, 1, 7, (Tensor(0x1000), number + 5))
    launcher.start(3, 2, 1, 0, (Tensor(0x1010), 16))  # Other classes of arguments, which no code depends on.
    launcher.start(4, 1, 1, 8, (Tensor(0x1000), 5))
    assert [(case[1], case[4], case[5][1][0]) for case in driver.native[-1:]] == [((4, 1, 1), 8, 5)]
    assert len(driver.native) + len(driver.launches) == native_launch.BEFORE + 5
    with pytest.raises(LaunchError, match="must be a number of i32"):
        launcher.start(1, 1, 1, 7, (Tensor(0x1000), Tensor(0x1000)))


def test_tensor_maps_are_those_of_the_arguments(driver):
    one = LaunchMap("f16", (64, 64), 128, ("0", "1", "1", "2"))
    driver.sizes = [8, 8, 8, 128]
    kernel = ready(driver, Tensor(0x1000, "torch.float16"), 512, 1024, maps=(one,))
    encoded = bytes(range(128))
    for address, size in ((0x1000, 512), (0x1000, 512), (0x2000, 512), (0x1000, 256)):
        kernel(Tensor(address, "torch.float16"), size, 1024)
    assert len(driver.native) == 2 and len(driver.launches) == 2
    assert all(values[3] == encoded for *_, values in driver.native)
    kernel(Tensor(0x2000, "torch.float16"), 512, 1024)
    assert len(driver.native) == 3  # The launch before made a plan.


def test_python_launches_where_there_is_no_machine_code(driver, monkeypatch):
    monkeypatch.setenv("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "1")
    kernel = Kernel(driver, [KernelParameter("x")]).of([Tensor(0x1000)])
    for _ in range(2 * native_launch.BEFORE):
        kernel(Tensor(0x1000))
    assert not driver.native and not kernel.route.plans.due


@pytest.mark.parametrize("count", [1, 2])
def test_launches_without_arrays_are_made_in_python_on_machines_with_several_devices(driver, count):
    """A plan knows the device of its arrays, and not the one in use."""
    driver.count = count
    parameters = [KernelParameter("x"), KernelParameter("n")]

    def plans(*values):
        kinds = [kind_of(value, array, "k") for array, value in zip(parameters, values, strict=True)]
        return Route(parameters, kinds, print).plans

    assert bool(plans(1, 5).due) is bool(plans(None, 5).due) is (count == 1)
    assert plans(Tensor(0x1000), 5).due
