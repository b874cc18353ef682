"""The C header of a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type
from ziggurat.shipping.families import Family, c_names, type_of
from ziggurat.shipping.grids import Grid, c_name

_NUMBERS: Final = {
    "i1": "bool", **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)}, "f32": "float", "f64": "double",
}  # fmt: skip
_PROGRAMS: Final = "const uint32_t grid[3], int64_t first, int64_t last"
COMMON: Final = """\
#ifndef ZIGGURAT_TYPES
#define ZIGGURAT_TYPES
/* A tensor that a kernel moves in blocks: its first element; sizes and strides in elements, outermost axis first. */
typedef struct {
  void *base;
  int64_t shape[5], strides[5];
} ziggurat_tensor;

/* Arithmetic of grids. Quotients are rounded down, as Python's are; a float beyond all integers becomes 0. */
static inline int64_t ziggurat_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t ziggurat_mod(int64_t a, int64_t b) { return a - ziggurat_div(a, b) * b; }
static inline int64_t ziggurat_cdiv(int64_t a, int64_t b) { return ziggurat_div(a + b - 1, b); }
static inline int64_t ziggurat_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ziggurat_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ziggurat_abs(int64_t a) { return a < 0 ? -a : a; }
static inline double ziggurat_fmin(double a, double b) { return a < b ? a : b; }
static inline double ziggurat_fmax(double a, double b) { return a > b ? a : b; }
static inline double ziggurat_fabs(double x) { return x < 0 ? -x : x; }
static inline int64_t ziggurat_int(double x) { return x > -9.2e18 && x < 9.2e18 ? (int64_t)x : 0; }
static inline int64_t ziggurat_floor(double x) { int64_t n = ziggurat_int(x); return n - ((double)n > x); }
static inline int64_t ziggurat_ceil(double x) { int64_t n = ziggurat_int(x); return n + ((double)n < x); }
static inline int64_t ziggurat_round(double x) {
  int64_t n = ziggurat_floor(x);
  double rest = x - (double)n;
  return n + (rest > 0.5 || (rest == 0.5 && n % 2 != 0));
}
static inline int64_t ziggurat_next_power_of_2(int64_t n) {
  int64_t power = 1;
  while (power < n) power *= 2;
  return power;
}
#endif
"""


def c_type(type_: Type) -> str:
    """The type of an argument in C. Small floats are passed as their bits."""
    if isinstance(type_, PtrType):
        return "void *"
    if isinstance(type_, DescriptorType):
        return "const ziggurat_tensor *"
    assert isinstance(type_, ScalarType)
    return f"{_NUMBERS.get(type_.name) or f'uint{8 * type_.bytes}_t'} "


def header(name: str, families: Sequence[Family], targets: Mapping[str, Sequence[str]]) -> str:
    """The header of a library. `targets` has those that there is code for, by the names of functions."""
    guard = f"{c_name(name).upper()}_H"
    parts = [
        f"/* Kernels of the library '{name}', written by ziggurat build.\n\n"
        "   _launch: on the GPU of the current CUDA context (without one, on the first GPU), on a stream. Gives a "
        "CUresult.\n"
        "   _run: on this thread, the programs from `first` to `last`, exclusive, of the x * y * z of a grid, so that\n"
        "   several threads can divide it. Gives 0 or the code of the failure.\n"
        f"   {c_name(name)}_error() has words for the last failure of any thread. Link with -ldl -lm. */",
        f"#ifndef {guard}\n#define {guard}\n\n#include <stdbool.h>\n#include <stdint.h>\n",
        COMMON,
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        f"const char *{c_name(name)}_error(void);\n",
        *(function_text(family, targets[family.function]) for family in families),
        "#ifdef __cplusplus\n}\n#endif\n#endif\n",
    ]
    return "\n".join(parts)


def function_text(family: Family, targets: Sequence[str]) -> str:
    """The declarations of a family."""
    first = family.variants[0]
    names, types = c_names(family.passed), [type_of(parameter) for parameter in family.passed]
    arguments = "".join(f", {c_type(type_)}{name}" for name, type_ in zip(names, types, strict=True))
    options = "".join(f", {name}={value}" for name, value in family.options.items())
    takes = ", ".join(f"{p.name}: {p.type}" if p.is_passed else f"{p.name} = {p.constant}" for p in family.parameters)
    where = f" of {first.place}" if first.place else ""
    lines = ["/* " + _comment(f"{first.kernel}({takes}){where}{options}; for {', '.join(targets)}")]
    for variant in family.variants:
        conditions = [
            f"{p.name} = 1" if p.is_one else f"{_measure(type_)}{p.name} % {p.divisor} = 0"
            for p, type_ in zip(variant.passed, types, strict=True)
            if p.is_one or p.divisor > 1
        ]
        lines.append(f"   variant: {_comment(', '.join(conditions)) or 'any arguments'}")
    lines[-1] += " */"
    small = [
        p.name
        for p, t in zip(family.passed, types, strict=True)
        if isinstance(t, ScalarType) and t.name not in _NUMBERS
    ]
    if small:
        lines.append(f"/* of {', '.join(small)} the bits */")
    for verb, head in (("launch", "void *stream, const uint32_t grid[3]"), ("run", _PROGRAMS)):
        lines.append(f"int {family.function}_{verb}({head}{arguments});")
    if family.grid is not None:
        lines.append(_grid(family.function, family.grid))
    return "\n".join(lines) + "\n"


def _measure(type_: Type) -> str:
    """What a divisor divides, in words before the name."""
    if isinstance(type_, DescriptorType):
        return "bytes of a row of "
    return "address of " if isinstance(type_, PtrType) else ""


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")


def _grid(function: str, grid: Grid) -> str:
    parameters = [f", int64_t {c_name(name)}" for name in (*grid.takes, *grid.captures)]
    body = "\n".join(f"  {line}" for line in grid.body)
    captured = ", ".join(grid.captures)
    more = f"; {captured}: captured by the function" if captured else ""
    return (
        f"/* {_comment(grid.source)}{more} */\n"
        f"static inline void {function}_grid(uint32_t grid[3]{''.join(parameters)}) {{\n{body}\n}}"
    )
