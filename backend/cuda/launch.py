"""Launches: `Dispatcher` compiles a kernel for its arguments, `Launcher` takes a compiled one."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

import attrs

from ziggurat.backend.cuda.binary import POINTER, TENSOR_MAP, Binary
from ziggurat.backend.cuda.loaded import DriverCode, Loaded
from ziggurat.backend.cuda.native_launch import Plans
from ziggurat.backend.cuda.packing import fitted
from ziggurat.backend.cuda.routes import Route
from ziggurat.backend.cuda.specialize import MISSING, KernelParameter, Kind, RunTime, Specialization, described, kind_of
from ziggurat.backend.devices import driver
from ziggurat.backend.devices.failures import failure
from ziggurat.backend.launch.arrays import HostArrayError, number_type
from ziggurat.backend.launch.descriptors import TensorDescriptor, check_disjoint
from ziggurat.backend.launch.device_arrays import ON_GPU, device_in_use, device_of, reader_of, stream_in_use, view
from ziggurat.backend.launch.grids import MAX_LAUNCHERS, computed_grid, gpu_sizes, is_exact
from ziggurat.codemodel.errors import LaunchError, ZigguratError, shown
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.messages import Phrase
from ziggurat.codemodel.recent import Recent
from ziggurat.codemodel.types import SCALARS, ScalarType, u64

Grid = int | tuple[int, ...] | Callable[[dict[str, Any]], "int | tuple[int, ...]"]


class Launched(Protocol):
    """A kernel as a `Dispatcher` launches it. The methods with a body are those of a kernel that is compiled already.

    `place` is its place in its source, for errors. `launchers` has its launches by grid, where a kernel may look first,
    and `compiled` its code by the specialization.
    """

    name: str
    place: Location | None = None
    parameters: Sequence[KernelParameter]
    launchers: Recent[Any, Callable[..., Any]]
    compiled: Recent[Any, Any]
    runs_on_host: bool = False

    def built(self, spec: Specialization, /) -> Binary:
        """The kernel compiled for arguments and options of a launch."""
        ...

    def check_options(self, options: dict[str, Any], /) -> None:
        """Raise the error of an unknown option of a launch: of a keyword that is no parameter."""

    def launched(self, spec: Specialization, loaded: Loaded, /) -> Any:
        """The result of launches."""

    def argument(self, value: Any, /) -> Any:
        """The value that the kernel is given for an argument of a launch."""
        return value

    def explained(self, error: ZigguratError, /) -> ZigguratError:
        """The error that is raised for one of a launch."""
        return error

    def on_host(self, grid: Any, arguments: dict[str, Any], options: dict[str, Any], /) -> Any:
        """Run the kernel on arrays in memory, if it `runs_on_host`."""

    def sanitized(self, grid: Any, arguments: dict[str, Any], options: dict[str, Any], /) -> Any:
        """Launch the kernel with the option `sanitize`, if it `runs_on_host`."""

    def spread(self, values: tuple[Any, ...], /) -> tuple[Any, Callable[[], Launched], list[Any]] | None:
        """For arguments with tuples among them: their shape, the kernel that takes each component as an argument, and
        the components. None for a kernel that takes no tuples."""
        return None


def start(loaded: Loaded, sizes: tuple[int, int, int], slot: Sequence[Any], stream: Any, check: bool) -> None:
    """Launch, and raise the error for a status of the driver. `check` waits for the end, so that a fault is known to be
    this kernel's. `slot` has the buffer of the arguments, and the address of the pointers into it."""
    if 0 in sizes:
        return
    binary = loaded.binary
    status = loaded.launch(loaded.function, *sizes, binary.threads, 1, 1, binary.shared, stream, slot[1], 0)[0]
    if status:
        if status.name == "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES":
            raise loaded.too_large()
        raise failure(status.name, f"launching over a grid of {sizes}", binary.title)
    if check:
        driver.synchronize(binary.title)


