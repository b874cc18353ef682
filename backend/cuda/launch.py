"""Launches: `Dispatcher` compiles a kernel for its arguments, `Launcher` takes a compiled one."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import attrs

from ziggurat.backend.cuda import driver
from ziggurat.backend.cuda.arrays import device_in_use, device_of, reader_of, stream_in_use, view
from ziggurat.backend.cuda.binary import POINTER, TENSOR_MAP, Binary
from ziggurat.backend.cuda.failures import failure
from ziggurat.backend.cuda.packing import fitted
from ziggurat.backend.cuda.routes import Route
from ziggurat.backend.cuda.specialize import MISSING, KernelParameter, Kind, RunTime, Specialization, described, kind_of
from ziggurat.backend.launch.arrays import HostArrayError, number_type
from ziggurat.backend.launch.descriptors import TensorDescriptor, check_disjoint
from ziggurat.backend.launch.grids import MAX_LAUNCHERS, computed_grid, gpu_sizes, is_exact
from ziggurat.codemodel.errors import LaunchError, ZigguratError, shown
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.recent import Recent
from ziggurat.codemodel.types import SCALARS, ScalarType, u64

Grid = int | tuple[int, ...] | Callable[[dict[str, Any]], "int | tuple[int, ...]"]
Build = Callable[[Specialization], Binary]
OnHost = Callable[[Any, dict[str, Any], dict[str, Any]], Any]
Result = Callable[[Specialization, driver.Loaded], Any]


def start(loaded: driver.Loaded, sizes: tuple[int, int, int], slot: Sequence[Any], stream: Any, check: bool) -> None:
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


def devices_of(given: Iterable[tuple[str, Any]]) -> dict[int, str]:
    """The devices of the arrays and descriptors among named values, each with one of the names.

    Raises `LaunchError` for an array that cannot be read.
    """
    found: dict[int, str] = {}
    for name, value in given:
        if isinstance(value, TensorDescriptor):
            number = value.device
        elif value is None or reader_of(value) is None:
            continue
        else:
            number = device_of(view(value, name))
        if number is not None:
            found.setdefault(number, name)
    return found


def stream_of(given: Iterable[Any], device: int | None) -> int:
    """The address of the stream that arrays are launched on unless a launch names one: their library's current one."""
    readers = [reader_of(v.array if isinstance(v, TensorDescriptor) else v) for v in given if v is not None]
    known = [reader for reader in readers if reader is not None]
    reader = next((reader for reader in known if reader.streams), known[0] if known else None)
    return stream_in_use(device) if reader is None else reader.stream()(device)


def one_device(arrays: Mapping[int, str], kernel: str) -> int | None:
    """The device of all arrays of a launch, given the name of one on each device; None if no array names its device.

    Raises `LaunchError` if there are several.
    """
    if len(arrays) > 1:
        (first, a), (second, b) = list(arrays.items())[:2]
        raise LaunchError(
            f"the arrays of '{kernel}' are on several devices: '{a}' on {first}, '{b}' on {second}",
            hint=f"move one: zg.to_device({b}.numpy(), device={first}), or {b}.to('cuda:{first}') of torch",
        )
    return next(iter(arrays), None)


