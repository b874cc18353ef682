"""Reflect every function of the pure-Python standard library, and bring it back.

    python benchmarks/python_models.py [--back] [MODULE …]

For each function: the model is made, verified, printed, parsed and compared; with `--back`, made a function again,
whose code is compared with that of the original but for line numbers. Prints the shares, and the failures by kind.
"""

from __future__ import annotations

import argparse
import ast
import collections
import dis
import inspect
import pathlib
import sys
import time
import types
import warnings
from collections.abc import Iterator

from ziggurat.codemodel.op import same_model
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.verify import violations
from ziggurat.frontends.python.reflect import model_of
from ziggurat.frontends.python.source import find_definition

# Modules that act when they are imported, and tests.
SKIPPED = ("test", "idlelib.idle", "antigravity", "this", "__main__", "turtledemo", "lib2to3.tests")


def files(names: list[str]) -> Iterator[pathlib.Path]:
    """The files of the modules that are written in Python."""
    root = pathlib.Path(inspect.getsourcefile(ast) or "").parent
    for name in sorted(names or sys.stdlib_module_names):
        for path in (root / f"{name}.py", root / name):
            if path.is_dir():
                yield from (p for p in sorted(path.rglob("*.py")) if not {"test", "tests"} & set(p.parts))
            elif path.exists():
                yield path


def codes(path: pathlib.Path) -> Iterator[types.CodeType]:
    """The codes of all functions of a file, those inside of functions and classes included."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(path.read_bytes())
            work = [compile(path.read_bytes(), str(path), "exec", dont_inherit=True)]
        except SyntaxError:  # Files that test errors of the compiler.
            return
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    # From Python 3.12 on, type parameters and annotations have codes, too.
    definitions = {(min(part.lineno for part in (node, *node.decorator_list)), node.name) for node in functions}
    while work:
        code = work.pop()
        work += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        if code.co_name == "<lambda>" or (code.co_firstlineno, code.co_name) in definitions:
            yield code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--back", action="store_true")
    parser.add_argument("--show", type=int, default=5)
    arguments = parser.parse_args()
    sys.setrecursionlimit(20_000)
    total = 0
    failures: dict[str, list[str]] = collections.defaultdict(list)
    counts: collections.Counter[str] = collections.Counter()
    seconds: collections.Counter[str] = collections.Counter()
    for path in files(arguments.modules):
        lines = path.read_text(errors="replace").splitlines(keepends=True)
        for code in codes(path):
            total += 1
            for step in steps(code, lines, seconds, arguments.back):
                name, error = step
                if error is None:
                    counts[name] += 1
                else:
                    failures[f"{name}: {error}"].append(f"{path}:{code.co_firstlineno} {code.co_qualname}")
    print(f"{total} functions")
    for name, count in counts.items():
        print(f"  {name:10} {count:6} {100 * count / total:.2f} %")
    print({name: round(value, 2) for name, value in seconds.items()})
    for kind, places in sorted(failures.items(), key=lambda item: -len(item[1])):
        print(len(places), kind)
        for place in places[: arguments.show]:
            print("     ", place)


def steps(
    code: types.CodeType, lines: list[str], seconds: collections.Counter[str], back: bool
) -> Iterator[tuple[str, str | None]]:
    fn = types.FunctionType(code, {}, closure=tuple(types.CellType() for _ in code.co_freevars))
    try:
        source = find_definition(fn, lines)
        start = time.perf_counter()
        model = model_of(code, source)
        seconds["reflect"] += time.perf_counter() - start
        yield "reflect", None
    except Exception as error:
        yield "reflect", f"{type(error).__name__}: {str(error).splitlines()[0]:.90}"
        return
    try:
        broken = violations(model)
        yield "verify", str(broken[0]) if broken else None
        yield "parse", None if same_model(parse(str(model)), model) else "the parsed text is another model"
    except Exception as error:
        yield "parse", f"{type(error).__name__}: {str(error).splitlines()[0]:.90}"
    if not back:
        return
    from ziggurat.backend.python.to_function import code_of

    try:
        again = code_of(model)
        yield "function", None
        yield "same code", None if normal(again) == normal(code) else "the code differs"
    except Exception as error:
        yield "function", f"{type(error).__name__}: {str(error).splitlines()[0]:.90}"


# The flags of a function inside of another one or a class, of a docstring, and of the future statements of its module.
NOTED = inspect.CO_NESTED | 0x1FF0000 | 0xC000000


def normal(code: types.CodeType) -> tuple[object, ...]:
    """What a code does, without its places in the source, and without what Python makes of the imports of a module."""
    instructions = list(dis.get_instructions(code))
    labels = {item.offset: index for index, item in enumerate(item for item in instructions if item.is_jump_target)}
    steps = [
        (
            item.opname.replace("LOAD_METHOD", "LOAD_ATTR"),
            labels.get(item.argval) if item.opcode in JUMPS else constant(item),
        )
        for item in instructions
        if item.opname not in ("NOP", "EXTENDED_ARG", "RESUME", "PUSH_NULL")
    ]
    names = sorted(code.co_varnames), sorted(code.co_cellvars), sorted(code.co_freevars)
    return steps, names, code.co_argcount, code.co_kwonlyargcount, code.co_flags & ~NOTED, code.co_name


JUMPS = {*dis.hasjrel, *dis.hasjabs}


def constant(item: dis.Instruction) -> object:
    value = item.argval
    if isinstance(value, types.CodeType):
        return normal(value)
    text = item.argrepr.removeprefix("NULL + ").removeprefix("NULL|self + ")
    return text.removesuffix(" + NULL").removesuffix(" + NULL|self")


if __name__ == "__main__":
    main()
