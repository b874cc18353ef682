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

import platform
from typing import Final

# For each machine: the statements that save the floating-point control register, set it to its default (round to
# nearest, keep subnormals, no traps), and restore it; the declarations they need; the number of the futex system call;
# the instruction of a waiting loop.
_X86 = (
    "  %mxcsr = alloca i32\n  %plain = alloca i32\n  store i32 8064, ptr %plain\n"
    "  call void @llvm.x86.sse.stmxcsr(ptr %mxcsr)\n  call void @llvm.x86.sse.ldmxcsr(ptr %plain)",
    "  call void @llvm.x86.sse.ldmxcsr(ptr %mxcsr)",
    "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)\n"
    "declare void @llvm.x86.sse2.pause()",
    202,
    "call void @llvm.x86.sse2.pause()",
)
_ARM = (
    "  %fpcr = call i64 @llvm.aarch64.get.fpcr()\n  call void @llvm.aarch64.set.fpcr(i64 0)",
    "  call void @llvm.aarch64.set.fpcr(i64 %fpcr)",
    "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)\n"
    "declare void @llvm.aarch64.hint(i32)",
    98,
    "call void @llvm.aarch64.hint(i32 1)",
)
_MACHINES: Final = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}
SUPPORTED: Final = platform.machine() in _MACHINES

# %job: 0 the entry, 1 its arguments, 2 the number of programs, 3 the description of the launch, 4 the bytes of scratch
# memory, 5 the number of threads, 6 the record of an error.
_SERIAL = """
%job = type { ptr, ptr, i64, ptr, i64, i64, ptr }

; Run the programs from %first to %end on this thread, in order. The result is that of the entry.
define i64 @zg_range(ptr %job, i64 %first, i64 %end) {
  %scratch.at = getelementptr %job, ptr %job, i32 0, i32 4
  %bytes = load i64, ptr %scratch.at
  %record.at = getelementptr %job, ptr %job, i32 0, i32 6
  %record = load ptr, ptr %record.at
  %few = alloca [8192 x i8], align 64
  %small = icmp ule i64 %bytes, 8192
  br i1 %small, label %run, label %large
large:
  %more = add i64 %bytes, 64
  %block = call ptr @malloc(i64 %more)
  %none = icmp eq ptr %block, null
  br i1 %none, label %full, label %align
full:
  ret i64 -2
align:
  %block.address = ptrtoint ptr %block to i64
  %block.next = add i64 %block.address, 63
  %aligned = and i64 %block.next, -64
  %inside = inttoptr i64 %aligned to ptr
  br label %run
run:
  %scratch = phi ptr [ %few, %0 ], [ %inside, %align ]
  %allocated = phi ptr [ null, %0 ], [ %block, %align ]
SAVE
  %entry = load ptr, ptr %job
  %arguments.at = getelementptr %job, ptr %job, i32 0, i32 1
  %arguments = load ptr, ptr %arguments.at
  %launch.at = getelementptr %job, ptr %job, i32 0, i32 3
  %launch = load ptr, ptr %launch.at
  %code = call i64 %entry(ptr %arguments, i64 %first, i64 %end, ptr %launch, ptr %scratch, ptr %record)
RESTORE
  br i1 %small, label %done, label %release
release:
  call void @free(ptr %allocated)
  br label %done
done:
  ret i64 %code
}

define void @zg_free(ptr %block) {
  call void @free(ptr %block)
  ret void
}

declare ptr @malloc(i64)
declare void @free(ptr)
"""

