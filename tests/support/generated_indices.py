"""Generated kernels that store an index to itself, where a comparison holds."""

from __future__ import annotations

from random import Random

import ziggurat as zg
from ziggurat.codemodel.op import Op

N = 4  # Elements of an index.
_CONSTANTS = (0, 1, 2, -1, 3, 64, 1 << 20, 2147483647, -2147483648)


def generated(seed: int) -> Op:
    """A kernel of ranges, two arguments, extreme constants, sums, products and remainders."""
    random = Random(seed)
    ops, values = list[str](), ["%3", "%4", "%5"]
    for number in range(6, 6 + random.randint(1, 5)):
        if random.random() < 0.3:
            ops.append(f"arith.constant @{random.choice(_CONSTANTS)}")
        else:
            kind = random.choice(("addi", "subi", "muli", "remsi"))
            few = values[:1] if kind == "muli" else values  # z3 does not decide products of two unknown numbers.
            ops.append(f"arith.{kind} {random.choice(values[-3:])} {random.choice(few)}")
        values.append(f"%{number}")
    return kernel(ops, random.choice(values), random.choice(("slt", "sle", "sgt", "sge")), seed % 3)


def kernel(ops: list[str], limit: str = "%4", predicate: str = "slt", start: int = 0) -> Op:
    """A kernel of ops whose results are %6 and so on, after a range, %3, and two arguments, %4 and %5."""
    lines = [f"%3 : tensor<x{N}, i32> = tt.make_range @start={start} @end={start + N};"]
    lines += [f"%{at} : tensor<x{N}, i32> = tt.splat %{at - 3};" for at in (4, 5)]
    lines += [f"%{number} : tensor<x{N}, i32> = {op};" for number, op in enumerate(ops, 6)]
    index = f"%{5 + len(ops)}"
    lines.append(f"%20 : tensor<x{N}, i1> = arith.cmpi {index} {limit} @{predicate};")
    lines.append(f"%21 : tensor<x{N}, ptr<i32>> = tt.splat %0; %22 : tensor<x{N}, ptr<i32>> = tt.addptr %21 {index};")
    body = "\n".join((*lines, f"tt.store %22 {index} %20; tt.return;"))
    return zg.parse(
        f'module ()void -> {{ tt.func @"f" (%0 : ptr<i32>, %1 : i32, %2 : i32)void -> {{ {body} }}; unreachable; }};'
    )
