"""`python -m ziggurat.triton program.py args…` and `python -m ziggurat.triton -m module args…`; also `ziggurat triton`.

They run the program as `python program.py args…` does, with `ziggurat.triton` as its `triton`.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from types import TracebackType

from ziggurat.triton.installation import install

_ABOUT = "Run a Python program or module with ziggurat as its `triton`, for this process and its children."
_RUNNERS = (__file__, runpy.__file__, "<frozen runpy>")


def main(arguments: Sequence[str], command: str = "python -m ziggurat.triton") -> None:
    """Run the program that the arguments name. Messages call this command by the given name."""
    usage = f"usage: {command} (program.py | -m module) [argument …]"
    is_module = list(arguments[:1]) == ["-m"]
    program = list(arguments[1:] if is_module else arguments)
    if not program or program[0] in ("-h", "--help"):
        print(f"{usage}\n\n{_ABOUT}" if program else usage, file=sys.stdout if program else sys.stderr)
        sys.exit(0 if program else 2)
    sys.argv = program
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.realpath(program[0]))
    install()

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        own = _of_the_program(traceback)
        if own is None and isinstance(error, OSError | ImportError):
            print(f"{command}: {error}\n{usage}", file=sys.stderr)
        else:
            sys.__excepthook__(kind, error.with_traceback(own), own)

    sys.excepthook = show
    if is_module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program[0], run_name="__main__")


def _of_the_program(traceback: TracebackType | None) -> TracebackType | None:
    """The frames of the program, as `python program.py` shows them; None where the program is missing."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename != __file__:
        traceback = traceback.tb_next
    while traceback is not None and traceback.tb_frame.f_code.co_filename in _RUNNERS:
        traceback = traceback.tb_next
    return traceback


if __name__ == "__main__":
    main(sys.argv[1:])
