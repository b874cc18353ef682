"""Descriptors made on the host: the checks of the tensor, its encoding, and its place among the arguments."""

import struct
from types import SimpleNamespace

import pytest
from launched import dispatcher_of as built_by

import ziggurat as zg
from ziggurat.backend.cuda import cache
from ziggurat.backend.cuda.binary import Binary, PtxParameter
from ziggurat.backend.cuda.device_memory import DeviceArray
from ziggurat.backend.cuda.launch import Dispatcher, Launcher
from ziggurat.backend.cuda.specialize import KernelParameter
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.fragments import box_and_swizzle
from ziggurat.codemodel.types import DescriptorType, bf16, f8e4m3, f16, f32, f64, i32
from ziggurat.launches.gpu import GpuKernel


def array(*shape, element=f16, pointer=0x1000):
    return DeviceArray(pointer, shape, element, 0)


@pytest.mark.parametrize(
    ("block", "element", "expected"),
    [
        ((128, 64), f16, ((128, 64), 128)),
        ((128, 256), bf16, ((128, 64), 128)),
        ((64, 32), f16, ((64, 32), 64)),
        ((64, 4), f32, ((64, 4), 0)),
        ((512, 8), f32, ((256, 8), 32)),
        ((4, 64, 128), f8e4m3, ((4, 64, 128), 128)),
        ((64,), f64, ((16,), 128)),
    ],
)
def test_the_usual_box(block, element, expected):
    assert box_and_swizzle(DescriptorType(block, element)) == expected


def test_encoding(fake):
    descriptor = TensorDescriptor(array(100, 200, 64), (1, 128, 64))
    assert descriptor.type == DescriptorType((1, 128, 64), f16)
    data = descriptor.maps[(1, 128, 64), 128]
    assert data == bytes(range(128))
    kind, rank, address, sizes, strides, box, steps, interleave, swizzle, promotion, fill = fake.encoded
    assert (rank, address, sizes, strides) == (3, 0x1000, [64, 200, 100], [128, 25600])
    assert (box, steps) == ([64, 128, 1], [1, 1, 1])
    assert (interleave, promotion) == ("CU_TENSOR_MAP_INTERLEAVE_NONE", "CU_TENSOR_MAP_L2_PROMOTION_L2_128B")
    assert (kind, swizzle, fill) == (
        "CU_TENSOR_MAP_DATA_TYPE_FLOAT16",
        "CU_TENSOR_MAP_SWIZZLE_128B",
        "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE",
    )
    fake.encoded = None
    assert descriptor.maps[(1, 128, 64), 128] == data and fake.encoded is None  # encoded once
    TensorDescriptor(array(64, 64), (64, 64), padding="nan").maps[(64, 64), 128]
    assert fake.encoded[-1] == "CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TensorDescriptor(array(8, 8, pointer=0x1008), (8, 8)), "must be a multiple of 16"),
        (lambda: TensorDescriptor(array(8, 7), (8, 8)), "stride 0 of a descriptor must be a multiple of 16 bytes"),
        (
            lambda: TensorDescriptor(array(8, 8), (8, 8), strides=(1, 8)),
            "the last stride of a descriptor must be 1; got 8",
        ),
        (lambda: TensorDescriptor(array(8, 8), (8,)), "a size, a stride and a block size for each"),
        (lambda: TensorDescriptor(array(8, 8, element=i32), (8, 8), padding="nan"), '"nan" for floats'),
        (lambda: TensorDescriptor(array(0, 8), (8, 8)), "the sizes of a descriptor must be from 1"),
        (lambda: TensorDescriptor(array(8, 8), (8, 4)), "must have at least 16 bytes"),
        (lambda: TensorDescriptor(array(8, 8), (8, 8)).maps[(8, 4), 0], "rows a multiple of 16 bytes"),
        (lambda: TensorDescriptor(array(8, 128), (8, 128)).maps[(8, 128), 128], "no longer than the swizzle"),
        (lambda: TensorDescriptor(array(512, 8), (512, 8)).maps[(257, 8), 0], "sides are at most 256"),
        (lambda: TensorDescriptor(array(8, 512), (8, 512)).maps[(8, 264), 0], "sides are at most 256"),
        (lambda: TensorDescriptor(array(8, 8), (8, 8)).maps[(0, 8), 0], "sides are at most 256"),
        (lambda: TensorDescriptor(array(8, 8), (8, 8)).maps[(8,), 0], "TMA cannot move boxes"),
        (
            lambda: TensorDescriptor(array(8, 16, element=f8e4m3), (8, 16), padding="nan").maps[(8, 16), 0],
            "cannot pad f8e4m3 with NaN",
        ),
        (lambda: TensorDescriptor([1], (8, 8)), "the first argument of a descriptor must be an array; got list"),
    ],
)
def test_what_the_copy_engine_cannot_address(fake, make, message):
    with pytest.raises(LaunchError, match=message):
        make()


