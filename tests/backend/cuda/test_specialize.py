"""Specialization of a kernel for its arguments."""

import itertools
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from ziggurat.backend.cuda.device_memory import DeviceArray
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
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import DescriptorType, PtrType, bf16, f16, f32, i1, i8, i32, i64, u64

PARAMETER = KernelParameter("p")
CONSTEXPR = KernelParameter("p", constexpr=True)
OPTED_OUT = KernelParameter("p", specialize=False)


def array(pointer=0x1000, shape=(64, 64), element=f32):
    return DeviceArray(pointer, shape, element, 0)


def seen(value, parameter=PARAMETER):
    """The specialization for an argument."""
    return described(value, kind_of(value, parameter, "k"), parameter)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, Kind("integer", int, "i64")),
        (2**40, Kind("integer", int, "i64")),
        (2**63, Kind("integer", int, "u64")),
        (np.int8(5), Kind("integer", np.int8, "i8")),
        (np.uint64(5), Kind("integer", np.uint64, "u64")),
        (True, Kind("number", bool, "i1")),
        (np.True_, Kind("number", np.bool_, "i1")),
        (0.5, Kind("number", float, "f32")),
        (np.float64(0.5), Kind("number", np.float64, "f32")),
        (np.int64(3), Kind("integer", np.int64, "i64")),
        (ml_dtypes.bfloat16(1), Kind("number", ml_dtypes.bfloat16, "bf16")),
        (None, Kind("constant", type(None))),
        (np.zeros(3), Kind("host")),
        (TensorDescriptor(np.zeros((16, 16), np.float32), (16, 16)), Kind("host")),
    ],
)
def test_kinds(value, expected):
    assert kind_of(value, PARAMETER, "k") == expected


def test_kinds_of_what_is_on_a_gpu():
    kind = kind_of(array(), PARAMETER, "k")
    assert kind.way == "array" and kind.reader is not None and kind.reader.name == "own"
    kind = kind_of(TensorDescriptor(array(), (16, 16)), PARAMETER, "k")
    assert (kind.way, kind.rank) == ("descriptor", 2) and kind.reader is not None
    torchlike = SimpleNamespace(data_ptr=lambda: 5, dtype="torch.float32", is_cuda=True)
    kind = kind_of(torchlike, PARAMETER, "k")
    assert kind.reader is not None and kind.reader.name == "pointer"


@pytest.mark.parametrize("value", [5, "relu", (1, 2), f32, 0.5])
def test_a_constexpr_takes_anything(value):
    assert kind_of(value, CONSTEXPR, "k") == Kind("constant", type(value))
    assert seen(value, CONSTEXPR) == ConstantArgument("p", value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("relu", r"'p' of 'k' must be an array or a number; got str"),
        ([1, 2], r"'p' of 'k' must be an array or a number; got list"),
        (np.complex64(1), r"'p' of 'k' must be a number of a type that kernels have"),
        (2**64, r"'p' of 'k': an integer must fit in 64 bits"),
    ],
)
def test_what_no_kernel_takes(value, message):
    with pytest.raises(LaunchError, match=message):
        kind_of(value, PARAMETER, "k")


def test_other_values_are_hinted_to_be_constexpr():
    with pytest.raises(LaunchError) as error:
        kind_of("relu", PARAMETER, "k")
    assert error.value.hint is not None and "p: zg.constexpr" in error.value.hint


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, RunTime("p", i32, 1, True)),
        (2**15 + 1, RunTime("p", i32)),
        (48, RunTime("p", i32, 16, True)),
        (0, RunTime("p", i32, 16, True)),
        (-16, RunTime("p", i32, 16)),
        (2**31, RunTime("p", i64, 16)),
        (2**63 + 1, RunTime("p", u64)),
        (1, ConstantArgument("p", 1, i32)),
        (np.int8(1), ConstantArgument("p", 1, i8)),
        (np.int8(16), RunTime("p", i8, 16, True)),
        (True, RunTime("p", i1)),
        (1.0, RunTime("p", f32)),
        (np.float16(16), RunTime("p", f16)),
        (None, ConstantArgument("p", None)),
        (array(), RunTime("p", PtrType(f32), 16)),
        (array(0x1004, element=bf16), RunTime("p", PtrType(bf16))),
    ],
)
def test_what_a_kernel_is_compiled_for(value, expected):
    assert seen(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, RunTime("p", i32)),
        (48, RunTime("p", i32)),
        (2**31, RunTime("p", i64)),
        (array(), RunTime("p", PtrType(f32))),
    ],
)
def test_an_opt_out_has_its_type_only(value, expected):
    assert seen(value, OPTED_OUT) == expected


def test_descriptors_are_divisible_where_their_rows_are():
    block = DescriptorType((16, 16), f32)
    even, odd = array(shape=(64, 64)), array(shape=(64, 62))
    assert seen(TensorDescriptor(even, (16, 16))) == RunTime("p", block, 16)
    assert seen(TensorDescriptor(even, (16, 16)), OPTED_OUT) == RunTime("p", block)
    assert seen(TensorDescriptor(odd, (16, 16), strides=(64, 1))) == RunTime("p", block)


def test_fields_of_the_machines_kernel():
    types = (PtrType(f32), DescriptorType((16, 16), f32), i64, bf16)
    assert [RunTime("p", type_).field for type_ in types] == ["ptr", "tensormap", "i64", "bf16"]


def test_a_specialization_passes_what_is_not_a_constant():
    spec = Specialization((RunTime("x", i32), ConstantArgument("n", 1, i32), RunTime("y", f32)), "sm_90a")
    assert [argument.name for argument in spec.run_time] == ["x", "y"]
    assert len({spec, Specialization(spec.arguments, "sm_90a"), Specialization(spec.arguments, "sm_100a")}) == 2


CONSTANTS = [1, True, 1.0, 0, 0.0, -0.0, "1", None, (1, 2), (True, 2), (0.0,), (-0.0,), f32]


@pytest.mark.parametrize("value", CONSTANTS)
def test_constants_are_told_apart_by_type_and_sign(value):
    alike = [other for other in CONSTANTS if ConstantArgument("p", other) == ConstantArgument("p", value)]
    assert len(alike) == 1 and alike[0] is value
    assert [other for other in CONSTANTS if constant_class(other) == constant_class(value)] == alike
    hash(constant_class(value))


def test_nan_is_one_constant():
    assert constant_class(float("nan")) == constant_class(float("nan"))
    assert ConstantArgument("p", float("nan")) == ConstantArgument("p", float("nan"))


def test_integers_of_a_class_are_those_of_one_kernel():
    numbers = [0, 1, 2, 15, 17, 2**15 - 1, 2**15, -1, -16, -(2**31), -(2**31) - 1, -(2**63), 2**31 - 1, 2**31, 2**63]
    for item, other in itertools.combinations(numbers, 2):
        assert (integer_class(item) == integer_class(other)) == (seen(item) == seen(other)), (item, other)
