"""The languages that share the calls: their names for them, and the points in which they differ.

All are reflected into one Python code model and attributed by one attributor. A function has its language; reflection,
attribution and the rules of calls look up what differs. `EXPLICIT` is the language of `zg.<name>`; the module of
another one adds itself to `LANGUAGES`. docs/guides/triton.md has the table of differences.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from ziggurat.codemodel.errors import KernelTypeError, ZigguratError
from ziggurat.codemodel.messages import EXPLICIT_WORDS, Words
from ziggurat.frontends.language.signature import CALLS, Call, Parameter, Signature

if TYPE_CHECKING:
    from ziggurat.frontends.language.function import Function

# The arguments of the call by its parameters, from those of the spelling by its own: a value or a constant each, and a
# tuple for a `*` parameter.
Adapt = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@attrs.frozen(eq=False)
class Spelling:
    """A second name of a call: its signature in another language, and the call that it is, or the function `body`.

    `adapt` gives the arguments of the call from those of the spelling. `per_warp` is not 0 for a constant of the
    launch, which is the number of warps of a program times this.
    """

    signature: Signature
    call: str
    adapt: Adapt
    body: Function | None = None
    per_warp: int = 0

    @property
    def name(self) -> str:
        return self.signature.name

    @property
    def __name__(self) -> str:
        return self.signature.name

    @property
    def __signature__(self) -> inspect.Signature:
        """The parameters, for `inspect.signature`: libraries ask which arguments a release of Triton has."""
        return inspect.Signature([*map(Parameter.plain, self.signature.parameters)])

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self.call and CALLS[self.call].host is not None:
            bound = self.signature.bind(arguments, keywords)
            return CALLS[self.call](**self.adapt(bound))
        raise KernelTypeError(
            f"{self.signature.prefix}.{self.name} was called outside of a kernel",
            hint="did you forget to add @triton.jit to the function?",
        )

    def __repr__(self) -> str:
        return f"<{self.signature.prefix}.{self.signature}>"


def _differs(about: str) -> Any:
    """A switch that is off in the explicit language; `about` is its row in the table of differences."""
    return attrs.field(default=False, kw_only=True, metadata={"about": about})


def _as_it_is(error: ZigguratError) -> ZigguratError:
    return error


@attrs.frozen(eq=False)
class Language:
    """The names and the rules of one language.

    `prefix` stands before the name of a call: `zg.load`, `tl.load`. `words` has the names of types and calls in
    messages. `calls` has the calls by their names there, `methods` those that are methods of tensors, with the first
    parameter as the receiver. `error` makes an error of a function one that programs of the language catch.
    """

    prefix: str
    words: Words = EXPLICIT_WORDS
    calls: Mapping[str, Call[..., Any] | Spelling] = attrs.field(factory=dict[str, Any], kw_only=True)
    methods: Mapping[str, Call[..., Any] | Spelling] = attrs.field(factory=dict[str, Any], kw_only=True)
    error: Callable[[ZigguratError], ZigguratError] = attrs.field(default=_as_it_is, kw_only=True)

    # Numbers.
    run_time_numbers: bool = _differs(
        "a variable that is assigned a Python number holds a run-time scalar; a constant if annotated `tl.constexpr`"
    )
    typed_literals: bool = _differs(
        "a literal that is compared, or an operand of `maximum`, `minimum`, `clamp`, `fma`, `join` …, has a dtype of "
        "its own: i32, f32 …, and f64 where it is subnormal in f32"
    )
    wide_promotion: bool = _differs(
        "bf16 with an integer or an 8-bit float gives f32, as `/` and `%` of f16 or bf16 do; an 8-bit float with an "
        "integer is an error; a `dot` gives f32 or i32 where `out_dtype` is no dtype that it adds up in"
    )
    wide_reductions: bool = _differs(
        "`max` and `min` of numbers narrower than 32 bits give f32 or i32; sums of i1 give u32; `maximum`, `minimum`, "
        "`argmax`, `cumsum` … of bf16 compute in f32"
    )
    narrow_sums: bool = _differs("`sum` and `prod` of f16 and bf16 round each intermediate result to that type")
    plain_integers: bool = _differs(
        "`+`, `-` and `*` of i1 with i1 give i1, modulo 2; `>>` keeps the sign of a signed left operand, whatever the "
        "right one is; `//` and `%` of a signed and an unsigned integer are errors"
    )
    strict_operands: bool = _differs(
        "`exp`, `log`, `sin`, `sqrt`, `floor` … take f32 and f64 only; a `dot` has at least 16 elements along K, of "
        "8-bit numbers 32; `max(…)` and `min(…)` of constants refuse NaN and -0.0"
    )
    wrapped_numbers: bool = _differs(
        "a number out of the range of its parameter's declared type is cut to the low bits"
    )
    dropped_constants: bool = _differs(
        "`and` and `or` leave out a constant after a run-time scalar unless it decides: `n or 3` is 3, `n and 3` is n"
    )
    # Annotations, globals, and programs that are debugged.
    launch_annotations: bool = _differs(
        "the dtype that annotates a parameter is that of a number at the launch; that of a variable converts nothing"
    )
    strict_globals: bool = _differs(
        "a global must be a `tl.constexpr`, a function, a dtype or a module; one that has changed is an error"
    )
    device_assertions: bool = _differs(
        "an `assert` of a condition that is known at compile time is checked at run time, which `debug=True` asks for"
    )
    checks_overflow: bool = _differs("`+`, `-` and `*` of integers are checked with `sanitize_overflow=True`")
    c_prints: bool = _differs(
        "`device_print` writes floats as C's `%f` has them and i1 as 0 and 1, and on a GPU each thread writes a scalar"
    )

    @property
    def is_triton(self) -> bool:
        """Whether the names of the language are Triton's."""
        return self.prefix == "tl"


# The calls that are methods of tensors: `x.sum(0)` is `zg.sum(x, 0)`.
_METHODS: Final = (
    "abs", "advance", "argmax", "argmin", "associative_scan", "atomic_add", "atomic_and", "atomic_cas", "atomic_max",
    "atomic_min", "atomic_or", "atomic_xchg", "atomic_xor", "broadcast", "cast", "cdiv", "ceil", "cos", "cumprod",
    "cumsum", "erf", "exp", "exp2", "expand", "flip", "floor", "gather", "histogram", "log", "log2", "max", "min",
    "permute", "ravel", "reduce", "reduce_or", "reshape", "rsqrt", "sigmoid", "sin", "sort", "split", "sqrt", "sqrt_rn",
    "squeeze", "store", "sum", "trans", "unsqueeze", "xor_sum",
)  # fmt: skip


EXPLICIT: Final = Language("zg", calls=CALLS, methods={**{name: CALLS[name] for name in _METHODS}, "to": CALLS["cast"]})
# The languages by the prefix that their calls have in a Python code model.
LANGUAGES: Final[dict[str, Language]] = {"zg": EXPLICIT}
# The fields that differ, as `_differs` declares them.
SWITCHES: Final[Mapping[str, str]] = {
    field.name: field.metadata["about"] for field in attrs.fields(Language) if "about" in field.metadata
}


def differences(first: Language, other: Language) -> list[str]:
    """The rows of the table of differences: what holds in the second language, and not in the first."""
    return [about for name, about in SWITCHES.items() if getattr(other, name) and not getattr(first, name)]
