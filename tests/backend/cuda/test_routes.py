"""A route by itself: the launches of the hot path, and the arguments that it passes on to the slow path."""

import ast
import itertools
import struct

import ml_dtypes
import numpy as np
import pytest

from ziggurat.backend.cuda.binary import Binary, PtxParameter
from ziggurat.backend.cuda.device_memory import DeviceArray
from ziggurat.backend.cuda.loaded import load
from ziggurat.backend.cuda.packing import fitted
from ziggurat.backend.cuda.routes import Route, Writer, arranged
from ziggurat.backend.cuda.specialize import (
    ConstantArgument,
    KernelParameter,
    Kind,
    RunTime,
    Specialization,
    constant_class,
    described,
    integer_class,
    kind_of,
)
from ziggurat.backend.launch.descriptors import NO_TILE, TensorDescriptor
from ziggurat.backend.launch.device_arrays import ArrayReader
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.types import DescriptorType, PtrType, f32, i32


def array(pointer=0x1000):
    return DeviceArray(pointer, (64,), f32, 0)


class Kernel:
    """A route for arguments like these; `handed` records the arguments that it passes on."""

    def __init__(self, fake, *values, names=None):
        self.fake, self.handed = fake, []
        names = names or [f"a{i}" for i in range(len(values))]
        self.parameters = [KernelParameter(name) for name in names]
        self.kinds = [kind_of(value, p, "k") for value, p in zip(values, self.parameters, strict=True)]
        self.route = Route(self.parameters, self.kinds, lambda *argument: self.handed.append(("generic", *argument)))

    def learn(self, *values, **options):
        arguments = tuple(map(described, values, self.kinds, self.parameters))
        spec = Specialization(arguments, "sm_90a", tuple(options.items()))
        parameters = tuple(PtxParameter(argument.field) for argument in spec.run_time)
        self.fake.parameters = len(parameters)
        return self.route.learn(values, options, load(Binary("entry", "ptx", 2, 48, parameters, "sm_90a")), spec)

    def __call__(self, /, *values, **options):
        return self.route.bound(3, 2, 1)(*values, **options)


def test_what_it_never_saw_is_handed_on(fake):
    kernel = Kernel(fake, array(), 5)
    x = array()
    kernel(x, 5)
    kernel(x, 5, 6, num_warps=8)
    assert kernel.handed == [
        ("generic", 3, 2, 1, (x, 5), (), {}, None, kernel.route),
        ("generic", 3, 2, 1, (x, 5), (6,), {"num_warps": 8}, None, kernel.route),
    ]
    assert fake.launches == []


def test_what_it_learned_is_launched_and_what_kernels_do_not_tell_from_it(fake):
    kernel = Kernel(fake, array(), 5, 0.5)
    kernel.learn(array(), 5, 0.5)
    kernel(array(), 5, 0.5)
    for zero in (-0.0, 0.0, -0.0):
        kernel(array(0x2000), 7, zero)
    assert kernel.handed == []
    assert [launch["values"] for launch in fake.launches] == [
        [struct.pack("=Q", 0x1000), struct.pack("=q", 5), struct.pack("=f4x", 0.5)],
        *([struct.pack("=Q", 0x2000), struct.pack("=q", 7), struct.pack("=f4x", zero)] for zero in (-0.0, 0.0, -0.0)),
    ]
    launch = fake.launches[0]
    assert (launch["grid"], launch["threads"], launch["shared"]) == ((3, 2, 1), 64, 48)


@pytest.mark.parametrize(
    "values", [(array(0x1004), 5), (array(), 16), (array(), 1), (array(), 2**40), (array(), 5.0), (None, 5)]
)
def test_what_kernels_tell_apart_is_handed_on(fake, values):
    kernel = Kernel(fake, array(), 5)
    kernel.learn(array(), 5)
    kernel(array(), 5)
    kernel(*values)
    (calls,) = kernel.handed
    assert calls[0] == "generic" and calls[4] == values and len(fake.launches) == 1


def test_options_are_told_apart(fake):
    kernel = Kernel(fake, 5)
    kernel.learn(5, num_warps=8)
    kernel(5, num_warps=8)
    kernel(5)
    assert len(fake.launches) == 1 and [calls[0] for calls in kernel.handed] == ["generic"]


