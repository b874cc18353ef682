"""The kernels of a library's wheel, without what it depends on: which modules import, and which kernels compile.

    python library.py ours|theirs FOLDER PACKAGE KEEP         one compiler's half of `corpus library`

A module is imported by itself. What it imports and is not installed, or fails without a GPU, is a stand-in that answers
to every name. The types and constants of a kernel's parameters are guessed from its source, and changed one by one as
long as our compiler comes further in the kernel. A guess may be wrong, so Triton compiles the last guess of each kernel
that ours refuses: those that it takes are faults of ours.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import signal
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import stand_in
import variants

LIMIT = 60  # Seconds of the process on a CPU for a compilation.
SEARCH = 12  # For the guesses of a kernel.
_KERNELS = re.compile(r"^\s*@(triton\.)?(jit|autotune|heuristics)\b", re.MULTILINE)
_FLOATS = re.compile(
    r"eps|scale|alpha|beta|theta|dropout|softcap|limit|^p$|momentum|decay|lr$|rate|float|factor|temperature"
)
_POINTERS = re.compile(r"(_|^)(ptrs?|p)$|ptr|^(x|y|q|k|v|o|do|dq|dk|dv|dx|dy|w|dw|out|output|input)$", re.IGNORECASE)
_FLAGS = re.compile(
    "^(has|use|is|with|enable|store|load|apply|do|skip|add|save|return|causal|reverse|trans|need|even|fuse)_?|"
    "_(enabled|flag|causal|contiguous)$|causal|varlen",
    re.IGNORECASE,
)
# The types and constants that are tried in turn.
_POINTER_TYPES = ("*i32", "*fp32", "*bf16", "*u8", "*i64", "i32", "*fp8e4nv", "*i1")
_SCALAR_TYPES = ("i32", "fp32", "*i32", "*fp32", "i64")
_CONSTANTS: tuple[Any, ...] = (
    False, True, 64, 16, 1, 2, 128, None, 4, "ieee", "tf32", "silu", {"dtype": "float32"}, {"dtype": "bfloat16"}, 0,
)  # fmt: skip
_OTHERS = (
    "aiter", "amdsmi", "libtpu", "mori", "sgl_kernel_npu", "tpu_inference", "torch_npu", "torch_xla", "ziggurat",
)  # fmt: skip
_TYPES = re.compile(r"(^|_)d?type$", re.IGNORECASE)


class _Anything:
    """A stand-in for what is not installed: a value, a function, a decorator that changes nothing, or a base class."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.__name__ = self.__qualname__ = "anything"

    def __init_subclass__(cls, **keywords: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        is_decorator = len(arguments) == 1 and callable(arguments[0]) and not isinstance(arguments[0], _Anything)
        return arguments[0] if is_decorator else self

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (_Anything,) if next(base for base in bases if isinstance(base, _Anything)) is self else ()

    def __iter__(self) -> Iterator[Any]:
        return iter((self, self))

    def __int__(self) -> int:
        return 1

    def __exit__(self, *_: Any) -> None: ...

    __index__, __len__ = __int__, __int__
    __enter__ = __getitem__ = __or__ = __ror__ = __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __call__
    __lshift__ = __rshift__ = __and__ = __neg__ = __rsub__ = __truediv__ = __rtruediv__ = __floordiv__ = __call__
    __rfloordiv__ = __mod__ = __pow__ = __rpow__ = __call__
    __gt__ = __ge__ = __lt__ = __le__ = lambda self, other: True


class Stand(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives modules of a library whose sources fail half-way, and stand-ins for those that are not installed."""

    def __init__(self, folder: Path, package: str) -> None:
        self.folder, self.package = folder, package

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        if fullname.partition(".")[0] == self.package:
            return self._own(fullname)
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                with suppress(Exception):
                    if spec := finder.find_spec(fullname, path, target):
                        return spec
        if fullname.partition(".")[0] in ("triton", "torch", *_OTHERS, *sys.stdlib_module_names):
            return None  # What Triton or PyTorch lacks is missing, and so are other makers' devices.
        if not importer().startswith(self.package):
            return None  # What another library looks for has no stand-in.
        return importlib.machinery.ModuleSpec(fullname, _Absent(), is_package=True)

    def _own(self, fullname: str) -> Any:
        place = self.folder.joinpath(*fullname.split("."))
        for file, is_package in ((place / "__init__.py", True), (place.with_suffix(".py"), False)):
            if file.is_file():
                loader = _Partial(fullname, str(file))
                folders = [str(place)] if is_package else None
                return importlib.util.spec_from_file_location(
                    fullname, file, loader=loader, submodule_search_locations=folders
                )
        if place.is_dir():
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(place)]
            return spec
        return importlib.machinery.ModuleSpec(fullname, _Absent(), is_package=True)


def importer() -> str:
    """The name of the module that an import statement is in."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals["__name__"].startswith((__name__, "importlib", "_frozen")):
        frame = frame.f_back
    return "" if frame is None else frame.f_globals["__name__"]


class _Absent(importlib.abc.Loader):
    """The loader of stand-ins for modules."""

    def create_module(self, spec: Any) -> ModuleType:
        module = ModuleType(spec.name)
        answers: dict[str, Any] = {}

        def answer(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return answers.setdefault(name, _Anything())

        module.__getattr__ = answer  # type: ignore[method-assign]
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Partial(importlib.machinery.SourceFileLoader):
    """Keeps a module whose code raises an error half-way, with a stand-in for each name that it then lacks."""

    errors: ClassVar[dict[str, BaseException]] = {}

    def exec_module(self, module: ModuleType) -> None:
        try:
            super().exec_module(module)
        except Exception as error:
            self.errors[module.__name__] = error
            module.__getattr__ = _Absent().create_module(module.__spec__).__getattr__  # type: ignore[method-assign]


def modules_of(folder: Path, package: str) -> Iterator[str]:
    """The modules of a package that have kernels."""
    for file in sorted((folder / package).rglob("*.py")):
        if _KERNELS.search(file.read_text("utf-8", errors="replace")):
            name = ".".join(file.relative_to(folder).with_suffix("").parts)
            yield name.removesuffix(".__init__")


def unwrapped(value: Any) -> tuple[Any, dict[str, Any]]:
    """The function of a kernel without its decorators, and the constants of its first configuration."""
    constants: dict[str, Any] = {}
    for _ in range(9):
        if type(value).__name__ in ("JITFunction", "GluonJITFunction"):
            return value, constants
        configs = getattr(value, "configs", None)
        if isinstance(configs, list) and configs and not constants:
            constants = dict(getattr(configs[0], "kwargs", {}))
        value = getattr(value, "fn", None)
    return None, {}


def guess(function: Any, constants: dict[str, Any]) -> variants.Variant | None:
    """A variant of a kernel; None for a function that is no kernel of its own, or takes descriptors."""
    tree: Any = ast.parse(textwrap.dedent(function.src)).body[0]
    if any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(tree)):
        return None
    callees = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    if any(f"{name}.{method}" in callees for name in function.arg_names for method in ("load", "store", "gather")):
        return None
    pointers = pointers_of(function, tree)
    signature: dict[str, str] = {}
    values: dict[str, Any] = {}
    for parameter in function.params:
        name = parameter.name
        if parameter.is_constexpr or name in constants:
            signature[name] = "constexpr"
            default = parameter.default if parameter.has_default else constants.get(name)
            values[name] = constants.get(name, constant_of(name) if default is None else default)
        elif name in pointers:
            signature[name] = "*i32" if re.search(r"idx|ind|index|loc|lens|table|offset|seq|ids", name) else "*fp32"
        else:
            signature[name] = "fp32" if _FLOATS.search(name) and "stride" not in name else "i32"
    try:
        texts = {name: variants.written(value) for name, value in values.items()}
    except TypeError:
        return None
    return {
        "module": function.fn.__module__, "kernel": function.fn.__qualname__, "file": function.fn.__code__.co_filename,
        "signature": signature, "constants": texts, "divisible": [], "options": {"num_warps": 4},
    }  # fmt: skip


def pointers_of(function: Any, tree: Any, depth: int = 0) -> set[str]:
    """The parameters that an access adds offsets to, also in functions that are called with them."""
    start: dict[str, set[str]] = {}
    names = {name for name in function.arg_names if _POINTERS.search(name)}

    def leftmost(node: Any) -> Any:
        """The name that a sum, or a chain of methods, begins with."""
        while not isinstance(node, ast.Name):
            match node:
                case ast.BinOp(left=inner) | ast.Subscript(value=inner) | ast.Attribute(value=inner):
                    node = inner
                case ast.Call(func=ast.Attribute(value=inner)):
                    node = inner
                case _:
                    return None
        return node.id

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (source := leftmost(node.value)):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    start.setdefault(target.id, set()).add(source)

    def mark(name: str | None, behind: frozenset[str] = frozenset()) -> None:
        if name is None or name in behind:
            return
        names.add(name)
        for source in start.get(name, ()):
            mark(source, behind | {name})

    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        words = ast.unparse(node.func).split(".")
        if words[-1] in ("load", "store", "make_block_ptr", "make_tensor_descriptor") or words[-1].startswith(
            "atomic_"
        ):
            if node.args:
                mark(leftmost(node.args[0]))
            for keyword in node.keywords:
                if keyword.arg in ("base", "pointer"):
                    mark(leftmost(keyword.value))
        elif depth < 4 and len(words) == 1:
            callee, _ = unwrapped(function.fn.__globals__.get(words[0]))
            if callee is not None and callee is not function:
                with suppress(Exception):
                    inner = pointers_of(callee, ast.parse(textwrap.dedent(callee.src)).body[0], depth + 1)
                    pairs = [*zip(callee.arg_names, node.args, strict=False)]
                    for name, value in [*pairs, *((k.arg, k.value) for k in node.keywords)]:
                        if name in inner:
                            mark(leftmost(value))
    return names & {*function.arg_names}


def constant_of(name: str) -> Any:
    """The value of a constant by its name."""
    import triton.language as tl

    if _TYPES.search(name):
        return tl.float32
    if _FLAGS.search(name):
        return False
    if re.search(r"ACTIVATION|MODE|FORMAT", name, re.IGNORECASE):
        return None
    if re.search(r"stride", name, re.IGNORECASE):
        return 1
    if re.search(r"eps|scale", name, re.IGNORECASE):
        return 0.5
    if re.search(r"GROUP|STAGES|SPLIT|NUM_|_NUM|^N[A-Z]$", name, re.IGNORECASE):
        return 4
    return 32 if re.search(r"BLOCK.*K|^BK$", name) else 64


def kernels(folder: Path, package: str) -> Iterator[variants.Variant | str]:
    """A guess for each kernel of a library, and a line for each module that does not import."""
    for name in modules_of(folder, package):
        try:
            module = importlib.import_module(name)
        except BaseException as error:
            yield f"{name}: {type(error).__name__}: {error}"
            continue
        if name in _Partial.errors:
            yield f"{name}: {type(_Partial.errors[name]).__name__}: {_Partial.errors[name]}"
        names: set[str] = set()
        for value in [*vars(module).values()]:
            function, constants = unwrapped(value)
            if function is None or function.fn.__module__ != name or function.fn.__qualname__ in names:
                continue
            names.add(function.fn.__qualname__)
            with suppress(Exception):
                if variant := guess(function, constants):
                    yield variant


def attempt(step: Callable[[], Any], seconds: float = LIMIT) -> str:
    """The error of a step; an empty text for none."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        step()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return ""


def improved(variant: variants.Variant) -> tuple[variants.Variant, str]:
    """The guess that our compiler comes furthest with, and its error."""
    import one_compiler

    def model(variant: variants.Variant) -> str:
        return attempt(lambda: one_compiler.kernel_of(variants.source_of(variant), variant["options"]).model, 20)

    error, end = model(variant), time.process_time() + SEARCH
    while error and time.process_time() < end:
        near = sorted(variant["signature"], key=lambda name: not re.search(rf"\b{re.escape(name)}\b", error))
        others = (changed(variant, name, number) for number in range(len(_CONSTANTS)) for name in near)
        for other in filter(None, others):
            now = model(other)
            if not now or place_of(now) > place_of(error):
                variant, error = other, now
                break
            if time.process_time() > end:
                break
        else:
            break
    return variant, error or attempt(
        lambda: one_compiler.compiled_by_us(
            variants.source_of(variant), variant["options"], variants.numbers_of(variant)
        )
    )


def place_of(error: str) -> tuple[int, int]:
    """The line and the column in the kernel that an error names first."""
    places = re.findall(r"at (\d+):(\d+): ", error)
    return (int(places[0][0]), int(places[0][1])) if places else (0, 0)


def changed(variant: variants.Variant, name: str, number: int) -> variants.Variant | None:
    """A guess with another type or constant of one parameter, the one of a number; None for none."""
    type_ = variant["signature"][name]
    field, values = "signature", _POINTER_TYPES if type_.startswith("*") else _SCALAR_TYPES
    if type_ == "constexpr":
        field, values = "constants", _CONSTANTS
    if number >= len(values) or repr(values[number]) == repr(variant[field].get(name)):
        return None
    return {**variant, field: {**variant[field], name: values[number]}}


def by_triton(variant: variants.Variant) -> str:
    """The error of Triton for a guess, from a process of its own: an assertion of C++ ends it."""
    import one_compiler

    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        signal.alarm(2 * LIMIT)
        source = variants.source_of(variant)
        os.write(
            writer,
            attempt(lambda: one_compiler.compiled_by_triton(source, variant["options"])).encode()[:3000] or b"ok",
        )
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read().decode("utf-8", "replace")
    os.waitpid(process, 0)
    return "" if text == "ok" else text or "the process died"


def name_of(variant: variants.Variant) -> str:
    return f"{variant['module']}.{variant['kernel']}"


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The last line for each kernel."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {name_of(entry["variant"]): entry for entry in map(json.loads, lines)}


def report(keep: Path) -> str:
    """The counts of both halves, and the kernels that Triton alone compiles."""
    ours, theirs = read(keep / "ours.jsonl"), read(keep / "theirs.jsonl")
    faults = [name for name, entry in theirs.items() if not entry["error"]]
    succeeded = sum(not entry["error"] for entry in ours.values())
    lines = [
        f"{succeeded} of {len(ours)} kernels compile for sm_90a; of {len(theirs)} others Triton compiles {len(faults)}"
    ]
    return "\n".join(lines + [f"== {name}\n{ours[name]['error']}" for name in faults])


def main(side: str, folder: str, package: str, keep: str) -> None:
    """One compiler's half: ours improves a guess for each kernel, Triton compiles those that ours refuses."""
    warnings.simplefilter("ignore")
    if side == "ours":
        import ziggurat.triton

        ziggurat.triton.install()

    def stop(*_: Any) -> None:
        raise TimeoutError("the limit of time")

    signal.signal(signal.SIGVTALRM, stop)
    stand_in.set_up()
    os.environ.update(TRITON_ALWAYS_COMPILE="1", CUDA_VISIBLE_DEVICES="")
    sys.path.append(folder)
    sys.meta_path.insert(0, Stand(Path(folder), package))
    output = Path(keep) / f"{side}.jsonl"
    output.parent.mkdir(parents=True, exist_ok=True)
    before = read(output)
    if side == "ours":
        guesses = kernels(Path(folder), package)
    else:
        guesses = (entry["variant"] for entry in read(output.with_name("ours.jsonl")).values() if entry["error"])
    with output.open("a", encoding="utf-8") as file:
        for variant in guesses:
            if isinstance(variant, str):
                print(f"does not import: {variant}", flush=True)
            elif name_of(variant) not in before:
                # The second line counts, unless the process dies of the kernel.
                print(json.dumps({"variant": variant, "error": "the process died"}), file=file, flush=True)
                last, error = improved(variant) if side == "ours" else (variant, by_triton(variant))
                print(json.dumps({"variant": last, "error": error}), file=file, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
