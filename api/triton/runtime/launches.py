"""The rules of launches of Triton's kernels: what they return, which options they take, and where they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.kernels.arguments import KernelSignature, leaves
from ziggurat.kernels.rules import LaunchRules
from ziggurat.triton import knobs
from ziggurat.triton.compiler import dumps
from ziggurat.triton.runtime import descriptor_memory, hooks
from ziggurat.triton.runtime.driver import CudaDriver, driver
from ziggurat.triton.runtime.errors import as_raised
from ziggurat.triton.runtime.tensors import is_host_tensor
from ziggurat.triton.runtime.triton_options import check, compile_options

if TYPE_CHECKING:
    from ziggurat.backend.cuda.loaded import Loaded
    from ziggurat.backend.cuda.specialize import KernelParameter, Specialization
    from ziggurat.triton.compiler.compiled_kernel import CompiledKernel


def own_model(kernel: Any, signature: KernelSignature, options: Mapping[str, Any]) -> core.Module:
    """The Triton model with the assertions that the options ask for: `debug` keeps device assertions, and
    `sanitize_overflow`, which is on by default, adds those of integers."""
    return kernel.model_for(signature.with_options({**options, "debug": bool(options.get("debug"))}))


class TritonRules(LaunchRules):
    """The rules of launches of kernels in Triton's Python."""

    tolerant_memory = True

    def parameter(self, kernel: Any, name: str) -> KernelParameter:
        from ziggurat.backend.cuda.specialize import KernelParameter

        parameter = kernel.by_name[name.partition("[")[0]]
        dtype = parameter.dtype
        return KernelParameter(
            name,
            specialize=not parameter.do_not_specialize and (dtype is None or dtype.kind == "int"),
            declared=dtype,
            align=not parameter.do_not_specialize_on_alignment,
            as_triton=True,
        )

    def argument(self, value: Any) -> Any:
        return descriptor_memory.read(value)

    def runs_here(self, kernel: Any, values: Iterable[Any]) -> bool:
        """On a machine with a GPU, a launch without arrays does not run here."""
        from ziggurat.backend.launch.arrays import is_array, on_gpu

        arrays = list(values)
        if any(map(on_gpu, arrays)):
            return False
        return kernel.is_interpreted or not isinstance(driver.active, CudaDriver) or any(map(is_array, arrays))

    def check_host(self, kernel: Any, values: Iterable[Any], options: Mapping[str, Any]) -> None:
        """Raise `HostArrayError` for a tensor of PyTorch on a machine with a GPU, as Triton does, unless the launch or
        the process asks for a run on this machine."""
        from ziggurat.backend.launch.arrays import HostArrayError

        is_wanted = kernel.is_interpreted or options.get("interpret") is not None or options.get("strict")
        if is_wanted or not isinstance(driver.active, CudaDriver):
            return
        place = next((place for place, value in enumerate(leaves(values)) if is_host_tensor(value)), None)
        if place is not None:
            raise HostArrayError(
                f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?)",
                hint="move the tensor to the GPU, or run the kernel on this machine: launch it with interpret=True, or "
                "set TRITON_INTERPRET=1",
            )

    def model(self, kernel: Any, signature: KernelSignature, options: Mapping[str, Any]) -> core.Module:
        if options.get("ir_override") is None and not knobs.compilation.override:
            return own_model(kernel, signature, options)
        return kernel.compilation(signature, options).model_to_run

    def build(self, kernel: Any, spec: Specialization, shape: Sequence[Any]) -> CompiledKernel:
        from ziggurat.launches.gpu import signature_of

        signature, _ = signature_of(kernel, spec, shape)
        return kernel.compilation(signature, dict(spec.options), target=spec.target)

    def result(
        self, kernel: Any, signature: KernelSignature, options: Mapping[str, Any], code: Loaded | None
    ) -> CompiledKernel:
        target = None if code is None else code.binary.target
        compiled: CompiledKernel = kernel.compilation(signature, options, target=target)
        if code is not None:
            compiled.code = code
        elif knobs.compilation.listener is not None or dumps.wanted(kernel.name):
            compiled.demand()
        hooks.announce_load(compiled)
        return compiled

    def check_options(self, kernel: Any, options: Mapping[str, Any]) -> None:
        check(options, kernel)

    def compile_options(self, options: Mapping[str, Any]) -> CompileOptions:
        return compile_options(options)

    def explained(self, kernel: Any, error: ZigguratError) -> ZigguratError:
        return as_raised(error)
