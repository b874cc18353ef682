"""Launches on a fake driver that records its calls: arguments as bytes, specialisation, caching, errors."""

import ctypes
import struct
import sys
import threading
from types import SimpleNamespace

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from launched import dispatcher_of as built_by

from ziggurat.backend.cuda.binary import Binary, PtxParameter
from ziggurat.backend.cuda.device_memory import DeviceArray
from ziggurat.backend.cuda.launch import Dispatcher, Launcher
from ziggurat.backend.cuda.specialize import ConstantArgument, KernelParameter, RunTime
from ziggurat.backend.devices.driver import using_stream
from ziggurat.backend.launch import device_arrays
from ziggurat.codemodel.errors import InternalError, LaunchError, MemoryAccessError, ResourceError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.types import SCALARS, f32, f64, i32


class Torchlike:
    """An array with `data_ptr()`, as torch's tensors have it."""

    is_cuda = True

    def __init__(self, pointer, dtype="torch.float32"):
        self.pointer_, self.dtype = pointer, dtype

    def data_ptr(self):
        return self.pointer_


def dispatcher(fake, *names, on_host=None, **changes):
    """A dispatcher whose kernel takes what the specialisation passes; it keeps the specialisations in `.specs`."""
    parameters = [changes.get(name) or KernelParameter(name, constexpr=name.isupper()) for name in names]
    specs = []

    def build(spec):
        specs.append(spec)
        arguments = tuple(PtxParameter(argument.field) for argument in spec.run_time)
        fake.parameters = len(arguments)
        options = dict(spec.options)
        return Binary("entry", "ptx", options.get("num_warps", 4), 0, arguments, spec.target, "kernel")

    result = built_by("kernel", parameters, build, on_host)
    result.specs = specs
    return result


def array(pointer=0x1000, device=0, element=f32):
    return DeviceArray(pointer, (64,), element, device)


def i64s(*values):
    return [struct.pack("=q", value) for value in values]


def test_only_tuples_of_numbers_at_run_time_are_spread(fake):
    """A tuple for a constexpr parameter is a constant."""
    kernel, spread = dispatcher(fake, "n", "SHAPE"), []
    kernel.kernel.spread = spread.append
    kernel.at((1,))(5, (2, 3))
    assert not spread and fake.launches[0]["values"] == i64s(5)
    with pytest.raises(LaunchError):
        kernel.at((1,))((5, 6), (2, 3))
    assert spread == [((5, 6), (2, 3))]


def test_arguments_reach_the_driver_as_bytes(fake):
    kernel = dispatcher(fake, "x", "n", "scale", "flag", "BLOCK")
    kernel.at((7,))(array(0x1230), -5, 0.5, True, 64)
    launch = fake.launches[0]
    assert launch["values"] == [
        struct.pack("=Q", 0x1230),
        struct.pack("=q", -5),
        struct.pack("=f4x", 0.5),
        struct.pack("=?7x", True),
    ]
    assert launch["grid"] == (7, 1, 1) and launch["threads"] == 128 and launch["stream"] == ("stream", 0)


def test_the_hot_path_gives_the_driver_what_the_first_launch_did(fake):
    kernel = dispatcher(fake, "x", "y", "n", "scale", "m", "BLOCK")
    for _ in range(3):
        kernel.at((2, 3))(array(0x1000), array(0x2000), 100, 1.5, 7, BLOCK=32)
    kernel.at((2, 3))(array(0x3000), array(0x2000), 100, 2.5, 7, BLOCK=32)
    first, second, third, fourth = fake.launches
    assert first == second == third
    assert fourth["values"] == [
        struct.pack("=Q", 0x3000),
        struct.pack("=Q", 0x2000),
        *i64s(100),
        struct.pack("=f4x", 2.5),
        *i64s(7),
    ]
    assert len(kernel.specs) == 1 and len(fake.loads) == 1


def test_new_integers_of_a_kind_do_not_compile_again(fake):
    kernel = dispatcher(fake, "x", "n")
    numbers = (3, 5, 7, 2**15 - 1, 2**15 + 1, 2**31 - 1, -9)
    for n in numbers:
        kernel.at((1,))(array(), n)
    assert [spec.arguments[1].small for spec in kernel.specs] == [True, False]
    assert [launch["values"][1] for launch in fake.launches] == i64s(*numbers)