def test_a_grid_that_is_a_function_gets_the_arguments(fake):
    kernel = Kernel(fake, array(), 5)
    kernel.learn(array(), 5)
    for n in (5, 5, 7):
        kernel.route.bound(lambda meta: (meta["a1"], meta["a0"].pointer >> 12), None, None)(array(), n)
    assert [launch["grid"] for launch in fake.launches] == [(5, 1, 1), (5, 1, 1), (7, 1, 1)]


def test_parameters_may_have_any_names(fake):
    """Those that the text itself uses, too."""
    names = ["_z_x", "_z_0", "_z_seek", "_z0_last", "self", "launch", "type"]
    kernel = Kernel(fake, array(), 5, 0.5, True, 6, 7, 8, names=names)
    values = (array(), 5, 0.5, True, 6, 7, 8)
    kernel.learn(*values)
    kernel(**dict(zip(names, values, strict=True)))
    kernel(array(0x5000), 5, 0.5, True, 6, 7, type=8)
    assert kernel.handed == [] and "_z1_x" in kernel.route.text
    first, second = fake.launches
    assert first["values"][1:] == second["values"][1:]
    assert int.from_bytes(second["values"][0], "little") == 0x5000


def test_a_stream_that_the_caller_names(fake):
    kernel = Kernel(fake, 5)
    kernel.learn(5)
    kernel(5, stream=9)
    kernel(5)
    assert [launch["stream"] for launch in fake.launches] == [("stream", 9), ("stream", 0)]


def test_what_the_driver_refuses_is_handed_on(fake, failed):
    kernel = Kernel(fake, 5)
    kernel.learn(5)
    # The hot path does not know the reason, and looks into the table once more.
    fake.launch_status = [failed("CUDA_ERROR_INVALID_CONTEXT", 201) for _ in range(2)]
    kernel(5)
    assert kernel.handed == [("generic", 3, 2, 1, (5,), (), {}, None, kernel.route)] and fake.launches == []


def test_buffers_are_put_back(fake):
    kernel = Kernel(fake, array(), 5)
    free = kernel.learn(array(), 5)[4]
    for n in (5, 5, 7, 7, 5):  # through the table, and like the launch before
        kernel(array(), n)
        assert len(free) == 1
    assert len(fake.launches) == 5


def test_integers_that_share_a_kernel_have_one_entry(fake):
    kernel = Kernel(fake, 3)
    kernel.learn(3)
    for n in (*range(3, 103, 4), 2**15 - 1):
        kernel(n)
        assert fake.launches[-1]["values"] == [struct.pack("=q", n)]
    assert kernel.handed == [] and len(kernel.route._table) == 1
    kernel(-5)
    assert len(kernel.handed) == 1


def test_a_slot_is_written_carefully(fake):
    kernel = Kernel(fake, 0.5)
    buffer, *_ = kernel.route.slot(kernel.learn(0.5), (1e300,))
    assert bytes(buffer)[:4] == struct.pack("=f", float("inf"))


@pytest.mark.parametrize("name", ["type", "dict", "tuple", "TypeError", "IndexError", "launch", "key", "_z"])
def test_a_parameter_may_have_any_name(fake, name):
    """Each launch is answered by the route; a name of the text's own made it crash, or ask at every launch."""
    kernel = Kernel(fake, array(), 5, names=["x", name])
    kernel.learn(array(), 5, num_warps=8)
    for n in (5, 5, 7):
        kernel(array(), n, num_warps=8)
    kernel(array(), **{name: 9}, num_warps=8)
    assert kernel.handed == [] and len(fake.launches) == 4


DESCRIBED = DescriptorType((16, 32), f32)
SPEC = Specialization(
    (RunTime("x", PtrType(f32)), ConstantArgument("n", 1, i32), RunTime("d", DESCRIBED), RunTime("m", i32)), "sm_90a"
)
PLACES = [(0,), (8,), (64, 192, 200, 208, 216, 224), (232,)]


def binary(*parameters):
    return Binary("entry", "ptx", 4, 0, parameters, "sm_90a", "add")


