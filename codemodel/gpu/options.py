"""Options of compilation and of a launch: names, defaults, checks and documentation.

`CompileOptions` is the one value that a compilation is given, from the API down to placement and emission. The command
line, `zg.Config` and the table in docs/guides/compiling.md are derived from its fields.

A launch takes these options too, except for the target, which is the device's. A constexpr parameter that has the name
of one of `SHARED_OPTIONS` is that option, as in Triton: the kernel reads the value that it is compiled with.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.gpu.targets import TARGETS

if TYPE_CHECKING:
    from ziggurat.codemodel.op import Op

MAX_WARPS: Final = 32
MAX_CTAS: Final = 16  # Of a cluster.
MAX_REGISTERS: Final = 255  # Of a thread: PTX and SASS encode their numbers in 8 bits.
CPU: Final = "cpu"  # The target of native code for this machine.
USUAL_WARPS: Final = 4
USUAL_STAGES: Final = 3
SANITIZERS: Final = ("races", "bounds", "overflow", "undefined", "nan")
MAX_STAGES: Final = 1 << 16  # No loop has as many buffers: a larger number is a typing error.


def _is_boolean(value: Any) -> bool:
    """Whether a value is a boolean of Python or NumPy. NumPy is not imported for this."""
    if isinstance(value, bool):
        return True
    kind = cast("type[Any]", type(value))
    return kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")


def _integer(value: Any) -> int | None:
    """A Python or NumPy integer as an int; None for anything else, booleans included."""
    if _is_boolean(value):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _number(least: int, most: int, *, power_of_two: bool = False) -> Callable[[str, Any], int]:
    """The check of an option that is a number in a range."""

    def check(name: str, value: Any) -> int:
        number = _integer(value)
        if number is None or not least <= number <= most or (power_of_two and number & (number - 1)):
            what = "an integer, a power of two" if power_of_two else "an integer"
            raise LaunchError(f"{name} must be {what} from {least} to {most}; got {shown(value)}")
        return number

    return check


PROVE = "prove"  # The value of `verify` with proofs.


def boolean(name: str, value: Any) -> bool:
    """A boolean, 0 or 1 as a bool. Raises a `LaunchError` that names the argument for anything else."""
    if _is_boolean(value) or _integer(value) in (0, 1):
        return bool(value)
    raise LaunchError(f"{name} must be True or False; got {shown(value)}")


def _verification(name: str, value: Any) -> bool | str:
    """A boolean, or "prove"."""
    return PROVE if value == PROVE else boolean(name, value)


def sanitizers(name: str, value: Any) -> tuple[str, ...]:
    """Names of sanitizers, one or several, in their order; True for all. Raises `LaunchError` for anything else."""
    if _is_boolean(value) or value is None:
        return SANITIZERS if value else ()
    several = cast("Iterable[Any]", value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    names: list[Any] = list(several)
    for item in names:
        if item not in SANITIZERS:
            from difflib import get_close_matches

            near = get_close_matches(str(item), SANITIZERS, 1)
            hint = f"did you mean '{near[0]}'?" if near else None
            raise LaunchError(f"{name} must be names of {', '.join(SANITIZERS)}; got {shown(item)}", hint=hint)
    return tuple(item for item in SANITIZERS if item in names)


def parameter_names(name: str, value: Any) -> tuple[str, ...]:
    """Names of parameters, one or several. Raises `LaunchError` for anything else."""
    several = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(several, list | tuple) or not all(isinstance(item, str) for item in cast("list[Any]", several)):
        raise LaunchError(f"{name} must be names of parameters; got {shown(value)}")
    return tuple(cast("list[str]", several))


def _target(name: str, value: Any) -> str:
    if isinstance(value, str) and (value in TARGETS or value == CPU):
        return value
    from difflib import get_close_matches

    text = str(value).lower().removeprefix("sm_").removeprefix("sm")
    oldest = min(TARGETS.values(), key=lambda target: target.capability)
    if text.isdecimal() and int(text) < oldest.capability:
        hint = f"the oldest supported target is '{oldest.name}'"
    else:
        near = [target for target in (f"sm_{text}a", f"sm_{text}") if target in TARGETS]
        near = near or get_close_matches(str(value).lower(), TARGETS, 1)
        hint = f"did you mean '{near[0]}'?" if near else None
    raise LaunchError(f"{name} must be one of {', '.join((*TARGETS, CPU))}; got {shown(value)}", hint=hint)


def _stream(name: str, value: Any) -> Any:
    is_handle = isinstance(value, int) and not _is_boolean(value) and value >= 0
    if value is None or is_handle or any(hasattr(value, name) for name in ("cuda_stream", "ptr", "__cuda_stream__")):
        return value
    raise LaunchError(f"{name} must be an address, or a stream of torch or CuPy; got {shown(value)}")


_Check = Callable[[str, Any], Any]  # Takes a name and a value; gives the value, or raises `LaunchError`.


def _option(
    default: Any, check: _Check, documentation: str, *, launch: bool = True, shared: bool = False, in_key: bool = True
) -> Any:
    """An option. A launch takes it if `launch`; a constexpr parameter of its name is it if `shared`; code for
    GPUs depends on it if `in_key`."""
    facts = {"check": check, "doc": documentation, "launch": launch, "shared": shared, "in_key": in_key}
    return attrs.field(default=default, metadata=facts)


@attrs.frozen
class CompileOptions:
    """Options of one compilation. `of` checks values that users give; the constructor takes checked values."""

    target: str = _option("sm_90a", _target, 'architecture of the GPU, or "cpu"', launch=False)
    num_warps: int | None = _option(
        None,
        _number(1, MAX_WARPS, power_of_two=True),
        "warps of a CTA, a power of two up to 32; None lets the compiler choose",
        shared=True,
    )
    num_stages: int | None = _option(
        None,
        _number(0, MAX_STAGES),
        "slots of a ring that loads of a loop are pipelined through; 0 or 1 for none, None lets the compiler choose",
        shared=True,
    )
    exact_math: bool = _option(
        False, boolean, "IEEE division and square roots, and accurate functions, in place of fast ones", shared=True
    )
    contract: bool = _option(
        True, boolean, "on a GPU, compute `a * b + c` of floats by fma, rounded once; without effect with `exact_math`"
    )
    raise_pointers: bool = _option(
        True,
        boolean,
        "on a GPU with TMA, load blocks for dots by TMA, and store, where pointers are affine. Their 32-bit indices "
        "are taken not to wrap around, and rows of a matrix not to overlap",
    )
    persistent: bool = _option(
        True,
        boolean,
        "on a GPU, let CTAs take programs in turn where loads for dots were raised and that is expected to pay",
    )
    fast_math: bool = _option(
        False, boolean,
        "in native code for a CPU: sums and atomics in any order, functions in f32, dots of bf16 by instructions of "
        "their own; no effect elsewhere",
        in_key=False,
    )  # fmt: skip
    warp_specialize: bool | None = _option(
        None,
        boolean,
        "on a GPU with TMA, split loops of dots into warp roles, also where `zg.range` does not ask for it; None lets "
        "the compiler choose with `num_warps`",
    )
    maxnreg: int | None = _option(
        None,
        _number(1, MAX_REGISTERS),
        "registers that a thread has at most; with warp roles, which trade them, on average; None leaves it to the "
        "assembler",
    )
    num_ctas: int | None = _option(
        None,
        _number(1, MAX_CTAS, power_of_two=True),
        "on a GPU with clusters, CTAs of a program, a power of two up to 16, which share its tensors where that can be "
        "done, and otherwise one CTA with the warps of all; None lets the compiler choose",
        shared=True,
    )
    launch_pdl: bool = _option(
        False, boolean, "begin before the launch ahead has ended; the kernel waits for it by `zg.gdc_wait`"
    )
    launch_cooperative_grid: bool = _option(
        False, boolean, "run all programs at once, so that they may wait for each other; or fail if they do not fit"
    )
    line_info: bool = _option(True, boolean, "source lines in the code, for profilers and debuggers")
    verify: bool | str = _option(
        False,
        _verification,
        'run the verifier after every pass; "prove" also proves that the pass changes nothing that the kernel does '
        "(`zg.prove`), for blocks of some thousand elements",
        in_key=False,
    )
    isolate: bool = _option(
        False, boolean, "compile in a child process: a crash of the compiler is an error", in_key=False
    )

    @classmethod
    def of(cls, options: Mapping[str, Any], base: CompileOptions | None = None) -> CompileOptions:
        """Options from checked values by name; a value of None counts as not given. Other options are those of `base`,
        or the defaults. Raises `LaunchError` for a name that is no option, and a value that an option cannot have."""
        for name in options:
            if name not in COMPILE_OPTIONS:
                raise LaunchError(f"there is no option '{name}'", hint=f"the options are {', '.join(COMPILE_OPTIONS)}")
        checked = {name: checked_option(name, value) for name, value in options.items() if value is not None}
        return attrs.evolve(base or DEFAULT_OPTIONS, **checked)

    @property
    def warps(self) -> int:
        """The warps of a CTA; before they are chosen the usual number."""
        return USUAL_WARPS if self.num_warps is None else self.num_warps

    @property
    def key(self) -> tuple[tuple[str, Any], ...]:
        """The names and values of the options that compiled code depends on."""
        fields = attrs.fields(CompileOptions)
        return tuple((field.name, getattr(self, field.name)) for field in fields if field.metadata["in_key"])

    # Those of passes of one's own: see `OwnOptions`.

    @property
    def is_kept(self) -> bool:
        """Whether `key` is equal in other processes, so that code can be kept on disk."""
        return True

    @property
    def plain(self) -> CompileOptions:
        """The options without passes of one's own, which another process may not have."""
        return self

    def after(self, *places: str) -> tuple[tuple[str, Callable[[Op], Op]], ...]:
        """The passes of one's own at these places, by name."""
        return ()


