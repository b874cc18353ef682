"""Kernels written as LLVM text that has the entry's interface (docs/design/008-cpu.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ziggurat.backend.cpu.code import ArgumentSlot, CpuCode
from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.jit.loading import llvm

_TEXT = """
{more}
define i64 @zg_test(ptr %arguments, i64 %first, i64 %end, ptr %launch, ptr %scratch, ptr %record) {{
entry:
{loads}
  %low.at = getelementptr i64, ptr %launch, i64 5
  %high.at = getelementptr i64, ptr %launch, i64 6
  %writable.at = getelementptr i64, ptr %launch, i64 7
  br label %each
each:
  %program = phi i64 [ %first, %entry ], [ %next, %following ]
  %some = icmp slt i64 %program, %end
  br i1 %some, label %body, label %done
body:
{body}
  br label %following
following:
  %next = add i64 %program, 1
  br label %each
fail:
  store i64 1, ptr %record
  %program.at = getelementptr i64, ptr %record, i64 1
  store i64 %program, ptr %program.at
  ret i64 1
done:
  ret i64 0
}}
"""
_LLVM = {"i32": "i32", "i64": "i64", "f32": "float", "f64": "double", "i1": "i8"}


def compiled(types: str, body: str, *, bounds: tuple[int, ...] = (), more: str = "", **facts: Any) -> CpuCode:
    """The code of a kernel whose parameters have these types. `body` is run for each `%program`, and has the
    parameters as `%p0` …; it may go to `%fail`, an error of the program."""
    names = types.split()
    loads = "\n".join(
        f"  %a{n} = getelementptr i64, ptr %arguments, i64 {n}\n"
        f"  %p{n} = load {'ptr' if type_.startswith('ptr') else _LLVM[type_]}, ptr %a{n}"
        for n, type_ in enumerate(names)
    )
    binding = llvm()
    machine = binding.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="default")
    text = _TEXT.format(loads=loads, body=body, more=more)
    module = binding.parse_assembly(text)
    module.verify()
    parameters = tuple(ArgumentSlot(type_, number) for number, type_ in enumerate(names))
    settings = {"scratch": 0, "ordered": False, "sites": (), "cpu": "", "features": "", **facts}
    return CpuCode(
        symbol="zg_test", object=machine.emit_object(module), llvm=text, model="", parameters=parameters,
        bounds=bounds, **settings,
    )  # fmt: skip


@pytest.fixture
def made() -> Callable[..., NativeKernel]:
    """`made("ptr<i32> i32", body)`: the kernel of LLVM text, loaded."""
    return lambda *argument, **facts: NativeKernel(compiled(*argument, **facts), "kernel")
