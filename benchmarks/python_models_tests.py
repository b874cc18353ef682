"""Run CPython's own tests of modules, each function of which has been made a model and a function again.

    python benchmarks/python_models_tests.py [--interpret [--ssa]] [TEST=MODULE,MODULE …]

A module's functions get the code of their round trip when it is imported, so those that tests import afresh do too.
With `--interpret` the interpreter runs their models instead; with `--ssa`, these lowered to blocks, without variables.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import inspect
import sys
import time
import types
import unittest
from collections.abc import Sequence
from typing import Any

from ziggurat.backend.python.to_function import to_function
from ziggurat.codemodel.interpreted import interpret
from ziggurat.codemodel.ssa import ssa
from ziggurat.codemodel.verify import verify
from ziggurat.frontends.python.reflect import reflect
from ziggurat.transforms.simplify.lower_structured import lower_structured

TESTS = {
    "test_argparse": ("argparse",),
    "test_bisect": ("bisect",),
    "test_calendar": ("calendar",),
    "test_configparser": ("configparser",),
    "test_contextlib": ("contextlib",),
    "test_copy": ("copy",),
    "test_csv": ("csv",),
    "test_dataclasses": ("dataclasses",),
    "test_difflib": ("difflib",),
    "test_enum": ("enum",),
    "test_fractions": ("fractions",),
    "test_functools": ("functools",),
    "test_heapq": ("heapq",),
    "test_json": ("json", "json.decoder", "json.encoder", "json.scanner"),
    "test_pprint": ("pprint",),
    "test_shlex": ("shlex",),
    "test_statistics": ("statistics",),
    "test_string": ("string",),
    "test_textwrap": ("textwrap",),
    "test_tokenize": ("tokenize",),
    "test_typing": ("typing",),
    "test_asyncio.test_queues": ("asyncio.queues", "asyncio.locks", "asyncio.tasks", "asyncio.base_events"),
}

INTERPRET, SSA = "--interpret" in sys.argv, "--ssa" in sys.argv
replaced: set[types.CodeType] = set()
count = failures = 0


def round_trip(function: types.FunctionType) -> types.CodeType:
    """The code of the function that a function's model is."""
    plain = types.FunctionType(function.__code__, function.__globals__, closure=function.__closure__)
    return to_function(reflect(plain), like=plain).__code__


def interpreted(function: types.FunctionType) -> types.CodeType:
    """A code that calls the interpreter on a function's model."""
    code = function.__code__
    plain = types.FunctionType(code, function.__globals__, closure=function.__closure__)
    for field in ("__defaults__", "__kwdefaults__", "__name__", "__qualname__", "__doc__"):
        setattr(plain, field, getattr(function, field))
    model = reflect(plain)
    if SSA:
        model = ssa(lower_structured(model))
        verify(model)

    def call(*arguments: Any, **keywords: Any) -> Any:
        return "the interpreter"(*arguments, **keywords)  # type: ignore[operator]

    def generator(*arguments: Any, **keywords: Any) -> Any:
        return (yield from "the interpreter"(*arguments, **keywords))  # type: ignore[operator]

    async def coroutine(*arguments: Any, **keywords: Any) -> Any:
        return await "the interpreter"(*arguments, **keywords)  # type: ignore[operator]

    call = {"generator": generator, "async": coroutine}.get(model.attributes["kind"], call)
    run = interpret(model, like=plain)
    constants = tuple(run if constant == "the interpreter" else constant for constant in call.__code__.co_consts)
    flags = call.__code__.co_flags | code.co_flags & inspect.CO_ITERABLE_COROUTINE
    names = {
        "co_flags": flags,
        "co_name": code.co_name,
        "co_qualname": code.co_qualname,
        "co_filename": code.co_filename,
    }
    return call.__code__.replace(co_consts=constants, co_freevars=code.co_freevars, **names)  # type: ignore[arg-type]


def replace(file: str) -> None:
    """Give the functions of a file the code of their round trip."""
    global count, failures
    for item in gc.get_objects():
        if isinstance(item, types.FunctionType) and item.__code__.co_filename == file and item.__code__ not in replaced:
            try:
                item.__code__ = (interpreted if INTERPRET else round_trip)(item)
                replaced.add(item.__code__)
                count += 1
            except Exception as error:
                failures += 1
                print(f"  {item.__qualname__}: {type(error).__name__}: {error}", file=sys.stderr)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules as Python does, and replaces their functions after they were loaded."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname not in self.names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            load = spec.loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                load(module)
                replace(module.__file__ or "")

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def main() -> None:
    arguments = [text.partition("=") for text in sys.argv[1:] if not text.startswith("--")]
    tests = {test: tuple(names.split(",")) if names else TESTS[test] for test, _, names in arguments} or TESTS
    sys.meta_path.insert(0, Finder([name for names in tests.values() for name in names]))
    for names in tests.values():
        for name in names:
            module = sys.modules.get(name) or importlib.import_module(name)
            replace(module.__file__ or "")
    print(f"{count} functions replaced, {failures} not")
    for test in tests:
        start = time.perf_counter()
        suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{test}")
        result = unittest.TextTestRunner(stream=open("/dev/null", "w"), verbosity=0).run(suite)  # noqa: SIM115
        bad = [*result.failures, *result.errors]
        seconds = time.perf_counter() - start
        print(f"{test}: {result.testsRun} tests, {len(bad)} failed, {seconds:.1f} s", flush=True)
        for case, text in bad[:8]:
            print("   ", case, "|", text.strip().splitlines()[-1][:160])


if __name__ == "__main__":
    main()