def test_what_a_kernel_is_compiled_for(fake):
    kernel = dispatcher(fake, "x", "n", "K")
    kernel.at((1,))(array(0x1000), 32, 8)
    kernel.at((1,))(array(0x1004), 33, 8)
    kernel.at((1,))(array(0x1000), 1, 8)
    kernel.at((1,))(array(0x1000), 2**40, 8)
    values = [spec.arguments for spec in kernel.specs]
    assert [(a[0].divisibility, a[1]) for a in values] == [
        (16, RunTime("n", i32, 16, True)),
        (1, RunTime("n", i32, 1, True)),
        (16, ConstantArgument("n", 1, i32)),
        (16, RunTime("n", values[3][1].type, 16)),
    ]
    assert str(values[3][1].type) == "i64" and values[0][2] == ConstantArgument("K", 8)
    assert all(spec.target == "sm_90a" for spec in kernel.specs)


def test_constants_are_told_apart_by_type_and_sign(fake):
    kernel = dispatcher(fake, "K")
    for value in (1, True, 1.0, 0.0, -0.0, 1, (1, 2), (True, 2), [1, 2], "a", None, f32):
        kernel.at((1,))(value)
    kernel.at((1,))(float("nan"))
    kernel.at((1,))(float("nan"))
    assert len(kernel.specs) == 11  # of 14: the second 1, the list and the second nan are old ones


def test_an_opt_out_has_neither_divisibility_nor_values(fake):
    kernel = dispatcher(
        fake, "x", "n", n=KernelParameter("n", specialize=False), x=KernelParameter("x", specialize=False)
    )
    for pointer, n in ((0x1000, 16), (0x1004, 1), (0x1008, 5)):
        kernel.at((1,))(array(pointer), n)
    assert len(kernel.specs) == 1 and kernel.specs[0].arguments[1] == RunTime("n", i32, 1)
    assert [launch["values"][1] for launch in fake.launches] == i64s(16, 1, 5)
    kernel.at((1,))(array(), 2**33)
    assert str(kernel.specs[1].arguments[1].type) == "i64"


@pytest.mark.parametrize("values", [(2**63, 5), (5, 2**64 - 1)])
def test_integers_of_64_bits_without_a_sign(fake, values):
    kernel = dispatcher(fake, "n")
    for value in (*values, *values):
        kernel.at((1,))(value)
    assert [launch["values"][0] for launch in fake.launches] == [
        struct.pack("=Q", value) for value in (*values, *values)
    ]


@pytest.mark.parametrize(
    ("value", "field", "expected"),
    [
        (np.float64(0.1), "f32", struct.pack("=f4x", 0.1)),
        (np.float16(0.5), "f16", struct.pack("=e6x", 0.5)),
        (np.float32(3.5), "f32", struct.pack("=f4x", 3.5)),
        (ml_dtypes.bfloat16(1.5), "bf16", struct.pack("=Q", 0x3FC0)),
        (ml_dtypes.float8_e5m2(1.0), "f8e5m2", struct.pack("=Q", 0x3C)),
        (np.int8(-3), "i8", struct.pack("=q", -3)),
        (np.uint32(2**32 - 1), "u32", struct.pack("=Q", 2**32 - 1)),
        (np.bool_(True), "i1", struct.pack("=?7x", True)),
        (1e300, "f32", struct.pack("=f4x", float("inf"))),
    ],
)
def test_numbers_of_numpy_and_floats_out_of_range(fake, value, field, expected):
    kernel = dispatcher(fake, "n")
    kernel.at((1,))(value)
    kernel.at((1,))(value)
    assert kernel.specs[0].arguments[0].field == field
    assert [launch["values"] for launch in fake.launches] == [[expected]] * 2


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.integers(-(2**63), 2**64 - 1),
            st.floats(width=32),
            st.booleans(),
            st.integers(1, 2**40).map(lambda n: ("pointer", n)),
        ),
        min_size=1,
        max_size=8,
    ),
)
def test_the_bytes_are_those_of_struct(fake, values):
    kernel = dispatcher(fake, *(f"a{i}" for i in range(len(values))))
    arguments = [array(value[1]) if isinstance(value, tuple) else value for value in values]
    expected = []
    for value in values:
        if isinstance(value, tuple):
            expected.append(struct.pack("=Q", value[1]))
        elif isinstance(value, bool):
            expected.append(struct.pack("=?7x", value))
        elif isinstance(value, float):
            expected.append(struct.pack("=f4x", value))
        elif value != 1:
            expected.append(struct.pack("=q" if value < 2**63 else "=Q", value))
    fake.launches.clear()
    for _ in range(2):
        kernel.at((1,))(*arguments)
    assert [launch["values"] for launch in fake.launches] == [expected, expected]


