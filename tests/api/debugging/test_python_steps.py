"""The debugger stops at the lines, and with the numbers, that Python's own debugger has for the same text."""

import sys
from random import Random

import numpy as np
import pytest
from generated_flow import Exits

import ziggurat as zg

N = 3


class Memory:
    """What a generated kernel reads and writes, for Python."""

    def __init__(self, numbers, at=0):
        self.numbers, self.at = numbers, at

    def __add__(self, offset):
        return Memory(self.numbers, self.at + offset)

    @staticmethod
    def load(place):
        return place.numbers[place.at]

    @staticmethod
    def store(place, value):
        place.numbers[place.at] = value

    @staticmethod
    def kernel(function):
        return function


def python_steps(source, numbers):
    """The lines that Python comes to, with the numbers in `x`, and the numbers in memory at the end."""
    steps, namespace = [], {"zg": Memory}
    exec(compile(source, "<python>", "exec"), namespace)

    def trace(frame, event, argument):
        if frame.f_code.co_filename != "<python>":
            return None
        if event == "line":
            steps.append((frame.f_lineno, frame.f_locals.get("x")))
        return trace

    memory = Memory(list(numbers))
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        namespace["kernel"](memory, N)
    finally:
        sys.settrace(before)
    return steps, memory.numbers


def our_steps(source, numbers):
    array = np.array(numbers, np.int32)
    session = zg.debug(zg.kernel(source=source), (1,), array, N)
    first = session.kernel.place.line - 2  # The decorator is the first line of the text.
    steps = []
    while session.place.reason != "end":
        x = session.variables.get("x")
        steps.append((session.place.line - first, None if x is None else int(x)))
        session.step()
    after = session.arrays["p"].tolist()
    back = []
    while session.step(back=True).reason != "start":
        x = session.variables.get("x")
        back.append((session.place.line - first, None if x is None else int(x)))
    assert back == steps[::-1] and session.arrays["p"].tolist() == numbers
    return steps, after


@pytest.mark.parametrize("seed", range(60))
def test_the_steps_of_a_generated_kernel_are_pythons(seed):
    source = Exits(Random(seed)).source()
    for x in (0, 2, 5):
        numbers = [x, 10, 20, 30]
        assert our_steps(source, numbers) == python_steps(source, numbers), source
