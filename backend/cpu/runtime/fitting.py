"""The arguments of a call against the table of a plan, as LLVM text.

NumPy's arrays are read by their C structure, whose layout is part of NumPy's ABI; `native.py` checks it once.
"""

from __future__ import annotations

from typing import Final

from ziggurat.backend.launch import checks

_FIELDS: Final = {
    "kind": 2, "type.wanted": "ptr 3", "expected": "ptr 4", "low": 5, "high": 6, "slot.number": 7, "bound": 8,
    "rules": 9, "v.axis": 10, "v.entry": 11, "v.constant": 12,
}  # fmt: skip
_CHECKED: Final = checks.value_checks(
    own="%as.numpy %as.torch",
    boolean=f"""
{checks.loads("table", "table", true="ptr 6")}
  %is.true = icmp eq ptr %value, %true
  %bit = zext i1 %is.true to i64
  store i64 %bit, ptr %slot""",
)


def _answers(receiver: str, **methods: int) -> str:
    """Calls of methods of an object, by their places in the table. They give integers or bools, and -1 for errors."""
    return "\n".join(
        f"""  %t.{name}.at = getelementptr ptr, ptr %t.names, i64 {place}
  %t.{name}.method = load ptr, ptr %t.{name}.at, align 1
  %t.{name}.object = call ptr @answer(ptr %t.{name}.method, ptr %{receiver})
  %t.{name} = call i64 @number(ptr %t.{name}.object)"""
        for name, place in methods.items()
    )


