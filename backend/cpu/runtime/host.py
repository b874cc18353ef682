"""The functions of the host that kernels call while they run, as LLVM text.

A kernel looks at the word of the host, `HOST`, after each program and in each iteration of its loops. The word is not 0
if the kernel must call `poll`, whose result tells it to end. The *ticker* (`ticker.py`) sets the word of Python's main
thread every 50 milliseconds, and `poll` then takes Python's lock and runs the handlers of signals that have come. A
handler that raises, as that of Ctrl-C does, ends the launch: its exception stays set in Python, and the word is 2 until
the launch is over. Launches of other threads have a host whose word is always 0. Without the pool each launch has a
copy of that host: Python's threads set its word to 2.

A loop that waits for memory to change asks `waits` in each iteration whether to give up. Programs of one launch run one
after the other there, so that it gives up soon. Where others run meanwhile (`devices.py`), it waits on.
"""

from __future__ import annotations

import sys
from typing import Final

from ziggurat.backend.cpu.code import HOST, LAUNCH, MAX_WAITS
from ziggurat.backend.cpu.runtime.threads import now
from ziggurat.backend.llvm.functions import Function, Global, Struct, define, moved
from ziggurat.backend.llvm.routines import Number

# The host of a launch beside which others run: whether waiting loops give up, and for each program a `WAIT`: the number
# of loops in which it has waited, and of their iterations.
SHARED_HOST: Final = Struct(**HOST.kinds, stop="i64", waiting="ptr")
WAIT: Final = Struct(loops="i64", rounds="i64")
HAS_YIELD: Final = sys.platform != "win32"
STOP: Final = 2  # The word of the host of a launch that must end.
MAIN: Final = Global("main", "i64")  # Python's main thread.
_NUMBERS: Final = Global("numbers", "[4 x i8]", 'c"LLL\\00"', constant=True)


@define("i64", "ptr")
def poll(f: Function, launch: Number) -> None:
    """Run the handlers of signals, on the main thread. The result tells the kernel to end."""
    host = HOST.at(LAUNCH.at(launch)["host"])
    with f.when(host.place("word").load("monotonic").test("eq", STOP)):
        f.give(1)
    with f.when(f.place(MAIN).get().test("eq", f.call("PyThread_get_thread_ident"))):
        word = HOST.at(f.value("ptr", MAIN_HOST)).place("word")
        word.store(0, "monotonic")
        state = f.call("PyGILState_Ensure")
        status = f.call("PyErr_CheckSignals")
        f.call("PyGILState_Release", state)
        with f.when(status.test("ne", 0)):
            word.store(STOP, "monotonic")
            f.give(1)
    f.give(0)


@define("i64", "ptr i64 i64 ptr")
def printer(f: Function, launch: Number, site: Number, program: Number, data: Number) -> None:
    """Call the launch's function for prints. Its exception stays set in Python, and the result tells the kernel to
    end."""
    function, place = LAUNCH.at(launch)["printer"], data.to("ptrtoint", "i64")
    state = f.call("PyGILState_Ensure")
    result = f.call("PyObject_CallFunction", function, _NUMBERS, site, program, place)
    failed = result.test("eq", 0)
    with f.unless(failed):
        f.call("Py_DecRef", result)
    f.call("PyGILState_Release", state)
    f.give(failed.to("zext", "i64"))


@define("i64", "ptr i64 i64")
def waits(f: Function, launch: Number, program: Number, rounds: Number) -> None:
    """Whether a waiting loop of a program gives up, after some iterations."""
    f.give(rounds.test("uge", MAX_WAITS).to("zext", "i64"))


@define("i64", "ptr i64 i64", linkage="external")
def zg_waits_on(f: Function, launch: Number, program: Number, rounds: Number) -> None:
    """Note that a program waits, and let other threads run. It gives up where the host says so."""
    host = SHARED_HOST.at(LAUNCH.at(launch)["host"])
    wait = WAIT.at(moved(host["waiting"], program * WAIT.size))
    with f.when(rounds.test("eq", 0)):
        wait["loops"] = wait["loops"] + 1
    wait.place("rounds").store(wait["rounds"] + 1, "monotonic")
    f.call("sched_yield")
    f.give(host.place("stop").load("monotonic"))


MAIN_HOST: Final = Global("zg_main_host", HOST, 0, poll, printer, now, waits, "null")
OTHER_HOST: Final = Global("zg_other_host", HOST, 0, poll, printer, now, waits, "null", exported=True)


@define("void", "i64", linkage="external")
def zg_set_main(f: Function, thread: Number) -> None:
    """Remember the main thread."""
    f.place(MAIN).set(thread)


@define("void", "ptr", linkage="external")
def zg_free(f: Function, block: Number) -> None:
    """Free what a kernel has allocated."""
    f.call("free", block)
