"""The key of a compiled kernel: the parts of a model that it depends on."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.cache import keys
from ziggurat.backend.cache.keys import key
from ziggurat.codemodel.gpu.options import CompileOptions

OPTIONS = CompileOptions()


@zg.kernel
def scale(x_ptr, n, factor, BLOCK: zg.constexpr):
    offsets = zg.add(zg.mul(zg.program_id(0), BLOCK), zg.arange(0, BLOCK))
    mask = zg.compare(offsets, n, zg.CompareKind.LESS_THAN)
    pointers = zg.add(x_ptr, offsets)
    zg.store(pointers, zg.mul(zg.load(pointers, mask), factor), mask)


def elsewhere():
    @zg.kernel
    def scale(array, count, by, BLOCK: zg.constexpr):
        # Other names, other lines, a comment.
        at = zg.add(zg.mul(zg.program_id(0), BLOCK), zg.arange(0, BLOCK))

        inside = zg.compare(at, count, zg.CompareKind.LESS_THAN)
        places = zg.add(array, at)
        zg.store(places, zg.mul(zg.load(places, inside), by), inside)

    return scale


TYPES = (zg.ptr(zg.f32), zg.i32, zg.f32, 64)


def renamed(model):
    """The model's text with the name of the other kernel: the name is part of the key."""
    return zg.parse(str(model).replace("elsewhere.<locals>.scale", "scale"))


def test_places_and_names_of_variables_do_not_count():
    first, second = scale.triton(*TYPES), renamed(elsewhere().triton(*TYPES))
    assert key(first, OPTIONS) == key(second, OPTIONS)
    python, other = scale.model, renamed(elsewhere().model)
    assert not zg.same_model(python, other) and key(python, OPTIONS) == key(other, OPTIONS)


def test_what_is_compiled_counts():
    model = scale.triton(*TYPES)
    values = [
        key(model, OPTIONS),
        key(model, CompileOptions("sm_80")),
        key(model, CompileOptions(num_warps=8)),
        key(scale.triton(zg.ptr(zg.f64), zg.i32, zg.f32, 64), OPTIONS),
        key(scale.triton(zg.divisible(zg.ptr(zg.f32)), zg.i32, zg.f32, 64), OPTIONS),
        key(zg.parse(str(model).replace("arith.mulf", "arith.addf")), OPTIONS),
        key(scale.triton(zg.ptr(zg.f32), zg.i32, zg.f32, 128), OPTIONS),
    ]
    assert len(set(values)) == len(values) and all(len(item) == 64 for item in values)


def test_the_compiler_counts(monkeypatch: pytest.MonkeyPatch):
    before = key(scale.triton(*TYPES), OPTIONS)
    monkeypatch.setattr(keys, "compiler_version", lambda **_: "another")
    assert key(scale.triton(*TYPES), OPTIONS) != before


def test_the_key_is_the_same_in_another_process():
    text = str(scale.triton(*TYPES))
    program = (
        "import sys, ziggurat as zg; from ziggurat.backend.cache.keys import key;"
        "from ziggurat.codemodel.gpu.options import CompileOptions;"
        "print(key(zg.parse(sys.stdin.read()), CompileOptions()))"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert done.stdout.strip() == key(scale.triton(*TYPES), OPTIONS), done.stderr


def test_the_place_of_an_assertion_counts():
    def checked(line: int):
        text = 'tt.func @"f" (%0 : i1)void -> {\n    tt.assert %0'
        return zg.parse(f'{text} @loc="{line}:0:{line}:9:file.py" @"no";\n    tt.return;\n}};\n')

    assert zg.same_model(checked(1), checked(2))
    assert key(checked(1), OPTIONS) != key(checked(2), OPTIONS)


def test_a_default_that_is_given_is_as_one_that_is_not():
    model = scale.triton(*TYPES)
    plain = key(model, OPTIONS)
    same: tuple[dict[str, Any], ...] = ({"num_warps": None}, {"exact_math": 0}, {"verify": 1})
    assert all(key(model, CompileOptions.of(options)) == plain for options in same)
    assert key(model, CompileOptions.of({"num_warps": np.int64(4)})) == key(model, CompileOptions(num_warps=4))
    assert key(model, CompileOptions.of({"exact_math": 1})) == key(model, CompileOptions(exact_math=True)) != plain


HELPED = """module ()void -> {
    tt.func @"a" (%0 : f32)f32 -> { %1 : f32 = math.exp %0; tt.return %1; };
    tt.func @"b" (%0 : f32)f32 -> { %1 : f32 = tt.call %0 @"a"; tt.return %1; };
    tt.func @"k" (%0 : ptr<f32>, %1 : f32)void -> { %2 : f32 = tt.call %1 @"b"; tt.store %0 %2; tt.return; };
    unreachable;
};"""


def test_names_of_helpers_do_not_count_but_the_kernel_s_does():
    first = key(zg.parse(HELPED), OPTIONS)
    for old, new in (('@"a"', '@"other"'), ('@"b"', '@"zz"')):
        assert key(zg.parse(HELPED.replace(old, new)), OPTIONS) == first
    assert key(zg.parse(HELPED.replace('@"k"', '@"kernel"')), OPTIONS) != first
    assert key(zg.parse(HELPED.replace('%0 @"a"', '%0 @"b"').replace('%1 @"b"', '%1 @"a"')), OPTIONS) != first
