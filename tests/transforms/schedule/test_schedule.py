"""Schedules: an annotated loop means its iterations one after the other, and its expansion has the same results."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from asynchronous_kernels import KERNELS

import ziggurat as zg
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.backend.reference.run import run
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import i1
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.channels import proofs_of
from ziggurat.transforms.gpu.gpu_passes import PLACE
from ziggurat.transforms.schedule.schedule import expand

Golden = Callable[[str, object], None]
NAMES = [name for name, _ in PLACE]
SIZE = 64


def program(before: str, loop: str, after: str = "") -> Op:
    """A kernel that reads x and writes y, in iterations from `first` to `last`."""
    model = parse(
        f"""module ()void -> {{
            tt.func @"k" (%x : ptr<i32>, %y : ptr<i32>, %first : i32, %last : i32)void -> {{
                %zero : i32 = arith.constant @0; %one : i32 = arith.constant @1; {before}
                {loop}
                {after} tt.return;
            }};
            unreachable;
        }};"""
    )
    verify(model)
    return model


def in_sequence(model: Op) -> Op:
    """The annotated model as it stands: every iteration that runs is one of the loop."""

    def always(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        return builder.add(arith.ConstantOp(True, i1)) if isinstance(op, gpu.Stage) else None

    return transform(model, always)


def results(model: Op, first: int, last: int, *, strict: bool = False) -> np.ndarray[Any, Any]:
    """The content of y after the kernel has run. Reads outside of x are errors; with `strict`, undefined uses, too."""
    x, y = np.random.default_rng(3).integers(-9, 9, SIZE, dtype=np.int32), np.zeros(4 * SIZE, np.int32)
    run(model, "k", (1,), [x, y, first, last], strict=strict)
    return y


# A load in stage 0, whose pointer is carried, a product in stage 1, and a sum in stage 2, which is the loop's own.
THREE = program(
    "",
    """%r : Tuple<i32, ptr<i32>> = scf.for %first %last %one %zero %x
    (%i : i32, %sum : i32, %p : ptr<i32>)Tuple<i32, ptr<i32>> -> {
        %more : i1 = gpu.stage @0 @order=2;
        %a : i32 = tt.load %p %more;
        %q : ptr<i32> = tt.addptr %p %one;
        %yes : i1 = gpu.stage @1 @order=1;
        %b : i32 = arith.muli %a %i;
        %own : i1 = gpu.stage @2;
        %s : i32 = arith.addi %sum %b;
        %t : i32 = arith.addi %s %a;
        %at : ptr<i32> = tt.addptr %y %i;
        tt.store %at %t;
        scf.yield %t %q;
    };""",
    "%end : i32 = tuple.load %r @0; tt.store %y %end;",
)


def test_three_stages(golden: Golden) -> None:
    expanded = expand(THREE)
    verify(expanded)
    golden("schedule.before", THREE)
    golden("schedule.after", expanded)
    for last in range(6):
        expected = results(in_sequence(THREE), 0, last, strict=True)
        np.testing.assert_array_equal(results(expanded, 0, last, strict=True), expected)
    assert expected.any()


def test_a_model_without_stages_stays() -> None:
    model = in_sequence(THREE)
    assert expand(model) is model


def drawn(random: Random) -> str:
    """A loop with random ops in random stages."""
    own = random.randint(0, 3)
    ranks = random.sample(range(own + 1), own + 1)  # The order of the stages in a step.
    late = random.randint(0, 1)  # Whether there is the stage after the loop's own.
    ranks.insert(random.randint(0, own), own + 1)
    ranks = [ranks.index(stage) for stage in range(own + 2)]
    homes = {f"%c{k}": random.randint(0, own + late) for k in range(random.randint(2, 4))}
    stages, markers, lines, now = dict[str, int](), dict[int, str](), list[str](), -1
    for at in range(random.randint(6, 16)):
        stage = random.choice([0, own, random.randint(0, own), own + late])
        if stage != now:
            now, markers[stage] = stage, f"%m{at}"
            lines.append(f"%m{at} : i1 = gpu.stage @{stage} @order={ranks[stage]};")
        # A carried value is used after its next value in a step if that is computed one stage later.
        usable = ["%one" if stage > own else "%i", "%one", *(value for value in stages if stages[value] <= stage)]
        usable += [
            c for c, home in homes.items() if home <= stage or (home == stage + 1 and ranks[home] < ranks[stage])
        ]
        a, b = random.choices(usable, k=2)
        kind = random.choice(["arith.addi", "arith.muli", "arith.xori", "load", "store" if stage == own else "load"])
        if kind == "load":
            lines.append(f"%o{at} : i32 = arith.andi {a} %mask; %p{at} : ptr<i32> = tt.addptr %x %o{at};")
            lines.append(f"%v{at} : i32 = tt.load %p{at} {markers[stage]} %zero;")
        elif kind == "store":
            lines.append(f"%o{at} : i32 = arith.andi {a} %mask; %p{at} : ptr<i32> = tt.addptr %y %o{at};")
            lines.append(
                f"%w{at} : i32 = tt.load %p{at}; %v{at} : i32 = arith.addi %w{at} {b}; tt.store %p{at} %v{at};"
            )
        else:
            lines.append(f"%v{at} : i32 = {kind} {a} {b};")
        stages[f"%v{at}"] = stage
    end = [random.choice([value for value in stages if stages[value] <= home] or [c]) for c, home in homes.items()]
    lines.append(f"%own : i1 = gpu.stage @{own}; scf.yield {' '.join(end)};")
    types = f"Tuple<{', '.join(['i32'] * len(homes))}>"
    parameters = ", ".join(f"{c} : i32" for c in homes)
    step = random.choice(["%one", "%two", "%down"])
    initial = " ".join(random.choices(["%one", "%zero", "%two", "%first"], k=len(homes)))
    head = f"%r : {types} = scf.for %first %last {step} {initial} (%i : i32, {parameters}){types}"
    return f"{head} -> {{ {' '.join(lines)} }};"


@pytest.mark.parametrize("seed", range(40))
def test_random_schedules(seed: int) -> None:
    random = Random(seed)
    loop = drawn(random)
    constants = "%two : i32 = arith.constant @2; %down : i32 = arith.constant @-3; %mask : i32 = arith.constant @63;"
    ends = [
        f"%e{k} : i32 = tuple.load %r @{k}; %k{k} : i32 = arith.constant @{SIZE + k}; "
        f"%z{k} : ptr<i32> = tt.addptr %y %k{k}; tt.store %z{k} %e{k};"
        for k in range(loop.count("%c", 0, loop.index("->")))
    ]
    model = program(constants, loop, " ".join(ends))
    assert str(parse(str(model))) == str(model)
    expanded = expand(model)
    verify(expanded)
    assert not any(isinstance(op, gpu.Stage) for op in expanded.walk())
    for first, last in ((0, 0), (0, 1), (0, 2), (1, 9), (9, 0), (4, -2)):
        expected = results(in_sequence(model), first, last)
        np.testing.assert_array_equal(
            results(expanded, first, last), expected, f"{first} to {last}\n{model}\n{expanded}"
        )


def refused(body: str) -> str:
    loop = f"%r : i32 = scf.for %zero %last %one %zero (%i : i32, %c : i32)i32 -> {{ {body} }};"
    with pytest.raises(InternalError) as error:
        expand(program("", loop))
    return str(error.value)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("%m : i1 = gpu.stage @1; %a : i32 = arith.addi %i %c; %n : i1 = gpu.stage @0; "
         "%b : i32 = arith.addi %a %a; %o : i1 = gpu.stage @1; scf.yield %b;", "stage 0 uses a value of stage 1"),
        ("%m : i1 = gpu.stage @0; %a : i32 = arith.addi %c %i; %n : i1 = gpu.stage @2; "
         "%b : i32 = arith.addi %a %a; scf.yield %b;", "stage 0 uses a value of stage 2"),
        ("%m : i1 = gpu.stage @1; %a : i32 = arith.addi %c %i; %n : i1 = gpu.stage @0; scf.yield %c;",
         "an op of the stage after the loop's own uses the index"),
        ("%m : i1 = gpu.stage @2; %a : i32 = arith.addi %c %c; %n : i1 = gpu.stage @0; scf.yield %a;",
         "an op is more than one stage after the loop's own"),
    ],
)  # fmt: skip
def test_schedules_that_are_refused(body: str, why: str) -> None:
    assert why in refused(body)


# Loops as the passes annotate them.


@cache
def annotated(name: str, stages: int) -> gpu.Module:
    """The model of a kernel with annotated loops."""
    kernel, types, target, num_warps = KERNELS[name]
    model: Any = kernel.triton(*types)
    for step, arguments in PLACE[: NAMES.index("copies") + 1]:
        model = arguments(model, CompileOptions(target, num_warps, stages))
        if step == "specialize" and any(isinstance(op, gpu.WarpSpecialize) for op in model.walk()):
            break
    return model


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", KERNELS)
def test_the_channels_of_an_annotated_loop_are_proved_as_it_stands(name: str, stages: int) -> None:
    model = annotated(name, stages)
    verify(model)
    assert str(parse(str(model))) == str(model)
    assert any(isinstance(op, gpu.Stage) for op in model.walk())
    assert [hazard for proof in proofs_of(model).values() for hazard in proof.hazards] == []


F16, F32 = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.ptr(zg.f32))


@zg.kernel
def product(a_ptr, b_ptr, out_ptr, steps):
    """Σ over steps of a[step] · b[step], 64×32 by 32×16."""
    rows, along, columns = zg.arange(0, 64), zg.arange(0, 32), zg.arange(0, 16)
    a_ptrs = zg.add(a_ptr, zg.add(zg.mul(zg.expand(rows, 1), 32), zg.expand(along, 0)))
    b_ptrs = zg.add(b_ptr, zg.add(zg.mul(zg.expand(along, 1), 16), zg.expand(columns, 0)))
    total = zg.zeros((64, 16), zg.f32)
    for _ in range(0, steps):
        total = zg.dot(zg.load(a_ptrs), zg.load(b_ptrs), total)
        a_ptrs, b_ptrs = zg.add(a_ptrs, 64 * 32), zg.add(b_ptrs, 32 * 16)
    zg.store(zg.add(out_ptr, zg.add(zg.mul(zg.expand(rows, 1), 16), zg.expand(columns, 0))), total)


@pytest.mark.parametrize("order", [1, 6])
@pytest.mark.parametrize("distance", [1, 2, 3, 4])
def test_other_schedules_of_a_pipelined_loop(distance: int, order: int) -> None:
    """A loop whose rings have four slots, with its copies so many iterations ahead, before or after the late wait.

    The proof refuses the schedules that need a slot more.
    """
    model: Any = product.triton(F16, F16, F32, zg.i32)
    for name, step in PLACE:
        model = step(model, CompileOptions("sm_90a", 4, 3, raise_pointers=False))
        if name == "copies":
            break

    def other(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, gpu.Stage):
            return None
        stage, place = (distance + op.stage - 2, op.order) if op.stage else (0, order)
        return builder.add(gpu.Stage(stage, order=place))

    model = transform(model, other)
    (stages,) = {op.stages for op in model.walk() if isinstance(op, gpu.Channel)}
    assert stages == 4
    finish = PLACE[NAMES.index("copies") + 1 :]
    if distance + (order == 1) >= stages:
        with pytest.raises(InternalError, match="release"):
            for _, step in finish:
                model = step(model, CompileOptions("sm_90a", 4, 3, raise_pointers=False))
        return
    for _, step in finish:
        model = step(model, CompileOptions("sm_90a", 4, 3, raise_pointers=False))
    random = np.random.default_rng(distance)
    for steps in (0, 1, 2, 7):
        a, b = (random.integers(-3, 4, (steps, *shape)).astype(np.float16) for shape in ((64, 32), (32, 16)))
        actual = np.full((64, 16), np.nan, np.float32)
        simulate(to_llvm(model), num_warps=4, shared=model.shared, arguments=[a, b, actual, steps])
        np.testing.assert_array_equal(actual, np.einsum("smk,skn->mn", a.astype(np.float64), b.astype(np.float64)))
