"""Launches with known kinds of arguments, as LLVM text: a built-in function of Python that checks and packs arguments.

A call through ctypes, and reading the address of a NumPy array in Python, each take longer than a NumPy function on a
small array. `zg_launch` is called as Python calls built-in functions (`METH_FASTCALL | METH_KEYWORDS`). Its `self` is a
tuple: the grid as bytes, a list of plans, and the function that is called where no plan fits.

A *plan* is a tuple as well: a table as bytes, the result of the launch, and the function that is called with an error.
The table says for each parameter which objects fit, and where their values go; `TABLE` and `ENTRY` are its layout. What
a plan cannot express (tensor descriptors, tuples, arrays of other libraries) is launched by `kernels.py` in Python.
"""

from __future__ import annotations

import struct
from typing import Final

from ziggurat.backend.cpu.runtime import fitting, spans
from ziggurat.backend.launch import checks

# The head of a table: the entry; bytes of scratch memory; whether programs run in order; numbers of parameters and
# entries; whether a program may reach all memory that an array is a view of; `True`; of torch's tensors the name of the
# element type's attribute, the methods of tensors and storages, and functions: those of attributes, and of the layout.
TABLE: Final = struct.Struct("=QqqqqqQ11Q")
METHODS: Final = ("is_contiguous", "is_neg", "numel", "data_ptr", "untyped_storage")
STORAGE_METHODS: Final = ("nbytes", "data_ptr")
ATTRIBUTES: Final = ("is_cpu", "is_nested")
# An entry: the name of the parameter or option, its value where the launch leaves it out (or 0), the kind, the type,
# the constant or dtype, the least and the largest integer (of an array, the size of its elements in bytes), the slot,
# the number among the bounds (or -1), and rules for the value. Of an array also the axis whose stride is a number
# of the launch, where the array is not contiguous (-1 if that is not asked, `NO_AXIS` if it must be), the entry of that
# number (or -1), and the number where the launch leaves it out.
ENTRY: Final = struct.Struct("=QQqQQqqqqqqqq")
NUMPY, TORCH = checks.OWN, checks.OWN + 1
GRID: Final = struct.Struct("=iiiiq")  # Three sizes, 0, and the number of programs.
# Launches with more parameters or arrays have no plan.
MAX_ENTRIES: Final = 64
UNUSED: Final = MAX_ENTRIES  # The slot of values that the entry does not get.
MAX_ARRAYS: Final = 24

