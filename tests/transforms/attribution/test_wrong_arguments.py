"""Every call of the language with every kind of argument in every place, right or wrong.

A call in a kernel is an error at its place, in the family of errors that users get, or it makes a model that verifies
and prints. The table `golden/accepted.txt` has a row for each parameter: the values that it takes beside right other
arguments, in words. A wrong call that comes to be accepted changes a row.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import linecache
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ziggurat as zg
from ziggurat.codemodel.errors import InternalError, KernelErrors, ZigguratError
from ziggurat.frontends.language import SIGNATURES

TABLE = Path(__file__).parent / "golden" / "accepted.txt"
_numbers = itertools.count()

# The names that the arguments are written with.
PRELUDE = """\
@zg.function
def helper(a, b):
    return zg.add(a, b)

@zg.function
def one(a):
    return a

@zg.kernel
def kernel(p, q, n, x, u, c: zg.constexpr):
    t = zg.arange(0, 16)
    f = zg.cast(t, zg.f32)
    h = zg.cast(t, zg.f16)
    e = zg.cast(f, zg.f8e4m3)
    b = zg.compare(t, n, zg.CompareKind.LESS_THAN)
    m = zg.zeros((16, 32), zg.f32)
    w = zg.zeros((32, 16), zg.f16)
    g = zg.zeros((16, 2), zg.i64)
    v = zg.cast(zg.arange(0, 8), zg.i8)
    ptrs = zg.add(p, t)
    ub = zg.zeros((16, 32), zg.u8)
    us = zg.zeros((16, 1), zg.u8)
    pair = (t, f)
    d = zg.make_tensor_descriptor(p, (n, n), (n, 1), (16, 16))
    rows = zg.make_tensor_descriptor(p, (n, n), (n, 1), (1, 32))
    at = zg.make_block_ptr(p, (n, n), (n, 1), (0, 0), (16, 16), (1, 0))
"""
# Three run-time scalars and two pointers; what the kernel is compiled for.
TYPES = (zg.ptr(zg.f32), zg.ptr(zg.i64), zg.i32, zg.f32, zg.u8, 4)

VALUES = (
    """\
