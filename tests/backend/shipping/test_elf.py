"""Shared objects that are linked of relocatable ones, and archives of these."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess

import pytest
from shipped import needs_gcc, needs_linux

from ziggurat.backend.jit.loading import llvm
from ziggurat.backend.shipping.archive import archive
from ziggurat.backend.shipping.elf import shared_object, symbols_of
from ziggurat.backend.shipping.relocations import AARCH64
from ziggurat.codemodel.errors import InternalError, TargetError
from ziggurat.shipping.library import host_object

# Calls of the other object and of libm, an address in data, a variable that changes, and one of the other object.
FIRST = """
@table = internal constant [2 x ptr] [ptr @double_it, ptr @twice_sine], align 8
@count = internal global i64 40, align 8
@shared = external global i64
declare double @sin(double)
declare double @twice(double)
define internal double @double_it(double %x) {
  %r = fadd double %x, %x
  ret double %r
}
define double @twice_sine(double %x) {
  %s = call double @sin(double %x)
  %r = call double @twice(double %s)
  ret double %r
}
define double @by_table(i64 %which, double %x) {
  %at = getelementptr ptr, ptr @table, i64 %which
  %f = load ptr, ptr %at
  %r = call double %f(double %x)
  ret double %r
}
define i64 @next() {
  %a = load i64, ptr @count
  %b = add i64 %a, 1
  store i64 %b, ptr @count
  %c = load i64, ptr @shared
  %d = add i64 %b, %c
  ret i64 %d
}
"""
SECOND = """
@shared = global i64 1000, align 8
@room = internal global [5000 x i64] zeroinitializer, align 64
define double @twice(double %x) {
  %r = fmul double %x, 2.0
  ret double %r
}
define i64 @store(i64 %at, i64 %value) {
  %place = getelementptr i64, ptr @room, i64 %at
  %before = load i64, ptr %place
  store i64 %value, ptr %place
  ret i64 %before
}
"""
EXPORTS = "twice_sine", "by_table", "next", "store"


@pytest.fixture(scope="module")
def objects():
    return host_object([FIRST]), host_object([SECOND])


@needs_linux
def test_a_shared_object_runs(objects, tmp_path):
    path = tmp_path / "library.so"
    path.write_bytes(shared_object(objects, EXPORTS, "library.so"))
    library = ctypes.CDLL(str(path))
    double = ctypes.c_double
    for name in ("twice_sine", "by_table"):
        getattr(library, name).restype = double
    assert abs(library.twice_sine(double(0.5)) - 0.958851077208406) < 1e-15
    assert library.by_table(ctypes.c_int64(0), double(3)) == 6.0
    assert abs(library.by_table(ctypes.c_int64(1), double(0.5)) - 0.958851077208406) < 1e-15
    assert [library.next(), library.next()] == [1041, 1042]
    assert [library.store(ctypes.c_int64(4999), ctypes.c_int64(value)) for value in (7, 8)] == [0, 7]
    with pytest.raises(AttributeError):
        library.twice


@needs_linux
@pytest.mark.skipif(shutil.which("readelf") is None, reason="there is no readelf")
def test_tools_read_a_shared_object(objects, tmp_path):
    path = tmp_path / "library.so"
    path.write_bytes(shared_object(objects, EXPORTS, "library.so"))
    command = ["readelf", "--all", "--wide", "--lint", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "warning" not in (done.stdout + done.stderr).lower() and "Library soname: [library.so]" in done.stdout
    assert not [line for line in done.stdout.splitlines() if "LOAD" in line and "RWE" in line.replace(" ", "")]


@needs_linux
def test_what_cannot_be_linked_is_refused(objects):
    with pytest.raises(TargetError, match="Linux on x86-64 and Arm only"):
        shared_object([b"\xcf\xfa\xed\xfe" + bytes(100)], (), "library.so")
    with pytest.raises(InternalError, match="'twice' is defined twice"):
        shared_object([objects[1], objects[1]], (), "library.so")


ON_ARM = """
#include <dlfcn.h>
#include <stdint.h>
int main(int count, char **names) {
  void *library = dlopen(names[count - 1], RTLD_NOW);
  if (!library) return 1;
  double (*by_table)(int64_t, double) = dlsym(library, "by_table");
  int64_t (*next)(void) = dlsym(library, "next"), (*store)(int64_t, int64_t) = dlsym(library, "store");
  if (by_table(0, 3) != 6 || by_table(1, 0.5) != 0.95885107720840601) return 2;
  return next() != 1041 || next() != 1042 || store(4999, 7) != 0 || store(4999, 8) != 7;
}
"""


def arm_objects() -> list[bytes]:
    binding = llvm()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    triple = "aarch64-unknown-linux-gnu"
    machine = binding.Target.from_triple(triple).create_target_machine(opt=2, reloc="pic", codemodel="default")
    modules = [binding.parse_assembly(text) for text in (FIRST, SECOND)]
    for module in modules:
        module.triple = triple
    return [machine.emit_object(module) for module in modules]


@pytest.mark.skipif(
    not shutil.which("qemu-aarch64") or not shutil.which("aarch64-linux-gnu-gcc"),
    reason="there is no emulator of Arm: qemu-user, gcc-aarch64-linux-gnu and libc6-dev-arm64-cross",
)
def test_a_shared_object_for_arm_runs(tmp_path):
    (tmp_path / "library.so").write_bytes(shared_object(arm_objects(), EXPORTS, "library.so"))
    (tmp_path / "main.c").write_text(ON_ARM)
    subprocess.run(["aarch64-linux-gnu-gcc", "-o", "main", "main.c", "-ldl"], cwd=tmp_path, check=True, timeout=60)
    command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "./main", "./library.so"]
    assert subprocess.run(command, cwd=tmp_path, timeout=60, check=False).returncode == 0


def test_addresses_in_code_for_arm():
    """An address by ADRP and an addition or a load, and calls, for places before and after their targets."""
    rng = random.Random(0)
    for _ in range(200):
        place, target = (rng.randrange(1 << 30) * 4 for _ in range(2))
        page = int.from_bytes(AARCH64.changed(275, b"\0\0\0\x90\0\0\0\0", target, place), "little")
        distance = (page >> 5 & 0x7FFFF) << 2 | page >> 29 & 3
        distance -= (distance >> 20) << 21
        for kind, shift in ((277, 0), (285, 2)):
            low = int.from_bytes(AARCH64.changed(kind, bytes(8), target, place), "little") >> 10 & 0xFFF
            assert (place & ~0xFFF) + (distance << 12) + (low << shift) == target
        near = place + rng.randrange(-(1 << 25), 1 << 25) * 4
        call = int.from_bytes(AARCH64.changed(283, b"\0\0\0\x94" + bytes(4), near, place), "little")
        offset = call & 0x3FFFFFF
        assert call >> 26 == 0b100101 and place + 4 * (offset - (offset >> 25 << 26)) == near
    assert len(shared_object(arm_objects(), EXPORTS, "library.so")) > 0x20000


def test_an_archive_has_an_index(objects):
    members = {"a_name_of_more_than_fifteen_bytes.o": objects[0], "b.o": objects[1], "text": b"odd"}
    data = archive(members)
    assert data == archive(members) and data.startswith(b"!<arch>\n/ ")
    count = int.from_bytes(data[68:72], "big")
    symbols = [symbol for image in objects for symbol in symbols_of(image)]
    assert count == len(symbols) and data[72 + 4 * count :].startswith("\0".join(symbols).encode() + b"\0")
    for number, symbol in enumerate(symbols):
        place = int.from_bytes(data[72 + 4 * number : 76 + 4 * number], "big")
        size = int(data[place + 48 : place + 58])
        assert data[place + 60 : place + 60 + size] == objects[symbol in symbols_of(objects[1])]


@needs_gcc
@needs_linux
def test_a_linker_takes_what_it_needs_of_an_archive(objects, tmp_path):
    (tmp_path / "library.a").write_bytes(archive({"first.o": objects[0], "a_name_of_more_than_fifteen.o": objects[1]}))
    (tmp_path / "main.c").write_text("long next(void); int main(void) { return next() != 1041; }")
    command = ["gcc", "-o", "main", "main.c", "library.a", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0
