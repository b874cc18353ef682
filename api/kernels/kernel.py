"""Kernels: functions under `@zg.kernel`."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, overload

import attrs

from ziggurat import compiler
from ziggurat.backend.launch.grids import MAX_LAUNCHERS, MAX_SPECIALIZATIONS, computed_grid, padded, sizes_of
from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelErrors, KernelTypeError, LaunchError, ZigguratError, warn
from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS, CPU, CompileOptions, default_of
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op, expect, require_argument
from ziggurat.codemodel.passes import Pass
from ziggurat.codemodel.recent import Recent
from ziggurat.codemodel.types import ConstantType, PtrType, ScalarType, TupleType, Type, i1
from ziggurat.frontends.language import Function
from ziggurat.frontends.language.languages import Language
from ziggurat.kernels.arguments import (
    KernelSignature,
    bind,
    bind_types,
    check_options,
    constant_of,
    constexpr_names,
    declared_number,
    divided,
    is_compiled_in,
    is_tuple_of_arguments,
    leaves,
    parts_of,
    require_parameters,
    shared_options,
    signature_of,
)
from ziggurat.kernels.causes import name_arguments
from ziggurat.kernels.models import Models, PythonModels
from ziggurat.kernels.rules import LaunchRules

if TYPE_CHECKING:
    from ziggurat.backend.cuda.launch import Dispatcher
    from ziggurat.backend.cuda.specialize import KernelParameter
    from ziggurat.compiler.compiled import Compiled
    from ziggurat.kernels.own_passes import OwnPass
    from ziggurat.launches.cpu import HostLaunches
    from ziggurat.launches.devices import Device
    from ziggurat.transforms.attribution import Attribution

ReadArray = Callable[[Any, str], "tuple[Any, ScalarType, int] | None"]
Derived = TypeVar("Derived", bound="Kernel")
Grid = int | tuple[int, ...] | Callable[[dict[str, Any]], int | tuple[int, ...]]


class Kernel(Function):
    """A kernel: a function that is run once for each program of a grid.

    `kernel.model` is its Python code model, `kernel.triton(types…)` its Triton code model for argument types, and
    `kernel[grid](arguments…)` runs it.
    """

    make_models: Callable[[Callable[..., Any], Language], Models] = PythonModels
    rules = LaunchRules()
    is_interpreted = False  # Whether the reference interpreter runs all launches on arrays in memory.
    # Called with each launch of any kernel before it: the kernel, the grid, the arguments and the keywords.
    observer: ClassVar[Callable[[Kernel, Grid, Sequence[Any], dict[str, Any]], None] | None] = None
    sanitizers: ClassVar[tuple[str, ...]] = ()  # The option `sanitize` of launches that do not give it.
    # Takes the launches within `with device:` of `zg.devices`, in place of running them.
    queue: ClassVar[Device | None] = None

    def __init__(self, fn: Callable[..., Any], do_not_specialize: Iterable[str] = ()) -> None:
        # A stub in the place of a Python function brings its own models.
        self.models: Models = getattr(fn, "ziggurat_models", None) or self.make_models(fn, self.language)
        super().__init__(fn, self._python)
        require_argument(do_not_specialize, Iterable, "zg.kernel: 'do_not_specialize' must be names of parameters")
        names = [do_not_specialize] if isinstance(do_not_specialize, str) else [*do_not_specialize]
        if names:
            require_parameters(self, names, "do_not_specialize")
        self.do_not_specialize: Collection[str] = frozenset(names)
        # The tables of a kernel: its models by signature; its code by what a launch compiles it for; and launchers by
        # grid, which later launches call directly. Its routes are those of the dispatcher and of native launches.
        self._models: Recent[KernelSignature, core.Module] = Recent(MAX_SPECIALIZATIONS)
        self.compiled: Recent[Any, Any] = Recent(MAX_SPECIALIZATIONS)
        self.launchers: Recent[Any, Callable[..., Any]] = Recent(MAX_LAUNCHERS)
        self._since_collection = 0  # The number of models that were made.
        self.passes: tuple[OwnPass, ...] = ()
        self._plain: Self | None = None  # The kernel without passes, of one that has some.
        self._native: HostLaunches | None = None  # Made at the first launch of native code.
        self._reset()

    def _reset(self) -> None:
        """Forget the launches, and what they have left for later ones."""
        self._dispatcher: Dispatcher | None = None  # Made at the first launch on a GPU.
        if self._native is not None:
            self._native.forget()
        self.compiled.clear()
        self._launch_by(self._early)

    def _launch_by(self, at: Callable[[Grid], Callable[..., Any]]) -> None:
        """Have a function make the launcher for a grid. Launchers that another function made are forgotten."""
        self.launchers.clear()
        # Other launchers would not call `launch`.
        self._at = at if Kernel.observer is None and not Kernel.sanitizers else self._early

    @public
    def with_passes(self, *passes: Pass | tuple[str, Pass], at: str = "triton") -> Self:
        """This kernel with passes of one's own on its models: launches, tuning, gradients, operators of array libraries
        and compilations for GPUs and CPUs are of the models after them.

            checked = scale.with_passes(assert_finite)

        A pass is a function from model to model, or a pair of its name and it; those that a kernel has already run
        before. `at` is the place: "triton", on the Triton model, whose kernel keeps its parameters; "python", on the
        Python model of a kernel that is a Python function; or on the way to a GPU, the name of a phase, after which it
        runs, or of one of its passes, "schedule.expand" (docs/design/002-the-lower-half.md has them). A pass there is
        of code for GPUs and of the simulator; a launch on arrays in memory warns of it. The gradient of a kernel has
        it as well. Each result is verified. Code is kept on disk by the model after the passes, and by the later
        passes; choices of tuning by the code of the passes and what they name. Neither is kept for a pass that refers
        to objects of which not all is known.

        Raises `LaunchError` for another place, and `KernelTypeError` for what is no function. When a model is made, the
        errors of the passes are raised, `VerifyError` for a result that breaks invariants, and `KernelTypeError` for
        other parameters.
        """
        from ziggurat.kernels.own_passes import OwnPass

        own = tuple(OwnPass.of(argument, at) for argument in passes)
        if at == "python" and own and not isinstance(self.models, PythonModels):
            raise LaunchError(f"'{self.name}' is no Python function; got at='python'", hint="at='triton'")
        kernel = object.__new__(type(self))
        vars(kernel).update(vars(self))
        kernel._make_model, kernel._plain = kernel._python, self._plain or self
        kernel.passes = (*self.passes, *own)
        kernel._models, kernel.compiled = Recent(self._models.limit), Recent(self.compiled.limit)
        kernel.launchers, kernel._native = Recent(MAX_LAUNCHERS), None
        kernel.forget()
        return kernel

    def settings(self, options: CompileOptions) -> CompileOptions:
        """Options of compilation, with the passes of the kernel on the way to a GPU."""
        later = tuple(own for own in self.passes if own.is_later)
        if not later:
            return options
        from ziggurat.kernels.own_passes import OwnOptions

        fields = {name: getattr(options, name) for name in COMPILE_OPTIONS}
        return OwnOptions(**fields, own=later, kernel=self.name, place=self.place)

    def _warn_of_later_passes(self) -> None:
        for own in self.passes:
            if own.is_later:
                place = f"'{own.at}', on the way to a GPU"
                warn(f"'{self.name}' runs here without its pass '{own.name}', which is at {place}", self.place)

    def with_later_passes(self, kernel: Derived) -> Derived:
        """Another kernel with the passes that this one has on the way to a GPU."""
        for own in self.passes:
            if own.is_later:
                kernel = kernel.with_passes((own.name, own.function), at=own.at)
        return kernel

    def _python(self, kernel: Function) -> Op:
        """A new Python model. Raises `LaunchError` where a kernel that it calls has passes on a later model."""
        model = self._after_passes(self.models.python(self), "python")
        for callee in self.callees.values():
            if isinstance(callee, Kernel) and any(own.at != "python" for own in callee.passes):
                raise LaunchError(
                    f"'{self.name}' calls '{callee.name}', whose passes are of launches of it alone",
                    hint=f"call the kernel without passes, and launch {self.name}.with_passes(…)",
                )
        return model

    def _after_passes(self, model: Op, at: str) -> Op:
        """A new model of the kernel after its passes at this tier."""
        for own in self.passes:
            if own.at == at:
                place = model.location if at == "python" else self.place  # That of the model, which is being made.
                model = own.result(self.name, place, model)
        return model

    @property
    def identity(self) -> str | None:
        """A text that is equal for equal kernels with equal passes, in any process; None where there is none."""
        passes = [own.identity for own in self.passes]
        return None if None in passes else " ".join([self.models.identity(self), *map(str, passes)])

    def __reduce__(self) -> Any:
        if not self.passes:
            return super().__reduce__()
        from ziggurat.kernels.own_passes import derived

        return derived, (self._plain, self.passes)

    @property
    def module(self) -> core.Module:
        """The Python code models of the kernel and of the functions it reaches, in one module, callees first."""
        return self.models.module(self)

    @property
    def place(self) -> Location | None:
        """The place of the kernel in its source."""
        return self.models.place(self)

    @public
    def attribution(self, /, *arguments: Any, **keywords: Any) -> Attribution:
        """The type of each value of the Python model for these arguments. Its `str` is the model with the types."""
        types = signature_of(self, arguments, keywords).types
        with no_faults("attributing", lambda: self.model, self.name):
            return self.models.attribution(self, types)

    @public
    def triton(self, /, *arguments: Any, **keywords: Any) -> core.Module:
        """The Triton code model for argument types: `zg.i32`, `zg.ptr(zg.f32)`, `zg.divisible(zg.i32, 16)`.

        A constexpr parameter takes its value. Any other parameter takes a type, or a value, which is then compiled in.
        Models are cached: the same arguments give the same model. Raises `LaunchError` when the arguments do not fit
        the parameters, and the errors of the kernel.
        """
        return self.model_for(signature_of(self, arguments, keywords))

    @public
    def compile(self, /, *arguments: Any, **keywords: Any) -> Compiled:
        """The kernel compiled for a target and the arguments that `triton` takes; see `zg.compile`. No GPU is needed.

        Keywords are the parameters' names, and the options of compilation: `target`, `num_warps` … A keyword
        that is both goes to the parameter. A constexpr parameter with the name of an option other than `target` also
        sets that option; for any other parameter, the option keeps its default.
        """
        own, options = divided(self, keywords)
        check_options(self, options, COMPILE_OPTIONS)
        bound = bind_types(self, arguments, own)
        return self.compiled_for(signature_of(self, (), bound), bound, options)

    def compiled_for(
        self,
        signature: KernelSignature,
        bound: Mapping[str, Any],
        options: Mapping[str, Any],
        constants: Mapping[int, int] | None = None,
    ) -> Compiled:
        """The kernel compiled for `signature`, which must be the signature of `bound`, the arguments by name.
        `constants` has the values of run-time arguments, by number, that are compiled in."""
        settings = self.settings(CompileOptions.of({**options, **{name: bound[name] for name in shared_options(self)}}))
        model: Op = self.model_for(attrs.evolve(signature, num_warps=settings.num_warps))
        python = self.models.python_for(self, signature.types)
        if constants:
            from ziggurat.transforms.parameters import specialize

            model = specialize(model, constants)
        compiled = (
            compiler.compile_for_cpu(model, settings.plain, python, self.name, tolerant=self.rules.tolerant_memory)
            if settings.target == CPU
            else compiler.compile_model(model, settings, python, name=self.name)
        )
        if settings.target == CPU:
            self._warn_of_later_passes()
        typed = zip(self.signature.parameters, signature.types, strict=True)
        names = [name for parameter, type_ in typed for name in run_time_names(parameter, type_)]
        names = [name for number, name in enumerate(names) if number not in (constants or ())]
        arguments = tuple(attrs.evolve(a, name=name) for a, name in zip(compiled.arguments, names, strict=True))
        return attrs.evolve(compiled, name=self.name, arguments=arguments)

    def forget(self) -> None:
        """Forget the models and the code that was compiled from them, whose memory is freed.

        Launchers that were handed out stay usable: the next launch compiles the kernel again.
        """
        super().forget()
        self._models.clear()
        self._reset()

    def known_model(self, signature: KernelSignature) -> core.Module | None:
        """The Triton code model for a signature, if it is kept."""
        return self._models.used(self.models.key(signature))

    def model_for(self, signature: KernelSignature) -> core.Module:
        """The Triton code model for a signature, made once until a global that the kernel reads changes."""
        self.check_globals()
        model = self.known_model(signature)
        if model is None:
            model = expect(self._after_passes(self.models.triton(self, signature), "triton"), core.Module)
            self._models[self.models.key(signature)] = model
            self.watch()
            self._since_collection += 1
            if self._since_collection >= MAX_SPECIALIZATIONS and gc.isenabled():
                self._since_collection = 0
                gc.collect()  # Models that gave way are cycles of old objects.
        return model

    def model_before_passes(self, signature: KernelSignature) -> core.Module:
        """The Triton code model for a signature before the passes of the kernel's own on it."""
        if all(own.at != "triton" for own in self.passes):
            return self.model_for(signature)
        self.check_globals()
        return self.models.triton(self, signature)

    def __getitem__(self, grid: Grid) -> Callable[..., Any]:
        """`kernel[grid](arguments…)` runs the kernel once for each program of the grid.

        `grid` has one to three sizes, or is a function that computes them from a dict of the arguments by name.
        """
        if self._watched:
            self.check_globals()
        if Kernel.queue is not None:
            return functools.partial(self.launch, grid)
        try:
            launcher = self.launchers.get(grid)  # A later launch finds it here, without a call of the dispatcher.
        except TypeError:  # A list cannot be a key.
            launcher = None
        if launcher is not None:
            sizes: Any = grid if type(grid) is tuple else (grid,)
            for size in sizes:  # `is_exact`, without a call.
                if type(size) is not int:
                    return self._at(grid)
            return launcher
        return self._at(grid)

    launcher = __getitem__  # For subclasses, which add to it.

    def _early(self, grid: Grid) -> Callable[..., Any]:
        """The kernel over a grid before its first launch."""
        early: Any = Early()

        def launch(*arguments: Any, **keywords: Any) -> Any:
            result = self.launch(grid, *arguments, **keywords)
            if self._at != self._early:
                early.__call__ = self.launcher(grid)
            return result

        early.__call__ = public(launch)
        return early

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher that launches the kernel on GPUs."""
        if self._dispatcher is None:
            with compiler.compiling:
                from ziggurat.backend.cuda.launch import Dispatcher
                from ziggurat.launches.gpu import GpuKernel

                self._dispatcher = Dispatcher(GpuKernel(self))
        if self._at != self._dispatcher.at:
            self._launch_by(self._dispatcher.at)
        return self._dispatcher

    @property
    def native(self) -> HostLaunches:
        """The launches of the kernel by native code."""
        if self._native is None:
            from ziggurat.launches.cpu import HostLaunches

            self._native = HostLaunches(self)
        if self._at != self._native.at:
            self._launch_by(self._native.at)
        return self._native

    @public
    def launch(self, grid: Grid, /, *arguments: Any, **keywords: Any) -> Any:
        """Run the kernel where its arrays are: on a GPU or here. `kernel[grid](…)` does this."""
        if Kernel.observer is not None:
            Kernel.observer(self, grid, arguments, keywords)
        checks = keywords.get("sanitize", () if Kernel.queue is not None else Kernel.sanitizers)
        if checks and Kernel.queue is not None:
            raise LaunchError(
                "'sanitize' must be left out within `with device:`", hint="races of devices are found without it"
            )
        if checks:
            from ziggurat.sanitizing.launches import launch

            return launch(self, grid, arguments, {**keywords, "sanitize": checks})
        if not self.rules.runs_here(self, leaves((*arguments, *keywords.values()))):
            return self.dispatcher.at(grid)(*arguments, **keywords)
        bound, options = self._bound(arguments, keywords)
        return self.on_host(grid, bound, options, (*[*bound][: len(arguments)], *keywords))

    @public
    def check_arguments(self, /, *arguments: Any, **keywords: Any) -> None:
        """Raise the error of a launch with arguments that no kernel takes."""
        if self.rules.runs_here(self, leaves((*arguments, *keywords.values()))):
            self.specialized(self._bound(arguments, keywords)[0])

    def _bound(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments of a launch by name, and its options."""
        own, options = divided(self, keywords)
        self.rules.check_options(self, options)
        bound = bind(self, arguments, own, at_launch=True)
        return {name: self.rules.argument(value) for name, value in bound.items()}, options

    def on_host(
        self, grid: Grid, bound: dict[str, Any], options: dict[str, Any], explicit: Iterable[str] | None = None
    ) -> Any:
        """Run the kernel on arrays in memory. `explicit` names the arguments that the launch gave, without defaults."""
        self.rules.check_host(self, bound.values(), options)
        if self.passes:
            self._warn_of_later_passes()
        with self.naming(bound):
            if not self.runs_natively(options):
                return self.interpret(grid, bound, options)
            self.check_globals()
            return self.native.launch(grid, bound, options, bound if explicit is None else explicit)

    @contextmanager
    def naming(self, bound: Mapping[str, Any]) -> Generator[None]:
        """Name the arguments of a launch on arrays in memory in an error of types that comes from them."""
        try:
            yield
        except (KernelErrors, KernelTypeError) as error:
            types = self.specialized(bound)[0].types
            name_arguments(error, self.models.python_for(self, types), bound, types)
            raise

    def runs_natively(self, options: Mapping[str, Any]) -> bool:
        """Whether a launch with these options runs native code on arrays in memory."""
        interpret = options.get("interpret")
        if self.is_interpreted or options.get("strict") or (Kernel.queue is not None and not Kernel.queue.is_native):
            return False
        return not (default_of("interpret") if interpret is None else interpret)

    def interpret(self, grid: Grid, bound: dict[str, Any], options: dict[str, Any]) -> Any:
        """Run the kernel by the reference interpreter. With the option `strict`, use of an undefined element and an
        access outside of the arrays are errors; options of compilation have no effect here."""
        from ziggurat.backend.reference.run import run

        strict = bool(options.get("strict", False))
        tolerant = self.rules.tolerant_memory and not strict
        signature, names, values = self.specialized(bound)
        sizes = self.sizes(grid, bound)
        result = self.rules.result(self, signature, options, None)
        if 0 not in sizes:
            if Kernel.queue is not None:
                from ziggurat.backend.reference.devices import QueuedLaunch

                model = self.rules.model(self, signature, options)
                within = functools.partial(self.running, lambda: model)
                Kernel.queue.add(QueuedLaunch(self.name, model, sizes, names, values, strict, tolerant, within))
                return result
            if not strict and self._breaks():
                from ziggurat.debugging.frames import run_with_breakpoints

                with self.running():
                    return run_with_breakpoints(self, padded(sizes), bound, options) or result
            with self.running():
                model = self.rules.model(self, signature, options)
            with self.running(lambda: model):
                run(model, None, sizes, values, names=names, strict=strict, tolerant=tolerant)
        return result

    @contextmanager
    def running(self, model: Callable[[], Op] | None = None) -> Generator[None]:
        """Give the errors of a run their words; with its model, in those of this process as well."""
        try:
            with no_faults("running", model, self.name) if model is not None else nullcontext():
                yield
        except ZigguratError as error:
            raise self.rules.explained(self, error) from error.__cause__

    def _breaks(self) -> bool:
        """Whether the source, or that of a function it calls, says `breakpoint()`."""
        functions: list[Function] = [self]
        for function in functions:
            with suppress(ZigguratError):  # An error in its source is reported with the call.
                _ = function.model  # It has the callees.
            functions += [callee for callee in function.callees.values() if callee not in functions]
        codes = (getattr(function.fn, "__code__", None) for function in functions)
        return any(code is not None and "breakpoint" in code.co_names for code in codes)

    def specialized(
        self, bound: Mapping[str, Any], read: ReadArray | None = None
    ) -> tuple[KernelSignature, list[str], list[Any]]:
        """The signature of a launch on arrays in host memory, and the names and values of the run-time arguments.

        `read` gives an array's value, element type and address, and None for a thing that is no array.
        """
        from ziggurat.backend.launch.arrays import no_argument, number_type, read_array
        from ziggurat.backend.launch.descriptors import TensorDescriptor

        read = read or read_array

        constexprs = constexpr_names(self)
        declarations = self.models.declarations(self, bound)
        divisibility: list[int] = []
        small: list[int] = []
        names: list[str] = []
        values: list[Any] = []

        def type_of(name: str, argument: Any, parameter: KernelParameter) -> Type:
            # None is compiled in: an argument that is left out.
            if name in constexprs or argument is None or is_compiled_in(self, argument):
                return constant_of(self, name, argument)
            if is_tuple_of_arguments(argument):
                parts = tuple(type_of(part, component, parameter) for part, component in parts_of(name, argument))
                return compiler.type_of_tuple(argument, parts)
            type_: Type
            if isinstance(argument, TensorDescriptor):
                value, type_, number = argument, argument.type, argument.row_bytes
            elif (array := read(argument, name)) is not None:
                value, type_, number = array[0], PtrType(array[1]), array[2]
            else:
                scalar = number_type(argument, f"'{name}' of '{self.name}': ")
                if parameter.compiles_in(argument, scalar):
                    return constant_of(self, name, argument)
                if scalar is None:
                    raise no_argument(name, self.name, argument)
                value, type_ = argument, scalar
                if name in declarations:
                    value, type_ = declared_number(self, name, argument, type_, declarations[name])
                number = int(argument) if type_.is_int else 1
                small.extend([len(names)] * (type_.is_int and type_ != i1 and parameter.is_small(number)))
            divisibility.append(1 if type_ == i1 else parameter.divisor(number))
            names.append(name)
            values.append(value)
            return type_

        types = [type_of(name, value, self.rules.parameter(self, name)) for name, value in bound.items()]
        # `type_of` refers to itself, and lives until the garbage collector runs: it must not keep the arrays.
        run_time_values, values = values, []
        return KernelSignature(tuple(types), tuple(divisibility), tuple(small)), names, run_time_values

    def sizes(self, grid: Grid, bound: Mapping[str, Any]) -> tuple[int, ...]:
        """The sizes of the grid for the arguments of a launch."""
        if callable(grid):
            grid = computed_grid(grid, self.name, dict(bound))
        try:
            return sizes_of(grid, self.name)
        except LaunchError as error:
            raise self.rules.explained(self, error) from None

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        raise LaunchError(
            f"'{self.name}' is a kernel, which must be launched over a grid", hint=f"{self.name}[grid](…)"
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            from ziggurat.compiler.compiled import Compiled

            if hasattr(Compiled, name):
                raise AttributeError(f"'{self.name}' must be compiled: {self.name}.compile(types…).{name}")
            return self.__getattribute__(name)  # Its own error.

    def __repr__(self) -> str:
        return f"<kernel {self.written}>"

    def _repr_html_(self) -> str:
        from ziggurat.codemodel.text.html import side_by_side

        try:
            source = self.models.text(self) or inspect.getsource(self.fn)
        except (OSError, TypeError):
            source = repr(self)
        return side_by_side({"source": source, "Python model": self.model})


class Early:
    """A launcher that a kernel gave before its first launch. It is replaced from inside after that: Python looks
    `__call__` up in its slot, which takes less than a call of a function in between."""

    __slots__ = ("__call__",)


def run_time_names(name: str, type_: Type) -> list[str]:
    """The names of the run-time arguments that a parameter of this type takes."""
    if isinstance(type_, TupleType):
        return [n for part, component in parts_of(name, type_.components) for n in run_time_names(part, component)]
    return [] if isinstance(type_, ConstantType) else [name]


@overload
def kernel(fn: Callable[..., Any], /) -> Kernel: ...


@overload
def kernel(*, do_not_specialize: Iterable[str] = ()) -> Callable[[Callable[..., Any]], Kernel]: ...


@overload
def kernel(
    *,
    source: str,
    name: str | None = None,
    namespace: Mapping[str, Any] | None = None,
    do_not_specialize: Iterable[str] = (),
) -> Kernel: ...


def kernel(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    source: str | None = None,
    name: str | None = None,
    namespace: Mapping[str, Any] | None = None,
    do_not_specialize: Iterable[str] = (),
) -> Any:
    """Decorator: make a kernel of a function, which is run once for each program of a grid.

    For the parameters that `do_not_specialize` names, one kernel is compiled for all values: whether a value is
    divisible by 16 is not used.

        double = zg.kernel(source="def double(x): zg.store(x, zg.load(x) * 2)")

    With `source`, it is no decorator: it runs a text of Python and gives the kernel that the text defines, by a `def`
    with or without a decorator, `@triton.jit` among them. `name` says which of several. The text can name `zg`, and
    what `namespace` holds.
    """

    def decorate(fn: Callable[..., Any]) -> Kernel:
        # A decorator below this one may choose the class: see `autotune`.
        return getattr(fn, "ziggurat_wrap", Kernel)(fn, do_not_specialize)

    if source is not None:
        from ziggurat.kernel_texts import kernel_of

        return kernel_of(source, name, namespace or {}, decorate)
    return decorate if fn is None else decorate(fn)