p  q  n  x  u  c  t  f  h  e  b  m  w  g  v  ptrs  pair  d  at  None  'text'  ''  True  False  0  1  -1  3  16
1048576  2097152  2 ** 40  2 ** 63  2 ** 70  0.0  0.5  -2.5  1e300  zg.f32  zg.i32  zg.f8e5m2  zg.i1  POINTER
zg.CompareKind.EQUAL  helper  one  ()  (1,)  (16, 16)  (0, 1)  (1, 0)  (n,)  (n, n)  (n, 1)  ((1, 2), (3,))
((t, n), (1, f))  (t, t)  (f, t)  (None, None)  (zg.f32, zg.i32)  t.shape  t.dtype  m.shape  'rtz'  'relaxed'
'gpu'
""".replace("\n", "  ")
    .strip()
    .split("  ")
)

# The words of the table for variables, and for sets of values. A row names as few as it can.
NAMES = {
    "t": "i32[16]", "f": "f32[16]", "h": "f16[16]", "e": "f8[16]", "b": "i1[16]", "m": "f32[16, 32]",
    "w": "f16[32, 16]", "g": "i64[16, 2]", "v": "i8[8]", "ptrs": "pointers[16]", "n": "i32", "u": "u8", "x": "f32",
    "c": "constexpr", "d": "descriptor", "at": "block pointer", "rows": "descriptor of rows", "p": "pointer",
    "q": "pointer to i64", "pair": "a pair of tensors", "helper": "a function of two", "one": "a function",
}  # fmt: skip
_BOOLS, _INTEGERS, _FLOATS = ["True", "False"], "c 0 1 -1 3 16 1048576 2097152".split(), "0.0 0.5 -2.5 1e300".split()
_LONG = ["2 ** 40", "2 ** 63"]
_TENSORS = "t f h e b m w g v".split()
SETS: dict[str, list[str]] = {
    "any number": [*"nxu", *_TENSORS, *_BOOLS, *_INTEGERS, *_LONG, *_FLOATS],
    "any number of at most 32 bits": [*"nxu", *_TENSORS, *_BOOLS, *_INTEGERS, *_FLOATS],
    "any integer": [*"nutbgv", *_BOOLS, *_INTEGERS, *_LONG],
    "any integer of at most 32 bits": [*"nutbgv", *_BOOLS, *_INTEGERS],
    "any scalar": [*"nxu", *_BOOLS, *_INTEGERS, *_LONG, *_FLOATS],
    "any integer scalar": [*"nu", *_BOOLS, *_INTEGERS, *_LONG],
    "any constant": [*_BOOLS, *_INTEGERS, *_LONG, *_FLOATS],
    "any integer constant": [*_BOOLS, *_INTEGERS, *_LONG],
    "an integer constant of at most 32 bits": _INTEGERS,
    "any tensor": _TENSORS,
    "any tensor of floats": [*"fhemw"],
    "any tensor of integers": [*"tbgv"],
    "a dtype": ["zg.f32", "zg.i32", "zg.f8e5m2", "zg.i1", "t.dtype"],
    "text": ["'text'", "''", "'rtz'", "'relaxed'", "'gpu'"],
    "a float constant": _FLOATS,
    "a long integer": _LONG,
    "pointers": ["p", "q"],
    "a bool": _BOOLS,
    "a shape": ["(16, 16)", "m.shape"],
    "indices": ["(0, 1)", "(1, 0)"],
    "two integers": ["(n, n)", "(n, 1)"],
}


def in_words(values: list[str]) -> str:
    """Values of `VALUES` as the names of the sets that they make up, and the rest one by one."""
    rest, words = list(values), []
    while fitting := [(_gain(members, rest), name) for name, members in SETS.items() if _gain(members, rest) > 0]:
        _, name = max(fitting, key=lambda pair: pair[0])
        lacking = ", ".join(NAMES.get(member, member) for member in SETS[name] if member not in rest)
        words.append(f"{name}, not {lacking}" if lacking else name)
        rest = [value for value in rest if value not in SETS[name]]
    return "; ".join([*words, *(NAMES.get(value, value) for value in rest)]) or "nothing else"


def _gain(members: list[str], values: list[str]) -> int:
    """How much shorter a row is with the name of a set."""
    lacking = [member for member in members if member not in values]
    return len(members) - 3 * len(lacking) if len(lacking) <= len(members) // 6 else 0


# Arguments by parameter, of which the first that a call accepts are its right ones; a call of its own is listed below.
TYPICAL: tuple[dict[str, str], ...] = (
    {"x": "f", "a": "t", "b": "n", "axis": "0", "values": "16", "seed": "n", "offset": "t", "combine_fn": "helper"},
    {"x": "t", "a": "f", "b": "x", "c": "1.0", "n": "c", "ptr": "ptrs", "val": "f", "mask": "b", "y": "x"},
    {"ptr": "zg.add(q, t)", "val": "1", "mask": "b", "x": "n", "a": "w", "b": "zg.trans(w)"},
)
SPECIAL_ARGUMENTS = """\
clamp | x=f ; min=0.0 ; max=x
cdiv | x=n ; div=16
inline_asm_elementwise | asm='mov $0, $1;' ; constraints='=r,r' ; args=(t,) ; dtype=zg.i32 ; is_pure=True ; pack=1
atomic_cas | ptr=zg.add(q, t) ; cmp=0 ; val=1
compare | a=t ; b=n ; kind=zg.CompareKind.EQUAL
where | condition=b ; x=f ; y=0.0
range | arg1=0 ; arg2=n ; step=2
static_range | arg1=0 ; arg2=c ; step=2
cast | x=f ; dtype=zg.f16
bitcast | x=f ; dtype=zg.i32
arange | start=0 ; end=16
zeros | shape=(16, 16) ; dtype=zg.f32
full | shape=(16, 16) ; value=1 ; dtype=zg.f32
static_assert | cond=c == 4 ; msg='text'
static_print | values=c
device_print | prefix='text' ; args=t
device_assert | cond=b ; msg='text'
make_tensor_descriptor | base=p ; shape=(n, n) ; strides=(n, 1) ; block_shape=(16, 16) ; padding_option='zero'
make_block_ptr | base=p ; shape=(n,) ; strides=(1,) ; offsets=(0,) ; block_shape=(16,) ; order=(0,)
advance | base=at ; offsets=(n, 1)
load_tensor_descriptor | desc=d ; offsets=(n, 0)
store_tensor_descriptor | desc=d ; offsets=(n, 0) ; value=zg.zeros((16, 16), zg.f32)
gather_tensor_descriptor | desc=rows ; x_offsets=t ; y_offset=n
scatter_tensor_descriptor | desc=rows ; value=m ; x_offsets=t ; y_offset=n
reduce_tensor_descriptor | desc=d ; offsets=(n, 0) ; value=zg.zeros((16, 16), zg.f32) ; kind='add'
assume | cond=n > 0
dot_scaled | lhs=ub ; lhs_scale=us ; lhs_format='e4m3' ; rhs=zg.trans(ub) ; rhs_scale=None ; rhs_format='e5m2'
dot | a=w ; b=zg.trans(w) ; acc=None
load | ptr=ptrs ; mask=b ; other=0.0
store | ptr=ptrs ; value=f ; mask=b
wait | ptr=q ; value=1 ; compare='ge'
signal | ptr=zg.add(q, t) ; value=1 ; mask=b
fence | scope='gpu'
peer | addresses=q ; rank=t ; dtype=zg.f32
topk | x=f ; k=4
histogram | x=t ; num_bins=16
gather | src=f ; index=t ; axis=0
philox | seed=n ; c0=t ; c1=0 ; c2=0 ; c3=0
broadcast | x=x ; shape=(16, 16)
reshape | x=m ; shape=(8, 64)
trans | x=m
permute | x=m ; dims=(1, 0)
split | x=g
cat | a=f ; b=f
atan2 | y=x ; x=f
pow | x=f ; y=x
div_rn | a=x ; b=f
join | a=f ; b=x
fdiv | a=x ; b=f
directed | operation='add' ; rounding='rz' ; operands=f, x
approximate | function='tanh' ; x=f
swizzle2d | i=n ; j=t ; size_i=16 ; size_j=16 ; size_g=4
map_elementwise | scalar_fn=one ; args=t
squeeze | x=zg.expand(t, 0) ; dim=0
unsqueeze | x=t ; dim=0
"""
SPECIAL: dict[str, dict[str, str]] = {
    call: dict(argument.strip().split("=", 1) for argument in arguments.split(" ; "))
    for call, arguments in (line.split(" |") for line in SPECIAL_ARGUMENTS.splitlines())
}


def right_arguments(call: str) -> dict[str, str]:
    """Arguments that a call accepts: those listed for it, or the first typical ones of its parameters that it takes."""
    if call in SPECIAL:
        return SPECIAL[call]
    names = [p.name for p in SIGNATURES[call].parameters]
    for typical in TYPICAL:
        arguments = {name: value for name, value in (TYPICAL[0] | typical).items() if name in names}
        if accepted([statement(call, arguments)]):
            return arguments
    pytest.fail(f"zg.{call} takes none of the typical arguments: list arguments that it takes")


def statement(call: str, arguments: dict[str, str]) -> str:
    """A call as a statement of a kernel: with keywords, but for variadic parameters."""
    texts: list[str] = []
    variadic = any(p.variadic for p in SIGNATURES[call].parameters)
    for p in SIGNATURES[call].parameters:
        if p.name in arguments:
            by_place = variadic and p.kind is not inspect.Parameter.KEYWORD_ONLY
            texts.append(arguments[p.name] if by_place else f"{p.name}={arguments[p.name]}")
    text = f"zg.{call}({', '.join(texts)})"
    return f"for i in {text}: pass" if call in ("range", "static_range") else text


def errors_of(lines: list[str]) -> tuple[dict[int, ZigguratError], Any]:
    """Compile the statements as one kernel: the error of each, by its index, and the model where there is none."""
    body = "\n".join(f"    {line}" for line in lines)
    text, first = f"{PRELUDE}{body}\n", PRELUDE.count("\n") + 1
    file = f"<wrong {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {"zg": zg, "POINTER": zg.ptr(zg.f32)}
    exec(compile(text, file, "exec"), scope)
    errors: dict[int, ZigguratError] = {}
    places: list[tuple[int, int]] = []
    try:
        model = scope["kernel"].triton(*TYPES)
    except InternalError as error:
        pytest.fail(f"{lines}\n{error}")
    except ZigguratError as error:
        for part in error.errors if isinstance(error, KernelErrors) else (error,):
            place = part.location
            assert place is not None, f"no place: {part}"
            while place.caller is not None:
                place = place.caller
            assert place.file == file, str(part)
            index = place.line - first
            assert 0 <= index < len(lines), f"not at the call: {part}"
            assert "^" in str(part)
            places.append((place.line, place.column))
            errors[index] = part
        assert len(set(places)) == len(places), f"two errors of one place:\n{KernelErrors([*errors.values()])}"
        return errors, None
    else:
        return {}, model
    finally:
        del linecache.cache[file]


def accepted(lines: list[str]) -> list[str]:
    """The statements that are accepted. Together they make a model that verifies and prints."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        errors, model = errors_of(lines)
        good = [line for index, line in enumerate(lines) if index not in errors]
        for index, error in errors.items():
            check_words(lines[index], error)
        if errors and good:
            again, model = errors_of(good)
            assert not again, str(again)
        if good:
            zg.verify(model)
            assert zg.same_model(zg.parse(str(model)), model)
    return good