def devices_of(arguments: Iterable[tuple[str, Any]]) -> dict[int, str]:
    """The devices of the arrays and descriptors among named values, each with one of the names.

    Raises `LaunchError` for an array that cannot be read.
    """
    devices: dict[int, str] = {}
    for name, value in arguments:
        if isinstance(value, TensorDescriptor):
            number = value.device
        elif value is None or reader_of(value) is None:
            continue
        else:
            number = device_of(view(value, name))
        if number is not None:
            devices.setdefault(number, name)
    return devices


def stream_of(values: Iterable[Any], device: int | None) -> int:
    """The address of the stream that arrays are launched on unless a launch names one: their library's current one."""
    arrays = (value.array if isinstance(value, TensorDescriptor) else value for value in values if value is not None)
    readers = [reader for reader in map(reader_of, arrays) if reader is not None]
    reader = next((reader for reader in readers if reader.streams), readers[0] if readers else None)
    return stream_in_use(device) if reader is None else reader.stream()(device)


_DESCRIBE = Phrase(
    zg="describe an array there: zg.TensorDescriptor(zg.to_device({name}), …)",
    tl="describe an array there: TensorDescriptor.from_tensor({name}.cuda(), …)",
)
_MOVE = Phrase(
    zg="move one: zg.to_device({name}.numpy(), device={device}), or {name}.to('cuda:{device}') of torch",
    tl="move one: {name}.to('cuda:{device}') of torch",
)


def one_device(arrays: Mapping[int, str], kernel: str) -> int | None:
    """The device of all arrays of a launch, given the name of one on each device; None if no array names its device.

    Raises `LaunchError` if there are several.
    """
    if len(arrays) > 1:
        (first, a), (second, b) = list(arrays.items())[:2]
        raise LaunchError(
            f"the arrays of '{kernel}' are on several devices: '{a}' on {first}, '{b}' on {second}",
            hint=_MOVE(name=b, device=first),
        )
    return next(iter(arrays), None)