TEXT: Final = f"""
; Whether the arguments of a call fit a table. If so, their values are in the slots, and the bounds in the description.
define internal i1 @fit(ptr %table, ptr %given, i64 %count, ptr %names, ptr %slots, ptr %launch) {{
  %values = alloca [64 x ptr], align 8
  %spans = alloca [24 x %span], align 8
  %arrays = alloca i64
  %overflow = alloca i32
  store i64 0, ptr %arrays
{checks.loads("table", "table", parameters=3, entries=4, whole=5)}
  %is.whole = icmp ne i64 %whole, 0
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
{checks.loads("entry", "e", default="ptr 1")}
  %is.given = icmp ne ptr %value.given, null
  %value = select i1 %is.given, ptr %value.given, ptr %default
  %missing = icmp eq ptr %value, null
  br i1 %missing, label %no, label %present
present:
{checks.loads("entry", "e", **_FIELDS)}
  %slot = getelementptr i64, ptr %slots, i64 %slot.number
{_CHECKED}
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
  %c.order = and i32 %flags, 1
  %is.c.order = icmp ne i32 %c.order, 0
  %v.none = icmp slt i64 %v.axis, 0
  %v.fine = or i1 %is.c.order, %v.none
  br i1 %v.fine, label %own, label %view
; A view that is not contiguous: the stride of an axis must be a number of the launch.
view:
  %v.axes.at = getelementptr i8, ptr %value, i64 24
  %v.axes.32 = load i32, ptr %v.axes.at
  %v.axes = sext i32 %v.axes.32 to i64
  %v.has = icmp slt i64 %v.axis, %v.axes
  br i1 %v.has, label %view.stride, label %no
view.stride:
  %v.strides.at = getelementptr i8, ptr %value, i64 40
  %v.strides = load ptr, ptr %v.strides.at
  %v.stride.at = getelementptr i64, ptr %v.strides, i64 %v.axis
  %v.stride = load i64, ptr %v.stride.at
  %v.number = call i64 @passed(ptr %values, i64 %v.entry, i64 %v.constant)
  %v.bytes = mul i64 %v.number, %low
  %v.same = icmp eq i64 %v.bytes, %v.stride
  br i1 %v.same, label %own, label %no
own:
  br label %owner
owner:
  %owned.by = phi ptr [ %value, %own ], [ %base, %base.array ]
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

; A tensor of torch, in memory, with its own elements. A storage may have been made smaller, or be gone.
as.torch:
  %t.names = getelementptr %table, ptr %table, i32 0, i32 7
  %t.dtype.name = load ptr, ptr %t.names, align 1
  %t.dtype = call ptr @PyObject_GetAttr(ptr %value, ptr %t.dtype.name)
  %t.same = icmp eq ptr %t.dtype, %expected
  call void @Py_DecRef(ptr %t.dtype)
  br i1 %t.same, label %t.layout, label %no
t.layout:
{_answers("value", plain=1, negative=2, count=3, data=4, here=8, nested=9)}
  %t.away = xor i64 %t.here, 1
  %t.data.bad = sub i64 %t.data, 1
  %t.mask = sub i64 %low, 1
  %t.rest = and i64 %t.data, %t.mask
  %t.bad.1 = or i64 %t.nested, %t.negative
  %t.bad.2 = or i64 %t.count, %t.data.bad
  %t.bad.3 = or i64 %t.rest, %t.away
  %t.bad = or i64 %t.bad.1, %t.bad.3
  %t.odd = icmp ne i64 %t.bad, 0
  %t.failed = icmp slt i64 %t.bad.2, 0
  %t.refused = or i1 %t.odd, %t.failed
  br i1 %t.refused, label %no, label %t.order
t.order:
  %t.is.plain = icmp eq i64 %t.plain, 1
  br i1 %t.is.plain, label %t.memory, label %t.view
t.view:
  %t.view.at = getelementptr ptr, ptr %t.names, i64 10
  %t.view.function = load ptr, ptr %t.view.at, align 1
  %t.view.of = call ptr @answer(ptr %t.view.function, ptr %value)
  %t.view.none = icmp eq ptr %t.view.of, null
  br i1 %t.view.none, label %no, label %t.stride
t.stride:
  %t.reach = call i64 @item(ptr %t.view.of, i64 0)
  %t.place.of = add i64 %v.axis, 1
  %t.step = call i64 @item(ptr %t.view.of, i64 %t.place.of)
  call void @Py_DecRef(ptr %t.view.of)
  %t.number = call i64 @passed(ptr %values, i64 %v.entry, i64 %v.constant)
  %t.known = icmp eq i64 %t.step, %t.number
  %t.unasked = icmp slt i64 %v.axis, 0
  %t.fine = or i1 %t.known, %t.unasked
  br i1 %t.fine, label %t.memory, label %no
t.memory:
  %t.elements = phi i64 [ %t.count, %t.order ], [ %t.reach, %t.stride ]
  %t.storage.at = getelementptr ptr, ptr %t.names, i64 5
  %t.storage.method = load ptr, ptr %t.storage.at, align 1
  %t.storage = call ptr @answer(ptr %t.storage.method, ptr %value)
  %t.none = icmp eq ptr %t.storage, null
  br i1 %t.none, label %no, label %t.extent
t.extent:
{_answers("t.storage", nbytes=6, base=7)}
  call void @Py_DecRef(ptr %t.storage)
  %t.bytes = mul i64 %t.elements, %low
  %t.high = add i64 %t.data, %t.bytes
  %t.end = add i64 %t.base, %t.nbytes
  %t.before = icmp slt i64 %t.data, %t.base
  %t.beyond = icmp sgt i64 %t.high, %t.end
  %t.outside = or i1 %t.before, %t.beyond
  %t.low.reach = select i1 %is.whole, i64 %t.base, i64 %t.data
  %t.high.reach = select i1 %is.whole, i64 %t.end, i64 %t.high
  br i1 %t.outside, label %no, label %span

span:
  %s.data = phi i64 [ %data, %spanned ], [ %t.data, %t.extent ]
  %s.low = phi i64 [ %span.low, %spanned ], [ %t.low.reach, %t.extent ]
  %s.high = phi i64 [ %span.high, %spanned ], [ %t.high.reach, %t.extent ]
  %s.owner = phi ptr [ %the.owner, %spanned ], [ %value, %t.extent ]
  %s.writable = phi i1 [ %is.writable, %spanned ], [ true, %t.extent ]
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
  br label %rule
{checks.rule("[ %s.data, %span ]", exact=False)}

merge:
  %n = load i64, ptr %arrays
  call void @bounds(ptr %spans, i64 %n, ptr %launch)
  ret i1 true
no:
  ret i1 false
}}

; The number of a launch: that of an entry, or a constant where there is none, or the launch leaves it out.
define internal i64 @passed(ptr %values, i64 %entry, i64 %constant) {{
  %is.entry = icmp sge i64 %entry, 0
  br i1 %is.entry, label %find, label %none
find:
  %at = getelementptr ptr, ptr %values, i64 %entry
  %object = load ptr, ptr %at
  %is.left.out = icmp eq ptr %object, null
  br i1 %is.left.out, label %none, label %read
read:
  %number = call i64 @PyLong_AsLongLong(ptr %object)
  ret i64 %number
none:
  ret i64 %constant
}}

; An integer in a tuple; -1 for an error.
define internal i64 @item(ptr %tuple, i64 %place) {{
  %object = call ptr @PyTuple_GetItem(ptr %tuple, i64 %place)
  call void @Py_IncRef(ptr %object)
  %item = call i64 @number(ptr %object)
  ret i64 %item
}}

; What a method of an object without arguments gives.
define internal ptr @answer(ptr %method, ptr %object) {{
  %receiver = alloca ptr
  store ptr %object, ptr %receiver
  %answer = call ptr @PyObject_Vectorcall(ptr %method, ptr %receiver, i64 1, ptr null)
  ret ptr %answer
}}
{checks.NUMBER}
"""
