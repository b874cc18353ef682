"""`torch.compile(model, backend="ziggurat")`: the package's entry point in the group `torch_dynamo_backends`.

PyTorch imports this module for that name, and the import makes `ziggurat.triton` the module `triton` of the process:
PyTorch reads what its Triton can do before it calls the backend.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ziggurat.triton
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.triton.installation import install
from ziggurat.triton.runtime.driver import HostDriver, driver

_HEURISTICS: Final = "torch._inductor.runtime.triton_heuristics"
# Options of Inductor on a machine without a GPU. The kernels that it writes for CPUs to time templates of products and
# convolutions are no valid Python (torch 2.13 indents an import), so that tuning chooses among PyTorch's own.
_FOR_CPUS: Final = {
    "cpu_backend": "triton", "max_autotune_gemm_backends": "ATEN", "max_autotune_conv_backends": "ATEN",
}  # fmt: skip


def backend(
    graph: Any, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Any:
    """Inductor, PyTorch's compiler, with `mode` and `options` as `torch.compile` has them; ziggurat compiles its
    kernels. On a machine without a GPU they are native code of the CPU, and no C compiler is needed.

    Raises `ZigguratError` if PyTorch has compiled without ziggurat in this process, and for `cpp_wrapper` on a machine
    without a GPU.
    """
    heuristics = importlib.import_module(_HEURISTICS)
    if not issubclass(heuristics.CachingAutotuner, ziggurat.triton.KernelInterface):
        raise ZigguratError(
            'backend="ziggurat" must come before PyTorch compiles without ziggurat in the same process',
            hint="call ziggurat.triton.install() at the top of the program",
        )
    wants_wrapper = importlib.import_module("torch._inductor.config").cpp_wrapper
    if isinstance(driver.active, HostDriver) and (options or {}).get("cpp_wrapper", wants_wrapper):
        raise ZigguratError(
            "PyTorch's cpp_wrapper does not launch Triton's kernels on CPUs",
            hint="compile with cpp_wrapper=False, or ahead of time: torch._inductor.aoti_compile_and_package",
        )
    wrapper: Any = importlib.import_module("torch")._TorchCompileInductorWrapper
    own = _FOR_CPUS if isinstance(driver.active, HostDriver) else {}
    return wrapper(mode, {**own, **(options or {})}, None)(graph, inputs)


if sys.modules.get("triton") is not ziggurat.triton:
    install()
