"""`python -m ziggurat.triton program.py args…` and `python -m ziggurat.triton -m module args…`.

They run the program as `python program.py args…` does, with `ziggurat.triton` as its `triton`.
"""

from __future__ import annotations

import os
import runpy
import sys
from types import TracebackType

from ziggurat.triton.installation import install

_USAGE = "usage: python -m ziggurat.triton (program.py | -m module) [argument …]"


def main() -> None:
    given = sys.argv[1:]
    is_module = given[:1] == ["-m"]
    program = given[1:] if is_module else given
    if not program or program[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stdout if program else sys.stderr)
        sys.exit(0 if program else 2)
    sys.argv = program
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.realpath(program[0]))
    install()
    sys.excepthook = _from_the_program
    if is_module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program[0], run_name="__main__")


def _from_the_program(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Show an error as `python program.py` does: without the frames above those of the program, and without any where
    it is missing."""
    own = traceback
    while own is not None and own.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        own = own.tb_next
    if own is None and isinstance(error, OSError | ImportError):
        print(f"python -m ziggurat.triton: {error}\n{_USAGE}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error.with_traceback(own), own)


if __name__ == "__main__":
    main()