@attrs.frozen
class LaunchOptions:
    """Options of one launch that compiled code does not depend on."""

    strict: bool = _option(
        False,
        boolean,
        "on arrays in memory: interpret, and report uses of undefined elements, missing barriers, races between "
        "programs, and indices that code for GPUs takes not to be negative",
    )
    interpret: bool = _option(False, boolean, "on arrays in memory: run by the interpreter, not as native code")
    stream: Any = _option(None, _stream, "the stream of the launch: an address, or a stream of torch or CuPy")  # noqa: RUF009
    check: bool | None = _option(
        None,
        boolean,
        "on a GPU: wait for the launch, so that a fault is reported as this kernel's; on a CPU, by default: find "
        "accesses outside of the arrays",
    )
    sanitize: tuple[str, ...] = _option(
        (),
        sanitizers,
        'check the launch for the faults that these name, wait for it, and report them: "races", "bounds", "overflow", '
        '"undefined", "nan"; or True for all',
    )
    uninitialized: tuple[str, ...] = _option(
        (),
        parameter_names,
        'of `sanitize="undefined"`: the parameters whose arrays have no defined elements until the launch writes them',
    )


DEFAULT_OPTIONS: Final = CompileOptions()
_FIELDS: Final = {field.name: field for field in (*attrs.fields(CompileOptions), *attrs.fields(LaunchOptions))}
COMPILE_OPTIONS: Final = tuple(field.name for field in attrs.fields(CompileOptions))
LAUNCH_ONLY: Final = tuple(field.name for field in attrs.fields(LaunchOptions))
# Keywords that a launch takes besides the kernel's parameters.
LAUNCH_OPTIONS: Final = tuple(name for name, field in _FIELDS.items() if field.metadata["launch"])
SHARED_OPTIONS: Final = tuple(name for name, field in _FIELDS.items() if field.metadata["shared"])


def checked_option(name: str, value: Any) -> Any:
    """The value of an option in one spelling: `np.int64(8)` is 8, `exact_math=1` is True.

    A name that is no option gives the value unchanged. Raises `LaunchError` for a value that the option cannot have.
    """
    field = _FIELDS.get(name)
    return value if field is None else field.metadata["check"](name, value)


def default_of(name: str) -> Any:
    """The default of an option. A parameter with the name of one that the compiler chooses has its usual value."""
    return {"num_warps": USUAL_WARPS, "num_stages": USUAL_STAGES, "num_ctas": 1}.get(name, _FIELDS[name].default)


def options_table() -> str:
    """The options of compilation and of a launch as a table in Markdown; docs/guides/compiling.md holds it."""
    rows = [f"| `{name}` | `{field.default!r}` | {field.metadata['doc']} |" for name, field in _FIELDS.items()]
    return "\n".join(["| option | default | |", "| --- | --- | --- |", *rows]) + "\n"


def documentation_of(name: str) -> str:
    """The documentation of an option, in one line."""
    return str(_FIELDS[name].metadata["doc"])
