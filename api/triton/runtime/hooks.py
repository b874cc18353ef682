"""Views of launches and compilations for hooks of `triton.knobs.runtime`, and arguments without a GPU's memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS
from ziggurat.codemodel.types import ScalarType, Type, find_scalar
from ziggurat.kernels.arguments import KernelSignature, components_of
from ziggurat.triton import knobs
from ziggurat.triton.backends.driver import torch_module
from ziggurat.triton.runtime import triton_options
from ziggurat.triton.runtime.driver import CudaDriver, driver
from ziggurat.triton.runtime.tensors import TensorWrapper

if TYPE_CHECKING:
    from ziggurat.triton.compiler.compiled_kernel import CompiledKernel
    from ziggurat.triton.runtime.jit import JITFunction


@attrs.frozen
class JitFunctionInfo:
    """The function that a hook is told of."""

    module: str
    name: str
    jit_function: JITFunction


class NotCompiled(Exception):
    """The hook `jit_cache_hook` has returned a true value: the kernel is neither compiled nor launched."""


def tell(hook: Callable[..., Any] | None, fn: JITFunction, kernel: CompiledKernel, key: str, is_warmup: bool) -> Any:
    """Tell a hook of compilations of a kernel. The result is the hook's."""
    if hook is None:
        return None
    settings = {**triton_options.DEFAULTS, **kernel.launch_options}
    libraries: Any = settings["extern_libs"] or {}
    settings["extern_libs"] = tuple(dict(libraries).items())
    types = ", ".join(f"{name}: {type_}" for name, type_ in kernel.src.signature.items())
    names = ("num_warps", "num_ctas", "num_stages", "enable_fp_fusion", "launch_cooperative_grid")
    listing = ", ".join(f"{name}={settings[name]}" for name in names)
    return hook(
        key=key,
        repr=f"{fn.__qualname__}[{listing}]({types})",
        fn=JitFunctionInfo(fn.__module__, fn.__qualname__, fn),
        compile={
            "key": key,
            "signature": kernel.src.signature,
            "device": driver.active.get_current_device(),
            "constants": kernel.src.constants,
            "extern_libs": settings["extern_libs"],
            "configs": [kernel.src.attrs],
            "specialization_data": written_specialization(fn, kernel, key),
            "is_warmup": is_warmup,
            **{name: settings[name] for name in names},
        },
        is_manual_warmup=is_warmup,
        already_compiled=False,
    )


def announce_load(kernel: CompiledKernel) -> None:
    """Tell the hooks that a kernel was loaded, once."""
    if kernel.announced:
        return
    kernel.announced = True
    for chain in (knobs.runtime.kernel_load_start_hook, knobs.runtime.kernel_load_end_hook):
        if chain:
            chain(kernel.module, kernel.function, kernel.src.name, kernel.metadata_group, kernel.hash)


def written_specialization(fn: JITFunction, kernel: CompiledKernel, key: str) -> str:
    """The types and options that a kernel is compiled for as JSON, for `JITFunction.preload`."""
    import json

    return json.dumps(
        {
            **_addressee(fn),
            "types": [_text_of(type_) for type_ in kernel.signature.types],
            "divisibility": kernel.signature.divisibility,
            "small": kernel.signature.small,
            "options": {name: value for name, value in kernel.launch_options.items() if name != "extern_libs"},
            "key": key,
        }
    )


def read_specialization(fn: JITFunction, text: str) -> tuple[KernelSignature, dict[str, Any]]:
    """The signature and the options that `written_specialization` wrote. Raises `RuntimeError` for those of another
    function or target, and for a function among the constants that another process has written."""
    import json

    from ziggurat.codemodel.text.parser import parse_values

    data = json.loads(text)
    for field, value in _addressee(fn).items():
        if data[field] != value:
            raise RuntimeError(f"Specialization data is for {data[field]} but trying to preload for {value}")
    types: list[Type] = []
    for name, text_of_type in zip(fn.arg_names, data["types"], strict=True):
        if text_of_type.startswith("function ") and text_of_type not in _FUNCTIONS:
            raise RuntimeError(f"Specialization data has a function for '{name}' that this process does not know")
        types.append(_FUNCTIONS.get(text_of_type) or parse_values(text_of_type)[0])
    return KernelSignature(tuple(types), tuple(data["divisibility"]), tuple(data["small"])), data["options"]


def _addressee(fn: JITFunction) -> dict[str, Any]:
    """The function and the target that specialization data is for."""
    return {
        "name": f"{fn.__module__}.{fn.__qualname__}",
        "target": dataclasses.asdict(driver.active.get_current_target()),
    }


# The constants that are functions, by the texts that stand for them.
_FUNCTIONS: dict[str, Type] = {}


def _text_of(type_: Type) -> str:
    """The type of an argument as text, which the parser reads unless it stands for a function."""
    function = getattr(getattr(type_, "value", None), "function", None)
    if function is None:
        return str(type_)
    text = f"function {function.cache_key}"
    _FUNCTIONS[text] = type_
    return text


def default_target() -> str:
    """The target of the current GPU; that of an H100 on a machine without one."""
    if isinstance(driver.active, CudaDriver):
        from ziggurat.backend.devices.driver import current_device

        return current_device().target
    return DEFAULT_OPTIONS.target


def any_array(argument: Any, name: str) -> tuple[Any, ScalarType, int] | None:
    """The element type and the address of an array in any memory or in none; None for another thing."""
    from ziggurat.backend.launch.arrays import is_pointer, on_gpu, read_array

    if not is_pointer(argument):
        if not on_gpu(argument):
            return read_array(argument, name)
        from ziggurat.backend.launch.device_arrays import view

        array = view(argument, name)
        return None, array.element, array.address
    scalar = find_scalar(getattr(argument.dtype, "value", argument.dtype))
    return None if scalar is None else (None, scalar, int(argument.data_ptr()))


def interpreted(launch: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Launch with copies in this machine's memory of the tensors of PyTorch on a GPU, and copy them back. Views of one
    storage stay views of one copy."""
    from ziggurat.triton.tools.tensor_descriptor import TensorDescriptor

    storages: dict[int, tuple[Any, Any]] = {}

    def here(value: Any) -> Any:
        parts = components_of(value)
        if parts is not None:
            components = list(map(here, parts))
            return type(value)(*components) if hasattr(value, "_fields") else type(value)(components)
        if isinstance(value, TensorDescriptor):
            return TensorDescriptor(here(value.base), value.shape, value.strides, value.block_shape, value.padding)
        if isinstance(value, TensorWrapper):
            return TensorWrapper(here(value.base), value.dtype)
        if getattr(value, "is_cuda", False) is not True or not hasattr(value, "untyped_storage"):
            return value
        storage = value.untyped_storage()
        if storage.data_ptr() not in storages:
            storages[storage.data_ptr()] = storage, storage.cpu()
        copy = torch_module().empty(0, dtype=value.dtype)
        return copy.set_(storages[storage.data_ptr()][1], value.storage_offset(), value.size(), value.stride())

    result = launch(*map(here, args), **{name: here(value) for name, value in kwargs.items()})
    for original, copy in storages.values():
        original.copy_(copy)
    return result