def test_strides_of_other_libraries(fake):
    torchlike = SimpleNamespace(
        data_ptr=lambda: 0x2000, dtype="torch.float32", is_cuda=True, shape=(8, 16), stride=lambda axis: (32, 1)[axis]
    )
    assert TensorDescriptor(torchlike, (8, 8)).strides == (32, 1)
    interface = {"typestr": "<f4", "data": (0x2000, False), "version": 3, "shape": (8, 16), "strides": (128, 4)}
    assert TensorDescriptor(SimpleNamespace(__cuda_array_interface__=interface, shape=(8, 16)), (8, 8)).strides == (
        32,
        1,
    )


PARTS = (
    PtxParameter("tensormap", (64, 64), 128, "map", 0),
    PtxParameter("i32", part="shape0", argument=0),
    PtxParameter("i64", part="stride0", argument=0),
    PtxParameter("ptr", part="base", argument=0),
    PtxParameter("i32", argument=1),
)
EXPECTED = [
    bytes(range(128)),
    struct.pack("=i", 128),
    struct.pack("=q", 64),
    struct.pack("=Q", 0x4000),
    struct.pack("=i", 7),
]


def test_a_launch_passes_the_parts_of_a_descriptor(fake):
    fake.sizes = [128, 4, 8, 8, 4]
    kernel = built_by(
        "kernel",
        [KernelParameter("d"), KernelParameter("n")],
        lambda spec: Binary("entry", "", 4, 0, PARTS, spec.target),
    )
    for pointer in (0x4000, 0x4000, 0x8000):
        kernel.at((1,))(TensorDescriptor(array(128, 64, pointer=pointer), (64, 64)), 7)
    assert [launch["values"] for launch in fake.launches] == [
        EXPECTED,
        EXPECTED,
        [*EXPECTED[:3], struct.pack("=Q", 0x8000), EXPECTED[4]],
    ]
    kernel.at((1,))(TensorDescriptor(array(128, 64, element=bf16), (64, 64)), 7)
    assert len(fake.loads) == 2


def test_a_launcher_passes_them_too(fake):
    fake.sizes = [128, 4, 8, 8, 4]
    descriptor = TensorDescriptor(array(128, 64, pointer=0x4000), (64, 64))
    Launcher(Binary("entry", "", 4, 0, PARTS, "sm_90a"))((1,), descriptor, 7)
    assert fake.launches[0]["values"] == EXPECTED


def test_a_kernel_without_use_for_the_map(fake):
    fake.sizes = [8]
    parts = (PtxParameter("ptr", part="base", argument=0),)
    kernel = built_by("kernel", [KernelParameter("d")], lambda spec: Binary("entry", "", 4, 0, parts, spec.target))
    for _ in range(2):
        kernel.at((1,))(TensorDescriptor(array(64, 64), (64, 64)))
    assert [launch["values"] for launch in fake.launches] == [[struct.pack("=Q", 0x1000)]] * 2


@zg.kernel
def scale(x_desc, n, out_desc, M: zg.constexpr, N: zg.constexpr):
    at = (zg.program_id(0) * M, zg.program_id(1) * N)
    out_desc.store(at, zg.mul(x_desc.load(at), n))