def test_options_are_part_of_what_is_compiled(fake):
    kernel = dispatcher(fake, "x", "N")
    for warps in (4, 8, 4, 8):
        kernel.at((1,))(array(), N=2, num_warps=warps)
    assert [launch["threads"] for launch in fake.launches] == [128, 256, 128, 256]
    assert [spec.options for spec in kernel.specs] == [(("num_warps", 4),), (("num_warps", 8),)]


def test_a_later_launch_on_a_stream_looks_no_kernel_up(fake):
    kernel = dispatcher(fake, "x")
    kernel.at((1,))(array())
    launch = kernel.at((1,))
    names: list[str] = []
    for stream in (77, 77, 78):
        names.clear()
        sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
        launch(array(), stream=stream)
        sys.setprofile(None)
    launch(array())
    assert "_z_seek" not in names and [launch["stream"][1] for launch in fake.launches] == [0, 77, 77, 78, 0]


def test_streams(fake):
    kernel = dispatcher(fake, "x")
    arguments = (77, SimpleNamespace(cuda_stream=78), SimpleNamespace(ptr=79), SimpleNamespace(__cuda_stream__=(0, 80)))
    for stream in arguments:
        kernel.at((1,))(array(), stream=stream)
    with using_stream(81):
        kernel.at((1,))(array())
    assert [launch["stream"][1] for launch in fake.launches] == [77, 78, 79, 80, 81]
    assert len(kernel.specs) == 1
    with pytest.raises(LaunchError, match="stream must be an address"):
        kernel.at((1,))(array(), stream="x")


def test_grids(fake):
    kernel = dispatcher(fake, "x", "BLOCK")
    sizes = (
        3, (3,), (3, 4), (3, 4, 5), lambda meta: (meta["BLOCK"], 2), (np.int32(6),), (0,), (3, 0), np.int64(7),
        lambda meta: np.int64(8), lambda meta: [meta["BLOCK"]], lambda meta: 0, np.array([4, 5]),
    )  # fmt: skip
    for grid in (*sizes, *sizes):
        kernel.at(grid)(array(), BLOCK=9)
    expected = [(3, 1, 1), (3, 1, 1), (3, 4, 1), (3, 4, 5), (9, 2, 1), (6, 1, 1), (7, 1, 1), (8, 1, 1), (9, 1, 1)]
    expected.append((4, 5, 1))
    assert [launch["grid"] for launch in fake.launches] == expected * 2
    for grid, message in (
        ((-1,), "integers from 0"),
        ((1.5,), "integers from 0"),
        ((1, 2, 3, 4), "three"),
        ((1, 70000), "at most"),
        (None, "got None"),
        (5.0, "got 5.0"),
        (lambda meta: None, "got None"),
        (lambda meta: 2.0, "got 2.0"),
        (lambda meta: (1, 2, 3, 4), "three"),
        (lambda meta: meta["BLOK"], "asks for 'BLOK', which is no parameter"),
    ):
        with pytest.raises(LaunchError, match=message):
            kernel.at(grid)(array(), BLOCK=9)


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize(
    "outcome",
    [ValueError("x"), KeyError("x"), TypeError("x"), RuntimeError("x"), AttributeError("x"), [2], (np.int64(2),)],
)
def test_a_function_of_the_grid_is_called_once(fake, outcome, warm):
    """One of the functions raises an error, and one gives a grid that the driver does not take as it is."""
    kernel = dispatcher(fake, "x", "BLOCK")
    if warm:
        for _ in range(2):
            kernel.at(lambda meta: 1)(array(), BLOCK=9)
    calls = []

    def grid(meta):
        calls.append(meta["BLOCK"])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    # Arguments of the launch before, other ones of the same kernel, and those of another kernel.
    for count, block in enumerate((9, 10, 16), 1):
        if isinstance(outcome, Exception):
            with pytest.raises(type(outcome)) as error:
                kernel.at(grid)(array(), BLOCK=block)
            assert error.value is outcome
        else:
            kernel.at(grid)(array(), BLOCK=block)
            assert fake.launches[-1]["grid"] == (2, 1, 1)
        assert len(calls) == count and calls[-1] == block


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_a_function_of_the_grid_must_take_one_parameter(fake, warm):
    kernel = dispatcher(fake, "x", "BLOCK")
    if warm:
        kernel.at(lambda meta: 1)(array(), BLOCK=9)
    with pytest.raises(LaunchError, match="must be a function of one parameter, the arguments by name; got: "):
        kernel.at(lambda: 1)(array(), BLOCK=9)


