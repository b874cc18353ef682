"""Kernels that read the addresses of PyTorch's tensors from memory."""

import pytest
from libraries import require

torch = require("torch")

import ziggurat.triton as triton  # noqa: E402
import ziggurat.triton.language as tl  # noqa: E402
from ziggurat.codemodel.errors import LaunchError, MemoryAccessError, ZigguratWarning  # noqa: E402


@triton.jit
def double_each(address_ptr, BLOCK: tl.constexpr):
    x_ptr = tl.load(address_ptr + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at) * 2)


def addresses_of(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([tensor.data_ptr() for tensor in tensors])


def test_addresses_of_tensors_are_followed():
    tensors = [torch.ones(16), torch.ones(2, 16)[1], torch.full((4, 4), 3.0)]
    double_each[(3,)](addresses_of(tensors), 16)
    assert [tensor.flatten().tolist() for tensor in tensors] == [[2.0] * 16, [2.0] * 16, [6.0] * 16]


def test_other_addresses_are_refused():
    with pytest.raises(MemoryAccessError, match="reads address 0x10, which is in no array of the launch"):
        double_each[(1,)](torch.tensor([16]), 16)
    tensor = torch.ones(16)
    with pytest.raises(MemoryAccessError, match="which is in no array of the launch"):
        double_each[(1,)](addresses_of([tensor]), 1 << 14)
    assert tensor.tolist() == [1.0] * 16


def test_tensors_without_elements_have_no_addresses():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(16)
    with pytest.raises(MemoryAccessError, match="which is in no array of the launch"):
        double_each[(1,)](torch.tensor([16]), 16)
    assert fake.shape == (16,)


def test_a_view_that_is_an_argument_stays_one_memory():
    whole = torch.arange(32.0)

    @triton.jit
    def below(x_ptr, address_ptr):
        other = tl.load(address_ptr).to(tl.pointer_type(tl.float32))
        tl.store(x_ptr, tl.load(other))

    below[(1,)](whole[16:], addresses_of([whole]))
    assert whole[16] == 0
    with pytest.raises(MemoryAccessError, match="which is in no array of the launch"):
        below[(1,)](whole[16:], addresses_of([whole]), strict=True)


@triton.jit
def copy(x_ptr, out_ptr, shift, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at + shift, tl.load(x_ptr + at + shift))


def test_a_view_reaches_the_memory_that_it_is_a_view_of():
    x, out = torch.arange(16.0), torch.zeros(4, 8)
    copy[(1,)](x[8:], out[1], -8, 16)
    assert out.flatten().tolist() == [*range(16), *[0] * 16]


def test_an_access_outside_of_the_memory_gives_a_warning():
    x, out = torch.ones(12), torch.full((20,), 5.0)
    with pytest.warns(
        ZigguratWarning, match=r"\(0, 0, 0\) reads x_ptr\[12\], but x_ptr has 12 elements: 0, or `other`"
    ):
        copy[(1,)](x, out, 0, 16)
    assert out.tolist() == [1.0] * 12 + [0.0] * 4 + [5.0] * 4
    with pytest.warns(ZigguratWarning, match=r"writes out_ptr\[12\], but out_ptr has 12 elements: nothing is written"):
        copy[(1,)](out, x, 4, 16)
    assert x.tolist() == [1.0] * 4 + out[4:12].tolist()
    with pytest.raises(MemoryAccessError, match=r"reads x_ptr\[12\], but x_ptr has 12 elements"):
        copy[(1,)](x, out, 0, 16, strict=True)


class Shifted:
    """An argument that FlagGems passes in place of a tensor."""

    def __init__(self, base: torch.Tensor, offset: int) -> None:
        self.base, self.offset, self.dtype, self.device = base, offset, base.dtype, base.device

    def data_ptr(self) -> int:
        return self.base.data_ptr() + self.offset * self.dtype.itemsize


def test_an_object_with_an_address_and_a_dtype_is_an_argument():
    x, out = torch.arange(32.0), torch.zeros(20)
    copy[(1,)](Shifted(x, 16), Shifted(out, 4), 0, 16)
    assert out.tolist() == [0.0] * 4 + list(range(16, 32))
    x.data_ptr = lambda: 64
    with pytest.raises(LaunchError, match="'x_ptr' cannot be seen as a NumPy array: no tensor of PyTorch has its addr"):
        copy[(1,)](Shifted(x, 0), out, 0, 16)


@triton.jit
def moved_in_two_loops(x_ptr, out_ptr, n):
    pointers = out_ptr + tl.arange(0, 2)[:, None] * 2 + tl.arange(0, 2)[None, :]
    for i in range(n):
        for _ in range(2):
            tl.store(pointers, i + 1.0)
            pointers += 2


@triton.jit
def chosen_by_a_branch(x_ptr, out_ptr, n):
    at = tl.arange(0, 4)
    if n > 2:
        pointers = out_ptr + at * 2
    else:
        pointers = out_ptr + at
    tl.store(pointers, tl.load(x_ptr + at))


@triton.jit
def chosen_for_each_element(x_ptr, out_ptr, n):
    at = tl.arange(0, 4)
    tl.store(tl.where(at < n, out_ptr + at * 4, x_ptr + at), 7.0)


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (moved_in_two_loops, [1, 1, 1, 1, 2, 2]),
        (chosen_by_a_branch, [1, 0, 1, 0, 1, 0]),
        (chosen_for_each_element, [7, 0, 0, 0, 7, 0]),
    ],
)
def test_pointers_that_control_flow_passes_on(kernel, expected, interpret):
    x, out = torch.ones(4), torch.zeros(6)
    with pytest.warns(ZigguratWarning, match="nothing is written"):
        kernel[(1,)](x, out, 3, interpret=interpret)
    assert out.tolist() == expected
