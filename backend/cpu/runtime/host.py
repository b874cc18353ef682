"""The functions of the host that kernels call while they run, as LLVM text.

A kernel looks at the first word of `%host` after each program and in each iteration of its loops. The word is not 0 if
the kernel must call `poll`, whose result tells it to end. The *ticker*, a thread that sleeps most of the time, sets
the word of Python's main thread every 50 milliseconds, and `poll` then takes Python's lock and runs the handlers of
signals that have come. A handler that raises, as that of Ctrl-C does, ends the launch: its exception stays set in
Python, and the word is 2 until the launch is over. Launches of other threads have a host whose word is always 0.
Without the pool each launch has a copy of that host: Python's threads set its word to 2.

The ticker ends its ticks after two seconds without launches; the next launch wakes it.
"""

from __future__ import annotations

import sys
from typing import Final

STOP: Final = 2  # The first word of the host of a launch that must end.

# For each system: its clock that only moves on.
_CLOCKS: Final = {"linux": 1, "darwin": 6}

_HOST = """
%host = type { i64, ptr, ptr, ptr }
@main = internal global i64 0            ; Python's main thread
@zg_main_host = global %host { i64 0, ptr @poll, ptr @print, ptr @now }
@zg_other_host = global %host { i64 0, ptr @poll, ptr @print, ptr @now }

; Run the handlers of signals, on the main thread. The result tells the kernel to end.
define internal i64 @poll(ptr %launch) {
  %host.at = getelementptr i64, ptr %launch, i64 2
  %host = load ptr, ptr %host.at
  %word = load atomic i64, ptr %host monotonic, align 8
  %is.over = icmp eq i64 %word, STOP
  br i1 %is.over, label %stop, label %who
who:
  %main = load i64, ptr @main
  %this = call i64 @PyThread_get_thread_ident()
  %is.main = icmp eq i64 %main, %this
  br i1 %is.main, label %look, label %go
look:
  store atomic i64 0, ptr @zg_main_host monotonic, align 8
  %state = call i32 @PyGILState_Ensure()
  %status = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %state)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %go, label %raised
raised:
  store atomic i64 STOP, ptr @zg_main_host monotonic, align 8
  br label %stop
stop:
  ret i64 1
go:
  ret i64 0
}

; Call the launch's function for prints. Its exception stays set in Python, and the result tells the kernel to end.
define internal i64 @print(ptr %launch, i64 %site, i64 %program, ptr %data) {
  %function.at = getelementptr i64, ptr %launch, i64 3
  %function = load ptr, ptr %function.at
  %address = ptrtoint ptr %data to i64
  %state = call i32 @PyGILState_Ensure()
  %result = call ptr (ptr, ptr, ...) @PyObject_CallFunction(
    ptr %function, ptr @numbers, i64 %site, i64 %program, i64 %address)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %over, label %release
release:
  call void @Py_DecRef(ptr %result)
  br label %over
over:
  call void @PyGILState_Release(i32 %state)
  %code = zext i1 %failed to i64
  ret i64 %code
}

@numbers = internal constant [4 x i8] c"LLL\\00"

define void @zg_set_main(i64 %thread) {
  store i64 %thread, ptr @main
  ret void
}

NOW

declare void @Py_DecRef(ptr)
declare i32 @PyErr_CheckSignals()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyObject_CallFunction(ptr, ptr, ...)
declare i64 @PyThread_get_thread_ident()
"""
_CLOCK = """; Nanoseconds of a clock that only moves on.
define internal i64 @now() {
  %time = alloca { i64, i64 }
  %status = call i32 @clock_gettime(i32 CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr { i64, i64 }, ptr %time, i32 0, i32 1
  %rest = load i64, ptr %rest.at
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %rest
  ret i64 %sum
}

declare i32 @clock_gettime(i32, ptr)
"""
_CYCLES = """; Cycles of the processor.
define internal i64 @now() {
  %cycles = call i64 @llvm.readcyclecounter()
  ret i64 %cycles
}

declare i64 @llvm.readcyclecounter()"""

# Without the pool: run some programs without Python's lock.
_RANGE = """
define i64 @zg_unlocked(ptr %job, i64 %first, i64 %end) {
  %thread = call ptr @PyEval_SaveThread()
  %code = call i64 @zg_range(ptr %job, i64 %first, i64 %end)
  call void @PyEval_RestoreThread(ptr %thread)
  ret i64 %code
}
"""

