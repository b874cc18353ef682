"""The text of the hot path: the reads, comparisons and writes for arguments of each kind."""

import ast
import itertools

import ml_dtypes
import numpy as np
import pytest

from ziggurat.backend.cuda.arrays import Reader
from ziggurat.backend.cuda.memory import DeviceArray
from ziggurat.backend.cuda.packing import fitted
from ziggurat.backend.cuda.routes import Writer
from ziggurat.backend.cuda.specialize import KernelParameter, Kind, constant_class, integer_class, kind_of
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.codemodel.types import f32

MADE = Reader("made", "{0}.at", "{0}.kind", "{0}.gpu", lambda: lambda device: 0)


class Made:
    """An array of a library that says on which device it is."""

    def __init__(self, at, kind="f32", gpu=0):
        self.at, self.kind, self.gpu = at, kind, gpu


def array(pointer=0x1000, device=0):
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
            **{f"_z_{named.__name__}": named for named in (type, dict, tuple, integer_class, constant_class, fitted)},
        }
        exec(self.text, self.scope)

    def exact(self, *values, **options):
        return self.scope["keys"](options, *values)[0]

    def loose(self, *values, **options):
        return self.scope["keys"](options, *values)[1]

    def moving(self, *values, tiles=()):
        return self.scope["moving"](tiles, *values)


CONSTANT = KernelParameter("a0", constexpr=True)
PLAIN = KernelParameter("a0", specialize=False)


@pytest.mark.parametrize(
    ("value", "parameter", "fields"),
    [
        (array(), None, ["ptr"]),
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
        (TensorDescriptor(array(), (16, 16)), None, ["tensormap", "ptr", "i64", "i64", "i64", "i64"]),
    ],
)
def test_what_is_written_of_an_argument(value, parameter, fields):
    made = Text(value, 7, **({"a0": parameter} if parameter else {}))
    assert made.writer.fields == [*fields, "i64"]
    assert made.writer.places == [(0, len(fields)), (len(fields), 1)]
    tiles = [((16, 16), 64)]
    if isinstance(value, TensorDescriptor):
        value.maps[tiles[0]] = b"map"
    assert len(made.moving(value, 7, tiles=tiles)) == len(fields) + 1


def test_the_values_that_are_written():
    descriptor = TensorDescriptor(array(0x2000), (16, 16))
    descriptor.maps[((16, 16), 64)] = b"map"
    made = Text(array(), 5, 0.5, descriptor, Made(0x77))
    assert made.moving(array(0x30), -9, 2.5, descriptor, Made(3), tiles=[((16, 16), 64)]) == [
        *(0x30, -9, 2.5),
        *(b"map", 0x2000, 64, 64, 64, 1),
        3,
    ]


def test_one_key_has_integers_by_value_and_the_other_by_what_kernels_tell_apart():
    made = Text(5)
    numbers = [0, 1, 2, 15, 16, 17, -1, -16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40, 2**63, 2**64 - 16]
    for one, other in itertools.product(numbers, numbers):
        assert (made.exact(one) == made.exact(other)) == (one == other)
        if made.loose(one) == made.loose(other):
            assert integer_class(one) == integer_class(other), (one, other)
    assert made.loose(2) == made.loose(15) == made.loose(-1) and made.loose(16) == made.loose(-16)


def test_an_opt_out_has_the_width_only():
    made = Text(5, a0=PLAIN)
    assert made.exact(1) == made.exact(16) == made.exact(-3) != made.exact(2**31)
    assert made.loose(1) == made.loose(16) != made.loose(2**31)


def test_floats_count_by_type_alone():
    made = Text(0.5, np.float32(0.5))
    assert made.exact(0.5, 0.5) == made.exact(-7.0, 1.0)
    assert made.writer.identical == ["a0", "a1"]  # 0.0 and -0.0 are equal, and are not written alike


def test_constants_are_in_both_keys_as_kernels_tell_them_apart():
    for value, other in ((0.0, -0.0), ((1,), (True,)), ("a", "b")):
        made = Text(value, a0=CONSTANT)
        assert made.exact(value) != made.exact(other) and made.loose(value) != made.loose(other)
    # Those of another type are not met here: the text asks for the type before it makes a key.
    assert "_z_type0 is _z_type(a0)" in Text(1, a0=CONSTANT).text


def test_alignment_is_in_the_keys_of_arrays_but_for_an_opt_out():
    for values in ((array(), array(8)), (Made(0x1000), Made(0x1008))):
        made = Text(values[0])
        assert made.exact(values[0]) != made.exact(values[1])
    made = Text(Made(0x1000), a0=PLAIN)
    assert made.exact(Made(0x1000)) == made.exact(Made(0x1008))
    two = Text(Made(0), Made(0))
    assert len({two.exact(Made(a), Made(b)) for a in (0, 8) for b in (0, 8)}) == 4


def test_elements_and_devices_are_in_the_keys_of_arrays():
    made = Text(Made(0), Made(0))
    keys = {
        made.exact(Made(0, one, gpu), Made(0, other, second))
        for one in ("f32", "f16")
        for other in ("f32", "f16")
        for gpu in (0, 1)
        for second in (0, 1)
    }
    assert len(keys) == 16


def test_options_are_in_the_keys():
    made = Text(5)
    assert len({made.exact(5), made.exact(5, num_warps=4), made.exact(5, num_warps=8)}) == 3
    assert made.loose(5) != made.loose(5, num_warps=4)


def test_what_the_next_launch_is_compared_with():
    made = Text(array(), 5, True, a2=KernelParameter("a2", constexpr=True))
    x, options = array(), {"num_warps": 8}
    assert made.scope["keys"](options, x, 7, True)[2] == (x.key, 7, True, None, options)


@pytest.mark.parametrize("values", [(), (array(), 5, 0.5, 2**63, True, None), (Made(0), Made(8), np.int8(3), 5)])
def test_names_in_the_text_meet_no_names_of_parameters(values):
    """Names of builtins are no exception: a kernel may have a parameter `type`."""
    made = Text(*values)
    own = {"bound", "launch", "keys", "moving", *(f"a{i}" for i in range(len(values)))}
    used = {node.id for node in ast.walk(ast.parse(made.text)) if isinstance(node, ast.Name)} - own
    assert used and all(name.startswith(("_z_", "_protocol_")) for name in used), used