# The state of a round is one word: bits 0-15 count the workers in it, bits 16-31 those that have entered; bit 32 is
# set while it is open.
_POOL = """
@state = internal global i64 0
@epoch = internal global i32 0           ; the number of rounds; workers sleep on it
@sleeping = internal global i32 0
@done = internal global i32 0            ; the launching thread sleeps on it
@busy = internal global i32 0            ; whether a thread has the pool
@alive = internal global i64 0           ; workers
@threads = internal global i64 1         ; threads of a launch
@round = internal global %job zeroinitializer
@next = internal global i64 0            ; the first program that is not handed out
@chunk = internal global i64 1           ; programs handed out at once
@limit = internal global i64 0           ; workers that may enter
@failed = internal global i64 0          ; the code of the error with the lowest program
@error = internal global [5 x i64] zeroinitializer
@lock = internal global i32 0            ; of the error
@key = internal global i32 0             ; of the value whose destructor tells that a worker has ended
@has_key = internal global i32 0

define void @zg_set_threads(i64 %count) {
  store atomic i64 %count, ptr @threads seq_cst, align 8
  ret void
}

define i64 @zg_alive() {
  %count = load atomic i64, ptr @alive seq_cst, align 8
  ret i64 %count
}

; Forget the workers, the ticker and the round: a child process has only the thread that was forked.
define void @zg_forked() {
  store i32 0, ptr @ticking
  store i32 0, ptr @has_ticker
  %main = load i64, ptr @main
  %this = call i64 @PyThread_get_thread_ident()
  %is.main = icmp eq i64 %main, %this
  %before = load i64, ptr @active
  %active = select i1 %is.main, i64 %before, i64 0
  store i64 %active, ptr @active
  store i64 %this, ptr @main
  store i64 0, ptr @state
  store i32 0, ptr @sleeping
  store i32 0, ptr @busy
  store i64 0, ptr @alive
  store i32 0, ptr @lock
  ret void
}

; Run all programs of a job on its threads. The result is the code of the error with the lowest program, with its record
; in that of the job; 0 if there is none; -1 if a worker has ended in the middle; -2 without memory.
define i64 @zg_run(ptr %job) {
  %threads.at = getelementptr %job, ptr %job, i32 0, i32 5
  %threads = load i64, ptr %threads.at
  %total.at = getelementptr %job, ptr %job, i32 0, i32 2
  %total = load i64, ptr %total.at
  %serial.a = icmp sle i64 %threads, 1
  %serial.b = icmp sle i64 %total, 1
  %serial = or i1 %serial.a, %serial.b
  br i1 %serial, label %alone, label %begin
alone:
  %code.alone = call i64 @zg_range(ptr %job, i64 0, i64 %total)
  ret i64 %code.alone
begin:
  %start = call i64 @now()
  br label %first

; Programs on this thread alone, twice as many each time, for 20 microseconds.
first:
  %from = phi i64 [ 0, %begin ], [ %to, %timed ]
  %count = phi i64 [ 1, %begin ], [ %twice, %timed ]
  %far = add i64 %from, %count
  %to = call i64 @llvm.umin.i64(i64 %far, i64 %total)
  %code = call i64 @zg_range(ptr %job, i64 %from, i64 %to)
  %is.error = icmp ne i64 %code, 0
  %is.end = icmp eq i64 %to, %total
  %stop = or i1 %is.error, %is.end
  br i1 %stop, label %stopped, label %timed
stopped:
  ret i64 %code
timed:
  %twice = shl i64 %count, 1
  %time = call i64 @now()
  %spent = sub i64 %time, %start
  %long = icmp ugt i64 %spent, 20000
  br i1 %long, label %rest, label %first

rest:
  %claimed = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %claimed, 1
  br i1 %mine, label %open, label %other
other:
  %code.other = call i64 @zg_range(ptr %job, i64 %to, i64 %total)
  ret i64 %code.other

; Chunks of about 50 microseconds, at least four for each thread.
open:
  %left = sub i64 %total, %to
  %nanoseconds = call i64 @llvm.umax.i64(i64 %spent, i64 1)
  %scaled = mul i64 %to, 50000
  %by.time = udiv i64 %scaled, %nanoseconds
  %shares = shl i64 %threads, 2
  %by.share = udiv i64 %left, %shares
  %smaller = call i64 @llvm.umin.i64(i64 %by.time, i64 %by.share)
  %chunk = call i64 @llvm.umax.i64(i64 %smaller, i64 1)
  %wanted = sub i64 %threads, 1
  call void @llvm.memcpy.p0.p0.i64(ptr @round, ptr %job, i64 56, i1 false)
  store i64 %chunk, ptr @chunk
  store i64 %wanted, ptr @limit
  store i64 0, ptr @failed
  store atomic i64 %to, ptr @next seq_cst, align 8
  call void @spawn(i64 %wanted)
  store atomic i64 4294967296, ptr @state seq_cst, align 8
  %old.epoch = atomicrmw add ptr @epoch, i32 1 seq_cst
  %sleepers = load atomic i32, ptr @sleeping seq_cst, align 4
  %any = icmp sgt i32 %sleepers, 0
  br i1 %any, label %wake, label %join
wake:
  %chunks.less = udiv i64 %left, %chunk
  %useful = call i64 @llvm.umin.i64(i64 %wanted, i64 %chunks.less)
  call void @wake(ptr @epoch, i64 %useful)
  br label %join
join:
  call void @work()
  %closing = atomicrmw and ptr @state, i64 4294967295 seq_cst
  br label %spin

; Wait for the workers that have entered: a moment without sleep, then asleep.
spin:
  %turn = phi i64 [ 0, %join ], [ %turn.next, %spin.more ]
  %now = load atomic i64, ptr @state seq_cst, align 8
  %inside = and i64 %now, 65535
  %over = icmp eq i64 %inside, 0
  br i1 %over, label %closed, label %spin.more
spin.more:
  PAUSE
  %turn.next = add i64 %turn, 1
  %patient = icmp ult i64 %turn.next, 500
  br i1 %patient, label %spin, label %asleep
asleep:
  store atomic i32 0, ptr @done seq_cst, align 4
  %state.now = load atomic i64, ptr @state seq_cst, align 8
  %inside.now = and i64 %state.now, 65535
  %over.now = icmp eq i64 %inside.now, 0
  br i1 %over.now, label %closed, label %wait.done
wait.done:
  call void @wait(ptr @done, i32 0, ptr @tick)
  %launch.at = getelementptr %job, ptr %job, i32 0, i32 3
  %launch = load ptr, ptr %launch.at
  %host.at = getelementptr i64, ptr %launch, i64 2
  %host = load ptr, ptr %host.at
  %word = load atomic i64, ptr %host monotonic, align 8
  %quiet = icmp eq i64 %word, 0
  br i1 %quiet, label %asleep, label %poll
poll:
  %told = call i64 @poll(ptr %launch)
  br label %asleep
closed:
  %failed = load i64, ptr @failed
  %record.at = getelementptr %job, ptr %job, i32 0, i32 6
  %record = load ptr, ptr %record.at
  call void @llvm.memcpy.p0.p0.i64(ptr %record, ptr @error, i64 40, i1 false)
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret i64 %failed
}

; Run chunks of the round until none is left.
define internal void @work() {
  %record = alloca [5 x i64]
  %job = alloca %job
  call void @llvm.memcpy.p0.p0.i64(ptr %job, ptr @round, i64 56, i1 false)
  %record.at = getelementptr %job, ptr %job, i32 0, i32 6
  store ptr %record, ptr %record.at
  %total.at = getelementptr %job, ptr %job, i32 0, i32 2
  %total = load i64, ptr %total.at
  %chunk = load i64, ptr @chunk
  br label %take
take:
  %from = atomicrmw add ptr @next, i64 %chunk seq_cst
  %some = icmp ult i64 %from, %total
  br i1 %some, label %run, label %out
run:
  %far = add i64 %from, %chunk
  %to = call i64 @llvm.umin.i64(i64 %far, i64 %total)
  %code = call i64 @zg_range(ptr %job, i64 %from, i64 %to)
  %fine = icmp eq i64 %code, 0
  br i1 %fine, label %take, label %error
error:
  call void @fail(i64 %code, ptr %record)
  br label %out
out:
  ret void
}

; Hand out no further programs, and keep the error unless there is one of a program with a lower number. Errors of the
; pool itself, which are negative, count before those of programs.
define internal void @fail(i64 %code, ptr %record) {
  %ignored = atomicrmw umax ptr @next, i64 4611686018427387904 seq_cst
  br label %try
try:
  %claimed = cmpxchg ptr @lock, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %claimed, 1
  br i1 %mine, label %locked, label %again
again:
  PAUSE
  br label %try
locked:
  %before = load i64, ptr @failed
  %is.first = icmp eq i64 %before, 0
  %is.grave = icmp slt i64 %code, 0
  %take.it = or i1 %is.first, %is.grave
  br i1 %take.it, label %keep, label %compare
compare:
  %was.grave = icmp slt i64 %before, 0
  %program.at = getelementptr i64, ptr %record, i64 1
  %program = load i64, ptr %program.at
  %lowest = load i64, ptr getelementptr (i64, ptr @error, i64 1)
  %lower = icmp slt i64 %program, %lowest
  %is.lower = select i1 %was.grave, i1 false, i1 %lower
  br i1 %is.lower, label %keep, label %unlock
keep:
  store i64 %code, ptr @failed
  br i1 %is.grave, label %unlock, label %copy
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr @error, ptr %record, i64 40, i1 false)
  br label %unlock
unlock:
  store atomic i32 0, ptr @lock seq_cst, align 4
  ret void
}

; The life of a worker. Its thread-specific value is 1 outside of rounds and 2 in one.
define internal ptr @worker(ptr %unused) {
  %key = load i32, ptr @key
  %set = call i32 @pthread_setspecific(i32 %key, ptr inttoptr (i64 1 to ptr))
  br label %look
look:
  %epoch = load atomic i32, ptr @epoch seq_cst, align 4
  br label %enter
enter:
  %state = load atomic i64, ptr @state seq_cst, align 8
  %open = icmp uge i64 %state, 4294967296
  %high = lshr i64 %state, 16
  %entered = and i64 %high, 65535
  %limit = load i64, ptr @limit
  %room = icmp ult i64 %entered, %limit
  %may = and i1 %open, %room
  br i1 %may, label %try, label %sleep
try:
  %more = add i64 %state, 65537
  %claimed = cmpxchg ptr @state, i64 %state, i64 %more seq_cst seq_cst
  %inside = extractvalue { i64, i1 } %claimed, 1
  br i1 %inside, label %run, label %enter
run:
  %set.2 = call i32 @pthread_setspecific(i32 %key, ptr inttoptr (i64 2 to ptr))
  call void @work()
  %set.3 = call i32 @pthread_setspecific(i32 %key, ptr inttoptr (i64 1 to ptr))
  call void @leave()
  br label %sleep
sleep:
  %more.sleep = atomicrmw add ptr @sleeping, i32 1 seq_cst
  call void @wait(ptr @epoch, i32 %epoch, ptr null)
  %less.sleep = atomicrmw sub ptr @sleeping, i32 1 seq_cst
  br label %look
}

; Leave the round. The last one of a closed round wakes the launching thread.
define internal void @leave() {
  %state = atomicrmw sub ptr @state, i64 1 seq_cst
  %low = and i64 %state, 4295032831
  %is.last = icmp eq i64 %low, 1
  br i1 %is.last, label %tell, label %out
tell:
  store atomic i32 1, ptr @done seq_cst, align 4
  call void @wake(ptr @done, i64 1)
  br label %out
out:
  ret void
}

; The destructor of a worker's value, when its thread ends.
define internal void @ended(ptr %value) {
  %less = atomicrmw sub ptr @alive, i64 1 seq_cst
  %number = ptrtoint ptr %value to i64
  %inside = icmp eq i64 %number, 2
  br i1 %inside, label %abandon, label %out
abandon:
  call void @fail(i64 -1, ptr null)
  call void @leave()
  br label %out
out:
  ret void
}

; Start workers until there are %wanted of them, or the system refuses one.
define internal void @spawn(i64 %wanted) {
  br label %each
each:
  %now = load atomic i64, ptr @alive seq_cst, align 8
  %more = icmp slt i64 %now, %wanted
  br i1 %more, label %key, label %out
key:
  %known = load i32, ptr @has_key
  %is.known = icmp ne i32 %known, 0
  br i1 %is.known, label %create, label %make.key
make.key:
  %made = call i32 @pthread_key_create(ptr @key, ptr @ended)
  store i32 1, ptr @has_key
  br label %create
create:
  %counted = atomicrmw add ptr @alive, i64 1 seq_cst
  %started = call i1 @start(ptr @worker)
  br i1 %started, label %each, label %refused
refused:
  %uncounted = atomicrmw sub ptr @alive, i64 1 seq_cst
  br label %out
out:
  ret void
}

; Start a thread that gets no signals. The result tells whether the system has let it.
define internal i1 @start(ptr %function) {
  %thread = alloca i64
  %all = alloca [128 x i8], align 8
  %before = alloca [128 x i8], align 8
  %filled = call i32 @sigfillset(ptr %all)
  %blocked = call i32 @pthread_sigmask(i32 0, ptr %all, ptr %before)
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr %function, ptr null)
  %restored = call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  %started = icmp eq i32 %status, 0
  br i1 %started, label %detach, label %out
detach:
  %id = load i64, ptr %thread
  %detached = call i32 @pthread_detach(i64 %id)
  br label %out
out:
  ret i1 %started
}

; Sleep while a word has this value; no longer than %time, if it is not null.
define internal void @wait(ptr %word, i32 %value, ptr %time) {
  %ignored = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 128, i32 %value, ptr %time, ptr null, i32 0)
  ret void
}

define internal void @wake(ptr %word, i64 %count) {
  %number = trunc i64 %count to i32
  %ignored = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 129, i32 %number, ptr null, ptr null, i32 0)
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_key_create(ptr, ptr)
declare i32 @pthread_setspecific(i32, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
"""


def text(*, pool: bool) -> str:
    """The LLVM text of `zg_range`, which runs programs on the calling thread; and of the pool."""
    save, restore, declarations, futex, pause = _MACHINES.get(platform.machine(), ("", "", "", 0, ""))
    whole = _SERIAL.replace("SAVE\n", f"{save}\n").replace("RESTORE\n", f"{restore}\n") + declarations
    if pool:
        whole += _POOL.replace("PAUSE", pause).replace("FUTEX", str(futex))
    return whole
