"""Programs of a library on the calling thread, as LLVM text: `zg_run`."""

from __future__ import annotations

import platform
from typing import Final

from ziggurat.backend.cpu.code import BOUND, BOUNDS, HOST, LAUNCH, MAX_WAITS_BESIDE
from ziggurat.backend.cpu.runtime.host import waits
from ziggurat.backend.cpu.runtime.pool import JOB, NO_MEMORY, RECORD_BYTES, run_programs
from ziggurat.backend.cpu.runtime.threads import now
from ziggurat.backend.llvm.functions import Function, Global, define, moved
from ziggurat.backend.llvm.routines import Number
from ziggurat.backend.shipping.launches import fail, fill, obstacle, row, text
from ziggurat.backend.shipping.structures import (
    FAMILY,
    HOST_CODE,
    INVALID_VALUE,
    NO_BINARY,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    VARIANT,
)

# A program never calls `poll`, as the word stays 0, nor `printer`, as no kernel of a library prints.
_HOST: Final = Global("zg_host", HOST, 0, "null", "null", now, waits, "null")


@define("i64", "ptr i64 i64")
def _waits_beside(f: Function, launch: Number, program: Number, rounds: Number) -> None:
    """Whether a waiting loop gives up, where the caller may run the other programs on other threads."""
    f.call("sched_yield")
    f.give(rounds.test("uge", MAX_WAITS_BESIDE).to("zext", "i64"))


_HOST_BESIDE: Final = Global("zg_host_beside", HOST, 0, "null", "null", now, _waits_beside, "null")
_OUTSIDE: Final = text("zg_outside", "the programs to run must be in the grid: 0 <= first, last <= its size")
_NO_MEMORY: Final = text("zg_no_memory", "there is no memory for the scratch of a program")
_IS_X86: Final = platform.machine() in ("x86_64", "AMD64")
# Features of x86-64 that are checked, by LLVM's names: their bits in ECX of CPUID's leaf 1, and 32 more in EBX of leaf
# 7 (Intel's manual, volume 2, CPUID).
FEATURES: Final = {
    "sse3": 0, "ssse3": 9, "fma": 12, "sse4.1": 19, "sse4.2": 20, "movbe": 22, "popcnt": 23, "avx": 28, "f16c": 29,
    "bmi": 35, "avx2": 37, "bmi2": 40, "avx512f": 48, "avx512dq": 49, "avx512cd": 60, "avx512bw": 62, "avx512vl": 63,
}  # fmt: skip
_ASKED: Final = 1 << 31  # The bit of ECX that no feature has: set once the others are there.
_PROCESSOR: Final = Global("zg_processor", "i64")
_SITE: Final = 16  # The place of the number of a site in a record.


def feature_bits(features: str) -> int:
    """The bits of features in LLVM's form, "+avx2,-avx512f", as a signed number of 64 bits."""
    names = {name[1:] for name in features.split(",") if name.startswith("+")}
    bits = sum(1 << bit for name, bit in FEATURES.items() if name in names) if _IS_X86 else 0
    return bits - (bits >> 63 << 64)


@define("i64")
def _features(f: Function) -> None:
    """The features of this processor. It is asked once: a virtual machine takes microseconds to answer."""
    before = f.place(_PROCESSOR).load()
    with f.when(before.test("ne", 0)):
        f.give(before)
    words: list[Number] = []
    for leaf, register in ((1, 2), (7, 1)):
        outputs = "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"
        answer = f.emit(f'call {{ i32, i32, i32, i32 }} asm "cpuid", "{outputs}"(i32 {leaf}, i32 0)')
        word = f.emit(f"extractvalue {{ i32, i32, i32, i32 }} {answer}, {register}")
        words.append(Number(f, "i32", word).to("zext", "i64"))
    features = words[0] | words[1] << 32 | _ASKED
    f.place(_PROCESSOR).store(features)
    f.give(features)


@define("i32", "ptr ptr i64 i64 ptr", linkage="external")
def zg_run(f: Function, family: Number, grid: Number, first: Number, last: Number, slots: Number) -> None:
    """Run programs of the first variant that fits: 0, or the code of the failure."""
    x, y, z = (f.load("i32", grid, 4 * axis).to("zext", "i64") for axis in range(3))
    with f.when(first.test("slt", 0) | last.test("sgt", x * y * z)):
        fail(f, INVALID_VALUE, _OUTSIDE)
    reason = f.local("ptr")
    reason.set(FAMILY.at(family)["obstacle"])
    with f.count(FAMILY.at(family)["count"]) as loop:
        variant = row(VARIANT, FAMILY.at(family)["variants"], loop.index)
        code = variant["host"]
        loop.next(code.test("eq", 0))
        if _IS_X86:
            required = HOST_CODE.at(code)["features"]
            with f.unless((required & f.call(_features)).test("eq", required)):
                fail(f, NO_BINARY, HOST_CODE.at(code)["lacks"])
        reason.set(f.call(obstacle, variant["conditions"], variant["condition_count"], slots))
        loop.next(reason.get().test("ne", 0))
        f.give(f.call(_run, code, grid, first, last, slots))
    fail(f, NOT_SUPPORTED, reason.get())


@define("i32", "ptr ptr i64 i64 ptr")
def _run(f: Function, at: Number, grid: Number, first: Number, last: Number, slots: Number) -> None:
    code = HOST_CODE.at(at)
    size = code["bounds"] * BOUND.size + BOUNDS
    launch, arguments = f.room(size), f.room(code["count"] * 8 + 8)
    record, job_at = f.room(RECORD_BYTES), f.room(JOB.size)
    f.clear(launch, size)  # Without bounds, as C gives addresses alone.
    f.copy(launch, grid, 12)
    x, y, z = (f.load("i32", grid, 4 * axis).to("zext", "i64") for axis in range(3))
    is_alone = (last - first).test("ne", 1) | (x * y * z).test("eq", 1)
    LAUNCH.at(launch)["host"] = is_alone.select(f.value("ptr", _HOST), f.value("ptr", _HOST_BESIDE))
    f.call(fill, code["parameters"], code["count"], slots, arguments)
    job = JOB.at(job_at)
    job["entry"], job["arguments"], job["launch"], job["record"] = code["entry"], arguments, launch, record
    job["total"], job["scratch"], job["threads"] = last, code["scratch"], 1
    status = f.call(run_programs, job_at, first, last)
    with f.when(status.test("eq", NO_MEMORY)):
        fail(f, OUT_OF_MEMORY, _NO_MEMORY)
    with f.when(status.test("ne", 0)):
        message = f.load("ptr", moved(code["sites"], f.load("i64", record, _SITE) << 3))
        fail(f, status.to("trunc", "i32"), message)
    f.give(0)