def test_parameters_are_found_by_argument_and_part():
    order, tiles = arranged(
        binary(
            PtxParameter("ptr"),
            PtxParameter("tensormap", (16, 32), 64, "map"),
            PtxParameter("ptr", part="base", argument=1),
            PtxParameter("i64", part="shape1", argument=1),
            PtxParameter("i64", part="stride0", argument=1),
            PtxParameter("i32", argument=2),
        ),
        SPEC,
        PLACES,
    )
    assert order == [0, 64, 192, 208, 216, 232]  # without the constant
    assert tiles == (((16, 32), 64),)


def test_a_descriptor_whose_map_is_not_taken_has_no_tile():
    order, tiles = arranged(
        binary(PtxParameter("ptr"), PtxParameter("ptr", part="base"), PtxParameter("i32", argument=2)), SPEC, PLACES
    )
    assert order == [0, 192, 232] and tiles == (NO_TILE,)


@pytest.mark.parametrize(
    "parameters",
    [
        (),
        (PtxParameter("ptr"), PtxParameter("tensormap", (16, 32), 64, "map")),  # `m` is not taken
        (PtxParameter("i64"), PtxParameter("tensormap", (16, 32), 64, "map"), PtxParameter("i32")),
        (PtxParameter("ptr"), PtxParameter("ptr", part="base"), PtxParameter("i32"), PtxParameter("i32")),
        (PtxParameter("ptr"), PtxParameter("ptr", part="base"), PtxParameter("i32", argument=-1)),
    ],
)
def test_parameters_that_do_not_agree_with_the_arguments(parameters):
    message = r"kernel of 'add' must be \(x: ptr<f32>, d: .*, m: i32\); got \(.*\)"
    with pytest.raises(InternalError, match=message):
        arranged(binary(*parameters), SPEC, PLACES)


# The text of the hot path: the reads, comparisons and writes for arguments of each kind.


MADE = ArrayReader("made", "{0}.at", "{0}.kind", "{0}.gpu", lambda: lambda device: 0)


class Made:
    """An array of a library that says on which device it is."""

    def __init__(self, at, kind="f32", gpu=0):
        self.at, self.kind, self.gpu = at, kind, gpu


def array_on(pointer=0x1000, device=0):
    return DeviceArray(pointer, (64, 64), f32, device)


class Text:
    """The text for arguments like these, and its functions."""

    def __init__(self, *values, **changes):
        self.writer = Writer()
        names = [f"a{i}" for i in range(len(values))]
        for name, value in zip(names, values, strict=True):
            parameter = changes.get(name) or KernelParameter(name)
            kind = Kind("array", reader=MADE) if isinstance(value, Made) else kind_of(value, parameter, "k")
            self.writer.argument(name, kind, parameter)
        self.text = self.writer.text(names)
        self.scope = {
            **{f"_z_default{i}": None for i in range(len(values))},
            **{f"_z_type{i}": type_ for i, type_ in enumerate(self.writer.types)},
            **{
                f"_z_{keywords.__name__}": keywords
                for keywords in (type, dict, tuple, integer_class, constant_class, fitted)
            },
            "_z_device_in_use": lambda: None,
        }
        exec(self.text, self.scope)

    def key(self, *values, **options):
        return self.scope["key"](options, *values)

    def moving(self, *values, tiles=()):
        return self.scope["moving"](tiles, *values)


CONSTANT = KernelParameter("a0", constexpr=True)
PLAIN = KernelParameter("a0", specialize=False)


@pytest.mark.parametrize(
    ("value", "parameter", "fields"),
    [
        (array_on(), None, ["ptr"]),
        (Made(0), None, ["ptr"]),
        (5, None, ["i64"]),
        (2**63, None, ["u64"]),
        (np.int16(5), None, ["i16"]),
        (0.5, None, ["f32"]),
        (True, None, ["i1"]),
        (ml_dtypes.bfloat16(1), None, ["bf16"]),
        (5, PLAIN, ["i64"]),
        (5, CONSTANT, []),
        (None, None, []),
        (TensorDescriptor(array_on(), (16, 16)), None, ["tensormap", "ptr", "i64", "i64", "i64", "i64"]),
    ],
)
def test_what_is_written_of_an_argument(value, parameter, fields):
    result = Text(value, 7, **({"a0": parameter} if parameter else {}))
    assert result.writer.fields == [*fields, "i64"]
    assert result.writer.places == [(0, len(fields)), (len(fields), 1)]
    tiles = [((16, 16), 64)]
    if isinstance(value, TensorDescriptor):
        value.maps[tiles[0]] = b"map"
    assert len(result.moving(value, 7, tiles=tiles)) == len(fields) + 1


