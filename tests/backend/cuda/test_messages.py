"""Messages over pipes: what arrives is what was sent, and an end is told."""

from __future__ import annotations

import io

import numpy as np
import pytest

from ziggurat.backend.cuda.messages import receive, send


def test_messages_arrive_whole_and_in_order():
    stream = io.BytesIO()
    image = np.arange(1000, dtype=np.uint8)
    send(stream, ("run", [image], {"grid": (1, 2)}))
    send(stream, None)
    stream.seek(0)
    word, (found,), options = receive(stream)
    assert word == "run" and options == {"grid": (1, 2)}
    np.testing.assert_array_equal(found, image)
    assert receive(stream) is None


@pytest.mark.parametrize("rest", [b"", b"\x01\x00\x00"])
def test_an_end_is_told(rest):
    """An end in the middle of a length counts too."""
    with pytest.raises(EOFError):
        receive(io.BytesIO(rest))


def test_a_reader_that_has_gone_is_an_error():
    class Gone(io.BytesIO):
        def write(self, data):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        send(Gone(), 1)
