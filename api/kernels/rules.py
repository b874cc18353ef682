"""The rules of launches, in which the languages of kernels differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from ziggurat import compiler
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.kernels.arguments import KernelSignature, check_options
from ziggurat.kernels.models import PythonModels

if TYPE_CHECKING:
    from ziggurat.backend.cuda.binary import Binary
    from ziggurat.backend.cuda.driver import Loaded
    from ziggurat.backend.cuda.specialize import KernelParameter, Specialization
    from ziggurat.kernels.kernel import Kernel


def _parameter(kernel: Kernel, name: str) -> KernelParameter:
    from ziggurat.backend.cuda.specialize import KernelParameter

    typed = isinstance(kernel.models, PythonModels)
    return KernelParameter(name, specialize=name not in kernel.do_not_specialize, typed=typed)


def _runs_here(kernel: Kernel, arguments: Iterable[Any]) -> bool:
    from ziggurat.backend.launch.arrays import on_gpu

    return not any(map(on_gpu, arguments))


def _binary(kernel: Kernel, spec: Specialization, shape: Sequence[Any]) -> Binary:
    from ziggurat.launches.gpu import binary_for

    with compiler.compiling:
        return binary_for(kernel, spec, shape)


def _model(kernel: Kernel, signature: KernelSignature, options: Mapping[str, Any]) -> core.Module:
    return kernel.model_for(signature.with_options(options))


def _explained(kernel: Kernel, error: ZigguratError) -> ZigguratError:
    error.say_in(kernel.models.words)
    return error


def _no_result(kernel: Kernel, signature: KernelSignature, options: Mapping[str, Any], code: Loaded | None) -> None:
    return None


@attrs.frozen(kw_only=True)
class LaunchRules:
    """The rules of launches in one language. By default they are those of explicit calls."""

    parameter: Callable[[Kernel, str], KernelParameter] = _parameter
    """The treatment of the arguments of a run-time parameter, by its name."""
    check_options: Callable[[Kernel, Mapping[str, Any]], None] = check_options
    """Raises an error for a keyword of a launch that is neither a parameter nor an option."""
    compile_options: Callable[[Mapping[str, Any]], CompileOptions] = CompileOptions.of
    """The options of compilation for those of a launch."""
    runs_here: Callable[[Kernel, Iterable[Any]], bool] = _runs_here
    """Whether a launch with these arguments runs on this machine, and not on a GPU."""
    check_host: Callable[[Kernel, Iterable[Any], Mapping[str, Any]], None] = lambda kernel, arguments, options: None
    """Raises an error for arguments and options with which no launch runs on this machine."""
    model: Callable[[Kernel, KernelSignature, Mapping[str, Any]], core.Module] = _model
    """The Triton model that a launch with these options runs on this machine."""
    binary: Callable[[Kernel, Specialization, Sequence[Any]], Binary] = _binary
    """The kernel compiled for a launch on a GPU; see `ziggurat.launches.gpu.binary_for`."""
    result: Callable[[Kernel, KernelSignature, Mapping[str, Any], Loaded | None], Any] = _no_result
    """The result of a launch with these options: on a GPU, of the kernel that is loaded there, or on this machine."""
    explained: Callable[[Kernel, ZigguratError], ZigguratError] = _explained
    """The error that is raised for one of a launch, in the words of the source."""
    tolerant_memory: bool = False
    """Whether an access outside of the arrays in host memory, and a division by zero, give a warning; they are errors
    otherwise, as with `strict=True`."""


EXPLICIT_RULES: Final = LaunchRules()
