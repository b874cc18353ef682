"""Frames: their programs and values, parts of them, and merging."""

from __future__ import annotations

import numpy as np
import pytest

from ziggurat.backend.reference.values import Frame
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.types import i32

X, Y, Z = Builder.root([i32, i32, i32]).parameters


@pytest.fixture
def frame():
    result = Frame(np.arange(4, dtype=np.int32), np.arange(10, 14, dtype=np.int32))
    result.bind(X, np.array([0, 10, 20, 30]))
    return result


def test_a_child_has_the_values_of_its_parent(frame):
    child = frame.child()
    assert child.lookup(X) is frame.lookup(X) and len(child) == 4
    frame.bind(Y, np.array([1]))
    assert child.lookup(Y).tolist() == [1]
    child.bind(Z, np.array([2]))
    with pytest.raises(AssertionError, match="has no value"):
        frame.lookup(Z)


def test_a_part_takes_the_values_of_its_programs(frame):
    part = frame.part(np.array([1, 3]))
    assert part.programs.tolist() == [11, 13] and part.lookup(X).tolist() == [10, 30]
    again = part.part(np.array([1]))
    assert again.programs.tolist() == [13] and again.lookup(X).tolist() == [30]
    assert frame.places(again).tolist() == [3] and part.places(again).tolist() == [1]
    assert frame.places(frame.child()).tolist() == [0, 1, 2, 3]


def test_an_isolated_frame_has_no_values(frame):
    with pytest.raises(AssertionError):
        Frame(frame.keys, frame.programs).lookup(X)


def test_each_element_runs_as_a_program(frame):
    elements = frame.elements(2)
    assert len(elements) == 8 and elements.programs.tolist() == [10, 10, 11, 11, 12, 12, 13, 13]
    assert elements.lookup(X).tolist() == [0, 0, 10, 10, 20, 20, 30, 30]
    assert elements.keys.tolist() == list(range(8)), "keys are distinct where programs are not"


def test_values_are_bound_for_some_programs(frame):
    frame.bind_some(X, np.array([1, 2]), np.array([-1, -2]))
    assert frame.lookup(X).tolist() == [0, -1, -2, 30]
    frame.bind_some(Y, np.array([0]), np.array([5]))
    assert frame.lookup(Y)[0] == 5, "the others have had none"


def test_a_released_value_is_dropped_from_parents_too(frame):
    part = frame.part(np.array([0]))
    part.lookup(X)
    part.release(X)
    for item in (frame, part):
        with pytest.raises(AssertionError):
            item.lookup(X)


def test_parts_are_merged_in_the_order_of_programs(frame):
    odd, even = frame.part(np.array([1, 3])), frame.part(np.array([0, 2]))
    barriers, value = frame.merge([(odd, np.array([1, 3])), (even, np.array([0, 2]))])
    assert barriers is frame and value.tolist() == [0, 1, 2, 3]
    unit = frame.part(np.array([2]))
    some, value = frame.merge([(odd, np.array([1, 3])), (unit, np.array([2]))])
    assert some.programs.tolist() == [11, 12, 13] and value.tolist() == [1, 2, 3]
    alone, value = frame.merge([(odd, "kept")])
    assert alone.programs.tolist() == [11, 13] and value == "kept"
    assert frame.merge([(frame.child(), 1)])[0] is frame
