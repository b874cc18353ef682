"""The key of a compiled kernel: equal for equal models, whatever their sources look like.

Locations do not count, nor the names of variables and of helper functions: comments and renaming lead to no new
compilation. The name of the kernel counts, because it is the symbol that profilers show. The location of an assertion
counts, because the kernel prints it. An option that is given its default counts as one that is not given.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import ziggurat.backend as backend
import ziggurat.codemodel as codemodel
import ziggurat.transforms as transforms
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Block, Op, Value
from ziggurat.codemodel.text.writer import attribute_text


def key(model: Op, options: CompileOptions) -> str:
    """64 hexadecimal digits for a model, the options that its code depends on, and the version of this compiler."""
    digest = hashlib.sha256()
    text = ";".join(f"{name}={attribute_text(value)}" for name, value in options.key)
    digest.update(f"{compiler_version()}\n{text}\n{structure(model)}".encode())
    return digest.hexdigest()


def structure(model: Op) -> str:
    """64 hexadecimal digits for a model alone, the same on every machine."""
    functions = [op.sym_name for op in model.walk() if isinstance(op, tt.Func)]
    callees = {op.callee for op in model.walk() if isinstance(op, tt.Call)}
    helpers = {name: f"helper {number}" for number, name in enumerate(functions) if name in callees}
    lines: list[str] = []
    _write(model, {}, {}, helpers, lines.append)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _write(
    op: Op,
    numbers: dict[Value, int],
    blocks: dict[Block, int],
    helpers: Mapping[str, str],
    write: Callable[[str], None],
) -> None:
    """Write everything that `==` of ops compares, except names, in an order that does not depend on the process."""

    def number(value: Value) -> int:
        return numbers[value] if value in numbers else numbers.setdefault(value, -1 - len(numbers))

    fields = op.__dict__
    if helpers and isinstance(op, tt.Func | tt.Call):
        symbol = "sym_name" if isinstance(op, tt.Func) else "callee"
        fields = {**fields, symbol: helpers.get(fields[symbol], fields[symbol])}
    constants = (
        f"{a.name}={attribute_text(fields[a.name])}"
        for a in op.SPEC.attributes
        if not isinstance(op, core.Var) or a.name != "name"
    )
    targets = ((blocks.get(s.block, -1), [number(value) for value in s.arguments]) for s in op.successors)
    place = op.location if isinstance(op, tt.Assert) else None
    write(
        f"{op.NAME} {op.result.type} {[number(value) for value in op.operands]} {list(targets)} {list(constants)}"
        + (f" {place.file}:{place.line}" if place is not None else "")
    )
    for body in op.bodies:
        for block in body.blocks:
            blocks[block] = len(blocks)
        for block in body.blocks:
            for parameter in block.parameters:
                numbers[parameter] = len(numbers)
            write(f"{{ {body.yield_type} {[str(parameter.type) for parameter in block.parameters]}")
            for inner in block.ops:
                _write(inner, numbers, blocks, helpers, write)
                numbers[inner.result] = len(numbers)
        write("}")


@functools.cache
def compiler_version(*, by_contents: bool = False) -> str:
    """A name for the version of the compiler's sources and of LLVM: by the sizes and times of the files, or by their
    contents, which are equal wherever and whenever they were installed."""
    versions: list[str] = []
    for package in (codemodel, transforms, backend):
        assert package.__file__ is not None
        folder = os.path.dirname(package.__file__)
        above = os.path.dirname(folder)
        for entry in _sources(folder):
            state = entry.stat()
            facts = hashlib.sha256(Path(entry).read_bytes()).hexdigest() if by_contents else state.st_mtime_ns
            versions.append(f"{entry.path.removeprefix(above)} {state.st_size} {facts}")
    digest = hashlib.sha256("\n".join(sorted(versions)).encode()).hexdigest()
    try:
        llvm = importlib.import_module("llvmlite").__version__
    except ImportError:
        llvm = "none"
    return f"llvmlite {llvm} {digest}"


def _sources(folder: str) -> Iterator[os.DirEntry[str]]:
    """The Python files in a folder, at any depth."""
    for entry in os.scandir(folder):
        if entry.name.endswith(".py"):
            yield entry
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from _sources(entry.path)