def test_wrong_arguments_are_launch_errors(fake):
    kernel = dispatcher(fake, "x", "n")
    for _ in range(2):
        with pytest.raises(LaunchError, match="needs 'n'"):
            kernel.at((1,))(array())
        with pytest.raises(LaunchError, match="takes 2"):
            kernel.at((1,))(array(), 1, 2)
        with pytest.raises(LaunchError, match="must be an array or a number; got str"):
            kernel.at((1,))(array(), "n")
        kernel.at((1,))(array(), 3)


def test_arrays_on_the_host(fake):
    calls = []
    kernel = dispatcher(fake, "x", "y", on_host=lambda *arguments: calls.append(arguments))
    host = np.zeros(4, np.float32)
    kernel.at((2,))(host, host, strict=True)
    assert calls == [((2, 1, 1), {"x": host, "y": host}, {"strict": True})]
    with pytest.raises(LaunchError, match="'y' of 'kernel' must be on a GPU, as 'x' is"):
        kernel.at((2,))(array(), host)
    assert fake.launches == []


def test_arrays_of_other_libraries_take_routes_of_their_own(fake):
    kernel = dispatcher(fake, "x", "n")
    interface = {"shape": (4,), "typestr": "<f4", "data": (0x5000, False), "version": 3, "stream": None}
    others = (array(0x3000), Torchlike(0x4000), SimpleNamespace(__cuda_array_interface__=interface))
    for _ in range(2):
        for other in others:
            kernel.at((1,))(other, 3)
    addresses = [struct.unpack("=Q", launch["values"][0])[0] for launch in fake.launches]
    assert addresses == [0x3000, 0x4000, 0x5000] * 2
    assert len(kernel.specs) == 1
    kernel.at((1,))(Torchlike(0x4000, "torch.bfloat16"), 3)
    assert str(kernel.specs[1].arguments[0].type) == "ptr<bf16>"


def test_several_devices(fake):
    kernel = dispatcher(fake, "x", "y")
    kernel.at((1,))(array(device=0), array(device=0))
    for _ in range(2):  # Another context than the current one: the driver refuses, and the slow path makes it current.
        kernel.at((1,))(array(device=1), array(device=1))
    kernel.at((1,))(array(device=0), array(device=0))
    assert [launch["function"][2] for launch in fake.launches] == [100, 101, 101, 100]
    assert len(kernel.specs) == 1 and len(fake.loads) == 2 and fake.context == 100
    fresh = dispatcher(fake, "x", "y")
    with pytest.raises(LaunchError, match="several devices: 'x' on 0, 'y' on 1") as error:
        fresh.at((1,))(array(device=0), array(device=1))
    assert "zg.to_device(y.numpy(), device=0)" in str(error.value)
    fresh.at((1,))(array(device=0), array(device=0))
    for _ in range(2):  # after a launch that was right as well
        with pytest.raises(LaunchError, match="several devices"):
            fresh.at((1,))(array(device=0), array(device=1))


def test_the_current_context_is_used(fake):
    fake.context = 500  # somebody's own context of device 0
    kernel = dispatcher(fake, "x")
    kernel.at((1,))(array(device=0))
    fake.context = 600
    kernel.at((1,))(array(device=0))
    assert [launch["function"][2] for launch in fake.launches] == [500, 600]


def test_faults_name_the_kernel(fake, failed):
    kernel = dispatcher(fake, "x")
    kernel.at((1,))(array())
    fake.launch_status = [failed("CUDA_ERROR_ILLEGAL_ADDRESS", 700)] * 2
    with pytest.raises(
        MemoryAccessError, match="'kernel', or a kernel launched before it, accessed memory outside"
    ) as error:
        kernel.at((1,))(array())
    assert "check=True" in str(error.value)
    fake.launch_status = []
    kernel.at((1,))(array())


def test_check_waits_and_is_certain(fake, failed, monkeypatch):
    kernel = dispatcher(fake, "x")
    kernel.at((1,))(array())
    monkeypatch.setattr(fake, "cuCtxSynchronize", lambda: (failed("CUDA_ERROR_ASSERT", 710),))
    with pytest.raises(Exception, match="the kernel 'kernel' stopped at a device assertion"):
        kernel.at((1,))(array(), check=True)


