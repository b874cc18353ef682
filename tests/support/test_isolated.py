"""Watched memory around arrays, and launches in a process of their own."""

from __future__ import annotations

import numpy as np
import pytest
from isolated import Image, Isolated

import ziggurat as zg


@pytest.mark.parametrize("address", [0, 16, 24, 255, 4096])
def test_an_image_lies_as_well_aligned_as_the_array(address):
    memory = np.arange(100, dtype=np.uint8)
    image = Image.of(memory, address)
    assert image.start % 256 == address % 256
    assert (image.memory(image.bytes) == memory).all()


@pytest.mark.parametrize(("place", "message"), [(-1, "before an array are written, 1 byte"), (100, "after an array")])
def test_a_touched_guard_is_seen(place, message):
    image = Image.of(np.zeros(100, np.uint8), 0)
    after = image.bytes.copy()
    after[image.start + place] ^= 1
    with pytest.raises(zg.KernelRuntimeError, match=message):
        image.memory(after)


@zg.kernel
def shifted(x_ptr, shift, SIZE: zg.constexpr):
    at = zg.arange(0, SIZE)
    zg.store(zg.add(x_ptr, zg.add(at, shift)), zg.load(zg.add(x_ptr, at)))


@zg.kernel
def forever(x_ptr):
    while zg.load(x_ptr, volatile=True) == 0:
        pass


def compiled(kernel, *arguments):
    return kernel.compile(*arguments, target="sm_80").binary


@pytest.mark.gpu(alone=True)
def test_what_goes_wrong_on_the_device_is_an_error_and_the_next_launch_works():
    x = np.arange(64, dtype=np.int32)
    image = Image.of(x.view(np.uint8), 0)
    binary = compiled(shifted, zg.ptr(zg.i32), zg.i32, 64)
    device = Isolated(limit=20)

    def run(shift):
        return device.run(binary, (1,), [image], [(0, 0), shift])[0].view(np.int32)

    assert (run(0) == x).all()
    with pytest.raises(zg.KernelRuntimeError, match=r"28 byte\(s\) after an array"):
        run(7)
    with pytest.raises(zg.KernelRuntimeError, match=r"accessed memory (outside of its arrays|of the wrong)"):
        run(1 << 29)
    assert (run(0) == x).all()
    endless = compiled(forever, zg.ptr(zg.i32))
    with pytest.raises(zg.KernelRuntimeError, match="did not end in 20 s"):
        device.run(endless, (1,), [image], [(0, 0)])
    assert (run(0) == x).all()
    device.close()
