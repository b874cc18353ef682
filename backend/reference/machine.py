"""Runs a Triton model for many programs at once. Programs that diverge run apart until control meets again."""

from __future__ import annotations

import functools
import math
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

import attrs
import numpy as np

from ziggurat.backend.reference.argument_memory import Conflict, ElementAccess, Memory, Sharing, WaitsForLater, scope_of
from ziggurat.backend.reference.marks import Sources, marks, marks_of, undefined_error
from ziggurat.backend.reference.values import Array, Frame, Marked, element_dtype, is_tuple, plain
from ziggurat.codemodel.dialects import arith, debug
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import InternalError, KernelRuntimeError
from ziggurat.codemodel.interpret import Exit, Interpreter, Jump, Meaning, Yielded
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value
from ziggurat.codemodel.types import Type, shape_of

WAITS = "the loop waits for a change of memory that no earlier program has made; programs run one after the other here"
_MAX_POLLS = 1 << 10  # Polls, after which a program may wait for another one.
_MAX_CALLS = 500  # Calls in progress: enough for long chains of helper functions, and an end for a recursion.


UNWRITTEN = 0xA5  # The bytes of a thread's memory to which nothing has been stored.

triton = OpTable[Meaning]("meaning in NumPy")  # The other files of this package fill it.


class AllLeft(Exit):
    """All programs of the frame have returned from the function."""


@attrs.frozen
class Fork(Exit):
    """The programs for which a condition holds branch to one block, and the others to another."""

    condition: Array
    then: Successor
    otherwise: Successor


class _WithMarks(OpTable[Meaning]):
    """The meanings of ops, extended to marks on the elements, and to a check of the results in `nonnegative`."""

    def __init__(self, nonnegative: Collection[Value]) -> None:
        super().__init__("meaning with marks")
        self.nonnegative = nonnegative

    def __getitem__(self, op: Op) -> Meaning:
        meaning = functools.partial(marks[op], triton[op])
        return functools.partial(_not_negative, meaning) if op.result in self.nonnegative else meaning


def _not_negative(meaning: Meaning, machine: Machine, op: Op, operands: tuple[Any, ...]) -> Any:
    """The result of an op, which code for GPUs takes not to be negative; see `axis_info`."""
    result = meaning(machine, op, operands)
    wrong = (plain(result) < 0) & (marks_of(result) <= 0)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0])
        expected, hint = "an index must not wrap around", "compute the index in i64"
        if isinstance(op, arith.DivSI):
            expected, hint = "a block's number must not be negative", "launch no programs beyond the last block"
        raise KernelRuntimeError(f"{machine.program(0)}: {expected} on GPUs; got {plain(result)[place]}", hint=hint)
    return result