def test_too_large_a_program_says_what_is_too_large(fake, failed):
    kernel = dispatcher(fake, "x")
    fake.attributes["CU_FUNC_ATTRIBUTE_NUM_REGS"] = 255
    fake.launch_status = [failed("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", 701)]
    with pytest.raises(ResourceError, match="255 registers for each of 512 threads") as error:
        kernel.at((1,))(array(), num_warps=16)
    assert "fewer warps" in str(error.value)


def test_threads_do_not_share_buffers(fake):
    kernel = dispatcher(fake, "x", "n")
    original = fake.cuLaunchKernel
    barrier = threading.Barrier(4)
    errors = []

    def slow(*arguments):
        barrier.wait(timeout=10)  # All four have written their arguments before one is read.
        return original(*arguments)

    kernel.at((1,))(array(0x10), 5)
    kernel.at((1,))(array(0x10), 5)
    fake.launches.clear()
    route = next(iter(kernel._routes.values()))
    route.bound.__globals__["_z_driver"] = slow

    def work(number):
        try:
            kernel.at((number,))(array(0x1000 * number), 5)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    calls = {launch["grid"][0]: struct.unpack("=Q", launch["values"][0])[0] for launch in fake.launches}
    assert calls == {number: 0x1000 * number for number in (1, 2, 3, 4)}


def test_a_binary_that_does_not_fit_the_arguments_is_our_fault(fake):
    kernel = built_by(
        "kernel",
        [KernelParameter("x")],
        lambda spec: Binary("entry", "ptx", 4, 0, (PtxParameter("i32"),), spec.target, "kernel"),
    )
    with pytest.raises(InternalError, match=r"must be \(x: ptr<f32>\); got \(i32\)"):
        kernel.at((1,))(array())


def test_a_kernel_without_parameters(fake):
    kernel = dispatcher(fake)
    kernel.at((5,))()
    kernel.at((5,))()
    assert [launch["grid"] for launch in fake.launches] == [(5, 1, 1)] * 2


def test_launcher_of_a_binary(fake):
    launch = Launcher(
        Binary("entry", "ptx", 2, 100, (PtxParameter("ptr"), PtxParameter("i32"), PtxParameter("f64")), "sm_90a")
    )
    fake.sizes = [8, 4, 8]
    launch((3,), array(0x1000), 5, 0.1)
    launch((3,), 0x2000, -5, 1)
    assert [each["values"] for each in fake.launches] == [
        [struct.pack("=Q", 0x1000), struct.pack("=i", 5), struct.pack("=d", 0.1)],
        [struct.pack("=Q", 0x2000), struct.pack("=i", -5), struct.pack("=d", 1)],
    ]
    assert fake.launches[0]["threads"] == 64 and fake.launches[0]["shared"] == 100 and len(fake.loads) == 1
    with pytest.raises(LaunchError, match="does not fit a parameter of type i32"):
        launch((3,), array(), 2**31, 0.1)
    for arguments in ((array(), 1), (array(), 1, 0.1, 2)):
        with pytest.raises(LaunchError, match=r"has the parameters \(ptr, i32, f64\); got"):
            launch((3,), *arguments)
    for arguments, message in (
        ((None, 1, 0.1), "'argument_0' of 'entry' must be an array on a GPU; got None"),
        ((array(), array(), 0.1), "'argument_1' of 'entry' must be a number of i32; got"),
        ((array(), 1, None), "'argument_2' of 'entry' must be a number of f64; got None"),
        ((array(), "1", 0.1), "'argument_1' of 'entry' must be an array or a number; got str"),
        ((np.zeros(4), 1, 0.1), "'argument_0' of 'entry' must be on a GPU"),
    ):
        for _ in range(2):
            with pytest.raises(LaunchError, match=message):
                launch((3,), *arguments)
    launch((3,), array(0x3000), 2, 0.5, stream=0)
    assert len(fake.launches) == 3 and len(fake.loads) == 1


