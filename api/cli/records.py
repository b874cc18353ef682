"""Commands on what is kept on disk, and the reference."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from ziggurat.cli.arguments import AddCommand
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import options_table


def add(command: AddCommand) -> None:
    """Add the commands."""
    cache = command("cache", "list or clear the compiled kernels kept on disk", _cache)
    cache.add_argument("what", nargs="?", choices=("list", "clear"), default="list")
    choices = command("choices", "list, clear, export or import the choices of zg.autotune", _choices)
    choices.add_argument("what", nargs="?", choices=("list", "clear", "export", "import"), default="list")
    choices.add_argument("file", nargs="?", help="the file to export to or import from")
    docs = command("docs", "print the reference of the language, the ops or the options", _docs)
    docs.add_argument("what", nargs="?", choices=("language", "ops", "options"), default="language")


def _cache(options: argparse.Namespace) -> str:
    """The list of kept kernels, or the number of removed ones."""
    from ziggurat.backend.cuda.cache import Cache
    from ziggurat.backend.jit.objects import Objects

    kernels = Cache()
    directory = kernels.directory
    caches = kernels, Objects(directory)
    if options.what == "clear":
        return f"removed {sum(cache.clear() for cache in caches)} kernel(s) from {directory}\n"
    entries = (entry for cache in caches for entry in cache.entries())
    return _listing("kernel", directory, (f"{e.key[:16]}  {e.size:>9} bytes  {e.target}  {e.name}" for e in entries))


def _choices(options: argparse.Namespace) -> str:
    """The list of kept choices of tuning, or the number of those removed, exported or imported."""
    from ziggurat.backend.cache.records import Records

    records = Records()
    if options.file is not None and options.what in ("list", "clear"):
        raise LaunchError(f"choices {options.what} takes no file; got '{options.file}'")
    if options.what == "clear":
        return f"removed {records.clear()} choice(s) from {records.directory}\n"
    if options.what != "list":
        if options.file is None:
            raise LaunchError(f"choices {options.what}: a file is missing")
        count = records.export(options.file) if options.what == "export" else records.import_(options.file)
        return f"{options.what}ed {count} choice(s)\n"
    lines: list[str] = []
    for record in records.all():
        about = record.about
        key = ", ".join(f"{name}={value}" for name, value in about["key"].items())
        types = ", ".join(about["types"].values())
        best = f"  {record.times[record.config]:.4g} ms" if record.config in record.times else ""
        lines.append(f"{about['kernel']}({key}) of {types} on {about['device']}: {record.config}{best}")
    return _listing("choice", records.directory, lines)


def _listing(noun: str, directory: Path, lines: Iterable[str]) -> str:
    """The entries of a folder, with escapes in place of control characters, which a terminal would obey."""
    plain = ["".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line) for line in lines]
    return "\n".join([f"{len(plain)} {noun}(s) in {directory}", *plain]) + "\n"


def _docs(options: argparse.Namespace) -> str:
    if options.what == "ops":
        from ziggurat.codemodel.catalogue import catalogue

        return catalogue()
    if options.what == "options":
        return options_table()
    from ziggurat.frontends.language.reference import reference

    return reference()
