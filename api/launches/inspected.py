"""Launches that tools look at in place of running them: the kernel, the arguments by name, and the options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS
from ziggurat.codemodel.op import require_argument
from ziggurat.kernels.arguments import bind, check_options
from ziggurat.kernels.kernel import Kernel
from ziggurat.tuning.tuned import Tuned

if TYPE_CHECKING:
    from ziggurat.compiler.compiled import Compiled


def launch_of(
    tool: str, kernel: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], kinds: str = "a kernel"
) -> tuple[Kernel, dict[str, Any], dict[str, Any]]:
    """The kernel of a launch, its arguments by name, and its options of compilation; of a tuned kernel those of its
    first configuration.

    Raises `LaunchError` for arguments and options that do not fit, in the name of the tool. `kinds` is what it takes.
    """
    if isinstance(kernel, Tuned):
        configs = kernel.tuning.configs if kernel.tuning is not None else ()
        keywords = {**(configs[0].all_kwargs() if configs else {}), **keywords}
        kernel = kernel.base
    require_argument(kernel, isinstance(kernel, Kernel), f"{tool}: 'kernel' must be {kinds}", "use @zg.kernel")
    names = kernel.signature.parameters
    options = {name: value for name, value in keywords.items() if name not in names}
    check_options(kernel, options, COMPILE_OPTIONS)
    return kernel, bind(kernel, arguments, {n: value for n, value in keywords.items() if n in names}), options


def compiled_for_launch(
    kernel: Kernel, bound: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Compiled, list[str], list[Any]]:
    """A kernel as a launch on these arguments, in memory, compiles it; and the names and values of its arguments."""
    signature, names, values = kernel.specialized(bound)
    # A launch compiles integers in that are 1.
    ones = {
        number: 1
        for number, (name, value) in enumerate(zip(names, values, strict=True))
        if type(value) is int and value == 1 and kernel.rules.parameter(kernel, name.partition("[")[0]).specialize
    }
    compiled = kernel.compiled_for(signature, bound, options, ones)
    rest = [number for number in range(len(values)) if number not in ones]
    return compiled, [names[number] for number in rest], [values[number] for number in rest]
