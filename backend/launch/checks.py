"""Python's arguments against the tables of plans, as LLVM text: what the launchers of GPUs and of CPUs share.

A launcher is a built-in function of Python that goes through a list of *plans* (`each_plan`). A plan is a tuple: a
table as bytes, the result of the launch, and more. An entry of a table says which object fits an argument, and where
its value goes: `%value` is compared with `%kind`, `%type.wanted`, `%expected` and `%rules`, and its value is stored at
`%slot` (`value_checks`, `rule`). Then comes `%next`, or `%no` where it does not fit. The structures of tables and
entries, and the kinds from `OWN` on, are the launcher's own.
"""

from __future__ import annotations

import re
from typing import Final

CONSTANT, INTEGER, F32, F64, BOOLEAN, OWN = range(6)
DIVISIBLE, NOT_DIVISIBLE, NOT_ONE = 1, 2, 4

# The result of the plan that was launched.
RESULT: Final = """
  %result = call ptr @PyTuple_GetItem(ptr %plan, i64 1)
  call void @Py_IncRef(ptr %result)
  call void @Py_DecRef(ptr %plan)
  ret ptr %result
"""

NUMBER: Final = """
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
"""

_SIGNATURES: Final = """
void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
void @llvm.memset.p0.i64(ptr, i8, i64, i1)
i64 @llvm.smax.i64(i64, i64)
i64 @llvm.smin.i64(i64, i64)
ptr @PyBytes_AsString(ptr)
ptr @PyBytes_FromStringAndSize(ptr, i64)
ptr @PyCFunction_NewEx(ptr, ptr, ptr)
void @PyErr_Clear()
ptr @PyErr_Occurred()
void @PyEval_RestoreThread(ptr)
ptr @PyEval_SaveThread()
double @PyFloat_AsDouble(ptr)
ptr @PyList_GetItem(ptr, i64)
i64 @PyList_Size(ptr)
i64 @PyLong_AsLongLong(ptr)
i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
ptr @PyLong_AsVoidPtr(ptr)
ptr @PyObject_CallFunctionObjArgs(ptr, ...)
ptr @PyObject_CallMethodObjArgs(ptr, ptr, ...)
ptr @PyObject_GetAttr(ptr, ptr)
i32 @PyObject_IsTrue(ptr)
i32 @PyObject_RichCompareBool(ptr, ptr, i32)
ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
ptr @PyTuple_GetItem(ptr, i64)
ptr @PyTuple_New(i64)
i32 @PyTuple_SetItem(ptr, i64, ptr)
i64 @PyTuple_Size(ptr)
void @Py_DecRef(ptr)
void @Py_IncRef(ptr)
"""


def declared(text: str, declaration: str = "") -> str:
    """A text with declarations of the functions of Python and LLVM that it calls, but for those of a text before it."""
    callees, available = (set(re.findall(r"@[\w.]+", source)) for source in (text, declaration))
    signatures = {re.findall(r"@[\w.]+", line)[0]: line for line in _SIGNATURES.split("\n") if line}
    return text + "".join(f"declare {line}\n" for name, line in signatures.items() if name in callees - available)


def loads(structure: str, pointer: str, **fields: int | str) -> str:
    """Loads of fields of a packed structure by their numbers: i64, or of another type, as "ptr 3"."""
    lines: list[str] = []
    for name, field in fields.items():
        type_, _, number = field.rpartition(" ") if isinstance(field, str) else ("i64", "", str(field))
        lines += [
            f"  %{name}.at = getelementptr %{structure}, ptr %{pointer}, i32 0, i32 {number}",
            f"  %{name} = load {type_}, ptr %{name}.at, align 1",
        ]
    return "\n".join(lines)


def each_plan(fits: str, none: str) -> str:
    """The loop over `%plans`: to `%run` with `%plan` and its `%table` if a call is true, to `none` after the last."""
    return f"""
  br label %each
each:
  %number = phi i64 [ 0, %0 ], [ %following, %next ]
  %size = call i64 @PyList_Size(ptr %plans)
  %more = icmp slt i64 %number, %size
  br i1 %more, label %try, label {none}
try:
  %plan = call ptr @PyList_GetItem(ptr %plans, i64 %number)
  call void @Py_IncRef(ptr %plan)
  %table.object = call ptr @PyTuple_GetItem(ptr %plan, i64 0)
  %table = call ptr @PyBytes_AsString(ptr %table.object)
  %fits = call i1 {fits}
  br i1 %fits, label %run, label %next
next:
  call void @PyErr_Clear()
  call void @Py_DecRef(ptr %plan)
  %following = add i64 %number, 1
  br label %each
"""