def check_words(line: str, error: ZigguratError) -> None:
    """A message in the words of a kernel's author."""
    text = f"{error.summary} {error.hint or ''}"
    for inside in (
        "ConstantType",
        "ScalarType",
        "object at",
        "NoneType",
        "attrs",
        "Traceback",
        "<class",
        "TensorType(",
    ):
        assert inside not in text, f"{line}: {text}"
    assert "\n" not in error.summary, f"{line}: {text}"


@functools.cache
def right(call: str) -> dict[str, str]:
    arguments = right_arguments(call)
    assert accepted([statement(call, arguments)]), call
    return arguments


def test_each_row_of_the_table_is_a_parameter():
    names = [f"{call}.{p.name}" for call in sorted(SIGNATURES) for p in SIGNATURES[call].parameters]
    assert [row.partition(": ")[0] for row in TABLE.read_text(encoding="utf-8").splitlines()] == names


@pytest.mark.parametrize("call", SIGNATURES)
def test_wrong_arguments_are_errors_at_the_call(call: str, request: pytest.FixtureRequest):
    """`--bless` renews the rows of the call; without `-n`, because the calls have one table."""
    names = [parameter.name for parameter in SIGNATURES[call].parameters]
    values = {name: {value: statement(call, right(call) | {name: value}) for value in VALUES} for name in names}
    good = {*accepted(list(dict.fromkeys(line for lines in values.values() for line in lines.values())))}
    rows = [
        f"{call}.{name}: {in_words([value for value, line in lines.items() if line in good])}"
        for name, lines in values.items()
    ]
    table = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []
    if request.config.getoption("--bless"):
        others = [row for row in table if row.partition(".")[0] != call]
        by_call = sorted([*others, *rows], key=lambda row: row.partition(".")[0])
        TABLE.write_text("\n".join(by_call) + "\n", encoding="utf-8")
    else:
        assert rows == [row for row in table if row.partition(".")[0] == call]


