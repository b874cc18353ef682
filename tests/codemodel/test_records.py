"""Records: constructors, values, and what makes two of them equal."""

from __future__ import annotations

import copy
import pickle
from typing import Any, ClassVar

import pytest

from ziggurat.codemodel import records


@records.frozen
class Box:
    """A base, whose fields come first."""

    KIND: ClassVar[str] = "box"

    shape: tuple[int, ...] = records.field(converter=tuple[int, ...])
    name: str = "plain"

    def size(self) -> int:
        return len(self.shape)


@records.frozen
class Crate(Box):
    items: list[str] = records.field(factory=list[str], hash=False)
    weight: int = records.field(default=1, kw_only=True, eq=False, repr=False, validator=records.instance_of(int))
    label: str = records.field(init=False)
    name: str = "crate"

    def __post_init__(self) -> None:
        records.fill(self, "label", f"{self.name} of {self.weight}")


@records.distinct
class Token:
    value: Any = None


@records.define
class Counter:
    count: int
    seen: list[int] = records.field(factory=list[int])


@records.frozen
class Loud:
    value: int

    def __init__(self, value: int, *, twice: bool = False) -> None:
        records.fill(self, "value", value * (1 + twice))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loud) and self.value % 10 == other.value % 10

    def __hash__(self) -> int:
        return self.value % 10

    def __repr__(self) -> str:
        return f"LOUD {self.value}"


def test_fields_are_taken_by_place_and_by_name():
    assert Box([2, 3]) == Box(shape=(2, 3), name="plain")
    assert repr(Box((2, 3), "b")) == "Box(shape=(2, 3), name='b')"
    assert [one.name for one in records.fields(Crate)] == ["shape", "items", "weight", "label", "name"]
    made = Crate((1,), ["a"], "c", weight=3)
    assert (made.items, made.name, made.weight, made.label, made.size()) == (["a"], "c", 3, "c of 3", 1)
    assert repr(made) == "Crate(shape=(1,), items=['a'], label='c of 3', name='c')"
    assert Crate(()).items is not Crate(()).items
    for arguments, keywords in (((), {}), (((1,), [], "c", 2), {}), (((1,),), {"label": "x"}), (((1,),), {"far": 1})):
        with pytest.raises(TypeError):
            Crate(*arguments, **keywords)
    with pytest.raises(TypeError, match="must be of type int; got 'heavy'"):
        Crate((), weight="heavy")  # pyright: ignore[reportArgumentType]


def test_records_are_equal_by_class_and_values():
    assert Box((1,)) != Box((2,)) and Box((1,)) != Crate((1,)) and Box((1,)) != (1,)
    assert hash(Box((1,))) == hash(Box((1,))) and {Box((1,)): 1}[Box([1])] == 1
    assert Crate((), weight=1, name="a") != Crate((), weight=2, name="a")  # by their labels
    assert hash(Crate((), ["a"])) == hash(Crate((), ["b"])) and Crate((), ["a"]) != Crate((), ["b"])
    token = Token(1)
    assert token != Token(1) and token == token and len({token, Token(1)}) == 2
    counter = Counter(1)
    assert counter != Counter(1) and counter in {counter}


def test_a_plain_subclass_is_a_record_of_its_base():
    class Small(Box):
        pass

    assert Small((1,)) == Small([1]) != Box((1,)) and records.evolve(Small((1,)), name="s").name == "s"


def test_own_methods_stay():
    assert Loud(3, twice=True).value == 6 and Loud(1) == Loud(11) and hash(Loud(12)) == 2 and repr(Loud(1)) == "LOUD 1"


@pytest.mark.parametrize("record", [Box((1,)), Token(1), Loud(1)], ids=str)
def test_a_frozen_record_cannot_be_changed(record: Any):
    with pytest.raises(AttributeError, match="does not change"):
        record.value = 2
    with pytest.raises(AttributeError, match="does not change"):
        del record.value


def test_a_defined_record_can_be_changed():
    counter = Counter(1)
    counter.count += 1
    counter.seen.append(counter.count)
    assert repr(counter) == "Counter(count=2, seen=[2])"


def test_evolve_makes_another_record():
    crate = Crate((1,), ["a"], weight=2)
    changed = records.evolve(crate, weight=3, shape=[4])
    assert (changed.shape, changed.items, changed.weight, changed.label) == ((4,), ["a"], 3, "crate of 3")
    assert crate.shape == (1,)
    with pytest.raises(TypeError):
        records.evolve(crate, far=1)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_has_the_fields_and_no_hash(copied: Any):
    crate = Crate((1,), ["a"], weight=2)
    hash(crate)  # Texts have another hash in another process.
    made = copied(crate)
    assert made == crate and made.weight == 2 and vars(made) == records.asdict(crate)


def test_records_are_matched_by_their_fields():
    match Crate((1,), ["a"]):
        case Crate(shape, items, name):
            assert (shape, items, name) == ((1,), ["a"], "crate")
