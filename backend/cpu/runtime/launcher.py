"""Launches with known kinds of arguments, as LLVM text: a built-in function of Python that checks and packs arguments.

A call through ctypes, and reading the address of a NumPy array in Python, each take longer than a NumPy function on a
small array. `zg_launch` is called as Python calls built-in functions (`METH_FASTCALL | METH_KEYWORDS`). Its `self` is a
tuple: the grid as bytes, a list of plans, and the function that is called where no plan fits.

A *plan* is a tuple as well: a table as bytes, the result of the launch, and the function that is called with an error.
The table says for each parameter which objects fit, and where their values go; `TABLE` and `ENTRY` are its layout. What
a plan cannot express (tensor descriptors, tuples, arrays of other libraries) is launched by `kernels.py` in Python.

NumPy's arrays are read by their C structure, whose layout is part of NumPy's ABI; `kernels.py` checks it once.
"""

from __future__ import annotations

import struct
from typing import Final

# The head of a table: the entry; bytes of scratch memory; whether programs run in order; numbers of parameters and
# entries; whether a program may reach all memory that an array is a view of; `True`; the names of attributes of torch's
# tensors and their storages.
TABLE: Final = struct.Struct("=QqqqqqQ7Q")
ATTRIBUTES: Final = ("dtype", "is_cpu", "is_contiguous", "numel", "data_ptr", "untyped_storage", "nbytes")
# An entry: the name of the parameter or option, its value where the launch leaves it out (or 0), the kind, the type,
# the constant or dtype, the least and the largest integer (of an array, the size of its elements in bytes), the slot,
# the number among the bounds (or -1), and rules for the value.
ENTRY: Final = struct.Struct("=QQqQQqqqqq")
CONSTANT, INTEGER, F32, F64, BOOLEAN, NUMPY, TORCH = range(7)
DIVISIBLE, NOT_DIVISIBLE, NOT_ONE = 1, 2, 4
GRID: Final = struct.Struct("=iiiiq")  # Three sizes, 0, and the number of programs.
# Launches with more parameters or arrays have no plan.
MAX_ENTRIES: Final = 64
UNUSED: Final = MAX_ENTRIES  # The slot of values that the entry does not get.
MAX_ARRAYS: Final = 24

