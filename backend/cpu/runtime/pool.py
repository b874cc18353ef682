"""The pool of threads that run kernels, as LLVM text.

A *round* hands the programs of one launch out in chunks, in ascending order, to the launching thread and to the workers
that enter it. The launching thread first runs some programs alone: a launch that is over soon wakes nobody. When the
programs are handed out it closes the round, and waits only for the workers that have entered: a worker that the system
does not schedule costs nothing. While one thread has a round, launches of other threads run on those threads alone.

Workers sleep on a futex, so this pool is for Linux; elsewhere, `native.py` uses threads of Python. They block all
signals, which belong to Python's threads. A worker that ends in the middle of a round leaves it by the destructor of
its thread-specific value, and the launch fails.
"""

from __future__ import annotations

from typing import Final

from ziggurat.backend.cpu.code import HOST, LAUNCH
from ziggurat.backend.cpu.runtime.host import poll
from ziggurat.backend.cpu.runtime.threads import now, pause, plain_floats, start, wait, wake
from ziggurat.backend.llvm.functions import Function, Global, Struct, define
from ziggurat.backend.llvm.routines import Number

# The entry and its arguments, the number of programs, the description of the launch, the bytes of scratch memory, the
# number of threads, and the record of an error.
JOB: Final = Struct(
    entry="ptr", arguments="ptr", total="i64", launch="ptr", scratch="i64", threads="i64", record="ptr"
)  # fmt: skip
RECORD_BYTES: Final = 40
_PROGRAM: Final = 8  # The place of the program's number in a record.
_SCRATCH: Final = 8192  # Bytes on the stack.
_LINE: Final = 64
ENDED, NO_MEMORY = -1, -2  # Codes of the pool.

_ALONE: Final = 20_000  # Nanoseconds in which the launching thread runs programs alone.
_CHUNK: Final = 50_000  # Nanoseconds of a chunk, about; a thread has at least four.
_SPINS: Final = 500

# The state of a round is one word: bits 0-15 count the workers in it, bits 16-31 those that have entered; bit 32 is
# set while it is open.
_OPEN: Final = 1 << 32
_ENTERED: Final = 1 << 16
_INSIDE: Final = _ENTERED - 1
_STATE: Final = Global("state", "i64")
_EPOCH: Final = Global("epoch", "i32")  # The number of rounds; workers sleep on it.
_SLEEPING: Final = Global("sleeping", "i32")
_DONE: Final = Global("done", "i32")  # The launching thread sleeps on it.
_BUSY: Final = Global("busy", "i32")  # Whether a thread has the pool.
_ALIVE: Final = Global("alive", "i64")  # Workers.
THREADS: Final = Global("threads", "i64", 1)  # Threads of a launch.
_ROUND: Final = Global("round", JOB)
_NEXT: Final = Global("next", "i64")  # The first program that is not handed out.
_CHUNK_SIZE: Final = Global("chunk", "i64", 1)  # Programs handed out at once.
_LIMIT: Final = Global("limit", "i64")  # Workers that may enter.
_FAILED: Final = Global("failed", "i64")  # The code of the error with the lowest program.
_ERROR: Final = Global("error", "[5 x i64]")
_LOCK: Final = Global("lock", "i32")  # Of the error.
_KEY: Final = Global("key", "i32")  # Of the value whose destructor tells that a worker has ended.
_HAS_KEY: Final = Global("has_key", "i32")
_OUTSIDE, _IN_ROUND = 1, 2  # The thread-specific values of a worker.
TICK: Final = Global("tick", Struct(seconds="i64", nanoseconds="i64"), 0, 50_000_000, constant=True)


@define("i64", "ptr i64 i64")
def run_programs(f: Function, at: Number, first: Number, end: Number) -> None:
    """Run the programs from `first` to `end` on this thread, in order. The result is that of the entry."""
    job = JOB.at(at)
    size = job["scratch"]
    scratch, block = f.local("ptr"), f.local("ptr")
    scratch.set(f.room(_SCRATCH, _LINE))
    is_large = size.test("ugt", _SCRATCH)
    with f.when(is_large):
        block.set(f.call("malloc", size + _LINE))
        with f.when(block.get().test("eq", 0)):
            f.give(NO_MEMORY)
        aligned = block.get().to("ptrtoint", "i64") + (_LINE - 1) & -_LINE
        scratch.set(aligned.to("inttoptr", "ptr"))
    restore = plain_floats(f)
    code = f.call_at(
        "i64", job["entry"], job["arguments"], first, end, job["launch"], scratch.get(), job["record"]
    )  # fmt: skip
    restore()
    with f.when(is_large):
        f.call("free", block.get())
    f.give(code)