def test_later_launches_of_a_binary_are_not_learned_again(fake, monkeypatch):
    launch = Launcher(Binary("entry", "ptx", 2, 0, (PtxParameter("ptr"), PtxParameter("i32")), "sm_90a"))
    fake.sizes = [8, 4]
    launch((3,), array(), 5, stream=9)
    monkeypatch.setattr(Launcher, "_learn", None)
    for number in range(3):
        launch.at((number + 1, 1, 1))(array(0x2000 + 16 * number), number, stream=10)
    assert [launch["stream"][1] for launch in fake.launches] == [9, 10, 10, 10]
    assert [launch["values"][1] for launch in fake.launches[1:]] == [struct.pack("=i", number) for number in range(3)]


def addresses(fake):
    return [struct.unpack("=Q", launch["values"][0])[0] for launch in fake.launches]


def test_a_launch_like_the_one_before_is_told_from_one_that_looks_alike(fake):
    kernel = dispatcher(fake, "x", "n", "scale", "K")
    shifted, other = array(0x1004), array(element=i32)
    for x, n, scale, constant in (
        (array(), 32, 0.5, 2),
        (array(), 32, 0.5, 2),
        (array(), 32, 0.0, 2),
        (array(), 32, -0.0, 2),  # equal, and written in another way
        (array(), 32.0, 0.5, 2),  # equal, and of another type
        (array(), 32, 0.5, 2.0),
        (shifted, 32, 0.5, 2),
        (other, 32, 0.5, 2),
        (array(), np.int32(32), 0.5, 2),
        (array(0x2000), 32, 0.5, 2),
        (array(), 48, 0.5, 2),
    ):
        kernel.at((1,))(x, n, scale, K=constant)
    scales = [launch["values"][2] for launch in fake.launches]
    assert scales[:4] == [struct.pack("=f4x", scale) for scale in (0.5, 0.5, 0.0, -0.0)]
    assert addresses(fake) == [0x1000] * 6 + [0x1004, 0x1000, 0x1000, 0x2000, 0x1000]
    ints = [launch["values"][1] for launch in fake.launches]
    assert ints[4] == struct.pack("=f4x", 32.0) and ints[-1] == struct.pack("=q", 48)
    text = [tuple(map(str, spec.arguments)) for spec in kernel.specs]
    assert len(text) == len(set(text)) == 5  # f32 for n, 2.0 for K, the shifted array, the array of i32


def test_kinds_that_take_turns_are_launched_without_being_learned_again(fake, monkeypatch):
    kernel = dispatcher(fake, "x", "n")
    learned = []
    original = Dispatcher._learn
    monkeypatch.setattr(Dispatcher, "_learn", lambda self, *rest: learned.append(rest) or original(self, *rest))
    for _ in range(3):
        for n in (5, 0.5, True, np.int64(5)):
            kernel.at((1,))(array(), n)
    assert len(fake.launches) == 12 and len(learned) == 4
    assert [launch["values"] for launch in fake.launches[:4]] == [launch["values"] for launch in fake.launches[8:]]


def test_options_are_part_of_what_is_like_the_launch_before(fake):
    kernel = dispatcher(fake, "x")
    for warps in (8, 8, 4, 8, None, None, 8):
        kernel.at((1,))(array(), **({} if warps is None else {"num_warps": warps}))
    assert [launch["threads"] // 32 for launch in fake.launches] == [8, 8, 4, 8, 4, 4, 8]


class Tensor:
    """As torch's: on device -1, which is the host, there is an address as well."""

    def __init__(self, pointer, device=0, dtype="torch.float32"):
        self.pointer, self.device_number, self.dtype = pointer, device, dtype

    @property
    def is_cuda(self):
        return self.device_number >= 0

    def __array__(self):
        raise TypeError("on the host, and in no form that NumPy reads")

    def data_ptr(self):
        return self.pointer

    def get_device(self):
        return self.device_number


@pytest.fixture
def torch(monkeypatch):
    streams = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 1000 + device)
    cuda = SimpleNamespace(is_initialized=lambda: True, current_device=lambda: result.device)
    result = SimpleNamespace(Tensor=Tensor, _C=streams, cuda=cuda, device=0)
    monkeypatch.setitem(sys.modules, "torch", result)
    return result


