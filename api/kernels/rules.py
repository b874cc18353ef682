"""The rules of launches, in which the languages of kernels differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ziggurat import compiler
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.kernels.arguments import KernelSignature, check_options
from ziggurat.kernels.models import PythonModels

if TYPE_CHECKING:
    from ziggurat.backend.cuda.loaded import Loaded
    from ziggurat.backend.cuda.specialize import KernelParameter, Specialization
    from ziggurat.compiler.builds import KernelBuild
    from ziggurat.kernels.kernel import Kernel


class LaunchRules:
    """The rules of launches of explicit kernels. Those of another language derive from this class."""

    tolerant_memory = False
    """Whether an access outside of the arrays in host memory, and a division by zero, give a warning; they are errors
    otherwise, as with `strict=True`."""

    def parameter(self, kernel: Kernel, name: str) -> KernelParameter:
        """The treatment of the arguments of a run-time parameter, by its name."""
        from ziggurat.backend.cuda.specialize import KernelParameter

        typed = isinstance(kernel.models, PythonModels)
        return KernelParameter(name, specialize=name not in kernel.do_not_specialize, typed=typed)

    def argument(self, value: Any) -> Any:
        """The value that a kernel is given for an argument of a launch."""
        return value

    def check_options(self, kernel: Kernel, options: Mapping[str, Any]) -> None:
        """Raise an error for a keyword of a launch that is neither a parameter nor an option."""
        check_options(kernel, options)

    def compile_options(self, options: Mapping[str, Any]) -> CompileOptions:
        """The options of compilation for those of a launch."""
        return CompileOptions.of(options)

    def runs_here(self, kernel: Kernel, values: Iterable[Any]) -> bool:
        """Whether a launch with these arguments runs on this machine, and not on a GPU."""
        from ziggurat.backend.launch.arrays import on_gpu

        return not any(map(on_gpu, values))

    def check_host(self, kernel: Kernel, values: Iterable[Any], options: Mapping[str, Any]) -> None:
        """Raise an error for arguments and options with which no launch runs on this machine."""

    def model(self, kernel: Kernel, signature: KernelSignature, options: Mapping[str, Any]) -> core.Module:
        """The Triton model that a launch with these options runs on this machine."""
        return kernel.model_for(signature.with_options(options))

    def build(self, kernel: Kernel, spec: Specialization, shape: Sequence[Any]) -> KernelBuild:
        """The kernel to be compiled for a launch on a GPU; `shape` says which of its parameters take tuples."""
        with compiler.compiling:
            from ziggurat.compiler.builds import KernelBuild
            from ziggurat.launches.gpu import model_of, options_of

            return KernelBuild(model_of(kernel, spec, shape), options_of(kernel, spec), kernel.name)

    def result(
        self, kernel: Kernel, signature: KernelSignature, options: Mapping[str, Any], code: Loaded | None
    ) -> Any:
        """The result of a launch with these options: on a GPU, of the kernel that is loaded there, or on this
        machine."""
        return None

    def explained(self, kernel: Kernel, error: ZigguratError) -> ZigguratError:
        """The error that is raised for one of a launch, in the words of the source."""
        error.say_in(kernel.models.words)
        return error
