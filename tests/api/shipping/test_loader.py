"""The loader imports nothing of the package, so that it has facts of its own: they are the package's."""

from __future__ import annotations

import ctypes
import struct

import numpy as np

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
