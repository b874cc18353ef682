"""Symbolic values: Python's operators record ops, and other uses are errors at the user's line."""

import math
import operator

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.frontends.tracing import trace_function

F32 = zg.ptr(zg.f32)


def recorded(use, *arguments):
    """The ops of the Python model that `use` records on symbols for an integer and a float, without the return."""

    def kernel(n, x, *rest):
        use(n, x, *rest)

    return list(trace_function(kernel, (zg.i32, zg.f32, *arguments)).model.bodies[0].entry.ops[:-1])


BINARY = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "mod": operator.mod,
    "floordiv": operator.floordiv, "pow": operator.pow, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "shl": operator.lshift, "shr": operator.rshift,
}  # fmt: skip
COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


@pytest.mark.parametrize("name", [*BINARY, *COMPARISONS])
def test_operators_record_their_ops(name):
    compute = {**BINARY, **COMPARISONS}[name]
    (op,) = recorded(compute)
    n, x = op.operands
    assert op.NAME == name and (n.index, x.index) == (0, 1) and n.block is x.block
    constant, op = recorded(lambda n, x: compute(n, 3))
    assert (constant.NAME, op.NAME) == ("constant", name) and op.operands[1] is constant.result
    assert op.location.file == __file__


@pytest.mark.parametrize("name", BINARY)
def test_a_number_as_left_operand(name):
    constant, op = recorded(lambda n, x: BINARY[name](7, n))
    assert op.NAME == name and op.operands[0] is constant.result and op.operands[1].index == 0


def test_comparisons_with_a_number_as_left_operand_are_swapped():
    _, op = recorded(lambda n, x: 7 < n)
    assert op.NAME == "gt" and op.operands[1].op.attributes["value"] == 7


def test_operators_of_one_operand():
    assert [op.NAME for op in recorded(lambda n, x: (-n, ~n, +n))] == ["neg", "invert"]
    (op,) = recorded(lambda n, x: abs(x))
    assert op.callee == "builtins.abs" and [value.index for value in op.operands] == [1]
    ops = recorded(lambda n, x: divmod(n, x))
    assert [(op.NAME, *(value.index for value in op.operands)) for op in ops] == [("floordiv", 0, 1), ("mod", 0, 1)]
    for compute in (operator.neg, operator.invert):
        (op,) = recorded(lambda n, x, compute=compute: compute(x))
        assert op.operands[0].index == 1


def test_tuples_of_symbols_and_numbers_are_packed():
    *_, pack, subscript = recorded(lambda n, x: n[(x, 3)])
    assert (pack.NAME, subscript.NAME) == ("pack", "subscript") and subscript.operands[1] is pack.result
    assert pack.operands[0].index == 1 and pack.operands[1].op.value == 3
    constant, subscript = recorded(lambda n, x: n[(2, 3)])
    assert constant.value == (2, 3) and subscript.operands[1] is constant.result
    *_, pack, subscript = recorded(lambda n, x: n[[n, x]])
    assert [value.index for value in pack.operands] == [0, 1]


def test_properties_subscripts_and_methods():
    ops = recorded(lambda n, x: (n.shape, n.dtype, n.dtype.element_ty, n[0], n.load((0,)), n.store((0,), x)))
    assert [op.attributes["name"] for op in ops if op.NAME == "attribute"] == ["shape", "dtype", "dtype", "element_ty"]
    assert [op.callee for op in ops if op.NAME == "invoke"] == [".load", ".store"]
    assert sum(op.NAME == "subscript" for op in ops) == 1
    load, store = (op for op in ops if op.NAME == "invoke")
    assert load.operands[0].index == 0 and load.operands[1].op.value == (0,)
    assert (store.operands[0].index, store.operands[2].index) == (0, 1) and store.operands[1].op.value == (0,)


NUMPY = {
    "add": lambda n, x: np.float32(2) + x, "sub": lambda n, x: np.float64(2) - x,
    "mul": lambda n, x: np.float16(2) * x, "div": lambda n, x: np.float64(2) / x,
    "floordiv": lambda n, x: np.int64(2) // n, "mod": lambda n, x: np.int8(2) % n,
    "pow": lambda n, x: np.int32(2) ** n, "and": lambda n, x: np.int64(2) & n,
    "or": lambda n, x: np.int64(2) | n, "xor": lambda n, x: np.int64(2) ^ n,
    "shl": lambda n, x: np.int32(2) << n, "shr": lambda n, x: np.uint8(2) >> n,
    "eq": lambda n, x: np.equal(2, n), "ne": lambda n, x: np.not_equal(2, n), "lt": lambda n, x: np.float64(2) < x,
    "le": lambda n, x: np.float32(2) <= x, "gt": lambda n, x: np.int64(2) > n, "ge": lambda n, x: np.int32(2) >= n,
}  # fmt: skip


@pytest.mark.parametrize("name", NUMPY)
def test_operators_of_a_numpy_number_record_their_ops(name):
    constant, op = recorded(NUMPY[name])
    assert op.NAME == name and op.operands[0] is constant.result and constant.value == 2
    assert op.location.file == __file__


