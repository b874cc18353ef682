"""Arguments that have only `data_ptr()` and a dtype, as libraries make them of tensors."""

import numpy as np
import pytest
from libraries import require

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import LaunchError


class Pointer:
    """An address with a dtype: no device, no shape."""

    def __init__(self, address: int, dtype=tl.float32) -> None:
        self.address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        return self.address


def copying():
    @triton.jit
    def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(x_ptr + at, at < n), at < n)

    return copy


def test_pointers_of_a_gpu_are_launched_there(fake):
    fake.parameters, copy = 3, copying()
    for x, out in ((0x1000, 0x2000), (0x3000, 0x4004), (0x1000, 0x2000)):
        for _ in range(2):
            copy[(1,)](Pointer(x), Pointer(out), 40, BLOCK=64)
            assert [int.from_bytes(value, "little") for value in fake.launches[-1]["values"]] == [x, out, 40]
    assert len(fake.launches) == 6


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(("x", "out"), [(0x8000, 0x1000), (0x1000, 0x8000), (0x8000, 0x8000)])
def test_pointers_of_this_machine_are_refused_cold_and_warm(fake, devices: int, x: int, out: int):
    fake.parameters, fake.count, fake.devices, copy = 3, devices, {0x8000: None}, copying()
    launcher = copy[(1,)]
    message = "cannot be seen as a NumPy array: no tensor of PyTorch has its address 0x8000"
    if x != out:
        message = f"'{'x_ptr' if x == 0x8000 else 'out_ptr'}' of 'copy' must be on a GPU"
    for count in range(3):
        for launch in (copy[(1,)], launcher):
            with pytest.raises(LaunchError, match=message):
                launch(Pointer(x), Pointer(out), 40, BLOCK=64)
        copy[(1,)](Pointer(0x1000), Pointer(0x2000), 40, BLOCK=64)
        assert len(fake.launches) == count + 1


def test_pointers_to_tensors_in_memory_run_here():
    torch = require("torch")
    x, out, copy = torch.arange(48, dtype=torch.float32), torch.zeros(48), copying()
    for _ in range(2):
        out.zero_()
        copy[(1,)](Pointer(x[8:].data_ptr()), Pointer(out.data_ptr(), torch.float32), 40, BLOCK=64)
        assert out.tolist() == [*range(8, 48), *[0] * 8]
    array = np.zeros(40, np.float32)
    with pytest.raises(LaunchError, match="no tensor of PyTorch has its address") as info:
        copy[(1,)](Pointer(array.ctypes.data), Pointer(out.data_ptr()), 40, BLOCK=64)
    assert "which tells no size: pass the array" in str(info.value)


def test_launches_under_tracers_of_pytorch_run():
    torch = require("torch")
    from torch.fx.experimental.proxy_tensor import make_fx

    copy, x = copying(), torch.arange(48, dtype=torch.float32)

    def program(x, wrap=lambda tensor: tensor):
        out = torch.zeros(48)
        copy[(1,)](wrap(x), wrap(out), 40, BLOCK=64)
        return out

    expected = [*range(40), *[0] * 8]
    traced = []
    for _ in range(2):
        make_fx(lambda x: traced.append(program(x)) or traced[-1])(x)
    make_fx(lambda x: traced.append(program(x, lambda x: Pointer(x.data_ptr()))) or traced[-1])(x)
    assert [out.tolist() for out in traced] == [expected] * 3
    graph = make_fx(lambda x: program(x))(x).graph
    assert not any("set_" in str(node.target) for node in graph.nodes)
    torch.set_default_device("meta")
    try:
        here = torch.arange(48, dtype=torch.float32, device="cpu")
        out = torch.zeros(48, device="cpu")
        copy[(1,)](Pointer(here.data_ptr()), Pointer(out.data_ptr()), 40, BLOCK=64)
    finally:
        torch.set_default_device(None)
    assert out.tolist() == expected