def test_a_kernel_of_the_language_gets_the_parts_it_was_compiled_for(fake, tmp_path, monkeypatch):
    """From the arguments of a launch to the bytes that the driver is given."""
    store = cache.Cache(tmp_path)
    monkeypatch.setattr(cache, "Cache", lambda: store)
    binaries: list[Binary] = []
    kernel = Dispatcher(GpuKernel(scale))
    build = kernel.kernel.built
    kernel.kernel.built = lambda spec: binaries.append(build(spec)) or sized(fake, binaries[-1])
    x, out = array(100, 64, element=f32, pointer=0x4000), array(70, 96, element=f32, pointer=0x8000)

    def launch(padding="zero", n=2.5, block=(16, 32)):
        source, target = TensorDescriptor(x, block, padding=padding), TensorDescriptor(out, block)
        kernel.at((7, 2))(source, n, target, M=block[0], N=block[1])
        return source, target

    descriptors = launch()
    expected = [
        struct.pack("=f", 2.5) if p.argument == 1 else written(p, descriptors[p.argument // 2])
        for p in binaries[0].parameters
    ]
    assert fake.launches[-1]["values"] == expected and {p.argument for p in binaries[0].parameters} == {0, 1, 2}
    launch(n=3.5)
    assert len(binaries) == 1
    # Each type and each block has a kernel of its own.
    launch("nan")
    launch(block=(8, 32))
    assert len(binaries) == 3 and len({binary.code for binary in binaries}) == 3
    launch()
    assert len(binaries) == 3 and fake.launches[-1]["values"] == expected


def sized(fake, binary):
    """The binary, after the driver was told how large its parameters are."""
    sizes = {"tensormap": 128, "ptr": 8, "i64": 8}
    fake.sizes = [sizes.get(parameter.kind, 4) for parameter in binary.parameters]
    return binary


def written(parameter, descriptor):
    value = descriptor.part(parameter.part, (parameter.box, parameter.swizzle))
    return value if isinstance(value, bytes) else value.to_bytes(4 if parameter.kind == "i32" else 8, "little")


@zg.kernel
def powers(a, c, w, n):
    for _ in range(0, n):
        c.store((0, 0), zg.cast(zg.dot(a.load((0, 0)), w.load((0, 0))), zg.f16))


def test_descriptors_of_one_array_that_must_be_disjoint(fake):
    """A loop loads through `a` ahead of its stores through `c`."""
    tile = zg.descriptor((64, 64), zg.f16)
    compiled = powers.compile(*[zg.divisible(tile)] * 3, zg.i32)
    binary = compiled.binary
    assert (1, 0) in binary.pairs and Binary.from_bytes(binary.to_bytes()) == binary
    one, two, w = (TensorDescriptor(array(64, 64, pointer=0x10000 * at), (64, 64)) for at in (1, 1, 2))
    fake.parameters = len(binary.parameters)
    with pytest.raises(LaunchError, match="must not share memory"):
        compiled[(1,)](one, two, w, 3)
    kernel = Dispatcher(GpuKernel(zg.kernel(powers.fn)))
    other = TensorDescriptor(array(64, 64, pointer=0x30000), (64, 64))
    for _ in range(3):
        kernel.at((1,))(one, other, w, 3)
        with pytest.raises(LaunchError, match="'c' and 'a' of 'powers' must not share memory"):
            kernel.at((1,))(one, two, w, 3)
    assert len(fake.launches) == 3


def test_descriptors_that_must_be_disjoint_are_checked_in_the_hot_path(fake, monkeypatch):
    binary = powers.compile(*[zg.divisible(zg.descriptor((64, 64), zg.f16))] * 3, zg.i32).binary
    fake.parameters = len(binary.parameters)
    a, c, w = (TensorDescriptor(array(64, 64, pointer=0x10000 * at), (64, 64)) for at in (1, 2, 3))
    kernel = Dispatcher(GpuKernel(zg.kernel(powers.fn)))
    kernel.at((1,))(a, c, w, 3)
    learned: list[object] = []
    monkeypatch.setattr(type(kernel), "_learn", lambda *arguments: learned.append(arguments))
    for _ in range(3):
        kernel.at((1,))(a, c, w, 3)
    assert len(fake.launches) == 4 and not learned
    kernel.at((1,))(a, a, w, 3)
    assert learned and len(fake.launches) == 4
