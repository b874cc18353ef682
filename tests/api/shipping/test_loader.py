"""The loader imports nothing of the package, so that it has facts of its own: they are the package's."""

from __future__ import annotations

import ctypes
import struct
import sys

import numpy as np
import pytest
from libraries import require

from ziggurat.backend.launch.grids import MAX_SIZE
from ziggurat.codemodel.types import SCALARS
from ziggurat.shipping import library, loader


def test_the_format():
    assert loader.FORMAT == library.FORMAT


def test_names_of_types():
    assert {type_.numpy: name for name, type_ in SCALARS.items()} == loader._NAMES


def test_limits():
    integers = {name: type_.limits for name, type_ in SCALARS.items() if type_.kind == "int"}
    assert integers == loader._LIMITS and loader._MAX_SIZE == MAX_SIZE


def test_types_of_numbers():
    assert loader._TYPES.keys() == {name for name, type_ in SCALARS.items() if not type_.is_fp8}
    for name, type_ in loader._TYPES.items():
        facts = SCALARS[name]
        assert ctypes.sizeof(type_) == facts.bytes, name
        if facts.kind == "int":
            assert type_(-1).value == (-1 if facts.signed else facts.limits[1]), name


def test_types_of_buffers():
    for letter, name in loader._BUFFERS.items():
        assert np.dtype(letter) == SCALARS[name].dtype and struct.calcsize(letter) == SCALARS[name].bytes, letter


def test_arrays_that_no_launch_can_read():
    torch = require("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    big = np.dtype(np.float32).newbyteorder(">" if sys.byteorder == "little" else "<")
    with FakeTensorMode():
        fake = torch.ones(4)
    for array, message in (
        (np.zeros(4, big), "must have the byte order of this machine; got the type"),
        (memoryview(np.zeros(4, big)), "must have the byte order of this machine"),
        (torch.ones(4, device="meta"), "must have memory on this machine or a GPU; got a Tensor on the device 'meta'"),
        (fake, "must have memory on this machine or a GPU; got a FakeTensor"),
        (torch.eye(4).to_sparse(), "must have memory on this machine or a GPU"),
    ):
        with pytest.raises(TypeError, match=message):
            loader._Array.of(array)
    assert loader._Array.of(np.zeros(4, "i1")) is not None and loader._Array.of(torch.ones(4)) is not None


def test_tuples_of_arguments_have_their_components():
    names = ["p[0]", "p[1][0]", "p[1][1]"]
    family = {
        "function": "f", "variants": [], "ordered": False, "options": {},
        "parameters": [{"name": name, "constant": number} for number, name in enumerate(names)],
    }  # fmt: skip
    kernel = loader.Kernel("k", [loader._Family(family)], {})
    assert kernel.explain((0, (1, 2))) == "'k' is launched by f"
    for value, message in (
        ((0,), r"'p' of 'k' must be a tuple of 2; got \(0,\)"),
        ((0, (1, 2), 3), "'p' of 'k' must be a tuple of 2"),
        (7, "'p' of 'k' must be a tuple of 2; got 7"),
        ((0, (1,)), r"'p\[1\]' of 'k' must be a tuple of 2; got \(1,\)"),
        ((0, None), r"'p\[1\]' of 'k' must be a tuple of 2; got None"),
    ):
        with pytest.raises(TypeError, match=message):
            kernel.explain(value)


def test_the_number_of_threads():
    before = loader.threads()
    for count in (0, -1, True, 1.5, None):
        with pytest.raises(ValueError, match="must be an integer of 1 or more; got"):
            loader.set_threads(count)
    loader.set_threads(before)
    assert loader.threads() == before
