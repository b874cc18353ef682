"""`python -m ziggurat.triton program.py args…` and `python -m ziggurat.triton -m module args…`.

They run the program as `python program.py args…` does, with `ziggurat.triton` as its `triton`.
"""

from __future__ import annotations

import os
import runpy
import sys

from ziggurat.triton.installation import install

_USAGE = "usage: python -m ziggurat.triton (program.py | -m module) [argument …]"


def main() -> None:
    given = sys.argv[1:]
    is_module = given[:1] == ["-m"]
    program = given[1:] if is_module else given
    if not program or program[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stdout if program else sys.stderr)
        sys.exit(0 if program else 2)
    install()
    sys.argv = program
    if is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.realpath(program[0]))
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