def value_checks(own: str, boolean: str, limits: str = "") -> str:
    """Comparisons by kind: `own` has the labels of kinds from `OWN` on, and `boolean` stores a bool.

    `limits` defines `%low` and `%high`, the least and the largest integer. Integers go on to `%rule` as `%integer`.
    """
    kinds = "".join(f"    i64 {kind}, label {label}\n" for kind, label in enumerate(own.split(), OWN))
    return f"""
  %own.type.at = getelementptr ptr, ptr %value, i64 1
  %type = load ptr, ptr %own.type.at
  %same.type = icmp eq ptr %type, %type.wanted
  %is.constant = icmp eq i64 %kind, {CONSTANT}
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
    i64 {INTEGER}, label %as.integer
    i64 {F32}, label %as.f32
    i64 {F64}, label %as.f64
    i64 {BOOLEAN}, label %as.boolean
{kinds}  ]
as.integer:
  %integer = call i64 @PyLong_AsLongLongAndOverflow(ptr %value, ptr %overflow)
  %over = load i32, ptr %overflow
  %is.over = icmp ne i32 %over, 0
{limits}
  %below = icmp slt i64 %integer, %low
  %above = icmp sgt i64 %integer, %high
  %outside.1 = or i1 %below, %above
  %outside = or i1 %outside.1, %is.over
  br i1 %outside, label %no, label %rule
as.f32:
  %double = call double @PyFloat_AsDouble(ptr %value)
  ; The process may flush subnormals: the slow way converts them. 0x3810000000000000 is the least normal f32.
  %bits = bitcast double %double to i64
  %magnitude = and i64 %bits, 9223372036854775807
  %one.less = sub i64 %magnitude, 1
  %subnormal = icmp ult i64 %one.less, 4039728865751334911
  br i1 %subnormal, label %no, label %as.normal
as.normal:
  %float = fptrunc double %double to float
  store float %float, ptr %slot, align 1
  br label %next
as.f64:
  %wide = call double @PyFloat_AsDouble(ptr %value)
  store double %wide, ptr %slot, align 1
  br label %next
as.boolean:
{boolean}
  br label %next
"""


def rule(tested: str, *, exact: bool) -> str:
    """An integer or an address, from `tested`, that must be or not be divisible by 16, or not be 1; it is stored.

    With `exact`, it must be the one at `%slot` if `%is.exact`.
    """
    other = """
  %before = load i64, ptr %slot, align 1
  %is.other = icmp ne i64 %before, %tested
  %wrong.other = and i1 %is.exact, %is.other
  %wrong = or i1 %wrong.rules, %wrong.other"""
    return f"""
rule:
  %tested = phi i64 [ %integer, %as.integer ], {tested}
  %rest = and i64 %tested, 15
  %is.divisible = icmp eq i64 %rest, 0
  %wants = and i64 %rules, {DIVISIBLE}
  %wants.it = icmp ne i64 %wants, 0
  %is.not = xor i1 %is.divisible, true
  %wrong.1 = and i1 %wants.it, %is.not
  %denies = and i64 %rules, {NOT_DIVISIBLE}
  %denies.it = icmp ne i64 %denies, 0
  %wrong.2 = and i1 %denies.it, %is.divisible
  %no.one = and i64 %rules, {NOT_ONE}
  %no.one.it = icmp ne i64 %no.one, 0
  %is.one = icmp eq i64 %tested, 1
  %wrong.3 = and i1 %no.one.it, %is.one
  %wrong.4 = or i1 %wrong.1, %wrong.2
  %wrong.rules = or i1 %wrong.3, %wrong.4
{other if exact else ""}
  br i1 %{"wrong" if exact else "wrong.rules"}, label %no, label %store
store:
  store i64 %tested, ptr %slot, align 1
  br label %next
next:
  %number.next = add i64 %number, 1
  br label %each
"""