_FIT = "@fit(ptr %table, ptr %given, i64 %count, ptr %names, ptr %slots, ptr %launch)"
_TEXT = f"""
%entry = type {{ ptr, ptr, i64, ptr, ptr, i64, i64, i64, i64, i64, i64, i64, i64 }}
%table = type {{ ptr, i64, i64, i64, i64, i64, ptr, [11 x ptr], [0 x %entry] }}
%plans = type {{ ptr, ptr, ptr }}

define ptr @zg_launch(ptr %self, ptr %given, i64 %count, ptr %names) {{
  %slots = alloca [65 x i64], align 8
  %launch = alloca [77 x i64], align 8
  %record = alloca [6 x i64], align 8
  %job = alloca %job
  %grid.object = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %grid = call ptr @PyBytes_AsString(ptr %grid.object)
  %plans = call ptr @PyTuple_GetItem(ptr %self, i64 1)
{checks.each_plan(_FIT, "%other")}
other:
  %slow = call ptr @PyTuple_GetItem(ptr %self, i64 2)
  %answer = call ptr @PyObject_Vectorcall(ptr %slow, ptr %given, i64 %count, ptr %names)
  ret ptr %answer
run:
  call void @llvm.memcpy.p0.p0.i64(ptr %launch, ptr %grid, i64 16, i1 false)
  %notes.at = getelementptr i64, ptr %launch, i64 4
  store i64 0, ptr %notes.at
  %print.at = getelementptr i64, ptr %launch, i64 3
  store i64 0, ptr %print.at
  %entry = load ptr, ptr %table
  store ptr %entry, ptr %job
  %job.1 = getelementptr %job, ptr %job, i32 0, i32 1
  store ptr %slots, ptr %job.1
  %total.at = getelementptr i64, ptr %grid, i64 2
  %total = load i64, ptr %total.at, align 1
  %job.2 = getelementptr %job, ptr %job, i32 0, i32 2
  store i64 %total, ptr %job.2
  %job.3 = getelementptr %job, ptr %job, i32 0, i32 3
  store ptr %launch, ptr %job.3
{checks.loads("table", "table", scratch=1, ordered=2)}
  %job.4 = getelementptr %job, ptr %job, i32 0, i32 4
  store i64 %scratch, ptr %job.4
  %is.ordered = icmp ne i64 %ordered, 0
  %all.threads = load atomic i64, ptr @threads seq_cst, align 8
  %threads = select i1 %is.ordered, i64 1, i64 %all.threads
  %job.5 = getelementptr %job, ptr %job, i32 0, i32 5
  store i64 %threads, ptr %job.5
  %job.6 = getelementptr %job, ptr %job, i32 0, i32 6
  store ptr %record, ptr %job.6
  %code = call i64 @zg_unlocked(ptr %job)
  %exception = call ptr @PyErr_Occurred()
  %no.exception = icmp eq ptr %exception, null
  br i1 %no.exception, label %over, label %interrupted
interrupted:
  %lost = load ptr, ptr %notes.at
  call void @free(ptr %lost)
  call void @Py_DecRef(ptr %plan)
  ret ptr null
over:
  %notes = load i64, ptr %notes.at
  %told = or i64 %code, %notes
  %fine = icmp eq i64 %told, 0
  br i1 %fine, label %done, label %error
done:
{checks.RESULT}
error:
  store i64 %code, ptr %record
  %record.notes = getelementptr i64, ptr %record, i64 5
  store i64 %notes, ptr %record.notes
  %failed = call ptr @PyTuple_GetItem(ptr %plan, i64 2)
  %record.object = call ptr @PyBytes_FromStringAndSize(ptr %record, i64 48)
  %values = call ptr @values(ptr %given, i64 %count, ptr %names)
  %is.named = icmp ne ptr %names, null
  br i1 %is.named, label %call.named, label %call.unnamed
call.named:
  call void @Py_IncRef(ptr %names)
  br label %call
call.unnamed:
  %no.names = call ptr @PyTuple_New(i64 0)
  br label %call
call:
  %names.tuple = phi ptr [ %names, %call.named ], [ %no.names, %call.unnamed ]
  %raised = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(
    ptr %failed, ptr %record.object, ptr %grid.object, ptr %values, ptr %names.tuple, ptr null)
  call void @Py_DecRef(ptr %names.tuple)
  call void @Py_DecRef(ptr %values)
  call void @Py_DecRef(ptr %record.object)
  call void @Py_DecRef(ptr %plan)
  ret ptr %raised
}}

; All values of a call as a tuple, those of keywords last.
define internal ptr @values(ptr %given, i64 %count, ptr %names) {{
  %no.names = icmp eq ptr %names, null
  br i1 %no.names, label %make, label %named
named:
  %size = call i64 @PyTuple_Size(ptr %names)
  br label %make
make:
  %more = phi i64 [ 0, %0 ], [ %size, %named ]
  %all = add i64 %count, %more
  %tuple = call ptr @PyTuple_New(i64 %all)
  br label %each
each:
  %number = phi i64 [ 0, %make ], [ %next, %one ]
  %left = icmp slt i64 %number, %all
  br i1 %left, label %one, label %done
one:
  %at = getelementptr ptr, ptr %given, i64 %number
  %value = load ptr, ptr %at
  call void @Py_IncRef(ptr %value)
  %status = call i32 @PyTuple_SetItem(ptr %tuple, i64 %number, ptr %value)
  %next = add i64 %number, 1
  br label %each
done:
  ret ptr %tuple
}}
"""

# A function of Python that makes launchers: its own `self` is the address of their method definition.
NEW: Final = """
define ptr @zg_new(ptr %self, ptr %given, i64 %count) {
  %definition = call ptr @PyLong_AsVoidPtr(ptr %self)
  %own = load ptr, ptr %given
  %function = call ptr @PyCFunction_NewEx(ptr %definition, ptr %own, ptr null)
  ret ptr %function
}
"""

TEXT: Final = _TEXT + NEW + spans.TEXT + fitting.TEXT
