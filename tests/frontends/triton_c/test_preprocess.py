"""The preprocessor's use of pcpp."""

import os

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.frontends.triton_c import preprocess


def test_nothing_is_written_into_the_folder_of_pcpp(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preprocess.pcpp_rules.lex.Lexer, "writetab", None)
    preprocess._lexer.cache_clear()
    assert preprocess._lexer() is not None


@pytest.mark.parametrize(
    ("before", "body", "expected"),
    [
        ("", "*o = 1; // one \\\n*o = 3;\n*(o + 1) = 4;", [1, 4]),
        ("", "*o = 1; /\\\n/ one \\\n *o = 3;\n*(o + 1) = 4;", [1, 4]),
        ("", "*o = 1; /\\\n* one *\\\n/ *(o + 1) = 4;", [1, 4]),
        ("#define M 1 // one \\\n+ 5\n", "*o = M;", [1, 0]),
        ("#define M(a, \\\n b) a \\\n - b\n", "*o = M(7, \\\n 2);", [5, 0]),
        ("#de\\\nfine M\\\nN 4\n", "*o = MN;", [4, 0]),
        ("", "in\\\nt a = 1\\\n2; *o \\\n+\\\n= a;", [12, 0]),
        ("", "#if 0\n// it \\\n#endif\n*o = 9;\n#endif\n*o = 2;", [2, 0]),
        ("#if 1 \\\n == 2\n#define M 1\n#else\n#define M 2\n#endif\n", "*o = M;", [2, 0]),
        ("", "*o = sizeof(i\\\r\nnt);\r\n*(o + 1) = '\\\r\na';", [4, 97]),
        ("", 'static_assert(1, "a\\\nb"); *o = 1 + \\   \n2;', [3, 0]),
        ("", "*o = __LINE__; *(o + 1) = \\\n\\\n\\\n__LINE__;", [2, 5]),
        ("", "*o = 1'000'000 + 0xF'F + 0b1'1; *(o + 1) = '1' + 0'1;", [1000258, 50]),
        ("#if 1'000 == 1000\n#define M 5\n#endif\n", "*o = M;", [5, 0]),
    ],
)
def test_lines_that_a_backslash_joins_and_separated_digits(before: str, body: str, expected: list[int]):
    out = np.zeros(2, np.int32)
    zg.triton_c(f"{before}__global__ void f(int *o) {{\n{body}\n}}\n")[(1,)](out)
    assert out.tolist() == expected


def test_places_after_joined_lines():
    with pytest.raises(zg.KernelTypeError) as error_info:
        zg.triton_c("__global__ void f(int *o) {\n*o = \\\n  1 +\\\n  max(1, 2, 3, 4);\n}\n").triton()
    assert error_info.value.location is not None
    assert (error_info.value.location.line, error_info.value.location.column) == (4, 2)


def bomb(first: str, more: str, last: str) -> str:
    return first + "".join(more.format(n, n - 1) for n in range(1, 40)) + f"__global__ void f(int *o) {{ {last} }}"


@pytest.mark.parametrize(
    "source",
    [
        bomb("#define A0 1+1\n", "#define A{0} A{1}+A{1}\n", "*o = A39;"),
        bomb("#define A0 1+1\n", "#define A{0} A{1}+A{1}\n", "\n#if A39\n#endif\n"),
        bomb("#define A0(x) x+x\n", "#define A{0}(x) A{1}(A{1}(x))\n", "*o = A39(1);"),
        bomb("#define V(...) __VA_ARGS__+__VA_ARGS__\n#define A0 1\n", "#define A{0} V(A{1})\n", "*o = A39;"),
        bomb("#define C(a, b) a##b\n#define D(a, b) C(a, b)\n#define A0 x\n", "#define A{0} D(A{1}, A{1})\n", "A39;"),
        bomb("#define S(x) #x\n#define T(x) S(x)\n#define A0 '\"'\n", "#define A{0} T(A{1})\n", "device_print(A39);"),
    ],
    ids=["in code", "in a condition", "with arguments", "of any number", "joined", "as strings"],
)
def test_macros_that_grow(source: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """One source reaches the limit itself, and the others a lower one, in a tenth of the time."""
    limit = 1 << 20
    if "of any number" not in request.node.name:
        limit = 1 << 15
        monkeypatch.setattr("ziggurat.frontends.triton_c.preprocess.MAX_EXPANSION", limit)
    with pytest.raises(zg.KernelSyntaxError, match=f"the macros expand to more than {limit} characters") as error_info:
        zg.triton_c(source)
    assert error_info.value.location is not None


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("1 << 1000000000000", "must be an expression of integers"), ("1 / 0", "must be an expression of integers"),
        ("9" * 5000, "a token is longer than 1000 characters"),
    ],
)  # fmt: skip
def test_conditions_without_a_value(condition: str, message: str):
    with pytest.raises(zg.KernelSyntaxError, match=message):
        zg.triton_c(f"#if {condition}\n#endif\n__global__ void f(int *o) {{ }}")


