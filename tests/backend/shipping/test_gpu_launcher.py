"""Launches by a library's machine code ask the driver for what launches from Python ask it for."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
from libraries import require
from shipped import calls_of, fake_libcuda, needs_gcc, needs_linux

import ziggurat as zg
from ziggurat.backend.cuda.binary import Binary, LaunchMap, PtxParameter
from ziggurat.backend.cuda.device_memory import DeviceArray
from ziggurat.backend.cuda.launch import Launcher
from ziggurat.backend.shipping import gpu_launcher, structures
from ziggurat.cli.sources import load_module
from ziggurat.codemodel.types import f16
from ziggurat.shipping.families import families_of
from ziggurat.shipping.library import Library, build
from ziggurat.shipping.tables import GpuCode
from ziggurat.shipping.variant import Parameter, Variant

pytestmark = [needs_gcc, needs_linux]

EXAMPLES = Path(__file__).parents[3] / "examples"
ARRAY = """
class Array:
    def __init__(self, pointer, shape=(64, 64), typestr="<f2"):
        self.__cuda_array_interface__ = {"data": (pointer, False), "shape": shape, "typestr": typestr, "version": 3}
"""
MATRIX = "ptr<f16>", "i32", "i32", "i32"
OF_MATRIX = (PtxParameter("ptr"), *(PtxParameter("i32") for _ in range(3)))
MAPS = (LaunchMap("f16", (64, 64), 128, ("0", "1", "2", "3")), LaunchMap("f16", (64, 32), 64, ("0", "=8", "1", "=64")))
# It writes nothing: the code of the variants is made up.
MODEL = 'module ()void -> { tt.func @"kernel" ()void -> { tt.return; }; unreachable; };'
SIZES = {"ptr": 8, "tensormap": 128, "i32": 4, "i64": 8, "f32": 4, "i1": 1, "f16": 2, "u8": 1, "f64": 8}


def binary(parameters=OF_MATRIX, **more):
    facts = {"symbol": "entry", "code": "code", "num_warps": 4, "shared": 0, "target": "sm_90a", "name": "kernel"}
    return Binary(parameters=parameters, **{**facts, **more})


def sizes_of(code: Binary) -> list[int]:
    own = [SIZES[parameter.kind] for parameter in code.parameters]
    return [*own, *([4] * 3 if code.persistent else []), *[128] * len(code.maps), *([8] if code.scratch else [])]


def variant(types, facts=()):
    names = [f"p{number}" for number in range(len(types))]
    facts = dict(facts)
    parameters = (Parameter(name, type_, **facts.get(name, {})) for name, type_ in zip(names, types, strict=True))
    return Variant("kernel", MODEL, {}, tuple(parameters))


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return fake_libcuda(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def library(tmp_path):
    def write(*variants, name="lib"):
        families = tuple(families_of(variant for variant, _ in variants))
        codes = {id(variant): codes for variant, codes in variants}
        by_function = {family.function: [codes[id(variant)] for variant in family.variants] for family in families}
        library = Library(name, families, by_function)
        library.write(tmp_path / name)
        return tmp_path / name

    return write


def encoded(kind, rank, address, shape, strides, box, steps, interleave, swizzle, promotion, fill):
    """A tensor map of the fake driver in C, for the arguments that Python gives cuda.bindings."""
    assert "NONE" in interleave and steps == [1] * rank and promotion.endswith("128B")
    number = structures.TENSOR_MAP_TYPES.index(kind.rpartition("_")[2])
    swizzles = {"NONE": 0, "32B": 1, "64B": 2, "128B": 3}
    data = struct.pack("=IIQ", number, rank, address) + struct.pack(f"={rank}Q", *shape).ljust(40, b"\0")
    data += struct.pack(f"={rank - 1}Q", *strides).ljust(32, b"\0") + struct.pack(f"={rank}I", *box).ljust(20, b"\0")
    return (data + struct.pack("=4I", 0, swizzles[swizzle.rpartition("_")[2]], 2, "NAN" in fill)).ljust(128, b"\0")


@pytest.fixture
def from_python(fake, monkeypatch):
    """The launch of a binary from Python, as the fake driver in C writes it down."""

    def encode(*arguments):
        import ctypes

        buffer = ctypes.create_string_buffer(encoded(*arguments), 128)
        return fake.Failure("CUDA_SUCCESS", 0), SimpleNamespace(getPtr=lambda: ctypes.addressof(buffer), kept=buffer)

    def launch(code, grid, *arguments, stream=0):
        monkeypatch.setattr(fake, "cuTensorMapEncodeTiled", encode)
        fake.sizes = sizes_of(code)
        fake.launches.clear()
        Launcher(code)(grid, *arguments, stream=stream)
        (launched,) = fake.launches
        return launched

    return launch


def assert_same(calls, launched, *, scratch=False):
    (call,) = [call for call in calls if call["call"] == "launch"]
    values = [bytes.fromhex(value) for value in call["values"]]
    expected = launched["values"]
    if scratch:  # Each has its own memory.
        assert int.from_bytes(values.pop(), "little") == 0x101000
        expected = expected[:-1]
    assert values == expected
    assert (tuple(call["grid"]), call["threads"], call["shared"]) == tuple(
        launched[name] for name in ("grid", "threads", "shared")
    )
    assert call["stream"] == launched["stream"][1]


def test_numbers_of_each_type(library, driver, from_python):
    kinds = "ptr i32 i64 f32 i1 u8 f64".split()
    types = ["ptr<f16>", *kinds[1:]]
    code = binary(tuple(map(PtxParameter, kinds)), shared=70000)
    lib = library((variant(types), {"sm_90a": GpuCode(code, b"cubin\0")}))
    program = ARRAY + "lib.kernel[(4, 5)](Array(0x1000), -7, -(1 << 40), 1.5, True, 200, -2.5, stream=48)"
    calls = calls_of(lib, program, driver, sizes_of(code))
    arguments = DeviceArray(0x1000, (64, 64), f16, 0), -7, -(1 << 40), 1.5, True, 200, -2.5
    assert_same(calls, from_python(code, (4, 5), *arguments, stream=48))
    assert calls[0] == {"call": "load", "image": "cubin"}
    assert calls[1] == {"call": "attribute", "number": 8, "value": 70000}


@pytest.mark.parametrize("more", [{}, {"persistent": True}, {"persistent": True, "num_ctas": 2}, {"scratch": 128}])
def test_maps_persistent_grids_clusters_and_scratch(library, driver, from_python, more):
    code = binary(maps=MAPS, **more)
    lib = library((variant(MATRIX), {"sm_90a": GpuCode(code, b"cubin\0")}))
    calls = calls_of(lib, ARRAY + "lib.kernel[(3, 7)](Array(0x1000), 30, 20, 32)", driver, sizes_of(code))
    launched = from_python(code, (3, 7), DeviceArray(0x1000, (64, 64), f16, 0), 30, 20, 32)
    assert_same(calls, launched, scratch=bool(code.scratch))
    if code.scratch:
        around = [call for call in calls if call["call"] in ("allocate", "launch", "free")]
        assert [call["call"] for call in around] == ["allocate", "launch", "free"]
        assert around[0]["size"] == 3 * 7 * 128 and around[2]["address"] == 0x101000


def test_what_has_no_map_launches_the_other_code(library, driver):
    other = binary(num_warps=8)
    code = binary(maps=MAPS, persistent=True)
    lib = library((variant(MATRIX), {"sm_90a": GpuCode(code, b"cubin\0", GpuCode(other, b"other\0"))}))
    for numbers, is_other in (("30, 20, -32", True), ("0, 20, 32", True), ("30, 20, 32", False)):
        calls = calls_of(lib, ARRAY + f"lib.kernel[(3, 7)](Array(0x1000), {numbers})", driver, [8, 4, 4, 4])
        assert calls[0]["image"] == ("other" if is_other else "cubin")
        assert calls[-1]["threads"] == (256 if is_other else 128)


def test_descriptors(library, driver, from_python):
    parameters = (
        PtxParameter("tensormap", (32, 64), 128, "map", 0), PtxParameter("ptr", part="base", argument=0),
        PtxParameter("i64", part="shape0", argument=0), PtxParameter("i64", part="stride0", argument=0),
        PtxParameter("i64", part="shape1", argument=0), PtxParameter("i32", argument=1),
    )  # fmt: skip
    code = binary(parameters)
    facts = {"p0": {"divisor": 16}}
    lib = library((variant(["descriptor<x32, x64, f16>", "i32"], facts), {"sm_90a": GpuCode(code, b"cubin\0")}))
    make = "lib.TensorDescriptor(Array(0x1000, shape=(100, 72)))"
    calls = calls_of(lib, ARRAY + f"lib.kernel[2]({make}, 5)", driver, sizes_of(code))
    descriptor = zg.TensorDescriptor(DeviceArray(0x1000, (100, 72), f16, 0), (32, 64))
    assert_same(calls, from_python(code, 2, descriptor, 5))
    miss = "lib.kernel[2](lib.TensorDescriptor(Array(0x1000, shape=(100, 71)), strides=(72, 1)), 5)"
    program = (
        ARRAY + f"try: {miss}\nexcept lib.Miss as miss: assert 'bytes must be divisible by 16; got 142' in str(miss)"
    )
    assert calls_of(lib, program, driver, []) == []


def test_descriptors_that_share_memory_are_refused(library, driver):
    parameters = tuple(PtxParameter("tensormap", (32, 64), 128, "map", number) for number in (0, 1))
    lib = library(
        (variant(["descriptor<x32, x64, f16>"] * 2), {"sm_90a": GpuCode(binary(parameters, disjoint=(0, 1)), b"")})
    )
    other = "lib.TensorDescriptor(Array({}, shape=(10, 64)), strides=(128, 1))"
    for address, is_apart in (
        (0x1000, False),
        (0x1080, True),
        (0x1040, False),
        (0x1000 + 10 * 256, True),
        (0xF80, True),
    ):
        program = f"a, b = {other.format(0x1000)}, {other.format(address)}\n"
        program += "try: lib.kernel[2](a, b)\nexcept lib.LaunchError as e: assert 'must not share memory' in str(e)"
        assert bool(calls_of(lib, ARRAY + program, driver, [128, 128])) == is_apart, hex(address)


def test_attributes_of_launches(library, driver):
    code = binary(launched=("pdl", "cooperative"), num_ctas=16)
    lib = library((variant(MATRIX), {"sm_90a": GpuCode(code, b"cubin\0")}))
    calls = calls_of(lib, ARRAY + "lib.kernel[(3, 7)](Array(0x1000), 30, 20, 32)", driver, sizes_of(code))
    assert calls[-1]["attributes"] == [[6, 1], [2, 1]] and calls[-1]["grid"] == [48, 7, 1]
    assert {"call": "attribute", "number": 14, "value": 1} in calls


def test_the_variant_that_knows_most_is_launched(library, driver):
    """The conditions of a variant, and a value of 1, which its code does not take."""
    types = ["ptr<f16>", "i32"]
    everything = {"p0": {"divisor": 16}, "p1": {"divisor": 16}}
    stride = {"p0": {"divisor": 16}, "p1": {"is_one": True}}
    lib = library(
        (variant(types), {"sm_90a": GpuCode(binary(OF_MATRIX[:2], symbol="any"), b"any\0")}),
        (variant(types, everything), {"sm_90a": GpuCode(binary(OF_MATRIX[:2], symbol="both"), b"both\0")}),
        (variant(types, stride), {"sm_90a": GpuCode(binary(OF_MATRIX[:1], symbol="one"), b"one\0")}),
    )
    launches = "".join(f"lib.kernel[2](Array({p}), {n})\n" for p, n in ((4096, 32), (4096, 1), (4096, 7), (4098, 32)))
    calls = calls_of(lib, ARRAY + launches * 2, driver, [8])
    assert [call["function"] for call in calls if call["call"] == "launch"] == ["both", "one", "any", "any"] * 2
    assert [call["image"] for call in calls if call["call"] == "load"] == ["both", "one", "any"]


@pytest.mark.parametrize(
    ("capability", "image"), [(90, "a"), (89, "generic"), (80, "generic"), (100, "ptx"), (75, None)]
)
def test_code_is_chosen_by_the_device(library, driver, capability, image):
    """Of a cubin for its generation, one for later devices as PTX, and one for this architecture alone."""
    generic = attrs.evolve(binary(OF_MATRIX[:1]), code=b"cubin")
    codes = {
        "sm_80": GpuCode(generic, b"generic\0"), "sm_90a": GpuCode(attrs.evolve(generic, target="sm_90a"), b"a\0"),
        "sm_90": GpuCode(binary(OF_MATRIX[:1]), b"ptx\0"),
    }  # fmt: skip
    lib = library((variant(["ptr<f16>"]), codes))
    program = (
        ARRAY
        + "try: lib.kernel[2](Array(0x1000))\nexcept lib.Miss as miss: assert 'for sm_80, sm_90, sm_90a' in str(miss)"
    )
    calls = calls_of(lib, program, driver, [8], capability)
    assert [call["image"] for call in calls if call["call"] == "load"] == ([image] if image else [])


def test_the_examples(tmp_path, driver, from_python, monkeypatch):
    """A product by pointers, whose blocks TMA loads, and attention by descriptors: compiled, not made up."""
    monkeypatch.chdir(EXAMPLES)
    variants = load_module("shipping.py").VARIANTS[1:]
    outcome = build(variants, "lib", ["sm_90a"])
    outcome.library.write(tmp_path / "lib")
    product, attention = (codes[0]["sm_90a"].binary for codes in outcome.library.codes.values())
    assert product.maps and any(parameter.kind == "tensormap" for parameter in attention.parameters)
    matrices = "Array(0x10000), Array(0x20000), Array(0x30000)"
    program = ARRAY + f"lib.matmul_kernel[(6,)]({matrices}, 200, 272, 320, 320, 1, 272, 1, 272, 1, 128, 128, 64, 8)"
    calls = calls_of(tmp_path / "lib", program, driver, sizes_of(product))
    arrays = [DeviceArray(address << 16, (64, 64), f16, 0) for address in (1, 2, 3)]
    assert_same(calls, from_python(product, (6,), *arrays, 200, 272, 320, 320, 272, 272), scratch=bool(product.scratch))
    tensors = ", ".join(f"lib.TensorDescriptor(Array({number << 16}, (512, 64)))" for number in (1, 2, 3, 4))
    program = ARRAY + f"lib.attention_kernel[(2, 2)]({tensors}, 256, 0.125, False, 128, 64, 64)"
    calls = calls_of(tmp_path / "lib", program, driver, sizes_of(attention))
    descriptors = [
        zg.TensorDescriptor(DeviceArray(address << 16, (512, 64), f16, 0), (rows, 64))
        for address, rows in ((1, 128), (2, 64), (3, 64), (4, 128))
    ]
    assert_same(calls, from_python(attention, (2, 2), *descriptors, 256, 0.125))


def test_an_empty_grid_launches_nothing(library, driver):
    lib = library((variant(["ptr<f16>"]), {"sm_90a": GpuCode(binary(OF_MATRIX[:1]), b"")}))
    assert calls_of(lib, ARRAY + "lib.kernel[(0, 2)](Array(0x1000))", driver, [8]) == []


def test_the_numbers_are_those_of_the_driver():
    """Of enumerations, by cuda.bindings."""
    driver = require("cuda.bindings.driver")
    device, function, attribute = (
        getattr(driver, name) for name in ("CUdevice_attribute", "CUfunction_attribute", "CUlaunchAttributeID")
    )
    assert gpu_launcher._MULTIPROCESSORS == device.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    assert gpu_launcher._MAJOR == device.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    assert gpu_launcher._MINOR == device.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
    assert gpu_launcher._MAX_SHARED == function.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert gpu_launcher._ANY_CLUSTER == function.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    assert gpu_launcher._COOPERATIVE == attribute.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    assert gpu_launcher._DEPENDENT == attribute.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    promotion = driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B
    assert promotion == gpu_launcher._PROMOTION
    for number, name in enumerate(structures.TENSOR_MAP_TYPES):
        assert getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}") == number
    for width, number in structures.SWIZZLES.items():
        assert getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{f'{width}B' if width else 'NONE'}") == number
    assert driver.CUlaunchConfig().getPtr() and gpu_launcher._CONFIG.size == 56
