"""The transforms and analyses of the tiers below on functions of Python: blocks, values for variables, inlining,
liveness, dominance, constants. The judge is the function itself, here of the standard library."""

import base64
import calendar
import colorsys
import fnmatch
import heapq
import itertools
import shlex
import statistics
import string
import textwrap
from urllib import parse

import pytest

import ziggurat as zg
from ziggurat import kit
from ziggurat.codemodel.dialects import core, py

COLORS = [*itertools.product((0.0, 0.1, 0.35, 0.8, 1.0), repeat=3)]
TEXT = "  one two\n\n    three, 'four five'\n  six\n"
CALLS = [
    *[(f, COLORS) for f in (colorsys.rgb_to_hls, colorsys.hls_to_rgb, colorsys.rgb_to_hsv, colorsys.hsv_to_rgb)],
    (statistics.median, [([3, 1, 2],), ([],)]),
    (calendar.monthrange, [(2024, month) for month in (1, 2, 12)]),
    (calendar.leapdays, [(1900, 2024)]),
    (fnmatch.translate, [("*.p[!yx]?",), ("[", ), ("a**b",)]),
    (heapq.merge, [([1, 4], [2, 3])]),
    (heapq._siftdown, [([5, 9, 1], 0, 2)]),
    (parse.parse_qsl, [("a=1&b=2;&a=%20",), ("",), ("a", True, True)]),
    (parse.urljoin, [("http://a/b/c", "../d?e"), ("", "x")]),
    (shlex.split, [("a 'b c' d\\ e",)]),
    (statistics.median_grouped, [([1, 3, 3, 5, 7],)]),
    (string.capwords, [(TEXT,), ("a-b", "-")]),
    (textwrap.dedent, [(TEXT,)]),
    (base64.b32encode, [(b"ziggurat",)]),
]  # fmt: skip


def result(function, arguments):
    """What a function gives, or how it fails; the items of a generator; what it does to a list that it is given."""
    arguments = [list(a) if isinstance(a, list) else a for a in arguments]
    try:
        value = function(*arguments)
        return (list(value) if hasattr(value, "send") else value), arguments
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize(("function", "calls"), CALLS, ids=lambda x: getattr(x, "__qualname__", ""))
def test_a_function_in_blocks_without_variables_does_the_same(function, calls):
    model = zg.reflect(function)
    lowered = kit.lower_structured(model)
    values = zg.simplify(kit.ssa(lowered))
    for changed in (lowered, values):
        zg.verify(changed)
        assert zg.same_model(zg.parse(str(changed)), changed)
        for arguments in calls:
            assert result(zg.interpret(changed, like=function), arguments) == result(function, arguments)
    assert not any(isinstance(op, py.If | py.While | py.CondAnd) for op in lowered.walk())


def loops(rows, limit):
    total, totals = 0, []
    for row in rows:
        for item in row:
            if item < 0:
                continue
            if item > limit:
                break
            total += item
        else:
            totals.append(total)
            continue
        totals.append(-1)
    else:
        total = total and -total
    while limit:
        limit -= 1
        if limit in totals:
            break
    else:
        return "none"
    return total, totals, limit


def test_loops_carry_values_as_parameters_of_blocks():
    model = kit.ssa(kit.lower_structured(zg.reflect(loops)))
    assert not any(isinstance(op, core.Var | core.VarLoad | py.For | py.While) for op in model.walk())
    run = zg.interpret(model)
    for rows, limit in itertools.product(([], [[1, 2], [-3, 4]], [[9, 1], [2]]), range(6)):
        assert run(rows, limit) == loops(rows, limit)


def closure():
    value, other = 1, 2
    get = lambda: value + other  # noqa: E731
    value = 5
    return get(), [value for _ in range(2)]


def lazily(items):
    factor = 2
    doubled = (item * factor for item in items)
    factor = 10
    return list(doubled), factor


def maybe(flag):
    if flag:
        value = 1
    return value


def listed(first):
    second = first + 1
    return sorted(locals())


def guarded(items):
    last = None
    for item in items:
        try:
            last = 10 // item
            if last > 4:
                break
        except ZeroDivisionError:
            continue
        finally:
            items = items[1:]
    return last, items


@pytest.mark.parametrize(
    ("function", "calls", "variables"),
    [
        (closure, [()], {"value"}),  # The function inside sees the value when it is called.
        (lazily, [([1, 2],)], {"factor"}),
        (maybe, [(True,), (False,)], {"value"}),  # Reading it may raise.
        (listed, [(1,)], {"first", "second"}),  # The names are asked for.
        (guarded, [([5, 0, 1, 7],), ([0, 0],), ([],)], {"last", "items", "item"}),  # An exception may leave any op.
    ],
)
def test_variables_stay_where_values_would_not_mean_the_same(function, calls, variables):
    for model in (zg.reflect(function), kit.lower_structured(zg.reflect(function))):
        changed = kit.ssa(model)
        zg.verify(changed)
        assert {op.name for op in changed.walk() if isinstance(op, core.Var)} <= variables | {"_", "item"}
        assert variables - {"item"} <= {op.name for op in changed.walk() if isinstance(op, core.Var)}
        for arguments in calls:
            assert result(zg.interpret(changed), arguments) == result(function, arguments)


