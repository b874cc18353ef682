"""The bounds of a launch's arrays, as LLVM text: what shares memory is one region."""

from __future__ import annotations

from typing import Final

from ziggurat.backend.cpu.code import BOUNDS

TEXT: Final = """
%span = type { i64, i64, ptr, i64, i64 }        ; low, high, the owner, whether it may be written, number of the bounds

; Write the bounds of %n arrays to the description of a launch. Arrays that overlap or have one owner are one region. A
; merged span may overlap a further one: repeat until no span changes.
define internal void @bounds(ptr %spans, i64 %n, ptr %launch) {
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
  br i1 %b.left, label %bounded, label %done
bounded:
  %b.span = getelementptr %span, ptr %spans, i64 %b
  %b.number.at = getelementptr %span, ptr %b.span, i32 0, i32 4
  %b.number = load i64, ptr %b.number.at
  %b.has = icmp sge i64 %b.number, 0
  br i1 %b.has, label %write, label %b.end
write:
  %b.words = mul i64 %b.number, 3
  %b.place = add i64 %b.words, FIRST
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
done:
  ret void
}
""".replace("FIRST", str(BOUNDS // 8))
