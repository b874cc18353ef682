"""The notes of a tolerant kernel: accesses and divisions that it leaves out, as LLVM text."""

from __future__ import annotations

from typing import Final

from ziggurat.backend.cpu.code import LAUNCH
from ziggurat.backend.jit.symbols import SYMBOLS
from ziggurat.backend.llvm.functions import Function, Global, Struct, define, module, moved
from ziggurat.backend.llvm.routines import Number

NOTE: Final = Struct(after="i64", address="i64", value="i64")  # For each site; `after` is 0 without a note.
_LOCK: Final = Global("lock", "i32")


def text(sites: int) -> str:
    """The LLVM text of `zg_note`, which notes for each site 1 + the lowest program, the address and the value.

    The notes are the launch's, which frees them; without memory for them there are none.
    """

    @define("void", "i64 i64 i64 i64 ptr", attributes="noinline cold nounwind")
    def zg_note(f: Function, site: Number, program: Number, address: Number, value: Number, launch: Number) -> None:
        lock, notes = f.place(_LOCK), LAUNCH.at(launch).place("notes")
        with f.loop() as loop:
            loop.stop(lock.claim(0, 1))
        with f.when(notes.get().test("eq", 0)):
            notes.set(f.call("calloc", sites, NOTE.size))
        with f.unless(notes.get().test("eq", 0)):
            note = NOTE.at(moved(notes.get(), site * NOTE.size))
            with f.when(program.test("ult", note["after"] - 1)):
                note["after"], note["address"], note["value"] = program + 1, address, value
        lock.store(0)

    return module([zg_note], SYMBOLS)