@pytest.mark.parametrize("count", ["1000000000000", "64", "(1 << 40)", "0 - 1", "-1", "(1000000 * 1000000)"])
@pytest.mark.parametrize("number", ["1", "1u", "(1 << 3)"])
def test_shifts_beyond_64_bits(number: str, count: str):
    with pytest.raises(zg.KernelSyntaxError, match="must be an expression of integers"):
        zg.triton_c(f"#if {number} << {count}\n#endif\n__global__ void f(int *o) {{ }}")


@pytest.mark.parametrize(
    "condition",
    [
        "1 << 63 < 0", "1u << 63 > 0", "3 << 63 == 1 << 63", "5u << 62 == 1u << 62", "-1 << 4 == -16", "1 << 0 == 1",
        "!(0 && 1 << 99)", "1 || 1 << 99", "1 >> 1000000000000 == 0", "0x7fffffffffffffff * 2 == -2",
    ],
)  # fmt: skip
def test_conditions_of_64_bits(condition: str):
    out = np.zeros(1, np.int32)
    zg.triton_c(f"__global__ void f(int *o) {{\n#if {condition}\n*o = 1;\n#endif\n}}")[(1,)](out)
    assert out.tolist() == [1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a source in it, a file outside, and links, pipes and folders to include."""
    inside = tmp_path / "inside"
    (inside / "deeper").mkdir(parents=True)
    (tmp_path / "outside.h").write_text("SECRET (\n")
    (inside / "deeper" / "two.h").write_text('#include "../one.h"\n')
    (inside / "one.h").write_text("#define ONE 1\n")
    (inside / "again.h").write_text('#include "again.h"\n')
    (inside / "bytes.h").write_bytes(b"\xff")
    os.symlink(tmp_path / "outside.h", inside / "out.h")
    os.symlink("one.h", inside / "link.h")
    os.mkfifo(inside / "pipe.h")
    monkeypatch.chdir(inside)
    return inside


FOREIGN = "a file to include must be in the folder of the source, or below"


@pytest.mark.parametrize("in_a_file", [True, False])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ('"one.h"', None), ('"deeper/two.h"', None), ('"link.h"', None), ('"out.h"', FOREIGN),
        ('"../outside.h"', FOREIGN),
        ('"/dev/zero"', FOREIGN), ("</etc/passwd>", FOREIGN), ('"deeper/../../outside.h"', FOREIGN),
        ('"pipe.h"', "it is not a regular file"), ('"deeper"', "cannot be included"),
        ('"bytes.h"', "cannot be included"),
        ('"again.h"', r"includes are nested too deeply \(200\)"), ('"none.h"', "there is no file"),
        ('"a\0b"', "there is no file"), (f'"{"a" * 5000}"', "there is no file"),
    ],
)  # fmt: skip
def test_files_to_include(folder, name: str, message: str | None, in_a_file: bool):
    source = f"#include {name}\n__global__ void f(int *o) {{ *o = ONE; }}"
    if in_a_file:
        (folder / "f.tc").write_text(source)
    origin = folder / "f.tc" if in_a_file else source
    if message is None:
        out = np.zeros(1, np.int32)
        zg.triton_c(origin)[(1,)](out)
        assert out[0] == 1
        return
    with pytest.raises(zg.KernelSyntaxError, match=message) as error_info:
        zg.triton_c(origin)
    assert "SECRET" not in str(error_info.value)


@pytest.mark.parametrize(("limit", "refused"), [(2, False), (1, True)])
def test_the_number_of_files_to_include(folder, monkeypatch: pytest.MonkeyPatch, limit: int, refused: bool):
    monkeypatch.setattr(preprocess, "MAX_FILES", limit)
    source = '#include "deeper/two.h"\n__global__ void f(int *o) { *o = ONE; }'
    if refused:
        with pytest.raises(zg.KernelSyntaxError, match="includes are nested too deeply"):
            zg.triton_c(source)
    else:
        zg.triton_c(source)


def test_a_source_is_a_regular_file(folder):
    for file in (folder / "pipe.h", folder / "deeper", folder / "bytes.h"):
        with pytest.raises(zg.LaunchError, match=r"zg\.triton_c cannot read the file"):
            zg.triton_c(file)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("threadIdx", "no threads"),
        ("blockDim", "no threads"),
        ("blockIdx", "get_program_id"),
        ("gridDim", "get_num_pro"),
    ],
)
def test_names_of_cuda(name: str, hint: str):
    with pytest.raises(zg.KernelSyntaxError, match=f"Triton-C has no '{name}'") as error_info:
        zg.triton_c(f"__global__ void f(int *o) {{ *o = {name}.x; }}").triton()
    assert hint in str(error_info.value.hint)