def test_the_values_that_are_written():
    descriptor = TensorDescriptor(array_on(0x2000), (16, 16))
    descriptor.maps[((16, 16), 64)] = b"map"
    result = Text(array_on(), 5, 0.5, descriptor, Made(0x77))
    assert result.moving(array_on(0x30), -9, 2.5, descriptor, Made(3), tiles=[((16, 16), 64)]) == [
        *(0x30, -9, 2.5),
        *(b"map", 0x2000, 64, 64, 64, 1),
        3,
    ]


def test_keys_have_integers_by_what_kernels_tell_apart():
    result = Text(5)
    numbers = [0, 1, 2, 15, 16, 17, 2**15 - 1, 2**15, -1, -16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40, 2**63]
    for item, other in itertools.product(numbers, numbers):
        if result.key(item) == result.key(other):
            assert integer_class(item) == integer_class(other), (item, other)
    assert result.key(2) == result.key(15) != result.key(-1) == result.key(2**15 + 1)
    assert result.key(16) == result.key(2**15 - 16) != result.key(-16) == result.key(2**15)


def test_an_opt_out_has_the_width_only():
    result = Text(5, a0=PLAIN)
    assert result.key(1) == result.key(16) == result.key(-3) != result.key(2**31)


def test_floats_count_by_type_alone():
    result = Text(0.5, np.float32(0.5))
    assert result.key(0.5, 0.5) == result.key(-7.0, 1.0)
    assert result.writer.identical == ["a0", "a1"]  # 0.0 and -0.0 are equal, and are not written alike


def test_constants_are_in_the_keys_as_kernels_tell_them_apart():
    for value, other in ((0.0, -0.0), ((1,), (True,)), ("a", "b")):
        result = Text(value, a0=CONSTANT)
        assert result.key(value) != result.key(other)
    # Those of another type are not met here: the text asks for the type before it makes a key.
    assert "_z_type0 is _z_type(a0)" in Text(1, a0=CONSTANT).text


def test_alignment_is_in_the_keys_of_arrays_but_for_an_opt_out():
    for values in ((array_on(), array_on(8)), (Made(0x1000), Made(0x1008))):
        result = Text(values[0])
        assert result.key(values[0]) != result.key(values[1])
    result = Text(Made(0x1000), a0=PLAIN)
    assert result.key(Made(0x1000)) == result.key(Made(0x1008))
    two = Text(Made(0), Made(0))
    assert len({two.key(Made(a), Made(b)) for a in (0, 8) for b in (0, 8)}) == 4


def test_elements_and_devices_are_in_the_keys_of_arrays():
    result = Text(Made(0), Made(0))
    keys = {
        result.key(Made(0, item, gpu), Made(0, other, second))
        for item in ("f32", "f16")
        for other in ("f32", "f16")
        for gpu in (0, 1)
        for second in (0, 1)
    }
    assert len(keys) == 16


def test_options_are_in_the_keys():
    result = Text(5)
    assert len({result.key(5), result.key(5, num_warps=4), result.key(5, num_warps=8)}) == 3


def test_what_the_next_launch_is_compared_with():
    result = Text(array_on(), 5, True, a2=KernelParameter("a2", constexpr=True))
    assert result.writer.known == ["a0.key", "a1", "a2"] and "_z_last[0] = (a0.key, a1, a2, (_z_c0, )" in result.text


@pytest.mark.parametrize("values", [(), (array_on(), 5, 0.5, 2**63, True, None), (Made(0), Made(8), np.int8(3), 5)])
def test_names_in_the_text_meet_no_names_of_parameters(values):
    """Names of builtins are no exception: a kernel may have a parameter `type`."""
    result = Text(*values)
    own = {"bound", "launch", "key", "moving", *(f"a{i}" for i in range(len(values)))}
    uses = {node.id for node in ast.walk(ast.parse(result.text)) if isinstance(node, ast.Name)} - own
    assert uses and all(name.startswith(("_z_", "_protocol_")) for name in uses), uses
