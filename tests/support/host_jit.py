"""LLVM text run on this machine, whatever its features.

A processor without instructions for half precision calls library routines for them, which libgcc has only since version
12, and which no other library has. So every module defines these itself. They are called with the convention with
which LLVM compiles them, so the definitions need to know nothing of the machine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ziggurat.backend.llvm.binding import llvm as bindings

# Not imported directly: LLVM looks at some of its options when a process compiles for the first time.
llvm = bindings()

# f16 to f32: the magnitude moved into place and scaled, which is exact, subnormals too; infinity and NaN apart.
_EXTEND = """
define float @__extendhfsf2(half %x) {
  %bits = bitcast half %x to i16
  %wide = zext i16 %bits to i32
  %magnitude = and i32 %wide, 32767
  %moved = shl i32 %magnitude, 13
  %small = bitcast i32 %moved to float
  %scaled = fmul float %small, 0x46F0000000000000
  %finite = bitcast float %scaled to i32
  %special = or i32 %moved, 2139095040
  %is_special = icmp uge i32 %magnitude, 31744
  %number = select i1 %is_special, i32 %special, i32 %finite
  %sign = and i32 %wide, 32768
  %top = shl i32 %sign, 16
  %made = or i32 %number, %top
  %result = bitcast i32 %made to float
  ret float %result
}
"""

# f32 to f16, to nearest, ties to even. Above the smallest normal number the bits are rounded as an integer, so that a
# carry moves on to the exponent; below it, the sum with a number whose last place weighs 2^-24 is rounded there.
_TRUNCATE = """
define half @__truncsfhf2(float %x) {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %number = bitcast i32 %magnitude to float
  %shifted = lshr i32 %magnitude, 13
  %last = and i32 %shifted, 1
  %near = add i32 %magnitude, 4095
  %even = add i32 %near, %last
  %cut = lshr i32 %even, 13
  %normal = sub i32 %cut, 114688
  %anchored = fadd float %number, 5.000000e-01
  %places = bitcast float %anchored to i32
  %low = sub i32 %places, 1056964608
  %is_low = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is_low, i32 %low, i32 %normal
  %is_over = icmp uge i32 %magnitude, 1199566848
  %bounded = select i1 %is_over, i32 31744, i32 %finite
  %payload = and i32 %shifted, 1023
  %nan = or i32 %payload, 32256
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %code = select i1 %is_nan, i32 %nan, i32 %bounded
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %made = or i32 %code, %sign
  %narrow = trunc i32 %made to i16
  %result = bitcast i16 %narrow to half
  ret half %result
}
"""

# f64 to f16 by way of f32, rounded to odd, so that the second rounding is the only one.
_TRUNCATE_DOUBLE = """
define half @__truncdfhf2(double %x) {
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %bits = bitcast float %near to i32
  %wide = bitcast double %x to i64
  %wide_size = and i64 %wide, 9223372036854775807
  %size = bitcast i64 %wide_size to double
  %made = bitcast double %back to i64
  %made_size = and i64 %made, 9223372036854775807
  %above = icmp ugt i64 %made_size, %wide_size
  %step = sext i1 %above to i32
  %cut = add i32 %bits, %step
  %odd = or i32 %cut, 1
  %finite = fcmp olt double %size, 0x7FF0000000000000
  %inexact = fcmp one double %back, %x
  %both = and i1 %finite, %inexact
  %chosen = select i1 %both, i32 %odd, i32 %bits
  %sticky = bitcast i32 %chosen to float
  %result = call half @__truncsfhf2(float %sticky)
  ret half %result
}
"""

# f32 to bf16, to the nearest even, and f64 by way of f32, rounded to odd. Processors without AVX512-BF16 have neither.
_TRUNCATE_TO_BF16 = """
define bfloat @__truncsfbf2(float %x) {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %odd = and i32 %high, 1
  %half = add i32 %odd, 32767
  %sum = add i32 %bits, %half
  %rounded = lshr i32 %sum, 16
  %magnitude = and i32 %bits, 2147483647
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %quiet = or i32 %high, 64
  %code = select i1 %is_nan, i32 %quiet, i32 %rounded
  %narrow = trunc i32 %code to i16
  %result = bitcast i16 %narrow to bfloat
  ret bfloat %result
}
"""
_TRUNCATE_DOUBLE_TO_BF16 = (
    _TRUNCATE_DOUBLE.replace("half", "bfloat").replace("__truncdfhf2", "__truncdfbf2").replace("sfhf2", "sfbf2")
)
ROUTINES = _EXTEND + _TRUNCATE + _TRUNCATE_DOUBLE + _TRUNCATE_TO_BF16 + _TRUNCATE_DOUBLE_TO_BF16


def compiled(text: str, name: str, pointers: int, *, cpu: str | None = None, features: str | None = None) -> Any:
    """The function `name` of an LLVM module, of so many pointers and a count, as a function of Python.

    It is compiled for this machine's processor, or for the one named, which this machine must be able to run.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if features is None:
        features = llvm.get_host_cpu_features().flatten() if cpu is None else ""
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu or llvm.get_host_cpu_name(), features=features, opt=2, jit=True
    )
    module: Any = llvm.parse_assembly(text + ROUTINES)
    module.verify()
    engine: Any = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * pointers, ctypes.c_int64)
    function = signature(engine.get_function_address(name))

    def call(*arguments: int, keep: Any = engine) -> None:
        function(*arguments)

    return call


def each(name: str, kinds: Sequence[str], result: str) -> str:
    """LLVM text of a loop `@each` that applies the function `name` to each element of arrays."""
    loads = [
        f"  %p{i} = getelementptr {kind}, ptr %in{i}, i64 %n\n  %x{i} = load {kind}, ptr %p{i}"
        for i, kind in enumerate(kinds)
    ]
    lines = [
        f"define void @each({', '.join(f'ptr %in{i}' for i in range(len(kinds)))}, ptr %out, i64 %count) {{",
        "entry:\n  br label %head\nhead:\n  %n = phi i64 [ 0, %entry ], [ %next, %body ]",
        "  %more = icmp slt i64 %n, %count\n  br i1 %more, label %body, label %after\nbody:", *loads,
        f"  %y = call {result} @{name}({', '.join(f'{kind} %x{i}' for i, kind in enumerate(kinds))})",
        f"  %q = getelementptr {result}, ptr %out, i64 %n\n  store {result} %y, ptr %q",
        "  %next = add i64 %n, 1\n  br label %head\nafter:\n  ret void\n}\n",
    ]  # fmt: skip
    return "\n".join(lines)