TEXT: Final = """
%entry = type { ptr, ptr, i64, ptr, ptr, i64, i64, i64, i64, i64 }
%table = type { ptr, i64, i64, i64, i64, i64, ptr, [7 x ptr], [0 x %entry] }
%span = type { i64, i64, ptr, i64, i64 }        ; low, high, the owner, whether it may be written, number of the bounds
%plans = type { ptr, ptr, ptr }

define ptr @zg_launch(ptr %self, ptr %given, i64 %count, ptr %names) {
  %slots = alloca [65 x i64], align 8
  %launch = alloca [75 x i64], align 8
  %record = alloca [5 x i64], align 8
  %job = alloca %job
  %grid.object = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %grid = call ptr @PyBytes_AsString(ptr %grid.object)
  %plans = call ptr @PyTuple_GetItem(ptr %self, i64 1)
  br label %each
each:
  %number = phi i64 [ 0, %0 ], [ %following, %next ]
  %size = call i64 @PyList_Size(ptr %plans)
  %more = icmp slt i64 %number, %size
  br i1 %more, label %try, label %other
try:
  %plan = call ptr @PyList_GetItem(ptr %plans, i64 %number)
  call void @Py_IncRef(ptr %plan)
  %table.object = call ptr @PyTuple_GetItem(ptr %plan, i64 0)
  %table = call ptr @PyBytes_AsString(ptr %table.object)
  %fits = call i1 @fit(ptr %table, ptr %given, i64 %count, ptr %names, ptr %slots, ptr %launch)
  br i1 %fits, label %run, label %next
next:
  call void @PyErr_Clear()
  call void @Py_DecRef(ptr %plan)
  %following = add i64 %number, 1
  br label %each
other:
  %slow = call ptr @PyTuple_GetItem(ptr %self, i64 2)
  %answer = call ptr @PyObject_Vectorcall(ptr %slow, ptr %given, i64 %count, ptr %names)
  ret ptr %answer
run:
  call void @llvm.memcpy.p0.p0.i64(ptr %launch, ptr %grid, i64 16, i1 false)
  %call.at = getelementptr i64, ptr %launch, i64 2
  store i64 0, ptr %call.at
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
  %scratch.at = getelementptr %table, ptr %table, i32 0, i32 1
  %scratch = load i64, ptr %scratch.at, align 1
  %job.4 = getelementptr %job, ptr %job, i32 0, i32 4
  store i64 %scratch, ptr %job.4
  %ordered.at = getelementptr %table, ptr %table, i32 0, i32 2
  %ordered = load i64, ptr %ordered.at, align 1
  %is.ordered = icmp ne i64 %ordered, 0
  %all.threads = load atomic i64, ptr @threads seq_cst, align 8
  %threads = select i1 %is.ordered, i64 1, i64 %all.threads
  %job.5 = getelementptr %job, ptr %job, i32 0, i32 5
  store i64 %threads, ptr %job.5
  %job.6 = getelementptr %job, ptr %job, i32 0, i32 6
  store ptr %record, ptr %job.6
  %thread = call ptr @PyEval_SaveThread()
  %code = call i64 @zg_run(ptr %job)
  call void @PyEval_RestoreThread(ptr %thread)
  %mark.at = getelementptr i8, ptr %launch, i64 12
  %mark = load i32, ptr %mark.at
  %marked = zext i32 %mark to i64
  %told = or i64 %code, %marked
  %fine = icmp eq i64 %told, 0
  br i1 %fine, label %done, label %error
done:
  %result = call ptr @PyTuple_GetItem(ptr %plan, i64 1)
  call void @Py_IncRef(ptr %result)
  call void @Py_DecRef(ptr %plan)
  ret ptr %result
error:
  store i64 %code, ptr %record
  %failed = call ptr @PyTuple_GetItem(ptr %plan, i64 2)
  %record.object = call ptr @PyBytes_FromStringAndSize(ptr %record, i64 40)
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
}

; All values of a call as a tuple, those of keywords last.
define internal ptr @values(ptr %given, i64 %count, ptr %names) {
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
}

; Whether the arguments of a call fit a table. If so, their values are in the slots, and the bounds in the description.
define internal i1 @fit(ptr %table, ptr %given, i64 %count, ptr %names, ptr %slots, ptr %launch) {
  %values = alloca [64 x ptr], align 8
  %spans = alloca [24 x %span], align 8
  %arrays = alloca i64
  %integer = alloca i64
  %overflow = alloca i32
  store i64 0, ptr %arrays
  %parameters.at = getelementptr %table, ptr %table, i32 0, i32 3
  %parameters = load i64, ptr %parameters.at, align 1
  %entries.at = getelementptr %table, ptr %table, i32 0, i32 4
  %entries = load i64, ptr %entries.at, align 1
  %whole.at = getelementptr %table, ptr %table, i32 0, i32 5
  %whole.number = load i64, ptr %whole.at, align 1
  %is.whole = icmp ne i64 %whole.number, 0
  %too.many = icmp sgt i64 %count, %parameters
  br i1 %too.many, label %no, label %begin
begin:
  %bytes = shl i64 %entries, 3
  call void @llvm.memset.p0.i64(ptr %values, i8 0, i64 %bytes, i1 false)
  %given.bytes = shl i64 %count, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %values, ptr %given, i64 %given.bytes, i1 false)
  %no.names = icmp eq ptr %names, null
  br i1 %no.names, label %each, label %named

; The entry of each keyword. Names are interned, so that equal ones are the same object.
named:
  %named.count = call i64 @PyTuple_Size(ptr %names)
  br label %each.name
each.name:
  %name.number = phi i64 [ 0, %named ], [ %name.next, %place ]
  %name.left = icmp slt i64 %name.number, %named.count
  br i1 %name.left, label %find, label %each
find:
  %name = call ptr @PyTuple_GetItem(ptr %names, i64 %name.number)
  br label %search
search:
  %where = phi i64 [ 0, %find ], [ %where.next, %compare ]
  %where.left = icmp slt i64 %where, %entries
  br i1 %where.left, label %compare, label %no
compare:
  %known.at = getelementptr %table, ptr %table, i32 0, i32 8, i64 %where
  %known = load ptr, ptr %known.at, align 1
  %where.next = add i64 %where, 1
  %found = icmp eq ptr %known, %name
  br i1 %found, label %place.it, label %search
place.it:
  %place.at = getelementptr ptr, ptr %values, i64 %where
  %placed = load ptr, ptr %place.at
  %is.placed = icmp ne ptr %placed, null
  br i1 %is.placed, label %no, label %place
place:
  %value.number = add i64 %count, %name.number
  %named.at = getelementptr ptr, ptr %given, i64 %value.number
  %named.value = load ptr, ptr %named.at
  store ptr %named.value, ptr %place.at
  %name.next = add i64 %name.number, 1
  br label %each.name

; Each entry with its value.
each:
  %number = phi i64 [ 0, %begin ], [ 0, %each.name ], [ %number.next, %next ]
  %left = icmp slt i64 %number, %entries
  br i1 %left, label %one, label %merge
one:
  %e = getelementptr %table, ptr %table, i32 0, i32 8, i64 %number
  %value.at = getelementptr ptr, ptr %values, i64 %number
  %value.given = load ptr, ptr %value.at
  %default.at = getelementptr %entry, ptr %e, i32 0, i32 1
  %default = load ptr, ptr %default.at, align 1
  %is.given = icmp ne ptr %value.given, null
  %value = select i1 %is.given, ptr %value.given, ptr %default
  %missing = icmp eq ptr %value, null
  br i1 %missing, label %no, label %present
present:
  %kind.at = getelementptr %entry, ptr %e, i32 0, i32 2
  %kind = load i64, ptr %kind.at, align 1
  %type.wanted.at = getelementptr %entry, ptr %e, i32 0, i32 3
  %type.wanted = load ptr, ptr %type.wanted.at, align 1
  %expected.at = getelementptr %entry, ptr %e, i32 0, i32 4
  %expected = load ptr, ptr %expected.at, align 1
  %low.at = getelementptr %entry, ptr %e, i32 0, i32 5
  %low = load i64, ptr %low.at, align 1
  %high.at = getelementptr %entry, ptr %e, i32 0, i32 6
  %high = load i64, ptr %high.at, align 1
  %slot.at = getelementptr %entry, ptr %e, i32 0, i32 7
  %slot.number = load i64, ptr %slot.at, align 1
  %bound.at = getelementptr %entry, ptr %e, i32 0, i32 8
  %bound = load i64, ptr %bound.at, align 1
  %rules.at = getelementptr %entry, ptr %e, i32 0, i32 9
  %rules = load i64, ptr %rules.at, align 1
  %slot = getelementptr i64, ptr %slots, i64 %slot.number
  %type.at = getelementptr ptr, ptr %value, i64 1
  %type = load ptr, ptr %type.at
  %same.type = icmp eq ptr %type, %type.wanted
  %is.constant = icmp eq i64 %kind, 0
  br i1 %is.constant, label %constant, label %typed
constant:
  %same = icmp eq ptr %value, %expected
  br i1 %same, label %next, label %unlike
unlike:
  br i1 %same.type, label %rich, label %no
rich:
  %equal = call i32 @PyObject_RichCompareBool(ptr %value, ptr %expected, i32 2)
  %is.equal = icmp eq i32 %equal, 1
  br i1 %is.equal, label %next, label %no
typed:
  br i1 %same.type, label %by.kind, label %no
by.kind:
  switch i64 %kind, label %no [
    i64 1, label %as.integer
    i64 2, label %as.f32
    i64 3, label %as.f64
    i64 4, label %as.boolean
    i64 5, label %as.numpy
    i64 6, label %as.torch
  ]

as.integer:
  %x = call i64 @PyLong_AsLongLongAndOverflow(ptr %value, ptr %overflow)
  %over = load i32, ptr %overflow
  %is.over = icmp ne i32 %over, 0
  %below = icmp slt i64 %x, %low
  %above = icmp sgt i64 %x, %high
  %outside.1 = or i1 %below, %above
  %outside = or i1 %outside.1, %is.over
  br i1 %outside, label %no, label %whole
whole:
  store i64 %x, ptr %integer
  br label %rule
as.f32:
  %double = call double @PyFloat_AsDouble(ptr %value)
  %float = fptrunc double %double to float
  store float %float, ptr %slot
  br label %next
as.f64:
  %wide = call double @PyFloat_AsDouble(ptr %value)
  store double %wide, ptr %slot
  br label %next
as.boolean:
  %true.at = getelementptr %table, ptr %table, i32 0, i32 6
  %true = load ptr, ptr %true.at, align 1
  %is.true = icmp eq ptr %value, %true
  %bit = zext i1 %is.true to i64
  store i64 %bit, ptr %slot
  br label %next

; An integer, or the address of an array, that must be or not be divisible by 16, or not be 1; then it goes to its slot.
rule:
  %tested = load i64, ptr %integer
  %rest = and i64 %tested, 15
  %is.divisible = icmp eq i64 %rest, 0
  %wants = and i64 %rules, 1
  %wants.it = icmp ne i64 %wants, 0
  %is.not = xor i1 %is.divisible, true
  %wrong.1 = and i1 %wants.it, %is.not
  %denies = and i64 %rules, 2
  %denies.it = icmp ne i64 %denies, 0
  %wrong.2 = and i1 %denies.it, %is.divisible
  %no.one = and i64 %rules, 4
  %no.one.it = icmp ne i64 %no.one, 0
  %is.one = icmp eq i64 %tested, 1
  %wrong.3 = and i1 %no.one.it, %is.one
  %wrong.4 = or i1 %wrong.1, %wrong.2
  %wrong = or i1 %wrong.3, %wrong.4
  br i1 %wrong, label %no, label %store
store:
  store i64 %tested, ptr %slot
  br label %next

; NumPy's array: data 16, number of axes 24, sizes 32, strides 40, base 48, dtype 56, flags 64.
as.numpy:
  %descr.at = getelementptr i8, ptr %value, i64 56
  %descr = load ptr, ptr %descr.at
  %same.descr = icmp eq ptr %descr, %expected
  %flags.at = getelementptr i8, ptr %value, i64 64
  %flags = load i32, ptr %flags.at
  %aligned = and i32 %flags, 256
  %is.aligned = icmp ne i32 %aligned, 0
  %known.array = and i1 %same.descr, %is.aligned
  br i1 %known.array, label %measure, label %no
measure:
  %writable = and i32 %flags, 1024
  %is.writable = icmp ne i32 %writable, 0
  %data.at = getelementptr i8, ptr %value, i64 16
  %data = load i64, ptr %data.at
  %width.mask = sub i64 %low, 1
  br label %owner
owner:
  %owned.by = phi ptr [ %value, %measure ], [ %base, %base.array ]
  %base.at = getelementptr i8, ptr %owned.by, i64 48
  %base = load ptr, ptr %base.at
  %no.base = icmp eq ptr %base, null
  br i1 %no.base, label %owned, label %base.kind
base.kind:
  %base.type.at = getelementptr ptr, ptr %base, i64 1
  %base.type = load ptr, ptr %base.type.at
  %base.is.array = icmp eq ptr %base.type, %type.wanted
  br i1 %base.is.array, label %base.array, label %owned
base.array:
  br label %owner
owned:
  %the.owner = phi ptr [ %owned.by, %owner ], [ %base, %base.kind ]
  br i1 %is.whole, label %whole.array, label %extent.of

; The memory is that of the owner, which must be an array of the same dtype.
whole.array:
  %owner.is.array = icmp eq ptr %the.owner, %owned.by
  %owner.descr.at = getelementptr i8, ptr %owned.by, i64 56
  %owner.descr = load ptr, ptr %owner.descr.at
  %owner.same = icmp eq ptr %owner.descr, %expected
  %owner.fits = and i1 %owner.is.array, %owner.same
  br i1 %owner.fits, label %extent.of, label %no

; The strides of the array must be whole elements; the span is that of the array or its owner.
extent.of:
  %measured = phi ptr [ %value, %owned ], [ %owned.by, %whole.array ]
  %own.axes.at = getelementptr i8, ptr %value, i64 24
  %own.axes.32 = load i32, ptr %own.axes.at
  %own.axes = sext i32 %own.axes.32 to i64
  %own.strides.at = getelementptr i8, ptr %value, i64 40
  %own.strides = load ptr, ptr %own.strides.at
  br label %own.axis
own.axis:
  %o = phi i64 [ 0, %extent.of ], [ %o.next, %own.stride ]
  %o.left = icmp slt i64 %o, %own.axes
  br i1 %o.left, label %own.stride, label %span.begin
own.stride:
  %own.step.at = getelementptr i64, ptr %own.strides, i64 %o
  %own.step = load i64, ptr %own.step.at
  %own.rest = and i64 %own.step, %width.mask
  %own.whole = icmp eq i64 %own.rest, 0
  %o.next = add i64 %o, 1
  br i1 %own.whole, label %own.axis, label %no
span.begin:
  %start.at = getelementptr i8, ptr %measured, i64 16
  %start = load i64, ptr %start.at
  %axes.at = getelementptr i8, ptr %measured, i64 24
  %axes.32 = load i32, ptr %axes.at
  %axes = sext i32 %axes.32 to i64
  %sizes.at = getelementptr i8, ptr %measured, i64 32
  %sizes = load ptr, ptr %sizes.at
  %strides.at = getelementptr i8, ptr %measured, i64 40
  %strides = load ptr, ptr %strides.at
  br label %axis
axis:
  %a = phi i64 [ 0, %span.begin ], [ %a.next, %stretch ]
  %from = phi i64 [ %start, %span.begin ], [ %from.next, %stretch ]
  %to = phi i64 [ %start, %span.begin ], [ %to.next, %stretch ]
  %extent = phi i64 [ %low, %span.begin ], [ %extent.next, %stretch ]
  %a.left = icmp slt i64 %a, %axes
  br i1 %a.left, label %stretch, label %spanned
stretch:
  %size.at = getelementptr i64, ptr %sizes, i64 %a
  %size = load i64, ptr %size.at
  %step.at = getelementptr i64, ptr %strides, i64 %a
  %step = load i64, ptr %step.at
  %size.less = sub i64 %size, 1
  %reach = mul i64 %size.less, %step
  %down = call i64 @llvm.smin.i64(i64 %reach, i64 0)
  %up = call i64 @llvm.smax.i64(i64 %reach, i64 0)
  %from.next = add i64 %from, %down
  %to.next = add i64 %to, %up
  %size.zero = icmp eq i64 %size, 0
  %extent.next = select i1 %size.zero, i64 0, i64 %extent
  %a.next = add i64 %a, 1
  br label %axis
spanned:
  %empty = icmp eq i64 %extent, 0
  %to.last = add i64 %to, %extent
  %span.low = select i1 %empty, i64 %start, i64 %from
  %span.high = select i1 %empty, i64 %start, i64 %to.last
  br label %span

; A tensor of torch: contiguous, in memory.
as.torch:
  %t.names = getelementptr %table, ptr %table, i32 0, i32 7
  %t.dtype.name = load ptr, ptr %t.names, align 1
  %t.dtype = call ptr @PyObject_GetAttr(ptr %value, ptr %t.dtype.name)
  %t.same = icmp eq ptr %t.dtype, %expected
  call void @Py_DecRef(ptr %t.dtype)
  br i1 %t.same, label %t.place, label %no
t.place:
  %t.true.at = getelementptr %table, ptr %table, i32 0, i32 6
  %t.true = load ptr, ptr %t.true.at, align 1
  %t.cpu.at = getelementptr ptr, ptr %t.names, i64 1
  %t.cpu.name = load ptr, ptr %t.cpu.at, align 1
  %t.cpu = call ptr @PyObject_GetAttr(ptr %value, ptr %t.cpu.name)
  %t.here = icmp eq ptr %t.cpu, %t.true
  call void @Py_DecRef(ptr %t.cpu)
  br i1 %t.here, label %t.layout, label %no
t.layout:
  %t.plain.at = getelementptr ptr, ptr %t.names, i64 2
  %t.plain.name = load ptr, ptr %t.plain.at, align 1
  %t.plain = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(ptr %value, ptr %t.plain.name, ptr null)
  %t.is.plain = icmp eq ptr %t.plain, %t.true
  call void @Py_DecRef(ptr %t.plain)
  br i1 %t.is.plain, label %t.read, label %no
t.read:
  %t.numel.at = getelementptr ptr, ptr %t.names, i64 3
  %t.numel.name = load ptr, ptr %t.numel.at, align 1
  %t.numel = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(ptr %value, ptr %t.numel.name, ptr null)
  %t.count = call i64 @number(ptr %t.numel)
  %t.data.at = getelementptr ptr, ptr %t.names, i64 4
  %t.data.name = load ptr, ptr %t.data.at, align 1
  %t.data.object = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(ptr %value, ptr %t.data.name, ptr null)
  %t.data = call i64 @number(ptr %t.data.object)
  %t.failed.1 = icmp slt i64 %t.count, 0
  %t.failed.2 = icmp slt i64 %t.data, 0
  %t.mask = sub i64 %low, 1
  %t.rest = and i64 %t.data, %t.mask
  %t.odd = icmp ne i64 %t.rest, 0
  %t.failed.3 = or i1 %t.failed.1, %t.failed.2
  %t.failed = or i1 %t.failed.3, %t.odd
  %t.bytes = mul i64 %t.count, %low
  %t.high = add i64 %t.data, %t.bytes
  br i1 %t.failed, label %no, label %t.extent
t.extent:
  br i1 %is.whole, label %t.whole, label %span

; The memory is that of the tensor's storage.
t.whole:
  %t.storage.at = getelementptr ptr, ptr %t.names, i64 5
  %t.storage.name = load ptr, ptr %t.storage.at, align 1
  %t.storage = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(ptr %value, ptr %t.storage.name, ptr null)
  %t.none = icmp eq ptr %t.storage, null
  br i1 %t.none, label %no, label %t.store
t.store:
  %t.nbytes.at = getelementptr ptr, ptr %t.names, i64 6
  %t.nbytes.name = load ptr, ptr %t.nbytes.at, align 1
  %t.nbytes.object = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(ptr %t.storage, ptr %t.nbytes.name, ptr null)
  %t.nbytes = call i64 @number(ptr %t.nbytes.object)
  %t.base.object = call ptr (ptr, ptr, ...) @PyObject_CallMethodObjArgs(ptr %t.storage, ptr %t.data.name, ptr null)
  %t.base = call i64 @number(ptr %t.base.object)
  call void @Py_DecRef(ptr %t.storage)
  %t.end = add i64 %t.base, %t.nbytes
  %t.failed.4 = icmp slt i64 %t.nbytes, 0
  %t.failed.5 = icmp slt i64 %t.base, 0
  %t.failed.6 = or i1 %t.failed.4, %t.failed.5
  br i1 %t.failed.6, label %no, label %span

span:
  %s.data = phi i64 [ %data, %spanned ], [ %t.data, %t.extent ], [ %t.data, %t.store ]
  %s.low = phi i64 [ %span.low, %spanned ], [ %t.data, %t.extent ], [ %t.base, %t.store ]
  %s.high = phi i64 [ %span.high, %spanned ], [ %t.high, %t.extent ], [ %t.end, %t.store ]
  %s.owner = phi ptr [ %the.owner, %spanned ], [ %value, %t.extent ], [ %value, %t.store ]
  %s.writable = phi i1 [ %is.writable, %spanned ], [ true, %t.extent ], [ true, %t.store ]
  %s.writable.64 = zext i1 %s.writable to i64
  %s.number = load i64, ptr %arrays
  %s.next = add i64 %s.number, 1
  store i64 %s.next, ptr %arrays
  %s = getelementptr %span, ptr %spans, i64 %s.number
  store i64 %s.low, ptr %s
  %s.1 = getelementptr %span, ptr %s, i32 0, i32 1
  store i64 %s.high, ptr %s.1
  %s.2 = getelementptr %span, ptr %s, i32 0, i32 2
  store ptr %s.owner, ptr %s.2
  %s.3 = getelementptr %span, ptr %s, i32 0, i32 3
  store i64 %s.writable.64, ptr %s.3
  %s.4 = getelementptr %span, ptr %s, i32 0, i32 4
  store i64 %bound, ptr %s.4
  store i64 %s.data, ptr %integer
  br label %rule
next:
  %number.next = add i64 %number, 1
  br label %each

; Arrays that overlap or have one owner are one region. A merged span may overlap a further one: repeat until no span
; changes.
merge:
  %n = load i64, ptr %arrays
  br label %sweep
sweep:
  br label %rows
rows:
  %i = phi i64 [ 0, %sweep ], [ %i.next, %row.end ]
  %changed = phi i1 [ false, %sweep ], [ %changed.row, %row.end ]
  %i.next = add i64 %i, 1
  %i.left = icmp slt i64 %i, %n
  br i1 %i.left, label %columns, label %swept
columns:
  %j = phi i64 [ %i.next, %rows ], [ %j.next, %column.end ]
  %changed.row = phi i1 [ %changed, %rows ], [ %changed.now, %column.end ]
  %j.left = icmp slt i64 %j, %n
  br i1 %j.left, label %pair, label %row.end
row.end:
  br label %rows
pair:
  %j.next = add i64 %j, 1
  %p = getelementptr %span, ptr %spans, i64 %i
  %q = getelementptr %span, ptr %spans, i64 %j
  %p.1 = getelementptr %span, ptr %p, i32 0, i32 1
  %q.1 = getelementptr %span, ptr %q, i32 0, i32 1
  %p.2 = getelementptr %span, ptr %p, i32 0, i32 2
  %q.2 = getelementptr %span, ptr %q, i32 0, i32 2
  %p.3 = getelementptr %span, ptr %p, i32 0, i32 3
  %q.3 = getelementptr %span, ptr %q, i32 0, i32 3
  %p.low = load i64, ptr %p
  %q.low = load i64, ptr %q
  %p.high = load i64, ptr %p.1
  %q.high = load i64, ptr %q.1
  %p.owner = load ptr, ptr %p.2
  %q.owner = load ptr, ptr %q.2
  %p.writable = load i64, ptr %p.3
  %q.writable = load i64, ptr %q.3
  %one.owner = icmp eq ptr %p.owner, %q.owner
  %before.1 = icmp slt i64 %p.low, %q.high
  %before.2 = icmp slt i64 %q.low, %p.high
  %overlap = and i1 %before.1, %before.2
  %joined = or i1 %one.owner, %overlap
  %same.low = icmp eq i64 %p.low, %q.low
  %same.high = icmp eq i64 %p.high, %q.high
  %same.writable = icmp eq i64 %p.writable, %q.writable
  %equal.1 = and i1 %same.low, %same.high
  %equal.2 = and i1 %equal.1, %same.writable
  %unequal = xor i1 %equal.2, true
  %join.it = and i1 %joined, %unequal
  br i1 %join.it, label %join, label %column.end
join:
  %both.low = call i64 @llvm.smin.i64(i64 %p.low, i64 %q.low)
  %both.high = call i64 @llvm.smax.i64(i64 %p.high, i64 %q.high)
  %both.writable = or i64 %p.writable, %q.writable
  store i64 %both.low, ptr %p
  store i64 %both.low, ptr %q
  store i64 %both.high, ptr %p.1
  store i64 %both.high, ptr %q.1
  store i64 %both.writable, ptr %p.3
  store i64 %both.writable, ptr %q.3
  br label %column.end
column.end:
  %changed.now = phi i1 [ %changed.row, %pair ], [ true, %join ]
  br label %columns
swept:
  br i1 %changed, label %sweep, label %bounds

bounds:
  %b = phi i64 [ 0, %swept ], [ %b.next, %b.end ]
  %b.left = icmp slt i64 %b, %n
  br i1 %b.left, label %bounded, label %yes
bounded:
  %b.span = getelementptr %span, ptr %spans, i64 %b
  %b.number.at = getelementptr %span, ptr %b.span, i32 0, i32 4
  %b.number = load i64, ptr %b.number.at
  %b.has = icmp sge i64 %b.number, 0
  br i1 %b.has, label %write, label %b.end
write:
  %b.words = mul i64 %b.number, 3
  %b.place = add i64 %b.words, 3
  %b.at = getelementptr i64, ptr %launch, i64 %b.place
  %b.low = load i64, ptr %b.span
  store i64 %b.low, ptr %b.at
  %b.1 = getelementptr %span, ptr %b.span, i32 0, i32 1
  %b.high = load i64, ptr %b.1
  %b.at.1 = getelementptr i64, ptr %b.at, i64 1
  store i64 %b.high, ptr %b.at.1
  %b.3 = getelementptr %span, ptr %b.span, i32 0, i32 3
  %b.writable = load i64, ptr %b.3
  %b.at.2 = getelementptr i64, ptr %b.at, i64 2
  store i64 %b.writable, ptr %b.at.2
  br label %b.end
b.end:
  %b.next = add i64 %b, 1
  br label %bounds
yes:
  ret i1 true
no:
  ret i1 false
}

; The number of an int, whose reference is given up; -1 for an error.
define internal i64 @number(ptr %object) {
  %none = icmp eq ptr %object, null
  br i1 %none, label %error, label %read
read:
  %number = call i64 @PyLong_AsLongLong(ptr %object)
  call void @Py_DecRef(ptr %object)
  ret i64 %number
error:
  ret i64 -1
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare void @PyErr_Clear()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyBytes_AsString(ptr)
declare ptr @PyBytes_FromStringAndSize(ptr, i64)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i64 @PyList_Size(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare ptr @PyObject_CallMethodObjArgs(ptr, ptr, ...)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare i64 @PyTuple_Size(ptr)
"""