def test_every_tensor_is_checked_at_every_launch(fake, torch):
    kernel = dispatcher(fake, "x", "y", "n")
    x, y = Tensor(0x1000), Tensor(0x2000)
    for _ in range(3):
        kernel.at((1,))(x, y, 5)
    elsewhere = {1: "several devices: 'x' on 0, 'y' on 1", -1: "'y' of 'kernel' must be on a GPU"}
    for device, message in elsewhere.items():
        for _ in range(2):
            with pytest.raises(LaunchError, match=message):
                kernel.at((1,))(x, Tensor(0x3000, device), 5)
    kernel.at((1,))(x, Tensor(0x3004), 5)
    kernel.at((1,))(x, Tensor(0x2000, dtype="torch.int32"), 5)
    kernel.at((1,))(x, y, 5)
    kernel.at((1,))(Tensor(0x5000, 1), Tensor(0x6000, 1), 5)
    text = [[str(a.type) + str(a.divisibility) for a in spec.arguments[:2]] for spec in kernel.specs]
    assert text == [["ptr<f32>16", "ptr<f32>16"], ["ptr<f32>16", "ptr<f32>1"], ["ptr<f32>16", "ptr<i32>16"]]
    assert [launch["stream"][1] for launch in fake.launches] == [1000] * 6 + [1001]
    assert fake.launches[-1]["function"][2] == 101


def launched_on(fake):
    """The address of the stream and the context of each launch."""
    return [(launch["stream"][1], launch["function"][2]) for launch in fake.launches]


@pytest.mark.parametrize("arguments", [(), (0x1000,), (0x1000, 5, 0.5)])
@pytest.mark.parametrize("grid", [(1,), lambda meta: 1])
def test_without_arrays_a_launch_is_on_the_stream_and_the_device_in_use(fake, torch, arguments, grid):
    kernel = dispatcher(fake, *(f"a{n}" for n in range(len(arguments))))
    devices = (0, 0, 1, 0, 1, 1)
    for torch.device in devices:
        kernel.at(grid)(*arguments)
    assert launched_on(fake) == [(1000 + device, 100 + device) for device in devices]
    kernel.at(grid)(*arguments, stream=5)
    with using_stream(7):
        kernel.at(grid)(*arguments)
    assert launched_on(fake)[-2:] == [(5, 101), (7, 101)]


def test_the_stream_in_use_is_not_that_of_a_library_whose_gpu_is_not(fake, torch, monkeypatch):
    torch.cuda.is_initialized = lambda: False
    kernel = dispatcher(fake, "address")
    for _ in range(2):
        kernel.at((1,))(0x1000)
    current = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=55))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=current, ndarray=Torchlike))
    kernel.at((1,))(0x1000)
    torch.cuda.is_initialized = lambda: True
    kernel.at((1,))(0x1000)
    assert launched_on(fake) == [(0, 100), (0, 100), (55, 100), (1000, 100)]


def test_arrays_decide_before_the_stream_in_use(fake, torch):
    """Arrays of libraries without streams keep their own; an object that tells only an address is like a number."""
    kernel = dispatcher(fake, "x", "address")
    fake.devices[0x9000] = 1
    for x in (array(), by_interface(0x1000), Torchlike(0x1000), Tensor(0x9000, 1)):
        for _ in range(2):
            kernel.at((1,))(x, 0x2000)
    assert [stream for stream, _ in launched_on(fake)] == [0, 0, 0, 0, 1000, 1000, 1001, 1001]


def test_errors_of_launches_show_where_the_kernel_stands(fake, failed):
    place = Location("kernels.py", 12)
    parameters = [KernelParameter("x")]
    binary = Binary("entry", "ptx", 4, 0, (PtxParameter("ptr"),), "sm_90a", "kernel")
    kernel = built_by("kernel", parameters, lambda spec: binary, None, place)
    fake.parameters = 1
    kernel.at((1,))(array())
    for status, error in (("ILLEGAL_ADDRESS", MemoryAccessError), ("LAUNCH_OUT_OF_RESOURCES", ResourceError)):
        fake.launch_status = [failed(f"CUDA_ERROR_{status}", 700)] * 3
        with pytest.raises(error) as failure:
            kernel.at((1,))(array())
        assert failure.value.location == place and "kernels.py:12" in str(failure.value)


def by_dlpack(pointer, device, code=2, bits=32, failure=None):
    """An array that is known by DLPack alone."""
    tensor = device_arrays._Tensor(pointer, 2, device, 1, code, bits, 1, None, None, 0)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    def capsule(**_):
        if failure is not None:
            raise failure
        return new(ctypes.addressof(tensor), b"dltensor", None)

    return SimpleNamespace(__dlpack__=capsule, __dlpack_device__=lambda: (2, device), kept=tensor)


def by_interface(pointer):
    return SimpleNamespace(
        __cuda_array_interface__={"typestr": "<f4", "data": (pointer, False), "shape": (8,), "version": 3}
    )


