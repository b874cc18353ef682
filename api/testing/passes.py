"""Text tests of passes: models, the passes to run on them, and the models that are expected."""

from __future__ import annotations

import os
from pathlib import Path

from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.passes import Pass


@public
def check(file: str | os.PathLike[str], *passes: Pass, bless: bool = False) -> None:
    """Run the passes that the cases of a text file name, and compare with the models that follow `// becomes`, and with
    lines of `// CHECK:` as LLVM's FileCheck has them.

        zg.testing.check("strength.txt", strength, bless=bless)

    `passes` are those of the user's, by their names. Raises `AssertionError` with the differences; with `bless`, writes
    the results into the file instead, but what a `// CHECK:` does not match stays an error. Raises `LaunchError` for a
    file that cannot be read or written, and the errors of the models and passes.
    """
    from ziggurat.passes import renewed

    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
        new, differences, mismatches = renewed(text, {str(getattr(step, "__name__", step)): step for step in passes})
        if bless:
            path.write_text(new, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"zg.testing.check: '{path}' cannot be read or written: {error}") from None
    if differences and not bless:
        raise AssertionError("\n".join([f"{path}: bless=True writes the results", *differences, *mismatches]))
    if mismatches:
        raise AssertionError("\n".join([f"{path}:", *mismatches]))