# By the parameter that decides how many results a call gives: an argument, and their number then.
SEVERAL = {"return_indices": ("True", 2), "x": ("(t,)", 1), "dtype": ("(zg.i32,)", 1)}


@pytest.mark.parametrize("call", sorted(SIGNATURES.keys() - {"range", "static_range"}))
def test_the_signature_tells_how_many_results_a_call_gives(call: str):
    """Tracing makes a tuple of as many without knowing any type."""
    results, arguments = SIGNATURES[call].results, right(call)
    count = None if results == 1 else results
    if isinstance(results, str):
        several, count = SEVERAL[results]
        text = statement(call, arguments | {results: several})
        assert accepted([f"{'_, ' * count} = {text}"])
        assert SIGNATURES[call].result_count({results: True if several == "True" else (0,)}) == count
        count = None
    if count == 0:
        assert not accepted([f"zg.device_print('', {statement(call, arguments)})"])
    elif count is None:
        assert not accepted([f"_, _ = {statement(call, arguments)}"])
    else:
        assert accepted([f"{'_, ' * count} = {statement(call, arguments)}"])


@settings(max_examples=60)
@given(st.data())
def test_any_arguments_at_all(data: st.DataObject):
    call = data.draw(st.sampled_from(sorted(SIGNATURES)))
    names = [p.name for p in SIGNATURES[call].parameters]
    lines = [
        statement(call, right(call) | data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from(VALUES))))
        for _ in range(8)
        if names
    ]
    if lines:
        accepted(lines)
