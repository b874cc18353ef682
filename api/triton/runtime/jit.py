"""`@triton.jit`: kernels and helper functions in Triton's Python."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from ziggurat.boundary import public
from ziggurat.codemodel.gpu.options import LAUNCH_ONLY
from ziggurat.codemodel.types import ConstantType, PtrType, TupleType, Type, is_hashable
from ziggurat.frontends.language.classes import constexpr_type
from ziggurat.frontends.language.constants import constexpr
from ziggurat.frontends.language.dtypes import dtype
from ziggurat.frontends.language.function import ChangedGlobalError, Function
from ziggurat.frontends.triton.compile_time import ConstexprFunction, constexpr_function
from ziggurat.frontends.triton.function_sources import JITCallable, digest, require_stable, source_of
from ziggurat.frontends.triton.language import TRITON
from ziggurat.kernels.arguments import KernelSignature, is_tuple_of_arguments
from ziggurat.kernels.kernel import Grid, Kernel
from ziggurat.triton import knobs
from ziggurat.triton._utils import type_canonicalisation_dict
from ziggurat.triton.runtime import hooks, triton_options
from ziggurat.triton.runtime._async_compile import active_mode
from ziggurat.triton.runtime.device_caches import DeviceCaches
from ziggurat.triton.runtime.driver import driver
from ziggurat.triton.runtime.hooks import JitFunctionInfo
from ziggurat.triton.runtime.interface import KernelInterface
from ziggurat.triton.runtime.launches import TritonRules
from ziggurat.triton.runtime.models import TritonModels, compile_time_functions
from ziggurat.triton.runtime.parameters import KernelParam
from ziggurat.triton.runtime.tensors import MockTensor, TensorWrapper, reinterpret

if TYPE_CHECKING:
    from ziggurat.triton.compiler.compiled_kernel import CompiledKernel


_UNASKED: Final = object()
_environment: Any = os.environ
# The two dicts that have the setting, and its keys there. Launches look it up: `os.environ.get` itself takes 2 µs.
_FP32_DEFAULT: Final[tuple[tuple[Callable[[Any], Any], Any], ...]] = (
    (vars(knobs.language).get, "fp32_default"),
    (_environment._data.get, _environment.encodekey(knobs.language.knob_descriptors["fp32_default"].key)),
)
# The attributes of a kernel that a pickle without its function has.
_FACTS = (
    "__doc__", "__module__", "__name__", "__qualname__", "_src", "arg_names", "constexprs", "debug", "declarations",
    "defaults", "do_not_specialize", "do_not_specialize_on_alignment", "fn", "hash", "launch_metadata", "name",
    "noinline", "params", "repr", "version",
)  # fmt: skip


class JITFunction(Kernel, JITCallable, KernelInterface):
    """A function of a Triton program: a kernel that is launched over a grid, or a helper that kernels call."""

    language = TRITON
    make_models = TritonModels
    rules = TritonRules()
    hash: str | None = None
    kernel: None = None  # Triton's kernels have this attribute, which is always None.

    def __init__(
        self,
        fn: Callable[..., Any],
        version: Any = None,
        do_not_specialize: Sequence[int | str] | None = None,
        do_not_specialize_on_alignment: Sequence[int | str] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable[..., str] | None = None,
        launch_metadata: Callable[..., Any] | None = None,
        interpret: bool | None = None,
    ) -> None:
        if knobs.compilation.allow_non_constexpr_globals:
            self.language = attrs.evolve(TRITON, strict_globals=False)
        super().__init__(fn)
        self.compiled.limit *= 2  # A launch has a `CompiledKernel` there besides its code.
        parameters = self.signature.parameters
        self.arg_names = [*parameters]
        unspecialized, unaligned = do_not_specialize or (), do_not_specialize_on_alignment or ()
        self.params = [
            KernelParam(
                place,
                parameter,
                bool({place, parameter.name} & {*unspecialized}),
                bool({place, parameter.name} & {*unaligned}),
            )
            for place, parameter in enumerate(parameters.values())
        ]
        self.constexprs = [parameter.num for parameter in self.params if parameter.is_constexpr]
        self.declarations = {
            parameter.name: parameter.dtype for parameter in self.params if parameter.dtype is not None
        }
        self.defaults = {parameter.name: parameter.default for parameter in self.params if parameter.has_default}
        self.do_not_specialize = [parameter.name for parameter in self.params if parameter.do_not_specialize]
        self.do_not_specialize_on_alignment = unaligned or []
        self.version, self.debug, self.noinline = version, debug, bool(noinline)
        self.launch_metadata = launch_metadata
        self.pre_run_hooks: list[Callable[..., Any]] = []
        self.by_name = {parameter.name: parameter for parameter in self.params}
        self._repr = repr
        self._hash_lock = threading.RLock()
        # Programs read these attributes, and PyTorch sets them while it pickles the kernel.
        self.__globals__: dict[str, Any] = getattr(self.fn, "__globals__", {})
        self._used_global_vals: dict[tuple[str, int], tuple[Any, Any]] | None = None
        # The process's precision of dots that name none, where the models depend on it.
        self.fp32_default: Any = _UNASKED
        self.is_interpreted = bool(interpret or knobs.runtime.interpret)

    # The source.

    @property
    def _fn_name(self) -> str:
        return f"{self.__module__}.{self.__qualname__}"

    @property
    def module(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The name of the module that has the function."""
        return self.__module__

    def _unsafe_update_src(self, new_src: str) -> None:
        super()._unsafe_update_src(new_src)
        self.hash, self.models = None, TritonModels(self.fn)
        self.forget()

    @functools.cached_property
    def raw_src(self) -> list[str]:
        """The lines of the source, decorators included. A program that generates kernels may assign other lines."""
        return inspect.getsourcelines(self.fn)[0]

    @functools.cached_property
    def starting_line_number(self) -> int:
        """The line of the first decorator, or of `def`. A program that generates kernels may assign another."""
        return self.fn.__code__.co_firstlineno

    @property
    def type(self) -> Any:
        """The type of the function as a constant."""
        return constexpr_type(self)

    @functools.cached_property
    def file_name(self) -> str:
        """The file of the source. A program that generates kernels may assign another, as with the next two."""
        return self.fn.__code__.co_filename

    @functools.cached_property
    def def_file_line_number(self) -> int:
        """The line of `def` in the file."""
        lines = enumerate(self.raw_src, self.starting_line_number)
        return next((number for number, line in lines if line.lstrip().startswith("def ")), self.starting_line_number)

    @functools.cached_property
    def def_file_col_number(self) -> int:
        """The column of the name after `def`, from 1 on."""
        line = self.raw_src[self.def_file_line_number - self.starting_line_number]
        return line.index("def ") + 5

    def get_capture_scope(self) -> dict[str, Any]:
        """The variables that the function can read: those of its module, and those around it that it names."""
        return {**self.fn.__globals__, **inspect.getclosurevars(self.fn).nonlocals}

    def parse(self) -> ast.Module:
        """The syntax tree of the source."""
        return ast.parse(self.src)

    @property
    def cache_key(self) -> str:
        """A text that is equal for functions with equal code, at the same line, that call such functions."""
        if self.fn is None and self.hash:  # From a pickle.
            return self.hash
        for function in compile_time_functions(self):
            require_stable(function.fn, function.src)
        identity = self.identity or id(self)  # One of no other process, where passes have none.
        self.hash = digest(f"{identity} {self.starting_line_number} {self.noinline}")
        return self.hash

    @property
    def used_global_vals(self) -> dict[tuple[str, int], tuple[Any, Any]]:
        """The values from outside that the model has, functions excepted, by name and by the identity of their dict."""
        if self._used_global_vals is not None:
            return self._used_global_vals
        if self.fn is None:
            return {}
        _ = self.model
        return {
            (use.name, id(self.fn.__globals__)): (use.value, self.fn.__globals__)
            for use in self.uses
            if not callable(use.value) and not isinstance(use.value, types.ModuleType)
        }

    @used_global_vals.setter
    def used_global_vals(self, values: dict[tuple[str, int], tuple[Any, Any]] | None) -> None:
        """Show these values until the model is made again; launches compare those of the model."""
        self._used_global_vals = values

    def __reduce__(self) -> Any:
        """A pickle has the qualified name, as for Python's functions. A compile worker of PyTorch sets `fn` to None
        first, as the other process has not imported the module: then the pickle has the source, and the parameters."""
        if self.fn is not None:
            return super().__reduce__()
        self._src = self._src or source_of(vars(self)["__wrapped__"])
        self.hash = self.hash or digest(f"{self.__module__} {self.name} {self._src}")
        facts = {name: value for name, value in vars(self).items() if name in _FACTS}
        return _without_function, (facts,)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if vars(self).get("fn", self) is None:
                raise AttributeError(
                    f"'{self.name}' comes from a pickle without its function, and has no '{name}': import its module"
                )
            return super().__getattr__(name)

    def declared_types(self, types: Sequence[Type]) -> tuple[Type, ...]:
        """The types of the parameters, with pointers that the source declares as `tl.const`."""
        typed = zip(self.params, types, strict=True)
        return tuple(_constant(type_) if parameter.is_const else type_ for parameter, type_ in typed)

    def require_globals(self, caller: Function) -> None:
        """Raise `ChangedGlobalError` if a global has another value than when this function was compiled."""
        for use, _ in self._watched_uses:
            now = use.now()
            if now is not use.value and not isinstance(use.value, Function) and repr(now) != repr(use.value):
                raise ChangedGlobalError(
                    f"Global variable {use.name} has value {use.said(now)} when compiling {caller.name}, but inner "
                    f"kernel {self.name} has conflicting value {use.said(use.value)} from when it was first compiled. "
                    "This is not allowed.",
                    use.location,
                    "pass values that change as constexpr parameters",
                )

    def symbol_of(self, signature: KernelSignature) -> str:
        """The name of the kernel in its model and its machine code."""
        if self._repr is None:
            return self.name
        from ziggurat.triton.compiler.signatures import type_text

        types_by_name = dict(zip(self.arg_names, signature.types, strict=True))
        constants = {name: type_.value for name, type_ in types_by_name.items() if isinstance(type_, ConstantType)}
        types = {name: type_text(type_) for name, type_ in types_by_name.items()}
        return self._repr(SimpleNamespace(constants=constants, signature=types))

    def repr(self, specialization: Any) -> str:
        """The name of the kernel for the types and constants of its arguments."""
        return self._fn_name if self._repr is None else self._repr(specialization)

    # Launches.

    def is_gluon(self) -> bool:
        return False

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Call a function with the arguments of each launch before it."""
        self.pre_run_hooks.append(hook)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch over a grid, or compile only."""
        return self.warmup(*args, grid=grid, **kwargs) if warmup else self._run(grid, *args, **kwargs)

    def __getitem__(self, grid: Grid) -> Callable[..., Any]:
        if type(self).run is not _RUN:  # That of a subclass, or of a tool that looks on.
            return functools.partial(self.run, grid=grid, warmup=False)
        if knobs.watched or self.debug or self.pre_run_hooks or self.is_interpreted:
            return functools.partial(self._run, grid)
        if self.fp32_default is _UNASKED and type(grid) is not list:  # Without more calls.
            return Kernel.__getitem__(self, grid)
        return self.launcher(_sizes(grid))

    def launcher(self, grid: Grid) -> Callable[..., Any]:
        if self.fp32_default is not _UNASKED:  # A launcher that is kept must look whether it has changed.
            return functools.partial(self._launch_now, grid)
        return super().launcher(grid)

    def _launch_now(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        return super().launcher(grid)(*args, **kwargs)

    def _run(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch with the hooks and the options of this kernel and of the process. Gives None if a hook does not let
        the kernel be compiled."""
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        kwargs = self.debugged(kwargs)
        sizes = _sizes(grid)
        if self.is_interpreted:
            return hooks.interpreted(functools.partial(self.launch, sizes), args, {**kwargs, "interpret": True})
        try:
            if not knobs.runtime.launch_enter_hook and not knobs.runtime.launch_exit_hook:
                return Kernel.__getitem__(self, sizes)(*args, **kwargs)
            bound, _ = self._bound(args, kwargs)
            sizes = self.sizes(sizes, bound)
            compiled = self._prepared(args, kwargs, is_warmup=False)
        except hooks.NotCompiled:
            return None
        stream = driver.active.get_current_stream(driver.active.get_current_device())
        metadata = compiled.launch_metadata(sizes, stream, *bound.values())
        knobs.runtime.launch_enter_hook(metadata)
        result = Kernel.__getitem__(self, sizes)(*args, **kwargs)
        knobs.runtime.launch_exit_hook(metadata)
        return result

    @public
    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile for arguments without a launch: the compiled kernel, or a future one in `AsyncCompileMode`.

        A dtype of PyTorch stands for a tensor of it. Gives None if a hook does not let the kernel be compiled.
        """
        try:
            kernel = self._prepared(args, kwargs, is_warmup=True)
        except hooks.NotCompiled:
            return None
        mode = active_mode.get()
        if mode is not None:
            return mode.submit(kernel)
        kernel.demand()
        return kernel

    def _prepared(self, args: Sequence[Any], kwargs: Mapping[str, Any], is_warmup: bool) -> CompiledKernel:
        """The kernel for arguments, compiled when it is first needed. Raises `NotCompiled` as `compilation`."""
        bound, launch_options = self._bound(args, self.debugged(kwargs))
        wrapped = {
            name: value if self.by_name[name].is_constexpr else MockTensor.wrap_dtype(value)
            for name, value in bound.items()
        }
        signature, _, _ = self.specialized(wrapped, hooks.any_array)
        return self.compilation(signature, launch_options, is_warmup)

    def debugged(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords of a launch, with `debug=True` if the process, the launch or else the kernel asks for it."""
        option = keywords.get("debug")
        is_debugged = knobs.runtime.debug or (self.debug if option is None else option)
        return {**keywords, **({"debug": True} if is_debugged and "debug" not in self.by_name else {})}

    # Compilations.

    def compilation(
        self,
        signature: KernelSignature,
        launch_options: Mapping[str, Any],
        is_warmup: bool = False,
        target: str | None = None,
    ) -> CompiledKernel:
        """The compiled kernel for types of arguments and options of launches on the current device: the same object
        each time. Raises `NotCompiled` where a hook asks for that."""
        from ziggurat.triton.compiler.compiled_kernel import CompiledKernel

        self.check_globals()
        target = target or hooks.default_target()
        device = driver.active.get_current_device()
        settings = {name: value for name, value in launch_options.items() if name not in LAUNCH_ONLY}
        hashable = {name: value if is_hashable(value) else repr(value) for name, value in settings.items()}
        key = (signature, target, device, tuple(sorted(hashable.items(), key=itemgetter(0))))
        kernel = self.compiled.used(key)
        if kernel is None:
            options = self.settings(triton_options.compile_options({"target": target, **settings}))
            kernel = CompiledKernel(self, signature, options, settings)
            if hooks.tell(knobs.runtime.jit_cache_hook, self, kernel, str(key), is_warmup):
                raise hooks.NotCompiled
            self.compiled[key] = kernel
            hooks.tell(knobs.runtime.jit_post_compile_hook, self, kernel, str(key), is_warmup)
        return kernel

    @property
    def device_caches(self) -> DeviceCaches:
        """The compiled kernels, by device."""
        return DeviceCaches(self)

    def compilations(self) -> Iterator[tuple[str, int, CompiledKernel]]:
        """The key, the device and the kernel of each compilation that is kept."""
        from ziggurat.triton.compiler.compiled_kernel import CompiledKernel

        for key, kernel in [*self.compiled.items()]:
            if isinstance(kernel, CompiledKernel):
                yield str(key), key[2], kernel

    def watch(self) -> None:
        super().watch()
        if self.fp32_default is not _UNASKED:
            self._watched += [(look_up, key, look_up(key)) for look_up, key in _FP32_DEFAULT]

    def _compare_globals(self) -> None:
        super()._compare_globals()
        if self.fp32_default not in (_UNASKED, knobs.language.fp32_default):
            self.forget()

    def forget(self) -> None:
        super().forget()
        self.fp32_default, self._used_global_vals = _UNASKED, None

    def preload(self, specialization_data: str) -> CompiledKernel:
        """Compile what a hook of another process was told: see `knobs.runtime.jit_cache_hook`."""
        signature, launch_options = hooks.read_specialization(self, specialization_data)
        kernel = self.compilation(signature, launch_options, is_warmup=True)
        kernel.demand()
        return kernel

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        from ziggurat.frontends.language.signature import active_recorder

        if active_recorder.get() is not None:
            return Function.__call__(self, *arguments, **keywords)
        raise RuntimeError(
            "Cannot call @triton.jit'd outside of the scope of a kernel: a launch gives a grid, "
            f"{self.name}[grid]({', '.join(self.arg_names)})"
        )

    def __repr__(self) -> str:
        return f"JITFunction({self.__module__}:{self.__qualname__})"


_RUN: Final = JITFunction.run


def _without_function(facts: dict[str, Any]) -> JITFunction:
    """The kernel of a pickle that has no function. PyTorch reads and sets its facts, and pickles it again."""
    kernel = JITFunction.__new__(JITFunction)
    vars(kernel).update(facts, __globals__=None, _used_global_vals=None, _hash_lock=threading.RLock())
    return kernel


def _constant(type_: Type) -> Type:
    """The type of an argument whose pointers are not written through."""
    if isinstance(type_, TupleType):
        return attrs.evolve(type_, components=tuple(map(_constant, type_.components)))
    return attrs.evolve(type_, const=True) if isinstance(type_, PtrType) else type_


def _sizes(grid: Any) -> Any:
    """A grid that can be a key."""
    return tuple(cast("list[Any]", grid)) if isinstance(grid, list) else grid


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator of a kernel or a helper function in Triton's Python.

    `do_not_specialize` names parameters, or numbers them, for whose values one kernel is compiled;
    `do_not_specialize_on_alignment` those of which divisibility by 16 is not used. `debug` compiles device assertions
    in. `launch_metadata(grid, metadata, arguments)` gives facts for hooks of launches. `interpret=True`, of Triton 2,
    has the reference interpreter run all launches on arrays in memory.
    """

    def decorate(fn: Callable[..., Any]) -> JITFunction:
        assert callable(fn)
        return JITFunction(fn, **options)

    return decorate if fn is None else decorate(fn)


def native_specialize_impl(
    backend: Any, arg: Any, is_const: bool, specialize_value: bool, align: bool
) -> tuple[Any, Any]:
    """The type of an argument in a signature, and "D" if it is divisible by 16, or the value of a constant; of a tuple,
    those of its parts, which are always specialized."""
    from ziggurat.triton.compiler.signatures import type_text

    if is_tuple_of_arguments(arg):
        results = [native_specialize_impl(backend, part, False, True, True) for part in arg]
        types, keys = ([result[place] for result in results] for place in (0, 1))
        return (type(arg)(*types), type(arg)(*keys)) if hasattr(arg, "_fields") else (tuple(types), tuple(keys))
    kernel = JITFunction(_argument, None, () if specialize_value else ("x",), () if align else ("x",))
    signature = kernel.specialized({"x": arg}, hooks.any_array)[0]
    text = type_text(_constant(signature.types[0]) if is_const else signature.types[0])
    if text == "constexpr":
        return text, arg
    return text, "D" if any(by % 16 == 0 for by in signature.divisibility) else None


def serialize_specialization_data(
    name: str, signature: Any, constants: Mapping[Any, Any], attrs: Mapping[Any, Any], options: Any, key: str,
    target: Any = None,
) -> str:  # fmt: skip
    """The facts of a compilation as JSON, for programs that keep them. Hooks are given those of `preload`."""
    import json

    values = [
        {"constexpr": value.value}
        if isinstance(value, constexpr)
        else str(value)
        if isinstance(value, dtype)
        else value
        for value in constants.values()
    ]
    return json.dumps(
        {
            "name": name, "signature": signature, "constant_keys": [[*key] for key in constants],
            "constant_vals": values, "attrs_keys": [[*key] for key in attrs], "attrs_vals": [*attrs.values()],
            "options": vars(options), "key": key, "target": target if target is None else str(target),
        }
    )  # fmt: skip


# Functions of Triton 2, which programs call for the machine.
def get_current_device() -> int:
    """The number of the current device."""
    return driver.active.get_current_device()


def set_current_device(idx: int) -> None:
    """Make a device the current one."""
    driver.active.set_current_device(idx)


def get_device_capability(idx: int | None = None) -> tuple[int, int]:
    """The compute capability of a device."""
    return driver.active.get_device_capability(idx)


def get_cuda_stream(idx: int | None = None) -> int:
    """The address of the current stream of a device."""
    return driver.active.get_current_stream(idx)


def get_full_name(fn: Any) -> str:
    """The module and the qualified name of a function."""
    return f"{fn.__module__}.{fn.__qualname__}"


def get_jit_fn_file_line(fn: JITFunction) -> tuple[str, int]:
    """The file of a kernel, and the line of its `def`."""
    return fn.file_name, fn.def_file_line_number


def mangle_type(arg: Any, specialize: bool = False) -> Any:
    """The type of an argument in a signature: `*fp32`, `i32`, `constexpr`."""
    return native_specialize_impl(None, arg, False, specialize, True)[0]


def compute_cache_key(kernel_key_cache: dict[Any, str], specialization: Sequence[Any], options: Any) -> str:
    """The text under which a kernel is kept for types and options, and the sources of functions among them."""

    def keyed(item: Any) -> Any:
        if isinstance(item, (tuple, list)):
            parts = map(keyed, cast("list[Any]", item))
            return type(item)(*parts) if hasattr(item, "_fields") else type(item)(parts)  # pyright: ignore
        return item.cache_key if isinstance(item, JITFunction) else item

    key = (tuple(specialization), str(options))
    if key not in kernel_key_cache:
        kernel_key_cache[key] = str(keyed(specialization)) + str(options)
    return kernel_key_cache[key]


def _argument(x: Any) -> None:
    """The kernel of an argument alone, for `mangle_type`."""


__all__ = [
    "ConstexprFunction", "JITCallable", "JITFunction", "JitFunctionInfo", "KernelInterface", "KernelParam",
    "MockTensor", "TensorWrapper", "compute_cache_key", "constexpr_function", "get_cuda_stream", "get_current_device",
    "get_device_capability", "get_full_name", "get_jit_fn_file_line", "jit", "mangle_type", "native_specialize_impl",
    "reinterpret", "serialize_specialization_data", "set_current_device", "type_canonicalisation_dict",
]  # fmt: skip
