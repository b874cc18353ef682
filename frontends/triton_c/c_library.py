"""The library of Triton-C: names of calls of the language, and the names and operators that C has for some of them."""

from __future__ import annotations

import math
from typing import Any, Final

from ziggurat.frontends.language.signature import SIGNATURES

# Binary operators as calls of the language (`zg.…`) and of Triton-C (`c.…`). `&&`, `||` and `@` are no plain calls.
BINARY: Final[dict[str, str]] = {
    "+": "zg.add", "-": "zg.sub", "*": "zg.mul", "/": "c.div", "%": "c.rem", "&": "zg.and_", "|": "zg.or_",
    "^": "zg.xor", "<<": "c.shl", ">>": "c.shr", "==": "zg.equal", "!=": "zg.not_equal", "<": "zg.less",
    ">": "zg.greater", "<=": "zg.less_equal", ">=": "zg.greater_equal",
}  # fmt: skip
# Other names of calls.
ALIASES: Final[dict[str, str]] = {
    "get_program_id": "program_id", "get_num_programs": "num_programs", "select": "where", "fabs": "abs",
    "fmin": "minimum", "fmax": "maximum", "assert": "device_assert", "fmod": "mod", "static_assert": "static_assert",
    "_Static_assert": "static_assert", "__popc": "popc", "__clz": "clz", "__brev": "brev", "__umulhi": "umulhi",
    "and": "and_", "or": "or_",
}  # fmt: skip
# With two arguments these are elementwise, as in C; with one, reductions.
ELEMENTWISE_OF_TWO: Final[dict[str, str]] = {"min": "minimum", "max": "maximum"}
# Calls that read or write memory, or have another effect, and so must not be in an operand that C may not evaluate.
EFFECTS: Final = frozenset(
    name for name, signature in SIGNATURES.items() if signature.group in ("Memory", "Atomics", "Tensor descriptors")
) | {"device_print", "device_assert", "debug_barrier", "inline_asm_elementwise", "assume"}
# Calls whose other arguments are converted to the elements that the first one points to.
TO_POINTEES: Final[dict[str, tuple[int, ...]]] = {
    **{name: (1,) for name in SIGNATURES if name.startswith("atomic_")},
    "atomic_cas": (1, 2),
    "store": (1,),
}
# The parameters of calls that take a condition.
CONDITIONS: Final[dict[str, int]] = {"where": 0, "load": 1, "store": 2, "assume": 0, "device_assert": 0} | {
    name: 2 for name in SIGNATURES if name.startswith("atomic_") and name != "atomic_cas"
}
_NOT_CALLED = ("range", "static_range")

# Names of constants.
CONSTANTS: Final[dict[str, Any]] = {
    "true": True, "false": False, "INFINITY": math.inf, "NAN": math.nan, "M_PI": math.pi, "M_E": math.e,
    "INT_MAX": 2**31 - 1, "INT_MIN": -(2**31), "UINT_MAX": 2**32 - 1, "LONG_MAX": 2**63 - 1, "LONG_MIN": -(2**63),
    "FLT_MAX": (2 - 2**-23) * 2.0**127, "FLT_MIN": 2.0**-126, "FLT_EPSILON": 2.0**-23,
}  # fmt: skip


def call_of(name: str, count: int) -> str | None:
    """The call of the language that a name means for this number of arguments; None for an unknown name."""
    if count == 2 and name in ELEMENTWISE_OF_TWO:
        return ELEMENTWISE_OF_TWO[name]
    name = ALIASES.get(name, name)
    if name in _NOT_CALLED:
        return None
    if name in SIGNATURES:
        return name
    # C's functions of floats: expf, sqrtf, fminf.
    double = name.removesuffix("f")
    single = ALIASES.get(double, double)
    has_single = single in SIGNATURES and (SIGNATURES[single].group == "Math" or double in ("fmin", "fmax", "fmod"))
    return single if name.endswith("f") and has_single else None


NAMES: Final = (*SIGNATURES, *ALIASES, *CONSTANTS, "newaxis")