@define("void", "i64", linkage="external")
def zg_set_threads(f: Function, count: Number) -> None:
    """Use as many threads from now on."""
    f.place(THREADS).store(count)


@define("i64", linkage="external")
def zg_alive(f: Function) -> None:
    """Count the workers."""
    f.give(f.place(_ALIVE).load())


def forget(f: Function) -> None:
    """Forget the workers and the round: a child process has only the thread that was forked."""
    for variable in (_STATE, _SLEEPING, _BUSY, _ALIVE, _LOCK):
        f.place(variable).set(0)


@define("i64", "ptr")
def run(f: Function, at: Number) -> None:
    """Run all programs of a job on its threads. The result is the code of the error with the lowest program, with its
    record in that of the job; 0 if there is none; `ENDED` if a worker has ended in the middle; or `NO_MEMORY`."""
    job = JOB.at(at)
    threads, total = job["threads"], job["total"]
    with f.when(threads.test("sle", 1) | total.test("sle", 1)):
        f.give(f.call(run_programs, at, 0, total))
    done, spent = _alone(f, at, total)
    with f.unless(f.place(_BUSY).claim(0, 1)):
        f.give(f.call(run_programs, at, done, total))
    _open(f, at, threads, done, total - done, spent)
    f.call(_work)
    f.place(_STATE).update("and", _OPEN - 1)
    _wait_for_workers(f, job["launch"])
    failed = f.place(_FAILED).get()
    f.copy(job["record"], f.value("ptr", _ERROR), RECORD_BYTES)
    f.place(_BUSY).store(0)
    f.give(failed)


def _alone(f: Function, at: Number, total: Number) -> tuple[Number, Number]:
    """Run programs on this thread, twice as many each time, for a moment. The number of those that ran, and the
    nanoseconds."""
    begin = f.call(now)
    done, count, spent = f.local("i64", 0), f.local("i64", 1), f.local("i64", 0)
    with f.loop() as loop:
        first = done.get()
        end = (first + count.get()).call("llvm.umin", total)
        code = f.call(run_programs, at, first, end)
        with f.when(code.test("ne", 0) | end.test("eq", total)):
            f.give(code)
        done.set(end)
        count.set(count.get() << 1)
        spent.set(f.call(now) - begin)
        loop.stop(spent.get().test("ugt", _ALONE))
    return done.get(), spent.get()


def _open(f: Function, at: Number, threads: Number, done: Number, left: Number, spent: Number) -> None:
    """Open a round for the programs that are left."""
    by_time = done * _CHUNK / spent.call("llvm.umax", 1)
    chunk = by_time.call("llvm.umin", left / (threads << 2)).call("llvm.umax", 1)
    wanted = threads - 1
    f.copy(f.value("ptr", _ROUND), at, JOB.size)
    f.place(_CHUNK_SIZE).set(chunk)
    f.place(_LIMIT).set(wanted)
    f.place(_FAILED).set(0)
    f.place(_NEXT).store(done)
    f.call(_spawn, wanted)
    f.place(_STATE).store(_OPEN)
    f.place(_EPOCH).update("add", 1)
    with f.when(f.place(_SLEEPING).load().test("sgt", 0)):
        f.call(wake, _EPOCH, wanted.call("llvm.umin", left / chunk))


def _wait_for_workers(f: Function, launch: Number) -> None:
    """Wait for the workers that have entered: a moment without sleep, then asleep."""
    turns = f.local("i64", 0)
    is_over = f.local("i1", False)
    with f.loop() as loop:
        is_over.set((f.place(_STATE).load() & _INSIDE).test("eq", 0))
        loop.stop(is_over.get())
        pause(f)
        turns.set(turns.get() + 1)
        loop.stop(turns.get().test("uge", _SPINS))
    with f.unless(is_over.get()), f.loop() as loop:
        f.place(_DONE).store(0)
        loop.stop((f.place(_STATE).load() & _INSIDE).test("eq", 0))
        f.call(wait, _DONE, 0, TICK)
        word = HOST.at(LAUNCH.at(launch)["host"]).place("word").load("monotonic")
        with f.when(word.test("ne", 0)):
            f.call(poll, launch)


