"""Contents of arrays put aside and put back."""

from types import SimpleNamespace

import numpy as np
import pytest

from ziggurat.backend.cuda.driver import using_stream
from ziggurat.backend.cuda.memory import empty
from ziggurat.backend.cuda.saved import Region, Saved
from ziggurat.codemodel.errors import LaunchError


def test_all_of_the_memory_is_copied_on_the_array_s_device(fake):
    array = empty((5, 7), np.float16, device=1)
    saved = Saved(array, "x")
    saved.restore()
    Region(array, "x").zero()
    copy = saved.copy
    assert copy.device == 1 and copy.nbytes == 70
    assert fake.done == [
        ("copy", copy.pointer, array.pointer, 70),
        ("copy", array.pointer, copy.pointer, 70),
        ("set", array.pointer, 0, 70),
    ]
    assert fake.context == 100  # the device that was current before


def test_nothing_is_asked_of_an_empty_array(fake):
    array = empty((0,), np.float32)
    Saved(array, "x").restore()
    assert fake.done == []


def test_it_goes_to_the_stream_of_the_launches(fake, monkeypatch):
    seen = []
    monkeypatch.setattr(fake, "cuMemsetD8Async", lambda *given: seen.append(given[3]) or (fake.cuInit(0)[0],))
    with using_stream(77):
        Region(empty(4), "x").zero()
    assert seen == [("stream", 77)]


@pytest.mark.parametrize("strides", [None, (8,), (64, 4)])
def test_memory_with_gaps_is_refused(fake, strides):
    interface = {"shape": (4,), "typestr": "<f4", "data": (0x5000, False), "version": 3, "strides": strides}
    array = SimpleNamespace(__cuda_array_interface__=interface, nbytes=16)
    if strides is None:
        Region(array, "x").zero()
        assert fake.done == [("set", 0x5000, 0, 16)]
        return
    with pytest.raises(LaunchError, match="'x' is to be set back between the runs of tuning, and its memory has gaps"):
        Region(array, "x")