class Machine(Interpreter):
    """An interpreter whose values are those of all running programs.

    `frame` holds the programs that run now; the meaning of an op may replace it by a part of it. `limit` is the number
    of iterations that a `while` loop may have. `strict` marks undefined elements and checks hints; `undefined` marks
    them and goes on where they are used; `overflows` marks integers that overflow. `scratch` is the size of a thread's
    memory for the buffers of a CPU model, in bytes.
    Strict mode checks that no value in `nonnegative` is negative.

    Each program of a GPU model is a cluster of `ctas` CTAs, which are rows of the frame, and each CTA has
    `shared_bytes` of shared memory. At the first body after the time `until`, `TimeoutError` is raised.
    """

    def __init__(
        self,
        functions: Mapping[str, Op],
        memory: Memory,
        *,
        strict: bool,
        limit: int,
        overflows: bool = False,
        scratch: int = 0,
        nonnegative: Collection[Value] = (),
        ctas: int = 1,
        shared_bytes: int = 0,
        until: float = math.inf,
        undefined: bool = False,
    ) -> None:
        super().__init__(_WithMarks(nonnegative) if strict or overflows or undefined else triton)
        self.functions = functions
        self.memory = memory
        self.sharing = Sharing(memory, strict)
        self.strict = strict
        self.marks_undefined = strict or undefined
        self.limit = limit
        self.overflows = overflows
        self.scratch = np.full(scratch, UNWRITTEN, np.uint8)
        self.ctas = ctas
        self.shared = np.zeros((0, shared_bytes), np.uint8)
        self.schedule: Any = None  # Of the warp roles that run (`roles.Schedule`).
        self.turn: Any = None  # Of the program that runs, where programs take turns (`turns.Turn`).
        self._polls = 0  # Those since memory has changed.
        self._polled: set[tuple[Op, int]] = set()  # The ordered accesses since then, each with its first address.
        self._polls_since = 0  # The number of changes of memory at that time.
        self.can_turn = False  # Whether a program that waits for a later one may be run again in turns.
        self.sources = Sources()
        self.printed: list[tuple[int, str]] = []
        self.frame = Frame(np.zeros(0, np.int32), np.zeros(0, np.int32))
        # The frames of programs that have returned from the function that runs, and their values.
        self._results: list[tuple[Frame, tuple[Any, ...]]] = []
        self._depth = 0
        self.until = until
        self._shared: dict[Body, dict[Block, list[Value]]] = {}

    def begin(self, start: int, stop: int) -> None:
        """Begin a batch of the programs `start` … `stop` - 1."""
        programs = np.arange(start, stop, dtype=np.int32).repeat(self.ctas)
        self.frame = Frame(np.arange(len(programs), dtype=np.int32), programs)
        self.shared = np.full((len(programs), self.shared.shape[1]), UNWRITTEN, np.uint8)
        self.sharing.begin(start, stop)

    def share_plans(self, owner: Any) -> None:
        """Share the steps of the bodies with the machines of the same `owner.plans`."""
        self._plans = owner.plans = owner.plans or self._plans

    def lookup(self, value: Value) -> Any:
        return self.frame.lookup(value)

    def bind(self, value: Value, content: Any) -> None:
        self.frame.bind(value, content)

    def release(self, value: Value) -> None:
        self.frame.release(value)

    def access(self, verb: str, op: Op, type_: Type, pointers: Array) -> ElementAccess:
        """An access of the running programs to a scalar or a tensor of this type, at these addresses."""
        if self.turn is not None:
            self.turn.before_access(op, is_poll=scope_of(op) is not None and self._polls_again(op, pointers))
        elif scope_of(op) is not None and self._polls_again(op, pointers):
            self._count_poll()
        return ElementAccess(op, verb, element_dtype(type_), shape_of(type_), self.frame.programs)

    def program(self, place: int) -> str:
        """The name of the program at a place of the frame, for messages: 0 in the error of a batch, whose programs are
        run again one by one."""
        return self.memory.program(int(self.frame.programs[place]))

    def _polls_again(self, op: Op, pointers: Array) -> bool:
        """Whether an ordered access is a poll: it comes again to an address, and memory has not changed meanwhile. A
        loop that goes through an array waits for nothing."""
        changes = self.memory.changes if self.turn is None else self.turn.changes
        if changes != self._polls_since:
            self._polls, self._polls_since = 0, changes
            self._polled.clear()
        poll = op, int(pointers.flat[0])
        is_again = poll in self._polled
        self._polled.add(poll)
        return is_again

    def _count_poll(self) -> None:
        """Count a poll. After many, the loop around may wait for other programs, though it changes its own values, as
        one that counts its rounds does."""
        self._polls += 1
        if self._polls > _MAX_POLLS and (self.sharing.together or self.can_turn):
            self._polls = 0
            self.stuck(WAITS)

    def stuck(self, message: str) -> None:
        """Raise `KernelRuntimeError` for a loop without end; `Conflict` if it may wait for a program of the batch, and
        `WaitsForLater` for a later one. Where programs take turns, return when memory has changed."""
        if self.sharing.together:
            raise Conflict
        if message is WAITS and self.turn is not None:
            self.turn.wait()
            return
        if message is WAITS and self.can_turn:
            raise WaitsForLater
        raise KernelRuntimeError(f"{self.program(0)}: {message}")

    def known(self, op: Op, value: Any, use: str, mask: Array | None = None) -> Any:
        """A value without its marks. Raises `KernelRuntimeError` if an element within the mask is undefined.

        `use` is a verb for the message: "stores".
        """
        if is_tuple(value):
            return tuple(self.known(op, part, use) for part in value)
        if not isinstance(value, Marked):
            return value
        if self.marks_undefined and not self.strict:
            return value.array
        marks = value.marks if mask is None else np.where(mask, value.marks, 0)
        if (marks > 0).any():
            place = tuple(np.argwhere(marks > 0)[0])
            raise undefined_error(self.program(0), use, *self.sources.of(int(marks[place])), op)
        return value.array

    def fail(self, op: Op, error: Exception) -> NoReturn:
        if isinstance(error, MemoryError):
            error = KernelRuntimeError("the memory of this machine is too small for the tensors of the program")
        elif isinstance(error, RecursionError):
            error = KernelRuntimeError("the control flow of the program is nested too deeply to be run")
        super().fail(op, error)

    # Bodies and calls.

    def run_in(self, body: Body, arguments: Sequence[Any], frame: Frame) -> tuple[Frame | None, tuple[Any, ...]]:
        """Run a body for the programs of `frame`. Returns the programs that reach its end, and the values they yield.

        The frame is None if all programs have returned from the function.
        """
        if time.monotonic() > self.until:
            raise TimeoutError
        outer = self.frame
        try:
            if len(body.blocks) == 1:
                self.frame = frame.child()
                outcome = self.run_block(body.entry, arguments)
                if isinstance(outcome, AllLeft):
                    return None, ()
                if not isinstance(outcome, Yielded):
                    raise InternalError(f"a body ends with {outcome!r}")
                return self.frame, outcome.values
            return self._run_blocks(body, arguments, frame)
        finally:
            self.frame = outer

    def _run_blocks(self, body: Body, arguments: Sequence[Any], frame: Frame) -> tuple[Frame | None, tuple[Any, ...]]:
        """Run a body of several blocks. The first block with waiting programs runs next, so programs meet again."""
        home = frame.child()
        shared = self._shared_values(body)
        waiting: dict[Block, list[tuple[Frame, tuple[Any, ...]]]] = {body.entry: [(home, tuple(arguments))]}
        done: list[tuple[Frame, tuple[Any, ...]]] = []
        rounds, visits = 0, Counter[Block]()
        places_of = {block: index for index, block in enumerate(body.blocks)}

        def send(successor: Successor, programs: Frame) -> None:
            values = tuple(programs.lookup(value) for value in successor.arguments)
            waiting.setdefault(successor.block, []).append((programs, values))

        while waiting:
            block = min(waiting, key=places_of.__getitem__)
            self.frame, values = home.child().merge(waiting.pop(block))
            visits[block] += 1
            outcome = self.run_block(block, values)
            results = self.frame
            if not isinstance(outcome, AllLeft):
                for value in shared.get(block, ()):
                    home.keep(value, results)
            match outcome:
                case Jump(successor):
                    send(successor, results)
                case Fork(condition, then, otherwise):
                    sides = results.split(condition)
                    for side, programs in sides:
                        successor = then if side else otherwise
                        if len(sides) == 1 or self.may_enter(visits[successor.block], programs):
                            send(successor, programs)
                case Yielded(values):
                    done.append((results, values))
                case _:  # All have left.
                    pass
            rounds += 1
            if rounds > self.limit:
                self.stuck(f"loop limit exceeded: {self.limit} blocks executed")
        return frame.merge(done) if done else (None, ())

    def may_enter(self, visits: int, programs: Frame) -> bool:
        """Whether programs enter a block that others do not, after so many visits."""
        return True

    def _shared_values(self, body: Body) -> dict[Block, list[Value]]:
        """For each block, the values declared there that other blocks use."""
        values = self._shared.get(body)
        if values is None:
            values = self._shared[body] = {}
            for block, steps in self.plan(body).items():
                dead = {value for step in steps for value in step.dead}  # They are used in this block only.
                results = (*block.parameters, *(step.result for step in steps if step.result is not None))
                values[block] = [value for value in results if value not in dead]
        return values

    def call(self, body: Body, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Call a function for the programs of the frame. All programs return."""
        outer, self._results = self._results, []
        frame = self.frame.fresh()
        self._depth += 1
        try:
            if self._depth > _MAX_CALLS:
                raise KernelRuntimeError(f"calls are nested too deeply ({_MAX_CALLS})")
            self.run_in(body, arguments, frame)
            return frame.merge(self._results)[1]
        finally:
            self._results = outer
            self._depth -= 1

    def stop(self, op: debug.Stop, contents: tuple[Any, ...]) -> None:
        """A place at which a debugger can stop: nothing here."""

    def leave(self, values: tuple[Any, ...]) -> Exit:
        """The programs of the frame return from the function."""
        self._results.append((self.frame, values))
        return AllLeft()