MADE = {
    "DLPack": by_dlpack,
    "interface": lambda at, device: by_interface(at),
    "pointer": lambda at, device: Torchlike(at),
}


@pytest.mark.parametrize("kind", MADE)
def test_every_launch_is_on_the_device_of_its_arrays(fake, kind):
    """The array names its device, or else the driver does: at the first launch and at later ones."""
    kernel, devices = dispatcher(fake, "x", "y"), (0, 1, 0, 1, 1)
    for number, device in enumerate(devices):
        x, y = 0x10000 * (2 * number + 1), 0x10000 * (2 * number + 2)
        fake.devices |= {x: device, y: device}
        kernel.at((1,))(MADE[kind](x, device), MADE[kind](y, device))
    assert [launch["function"][2] for launch in fake.launches] == [100 + device for device in devices]
    fake.devices |= {0x900000: 1}
    for _ in range(2):
        with pytest.raises(LaunchError, match="the arrays of 'kernel' are on several devices: 'x' on 0, 'y' on 1"):
            kernel.at((1,))(MADE[kind](0x10000, 0), MADE[kind](0x900000, 1))
    assert len(fake.launches) == len(devices)


def test_arrays_that_dlpack_does_not_give(fake):
    kernel = dispatcher(fake, "x")
    for _ in range(2):
        with pytest.raises(LaunchError, match="'x' is an array of an unknown type, which kernels do not have"):
            kernel.at((1,))(by_dlpack(0x1000, 0, code=5, bits=64))
        with pytest.raises(LaunchError, match="'x' cannot be read as an array on a GPU: it requires grad"):
            kernel.at((1,))(by_dlpack(0x1000, 0, failure=BufferError("it requires grad")))
        kernel.at((1,))(by_dlpack(0x1000, 0))


def test_the_stream_of_a_library_that_has_one(fake, monkeypatch):
    """The array may stand at any place among those of libraries without streams."""

    class Tensor(Torchlike):
        def get_device(self):
            return 0

    current = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 77)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, _C=current))
    kernel = dispatcher(fake, "x", "y")
    for _ in range(3):
        kernel.at((1,))(array(), Tensor(0x2000))
        kernel.at((1,))(Tensor(0x1000), array())
        kernel.at((1,))(by_interface(0x1000), array())
    assert [launch["stream"][1] for launch in fake.launches] == [77, 77, 0] * 3


def test_options_are_demanded_before_anything_is_compiled(fake):
    def demand(options):
        if options:
            raise LaunchError("no such option")

    kernel = dispatcher(fake, "x")
    kernel.kernel.check_options = demand
    kernel.at((1,))(array())
    for value in (3, [4]):
        with pytest.raises(LaunchError, match="no such option"):
            kernel.at((1,))(array(), wraps=value)
    assert len(kernel.specs) == 1


@pytest.mark.parametrize("specialize", [True, False])
@pytest.mark.parametrize(
    ("names", "good", "wrong"),
    [
        ("u8", (5, 200, 17, 0, 16), (300, -3, 256, 16 * 100, 2.5)),
        ("i16", (5, -200, 16), (1 << 15, -(1 << 15) - 1, 0.5)),
        ("i64", (5, 1 << 40, -(1 << 40), 16), (1 << 63, 1.5)),
        ("u64", (5, 1 << 40, 2**64 - 1), (-1, -16)),
    ],
)
def test_declared_integers_are_checked_at_each_launch(fake, names, good, wrong, specialize):
    type_ = SCALARS[names]
    kernel = dispatcher(fake, "n", n=KernelParameter("n", specialize=specialize, declared=type_, typed=True))
    for _ in range(3):
        for value in (*good, *good):
            kernel.at((1,))(value)
            assert fake.launches[-1]["values"][0][:1] == struct.pack("=q" if value < 0 else "=Q", value)[:1]
            assert all(argument.type == type_ for argument in kernel.specs[-1].arguments)
        for value in wrong:
            with pytest.raises(LaunchError, match=f"'n' of 'kernel' is declared as {names}"):
                kernel.at((1,))(value)


def test_declared_floats_take_any_number(fake):
    kernel = dispatcher(fake, "s", s=KernelParameter("s", declared=f64, typed=True))
    for value in (0.1, 3, np.float32(0.5), True, 0.1, 3):
        kernel.at((1,))(value)
        assert fake.launches[-1]["values"][0] == struct.pack("=d", value)