FUNCTIONS = {
    "exp": lambda n, x: np.exp(x), "maximum": lambda n, x: np.maximum(x, 0.0), "absolute": lambda n, x: np.abs(x),
    "sum": lambda n, x: np.sum(x), "where": lambda n, x: np.where(x > 0, x, 0), "clip": lambda n, x: np.clip(x, 0, 1),
    "add": lambda n, x: np.add.reduce(x), "multiply": lambda n, x: np.multiply(x, x, where=True),
    "sqrt": lambda n, x: np.sqrt(x, out=np.zeros(1)), "matmul": lambda n, x: np.matmul(x, x),
    "concatenate": lambda n, x: np.concatenate([x, x]), "norm": lambda n, x: np.linalg.norm(x),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numpy_are_refused_at_their_line(name):
    with pytest.raises(zg.KernelTypeError, match=f"^NumPy's '{name}' does not work on a value of the kernel") as error:
        recorded(FUNCTIONS[name])
    assert error.value.location.file == __file__
    assert error.value.hint == f"call zg.{name if name in zg.__all__ else '<name>'}(…) instead"


@pytest.mark.parametrize("use", [math.exp, math.floor, math.ceil, math.trunc, math.hypot, float, complex])
def test_functions_of_python_numbers_are_refused_at_their_line(use):
    with pytest.raises(zg.KernelTypeError, match="a value of the kernel is not a Python number") as error:
        recorded(lambda n, x: use(x))
    assert error.value.location.file == __file__ and "zg.exp(x) for math.exp(x)" in error.value.hint


def test_divmod_of_a_number_by_a_symbol():
    *_, quotient, _, remainder = recorded(lambda n, x: divmod(7, n))
    assert (quotient.NAME, remainder.NAME) == ("floordiv", "mod")
    for op in (quotient, remainder):
        assert op.operands[0].op.value == 7 and op.operands[1].index == 0


def test_a_numpy_number_leaves_operators_to_symbols():
    constant, op = recorded(lambda n, x: np.float32(2.5) * x)
    assert op.NAME == "mul" and op.operands[0] is constant.result and constant.attributes["value"] == 2.5


@pytest.mark.parametrize(
    ("use", "words", "hint"),
    [
        (lambda n, x: bool(n), "the truth of a value of the kernel is not known", "zg.if_"),
        (lambda n, x: [*n], "cannot be iterated over", "zg.for_"),
        (lambda n, x: range(n), "is not a Python integer", "as constants to zg.trace"),
        (lambda n, x: len(n), "the length of a value", "zg.for_"),
        (lambda n, x: 3 in n, "cannot be searched", "zg.compare"),
        (lambda n, x: operator.setitem(n, 0, 1), "cannot be changed", "zg.store"),
        (lambda n, x: n(3), "cannot be called", "zg.<name>"),
        (lambda n, x: n @ x, "the operator '@' does not work", "zg.dot(a, b)"),
        (lambda n, x: 3 @ n, "the operator '@' does not work", "zg.dot(a, b)"),
        (lambda n, x: round(x), r"round\(\) does not work", "zg.floor"),
        (lambda n, x: n.sum(), "has no 'sum'", "call zg.sum(…) instead"),
        (lambda n, x: n.colour, "has no 'colour'", "values have .shape and .dtype"),
        (lambda n, x: n + object(), "an object of the type object cannot be a value", "kernels take numbers"),
    ],
)
def test_operations_that_symbols_refuse(use, words, hint):
    with pytest.raises(zg.KernelTypeError, match=words) as error_info:
        recorded(use)
    assert error_info.value.hint.startswith(hint) or hint in error_info.value.hint
    assert error_info.value.location.file == __file__


def test_hasattr_of_symbols_is_false():
    def use(n, x):
        assert not hasattr(n, "sum") and not hasattr(n, "__array__")
        with pytest.raises(AttributeError):
            _ = n.colour

    assert recorded(use) == []


def test_a_symbol_may_be_in_a_dict():
    def use(n, x):
        table = {n: "n", x: "x"}
        assert (table[n], table[x]) == ("n", "x") and len({n, x, n}) == 2

    assert recorded(use) == []


def test_a_number_given_as_a_constant_remembers_its_parameter():
    def use(n, x, size, ratio, name):
        assert (size, ratio, name) == (16, 0.5, "text") and size * 2 == 32 and isinstance(size, int)
        n + size
        x * ratio

    first, second = recorded(use, 16, 0.5, "text")
    parameters = first.operands[0].block.parameters
    assert first.operands[1] is parameters[2] and second.operands[1] is parameters[3]


def test_symbols_are_no_bools_iterables_or_integers():
    def branches(x_ptr, n):
        if n > 3:
            zg.store(x_ptr, 1.0)

    def iterates(x_ptr, n):
        for _ in zg.load(x_ptr):
            pass

    def counts(x_ptr, n):
        for _ in range(n):
            pass

    for kernel, words in ((branches, "truth"), (iterates, "iterated over"), (counts, "not a Python integer")):
        with pytest.raises(zg.KernelTypeError, match=words) as error_info:
            zg.trace(kernel, F32, zg.i32)
        assert error_info.value.location is not None and error_info.value.location.file == __file__
