"""The listings of the documents about Triton-C and PyTriton, completed where their text lost lines.

The documents are beside the repository, in `../shared/seeds`. They lost closing braces, one `;`, the initialisation of
the operands' pointers in the fused product, and the tables of macros; these are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_FOLDERS = [parent / "shared" / "seeds" for parent in Path(__file__).resolve().parents]
LANGUAGE, API = "002_4fd6313fdbc05b67.txt", "004_173fd1d4b9821287.txt"

# The pointers to the operands of the fused product, for which the macros BROADCAST_… and STRIDE_… are made.
POINTERS = """
  TYPE* pa[SHAPE_A] = A + rk[BROADCAST_AK] * STRIDE_AK + rm[BROADCAST_AM] * STRIDE_AM;
  TYPE* pb[SHAPE_B] = B + rk[BROADCAST_BK] * STRIDE_BK + rn[BROADCAST_BN] * STRIDE_BN;
"""


def document(name: str) -> str:
    """The text of a document. Skips the test where it is absent."""
    for folder in _FOLDERS:
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    pytest.skip(f"the document {name} is not beside the repository, in ../shared/seeds")


def between(text: str, first: str, last: str) -> str:
    """The lines from one that has `first` to the next that has `last`, both included."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if first in line)
    end = next(number for number in range(start, len(lines)) if last in lines[number])
    return "\n".join(lines[start : end + 1])


def listings() -> dict[str, str]:
    """The Triton-C listings of the first document by name, completed."""
    text = document(LANGUAGE)
    first = between(text, "float x[16, 8] = 3.14;", "float v[16, 32]")
    total = between(text, "__global__  void add(int N, float *a", "*(c + off)").replace("(0 ... 32)", "(0 ... 32);")
    broadcast = between(text, "float* c_broadcast[32]", "float* c_ptr")
    macros = between(text, "__global__  void add(int N, TYPE* a", "*(c + off)")
    transposed = between(text, "void transpose(TYPE * X", "//(7)")
    attributes = between(text, "int ldx __multipleof(8), int ldy __multipleof(8)", "// ...").replace("// ...", "")
    checked = between(text, "// create bounds-checking mask", "*?(checky)py")
    product = between(text, "__global__ void dot(TYPE * A", "*pc = c; //(15)")
    product = product.replace("pb = pb + TK * ldb; //(13)", "pb = pb + TK * ldb; //(13)\n  }")
    prefetched = between(text, "// pre-fetch operands", "b = check ? *pb : 0;") + "\n}"
    loop = between(product, "// reduction loop", "//(13)") + "\n  }"
    epilogue = "\n".join(["// epilogue", between(text, "int rcm[TM]", "*pc = c")])
    fused = between(
        text[text.index("Fused Transpositions and Auto-Tuning\n\nIt is") :], "void dot(TYPE * A", "*pc = c;"
    )
    statements = transposed.replace("*py = ^(*px); //(7)", "")
    return {
        "first": f"__global__ void first(float *out) {{ {first}\n  int i[16] = 0 ... 16, j[32] = 0 ... 32;\n"
        "  *(out + i[:, newaxis] * 32 + j[newaxis, :]) = v;\n}",
        "add": total + "\n}",
        "broadcast": total.replace("*(c + off)", f"{broadcast}\n*c_ptr") + "\n}",
        "macros": macros + "\n}",
        "transpose": transposed + "\n}",
        "multiple": attributes + transposed.partition("{")[2] + "\n}",
        "checked": f"{statements}\n{checked}\n}}",
        "dot": product + "\n}",
        "prefetched": product.replace(loop, prefetched) + "\n}",
        "rematerialized": product[: product.index("// epilogue")] + epilogue + "\n}",
        "fused": completed(fused),
    }


def completed(fused: str) -> str:
    """The fused product with its pointers and its braces."""
    fused = fused.replace("// prefetches operands", POINTERS)
    return fused.replace("    b = *pb;\n", "    b = *pb;\n  }\n") + ("" if fused.rstrip().endswith("}") else "\n}")


def source_of_pytriton() -> str:
    """The source in the document about PyTriton, completed."""
    return completed(between(document(API), "__global__ void dot(TYPE * A", "*pc = c;"))


def program_of_pytriton() -> str:
    """The program in the document about PyTriton, completed; the last iteration of its kernel loads no further tile."""
    text = document(API)
    source = source_of_pytriton()
    for name in ("a", "b"):
        source = source.replace(f"    {name} = *p{name};", f"    {name} = k > TK ? *p{name} : 0;")
    methods = (
        between(text, "def _call(a, b, transpose_a", "TM = [32, 64, 128]"),
        between(text, "def forward(ctx", "return _dot._call("),
        between(text, "def backward(ctx", "return da, db").replace(
            "      assert False", "    else:\n      assert False"
        ),
    )
    return "\n".join(
        [
            "import ziggurat.pytriton as triton",
            "class _dot(triton.function):",
            f"  kernel = triton.kernel({source!r}, ['C'])",
            *(f"  @staticmethod\n{method}" for method in methods),
            "dot = _dot.apply",
        ]
    )


def macros_of_dot(transpose_a: bool, transpose_b: bool) -> dict[str, str]:
    """The macros of the fused product, as the document about PyTriton has them."""
    text = between(document(API), "macros = {# handle A transposition", "'SHAPE_B'")
    names = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    results: dict[str, str] = {}
    for line in text.splitlines():
        if ":" not in line or "if" not in line:
            continue
        name, _, rest = line.replace("macros = {", "").partition(":")
        choice, _, rest = rest.partition(" if ")
        condition, _, other = rest.partition(" else ")
        value = choice if names[condition.strip()] else other
        results[name.strip(" '")] = value.strip(" ,}").strip("'")
    return results
