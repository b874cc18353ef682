"""Known values of arguments are constants of the parameters' types."""

import numpy as np

import ziggurat as zg
from ziggurat.transforms.simplify.known import with_known_values


@zg.kernel
def divide(x_ptr, n, by, B: zg.constexpr):
    at = zg.add(x_ptr, zg.arange(0, B))
    zg.store(at, zg.add(zg.load(at), n // by + n * by))


def test_the_kernel_takes_one_argument_less_and_computes_the_same():
    model = divide.triton(zg.divisible(zg.ptr(zg.i32)), zg.i32, zg.divisible(zg.i32, 4), 4)
    known = with_known_values(model, next(reversed(model.functions())), {1: -7})
    zg.verify(known)
    func = known.body.entry.ops[-2]
    assert [str(p.type) for p in func.body.parameters] == ["ptr<i32>", "i32"]
    assert func.attributes["divisibility"] == (16, 4)
    before, after = np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32)
    zg.run(model, (1,), before, -7, 4)
    zg.run(known, (1,), after, 4)
    assert after.tolist() == before.tolist() == [-29, -28, -27, -26]  # -7 // 4 is -1 on the machine, not -2.


def test_nothing_known_changes_nothing():
    model = divide.triton(zg.ptr(zg.i32), zg.i32, zg.i32, 4)
    assert with_known_values(model, "", {}) is model