class Dispatcher:
    """Launches a kernel, compiling it for the arguments it is given.

        dispatcher = Dispatcher("add", parameters, build)
        dispatcher.at(grid)(x, y, out, n, BLOCK=1024, num_warps=4)

    `build` compiles for a `Specialization`, which has the options of the launch: all keywords that are no parameters,
    except `stream` and `check`. `on_host(grid, arguments by name, options)` runs the kernel on arrays in memory, and
    `with_tuples`, called alike, launches with tuples among the arguments. `location` is the kernel's place in its
    source, for errors. `demand_options` raises the error of unknown options. `result` gives what launches of a kernel
    return, and `explained` the error that is raised for one. `check=True` waits for each launch, so that a fault is
    reported as this kernel's.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[KernelParameter],
        build: Build,
        on_host: OnHost | None = None,
        location: Location | None = None,
        demand_options: Callable[[dict[str, Any]], None] = lambda options: None,
        with_tuples: OnHost | None = None,
        result: Result | None = None,
        explained: Callable[[ZigguratError], ZigguratError] = lambda error: error,
    ) -> None:
        self.name = name
        self.location = location
        self.parameters = tuple(parameters)
        self._build = build
        self._on_host = on_host
        self._demand_options = demand_options
        self._with_tuples = with_tuples
        self._result = result
        self._explained = explained
        self._routes: dict[tuple[Kind, ...], Route] = {}
        self._binaries: dict[Specialization, Binary] = {}
        self.loaded: dict[tuple[Specialization, int], driver.Loaded] = {}
        self._compiling = threading.RLock()
        # Makes launches over a grid by the route of the last arguments of new kinds. A route passes other arguments on.
        self._hot: Callable[[Any, Any, Any], Callable[..., Any]] = functools.partial(functools.partial, self._bind)
        # Launches by grid, for `at`, and for kernels, which save a call by looking here first.
        self.known_grids: Recent[Any, Callable[..., Any]] = Recent(MAX_LAUNCHERS)

    def at(self, grid: Grid) -> Callable[..., Any]:
        """The kernel over a grid, to be called with its arguments."""
        try:
            known = self.known_grids.get(grid)
        except TypeError:  # A list.
            known = None
        if known is not None and is_exact(grid):
            return known
        if callable(grid):
            return self._hot(grid, None, None)
        made = self._hot(*gpu_sizes(grid, self.name))
        if isinstance(grid, tuple):
            self.known_grids[grid] = made
        return made

    def specialization(self, values: tuple[Any, ...], options: dict[str, Any]) -> Specialization:
        """The specialization for arguments in the order of the parameters, and options."""
        values = self._complete(values, ())
        kinds = tuple(kind_of(v, p, self.name) for v, p in zip(values, self.parameters, strict=True))
        with driver.on_device(self._device_of(values)):
            return self._specialization(values, kinds, options)

    def offer(self, spec: Specialization, binary: Binary) -> None:
        """Keep a kernel that was compiled elsewhere."""
        self._binaries.setdefault(spec, binary)

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
        tried: Route | None,
    ) -> Any:
        """Launch with any arguments: find or make their route and their kernel. `tried` is a route that does not know
        them, or could not launch them: for an empty grid, a value that it cannot write, another context, or a status of
        the driver. Nothing was launched then, so that the slow path meets the same error, and explains it."""
        # A dict, extern_libs={"libdevice": path}, becomes a tuple, which a key can hold.
        options = {
            name: tuple(cast("dict[str, Any]", x).items()) if type(x) is dict else x for name, x in options.items()
        }
        values = self._complete(values, more)
        if self._with_tuples is not None and any(
            isinstance(v, (tuple, list)) and not p.constexpr for v, p in zip(values, self.parameters, strict=True)
        ):
            given = options if stream is None else {**options, "stream": stream}
            return self._with_tuples(x if y is None else (x, y, z), self._named(values), given)
        stream = options.pop("stream", stream)
        kinds = tuple(kind_of(v, p, self.name) for v, p in zip(values, self.parameters, strict=True))
        if any(kind.way == "host" for kind in kinds):
            return self._run_on_host(x if y is None else (x, y, z), values, kinds, options)
        route = self._routes.get(kinds)
        if route is None:
            route = Route(self.parameters, kinds, self._generic)
            self._routes[kinds] = route
        if self._hot != route.bound:
            self._hot = route.bound
            self.known_grids.clear()
        if route is not tried:
            # The route of these kinds may know the arguments, though the launch before had other kinds.
            return route.seek(x, y, z, (), options if stream is None else {**options, "stream": stream}, *values)
        return self._learn(x, y, z, values, options, stream, route)

    def _learn(
        self, x: Any, y: Any, z: Any, values: tuple[Any, ...], options: dict[str, Any], stream: Any, route: Route
    ) -> Any:
        """Find or make the kernel, launch it, and have the route remember it. The result is that of the launch."""
        self._demand_options(options)
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
                    passed = {a.name: v for a, v in zip(spec.arguments, values, strict=True) if isinstance(a, RunTime)}
                    check_disjoint(loaded.binary.pairs, [*passed.values()], [*passed], self.name)
                result = None if self._result is None else self._result(spec, loaded)
                found = route.learn(values, options, loaded, spec, result)
                on = driver.STREAMS[route.stream(device) if stream is None else driver.stream_address(stream)]
                start(loaded, sizes, route.slot(found, values), on, check)
                return result
            except ZigguratError as error:
                if error.location is None:
                    error.location = self.location
                raise self._explained(error)  # noqa: B904

    def _complete(self, values: tuple[Any, ...], more: tuple[Any, ...]) -> tuple[Any, ...]:
        if more:
            raise LaunchError(
                f"'{self.name}' takes {len(self.parameters)} argument(s); got {len(self.parameters) + len(more)}"
            )
        missing = [p.name for p, value in zip(self.parameters, values, strict=True) if value is MISSING]
        if missing:
            raise LaunchError(f"'{self.name}' needs {', '.join(map(repr, missing))}")
        # A list that is compiled in becomes a tuple, which a key can hold.
        made: list[Any] = list(values)
        for place, parameter in enumerate(self.parameters):
            if parameter.constexpr and type(made[place]) is list:
                made[place] = tuple(made[place])
        return tuple(made)

    def _run_on_host(self, grid: Any, values: tuple[Any, ...], kinds: tuple[Kind, ...], options: dict[str, Any]) -> Any:
        named, ways = self._named(values), [kind.way for kind in kinds]
        there = [name for name, way in zip(named, ways, strict=True) if way in ("array", "descriptor")]
        if there or self._on_host is None:
            here = list(named)[ways.index("host")]
            also, hint = f", as '{there[0]}' is" if there else "", f"zg.to_device({here}), or .cuda() of torch"
            if isinstance(named[here], TensorDescriptor):
                hint = f"describe an array there: zg.TensorDescriptor(zg.to_device({here}.array), …)"
            raise HostArrayError(f"'{here}' of '{self.name}' must be on a GPU{also}; it is in memory", hint=hint)
        self._demand_options(options)
        return self._on_host(grid, named, options)

    def _named(self, values: tuple[Any, ...]) -> dict[str, Any]:
        return {parameter.name: value for parameter, value in zip(self.parameters, values, strict=True)}

    def _device_of(self, values: Sequence[Any]) -> int | None:
        """The device of the arrays, or else the one in use; None for that of the current context. Raises `LaunchError`
        if arrays are on several."""
        given = ((p.name, v) for p, v in zip(self.parameters, values, strict=True) if not p.constexpr)
        number = one_device(devices_of(given), self.name)
        return device_in_use() if number is None else number

    def _specialization(self, values: Sequence[Any], kinds: Sequence[Kind], options: dict[str, Any]) -> Specialization:
        arguments = tuple(map(described, values, kinds, self.parameters))
        return Specialization(arguments, driver.current_device().target, tuple(options.items()))

    def _load(self, spec: Specialization, context: int) -> driver.Loaded:
        loaded = self.loaded.get((spec, context))
        if loaded is None:
            with self._compiling:  # Threads that need the same kernel wait for the one that compiles it.
                loaded = self.loaded.get((spec, context))
                if loaded is None:
                    binary = self._binaries.get(spec)
                    if binary is None:
                        binary = self._binaries[spec] = self._build(spec)
                    plain = attrs.evolve(spec, options=(*spec.options, ("raise_pointers", False)))
                    loaded = driver.load(binary, lambda: self._load(plain, context))
                    self.loaded[spec, context] = loaded
        return loaded


@attrs.frozen
class BinaryParameter(KernelParameter):
    """A run-time parameter of a binary, of one kind. A pointer takes a number, too: an address."""

    kind: str = POINTER

    def type_of(self, value: Any) -> ScalarType | None:
        return None if number_type(value) is None else SCALARS.get(self.kind, u64)

    def require(self, value: Any, kind: Kind, kernel: str) -> None:
        """Raise `LaunchError` for an argument that the binary was not compiled for."""
        takes = {POINTER: ("array", "number"), TENSOR_MAP: ("descriptor",)}.get(self.kind, ("number",))
        if kind.way not in takes:
            what = {POINTER: "an array on a GPU", TENSOR_MAP: "a descriptor"}.get(self.kind, f"a number of {self.kind}")
            raise LaunchError(f"'{self.name}' of '{kernel}' must be {what}; got {shown(value)}")
        if kind.way == "number":
            fitted(self.kind, value)


class Launcher(Dispatcher):
    """Launches a binary: `launcher(grid, …)`, with an argument for each of its run-time parameters."""

    def __init__(self, binary: Binary) -> None:
        kinds = {n: TENSOR_MAP if p.part else p.kind for n, p in zip(binary.arguments, binary.parameters, strict=True)}
        parameters = [BinaryParameter(f"argument_{n}", specialize=False, kind=kinds[n]) for n in sorted(kinds)]
        super().__init__(binary.title, parameters, lambda spec: binary)
        self.binary = binary
        self._in_contexts: dict[int, driver.Loaded] = {}

    def __call__(self, grid: Grid, *arguments: Any, stream: Any = None, check: bool = False) -> None:
        options: dict[str, Any] = {} if stream is None else {"stream": stream}
        self.at(grid)(*arguments, **options, **({"check": True} if check else {}))

    def in_context(self) -> driver.Loaded:
        """The kernel in the current context."""
        context = int(driver.current_context())
        with self._compiling:
            if context not in self._in_contexts:
                self._in_contexts[context] = driver.load(self.binary)
        return self._in_contexts[context]

    def _load(self, spec: Specialization, context: int) -> driver.Loaded:
        return self.in_context()

    def _complete(self, values: tuple[Any, ...], more: tuple[Any, ...]) -> tuple[Any, ...]:
        given = [value for value in (*values, *more) if value is not MISSING]
        if len(given) != len(self.parameters):
            kinds = ", ".join(parameter.kind for parameter in self.binary.parameters)
            raise LaunchError(f"'{self.name}' has the parameters ({kinds}); got {len(given)} argument(s)")
        return values

    def _learn(
        self, x: Any, y: Any, z: Any, values: tuple[Any, ...], options: dict[str, Any], stream: Any, route: Route
    ) -> Any:
        for parameter, value, kind in zip(self.parameters, values, route.kinds, strict=True):
            cast("BinaryParameter", parameter).require(value, kind, self.name)
        return super()._learn(x, y, z, values, options, stream, route)