_TICKER = """
@active = internal global i64 0          ; launches of the main thread: one may be within another's handler
@ticking = internal global i32 0         ; whether the ticker is awake; it sleeps on this word
@has_ticker = internal global i32 0
@tick = internal constant { i64, i64 } { i64 0, i64 50000000 }

; Run a job without Python's lock. If an exception is set in Python afterwards, it counts, not the result.
define i64 @zg_unlocked(ptr %job) {
  %thread = call ptr @PyEval_SaveThread()
  %launch.at = getelementptr %job, ptr %job, i32 0, i32 3
  %launch = load ptr, ptr %launch.at
  %host.at = getelementptr i64, ptr %launch, i64 2
  %main = load i64, ptr @main
  %this = call i64 @PyThread_get_thread_ident()
  %is.main = icmp eq i64 %main, %this
  br i1 %is.main, label %first, label %other
other:
  store ptr @zg_other_host, ptr %host.at
  %code.other = call i64 @zg_run(ptr %job)
  call void @PyEval_RestoreThread(ptr %thread)
  ret i64 %code.other
first:
  store ptr @zg_main_host, ptr %host.at
  %before = load i64, ptr @active
  %more = add i64 %before, 1
  store atomic i64 %more, ptr @active monotonic, align 8
  %ticking = load atomic i32, ptr @ticking monotonic, align 4
  %awake = icmp ne i32 %ticking, 0
  br i1 %awake, label %run, label %asleep
asleep:
  call void @start_ticks()
  br label %run
run:
  %code = call i64 @zg_run(ptr %job)
  store atomic i64 %before, ptr @active monotonic, align 8
  store atomic i64 0, ptr @zg_main_host monotonic, align 8
  call void @PyEval_RestoreThread(ptr %thread)
  ret i64 %code
}

define internal void @start_ticks() noinline cold {
  store atomic i32 1, ptr @ticking seq_cst, align 4
  %known = load i32, ptr @has_ticker
  %is.known = icmp ne i32 %known, 0
  br i1 %is.known, label %wake, label %start
wake:
  call void @wake(ptr @ticking, i64 1)
  ret void
start:
  store i32 1, ptr @has_ticker
  %started = call i1 @start(ptr @ticker)
  ret void
}

define internal ptr @ticker(ptr %unused) {
  br label %each
each:
  %idle = phi i64 [ 0, %0 ], [ 0, %set ], [ %idle.next, %count ], [ 0, %rest.over ]
  %slept = call i32 @usleep(i32 50000)
  %active = load atomic i64, ptr @active monotonic, align 8
  %some = icmp ne i64 %active, 0
  br i1 %some, label %set, label %count
set:
  %ignored = cmpxchg ptr @zg_main_host, i64 0, i64 1 monotonic monotonic
  br label %each
count:
  %idle.next = add i64 %idle, 1
  %tired = icmp ugt i64 %idle.next, 40
  br i1 %tired, label %rest, label %each

; A launch that has seen the ticker awake has begun by the end of one more tick, and is seen.
rest:
  store atomic i32 0, ptr @ticking seq_cst, align 4
  %slept.more = call i32 @usleep(i32 50000)
  %active.now = load atomic i64, ptr @active seq_cst, align 8
  %some.now = icmp ne i64 %active.now, 0
  br i1 %some.now, label %resume, label %sleep
resume:
  store atomic i32 1, ptr @ticking seq_cst, align 4
  br label %rest.over
sleep:
  call void @wait(ptr @ticking, i32 0, ptr null)
  %woken = load atomic i32, ptr @ticking seq_cst, align 4
  %still = icmp eq i32 %woken, 0
  br i1 %still, label %sleep, label %rest.over
rest.over:
  br label %each
}

declare i32 @usleep(i32)
"""


def text(*, pool: bool) -> str:
    """The LLVM text of the host's functions; and with the pool, of the ticker."""
    clock = _CLOCKS.get(sys.platform)
    now = _CYCLES if clock is None else _CLOCK.replace("CLOCK", str(clock))
    return _HOST.replace("NOW", now).replace("STOP", str(STOP)) + (_TICKER if pool else _RANGE)
