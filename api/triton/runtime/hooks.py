"""Views of launches and compilations for hooks of `triton.knobs.runtime`, and arguments without a GPU's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS
from ziggurat.codemodel.types import ConstantType, ScalarType, Type, find_scalar
from ziggurat.kernels.arguments import KernelSignature, components_of, constant_of
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

    signature = kernel.signature
    target = driver.active.get_current_target()
    return json.dumps(
        {
            "name": fn.repr(None),
            "target": attrs.asdict(target),
            "types": [_text_of(type_) for type_ in signature.types],
            "divisibility": signature.divisibility,
            "options": {name: value for name, value in kernel.launch_options.items() if name != "extern_libs"},
            "key": key,
        }
    )


def read_specialization(fn: JITFunction, text: str) -> tuple[KernelSignature, dict[str, Any]]:
    """The signature and the options that `written_specialization` wrote. Raises `RuntimeError` for those of another
    function or target."""
    import json

    data = json.loads(text)
    expected = {"name": fn.repr(None), "target": attrs.asdict(driver.active.get_current_target())}
    for field, value in expected.items():
        if data[field] != value:
            raise RuntimeError(f"Specialization data is for {data[field]} but trying to preload for {value}")
    types = tuple(_read(fn, name, type_) for name, type_ in zip(fn.arg_names, data["types"], strict=True))
    return KernelSignature(types, tuple(data["divisibility"])), data["options"]


# The functions that were written as constants, by their keys.
_FUNCTIONS: dict[str, Any] = {}


def _text_of(type_: Type) -> Any:
    """The type of an argument as JSON: its text, or a constant in a dict."""
    if not isinstance(type_, ConstantType):
        return str(type_)
    value = type_.value
    if isinstance(value, Type):
        function = getattr(value, "function", None)
        if function is None:
            return {"type": str(value)}
        _FUNCTIONS[function.cache_key] = function
        return {"function": function.cache_key}
    return {"value": value}


def _read(fn: JITFunction, name: str, text: Any) -> Type:
    """The type that `_text_of` wrote. Raises `RuntimeError` for a function of another process."""
    from ziggurat.codemodel.text.parser import parse_values

    if isinstance(text, str):
        return parse_values(text)[0]
    if "function" in text and text["function"] not in _FUNCTIONS:
        raise RuntimeError(f"Specialization data has a function for '{name}' that this process does not know")
    if "type" in text:
        return constant_of(fn, name, parse_values(text["type"])[0])
    return constant_of(fn, name, _FUNCTIONS[text["function"]] if "function" in text else text["value"])


def default_target() -> str:
    """The target of the current GPU; that of an H100 on a machine without one."""
    if isinstance(driver.active, CudaDriver):
        from ziggurat.backend.cuda.driver import current_device

        return current_device().target
    return DEFAULT_OPTIONS.target


def any_array(argument: Any, name: str) -> tuple[Any, ScalarType, int] | None:
    """The element type and the address of an array in any memory or in none; None for another thing."""
    from ziggurat.backend.launch.arrays import is_pointer, on_gpu, read_array

    if not is_pointer(argument):
        if not on_gpu(argument):
            return read_array(argument, name)
        from ziggurat.backend.cuda.device_arrays import view

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
