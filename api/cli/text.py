"""Commands on models as text: passes, rules, runs and proofs."""

from __future__ import annotations

import argparse
import functools
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

import ziggurat
from ziggurat.cli.arguments import AddCommand, grid_of
from ziggurat.cli.sources import load_module, read
from ziggurat.codemodel.errors import LaunchError


def add(command: AddCommand) -> None:
    """Add the commands."""
    passes = command("opt", "run passes on the models of a text", _opt)
    models = "models or Triton's MLIR; standard input without it, or for -"
    passes.add_argument("file", nargs="?", default="-", help=f"{models}; // passes: cse dce names passes")
    passes.add_argument("--passes", default="", metavar="NAMES", help="the passes to run instead: cse,dce")
    passes.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="such as target=sm_80")
    load = "a Python file whose functions and kit.Rules are passes by their names, and whose ops the text may have"
    passes.add_argument("--load", action="append", default=[], metavar="FILE", help=load)
    passes.add_argument("--verify-each", action="store_true", help="verify after each pass, not the last alone")
    passes.add_argument("--print-after", default="", metavar="NAMES", help="print the models after these too, or 'all'")
    passes.add_argument("--diff", action="store_true", help="print what each pass changes, in place of the model")
    passes.add_argument("--check", action="store_true", help="compare with what // becomes and // CHECK: say")
    passes.add_argument("--bless", action="store_true", help="write the models after // becomes into the file")
    verify = command("verify", "verify the models of a text, with the place of each mistake", _verify)
    verify.add_argument("file", nargs="?", default="-", help=models)
    verify.add_argument("--load", action="append", default=[], metavar="FILE", help=load)
    run = command("run", "run the model of a text on arrays and values", _run)
    run.add_argument("file", help="a model or Triton's MLIR; - is standard input")
    run.add_argument("arguments", nargs="?", default="", help='drawn and saved arrays, and values: f32[64], "x.npy", 3')
    run.add_argument("--grid", nargs="+", default=["1"], help="programs along each axis (default: 1)")
    run.add_argument("--load", action="append", default=[], metavar="FILE", help=load)
    prove = command("prove", "prove that two models do the same, or find inputs for which they do not", _prove)
    prove.add_argument("files", nargs=2, metavar="FILE", help="a text file with a Triton or a GPU model")
    prove.add_argument("--bounds", type=int, help="iterations of a loop of unknown length (default: 4)")
    prove.add_argument(
        "--exact-floats", action="store_true", help="compute floats, in place of knowing functions by name"
    )


def _opt(options: argparse.Namespace) -> str:
    """The models of a text after their passes; cases with titles keep them, and their passes."""
    from ziggurat.passes import cases, changes, renewed

    own = {name: function for path in options.load for name, function in _own_passes(load_module(path))}
    if options.check or options.bless:
        for name in ("passes", "option", "print_after", "diff"):
            if getattr(options, name):
                flag = f"--{name.replace('_', '-')}"
                raise LaunchError(
                    f"{flag} must be left out with --check and --bless: the file says which passes run",
                    hint="write // passes: and // options: above the model",
                )
        text, differences, mismatches = renewed(_text(options.file), own)
        if options.bless and options.file != "-":
            Path(options.file).write_text(text, encoding="utf-8")
        elif differences:
            errors = "\n".join([*differences, *mismatches])
            raise LaunchError(errors, hint="--bless writes the results into the file")
        if mismatches:
            raise LaunchError("\n".join(mismatches))
        return f"{options.file}: {'renewed' if differences else 'as expected'}\n"
    more = dict(text.partition("=")[::2] for text in options.option)
    names, prints = _names(options.passes), _names(options.print_after)
    texts: list[str] = []
    models = [
        attrs.evolve(case, passes=(names,) if names else case.passes, options={**case.options, **more})
        for case in cases(_text(options.file))
    ]
    running = list(dict.fromkeys(name for case in models for name in case.passes[0]))
    for name in prints:
        if name not in ("all", *running):
            hint = f"name some of {', '.join(running)}, or all"
            raise LaunchError(f"--print-after must name passes that run; got '{name}'", hint=hint)
    for case in models:
        steps = case.steps(case.passes[0], own, verify=options.verify_each)
        last = str(steps[-1].model)
        if options.diff:
            texts.append(changes(steps))
            continue
        printed = [step for step in steps[1:] if {step.name, "all"}.intersection(prints)]
        texts += [f"// after {step.name}\n{str(step.model).strip()}\n" for step in printed]
        texts.append(str(attrs.evolve(case, after=last)) if case.title else f"{last.strip()}\n")
    return "\n".join(texts)


def _names(text: str) -> tuple[str, ...]:
    """The names of a list with commas."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _own_passes(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The functions that a module defines, and rules and composed passes, by their names."""
    from ziggurat.transforms.kit import Rules

    for name, value in vars(module).items():
        is_own = inspect.isfunction(value) and value.__module__ == module.__name__
        if not name.startswith("_") and (is_own or isinstance(value, Rules | functools.partial)):
            yield name, value


def _verify(options: argparse.Namespace) -> str:
    """The number of ops of the models, which are right; an error where one is not."""
    from ziggurat.passes import cases

    for path in options.load:
        load_module(path)
    models = [case.model for case in cases(_text(options.file))]
    for model in models:
        ziggurat.verify(model)
    counts = [sum(1 for _ in model.walk()) for model in models]
    return "".join(f"verified: {count} ops\n" for count in counts)


def _run(options: argparse.Namespace) -> str:
    """What the model of a text gives, or changes."""
    from ziggurat.passes import cases, executed

    for path in options.load:
        load_module(path)
    models = [case.model for case in cases(_text(options.file))]
    if len(models) != 1:
        raise LaunchError(f"'{options.file}' must have one model; got {len(models)}")
    return executed(models[0], options.arguments, grid_of(options))


def _prove(options: argparse.Namespace) -> str:
    """The proof; an error where the models are not proved equal."""
    models = [ziggurat.parse(read(Path(file))) for file in options.files]
    proof = ziggurat.prove(*models, bounds=options.bounds, exact_floats=options.exact_floats)
    if not proof:
        raise LaunchError(str(proof))
    return f"{proof}\n"


def _text(file: str) -> str:
    """The text of a file, or of standard input. Raises `LaunchError` where it cannot be read."""
    if file != "-":
        return read(Path(file))
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise LaunchError(f"standard input cannot be read: {error}") from None
