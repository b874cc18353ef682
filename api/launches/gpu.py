"""Launching kernels on GPUs: what joins a kernel, the compiler, the cache on disk and the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ziggurat.codemodel.gpu.options import LAUNCH_ONLY, SHARED_OPTIONS, CompileOptions, default_of
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import Type
from ziggurat.compiler.compiled import binary_of
from ziggurat.compiler.pipeline import compile_model
from ziggurat.kernels.arguments import Signature as KernelSignature
from ziggurat.kernels.arguments import check_options, constant_of, constexpr_names
from ziggurat.transforms.kit.parameters import specialize

if TYPE_CHECKING:
    from ziggurat.backend.cuda.binary import Binary
    from ziggurat.backend.cuda.launch import Dispatcher, OnHost
    from ziggurat.backend.cuda.specialize import Specialization
    from ziggurat.kernels.kernel import Kernel


def dispatcher_of(kernel: Kernel, on_host: OnHost) -> Dispatcher:
    """What launches a kernel: on the GPU where its arrays are there, by `on_host` where they are not."""
    from ziggurat.backend.cuda.launch import Dispatcher
    from ziggurat.backend.cuda.specialize import MISSING, KernelParameter

    constexprs = constexpr_names(kernel)
    # A constexpr parameter that is named as an option is that option: see `built`.
    options = {name: default_of(name) for name in constexprs.intersection(SHARED_OPTIONS)}
    parameters = [
        KernelParameter(
            name,
            name in constexprs,
            name not in kernel.do_not_specialize,
            options.get(name, MISSING) if parameter.default is parameter.empty else parameter.default,
        )
        for name, parameter in kernel.signature.parameters.items()
    ]
    return Dispatcher(
        kernel.name,
        parameters,
        lambda spec: built(kernel, spec),
        on_host,
        kernel.model.location,
        lambda options: check_options(kernel, options),
    )


def built(kernel: Kernel, spec: Specialization) -> Binary:
    """The kernel compiled for the arguments and options of a launch, or as the cache on disk has it."""
    from ziggurat.backend.cuda.cache import Cache
    from ziggurat.backend.cuda.keys import key
    from ziggurat.backend.cuda.places import placed_as
    from ziggurat.backend.cuda.specialize import Constant

    given: dict[str, Any] = {name: value for name, value in spec.options if name not in LAUNCH_ONLY}
    shared = constexpr_names(kernel).intersection(SHARED_OPTIONS)
    given |= {a.name: a.value for a in spec.arguments if isinstance(a, Constant) and a.name in shared}
    options = CompileOptions.of({**given, "target": spec.target})
    model = model_of(kernel, spec)
    cache = Cache()
    digest = key(model, options)
    binary = cache.get(digest)
    if binary is None:
        binary = binary_of(compile_model(model, options, name=kernel.name), kernel.name)
        cache.put(digest, binary)
        return binary
    return placed_as(model, binary)


def model_of(kernel: Kernel, spec: Specialization) -> Op:
    """The Triton model that is compiled for the arguments of a launch."""
    from ziggurat.backend.cuda.specialize import RunTime

    types: list[Type] = []
    divisibility: list[int] = []
    known: dict[int, int] = {}
    for argument in spec.arguments:
        if isinstance(argument, RunTime):
            types.append(argument.type)
            divisibility.append(argument.divisibility)
        elif argument.type is not None:
            # A run-time parameter with a known value keeps its type: only its value is compiled in.
            known[len(divisibility)] = int(argument.value)
            types.append(argument.type)
            divisibility.append(1)
        else:
            types.append(constant_of(kernel, argument.name, argument.value))
    model = kernel.model_for(KernelSignature(tuple(types), tuple(divisibility)))
    return specialize(model, known)