def test_a_loop_that_a_try_leaves_stays_and_the_one_around_it_does_not():
    def nested(rows):
        for row in rows:
            for item in row:
                try:
                    if item:
                        break
                finally:
                    row = None
        return row

    lowered = kit.lower_structured(zg.reflect(nested))
    zg.verify(lowered)
    assert sum(isinstance(op, py.For) for op in lowered.walk()) == sum(
        isinstance(op, py.Iterate) for op in lowered.walk()
    )
    assert zg.interpret(lowered)([[0, 1], [0]]) is nested([[0, 1], [0]]) is None


async def awaits(items):
    total = 0
    async for item in items:
        if item > 2:
            break
        total += item
    return [total async for _ in items]


def test_an_async_for_stays():
    lowered = kit.lower_structured(zg.reflect(awaits))
    zg.verify(lowered)
    assert any(isinstance(op, py.For) and op.is_async for op in lowered.walk())


# Inlining.


def scale(x, by=2, *, twice=False):
    read = lambda y: y + x  # noqa: E731
    if twice:
        by = by * by
    elif by < 0:
        return
    return read(x) * by


def scales(a):
    total = []
    for x in a:
        total.append((scale(x, 3), scale(x, by=4, twice=True), scale(x, -1)))
    return total, scale(1, 2, 3) if not a else None


def line(x, k=2):
    y = x * k
    return y + 1


def lines(a):
    y = 0
    for x in a:
        y += line(x) * line(k=3, x=x)
    return y, a and line(*a[:1])


def calls_of(model, name):
    return [op for op in model.walk() if isinstance(op, py.Invoke) and op.callee == name]


def test_a_function_with_one_return_is_inlined_into_suites_and_comes_back_as_python():
    model = kit.inline_functions(zg.reflect(lines), {"line": zg.reflect(line)})
    zg.verify(model)
    assert [op.starred for op in calls_of(model, "line")] == [(0,)]
    for a in ([], [1], [2, 5, 7]):
        assert zg.interpret(model, line=line)(a) == zg.to_function(model, line=line)(a) == lines(a)
    each = kit.inline_functions(zg.reflect(lambda a: [line(x) for x in a]), {"line": zg.reflect(line)})
    assert zg.interpret(each)([1, 2]) == [3, 5] and not calls_of(each, "line")
    places = [op.location for op in model.walk() if isinstance(op, py.Mul) and op.location.caller is not None]
    assert len(places) == 2 and all(place.caller.line > place.line for place in places)


def test_a_function_that_returns_early_is_inlined_as_blocks():
    model = kit.inline_functions(zg.reflect(scales), {"scale": zg.reflect(scale)})
    values = zg.simplify(kit.ssa(model))
    for changed in (model, values):
        zg.verify(changed)
        assert len(calls_of(changed, "scale")) == 1  # Its arguments do not fit.
        for a in ([1, 2], [0.5]):
            assert zg.interpret(changed, scale=scale)(a) == scales(a)
        with pytest.raises(TypeError):
            zg.interpret(changed, scale=scale)([])
    constants = [op for op in values.walk() if isinstance(op, core.ConstantOp) and op.value == 16]
    assert constants, "4 * 4 is folded, and so is the branch that asks for `twice`"


@pytest.mark.parametrize("function", [colorsys.hls_to_rgb, textwrap.dedent, shlex.join])
def test_functions_of_the_standard_library_are_inlined(function):
    names = {"_v": colorsys._v, "quote": shlex.quote}
    model = kit.inline_functions(zg.reflect(function), {name: zg.reflect(f) for name, f in names.items()})
    zg.verify(model)
    for arguments in COLORS if function is colorsys.hls_to_rgb else [(TEXT,)]:
        assert result(zg.interpret(model, like=function), arguments) == result(function, arguments)
    if function is colorsys.hls_to_rgb:
        assert not calls_of(model, "_v")


def generator():
    yield 1


def starred(*arguments):
    return arguments


def naming():
    return locals()


def with_list(x=[]):  # noqa: B006
    return x


def test_what_cannot_be_inlined_is_said():
    def inner():
        return free

    free = 1
    for function, message in (
        (generator, "it is a generator or a coroutine"),
        (starred, r"it takes \*arguments"),
        (naming, "it asks for its own variables"),
        (inner, "it uses variables of functions around it"),
        (with_list, "a default of 'f' is no number or string"),
    ):
        with pytest.raises(zg.BuildError, match=message):
            kit.inline_functions(zg.reflect(lines), {"f": zg.reflect(function)})
    assert kit.inline_functions(model := zg.reflect(lines), {}) is model


# Liveness and dominance.


def test_live_values_and_dominators_of_a_loop():
    def count(n, step):
        total = 0
        while n > 0:
            n -= step
            total += 1
        return total

    body = kit.ssa(kit.lower_structured(zg.reflect(count))).bodies[0]
    n, step = body.parameters
    live, tree = kit.liveness(body), kit.DominatorTree(body)
    entry, header, *_ = body.blocks
    assert live[entry] == frozenset()
    inside = next(block for block in body.blocks if any(op.NAME == "inplace" for op in block.ops))
    assert {step, *header.parameters} <= live[inside] | set(inside.parameters)
    assert step in live[header] and n not in live[header]
    assert tree.dominates(header, inside) and not tree.dominates(inside, header)
    for block in body.blocks:
        for value in live[block]:
            assert kit.Dominance().dominates(value, block.ops[0])