class Dispatcher:
    """Launches a kernel, compiling it for the arguments it is given.

        dispatcher = Dispatcher(kernel)
        dispatcher.at(grid)(x, y, out, n, BLOCK=1024, num_warps=4)

    The `Specialization` that the kernel is compiled for has the options of the launch: all keywords that are no
    parameters, except `stream` and `check`. `check=True` waits for each launch, so that a fault is reported as this
    kernel's.
    """

    def __init__(self, kernel: Launched) -> None:
        self.kernel = kernel
        self.name = kernel.name
        self.parameters = tuple(kernel.parameters)
        # The routes by the kinds of the arguments. Those of the components of tuples are in a dispatcher for the shape.
        self._routes: dict[Any, Route | Dispatcher] = {}
        self._compiling = threading.RLock()
        # Makes launches over a grid by the route of the last arguments of new kinds. A route passes other arguments on.
        self._hot: Callable[[Any, Any, Any], Callable[..., Any]] = functools.partial(functools.partial, self._bind)
        self._plans: Plans | None = None  # Those of the same route.

    def at(self, grid: Grid) -> Callable[..., Any]:
        """The kernel over a grid, to be called with its arguments."""
        try:
            launcher = self.kernel.launchers.get(grid)
        except TypeError:  # A list.
            launcher = None
        if launcher is not None and is_exact(grid):
            return launcher
        if callable(grid):
            return self._hot(grid, None, None)
        launch = self._hot(*gpu_sizes(grid, self.name))
        if isinstance(grid, tuple):
            self.kernel.launchers[grid] = launch
        return launch

    def specialization(
        self, values: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[Launched, tuple[Any, ...], Specialization]:
        """The kernel that a launch with arguments in the order of the parameters, and options, runs; its arguments,
        without tuples; and the specialization for them."""
        values = self._complete(values, ())
        spread = self._spread(values)
        if spread is not None:
            return self._dispatcher_of(*spread[:2]).specialization(tuple(spread[2]), options)
        kinds = tuple(kind_of(v, p, self.name) for v, p in zip(values, self.parameters, strict=True))
        with driver.on_device(self._device_of(values)):
            return self.kernel, values, self._specialization(values, kinds, options)

    def _spread(self, values: tuple[Any, ...]) -> tuple[Any, Callable[[], Launched], list[Any]] | None:
        """The result of `spread` for arguments with tuples; None where there are none."""
        if any(isinstance(v, (tuple, list)) and not p.constexpr for v, p in zip(values, self.parameters, strict=True)):
            return self.kernel.spread(values)
        return None

    def _bind(self, x: Any, y: Any, z: Any, /, *arguments: Any, **keywords: Any) -> Any:
        names = [parameter.name for parameter in self.parameters]
        bound = dict(zip(names, arguments, strict=False))
        options = {name: value for name, value in keywords.items() if name not in names}
        twice = [name for name in keywords if name in bound]
        if twice:
            raise LaunchError(f"'{self.name}' got '{twice[0]}' twice")
        bound.update({name: value for name, value in keywords.items() if name in names})
        values = tuple(bound.get(parameter.name, parameter.default) for parameter in self.parameters)
        return self._generic(x, y, z, values, arguments[len(names) :], options, None, None)

    def _generic(
        self,
        x: Any,
        y: Any,
        z: Any,
        values: tuple[Any, ...],
        more: tuple[Any, ...],
        options: dict[str, Any],
        stream: Any,
        previous: Route | None,
    ) -> Any:
        """Launch with any arguments: find or make their route and their kernel. `previous` is a route that does not
        know them, or could not launch them: for an empty grid, a value that it cannot write, another context, or a
        status of the driver. Nothing was launched then: the slow path meets the same error, and explains it."""
        # A dict, extern_libs={"libdevice": path}, becomes a tuple, which a key can hold.
        options = {
            name: tuple(cast("dict[str, Any]", x).items()) if type(x) is dict else x for name, x in options.items()
        }
        values = self._complete(values, more)
        if options.get("sanitize") and self.kernel.runs_on_host:
            return self.kernel.sanitized(x if y is None else (x, y, z), self._named(values), options)
        spread = self._spread(values)
        if spread is not None:
            grid = computed_grid(x, self.name, self._named(values)) if y is None else (x, y, z)
            keywords = options if stream is None else {**options, "stream": stream}
            return self._dispatcher_of(*spread[:2]).at(grid)(*spread[2], **keywords)
        stream = options.pop("stream", stream)
        kinds = tuple(kind_of(v, p, self.name) for v, p in zip(values, self.parameters, strict=True))
        if any(kind.way == "host" for kind in kinds):
            return self._run_on_host(x if y is None else (x, y, z), values, kinds, options)
        route = self._routes.get(kinds)
        if not isinstance(route, Route):
            route = self._routes[kinds] = Route(self.parameters, kinds, self._generic)
        if self._hot != route.bound:
            self._hot, self._plans = route.bound, route.plans
            self.kernel.launchers.clear()
        if route is not previous:
            # The route of these kinds may know the arguments, though the launch before had other kinds.
            return route.seek(x, y, z, (), options if stream is None else {**options, "stream": stream}, *values)
        return self._learn(x, y, z, values, options, stream, route)

    def _dispatcher_of(self, shape: Any, kernel: Callable[[], Launched]) -> Dispatcher:
        """The dispatcher of the components of tuples of a shape."""
        dispatcher = self._routes.get(shape)
        if not isinstance(dispatcher, Dispatcher):
            dispatcher = self._routes[shape] = Dispatcher(kernel())
        return dispatcher

    def _learn(
        self, x: Any, y: Any, z: Any, values: tuple[Any, ...], options: dict[str, Any], stream: Any, route: Route
    ) -> Any:
        """Find or make the kernel, launch it, and have the route remember it. The result is that of the launch."""
        self.kernel.check_options(options)
        check = bool(options.pop("check", False))
        device = self._device_of(values)
        with driver.on_device(device) as context:
            spec = self._specialization(values, route.kinds, options)
            sizes = (x, y, z)
            if y is None:
                sizes = gpu_sizes(computed_grid(x, self.name, self._named(values)), self.name)
            try:
                loaded = self._load(spec, int(context))
                if loaded.binary.disjoint:
                    both = zip(spec.arguments, values, strict=True)
                    arguments = {argument.name: value for argument, value in both if isinstance(argument, RunTime)}
                    check_disjoint(loaded.binary.pairs, [*arguments.values()], [*arguments], self.name)
                result = self.kernel.launched(spec, loaded)
                entry = route.learn(values, options, loaded, spec, result)
                on = driver.STREAMS[route.stream(device) if stream is None else driver.stream_address(stream)]
                start(loaded, sizes, route.slot(entry, values), on, check)
                return result
            except ZigguratError as error:
                if error.location is None:
                    error.location = self.kernel.place
                raise self.kernel.explained(error)  # noqa: B904

    def _complete(self, values: tuple[Any, ...], more: tuple[Any, ...]) -> tuple[Any, ...]:
        if more:
            raise LaunchError(
                f"'{self.name}' takes {len(self.parameters)} argument(s); got {len(self.parameters) + len(more)}"
            )
        missing = [p.name for p, value in zip(self.parameters, values, strict=True) if value is MISSING]
        if missing:
            raise LaunchError(f"'{self.name}' needs {', '.join(map(repr, missing))}")
        # A list that is compiled in becomes a tuple, which a key can hold.
        complete = [self.kernel.argument(value) for value in values]
        for place, parameter in enumerate(self.parameters):
            if parameter.constexpr and type(complete[place]) is list:
                complete[place] = tuple(complete[place])
        return tuple(complete)

    def _run_on_host(self, grid: Any, values: tuple[Any, ...], kinds: tuple[Kind, ...], options: dict[str, Any]) -> Any:
        arguments, ways = self._named(values), [kind.way for kind in kinds]
        there = [name for name, way in zip(arguments, ways, strict=True) if way in ("array", "descriptor")]
        if there or not self.kernel.runs_on_host:
            here = list(arguments)[ways.index("host")]
            also, hint = f", as '{there[0]}' is" if there else "", ON_GPU(name=here)
            if isinstance(arguments[here], TensorDescriptor):
                hint = _DESCRIBE(name=f"{here}.array")
            raise HostArrayError(f"'{here}' of '{self.name}' must be on a GPU{also}; it is in memory", hint=hint)
        self.kernel.check_options(options)
        return self.kernel.on_host(grid, arguments, options)

    def _named(self, values: tuple[Any, ...]) -> dict[str, Any]:
        return {parameter.name: value for parameter, value in zip(self.parameters, values, strict=True)}

    def _device_of(self, values: Sequence[Any]) -> int | None:
        """The device of the arrays, or else the one in use; None for that of the current context. Raises `LaunchError`
        if arrays are on several."""
        arguments = ((p.name, v) for p, v in zip(self.parameters, values, strict=True) if not p.constexpr)
        number = one_device(devices_of(arguments), self.name)
        return device_in_use() if number is None else number

    def _specialization(self, values: Sequence[Any], kinds: Sequence[Kind], options: dict[str, Any]) -> Specialization:
        arguments = tuple(map(described, values, kinds, self.parameters))
        return Specialization(arguments, driver.current_device().target, tuple(options.items()))

    def _load(self, spec: Specialization, context: int) -> Loaded:
        """The kernel for a specialization in the current context."""
        compiled = self.kernel.compiled
        code = compiled.used(spec)
        if code is None or context not in code.contexts:
            with self._compiling:  # Threads that need the same kernel wait for the one that compiles it.
                code = compiled.used(spec)
                if code is None:
                    code = compiled[spec] = DriverCode(self.kernel.built(spec))
                plain = attrs.evolve(spec, options=(*spec.options, ("raise_pointers", False)))
                return code.loaded(context, lambda: self._load(plain, context))
        return code.contexts[context]


@attrs.frozen
class BinaryParameter(KernelParameter):
    """A run-time parameter of a binary, of one kind. A pointer takes a number, too: an address."""

    kind: str = POINTER

    def type_of(self, value: Any, owner: str = "") -> ScalarType | None:
        return None if number_type(value, owner) is None else SCALARS.get(self.kind, u64)

    def require(self, value: Any, kind: Kind, kernel: str) -> None:
        """Raise `LaunchError` for an argument that the binary was not compiled for."""
        takes = {POINTER: ("array", "number"), TENSOR_MAP: ("descriptor",)}.get(self.kind, ("number",))
        if kind.way not in takes:
            what = {POINTER: "an array on a GPU", TENSOR_MAP: "a descriptor"}.get(self.kind, f"a number of {self.kind}")
            raise LaunchError(f"'{self.name}' of '{kernel}' must be {what}; got {shown(value)}")
        if kind.way == "number":
            fitted(self.kind, value)


class CodeKernel(Launched):
    """The kernel of a binary, for a `Launcher`."""

    def __init__(self, binary: Binary) -> None:
        kinds = {n: TENSOR_MAP if p.part else p.kind for n, p in zip(binary.arguments, binary.parameters, strict=True)}
        self.name = binary.title
        self.parameters = [BinaryParameter(f"argument_{n}", specialize=False, kind=kinds[n]) for n in sorted(kinds)]
        self.launchers, self.compiled = Recent(MAX_LAUNCHERS), Recent(1)
        self.binary = binary

    def built(self, spec: Specialization, /) -> Binary:
        return self.binary


class Launcher(Dispatcher):
    """Launches a binary: `launcher(grid, …)`, with an argument for each of its run-time parameters."""

    def __init__(self, binary: Binary) -> None:
        super().__init__(CodeKernel(binary))
        self.binary = binary
        self._code = DriverCode(binary)

    def __call__(self, grid: Grid, *arguments: Any, stream: Any = None, check: bool = False) -> None:
        options: dict[str, Any] = {} if stream is None else {"stream": stream}
        self.at(grid)(*arguments, **options, **({"check": True} if check else {}))

    def start(self, x: int, y: int, z: int, stream: Any, arguments: Sequence[Any]) -> None:
        """Launch over three sizes on a stream: by machine code at once, where it knows such arguments."""
        plans = self._plans
        if plans is None or not plans.function or plans.function[0](x, y, z, {}, stream, *arguments) is plans.known:
            self.at((x, y, z))(*arguments, stream=stream)

    def in_context(self) -> Loaded:
        """The kernel in the current context."""
        with self._compiling:
            return self._code.loaded(int(driver.current_context()))

    def _load(self, spec: Specialization, context: int) -> Loaded:
        return self.in_context()

    def _complete(self, values: tuple[Any, ...], more: tuple[Any, ...]) -> tuple[Any, ...]:
        arguments = [value for value in (*values, *more) if value is not MISSING]
        if len(arguments) != len(self.parameters):
            kinds = ", ".join(parameter.kind for parameter in self.binary.parameters)
            raise LaunchError(f"'{self.name}' has the parameters ({kinds}); got {len(arguments)} argument(s)")
        return values

    def _learn(
        self, x: Any, y: Any, z: Any, values: tuple[Any, ...], options: dict[str, Any], stream: Any, route: Route
    ) -> Any:
        for parameter, value, kind in zip(self.parameters, values, route.kinds, strict=True):
            cast("BinaryParameter", parameter).require(value, kind, self.name)
        return super()._learn(x, y, z, values, options, stream, route)
