"""Random kernels as code for aarch64, run by an emulator on any machine, compared with the interpreter.

    python tests/support/aarch64.py SEED SECONDS

draws the kernels of `native_kernels.py`, which prints those that differ. Each is linked with a program that maps the
arrays at the addresses that they have here, runs all programs of the grid on one thread, and writes the arrays back.
Needs Debian's packages qemu-user, gcc-aarch64-linux-gnu and libc6-dev-arm64-cross.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import native_kernels

from ziggurat.backend.cpu import compile as compiler
from ziggurat.backend.cpu import run as runner
from ziggurat.backend.cpu.code import HEAD, CpuCode, CpuOptions
from ziggurat.backend.cpu.runtime import kernels
from ziggurat.backend.jit.loading import llvm
from ziggurat.backend.launch import regions
from ziggurat.backend.launch.arrays import whole

OPTIONS = CpuOptions("neoverse-n1", "+neon")
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
PROGRAM = r"""
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

extern int64_t entry(const void *, int64_t, int64_t, const void *, void *, void *);

static int64_t poll(void *launch) { return 0; }
static int64_t print(void *launch, int64_t site, int64_t program, const void *data) { return 0; }
static int64_t now(void) { return 0; }
static struct { int64_t word; void *functions[3]; } host = {0, {poll, print, now}};

static void *read_all(FILE *file, int64_t size, void *to) {
  if (!to) to = aligned_alloc(64, size / 64 * 64 + 64);
  if (fread(to, 1, size, file) != (size_t)size) exit(2);
  return to;
}

int main(int count, char **names) {
  FILE *in = fopen(names[1], "rb"), *out = fopen(names[2], "wb");
  int64_t *head = read_all(in, 40, 0), record[5] = {0}, *parts[256];
  void *slots = read_all(in, head[1], 0), *launch = read_all(in, head[2], 0), *host_at = &host;
  void *scratch = memset(aligned_alloc(64, head[3] / 64 * 64 + 64), 0x5a, head[3]);
  memcpy((char *)launch + 16, &host_at, 8);
  for (int i = 0; i < head[4]; i++) {
    parts[i] = read_all(in, 16, 0);
    int64_t start = parts[i][0] & ~4095L, end = (parts[i][0] + parts[i][1] + 4095) & ~4095L;
    if (mmap((void *)start, end - start, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) exit(3);
    read_all(in, parts[i][1], (void *)parts[i][0]);
  }
  int64_t code = entry(slots, 0, head[0], launch, scratch, record);
  record[0] = code;
  fwrite(record, 8, 5, out);
  for (int i = 0; i < head[4]; i++) fwrite((void *)parts[i][0], 1, parts[i][1], out);
  return fclose(out);
}
"""


@cache
def machine(cpu: str, features: str) -> Any:
    """LLVM's code generator for aarch64."""
    llvm().initialize_all_targets()
    llvm().initialize_all_asmprinters()
    target = llvm().Target.from_triple("aarch64-unknown-linux-gnu")
    return target.create_target_machine(cpu=cpu, features=features, opt=2, reloc="pic")


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """A folder with the compiled program."""
    result = tempfile.TemporaryDirectory()
    source = Path(result.name, "program.c")
    source.write_text(PROGRAM)
    subprocess.run([COMPILER, "-O1", "-c", source, "-o", source.with_suffix(".o")], check=True)
    return result


def pages(arrays: Sequence[Any]) -> list[tuple[int, int]]:
    """The memory of arrays, in ranges of addresses that share no page."""
    results: list[tuple[int, int]] = []
    for low, high in sorted(map(regions.span, arrays)):
        if results and low // 4096 <= (results[-1][1] - 1) // 4096:
            low, high = results[-1][0], max(results.pop()[1], high)
        results.append((low, high))
    return results


class Emulated(kernels.NativeKernel):
    """A kernel whose programs an emulator runs."""

    def __init__(self, code: CpuCode, name: str) -> None:
        self.code, self.name = code, name

    def launch(self, grid: tuple[int, int, int], names: Sequence[str], values: Sequence[Any]) -> None:
        code, place = self.code, Path(folder().name)
        arrays = {at: value for at, value in enumerate(map(kernels._host, values)) if value is not None}
        memories = {at: whole(array) for at, array in arrays.items()} if code.tolerant else arrays
        slots = b"".join(kernels._slot(item, values[item.argument], arrays) for item in code.parameters)
        bounds = b"".join(kernels._BOUNDS.pack(*item) for item in kernels._bounds(code.bounds, memories))
        launch, ranges = HEAD.pack(*grid, 0, 0, 0, 0) + bounds, pages([*arrays.values()])
        (place / "kernel.o").write_bytes(code.object)
        files = [place / "program.o", place / "kernel.o", "-lm", "-o", place / "whole"]
        subprocess.run([COMPILER, "-static", f"-Wl,--defsym=entry={code.symbol}", *files], check=True)
        head = struct.pack(
            "=5q", kernels.number_of_programs(grid, ""), len(slots), len(launch), code.scratch, len(ranges)
        )
        parts = [struct.pack("=2q", low, high - low) + ctypes.string_at(low, high - low) for low, high in ranges]
        (place / "in").write_bytes(b"".join((head, slots, launch, *parts)))
        subprocess.run([EMULATOR, place / "whole", place / "in", place / "out"], check=True, timeout=300)
        result = (place / "out").read_bytes()
        at = 40
        for low, high in ranges:
            if result[at : at + high - low] != ctypes.string_at(low, high - low):  # Others may not be writable.
                ctypes.memmove(low, result[at : at + high - low], high - low)
            at += high - low
        record = struct.unpack_from("=5q", result)
        if record[0]:
            raise self.error(record, grid, names, values)


if __name__ == "__main__":
    compiler.machine = machine
    runner.NativeKernel = Emulated
    native_kernels.MACHINES = (OPTIONS,)
    native_kernels.main()
