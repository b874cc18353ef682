"""A prompt that steps through a launch: `ziggurat debug`."""

from __future__ import annotations

import cmd
import linecache
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.debugging.session import Place, Session, debug
from ziggurat.debugging.values import text_of
from ziggurat.kernels.kernel import Kernel
from ziggurat.launches.inspected import first_launches

_SHORT = {
    "s": "step", "n": "next", "o": "out", "c": "continue", "bs": "back step", "bn": "back next", "bo": "back out",
    "bc": "back continue", "b": "break", "p": "print", "w": "where", "l": "list", "v": "variables", "q": "quit",
}  # fmt: skip
_AROUND = 5  # The lines that `list` shows on both sides.


class Prompt(cmd.Cmd):
    """Commands over a session. Each gives text, which `write` takes."""

    prompt = "(ziggurat) "

    def __init__(self, session: Session, write: Callable[[str], Any] | None = None) -> None:
        super().__init__()
        self.session = session
        self.quits = False
        self.write: Callable[[str], Any] = write or self._print
        self._frame = 0

    def _print(self, text: str) -> None:
        print(text, file=self.stdout)

    def preloop(self) -> None:
        """Say where the session stands."""
        self.write(f"{self.session.place}\nhelp lists the commands; an empty line repeats the last one")

    def onecmd(self, line: str) -> bool:
        """Run a command; an error is its text."""
        word, _, rest = line.strip().partition(" ")
        line = f"{_SHORT.get(word, word)} {rest}".strip() if word != "EOF" else "quit"
        try:
            return bool(super().onecmd(line))
        except LaunchError as error:
            self.write(str(error))
            return False

    def default(self, line: str) -> None:
        """Print the value of an expression."""
        self.do_print(line)

    def _show(self, place: Place) -> None:
        self._frame = 0
        self.write(str(place))

    def _number(self, text: str, name: str) -> int:
        if not text.strip().isdecimal():
            raise LaunchError(f"{name} must be a number; got '{text}'")
        return int(text)

    def do_step(self, line: str) -> None:
        """step (s): to the next statement, into functions as well."""
        self._show(self.session.step())

    def do_next(self, line: str) -> None:
        """next (n): to the next statement of this function."""
        self._show(self.session.next())

    def do_out(self, line: str) -> None:
        """out (o): to the statement after this function."""
        self._show(self.session.out())

    def do_continue(self, line: str) -> None:
        """continue (c): to the next breakpoint or watch, or the end of the last program."""
        self._show(self.session.go())

    def do_back(self, line: str) -> None:
        """back step, next, out, continue (bs, bn, bo, bc): the same, backward."""
        session, word = self.session, _SHORT.get(line.strip(), line.strip())
        moves = {"step": session.step, "next": session.next, "out": session.out, "continue": session.go}
        if word not in moves:
            raise LaunchError(f"back must be followed by one of {', '.join(moves)}; got '{line}'")
        self._show(moves[word](back=True))

    def do_program(self, line: str) -> None:
        """program 1 0 0: to the first statement of a program."""
        words = line.replace(",", " ").split()
        self._show(self.session.select(tuple(self._number(word, "a program's index") for word in words)))

    def do_break(self, line: str) -> None:
        """break 12 if i == 3 (b): stop before a line, if a condition holds; without a line, list all."""
        if not line:
            for number, entry in self.session.breakpoints.items():
                condition = f" if {entry.condition}" if entry.condition else ""
                self.write(f"{number}: {os.path.basename(entry.file)}:{entry.line}{condition}")
            for number, entry in self.session.watches.items():
                self.write(f"{number}: watch {entry.text}")
            return
        place, _, condition = line.partition(" if ")
        file, colon, number = place.strip().rpartition(":")
        at = self._number(number, "a line")
        key = self.session.break_at(at, condition.strip() or None, file=file if colon else None)
        self.write(f"breakpoint {key} at line {self.session.breakpoints[key].line}")

    def do_watch(self, line: str) -> None:
        """watch c[17]: stop after each write to an element of an array."""
        self.write(f"watch {self.session.watch(line)}: {line}")

    def do_clear(self, line: str) -> None:
        """clear 1: remove a breakpoint or a watch; without a number all."""
        self.session.clear(self._number(line, "a breakpoint") if line else None)

    def do_who(self, line: str) -> None:
        """who c[17]: the writes to an element of an array, by all programs."""
        writes = self.session.writers(line)
        self.write("\n".join(map(str, writes)) or f"no program writes {line}")

    def do_print(self, line: str) -> None:
        """print acc.sum() (p): the value of an expression over the variables."""
        self.write(text_of(self.session.evaluate(line)))

    def do_variables(self, line: str) -> None:
        """variables (v): all variables."""
        for name, value in self.session.variables.items():
            undefined = self.session.undefined(name)
            note = "" if undefined is None else f"    ({int(undefined.sum())} undefined)"
            self.write(f"{name} = {text_of(value)}{note}")

    def do_where(self, line: str) -> None:
        """where (w): the statements in progress, the innermost first."""
        for number, place in enumerate(self.session.where()):
            self.write(f"{'>' if number == self._frame else ' '} {number} {_line_of(place)}")

    def do_up(self, line: str) -> None:
        """up: to the caller's variables."""
        self._choose(self._frame + 1)

    def do_down(self, line: str) -> None:
        """down: back from the caller's variables."""
        self._choose(self._frame - 1)

    def _choose(self, number: int) -> None:
        place = self.session.frame(number)
        self._frame = number
        self.write(_line_of(place))

    def do_list(self, line: str) -> None:
        """list (l): the lines around this one."""
        location = self.session.where()[self._frame].location
        for number in range(max(1, location.line - _AROUND), location.line + _AROUND + 1):
            text = linecache.getline(location.file, number)
            if text:
                self.write(f"{number:5} {'->' if number == location.line else '  '} {text.rstrip()}")

    def do_launch(self, line: str) -> bool:
        """launch: leave this launch; a program goes on to its next one."""
        return True

    def do_quit(self, line: str) -> bool:
        """quit (q): leave, and end the program."""
        self.quits = True
        return True

    def completenames(self, text: str, *ignored: Any) -> list[str]:
        """Complete the names of commands."""
        return [name for name in super().completenames(text, *ignored) if name != "EOF"]


def _line_of(place: Place) -> str:
    return f"{os.path.basename(place.location.file)}:{place.line} in {place.function}: {place.source}"


def debug_program(arguments: Sequence[str]) -> None:
    """Run a program, Triton's or one of ours, and open a prompt for each kernel that it launches, before the launch."""

    def ask(session: Session) -> None:
        prompt = Prompt(session)
        prompt.cmdloop()
        if prompt.quits:
            raise SystemExit(0)

    sessions_of(arguments, "ziggurat debug --triton", ask, lambda text: print(text, file=sys.stderr))


def sessions_of(
    arguments: Sequence[str], tool: str, use: Callable[[Session], None], report: Callable[[str], None]
) -> None:
    """Run a program with a session for the first launch of each kernel for each choice of types, before the launch.

    `arguments` are the program and its own arguments, or `-m`, a module and its arguments; `tool` is the command in
    messages. `report` gets the reason why a launch has no session.
    """
    from ziggurat.triton.__main__ import main as run_program

    def observe(kernel: Kernel, grid: Any, values: list[Any], keywords: dict[str, Any]) -> None:
        try:
            session = debug(kernel, grid, *values, **keywords)
        except ZigguratError as error:
            report(f"'{kernel.name}' cannot be debugged: {error}")
        else:
            use(session)

    with first_launches(observe):
        run_program(arguments, tool)
