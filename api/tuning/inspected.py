"""A launch that a tool looks at in place of running it, also of a tuned kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS
from ziggurat.codemodel.op import require_argument
from ziggurat.kernels.arguments import bind, check_options, divided
from ziggurat.kernels.kernel import Kernel
from ziggurat.tuning.tuned import Tuned


def launch_of(
    tool: str, kernel: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], kinds: str = "a kernel"
) -> tuple[Kernel, dict[str, Any], dict[str, Any]]:
    """The kernel of a launch, its arguments by name, and its options of compilation; of a tuned kernel those of the
    configuration that was chosen for the arguments, or of the first, and those that are computed.

    Raises `LaunchError` for arguments and options that do not fit, in the name of the tool. `kinds` is what it takes.
    """
    if isinstance(kernel, Tuned):
        by_position = dict(zip(kernel.signature.parameters, arguments, strict=False))
        keywords = {**kernel.known_settings({**by_position, **keywords}), **keywords}
        kernel = kernel.base
    require_argument(kernel, isinstance(kernel, Kernel), f"{tool}: 'kernel' must be {kinds}", "use @zg.kernel")
    own, options = divided(kernel, keywords)
    check_options(kernel, options, COMPILE_OPTIONS)
    return kernel, bind(kernel, arguments, own), options
