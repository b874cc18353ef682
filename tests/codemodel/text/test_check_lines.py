"""Lines of `// CHECK:`, as LLVM's FileCheck has them."""

import pytest

import ziggurat as zg
from ziggurat.codemodel.text.check_lines import check_lines, mismatch

TEXT = """func f
  %0 = load  %a
  %1 = load %b
  %2 = add %0 %1

  return %2
func g
  %0 = mul %1 %1
  return %0
"""


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("CHECK: func f|CHECK-NEXT: = load %a|CHECK-SAME: {{%[ab]}}", "not in the same line, from line 2 on"),
        ("CHECK: func f|CHECK-NEXT: = load|CHECK-SAME: {{%[ab]}}|CHECK: return", None),
        ("CHECK: func f|CHECK-NEXT: %1 = load", "the match is not in the next line, from line 1 on"),
        ("CHECK: func f|CHECK-SAME: load", "the match is not in the same line"),
        ("CHECK: [[A:%[0-9]]] = add [[B:%.]] {{.*}}|CHECK-EMPTY:|CHECK-NEXT: return [[A]]", None),
        ("CHECK: [[A:%[0-9]]] = load|CHECK: return [[A]]", None),  # That of the other function.
        ("CHECK-LABEL: func f|CHECK: [[A:%[0-9]]] = load|CHECK: return [[A]]|CHECK-LABEL: func g", "nothing matches"),
        ("CHECK-LABEL: func f|CHECK-COUNT-2: load|CHECK-NOT: mul|CHECK-LABEL: func g|CHECK: mul [[A:%.]] [[A]]", None),
        ("CHECK-COUNT-3: load", "nothing matches, from line 3 on"),
        ("CHECK: add|CHECK-NOT: mul|CHECK: return", None),
        ("CHECK: add|CHECK-NOT: mul", "line 8 matches"),
        ("CHECK-NOT: load|CHECK: add", "line 2 matches"),
        ("CHECK-DAG: load %b|CHECK-DAG: [[A:%.]] = load %a|CHECK-NEXT: add %1", "nothing matches"),
        ("CHECK-DAG: load %b|CHECK-DAG: [[A:%.]] = load %a|CHECK: add [[A]] %1", None),
        ("CHECK-DAG: = load|CHECK-DAG: = load|CHECK-DAG: = load", "nothing matches"),
        ("CHECK: load{{[^x]*}}add", "nothing matches"),  # A match is within a line.
    ],
)
def test_lines(lines, reason):
    error = mismatch(check_lines("".join(f"// {line}\n" for line in lines.split("|"))), TEXT)
    assert (error is None) == (reason is None) and (reason or "") in (error or ""), error


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("CHECK-NEX: a", "no check"),
        ("CHECK:", "must have a text"),
        ("CHECK-EMPTY: a", "must have nothing"),
        ("CHECK-SAME: a", "follows no match"),
        ("CHECK: {{(}}", "no regular expression"),
        ("CHECK: [[X]]", "no match has given a text"),
    ],
)
def test_lines_that_are_none(lines, message):
    with pytest.raises(zg.LaunchError, match=message):
        mismatch(check_lines(f"// {lines}\n"), TEXT)
