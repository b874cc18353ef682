"""The ops that accesses must not be moved across."""

from __future__ import annotations

import pytest

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.op import Op, expect
from ziggurat.codemodel.text.parser import parse
from ziggurat.transforms.analysis.memory_order import MemoryOrder, may_order

# An op, and which accesses of %x it orders: those that come after it, and those that come before it.
OPS = {
    "tt.store %x %n;": (True, True),
    "tt.store %y %n;": (False, False),
    "%a : i32 = tt.load %x;": (True, False),
    "%a : i32 = tt.load %x @volatile=true;": (True, False),
    "%a : i32 = tt.atomic_rmw %y %n @add @sem=relaxed;": (False, False),
    "%a : i32 = tt.atomic_rmw %x %n @add @sem=relaxed;": (True, True),
    "%a : i32 = tt.atomic_rmw %y %n @add @sem=acquire;": (False, False),  # Nothing follows from what it gives.
    '%a : i32 = tt.atomic_rmw %y %n @add @sem=acquire; tt.print %a @"";': (True, False),
    "%a : i32 = tt.atomic_rmw %y %n @add;": (False, True),
    '%a : i32 = tt.atomic_rmw %y %n @add; tt.print %a @"";': (True, True),
    "%a : i32 = tt.atomic_rmw %y %n @add @sem=release;": (False, True),
    "tt.barrier;": (True, True),
}


def func_of(text: str) -> tuple[tt.Func, Op, list[tt.Load]]:
    """A function with this op before two loads of its first argument, the second one by a pointer that is computed."""
    func = parse(f"""tt.func @"f" (%x : ptr<i32>, %y : ptr<i32>, %n : i32)void -> {{
        {text}
        %b : i32 = tt.load %x;
        %p : ptr<i32> = tt.addptr %x %n;
        %c : i32 = tt.load %p;
        tt.return;
    }};""")
    ops = expect(func, tt.Func).body.entry.ops
    return expect(func, tt.Func), ops[0], [op for op in ops[1:] if isinstance(op, tt.Load)]


@pytest.mark.parametrize(("text", "orders"), OPS.items(), ids=OPS)
def test_what_orders_accesses_before_it_and_after_it(text: str, orders: tuple[bool, bool]) -> None:
    func, op, loads = func_of(text)
    memory = MemoryOrder(func)
    for load in loads:
        after, before = (memory.keeps_order(op, [load.ptr], after=side, before=not side) for side in (True, False))
        assert (after, before) == orders
        assert memory.keeps_order(op, [load.ptr]) == any(orders)


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("tt.store %x %n;", False), ("tt.store %y %n;", True), ("tt.barrier;", False),
        ("%a : i32 = tt.load %y @volatile=true;", False), ("%a : i32 = tt.load %y @cache=cv;", False),
        ("%a : i32 = tt.load %y;", True), ("%a : i32 = tt.atomic_rmw %y %n @add @sem=relaxed;", True),
        ("%a : i32 = tt.atomic_rmw %y %n @add;", False),
    ],
)  # fmt: skip
def test_loads_that_may_be_done_at_any_time(text: str, stays: bool) -> None:
    func, op, loads = func_of(text)
    assert [MemoryOrder(func).stays(load) for load in loads] == [stays, stays]
    assert may_order(op) == (not isinstance(op, tt.Store) and text not in ("%a : i32 = tt.load %y;",))
