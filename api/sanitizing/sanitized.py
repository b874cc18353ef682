"""`zg.sanitized`: a kernel's model with checks, and its launches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ziggurat.backend.launch.grids import padded, sizes_of
from ziggurat.boundary import public
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import LaunchError, SanitizerReport, shown
from ziggurat.codemodel.gpu.options import sanitizers
from ziggurat.codemodel.op import Op, require_model
from ziggurat.codemodel.types import DescriptorType, PtrType
from ziggurat.codemodel.verify import verify
from ziggurat.sanitizing.memory import ArrayFacts, facts_of, memory_of, sharing
from ziggurat.sanitizing.reports import raise_reports, reports_of
from ziggurat.transforms.parameters import kernel_of
from ziggurat.transforms.sanitize import CHECKS, Sanitized, sanitize


class SanitizedModel:
    """A kernel's model with checks, as `zg.sanitized` makes it.

        sanitized = zg.sanitized(model, ("races", "bounds"))
        memory = sanitized.memory(grid, x, out, n)
        zg.run(sanitized.model, grid, x, out, n, memory)     # or compiled, simulated, on a GPU
        sanitized.check(memory, grid, x, out, n)             # raises SanitizerError

    `model` is a Triton model whose last parameter is the memory of a launch: an array of i64, of zeros but for what
    `memory` writes there. `checks` are the names of the sanitizers.
    """

    def __init__(
        self, model: Op, checks: Iterable[str], names: Sequence[str],
        groups: Iterable[Sequence[int]] = (), unwritten: Collection[int] = (),
    ) -> None:  # fmt: skip
        self.original, self.names = model, tuple(names)
        self.sanitized: Sanitized = sanitize(model, tuple(checks), groups, unwritten)

    @property
    def model(self) -> core.Module:
        """The Triton model with the checks."""
        return self.sanitized.model

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of the sanitizers."""
        return self.sanitized.names

    def facts(self, arguments: Sequence[Any]) -> list[ArrayFacts]:
        """The facts about the arrays among the arguments of a launch, in order."""
        if len(arguments) != len(self.names):
            raise LaunchError(f"the kernel takes {len(self.names)} arguments; got {len(arguments)}")
        numbers = [array.parameter for array in self.sanitized.arrays]
        return [facts_of(arguments[number], self.names[number]) for number in numbers]

    @public
    def memory(self, grid: int | tuple[int, ...], /, *arguments: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The memory for a launch over a grid with these arguments, which are those of the original model.

        Raises `LaunchError` for arrays that share memory unless `zg.sanitized` was told so.
        """
        facts = self.facts(arguments)
        for group in sharing(facts):
            members = [self.sanitized.arrays[number] for number in group]
            if len({array.group for array in members}) > 1:
                names = " and ".join(f"'{self.names[array.parameter]}'" for array in members)
                raise LaunchError(
                    f"the arrays {names} share memory, of which the sanitized model does not know",
                    hint=f"zg.sanitized(…, shared=[{tuple(array.parameter for array in members)}])",
                )
        words, size = memory_of(self.sanitized, facts, math.prod(sizes_of(grid, "zg.sanitized")))
        memory = np.zeros(size, np.int64)
        memory[: len(words)] = words
        return memory

    @public
    def reports(self, memory: Any, grid: int | tuple[int, ...], /, *arguments: Any) -> list[SanitizerReport]:
        """The reports in the memory of a launch that has ended. Raises `LaunchError` for another memory."""
        words = np.asarray(memory)
        if words.ndim != 1 or len(words) < self.sanitized.size:
            raise LaunchError(f"the memory must be that of a launch, as sanitized.memory gives; got {shown(memory)}")
        return reports_of(self.sanitized, words, padded(sizes_of(grid, "")), self.facts(arguments))

    @public
    def check(self, memory: Any, grid: int | tuple[int, ...], /, *arguments: Any) -> None:
        """Raise `SanitizerError` if a launch that has ended reported a fault."""
        raise_reports(self.reports(memory, grid, *arguments), str(kernel_of(self.original).sym_name))

    def __str__(self) -> str:
        return str(self.model)

    def __repr__(self) -> str:
        return f"<'{kernel_of(self.original).sym_name}' sanitized for {', '.join(self.checks)}>"


@public
def sanitized(
    model: Op, checks: str | Iterable[str] = CHECKS, *, names: Sequence[str] | None = None,
    shared: Iterable[Sequence[int]] = (), uninitialized: Collection[int] = (),
) -> SanitizedModel:  # fmt: skip
    """A Triton model with checks of races, bounds, overflow, undefined values and NaN, as a Triton model.

    `checks` are names of these: "races", "bounds", "overflow", "undefined", "nan". `names` are those of the parameters,
    for messages. `shared` has the numbers of parameters whose arrays share memory, in groups: `[(0, 2)]`, and
    `uninitialized` those of arrays whose elements are undefined until the launch writes them.
    `kernel[grid](…, sanitize=…)` does all of this for a launch.

    Raises `LaunchError` for other names of checks and numbers that are no array's, `VerifyError` for a model that
    breaks invariants, and `KernelTypeError` for a kernel that calls a recursive function.
    """
    require_model(model, "zg.sanitized")
    verify(model)
    parameters = kernel_of(model).body.parameters
    arrays = [n for n, parameter in enumerate(parameters) if isinstance(parameter.type, PtrType | DescriptorType)]
    shared = [tuple(group) for group in shared]
    for name, numbers in (("shared", itertools.chain(*shared)), ("uninitialized", uninitialized)):
        for number in numbers:
            if number not in arrays:
                what = f"the numbers of parameters that are arrays, {', '.join(map(str, arrays))}"
                raise LaunchError(f"zg.sanitized: '{name}' must have {what}; got {shown(number)}")
    count = len(parameters)
    texts = tuple(f"arg{number}" for number in range(count)) if names is None else tuple(names)
    if len(texts) != count:
        raise LaunchError(f"zg.sanitized: 'names' must have {count} names, one for each parameter; got {len(texts)}")
    return SanitizedModel(model, sanitizers("checks", checks), texts, shared, uninitialized)