@define("void")
def _work(f: Function) -> None:
    """Run chunks of the round until none is left."""
    record, at = f.room(RECORD_BYTES), f.room(JOB.size)
    f.copy(at, f.value("ptr", _ROUND), JOB.size)
    job = JOB.at(at)
    job["record"] = record
    total, chunk = job["total"], f.place(_CHUNK_SIZE).get()
    with f.loop() as loop:
        first = f.place(_NEXT).update("add", chunk)
        loop.stop(first.test("uge", total))
        code = f.call(run_programs, at, first, (first + chunk).call("llvm.umin", total))
        loop.next(code.test("eq", 0))
        f.call(_fail, code, record)
        loop.stop()


@define("void", "i64 ptr")
def _fail(f: Function, code: Number, record: Number) -> None:
    """Hand out no further programs, and keep the error unless there is one of a program with a lower number. Errors of
    the pool itself, which are negative, count before those of programs."""
    f.place(_NEXT).update("umax", 1 << 62)
    with f.loop() as loop:
        loop.stop(f.place(_LOCK).claim(0, 1))
        pause(f)
    failed = f.place(_FAILED)
    before, is_grave, is_kept = failed.get(), code.test("slt", 0), f.local("i1")
    is_kept.set(before.test("eq", 0) | is_grave)
    with f.unless(is_kept.get()), f.unless(before.test("slt", 0)):
        lowest = f.load("i64", f.value("ptr", _ERROR), _PROGRAM)
        is_kept.set(f.load("i64", record, _PROGRAM).test("slt", lowest))
    with f.when(is_kept.get()):
        failed.set(code)
        with f.unless(is_grave):
            f.copy(f.value("ptr", _ERROR), record, RECORD_BYTES)
    f.place(_LOCK).store(0)


@define("ptr", "ptr")
def _worker(f: Function, unused: Number) -> None:
    """The life of a worker."""
    key, state = f.place(_KEY).get(), f.place(_STATE)
    _mark(f, key, _OUTSIDE)
    with f.loop() as life:
        epoch = f.place(_EPOCH).load()
        with f.loop() as entering:
            before = state.load()
            has_room = (before >> 16 & _INSIDE).test("ult", f.place(_LIMIT).get())
            entering.stop(~(before.test("uge", _OPEN) & has_room))
            entering.next(~state.claim(before, before + (_ENTERED + 1)))
            _mark(f, key, _IN_ROUND)
            f.call(_work)
            _mark(f, key, _OUTSIDE)
            f.call(_leave)
            entering.stop()
        f.place(_SLEEPING).update("add", 1)
        f.call(wait, _EPOCH, epoch, None)
        f.place(_SLEEPING).update("sub", 1)
        life.next()


def _mark(f: Function, key: Number, value: int) -> None:
    """Set the thread-specific value of a worker."""
    f.call("pthread_setspecific", key, f.value("i64", value).to("inttoptr", "ptr"))


@define("void")
def _leave(f: Function) -> None:
    """Leave the round. The last one of a closed round wakes the launching thread."""
    state = f.place(_STATE).update("sub", 1)
    with f.when((state & (_OPEN | _INSIDE)).test("eq", 1)):
        f.place(_DONE).store(1)
        f.call(wake, _DONE, 1)


@define("void", "ptr")
def _ended(f: Function, value: Number) -> None:
    """The destructor of a worker's value, when its thread ends."""
    f.place(_ALIVE).update("sub", 1)
    with f.when(value.to("ptrtoint", "i64").test("eq", _IN_ROUND)):
        f.call(_fail, ENDED, None)
        f.call(_leave)


@define("void", "i64")
def _spawn(f: Function, wanted: Number) -> None:
    """Start workers until there are as many as are wanted, or the system refuses one."""
    alive = f.place(_ALIVE)
    with f.loop() as loop:
        loop.stop(alive.load().test("sge", wanted))
        has_key = f.place(_HAS_KEY)
        with f.when(has_key.get().test("eq", 0)):
            f.call("pthread_key_create", _KEY, _ended)
            has_key.set(1)
        alive.update("add", 1)
        loop.next(f.call(start, _worker))
        alive.update("sub", 1)
        loop.stop()
